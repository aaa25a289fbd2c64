"""What is collected is whole, right and done once, whatever happens on the way."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from fake import BOS, FakeBackend, loss
from hypothesis import given
from hypothesis import strategies as st

from benchcast.collection.backends.base import DeviceFullError, Nats, SequenceError, in_halves
from benchcast.collection.collect import CollectRequest, CollectResult, collect, collect_on
from benchcast.collection.jobs import Collection, CollectOptions
from benchcast.collection.shards import ShardStore
from benchcast.collection.windows import BackendInfo, batches, plan
from benchcast.errors import InputError, StudyError
from benchcast.executors.local import Local
from benchcast.records import ModelInfo, Text, TextSet
from benchcast.study.study import Study


def make(root: Path, count: int = 20) -> Study:
    rng = random.Random(1)
    words = ["one", "zwei", "三", "👩‍👧", "four\n", " "]
    texts = [Text(f"t{i}", "s", " ".join(rng.choices(words, k=rng.randint(0, 9)))) for i in range(count)]
    return Study.create(root, TextSet.of(texts))


@given(
    n=st.integers(0, 300), context=st.integers(3, 50), prefix=st.sampled_from([(), (-1,)])
)  # fmt: skip
def test_windows_score_every_token_once_with_bos_and_enough_context(
    n: int, context: int, prefix: tuple[int, ...]
) -> None:
    ids, seen = list(range(n)), []
    for window in plan(0, ids, prefix, context=context):
        assert len(window.ids) <= context
        assert window.ids[: len(prefix)] == prefix
        assert -1 not in window.ids[len(prefix) :]
        scored_ids = window.ids[window.skip :]
        assert scored_ids[0] == window.first
        seen += scored_ids
        assert window.first == 0 or window.skip - len(prefix) >= (context - len(prefix)) // 2
    assert seen == ids


@given(lengths=st.lists(st.integers(1, 30), max_size=30), size=st.integers(1, 5), tokens=st.integers(1, 60))
def test_batches_hold_every_window_once_within_their_limits(lengths: list[int], size: int, tokens: int) -> None:
    groups = [(w,) for i, n in enumerate(lengths) for w in plan(i, [0] * n, (), context=100)]
    batched = list(batches(groups, size=size, tokens=tokens))
    assert sorted(w.text for b in batched for (w,) in b) == list(range(len(lengths)))
    for batch in batched:
        assert len(batch) <= size
        assert len(batch) == 1 or len(batch) * max(len(w.ids) for (w,) in batch) <= tokens


def test_losses_are_stored_with_what_they_were_made_with(tmp_path: Path) -> None:
    study = make(tmp_path / "s")
    done = collect(study, FakeBackend(), metadata=ModelInfo("", "fakes"))
    assert done is not None
    assert done.texts == len(study.texts)
    stored = study.losses("fake-1")
    assert {k: stored.about[k] for k in ("tokenizer", "bos", "backend", "backend_version", "dtype")} == {
        "tokenizer": "bytes", "bos": "<bos>", "backend": "fake", "backend_version": "1", "dtype": "float32",
    }  # fmt: skip
    assert not np.isnan(stored.nats).any()
    ids = [BOS, *study.texts.texts[0].text.encode()]
    np.testing.assert_allclose(stored.nats[: len(ids) - 1], [loss(ids, i) for i in range(1, len(ids))], rtol=1e-6)
    assert study.infos(["fake-1"])[0].family == "fakes"
    assert not (study.root / "collecting" / "fake-1").exists()


def test_without_bos_the_first_loss_of_each_text_is_missing(tmp_path: Path) -> None:
    study = make(tmp_path / "s")
    collect(study, FakeBackend(bos=False))
    stored = study.losses("fake-1")
    starts = np.cumsum(stored.counts) - stored.counts
    assert np.isnan(stored.nats[starts[stored.counts > 0]]).all()
    assert np.isnan(stored.nats).sum() == (stored.counts > 0).sum()


@pytest.mark.parametrize("context", [10, 16, 33])
def test_windows_change_only_what_lies_beyond_the_context(tmp_path: Path, context: int) -> None:
    study = make(tmp_path / "s")
    collect(study, FakeBackend(), name="whole")
    collect(study, FakeBackend(context=context), name="cut")
    np.testing.assert_array_equal(study.losses("whole").nats, study.losses("cut").nats)
    kept = pq.read_schema(study.losses_path("cut")).metadata
    assert kept[b"context"] == str(context).encode()


def test_the_same_command_again_does_nothing_and_force_redoes(tmp_path: Path) -> None:
    study = make(tmp_path / "s")
    collect(study, FakeBackend())
    again = FakeBackend()
    assert collect(study, again) is None
    assert not again.sent
    assert collect(study, again, options=CollectOptions(force=True)) is not None
    assert again.sent


def test_a_run_goes_on_from_the_shards_of_the_one_before(tmp_path: Path) -> None:
    study = make(tmp_path / "s")
    whole = make(tmp_path / "whole")
    collect(whole, FakeBackend())
    job = Collection(study, FakeBackend(), "fake-1")
    shard_store = ShardStore(job.folder, job.settings, job.encoded.counts)
    assert not shard_store.done
    reference = whole.losses("fake-1")
    parts = np.split(reference.nats.astype(np.float32), np.cumsum(reference.counts)[:-1])
    shard_store.take(BackendInfo.of(job.backend).line, {i: parts[i] for i in (0, 3, 7)})
    shard_store.flush()
    backend = FakeBackend()
    done = collect(study, backend)
    assert done is not None
    assert (done.resumed, done.texts) == (3, len(study.texts) - 3)
    np.testing.assert_array_equal(study.losses("fake-1").nats, reference.nats)


def test_shards_of_other_settings_are_not_mixed_in(tmp_path: Path) -> None:
    study = make(tmp_path / "s")
    job = Collection(study, FakeBackend(bos=False), "fake-1")
    shard_store = ShardStore(job.folder, job.settings, job.encoded.counts)
    shard_store.take(BackendInfo.of(job.backend).line, {0: np.full(len(job.encoded.ids[0]), 99.0, np.float32)})
    shard_store.flush()
    done = collect(study, FakeBackend())
    assert done is not None
    assert done.resumed == 0
    assert study.losses("fake-1").nats.max() < 10


def test_shards_of_an_older_version_of_a_library_are_not_mixed_in(tmp_path: Path) -> None:
    study = make(tmp_path / "s")
    job = Collection(study, FakeBackend(), "fake-1")
    shard_store = ShardStore(job.folder, job.settings, job.encoded.counts)
    older = BackendInfo({**job.backend.about(), "backend_version": "0"}, job.backend.context)
    shard_store.take(older.line, {0: np.full(len(job.encoded.ids[0]), 99.0, np.float32)})
    shard_store.flush()
    done = collect(study, FakeBackend())
    assert done is not None
    assert done.resumed == 0
    assert study.losses("fake-1").nats.max() < 10


def test_a_run_that_was_stopped_makes_the_batches_of_one_that_was_not(tmp_path: Path) -> None:
    """A loss depends on its neighbours in a batch in the last bits, so neighbours must not change."""

    class Neighbourly(FakeBackend):
        def score(self, sequences: list[list[int]]) -> list[Nats]:  # type: ignore[override]
            shift = sum(map(len, sequences)) / 1000
            return [n + np.float32(shift) for n in super().score(sequences)]

    study, whole = make(tmp_path / "s", 50), make(tmp_path / "whole", 50)
    collect(whole, Neighbourly())
    job = Collection(study, Neighbourly(), "fake-1")
    reference = whole.losses("fake-1")
    parts = np.split(reference.nats.astype(np.float32), np.cumsum(reference.counts)[:-1])
    shard_store = ShardStore(job.folder, job.settings, job.encoded.counts)
    shard_store.take(BackendInfo.of(job.backend).line, {i: parts[i] for i in range(0, 50, 3)})
    shard_store.flush()
    backend = Neighbourly()
    done = collect(study, backend)
    assert done is not None
    assert (done.resumed, done.texts) == (17, 33)
    np.testing.assert_array_equal(study.losses("fake-1").nats, reference.nats)


KILLED = """
import sys
sys.path.insert(0, {here!r})
from fake import FakeBackend
import benchcast as bc
from benchcast.collection import shards
shards.SHARD_SECONDS = 0.0
options = bc.CollectOptions(force={force})
bc.collect(bc.Study.open({root!r}), FakeBackend(batch_size=1, pause=0.004), options=options)
"""


@pytest.mark.slow
def test_kill_9_at_any_moment_loses_nothing_and_changes_nothing(tmp_path: Path) -> None:
    study, whole = make(tmp_path / "s", 60), make(tmp_path / "whole", 60)
    collect(whole, FakeBackend())
    script = KILLED.format(here=str(Path(__file__).parent), root=str(study.root), force=False)
    rng, kept = random.Random(3), []
    for _ in range(6):
        process = subprocess.Popen([sys.executable, "-c", script])
        shards = study.root / "collecting" / "fake-1"
        until = time.monotonic() + 60
        before = len(list(shards.glob("*.npz")))
        while process.poll() is None and time.monotonic() < until and len(list(shards.glob("*.npz"))) <= before:
            time.sleep(0.002)
        time.sleep(rng.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
        kept.append(len(list(shards.glob("*.npz"))))
        assert not study.losses_path("fake-1").exists() or kept[-1] == 0
    assert kept[0] > 0
    assert kept == sorted(kept) or study.losses_path("fake-1").exists()
    collect(study, FakeBackend())
    np.testing.assert_array_equal(study.losses("fake-1").nats, whole.losses("fake-1").nats)
    np.testing.assert_array_equal(study.losses("fake-1").edges, whole.losses("fake-1").edges)


def test_a_forced_run_starts_anew_and_goes_on_where_it_was_killed(tmp_path: Path) -> None:
    study = make(tmp_path / "s")
    collect(study, FakeBackend())
    job = Collection(study, FakeBackend(), "fake-1")
    backend_line = BackendInfo.of(job.backend).line

    def leave(index: int, value: float, *, force: bool) -> int:
        shard_store = ShardStore(job.folder, job.settings, job.encoded.counts, force=force)
        shard_store.take(backend_line, {index: np.full(len(job.encoded.ids[index]), value, np.float32)})
        shard_store.flush()
        return shard_store.resumed

    leave(0, 1.0, force=False)
    assert leave(3, 7.0, force=True) == 0, "shards of a run that was not forced are not used"
    assert collect(study, FakeBackend()) is None
    done = collect(study, FakeBackend(), options=CollectOptions(force=True))
    assert done is not None
    assert (done.resumed, done.texts) == (1, len(study.texts) - 1)
    stored = study.losses("fake-1")
    assert (np.split(stored.nats, np.cumsum(stored.counts)[:-1])[3] == 7.0).all()
    assert collect(study, FakeBackend(), options=CollectOptions(force=True)).resumed == 0  # type: ignore[union-attr]


@pytest.mark.slow
def test_a_forced_run_can_be_killed_too(tmp_path: Path) -> None:
    study, whole = make(tmp_path / "s", 60), make(tmp_path / "whole", 60)
    for target in (study, whole):
        collect(target, FakeBackend())
    script = KILLED.format(here=str(Path(__file__).parent), root=str(study.root), force=True)
    process = subprocess.Popen([sys.executable, "-c", script])
    shards = study.root / "collecting" / "fake-1"
    while process.poll() is None and len(list(shards.glob("*.npz"))) < 3:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    np.testing.assert_array_equal(study.losses("fake-1").nats, whole.losses("fake-1").nats)
    done = collect(study, FakeBackend(), options=CollectOptions(force=True))
    assert done is not None
    assert done.resumed >= 3
    np.testing.assert_array_equal(study.losses("fake-1").nats, whole.losses("fake-1").nats)


def test_two_runs_of_one_model_do_not_meet(tmp_path: Path) -> None:
    study = make(tmp_path / "s")

    class Greedy(FakeBackend):
        def score(self, sequences: list[list[int]]) -> list[Nats]:  # type: ignore[override]
            with pytest.raises(StudyError, match="another process is collecting 'fake-1'"):
                collect(study, FakeBackend())
            return super().score(sequences)

    collect(study, Greedy())


class Broken(FakeBackend):
    """Answers wrongly in one way."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def score(self, sequences: list[list[int]]) -> list[Nats]:  # type: ignore[override]
        nats = super().score(sequences)
        if self.how == "short":
            return [n[:-1] for n in nats]
        if self.how == "few":
            return nats[:-1]
        if self.how == "zeros":
            return [np.where(np.isnan(n), n, 0).astype(np.float32) for n in nats]
        bad = {"nan": np.nan, "infinite": np.inf, "negative": -1.0}[self.how]
        return [np.where(np.arange(len(n)) == 2, bad, n).astype(np.float32) for n in nats]


@pytest.mark.parametrize(
    ("how", "said"),
    [("short", "losses for"), ("few", "answers for"), ("zeros", "it does not score prompts"), ("nan", "gave NaN"),
     ("infinite", "infinite loss"), ("negative", "negative loss")],
)  # fmt: skip
def test_numbers_a_backend_did_not_give_are_never_stored(tmp_path: Path, how: str, said: str) -> None:
    study = make(tmp_path / "s")
    with pytest.raises(InputError, match=rf"model 'fake-1', backend fake.*{said}"):
        collect(study, Broken(how))
    assert not study.models_with_losses()


def test_texts_are_refused_before_anything_is_scored(tmp_path: Path) -> None:
    study, backend = make(tmp_path / "s"), FakeBackend()
    backend.vocabulary.tokenizer.encode = lambda text: [1]  # type: ignore[method-assign]
    said = r"model 'fake-1', text 't0': tokenizer 'bytes'.*20 of 20 texts are refused; none is left"
    for skip in (False, True):
        with pytest.raises(InputError, match=said):
            collect(study, backend, options=CollectOptions(skip_refused=skip))
    assert not backend.sent


def test_refused_texts_can_be_left_out_and_then_have_no_loss(tmp_path: Path) -> None:
    study, backend = make(tmp_path / "s"), FakeBackend()
    collect(study, FakeBackend(), name="whole")
    out_of_fold = backend.vocabulary.tokenizer.encode
    backend.vocabulary.tokenizer.encode = lambda t: [1] if "三" in t else out_of_fold(t)  # type: ignore[method-assign]
    refused = [i for i, t in enumerate(study.texts) if "三" in t.text]
    with pytest.raises(InputError, match=rf"\({len(refused)} of 20 texts are refused; --skip-refused"):
        collect(study, backend)
    done = collect(study, backend, options=CollectOptions(skip_refused=True))
    assert done is not None
    assert done.refused == tuple(study.texts.texts[i].id for i in refused)
    assert done.texts == 20 - len(refused)
    partial, whole = (np.split(x.nats, np.cumsum(x.counts)[:-1]) for x in map(study.losses, ("fake-1", "whole")))
    for i, (mine, full) in enumerate(zip(partial, whole, strict=True)):
        np.testing.assert_array_equal(mine, [np.nan] if i in refused else full)
    kept = pq.read_schema(study.losses_path("fake-1")).metadata
    assert json.loads(kept[b"refused"]) == list(done.refused)


class Small(FakeBackend):
    """A device with room for few tokens at a time."""

    def __init__(self, room: int, *, wrong: int = BOS + 1) -> None:
        super().__init__(batch_size=16)
        self.room, self.wrong, self.refused = room, wrong, 0

    def score(self, sequences: list[list[int]]) -> list[Nats]:  # type: ignore[override]
        if sum(map(len, sequences)) > self.room:
            self.refused += 1
            raise DeviceFullError("the device is out of memory")
        if any(self.wrong in s for s in sequences):
            raise SequenceError(next(i for i, s in enumerate(sequences) if self.wrong in s), "a wrong id")
        return super().score(sequences)

    hidden = score  # type: ignore[assignment]


def test_what_does_not_fit_into_memory_is_tried_in_halves() -> None:
    sequences = [[BOS, *range(i)] for i in range(1, 12)]
    scored = in_halves(Small(30).score, sequences)
    for mine, other in zip(scored, FakeBackend().score(sequences), strict=True):
        np.testing.assert_array_equal(mine, other)
    with pytest.raises(DeviceFullError):
        in_halves(Small(5).score, sequences)
    with pytest.raises(SequenceError) as error:
        in_halves(Small(30, wrong=101).score, [*sequences, [BOS, 101, 7]])
    assert error.value.index == len(sequences)


def test_what_does_not_fit_into_memory_is_collected_in_halves(tmp_path: Path) -> None:
    study = make(tmp_path / "s")
    collect(study, FakeBackend(), name="roomy")
    small = Small(max(len(text.text.encode()) for text in study.texts) + 1)
    collect(study, small, name="small")
    assert small.refused
    np.testing.assert_array_equal(study.losses("small").nats, study.losses("roomy").nats)


class Failing(FakeBackend):
    """Scores a few batches, then has an error in every further one."""

    model_calls = 3

    def __init__(self, error: BaseException) -> None:
        super().__init__(batch_size=1)
        self.model, self.calls, self.error = "failing", 0, error

    def score(self, sequences: list[list[int]]) -> list[Nats]:  # type: ignore[override]
        self.calls += 1
        if self.calls > self.model_calls:
            raise self.error
        return super().score(sequences)


@pytest.mark.parametrize("error", [InputError("the server is gone"), KeyboardInterrupt("Ctrl-C")])
def test_one_failing_model_stops_at_its_first_error_and_keeps_what_it_scored(
    tmp_path: Path, error: BaseException
) -> None:
    study = make(tmp_path / "s")
    failing = Failing(error)
    with pytest.raises(type(error), match=str(error)):
        collect(study, failing)
    assert failing.calls == Failing.model_calls + 1
    assert not study.models(), "a model without losses gets no row"
    failing.calls = -1000
    again = collect(study, failing)
    assert again is not None
    assert again.resumed >= Failing.model_calls
    assert again.texts + again.resumed == len(study.texts)


def test_several_models_in_one_loop_fail_and_finish_on_their_own(tmp_path: Path) -> None:
    study, alone = make(tmp_path / "s"), make(tmp_path / "alone")
    collect(alone, FakeBackend())
    done: dict[str, CollectResult | None] = {}
    requests = [CollectRequest(Failing(InputError("the server is gone"))), CollectRequest(FakeBackend())]
    failed = collect_on(Local(), study, requests, report=lambda *_: None, on_done=done.__setitem__)
    assert {name: type(error) for name, error in failed.items()} == {"failing": InputError}
    assert list(done) == study.models_with_losses() == ["fake-1"]
    np.testing.assert_array_equal(study.losses("fake-1").nats, alone.losses("fake-1").nats)


def test_a_check_against_another_backend_is_stored(tmp_path: Path) -> None:
    study = make(tmp_path / "s")
    done = collect(study, FakeBackend(), options=CollectOptions(reference=FakeBackend()))
    assert done is not None
    assert done.agreement is not None
    stored = json.loads(pq.read_schema(study.losses_path("fake-1")).metadata[b"check"])
    assert stored["against"] == "fake"
    assert stored["most_nats"] == 0
    assert stored["tokens"] > 20


def test_a_check_finds_losses_that_are_off_by_one(tmp_path: Path) -> None:
    class Shifted(FakeBackend):
        def score(self, sequences: list[list[int]]) -> list[Nats]:  # type: ignore[override]
            return [np.concatenate([n[:1], np.roll(n[1:], 1)]) for n in super().score(sequences)]

    study = make(tmp_path / "s")
    with pytest.raises(InputError, match="do not score the same model, or not the same tokens"):
        collect(study, Shifted(), options=CollectOptions(reference=FakeBackend()))
    assert not study.models_with_losses()


@pytest.mark.parametrize(("key", "value"), [("name", "other"), ("asked", "dtype=bfloat16")])
def test_losses_made_in_another_way_under_the_same_name_are_not_replaced(tmp_path: Path, key: str, value: str) -> None:
    study = make(tmp_path / "s")
    collect(study, FakeBackend())
    other = FakeBackend()
    setattr(other, key, value)
    said = f"has losses from fake, not from .*{value}; give another --name, or --force"
    with pytest.raises(InputError, match=said):
        collect(study, other)
    assert collect(study, other, options=CollectOptions(force=True)) is not None


def test_names_stay_inside_the_study(tmp_path: Path) -> None:
    study = make(tmp_path / "s")
    collect(study, FakeBackend(), name="../../../evil/name")
    assert study.models_with_losses() == ["../../../evil/name"]
    outside = [p for p in tmp_path.rglob("*") if study.root not in p.parents and p != study.root]
    assert outside == []
