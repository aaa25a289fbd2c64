"""The mixed validation set of section 4.1: so many examples of each benchmark, drawn by a seed.

An example's place in the draw is a hash of the seed and its id. The same seed gives the same bytes on
every machine and with every version of every library, and a subject more or less leaves the rest of
the draw as it was.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchcast.errors import InputError
from benchcast.formatting import did_you_mean
from benchcast.records import Task, TextSet
from benchcast.texts.duplicates import NearDuplicates
from benchcast.texts.examples import TEMPLATES, Example, Row
from benchcast.texts.hub import read_hub, refuse_absent
from benchcast.texts.layouts import read_rows

PAPER_MIX = {"mmlu": 100, "bbh": 100, "gsm8k": 100, "hellaswag": 100, "cmmlu": 100, "bbh-cot": 50}

# Task → chance and the benchmarks whose texts belong to it. C-Eval and CMMLU ask for the same
# capability, so each takes the texts of both. BBH mixes two to eighteen options and free answers; its
# authors give 25.7% as the mean over the tasks of what guessing gets.
BBH_CHANCE = 0.257
TASKS: dict[str, tuple[float, tuple[str, ...]]] = {
    "mmlu": (0.25, ("mmlu",)),
    "bbh": (BBH_CHANCE, ("bbh", "bbh-cot")),
    "gsm8k": (0.0, ("gsm8k",)),
    "hellaswag": (0.25, ("hellaswag",)),
    "cmmlu": (0.25, ("cmmlu", "ceval")),
    "ceval": (0.25, ("cmmlu", "ceval")),
}


@dataclass(frozen=True, slots=True)
class SampledExamples:
    """Examples of one benchmark that went into the mixture, and those passed over on the way."""

    examples: tuple[Example, ...]
    empty: int  # no question or no answer
    repeated: int  # near-duplicates of an example already taken, of any benchmark


@dataclass(frozen=True, slots=True)
class Mixture:
    """A validation set with the tasks it was made for."""

    texts: TextSet
    tasks: tuple[Task, ...]
    drawn: Mapping[str, SampledExamples]


def parse_mix(text: str) -> dict[str, int]:
    """`mmlu=100,bbh=50` → how many of each."""
    mix: dict[str, int] = {}
    for part in text.split(","):
        name, _, count = (x.strip() for x in part.partition("="))
        if name not in TEMPLATES:
            raise InputError(
                f"--mix: unknown benchmark {name!r}; known: {', '.join(TEMPLATES)}{did_you_mean(name, TEMPLATES)}"
            )
        if not (count.isascii() and count.isdigit()) or int(count) == 0:
            raise InputError(f"--mix: {part.strip()!r} needs a count, such as {name}=100")
        if name in mix:
            raise InputError(f"--mix: {name!r} occurs twice")
        mix[name] = int(count)
    return mix


def build_mixture(mix: Mapping[str, int], data: Path | None, *, seed: int = 0) -> Mixture:
    """Draw the mixture from benchmark files below `data`, or from the hub without it."""
    if data is None:
        refuse_absent(mix)
    seen = NearDuplicates()
    drawn = {}
    for benchmark, count in mix.items():
        rows: Iterable[Row] = read_hub(benchmark) if data is None else read_rows(benchmark, data)
        examples = [TEMPLATES[benchmark](row) for row in rows]
        drawn[benchmark] = draw(benchmark, examples, count, seed=seed, seen=seen)
    texts = TextSet.of(x.as_text(benchmark) for benchmark, d in drawn.items() for x in d.examples)
    return Mixture(texts, tasks_of(mix), drawn)


def draw(
    benchmark: str, examples: Iterable[Example], count: int, *, seed: int, seen: NearDuplicates
) -> SampledExamples:
    """So many examples at random, none empty, none that repeats what was `seen`, in the order of the files."""
    listed = list(examples)
    order = sorted(range(len(listed)), key=lambda i: (listed[i].spare, _place(seed, listed[i].id)))
    taken: list[int] = []
    empty = repeated = 0
    for i in order:
        if len(taken) == count:
            break
        if not (listed[i].own.strip() and listed[i].answer.strip()):
            empty += 1
        elif not seen.add(listed[i].own):
            repeated += 1
        else:
            taken.append(i)
    if len(taken) < count:
        raise InputError(
            f"{benchmark}: {count} examples asked for, {len(taken)} usable of {len(listed)} found "
            f"({empty} empty, {repeated} repeat another); ask for {benchmark}={len(taken)} or give more files"
        )
    return SampledExamples(tuple(listed[i] for i in sorted(taken)), empty, repeated)


def _place(seed: int, name: str) -> str:
    return hashlib.sha256(f"{seed}\n{name}".encode(errors="surrogatepass")).hexdigest()


def tasks_of(mix: Iterable[str]) -> tuple[Task, ...]:
    """The tasks that a mixture of these benchmarks speaks of."""
    there = set(mix)
    made = []
    for name, (chance, benchmarks) in TASKS.items():
        sources = tuple(b for b in benchmarks if b in there)
        if sources:
            made.append(Task(name, chance, sources))
    return tuple(made)
