"""Train the zoo's tokenizers on generated text, and give exact byte bounds of a text under each of them.

All of them are lossless and are saved as a plain tokenizer.json.
"""

import json
import os
import re
from functools import cache, partial
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL = ["<bos>", "<eos>", "<pad>"]
BOS, EOS, PAD = range(3)
BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")


def _byte_level(digits: bool) -> pre_tokenizers.PreTokenizer:
    split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), split]) if digits else split


def train_bytes(texts: list[str]) -> Tokenizer:
    """One token per byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {piece: i for i, piece in enumerate(SPECIAL + alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def train_bpe(texts: list[str], *, size: int, digits: bool, chinese: bool = True) -> Tokenizer:
    """Byte-level BPE; `digits` keeps each digit a token, `chinese=False` learns no merge of Chinese characters."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = _byte_level(digits)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts if chinese else [t for t in texts if t.isascii()], trainer)
    return tokenizer


def train_unigram(texts: list[str], *, size: int) -> Tokenizer:
    """A unigram model with byte fallback and "▁" for the space, as SentencePiece writes it."""
    split = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\n"), "isolated"),
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.Punctuation("isolated"),
            pre_tokenizers.Metaspace(prepend_scheme="never"),
        ]
    )
    draft = Tokenizer(models.Unigram())
    draft.pre_tokenizer = split
    trainer = trainers.UnigramTrainer(
        vocab_size=size - 256 - len(SPECIAL), special_tokens=["<unk>"], unk_token="<unk>", show_progress=False
    )
    draft.train_from_iterator(texts, trainer)
    learned = [(piece, score) for piece, score in _pieces(draft) if piece != "<unk>"]
    fallback = [(f"<0x{byte:02X}>", -30.0) for byte in range(256)]
    vocabulary = [(name, 0.0) for name in SPECIAL] + fallback + learned
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=PAD, byte_fallback=True))
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def _pieces(tokenizer: Tokenizer) -> list[tuple[str, float]]:
    return [(piece, score) for piece, score in json.loads(tokenizer.to_str())["model"]["vocab"]]


RECIPES = {
    "bytes": train_bytes,
    "bpe-1k": partial(train_bpe, size=1024, digits=True),
    "bpe-2k": partial(train_bpe, size=2048, digits=True),
    "bpe-3k": partial(train_bpe, size=3072, digits=True),
    "bpe-4k": partial(train_bpe, size=4096, digits=False),
    "bpe-8k": partial(train_bpe, size=8192, digits=True),
    "bpe-numbers-1k": partial(train_bpe, size=1024, digits=False),
    "unigram-1k": partial(train_unigram, size=1024),
    "unigram-4k": partial(train_unigram, size=4096),
    "bpe-no-chinese-1k": partial(train_bpe, size=1024, digits=True, chinese=False),
    "bpe-no-chinese-4k": partial(train_bpe, size=4096, digits=True, chinese=False),
}


def train(name: str, texts: list[str], folder: Path) -> Path:
    """Train one tokenizer if it is not there yet; returns its tokenizer.json."""
    path = folder / f"{name}.json"
    if not path.exists():
        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # sums in one order: the same tokenizer on every machine
        folder.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".tmp")
        RECIPES[name](texts).save(str(draft))
        draft.rename(path)
    return path


@cache
def _byte_of_character() -> dict[str, int]:
    """The byte-level alphabet: printable stand-ins for all 256 bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


def token_bytes(tokenizer: Tokenizer) -> list[bytes]:
    """The bytes each token id stands for; special tokens stand for none."""
    metaspace = isinstance(tokenizer.model, models.Unigram)
    pieces = []
    for i in range(tokenizer.get_vocab_size()):
        piece = tokenizer.id_to_token(i)
        fallback = BYTE_PIECE.fullmatch(piece) if metaspace else None
        if piece in SPECIAL:
            pieces.append(b"")
        elif fallback:
            pieces.append(bytes([int(fallback[1], 16)]))
        elif metaspace:
            pieces.append(piece.replace("▁", " ").encode())
        else:
            pieces.append(bytes(_byte_of_character()[c] for c in piece))
    return pieces


def bounds(ids: list[int], pieces: list[bytes], text: str) -> list[int]:
    """Byte bounds of a text's tokens, rebuilt from the tokens' own bytes; an error if they do not spell the text."""
    data = text.encode()
    ends = [0]
    for i in ids:
        ends.append(ends[-1] + len(pieces[i]))
    if b"".join(pieces[i] for i in ids) != data:
        raise ValueError(f"tokens spell another text than {text[:40]!r}; is the tokenizer lossless?")
    return ends
