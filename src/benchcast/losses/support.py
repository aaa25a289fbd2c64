"""The common support: text on which all models have losses, models that reduce it, and models that are excluded.

A reference token is used only if every model has a loss there, so a model without losses on some texts removes
these texts for all models.
Axes: M models, N reference tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from benchcast.messages import few
from benchcast.records import Bools, Ints

MOST_LOST = 0.10  # share of a task's own text; models that remove more are excluded
NOTICED = 0.005  # share of a source; smaller losses are not reported


@dataclass(frozen=True, slots=True)
class Support:
    """The share of text that all models have, and the share that each model removes."""

    left: Mapping[str, float] = field(default_factory=dict)  # source → share of its bytes that remains
    costs: Mapping[str, tuple[str, float]] = field(default_factory=dict)  # model → (source it lacks most of, share)
    excluded: Mapping[str, tuple[str, float]] = field(default_factory=dict)  # model → (task, share of its own text)

    def why(self, model: str) -> str:
        """The reason why a model is excluded, as the end of a sentence."""
        task, share = self.excluded[model]
        return f"lacks {_percent(share)} of the text of task {task}"

    def hint(self) -> str:
        """Names of excluded models, to append to a message about too few models; empty if there are none."""
        excluded = [f"model {m} is left out: it {self.why(m)}" for m in self.excluded]
        return f"; {few(excluded)} (--keep-all keeps it)" if excluded else ""

    def lines(self) -> list[str]:
        """Readable lines on the reduced sources and their models; empty if all text remains."""
        reduced = {s: share for s, share in self.left.items() if share < 1 - NOTICED}
        if not reduced:
            return []
        least = sorted(reduced.items(), key=lambda item: (item[1], item[0]))
        costs = sorted(self.costs.items(), key=lambda item: (-item[1][1], item[0]))
        text = few([f"{source} {_percent(share)}" for source, share in least])
        lines = [f"text that all models have: {text}"]
        if not costs:
            rest = "first tokens have none without a BOS, prompts none in evaluation logs"
            lines.append(f"most models have no loss on the rest; {rest}")
        else:
            lines.append("models that lack text: " + few([f"{m} {_percent(x)} of {s}" for m, (s, x) in costs]))
        return lines

    def as_json(self) -> dict[str, Any]:
        """JSON values, as stored with a fit."""
        costs, excluded = ({m: list(pair) for m, pair in x.items()} for x in (self.costs, self.excluded))
        return {"text_left": dict(self.left), "models_lacking_text": costs, "excluded_models": excluded}

    @classmethod
    def of(cls, about: Mapping[str, Any]) -> Support:
        """The inverse of `as_json`; empty for fits written before support was stored."""
        costs, excluded = (
            {m: (name, share) for m, (name, share) in about.get(key, {}).items()}
            for key in ("models_lacking_text", "excluded_models")
        )
        return cls(about.get("text_left", {}), costs, excluded)


def _percent(share: float) -> str:
    """A share in percent; 100% and 0% are printed only for exactly all and exactly nothing."""
    rounded = round(100 * share)
    if rounded == 100 and share < 1 - 1e-6:
        return "over 99%"
    return "under 1%" if rounded == 0 and share > 0 else f"{rounded}%"


def costly_models(
    lacking: Mapping[str, Bools], count: int, text_of_task: Mapping[str, Bools], *, widths: npt.NDArray[np.integer]
) -> dict[str, tuple[str, float]]:
    """Choose the models to exclude.

    Models are excluded, the one that removes most first, until no task loses more than `MOST_LOST` of its own text.
    Text that more than half of the models lack is not counted. If this would exclude more than half of the models,
    only models that remove more than `MOST_LOST` alone are excluded; if these are more than half as well, none is.

    Parameters
    ----------
    lacking : model → mask of reference tokens without a loss (N); only models that lack some
    count : number of all models
    text_of_task : task → mask of its own reference tokens (N)
    widths : bytes of each reference token (N)

    Returns
    -------
    model → (task whose text it would remove, share of that text)
    """
    common = ~_mostly_lacking(lacking, count, len(widths))
    bytes_of = {task: np.where(mask & common, widths, 0) for task, mask in text_of_task.items()}
    bytes_of = {task: w / w.sum() for task, w in bytes_of.items() if w.sum()}
    shares = {m: {task: float(w[mask].sum()) for task, w in bytes_of.items()} for m, mask in lacking.items()}
    jointly = _costliest_first(lacking, shares, bytes_of)
    if 2 * len(jointly) <= count:
        return jointly
    alone = {m: max(by_task.items(), key=lambda item: item[1]) for m, by_task in shares.items() if by_task}
    alone = {m: (task, share) for m, (task, share) in sorted(alone.items()) if share > MOST_LOST}
    return alone if 2 * len(alone) <= count else {}


def _costliest_first(
    lacking: Mapping[str, Bools], shares: Mapping[str, Mapping[str, float]], bytes_of: Mapping[str, Any]
) -> dict[str, tuple[str, float]]:
    def most_lost(models: Sequence[str]) -> tuple[str, float]:
        """The task that loses the largest share of its text to these models, and that share."""
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
    for model in reversed(list(excluded)):  # a model returns if the remaining models lack its text anyway
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
    excluded: Mapping[str, tuple[str, float]],
    *,
    source: Ints,
    sources: Sequence[str],
    widths: npt.NDArray[np.integer],
) -> Support:
    """Measure the text that remains of each source without the excluded models.

    Text that more than half of the models lack is lost, but is not attributed to any model.

    Parameters
    ----------
    lacking : model → mask of reference tokens without a loss (N)
    count : number of all models
    excluded : as `costly_models` returns it
    source : index in `sources` of the source of each token (N)
    sources : names of the sources
    widths : bytes of each reference token (N)
    """
    mostly_lacking = _mostly_lacking(lacking, count, len(widths))
    total = np.bincount(source, widths, len(sources))
    present = total > 0

    def share_lost(mask: Bools) -> npt.NDArray[np.float64]:
        return np.bincount(source[mask], widths[mask], len(sources)) / np.where(present, total, 1)

    staying = {m: mask for m, mask in sorted(lacking.items()) if m not in excluded}
    lost = np.logical_or.reduce([*staying.values(), np.zeros(len(widths), bool)])
    left = {name: float(x) for name, x, here in zip(sources, 1 - share_lost(lost), present, strict=True) if here}
    costs = {}
    for model, mask in staying.items():
        shares = share_lost(mask & ~mostly_lacking)
        worst = int(np.argmax(shares))
        if shares[worst] >= NOTICED:
            costs[model] = (sources[worst], float(shares[worst]))
    return Support(left=left, costs=costs, excluded=dict(excluded))
