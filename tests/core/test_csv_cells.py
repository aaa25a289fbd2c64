"""No CSV of the package holds a formula, and all of them read back unchanged."""

from __future__ import annotations

import ast
import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import benchcast as bc
from benchcast.study.csv_cells import FORMULA, NUMBER, csv_text, escaped, unescaped
from benchcast.study.reading import parse_csv

ROOT = Path(bc.__file__).parent
NAMES = [
    "=1+1",
    "+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(A1)",
    "'=quoted",
    "''@x",
    "＝1",
    "-7b",
    "'plain",
    "it's",
    "-7",
    "+.5e3",
]
cells = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=9) | st.text(
    "'=+-@17.e\t", max_size=5
)


@given(cells)
def test_a_cell_reads_back_and_is_no_formula(text):
    cell = escaped(text)
    assert unescaped(cell) == text
    assert not cell.startswith(tuple("=+-@\t\r\n＝＋－＠")) or NUMBER.fullmatch(cell)


@given(st.lists(st.tuples(cells, st.floats(allow_infinity=False)), max_size=4))
def test_a_table_reads_back(rows):
    text = csv_text(("name", "value"), rows)
    read = parse_csv(io.StringIO(text, newline=""), Path("x.csv"))
    assert [row["name"] for row in read] == [name for name, _ in rows]
    assert [float(row["value"] or "nan") for row in read] == pytest.approx([value for _, value in rows], nan_ok=True)


def test_a_study_with_names_like_formulas_is_safe_in_a_spreadsheet_and_reads_back(study, world):
    study.add_models([bc.ModelInfo(name, family=f"@{i}", base="=base") for i, name in enumerate(NAMES)])
    study.add_scores([bc.Score(name, "task0", 0.5, harness="-x") for name in NAMES])
    again = bc.Study.open(study.root)
    assert [m.model for m in again.models()][-len(NAMES) :] == NAMES
    assert {m.base for m in again.models()} == {"", "=base"}
    assert [s.model for s in again.scores() if s.harness == "-x"] == NAMES
    for file in ("models.csv", "scores.csv"):
        with (study.root / file).open(encoding="utf-8", newline="") as lines:
            for cell in (cell for row in csv.reader(lines) for cell in row):
                assert NUMBER.fullmatch(cell) or not FORMULA.match(cell) or cell.startswith("'"), cell


def test_a_table_of_bits_per_byte_holds_no_formula(study, cli, tmp_path):
    old = study.models_with_losses()[0]
    bc.rename_model(study, old, "=HYPERLINK(1)")
    cli("bpb", study.root, "--csv", tmp_path / "bpb.csv")
    text = (tmp_path / "bpb.csv").read_text(encoding="utf-8")
    assert "'=HYPERLINK(1)" in text
    assert "\n=" not in text


def test_numbers_stay_numbers(study):
    assert csv_text(("a", "b", "c"), [(-0.5, float("nan"), 3.0), (1e300, None, -2)]) == "a,b,c\n-0.5,,3\n1e+300,,-2\n"
    assert "'-" not in (study.root / "scores.csv").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_no_other_file_writes_csv(path):
    """Another writer would not escape formulas."""
    if path.name == "csv_cells.py":
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            assert ast.unparse(node) not in ("csv.writer", "csv.DictWriter")
            assert node.attr not in ("to_csv", "write_csv")
        if isinstance(node, ast.ImportFrom) and node.module == "pyarrow.csv":
            raise AssertionError("pyarrow writes formulas as they are")
