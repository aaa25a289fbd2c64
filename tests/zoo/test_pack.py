"""Results of training runs become a study."""

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

from lab.zoo.data import validation
from lab.zoo.one import text_set_hash
from lab.zoo.pack import DIMS, pack, write_curves
from lab.zoo.recipes import EMBEDDED
from lab.zoo.results import save_arrays, tar_folder
from lab.zoo.skills import SKILLS

ITEMS = 2000
RUNS = {("ash", "0.5M"): 0.0, ("oak-a", "0.5M"): 0.25, ("scorer", "16M"): 0.5}  # what is added to each loss


def halves() -> tuple[np.ndarray, np.ndarray]:
    """Two tokens for each text: their counts and bounds."""
    lengths = [len(str(row["text"]).encode()) for row in validation()]
    return np.full(len(lengths), 2), np.concatenate([np.array([0, n // 2, n], np.int32) for n in lengths])


def run_arrays(family: str, size: str, added: float) -> dict[str, np.ndarray]:
    counts, bounds = halves()
    about = {
        "family": family, "size": size, "params": 500_000, "skills": list(SKILLS), "items": ITEMS, "tokenizer": family,
        "tokenizer_sha256": family, "texts_sha256": text_set_hash(EMBEDDED), "torch": "2.13.0",
    }  # fmt: skip
    right = np.arange(2 * len(SKILLS)).reshape(2, -1) * 100
    return {
        "about": np.frombuffer(json.dumps(about).encode(), np.uint8),
        "tokens": np.array([12_000_000, 24_000_000]),
        "flops": np.array([1.0e14, 2.0e14]),
        "nats": np.stack([np.full(counts.sum(), x + added, np.float16) for x in (2.0, 1.0)]),
        "counts": counts,
        "bounds": bounds,
        "right": right,
        "right_even": right // 2,
        "curve": np.linspace(5, 1, 8, dtype=np.float32),
    }


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    for (family, size), added in RUNS.items():
        save_arrays(folder / "runs" / f"{family}-{size}.npz", run_arrays(family, size, added))
    tar_folder(folder / "runs", [f"{family}-{size}.npz" for family, size in RUNS], folder / "zoo-small.tar")
    counts, bounds = halves()
    states = np.random.default_rng(0).normal(size=(counts.sum(), DIMS + 6)).astype(np.float16)
    for part, features in enumerate(np.array_split(states, 2)):
        save_arrays(folder / f"scorer-{part}.npz", {"features": features, "counts": counts, "bounds": bounds})
    return folder


def test_each_checkpoint_of_a_run_is_a_model_of_the_study(results, tmp_path):
    study = pack(results, tmp_path / "study")
    assert study.models_with_losses() == ["ash-0.5M@12.0M", "ash-0.5M@24.0M", "oak-a-0.5M@12.0M", "oak-a-0.5M@24.0M"]
    losses = study.losses("oak-a-0.5M@24.0M")
    assert set(losses.nats.tolist()) == {1.25}
    assert len(losses.nats) == 2 * len(validation())
    assert losses.about["backend_version"] == "torch 2.13.0"
    (score,) = [s for s in study.scores() if (s.model, s.task) == ("ash-0.5M@24.0M", next(iter(SKILLS)))]
    assert (score.accuracy, score.n_items, score.right_even) == (100 * len(SKILLS) / ITEMS, ITEMS, 50 * len(SKILLS))
    features = study.features()
    assert features.values.shape == (2 * len(validation()), DIMS)
    assert study.dataset().nats.shape[0] == 4


def test_runs_on_other_texts_are_refused(results, tmp_path):
    changed = tmp_path / "results"
    changed.mkdir()
    arrays = run_arrays("ash", "0.5M", 0.0)
    about = json.loads(arrays["about"].tobytes()) | {"texts_sha256": "other"}
    buffer = io.BytesIO()
    np.savez(buffer, **(arrays | {"about": np.frombuffer(json.dumps(about).encode(), np.uint8)}))
    with tarfile.open(changed / "zoo-small.tar", "w") as tar:
        entry = tarfile.TarInfo("ash-0.5M.npz")
        entry.size = buffer.tell()
        tar.addfile(entry, io.BytesIO(buffer.getvalue()))
    with pytest.raises(AssertionError, match=r"ash-0\.5M saw other texts"):
        pack(changed, tmp_path / "study")


def test_curves_have_every_fourth_point_of_each_run(results, tmp_path):
    write_curves(results, tmp_path / "curves.csv")
    lines = (tmp_path / "curves.csv").read_text().splitlines()
    assert lines[:2] == ["run,tokens,loss", "ash-0.5M,12000000,3.2857"]
    assert len(lines) == 1 + 2 * 2
