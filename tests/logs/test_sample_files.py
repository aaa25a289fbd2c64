"""Files of samples are read side by side as they are one after the other."""

from __future__ import annotations

import json
import math

import pytest
from log_files import NEW, OLD

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
    assert [repr((r.model, r.items)) for r in side_by_side] == [repr((r.model, r.items)) for r in alone]
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
    assert repr(read_samples(file, "pond_sums")) == repr(fast)


def test_a_metric_that_is_not_a_number_is_read_as_before(tmp_path):
    file = next((NEW / "models__reed-c").glob("samples_pond_sums_*"))
    rows = [json.loads(line) | {"odd": math.nan} for line in file.read_text().splitlines()]
    (tmp_path / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "NaN" in (tmp_path / "samples.jsonl").read_text()
    assert repr(read_samples(tmp_path / "samples.jsonl", "pond_sums")) == repr(read_samples(file, "pond_sums"))


def test_all_runs_share_one_copy_of_each_prompt():
    one, other = read_runs(NEW)[:2]
    task = "pond_sums"
    assert one.items[task][0].prompt is other.items[task][0].prompt
    assert read_run(OLD / "results.json").items
