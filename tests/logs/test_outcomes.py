"""`outcomes/<model>.parquet`: the outcome of each item, kept from logs."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
from log_files import METRIC, NEW

import benchcast as bc
from benchcast.study.editing import remove_models, rename_model
from benchcast.study.outcomes import (
    Outcomes,
    TaskOutcomes,
    add_outcomes,
    models_with_outcomes,
    outcomes_path,
    read_outcomes,
)

ONE = "models/reed-c"


def logged_rows(model, task):
    file = next((NEW / model.replace("/", "__")).glob(f"samples_{task}_*"))
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_init_keeps_the_outcome_of_every_item_of_every_task(logged):
    study = bc.Study.open(logged)
    assert models_with_outcomes(study) == study.models_with_losses()
    found = read_outcomes(study, ONE)
    assert set(found.tasks) == {"pond", "pond_last", "pond_write"}
    rows = logged_rows(ONE, "pond_sums") + logged_rows(ONE, "pond_frogs")
    assert found.tasks["pond"].right.tolist() == [row["acc"] for row in rows]
    assert set(found.tasks["pond"].parts) == {"pond_sums", "pond_frogs"}
    assert found.tasks["pond_write"].metric == METRIC[1].partition("=")[2]


def test_outcomes_agree_with_the_scores_and_are_readable_without_this_package(logged):
    study = bc.Study.open(logged)
    table = pq.read_table(outcomes_path(study, ONE)).to_pandas()
    assert list(table) == ["task", "part", "item", "right", "metric", "passage"]
    score = next(s for s in study.scores() if (s.model, s.task) == (ONE, "pond_last"))
    assert table[table.task == "pond_last"].right.mean() == pytest.approx(score.accuracy)


def test_all_items_are_kept_where_half_of_them_are_texts(cli, tmp_path, logged):
    assert cli("init", tmp_path / "s", "--from-lm-eval", NEW, "--items", "0.5", *METRIC).code == 0
    half, whole = read_outcomes(tmp_path / "s", ONE), read_outcomes(logged, ONE)
    assert all(half.tasks[task].equals(whole.tasks[task]) for task in whole.tasks)


@pytest.mark.parametrize("what", ["losses", "scores"])
def test_imported_logs_bring_their_outcomes(cli, logs, tmp_path, logged, what):
    last = "models__sedge-c"
    shutil.move(logs / last, tmp_path / last)
    assert cli("init", tmp_path / "s", "--from-lm-eval", logs, *METRIC).code == 0
    assert read_outcomes(tmp_path / "s", "models/sedge-c") is None
    options = METRIC if what == "scores" else ()
    ran = cli("import", what, tmp_path / "s", tmp_path / last, *options)
    assert ran.code == 0, ran.err
    ours, all_at_once = read_outcomes(tmp_path / "s", "models/sedge-c"), read_outcomes(logged, "models/sedge-c")
    assert set(ours.tasks) == set(all_at_once.tasks)
    assert all(ours.tasks[task].equals(all_at_once.tasks[task]) for task in ours.tasks)
    assert cli("import", what, tmp_path / "s", tmp_path / last, *options).code == 0  # the same again is no error


def test_other_outcomes_of_the_same_items_are_refused_unless_forced(logged, tmp_path):
    study = bc.Study.open(shutil.copytree(logged, tmp_path / "s"))
    old = read_outcomes(study, ONE).tasks["pond_last"]
    new = TaskOutcomes("acc", old.parts, old.items, old.passages, 1 - old.right)
    before = outcomes_path(study, ONE).read_bytes()
    with pytest.raises(bc.BenchcastError, match=r"other outcomes of the items of 'pond_last'.*--force replaces them"):
        add_outcomes(study, [Outcomes(ONE, {"pond_last": new})])
    assert outcomes_path(study, ONE).read_bytes() == before
    assert add_outcomes(study, [Outcomes(ONE, {"pond_last": new})], force=True) == 1
    assert np.array_equal(read_outcomes(study, ONE).tasks["pond_last"].right, new.right)
    assert "pond" in read_outcomes(study, ONE).tasks


def test_remove_rename_and_status_know_them(cli, logged, tmp_path):
    study = bc.Study.open(shutil.copytree(logged, tmp_path / "s"))
    count = len(study.models_with_losses())
    assert f"outcomes of single items: {count} models" in cli("status", study.root).out
    right = read_outcomes(study, ONE).tasks["pond"].right
    assert rename_model(study, ONE, "new").outcomes == 1
    assert read_outcomes(study, ONE) is None
    assert np.array_equal(read_outcomes(study, "new").tasks["pond"].right, right)
    assert "1 outcomes file" in cli("remove", study.root, "--model", "new").out
    assert read_outcomes(study, "new") is None
    assert remove_models(study, ["models/reed-*"]).outcomes == 3
    assert bc.status(study).models_with_outcomes == count - 4


def test_a_damaged_file_is_one_line(cli, logged, tmp_path):
    study = bc.Study.open(shutil.copytree(logged, tmp_path / "s"))
    path = outcomes_path(study, ONE)
    path.write_bytes(path.read_bytes()[:-20])
    ran = cli("status", study.root)
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert str(path.name) in ran.err


def test_a_task_that_is_listed_as_its_own_group_has_outcomes(logged, tmp_path):
    shutil.copytree(NEW, tmp_path / "logs")
    for results in (tmp_path / "logs").rglob("results_*.json"):
        document = json.loads(results.read_text())
        groups = document.get("group_subtasks", {}) | {"pond_last": ["pond_last"]}
        results.write_text(json.dumps(document | {"group_subtasks": groups}))
    options = bc.ImportOptions(metrics={"pond_write": METRIC[1].partition("=")[2]})
    listed = bc.create_from_logs(tmp_path / "study", tmp_path / "logs", options=options).study
    found, plain = (read_outcomes(study, ONE).tasks for study in (listed, bc.Study.open(logged)))
    assert found["pond_last"].right.tolist() == plain["pond_last"].right.tolist()
