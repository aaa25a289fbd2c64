"""Accuracy of random guessing on subtasks that harnesses report by name."""

from __future__ import annotations

import re

from benchcast.errors import InputError

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
