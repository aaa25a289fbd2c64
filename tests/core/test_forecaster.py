"""`Forecaster` on plain arrays, and in scikit-learn's own tools."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.sparse import csr_array
from sklearn.base import clone, is_regressor
from sklearn.exceptions import NotFittedError as SklearnNotFitted
from sklearn.feature_selection import VarianceThreshold
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

import benchcast as bc
from benchcast.errors import BenchcastError, InputError, NotEnoughDataError
from benchcast.forecasts.forecaster import Forecaster, NotFittedError
from benchcast.methods import METHODS

CHANCE = 0.25
READ_MORE = [m.name for m in METHODS.values() if m.needs_features or m.needs_metadata]


class Arrays:
    """Thirty models of six families: losses on twelve columns, four of which follow skill, and accuracy."""

    def __init__(self) -> None:
        rng = np.random.default_rng(5)
        skill = rng.uniform(0, 1, 30)
        tilt = np.r_[np.full(4, 1.5), np.zeros(8)]
        self.losses = 3 - np.outer(skill, tilt) + rng.normal(0, 0.1, (30, 12))
        self.accuracy = CHANCE + 0.6 * skill**2
        self.families = np.repeat(list("abcdef"), 5)


@pytest.fixture(scope="module")
def arrays() -> Arrays:
    return Arrays()


@pytest.fixture(scope="module")
def fitted(arrays) -> Forecaster:
    return Forecaster(chance=CHANCE).fit(arrays.losses, arrays.accuracy, families=arrays.families)


def test_it_learns_which_columns_follow_the_score(fitted, arrays):
    assert fitted.salience_[:4].sum() > 0.8 * fitted.salience_.sum()
    assert fitted.score(arrays.losses, arrays.accuracy) > 0.95
    assert fitted.n_features_in_ == 12


def test_it_is_exported(arrays):
    assert bc.Forecaster is Forecaster


def test_forecasts_are_those_of_a_study_made_from_the_same_table(arrays, tmp_path):
    header = ["model", *(f"column{i}" for i in range(12))]
    rows = [[f"m{i:02}", *map(repr, map(float, row))] for i, row in enumerate(arrays.losses)]
    (tmp_path / "losses.csv").write_text("\n".join(",".join(r) for r in [header, *rows]) + "\n", encoding="utf-8")
    study = bc.datasets.create_table_study(tmp_path / "study", tmp_path / "losses.csv", units=["nats"])
    study = study.add_tasks([bc.Task("t", CHANCE, ("losses",))])
    study.add_models([bc.ModelInfo(r[0], family) for r, family in zip(rows, arrays.families, strict=True)])
    study.add_scores([bc.Score(r[0], "t", float(a)) for r, a in zip(rows, arrays.accuracy, strict=True)])
    ours = Forecaster(chance=CHANCE).fit(arrays.losses, arrays.accuracy, families=arrays.families)
    forecasts = bc.fit(study, "t").predict(study)
    assert [row.accuracy for row in forecasts] == pytest.approx(ours.predict(arrays.losses), abs=1e-6)
    low, high = ours.predict_interval(arrays.losses)
    assert [row.low for row in forecasts] == pytest.approx(low, abs=1e-6)
    assert [row.high for row in forecasts] == pytest.approx(high, abs=1e-6)


@pytest.mark.parametrize("method", [m for m in METHODS if m not in READ_MORE])
def test_every_method_that_reads_nothing_but_losses_works(method, arrays):
    forecaster = Forecaster(method=method, chance=CHANCE).fit(arrays.losses, arrays.accuracy, families=arrays.families)
    forecast, (low, high) = forecaster.predict(arrays.losses), forecaster.predict_interval(arrays.losses)
    assert np.isfinite(forecast).all()
    assert ((low <= forecast) & (forecast <= high)).all()


def test_families_may_be_left_out(arrays):
    """Each model is then a family of its own."""
    without, alone = (
        Forecaster(method="all-token", chance=CHANCE).fit(arrays.losses, arrays.accuracy, families=families)
        for families in (None, np.arange(30).astype(str))
    )
    assert_allclose(without.predict(arrays.losses), alone.predict(arrays.losses))
    assert_allclose(without.predict_interval(arrays.losses), alone.predict_interval(arrays.losses))
    assert len(set(without.task_fit_.out_of_fold.families)) == 30


def test_the_order_of_models_changes_nothing(arrays):
    order = np.random.default_rng(1).permutation(30)
    forecasts = [
        Forecaster(method="all-token").fit(arrays.losses[o], arrays.accuracy[o], families=arrays.families[o])
        for o in (np.arange(30), order)
    ]
    assert forecasts[0].predict(arrays.losses) == pytest.approx(forecasts[1].predict(arrays.losses), abs=1e-6)


def test_a_lower_level_gives_narrower_intervals_without_another_fit(fitted, arrays):
    low, high = fitted.predict_interval(arrays.losses)
    narrow = clone(fitted).set_params(level=0.5).fit(arrays.losses, arrays.accuracy, families=arrays.families)
    lower, upper = narrow.predict_interval(arrays.losses)
    assert (upper - lower <= high - low).all()
    assert (upper - lower < high - low).any()


def test_settings_are_read_and_changed_by_name():
    forecaster = Forecaster(method="pls", chance=0.5)
    assert forecaster.get_params() == {"method": "pls", "chance": 0.5, "level": 0.9, "device": ""}
    assert forecaster.set_params(chance=0.1) is forecaster
    assert repr(forecaster) == "Forecaster(method='pls', chance=0.1)"
    with pytest.raises(ValueError, match=r"unknown setting 'colour' of Forecaster; known: method, chance"):
        forecaster.set_params(colour=1)


def test_clones_have_the_settings_and_nothing_learned(fitted):
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    assert not [name for name in vars(copy) if name.endswith("_")]
    check_is_fitted(fitted)
    with pytest.raises(SklearnNotFitted):
        check_is_fitted(copy)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        copy.predict([[1.0]])


def test_scikit_learn_takes_it_for_a_regressor():
    assert is_regressor(Forecaster())


def test_cross_validation_over_families(arrays):
    scores = cross_val_score(
        Forecaster(chance=CHANCE),
        arrays.losses,
        arrays.accuracy,
        groups=arrays.families,
        cv=GroupKFold(3),
        params={"families": arrays.families},
        error_score="raise",
    )
    assert (scores > 0.8).all()


def test_in_a_pipeline_and_a_grid_search(arrays):
    flat = np.c_[arrays.losses, np.full(30, 2.0)]
    pipe = Pipeline([("vary", VarianceThreshold()), ("forecast", Forecaster(chance=CHANCE))])
    pipe.fit(flat, arrays.accuracy, forecast__families=arrays.families)
    assert pipe[-1].n_features_in_ == 12
    assert pipe.score(flat, arrays.accuracy) > 0.9
    search = GridSearchCV(pipe, {"forecast__method": ["constant", "salience"]}, cv=GroupKFold(3), error_score="raise")
    search.fit(flat, arrays.accuracy, groups=arrays.families)
    assert search.best_params_ == {"forecast__method": "salience"}


def test_data_frames_keep_their_column_names(arrays):
    frame = pd.DataFrame(arrays.losses, columns=[f"text{i}" for i in range(12)])
    forecaster = Forecaster(method="all-token").fit(
        frame, pd.Series(arrays.accuracy), families=pd.Series(arrays.families)
    )
    assert list(forecaster.feature_names_in_) == list(frame.columns)
    assert forecaster.predict(frame) == pytest.approx(forecaster.predict(arrays.losses))
    with pytest.raises(ValueError, match="in another order"):
        forecaster.predict(frame[frame.columns[::-1]])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda X, y, f: (X[0], y, f), "X: expected a 2D array"),
        (lambda X, y, f: (X[:0], y[:0], None), "X: no losses"),
        (lambda X, y, f: (np.where(X[3, 2] == X, np.nan, X), y, f), "X: NaN or infinity in row 3, column 2"),
        (lambda X, y, f: (X - 3, y, f), "X: negative losses; do not centre"),
        (lambda X, y, f: ([["a"] * 12] * 30, y, f), "X: not an array of numbers"),
        (lambda X, y, f: (X + 1j, y, f), "X: complex data not supported"),
        (lambda X, y, f: (csr_array(X), y, f), "X: sparse input is not supported"),
        (lambda X, y, f: (X, None, f), "requires y to be passed"),
        (lambda X, y, f: (X, 100 * y, f), "y: accuracies must lie from 0 to 1; divide percentages by 100"),
        (lambda X, y, f: (X, np.where(y == y[3], np.nan, y), f), "y: NaN or infinity in row 3; leave out models"),
        (lambda X, y, f: (X, y[:, None], f), "y: expected a 1D array"),
        (lambda X, y, f: (X, y[:-1], f), "y: 29 accuracies for 30 models"),
        (lambda X, y, f: (X, y, f[:-1]), "families: 29 names for 30 models"),
    ],
)
def test_arrays_that_cannot_be_used_say_why(change, says, arrays):
    X, y, families = change(arrays.losses, arrays.accuracy, arrays.families)
    with pytest.raises(ValueError, match=says) as caught:
        Forecaster(method="all-token").fit(X, y, families=families)
    assert isinstance(caught.value, BenchcastError)


def test_settings_are_checked_when_it_is_fitted(arrays):
    for settings, says in (
        ({"method": "salient"}, "unknown method 'salient'.*did you mean 'salience'"),
        ({"method": "compute"}, "method 'compute' reads more than losses"),
        ({"chance": 1.0}, "chance 1.0: needed is a share from 0 to below 1"),
        ({"level": 0.0}, "level 0: a share between 0 and 1"),
        ({"device": "nonsense"}, "torch cannot use it here"),
    ):
        with pytest.raises(InputError, match=says):
            Forecaster(**settings).fit(arrays.losses, arrays.accuracy)


def test_too_little_to_learn_from_is_an_error_and_no_nan(arrays, fitted):
    with pytest.raises(NotEnoughDataError, match="3 training models"):
        Forecaster().fit(arrays.losses[:3], arrays.accuracy[:3])
    with pytest.raises(NotEnoughDataError, match="nothing to learn from"):
        Forecaster().fit(arrays.losses, np.full(30, 0.5))
    with pytest.raises(ValueError, match="two different accuracies"):
        fitted.score(arrays.losses[:1], arrays.accuracy[:1])
    with pytest.raises(ValueError, match="X has 3 columns, fit was given 12"):
        fitted.predict(arrays.losses[:, :3])


@pytest.mark.parametrize("loss", [1.0, 2.7])
@pytest.mark.parametrize("method", ["stack", "salience", "pls"])
def test_models_with_the_same_losses_are_refused(method, loss):
    """With losses of 1 they gave a constant, with a narrow interval also for a model of half the loss."""
    with pytest.raises(NotEnoughDataError, match="X: all training models have the same losses; there is nothing to"):
        Forecaster(method=method).fit(np.full((12, 5), loss), np.linspace(0.3, 0.85, 12))


def test_chance_above_every_accuracy_is_refused(arrays):
    with pytest.raises(InputError, match=r"y: no accuracy is above chance \(0.95\); is chance correct\?"):
        Forecaster(chance=0.95).fit(arrays.losses, arrays.accuracy)


@pytest.mark.parametrize("absent", [None, np.nan, pd.NA])
def test_models_without_a_family_are_not_one_family(arrays, absent):
    """Names of None and NaN made one family of all models without one."""
    some = np.array([*arrays.families[:20], *[absent] * 10], object)
    alone = np.array([*arrays.families[:20], *[f"own {i}" for i in range(10)]], object)
    ends = [
        Forecaster(method="all-token", chance=CHANCE)
        .fit(arrays.losses, arrays.accuracy, families=names)
        .predict_interval(arrays.losses)
        for names in (some, alone)
    ]
    assert_allclose(ends[0], ends[1])


@pytest.mark.parametrize("kind", [np.int64, np.str_, np.float64])
def test_scalars_of_numpy_name_families(arrays, kind):
    """Numbers of numpy, as in a list made from an array, were taken for missing names."""
    numbers = np.unique(arrays.families, return_inverse=True)[1]
    fits = [
        Forecaster(method="all-token", chance=CHANCE).fit(arrays.losses, arrays.accuracy, families=names)
        for names in ([kind(i) for i in numbers], [str(i) for i in numbers])
    ]
    assert_allclose(*(fitted.predict_interval(arrays.losses) for fitted in fits))
