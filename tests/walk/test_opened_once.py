"""A command reads each file of a study once, and an open study sees what other processes write meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import benchcast as bc
from benchcast.forecasts.staleness import StudyInputs, changed_inputs
from benchcast.study.study import Study

ONCE = ("study.toml", "texts.jsonl", "models.csv", "scores.csv")
FEATURES = ("features/synthetic/features.npy", "features/synthetic/edges.npy")
FIT = ("fit.json", "salience.safetensors")
BOTH = ("task0", "task1")
COMMAND = "import sys; from benchcast.cli import main; sys.argv = {}; main()"
REPORT = "import benchcast.evaluation.compare as c; c.MAIN_METHODS = ('salience', 'all-token'); "


@pytest.fixture(scope="module")
def fitted(synthetic_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The synthetic study with features and a fit of each of its two tasks; not to be written to."""
    folder = tmp_path_factory.mktemp("once") / "study"
    shutil.copytree(synthetic_folder, folder)
    bc.fit_tasks(folder, method="all-token", store=True)
    return folder


@pytest.fixture
def folder(fitted: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(fitted, tmp_path / "study"))


def reads(folder: Path, *words: object, before: str = "") -> Counter[str]:
    """How often a command reads each file of a study, by its path there."""
    report = folder.parent / "reads.json"
    code = before + COMMAND.format([*map(str, ("benchcast", *words))])
    script = Path(__file__).with_name("count_opens.py")
    ran = subprocess.run([sys.executable, str(script), str(report), code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    counted = json.loads(report.read_text())
    found = {name.replace(f"{folder}/", ""): count for name, count in counted.items()}
    return Counter(found)


def loaded(found: Counter[str]) -> dict[str, int]:
    """How often each file of a fit was read."""
    return {name: count for name, count in found.items() if name.endswith(FIT)}


def files_of(*tasks: str) -> list[str]:
    return [f"fits/{task}/{name}" for task in tasks for name in FIT]


def expect(found: Counter[str], folder: Path, *, fits: Sequence[str], losses: dict[str, int]) -> None:
    """All files of the study once, the fits of these tasks once, and each file of losses its number of times."""
    assert {name: found[name] for name in (*ONCE, *FEATURES)} == dict.fromkeys((*ONCE, *FEATURES), 1)
    assert loaded(found) == dict.fromkeys(files_of(*fits), 1)
    names = [f"losses/{path.name}" for path in (folder / "losses").iterdir()]
    assert {name: found[f"footer of {name}"] for name in names} == dict.fromkeys(names, 1)
    assert {name: found[name] for name in names} == {name: losses.get(name, losses["*"]) for name in names}


def test_a_second_reading_is_counted(folder: Path) -> None:
    twice = f"import pyarrow.parquet as pq; p = {str(folder)!r}; open(p + '/texts.jsonl').close(); "
    twice += "[pq.read_schema(f'{p}/losses/family0-1M@2B.parquet') for _ in '12']; "
    found = reads(folder, "status", folder, before=twice)
    assert found["texts.jsonl"] == 2
    assert found["footer of losses/family0-1M@2B.parquet"] == 3


def test_fit_reads_losses_once_and_once_more_for_their_hash(folder: Path) -> None:
    found = reads(folder, "fit", folder, "--method", "salience")
    expect(found, folder, fits=(), losses={"*": 2})


@pytest.mark.parametrize(
    ("words", "fits"),
    [
        ((), BOTH),
        (("--task", "task0"), ("task0",)),
        (("--use-scores",), BOTH),
        (("--use-scores", "--task", "task1"), BOTH),
        (("--register", "made.json"), BOTH),
        (("--task", "task1", "--register", "made.json"), ("task1",)),
    ],
)
def test_predict_loads_each_fit_once(folder: Path, words: tuple[str, ...], fits: tuple[str, ...]) -> None:
    """Losses are read for the forecast of the one model, of all for their plausibility, and for the fits' hashes."""
    words = tuple(str(folder.parent / word) if word.endswith(".json") else word for word in words)
    found = reads(folder, "predict", folder, "--model", "family1-4M@4B", *words)
    expect(found, folder, fits=fits, losses={"*": 2, "losses/family1-4M@4B.parquet": 3})


def test_predict_with_new_fits_reads_the_old_ones_once(folder: Path) -> None:
    """The new losses are read for the fits, the forecast of the one model, their plausibility, and for their hashes."""
    found = reads(folder, "predict", folder, "--model", "family1-4M@4B", "--refit")
    expect(found, folder, fits=BOTH, losses={"*": 3, "losses/family1-4M@4B.parquet": 4})


def test_predict_of_a_mean_loads_the_fits_of_its_members_once(folder: Path) -> None:
    settings = folder / "study.toml"
    settings.write_text(settings.read_text() + '\n[tasks.both]\nmembers = ["task0", "task1"]\n')
    bc.fit_tasks(folder, method="all-token", store=True)
    found = reads(folder, "predict", folder, "--model", "family1-4M@4B", "--task", "both")
    expect(found, folder, fits=("both", *BOTH), losses={"*": 2, "losses/family1-4M@4B.parquet": 3})


def test_status_reads_losses_for_its_checks_for_the_dataset_and_for_hashes(folder: Path) -> None:
    expect(reads(folder, "status", folder), folder, fits=BOTH, losses={"*": 3})


def test_explain_loads_one_fit(folder: Path) -> None:
    found = reads(folder, "explain", folder, "--task", "task0")
    assert {name: found[name] for name in (*ONCE, *FEATURES)} == dict.fromkeys((*ONCE, *FEATURES), 1)
    assert loaded(found) == dict.fromkeys(files_of("task0"), 1)


def test_report_loads_each_fit_once(folder: Path) -> None:
    """However many methods are shown. The tables are hashed, too, for the page."""
    Study.open(folder).add_losses([replace(Study.open(folder).losses("family1-4M@4B"), model="new")])
    found = reads(folder, "report", folder, "--split", "size", before=REPORT)
    assert {name: found[name] for name in ONCE} == dict.fromkeys(ONCE, 2)
    assert {name: found[name] for name in FEATURES} == dict.fromkeys(FEATURES, 1)
    assert loaded(found) == dict.fromkeys(files_of(*BOTH), 1)


# ---- an open study and other processes

OTHER = """
import sys
from dataclasses import replace
from benchcast.records import ModelInfo, Score
from benchcast.study.study import Study

study = Study.open(sys.argv[1])
study.add_losses([replace(study.losses("family0-1M@2B"), model="new", info=None)])
study.add_models([ModelInfo("new", family="late")])
study.add_scores([Score("new", "task0", 0.5)])
features = study.features()
study.add_features("synthetic", features.values + 1, features.edges)
"""


def test_an_open_study_sees_what_another_process_adds(folder: Path) -> None:
    study, fit = Study.open(folder), bc.load(folder / "fits" / "task0")
    before = StudyInputs.of(study)
    assert "new" not in study.models_with_losses()
    assert changed_inputs(study, fit) == []
    old = np.array(study.features().values)
    subprocess.run([sys.executable, "-c", OTHER, str(folder)], check=True)
    assert "new" in study.models_with_losses()
    assert [m.family for m in study.infos(["new"])] == ["late"]
    assert [s.accuracy for s in study.scores() if s.model == "new"] == [0.5]
    losses = study.losses("new")
    assert (losses.info.family, [s.task for s in losses.scores]) == ("late", ["task0"])
    assert "new" in study.dataset(["task0"]).models
    assert (np.array(study.features().values) == old + 1).all()
    assert StudyInputs.of(study).features != before.features
    assert changed_inputs(study, fit) == ["features changed", "fitted on 20 of now 21 models"]


@pytest.mark.parametrize("differs", ["st_ino", "st_mtime_ns", "st_size"])
def test_tables_that_differ_in_one_value_of_their_stamp_are_told_apart(folder: Path, differs: str) -> None:
    """As two versions that were written within one tick of the clock may."""
    study, path = Study.open(folder), folder / "models.csv"
    assert "family1" in {m.family for m in study.listed_models()}
    before, written = path.stat(), folder / "new.csv" if differs == "st_ino" else path
    written.write_text(path.read_text().replace(",family1,", ",family10," if differs == "st_size" else ",familyX,"))
    os.utime(written, ns=(before.st_atime_ns, before.st_mtime_ns + (differs == "st_mtime_ns")))
    written.replace(path)
    values = ("st_ino", "st_mtime_ns", "st_size")
    assert [name for name in values if getattr(path.stat(), name) != getattr(before, name)] == [differs]
    families = {m.family for m in study.listed_models()}
    assert "family1" not in families
    assert families & {"familyX", "family10"}


def test_features_that_another_study_object_replaces_within_one_tick_are_read_again(folder: Path) -> None:
    study = Study.open(folder)
    features, stored = study.features(), study.features_folder("synthetic")
    old, times = np.array(features.values), {p.name: p.stat() for p in stored.iterdir()}
    Study.open(folder).add_features("synthetic", old[::-1], features.edges)
    for path in stored.iterdir():
        os.utime(path, ns=(times[path.name].st_atime_ns, times[path.name].st_mtime_ns))
    assert {p.name: p.stat().st_size for p in stored.iterdir()} == {name: t.st_size for name, t in times.items()}
    assert (np.array(study.features().values) == old[::-1]).all()


def test_losses_that_another_study_object_replaces_are_read_and_hashed_again(folder: Path) -> None:
    study, fit = Study.open(folder), bc.load(folder / "fits" / "task0")
    losses, path = study.losses("family0-1M@2B"), study.losses_path("family0-1M@2B")
    assert changed_inputs(study, fit) == []
    before = path.stat()
    Study.open(folder).add_losses([replace(losses, nats=losses.nats[::-1].copy())], force=True)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (study.losses("family0-1M@2B").nats == losses.nats[::-1]).all()
    assert changed_inputs(study, fit) == ["losses of family0-1M@2B changed"]
