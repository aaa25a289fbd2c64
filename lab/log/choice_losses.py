"""What choice losses add on the OLMo ladder: `stack` with and without them, chosen on models up to 3B.

    python -m lab.log.choice_losses [--final]
    python -m lab.log.choice_losses --logs FOLDER

A row has the gain over all-token, and mean absolute errors in points: of all test models, of those from before half of
the tokens of their run, and of the two models that the ladder was made for; first without, then with choice losses.
Trained up to 760M or 370M and tested above, and every size up to 3B left out in turn; with `--final` also the 7B and
13B models from those up to 3B, which no choice may rest on. The last lines compare BoolQ with the curve of a
calibrated answerer: one who is right as often as it is sure, whose certainty of yes and no is spread normally.

With `--logs`, instead, a table of models that lm-evaluation-harness evaluated (`real_logs.py` makes such logs): each
model is left out in turn, and forecast from the others.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchcast import ImportOptions, create_from_logs, datasets
from benchcast.losses.dataset import Dataset
from benchcast.methods import MethodName
from benchcast.methods.spec import fit_method
from benchcast.records import CHOICE_COLUMN, Bools, Floats, ModelInfo
from benchcast.splits import Fold
from lab.reproduce.document import as_markdown
from lab.reproduce.outcome import Table

SIZES = ("190M", "370M", "760M", "1B", "3B")
SIMPLE: tuple[MethodName, ...] = ("constant", "all-token")
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


def errors(dataset: Dataset, fold: Fold, method: MethodName) -> Floats:
    """Forecast minus score of the test models (T × models)."""
    test = np.flatnonzero(fold.test)
    fits = fit_method(method, dataset, [fold])[0]
    forecasts = np.stack([fit.forecast(dataset.nats[test], dataset.metadata.take(test)) for fit in fits])
    return forecasts - dataset.accuracy[:, test]


def points(errors: Floats) -> str:
    """Mean absolute error in points."""
    return f"{100 * np.nanmean(np.abs(errors)):.2f}"


def early_checkpoints(models: Sequence[ModelInfo]) -> Bools:
    """Models from before half of the tokens of their run, which is named up to the @."""
    ends: dict[str, float] = {}
    for info in models:
        run = info.model.partition("@")[0]
        ends[run] = max(ends.get(run, 0.0), info.tokens)
    return np.array([info.tokens < ends[info.model.partition("@")[0]] / 2 for info in models])


def leave_one_out(logs: Path) -> Table:
    """Mean absolute errors in points on each model of a folder of logs, forecast from the others."""
    with tempfile.TemporaryDirectory() as folder:
        options = ImportOptions(allow_limit=True)
        dataset = create_from_logs(Path(folder) / "study", logs, options=options).study.dataset()
    one_out = ~np.eye(len(dataset.models), dtype=bool)
    folds = [Fold(train, np.zeros_like(train), ~train) for train in one_out]
    raw = replace(dataset, choices=replace(dataset.choices, name="choice"))
    variants = {"none": dataset.without_choices(), "raw": raw, "per character": dataset}
    found: dict[str, Floats] = {name: np.hstack([errors(dataset, fold, name) for fold in folds]) for name in SIMPLE}
    for method in ("stack", "salience"):
        for kind, variant in variants.items():
            found[f"{method}, {kind}"] = np.hstack([errors(variant, fold, method) for fold in folds])
    rows = [(task.name, *(points(x[t]) for x in found.values())) for t, task in enumerate(dataset.tasks)]
    rows.append(("all", *(points(x) for x in found.values())))
    return Table(("task", *found), tuple(rows), f"mean absolute error in points, {len(dataset.models)} models")


def calibrated_accuracy(loss: Floats) -> Floats:
    """Accuracy on two options of a calibrated answerer with these losses; its log-odds are normal around 0."""
    z = np.linspace(-6, 6, 4001)
    weight = np.exp(-z * z / 2) / np.exp(-z * z / 2).sum()
    right = [1 / (1 + np.exp(-np.abs(s * z))) for s in np.geomspace(0.05, 12, 200)]
    losses = [-(weight * (p * np.log(p) + (1 - p) * np.log1p(-np.minimum(p, 1 - 1e-12)))).sum() for p in right]
    return np.asarray(np.interp(loss, losses[::-1], [float(weight @ p) for p in right][::-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--final", action="store_true")
    parser.add_argument("--logs", type=Path, help="output of lm-evaluation-harness for some models")
    given = parser.parse_args()
    if given.logs:
        print(as_markdown(leave_one_out(given.logs)))
    else:
        on_the_ladder(final=given.final)


def on_the_ladder(*, final: bool) -> None:
    """Print a line for each question, and how far BoolQ is from a calibrated answerer."""
    study = datasets.fetch("olmo-ladder-choice")
    dataset = study.dataset()
    infos = study.infos(dataset.models)
    sizes, early = np.array([m.family for m in infos]), early_checkpoints(infos)
    for name, fold in folds(sizes, final=final).items():
        plain = (errors(dataset, fold, "all-token") ** 2).mean(axis=1)
        row = [name]
        for variant in (dataset.without_choices(), dataset):
            of_stack = errors(variant, fold, "stack")
            row.append(f"{np.exp(np.log(plain / (of_stack**2).mean(axis=1)).mean()):.2f}")
            row += [points(of_stack), points(of_stack[:, early[fold.test]])]
            names = [dataset.models[i] for i in np.flatnonzero(fold.test)]
            row += [points(of_stack[:, [names.index(m)]]) for m in LARGE if m in names]
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
