"""What signals of tokens add to their losses: each alone and all together, on held-out models and for decisions.

A row reads the losses and the signals that it names. Gain is the squared error of all-token over that of the method,
geometric mean over tasks: for the largest models of each family, for families never seen, and for the early
checkpoints among these, which have seen less than half of their run's tokens. Decisions are those of
`python -m lab decisions`: whether smaller checkpoints order two mixtures as their largest models do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import numpy as np

from benchcast.choices import SIGNALS, MethodName, Split
from benchcast.comparison import HeldOutForecasts
from benchcast.errors import NotEnoughDataError
from benchcast.evaluate import compare
from benchcast.methods import NEED_SIGNALS
from benchcast.records import Bools
from benchcast.store import Study
from lab.reproduce.context import StudyContext
from lab.reproduce.decisions import decide, find_pairs
from lab.reproduce.outcome import Outcome, Table, cell, geometric_mean

LEARNED: tuple[MethodName, ...] = ("stack", "salience")
PEERS: tuple[MethodName, ...] = ("label-token", "rbridge", "proxy-metrics")
PLAIN: MethodName = "all-token"
EARLY = 0.5  # share of a run's tokens
Forecasts = dict[str, HeldOutForecasts]  # by task


@dataclass(frozen=True, slots=True)
class SignalRow:
    """One line of the table; NaN where a study cannot say."""

    read: str
    method: str
    size: float
    family: float
    early: float
    decisions: float


def signals(context: StudyContext) -> Outcome:
    """Gains and decisions with every choice of signals, against the methods of other papers."""
    study = context.study
    known = common_signals(study)
    if not known:
        raise NotEnoughDataError(
            f"{study.root}: no signal that all models have; `benchcast collect … --signals {','.join(SIGNALS)}`, or "
            "`python -m lab zoo STUDY --recipe small`"
        )
    choices = {"losses": (), **{f"losses, {name}": (name,) for name in known}, "losses, all signals": known}
    rows = [
        measure(replace(study, signals=names), method, read, context.on_step)
        for read, names in choices.items()
        for method in LEARNED
    ]
    with_signals = replace(study, signals=known)
    peers = [m for m in PEERS if set(NEED_SIGNALS.get(m, ())) <= set(known)]
    rows += [measure(with_signals, m, "signals" if m in NEED_SIGNALS else "losses", context.on_step) for m in peers]
    header = ("read", "method", "gain, size", "gain, family", "gain, early", "decisions right")
    lines = [(r.read, r.method, *(cell(x, ".2f") for x in (r.size, r.family, r.early, r.decisions))) for r in rows]
    about = context.about()
    title = f"what signals add: {about['models']} models of {about['families']} families"
    return Outcome("signals", {**about, "rows": [asdict(r) for r in rows]}, (Table(header, tuple(lines), title),))


def common_signals(study: Study) -> tuple[str, ...]:
    """The signals that the losses of all models come with."""
    known = [set(study.losses(model).signals) for model in study.models_with_losses()]
    return tuple(name for name in SIGNALS if all(name in names for names in known))


def measure(study: Study, method: MethodName, read: str, on_step: Callable[[str], None]) -> SignalRow:
    """Gains and decisions of one method on a study with its present choice of signals."""
    on_step(f"{method}, {read}")
    by_split = {split: held_out(study, split, method) for split in ("size", "family")}
    early = early_models(study)
    return SignalRow(
        read,
        method,
        gain(*by_split["size"]),
        gain(*by_split["family"]),
        gain(*by_split["family"], only=early),
        decision_accuracy(study, method),
    )


def held_out(study: Study, split: Split, method: MethodName) -> tuple[Forecasts, Forecasts]:
    """Forecasts of held-out models by a method and by all-token; empty if the split has no test models."""
    try:
        comparison = compare(study, split=split, methods=[method, PLAIN])
    except NotEnoughDataError:
        return {}, {}
    ours, plain = ({task: comparison.held_out[task, m] for task in comparison.tasks} for m in (method, PLAIN))
    return ours, plain


def gain(forecasts: Forecasts, plain: Forecasts, only: set[str] | None = None) -> float:
    """Squared error of all-token over that of the forecasts, geometric mean over tasks; of some models or all."""
    rows = {task: np.array([only is None or m in only for m in held.models]) for task, held in forecasts.items()}
    ratios = [_error(plain[task], mask) / _error(forecasts[task], mask) for task, mask in rows.items() if mask.any()]
    return geometric_mean(ratios) if ratios else math.nan


def _error(held: HeldOutForecasts, rows: Bools) -> float:
    return float(np.mean((held.forecast - held.observed)[rows] ** 2))


def early_models(study: Study) -> set[str]:
    """Checkpoints that have seen less than half of the tokens of their run."""
    runs: dict[tuple[str, float], float] = {}
    for info in study.models():
        key = (info.family, info.params)
        runs[key] = max(runs.get(key, 0.0), info.tokens)
    return {m.model for m in study.models() if m.tokens < EARLY * runs[m.family, m.params]}


def decision_accuracy(study: Study, method: MethodName) -> float:
    """Share of decisions between two mixtures that are right; NaN without pairs."""
    context = StudyContext(study)
    pairs = find_pairs(context.dataset)
    rows = decide(context.dataset, pairs, context, (method,)) if pairs else []
    right = [row["right"] for row in rows if row["signal"] == method]
    return float(np.mean(right)) if right else math.nan
