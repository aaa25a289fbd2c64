"""Logs that are damaged or hostile give a study that reads, or one error that leaves nothing behind."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from log_files import LIGHT, NEW

import benchcast as bc

sys.path.append(str(Path(__file__).parents[1] / "fuzz"))
import mutations as m

OPTIONS = bc.ImportOptions({"pond_write": "exact_match,strict-match"})
CASES = {
    "samples": (NEW, "models__reed-c/samples_pond_sums_*", [*m.BYTES, *[m.jsonl_value] * 20]),
    "texts": (NEW, "models__reed-c/samples_pond_last_*", [*m.BYTES, *[m.jsonl_value] * 20]),
    "generations": (NEW, "models__reed-c/samples_pond_write_*", [*m.BYTES, *[m.jsonl_value] * 20]),
    "results": (NEW, "models__reed-c/results_*", [*m.BYTES, *[m.json_value] * 20]),
    "details": (LIGHT, "details/models/reed-c/*/details_sums*", [*m.BYTES]),
    "lighteval results": (LIGHT, "results/models/reed-c/results_*", [*m.BYTES, *[m.json_value] * 20]),
}


def spoil(place: Path, kind: str, count: int, seed: int) -> list[str]:
    """Spoil a file in many ways; what was raised that is no error of the package."""
    source, pattern, ways = CASES[kind]
    logs = place / "logs"
    shutil.copytree(source, logs, ignore=shutil.ignore_patterns("models__rush*", "models__sedge*"))
    (file,) = logs.glob(pattern)
    whole, rng, wrong = file.read_bytes(), np.random.default_rng(seed), []
    for i in range(count):
        way = ways[int(rng.integers(len(ways)))]
        file.write_bytes(way(whole, rng))
        folder = place / "study"
        items = 0.5 if i % 2 else 1.0
        try:
            study = bc.create_from_logs(folder, logs, items=items, options=OPTIONS).study
            assert len(study.texts)
            assert study.scores()
            assert all(np.isfinite(study.losses(name).nats).any() for name in study.models_with_losses())
        except bc.BenchcastError as error:
            if "\n" in str(error) or folder.exists():
                wrong.append(f"{way.__name__}: {error}")
        except Exception as error:  # noqa: BLE001
            wrong.append(f"{i} {way.__name__}: {type(error).__name__} {error}")
        shutil.rmtree(folder, ignore_errors=True)
    return wrong


@pytest.mark.parametrize("kind", CASES)
def test_spoiled_logs_give_a_study_or_one_line(tmp_path, kind):
    assert spoil(tmp_path, kind, 25, seed=0) == []
