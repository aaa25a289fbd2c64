"""Names that would steer a terminal do not enter a study; what is stored can still be read."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from benchcast.errors import InputError
from benchcast.records import ModelInfo, Score, Task, Text, TextSet
from benchcast.study.study import Study
from benchcast.study.tables import SCORE_COLUMNS, as_csv

RED = "\x1b[31mred"
UGLY = [RED, "bell\x07", "c1\x9b2J", "two\nlines", "turned\u202eround", "x" * 200_000]


@pytest.mark.parametrize("name", UGLY)
def test_a_name_with_control_characters_or_without_end_is_refused_wherever_it_comes_in(study, world, tree, name):
    before = tree(study.root)
    for add in (
        lambda: study.add_losses([replace(world.losses[0], model=name)]),
        lambda: study.add_losses([replace(world.losses[0], model="new")], family=name),
        lambda: study.add_models([ModelInfo(name)]),
        lambda: study.add_models([ModelInfo("new", family=name)]),
        lambda: study.add_scores([Score(name, "task0", 0.5)]),
        lambda: study.add_scores([Score("new", "task0", 0.5, harness=name)]),
        lambda: study.add_tasks([Task(name)]),
        lambda: Study.create(study.root.parent / "a", TextSet.of([Text(name, "s", "x")])),
        lambda: Study.create(study.root.parent / "a", TextSet.of([Text("t", name, "x")])),
    ):
        with pytest.raises(InputError, match=r"control characters|are allowed") as error:
            add()
        assert "\x1b" not in str(error.value)
        assert len(str(error.value)) < 400
    assert tree(study.root) == before
    assert not (study.root.parent / "a").exists()


def test_an_import_of_such_names_is_one_line(study, cli, tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text(f"model,task,accuracy\n{RED},task0,0.5\n", encoding="utf-8")
    ran = cli("import", "scores", study.root, path)
    assert ran.code == 1
    assert ran.err.endswith(": '\\x1b[31mred' contains control characters; remove them from the name\n")
    assert (ran.err.count("\n"), ran.err.count("\x1b")) == (1, 0)
    texts = tmp_path / "texts.jsonl"
    texts.write_text(json.dumps({"id": RED, "text": "x"}) + "\n", encoding="utf-8")
    assert cli("init", tmp_path / "s", "--texts", texts).code == 1
    assert not (tmp_path / "s").exists()


def test_a_study_that_holds_such_a_name_already_can_be_read(study):
    rows = [*study.scores(), Score("bell\x07", "task0", 0.5)]
    (study.root / "scores.csv").write_text(as_csv(SCORE_COLUMNS, rows), encoding="utf-8")
    assert Study.open(study.root).scores()[-1].model == "bell\x07"


@pytest.mark.parametrize("name", ["org/name", "名前 7B", "a=b,c@d [x] (y)", "naïve", "🙂", "-dash", "a\u200db"])
def test_ordinary_names_of_any_script_are_welcome(study, name):
    study.add_models([ModelInfo(name)])
    assert Study.open(study.root).infos([name])[0].model == name
