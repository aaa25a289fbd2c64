"""`stack`: which models it is compared on, and that it follows signed truths that `salience` cannot."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import benchcast as bc
from benchcast.losses.dataset import VIEWS, Dataset, LossView
from benchcast.methods import METHODS
from benchcast.methods.capability import BlendedLosses, BlendPart, StrengthRamp, WeightedLoss
from benchcast.methods.law import sigmoid
from benchcast.methods.stack import candidate_pools, fit_salience
from benchcast.methods.stack.blend import fit_blend
from benchcast.methods.stack.candidates import strength_weights
from benchcast.methods.stack.hidden_sets import TaskScores, hidden_sets, strongest_models
from benchcast.methods.stack.pool import Pool
from benchcast.methods.stack.settings import StackSettings
from benchcast.splits import Fold
from benchcast.study.atomic import hashed
from synthetic import Plan, make_world
from worlds import make_dataset

SETTINGS = StackSettings()
ALL_USUAL = StrengthRamp(-2.0, -1.0)  # every model is of usual strength


def everything(models: int) -> Fold:
    nobody = np.zeros(models, bool)
    return Fold(~nobody, nobody, nobody)


def test_the_strongest_models_are_those_of_the_lowest_loss_in_nested_sets() -> None:
    loss = np.random.default_rng(0).permutation(40).astype(float)
    known = loss != 0  # the very strongest has no score
    sets = strongest_models(loss, known, SETTINGS)
    assert [rows.sum() for rows in sets] == [round(share * 39) for share in SETTINGS.strongest]
    for rows in sets:
        assert loss[rows].max() < loss[known & ~rows].min()
    assert all((small <= large).all() for large, small in pairwise(sets))


def test_with_few_models_no_stronger_ones_are_hidden() -> None:
    assert strongest_models(np.arange(4.0), np.ones(4, bool), SETTINGS) == []


def test_validation_models_take_the_place_of_the_strongest(dataset) -> None:
    fold = everything(len(dataset.models))
    validation = np.arange(len(dataset.models)) % 4 == 3
    loss = dataset.nats.mean(axis=1)

    def stronger(of: Fold) -> list[tuple[str, list[bool]]]:
        sets = hidden_sets(TaskScores.of(dataset, of, 0), loss, SETTINGS)
        return [(hidden.kind, hidden.models.tolist()) for hidden in sets if hidden.kind != "family"]

    by_column = Fold(~validation, validation, fold.test)
    assert stronger(by_column) == [("validation", validation.tolist())]
    assert [kind for kind, _ in stronger(fold)] == ["strongest"] * len(SETTINGS.strongest)


def test_it_learns_a_difference_of_losses_which_no_weights_above_zero_can_express() -> None:
    """A score that rises with the loss on one source and falls with that on another."""
    drawn = make_world(Plan(seed=3, families=8, sizes=5, checkpoints=3, tasks=2, texts_per_source=8))
    world = make_dataset(drawn)
    source = world.reference_tokens.source
    apart = world.nats[:, source == 0].mean(axis=1) - world.nats[:, source == 1].mean(axis=1)
    score = sigmoid(2 * (apart - apart.mean()) / apart.std())
    task = replace(world.tasks[0], chance=0.0)
    signed = replace(world, tasks=(task,), accuracy=score[None], n_items=world.n_items[:1])
    test = np.isin(signed.families, np.unique(signed.families)[:2])
    fold = Fold(~test, np.zeros(len(score), bool), test)

    def error(method: str) -> float:
        forecast = METHODS[method].learn(signed, [fold])[0][0].forecast(signed.nats, signed.metadata)
        return float(((forecast - score)[test] ** 2).mean())

    assert error("stack") < 0.3 * error("salience")


def test_strength_weighted_candidates_serve_strong_models_where_no_single_law_holds() -> None:
    """Scores of strong models follow the loss on one source, those of weak models the loss on another."""
    drawn = make_world(Plan(seed=5, families=8, sizes=5, checkpoints=3, tasks=1, texts_per_source=8))
    world = make_dataset(drawn)
    source, mean_loss = world.reference_tokens.source, world.nats.mean(axis=1)
    strong = mean_loss < np.quantile(mean_loss, 0.3)
    read = np.where(strong, *(world.nats[:, source == i].mean(axis=1) for i in (0, 1)))
    score = sigmoid(3 * (read.mean() - read) / read.std())
    world = replace(world, tasks=(replace(world.tasks[0], chance=0.0),), accuracy=score[None])
    test = np.isin(world.families, np.unique(world.families)[:2])
    pool = only_pool(world, Fold(~test, np.zeros_like(test), test))
    x = pool.losses.by_view[LossView.NATS]
    rows = test & strong
    errors = {
        name: ((sigmoid(c.offset[k] - x[rows] @ c.mix[:, k]) - score[rows]) ** 2).mean()
        for c in pool.candidates
        if c.view == "nats"
        for k, name in enumerate(c.names)
    }
    weighted = {name: error for name, error in errors.items() if name.endswith(", stronger models")}
    ratios = [error / errors[name.removesuffix(", stronger models")] for name, error in weighted.items()]
    assert np.exp(np.mean(np.log(ratios))) < 0.85


def only_pool(dataset: Dataset, fold: Fold, settings: StackSettings = SETTINGS) -> Pool:
    """The pool of the first task."""
    return next(next(candidate_pools(dataset, [fold], settings)))


def test_few_models_have_no_strength_weighted_candidates(dataset) -> None:
    few = np.arange(len(dataset.models)) < SETTINGS.fewest_for_strength_weights - 1
    for rows, expected in ((few, False), (np.append(few[1:], few[:1]) | few, True)):
        nobody = np.zeros_like(rows)
        pool = only_pool(dataset, Fold(rows, nobody, ~rows))
        names = [name for candidates in pool.candidates for name in candidates.names]
        assert any("stronger models" in name for name in names) is expected
        assert ("strength-weighted" in {candidates.recipe for candidates in pool.candidates}) is expected


def test_many_models_have_no_strength_weighted_candidates(dataset) -> None:
    count = len(dataset.models)
    for most, expected in ((count - 1, False), (count, True)):
        pool = only_pool(dataset, everything(count), replace(SETTINGS, most_for_strength_weights=most))
        recipes = {candidates.recipe for candidates in pool.candidates}
        assert recipes == {"anchor", "non-negative", "signed"} | ({"strength-weighted"} if expected else set())


def test_salience_uses_its_own_candidates_and_hidden_sets_of_a_pool_that_has_more(dataset) -> None:
    fold = everything(len(dataset.models))
    shared = fit_salience(only_pool(dataset, fold), SETTINGS)
    alone = METHODS["salience"].learn(dataset, [fold])[0][0]
    assert not any(word in name for name in shared.notes["shares"] for word in ("signed", "stronger models"))
    assert not len(shared.stronger.errors)
    forecast, expected = (fit.forecast(dataset.nats, dataset.metadata) for fit in (shared, alone))
    assert forecast == pytest.approx(expected, abs=1e-4)


def test_a_model_stronger_than_all_is_not_forecast_by_strength_weighted_candidates(fit) -> None:
    assert any("stronger models" in name for name in fit.notes["shares"])
    assert not any("stronger models" in name for name in fit.notes["shares_of_stronger"])


def test_the_strongest_model_weighs_most_whatever_the_unit_of_the_losses() -> None:
    loss = np.random.default_rng(1).gamma(2.0, size=30)
    weight = strength_weights(loss, 1.0)
    assert (np.argsort(-weight) == np.argsort(loss)).all()
    assert strength_weights(3 + loss / np.log(2), 1.0) == pytest.approx(weight)
    assert weight.max() == 1
    assert strength_weights(loss, 2.0) == pytest.approx(np.sqrt(weight))
    assert strength_weights(np.ones(5), 1.0).tolist() == [1.0] * 5


@pytest.fixture(scope="module")
def fit(dataset):
    return METHODS["stack"].learn(dataset, [everything(len(dataset.models))])[0][0]


def log_odds_of(part: BlendPart, nats: np.ndarray, unit: float) -> np.ndarray:
    return part.law.log_odds(WeightedLoss(views=VIEWS, weights=part.weights, unit=unit).of(nats))


def test_a_stronger_model_is_forecast_neither_by_family_rows_nor_by_answers_alone(dataset, fit) -> None:
    blend, unit = fit.capability, dataset.characters
    all_rows, family_rows, anchors, answers = blend.parts
    assert family_rows.share_of_stronger == answers.share_of_stronger == 0
    assert all(part.share > 0 for part in blend.parts)
    stronger = dataset.nats[:2] * 1e-3
    kept = sum(part.share_of_stronger * log_odds_of(part, stronger, unit) for part in (all_rows, anchors))
    assert -blend.of(stronger) == pytest.approx(kept)


def test_a_model_of_usual_strength_gets_all_parts(dataset, fit) -> None:
    blend, unit = fit.capability, dataset.characters
    usual = dataset.nats[np.argsort(dataset.nats.mean(axis=1))[-3:]]
    expected = sum(part.share * log_odds_of(part, usual, unit) for part in blend.parts)
    assert -blend.of(usual) == pytest.approx(expected)
    all_rows, family_rows, *_ = blend.parts
    h = SETTINGS.family_rows_share
    assert family_rows.share / (all_rows.share + family_rows.share) == pytest.approx(h)


def test_the_fewer_families_the_larger_the_share_of_anchors(dataset) -> None:
    def share(families: list[str]) -> float:
        few = replace(dataset, relatives=np.resize(families, len(dataset.models)))
        averages = fit_blend(only_pool(few, everything(len(few.models))), SETTINGS).members[:3]
        return averages[2].share / sum(member.share for member in averages)

    assert share(["a", "b"]) == pytest.approx(0.5)
    assert share(["a", "b", "c", "d"]) == pytest.approx(0.2)


def test_answers_alone_count_by_their_error_over_that_of_the_averages(dataset) -> None:
    pool = only_pool(dataset, everything(len(dataset.models)))
    *averages, answers = fit_blend(pool, SETTINGS).members
    known, mean_loss = pool.scores.known, pool.losses.mean_loss
    ramps = [StrengthRamp.of(mean_loss[known & ~s.models], SETTINGS.ramp_quantile) for s in pool.sets]
    fade = np.concatenate([ramp.fade(mean_loss[s.models]) for ramp, s in zip(ramps, pool.sets, strict=True)])
    total = sum(member.share for member in averages)  # of stronger models it is 1: they have no answers alone
    whole = [member.times(1 / total, 1.0) for member in averages]
    together = sum(member.log_odds_without_own_set(fade, pool.scores.floor) for member in whole)
    alone = answers.average.log_odds_without_own_set
    of_answers, of_averages = (pool.left_out_error(z) + SETTINGS.least_error for z in (alone, together))
    told = 1 - averages[2].share / total  # of errors on few families
    assert answers.share / total == pytest.approx((of_answers / of_averages) ** (told * SETTINGS.answers_power))


def test_capability_is_minus_the_blended_log_odds_and_the_law_leaves_them_as_they_are(dataset, fit) -> None:
    unit = dataset.characters
    fade = fit.capability.ramp.fade(dataset.nats.sum(axis=1, dtype=np.float64) / unit)
    assert 0 < fade.mean() < 1
    log_odds = sum(
        (part.share + fade * (part.share_of_stronger - part.share)) * log_odds_of(part, dataset.nats, unit)
        for part in fit.capability.parts
    )
    assert fit.capability.of(dataset.nats, dataset.metadata) == pytest.approx(-log_odds)
    expected = fit.law.chance + (1 - fit.law.chance) * sigmoid(log_odds)
    assert fit.forecast(dataset.nats, dataset.metadata) == pytest.approx(expected)
    assert sum(fit.notes["shares"].values()) == pytest.approx(1.0, abs=0.2)


def test_weights_are_the_gradient_of_the_averaged_log_odds_without_curves(dataset, fit) -> None:
    parts = tuple(replace(part, law=replace(part.law, calibration=None)) for part in fit.capability.parts)
    straight, weights = replace(fit.capability, parts=parts, ramp=ALL_USUAL), fit.capability.stand_in.weights
    token, step = int(np.argmax(np.abs(weights[0]))), 1e-2
    nats = dataset.nats[:3].astype(np.float64)
    moved = nats.copy()
    moved[:, token] += step
    change = (straight.of(moved) - straight.of(nats)) / step
    views = weights[0, token] + weights[1, token] / ((1 + nats[:, token]) * (1 + moved[:, token]))
    assert change == pytest.approx(views / dataset.characters, rel=1e-3)


def test_among_the_strongest_models_the_family_rows_average_fades_evenly() -> None:
    ramp = StrengthRamp.of(np.linspace(1.0, 3.0, 101), 0.15)
    assert (ramp.strongest, ramp.usual) == pytest.approx((1.0, 1.3))
    assert ramp.fade(np.array([0.5, 1.0, 1.15, 1.3, 2.0])) == pytest.approx([1.0, 1.0, 0.5, 0.0, 0.0])
    assert StrengthRamp(2.0, 2.0).fade(np.array([1.9, 2.0, 2.1])).tolist() == [1.0, 0.0, 0.0]


def test_a_blend_is_stored_and_read_back(study, tmp_path) -> None:
    new_fit = bc.fit(study, "task0")
    again = bc.load(new_fit.save(tmp_path / "fit"))
    assert isinstance(again.task_fit.capability, BlendedLosses)
    assert again.task_fit.capability.ramp == new_fit.task_fit.capability.ramp
    assert again.digest == new_fit.digest
    losses = study.losses(study.models_with_losses()[0])
    assert again.predict(losses) == new_fit.predict(losses)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda a: a["members"][0].update(share=0.9), "do not sum to 1"),
        (lambda a: a["members"][0].update(share=-0.1), "are not in 0..1"),
        (lambda a: a["fade"].update(usual=0.0), "fade"),
        (lambda a: a.update(members=[]), "without members"),
        (lambda a: a["members"][0]["law"].update(chance=0.1), "floor of member 0 is 0.1"),
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
