"""The 59 models of Tables 3 and 4: hub id, family, parameters and training tokens.

Base, chat and chat-sft models of one series are families apart: a size is then one model, and a family's
sizes are all of one kind. Parameters are those of the published weights; tests/paper counts them again from
the models' shapes. Tokens are what the makers state, in the place that TOKENS_FROM names; chat models count
their base model's. NaN where they state none for the size: Qwen1.5-32B ("cannot say"), Yi-1.5-9B (500B tokens
after a model that itself went on from Yi), InternLM2 (2.0 to 2.6 trillion over three sizes), InternLM2.5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from benchcast.importers.mixture import PAPER_MIX, tasks_of
from benchcast.records import ModelInfo, Score, Task
from lab.paper.tables import scores, split

HARNESS = "opencompass"
B, T = 1e9, 1e12


@dataclass(frozen=True, slots=True)
class Series:
    """Models of one kind: name → size in billions of parameters, trillions of tokens."""

    family: str
    publisher: str
    sizes: dict[str, tuple[float, float]]


UNKNOWN = math.nan
SERIES = (
    Series("Llama-2", "meta-llama", {
        "Llama-2-7b-hf": (6.74, 2), "Llama-2-13b-hf": (13.02, 2), "llama-2-70b-hf": (68.98, 2)}),
    Series("Llama-2-chat", "meta-llama", {
        "Llama-2-7b-chat-hf": (6.74, 2), "Llama-2-13b-chat-hf": (13.02, 2), "Llama-2-70b-chat-hf": (68.98, 2)}),
    Series("Llama-3", "meta-llama", {"Meta-Llama-3-8B": (8.03, 15), "Meta-Llama-3-70B": (70.55, 15)}),
    Series("Llama-3-Instruct", "meta-llama", {
        "Meta-Llama-3-8B-Instruct": (8.03, 15), "Meta-Llama-3-70B-Instruct": (70.55, 15)}),
    Series("Qwen1.5", "Qwen", {
        "Qwen1.5-1.8B": (1.84, 2.4), "Qwen1.5-4B": (3.95, 2.4), "Qwen1.5-7B": (7.72, 4),
        "Qwen1.5-14B": (14.17, 4), "Qwen1.5-32B": (32.51, UNKNOWN), "Qwen1.5-72B": (72.29, 3)}),
    Series("Qwen1.5-Chat", "Qwen", {
        "Qwen1.5-1.8B-Chat": (1.84, 2.4), "Qwen1.5-4B-Chat": (3.95, 2.4), "Qwen1.5-7B-Chat": (7.72, 4),
        "Qwen1.5-14B-Chat": (14.17, 4), "Qwen1.5-32B-Chat": (32.51, UNKNOWN), "Qwen1.5-72B-Chat": (72.29, 3)}),
    Series("Qwen2", "Qwen", {"Qwen2-1.5B": (1.54, 7), "Qwen2-7B": (7.62, 7), "Qwen2-72B": (72.71, 7)}),
    Series("Qwen2-Instruct", "Qwen", {
        "Qwen2-1.5B-Instruct": (1.54, 7), "Qwen2-7B-Instruct": (7.62, 7), "Qwen2-72B-Instruct": (72.71, 7)}),
    Series("Yi", "01-ai", {"Yi-6B": (6.06, 3.1), "Yi-34B": (34.39, 3.1)}),
    Series("Yi-Chat", "01-ai", {"Yi-6B-Chat": (6.06, 3.1), "Yi-34B-Chat": (34.39, 3.1)}),
    Series("Yi-1.5", "01-ai", {"Yi-1.5-6B": (6.06, 3.6), "Yi-1.5-9B": (8.83, UNKNOWN), "Yi-1.5-34B": (34.39, 3.6)}),
    Series("Yi-1.5-Chat", "01-ai", {
        "Yi-1.5-6B-Chat": (6.06, 3.6), "Yi-1.5-9B-Chat": (8.83, UNKNOWN), "Yi-1.5-34B-Chat": (34.39, 3.6)}),
    Series("gemma-2", "google", {"gemma-2-2b": (2.61, 2), "gemma-2-9b": (9.24, 8), "gemma-2-27b": (27.23, 13)}),
    Series("gemma-2-it", "google", {
        "gemma-2-2b-it": (2.61, 2), "gemma-2-9b-it": (9.24, 8), "gemma-2-27b-it": (27.23, 13)}),
    Series("internlm2", "internlm", {
        "internlm2-1_8b": (1.89, UNKNOWN), "internlm2-7b": (7.74, UNKNOWN), "internlm2-20b": (19.86, UNKNOWN)}),
    Series("internlm2-chat", "internlm", {
        "internlm2-chat-1_8b": (1.89, UNKNOWN), "internlm2-chat-7b": (7.74, UNKNOWN),
        "internlm2-chat-20b": (19.86, UNKNOWN)}),
    Series("internlm2-chat-sft", "internlm", {
        "internlm2-chat-1_8b-sft": (1.89, UNKNOWN), "internlm2-chat-7b-sft": (7.74, UNKNOWN),
        "internlm2-chat-20b-sft": (19.86, UNKNOWN)}),
    Series("internlm2_5", "internlm", {
        "internlm2_5-1_8b": (1.89, UNKNOWN), "internlm2_5-7b": (7.74, UNKNOWN), "internlm2_5-20b": (19.86, UNKNOWN)}),
    Series("internlm2_5-chat", "internlm", {
        "internlm2_5-1_8b-chat": (1.89, UNKNOWN), "internlm2_5-7b-chat": (7.74, UNKNOWN),
        "internlm2_5-20b-chat": (19.86, UNKNOWN)}),
)  # fmt: skip
TOKENS_FROM = {  # by the start of the family's name
    "Llama-2": "model card: 2.0T for every size",
    "Llama-3": "model card: 15T+ for both sizes",
    "Qwen1.5": "github.com/QwenLM/Qwen3/issues/97: 2.4, 2.4, 4, 4 and 3T; /issues/450: none for 32B",
    "Qwen2": "arXiv 2407.10671, table of architectures: 7T for 1.5B, 7B and 72B",
    "Yi": "arXiv 2403.04652: 3.1T",
    "Yi-1.5": "github.com/01-ai/Yi-1.5, README: 500B more than Yi",
    "gemma-2": "arXiv 2408.00118: 2T, 8T and 13T",
}
HUB_NAME = {"llama-2-70b-hf": "Llama-2-70b-hf"}  # printed in lower case in Table 3
SCORER = "internlm/internlm2_5-1_8b"


def hub_ids() -> dict[str, str]:
    """Model → its id on the Hugging Face hub."""
    return {m: f"{s.publisher}/{HUB_NAME.get(m, m)}" for s in SERIES for m in s.sizes}


def paper_models() -> list[ModelInfo]:
    """All 59 models with family, size, tokens and the split of Table 2 (empty where it has none)."""
    role = split()
    return [
        ModelInfo(m, s.family, round(params * B), tokens * T, split=role.get(m, ""))
        for s in SERIES
        for m, (params, tokens) in s.sizes.items()
    ]


def paper_tasks() -> tuple[Task, ...]:
    """The six tasks with their chance, and sources as in the paper's mixture."""
    return tasks_of(PAPER_MIX)


def paper_scores() -> list[Score]:
    """Tables 3 and 4 as score rows."""
    return [
        Score(model, task, accuracy, harness=HARNESS)
        for model, row in scores().items()
        for task, accuracy in row.items()
    ]
