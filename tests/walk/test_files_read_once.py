"""Commands that bring files into a study open each of these files once."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parents[1]
LOGS, SCORES = TESTS / "logs" / "fixtures", TESTS / "scores" / "fixtures"
LIGHTEVAL = LOGS / "lighteval-0.13.0"
METRIC = ("--metric", "pond_write=exact_match,strict-match")
LOSSES = "model,hellaswag,piqa,web\n" + "".join(
    f"m{i},{3 - i / 10:g},{2 - i / 10:g},{1 - i / 20:g}\n" for i in range(8)
)

_watched: list[tuple[Path, Counter[str]]] = []


def _on_event(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(arguments[0], str | Path):
        for folder, opened in _watched:
            path = Path(arguments[0])
            if path.is_relative_to(folder) and path.is_file():
                opened[str(path.relative_to(folder))] += 1


sys.addaudithook(_on_event)  # cannot be removed again; it does nothing while no folder is watched


@contextmanager
def opens(folder: Path) -> Iterator[Counter[str]]:
    """How often each file below a folder is opened."""
    opened: Counter[str] = Counter()
    _watched.append((folder, opened))
    try:
        yield opened
    finally:
        _watched.pop()


def once(folder: Path) -> dict[str, int]:
    return {str(p.relative_to(folder)): 1 for p in folder.rglob("*") if p.is_file()}


def test_a_second_opening_is_counted(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    with opens(tmp_path) as opened:
        (tmp_path / "a").read_text()
        with (tmp_path / "a").open("rb"):
            pass
    assert opened == {"a": 2}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("lm-eval-0.4.0", METRIC),
        ("lm-eval-0.4.0", ("--items", "0.5")),
        ("lm-eval-0.4.4", METRIC),
        ("lm-eval-0.4.13", METRIC),
        ("lm-eval-0.4.13", ("--items", "0.5", *METRIC)),
    ],
)
def test_a_study_from_logs_of_lm_eval(cli, tmp_path: Path, name: str, words: tuple[str, ...]) -> None:
    logs = Path(shutil.copytree(LOGS / name, tmp_path / "logs"))
    with opens(logs) as opened:
        ran = cli("init", tmp_path / "s", "--from-lm-eval", logs, *words)
    assert ran.code == 0, ran.err
    assert opened == once(logs)


def test_a_study_from_logs_of_lighteval(cli, tmp_path: Path) -> None:
    logs = Path(shutil.copytree(LIGHTEVAL, tmp_path / "logs"))
    with opens(logs) as opened:
        ran = cli("init", tmp_path / "s", "--from-lighteval", logs)
    assert ran.code == 0, ran.err
    assert opened == once(logs)


@pytest.fixture
def another(cli, tmp_path: Path) -> tuple[Path, Path]:
    """A study of half of the items of some models, and the logs of another one."""
    logs = Path(shutil.copytree(LOGS / "lm-eval-0.4.13", tmp_path / "logs"))
    new = Path(shutil.move(logs / "models__sedge-c", tmp_path / "new"))
    assert cli("init", tmp_path / "s", "--from-lm-eval", logs, "--items", "0.5", *METRIC).code == 0
    return tmp_path / "s", new


def test_losses_and_scores_of_a_folder_with_logs(cli, another: tuple[Path, Path]) -> None:
    study, new = another
    for words in (("losses", study, new), ("scores", study, new, *METRIC)):
        with opens(new) as opened:
            ran = cli("import", *words)
        assert ran.code == 0, ran.err
        assert opened == once(new)


def test_losses_of_several_sample_files_of_one_run(cli, another: tuple[Path, Path]) -> None:
    study, new = another
    with opens(new) as opened:
        ran = cli("import", "losses", study, *sorted(new.glob("samples_*.jsonl")))
    assert ran.code == 0, ran.err
    assert opened == once(new)


@pytest.mark.parametrize("preset", [(), ("--preset", "olmes")], ids=["plain", "preset"])
def test_a_study_from_a_table(cli, tmp_path: Path, preset: tuple[str, ...]) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "losses.csv").write_text(LOSSES)
    with opens(tmp_path / "in") as opened:
        ran = cli("init", tmp_path / "s", "--table", tmp_path / "in" / "losses.csv", "--unit", "nats", *preset)
    assert ran.code == 0, ran.err
    assert opened == {"losses.csv": 1}


@pytest.fixture
def scored(tmp_path: Path) -> Path:
    """A study with a few tasks."""
    from benchcast.records import Task, Text, TextSet
    from benchcast.study.study import Study

    names = ("mmlu", "pond", "pond_sums", "gsm8k")
    return Study.create(
        tmp_path / "s", TextSet.of([Text("a", "mmlu", "one")]), tasks=[Task(n, 0.0) for n in names]
    ).root


def recorded(folder: Path, pattern: str) -> None:
    for path in SCORES.glob(pattern):
        shutil.copy(path, folder)


V1 = "Model,Average,ARC,HellaSwag,MMLU\nm,50,50,50,52\n"


def results(key: str) -> str:
    return json.dumps({"config_general": {"model_name": "m"}, "results": {key: {"acc": 0.1}}})


def parquet(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"fullname": ["m"], "MMLU Raw": [0.3]}), folder / "v2.parquet")


FORMATS: dict[str, Callable[[Path], object]] = {
    "lm-evaluation-harness results": lambda folder: recorded(folder, "results_*.json"),
    "lighteval results": lambda folder: (folder / "r.json").write_text(results("mmlu|5")),
    "Open LLM Leaderboard v1 results": lambda folder: (folder / "r.json").write_text(results("harness|gsm8k|5")),
    "Open LLM Leaderboard v1 table": lambda folder: (folder / "v1.csv").write_text(V1),
    "Open LLM Leaderboard v2 table": parquet,
    "OpenCompass summary": lambda folder: recorded(folder, "summary_*.csv"),
    "long CSV": lambda folder: (folder / "long.csv").write_text("model,task,accuracy\nm,mmlu,0.5\n"),
    "list of scores": lambda folder: (folder / "l.csv").write_text("model,task,metric,accuracy\nm,mmlu,acc,0.5\n"),
    "export of W&B, MLflow or TensorBoard": lambda folder: (folder / "wandb.csv").write_text(
        "Name,State,eval/mmlu/acc\nm,finished,0.5\n"
    ),
    "wide table": lambda folder: (folder / "wide.csv").write_text("model,mmlu (%)\nm,50\n"),
}


@pytest.mark.parametrize("name", FORMATS)
def test_score_files(cli, scored: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    FORMATS[name](tmp_path / "in")
    files = sorted((tmp_path / "in").iterdir())
    metric = ("--metric", "pond_sums=exact_match,strict-match") if name == "lm-evaluation-harness results" else ()
    with opens(tmp_path / "in") as opened:
        ran = cli("import", "scores", scored, *files, *metric)
    assert ran.code == 0, ran.err
    assert f"read: {name} × {len(files)}" in ran.out
    assert opened == once(tmp_path / "in")


def test_every_format_is_read_once() -> None:
    from benchcast.importers.scores.formats import FORMATS as KNOWN

    assert {form.name for form in KNOWN} == set(FORMATS)
