"""The code of docs/training.md runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from small import Rows
from transformers import TrainingArguments

PAGE = Path(__file__).parents[2] / "docs" / "training.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.M | re.S)


def test_the_page_has_code_for_every_kind_of_loop() -> None:
    code = "\n".join(BLOCKS)
    assert all(name in code for name in ("TransformersForecast(", "LightningForecast(", "forecast(", "Reading("))


@pytest.mark.parametrize("code", BLOCKS, ids=lambda code: code.splitlines()[0])
def test_a_block_runs(
    code: str, fitted_folder: Path, model: Any, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "lightning" in code:
        pytest.importorskip("lightning")
    monkeypatch.chdir(fitted_folder.parent)
    arguments = TrainingArguments(output_dir=str(tmp_path), report_to="none", use_cpu=True)
    given = {"model": model, "tokenizer": tokenizer, "arguments": arguments, "rows": Rows(8)}
    exec(compile(code, str(PAGE), "exec"), given)


def test_what_needs_no_lightning_imports_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lightning", "lightning.pytorch", "pytorch_lightning", "benchcast.training.lightning"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    lines = [line for code in BLOCKS for line in code.splitlines() if line.startswith("from benchcast")]
    for line in lines:
        if "LightningForecast" not in line:
            exec(line, {})
