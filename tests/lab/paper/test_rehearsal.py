"""The plan that reproduces Table 1, carried out on a CPU with tiny models under the names of 12 of the 59."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import benchcast as bc
from benchcast.methods import METHODS
from benchcast.study.study import Study
from lab.paper.models import hub_ids
from lab.paper.tables import TASKS, scores

pytestmark = pytest.mark.slow

Run = Callable[..., tuple[int, str, str]]
# Of each publisher and each part of the split; the scorer, and the model whose name is printed in lower case.
CARRIED_OUT = (
    "Llama-2-7b-hf", "Llama-2-13b-hf", "llama-2-70b-hf", "Meta-Llama-3-70B", "Qwen1.5-1.8B", "Qwen1.5-7B", "Qwen2-72B",
    "Yi-6B", "Yi-34B", "gemma-2-2b", "internlm2_5-1_8b", "internlm2_5-7b",
)  # fmt: skip
RECORDER = """#!/bin/sh
for word in "$@"; do printf '%s\\n' "$word"; done >> "$RECORD"
echo --end-- >> "$RECORD"
"""


def calls_of(script: Path, place: Path) -> list[list[str]]:
    """What a script calls benchcast with: a shell runs it, and something of that name writes the words down."""
    place.mkdir()
    (place / "benchcast").write_text(RECORDER, encoding="utf-8")
    (place / "benchcast").chmod(0o755)
    path = f"{place}{os.pathsep}{os.environ['PATH']}"
    settings = {**os.environ, "PATH": path, "RECORD": str(place / "said"), "WEIGHTS": "stand-ins/"}
    subprocess.run(["sh", str(script)], env=settings, cwd=place, check=True)
    said = (place / "said").read_text(encoding="utf-8")
    return [call.splitlines() for call in said.split("--end--\n")[:-1]]


@dataclass(frozen=True)
class Rehearsal:
    """A plan's folder when all is done, what its script calls, and what each command that was run printed."""

    root: Path
    calls: list[list[str]]
    printed: dict[str, str]


def name_of(words: list[str]) -> str:
    return words[words.index("--name") + 1]


@pytest.fixture(scope="module")
def rehearsal(written: Path, tmp_path_factory: pytest.TempPathFactory, cli: Run, lab: Run) -> Rehearsal:
    pytest.importorskip("transformers", reason="losses are collected with transformers")
    root = tmp_path_factory.mktemp("rehearsal") / "plan"
    code, out, _ = lab("plan", root, "--data", written, "--model", "hf", "--stand-ins")
    assert code == 0
    assert f"next: WEIGHTS=stand-ins/ sh {root / 'commands.sh'}" in out
    calls, printed = calls_of(root / "commands.sh", root.parent / "bin"), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.chdir(root)
        for words in calls:
            if words[0] == "collect" and name_of(words) not in CARRIED_OUT:
                continue
            code, out, err = cli(*words)
            assert code == 0, (words, err)
            printed[" ".join(words)] = out
    return Rehearsal(root, calls, printed)


def test_the_script_collects_all_59_models_from_their_stand_ins(rehearsal: Rehearsal) -> None:
    calls = {name_of(words): words for words in rehearsal.calls if words[0] == "collect"}
    assert sorted(calls) == sorted(scores())
    for model, hub_id in hub_ids().items():
        assert f"pretrained=stand-ins/{hub_id}," in calls[model][calls[model].index("--model_args") + 1]
        assert (rehearsal.root / "stand-ins" / hub_id / "model.safetensors").is_file()


def test_losses_say_that_they_come_from_stand_ins(rehearsal: Rehearsal) -> None:
    study = Study.open(rehearsal.root / "study")
    assert sorted(study.models_with_losses()) == sorted(CARRIED_OUT)
    asked = pq.read_schema(study.losses_path("Yi-6B")).metadata[b"asked"].decode()
    assert asked == "pretrained=stand-ins/01-ai/Yi-6B,dtype=bfloat16"


def test_it_ends_in_forecasts_of_every_method_on_the_papers_split(rehearsal: Rehearsal) -> None:
    """Two models are held out, too few to print measures; the comparison has the forecasts themselves."""
    printed = rehearsal.printed["compare study --split column"]
    assert all(f"{task}: 2 held-out models, too few to measure methods" in printed for task in TASKS)
    comparison = bc.compare(rehearsal.root / "study", split="column", methods="all")
    errors = {
        task: {
            method: float(((held.forecast - held.observed) ** 2).mean())
            for method in comparison.methods
            for held in [comparison.held_out[task, method]]
        }
        for task in comparison.tasks
    }
    assert set(errors) == set(TASKS)
    ratios = []
    for error in errors.values():
        assert set(METHODS) <= set(error)
        assert {m for m in error if np.isnan(error[m])} <= {"two-step"}, "tiny stand-ins do not follow their sizes"
        assert error["salience"] < 0.5 * error["constant"]
        ratios.append(error["paper"] / error["constant"])
    assert np.exp(np.mean(np.log(ratios))) < 0.3, "eight training models are few, so over all tasks"
    fitted = rehearsal.printed["fit study --method paper --split column"]
    assert all(f"{task}: paper, 8 training models" in fitted for task in TASKS)
