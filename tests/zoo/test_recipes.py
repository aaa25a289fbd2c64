"""The frozen training code still runs: the small recipe trains on a CPU and packs into a study."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from lab.zoo import background, data, results
from lab.zoo.one import Settings, train_one
from lab.zoo.pack import model_name, pack, read_runs
from lab.zoo.recipes import SMALL

pytestmark = pytest.mark.slow
MEASURES = ("nats", "rank", "hit", "margin", "entropy")


def test_the_small_recipe_trains_on_a_cpu_and_packs_into_a_study(tmp_path, monkeypatch):
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
    ((about, arrays),) = read_runs(tmp_path / "out")
    for i, tokens in enumerate(arrays["tokens"].tolist()):
        nats, rank, hit, margin, entropy = (arrays[k][i] for k in MEASURES)
        stored = study.losses(model_name(about, tokens)).nats
        np.testing.assert_allclose(stored, nats, rtol=1e-3, atol=1e-3)
        np.testing.assert_array_equal(hit, rank == 1)
        np.testing.assert_array_equal(hit, margin == 0)
        assert (margin <= nats * 1.002 + 1e-3).all()
        assert (nats - margin <= entropy + 0.01).all(), "the likeliest word costs at most the mean loss"
        assert 0 < entropy.mean() <= np.log(1024) + 0.01
    assert {s.task for s in study.scores()} == set(SMALL.skills)
    assert study.features().shape[0] > 0
