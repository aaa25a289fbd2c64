"""Which metric should be watched while models are small? Noise, signal and right decisions of each, by size.

A stage is a size (params within a factor of 1.5 of each other), or, where no two runs share sizes, a length of training
(tokens per parameter), or all models together. At a stage, each run is its checkpoint with the most compute. Everything
is measured on log losses and on scores as they are; more is better for all, so losses are negated.
Axes: W metrics of one task, M models, R runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from benchcast.decisions.compare_scores import ScoredModels, checkpoint_variance, seed_variance
from benchcast.errors import BenchcastError, NotEnoughDataError
from benchcast.losses.dataset import Dataset
from benchcast.messages import counted, plain
from benchcast.methods.spec import fit_method, without_weak_tasks
from benchcast.records import Bools, Floats, Ints, ModelInfo, Task
from benchcast.splits import Fold, inner_folds
from benchcast.steps import steps
from benchcast.study.study import Study, StudyLike

SCORE, ANSWERS, CHOICE, ALL_TOKENS, FORECAST = METRICS = (
    "score",
    "loss of answers",
    "choice loss",
    "all-token loss",
    "forecast",
)
PER_PARAMETER = "tokens per parameter"  # ends the names of stages by length of training
SAME_STAGE = 1.5  # values of a stage lie within this factor
FEWEST_RUNS = 4  # that a stage needs
FEWEST_OF_LENGTH = 5  # runs that a stage of one length of training needs
FEWEST_PAIRS = 6  # pairs of runs on which advice may rest
CLEARLY = 0.02  # by which a share of right decisions must exceed that of the score to be worth a change
FORECAST_METHOD = "stack"


@dataclass(frozen=True, slots=True)
class MetricAtStage:
    """How well one metric of a task tells runs apart at one stage; unknown values are NaN."""

    task: str
    stage: str
    metric: str
    runs: int
    noise: float  # standard deviation between neighbouring checkpoints and seeds of one run
    signal: float  # standard deviation between runs
    ratio: float  # signal ÷ noise
    later: str  # the later stage that most of these runs reach; the last stage is compared with itself
    decisions: float  # share of pairs of runs whose order is that of the score at the later stage
    pairs: int
    error: float  # root mean squared error of the score at the later stage, from this metric, runs left out in turn


@dataclass(frozen=True, slots=True, repr=False)
class Proxies:
    """Every metric of every task at every stage, and one line of advice for each task."""

    rows: tuple[MetricAtStage, ...]
    advice: dict[str, str]
    by: str  # what the stages are: "size", "length of training" or "all models"
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        return f"<Proxies of {counted(len(self.advice), 'task')} by {self.by}: {counted(len(self.rows), 'row')}>"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as `benchcast proxies --json` prints them; unknown numbers are None."""
        rows = [asdict(row) for row in self.rows]
        return dict(plain({"by": self.by, "rows": rows, "advice": self.advice, "notes": self.notes}))


def proxies(
    study: StudyLike,
    *,
    tasks: Sequence[str] = (),
    forecast: bool = True,
    tell: Callable[[str], None] = lambda line: None,
) -> Proxies:
    """Compare the metrics that can be watched for each task, by the size of the models.

    Parameters
    ----------
    study : an opened study or its folder
    tasks : tasks of study.toml; empty: all
    forecast : whether the forecast of `stack` is one of the metrics; it is made out of fold, which takes longest
    tell : called with a line at each step

    Returns
    -------
    for each task, stage and metric: noise, signal, their ratio, the share of pairs of runs that it orders as the score
    does at the last stage, and the error of that score when it is forecast from the metric; and advice for each task

    >>> import benchcast as bc
    >>> bc.proxies("study", tasks=["code"], forecast=False)
    <Proxies of 1 task by size: 12 rows>
    """
    dataset = Study.of(study).dataset(tasks)
    infos = Study.of(study).infos(dataset.models)
    stages = Stages.of(dataset, infos)
    forecasts = out_of_fold_forecasts(dataset, tell) if forecast else np.full(dataset.accuracy.shape, np.nan)
    rows, advice = [], {}
    for t, task in enumerate(dataset.tasks):
        tell(f"measuring {task.name}")
        metrics = metrics_of(dataset, t, forecasts[t])
        of_task = measure(task.name, metrics, stages, infos)
        if of_task:
            advice[task.name] = advise(of_task, stages)
            rows += of_task
    if not rows:
        raise NotEnoughDataError(f"no task has {FEWEST_RUNS} runs with scores; families of models.csv are the runs")
    return Proxies(rows=tuple(rows), advice=advice, by=stages.by, notes=stages.notes)


@dataclass(frozen=True, slots=True, eq=False)
class Stages:
    """The stages of a study, in order, and its runs."""

    by: str
    names: tuple[str, ...]
    rows: tuple[Ints, ...]  # models of each stage
    runs: npt.NDArray[np.str_]  # run of each model (M)
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, dataset: Dataset, infos: Sequence[ModelInfo]) -> Stages:
        """By size where runs share sizes, else by length of training, else one stage."""
        params, tokens = dataset.metadata.params, dataset.metadata.training_tokens
        families = dataset.families
        by_size = _grouped(params)
        shared = [rows for rows in by_size if len(np.unique(families[rows])) >= FEWEST_RUNS]
        if len(shared) > 1:
            names = [f"{_short(float(np.median(params[rows])))}" for rows in shared]
            return cls(by="size", names=tuple(names), rows=tuple(shared), runs=families)
        stems = np.array([info.model.partition("@")[0] for info in infos])
        length = np.divide(tokens, params, out=np.full(len(params), np.nan), where=params > 0)
        final = np.array([length[stems == stem].max() for stem in stems])
        lengths = [rows for rows in _grouped(final) if len(np.unique(stems[rows])) >= FEWEST_OF_LENGTH]
        if len(lengths) > 1:
            names = [f"{_short(float(np.median(final[rows])))} {PER_PARAMETER}" for rows in lengths]
            note = "stages are lengths of training: the runs of a stage have different sizes, and none reaches another"
            return cls(by="length of training", names=tuple(names), rows=tuple(lengths), runs=stems, notes=(note,))
        everyone = np.arange(len(families))
        note = "no sizes that several runs share: all models are one stage, and each model is a run"
        return cls(by="all models", names=("all",), rows=(everyone,), runs=stems, notes=(note,))

    def last_of_runs(self, stage: int, compute: Floats, known: Bools) -> dict[str, int]:
        """The model of each run at a stage: the one with the most compute among those that are known."""
        last: dict[str, int] = {}
        for i in self.rows[stage]:
            run = str(self.runs[i])
            if known[i] and (run not in last or compute[i] > compute[last[run]]):
                last[run] = int(i)
        return last


def _grouped(values: Floats) -> list[Ints]:
    """Indices of the known values in groups: each lies within `SAME_STAGE` of the smallest of its group."""
    order = [int(i) for i in np.argsort(values, kind="stable") if np.isfinite(values[i])]
    groups: list[list[int]] = []
    for i in order:
        if groups and values[i] <= SAME_STAGE * values[groups[-1][0]]:
            groups[-1].append(i)
        else:
            groups.append([i])
    return [np.array(group) for group in groups]


def _short(value: float) -> str:
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def metrics_of(dataset: Dataset, t: int, forecast: Floats) -> dict[str, Floats]:
    """The metrics of a task by name, each M values of which more is better; those that are unknown are left out."""
    task, tokens = dataset.tasks[t], dataset.reference_tokens
    found = {
        SCORE: dataset.accuracy[t],
        ANSWERS: _negated(dataset.nats[:, tokens.answers(task) & tokens.supported]),
        CHOICE: choice_loss(dataset, task),
        ALL_TOKENS: _negated(dataset.nats[:, tokens.supported]),
        FORECAST: forecast,
    }
    return {name: values for name, values in found.items() if np.isfinite(values).any()}


def _negated(nats: npt.NDArray[np.floating]) -> Floats:
    """Minus the log of the mean loss; NaN without any."""
    if not nats.shape[1]:
        return np.full(len(nats), np.nan)
    mean = np.asarray(nats, np.float64).mean(axis=1)
    return np.where(mean > 0, -np.log(np.maximum(mean, 1e-12)), np.nan)


def choice_loss(dataset: Dataset, task: Task) -> Floats:
    """Minus the log of the mean choice loss of a task's texts; NaN for a model or a study without them."""
    values = (dataset.metadata.choices or {}).get(dataset.choices.name)
    if values is None or not dataset.choices.used:
        return np.full(len(dataset.models), np.nan)
    tokens = dataset.reference_tokens
    of_task = np.zeros(values.shape[1], bool)
    of_task[np.unique(tokens.text[tokens.of_task(task)])] = True
    of_task[np.isin(np.arange(values.shape[1]), [i for i, name in enumerate(tokens.ids) if name in task.choices])] = (
        True
    )
    return _negated(values[:, of_task & dataset.choices.texts])


def out_of_fold_forecasts(dataset: Dataset, tell: Callable[[str], None]) -> Floats:
    """Forecasts of `stack`, each model's from fits without its family (T × M); NaN where one cannot be made."""
    everyone = np.ones(len(dataset.models), bool)
    out = np.full(dataset.accuracy.shape, np.nan)
    row_of = {task.name: t for t, task in enumerate(dataset.tasks)}
    sets = inner_folds(dataset.groups, everyone)
    tell("forecasting out of fold")
    for hidden in steps(sets, "sets of hidden models"):
        fold = Fold(train=~hidden, validation=np.zeros_like(hidden), test=hidden)
        try:
            usable, _ = without_weak_tasks(dataset, [fold], asked_for=False)
            (fits,) = fit_method(FORECAST_METHOD, usable, [fold])
        except BenchcastError:  # too few models are left
            continue
        held_out = dataset.of_models(hidden)
        for fit in fits:
            out[row_of[fit.task.name], hidden] = fit.law.accuracy(fit.capability.of(held_out.nats, held_out.metadata))
    return out


def measure(
    task: str, metrics: Mapping[str, Floats], stages: Stages, infos: Sequence[ModelInfo]
) -> list[MetricAtStage]:
    """One row for each stage and metric of a task."""
    score = metrics[SCORE]
    known = np.isfinite(score)
    compute = np.array([info.compute for info in infos], np.float64)
    order = np.where(np.isfinite(compute), compute, -np.inf)
    noise = {name: noise_of(values, infos, known) for name, values in metrics.items()}
    lasts = [stages.last_of_runs(stage, order, known) for stage in range(len(stages.rows))]
    rows = []
    for stage, last in enumerate(lasts):
        if len(last) < FEWEST_RUNS:
            continue
        later = later_stage(lasts, stage)
        for name, values in metrics.items():
            here = {run: float(values[i]) for run, i in last.items() if np.isfinite(values[i])}
            both = [run for run in here if run in lasts[later]]
            x, y = np.array([here[run] for run in both]), np.array([score[lasts[later][run]] for run in both])
            itself = name == SCORE and later == stage  # says nothing of itself
            right, pairs = (math.nan, 0) if itself else decisions(x, y)
            signal = float(np.std(list(here.values()), ddof=1)) if len(here) > 1 else math.nan
            rows.append(
                MetricAtStage(
                    task=task,
                    stage=stages.names[stage],
                    metric=name,
                    runs=len(here),
                    noise=noise[name],
                    signal=signal,
                    ratio=signal / noise[name] if noise[name] > 0 else math.nan,
                    later=stages.names[later],
                    decisions=right,
                    pairs=pairs,
                    error=math.nan if itself else left_out_error(x, y),
                )
            )
    return rows


def later_stage(lasts: Sequence[Mapping[str, int]], stage: int) -> int:
    """The later stage that most runs of a stage reach, the last of equals; the stage itself if it is the last."""
    reached = {later: len(lasts[stage].keys() & lasts[later].keys()) for later in range(stage + 1, len(lasts))}
    best = max(reached, key=lambda later: (reached[later], later), default=stage)
    return best if reached.get(best, 0) > 1 else stage


def noise_of(values: Floats, infos: Sequence[ModelInfo], known: Bools) -> float:
    """Standard deviation of one value by checkpoints and seeds; NaN if neither is known."""
    finite = known & np.isfinite(values)
    kept = np.flatnonzero(finite)
    blank = np.full((2, len(kept)), np.nan)
    table = ScoredModels(
        models=tuple(infos[int(i)] for i in kept),
        tasks=("metric", "mean"),
        scores=np.vstack([values[kept]] * 2),
        item_variance=blank,
        n_items=blank,
    )
    checkpoints = checkpoint_variance(table, np.arange(len(kept)))
    seeds = seed_variance(table, np.ones(len(kept), bool), checkpoints)
    parts = [float(v.value[0]) for v in (checkpoints, seeds) if np.isfinite(v.value[0])]
    return math.sqrt(sum(parts)) if parts else math.nan


def decisions(metric: Floats, score: Floats) -> tuple[float, int]:
    """Share of pairs that the metric orders as the score at the last stage does, and their number; ties count half."""
    pairs = [(i, j) for i, j in combinations(range(len(score)), 2) if score[i] != score[j]]
    if not pairs:
        return math.nan, 0
    right = [0.5 + 0.5 * np.sign((metric[i] - metric[j]) * (score[i] - score[j])) for i, j in pairs]
    return float(np.mean(right)), len(pairs)


def left_out_error(metric: Floats, score: Floats) -> float:
    """Error of the last score on a line through the metric, each run left out in turn; NaN with too few runs.

    It is NaN, too, where all values or all scores are equal.
    """
    if len(score) < FEWEST_RUNS or np.ptp(metric) == 0 or np.ptp(score) == 0:
        return math.nan
    design = np.column_stack([np.ones(len(score)), metric])
    hat = design @ np.linalg.pinv(design)
    residual = (score - hat @ score) / np.maximum(1 - np.diag(hat), 1e-9)
    return float(np.sqrt(np.mean(residual**2)))


def advise(rows: Sequence[MetricAtStage], stages: Stages) -> str:
    """What to watch: the metric with the most right decisions, else the best signal, else the least error.

    Metrics are compared on the same runs: one that some run lacks is not advised.
    """
    runs = {row.stage: row.runs for row in rows if row.metric == SCORE}
    partial = {row.metric for row in rows if row.runs < runs[row.stage]}
    names = [name for name in dict.fromkeys(row.metric for row in rows) if name not in partial]
    if stages.by == "size":
        below = [row for row in rows if row.later != row.stage and row.pairs >= FEWEST_PAIRS]
        shares = {name: _mean([(r.decisions, r.pairs) for r in below if r.metric == name]) for name in names}
        known = {name: share for name, share in shares.items() if math.isfinite(share)}
        if known:
            best, beside = _best(known, "{:.0%}", CLEARLY)
            return f"below {below[-1].later} watch the {best}: {known[best]:.0%} of decisions are right{beside}"
    # All-token loss separates models of any kind very well, but says nothing of one task in particular.
    own = [name for name in names if name != ALL_TOKENS]
    ratios = {name: _mean([(row.ratio, 1) for row in rows if row.metric == name]) for name in own}
    known = {name: ratio for name, ratio in ratios.items() if math.isfinite(ratio)}
    if known:
        best, beside = _best(known, "{:.1f}", 0.0)
        return f"watch the {best}: signal ÷ noise {known[best]:.1f}{beside}"
    errors = {name: -_mean([(row.error, 1) for row in rows if row.metric == name]) for name in names}
    known = {name: error for name, error in errors.items() if math.isfinite(error)}
    if not known:
        return "too few runs to say"
    best = max(known, key=lambda name: known[name])
    return f"watch the {best}: it tells the score within {-100 * known[best]:.1f} points"


def _best(values: Mapping[str, float], form: str, clearly: float) -> tuple[str, str]:
    """The metric with the largest value, or the score if it is as good; and words on the score beside another one."""
    best, score = max(values, key=lambda name: values[name]), values.get(SCORE, math.nan)
    if math.isnan(score):
        return best, ""
    best = best if values[best] - score >= clearly else SCORE
    return best, "" if best == SCORE else f", of the score {form.format(score)}"


def _mean(values: Sequence[tuple[float, int]]) -> float:
    """Weighted mean of the finite values."""
    finite = [(value, weight) for value, weight in values if math.isfinite(value)]
    return float(np.average([v for v, _ in finite], weights=[w for _, w in finite])) if finite else math.nan
