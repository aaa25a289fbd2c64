"""What versions with rank, entropy, hit and margin of tokens wrote: losses are read, and fits say what is gone.

old_files/ holds a study's settings and texts, the losses of one of its models, and fits by two methods, as the last of
these versions wrote them from a synthetic world.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import benchcast as bc
from benchcast.errors import StudyError
from benchcast.study.loss_files import read_losses
from benchcast.study.study import Study
from benchcast.study.tables import read_texts

OLD = Path(__file__).parent / "old_files"
MODEL = "family0-1M@2B"
LOSSES = OLD / f"{MODEL}.parquet"
SIGNALS = ["rank", "entropy", "hit", "margin"]
NOTE = "study.toml: `signals` is ignored: fits read losses only; the line can go"
LINES = {
    "proxy-metrics": "made by proxy-metrics, which is gone; fit again with another method",
    "salience": "made from rank, entropy, hit, margin of tokens, which are gone; fit again from losses",
}


@pytest.fixture
def old_study(tmp_path: Path) -> Path:
    """The folder of an old study with one model."""
    root = tmp_path / "old"
    (root / "losses").mkdir(parents=True)
    for name in ("study.toml", "texts.jsonl"):
        shutil.copy(OLD / name, root / name)
    shutil.copy(LOSSES, root / "losses")
    return root


def stored_nats() -> np.ndarray:
    return pq.read_table(LOSSES)["nats"].combine_chunks().flatten().to_numpy(zero_copy_only=False)


def test_columns_of_an_old_parquet_file_are_ignored(old_study: Path, tmp_path: Path) -> None:
    assert set(SIGNALS) < set(pq.read_schema(LOSSES).names)
    study = Study.open(old_study)
    losses = study.losses(MODEL)
    np.testing.assert_array_equal(losses.nats, stored_nats())
    assert study.add_losses([losses]) == 0, "they are stored already"
    assert study.add_losses([losses], force=True) == 1
    assert pq.read_schema(study.losses_path(MODEL)).names == ["text_id", "bounds", "nats"]
    (imported,) = read_losses(Path(shutil.copy(LOSSES, tmp_path / "elsewhere.parquet")), study.texts)
    np.testing.assert_array_equal(imported.nats, losses.nats)


def test_fields_of_an_old_jsonl_file_are_ignored(tmp_path: Path) -> None:
    """Not even their length or type matters."""
    texts = read_texts(OLD / "texts.jsonl")
    table = pq.read_table(LOSSES)
    rows = [{**row, "rank": row["rank"][1:], "hit": "none"} for row in table.to_pylist()]
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (losses,) = read_losses(tmp_path / "m.jsonl", texts)
    np.testing.assert_array_equal(losses.nats, stored_nats())


def test_a_wide_csv_has_texts_as_columns_and_no_place_for_signals(tmp_path: Path) -> None:
    texts = read_texts(OLD / "texts.jsonl")
    names = [t.id for t in texts]
    (tmp_path / "m.csv").write_text(f"model,{','.join(names)}\nm,{','.join('1.5' for _ in names)}\n", encoding="utf-8")
    (losses,) = read_losses(tmp_path / "m.csv", texts, unit="nats")
    np.testing.assert_array_equal(losses.nats, 1.5)


def test_status_notes_that_the_setting_is_ignored(old_study: Path, cli) -> None:
    assert Study.open(old_study).note == f"{old_study}/{NOTE}"
    shown = cli("status", old_study)
    assert shown.code == 0
    assert "".join(NOTE.split()) in "".join(shown.out.split()), "the terminal may break a line within the path"
    assert bc.status(old_study).problems[0].endswith(NOTE)


def test_fit_notes_that_the_setting_is_ignored_and_fits_as_without_it(study: Study, cli) -> None:
    settings = study.root / "study.toml"
    plain = settings.read_text(encoding="utf-8")
    assert cli("fit", study.root, "--method", "stack", "--task", "task0").err == ""
    before = bc.load(study.fit_folder("task0")).digest
    settings.write_text(plain.replace("seed = 0\n", 'seed = 0\nsignals = ["hit", "no such"]\n'), encoding="utf-8")
    noted = cli("fit", study.root, "--method", "stack", "--task", "task0")
    assert (noted.code, noted.err) == (0, f"note: {study.root}/{NOTE}\n")
    assert bc.load(study.fit_folder("task0")).digest == before


@pytest.mark.parametrize("method", LINES)
def test_a_fit_from_signals_says_what_is_gone(method: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(OLD / method, tmp_path / "fit"))
    with pytest.raises(StudyError) as error:
        bc.load(folder)
    assert str(error.value) == f"{folder}: {LINES[method]}"


@pytest.mark.parametrize("method", LINES)
def test_it_says_so_before_anything_else_is_checked(method: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(OLD / method, tmp_path / "fit"))
    document = json.loads((folder / "fit.json").read_text(encoding="utf-8"))
    spoiled = {"format": 99, "method": document["method"], "reads": document["reads"]}  # no hash, no arrays
    (folder / "fit.json").write_text(json.dumps(spoiled), encoding="utf-8")
    (folder / "salience.safetensors").write_bytes(b"spoiled")
    with pytest.raises(StudyError) as error:
        bc.load(folder)
    assert str(error.value) == f"{folder}: {LINES[method]}"


def test_commands_say_it_in_one_line_and_fit_replaces_it(study: Study, cli) -> None:
    folder = study.fit_folder("task0")
    shutil.copytree(OLD / "proxy-metrics", folder)
    ran = cli("predict", study.root, "--all")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == f"error: {folder}: {LINES['proxy-metrics']}\n"
    status = bc.status(study.root)
    assert f"{folder}: {LINES['proxy-metrics']}" in status.problems
    assert status.next_step == f"benchcast fit {study.root}"
    assert cli("fit", study.root, "--task", "task0", "--method", "all-token").code == 0
    assert cli("predict", study.root, "--all").code == 0
