"""FSDP, tensor parallelism, ZeRO-3 on two processes: forecasts of the gathered weights, and undisturbed training."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small import small_model

from benchcast.callbacks import read_fits
from benchcast.study.study import Study
from benchcast.training.live import Reader

pytestmark = pytest.mark.slow

SHARDINGS = ("fsdp1", "fsdp1-flat", "fsdp2", "tp")
DEEPSPEED = pytest.param("zero3", marks=[pytest.mark.integrations, pytest.mark.timeout(1200)])


@pytest.fixture(scope="module")
def run(fitted: Study, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder that two processes of torchrun leave; all kinds of FSDP in one go."""

    @cache
    def start(*kinds: str) -> Path:
        out = tmp_path_factory.mktemp("sharded")
        script = [str(Path(__file__).with_name("sharded.py")), str(fitted.root), str(out), *kinds]
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *script]
        environment = {**os.environ, "DS_ACCELERATOR": "cpu"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return out

    return lambda kind: start(*SHARDINGS) if kind in SHARDINGS else start(kind)


@pytest.fixture
def results_folder(run: Callable[[str], Path], kind: str) -> Path:
    if kind == "zero3":
        pytest.importorskip("deepspeed", reason="DeepSpeed is in the group integrations")
    return run(kind)


@pytest.mark.parametrize("kind", [*SHARDINGS, DEEPSPEED])
def test_the_forecast_of_a_sharded_model_is_that_of_its_gathered_weights(
    results_folder: Path, kind: str, fitted: Study, tokenizer: Any
) -> None:
    reader = Reader.of(tokenizer, read_fits(fitted))
    model = small_model()
    before = reader.losses(model).nats
    missing, unexpected = model.load_state_dict(torch.load(results_folder / f"{kind}.pt"), strict=False)
    assert (set(missing) <= {"lm_head.weight"}, unexpected) == (True, []), "the head is the embedding"
    alone, expected = reader.losses(model).nats, reader.forecast(model)
    assert np.abs(alone - before).max() > 0.1, "it was trained"
    for rank in (0, 1):
        result = json.loads((results_folder / f"{kind}-{rank}.json").read_text())
        assert result["sharded"]
        np.testing.assert_allclose(result["nats"], alone, atol=1e-5)
        assert result["capability"] == pytest.approx({t: f.capability for t, f in expected.items()}, rel=1e-6)


@pytest.mark.parametrize("kind", [*SHARDINGS, DEEPSPEED])
def test_a_forecast_does_not_change_the_training_of_a_sharded_model(results_folder: Path, kind: str) -> None:
    for rank in (0, 1):
        assert json.loads((results_folder / f"{kind}-{rank}.json").read_text())["same training"]
