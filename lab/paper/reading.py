"""Tokens that a model reads for the 550 texts, and for the six benchmarks as they are evaluated.

The set of texts is counted as it is. A benchmark is counted by what its files hold, which may be pieces of it: tokens
of an item and of a solved example on average, times its number of items and shots. The paper names OpenCompass and no
shots; those below are of its usual configurations. Generated tokens are left out, and the options of a question are
read once, but for HellaSwag, whose four endings are scored one after the other. So the figures are low.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from benchcast.importers.benchmarks import TEMPLATES, Example, read_rows
from benchcast.importers.mixture import PAPER_MIX, build_mixture
from benchcast.study.reading import need_file


@dataclass(frozen=True, slots=True)
class Benchmark:
    """How a benchmark is evaluated."""

    items: int  # in its test set
    shots: int  # solved examples before each item
    readings: int = 1  # of the prompt for each item


# HellaSwag: its validation set, whose answers are public. C-Eval: its test set.
BENCHMARKS = {
    "mmlu": Benchmark(items=14042, shots=5),
    "bbh": Benchmark(items=6511, shots=3),
    "gsm8k": Benchmark(items=1319, shots=4),
    "hellaswag": Benchmark(items=10042, shots=0, readings=4),
    "cmmlu": Benchmark(items=11582, shots=5),
    "ceval": Benchmark(items=12342, shots=5),
}
SHOTS_OF = {"bbh": "bbh-cot"}  # benchmark → where its solved examples come from


@dataclass(frozen=True, slots=True)
class Reading:
    """What a model reads for one benchmark."""

    name: str
    items: int
    shots: int
    item_tokens: float  # of the item alone, mean over the files
    shot_tokens: float  # of a solved example, mean over the files
    files_items: int  # number of items that were counted

    @property
    def tokens(self) -> float:
        """Tokens of the whole benchmark."""
        return self.items * BENCHMARKS[self.name].readings * (self.shots * self.shot_tokens + self.item_tokens)


def read_tokens(data: Path, tokenizer: Path) -> tuple[int, int, list[Reading]]:
    """Number of texts of the set, its tokens, and what each benchmark takes.

    Parameters
    ----------
    data : folder with the benchmarks' files, or pieces of them
    tokenizer : a tokenizer.json
    """
    need_file(tokenizer)
    encoder = Tokenizer.from_file(str(tokenizer))
    texts = build_mixture(PAPER_MIX, data).texts
    total = int(counts(encoder, [t.text for t in texts]).sum())
    return len(texts), total, [_reading(encoder, name, data) for name in BENCHMARKS]


def _reading(encoder: Tokenizer, name: str, data: Path) -> Reading:
    items = _examples(name, data)
    solved = _examples(SHOTS_OF[name], data) if name in SHOTS_OF else items
    answered = name == "hellaswag"  # its endings are read, other answers are letters or generated
    shots = BENCHMARKS[name].shots
    return Reading(
        name=name,
        items=BENCHMARKS[name].items,
        shots=shots,
        item_tokens=float(counts(encoder, [x.prompt + (x.answer if answered else "") for x in items]).mean()),
        shot_tokens=float(counts(encoder, [x.prompt + x.answer for x in solved]).mean()) if shots else 0.0,
        files_items=len(items),
    )


def _examples(name: str, data: Path) -> list[Example]:
    return [x for x in (TEMPLATES[name](row) for row in read_rows(name, data)) if x.content and not x.spare]


def counts(encoder: Tokenizer, texts: Sequence[str]) -> np.ndarray:
    """Tokens of each text."""
    return np.array([len(e.ids) for e in encoder.encode_batch(list(texts), add_special_tokens=False)])
