"""A fit: what is needed to forecast a new model, kept in a folder that needs nothing else.

fit.predict(losses);  fit.save(folder);  benchcast.load(folder)
fit.push_to_hub("me/mmlu-fit");  benchcast.Fit.from_pretrained("me/mmlu-fit")
"""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchcast.align import align_models
from benchcast.cells import null
from benchcast.errors import InputError, StudyError
from benchcast.evidence import HonestErrors, TaskFit
from benchcast.facts import Facts
from benchcast.fits import hub
from benchcast.fits.card import fit_card
from benchcast.intervals import distance, interval, nearness_to_chance
from benchcast.law import Bend, SigmoidLaw
from benchcast.records import Bools, Ints, ModelInfo, Task, Text, TextOutlines, TextSet, TokenLosses
from benchcast.storage.files import write_folder

FORMAT = 1
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

    @property
    def needs_first(self) -> bool:
        """Whether it rests on the first token of some text, which has a loss only where a BOS stands before it."""
        first = np.searchsorted(self.edges, self.texts.starts[:-1])
        return self.core.reads_losses and bool(self.supported[first[first < len(self.supported)]].any())

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
            near = float(nearness_to_chance(self.core, self.core.law.accuracy(capability))[0]) > 0
            return "near chance: losses hardly tell how far such a model is from better" if near else ""
        below = bool(capability[0] < self.core.range[0])
        side = "stronger" if below == (self.core.law.slope < 0) else "weaker"
        return f"extrapolation: {side} than every training model, by {far:.0%} of their range"

    def save(self, folder: str | Path) -> Path:
        """Write salience.safetensors and fit.json; they replace an older fit in one step."""
        path = _own_folder(folder)
        write_folder(path, self._fill)
        return path

    def save_pretrained(self, folder: str | Path, *, include_texts: bool = False) -> Path:
        """The same with a model card, to be handed on; the texts go along only where that is asked for."""
        path = _own_folder(folder)
        write_folder(path, partial(self._fill, include_texts=include_texts, with_card=True))
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
        blob, text = self._contents()
        rest = {k: v for k, v in text.items() if k != "texts"}
        return hashlib.sha256(json.dumps(rest, sort_keys=True, allow_nan=False).encode() + blob).hexdigest()

    def _contents(self) -> tuple[bytes, dict[str, Any]]:
        """The arrays, and all the rest as plain values."""
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
        return blob, {
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
            "texts": self._text_rows(include_texts=True),
            "arrays_sha256": hashlib.sha256(blob).hexdigest(),
        }

    def _text_rows(self, *, include_texts: bool) -> list[dict[str, Any]]:
        """Texts, or their outlines where they are not to be handed on or are not here."""
        if include_texts and not isinstance(self.texts, TextOutlines):
            return [t.as_row() for t in self.texts]
        lengths = np.diff(self.texts.starts).tolist()
        return [
            {k: v for k, v in t.as_row().items() if k != "text"} | {"bytes": n}
            for t, n in zip(self.texts, lengths, strict=True)
        ]

    def _fill(self, folder: Path, *, include_texts: bool = True, with_card: bool = False) -> None:
        blob, text = self._contents()
        text["texts"] = self._text_rows(include_texts=include_texts)
        (folder / "salience.safetensors").write_bytes(blob)
        document = json.dumps(text, indent=1, ensure_ascii=False, allow_nan=False)
        (folder / "fit.json").write_text(document, encoding="utf-8")
        if with_card:
            card = fit_card(self.core, self.about, texts=len(self.texts), include_texts="text" in text["texts"][0])
            (folder / "README.md").write_text(card, encoding="utf-8")


def _own_folder(folder: str | Path) -> Path:
    """A folder that may be replaced: none is there yet, or it holds a fit and nothing else."""
    path = Path(folder)
    if path.exists():
        others = {p.name for p in path.iterdir()} - set(hub.FILES) if path.is_dir() else {path.name}
        if others:
            raise InputError(
                f"{path}: holds {min(others)!r}, which is no part of a fit; give a folder for the fit alone"
            )
    return path


def _read_texts(rows: list[dict[str, Any]], about: dict[str, Any]) -> TextSet:
    """The fit's texts, or what it says of them."""
    if "bytes" not in rows[0]:
        return TextSet.of(Text(**row) for row in rows)
    texts = (Text(row["id"], row["source"], "", row.get("answer_start")) for row in rows)
    return TextOutlines(tuple(texts), tuple(row["bytes"] for row in rows), about["texts"])


def _nan(value: Any) -> Any:
    return math.nan if value is None else value


def _law(stored: dict[str, Any]) -> SigmoidLaw:
    bend = stored.get("bend") and Bend(**{**stored["bend"], "slopes": tuple(stored["bend"]["slopes"])})
    return SigmoidLaw(**{k: _nan(v) for k, v in stored.items() if k != "bend"}, bend=bend)


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
        law = _law(text["law"])
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
        texts = _read_texts(text["texts"], text["about"])
        return Fit(core, arrays["salience"], arrays["edges"], arrays["supported"].astype(bool), texts, text["about"])
    except FileNotFoundError as error:
        raise StudyError(f"{path}: no fit here; make one with `benchcast fit`") from error
    except (ValueError, LookupError, TypeError, AttributeError, SafetensorError) as error:
        raise StudyError(f"{path}: damaged fit ({type(error).__name__}: {error}); fit again") from error
