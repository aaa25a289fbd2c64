"""A real HTTP server on this machine that answers in the formats of vLLM, SGLang and OpenAI's completions.

`faults` are used up one per request before it answers rightly; `wrong` changes every answer in one way.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fake import loss

LETTERS = b"abcdefghijklmnopqrstuvwxyz "


class FakeServer(ThreadingHTTPServer):
    """Scores with the fake model."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.faults: list[str] = []
        self.wrong = ""
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.mutate: Callable[[dict[str, Any]], bytes] | None = None  # what is sent instead of a right answer

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections that the client gave up are part of the tests."""


@contextmanager
def serving() -> Iterator[FakeServer]:
    server = FakeServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Handler(BaseHTTPRequestHandler):
    server: FakeServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each reply on a used connection waits 40 ms

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        known = {
            "/version": {"version": "0.32.0"},
            "/v1/models": {"data": [{"id": "fake", "max_model_len": 512}]},
            "/get_server_info": {"version": "0.5.9", "context_length": 300},
        }
        self._send(200 if self.path in known else 404, known.get(self.path, {"error": "not found"}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(body)
        self.server.keys.append(self.headers.get("Authorization", ""))
        fault = self.server.faults.pop(0) if self.server.faults else ""
        if fault:
            self._fail(fault)
        elif self.path == "/generate":
            self._send(200, sglang(body, self.server.wrong))
        elif "prompt_logprobs" in body:
            self._send(200, vllm(body, self.server.wrong))
        else:
            self._send(200, echo(body, self.server.wrong))

    def _fail(self, fault: str) -> None:
        if fault == "drop":
            self.connection.close()
        elif fault == "stall":
            time.sleep(1.0)
            self.connection.close()
        elif fault == "half":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b'{"choices": [{"prompt_log')
            self.wfile.flush()
            self.connection.close()
        else:
            key = self.headers.get("Authorization", "")
            self._send(int(fault), {"error": f"no, {key}"}, {"Retry-After": "0"})
        self.close_connection = True

    def _send(self, status: int, body: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        mutated = status == 200 and self.server.mutate is not None
        data = self.server.mutate(body) if mutated else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


def vllm(body: dict[str, Any], wrong: str) -> dict[str, Any]:
    ids = body["prompt"]
    entries: list[Any] = [None] + [
        {str(t): {"logprob": -loss(ids, i), "rank": 3, "decoded_token": ""}} for i, t in enumerate(ids[1:], start=1)
    ]
    if wrong == "short":
        entries = entries[:-1]
    if wrong == "ids":
        entries[2] = {"999": {"logprob": -1.0}}
    if wrong == "-9999":
        entries[2] = {str(ids[2]): {"logprob": -9999.0}}
    if wrong == "hole":
        entries[2] = None
    if wrong == "zeros":
        entries = [None] + [{str(t): {"logprob": 0.0}} for t in ids[1:]]
    choice = {"index": 0, "text": "x", "prompt_logprobs": None if wrong == "none" else entries}
    return {"id": "cmpl-1", "object": "text_completion", "choices": [choice]}


def sglang(body: dict[str, Any], wrong: str) -> dict[str, Any]:
    ids = body["input_ids"]
    assert body["return_logprob"]
    entries: list[Any] = [[None, ids[0], None]]
    entries += [[-loss(ids, i), t, None] for i, t in enumerate(ids[1:], start=1)]
    if body.get("logprob_start_len", -1) != 0 or wrong == "none":
        entries = []
    if wrong == "short":
        entries = entries[:-1]
    if wrong == "ids":
        entries[2][1] = 999
    return {"text": "x", "meta_info": {"prompt_tokens": len(ids), "input_token_logprobs": entries}}


def echo(body: dict[str, Any], wrong: str) -> dict[str, Any]:
    ids = body["prompt"]
    best = min(LETTERS, key=lambda b: loss([*ids, b], len(ids)))
    longer = [*ids, best]
    values: list[float | None] = [None, *(-loss(longer, i) for i in range(1, len(longer)))]
    tokens = [bytes([t]).decode(errors="replace") if t < 256 else "<bos>" for t in longer]
    if wrong == "off by one":  # token i from the row that has read it, as llama.cpp's Python server does
        values = [None, *(-loss([*longer[: i + 1], longer[i]], i + 1) for i in range(1, len(ids))), values[-1]]
    if wrong == "ignored":
        values, tokens = values[-1:], tokens[-1:]
    if wrong == "bos":
        values, tokens = [None, *values], ["<bos>", *tokens]
    if wrong == "tokens":
        tokens[1 + len(ids) // 2] = "Q"
        tokens = ["Q" if t.isalnum() else t for t in tokens[:-1]] + tokens[-1:]
    if wrong == "zeros":
        values = [None] + [0.0] * len(ids)
    if wrong == "chat":
        return {"choices": [{"message": {"content": "hi"}, "logprobs": {"content": []}}]}
    offsets = list(range(len(tokens)))
    logprobs = {"tokens": tokens, "token_logprobs": values, "text_offset": offsets, "top_logprobs": None}
    return {"choices": [{"index": 0, "text": "x", "logprobs": logprobs}]}
