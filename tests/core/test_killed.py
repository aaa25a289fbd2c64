"""Killed at any moment, and two writers at once: nothing is half there, nothing is lost."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import forked
import numpy as np
import pyarrow.parquet as pq
import pytest

from benchcast import load
from benchcast.records import ModelInfo, TokenLosses
from benchcast.store import Study
from synthetic import World

ENTRY = str(Path(sys.executable).with_name("benchcast"))
KILLS = 8


def start(*arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [ENTRY, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )


def kill_when(ready: Callable[[], bool], stderr: Path, *arguments: object) -> bool:
    """Run a command and kill it at the moment `ready` says so; whether it was still running."""
    process = forked.start(stderr, *arguments)
    deadline = time.monotonic() + 60
    while process.is_alive() and not ready() and time.monotonic() < deadline:
        time.sleep(0.001)  # looking more often takes the time that the process needs
    process.kill()
    process.join()
    assert "Traceback" not in stderr.read_text()
    return process.exitcode == -signal.SIGKILL


def run_whole(stderr: Path, *arguments: object) -> float:
    """Run a command to its end; the seconds it took."""
    forked.start(stderr, "--version").join()  # the first takes the time of loading everything
    began = time.monotonic()
    process = forked.start(stderr, *arguments)
    process.join()
    assert (process.exitcode, stderr.read_text()) == (0, "")
    return time.monotonic() - began


def after(seconds: float) -> Callable[[], bool]:
    start_time = time.monotonic()
    return lambda: time.monotonic() - start_time >= seconds


def seen(folder: Path, pattern: str, count: int) -> Callable[[], bool]:
    return lambda: len(list(folder.glob(pattern))) >= count


@pytest.fixture(scope="module")
def bare(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study with models and scores and no losses yet."""
    study = Study.create(tmp_path_factory.mktemp("bare") / "study", world.texts, tasks=world.tasks)
    study.add_models(world.models)
    study.add_scores(world.scores)
    return study.root


@pytest.fixture(scope="module")
def loss_files(synthetic_folder: Path) -> list[Path]:
    return sorted((synthetic_folder / "losses").glob("*.parquet"))


def check_whole(root: Path) -> None:
    """The study opens, and every file in it is whole, or hidden rubbish that the next writer sweeps."""
    study = Study.open(root)
    for name in study.models_with_losses():
        assert np.isfinite(study.losses(name).nats).all()
    for path in root.rglob("*.parquet"):
        pq.read_table(path)
    for path in (root / "losses").glob("*") if (root / "losses").exists() else []:
        assert path.suffix == ".parquet" or (path.name.startswith(".") and path.suffix == ".tmp")
    study.scores()
    study.models()
    for folder in (root / "fits").glob("[!.]*") if (root / "fits").exists() else []:
        load(folder)
    study.features()


def test_an_import_killed_at_any_moment_is_finished_by_running_it_again(bare, loss_files, cli, tree, tmp_path):
    command = ["import", "losses", "{}", *loss_files, "--family", "all"]

    def with_root(root: Path) -> list:
        return [root if part == "{}" else part for part in command]

    shutil.copytree(bare, tmp_path / "calm")
    whole_run = run_whole(tmp_path / "stderr", *with_root(tmp_path / "calm"))
    undisturbed = tree(tmp_path / "calm")
    killed, halfway = 0, 0
    for i in range(KILLS):
        root = tmp_path / f"study{i}"
        shutil.copytree(bare, root)
        early = i < 3
        moment = after(whole_run * (0.3 + 0.2 * i)) if early else seen(root / "losses", "*.parquet", 2 * (i - 3))
        if i == 3:
            moment = seen(root / "losses", ".*.tmp", 1)
        killed += kill_when(moment, tmp_path / "stderr", *with_root(root))
        check_whole(root)
        halfway += 0 < len(Study.open(root).models_with_losses()) < len(loss_files)
        assert cli("status", root).code == 0
        assert cli(*with_root(root)).code == 0
        assert tree(root) == undisturbed
    assert killed >= KILLS // 2, "most kills came in time"
    assert halfway >= 2, "some came between two files"


def test_a_fit_killed_at_any_moment_is_old_or_new_and_finished_by_running_it_again(
    synthetic_folder, cli, tree, tmp_path
):
    shutil.copytree(synthetic_folder, tmp_path / "old")
    assert cli("fit", tmp_path / "old", "--method", "constant").code == 0
    old = tree(tmp_path / "old")
    shutil.copytree(tmp_path / "old", tmp_path / "calm")
    whole_run = run_whole(tmp_path / "stderr", "fit", tmp_path / "calm", "--method", "all-token")
    undisturbed = tree(tmp_path / "calm")
    killed = 0
    for i in range(KILLS):
        root = tmp_path / f"study{i}"
        shutil.copytree(tmp_path / "old", root)
        fits = root / "fits"
        moment = {
            0: after(whole_run * 0.4),
            1: after(whole_run * 0.7),
            2: after(whole_run * 0.9),
            3: seen(fits, ".task0*.tmp", 1),
            4: seen(fits, ".task0*.tmp/*", 1),
            5: seen(fits, ".task0*.tmp/*", 2),
            6: seen(fits, ".task1*.tmp", 1),
            7: seen(fits, ".task1*.tmp/*", 2),
        }[i]
        killed += kill_when(moment, tmp_path / "stderr", "fit", root, "--method", "all-token")
        check_whole(root)
        now = tree(root)
        for task in ("task0", "task1"):
            fit_files = {k: v for k, v in now.items() if k.startswith(f"fits/{task}/")}
            assert fit_files in [
                {k: v for k, v in t.items() if k.startswith(f"fits/{task}/")} for t in (old, undisturbed)
            ]
        assert cli("fit", root, "--method", "all-token").code == 0
        assert tree(root) == undisturbed
    assert killed >= KILLS // 3, "some kills came in time"


def test_writers_at_the_same_time_lose_nothing(bare, world, tmp_path, tree):
    """Two imports of losses with families and two of scores, all at once, on one study."""
    root = tmp_path / "study"
    shutil.copytree(bare, root)
    (root / "scores.csv").unlink()
    study = Study.open(root)
    donor = Study.create(tmp_path / "donor", world.texts)
    donor.add_losses([TokenLosses(f"{x.model}", x.counts, x.edges, x.nats) for x in world.losses])
    files = [donor.losses_path(x.model) for x in world.losses]
    for part in range(2):
        rows = [f"{s.model},{s.task},{s.accuracy}" for s in world.scores[part::2]]
        (tmp_path / f"scores{part}.csv").write_text("\n".join(["model,task,accuracy", *rows]) + "\n")
    processes = [
        start("import", "losses", root, *files[0::2], "--family", "even"),
        start("import", "losses", root, *files[1::2], "--family", "odd"),
        start("import", "scores", root, tmp_path / "scores0.csv"),
        start("import", "scores", root, tmp_path / "scores1.csv"),
    ]
    for process in processes:
        _, said = process.communicate(timeout=100)
        assert (process.returncode, said) == (0, b"")
    assert len(study.models_with_losses()) == len(world.losses)
    assert {(s.model, s.task, s.accuracy) for s in study.scores()} == {
        (s.model, s.task, s.accuracy) for s in world.scores
    }
    families = {m.model: m.family for m in study.models()}
    assert [families[x.model] for x in world.losses] == ["even", "odd"] * (len(world.losses) // 2)
    check_whole(root)
    assert not [p for p in root.rglob(".*") if p.name != ".lock"]


def test_a_writer_that_waits_too_long_for_the_lock_says_so(study, monkeypatch):
    from filelock import FileLock

    from benchcast.errors import StudyError
    from benchcast.storage import files

    monkeypatch.setattr(files, "LOCK_SECONDS", 0.2)
    with (
        FileLock(study.root / ".lock"),
        pytest.raises(StudyError, match=r"another process has been writing for 0\.2 s"),
    ):
        Study.open(study.root).add_models([ModelInfo("late")])


def test_a_killed_init_can_be_run_again(tmp_path, cli):
    (tmp_path / "t.jsonl").write_text('{"text": "hello"}\n')
    root = tmp_path / "study"
    root.mkdir()
    (root / ".texts.jsonl.999999999-0a0b0c0d.tmp").write_text('{"text": "hel')
    assert cli("init", root, "--texts", tmp_path / "t.jsonl").code == 0
    (root / "study.toml").unlink()  # as if killed after the first of its two files
    assert cli("init", root, "--texts", tmp_path / "t.jsonl").code == 0
    assert [t.text for t in Study.open(root).texts] == ["hello"]
    Study.open(root).add_models([ModelInfo("m")])  # the next writer sweeps
    assert sorted(p.name for p in root.iterdir() if p.name != ".lock") == ["models.csv", "study.toml", "texts.jsonl"]
