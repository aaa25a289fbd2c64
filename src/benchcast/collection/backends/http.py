"""HTTP requests to one server: with retries, a deadline, a limit on the reply's size, and a key that stays secret.

The connections live in an event loop in a separate thread. Callers stay synchronous, also inside a notebook, and the
deadline covers everything from the name lookup to the last byte of the reply.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import random
import threading
import weakref
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlsplit

from benchcast.collection.backends.base import ModelSettings, SequenceError
from benchcast.errors import InputError, library

MOST_BYTES = 128 << 20  # largest reply; a million tokens with log-probabilities take about 80 MB
IDLE_SECONDS = 30.0  # an unused connection is closed after this time
AGAIN = (408, 409, 425, 429, 500, 502, 503, 504)  # statuses after which a request is repeated
FIRST_PAUSE = 0.5  # seconds; doubles with each try
LONGEST_PAUSE = 60.0
ROUTES = ("/v1/completions", "/completions", "/generate", "/v1")  # that users copy into base_url
KEYS = ("BENCHCAST_API_KEY", "OPENAI_API_KEY")
PERMISSION = "send_key_over_http"
Result = TypeVar("Result")


class BusyError(Exception):
    """A failure that may pass; `wait` is the server's Retry-After in seconds, 0 if it gave none."""

    def __init__(self, what: str, wait: float = 0.0) -> None:
        super().__init__(what)
        self.wait = wait


class SilentError(InputError):
    """The server gave no complete reply in any of the tries."""


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes


class Transport:
    """Connections to one server; closed when this object is garbage-collected."""

    def __init__(self, base_url: str, *, headers: Mapping[str, str], connections: int, proxies: bool) -> None:
        http = library("httpx2", "http")
        self._http, self._base_url = http, base_url
        self._client = http.AsyncClient(
            headers={"Accept-Encoding": "identity", **headers},
            limits=http.Limits(max_connections=connections, keepalive_expiry=IDLE_SECONDS),
            follow_redirects=False,  # a redirect would send the key to another host
            timeout=None,  # `exchange` sets the deadline
            trust_env=proxies,
        )
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=_serve, args=(self._loop, self._client), name="benchcast http", daemon=True).start()
        weakref.finalize(self, self._loop.call_soon_threadsafe, self._loop.stop)

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine in the event loop and wait for its result; an interrupt cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    async def exchange(self, route: str, data: bytes | None, *, seconds: float) -> Reply:
        """The reply to a POST of `data`, or to a GET if it is None; BusyError if none is complete after `seconds`."""
        body, method = bytearray(), "GET" if data is None else "POST"
        try:
            async with (
                asyncio.timeout(seconds),
                self._client.stream(method, self._base_url + route, content=data) as reply,
            ):
                async for chunk in reply.aiter_raw():
                    body += chunk
                    if len(body) > MOST_BYTES:
                        raise InputError(f"{self._base_url}{route}: the reply is larger than {MOST_BYTES >> 20} MiB")
        except TimeoutError:
            raise BusyError(f"no whole reply in {seconds:g} s") from None
        except self._http.InvalidURL as error:
            raise InputError(f"base_url={self._base_url}: {error}") from None
        except (self._http.RequestError, OSError) as error:
            raise BusyError(f"{type(error).__name__} {error}".strip()) from None
        return Reply(status=reply.status_code, reason=reply.reason_phrase, headers=reply.headers, body=bytes(body))


def _serve(loop: asyncio.AbstractEventLoop, client: Any) -> None:
    """Run the event loop until it is stopped, then close the connections."""
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(client.aclose())
    finally:
        loop.close()


class Client:
    """Connection to one server."""

    def __init__(self, settings: ModelSettings) -> None:
        """Read base_url, timeout, max_retries, num_concurrent and send_key_over_http."""
        url = settings.needed("base_url", "http://localhost:8000").rstrip("/")
        parts = _split(url, settings.where)
        for route in ROUTES:
            url = url.removesuffix(route)
        self.base_url = url
        self.timeout = settings.number("timeout", 300.0)  # seconds for one complete reply
        self.tries = settings.whole("max_retries", 6)
        self.concurrent = settings.whole("num_concurrent", 4)  # requests at a time
        self._local = is_local(parts.hostname or "")
        self._may_send = parts.scheme == "https" or self._local or bool(settings.flag(PERMISSION, False))

    def post(self, route: str, body: dict[str, Any]) -> dict[str, Any]:
        """The reply to a POST request, with retries."""
        return self._transport.run(self._patiently(route, json.dumps(body).encode()))

    def post_all(self, route: str, bodies: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The replies to several POST requests, in order; the first failure cancels the others."""
        return self._transport.run(self._all(route, [json.dumps(body).encode() for body in bodies]))

    def get(self, route: str) -> dict[str, Any]:
        """The reply to a GET request; empty if the server refuses it, SilentError if it does not answer.

        A server that is down must not look like one without a version: the version is stored with the losses.
        """
        try:
            return self._transport.run(self._patiently(route, None))
        except SilentError:
            raise
        except InputError:
            return {}

    @cached_property
    def _key(self) -> str:
        """The API key from the environment, empty if there is none."""
        name = next((name for name in KEYS if os.environ.get(name, "").strip()), "")
        key = os.environ[name].strip() if name else ""
        if not key.isascii() or not key.isprintable():
            raise InputError(f"{name}: it has characters that are not allowed in an HTTP header")
        return key

    @cached_property
    def _transport(self) -> Transport:
        headers = {"Content-Type": "application/json"}
        if self._key and self._may_send:
            headers["Authorization"] = f"Bearer {self._key}"
        # no proxy for this machine: it could not reach it and would see the key
        return Transport(self.base_url, headers=headers, connections=self.concurrent, proxies=not self._local)

    async def _all(self, route: str, requests: Sequence[bytes]) -> list[dict[str, Any]]:
        gate = asyncio.Semaphore(self.concurrent)

        async def ask(index: int, data: bytes) -> dict[str, Any]:
            async with gate:
                try:
                    return await self._patiently(route, data)
                except InputError as error:
                    raise SequenceError(index, str(error)) from error

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(ask(i, data)) for i, data in enumerate(requests)]
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _patiently(self, route: str, data: bytes | None) -> dict[str, Any]:
        last = ""
        for turn in range(self.tries):
            try:
                return await self._once(route, data)
            except BusyError as error:
                last = self._hidden(str(error))
                if turn + 1 < self.tries:
                    pause = FIRST_PAUSE * 2**turn * random.uniform(0.8, 1.2)
                    await asyncio.sleep(min(LONGEST_PAUSE, max(pause, error.wait)))
        raise SilentError(
            f"{self.base_url}{route}: no whole reply in {self.tries} tries, last: {last}; "
            "is the server up? (the same command continues where it stopped)"
        )

    async def _once(self, route: str, data: bytes | None) -> dict[str, Any]:
        reply = await self._transport.exchange(route, data, seconds=self.timeout)
        if reply.status >= 300:
            self._refuse(route, reply)
        try:
            parsed = json.loads(reply.body)
        except ValueError:
            raise BusyError("the reply is not complete JSON") from None
        except RecursionError:
            raise InputError(f"{self.base_url}{route}: the reply is nested too deeply") from None
        if not isinstance(parsed, dict):
            raise BusyError(f"the reply is {type(parsed).__name__}, not a JSON object")
        return parsed

    def _refuse(self, route: str, reply: Reply) -> None:
        """Raise the error for a status other than success."""
        message = _printable(reply.body[:2000].decode(errors="replace")) or _printable(reply.reason)
        status = f"status {reply.status}: {self._hidden(message)}"
        if reply.status in AGAIN:
            wait = reply.headers.get("Retry-After", "").strip()
            raise BusyError(status, float(wait) if wait.isascii() and wait.isdigit() else 0.0)
        where = f"{self.base_url}{route}"
        if reply.status < 400:
            target = self._hidden(_printable(reply.headers.get("Location", "")))
            raise InputError(
                f"{where}: status {reply.status}: it redirects to {target}; give base_url=… of that server"
            )
        withheld = self._key and not self._may_send and reply.status in (401, 403)
        hint = f"; the key is not sent over plain http, use https or {PERMISSION}=true" if withheld else ""
        raise InputError(f"{where}: {status}{hint}")

    def _hidden(self, text: str) -> str:
        return text.replace(self._key, "…") if self._key else text


def _split(url: str, where: str) -> SplitResult:
    """The parts of a base_url; InputError if it is not usable."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # invalid port or bracketed address
        usable = False
    if not usable:
        raise InputError(f"{where}: base_url={url}; http://HOST:PORT is needed")
    if parts.username or parts.password or parts.query:
        raise InputError(f"{where}: base_url must hold no key; put it into {KEYS[0]} in the environment")
    return parts


def is_local(host: str) -> bool:
    """Whether a host is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _printable(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:200]
