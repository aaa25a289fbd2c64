"""A model that was not logged can join a study from logs: `collect` gives the losses that the harness logged."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from log_files import FIXTURES, METRIC, NEW

import benchcast as bc
from benchcast.losses.regroup import regroup
from benchcast.study.bits_per_byte import answer_edges

pytest.importorskip("transformers")


def answers(study: bc.Study, model: str) -> np.ndarray:
    """Loss of each answer."""
    start, end = answer_edges(study.texts)
    edges = np.union1d(study.texts.starts, np.concatenate([start, end]))
    losses = study.losses(model)
    return regroup(losses.nats, losses.edges, edges, counts=losses.counts)[np.searchsorted(edges, start)]


def test_collected_losses_of_answers_are_the_logged_ones(cli, tmp_path):
    shutil.copytree(NEW, tmp_path / "logs")
    assert cli("init", tmp_path / "s", "--from-lm-eval", tmp_path / "logs", *METRIC).code == 0
    settings = f"pretrained={FIXTURES / 'models' / 'reed-a'},dtype=float32"
    ran = cli("collect", tmp_path / "s", "--model", "hf", "--model_args", settings, "--name", "again")
    assert ran.code == 0, ran.err
    study = bc.Study.open(tmp_path / "s")
    assert len(study.texts) == 34
    assert answers(study, "again") == pytest.approx(answers(study, "models/reed-a"), abs=1e-4)
