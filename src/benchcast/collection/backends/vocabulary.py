"""Load a model's tokenizer through transformers and determine its BOS policy.

The losses of some models depend strongly on BOS. The policy is read from the tokenizer, or from the GGUF file because
its conversion loses the setting. BOS is added once, and the policy is stored with the losses.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchcast.collection.backends.base import ModelSettings, Vocabulary
from benchcast.collection.backends.sources import gguf_parts, loading, source_name
from benchcast.collection.tokenizers import FastTokenizer, Tokenizer
from benchcast.errors import InputError, library


@dataclass(frozen=True, slots=True)
class VocabularySource:
    """Source of a tokenizer and the user's BOS setting."""

    source: str
    gguf_file: str
    revision: str
    trust_remote_code: bool
    add_bos_token: bool | None  # None: the tokenizer's default

    @classmethod
    def of(cls, settings: ModelSettings, default: str) -> VocabularySource:
        """The source named by the setting `tokenizer`, else `default`, the model's own."""
        named = settings.text("tokenizer")
        gguf, revision = settings.text("gguf_file"), settings.text("revision")
        return cls(
            source=named or default,
            gguf_file="" if named else gguf,
            revision="" if named else revision,
            trust_remote_code=bool(settings.flag("trust_remote_code", False)),
            add_bos_token=settings.flag("add_bos_token"),
        )

    def load(self) -> Vocabulary:
        """The tokenizer with its BOS policy."""
        where, gguf = gguf_parts(self.source, self.gguf_file)
        transformers = library("transformers", "hf")
        transformers.utils.logging.disable_progress_bar()
        options = {"gguf_file": gguf} if gguf else {}
        with loading(where, "its tokenizer cannot be loaded"):
            inner = transformers.AutoTokenizer.from_pretrained(
                where, revision=self.revision or "main", trust_remote_code=self.trust_remote_code, **options
            )
        adds = gguf_adds_bos(Path(where) / gguf) if gguf and Path(where).is_dir() else None
        return Vocabulary(wrap(inner, source_name(self.source)), *bos_policy(inner, self.add_bos_token, adds))


def vocabulary_of(tokenizer: Any, *, add_bos_token: bool | None = None) -> Vocabulary:
    """The vocabulary of a tokenizer of transformers, tokenizers or tiktoken in memory; a Vocabulary stays as it is."""
    if isinstance(tokenizer, Vocabulary):
        return tokenizer
    if hasattr(tokenizer, "encode_ordinary"):
        return Vocabulary(from_tiktoken(tokenizer, tokenizer.name), (), "none")
    if hasattr(tokenizer, "id_to_token") and hasattr(tokenizer, "post_processor"):
        from transformers import PreTrainedTokenizerFast

        return vocabulary_of(PreTrainedTokenizerFast(tokenizer_object=tokenizer), add_bos_token=add_bos_token)
    if not callable(tokenizer) or not hasattr(tokenizer, "convert_ids_to_tokens"):
        raise InputError(f"a {type(tokenizer).__name__} is not a tokenizer of transformers, tokenizers or tiktoken")
    name = str(getattr(tokenizer, "name_or_path", "")) or type(tokenizer).__name__
    return Vocabulary(wrap(tokenizer, source_name(name)), *bos_policy(tokenizer, add_bos_token, None))


def wrap(inner: Any, name: str) -> Tokenizer:
    """Wrap a transformers tokenizer so that it gives the bytes of each token."""
    fast = getattr(inner, "backend_tokenizer", None) or getattr(inner, "_tokenizer", None)
    if fast is not None and hasattr(fast, "id_to_token"):
        return FastTokenizer(fast, name)
    if hasattr(inner, "sp_model"):
        return from_sentencepiece(inner.sp_model, name)
    if isinstance(next(iter(inner.get_vocab()), ""), bytes):

        def encode(text: str) -> list[int]:
            return list(inner.encode(text, add_special_tokens=False))

        def piece(token: int) -> bytes:
            token_text = inner.convert_ids_to_tokens(token)
            return token_text if isinstance(token_text, bytes) else str(token_text).encode()

        return Tokenizer(name, encode, piece)
    raise InputError(
        f"tokenizer {name!r}: {type(inner).__name__} does not give the bytes of its tokens; "
        "name a tokenizer that does with tokenizer=…"
    )


def from_sentencepiece(processor: Any, name: str) -> Tokenizer:

    def piece(token: int) -> bytes:
        text = str(processor.id_to_piece(token))
        if processor.is_byte(token):
            return bytes([int(text[3:5], 16)])
        if processor.is_unknown(token):
            raise InputError(f"tokenizer {name!r}: its vocabulary lacks part of the text, which became {text!r}")
        return text.replace("▁", " ").encode()

    tokenizer = Tokenizer(name, lambda text: processor.encode(text, out_type=int), piece)
    tokenizer.marks_spaces = True
    return tokenizer


def from_tiktoken(encoding: Any, name: str) -> Tokenizer:
    return Tokenizer(name, encoding.encode_ordinary, encoding.decode_single_token_bytes)


def bos_policy(inner: Any, add_bos: bool | None, file_adds: bool | None) -> tuple[tuple[int, ...], str, str]:
    """The ids before each text, a description of the policy, and what is usual if the user asked for something else.

    `add_bos`, the user's setting, overrides the GGUF file, which overrides the tokenizer.
    """
    bare = list(inner("a", add_special_tokens=False)["input_ids"])
    full = list(inner("a", add_special_tokens=True)["input_ids"])
    at = next((i for i in range(len(full)) if full[i : i + len(bare)] == bare), 0)
    added = tuple(dict.fromkeys(full[:at]))  # what the tokenizer puts before a text; some add BOS twice
    bos = getattr(inner, "bos_token_id", None)
    one = added if added or bos is None else (int(bos),)

    def named(ids: tuple[int, ...]) -> str:
        return " ".join(map(str, inner.convert_ids_to_tokens(list(ids)))) if ids else "none"

    usual = () if file_adds is False else one if file_adds else added
    if add_bos is None:
        if file_adds and not one:
            raise InputError("add_bos_token: the tokenizer has no BOS token; leave the setting out")
        return usual, named(usual), ""
    if add_bos and not one:
        raise InputError("add_bos_token: the tokenizer has no BOS token; leave the setting out")
    prefix = one if add_bos else ()
    return prefix, f"{named(prefix)}, as asked", "" if prefix == usual else named(usual)


def gguf_adds_bos(path: Path) -> bool:
    """Whether a GGUF file asks for BOS; by default llama.cpp adds one for SentencePiece vocabularies."""
    from gguf import GGUFReader

    fields = GGUFReader(path).fields
    if "tokenizer.ggml.add_bos_token" in fields:
        return bool(fields["tokenizer.ggml.add_bos_token"].contents())
    model = fields.get("tokenizer.ggml.model")
    return model is not None and model.contents() == "llama"
