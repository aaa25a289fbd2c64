"""HTTP requests over pooled connections, each with a deadline and a limit on the reply's size.

The connections live in an event loop in a separate thread. Callers stay synchronous, also inside a notebook, and the
deadline covers everything from the name lookup to the last byte of the reply.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from benchcast.errors import InputError
from benchcast.extras import library

MOST_BYTES = 128 << 20  # largest reply; a million tokens with log-probabilities take about 80 MB
IDLE_SECONDS = 30.0  # an unused connection is closed after this time
Result = TypeVar("Result")


class BusyError(Exception):
    """A failure that may pass; `wait` is the server's Retry-After in seconds, 0 if it gave none."""

    def __init__(self, what: str, wait: float = 0.0) -> None:
        super().__init__(what)
        self.wait = wait


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete reply."""

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
        try:
            async with asyncio.timeout(seconds):
                return await self._exchange(route, data)
        except TimeoutError:
            raise BusyError(f"no whole reply in {seconds:g} s") from None
        except self._http.InvalidURL as error:
            raise InputError(f"base_url={self._base_url}: {error}") from None
        except (self._http.RequestError, OSError) as error:
            raise BusyError(f"{type(error).__name__} {error}".strip()) from None

    async def _exchange(self, route: str, data: bytes | None) -> Reply:
        body = bytearray()
        method = "GET" if data is None else "POST"
        async with self._client.stream(method, self._base_url + route, content=data) as reply:
            async for chunk in reply.aiter_raw():
                body += chunk
                if len(body) > MOST_BYTES:
                    raise InputError(f"{self._base_url}{route}: the reply is larger than {MOST_BYTES >> 20} MiB")
            return Reply(reply.status_code, reply.reason_phrase, reply.headers, bytes(body))


def _serve(loop: asyncio.AbstractEventLoop, client: Any) -> None:
    """Run the event loop until it is stopped, then close the connections."""
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(client.aclose())
    finally:
        loop.close()
