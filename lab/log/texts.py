"""Ways to choose 50 texts: error ÷ error with all texts on the embedded study, both splits.

python -m lab.log.texts
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields

import numpy as np
from scipy.linalg import qr
from scipy.optimize import nnls

from benchcast.dataset import Dataset, Fold
from benchcast.datasets import load_zoo
from benchcast.folds import make_folds
from benchcast.methods import METHODS
from benchcast.methods.pertext import text_losses
from benchcast.records import Floats, Ints
from benchcast.selection.budgets import CHOSEN, RANDOM, SPREAD, FullTextFits, cost, pick, prepare
from benchcast.selection.choosing import LEAST_ERROR, TaskObjective, choose_texts, cut_fit
from benchcast.task_fit import TaskFit

BUDGET = 50
Choose = Callable[[Dataset, Fold, Sequence[TaskObjective]], Ints]


class Reproduce(TaskObjective):
    """Only give back the capability that all texts give."""

    def loss(self, sums: Floats) -> Floats:
        size = np.maximum(self.weight @ sums**2, 1e-300)
        return np.log(self.error + TaskObjective._left(self, self.capability, sums, size))


class Score(TaskObjective):
    """Only agree with the scores."""

    def loss(self, sums: Floats) -> Floats:
        size = np.maximum(self.weight @ sums**2, 1e-300)
        return np.log(np.maximum(TaskObjective._left(self, self.scored, sums, size), LEAST_ERROR))


def turned(objectives: Sequence[TaskObjective], kind: type[TaskObjective]) -> list[TaskObjective]:
    return [kind(*(getattr(g, f.name) for f in fields(TaskObjective))) for g in objectives]


def pursuit(objectives: Sequence[TaskObjective]) -> Ints:
    """Weights of single texts fitted anew at every step, not negative."""
    rooted = [(np.sqrt(g.weight)[:, None] * g.parts, np.sqrt(g.weight) * g.capability, g.error) for g in objectives]
    chosen: list[int] = []
    left = [y for _, y, _ in rooted]
    for _ in range(BUDGET):
        total = np.zeros(objectives[0].parts.shape[1])
        for (x, _, error), r in zip(rooted, left, strict=True):
            along = np.maximum(r @ x, 0.0) / np.maximum(np.linalg.norm(x, axis=0), 1e-300)
            total += np.log(error + np.maximum(r @ r - along**2, 0.0))
        total[chosen] = np.inf
        chosen.append(int(np.argmin(total)))
        left = [y - x[:, chosen] @ nnls(x[:, chosen], y)[0] for x, y, _ in rooted]
    return np.array(chosen)


def leverage(dataset: Dataset, fold: Fold) -> Ints:
    """Texts that span the models × texts matrix, one after the other (QR with pivots)."""
    x = text_losses(dataset)[fold.seen]
    scaled = (x - x.mean(axis=0)) / np.maximum(x.std(axis=0), 1e-12)
    return np.asarray(qr(scaled, mode="r", pivoting=True)[1][:BUDGET])


def disagreement(dataset: Dataset, objectives: Sequence[TaskObjective]) -> Ints:
    """The same number for each task: those whose weighted loss differs most between models."""
    ranked = [np.argsort(-(g.weight @ g.parts**2)) for g in objectives]
    turns = dict.fromkeys(int(r[i]) for i in range(BUDGET) for r in ranked)
    return np.array(list(turns)[:BUDGET])


WAYS: dict[str, Choose] = {
    "give back all texts' capability, and agree with scores (kept)": lambda e, f, g: choose_texts(g, BUDGET),
    "only give back all texts' capability": lambda e, f, g: choose_texts(turned(g, Reproduce), BUDGET),
    "only agree with scores": lambda e, f, g: choose_texts(turned(g, Score), BUDGET),
    "give back, each text with a weight of its own": lambda e, f, g: pursuit(g),
    "weighted losses that differ most between models": lambda e, f, g: disagreement(e, g),
    "leverage in models × texts": lambda e, f, g: leverage(e, f),
    "at random from each source": lambda e, f, g: pick(e, g, SPREAD, BUDGET, np.random.default_rng(0)),
    "at random": lambda e, f, g: pick(e, g, RANDOM, BUDGET, np.random.default_rng(0)),
}


def errors(dataset: Dataset, fold: Fold, fits: Sequence[TaskFit]) -> list[Floats]:
    metadata = dataset.metadata.take(fold.test)
    pairs = zip(fits, dataset.accuracy, strict=True)
    return [(fit.forecast(dataset.nats[fold.test], metadata) - a[fold.test]) ** 2 for fit, a in pairs]


def ratios(full_fits: FullTextFits, choose: Choose, full: dict[str, float]) -> tuple[float, float]:
    """Error ÷ error with all texts: of the fit cut down to the texts, and of a new fit on them."""
    cut, new = [], []
    for fold, row, objectives in zip(full_fits.folds, full_fits.fits, full_fits.objectives, strict=True):
        wanted = np.sort(choose(full_fits.dataset, fold, objectives))
        small = full_fits.dataset.for_texts(wanted)
        kept = [cut_fit(full_fits.dataset, fold, t, fit, wanted) for t, fit in enumerate(row)]
        cut.append(errors(small, fold, kept))
        new.append(errors(small, fold, METHODS["salience"](small, [fold])[0]))
    out = []
    for parts in (cut, new):
        mse = [np.mean(np.concatenate(p)) for p in zip(*parts, strict=True)]
        out.append(float(np.exp(np.mean(np.log(np.array(mse) / list(full.values()))))))
    return out[0], out[1]


def main() -> None:
    study = load_zoo()
    dataset = study.dataset()
    ratios_by_way: dict[str, list[float]] = {name: [] for name in WAYS}
    for split in ("size", "family"):
        full_fits = prepare(dataset, make_folds(study.infos(dataset.models), split)[1])
        full = cost(full_fits, CHOSEN, full_fits.texts).mse
        for name, choose in WAYS.items():
            ratios_by_way[name] += ratios(full_fits, choose, full)
    print(f"| {BUDGET} texts chosen by | size: cut | size: new fit | family: cut | family: new fit |")
    print("|---|---|---|---|---|")
    for name, row in ratios_by_way.items():
        print(f"| {name} | " + " | ".join(f"{x:.2f}" for x in row) + " |", flush=True)


if __name__ == "__main__":
    main()
