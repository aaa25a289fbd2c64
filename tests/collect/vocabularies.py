"""The vocabularies that bounds are tested on: real ones by name, and small ones of the rarer kinds."""

from __future__ import annotations

import base64
import json
from functools import cache
from pathlib import Path
from typing import Any

import convert
import fetch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from benchcast.collection import tokenizers
from benchcast.collection.backends.vocabulary import from_sentencepiece, from_tiktoken

PUBLISHED = [
    "baichuan2",
    "chatglm3",
    "deepseek_v3",
    "gemma3",
    "gpt2",
    "gpt4o",
    "internlm2",
    "llama2",
    "llama3",
    "llama3_2",
    "mistral_nemo",
    "qwen2_5",
    "yi",
]
CORPUS = [
    "the quick brown fox jumps over the lazy dog and runs into the green woods again",
    "a model reads a text from left to right and guesses the next word of the text",
    "numbers such as 12 and 345 stand in the text, and so do (brackets) and 'quotes'",
] * 20


@cache
def vocabulary(name: str) -> tokenizers.Tokenizer:
    """A tokenizer by name."""
    if name in PUBLISHED:
        return from_file(fetch.tokenizer_folder(name) / "tokenizer.json", name)
    tokenizer: tokenizers.Tokenizer = BUILT[name]()
    return tokenizer


def from_file(path: Path, name: str) -> tokenizers.Tokenizer:
    return tokenizers.FastTokenizer(Tokenizer.from_file(str(path)), name)


def _tiktoken() -> tokenizers.Tokenizer:
    import tiktoken

    stored = json.loads(fetch.tiktoken_file("cl100k_base").read_text())
    ranks: dict[bytes, int] = {}
    for line in stored["bpe_ranks"].splitlines():
        _, first, *pieces = line.split()
        ranks |= {base64.b64decode(p): int(first) + i for i, p in enumerate(pieces)}
    encoding = tiktoken.Encoding(
        "cl100k_base", pat_str=stored["pat_str"], mergeable_ranks=ranks, special_tokens=stored["special_tokens"]
    )
    return from_tiktoken(encoding, "cl100k_base")


def _sentencepiece(kind: str) -> tokenizers.Tokenizer:
    import io

    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS),
        model_writer=model,
        vocab_size=320,
        hard_vocab_limit=False,  # versions of the trainer differ in how many pieces the corpus yields
        model_type=kind,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        minloglevel=2,
    )
    return from_sentencepiece(sentencepiece.SentencePieceProcessor(model_proto=model.getvalue()), f"spm-{kind}")


def _unigram() -> tokenizers.Tokenizer:
    """Unigram in the `tokenizers` library, with byte fallback and its prefix by Metaspace."""
    raw = Tokenizer(models.Unigram())
    raw.pre_tokenizer = pre_tokenizers.Metaspace()
    raw.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    raw.train_from_iterator(CORPUS, trainers.UnigramTrainer(vocab_size=120, unk_token="<unk>", show_progress=False))
    state = json.loads(raw.to_str())
    state["model"]["byte_fallback"] = True
    state["model"]["vocab"] += [[f"<0x{b:02X}>", -12.0] for b in range(256)]
    state["added_tokens"] = []
    return tokenizers.FastTokenizer(Tokenizer.from_str(json.dumps(state)), "unigram")


def wordpiece(**normaliser: Any) -> tokenizers.Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(**normaliser)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(
        CORPUS, trainers.WordPieceTrainer(vocab_size=200, special_tokens=["[UNK]"], show_progress=False)
    )
    tokenizer.decoder = decoders.WordPiece()
    return tokenizers.FastTokenizer(tokenizer, "wordpiece")


BUILT: dict[str, Any] = {
    "smollm2": lambda: from_file(convert.smollm2() / "tokenizer.json", "smollm2"),
    "llama2c": lambda: from_file(convert.stories() / "tokenizer.json", "llama2c"),
    "cl100k_base": _tiktoken,
    "spm-bpe": lambda: _sentencepiece("bpe"),
    "spm-unigram": lambda: _sentencepiece("unigram"),
    "unigram": _unigram,
}
BUILT_HERE = ("spm-bpe", "spm-unigram", "unigram")
ALL = (*PUBLISHED, *BUILT)
