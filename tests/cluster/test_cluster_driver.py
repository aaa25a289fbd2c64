"""A driver that is killed goes on where it was, and a comparison on a real cluster is that of one process."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ray_nodes import Nodes
from studies import MODELS, Tree, collect, make, until

from benchcast.methods import METHODS

pytestmark = pytest.mark.slow


def test_a_driver_that_is_killed_goes_on_where_it_was(
    nodes: Nodes, locally: Callable[..., None], tmp_path: Path, tree: Tree
) -> None:
    """One model in two portions, which may be scored on two nodes: the bytes are those of one process."""
    locally(collect(make(tmp_path / "here", 650).root, MODELS[0]))
    study = make(tmp_path / "study", 650)
    command = collect(study.root, MODELS[0])
    started = nodes.start(*command)
    until(lambda: bool(study.models_with_losses() or list(study.root.glob("collecting/*/*.npz"))))
    started.process.send_signal(signal.SIGKILL)
    started.process.communicate()
    before = {name: study.losses_path(name).stat().st_mtime_ns for name in study.models_with_losses()}
    again = nodes.benchcast(*command)
    assert again.returncode == 0, again.stderr
    assert "from an earlier run" in again.stdout or "stored already" in again.stdout
    assert {name: study.losses_path(name).stat().st_mtime_ns for name in before} == before, "nothing is done twice"
    assert tree(study.root / "losses") == tree(tmp_path / "here" / "losses")


def test_compare_gives_the_same_bytes(nodes: Nodes, cli: Callable[..., Any], small_folder: Path) -> None:
    command = ["compare", small_folder, "--split", "family", "--all-methods", "--json"]
    alone, shared = cli(*command), nodes.benchcast(*command)
    progress = [line for line in shared.stderr.splitlines() if line.endswith((" so far", " left"))]
    assert (shared.returncode, shared.stderr.splitlines()) == (0, progress)
    assert shared.stdout == alone.out
    assert json.loads(alone.out)["methods"] == list(METHODS), "all of them were tried"
