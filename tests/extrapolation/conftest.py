"""A small synthetic study of runs: families × sizes × checkpoints."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from benchcast.study.study import Study
from synthetic import Plan, World, make_world, write_study


@pytest.fixture(scope="session")
def world() -> World:
    return make_world(Plan(seed=5, families=4, sizes=4, checkpoints=4, tasks=2, texts_per_source=6))


@pytest.fixture(scope="session")
def runs_folder(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_study(world, tmp_path_factory.mktemp("runs") / "study").root


@pytest.fixture
def study(runs_folder: Path, tmp_path: Path) -> Study:
    shutil.copytree(runs_folder, tmp_path / "study")
    return Study.open(tmp_path / "study")
