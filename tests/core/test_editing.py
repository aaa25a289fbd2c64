"""Models leave a study or change their name whole: losses, metadata and scores together."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import benchcast as bc
from benchcast.errors import InputError
from benchcast.records import Score
from benchcast.study.editing import remove_models, rename_model
from benchcast.study.study import Study

ONE, FAMILY = "family0-1M@2B", "family0-*"


def parts(study: Study) -> tuple[set[str], set[str], set[str]]:
    """Models with losses, with metadata, with scores."""
    study = Study.open(study.root)
    listed = {line.split(",")[0] for line in (study.root / "models.csv").read_text().splitlines()[1:]}
    return set(study.models_with_losses()), listed, {s.model for s in study.scores()}


def test_remove_takes_losses_metadata_and_scores_and_names_the_fits(study, cli):
    assert cli("fit", study.root, "--method", "all-token").code == 0
    ran = cli("remove", study.root, "--model", ONE)
    assert ran.code == 0
    assert ran.out == (
        f"{study.root}: removed 1 model ({ONE})\n"
        "1 losses file, 1 row of models.csv, 2 scores\n"
        "fits that learned from it: task0, task1\n"
        f"next: benchcast fit {study.root}\n"
    )
    assert all(ONE not in names for names in parts(study))
    assert len(Study.open(study.root).models_with_losses()) == 19


def test_a_dry_run_says_the_same_and_changes_nothing(study, cli, tree):
    before = tree(study.root)
    ran = cli("remove", study.root, "--model", FAMILY, "--dry-run")
    assert ran.code == 0
    assert "would remove 4 models (family0-16M@8B, family0-1M@2B, family0-4M@4B, family0-64M@16B)" in ran.out
    assert tree(study.root) == before


def test_patterns_and_several_models_are_removed_together(study):
    removal = remove_models(study, [FAMILY, "family1-1M@2B"])
    assert (len(removal.models), removal.losses, removal.rows, removal.scores, removal.fits) == (5, 5, 5, 10, ())


def test_a_study_without_any_model_left_can_still_be_used(study, cli):
    assert cli("remove", study.root, "--model", "*").code == 0
    assert cli("status", study.root).code == 0
    left = Study.open(study.root)
    assert (left.models(), left.scores(), left.models_with_losses()) == ([], [], [])


def test_a_model_with_scores_alone_is_removed_too(study):
    study.add_scores([Score("ghost", "task0", 0.5)])
    removal = remove_models(study, ["ghost"])
    assert (removal.losses, removal.rows, removal.scores) == (0, 0, 1)


def test_an_unknown_model_is_one_line_and_nothing_is_removed(study, cli, tree):
    before = tree(study.root)
    ran = cli("remove", study.root, "--model", ONE, "--model", "family0-1M@2b")
    assert ran.code == 1
    assert ran.err == f"error: {study.root}: no model 'family0-1M@2b'; did you mean '{ONE}'?\n"
    assert tree(study.root) == before


# ---- rename


def test_rename_moves_everything_and_names_the_fits(study, cli):
    assert cli("fit", study.root, "--method", "all-token").code == 0
    losses, (info,) = study.losses(ONE), study.infos([ONE])
    ran = cli("rename", study.root, ONE, "org/new name")
    assert ran.code == 0
    assert "fits that learned from it: task0, task1" in ran.out
    now = Study.open(study.root)
    assert all("org/new name" in names and ONE not in names for names in parts(now))
    assert now.infos(["org/new name"]) == [replace(info, model="org/new name")]
    moved = now.losses("org/new name")
    assert np.array_equal(moved.nats, losses.nats)
    assert moved.about == losses.about


def test_half_precision_losses_stay_half(study, world):
    study.add_losses([replace(world.losses[0], model="half")], half=True)
    before = study.losses("half").nats
    size = study.losses_path("half").stat().st_size
    rename_model(study, "half", "still half")
    assert np.array_equal(study.losses("still half").nats, before)
    assert study.losses_path("still half").stat().st_size == pytest.approx(size, rel=0.05)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (ONE, "family1-1M@2B", "model 'family1-1M@2B' exists already"),
        (ONE, ONE, f"model '{ONE}' exists already"),
        ("family0-1M", "new", "no model 'family0-1M'; did you mean"),
        (FAMILY, "new", "rename takes one model, not a pattern"),
        (ONE, "  ", "a name is needed"),
        (ONE, "red\x1b[31m", "contains control characters"),
    ],
)
def test_a_rename_that_cannot_be_is_refused_before_anything_changes(study, cli, tree, old, new, said):
    before = tree(study.root)
    ran = cli("rename", study.root, old, new)
    assert ran.code == 1
    assert said in ran.err
    assert ran.err.count("\n") == 1
    assert tree(study.root) == before


# ---- killed


class KilledError(BaseException):
    """Stands for a kill: nothing in the package catches it."""


def killed_before(monkeypatch: pytest.MonkeyPatch, change: int) -> None:
    """Die before the n-th rename or removal of a file of the study itself."""
    done = 0
    replace_file, unlink = Path.replace, Path.unlink

    def count(path: Path) -> None:
        nonlocal done
        if path.suffix in (".csv", ".parquet", ".json"):
            done += 1
            if done > change:
                raise KilledError

    def counted_replace(self: Path, target: Path) -> Path:
        count(Path(target))
        return replace_file(self, target)

    def counted_unlink(self: Path, missing_ok: bool = False) -> None:
        count(self)
        unlink(self, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "replace", counted_replace)
    monkeypatch.setattr(Path, "unlink", counted_unlink)


@pytest.mark.parametrize("change", range(8))
def test_a_rename_killed_at_any_moment_is_finished_by_running_it_again(study, change):
    losses = study.losses(ONE)
    with pytest.MonkeyPatch.context() as patch:
        killed_before(patch, change)
        try:
            rename_model(study, ONE, "new")
        except KilledError:
            finished = False
        else:
            finished = True
    assert finished == (change >= 6)  # journal, losses, two tables, old losses, journal
    opened = Study.open(study.root)
    assert opened.dataset().models
    if not finished:
        rename_model(opened, ONE, "new")
    now = Study.open(study.root)
    assert all("new" in names and ONE not in names for names in parts(now))
    assert len(now.scores()) == 40
    assert np.array_equal(now.losses("new").nats, losses.nats)
    assert not (study.root / ".rename.json").exists()


def test_status_names_a_stopped_rename_and_the_next_one_finishes_it(study, cli):
    with pytest.MonkeyPatch.context() as patch:
        killed_before(patch, 3)
        with pytest.raises(KilledError):
            rename_model(study, ONE, "new")
    assert f"benchcast rename {study.root} {ONE} new" in " ".join(cli("status", study.root).out.split())
    bc.rename_model(Study.open(study.root), "family1-1M@2B", "other")
    assert all({"new", "other"} <= names and ONE not in names for names in parts(study))


@pytest.mark.parametrize("change", range(5))
def test_a_removal_killed_at_any_moment_is_finished_by_running_it_again(study, change):
    with pytest.MonkeyPatch.context() as patch:
        killed_before(patch, change)
        with contextlib.suppress(KilledError):
            remove_models(study, [ONE])
    if change < 3:
        remove_models(Study.open(study.root), [ONE])
    assert all(ONE not in names for names in parts(study))
    with pytest.raises(InputError, match="no model"):
        remove_models(Study.open(study.root), [ONE])
