"""The Trainer's callback: forecasts reach the run's loggers, and training does not notice."""

from __future__ import annotations

import csv
import json
import logging
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import LOGGED, forecasts, train
from small import Rows, tokenizer_with_bos
from transformers import TrainerCallback

from benchcast.callbacks import TransformersForecast, forecast
from benchcast.errors import InputError, StudyError
from benchcast.forecasts.fit import fit_tasks
from benchcast.forecasts.stored_fit import Fit
from benchcast.records import ModelInfo, Score
from benchcast.study.study import Study
from benchcast.training.live import Attempts

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]


def test_training_with_forecasts_gives_bit_identical_weights(fitted: Study, tokenizer: Any, tmp_path: Path) -> None:
    plain = train(tmp_path / "a", tokenizer)
    watched = train(tmp_path / "b", tokenizer, TransformersForecast(fitted.root, every=2))
    assert len(forecasts(watched)) == 3
    for a, b in zip(plain.model.parameters(), watched.model.parameters(), strict=True):
        assert torch.equal(a, b)
    losses = [[row["loss"] for row in t.state.log_history if "loss" in row] for t in (plain, watched)]
    assert losses[0] == losses[1], "the Trainer's own lines are all there, and the same"


def test_the_probability_of_a_needed_score_is_logged(fitted: Study, tokenizer: Any, tmp_path: Path) -> None:
    trainer = train(tmp_path, tokenizer, TransformersForecast(fitted.root, every=6, need={"task0": 0.4}))
    expected = forecast(trainer.model, tokenizer, fitted)["task0"].probability_above(0.4)
    assert forecasts(trainer)[-1]["forecast/task0_p"] == pytest.approx(expected, abs=1e-5)
    with pytest.raises(InputError, match="40% is"):
        TransformersForecast(fitted.root, need={"task0": 40})


def test_the_last_forecast_is_of_the_trained_model(fitted: Study, tokenizer: Any, tmp_path: Path) -> None:
    trainer = train(tmp_path, tokenizer, TransformersForecast(fitted.root, every=4))
    logged = forecasts(trainer)
    assert [row["step"] for row in logged] == [4, 6]
    for task, expected in forecast(trainer.model, tokenizer, fitted).items():
        assert logged[-1][f"forecast/{task}"] == pytest.approx(expected.accuracy, abs=1e-6)
        assert logged[-1][f"forecast/{task}_low"] == pytest.approx(expected.low, abs=1e-6)
        assert logged[-1][f"forecast/{task}_high"] == pytest.approx(expected.high, abs=1e-6)
        assert logged[-1][f"capability/{task}"] == pytest.approx(expected.capability, abs=1e-6)
    assert logged[0]["forecast/seconds"] > 0


def test_without_a_number_of_steps_forecasts_come_with_evaluations(
    fitted: Study, tokenizer: Any, tmp_path: Path
) -> None:
    both = {"eval_dataset_a": Rows(4), "eval_dataset_b": Rows(4)}
    trainer = train(tmp_path, tokenizer, TransformersForecast(fitted.root), eval_strategy="steps", eval_steps=3)
    assert [row["step"] for row in forecasts(trainer)] == [3, 6]
    trainer.eval_dataset = both
    trainer.state.global_step = 7
    trainer.evaluate()
    assert [row["step"] for row in forecasts(trainer)] == [3, 6, 7], "two data sets are one evaluation"


def test_forecasts_are_in_the_event_files_of_tensorboard(fitted: Study, tokenizer: Any, tmp_path: Path) -> None:
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    folder = tmp_path / "runs"
    settings = {"report_to": "tensorboard", "eval_strategy": "steps", "eval_steps": 3}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TENSORBOARD_LOGGING_DIR", str(folder))
        trainer = train(tmp_path, tokenizer, TransformersForecast(fitted.root), **settings)
    events = reader.EventAccumulator(str(folder))
    events.Reload()
    assert {f"train/{name}" for name in (*LOGGED, "forecast/seconds")} <= set(events.Tags()["scalars"])
    points = [(e.step, e.value) for e in events.Scalars("train/forecast/task0")]
    assert points == [(row["step"], pytest.approx(row["forecast/task0"], rel=1e-6)) for row in forecasts(trainer)]
    assert [e.step for e in events.Scalars("train/loss")] == [2, 4, 6]


class Lines(TrainerCallback):
    """What a home-made logger does: a JSON line and a CSV row for everything that is logged."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        with (self.folder / "log.jsonl").open("a") as file:
            file.write(json.dumps({"step": state.global_step, **logs}) + "\n")
        with (self.folder / "log.csv").open("a", newline="") as file:
            csv.writer(file).writerows([state.global_step, name, value] for name, value in logs.items())


def test_loggers_of_ones_own_get_forecasts_whatever_their_place(fitted: Study, tokenizer: Any, tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    after.mkdir()
    train(tmp_path, tokenizer, Lines(before), TransformersForecast(fitted.root, every=3), Lines(after))
    for folder in (before, after):
        rows = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
        assert [row["step"] for row in rows if row.keys() >= LOGGED] == [3, 6]
        cells = list(csv.reader((folder / "log.csv").read_text().splitlines()))
        assert {name for step, name, _ in cells if step == "3"} >= LOGGED


class Broken(torch.nn.Module):
    """A layer that works in training and not in evaluation."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *given: Any, **named: Any) -> Any:
        if not self.training:
            raise RuntimeError("this layer only trains")
        return self.inner(*given, **named)


class Damage(TrainerCallback):
    """Puts the broken layer in before training starts."""

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        model.model.norm = Broken(model.model.norm)


def test_a_forecast_that_fails_is_said_once_and_training_goes_on(
    fitted: Study, tokenizer: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "benchcast"):
        trainer = train(tmp_path, tokenizer, Damage(), TransformersForecast(fitted.root, every=1))
    said = [r.getMessage() for r in caplog.records if r.name == "benchcast"]
    assert said == [
        "no forecast: RuntimeError: this layer only trains (training continues; this warning is shown once)"
    ]
    assert trainer.state.global_step == 6
    assert not forecasts(trainer)
    assert all(m.training for m in trainer.model.modules())


class Refusing(TrainerCallback):
    """A logger that fails on forecasts."""

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if "forecast/task0" in logs:
            raise ConnectionError("the tracking server is away")


def test_a_logger_that_fails_on_a_forecast_does_not_stop_training(
    fitted: Study, tokenizer: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = train(tmp_path, tokenizer, Refusing(), TransformersForecast(fitted.root, every=2))
    assert trainer.state.global_step == 6
    assert "ConnectionError: the tracking server is away" in caplog.text
    assert [row["step"] for row in trainer.state.log_history if "loss" in row] == [2, 4, 6]


def test_a_tokenizer_that_cannot_cover_the_texts_is_a_warning(
    fitted: Study, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({"<unk>": 0, "the": 1, "<bos>": 2, "<pad>": 3, "<eos>": 4}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.save(str(tmp_path / "words.json"))
    small = tokenizer_with_bos(tmp_path / "words.json")
    trainer = train(tmp_path, small, TransformersForecast(fitted.root, every=3))
    assert trainer.state.global_step == 6
    assert caplog.text.count("its vocabulary lacks part of the text, which became '<unk>'") == 1
    assert "24 of 24 texts are refused" in caplog.text


def test_without_a_tokenizer_the_way_to_give_one_is_named(
    fitted: Study, tokenizer: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train(tmp_path / "a", None, TransformersForecast(fitted.root, every=6))
    assert "no tokenizer; give it to the callback with tokenizer=…" in caplog.text
    given = train(tmp_path / "b", None, TransformersForecast(fitted.root, every=6, tokenizer=tokenizer))
    assert len(forecasts(given)) == 1


def test_a_negative_number_of_steps_is_an_error(fitted: Study) -> None:
    with pytest.raises(InputError, match="every=-1; a number of steps is needed"):
        TransformersForecast(fitted.root, every=-1)


def test_a_study_without_fits_is_an_error_before_training_starts(study: Study, tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="no fits yet; run `benchcast fit"):
        TransformersForecast(study.root)
    with pytest.raises(StudyError):
        TransformersForecast(tmp_path / "nowhere")


@pytest.fixture(scope="module")
def by_compute(fitted: Study) -> list[Fit]:
    """Fits that read no losses but the FLOPs of a run."""
    return fit_tasks(fitted, method="compute")


def test_flops_of_the_run_reach_the_forecast(by_compute: list[Fit], tokenizer: Any, tmp_path: Path) -> None:
    ran = train(tmp_path, tokenizer, TransformersForecast(by_compute, every=2, tokenizer=tokenizer), logging_steps=4)
    capabilities = [row["capability/task0"] for row in ran.state.log_history if "capability/task0" in row]
    assert capabilities == pytest.approx([capabilities[-1] + math.log10(step / 6) for step in (2, 4, 6)])
    assert 10 ** capabilities[-1] == pytest.approx(ran.state.total_flos)


def test_what_cannot_be_forecast_is_said_once_with_its_reason(
    by_compute: list[Fit], model: Any, tokenizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    attempts = Attempts(by_compute)
    with caplog.at_level(logging.WARNING, "benchcast"):
        for step in range(3):
            assert set(attempts.make(model, tokenizer, ModelInfo(f"step-{step}"))) == {"forecast/seconds"}
    assert [r.getMessage() for r in caplog.records] == [
        f"step-0: no forecast of {task}: no training FLOPs known" for task in ("task0", "task1")
    ]


def test_remarks_are_logged_when_they_change_their_kind(
    by_compute: list[Fit], model: Any, tokenizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    attempts = Attempts(by_compute[:1])
    low, high = by_compute[0].task_fit.range
    with caplog.at_level(logging.WARNING, "benchcast"):
        for step, log_flops in enumerate((low - 2, low - 1, high)):
            attempts.make(model, tokenizer, ModelInfo(f"step-{step}", flops=10**log_flops))
    (said,) = [r.getMessage() for r in caplog.records]
    assert said.startswith("step-0: forecast of task0: extrapolation: weaker than every training model, by")


def test_fits_that_are_older_than_their_study_are_told_of(
    fitted_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(fitted_folder, tmp_path / "study")
    study = Study.open(tmp_path / "study")
    study.add_scores([Score(study.models_with_losses()[0], "task1", 0.01)], force=True)
    with caplog.at_level(logging.WARNING, "benchcast"):
        TransformersForecast(study.root)
    assert "the study has changed since these fits were made: task1: scores of" in caplog.text
