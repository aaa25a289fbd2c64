"""How much text all models have in common, which models reduce it, and which of them are excluded.

A reference token counts only if every model has a loss there, so one model without losses on some texts removes
these texts for all models.
Axes: M models, N reference tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from benchcast.records import Bools, Ints

MOST_LOST = 0.10  # of a task's own text: models that cost more are excluded
NOTICED = 0.005  # of a source: less is not reported
SHOWN = 4  # names in one line


@dataclass(frozen=True, slots=True)
class Support:
    """What remains of the text when only positions count that every model has, and what each model costs."""

    left: Mapping[str, float] = field(default_factory=dict)  # source → share of its bytes that remains
    costs: Mapping[str, tuple[str, float]] = field(default_factory=dict)  # model → source it lacks most of, share
    excluded: Mapping[str, tuple[str, float]] = field(default_factory=dict)  # model → task, share of its own text

    def why(self, model: str) -> str:
        """Why a model is excluded."""
        task, share = self.excluded[model]
        return f"lacks {_percent(share)} of the text of task {task}"

    def hint(self) -> str:
        """What to add to a message on too few models; empty where none is excluded."""
        excluded = [f"model {m} is left out: it {self.why(m)}" for m in self.excluded]
        return f"; {_few(excluded)} (--keep-all keeps it)" if excluded else ""

    def lines(self) -> list[str]:
        """A few lines for people; none where all text remains."""
        reduced = {s: share for s, share in self.left.items() if share < 1 - NOTICED}
        if not reduced:
            return []
        least = sorted(reduced.items(), key=lambda item: (item[1], item[0]))
        costs = sorted(self.costs.items(), key=lambda item: (-item[1][1], item[0]))
        text = _few([f"{source} {_percent(share)}" for source, share in least])
        lines = [f"text that all models have: {text}"]
        if not costs:
            lines.append("most models have no loss on the rest; first tokens have none without a BOS")
        else:
            lines.append("models that lack text: " + _few([f"{m} {_percent(x)} of {s}" for m, (s, x) in costs]))
        return lines

    def as_json(self) -> dict[str, Any]:
        """Plain values, as stored with a fit."""
        costs, excluded = ({m: list(found) for m, found in x.items()} for x in (self.costs, self.excluded))
        return {"text_left": dict(self.left), "models_lacking_text": costs, "excluded_models": excluded}

    @classmethod
    def of(cls, about: Mapping[str, Any]) -> Support:
        """As stored with a fit; of an older fit nothing is known."""
        costs, excluded = (
            {m: (found[0], found[1]) for m, found in about.get(key, {}).items()}
            for key in ("models_lacking_text", "excluded_models")
        )
        return cls(about.get("text_left", {}), costs, excluded)


def _percent(share: float) -> str:
    """A share in percent; what is not all or nothing is never printed as 100% or 0%."""
    rounded = round(100 * share)
    if rounded == 100 and share < 1 - 1e-6:
        return "over 99%"
    return "under 1%" if rounded == 0 and share > 0 else f"{rounded}%"


def _few(items: Sequence[str]) -> str:
    return ", ".join(items[:SHOWN]) + (f" and {len(items) - SHOWN} more" if len(items) > SHOWN else "")


def costly_models(
    lacking: Mapping[str, Bools], count: int, own: Mapping[str, Bools], widths: npt.NDArray[np.integer]
) -> dict[str, tuple[str, float]]:
    """Models to exclude, each with the task whose text it would cost and the share of that text.

    Parameters
    ----------
    lacking : model → reference tokens without a loss; only models that lack some
    count : number of all models
    own : task → its own reference tokens
    widths : bytes of each reference token

    Models are excluded, the costliest first, until no task loses more than `MOST_LOST` of its own text. Text that
    more than half of the models lack is nobody's cost. If this would exclude more than half of the models, only
    models that cost so much alone are excluded; if these are more than half as well, none is.
    """
    common = ~_mostly_lacking(lacking, count, len(widths))
    bytes_of = {task: np.where(mask & common, widths, 0) for task, mask in own.items()}
    bytes_of = {task: w / w.sum() for task, w in bytes_of.items() if w.sum()}
    shares = {m: {task: float(w[mask].sum()) for task, w in bytes_of.items()} for m, mask in lacking.items()}
    jointly = _costliest_first(lacking, shares, bytes_of)
    if 2 * len(jointly) <= count:
        return jointly
    alone = {m: max(of.items(), key=lambda item: item[1]) for m, of in shares.items() if of}
    alone = {m: found for m, found in sorted(alone.items()) if found[1] > MOST_LOST}
    return alone if 2 * len(alone) <= count else {}


def _costliest_first(
    lacking: Mapping[str, Bools], shares: Mapping[str, Mapping[str, float]], bytes_of: Mapping[str, Any]
) -> dict[str, tuple[str, float]]:
    def most_lost(models: Sequence[str]) -> tuple[str, float]:
        """The task that loses the largest share of its text by these models."""
        lost = np.logical_or.reduce([lacking[m] for m in models])
        return max(((t, float(w[lost].sum())) for t, w in bytes_of.items()), key=lambda item: item[1])

    staying, excluded = sorted(lacking), {}
    while staying and bytes_of:
        task, share = most_lost(staying)
        if share <= MOST_LOST:
            break
        worst = max(staying, key=lambda m: shares[m][task])  # the first by name among equals
        staying.remove(worst)
        excluded[worst] = (task, shares[worst][task])
    for model in reversed(list(excluded)):  # back in if what it lacks is lost anyway
        if most_lost([*staying, model])[1] <= MOST_LOST:
            staying.append(model)
            del excluded[model]
    return excluded


def _mostly_lacking(lacking: Mapping[str, Bools], count: int, tokens: int) -> Bools:
    """Reference tokens that more than half of the models lack, such as first tokens without a BOS."""
    models_without = sum((mask.astype(np.int64) for mask in lacking.values()), np.zeros(tokens, np.int64))
    return np.asarray(2 * models_without > count)


def describe_support(
    lacking: Mapping[str, Bools],
    count: int,
    source: Ints,
    sources: Sequence[str],
    widths: npt.NDArray[np.integer],
    excluded: Mapping[str, tuple[str, float]],
) -> Support:
    """What remains of each source without the excluded models; `source` numbers the source of each token.

    Text that more than half of the `count` models lack is nobody's cost, but it is gone.
    """
    nobodys = _mostly_lacking(lacking, count, len(widths))
    total = np.bincount(source, widths, len(sources))
    present = total > 0

    def share_lost(mask: Bools) -> npt.NDArray[np.float64]:
        return np.bincount(source[mask], widths[mask], len(sources)) / np.where(present, total, 1)

    staying = {m: mask for m, mask in sorted(lacking.items()) if m not in excluded}
    lost = np.logical_or.reduce([*staying.values(), np.zeros(len(widths), bool)])
    left = {name: float(x) for name, x, here in zip(sources, 1 - share_lost(lost), present, strict=True) if here}
    costs = {}
    for model, mask in staying.items():
        shares = share_lost(mask & ~nobodys)
        worst = int(np.argmax(shares))
        if shares[worst] >= NOTICED:
            costs[model] = (sources[worst], float(shares[worst]))
    return Support(left, costs, dict(excluded))
