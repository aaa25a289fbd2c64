"""Nats and hidden states of a causal language model in memory, on CPU or CUDA.

Sequences are padded on the right, where causal attention never looks, so a loss does not depend on its
neighbours in the batch. The head runs on blocks of rows, on a CPU also of words, because a batch of full
logits over a vocabulary of 262k words would be gigabytes; log-softmax is in float32 whatever the model's dtype.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from benchcast.backends.base import DeviceFullError, Nats
from benchcast.errors import InputError

LOGIT_BYTES = {"cpu": 96 << 20, "cuda": 512 << 20}  # logits of one block of rows; twice that is in use at a time
ROWS, WORDS = 512, 4096  # a block of logits on a CPU
NO_LIMIT = 4096  # context of a model whose configuration names none
WIDE = 1 << 18  # words of a vocabulary that is not known
PROBE = ((1, 2, 3, 4, 5), (5, 4, 3))  # any ids do


class Forward:
    """Runs a model: one of transformers, or any module that makes logits (B × T × words) of ids (B × T).

    With `whole` only the model itself is called, never its parts: a model whose weights are spread over
    processes puts them together when it is called. `training` leaves no trace in a model that goes on
    training: what inference mode makes may not be used for gradients.
    """

    def __init__(self, model: Any, *, whole: bool = False, training: bool = False) -> None:
        self._model, self._whole, self._training = model, whole, training
        self._ours = hasattr(model, "get_output_embeddings")  # a model of transformers

    @cached_property
    def device(self) -> Any:
        """Where the model lies."""
        return next(self._model.parameters()).device

    @property
    def context(self) -> int:
        """What the configuration allows."""
        return self._configured("max_position_embeddings", "n_positions", "block_size") or NO_LIMIT

    @cached_property
    def width(self) -> int:
        """Words of the vocabulary."""
        return self._configured("vocab_size") or WIDE

    def _configured(self, *names: str) -> int:
        """The first of these numbers that the model's configuration has; 0 where it has none."""
        config: Any = getattr(self._model, "config", None)
        if hasattr(config, "get_text_config"):
            config = config.get_text_config()
        return int(next((n for n in (getattr(config, name, None) for name in names) if n), 0))

    def score(self, sequences: Sequence[Sequence[int]]) -> list[Nats]:
        """−log p of every id given those before it."""
        with self._careful():
            ids, inside = self._padded(sequences)
            scored = inside[:, 1:]
            rows = self._states(ids)[:, :-1][scored]
            flat = self._nats(rows, ids[:, 1:][scored]).cpu().numpy()
        parts = np.split(flat, np.cumsum([len(s) - 1 for s in sequences])[:-1])
        return [np.concatenate([[np.nan], part]).astype(np.float32) for part in parts]

    def hidden(self, sequences: Sequence[Sequence[int]]) -> list[npt.NDArray[np.float32]]:
        """Last hidden state at every id (tokens × dimensions)."""
        with self._careful():
            ids, _ = self._padded(sequences)
            states = self._base(input_ids=ids, use_cache=False).last_hidden_state.float().cpu().numpy()
        return [states[i, : len(s)] for i, s in enumerate(sequences)]

    def sees_the_future(self) -> bool:
        """Whether a token's logits change with what follows; padding on the right rests on that they do not."""
        import torch

        first, other = torch.tensor([PROBE[0]]), torch.tensor([(*PROBE[0][:3], *PROBE[1])])
        with self._careful():
            a, b = (self._logits(x.to(self.device))[0, :3].float() for x in (first, other))
        return not torch.allclose(a, b, rtol=0.05, atol=0.5)

    @cached_property
    def plain_head(self) -> bool:
        """Whether the head alone makes the model's logits; some models scale or cap them afterwards."""
        import torch

        if self._whole or not self._ours or self._head is None or self._base is self._model:
            return False
        with self._careful():
            ids = torch.tensor([PROBE[0]], device=self.device)
            whole = self._logits(ids).float()
            states = self._base(input_ids=ids, use_cache=False)
            if getattr(states, "last_hidden_state", None) is None:
                return False
            parts = self._head(states.last_hidden_state).float()
        return bool(parts.shape == whole.shape and (parts - whole).abs().max() <= 1e-3 * (1 + whole.abs().max()))

    def _padded(self, sequences: Sequence[Sequence[int]]) -> tuple[Any, Any]:
        """Ids on the device, and which of them are no padding: by length, never by id."""
        import torch

        lengths = torch.tensor([len(s) for s in sequences])
        ids = torch.zeros((len(sequences), int(lengths.max())), dtype=torch.long)
        for row, sequence in zip(ids, sequences, strict=True):
            row[: len(sequence)] = torch.tensor(sequence)
        inside = torch.arange(ids.shape[1])[None] < lengths[:, None]
        return ids.to(self.device), inside.to(self.device)

    def _states(self, ids: Any) -> Any:
        """What `_nats` reads: hidden states, or the logits themselves where the head is no plain one."""
        if self.plain_head:
            return self._base(input_ids=ids, use_cache=False).last_hidden_state
        return self._logits(ids)

    def _logits(self, ids: Any) -> Any:
        if self._ours:
            return self._model(input_ids=ids, use_cache=False).logits
        made = self._model(ids)
        made = made[0] if isinstance(made, tuple) else getattr(made, "logits", made)
        shape = tuple(getattr(made, "shape", ()))
        if len(shape) != 3 or shape[:2] != tuple(ids.shape):
            raise InputError(
                f"{type(self._model).__name__} made {shape or type(made).__name__} of ids {tuple(ids.shape)}; "
                "logits of every position are needed (rows × positions × words)"
            )
        return made

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
        """Whether the head can be cut by words: logits of a few thousand words stay in a processor's cache."""
        import torch

        if self.device.type != "cpu" or not self.plain_head:
            return False
        return type(self._head) is torch.nn.Linear and self._head.bias is None

    def _nats_by_words(self, rows: Any, targets: Any) -> Any:
        """Blocks of the vocabulary one after the other; `whole` sums their probabilities, as a logarithm."""
        import torch

        whole = torch.full((len(rows),), -torch.inf)
        own = torch.zeros(len(rows))
        for block, weight in enumerate(self._head.weight.split(WORDS)):
            logits = torch.nn.functional.linear(rows, weight).float()
            part = logits[:, 0] - torch.log_softmax(logits, -1)[:, 0]  # log-sum-exp by a faster way
            whole = torch.logaddexp(whole, part)
            place = targets - block * WORDS
            found = logits.gather(-1, place.clamp(0, len(weight) - 1)[:, None])[:, 0]
            own = torch.where((place >= 0) & (place < len(weight)), found, own)
        return whole - own

    @property
    def _base(self) -> Any:
        return self._model.base_model

    @property
    def _head(self) -> Any:
        return self._model.get_output_embeddings()

    @contextmanager
    def _careful(self) -> Iterator[None]:
        """No gradients, and a way out where memory ends."""
        import torch

        way_out = "give a smaller batch_tokens" if self._training else "use max_length=… or dtype=bfloat16"
        try:
            # Inference mode is left where a caller is in it: its tensors could not be used for gradients later.
            with torch.inference_mode(not self._training), torch.no_grad():
                yield
        except torch.OutOfMemoryError as error:
            raise DeviceFullError(f"the device is out of memory; {way_out}") from error
