"""Real models, fetched once and converted once; a fake one for everything that is not about models."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import convert
import fetch
import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads that wait for each other crawl on a shared machine

FETCHED = {"smollm2", "smollm2_gguf", "gemma", "stories", "real_model", "real_models"}  # fixtures of real models


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "backends: needs a real vLLM or llama.cpp; run by `-m backends`")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A test of a model that is fetched is slow, and real backends run only where they are asked for."""
    for item in items:
        if not FETCHED.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
    if "backends" in (config.option.markexpr or ""):
        return
    for item in items:
        if item.get_closest_marker("backends"):
            item.add_marker(pytest.mark.skip(reason="real backends run by `-m backends`"))


def reach(get: Callable[[], Path]) -> Path:
    """What `get` fetches, or a skip that says why it is out of reach."""
    try:
        return get()
    except fetch.OutOfReachError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def smollm2() -> Path:
    return reach(convert.smollm2)


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    return reach(fetch.smollm2_gguf)


@pytest.fixture(scope="session")
def gemma() -> Path:
    return reach(convert.gemma)


@pytest.fixture(scope="session")
def stories() -> Path:
    return reach(convert.stories)
