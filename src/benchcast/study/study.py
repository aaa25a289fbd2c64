"""A study on disk: texts, tasks, models, losses, scores, features and fits in one folder.

Other processes add losses and scores beside an open study. What was read of a file is therefore kept by the file's
stamp, never by the `Study`, and read again when another file has taken its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchcast.choices import RegroupUnit
from benchcast.display import html_table
from benchcast.errors import BenchcastError, InputError, NotEnoughDataError, StudyError
from benchcast.losses.assemble import AssemblyOptions, assemble
from benchcast.losses.dataset import Dataset, Features
from benchcast.losses.plausible import WordLosses, WordSample, describe, refuse_impossible, sampled, suspicious
from benchcast.messages import as_names, counted, did_you_mean
from benchcast.records import Bools, Floats, Ints, ModelInfo, Rows, Score, Task, TextSet, TokenLosses
from benchcast.steps import steps
from benchcast.study import feature_files, tables
from benchcast.study.atomic import (
    Stamp,
    file_name,
    local_folder,
    locked,
    present,
    stamp,
    stored_folders,
    write_folder,
    write_text,
    write_whole,
)
from benchcast.study.loss_files import is_half, read_parquet, stored_name, write_parquet
from benchcast.study.mean_scores import derived_scores, with_unclipped_means
from benchcast.study.study_toml import read_settings, settings_toml, tasks_toml
from benchcast.study.tables import check_rows, check_tasks, check_texts, read_models, read_scores

SAME_CHOICE = 1e-6  # difference of choice losses that rounding of log-likelihoods explains
MOST_LOSS_FILES = 1 << 16  # names of models that are kept, of all studies of this process


class ScoreTable(NamedTuple):
    """scores.csv: its rows, the same with the scores of aggregates that follow from them, and those of each model."""

    stored: tuple[Score, ...]
    every: tuple[Score, ...]
    of_model: dict[str, tuple[Score, ...]]


@dataclass(frozen=True)
class Study:
    """A study folder that has been opened: texts, tasks, models, scores, losses and features, read when asked for.

    `Study.open` and `Study.create` make one. Losses are in nats, scores and `items` from 0 to 1.

    >>> import benchcast as bc
    >>> study = bc.Study.open("study")
    >>> study
    <Study 'study': 2 tasks>
    >>> study.losses("oak-16M@8B").nats.shape                        # nats of every token
    (447,)
    """

    root: Path
    seed: int
    scorer: str  # which features to use; empty where there is no choice
    tasks: tuple[Task, ...]
    items: float = 1.0  # share of the items of evaluation logs that are texts; scores are of the others
    keep_all: bool = False  # learn from every model, even if it removes much of a task's own text
    read_choices: bool = True  # whether fits read choice losses, where models have them
    note: str = ""  # one line on a key of study.toml that is ignored

    def __repr__(self) -> str:
        return f"<Study {str(self.root)!r}: {counted(len(self.tasks), 'task')}>"

    def _repr_html_(self) -> str:
        try:
            return self._as_html()
        except BenchcastError as error:  # a damaged file: a notebook shows the line, without a traceback
            return html_table(f"Study {self.root}", [], [], notes=[str(error)])

    def _as_html(self) -> str:
        with_losses, scores = set(self.models_with_losses()), self.scores()
        scored = {t.name: {s.model for s in scores if s.task == t.name} for t in self.tasks}
        rows = [(t.name, t.chance, len(scored[t.name]), len(scored[t.name] & with_losses)) for t in self.tasks]
        counts = (
            counted(len(self.models()), "model"),
            f"{len(with_losses)} with losses",
            counted(len(self.texts), "text"),
            counted(len(self.fitted_tasks()), "stored fit"),
        )
        header = ("task", "chance", "models with a score", "with a score and losses")
        return html_table(f"Study {self.root}", header, rows, notes=[", ".join(counts)])

    @classmethod
    def create(
        cls,
        root: str | Path,
        texts: TextSet,
        *,
        tasks: Sequence[Task] = (),
        seed: int = 0,
        items: float = 1.0,
    ) -> Study:
        """Create a study with these texts; without tasks, study.toml holds a template of them to fill in."""
        path = local_folder(root)
        if (path / "study.toml").exists():
            raise StudyError(f"{path}: there is a study already")
        if path.exists() and (not path.is_dir() or any(not tables.own_leftover(p, texts) for p in path.iterdir())):
            raise StudyError(f"{path}: exists and is not empty; a study needs a folder of its own")
        check_texts(texts)
        check_tasks(tasks)
        path.mkdir(parents=True, exist_ok=True)
        write_text(path / "texts.jsonl", tables.texts_jsonl(texts))
        write_text(path / "study.toml", settings_toml(texts, tasks, seed=seed, items=items))
        return cls.open(path)

    @classmethod
    def open(cls, root: str | PathLike[str], *, keep_all: bool = False, read_choices: bool = True) -> Study:
        """Read study.toml and check that this version understands it.

        With `keep_all`, fits and comparisons learn from every model; the text that one lacks is lost for all models.
        Without `read_choices`, they read no choice losses, so that models without them can be forecast.
        """
        path = local_folder(root)
        settings = read_settings(path / "study.toml")
        return cls(
            root=path,
            seed=settings.seed,
            scorer=settings.scorer,
            tasks=settings.tasks,
            items=settings.items,
            keep_all=keep_all,
            read_choices=read_choices,
            note=settings.note,
        )

    @classmethod
    def of(cls, study: Study | str | PathLike[str]) -> Study:
        """The study itself, or the one at this path: what every public function accepts."""
        return study if isinstance(study, Study) else cls.open(study)

    @cached_property
    def texts(self) -> TextSet:
        """The validation set."""
        return tables.read_texts(self.root / "texts.jsonl")

    def task(self, name: str) -> Task:
        """A task by name."""
        (name,) = as_names([name])
        names = [t.name for t in self.tasks]
        if name not in names:
            raise InputError(
                f"unknown task {name!r}; study.toml has {', '.join(names) or 'none'}{did_you_mean(name, names)}"
            )
        return self.tasks[names.index(name)]

    @property
    def choice_columns(self) -> tuple[str, ...]:
        """Columns of a table that hold choice losses of its tasks; they are no losses."""
        return tuple(dict.fromkeys(column for task in self.tasks for column in task.choices))

    def models(self) -> Rows[ModelInfo]:
        """models.csv, then models that have losses and no row of their own: a list with `.to_pandas()`."""
        listed = self.listed_models()
        known = {m.model for m in listed}
        return Rows(ModelInfo, [*listed, *(ModelInfo(m) for m in self.models_with_losses() if m not in known)])

    def listed_models(self) -> list[ModelInfo]:
        """models.csv."""
        path = self.root / "models.csv"
        return list(_models(path, stamp(path)).values())

    def stored_scores(self) -> list[Score]:
        """scores.csv."""
        return list(self._scores().stored)

    def scores(self) -> Rows[Score]:
        """scores.csv, and the scores of aggregates that follow from it: a list with `.to_pandas()`."""
        return Rows(Score, self._scores().every)

    def _scores(self) -> ScoreTable:
        path = self.root / "scores.csv"
        return _scores(path, stamp(path), self.tasks)

    def models_with_losses(self) -> list[str]:
        """Names of the models whose losses are here, sorted."""
        return sorted(_model_in(path, stamp(path)) for path in (self.root / "losses").glob("*.parquet"))

    def losses_path(self, model: str) -> Path:
        """Path of the file of a model's losses."""
        return self.root / "losses" / f"{file_name(model)}.parquet"

    def losses(self, model: str) -> TokenLosses:
        """Losses of one model, with its rows of models.csv and scores.csv."""
        (model,) = as_names([model])
        path = self.losses_path(model)
        if not path.is_file():
            names = self.models_with_losses()
            raise InputError(f"{self.root}: no losses of model {model!r}{did_you_mean(model, names)}")
        table = self.root / "models.csv"
        info = _models(table, stamp(table)).get(model, ModelInfo(model))
        return replace(read_parquet(path, self.texts), info=info, scores=self._scores().of_model.get(model, ()))

    def scorers(self) -> list[str]:
        """Names of the scorers whose features are here."""
        folders = stored_folders(self.root / "features")
        return [feature_files.read_meta(p)["scorer"] for p in folders if (present(p) / "meta.json").is_file()]

    def features(self) -> Features | None:
        """Memory-mapped features of the study's scorer; None where there are none."""
        names = self.scorers()
        if not names:
            return None
        if not self.scorer and len(names) > 1:
            raise StudyError(
                f"{self.root}: features of {', '.join(names)}; say which in study.toml: scorer = {names[0]!r}"
            )
        name = self.scorer or names[0]
        if name not in names:
            raise StudyError(f"{self.root}: study.toml wants scorer {name!r}, features are there of {', '.join(names)}")
        return Features(*feature_files.read_folder(self.features_folder(name), self.texts), name)

    def features_folder(self, scorer: str) -> Path:
        """Path of the folder of a scorer's features."""
        return self.root / "features" / file_name(scorer)

    def dataset(
        self,
        tasks: Sequence[str] = (),
        *,
        support: Bools | None = None,
        choice_texts: Bools | None = None,
        unit: RegroupUnit = "byte",
    ) -> Dataset:
        """Losses and scores of every model that has both, for the named tasks or all of them.

        `support` (N) and `choice_texts` (S) restrict the tokens and the texts whose losses and choice losses are used.

        Its `support` says which models were excluded because they lack too much text, and what the others share.
        """
        wanted = [self.task(name) for name in dict.fromkeys(as_names(tasks))] or list(self.tasks)
        if not wanted:
            raise NotEnoughDataError(f"{self.root}/study.toml has no tasks; add one: [tasks.mmlu] with chance = 0.25")
        scores = self.scores()
        with_losses = set(self.models_with_losses())
        scored = {s.model for s in scores if s.task in {t.name for t in wanted}}
        models = [m for m in self.models() if m.model in with_losses & scored]
        if not models:
            raise NotEnoughDataError(
                f"{self.root}: no model has both losses and scores "
                f"({len(with_losses)} with losses, {len(scored)} with scores; do their names agree?)"
            )
        sample = WordSample.of(self.texts, without=self.choice_columns)
        words: dict[str, WordLosses] = {}
        one_by_one = (self.losses(m.model) for m in steps(models, "models read"))  # tokens may be many
        losses = sampled(one_by_one, sample, words)
        options = AssemblyOptions(
            features=self.features(),
            support=support,
            unit=unit,
            guarded=() if self.keep_all else self.tasks,
            choices=self.choice_columns,
            choice_texts=choice_texts,
        )
        dataset = assemble(self.texts, losses, models, scores=scores, tasks=wanted, options=options)
        dataset = with_unclipped_means(dataset, self.tasks)
        dataset = replace(dataset, doubts=tuple(describe(suspicious(sample, words))))
        return dataset if self.read_choices else dataset.without_choices()

    def infos(self, names: Sequence[str]) -> list[ModelInfo]:
        """Rows of models.csv of the named models, in that order; an empty row for a model that has none."""
        known = {m.model: m for m in self.models()}
        return [known.get(name, ModelInfo(name)) for name in names]

    def add_losses(
        self,
        losses: Sequence[TokenLosses],
        *,
        family: str = "",
        force: bool = False,
        half: bool = False,
        allow_implausible: bool = False,
    ) -> int:
        """Store losses of models; those already stored with the same content are skipped.

        Choice losses are added to stored losses that lack them. Returns how many models were written. Nothing is
        written if a loss differs from the stored one of the same name or, unless allowed, is larger than a softmax can
        give.
        """
        for x in () if allow_implausible else losses:
            refuse_impossible(x, self.texts)
        check_rows(ModelInfo(x.model, family) for x in losses)
        for name, count in Counter(x.model for x in losses).items():
            if count > 1:
                raise InputError(f"model {name!r} occurs twice among the files")
        with locked(self.root):
            new = [(x, half) for x in losses] if force else [y for x in losses if (y := self._to_store(x, half=half))]
            for x, as_half in new:
                write = partial(write_parquet, losses=x, texts=self.texts, half=as_half)
                write_whole(self.losses_path(x.model), write)
            if family:
                self._merge_models([ModelInfo(x.model, family) for x in losses])
        return len(new)

    def _to_store(self, losses: TokenLosses, *, half: bool) -> tuple[TokenLosses, bool] | None:
        """What is to be written, and whether as float16: the losses, or those of the study with choice losses that
        they lack; None if they lack nothing. Other losses under the same name are an error.
        """
        path = self.losses_path(losses.model)
        if not path.exists():
            return losses, half
        old = read_parquet(path, self.texts)
        with np.errstate(over="ignore"):  # float16 ends at 65504
            same_nats = any(
                np.array_equal(old.nats, losses.nats.astype(kind), equal_nan=True) for kind in (np.float32, np.float16)
            )
        if not (same_nats and np.array_equal(old.edges, losses.edges)):
            raise InputError(
                f"model {losses.model!r} is in the study with other losses; "
                "use another name, or --force to replace them"
            )
        lacking: dict[str, Floats] = {}
        for name, values in losses.choices.items():
            stored = old.choices.get(name, np.full(len(values), np.nan))
            if (np.abs(stored - values) > SAME_CHOICE).any():
                raise InputError(
                    f"model {losses.model!r} is in the study with other choice losses ({name}); "
                    "use another name, or --force to replace them"
                )
            if (np.isnan(stored) & np.isfinite(values)).any():
                lacking[name] = np.where(np.isnan(stored), values, stored)
        return (old.with_choices(old.choices | lacking), is_half(path)) if lacking else None

    def add_models(self, models: Sequence[ModelInfo]) -> None:
        """Add rows to models.csv; the values of a row replace older ones, its empty values do not."""
        with locked(self.root):
            self._merge_models(models)

    def _merge_models(self, models: Sequence[ModelInfo]) -> None:
        check_rows(models)
        known = {m.model: m for m in self.listed_models()}
        for m in models:
            known[m.model] = tables.merge(known.get(m.model, ModelInfo(m.model)), m)
        tables.write_models(self.root / "models.csv", known.values())

    def add_scores(self, scores: Sequence[Score], *, force: bool = False) -> int:
        """Add rows to scores.csv; a different score of the same model and task is an error unless forced."""
        check_rows(scores)
        with locked(self.root):
            known = {(s.model, s.task): s for s in self.stored_scores()}
            before = len(known)
            for s in scores:
                old = known.get((s.model, s.task))
                if old is not None and old.accuracy != s.accuracy and not force:
                    raise InputError(
                        f"{s.model!r} has accuracy {old.accuracy:g} on {s.task!r} in the study, "
                        f"the file says {s.accuracy:g}; --force replaces it"
                    )
                known[s.model, s.task] = s if old is None else tables.merge_scores(old, s, force=force)
            tables.write_scores(self.root / "scores.csv", known.values(), self.tasks)
        return len(known) - before

    def add_tasks(self, tasks: Sequence[Task]) -> Study:
        """The study with more tasks at the end of study.toml; those it already has are skipped."""
        check_tasks(tasks)
        with locked(self.root):
            path = self.root / "study.toml"
            known = {t.name for t in read_settings(path).tasks}
            new = [t for t in tasks if t.name not in known]
            if new:
                text = path.read_text(encoding="utf-8").rstrip("\n") + "\n\n" + tasks_toml(new)
                write_text(path, text, check=read_settings)
        return Study.open(self.root)

    def add_features(
        self, name: str, values: npt.NDArray[np.floating], edges: Ints, *, about: dict[str, Any] | None = None
    ) -> None:
        """Store a scorer's hidden states, one row per token."""
        meta = {"scorer": name, "texts": self.texts.digest, **(about or {})}
        fill = partial(feature_files.fill_folder, values=values, edges=edges, meta=meta)
        with locked(self.root):
            write_folder(self.features_folder(name), fill)

    def fit_folder(self, task: str) -> Path:
        """Path of the folder of a task's fit."""
        return self.root / "fits" / file_name(task)

    def fitted_tasks(self) -> list[str]:
        """Tasks that have a fit, in the order of study.toml."""
        return [t.name for t in self.tasks if (present(self.fit_folder(t.name)) / "fit.json").is_file()]


StudyLike = Study | str | PathLike[str]  # an opened study, or its folder


@lru_cache(maxsize=4)
def _models(path: Path, version: Stamp | None) -> dict[str, ModelInfo]:
    """Rows of this version of models.csv by model."""
    return {} if version is None else {m.model: m for m in read_models(path)}


@lru_cache(maxsize=4)
def _scores(path: Path, version: Stamp | None, tasks: tuple[Task, ...]) -> ScoreTable:
    """This version of scores.csv."""
    stored = [] if version is None else read_scores(path, tasks)
    every = (*stored, *derived_scores(stored, tasks))
    of_model: dict[str, list[Score]] = {}
    for score in every:
        of_model.setdefault(score.model, []).append(score)
    return ScoreTable(tuple(stored), every, {model: tuple(scores) for model, scores in of_model.items()})


@lru_cache(maxsize=MOST_LOSS_FILES)
def _model_in(path: Path, version: Stamp | None) -> str:
    """The model of this version of a file of losses."""
    return stored_name(path)
