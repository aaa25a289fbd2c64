"""Names in score files → names in the study, for tasks and models."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

from benchcast.errors import InputError
from benchcast.formatting import read_csv

# What harnesses call a task, where that is not its plain name.
ALIASES: dict[str, tuple[str, ...]] = {
    "mmlu": ("hendrycksTest", "mmlu_5shot"),
    "bbh": ("bbh_cot_fewshot", "bbh_fewshot", "leaderboard_bbh", "big_bench_hard"),
    "ceval": ("ceval-test", "ceval-valid", "ceval-val"),
    "arc": ("arc_challenge", "arc:challenge", "ARC-c"),
    "arc_challenge": ("arc", "arc:challenge", "ARC-c"),
    "truthfulqa": ("truthfulqa:mc", "truthfulqa_mc2"),
    "mmlu_pro": ("leaderboard_mmlu_pro", "MMLU-PRO"),
}


def plain(name: str) -> str:
    """Letters and digits only, in lower case."""
    return re.sub(r"[\W_]+", "", name).casefold()


def match_tasks(found: Iterable[str], tasks: Sequence[str], renames: Mapping[str, str]) -> dict[str, str]:
    """Which task of the study each task of a file is; tasks that are none of them are left out.

    A rename decides; then the very name, then the name without marks and case, then an alias. A study's
    task is matched once: where its very name is there, a likeness is another task.
    """
    names = list(dict.fromkeys(found))
    matched = {n: renames[n] for n in names if renames.get(n) in tasks}
    for task in tasks:
        if task in matched.values():
            continue
        likeness = {plain(a) for a in ALIASES.get(task, ())}
        for stage in (
            {task},
            {n for n in names if plain(n) == plain(task)},
            {n for n in names if plain(n) in likeness},
        ):
            here = [n for n in names if n in stage and n not in matched]
            if len(here) > 1:
                raise InputError(
                    f"{' and '.join(map(repr, here))} could both be task {task!r}; say which with --rename"
                )
            if here:
                matched[here[0]] = task
                break
    return matched


def _is_folder(name: str) -> bool:
    try:
        return Path(name).is_dir()
    except (OSError, ValueError):  # longer than a file name may be, or with a zero byte
        return False


def without_path(name: str) -> str:
    """The last part of what can only be a local path, or is one here; a hub id stays as it is.

    A GGUF file is named by its stem, as `collect` names it.
    """
    if name.endswith(".gguf"):
        return Path(name).stem
    elsewhere = name.startswith(("/", ".", "~")) or name.count("/") > 1
    return name.rstrip("/").rpartition("/")[2] or name if elsewhere or _is_folder(name) else name


def match_models(
    found: Iterable[str], known: Sequence[str], renames: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, list[str]]]:
    """What each model is called in the study, and for those it does not have, names that are near.

    `org/name` is the study's `name` and the other way round, case aside, where only one of them fits. A path
    is its last part, as `collect` names it.
    """
    matched, unmatched = {}, {}
    for name in dict.fromkeys(found):
        called = renames.get(name, name if name in known else without_path(name))
        same = [k for k in known if k.rpartition("/")[2].casefold() == called.rpartition("/")[2].casefold()]
        if called not in known and len(same) == 1 and name not in renames:
            called = same[0]
        matched[name] = called
        if called not in known and known:
            unmatched[called] = get_close_matches(called.rpartition("/")[2], known, n=3, cutoff=0.6)
    _refuse_merged(matched)
    return matched, unmatched


def _refuse_merged(matched: Mapping[str, str]) -> None:
    first: dict[str, str] = {}
    for name, called in matched.items():
        if called in first:
            raise InputError(f"{first[called]!r} and {name!r} are both model {called!r}; name them apart with --rename")
        first[called] = name


def read_renames(path: Path) -> dict[str, str]:
    """A CSV with columns from and to: names of models or tasks in score files, and in the study."""
    rows = read_csv(path)
    if not rows or set(rows[0]) != {"from", "to"}:
        raise InputError(f"{path}: renames need the columns from,to and a row each")
    renames: dict[str, str] = {}
    for number, row in enumerate(rows, start=2):
        old, new = row["from"].strip(), row["to"].strip()
        if not old or not new or old in renames:
            raise InputError(
                f"{path}: line {number}: {'both names are needed' if not (old and new) else f'{old!r} occurs twice'}"
            )
        renames[old] = new
    return renames
