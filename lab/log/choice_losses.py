"""What choice losses add on the OLMo ladder: `stack` with and without them, chosen on models up to 3B.

    python -m lab.log.choice_losses [--final]

Trained up to 760M or 370M and tested above, and every size up to 3B left out in turn; with `--final` also the 7B and
13B models from those up to 3B, which no choice may rest on. The last lines compare BoolQ with the curve of a
calibrated answerer: one who is right as often as it is sure, whose certainty of yes and no is spread normally.
"""

from __future__ import annotations

import argparse

import numpy as np

from benchcast import datasets
from benchcast.losses.dataset import Dataset
from benchcast.methods.spec import fit_method
from benchcast.records import CHOICE_COLUMN
from benchcast.splits import Fold

SIZES = ("190M", "370M", "760M", "1B", "3B")
LARGE = datasets.DATASETS["olmo-ladder"].targets


def folds(sizes: np.ndarray, *, final: bool) -> dict[str, Fold]:
    """Training, validation and test models of each question."""

    def fold(train: tuple[str, ...], validation: tuple[str, ...], test: tuple[str, ...]) -> Fold:
        return Fold(*(np.isin(sizes, names) for names in (train, validation, test)))

    questions = {
        "3B from 760M": fold(SIZES[:3], ("1B",), ("3B",)),
        "1B and 3B from 370M": fold(SIZES[:2], ("760M",), ("1B", "3B")),
        **{f"{size} left out": fold(tuple(s for s in SIZES if s != size), (), (size,)) for size in SIZES},
    }
    return questions | ({"7B and 13B": fold(SIZES[:4], ("3B",), ("peteish7", "peteish13"))} if final else {})


def errors(dataset: Dataset, fold: Fold, method: str) -> np.ndarray:
    """Forecast minus score of the test models (T × models)."""
    test = np.flatnonzero(fold.test)
    fits = fit_method(method, dataset, [fold])[0]
    forecasts = np.stack([fit.forecast(dataset.nats[test], dataset.metadata.take(test)) for fit in fits])
    return forecasts - dataset.accuracy[:, test]


def calibrated_accuracy(loss: np.ndarray) -> np.ndarray:
    """Accuracy on two options of a calibrated answerer with these losses; its log-odds are normal around 0."""
    z = np.linspace(-6, 6, 4001)
    weight = np.exp(-z * z / 2) / np.exp(-z * z / 2).sum()
    right = [1 / (1 + np.exp(-np.abs(s * z))) for s in np.geomspace(0.05, 12, 200)]
    losses = [-(weight * (p * np.log(p) + (1 - p) * np.log1p(-np.minimum(p, 1 - 1e-12)))).sum() for p in right]
    return np.asarray(np.interp(loss, losses[::-1], [float(weight @ p) for p in right][::-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--final", action="store_true")
    final = parser.parse_args().final
    study = datasets.fetch("olmo-ladder-choice")
    dataset = study.dataset()
    sizes = np.array([m.family for m in study.infos(dataset.models)])
    for name, fold in folds(sizes, final=final).items():
        plain = (errors(dataset, fold, "all-token") ** 2).mean(axis=1)
        row = [name]
        for variant in (dataset.without_choices(), dataset):
            of_stack = errors(variant, fold, "stack")
            row.append(f"{np.exp(np.log(plain / (of_stack**2).mean(axis=1)).mean()):.2f}")
            names = [dataset.models[i] for i in np.flatnonzero(fold.test)]
            row += [f"{100 * np.abs(of_stack[:, names.index(m)]).mean():.2f}" for m in LARGE if m in names]
        print(" | ".join(row), flush=True)
    task = [t.name for t in dataset.tasks].index("boolq_val")
    column = [t.id for t in study.texts].index("choice.boolq_val")
    assert dataset.metadata.choices is not None
    loss = dataset.metadata.choices[CHOICE_COLUMN][:, column]
    for size in dict.fromkeys(sizes) if final else SIZES:
        of_size = (sizes == size) & (loss < np.log(2))
        apart = dataset.accuracy[task, of_size] - calibrated_accuracy(loss[of_size])
        print(
            f"BoolQ {size}: {100 * apart.mean():+.1f} points above the calibrated answerer, sd {100 * apart.std():.1f}"
        )


if __name__ == "__main__":
    main()
