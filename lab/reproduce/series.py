"""Figure 5: forecast the later checkpoints of a training run on a new mixture of data.

Two runs differ in their mixture. Models of all other families and the early checkpoints of both runs
train, the later checkpoints of one run validate, those of the other test; then the other way round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from benchcast.errors import NotEnoughDataError
from benchcast.evaluation.compare import noise_floor
from benchcast.losses.dataset import Dataset
from benchcast.methods import METHODS
from benchcast.methods.task_fit import TaskFit
from benchcast.records import Bools, ModelInfo
from benchcast.reports.charts import held_out_errors
from benchcast.splits import Fold
from lab.reproduce.context import StudyContext, pick_runs
from lab.reproduce.figures import series_figure
from lab.reproduce.laws import law_curves, law_points
from lab.reproduce.outcome import Outcome, Table, cell, geometric_mean

EARLY = 1 / 3  # of a run's training tokens
TRIED = ("salience", "paper", "label-token", "all-token")
PAPER_MSE = 1e-4  # section 4.2: "a mean squared error of 1e-4"


def early_checkpoints(infos: Sequence[ModelInfo]) -> Bools:
    """Models within the first third of their run; a run is one family at one size."""
    last: dict[tuple[str, float], float] = {}
    for m in infos:
        last[m.family, m.params] = max(last.get((m.family, m.params), 0.0), m.tokens)
    return np.array([m.tokens <= EARLY * last[m.family, m.params] for m in infos], bool)


def series_folds(
    families: npt.NDArray[np.str_], infos: Sequence[ModelInfo], pair: tuple[str, str]
) -> tuple[Fold, Fold]:
    """The first run validates and the second tests; then the other way round."""
    early = early_checkpoints(infos)
    first, second = (families == name for name in pair)
    for name, of_run in zip(pair, (first, second), strict=True):
        if not (of_run & early).any() or not (of_run & ~early).any():
            raise NotEnoughDataError(
                f"fig5 needs early and later checkpoints of {name}: {int((of_run & early).sum())} lie in the first "
                f"third of their run's tokens, {int((of_run & ~early).sum())} later (is `tokens` filled in models.csv?)"
            )
    train = ~(first | second) | early
    return Fold(train, first & ~early, second & ~early), Fold(train, second & ~early, first & ~early)


def fig5(context: StudyContext, runs: str | None = None) -> Outcome:
    """Test error on later checkpoints of each run, per task, beside the paper's."""
    dataset = context.dataset
    pair = pick_runs([str(f) for f in dataset.families], runs)
    folds = series_folds(dataset.families, context.infos, pair)
    tried = [m for m in TRIED if dataset.features is not None or not METHODS[m].needs_features]
    mse: dict[str, dict[str, dict[str, float]]] = {}
    kept: dict[str, list[list[TaskFit]]] = {}
    names = [t.name for t in dataset.tasks]
    for method in tried:
        context.on_step(method)
        kept[method] = METHODS[method].learn(dataset, folds)
        for tested, fold, fits in zip(pair[::-1], folds, kept[method], strict=True):
            errors = held_out_errors(dataset, fold, fits)
            mse.setdefault(tested, {})[method] = dict(zip(names, errors.tolist(), strict=True))
    noise = {
        tested: noise_floor(dataset, context.study.scores(), [fold])
        for tested, fold in zip(pair[::-1], folds, strict=True)
    }
    numbers: dict[str, Any] = {
        **context.about(),
        "runs": pair,
        "paper_mse": PAPER_MSE,
        "mse": mse,
        "noise_floor": noise,
        "geometric_mean": {
            t: {m: geometric_mean([*row.values()]) for m, row in by_method.items()} for t, by_method in mse.items()
        },
        "models": {tested: _members(dataset, fold) for tested, fold in zip(pair[::-1], folds, strict=True)},
    }
    figures = {}
    for i, fold in enumerate(folds):
        points = series_points(dataset, fold, kept[tried[0]][i], pair)
        curves = law_curves(points, kept[tried[0]][i])
        numbers.setdefault("points", {})[pair[1 - i]] = points
        figures["" if i == 0 else "-reverse"] = series_figure(points, curves, names)
    return Outcome("fig5", numbers, tuple(_table(mse[t], noise[t], t, pair) for t in pair[::-1]), figures)


def _members(dataset: Dataset, fold: Fold) -> dict[str, list[str]]:
    models = np.array(dataset.models)
    return {"train": [*models[fold.train]], "validation": [*models[fold.validation]], "test": [*models[fold.test]]}


def series_points(dataset: Dataset, fold: Fold, fits: Sequence[TaskFit], pair: tuple[str, str]) -> list[dict[str, Any]]:
    """Points of the law with the part each model plays."""
    rows = law_points(dataset, fold, fits)
    for row in rows:
        if row["role"] == "train":
            row["part"] = "early checkpoints" if row["family"] in pair else "other families"
        else:
            row["part"] = f"{row['role']} series"
    return sorted(rows, key=lambda r: r["part"] != "other families")


def _table(mse: dict[str, dict[str, float]], noise: dict[str, float], tested: str, pair: tuple[str, str]) -> Table:
    validated = pair[0] if tested == pair[1] else pair[1]
    rows = []
    for task in noise:
        errors = [row[task] for row in mse.values()]
        least = min(errors)
        rows.append((task, *(("*" if e == least else "") + cell(e) for e in errors), cell(noise[task]), "1e-4"))
    means = (geometric_mean([*row.values()]) for row in mse.values())
    rows.append(("geometric mean", *(cell(e) for e in means), cell(geometric_mean([*noise.values()])), ""))
    return Table(
        ("test MSE", *mse, "noise floor", "in the paper"),
        tuple(rows),
        f"later checkpoints of {tested}; {validated} validates",
    )
