"""`benchcast …` in a fork of a process that has loaded it: it starts at once, and a kill falls into its work."""

from __future__ import annotations

import multiprocessing
import os
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path

import benchcast
from benchcast.cli import main

# what commands would load after the fork; the server knows installed packages only, not this folder
LOADED = ["__main__", "benchcast.cli", *set(benchcast._HOME.values()), "rich.progress", "safetensors.numpy"]


def start(stderr: Path, *arguments: object) -> BaseProcess:
    """Start a command whose standard error goes to a file."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    process = context.Process(target=run, args=(stderr, [*map(str, arguments)]))
    process.start()
    return process


def run(stderr: Path, arguments: list[str]) -> None:
    """In the child: the entry point, as from a shell."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
    sys.argv = ["benchcast", *arguments]
    main()
