"""Three checkpoints of the zoo are shipped: their losses and scores must be those of the embedded study."""

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from benchcast.collection.backends import open_backend
from benchcast.collection.backends.base import ModelSettings
from benchcast.collection.collect import collect
from benchcast.datasets import load_zoo
from benchcast.study.study import Study

SHIPPED = Path(__file__).parent / "shipped"
MODELS = {"ash-0.5M": "ash-0.5M@24.0M", "cedar-0.5M": "cedar-0.5M@24.0M", "oak-a-0.5M": "oak-a-0.5M@24.0M"}
ITEMS = 2000


@pytest.fixture(scope="module")
def embedded():
    return load_zoo()


def test_shipped_checkpoints_are_small():
    for name in MODELS:
        assert sum(f.stat().st_size for f in (SHIPPED / name).iterdir()) <= 2_000_000


def test_the_generators_still_write_the_embedded_texts(embedded):
    """They are frozen with the study: a change of texts is a new study with a new name."""
    from lab.zoo.data import validation

    assert [(str(r["id"]), r["source"], r["text"], r["answer_start"]) for r in validation()] == [
        (t.id, t.source, t.text, t.answer_start) for t in embedded.texts
    ]


@pytest.mark.parametrize("name", MODELS)
def test_losses_collected_again_are_the_embedded_ones(name, embedded, tmp_path):
    study = Study.create(tmp_path / "study", embedded.texts)
    backend = open_backend("hf", ModelSettings.parse(f"pretrained={SHIPPED / name},dtype=float32,add_bos_token=True"))
    collect(study, backend, name=MODELS[name])
    again, stored = study.losses(MODELS[name]), embedded.losses(MODELS[name])
    assert np.array_equal(again.edges, stored.edges)
    assert np.isfinite(again.nats).all()
    # stored as float16: 11 bits; the device's sums run in another order
    np.testing.assert_allclose(again.nats, stored.nats, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("name", ["cedar-0.5M", "oak-a-0.5M"])
def test_a_skill_scored_again_has_the_embedded_accuracy(name, embedded):
    import torch
    from safetensors.torch import load_file

    from lab.zoo.families import FAMILIES
    from lab.zoo.model import shape_of
    from lab.zoo.score import choose, option_likelihoods, rows_of, sheets_of
    from lab.zoo.skills import SKILLS

    tokenizer = Tokenizer.from_file(str(SHIPPED / name / "tokenizer.json"))
    weights = load_file(SHIPPED / name / "model.safetensors")
    items = SKILLS["facts"].items("score", ITEMS)
    rows = rows_of(tokenizer, [i.prompt + i.cue for i in items], [i.options for i in items])
    family, size = name.rsplit("-", 1)
    likelihood, _ = option_likelihoods(
        weights, shape_of(FAMILIES[family], size), sheets_of(rows, "cpu"), dtype=torch.bfloat16
    )
    accuracy = choose(likelihood, items, per_byte=False).mean()
    score = next(s for s in embedded.scores() if s.model == MODELS[name] and s.task == "facts")
    assert score.n_items == ITEMS
    # bfloat16 products round differently on another device: a few close calls may turn
    assert accuracy == pytest.approx(score.accuracy, abs=0.01)
