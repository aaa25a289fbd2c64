"""Held-out models that copy a training model say nothing of new models, so they are named and counted apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchcast.evaluation.compare import compare
from benchcast.evaluation.ranking import headline
from benchcast.importers.loss_table import PublicStudyTables, column, write_tables
from benchcast.records import ModelInfo, Score, Task
from benchcast.reports.report import _counts
from benchcast.study.study import Study

FAMILIES, SIZES, COLUMNS = 4, 5, 20
Tables = PublicStudyTables


@pytest.fixture
def tables() -> Tables:
    """Four families of five models; the largest of each is held out."""
    rng = np.random.default_rng(0)
    names = [f"{f}-{s}B@2T" for f in "abcd" for s in range(1, SIZES + 1)]
    skill = np.tile(np.linspace(0, 1, SIZES), FAMILIES) + np.repeat(rng.normal(0, 0.05, FAMILIES), SIZES)
    level = 3 - np.outer(skill, rng.uniform(0.5, 1.5, COLUMNS))
    losses = level * np.exp(0.05 * rng.normal(size=level.shape))
    models = [ModelInfo(n, f"family-{n[0]}", split="test" if "5B" in n else "train") for n in names]
    scores = [Score(n, "task", float(0.25 + 0.5 * s)) for n, s in zip(names, np.clip(skill, 0, 1), strict=True)]
    return Tables(
        columns=[column(f"text{i}", "web", "nats") for i in range(COLUMNS)],
        losses=dict(zip(names, losses.tolist(), strict=True)),
        models=models,
        scores=scores,
        tasks=[Task("task", 0.25)],
    )


def with_copy(tables: Tables, name: str, of: str, *, noise: float = 0.001) -> Tables:
    """The tables with a held-out model that is another one loaded at a lower precision."""
    rng = np.random.default_rng(1)
    losses = (np.array(tables.losses[of]) * np.exp(noise * rng.normal(size=COLUMNS))).tolist()
    score = next(s.accuracy for s in tables.scores if s.model == of)
    return replace(
        tables,
        losses={**tables.losses, name: losses},
        models=[*tables.models, ModelInfo(name, split="test")],
        scores=[*tables.scores, Score(name, "task", score + 0.002)],
    )


def study_of(tables: Tables, tmp_path: Path) -> Study:
    return write_tables(tmp_path / "study", tables)


def test_a_held_out_copy_is_named_and_counted_apart(tables, tmp_path, cli):
    before = compare(study_of(tables, tmp_path / "before"), methods=("stack", "all-token", "constant"))
    copied = with_copy(with_copy(tables, "up-q8", "a-3B@2T"), "up-q4", "b-2B@2T")
    after = compare(study_of(copied, tmp_path), methods=("stack", "all-token", "constant"))
    assert before.copies == {}
    assert after.copies == {"up-q8": "a-3B@2T", "up-q4": "b-2B@2T"}
    assert after.held_out["task", "stack"].models == before.held_out["task", "stack"].models
    assert after.measures("task", "stack") == before.measures("task", "stack"), "copies do not count"
    assert set(after.copied["task", "stack"].models) == {"up-q8", "up-q4"}
    line = after.copies_line()
    assert line.startswith(
        "2 held-out models are copies of a training model and counted apart: up-q8 (of a-3B@2T), up-q4 (of b-2B@2T)"
    )
    study = Study.open(tmp_path / "study")
    assert line in _counts(study, after)
    assert after.as_json()["copies"] == after.copies
    said = cli("compare", study.root, "--method", "stack", "--method", "all-token", "--method", "constant").out
    assert line in " ".join(said.split())
    assert headline(after) == headline(before)


def test_checkpoints_of_one_run_are_no_copies(tables, tmp_path):
    copied = with_copy(tables, "a-3B@1.99T", "a-3B@2T")
    assert compare(study_of(copied, tmp_path), methods=("all-token",)).copies == {}


def test_a_model_that_is_as_near_as_a_sibling_is_no_copy(tables, tmp_path):
    copied = with_copy(tables, "own-7B", "a-3B@2T", noise=0.1)
    assert compare(study_of(copied, tmp_path), methods=("all-token",)).copies == {}


def test_where_only_copies_are_held_out_they_are_all_there_is_to_count(tables, tmp_path):
    tables = replace(tables, models=[replace(m, split="train") for m in tables.models])
    copied = with_copy(tables, "up-q8", "a-3B@2T")
    compared = compare(study_of(copied, tmp_path), methods=("all-token",))
    assert compared.held_out["task", "all-token"].models == ("up-q8",)
    assert compared.copies_line() == (
        "all held-out models are copies of training models: up-q8 (of a-3B@2T); such errors say nothing of new models"
    )
