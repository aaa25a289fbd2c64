"""The mixed validation set: counts, bytes, answers, and what happens to files that do not fit."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from benchcast.errors import InputError, MissingExtraError
from benchcast.importers.benchmarks import TEMPLATES, Row, read_rows
from benchcast.importers.mixture import PAPER_MIX, build_mixture, parse_mix, read_hub, tasks_of
from benchcast.study.study import Study

MIX = "mmlu=100,bbh=100,gsm8k=100,hellaswag=100,cmmlu=100,bbh-cot=50"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(cli: Run) -> Run:
    return cli


def test_the_papers_mixture_has_550_texts_in_the_right_counts(benchmarks: Path, tmp_path: Path, run: Run) -> None:
    code, out, _ = run("init", tmp_path / "s", "--mix", MIX, "--data", benchmarks, "--seed", 3)
    assert code == 0
    study = Study.open(tmp_path / "s")
    assert Counter(t.source for t in study.texts) == PAPER_MIX
    assert "550 texts" in out
    assert {t.name: t.chance for t in study.tasks} == {
        "mmlu": 0.25, "bbh": 0.257, "gsm8k": 0.0, "hellaswag": 0.25, "cmmlu": 0.25, "ceval": 0.25
    }  # fmt: skip
    assert study.task("ceval").sources == study.task("cmmlu").sources == ("cmmlu",)
    assert study.task("bbh").sources == ("bbh", "bbh-cot")


@pytest.mark.parametrize("benchmark", TEMPLATES)
def test_every_benchmark_can_be_drawn_alone(benchmarks: Path, benchmark: str) -> None:
    mixture = build_mixture({benchmark: 40}, benchmarks, seed=1)
    assert len(mixture.texts) == 40
    assert mixture.tasks


def test_same_seed_same_bytes_and_another_seed_other_texts(written: Path, tmp_path: Path) -> None:
    files = []
    for name, seed in (("a", 5), ("b", 5), ("c", 6)):
        mixture = build_mixture(PAPER_MIX, written, seed=seed)
        Study.create(tmp_path / name, mixture.texts, tasks=mixture.tasks, seed=seed)
        files.append((tmp_path / name / "texts.jsonl").read_bytes())
    assert files[0] == files[1] != files[2]


def test_answers_end_the_text_and_start_at_their_space(benchmarks: Path) -> None:
    mixture = build_mixture({**PAPER_MIX, "ceval": 20}, benchmarks)
    for text in mixture.texts:
        raw = text.text.encode()
        assert text.answer_start is not None
        prompt, answer = raw[: text.answer_start].decode(), raw[text.answer_start :].decode()
        assert answer.strip()
        if text.source in ("mmlu", "cmmlu", "ceval"):
            assert answer.strip() in "ABCD"
            assert f"\n{answer.strip()}. " in prompt
        if text.source in ("cmmlu", "ceval"):
            assert prompt.endswith("答案：")
        else:
            assert answer[0] == " "
            assert not prompt[-1].isspace()


def test_items_with_options_keep_the_wrong_ones(benchmarks: Path) -> None:
    mixture = build_mixture({**PAPER_MIX, "ceval": 20}, benchmarks)
    for text in mixture.texts:
        if text.source in ("mmlu", "cmmlu", "ceval"):
            space = " " if text.source == "mmlu" else ""
            assert sorted((text.answer, *text.options)) == [space + letter for letter in "ABCD"]
        elif text.source == "hellaswag":
            assert len(text.options) in (0, 3)
            assert all(option[0] == " " and option[1:].strip() for option in text.options)
        else:
            assert text.options == ()
    assert sum(bool(t.options) for t in mixture.texts if t.source == "hellaswag") > 90


def test_an_item_with_the_right_ending_twice_has_no_options() -> None:
    fields = {"activity_label": "a", "ctx": "b", "endings": ["x", "y", "x ", "z"], "label": 0}
    assert TEMPLATES["hellaswag"](Row("here", "x", fields)).options == ()
    assert TEMPLATES["hellaswag"](Row("here", "x", {**fields, "label": 1})).options == (" x", " x", " z")


def test_mmlu_letter_is_the_right_choice() -> None:
    row = Row("here", "x", {"question": "Two?", "choices": ["1", "2", "3", "4"], "answer": 1})
    text = TEMPLATES["mmlu"](row)
    assert text.prompt + text.answer == "Two?\nA. 1\nB. 2\nC. 3\nD. 4\nAnswer: B"


def test_marks_of_wikihow_are_taken_out_of_hellaswag() -> None:
    ctx, endings = "How to boil [title] Heat [step] Take a pot.", ["[substeps] Fill it."]
    fields = {"activity_label": "Cooking", "ctx": ctx, "endings": endings, "label": "0"}
    text = TEMPLATES["hellaswag"](Row("here", "x", fields))
    assert text.prompt + text.answer == "Cooking: How to boil. Heat Take a pot. Fill it."


def test_worked_examples_come_before_pairs_in_the_chain_of_thought_part(written: Path) -> None:
    few = build_mixture({"bbh-cot": 6}, written).drawn["bbh-cot"]
    more = build_mixture({"bbh-cot": 10}, written).drawn["bbh-cot"]
    assert sum(x.spare for x in few.examples) == 0
    assert sum(x.spare for x in more.examples) == 4
    assert all("So the answer is" in x.prompt + x.answer for x in more.examples)


def test_empty_and_repeated_examples_are_passed_over_and_counted(written: Path, tmp_path: Path, run: Run) -> None:
    data = shutil.copytree(written, tmp_path / "data")
    path = data / "gsm8k" / "train.jsonl"
    rows = path.read_text(encoding="utf-8").splitlines()[:20]
    rows += [*rows[:5], json.dumps({"question": " ", "answer": "1"}), json.dumps({"question": "Why so?", "answer": ""})]
    path.write_text("\n".join(rows), encoding="utf-8")
    drawn = build_mixture({"gsm8k": 20}, data, seed=2).drawn["gsm8k"]
    assert len(drawn.examples) == 20
    code, _, err = run("init", tmp_path / "s", "--mix", "gsm8k=21", "--data", data)
    assert code == 1
    assert "21 examples requested, 20 usable of 27 found (2 empty, 5 repeat another)" in err
    assert not (tmp_path / "s").exists()


def test_original_mmlu_csv_without_header_is_read(tmp_path: Path) -> None:
    (tmp_path / "mmlu" / "val").mkdir(parents=True)
    (tmp_path / "mmlu" / "val" / "law_val.csv").write_text('"Is it, now?",a,b,c,d,C\n', encoding="utf-8")
    (row,) = read_rows("mmlu", tmp_path)
    text = TEMPLATES["mmlu"](row)
    assert (text.id, text.answer) == ("mmlu-law-0", " C")


def _gsm8k(content: bytes) -> Callable[[Path], object]:
    return lambda data: (data / "gsm8k" / "train.jsonl").write_bytes(content)


@pytest.mark.parametrize(
    ("mix", "damage", "said"),
    [
        ("mmlu=10", lambda d: shutil.rmtree(d / "mmlu"), "no folder 'mmlu'; found"),
        ("mmlu=10", lambda d: (d / "mmlu" / "val").rename(d / "mmlu" / "test"), "from its 'val', found test"),
        ("gsm8k=10", lambda d: (d / "gsm8k" / "train.jsonl").unlink(), "no such file"),
        ("ceval=10", lambda d: shutil.rmtree(d / "ceval" / "val"), "ceval is read from its 'val'"),
        ("bbh-cot=5", lambda d: shutil.rmtree(d / "bbh" / "cot-prompts"), "'cot-prompts'"),
        ("cmmlu=10", lambda d: (d / "cmmlu" / "history.csv").write_bytes("题".encode("gb18030")), "not UTF-8 text"),
        ("gsm8k=10", _gsm8k(b'{"question": "caf\xe9"}'), "not UTF-8 text"),
        ("gsm8k=10", _gsm8k(b'{"question": 1'), "line 1: not JSON"),
        ("gsm8k=1", _gsm8k(b'{"query": "x"}'), "no field 'question'; found query"),
        ("gsm8k=1", _gsm8k(b'{"question":"\\ud800","answer":"1"}'), "surrogate"),
        ("bbh=5", lambda d: (d / "bbh" / "word_sorting.json").write_bytes(b"[]"), "a BBH task needs a list 'examples'"),
        ("cmmlu=5", lambda d: (d / "cmmlu" / "x.csv").write_bytes(b"Question,A\n1,2,3\n"), "3 cells, the header has 2"),
        ("hellaswag=500", lambda d: None, "500 examples requested"),
    ],
)  # fmt: skip
def test_benchmark_files_that_do_not_fit_are_one_clear_line(
    written: Path, tmp_path: Path, run: Run, mix: str, damage: Callable[[Path], None], said: str
) -> None:
    data = shutil.copytree(written, tmp_path / "data")
    damage(data)
    code, out, err = run("init", tmp_path / "s", "--mix", mix, "--data", data)
    assert (code, out) == (1, "")
    assert said in err
    assert err.count("\n") == 1
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("mix", "said"),
    [
        ("mlu=5", "did you mean 'mmlu'?"),
        ("mmlu", "needs a count, such as mmlu=100"),
        ("mmlu=-3", "needs a count"),
        ("mmlu=0", "needs a count"),
        ("mmlu=1,mmlu=2", "occurs twice"),
    ],
)
def test_a_mix_that_cannot_be_read_says_why(mix: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_mix(mix)


def test_init_wants_texts_or_a_mix(tmp_path: Path, run: Run) -> None:
    assert run("init", tmp_path / "s")[0] == 1
    assert run("init", tmp_path / "s", "--mix", "mmlu=1", "--texts", "x")[0] == 1


def test_a_study_that_is_there_stays_as_it_is(written: Path, tmp_path: Path, run: Run) -> None:
    run("init", tmp_path / "s", "--mix", "mmlu=5", "--data", written)
    before = {p.name: p.read_bytes() for p in (tmp_path / "s").iterdir()}
    assert run("init", tmp_path / "s", "--mix", "mmlu=6", "--data", written)[0] == 1
    assert {p.name: p.read_bytes() for p in (tmp_path / "s").iterdir()} == before


def test_both_chinese_benchmarks_share_their_texts() -> None:
    for mix in (["cmmlu"], ["ceval"], ["cmmlu", "ceval"]):
        assert [(t.name, t.sources) for t in tasks_of(mix)] == [("cmmlu", tuple(mix)), ("ceval", tuple(mix))]


def test_what_the_hub_cannot_give_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtraError, match=r"benchcast\[hf\]"):
        list(read_hub("mmlu"))
