"""Read and create study.toml. Users edit it by hand, so every key is checked and existing text is kept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchcast.errors import StudyError, one_line
from benchcast.messages import brief, refuse_unknown
from benchcast.records import NamedTexts, Task, TextSet
from benchcast.study.reading import parse_toml

FORMAT = 1
LARGEST_SEED = 2**63
KEYS = ("format", "seed", "scorer", "items", "tasks")
GONE = "signals"  # a key of older versions that is ignored
TASK_KEYS = ("chance", "sources", "answers", "choices", "metric", "members", "centred")


@dataclass(frozen=True, slots=True)
class StudySettings:
    """The content of study.toml."""

    seed: int
    scorer: str  # name of the features to use; empty to use the only ones
    tasks: tuple[Task, ...]
    items: float = 1.0  # share of the items of evaluation logs that are texts; scores are of the others
    note: str = ""  # one line on a key that is ignored


def read_settings(settings: Path) -> StudySettings:
    """Read study.toml and check its format version and keys."""
    if not settings.is_file():
        raise StudyError(f"{settings.parent}: no study here (no study.toml); make one with `benchcast init`")
    try:
        table = parse_toml(settings.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # a number with thousands of digits is a ValueError too
        raise StudyError(f"{settings}: not valid TOML ({one_line(error)})") from error
    if table.get("format") != FORMAT:
        newer = isinstance(table.get("format"), int) and table["format"] > FORMAT
        hint = "made by a newer benchcast; upgrade" if newer else "is `format = 1` missing?"
        raise StudyError(f"{settings}: format {brief(table.get('format'))}, this version reads {FORMAT}: {hint}")
    note = f"{settings}: `{GONE}` is ignored: fits read losses only; the line can go" if GONE in table else ""
    table.pop(GONE, None)
    refuse_unknown(table, KEYS, f"{settings}: unknown key", of=StudyError)
    for key, kind in (("seed", int), ("scorer", str), ("tasks", dict)):
        if key in table and not isinstance(table[key], kind):
            raise StudyError(f"{settings}: {key} must be a {kind.__name__}, found {brief(table[key])}")
    if not 0 <= table.get("seed", 0) < LARGEST_SEED:
        raise StudyError(f"{settings}: seed must be from 0 to below 2^63, found {brief(table['seed'])}")
    items = table.get("items", 1.0)
    if not isinstance(items, (int, float)) or isinstance(items, bool) or not 0 < items <= 1:
        raise StudyError(f"{settings}: items = {brief(items)}; it must be a number above 0 and at most 1")
    bodies = {name: _checked(settings, name, body) for name, body in table.get("tasks", {}).items()}
    alone = {name: _task(settings, name, body) for name, body in bodies.items() if "members" not in body}
    tasks = tuple(alone.get(name) or _aggregate(settings, name, body, alone) for name, body in bodies.items())
    return StudySettings(
        seed=table.get("seed", 0), scorer=table.get("scorer", ""), tasks=tasks, items=float(items), note=note
    )


def _checked(path: Path, name: str, body: Any) -> dict[str, Any]:
    """The table of a task, after a check of its keys."""
    if not name.strip():
        raise StudyError(f"{path}: a task needs a name, found [tasks.{json.dumps(name)}]")
    if not isinstance(body, dict):
        raise StudyError(f"{path}: [tasks.{name}] must be a table")
    refuse_unknown(body, TASK_KEYS, f"{path}: unknown key in [tasks.{name}]:", of=StudyError)
    for key, kind in (("metric", str), ("centred", bool)):
        if not isinstance(body.get(key, kind()), kind):
            raise StudyError(f"{path}: [tasks.{name}] {key} = {brief(body[key])}; it must be a {kind.__name__}")
    if "centred" in body and "members" not in body:
        raise StudyError(f"{path}: [tasks.{name}] centred is for a task with members")
    return body


def _task(path: Path, name: str, body: dict[str, Any]) -> Task:
    chance, answers = body.get("chance", 0.0), body.get("answers", [])
    sources = body.get("sources", [] if answers or "choices" in body else [name])
    if not isinstance(chance, (int, float)) or isinstance(chance, bool) or not 0 <= chance < 1:
        raise StudyError(f"{path}: [tasks.{name}] chance = {brief(chance)}; it must be a number from 0 to below 1")
    choices = body.get("choices", [])
    for key, names in (("sources", sources), ("answers", answers), ("choices", choices)):
        if not isinstance(names, list) or not all(isinstance(s, str) for s in names):
            raise StudyError(f"{path}: [tasks.{name}] {key} must be a list of names")
    return Task(
        name, float(chance), tuple(sources), tuple(answers), metric=body.get("metric", ""), choices=tuple(choices)
    )


def _aggregate(path: Path, name: str, body: dict[str, Any], alone: dict[str, Task]) -> Task:
    """A task that is the mean of others; it has their texts, and their mean chance, or 0 if that is taken out."""
    members = body["members"]
    if not isinstance(members, list) or len(members) < 2 or not all(isinstance(m, str) for m in members):
        raise StudyError(f"{path}: [tasks.{name}] members must be a list of at least two tasks")
    for member in members:
        if member not in alone or members.count(member) > 1:
            why = "occurs twice" if member in alone else "is not a task of this file that has no members itself"
            raise StudyError(f"{path}: [tasks.{name}] member {member!r} {why}")
    member_tasks, centred = [alone[m] for m in members], body.get("centred", False)
    defaults = {
        "chance": 0.0 if centred else sum(t.chance for t in member_tasks) / len(member_tasks),
        "sources": [*dict.fromkeys(s for t in member_tasks for s in t.sources)],
        "answers": [*dict.fromkeys(a for t in member_tasks for a in t.answers)],
        "choices": [*dict.fromkeys(c for t in member_tasks for c in t.choices)],
    }
    return replace(_task(path, name, defaults | body), members=tuple(members), centred=centred)


def _quoted(text: str) -> str:
    """A TOML string: a JSON string without surrogate escapes and with the delete character escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def settings_toml(texts: TextSet, tasks: Sequence[Task], *, seed: int, items: float = 1.0) -> str:
    """The content of a new study.toml; without tasks it contains commented examples."""
    share = f"items = {items}  # share of the items that are texts; scores are of the others\n" if items < 1 else ""
    head = f"format = {FORMAT}\nseed = {seed}\n{share}\n"
    if tasks:
        return head + tasks_toml(tasks)
    what = "the sources of the texts that belong to it"
    if isinstance(texts, NamedTexts):
        what = "the columns that are losses of its correct answers (none: answers = [])"
    lines = [f"# {line}" if line else "" for line in tasks_toml(example_tasks(texts)).split("\n")]
    return head + f"# One table for each task: the accuracy of random guessing, and {what}.\n\n" + "\n".join(lines)


def example_tasks(texts: TextSet) -> list[Task]:
    """Tasks that a new study could have: one for each source, or one on the first column of a table."""
    if isinstance(texts, NamedTexts):
        return [Task("benchmark", 0.25, (), (texts.texts[0].id,))]
    return [Task(source, 0.0, (source,)) for source in texts.sources]


def tasks_toml(tasks: Sequence[Task]) -> str:
    """TOML tables of tasks."""
    return "\n".join(
        f"[tasks.{_quoted(task.name)}]\nchance = {task.chance}\nsources = {_listed(task.sources)}\n"
        + (f"answers = {_listed(task.answers)}\n" if task.answers else "")
        + (f"choices = {_listed(task.choices)}\n" if task.choices else "")
        + (f"metric = {_quoted(task.metric)}\n" if task.metric else "")
        + (f"members = {_listed(task.members)}\n" if task.members else "")
        + ("centred = true\n" if task.centred else "")
        for task in tasks
    )


def _listed(names: Sequence[str]) -> str:
    return f"[{', '.join(map(_quoted, names))}]"
