"""What would make a study unreadable is refused before it is written, and odd input ends in one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchcast.errors import BenchcastError, InputError, StudyError
from benchcast.records import ModelInfo, Score, Task, TokenLosses
from benchcast.storage.files import write_text
from benchcast.store import Study

ENTRY = [sys.executable, "-m", "benchcast"]


@pytest.fixture
def refuses(cli, tree, study):
    """Run a command that must end in one line and leave the study as it was."""

    def check(*arguments: object, says: str = "") -> None:
        before = tree(study.root)
        ran = cli(*arguments)
        assert (ran.code, ran.err.count("\n"), ran.err.startswith("error: ")) == (1, 1, True), ran
        assert says in ran.err
        assert tree(study.root) == before
        assert Study.open(study.root).scores()

    return check


def results(path: Path, **changes) -> Path:
    """An lm-eval file of one task, with parts replaced."""
    document = {
        "results": {"task0": {"acc,none": 0.5, "acc_stderr,none": 0.01, "alias": "task0"}},
        "n-samples": {"task0": {"original": 100, "effective": 100}},
        "config": {"model_args": "pretrained=newcomer"},
        "versions": {"task0": 1},
    }
    document |= {key.replace("_", "-") if key == "n_samples" else key: value for key, value in changes.items()}
    path.write_text(json.dumps(document))
    return path


HUGE = 10**400


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"n_samples": {"task0": {"effective": -5}}}, "n-samples is -5"),
        ({"n_samples": {"task0": {"effective": float("inf")}}}, "n-samples is inf"),
        ({"n_samples": {"task0": {"effective": HUGE}}}, "n-samples is 1000"),
        ({"n_samples": {}, "results": {"task0": {"acc,none": 0.5, "sample_len": -1}}}, "sample_len is -1"),
        ({"results": {"task0": {"acc,none": 0.5, "acc_stderr,none": -0.5}}}, "acc_stderr is -0.5"),
        ({"results": {"task0": {"acc,none": 0.5, "acc_stderr,none": float("inf")}}}, "acc_stderr is inf"),
        ({"config": {"model_args": "pretrained=" + "x" * 200_000}}, "a name of 200000 characters"),
        ({"config": {"model_args": {"pretrained": "half \ud800"}}}, "half a surrogate pair"),
        ({"versions": {"task0": "v" * 200_000}}, "a name of 200000 characters"),
        ({"results": {"task0": {"acc,none": HUGE}}}, ""),
    ],
)
def test_results_that_would_spoil_the_table_are_refused(refuses, study, tmp_path, changes, says):
    file = results(tmp_path / "results_1.json", **changes)
    refuses("import", "scores", study.root, file, "--allow-mixed", says=says)


@pytest.mark.parametrize(
    "changes",
    [
        {"n_samples": {}, "group_subtasks": {"task0": 5}},
        {"n_samples": {}, "group_subtasks": {"task0": [1, {}]}},
        {"n_samples": 7, "versions": 7, "higher_is_better": 7, "n-shot": 7},
        {"versions": {"task0": HUGE}},
        {"results": {" task0 ": {"acc,none": 0.5}}},
    ],
)
def test_odd_parts_of_results_do_no_harm(cli, study, tmp_path, changes):
    ran = cli("import", "scores", study.root, results(tmp_path / "results_1.json", **changes), "--allow-mixed")
    assert ran.code == 0, ran
    assert "newcomer" in {s.model for s in Study.open(study.root).scores() if s.task == "task0"}


def test_a_task_with_a_space_before_its_name_is_added_without_it(cli, study, tmp_path):
    file = results(tmp_path / "results_1.json", results={" mmlu_law": {"acc,none": 0.5}})
    assert cli("import", "scores", study.root, file, "--add-tasks", "*mmlu*").code == 0
    assert "mmlu_law" in [t.name for t in Study.open(study.root).tasks]
    assert Study.open(study.root).scores()


def test_a_study_that_has_such_a_task_reads_its_scores(tmp_path, world):
    study = Study.create(tmp_path / "s", world.texts, tasks=[Task(" mmlu", 0.25)])
    study.add_scores([Score("a", " mmlu", 0.5)])
    assert [s.task for s in study.scores()] == [" mmlu"]


def test_files_nested_too_deep_are_one_line(refuses, study, tmp_path):
    deep = "[" * 200_000 + "]" * 200_000
    (tmp_path / "results_1.json").write_text('{"results": ' + deep + "}")
    refuses("import", "scores", study.root, tmp_path / "results_1.json", says="not JSON")
    (tmp_path / "losses.jsonl").write_text('{"text_id": ' + deep + "}")
    refuses("import", "losses", study.root, tmp_path / "losses.jsonl", says="not JSON")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("seed = " + "9" * 5000, "not valid TOML"),
        ("seed = " + "9" * 4000, "seed must be from 0 to below 2^63"),
        ("x = " + "[" * 100_000, "not valid TOML"),
    ],
)
def test_settings_that_no_program_should_choke_on_are_one_line(cli, study, line, says):
    settings = study.root / "study.toml"
    settings.write_text(settings.read_text().replace("seed = 0", line))
    ran = cli("status", study.root)
    assert (ran.code, ran.err.count("\n"), says in ran.err, len(ran.err) < 400) == (1, 1, True, True)


def test_another_number_of_items_for_the_same_score_is_a_question(study, world):
    old = world.scores[0]
    study.add_scores([replace(old, n_items=100.0, right_even=20.0)], force=True)
    with pytest.raises(InputError, match="100 items in the study, the file says 10"):
        study.add_scores([replace(old, n_items=10.0)])
    study.add_scores([replace(old, n_items=10.0)], force=True)
    score = next(s for s in study.scores() if (s.model, s.task) == (old.model, old.task))
    assert (score.n_items, np.isnan(score.right_even)) == (10.0, True)


def test_a_table_that_would_not_read_back_does_not_replace_the_old_one(study, tree, tmp_path):
    before = tree(study.root)
    for write in (
        lambda: study.add_models([ModelInfo("x" * 200_000)]),
        lambda: study.add_models([ModelInfo("x", family="f" * 200_000)]),
        lambda: study.add_scores([Score("x", "task0", 0.5, n_items=-1.0)]),
        lambda: study.add_scores([Score("x", "no such task", 0.5)]),
        lambda: study.add_scores([Score("x", "task0", 1.5)]),
        lambda: study.add_losses([TokenLosses("\ud800", np.array([1]), np.array([0, 3]), np.array([1.5]))]),
    ):
        with pytest.raises(BenchcastError, match=r"^[^\n]{1,400}$"):
            write()
        assert tree(study.root) == before
    path = tmp_path / "new.txt"
    with pytest.raises(
        StudyError, match=r"new\.txt: not changed, since the new one could not be read back: new\.txt: no"
    ):
        write_text(path, "x", check=lambda new: (_ for _ in ()).throw(InputError(f"{new}: no")))
    assert not path.exists()


# ---- the terminal


def test_a_terminal_that_knows_only_ascii_gets_escapes_and_no_traceback(study, tmp_path):
    study.add_models([ModelInfo("模型", family="семья")])
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    ran = subprocess.run([*ENTRY, "status", str(study.root)], env=environment, capture_output=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert ran.stdout.isascii()
    missing = subprocess.run([*ENTRY, "status", "нет"], env=environment, capture_output=True, check=False)
    assert (missing.returncode, missing.stderr.count(b"\n"), missing.stderr[:7]) == (1, 1, b"error: ")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_output_to_a_full_disk_is_one_line(study):
    with Path("/dev/full").open("wb") as full:
        ran = subprocess.run([*ENTRY, "status", str(study.root)], stdout=full, stderr=subprocess.PIPE, check=False)
    assert (ran.returncode, ran.stderr) == (1, b"error: No space left on device: the output cannot be written\n")


def test_a_disk_without_room_is_one_line_that_names_the_file_and_leaves_the_old_one(study, tree):
    """The limit on the size of files stands in for the disk."""
    import resource

    before = tree(study.root)
    limit = (study.root / "scores.csv").stat().st_size // 2
    more = study.root.parent / "more.csv"
    more.write_text("model,task,accuracy\nnewcomer,task0,0.5\n")
    ran = subprocess.run(
        [*ENTRY, "import", "scores", str(study.root), str(more), "--allow-mixed"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (
        1,
        f"error: {study.root}/scores.csv: cannot be written (File too large)\n",
    )
    assert tree(study.root) == before
