"""The Lightning callback on a real Trainer, with its CSV and TensorBoard loggers."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from small import Rows, small_model

from benchcast.errors import InputError
from benchcast.study.study import Study

pl = pytest.importorskip("lightning.pytorch")
# Lightning speaks of workers, sanity and deprecations
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


class Module(pl.LightningModule):
    """A language model in Lightning's clothes."""

    def __init__(self, tokenizer: Any = None) -> None:
        super().__init__()
        self.model, self.tokenizer = small_model(), tokenizer

    def training_step(self, batch: Any, _: int) -> Any:
        return self.model(**batch).loss

    def validation_step(self, batch: Any, _: int) -> None:
        self.log("val_loss", self.model(**batch).loss)

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def train(folder: Path, module: Any, *callbacks: Any, loggers: Any = (), **settings: Any) -> Any:
    pl.seed_everything(1, verbose=False)
    trainer = pl.Trainer(
        default_root_dir=folder,
        max_steps=6,
        accelerator="cpu",
        callbacks=list(callbacks),
        logger=list(loggers) or False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **settings,
    )
    rows = torch.utils.data.DataLoader(Rows(), batch_size=4, shuffle=True)
    trainer.fit(module, rows, torch.utils.data.DataLoader(Rows(8), batch_size=4))
    return trainer


def test_forecasts_reach_every_logger_with_their_steps(fitted: Study, tokenizer: Any, tmp_path: Path) -> None:
    from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger

    from benchcast.callbacks import LightningForecast, forecast

    loggers = [CSVLogger(tmp_path, flush_logs_every_n_steps=1), TensorBoardLogger(tmp_path)]
    module = Module(tokenizer)
    train(tmp_path, module, LightningForecast(fitted.root, every=2), loggers=loggers)
    rows = list(csv.DictReader((Path(loggers[0].log_dir) / "metrics.csv").read_text().splitlines()))
    forecast_rows = [row for row in rows if row.get("forecast/task0")]
    assert [int(row["step"]) for row in forecast_rows] == [2, 4, 6]
    expected = forecast(module.model, tokenizer, fitted)["task0"]
    assert float(forecast_rows[-1]["forecast/task0"]) == pytest.approx(expected.accuracy, abs=1e-6)
    assert float(forecast_rows[-1]["forecast/task0_high"]) == pytest.approx(expected.high, abs=1e-6)
    assert float(forecast_rows[-1]["capability/task0"]) == pytest.approx(expected.capability, abs=1e-6)
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = reader.EventAccumulator(loggers[1].log_dir)
    events.Reload()
    assert [e.step for e in events.Scalars("forecast/task1")] == [2, 4, 6]


def test_training_with_forecasts_gives_bit_identical_weights(fitted: Study, tokenizer: Any, tmp_path: Path) -> None:
    from benchcast.callbacks import LightningForecast

    seen = []

    class Counting(LightningForecast):
        def _log(self, trainer: Any, pl_module: Any) -> None:
            super()._log(trainer, pl_module)
            seen.append(trainer.global_step)

    plain, watched = Module(), Module()
    settings = {"val_check_interval": 3, "check_val_every_n_epoch": None}
    train(tmp_path, plain, **settings)
    train(tmp_path, watched, Counting(fitted.root, tokenizer=tokenizer), **settings)
    assert seen == [3, 6], "after each validation, not after the one that tries it out"
    for a, b in zip(plain.parameters(), watched.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_forecast_that_fails_does_not_stop_training(
    fitted: Study, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from benchcast.callbacks import LightningForecast

    trainer = train(tmp_path, Module(), LightningForecast(fitted.root, every=1))
    assert trainer.global_step == 6
    assert caplog.text.count("no forecast: no tokenizer") == 1


def test_the_callback_is_that_of_the_lightning_in_use() -> None:
    from benchcast.callbacks import LightningForecast

    assert issubclass(LightningForecast, pl.Callback)


def test_fsdp2_on_two_processes_logs_the_forecast_of_the_gathered_weights(
    fitted: Study, tokenizer: Any, tmp_path: Path
) -> None:
    from benchcast.callbacks import forecast

    command = [sys.executable, str(Path(__file__).with_name("lightning_sharded.py")), str(fitted.root), str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = list(csv.DictReader((tmp_path / "log" / "metrics.csv").read_text().splitlines()))
    assert [int(row["step"]) for row in rows if row.get("capability/task0")] == [2, 4]
    model = small_model()
    before = forecast(model, tokenizer, fitted)["task0"].capability
    model.load_state_dict(torch.load(tmp_path / "weights.pt"))
    expected = forecast(model, tokenizer, fitted)
    assert expected["task0"].capability != pytest.approx(before, rel=1e-3), "it was trained"
    for task, expected_forecast in expected.items():
        assert float(rows[-1][f"capability/{task}"]) == pytest.approx(expected_forecast.capability, rel=1e-6)


def test_the_strategy_for_fsdp1_is_refused_before_training(fitted: Study, tokenizer: Any) -> None:
    """Its Trainer needs a GPU, so the strategy alone is real here."""
    from lightning.pytorch.strategies import FSDPStrategy

    from benchcast.callbacks import LightningForecast

    callback = LightningForecast(fitted.root, tokenizer=tokenizer)
    with pytest.raises(InputError, match=r"FSDPStrategy .* use ModelParallelStrategy with fully_shard"):
        callback.setup(SimpleNamespace(strategy=FSDPStrategy()), Module(), "fit")
