"""Write a smaller study with only the selected texts, and their losses, features, scores and fits.

New models then need losses on those texts only.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from benchcast.errors import InputError
from benchcast.fits import Fit
from benchcast.fitting import as_fits, store_fits, with_inputs, without_weak_tasks
from benchcast.folds import training_fold
from benchcast.records import Bools, Ints, TextSet, TokenLosses
from benchcast.selection.budgets import FullTextFits, prepare
from benchcast.selection.choosing import choose_texts, cut_fit, depends_on_losses
from benchcast.storage.files import write_text
from benchcast.storage.folders import write_folder
from benchcast.storage.tables import texts_jsonl
from benchcast.store import Study, StudyLike


@dataclass(frozen=True)
class TextSelection:
    """The texts selected for a study and the fits on all texts."""

    study: Study
    split: str
    full_fits: FullTextFits  # one fold: the training models of a fit of the study
    indices: Ints  # indices of the selected texts, in the order of the study
    tasks: tuple[str, ...]  # names of the tasks

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


def select(
    study: StudyLike, budget: int = 50, *, tasks: Sequence[str] = (), out: str | Path | None = None
) -> TextSelection:
    """Choose the texts that carry the forecasts of a study's tasks.

    Parameters
    ----------
    study : an opened study or its folder
    budget : number of texts to keep
    tasks : tasks of study.toml; none given: all
    out : where to write them: a name that ends in .jsonl for the texts, else the folder of a smaller study with fits

    Returns
    -------
    the selection: `.ids` of the texts, `.by_source()`, and tasks that had no influence on it
    """
    choice = choose(Study.of(study), budget, tasks)
    if out is not None and not is_written(choice, Path(out)):
        if Path(out).exists():
            raise InputError(f"{out}: exists with other content; give a new name")
        write = write_texts if Path(out).suffix == ".jsonl" else write_smaller
        write(choice, Path(out))
    return choice


def choose(study: Study, budget: int, tasks: Sequence[str] = ()) -> TextSelection:
    """Select the texts that forecasts depend on most, from all training models of a fit.

    Parameters
    ----------
    study : the study
    budget : number of texts
    tasks : tasks of study.toml; empty: all

    Returns
    -------
    the selected texts and the fits on all texts
    """
    if budget < 1:
        raise InputError(f"--budget {budget}: at least one text is needed")
    dataset = study.dataset(tasks)
    asked = tuple(t.name for t in dataset.tasks)
    name, fold = training_fold(study.infos(dataset.models), None)
    dataset, _ = without_weak_tasks(dataset, [fold], asked_for=bool(tasks))
    full_fits = prepare(dataset, [fold])
    return TextSelection(study, name, full_fits, np.sort(choose_texts(full_fits.objectives[0], budget)), asked)


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
    write_folder(root, partial(_fill, choice))
    return Study.open(root)


def _fill(choice: TextSelection, root: Path) -> None:
    study, order = choice.study, choice.indices
    kept = set(choice.ids)
    tasks = [replace(t, answers=tuple(a for a in t.answers if a in kept)) for t in study.tasks]
    smaller = Study.create(root, some_texts(study.texts, order), tasks=tasks, seed=study.seed)
    smaller.add_models(study.models())
    smaller.add_scores(study.scores())
    smaller.add_losses(
        [cut_losses(study.losses(m), study.texts, order) for m in study.models_with_losses()], allow_implausible=True
    )
    features = study.features()
    if features is not None:
        values, edges, scorer = features
        text = np.searchsorted(study.texts.starts[1:], edges[:-1], side="right")
        smaller.add_features(scorer, np.asarray(values[np.isin(text, order)]), _laid_out(edges, np.isin(text, order)))
    fits = [
        replace(fit, core=replace(fit.core, task=smaller.task(fit.task))) for fit in smaller_fits(choice, smaller.texts)
    ]
    store_fits(smaller, with_inputs(smaller, fits))


def smaller_fits(choice: TextSelection, texts: TextSet) -> list[Fit]:
    """The study's fits restricted to the selected texts."""
    full_fits = choice.full_fits
    dataset, fold, cores = full_fits.dataset, full_fits.folds[0], full_fits.fits[0]
    full = as_fits(choice.study, dataset, fold, choice.split, cores)
    keep = np.isin(dataset.reference_tokens.text, choice.indices)
    return [
        Fit(
            core=cut_fit(dataset, fold, t, fit.core, choice.indices),
            salience=fit.salience[keep],
            edges=_laid_out(dataset.reference_tokens.edges, keep),
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
    about = {k: v for k, v in losses.about.items() if k not in ("texts", "refused")}
    kept = {texts.texts[i].id for i in order}
    refused = [i for i in _listed(losses.about.get("refused", "[]")) if i in kept]
    about |= {"refused": json.dumps(refused, ensure_ascii=False)} if refused else {}
    return replace(
        losses, counts=losses.counts[order], edges=_laid_out(losses.edges, keep), nats=losses.nats[keep], about=about
    )


def _listed(line: str) -> list[str]:
    """The strings in a JSON list; empty if it is not a list."""
    try:
        names = json.loads(line)
    except (ValueError, RecursionError):
        return []
    return [x for x in names if isinstance(x, str)] if isinstance(names, list) else []


def _laid_out(edges: Ints, keep: Bools) -> Ints:
    """Boundaries of the kept tokens in bytes of the kept texts concatenated."""
    return np.concatenate([[0], np.cumsum(np.diff(edges)[keep])]).astype(np.int64)
