"""A real cluster that asks for a token: without it the error names authentication and what to set."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ray_nodes import ENVIRONMENT, HERE

pytestmark = pytest.mark.slow

TOKEN = "a" * 64
FIX = (
    "set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or the file ~/.ray/auth_token to what `ray get-auth-token` prints "
    "on the head node"
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home folder without a token."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def address(home: Path) -> Iterator[str]:
    command = [sys.executable, str(HERE / "nodes.py"), "0"]
    environment = ENVIRONMENT | {"HOME": str(home), "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env=environment, text=True, **pipes) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=60)


def connected(address: str, home: Path, **more: str) -> tuple[str, str]:
    """The error of a driver that connects and does nothing, and its stderr."""
    known = {k: v for k, v in ENVIRONMENT.items() if not k.startswith("RAY_AUTH")}
    environment = known | {"HOME": str(home), "RAY_gcs_server_port_wait_time_s": "2", **more}
    command = [sys.executable, HERE / "drive.py", address, "square", "0", str(home)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=True)
    return json.loads(ran.stdout.splitlines()[-1])["error"], ran.stderr


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, "RAY_AUTH_MODE is not set, so no token was sent"),
        ({"RAY_AUTH_TOKEN": TOKEN}, "RAY_AUTH_MODE is not set, so no token was sent"),
        ({"RAY_AUTH_MODE": "token"}, "there is no token here"),
        ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "b" * 64}, "the token here is not the cluster's"),
    ],
    ids=["nothing", "no mode", "no token", "wrong token"],
)
def test_a_driver_without_the_token_is_told_so(address: str, home: Path, settings: dict[str, str], why: str) -> None:
    began = time.monotonic()
    error, noise = connected(address, home, **settings)
    said = f"the Ray cluster at {address} asks for a token (authentication), and {why}; {FIX}"
    assert (error, noise) == (f"ClusterError: {said}", "")
    assert time.monotonic() - began < 15, "Ray alone takes 20 s"


def test_a_driver_with_the_token_connects(address: str, home: Path) -> None:
    assert connected(address, home, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=TOKEN) == ("", "")


def test_on_a_node_of_the_cluster_the_token_is_found(address: str, tmp_path: Path) -> None:
    for path, text in {".ray/auth_token": TOKEN, "ray/ray_current_cluster": address}.items():
        (tmp_path / path).parent.mkdir()
        (tmp_path / path).write_text(text)
    assert connected("auto", tmp_path, RAY_TMPDIR=str(tmp_path)) == ("", "")
