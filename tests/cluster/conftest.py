"""A real Ray cluster of two nodes on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from ray_nodes import Nodes, starting


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """Two nodes with a CPU each, and a head that does no work."""
    with starting(2) as cluster:
        yield cluster


@pytest.fixture
def locally(cli: Callable[..., Any]) -> Callable[..., None]:
    """Run commands without Ray, on one thread as there."""

    def run(*commands: list[object]) -> None:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        for command in commands:
            ran = cli(*command)
            assert ran.code == 0, ran.err
        torch.set_num_threads(threads)

    return run
