"""The files that examples in docstrings name: `study`, `texts.jsonl`, `my-7b.jsonl`, `checkpoint` and others."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np

import benchcast as bc
from benchcast.study.study import Study
from benchmark_files import write_benchmarks
from synthetic import Plan, make_world

FAMILIES, TASKS = ("ash", "birch", "elm", "oak"), ("facts", "code")
LOGS = Path(__file__).parents[1] / "logs" / "fixtures"
QUESTION = "Which is a number?\n(A) three\n(B) green\n(C) under\nAnswer: "


def write_examples(folder: Path) -> None:
    """Write all files into a folder; the study has 16 models and a stored fit of one task."""
    study = _write_study(folder / "study")
    bc.fit_tasks(study, ["code"], method="label-token", store=True)
    questions = [{"id": f"q{i}", "text": f"{i}. {QUESTION}(A)", "answer_start": 3 + len(QUESTION)} for i in range(6)]
    (folder / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in questions), encoding="utf-8")
    (folder / "models.csv").write_text("model,family,params\nmy-7b,mine,7B\n", encoding="utf-8")
    (folder / "scores.csv").write_text("model,task,accuracy\nmy-7b,code,0.61\n", encoding="utf-8")
    _write_losses(folder / "my-7b.jsonl", study)
    counts = np.ones(len(study.texts), int)
    bounds = [edge for text in study.texts for edge in (0, len(text.text.encode()))]
    np.savez(folder / "states.npz", features=np.eye(len(counts), 4), bounds=bounds, counts=counts)
    shutil.copytree(LOGS / "lm-eval-0.4.13", folder / "results")
    shutil.copytree(LOGS / "models" / "reed-a", folder / "checkpoint")
    shutil.copytree(LOGS / "models" / "reed-a", folder / "run" / "checkpoint-500")
    write_benchmarks(folder / "benchmarks")


def _write_study(root: Path) -> bc.Study:
    """A synthetic study with names that tell what is what: four families of four sizes, two tasks."""
    world = make_world(Plan(seed=3, families=4, sizes=4, checkpoints=1, tasks=2, texts_per_source=8))
    tasks = dict(zip((t.name for t in world.tasks), TASKS, strict=True))
    study = Study.create(root, world.texts, tasks=[replace(t, name=tasks[t.name]) for t in world.tasks])
    study.add_models([replace(m, model=_named(m.model), family=_named(m.family)) for m in world.models])
    study.add_losses([replace(x, model=_named(x.model)) for x in world.losses])
    study.add_scores([replace(s, model=_named(s.model), task=tasks[s.task]) for s in world.scores])
    return study


def _named(name: str) -> str:
    family, *rest = name.split("-")
    return "-".join([FAMILIES[int(family.removeprefix("family"))], *rest])


def _write_losses(path: Path, study: bc.Study) -> None:
    """Losses of a model whose tokens are whole texts, 1 nat for each byte."""
    with path.open("w", encoding="utf-8") as file:
        for text in study.texts:
            size = len(text.text.encode())
            file.write(json.dumps({"text_id": text.id, "bounds": [0, size], "nats": [float(size)]}) + "\n")
