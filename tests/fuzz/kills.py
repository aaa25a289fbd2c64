"""Kill benchcast with SIGKILL at random moments of its commands; nothing may be lost, and the same command finishes it.

Each command runs in a process that is forked from this one, which has loaded all libraries: a kill then falls into
the work and not into imports.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from targets import Sandbox, workplace

import benchcast as bc
from benchcast.cli import main
from benchcast.errors import BenchcastError
from benchcast.study.study import Study


@dataclass
class Killed:
    """What became of the kills."""

    kills: int = 0
    in_time: int = 0  # the command was still running
    lost: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


def commands() -> dict[str, list[str]]:
    """What is killed; {} is the sandbox."""
    return {
        "import losses": ["import", "losses", "{}/study", "{}/new.jsonl", "--family", "f", "--allow-implausible"],
        "import scores": ["import", "scores", "{}/study", "{}/scores.csv", "--allow-mixed"],
        "import features": ["import", "features", "{}/study", "{}/f.npz", "--name", "synthetic"],
        "fit": ["fit", "{}/study", "--method", "constant"],
        "select": ["select", "{}/study", "--budget", "4", "--no-check", "-o", "{}/small"],
    }


def start(arguments: list[str], here: Path) -> int:
    """Run a command in a process of its own; returns its id."""
    child = os.fork()
    if child:
        return child
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    sys.argv = ["benchcast", *(part.replace("{}", str(here)) for part in arguments)]
    code = 1
    try:
        main()
        code = 0
    except SystemExit as leave:
        code = int(leave.code or 0)
    finally:
        os._exit(code)


def finish(arguments: list[str], here: Path) -> int:
    """Run a command to its end; returns its exit status."""
    return os.waitstatus_to_exitcode(os.waitpid(start(arguments, here), 0)[1])


def tree(root: Path) -> dict[str, str]:
    """Every file that counts, with its hash."""
    files = (p for p in root.rglob("*") if p.is_file() and p.name != ".lock")
    return {str(p.relative_to(root)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def lost(here: Path, before: Study) -> str:
    """What a study lacks of what it held before a command was killed; empty where all is there."""
    try:
        study = Study.open(here / "study")
        losses = [study.losses(name) for name in study.models_with_losses()]
        fits = [bc.load(study.fit_folder(task)) for task in study.fitted_tasks()]
        scores, models = study.scores(), study.models()
        features = study.features()
    except BenchcastError as error:
        return str(error)
    if not {x.model for x in losses} >= set(before.models_with_losses()):
        return "losses"
    if len(fits) != len(before.fitted_tasks()) or features is None:
        return "fits or features"
    kept = {(s.model, s.task, s.accuracy) for s in scores} >= {(s.model, s.task, s.accuracy) for s in before.scores()}
    return "" if kept and {m.model for m in models} >= {m.model for m in before.models()} else "rows"


def run(count: int, seed: int) -> Killed:
    """Kill commands in turn, each at a random moment."""
    rng, killed = np.random.default_rng(seed), Killed()
    with workplace() as folder:
        sandbox = Sandbox(Path(folder) / "whole")
        before = Study.open(sandbox.folder / "study")
        calm = {}
        for name, arguments in commands().items():
            here, began = sandbox.copy(Path(folder) / "calm"), time.monotonic()
            assert finish(arguments, here) == 0, name
            calm[name] = (time.monotonic() - began, tree(here))
        for number in range(count):
            name = list(calm)[number % len(calm)]
            here = sandbox.copy(Path(folder) / "killed")
            child = start(commands()[name], here)
            time.sleep(float(rng.uniform(0, calm[name][0])))
            os.kill(child, signal.SIGKILL)
            killed.in_time += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
            killed.kills += 1
            if description := lost(here, before):
                killed.lost.append(f"{name}, kill {number}: {description}")
            code = finish(commands()[name], here)
            if code or tree(here) != calm[name][1]:
                other = {k for k, v in (tree(here).items() ^ calm[name][1].items())}
                killed.failed.append(f"{name}, kill {number}: exit {code}, other files {sorted(other)[:4]}")
            shutil.rmtree(here)
    return killed
