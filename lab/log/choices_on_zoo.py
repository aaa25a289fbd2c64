"""What choice losses add on the zoo, and which kind: raw log-likelihoods of options, or per character.

    python -m lab.log.choices_on_zoo [--families N] [--tables FOLDER]

The tables in `zoo_tables` are of the 225 checkpoints of the zoo's recipe, trained again (`zoo_choices.py`): means of
losses over the texts and answers of each source, scores on 2,000 items of each task, and in measures.csv the choice
losses of both kinds, accuracies of both kinds, and `option`, the loss of the right option per character. The scores are
not those of the embedded study: training is not the same to the last bit. The first table says how far they differ.

Printed are errors on held-out families and sizes without choice losses and with those of each kind; the same on
checkpoints of unseen families from the first and second half of their runs; decisions between two families by their
smaller or earlier checkpoints, each forecast by a fit without the family of its model; and rank correlations. Gain is
the squared error of all-token over that of a method, geometric mean over tasks. `--tables` takes other tables of these
checkpoints, such as those of `zoo_choices tables OUT FOLDER --columns texts --choices none`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np

from benchcast import datasets
from benchcast.choices import Split
from benchcast.evaluation.compare import Execution, compare
from benchcast.evaluation.comparison import Comparison, HeldOutForecasts, geometric_mean, measure
from benchcast.evaluation.error_ratio import error_ratio
from benchcast.importers.loss_table import PublicStudyTables, column, number, read_rows, write_tables
from benchcast.methods import MethodName
from benchcast.records import Floats, Ints, ModelInfo
from benchcast.study.study import Study
from lab.decision_accuracy import accuracies_of
from lab.quality import intervals
from lab.reproduce.decisions import SCORE, find_pairs, judge
from lab.reproduce.document import as_markdown
from lab.reproduce.outcome import Table
from lab.table_folders import read_folder

TABLES = Path(__file__).with_name("zoo_tables")
ITEMS = 2000  # of each score
KINDS = {"none": "", "raw": "choice.raw", "per character": "choice.char"}  # measure that a study's choice losses are
SPLITS: tuple[Split, ...] = ("size", "family")
METHODS: tuple[MethodName, ...] = ("stack", "salience")
PLAIN: MethodName = "all-token"
WORKED = "tracking"  # its options are scored behind steps that the model wrote
LITTLE = 0.01  # of the compute of the largest models

Forecasts = Mapping[str, HeldOutForecasts]  # by task


@cache
def measures() -> dict[str, dict[str, dict[str, float]]]:
    """Measure → task → model → value, of the tasks with options."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for row in read_rows(TABLES / "measures.csv", ["model", "task"]):
        for name in row.keys() - {"model", "task"}:
            found.setdefault(name, {}).setdefault(row["task"], {})[row["model"]] = number(row[name])
    return found


def option_tasks() -> list[str]:
    """The tasks with options."""
    return list(measures()["choice.raw"])


def tables_with(measure: str, tables: PublicStudyTables, families: int) -> PublicStudyTables:
    """The tables of the first families, with a measure as the choice loss of each task with options, or with none."""
    known = list(dict.fromkeys(info.family for info in tables.models))[:families]
    models = [info for info in tables.models if info.family in known]
    names = {info.model for info in models}
    kept = replace(
        tables,
        models=models,
        losses={model: losses for model, losses in tables.losses.items() if model in names},
        scores=[replace(score, n_items=ITEMS) for score in tables.scores if score.model in names],
    )
    if not measure:
        return kept
    of_task = {task: f"choice.{task}" for task in option_tasks()}
    return replace(
        kept,
        columns=[*kept.columns, *(column(name, name, "") for name in of_task.values())],
        losses={
            model: [*losses, *(measures()[measure][task][model] for task in of_task)]
            for model, losses in kept.losses.items()
        },
        tasks=[replace(task, choices=(of_task[task.name],)) if task.name in of_task else task for task in kept.tasks],
    )


def studies(tables: Path, families: int, folder: Path) -> dict[str, Study]:
    """A study for each kind of choice losses, created in a folder."""
    read = read_folder(tables)
    return {
        kind: write_tables(folder / kind.replace(" ", "-"), tables_with(measure, read, families))
        for kind, measure in KINDS.items()
    }


def compared(study: Study, split: Split) -> Comparison:
    """`METHODS` and all-token on the held-out models of a split."""
    execution = Execution(keep_fits=False)
    return compare(study, split=split, methods=[*METHODS, PLAIN], device=execution)


def held_out(comparison: Comparison, method: str, among: frozenset[str] | None = None) -> Forecasts:
    """Held-out forecasts of a method by task; with `among`, of these models."""
    of_tasks = {task: comparison.held_out[task, method] for task in comparison.tasks}
    return of_tasks if among is None else {task: only(held, among) for task, held in of_tasks.items()}


def only(held: HeldOutForecasts, models: frozenset[str]) -> HeldOutForecasts:
    """The forecasts of some models."""
    keep = np.array([model in models for model in held.models])
    arrays = {
        name: getattr(held, name)[keep] for name in ("families", "observed", "forecast", "low", "high", "capability")
    }
    return replace(held, models=tuple(m for m in held.models if m in models), **arrays)


def error_table(title: str, comparisons: Mapping[str, Comparison], among: frozenset[str] | None = None) -> Table:
    """Gain, errors in points on tasks with options, and intervals, of each method with each kind of choice losses."""
    with_options = option_tasks()
    rows = []
    for method in METHODS:
        for kind, comparison in comparisons.items():
            held, plain = (held_out(comparison, m, among) for m in (method, PLAIN))
            squared, of_plain = (np.array([x[t].measures()["mse"] for t in x]) for x in (held, plain))
            options = np.isin(list(held), with_options)
            inside, _, _, score = intervals(dict(held))
            rows.append(
                (
                    f"{method}, {kind}",
                    f"{geometric_mean(list(of_plain / squared)):.2f}",
                    f"{geometric_mean(list((of_plain / squared)[options])):.2f}",
                    *(f"{100 * held[task].measures()['mse'] ** 0.5:.2f}" for task in with_options),
                    f"{inside.mean():.2f}",
                    f"{100 * score.mean():.1f}",
                )
            )
    errors = [f"RMSE of {task}" for task in with_options]
    header = ("method, choice losses", "gain", "gain, tasks with options", *errors, "coverage", "interval score")
    return Table(header, tuple(rows), title)


def ratio_table(parts: Mapping[str, Mapping[str, Comparison]], among: Mapping[str, frozenset[str]]) -> Table:
    """For each part, squared error on tasks with options without choice losses over that with them, and raw over the
    other kind; `among` has the models of a part that counts only some."""
    rows = []
    for part, comparisons in parts.items():
        for method in METHODS:
            held = {
                kind: {
                    task: found
                    for task, found in held_out(comparison, method, among.get(part)).items()
                    if task in option_tasks()
                }
                for kind, comparison in comparisons.items()
            }
            others = {
                kind: {task: x for task, x in of_kind.items() if task != WORKED} for kind, of_kind in held.items()
            }
            ratios = [error_ratio(held[old], held[new]) for old, new in combinations(KINDS, 2)]
            ratios.append(error_ratio(others["raw"], others["per character"]))
            rows.append((f"{part}, {method}", *(f"{r.value:.2f} ({r.low:.2f} – {r.high:.2f})" for r in ratios)))
    of_kinds = [f"{old} ÷ {new}" for old, new in combinations(KINDS, 2)]
    header = ("held out, method", *of_kinds, f"{of_kinds[-1]}, without {WORKED}")
    return Table(header, tuple(rows), "squared errors on tasks with options (90% interval over families)")


def run_ends(models: Sequence[ModelInfo]) -> dict[tuple[str, float], float]:
    """Tokens of the last checkpoint of each run, which is a family and a size."""
    ends: dict[tuple[str, float], float] = {}
    for info in models:
        ends[info.family, info.params] = max(ends.get((info.family, info.params), 0.0), info.tokens)
    return ends


def sizes(models: Sequence[ModelInfo]) -> Ints:
    """Number of the size of each model in its family, from the smallest (M)."""
    params = {family: sorted({m.params for m in models if m.family == family}) for family in {m.family for m in models}}
    return np.array([params[info.family].index(info.params) for info in models])


def halves(models: Sequence[ModelInfo]) -> dict[str, frozenset[str]]:
    """The checkpoints before half of the tokens of their run, and the others."""
    ends = run_ends(models)
    early = frozenset(info.model for info in models if info.tokens < ends[info.family, info.params] / 2)
    return {
        "family, first half of runs": early,
        "family, second half": frozenset(info.model for info in models) - early,
    }


def drift_table(study: Study) -> Table:
    """How far scores are from those of the embedded study, which was trained before."""
    before = {(s.model, s.task): s.accuracy for s in datasets.load_zoo().scores()}
    models = study.models()
    number_of_size = sizes(models)
    large = {info.model for info, k in zip(models, number_of_size, strict=True) if k == number_of_size.max()}
    rows = []
    for task in study.tasks:
        apart = {s.model: abs(s.accuracy - before[s.model, s.task]) for s in study.scores() if s.task == task.name}
        of_large = [x for model, x in apart.items() if model in large]
        cells = (f"{100 * float(np.mean(list(x))):.2f}" for x in (apart.values(), of_large))
        rows.append((task.name, *cells, f"{100 * max(apart.values()):.1f}"))
    header = ("task", "all checkpoints", "largest size", "most")
    return Table(header, tuple(rows), "mean absolute difference to the scores of the embedded study, in points")


def signals(study: Study, comparisons: Mapping[str, Comparison], t: int) -> dict[str, Floats]:
    """What can decide on task number `t`: scores, negative losses and forecasts of all models, higher is better."""
    dataset = study.dataset()
    task = dataset.tasks[t]
    of_answers = [text.id in task.answers for text in study.texts]
    found = {
        SCORE: dataset.accuracy[t],
        "loss of answers": -dataset.nats[:, of_answers].mean(axis=1),
        "all-token loss": -dataset.nats.mean(axis=1),
    }
    for kind, name in KINDS.items():
        if name:
            found[f"choice loss, {kind}"] = -np.array([measures()[name][task.name][m] for m in dataset.models])
    for method in METHODS:
        for kind, comparison in comparisons.items():
            held = comparison.held_out[task.name, method]
            forecast = dict(zip(held.models, held.forecast.tolist(), strict=True))
            found[f"{method}, {kind}"] = np.array([forecast[m] for m in dataset.models])
    return found


def decision_table(study: Study, comparisons: Mapping[str, Comparison]) -> Table:
    """Right decisions between two families on tasks with options, by signal."""
    dataset = study.dataset()
    numbers = [t for t, task in enumerate(dataset.tasks) if task.name in option_tasks()]
    known = {t: signals(study, comparisons, t) for t in numbers}
    rows: dict[str, dict[str, list[float]]] = {}
    for pair in find_pairs(dataset):
        most = max(dataset.metadata.flops[list(pair.largest)])
        for t in numbers:
            for row in judge(dataset, pair, t, known[t]):
                by_column = rows.setdefault(row["signal"], {})
                part = "little compute" if row["flops"] < LITTLE * most else "more compute"
                for name in (part, row["task"]):
                    by_column.setdefault(name, []).append(row["right"])
    columns = ("little compute", "more compute", *option_tasks())
    lines = [
        (
            found.signal,
            f"{found.right:.1%}",
            *(f"{found.by_task.get(name, np.nan):.1%}" for name in columns),
        )
        for found in accuracies_of(rows)
    ]
    count = {name: len(next(iter(rows.values())).get(name, [])) for name in columns}
    header = ("signal", "all", *(f"{name} ({count[name]})" for name in columns))
    title = f"right decisions (their number); little compute: below {LITTLE:.0%} of that of the largest models"
    return Table(header, tuple(lines), title)


def rank_correlation(loss: Floats, accuracy: Floats) -> float:
    """Spearman's rank correlation of a negative loss with an accuracy; NaN where all of one are the same."""
    return measure(accuracy, -loss, low=-loss, high=-loss)["spearman"]


def correlation_table(study: Study) -> Table:
    """Rank correlation of negative losses with accuracies: of all checkpoints, and of the last ones of each size."""
    models = study.models()
    ends, number_of_size = run_ends(models), sizes(models)
    last = np.array([info.tokens == ends[info.family, info.params] for info in models])
    groups = [last & (number_of_size == k) for k in np.unique(number_of_size)]
    values = {
        name: {task: np.array([of_task[info.model] for info in models]) for task, of_task in of_tasks.items()}
        for name, of_tasks in measures().items()
    }
    rows = []
    for task in option_tasks():
        for kind in ("raw", "char"):
            accuracy = values[f"accuracy.{kind}"][task]
            cells = []
            for loss in ("choice.raw", "choice.char", "option"):
                of_loss = values[loss][task]
                of_sizes = [rank_correlation(of_loss[group], accuracy[group]) for group in groups]
                cells += [f"{rank_correlation(of_loss, accuracy):.3f}", f"{np.mean(of_sizes):.2f}"]
            scored = " (the score)" if np.array_equal(accuracy, values["accuracy.scored"][task]) else ""
            rows.append((f"{task}, {kind}{scored}", *cells))
    losses = ("choice loss, raw", "per character", "loss of the right option")
    header = ("task, accuracy", *(name for loss in losses for name in (loss, "last of a size")))
    return Table(header, tuple(rows), "rank correlation of negative losses with accuracies")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print all tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", type=int, default=9, help="the first ones only, for a dry run")
    parser.add_argument("--tables", type=Path, default=TABLES, help="folder with other columns of losses")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        of_kind = studies(given.tables, given.families, Path(folder))
        plain = of_kind["none"]
        print(as_markdown(drift_table(plain)), as_markdown(correlation_table(plain)), sep="\n\n", flush=True)
        parts: dict[str, dict[str, Comparison]] = {}
        for split in SPLITS:
            parts[split] = {kind: compared(study, split) for kind, study in of_kind.items()}
            print("", as_markdown(error_table(f"held out by {split}", parts[split])), sep="\n", flush=True)
        by_half = halves(plain.models())
        for half, models in by_half.items():
            parts[half] = parts["family"]
            print("", as_markdown(error_table(f"held out by {half}", parts[half], models)), sep="\n")
        print("", as_markdown(ratio_table(parts, by_half)), sep="\n")
        print("", as_markdown(decision_table(plain, parts["family"])), sep="\n")


if __name__ == "__main__":
    main()
