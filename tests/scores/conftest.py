"""A study to import into, and the files to import."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchcast.records import ModelInfo, Task, Text, TextSet
from benchcast.study.study import Study

Run = Callable[..., tuple[int, str, str]]
TASKS = {"mmlu": 0.25, "bbh": 0.257, "gsm8k": 0.0, "hellaswag": 0.25, "ceval": 0.25, "pond": 0.25, "pond_sums": 0.0}


@pytest.fixture
def study(tmp_path: Path) -> Study:
    texts = TextSet.of([Text("a", "mmlu", "one"), Text("b", "gsm8k", "two")])
    study = Study.create(tmp_path / "s", texts, tasks=[Task(n, c, (n,)) for n, c in TASKS.items()])
    study.add_models([ModelInfo("Llama-2-7b-hf"), ModelInfo("qwen-7b"), ModelInfo("reed-7k")])
    return study


@pytest.fixture
def fixtures() -> Path:
    return Path(__file__).parent / "fixtures"


@pytest.fixture
def run(cli: Run, study: Study) -> Run:
    """`benchcast import scores STUDY …`: exit status, stdout, stderr."""
    return lambda *words: cli("import", "scores", study.root, *words)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    def call(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return call
