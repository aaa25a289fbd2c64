"""The contamination check: the same question in another order, and what the losses of such variants show."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from benchcast.cli import cli
from benchcast.cli.select import contamination as command
from benchcast.errors import InputError, NotEnoughDataError, StudyError
from benchcast.importers.contamination import MARK, check_model, make_variants, with_options_moved
from benchcast.importers.mixture import build_mixture
from benchcast.records import Text, TextSet, TokenLosses
from benchcast.study.loss_files import write_parquet
from benchcast.study.study import Study

PROMPT = "Which?\nA. ant\nB. bee\nC. cat\nD. dog\nAnswer:"
QUESTION = Text("q", "mmlu", PROMPT + " C", len(PROMPT))


def losses_of(texts: TextSet, nats: list[float]) -> TokenLosses:
    return TokenLosses("m", np.ones(len(texts), np.int64), texts.starts, np.array(nats))


@given(st.integers(0, 200))
def test_a_variant_has_the_same_options_and_the_answer_follows_its_option(seed: int) -> None:
    variant = with_options_moved(QUESTION, seed=seed)
    assert variant is not None
    assert variant.answer_start is not None
    options = {line[0]: line[3:] for line in variant.text.split("\n")[1:5]}
    answer = variant.text[variant.answer_start :].strip()
    assert options[answer] == "cat"
    assert answer != "C"
    assert sorted(options.values()) == ["ant", "bee", "cat", "dog"]
    assert len(variant.text) == len(QUESTION.text)


def test_bbh_options_in_brackets_are_moved_too() -> None:
    prompt = "Q: When?\nOptions:\n(A) now\n(B) then\nA:"
    variant = with_options_moved(Text("q", "bbh", f"{prompt} (B)", len(prompt)))
    assert variant is not None
    assert variant.text == "Q: When?\nOptions:\n(A) then\n(B) now\nA: (A)"


@pytest.mark.parametrize(
    "text", ["no options\nAnswer: C", "A. one\nsplit over\nB. lines\nAnswer: A", "A. x\nB. y\nAnswer: why"]
)
def test_texts_without_clear_options_have_no_variant(text: str) -> None:
    start = text.index("Answer:") + 7
    assert with_options_moved(Text("q", "s", text, start)) is None
    assert with_options_moved(Text("q", "s", text)) is None


def test_a_model_that_learned_the_texts_is_told_from_one_that_did_not(benchmarks: Path) -> None:
    texts = make_variants(build_mixture({"mmlu": 60}, benchmarks).texts, 40)
    noise = np.random.default_rng(1).normal(20, 1, len(texts))
    is_variant = np.array([t.id.endswith(MARK) for t in texts])
    fresh = check_model(losses_of(texts, list(noise)), texts)
    learned = check_model(losses_of(texts, list(noise + 2.0 * is_variant)), texts)
    assert fresh.pairs == learned.pairs == 40
    assert fresh.p_value > 0.05
    assert learned.p_value < 0.001
    assert learned.nats == pytest.approx(fresh.nats + 2.0)
    assert learned.easier > 0.8


def test_paraphrases_are_variants_and_are_weighed_by_length() -> None:
    texts = TextSet.of(Text(f"t{i}", "s", f"sentence {i}") for i in range(5))
    said = [Text(f"t{i}", "s", f"sentence {i}" * 2) for i in range(5)]
    pairs = make_variants(texts, 10, paraphrases=said)
    assert len(pairs) == 10
    check = check_model(losses_of(pairs, [3.0, 6.0] * 5), pairs)
    assert check.nats == 0
    with pytest.raises(InputError, match="no text with that id"):
        make_variants(texts, 10, paraphrases=[Text("zz", "s", "x")])
    with pytest.raises(NotEnoughDataError, match="lettered options"):
        make_variants(texts, 10)


def test_too_few_pairs_are_no_check() -> None:
    pairs = make_variants(TextSet.of([QUESTION]), 5)
    with pytest.raises(NotEnoughDataError, match=r"1 pairs .* at least 5"):
        check_model(losses_of(pairs, [1.0, 2.0]), pairs)


def test_the_command_writes_variants_then_checks_them(benchmarks: Path, tmp_path: Path) -> None:
    mixture = build_mixture({"mmlu": 30, "gsm8k": 5}, benchmarks)
    Study.create(tmp_path / "s", mixture.texts, tasks=mixture.tasks)
    call = [str(tmp_path / "s"), str(tmp_path / "t"), "--count", "20"]
    first = CliRunner().invoke(command, call)
    assert "20 texts with their variants" in first.output
    assert "no losses yet" in CliRunner().invoke(command, call).output
    pairs = Study.open(tmp_path / "t")
    nats = [9.0 if t.id.endswith(MARK) else 4.0 for t in pairs.texts]
    pairs.losses_path("m").parent.mkdir()
    write_parquet(pairs.losses_path("m"), losses_of(pairs.texts, nats), pairs.texts)
    again = CliRunner().invoke(command, call)
    assert again.exit_code == 0, again.output
    assert "+5.000" in again.output
    assert "100%" in again.output
    assert '"pairs": 20' in CliRunner().invoke(command, [*call, "--json"]).output


def test_the_command_still_answers_to_its_former_name_which_help_does_not_list(tmp_path: Path) -> None:
    ran = CliRunner().invoke(cli, ["twins", str(tmp_path / "none"), str(tmp_path / "t")])
    assert isinstance(ran.exception, StudyError)
    listed = CliRunner().invoke(cli, ["--help"]).output
    assert "contamination" in listed
    assert "twins" not in listed
    assert "twins" not in cli.list_commands(click.Context(cli))


def test_pairs_have_no_options_which_the_comparison_does_not_read() -> None:
    pairs = make_variants(TextSet.of([replace(QUESTION, options=(" A", " B", " D"))]), 1)
    assert [t.options for t in pairs] == [(), ()]
