"""All forecasting methods by name: ours, the paper's, those of other papers, and baselines."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchcast.choices import DEFAULT_METHOD, MethodName, check_choice
from benchcast.dataset import Dataset, Fold
from benchcast.devices import check_device
from benchcast.errors import InputError
from benchcast.methods import baselines, paper, ridge, salience, stack
from benchcast.methods.averaging import Pool, build_pools
from benchcast.methods.correlations import perplexity_correlations
from benchcast.methods.logistic import logistic4
from benchcast.methods.observational import observational
from benchcast.methods.paper import DescentSettings
from benchcast.methods.pls import pls
from benchcast.methods.profiling import with_profiles
from benchcast.methods.proxies import rbridge
from benchcast.methods.twostep import two_step
from benchcast.task_fit import Method, TaskFit

METHODS: dict[str, Method] = {
    "stack": stack.stack,
    "salience": salience.salience,
    "paper": paper.paper,
    "ridge": ridge.ridge,
    "pls": pls,
    "perplexity-correlations": perplexity_correlations,
    "logistic-4": logistic4,
    "two-step": two_step,
    "observational": observational,
    "rbridge": rbridge,
    "label-token": baselines.label_token,
    "source-token": baselines.source_token,
    "all-token": baselines.all_token,
    "compute": baselines.compute,
    "constant": baselines.constant,
}
SETTINGS: dict[str, type[DescentSettings]] = {"paper": DescentSettings}  # of the methods that have any
# Methods that average the same candidates: together they are fitted in hardly more time than one of them.
ONE_POOL: dict[str, Callable[[Pool], TaskFit]] = {"stack": stack.fit_pool, "salience": salience.fit_pool}
NEED_FEATURES = ("paper", "ridge")
TOGETHER = ("paper", "ridge")  # all folds share their passes over the features
BASELINES = ("label-token", "source-token", "all-token", "compute", "constant")
ABOUT = {  # what each method does, in one line
    "stack": "non-negative and signed weights, averaged by their errors on left-out families and stronger models",
    "salience": "learned token weights, never negative; several forms averaged by their error on left-out families",
    "paper": "Algorithm 2 of Ge et al. 2025: token weights from a scorer's hidden states, by gradient descent",
    "ridge": "signed token weights from a scorer's hidden states, in closed form",
    "pls": "partial least squares from the loss of each text",
    "perplexity-correlations": "each text weighted by how its loss orders the models (Thrush et al. 2024)",
    "logistic-4": "mean loss of all tokens, the task's texts or their answers; sigmoid with free floor and ceiling",
    "two-step": "parameters and training tokens → loss on the answers → accuracy (Bhagia et al. 2024)",
    "observational": "scores on the other benchmarks (Ruan et al. 2024); reads no losses",
    "rbridge": "loss on the answers, each token weighted by a strong model's probability (Koh et al. 2025)",
    "label-token": "mean loss on the answers of the task's own texts",
    "source-token": "mean loss on the task's own texts",
    "all-token": "mean loss on all texts",
    "compute": "training FLOPs; reads no losses",
    "constant": "the mean score of the training models",
}


def check_methods(names: Iterable[str], settings: DescentSettings | None = None) -> None:
    """Raise InputError for unknown methods, and for settings that none of the methods has."""
    methods = list(names)
    for name in methods:
        check_choice("method", name, METHODS)
    if settings is not None and not any(isinstance(settings, SETTINGS.get(name, ())) for name in methods):
        raise InputError(
            f"settings of type {type(settings).__name__} are for method {', '.join(SETTINGS)}, not for "
            f"{', '.join(methods)}"
        )


@dataclass(frozen=True, slots=True)
class MethodSpec:
    """A method with its settings and the device on which it is computed; InputError if one is unknown."""

    name: MethodName = DEFAULT_METHOD
    settings: DescentSettings | None = None  # of the method "paper"
    device: str = ""  # a torch device such as "cuda"; empty: numpy

    def __post_init__(self) -> None:
        check_methods([self.name], self.settings)
        check_device(self.device)

    def fit(self, dataset: Dataset, folds: Sequence[Fold]) -> list[list[TaskFit]]:
        """Fits by fold and task."""
        return fit_method(self.name, replace(dataset, device=self.device), folds, self.settings)


def fit_method(
    name: str, dataset: Dataset, folds: Sequence[Fold], settings: DescentSettings | None = None
) -> list[list[TaskFit]]:
    """Fits of a method by fold and task; a method without settings ignores them."""
    check_choice("method", name, METHODS)
    fits = paper.paper(dataset, folds, settings=settings) if name == "paper" else METHODS[name](dataset, folds)
    return with_profiles(dataset, folds, fits)


def grouped(names: Sequence[str]) -> list[tuple[str, ...]]:
    """The methods in groups for `fit_group`: those that average the same candidates, and every other one alone."""
    pooled = tuple(name for name in names if name in ONE_POOL)
    return [*filter(None, [pooled]), *((name,) for name in names if name not in ONE_POOL)]


def fit_group(
    names: tuple[str, ...], dataset: Dataset, folds: Sequence[Fold], settings: DescentSettings | None = None
) -> dict[str, list[list[TaskFit]]]:
    """Fits of each method of one group, by fold and task; a method without settings ignores them."""
    if len(names) == 1:
        return {names[0]: fit_method(names[0], dataset, folds, settings)}
    rows = [
        [{name: ONE_POOL[name](pool) for name in names} for pool in row]
        for row in build_pools(dataset, folds, of_stack=True)
    ]
    by_method = {name: [[fits[name] for fits in row] for row in rows] for name in names}
    return {name: with_profiles(dataset, folds, fits) for name, fits in by_method.items()}


def stored_settings(fit: TaskFit) -> DescentSettings | None:
    """The settings of a fit; None if its method has none."""
    if fit.method not in SETTINGS:
        return None
    if fit.notes.get("joint"):
        raise InputError(
            f"{fit.task.name}: the stored fit has the setting joint=True (one head for all tasks), which is gone; "
            "fit the task again without it"
        )
    known: dict[str, Any] = {k: v for k, v in fit.notes.items() if k in DescentSettings.__dataclass_fields__}
    return DescentSettings(**known | {"rates": tuple(known.get("rates", DescentSettings().rates))})
