"""JSON over HTTP with retries: a server that dies, stalls or sends half a reply is asked again, up to a bound.

A key comes from the environment only and appears in no message. It is sent to the host of base_url alone, over https
or to this machine; redirects are not followed.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import random
from collections.abc import Sequence
from functools import cached_property
from typing import Any
from urllib.parse import SplitResult, urlsplit

from benchcast.backends.base import ModelSettings, SequenceError
from benchcast.backends.transport import ExchangeError, Reply, Transport
from benchcast.errors import InputError

KEYS = ("BENCHCAST_API_KEY", "OPENAI_API_KEY")
AGAIN = (408, 409, 425, 429, 500, 502, 503, 504)
FIRST_PAUSE = 0.5  # seconds; doubles with each try
LONGEST_PAUSE = 60.0
ROUTES = ("/v1/completions", "/completions", "/generate", "/v1")
PERMISSION = "send_key_over_http"


class BusyError(Exception):
    """The server may answer if asked again; carries how long it wants to be left alone, 0 where it did not say."""

    def __init__(self, what: str, wait: float = 0.0) -> None:
        super().__init__(what)
        self.wait = wait


class SilentError(InputError):
    """The server gave no whole reply, however often it was asked."""


class Client:
    """One server."""

    def __init__(self, settings: ModelSettings) -> None:
        """From base_url, timeout, max_retries, num_concurrent and send_key_over_http."""
        url = settings.needed("base_url", "http://localhost:8000").rstrip("/")
        parts = _split(url, settings.where)
        for route in ROUTES:
            url = url.removesuffix(route)
        self.base_url = url
        self.timeout = settings.number("timeout", 300.0)  # seconds for one whole reply
        self.tries = settings.whole("max_retries", 6)
        self.concurrent = settings.whole("num_concurrent", 4)  # requests at a time
        self._local = is_local(parts.hostname or "")
        self._may_send = parts.scheme == "https" or self._local or bool(settings.flag(PERMISSION, False))

    def post(self, route: str, body: dict[str, Any]) -> dict[str, Any]:
        """The reply to a request, however often it takes."""
        return self._transport.run(self._patiently(route, json.dumps(body).encode()))

    def post_all(self, route: str, bodies: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The replies to several requests, in their order; the first that fails ends the others."""
        return self._transport.run(self._all(route, [json.dumps(body).encode() for body in bodies]))

    def get(self, route: str) -> dict[str, Any]:
        """A small piece of information; empty where the server has none, an error where it is silent.

        A server that is down must not be taken for one that has no version: what was scored is told by it.
        """
        try:
            return self._transport.run(self._patiently(route, None))
        except SilentError:
            raise
        except InputError:
            return {}

    @cached_property
    def _key(self) -> str:
        return api_key()

    @cached_property
    def _transport(self) -> Transport:
        headers = {"Content-Type": "application/json"}
        if self._key and self._may_send:
            headers["Authorization"] = f"Bearer {self._key}"
        # a proxy of the environment is not for this machine, and would see the key
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
                last = str(error)
                if turn + 1 < self.tries:
                    pause = FIRST_PAUSE * 2**turn * random.uniform(0.8, 1.2)
                    await asyncio.sleep(min(LONGEST_PAUSE, max(pause, error.wait)))
        raise SilentError(
            f"{self.base_url}{route}: no whole reply in {self.tries} tries, last: {last}; "
            "is the server up? (the same command goes on where it stopped)"
        )

    async def _once(self, route: str, data: bytes | None) -> dict[str, Any]:
        try:
            reply = await self._transport.exchange(route, data, seconds=self.timeout)
        except ExchangeError as error:
            raise BusyError(self._hidden(str(error))) from None
        if reply.status >= 300:
            self._refuse(route, reply)
        return self._parsed(route, reply.body)

    def _refuse(self, route: str, reply: Reply) -> None:
        """Raise what a status other than success means."""
        said = f"status {reply.status}: {self._hidden(_message(reply))}"
        if reply.status in AGAIN:
            raise BusyError(said, _seconds(reply.headers.get("Retry-After")))
        where = f"{self.base_url}{route}"
        if reply.status < 400:
            target = self._hidden(_printable(reply.headers.get("Location", "")))
            raise InputError(
                f"{where}: status {reply.status}: it redirects to {target}; give base_url=… of that server"
            )
        withheld = self._key and not self._may_send and reply.status in (401, 403)
        hint = f"; the key is not sent over plain http, use https or {PERMISSION}=true" if withheld else ""
        raise InputError(f"{where}: {said}{hint}")

    def _parsed(self, route: str, body: bytes) -> dict[str, Any]:
        try:
            found = json.loads(body)
        except ValueError:
            raise BusyError("half a reply, or no JSON") from None
        except RecursionError:
            raise InputError(f"{self.base_url}{route}: a reply that is nested too deeply") from None
        if not isinstance(found, dict):
            raise BusyError(f"a reply that is no object but {type(found).__name__}")
        return found

    def _hidden(self, text: str) -> str:
        return text.replace(self._key, "…") if self._key else text


def _split(url: str, where: str) -> SplitResult:
    """The parts of a base_url that can be used."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port or an address in brackets that is none
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


def api_key() -> str:
    """The key of the environment, empty where there is none."""
    name = next((name for name in KEYS if os.environ.get(name, "").strip()), "")
    key = os.environ[name].strip() if name else ""
    if not key.isascii() or not key.isprintable():
        raise InputError(f"{name}: it holds characters that an HTTP header cannot carry")
    return key


def _message(reply: Reply) -> str:
    """What the server says about its refusal, in one short line."""
    return _printable(reply.body[:2000].decode(errors="replace")) or _printable(reply.reason)


def _printable(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:200]


def _seconds(header: str | None) -> float:
    text = (header or "").strip()
    return float(text) if text.isascii() and text.isdigit() else 0.0
