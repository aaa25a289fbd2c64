"""A fit: a self-contained forecast of one task that can be saved, loaded and shared.

fit.predict(losses);  fit.save(folder);  benchcast.load(folder)
fit.push_to_hub("me/mmlu-fit");  benchcast.Fit.from_pretrained("me/mmlu-fit")
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import overload

import numpy as np
import numpy.typing as npt

from benchcast.align import align_models
from benchcast.choices import DEFAULT_LEVEL, check_level
from benchcast.errors import InputError
from benchcast.fits import files, hub
from benchcast.fits.checks import FitParts
from benchcast.fits.files import own_folder, read_parts, write_parts
from benchcast.fits.forecasts import STRONGER_MODEL, UNSEEN_FAMILY, remark_on
from benchcast.fits.forecasts import Forecast as Forecast
from benchcast.fits.forecasts import Forecasts as Forecasts
from benchcast.formatting import match_names
from benchcast.intervals import predict
from benchcast.metadata import ModelMetadata
from benchcast.records import NamedTexts, TextSet, TokenLosses
from benchcast.storage.folders import write_folder
from benchcast.storage.loss_files import read_losses
from benchcast.store import Study, StudyLike

NO_BOS = (
    "the tokenizer adds no BOS before a text, and the fits use losses of first tokens; "
    "if the model is trained with a BOS, set it"
)


@dataclass(frozen=True, repr=False)
class Fit(FitParts):
    """A fitted forecast of one task, with the texts and reference tokens on which it reads losses."""

    def __repr__(self) -> str:
        count = self.about.get("n_train", {}).get(self.task)
        return f"<Fit of {self.task!r} by {self.core.method}{'' if count is None else f' on {count} models'}>"

    @property
    def task(self) -> str:
        """Name of the task."""
        return self.core.task.name

    @property
    def needs_first(self) -> bool:
        """Whether the first token of some text is used; it has a loss only after a BOS."""
        first = np.searchsorted(self.edges, self.texts.starts[:-1])
        return self.core.reads_losses and bool(self.supported[first[first < len(self.supported)]].any())

    def require_texts(self, digest: str, *, whose: str) -> None:
        """Raise an error unless `digest` is empty (unknown) or that of the fit's texts; `whose` starts the message."""
        if digest and digest != self.texts.digest:
            raise InputError(
                f"{whose} are on texts {digest}, the fit of {self.task!r} is on texts {self.texts.digest}; "
                "fit again on the study's texts (`benchcast fit STUDY`), or use losses on the fit's texts"
            )

    def align(self, losses: Iterable[TokenLosses]) -> npt.NDArray[np.float32]:
        """Losses of models on the reference tokens (M × N, nats), NaN where missing; an error for other texts."""
        checked = (self._checked(x) for x in losses)
        return align_models(checked, self.edges, self.texts, unit=self.about.get("unit", "byte"))

    def _checked(self, losses: TokenLosses) -> TokenLosses:
        whose = f"losses of model {losses.model!r}"
        self.require_texts(losses.texts_digest, whose=whose)
        why = mismatch(losses, self.texts)
        if why:
            raise InputError(f"{whose} do not match the texts of the fit of {self.task!r}: {why}")
        return losses

    @overload
    def predict(
        self, losses: TokenLosses, *, metadata: ModelMetadata | None = None, level: float = DEFAULT_LEVEL
    ) -> Forecast: ...

    @overload
    def predict(
        self, losses: Study, *, models: Sequence[str] | None = None, level: float = DEFAULT_LEVEL
    ) -> Forecasts: ...

    @overload
    def predict(
        self,
        losses: StudyLike,
        *,
        models: Sequence[str] | None = None,
        metadata: ModelMetadata | None = None,
        level: float = DEFAULT_LEVEL,
    ) -> Forecast | Forecasts: ...

    def predict(
        self,
        losses: TokenLosses | StudyLike,
        *,
        models: Sequence[str] | None = None,
        metadata: ModelMetadata | None = None,
        level: float = DEFAULT_LEVEL,
    ) -> Forecast | Forecasts:
        """Forecast one model from its token losses, or many models of a study.

        Parameters
        ----------
        losses : losses of one model on the fit's texts, as `Study.losses` returns them, or a file of them (JSONL,
            Parquet, or CSV if the fit is on a table of losses); or a study or its folder
        models : names of the study's models, or patterns such as "my-7b@*"; None: all models with losses
        metadata : FLOPs, size and scores of the one model, which some methods read; None: those stored in `losses`
        level : nominal coverage of the interval on unseen families, between 0 and 1

        Returns
        -------
        For one model a `Forecast`: accuracy, low and high (0..1), and a remark. For a study `Forecasts`, with
        `.to_pandas()` and `.to_arrow()`; a model that lacks losses which the fit reads has nulls and a reason.

        >>> import benchcast as bc
        >>> study = bc.Study.open("study")
        >>> fit = bc.fit(study, task="code", method="label-token", split="size")
        >>> forecast = fit.predict(study.losses("oak-64M@16B"), level=0.8)
        >>> forecast.low < forecast.accuracy < forecast.high
        True
        >>> fit.predict(study, models=["oak-*"])
        <Forecasts of 4 models on code>
        """
        check_level(level)
        if isinstance(losses, TokenLosses):
            return self._forecast(losses, ModelMetadata.of_losses(losses) if metadata is None else metadata, level)
        if not isinstance(losses, Study) and Path(losses).is_file():
            return self.predict(read_model(Path(losses), self.texts), metadata=metadata, level=level)
        study = Study.of(losses)
        if self.core.reads_losses:
            self.require_texts(study.texts.digest, whose=f"study {study.root}")
        known = study.models_with_losses()
        names = known if models is None else match_names(known, models, where=str(study.root), what="losses of model")
        rows, failed = [], {}
        for name in names:
            try:
                rows.append(self.predict(study.losses(name), level=level))
            except InputError as error:
                failed[name] = str(error)
                rows.append(Forecast.missing(self.task, name, str(error), level))
        return Forecasts(tuple(rows), failed)

    def _forecast(self, losses: TokenLosses, metadata: ModelMetadata, level: float) -> Forecast:
        nats = np.zeros((1, len(self.supported)), np.float32)
        if self.core.reads_losses:
            nats = self.align([losses])
            lacking = self.supported & ~np.isfinite(nats[0])
            if lacking.any():
                share = lacking.sum() / self.supported.sum()
                raise InputError(
                    f"model {losses.model!r} has no loss on {share:.1%} of the tokens "
                    f"that the fit of {self.task!r} uses; `predict STUDY --restrict` fits again on those that both have"
                )
            nats[:, ~self.supported] = 0.0
        p = predict(self.core, nats, metadata, level)
        accuracy, low, high, capability = (float(x[0]) for x in (p.accuracy, p.low, p.high, p.capability))
        remark = remark_on(self.core, p, metadata, losses.model, self.about)
        question = STRONGER_MODEL if p.position.stronger[0] else UNSEEN_FAMILY
        return Forecast(self.task, losses.model, accuracy, low, high, capability, remark, level, question)

    def save(self, folder: str | Path) -> Path:
        """Write salience.safetensors and fit.json atomically, replacing an older fit; returns the folder."""
        path = own_folder(folder)
        write_folder(path, partial(write_parts, parts=self))
        return path

    def save_pretrained(self, folder: str | Path, *, include_texts: bool = False) -> Path:
        """Write the fit with a model card, for sharing; the texts are included only with `include_texts`."""
        path = own_folder(folder)
        write_folder(path, partial(write_parts, parts=self, include_texts=include_texts, with_card=True))
        return path

    @classmethod
    def from_pretrained(cls, name: str | Path, *, revision: str | None = None) -> Fit:
        """Load a fit from a folder, or from the Hugging Face hub by its id (user/name) and `revision`."""
        return load(name if Path(name).exists() or not hub.is_id(str(name)) else hub.fetch(str(name), revision))

    def push_to_hub(self, repo_id: str, *, include_texts: bool = False, private: bool | None = None) -> str:
        """Upload the fit with a model card to the Hugging Face hub; the token comes from the environment.

        Parameters
        ----------
        repo_id : user/name
        include_texts : whether to upload the texts
        private : whether a new repository is private; None uses the default of the hub

        Returns
        -------
        The address of the repository.
        """
        with tempfile.TemporaryDirectory() as parent:
            folder = self.save_pretrained(Path(parent) / "fit", include_texts=include_texts)
            return hub.push(folder, repo_id, private=private)

    @property
    def digest(self) -> str:
        """Hash of everything that affects a forecast; the same with or without the content of the texts."""
        return files.digest(self)


def load(folder: str | Path) -> Fit:
    """Load a fit that was saved in a folder; its forecasts are bit-identical.

    Parameters
    ----------
    folder : the folder that `Fit.save` wrote, or a study's fits/TASK; `Fit.from_pretrained` also takes a hub id

    Returns
    -------
    the fit

    >>> import benchcast as bc
    >>> fit = bc.fit("study", task="code", method="label-token")
    >>> bc.load(fit.save("code-fit")).digest == fit.digest
    True
    """
    return Fit(**vars(read_parts(Path(folder))))


def read_model(file: Path, texts: TextSet) -> TokenLosses:
    """Read the losses of one model on a fit's texts from a file; an error if the file has several models."""
    if file.suffix == ".csv" and not isinstance(texts, NamedTexts):
        raise InputError(f"{file}: losses for a forecast come as .jsonl or .parquet, one model a file")
    models = read_losses(file, texts)
    if len(models) != 1:
        raise InputError(f"{file}: losses of one model are needed, found {len(models)}")
    return models[0]


def mismatch(losses: TokenLosses, texts: TextSet) -> str:
    """Description of the first text that the tokens do not cover exactly; empty if all texts are covered."""
    counts, edges = losses.counts, losses.edges
    if len(counts) != len(texts):
        return f"they are on {len(counts)} texts, the fit is on {len(texts)}"
    if not len(edges) - 1 == len(losses.nats) == counts.sum() or (counts < 0).any():
        return f"{len(losses.nats)} nats need {len(losses.nats) + 1} edges, found {len(edges)}"
    ends = edges[np.concatenate([[0], np.cumsum(counts)])]
    if (ends != texts.starts).any() or (np.diff(edges) < 0).any():
        lengths = zip(np.diff(ends), np.diff(texts.starts), strict=True)
        at = next((i for i, same in enumerate(starmap(np.equal, lengths)) if not same), 0)
        return (
            f"text {texts.texts[at].id!r} has {texts.starts[at + 1] - texts.starts[at]} bytes, "
            f"the losses cover {ends[at + 1] - ends[at]}"
        )
    return ""
