"""The zoo once more, with the log-likelihood of every option, and tables with choice losses made from it.

    python -m lab.log.zoo_choices train --out OUT --jobs 7 --deadline 540
    python -m lab.log.zoo_choices tables OUT FOLDER --columns texts --choices raw

`train` runs the frozen code and takes the options of `python -m lab.zoo.run train`: same models, same scores. OUT gets
one archive for each group of sizes. `--have` takes archives of earlier calls up again; runs in the work folder are not
repeated. The scorer is not trained, and the largest size comes last, so that a run that is cut off leaves whole
families of the smaller ones.

`tables` writes a folder as in `lab/table_folders.py`, and measures.csv with all measures of the scored options, both to
six digits; `tables OUT lab/log/zoo_tables --choices none` wrote the tables in the repository. Losses are in nats per
byte. With `--columns means` a column is the mean over the texts of a source (`text.facts`) or over
their answers (`answer.facts`), with `--columns texts` one text (`facts-0`) or its answer (`facts-0.answer`).
The log-likelihood of an option includes the end of the text behind it, as in the scores; for tracking it is that
behind the steps that the model wrote. Choice losses are in nats: `choice.raw` of log-likelihoods as they are,
`choice.char` of log-likelihoods per character of the bare option. `option` is the loss of the right option in nats per
character, which `--scored` adds to the losses on answers.

Axes: C checkpoints, S texts, I items, O options.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from lab.zoo import one, pool, run, score
from lab.zoo.data import validation
from lab.zoo.pool import work_loop as train_and_report
from lab.zoo.recipes import EMBEDDED, Recipe
from lab.zoo.run import choose_runs
from lab.zoo.score import PER_BYTE, choose
from lab.zoo.skills.common import Item

WORK = "zoo-choices-work"  # not that of the zoo, whose result files hold other arrays
OPTION_TASKS = tuple(name for name, skill in EMBEDDED.skills.items() if skill.scoring.endswith("choice"))
KINDS = {"none": (), "raw": ("raw",), "char": ("char",), "both": ("raw", "char")}
Floats = npt.NDArray[np.float64]


class ChoiceRecorder(one.Recorder):  # type: ignore[misc]  # the zoo is not checked
    """Keeps the losses of texts and answers instead of those of tokens, and the log-likelihood of each option."""

    def __init__(self, name: str, size: str, settings: one.Settings) -> None:
        super().__init__(name, size, settings)
        self.likelihoods: dict[str, list[npt.NDArray[np.float32]]] = {task: [] for task in OPTION_TASKS}
        score.choose = self.choose_and_keep

    def choose_and_keep(self, likelihood: Floats, items: list[Item], *, per_byte: bool) -> npt.NDArray[np.bool_]:
        (task,) = (name for name, scored in self.exam.items.items() if scored is items)
        self.likelihoods[task].append(likelihood.astype(np.float32))
        return choose(likelihood, items, per_byte=per_byte)

    def arrays(self, curve: npt.NDArray[np.float32], facts: dict[str, Any]) -> dict[str, npt.NDArray[Any]]:
        """`nats` (C, S, 2) of whole texts and answers, and `likelihood.TASK` (C, I, O)."""
        arrays = super().arrays(curve, facts)
        of_texts = nats_of_texts(arrays.pop("nats"), arrays.pop("counts"), arrays.pop("bounds"))
        likelihoods = {f"likelihood.{task}": np.stack(values) for task, values in self.likelihoods.items()}
        return {**arrays, "nats": of_texts.astype(np.float32), **likelihoods}


def nats_of_texts(nats: Floats, counts: npt.NDArray[np.int64], bounds: npt.NDArray[np.int32]) -> Floats:
    """Nats of each text and of its answer (C, S, 2); a token across the answer's start counts by its bytes."""
    split = np.split(nats.astype(np.float64), np.cumsum(counts)[:-1], 1), np.split(bounds, np.cumsum(counts + 1)[:-1])
    totals = np.zeros((len(nats), len(counts), 2))
    for s, (row, of_tokens, edges) in enumerate(zip(validation(EMBEDDED), *split, strict=True)):
        sums = np.pad(of_tokens.cumsum(1), ((0, 0), (1, 0)))
        before = [np.interp(row["answer_start"], edges, of_checkpoint) for of_checkpoint in sums]
        totals[:, s] = np.stack([sums[:, -1], sums[:, -1] - before], 1)
    return totals


def work_loop(connection: Connection) -> None:
    """The loop of the pool, in a process that records choice losses."""
    one.Recorder = ChoiceRecorder
    train_and_report(connection)


def largest_size_last(options: argparse.Namespace, recipe: Recipe) -> list[tuple[str, str]]:
    """Runs of the families: the longest first, but those of the largest size last."""
    *_, largest = recipe.sizes
    pairs = [pair for pair in choose_runs(options, recipe) if pair[0] != recipe.scorer.name]
    return sorted(pairs, key=lambda pair: bool(pair[1] == largest))


def train(arguments: Sequence[str]) -> int:
    """As `lab.zoo.run train`, with runs in another order and other result files."""
    pool.work_loop, run.choose_runs = work_loop, largest_size_last
    return run.main(["train", "--work", WORK, *arguments])


@cache
def scored_items(task: str, count: int) -> list[Item]:
    return EMBEDDED.skills[task].items("score", count)


def of_options(task: str, likelihood: npt.NDArray[np.float32]) -> dict[str, float]:
    """Means over the items of a task, of log-likelihoods (I, O)."""
    items = scored_items(task, len(likelihood))
    right = np.array([item.options.index(item.answer) for item in items])
    characters = np.array([[len(option.strip()) for option in item.options] for item in items])
    measures: dict[str, float] = {}
    for kind, values in {"raw": likelihood.astype(np.float64), "char": likelihood / characters}.items():
        at_right = torch.from_numpy(values).log_softmax(1).numpy()[np.arange(len(right)), right]
        measures[f"choice.{kind}"] = float(-at_right.mean())
        measures[f"accuracy.{kind}"] = float((values.argmax(1) == right).mean())
    measures["option"] = float(-(likelihood / characters)[np.arange(len(right)), right].mean())
    scored = choose(likelihood.astype(np.float64), items, per_byte=task in PER_BYTE)
    return {**measures, "accuracy.scored": float(scored.mean())}


def loss_columns(nats: Floats, columns: str) -> dict[str, float]:
    """Nats per byte (S, 2) as columns: of each text and answer, or their means over a source."""
    rows = validation(EMBEDDED)
    sizes = [len(str(row["text"]).encode()) for row in rows]
    per_byte = nats / np.array([(size, size - int(row["answer_start"])) for row, size in zip(rows, sizes, strict=True)])
    if columns == "texts":
        names = [name for row in rows for name in (str(row["id"]), f"{row['id']}.answer")]
        return dict(zip(names, per_byte.ravel().tolist(), strict=True))
    sources = np.array([row["source"] for row in rows])
    return {
        f"{part}.{source}": float(per_byte[sources == source, k].mean())
        for k, part in enumerate(("text", "answer"))
        for source in dict.fromkeys(sources.tolist())
    }


def answer_columns(task: str, columns: str) -> list[str]:
    sources = [task, f"{task}-cot"] if task in EMBEDDED.worked else [task]
    if columns == "means":
        return [f"answer.{source}" for source in sources]
    return [f"{row['id']}.answer" for row in validation(EMBEDDED) if row["source"] in sources]


def rounded(values: dict[str, float]) -> dict[str, str]:
    """Values as they are written."""
    return {name: f"{value:.6g}" for name, value in values.items()}


def models(out: Path) -> Iterator[tuple[dict[str, Any], Floats, dict[str, npt.NDArray[np.float32]]]]:
    """Row of models.csv with `right`, the scores; nats of texts; log-likelihoods of options: for each checkpoint."""
    from lab.zoo.pack import model_name, read_runs  # needs benchcast, which a machine that trains may lack

    for about, arrays in read_runs(out):
        assert about["texts_sha256"] == one.text_set_hash(EMBEDDED), f"{about['family']}-{about['size']}: other texts"
        for c, tokens in enumerate(arrays["tokens"].tolist()):
            accuracy = dict(zip(about["skills"], (arrays["right"][c] / about["items"]).tolist(), strict=True))
            row = {"model": model_name(about, tokens), "family": about["family"], "params": about["params"],
                   "tokens": tokens, "flops": f"{arrays['flops'][c]:.6g}", "scores": accuracy}  # fmt: skip
            yield row, arrays["nats"][c], {task: arrays[f"likelihood.{task}"][c] for task in OPTION_TASKS}


def tables(out: Path, folder: Path, *, columns: str, choices: str, scored: bool) -> None:
    """Write the folder of tables; `choices` and `scored` say which measures of scored options are columns."""
    measured = [*(f"choice.{kind}" for kind in KINDS[choices]), *(["option"] if scored else [])]
    written: dict[str, list[dict[str, Any]]] = {
        name: [] for name in ("losses", "models", "scores", "tasks", "measures")
    }
    for info, nats, likelihoods in models(out):
        name, accuracy = {"model": info["model"]}, info.pop("scores")
        measures = {task: of_options(task, values) for task, values in likelihoods.items()}
        for task, known in measures.items():
            assert np.isclose(known["accuracy.scored"], accuracy[task]), f"{info['model']}: other items of {task}"
        chosen = {f"{measure}.{task}": measures[task][measure] for measure in measured for task in OPTION_TASKS}
        written["models"].append(info)
        written["losses"].append({**name, **rounded({**loss_columns(nats, columns), **chosen})})
        written["scores"] += [{**name, "task": task, "accuracy": x} for task, x in accuracy.items()]
        written["measures"] += [{**name, "task": task, **rounded(known)} for task, known in measures.items()]
    for task, skill in EMBEDDED.skills.items():
        of_items = [f"{measure}.{task}" for measure in measured if task in OPTION_TASKS]
        answers = [*answer_columns(task, columns), *(name for name in of_items if name.startswith("option"))]
        of_choices = [name for name in of_items if name.startswith("choice")]
        row = {"task": task, "chance": skill.chance, "answer": " ".join(answers), "choice": " ".join(of_choices)}
        written["tasks"].append(row)
    folder.mkdir(parents=True, exist_ok=True)
    for title, rows in written.items():
        with (folder / f"{title}.csv").open("w", newline="") as file:
            table = csv.DictWriter(file, rows[0])
            table.writeheader()
            table.writerows(rows)
    print(json.dumps({title: len(rows) for title, rows in written.items()}))


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["train"]:
        return train(arguments[1:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=("train", "tables"))
    parser.add_argument("out", type=Path, help="folder with the results of `train`")
    parser.add_argument("folder", type=Path, help="folder to write")
    parser.add_argument("--columns", choices=("means", "texts"), default="means")
    parser.add_argument("--choices", choices=KINDS, default="both", help="which choice losses are columns")
    parser.add_argument("--scored", action="store_true", help="columns with the loss of scored right options, too")
    given = parser.parse_args(arguments)
    tables(given.out, given.folder, columns=given.columns, choices=given.choices, scored=given.scored)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
