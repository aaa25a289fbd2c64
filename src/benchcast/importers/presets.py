"""Tasks of well-known suites with their chance, metric and aggregate: `init --preset`.

core: the 22 tasks of DataComp-LM and their centred mean; the random baselines are those of its evaluation, where that
of BoolQ is the share of its more frequent answer. olmes: the ten multiple-choice tasks of OLMES and their mean.
open-llm-leaderboard: the six benchmarks of version 2 and their centred mean; chance of BBH and MuSR is the mean over
their parts, so the mean differs slightly from that of the leaderboard, which centres each part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from benchcast.errors import InputError
from benchcast.importers.scores.names import BBH_TASKS, match_tasks, plain
from benchcast.messages import did_you_mean
from benchcast.records import NamedTexts, Task, TextSet

CORE: Mapping[str, float] = {
    "hellaswag_zeroshot": 0.25,
    "jeopardy": 0.0,
    "bigbench_qa_wikidata": 0.0,
    "arc_easy": 0.25,
    "arc_challenge": 0.25,
    "copa": 0.5,
    "commonsense_qa": 0.2,
    "piqa": 0.5,
    "openbook_qa": 0.25,
    "lambada_openai": 0.0,
    "hellaswag": 0.25,
    "winograd": 0.5,
    "winogrande": 0.5,
    "bigbench_dyck_languages": 0.0,
    "agi_eval_lsat_ar": 0.2,
    "bigbench_cs_algorithms": 0.0,
    "bigbench_operators": 0.0,
    "bigbench_repeat_copy_logic": 0.0,
    "squad": 0.0,
    "coqa": 0.0,
    "boolq": 0.62,
    "bigbench_language_identification": 0.091,
}
# Task → chance and metric of lm-evaluation-harness.
OLMES: Mapping[str, tuple[float, str]] = {
    "arc_challenge": (0.25, "acc_norm"),
    "arc_easy": (0.25, "acc_norm"),
    "boolq": (0.5, "acc"),
    "csqa": (0.2, "acc"),
    "hellaswag": (0.25, "acc_norm"),
    "mmlu": (0.25, "acc"),
    "openbookqa": (0.25, "acc_norm"),
    "piqa": (0.5, "acc_norm"),
    "socialiqa": (round(1 / 3, 4), "acc"),
    "winogrande": (0.5, "acc"),
}
NOT_ON_LEADERBOARD = ("dyck_languages", "multistep_arithmetic_two", "word_sorting")
BBH = [chance for task, chance in BBH_TASKS.items() if task not in NOT_ON_LEADERBOARD]
LEADERBOARD: Mapping[str, tuple[float, str]] = {
    "ifeval": (0.0, "prompt_level_strict_acc"),
    "bbh": (round(sum(BBH) / len(BBH), 4), "acc_norm"),
    "math_lvl_5": (0.0, "exact_match"),
    "gpqa": (0.25, "acc_norm"),
    "musr": (round((1 / 2 + 1 / 5 + 1 / 3) / 3, 4), "acc_norm"),
    "mmlu_pro": (0.1, "acc"),
}


@dataclass(frozen=True, slots=True)
class Preset:
    """A suite: its tasks without texts, and the aggregate of all of them."""

    tasks: tuple[Task, ...]
    aggregate: Task


def _preset(aggregate: str, tasks: Sequence[Task], *, centred: bool) -> Preset:
    chance = 0.0 if centred else round(sum(t.chance for t in tasks) / len(tasks), 4)
    mean = Task(aggregate, chance, members=tuple(t.name for t in tasks), centred=centred)
    return Preset(tuple(tasks), mean)


def _with_metrics(suite: Mapping[str, tuple[float, str]]) -> list[Task]:
    return [Task(name, chance, metric=metric) for name, (chance, metric) in suite.items()]


PRESETS: Mapping[str, Preset] = {
    "core": _preset("core", [Task(name, chance) for name, chance in CORE.items()], centred=True),
    "olmes": _preset("olmes", _with_metrics(OLMES), centred=False),
    "open-llm-leaderboard": _preset("open-llm-leaderboard", _with_metrics(LEADERBOARD), centred=True),
}


def find_preset(name: str) -> Preset:
    """A preset by its name."""
    if name not in PRESETS:
        raise InputError(f"unknown preset {name!r}; known: {', '.join(PRESETS)}{did_you_mean(name, PRESETS)}")
    return PRESETS[name]


def preset_tasks(name: str, texts: TextSet) -> list[Task]:
    """Tasks of a preset for these texts: a task has the sources, or columns of a table, that are named like it."""
    preset = find_preset(name)
    tasks = []
    for task in preset.tasks:
        if isinstance(texts, NamedTexts):
            columns = tuple(t.id for t in texts if plain(t.id.rpartition(".")[2]) == plain(task.name))
            tasks.append(replace(task, answers=columns))
        else:
            tasks.append(replace(task, sources=tuple(match_tasks(texts.sources, [task.name], {}))))
    sources, answers = ([x for t in tasks for x in getattr(t, key)] for key in ("sources", "answers"))
    return [*tasks, replace(preset.aggregate, sources=tuple(sources), answers=tuple(answers))]


def logged_tasks(name: str, logged: Sequence[Task]) -> tuple[list[Task], list[str]]:
    """Tasks of a preset that evaluation logs hold, with the texts of the logs; and notes on what is missing.

    The aggregate is there only if all of its members are. Chance and metric are those of the preset.
    """
    preset = find_preset(name)
    known = {t.name: t for t in logged}
    matched = {ours: theirs for theirs, ours in match_tasks(known, [t.name for t in preset.tasks], {}).items()}
    tasks = [replace(t, sources=known[matched[t.name]].sources) for t in preset.tasks if t.name in matched]
    if not tasks:
        raise InputError(f"preset {name}: none of its tasks is in the logs, which hold {', '.join(list(known)[:6])}")
    missing = [t.name for t in preset.tasks if t.name not in matched]
    if missing:
        some = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        return tasks, [f"{preset.aggregate.name}: not added, since the logs lack {some}"]
    sources = tuple(dict.fromkeys(s for t in tasks for s in t.sources))
    return [*tasks, replace(preset.aggregate, sources=sources)], []
