"""Options are scored as the answer is: whole, once, in the same windows, whatever is shared on the way."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from fake import FakeBackend
from hypothesis import given
from hypothesis import strategies as st
from vocabularies import BUILT_HERE, vocabulary

from benchcast.cli.collect import describe
from benchcast.collection.answer_options import EncodedAnswer, encode_options
from benchcast.collection.backends.base import ModelSettings, Nats, packed_length, shared_length
from benchcast.collection.backends.hf import HfBackend
from benchcast.collection.collect import CollectResult, collect
from benchcast.collection.jobs import Collection, CollectOptions, score_portion
from benchcast.collection.shards import ShardStore
from benchcast.collection.tokenizers import locate
from benchcast.collection.windows import BackendInfo, encode_texts
from benchcast.errors import InputError
from benchcast.forecasts.status import status
from benchcast.losses.regroup import regroup
from benchcast.records import Text, TextSet
from benchcast.study.parquet import read_metadata
from benchcast.study.study import Study

ZOO = Path(__file__).parents[1] / "zoo" / "shipped"
LETTERS = "Two is\nA. one plus one\nB. three\nAnswer:"
TEXTS = (
    Text("letters", "s", LETTERS + " A", len(LETTERS), options=(" B", " C")),
    Text("endings", "s", "The frog sat on the log.", 16, options=(" a high wall, and sang.", " its own", " no")),
    Text("chinese", "s", "天空是什么颜色？蓝", len("天空是什么颜色？".encode()), options=("红色的", "绿")),
    Text("plain", "s", "No answer here."),
    Text("answered", "s", "2 + 2 = 4", 7),
    Text("from the start", "s", "Yes, it is.", 0, options=("No, it is not.", "Yes, it was.")),
    Text("empty", "s", ""),
)  # fmt: skip


class SharingBackend(FakeBackend):
    """A fake that scores groups, and counts what a model would read of them."""

    shared_context = 1 << 20
    read = 0

    def score_groups(self, groups: Sequence[Sequence[Sequence[int]]]) -> list[list[Nats]]:
        self.read += sum(map(packed_length, groups))
        return [self.score(group) for group in groups]


def make(root: Path, texts: Sequence[Text] = TEXTS) -> Study:
    return Study.create(root, TextSet.of(texts))


def hf(name: str = "ash-0.5M", **settings: str) -> HfBackend:
    return HfBackend(ModelSettings({"pretrained": str(ZOO / name), **settings}), device="cpu")


def scored_alone(root: Path, backend: Any) -> dict[str, npt.NDArray[np.float64]]:
    """The losses of each item's answer and options, each collected as the answer of a text of its own."""
    variants = [
        replace(text, id=f"{text.id}/{i}", text=text.prompt + end, options=())
        for text in TEXTS
        if text.options
        for i, end in enumerate((text.answer, *text.options))
    ]
    study = make(root, variants)
    collect(study, backend, name="m")
    losses, found = study.losses("m"), {}
    for text, bounds, nats in zip(
        variants,
        losses.text_bounds(study.texts.starts),
        np.split(losses.nats, np.cumsum(losses.counts)[:-1]),
        strict=True,
    ):
        found.setdefault(text.id.split("/")[0], []).append(regroup(nats, bounds, [text.answer_start, bounds[-1]])[0])
    return {name: np.array(values) for name, values in found.items()}


def expected(text: Text, nats: npt.NDArray[np.float64]) -> list[float]:
    """The definition: −log_softmax of the log-likelihoods, raw and per character of the bare option."""
    characters = np.array([len(end.strip()) for end in (text.answer, *text.options)])
    values = []
    for scores in (-nats, -nats / characters):
        share = np.exp(scores - scores.max())
        values.append(-np.log(share[0] / share.sum()))
    return values


def stored(study: Study, name: str = "m") -> npt.NDArray[np.float64]:
    losses = study.losses(name)
    assert losses.choice is not None
    assert losses.choice_norm is not None
    return np.stack([losses.choice, losses.choice_norm])


def choices(study: Study, name: str = "m") -> dict[str, npt.NDArray[np.float64]]:
    return dict(zip((t.id for t in study.texts), stored(study, name).T, strict=True))


BACKENDS = {
    "separate": FakeBackend,
    "shared": SharingBackend,
    "separate, in windows": lambda: FakeBackend(context=20),
    "shared, in windows": lambda: SharingBackend(context=20),
    "hf": hf,
    "hf, in windows": lambda: hf(max_length="16"),
    "hf with BOS": lambda: hf("cedar-0.5M", add_bos_token="true"),
}


@pytest.mark.parametrize("kind", BACKENDS)
def test_an_option_is_scored_as_a_text_that_ends_in_it(kind: str, tmp_path: Path) -> None:
    study = make(tmp_path / "s")
    done = collect(study, BACKENDS[kind](), name="m")
    assert done is not None
    assert (done.texts, done.options) == (len(TEXTS), 4)
    alone, found = scored_alone(tmp_path / "alone", BACKENDS[kind]()), choices(study)
    for text in TEXTS:
        if not text.options or (text.id == "from the start" and not BACKENDS[kind]().vocabulary.prefix):
            assert np.isnan(found[text.id]).all(), "no options, or an answer whose first token has no loss"
        else:
            np.testing.assert_allclose(found[text.id], expected(text, alone[text.id]), atol=2e-4, err_msg=text.id)
    assert np.isfinite(found["letters"]).all()


@pytest.mark.parametrize("kind", BACKENDS)
def test_options_change_no_loss_of_the_texts(kind: str, tmp_path: Path) -> None:
    study, without = make(tmp_path / "s"), make(tmp_path / "without", [replace(t, options=()) for t in TEXTS])
    for each in (study, without):
        collect(each, BACKENDS[kind](), name="m")
    np.testing.assert_allclose(study.losses("m").nats, without.losses("m").nats, atol=1e-4)
    assert without.losses("m").choices == {}
    assert "options" not in read_metadata(without.losses_path("m"))


@pytest.mark.parametrize("name", ["ash-0.5M", "cedar-0.5M", "oak-a-0.5M"])
def test_a_shared_start_agrees_with_separate_scoring(name: str) -> None:
    backend, rng = hf(name), np.random.default_rng(1)
    assert backend.shared_context == backend.context
    groups = []
    for start, ends in [
        (40, (3, 9, 1)),
        (7, (30, 2)),
        (1, (5, 5, 5, 5)),
        (100, (1, 1, 1, 1)),
        (0, (4, 6)),
        (60, (0, 3)),
    ]:
        common = rng.integers(3, 250, start)
        groups.append([[*common, *rng.integers(3, 250, end)] for end in ends])
    together = backend.score_groups(groups)
    for group, shared in zip(groups, together, strict=True):
        for nats, alone in zip(shared, backend.score(group), strict=True):
            assert np.isnan(nats).tolist() == np.isnan(alone).tolist()
            np.testing.assert_allclose(nats, alone, atol=1e-4)


def test_a_common_start_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = hf()
    assert backend.shared_context  # the model has been probed
    seen: list[tuple[int, ...]] = []
    embed = backend._loaded.get_input_embeddings()
    embed.register_forward_hook(lambda module, given, output: seen.append(tuple(given[0].shape)))
    start = list(range(5, 105))
    nats = backend.score_groups([[[*start, 200 + i] for i in range(4)]])
    assert seen == [(1, 100)], "four letters cost no position beyond the prompt"
    assert [len(x) for x in nats[0]] == [101] * 4


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), min_size=1, max_size=4))
def test_the_common_start_is_the_longest_that_all_have(group: list[list[int]]) -> None:
    n = shared_length(group)
    assert len({tuple(ids[:n]) for ids in group}) == 1
    assert any(len(ids) == n for ids in group) or len({ids[n] for ids in group}) > 1


def test_a_model_that_takes_no_mask_scores_each_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend, whole = hf(), make(tmp_path / "whole")
    collect(whole, hf(), name="m")
    forward = type(backend._loaded.base_model).forward

    def without_mask(self: Any, input_ids: Any, use_cache: bool = False, **_: Any) -> Any:
        return forward(self, input_ids=input_ids, use_cache=use_cache)

    monkeypatch.setattr(type(backend._loaded.base_model), "forward", without_mask)
    assert backend.shared_context == 0
    study = make(tmp_path / "s")
    collect(study, backend, name="m")
    np.testing.assert_allclose(stored(study), stored(whole), atol=2e-4)


def test_rows_of_packed_options_end_where_a_local_attention_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = hf()
    monkeypatch.setattr(backend._loaded.config, "sliding_window", 48, raising=False)
    assert backend.shared_context == 48


@pytest.mark.parametrize("name", BUILT_HERE)
def test_the_kept_tokens_hold_the_whole_loss_of_an_option(name: str) -> None:
    tokenizer, rng = vocabulary(name), np.random.default_rng(0)
    prompt = "the quick brown fox jumps over"
    for start in (prompt, prompt + " ", ""):
        text = Text("t", "s", start + " the lazy dog", len(start), options=(" a model", "s", " 12 and 345 (x)"))
        texts = TextSet.of([text])
        options = encode_options(tokenizer, texts, {0: locate(tokenizer, text.text)})
        for answer, end in zip(options.answers[0], (text.answer, *text.options), strict=True):
            ids, bounds = locate(tokenizer, start + end)
            nats = rng.exponential(size=len(ids))
            kept = nats[answer.tail.first :]
            assert answer.tail.ids == tuple(ids)
            whole = regroup(nats, bounds, [len(start), bounds[-1]])
            np.testing.assert_allclose(regroup(kept, answer.bounds, [len(start), bounds[-1]]), whole)


def test_a_token_without_width_before_the_answer_passes_on_its_loss() -> None:
    answer = EncodedAnswer.of([5, 6, 7, 8], np.array([0, 3, 3, 3, 6]), 3)
    assert (answer.tail.first, answer.bounds.tolist()) == (1, [3, 3, 3, 6])
    across = EncodedAnswer.of([5, 6, 7], np.array([0, 1, 4, 6]), 3)
    assert (across.tail.first, across.bounds.tolist()) == (1, [1, 4, 6])


def test_models_scored_before_get_only_their_options(tmp_path: Path) -> None:
    whole, study = make(tmp_path / "whole"), make(tmp_path / "s", [replace(t, options=()) for t in TEXTS])
    collect(whole, hf(), name="m")
    collect(study, hf(), name="m")
    before = study.losses("m")
    (study.root / "texts.jsonl").write_bytes((whole.root / "texts.jsonl").read_bytes())
    study = Study.open(study.root)
    done = collect(study, hf(), name="m")
    assert done is not None
    assert done.only_options
    assert "losses are stored already; options of 4 texts added" in describe("m", done)
    after = study.losses("m")
    np.testing.assert_array_equal(after.nats, before.nats)
    np.testing.assert_allclose(stored(study), stored(whole), atol=1e-4)
    assert collect(study, hf(), name="m") is None
    assert {**before.about, "options": study.texts.options_digest} == after.about


def test_changed_options_are_scored_again_and_the_texts_are_not(tmp_path: Path) -> None:
    study = make(tmp_path / "s")
    collect(study, FakeBackend(), name="m")
    other = make(tmp_path / "t", [replace(t, options=t.options[:1]) for t in TEXTS])
    collect(other, FakeBackend(), name="m")
    (study.root / "texts.jsonl").write_bytes((other.root / "texts.jsonl").read_bytes())
    backend = FakeBackend()
    done = collect(Study.open(study.root), backend, name="m")
    assert done is not None
    assert done.only_options
    assert len(backend.sent) == 2 * 4, "each answer again, and each option"
    np.testing.assert_allclose(stored(Study.open(study.root)), stored(other), atol=1e-6)


def test_other_weights_under_the_same_name_are_refused_unless_forced(tmp_path: Path) -> None:
    study = make(tmp_path / "s", [replace(t, options=()) for t in TEXTS])
    collect(study, FakeBackend(), name="m")
    before = study.losses("m").nats
    (study.root / "texts.jsonl").write_bytes((make(tmp_path / "t").root / "texts.jsonl").read_bytes())

    class Other(FakeBackend):
        def score(self, sequences: Sequence[Sequence[int]]) -> list[Nats]:
            return [nats + 0.5 for nats in super().score(sequences)]

    study = Study.open(study.root)
    with pytest.raises(InputError, match=r"scored again with the options, are .* from the stored losses .* --force"):
        collect(study, Other(), name="m")
    assert study.losses("m").choices == {}
    done = collect(study, Other(), name="m", options=CollectOptions(force=True))
    assert done is not None
    assert not done.only_options
    np.testing.assert_allclose(np.nanmean(study.losses("m").nats - before), 0.5, atol=0.01)


def test_an_interrupted_run_goes_on_with_its_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, whole = make(tmp_path / "s"), make(tmp_path / "whole")
    collect(whole, FakeBackend(), name="m")
    monkeypatch.setattr("benchcast.collection.shards.SHARD_SECONDS", 0.0)

    def stop(texts: int, tokens: int) -> None:
        if texts:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        collect(study, FakeBackend(batch_size=1), name="m", report=stop)
    backend = FakeBackend(batch_size=1)
    done = collect(study, backend, name="m")
    assert done is not None
    assert done.resumed > 0
    assert done.resumed + done.texts == len(TEXTS)
    np.testing.assert_array_equal(stored(study), stored(whole))
    np.testing.assert_array_equal(study.losses("m").nats, whole.losses("m").nats)


def test_shards_of_other_options_are_discarded(tmp_path: Path) -> None:
    study = make(tmp_path / "s")
    job = Collection(make(tmp_path / "t", [*TEXTS[:-1], replace(TEXTS[0], id="empty", options=(" D",))]), FakeBackend())
    other = Collection(study, FakeBackend(), "m")
    shards = ShardStore(other.folder, {**other.settings, "options": job.settings["options"]}, other.encoded.row_counts)
    shards.take(BackendInfo.of(other.backend).line, {0: np.zeros(other.encoded.row_counts[0], np.float32)})
    shards.flush()
    done = collect(study, FakeBackend(), name="m")
    assert done is not None
    assert done.resumed == 0


def test_a_refused_option_is_named_or_skipped_with_its_item(tmp_path: Path) -> None:
    texts = [*TEXTS, Text("odd", "s", "It is a", 5, options=(" \u00e9", " b"))]
    study = make(tmp_path / "s", texts)
    backend = FakeBackend()
    encode = backend.vocabulary.tokenizer._encode
    backend.vocabulary.tokenizer._encode = lambda text: encode(text.replace("\u00e9", "e"))
    with pytest.raises(InputError, match=r"an option of text 'odd': .* \(1 of 8 texts have options that are refused"):
        collect(study, backend, name="m")
    done = collect(study, backend, name="m", options=CollectOptions(skip_refused=True))
    assert done is not None
    assert done.remarks == ("options of 1 text refused and skipped: odd",)
    found = choices(study)
    assert np.isnan(found["odd"]).all()
    assert np.isfinite(found["letters"]).all()
    assert np.isfinite(study.losses("m").nats[-len("It is a") :]).all()


def test_texts_are_known_by_the_same_digest_with_and_without_options() -> None:
    with_options, without = TextSet.of(TEXTS), TextSet.of(replace(t, options=()) for t in TEXTS)
    assert with_options.digest == without.digest
    assert with_options.annotated_digest == without.annotated_digest
    assert with_options.options_digest != without.options_digest == ""
    moved = TextSet.of([replace(TEXTS[0], options=TEXTS[0].options[::-1]), *TEXTS[1:]])
    assert moved.options_digest != with_options.options_digest


def test_features_and_the_tokens_of_texts_leave_options_out() -> None:
    encoded = encode_texts(FakeBackend().vocabulary.tokenizer, TextSet.of(TEXTS))
    assert encoded.row_counts.tolist() == encoded.counts.tolist()


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"answer_start": 1, "options": "b"}, "options must be a list of strings"),
        ({"answer_start": 1, "options": [1]}, "options must be a list of strings"),
        ({"answer_start": 1, "options": ["b", " "]}, "'t' has an empty option"),
        ({"answer_start": 1, "options": ["b", "\u00e9 "]}, "'t': option '\u00e9 ' is the answer itself"),
        ({"answer_start": 2, "options": ["b"]}, "'t' has options, and answer_start 2 is inside a character"),
        ({"answer_start": 3, "options": ["b"]}, "'t' has options and an empty answer"),
        ({"options": ["b"]}, "'t' has options and no answer_start"),
    ],
)  # fmt: skip
def test_options_that_cannot_replace_the_answer_are_one_line(row: dict[str, Any], said: str, tmp_path: Path) -> None:
    from benchcast.study.tables import read_texts

    path = tmp_path / "texts.jsonl"
    path.write_text(json.dumps({"id": "t", "text": "a\u00e9 ", **row}))
    with pytest.raises(InputError, match=said):
        read_texts(path)


def test_texts_jsonl_keeps_options(tmp_path: Path) -> None:
    assert make(tmp_path / "s").texts == TextSet.of(TEXTS)
    assert Study.open(tmp_path / "s").texts.texts == TEXTS
    assert CollectResult("m", texts=1, resumed=0, tokens=3, seconds=0.0).options == 0


def test_status_names_models_that_were_scored_without_the_options(tmp_path: Path) -> None:
    study = make(tmp_path / "s", [replace(t, options=()) for t in TEXTS])
    collect(study, FakeBackend(), name="m")
    assert not any("options" in line for line in status(study).problems)
    (study.root / "texts.jsonl").write_bytes((make(tmp_path / "t").root / "texts.jsonl").read_bytes())
    (line,) = (line for line in status(study.root).problems if "options" in line)
    assert line == (
        "1 model was scored without the options of the texts: m; run the same `benchcast collect` again, "
        "which adds them and leaves the losses as they are"
    )
    collect(study.root, FakeBackend(), name="m")
    assert not any("options" in line for line in status(study.root).problems)


def test_portions_with_options_can_be_sent_to_workers(tmp_path: Path) -> None:
    study = make(tmp_path / "s")
    collection = Collection(study, FakeBackend(), "m")
    (portion,) = collection.encoded.portions("m", ())
    sent = pickle.loads(pickle.dumps(portion))
    here, there = ([part for _, part in score_portion(None, (FakeBackend(), p))] for p in (portion, sent))
    rows, others = ({i: x for part in parts for i, x in part.rows.items()} for parts in (here, there))
    assert rows.keys() == others.keys() == set(range(len(TEXTS)))
    for index, values in rows.items():
        np.testing.assert_array_equal(values, others[index])
        assert len(values) == collection.encoded.row_counts[index]
