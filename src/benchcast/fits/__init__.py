"""A fit: what is needed to forecast a new model, kept in a folder that needs nothing else.

fit.predict(losses);  fit.save(folder);  benchcast.load(folder)
fit.push_to_hub("me/mmlu-fit");  benchcast.Fit.from_pretrained("me/mmlu-fit")
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchcast.errors import InputError
from benchcast.fits import files, hub
from benchcast.fits.checks import FitParts
from benchcast.fits.files import own_folder, read_parts, write_parts
from benchcast.fits.reading import align_checked, require_texts
from benchcast.intervals import distance, interval, nearness_to_chance
from benchcast.metadata import ModelMetadata
from benchcast.records import Bools, Ints, TextSet, TokenLosses
from benchcast.storage.folders import write_folder
from benchcast.task_fit import TaskFit

NO_BOS = (
    "the tokenizer puts no BOS before a text, and the fits rest on losses of first tokens; "
    "if the model is trained with a BOS, say so"
)


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a model will score, and how sure that is."""

    task: str
    model: str
    accuracy: float
    low: float  # ends of the 90% prediction interval for a model of a family never seen
    high: float
    capability: float
    remark: str = ""  # where not to trust it, in words


@dataclass(frozen=True, repr=False)
class Fit:
    """A fitted forecast of one task with all it needs to read a new model's losses."""

    core: TaskFit
    salience: npt.NDArray[np.float32]  # of every reference token (see TaskFit.salience)
    edges: Ints  # of the reference tokens
    supported: Bools
    texts: TextSet  # those it reads losses on
    about: dict[str, Any]  # where it came from: versions, models, split, hashes

    def __repr__(self) -> str:
        count = self.about.get("n_train", {}).get(self.task)
        return f"<Fit of {self.task!r} by {self.core.method}{'' if count is None else f' on {count} models'}>"

    @property
    def task(self) -> str:
        """Name of the task."""
        return self.core.task.name

    @property
    def needs_first(self) -> bool:
        """Whether it rests on the first token of some text, which has a loss only where a BOS stands before it."""
        first = np.searchsorted(self.edges, self.texts.starts[:-1])
        return self.core.reads_losses and bool(self.supported[first[first < len(self.supported)]].any())

    def require_texts(self, found: str, *, whose: str) -> None:
        """Refuse texts, by their digest, that are not the fit's own."""
        require_texts(self.texts, found, task=self.task, whose=whose)

    def align(self, losses: Iterable[TokenLosses]) -> npt.NDArray[np.float32]:
        """Losses of models on the reference tokens, NaN where there is none; losses on other texts are refused."""
        return align_checked(losses, self.texts, self.edges, task=self.task, unit=self.about.get("unit", "byte"))

    def predict(self, losses: TokenLosses, *, metadata: ModelMetadata | None = None) -> Forecast:
        """Forecast of one model.

        Parameters
        ----------
        losses : the model's losses on the fit's own texts; losses on other texts are refused
        metadata : FLOPs, size and scores of the model, which some methods read; by default those that the
            losses carry, as `Study.losses` gives them
        """
        known = ModelMetadata.of_losses(losses) if metadata is None else metadata
        nats = np.zeros((1, len(self.supported)), np.float32)
        if self.core.reads_losses:
            nats = self.align([losses])
            lacking = self.supported & ~np.isfinite(nats[0])
            if lacking.any():
                share = lacking.sum() / self.supported.sum()
                raise InputError(
                    f"model {losses.model!r} has no loss on {share:.1%} of the tokens "
                    f"that the fit of {self.task!r} rests on; --restrict fits again on what both have"
                )
            nats[:, ~self.supported] = 0.0
        capability = self.core.capability(nats, known)
        accuracy = self.core.law.accuracy(capability)
        low, high = interval(self.core, capability, accuracy)
        return Forecast(
            self.task,
            losses.model,
            float(accuracy[0]),
            float(low[0]),
            float(high[0]),
            float(capability[0]),
            self._remark(capability, known, losses.model),
        )

    def _remark(self, capability: npt.NDArray[np.float64], metadata: ModelMetadata, model: str) -> str:
        if self.core.law.failure:
            return f"no law: {self.core.law.failure}"
        if not np.isfinite(capability[0]):
            return self.core.lacking(metadata)
        if model in self.about.get("train", ()) or model in self.about.get("validation", ()):
            return "seen: the fit rests on this model's own score"
        far = float(distance(self.core, capability)[0])
        if far <= 0:
            near = float(nearness_to_chance(self.core, self.core.law.accuracy(capability))[0]) > 0
            return "near chance: losses hardly tell how far such a model is from better" if near else ""
        if np.isinf(far):
            return "extrapolation: all training models have the same capability, and this one has another"
        below = bool(capability[0] < self.core.range[0])
        side = "stronger" if below == (self.core.law.slope < 0) else "weaker"
        return f"extrapolation: {side} than every training model, by {far:.0%} of their range"

    def save(self, folder: str | Path) -> Path:
        """Write salience.safetensors and fit.json; they replace an older fit in one step."""
        path = own_folder(folder)
        write_folder(path, partial(write_parts, parts=self._parts()))
        return path

    def save_pretrained(self, folder: str | Path, *, include_texts: bool = False) -> Path:
        """The same with a model card, to be handed on; the texts go along only where that is asked for."""
        path = own_folder(folder)
        write_folder(path, partial(write_parts, parts=self._parts(), include_texts=include_texts, with_card=True))
        return path

    @classmethod
    def from_pretrained(cls, name: str | Path, *, revision: str | None = None) -> Fit:
        """A fit from a folder, or from the Hugging Face hub by its id."""
        return load(name if Path(name).exists() or not hub.is_id(str(name)) else hub.fetch(str(name), revision))

    def push_to_hub(self, repo_id: str, *, include_texts: bool = False, private: bool | None = None) -> str:
        """Put it on the hub with its card and return its address; the token comes from the environment."""
        with tempfile.TemporaryDirectory() as parent:
            made = self.save_pretrained(Path(parent) / "fit", include_texts=include_texts)
            return hub.push(made, repo_id, private=private)

    @property
    def digest(self) -> str:
        """Hash of everything a forecast rests on; the same with or without the texts themselves."""
        return files.digest(self._parts())

    def _parts(self) -> FitParts:
        return FitParts(self.core, self.salience, self.edges, self.supported, self.texts, self.about)


def load(folder: str | Path) -> Fit:
    """Read a fit back; it predicts the same, bit for bit."""
    return Fit(*read_parts(Path(folder)))
