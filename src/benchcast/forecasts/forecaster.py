"""Forecasts from plain arrays, as an estimator of scikit-learn's kind; scikit-learn itself is not needed.

Axes: M models, N columns of losses.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from inspect import signature
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from benchcast.choices import DEFAULT_LEVEL, check_level
from benchcast.devices import check_device
from benchcast.display import cell, html_table
from benchcast.errors import InputError, NotEnoughDataError
from benchcast.forecasts.intervals import Predictions, predict
from benchcast.losses.assemble import assemble
from benchcast.losses.dataset import Dataset
from benchcast.messages import counted, few
from benchcast.methods import DEFAULT_METHOD, METHODS, MethodName
from benchcast.methods.spec import check_methods, equal_inputs, fit_method, same_losses, without_weak_tasks
from benchcast.methods.task_fit import TaskFit
from benchcast.records import Floats, ModelInfo, ModelMetadata, NamedTexts, Score, Task, Text, TokenLosses
from benchcast.splits import Fold

TASK, SOURCE = "accuracy", "losses"
ROW = "row "  # and its number: the name of a model


class InvalidArrayError(InputError, ValueError):
    """An array or setting that a `Forecaster` cannot use; also a ValueError, as scikit-learn's tools expect."""


class NotNumbersError(InvalidArrayError, TypeError):
    """An array that holds something else than numbers; also a TypeError, as numpy raises for it."""


class TooFewModelsError(NotEnoughDataError, ValueError):
    """Arrays with too few models, or too little difference between them; also a ValueError."""


class NotFittedError(InvalidArrayError, AttributeError):
    """A `Forecaster` that is asked for forecasts before it was fitted."""

    @classmethod
    def like_sklearn(cls) -> NotFittedError:
        """The error, also of scikit-learn's class of that name where scikit-learn is in use."""
        sklearn = sys.modules.get("sklearn.exceptions")
        kind = cls if sklearn is None else type(cls.__name__, (cls, sklearn.NotFittedError), {"__doc__": cls.__doc__})
        return kind("this Forecaster is not fitted yet; call fit(losses, accuracy) first")


class Forecaster:
    """Forecast benchmark accuracy from losses in plain arrays, with prediction intervals.

    It follows scikit-learn's estimator contract, so it works in pipelines, searches and cross-validation. With metadata
    routing, `Forecaster().set_fit_request(groups=True)` takes the groups of a splitter as families.

    Parameters
    ----------
    method : how to forecast: a method that reads nothing but losses, such as "stack", "salience" or "pls"
    chance : accuracy of guessing, from 0 to below 1
    level : share of scores of unseen models that `predict_interval` should contain, between 0 and 1
    device : where the method is computed: a torch device such as "cuda"; "" is numpy

    Attributes
    ----------
    salience_ : N floats, the weight of each column
    n_features_in_ : number of columns
    n_models_in_ : number of models of the fit
    columns_ : N booleans, the columns that all models of the fit have; the others are not read
    left_out_ : why models were left out of the fit, by row of X
    feature_names_in_ : names of the columns, where `fit` was given a DataFrame
    task_fit_ : the fitted weights and law

    >>> import numpy as np
    >>> from benchcast import Forecaster
    >>> skill = np.linspace(0, 1, 12)
    >>> losses = 3 - np.outer(skill, [1.0, 2.0, 0.5])                 # nats: 12 models, 3 texts
    >>> accuracy = 0.25 + 0.6 * skill**2
    >>> forecaster = Forecaster(method="all-token", chance=0.25).fit(losses, accuracy)
    >>> forecaster
    Forecaster(method='all-token', chance=0.25)
    >>> low, high = forecaster.predict_interval(losses[:2])
    >>> bool((low <= forecaster.predict(losses[:2])).all())
    True
    """

    def __init__(
        self,
        *,
        method: MethodName = DEFAULT_METHOD,
        chance: float = 0.0,
        level: float = DEFAULT_LEVEL,
        device: str = "",
    ) -> None:
        self.method = method
        self.chance = chance
        self.level = level
        self.device = device

    # ---- settings

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings by name; `deep` is there for scikit-learn and changes nothing."""
        return {name: getattr(self, name) for name in signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Self:
        """Change settings by name, and return the forecaster."""
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise InvalidArrayError(f"unknown setting {name!r} of Forecaster; known: {', '.join(known)}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        usual = {name: p.default for name, p in signature(type(self)).parameters.items()}
        given = [f"{name}={value!r}" for name, value in self.get_params().items() if value != usual[name]]
        return f"{type(self).__name__}({', '.join(given)})"

    def _repr_html_(self) -> str:
        known: dict[str, Any] = self.get_params()
        if self.__sklearn_is_fitted__():
            known |= {
                "training models": self.n_models_in_,
                "columns": self.n_features_in_,
                "families left out in turn": len(set(self.task_fit_.out_of_fold.families)),
                "mean error on them": float(np.abs(self.task_fit_.out_of_fold.errors).mean()),
            }
        notes = [] if self.__sklearn_is_fitted__() else ["not fitted"]
        return html_table(repr(self), ["", ""], [[name, cell(value)] for name, value in known.items()], notes=notes)

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, RegressorTags, Tags, TargetTags

        return Tags(
            estimator_type="regressor",
            target_tags=TargetTags(required=True),
            regressor_tags=RegressorTags(),
            input_tags=InputTags(positive_only=True, allow_nan=True),
        )

    def set_fit_request(self, *, families: bool | str | None = None, groups: bool | str | None = None) -> Self:
        """Which metadata scikit-learn's routing passes to `fit`: True, False, or the name it has there."""
        self._fit_request = {"families": families, "groups": groups}
        return self

    def __sklearn_clone__(self) -> Self:
        copy = type(self)(**self.get_params())
        if hasattr(self, "_fit_request"):
            copy.set_fit_request(**self._fit_request)
        return copy

    def get_metadata_routing(self) -> Any:
        """The request of `set_fit_request`, as scikit-learn's routing reads it."""
        from sklearn.utils.metadata_routing import MetadataRequest

        request = MetadataRequest(owner=self)
        for name, alias in getattr(self, "_fit_request", dict.fromkeys(("families", "groups"))).items():
            request.fit.add_request(param=name, alias=alias)
        return request

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "task_fit_")

    # ---- learning and forecasting

    def fit(
        self,
        X: npt.ArrayLike,
        y: npt.ArrayLike,
        families: npt.ArrayLike | None = None,
        *,
        groups: npt.ArrayLike | None = None,
    ) -> Self:
        """Learn weights of the columns and the law from loss to accuracy.

        Parameters
        ----------
        X : M × N losses, in nats or any other unit that is 0 for a perfect model; the same unit in each column. NaN is
            a missing loss: only columns that all models have are read, and a model that would take more than a tenth
            of them away is left out
        y : M accuracies from 0 to 1, or one column of them; a model with NaN is left out
        families : M names; models of one family are left out together when forms are chosen and errors measured.
            None, for all or for one model: it is a family of its own. If all are of one family, a model to forecast
            counts as one of another, and its interval is wide
        groups : another name of `families`, which scikit-learn's splitters and metadata routing use

        Returns
        -------
        the forecaster itself
        """
        losses, accuracy = _check_losses(X), _check_accuracy(y)
        if families is not None and groups is not None:
            raise InvalidArrayError("families and groups are two names of one thing; give one of them")
        family_names = _check_families(groups if families is None else families, len(losses))
        if len(losses) != len(accuracy):
            raise InvalidArrayError(f"y: {len(accuracy)} accuracies for {len(losses)} models; needed is one for each")
        self._check_settings()
        try:
            task_fit, dataset = self._fit(losses, accuracy, family_names)
        except NotEnoughDataError as error:
            raise TooFewModelsError(f"X of {counted(len(losses), 'sample')}: {error}") from error
        self.task_fit_ = task_fit
        self.columns_ = dataset.reference_tokens.supported.copy()
        self.salience_ = np.where(self.columns_, task_fit.salience(dataset.nats), 0)
        self.left_out_ = {int(row): "it has no accuracy" for row in np.flatnonzero(np.isnan(accuracy))}
        self.left_out_ |= {_row(name): f"it {dataset.support.why(name)}" for name in dataset.support.excluded}
        self.n_models_in_, self.n_features_in_ = len(dataset.models), losses.shape[1]
        self.__dict__.pop("feature_names_in_", None)
        names = _column_names(X)
        if names is not None:
            self.feature_names_in_ = names
        return self

    def _fit(self, losses: Floats, accuracy: Floats, families: list[str]) -> tuple[TaskFit, Dataset]:
        dataset = self._dataset(losses, accuracy, families)
        fold = Fold.of_all(len(dataset.models))
        dataset, _ = without_weak_tasks(dataset, [fold], asked_for=True)
        if same_losses(dataset, fold):
            raise NotEnoughDataError("all training models have the same losses; there is nothing to learn from")
        if np.nanmax(accuracy) <= self.chance:
            raise InvalidArrayError(f"y: no accuracy is above chance ({self.chance:g}); is chance correct?")
        (task_fit,) = fit_method(self.method, dataset, [fold])[0]
        if task_fit.law.failure:
            raise NotEnoughDataError(f"no law can be fitted: {task_fit.law.failure}")
        if why := equal_inputs(task_fit, same_losses=False):
            raise NotEnoughDataError(why)
        return task_fit, dataset

    def predict(self, X: npt.ArrayLike) -> Floats:
        """Forecast the accuracy, from 0 to 1, of models whose losses are the rows of X (as in `fit`)."""
        return self._predict(X).accuracy

    def predict_interval(self, X: npt.ArrayLike) -> tuple[Floats, Floats]:
        """Low and high end of the prediction interval of each model, from 0 to 1 (see `level`)."""
        predicted = self._predict(X)
        if not np.isfinite(predicted.low).all():
            raise TooFewModelsError("no interval: too few models could be left out to measure errors of forecasts")
        return predicted.low, predicted.high

    def score(self, X: npt.ArrayLike, y: npt.ArrayLike) -> float:
        """Share of the variance of y that the forecasts explain (R²); 1 is perfect, and it may be negative."""
        forecast, accuracy = self.predict(X), _check_accuracy(y)
        if len(accuracy) != len(forecast):
            raise InvalidArrayError(f"y: {len(accuracy)} accuracies for {len(forecast)} models; needed is one for each")
        forecast, accuracy = (values[np.isfinite(accuracy)] for values in (forecast, accuracy))
        if not len(accuracy) or np.ptp(accuracy) == 0:
            raise InvalidArrayError("y: R² needs at least two different accuracies")
        return 1 - float(np.sum((accuracy - forecast) ** 2) / np.sum((accuracy - accuracy.mean()) ** 2))

    def _check_settings(self) -> None:
        check_methods([self.method])
        usable = [m.name for m in METHODS.values() if not (m.needs_features or m.needs_metadata)]
        if self.method not in usable:
            raise InvalidArrayError(
                f"method {self.method!r} reads more than losses; make a study, or take {', '.join(usable[:3])}, …"
            )
        if not 0 <= self.chance < 1:
            raise InvalidArrayError(f"chance {self.chance!r}: needed is a share from 0 to below 1")
        check_level(self.level)
        check_device(self.device)

    def _dataset(self, losses: Floats, accuracy: Floats, families: list[str]) -> Dataset:
        """The arrays as a study from a table has them: each column is one text of one token."""
        texts = NamedTexts.of(Text(f"column {i}", SOURCE, "", unit="") for i in range(losses.shape[1]))
        known = np.flatnonzero(np.isfinite(accuracy))
        if not np.isfinite(losses[known]).any(axis=1).all():
            empty = int(known[np.argmin(np.isfinite(losses[known]).any(axis=1))])
            raise InvalidArrayError(f"X: row {empty} has no loss at all")
        losses, accuracy, families = losses[known], accuracy[known], [families[i] for i in known]
        names = [f"{ROW}{i}" for i in known]
        counts = np.ones(losses.shape[1], np.int64)
        rows = [TokenLosses(name, counts, texts.starts, row) for name, row in zip(names, losses, strict=True)]
        infos = [ModelInfo(name, family) for name, family in zip(names, families, strict=True)]
        scores = [Score(name, TASK, float(value)) for name, value in zip(names, accuracy, strict=True)]
        dataset = assemble(texts, rows, infos, scores=scores, tasks=[Task(TASK, self.chance, (SOURCE,))])
        return replace(dataset, device=self.device)

    def _predict(self, X: npt.ArrayLike) -> Predictions:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError.like_sklearn()
        losses = _check_losses(self._in_order(X))
        if losses.shape[1] != self.n_features_in_:
            raise InvalidArrayError(
                f"X has {losses.shape[1]} features, but Forecaster is expecting {self.n_features_in_} features as input"
            )
        lacking = np.isnan(losses) & self.columns_
        if lacking.any() and self.task_fit_.reads_losses:
            row, column = np.argwhere(lacking)[0]
            raise InvalidArrayError(
                f"X: NaN in row {row}, column {column}, which the fit reads; fit on columns that this model has, too"
            )
        unknown = ModelMetadata.of([ModelInfo(f"{ROW}{i}") for i in range(len(losses))], [])
        nats = np.where(self.columns_, losses, 0).astype(np.float32)
        return predict(self.task_fit_, nats, unknown, level=self.level)

    def _in_order(self, X: Any) -> Any:
        """The columns of a DataFrame in the order of `fit`, by their names; other input unchanged."""
        names, fitted = _column_names(X), getattr(self, "feature_names_in_", None)
        if names is None or fitted is None or list(names) == list(fitted):
            return X
        for what, those, others in (("no column", fitted, names), ("unknown column", names, fitted)):
            if wrong := [name for name in those if name not in set(others)]:
                raise InvalidArrayError(f"X: {what} {few([repr(name) for name in wrong])}; fit was given {few(fitted)}")
        if len(names) != len(fitted):
            raise InvalidArrayError("X: a column occurs twice")
        return X[list(fitted)]


def _row(name: str) -> int:
    """The row of X of a model named by `Forecaster`."""
    return int(name.removeprefix(ROW))


def _check_losses(X: npt.ArrayLike) -> Floats:
    """Losses as a float array of models × columns, none infinite or negative; NaN where missing."""
    if hasattr(X, "toarray"):
        raise InvalidArrayError("X: sparse input is not supported; pass X.toarray()")
    try:
        given = np.asarray(X)
        if np.iscomplexobj(given):
            raise InvalidArrayError("X: Complex data not supported; losses are real numbers")
        losses = np.array(given, np.float64, order="C")  # the same layout, hence the same rounding, for a DataFrame
    except InvalidArrayError:
        raise
    except (TypeError, ValueError) as error:
        raise NotNumbersError(f"X: not an array of numbers ({error})") from error
    if losses.ndim != 2:
        raise InvalidArrayError(
            f"X: expected a 2D array, models × columns of losses; found {losses.ndim} dimensions. Reshape your data: "
            "X.reshape(1, -1) if it is one model"
        )
    if not losses.size:
        what = "sample" if not len(losses) else "feature"
        raise InvalidArrayError(f"X: no losses: 0 {what}(s) (shape={losses.shape}) while a minimum of 1 is required.")
    if np.isinf(losses).any():
        row, column = np.argwhere(np.isinf(losses))[0]
        raise InvalidArrayError(f"X: infinity in row {row}, column {column}; a missing loss is NaN")
    if (losses < 0).any():
        raise InvalidArrayError("X: Negative values in data; losses are not negative, so do not centre the columns")
    return losses


def _check_accuracy(y: npt.ArrayLike) -> Floats:
    if y is None:
        raise InvalidArrayError("a Forecaster requires y to be passed, but the target y is None")
    try:
        accuracy = np.asarray(y, np.float64)
    except (TypeError, ValueError) as error:
        raise NotNumbersError(f"y: not an array of numbers ({error}). Unknown label type: object") from error
    if accuracy.ndim == 2 and accuracy.shape[1] == 1:
        accuracy = accuracy[:, 0]
    if accuracy.ndim != 1:
        raise InvalidArrayError(f"y: expected a 1D array of accuracies; found {accuracy.ndim} dimensions")
    if np.isinf(accuracy).any():
        row = int(np.argmax(np.isinf(accuracy)))
        raise InvalidArrayError(f"y: infinity in row {row}; a missing accuracy is NaN")
    if np.isnan(accuracy).all():
        raise InvalidArrayError("y: all accuracies are missing")
    if (accuracy < 0).any() or (accuracy > 1).any():
        raise InvalidArrayError("y: accuracies must lie from 0 to 1; divide percentages by 100")
    return accuracy


def _check_families(families: npt.ArrayLike | None, count: int) -> list[str]:
    if families is None:
        return [""] * count
    given = np.asarray(families, object).ravel()
    names = ["" if _absent(name) else str(name) for name in given]
    if len(names) != count:
        raise InvalidArrayError(f"families: {len(names)} names for {count} models; needed is one for each")
    return names


def _absent(name: Any) -> bool:
    """Whether a name is None, NaN or another of pandas's missing values, which are not equal to themselves."""
    equal = name == name
    return name is None or not (isinstance(equal, bool | np.bool_) and equal)  # pandas.NA gives NA


def _column_names(X: Any) -> npt.NDArray[Any] | None:
    """Names of a DataFrame's columns, where all are strings."""
    names = getattr(X, "columns", None)
    return np.asarray(names, object) if names is not None and all(isinstance(n, str) for n in names) else None
