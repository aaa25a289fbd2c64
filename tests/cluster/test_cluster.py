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
from ray_nodes import Nodes, here

from benchcast.demo import open_embedded
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
    end = time.monotonic() + 300  # many times what an idle machine needs
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
    process = nodes.start_driving("slow_square", 12, tmp_path)
    until(lambda: len(list(tmp_path.glob("*"))) >= 4)
    workers = [nodes.tell("kill 0"), nodes.tell("kill 1")]
    assert sum(workers) > 0, "it had workers, and they died with it"
    nodes.tell("add")
    done = json.loads(process.communicate(timeout=200)[0].splitlines()[-1])
    assert (done["found"], done["error"]) == (squares(12), "")
    assert max(attempts(tmp_path, i) for i in range(12)) > 1
    assert any("its worker was lost" in note for note in done["notes"])


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory, cli: Callable[..., Any]) -> Path:
    """Losses of two models and features of a third, made without Ray, on one thread as there."""
    root = tmp_path_factory.mktemp("here") / "study"
    make(root)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for command in commands(root):
        ran = cli(*command)
        assert ran.code == 0, ran.err
    torch.set_num_threads(threads)
    return root


def make(root: Path) -> Study:
    return Study.create(root, TextSet.of(open_embedded().texts.texts))


def commands(root: Path) -> list[list[object]]:
    listed = root.parent / f"{root.name}.toml"
    row = '[[models]]\nmodel = "hf"\nfamily = "small"\nmodel_args = "pretrained={}"\n'
    listed.write_text("".join(row.format(ZOO / name) for name in MODELS))
    return [
        ["collect", root, "--models", listed],
        ["features", root, "--scorer", ZOO / "oak-a-0.5M", "--dims", 8, "--dtype", "float32"],
    ]


def test_collect_and_features_give_the_same_bytes(nodes: Nodes, collected: Path, tmp_path: Path, tree: Tree) -> None:
    make(tmp_path / "study")
    for command in commands(tmp_path / "study"):
        ran = nodes.benchcast(*command)
        assert (ran.returncode, ran.stderr) == (0, "")
    assert tree(tmp_path / "study") == tree(collected)


def test_a_driver_that_is_killed_goes_on_where_it_was(
    nodes: Nodes, collected: Path, tmp_path: Path, tree: Tree
) -> None:
    study = make(tmp_path / "study")
    collect, _ = commands(study.root)
    started = nodes.start(*collect)
    until(lambda: bool(study.models_with_losses() or list(study.root.glob("collecting/*/*.npz"))))
    started.process.send_signal(signal.SIGKILL)
    started.process.communicate()
    before = {name: study.losses_path(name).stat().st_mtime_ns for name in study.models_with_losses()}
    again = nodes.benchcast(*collect)
    assert again.returncode == 0, again.stderr
    assert "from an earlier run" in again.stdout or "stored already" in again.stdout
    assert {name: study.losses_path(name).stat().st_mtime_ns for name in before} == before, "nothing is done twice"
    assert tree(study.root / "losses") == tree(collected / "losses")


def test_a_model_that_cannot_be_loaded_is_named_and_the_others_are_stored(nodes: Nodes, tmp_path: Path) -> None:
    study = make(tmp_path / "study")
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


def test_compare_gives_the_same_bytes(nodes: Nodes, planted_folder: Path) -> None:
    command = ["compare", planted_folder, "--split", "family", "--json"]
    alone, shared = here(*command), nodes.benchcast(*command)
    assert (shared.returncode, shared.stderr) == (0, "")
    assert shared.stdout == alone.stdout
    assert json.loads(alone.stdout)["methods"] == list(METHODS), "all of them were tried"
