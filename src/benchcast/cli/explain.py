"""`explain`: show which tokens a forecast depends on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchcast.cli.columns import explain_columns
from benchcast.cli.data import STUDY
from benchcast.cli.output import number, print_json, print_table, progress, say
from benchcast.cli.show import page_path

if TYPE_CHECKING:
    from benchcast.explanation import Explanation
    from benchcast.fits import Fit
    from benchcast.records import Floats
    from benchcast.store import Study

LISTED = 10  # number of most and of least salient tokens printed


@click.command()
@STUDY
@click.option("--task", "task_name", required=True, help="A task of study.toml.")
@click.option("--text", "text_id", help="Id of a text. Default: the one with the largest mean salience.")
@click.option("--html", "html", type=click.Path(path_type=Path), help="Write the heat map of all texts to this file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain(study: Path, task_name: str, text_id: str | None, html: Path | None, as_json: bool) -> None:
    """Show which tokens a task's forecast depends on.

    Prints one text with the salience of its tokens, the most and the least salient tokens of all texts in their
    context, and the mean salience by source and kind. Uses the stored fit of the task, or makes one. In a study
    made from a table, it prints the salience of each column.

    \b
    benchcast explain study --task mmlu
    benchcast explain study --task mmlu --text mmlu-17 --html mmlu.html
    """
    from benchcast.explanation import find_text
    from benchcast.extras import library
    from benchcast.records import NamedTexts
    from benchcast.store import Study

    opened = Study.open(study)
    opened.task(task_name)
    if isinstance(opened.texts, NamedTexts):
        if html is not None or text_id is not None:
            opened.texts.require_texts(f"explain {'--html' if html is not None else '--text'}")
        with progress("reading the fit", 3) as advance:
            fit = _stored_or_new(opened, task_name, advance)
        explain_columns(opened, fit, as_json=as_json)
        return
    index = None if text_id is None else find_text(opened.texts, text_id)
    target = None if html is None else page_path(html)
    if target is not None:
        library("jinja2", "report")
    with progress("reading the fit", 3) as advance:
        fit = _stored_or_new(opened, task_name, advance)
        explained, nats = _explain(opened, fit, advance)
        index = explained.weightiest() if index is None else index
        if target is not None:
            advance(f"writing {target}")
            _write(target, opened, explained, nats, index)
    if as_json:
        print_json(_as_json(explained, index, nats))
        return
    _print(explained, index, nats)
    if target is not None:
        say(f"heat map: {target}")


def _stored_or_new(study: Study, task: str, advance: Any) -> Fit:
    """The stored fit if it is of the study's texts, else a new fit, which is not stored."""
    from benchcast.cli.predict import warn_if_stale
    from benchcast.explaining import fit_to_explain

    fit = fit_to_explain(study, task, lambda line: say(line, err=True))
    advance("reading the fit")
    warn_if_stale(study, [fit], f"`benchcast fit {study.root}` fits again")
    return fit


def _explain(study: Study, fit: Fit, advance: Any) -> tuple[Explanation, dict[str, Floats]]:
    """The fit's salience on displayed tokens, and each family's mean losses on them."""
    from benchcast.explaining import explain_fit
    from benchcast.explanation import family_losses
    from benchcast.folds import family_names

    advance("reading losses")
    explained = explain_fit(fit)
    names = study.models_with_losses()
    nats = fit.align(study.losses(m) for m in names)
    families = [str(f) for f in family_names(study.infos(names))]
    return explained, family_losses(nats, families, explained.units)


def _write(path: Path, study: Study, explained: Explanation, nats: dict[str, Floats], index: int) -> None:
    from benchcast.reports import write_heat_map

    write_heat_map(path, study, explained, nats, open_at=index)


def _quote(explained: Explanation, i: int) -> dict[str, Any]:
    from benchcast.formatting import nan_to_none
    from benchcast.graphemes import TOKEN_KINDS

    units = explained.units
    before, token, after = units.context(i)
    text = units.texts.texts[units.text[i]]
    return {
        "text": text.id,
        "source": text.source,
        "token": token,
        "salience": nan_to_none(float(explained.salience[i])),
        "kind": TOKEN_KINDS[units.kind[i]],
        "part": "answer" if units.answer[i] else "prompt",
        "before": before,
        "after": after,
    }


def _least(explained: Explanation, nats: dict[str, Floats]) -> list[int]:
    import numpy as np

    return explained.least(LISTED, np.mean(list(nats.values()), axis=0))


def _as_json(explained: Explanation, index: int, nats: dict[str, Floats]) -> dict[str, Any]:
    from benchcast.formatting import nan_to_none

    span = explained.units.of_text(index)
    keys = ("token", "salience", "kind", "part")
    tokens = [{k: v for k, v in _quote(explained, i).items() if k in keys} for i in range(span.start, span.stop)]
    return {
        "task": explained.task,
        "method": explained.method,
        "unit": "times the mean salience of all tokens",
        "text": {"id": explained.units.texts.texts[index].id, "tokens": tokens},
        "most": [_quote(explained, i) for i in explained.most(LISTED)],
        "least": [_quote(explained, i) for i in _least(explained, nats)],
        "by_source": [{k: nan_to_none(v) for k, v in row.items()} for row in explained.by_source()],
        "by_kind": [{k: nan_to_none(v) for k, v in row.items()} for row in explained.by_kind()],
    }


def _print(explained: Explanation, index: int, nats: dict[str, Floats]) -> None:
    import numpy as np
    from rich.console import Console

    from benchcast.cli.heatmap import print_heat_map
    from benchcast.graphemes import visible

    units = explained.units
    span, text = units.of_text(index), units.texts.texts[index]
    say(f"{visible(explained.task)} by {explained.method}, text {visible(text.id)} ({visible(text.source)})\n")
    tokens = [(units.shown(i), float(explained.salience[i])) for i in range(span.start, span.stop)]
    print_heat_map(tokens, Console(highlight=False))
    if not np.nan_to_num(explained.salience).any():
        say(
            "no token has any weight: the score does not rise as losses fall, so the forecast is the same "
            "for every model; `benchcast compare` shows whether a method with signed weights (ridge, pls) does better"
        )
    for title, chosen in (("most", explained.most(LISTED)), ("least", _least(explained, nats))):
        quotes = [_quote(explained, i) for i in chosen]
        rows = [
            (
                number(q["salience"], ".2f"),
                visible(q["text"]),
                f"{visible(q['before'])}[{visible(q['token'])}]{visible(q['after'])}",
            )
            for q in quotes
        ]
        say()
        print_table(("× mean", "text", "in context"), rows, title=f"{title} salient tokens", left=(1, 2))
    for title, groups in (("source", explained.by_source()), ("kind of token", explained.by_kind())):
        table = [
            (
                visible(r["name"]),
                f"{r['tokens']}",
                *(number(r[k], ".2f") for k in ("mean", "prompt", "answer")),
                number(r["share"], ".0%"),
            )
            for r in groups
        ]
        say()
        print_table((title, "tokens", "mean salience", "prompts", "answers", "share of all"), table)
