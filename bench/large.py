"""Commands on large studies: time, CPU time and peak memory of each, as a user runs them.

python bench/large.py                     2,000 models × 300 texts × 60 families, then 100,000 texts × 20 models
python bench/large.py logs                logs of lm-eval, 5 shots: 3, 12 and 36 models × 20 tasks × 250 items
python bench/large.py models --scale 0.5  one of them, at half the size; --keep DIR leaves the study there
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

WORDS = ["each", "model", "reads", "all", "words", "of", "this", "text", "and", "pays", "nats", "for", "every", "one"]
TASKS = ("facts", "code", "maths")
LOGGED_TASKS, LOGGED_ITEMS, LOGGED_TIME = 20, 250, "2026-01-01T00-00-00.000000"
LOGGED_MODELS = 12  # that answer differently; further models have the samples of these
SHAPES = {"models": (2000, 300, 60), "texts": (20, 100_000, 5)}  # models, texts, families
COMMANDS = {
    "models": (
        ["import", "losses", "losses.csv", "--unit", "bits-per-byte"],
        ["import", "models", "models.csv"],
        ["import", "scores", "scores.csv"],
        ["status"],
        ["fit"],
        ["compare", "--split", "family", "--all-methods"],
        ["report", "-o", "report.html"],
    ),
}
COMMANDS["texts"] = COMMANDS["models"]


def write_study(folder: Path, models: int, texts: int, families: int) -> None:
    """A study of three tasks: general ability by model, a mixture of skills by family, noise by text."""
    rng = np.random.default_rng(0)
    family = np.arange(models) % families
    ability = rng.uniform(0, 1, models)[:, None] + 0.3 * rng.standard_normal((families, len(TASKS)))[family]
    source = np.arange(texts) % len(TASKS)
    taste = 0.1 * rng.standard_normal((families, texts))[family]  # what a family's data taught it about each text
    bits = 1.5 - 0.5 * ability[:, source] + taste + 0.05 * rng.standard_normal((models, texts))
    accuracy = 0.25 + 0.75 / (1 + np.exp(3 - 5 * ability + 0.1 * rng.standard_normal(ability.shape)))
    (folder / "texts.jsonl").write_text(
        "".join(
            json.dumps({"id": f"t{i}", "source": TASKS[source[i]], "text": " ".join(rng.permutation(WORDS)[:12])})
            + "\n"
            for i in range(texts)
        )
    )
    names = [f"family{f}-{i}" for i, f in enumerate(family)]
    with (folder / "losses.csv").open("w") as out:
        out.write(",".join(["model", *(f"t{i}" for i in range(texts))]) + "\n")
        for name, row in zip(names, np.maximum(bits, 0.05), strict=True):
            out.write(name + "," + ",".join(f"{x:.4f}" for x in row) + "\n")
    params = [f"{10 ** (7 + 3 * a[0]):.0f}" for a in ability]
    rows = (f"{n},family{f},{p}\n" for n, f, p in zip(names, family, params, strict=True))
    (folder / "models.csv").write_text("model,family,params\n" + "".join(rows))
    rows = (
        f"{n},{t},{a:.4f}\n" for n, row in zip(names, accuracy, strict=True) for t, a in zip(TASKS, row, strict=True)
    )
    (folder / "scores.csv").write_text("model,task,accuracy\n" + "".join(rows))


def run(folder: Path, command: list[str]) -> tuple[float, float, float]:
    """Seconds, CPU seconds and peak memory in GB of one command; processes that it starts are included."""
    files = {name: str(folder / name) for name in ("losses.csv", "models.csv", "scores.csv", "report.html")}
    at = 2 if command[0] == "import" else 1
    words = [*command[:at], str(folder / "study"), *(files.get(w, w) for w in command[at:])]
    return timed(words)


def timed(words: list[str]) -> tuple[float, float, float]:
    """As `run`, of the words of a command."""
    start, before = time.perf_counter(), os.times()
    process = subprocess.Popen([sys.executable, "-m", "benchcast", *words], stdout=subprocess.DEVNULL)
    peak = 0.0
    while process.poll() is None:
        peak = max(peak, _memory(process.pid))
        time.sleep(0.1)
    if process.returncode:
        raise SystemExit(f"{' '.join(words)}: exit {process.returncode}")
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - start, cpu, peak


def _memory(pid: int) -> float:
    """Memory of a process and its descendants in GB; shared pages count once (proportional set size)."""
    import psutil

    total = 0
    try:
        root = psutil.Process(pid)
        for process in [root, *root.children(recursive=True)]:
            total += process.memory_full_info().pss
    except psutil.Error:
        pass  # it ended meanwhile
    return total / 1e9


def measure(kind: str, scale: float, folder: Path) -> None:
    models, texts, families = SHAPES[kind]
    shape = (round(models * scale), texts, families) if kind == "models" else (models, round(texts * scale), families)
    write_study(folder, *shape)
    tasks = "".join(f'\n[tasks.{t}]\nchance = 0.25\nsources = ["{t}"]\n' for t in TASKS)
    init = ["init", str(folder / "study"), "--texts", str(folder / "texts.jsonl")]
    subprocess.run([sys.executable, "-m", "benchcast", *init], check=True, stdout=subprocess.DEVNULL)
    with (folder / "study" / "study.toml").open("a") as out:
        out.write(tasks)
    print("\n{:,} models × {:,} texts × {} families, {} tasks\n".format(*shape, len(TASKS)))
    print("| command | seconds | CPU seconds | peak memory, GB |\n|---|---:|---:|---:|", flush=True)
    for command in COMMANDS[kind]:
        seconds, cpu, peak = run(folder, command)
        print(f"| `benchcast {' '.join(command)}` | {seconds:.0f} | {cpu:.0f} | {peak:.2f} |", flush=True)


def write_logs(folder: Path, models: int) -> float:
    """Logs of multiple choice with five shots, as lm-evaluation-harness 0.4.13 writes them; their size in MB."""
    rng = np.random.default_rng(0)

    def sentence(count: int) -> str:
        return " ".join(rng.choice(WORDS, count))

    def shown(question: str, options: list[str], answer: str = "") -> str:
        lines = "\n".join(f"{letter}. {option}" for letter, option in zip("ABCD", options, strict=True))
        return f"{question}\n{lines}\nAnswer:{answer}"

    for task in range(LOGGED_TASKS):
        items = [(sentence(40), [sentence(6) for _ in range(4)], int(rng.integers(4))) for _ in range(LOGGED_ITEMS)]
        shots = "".join(shown(q, o, f" {'ABCD'[a]}\n\n") for q, o, a in items[:5])
        prompts = [shots + shown(q, o) for q, o, _ in items]
        for model in range(min(models, LOGGED_MODELS)):
            rows = []
            for i, (question, options, answer) in enumerate(items):
                likely = -1 - 5 * rng.random(4)
                pairs = [[str(float(x)), "False"] for x in likely]
                doc = {"question": question, "choices": options, "answer": answer}
                requests = {f"gen_args_{k}": {"arg_0": prompts[i], "arg_1": f" {'ABCD'[k]}"} for k in range(4)}
                row = {"doc_id": i, "doc": doc, "target": str(answer), "arguments": requests}
                row |= {"resps": [[pair] for pair in pairs], "filtered_resps": pairs, "filter": "none"}
                row |= {"doc_hash": f"{task}-{i}", "prompt_hash": f"{task}-{i}"}
                rows.append(row | {"acc": float(likely.argmax() == answer)})
            place = folder / "logs" / f"model{model}"
            place.mkdir(parents=True, exist_ok=True)
            file = place / f"samples_task{task}_{LOGGED_TIME}.jsonl"
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))
            results = place / f"results_{LOGGED_TIME}.json"
            head = json.loads(results.read_text()) if results.exists() else {"results": {}, "config": {}}
            head["model_name"] = f"team/model{model}"
            head["results"][f"task{task}"] = {"acc,none": float(np.mean([row["acc"] for row in rows]))}
            results.write_text(json.dumps(head))
    for model in range(LOGGED_MODELS, models):
        link_model(folder / "logs" / f"model{model % LOGGED_MODELS}", folder / "logs" / f"model{model}")
    return sum(file.stat().st_size for file in (folder / "logs").rglob("samples_*")) / 1e6


def link_model(source: Path, target: Path) -> None:
    """The logs of one more model, with the samples of another."""
    target.mkdir()
    for file in source.iterdir():
        if file.suffix == ".json":
            head = json.loads(file.read_text()) | {"model_name": f"team/{target.name}"}
            (target / file.name).write_text(json.dumps(head))
        else:
            (target / file.name).hardlink_to(file)


def measure_logs(scale: float, folder: Path) -> None:
    """Time and memory of reading logs, of few models and of more.

    The last column is the rate at which two cores that do nothing else would read: the size over half of the CPU time.
    """
    for models in (max(2, round(number * scale)) for number in (3, 12, 36)):
        place = folder / str(models)
        size = write_logs(place, models)
        folders = [str(place / "logs" / f"model{i}") for i in range(models)]
        commands = {
            "init": ["init", str(place / "study"), "--from-lm-eval", str(place / "logs")],
            "compare --items": ["compare", "--items", *folders, "--json"],
        }
        print(f"\n{models} models, {size:.0f} MB of logs\n")
        print("| command | seconds | CPU seconds | peak memory, GB | MB/s | MB/s of two cores |")
        print("|---|---:|---:|---:|---:|---:|", flush=True)
        for name, command in commands.items():
            seconds, cpu, peak = timed(command)
            cells = (f"{seconds:.1f}", f"{cpu:.1f}", f"{peak:.2f}", f"{size / seconds:.0f}", f"{2 * size / cpu:.0f}")
            print(f"| `benchcast {name}` | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", default=list(SHAPES), help="models, texts, logs")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--keep", type=Path, help="folder for the study; default: a temporary one")
    given = parser.parse_args()
    for kind in given.kinds:
        if kind == "logs":
            with tempfile.TemporaryDirectory() as folder:
                measure_logs(given.scale, given.keep or Path(folder))
        elif given.keep:
            (given.keep / kind).mkdir(parents=True, exist_ok=True)
            measure(kind, given.scale, given.keep / kind)
        else:
            with tempfile.TemporaryDirectory() as folder:
                measure(kind, given.scale, Path(folder))


if __name__ == "__main__":
    main()
