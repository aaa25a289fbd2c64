"""A checkpoint is scored only if it holds the weights that its configuration needs, no fewer and no others."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from benchcast.collection.backends.base import ModelSettings
from benchcast.collection.backends.hf import HfBackend
from benchcast.errors import InputError
from benchcast.records import Text, TextSet
from benchcast.study.study import Study

ZOO = Path(__file__).parents[1] / "zoo" / "shipped"
Weights = dict[str, torch.Tensor]


def backend(folder: Path, **settings: str) -> HfBackend:
    return HfBackend(ModelSettings({"pretrained": str(folder), **settings}), device="cpu")


def small(tmp_path: Path, *, tied: bool = False) -> Path:
    config = LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=3, num_attention_heads=2,
        tie_word_embeddings=tied,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(tmp_path / "small")
    return tmp_path / "small"


def change(folder: Path, edit: Callable[[Weights], Weights]) -> None:
    file = folder / "model.safetensors"
    save_file(edit(load_file(file)), file, metadata={"format": "pt"})


def without(*parts: str) -> Callable[[Weights], Weights]:
    return lambda weights: {k: v for k, v in weights.items() if not any(part in k for part in parts)}


def adding(names: Iterable[str]) -> Callable[[Weights], Weights]:
    return lambda weights: weights | {name: torch.ones(4) for name in names}


def test_a_checkpoint_without_a_layer_is_refused(tmp_path: Path) -> None:
    folder = small(tmp_path)
    change(folder, without("layers.1."))
    said = r"small: the checkpoint lacks 9 of the weights of LlamaForCausalLM \(model.layers.1.input_layernorm.weight, "
    with pytest.raises(InputError, match=said) as error:
        backend(folder).score([[1, 2, 3]])
    assert "\n" not in str(error.value)


def test_a_checkpoint_with_a_layer_too_many_is_refused(tmp_path: Path) -> None:
    folder = small(tmp_path)
    change(
        folder, lambda w: w | {k.replace("layers.2", "layers.3"): v.clone() for k, v in w.items() if "layers.2" in k}
    )
    with pytest.raises(InputError, match=r"has 9 weights that LlamaForCausalLM with its config.json does not use"):
        backend(folder).score([[1, 2, 3]])


def test_an_output_layer_may_be_absent_only_where_it_is_tied(tmp_path: Path) -> None:
    folder = small(tmp_path)
    change(folder, without("lm_head"))
    with pytest.raises(InputError, match=r"lacks 1 of the weights of LlamaForCausalLM \(lm_head.weight\)"):
        backend(folder).score([[1, 2, 3]])
    shutil.rmtree(folder)
    folder = small(tmp_path, tied=True)
    assert "lm_head.weight" not in load_file(folder / "model.safetensors")
    assert len(backend(folder).score([[1, 2, 3]])[0]) == 3


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.0.self_attn.rotary_emb.inv_freq",
        "model.embeddings.position_ids",
        "model.layers.0.attn.masked_bias",
    ],
)
def test_buffers_of_older_versions_are_no_weights(tmp_path: Path, name: str) -> None:
    folder = small(tmp_path)
    before = backend(folder).score([[1, 2, 3]])[0]
    change(folder, adding([name]))
    np.testing.assert_array_equal(backend(folder).score([[1, 2, 3]])[0], before)


def test_a_checkpoint_saved_without_the_name_of_its_body_is_whole(tmp_path: Path) -> None:
    config = GPT2Config(vocab_size=64, n_embd=16, n_layer=2, n_head=2, n_positions=32)
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "gpt2")
    before = backend(tmp_path / "gpt2").score([[1, 2, 3]])[0]
    change(tmp_path / "gpt2", lambda w: {k.removeprefix("transformer."): v for k, v in w.items()})
    np.testing.assert_array_equal(backend(tmp_path / "gpt2").score([[1, 2, 3]])[0], before)


def test_shipped_and_converted_models_are_whole(stories: Path) -> None:
    """Of a GGUF file test_collect_cli.py says so: its losses are collected."""
    for folder in (*sorted(ZOO.iterdir()), stories):
        assert backend(folder).about()["backend"] == "hf"


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study.create(tmp_path / "study", TextSet.of([Text("a", "s", "one two three")]))


def test_the_command_line_stores_nothing_of_a_damaged_checkpoint(
    study: Study, tmp_path: Path, cli: Callable[..., Any]
) -> None:
    damaged = Path(shutil.copytree(ZOO / "ash-0.5M", tmp_path / "damaged"))
    change(damaged, without("layers.0."))
    scored = cli("collect", study.root, "--model", "hf", "--model_args", f"pretrained={damaged}")
    states = cli("features", study.root, "--scorer", damaged)
    for ran in (scored, states):
        assert ran.code == 1
        assert "damaged: the checkpoint lacks" in ran.err
        assert len(ran.err.splitlines()) == 1
    assert (study.models_with_losses(), study.scorers()) == ([], [])


def absent(name: str) -> HfBackend:
    return HfBackend(ModelSettings({"pretrained": name}), device="cpu")


@pytest.mark.parametrize(
    "name", ["/no/such/model", "./model", "../model", "~/no-such-model", "a/b/c", "models/ash-0.5"]
)
def test_a_path_that_does_not_exist_is_an_error_at_once(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "ash-0.5M").mkdir(parents=True)
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", lambda *a, **k: pytest.fail("asked the hub"))
    began = time.monotonic()
    with pytest.raises(InputError, match=rf"^{name}: no such file or folder") as error:
        _ = absent(name).vocabulary
    with pytest.raises(InputError, match=rf"^{name}: no such file or folder"):
        absent(name).about()
    assert time.monotonic() - began < 1
    assert ("did you mean 'ash-0.5M'?" in str(error.value)) == (name == "models/ash-0.5")


def test_a_hub_id_is_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("gpt2", "EleutherAI/pythia-70m"):
        said = r"its tokenizer cannot be loaded \(there is no such folder, so it was read as a hub id\): "
        with pytest.raises(InputError, match=said):
            _ = absent(name).vocabulary


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    shutil.copytree(ZOO / "ash-0.5M", tmp_path / "ash")
    backend = absent("~/ash")
    assert backend.model == "ash"
    assert backend.vocabulary.tokenizer.encode("a")
    assert backend.context > 0
