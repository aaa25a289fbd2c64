"""A forecast in memory is the one from files, and leaves no trace in what it looked at."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small import TOKENIZER, small_model, tokenizer_with_bos
from tokenizers import Tokenizer
from torch import nn

from benchcast.callbacks import Reading, forecast, read_fits
from benchcast.collection.backends import open_backend
from benchcast.collection.backends.base import ModelSettings
from benchcast.collection.collect import collect
from benchcast.collection.jobs import CollectOptions
from benchcast.errors import InputError, StudyError
from benchcast.methods.capability import ChoiceWeights
from benchcast.records import TextSet
from benchcast.study.study import Study
from benchcast.study.tables import texts_jsonl
from benchcast.training.live import Reader
from benchcast.training.memory_backend import MemoryBackend
from synthetic import Plan, make_world


def test_a_model_in_memory_gets_the_forecast_of_its_checkpoint(
    study: Study, fitted: Study, model: Any, tokenizer: Any, tmp_path: Path
) -> None:
    live = forecast(model, tokenizer, fitted)
    model.save_pretrained(tmp_path / "checkpoint")
    tokenizer.save_pretrained(tmp_path / "checkpoint")
    settings = ModelSettings({"pretrained": str(tmp_path / "checkpoint")})
    collect(study, open_backend("hf", settings, device="cpu"), name="saved")
    for fit in read_fits(fitted):
        stored = fit.predict(study.losses("saved"))
        assert live[fit.task].accuracy == pytest.approx(stored.accuracy, abs=1e-6)
        assert live[fit.task].low == pytest.approx(stored.low, abs=1e-6)
        assert live[fit.task].capability == pytest.approx(stored.capability, abs=1e-6)


def test_the_model_its_gradients_and_all_random_states_stay_as_they_are(
    fitted: Study, model: Any, tokenizer: Any
) -> None:
    model.train()
    model.model.layers[0].eval()  # frozen on purpose: must not be woken up
    ids = torch.arange(3, 20)[None]
    model(input_ids=ids, labels=ids).loss.backward()
    modes = {name: m.training for name, m in model.named_modules()}
    kept = {name: (p.detach().clone(), p.grad.clone()) for name, p in model.named_parameters()}
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
    first = forecast(model, tokenizer, fitted)
    assert {name: m.training for name, m in model.named_modules()} == modes
    for name, p in model.named_parameters():
        assert torch.equal(p, kept[name][0])
        assert torch.equal(p.grad, kept[name][1])
    assert random.getstate() == states[0]
    assert np.random.get_state()[1].tolist() == states[1]
    assert torch.equal(torch.get_rng_state(), states[2])
    assert forecast(model, tokenizer, fitted) == first, "dropout was on"


def test_autocast_around_a_forecast_does_not_cut_off_gradients(fitted: Study, model: Any, tokenizer: Any) -> None:
    ids = torch.arange(3, 20)[None]
    with torch.autocast("cpu", torch.bfloat16):
        forecast(model, tokenizer, fitted)
        model(input_ids=ids, labels=ids).loss.backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


def test_what_a_forecast_leaves_can_be_trained_even_inside_inference_mode(
    fitted: Study, model: Any, tokenizer: Any
) -> None:
    with torch.inference_mode():
        forecast(model, tokenizer, fitted)
    ids = torch.arange(3, 20)[None]
    model(input_ids=ids, labels=ids).loss.backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


class HomeMade(nn.Module):
    """A model that knows nothing of transformers; `last` gives only the last position, as for generation."""

    def __init__(self, inner: Any, *, last: bool = False) -> None:
        super().__init__()
        self.inner, self.last = inner, last

    def forward(self, ids: Any) -> Any:
        logits = self.inner(input_ids=ids).logits
        return (logits[:, -1:] if self.last else logits), None


def test_any_module_that_makes_logits_will_do(fitted: Study, model: Any, tokenizer: Any) -> None:
    raw = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    forecasts = forecast(HomeMade(model), raw, fitted, reading=Reading(context=128))
    for task, expected in forecast(model, tokenizer, fitted).items():
        assert forecasts[task].capability == pytest.approx(expected.capability, rel=1e-6)


def test_logits_of_one_position_are_refused(fitted: Study, model: Any, tokenizer: Any) -> None:
    with pytest.raises(InputError, match=r"HomeMade returned \(\d+, 1, 320\) for ids .*every position are needed"):
        forecast(HomeMade(model, last=True), tokenizer, fitted)


def test_wrappers_of_compilation_and_data_parallelism_are_looked_through(
    fitted: Study, model: Any, tokenizer: Any
) -> None:
    expected = forecast(model, tokenizer, fitted)
    assert forecast(torch.compile(model, backend="eager"), tokenizer, fitted) == expected
    assert forecast(nn.DataParallel(model), tokenizer, fitted) == expected


@pytest.mark.filterwarnings("ignore")  # of dynamo, about attributes that it reads
@pytest.mark.parametrize("part", ["model", "layers"])
def test_a_forecast_compiles_nothing_again(fitted: Study, model: Any, tokenizer: Any, part: str) -> None:
    expected = forecast(model, tokenizer, fitted)
    compiled = []

    def compiler(graph: Any, _: Any) -> Any:
        compiled.append(graph)
        return graph.forward

    for module in [model] if part == "model" else model.model.layers:
        module.compile(backend=compiler)
    ids = torch.arange(3, 20)[None]
    model(input_ids=ids, labels=ids).loss.backward()
    before = len(compiled)
    assert before > 0
    assert forecast(model, tokenizer, fitted) == expected
    model(input_ids=ids, labels=ids).loss.backward()
    assert len(compiled) == before


class Cramped(nn.Module):
    """A model on a device that has room for two sequences at a time."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner, self.config, self.refused = inner, inner.config, 0

    def forward(self, ids: Any) -> Any:
        if len(ids) > 2:
            self.refused += 1
            raise torch.OutOfMemoryError("CUDA out of memory")
        return self.inner(input_ids=ids).logits


def test_a_batch_that_does_not_fit_is_tried_in_halves(fitted: Study, model: Any, tokenizer: Any) -> None:
    cramped = Cramped(model)
    forecasts = forecast(cramped, tokenizer, fitted)
    assert cramped.refused > 0
    for task, expected in forecast(model, tokenizer, fitted).items():
        assert forecasts[task].accuracy == pytest.approx(expected.accuracy, abs=1e-6)


@pytest.mark.parametrize("context", [0, 40])
def test_the_losses_are_those_that_collect_stores(
    study: Study, fitted: Study, model: Any, tokenizer: Any, context: int
) -> None:
    reader = Reader.of(tokenizer, read_fits(fitted), reading=Reading(context=context))
    live, stored = Cramped(model), Cramped(model).eval()
    collect(
        study,
        MemoryBackend(stored, reader.vocabulary, model="same", context=context),
        options=CollectOptions(force=True),
    )
    np.testing.assert_array_equal(reader.losses(live).nats, study.losses("same").nats)
    assert live.refused == stored.refused > 0


def test_ranks_that_share_the_weights_do_not_halve_their_batches(
    fitted: Study, model: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cramped = Cramped(model)
    monkeypatch.setattr("benchcast.training.memory_backend.sharded", lambda module: True)
    with pytest.raises(InputError, match="the device is out of memory; give a smaller batch_tokens"):
        forecast(cramped, tokenizer, fitted)
    assert cramped.refused == 1


def test_a_short_context_is_read_in_windows(fitted: Study, model: Any, tokenizer: Any) -> None:
    short = forecast(model, tokenizer, fitted, reading=Reading(context=40, batch_tokens=64))
    assert all(np.isfinite(f.accuracy) for f in short.values())
    assert short != forecast(model, tokenizer, fitted)


def test_without_bos_the_way_out_is_named(fitted: Study, model: Any) -> None:
    bare = tokenizer_with_bos(TOKENIZER)
    bare.backend_tokenizer.post_processor = Tokenizer.from_file(str(TOKENIZER)).post_processor
    with pytest.raises(InputError, match=r"adds no BOS before a text.*Reading\(add_bos_token=True\)"):
        forecast(model, bare, fitted)
    assert forecast(model, bare, fitted, reading=Reading(add_bos_token=True))


def test_texts_that_are_not_the_fits_own_are_refused(fitted: Study, model: Any, tokenizer: Any) -> None:
    other = make_world(Plan(seed=9, families=2, sizes=2, checkpoints=1, tasks=1, texts_per_source=2)).texts
    with pytest.raises(InputError, match="the new losses are on texts"):
        forecast(model, tokenizer, fitted, other)


def test_a_thing_that_is_no_tokenizer_is_named(fitted: Study, model: Any) -> None:
    with pytest.raises(InputError, match="a list is not a tokenizer"):
        forecast(model, ["a"], fitted)


def test_a_study_without_fits_says_what_to_run(study: Study) -> None:
    with pytest.raises(StudyError, match=f"no fits yet; run `benchcast fit {re.escape(str(study.root))}`"):
        read_fits(study.root)


def test_fits_come_from_a_study_a_folder_or_as_they_are(fitted: Study) -> None:
    everything = read_fits(fitted.root)
    assert [f.task for f in everything] == ["task0", "task1"]
    assert read_fits(fitted.fit_folder("task1"))[0].task == "task1"
    assert read_fits({f.task: f for f in everything}) == everything
    assert read_fits(everything[0]) == everything[:1]
    with pytest.raises(InputError, match="no fits; make some"):
        read_fits([])


def test_losses_that_are_not_numbers_name_the_text(fitted: Study, tokenizer: Any) -> None:
    broken = small_model()
    with torch.no_grad():
        broken.lm_head.weight.fill_(float("nan"))
    with pytest.raises(InputError, match=r"text 'source.*: the backend gave NaN"):
        forecast(broken, tokenizer, fitted)


def test_a_shared_fit_brings_its_texts_or_takes_them(fitted: Study, model: Any, tokenizer: Any, tmp_path: Path) -> None:
    fit = read_fits(fitted)[0]
    said = forecast(model, tokenizer, fit)
    whole = fit.save_pretrained(tmp_path / "whole", include_texts=True)
    assert forecast(model, tokenizer, str(whole)) == said
    bare = fit.save_pretrained(tmp_path / "bare")
    with pytest.raises(InputError, match="shared without its texts"):
        forecast(model, tokenizer, str(bare))
    assert forecast(model, tokenizer, str(bare), fitted.texts) == said


def test_fits_that_read_choice_losses_score_the_options_in_memory(
    study: Study, fitted: Study, model: Any, tokenizer: Any, tmp_path: Path
) -> None:
    fit, *_ = read_fits(fitted)
    texts = TextSet.of(replace(t, options=(t.answer[::-1] + "?", " no")) if t.answer.strip() else t for t in fit.texts)
    with_options = np.array([bool(t.options) for t in texts])
    assert with_options.any()
    weights = np.where(with_options, 0.01, 0.0).astype(np.float32)[None]
    capability = replace(fit.task_fit.capability, choices=ChoiceWeights(name="choice_norm", weights=weights))
    reading = replace(fit, texts=texts, task_fit=replace(fit.task_fit, capability=capability))
    live = forecast(model, tokenizer, reading)[fit.task]
    model.save_pretrained(tmp_path / "checkpoint")
    tokenizer.save_pretrained(tmp_path / "checkpoint")
    settings = ModelSettings({"pretrained": str(tmp_path / "checkpoint")})
    (study.root / "texts.jsonl").write_text(texts_jsonl(texts))
    collect(study.root, open_backend("hf", settings, device="cpu"), name="saved")
    stored = reading.predict(Study.open(study.root).losses("saved"))
    assert live.capability == pytest.approx(stored.capability, abs=1e-5)
    assert live.capability != pytest.approx(forecast(model, tokenizer, fit)[fit.task].capability, abs=1e-3)
    with pytest.raises(InputError, match="the fits use choice losses, and their texts have no options"):
        forecast(model, tokenizer, replace(reading, texts=fit.texts))
