"""Select the texts on which forecasts depend most, and write them as a smaller study with fits.

New models then need losses on those texts only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchcast.devices import few_blas_threads
from benchcast.errors import InputError, NotEnoughDataError
from benchcast.evaluation.selection_cost import (
    FullTextFits,
    SelectionCost,
    choose_texts,
    cut_fit,
    depends_on_losses,
    measure_costs,
    prepare,
)
from benchcast.forecasts.fit import as_fits, store_fits, with_inputs
from benchcast.forecasts.stored_fit import Fit
from benchcast.methods.spec import without_weak_tasks
from benchcast.records import Bools, Ints, TextSet, TokenLosses
from benchcast.splits import make_folds, training_fold
from benchcast.study.atomic import local_folder, write_folder, write_text
from benchcast.study.study import Study, StudyLike
from benchcast.study.tables import texts_jsonl

FOREIGN = (".json", ".csv", ".txt", ".parquet")  # endings that are not written


@dataclass(frozen=True, repr=False)
class TextSelection:
    """The texts selected for a study and the fits on all texts."""

    study: Study
    split: str
    full_fits: FullTextFits  # one fold: the training models of a fit of the study
    indices: Ints  # indices of the selected texts, in the order of the study
    tasks: tuple[str, ...]  # names of the tasks
    cost: SelectionCost | None = None  # None if it was not measured

    def __repr__(self) -> str:
        return f"<TextSelection of {len(self.indices)} of {len(self.study.texts)} texts>"

    @property
    def silent(self) -> list[str]:
        """Tasks that did not influence the selection, because their forecasts do not depend on the losses."""
        used = [fit.task.name for fit in self.full_fits.fits[0] if depends_on_losses(self.full_fits.dataset, fit)]
        return [name for name in self.tasks if name not in used]

    @property
    def fitted(self) -> list[str]:
        """Names of the tasks that have a fit."""
        return [fit.task.name for fit in self.full_fits.fits[0]]

    @property
    def ids(self) -> list[str]:
        """Ids of the selected texts."""
        return [self.study.texts.texts[i].id for i in self.indices]

    def by_source(self) -> dict[str, int]:
        """Number of selected texts of each source."""
        sources = [self.study.texts.texts[i].source for i in self.indices]
        return {s: sources.count(s) for s in self.study.texts.sources if s in sources}

    def to_dict(self) -> dict[str, Any]:
        """The selection as plain values, as `benchcast select --json` prints it."""
        head = {"texts": len(self.study.texts), "chosen": self.ids, "sources": self.by_source(), "no_say": self.silent}
        return head | ({} if self.cost is None else self.cost.to_dict())


@few_blas_threads()
def select(
    study: StudyLike,
    budget: int = 50,
    *,
    tasks: Sequence[str] = (),
    out: str | Path | None = None,
    check: bool = False,
    on_step: Callable[[str], None] = lambda step: None,
) -> TextSelection:
    """Select the texts that the forecasts of a study's tasks depend on most.

    Parameters
    ----------
    study : an opened study or its folder
    budget : number of texts to keep
    tasks : tasks of study.toml; none given: all
    out : where to write them: a name that ends in .jsonl for the texts, else the folder of a smaller study with fits
    check : measure the error on held-out models with half the budget, the budget and twice the budget
    on_step : called with one line at each step of the check

    Returns
    -------
    the selection: `.ids` of the texts, `.by_source()`, `.cost` if it was checked, `.to_dict()`

    >>> import benchcast as bc
    >>> bc.select("study", 10, tasks=["code"])
    <TextSelection of 10 of 24 texts>
    """
    target = None if out is None else Path(out)
    if target is not None and target.suffix in FOREIGN:
        raise InputError(f"{target}: texts are written as .jsonl; a name without an ending makes a smaller study")
    if target is not None and target.exists() and not (target.is_file() or (target / "study.toml").is_file()):
        raise InputError(f"{target}: exists; give a new name")
    choice = choose(Study.of(study), budget, tasks)
    new = target is not None and not is_written(choice, target)
    if target is not None and new and target.exists():
        raise InputError(f"{target}: exists with other content; give a new name")
    if check:
        choice = replace(choice, cost=_measure(choice, budget, on_step))
    if target is not None and new:
        (write_texts if target.suffix == ".jsonl" else write_smaller)(choice, target)
    return choice


def _measure(choice: TextSelection, budget: int, on_step: Callable[[str], None]) -> SelectionCost:
    """Cost on families that are held out in turn, or by size if there are fewer than three families."""
    dataset = choice.full_fits.dataset
    infos = choice.study.infos(dataset.models)
    split, folds = make_folds(infos, "family" if len(set(dataset.groups)) > 2 else "auto", groups=dataset.groups)
    if not all(fold.test.any() for fold in folds):
        return SelectionCost(remark="cost not measured: no model can be held out")
    on_step("fitting without each set of held-out models")
    try:
        return measure_costs(prepare(dataset, folds), budget, split, on_step=on_step)
    except NotEnoughDataError as error:
        return SelectionCost(remark=f"cost not measured: {error}")


def choose(study: Study, budget: int, tasks: Sequence[str] = ()) -> TextSelection:
    """Select texts from all training models of a fit; arguments as in `select`."""
    if budget < 1:
        raise InputError(f"--budget {budget}: at least one text is needed")
    dataset = study.dataset(tasks).without_choices()  # texts are chosen by the losses of their tokens
    asked = tuple(t.name for t in dataset.tasks)
    name, fold = training_fold(study.infos(dataset.models), "column")
    dataset, _ = without_weak_tasks(dataset, [fold], asked_for=bool(tasks))
    full_fits = prepare(dataset, [fold])
    indices = np.sort(choose_texts(full_fits.objectives[0], budget))
    return TextSelection(study=study, split=name, full_fits=full_fits, indices=indices, tasks=asked)


def write_texts(choice: TextSelection, path: Path) -> None:
    """Write the selected texts as JSONL."""
    write_text(path, texts_jsonl(some_texts(choice.study.texts, choice.indices)))


def is_written(choice: TextSelection, path: Path) -> bool:
    """Whether `path` already contains the selected texts, or a study of them with its fits."""
    texts = some_texts(choice.study.texts, choice.indices)
    if path.suffix == ".jsonl":
        return path.is_file() and path.read_bytes() == texts_jsonl(texts).encode()
    if not (path / "study.toml").is_file():
        return False
    existing = Study.open(path)
    return existing.texts == texts and set(choice.fitted) <= set(existing.fitted_tasks())


def write_smaller(choice: TextSelection, root: Path) -> Study:
    """Write a new study with the selected texts and fits on them, atomically, and open it."""
    write_folder(local_folder(root), partial(_fill, choice))
    return Study.open(root)


def _fill(choice: TextSelection, root: Path) -> None:
    study, order = choice.study, choice.indices
    kept = set(choice.ids)
    tasks = [replace(t, answers=tuple(a for a in t.answers if a in kept)) for t in study.tasks]
    texts = some_texts(study.texts, order)
    smaller = Study.create(root, texts, tasks=tasks, seed=study.seed, items=study.items)
    smaller.add_models(study.models())
    smaller.add_scores(study.stored_scores())
    smaller.add_losses(
        [cut_losses(study.losses(m), study.texts, order) for m in study.models_with_losses()], allow_implausible=True
    )
    features = study.features()
    if features is not None:
        keep = np.isin(np.searchsorted(study.texts.starts[1:], features.edges[:-1], side="right"), order)
        part = features.of_tokens(keep)
        smaller.add_features(part.scorer, part.values, part.edges)
    fits = [
        replace(fit, task_fit=replace(fit.task_fit, task=smaller.task(fit.task)))
        for fit in smaller_fits(choice, smaller.texts)
    ]
    store_fits(smaller, with_inputs(smaller, fits))


def smaller_fits(choice: TextSelection, texts: TextSet) -> list[Fit]:
    """The study's fits restricted to the selected texts."""
    full_fits = choice.full_fits
    dataset, fold, task_fits = full_fits.dataset, full_fits.folds[0], full_fits.fits[0]
    full = as_fits(choice.study, dataset, fold, split=choice.split, task_fits=task_fits)
    keep = np.isin(dataset.reference_tokens.text, choice.indices)
    return [
        Fit(
            task_fit=cut_fit(dataset, fold, t, fit.task_fit, choice.indices),
            salience=fit.salience[keep],
            edges=_kept_edges(dataset.reference_tokens.edges, keep),
            supported=fit.supported[keep],
            texts=texts,
            about={
                **fit.about,
                "texts": texts.digest,
                "annotated_texts": texts.annotated_digest,
                "chosen_from": choice.study.texts.digest,
            },
        )
        for t, fit in enumerate(full)
    ]


def some_texts(texts: TextSet, order: Ints) -> TextSet:
    """The texts with the given indices, in this order."""
    return type(texts).of(texts.texts[i] for i in order)


def cut_losses(losses: TokenLosses, texts: TextSet, order: Ints) -> TokenLosses:
    """A model's losses on the texts with the given indices."""
    keep = np.repeat(np.isin(np.arange(len(texts)), order), losses.counts)
    about = {k: v for k, v in losses.about.items() if k not in ("texts", "options", "refused")}
    kept = {texts.texts[i].id for i in order}
    refused = [i for i in _strings_in(losses.about.get("refused", "[]")) if i in kept]
    about |= {"refused": json.dumps(refused, ensure_ascii=False)} if refused else {}
    if texts.options_digest and losses.about.get("options") == texts.options_digest:
        about["options"] = some_texts(texts, order).options_digest
    cut = replace(
        losses,
        counts=losses.counts[order],
        edges=_kept_edges(losses.edges, keep),
        nats=losses.nats[keep],
        about=about,
    )
    return cut.with_choices({name: values[order] for name, values in losses.choices.items()})


def _strings_in(line: str) -> list[str]:
    """The strings in a JSON list; empty if it is not a list."""
    try:
        names = json.loads(line)
    except (ValueError, RecursionError):
        return []
    return [x for x in names if isinstance(x, str)] if isinstance(names, list) else []


def _kept_edges(edges: Ints, keep: Bools) -> Ints:
    """Boundaries of the kept tokens in bytes of the kept texts concatenated."""
    return np.concatenate([[0], np.cumsum(np.diff(edges)[keep])]).astype(np.int64)
