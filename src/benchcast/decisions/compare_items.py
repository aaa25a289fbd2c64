"""Compare models on the items that all of them answered, from output folders of evaluation harnesses; no study.

All are compared with the first. Items are joined by the hash of their document. A difference of scores is the mean of
the differences on the items, so its noise is theirs. Where a folder holds several checkpoints or seeds of one run,
their mean is compared, and their spread counts as noise.
Axes: T tasks, followed by their mean; I items.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.special import stdtr, stdtrit

from benchcast.decisions.logged_models import LoggedSide, TaskQuestions, read_sides
from benchcast.decisions.paired_difference import PairedDifference, mean_difference, paired_difference
from benchcast.errors import InputError, NotEnoughDataError, library
from benchcast.messages import counted, few, nan_to_none, plain
from benchcast.records import Floats, Ints, pandas_frame

MEAN = "mean of tasks"
LEVEL = 0.95  # of the interval of a difference
POWER = 0.8  # probability with which the smallest resolvable difference is found at `LEVEL`
SURE = 0.95  # probability at which a difference counts as settled
CORRECTION = "Holm"
PALETTE = {"higher": "#009E73", "lower": "#D55E00", "open": "#8A8A8A"}  # colour-blind safe


@dataclass(frozen=True, slots=True)
class ItemDifference:
    """The difference of two models on one task; unknown values are NaN."""

    task: str
    metric: str
    first: str
    second: str
    items: int  # that both answered
    clusters: int  # of items that share a passage; as many as items where none do
    first_score: float  # on these items, from 0 to 1
    second_score: float
    difference: float  # second minus first
    low: float  # ends of the 95% interval of the difference
    high: float
    higher: float  # probability that the second is better on items like these
    corrected: float  # the same, corrected for the number of comparisons; equal to `higher` if there is one
    resolvable: float  # smallest difference that is found with a power of 80% at the 95% level
    items_needed: float  # items that would settle it, also after correction, all else being equal; infinite if none do
    models_needed: float  # the same for checkpoints or seeds of each; NaN if no folder has several
    unpaired: float  # half width of the interval if the items were not paired, divided by the present one
    other_prompts: int = 0  # items whose prompts differ between the two

    @property
    def settled(self) -> bool:
        """Whether one of the two is better with a probability of at least `SURE`, after correction."""
        return bool(max(self.corrected, 1 - self.corrected) >= SURE)


@dataclass(frozen=True, slots=True, repr=False)
class ItemComparison:
    """Differences of all models from the first, on all tasks and on their mean."""

    differences: tuple[ItemDifference, ...]
    models: dict[str, tuple[str, ...]]  # name of the side → its models, several if they are checkpoints or seeds
    left_out: dict[str, str]  # task → why it is not compared
    notes: tuple[str, ...]
    correction: str  # method of `corrected`; empty for a single comparison

    def __repr__(self) -> str:
        tasks = len({d.task for d in self.differences} - {MEAN})
        return f"<ItemComparison of {', '.join(self.models)} on {counted(tasks, 'task')}>"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as `benchcast compare --items --json` prints them; unknown and infinite numbers are None."""
        rows = [asdict(d) | {"settled": d.settled} for d in self.differences]
        document = {"models": self.models, "differences": rows, "left_out": self.left_out, "notes": self.notes}
        return dict(plain(document | {"correction": self.correction}))

    def to_arrow(self) -> pa.Table:
        """One row for each model and task."""
        rows = [{k: nan_to_none(v) for k, v in asdict(d).items()} for d in self.differences]
        return pa.Table.from_pylist(rows)

    def to_pandas(self) -> Any:
        """One row for each model and task."""
        return pandas_frame(self.to_arrow())

    def plot(self) -> Any:
        """An altair chart: the difference and its interval for each task, a panel for each model."""
        alt = library("altair", "report")
        rows = [
            {
                "task": d.task,
                "pair": f"{d.second} − {d.first}",
                "difference": 100 * d.difference,
                "low": 100 * d.low,
                "high": 100 * d.high,
                "order": "open" if not d.settled else "higher" if d.difference > 0 else "lower",
            }
            for d in self.differences
        ]
        tasks = list(dict.fromkeys(d.task for d in self.differences))
        pairs = list(dict.fromkeys(row["pair"] for row in rows))
        sure = f"{SURE:.0%} sure" + (", corrected" if self.correction else "")
        base = alt.Chart().encode(
            y=alt.Y("task:N", sort=tasks, title=None),
            color=alt.Color("order:N", title=sure, scale=alt.Scale(domain=[*PALETTE], range=[*PALETTE.values()])),
        )
        across = alt.X("difference:Q", title="difference, points")
        bars = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", title="difference, points"), x2="high:Q")
        dots = base.mark_point(filled=True, size=60, opacity=1).encode(x=across, tooltip=["task:N", "difference:Q"])
        zero = alt.Chart().mark_rule(color="#888", strokeDash=[4, 4]).encode(x=alt.datum(0))
        panel = alt.layer(zero, bars, dots).properties(width=320, height=20 * len(tasks) + 20)
        return panel.facet(alt.Facet("pair:N", title=None, sort=pairs), columns=1, data=alt.Data(values=rows))


def compare_items(
    folders: Sequence[str | PathLike[str]],
    *,
    models: Sequence[str] = (),
    tasks: Sequence[str] = (),
    metrics: Mapping[str, str] | None = None,
    allow_different_prompts: bool = False,
    on_file: Callable[[Path], None] = lambda path: None,
) -> ItemComparison:
    """Compare models on the same items, from their evaluation logs.

    Parameters
    ----------
    folders : two or more output folders of lm-evaluation-harness with `--log_samples`, or of lighteval with
        `--save-details`; each holds one model, or checkpoints and seeds of one run, and is compared with the first
    models : names or patterns of models, to pick those of a folder with several; empty: all
    tasks : tasks of the results; empty: all that are in no group and that every folder has
    metrics : task → metric; for other tasks it is chosen as in `create_from_logs`
    allow_different_prompts : compare items also where the models saw different prompts
    on_file : called with the path of each file of samples after it is read

    Returns
    -------
    for each model and task, and for the mean of the tasks: the difference of the scores (from 0 to 1) with its 95%
    interval, the probability that the model is better than the first, the smallest difference that these items
    resolve, and how many would settle it

    >>> import benchcast as bc
    >>> metrics = {"pond_write": "exact_match,strict-match"}
    >>> bc.compare_items(["results/models__reed-c", "results/models__reed-d"], metrics=metrics)
    <ItemComparison of models/reed-c, models/reed-d on 3 tasks>
    """
    if len(folders) < 2:
        raise InputError("compare --items: two or more folders of logs are needed, such as --items results-a results-b")
    paths = [Path(folder) for folder in folders]
    sides, left_out = read_sides(paths, models=models, tasks=tasks, metrics=metrics or {}, on_file=on_file)
    return compare_sides(sides, left_out, allow_different_prompts=allow_different_prompts)


def compare_sides(
    sides: Sequence[LoggedSide], left_out: dict[str, str], *, allow_different_prompts: bool = False
) -> ItemComparison:
    """Compare logs that have been read with the first of them (see `compare_items`)."""
    measured = [m for side in sides[1:] for m in _measured(sides[0], side, left_out)]
    if not measured:
        names = ", ".join(side.name for side in sides)
        why = "; ".join(f"{task}: {reason}" for task, reason in left_out.items())
        raise NotEnoughDataError(f"{names}: no task can be compared ({why or 'none is in all'})")
    for m in measured:
        if m.about.other_prompts and not allow_different_prompts:
            _refuse_prompts(m.about)
    differences = tuple(_corrected(measured))
    return ItemComparison(
        differences=differences,
        models={side.name: tuple(side.models) for side in sides},
        left_out=left_out,
        notes=_notes(differences, sides),
        correction=CORRECTION if len(differences) > 1 else "",
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Measured:
    """The difference of two sides on one task, before the probabilities are corrected."""

    about: ItemDifference
    items: PairedDifference
    models: float  # variance of the difference by the checkpoints or seeds; 0 if no side has several
    freedom: float  # of `models`
    counts: tuple[int, int]  # models of each side
    unpaired: float  # variance of the difference if the items were not paired


def _measured(first: LoggedSide, second: LoggedSide, left_out: dict[str, str]) -> list[_Measured]:
    """The differences of two sides on all tasks that they share, and on their mean."""
    found = [_measure(task, first, second, left_out) for task in first.tasks]
    measured = [m for m in found if m is not None]
    return [*measured, _mean(measured)] if len(measured) > 1 else measured


def _refuse_prompts(about: ItemDifference) -> None:
    share = f"{about.other_prompts} of {counted(about.items, 'item')}"
    raise InputError(
        f"{about.task}: {about.first} and {about.second} saw different prompts on {share} (shots, chat template or "
        "task version); run both with the same, or accept it with --allow-different-prompts"
    )


def _measure(task: str, first: LoggedSide, second: LoggedSide, left_out: dict[str, str]) -> _Measured | None:
    """The difference on one task; None, with a reason in `left_out`, if no item is in all models."""
    groups = [side.of_task(task) for side in (first, second)]
    everyone = [items for group in groups for items in group]
    rows = _shared_rows([items.questions for items in everyone])
    count = len(rows[everyone[0].questions])
    if not count:
        left_out[task] = "no item is in both"
        return None
    one, other = everyone[0], groups[1][0]
    weights = one.weights(rows[one.questions])
    right = [np.array([items.right[rows[items.questions]] for items in group]) for group in groups]
    clusters = one.questions.clusters[rows[one.questions]]
    paired = paired_difference(right[0].mean(axis=0), right[1].mean(axis=0), clusters, weights)
    by_models, freedom = _spread_of_models([values @ weights for values in right])
    scores = [float((values @ weights).mean()) for values in right]
    prompts = [items.questions.prompts[rows[items.questions]] for items in (one, other)]
    about = ItemDifference(
        task=task,
        metric=one.metric,
        first=first.name,
        second=second.name,
        items=count,
        clusters=len(paired.clusters),
        first_score=scores[0],
        second_score=scores[1],
        difference=paired.value,
        other_prompts=int((prompts[0] != prompts[1]).sum()),
        **dict.fromkeys(("low", "high", "higher", "corrected", "resolvable"), math.nan),
        **dict.fromkeys(("items_needed", "models_needed", "unpaired"), math.nan),
    )
    separate = [paired_difference(np.zeros(count), values.mean(axis=0), clusters, weights) for values in right]
    return _Measured(
        about=about,
        items=paired,
        models=by_models,
        freedom=freedom,
        counts=(len(groups[0]), len(groups[1])),
        unpaired=sum(side.variance for side in separate),
    )


def _shared_rows(questions: Sequence[TaskQuestions]) -> dict[TaskQuestions, Ints]:
    """The positions, in each of several sets of items, of those that are in all, in the order of the first."""
    first, *others = dict.fromkeys(questions)
    if not others:
        return {first: np.arange(len(first.keys))}
    keys = [key for key in first.keys if all(key in other.index for other in others)]
    return {each: each.rows(keys) for each in (first, *others)}


def _spread_of_models(scores: Sequence[Floats]) -> tuple[float, float]:
    """Variance of the difference of the sides' mean scores by their checkpoints or seeds, and degrees of freedom.

    The spread is pooled over the sides that have several models; 0 if none has.
    """
    freedom = sum(len(s) - 1 for s in scores)
    if not freedom:
        return 0.0, math.inf
    pooled = sum(float(((s - s.mean()) ** 2).sum()) for s in scores) / freedom
    return pooled * sum(1 / len(s) for s in scores), float(freedom)


def _mean(measured: Sequence[_Measured]) -> _Measured:
    """The mean of the tasks, in which each task has the same weight."""
    first, count = measured[0], len(measured)
    paired = mean_difference([m.items for m in measured])
    metrics = {m.about.metric for m in measured}
    about = replace(
        first.about,
        task=MEAN,
        metric=metrics.pop() if len(metrics) == 1 else "",
        items=sum(m.about.items for m in measured),
        clusters=len(paired.clusters),
        first_score=float(np.mean([m.about.first_score for m in measured])),
        second_score=float(np.mean([m.about.second_score for m in measured])),
        difference=paired.value,
        other_prompts=sum(m.about.other_prompts for m in measured),
    )
    return replace(
        first,
        about=about,
        items=paired,
        models=sum(m.models for m in measured) / count**2,
        unpaired=sum(m.unpaired for m in measured) / count**2,
    )


def _stated(m: _Measured, tests: int) -> ItemDifference:
    """The difference with its interval and probability, and what would settle it as one of so many tests."""
    total = m.items.variance + m.models
    freedom = _freedom(m)
    error, gap = math.sqrt(total), m.items.value
    reach = float(stdtrit(freedom, 0.5 + LEVEL / 2))
    higher = float(stdtr(freedom, gap / error))
    allowed = (gap / float(stdtrit(freedom, 1 - (1 - SURE) / tests))) ** 2
    return replace(
        m.about,
        low=max(gap - reach * error, -1.0),
        high=min(gap + reach * error, 1.0),
        higher=higher,
        corrected=higher,
        resolvable=(reach + float(stdtrit(freedom, POWER))) * error,
        items_needed=_enough(m.about.items, m.items.variance, allowed - m.models),
        models_needed=_enough(max(m.counts), m.models, allowed - m.items.variance) if m.models else math.nan,
        unpaired=math.sqrt((m.unpaired + m.models) / total),
    )


def _freedom(m: _Measured) -> float:
    """Degrees of freedom of the sum of both variances (Welch and Satterthwaite)."""
    loss = m.items.variance**2 / m.items.freedom + m.models**2 / m.freedom
    return min((m.items.variance + m.models) ** 2 / loss, 1e6)


def _enough(count: int, variance: float, allowed: float) -> float:
    """How many would bring a variance that falls as 1 / count below the allowed one."""
    return float(math.ceil(count * max(variance / allowed, 1.0))) if allowed > 0 else math.inf


def _corrected(measured: Sequence[_Measured]) -> list[ItemDifference]:
    """The differences, with probabilities corrected for their number: those of single tasks, and those of means."""
    stated: dict[int, ItemDifference] = {}
    for is_mean in (False, True):
        places = [i for i, m in enumerate(measured) if (m.about.task == MEAN) == is_mean]
        rows = [_stated(measured[i], len(places)) for i in places]
        p_values = holm([2 * min(d.higher, 1 - d.higher) for d in rows])
        for i, d, p in zip(places, rows, p_values, strict=True):
            stated[i] = replace(d, corrected=1 - p / 2 if d.higher >= 0.5 else p / 2)
    return [stated[i] for i in range(len(measured))]


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values corrected for their number (Holm, Scandinavian Journal of Statistics 6, 1979).

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        corrected[i] = largest
    return corrected


def _notes(differences: Sequence[ItemDifference], sides: Sequence[LoggedSide]) -> tuple[str, ...]:
    """What a reader has to know about the items."""
    single = [d for d in differences if d.task != MEAN]
    notes = [
        f"{side.name} is the mean of {counted(len(side.models), 'model')}: {few(list(side.models))}"
        for side in sides
        if len(side.models) > 1
    ]
    limited = [side.name for side in sides if side.limited]
    if limited:
        notes.append(f"made with a limit, so the items are the first of each task: {few(limited)}")
    changed = list(dict.fromkeys(d.task for d in single if d.other_prompts))
    if changed:
        notes.append(
            f"different prompts were accepted on {few(changed)}: the difference is that of model and prompt together"
        )
    by_name = {side.name: side for side in sides}
    for d in single:
        most = max(by_name[d.first].logged(d.task), by_name[d.second].logged(d.task))
        if most > d.items:
            notes.append(f"{d.task}: {d.items} of {most} items are in both {d.first} and {d.second}")
    clustered = [f"{d.task} {d.clusters} clusters of {d.items} items" for d in single if d.clusters < d.items]
    if clustered:
        notes.append(f"items of one passage count as one cluster: {few(list(dict.fromkeys(clustered)))}")
    geometric = math.exp(float(np.mean(np.log([d.unpaired for d in single]))))
    notes.append(f"intervals without pairing would be {geometric:.2f} times as wide (geometric mean of tasks)")
    return tuple(notes)
