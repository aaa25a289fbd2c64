"""Numbers stay: every method on the embedded study, and fits and a study that version 0.1.0 wrote."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import frozen_numbers
import numpy as np
import pytest
from frozen_numbers import HERE, METHODS, NUMBERS, SECTIONS, TOLERANCE

import benchcast as bc


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, list[float | None]]]:
    return frozen_numbers.compute_alike()


@pytest.mark.parametrize("section", SECTIONS)
def test_numbers_are_those_committed(found: dict[str, dict[str, list[float | None]]], section: str) -> None:
    kept = json.loads(NUMBERS.read_text(encoding="utf-8"))[section]
    assert found[section].keys() == kept.keys()
    for name, values in found[section].items():
        now, then = (np.array(x, float) for x in (values, kept[name]))
        np.testing.assert_allclose(now, then, rtol=TOLERANCE, atol=1e-3 * TOLERANCE, err_msg=name)


def test_fits_made_again_forecast_what_the_stored_ones_do(found: dict[str, dict[str, list[float | None]]]) -> None:
    """All but the intervals, which have the width of their time, and `stack`, which learns a floor since."""
    stored, again = found["stored fits"], found["fits made again"]
    assert stored.keys() == again.keys()
    for name, values in stored.items():
        if name.endswith((" low", " high")) or " stack " in name:
            continue
        np.testing.assert_allclose(np.array(again[name], float), np.array(values, float), rtol=1e-3, err_msg=name)


@pytest.mark.parametrize("method", ["stack", "paper"])
@pytest.mark.parametrize("task", ["task0", "task1"])
def test_an_old_fit_is_read_and_written_without_a_change(method: str, task: str, tmp_path: Path) -> None:
    stored = frozen_numbers.STORED[method] / task
    fit = bc.load(stored)
    written = fit.save(tmp_path / "fit")
    assert (written / "salience.safetensors").read_bytes() == (stored / "salience.safetensors").read_bytes()
    old, new = (json.loads((path / "fit.json").read_text(encoding="utf-8")) for path in (stored, written))
    for document in (old, new):
        document.pop("sha256")
        document["notes"].pop("joint", None)  # a setting of `paper` that 0.1.0 had
    assert new == old
    assert bc.load(written).digest == fit.digest


def test_old_fits_of_the_old_study_are_up_to_date(tmp_path: Path, cli) -> None:
    shutil.copytree(HERE / "study", tmp_path / "study")
    ran = cli("status", tmp_path / "study", "--json")
    assert ran.code == 0
    found = json.loads(ran.out)
    (line,) = found["problems"]
    assert line.startswith("task0, task1: fitted by an older version, whose intervals are kept (`benchcast fit ")
    assert [task["fitted"] for task in found["tasks"]] == [True, True]


def test_every_method_is_frozen(cli) -> None:
    listed = cli("compare", "--help").out.split("Methods:")[1]
    assert all(f"  {method} " in listed for method in METHODS)
