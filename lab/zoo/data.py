"""Training tokens of each family and the validation texts.

A family's text is cut into shards. A shard depends only on the family's mixture and its own number, so any
number of processes writes the same bytes, and a shard that is on disk is never made again.
"""

import json
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from lab.zoo import background, vocab
from lab.zoo.families import Family
from lab.zoo.recipes import EMBEDDED, Recipe
from lab.zoo.skills.common import Dice, full_text, short_text, texts

SHARD_BYTES = 2_000_000
VALID_PER_SKILL = 100
VALID_WITH_STEPS = 50
TOKENIZER_TEXTS = 6_000  # training texts of each skill that the tokenizers are trained on


@cache
def validation(recipe: Recipe = EMBEDDED) -> list[dict[str, str | int]]:
    """The validation set: 100 texts a skill, and 50 with their steps written out for each skill in `recipe.worked`.

    It is drawn once in each process; not to be changed.
    """
    rows = []
    for name, skill in recipe.skills.items():
        extra = VALID_WITH_STEPS if name in recipe.worked else 0
        items = skill.items("valid", VALID_PER_SKILL + extra)
        for i, item in enumerate(items[:VALID_PER_SKILL]):
            text = full_text(item) if name == "arithmetic" else short_text(item)  # never trained without steps
            rows.append(_row(f"{name}-{i}", name, text, item.answer))
        for i, item in enumerate(items[VALID_PER_SKILL:]):
            solution = full_text(item).removeprefix(item.prompt) if recipe.solutions else item.answer
            rows.append(_row(f"{name}-cot-{i}", f"{name}-cot", full_text(item), solution))
    return rows


def _row(identity: str, source: str, text: str, answer: str) -> dict[str, str | int]:
    start = len(text.encode()) - len(answer.encode())
    return {"id": identity, "source": source, "text": text, "answer_start": start}


def background_texts(work: Path) -> list[str]:
    """The background paragraphs, read from the standard library once per work folder."""
    path = work / "background.json"
    if not path.exists():
        work.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".tmp")
        draft.write_text(json.dumps(background.paragraphs()))
        draft.rename(path)
    return json.loads(path.read_text())


def tokenizer_texts(work: Path, recipe: Recipe = EMBEDDED) -> list[str]:
    """What the tokenizers are trained on: every source alike."""
    sample = [t for skill in recipe.skills.values() for t in islice(texts(skill, "tokenizer"), TOKENIZER_TEXTS)]
    return sample + background_texts(work)[:TOKENIZER_TEXTS]


def train_tokenizer(name: str, work: Path, recipe: Recipe = EMBEDDED) -> None:
    if not (work / "tokenizers" / f"{name}.json").exists():
        vocab.train(name, tokenizer_texts(work, recipe), work / "tokenizers")


@cache
def load_tokenizer(name: str, work: Path) -> Tokenizer:
    return Tokenizer.from_file(str(work / "tokenizers" / f"{name}.json"))


def shard_texts(family: Family, shard: int, paragraphs: list[str], recipe: Recipe = EMBEDDED) -> list[str]:
    """The documents of one shard in training order: each source's share of SHARD_BYTES, shuffled."""
    dice = Dice(f"{family.name} {shard}")
    chosen: list[str] = []
    for source, share in family.mixture.items():
        skill = recipe.skills.get(source)
        stream = texts(skill, str(shard)) if skill else _endless(paragraphs, dice)
        size = 0
        while size < share * SHARD_BYTES:
            text = next(stream)
            size += len(text.encode())
            chosen.append(text)
    dice.shuffle(chosen)
    return chosen


def _endless(paragraphs: list[str], dice: Dice) -> Iterator[str]:
    while True:
        yield dice.pick(paragraphs)


def encode_documents(tokenizer: Tokenizer, documents: list[str]) -> np.ndarray:
    """Documents as one row of tokens, each between <bos> and <eos>."""
    ids: list[int] = []
    for encoding in tokenizer.encode_batch_fast(documents, add_special_tokens=False):
        ids.append(vocab.BOS)
        ids.extend(encoding.ids)
        ids.append(vocab.EOS)
    return np.array(ids, dtype=np.int16)


def shard_path(family: Family, shard: int, work: Path) -> Path:
    return work / "tokens" / family.name / f"{shard:04d}.npy"


def write_shard(task: tuple[Family, int], work: Path, recipe: Recipe = EMBEDDED) -> None:
    family, shard = task
    path = shard_path(family, shard, work)
    if path.exists():
        return
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    documents = shard_texts(family, shard, background_texts(work), recipe)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".tmp")
    with draft.open("wb") as file:
        np.save(file, encode_documents(load_tokenizer(family.tokenizer, work), documents))
    draft.rename(path)


def shards_needed(family: Family, work: Path, tokens: int, recipe: Recipe = EMBEDDED) -> int:
    """How many shards hold `tokens` tokens, judged by a few documents of the first one."""
    sample = shard_texts(family, 0, background_texts(work), recipe)[:2000]
    count = len(encode_documents(load_tokenizer(family.tokenizer, work), sample))
    tokens_per_shard = count / sum(len(t.encode()) for t in sample) * SHARD_BYTES
    return int(tokens * 1.02 / tokens_per_shard) + 1


def prepare(
    families: list[Family], work: Path, *, processes: int, tokens: int | None = None, recipe: Recipe = EMBEDDED
) -> None:
    """Tokenizers and training tokens of these families; `tokens` defaults to the largest budget."""
    budget = tokens or max(size.tokens for size in recipe.sizes.values())
    background_texts(work)
    # Forked processes are ready at once; nothing here has touched a device or started a thread.
    with ProcessPoolExecutor(processes, mp_context=get_context("fork")) as pool:
        list(
            pool.map(
                partial(train_tokenizer, work=work, recipe=recipe), sorted({family.tokenizer for family in families})
            )
        )
        shards = pool.map(partial(shards_needed, work=work, tokens=budget, recipe=recipe), families)
        tasks = [(family, shard) for family, count in zip(families, shards, strict=True) for shard in range(count)]
        list(pool.map(partial(write_shard, work=work, recipe=recipe), tasks))


def load_tokens(family: Family, work: Path, count: int) -> np.ndarray:
    """The first `count` training tokens; starts over where fewer were prepared."""
    shards: list[np.ndarray] = []
    held = 0
    for path in sorted((work / "tokens" / family.name).glob("*.npy")):
        if held >= count:
            break
        shards.append(np.load(path))
        held += len(shards[-1])
    if not shards:
        raise FileNotFoundError(f"{work}/tokens/{family.name}: no training tokens; run `prepare` first")
    return np.resize(np.concatenate(shards), count)
