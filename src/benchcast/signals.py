"""Define the signals of a token that are computed from its logits, their storage, and their regrouping.

rank     log2 of the token's place among all words by probability; 0 for the likeliest word
entropy  of the distribution that predicts the token, in nats
hit      1 if no word is likelier than the token, else 0
margin   log-probability of the likeliest word minus that of the token, in nats; 0 for a hit

Each is read so that a larger value is worse: a hit is read as a miss. Between tokenizers, entropy, margin and rank are
spread over bytes and added, like nats:

- entropy: by the chain rule the entropies of successive tokens add up to that of the text they spell;
- margin: log-probabilities of successive tokens add up to that of their text, and so do their differences;
- rank: the log2 of a rank is the length of the code that names a word in the list sorted by probability, and lengths
  of successive codes add up.

A hit is no amount that could be shared: a greedy decoder writes a reference token only if it writes every token that
overlaps it. So a reference token is a hit if all source tokens that overlap it are hits, and a miss if one is not.
Axes: N source tokens, K target tokens, M models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from benchcast.align import in_characters, regroup, settle_zero_width
from benchcast.choices import RegroupUnit
from benchcast.errors import InputError
from benchcast.records import Bools, Floats, Ints, TextSet, TokenLosses

SAME = 2e-3  # relative precision of float16


def impossible(name: str, values: Floats, nats: Floats) -> Bools:
    """Mask of values that the signal of a token with these nats cannot have; NaN is possible."""
    if name == "hit":
        return np.asarray((values != 0) & (values != 1) & ~np.isnan(values))
    wrong = values < 0
    if name == "margin":  # the likeliest word has a probability of at most 1
        wrong |= values > nats * (1 + SAME) + SAME
    return np.asarray(wrong | np.isinf(values))


def regroup_signal(
    name: str,
    values: npt.ArrayLike,
    source: npt.ArrayLike,
    target: npt.ArrayLike,
    *,
    counts: npt.ArrayLike | None = None,
) -> Floats:
    """Move a signal from one tokenization of a text to another, read so that more is worse.

    Parameters
    ----------
    name : one of `SIGNALS`
    values : N floats, the signal of each source token; NaN where there is none
    source, target, counts : as in `align.regroup`

    Returns
    -------
    K floats; of "hit", 1 for a miss and 0 for a hit. NaN as in `align.regroup`.

    >>> regroup_signal("hit", [1, 1, 0], [0, 2, 4, 5], [0, 3, 5])
    array([0., 1.])
    >>> regroup_signal("margin", [0.0, 2.0], [0, 2, 4], [0, 3, 4])
    array([1., 1.])
    """
    amounts = np.asarray(values, np.float64)
    if name != "hit":
        return regroup(amounts, source, target, counts=counts)
    widths = np.diff(np.asarray(source, np.float64))
    tokens_per_text = np.asarray([len(widths)] if counts is None else counts, np.int64)
    missed = settle_zero_width(1 - amounts, widths, tokens_per_text)
    missed_bytes = regroup(np.where(missed > 0, widths, np.where(np.isnan(missed), np.nan, 0.0)), source, target)
    return np.where(np.isnan(missed_bytes), np.nan, (missed_bytes > 1e-9) * 1.0)


def align_signals(
    losses: TokenLosses, names: Sequence[str], reference: Ints, texts: TextSet, *, unit: RegroupUnit = "byte"
) -> dict[str, npt.NDArray[np.float32]]:
    """The named signals of one model on the reference tokens (K each); InputError if it lacks one."""
    require_signals(losses, names)
    source, target = (
        (in_characters(edges, texts.utf8) if unit == "char" else edges) for edges in (losses.edges, reference)
    )
    return {
        name: regroup_signal(name, losses.signals[name], source, target, counts=losses.counts).astype(np.float32)
        for name in names
    }


def require_signals(losses: TokenLosses, names: Sequence[str]) -> None:
    """Raise InputError if a model's losses come without one of the named signals."""
    absent = [name for name in names if name not in losses.signals]
    if absent:
        raise InputError(
            f"losses of model {losses.model!r} have no {', '.join(absent)}; collect them again: "
            f"`benchcast collect … --signals {','.join(names)} --force`"
        )


def stack_signals(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> dict[str, npt.NDArray[np.float32]]:
    """Signals of several models, each M × K, from those of each model."""
    return {name: np.stack([row[name] for row in rows]) for name in names}
