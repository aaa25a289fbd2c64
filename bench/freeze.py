"""Every number of the package, recorded in one source tree and compared with those of another.

    PYTHONPATH=OLD/src python bench/freeze.py --record old.json [--quick] [--part fits …]
    PYTHONPATH=NEW/src python bench/freeze.py --record new.json [--quick] [--part fits …]
    python bench/freeze.py --compare old.json new.json [--tolerance 1e-6]

Only public names and the command line are used, and only documented files are read, so modules may move in between.
Times, versions and paths are left out; so is what a fit of `paper` stores of the setting `joint`. One thread, on the
CPU. Without a tolerance two records must be equal bit by bit; with one, numbers may differ by that share, and hashes
are passed over.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import hashlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

ROOT = Path(__file__).resolve().parents[1]
PUBLIC = os.environ.get("BENCHCAST_DATA", "")  # folder of the public files; without it the part tables is left out
LEFT_OUT = ("proxy-metrics",)  # read inputs that are no longer collected
HIDDEN_FAMILIES = ("cedar", "hazel", "oak-a")
NO_VALUES = (
    "benchcast",
    "version",
    "sha256",
    "made",
    "created",
    "registered",
)  # keys whose values say when and by what
SHOWN = 20  # differences that are printed
METRIC = ("--metric", "pond_write=exact_match,strict-match")

Values = dict[str, Any]


def sha(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()[:24]}"


def plain(value: Any) -> Any:
    """A JSON value with what depends on time, version and place taken out; NaN becomes the word."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items() if k not in NO_VALUES}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def run(*words: object, at: Path, may_refuse: bool = False) -> Any:
    """`benchcast …` in a folder: what it printed as JSON; its exit status alone without --json."""
    command = [sys.executable, "-m", "benchcast", *map(str, words)]
    ran = subprocess.run(command, cwd=at, capture_output=True, text=True, check=False)
    if ran.returncode and not (may_refuse and ran.returncode == 1 and ran.stderr.startswith("error:")):
        sys.exit(f"{' '.join(command)}: exit {ran.returncode}\n{ran.stderr}")
    if ran.returncode or "--json" not in words:
        return {"exit": ran.returncode}
    return plain(json.loads(ran.stdout))


def methods() -> list[str]:
    """Names of the methods, as `compare --help` lists them."""
    ran = subprocess.run([sys.executable, "-m", "benchcast", "compare", "--help"], capture_output=True, text=True)
    listed = ran.stdout.split("Methods:")[1]
    return [name for name in re.findall(r"^  ([a-z][a-z0-9-]*)  ", listed, flags=re.M) if name not in LEFT_OUT]


def arrays_of(path: Path) -> Values:
    """Shape, hash and sum of each array of a safetensors file."""
    import numpy as np
    from safetensors.numpy import load_file

    return {
        name: {"shape": list(x.shape), "bytes": sha(x.tobytes()), "sum": float(np.nansum(np.abs(x.astype(float))))}
        for name, x in sorted(load_file(path).items())
    }


def fit_values(fit: Any, folder: Path) -> Values:
    """All that is stored of a fit, and its digest where no setting that is gone takes part in it."""
    fit.save(folder)
    document = json.loads((folder / "fit.json").read_text(encoding="utf-8"))
    joint = document["notes"].pop("joint", None)
    assert not joint
    values = {k: document[k] for k in document if k not in ("texts", "arrays_sha256", "about")}
    values["about"] = {k: v for k, v in document["about"].items() if k not in ("train", "validation", "inputs")}
    kept = {**values, "inputs": document["about"].get("inputs"), "names": document["about"]["train"]}
    out = {"fit.json": plain(values), "arrays": arrays_of(folder / "salience.safetensors")}
    out["document"] = sha(json.dumps(kept, sort_keys=True).encode())
    if fit.digest and document["method"] != "paper":
        out["digest"] = f"sha256:{fit.digest}"
    shutil.rmtree(folder)
    return out


def held_out(comparison: Any) -> Values:
    """Forecasts, intervals and capabilities of the held-out models, and the measures."""
    columns = ("observed", "forecast", "low", "high", "capability", "reason")
    rows = {
        f"{task}/{method}": {"models": sha(repr(held.models).encode()), **{c: getattr(held, c) for c in columns}}
        for (task, method), held in comparison.held_out.items()
    }
    return plain({"measures": comparison.as_json(), "held_out": rows})


def compared(study: Any, split: str, names: list[str]) -> Values:
    """Each method alone, so that the same methods are compared in both trees, and those with one pool together."""
    import benchcast as bc

    alone = {name: held_out(bc.compare(study, split=split, methods=[name])) for name in names}
    if {"stack", "salience"} <= set(names):
        alone["stack+salience"] = held_out(bc.compare(study, split=split, methods=["stack", "salience"]))
    return alone


def forecasts(study: Any, names: list[str], split: str, folder: Path, *, of_all: tuple[str, ...]) -> Values:
    """Fits of every method, and forecasts of all models by some of them."""
    import benchcast as bc

    values: Values = {}
    for name in names:
        try:
            fits = bc.fit_tasks(study, method=name, split=split)
        except bc.BenchcastError as error:
            values[name] = {"error": str(error)}
            continue
        for fit in fits:
            one = values[f"{name}/{fit.task}"] = fit_values(fit, folder / "fit")
            if name in of_all:
                rows = fit.predict(study, level=0.8).to_arrow().to_pydict()
                one["forecasts"] = plain(rows)
    return values


def study_files(root: Path) -> Values:
    """The files of a study: hashes of tables, and of the tokens and losses of each model."""
    import benchcast as bc

    study = bc.Study.open(root)
    files = {name: (root / name) for name in ("texts.jsonl", "models.csv", "scores.csv", "study.toml")}
    values: Values = {name: sha(path.read_bytes()) for name, path in files.items() if path.exists()}
    for name in study.models_with_losses():
        losses = study.losses(name)
        stored = sha(study.losses_path(name).read_bytes())
        values[name] = {"losses": sha(losses.nats.tobytes()), "tokens": sha(losses.edges.tobytes()), "file": stored}
        values[name]["sum"] = float(abs(losses.nats[losses.nats == losses.nats]).sum())
    for path in sorted((root / "features").rglob("*.npy")):
        values[str(path.relative_to(root))] = sha(path.read_bytes())
    return values


def zoo(folder: Path) -> Path:
    """A copy of the embedded study, to change."""
    import benchcast as bc

    shutil.copytree(bc.datasets.load_zoo().root, folder, ignore=shutil.ignore_patterns(".lock", "READ-ONLY"))
    return folder


def without_scorer(root: Path) -> None:
    shutil.rmtree(root / "features")
    settings = root / "study.toml"
    lines = settings.read_text(encoding="utf-8").splitlines(keepends=True)
    settings.write_text("".join(line for line in lines if not line.startswith("scorer")), encoding="utf-8")


def hide_families(root: Path) -> None:
    """Write the split column: three families are tested, and the largest models of the others validate."""
    with (root / "models.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["split"] = "test" if row["family"] in HIDDEN_FAMILIES else "train"
    with (root / "models.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def part_methods(at: Path, *, quick: bool) -> Values:
    """Every method on the embedded study, by size; also by three families, and without a scorer."""
    import benchcast as bc

    names, study = methods(), bc.datasets.load_zoo()
    values: Values = {"names": names, "size": compared(study, "size", names)}
    root = zoo(at / "families")
    hide_families(root)
    values["families"] = compared(root, "column", ["stack"] if quick else names)
    root = zoo(at / "bare")
    without_scorer(root)
    values["bare"] = compared(root, "size", ["stack"] if quick else ["stack", "salience", "pls", "rbridge"])
    return values


def part_fits(at: Path, *, quick: bool) -> Values:
    """What fits store, and what they forecast for all models."""
    import benchcast as bc

    names, study = methods(), bc.datasets.load_zoo()
    of_all = ("stack", "paper") if quick else tuple(names)
    values: Values = {"size": forecasts(study, names, "size", at, of_all=of_all)}
    if not quick:
        values["everything"] = forecasts(study, ["stack", "salience", "paper", "ridge"], "family", at, of_all=())
        root = zoo(at / "bare")
        without_scorer(root)
        values["bare"] = forecasts(root, ["stack", "salience"], "size", at, of_all=("stack",))
        settings = [
            bc.DescentSettings(steps=20, rates=(1e-2,), hidden=4),
            bc.DescentSettings(steps=20, rates=(1e-3, 1e-2), optimizer="sgd", activation="softplus"),
            bc.DescentSettings(steps=20, activation="relu", standardise=False, seed=3),
            bc.DescentSettings(steps=20, activation="identity"),
        ]
        for number, given in enumerate(settings):
            for fit in bc.fit_tasks(study, method=bc.MethodSpec("paper", given), split="size"):
                values[f"settings/{number}/{fit.task}"] = fit_values(fit, at / "fit")
    return values


def part_json(at: Path, *, quick: bool) -> Values:
    """What the commands print with --json on the embedded study, on stored fits of two methods."""
    root = zoo(at / "study")
    values: Values = {}
    two = ("--task", "code", "--task", "facts")
    by_size = ("compare", "study", "--split", "size", "--jobs", "1", "--json")
    only = [word for name in methods() for word in ("--method", name)]
    values["compare"] = run(
        *by_size, *([*two, "--method", "stack", "--method", "label-token"] if quick else only), at=at
    )
    values["fit"] = run("fit", "study", "--split", "size", at=at)
    values["status"] = run("status", "study", "--json", at=at)
    asked = ("predict", "study", "--model", "*-50M@*", "--model", "elm-16M@*", "--json")
    values["predict"] = run(*asked, at=at)
    values["predict --level"] = run(*asked, *two, "--level", "0.5", at=at)
    hidden = shutil.copytree(root, at / "hidden")
    table = (hidden / "scores.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    lacks = ("ash-50M@36.0M,code", "elm-16M@", "fir-50M@36.0M,facts")
    (hidden / "scores.csv").write_text("".join(r for r in table if not r.startswith(lacks)), encoding="utf-8")
    few = ("--model", "ash-50M@36.0M", "--model", "fir-50M@36.0M", "--model", "elm-16M@48.0M", "--json")
    values["predict --use-scores"] = run("predict", "study", *few, "--use-scores", at=at)
    values["predict --use-scores, hidden"] = run("predict", "hidden", *few, "--use-scores", at=at)
    values["explain"] = run("explain", "study", "--task", "code", "--json", at=at)
    to = ("--family", "ash", "--to", "params=150M,tokens=60M", "--json")
    values["extrapolate"] = run("extrapolate", "study", *two[:2], *to, at=at)
    values["compare --runs"] = run("compare", "study", "--runs", "oak-a,oak-b", *two[:2], "--json", at=at)
    select = ("select", "study", "--budget", "30", "--json", "--no-check" if quick else "--check")
    values["select"] = run(*select, *two[:2], "-o", "small", at=at)
    values["select -o"] = {p.name: sha(p.read_bytes()) for p in sorted((at / "small").glob("*.*")) if p.name != ".lock"}
    if quick:
        return values
    values["predict --restrict"] = run(*asked[:4], *two, "--restrict", "--json", at=at)
    values["compare, family"] = run("compare", "study", "--split", "family", *two[:2], *only, "--json", at=at)
    values["extrapolate, all"] = run("extrapolate", "study", *to, at=at)
    values["compare --runs, all"] = run("compare", "study", "--runs", "oak-a,oak-b,ash", "--json", at=at)
    values["explain, facts"] = run("explain", "study", "--task", "facts", "--text", "facts-3", "--json", at=at)
    run("fit", "study", "--split", "size", "--method", "salience", "--task", "code", at=at)
    values["predict, salience"] = run(*asked, *two[:2], at=at)
    one = ("--model", "ash-50M@36.0M", "--register", "ash.json")
    values["register"] = run("predict", "study", *one, "--json", at=at)
    values["verify"] = run("verify", "ash.json", "--scores", "study", "--json", at=at)
    return values


def part_report(at: Path, *, quick: bool) -> Values:
    """The values that the page of a report holds, and those of a heat map."""
    zoo(at / "study")
    run("fit", "study", "--split", "size", "--task", "code", at=at)
    values = {"heat map": run("explain", "study", "--task", "code", "--html", "heat.html", at=at)}
    pages = ["heat.html"]
    if not quick:
        values["report"] = run("report", "study", "-o", "report.html", "--split", "size", at=at)
        pages.append("report.html")
    for page in pages:
        text = (at / page).read_text(encoding="utf-8")
        found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, flags=re.S)
        assert found is not None
        values[page] = without(plain(json.loads(found[1])), *LEFT_OUT)
    return values


def without(value: Any, *names: str) -> Any:
    """A JSON value without the keys and the list items of these names: what is listed of a method that is gone."""
    if isinstance(value, dict):
        return {k: without(v, *names) for k, v in value.items() if k not in names}
    if isinstance(value, list):
        kept = (v for v in value if not (v in names if isinstance(v, str) else names_one(v, names)))
        return [without(v, *names) for v in kept]
    return value


def names_one(value: Any, names: tuple[str, ...]) -> bool:
    return isinstance(value, dict) and (value.get("name") in names or value.get("method") in names)


def fixture(name: str) -> Path:
    """A folder of recorded files below tests/, wherever the tests keep it."""
    return next(path for path in sorted((ROOT / "tests").rglob(name)) if "fixtures" in path.parts)


def part_logs(at: Path, *, quick: bool) -> Values:
    """Studies made from logs of each harness and version, whole and by half, and scores from every recorded file."""
    values: Values = {}
    for name in (
        ("lm-eval-0.4.13",) if quick else ("lm-eval-0.4.13", "lm-eval-0.4.4", "lm-eval-0.4.0", "lighteval-0.13.0")
    ):
        given = "--from-lighteval" if name.startswith("light") else "--from-lm-eval"
        for items in ("1", "0.5"):
            made, words = f"{name}-{items}", METRIC if given == "--from-lm-eval" else ()
            values[made] = {
                "init": run("init", made, given, fixture(name), *words, "--items", items, at=at, may_refuse=True)
            }
            if values[made]["init"] == {"exit": 0}:
                values[made] |= study_files(at / made)
    families = "".join(
        f"models/{f}-{k},{f}\n" for f in ("reed", "rush", "sedge") for k in "abcd"[: 4 if f == "reed" else 3]
    )
    (at / "families.csv").write_text(f"model,family\n{families}", encoding="utf-8")
    run("import", "models", "lm-eval-0.4.13-1", "families.csv", at=at)
    values["compare"] = run("compare", "lm-eval-0.4.13-1", "--method", "stack", "--split", "family", "--json", at=at)
    return values | ({} if quick else {"scores": score_files(at)})


def score_files(at: Path) -> Values:
    """Scores of recorded files by the command, each into a study of its own."""
    tasks = dict.fromkeys(("mmlu", "hellaswag", "ceval", "pond", "pond_last"), 0.25) | {"bbh": 0.257}
    tasks |= dict.fromkeys(("gsm8k", "pond_sums", "pond_write", "frogs", "sums"), 0)
    rows = [{"id": name, "source": name, "text": f"text of {name}"} for name in tasks]
    (at / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (at / "long.csv").write_text("model,task,accuracy,n_items\na,mmlu,0.5,100\nb,mmlu,0.25,\n", encoding="utf-8")
    (at / "wide.csv").write_text("model,mmlu,gsm8k\na,50.5,3\nb,31,\n", encoding="utf-8")
    (at / "board.csv").write_text(
        "fullname,Average ⬆️,IFEval Raw,IFEval,BBH Raw,BBH,MMLU-PRO Raw,MMLU-PRO\n"
        "meta-llama/Llama-2-7b-hf,8.8,0.2519,25.19,0.3496,10.35,0.1861,9.57\n",
        encoding="utf-8",
    )
    folder = fixture("summary_20261115_043000.csv").parent
    sums = ("--metric", "pond_sums=exact_match,strict-match")
    files: dict[Path, tuple[str, ...]] = {folder / "summary_20261115_043000.csv": (), folder / "opencompass": ()}
    files |= {folder / "limit": ("--allow-limit",), **dict.fromkeys(folder.glob("results_*.json"), sums)}
    files |= {fixture("lm-eval-0.4.13"): METRIC, fixture("lighteval-0.13.0"): (), at / "long.csv": ()}
    files |= {at / "wide.csv": ("--unit", "percent"), at / "board.csv": ()}
    values: Values = {}
    for path, words in files.items():
        study = f"scores-{path.name}"
        run("init", study, "--texts", "texts.jsonl", at=at)
        with (at / study / "study.toml").open("a", encoding="utf-8") as settings:
            settings.writelines(f'\n[tasks."{t}"]\nchance = {c}\nsources = ["{t}"]\n' for t, c in tasks.items())
        run("import", "scores", study, path, *words, at=at)
        values[path.name] = (at / study / "scores.csv").read_text(encoding="utf-8")
    return values


def part_collect(at: Path, *, quick: bool) -> Values:
    """Losses of tiny real models, and the hidden states of one as features."""
    texts = [
        "one zwei 三 👩‍👧 four",
        "The cat sat on the mat.\nAnswer: mat",
        "3 + 4 = 7",
        "",
        "def f(x):\n    return x\n",
    ]
    rows = [{"id": f"t{i}", "source": f"s{i % 2}", "text": t * (1 + i % 3)} for i, t in enumerate(texts * 4)]
    rows += [{"id": "long", "source": "s0", "text": "A frog sat by the pond and sang. " * 120}]
    (at / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    run("init", "study", "--texts", "texts.jsonl", at=at)
    shipped = sorted(path for path in next((ROOT / "tests").rglob("shipped")).iterdir() if path.is_dir())
    for path in (fixture("reed-a"), *shipped[: 1 if quick else None]):
        given = ("--model", "hf", "--model_args", f"pretrained={path}", "--device", "cpu", "--batch_size", "4")
        named = ("--name", path.name, "--family", path.name, "--skip-refused")
        run("collect", "study", *given, *named, at=at)
    for dims in ((), ("--dims", "8"))[: 1 if quick else None]:
        scorer = ("--scorer", shipped[0], "--name", f"scorer{''.join(dims)}", "--device", "cpu")
        run("features", "study", *scorer, *dims, at=at)
    return study_files(at / "study")


def part_tables(at: Path, *, quick: bool) -> Values:
    """The studies of public tables, where their files are on this disk."""
    import benchcast as bc

    if not PUBLIC:
        return {"absent": "BENCHCAST_DATA is not set"}
    os.environ["XDG_CACHE_HOME"] = str(at / "cache")
    values: Values = {}
    fast = [m for m in methods() if m not in ("paper", "ridge")]
    for name in ("olmo-ladder", "dclm", "public-llms"):
        study = bc.datasets.copy_dataset(name, at / name)
        tables = {p.name: sha(p.read_bytes()) for p in sorted(study.root.glob("*.*"))}
        losses = {m: sha(study.losses(m).nats.tobytes()) for m in study.models_with_losses()}
        values[name] = {"tables": tables, "losses": sha(json.dumps(losses).encode())}
        values[name]["compare"] = held_out(bc.compare(study, methods=fast))
        for task in list(values[name]["compare"]["measures"]["tasks"])[:3]:
            fit = bc.fit(study, task=task)
            values[name][f"fit {task}"] = fit_values(fit, at / "fit")
            values[name][f"forecasts {task}"] = plain(fit.predict(study).to_arrow().to_pydict())
    return values


PARTS: dict[str, Callable[..., Values]] = {
    name.removeprefix("part_"): part for name, part in list(globals().items()) if name.startswith("part_")
}
QUICK = ("methods", "fits", "json", "report", "logs", "collect")


def record(path: Path, parts: list[str], *, quick: bool) -> None:
    with contextlib.suppress(ImportError):
        import torch

        torch.set_num_threads(1)
    values: Values = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for name in parts:
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            values[name] = PARTS[name](Path(folder).resolve(), quick=quick)
        path.write_text(json.dumps(values, indent=0, sort_keys=True, ensure_ascii=False), encoding="utf-8")
        print(f"{name}: {time.monotonic() - start:.0f} s", flush=True)


def flat(value: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    """Each single value of a record with its place."""
    if isinstance(value, dict | list):
        yield at, f"{type(value).__name__} of {len(value)}"
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from flat(one, f"{at} › {key}" if at else str(key))
    else:
        yield at, value


def same(a: Any, b: Any, tolerance: float) -> bool:
    if type(a) is type(b) and a == b:
        return True
    if not tolerance:
        return False
    if isinstance(a, str) and isinstance(b, str):
        return a.startswith("sha256:") and b.startswith("sha256:")
    numbers = all(isinstance(x, int | float) and not isinstance(x, bool) for x in (a, b))
    return numbers and math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance * 1e-3)


def differences(first: Any, second: Any, tolerance: float = 0.0) -> list[str]:
    """A line for each value that is not the same in two records."""
    old, new = dict(flat(first)), dict(flat(second))
    lines = [f"{k}: gone, was {v!r}" for k, v in old.items() if k not in new]
    lines += [f"{k}: new, {v!r}" for k, v in new.items() if k not in old]
    return lines + [f"{k}: {v!r} → {new[k]!r}" for k, v in old.items() if k in new and not same(v, new[k], tolerance)]


def compare(a: Path, b: Path, tolerance: float) -> int:
    first, second = (json.loads(path.read_text(encoding="utf-8")) for path in (a, b))
    parts = [name for name in first if name in second]
    found = differences({k: first[k] for k in parts}, {k: second[k] for k in parts}, tolerance)
    for line in found[:SHOWN]:
        print(line if len(line) < 400 else f"{line[:400]}…")
    missing = sorted(set(first) ^ set(second))
    count = sum(1 for _ in flat({k: first[k] for k in parts}))
    print(f"{', '.join(parts)}: {count} values, {len(found)} differ" + (f"; in one only: {missing}" if missing else ""))
    return int(bool(found))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument(
        "--record", type=Path, help="write the numbers of the imported package to this file, or renew parts of it"
    )
    options.add_argument("--quick", action="store_true", help="a part of each part, in under two minutes")
    options.add_argument("--part", nargs="+", choices=PARTS, help="only these parts")
    options.add_argument("--compare", type=Path, nargs=2, metavar="JSON", help="two records")
    options.add_argument("--tolerance", type=float, default=0.0, help="share by which numbers may differ")
    given = options.parse_args()
    if given.record:
        record(given.record, given.part or list(QUICK if given.quick else PARTS), quick=given.quick)
    if given.compare:
        first, second = given.compare
        sys.exit(compare(first, second, given.tolerance))


if __name__ == "__main__":
    main()
