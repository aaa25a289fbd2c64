"""File names that stay inside the study, files that are whole or absent, tables that read back as written."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchcast.errors import InputError
from benchcast.records import ModelInfo, Score, Task, Text, TextSet, TokenLosses
from benchcast.study.atomic import LONGEST_NAME, file_name, locked, sweep, write_folder, write_text, write_whole
from benchcast.study.loss_files import read_parquet
from benchcast.study.study import Study
from benchcast.study.tables import (
    MODEL_COLUMNS,
    MODEL_NUMBERS,
    as_csv,
    models_csv,
    read_models,
    read_texts,
    texts_jsonl,
)

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200)
HOSTILE = ["..", ".", "../../etc/passwd", "/etc/passwd", ".hidden", "a/b", "a\\b", "a\0b", "x" * 300, "模型" * 150, " "]


@given(names)
@example("..")
@example("../../x")
@example(".hidden")
@example("x" * 300)
@example("模" * 300)
@example("a\0b\nc")
def test_any_name_gives_a_file_name_that_stays_in_its_folder(name):
    written_name = file_name(name)
    assert written_name
    assert not set(written_name) & set("/\\\0\n\r")
    assert not written_name.startswith((".", " "))
    assert not written_name.endswith((".", " "))
    assert len(written_name.encode()) <= LONGEST_NAME


@given(names, names)
@example("a/b", "a%2Fb")
@example("a.", "a%2E")
@example("x" * 299, "x" * 300)
def test_different_names_give_different_file_names(one, two):
    assert (file_name(one) == file_name(two)) == (one == two)


def test_no_name_can_take_the_file_of_a_long_one():
    assert file_name(file_name("x" * 300)) != file_name("x" * 300)


def test_plain_names_are_kept_as_they_are():
    for name in ("Llama-2-7b", "yi_6b@3.1T", "通义千问-7B", "a+b=c (v1) [x],y"):
        assert file_name(name) == name


def test_the_same_losses_are_stored_once_also_where_some_are_missing(tmp_path):
    """In a folder that exists and is empty."""
    (tmp_path / "study").mkdir()
    study = Study.create(tmp_path / "study", TextSet.of([Text("a", "s", "abc")]))
    losses = TokenLosses("m", np.array([2]), np.array([0, 1, 3]), np.array([np.nan, 1.5]))
    assert [study.add_losses([losses]), study.add_losses([losses])] == [1, 0]


@pytest.mark.parametrize("name", [n for n in HOSTILE[:-1] if "\0" not in n])
def test_losses_of_a_hostile_name_land_in_the_study_and_read_back(name, tmp_path):
    study = Study.create(tmp_path / "outer" / "study", TextSet.of([Text("a", "s", "abc")]))
    losses = TokenLosses(name, np.array([1]), np.array([0, 3]), np.array([1.5]))
    assert study.add_losses([losses], family="f") == 1
    assert study.add_losses([losses]) == 0
    assert study.models_with_losses() == [name]
    assert study.losses(name).nats.tolist() == [1.5]
    assert [(m.model, m.family) for m in study.models()] == [(name, "f")]
    outside = [p for p in tmp_path.rglob("*") if p.is_file() and study.root not in p.parents]
    assert outside == []
    assert {p.parent.name for p in study.root.rglob("*.parquet")} == {"losses"}


def test_a_failed_write_leaves_the_old_file_and_no_rubbish(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old")

    def fail(temporary):
        temporary.write_text("half")
        raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError):
        write_whole(path, fail)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_a_failed_folder_leaves_the_old_one_and_no_rubbish(tmp_path):
    folder = tmp_path / "fit"
    write_folder(folder, lambda f: (f / "x").write_text("old"))

    def fail(temporary):
        (temporary / "x").write_text("half")
        raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError):
        write_folder(folder, fail)
    assert (folder / "x").read_text() == "old"
    write_folder(folder, lambda f: (f / "y").write_text("new"))
    assert [p.name for p in tmp_path.iterdir()] == ["fit"]
    assert [p.name for p in folder.iterdir()] == ["y"], "a new folder replaces the old one whole"


def test_what_a_killed_writer_left_is_swept_and_nothing_else(tmp_path):
    (tmp_path / ".a.parquet.999999999-0123abcd.tmp").write_text("half")
    (tmp_path / ".fit.999999999-0123abcd.tmp").mkdir()
    (tmp_path / ".fit.999999999-0123abcd.tmp" / "x").write_text("half")
    (tmp_path / "notes.tmp").write_text("mine")
    (tmp_path / ".hidden").write_text("mine")
    sweep(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".hidden", "notes.tmp"]


def test_a_folder_set_aside_by_a_killed_writer_is_put_back(tmp_path):
    """Killed between the two renames, neither the old nor the new folder is in place."""
    name = "a.task.with.dots-" + "x" * 90
    old, half = tmp_path / f".{name}.999999999-0a1b2c3d.old", tmp_path / f".{name}.999999999-00000000.tmp"
    for folder in (old, half):
        folder.mkdir()
        (folder / "fit.json").write_text(folder.suffix)
    sweep(tmp_path)
    assert (tmp_path / name / "fit.json").read_text() == ".old"
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_a_folder_set_aside_is_removed_once_its_place_is_taken(tmp_path):
    old = tmp_path / ".task.999999999-0a1b2c3d.old"
    for folder in (old, tmp_path / "task"):
        folder.mkdir()
    sweep(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["task"]


def test_features_that_a_killed_writer_left_unfinished_do_not_count(study):
    half = study.root / "features" / ".synthetic.999999999-0a0b0c0d.tmp"
    half.mkdir()
    (half / "meta.json").write_text((study.root / "features" / "synthetic" / "meta.json").read_text())
    assert study.scorers() == ["synthetic"]
    assert study.features() is not None
    with locked(study.root):
        assert not half.exists()


def test_a_task_with_an_empty_name_cannot_put_its_fit_in_place_of_all_fits(study):
    from benchcast.errors import StudyError

    with (study.root / "study.toml").open("a") as settings:
        settings.write('\n[tasks.""]\nchance = 0.0\n')
    with pytest.raises(StudyError, match="a task needs a name"):
        Study.open(study.root)


@pytest.mark.parametrize("name", ["😀", 'quo"te', "back\\slash", "中文", "a.b", "[x]"])
def test_tasks_and_sources_of_any_name_survive_study_toml(name, tmp_path):
    texts = TextSet.of([Text("a", name, "abc")])
    study = Study.create(tmp_path / "s", texts, tasks=[Task(name, 0.25, (name,))])
    assert study.tasks == (Task(name, 0.25, (name,)),)
    bare = Study.create(tmp_path / "t", texts)
    uncommented = re.sub(r"(?m)^# (?=\[|chance|sources)", "", (bare.root / "study.toml").read_text())
    (bare.root / "study.toml").write_text(uncommented)
    assert Study.open(bare.root).tasks == (Task(name, 0.0, (name,)),)


cells = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)


@given(st.lists(cells.map(str.strip).filter(bool), unique=True, min_size=1, max_size=5), st.floats(0, 1e30))
def test_models_csv_reads_back_as_written(tmp_path_factory, given_names, size):
    path = tmp_path_factory.mktemp("csv") / "models.csv"
    models = [ModelInfo(name, family=name, params=size) for name in given_names]
    write_text(path, as_csv(MODEL_COLUMNS, models))
    assert [(m.model, m.family, m.params) for m in read_models(path)] == [(n, n, size) for n in given_names]


line_breaks = st.sampled_from(["\u2028", "\u2029", "\x85", "\r", "\n", "\x0b", "\x1c"])
any_text = st.text(st.one_of(st.characters(exclude_categories=["Cs"]), line_breaks), max_size=20)


@given(st.lists(st.tuples(any_text, any_text, any_text), min_size=1, max_size=5, unique_by=lambda t: t[0]))
def test_texts_jsonl_reads_back_as_written(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("texts") / "texts.jsonl"
    texts = TextSet.of([Text(a, b, c, answer_start=len(c.encode()) // 2) for a, b, c in rows])
    write_text(path, texts_jsonl(texts))
    read = read_texts(path)
    assert read == texts
    assert read.digest == texts.digest


def test_stored_losses_say_where_they_come_from(study, world):
    losses = study.losses(world.models[0].model)
    schema = pq.read_schema(study.losses_path(world.models[0].model))
    about = {k.decode(): v.decode() for k, v in schema.metadata.items()}
    assert about["model"] == world.models[0].model
    assert about["texts"] == study.texts.digest == losses.about["texts"]
    assert about["tokenizer"] == "synthetic"
    assert str(schema.field("bounds").type) == "list<element: int32>"


def test_stored_losses_are_those_given_to_the_precision_of_the_file(study, world):
    for given_losses in world.losses[:3]:
        stored = study.losses(given_losses.model)
        assert stored.edges.tolist() == given_losses.edges.tolist()
        assert stored.nats.tolist() == given_losses.nats.astype(np.float32).tolist()


def test_features_are_stored_as_given_and_say_whose_they_are(study, world):
    stored = study.features()
    values, edges, name = stored.values, stored.edges, stored.scorer
    assert isinstance(values, np.memmap)
    assert (values == world.features).all()
    assert (edges == world.edges).all()
    meta = json.loads((study.root / "features" / "synthetic" / "meta.json").read_text())
    assert name == meta["scorer"] == "synthetic"
    assert meta["texts"] == study.texts.digest


def test_a_parquet_file_without_a_name_in_its_column_is_named_by_its_file(study, world, tmp_path):
    table = pq.read_table(study.losses_path(world.losses[0].model)).replace_schema_metadata(None)
    path = tmp_path / "mine.parquet"
    pq.write_table(table.append_column("model", pa.nulls(table.num_rows, pa.string())), path)
    assert read_parquet(path, world.texts).model == "mine"


def test_every_column_of_models_csv_is_read_as_written(tmp_path):
    cells = {name: float(i) for i, name in enumerate(MODEL_NUMBERS, start=2)}
    model = ModelInfo(**{name: cells.get(name, "test") for name in MODEL_COLUMNS} | {"base": "other"})
    path = tmp_path / "models.csv"
    path.write_text(models_csv([model, ModelInfo("empty")]), encoding="utf-8")
    assert repr(read_models(path)) == repr([model, ModelInfo("empty")]), "NaN included"


def test_a_column_after_split_that_no_model_fills_is_not_written():
    assert models_csv([ModelInfo("m", split="test")]) == "model,family,params,tokens,flops,split\nm,,,,,test\n"
    assert models_csv([ModelInfo("m", base="b"), ModelInfo("n")]).splitlines()[0].endswith(",split,base")


@pytest.mark.parametrize("half", [False, True])
def test_the_same_losses_again_are_skipped_in_either_precision(study, world, half):
    nats = world.losses[0].nats + 1e-4  # not a number of float16
    losses = replace(world.losses[0], model="again", nats=nats)
    assert study.add_losses([losses], half=half) == 1
    assert study.add_losses([losses]) == 0
    with pytest.raises(InputError, match="in the study with other losses"):
        study.add_losses([replace(losses, nats=nats + 0.01)])


def test_only_new_scores_are_counted(study):
    scores = study.scores()
    assert study.add_scores(scores[:3]) == 0
    assert study.add_scores([*scores[:3], Score("newcomer", "task0", 0.5), Score("newcomer", "task1", 0.5)]) == 2


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted in /proc")
def test_reading_losses_starts_no_thread(study):
    """A thread of Arrow that lives when a process exits aborted it once in some hundred commands."""
    file = next((study.root / "losses").glob("*.parquet"))
    code = (
        "import os, pathlib, sys; from benchcast.study.parquet import read_table\n"
        "before = os.listdir('/proc/self/task'); read_table(pathlib.Path(sys.argv[1]), values=10**9)\n"
        "print(len(os.listdir('/proc/self/task')) - len(before))"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "0"
