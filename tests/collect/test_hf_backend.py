"""transformers: losses agree with the plainest loop one can write, and depend on nothing but the text."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from benchcast.collection.backends import forward, open_backend
from benchcast.collection.backends.base import ModelSettings, from_logits
from benchcast.collection.backends.hf import HfBackend
from benchcast.collection.collect import collect
from benchcast.collection.tokenizers import locate
from benchcast.collection.windows import plan
from benchcast.errors import InputError
from benchcast.records import Text, TextSet
from benchcast.study.study import Study

ZOO = Path(__file__).parents[1] / "zoo" / "shipped"
TEXTS = {
    "english": "The museum opens at nine; tickets cost 12 dollars.",
    "chinese": "今天天气很好，我们去公园散步。",
    "code": "def add(a, b):\n    return a + b\n",
}
BOS = {"smollm2": None, "gemma": 2, "stories": 1}


def backend(folder: Path, **settings: str) -> HfBackend:
    return HfBackend(ModelSettings({"pretrained": str(folder), **settings}), device="cpu")


@pytest.fixture(scope="module")
def fine(stories: Path) -> HfBackend:
    """stories15M in float32; not to be changed."""
    return backend(stories)


def naive(model: Any, ids: list[int]) -> list[float]:
    """One forward pass for every token, and one log-softmax in float64."""
    nats = []
    with torch.no_grad():
        for i in range(1, len(ids)):
            logits = model(torch.tensor([ids[:i]])).logits[0, -1].double()
            nats.append(-torch.log_softmax(logits, -1)[ids[i]].item())
    return nats


@pytest.fixture
def real_model(name: str, request: pytest.FixtureRequest) -> Path:
    """A real model, fetched before the time limit of the test begins."""
    return request.getfixturevalue(name)


@pytest.mark.parametrize("name", list(BOS))
def test_losses_agree_with_a_naive_loop(name: str, real_model: Path) -> None:
    scored = backend(real_model)
    assert scored.vocabulary.prefix == ((BOS[name],) if BOS[name] else ())
    sequences = [[*scored.vocabulary.prefix, *locate(scored.vocabulary.tokenizer, text)[0]] for text in TEXTS.values()]
    shown = AutoTokenizer.from_pretrained(real_model)
    assert sequences == [shown(text).input_ids for text in TEXTS.values()]
    model = AutoModelForCausalLM.from_pretrained(real_model, dtype=torch.float32)
    for ids, nats in zip(sequences, scored.score(sequences), strict=True):
        assert np.isnan(nats[0])
        assert np.isfinite(nats[1:]).all()
        places = [*range(1, len(ids))] if name == "stories" else [1, len(ids) // 2, len(ids) - 1]  # large: slow
        with torch.no_grad():
            rows = [model(torch.tensor([ids[:i]])).logits[0, -1].double() for i in places]
            together = model(torch.tensor([ids])).logits[0].numpy()
        expected = [-torch.log_softmax(row, -1)[ids[i]].item() for row, i in zip(rows, places, strict=True)]
        np.testing.assert_allclose(nats[places], expected, atol=1e-4)
        by_logits = from_logits(together, ids)  # as llama.cpp and LMDeploy are read
        assert np.isnan(by_logits[0])
        np.testing.assert_allclose(by_logits[places], expected, atol=1e-4)


def test_losses_do_not_depend_on_the_batch(fine: HfBackend) -> None:
    rng = np.random.default_rng(0)
    sequences = [[1, *rng.integers(3, 32000, n).tolist()] for n in (1, 2, 5, 17, 40, 90, 200)]
    together = fine.score(sequences)
    for ids, nats in zip(sequences, together, strict=True):
        np.testing.assert_allclose(fine.score([ids])[0], nats, atol=5e-5)


def test_texts_beyond_the_context_are_scored_in_windows_that_start_with_bos(stories: Path, tmp_path: Path) -> None:
    text = "Tom saw a big dog in the park. " * 5
    study = Study.create(tmp_path / "s", TextSet.of([Text("long", "s", text)]))
    scored = backend(stories, max_length="24")
    collect(study, scored, name="m")
    ids = locate(scored.vocabulary.tokenizer, text)[0]
    expected = np.full(len(ids), np.nan)
    for window in plan(0, ids, (1,), context=24):
        scored_nats = naive(scored._loaded, list(window.ids))[window.skip - 1 :]
        expected[window.first : window.first + len(scored_nats)] = scored_nats
    assert len(ids) > 40
    np.testing.assert_allclose(study.losses("m").nats, expected, atol=1e-4)


def test_a_single_token_without_bos_has_no_loss(fine: HfBackend) -> None:
    alone, with_others = fine.score([[300]])[0], fine.score([[300], [1, 300, 301]])[0]
    assert np.isnan(alone).tolist() == np.isnan(with_others).tolist() == [True]


def test_the_size_of_blocks_changes_nothing(stories: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scored = backend(stories)
    ids = [[1, *range(300, 340), 31999, 0, 8191, 8192]]
    whole = scored.score(ids)[0]
    monkeypatch.setattr(forward, "ROWS", 7)
    monkeypatch.setattr(forward, "WORDS", 8192)
    np.testing.assert_allclose(scored.score(ids)[0], whole, atol=5e-5)
    scored._forward.__dict__["_head_in_blocks"] = False
    monkeypatch.setitem(forward.LOGIT_BYTES, "cpu", 4 * 32000 * 3)
    np.testing.assert_allclose(scored.score(ids)[0], whole, atol=5e-5)


def test_a_head_that_scales_its_logits_is_not_taken_apart(fine: HfBackend, stories: Path) -> None:
    plain = fine.score([[1, 300, 301]])[0]
    assert fine._forward.plain_head
    other = backend(stories)
    whole = other._loaded.forward

    def scaled(*args: Any, **kwargs: Any) -> Any:
        out = whole(*args, **kwargs)
        out.logits = out.logits * 0.5
        return out

    other._loaded.forward = scaled
    assert not other._forward.plain_head
    halved = other.score([[1, 300, 301]])[0]
    with torch.no_grad():
        expected = -torch.log_softmax(other._loaded(torch.tensor([[1, 300, 301]])).logits[0], -1)
    np.testing.assert_allclose(halved[1:], [expected[0, 300], expected[1, 301]], atol=1e-4)
    assert not np.allclose(plain[1:], halved[1:], atol=1e-3)


def test_a_gguf_file_gives_the_model_its_name(smollm2_gguf: Path) -> None:
    assert backend(smollm2_gguf).model == "SmolLM2-135M-Instruct.Q4_1"


@pytest.mark.parametrize(
    ("wanted", "prefix", "words"), [("false", (), "none, as asked"), ("true", (1,), "<s>, as asked")]
)
def test_the_bos_policy_can_be_overridden(stories: Path, wanted: str, prefix: tuple[int, ...], words: str) -> None:
    vocabulary = backend(stories, add_bos_token=wanted).vocabulary
    assert (vocabulary.prefix, vocabulary.bos) == (prefix, words)


def test_the_context_is_the_configurations_or_less(stories: Path) -> None:
    assert backend(stories).context == 256
    assert backend(stories, max_length="64").context == 64


def test_bfloat16_losses_are_float32_numbers(fine: HfBackend, stories: Path) -> None:
    coarse = backend(stories, dtype="bfloat16")
    nats = coarse.score([[1, 9038, 2501, 263]])[0]
    assert nats.dtype == np.float32
    assert coarse.about()["dtype"] == "bfloat16"
    np.testing.assert_allclose(nats, fine.score([[1, 9038, 2501, 263]])[0], atol=0.2)


def test_models_that_look_ahead_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = LlamaForCausalLM(LlamaConfig(vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2))
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.7)
    model.save_pretrained(tmp_path)
    assert backend(tmp_path).context == model.config.max_position_embeddings
    whole = LlamaForCausalLM.forward

    def ahead(self: Any, input_ids: Any, **kwargs: Any) -> Any:
        return whole(self, input_ids=input_ids.flip(1), **kwargs)

    monkeypatch.setattr(LlamaForCausalLM, "forward", ahead)
    with pytest.raises(InputError, match="LlamaForCausalLM sees tokens to the right; a causal model is needed"):
        backend(tmp_path).score([[1, 2, 3]])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "no pretrained; add pretrained=PATH_OR_HUB_ID"),
        ({"pretrained": "x", "dtype": "int4"}, "dtype=int4; one of float32"),
        (
            {"pretrained": "x", "dtyp": "float32"},
            r"unknown setting 'dtyp'; did you mean 'dtype'\? .known: pretrained, revision, dtype, ",
        ),
        ({"pretrained": "x", "api_key": "s3cret"}, "api_key must not be a setting"),
        ({"pretrained": "x", "max_length": "-3"}, "max_length=-3; a whole number from 1"),
        ({"pretrained": "x", "trust_remote_code": "maybe"}, "true or false is needed"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, str], said: str) -> None:
    with pytest.raises(InputError, match=said) as error:
        open_backend("hf", ModelSettings(settings))
    assert "s3cret" not in str(error.value)


@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize("content", [b"no weights", b""])
def test_weights_that_cannot_be_read_are_one_line(tmp_path: Path, file: str, content: bytes) -> None:
    shutil.copytree(ZOO / "ash-0.5M", tmp_path / "broken")
    (tmp_path / "broken" / "model.safetensors").unlink()
    (tmp_path / "broken" / file).write_bytes(content)
    with pytest.raises(InputError, match="broken: the model cannot be loaded: ") as error:
        backend(tmp_path / "broken").about()
    assert "\n" not in str(error.value)


def test_code_from_a_repository_does_not_run_unasked(stories: Path, tmp_path: Path) -> None:
    for file in stories.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    mark = tmp_path / "ran"
    (tmp_path / "evil.py").write_text(f"open({str(mark)!r}, 'w')\nfrom transformers import LlamaForCausalLM as M\n")
    config = (tmp_path / "config.json").read_text().rstrip().rstrip("}").rstrip()
    remote_code = '"model_type": "evil", "auto_map": {"AutoConfig": "evil.M", "AutoModelForCausalLM": "evil.M"}'
    (tmp_path / "config.json").write_text(
        config.replace('"model_type": "llama"', '"was": "llama"') + ", " + remote_code + "}"
    )
    with pytest.raises(InputError):
        backend(tmp_path).score([[1, 2]])
    assert not mark.exists()
