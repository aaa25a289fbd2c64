"""Check that losses are on the texts of a fit, and align them with its reference tokens."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import starmap
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchcast.align import align_models
from benchcast.choices import RegroupUnit
from benchcast.errors import InputError
from benchcast.records import Ints, NamedTexts, TextSet, TokenLosses
from benchcast.storage.loss_files import read_losses


def require_texts(texts: TextSet, digest: str, *, task: str, whose: str) -> None:
    """Raise an error unless `digest` is empty (unknown) or that of `texts`.

    `task` names the fit's task, and `whose` starts the message.
    """
    if digest and digest != texts.digest:
        raise InputError(
            f"{whose} are on texts {digest}, the fit of {task!r} is on texts {texts.digest}; "
            "fit again on the study's texts (`benchcast fit STUDY`), or use losses on the fit's texts"
        )


def align_checked(
    losses: Iterable[TokenLosses], texts: TextSet, edges: Ints, *, task: str, unit: RegroupUnit
) -> npt.NDArray[np.float32]:
    """Losses of models on a fit's reference tokens (M × N, nats), NaN where missing; an error for other texts."""
    checked = (_checked(x, texts, task) for x in losses)
    return align_models(checked, edges, texts, unit=unit)


def read_model(file: Path, texts: TextSet) -> TokenLosses:
    """Read the losses of one model on a fit's texts from a file; an error if the file has several models."""
    if file.suffix == ".csv" and not isinstance(texts, NamedTexts):
        raise InputError(f"{file}: losses for a forecast come as .jsonl or .parquet, one model a file")
    models = read_losses(file, texts)
    if len(models) != 1:
        raise InputError(f"{file}: losses of one model are needed, found {len(models)}")
    return models[0]


def _checked(losses: TokenLosses, texts: TextSet, task: str) -> TokenLosses:
    whose = f"losses of model {losses.model!r}"
    require_texts(texts, losses.texts_digest, task=task, whose=whose)
    mismatch = _mismatch(losses, texts)
    if mismatch:
        raise InputError(f"{whose} do not match the texts of the fit of {task!r}: {mismatch}")
    return losses


def _mismatch(losses: TokenLosses, texts: TextSet) -> str:
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
