"""What reading losses in another way does, on the embedded study: baselines and `salience`, both splits.

    python -m lab.log.views

Prints the gain over all-token loss: geometric mean over tasks of all-token error ÷ the method's error.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from benchcast import dataset as dataset_module
from benchcast.dataset import Dataset, Fold
from benchcast.datasets import load_zoo
from benchcast.folds import make_folds
from benchcast.methods import METHODS
from benchcast.predictors import VIEWS, LossView
from benchcast.task_fit import TaskFit

READINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "nats": lambda x: x,
    "saturated, x / (1 + x)": lambda x: x / (1 + x),
    "1 − exp(−x)": lambda x: 1 - np.exp(-x),
    "square root": np.sqrt,
    "at most 2 nats": lambda x: np.minimum(x, 2),
}


def errors(fits: Sequence[Sequence[TaskFit]], dataset: Dataset, folds: Sequence[Fold]) -> np.ndarray:
    """Test error of every task, folds pooled."""
    squares = [
        [
            (f.forecast(dataset.nats[fold.test], dataset.metadata.take(fold.test)) - a[fold.test]) ** 2
            for f, a in zip(row, dataset.accuracy, strict=True)
        ]
        for fold, row in zip(folds, fits, strict=True)
    ]
    return np.array([np.concatenate(task).mean() for task in zip(*squares, strict=True)])


def main() -> None:
    study = load_zoo()
    dataset = study.dataset()
    for split in ("size", "family"):
        _, folds = make_folds(study.infos(dataset.models), split)
        plain = errors(METHODS["all-token"](dataset, folds), dataset, folds)
        print(f"\nsplit by {split}\n| reading | method | gain | by task |\n|---|---|---|---|")

        def show(reading: str, method: str, squared: np.ndarray, plain: np.ndarray = plain) -> None:
            gain = plain / squared
            cells = " ".join(f"{g:.2f}" for g in gain)
            print(f"| {reading} | {method} | {np.exp(np.log(gain).mean()):.2f} | {cells} |", flush=True)

        for reading, function in READINGS.items():
            changed = replace(dataset, nats=function(dataset.nats).astype(np.float32))
            for method in ("all-token", "source-token", "label-token"):
                show(reading, method, errors(METHODS[method](changed, folds), changed, folds))
        for views in ((LossView.NATS,), (LossView.SATURATED,), VIEWS):
            setattr(dataset_module, "VIEWS", views)  # noqa: B010
            show(" and ".join(views), "salience", errors(METHODS["salience"](dataset, folds), dataset, folds))


if __name__ == "__main__":
    main()
