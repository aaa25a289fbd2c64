"""What small studies lack is said in one line, from draws that were measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchcast.forecasts.study_size import WIDTH_BY_FAMILIES, WIDTH_BY_MODELS, what_is_lacking
from synthetic import Plan, make_world, write_study

LEARNING = Path(__file__).parents[2] / "docs" / "figures" / "learning.json"


@pytest.mark.parametrize(
    ("families", "models", "line"),
    [
        (1, 30, "1 family of training models: intervals for other families are a guess"),
        (2, 40, "2 families of training models: intervals are wide; with 4 families about 0.6 times as wide"),
        (3, 40, "3 families of training models: intervals are wide; with 6 families about 0.6 times as wide"),
        (6, 12, "12 training models: intervals are wide; with 40 models about 0.6 times as wide"),
    ],
)
def test_a_small_study_is_told_what_it_lacks(families, models, line):
    assert what_is_lacking(families, models).startswith(line)


@pytest.mark.parametrize(("families", "models"), [(5, 20), (8, 200)])
def test_a_study_of_five_families_and_twenty_models_is_told_nothing(families, models):
    assert what_is_lacking(families, models) == ""


@pytest.mark.parametrize(
    ("widths", "of"), [(WIDTH_BY_FAMILIES, "training families"), (WIDTH_BY_MODELS, "training models")]
)
def test_the_widths_fall_as_in_the_draws(widths, of):
    rows = json.loads(LEARNING.read_text(encoding="utf-8"))
    means = rows.get("numbers", rows)["means"]
    measured = {r["count"]: r["width"] for r in means if (r["of"], r["method"]) == (of, "salience")}
    least = min(widths)
    for count, width in widths.items():
        assert width / widths[least] == pytest.approx(measured[count] / measured[least], abs=0.15), f"{count} {of}"


def test_fit_and_compare_print_the_line_for_a_small_study(tmp_path, cli):
    world = make_world(Plan(seed=3, families=3, sizes=3, checkpoints=2, tasks=1, texts_per_source=6))
    root = write_study(world, tmp_path / "study").root
    fitted = cli("fit", root, "--method", "all-token")
    assert "note: 3 families of training models: intervals are wide; with 6 families" in " ".join(fitted.out.split())
    compared = cli("compare", root, "--method", "all-token", "--split", "family")
    assert "note: 2 families of training models: intervals are wide; with 4 families" in " ".join(compared.out.split())
