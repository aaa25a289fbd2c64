"""Real clusters that lose nodes, memory or their head in the middle of a command."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from ray_nodes import ENVIRONMENT, Nodes, starting
from studies import MODELS, ZOO, Tree, collect, make, until

pytest.importorskip("ray")
pytestmark = [pytest.mark.integrations, pytest.mark.timeout(600)]


def busy_workers(nodes: Nodes) -> int:
    """Workers of the cluster that have begun a job."""
    running = psutil.Process(nodes.process.pid).children(recursive=True)
    return sum("ray::_Body.run" in " ".join(process.cmdline()) for process in running if process.is_running())


def test_compare_survives_the_loss_of_a_node(nodes: Nodes, cli: Callable[..., Any], small_folder: Path) -> None:
    command = ["compare", small_folder, "--split", "family", "--json"]
    alone = cli(*command)
    started = nodes.start(*command)
    until(lambda: busy_workers(nodes) == 2)
    assert nodes.send("kill 0") > 0, "it had workers, and they died with it"
    nodes.send("add")
    ran = started.wait_for()
    assert "its worker was lost" in ran.stderr
    assert (ran.returncode, ran.stdout) == (0, alone.out)


def test_features_survive_the_loss_of_a_node(
    nodes: Nodes, locally: Callable[..., None], tmp_path: Path, tree: Tree
) -> None:
    options = ["--scorer", ZOO / "oak-a-0.5M", "--dims", 8, "--dtype", "float32"]
    here, there = make(tmp_path / "here", 650), make(tmp_path / "there", 650)
    locally(["features", here.root, *options])
    started = nodes.start("features", there.root, *options)
    until(lambda: busy_workers(nodes) == 2)
    assert nodes.send("kill 1") > 0
    nodes.send("add")
    ran = started.wait_for()
    assert ran.returncode == 0, ran.stderr
    assert "its worker was lost" in ran.stderr
    assert tree(there.root) == tree(here.root)


def drive(nodes: Nodes, call: str, jobs: str, shared: str) -> list[Any]:
    """Results of a function of work.py in the order of its jobs; of bytes, their number and the first."""
    script = (
        "import json, sys, work; from pathlib import Path; from benchcast.executors import Job, open_executor\n"
        f"with open_executor('ray', address={nodes.address!r}) as executor:\n"
        f"    found = dict(executor.run(work.{call}, {jobs}, {shared}))\n"
        "found = {n: [len(r), r[0]] if isinstance(r, bytes) else r for n, r in found.items()}\n"
        "print(json.dumps([found[number] for number in sorted(found)]))"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout.splitlines()[-1]))


def test_results_that_do_not_fit_into_the_object_store_arrive(nodes: Nodes, tmp_path: Path) -> None:
    """Six results of 60 MB; the store of a node holds 80 MB, and Ray moves what does not fit to disk."""
    jobs = "[Job(f'job {i}', i) for i in range(6)]"
    assert drive(nodes, "large", jobs, f"Path({str(tmp_path)!r})") == [[60 << 20, i] for i in range(6)]


def test_shared_data_larger_than_the_object_store_arrives(nodes: Nodes) -> None:
    jobs = "[Job(f'job {i}', i) for i in range(4)]"
    assert drive(nodes, "byte_of", jobs, "bytes(range(250)) * (1 << 20)") == [0, 1, 2, 3]


@pytest.fixture(scope="module")
def with_gpus() -> Iterator[Nodes]:
    """Two nodes with two logical GPUs and one CPU each."""
    with starting(2, gpus=2) as cluster:
        yield cluster


def test_workers_get_the_logical_gpus_that_they_ask_for(with_gpus: Nodes, tmp_path: Path) -> None:
    """Numbers that Ray counts: no GPU is here."""
    whole = drive(
        with_gpus, "logical_gpus", "[Job(f'job {i}', i, gpus=2) for i in range(2)]", f"Path({str(tmp_path)!r})"
    )
    assert [sorted(ids) for ids in whole] == [["0", "1"], ["0", "1"]]
    half = drive(
        with_gpus, "logical_gpus", "[Job(f'job {i}', i, gpus=0.5) for i in range(4)]", f"Path({str(tmp_path)!r})"
    )
    assert all(len(ids) == 1 for ids in half)


def test_a_command_that_loses_the_head_says_so_and_continues_on_the_next_cluster(
    locally: Callable[..., None], tmp_path: Path, tree: Tree
) -> None:
    locally(collect(make(tmp_path / "here", 650).root, *MODELS))
    study = make(tmp_path / "there", 650)
    with starting(1) as first:
        started = first.start(*collect(study.root, *MODELS))
        until(lambda: bool(study.models_with_losses() or list(study.root.glob("collecting/*/*.npz"))))
        first.send("behead")
        ran = started.wait_for()
        first.process.kill()
    assert ran.returncode != 0
    assert "Traceback" not in ran.stderr
    last = ran.stderr.splitlines()[-1]  # Ray, which tries to reach the head for up to a minute, may print a line before
    assert "which ends it when the cluster's head is lost; finished work is kept" in last
    with starting(2) as second:
        again = second.benchcast(*collect(study.root, *MODELS))
    assert again.returncode == 0, again.stderr
    assert "from an earlier run" in again.stdout or "stored already" in again.stdout
    assert tree(study.root / "losses") == tree(tmp_path / "here" / "losses")
