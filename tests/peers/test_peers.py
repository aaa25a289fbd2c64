"""Methods of other papers: against their authors' package and data where those can be had, and on known truth."""

from __future__ import annotations

import csv
import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import rankdata

import benchcast as bc
from benchcast.losses.dataset import spread_over_tokens, text_losses
from benchcast.methods import METHODS
from benchcast.methods.capability import ScalingLadder
from benchcast.methods.distances import select_candidate
from benchcast.methods.logistic4 import fit_curves
from benchcast.methods.observational import principal_axes
from benchcast.methods.perplexity_correlations import rank, sign, sign_rank
from benchcast.methods.pls import regress
from benchcast.methods.two_step import fit_ladder
from benchcast.records import ModelMetadata
from benchcast.splits import make_folds
from lab.reproduce.table import PEERS

HERE = Path(__file__).parent
PUBLIC = HERE.parents[1].parent / "shared" / "public_llms"
RECORDED = json.loads((HERE / "recorded.json").read_text())["cases"]
needs_public = pytest.mark.skipif(not PUBLIC.is_dir(), reason="the authors' tables are not part of the project")


def recorded_data(case: dict) -> tuple[np.ndarray, np.ndarray]:
    spec = importlib.util.spec_from_file_location("record", HERE / "record.py")
    record = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(record)
    return record.data(case["seed"], case["models"], case["texts"])


@pytest.mark.parametrize("case", RECORDED, ids=lambda c: f"{c['models']}x{c['texts']}")
def test_correlations_are_those_of_the_authors_package(case):
    x, error = recorded_data(case)
    ranks = rankdata(x, axis=0)
    assert_allclose(sign(x, error), case["sign"], rtol=1e-9, atol=1e-12)
    assert_allclose(sign_rank(ranks, error), case["sign of ranks"], rtol=1e-9, atol=1e-12)
    assert_allclose(rank(ranks, error), case["rank"], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("case", RECORDED, ids=lambda c: f"{c['models']}x{c['texts']}")
def test_partial_least_squares_is_that_of_scikit_learn(case):
    x, error = recorded_data(case)
    weights, offsets = regress(x, error, 3)
    for k, theirs in case["pls"].items():
        assert_allclose(weights[int(k) - 1], theirs["weights"], rtol=1e-6, atol=1e-9)
        assert_allclose(x @ weights[int(k) - 1] + offsets[int(k) - 1], theirs["forecast"], rtol=1e-6)


def test_partial_least_squares_ignores_a_text_that_all_models_find_alike_and_stops_when_nothing_is_left():
    x, error = recorded_data(RECORDED[0])
    same = np.hstack([x, np.full((len(x), 1), 1.25)])
    weights, _ = regress(same, error, 2)
    assert_allclose(weights[:, :-1], regress(x, error, 2)[0])
    assert (weights[:, -1] == 0).all()
    assert len(regress(x[:, :1], 2 * x[:, 0] + 1, 5)[0]) == 1


def test_least_squares_of_a_target_that_never_varies_is_its_mean():
    """Scores at or below chance all become the same log-odds; the weights were NaN."""
    weights, offsets = regress(np.random.default_rng(0).normal(size=(9, 4)), np.full(9, -4.6), 3)
    assert weights.shape == (0, 4)
    assert not len(offsets)


def test_a_weight_on_a_text_is_the_same_weight_on_its_tokens(dataset):
    losses = text_losses(dataset)
    weights = np.random.default_rng(0).normal(size=losses.shape[1])
    by_token = dataset.nats.astype(float) @ spread_over_tokens(dataset, weights)[0]
    assert_allclose(by_token, losses @ weights, rtol=1e-4)
    assert losses.shape == (len(dataset.models), 24)


def test_curves_with_free_floor_and_ceiling_find_the_true_ones():
    rng = np.random.default_rng(0)
    loss = np.sort(rng.uniform(0.5, 3.0, (3, 60)), axis=1)
    floor, rise = np.array([0.1, 0.25, 0.0]), np.array([0.6, 0.4, 0.95])
    truth = floor[:, None] + rise[:, None] / (1 + np.exp(4 * (loss - np.array([1.2, 1.8, 1.5])[:, None])))
    learn = rng.random((3, 60)) < 0.8
    curves = fit_curves(loss, np.where(learn, truth, 0.123), learn)
    assert_allclose(curves.floor, floor, atol=1e-4)
    assert_allclose(curves.rise, rise, atol=1e-4)
    assert_allclose(curves.accuracy(loss), truth, atol=1e-4)
    law = curves.law(1)
    assert_allclose(law.accuracy(loss[1]), truth[1], atol=1e-4)
    assert (law.chance, law.ceiling) == (pytest.approx(0.25, abs=1e-3), pytest.approx(0.65, abs=1e-3))


def one_ladder(law: np.ndarray) -> ScalingLadder:
    return ScalingLadder(families=("",), laws=law[None])


def test_a_ladder_extrapolates_in_size_and_data():
    params, tokens = (g.ravel() for g in np.meshgrid(np.geomspace(1e6, 1e8, 5), np.geomspace(1e8, 1e10, 4)))
    world = ModelMetadata(np.full(20, "f"), 6 * params * tokens, params, tokens, np.empty((20, 0)), ())
    truth = 0.4 + 300 * params**-0.35 + 900 * tokens**-0.3
    ladder = fit_ladder(params, tokens, truth)
    assert_allclose(one_ladder(ladder).loss(world), truth, rtol=2e-3)
    far = replace(world, params=10 * params, training_tokens=10 * tokens)
    assert_allclose(
        one_ladder(ladder).loss(far),
        0.4 + 300 * (10 * params) ** -0.35 + 900 * (10 * tokens) ** -0.3,
        rtol=0.03,
    )


def test_a_ladder_never_has_a_negative_term():
    params, tokens = np.geomspace(1e6, 1e9, 10), np.geomspace(1e8, 1e9, 10)
    ladder = fit_ladder(params, tokens, 1.0 + 1e-10 * params)  # rises with size: nothing a ladder could say
    assert_allclose(np.exp(ladder[1] - ladder[2] * np.log(params)), 0.0, atol=1e-6)
    assert ladder[0] > 0


def test_a_family_with_a_ladder_of_its_own_is_read_off_it():
    rows = np.array([[1.0, -200, 0, -200, 0], [2.0, -200, 0, -200, 0]])
    metadata = ModelMetadata(
        np.array(["ash", "elm", ""]), np.ones(3), np.ones(3), np.array([1, 1, np.nan]), np.empty((3, 0)), ()
    )
    assert_allclose(ScalingLadder(families=("", "elm"), laws=rows).loss(metadata), [1.0, 2.0, np.nan])


def test_the_choice_that_errs_on_a_family_is_made_without_that_family(dataset):
    three = dataset.of_models(np.arange(12))
    families = np.repeat(["a", "b", "c"], 4)
    observed = np.zeros(12)

    def forecasts(sets):
        constant_forecasts = np.full((len(sets), 2, 12), 0.1)
        constant_forecasts[:, 1] = np.where(families == "a", 0.0, 0.11)  # perfect on one family, worse on the others
        return constant_forecasts

    three = replace(three, metadata=replace(three.metadata, families=families))
    selected = select_candidate(forecasts, three, observed, known=np.ones(12, bool))
    assert selected.best == 1
    mine = {f: selected.out_of_fold.errors[selected.out_of_fold.families == f] for f in "abc"}
    assert (mine["a"] == 0.1).all(), "chosen by b and c alone"
    assert (mine["b"] == 0.11).all()


def test_observational_reads_every_other_benchmark_and_never_its_own(dataset, world):
    folds = make_folds(world.models, "size")[1]
    rng = np.random.default_rng(0)
    lied = replace(
        dataset.metadata,
        scores=np.column_stack([dataset.metadata.scores, rng.random(len(dataset.models))]),
        benchmarks=(*dataset.metadata.benchmarks, "extra"),
    )
    for task, fit in zip(
        dataset.tasks, METHODS["observational"].learn(replace(dataset, metadata=lied), folds)[0], strict=True
    ):
        assert set(fit.capability.benchmarks) == {b for b in lied.benchmarks if b != task.name}
    only = replace(dataset.for_tasks(["task0"]))
    fit = METHODS["observational"].learn(only, folds)[0][0]
    assert fit.capability.benchmarks == ("task1",), "also when only one task was asked for"


def test_observational_without_other_benchmarks_says_so(dataset, world):
    alone = replace(dataset, metadata=ModelMetadata.of(world.models, []))
    fit = METHODS["observational"].learn(alone, make_folds(world.models, "size")[1])[0][0]
    assert "scores on 0 other benchmarks" in fit.law.failure
    assert np.isnan(fit.forecast(alone.nats, alone.metadata)).all()


def test_two_step_without_sizes_says_so(dataset, world):
    unknown = replace(dataset, metadata=replace(dataset.metadata, params=np.full(len(dataset.models), np.nan)))
    fit = METHODS["two-step"].learn(unknown, make_folds(world.models, "size")[1])[0][0]
    assert "parameters and tokens" in fit.law.failure


@pytest.mark.parametrize("method", PEERS)
def test_a_peer_fitted_stored_and_loaded_forecasts_a_model_of_the_study(method, study, world, cli, tmp_path):
    assert cli("fit", study.root, "--task", "task0", "--method", method).code == 0
    ran = cli("predict", study.root, "--model", world.models[3].model, "--json")
    (forecast,) = json.loads(ran.out)
    assert 0 <= forecast["low"] < forecast["accuracy"] < forecast["high"] <= 1
    stored = bc.load(study.fit_folder("task0"))
    metadata = ModelMetadata.of(
        study.infos([world.models[3].model]), [s for s in study.scores() if s.model == world.models[3].model]
    )
    assert stored.predict(study.losses(world.models[3].model), metadata=metadata).accuracy == forecast["accuracy"]


@pytest.mark.parametrize(
    ("method", "says"),
    [("observational", "no score known on task1"), ("two-step", "no parameters and training tokens known")],
)
def test_a_peer_that_lacks_what_it_reads_says_what(method, says, study, world):
    forecast = bc.fit(study, "task0", method=method).predict(world.losses[0])
    assert np.isnan(forecast.accuracy)
    assert forecast.remark == says


def test_peers_stand_between_the_learned_methods_and_the_baselines():
    baselines = [name for name, method in METHODS.items() if method.baseline]
    assert list(METHODS) == ["stack", "salience", "paper", "ridge", *PEERS, *baselines]


@needs_public
def test_the_components_are_those_that_the_authors_of_observational_scaling_report():
    """Ruan et al. 2024: the first component explains about 80% of the variance of the models they evaluated, the first
    three about 97%; within a family the first rises with the log of compute, with R² above 0.9."""
    evaluated = (
        "Llama-2 Llama Llama-3 Qwen1.5 Qwen Mistral Mixtral Yi Gemma Falcon Phi Pythia BLOOM GPT-Neo/J OPT MPT XGLM"
    )
    evaluated = {*evaluated.split(), "CodeLlama", "StarCoder", "StarCoder2", "DeepSeek-Coder"}
    with (PUBLIC / "obsscaling_base_llms.csv").open(encoding="utf-8") as lines:
        rows = [r for r in csv.DictReader(lines) if r["Model Family"] in evaluated]
    names = [
        c
        for c in rows[0]
        if c not in ("Model", "Model Family", "Model Size (B)", "Pretraining Data Size (T)", "FLOPs (1E21)")
    ]
    table = np.array([[float(r[c] or "nan") for c in names] for r in rows])
    whole = np.isfinite(table).all(axis=1)
    axes, share = principal_axes(table[whole])
    assert share[0] == pytest.approx(0.80, abs=0.02)
    assert share[:3].sum() == pytest.approx(0.97, abs=0.005)
    first = (table - table[whole].mean(axis=0)) @ axes[0]
    compute = np.log10([float(r["FLOPs (1E21)"] or "nan") for r in rows])
    family = np.array([r["Model Family"] for r in rows])
    usable = np.isfinite(first) & np.isfinite(compute)
    correlations = [
        np.corrcoef(first[in_family], compute[in_family])[0, 1] ** 2
        for f in np.unique(family)
        if (in_family := usable & (family == f)).sum() >= 3
    ]
    assert np.median(correlations) > 0.95
    assert np.mean(np.array(correlations) > 0.9) > 0.9


@needs_public
def test_a_ladder_of_small_public_models_reaches_large_ones():
    """Gadre et al. 2024: runs below 1B parameters against runs of 1.4B and 6.9B, three data sets."""
    with (PUBLIC / "gadre_104_models.csv").open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    params, tokens, loss = (
        np.array([float(r[c]) for r in rows]) for c in ("params", "tokens", "loss_c4_val_shard_0000000_0000010_tar")
    )
    data = np.array([r["dataset"] for r in rows])
    metadata = ModelMetadata(data, params, params, tokens, np.empty((len(rows), 0)), ())
    for name in np.unique(data):
        small, large = ((data == name) & on for on in (params < 1e9, params >= 1e9))
        ladder = fit_ladder(params[small], tokens[small], loss[small])
        expected = one_ladder(ladder).loss(metadata)
        assert np.abs(expected[large] / loss[large] - 1).max() < 0.1
