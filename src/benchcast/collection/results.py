"""From the rows that backends returned to the losses of a model: nats of tokens, and choice losses of items."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from benchcast.collection.answer_options import answer_losses, item_choice_losses
from benchcast.collection.backends.base import PerToken
from benchcast.collection.windows import EncodedTexts
from benchcast.errors import InputError
from benchcast.records import CHOICE_LOSSES, Floats, TokenLosses
from benchcast.study.item_choices import continuation_nats
from benchcast.study.loss_files import LossRows, lay_out

SAME = 0.1  # largest accepted mean difference of an answer that is scored again, in nats


def model_losses(
    encoded: EncodedTexts, model: str, rows: Mapping[int, PerToken], *, about: dict[str, str], where: str
) -> TokenLosses:
    """A model's losses on all texts that were not refused, and its choice losses where options were scored.

    Parameters
    ----------
    encoded : the texts
    model : its name
    rows : the nats of each text, and behind them those of its options, by index of the text
    about : provenance that is stored with the losses
    where : start of error messages
    """
    scored = [i for i in range(len(encoded.ids)) if i not in encoded.refused]
    ids, bounds = [encoded.texts.texts[i].id for i in scored], [encoded.bounds[i] for i in scored]
    nats = {i: rows[i][: len(encoded.ids[i])].astype(np.float64) for i in scored}
    loss_rows = LossRows.of(where, model, ids, bounds=bounds, nats=[nats[i] for i in scored])
    losses = lay_out(loss_rows, encoded.texts, about)
    items = {}
    for i, answers in encoded.options.answers.items():
        kept = np.concatenate([nats[i][answers[0].tail.first :], rows[i][len(nats[i]) :]])
        items[i] = answer_losses(encoded.texts.texts[i], answers, kept)
    return _with_choices(losses, encoded, items)


def add_options(encoded: EncodedTexts, stored: TokenLosses, rows: Mapping[int, PerToken]) -> TokenLosses:
    """Stored losses with choice losses: the answer's loss is the stored one, those of the options come from `rows`.

    Parameters
    ----------
    encoded : the texts, of which only the options were scored
    stored : the model's losses of the texts
    rows : the nats of the answer, scored again, and of the options of each text, by index of the text
    """
    bounds, nats = stored.text_bounds(encoded.texts.starts), np.split(stored.nats, np.cumsum(stored.counts)[:-1])
    items, differences = {}, []
    for i, answers in encoded.options.answers.items():
        text = encoded.texts.texts[i]
        assert text.answer_start is not None
        again, *others = answer_losses(text, answers, rows[i])
        answer = continuation_nats(nats[i], bounds[i], text.answer_start)
        differences.append(abs(answer - again))
        items[i] = np.array([answer, *others])
    _require_same(stored.model, [x for x in differences if math.isfinite(x)])
    return _with_choices(stored, encoded, items)


def _require_same(model: str, differences: Iterable[float]) -> None:
    """Raise InputError if answers that were scored again differ from the stored ones, in nats."""
    apart = float(np.mean([*differences] or [0.0]))
    if apart > SAME:
        raise InputError(
            f"model {model!r}: its answers, scored again with the options, are {apart:.2g} nats from the stored losses "
            f"on average, {SAME:g} is the limit; were these other weights? --force scores the texts again, too"
        )


def _with_choices(losses: TokenLosses, encoded: EncodedTexts, items: Mapping[int, Floats]) -> TokenLosses:
    """The losses with the choice losses of items, whose answer and options have these losses, by index of the text."""
    if not encoded.texts.options_digest:
        return losses
    values = np.full((len(CHOICE_LOSSES), len(encoded.texts)), np.nan)
    for i, nats in items.items():
        values[:, i] = item_choice_losses(encoded.texts.texts[i], nats)
    known = {name: row for name, row in zip(CHOICE_LOSSES, values, strict=True) if np.isfinite(row).any()}
    return replace(losses.with_choices(known), about={**losses.about, "options": encoded.texts.options_digest})
