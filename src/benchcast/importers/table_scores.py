"""Scores, tasks and metadata from the columns of a table of runs."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from benchcast.errors import InputError
from benchcast.importers.presets import find_preset, preset_tasks
from benchcast.importers.run_tables import PARAMS, TOKENS, ChosenColumns, RunTable, amounts, number_in
from benchcast.importers.scores.names import chance_of, match_tasks
from benchcast.messages import few
from benchcast.records import ModelInfo, NamedTexts, Score, Task
from benchcast.study.model_names import guessed_infos

NO_CHANCE: Mapping[str, float] = MappingProxyType({})
STEP_COLUMN = ("step", "globalstep")
BEST_KNOWN = ("olmes", "open-llm-leaderboard", "core")  # presets, in the order in which chance is looked up
PERCENT = 100.0


@dataclass(frozen=True, slots=True)
class ScoredTasks:
    """Tasks of a table with their scores."""

    tasks: tuple[Task, ...]
    scores: tuple[Score, ...]
    notes: tuple[str, ...]  # one line for each column that holds percentages


def scored_tasks(
    table: RunTable,
    chosen: ChosenColumns,
    names: Mapping[str, str],
    texts: NamedTexts,
    *,
    chance: Mapping[str, float],
    preset: str,
) -> ScoredTasks:
    """Tasks of the chosen columns of scores, or of a preset, and the scores of all rows.

    Parameters
    ----------
    table : the table
    chosen : its columns
    names : row → model in the study
    texts : the columns that are losses
    chance : task → accuracy of random guessing, as the user gave it
    preset : name of a suite; empty: none
    """
    suite = preset_tasks(preset, texts) if preset else []
    in_suite = match_tasks(chosen.scores.values(), [t.name for t in suite], {})
    task_of = {column: in_suite.get(task, task) for column, task in chosen.scores.items()}
    repeated = [task for task in set(task_of.values()) if list(task_of.values()).count(task) > 1]
    if repeated:
        both = [column for column, task in task_of.items() if task == repeated[0]]
        raise InputError(f"{table.where}: columns {few(both)} are both scores of {repeated[0]!r}; narrow --scores")
    unknown = [task for task in chance if task not in {*task_of.values(), *(t.name for t in suite)}]
    if unknown:
        tasks_are = f"the tasks are {few(sorted(task_of.values()), 8)}" if task_of else "--scores PATTERN makes tasks"
        raise InputError(f"--chance {unknown[0]}: no such task; {tasks_are}")
    others = [task for task in dict.fromkeys(task_of.values()) if task not in {t.name for t in suite}]
    tasks = [*suite, *(Task(task, known_chance(task, chance), answers=_answers(task, texts)) for task in others)]
    tasks = [replace(task, chance=chance.get(task.name, task.chance)) for task in tasks]
    scores, notes = [], []
    for column, task in task_of.items():
        of_column, note = _scores(table, column, task, names)
        scores += of_column
        notes += [note] if note else []
    return ScoredTasks(tasks=tuple(tasks), scores=tuple(scores), notes=tuple(notes))


def known_chance(task: str, given: Mapping[str, float]) -> float:
    """Chance of a task: as given, else that of a preset, else of a subtask of MMLU or BBH; an error if unknown."""
    if task in given:
        return given[task]
    for preset in BEST_KNOWN:
        known = {t.name: t.chance for t in find_preset(preset).tasks}
        matched = match_tasks([task], list(known), {})
        if matched:
            return known[matched[task]]
    try:
        return chance_of(task)
    except InputError as error:
        raise InputError(
            f"task {task!r}: its chance is unknown; give the accuracy of random guessing with --chance {task}=0.25 "
            "(0 for free answers)"
        ) from error


def _answers(task: str, texts: NamedTexts) -> tuple[str, ...]:
    """The losses whose name has the task as a part: `eval/arc_easy/loss` is one of arc_easy."""
    return tuple(t.id for t in texts if task.casefold() in re.split(r"[/. ]", t.id.casefold()))


def _scores(table: RunTable, column: str, task: str, names: Mapping[str, str]) -> tuple[list[Score], str]:
    """The scores of a column, and a line if they are percentages."""
    values = {row: number_in(cells[column]) for row, cells in table.rows.items() if column in cells}
    bad = next((row for row, value in values.items() if not 0 <= value <= PERCENT), None)
    if bad is not None:
        cell = table.rows[bad][column]
        raise InputError(
            f"{table.where}: {bad!r} has {cell!r} in {column!r}, which is no score from 0 to 1, or percent"
        )
    perfect = PERCENT if max(values.values(), default=0.0) > 1 else 1.0
    note = f"{column}: read as percent, since values lie above 1" if perfect == PERCENT else ""
    return [Score(names[row], task, value / perfect) for row, value in values.items()], note


def model_rows(table: RunTable, names: Mapping[str, str], tokens_per_step: float) -> list[ModelInfo]:
    """Rows of models.csv: families from names; parameters and tokens from their columns, else from names and steps."""
    params = {names[row]: value for row, value in amounts(table, PARAMS).items()}
    tokens = {names[row]: value for row, value in amounts(table, TOKENS).items()}
    steps = {names[row]: value for row, value in amounts(table, STEP_COLUMN).items()}
    infos = guessed_infos(names.values(), params=params, tokens_per_step=tokens_per_step)
    return [
        replace(info, tokens=tokens.get(info.model, _tokens(info, steps.get(info.model, math.nan), tokens_per_step)))
        for info in infos
    ]


def _tokens(info: ModelInfo, step: float, tokens_per_step: float) -> float:
    return step * tokens_per_step if math.isnan(info.tokens) else info.tokens
