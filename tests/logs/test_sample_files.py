"""Files of samples are read side by side as they are one after the other."""

from __future__ import annotations

import json
import math
import re
import shutil
import time
from pathlib import Path

import pytest
from log_files import NEW, OLD

import benchcast as bc
from benchcast.cli import progress
from benchcast.errors import InputError
from benchcast.importers.logs import sample_files
from benchcast.importers.logs.runs import read_run, read_runs
from benchcast.importers.logs.sample_files import read_sample_files, read_samples


@pytest.fixture
def two_processes(monkeypatch):
    monkeypatch.setattr(sample_files, "WORTH", 0)
    monkeypatch.setattr(sample_files.os, "sched_getaffinity", lambda process: {0, 1})


def test_two_processes_give_the_items_of_one(two_processes, monkeypatch):
    seen = []
    side_by_side = read_runs(NEW, on_file=seen.append)
    monkeypatch.setattr(sample_files, "WORTH", math.inf)
    alone = read_runs(NEW)
    read = [
        [(r.model, task, *items) for r in runs for task, items in r.items.items()] for runs in (side_by_side, alone)
    ]
    assert repr(read[0]) == repr(read[1])
    assert sorted(seen) == sorted(file for run in alone for file in run.results.samples.values())


def test_an_error_in_a_process_is_the_same_line(two_processes, tmp_path):
    (tmp_path / "a.jsonl").write_text("{")
    (tmp_path / "b.jsonl").write_text("{")
    with pytest.raises(InputError, match=r"[ab]\.jsonl: line 1: not JSON"):
        read_sample_files([(tmp_path / "a.jsonl", "t"), (tmp_path / "b.jsonl", "t")])


def test_items_are_the_same_with_and_without_orjson(monkeypatch):
    pytest.importorskip("orjson")
    file = next((NEW / "models__reed-c").glob("samples_pond_sums_*"))
    fast = read_samples(file, "pond_sums")
    monkeypatch.setattr(sample_files, "fast_json", lambda: json.loads)
    assert repr([*read_samples(file, "pond_sums")]) == repr([*fast])


def test_a_metric_that_is_not_a_number_is_read_as_before(tmp_path):
    file = next((NEW / "models__reed-c").glob("samples_pond_sums_*"))
    rows = [json.loads(line) | {"odd": math.nan} for line in file.read_text().splitlines()]
    (tmp_path / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "NaN" in (tmp_path / "samples.jsonl").read_text()
    assert read_samples(tmp_path / "samples.jsonl", "pond_sums").equals(read_samples(file, "pond_sums"))


@pytest.mark.parametrize("worth", [0, math.inf])
def test_all_runs_share_one_copy_of_what_was_asked(two_processes, monkeypatch, worth):
    monkeypatch.setattr(sample_files, "WORTH", worth)
    runs = [run for run in read_runs(NEW) if "pond_sums" in run.items]
    assert len(runs) > 2
    assert len({id(run.items["pond_sums"].asked) for run in runs}) == 1
    assert read_run(OLD / "results.json").items


@pytest.mark.parametrize("worth", [0, math.inf])
def test_a_run_whose_samples_are_there_twice_counts_once(two_processes, monkeypatch, tmp_path, worth):
    monkeypatch.setattr(sample_files, "WORTH", worth)
    other, twice = NEW / "models__reed-c", Path(shutil.copytree(NEW / "models__reed-d", tmp_path / "twice"))
    before = bc.compare_items([other, twice], metrics={"pond_write": "exact_match,strict-match"})
    shutil.copytree(twice, twice / "again")
    after = bc.compare_items([other, twice], metrics={"pond_write": "exact_match,strict-match"})
    assert after.to_dict() == before.to_dict()


@pytest.mark.parametrize("command", ["init", "compare"])
def test_files_of_samples_are_counted_once(cli, monkeypatch, tmp_path, command):
    monkeypatch.setattr(progress, "SECONDS", 0.001)
    read = sample_files.read_samples
    monkeypatch.setattr(sample_files, "read_samples", lambda *file: time.sleep(0.01) or read(*file))
    folders = [Path(shutil.copytree(NEW / name, tmp_path / name)) for name in ("models__reed-c", "models__reed-d")]
    files = len(list(tmp_path.rglob("samples_*.jsonl")))
    arguments = {
        "init": ("init", tmp_path / "study", "--from-lm-eval", tmp_path),
        "compare": ("compare", "--items", *folders),
    }
    ran = cli(*arguments[command], "--metric", "pond_write=exact_match,strict-match")
    assert ran.code == 0, ran.err
    assert re.search(rf"reading [^:]*: \d+ of {files} files read, ", ran.err), ran.err
