"""Hours and cost of the paper's models on clusters, by calculation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lab.paper.cluster import Pace, mixture_bytes, simulate
from lab.paper.models import paper_models
from lab.paper.plan import estimate

MODELS = paper_models()


def test_with_one_portion_a_model_the_calculation_is_that_of_the_plan() -> None:
    few = simulate(MODELS, 60_000, 64)
    assert few.workers == len(MODELS)
    assert few.gpus * few.hours * few.busy == pytest.approx(estimate(MODELS, 60_000).gpu_hours)


@pytest.mark.parametrize("gpus", [8, 64, 512])
def test_no_cluster_is_faster_than_its_work_or_than_loading_the_largest_model(gpus: int) -> None:
    simulated, needed = simulate(MODELS, mixture_bytes(), gpus), estimate(MODELS, mixture_bytes())
    assert simulated.hours >= needed.gpu_hours / gpus
    assert simulated.hours * 3600 >= 60 + needed.largest_bytes / Pace().read
    assert 0 < simulated.loading < 1
    assert 0 < simulated.busy <= 1


def test_the_command_prints_each_size_and_refuses_what_cannot_be(lab: Callable[..., Any]) -> None:
    ran = lab("cluster", "--gpus", "8,16", "--price", "3")
    assert ran.code == 0
    assert [line.split()[0] for line in ran.out.splitlines()[-2:]] == ["8", "16"]
    assert lab("cluster", "--gpus", "2").err == (
        "error: 2 GPUs; the largest model needs 4 of one node, which has at most 8\n"
    )
    assert "whole numbers with commas" in lab("cluster", "--gpus", "8;9").err
    assert "invalid value for '--texts'" in lab("cluster", "--texts", "1e300").err
