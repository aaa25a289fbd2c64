"""Splits into training, validation and test models, and cross-validation folds of the training models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import numpy.typing as npt

from benchcast.choices import SPLITS, Split, check_choice
from benchcast.dataset import Fold
from benchcast.errors import NotEnoughDataError
from benchcast.metadata import family_names
from benchcast.records import Bools, Floats, ModelInfo
from benchcast.splits import RULES, split_by_size

FEWEST_MODELS = 4  # training models with losses and a score that a fit needs
MOST_INNER_FOLDS = 10
WHY_FAMILY = f"no split column; a split by size needs a family of three sizes and {FEWEST_MODELS} training models"
LEFT_OUT = "training families left out in turn"


def family_balanced(families: npt.NDArray[np.str_]) -> Floats:
    """Weights of models that sum to 1, with the same total for every family."""
    _, family, counts = np.unique(families, return_inverse=True, return_counts=True)
    return 1.0 / (counts[family] * len(counts))


def make_folds(
    models: Sequence[ModelInfo], split: str | None, *, groups: npt.NDArray[np.str_] | None = None
) -> tuple[Split, list[Fold]]:
    """Assign models to training, validation and test sets for an evaluation.

    Parameters
    ----------
    models : rows of models.csv
    split : one of `SPLITS`. None uses the split column of models.csv; if it is empty, `default_split`
        chooses. (`training_fold` also uses the column for None; if it is empty, a fit holds out no models.)
    groups : group of related families that each model belongs to (`Dataset.groups`); None: its family

    Returns
    -------
    The name of the split, and its folds: one per group for "family", else one.
    """
    check_choice("split", split or SPLITS[0], SPLITS)
    name = cast(Split, split) if split else default_split(models)
    assign = RULES[name].assign
    if assign is None:
        return name, _leave_one_family_out(family_names(models) if groups is None else groups)
    role = assign(models)
    return name, [Fold(role == "train", role == "validation", role == "test")]


def default_split(models: Sequence[ModelInfo]) -> Split:
    """Choose a split: "column" if models.csv has one; "size" if some family has three sizes and enough models train.

    Enough are `FEWEST_MODELS`. Else "family" is chosen, except with a single family: no other could be held out.
    """
    if any(m.split for m in models):
        return "column"
    role = split_by_size(models)
    by_size = (role == "test").any() and (role == "train").sum() >= FEWEST_MODELS
    return "size" if by_size or len(np.unique(family_names(models))) < 2 else "family"


def training_fold(models: Sequence[ModelInfo], split: str | None) -> tuple[str, Fold]:
    """The name of the split and the models that a stored fit is trained on: all but its test models.

    With `split` "family", or None and no split column, all models are training models.
    """
    everything = np.ones(len(models), bool)
    none = ~everything
    if split is not None:
        check_choice("split", split, SPLITS)
    if not any(m.split for m in models) if split is None else RULES[split].assign is None:
        return "everything", Fold(everything, none, none)
    name, folds = make_folds(models, split)
    return name, folds[0]


def _leave_one_family_out(families: npt.NDArray[np.str_]) -> list[Fold]:
    names = np.unique(families)
    if len(names) < 2:
        raise NotEnoughDataError(f"split 'family' needs at least 2 families, found {len(names)}: {', '.join(names)}")
    none = np.zeros(len(families), bool)
    return [Fold(families != name, none, families == name) for name in names]


def inner_folds(families: npt.NDArray[np.str_], seen: Bools) -> list[Bools]:
    """Cross-validation folds of the seen models, with whole families in one fold.

    Families are assigned to at most ten folds, largest family first, each to the smallest fold. With a single
    family, models are assigned instead.

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
    sets: list[list[str]] = [[] for _ in range(min(len(names), MOST_INNER_FOLDS))]
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
