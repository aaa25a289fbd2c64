"""Progress without a terminal: a line at least every 30 seconds, with done, total and time left."""

from __future__ import annotations

import os
import re
import time

import pytest

from benchcast.cli import progress as module
from benchcast.cli.progress import Pace, duration, progress
from benchcast.steps import Loop, listening, steps


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(module, "SECONDS", 0.05)


def test_a_line_comes_at_least_every_30_seconds_without_a_terminal():
    assert module.SECONDS <= 30


def test_lines_have_done_total_and_time_left_without_a_terminal(quick, capsys):
    with progress("scoring", 4) as advance:
        for _ in range(3):
            advance()
            time.sleep(0.12)
    said = capsys.readouterr()
    lines = said.err.splitlines()
    assert not said.out
    assert len(lines) >= 4
    assert re.fullmatch(r"scoring: 3 of 4 done, \d+ s so far, about \d+ s left", lines[-1])


def test_a_step_that_never_advances_is_not_silent(quick, capsys):
    with progress("fitting stack"):
        time.sleep(0.2)
    assert re.match(r"fitting stack, \d+ s so far\n", capsys.readouterr().err)


def test_without_a_total_the_steps_of_the_outermost_loop_are_counted(quick, capsys):
    with progress("fitting stack"):
        for _ in steps(["column"], "folds"):
            for _ in steps(["mmlu", "bbh", "arc"], "tasks"):
                for _ in steps(range(2), "kinds of candidates"):
                    time.sleep(0.1)
    said = capsys.readouterr().err
    assert re.match(r"fitting stack: 0 of 3 tasks, 0 s so far", said)
    assert re.search(r"fitting stack: 2 of 3 tasks, \d s so far, about 0 s left", said)
    assert "folds" not in said
    assert "kinds" not in said


def test_a_part_of_a_step_counts_for_the_time_left():
    now = time.monotonic()
    pace = Pace("fitting stack")
    pace.follow([Loop(6, "tasks"), Loop(8, "kinds of candidates", 4)])
    pace.loop_began = now - 10
    assert pace.seconds_left(now) == pytest.approx(10 / 0.5 * 5.5)


def test_loops_are_counted_in_this_process_alone_and_forgotten_where_they_break_off():
    seen = []
    with listening(lambda loops: seen.append([loop.what for loop in loops])):
        for _ in steps(range(2), "tasks"):
            break
        assert list(steps(iter("ab"), "letters", total=2)) == ["a", "b"]
        pid = os.fork()
        if not pid:
            count = len(seen)
            list(steps(range(2), "in the fork"))
            os._exit(len(seen) - count)
        assert os.waitpid(pid, 0)[1] == 0
    assert seen == [["tasks"], ["letters"], ["letters"], ["letters"]]
    assert list(steps(range(2), "unheard")) == [0, 1]
    assert len(seen) == 4


COMMANDS = {
    ("fit",): "tasks",
    ("fit", "--method", "pls"): "tasks",
    ("fit", "--method", "paper", "--task", "task0"): "steps",
    ("predict", "--all", "--refit"): "tasks",
    ("compare", "--jobs", "1"): "done",
    ("compare", "--runs", "family0,family1"): "tasks",
    ("explain", "--task", "task0", "--json"): "models read",
    ("status",): "models read",
    ("proxies",): "sets of hidden models",
    ("select", "--budget", "4"): "models read",
    ("extrapolate", "--family", "family0", "--to", "params=1e9,tokens=1e10"): "sets of hidden models",
    ("report",): "done",
    ("bpb",): "models read",
}


@pytest.mark.parametrize(("command", "counted"), COMMANDS.items(), ids=" ".join)
def test_every_long_command_counts_its_work(cli, study, monkeypatch, command, counted):
    monkeypatch.setattr(module, "SECONDS", 0.001)
    assert cli("fit", study.root).code == 0
    ran = cli(command[0], study.root, *command[1:])
    assert ran.code == 0, ran.err
    assert re.search(rf": \d+ of \d+ {counted}, \d+ s so far", ran.err), ran.err


def test_imports_count_files(cli, study, world, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "SECONDS", 0.001)
    for i in range(40):
        (tmp_path / f"scores-{i}.csv").write_text(f"model,task,accuracy\nnew-{i},task0,0.5\n", encoding="utf-8")
    ran = cli("import", "scores", study.root, *sorted(tmp_path.glob("scores-*.csv")))
    assert ran.code == 0, ran.err
    assert re.search(r"reading: \d+ of 40 files read, \d+ s so far", ran.err), ran.err


def test_no_line_comes_after_the_work_or_in_short_work(quick, capsys):
    with progress("reading", 1) as advance:
        advance()
    time.sleep(0.15)
    assert capsys.readouterr().err == ""


def test_work_of_an_earlier_run_does_not_count_as_speed():
    now = time.monotonic()
    pace = Pace("collecting", 1000, began=now - 100)
    pace.done, pace.first = 600, (now - 50, 500)  # 500 texts were there; 100 more took 50 seconds
    assert pace.seconds_left(now) == pytest.approx(200)


def test_time_left_is_said_after_the_first_of_a_few_steps():
    now = time.monotonic()
    pace = Pace("comparing", 3, began=now - 60)
    assert pace.seconds_left(now) is None
    pace.done, pace.first = 1, (now, 1)
    assert pace.seconds_left(now) == pytest.approx(120)


def test_durations_are_rounded_to_two_units():
    assert [duration(s) for s in (0, 59.4, 59.6, 3599.7, 86400)] == [
        "0 s",
        "59 s",
        "1 min 0 s",
        "1 h 0 min",
        "24 h 0 min",
    ]
