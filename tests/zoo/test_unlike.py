"""A model that reads three of six sources: inside the range of the training models, and unlike all of them."""

from __future__ import annotations

import numpy as np
import pytest

from benchcast.dataset import Fold
from benchcast.datasets import load_zoo
from benchcast.fits.forecasts import remark_on
from benchcast.intervals import predict
from benchcast.methods import fit_method

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
    assert remark_on(fit, unlike, metadata, "new", {}).startswith("unlike any training model: ")
    assert remark_on(fit, usual, metadata, "new", {}) == ""
