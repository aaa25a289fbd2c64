"""A fit: it forecasts models from their losses, and is stored in a folder.

The folder holds arrays in salience.safetensors and all other values in fit.json; no pickle.
"""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import starmap
from os import PathLike
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from benchcast.choices import DEFAULT_LEVEL, check_level
from benchcast.display import cell, html_table
from benchcast.errors import InputError, StudyError, one_line
from benchcast.forecasts import sharing
from benchcast.forecasts.forecast import (
    SEEN,
    STRONGER_MODEL,
    UNSEEN_FAMILY,
    Forecast,
    Forecasts,
    relation_of,
    remark_on,
)
from benchcast.forecasts.intervals import predict
from benchcast.forecasts.sharing import FILES, fit_card
from benchcast.forecasts.stored_fit_checks import check_about, check_task_fit, check_texts, check_tokens
from benchcast.losses.regroup import align_models
from benchcast.messages import brief, match_names, nan_to_none
from benchcast.methods.capability import read_capability
from benchcast.methods.disagreement import ARRAYS as DISAGREEMENT_ARRAYS
from benchcast.methods.disagreement import Disagreement
from benchcast.methods.law import SigmoidLaw
from benchcast.methods.profile import LossProfile
from benchcast.methods.task_fit import NO_ERRORS, IntervalWidth, OutOfFoldErrors, TaskFit
from benchcast.records import Bools, Ints, ModelMetadata, NamedTexts, Task, Text, TextOutlines, TextSet, TokenLosses
from benchcast.study.atomic import hash_holds, hashed, local_folder, read_files, write_folder
from benchcast.study.loss_files import read_losses
from benchcast.study.study import Study, StudyLike

FORMAT = 1
GONE_METHOD, GONE_INPUTS = "proxy-metrics", ("rank", "entropy", "hit", "margin")  # of older versions
PROFILE_ARRAYS, PROFILE_NUMBERS = ("group", "mean", "whiten"), ("typical", "usual", "strongest")
ERROR_ARRAYS = ("hidden_set", "observed", "distance", "disagreement")  # stored where they are known
NO_BOS = (
    "the tokenizer adds no BOS before a text, and the fits use losses of first tokens; "
    "if the model is trained with a BOS, set it"
)


@dataclass(frozen=True, repr=False)
class Fit:
    """A fitted forecast of one task, with the texts and reference tokens on which it reads losses.

    `fit`, `fit_tasks` and `load` return it. Losses that it reads are in nats, forecasts from 0 to 1.

    >>> import benchcast as bc
    >>> study = bc.Study.open("study")
    >>> fit = bc.load(study.root / "fits" / "code")
    >>> fit
    <Fit of 'code' by label-token on 16 models>
    >>> forecast = fit.predict(study.losses("oak-16M@8B"))
    >>> forecast.low < forecast.accuracy < forecast.high
    True
    """

    task_fit: TaskFit
    salience: npt.NDArray[np.float32]  # weight of each reference token (N, see TaskFit.salience)
    edges: Ints  # of the reference tokens, in bytes (N + 1)
    supported: Bools  # mask of the reference tokens that are used (N)
    texts: TextSet  # texts on which losses are read
    about: dict[str, Any]  # provenance: versions, models, split, hashes

    def __repr__(self) -> str:
        count = self.about.get("n_train", {}).get(self.task)
        return f"<Fit of {self.task!r} by {self.task_fit.method}{'' if count is None else f' on {count} models'}>"

    def _repr_html_(self) -> str:
        law, errors = self.task_fit.law, self.task_fit.out_of_fold
        known = {
            "training models": self.about.get("n_train", {}).get(self.task, ""),
            "families left out in turn": len(set(errors.families)),
            "mean error on them": float(np.abs(errors.errors).mean()) if len(errors.errors) else math.nan,
            "chance": self.task_fit.task.chance,
            "law": law.failure or "accuracy as a sigmoid of capability",
            "texts": len(self.texts),
            "tokens in use": f"{int(self.supported.sum())} of {len(self.supported)}",
        }
        return html_table(repr(self)[1:-1], ["", ""], [[name, cell(value)] for name, value in known.items()])

    @property
    def task(self) -> str:
        """Name of the task."""
        return self.task_fit.task.name

    @property
    def needs_first(self) -> bool:
        """Whether the first token of some text is used; it has a loss only after a BOS."""
        first = np.searchsorted(self.edges, self.texts.starts[:-1])
        return self.task_fit.reads_losses and bool(self.supported[first[first < len(self.supported)]].any())

    @property
    def needs_options(self) -> bool:
        """Whether choice losses are used, which a model has on texts with options."""
        choices = getattr(self.task_fit.capability, "choices", None)
        return choices is not None and bool(choices.used.any())

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
        if not isinstance(losses, Study):
            path = self._path(losses)
            if path.is_file():
                return self.predict(read_model(path, self.texts), metadata=metadata, level=level)
        study = Study.of(losses)
        if self.task_fit.reads_losses:
            self.require_texts(study.texts.digest, whose=f"study {study.root}")
        known = study.models_with_losses()
        names = known if models is None else match_names(known, models, where=str(study.root), what="losses of model")
        rows, failed = [], {}
        for name in names:
            try:
                rows.append(self.predict(study.losses(name), level=level))
            except InputError as error:
                failed[name] = str(error)
                rows.append(Forecast.missing(self.task, name, str(error), level=level))
        return Forecasts(tuple(rows), failed)

    def _path(self, losses: Any) -> Path:
        """The path of a study or file of losses; an error for the name of a model and for other objects."""
        if not isinstance(losses, str | PathLike):
            raise InputError(
                f"predict: found {type(losses).__name__}; needed are the losses of one model (`study.losses(NAME)`), "
                "a file of them, or a study"
            )
        path = local_folder(losses)
        if not path.exists():
            raise InputError(
                f"predict: {str(losses)!r} is neither a study nor a file of losses. A model of a study needs the "
                f"study, too: fit.predict(STUDY, models=[{str(losses)!r}])"
            )
        return path

    def _forecast(self, losses: TokenLosses, metadata: ModelMetadata, level: float) -> Forecast:
        nats = np.zeros((1, len(self.supported)), np.float32)
        if self.task_fit.reads_losses:
            nats = self.align([losses])
            lacking = self.supported & ~np.isfinite(nats[0])
            if lacking.any():
                share = lacking.sum() / self.supported.sum()
                why = (
                    " (first tokens of texts: it was scored without BOS; add_bos_token=true scores it with one)"
                    if losses.lacks_first_tokens
                    else ""
                )
                raise InputError(
                    f"model {losses.model!r} has no loss on {share:.1%} of the tokens that the fit of {self.task!r} "
                    f"uses{why}; `predict STUDY --restrict` fits again on those that both have"
                )
            nats[:, ~self.supported] = 0.0
            if metadata.choices is None:
                metadata = replace(metadata, choices=ModelMetadata.of_losses(losses).choices)
            capability = self.task_fit.capability
            if not capability.known(metadata)[0]:
                raise InputError(
                    f"model {losses.model!r} has {capability.missing(metadata)} (fit of {self.task!r}); import them "
                    "with its losses, or fit without them: `predict STUDY --restrict`, or `fit STUDY --no-choices`"
                )
        p = predict(self.task_fit, nats, metadata, level=level)
        relation = relation_of(self.task_fit, metadata, model=losses.model, about=self.about)
        return Forecast(
            task=self.task,
            model=losses.model,
            accuracy=float(p.accuracy[0]),
            low=float(p.low[0]),
            high=float(p.high[0]),
            capability=float(p.capability[0]),
            remark=remark_on(self.task_fit, p, metadata, model=losses.model, about=self.about),
            level=level,
            question=STRONGER_MODEL if p.position.stronger[0] else SEEN if relation == SEEN else UNSEEN_FAMILY,
            relation=relation,
            distribution=p.distribution,
            observed=metadata.known_score(self.task),
        )

    def save(self, folder: str | Path) -> Path:
        """Write salience.safetensors and fit.json atomically, replacing an older fit; returns the folder."""
        path = _own_folder(folder)
        write_folder(path, partial(_write, fit=self))
        return path

    def save_pretrained(self, folder: str | Path, *, include_texts: bool = False) -> Path:
        """Write the fit with a model card, for sharing; the texts are included only with `include_texts`."""
        path = _own_folder(folder)
        write_folder(path, partial(_write, fit=self, include_texts=include_texts, with_card=True))
        return path

    @classmethod
    def from_pretrained(cls, name: str | Path, *, revision: str | None = None) -> Fit:
        """Load a fit from a folder, or from the Hugging Face hub by its id (user/name) and `revision`."""
        return load(name if Path(name).exists() or not sharing.is_id(str(name)) else sharing.fetch(str(name), revision))

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
            return sharing.push(folder, repo_id, private=private)

    @property
    def digest(self) -> str:
        """Hash of everything that affects a forecast; the same with or without the content of the texts."""
        blob, text = _contents(self)
        rest = {k: v for k, v in text.items() if k != "texts"}
        return hashlib.sha256(json.dumps(rest, sort_keys=True, allow_nan=False).encode() + blob).hexdigest()


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
    from safetensors import SafetensorError

    if not isinstance(folder, str | PathLike):
        raise InputError(f"load: the folder of a fit is needed, found {brief(folder)}")
    path = Path(folder)
    try:
        document, blob = read_files(path, ("fit.json", "salience.safetensors"))
        text = json.loads(document.decode())
        _refuse_gone(path, text)
        _check_hashes(path, text, blob)
        return _fit_of(text, blob)
    except FileNotFoundError as error:
        raise StudyError(f"{path}: no fit here; make one with `benchcast fit`") from error
    except OSError as error:
        raise StudyError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise StudyError(f"{path}: damaged fit ({type(error).__name__}: {one_line(error)}); fit again") from error
    except (SafetensorError, InputError) as error:
        raise StudyError(f"{path}: damaged fit ({one_line(error)}); fit again") from error


def _refuse_gone(path: Path, text: dict[str, Any]) -> None:
    """Raise an error for a fit by a method, or from inputs, that older versions had."""
    signals = [name for name in text.get("reads") or () if name in GONE_INPUTS]
    if text.get("method") == GONE_METHOD:
        raise StudyError(f"{path}: made by {GONE_METHOD}, which is gone; fit again with another method")
    if signals:
        raise StudyError(f"{path}: made from {', '.join(signals)} of tokens, which are gone; fit again from losses")


def _check_hashes(path: Path, text: dict[str, Any], blob: bytes) -> None:
    """Raise an error for a fit of a newer version, or one that does not match its hashes."""
    if text["format"] > FORMAT:
        raise StudyError(f"{path}: a fit of format {text['format']}, this version reads {FORMAT}; upgrade benchcast")
    if not hash_holds(text):
        raise StudyError(f"{path}: damaged fit (fit.json does not match its hash); fit again")
    if hashlib.sha256(blob).hexdigest() != text["arrays_sha256"]:
        raise StudyError(f"{path}: salience.safetensors does not belong to fit.json; fit again")


def _fit_of(text: dict[str, Any], blob: bytes) -> Fit:
    """The fit from the values of fit.json and the bytes of the arrays; an invalid one is a ValueError or similar."""
    from safetensors.numpy import load as load_arrays

    arrays, about = load_arrays(blob), text["about"]
    check_about(about)
    texts = _read_texts(text["texts"], about)
    check_texts(texts, about)
    edges, salience, supported = (arrays[name] for name in ("edges", "salience", "supported"))
    check_tokens(edges, texts, salience=salience, supported=supported)
    low, high = (math.nan if x is None else x for x in text["range"])
    profile = text.get("profile") and LossProfile(
        **{k: arrays[f"profile.{k}"] for k in PROFILE_ARRAYS}, **{k: text["profile"][k] for k in PROFILE_NUMBERS}
    )
    task_fit = TaskFit(
        task=_read_task(text["task"]),
        method=text["method"],
        capability=read_capability(text, arrays),
        law=SigmoidLaw.from_fields(text["law"]),
        out_of_fold=_read_errors("honest_errors", text["honest"], arrays),
        range=(low, high),
        stronger=_read_errors("stronger_errors", text["stronger"], arrays) if "stronger" in text else NO_ERRORS,
        profile=profile,
        disagreement=Disagreement(**{k: arrays[f"disagreement.{k}"] for k in DISAGREEMENT_ARRAYS})
        if "disagreement.weights" in arrays
        else None,
        width=IntervalWidth(**text["interval"]) if "interval" in text else None,
        notes=text["notes"],
        history={name.removeprefix("history."): x for name, x in arrays.items() if name.startswith("history.")},
    )
    check_task_fit(task_fit, len(edges) - 1, len(texts))
    return Fit(
        task_fit=task_fit,
        salience=salience,
        edges=edges,
        supported=supported.astype(bool),
        texts=texts,
        about=about,
    )


def _read_texts(rows: list[dict[str, Any]], about: dict[str, Any]) -> TextSet:
    """The texts of a fit, or their outlines."""
    if "unit" in rows[0]:
        return NamedTexts.of(Text(text="", **row) for row in rows)
    if "bytes" not in rows[0]:
        return TextSet.of(Text(**{**row, "options": tuple(row.get("options", ()))}) for row in rows)
    texts = (Text(row["id"], row["source"], text="", answer_start=row.get("answer_start")) for row in rows)
    return TextOutlines(tuple(texts), tuple(row["bytes"] for row in rows), about["texts"])


def _read_task(stored: dict[str, Any]) -> Task:
    """The task of a fit; fits of older versions lack what their task does not have."""
    return Task(
        name=stored["name"],
        chance=stored["chance"],
        sources=tuple(stored["sources"]),
        answers=tuple(stored.get("answers", ())),
        members=tuple(stored.get("members", ())),
        choices=tuple(stored.get("choices", ())),
        **{k: stored[k] for k in ("centred", "metric") if k in stored},
    )


def _read_errors(name: str, stored: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> OutOfFoldErrors:
    """Out-of-fold errors; fits of version 0.1.0 have no names, accuracies and distances."""
    known = {k: arrays[f"{name}.{k}"] for k in ERROR_ARRAYS if f"{name}.{k}" in arrays}
    return OutOfFoldErrors(
        errors=arrays[name],
        families=np.array(stored["families"], dtype=str),
        kind=stored["kind"],
        models=tuple(stored.get("models", ())),
        **known,
    )


def _own_folder(folder: str | Path) -> Path:
    """The folder, after a check that it does not exist or contains only a fit, so that it may be replaced."""
    path = Path(folder)
    if path.exists():
        others = {p.name for p in path.iterdir()} - set(FILES) if path.is_dir() else {path.name}
        if others:
            raise InputError(
                f"{path}: contains {min(others)!r}, which is not part of a fit; give a folder for the fit alone"
            )
    return path


def _write(folder: Path, fit: Fit, *, include_texts: bool = True, with_card: bool = False) -> None:
    """Write a fit into an empty folder; with `with_card`, with a model card."""
    blob, text = _contents(fit)
    text["texts"] = _text_rows(fit.texts, include_texts=include_texts)
    (folder / "salience.safetensors").write_bytes(blob)
    document = json.dumps(hashed(text), indent=1, ensure_ascii=False, allow_nan=False)
    (folder / "fit.json").write_text(document, encoding="utf-8")
    if with_card:
        included = "text" in text["texts"][0]
        card = fit_card(fit.task_fit, fit.about, texts=len(fit.texts), include_texts=included)
        (folder / "README.md").write_text(card, encoding="utf-8")


def _contents(fit: Fit) -> tuple[bytes, dict[str, Any]]:
    """The arrays as safetensors bytes, and all other values as JSON values."""
    from safetensors.numpy import save

    task_fit = fit.task_fit
    capability, capability_arrays = task_fit.capability.fields()
    arrays = {
        "salience": fit.salience,
        **capability_arrays,
        "edges": fit.edges,
        "supported": fit.supported.astype(np.uint8),
        **_error_arrays("honest_errors", task_fit.out_of_fold),
        **(_error_arrays("stronger_errors", task_fit.stronger) if len(task_fit.stronger.errors) else {}),
        **{f"profile.{k}": getattr(task_fit.profile, k) for k in PROFILE_ARRAYS if task_fit.profile is not None},
        **{
            f"disagreement.{k}": getattr(task_fit.disagreement, k)
            for k in DISAGREEMENT_ARRAYS
            if task_fit.disagreement is not None
        },
        **{f"history.{name}": np.ascontiguousarray(x) for name, x in task_fit.history.items()},
    }
    blob = save({name: np.ascontiguousarray(x) for name, x in arrays.items()})
    return blob, {
        "format": FORMAT,
        "task": {k: v for k, v in asdict(task_fit.task).items() if v or k in ("name", "chance", "sources")},
        "method": task_fit.method,
        "reads": capability["reads"],
        "unit": capability["unit"],
        "law": task_fit.law.fields(),
        **{key: capability[key] for key in ("choices", "average") if key in capability},
        "range": [nan_to_none(x) for x in task_fit.range],
        "honest": _out_of_fold(task_fit.out_of_fold),
        **({"stronger": _out_of_fold(task_fit.stronger)} if len(task_fit.stronger.errors) else {}),
        **(
            {"profile": {k: getattr(task_fit.profile, k) for k in PROFILE_NUMBERS}}
            if task_fit.profile is not None
            else {}
        ),
        **({"interval": asdict(task_fit.width)} if task_fit.width is not None else {}),
        "notes": task_fit.notes,
        "about": fit.about,
        "texts": _text_rows(fit.texts, include_texts=True),
        "arrays_sha256": hashlib.sha256(blob).hexdigest(),
    }


def _error_arrays(name: str, errors: OutOfFoldErrors) -> dict[str, npt.NDArray[Any]]:
    """The errors, and what is known of each besides names."""
    known = {f"{name}.{k}": getattr(errors, k) for k in ERROR_ARRAYS if len(getattr(errors, k))}
    return {name: errors.errors, **known}


def _out_of_fold(errors: OutOfFoldErrors) -> dict[str, Any]:
    """All but the errors themselves; without names if they are unknown, so that the digest of an old fit stays."""
    stored = {"kind": errors.kind, "families": list(map(str, errors.families))}
    return stored | ({"models": list(errors.models)} if errors.models else {})


def _text_rows(texts: TextSet, *, include_texts: bool) -> list[dict[str, Any]]:
    """Rows of the texts, or of their outlines if the content is excluded or unknown."""
    if isinstance(texts, NamedTexts) or (include_texts and not isinstance(texts, TextOutlines)):
        return [t.as_row() for t in texts]
    lengths = np.diff(texts.starts).tolist()
    outlines = [{k: v for k, v in t.as_row().items() if k not in ("text", "options")} for t in texts]
    return [row | {"bytes": n} for row, n in zip(outlines, lengths, strict=True)]


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
