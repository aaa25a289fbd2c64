"""On a real cluster: every job is done, and its result is taken once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import work
from ray_nodes import Nodes
from studies import until

from benchcast.executors.local import Job, Local

pytestmark = pytest.mark.slow


def attempts(folder: Path, given: int) -> int:
    return len(list(folder.glob(f"{given}-*")))


def squares(count: int) -> dict[str, int]:
    return {str(i): i * i for i in range(count)}


def test_results_are_those_of_the_plain_loop(nodes: Nodes, tmp_path: Path) -> None:
    jobs = [Job(f"job {i}", i) for i in range(9)]
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    reference = {str(n): result for n, result in Local().run(work.square, jobs, tmp_path / "here")}
    assert nodes.drive("square", 9, tmp_path / "there") == {"results": reference, "notes": [], "error": ""}
    assert {attempts(tmp_path / "there", i) for i in range(9)} == {1}


def test_a_worker_that_runs_out_of_memory_gives_its_job_to_another(nodes: Nodes, tmp_path: Path) -> None:
    done = nodes.drive("starve", 5, tmp_path)
    assert (done["results"], done["error"]) == (squares(5), "")
    assert attempts(tmp_path, 1) == 3
    assert done["notes"][0] == "job 1: its worker was lost: it ran out of memory; attempt 2 of 4"


def test_a_job_that_kills_every_worker_is_given_up_with_one_line(nodes: Nodes, tmp_path: Path) -> None:
    done = nodes.drive("killed", 4, tmp_path)
    assert attempts(tmp_path, 1) == 4
    assert done["error"].startswith(
        "ClusterError: job 1: tried 4 times, and each time its worker was lost; the last: its process was killed"
    )
    assert set(done["results"]) <= {"0", "2", "3"}


def test_a_users_mistake_is_one_line(nodes: Nodes, tmp_path: Path) -> None:
    done = nodes.drive("mistaken", 3, tmp_path)
    assert done["error"] in {f"InputError: job {i}: too little evidence; add some" for i in range(3)}


def test_jobs_of_a_node_that_is_lost_are_begun_again(nodes: Nodes, tmp_path: Path) -> None:
    process = nodes.start_driving("slow_square", 8, tmp_path)
    until(lambda: len(list(tmp_path.glob("*"))) >= 4)
    assert nodes.send("kill 0") > 0, "it had workers, and they died with it"
    nodes.send("add")
    done = json.loads(process.communicate(timeout=200)[0].splitlines()[-1])
    assert (done["results"], done["error"]) == (squares(8), "")
    assert max(attempts(tmp_path, i) for i in range(8)) > 1
    assert any("its worker was lost" in note for note in done["notes"])
