"""A fit: what is needed to forecast a new model, kept in a folder that needs nothing else.

fit.predict(losses);  fit.save(folder);  benchcast.load(folder)
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchcast.align import align_models
from benchcast.cells import null
from benchcast.errors import InputError, StudyError
from benchcast.evidence import HonestErrors, TaskFit
from benchcast.facts import Facts
from benchcast.files import write_folder
from benchcast.intervals import distance, interval
from benchcast.law import SigmoidLaw
from benchcast.records import Bools, Ints, ModelInfo, Task, Text, TextSet, TokenLosses

FORMAT = 1


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


@dataclass(frozen=True)
class Fit:
    """A fitted forecast of one task with all it needs to read a new model's losses."""

    core: TaskFit
    salience: npt.NDArray[np.float32]  # of every reference token (see TaskFit.salience)
    edges: Ints  # of the reference tokens
    supported: Bools
    texts: TextSet  # those it reads losses on
    about: dict[str, Any]  # where it came from: versions, models, split, hashes

    @property
    def task(self) -> str:
        """Name of the task."""
        return self.core.task.name

    def predict(self, losses: TokenLosses, *, facts: Facts | None = None) -> Forecast:
        """Forecast of one model from its losses on the fit's texts, and for some methods from what else is known."""
        known = Facts.of([ModelInfo(losses.model)], []) if facts is None else facts
        nats = np.zeros((1, len(self.supported)), np.float32)
        if self.core.reads_losses:
            nats = align_models([losses], self.edges, self.texts, unit=self.about.get("unit", "byte"))
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

    def _remark(self, capability: npt.NDArray[np.float64], facts: Facts, model: str) -> str:
        if self.core.law.failure:
            return f"no law: {self.core.law.failure}"
        if not np.isfinite(capability[0]):
            return self.core.lacking(facts)
        if model in self.about.get("train", ()) or model in self.about.get("validation", ()):
            return "seen: the fit rests on this model's own score"
        far = float(distance(self.core, capability)[0])
        if far <= 0:
            return ""
        below = bool(capability[0] < self.core.range[0])
        side = "stronger" if below == (self.core.law.slope < 0) else "weaker"
        return f"extrapolation: {side} than every training model, by {far:.0%} of their range"

    def save(self, folder: str | Path) -> Path:
        """Write salience.safetensors and fit.json; they replace an older fit in one step."""
        path = Path(folder)
        write_folder(path, self._fill)
        return path

    def _fill(self, folder: Path) -> None:
        from safetensors.numpy import save

        core = self.core
        arrays = {
            "salience": self.salience,
            "weights": core.weights,
            "edges": self.edges,
            "supported": self.supported.astype(np.uint8),
            "honest_errors": core.honest.errors,
            **{f"history.{name}": np.ascontiguousarray(x) for name, x in core.history.items()},
        }
        blob = save({name: np.ascontiguousarray(x) for name, x in arrays.items()})
        (folder / "salience.safetensors").write_bytes(blob)
        text = {
            "format": FORMAT,
            "task": asdict(core.task),
            "method": core.method,
            "reads": core.reads,
            "unit": core.unit,
            "law": {k: null(v) for k, v in asdict(core.law).items()},
            "range": [null(x) for x in core.range],
            "honest": {"kind": core.honest.kind, "families": list(map(str, core.honest.families))},
            "notes": core.notes,
            "about": self.about,
            "texts": [t.as_row() for t in self.texts],
            "arrays_sha256": hashlib.sha256(blob).hexdigest(),
        }
        (folder / "fit.json").write_text(
            json.dumps(text, indent=1, ensure_ascii=False, allow_nan=False), encoding="utf-8"
        )


def _nan(value: Any) -> Any:
    return math.nan if value is None else value


def load(folder: str | Path) -> Fit:
    """Read a fit back; it predicts the same, bit for bit."""
    from safetensors import SafetensorError
    from safetensors.numpy import load as load_arrays

    path = Path(folder)
    try:
        text = json.loads((path / "fit.json").read_text(encoding="utf-8"))
        blob = (path / "salience.safetensors").read_bytes()
        if text["format"] > FORMAT:
            raise StudyError(
                f"{path}: a fit of format {text['format']}, this version reads {FORMAT}; upgrade benchcast"
            )
        if hashlib.sha256(blob).hexdigest() != text["arrays_sha256"]:
            raise StudyError(f"{path}: salience.safetensors does not belong to fit.json; fit again")
        arrays = load_arrays(blob)
        task = Task(text["task"]["name"], text["task"]["chance"], tuple(text["task"]["sources"]))
        law = SigmoidLaw(**{k: _nan(v) for k, v in text["law"].items()})
        honest = HonestErrors(
            arrays["honest_errors"], np.array(text["honest"]["families"], dtype=str), text["honest"]["kind"]
        )
        history = {name.removeprefix("history."): x for name, x in arrays.items() if name.startswith("history.")}
        core = TaskFit(
            task,
            text["method"],
            tuple(text["reads"]),
            arrays["weights"],
            text["unit"],
            law,
            honest,
            (_nan(text["range"][0]), _nan(text["range"][1])),
            text["notes"],
            history,
        )
        texts = TextSet.of(Text(**row) for row in text["texts"])
        return Fit(core, arrays["salience"], arrays["edges"], arrays["supported"].astype(bool), texts, text["about"])
    except FileNotFoundError as error:
        raise StudyError(f"{path}: no fit here; make one with `benchcast fit`") from error
    except (ValueError, KeyError, TypeError, SafetensorError) as error:
        raise StudyError(f"{path}: damaged fit ({type(error).__name__}: {error}); fit again") from error
