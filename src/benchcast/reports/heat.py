"""The heat map's data: salience of every shown token for every task, and each family's loss on it, packed small.

Numbers go as little-endian 16-bit integers in base64: salience on a signed log scale, losses in thousandths of a
nat. Where a study has more tokens than a page can hold, some texts of every source are taken; means are of all.
Axes: U units, T tasks, F families.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from benchcast.evaluate import Comparison
from benchcast.explanation import Explanation, Units, explain, family_losses, make_units
from benchcast.graphemes import TOKEN_KINDS
from benchcast.records import Bools, Floats, NamedTexts, TextSet
from benchcast.reports.data import ReportModels, rounded

MOST_NUMBERS = 2_500_000  # of 16 bits: about 6.5 MB of the page
LIST = 14  # most and least salient tokens that are listed
STEPS = 32_000  # of the log scale
MISSING = -32_768
MOST_NATS = 65.0


def explanations(found: Comparison, shown: ReportModels, texts: TextSet) -> list[Explanation]:
    """The salience of the first method for every task, in the fit that forecasts new models.

    None where texts are known by name only: there is nothing to colour.
    """
    if isinstance(texts, NamedTexts):
        return []
    method = found.methods[0]
    units = make_units(texts, found.dataset.reference_tokens.edges)
    fits = [shown.new_fits[task, method] for task in found.tasks]
    return [explain(f.task, method, units, f.salience, f.supported) for f in fits if f.core.reads_losses]


def heat_data(
    explained: Sequence[Explanation], losses: dict[str, Floats], *, first: int | None = None
) -> dict[str, Any] | None:
    """All that the heat map shows, opened at a text if one is named; None where no task has salience."""
    if not explained:
        return None
    units = explained[0].units
    kept = choose_texts(units, MOST_NUMBERS // (len(explained) + len(losses)), first)
    rows = np.concatenate([np.arange(*units.of_text(i).indices(len(units))) for i in kept])
    nats = np.mean(list(losses.values()), axis=0) if losses else None
    reach = [float(np.nanmax(np.abs(e.salience), initial=1.0)) for e in explained]
    salience = [_pack_salience(e.salience[rows], r) for e, r in zip(explained, reach, strict=True)]
    return {
        "method": explained[0].method,
        "tasks": [e.task for e in explained],
        "families": list(losses),
        "kinds": list(TOKEN_KINDS),
        "texts": _texts(units, kept),
        "left_out": len(units.texts) - len(kept),
        "merged": int((units.tokens[rows] > 1).sum()),
        "tokens": int(units.tokens.sum()),
        "kind": _base64(units.kind[rows].astype("<u1")),
        "together": {i: int(n) for i, n in enumerate(units.tokens[rows]) if n > 1},
        "reach": rounded(reach),
        "salience": salience,
        "losses": [_pack_nats(x[rows]) for x in losses.values()],
        "most": [_quoted(e, e.most(LIST), kept) for e in explained],
        "least": [_quoted(e, e.least(LIST, nats), kept) for e in explained],
        "by_source": [_plain(e.by_source()) for e in explained],
        "by_kind": [_plain(e.by_kind()) for e in explained],
        "open": None if first is None else kept.index(first),
    }


def mean_losses(found: Comparison, units: Units) -> dict[str, Floats]:
    """Mean loss of every family on every unit; where some model has none, nobody's counts."""
    dataset = found.dataset
    nats = np.where(dataset.reference_tokens.supported, dataset.nats, np.float32(np.nan))
    return family_losses(nats, [str(f) for f in dataset.families], units)


def choose_texts(units: Units, most: int, first: int | None = None) -> list[int]:
    """Texts to show: all, or the first of every source in turn until so many units are reached.

    The one named `first` is always among them.
    """
    size = np.bincount(units.text, minlength=len(units.texts))
    if size.sum() <= most:
        return list(range(len(units.texts)))
    queues: dict[str, list[int]] = {}
    for i, text in enumerate(units.texts):
        queues.setdefault(text.source, []).append(i)
    turn = sorted((k, i) for queue in queues.values() for k, i in enumerate(queue))
    order = np.array([i for _, i in turn])
    taken = order[np.cumsum(size[order]) <= most]
    return sorted({*map(int, taken), int(order[0]) if first is None else first})


def _texts(units: Units, kept: Sequence[int]) -> list[dict[str, Any]]:
    """Each text with the lengths of its units, in UTF-16 as browsers count."""
    made = []
    for i in kept:
        text, own = units.texts.texts[i], units.of_text(i)
        cuts = _utf16(text.text)[np.append(units.start[own], len(text.text))]
        answer = units.answer[own]
        made.append(
            {
                "id": text.id,
                "source": text.source,
                "text": text.text,
                "cuts": np.diff(cuts).tolist(),
                "answer": int(np.argmax(answer)) if answer.any() else None,
            }
        )
    return made


def _utf16(text: str) -> npt.NDArray[np.int64]:
    """How many UTF-16 units stand before each character, and in all."""
    return np.cumsum([0] + [2 if ord(c) > 0xFFFF else 1 for c in text])


def _pack_salience(salience: Floats, reach: float) -> str:
    scaled = np.sign(salience) * np.log1p(np.abs(salience)) / np.log1p(reach)
    there: Bools = np.isfinite(scaled)
    return _base64(np.where(there, np.round(STEPS * np.where(there, scaled, 0.0)), MISSING).astype("<i2"))


def _pack_nats(nats: Floats) -> str:
    there: Bools = np.isfinite(nats)
    milli = np.round(1000 * np.clip(np.where(there, nats, 0.0), 0, MOST_NATS))
    return _base64(np.where(there, milli, 65_535).astype("<u2"))


def _base64(values: npt.NDArray[Any]) -> str:
    return base64.b64encode(values.tobytes()).decode("ascii")


def _quoted(explained: Explanation, chosen: Sequence[int], kept: Sequence[int]) -> list[dict[str, Any]]:
    """Tokens in their context."""
    units, place = explained.units, {text: k for k, text in enumerate(kept)}
    rows = []
    for i in chosen:
        index = int(units.text[i])
        rows.append(
            {
                "text": units.texts.texts[index].id,
                "source": units.texts.texts[index].source,
                "at": place.get(index),
                "unit": i - units.of_text(index).start,
                "around": units.context(i),
                "salience": rounded([explained.salience[i]])[0],
                "kind": TOKEN_KINDS[units.kind[i]],
                "part": "answer" if units.answer[i] else "prompt",
            }
        )
    return rows


def _plain(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: rounded([v])[0] if isinstance(v, float) else v for k, v in row.items()} for row in rows]
