"""A study with what several figures share, made once: its dataset, its split, its comparison of methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

import benchcast
from benchcast.choices import Split
from benchcast.errors import InputError, NotEnoughDataError
from benchcast.evaluation.compare import Execution, compare
from benchcast.evaluation.comparison import Comparison
from benchcast.losses.dataset import Dataset
from benchcast.messages import did_you_mean
from benchcast.records import ModelInfo
from benchcast.splits import Fold, make_folds
from benchcast.study.study import Study


def _silent(_: str) -> None:
    return None


@dataclass(frozen=True)
class StudyContext:
    """A study laid out for reproduction."""

    study: Study
    on_step: Callable[[str], None] = _silent  # called with a line at each step
    _compared: dict[str | None, Comparison] = field(default_factory=dict)

    @cached_property
    def dataset(self) -> Dataset:
        """Losses and scores of every model."""
        return self.study.dataset()

    @cached_property
    def infos(self) -> list[ModelInfo]:
        """What is known of the models, in the order of the dataset."""
        return self.study.infos(self.dataset.models)

    @property
    def split(self) -> Split:
        """The study's own split: its column if filled, else by size, as in the paper; never by family."""
        return "column" if any(m.split for m in self.infos) else "size"

    @cached_property
    def fold(self) -> Fold:
        """The models of the study's own split."""
        return make_folds(self.infos, self.split)[1][0]

    def comparison(self, split: Split | None = None) -> Comparison:
        """Every method on held-out models, of the study's own split by default; computed once per split."""
        split = split or self.split
        if split not in self._compared:
            execution = Execution(on_method=lambda m: self.on_step(f"{split}: {m}"))
            self._compared[split] = compare(self.study, split=split, methods="all", device=execution)
        return self._compared[split]

    def task(self, name: str | None) -> int | None:
        """Position of a named task."""
        if name is None:
            return None
        self.study.task(name)
        return [t.name for t in self.dataset.tasks].index(name)

    def about(self) -> dict[str, Any]:
        """Where numbers come from, for the head of a JSON file."""
        dataset = self.dataset
        return {
            "study": self.study.root.resolve().name,
            "benchcast": benchcast.__version__,
            "texts": self.study.texts.digest,
            "scorer": dataset.features.scorer if dataset.features else None,
            "models": len(dataset.models),
            "families": len(np.unique(dataset.families)),
        }


def role(fold: Fold, i: int) -> str:
    """What a model is for."""
    return "test" if fold.test[i] else "validation" if fold.validation[i] else "train"


def need_features(dataset: Dataset, what: str) -> None:
    """Refuse a study without a scorer."""
    if dataset.features is None:
        raise NotEnoughDataError(f"{what} needs features of a scorer, the study has none; run `benchcast features`")


def pick_runs(families: Sequence[str], named: str | None) -> tuple[str, str]:
    """Two families: those named as `A,B`, else the first two whose names differ only after the last hyphen."""
    known = sorted(set(families))
    if named:
        parts = [p.strip() for p in named.split(",")]
        if len(parts) != 2 or parts[0] == parts[1]:
            raise InputError(f"--runs {named!r}: two different families wanted, as in --runs {','.join(known[:2])}")
        for part in parts:
            if part not in known:
                raise InputError(
                    f"--runs: unknown family {part!r}; known: {', '.join(known)}{did_you_mean(part, known)}"
                )
        return parts[0], parts[1]
    stems = [name.rpartition("-")[0] for name in known]
    for i, stem in enumerate(stems):
        if stem and stem in stems[i + 1 :]:
            return known[i], known[stems.index(stem, i + 1)]
    raise NotEnoughDataError(
        "no two families share a name up to the last hyphen (as oak-a and oak-b); "
        f"say which with --runs {','.join(known[:2])}"
    )
