"""Signals of tokens from logits: in one pass over blocks of rows, or also over blocks of the vocabulary.

Words that are exactly as likely as the token do not count against it: a token that shares the first place is a hit.
Axes: R rows (positions), V words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from benchcast.errors import InputError
from benchcast.formatting import few

LEAST = -1e4  # log-probability of words that cannot occur; their share of the entropy is 0


def require_given(backend: str, given: Sequence[str], asked: Sequence[str]) -> None:
    """Raise InputError if a backend is asked for signals that it cannot give."""
    lacking = [name for name in asked if name not in given]
    if lacking:
        gives = few(given) if given else "none"
        raise InputError(f"backend {backend} cannot give {few(lacking)}; signals that it gives: {gives}")


def rows_to_signals(logits: Any, targets: Any, names: Sequence[str]) -> Any:
    """Nats and the named signals of R targets from their logits (torch, R × V), as columns."""
    import torch

    logp = torch.log_softmax(logits, -1)  # logsumexp is slower
    target_logp = logp.gather(-1, targets[:, None])
    columns = {"nats": -target_logp[:, 0]}
    if {"hit", "margin"} & set(names):
        columns["margin"] = logp.amax(-1) - target_logp[:, 0]
        columns["hit"] = columns["margin"] <= 0
    if "rank" in names:
        columns["rank"] = torch.log2(1.0 + (logp > target_logp).sum(-1))
    if "entropy" in names:
        logp = logp.clamp_(min=LEAST)
        columns["entropy"] = -torch.linalg.vecdot(logp.exp(), logp)
    return torch.stack([columns[name].float() for name in ("nats", *names)], -1)


@dataclass(slots=True)
class VocabularyPass:
    """Nats and signals of R targets, from blocks of the vocabulary that are added one after the other."""

    targets: Any  # R ids
    target_logits: Any  # R, to count the words above each target before its block comes
    names: Sequence[str]
    start: int = 0  # first word of the next block
    sums: dict[str, Any] = field(default_factory=dict)  # of the words so far: total, target, best, above, mean

    def add(self, logits: Any) -> None:
        """Add the logits of the next words (R × words)."""
        import torch

        logp = torch.log_softmax(logits, -1)
        total = logits[:, 0] - logp[:, 0]  # log-sum-exp of the block, faster than torch.logsumexp
        inside, logit = self._in_block(logits)
        before = self.sums
        now = {"total": total, "target": torch.where(inside, logit, 0.0)}
        if before:
            now["total"] = torch.logaddexp(before["total"], total)
            now["target"] = torch.where(inside, logit, before["target"])
        if {"hit", "margin", "rank"} & set(self.names):
            best = logits.amax(-1)
            now["best"] = torch.maximum(before["best"], best) if before else best
        if "rank" in self.names:
            above = (
                torch.count_nonzero(logits > self.target_logits[:, None], -1)
                - (inside & (logit > self.target_logits)).long()
            )
            now["above"] = before["above"] + above if before else above
        if "entropy" in self.names:
            mean = torch.linalg.vecdot(logp.exp_(), logits)  # of the logits, over the words of the block
            share = torch.exp(total - now["total"])
            now["mean"] = mean * share
            if before:
                now["mean"] += before["mean"] * torch.exp(before["total"] - now["total"])
        self.sums, self.start = now, self.start + logits.shape[-1]

    def _in_block(self, logits: Any) -> tuple[Any, Any]:
        """Whether each target is a word of this block, and its logit there."""
        places = self.targets - self.start
        inside = (places >= 0) & (places < logits.shape[-1])
        return inside, logits.gather(-1, places.clamp(0, logits.shape[-1] - 1)[:, None])[:, 0]

    def columns(self) -> Any:
        """Nats and the named signals as columns (R × (1 + signals))."""
        import torch

        sums = self.sums
        columns = {"nats": sums["total"] - sums["target"]}
        if "best" in sums:
            columns["margin"] = sums["best"] - sums["target"]
            columns["hit"] = columns["margin"] <= 0
        if "above" in sums:  # `target_logits` and the blocks may round differently: a hit has rank 1, a miss has not
            columns["rank"] = torch.where(columns["hit"], 0.0, torch.log2(1.0 + sums["above"].clamp(min=1)))
        if "mean" in sums:
            columns["entropy"] = (sums["total"] - sums["mean"]).clamp(min=0.0)
        return torch.stack([columns[name].float() for name in ("nats", *self.names)], -1)


def numpy_signals(
    logits: npt.NDArray[np.floating], ids: Sequence[int], names: Sequence[str]
) -> npt.NDArray[np.float32]:
    """Nats and the named signals of a sequence (tokens × (1 + signals)) from its logits (tokens × words).

    Row i of the logits predicts token i + 1; the first token has NaN.
    """
    columns = np.full((len(ids), 1 + len(names)), np.nan, np.float32)
    for i in range(1, len(ids)):
        row = logits[i - 1].astype(np.float64)
        top = row.max()
        weights = np.exp(row - top)
        total, logit = weights.sum(), row[ids[i]]
        signals = {"nats": top + np.log(total) - logit, "hit": logit >= top, "margin": top - logit}
        if "rank" in names:
            signals["rank"] = np.log2(1 + np.count_nonzero(row > logit))
        if "entropy" in names:
            signals["entropy"] = top + np.log(total) - weights @ np.maximum(row, top + LEAST) / total
        columns[i] = [signals[name] for name in ("nats", *names)]
    return columns
