"""A small synthetic world and its study, and the command line as a function."""

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

from benchcast.losses.dataset import Dataset
from benchcast.study.study import Study
from benchmark_files import REAL, write_benchmarks
from synthetic import Plan, World, make_world, write_study
from worlds import make_dataset

PUBLIC = Path(__file__).resolve().parents[2] / "shared" / "real_models" / "raw"
if PUBLIC.is_dir():
    os.environ.setdefault("BENCHCAST_DATA", str(PUBLIC))  # public files that lie beside the checkout

settings.register_profile("shared", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("shared")


# Files that take longest, in CPU time or waiting: they begin first, so that no process is alone with one at the end.
SLOWEST = (
    "collect/test_collect_cli.py", "cluster/test_cluster_collect.py", "cluster/test_cluster_driver.py",
    "cluster/test_cluster.py", "collect/test_bounds.py", "collect/test_hf_backend.py", "core/test_methods.py",
    "lab/reproduce/test_reproduce_commands.py", "lab/paper/test_rehearsal.py", "core/test_cli_path.py",
    "core/test_doctests.py", "walk/test_new_user.py", "live/test_watch.py", "live/test_ranks.py",
    "report/test_report.py", "logs/test_logs_docs.py", "datasets/test_datasets.py", "extrapolation/test_extrapolate.py",
)  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "integrations: needs other tools; run by `make test-integrations`")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the slowest files first; the order within a file stays. Skip tests that need other tools."""
    here = Path(__file__).parent
    rank = {(here / name).resolve(strict=True): number for number, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: rank.get(item.path, len(SLOWEST)))
    if "integrations" not in (config.option.markexpr or ""):
        for item in items:
            if item.get_closest_marker("integrations"):
                item.add_marker(pytest.mark.skip(reason="integrations run by `make test-integrations`"))


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
    return make_world(Plan(seed=3, families=5, sizes=4, checkpoints=1, tasks=2, texts_per_source=8))


@pytest.fixture(scope="session")
def dataset(world: World) -> Dataset:
    """The synthetic world as methods see it."""
    return make_dataset(world)


@pytest.fixture(scope="session")
def synthetic_folder(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The synthetic world on disk; not to be written to."""
    return write_study(world, tmp_path_factory.mktemp("synthetic") / "study").root


@pytest.fixture(scope="session")
def small_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four families of three sizes and one task, for claims about every method on every fold; not to be written to."""
    world = make_world(Plan(seed=3, families=4, sizes=3, checkpoints=1, tasks=1, texts_per_source=4))
    return write_study(world, tmp_path_factory.mktemp("small") / "study").root


@pytest.fixture
def study(synthetic_folder: Path, tmp_path: Path) -> Study:
    """A copy of the synthetic study of one's own."""
    shutil.copytree(synthetic_folder, tmp_path / "study")
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
