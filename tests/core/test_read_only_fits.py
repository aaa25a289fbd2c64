"""A public study, which is read-only, is forecast by fits that are made in memory, once."""

from __future__ import annotations

import shutil

import pytest

import benchcast as bc
from benchcast.errors import StudyError
from benchcast.forecasts import fit as fitting


@pytest.fixture
def public(small_folder, tmp_path):
    """A study that is marked as public."""
    shutil.copytree(small_folder, tmp_path / "public")
    (tmp_path / "public" / "READ-ONLY").write_text("zoo\n", encoding="utf-8")
    return bc.Study.open(tmp_path / "public")


def test_a_read_only_study_is_forecast_and_stays_as_it_is(public, tree, monkeypatch):
    before, calls = tree(public.root), []
    usual = fitting.fit_tasks
    monkeypatch.setattr(fitting, "fit_tasks", lambda *a, **k: calls.append(a) or usual(*a, **k))
    forecasts = bc.predict(public)
    assert len(forecasts) == len(public.models_with_losses()) * len(public.tasks)
    assert not forecasts.failed
    assert bc.predict(public, [forecasts[0].model])[0] == forecasts[0]
    assert len(calls) == 1, "the second call uses the fits of the first"
    assert tree(public.root) == before


def test_the_fits_in_memory_are_those_of_fit_tasks(public, small_folder, tmp_path):
    study = bc.Study.open(shutil.copytree(small_folder, tmp_path / "own"))
    bc.fit_tasks(study, store=True)
    model = study.models_with_losses()[0]
    assert bc.predict(public, [model])[0].accuracy == bc.predict(study, [model])[0].accuracy


def test_the_command_says_that_nothing_is_stored(public, cli):
    ran = cli("predict", public.root, "--model", public.models_with_losses()[0])
    assert ran.code == 0, ran.err
    assert "is read-only and has no fits; it is fitted in memory, nothing is stored" in ran.err
    assert "makes a copy to work on" in cli("fit", public.root).err


def test_the_embedded_study_is_forecast_at_once():
    forecasts = bc.predict(bc.datasets.load_zoo(), ["ash-50M@36.0M"], tasks=["code"])
    assert 0 < forecasts[0].low < forecasts[0].accuracy < forecasts[0].high


def test_a_study_of_ones_own_without_fits_still_says_what_to_run(small_folder, tmp_path):
    study = bc.Study.open(shutil.copytree(small_folder, tmp_path / "own"))
    with pytest.raises(StudyError, match="no fits yet; run `benchcast fit"):
        bc.predict(study)
