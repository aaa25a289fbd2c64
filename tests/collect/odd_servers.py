"""HTTP servers on this machine that misbehave below the level of JSON."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[BaseHTTPRequestHandler], None]


class OddServer(ThreadingHTTPServer):
    """Answers every request with `answer`; keeps the headers that came, and counts connections."""

    daemon_threads = True

    def __init__(self, answer: Answer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.seen: list[dict[str, str]] = []
        self.connections = 0

    def get_request(self) -> Any:
        self.connections += 1
        return super().get_request()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are part of the tests."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: OddServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each reply on a used connection waits 40 ms

    def log_message(self, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.seen.append(dict(self.headers))
        with suppress(OSError):
            self.server.answer(self)

    def do_GET(self) -> None:
        self.do_POST()


@contextmanager
def odd_server(answer: Answer) -> Iterator[OddServer]:
    server = OddServer(answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def reply(body: bytes, status: int = 200, **headers: str) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def trickle(*, headers: bool) -> Answer:
    """One byte every tenth of a second, for ever: of a header, or of the body."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if not headers:
            handler.send_response(200)
            handler.end_headers()
        else:
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        for _ in range(600):
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.1)

    return answer


def endless(chunk: int = 1 << 20) -> Answer:
    """A body without end and without a stated length."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.close_connection = True
        while True:
            handler.wfile.write(b" " * chunk)

    return answer
