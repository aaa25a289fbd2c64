"""Numpy and torch come to the same, however features lie, and a step on a device never waits for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.cluster.vq import kmeans2
from threadpoolctl import threadpool_info, threadpool_limits
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

import benchcast as bc
from benchcast.datasets import copy_dataset
from benchcast.devices import (
    BLAS_THREADS,
    check_device,
    few_blas_threads,
    fits_tf32,
    place,
    tf32_split_matmul,
    to_numpy,
)
from benchcast.errors import InputError
from benchcast.forecasts import predict as predicting
from benchcast.methods import METHODS, spec
from benchcast.methods.features import Inputs, StreamedBlocks, measure
from benchcast.methods.paper import DescentSettings, Problems, epoch, start
from benchcast.methods.products import RowBlock, TiledBlock, TokenBlock, over_blocks
from benchcast.methods.stack.nonnegative import fit_nonnegative
from benchcast.methods.stack.token_groups import cluster, nearest
from benchcast.splits import make_folds
from worlds import stored_weights


@pytest.mark.parametrize(("n", "d", "q"), [(1, 1, 1), (31, 33, 2), (64, 32, 6), (300, 70, 12), (97, 2048, 40)])
@pytest.mark.parametrize("layout", [RowBlock, TiledBlock.of, lambda x: RowBlock(torch.from_numpy(x))])
def test_every_layout_multiplies_alike(n, d, q, layout):
    rng = np.random.default_rng(0)
    x, w, g = (rng.standard_normal(shape, dtype=np.float32) for shape in ((n, d), (q, d), (q, n)))
    block = layout(x)
    kind = place if not isinstance(getattr(block, "values", x), torch.Tensor) else lambda a, _: torch.from_numpy(a)
    assert_allclose(to_numpy(block.project(kind(w, ""))), w @ x.T, rtol=1e-4, atol=1e-3)
    assert_allclose(to_numpy(block.gather(kind(g, ""))), g @ x, rtol=1e-4, atol=1e-3)


def test_tensor_cores_are_given_every_digit_of_the_head():
    rng = np.random.default_rng(0)
    x, w = (torch.from_numpy(rng.standard_normal(shape, dtype=np.float32)) for shape in ((50, 7), (3, 7)))
    seen = []

    def product(rows: torch.Tensor) -> torch.Tensor:
        seen.append(rows)
        return rows @ x.T

    assert_allclose(tf32_split_matmul(product, w), w @ x.T, rtol=1e-5, atol=1e-6)
    assert fits_tf32(seen[0][:3])
    assert torch.equal(seen[0][:3] + seen[0][3:], w)
    assert not torch.backends.cuda.matmul.allow_tf32
    assert fits_tf32(x.half().float())
    assert not fits_tf32(x)
    short, long = (RowBlock(x.half().float(), short=kind).project(w) for kind in (True, False))
    assert_allclose(short, long, rtol=1e-5, atol=1e-6)


def test_blocks_come_back_in_order_from_any_number_of_cores():
    blocks = [TokenBlock(i, RowBlock(np.full((1, 3), float(i))), RowBlock(np.zeros((1, 1)))) for i in range(50)]
    results = over_blocks(lambda b: (b.start, b.features.project(np.ones((1, 3)))[0, 0]), blocks)
    assert list(results) == [(i, 3.0 * i) for i in range(50)]


@pytest.mark.parametrize("method", ["salience", "ridge", "paper"])
def test_a_torch_device_gives_the_forecasts_of_numpy(method, dataset, world):
    folds = make_folds(world.models, "size")[1]
    here, there = (METHODS[method].learn(replace(dataset, device=device), folds)[0] for device in ("", "cpu"))
    for a, b in zip(here, there, strict=True):
        ours, theirs = (fit.forecast(dataset.nats, dataset.metadata) for fit in (a, b))
        assert_allclose(theirs, ours, atol=2e-3)


@pytest.mark.parametrize("method", ["salience", "ridge", "paper"])
def test_features_in_half_precision_on_disk_change_forecasts_by_rounding_only(method, dataset, world, tmp_path):
    np.save(tmp_path / "half.npy", dataset.features.values.astype(np.float16))
    half = np.load(tmp_path / "half.npy", mmap_mode="r")
    folds = make_folds(world.models, "size")[1]
    streamed, whole = (
        METHODS[method].learn(replace(dataset, features=replace(dataset.features, values=values)), folds)[0]
        for values in (half, np.asarray(half, np.float32))
    )
    for a, b in zip(streamed, whole, strict=True):
        assert_allclose(stored_weights(a), stored_weights(b), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("method", ["salience", "ridge", "paper", "all-token"])
def test_losses_in_a_file_of_half_precision_are_read_as_if_in_memory(method, dataset, world, tmp_path):
    np.save(tmp_path / "nats.npy", dataset.nats.astype(np.float16))
    mapped = np.load(tmp_path / "nats.npy", mmap_mode="r")
    folds = make_folds(world.models, "size")[1]
    filed, held = (
        METHODS[method].learn(replace(dataset, nats=nats), folds)[0] for nats in (mapped, mapped.astype(np.float32))
    )
    for a, b in zip(filed, held, strict=True):
        assert_allclose(a.forecast(mapped, dataset.metadata), b.forecast(mapped, dataset.metadata), rtol=1e-6)
        assert_allclose(a.salience(mapped), b.salience(mapped.astype(np.float32)), rtol=1e-5, atol=1e-9)


def test_a_constant_far_from_zero_does_not_blur_the_spread(dataset):
    shifted = replace(dataset.features, values=dataset.features.values + np.float32(300.0))
    plain, far = measure(dataset, weigh=True), measure(replace(dataset, features=shifted), weigh=True)
    assert_allclose(far.mean - 300, plain.mean, atol=1e-4)
    assert_allclose(far.spread, plain.spread, rtol=1e-3)


def test_features_already_on_the_device_are_used_as_they_are(dataset, world):
    fold = make_folds(world.models, "size")[1][0]
    there = replace(dataset, device="cpu")
    values = torch.from_numpy(np.array(dataset.features.values, np.float32))
    kept = replace(there, features=replace(dataset.features, values=values))
    assert next(iter(StreamedBlocks(kept.features, "cpu")))[1].values.data_ptr() == values.data_ptr()
    one, two = (METHODS["ridge"].learn(e, [fold])[0][0] for e in (there, kept))
    assert_allclose(stored_weights(two), stored_weights(one), rtol=1e-6)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("hidden", [0, 3])
@pytest.mark.parametrize("short", [True, False])
def test_a_step_on_a_device_looks_at_no_value(optimizer, hidden, short):
    """A fake tensor has no values: reading one, for which a GPU would wait, is an error. Builds of torch without CUDA
    refuse to index fake tensors on CUDA, so these are on "meta"; for our code it is a device like CUDA."""
    settings, single = DescentSettings(optimizer=optimizer, hidden=hidden), torch.float32

    def on_device(device: str) -> tuple[Inputs, Problems]:
        def array(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
            return torch.rand(shape, dtype=dtype, device=device)

        blocks = [TokenBlock(0, RowBlock(array(40, 5, dtype=single), short), RowBlock(array(40, 14, dtype=single)))]
        problems = Problems(array(3, 14), array(3), array(3, 14), array(3, 14), array(3, dtype=single))
        return Inputs(blocks, 100.0, array(5, dtype=single), array(5, dtype=single)), problems

    def arrays(state: tuple) -> list[torch.Tensor]:
        return [x for part in state for x in (arrays(part) if isinstance(part, tuple) else [part])]

    def faked(part: Any) -> Any:
        if isinstance(part, tuple):
            return type(part)(*map(faked, part))
        return torch.empty(part.shape, dtype=part.dtype, device="meta")

    begun = start(*on_device("cpu"), settings)
    with FakeTensorMode():
        after, row = epoch(*on_device("meta"), settings, faked(begun))
        with pytest.raises(DataDependentOutputException):
            bool(row.capability.sum() > 0)
    assert row.capability.shape == (3, 14)
    assert {x.device.type for x in arrays(after)} == {"meta"}
    assert [(x.shape, x.dtype) for x in arrays(after)] == [(x.shape, x.dtype) for x in arrays(begun)]


def test_centres_are_those_of_scipy():
    points = np.random.default_rng(5).standard_normal((700, 4)).astype(np.float32)
    theirs = kmeans2(points, 30, minit="++", iter=20, seed=0)[0]
    ours = cluster(points, 30, rounds=20, seed=0)
    assert_allclose(ours, theirs, atol=1e-5)
    distance = ((points[:, None] - ours) ** 2).sum(axis=-1)
    assert_allclose(distance[np.arange(700), nearest(points, ours)], distance.min(axis=1), rtol=1e-4, atol=1e-5)


def test_a_cluster_that_loses_its_points_stays_where_it_was():
    points = np.array([[0.0], [0.0], [0.0], [9.0]])
    with np.errstate(invalid="ignore"):
        assert sorted(set(cluster(points, 2, rounds=3, seed=0)[:, 0])) == [0.0, 9.0]


def test_non_negative_fits_agree_between_numpy_and_torch():
    rng = np.random.default_rng(0)
    x, q, omega, penalty = rng.normal(size=(20, 6)), rng.random((4, 20)), np.full((4, 20), 0.05), np.full((4, 6), 1e-3)
    ours = fit_nonnegative(x, q, omega, penalty=penalty)
    on_torch = map(torch.from_numpy, (x, q, omega))
    theirs = fit_nonnegative(*on_torch, penalty=torch.from_numpy(penalty))
    for a, b in zip(ours, theirs, strict=True):
        assert_allclose(to_numpy(b), a, rtol=1e-8, atol=1e-10)


def test_a_device_that_is_not_there_is_named():
    assert check_device("") == ""
    assert check_device("cpu") == "cpu"
    for name in ("nowhere", "meta"):
        with pytest.raises(InputError, match=f"device {name!r}: torch cannot use it here"):
            check_device(name)


def test_fit_and_compare_take_a_device(cli, tmp_path):
    study = copy_dataset("zoo", tmp_path / "study").root
    asked = ("fit", study, "--task", "code", "--method", "ridge")
    here, there = cli(*asked), cli(*asked, "--device", "cpu")
    assert (here.code, there.code) == (0, 0)
    assert "misses by" in here.out
    assert there.out == here.out
    nowhere = cli("compare", study, "--device", "nowhere")
    assert nowhere.code == 1
    assert "device 'nowhere'" in nowhere.err


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_fits_forecasts_and_comparisons_take_few_threads_of_linear_algebra_and_give_them_back(study, monkeypatch):
    """With two, `fit` took six times as long on a machine with two busy processes."""
    seen: dict[str, set[int]] = {}
    for name, place_of in (("profiles", spec), ("forecasts", predicting)):
        function = {"profiles": "with_profiles", "forecasts": "predict_tasks"}[name]
        usual = getattr(place_of, function)

        def watched(*given: Any, name: str = name, usual: Any = usual) -> Any:
            seen[name] = seen.get(name, set()) | blas_threads()
            return usual(*given)

        monkeypatch.setattr(place_of, function, watched)
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        bc.fit_tasks(study, ["task0"], method="all-token", store=True)
        bc.predict(study)
        bc.compare(study, ["task0"], methods=["all-token"], split="size")
        assert blas_threads() == before
        with few_blas_threads():
            assert blas_threads() == {BLAS_THREADS}
    assert seen == {"profiles": {BLAS_THREADS}, "forecasts": {BLAS_THREADS}}
