"""The distance of a model's loss profile from those of the training models."""

from __future__ import annotations

import numpy as np
import pytest

from benchcast.forecasts.intervals import locate, predict
from benchcast.methods.distances import MOST_GROUPS, USUAL, Distances, text_groups
from benchcast.methods.profile import SHARED_VARIANCE, group_losses, spread_of_profiles, squared_distance
from benchcast.methods.spec import fit_method
from benchcast.splits import Fold
from synthetic import Plan, make_world
from worlds import make_dataset


@pytest.fixture(scope="module")
def dataset():
    return make_dataset(make_world(Plan(seed=5, families=6, sizes=4, checkpoints=1, tasks=2, texts_per_source=10)))


@pytest.fixture(scope="module")
def everyone(dataset):
    return np.ones(len(dataset.models), bool)


@pytest.fixture(scope="module")
def profile(dataset, everyone):
    return Distances(dataset).profile(everyone)


def test_a_profile_is_the_log_of_the_mean_loss_on_each_group():
    nats = np.array([[1.0, 3.0, 5.0, 9.0]], np.float32)
    assert group_losses(nats, np.array([0, 0, 1, -1])) == pytest.approx(np.log([[2.0, 5.0]]))


def test_the_distance_is_mahalanobis_with_a_share_of_the_total_variance_in_every_direction():
    profiles = np.array([[-1.0, 0.0], [1.0, 0.0]])  # variance 1 along the first axis, 0 along the second
    spread = spread_of_profiles(profiles, np.array([0.5, 0.5]))
    squared = squared_distance(np.array([[2.0, 0.0], [0.0, 2.0]]), *spread)
    assert squared == pytest.approx([4 / (1 + SHARED_VARIANCE), 4 / SHARED_VARIANCE])


def test_equal_profiles_have_no_distance():
    assert spread_of_profiles(np.ones((3, 2)), np.full(3, 1 / 3)) is None


def test_left_out_families_are_at_about_one(dataset, profile, everyone):
    """By definition, on average over families; each is measured from the others."""
    distances = Distances(dataset)
    squared = []
    for family in np.unique(dataset.families):
        held_out = dataset.families == family
        squared.append(distances.squared(everyone & ~held_out, np.flatnonzero(held_out)) / profile.typical)
    assert np.mean([of_family.mean() for of_family in squared]) == pytest.approx(1.0)
    assert profile.usual == pytest.approx(np.quantile(np.concatenate(squared), USUAL))


def test_training_models_are_nearer_than_left_out_families(dataset, profile):
    assert profile.distance(dataset.nats).mean() < 1


def test_a_model_that_knows_only_some_texts_is_far_though_its_mean_loss_is_usual(dataset, profile):
    """Half of the texts are twice as hard as for the training models, the other half is half as hard."""
    odd = dataset.nats[:1] * np.where(dataset.reference_tokens.text % 2, 2.0, 0.5).astype(np.float32)
    assert profile.distance(odd)[0] > 4 * profile.usual


def test_a_stronger_model_is_one_of_lower_mean_loss_than_all(dataset, profile):
    best = dataset.nats[[int(dataset.nats.mean(axis=1).argmin())]]
    assert not profile.stronger(best)[0]
    assert profile.stronger(best * np.float32(0.99))[0]


def test_many_texts_share_groups_and_unsupported_tokens_have_none():
    class Tokens:
        text = np.repeat(np.arange(3 * MOST_GROUPS), 2)
        supported = np.ones(6 * MOST_GROUPS, bool)

    Tokens.supported[:6] = False
    groups = text_groups(Tokens)
    assert (groups[:6] == -1).all()
    assert len(np.unique(groups[6:])) == MOST_GROUPS - 1, "one group of three texts has no token left"
    assert (np.diff(groups[6:]) >= 0).all()


@pytest.mark.parametrize("method", ["stack", "all-token"])
def test_out_of_fold_errors_know_their_accuracy_and_distance(dataset, everyone, method):
    (fit, _) = fit_method(method, dataset, [Fold(everyone, ~everyone, ~everyone)])[0]
    rows = [dataset.models.index(m) for m in fit.out_of_fold.models]
    assert fit.out_of_fold.observed.tolist() == dataset.accuracy[0][rows].tolist()
    assert len(fit.out_of_fold.distance) == len(rows)
    assert fit.out_of_fold.distance.mean() == pytest.approx(1.0, rel=0.5)
    hidden = fit.stronger
    assert (len(np.unique(hidden.hidden_set)) > 0) == (method == "stack"), "only stack hides stronger models"


def test_an_unlike_model_gets_a_wider_interval(dataset, everyone):
    (fit, _) = fit_method("all-token", dataset, [Fold(everyone, ~everyone, ~everyone)])[0]
    middle = int(np.argsort(dataset.nats.mean(axis=1))[len(dataset.models) // 2])
    usual = dataset.nats[[middle]]
    odd = usual * np.where(dataset.reference_tokens.text % 2, 1.6, 0.4).astype(np.float32)
    odd *= usual.mean() / odd.mean()
    one = dataset.metadata.take(np.array([middle]))
    narrow, wide = predict(fit, usual, one), predict(fit, odd, one)
    assert wide.accuracy == pytest.approx(narrow.accuracy, abs=1e-4), "the forecast is the same"
    assert wide.high - wide.low > 1.5 * (narrow.high - narrow.low)
    assert not locate(fit, wide.capability, odd).stronger[0]


def test_a_method_that_reads_no_losses_has_no_profile(dataset, everyone):
    assert fit_method("compute", dataset, [Fold(everyone, ~everyone, ~everyone)])[0][0].profile is None
