"""A small planted world and its study, and the command line as a function."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import settings

from benchcast.dataset import Dataset
from benchcast.store import Study
from benchmark_files import REAL, write_benchmarks
from lab.synthetic import Plan, World, plant, write_study
from worlds import make_dataset

PUBLIC = Path(__file__).resolve().parents[2] / "shared" / "real_models" / "raw"
if PUBLIC.is_dir():
    os.environ.setdefault("BENCHCAST_DATA", str(PUBLIC))  # public files that lie beside the checkout

settings.register_profile("shared", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("shared")


class Ran(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


def as_function(main: Callable[[], None]) -> Callable[..., Ran]:
    """An entry point as a function of its arguments, in this process."""

    def run(*arguments: object) -> Ran:
        out, err, argv, code = io.StringIO(), io.StringIO(), sys.argv, 0
        sys.argv = [argv[0], *map(str, arguments)]
        try:
            with redirect_stdout(out), redirect_stderr(err):
                try:
                    main()
                except SystemExit as leave:
                    code = int(leave.code or 0)
        finally:
            sys.argv = argv
        return Ran(code, out.getvalue(), err.getvalue())

    return run


@pytest.fixture(scope="session")
def cli() -> Callable[..., Ran]:
    """Run `benchcast …` through the same `main` as the entry point."""
    from benchcast.cli import main

    return as_function(main)


@pytest.fixture(scope="session")
def lab() -> Callable[..., Ran]:
    """Run `python -m lab …` through the same `main`."""
    from lab.commands import main

    return as_function(main)


@pytest.fixture(scope="session")
def world() -> World:
    """Five families of four sizes, two tasks, three sources of eight texts."""
    return plant(Plan(seed=3, families=5, sizes=4, checkpoints=1, tasks=2, texts_per_source=8))


@pytest.fixture(scope="session")
def dataset(world: World) -> Dataset:
    """The planted world as methods see it."""
    return make_dataset(world)


@pytest.fixture(scope="session")
def planted_folder(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The planted world on disk; not to be written to."""
    return write_study(world, tmp_path_factory.mktemp("planted") / "study").root


@pytest.fixture(scope="session")
def small_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four families of three sizes and one task, for claims about every method on every fold; not to be written to."""
    world = plant(Plan(seed=3, families=4, sizes=3, checkpoints=1, tasks=1, texts_per_source=4))
    return write_study(world, tmp_path_factory.mktemp("small") / "study").root


@pytest.fixture
def study(planted_folder: Path, tmp_path: Path) -> Study:
    """A copy of the planted study of one's own."""
    shutil.copytree(planted_folder, tmp_path / "study")
    return Study.open(tmp_path / "study")


@pytest.fixture(scope="session")
def tree() -> Callable[[Path], dict[str, str]]:
    """Every file below a folder with the hash of its content; the lock says nothing."""

    def hashes(root: Path) -> dict[str, str]:
        files = (p for p in root.rglob("*") if p.is_file() and p.name != ".lock")
        return {str(p.relative_to(root)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}

    return hashes


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of all six benchmarks, written by the test."""
    return write_benchmarks(tmp_path_factory.mktemp("benchmarks"))


@pytest.fixture(scope="session")
def benchmarks(written: Path) -> Path:
    """Pieces of the real benchmarks where they lie beside the repository, else the written ones."""
    return REAL if REAL.is_dir() else written
