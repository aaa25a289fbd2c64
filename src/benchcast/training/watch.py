"""Follow a training run: score each new checkpoint, store its losses in the study and forecast its scores.

All results are in the study, so a watch that was stopped or killed continues where it was. It waits for a checkpoint
that is still being written; one that cannot be read is reported once and skipped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from benchcast.collection.backends import open_backend
from benchcast.collection.backends.base import ModelSettings
from benchcast.collection.collect import collect
from benchcast.collection.jobs import Report, add_metadata
from benchcast.errors import BenchcastError, InputError, StudyError
from benchcast.forecasts.fit import stored_fits
from benchcast.forecasts.forecast import Forecast
from benchcast.forecasts.mean_tasks import predict_tasks
from benchcast.forecasts.needs import check_needs, probabilities
from benchcast.forecasts.stored_fit import NO_BOS, Fit
from benchcast.messages import nan_to_none
from benchcast.records import ModelInfo
from benchcast.study.loss_files import read_growing
from benchcast.study.study import Study, StudyLike
from benchcast.training import checkpoints as folders


@dataclass(frozen=True, slots=True)
class Event:
    """The forecasts of a checkpoint, or the reason why there are none."""

    kind: str  # forecast, waiting or skipped
    model: str
    step: int | None
    why: str = ""
    forecasts: tuple[Forecast, ...] = ()
    seconds: float = 0.0  # time that scoring took
    new: bool = False  # scored now, not read from the study
    needs: Mapping[str, float] = field(default_factory=dict)  # task → score that the run needs

    def __repr__(self) -> str:
        said = f"{len(self.forecasts)} tasks" if self.kind == "forecast" else self.why
        return f"<Event {self.kind} of {self.model!r}: {said}>"

    def to_dict(self) -> dict[str, Any]:
        """The event as plain values, as `benchcast watch --json` prints it; unknown numbers are None."""
        row: dict[str, Any] = {"event": self.kind, "model": self.model, "step": self.step}
        if self.kind != "forecast":
            return {**row, "why": self.why}
        fields = ("accuracy", "low", "high", "capability")
        forecasts = {
            f.task: {**{name: nan_to_none(getattr(f, name)) for name in fields}, "remark": f.remark}
            for f in self.forecasts
        }
        for task, probability in probabilities(self.forecasts, self.needs).items():
            forecasts[task] |= {"needed": self.needs[task], "probability": nan_to_none(probability)}
        return {**row, "new": self.new, "seconds": round(self.seconds, 3), "forecasts": forecasts}


@dataclass(frozen=True, slots=True)
class WatchedRun:
    """The run to follow and its names in the study; `checkpoints`, `losses` or both are given.

    >>> import benchcast as bc
    >>> run = bc.WatchedRun(checkpoints="run", family="mine").named()
    >>> run.name, run.family
    ('run', 'mine')
    """

    checkpoints: str | Path | None = None  # folder of checkpoints
    losses: str | Path | None = None  # folder of JSONL files that the training job writes
    name: str = ""  # checkpoints are NAME@STEP in the study; empty: the folder's name
    family: str = ""  # empty: the name
    settings: ModelSettings | str = ""  # of the model, without `pretrained`: "dtype=…,add_bos_token=…"
    device: str = ""  # empty: cuda if available
    batch_size: int = 0  # sequences per call; 0: chosen automatically
    needs: Mapping[str, float] = field(default_factory=dict)  # task → score (0..1) whose probability is forecast, too

    def named(self) -> WatchedRun:
        """The run with its name and family filled in; InputError if it has no folder."""
        folder = self.checkpoints or self.losses
        if folder is None:
            raise InputError("give --checkpoints DIR, --losses DIR or both")
        name = self.name or Path(folder).resolve().name
        return replace(self, name=name, family=self.family or name)

    def require_folders(self) -> None:
        """Raise an error for a folder that is not there."""
        for option, folder in (("--checkpoints", self.checkpoints), ("--losses", self.losses)):
            if folder is not None and not Path(folder).is_dir():
                raise InputError(f"{option} {folder}: no such folder; without --once, watch waits for it")


@dataclass
class Watch:
    """Follows a run; each message is emitted once."""

    study: Study
    run: WatchedRun
    on_model: Callable[[str], Report | None] = lambda _: None  # called before scoring; may return a progress callback
    _messages: dict[str, str] = field(default_factory=dict)  # last message of each model
    _refused: dict[str, object] = field(default_factory=dict)  # signature of each file or checkpoint that failed
    _finished: set[str] = field(default_factory=set)  # models whose forecasts were emitted

    @cached_property
    def fits(self) -> list[Fit]:
        """The study's fits; InputError if they are on other texts than the study's."""
        fits = stored_fits(self.study)
        for fit in fits:
            fit.require_texts(self.study.texts.digest, whose=f"{self.study.root}: the new losses")
        return fits

    def look(self) -> Iterator[Event]:
        """Score all new complete checkpoints once and yield their forecasts, and a message for each other one."""
        sources = ((self.run.checkpoints, self._look_at_checkpoints), (self.run.losses, self._look_at_losses))
        for folder, look_at in sources:
            if folder is not None and Path(folder).is_dir():
                yield from look_at(Path(folder))
            elif folder is not None:
                yield from self._wait(str(folder), None, "no such folder yet")

    def _look_at_checkpoints(self, folder: Path) -> Iterator[Event]:
        checkpoints = folders.find_checkpoints(folder)
        if not checkpoints:
            yield from self._wait(str(folder), None, "no checkpoints yet; folders named like checkpoint-500 are needed")
        for path in checkpoints:
            step = folders.step_of(path.name)
            model = f"{self.run.name}@{step}"
            if model in self._finished:
                continue
            try:
                yield from self._score_checkpoint(path, model, step)
            except StudyError as error:  # another process is collecting it
                yield from self._wait(model, step, str(error))
            except (BenchcastError, OSError) as error:
                try:
                    self._refused[path.name] = folders.signature(path)
                except OSError:  # deleted: the run keeps a limited number of checkpoints
                    self._finished.add(model)
                yield Event("skipped", model, step, why=str(error))

    def _score_checkpoint(self, path: Path, model: str, step: int | None) -> Iterator[Event]:
        if self.study.losses_path(model).is_file():
            with suppress(BenchcastError, OSError):  # the run may be deleting the checkpoint
                add_metadata(self.study, model, given=self._metadata(path))
            yield self._forecast(model, step, new=False)
            return
        if path.name in self._refused and self._refused[path.name] == folders.signature(path):
            return
        tokenizer = self._tokenizer(path)
        missing = folders.lacking(path, own_tokenizer=not tokenizer)
        if missing:
            yield from self._wait(model, step, missing)
            return
        began = time.monotonic()
        values = {"pretrained": str(path)} | ({"tokenizer": tokenizer} if tokenizer else {})
        settings = ModelSettings.of(self.run.settings).having(**values)
        backend = open_backend("hf", settings, device=self.run.device, batch_size=self.run.batch_size)
        if not backend.vocabulary.prefix and any(fit.needs_first for fit in self.fits):
            raise InputError(f"{NO_BOS}: --model_args add_bos_token=true")
        metadata = self._metadata(path)
        collect(self.study, backend, name=model, metadata=metadata, report=self.on_model(model))
        yield self._forecast(model, step, new=True, seconds=time.monotonic() - began)

    def _metadata(self, path: Path) -> ModelInfo:
        """Family, parameters, tokens and FLOPs of a checkpoint."""
        return replace(folders.progress_of(path), family=self.run.family)

    def _tokenizer(self, path: Path) -> str:
        """Path of the tokenizer the settings name, or of one beside the checkpoints; empty: in the checkpoint."""
        named = ModelSettings.of(self.run.settings).values().get("tokenizer", "")
        if named or folders.has_tokenizer(path):
            return named
        return str(path.parent) if folders.has_tokenizer(path.parent) else ""

    def _look_at_losses(self, folder: Path) -> Iterator[Event]:
        for path in sorted(folder.glob("*.jsonl"), key=lambda p: (folders.step_of(p.stem) or 0, p.name)):
            signature_now: object = None
            try:
                state = path.stat()
                signature_now = (state.st_size, state.st_mtime_ns)
                if self._refused.get(path.name) != signature_now:
                    yield from self._import(path)
            except FileNotFoundError:  # deleted since the folder was read
                continue
            except (BenchcastError, OSError) as error:
                self._refused[path.name] = signature_now
                yield Event("skipped", path.stem, folders.step_of(path.stem), why=str(error))

    def _import(self, path: Path) -> Iterator[Event]:
        """Forecasts of the models in a file that have all texts; the file may still grow."""
        complete, growing = read_growing(path, self.study.texts)
        for losses in complete:
            if losses.model not in self._finished:
                new = not self.study.losses_path(losses.model).is_file()
                self.study.add_losses([losses], family=self.run.family)
                yield self._forecast(losses.model, folders.step_of(losses.model), new=new)
        for model, why in growing.items():
            yield from self._wait(model, folders.step_of(model), why)

    def _forecast(self, model: str, step: int | None, *, new: bool, seconds: float = 0.0) -> Event:
        forecasts = tuple(predict_tasks(self.fits, self.study.losses(model)))
        self._finished.add(model)
        return Event("forecast", model, step, forecasts=forecasts, seconds=seconds, new=new, needs=self.run.needs)

    def _wait(self, model: str, step: int | None, why: str) -> Iterator[Event]:
        if self._messages.get(model) != why:
            self._messages[model] = why
            yield Event("waiting", model, step, why=why)


def watch(
    study: StudyLike,
    run: WatchedRun | str | Path,
    *,
    interval: float = 30.0,
    once: bool = False,
    on_model: Callable[[str], Report | None] = lambda model: None,
    on_wait: Callable[[], None] = lambda: None,
) -> Iterator[Event]:
    """Score each new checkpoint of a training run, add its losses to the study and forecast its scores.

    Parameters
    ----------
    study : an opened study or its folder; it has fits
    run : the run to follow, or its folder of checkpoints
    interval : seconds between two checks of the folders
    once : end after the checkpoints that are there now, and refuse a folder that is not there; otherwise the iterator
        does not end
    on_model : called with a model's name before it is scored; may return a progress callback
    on_wait : called before each pause

    Returns
    -------
    an iterator over events: the forecasts of a checkpoint, or the reason why it has none yet. A checkpoint that is
    still being written is waited for; all results are in the study, so that a new call continues

    >>> import benchcast as bc
    >>> run = bc.WatchedRun(checkpoints="run", name="my-7b", settings="add_bos_token=true")
    >>> [event.model for event in bc.watch("study", run, once=True)]
    ['my-7b@500']
    """
    asked = (run if isinstance(run, WatchedRun) else WatchedRun(Path(run))).named()
    opened = Study.of(study)
    if asked.checkpoints is not None:
        opened.texts.require_texts("watch --checkpoints")
    if once:
        asked.require_folders()
    watched = Watch(opened, asked, on_model)
    check_needs(asked.needs, [fit.task for fit in watched.fits])  # a study without fits is an error here, too
    return _follow(watched, interval, on_wait, once=once)


def _follow(watched: Watch, interval: float, on_wait: Callable[[], None], *, once: bool) -> Iterator[Event]:
    looked_again = False
    while True:
        changing = False
        for event in watched.look():
            changing = changing or event.why == "still changing"
            yield event
        if not once:
            on_wait()
            time.sleep(interval)
        elif looked_again or not changing:
            return
        else:  # written a moment ago: check once more
            looked_again = True
            time.sleep(folders.SETTLED + 0.1)
