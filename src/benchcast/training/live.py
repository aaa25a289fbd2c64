"""Forecast the scores of a model in memory: score the fits' texts, shared among the ranks, and predict."""

from __future__ import annotations

import itertools
import logging
import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from math import nan
from pathlib import Path
from typing import Any

import numpy as np

from benchcast.collection.backends.base import Nats, Vocabulary
from benchcast.collection.backends.vocabulary import vocabulary_of
from benchcast.collection.results import model_losses
from benchcast.collection.windows import EncodedTexts, Group, Portion, ask, encode_texts, walk
from benchcast.errors import BenchcastError, InputError, one_line
from benchcast.forecasts import sharing
from benchcast.forecasts.fit import stored_fits
from benchcast.forecasts.forecast import Forecast
from benchcast.forecasts.mean_tasks import predict_tasks
from benchcast.forecasts.needs import check_needs, probabilities
from benchcast.forecasts.staleness import stale_line
from benchcast.forecasts.stored_fit import NO_BOS, Fit
from benchcast.records import ModelInfo, TextSet, TokenLosses
from benchcast.study.study import Study
from benchcast.training.memory_backend import MemoryBackend, bare, sharded, splits_batches
from benchcast.training.ranks import Ranks

UNKNOWN = ModelInfo("model")
LOG = logging.getLogger("benchcast")
Fits = str | Path | Study | Fit | Iterable[Fit] | Mapping[str, Fit]


@dataclass(frozen=True, slots=True)
class Reading:
    """Options for scoring the texts."""

    add_bos_token: bool | None = None  # None: the tokenizer's default
    context: int = 0  # longest sequence in tokens; 0: the configuration's limit
    batch_tokens: int = 0  # padded tokens of a batch; 0: automatic
    spread: bool = True  # share the texts among the ranks of a distributed run; else each process scores all


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
    """Forecast a model's scores without changing the model, its gradients or any random state.

    In a distributed run every rank must call this and gets the same forecasts.

    Parameters
    ----------
    model : a transformers model, or a module that maps ids (B × T) to logits (B × T × words)
    tokenizer : of transformers, tokenizers or tiktoken
    fits : a study or its folder, a fit's folder or hub id, or fits
    texts : the texts to score; default: those of the fits
    flops : training compute so far in FLOPs, for methods that use it
    reading : options for scoring the texts

    Returns
    -------
    the forecast of each task
    """
    reader = Reader.of(tokenizer, read_fits(fits), texts, reading=reading)
    return reader.forecast(model, replace(UNKNOWN, flops=flops))


def read_fits(fits: Fits) -> tuple[Fit, ...]:
    """Load fits from a study, a fit's folder or a hub id; InputError if their texts differ.

    Parameters
    ----------
    fits : a study or its folder, a fit's folder or hub id, or fits, which are returned as they are

    Returns
    -------
    the fits, at least one

    >>> from benchcast.callbacks import read_fits
    >>> [fit.task for fit in read_fits("study")]
    ['code']
    """
    if isinstance(fits, (str, Path)):
        path = Path(fits)
        is_fit = (path / "fit.json").is_file() or (not path.exists() and sharing.is_id(str(fits)))
        fits = Fit.from_pretrained(fits) if is_fit else Study.open(fits)
    loaded: tuple[Fit, ...]
    if isinstance(fits, Fit):
        loaded = (fits,)
    elif isinstance(fits, Study):
        loaded = tuple(stored_fits(fits))
        stale = stale_line(fits, loaded)
        if stale:
            LOG.warning("%s (`benchcast fit %s` fits again)", stale, fits.root)
    else:
        loaded = tuple(fits.values() if isinstance(fits, Mapping) else fits)
    if not loaded:
        raise InputError("no fits; make some with `benchcast fit STUDY`")
    for fit in loaded:
        fit.require_texts(loaded[0].texts.digest, whose=f"losses for the fit of {loaded[0].task!r}")
    return loaded


@dataclass(frozen=True)
class Reader:
    """The fits' texts under one tokenizer; scores any number of models."""

    fits: tuple[Fit, ...]
    vocabulary: Vocabulary
    encoded: EncodedTexts
    reading: Reading

    @classmethod
    def of(
        cls, tokenizer: Any, fits: tuple[Fit, ...], texts: TextSet | None = None, *, reading: Reading = DEFAULT
    ) -> Reader:
        """Tokenize the texts; InputError names the first text that the tokenizer cannot cover."""
        scored_texts = fits[0].texts if texts is None else texts
        for fit in fits:
            fit.require_texts(scored_texts.digest, whose="the new losses")
        scored_texts.require_texts("a forecast in a training run")
        vocabulary = vocabulary_of(tokenizer, add_bos_token=reading.add_bos_token)
        if not vocabulary.prefix and any(fit.needs_first for fit in fits):
            raise InputError(f"{NO_BOS}: Reading(add_bos_token=True)")
        options = any(fit.needs_options for fit in fits)
        if options and not scored_texts.options_digest:
            raise InputError(
                "the fits use choice losses, and their texts have no options to score; "
                "give the texts with options (texts=…), or fit without them: `fit STUDY --no-choices`"
            )
        # Data loaders fork, so the tokenizer starts no threads.
        encoded = encode_texts(vocabulary.tokenizer, scored_texts, threads=False, options=options)
        encoded.require_all("the model in training", "give a tokenizer that covers them with tokenizer=…")
        return cls(fits, vocabulary, encoded, reading=reading)

    def forecast(self, model: Any, info: ModelInfo = UNKNOWN) -> dict[str, Forecast]:
        """Forecasts by task; `info` holds the model's metadata, and its parameters are counted if missing."""
        module = bare(model)
        if not info.params > 0 and not sharded(module):
            info = replace(info, params=float(sum(p.numel() for p in module.parameters())))
        losses = replace(self.losses(model, name=info.model), info=info)
        return {forecast.task: forecast for forecast in predict_tasks(self.fits, losses)}

    def losses(self, model: Any, *, name: str = "model") -> TokenLosses:
        """The model's losses on all texts; each rank scores its share and gets all losses."""
        module = bare(model)
        ranks = Ranks.here(spread=self.reading.spread and not splits_batches(module))
        with untouched(module):
            backend = MemoryBackend(
                module,
                self.vocabulary,
                model=name,
                context=self.reading.context,
                batch_tokens=self.reading.batch_tokens,
            )
            portion = self.encoded.portion(name, range(len(self.encoded.ids)))
            nats = ranks.merged(ranks.together(lambda: _nats(backend, portion, ranks)), backend.device)
        by_text = dict(enumerate(np.split(nats, np.cumsum(self.encoded.row_counts)[:-1])))
        about = self.vocabulary.about() | backend.about()
        return model_losses(self.encoded, name, by_text, about=about, where="the model in training")


def _nats(backend: MemoryBackend, portion: Portion, ranks: Ranks) -> Nats:
    """Rows of all texts, end to end, scored as `collect` does; NaN in batches of other ranks."""
    assigned = set(ranks.assigned(range(len(portion.batches(backend)))))
    numbers = itertools.count()

    def answer(batch: list[Group]) -> list[Nats]:
        if next(numbers) in assigned:
            return ask(backend, portion, batch)
        return [np.full(len(window.ids), np.nan, np.float32) for group in batch for window in group]

    rows = {index: nats for part in walk(backend, portion, answer) for index, nats in part.rows.items()}
    return np.concatenate([np.zeros(0, np.float32), *(rows[i] for i in portion.ids if portion.row_count(i))])


@contextmanager
def untouched(model: Any) -> Iterator[None]:
    """Set the model to evaluation mode; on exit, restore the mode of every module and all random generators."""
    import torch

    modes = [(module, module.training) for module in model.modules()]
    python, legacy = random.getstate(), np.random.get_state()
    device = next(model.parameters()).device
    with ExitStack() as stack:
        stack.enter_context(_generators(device))
        if hasattr(torch.compiler, "set_stance"):  # torch 2.6: compiled parts would be compiled again for the texts
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        if torch.is_autocast_enabled(device.type):  # do not cache weights that are cast without gradients
            dtype = torch.get_autocast_dtype(device.type)
            stack.enter_context(torch.autocast(device.type, dtype=dtype, cache_enabled=False))
        try:
            model.eval()
            yield
        finally:
            model.train(modes[0][1])  # some modules override train()
            for module, mode in modes:
                if module.training != mode:
                    module.training = mode
            random.setstate(python)
            np.random.set_state(legacy)


def _generators(device: Any) -> Any:
    """Context that restores torch's generators of the CPU and of the model's device."""
    import torch

    if device.type == "cpu":
        return torch.random.fork_rng(devices=[])
    index = device.index if device.index is not None else torch.get_device_module(device.type).current_device()
    return torch.random.fork_rng(devices=[index], device_type=device.type)


class Attempts:
    """Makes the forecasts of one training run."""

    def __init__(
        self, fits: Fits, reading: Reading = DEFAULT, *, every: int = 0, need: Mapping[str, float] | None = None
    ) -> None:
        if every < 0:
            raise InputError(f"every={every}; a number of steps is needed, or 0 for each evaluation")
        self._fits, self._reading, self.every = read_fits(fits), reading, every
        self._need = dict(need or {})
        check_needs(self._need, [fit.task for fit in self._fits])
        self._last = -1  # step of the last forecast
        self._ready: tuple[Any, Reader] | None = None
        self._warned = False
        self._remarks: dict[str, str] = {}  # kind of the last logged remark, by task

    def make(self, model: Any, tokenizer: Any, info: ModelInfo) -> dict[str, float]:
        """Scalars for the logger: forecasts, intervals, capabilities and the seconds they took.

        `info` holds the model's name and its training tokens and FLOPs, if known.
        """
        began = time.monotonic()
        ranks = Ranks.here(spread=self._reading.spread)
        reader = ranks.together(lambda: self._reader(tokenizer))
        forecasts = reader.forecast(model, info)
        if ranks.rank == 0:
            self._tell(forecasts, info.model)
        return {**scalars(forecasts, self._need), "forecast/seconds": time.monotonic() - began}

    def _reader(self, tokenizer: Any) -> Reader:
        """The reader of a tokenizer; texts are tokenized once for each tokenizer."""
        if tokenizer is None:
            raise InputError("no tokenizer; give it to the callback with tokenizer=…")
        if self._ready is None or self._ready[0] is not tokenizer:
            self._ready = (tokenizer, Reader.of(tokenizer, self._fits, reading=self._reading))
        return self._ready[1]

    def _tell(self, forecasts: dict[str, Forecast], name: str) -> None:
        """Log each forecast's remark if its kind differs from the last one."""
        for task, forecast in forecasts.items():
            kind = forecast.remark.partition(":")[0]
            if kind and kind != self._remarks.get(task):
                what = "forecast" if math.isfinite(forecast.accuracy) else "no forecast"
                LOG.warning("%s: %s of %s: %s", name, what, task, forecast.remark)
            self._remarks[task] = kind

    def survive(self, step: int, work: Callable[[], object]) -> None:
        """Run `work` once for each step; log a warning on the first failure and ignore later ones."""
        if step == self._last:
            return
        self._last = step
        try:
            work()
        except Exception as error:  # noqa: BLE001 - no error of a forecast may stop training
            if not self._warned:
                what = "" if isinstance(error, BenchcastError) else f"{type(error).__name__}: "
                LOG.warning("no forecast: %s%s (training continues; this warning is shown once)", what, one_line(error))
            self._warned = True


def scalars(forecasts: dict[str, Forecast], need: Mapping[str, float]) -> dict[str, float]:
    """Names and values for a logger, without NaN; `need` has the tasks whose scores must reach a value."""
    values: dict[str, float] = {}
    for task, forecast in forecasts.items():
        values[f"forecast/{task}"] = forecast.accuracy
        values[f"forecast/{task}_low"] = forecast.low
        values[f"forecast/{task}_high"] = forecast.high
        values[f"capability/{task}"] = forecast.capability
    values |= {f"forecast/{task}_p": p for task, p in probabilities(forecasts.values(), need).items()}
    return {name: value for name, value in values.items() if math.isfinite(value)}
