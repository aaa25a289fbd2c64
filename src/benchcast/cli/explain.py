"""`explain`: show which tokens a forecast depends on."""

from __future__ import annotations

from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchcast.cli.arguments import JSON, PATH, STUDY
from benchcast.cli.output import print_json, print_table, say
from benchcast.cli.progress import progress
from benchcast.cli.report import page_path
from benchcast.messages import nan_to_none, number

if TYPE_CHECKING:
    from benchcast.reports.explain import ColumnWeights, Explanation

LISTED = 10  # number of most and of least salient tokens printed
# What is less would be printed as zero.
LEAST_SALIENCE, LEAST_SHARE, LEAST_COLUMN = 0.005, 0.005, 0.0005


@click.command()
@STUDY
@click.option("--task", "task_name", required=True, help="A task of study.toml.")
@click.option("--text", "text_id", help="Id of a text. Default: the one with the largest mean salience.")
@click.option("--html", "html", type=PATH, help="Write the heat map of all texts to this file.")
@JSON
def explain(study: Path, task_name: str, text_id: str | None, html: Path | None, as_json: bool) -> None:
    """Show which tokens a task's forecast depends on.

    Prints one text with the salience of its tokens, the most and the least salient tokens of all texts in their
    context, and the mean salience by source and kind. Uses the stored fit of the task, or makes one. In a study
    made from a table, it prints the salience of each column.

    \b
    benchcast explain study --task mmlu
    benchcast explain study --task mmlu --text mmlu-17 --html mmlu.html
    """
    from benchcast.errors import library
    from benchcast.records import NamedTexts
    from benchcast.reports.explain import Explanation, explain, find_text
    from benchcast.study.study import Study

    opened = Study.open(study)
    opened.task(task_name)
    if isinstance(opened.texts, NamedTexts) and (html is not None or text_id is not None):
        opened.texts.require_texts(f"explain {'--html' if html is not None else '--text'}")
    if text_id is not None:
        find_text(opened.texts, text_id)
    if html is not None:
        page_path(html)
        library("jinja2", "report")
    with progress("reading fit and losses"):
        explained = explain(opened, task_name, tell=lambda line: say(line, err=True))
    if not isinstance(explained, Explanation):
        _explain_columns(explained, as_json=as_json)
        return
    document = explained.to_dict(text_id or "", listed=LISTED)
    if html is not None:
        from benchcast.reports.report import heat_map

        heat_map(opened, explained, html, text_id=text_id or "")
    if as_json:
        print_json(document)
        return
    _print(explained, document)
    if html is not None:
        say(f"heat map: {html}")


def _print(explained: Explanation, document: dict[str, Any]) -> None:
    import numpy as np
    from rich.console import Console

    from benchcast.cli.heatmap import print_heat_map
    from benchcast.messages import visible

    units = explained.units
    index = units.texts.index[document["text"]["id"]]
    span, text = units.of_text(index), units.texts.texts[index]
    say(f"{visible(explained.task)} by {explained.method}, text {visible(text.id)} ({visible(text.source)})\n")
    tokens = [(units.shown(i), float(explained.salience[i])) for i in range(span.start, span.stop)]
    print_heat_map(tokens, Console(highlight=False))
    if not np.nan_to_num(explained.salience).any():
        say(
            "no token has any weight: the score does not rise as losses fall, so the forecast is the same "
            "for every model; `benchcast compare` shows whether a method with signed weights (stack, ridge, pls) does "
            "better"
        )
    for title in ("most", "least"):
        listed = [(float(q["salience"]), q) for q in document[title]]
        rows = [
            (f"{size:.2f}", q["text"], f"{q['before']}[{q['token']}]{q['after']}")
            for size, q in listed
            if abs(size) >= LEAST_SALIENCE
        ]
        if not rows:
            continue
        say()
        print_table(("× mean", "text", "in context"), rows, title=f"{title} salient tokens", left=(1, 2))
    for title, groups in (("source", explained.by_source()), ("kind of token", explained.by_kind())):
        means = [[number(r[k], ".2f") for k in ("mean", "prompt", "answer")] for r in groups]
        table = [
            (r["name"], f"{r['tokens']}", *mean, number(r["share"], ".0%"))
            for r, mean in zip(groups, means, strict=True)
            if not r["share"] < LEAST_SHARE
        ]
        say()
        print_table((title, "tokens", "mean salience", "prompts", "answers", "share of all"), table)
    if explained.choice_share:
        say()
        say(
            f"besides tokens it reads how probable the right option of each item is (choice losses): "
            f"{explained.choice_share:.0%} of the differences between models"
        )
    _print_shares(explained.shares)


def _print_shares(shares: dict[str, float]) -> None:
    if shares:
        say()
        rows = [(name, f"{share:.0%}") for name, share in shares.items()]
        print_table(("what it reads", "share"), rows, title="the forecast averages losses of", left=(0,))


def _explain_columns(weights: ColumnWeights, *, as_json: bool) -> None:
    from dataclasses import asdict

    if as_json:
        unit = "times the mean salience of all columns"
        rows = [{k: nan_to_none(v) for k, v in asdict(w).items() if k != "index"} for w in weights]
        said = {"task": weights.task, "method": weights.method, "unit": unit}
        print_json({**said, "columns": rows, "shares": weights.shares})
        return
    shown = [w for w in weights if w.share >= LEAST_COLUMN]
    table = [
        (
            w.column + (" (answers)" if w.answers else " (choice losses)" if w.choices else ""),
            w.unit,
            number(w.mean_loss, ".3f"),
            number(w.salience, ".2f"),
            number(w.share, ".1%"),
        )
        for w in shown
    ]
    header = ("column", "unit", "mean loss", "× mean salience", "share of all")
    print_table(header, table, title=f"{weights.task} by {weights.method}", left=(0, 1))
    without = sum(w.share < LEAST_COLUMN for w in weights)
    if without:
        say(f"columns with less than {LEAST_COLUMN:.2%} each: {without}")
    lacking = sum(isnan(w.salience) and not w.choices for w in weights)
    if lacking:
        say(f"columns that are not used, because some model has no loss there: {lacking}")
    _print_shares(weights.shares)
