"""How good each method is on the studies at hand: the table that `make quality` prints.

    python -m lab quality                      the zoo, every public study whose files are here, and `$BENCHCAST_TABLES`
    python -m lab quality zoo my-study         those of them that are named, and studies of your own

Every number is about held-out models. Gain is the squared error of all-token over that of the method, geometric mean
over tasks and all models alike; `by family`, `median` and `sum` are the same with families weighing equally, as
geometric mean, median over tasks and ratio of summed errors. Regret is the squared error of the method over that of the
best single method that reads losses only, geometric mean over tasks; `worst` is the largest ratio of a task to the best
method on that task, and `behind` the share of tasks where it is above 1.25. The single methods are as they were before
floors were learned: errors of `salience` on known studies are those of `salience_before_floors.json`. `lowest` is the
coverage of the task with the least. The interval score (Winkler) is the width of the 90% interval plus 20 times the
distance of a score outside it, in points; `÷ former` is this score over that of the same forecasts with the interval
width of older versions, which follows the distance alone. The bracket behind coverage is a 90% bootstrap interval over
families. `observational` and `stack, with scores` read the scores of held-out models on the other tasks.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from benchcast import datasets
from benchcast.choices import DEFAULT_LEVEL, Split
from benchcast.errors import BenchcastError
from benchcast.evaluation.compare import Execution, compare, forecast_held_out
from benchcast.evaluation.comparison import GAIN_OVER, Comparison, HeldOutForecasts, geometric_mean
from benchcast.evaluation.error_ratio import error_ratio
from benchcast.executors.local import on_this_machine
from benchcast.forecasts.forecast import Forecast
from benchcast.forecasts.known_scores import ScoreCorrection, correct
from benchcast.messages import number
from benchcast.methods import MethodName
from benchcast.methods.law import sigmoid
from benchcast.records import Floats
from benchcast.splits import RULES
from benchcast.study.study import Study
from lab.need_calibration import NeedCalibration, need_calibration
from lab.reproduce.context import StudyContext
from lab.reproduce.outcome import Outcome, Table
from lab.table_folders import study_of_tables, table_folders

SINGLE: tuple[MethodName, ...] = ("salience", "pls", "logistic-4", "ridge", "label-token", "source-token", "all-token")
METHODS: tuple[MethodName, ...] = ("stack", *SINGLE, "observational")
WITH_SCORES = "stack, with scores"
BEHIND = 1.25  # error over that of the best single method on the task
AVERAGES = {"salience + pls": ("salience", "pls"), "… + logistic-4": ("salience", "pls", "logistic-4")}
SPLITS: dict[str, tuple[Split, ...]] = {
    "zoo": ("size", "family"),
    "olmo-ladder": ("column",),
    "olmo-ladder-choice": ("column",),
    "dclm": ("column", "family"),
    "public-llms": ("family",),
    "llm-line": ("family",),
}
TABLE_SPLITS: tuple[Split, ...] = ("column", "family")  # of tables that only a folder has
BEFORE = Path(__file__).with_name("salience_before_floors.json")
DRAWS = 1000

Forecasts = dict[str, HeldOutForecasts]  # by task


@dataclass(frozen=True, slots=True)
class Quality:
    """One row of the table."""

    study: str
    split: str
    method: str
    gain: float  # models weigh equally; families do in the next three
    gain_by_family: float  # geometric mean over tasks
    gain_median: float  # over tasks
    gain_summed: float  # ratio of the errors summed over tasks
    regret: float
    worst: float
    behind: float
    coverage: float
    lowest_coverage: float  # of a task
    covered: tuple[float, float]  # bootstrap interval of the coverage
    width: float  # points
    interval_score: float  # points
    over_former: float  # interval score over that with the width of older versions; NaN without fits
    seconds: float


def studies_at_hand(names: Sequence[Path]) -> Iterator[tuple[str, Split, Study]]:
    """Name, split and study of everything to be measured; public studies whose files are missing are passed over.

    Parameters
    ----------
    names : studies to measure: names of known ones, and folders; empty: all known ones
    """
    wanted, known = {str(name) for name in names}, set()
    for name, splits in SPLITS.items():
        known.add(name)
        if (not wanted or name in wanted) and (name == "zoo" or datasets.find(name).cached):
            study = datasets.load_zoo() if name == "zoo" else datasets.fetch(name)
            for split in splits:
                yield name, split, study
    for tables in table_folders():
        name = tables.name.replace("_", "-")
        if name not in known and (not wanted or name in wanted):
            known.add(name)
            with tempfile.TemporaryDirectory() as folder:
                study = study_of_tables(tables, Path(folder) / name)
                for split in TABLE_SPLITS:
                    yield name, split, study
    for own in names:
        if str(own) not in known:
            study = Study.open(own)
            for split in RULES:
                yield own.name, split, study


def measure_study(name: str, split: Split, study: Study, needs: list[NeedCalibration] | None = None) -> list[Quality]:
    """All methods that can be fitted on one study and split; none where the split has no test models.

    The calibration of needed scores by `stack` is appended to `needs`.
    """
    held_out: dict[str, Forecasts] = {}
    former: dict[str, Forecasts] = {}
    seconds: dict[str, float] = {}
    for method in METHODS:
        start = time.perf_counter()
        try:
            comparison = compare(study, split=split, methods=[method], device=Execution(executor=on_this_machine()))
        except BenchcastError:
            continue  # needs features, answers or another split
        if comparison.split != split:
            continue
        by_task = {task: comparison.held_out[task, method] for task in comparison.tasks}
        if all(np.isfinite(h.forecast).all() for h in by_task.values()):
            held_out[method], seconds[method] = by_task, time.perf_counter() - start
            former[method] = with_former_width(comparison, method)
            if method == "stack" and needs is not None:
                needs.append(need_calibration(name, split, comparison, method))
            if method == "stack":
                held_out[WITH_SCORES], seconds[WITH_SCORES] = with_scores(comparison), seconds[method]
    for label, members in AVERAGES.items():
        if all(m in held_out for m in members):
            held_out[label] = averaged([held_out[m] for m in members])
            seconds[label] = float("nan")
    rows = [_row(name, split, method, held_out, seconds[method]) for method in held_out] if held_out else []
    return [
        replace(row, over_former=_over_former(row, former[row.method])) if row.method in former else row for row in rows
    ]


def measure_needs(name: str, split: Split, study: Study) -> NeedCalibration | None:
    """The calibration of needed scores by `stack` alone; None where the split has no test models."""
    try:
        comparison = compare(study, split=split, methods=["stack"], device=Execution(executor=on_this_machine()))
    except BenchcastError:
        return None
    return need_calibration(name, split, comparison, "stack") if comparison.split == split else None


def with_former_width(comparison: Comparison, method: MethodName) -> Forecasts:
    """Held-out forecasts with the intervals that fits of older versions have."""
    fits = [
        [replace(comparison.fits[task, method][k], width=None) for task in comparison.tasks]
        for k in range(len(comparison.folds))
    ]
    dataset, folds = comparison.dataset, comparison.folds
    return {task: forecast_held_out(dataset, folds, fits, t=t) for t, task in enumerate(comparison.tasks)}


def _over_former(row: Quality, former: Forecasts) -> float:
    return row.interval_score / (100 * float(intervals(former)[3].mean()))


def with_scores(comparison: Comparison, method: MethodName = "stack") -> Forecasts:
    """Held-out forecasts, corrected by the scores of the held-out models on the other tasks."""
    held = {task: comparison.held_out[task, method] for task in comparison.tasks}
    row_of = {task: {m: i for i, m in enumerate(h.models)} for task, h in held.items()}
    ends = {task: np.stack([h.forecast, h.low, h.high]) for task, h in held.items()}
    dataset = comparison.dataset
    for k, fold in enumerate(comparison.folds):
        correction = ScoreCorrection.of([comparison.fits[task, method][k] for task in comparison.tasks])
        for i in np.flatnonzero(fold.test):
            model, scores = dataset.models[i], dataset.accuracy[:, i]
            known = {task: ends[task][:, rows[model]] for task, rows in row_of.items() if model in rows}
            parts = ((task, *known.get(task, np.full(3, np.nan)).tolist()) for task in comparison.tasks)
            alone = [Forecast(task, model, forecast, low, high, 0.0) for task, forecast, low, high in parts]
            for better in correct(correction, alone, scores):
                if model in row_of[better.task]:
                    ends[better.task][:, row_of[better.task][model]] = better.accuracy, better.low, better.high
    return {t: replace(h, forecast=ends[t][0], low=ends[t][1], high=ends[t][2]) for t, h in held.items()}


def averaged(members: Sequence[Forecasts]) -> Forecasts:
    """The plain mean of the members' log-odds; it has no interval."""
    out = {}
    for task, first in members[0].items():
        shares = np.clip([m[task].forecast for m in members], 1e-4, 1 - 1e-4)
        forecast = sigmoid(np.log(shares / (1 - shares)).mean(axis=0))
        nothing = np.full(len(forecast), np.nan)
        out[task] = replace(first, forecast=forecast, low=nothing, high=nothing)
    return out


def _errors(forecasts: Forecasts) -> Floats:
    """Mean squared error of each task."""
    return np.array([float(np.mean((h.forecast - h.observed) ** 2)) for h in forecasts.values()])


def _row(name: str, split: str, method: str, held_out: dict[str, Forecasts], seconds: float) -> Quality:
    errors = _errors(held_out[method])
    singles = _single_errors(f"{name}, {split}", held_out)
    best = singles[int(np.argmin([geometric_mean(list(e)) for e in singles]))]
    inside, families, width, score = intervals(held_out[method])
    gains = error_ratio(held_out[GAIN_OVER], held_out[method]) if GAIN_OVER in held_out else None
    nan = float("nan")
    return Quality(
        study=name,
        split=split,
        method=method,
        gain=geometric_mean(list(_errors(held_out[GAIN_OVER]) / errors)) if gains else nan,
        gain_by_family=gains.value if gains else nan,
        gain_median=gains.median if gains else nan,
        gain_summed=gains.summed if gains else nan,
        regret=geometric_mean(list(errors / best)),
        worst=float(np.max(errors / np.min(singles, axis=0))),
        behind=float(np.mean(errors > BEHIND * np.min(singles, axis=0))),
        coverage=float(inside.mean()),
        lowest_coverage=min(h.measures()["coverage"] for h in held_out[method].values()),
        covered=_bootstrap(inside, families),
        width=100 * float(width.mean()),
        interval_score=100 * float(score.mean()),
        over_former=nan,
        seconds=seconds,
    )


def _single_errors(setting: str, held_out: dict[str, Forecasts]) -> list[Floats]:
    """Errors by task of each single method, of `salience` as it was before floors were learned."""
    singles = {m: _errors(held_out[m]) for m in SINGLE if m in held_out}
    before = json.loads(BEFORE.read_text(encoding="utf-8")).get(setting, {})
    tasks = list(next(iter(held_out.values())))
    if "salience" in singles and set(before) == set(tasks):
        singles["salience"] = np.array([before[task] for task in tasks])
    return list(singles.values())


def intervals(forecasts: Forecasts) -> tuple[Floats, np.ndarray, Floats, Floats]:
    """Whether each score lies inside its interval, its family, the width and the interval score; tasks end to end."""
    observed, low, high = (
        np.concatenate([getattr(h, key) for h in forecasts.values()]) for key in ("observed", "low", "high")
    )
    families = np.concatenate([h.families for h in forecasts.values()])
    outside = np.maximum(low - observed, 0) + np.maximum(observed - high, 0)
    inside = np.where(np.isfinite(low), outside == 0, np.nan)
    return inside, families, high - low, high - low + 2 / (1 - DEFAULT_LEVEL) * outside


def _bootstrap(inside: Floats, families: np.ndarray) -> tuple[float, float]:
    """90% interval of the coverage when whole families are drawn again."""
    names, index = np.unique(families, return_inverse=True)
    hits, counts = np.bincount(index, weights=inside), np.bincount(index)
    drawn = np.random.default_rng(0).integers(len(names), size=(DRAWS, len(names)))
    coverage = hits[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    return float(np.quantile(coverage, 0.05)), float(np.quantile(coverage, 0.95))


HEADER = (
    "study",
    "held out",
    "method",
    "gain",
    "by family",
    "median",
    "sum",
    "regret",
    "worst",
    "behind",
    "coverage",
    "lowest",
    "width",
    "score",
    "÷ former",
    "s",
)


def cells(row: Quality) -> tuple[str, ...]:
    """One row of the printed table; what cannot be said is a dash."""
    low, high = row.covered
    coverage = f"{row.coverage:.2f} ({low:.2f}–{high:.2f})" if row.coverage == row.coverage else "–"
    return (
        row.study,
        row.split,
        row.method,
        number(row.gain, ".2f"),
        number(row.gain_by_family, ".2f"),
        number(row.gain_median, ".2f"),
        number(row.gain_summed, ".2f"),
        number(row.regret, ".2f"),
        number(row.worst, ".1f"),
        number(row.behind, ".0%"),
        coverage,
        number(row.lowest_coverage, ".2f"),
        number(row.width, ".1f"),
        number(row.interval_score, ".1f"),
        number(row.over_former, ".2f"),
        number(row.seconds, ".0f"),
    )


@dataclass(frozen=True, slots=True)
class Summary:
    """One method over all studies and splits."""

    method: str
    gain: float  # geometric mean, as the next three
    gain_by_family: float
    gain_median: float
    gain_summed: float
    regret: float  # geometric mean
    largest: float  # regret
    behind: float  # mean over studies and splits
    coverage: float  # mean over studies and splits
    lowest_coverage: float  # of a task
    interval_score: float  # geometric mean


def summary(rows: Sequence[Quality]) -> list[Summary]:
    """One row for every method that was measured on all studies and splits."""
    settings = len({(row.study, row.split) for row in rows})
    out = []
    for method in dict.fromkeys(row.method for row in rows):
        of_method = [row for row in rows if row.method == method]
        if len(of_method) == settings:
            regrets = [row.regret for row in of_method]
            row = Summary(
                method,
                gain=geometric_mean([r.gain for r in of_method]),
                gain_by_family=geometric_mean([r.gain_by_family for r in of_method]),
                gain_median=geometric_mean([r.gain_median for r in of_method]),
                gain_summed=geometric_mean([r.gain_summed for r in of_method]),
                regret=geometric_mean(regrets),
                largest=max(regrets),
                behind=float(np.mean([r.behind for r in of_method])),
                coverage=float(np.mean([r.coverage for r in of_method])),
                lowest_coverage=float(np.min([r.lowest_coverage for r in of_method])),
                interval_score=geometric_mean([r.interval_score for r in of_method]),
            )
            out.append(row)
    return out


TARGETS = dict.fromkeys(("olmo-ladder", "olmo-ladder-choice"), ("peteish7@anneal", "peteish13@596057"))


def target_errors(study: Study, models: Sequence[str]) -> dict[str, float]:
    """Mean absolute error of stack over all tasks, in points, on the models that a study was made for."""
    comparison = compare(study, split="column", methods=["stack"])
    errors: dict[str, list[float]] = {model: [] for model in models}
    for task in comparison.tasks:
        held = comparison.held_out[task, "stack"]
        for model, forecast, observed in zip(held.models, held.forecast, held.observed, strict=True):
            if model in errors:
                errors[model].append(100 * abs(float(forecast - observed)))
    return {model: float(np.mean(points)) for model, points in errors.items() if points}


def tables(rows: Sequence[Quality]) -> tuple[Table, Table]:
    """Every method on every study and split, and every method over all of them."""
    means = tuple(
        (
            s.method,
            number(s.gain, ".2f"),
            number(s.gain_by_family, ".2f"),
            number(s.gain_median, ".2f"),
            number(s.gain_summed, ".2f"),
            number(s.regret, ".2f"),
            number(s.largest, ".2f"),
            number(s.behind, ".0%"),
            number(s.coverage, ".3f"),
            number(s.lowest_coverage, ".2f"),
            number(s.interval_score, ".1f"),
        )
        for s in summary(rows)
    )
    header = (
        "method",
        "gain",
        "by family",
        "median",
        "sum",
        "regret",
        "largest",
        "behind",
        "coverage",
        "lowest",
        "score",
    )
    over_all = Table(header, means)
    return Table(HEADER, tuple(cells(row) for row in rows)), replace(over_all, title="over all studies and splits")


def target_lines() -> list[str]:
    """For each public study at hand, one line on the models that it was made for."""
    out = []
    for name, models in TARGETS.items():
        if datasets.find(name).cached:
            errors = target_errors(datasets.fetch(name), models)
            points = ", ".join(f"{model} {error:.2f}" for model, error in errors.items())
            out.append(f"{name}: mean absolute error of stack over all tasks, in points: {points}")
    return out


def quality(context: StudyContext) -> Outcome:
    """The zoo and the public studies at hand, for the page of results."""
    rows: list[Quality] = []
    for name, split, study in studies_at_hand(()):
        context.on_step(f"{name}, {split}")
        rows += measure_study(name, split, study)
    return Outcome("quality", {"rows": [asdict(row) for row in rows]}, tables(rows), remarks=tuple(target_lines()))
