"""Regroup nats from one tokenization onto another (Algorithm 1).

A token's loss is spread evenly over its bytes, so a target token's loss is the rise of one cumulative
curve between its two edges. The total is conserved, and no loop runs over characters, tokens or texts.
Axes: N source tokens, K target tokens, S texts, M models.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from benchcast.records import Bools, Floats, Ints, TextSet, TokenLosses


def regroup(
    nats: npt.ArrayLike, source: npt.ArrayLike, target: npt.ArrayLike, *, counts: npt.ArrayLike | None = None
) -> Floats:
    """Move `nats`, one value per source token, onto the target tokens.

    `source` and `target` are edges in bytes (or any other unit) of the same stretch. The total is
    unchanged, so a text weighs the same under every tokenizer. A target token that touches a source
    token without a loss (NaN), or reaches beyond the source, is NaN. When several texts lie end to end,
    `counts` says how many source tokens each has, so that a zero-width token never hands its loss to
    another text.
    """
    edges = np.asarray(source, np.float64)
    wanted = np.asarray(target, np.float64)
    tokens_of_texts = np.asarray([len(edges) - 1] if counts is None else counts, np.int64)
    losses = settle_zero_width(np.asarray(nats, np.float64), np.diff(edges), tokens_of_texts)
    missing = np.isnan(losses)
    moved = np.diff(_rise(np.where(missing, 0.0, losses), edges, wanted))
    if not missing.any():
        return moved
    blank = np.diff(_rise(np.where(missing, np.diff(edges), 0.0), edges, wanted))
    return np.where(blank > 1e-9, np.nan, moved)  # what lies beyond the source is NaN already


def _rise(amounts: Floats, edges: Floats, at: Floats) -> Floats:
    """The cumulative curve of `amounts` over `edges`, read off at `at`.

    Tokens without width are dropped first: interpolation is undefined on repeated positions.
    """
    wide = np.diff(edges) > 0
    knots = np.concatenate([edges[:-1][wide], edges[-1:]])
    curve = np.concatenate([[0.0], np.cumsum(amounts[wide])])
    return np.interp(at, knots, curve, left=np.nan, right=np.nan)


def settle_zero_width(nats: Floats, widths: npt.NDArray[np.number], counts: Ints) -> Floats:
    """Give the nats of zero-width tokens to the next token of the same text that has width.

    Those after the text's last wide token go to that one. A text with no bytes at all has no token
    that could take them. A zero-width token without a loss (a BOS, as a rule) has none to give: it covers
    no byte, so no byte is left without a loss by it.
    """
    empty = widths <= 0
    if not empty.any():
        return nats
    wide = np.flatnonzero(~empty)
    settled = np.where(empty, 0.0, nats)
    if not len(wide):
        return settled
    text_of = np.repeat(np.arange(len(counts)), counts)
    lost = np.flatnonzero(empty)
    after = np.searchsorted(wide, lost)
    following = wide[np.minimum(after, len(wide) - 1)]
    preceding = wide[np.maximum(after - 1, 0)]
    heir = np.where((after < len(wide)) & (text_of[following] == text_of[lost]), following, preceding)
    kept = text_of[heir] == text_of[lost]
    np.add.at(settled, heir[kept], np.nan_to_num(nats[lost[kept]], nan=0.0))
    return settled


def in_characters(edges: npt.ArrayLike, utf8: npt.NDArray[np.uint8]) -> Floats:
    """Byte edges as positions in characters; an edge inside a character is a fraction.

    Spreading over these instead of bytes is Algorithm 1 to the letter.
    """
    first = np.flatnonzero((utf8 & 0xC0) != 0x80)
    lengths = np.diff(np.append(first, len(utf8)))
    return np.interp(np.asarray(edges, np.float64), np.append(first, len(utf8)), np.arange(len(lengths) + 1))


def align_models(
    models: Iterable[TokenLosses], reference: Ints, texts: TextSet, *, unit: str = "byte"
) -> npt.NDArray[np.float32]:
    """Losses of all models on the reference tokens (M × K); NaN where a model has none."""
    target = in_characters(reference, texts.utf8) if unit == "char" else reference
    rows = []
    for losses in models:
        source = in_characters(losses.edges, texts.utf8) if unit == "char" else losses.edges
        rows.append(regroup(losses.nats, source, target, counts=losses.counts).astype(np.float32))
    return np.stack(rows)


def common_support(nats: npt.NDArray[np.floating]) -> Bools:
    """Reference tokens on which every model (row) has a loss."""
    supported: Bools = np.ones(nats.shape[1], bool)
    for row in nats:
        supported &= np.isfinite(row)
    return supported


def characters_per_token(edges: Ints, utf8: npt.NDArray[np.uint8]) -> Floats:
    """How many characters each token spans; a split character counts in parts."""
    return np.diff(in_characters(edges, utf8))
