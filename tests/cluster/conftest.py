"""A real Ray cluster of two nodes on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from ray_nodes import ENVIRONMENT, HERE, Nodes


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """Two nodes with a CPU each, and a head that does no work."""
    command = [sys.executable, str(HERE / "nodes.py"), "2"]
    with subprocess.Popen(
        command, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        yield Nodes(process, json.loads(process.stdout.readline()))
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=60)


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
