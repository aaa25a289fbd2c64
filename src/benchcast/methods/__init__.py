"""All forecasting methods, one row each: ours, the paper's, those of other papers, and baselines.

A method is a function `(dataset, folds) → fits[fold][task]`. It receives all folds at once, so that they can share
passes over losses and features. This file loads no method and no numpy, so that `--help` is quick.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, cast

if TYPE_CHECKING:
    from benchcast.losses.dataset import Dataset
    from benchcast.methods.task_fit import TaskFit
    from benchcast.splits import Fold

MethodName = Literal[
    "stack",
    "salience",
    "paper",
    "ridge",
    "pls",
    "perplexity-correlations",
    "logistic-4",
    "two-step",
    "observational",
    "rbridge",
    "label-token",
    "source-token",
    "all-token",
    "compute",
    "constant",
]
DEFAULT_METHOD: MethodName = "stack"
CAPABILITY_METHOD: MethodName = "salience"  # of runs and models to come: a lower loss never lowers its forecast


def load(target: str) -> Any:
    """What "module:name" of this package names."""
    module, _, name = target.partition(":")
    return getattr(import_module(f"{__name__}.{module}"), name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One method: what it is called, where it is, and what other code must know of it."""

    name: MethodName
    about: str  # what it does, in one line
    fit: str  # "module:function"
    settings: str = ""  # "module:Class" of the settings that a user may give; empty: none
    pool_fit: str = ""  # "module:function" from a pool of candidates, which such methods share, to the fit of a task
    learns_weights: bool = False  # of texts, tokens or scores, so that further families make its errors smaller
    needs_features: bool = False  # of a scorer
    needs_metadata: bool = False  # or answers: what plain arrays of losses do not hold
    reads_choices: bool = False  # choice losses, where models have them
    baseline: bool = False
    main: bool = False  # compared by default; `--all-methods` adds the others
    quick: bool = False  # enough to be fitted again on many sets of texts
    shown_by_step: bool = False  # its fits have a history, for figure 6
    one_pass: bool = False  # all folds share their passes over the features
    cost: int = 1  # of a fold, relative to other methods

    def learn(self, dataset: Dataset, folds: Sequence[Fold], settings: Any = None) -> list[list[TaskFit]]:
        """Fits by fold and task; a method without settings ignores them."""
        fit = load(self.fit)
        fits = fit(dataset, folds, settings=settings) if self.settings else fit(dataset, folds)
        return cast("list[list[TaskFit]]", fits)


_ROWS = (
    Method(
        name="stack",
        about="non-negative and signed weights, averaged by their errors on left-out families and stronger models",
        fit="stack:stack",
        learns_weights=True,
        pool_fit="stack:fit_stack",
        reads_choices=True,
        cost=10,
        main=True,
    ),
    Method(
        name="salience",
        about="learned token weights, never negative; several forms averaged by their error on left-out families",
        fit="stack:salience",
        learns_weights=True,
        pool_fit="stack:fit_salience",
        reads_choices=True,
        cost=8,
        main=True,
    ),
    Method(
        name="paper",
        about="Algorithm 2 of Ge et al. 2025: token weights from a scorer's hidden states, by gradient descent",
        fit="paper:paper",
        learns_weights=True,
        settings="paper:DescentSettings",
        needs_features=True,
        shown_by_step=True,
        one_pass=True,
        cost=20,
    ),
    Method(
        name="ridge",
        about="signed token weights from a scorer's hidden states, in closed form",
        fit="ridge:ridge",
        learns_weights=True,
        needs_features=True,
        quick=True,
        one_pass=True,
    ),
    Method(
        name="pls",
        about="partial least squares from the loss of each text",
        fit="pls:pls",
        main=True,
        learns_weights=True,
    ),
    Method(
        name="perplexity-correlations",
        about="each text weighted by how its loss orders the models (Thrush et al. 2024)",
        fit="perplexity_correlations:perplexity_correlations",
        learns_weights=True,
    ),
    Method(
        name="logistic-4",
        about="mean loss of all tokens, the task's texts or their answers; sigmoid with free floor and ceiling",
        fit="logistic4:logistic4",
        main=True,
    ),
    Method(
        name="two-step",
        about="parameters and training tokens → loss on the answers → accuracy (Bhagia et al. 2024)",
        fit="two_step:two_step",
        needs_metadata=True,
        cost=3,
    ),
    Method(
        name="observational",
        about="scores on the other benchmarks (Ruan et al. 2024); reads no losses",
        fit="observational:observational",
        learns_weights=True,
        needs_metadata=True,
    ),
    Method(
        name="rbridge",
        about="loss on the answers, each token weighted by a strong model's probability (Koh et al. 2025)",
        fit="rbridge:rbridge",
        needs_metadata=True,
    ),
    Method(
        name="label-token",
        about="mean loss on the answers of the task's own texts",
        fit="baselines:label_token",
        needs_metadata=True,
        baseline=True,
        main=True,
    ),
    Method(name="source-token", about="mean loss on the task's own texts", fit="baselines:source_token", baseline=True),
    Method(
        name="all-token",
        about="mean loss on all texts",
        fit="baselines:all_token",
        baseline=True,
        main=True,
        quick=True,
    ),
    Method(
        name="compute",
        about="training FLOPs; reads no losses",
        fit="baselines:compute",
        needs_metadata=True,
        baseline=True,
    ),
    Method(
        name="constant",
        about="the mean score of the training models",
        fit="baselines:constant",
        baseline=True,
        main=True,
    ),
)
METHODS: dict[str, Method] = {method.name: method for method in _ROWS}
MAIN_METHODS: tuple[MethodName, ...] = tuple(method.name for method in _ROWS if method.main)
