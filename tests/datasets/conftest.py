"""Public studies from files at hand, kept in a cache of the test run's own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The user's cache is not touched; processes that share the tests share this one."""
    base = tmp_path_factory.getbasetemp()
    place = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(place / "cache"))
        yield Path(os.environ["XDG_CACHE_HOME"])


@pytest.fixture(scope="session")
def raw() -> Path:
    """The folder of public files."""
    if "BENCHCAST_DATA" not in os.environ:
        pytest.skip("BENCHCAST_DATA is not set: no public files at hand")
    return Path(os.environ["BENCHCAST_DATA"])


@pytest.fixture(scope="session")
def derived(raw: Path) -> Path:
    """Tables that somebody else made of the same files."""
    if not (raw.parent / "dclm" / "losses.csv").is_file():
        pytest.skip("no derived tables beside BENCHCAST_DATA")
    return raw.parent
