"""The table of signals, on a synthetic study whose scores depend on one signal alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchcast.records import ModelInfo, Score
from benchcast.store import Study
from lab.reproduce.signals import common_signals, early_models
from synthetic import Plan, World, make_world
from worlds import telling

READS = ("losses", "losses, entropy", "losses, all signals")


def study_of(world: World, folder: Path) -> Study:
    """Scores follow one signal, the entropy, and have nothing to do with the losses."""
    study = Study.create(folder, world.texts, tasks=world.tasks[:1])
    study.add_models(world.models)
    rng = np.random.default_rng(0)
    losses, scores = [], []
    for x in map(telling, world.losses):
        skill = rng.uniform()
        entropy = (1 - skill) * rng.uniform(0.5, 1.5, len(x.nats))
        losses.append(replace(x, signals={"entropy": entropy, "hit": x.signals["hit"]}))
        chance = world.tasks[0].chance
        scores.append(Score(x.model, world.tasks[0].name, chance + (1 - chance) / (1 + np.exp(6 * (0.5 - skill)))))
    study.add_losses(losses)
    study.add_scores(scores)
    return Study.open(folder)


def test_the_signal_that_tells_the_score_has_the_largest_gain(tmp_path: Path, lab) -> None:
    world = make_world(Plan(seed=3, families=4, sizes=4, checkpoints=1, tasks=1, texts_per_source=4))
    study = study_of(world, tmp_path / "study")
    assert common_signals(study) == ("entropy", "hit")
    (tmp_path / "docs").mkdir()
    ran = lab("signals", study.root, "--out", tmp_path / "out", "--docs", tmp_path / "docs")
    assert ran.code == 0, ran.err
    page = (tmp_path / "docs" / "results.md").read_text(encoding="utf-8")
    assert "the last about a smaller zoo" in page
    assert "python -m lab signals study --docs docs" in page
    assert "| losses, all signals | stack |" in page
    rows = json.loads((tmp_path / "out" / "signals.json").read_text())["rows"]
    by_key = {(row["read"], row["method"]): row for row in rows}
    for method in ("stack", "salience"):
        plain, with_signals, all_signals = (by_key[read, method]["family"] for read in READS)
        assert with_signals > 3 * plain
        assert all_signals > 3 * plain
    assert "proxy-metrics" not in ran.out, "it needs the rank"


def test_a_study_without_signals_says_what_is_needed(study: Study, lab, tmp_path: Path) -> None:
    ran = lab("signals", study.root, "--out", tmp_path)
    assert ran.code == 1
    assert "no signal that all models have" in ran.err
    assert len(ran.err.strip().splitlines()) == 1


def test_early_checkpoints_are_those_before_half_of_their_run(tmp_path: Path, world: World) -> None:
    study = Study.create(tmp_path / "study", world.texts)
    study.add_models([ModelInfo(f"a@{t}", "a", 10.0, t) for t in (10.0, 49.0, 50.0, 100.0)])
    assert early_models(study) == {"a@10.0", "a@49.0"}
