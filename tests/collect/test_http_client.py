"""The HTTP client: where a key goes, how long a reply may take, how large it may be, how many connections are made."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator

import pytest

pytest.importorskip("httpx2")

from odd_servers import OddServer, endless, odd_server, reply, trickle

from benchcast.collection.backends import http
from benchcast.collection.backends.base import ModelSettings, SequenceError
from benchcast.collection.backends.http import Client, is_local
from benchcast.errors import InputError


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "FIRST_PAUSE", 0.01)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-s3cret")
    monkeypatch.delenv("BENCHCAST_API_KEY", raising=False)
    monkeypatch.delenv("HTTP_PROXY", raising=False)


def client(url: str, **settings: str) -> Client:
    return Client(ModelSettings({"base_url": url, "timeout": "5", "max_retries": "1", **settings}))


@pytest.fixture
def plain() -> Iterator[OddServer]:
    with odd_server(reply(b'{"a": 1}')) as server:
        yield server


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed_and_carries_no_key(status: int, plain: OddServer) -> None:
    with odd_server(reply(b"", status, Location=f"{plain.url}/v1/completions")) as redirecting:
        with pytest.raises(InputError, match=rf"status {status}: it redirects to {plain.url}.*give base_url=") as error:
            client(redirecting.url).post("/x", {})
        assert redirecting.seen[0]["Authorization"] == "Bearer sk-s3cret"
    assert plain.seen == []
    assert "s3cret" not in str(error.value)


def test_a_key_goes_over_plain_http_to_this_machine_alone(plain: OddServer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert client(plain.url).post("/x", {}) == {"a": 1}
    monkeypatch.setattr(http, "is_local", lambda host: False)
    assert client(plain.url).post("/x", {}) == {"a": 1}
    assert client(plain.url, send_key_over_http="true").post("/x", {}) == {"a": 1}
    assert [seen.get("Authorization") for seen in plain.seen] == ["Bearer sk-s3cret", None, "Bearer sk-s3cret"]


def test_a_server_that_misses_the_key_is_an_error_that_says_why_it_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "is_local", lambda host: False)
    with odd_server(reply(b"who are you?", 401)) as server:
        with pytest.raises(
            InputError, match=r"status 401: who are you\?; the key is not sent over plain http, use https"
        ):
            client(server.url).post("/x", {})
        with pytest.raises(InputError, match=r"status 401: who are you\?$"):
            client(server.url, send_key_over_http="true").post("/x", {})


@pytest.mark.parametrize(
    ("host", "local"),
    [("localhost", True), ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("api.localhost", True),
     ("10.0.0.1", False), ("example.com", False), ("localhost.example.com", False), ("127.0.0.1.example.com", False)],
)  # fmt: skip
def test_only_loopback_addresses_are_local(host: str, local: bool) -> None:
    assert is_local(host) == local


def test_a_proxy_of_the_environment_does_not_see_requests_to_this_machine(
    plain: OddServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with odd_server(reply(b"{}")) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("NO_PROXY", "")
        assert client(plain.url).post("/x", {}) == {"a": 1}
        assert proxy.seen == []


@pytest.mark.parametrize("key", ["sk\n-x", "sk-ü", "sk-\x00"])
def test_a_key_that_no_header_can_carry_is_named_and_not_shown(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "\x00" in key:
        monkeypatch.setattr(http.os, "environ", {"OPENAI_API_KEY": key})
    else:
        monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(InputError, match="OPENAI_API_KEY: it has characters") as error:
        client("http://localhost:1").post("/x", {})
    assert key not in str(error.value)


@pytest.mark.parametrize("headers", [True, False], ids=["headers", "body"])
def test_a_server_that_trickles_does_not_outlive_the_timeout(headers: bool) -> None:
    with odd_server(trickle(headers=headers)) as server:
        began = time.monotonic()
        with pytest.raises(InputError, match=r"no whole reply in 2 tries, last: no whole reply in 0.5 s"):
            client(server.url, timeout="0.5", max_retries="2").post("/x", {})
        assert 1.0 <= time.monotonic() - began < 2.5


def test_a_reply_without_end_is_cut_off_and_not_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MOST_BYTES", 3 << 20)
    with odd_server(endless()) as server:
        with pytest.raises(InputError, match=r"/x: the reply is larger than 3 MiB"):
            client(server.url, max_retries="6").post("/x", {})
        assert len(server.seen) == 1


def test_connections_are_used_again_and_are_no_more_than_asked_for(plain: OddServer) -> None:
    asked = client(plain.url, num_concurrent="3")
    for _ in range(4):
        assert asked.post_all("/x", [{"n": i} for i in range(10)]) == [{"a": 1}] * 10
    assert asked.get("/version") == {"a": 1}
    assert len(plain.seen) == 41
    assert plain.connections <= 3


def test_replies_come_in_the_order_of_requests_and_the_first_failure_is_named() -> None:
    count = iter(range(100))

    def answer(handler: object) -> None:
        number = next(count)
        reply(b'{"a": 1}' if number != 2 else b"no", 200 if number != 2 else 400)(handler)  # type: ignore[arg-type]

    with odd_server(answer) as server, pytest.raises(SequenceError, match="status 400: no") as error:
        client(server.url, num_concurrent="1").post_all("/x", [{}] * 5)
    assert error.value.index == 2
    assert len(server.seen) <= 4, "at most one more was under way"


def test_the_thread_of_a_client_ends_with_it(plain: OddServer) -> None:
    before = set(threading.enumerate())
    asked = client(plain.url)
    assert asked.get("/x") == {"a": 1}
    (thread,) = [t for t in threading.enumerate() if t not in before and t.name == "benchcast http"]
    del asked
    gc.collect()
    thread.join(timeout=5)
    assert not thread.is_alive()


@pytest.mark.parametrize("url", ["http://h:x", "http://h:99999", "http://[::1", "ftp://h", "http://", "http:/h"])
def test_addresses_that_cannot_be_used_are_named(url: str) -> None:
    with pytest.raises(InputError, match="http://HOST:PORT is needed"):
        client(url)


def test_what_a_server_says_is_one_printable_line() -> None:
    with (
        odd_server(reply(b"\x1b[31mno\x1b[0m\r\nway\x00\xff", 400)) as server,
        pytest.raises(InputError, match=r"status 400: \[31mno \[0m way �$"),
    ):
        client(server.url).post("/x", {})
