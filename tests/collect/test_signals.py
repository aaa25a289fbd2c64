"""Signals: they are the same on every path of the head, and survive being stored (real models: test_hf_backend.py)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from fake import FakeBackend, loss
from naive import check, naive

from benchcast.backends.base import ModelSettings, Nats
from benchcast.backends.token_signals import numpy_signals
from benchcast.choices import SIGNALS
from benchcast.collection import collect
from benchcast.collection.jobs import CollectOptions
from benchcast.errors import InputError
from benchcast.records import Text, TextSet
from benchcast.store import Study

TEXTS = ("The museum opens at nine; tickets cost 12 dollars.", "今天天气很好。", "def add(a, b):\n    return a + b\n")
SOME = CollectOptions(signals=("rank", "hit"))


class TellingBackend(FakeBackend):
    """A fake that gives rank and hit: the rank is the loss in bits, so that files can be checked."""

    signals = ("rank", "hit")

    def score_signals(self, sequences: Sequence[Sequence[int]], names: Sequence[str]) -> list[Nats]:
        self.sent += sequences
        rows = []
        for s in sequences:
            nats = np.array([np.nan, *(loss(s, i) for i in range(1, len(s)))])
            columns = {"rank": np.round(8 * nats) / 8, "hit": np.where(np.isnan(nats), np.nan, nats < 1)}
            rows.append(np.stack([nats, *(columns[name] for name in names)], axis=1).astype(np.float32))
        return rows


def test_rows_and_blocks_of_words_give_the_same_signals_in_any_selection(stories: Path) -> None:
    torch = pytest.importorskip("torch")
    from benchcast.backends.forward import Forward
    from benchcast.backends.hf import HfBackend

    backend = HfBackend(ModelSettings({"pretrained": str(stories)}), device="cpu")
    sequences = [[1, *np.random.default_rng(0).integers(3, 32000, n).tolist()] for n in (2, 40)]
    by_words = backend.score_signals(sequences, SIGNALS)
    whole = Forward(backend._loaded, whole=True).score_signals(sequences, SIGNALS)
    for a, b in zip(by_words, whole, strict=True):
        np.testing.assert_allclose(a, b, atol=0.03)
    for k, name in enumerate(SIGNALS, start=1):
        (alone, _) = backend.score_signals(sequences, (name,))
        np.testing.assert_array_equal(alone[:, 1], by_words[0][:, k])
    assert torch.is_inference_mode_enabled() is False


def test_ties_count_for_the_token_and_impossible_words_cost_nothing() -> None:
    torch = pytest.importorskip("torch")
    from benchcast.backends.token_signals import VocabularyPass, rows_to_signals

    logits = np.array([[1.0, 1.0, -np.inf, 0.0], [2.0, 0.0, 0.0, -np.inf]])
    expected = [naive(logits[0], 0), naive(logits[1], 1)]
    by_numpy = numpy_signals(np.vstack([logits, logits[:1]]), [3, 1, 1], SIGNALS)[1:]
    by_torch = rows_to_signals(torch.tensor(logits).float(), torch.tensor([1, 1]), SIGNALS).numpy()
    parts = VocabularyPass(torch.tensor([1, 1]), torch.tensor([1.0, 0.0]), SIGNALS)
    for block in (logits[:, :2], logits[:, 2:]):
        parts.add(torch.tensor(np.maximum(block, -1e4)).float())
    for columns in (by_numpy, by_torch, parts.columns().numpy()):
        check(columns, expected, range(2))


def study_of(folder: Path) -> Study:
    return Study.create(folder, TextSet.of(Text(f"t{i}", "web", text) for i, text in enumerate(TEXTS)))


def test_collected_signals_are_stored_and_read_back(tmp_path: Path) -> None:
    study = study_of(tmp_path / "study")
    collect(study, TellingBackend(), options=SOME)
    stored = study.losses("fake-1")
    np.testing.assert_array_equal(stored.signals["rank"], np.round(8 * stored.nats) / 8)
    np.testing.assert_array_equal(stored.signals["hit"], stored.nats < 1)
    assert collect(study, TellingBackend(), options=SOME) is None


def test_a_first_token_without_bos_has_no_signals(tmp_path: Path) -> None:
    study = study_of(tmp_path / "study")
    collect(study, TellingBackend(bos=False), options=SOME)
    stored = study.losses("fake-1")
    for values in stored.signals.values():
        np.testing.assert_array_equal(np.isnan(values), np.isnan(stored.nats))


def test_an_interrupted_run_with_signals_continues_and_one_without_them_starts_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_of(tmp_path / "study")
    monkeypatch.setattr("benchcast.collection.shards.SHARD_SECONDS", 0.0)

    class Breaking(TellingBackend):
        def score_signals(self, sequences: Sequence[Sequence[int]], names: Sequence[str]) -> list[Nats]:
            if self.sent:
                raise InputError("out of power")
            return super().score_signals(sequences, names)

    with pytest.raises(InputError, match="out of power"):
        collect(study, Breaking(batch_size=1), options=SOME)
    resumed = collect(study, TellingBackend(batch_size=1), options=SOME)
    assert resumed is not None
    assert (resumed.resumed, resumed.texts) == (1, 2)
    again = collect(study, TellingBackend(batch_size=1), name="other", options=CollectOptions(signals=("hit",)))
    assert again is not None
    assert again.resumed == 0
    assert set(study.losses("other").signals) == {"hit"}


def test_signals_that_a_backend_does_not_give_are_refused_in_one_line(tmp_path: Path) -> None:
    study = study_of(tmp_path / "study")
    with pytest.raises(
        InputError, match=r"^backend fake cannot give entropy, margin; signals that it gives: rank, hit$"
    ):
        collect(study, TellingBackend(), options=CollectOptions(signals=SIGNALS))
    with pytest.raises(InputError, match=r"^backend fake cannot give hit; signals that it gives: none$"):
        collect(study, FakeBackend(), options=CollectOptions(signals=("hit",)))
    assert not study.models_with_losses()


def test_losses_stored_without_signals_stay_and_the_message_names_the_way_out(tmp_path: Path) -> None:
    study = study_of(tmp_path / "study")
    collect(study, TellingBackend())
    with pytest.raises(InputError, match="has losses without rank, hit; --force scores it again"):
        collect(study, TellingBackend(), options=SOME)
    assert study.losses("fake-1").signals == {}
    collect(study, TellingBackend(), options=CollectOptions(force=True, signals=("rank", "hit")))
    assert set(study.losses("fake-1").signals) == {"rank", "hit"}


def test_vllm_gives_rank_hit_and_margin_from_its_log_probabilities() -> None:
    from types import SimpleNamespace

    from benchcast.backends.vllm import VllmBackend, read_output

    entries = [None, {5: SimpleNamespace(logprob=-1.0, rank=3), 2: SimpleNamespace(logprob=-0.25, rank=1)},
               {2: SimpleNamespace(logprob=-0.5, rank=1)}]  # fmt: skip
    columns = read_output(
        SimpleNamespace(prompt_token_ids=[9, 5, 2], prompt_logprobs=entries), [9, 5, 2], SIGNALS[:1] + SIGNALS[2:]
    )
    np.testing.assert_allclose(columns[1:], [[1.0, np.log2(3), 0, 0.75], [0.5, 0, 1, 0]], rtol=1e-6)
    assert VllmBackend.signals == ("rank", "hit", "margin")
