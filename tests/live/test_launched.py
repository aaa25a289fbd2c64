"""Training scripts under real launchers: the last forecast that was logged is that of the weights that were saved."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from small import small_model
from transformers import AutoModelForCausalLM

from benchcast.callbacks import forecast
from benchcast.study.study import Study

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
SCRIPT = str(Path(__file__).with_name("launched.py"))
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
# "--cpu" would start a single process; without a GPU these two train on CPUs
ACCELERATE = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--main_process_port", "0"]


def launch(launcher: list[str], study: Study, out: Path, **settings: Any) -> dict[str, Any]:
    """Run the script; the last forecast that rank 0 logged."""
    command = [sys.executable, *launcher, SCRIPT, str(study.root), str(out), json.dumps(settings)]
    done = subprocess.run(command, cwd=out, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    log = json.loads((out / "log.json").read_text())
    assert [row["step"] for row in log if "forecast/task0" in row] == [2, 4, 6], done.stderr[-3000:]
    assert [row["step"] for row in log if "loss" in row] == [2, 4, 6]
    return [row for row in log if "forecast/task0" in row][-1]


def same(logged: dict[str, Any], model: Any, tokenizer: Any, study: Study) -> None:
    for task, expected in forecast(model, tokenizer, study).items():
        assert logged[f"capability/{task}"] == pytest.approx(expected.capability, rel=1e-5)
        assert logged[f"forecast/{task}"] == pytest.approx(expected.accuracy, abs=1e-6)
    untrained = forecast(small_model(), tokenizer, study)["task0"].capability
    assert logged["capability/task0"] != pytest.approx(untrained, rel=1e-3), "it was trained"


@pytest.mark.parametrize("launcher", [TORCHRUN, ACCELERATE], ids=["torchrun", "accelerate"])
def test_two_processes(launcher: list[str], fitted: Study, tokenizer: Any, tmp_path: Path) -> None:
    logged = launch(launcher, fitted, tmp_path)
    assert json.loads((tmp_path / "about.json").read_text()) == {"ranks": 2, "sharded": False}
    same(logged, AutoModelForCausalLM.from_pretrained(tmp_path / "weights"), tokenizer, fitted)


@pytest.mark.integrations
def test_a_compiled_model(fitted: Study, tokenizer: Any, tmp_path: Path) -> None:
    """With torch's own compiler, which needs one for C++."""
    logged = launch([], fitted, tmp_path, torch_compile=True)
    same(logged, AutoModelForCausalLM.from_pretrained(tmp_path / "weights"), tokenizer, fitted)


@pytest.mark.integrations
@pytest.mark.parametrize("launcher", [[], TORCHRUN], ids=["alone", "torchrun"])
def test_an_adapter_of_peft(launcher: list[str], fitted: Study, tokenizer: Any, tmp_path: Path) -> None:
    from peft import PeftModel

    logged = launch(launcher, fitted, tmp_path, lora=True)
    merged = PeftModel.from_pretrained(small_model(), tmp_path / "weights").merge_and_unload()
    same(logged, merged, tokenizer, fitted)
