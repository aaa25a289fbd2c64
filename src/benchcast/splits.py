"""The splits of models into training, validation and test models. A new split is added here alone.

"auto" chooses one of the others by what models.csv says (`benchcast.folds.choose_split`). Every name has the same
meaning in all functions: `compare` forecasts the test models of a split, `fit` does not use them.

The module imports nothing heavy: the command line lists the names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from benchcast.records import ModelInfo

    Roles = npt.NDArray[np.str_]  # "train", "validation", "test" or empty, for each model

Split = Literal["auto", "column", "size", "family"]
SPLITS: tuple[Split, ...] = get_args(Split)


@dataclass(frozen=True, slots=True)
class SplitRule:
    """How a split assigns models."""

    about: str  # for the report
    assign: Callable[[Sequence[ModelInfo]], Roles] | None  # None: each family in turn is the test set
    columns: tuple[str, ...] = ()  # of models.csv, which it reads
    without_tests: str = ""  # what to do if it assigns no test models


def split_by_column(models: Sequence[ModelInfo]) -> Roles:
    """The role of each model as models.csv says; with an empty column every model is "train"."""
    import numpy as np

    roles = np.array([m.split for m in models], np.str_)
    return roles if roles.any() else np.full(len(models), "train")


def split_by_size(models: Sequence[ModelInfo]) -> Roles:
    """The role of each model: per family, "test" for the largest size, "validation" for the second largest.

    All others are "train", as are families with fewer than three sizes. Checkpoints of one size share a role.
    """
    import numpy as np

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
    "column": SplitRule("by the column `split` of models.csv", split_by_column, ("split",), "mark some in models.csv"),
    "size": SplitRule(
        "per family by parameters: the largest size tests, the second largest validates, the rest train",
        split_by_size,
        ("params",),
        "a family needs three sizes (params in models.csv)",
    ),
    "family": SplitRule("each family in turn is held out; nothing of it is seen before", None),
}
