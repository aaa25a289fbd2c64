"""Two real processes: the work is shared, and one rank's failure stops nobody."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchcast.callbacks import forecast
from benchcast.study.study import Study
from benchcast.training.ranks import Ranks

COUNT = 2


@given(jobs=st.integers(1, 40), count=st.integers(1, 9))
def test_every_job_is_done_and_every_rank_does_as_many(jobs: int, count: int) -> None:
    parts = [Ranks(rank, count).assigned(range(jobs)) for rank in range(count)]
    assert set().union(*parts) == set(range(jobs))
    assert len({len(p) for p in parts}) == 1
    assert sum(map(len, parts)) - jobs < count, "nothing is done twice but to fill the last turn"


@pytest.fixture(scope="module")
def results_by_rank(fitted: Study, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    out = tmp_path_factory.mktemp("ranks")
    command = [sys.executable, str(Path(__file__).with_name("ranks.py"))]
    running = [
        subprocess.Popen([*command, str(rank), str(COUNT), str(fitted.root), str(out)], stderr=subprocess.PIPE)
        for rank in range(COUNT)
    ]
    try:
        errors = [process.communicate(timeout=200)[1].decode()[-3000:] for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert [process.returncode for process in running] == [0] * COUNT, "\n".join(errors)
    return [json.loads((out / f"{rank}.json").read_text()) for rank in range(COUNT)]


@pytest.mark.slow
def test_ranks_share_the_texts_and_all_get_the_forecast(
    results_by_rank: list[dict[str, Any]], fitted: Study, model: Any, tokenizer: Any
) -> None:
    alone = forecast(model, tokenizer, fitted)
    for rank in results_by_rank:
        assert rank["spread"] == pytest.approx({task: f.capability for task, f in alone.items()}, rel=1e-6)
    calls = []
    model.model.register_forward_hook(lambda *_: calls.append(1))
    forecast(model, tokenizer, fitted)
    probes = 2  # of the head, once through the model and once through its body
    assert all(rank["calls"] - probes == -(-(len(calls) - probes) // COUNT) for rank in results_by_rank)


@pytest.mark.slow
def test_a_failure_of_one_rank_is_said_on_all_and_nobody_waits(results_by_rank: list[dict[str, Any]]) -> None:
    for said in (rank["failure"] for rank in results_by_rank):
        assert len(said) == 1, "once, though it failed twice"
        assert "ZeroDivisionError: division by zero" in said[0]
    assert "rank 1: ZeroDivisionError" in results_by_rank[0]["failure"][0]
