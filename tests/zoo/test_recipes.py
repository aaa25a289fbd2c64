"""The frozen training code still runs: the small recipe trains on a CPU and packs into a study."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from lab.zoo import background, data, results
from lab.zoo.one import Settings, train_one
from lab.zoo.pack import pack
from lab.zoo.recipes import SMALL

pytestmark = pytest.mark.slow


def test_the_small_recipe_trains_on_a_cpu_and_packs_into_a_study_with_signals(tmp_path, monkeypatch):
    monkeypatch.setattr(data, "SHARD_BYTES", 30_000)
    monkeypatch.setattr(data, "TOKENIZER_TEXTS", 300)
    first_modules = list(islice(background.sources(), 50))
    monkeypatch.setattr(background, "sources", lambda: first_modules)
    work = tmp_path / "work"
    families = [SMALL.families["alder"], SMALL.scorer]
    data.prepare(families, work, processes=1, tokens=4_000, recipe=SMALL)
    settings = Settings(work, "cpu", SMALL, items=8, tiny_steps=5)
    for family, size in (("alder", "0.2M"), ("scorer", "0.5M")):
        train_one(family, size, settings)
    results.export(work, tmp_path / "out")
    study = pack(tmp_path / "out", tmp_path / "study", SMALL)
    assert len(study.models_with_losses()) == len(SMALL.checkpoints)
    for name in study.models_with_losses():
        losses = study.losses(name)
        rank, hit, margin, entropy = (losses.signals[k] for k in ("rank", "hit", "margin", "entropy"))
        np.testing.assert_array_equal(hit == 1, rank == 0)
        np.testing.assert_array_equal(hit == 1, margin == 0)
        assert (margin <= losses.nats * 1.002 + 1e-3).all()
        assert (losses.nats - margin <= entropy + 0.01).all(), "the likeliest word costs at most the mean loss"
        assert 0 < entropy.mean() <= np.log(1024) + 0.01
    assert {s.task for s in study.scores()} == set(SMALL.skills)
    assert study.features().shape[0] > 0
