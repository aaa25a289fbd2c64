"""Real experiment trackers: what the callback logs is read back through each tool's own interface."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from runs import LOGGED, forecasts, train

from benchcast.callbacks import TransformersForecast
from benchcast.study.study import Study

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]
History = dict[str, dict[int, float]]  # value by step, by the name that the tool shows
NAMES = (*sorted(LOGGED), "forecast/seconds")


@pytest.fixture
def trained(
    fitted: Study, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], list[dict[str, Any]]]:
    """Train with a forecast every third step; the forecasts that the Trainer itself keeps."""
    monkeypatch.chdir(tmp_path)

    def run(report_to: str) -> list[dict[str, Any]]:
        callback = TransformersForecast(fitted.root, every=3)
        forecast_rows = forecasts(train(tmp_path, tokenizer, callback, report_to=report_to, run_name="short"))
        assert [row["step"] for row in forecast_rows] == [3, 6]
        return forecast_rows

    return run


def same(history: History, forecast_rows: list[dict[str, Any]], prefix: str = "train/") -> None:
    """Every scalar of every forecast is in the tool, at its step and under its name."""
    for name in NAMES:
        expected = {row["step"]: pytest.approx(row[name], rel=1e-6) for row in forecast_rows}
        assert history[prefix + name] == expected, name


def test_tensorboard(trained: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "events"))
    forecast_rows = trained("tensorboard")
    events = EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    history = {name: {e.step: e.value for e in events.Scalars(name)} for name in events.Tags()["scalars"]}
    same(history, forecast_rows)


def test_weights_and_biases_offline(trained: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`wandb leet inspect` reads the run's file."""
    import wandb

    for name, value in {"MODE": "offline", "DIR": str(tmp_path), "SILENT": "true", "PROJECT": "forecasts"}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    forecast_rows = trained("wandb")
    wandb.finish()
    (run,) = (tmp_path / "wandb").glob("offline-run-*/run-*.wandb")
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(run)]
    exported = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60).stdout
    records = [json.loads(line) for line in exported.splitlines()]
    same(by_name([r["history"]["item"] for r in records if r["type"] == "history"]), forecast_rows)


def test_trackio(trained: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "trackio" not in sys.modules, "it reads the folder when it is imported"
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    forecast_rows = trained("trackio")
    import trackio
    from trackio.sqlite_storage import SQLiteStorage

    (run,) = trackio.Api().runs("huggingface")
    assert run.name == "short"
    same(by_name(SQLiteStorage.get_logs("huggingface", run.name, run_id=run.id)), forecast_rows)


def by_name(rows: list[dict[str, Any]]) -> History:
    """Values by the Trainer's step, by name, from rows of what was logged together."""
    history: History = {}
    for row in rows:
        for name, value in row.items():
            history.setdefault(name, {})[int(row["train/global_step"])] = value
    return history


def test_mlflow_server(trained: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow import MlflowClient

    with mlflow_server(tmp_path) as address:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        forecast_rows = trained("mlflow")
        client = MlflowClient(address)
        (experiment,) = client.search_experiments()
        (run,) = client.search_runs([experiment.experiment_id])
        assert run.info.run_name == "short"
        history = {
            n: {m.step: m.value for m in client.get_metric_history(run.info.run_id, n)} for n in run.data.metrics
        }
    same(history, forecast_rows, prefix="")


@contextmanager
def mlflow_server(folder: Path) -> Iterator[str]:
    """A tracking server with a database of its own; its address."""
    environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{folder}/runs.db", "--artifacts-destination", str(folder / "files")]
    with (
        (folder / "server.log").open("w") as log,
        subprocess.Popen(command, env=environment, stdout=log, stderr=log) as process,
    ):
        try:
            wait_for(f"http://127.0.0.1:{port}/health", process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def wait_for(address: str, process: subprocess.Popen[bytes]) -> None:
    """Return when the server answers."""
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.2)
    raise TimeoutError(f"no answer from {address}")
