"""A real Ray cluster on this machine, and commands that run on it in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ENVIRONMENT = {
    **os.environ,
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # keeps it on 127.0.0.1
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_failure_threshold": "3",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]),
}


@dataclass(frozen=True)
class Nodes:
    """The cluster's process, and its address."""

    process: subprocess.Popen[str]
    address: str

    def send(self, command: str) -> Any:
        """Have something done to the nodes."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def drive(self, function: str, count: int, folder: Path) -> Any:
        """Run jobs of work.py; what came of them."""
        return json.loads(self.start_driving(function, count, folder).communicate(timeout=500)[0].splitlines()[-1])

    def start_driving(self, function: str, count: int, folder: Path) -> subprocess.Popen[str]:
        """The same without waiting."""
        command = [sys.executable, HERE / "drive.py", self.address, function, str(count), folder]
        return subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def benchcast(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """`benchcast … --executor ray` on the cluster."""
        return self.start(*arguments).wait_for()

    def start(self, *arguments: object) -> Started:
        """The same without waiting."""
        ray_arguments = [*map(str, arguments), "--executor", "ray", "--address", self.address]
        return Started(spawn(ray_arguments))


@contextmanager
def starting(count: int, gpus: int = 0) -> Iterator[Nodes]:
    """A cluster of some nodes with a CPU each, and a head that does no work."""
    command = [sys.executable, str(HERE / "nodes.py"), str(count), str(gpus)]
    with subprocess.Popen(
        command, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        yield Nodes(process, json.loads(process.stdout.readline()))
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=60)


@dataclass(frozen=True)
class Started:
    """A command that is running."""

    process: subprocess.Popen[str]

    def wait_for(self) -> subprocess.CompletedProcess[str]:
        """What it said, once it is through."""
        out, err = self.process.communicate(timeout=500)
        return subprocess.CompletedProcess([], self.process.returncode, out, err)


def spawn(arguments: list[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from benchcast.cli import main; main()", *arguments]
    return subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
