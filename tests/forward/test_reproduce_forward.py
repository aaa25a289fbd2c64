"""The checks of larger models and of run orders, as commands."""

from __future__ import annotations

import json


def test_hidden_models_and_planted_worlds_are_reported(runs_folder, cli, tmp_path):
    ran = cli("reproduce", "extrapolate", runs_folder, "--worlds", 2, "--out", tmp_path)
    assert ran.code == 0, ran.err
    numbers = json.loads((tmp_path / "extrapolate.json").read_text(encoding="utf-8"))
    kinds = {(p["kind"], p["family"], p["task"]) for p in numbers["points"]}
    assert len(kinds) == 2 * 4 * 2
    assert all(p["inside"] == (p["low"] <= p["observed"] <= p["high"]) for p in numbers["points"])
    assert numbers["planted"]["worlds"] == 2
    assert "90% intervals held" in ran.out
    assert (tmp_path / "extrapolate.png").stat().st_size > 1000


def test_orders_are_held_against_scores(runs_folder, cli, tmp_path):
    ran = cli("reproduce", "order", runs_folder, "--out", tmp_path)
    assert ran.code == 0, ran.err
    rows = json.loads((tmp_path / "order.json").read_text(encoding="utf-8"))["points"]
    assert len({tuple(r["runs"]) for r in rows}) == 6
    assert "comparisons of two families" in ran.out
