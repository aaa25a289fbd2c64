"""Is the difference between the scores of two runs more than noise of test items, checkpoints and seeds?

A score is taken as a smooth curve of compute plus independent noise of each kind, so their variances add. Noise of
items follows from the number of items. Noise of checkpoints is the scatter of each score about the line between its two
neighbours, on the same items. Noise of seeds is the variance between runs that differ only in their seed, without
the noise of checkpoints that is in it.
Axes: T tasks, followed by their mean; M models.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
from scipy.special import stdtr, stdtrit

from benchcast.decisions.compare_runs import MEAN, TrainingRun, comparison_points, find_runs, run_names
from benchcast.decisions.outcome_pairs import ItemPairs, read_pairs
from benchcast.errors import NotEnoughDataError
from benchcast.messages import as_names, counted, plain
from benchcast.records import Bools, Floats, Ints, ModelInfo, Score, family_names
from benchcast.scaling.family_law import ScalePoints
from benchcast.study.study import Study, StudyLike

NEAR = np.log(2)  # largest distance of a checkpoint's neighbours in log compute; the curve is nearly straight over it
FEWEST_SCATTERS = 4  # checkpoints with two neighbours that an estimate needs
OVERLAP = 2.0  # dependent scatters per independent one; neighbouring scatters share scores
SURE = 0.95  # probability at which a difference counts as settled
LEAST = 1e-12  # lower bound of a variance


@dataclass(frozen=True, slots=True)
class ScoreDifference:
    """The difference between two runs on one task; unknown values are NaN."""

    task: str
    first: str
    second: str
    first_score: float
    second_score: float
    items: float  # standard deviation that the test items add to the difference
    checkpoints: float  # … that the choice of the checkpoint adds
    seeds: float  # … that the seeds of both runs add
    higher: float  # probability that the second scores higher, whatever the items, checkpoints and seeds
    again: float  # probability that it is higher again if both are trained again and tested on the same items
    items_needed: float  # number of items that would settle it, all else being equal; infinite if no number does
    checkpoints_needed: float  # the same for averaged checkpoints of each run
    seeds_needed: float  # the same for averaged repetitions of each run
    unpaired: float = math.nan  # standard deviation of the items if they were not paired; NaN if they are not

    @property
    def settled(self) -> bool:
        """Whether one of the runs is better with a probability of at least `SURE`."""
        return bool(max(self.higher, 1 - self.higher) >= SURE)


@dataclass(frozen=True, slots=True, repr=False)
class ScoreComparison:
    """Differences of all pairs of runs on all tasks and on their mean."""

    differences: tuple[ScoreDifference, ...]
    models: dict[str, tuple[str, ...]]  # run → the models whose scores are compared
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        return f"<ScoreComparison of {', '.join(self.models)}: {counted(len(self.differences), 'difference')}>"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as `benchcast compare --runs --json` prints them; unknown and infinite numbers are None."""
        rows = [asdict(d) | {"settled": d.settled} for d in self.differences]
        return dict(plain({"models": self.models, "differences": rows, "notes": self.notes}))


def compare_scores(study: StudyLike, names: Sequence[str], *, tasks: Sequence[str] = ()) -> ScoreComparison:
    """Compare the observed scores of training runs, with the noise of items, checkpoints and seeds.

    Parameters
    ----------
    study : an opened study or its folder
    names : two or more runs: families, or names of models without their @tokens
    tasks : tasks of study.toml; empty: all on which every run has a score

    Returns
    -------
    for each pair of runs and each task: the difference, the standard deviation that each source of noise adds to it,
    the probability that the second run scores higher, and how many items, checkpoints or seeds would settle it

    >>> import benchcast as bc
    >>> bc.compare_scores("study", ["ash", "oak"], tasks=["code"])
    <ScoreComparison of ash, oak: 1 difference>
    """
    names = run_names(names)
    opened = Study.of(study)
    wanted = [opened.task(t).name for t in as_names(tasks)] or [t.name for t in opened.tasks]
    known, runs, rows = _scored_runs(opened, names, wanted)
    shared = [t for i, t in enumerate(wanted) if all(np.isfinite(known.scores[i, r]).all() for r in rows)]
    if not shared:
        raise NotEnoughDataError(f"{', '.join(names)}: no task has scores of all of them")
    if len(shared) < len(wanted):
        known, runs, rows = _scored_runs(opened, names, shared)
    compared = {int(i): known.models[i].model for of_run in rows for i in of_run}
    pairs = read_pairs(opened, compared, known.tasks[:-1], known.scores)
    differences, notes = score_differences(known, runs, rows, pairs=pairs)
    models = {run.name: tuple(known.models[i].model for i in r) for run, r in zip(runs, rows, strict=True)}
    return ScoreComparison(differences=differences, models=models, notes=notes)


def _scored_runs(
    study: Study, names: Sequence[str], tasks: Sequence[str]
) -> tuple[ScoredModels, list[TrainingRun], list[Ints]]:
    """Models with scores, the runs among them, and the compared models of each run."""
    listed = study.models()
    known = scored_models(listed, study.scores(), tasks)
    index = {m.model: i for i, m in enumerate(known.models)}
    everyone = [*known.models, *(m for m in listed if m.model not in index)]
    found = find_runs(names, [m.model for m in everyone], family_names(everyone))
    runs = [TrainingRun(run.name, run.rows[run.rows < len(known.models)]) for run in found]
    for run in runs:
        if not len(run.rows):
            raise NotEnoughDataError(f"{run.name}: no scores on {', '.join(tasks[:4])}")
    return known, runs, compared_models(known, runs)


@dataclass(frozen=True, slots=True)
class ScoredModels:
    """Models with their scores; NaN where unknown."""

    models: tuple[ModelInfo, ...]
    tasks: tuple[str, ...]  # followed by their mean
    scores: Floats  # (T + 1) × M
    item_variance: Floats  # (T + 1) × M
    n_items: Floats  # (T + 1) × M

    @property
    def points(self) -> ScalePoints:
        """Size, training tokens and compute of each model."""
        columns = [[getattr(m, name) for m in self.models] for name in ("params", "tokens", "compute")]
        return ScalePoints(*(np.array(c, np.float64) for c in columns))

    def trajectories(self, rows: Ints) -> Iterator[Ints]:
        """Checkpoints of each run among the models `rows`, by compute: models with one name before the @."""
        flops = self.points.flops
        stems = np.array([m.model.partition("@")[0] for m in self.models])
        for stem in dict.fromkeys(stems[rows]):
            checkpoints = rows[(stems[rows] == stem) & np.isfinite(flops[rows])]
            yield checkpoints[np.argsort(flops[checkpoints], kind="stable")]


def scored_models(models: Sequence[ModelInfo], scores: Sequence[Score], tasks: Sequence[str]) -> ScoredModels:
    """Models with a score on at least one of the tasks.

    Parameters
    ----------
    models, scores : rows of models.csv and scores.csv
    tasks : names of tasks
    """
    listed = {m.model for m in models}
    infos = [*models, *(ModelInfo(name) for name in dict.fromkeys(s.model for s in scores) if name not in listed)]
    kept = [m for m in infos if m.model in {s.model for s in scores if s.task in tasks}]
    if not kept:
        raise NotEnoughDataError("no model has a score on these tasks")
    column, row = {m.model: i for i, m in enumerate(kept)}, {t: i for i, t in enumerate(tasks)}
    values = np.full((3, len(tasks), len(kept)), np.nan)
    for s in scores:
        if s.model in column and s.task in row:
            values[:, row[s.task], column[s.model]] = s.accuracy, _item_variance(s), s.n_items
    accuracy, variances, items = values
    return ScoredModels(
        models=tuple(kept),
        tasks=(*tasks, MEAN),
        scores=np.vstack([accuracy, accuracy.mean(axis=0)]),
        item_variance=np.vstack([variances, variances.sum(axis=0) / len(tasks) ** 2]),
        n_items=np.vstack([items, items.mean(axis=0)]),
    )


def _item_variance(score: Score) -> float:
    """Variance of a score by its items: as the harness reported it, else binomial; NaN if neither is known.

    A score of 0 or 1 is certain on its items only; one right and one wrong answer are added (rule of succession).
    """
    if score.stderr > 0:
        return score.stderr**2
    if not score.n_items > 0:
        return float("nan")
    p = score.accuracy if 0 < score.accuracy < 1 else (score.accuracy * score.n_items + 1) / (score.n_items + 2)
    return p * (1 - p) / score.n_items


def compared_models(known: ScoredModels, runs: Sequence[TrainingRun]) -> list[Ints]:
    """The models of each run whose scores are compared: its last checkpoint at the most compute that all have reached.

    Models with different seeds and the same compute are averaged. Runs of unknown compute are compared by their only
    model.
    """
    points = comparison_points(known.points, runs)
    if points:
        compared = []
        for rows in points[0].rows:
            distance = np.abs(np.log(known.points.flops[rows] / points[0].flops))
            compared.append(rows[np.isclose(distance, distance.min(), atol=1e-9)])
        return compared
    if any(len(run.rows) > 1 for run in runs):
        raise NotEnoughDataError(
            f"{', '.join(run.name for run in runs)}: they share no compute at a size that all have; name one model of "
            "each, or fill params and tokens in models.csv"
        )
    return [run.rows for run in runs]


def score_differences(
    known: ScoredModels, runs: Sequence[TrainingRun], rows: Sequence[Ints], *, pairs: ItemPairs | None = None
) -> tuple[tuple[ScoreDifference, ...], tuple[str, ...]]:
    """Differences of all pairs of runs, and notes on noise that is not counted."""
    everywhere = checkpoint_variance(known, np.arange(len(known.models)))
    of_these_runs = checkpoint_variance(known, np.unique(np.concatenate([run.rows for run in runs])))
    checkpoints = of_these_runs if np.isfinite(of_these_runs.freedom) else everywhere
    seeds = seed_variance(known, np.ones(len(known.models), bool), everywhere)
    tasks = range(len(known.tasks) if len(known.tasks) > 2 else 1)  # one task is its own mean
    differences = [
        difference(known, t, [(runs[k].name, rows[k]) for k in pair], checkpoints=checkpoints, seeds=seeds, pairs=pairs)
        for pair in combinations(range(len(runs)), 2)
        for t in tasks
    ]
    notes = [_pairing_note(differences)] if any(math.isfinite(d.unpaired) for d in differences) else []
    if not all(math.isfinite(d.items) for d in differences):
        notes.append("noise of items is not counted: scores.csv has no n_items or stderr for some scores")
    if not np.isfinite(checkpoints.freedom):
        notes.append(
            "noise of checkpoints is not counted: too few runs with neighbouring checkpoints and known compute"
        )
    if not np.isfinite(seeds.freedom):
        notes.append("noise of seeds is not counted: no models that differ only in the column seed of models.csv")
    return tuple(differences), tuple(notes)


@dataclass(frozen=True, slots=True)
class Variance:
    """Variance of one score by one source of noise, for each task and their mean (T + 1); NaN if unknown."""

    value: Floats
    freedom: float  # degrees of freedom of the estimate


def checkpoint_variance(known: ScoredModels, rows: Ints) -> Variance:
    """Noise of checkpoints, from the scatter of each score about the line between its neighbours in log compute."""
    flops = known.points.flops
    squares, log_flops = [], np.log(np.where(flops > 0, flops, np.nan))
    for run in known.trajectories(rows):
        for before, here, after in zip(run, run[1:], run[2:], strict=False):
            gap = log_flops[after] - log_flops[before]
            if not 0 < gap < NEAR:
                continue
            share = (log_flops[here] - log_flops[before]) / gap
            line = (1 - share) * known.scores[:, before] + share * known.scores[:, after]
            squares.append((known.scores[:, here] - line) ** 2 / (1 + share**2 + (1 - share) ** 2))
    if len(squares) < FEWEST_SCATTERS:
        return Variance(np.full(len(known.tasks), np.nan), np.nan)
    return Variance(np.mean(squares, axis=0), len(squares) / OVERLAP)


def seed_variance(known: ScoredModels, used: Bools, checkpoints: Variance) -> Variance:
    """Noise of seeds, from models in `used` that have different seeds and are otherwise the same.

    Models of one family with equal params and tokens count as the same. All sets of runs have equal weight, whatever
    their number of checkpoints.
    """
    by_runs: dict[tuple[str, ...], list[Floats]] = {}
    for group in _same_but_seed(known, used):
        runs = tuple(sorted(known.models[i].model.partition("@")[0] for i in group))
        by_runs.setdefault(runs, []).append(known.scores[:, group].var(axis=1, ddof=1))
    if not by_runs:
        return Variance(np.full(len(known.tasks), np.nan), np.nan)
    weights = [len(runs) - 1 for runs in by_runs]
    total = np.average([np.mean(variances, axis=0) for variances in by_runs.values()], axis=0, weights=weights)
    return Variance(np.maximum(total - np.nan_to_num(checkpoints.value), 0.0), float(sum(weights)))


def _same_but_seed(known: ScoredModels, used: Bools) -> list[Ints]:
    """Groups of models that differ in their seed only."""
    families = family_names(known.models)
    groups: dict[tuple[str, float, float], dict[str, int]] = {}
    for i, m in enumerate(known.models):
        if m.seed and used[i] and np.isfinite(m.params) and np.isfinite(m.tokens):
            groups.setdefault((str(families[i]), m.params, m.tokens), {}).setdefault(m.seed, i)
    return [np.array(list(group.values())) for group in groups.values() if len(group) > 1]


def difference(
    known: ScoredModels,
    t: int,
    runs: Sequence[tuple[str, Ints]],
    *,
    checkpoints: Variance,
    seeds: Variance,
    pairs: ItemPairs | None = None,
) -> ScoreDifference:
    """The difference of two runs on one task.

    Parameters
    ----------
    known : the models and their scores
    t : index of the task
    runs : name and compared models of both runs
    checkpoints, seeds : noise of one score
    pairs : outcomes of single items; None without any
    """
    scores = [float(known.scores[t, rows].mean()) for _, rows in runs]
    independent = sum(float(known.item_variance[t, rows].mean()) for _, rows in runs)
    paired = pairs.variance(t, runs[0][1], runs[1][1], unpaired=known.item_variance) if pairs else math.nan
    parts = {
        "items": paired if math.isfinite(paired) else independent,
        "checkpoints": sum(float(checkpoints.value[t]) / len(rows) for _, rows in runs),
        "seeds": sum(float(seeds.value[t]) / len(rows) for _, rows in runs),
    }
    freedom = {"items": math.inf, "checkpoints": checkpoints.freedom, "seeds": seeds.freedom}
    counted = {k: v for k, v in parts.items() if math.isfinite(v)}
    repeated = {k: 2 * v for k, v in counted.items() if k != "items"}
    gap = scores[1] - scores[0]
    counts = {
        "items": float(np.mean([known.n_items[t, rows].mean() for _, rows in runs])),
        "checkpoints": 1.0,
        "seeds": float(np.mean([len(rows) for _, rows in runs])),
    }
    needed = _needed(gap, counted, freedom, counts=counts)
    deviation = {k: math.sqrt(v) if math.isfinite(v) else math.nan for k, v in parts.items()}
    return ScoreDifference(
        task=known.tasks[t],
        first=runs[0][0],
        second=runs[1][0],
        first_score=scores[0],
        second_score=scores[1],
        **deviation,
        higher=probability_above(gap, counted, freedom),
        again=probability_above(gap, repeated, freedom),
        items_needed=needed["items"],
        checkpoints_needed=needed["checkpoints"],
        seeds_needed=needed["seeds"],
        unpaired=math.sqrt(independent) if math.isfinite(paired) else math.nan,
    )


def _pairing_note(differences: Sequence[ScoreDifference]) -> str:
    """How much narrower the noise of items is because it is taken item by item."""
    ratios = [d.items / d.unpaired for d in differences if math.isfinite(d.unpaired) and d.unpaired > 0]
    if not ratios:
        return "noise of items is taken from differences item by item"
    geometric = math.exp(float(np.mean(np.log(np.maximum(ratios, LEAST)))))
    return f"noise of items is taken item by item: {geometric:.2f} times the noise of unpaired items (geometric mean)"


def probability_above(gap: float, variances: dict[str, float], freedom: dict[str, float]) -> float:
    """Probability that the true difference is above zero; NaN without any known noise."""
    if not variances:
        return math.nan
    total = max(sum(variances.values()), LEAST)
    return float(stdtr(_freedom(variances, freedom), gap / math.sqrt(total)))


def _freedom(variances: dict[str, float], freedom: dict[str, float]) -> float:
    """Degrees of freedom of a sum of variances (Welch and Satterthwaite)."""
    total = sum(variances.values())
    loss = sum(v**2 / freedom[k] for k, v in variances.items())
    return min(total**2 / loss if loss > 0 else 1e6, 1e6)


def _needed(
    gap: float, variances: dict[str, float], freedom: dict[str, float], *, counts: dict[str, float]
) -> dict[str, float]:
    """Items, checkpoints and seeds that would settle the difference, each alone; NaN if their noise is unknown.

    `counts` has the present numbers. A share of the variance falls as 1 / count; the rest stays.
    """
    if not variances:
        return dict.fromkeys(counts, math.nan)
    allowed = (gap / float(stdtrit(_freedom(variances, freedom), SURE))) ** 2
    total = sum(variances.values())
    needed = dict.fromkeys(counts, math.nan)
    # another run is another checkpoint too
    shrinks = {"items": ("items",), "checkpoints": ("checkpoints",), "seeds": ("seeds", "checkpoints")}
    for source in variances:
        part = sum(variances.get(k, 0.0) for k in shrinks[source])
        left = allowed - (total - part)
        enough = counts[source] * max(part / left, 1.0) if left > 0 else math.inf
        needed[source] = float(math.ceil(enough)) if math.isfinite(enough) else enough
    return needed
