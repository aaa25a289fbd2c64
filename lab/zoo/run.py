"""Train the zoo. Every stage is one command, and finished work is never done twice.

    python -m lab.zoo.run prepare              tokenizers and training tokens
    python -m lab.zoo.run pilot --out DIR      a few runs, with a table of scores and times
    python -m lab.zoo.run scorer --out DIR     the scorer and its hidden states
    python -m lab.zoo.run train --out DIR      every run that is missing, the scorer included

Stages prepare what they need themselves. `--tiny` is a dry run on a CPU. See README.md.
"""

import argparse
import os
import sys
import time
from pathlib import Path

import torch

from lab.zoo import data, results
from lab.zoo.one import Settings, run_flops
from lab.zoo.pool import Job, run_jobs
from lab.zoo.recipes import EMBEDDED, RECIPES, Recipe

PILOT = "fir-16M,oak-b-16M,fir-5M,oak-b-5M,ash-1.6M,fir-0.5M,oak-b-0.5M"
TINY_STEPS = 6
RUN_OVERHEAD_SECONDS = 30  # compiling, scoring


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=("prepare", "pilot", "scorer", "train"))
    parser.add_argument(
        "--work",
        type=Path,
        default=Path("zoo-work"),
        help="folder for tokens and finished runs; changed skills, tokenizers or mixtures start a new one in it",
    )
    parser.add_argument("--out", type=Path, help="folder the results are gathered in")
    parser.add_argument("--have", type=Path, help="folder with the results of earlier calls")
    parser.add_argument("--recipe", choices=RECIPES, default=EMBEDDED.name, help="which study the models are for")
    parser.add_argument("--families", help="families to train, with commas; all by default")
    parser.add_argument("--sizes", help="sizes to train, with commas; all by default")
    parser.add_argument("--runs", help="exactly these runs instead, e.g. ash-5M,oak-b-16M")
    parser.add_argument("--jobs", type=int, default=5, help="runs side by side")
    parser.add_argument(
        "--deadline", type=float, default=1e9, help="start no run that would end later than this, in seconds"
    )
    parser.add_argument(
        "--speed", type=float, default=40.0, help="TFLOP/s one of the runs side by side gets, for --deadline"
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="processes that prepare data")
    parser.add_argument("--no-graphs", action="store_true", help="do not record training steps as CUDA graphs")
    parser.add_argument("--tiny", action="store_true", help="a few steps and 20 items, to see that all works")
    return parser.parse_args(arguments)


def choose_runs(options: argparse.Namespace, recipe: Recipe) -> list[tuple[str, str]]:
    """The (family, size) pairs a stage is about, longest first."""
    scorer = (recipe.scorer.name, recipe.scorer_size)
    if options.stage == "scorer":
        return [scorer]
    runs = options.runs or (PILOT if options.stage == "pilot" else None)
    if runs:
        pairs = [tuple(run.rsplit("-", 1)) for run in runs.split(",")]
    else:
        families = options.families.split(",") if options.families else recipe.families
        sizes = options.sizes.split(",") if options.sizes else recipe.sizes
        pairs = [(family, size) for family in families for size in sizes]
        pairs += [scorer] if len(pairs) == len(recipe.families) * len(recipe.sizes) else []
    return sorted(pairs, key=lambda pair: -list(recipe.sizes).index(pair[1]))


def report(result: dict, recipe: Recipe, start: float) -> None:
    """One finished run as a few lines: accuracy of every skill at every checkpoint, and times."""
    clock = f"[{time.monotonic() - start:5.0f} s]"
    if "error" in result:
        print(f"{clock} {result['run']} failed:\n{result['error']}", flush=True)
        return
    print(
        f"{clock} {result['run']}: {result['seconds']} s, of it losses {result['seconds_losses']} and scores "
        f"{result['seconds_scores']}; {result['teraflops']} TFLOP/s; "
        f"last loss {result['loss']}; graphs {result['graphed']}"
    )
    print(f"    {'tokens':>8} " + " ".join(f"{skill:>10}" for skill in recipe.skills))
    for tokens, right in zip(result["tokens"], result["right"], strict=True):
        print(f"    {tokens / 1e6:7.1f}M " + " ".join(f"{share:10.3f}" for share in right), flush=True)


def run_stage(options: argparse.Namespace, recipe: Recipe, pairs: list[tuple[str, str]], start: float) -> list[dict]:
    device = "cuda" if torch.cuda.is_available() and not options.tiny else "cpu"
    extra = {"items": 20, "tiny_steps": TINY_STEPS} if options.tiny else {}
    settings = Settings(options.work, device, recipe, graphed=not options.no_graphs, **extra)
    missing = [pair for pair in pairs if pair not in results.finished(options.work, recipe)]
    jobs: list[Job] = [(family, size, settings) for family, size in missing]
    log: list[dict] = []

    def on_result(result: dict) -> None:
        report(result, recipe, start)
        log.append(result)
        if options.out:
            results.export(options.work, options.out)
            results.append_log(options.out / "log.json", result)

    def fits(job: Job) -> bool:
        expected = RUN_OVERHEAD_SECONDS + run_flops(recipe, job[0], job[1]) / (options.speed * 1e12)
        return time.monotonic() + expected < start + options.deadline

    run_jobs(jobs, workers=options.jobs, fits=fits, on_result=on_result)
    return log


def main(arguments: list[str]) -> int:
    start = time.monotonic()
    options = parse(arguments)
    recipe = RECIPES[options.recipe]
    options.work /= results.fingerprint(recipe)
    pairs = choose_runs(options, recipe)
    if options.have:
        results.restore(options.have, options.work)
    missing = {family for family, size in pairs if (family, size) not in results.finished(options.work, recipe)}
    tokens = 2 * TINY_STEPS * recipe.context if options.tiny else None
    families = [recipe.family(name) for name in sorted(missing)]
    data.prepare(families, options.work, processes=options.processes, tokens=tokens, recipe=recipe)
    print(f"[{time.monotonic() - start:5.0f} s] training tokens ready for {len(missing)} families", flush=True)
    log = [] if options.stage == "prepare" else run_stage(options, recipe, pairs, start)
    if options.out:
        results.export(options.work, options.out)
    return 1 if any("error" in result for result in log) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
