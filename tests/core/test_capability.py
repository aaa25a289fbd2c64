"""Each kind of capability: what it reads, what it says is missing, and that a stored one is the same again."""

from __future__ import annotations

import numpy as np
import pytest

from benchcast.losses.dataset import VIEWS, LossView
from benchcast.methods.capability import (
    BlendedLosses,
    BlendPart,
    Capability,
    LogCompute,
    Nothing,
    ScalingLadder,
    StrengthRamp,
    WeightedLoss,
    WeightedScores,
    read_capability,
)
from benchcast.methods.law import MonotoneCalibration, SigmoidLaw
from benchcast.records import ModelInfo, ModelMetadata, Score

NATS = np.array([[1.0, 2.0, 4.0], [0.5, 1.0, 2.0]], np.float32)
METADATA = ModelMetadata.of(
    [ModelInfo("a", "elm", 1e6, 1e9, 6e15), ModelInfo("b", "ash")], [Score("a", "arc", 0.5), Score("a", "piqa", 0.25)]
)
ROWS = np.arange(6, dtype=np.float32).reshape(2, 3)
CURVE = MonotoneCalibration(0.1, (0.0, 0.1, 0.2, 0.3, 0.4, 0.5), -2.0, 2.0)
PARTS = (
    BlendPart(weights=ROWS, law=SigmoidLaw(-1.5, 0.5, 0.25), share=0.5, share_of_stronger=1.0),
    BlendPart(weights=-ROWS, law=SigmoidLaw(-0.5, 0.1, 0.25, calibration=CURVE), share=0.5, share_of_stronger=0.0),
)
LADDERS = np.array([[1, 2, 0.3, 3, 0.2], [2, 2, 0.3, 3, 0.2]], np.float32)
KINDS: list[tuple[Capability, list[str], str]] = [
    (WeightedLoss(views=(LossView.NATS,), weights=ROWS[:1], unit=3.0), ["nats"], "no capability"),
    (BlendedLosses.of_parts(PARTS, StrengthRamp(1.0, 2.0), views=VIEWS, unit=3.0), [*VIEWS], "no capability"),
    (LogCompute(), ["flops"], "no training FLOPs known"),
    (
        ScalingLadder(families=("", "elm"), laws=LADDERS),
        ["ladder", "ladder: elm"],
        "no parameters and training tokens known",
    ),
    (
        WeightedScores(benchmarks=("arc", "piqa"), weights=ROWS[0, :2, None]),
        ["score: arc", "score: piqa"],
        "no score known on arc, piqa",
    ),
    (Nothing(), [], "no capability"),
]
each_kind = pytest.mark.parametrize(
    ("capability", "reads", "missing"), KINDS, ids=[type(kind).__name__ for kind, _, _ in KINDS]
)


@each_kind
def test_a_stored_capability_is_the_same_again(capability, reads, missing):
    values, arrays = capability.fields()
    again = read_capability(values, arrays)
    assert type(again) is type(capability)
    assert values["reads"] == reads
    np.testing.assert_array_equal(again.of(NATS, METADATA), capability.of(NATS, METADATA))
    np.testing.assert_array_equal(again.token_weights(NATS), capability.token_weights(NATS))
    assert again.fields()[0] == values


@each_kind
def test_a_model_has_a_capability_where_its_inputs_are_known_and_else_a_reason(capability, reads, missing):
    known = capability.known(METADATA)
    assert np.isfinite(capability.of(NATS, METADATA)).tolist() == known.tolist()
    assert known[0]
    assert capability.missing(METADATA.take(np.array([0]))) == "no capability"
    assert capability.missing(METADATA.take(np.array([1]))) == missing


@each_kind
def test_only_weighted_losses_give_weights_to_tokens(capability, reads, missing):
    assert capability.token_weights(NATS).any() == capability.reads_losses


@each_kind
def test_a_level_law_is_flat_and_a_steep_one_is_not_unless_nothing_is_read(capability, reads, missing):
    assert capability.is_flat(0.0)
    assert capability.is_flat(1.0) == (not reads)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"reads": ["smell"]}, "unknown"),
        ({"reads": ["flops", "nats"]}, "do not go together"),
        ({"reads": ["flops", "flops"]}, "do not go together"),
        ({"reads": ["flops: more"]}, "no method does"),
        ({"unit": 2.0}, "no method does"),
        ({"reads": []}, "not those that it has"),
    ],
)
def test_fields_that_no_method_writes_are_refused(change, why):
    values, arrays = LogCompute().fields()
    with pytest.raises(ValueError, match=why):
        read_capability(values | change, arrays)


def test_weights_of_compute_are_ones():
    values, _ = LogCompute().fields()
    with pytest.raises(ValueError, match="not those that it has"):
        read_capability(values, {"weights": np.full((1, 1), 2.0, np.float32)})
