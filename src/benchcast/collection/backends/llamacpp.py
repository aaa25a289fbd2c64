"""The llama.cpp backend, in process: losses from the logits of `eval`.

Its `echo` returns wrong log-probabilities, in process and in its server, so it is not used. The vocabulary is
llama.cpp's own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from benchcast.collection.backends.base import ModelSettings, Nats, Vocabulary, from_logits, read_each
from benchcast.collection.backends.loaded import PREFIX
from benchcast.collection.backends.sources import model_name
from benchcast.collection.backends.vocabulary import VocabularySource
from benchcast.collection.tokenizers import Tokenizer
from benchcast.errors import InputError, library

SCORE_BYTES = 1 << 30  # limit for the logits that llama.cpp keeps of a whole sequence
FLOAT32 = 0  # ggml's type number; the default float16 cache changes losses by 0.01 nats
LONGEST_PIECE = 512
FILE_TYPES = {  # by the number in the file's header
    "0": "F32",
    "1": "F16",
    "2": "Q4_0",
    "3": "Q4_1",
    "7": "Q8_0",
    "15": "Q4_K_M",
    "17": "Q5_K_M",
    "18": "Q6_K",
}


class LlamaCppBackend:
    """A GGUF file in llama.cpp."""

    name = "llamacpp"
    batch_size = 1  # sequences are evaluated one after the other
    batch_tokens = 1 << 30

    def __init__(self, settings: ModelSettings, *, device: str = "", batch_size: int = 0) -> None:
        self.asked = settings.line
        self._path = Path(settings.text("pretrained") or settings.needed("path", "FILE.gguf")).expanduser()
        self._max_length = settings.whole("max_length", 0)
        self._threads = settings.whole("n_threads", 0)
        self._layers = -1 if device.startswith("cuda") else 0
        has_tokenizer = bool(settings.text("tokenizer"))
        self._source = VocabularySource.of(settings, str(self._path)) if has_tokenizer else None
        self._bos = settings.flag("add_bos_token")
        self.model = model_name(str(self._path))
        if not self._path.is_file():
            raise InputError(f"{settings.where}: {self._path}: no such file; llamacpp needs pretrained=FILE.gguf")

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The file's vocabulary, or the tokenizer that the settings name."""
        if self._source:
            return self._source.load()
        library, inner = self._library, self._vocabulary_only
        handle = library.llama_model_get_vocab(inner.model)

        def piece(token: int) -> bytes:
            buffer = ctypes.create_string_buffer(LONGEST_PIECE)
            length = library.llama_token_to_piece(handle, token, buffer, LONGEST_PIECE, 0, True)
            return bytes(buffer.raw[: max(0, length)])

        def encode(text: str) -> list[int]:
            return list(inner.tokenize(text.encode(), add_bos=False, special=False)) if text else []

        usual = bool(library.llama_vocab_get_add_bos(handle))
        adds_bos = usual if self._bos is None else self._bos
        bos = int(inner.token_bos())
        if adds_bos and bos < 0:
            raise InputError(f"{self._path}: add_bos_token: the vocabulary has no BOS token; leave the setting out")
        policy = piece(bos).decode(errors="replace") if adds_bos else "none"
        asked = "" if self._bos is None else ", as asked"
        tokenizer = Tokenizer(self._path.stem, encode, piece)
        habit = "" if adds_bos == usual else piece(bos).decode(errors="replace") if usual else "none"
        return Vocabulary(tokenizer, (bos,) if adds_bos else (), policy + asked, habit)

    @cached_property
    def context(self) -> int:
        """`max_length`, else the file's limit as far as the logits of all tokens fit into memory."""
        metadata = self._vocabulary_only.metadata
        trained = int(metadata.get(f"{metadata.get('general.architecture', 'llama')}.context_length", 2048))
        fits = max(64, SCORE_BYTES // (4 * int(self._vocabulary_only.n_vocab())))
        return min(trained, self._max_length or min(trained, fits))

    def about(self) -> dict[str, str]:
        kind = str(self._vocabulary_only.metadata.get("general.file_type", ""))
        return {
            "backend": self.name,
            "backend_version": f"llama-cpp-python {self._library.__version__}",
            "dtype": FILE_TYPES.get(kind, f"GGUF type {kind}"),
            f"{PREFIX}params": str(self._library.llama_model_n_params(self._loaded.model)),
        }

    def score(self, sequences: Sequence[Sequence[int]]) -> list[Nats]:
        return read_each(self._one, map(list, sequences))

    def _one(self, ids: list[int]) -> Nats:
        self._loaded.reset()
        self._loaded.eval(ids)
        if self._loaded.n_tokens != len(ids):
            raise InputError(f"llama.cpp read {self._loaded.n_tokens} of {len(ids)} tokens")
        return from_logits(self._loaded.scores[: len(ids)], ids)

    @property
    def _library(self) -> Any:
        return library("llama_cpp", "llamacpp")

    @cached_property
    def _vocabulary_only(self) -> Any:
        return self._open(vocab_only=True)

    @cached_property
    def _loaded(self) -> Any:
        return self._open(
            n_ctx=self.context,
            logits_all=True,
            type_k=FLOAT32,
            type_v=FLOAT32,
            n_gpu_layers=self._layers,
            n_threads=self._threads or None,
        )

    def _open(self, **options: Any) -> Any:
        try:
            return self._library.Llama(str(self._path), verbose=False, **options)
        except ValueError as error:
            raise InputError(f"{self._path}: llama.cpp cannot load it ({error})") from error
