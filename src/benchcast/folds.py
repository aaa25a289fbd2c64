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

MOST_INNER_FOLDS = 10
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
    split : "column", "size" or "family". None uses the split column of models.csv; if it is empty, `default_split`
        chooses. (`training_fold` also uses the column for None; if it is empty, a fit holds out no models.)
    groups : group of related families that each model belongs to (`Dataset.groups`); None: its family

    Returns
    -------
    The name of the split, and its folds: one per group for "family", else one.
    """
    check_choice("split", split or SPLITS[0], SPLITS)
    name = cast(Split, split) if split else default_split(models)
    if name == "family":
        return name, _leave_one_family_out(family_names(models) if groups is None else groups)
    role = np.array([m.split for m in models]) if name == "column" else split_by_size(models)
    if name == "column" and not any(role):
        raise NotEnoughDataError("split 'column': no model has a split in models.csv; fill it or take --split size")
    return name, [Fold(role == "train", role == "validation", role == "test")]


def default_split(models: Sequence[ModelInfo]) -> Split:
    """Choose a split: "column" if models.csv has one, "size" if some family has three sizes, else "family".

    With a single family "size" is chosen, since no other family can be held out.
    """
    if any(m.split for m in models):
        return "column"
    by_size = (split_by_size(models) == "test").any() or len(np.unique(family_names(models))) < 2
    return "size" if by_size else "family"


def training_fold(models: Sequence[ModelInfo], split: str | None) -> tuple[str, Fold]:
    """The name of the split and the models that a stored fit is trained on: all but its test models.

    With `split` "family", or None and no split column, all models are training models.
    """
    everything = np.ones(len(models), bool)
    none = ~everything
    if split is not None:
        check_choice("split", split, SPLITS)
    if split == "family" or (split is None and not any(m.split for m in models)):
        return "everything", Fold(everything, none, none)
    name, folds = make_folds(models, split)
    return name, folds[0]


def _leave_one_family_out(families: npt.NDArray[np.str_]) -> list[Fold]:
    names = np.unique(families)
    if len(names) < 2:
        raise NotEnoughDataError(f"split 'family' needs at least 2 families, found {len(names)}: {', '.join(names)}")
    none = np.zeros(len(families), bool)
    return [Fold(families != name, none, families == name) for name in names]


def split_by_size(models: Sequence[ModelInfo]) -> npt.NDArray[np.str_]:
    """The role of each model: per family, "test" for the largest size, "validation" for the second largest.

    All others are "train", as are families with fewer than three sizes. Checkpoints of one size share a role.
    """
    families = family_names(models)
    params = np.array([m.params for m in models], np.float64)
    role = np.full(len(models), "train", dtype="<U10")
    for family in np.unique(families):
        sizes = np.unique(params[(families == family) & np.isfinite(params)])
        if len(sizes) >= 3:
            role[(families == family) & (params == sizes[-1])] = "test"
            role[(families == family) & (params == sizes[-2])] = "validation"
    return role


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
