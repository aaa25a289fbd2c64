"""The plan that reproduces Table 1, carried out on a CPU with tiny models under the names of 12 of the 59."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from benchcast.methods import METHODS
from benchcast.store import Study
from lab.paper.models import hub_ids, paper_models
from lab.paper.plan import write_plan
from lab.paper.standins import PIECES, letters, tokenizer
from lab.paper.tables import TASKS, scores

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


def calls_of(script: Path, place: Path, **more: str) -> list[list[str]]:
    """What a script calls benchcast with: a shell runs it, and something of that name writes the words down."""
    place.mkdir()
    (place / "benchcast").write_text(RECORDER, encoding="utf-8")
    (place / "benchcast").chmod(0o755)
    path = f"{place}{os.pathsep}{os.environ['PATH']}"
    settings = {**os.environ, "PATH": path, "RECORD": str(place / "said"), "WEIGHTS": "stand-ins/", **more}
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


def test_models_are_collected_under_their_names(rehearsal: Rehearsal) -> None:
    study = Study.open(rehearsal.root / "study")
    assert sorted(study.models_with_losses()) == sorted(CARRIED_OUT)
    assert {m.model: (m.family, m.split) for m in study.models()} == {
        m.model: (m.family, m.split) for m in paper_models()
    }


def test_losses_say_that_they_come_from_stand_ins(rehearsal: Rehearsal, cli: Run) -> None:
    """So they are never taken for those of the real model: collecting that one into the same study is refused."""
    study = Study.open(rehearsal.root / "study")
    asked = pq.read_schema(study.losses_path("Yi-6B")).metadata[b"asked"].decode()
    assert asked == "pretrained=stand-ins/01-ai/Yi-6B,dtype=bfloat16"
    real = "pretrained=01-ai/Yi-6B,dtype=bfloat16"
    code, _, err = cli("collect", study.root, "--model", "hf", "--model_args", real, "--name", "Yi-6B")
    assert code == 1
    assert "model 'Yi-6B' has losses from hf pretrained=stand-ins/01-ai/Yi-6B" in err


def test_two_tokenizers_are_regrouped_onto_the_scorers(rehearsal: Rehearsal) -> None:
    study = Study.open(rehearsal.root / "study")
    assert study.scorers() == ["internlm2_5-1_8b"]
    counts = {m: int(study.losses(m).counts.sum()) for m in ("Yi-6B", "Llama-2-7b-hf", "internlm2_5-1_8b")}
    assert counts["Yi-6B"] < counts["Llama-2-7b-hf"] == counts["internlm2_5-1_8b"]
    assert study.dataset().reference_tokens.supported.all()


def test_loss_falls_with_the_printed_scores(rehearsal: Rehearsal) -> None:
    """Of the models that share a tokenizer: the truth that the forecasts below can find."""
    study = Study.open(rehearsal.root / "study")
    names = [m for m, name in hub_ids().items() if m in CARRIED_OUT and not name.startswith(("Qwen", "01-ai"))]
    total = [study.losses(m).nats.sum() for m in names]
    mean = [np.mean([scores()[m][t] for t in TASKS]) for m in names]
    assert np.corrcoef(total, mean)[0, 1] < -0.9


def printed_errors(table: str) -> dict[str, dict[str, float]]:
    """Of each task the error of each method, from blocks of columns that each start with a row of tasks."""
    errors: dict[str, dict[str, float]] = {}
    for block in table.split("* least error")[0].split("method ")[1:]:
        header, *rows = block.splitlines()
        for name, *cells in (row.split() for row in rows if row and not row.startswith("noise floor")):
            for task, cell in zip(header.split(), cells, strict=True):
                errors.setdefault(task, {})[name] = np.nan if cell == "–" else float(cell.removeprefix("*"))
    return errors


def test_it_ends_in_a_table_of_every_method_on_the_papers_split(rehearsal: Rehearsal) -> None:
    table = rehearsal.printed["compare study --split column"]
    assert "split by column, 2 held-out models" in table
    errors = printed_errors(table)
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


def test_a_plan_without_files_finds_them_from_where_it_is_called(tmp_path: Path) -> None:
    write_plan(tmp_path / "plan", None)
    (tmp_path / "benchmarks").mkdir()
    script, place = tmp_path / "plan" / "commands.sh", tmp_path / "bin"
    first = calls_of(script, place, BENCHMARKS="../benchmarks", WEIGHTS="")[0]
    assert first[:2] == ["init", "study"]
    assert first[first.index("--data") + 1] == str(tmp_path / "benchmarks")
    assert subprocess.run(["sh", str(script)], capture_output=True, check=False).returncode != 0


def test_a_tokenizer_of_stand_ins_covers_every_byte() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    assert len(set(letters())) == 256
    text = "the 江南 é\n\x00\t7+5"
    for merging in (False, True):
        tokenizer_object = tokenizers.Tokenizer.from_str(json.dumps(tokenizer(merging=merging)))
        ids = tokenizer_object.encode(text, add_special_tokens=False).ids
        assert b"".join(PIECES[i] for i in ids) == text.encode()
        assert (len(ids) < len(text.encode())) == merging
