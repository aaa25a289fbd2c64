"""A comparison as tables and as a figure; what is null has a reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import benchcast as bc
from benchcast.evaluation.comparison import MEASURES
from benchcast.records import ModelInfo

METHODS = ("all-token", "compute", "constant")


@pytest.fixture(scope="module")
def comparison(synthetic_folder: Path):
    return bc.compare(synthetic_folder, split="size", methods=METHODS)


def test_tables_hold_one_row_for_each_task_and_method(comparison):
    table = comparison.to_arrow()
    assert table.column_names == ["task", "method", *MEASURES, "remark"]
    rows = table.to_pylist()
    assert [(r["task"], r["method"]) for r in rows] == [(t, m) for t in ("task0", "task1") for m in METHODS]
    assert rows[0]["mae"] == comparison.measures("task0", "all-token")["mae"]
    frame = comparison.to_pandas().set_index(["task", "method"])
    assert frame.loc[("task1", "constant"), "n_test"] == 5


def test_what_is_null_has_a_reason_and_what_has_none_is_not(comparison):
    rows = comparison.to_arrow().to_pylist()
    for row in rows:
        assert (None in row.values()) == bool(row["remark"]), row
    remark = next(r["remark"] for r in rows if r["method"] == "constant")
    assert remark == "no rank correlation: forecasts are all the same"


def test_a_model_without_flops_is_named_as_the_reason(comparison, study, world):
    rows = study.models()
    (study.root / "models.csv").unlink()
    bare = [ModelInfo(m.model, m.family, m.params) if m is rows[3] else m for m in rows]
    study.add_models(bare)
    remarks = {r["remark"] for r in bc.compare(study, split="size", methods=["compute"]).to_arrow().to_pylist()}
    assert remarks == {"no forecast of 1 of 5 held-out models: no training FLOPs known"}


def test_missing_intervals_are_a_remark(comparison):
    held = comparison.held_out["task0", "all-token"]
    none = replace(held, low=np.full(5, np.nan), high=np.full(5, np.nan))
    changed = replace(comparison, held_out={**comparison.held_out, ("task0", "all-token"): none})
    assert changed.remark("task0", "all-token").startswith("no interval: ")


def test_the_figure_shows_every_held_out_model(comparison, tmp_path):
    drawn = comparison.plot().to_dict()
    points = [layer["data"]["values"] for layer in drawn["concat"][0]["layer"]]
    assert [row["model"] for row in points[-1]] == list(comparison.held_out["task0", "all-token"].models)
    assert drawn["title"].startswith("all-token: ")
    assert comparison.plot("constant").to_dict()["title"].startswith("constant: ")
    comparison.plot().save(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
