"""Salience on tokens as they can be shown: whole characters, extremes, sources and kinds."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from benchcast.cli.heatmap import MARKS, Shade, level_of, lines_of, print_heat_map
from benchcast.messages import NUMBER, TOKEN_KINDS
from benchcast.records import Text, TextSet
from benchcast.reports.explain import family_losses, make_units, weigh_units

TEXTS = TextSet.of(
    [
        Text("plain", "a", "one 2 three", 6),
        Text("emoji", "b", "hi 👩\u200d👧! שלום", None),
        Text("code", "b", "if x:\r\n\treturn 中文", 8),
    ]
)


def every_byte(texts: TextSet) -> np.ndarray:
    return np.arange(texts.starts[-1] + 1)


@given(st.data())
def test_units_of_any_tokenization_spell_the_texts(data):
    """Wherever tokens are cut, units are whole characters, in order, and nothing is lost."""
    end = int(TEXTS.starts[-1])
    inner = data.draw(st.sets(st.integers(1, end - 1)))
    edges = np.array(sorted({0, end, *inner, *TEXTS.starts.tolist()}))
    units = make_units(TEXTS, edges)
    for i, text in enumerate(TEXTS):
        units_of_text = units.of_text(i)
        assert "".join(units.shown(k) for k in range(units_of_text.start, units_of_text.stop)) == text.text
    assert units.tokens.sum() == len(edges) - 1
    assert (units.tokens >= 1).all()


def test_tokens_that_split_a_character_are_shown_as_one():
    units = make_units(TEXTS, every_byte(TEXTS))
    units_of_text = units.of_text(1)
    shown = [units.shown(k) for k in range(units_of_text.start, units_of_text.stop)]
    assert shown[:5] == ["h", "i", " ", "👩\u200d👧", "!"]
    assert units.tokens[units_of_text][3] == len("👩\u200d👧".encode())
    third = units.of_text(2)
    assert "\r\n" in [units.shown(k) for k in range(third.start, third.stop)]


def test_salience_of_a_unit_is_the_mean_of_its_tokens_over_the_mean_of_all():
    units = make_units(TEXTS, every_byte(TEXTS))
    salience = np.arange(1.0, units.first[-1] + 1, dtype=np.float32)
    explained = weigh_units(units, salience, np.ones(len(salience), bool), task="t", method="salience")
    k = units.of_text(1).start + 3
    first, last = units.first[k], units.first[k + 1]
    assert explained.salience[k] == pytest.approx(salience[first:last].mean() / salience.mean())
    assert np.average(explained.salience, weights=units.tokens) == pytest.approx(1)


def test_tokens_outside_the_common_support_have_no_salience():
    units = make_units(TEXTS, every_byte(TEXTS))
    n = int(units.first[-1])
    supported = np.arange(n) >= 4
    explained = weigh_units(units, np.ones(n, np.float32), supported, task="t", method="salience")
    assert np.isnan(explained.salience[:4]).all()
    assert np.isfinite(explained.salience[4:]).all()
    assert not set(explained.most(n)) & set(range(4))
    assert not set(explained.least(n)) & set(range(4))


def test_most_and_least_are_the_extremes_one_for_each_token():
    texts = TextSet.of([Text("x", "s", "a b a b c")])
    units = make_units(texts, np.array([0, 1, 3, 5, 7, 9]))
    explained = weigh_units(units, np.array([5, 4, 9, 0, 0], np.float32), np.ones(5, bool), task="t", method="m")
    assert explained.most(2) == [2, 1], "the better of the two a"
    assert explained.least(2) == [3, 4]
    assert explained.least(2, np.array([0, 0, 0, 1.0, 2.0])) == [4, 3], "of equals, the one that loses most"


def test_groups_tell_where_the_salience_lies():
    units = make_units(TEXTS, every_byte(TEXTS))
    number = np.repeat(units.kind == TOKEN_KINDS.index(NUMBER), units.tokens)
    explained = weigh_units(units, number.astype(np.float32), np.ones(len(number), bool), task="t", method="m")
    by_kind = {row["name"]: row for row in explained.by_kind()}
    assert by_kind[NUMBER]["share"] == 1
    assert by_kind[NUMBER]["mean"] == pytest.approx(len(number) / number.sum())
    by_source = {row["name"]: row for row in explained.by_source()}
    assert by_source["a"]["share"] == 1
    assert by_source["b"]["mean"] == 0
    assert np.isnan(by_kind["emoji and symbols"]["answer"]), "no emoji stands in an answer"


def test_context_quotes_what_stands_around():
    units = make_units(TEXTS, every_byte(TEXTS))
    assert units.context(4) == ("one ", "2", " three")


def test_context_quotes_no_character_in_part():
    family = "👩\u200d👧"
    texts = TextSet.of([Text("x", "s", family * 12 + "!" + family * 12)])
    middle = len((family * 12).encode())
    units = make_units(texts, np.array([0, middle, middle + 1, int(texts.starts[-1])]))
    before, token, after = units.context(1)
    assert token == "!"
    assert before == "…" + family * 8
    assert after == family * 8 + "…"


def test_a_familys_loss_is_the_mean_of_its_models_and_the_sum_over_a_character():
    texts = TextSet.of([Text("x", "s", "é!")])
    units = make_units(texts, np.array([0, 1, 2, 3]))
    nats = np.array([[1, 2, 3], [3, 4, 5], [10, 10, np.nan]], np.float32)
    losses = family_losses(nats, ["f", "f", "g"], units)
    assert losses["f"].tolist() == [5, 4]
    assert losses["g"][0] == 20
    assert np.isnan(losses["g"][1])


# ---- in the terminal


def printed(tokens, *, width=40, **kwargs) -> str:
    console = Console(width=width, highlight=False, **kwargs)
    with console.capture() as captured:
        print_heat_map(tokens, console)
    return captured.get()


def test_without_colours_marks_stand_below_their_tokens():
    out = printed([("ab", 0.2), (" cd", 2.0), ("中", 50.0), ("!", 12.0)]).splitlines()
    assert out[0] == "ab cd中!"
    assert out[1] == "  ...##*", "a wide character gets two marks"
    assert out[-1].startswith("salience, times the mean")


def test_right_to_left_tokens_have_their_marks_around_them():
    out = printed([("שלום", 5.0), (" x", 0.0)])
    assert out.splitlines()[0] == "[:שלום] x"


def test_with_colours_the_background_tells_and_no_marks_are_printed():
    out = printed([("ab", 0.2), ("cd", 50.0)], force_terminal=True, color_system="truecolor")
    assert "48;2;217;119;6" in out
    assert "##" not in out


def test_no_color_is_heard(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    out = printed([("ab", 0.2), ("cd", 50.0)], force_terminal=True)
    assert "\x1b[" not in out
    assert "  ##" in out


def test_a_text_cannot_drive_the_terminal():
    assert "\x1b" not in printed([("\x1b]0;owned\x07", 1.0), ("\x1b[2J", 2.0)])


@given(st.lists(st.tuples(st.text("ab 中\n", max_size=90), st.floats(-99, 99)), max_size=12), st.integers(20, 60))
def test_lines_fit_the_terminal_and_keep_every_character(tokens, width):
    shades = [Shade(t.replace("\n", "⏎"), level_of(s)) for t, s in tokens]
    lines = list(lines_of(shades, width))
    assert "".join(s.shown for line in lines for s in line) == "".join(s.shown for s in shades)
    for line in lines:
        assert sum(2 if c == "中" else 1 for s in line for c in s.shown) <= width


def test_marks_rise_with_salience_and_tell_the_sign():
    marks = [Shade("x", level_of(s)).mark for s in (0.5, 1, 3, 10, 30)]
    assert marks == list(MARKS)
    assert Shade("x", level_of(-50)).mark == "-"
    assert all(level_of(a) <= level_of(b) for a, b in pairwise(np.linspace(-40, 40, 99)))


# ---- the command


def test_explain_prints_a_text_and_what_carries_the_task(study, cli):
    ran = cli("explain", study.root, "--task", "task0", "--text", "source0-3")
    assert (ran.code, ran.err) == (0, "")
    assert "task0 by stack, text source0-3 (source0)" in ran.out
    assert "most salient tokens" in ran.out
    assert "least salient tokens" in ran.out
    assert "source1" in ran.out
    assert "start of a word" in ran.out
    assert "the forecast averages losses of" in ran.out


def test_explain_as_json_spells_the_text_and_agrees_with_the_stored_fit(study, cli):
    assert cli("fit", study.root, "--task", "task0").code == 0
    printed = json.loads(cli("explain", study.root, "--task", "task0", "--text", "source0-3", "--json").out)
    text = next(t.text for t in study.texts if t.id == "source0-3")
    assert "".join(t["token"] for t in printed["text"]["tokens"]) == text
    assert printed["most"][0]["salience"] >= printed["most"][1]["salience"] > printed["least"][0]["salience"]
    from benchcast import load

    fit = load(study.fit_folder("task0"))
    assert printed["most"][0]["salience"] == pytest.approx(fit.salience.max() / np.abs(fit.salience).mean(), rel=1e-4)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--task", "task9"], "error: unknown task 'task9'; study.toml has task0, task1; did you mean 'task"),
        (["--task", "task0", "--text", "source0-33"], "error: unknown text 'source0-33'; did you mean 'source0-3'?"),
        (["--task", "task0", "--text", "?"], "error: unknown text '?'; ids are in texts.jsonl"),
        (["--task", "task0", "--html", "."], "error: .: a folder; name a file to write, such as report.html"),
    ],
)
def test_explain_says_a_mistake_in_one_line(synthetic_folder, cli, arguments, line):
    ran = cli("explain", synthetic_folder, *arguments)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(line)
    assert ran.err.count("\n") == 1


def test_explain_refuses_a_fit_that_reads_no_tokens(study, cli):
    assert cli("fit", study.root, "--task", "task0", "--method", "compute").code == 0
    ran = cli("explain", study.root, "--task", "task0")
    assert ran.code == 1
    assert "by compute, which reads no tokens; fit again with `benchcast fit" in ran.err


def test_signed_weights_are_explained_too(study, cli):
    assert cli("fit", study.root, "--task", "task0", "--method", "ridge").code == 0
    printed = json.loads(cli("explain", study.root, "--task", "task0", "--json").out)
    assert min(t["salience"] for t in printed["least"]) == pytest.approx(0, abs=0.05)
    assert any(row["mean"] < 1 for row in printed["by_source"])


def test_a_fit_of_other_texts_is_made_again(study, cli):
    assert cli("fit", study.root, "--task", "task0").code == 0
    from benchcast import load

    folder = study.fit_folder("task0")
    fit = load(folder)
    other = TextSet.of([replace(fit.texts.texts[0], id="renamed"), *fit.texts.texts[1:]])
    about = {**fit.about, "texts": other.digest, "annotated_texts": other.annotated_digest}
    replace(fit, texts=other, about=about).save(folder)
    ran = cli("explain", study.root, "--task", "task0", "--text", "source0-0")
    assert ran.code == 0
    assert ran.err == "task0: the stored fit is of other texts; fitting again\n"
