"""The checks of larger models and of run orders, as commands."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from synthetic import Plan, make_world, write_study


@pytest.fixture(scope="module")
def runs_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    world = make_world(Plan(seed=5, families=4, sizes=4, checkpoints=4, tasks=2, texts_per_source=6))
    return write_study(world, tmp_path_factory.mktemp("runs") / "study").root


def test_hidden_models_and_synthetic_studies_are_reported(runs_folder, lab, tmp_path):
    ran = lab("extrapolate", runs_folder, "--worlds", 2, "--out", tmp_path)
    assert ran.code == 0, ran.err
    numbers = json.loads((tmp_path / "extrapolate.json").read_text(encoding="utf-8"))
    kinds = {(p["kind"], p["family"], p["task"]) for p in numbers["points"]}
    assert len(kinds) == 2 * 4 * 2
    assert all(p["inside"] == (p["low"] <= p["observed"] <= p["high"]) for p in numbers["points"])
    assert numbers["synthetic"]["studies"] == 2
    assert "90% intervals held" in ran.out
    assert (tmp_path / "extrapolate.png").stat().st_size > 1000


def test_orders_are_held_against_scores(runs_folder, lab, tmp_path):
    ran = lab("order", runs_folder, "--out", tmp_path)
    assert ran.code == 0, ran.err
    rows = json.loads((tmp_path / "order.json").read_text(encoding="utf-8"))["points"]
    families = [f"family{i}" for i in range(4)]
    assert {tuple(r["runs"]) for r in rows} == set(combinations(families, 2))
    assert {r["task"] for r in rows} == {"task0", "task1", "mean of tasks"}
    assert all(r["right"] in (0.0, 0.5, 1.0) and 0.5 <= r["said"] <= 1 for r in rows)
    assert np.mean([r["right"] for r in rows]) > 0.5, "better than a coin"
    assert "comparisons of two families" in ran.out
