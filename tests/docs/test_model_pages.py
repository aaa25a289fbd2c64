"""The commands of docs/collect.md and docs/training.md run as they stand, with small models under their names."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from benchcast.datasets import copy_dataset
from benchcast.forecasts.fit import fit_tasks
from lab.paper.standins import SKILLS, write_stand_in
from tools.site.pages import blocks, renew, shape, steps

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "collect.md").read_text(encoding="utf-8")
TRAINING = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
TEXTS = {"english": "The otter number {} sleeps.", "chinese": "第{}只水獭在睡觉。", "code": "print({} + 1)"}


def run(cli: Callable[..., tuple[int, str, str]], line: str) -> str:
    code, out, err = cli(*shlex.split(line)[1:])
    assert code == 0, (line, err)
    return out + err


def test_the_page_prints_what_it_shows(
    cli: Callable[..., tuple[int, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers", reason="losses are collected with transformers")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    rows = [{"source": source, "text": text.format(i)} for source, text in TEXTS.items() for i in range(4)]
    Path("texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    Path("models.toml").write_text(next(block for kind, block in blocks(PAGE) if kind == "toml"), encoding="utf-8")
    for seed, name in enumerate(("smollm2-135m", "gemma-3-270m", "stories15m")):
        write_stand_in(Path("models") / name, dict.fromkeys(SKILLS, 0.5), seed=seed, merging=bool(seed))

    assert shape(renew(PAGE, partial(run, cli))) == shape(PAGE)
    assert Path("bpb.csv").is_file()


def test_a_run_is_watched_as_the_page_of_training_shows(
    cli: Callable[..., tuple[int, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers", reason="checkpoints are read with transformers")
    monkeypatch.chdir(tmp_path)
    study = copy_dataset("zoo", tmp_path / "study")
    fit_tasks(study, ["facts", "code"], method="label-token", store=True)
    for step, name in ((500, "ash-0.5M"), (1000, "oak-a-0.5M")):
        shutil.copytree(ROOT / "tests" / "zoo" / "shipped" / name, f"runs/my-run/checkpoint-{step}")
    ((command, shown),) = [step for step in steps(TRAINING) if step[0].startswith("benchcast watch")]
    assert shape(run(cli, command)) == shape("\n".join(shown))
