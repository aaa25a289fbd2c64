"""Tables 1 to 4 of the paper as printed.

What is odd in them stays, and is treated like this:
- Table 2 lists Yi-1.5-34B-Chat twice among the test models; it counts once.
- Table 2 has internlm2.5 chat-sft models, for which Tables 3 and 4 have no scores; they are left out.
- Tables 3 and 4 have gemma-2-2b-it and gemma-2-9b-it, which Table 2 puts nowhere; their split is empty,
  so they take no part in the paper's own split.
- Table 2 writes sizes in braces and other names than Tables 3 and 4; each cell is listed with the models
  it stands for, in the names of Tables 3 and 4.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass

TASKS = ("mmlu", "bbh", "gsm8k", "hellaswag", "ceval", "cmmlu")
PRINTED_TASK = {"ceval-test": "ceval"}


@dataclass(frozen=True, slots=True)
class TestMse:
    """One row of Table 1: mean squared error on the test models."""

    salience: float  # "CSV"
    all_token: float
    label_token: float


TABLE_1: dict[str, TestMse] = {
    "mmlu": TestMse(1.45e-3, 2.40e-2, 3.31e-2),
    "bbh": TestMse(2.26e-3, 5.81e-2, 8.27e-2),
    "gsm8k": TestMse(6.32e-3, 7.46e-2, 9.88e-2),
    "hellaswag": TestMse(4.49e-3, 3.15e-3, 3.33e-2),
    "ceval": TestMse(3.71e-3, 2.67e-2, 3.57e-2),
    "cmmlu": TestMse(3.32e-3, 2.69e-2, 3.67e-2),
}

Cell = tuple[str, tuple[str, ...]]  # as printed, and the models of Tables 3 and 4 it stands for

TABLE_2: dict[str, tuple[Cell, ...]] = {
    "train": (
        ("Llama-2-{7, 13}B", ("Llama-2-7b-hf", "Llama-2-13b-hf")),
        ("Llama-2-{7, 13}B-chat", ("Llama-2-7b-chat-hf", "Llama-2-13b-chat-hf")),
        ("Qwen1.5{1.8, 4, 7, 14}B", ("Qwen1.5-1.8B", "Qwen1.5-4B", "Qwen1.5-7B", "Qwen1.5-14B")),
        (
            "Qwen1.5{1.8, 4, 7, 14}B-chat",
            ("Qwen1.5-1.8B-Chat", "Qwen1.5-4B-Chat", "Qwen1.5-7B-Chat", "Qwen1.5-14B-Chat"),
        ),
        ("Llama3-8B", ("Meta-Llama-3-8B",)),
        ("Llama3-8B-Instruct", ("Meta-Llama-3-8B-Instruct",)),
        ("Qwen2{1.5, 7}B", ("Qwen2-1.5B", "Qwen2-7B")),
        ("Qwen2{1.5, 7}B-Instruct", ("Qwen2-1.5B-Instruct", "Qwen2-7B-Instruct")),
        ("Yi-{6}B", ("Yi-6B",)),
        ("Yi-{6}B-chat", ("Yi-6B-Chat",)),
        ("Yi1.5-{6, 9}B", ("Yi-1.5-6B", "Yi-1.5-9B")),
        ("Yi1.5-{6, 9}B-chat", ("Yi-1.5-6B-Chat", "Yi-1.5-9B-Chat")),
        ("Gemma2-2-{2, 9}B", ("gemma-2-2b", "gemma-2-9b")),
        ("internlm2-{1.8, 7}B", ("internlm2-1_8b", "internlm2-7b")),
        ("internlm2-{1.8, 7}B-chat", ("internlm2-chat-1_8b", "internlm2-chat-7b")),
        ("internlm2-{1.8, 7}B-chat-sft", ("internlm2-chat-1_8b-sft", "internlm2-chat-7b-sft")),
        ("internlm2.5-{1.8, 7}B", ("internlm2_5-1_8b", "internlm2_5-7b")),
        ("internlm2.5-{1.8, 7}B-chat", ("internlm2_5-1_8b-chat", "internlm2_5-7b-chat")),
        ("internlm2.5-{1.8, 7}B-chat-sft", ()),
    ),
    "validation": (
        ("Llama-2-70B", ("llama-2-70b-hf",)),
        ("Llama-2-70B-chat", ("Llama-2-70b-chat-hf",)),
        ("Qwen1.5-{32, 72}B", ("Qwen1.5-32B", "Qwen1.5-72B")),
        ("Qwen1.5-{32, 72}B-Chat", ("Qwen1.5-32B-Chat", "Qwen1.5-72B-Chat")),
        ("internlm2-chat-20B", ("internlm2-chat-20b",)),
        ("internlm2-20B", ("internlm2-20b",)),
        ("internlm2-chat-20B-sft", ("internlm2-chat-20b-sft",)),
        ("Yi-{34}B", ("Yi-34B",)),
        ("Yi-{34}B-chat", ("Yi-34B-Chat",)),
    ),
    "test": (
        ("Yi-1.5-34B", ("Yi-1.5-34B",)),
        ("Llama-3-70B", ("Meta-Llama-3-70B",)),
        ("Llama-3-70B-Instruct", ("Meta-Llama-3-70B-Instruct",)),
        ("Yi-1.5-34B-Chat", ("Yi-1.5-34B-Chat",)),
        ("gemma-2-27B", ("gemma-2-27b",)),
        ("gemma-2-27B-it", ("gemma-2-27b-it",)),
        ("Qwen2-72B", ("Qwen2-72B",)),
        ("Qwen2-72B-Instruct", ("Qwen2-72B-Instruct",)),
        ("internlm2_5-20B", ("internlm2_5-20b",)),
        ("internlm2_5-20B-chat", ("internlm2_5-20b-chat",)),
        ("Yi-1.5-34B-Chat", ("Yi-1.5-34B-Chat",)),
    ),
}

# Percentages, by OpenCompass.
TABLE_3 = """\
model,bbh,ceval-test,cmmlu,gsm8k,hellaswag,mmlu
Llama-2-7b-hf,38.27,30.13,32.75,16.76,29.29,46.78
Llama-2-13b-hf,45.68,37.38,38.81,29.87,45.06,55.76
llama-2-70b-hf,64.78,49.53,53.05,63.53,55.91,69.87
Qwen1.5-1.8B,27.01,58.67,57.45,34.87,42.32,47.14
Qwen1.5-4B,34.81,66.55,66.38,47.61,55.89,57.03
Qwen1.5-7B,39.87,72.49,71.86,54.36,68.51,62.15
Qwen1.5-14B,50.38,76.93,76.95,63.53,83.86,69.1
Qwen1.5-32B,67.47,82.5,81.58,72.71,87.28,73.88
Qwen1.5-72B,58.81,83.03,83,79.53,90.41,77.02
Qwen2-7B,54.28,82.22,83.67,73.77,73.74,70.27
Qwen2-72B,74.52,89,90.82,89.54,93.46,83.73
Yi-6B,44.82,70.78,74.01,39.58,66.83,64.08
Yi-34B,66.37,80.93,82.79,67.7,83.83,76.26
Yi-1.5-6B,57.55,66.93,69.68,61.33,70.79,64.88
Yi-1.5-9B,71.09,72.71,74.11,74.53,76.64,71.52
Yi-1.5-34B,75.06,82.24,83.55,79.98,84.92,77.7
Qwen1.5-1.8B-Chat,27.03,55.19,48.3,29.57,42.32,45.39
Qwen1.5-4B-Chat,43.19,61.37,58.22,46.02,60.74,56.01
Qwen1.5-7B-Chat,35.19,68.18,67.98,55.88,69.8,61.78
Qwen1.5-14B-Chat,55.58,74.67,75.29,64.82,80.03,68.08
Qwen1.5-32B-Chat,68.55,80.66,80.17,79.15,88.42,75.12
Qwen1.5-72B-Chat,71.73,81.37,82.15,79.68,88.99,77.1
Qwen2-7B-Instruct,64.56,82.11,80.84,87.29,78.57,70.68
Qwen2-72B-Instruct,82.07,87.02,89.88,92.42,93.7,82.73
Yi-6B-Chat,30.98,70.69,72.74,42.46,64.27,63.22
Yi-34B-Chat,60.47,78.58,80.33,72.71,78.69,73.91
Yi-1.5-6B-Chat,58.68,68.05,68.59,75.36,75.66,64.76
Yi-1.5-9B-Chat,69.61,73.19,74.51,79.23,83.14,71.35
Yi-1.5-34B-Chat,73.63,80.83,81.05,85.82,87.33,75.95
internlm2-1_8b,36.03,44.79,45.27,30.4,44.86,45.99
internlm2-7b,63.56,63.54,66.17,69.98,89.52,65.84
internlm2-20b,71.29,67.28,68.28,76.8,91.41,67.58
internlm2-chat-1_8b,37.31,47.06,46.19,39.2,59.71,47.72
internlm2-chat-1_8b-sft,38.23,47.21,46.17,37.83,60.86,47.7
internlm2-chat-7b,59.96,58.85,62.66,72.1,84.44,63.51
internlm2-chat-7b-sft,59.35,58.99,62.57,70.51,85.01,63.51
internlm2-chat-20b,69.53,63.03,65.85,76.19,88.16,67.36
internlm2-chat-20b-sft,69.31,63.2,66.04,77.03,88.68,67.28
internlm2_5-1_8b-chat,42.58,61.25,62.3,53.3,49.97,50.98
internlm2_5-7b,72.64,77.21,78.95,74.83,73.49,71.5
internlm2_5-7b-chat,74.8,77.38,78.04,84,67.74,71.82
internlm2_5-20b-chat,79.77,79.75,79.18,88.1,66.53,72.49
internlm2_5-1_8b,42.65,63.97,65.5,38.82,56.64,53.44
internlm2_5-20b,79.83,81.94,82.25,82.64,79.35,74.2
"""

TABLE_4 = """\
model,bbh,ceval-test,cmmlu,gsm8k,hellaswag,mmlu
Meta-Llama-3-8B,59.69,48.83,50.95,54.28,50.86,66.43
Meta-Llama-3-70B,79.16,66.56,68.36,69.98,80.6,79.35
Llama-2-7b-chat-hf,41.51,30.2,32.62,28.13,48.94,44.56
Llama-2-13b-chat-hf,49.61,33.76,37.01,42.08,61.43,52.1
Meta-Llama-3-8B-Instruct,52.5,49.93,51.89,79.3,73.29,67.16
Meta-Llama-3-70B-Instruct,80.45,66.91,70.11,90.22,87.72,80.52
gemma-2-2b-it,46.44,41.82,44.86,55.65,62.43,58.39
gemma-2-9b-it,75.07,57.32,59.49,86.66,70.29,73.14
gemma-2-27b-it,80.05,61.71,62.5,89.99,75.96,76.45
gemma-2-27b,74.77,60.84,61.53,80.97,75.55,75.97
gemma-2-2b,42.12,39.44,39.31,33.51,65.91,54.35
gemma-2-9b,70.63,57.63,59.02,72.86,72.93,72.44
Llama-2-70b-chat-hf,59.94,32.21,43.07,60.65,74.18,59.93
Qwen2-1.5B-Instruct,38.31,68.27,68.12,63.53,55.38,55.73
Qwen2-1.5B,35.75,69.32,70.58,59.06,46.76,57.45
"""


def scores() -> dict[str, dict[str, float]]:
    """Model → task → accuracy in 0..1, of Tables 3 and 4."""
    scores = {}
    for table in (TABLE_3, TABLE_4):
        for row in csv.DictReader(table.splitlines()):
            cells = {PRINTED_TASK.get(task, task): cell for task, cell in row.items() if task != "model"}
            scores[row["model"]] = {task: round(float(cells[task]) / 100, 6) for task in TASKS}
    return scores


def split() -> dict[str, str]:
    """Model → train, validation or test, of Table 2."""
    return {m: role for role, cells in TABLE_2.items() for _, models in cells for m in models}
