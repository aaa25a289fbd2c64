"""Recorded logs, and studies that were made from them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from log_files import FAMILIES, METRIC, NEW


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A copy of the logs of ten models by lm-eval 0.4.13, to change."""
    return Path(shutil.copytree(NEW, tmp_path / "logs"))


@pytest.fixture(scope="session")
def logged(cli, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of all ten models with their families; not to be written to."""
    root = tmp_path_factory.mktemp("logged")
    assert cli("init", root / "study", "--from-lm-eval", NEW, *METRIC).code == 0
    (root / "models.csv").write_text(FAMILIES, encoding="utf-8")
    assert cli("import", "models", root / "study", root / "models.csv").code == 0
    return root / "study"
