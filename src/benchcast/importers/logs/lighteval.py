"""Details of lighteval (`--save-details`), one Parquet file for each task and run.

`results/<model>/results_<time>.json` belongs to `details/<model>/<time>/details_<task>|<shots>_<time>.parquet`. The
prompt is not logged as a whole; it is put together from the instruction, the few-shot examples and the question.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchcast.errors import InputError
from benchcast.importers.logs.items import LoggedItem, hash_document, hash_text, passage_of, spaces_to_answer
from benchcast.importers.logs.right_options import check_item, choice_losses
from benchcast.importers.scores.lm_eval import split_key
from benchcast.messages import is_unicode
from benchcast.study.parquet import read_table

COLUMNS = ("doc", "metric", "model_response")
MOST_ITEMS = 1_000_000
BETWEEN = "\n\n"  # between the examples of a prompt


def details_of(path: Path, document: Mapping[str, Any]) -> dict[str, Path]:
    """Files of details that belong to a results file, by task."""
    parts = path.parent.parts
    if "results" not in parts:
        return {}
    at = len(parts) - 1 - parts[::-1].index("results")
    time = path.stem.removeprefix("results_")
    folder = Path(*parts[:at], "details", *parts[at + 1 :], time)
    file_of_task = {}
    for file in sorted(folder.glob(f"details_*_{time}.parquet")):
        task, _ = split_key(file.stem.removeprefix("details_").removesuffix(f"_{time}"))
        if task in document["results"]:
            file_of_task[task] = file
    return file_of_task


def read_details(path: Path, task: str) -> list[LoggedItem]:
    """Items of one file, by their ids."""
    rows = read_table(path, COLUMNS, rows=MOST_ITEMS, values=1000 * MOST_ITEMS).to_pylist()
    if not rows or not all(isinstance(row.get(name), Mapping) for row in rows for name in COLUMNS):
        raise InputError(f"{path}: not details of lighteval (rows with {', '.join(COLUMNS)})")
    items = [_item(f"{path}: row {i}", task, row) for i, row in enumerate(rows, start=1)]
    if len({item.number for item in items}) < len(items):
        raise InputError(f"{path}: an item occurs twice")
    return sorted(items, key=lambda item: (isinstance(item.number, str), item.number))


def _item(where: str, task: str, row: Mapping[str, Any]) -> LoggedItem:
    doc, response = row["doc"], row["model_response"]
    number, choices = str(doc.get("id", "")), doc.get("choices") or []
    metrics = {k: float(v) for k, v in row["metric"].items() if isinstance(v, (int, float)) and math.isfinite(v)}
    logprobs = response.get("logprobs") or []
    document = hash_document([doc.get("query"), choices, doc.get("gold_index")])
    item = LoggedItem(
        task=task,
        number=int(number) if number.isdecimal() else number,
        document=document,
        metrics=metrics,
        doc_hash=document,
        prompt_hash=hash_text(_prompt(doc)),
        passage=passage_of(doc.get("specific")),
    )
    if not logprobs or response.get("text"):
        return item
    item = replace(item, options=len(choices) if len(choices) > 1 else 0)
    right = _right(doc.get("gold_index"), len(choices))
    if right is None or len(logprobs) != len(choices):
        return item
    prompt, answer = spaces_to_answer(_prompt(doc), choices[right])
    if not is_unicode(prompt + answer):
        raise InputError(f"{where}: the prompt or answer contains half a surrogate pair, which is not valid Unicode")
    if not logprobs[right] <= 1e-6 or math.isinf(logprobs[right]):
        raise InputError(f"{where}: a log-likelihood must be a finite number of at most 0, found {logprobs[right]}")
    item = replace(item, prompt=prompt, answer=answer, nats=max(0.0, -logprobs[right]))
    if item.options < 2 or not all(math.isfinite(x) for x in logprobs) or metrics.get("acc", 0) not in (0, 1):
        return item
    check_item(f"{where}: item {number}", metrics, likelihoods=logprobs, unconditional=(), options=choices, right=right)
    choice, choice_norm = choice_losses(logprobs, choices, right)
    return replace(item, choice=choice, choice_norm=choice_norm)


def _right(gold: Any, count: int) -> int | None:
    """Index of the right option; None if there are several."""
    if isinstance(gold, Sequence) and len(gold) == 1:
        gold = gold[0]
    return gold if isinstance(gold, int) and 0 <= gold < count else None


def _prompt(doc: Mapping[str, Any]) -> str:
    """The instruction, the few-shot examples with their answers, and the question."""
    parts = []
    for shot in doc.get("fewshot_samples") or []:
        choices = shot.get("choices") or []
        right = _right(shot.get("gold_index"), len(choices))
        parts.append(str(shot.get("query") or "") + (choices[right] if right is not None else ""))
    return (doc.get("instruction") or "") + BETWEEN.join([*parts, str(doc.get("query") or "")])
