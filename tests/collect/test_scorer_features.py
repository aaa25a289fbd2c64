"""Hidden states: one row per reference token, and a reduction that says what it keeps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from fake import BOS, FakeBackend

from benchcast.collection.hidden_states import FeatureOptions, make_features, narrow, reduce
from benchcast.errors import InputError
from benchcast.records import Text, TextSet
from benchcast.study.study import Study

TEXTS = [Text(f"t{i}", "s", s) for i, s in enumerate(["one two three", "", "vier 五 sechs", "a\r\nb  c" * 5])]


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study.create(tmp_path / "s", TextSet.of(TEXTS))


@pytest.mark.parametrize(("dtype", "context"), [("float16", 1 << 20), ("float32", 12)])
def test_every_token_has_the_state_at_its_own_position(study: Study, dtype: str, context: int) -> None:
    scorer = FakeBackend(context=context)
    summary = make_features(study, scorer, options=FeatureOptions(dtype=dtype))
    features = study.features()
    assert features is not None
    values, edges, name = features.values, features.edges, features.scorer
    assert isinstance(values, np.memmap)
    assert (name, values.dtype) == ("fake-1", np.dtype(dtype))
    assert edges.tolist() == list(range(int(study.texts.starts[-1]) + 1))
    whole = [FakeBackend().hidden([[BOS, *t.text.encode()]])[0][1:] for t in study.texts]
    np.testing.assert_allclose(values, np.concatenate(whole), rtol=1e-3)
    assert summary["tokens"] == len(values)
    assert not list(study.root.glob("collecting/[!.]*"))


def test_what_features_were_made_with_is_stored(study: Study) -> None:
    make_features(study, FakeBackend(), options=FeatureOptions(2), name="../odd/name")
    (folder,) = (study.root / "features").iterdir()
    meta = json.loads((folder / "meta.json").read_text())
    assert meta["scorer"] == "../odd/name"
    assert (meta["dtype"], meta["scorer_dtype"], meta["bos"], meta["layer"]) == ("float16", "float32", "<bos>", "last")
    assert (meta["dims"], meta["reduced_to"], meta["shape"][1]) == (3, 2, 2)
    assert 0.9 < meta["kept_variance"] <= 1


@pytest.mark.parametrize(("n", "width", "dims"), [(400, 30, 5), (50, 80, 10), (60, 8, 8)])
def test_reduction_is_the_principal_components(n: int, width: int, dims: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchcast.collection.hidden_states.BLOCK_BYTES", 4 * width * 17)
    rng = np.random.default_rng(5)
    values = (rng.standard_normal((n, width)) * 0.8 ** np.arange(width) + 3).astype(np.float32)
    scores, kept = reduce(values, dims, seed=1)
    centred = values - values.mean(axis=0)
    exact = np.linalg.svd(centred.astype(np.float64), compute_uv=False) ** 2
    assert kept == pytest.approx(exact[:dims].sum() / exact.sum(), rel=1e-3)
    assert scores.shape == (n, dims)
    np.testing.assert_allclose((scores**2).sum(axis=0), exact[:dims], rtol=0.02)


def test_reduction_does_not_depend_on_the_order_of_tokens() -> None:
    values = np.random.default_rng(0).standard_normal((200, 20)).astype(np.float32) * 0.7 ** np.arange(20)
    order = np.random.default_rng(1).permutation(200)
    scores, kept = reduce(values, 4)
    turned, kept_turned = reduce(values[order], 4)
    assert kept == pytest.approx(kept_turned)
    np.testing.assert_allclose(np.abs(turned), np.abs(scores[order]), atol=1e-3)


@pytest.mark.parametrize(("dims", "said"), [(4, "from 1 to 3 is possible"), (-1, "from 1 to 3")])
def test_more_dimensions_than_there_are_is_an_error(study: Study, dims: int, said: str) -> None:
    with pytest.raises(InputError, match=said):
        make_features(study, FakeBackend(), options=FeatureOptions(dims))
    assert study.features() is None


def test_states_too_large_for_float16_are_an_error() -> None:
    with pytest.raises(InputError, match="too large for float16; use --dtype float32"):
        narrow(np.array([[1e6]], np.float32), "float16")


def test_an_unknown_precision_is_an_error(study: Study) -> None:
    with pytest.raises(InputError, match="features are stored as float16 or float32"):
        make_features(study, FakeBackend(), options=FeatureOptions(dtype="int8"))


def test_states_that_were_made_before_a_kill_are_not_made_again(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchcast.collection.shards.SHARD_SECONDS", 0.0)

    class Killed(FakeBackend):
        def hidden(self, sequences: Sequence[Sequence[int]]) -> list[npt.NDArray[np.float32]]:
            if self.sent:
                raise KeyboardInterrupt
            self.sent += sequences
            return super().hidden(sequences)

    whole = Study.create(study.root.parent / "whole", study.texts)
    make_features(whole, FakeBackend(batch_size=1))
    with pytest.raises(KeyboardInterrupt):
        make_features(study, Killed(batch_size=1))
    seen: list[tuple[int, int]] = []
    make_features(study, FakeBackend(batch_size=1), report=lambda *done: seen.append(done))
    assert seen[0] == (1, 0), "the longest text was done before"
    assert sum(texts for texts, _ in seen[1:]) == 2
    first, second = study.features(), whole.features()
    assert first is not None
    assert second is not None
    np.testing.assert_array_equal(first.values, second.values)
    np.testing.assert_array_equal(first.edges, second.edges)
