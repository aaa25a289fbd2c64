"""A study at a URL is worked on in a local copy, and nothing of it is lost on the way; file:// stands for a store."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

from benchcast.errors import StudyError
from benchcast.records import ModelInfo
from benchcast.storage import remote
from benchcast.storage.remote import Mirror, local_copy
from benchcast.store import Study

Tree = Callable[[Path], dict[str, str]]


@pytest.fixture
def store(synthetic_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(synthetic_folder, tmp_path / "bucket" / "study"))


def url(path: Path) -> str:
    return f"file://{path}"


def test_a_command_on_a_url_leaves_the_files_of_one_on_a_folder(
    store: Path, tmp_path: Path, cli: Callable[..., Any], tree: Tree
) -> None:
    shutil.copytree(store, tmp_path / "near")
    for place in (tmp_path / "near", url(store)):
        assert cli("fit", place, "--method", "all-token").code == 0
    assert tree(store) == tree(tmp_path / "near")
    assert not list(store.rglob("*.tmp"))


def test_reading_changes_nothing_there(store: Path, cli: Callable[..., Any], tree: Tree) -> None:
    before = {p: p.stat().st_mtime_ns for p in store.rglob("*") if p.is_file()}
    assert cli("status", url(store)).code == 0
    assert {p: p.stat().st_mtime_ns for p in store.rglob("*") if p.is_file()} == before


def test_what_was_done_before_a_failure_is_there(store: Path) -> None:
    def interrupted() -> None:
        with local_copy(url(store)) as local:
            (local / "collecting" / "m").mkdir(parents=True)
            (local / "collecting" / "m" / "1.npz").write_bytes(b"shard")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (store / "collecting" / "m" / "1.npz").read_bytes() == b"shard"


def test_unfinished_work_is_sent_while_it_goes_on(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "SEND_SECONDS", 0.01)
    there = store / "collecting" / "m" / "1.npz"
    with local_copy(url(store)) as local:
        (local / "collecting" / "m").mkdir(parents=True)
        (local / "collecting" / "m" / "1.npz").write_bytes(b"shard")
        wait_until(there.exists)
        shutil.rmtree(local / "collecting")
        wait_until(lambda: not there.exists())


def wait_until(ready: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_table_that_somebody_else_changed_is_not_overwritten(store: Path, tmp_path: Path) -> None:
    mirror = Mirror(fsspec.filesystem("file"), str(store), tmp_path / "near")
    mirror.fetch()
    Study.open(store).add_models([ModelInfo("theirs")])
    Study.open(tmp_path / "near").add_models([ModelInfo("mine")])
    (tmp_path / "near" / "losses" / "new.parquet").write_bytes(b"losses")
    with pytest.raises(
        StudyError, match=r"models\.csv: another command changed it in the meantime; run this one again"
    ):
        mirror.send()
    assert "theirs" in (store / "models.csv").read_text()
    assert (store / "losses" / "new.parquet").exists(), "all else was sent"


def test_a_second_command_is_told_where_its_work_lies(store: Path) -> None:
    def clash() -> None:
        with local_copy(url(store)) as local:
            Study.open(local).add_models([ModelInfo("mine")])
            Study.open(store).add_models([ModelInfo("theirs")])

    with pytest.raises(StudyError, match="the local results are in") as failure:
        clash()
    kept = Path(str(failure.value).rpartition(" ")[2])
    assert "mine" in (kept / "models.csv").read_text(encoding="utf-8")
    shutil.rmtree(kept.parent)


def test_a_local_copy_that_somebody_cleans_up_takes_nothing_with_it(store: Path, tree: Tree) -> None:
    before = tree(store)
    with local_copy(url(store)) as local:
        shutil.rmtree(local)
    assert tree(store) == before


@pytest.mark.parametrize(
    ("place", "said"), [("nope://a/b", "Protocol not known"), ("file:///no/where", "no study here")]
)
def test_a_url_that_leads_nowhere_is_one_line(cli: Callable[..., Any], place: str, said: str) -> None:
    ran = cli("status", place)
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert said in ran.err
