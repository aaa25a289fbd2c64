"""Losses of one real backend against stored ones; run inside that backend's own environment.

    python tests/collect/measure.py vllm REFERENCE.json

prints one line of JSON with the differences in nats.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np

from benchcast.collection.backends import open_backend
from benchcast.collection.backends.base import ModelSettings
from benchcast.errors import InputError

PORT = 18765


def measure(kind: str, reference: dict[str, Any]) -> dict[str, Any]:
    """Difference on each text, and what the backend says about itself."""
    backend = open_backend(kind, ModelSettings(reference["settings"][kind]))
    ids_by_text = {k: backend.vocabulary.tokenizer.encode(t) for k, t in reference["texts"].items()}
    same_ids = {k: [*backend.vocabulary.prefix, *ids] == reference["ids"][k] for k, ids in ids_by_text.items()}
    scored = backend.score(list(reference["ids"].values()))
    apart = {
        k: float(np.abs(np.array(reference["nats"][k][1:]) - nats[1:]).max())
        for k, nats in zip(reference["ids"], scored, strict=True)
    }
    return {**backend.about(), "same_ids": same_ids, "apart": apart}


def echo_of_llamacpp(reference: dict[str, Any]) -> str:
    """What we say about the echo of llama-cpp-python, asked in process (with text: it cannot echo ids)."""
    import llama_cpp

    from benchcast.collection.backends.servers import verify_echo

    path = reference["settings"]["llamacpp"]["pretrained"]
    model = llama_cpp.Llama(path, n_ctx=256, logits_all=True, verbose=False)
    vocabulary = open_backend("llamacpp", ModelSettings({"pretrained": path})).vocabulary

    def echo(ids: Any) -> Any:
        text = b"".join(vocabulary.tokenizer.pieces(ids)).decode()
        asked = {"prompt": text, "echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0}
        return model.create_completion(**asked)["choices"][0]

    try:
        verify_echo(echo, vocabulary)
    except InputError as error:
        return str(error)
    return "taken for right"


def served(reference: dict[str, Any]) -> dict[str, Any]:
    """The vLLM server of this environment, by prompt_logprobs and by echo."""
    folder = reference["settings"]["vllm"]["pretrained"]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", folder, "--dtype", "float32"]
    command += ["--enforce-eager", "--port", str(PORT), "--host", "127.0.0.1", "--max-model-len", "512"]
    with (Path(folder).parent / "vllm-server.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            _wait(process)
            for kind in ("vllm-server", "completions"):
                reference["settings"][kind] = {
                    "base_url": f"http://127.0.0.1:{PORT}",
                    "model": folder,
                    "dtype": "float32",
                }
            return {kind: measure(kind, reference) for kind in ("vllm-server", "completions")}
        finally:
            process.terminate()
            process.wait(30)


def _wait(process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 300
    while time.monotonic() < until and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health", timeout=5):
                return
        except OSError:
            time.sleep(1)
    raise RuntimeError("the vLLM server did not start; see vllm-server.log beside the model")


def main(kind: str, file: str) -> None:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    reference = json.loads(Path(file).read_text(encoding="utf-8"))
    if kind == "vllm-server":
        print(json.dumps(served(reference)))  # noqa: T201
        return
    measured = {kind: measure(kind, reference)}
    if kind == "llamacpp":
        measured[kind]["echo"] = echo_of_llamacpp(reference)
    print(json.dumps(measured))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:3])
