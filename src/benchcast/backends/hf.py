"""transformers: losses and hidden states on CPU or CUDA.

Sequences are padded on the right, where causal attention never looks, so a loss does not depend on its
neighbours in the batch. The head runs on blocks of rows, because a batch of full logits over a
vocabulary of 262k words would be gigabytes; log-softmax is in float32 whatever the model's dtype.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from benchcast.backends.base import Nats, Settings, Vocabulary
from benchcast.backends.vocabulary import VocabularySource, gguf_parts, one_line, source_name
from benchcast.errors import InputError, MissingExtraError

LOGIT_BYTES = 96 << 20  # logits of one block of rows; twice that is in use at a time
NO_LIMIT = 4096  # context of a model whose configuration names none
DTYPES = ("float32", "float16", "bfloat16", "auto")
PROBE = ((1, 2, 3, 4, 5), (5, 4, 3))  # any ids do


class HfBackend:
    """A causal language model of transformers."""

    name = "hf"

    def __init__(self, settings: Settings, *, device: str = "", batch_size: int = 0) -> None:
        self.asked = settings.line
        self._source = settings.needed("pretrained", "PATH_OR_HUB_ID")
        self._revision = settings.text("revision")
        self._dtype = settings.text("dtype", "float32")
        self._max_length = settings.whole("max_length", 0)
        self._trust = bool(settings.flag("trust_remote_code", False))
        self._device = device or settings.text("device")
        self._gguf_file = settings.text("gguf_file")
        self._tokens = VocabularySource.of(settings, self._source)
        self.model = source_name(self._source) + (f"@{self._revision}" if self._revision else "")
        self.batch_size = batch_size or 64
        self._fixed_batch = bool(batch_size)
        if self._dtype not in DTYPES:
            raise InputError(f"{settings.where}: dtype={self._dtype}; one of {', '.join(DTYPES)} is needed")

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The model's tokenizer."""
        return self._tokens.load()

    @property
    def batch_tokens(self) -> int:
        """No limit where a batch size was asked for; else what keeps the device busy."""
        busy = 16384 if self._loaded.device.type == "cuda" else 2048
        return 1 << 30 if self._fixed_batch else busy

    @property
    def context(self) -> int:
        """What the configuration allows, or `max_length` where that is less."""
        config = self._loaded.config.get_text_config()
        limit = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None) or NO_LIMIT
        return min(int(limit), self._max_length or int(limit))

    def about(self) -> dict[str, str]:
        """What the losses were made with."""
        import torch
        import transformers

        return {
            "backend": self.name,
            "backend_version": f"transformers {transformers.__version__}, torch {torch.__version__}",
            "dtype": str(self._loaded.dtype).removeprefix("torch."),
        }

    def score(self, sequences: Sequence[Sequence[int]]) -> list[Nats]:
        """−log p of every id given those before it."""
        with _careful():
            ids, inside = self._padded(sequences)
            scored = inside[:, 1:]
            rows = self._states(ids)[:, :-1][scored]
            flat = self._nats(rows, ids[:, 1:][scored]).cpu().numpy()
        parts = np.split(flat, np.cumsum([len(s) - 1 for s in sequences])[:-1])
        return [np.concatenate([[np.nan], part]).astype(np.float32) for part in parts]

    def hidden(self, sequences: Sequence[Sequence[int]]) -> list[npt.NDArray[np.float32]]:
        """Last hidden state at every id (tokens × dimensions)."""
        with _careful():
            ids, _ = self._padded(sequences)
            states = self._base(input_ids=ids, use_cache=False).last_hidden_state.float().cpu().numpy()
        return [states[i, : len(s)] for i, s in enumerate(sequences)]

    def _padded(self, sequences: Sequence[Sequence[int]]) -> tuple[Any, Any]:
        """Ids on the device, and which of them are no padding: by length, never by id."""
        import torch

        lengths = torch.tensor([len(s) for s in sequences])
        ids = torch.zeros((len(sequences), int(lengths.max())), dtype=torch.long)
        for row, sequence in zip(ids, sequences, strict=True):
            row[: len(sequence)] = torch.tensor(sequence)
        inside = torch.arange(ids.shape[1])[None] < lengths[:, None]
        return ids.to(self._loaded.device), inside.to(self._loaded.device)

    def _states(self, ids: Any) -> Any:
        """What `_logits` turns into logits: hidden states, or the logits themselves where the head is no plain one."""
        if self._plain_head:
            return self._base(input_ids=ids, use_cache=False).last_hidden_state
        return self._loaded(input_ids=ids, use_cache=False).logits

    def _nats(self, rows: Any, targets: Any) -> Any:
        import torch

        step = max(1, LOGIT_BYTES // (4 * self._width))
        nats = torch.empty(len(rows), dtype=torch.float32, device=rows.device)
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            logits = (self._head(rows[part]) if self._plain_head else rows[part]).float()
            nats[part] = torch.logsumexp(logits, -1) - logits.gather(-1, targets[part, None])[:, 0]
        return nats

    @property
    def _base(self) -> Any:
        return self._loaded.base_model

    @property
    def _head(self) -> Any:
        return self._loaded.get_output_embeddings()

    @cached_property
    def _width(self) -> int:
        return int(self._head.weight.shape[0]) if self._head is not None else 1 << 18

    @cached_property
    def _plain_head(self) -> bool:
        """Whether the head alone makes the model's logits; some models scale or cap them afterwards."""
        import torch

        ids = torch.tensor([PROBE[0]], device=self._loaded.device)
        whole = self._loaded(input_ids=ids, use_cache=False).logits.float()
        if self._head is None or self._base is self._loaded:
            return False
        states = self._base(input_ids=ids, use_cache=False)
        if getattr(states, "last_hidden_state", None) is None:
            return False
        parts = self._head(states.last_hidden_state).float()
        return bool(parts.shape == whole.shape and (parts - whole).abs().max() <= 1e-3 * (1 + whole.abs().max()))

    @cached_property
    def _loaded(self) -> Any:
        torch, transformers = _libraries()
        transformers.utils.logging.disable_progress_bar()
        device = self._device or ("cuda" if torch.cuda.is_available() else "cpu")
        source, gguf = gguf_parts(self._source, self._gguf_file)
        given = {"gguf_file": gguf} if gguf else {}
        dtype = "auto" if self._dtype == "auto" else getattr(torch, self._dtype)
        try:
            model = transformers.AutoModelForCausalLM.from_pretrained(
                source, dtype=dtype, revision=self._revision or "main", trust_remote_code=self._trust, **given
            )
            model = model.to(device).eval()
        except ImportError as error:
            raise MissingExtraError(f"{self._source}: {one_line(error)}") from error
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            raise InputError(f"{self._source}: the model cannot be loaded: {one_line(error)}") from error
        self._refuse_bidirectional(model)
        return model

    def _refuse_bidirectional(self, model: Any) -> None:
        """A token's logits must not change with what follows; padding on the right rests on that."""
        import torch

        first, other = torch.tensor([PROBE[0]]), torch.tensor([(*PROBE[0][:3], *PROBE[1])])
        with torch.inference_mode():
            a, b = (model(input_ids=x.to(model.device), use_cache=False).logits[0, :3].float() for x in (first, other))
        if not torch.allclose(a, b, rtol=0.05, atol=0.5):
            raise InputError(
                f"{self._source}: {type(model).__name__} sees tokens to the right; a causal model is needed"
            )


@contextmanager
def _careful() -> Iterator[None]:
    """No gradients, and a way out where memory ends."""
    import torch

    try:
        with torch.inference_mode():
            yield
    except torch.OutOfMemoryError as error:
        raise InputError("the device is out of memory; use --batch_size 1, max_length=… or dtype=bfloat16") from error


def _libraries() -> tuple[Any, Any]:
    try:
        import torch
        import transformers
    except ImportError as error:
        raise MissingExtraError("the hf backend needs torch and transformers: pip install 'benchcast[hf]'") from error
    return torch, transformers
