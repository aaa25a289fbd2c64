"""Progress without a terminal: a line at least every 30 seconds, with done, total and time left."""

from __future__ import annotations

import re
import time

import pytest

from benchcast.cli import progress as module
from benchcast.cli.progress import Pace, duration, progress


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
