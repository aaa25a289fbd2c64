"""Public files over a real connection: whole and checked, or one clear error and nothing left behind."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from benchcast.datasets import download as module
from benchcast.datasets.download import PublicFile, cache_folder, data_folder, fetch_files, public_files
from benchcast.errors import BenchcastError

CONTENT = b"model,loss\n" + b"a,1.5\n" * 1000
FILE = PublicFile("me/tables", "c0ffee", "data/losses.csv", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


class Server(ThreadingHTTPServer):
    """Answers as it is told to, and remembers what it was asked."""

    mode = "fine"
    asked: list[str]

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that gave up is no news."""


class Answer(BaseHTTPRequestHandler):
    """One request."""

    server: Server

    def do_GET(self) -> None:
        mode, body = self.server.mode, CONTENT
        self.server.asked.append(self.path)
        if mode == "slow":
            time.sleep(1.5)
        if mode == "circle":
            self.send_response(302)
            self.send_header("Location", self.path)
            self.end_headers()
            return
        if mode == "missing" or self.path != "/me/tables/c0ffee/data/losses.csv":
            self.send_error(404)
            return
        said = len(body)
        body = {"altered": b"x" + CONTENT[1:], "long": CONTENT + b"more", "truncated": CONTENT[:100]}.get(mode, body)
        self.send_response(200)
        self.send_header("Content-Length", str(said if mode == "truncated" else len(body)))
        self.end_headers()
        for part in [body[i : i + 100] for i in range(0, len(body), 100)] if mode == "trickle" else [body]:
            self.wfile.write(part)
            time.sleep(0.05 * (mode == "trickle"))

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    server = Server(("127.0.0.1", 0), Answer)
    server.asked = []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setattr(module, "ADDRESS", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def fetch(folder: Path) -> None:
    fetch_files([FILE], folder, lambda path: None)


def test_a_file_lies_under_its_repository_and_path(server, tmp_path):
    fetch(tmp_path)
    assert (tmp_path / "tables" / "data" / "losses.csv").read_bytes() == CONTENT


def test_what_is_there_is_not_asked_for_again(server, tmp_path):
    fetch(tmp_path)
    fetch(tmp_path)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("missing", r"cannot be downloaded \(404 Not Found\)"),
        ("truncated", f"100 of {len(CONTENT)} bytes were received"),
        ("long", f"more than {len(CONTENT)} bytes were received"),
        ("altered", f"altered: its sha256 is not {FILE.sha256[:16]}"),
        ("circle", "cannot be downloaded .*infinite loop"),
        ("slow", "cannot be downloaded .*timed out"),
        ("trickle", r"cannot be downloaded \(\d+ bytes in 1 seconds\)"),
    ],
)
def test_a_bad_download_is_one_clear_error_and_leaves_nothing(server, tmp_path, monkeypatch, mode, said):
    server.mode = mode
    monkeypatch.setattr(module, "SECONDS", 0.5)
    monkeypatch.setattr(module, "MOST_SECONDS", 1.0)
    monkeypatch.delenv("BENCHCAST_DATA", raising=False)
    with pytest.raises(BenchcastError, match=said) as error:
        fetch(tmp_path)
    assert "\n" not in str(error.value)
    assert "set BENCHCAST_DATA to a folder that has tables/data/losses.csv" in str(error.value)
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []
    server.mode = "fine"
    fetch(tmp_path)
    assert (tmp_path / FILE.place).is_file()


def test_a_folder_that_lacks_the_file_is_named(server, tmp_path, monkeypatch):
    """The advice to set the variable said nothing of what it is set to."""
    server.mode = "missing"
    monkeypatch.setenv("BENCHCAST_DATA", "/mistyped")
    with pytest.raises(BenchcastError, match=r"set BENCHCAST_DATA \(now /mistyped\) to a folder that has tables/data"):
        fetch(tmp_path)


def test_no_server_is_one_clear_error(server, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ADDRESS", "http://127.0.0.1:9")
    with pytest.raises(BenchcastError, match=r"^http://127.0.0.1:9/me/tables/\S+: cannot be downloaded \(.*refused"):
        fetch(tmp_path)
    assert not list(tmp_path.rglob("*"))


def test_a_file_that_was_altered_on_disk_is_refused_and_kept(server, tmp_path):
    fetch(tmp_path)
    (tmp_path / FILE.place).write_bytes(b"mine")
    with pytest.raises(BenchcastError, match=r"not the file of me/tables at c0ffee: sha256 .* remove it to download"):
        fetch(tmp_path)
    assert (tmp_path / FILE.place).read_bytes() == b"mine"


def test_data_home_goes_before_the_variable_and_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("BENCHCAST_DATA", raising=False)
    assert data_folder(None) == tmp_path / "cache" / "benchcast" / "files"
    monkeypatch.setenv("BENCHCAST_DATA", "/given")
    assert data_folder(None) == Path("/given")
    assert data_folder("/home") == Path("/home")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "benchcast"


@pytest.mark.parametrize("name", ["olmo-ladder", "dclm", "public-llms"])
def test_public_files_are_pinned_by_commit_size_and_hash(name):
    for file in public_files(name):
        assert len(file.commit) == 40
        assert len(file.sha256) == 64
        assert file.size > 0
        assert file.url.startswith(f"https://raw.githubusercontent.com/{file.repository}/{file.commit}/")


@pytest.mark.parametrize("name", ["olmo-ladder", "dclm", "public-llms"])
def test_files_at_hand_are_the_pinned_ones(name, raw):
    for file in public_files(name):
        module.check_file(raw / file.place, file)
