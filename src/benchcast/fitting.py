"""From a study to a fit, from a fit to a forecast; a fit is a folder that needs nothing else.

fit = bc.fit(study, task="mmlu");  fit.predict(losses);  fit.save(folder);  bc.load(folder)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import benchcast
from benchcast.align import align_models
from benchcast.errors import EvidenceError, InputError, StudyError
from benchcast.evidence import Evidence, Fold, HonestErrors, TaskFit
from benchcast.files import write_folder
from benchcast.folds import SPLITS, make_folds
from benchcast.intervals import LEVEL, distance, interval, spread_of
from benchcast.law import SigmoidLaw
from benchcast.methods import METHODS
from benchcast.records import Bools, Ints, Task, Text, TextSet, TokenLosses
from benchcast.store import Study
from benchcast.tables import near

FORMAT = 1
FEWEST_MODELS = 4


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
    edges: Ints  # of the reference tokens
    supported: Bools
    texts: TextSet  # ids and lengths count, and the texts themselves for `explain`
    about: dict[str, Any]  # where it came from: versions, models, split, hashes

    @property
    def task(self) -> str:
        """Name of the task."""
        return self.core.task.name

    @property
    def salience(self) -> npt.NDArray[np.float32]:
        """The weight of every reference token."""
        return self.core.weights

    def predict(self, losses: TokenLosses, *, flops: float = float("nan")) -> Forecast:
        """Forecast of one model from its losses on the fit's texts."""
        nats = np.zeros((1, len(self.supported)), np.float32)
        if self.core.reads == "nats":
            nats = align_models([losses], self.edges, self.texts, unit=self.about.get("unit", "byte"))
            lacking = self.supported & ~np.isfinite(nats[0])
            if lacking.any():
                share = lacking.sum() / self.supported.sum()
                raise InputError(
                    f"model {losses.model!r} has no loss on {share:.1%} of the tokens "
                    f"that the fit of {self.task!r} rests on; --restrict fits again on what both have"
                )
            nats[:, ~self.supported] = 0.0
        capability = self.core.capability(nats, np.array([flops]))
        accuracy = self.core.law.accuracy(capability)
        low, high = interval(self.core, capability, accuracy)
        return Forecast(
            self.task,
            losses.model,
            float(accuracy[0]),
            float(low[0]),
            float(high[0]),
            float(capability[0]),
            self._remark(capability),
        )

    def _remark(self, capability: npt.NDArray[np.float64]) -> str:
        if self.core.law.failure:
            return f"no law: {self.core.law.failure}"
        if not np.isfinite(capability[0]):
            return "no training FLOPs known" if self.core.reads == "flops" else "no capability"
        far = float(distance(self.core, capability)[0])
        if far <= 0:
            return ""
        side = "stronger" if capability[0] < self.core.range[0] else "weaker"
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
            "salience": core.weights,
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
            "law": asdict(core.law),
            "range": core.range,
            "honest": {"kind": core.honest.kind, "families": list(map(str, core.honest.families))},
            "notes": core.notes,
            "about": self.about,
            "texts": [t.as_row() for t in self.texts],
            "arrays_sha256": hashlib.sha256(blob).hexdigest(),
        }
        (folder / "fit.json").write_text(json.dumps(text, indent=1, ensure_ascii=False), encoding="utf-8")


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
        law = SigmoidLaw(**text["law"])
        honest = HonestErrors(
            arrays["honest_errors"], np.array(text["honest"]["families"], dtype=str), text["honest"]["kind"]
        )
        history = {name.removeprefix("history."): x for name, x in arrays.items() if name.startswith("history.")}
        core = TaskFit(
            task,
            text["method"],
            text["reads"],
            arrays["salience"],
            text["unit"],
            law,
            honest,
            tuple(text["range"]),
            text["notes"],
            history,
        )
        texts = TextSet.of(Text(**row) for row in text["texts"])
        return Fit(core, arrays["edges"], arrays["supported"].astype(bool), texts, text["about"])
    except FileNotFoundError as error:
        raise StudyError(f"{path}: no fit here; make one with `benchcast fit`") from error
    except (ValueError, KeyError, TypeError, SafetensorError) as error:
        raise StudyError(f"{path}: damaged fit ({type(error).__name__}: {error}); fit again") from error


def fit(
    study: Study,
    task: str,
    *,
    method: str = "salience",
    split: str | None = None,
    restrict: TokenLosses | None = None,
) -> Fit:
    """Fit one task on the study's training models (see `fit_tasks`)."""
    return fit_tasks(study, [task], method=method, split=split, restrict=restrict)[0]


def fit_tasks(
    study: Study,
    tasks: Sequence[str] = (),
    *,
    method: str = "salience",
    split: str | None = None,
    restrict: TokenLosses | None = None,
) -> list[Fit]:
    """Fit several tasks in one go, on shared passes over losses and features.

    With a split, its test models stay unseen. Without one, or by family, every model with losses and
    scores is learned from. `restrict` confines the fit to tokens on which that model has a loss too.
    """
    if method not in METHODS:
        raise InputError(f"unknown method {method!r}; known: {', '.join(METHODS)}{near(method, METHODS)}")
    evidence = study.evidence(tasks)
    if restrict is not None:
        row = align_models([restrict], evidence.tokens.edges, study.texts)[0]
        evidence = study.evidence(tasks, support=np.isfinite(row))
    name, fold = _training_fold(study, evidence, split)
    check_evidence(evidence, fold)
    fits = METHODS[method](evidence, [fold])[0]
    about = {
        "benchcast": benchcast.__version__,
        "texts": study.texts.digest,
        "scorer": evidence.features.scorer if evidence.features else "",
        "split": name,
        "unit": "byte",
        "level": LEVEL,
        "seed": study.seed,
        "train": [m for m, on in zip(evidence.models, fold.train, strict=True) if on],
        "validation": [m for m, on in zip(evidence.models, fold.validation, strict=True) if on],
    }
    return [Fit(core, evidence.tokens.edges, evidence.tokens.supported, study.texts, about) for core in fits]


def _training_fold(study: Study, evidence: Evidence, split: str | None) -> tuple[str, Fold]:
    """The models to learn from. By default the split column, or everything where it is empty."""
    models = study.infos(evidence.models)
    everything = np.ones(len(models), bool)
    nobody = ~everything
    if split is not None and split not in SPLITS:
        raise InputError(f"unknown split {split!r}; known: {', '.join(SPLITS)}{near(split, SPLITS)}")
    if split == "family" or (split is None and not any(m.split for m in models)):
        return "everything", Fold(everything, nobody, nobody)
    name, folds = make_folds(models, split)
    return name, folds[0]


def check_evidence(evidence: Evidence, fold: Fold) -> None:
    """Refuse what no method could learn from, naming the task and what it lacks."""
    for task, accuracy in zip(evidence.tasks, evidence.accuracy, strict=True):
        known = fold.seen & np.isfinite(accuracy)
        if known.sum() < FEWEST_MODELS:
            raise EvidenceError(
                f"{task.name}: {known.sum()} training models have both losses and accuracy, "
                f"a fit needs at least {FEWEST_MODELS}"
            )
        if np.ptp(accuracy[known]) == 0:
            raise EvidenceError(
                f"{task.name}: all training models score {accuracy[known][0]:g}; there is nothing to learn from"
            )


def describe(fit: Fit) -> str:
    """One line on a fit for people."""
    spread = spread_of(fit.core.honest)
    law = fit.core.law
    if law.failure:
        return f"{fit.task}: no law ({law.failure})"
    return (
        f"{fit.task}: {fit.core.method}, {len(fit.about['train'])} training models, {int(fit.supported.sum())} tokens; "
        f"families not shown are missed by {100 * spread.scale:.1f} points (root mean square), "
        f"90% interval ±{100 * spread.half_width:.1f}"
    )
