"""What matters and what does not: the head and its activation, the unit of spreading, the scorer.

Each variant is measured by the geometric mean over tasks of its test error, as a gain over all-token.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchcast.errors import NotEnoughDataError
from benchcast.losses.dataset import Dataset
from benchcast.methods import METHODS
from benchcast.methods.paper import DescentSettings, paper
from benchcast.records import Floats
from benchcast.reports.charts import held_out_errors
from benchcast.splits import Fold
from lab.reproduce.context import StudyContext
from lab.reproduce.figures import variants_figure
from lab.reproduce.outcome import Outcome, Table, cell, geometric_mean

HEADS = {
    "linear, sigmoid (default)": DescentSettings(),
    "linear, softplus": DescentSettings(activation="softplus"),
    "linear, relu": DescentSettings(activation="relu"),
    "linear, identity": DescentSettings(activation="identity"),
    "hidden layer of 8, sigmoid": DescentSettings(hidden=8),
    "linear, SGD at 1e-3 as printed": DescentSettings(optimizer="sgd", rates=(1e-3,)),
}


@dataclass(frozen=True, slots=True)
class Variant:
    """Test error of one way to fit."""

    group: str
    name: str
    mse: dict[str, float]  # by task
    gain: float  # over all-token, geometric mean over tasks


def ablation(context: StudyContext) -> Outcome:
    """All variants."""
    if not context.fold.test.any():
        raise NotEnoughDataError("ablation needs test models; mark some in models.csv, or give families three sizes")
    units = unit_variants(context)
    variants = [_salience(context), *head_variants(context), *units, *scorer_variants(context)]
    shown = [{"group": v.group, "variant": v.name, "gain": v.gain} for v in variants if math.isfinite(v.gain)]
    numbers = {
        **context.about(),
        "variants": [
            {"group": v.group, "variant": v.name, "gain_over_all_token": v.gain, "mse": v.mse} for v in variants
        ],
    }
    same = () if units else ("spreading a token's loss over characters instead of bytes changes no loss of this study",)
    return Outcome("ablation", numbers, _tables(context, variants), {"": variants_figure(shown)}, same)


def _salience(context: StudyContext) -> Variant:
    """What the variants are to be held against."""
    context.on_step("salience")
    base = _errors(context.dataset, context.fold, "all-token")
    return _variant("salience", "salience", context, _errors(context.dataset, context.fold, "salience"), base)


def _variant(group: str, name: str, context: StudyContext, errors: Floats, base: Floats) -> Variant:
    names = [t.name for t in context.dataset.tasks]
    gain = geometric_mean((base / np.where(errors > 0, errors, np.nan)).tolist())
    return Variant(group, name, dict(zip(names, errors.tolist(), strict=True)), gain)


def _errors(dataset: Dataset, fold: Fold, method: str) -> Floats:
    return held_out_errors(dataset, fold, METHODS[method].learn(dataset, [fold])[0])


def head_variants(context: StudyContext) -> list[Variant]:
    """Heads, activations and optimisers of Algorithm 2."""
    if context.dataset.features is None:
        return []
    base = _errors(context.dataset, context.fold, "all-token")
    out = []
    for name, settings in HEADS.items():
        context.on_step(f"paper: {name}")
        fits = paper(context.dataset, [context.fold], settings=settings)[0]
        out.append(_variant("head of paper", name, context, held_out_errors(context.dataset, context.fold, fits), base))
    return out


def unit_variants(context: StudyContext) -> list[Variant]:
    """A token's loss spread over bytes, or over characters as in Algorithm 1."""
    by_byte, by_char = context.dataset, context.study.dataset(unit="char")
    if np.array_equal(by_byte.nats, by_char.nats):
        return []  # no token that is cut mixes characters of different length
    named = {"spread over bytes (default)": by_byte, "spread over characters": by_char}
    return _variants_on(context, "unit of spreading", named, ("salience", "label-token"))


def _variants_on(context: StudyContext, kind: str, named: dict[str, Dataset], methods: Sequence[str]) -> list[Variant]:
    """Some methods on several forms of the same dataset."""
    out = []
    for name, dataset in named.items():
        base = _errors(dataset, context.fold, "all-token")
        for method in methods:
            context.on_step(f"{method}, {name}")
            errors = _errors(dataset, context.fold, method)
            out.append(_variant(kind, f"{method}, {name}", context, errors, base))
    return out


def scorer_variants(context: StudyContext) -> list[Variant]:
    """Other scorers whose features the study has."""
    names = context.study.scorers()
    if len(names) < 2:
        return []
    named = {scorer: replace(context.study, scorer=scorer).dataset() for scorer in names}
    return _variants_on(context, "scorer", named, ("salience", "paper"))


def _tables(context: StudyContext, variants: Sequence[Variant]) -> tuple[Table, ...]:
    names = [t.name for t in context.dataset.tasks]
    first = Table(
        ("test MSE", *names, "gain over all-token"),
        tuple((v.name, *(cell(v.mse[n]) for n in names), cell(v.gain, ".2f")) for v in variants),
        "variants",
    )
    return (first,)
