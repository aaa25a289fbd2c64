"""Rows of the sample files of lm-evaluation-harness 0.4 (`--log_samples`) as items.

Versions differ: arguments are lists, or objects `gen_args_0`: {`arg_0`, `arg_1`}; log-likelihoods are numbers or
strings; the right option is an index, its text, or not logged at all. 0.5 writes a row for each scorer of an item.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchcast.errors import InputError
from benchcast.importers.logs.items import (
    LoggedItem,
    hash_document,
    hash_logged,
    hash_of_text,
    hash_text,
    passage_of,
    spaces_to_answer,
)
from benchcast.importers.logs.right_options import check_item, choice_losses
from benchcast.messages import is_unicode

LARGE = {"arguments", "resps", "filtered_resps"}
NOT_METRICS = LARGE | {"doc_id", "doc", "target", "filter", "metrics"}


@dataclass(frozen=True, slots=True)
class SampleRow:
    """One row, with the requests that were sent and the log-likelihoods that came back."""

    where: str  # origin, for messages
    row: Mapping[str, Any]  # without its requests and responses
    pairs: tuple[tuple[str, str], ...]  # prompt and continuation of each request; empty for generations
    likelihoods: tuple[float, ...]  # of each continuation
    prompt: str = ""  # of the first request
    unconditional: tuple[float, ...] = ()  # of each continuation without its prompt, for `acc_mutual_info`

    @classmethod
    def of(cls, where: str, row: Any) -> SampleRow:
        """Check the parts of a row that are needed."""
        if not isinstance(row, Mapping) or not {"doc_id", "doc", "arguments"} <= row.keys():
            raise InputError(f"{where}: not a sample of lm-evaluation-harness (no doc_id, doc and arguments)")
        number = row["doc_id"]
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise InputError(f"{where}: doc_id must be a whole number, found {str(number)[:40]!r}")
        requests = _requests(where, row["arguments"])
        responses = row.get("filtered_resps", row.get("resps"))
        if not isinstance(responses, list):
            raise InputError(f"{where}: no list of responses (filtered_resps)")
        first = str(requests[0][0])
        kept = {k: v for k, v in row.items() if k not in LARGE}
        if not all(len(r) <= 2 and isinstance(r[0], str) and isinstance(r[-1], str) for r in requests):
            return cls(where, kept, (), (), first)  # a generation
        likelihoods = tuple(_likelihood(where, r) for r in responses)
        if len(likelihoods) != len(requests):
            raise InputError(f"{where}: {len(requests)} requests have {len(likelihoods)} log-likelihoods")
        # All options have one prompt in most tasks; one copy of it is kept.
        pairs = tuple((first if r[0] == first else r[0], r[1]) if len(r) > 1 else ("", r[0]) for r in requests)
        half = len(pairs) // 2
        if half and len(pairs) == 2 * half and all(p for p, _ in pairs[:half]) and not any(p for p, _ in pairs[half:]):
            # `acc_mutual_info` repeats the requests without a prompt.
            return cls(where, kept, pairs[:half], likelihoods[:half], first, likelihoods[half:])
        return cls(where, kept, pairs, likelihoods, first)

    @property
    def has_one_right_option(self) -> bool:
        """Whether the row has options of which one is right, so that it has choice losses."""
        target = self.row.get("target")
        several = isinstance(target, list) or (isinstance(target, str) and target.startswith("["))
        return len(self.pairs) > 1 and not several and self.row.get("acc", 0) in (0, 1)

    @property
    def filter_name(self) -> str:
        """Name of the answer filter; rows of one item differ in it."""
        return str(self.row.get("filter", "none"))

    @property
    def prompt_hash(self) -> str:
        """Hash of the first prompt that was sent, as logged since 0.4.3."""
        return str(self.row.get("prompt_hash") or hash_text(self.prompt))

    def metrics(self) -> dict[str, float]:
        """Numeric metrics of the item, named as in the results."""
        suffix = "" if self.filter_name == "none" else f",{self.filter_name}"
        numbers = {
            k: float(v)
            for k, v in self.row.items()
            if k not in NOT_METRICS and not k.endswith("_hash") and isinstance(v, (int, float))
        }
        return {k + suffix: v for k, v in numbers.items() if math.isfinite(v)}


def _requests(where: str, arguments: Any) -> list[list[Any]]:
    if isinstance(arguments, Mapping):
        arguments = [list(a.values()) if isinstance(a, Mapping) else a for a in arguments.values()]
    if not isinstance(arguments, list) or not arguments or not all(isinstance(a, list) and a for a in arguments):
        raise InputError(f"{where}: arguments must hold the prompt and the continuation of each request")
    return arguments


def _likelihood(where: str, response: Any) -> float:
    """The log-likelihood of a response: the first number, or string that holds one, of nested lists."""
    first = response
    while isinstance(first, list) and first:
        first = first[0]
    try:
        value = float(first) if isinstance(first, (int, float, str)) and not isinstance(first, bool) else math.nan
    except (ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value) or value > 1e-6:
        raise InputError(f"{where}: a log-likelihood must be a finite number of at most 0, found {str(first)[:40]!r}")
    return value


def items_of(task: str, rows: Sequence[SampleRow]) -> list[LoggedItem]:
    """Items of one task, in the order of the file; rows of one item with different filters become one item.

    Parameters
    ----------
    task : name of the task
    rows : all rows of its sample file
    """
    grouped: dict[int, list[SampleRow]] = {}
    for row in rows:
        same = grouped.setdefault(row.row["doc_id"], [])
        if row.pairs and row.filter_name in {r.filter_name for r in same}:
            raise InputError(f"{row.where}: item {row.row['doc_id']} occurs twice")
        same.append(row)
    right = _right_options(list(grouped.values()))
    return [_item(task, same, option) for same, option in zip(grouped.values(), right, strict=True)]


def _item(task: str, rows: Sequence[SampleRow], right: int | None) -> LoggedItem:
    row = rows[0]
    unnamed = len({r.filter_name for r in rows}) < len(rows)  # early versions do not name the filter of a row
    known: dict[str, Any] = {}
    if right is not None:
        prompt, answer = spaces_to_answer(*row.pairs[right])
        if not (is_unicode(prompt) and is_unicode(answer)):
            raise InputError(
                f"{row.where}: the prompt or answer contains half a surrogate pair, which is not valid Unicode"
            )
        known = {"prompt": prompt, "answer": answer, "nats": max(0.0, -row.likelihoods[right])}
        known["text_hash"] = hash_of_text(prompt, answer)  # here, since files are read side by side
        if row.has_one_right_option:
            losses = choice_losses(row.likelihoods, [option for _, option in row.pairs], right)
            known |= zip(("choice", "choice_norm"), losses, strict=True)
    return LoggedItem(
        task=task,
        number=row.row["doc_id"],
        document=hash_document(row.row["doc"]),
        doc_hash=str(row.row.get("doc_hash") or hash_logged(row.row["doc"])),
        prompt_hash=row.prompt_hash,
        passage=passage_of(row.row["doc"]),
        options=len(row.pairs) if len(row.pairs) > 1 else 0,
        metrics={} if unnamed else {k: v for r in rows for k, v in r.metrics().items()},
        **known,
    )


def _right_options(items: Sequence[Sequence[SampleRow]]) -> list[int | None]:
    """Index of the right option of each item, by its rows; None where it is unknown.

    A target "1" may be an index or the text of an option; what agrees with the logged accuracies of all rows is used.
    Where the target is one of the options in every item and an accuracy disagrees all the same, the log is refused.
    """
    first, failed = [rows[0] for rows in items], None
    for read in (_by_index, _by_text, _by_accuracy):
        options = [_single(row) if len(row.pairs) <= 1 else read(row) for row in first]
        if not all(o is not None for row, o in zip(first, options, strict=True) if len(row.pairs) > 1):
            continue
        try:
            for rows, option in zip(items, options, strict=True):
                for row in rows:
                    if option is not None and row.has_one_right_option:
                        _check(row, option)
        except InputError as error:
            failed = failed or error
            continue
        return options
    if failed is not None:
        raise failed
    return [_single(row) if len(row.pairs) <= 1 else None for row in first]


def _check(row: SampleRow, right: int) -> None:
    check_item(
        f"{row.where}: item {row.row['doc_id']}",
        row.row,
        likelihoods=row.likelihoods,
        unconditional=row.unconditional,
        options=[option for _, option in row.pairs],
        right=right,
    )


def _single(row: SampleRow) -> int | None:
    return 0 if row.pairs else None


def _by_index(row: SampleRow) -> int | None:
    target = row.row.get("target")
    if isinstance(target, str) and target.strip().isdecimal() and len(target) < 10:
        target = int(target)
    valid = isinstance(target, int) and not isinstance(target, bool) and 0 <= target < len(row.pairs)
    return target if valid else None


def _by_text(row: SampleRow) -> int | None:
    target = str(row.row.get("target")).strip()
    same = [i for i, (_, continuation) in enumerate(row.pairs) if continuation.strip() == target]
    return same[0] if len(same) == 1 else None


def _by_accuracy(row: SampleRow) -> int | None:
    """Of two options, the chosen one if it was right, else the other; the accuracy of more options says too little."""
    if len(row.pairs) != 2 or row.row.get("acc") not in (0, 1):
        return None
    best = int(row.likelihoods[1] > row.likelihoods[0])
    return best if row.row["acc"] == 1 else 1 - best
