"""The page of results opens with a plain answer, made from the stored numbers."""

from __future__ import annotations

from benchcast.methods import DEFAULT_METHOD
from lab.reproduce.opening import opening


def row(study, split, gain, coverage, method=DEFAULT_METHOD):
    return {
        "study": study,
        "split": split,
        "method": method,
        "gain_by_family": gain,
        "coverage": coverage,
        "width": 8.4,
    }


ROWS = [
    row("zoo", "family", 10.0, 0.93),
    row("public-llms", "family", 1.25, 0.92),
    row("olmo-ladder", "column", 4.0, 0.88),
    row("olmo-ladder", "column", 99.0, 0.1, method="pls"),
    row("mine", "family", None, None),
]


def test_real_models_come_first_and_the_sentence_is_about_them_alone():
    said, _, *table = opening({"rows": ROWS}).rstrip().splitlines()
    assert "squared error of `stack`" in said
    assert "is 25% to 80% of that" in said
    assert "hold 88% to 92% of the scores" in said
    assert [line.split(":")[0] for line in table[2:]] == ["| public-llms", "| olmo-ladder", "| zoo"]
    assert table[2].endswith("| whole families | 80% | 92% | 8 |")


def test_without_numbers_on_real_models_nothing_is_claimed():
    assert opening({"rows": ROWS[:1]}) == ""
    assert opening({"rows": []}) == ""


def test_one_study_gives_one_number_and_no_range():
    assert "is 80% of that" in opening({"rows": ROWS[:2]})
