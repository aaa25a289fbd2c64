"""What `fit_tasks` returns: fits by position and by task, and what was left out."""

from __future__ import annotations

import pickle

import pytest

import benchcast as bc
from benchcast.errors import InputError


@pytest.fixture
def fits(study):
    """Fits of a study in which task0 has scores of two models only."""
    path = study.root / "scores.csv"
    head, *rows = path.read_text(encoding="utf-8").splitlines()
    lacking = [row for row in rows if ",task0," in row][2:]
    path.write_text("\n".join([head, *(row for row in rows if row not in lacking)]) + "\n", encoding="utf-8")
    return bc.fit_tasks(study.root, method="all-token")


def test_fits_are_found_by_position_and_by_task(fits):
    assert isinstance(fits, list)
    assert fits["task1"] is fits[fits.tasks.index("task1")]
    assert fits[:1] == [fits[0]]


def test_a_task_that_is_left_out_says_why(fits):
    assert list(fits.left_out) == ["task0"]
    assert "a fit needs at least" in fits.left_out["task0"]
    assert "left out: task0: 2 training models" in repr(fits)
    assert "left out: task0" in fits._repr_html_()
    with pytest.raises(InputError, match="no fit of task 'task0': 2 training models"):
        fits["task0"]


def test_a_wrong_name_of_a_task_is_one_line(fits):
    with pytest.raises(InputError, match=r"no fit of task 'tsk1'; there are .*did you mean"):
        fits["tsk1"]


def test_what_was_left_out_survives_pickling(fits):
    assert pickle.loads(pickle.dumps(fits)).left_out == fits.left_out
