"""A server process that answers like SGLang, with a real model behind it: SGLang itself needs CUDA.

    python tests/collect/sglang_like.py FOLDER

prints two lines, each with the id and the address of a process that serves until it is ended: two, because one start
is dear and a test ends one of them. Routes and fields are those of SGLang's native API: prompt
log-probabilities only with `return_logprob` and only from `logprob_start_len` on (−1, the default, is the
prompt's end), entries of [log-probability, id, text or null] of which the first of a prompt has none, a context
length that is null unless it was set. Its OpenAI route gives none of them. `PUT /trap/NAME` makes it change every
answer in one way.
"""

from __future__ import annotations

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch
from transformers import AutoModelForCausalLM

MAX_INPUT = 250


class Server(ThreadingHTTPServer):
    """One model; requests are answered one after the other inside it."""

    daemon_threads = True

    def __init__(self, folder: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder, self.trap, self.asked = folder, "", 0
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def logprobs(self, ids: list[int]) -> list[float]:
        with torch.inference_mode():
            rows = torch.log_softmax(self.model(torch.tensor([ids])).logits[0], -1)
        return [float(rows[i - 1, ids[i]]) for i in range(1, len(ids))]

    def generate(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        ids, start = body["input_ids"], body.get("logprob_start_len", -1)
        if len(ids) > MAX_INPUT or self.trap == "long":
            said = f"Input length ({len(ids)} tokens) exceeds the maximum allowed length ({MAX_INPUT} tokens)."
            return 400, {"error": {"message": said}}
        meta: dict[str, Any] = {"id": "r1", "finish_reason": {"type": "length"}, "prompt_tokens": len(ids)}
        if body.get("return_logprob"):
            entries: list[list[Any]] = [[None, ids[0], None]]
            entries += [[p, t, None] for p, t in zip(self.logprobs(ids), ids[1:], strict=True)]
            meta["input_token_logprobs"] = self._bent(entries[len(ids) if start == -1 else start :])
            meta["output_token_logprobs"] = [[-1.5, 7, None]] * body["sampling_params"]["max_new_tokens"]
        return 200, {"text": "x", "output_ids": [7], "meta_info": meta}

    def _bent(self, entries: list[list[Any]]) -> list[list[Any]]:
        if self.trap == "short":
            return entries[:-1]
        if self.trap == "start":
            return []
        if self.trap == "zeros":
            return [[None if p is None else 0.0, t, s] for p, t, s in entries]
        wrong = {
            "ids": [-1.0, 99, None],
            "hole": [None, entries[2][1], None],
            "infinity": [-9999.0, entries[2][1], None],
        }
        return [wrong.get(self.trap, e) if i == 2 else e for i, e in enumerate(entries)]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        known = {
            "/get_server_info": {"version": "0.5.9", "context_length": None, "max_req_input_len": MAX_INPUT},
            "/get_model_info": {"model_path": self.server.folder, "is_generation": True},
        }
        self._send(200 if self.path in known else 404, known.get(self.path, {}))

    def do_PUT(self) -> None:
        self.server.trap = self.path.removeprefix("/trap/")
        self._send(200, {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked += 1
        if self.server.trap == "overloaded" and self.server.asked % 3 == 1:
            self._send(503, {"error": {"message": "The request queue is full."}})
        elif self.path == "/generate":
            self._send(*self.server.generate(body))
        else:  # the OpenAI route: logprobs of what is generated, none of the prompt
            logprobs = {"tokens": [" x"], "token_logprobs": [-1.5], "text_offset": [0], "top_logprobs": None}
            self._send(
                200, {"object": "text_completion", "choices": [{"index": 0, "text": " x", "logprobs": logprobs}]}
            )

    def _send(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def main(folder: str) -> None:
    os.fork()
    server = Server(folder)
    print(f"{os.getpid()} http://127.0.0.1:{server.server_port}", flush=True)  # noqa: T201
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1])
