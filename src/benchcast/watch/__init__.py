"""Follow a training run: score each new checkpoint, keep its losses in the study, forecast its scores.

What is done lies in the study, so a watch that was stopped or killed goes on where it was. A checkpoint that
is still being written is waited for; one that cannot be read is reported once and passed over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from benchcast.backends import open_backend
from benchcast.backends.base import ModelSettings
from benchcast.collection import NOTHING, Report, collect
from benchcast.collection.metadata import add_metadata
from benchcast.errors import BenchcastError, InputError, StudyError
from benchcast.fits import NO_BOS, Fit, Forecast
from benchcast.fitting import fits_for_new_models
from benchcast.records import ModelInfo
from benchcast.storage.loss_files import read_growing
from benchcast.store import Study
from benchcast.watch.checkpoints import (
    find_checkpoints,
    has_tokenizer,
    lacking,
    progress_of,
    signature,
    step_of,
)


@dataclass(frozen=True, slots=True)
class Event:
    """Something to tell: a forecast, or why there is none."""

    kind: str  # forecast, waiting or skipped
    model: str
    step: int | None
    why: str = ""
    forecasts: tuple[Forecast, ...] = ()
    seconds: float = 0.0  # scoring took
    new: bool = False  # scored now, not found in the study


@dataclass(frozen=True, slots=True)
class WatchedRun:
    """What is followed, and under which names it goes into the study."""

    checkpoints: Path | None
    losses: Path | None  # a folder of JSONL files that the job writes itself
    name: str
    family: str
    settings: ModelSettings  # of the model, without `pretrained`
    device: str = ""
    batch_size: int = 0


def _quiet(_: str) -> Report | None:
    return None


@dataclass
class Watch:
    """A run that is followed; what was said once is not said again."""

    study: Study
    run: WatchedRun
    on_model: Callable[[str], Report | None] = _quiet  # hears what is scored; may give something to report texts to
    _said: dict[str, str] = field(default_factory=dict)
    _refused: dict[str, object] = field(default_factory=dict)  # by what their files looked like
    _told: set[str] = field(default_factory=set)

    @cached_property
    def fits(self) -> list[Fit]:
        """The study's fits; they must be of the texts that will be scored."""
        found = fits_for_new_models(self.study)
        for fit in found:
            fit.require_texts(self.study.texts.digest, whose=f"{self.study.root}: the losses to be made")
        return found

    def look(self) -> Iterator[Event]:
        """One look at everything: scores what is new and whole, tells what is not."""
        sources = ((self.run.checkpoints, self._look_at_checkpoints), (self.run.losses, self._look_at_losses))
        for folder, look_at in sources:
            if folder is not None and folder.is_dir():
                yield from look_at(folder)
            elif folder is not None:
                yield from self._wait(str(folder), None, "no such folder yet")

    def _look_at_checkpoints(self, folder: Path) -> Iterator[Event]:
        found = find_checkpoints(folder)
        if not found:
            yield from self._wait(str(folder), None, "no checkpoints yet; folders named like checkpoint-500 are wanted")
        for path in found:
            step = step_of(path.name)
            model = f"{self.run.name}@{step}"
            if model in self._told:
                continue
            try:
                yield from self._one(path, model, step)
            except StudyError as error:  # another process is at it
                yield from self._wait(model, step, str(error))
            except (BenchcastError, OSError) as error:
                yield from self._refuse(path, model, step, str(error))

    def _one(self, path: Path, model: str, step: int | None) -> Iterator[Event]:
        if self.study.losses_path(model).is_file():
            with suppress(BenchcastError, OSError):  # it may be going away by now
                add_metadata(self.study, model, self._metadata(path), NOTHING)
            yield self._forecast(model, step)
            return
        if path.name in self._refused and self._refused[path.name] == signature(path):
            return
        tokenizer = self._tokenizer(path)
        missing = lacking(path, own_tokenizer=not tokenizer)
        if missing:
            yield from self._wait(model, step, missing)
            return
        began = time.monotonic()
        settings = self.run.settings.having(pretrained=str(path), **({"tokenizer": tokenizer} if tokenizer else {}))
        backend = open_backend("hf", settings, device=self.run.device, batch_size=self.run.batch_size)
        if not backend.vocabulary.prefix and any(fit.needs_first for fit in self.fits):
            raise InputError(f"{NO_BOS}: --model_args add_bos_token=true")
        metadata = self._metadata(path)
        collect(self.study, backend, name=model, metadata=metadata, report=self.on_model(model))
        yield self._forecast(model, step, seconds=time.monotonic() - began)

    def _metadata(self, path: Path) -> ModelInfo:
        """Size and training of a checkpoint."""
        known = progress_of(path)
        return ModelInfo("", self.run.family, known.params, known.tokens, known.flops)

    def _tokenizer(self, path: Path) -> str:
        """Where the tokenizer lies if not in the checkpoint: as asked, or beside the checkpoints."""
        asked = self.run.settings.values().get("tokenizer", "")
        if asked or has_tokenizer(path):
            return asked
        return str(path.parent) if has_tokenizer(path.parent) else ""

    def _look_at_losses(self, folder: Path) -> Iterator[Event]:
        for path in sorted(folder.glob("*.jsonl"), key=lambda p: (step_of(p.stem) or 0, p.name)):
            looks: object = None
            try:
                state = path.stat()
                looks = (state.st_size, state.st_mtime_ns)
                if self._refused.get(path.name) != looks:
                    yield from self._imported(path)
            except FileNotFoundError:  # gone since the folder was read
                continue
            except (BenchcastError, OSError) as error:
                self._refused[path.name] = looks
                yield Event("skipped", path.stem, step_of(path.stem), str(error))

    def _imported(self, path: Path) -> Iterator[Event]:
        """Models of one file whose texts are all there; it may go on growing."""
        whole, growing = read_growing(path, self.study.texts)
        for losses in whole:
            if losses.model not in self._told:
                new = not self.study.losses_path(losses.model).is_file()
                self.study.add_losses([losses], family=self.run.family)
                yield self._forecast(losses.model, step_of(losses.model), new=new)
        for model, why in growing.items():
            yield from self._wait(model, step_of(model), why)

    def _forecast(self, model: str, step: int | None, *, seconds: float = 0.0, new: bool | None = None) -> Event:
        losses = self.study.losses(model)
        made = tuple(fit.predict(losses) for fit in self.fits)
        self._told.add(model)
        return Event("forecast", model, step, "", made, seconds, seconds > 0 if new is None else new)

    def _wait(self, model: str, step: int | None, why: str) -> Iterator[Event]:
        if self._said.get(model) != why:
            self._said[model] = why
            yield Event("waiting", model, step, why)

    def _refuse(self, path: Path, model: str, step: int | None, why: str) -> Iterator[Event]:
        try:
            self._refused[path.name] = signature(path)
        except OSError:  # gone: the run keeps only so many checkpoints
            self._told.add(model)
        yield Event("skipped", model, step, why)


def run_name(checkpoints: Path | None, losses: Path | None, asked: str) -> str:
    """The run's name in the study: as asked, else that of the folder."""
    folder = checkpoints or losses
    if folder is None:
        raise InputError("give --checkpoints DIR, --losses DIR or both")
    return asked or folder.resolve().name


def as_json(event: Event) -> dict[str, Any]:
    """Plain values for one line of JSON."""
    from benchcast.formatting import nan_to_none

    row: dict[str, Any] = {"event": event.kind, "model": event.model, "step": event.step}
    if event.kind != "forecast":
        return {**row, "why": event.why}
    fields = ("accuracy", "low", "high", "capability")
    made = {
        f.task: {**{name: nan_to_none(getattr(f, name)) for name in fields}, "remark": f.remark}
        for f in event.forecasts
    }
    return {**row, "new": event.new, "seconds": round(event.seconds, 3), "forecasts": made}
