"""Forecasts of a model in memory: read the fits' texts with it, spread over the ranks, and predict."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import nan
from pathlib import Path
from typing import Any

import numpy as np

from benchcast.backends.base import Vocabulary
from benchcast.backends.memory import MemoryBackend, bare, sharded
from benchcast.backends.vocabulary import vocabulary_of
from benchcast.backends.windows import Window, batches
from benchcast.callbacks.ranks import Ranks
from benchcast.callbacks.untouched import untouched
from benchcast.collection import EncodedTexts, encode_texts, make_portion
from benchcast.collection.portions import Portion, ask
from benchcast.errors import InputError
from benchcast.fits import NO_BOS, Fit, Forecast, hub
from benchcast.fits.inputs import stale_line
from benchcast.fitting import fits_for_new_models
from benchcast.records import ModelInfo, TextSet, TokenLosses
from benchcast.storage.loss_rows import LossRows, lay_out
from benchcast.store import Study

UNKNOWN = ModelInfo("model")
LOG = logging.getLogger("benchcast")
Fits = str | Path | Study | Fit | Iterable[Fit] | Mapping[str, Fit]


@dataclass(frozen=True, slots=True)
class Reading:
    """How texts are read."""

    add_bos_token: bool | None = None  # None: as the tokenizer does
    context: int = 0  # longest sequence; 0: as the model's configuration says
    batch_tokens: int = 0  # padded tokens of a batch; 0: chosen
    spread: bool = True  # over the ranks of a distributed run; else each process that calls reads all texts


DEFAULT = Reading()


def forecast(
    model: Any,
    tokenizer: Any,
    fits: Fits,
    texts: TextSet | None = None,
    *,
    flops: float = nan,
    reading: Reading = DEFAULT,
) -> dict[str, Forecast]:
    """Forecasts of a model by task; the model, its gradients and all random states are left as they are.

    `fits` are those of a study, by its folder, or fits themselves; `texts` are theirs where none are given.
    In a distributed run every rank calls this and gets the same forecasts.
    """
    reader = Reader.of(tokenizer, read_fits(fits), texts, reading=reading)
    return reader.forecast(model, replace(UNKNOWN, flops=flops))


def read_fits(fits: Fits) -> tuple[Fit, ...]:
    """Fits from a study, a fit's folder or hub id, or as they are; all on the same texts."""
    found = _fits(fits)
    if not found:
        raise InputError("no fits; make some with `benchcast fit STUDY`")
    for fit in found:
        fit.require_texts(found[0].texts.digest, whose=f"losses for the fit of {found[0].task!r}")
    return found


def _fits(fits: Fits) -> tuple[Fit, ...]:
    if isinstance(fits, Fit):
        return (fits,)
    if isinstance(fits, Study):
        stored = fits_for_new_models(fits)
        stale = stale_line(fits, stored)
        if stale:
            LOG.warning("%s (`benchcast fit %s` fits again)", stale, fits.root)
        return tuple(stored)
    if isinstance(fits, (str, Path)):
        path = Path(fits)
        shared = (path / "fit.json").is_file() or (not path.exists() and hub.is_id(str(fits)))
        return (Fit.from_pretrained(fits),) if shared else _fits(Study.open(path))
    return tuple(fits.values() if isinstance(fits, Mapping) else fits)


@dataclass(frozen=True)
class Reader:
    """The texts of some fits under one tokenizer, ready for any number of models."""

    fits: tuple[Fit, ...]
    texts: TextSet
    vocabulary: Vocabulary
    encoded: EncodedTexts
    reading: Reading

    @classmethod
    def of(
        cls, tokenizer: Any, fits: tuple[Fit, ...], texts: TextSet | None = None, *, reading: Reading = DEFAULT
    ) -> Reader:
        """Tokenize the texts; a tokenizer that cannot cover them is an error that names the first."""
        own = fits[0].texts if texts is None else texts
        for fit in fits:
            fit.require_texts(own.digest, whose="the losses to be made")
        own.require_texts("a forecast in a training run")
        vocabulary = vocabulary_of(tokenizer, add_bos_token=reading.add_bos_token)
        if not vocabulary.prefix and any(fit.needs_first for fit in fits):
            raise InputError(f"{NO_BOS}: Reading(add_bos_token=True)")
        encoded = encode_texts(vocabulary.tokenizer, own)
        encoded.require_all("the model in training", "give a tokenizer that covers them with tokenizer=…")
        return cls(fits, own, vocabulary, encoded, reading)

    def forecast(self, model: Any, info: ModelInfo = UNKNOWN) -> dict[str, Forecast]:
        """Forecasts by task; `info` is what is known of the model, whose parameters are counted here."""
        module = bare(model)
        if not info.params > 0 and not sharded(module):
            info = replace(info, params=float(sum(p.numel() for p in module.parameters())))
        losses = replace(self.losses(model, name=info.model), info=info)
        return {fit.task: fit.predict(losses) for fit in self.fits}

    def losses(self, model: Any, *, name: str = "model") -> TokenLosses:
        """The model's losses on all texts; each rank reads its part and gets the whole."""
        ranks = Ranks.here(spread=self.reading.spread)
        module = bare(model)
        with untouched(module):
            backend = self._backend(module, name)
            portion = make_portion(name, self.texts, self.encoded, range(len(self.texts)))
            windows = ranks.together(lambda: portion.windows(self.vocabulary.prefix, backend.context))
            made = ranks.together(lambda: _score(backend, portion, windows, ranks))
            flat = ranks.merged(made, backend.device)
        return self._laid_out(backend, windows, flat)

    def _backend(self, module: Any, name: str) -> MemoryBackend:
        reading = self.reading
        return MemoryBackend(
            module, self.vocabulary, model=name, context=reading.context, batch_tokens=reading.batch_tokens
        )

    def _laid_out(self, backend: MemoryBackend, windows: list[Window], flat: Any) -> TokenLosses:
        nats = [np.full(len(own), np.nan) for own in self.encoded.ids]
        at = 0
        for window in windows:
            part = flat[at + window.skip : at + len(window.ids)]
            nats[window.text][window.first : window.first + len(part)] = part
            at += len(window.ids)
        about = {"tokenizer": self.vocabulary.tokenizer.name, "bos": self.vocabulary.bos, **backend.about()}
        ids = [t.id for t in self.texts]
        rows = LossRows.of("the model in training", backend.model, ids, self.encoded.bounds, nats)
        return lay_out(rows, self.texts, about)


def _score(backend: MemoryBackend, portion: Portion, windows: list[Window], ranks: Ranks) -> Any:
    """Nats of this rank's windows on the axis of all windows' ids, scored as `collect` does; NaN elsewhere."""
    ends = np.cumsum([0, *(len(w.ids) for w in windows)])
    starts = {(w.text, w.first): int(start) for w, start in zip(windows, ends[:-1], strict=True)}
    flat = np.full(ends[-1], np.nan, np.float32)
    everything = list(batches(windows, size=backend.batch_size, tokens=backend.batch_tokens))
    for batch in ranks.own(everything) if everything else []:
        for window, nats in zip(batch, ask(backend, portion, batch), strict=True):
            flat[starts[window.text, window.first] :][: len(nats)] = nats
    return flat
