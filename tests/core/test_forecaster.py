"""`Forecaster` on plain arrays, and in scikit-learn's own tools."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.testing import assert_allclose
from scipy.sparse import csr_array
from sklearn.base import clone, is_regressor
from sklearn.exceptions import NotFittedError as SklearnNotFitted
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.feature_selection import VarianceThreshold
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_val_score, cross_validate
from sklearn.pipeline import Pipeline
from sklearn.utils.estimator_checks import check_estimator
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
    assert fitted.salience_[:4].sum() > 0.75 * fitted.salience_.sum()  # the anchor of all columns has a share
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


@pytest.mark.parametrize("method", [m for m in METHODS if m not in READ_MORE])
def test_only_columns_that_all_models_have_are_read(method, arrays):
    """As `fit` does it in a study: a fit with gaps in a column is the fit without that column."""
    gaps = arrays.losses.copy()
    gaps[[2, 17], 4] = np.nan
    given = Forecaster(method=method, chance=CHANCE).fit(gaps, arrays.accuracy, families=arrays.families)
    short = np.delete(arrays.losses, 4, axis=1)
    without = Forecaster(method=method, chance=CHANCE).fit(short, arrays.accuracy, families=arrays.families)
    assert [*np.flatnonzero(~given.columns_)] == [4]
    assert given.left_out_ == {}
    assert given.salience_[4] == 0
    assert given.predict(gaps) == pytest.approx(without.predict(short), abs=1e-5)
    assert given.predict_interval(gaps)[1] == pytest.approx(without.predict_interval(short)[1], abs=1e-5)


def test_a_model_that_lacks_much_is_left_out_with_the_reason(arrays):
    gaps = arrays.losses.copy()
    gaps[5, :4] = np.nan
    given = Forecaster(method="all-token", chance=CHANCE).fit(gaps, arrays.accuracy, families=arrays.families)
    assert given.columns_.all()
    assert [*given.left_out_] == [5]
    assert given.left_out_[5].startswith("it lacks")
    assert given.n_models_in_ == 29
    with pytest.raises(ValueError, match=r"X: NaN in row 5, column 0, which the fit reads"):
        given.predict(gaps)


def test_models_without_an_accuracy_are_left_out(arrays):
    accuracy = arrays.accuracy.copy()
    accuracy[[3, 8]] = np.nan
    known = np.isfinite(accuracy)
    given = Forecaster(method="all-token", chance=CHANCE).fit(arrays.losses, accuracy, families=arrays.families)
    without = Forecaster(method="all-token", chance=CHANCE).fit(
        arrays.losses[known], accuracy[known], families=arrays.families[known]
    )
    assert given.left_out_ == {3: "it has no accuracy", 8: "it has no accuracy"}
    assert given.predict(arrays.losses) == pytest.approx(without.predict(arrays.losses), abs=1e-9)
    assert given.score(arrays.losses, accuracy) == pytest.approx(without.score(arrays.losses[known], accuracy[known]))


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
    for kind in (NotFittedError, SklearnNotFitted):
        with pytest.raises(kind, match="not fitted yet"):
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


def test_columns_of_a_frame_are_found_by_name_in_any_order(arrays):
    frame = pd.DataFrame(arrays.losses, columns=[f"text{i}" for i in range(12)])
    forecaster = Forecaster(method="pls").fit(frame, arrays.accuracy)
    mixed = frame[np.random.default_rng(2).permutation(frame.columns)]
    assert (forecaster.predict(mixed) == forecaster.predict(frame)).all()
    for wrong, says in (
        (frame.drop(columns="text3"), "X: no column 'text3'; fit was given text0, text1, text2, text3 and 8 more"),
        (frame.assign(lr=0.1), "X: unknown column 'lr'; fit was given"),
        (frame[[*frame.columns, "text0"]], "X: a column occurs twice"),
    ):
        with pytest.raises(ValueError, match=says):
            forecaster.predict(wrong)


def test_accuracies_may_be_one_column(arrays):
    flat, column = (
        Forecaster(method="all-token").fit(arrays.losses, y) for y in (arrays.accuracy, arrays.accuracy[:, None])
    )
    assert (flat.predict(arrays.losses) == column.predict(arrays.losses)).all()
    assert column.score(arrays.losses, pd.DataFrame(arrays.accuracy)) == flat.score(arrays.losses, arrays.accuracy)


def test_groups_are_families(arrays):
    by_name = {
        name: Forecaster(method="all-token").fit(arrays.losses, arrays.accuracy, **{name: arrays.families})
        for name in ("families", "groups")
    }
    assert set(by_name["groups"].task_fit_.out_of_fold.families) == set("abcdef")
    assert_allclose(*(f.predict_interval(arrays.losses) for f in by_name.values()))
    with pytest.raises(ValueError, match="families and groups are two names of one thing"):
        Forecaster().fit(arrays.losses, arrays.accuracy, arrays.families, groups=arrays.families)


def test_metadata_routing_passes_the_groups_of_a_splitter_or_a_name_of_the_users(arrays):
    with sklearn.config_context(enable_metadata_routing=True):
        for forecaster, name in (
            (Forecaster(method="all-token").set_fit_request(groups=True), "groups"),
            (Forecaster(method="all-token").set_fit_request(families="series"), "series"),
        ):
            cv = GroupKFold(3) if name == "groups" else KFold(3, shuffle=True, random_state=0)
            result = cross_validate(
                forecaster,
                arrays.losses,
                arrays.accuracy,
                cv=cv,
                params={name: arrays.families},
                return_estimator=True,
                error_score="raise",
            )
            assert all(set(f.task_fit_.out_of_fold.families) <= set("abcdef") for f in result["estimator"])
        with pytest.raises(UnsetMetadataPassedError, match=r"\[groups\] are passed but are not explicitly set"):
            cross_validate(
                Forecaster(), arrays.losses, arrays.accuracy, cv=GroupKFold(3), params={"groups": arrays.families}
            )


class OnAnyTarget(Forecaster):
    """A `Forecaster` of targets outside 0 to 1, on which scikit-learn's checks insist: they are scaled."""

    def __init__(self, *, method: str = "pls", chance: float = 0.0, level: float = 0.9, device: str = "") -> None:
        super().__init__(method=method, chance=chance, level=level, device=device)

    def fit(self, X, y, families=None, *, groups=None):
        return super().fit(X, scaled(y), families, groups=groups)

    def score(self, X, y):
        return super().score(X, scaled(y))


def scaled(y):
    if np.iscomplexobj(np.asarray(y)):
        return y
    try:
        numbers = np.asarray(y, float)
    except (TypeError, ValueError):
        return y
    known = y is not None and np.isfinite(numbers).all()
    return 0.1 + 0.8 * (numbers - numbers.min()) / (np.ptp(numbers) or 1) if known else y


COLUMN = {
    "check_supervised_y_2d": "a column of accuracies is unambiguous, so it is taken without a warning",
    "check_estimators_pickle": "forecasts models that lack losses which the fit reads; below, others are pickled",
}
NOT_ACCURACIES = "fits targets that are no accuracies from 0 to 1, which a Forecaster refuses; it passes on accuracies"
OUTSIDE = (
    *("check_fit_score_takes_y", "check_estimators_overwrite_params", "check_dont_overwrite_parameters"),
    *("check_estimators_fit_returns_self", "check_readonly_memmap_input", "check_n_features_in_after_fitting"),
    *("check_estimators_dtypes", "check_dtype_object", "check_f_contiguous_array_estimator"),
    *("check_regressors_train", "check_regressor_data_not_an_array", "check_regressors_no_decision_function"),
    *("check_regressors_int", "check_methods_sample_order_invariance", "check_methods_subset_invariance"),
    *("check_dict_unchanged", "check_fit_idempotent", "check_fit_check_is_fitted", "check_n_features_in"),
    "check_fit2d_predict1d",
)


@pytest.mark.parametrize(
    ("forecaster", "exceptions"),
    [(OnAnyTarget(), COLUMN), (Forecaster(method="all-token"), COLUMN | dict.fromkeys(OUTSIDE, NOT_ACCURACIES))],
    ids=["accuracies", "any targets"],
)
@pytest.mark.filterwarnings("ignore:Estimator .* does not inherit from")
def test_it_passes_scikit_learns_own_checks_but_for_those_listed_here(forecaster, exceptions):
    results = check_estimator(forecaster, expected_failed_checks=exceptions, on_skip=None, on_fail="raise")
    failed = {r["check_name"] for r in results if r["status"] == "xfail"}
    assert failed == exceptions.keys(), "an exception that is none any more"
    assert sum(r["status"] == "passed" for r in results) >= 25


def test_a_fit_with_missing_losses_comes_back_from_pickle(arrays):
    gaps = arrays.losses.copy()
    gaps[2, 4] = np.nan
    given = Forecaster(method="all-token").fit(gaps, arrays.accuracy)
    assert_allclose(pickle.loads(pickle.dumps(given)).predict(gaps), given.predict(gaps))


def test_it_needs_no_scikit_learn(arrays):
    code = """
import sys; sys.modules["sklearn"] = sys.modules["sklearn.exceptions"] = None
import numpy as np, benchcast as bc
losses = np.linspace(3, 1, 12)[:, None] * [1.0, 0.5]
forecaster = bc.Forecaster(method="all-token").set_fit_request(groups=True)
try:
    forecaster.predict(losses)
except bc.BenchcastError as error:
    print(error)
print(forecaster.fit(losses, np.linspace(0.1, 0.8, 12), groups=list("abcdef" * 2)).predict(losses).shape)
"""
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout.splitlines() == [
        "this Forecaster is not fitted yet; call fit(losses, accuracy) first",
        "(12,)",
    ]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda X, y, f: (X[0], y, f), "X: expected a 2D array"),
        (lambda X, y, f: (X[:0], y[:0], None), "X: no losses"),
        (lambda X, y, f: (np.where(X[3, 2] == X, np.inf, X), y, f), "X: infinity in row 3, column 2"),
        (lambda X, y, f: (np.where(X[3] == X, np.nan, X), y, f), "X: row 3 has no loss at all"),
        (lambda X, y, f: (X - 3, y, f), "X: Negative values in data; losses are not negative, so do not centre"),
        (lambda X, y, f: ([["a"] * 12] * 30, y, f), "X: not an array of numbers"),
        (lambda X, y, f: (X + 1j, y, f), "X: Complex data not supported"),
        (lambda X, y, f: (csr_array(X), y, f), "X: sparse input is not supported"),
        (lambda X, y, f: (X, None, f), "requires y to be passed"),
        (lambda X, y, f: (X, 100 * y, f), "y: accuracies must lie from 0 to 1; divide percentages by 100"),
        (lambda X, y, f: (X, np.where(y == y[3], np.inf, y), f), "y: infinity in row 3; a missing accuracy is NaN"),
        (lambda X, y, f: (X, np.full(30, np.nan), f), "y: all accuracies are missing"),
        (lambda X, y, f: (X, np.c_[y, y], f), "y: expected a 1D array"),
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
    with pytest.raises(ValueError, match="X has 3 features, but Forecaster is expecting 12"):
        fitted.predict(arrays.losses[:, :3])


@pytest.mark.parametrize("loss", [1.0, 2.7])
@pytest.mark.parametrize("method", ["stack", "salience", "pls"])
def test_models_with_the_same_losses_are_refused(method, loss):
    """With losses of 1 they gave a constant, with a narrow interval also for a model of half the loss."""
    with pytest.raises(NotEnoughDataError, match="X of 12 samples: all training models have the same losses; there"):
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
