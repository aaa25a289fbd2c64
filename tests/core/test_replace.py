"""A folder is replaced without a moment in which it is absent, and sweeping touches nothing but our own leftovers."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import benchcast as bc
from benchcast.errors import StudyError
from benchcast.forecasts.fit import fit_tasks
from benchcast.study import atomic
from benchcast.study.atomic import (
    from_folder,
    locked,
    present,
    read_files,
    stored_folders,
    sweep,
    write_folder,
    write_text,
)

DEAD = 999999999  # no process has this id


@pytest.fixture
def no_exchange(monkeypatch):
    """A file system that cannot exchange two folders."""

    def refuse(one, two):
        raise OSError(errno.EINVAL, "invalid argument")

    monkeypatch.setattr(atomic, "exchange", refuse)


@pytest.fixture(params=["exchange", "two steps"])
def way(request):
    """Both ways to replace a folder."""
    if request.param == "two steps":
        request.getfixturevalue("no_exchange")
    return request.param


def make(folder: Path, content: str) -> None:
    write_folder(folder, lambda f: [(f / name).write_text(content) for name in ("a", "b")])


# ---- sweeping


def test_sweeping_leaves_everything_alone_that_is_not_named_exactly_as_our_own_temporaries(study, tmp_path):
    mine = [".thesis.tmp", ".bashrc.old", ".fits.old", ".a.12.tmp", ".a.12-zzzzzzzz.tmp", "a.999999999-0a1b2c3d.tmp"]
    for place in (study.root, study.root / "losses", study.root / "fits"):
        place.mkdir(exist_ok=True)
        for name in mine:
            (place / name).mkdir()
            (place / name / "chapter").write_text("years of work")
    with locked(study.root):
        pass
    for place in (study.root, study.root / "losses", study.root / "fits"):
        assert [(place / name / "chapter").read_text() for name in mine] == ["years of work"] * len(mine)


def test_sweeping_never_follows_a_symbolic_link_out_of_the_study(study, tmp_path):
    home = tmp_path / "home"
    for name in (".thesis.tmp", f".x.{DEAD}-0a1b2c3d.tmp", f".y.{DEAD}-0a1b2c3d.old"):
        (home / name).mkdir(parents=True)
        (home / name / "chapter").write_text("years of work")
    before = sorted(str(p) for p in home.rglob("*"))
    (study.root / "home").symlink_to(home)
    (study.root / f".z.{DEAD}-0a1b2c3d.tmp").symlink_to(home)
    with locked(study.root):
        pass
    assert sorted(str(p) for p in home.rglob("*")) == before


def test_what_a_living_process_writes_is_not_swept(tmp_path):
    other = tmp_path / f".fit.{os.getppid()}-0a1b2c3d.tmp"
    other.mkdir()
    seen = []

    def fill(folder):
        sweep(tmp_path)
        seen.append(folder.exists())
        (folder / "x").write_text("new")

    write_folder(tmp_path / "fit", fill)
    assert seen == [True], "not even its own"
    assert other.exists()


def test_a_link_to_a_folder_is_replaced_and_its_target_kept(tmp_path, way):
    make(tmp_path / "elsewhere", "theirs")
    (tmp_path / "fit").symlink_to(tmp_path / "elsewhere")
    make(tmp_path / "fit", "ours")
    assert (tmp_path / "elsewhere" / "a").read_text() == "theirs"
    assert (tmp_path / "fit" / "a").read_text() == "ours"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["elsewhere", "fit"]


def test_a_failed_write_names_the_file_and_not_its_temporary_name(tmp_path):
    def full(folder):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(StudyError, match=r"fit: cannot be written \(No space left on device\)$"):
        write_folder(tmp_path / "fit", full)
    (tmp_path / "file").write_text("")
    with pytest.raises(StudyError, match=r"x\.csv: cannot be written \(File exists\)$"):
        write_text(tmp_path / "file" / "x.csv", "a")


# ---- replacing


def test_a_folder_replaces_another_whole_and_leaves_no_rubbish(tmp_path, way):
    make(tmp_path / "fit", "old")
    make(tmp_path / "fit", "new")
    assert read_files(tmp_path / "fit", ["a", "b"]) == [b"new", b"new"]
    assert [p.name for p in tmp_path.iterdir()] == ["fit"]


def test_this_file_system_can_exchange_two_folders(tmp_path):
    for name in ("one", "two"):
        make(tmp_path / name, name)
    atomic.exchange(tmp_path / "one", tmp_path / "two")
    assert (tmp_path / "one" / "a").read_text() == "two"
    with pytest.raises(FileNotFoundError):
        atomic.exchange(tmp_path / "one", tmp_path / "three")


def test_a_folder_set_aside_by_a_killed_writer_is_read_before_it_is_put_back(tmp_path):
    make(tmp_path / "fit", "old")
    (tmp_path / "fit").rename(tmp_path / f".fit.{DEAD}-0a1b2c3d.old")
    assert read_files(tmp_path / "fit", ["a"]) == [b"old"]
    assert present(tmp_path / "fit").suffix == ".old"
    assert stored_folders(tmp_path) == [tmp_path / "fit"]
    make(tmp_path / "fit", "new")
    assert read_files(tmp_path / "fit", ["a"]) == [b"new"]
    assert [p.name for p in tmp_path.iterdir()] == ["fit"]


def test_a_reader_gets_files_of_one_version_though_the_folder_is_replaced_between_them(tmp_path, way):
    make(tmp_path / "fit", "old")
    rounds = []

    def read(folder):
        first = (folder / "a").read_bytes()
        if len(rounds) < 3:
            make(tmp_path / "fit", f"new {len(rounds)}")
        rounds.append(first)
        return first, (folder / "b").read_bytes()

    assert from_folder(tmp_path / "fit", read) == (b"new 2", b"new 2")


def test_what_is_absent_is_absent(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_files(tmp_path / "fit", ["a"])
    make(tmp_path / "fit", "x")
    with pytest.raises(FileNotFoundError):
        read_files(tmp_path / "fit", ["a", "c"])


def test_predict_reads_the_fits_that_a_killed_writer_had_set_aside(study, cli):
    for fit in fit_tasks(study, method="all-token"):
        fit.save(study.fit_folder(fit.task))
    model = study.models_with_losses()[0]
    before = cli("predict", study.root, "--model", model)
    for task in ("task0", "task1"):
        study.fit_folder(task).rename(study.root / "fits" / f".{task}.{DEAD}-0a1b2c3d.old")
    assert cli("predict", study.root, "--model", model) == before
    assert study.fitted_tasks() == ["task0", "task1"]


def read_over_and_over(folder: str, ready, stop, results) -> None:
    loads, failures = 0, []
    ready.set()
    while not stop.is_set():
        try:
            bc.load(folder)
        except StudyError as error:
            failures.append(str(error))
        loads += 1
    results.put((loads, failures))


@pytest.mark.slow
def test_readers_in_another_process_see_a_fit_at_every_moment_of_many_refits(study, way):
    fits = [fit_tasks(study, ["task0"], method=method)[0] for method in ("constant", "all-token")]
    folder = fits[0].save(study.fit_folder("task0"))
    context = multiprocessing.get_context("spawn")
    ready, stop, results = context.Event(), context.Event(), context.Queue()
    reader = context.Process(target=read_over_and_over, args=(str(folder), ready, stop, results))
    reader.start()
    ready.wait()
    try:
        for i in range(100):
            fits[i % 2].save(folder)
    finally:
        stop.set()
        loads, failures = results.get(timeout=60)
        reader.join()
    assert loads > 20
    assert failures == []


@pytest.mark.parametrize("moment", ["rename", "exchange", "remove"])
def test_killed_at_any_step_of_a_replacement_the_old_or_the_new_folder_is_read(tmp_path, moment):
    make(tmp_path / "fit", "old")
    code = f"""
import os, signal
from pathlib import Path
from benchcast.study import atomic
def die(*_): os.kill(os.getpid(), signal.SIGKILL)
if {moment!r} == "rename": Path.rename = die
if {moment!r} == "exchange": atomic.exchange = die
if {moment!r} == "remove": atomic.remove = die
atomic.write_folder(Path({str(tmp_path / "fit")!r}), lambda f: [(f / n).write_text("new") for n in "ab"])
"""
    ran = subprocess.run([sys.executable, "-c", code], check=False)
    assert ran.returncode == -signal.SIGKILL
    assert read_files(tmp_path / "fit", ["a", "b"]) == [b"new" if moment == "remove" else b"old"] * 2
    sweep(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["fit"]
