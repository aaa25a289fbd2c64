"""`stack`: which models it is compared on, and that it follows signed truths that `salience` cannot."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import benchcast as bc
from benchcast.assemble import AssemblyOptions, assemble
from benchcast.dataset import Features, Fold
from benchcast.law import sigmoid
from benchcast.methods import METHODS
from benchcast.methods.averaging import build_pools
from benchcast.methods.basis import build_basis
from benchcast.methods.candidates import FEWEST_TO_LEAN, lean_to_stronger, nonnegative_candidates
from benchcast.methods.problem import STRONGEST, Problem, strongest_models
from benchcast.methods.stack import IN_RANGE
from benchcast.predictors import VIEWS, LossView
from benchcast.storage.hashes import hashed
from benchcast.task_fit import Fade, Members, weighted_loss
from synthetic import Plan, make_world

INSIDE = Fade(-2.0, -1.0)  # every model is inside the range


def everything(models: int) -> Fold:
    nobody = np.zeros(models, bool)
    return Fold(~nobody, nobody, nobody)


def test_the_strongest_models_are_those_of_the_lowest_loss_in_nested_sets() -> None:
    loss = np.random.default_rng(0).permutation(40).astype(float)
    known = loss != 0  # the very strongest has no score
    sets = strongest_models(loss, known)
    assert [rows.sum() for rows in sets] == [round(share * 39) for share in STRONGEST]
    for rows in sets:
        assert loss[rows].max() < loss[known & ~rows].min()
    assert all((small <= large).all() for large, small in pairwise(sets))


def test_with_few_models_no_stronger_ones_are_hidden() -> None:
    assert strongest_models(np.arange(4.0), np.ones(4, bool)) == []


def test_validation_models_take_the_place_of_the_strongest(dataset) -> None:
    fold = everything(len(dataset.models))
    validation = np.arange(len(dataset.models)) % 4 == 3
    loss = dataset.nats.mean(axis=1)
    named = Problem.of(dataset, Fold(~validation, validation, fold.test), 0, mean_loss=loss)
    assert [rows.tolist() for rows in named.stronger] == [validation.tolist()]
    assert len(Problem.of(dataset, fold, 0, mean_loss=loss).stronger) == len(STRONGEST)
    assert Problem.of(dataset, fold, 0).stronger == []


def test_it_learns_a_difference_of_losses_which_no_weights_above_zero_can_express() -> None:
    """A score that rises with the loss on one source and falls with that on another."""
    drawn = make_world(Plan(seed=3, families=8, sizes=5, checkpoints=3, tasks=2, texts_per_source=8))
    features = Features(drawn.features, drawn.edges, "synthetic")
    world = assemble(drawn.texts, drawn.losses, drawn.models, drawn.scores, drawn.tasks, AssemblyOptions(features))
    source = world.reference_tokens.source
    apart = world.nats[:, source == 0].mean(axis=1) - world.nats[:, source == 1].mean(axis=1)
    score = sigmoid(2 * (apart - apart.mean()) / apart.std())
    task = replace(world.tasks[0], chance=0.0)
    signed = replace(world, tasks=(task,), accuracy=score[None], n_items=world.n_items[:1])
    test = np.isin(signed.families, np.unique(signed.families)[:2])
    fold = Fold(~test, np.zeros(len(score), bool), test)

    def error(method: str) -> float:
        forecast = METHODS[method](signed, [fold])[0][0].forecast(signed.nats, signed.metadata)
        return float(((forecast - score)[test] ** 2).mean())

    assert error("stack") < 0.3 * error("salience")


def test_candidates_that_lean_to_stronger_models_serve_them_where_no_single_law_holds() -> None:
    """Scores of strong models follow the loss on one source, those of weak models the loss on another."""
    drawn = make_world(Plan(seed=5, families=8, sizes=5, checkpoints=3, tasks=1, texts_per_source=8))
    features = Features(drawn.features, drawn.edges, "synthetic")
    world = assemble(drawn.texts, drawn.losses, drawn.models, drawn.scores, drawn.tasks, AssemblyOptions(features))
    source, mean_loss = world.reference_tokens.source, world.nats.mean(axis=1)
    strong = mean_loss < np.quantile(mean_loss, 0.3)
    read = np.where(strong, *(world.nats[:, source == i].mean(axis=1) for i in (0, 1)))
    score = sigmoid(3 * (read.mean() - read) / read.std())
    world = replace(world, tasks=(replace(world.tasks[0], chance=0.0),), accuracy=score[None])
    test = np.isin(world.families, np.unique(world.families)[:2])
    problem = Problem.of(world, Fold(~test, np.zeros_like(test), test), 0, mean_loss=mean_loss)
    basis, sums = build_basis(world)
    x = sums[LossView.NATS]
    alike, leaning = (nonnegative_candidates(problem, basis, "nats", x, mean_loss=m) for m in (None, mean_loss))
    assert (alike.kind, leaning.kind) == ("non-negative", "leaning")
    same_form = [alike.names.index(name.removesuffix(", stronger models")) for name in leaning.names]
    rows = test & strong
    first, second = (((sigmoid(f.log_odds[rows, 0]) - score[rows, None]) ** 2).mean(axis=0) for f in (alike, leaning))
    assert np.exp(np.mean(np.log(second / first[same_form]))) < 0.85


def test_few_models_have_no_candidates_that_lean(dataset) -> None:
    few = np.arange(len(dataset.models)) < FEWEST_TO_LEAN - 1
    for rows, expected in ((few, False), (np.append(few[1:], few[:1]) | few, True)):
        nobody = np.zeros_like(rows)
        pool = next(build_pools(dataset, [Fold(rows, nobody, ~rows)], of_stack=True))[0]
        names = [name for fitted in pool.fitted for name in fitted.names]
        assert any("stronger models" in name for name in names) is expected
        assert {fitted.kind for fitted in pool.nonnegative().fitted} == {"non-negative"}


def test_candidates_do_not_lean_where_models_are_many(dataset, monkeypatch) -> None:
    monkeypatch.setattr("benchcast.methods.averaging.MANY_MODELS", len(dataset.models) - 1)
    pool = next(build_pools(dataset, [everything(len(dataset.models))], of_stack=True))[0]
    assert {fitted.kind for fitted in pool.fitted} == {"non-negative", "signed"}


def test_a_model_stronger_than_all_is_not_forecast_by_candidates_that_lean(fit) -> None:
    assert any("stronger models" in name for name in fit.notes["shares"])
    assert not any("stronger models" in name for name in fit.notes["shares_of_stronger"])


def test_the_strongest_model_weighs_most_whatever_the_unit_of_the_losses() -> None:
    loss = np.random.default_rng(1).gamma(2.0, size=30)
    weight = lean_to_stronger(loss)
    assert (np.argsort(-weight) == np.argsort(loss)).all()
    assert lean_to_stronger(3 + loss / np.log(2)) == pytest.approx(weight)
    assert weight.max() == 1
    assert lean_to_stronger(np.ones(5)).tolist() == [1.0] * 5


@pytest.fixture(scope="module")
def fit(dataset):
    return METHODS["stack"](dataset, [everything(len(dataset.models))])[0][0]


def test_a_model_inside_the_range_gets_both_averages_and_a_stronger_one_the_first(dataset, fit) -> None:
    inside = dataset.nats[np.argsort(dataset.nats.mean(axis=1))[-3:]]
    first, second = (m.law.log_odds(weighted_loss(inside, VIEWS, m.weights) / fit.unit) for m in fit.average.members)
    usual = fit.average.log_odds(inside, VIEWS, fit.unit)
    assert usual == pytest.approx((1 - IN_RANGE) * first + IN_RANGE * second)
    stronger = dataset.nats[:2] * 1e-3
    first = fit.average.members[0]
    alone = first.law.log_odds(weighted_loss(stronger, VIEWS, first.weights) / fit.unit)
    assert fit.average.log_odds(stronger, VIEWS, fit.unit) == pytest.approx(alone)


def test_forecast_and_capability_are_those_of_the_averaged_log_odds(dataset, fit) -> None:
    log_odds = fit.average.log_odds(dataset.nats, VIEWS, fit.unit)
    assert fit.capability(dataset.nats, dataset.metadata) == pytest.approx(-log_odds)
    expected = fit.task.chance + (1 - fit.task.chance) * sigmoid(log_odds)
    assert fit.forecast(dataset.nats, dataset.metadata) == pytest.approx(expected)
    assert sum(fit.notes["shares"].values()) == pytest.approx(1.0, abs=0.2)


def test_weights_are_the_gradient_of_the_averaged_log_odds_without_curves(dataset, fit) -> None:
    straight = Members(tuple(replace(m, law=replace(m.law, calibration=None)) for m in fit.average.members), INSIDE)
    token, step = int(np.argmax(np.abs(fit.weights[0]))), 1e-2
    nats = dataset.nats[:3].astype(np.float64)
    moved = nats.copy()
    moved[:, token] += step
    change = (straight.log_odds(moved, VIEWS, fit.unit) - straight.log_odds(nats, VIEWS, fit.unit)) / step
    views = fit.weights[0, token] + fit.weights[1, token] / ((1 + nats[:, token]) * (1 + moved[:, token]))
    assert change == pytest.approx(-views / fit.unit, rel=1e-3)


def test_between_the_strongest_models_the_second_average_fades_evenly() -> None:
    fade = Fade.of(np.linspace(1.0, 3.0, 101))
    assert (fade.strongest, fade.usual) == pytest.approx((1.0, 1.3))
    assert fade(np.array([0.5, 1.0, 1.15, 1.3, 2.0])) == pytest.approx([1.0, 1.0, 0.5, 0.0, 0.0])
    assert Fade(2.0, 2.0)(np.array([1.9, 2.0, 2.1])).tolist() == [1.0, 0.0, 0.0]


def test_members_are_stored_and_read_back(study, tmp_path) -> None:
    new_fit = bc.fit(study, "task0")
    again = bc.load(new_fit.save(tmp_path / "fit"))
    assert again.core.average is not None
    assert again.core.average.fade == new_fit.core.average.fade
    losses = study.losses(study.models_with_losses()[0])
    assert again.predict(losses) == new_fit.predict(losses)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda a: a["members"][0].update(share=0.9), "do not sum to 1"),
        (lambda a: a["members"][0].update(share=-0.1), "are not in 0..1"),
        (lambda a: a["fade"].update(usual=0.0), "fade"),
        (lambda a: a.update(members=[]), "without members"),
    ],
)
def test_members_that_make_no_sense_are_refused(study, tmp_path, change, why) -> None:
    folder = bc.fit(study, "task0").save(tmp_path / "fit")
    document = json.loads((folder / "fit.json").read_text(encoding="utf-8"))
    change(document["average"])
    document.pop("sha256")
    (folder / "fit.json").write_text(json.dumps(hashed(document)), encoding="utf-8")
    with pytest.raises(bc.BenchcastError, match=why):
        bc.load(folder)
