"""A study in a real S3 server: refused users, lost connections and two writers; nothing is lost and files are whole."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from s3_server import READER, WRITER, Line, serving

from benchcast.errors import StudyError
from benchcast.records import ModelInfo
from benchcast.storage.remote import Mirror, local_copy
from benchcast.store import Study

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]
LARGE = 12 << 20  # bytes; a cut falls into the middle of its upload


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    """The way to a running server."""
    with serving(tmp_path_factory.mktemp("s3")) as port:
        way = Line(port)
        yield way
        way.close()


@pytest.fixture(autouse=True)
def as_writer(line: Line, monkeypatch: pytest.MonkeyPatch) -> Callable[[tuple[str, str]], None]:
    """Settings as a user's environment has them; to become another user, call it."""
    import s3fs

    def become(user: tuple[str, str]) -> None:
        s3fs.S3FileSystem.clear_instance_cache()
        for name, value in zip(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), user, strict=True):
            monkeypatch.setenv(name, value)

    line.cut(0, 0)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{line.port}")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    become(WRITER)
    return become


@pytest.fixture
def place(tmp_path: Path, synthetic_folder: Path) -> str:
    """Bucket and name of a copy of the synthetic study."""
    system, name = store(), f"studies/{tmp_path.name}"
    system.makedirs("studies", exist_ok=True)
    system.put(f"{synthetic_folder}/", f"{name}/", recursive=True)
    return name


def store() -> Any:
    import s3fs

    return s3fs.S3FileSystem()


def content(place: str) -> dict[str, bytes]:
    """What the server holds, without our lock."""
    system = store()
    system.invalidate_cache()
    files = {path.removeprefix(f"{place}/"): path for path in system.find(place)}
    return {name: system.cat_file(path) for name, path in files.items() if not name.startswith(".")}


def test_a_command_on_s3_leaves_the_files_of_one_on_a_folder(
    place: str, synthetic_folder: Path, tmp_path: Path, cli: Callable[..., Any]
) -> None:
    local = Path(shutil.copytree(synthetic_folder, tmp_path / "near"))
    for where in (local, f"s3://{place}"):
        ran = cli("fit", where, "--method", "all-token")
        assert ran.code == 0, ran.err
    files = {p.relative_to(local).as_posix(): p.read_bytes() for p in local.rglob("*") if p.is_file()}
    assert content(place) == {name: data for name, data in files.items() if not name.startswith(".")}


@pytest.mark.parametrize("user", [("writer", "wrong"), ("nobody", "wrong")])
def test_wrong_credentials_are_one_line(
    place: str, cli: Callable[..., Any], as_writer: Callable[..., None], user: tuple[str, str]
) -> None:
    as_writer(user)
    ran = cli("status", f"s3://{place}")
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert f"s3://{place}: cannot be read (Forbidden; check the credentials of the store)" in ran.err


def test_no_credentials_are_one_line(place: str, cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    store().clear_instance_cache()
    ran = cli("status", f"s3://{place}")
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert "Unable to locate credentials; check the credentials of the store" in ran.err


def test_a_user_who_may_only_read_keeps_the_results(
    place: str, cli: Callable[..., Any], as_writer: Callable[..., None]
) -> None:
    before = content(place)
    as_writer(READER)
    ran = cli("fit", f"s3://{place}", "--method", "all-token")
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert "cannot be written (Access Denied.; check the credentials of the store)" in ran.err
    kept = Path(ran.err.strip().rpartition(" ")[2])
    assert {fit.name for fit in (kept / "fits").iterdir()} == {"task0", "task1"}
    shutil.rmtree(kept.parent)
    as_writer(WRITER)
    assert content(place) == before


def test_a_bucket_that_is_not_there_is_named(cli: Callable[..., Any]) -> None:
    ran = cli("status", "s3://no-such-bucket/study")
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert ran.err.startswith("error: s3://no-such-bucket/study: no study here")


def test_a_server_that_is_away_is_one_line(cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    ran = cli("status", "s3://bucket/study")
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert "cannot be read (Could not connect to the endpoint URL" in ran.err


def test_a_short_loss_of_the_connection_during_an_upload_is_survived(place: str, line: Line) -> None:
    with local_copy(f"s3://{place}") as local:
        (local / "losses" / "large.parquet").write_bytes(bytes(LARGE))
        line.cut(2, after=LARGE // 2)
    assert line.broken == 2
    assert content(place)["losses/large.parquet"] == bytes(LARGE)


def test_a_lasting_loss_during_an_upload_leaves_whole_files_and_the_results_here(place: str, line: Line) -> None:
    def lose() -> None:
        with local_copy(f"s3://{place}") as local:
            Study.open(local).add_models([ModelInfo("mine")])
            (local / "losses" / "large.parquet").write_bytes(bytes(LARGE))
            line.cut(10_000, after=LARGE // 2)

    before = content(place)
    with pytest.raises(StudyError, match=r"cannot be written \(.*; the local results are in") as failure:
        lose()
    line.cut(0, 0)
    assert content(place) == before, "no part of the file, and no table that names it"
    kept = Path(str(failure.value).rpartition(" ")[2])
    assert (kept / "losses" / "large.parquet").stat().st_size == LARGE
    assert "mine" in (kept / "models.csv").read_text()
    shutil.rmtree(kept.parent)


def test_of_two_writers_of_one_table_one_is_told_to_run_again(place: str, tmp_path: Path) -> None:
    """Both have looked at the table before either writes: only the server can tell who came first."""
    barrier, refusals = threading.Barrier(2), []

    class Together(Mirror):
        def _put_if_unchanged(self, source: Path, target: str, tag: str | None) -> None:
            barrier.wait(timeout=60)
            super()._put_if_unchanged(source, target, tag)

    def write(who: str) -> None:
        mirror = Together(store(), place, tmp_path / who)
        mirror.fetch()
        Study.open(mirror.folder).add_models([ModelInfo(who)])
        (mirror.folder / "losses" / f"{who}.parquet").write_bytes(who.encode())
        try:
            mirror.send()
        except StudyError as error:
            refusals.append((who, str(error)))

    threads = [threading.Thread(target=write, args=(who,)) for who in ("anna", "bert")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ((loser, said),) = refusals
    assert "models.csv: another command changed it in the meantime; run this one again" in said
    left = content(place)
    assert {"losses/anna.parquet", "losses/bert.parquet"} <= set(left), "what only one of them writes is there"
    winner = {"anna": "bert", "bert": "anna"}[loser]
    assert (winner in left["models.csv"].decode(), loser in left["models.csv"].decode()) == (True, False)


def test_two_commands_at_once_may_add_different_models(place: str) -> None:
    with local_copy(f"s3://{place}") as one, local_copy(f"s3://{place}") as two:
        (one / "losses" / "anna.parquet").write_bytes(b"anna")
        (two / "losses" / "bert.parquet").write_bytes(b"bert")
    left = content(place)
    assert (left["losses/anna.parquet"], left["losses/bert.parquet"]) == (b"anna", b"bert")
