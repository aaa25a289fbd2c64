"""Regroup losses from one tokenization onto another (Algorithm 1), without a loop over characters, tokens or texts.

Axes: N source tokens, K target tokens, S texts, M models.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from benchcast.choices import RegroupUnit
from benchcast.records import Bools, Floats, Ints, TextSet, TokenLosses


def regroup(
    nats: npt.ArrayLike, source: npt.ArrayLike, target: npt.ArrayLike, *, counts: npt.ArrayLike | None = None
) -> Floats:
    """Move losses from one tokenization of a text to another (Algorithm 1).

    The algorithm as printed spreads the loss of each source token evenly over its units (characters; here bytes, or
    what the edges count), and adds up the units of each target token::

        for i in range(N):                              # source tokens
            for j in range(source[i], source[i + 1]):   # their units
                unit[j] = nats[i] / (source[i + 1] - source[i])
        for k in range(K):                              # target tokens
            regrouped[k] = sum(unit[target[k] : target[k + 1]])

    Below, the second sum is C(target[k + 1]) − C(target[k]), with C(x) the sum of all units before x. Within a source
    token all units are equal, so C is a straight line there; at the token's edges it is the cumulative sum of `nats`.
    Linear interpolation of the cumulative sum between the source edges is therefore C itself, up to rounding, and also
    defines it where an edge lies inside a unit, such as between two bytes of a character.

    Parameters
    ----------
    nats : N floats, the loss of each source token; NaN where there is none
    source, target : N + 1 and K + 1 non-decreasing edges of the tokens, in bytes (or another unit, the same for both)
    counts : number of source tokens of each text, if several texts are concatenated. A zero-width token then never
        passes its loss to another text.

    Returns
    -------
    K floats with the same sum as `nats`. A target token that overlaps a source token without a loss, or that
    extends beyond the source, is NaN.

    >>> regroup([2.0, 4.0], [0, 2, 4], [0, 1, 4])
    array([1., 5.])
    """
    source_edges = np.asarray(source, np.float64)
    target_edges = np.asarray(target, np.float64)
    tokens_per_text = np.asarray([len(source_edges) - 1] if counts is None else counts, np.int64)
    widths = np.diff(source_edges)
    losses = settle_zero_width(np.asarray(nats, np.float64), widths, tokens_per_text)
    missing = np.isnan(losses)
    regrouped = np.diff(_cumulative(np.where(missing, 0.0, losses), source_edges, target_edges))
    if not missing.any():
        return regrouped
    missing_width = np.diff(_cumulative(np.where(missing, widths, 0.0), source_edges, target_edges))
    return np.where(missing_width > 1e-9, np.nan, regrouped)  # NaN beyond the source already


def _cumulative(amounts: Floats, edges: Floats, at: Floats) -> Floats:
    """C(at): cumulative sum of `amounts` over `edges`, interpolated.

    Zero-width tokens are dropped first: interpolation is undefined on repeated positions.
    """
    wide = np.diff(edges) > 0
    knots = np.concatenate([edges[:-1][wide], edges[-1:]])
    curve = np.concatenate([[0.0], np.cumsum(amounts[wide])])
    return np.interp(at, knots, curve, left=np.nan, right=np.nan)


def settle_zero_width(nats: Floats, widths: npt.NDArray[np.number], counts: Ints) -> Floats:
    """Add the loss of each zero-width token to the next token of the same text that has width.

    After the last such token of a text, the loss is added to that token. A text without bytes keeps no loss.
    A zero-width token without a loss (usually a BOS) counts as 0: it covers no byte, so no byte lacks a loss.

    Parameters
    ----------
    nats : N losses
    widths : N token widths, in bytes
    counts : number of tokens of each text (S)

    Returns
    -------
    N losses, 0 for every zero-width token.
    """
    empty = widths <= 0
    if not empty.any():
        return nats
    wide = np.flatnonzero(~empty)
    settled = np.where(empty, 0.0, nats)
    if not len(wide):
        return settled
    text_of = np.repeat(np.arange(len(counts)), counts)
    zero_width = np.flatnonzero(empty)
    after = np.searchsorted(wide, zero_width)
    following = wide[np.minimum(after, len(wide) - 1)]
    preceding = wide[np.maximum(after - 1, 0)]
    receiver = np.where((after < len(wide)) & (text_of[following] == text_of[zero_width]), following, preceding)
    same_text = text_of[receiver] == text_of[zero_width]
    np.add.at(settled, receiver[same_text], np.nan_to_num(nats[zero_width[same_text]], nan=0.0))
    return settled


def in_characters(edges: npt.ArrayLike, utf8: npt.NDArray[np.uint8]) -> Floats:
    """Convert byte edges to positions in characters; an edge inside a character is a fraction.

    Algorithm 1 as printed spreads losses over characters instead of bytes.
    """
    first = np.flatnonzero((utf8 & 0xC0) != 0x80)
    lengths = np.diff(np.append(first, len(utf8)))
    return np.interp(np.asarray(edges, np.float64), np.append(first, len(utf8)), np.arange(len(lengths) + 1))


def align_models(
    models: Iterable[TokenLosses], reference: Ints, texts: TextSet, *, unit: RegroupUnit = "byte"
) -> npt.NDArray[np.float32]:
    """Regroup the losses of all models onto the reference tokens.

    Parameters
    ----------
    models : losses of each model on `texts`
    reference : K + 1 edges of the reference tokens, in bytes
    texts : the scored texts
    unit : "byte" or "char", over which a token's loss is spread evenly

    Returns
    -------
    M × K losses in nats; NaN where a model has none.
    """
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
    """Number of characters of each token; a character split between tokens counts as fractions."""
    return np.diff(in_characters(edges, utf8))
