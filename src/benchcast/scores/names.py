"""Match the names of tasks and models in score files with those of the study."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

from benchcast.errors import InputError
from benchcast.formatting import read_csv

# Other names that harnesses use for a task.
ALIASES: dict[str, tuple[str, ...]] = {
    "mmlu": ("hendrycksTest", "mmlu_5shot"),
    "bbh": ("bbh_cot_fewshot", "bbh_fewshot", "leaderboard_bbh", "big_bench_hard"),
    "ceval": ("ceval-test", "ceval-valid", "ceval-val"),
    "arc": ("arc_challenge", "arc:challenge", "ARC-c"),
    "arc_challenge": ("arc", "arc:challenge", "ARC-c"),
    "truthfulqa": ("truthfulqa:mc", "truthfulqa_mc2"),
    "csqa": ("commonsense_qa", "commonsenseqa"),
    "openbookqa": ("openbook_qa",),
    "socialiqa": ("social_iqa", "siqa"),
    "arc_easy": ("arc:easy", "ARC-e"),
    "ifeval": ("leaderboard_ifeval",),
    "math_lvl_5": ("leaderboard_math_hard", "math_hard"),
    "gpqa": ("leaderboard_gpqa",),
    "musr": ("leaderboard_musr",),
    "mmlu_pro": ("leaderboard_mmlu_pro", "MMLU-PRO"),
}


def plain(name: str) -> str:
    """Letters and digits only, in lower case."""
    return re.sub(r"[\W_]+", "", name).casefold()


def match_tasks(in_files: Iterable[str], tasks: Sequence[str], renames: Mapping[str, str]) -> dict[str, str]:
    """Match tasks of files with tasks of the study.

    A rename is used first; then the exact name, then the name without punctuation and case, then an alias. Each task
    of the study is matched once: if its exact name occurs, a similar name is another task.

    Parameters
    ----------
    in_files : names of tasks in the files
    tasks : names of the study's tasks
    renames : name in the files → name in the study

    Returns
    -------
    Name in the files → name in the study, for the tasks that the study has.
    """
    names = list(dict.fromkeys(in_files))
    matched = {n: renames[n] for n in names if renames.get(n) in tasks}
    for task in tasks:
        if task in matched.values():
            continue
        aliases = {plain(a) for a in ALIASES.get(task, ())}
        for stage in (
            {task},
            {n for n in names if plain(n) == plain(task)},
            {n for n in names if plain(n) in aliases},
        ):
            candidates = [n for n in names if n in stage and n not in matched]
            if len(candidates) > 1:
                raise InputError(
                    f"{' and '.join(map(repr, candidates))} could both be task {task!r}; choose one with --rename"
                )
            if candidates:
                matched[candidates[0]] = task
                break
    return matched


def _is_folder(name: str) -> bool:
    try:
        return Path(name).is_dir()
    except (OSError, ValueError):  # too long for a file name, or with a zero byte
        return False


def without_path(name: str) -> str:
    """The last part of a local path, existing here or not; a hub id is unchanged.

    A GGUF file is named by its stem, as in `collect`.
    """
    if name.endswith(".gguf"):
        return Path(name).stem
    is_path = name.startswith(("/", ".", "~")) or name.count("/") > 1
    return name.rstrip("/").rpartition("/")[2] or name if is_path or _is_folder(name) else name


def match_models(
    in_files: Iterable[str], known: Sequence[str], renames: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Match models of files with models of the study.

    `org/name` matches `name` and vice versa, ignoring case, if only one model of the study fits. A path is reduced to
    its last part, as in `collect`.

    Parameters
    ----------
    in_files : names of models in the files
    known : names of the study's models
    renames : name in the files → name in the study

    Returns
    -------
    Name in the files → name in the study; and for names that the study does not have, similar names of the study.
    """
    matched, unmatched = {}, {}
    for name in dict.fromkeys(in_files):
        model = renames.get(name, name if name in known else without_path(name))
        same = [k for k in known if k.rpartition("/")[2].casefold() == model.rpartition("/")[2].casefold()]
        if model not in known and len(same) == 1 and name not in renames:
            model = same[0]
        matched[name] = model
        if model not in known and known:
            unmatched[model] = get_close_matches(model.rpartition("/")[2], known, n=3, cutoff=0.6)
    _refuse_merged(matched)
    return matched, unmatched


def _refuse_merged(matched: Mapping[str, str]) -> None:
    first: dict[str, str] = {}
    for name, model in matched.items():
        if model in first:
            raise InputError(
                f"{first[model]!r} and {name!r} are both model {model!r}; give them different names with --rename"
            )
        first[model] = name


def read_renames(path: Path) -> dict[str, str]:
    """Read a CSV with the columns from and to: names of models or tasks in score files, and in the study."""
    rows = read_csv(path)
    if not rows or set(rows[0]) != {"from", "to"}:
        raise InputError(f"{path}: renames need the columns from,to and at least one row")
    renames: dict[str, str] = {}
    for number, row in enumerate(rows, start=2):
        old, new = row["from"].strip(), row["to"].strip()
        if not old or not new or old in renames:
            raise InputError(
                f"{path}: line {number}: {'both names are needed' if not (old and new) else f'{old!r} occurs twice'}"
            )
        renames[old] = new
    return renames
