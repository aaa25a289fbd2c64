"""Names in score files: those of tasks and models are matched with the study's; which metric is the score; chance."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from benchcast.errors import InputError
from benchcast.importers.scores.entries import ScoreEntry
from benchcast.messages import did_you_mean
from benchcast.study.model_names import candidate_names, check_renames, former_name, names_of, renamed
from benchcast.study.reading import read_csv

# One over the number of options, averaged over questions with different numbers; 0 for free answers.
BBH_TASKS: dict[str, float] = {
    "boolean_expressions": 1 / 2,
    "causal_judgement": 1 / 2,
    "date_understanding": 0.172,
    "disambiguation_qa": 1 / 3,
    "dyck_languages": 0.0,
    "formal_fallacies": 1 / 2,
    "geometric_shapes": 0.116,
    "hyperbaton": 1 / 2,
    "logical_deduction_three_objects": 1 / 3,
    "logical_deduction_five_objects": 1 / 5,
    "logical_deduction_seven_objects": 1 / 7,
    "movie_recommendation": 1 / 4,
    "multistep_arithmetic_two": 0.0,
    "navigate": 1 / 2,
    "object_counting": 0.0,
    "penguins_in_a_table": 1 / 5,
    "reasoning_about_colored_objects": 0.119,
    "ruin_names": 1 / 4,
    "salient_translation_error_detection": 1 / 6,
    "snarks": 1 / 2,
    "sports_understanding": 1 / 2,
    "temporal_sequences": 1 / 4,
    "tracking_shuffled_objects_three_objects": 1 / 3,
    "tracking_shuffled_objects_five_objects": 1 / 5,
    "tracking_shuffled_objects_seven_objects": 1 / 7,
    "web_of_lies": 1 / 2,
    "word_sorting": 0.0,
}
FOUR_OPTIONS = re.compile(r"(^|[_-])(mmlu|cmmlu|ceval)(?![_-]?pro)", re.IGNORECASE)
# Start of a task's name → the metrics that papers and leaderboards quote for it, most common first.
QUOTED: dict[str, tuple[str, ...]] = {
    "hellaswag": ("acc_norm",),
    "arc": ("acc_norm",),
    "gsm8k": ("exact_match,strict-match",),
    "bbh": ("exact_match,get-answer", "acc_norm"),
    "truthfulqa": ("mc2",),
}
GENERAL = ("acc", "accuracy", "exact_match", "EM", "naive_average", "score", "acc_norm", "pass@1", "")
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
    new_names = {n: renamed(n, renames) for n in names}
    matched = {n: new for n, new in new_names.items() if new is not None and new in tasks}
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


def plain(name: str) -> str:
    """Letters and digits only, in lower case."""
    return re.sub(r"[\W_]+", "", name).casefold()


def match_models(
    in_files: Iterable[str], known: Sequence[str], renames: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Match models of files with models of the study.

    A name is that of `names_of`, so a checkpoint keeps its run. `org/name` matches `name` and vice versa, ignoring
    case, if only one model of the study fits; so does the name that earlier versions gave to a path.

    Parameters
    ----------
    in_files : names of models in the files
    known : names of the study's models
    renames : name in the files, or the study's for it, → name in the study; patterns may have one `*` on each side

    Returns
    -------
    Name in the files → name in the study; and for names that the study does not have, similar names of the study.
    """
    sources, stored = list(dict.fromkeys(in_files)), set(known)
    usual = names_of(sources)
    former = Counter(former_name(source) for source in sources)
    matched, unmatched = {}, {}
    for source in sources:
        model = renamed(source, renames, usual=usual[source])
        if model is None:
            model = _stored_as(source, stored) or usual[source]
            same = [k for k in known if _last_part(k) == _last_part(model)]
            if model not in stored and len(same) == 1:
                model = same[0]
            elif model not in stored and former_name(source) in stored and former[former_name(source)] == 1:
                model = former_name(source)
        matched[source] = model
        if model not in stored and known:
            unmatched[model] = get_close_matches(model.rpartition("/")[2], known, n=3, cutoff=0.6)
    _refuse_merged(matched)
    return matched, unmatched


def _stored_as(source: str, stored: Container[str]) -> str | None:
    """The name under which the study has this source: as written, or with the most folders of its path."""
    return next((name for name in (source, *reversed(candidate_names(source))) if name in stored), None)


def _last_part(name: str) -> str:
    return name.rpartition("/")[2].casefold()


def _refuse_merged(matched: Mapping[str, str]) -> None:
    first: dict[str, str] = {}
    for name, model in matched.items():
        if model in first:
            raise InputError(
                f"{first[model]!r} and {name!r} are both model {model!r}; give them different names with --rename"
            )
        first[model] = name


def read_renames(given: Sequence[str]) -> dict[str, str]:
    """Renames from options: pairs OLD=NEW, and CSV files with the columns from and to; checked."""
    renames: dict[str, str] = {}
    for option in given:
        old, sign, new = option.rpartition("=")
        pairs = [(f"--rename {option}", old, new)]
        if Path(option).is_file() or not sign:
            pairs = _renames_of(Path(option))
        for where, before, after in pairs:
            old, new = before.strip(), after.strip()
            if not old or not new or renames.get(old, new) != new:
                why = "both names are needed" if not (old and new) else f"{old!r} occurs twice"
                raise InputError(f"{where}: {why}")
            renames[old] = new
    check_renames(renames)
    return renames


def _renames_of(path: Path) -> list[tuple[str, str, str]]:
    """Where each rename of a CSV stands, the old and the new name."""
    if not path.is_file():
        raise InputError(f"--rename {path}: neither a pair OLD=NEW nor a file")
    rows = read_csv(path)
    if not rows or set(rows[0]) != {"from", "to"}:
        raise InputError(f"{path}: renames need the columns from,to and at least one row")
    pairs = [(f"{path}: line {number}", row["from"], row["to"]) for number, row in enumerate(rows, start=2)]
    repeated = next((pair for i, pair in enumerate(pairs) if pair[1] in {old for _, old, _ in pairs[:i]}), None)
    if repeated:
        raise InputError(f"{repeated[0]}: {repeated[1]!r} occurs twice")
    return pairs


def choose_metrics(
    entries: Sequence[ScoreEntry], requested: Mapping[str, str]
) -> tuple[list[ScoreEntry], dict[str, str]]:
    """Choose one metric for each task, the same for all models.

    Parameters
    ----------
    entries : all scores of the files
    requested : task → metric, as the user chose

    Returns
    -------
    The entries of the chosen metrics, and the chosen metric of each task.
    """
    metrics: dict[str, list[str]] = {}
    for r in entries:
        metrics.setdefault(r.score.task, [])
        if np.isfinite(r.score.accuracy):
            metrics[r.score.task].append(r.metric)
    for task in requested:
        if task not in metrics:
            raise InputError(f"--metric: no scores of task {task!r} in these files{did_you_mean(task, metrics)}")
    by_task = {task: _choose(task, list(dict.fromkeys(names)), requested.get(task)) for task, names in metrics.items()}
    chosen = [r for r in entries if r.metric == by_task[r.score.task] and np.isfinite(r.score.accuracy)]
    _refuse_without(entries, chosen, by_task)
    return chosen, {task: metric for task, metric in by_task.items() if metric}


def _refuse_without(entries: Sequence[ScoreEntry], chosen: Sequence[ScoreEntry], by_task: Mapping[str, str]) -> None:
    """Raise an error for a model without the chosen metric, instead of dropping it silently."""
    have = {(r.score.model, r.score.task) for r in chosen}
    for r in entries:
        if (r.score.model, r.score.task) not in have:
            metric = by_task[r.score.task]
            raise InputError(
                f"{r.where}: no metric {metric!r}, which the other files have for {r.score.task!r}; "
                f"choose one that all files have with --metric {r.score.task}=…"
            )


def _choose(task: str, names: Sequence[str], requested: str | None) -> str:
    if not names:
        raise InputError(f"{task}: no usable metric in these files; an accuracy is in 0..1 and higher is better")
    if requested is not None:
        if requested not in names:
            hint = did_you_mean(requested, names)
            raise InputError(f"{task}: no metric {requested!r}{hint}; found {', '.join(names)}")
        return requested
    quoted = next((q for name, q in QUOTED.items() if task.startswith(name)), ())
    for metric in (*quoted, *GENERAL):
        if metric in names:
            return metric
    if len(names) == 1:
        return names[0]
    raise InputError(f"{task}: which metric? found {', '.join(names)}; choose one with --metric {task}={names[0]}")


def chance_of(task: str) -> float:
    """Chance (0..1) of a subtask, by its name in a score file; an error if it is unknown."""
    for name, chance in BBH_TASKS.items():
        if task.endswith(name) and ("bbh" in task or task == name):
            return round(chance, 4)
    if FOUR_OPTIONS.search(task):
        return 0.25
    raise InputError(
        f"task {task!r}: its chance (the accuracy of random guessing) is unknown; add the task to study.toml, "
        "then import again"
    )
