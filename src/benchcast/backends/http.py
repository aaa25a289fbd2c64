"""JSON over HTTP with patience: a server that dies, stalls or answers half a reply is asked again, up to a bound.

A key comes from the environment only and is in no message.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from benchcast.backends.base import Settings
from benchcast.errors import InputError

KEYS = ("BENCHCAST_API_KEY", "OPENAI_API_KEY")
AGAIN = (408, 409, 425, 429, 500, 502, 503, 504)
FIRST_PAUSE = 0.5  # seconds; doubles with each try
LONGEST_PAUSE = 60.0
ROUTES = ("/v1/completions", "/completions", "/generate", "/v1")


class BusyError(Exception):
    """The server may answer if asked again; carries how long it wants to be left alone, 0 where it did not say."""

    def __init__(self, what: str, wait: float = 0.0) -> None:
        super().__init__(what)
        self.wait = wait


class SilentError(InputError):
    """The server gave no whole reply, however often it was asked."""


@dataclass(frozen=True, slots=True)
class Client:
    """One server."""

    base_url: str
    timeout: float  # seconds for one reply
    tries: int

    @classmethod
    def of(cls, settings: Settings) -> Client:
        """From base_url, timeout and max_retries."""
        url = settings.needed("base_url", "http://localhost:8000").rstrip("/")
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"{settings.where}: base_url={url}; http://HOST:PORT is needed")
        if parts.username or parts.password or parts.query:
            raise InputError(f"{settings.where}: base_url must hold no key; put it into {KEYS[0]} in the environment")
        for route in ROUTES:
            url = url.removesuffix(route)
        return cls(url, settings.number("timeout", 300.0), settings.whole("max_retries", 6))

    def post(self, route: str, body: dict[str, Any]) -> dict[str, Any]:
        """The reply to a request, however often it takes."""
        return self._patiently(route, json.dumps(body).encode())

    def get(self, route: str) -> dict[str, Any]:
        """A small piece of information; empty where the server has none, an error where it is silent.

        A server that is down must not be taken for one that has no version: what was scored is told by it.
        """
        try:
            return self._patiently(route, None)
        except SilentError:
            raise
        except InputError:
            return {}

    def _patiently(self, route: str, data: bytes | None) -> dict[str, Any]:
        last = ""
        for turn in range(self.tries):
            try:
                return self._once(route, data)
            except BusyError as error:
                last = str(error)
                if turn + 1 < self.tries:
                    pause = FIRST_PAUSE * 2**turn * random.uniform(0.8, 1.2)
                    time.sleep(min(LONGEST_PAUSE, max(pause, error.wait)))
        raise SilentError(
            f"{self.base_url}{route}: no whole reply in {self.tries} tries, last: {last}; "
            "is the server up? (the same command goes on where it stopped)"
        )

    def _once(self, route: str, data: bytes | None) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"}
        key = api_key()
        if key:
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(self.base_url + route, data, headers)
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as reply:
                found = json.loads(reply.read())
        except urllib.error.HTTPError as error:
            with error:
                said = _hidden(_message(error), key)
            if error.code in AGAIN:
                raise BusyError(f"status {error.code}: {said}", _seconds(error.headers.get("Retry-After"))) from None
            raise InputError(f"{self.base_url}{route}: status {error.code}: {said}") from None
        except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
            reason = getattr(error, "reason", None) or error
            raise BusyError(_hidden(f"{type(reason).__name__} {reason}".strip(), key)) from None
        except ValueError:
            raise BusyError("half a reply, or no JSON") from None
        if not isinstance(found, dict):
            raise BusyError(f"a reply that is no object but {type(found).__name__}")
        return found


def api_key() -> str:
    """The key of the environment, empty where there is none."""
    return next((os.environ[name] for name in KEYS if os.environ.get(name)), "")


def _message(error: urllib.error.HTTPError) -> str:
    """What the server says about its refusal, in one short line."""
    try:
        text = error.read(2000).decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return str(error.reason)
    return " ".join(text.split())[:200] or str(error.reason)


def _hidden(text: str, key: str) -> str:
    return text.replace(key, "…") if key else text


def _seconds(header: str | None) -> float:
    return float(header) if header and header.strip().isdigit() else 0.0
