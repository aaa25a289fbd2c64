"""The mixed validation set of section 4.1: a random sample of examples from each benchmark.

Examples are drawn in the order of a hash of the seed and their id. The same seed gives the same texts on every
machine and with every library version, and an added or removed subject does not change the order of the others.
"""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchcast.errors import InputError, library
from benchcast.importers.benchmarks import TEMPLATES, Example, Row, read_rows
from benchcast.messages import did_you_mean
from benchcast.records import Task, TextSet

PAPER_MIX = {"mmlu": 100, "bbh": 100, "gsm8k": 100, "hellaswag": 100, "cmmlu": 100, "bbh-cot": 50}
# Task → chance and the benchmarks whose texts belong to it. C-Eval and CMMLU measure the same
# capability, so each uses the texts of both. BBH mixes two to eighteen options and free answers; its
# authors give 25.7% as the mean accuracy of random guessing over the tasks.
BBH_CHANCE = 0.257
TASKS: dict[str, tuple[float, tuple[str, ...]]] = {
    "mmlu": (0.25, ("mmlu",)),
    "bbh": (BBH_CHANCE, ("bbh", "bbh-cot")),
    "gsm8k": (0.0, ("gsm8k",)),
    "hellaswag": (0.25, ("hellaswag",)),
    "cmmlu": (0.25, ("cmmlu", "ceval")),
    "ceval": (0.25, ("cmmlu", "ceval")),
}
# Repository, split, and the configuration with all subjects (None: each subject has its own configuration).
# A folder of that name below the working directory is read instead of the hub. BBH comes from a copy without a
# loading script, since `datasets` 4 and later do not run loading scripts.
SETS: dict[str, tuple[str, str, str | None]] = {
    "mmlu": ("cais/mmlu", "validation", "all"),
    "bbh": ("SaylorTwift/bbh", "test", None),
    "gsm8k": ("openai/gsm8k", "train", "main"),
    "hellaswag": ("Rowan/hellaswag", "validation", "default"),
    "cmmlu": ("haonan-li/cmmlu", "test", None),
    "ceval": ("ceval/ceval-exam", "val", None),
}
ALIKE = 0.9  # Jaccard index of two sets of word runs
RUN = 3  # words in a run
WORD = re.compile(r"[぀-ヿ㐀-鿿가-힯]|[^\W぀-ヿ㐀-鿿가-힯]+|[^\w\s.,;:!?'\"]")


@dataclass(frozen=True, slots=True)
class SampledExamples:
    """Examples of one benchmark in the mixture, and the numbers of examples that were skipped."""

    examples: tuple[Example, ...]
    empty: int  # without question or answer
    repeated: int  # near-duplicates of an example already drawn, from any benchmark


@dataclass(frozen=True, slots=True)
class Mixture:
    """A validation set with its tasks."""

    texts: TextSet
    tasks: tuple[Task, ...]
    drawn: Mapping[str, SampledExamples]


def parse_mix(text: str) -> dict[str, int]:
    """Parse `mmlu=100,bbh=50` into the number of examples of each benchmark."""
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
    """Draw a validation set from benchmarks.

    Parameters
    ----------
    mix : number of examples of each benchmark
    data : folder with the benchmarks' files; None reads them from the Hugging Face hub
    seed : seed of the sample
    """
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
    """Draw `count` examples, skipping empty ones and near-duplicates of `seen`; they keep the order of the files."""
    listed = list(examples)

    def draw_order(i: int) -> tuple[bool, str]:
        return listed[i].spare, hashlib.sha256(f"{seed}\n{listed[i].id}".encode(errors="surrogatepass")).hexdigest()

    drawn: list[int] = []
    empty = repeated = 0
    for i in sorted(range(len(listed)), key=draw_order):
        if len(drawn) == count:
            break
        if not (listed[i].content.strip() and listed[i].answer.strip()):
            empty += 1
        elif not seen.add(listed[i].content):
            repeated += 1
        else:
            drawn.append(i)
    if len(drawn) < count:
        raise InputError(
            f"{benchmark}: {count} examples requested, {len(drawn)} usable of {len(listed)} found "
            f"({empty} empty, {repeated} repeat another); request {benchmark}={len(drawn)} or give more files"
        )
    return SampledExamples(tuple(listed[i] for i in sorted(drawn)), empty, repeated)


def tasks_of(mix: Iterable[str]) -> tuple[Task, ...]:
    """The tasks that have texts in a mixture of these benchmarks."""
    mixed = set(mix)
    tasks = []
    for name, (chance, benchmarks) in TASKS.items():
        sources = tuple(b for b in benchmarks if b in mixed)
        if sources:
            tasks.append(Task(name, chance, sources))
    return tuple(tasks)


def refuse_absent(benchmarks: Iterable[str]) -> None:
    """Raise an error, before any download, for a benchmark that the hub does not have."""
    for benchmark in benchmarks:
        if benchmark not in SETS:
            raise InputError(
                f"{benchmark}: the hub has no data set of the chain-of-thought prompts; "
                "give their folder with --data, or remove this part from --mix"
            )


def read_hub(benchmark: str) -> Iterator[Row]:
    """All items of one benchmark; needs the network or the cache of `datasets`."""
    refuse_absent([benchmark])
    datasets = library("datasets", "hf", "; or give the benchmarks' files with --data")
    repository, split, everything = SETS[benchmark]
    try:
        names = [everything] if everything else sorted(datasets.get_dataset_config_names(repository))
        for name in names:
            for i, fields in enumerate(datasets.load_dataset(repository, name, split=split)):
                subject = fields.get("subject") or name
                yield Row(f"{repository}: {name}: row {i}", f"{benchmark}-{subject}-{i}", fields)
    except (OSError, ValueError, RuntimeError) as error:
        first = str(error).strip().split("\n")[0]
        raise InputError(
            f"{repository}: could not be read from the hub ({first}); download the files and give them with --data"
        ) from error


class NearDuplicates:
    """The texts kept so far, indexed by their runs of words.

    Two texts are near-duplicates if the Jaccard index of their word trigrams is at least 0.9. A short question with one
    changed number is a different question; with one changed comma it is not.
    """

    def __init__(self) -> None:
        self._runs: list[set[tuple[str, ...]]] = []  # of each kept text
        self._with_run: dict[tuple[str, ...], list[int]] = {}  # kept texts by the first of their runs, in order

    def add(self, text: str) -> bool:
        """Keep a text unless it is a near-duplicate of a kept one; returns whether it was kept."""
        runs = word_runs(text)
        # Near-duplicates differ in so few runs that they share one of their first ones, in any order of all runs.
        first = sorted(runs, key=hash)[: len(runs) - math.ceil(ALIKE * len(runs) - 1e-9) + 1]
        for i in {i for run in first for i in self._with_run.get(run, ())}:
            common = len(runs & self._runs[i])
            if common >= ALIKE * (len(runs) + len(self._runs[i]) - common):
                return False
        for run in first:
            self._with_run.setdefault(run, []).append(len(self._runs))
        self._runs.append(runs)
        return True


def word_runs(text: str) -> set[tuple[str, ...]]:
    """Word trigrams, ignoring case and common punctuation; a text of fewer words is one run."""
    words = WORD.findall(unicodedata.normalize("NFKC", text).casefold())
    return {tuple(words[i : i + RUN]) for i in range(max(1, len(words) - RUN + 1))}


def count_repeats(texts: Iterable[str]) -> int:
    """Number of texts that are near-duplicates of an earlier one."""
    seen = NearDuplicates()
    return sum(not seen.add(text) for text in texts)
