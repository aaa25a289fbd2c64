"""A synthetic study with fits, a tokenizer of bytes and small models with dropout, so that random states matter."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")
pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from small import TOKENIZER, small_model, tokenizer_with_bos

from benchcast.forecasts.fit import fit_tasks
from benchcast.study.study import Study
from synthetic import World, write_study


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def fitted_folder(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The synthetic world with its fits; not to be written to."""
    study = write_study(world, tmp_path_factory.mktemp("fitted") / "study")
    for fit in fit_tasks(study, method="label-token"):
        fit.save(study.fit_folder(fit.task))
    return study.root


@pytest.fixture(scope="session")
def fitted(fitted_folder: Path) -> Study:
    return Study.open(fitted_folder)


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    return tokenizer_with_bos(TOKENIZER)


@pytest.fixture
def model() -> Any:
    return small_model()
