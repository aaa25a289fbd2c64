"""Compute nats and hidden states of a causal language model in memory, on CPU or CUDA.

Sequences are padded on the right, which causal attention does not read, so a loss does not depend on the other
sequences of the batch. Sequences that begin alike can be packed into one row: their common start, then the rest of
each, which attends to the start and to itself. The output head runs on blocks of rows, and on a CPU also on blocks of
the vocabulary: full logits of a batch over 262k words would need gigabytes. Log-softmax is computed in float32 for
every model dtype.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from benchcast.collection.backends.base import DeviceFullError, Ids, Nats, shared_length
from benchcast.errors import InputError
from benchcast.records import Bools, Ints

LOGIT_BYTES = {"cpu": 96 << 20, "cuda": 512 << 20}  # logits of one block of rows; the peak is twice that
ROWS, WORDS = 512, 4096  # size of a block of logits on a CPU
NO_LIMIT = 4096  # context of a model whose configuration states none
WIDE = 1 << 18  # assumed vocabulary size where the configuration states none
PROBE = ((1, 2, 3, 4, 5), (5, 4, 3))  # arbitrary ids
PROBE_GROUP = tuple((*range(1, 13), *rest) for rest in ((3, 1, 4), (1, 5, 9, 2), (6, 5), (3, 5, 8)))
SAME = {"float32": 1e-3}  # nats by which packed sequences may differ on average from those scored alone
SAME_COARSE = 0.1  # the same in types of 16 bits
LOCAL = ("sliding_window", "attention_chunk_size", "window_size")  # tokens that a local attention reaches back


class Forward:
    """Runs a transformers model, or any module that maps ids (B × T) to logits (B × T × words).

    Parameters
    ----------
    model : the module
    whole : call only the model itself, not its parts; needed for weights sharded over processes, which are gathered
        when the model is called
    training : do not use inference mode, whose tensors cannot be used for gradients later
    """

    def __init__(self, model: Any, *, whole: bool = False, training: bool = False) -> None:
        self._model, self._whole, self._training = model, whole, training
        self._ours = hasattr(model, "get_output_embeddings")  # a model of transformers

    @cached_property
    def device(self) -> Any:
        return next(self._model.parameters()).device

    @property
    def context(self) -> int:
        """Longest sequence in tokens that the configuration allows."""
        return self._configured("max_position_embeddings", "n_positions", "block_size") or NO_LIMIT

    @cached_property
    def width(self) -> int:
        return self._configured("vocab_size") or WIDE

    def _configured(self, *names: str) -> int:
        """The first of these fields that the model's configuration sets; 0 if it sets none."""
        config: Any = getattr(self._model, "config", None)
        if hasattr(config, "get_text_config"):
            config = config.get_text_config()
        return int(next((n for n in (getattr(config, name, None) for name in names) if n), 0))

    def score(self, sequences: Sequence[Sequence[int]]) -> list[Nats]:
        """−log p of every id given the ids before it."""
        ids, inside = padded(sequences)
        follows = np.zeros_like(inside)  # positions whose next token is scored
        follows[:, :-1] = inside[:, 1:]
        with self._no_gradients():
            # Positions and targets are worked out on the host: a mask on a GPU waits for all work before it.
            at, targets = self._to_device(np.flatnonzero(follows)), self._to_device(ids[:, 1:][inside[:, 1:]])
            rows = self._states(self._to_device(ids)).flatten(0, 1)[at]
            flat = self._nats(rows, targets).cpu().numpy()
        parts = np.split(flat, np.cumsum([len(s) - 1 for s in sequences])[:-1])
        return [np.concatenate([[np.nan], part]).astype(np.float32) for part in parts]

    def score_groups(self, groups: Sequence[Sequence[Ids]]) -> list[list[Nats]]:
        """As `score`, for groups of sequences that begin alike; the common start of each group is computed once."""
        packed = [PackedGroup.of(group) for group in groups]
        ids, inside = padded([p.ids for p in packed])
        positions, branches = padded([p.positions for p in packed])[0], padded([p.branches for p in packed])[0]
        branches[~inside] = -1
        width = ids.shape[1]
        parents = np.concatenate([p.parents + row * width for row, p in enumerate(packed)])
        targets = np.concatenate([p.targets for p in packed])
        with self._no_gradients():
            at, aims = self._to_device(parents), self._to_device(targets)
            mask = self._tree_mask(self._to_device(branches))
            rows = self._states(self._to_device(ids), mask, self._to_device(positions)).flatten(0, 1)[at]
            flat = self._nats(rows, aims).cpu().numpy()
        parts = np.split(flat, np.cumsum([len(p.targets) for p in packed])[:-1])
        return [p.unpacked(part) for p, part in zip(packed, parts, strict=True)]

    @cached_property
    def shared_context(self) -> int:
        """Longest row of packed sequences, in tokens; 0 if the model does not score them as it scores each alone.

        A local attention is not masked in packed rows, so they are no longer than it reaches.
        """
        if self.context < max(map(len, PROBE_GROUP)):
            return 0
        group = [[token % self.width for token in ids] for ids in PROBE_GROUP]
        try:
            (packed,) = self.score_groups([group])
        except (RuntimeError, TypeError, ValueError, IndexError, AttributeError, KeyError, NotImplementedError):
            return 0  # the model takes no mask or no positions of its own
        apart = np.nanmean(np.abs(np.concatenate(packed) - np.concatenate(self.score(group))))
        dtype = str(next(self._model.parameters()).dtype).removeprefix("torch.")
        if not apart <= SAME.get(dtype, SAME_COARSE):
            return 0
        return min([self.context, *(reach for reach in map(self._configured, LOCAL) if reach)])

    def _tree_mask(self, branches: Any) -> Any:
        """The attention mask of packed rows (B × 1 × T × T): 0, or the type's lowest number where nothing is seen.

        `branches` (B × T) has 0 for the common start, then the number of the sequence, and −1 for padding.
        """
        import torch

        width = branches.shape[1]
        earlier = torch.ones(width, width, dtype=torch.bool, device=branches.device).tril()
        seen = earlier & ((branches[:, None, :] == 0) | (branches[:, None, :] == branches[:, :, None]))
        dtype = next(p.dtype for p in self._model.parameters() if p.is_floating_point())
        return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill(~seen, torch.finfo(dtype).min)[
            :, None
        ]

    def hidden(self, sequences: Sequence[Sequence[int]]) -> list[npt.NDArray[np.float32]]:
        """Last hidden state at every id (tokens × dimensions)."""
        with self._no_gradients():
            ids = self._to_device(padded(sequences)[0])
            states = self._base(input_ids=ids, use_cache=False).last_hidden_state.float().cpu().numpy()
        return [states[i, : len(s)] for i, s in enumerate(sequences)]

    def sees_the_future(self) -> bool:
        """Whether a token's logits depend on later tokens; padding on the right requires that they do not."""
        import torch

        first, changed = torch.tensor([PROBE[0]]), torch.tensor([(*PROBE[0][:3], *PROBE[1])])
        with self._no_gradients():
            a, b = (self._logits(x.to(self.device))[0, :3].float() for x in (first, changed))
        return not torch.allclose(a, b, rtol=0.05, atol=0.5)

    @cached_property
    def plain_head(self) -> bool:
        """Whether the output head alone gives the model's logits; some models scale or cap them afterwards."""
        import torch

        if self._whole or not self._ours or self._head is None or self._base is self._model:
            return False
        with self._no_gradients():
            ids = torch.tensor([PROBE[0]], device=self.device)
            logits = self._logits(ids).float()
            states = self._base(input_ids=ids, use_cache=False)
            if getattr(states, "last_hidden_state", None) is None:
                return False
            head_logits = self._head(states.last_hidden_state).float()
        return bool(
            head_logits.shape == logits.shape and (head_logits - logits).abs().max() <= 1e-3 * (1 + logits.abs().max())
        )

    def _to_device(self, values: Ints) -> Any:
        """An array on the device; a GPU copies from pinned memory while the host goes on."""
        import torch

        tensor = torch.from_numpy(values)
        return (
            tensor.pin_memory().to(self.device, non_blocking=True)
            if self.device.type == "cuda"
            else tensor.to(self.device)
        )

    def _states(self, ids: Any, mask: Any = None, positions: Any = None) -> Any:
        """The input of `_nats`: hidden states, or logits if the head alone does not give them."""
        if self.plain_head:
            return self._base(input_ids=ids, use_cache=False, **_attention(mask, positions)).last_hidden_state
        return self._logits(ids, mask, positions)

    def _logits(self, ids: Any, mask: Any = None, positions: Any = None) -> Any:
        if self._ours:
            return self._model(input_ids=ids, use_cache=False, **_attention(mask, positions)).logits
        if mask is not None:
            raise TypeError(f"{type(self._model).__name__} takes no mask")
        output = self._model(ids)
        output = output[0] if isinstance(output, tuple) else getattr(output, "logits", output)
        shape = tuple(getattr(output, "shape", ()))
        if len(shape) != 3 or shape[:2] != tuple(ids.shape):
            raise InputError(
                f"{type(self._model).__name__} returned {shape or type(output).__name__} for ids {tuple(ids.shape)}; "
                "logits of every position are needed (rows × positions × words)"
            )
        return output

    def _nats(self, rows: Any, targets: Any) -> Any:
        import torch

        if self._head_in_blocks:
            parts = [self._nats_by_words(r, t) for r, t in zip(rows.split(ROWS), targets.split(ROWS), strict=True)]
            return torch.cat(parts)
        step = max(1, LOGIT_BYTES.get(self.device.type, LOGIT_BYTES["cpu"]) // (4 * self.width))
        nats = torch.empty(len(rows), dtype=torch.float32, device=rows.device)
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            logits = (self._head(rows[part]) if self.plain_head else rows[part]).float()
            nats[part] = -torch.log_softmax(logits, -1).gather(-1, targets[part, None])[:, 0]  # logsumexp is slower
        return nats

    @cached_property
    def _head_in_blocks(self) -> bool:
        """Whether the head can run on blocks of the vocabulary, whose logits fit into a CPU's cache."""
        import torch

        if self.device.type != "cpu" or not self.plain_head:
            return False
        return type(self._head) is torch.nn.Linear and self._head.bias is None

    def _nats_by_words(self, rows: Any, targets: Any) -> Any:
        """Nats computed over blocks of the vocabulary; `log_total` is the log-sum-exp of all blocks so far."""
        import torch

        log_total = torch.full((len(rows),), -torch.inf)
        target_logits = torch.zeros(len(rows))
        for block, weight in enumerate(self._head.weight.split(WORDS)):
            logits = torch.nn.functional.linear(rows, weight).float()
            part = logits[:, 0] - torch.log_softmax(logits, -1)[:, 0]  # faster than torch.logsumexp
            log_total = torch.logaddexp(log_total, part)
            positions = targets - block * WORDS
            block_logits = logits.gather(-1, positions.clamp(0, len(weight) - 1)[:, None])[:, 0]
            target_logits = torch.where((positions >= 0) & (positions < len(weight)), block_logits, target_logits)
        return log_total - target_logits

    @property
    def _base(self) -> Any:
        return self._model.base_model

    @property
    def _head(self) -> Any:
        return self._model.get_output_embeddings()

    @contextmanager
    def _no_gradients(self) -> Iterator[None]:
        """Disable gradients and turn out-of-memory errors into DeviceFullError."""
        import torch

        advice = "give a smaller batch_tokens" if self._training else "use max_length=… or dtype=bfloat16"
        try:
            # While training, leave a caller's inference mode too: its tensors cannot be used for gradients later.
            with torch.inference_mode(not self._training), torch.no_grad():
                yield
        except torch.OutOfMemoryError as error:
            raise DeviceFullError(f"the device is out of memory; {advice}") from error


def _attention(mask: Any, positions: Any) -> dict[str, Any]:
    return {} if mask is None else {"attention_mask": mask, "position_ids": positions}


@dataclass(frozen=True, slots=True)
class PackedGroup:
    """Sequences that begin alike in one row: the common start, then the rest of each without its last token."""

    ids: list[int]
    positions: list[int]
    branches: list[int]  # 0 for the common start, then 1, 2, … for each sequence
    targets: Ints  # ids that are predicted: of the start, then of the rest of each sequence
    parents: Ints  # place in the row of the token before each target
    start: int  # tokens in the common start
    rests: list[int]  # number of targets of each sequence after the start

    @classmethod
    def of(cls, group: Sequence[Ids]) -> PackedGroup:
        """Pack a group; a first token, which nothing predicts, is no target."""
        start = shared_length(group)
        ids, positions, branches = [*group[0][:start]], [*range(start)], [0] * start
        targets, parents, rests = ids[1:], [*range(start - 1)], list[int]()
        for number, sequence in enumerate(group, start=1):
            rest = [*sequence[start:]]
            at = [start - 1, *range(len(ids), len(ids) + len(rest) - 1)][: len(rest)]
            first = 0 if start else 1
            targets, parents, rests = targets + rest[first:], parents + at[first:], [*rests, len(rest[first:])]
            ids += rest[:-1]
            positions += range(start, start + len(rest[:-1]))
            branches += [number] * len(rest[:-1])
        return cls(
            ids=ids,
            positions=positions,
            branches=branches,
            targets=np.array(targets, np.int64),
            parents=np.array(parents, np.int64),
            start=start,
            rests=rests,
        )

    def unpacked(self, nats: npt.NDArray[np.floating]) -> list[Nats]:
        """The nats of each sequence from those of the targets; the first token has NaN."""
        common, *rests = np.split(nats, np.cumsum([max(0, self.start - 1), *self.rests])[:-1])
        return [np.concatenate([[np.nan], common, rest]).astype(np.float32) for rest in rests]


def padded(sequences: Sequence[Sequence[int]]) -> tuple[Ints, Bools]:
    """Ids with zeros to the right of shorter sequences (B × T), and the mask of the ids.

    >>> padded([[5, 6, 7], [8]])[0].tolist()
    [[5, 6, 7], [8, 0, 0]]
    """
    lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
    inside = np.arange(lengths.max()) < lengths[:, None]
    ids = np.zeros(inside.shape, np.int64)
    ids[inside] = np.fromiter(chain.from_iterable(sequences), np.int64, lengths.sum())
    return ids, inside
