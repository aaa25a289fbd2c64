"""On a real cluster: every job is done, its result is taken once, and the study has the bytes of a run without Ray."""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import work
from ray_nodes import Nodes

from benchcast.datasets import load_zoo
from benchcast.executor import Job, Local
from benchcast.methods import METHODS
from benchcast.records import TextSet
from benchcast.store import Study

ZOO = Path(__file__).parents[1] / "zoo" / "shipped"
MODELS = ("ash-0.5M", "cedar-0.5M")
Tree = Callable[[Path], dict[str, str]]


def attempts(folder: Path, given: int) -> int:
    return len(list(folder.glob(f"{given}-*")))


def until(ready: Callable[[], bool]) -> None:
    end = time.monotonic() + 200  # many times what an idle machine needs
    while not ready():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.02)


def squares(count: int) -> dict[str, int]:
    return {str(i): i * i for i in range(count)}


def test_results_are_those_of_the_plain_loop(nodes: Nodes, tmp_path: Path) -> None:
    jobs = [Job(f"job {i}", i) for i in range(9)]
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    reference = {str(n): found for n, found in Local().run(work.square, jobs, tmp_path / "here")}
    assert nodes.drive("square", 9, tmp_path / "there") == {"found": reference, "notes": [], "error": ""}
    assert {attempts(tmp_path / "there", i) for i in range(9)} == {1}


def test_a_worker_that_runs_out_of_memory_gives_its_job_to_another(nodes: Nodes, tmp_path: Path) -> None:
    done = nodes.drive("starve", 5, tmp_path)
    assert (done["found"], done["error"]) == (squares(5), "")
    assert attempts(tmp_path, 1) == 3
    assert done["notes"][0] == "job 1: its worker was lost: it ran out of memory; attempt 2 of 4"


def test_a_job_that_kills_every_worker_is_given_up_with_one_line(nodes: Nodes, tmp_path: Path) -> None:
    done = nodes.drive("killed", 4, tmp_path)
    assert attempts(tmp_path, 1) == 4
    assert done["error"].startswith(
        "ClusterError: job 1: tried 4 times, and each time its worker was lost; the last: its process was killed"
    )
    assert set(done["found"]) <= {"0", "2", "3"}


def test_a_users_mistake_is_one_line(nodes: Nodes, tmp_path: Path) -> None:
    done = nodes.drive("mistaken", 3, tmp_path)
    assert done["error"] in {f"InputError: job {i}: too little evidence; add some" for i in range(3)}


def test_jobs_of_a_node_that_is_lost_are_begun_again(nodes: Nodes, tmp_path: Path) -> None:
    process = nodes.start_driving("slow_square", 8, tmp_path)
    until(lambda: len(list(tmp_path.glob("*"))) >= 4)
    assert nodes.tell("kill 0") > 0, "it had workers, and they died with it"
    nodes.tell("add")
    done = json.loads(process.communicate(timeout=200)[0].splitlines()[-1])
    assert (done["found"], done["error"]) == (squares(8), "")
    assert max(attempts(tmp_path, i) for i in range(8)) > 1
    assert any("its worker was lost" in note for note in done["notes"])


@pytest.fixture
def locally(cli: Callable[..., Any]) -> Callable[..., None]:
    """Run commands without Ray, on one thread as there."""

    def run(*commands: list[object]) -> None:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        for command in commands:
            ran = cli(*command)
            assert ran.code == 0, ran.err
        torch.set_num_threads(threads)

    return run


def make(root: Path, texts: int) -> Study:
    """A study of the first embedded texts: 60 are one portion of work for each model, all 650 are two."""
    return Study.create(root, TextSet.of(load_zoo().texts.texts[:texts]))


def collect(root: Path, *models: str) -> list[object]:
    listed = root.parent / f"{root.name}.toml"
    row = '[[models]]\nmodel = "hf"\nfamily = "small"\nmodel_args = "pretrained={}"\n'
    listed.write_text("".join(row.format(ZOO / name) for name in models))
    return ["collect", root, "--models", listed]


def test_collect_and_features_give_the_same_bytes(
    nodes: Nodes, locally: Callable[..., None], tmp_path: Path, tree: Tree
) -> None:
    roots = tmp_path / "here", tmp_path / "there"
    scorer = ["--scorer", ZOO / "oak-a-0.5M", "--dims", 8, "--dtype", "float32"]
    (here, there) = ([collect(make(root, 60).root, *MODELS), ["features", root, *scorer]] for root in roots)
    locally(*here)
    for command in there:
        ran = nodes.benchcast(*command)
        assert (ran.returncode, ran.stderr) == (0, "")
    assert tree(roots[1]) == tree(roots[0])
    assert sorted(Study.open(roots[1]).models_with_losses()) == sorted(MODELS)


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


def test_a_model_that_cannot_be_loaded_is_named_and_the_others_are_stored(nodes: Nodes, tmp_path: Path) -> None:
    study = make(tmp_path / "study", 20)
    shutil.copytree(ZOO / MODELS[1], tmp_path / "broken")
    (tmp_path / "broken" / "model.safetensors").write_bytes(b"no weights")
    rows = [
        f'[[models]]\nmodel = "hf"\nmodel_args = "pretrained={p}"\n' for p in (tmp_path / "broken", ZOO / MODELS[0])
    ]
    (tmp_path / "models.toml").write_text("".join(rows))
    ran = nodes.benchcast("collect", study.root, "--models", tmp_path / "models.toml")
    assert ran.returncode == 1
    why, summary = ran.stderr.splitlines()
    assert "broken: the model cannot be loaded" in why
    assert summary == "error: 1 of 2 models failed: broken; the others are done"
    assert study.models_with_losses() == [MODELS[0]]


def test_compare_gives_the_same_bytes(nodes: Nodes, cli: Callable[..., Any], small_folder: Path) -> None:
    command = ["compare", small_folder, "--split", "family", "--json"]
    alone, shared = cli(*command), nodes.benchcast(*command)
    assert (shared.returncode, shared.stderr) == (0, "")
    assert shared.stdout == alone.out
    assert json.loads(alone.out)["methods"] == list(METHODS), "all of them were tried"
