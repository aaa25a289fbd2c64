"""Stored data that changed on the disk is found, and files that claim too much are refused before they are read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchcast.collection.shards import ShardStore
from benchcast.errors import BenchcastError, InputError, StudyError
from benchcast.study import feature_files
from benchcast.study.loss_files import read_parquet
from benchcast.study.parquet import SEAL


def flips(blob: bytes, count: int, seed: int = 0):
    """Copies of a file, each with one bit flipped."""
    rng = np.random.default_rng(seed)
    for at in rng.integers(len(blob), size=count):
        copy = bytearray(blob)
        copy[at] ^= 1 << int(rng.integers(8))
        yield bytes(copy)


@pytest.fixture
def stored(study, world) -> Path:
    return study.losses_path(world.models[0].model)


def content(study, world):
    """Whose losses the study's first file holds, and the numbers of it and of the features."""
    (name,) = set(study.models_with_losses()) - {x.model for x in world.losses[1:]}
    losses, features = study.losses(name), study.features()
    assert features is not None
    nats = np.nan_to_num(losses.nats, nan=-1.0)
    numbers = (losses.counts, losses.edges, nats, features.edges, features.values)
    return name, losses.about, features.scorer, [x.tolist() for x in numbers]


@pytest.mark.parametrize(
    ("file", "half", "share"),
    [
        ("losses/family0-1M@2B.parquet", False, 0.93),
        ("losses/family0-1M@2B.parquet", True, 0.93),
        ("features/synthetic/features.npy", False, 0.75),
        ("features/synthetic/edges.npy", False, 0.75),
        ("features/synthetic/meta.json", False, 0.75),
    ],
)
def test_a_flipped_bit_is_found_or_changes_nothing(study, world, file, half, share):
    study.add_losses(world.losses[:1], force=True, half=half)
    path, right, refused = study.root / file, content(study, world), 0
    count = 150 if "losses" in file else 40
    for spoiled in flips(path.read_bytes(), count):
        path.write_bytes(spoiled)
        try:
            assert content(study, world) == right
        except BenchcastError as error:
            refused += "losses" in file or "damaged" in str(error)
    assert refused > share * count


# ---- losses


def test_every_page_of_a_losses_file_has_a_checksum(stored, world):
    blob = bytearray(stored.read_bytes())
    at = pq.ParquetFile(stored).metadata.row_group(0).column(2).data_page_offset
    blob[at + 60] ^= 1
    stored.write_bytes(bytes(blob))
    with pytest.raises(InputError, match="damaged: it does not match its hash"):
        read_parquet(stored, world.texts)
    stored.write_bytes(bytes(blob).replace(b"benchcast-seal", b"benchcast-deal"))
    with pytest.raises(InputError, match=r"not a complete Parquet file \(.*CRC"):
        read_parquet(stored, world.texts)


def test_losses_written_without_checksums_still_load(stored, world, study):
    table = pq.read_table(stored)
    about = {k: v for k, v in table.schema.metadata.items() if k != SEAL.encode()}
    pq.write_table(table.replace_schema_metadata(about), stored)
    assert study.losses(world.models[0].model).nats.tolist() == world.losses[0].nats.astype(np.float32).tolist()


def test_losses_that_another_program_wrote_anew_are_read_as_its_own(stored, world):
    table = pq.read_table(stored)
    nats = [[x + 0.25 for x in row] for row in table["nats"].to_pylist()]
    pq.write_table(table.set_column(2, "nats", pa.array(nats, pa.list_(pa.float32()))), stored)
    assert read_parquet(stored, world.texts).nats[0] == pytest.approx(world.losses[0].nats[0] + 0.25)


def test_a_losses_file_under_the_name_of_another_model_is_an_error(study, world):
    one, two = (study.losses_path(m.model) for m in world.models[:2])
    two.unlink()
    shutil.copy(one, two)
    with pytest.raises(StudyError, match="holds losses of model"):
        study.models_with_losses()


# ---- features


def test_features_written_without_hashes_still_load(study, world):
    meta = study.root / "features" / "synthetic" / "meta.json"
    said = json.loads(meta.read_text())
    meta.write_text(json.dumps({k: said[k] for k in ("scorer", "texts", "shape", "dtype", "benchcast")}))
    stored = study.features()
    assert (stored.values == world.features).all()
    assert (stored.edges == world.edges).all()


@pytest.mark.parametrize(
    "change",
    [
        lambda values, edges: (values[:-1], edges),
        lambda values, edges: (values, edges[:-1]),
        lambda values, edges: (values[:, :0], edges),
        lambda values, edges: (values[:, 0], edges),
        lambda values, edges: (values.astype(np.int32), edges),
        lambda values, edges: (values, edges[::-1]),
        lambda values, edges: (values, edges.astype(np.float64)),
        lambda values, edges: (values, edges + 1),
        lambda values, edges: (values, edges[:, None]),
    ],
)
def test_features_that_do_not_fit_the_texts_are_one_line(study, world, change):
    folder = study.root / "features" / "synthetic"
    meta = {"scorer": "synthetic", "texts": study.texts.digest}
    feature_files.fill_folder(folder, *change(world.features, world.edges), meta=meta)
    with pytest.raises(StudyError, match="synthetic: damaged"):
        study.features()


# ---- shards of an unfinished run

COUNTS = np.array([3, 0, 2])
BACKEND_LINE = json.dumps({"about": {}, "context": 9})


def unfinished(folder: Path) -> Path:
    shard_store = ShardStore(folder, {"a": "b"}, COUNTS)
    shard_store.take(
        BACKEND_LINE, {0: np.arange(3, dtype=np.float32), 1: np.zeros(0, np.float32), 2: np.ones(2, np.float32)}
    )
    shard_store.flush()
    (shard,) = folder.glob("*.npz")
    return shard


def test_a_damaged_shard_is_removed_and_its_texts_are_done_again(tmp_path):
    shard = unfinished(tmp_path / "m")
    whole = shard.read_bytes()
    right = {i: rows.tolist() for i, rows in ShardStore(tmp_path / "m", {"a": "b"}, COUNTS).results()}
    assert right == {0: [0, 1, 2], 1: [], 2: [1, 1]}
    again = 0
    for spoiled in (b"", whole[:-40], whole[:100], *flips(whole, 25)):
        shutil.rmtree(tmp_path / "m")
        unfinished(tmp_path / "m").write_bytes(spoiled)
        shard_store = ShardStore(tmp_path / "m", {"a": "b"}, COUNTS)
        stored = {i: rows.tolist() for i, rows in shard_store.results()}
        assert (
            stored == right
            if shard_store.backend_line == BACKEND_LINE and shard_store.done
            else not shard_store.done or shard_store.backend_line != BACKEND_LINE
        )
        again += not shard_store.done
    assert again > 10


@pytest.mark.parametrize(
    "change",
    [
        {"texts": np.array([0, 1, 7])},
        {"texts": np.array([0, 0, 2])},
        {"texts": np.array([0.0, 1.0, 2.0])},
        {"texts": np.array([[0, 1, 2]])},
        {"texts": np.array([-1, 1, 2])},
        {"counts": np.array([3, 0, 1])},
        {"counts": np.array([-3, 0, 8])},
        {"counts": np.array([3, 0])},
        {"rows": np.zeros(4, np.float32)},
        {"rows": np.full(5, np.inf, np.float32)},
        {"rows": np.array(list("abcde"))},
        {"rows": np.zeros((5, 2, 2), np.float32)},
        {"made": np.array([1, 2])},
        {"made": np.array(7)},
        {"rows": None},
    ],
)
def test_a_shard_of_other_texts_does_not_count(tmp_path, change):
    shard = unfinished(tmp_path / "m")
    with np.load(shard) as arrays:
        content = {**arrays, **change}
    np.savez(shard, **{k: v for k, v in content.items() if v is not None})
    shard_store = ShardStore(tmp_path / "m", {"a": "b"}, COUNTS)
    assert (shard_store.done, list(shard_store.results())) == (set(), [])
