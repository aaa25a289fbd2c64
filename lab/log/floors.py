"""Would a floor below nominal chance help `stack`? Gain over all-token by floor, and by ways to choose one.

    python -m lab.log.floors TABLES [--split family]

TABLES is a folder as in `lab/table_folders.py`.
Each floor is a multiple of nominal chance, and one fit of `stack` for every fold and task. "picked": the floor of the
least squared error on left-out training families (mean over families), nominal unless another is 10% better.
"guarded": picked only where the mean of the lowest fifth of scores lies three standard errors of one score (500 items)
below chance. "averaged": forecasts weighted by error^-4. "from one fit": the floor that fits the left-out families'
log-odds of the nominal fit best, with a slope and an offset.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.special import logit

from benchcast.losses.dataset import Dataset
from benchcast.methods import METHODS
from benchcast.methods.law import fit_law
from benchcast.methods.task_fit import TaskFit
from benchcast.records import ModelInfo
from benchcast.splits import Fold, family_balanced, make_folds
from lab.table_folders import study_of_tables

FLOORS = (1.0, 0.85, 0.7, 0.5, 0.25, 0.0)  # multiples of nominal chance
PEERS = ("all-token", "label-token", "pls", "logistic-4", "salience")
LEAST_SAVING = 0.1
Forecast = Callable[[int, int], np.ndarray]  # of all models, for a fold and a task


def fit_floors(dataset: Dataset, folds: list[Fold]) -> dict[float, list[list[TaskFit]]]:
    fits = {}
    for floor in FLOORS:
        lowered = tuple(replace(task, chance=floor * task.chance) for task in dataset.tasks)
        fits[floor] = METHODS["stack"].learn(replace(dataset, tasks=lowered), folds)
    return fits


def left_out_error(fit: TaskFit) -> float:
    errors = fit.out_of_fold
    return float(family_balanced(errors.families) @ errors.errors**2)


def pick(error_of: dict[float, float]) -> float:
    best = min(error_of, key=lambda floor: error_of[floor])
    return best if error_of[best] < (1 - LEAST_SAVING) * error_of[1.0] else 1.0


def from_one_fit(fit: TaskFit, observed: np.ndarray, chance: float) -> float:
    """The floor under which a law of the nominal fit's left-out log-odds has the least error."""
    forecast = observed + fit.out_of_fold.errors
    z = logit(np.clip((forecast - chance) / (1 - chance), 1e-5, 1 - 1e-5))
    weight = family_balanced(fit.out_of_fold.families)
    errors = {}
    for floor in FLOORS:
        law = fit_law(-z, observed, floor * chance)
        errors[floor] = float(weight @ (law.accuracy(-z) - observed) ** 2)
    return pick(errors)


def is_below(dataset: Dataset, fold: Fold, t: int) -> bool:
    chance, scores = dataset.tasks[t].chance, dataset.accuracy[t]
    known = np.sort(scores[fold.seen & np.isfinite(scores)])
    lowest = known[: max(1, len(known) // 5)].mean()
    return bool(lowest < chance - 3 * math.sqrt(chance * (1 - chance) / 500))


def forecasts(dataset: Dataset, folds: list[Fold]) -> dict[str, Forecast]:
    index = {name: i for i, name in enumerate(dataset.models)}

    def of(fit: TaskFit) -> np.ndarray:
        return fit.forecast(dataset.nats, dataset.metadata)

    peers = {name: METHODS[name].learn(dataset, folds) for name in PEERS}
    fits = fit_floors(dataset, folds)

    def picked(f: int, t: int) -> np.ndarray:
        return of(fits[pick({floor: left_out_error(fits[floor][f][t]) for floor in FLOORS})][f][t])

    def guarded(f: int, t: int) -> np.ndarray:
        return picked(f, t) if is_below(dataset, folds[f], t) else of(fits[1.0][f][t])

    def averaged(f: int, t: int) -> np.ndarray:
        weight = np.array([left_out_error(fits[floor][f][t]) ** -4.0 for floor in FLOORS])
        return weight @ np.stack([of(fits[floor][f][t]) for floor in FLOORS]) / weight.sum()

    def cheap(f: int, t: int) -> np.ndarray:
        nominal = fits[1.0][f][t]
        observed = dataset.accuracy[t][[index[name] for name in nominal.out_of_fold.models]]
        return of(fits[from_one_fit(nominal, observed, dataset.tasks[t].chance)][f][t])

    def fixed(by_fold: list[list[TaskFit]]) -> Forecast:
        return lambda f, t: of(by_fold[f][t])

    ways = {name: fixed(by_fold) for name, by_fold in peers.items()}
    ways |= {f"stack, floor × {floor:g}": fixed(by_fold) for floor, by_fold in fits.items()}
    return ways | {"picked": picked, "guarded": guarded, "averaged": averaged, "from one fit": cheap}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("tables", type=Path)
    parser.add_argument("--split", default="family")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        dataset = study_of_tables(given.tables, Path(root) / "study").dataset()
    infos = [
        ModelInfo(m, f, p) for m, f, p in zip(dataset.models, dataset.families, dataset.metadata.params, strict=True)
    ]
    folds = make_folds(infos, given.split, groups=dataset.groups)[1]

    def squared_error(forecast: Forecast, t: int) -> float:
        scores = dataset.accuracy[t]
        tests = [fold.test & np.isfinite(scores) for fold in folds]
        return float(np.concatenate([(forecast(f, t)[k] - scores[k]) ** 2 for f, k in enumerate(tests)]).mean())

    tasks = range(len(dataset.tasks))
    errors = {way: np.array([squared_error(get, t) for t in tasks]) for way, get in forecasts(dataset, folds).items()}
    best = np.nanmin([errors[name] for name in PEERS[1:]], axis=0)
    print("way | gain | tasks 25% behind the best peer | root mean squared error of each task, in points")
    for way, error in errors.items():
        gain = math.exp(np.log(errors["all-token"] / error).mean())
        points = " ".join(f"{100 * math.sqrt(e):.2f}" for e in error)
        print(f"{way} | {gain:.2f} | {int((error > 1.25 * best).sum())} | {points}")


if __name__ == "__main__":
    main()
