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
from benchcast.study.study import Study
from synthetic import World

ENTRY = str(Path(sys.executable).with_name("benchcast"))


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


def moment(root: Path, when: tuple[float] | tuple[str, int], whole_run: float) -> Callable[[], bool]:
    """After a share of the time that the whole run takes, or once so many files are there."""
    if len(when) == 1:
        start_time = time.monotonic()
        return lambda: time.monotonic() - start_time >= whole_run * when[0]
    pattern, count = when
    return lambda: len(list(root.glob(pattern))) >= count


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


LOSSES = "losses/*.parquet"
IMPORT = [(0.3,), (0.5,), (0.7,), ("losses/.*.tmp", 1), (LOSSES, 2), (LOSSES, 4), (LOSSES, 6), (LOSSES, 8)]
FIT = [
    (0.4,), (0.7,), (0.9,), ("fits/.task0*.tmp", 1), ("fits/.task0*.tmp/*", 1), ("fits/.task0*.tmp/*", 2),
    ("fits/.task1*.tmp", 1), ("fits/.task1*.tmp/*", 2),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "moments"), [("import", IMPORT), ("fit", FIT)], ids=["import", "fit"])
def test_a_command_killed_at_any_moment_is_finished_by_running_it_again(
    kind, moments, bare, synthetic_folder, loss_files, cli, tree, tmp_path
):
    def command(root: Path) -> list[object]:
        after = [*loss_files, "--family", "all"] if kind == "import" else ["--method", "all-token"]
        return [*(["import", "losses"] if kind == "import" else ["fit"]), root, *after]

    shutil.copytree(bare if kind == "import" else synthetic_folder, tmp_path / "old")
    if kind == "fit":
        assert cli("fit", tmp_path / "old", "--method", "constant").code == 0
    shutil.copytree(tmp_path / "old", tmp_path / "calm")
    whole_run = run_whole(tmp_path / "stderr", *command(tmp_path / "calm"))
    old, undisturbed = tree(tmp_path / "old"), tree(tmp_path / "calm")
    killed, halfway = 0, 0
    for i, when in enumerate(moments):
        root = tmp_path / f"study{i}"
        shutil.copytree(tmp_path / "old", root)
        killed += kill_when(moment(root, when, whole_run), tmp_path / "stderr", *command(root))
        check_whole(root)
        halfway += 0 < len(Study.open(root).models_with_losses()) < len(loss_files)
        for task in ("fits/task0/", "fits/task1/"):
            now, before, after = (part_of(files, task) for files in (tree(root), old, undisturbed))
            assert now in (before, after), "a fit is old or new"
        assert cli("status", root).code == 0
        assert cli(*command(root)).code == 0
        assert tree(root) == undisturbed
    assert killed >= len(moments) // (2 if kind == "import" else 3), "most kills came in time"
    assert halfway >= 2 or kind == "fit", "some came between two files"


def part_of(files: dict[str, str], folder: str) -> dict[str, str]:
    return {name: digest for name, digest in files.items() if name.startswith(folder)}


@pytest.mark.slow
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
    from benchcast.study import atomic

    monkeypatch.setattr(atomic, "LOCK_SECONDS", 0.2)
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
