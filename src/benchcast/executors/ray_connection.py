"""Connect to a Ray cluster, or raise ClusterError with the reason in one line."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from benchcast.errors import ClusterError, InputError, library

ANSWER_SECONDS = 5.0
TRIES = ("RAY_gcs_server_port_wait_time_s", "5")  # seconds that Ray tries to connect; its default is 20
# program of a process that prints its argument if its standard input ends without having held anything
WATCH = "import sys; sys.stdin.buffer.read() or print(sys.argv[1], file=sys.stderr)"
LOST = (
    "error: this command was ended, from outside or by Ray, which ends it when the cluster's head is lost; "
    "finished work is kept: when the cluster is up again (`ray status`), run the same command"
)
REFUSED = ("Unauthenticated", "AuthenticationError", "InvalidAuthToken")  # in Ray's errors about a wrong token


def ray_library() -> Any:
    """Import Ray after setting the environment variables that it reads at import."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # a worker without GPUs keeps its environment
    return library("ray", "ray")


def connect(ray: Any, address: str) -> None:
    """Connect to the cluster at `address`, else at RAY_ADDRESS, else to a new one on this machine."""
    target = address or os.environ.get("RAY_ADDRESS", "") or "local"
    options: dict[str, Any] = {"address": target}
    if target == "local":
        options["include_dashboard"] = False
    else:
        need_answer(target)
    try:
        with nullcontext() if target == "local" else _few_quiet_tries():
            ray.init(**options, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, ValueError, RuntimeError, OSError, ray.exceptions.RayError) as error:
        if any(sign in _whole_text(error) for sign in REFUSED):
            raise ClusterError(_refusal(target)) from error
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ClusterError(f"no Ray cluster at {target}: {lines[0]}") from error


def _refusal(address: str) -> str:
    mode, path = os.environ.get("RAY_AUTH_MODE", ""), os.environ.get("RAY_AUTH_TOKEN_PATH", "~/.ray/auth_token")
    has_token = bool(os.environ.get("RAY_AUTH_TOKEN")) or Path(path).expanduser().is_file()
    token = "the token here is not the cluster's" if has_token else "there is no token here"
    problem = token if mode.lower() == "token" else f"RAY_AUTH_MODE is {mode or 'not set'}, so no token was sent"
    return (
        f"the Ray cluster at {address} asks for a token (authentication), and {problem}; set RAY_AUTH_MODE=token, and "
        "RAY_AUTH_TOKEN or the file ~/.ray/auth_token to what `ray get-auth-token` prints on the head node"
    )


def _whole_text(error: BaseException | None) -> str:
    """Type and message of an error and of its causes."""
    return "" if error is None else f"{type(error).__name__} {error} {_whole_text(error.__cause__)}"


@contextmanager
def _few_quiet_tries() -> Iterator[None]:
    """Limit Ray's connection attempts, and drop its C++ messages about refused tokens from stderr."""
    name, value = TRIES
    previous = os.environ.get(name)
    os.environ[name] = previous or value
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as captured:
        os.dup2(captured.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            if previous is None:
                del os.environ[name]
            captured.seek(0)
            kept_lines = [line for line in captured if not any(sign.encode() in line for sign in REFUSED)]
            os.write(stderr, b"".join(kept_lines))
            os.close(stderr)


@contextmanager
def stdout_untouched(ray: Any) -> Iterator[None]:
    """Keep Ray from printing events of nodes to stdout, where a command prints its result.

    `log_to_driver=False` does not stop these messages, and no public setting does.
    """
    worker: Any = getattr(getattr(ray, "_private", None), "worker", None)
    before = getattr(worker, "_worker_logs_enabled", None)
    if before is None:  # another version of Ray
        yield
        return
    worker._worker_logs_enabled = False
    try:
        yield
    finally:
        worker._worker_logs_enabled = before


@contextmanager
def loss_reported() -> Iterator[None]:
    """Print one line if Ray ends this process, which it does in silence when its head or this node is lost.

    Nothing in this process can then run, so another one waits for the end of a pipe.
    """
    waiting = subprocess.Popen([sys.executable, "-c", WATCH, LOST], stdin=subprocess.PIPE, start_new_session=True)
    assert waiting.stdin is not None
    try:
        yield
    finally:
        with suppress(BrokenPipeError):
            waiting.stdin.write(b"done")
            waiting.stdin.close()
        waiting.wait()


def need_answer(address: str) -> None:
    """Raise ClusterError if nothing answers at an address; Ray itself would try for minutes."""
    if address.startswith(("http://", "https://", "ray://")):
        raise InputError(
            f"--address {address} is not for a driver; HOST:6379 is needed, or auto on a node of the cluster"
        )
    if address == "auto":
        mark = Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray" / "ray_current_cluster"
        if not mark.is_file():
            raise ClusterError("--address auto: no Ray cluster was started on this machine; see `ray start --help`")
        address = mark.read_text(encoding="utf-8").strip()
    host, sign, port = address.rpartition(":")
    if not sign or not port.isdigit():
        raise InputError(f"--address {address}; HOST:PORT is needed, such as head-node:6379, or auto")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ClusterError(f"no Ray cluster answers at {address} ({error}); is it up? (`ray status`)") from error
