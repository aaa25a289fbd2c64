"""What `status` says of studies that are not complete yet."""

from __future__ import annotations

import tomllib

import pytest

import benchcast as bc
from benchcast.records import ModelInfo, Score, Task
from benchcast.study.study import Study

FILES = {"jsonl": '{"id": "a", "source": "my texts", "text": "one"}', "csv": "model,web\nx,1\n"}
MODELS = [f"m{i}" for i in range(8)]


@pytest.fixture
def table(tmp_path):
    """Writes a study from rows of two losses, with families and scores, and adds a task."""

    def write(rows: list[str], task: Task) -> Study:
        lines = [f"{model},{row}" for model, row in zip(MODELS, rows, strict=True)]
        (tmp_path / "losses.csv").write_text("\n".join(["model,web.a,web.b", *lines]), encoding="utf-8")
        study = bc.datasets.create_table_study(tmp_path / "study", str(tmp_path / "losses.csv")).add_tasks([task])
        study.add_models([ModelInfo(m, f"f{i // 2}") for i, m in enumerate(MODELS)])
        study.add_scores([Score(m, task.name, 0.9 - 0.05 * i) for i, m in enumerate(MODELS)])
        return study

    return write


@pytest.mark.parametrize("kind", FILES)
def test_status_shows_how_to_write_a_task(kind, cli, tmp_path):
    """It said `add your tasks to study.toml` and nothing more."""
    study, file = tmp_path / "study", tmp_path / f"file.{kind}"
    file.write_text(FILES[kind], encoding="utf-8")
    assert cli("init", study, "--texts" if kind == "jsonl" else "--table", file).code == 0
    said = cli("status", study).out.partition("next: add your tasks to")[2]
    example = "\n".join(line.strip() for line in said.splitlines()[1:])
    (name,) = tomllib.loads(example)["tasks"]
    with (study / "study.toml").open("a", encoding="utf-8") as settings:
        settings.write(example)
    assert [task.name for task in Study.open(study).tasks] == [name]
    assert not [p for p in bc.status(study).problems if p.startswith("task")]


@pytest.mark.parametrize("answers", [(), ("web.a",)])
def test_an_unknown_source_of_a_task_on_a_table_is_named(table, answers):
    """It was reported as a task without answers, also where the task had some."""
    rows = [f"{1 + 0.1 * i},2" for i in range(len(MODELS))]
    study = table(rows, Task("arc", 0.25, sources=("wbe",), answers=answers))
    of_task = [p for p in bc.status(study).problems if p.startswith("task arc")]
    assert of_task == ["task arc: no columns of source wbe; did you mean 'web'? (correct sources in study.toml)"]


def test_status_suggests_neither_fit_nor_compare_where_no_column_is_common(table):
    rows = [f"{1 + 0.1 * i}," if i % 2 else f",{1 + 0.1 * i}" for i in range(len(MODELS))]
    study = table(rows, Task("arc", 0.25))
    state = bc.status(study)
    assert [p for p in state.problems if p.startswith("`fit` and `compare` cannot run: no token has a loss from every")]
    assert state.next_step == f"solve the problems listed above, then benchcast status {study.root}"
    for command in (bc.compare, bc.fit_tasks):
        with pytest.raises(bc.BenchcastError, match="no token has a loss from every model"):
            command(study)


def test_one_text_and_one_source_are_in_the_singular(cli, tmp_path):
    study, file = tmp_path / "study", tmp_path / "texts.jsonl"
    file.write_text(FILES["jsonl"], encoding="utf-8")
    assert "1 text from 1 source (my texts)" in cli("init", study, "--texts", file).out
    assert ": 1 text, 0 models with losses" in " ".join(cli("status", study).out.split())


def test_one_loss_of_one_model_is_in_the_singular(cli, tmp_path):
    study, file = tmp_path / "study", tmp_path / "losses.csv"
    file.write_text(FILES["csv"], encoding="utf-8")
    assert ": 1 model, 1 loss each (web)" in cli("init", study, "--table", file).out
    assert ": 1 text, 1 model with losses" in " ".join(cli("status", study).out.split())
