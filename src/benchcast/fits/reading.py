"""Read the losses of one model for a forecast, and compare their tokens with the texts of a fit."""

from __future__ import annotations

from itertools import starmap
from pathlib import Path

import numpy as np

from benchcast.errors import InputError
from benchcast.records import NamedTexts, TextSet, TokenLosses
from benchcast.storage.loss_files import read_losses


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
