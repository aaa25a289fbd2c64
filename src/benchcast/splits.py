"""Split models into training, validation and test models, and training models into folds of cross-validation.

A new split is a name in `choices` and a row of `RULES`. "auto" chooses one of the others by what models.csv says
(`choose_split`). A name has the same meaning in all functions: `compare` forecasts the test models of a split, `fit`
does not use them. Axis: M models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchcast.choices import SPLITS, Split, check_choice
from benchcast.errors import NotEnoughDataError
from benchcast.records import Bools, Floats, ModelInfo, family_names

FEWEST_MODELS = 4  # training models with losses and a score that a fit needs
MOST_INNER_FOLDS = 10
MANY_MODELS = 1000  # with more, five folds leave enough of them to learn from, and take half the time
WHY_FAMILY = f"no split column; a split by size needs a family of three sizes and {FEWEST_MODELS} training models"
LEFT_OUT = "training families left out in turn"
Roles = npt.NDArray[np.str_]  # "train", "validation", "test" or empty, for each model


@dataclass(frozen=True, slots=True)
class Fold:
    """Training, validation and test models of a fit, each a mask of models (M)."""

    train: Bools
    validation: Bools
    test: Bools

    def __repr__(self) -> str:
        counts = (f"{int(getattr(self, role).sum())} {role}" for role in ("train", "validation", "test"))
        return f"<Fold of {', '.join(counts)} models>"

    @classmethod
    def of_all(cls, count: int) -> Fold:
        """The fold in which all models are training models."""
        everyone = np.ones(count, bool)
        return cls(everyone, ~everyone, ~everyone)

    @property
    def seen(self) -> Bools:
        """Training and validation models."""
        return self.train | self.validation


@dataclass(frozen=True, slots=True)
class SplitRule:
    """How a split assigns models."""

    about: str  # for the report
    assign: Callable[[Sequence[ModelInfo]], Roles] | None  # None: each family in turn is the test set
    columns: tuple[str, ...] = ()  # of models.csv, which it reads
    without_tests: str = ""  # what to do if it assigns no test models


def split_by_column(models: Sequence[ModelInfo]) -> Roles:
    """The role of each model as models.csv says; with an empty column every model is "train"."""
    roles = np.array([m.split for m in models], np.str_)
    return roles if roles.any() else np.full(len(models), "train")


def split_by_size(models: Sequence[ModelInfo]) -> Roles:
    """The role of each model: per family, "test" for the largest size, "validation" for the second largest.

    All others are "train", as are families with fewer than three sizes. Checkpoints of one size share a role.
    """
    families = np.array([m.family_name for m in models])
    params = np.array([m.params for m in models], np.float64)
    roles = np.full(len(models), "train", dtype="<U10")
    for family in np.unique(families):
        sizes = np.unique(params[(families == family) & np.isfinite(params)])
        if len(sizes) >= 3:
            roles[(families == family) & (params == sizes[-1])] = "test"
            roles[(families == family) & (params == sizes[-2])] = "validation"
    return roles


RULES: dict[Split, SplitRule] = {
    "column": SplitRule(
        about="by the column `split` of models.csv",
        assign=split_by_column,
        columns=("split",),
        without_tests="mark some in models.csv",
    ),
    "size": SplitRule(
        about="per family by parameters: the largest size tests, the second largest validates, the rest train",
        assign=split_by_size,
        columns=("params",),
        without_tests="a family needs three sizes (params in models.csv)",
    ),
    "family": SplitRule(about="each family in turn is held out; nothing of it is seen before", assign=None),
}


def family_balanced(families: npt.NDArray[np.str_]) -> Floats:
    """Weights of models that sum to 1, with the same total for every family."""
    _, family, counts = np.unique(families, return_inverse=True, return_counts=True)
    return 1.0 / (counts[family] * len(counts))


def make_folds(
    models: Sequence[ModelInfo], split: Split, *, groups: npt.NDArray[np.str_] | None = None
) -> tuple[Split, list[Fold]]:
    """Assign models to training, validation and test sets for an evaluation.

    Parameters
    ----------
    models : rows of models.csv
    split : one of `SPLITS`
    groups : group of related families that each model belongs to (`Dataset.groups`); None: its family

    Returns
    -------
    The name of the split, never "auto", and its folds: one per group for "family", else one.
    """
    check_choice("split", split, SPLITS)
    name = choose_split(models) if split == "auto" else split
    assign = RULES[name].assign
    if assign is None:
        return name, _leave_one_family_out(family_names(models) if groups is None else groups)
    role = assign(models)
    return name, [Fold(role == "train", role == "validation", role == "test")]


def need_test_models(split: Split, folds: Sequence[Fold]) -> None:
    """Raise an error that says what to do if a fold has no test models."""
    if not all(fold.test.any() for fold in folds):
        hint = RULES[split].without_tests
        raise NotEnoughDataError(f"split {split!r}: no test models; {hint}, or take --split family")


def choose_split(models: Sequence[ModelInfo]) -> Split:
    """What "auto" stands for: "column" if models.csv has one; "size" if some family has three sizes and enough train.

    Enough are `FEWEST_MODELS`. Else "family" is chosen, except with a single family: no other could be held out.
    """
    if any(m.split for m in models):
        return "column"
    role = split_by_size(models)
    by_size = (role == "test").any() and (role == "train").sum() >= FEWEST_MODELS
    return "size" if by_size or len(np.unique(family_names(models))) < 2 else "family"


def training_fold(models: Sequence[ModelInfo], split: Split) -> tuple[str, Fold]:
    """The name of the split and the models that a stored fit is trained on: all but its test models.

    With `split` "family", or "column" if no model has one, all models train; the name is then "everything".
    """
    check_choice("split", split, SPLITS)
    name = choose_split(models) if split == "auto" else split
    if RULES[name].assign is None or (name == "column" and not any(m.split for m in models)):
        everyone = np.ones(len(models), bool)
        return "everything", Fold(everyone, ~everyone, ~everyone)
    return name, make_folds(models, name)[1][0]


def _leave_one_family_out(families: npt.NDArray[np.str_]) -> list[Fold]:
    names = np.unique(families)
    if len(names) < 2:
        raise NotEnoughDataError(f"split 'family' needs at least 2 families, found {len(names)}: {', '.join(names)}")
    none = np.zeros(len(families), bool)
    return [Fold(families != name, none, families == name) for name in names]


def inner_folds(families: npt.NDArray[np.str_], seen: Bools) -> list[Bools]:
    """Cross-validation folds of the seen models, with whole families in one fold.

    Families are assigned to at most ten folds, or five if there are more than `MANY_MODELS`: largest family first, each
    to the smallest fold. With a single family, models are assigned instead.

    Parameters
    ----------
    families : family of each model (M)
    seen : models to assign (M)

    Returns
    -------
    For each fold, the models to hold out (M).
    """
    units = np.arange(len(families)).astype(str) if _single_family(families, seen) else families
    names, counts = np.unique(units[seen], return_counts=True)
    most = MOST_INNER_FOLDS if counts.sum() <= MANY_MODELS else MOST_INNER_FOLDS // 2
    sets: list[list[str]] = [[] for _ in range(min(len(names), most))]
    load = np.zeros(len(sets))
    for i in np.argsort(-counts, kind="stable"):
        lightest = int(np.argmin(load))
        sets[lightest].append(names[i])
        load[lightest] += counts[i]
    return [seen & np.isin(units, members) for members in sets if members]


def left_out(families: npt.NDArray[np.str_], seen: Bools) -> str:
    """Description of the groups that `inner_folds` holds out."""
    return "training models left out in turn, of one family" if _single_family(families, seen) else LEFT_OUT


def _single_family(families: npt.NDArray[np.str_], seen: Bools) -> bool:
    return len(np.unique(families[seen])) < 2
