"""Tables in a terminal: they fit, no number is cut, and names cannot drive the terminal."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

import benchcast.cli
from benchcast.cli.output import print_json, print_table, say
from benchcast.cli.progress import progress
from benchcast.cli.tables import table_lines, wrap_text
from benchcast.cli.watch import curve
from benchcast.messages import format_interval
from benchcast.methods import MAIN_METHODS, METHODS

ESCAPE = "\x1b[31mred\x1b]0;title\x07\x9b2J\u202e"
names = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Mn", "Me", "Mc")), max_size=60)
numbers = st.floats(-1e6, 1e6).map(lambda x: f"{x:.4g}")


def lines_of(header, rows, **how) -> list[str]:
    return [line.plain for line in table_lines(header, rows, **{"room": 80, **how})]


@given(st.lists(st.tuples(names, *[numbers] * 9, names), min_size=1, max_size=4), st.integers(2, 9))
def test_every_table_fits_80_columns_with_every_number_whole(rows, columns):
    cut = [(*row[: 1 + columns], row[-1]) for row in rows]
    lines = lines_of(("a task", *[f"column number {i}" for i in range(columns)], ""), cut)
    assert max(map(cell_len, lines)) <= 80
    shown = " ".join(lines).split()
    for row in cut:
        assert all(cell in shown for cell in row[1:-1])


def test_a_table_that_fits_stays_as_it_is():
    rows = [("a", "0.1", "remark"), ("bb", "12.3", "")]
    assert lines_of(("task", "score", ""), rows) == ["task  score", "a       0.1  remark", "bb     12.3"]


def test_headings_wrap_before_columns_part():
    rows = [("arithmetic", *["0.045", "0.277", "45 of 45"] * 2)]
    header = ("task", *["absolute error", "if unchanged", "inside interval"] * 2)
    assert len(lines_of(header, rows)) == 3, "two lines of headings, one row"
    assert lines_of(header, rows)[1].startswith("task"), "headings stand at the bottom"


def test_columns_that_do_not_fit_go_into_even_blocks_with_the_first_column_again():
    header = ("method", *[f"task{i:06}" for i in range(7)])
    lines = lines_of(header, [("perplexity-correlations", *["1.23e-04"] * 7)])
    heads = [line for line in lines if line.startswith("method")]
    assert [len(line.split()) for line in heads] == [5, 4]
    assert sum(line.startswith("perplexity-correlations") for line in lines) == 2


def test_a_remark_that_does_not_fit_stands_below_its_row():
    lines = lines_of(("task", "forecast", ""), [("a", "0.5", "far outside " * 9), ("b", "0.6", "")])
    assert lines[1].split() == ["a", "0.5"]
    assert lines[2].startswith("  far outside")
    assert lines[-1].split() == ["b", "0.6"]


def test_text_wraps_between_words_and_wide_characters_count_double():
    assert wrap_text("one two three", 7) == ["one two", "three"]
    assert wrap_text("在笛子当中", 4) == ["在笛", "子当", "中"]
    assert wrap_text("", 4) == [""]


def test_wide_tables_are_one_table(capsys):
    print_table(("method", *["t" * 30] * 9), [("m", *["1"] * 9)], wide=True)
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["method", *["t" * 30] * 9]
    assert row.split() == ["m", *["1"] * 9]


@pytest.mark.parametrize("where", ["title", "header", "cell", "remark"])
def test_names_cannot_drive_the_terminal_from_a_table(capsys, where):
    words = {"title": "t", "header": "h", "cell": "c", "remark": "r"} | {where: ESCAPE + "\n\r"}
    print_table(("task", words["header"], ""), [(words["cell"], "1", words["remark"])], title=words["title"])
    out = capsys.readouterr().out
    assert "⟨U+001B⟩[31mred" in out
    assert not set(out) & set("\x1b\x07\x9b\u202e\r")


def test_lines_of_output_keep_their_breaks_and_lose_their_escapes(capsys):
    say(f"first {ESCAPE}\nsecond")
    out = capsys.readouterr().out
    assert out.splitlines()[1] == "second"
    assert not set(out) & set("\x1b\x07\x9b\u202e")


def test_json_says_the_same_with_odd_characters_escaped(capsys):
    print_json({ESCAPE: "\x7f\u2028"})
    out = capsys.readouterr().out
    assert json.loads(out) == {ESCAPE: "\x7f\u2028"}
    assert not set(out) & set("\x1b\x07\x9b\u202e\x7f\u2028")


def test_progress_shows_names_without_their_escapes(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    with progress("reading", 2) as advance:
        advance(f"\x1b[31m{'x'}")
    err = capsys.readouterr().err
    assert "\x1b[31mx" not in err
    assert "⟨U+001B⟩[31mx" in err


def test_a_flat_curve_is_drawn_flat():
    assert curve([0.500, 0.501, 0.5005]) == "0.50 ▁▁▁ 0.50"
    assert curve([0.2, 0.5, 0.8]) == "0.20 ▁▄█ 0.80"
    assert curve([0.50, 0.51, 0.52]).count("█") == 0, "two points are no climb over the whole height"
    assert curve([float("nan")]) == ""


def test_a_comparison_has_methods_as_rows_and_says_which_is_best(synthetic_folder, cli, monkeypatch):
    ran = cli("compare", synthetic_folder)
    lines = ran.out.splitlines()
    assert max(map(len, lines[: lines.index("")])) <= 80 or "squared error" in max(lines, key=len)
    assert lines[1].split() == ["method", "task0", "task1"]
    assert [line.split()[0] for line in lines[2 : 2 + len(MAIN_METHODS)]] == list(MAIN_METHODS)
    for column in (1, 2):
        assert sum(line.split()[column].startswith("*") for line in lines[2 : 2 + len(MAIN_METHODS)]) == 1, (
            "one best method a task"
        )
    assert "`benchcast fit` uses" in " ".join(ran.out.split())
    monkeypatch.setenv("COLUMNS", "44")
    narrow = cli("compare", synthetic_folder, "--method", "perplexity-correlations").out.splitlines()
    assert sum(line.startswith("method") for line in narrow) == 2, "a block a task"
    wide = cli("compare", synthetic_folder, "--method", "perplexity-correlations", "--wide").out.splitlines()
    assert sum(line.startswith("method") for line in wide) == 1


def test_every_method_is_explained_in_one_line(cli):
    said = " ".join(cli("compare", "--help").out.split())
    assert all(f"{method.name}{' *' * method.main} {method.about}" in said for method in METHODS.values())


def test_an_interval_without_an_end_says_so():
    assert format_interval(0.1, 0.25, ".3f") == "0.100 – 0.250"
    assert format_interval(0.1, float("inf"), ".3f") == "0.100 – unbounded"
    assert format_interval(float("-inf"), 0.1, ".3f") == "unbounded – 0.100"
    assert format_interval(1.3e-9, 34716432651.889, ".3f", around=6.7) == "0.000 – unbounded"
    assert format_interval(float("-inf"), float("inf"), ".3f") == "unbounded"
    assert format_interval(float("nan"), float("nan"), ".3f") == "–"


@pytest.mark.parametrize(
    "command", [("status", "{evil}"), ("predict", "{study}", "--model", "{evil}"), ("fit", "{study}", "--{evil}")]
)
def test_errors_quote_names_without_their_escapes_on_one_line(synthetic_folder, cli, command):
    ran = cli(*(part.format(evil=ESCAPE + "\nx", study=synthetic_folder) for part in command))
    assert ran.code == 1
    assert ran.err.count("\n") == 1
    assert "[31mred" in ran.err
    assert not set(ran.err) & set("\x1b\x07\x9b\u202e")


def test_all_lines_for_people_go_through_say():
    """One edge: what is echoed elsewhere could carry the escapes of a name."""
    for path in Path(benchcast.cli.__file__).parent.glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        echoes = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr in ("echo", "secho")]
        assert path.name == "output.py" or not echoes, path.name
