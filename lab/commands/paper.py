"""`plan`, `cluster` and `baselines`: the paper's 59 models, what they cost, and what their scores alone tell."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchcast.choices import SPLITS
from benchcast.cli.output import print_json, print_table, say
from benchcast.messages import number

if TYPE_CHECKING:
    from benchcast.choices import Split
    from benchcast.records import ModelInfo
    from lab.paper.observational import BaselineRow


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--data", type=click.Path(path_type=Path), help="Folder with the benchmarks' files; makes the study too.")
@click.option(
    "--model", "backend", default="vllm", show_default=True, help="Backend for all models: vllm, lmdeploy or hf."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the draw of texts.")
@click.option("--stand-ins", is_flag=True, help="Add tiny models under the same names, to rehearse on a CPU.")
def plan(out: Path, data: Path | None, backend: str, seed: int, stand_ins: bool) -> None:
    """Write a study of the paper's 59 models and the commands that fill it, with their cost.

    \b
    python -m lab plan table1 --data benchmarks
    sh table1/commands.sh

    A rehearsal of the same commands on a CPU, with tiny models in place of the 59:

    \b
    python -m lab plan rehearsal --data benchmarks --model hf --stand-ins
    WEIGHTS=stand-ins/ sh rehearsal/commands.sh
    """
    from lab.paper.plan import STAND_INS, describe, write_plan

    cost = write_plan(out, data, seed=seed, backend=backend, stand_ins=stand_ins)
    written = [*(["study"] if data else []), "models.csv", "scores.csv", *([STAND_INS] if stand_ins else [])]
    say(f"{out}: {', '.join(written)} and commands.sh")
    say("The real models: " + describe(cost) if stand_ins else describe(cost))
    settings = f"{'' if data else 'BENCHMARKS=FOLDER '}{f'WEIGHTS={STAND_INS}/ ' if stand_ins else ''}"
    say(f"next: {settings}sh {out / 'commands.sh'}")


def _counts(context: click.Context, option: click.Parameter, value: str) -> list[int]:
    parts = [part.strip() for part in value.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) for part in parts):
        raise click.BadParameter(f"{value!r}; whole numbers with commas between are needed, such as 8,64,512")
    return [int(part) for part in parts]


@click.command()
@click.option("--gpus", default="8,64,512", show_default=True, callback=_counts, help="GPUs of each cluster.")
@click.option("--price", type=click.FloatRange(min=0), default=2.5, show_default=True, help="Of a GPU for an hour.")
@click.option("--read", type=click.FloatRange(min=0.001), default=1.0, show_default=True, help="GB/s a worker reads.")
@click.option(
    "--texts", type=click.FloatRange(0.001, 100), help="MB of texts. Default: about what the paper's mix has."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def cluster(gpus: list[int], price: float, read: float, texts: float | None, as_json: bool) -> None:
    """Hours and cost of the paper's 59 models on clusters of several sizes, by calculation.

    \b
    python -m lab cluster --gpus 8,64,512 --price 2.5
    python -m lab cluster --read 5 --texts 50
    """
    from dataclasses import asdict

    from lab.paper import plan as assumed
    from lab.paper.cluster import Pace, mixture_bytes, simulate
    from lab.paper.models import paper_models

    models, size = paper_models(), texts * 1e6 if texts else mixture_bytes()
    outcomes = [simulate(models, size, count, Pace(read=read * 1e9)) for count in gpus]
    if as_json:
        print_json([{**asdict(o), "cost": o.gpus * o.hours * price} for o in outcomes])
        return
    say(
        f"{len(models)} models, {size / 1e6:.2f} MB of texts at {assumed.BYTES_PER_TOKEN:g} bytes a token, weights in "
        f"bfloat16, {assumed.START_SECONDS:g} s to start a worker,\n{read:g} GB/s to read weights, 2 FLOPs a parameter "
        f"and token at {assumed.FLOPS_PER_SECOND / 1e12:g} TFLOP/s a GPU, 80 GB GPUs, 8 to a node, {price:g} a GPU hour"
    )
    rows = [
        (f"{o.gpus}", f"{o.hours:.2f}", f"{o.gpus * o.hours * price:,.0f}", f"{o.workers}", f"{o.busy:.0%}",
         f"{o.loading:.0%}")
        for o in outcomes
    ]  # fmt: skip
    print_table(("GPUs", "hours", "cost", "workers started", "GPUs in use", "of that, loading"), rows)


@click.command()
@click.option("--data", type=click.Path(path_type=Path), required=True, help="Folder with the benchmarks' files.")
@click.option("--tokenizer", type=click.Path(path_type=Path), required=True, help="A tokenizer.json.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def reading(data: Path, tokenizer: Path, as_json: bool) -> None:
    """Tokens that a model reads for a forecast, and for the six benchmarks; pieces of their files are enough.

    \b
    python -m lab reading --data benchmarks --tokenizer SmolLM2-135M/tokenizer.json
    """
    from dataclasses import asdict

    from lab.paper.reading import read_tokens

    texts, tokens, rows = read_tokens(data, tokenizer)
    total = sum(row.tokens for row in rows)
    if as_json:
        print_json({"texts": texts, "tokens": tokens, "benchmarks": [asdict(r) | {"tokens": r.tokens} for r in rows]})
        return
    table = [
        (r.name, f"{r.items:,}", f"{r.shots}", f"{r.item_tokens:.0f}", f"{r.shot_tokens:.0f}", f"{r.tokens / 1e6:.2f}",
         f"{r.files_items:,}")
        for r in rows
    ]  # fmt: skip
    header = ("benchmark", "items", "shots", "tokens of an item", "of a shot", "million tokens", "items counted")
    print_table(header, table)
    say(
        f"the {texts} texts of a forecast: {tokens:,} tokens; the six benchmarks: {total / 1e6:.1f} million, "
        f"{total / tokens:,.0f} times as many"
    )


@click.command()
@click.argument("study", type=click.Path(path_type=Path), required=False)
@click.option("--split", type=click.Choice(SPLITS), default="auto", show_default=True, help="As in compare.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def baselines(study: Path | None, split: Split, as_json: bool) -> None:
    """Forecasts that need no losses: the mean score, and the other benchmarks' scores (observational).

    Without a study, on the paper's own Tables 2 to 4, beside its Table 1.

    \b
    python -m lab baselines
    python -m lab baselines study --split family
    """
    from benchcast.messages import nan_to_none
    from benchcast.study.study import Study
    from lab.paper.models import paper_models, paper_scores, paper_tasks
    from lab.paper.observational import baselines as compute

    if study is None:
        name, rows = compute(paper_models(), paper_scores(), paper_tasks(), split=split)
    else:
        opened = Study.open(study)
        scores = opened.scores()
        scored = {s.model for s in scores}
        models = [m for m in opened.models() if m.model in scored]
        name, rows = compute(models + _bare(scored, models), scores, opened.tasks, split=split)
    if as_json:
        print_json({"split": name, "tasks": _by_task(rows, keep=nan_to_none)})
    else:
        _print(name, rows, beside_table_1=study is None and name == "column")


def _bare(scored: set[str], listed: list[ModelInfo]) -> list[ModelInfo]:
    """Models that have scores and no row in models.csv."""
    from benchcast.records import ModelInfo

    return [ModelInfo(m) for m in sorted(scored - {x.model for x in listed})]


def _by_task(rows: list[BaselineRow], *, keep: Callable[[float], Any]) -> dict[str, dict[str, dict[str, Any]]]:
    by_task: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        by_task.setdefault(row.task, {})[row.method] = {k: keep(v) for k, v in row.measures.items()}
    return by_task


def _print(split: str, rows: list[BaselineRow], *, beside_table_1: bool) -> None:
    from lab.paper.tables import TABLE_1

    methods = list(dict.fromkeys(row.method for row in rows))
    body = []
    for task, by_method in _by_task(rows, keep=float).items():
        printed = TABLE_1[task] if beside_table_1 else None
        paper = (printed.salience, printed.all_token, printed.label_token) if printed else ()
        mses = [by_method[m]["mse"] if m in by_method else math.nan for m in methods]
        n = max(measures["n_test"] for measures in by_method.values())
        body.append((task, *map(number, (*paper, *mses)), f"{n:g}"))
    heads = ("paper: CSV", "paper: all token", "paper: label token") if beside_table_1 else ()
    print_table(("task", *heads, *methods, "models"), body, title=f"test MSE, split {split}", wide=True)
