"""Benchmark items from the Hugging Face hub, through `datasets`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any

from benchcast.errors import InputError, MissingExtraError
from benchcast.texts.examples import Row

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
    datasets = _datasets()
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


def _datasets() -> Any:
    try:
        return import_module("datasets")
    except ImportError as error:
        raise MissingExtraError(
            "texts from the hub need `datasets`: pip install 'benchcast[hf]'; or give the benchmarks' files with --data"
        ) from error
