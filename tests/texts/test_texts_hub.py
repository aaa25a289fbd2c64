"""Items from the hub, through the real `datasets`: repositories that lie in the working directory, no network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import benchcast
from benchcast.errors import InputError
from benchcast.importers.mixture import PAPER_MIX, SETS, build_mixture, read_hub
from benchcast.study.study import Study

pytest.importorskip("datasets", reason="reads the hub through `datasets`")
CHINESE = {"A": "甲", "B": "乙", "C": "丙", "D": "丁"}
NUMBERS = ("one", "two", "three", "four")
MIX = "mmlu=3,bbh=4,gsm8k=3,hellaswag=3,cmmlu=4,ceval=4"


def rows_of(benchmark: str, subject: str) -> list[dict[str, Any]]:
    """Invented items with the fields that the repository has."""
    return [
        {
            "mmlu": {"question": f"Is it {n}?", "subject": "law", "choices": ["a", "b", "c", n], "answer": 3},
            "bbh": {"input": f"{subject}: {n}?", "target": n},
            "gsm8k": {"question": f"What is {n} and {n}?", "answer": f"So\n#### {n}"},
            "hellaswag": {
                "ind": i,
                "activity_label": "Diving",
                "ctx": f"She dives {n} times. She",
                "endings": ["swims."],
                "label": "0",
            },
            "cmmlu": {"Question": f"{subject} {n} 题", **CHINESE, "Answer": "B"},
            "ceval": {"id": i, "question": f"{subject} {n} 问", **CHINESE, "answer": "C"},
        }[benchmark]
        for i, n in enumerate(NUMBERS)
    ]


def write_repository(root: Path, benchmark: str, kind: str) -> None:
    """A repository as the hub keeps it: data files, and a card that says which configuration has which."""
    repository, split, everything = SETS[benchmark]
    folder = root / repository
    card = ["---", "configs:"]
    for name in [everything] if everything else ["anatomy", "history"]:
        file = folder / name / f"{split}.{kind}"
        file.parent.mkdir(parents=True)
        rows = rows_of(benchmark, name)
        if kind == "parquet":
            pq.write_table(pa.Table.from_pylist(rows), file)
        else:
            file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        card += [f"- config_name: {name}", "  data_files:", f"  - split: {split}", f"    path: {name}/{file.name}"]
    (folder / "README.md").write_text("\n".join([*card, "---", ""]), encoding="utf-8")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hub")
    for number, benchmark in enumerate(sorted(set(SETS) - {"mmlu"})):
        write_repository(root, benchmark, "parquet" if number % 2 else "jsonl")
    write_repository(root, "mmlu", "parquet")
    return root


def apart(hub: Path, cache: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: `datasets` reads where its cache lies when it is loaded."""
    package = str(Path(benchcast.__file__).parents[1])
    settings = {**os.environ, "HF_HOME": str(cache), "HF_HUB_OFFLINE": "1", "PYTHONPATH": package}
    command = [sys.executable, "-c", "from benchcast.cli import main; main()", *words]
    return subprocess.run(command, cwd=hub, env=settings, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_mixture_is_drawn_from_repositories_of_the_hub(hub: Path, tmp_path: Path) -> None:
    ran = apart(hub, tmp_path / "cache", "init", str(tmp_path / "s"), "--mix", MIX, "--seed", "1")
    assert ran.returncode == 0, ran.stderr
    texts = Study.open(tmp_path / "s").texts
    assert Counter(t.source for t in texts) == {"mmlu": 3, "bbh": 4, "gsm8k": 3, "hellaswag": 3, "cmmlu": 4, "ceval": 4}
    by_id = {t.id: t.text for t in texts}
    subjects = {i.rsplit("-", 1)[0] for i in by_id}
    assert {"mmlu-law", "gsm8k-main", "hellaswag-default"} < subjects
    assert {i.split("-")[1] for i in by_id if i.startswith("cmmlu")} <= {"anatomy", "history"}
    assert all(text.endswith("答案：B") for i, text in by_id.items() if i.startswith("cmmlu"))
    again = apart(hub, tmp_path / "cache", "init", str(tmp_path / "t"), "--mix", MIX, "--seed", "1")
    assert again.returncode == 0
    assert (tmp_path / "s" / "texts.jsonl").read_bytes() == (tmp_path / "t" / "texts.jsonl").read_bytes()


@pytest.mark.slow
def test_what_is_out_of_reach_is_one_clear_line(tmp_path: Path) -> None:
    ran = apart(tmp_path, tmp_path / "cache", "init", "s", "--mix", "gsm8k=3")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith("error: openai/gsm8k: could not be read from the hub (")
    assert ran.stderr.endswith("download the files and give them with --data\n")
    assert ran.stderr.count("\n") == 1
    assert not (tmp_path / "s").exists()


def test_chains_of_thought_need_their_files_and_nothing_is_fetched_before_that_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    for read in (lambda: list(read_hub("bbh-cot")), lambda: build_mixture(PAPER_MIX, None)):
        with pytest.raises(InputError, match="bbh-cot: the hub has no data set of the chain-of-thought prompts"):
            read()
