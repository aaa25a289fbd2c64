"""Decision accuracy (DataDecide): how often small models order two recipes as the large models do.

    zoo_decisions(datasets.load_zoo())          small checkpoints → the largest models of each family
    dclm_decisions(datasets.fetch("dclm"))      1B recipes → scores of 7B models, with all 7B scores of the raw file

Each returns the share of right decisions for every signal: the small models' own scores, their all-token and
label-token losses, and their forecasts, which never saw the family of the model.

    python -m lab.decision_accuracy
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from benchcast import datasets
from benchcast.datasets import dclm
from benchcast.datasets.download import data_folder, fetch_files, public_files
from benchcast.evaluation.compare import compare
from benchcast.importers.loss_table import number, read_rows
from benchcast.methods import MethodName
from benchcast.study.study import Study
from lab.reproduce.context import StudyContext
from lab.reproduce.decisions import SCORE, decide, find_pairs

SMALL, LARGE = (1.44e9, 28.8e9), (6.89e9, 137.8e9)  # params and tokens of the compared models
NEAR = 0.05  # relative difference that counts as the same size
FORECASTS: tuple[MethodName, ...] = ("salience", "stack")
Values = Mapping[str, float]  # recipe → value, higher is better


@dataclass(frozen=True, slots=True)
class DecisionAccuracy:
    """Share of right decisions of one signal, over all tasks and for each task."""

    signal: str
    right: float
    decisions: int
    by_task: dict[str, float]


def decided_right(signal: Values, target: Values) -> list[float]:
    """For each pair of recipes with both values: 1 if the signal has the order of the target, 0 if not, 0.5 if equal.

    Pairs with equal targets are left out.
    """
    recipes = [r for r in target if r in signal and np.isfinite(signal[r]) and np.isfinite(target[r])]
    signs = [
        (np.sign(signal[a] - signal[b]), np.sign(target[a] - target[b])) for a, b in combinations(sorted(recipes), 2)
    ]
    return [float((1 + said * true) / 2) for said, true in signs if true]


def accuracies_of(rows: Mapping[str, Mapping[str, Sequence[float]]]) -> list[DecisionAccuracy]:
    """From signal → task → decisions."""
    accuracies = []
    for signal, by_task in rows.items():
        all_decisions = [x for decisions in by_task.values() for x in decisions]
        means = {task: float(np.mean(x)) for task, x in by_task.items() if x}
        accuracies.append(DecisionAccuracy(signal, float(np.mean(all_decisions)), len(all_decisions), means))
    return accuracies


def zoo_decisions(study: Study) -> list[DecisionAccuracy]:
    """Decisions between two families of a study by smaller checkpoints of like size and compute.

    Pairs whose largest models differ by less than the noise of their scores are left out.
    """
    context = StudyContext(study)
    rows: dict[str, dict[str, list[float]]] = {}
    for row in decide(context.dataset, find_pairs(context.dataset), context):
        rows.setdefault(row["signal"], {}).setdefault(row["task"], []).append(row["right"])
    return accuracies_of(rows)


def dclm_decisions(
    study: Study, *, data_home: str | Path | None = None, methods: Sequence[MethodName] = FORECASTS
) -> list[DecisionAccuracy]:
    """Decisions between data recipes at 7B by their 1B models.

    Parameters
    ----------
    study : `datasets.fetch("dclm")`
    data_home : folder with the public files; None: as for `datasets.fetch`
    methods : methods whose forecasts are signals; each forecast is by a fit without the family of its model
    """
    raw = data_folder(data_home)
    fetch_files(public_files("dclm"), raw, lambda path: None)
    target = large_scores(raw)
    signals = small_signals(study)
    for method in methods:
        comparison = compare(study, split="family", methods=[method])
        for task in comparison.tasks:
            held = comparison.held_out[task, method]
            values = dict(zip(held.models, held.forecast.tolist(), strict=True))
            signals.setdefault(f"forecast, {method}", {})[task] = by_recipe(study, values)
    rows = {
        name: {task: decided_right(values, target[task]) for task, values in by_task.items() if task in target}
        for name, by_task in signals.items()
    }
    return accuracies_of(rows)


def large_scores(raw: Path) -> dict[str, dict[str, float]]:
    """Task → recipe → mean score of all 7B models in the raw file that were trained for one Chinchilla length."""
    scores: dict[str, dict[str, list[float]]] = {task: {} for task in dclm.TASKS}
    for row in read_rows(raw / dclm.FILE, ["Dataset", "params", "tokens", *dclm.TASKS]):
        if _is(LARGE, number(row["params"]), number(row["tokens"])):
            recipe = row["Dataset"].removesuffix(".json").replace("=", "_")
            for task in dclm.TASKS:
                if row[task]:
                    scores[task].setdefault(recipe, []).append(float(row[task]))
    return {task: {r: float(np.mean(x)) for r, x in by_recipe.items()} for task, by_recipe in scores.items()}


def _is(wanted: tuple[float, float], params: float, tokens: float) -> bool:
    return abs(params / wanted[0] - 1) < NEAR and abs(tokens / wanted[1] - 1) < NEAR


def small_signals(study: Study) -> dict[str, dict[str, dict[str, float]]]:
    """Signal → task → recipe → value of its 1B models: scores, and negative losses on all columns and on answers."""
    scores = study.scores()
    losses = {m: study.losses(m).nats for m in study.models_with_losses()}
    column = {t.id: i for i, t in enumerate(study.texts)}
    signals: dict[str, dict[str, dict[str, float]]] = {SCORE: {}, "all-token loss": {}, "label-token loss": {}}
    for task in study.tasks:
        answers = [column[name] for name in task.answers]
        signals[SCORE][task.name] = by_recipe(study, {s.model: s.accuracy for s in scores if s.task == task.name})
        all_tokens = by_recipe(study, {m: -float(np.mean(x)) for m, x in losses.items()})
        signals["all-token loss"][task.name] = all_tokens
        signals["label-token loss"][task.name] = by_recipe(
            study, {m: -float(x[answers].mean()) for m, x in losses.items()}
        )
    return signals


def by_recipe(study: Study, values: Mapping[str, float]) -> dict[str, float]:
    """Recipe → mean over its 1B models."""
    values_by_recipe: dict[str, list[float]] = {}
    for info in study.models():
        if info.model in values and _is(SMALL, info.params, info.tokens):
            values_by_recipe.setdefault(info.model.rpartition("/")[0], []).append(values[info.model])
    return {recipe: float(np.mean(x)) for recipe, x in values_by_recipe.items()}


def lines(accuracies: Sequence[DecisionAccuracy]) -> list[str]:
    """The accuracies as text."""
    return [f"{x.signal:20} {x.right:6.1%} of {x.decisions} decisions" for x in accuracies]


if __name__ == "__main__":
    for name, accuracies in (
        ("dclm", dclm_decisions(datasets.fetch("dclm"))),
        ("zoo", zoo_decisions(datasets.load_zoo())),
    ):
        print("\n".join([name, *lines(accuracies)]))  # noqa: T201
