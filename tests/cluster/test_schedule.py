"""Which job and which group come next, and what a cluster is told when it is asked for wrongly."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchcast.executors.local import Job, Local
from benchcast.executors.ray import Schedule


def make(*costs: tuple[str, float]) -> Schedule:
    return Schedule.of([Job(f"{group}{i}", i, group=group, cost=cost) for i, (group, cost) in enumerate(costs)])


def test_this_process_hands_on_the_results_of_a_generator_as_they_are_made() -> None:
    begun = []

    def three(shared: int, start: int) -> Iterator[int]:
        for i in range(3):
            begun.append(start + i)
            yield shared * (start + i)

    results = Local().run(three, [Job("a", 0), Job("b", 10)], 2)
    assert next(results) == (0, 0)
    assert begun == [0], "the rest is not computed before it is needed"
    assert [*results] == [(0, 2), (0, 4), (1, 20), (1, 22), (1, 24)]


def test_a_worker_reserves_the_most_that_a_job_of_its_group_needs() -> None:
    jobs = [Job("a", 0, group="g", gpus=0.5), Job("b", 1, group="g", gpus=2.0), Job("c", 2, group="h")]
    assert Schedule.of(jobs).gpus == {"g": 2.0, "h": 0.0}


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 9)), max_size=12))
def test_every_job_of_a_group_is_taken_once_and_dearest_first(costs: list[tuple[str, float]]) -> None:
    schedule = make(*costs)
    for group in {g for g, _ in costs}:
        taken = []
        while (number := schedule.take(group, 0.0)) is not None:
            taken.append(number)
        assert sorted(taken) == [i for i, (g, _) in enumerate(costs) if g == group]
        assert [costs[i][1] for i in taken] == sorted((costs[i][1] for i in taken), reverse=True)


def test_a_job_that_came_to_nothing_waits_its_time_and_is_counted() -> None:
    schedule = make(("a", 2), ("a", 1))
    assert schedule.take("a", 0.0) == 0
    schedule.give_back(0, not_before=5.0)
    assert [schedule.take("a", 1.0), schedule.take("a", 1.0), schedule.take("a", 5.0)] == [1, None, 0]
    assert schedule.attempts == [2, 1]


def test_a_group_without_a_worker_comes_first_then_the_one_with_most_to_do() -> None:
    schedule = make(("big", 9), ("big", 9), ("big", 9), ("small", 1), ("small", 1))
    assert schedule.next_group([], []) == "big"
    assert schedule.next_group(["big"], []) == "small"
    assert schedule.next_group(["big", "small"], []) == "big"
    assert schedule.next_group(["small"] * 3, ["big"] * 3) == "small", "no more workers than jobs"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--address", "auto"], "--address auto is of a Ray cluster; add --executor ray"),
        (["--executor", "ray", "--address", "nonsense"], "HOST:PORT is needed"),
        (["--executor", "ray", "--address", "http://head:8265"], "is not for a driver; HOST:6379 is needed"),
    ],
)
def test_an_address_that_leads_to_no_cluster_is_one_line(
    synthetic_folder: Path, cli: Callable[..., Any], given: list[str], said: str
) -> None:
    ran = cli("compare", synthetic_folder, *given)
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert said in ran.err


@pytest.mark.slow
def test_a_cluster_that_is_not_there_is_one_line(synthetic_folder: Path) -> None:
    """In a process of its own, where Ray may start and fail as it likes."""
    arguments = ["compare", str(synthetic_folder), "--executor", "ray", "--address", "127.0.0.1:1"]
    command = [sys.executable, "-c", "from benchcast.cli import main; main()", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr.count("\n")) == (1, 1)
    assert "no Ray cluster answers at 127.0.0.1:1" in ran.stderr


def test_without_ray_the_way_to_get_it_is_said(
    synthetic_folder: Path, cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    ran = cli("compare", synthetic_folder, "--executor", "ray")
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert ran.err.startswith("error: ray is needed here: pip install 'benchcast[ray]'")


def test_a_check_against_another_backend_is_not_for_a_cluster(synthetic_folder: Path, cli: Callable[..., Any]) -> None:
    ran = cli("collect", synthetic_folder, "--model", "hf", "--check-against", "hf", "--executor", "ray")
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert "leave out --executor ray" in ran.err
