"""Pack the heat map's data: salience of every displayed token for every task, and each family's loss on it.

Numbers are little-endian 16-bit integers in base64: salience on a signed log scale, losses in thousandths of a nat. If
a study has too many tokens for a page, some texts of every source are shown; means are over all texts.
Axes: U units, T tasks, F families.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from benchcast.evaluation.comparison import Comparison
from benchcast.messages import TOKEN_KINDS
from benchcast.records import Bools, Floats, NamedTexts, TextSet
from benchcast.reports.data import ReportModels, rounded
from benchcast.reports.explain import Explanation, Units, family_losses, make_units, weigh_units

MOST_NUMBERS = 2_500_000  # limit of 16-bit numbers, about 6.5 MB of the page
LIST = 14  # number of most and of least salient tokens listed
STEPS = 32_000  # resolution of the log scale
MISSING = -32_768
MOST_NATS = 65.0


def explanations(comparison: Comparison, shown: ReportModels, texts: TextSet) -> list[Explanation]:
    """Salience of the first method for every task, in the fit that forecasts new models; empty for a table study."""
    if isinstance(texts, NamedTexts):
        return []
    method = comparison.methods[0]
    units = make_units(texts, comparison.dataset.reference_tokens.edges)
    fits = [shown.new_fits[task, method] for task in comparison.tasks]
    return [
        weigh_units(units, fit.salience, fit.supported, task=fit.task, method=method)
        for fit in fits
        if fit.task_fit.reads_losses
    ]


def heat_data(
    explained: Sequence[Explanation], losses: dict[str, Floats], *, first: int | None = None
) -> dict[str, Any] | None:
    """The content of the heat map as plain values; None if no task has salience.

    Parameters
    ----------
    explained : salience of each task
    losses : mean losses in nats on every unit, by family
    first : index of the text that is open at first
    """
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


def mean_losses(comparison: Comparison, units: Units) -> dict[str, Floats]:
    """Mean loss in nats of every family on every unit, over the tokens on which all models have a loss."""
    dataset = comparison.dataset
    nats = np.where(dataset.reference_tokens.supported, dataset.nats, np.float32(np.nan))
    return family_losses(nats, [str(f) for f in dataset.families], units)


def choose_texts(units: Units, most: int, first: int | None = None) -> list[int]:
    """Indices of the texts to show: all, or texts of each source in turn up to `most` units.

    The text `first` is always included.
    """
    size = np.bincount(units.text, minlength=len(units.texts))
    if size.sum() <= most:
        return list(range(len(units.texts)))
    queues: dict[str, list[int]] = {}
    for i, text in enumerate(units.texts):
        queues.setdefault(text.source, []).append(i)
    ranked = sorted((k, i) for queue in queues.values() for k, i in enumerate(queue))
    order = np.array([i for _, i in ranked])
    selected = order[np.cumsum(size[order]) <= most]
    return sorted({*map(int, selected), int(order[0]) if first is None else first})


def _texts(units: Units, kept: Sequence[int]) -> list[dict[str, Any]]:
    """Each text with the lengths of its units in UTF-16 code units, which browsers count."""
    rows = []
    for i in kept:
        text, span = units.texts.texts[i], units.of_text(i)
        utf16 = np.cumsum([0] + [2 if ord(c) > 0xFFFF else 1 for c in text.text])
        cuts = utf16[np.append(units.start[span], len(text.text))]
        answer = units.answer[span]
        rows.append(
            {
                "id": text.id,
                "source": text.source,
                "text": text.text,
                "cuts": np.diff(cuts).tolist(),
                "answer": int(np.argmax(answer)) if answer.any() else None,
            }
        )
    return rows


def _pack_salience(salience: Floats, reach: float) -> str:
    scaled = np.sign(salience) * np.log1p(np.abs(salience)) / np.log1p(reach)
    finite: Bools = np.isfinite(scaled)
    return _base64(np.where(finite, np.round(STEPS * np.where(finite, scaled, 0.0)), MISSING).astype("<i2"))


def _pack_nats(nats: Floats) -> str:
    finite: Bools = np.isfinite(nats)
    milli = np.round(1000 * np.clip(np.where(finite, nats, 0.0), 0, MOST_NATS))
    return _base64(np.where(finite, milli, 65_535).astype("<u2"))


def _base64(values: npt.NDArray[Any]) -> str:
    return base64.b64encode(values.tobytes()).decode("ascii")


def _quoted(explained: Explanation, chosen: Sequence[int], kept: Sequence[int]) -> list[dict[str, Any]]:
    units, position = explained.units, {text: k for k, text in enumerate(kept)}
    rows = []
    for i in chosen:
        index, quoted = int(units.text[i]), explained.quote(i)
        rows.append(
            {k: quoted[k] for k in ("text", "source", "kind", "part")}
            | {"at": position.get(index), "unit": i - units.of_text(index).start}
            | {"around": units.context(i), "salience": rounded([explained.salience[i]])[0]}
        )
    return rows


def _plain(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: rounded([v])[0] if isinstance(v, float) else v for k, v in row.items()} for row in rows]
