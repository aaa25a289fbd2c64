"""Checkpoints of a training run on disk: which there are, and whether they are whole.

A checkpoint counts once everything a forecast needs is complete by its own account: a tensor file as long as
its header says, every shard that the index names, JSON that can be read to its end.
"""

from __future__ import annotations

import json
import math
import re
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchcast.errors import InputError

STEP = re.compile(r"(?:^|[-_=@.])(\d+)$")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "spiece.model", "tokenizer_config.json")
INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
SINGLE = ("model.safetensors", "pytorch_model.bin")
LONGEST_HEADER = 100 << 20
SETTLED = 1.0  # seconds without a change


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run had come at a checkpoint; NaN where nothing says so."""

    params: float = math.nan
    tokens: float = math.nan
    flops: float = math.nan


def step_of(name: str) -> int | None:
    """The number at the end of a name: `checkpoint-500`, `step_500`, `run@500`; None where there is none."""
    found = STEP.search(name)
    return int(found[1]) if found else None


def find_checkpoints(folder: Path) -> list[Path]:
    """Folders named by their step, in the order of steps."""
    named = [(step_of(p.name), p) for p in folder.iterdir() if p.is_dir() and not p.name.startswith((".", "tmp"))]
    return [p for _, p in sorted((step, p) for step, p in named if step is not None)]


def signature(checkpoint: Path) -> tuple[tuple[str, int, int], ...]:
    """Names, sizes and times of all files: two looks that differ mean that it was written to."""
    stats = [(p.name, p.stat()) for p in sorted(checkpoint.iterdir()) if p.is_file()]
    return tuple((name, s.st_size, s.st_mtime_ns) for name, s in stats)


def lacking(checkpoint: Path, *, own_tokenizer: bool = True) -> str:
    """What is not there yet, in words; empty for a checkpoint that is whole."""
    told = _json_lacking(checkpoint / "config.json") or _weights_lacking(checkpoint)
    if told:
        return told
    if own_tokenizer and not has_tokenizer(checkpoint):
        return "no tokenizer yet; give --tokenizer PATH if it lies elsewhere"
    if (checkpoint / "training_args.bin").exists():  # the Trainer writes its state last
        told = _json_lacking(checkpoint / "trainer_state.json")
    return told or _unsettled(checkpoint)


def has_tokenizer(folder: Path) -> bool:
    """Whether a folder holds a tokenizer."""
    return any((folder / name).is_file() for name in TOKENIZER_FILES)


def progress_of(checkpoint: Path) -> Progress:
    """Parameters from the tensors' shapes; tokens and FLOPs from the Trainer's state, where it counted them."""
    sizes = [_parameters(p) for p in checkpoint.glob("*.safetensors")]
    state: dict[str, Any] = {}
    path = checkpoint / "trainer_state.json"
    if path.is_file() and not _json_lacking(path):
        state = json.loads(path.read_text(encoding="utf-8"))

    def counted(key: str) -> float:
        value = state.get(key) if isinstance(state, dict) else None
        return float(value) if isinstance(value, (int, float)) and value > 0 else math.nan

    return Progress(float(sum(sizes)) or math.nan, counted("num_input_tokens_seen"), counted("total_flos"))


def _json_lacking(path: Path) -> str:
    if not path.is_file():
        return f"no {path.name} yet"
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        return f"{path.name} is not whole yet"
    return ""


def _weights_lacking(checkpoint: Path) -> str:
    files: Sequence[Path] = [checkpoint / name for name in SINGLE if (checkpoint / name).is_file()][:1]
    for index in (checkpoint / name for name in INDEXES):
        if not files and index.is_file():
            if _json_lacking(index):
                return f"{index.name} is not whole yet"
            files = [checkpoint / name for name in _shards(index)]
    if not files:
        return "no weights yet"
    return next((told for told in map(_file_lacking, files) if told), "")


def _shards(index: Path) -> list[str]:
    """The files that an index of weights names; they lie beside it."""
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        beside = all(Path(name).name == name for name in names)
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{index}: no index of weights: it has no weight_map with names of files") from error
    if not beside:
        raise InputError(f"{index}: names files outside its folder")
    return names


def _file_lacking(path: Path) -> str:
    if not path.is_file():
        return f"no {path.name} yet"
    if path.suffix != ".safetensors":
        return "" if zipfile.is_zipfile(path) else f"{path.name} is not whole yet"
    header, start = _header(path)
    if header is None:
        return f"{path.name} is not whole yet"
    ends = [t["data_offsets"][1] for t in header.values()]
    size, needed = path.stat().st_size, start + max(ends, default=0)
    return "" if size >= needed else f"{path.name} has {size:,} of {needed:,} bytes"


def _header(path: Path) -> tuple[dict[str, Any] | None, int]:
    """The tensors of a file by name and where its data starts; None while the file is too short to tell."""
    with path.open("rb") as file:
        first = file.read(8)
        length = int.from_bytes(first, "little")
        if len(first) == 8 and length > LONGEST_HEADER:
            raise InputError(f"{path}: no safetensors file: its header would be {length:,} bytes long")
        blob = file.read(length)
    if len(first) < 8 or len(blob) < length:
        return None, 0
    try:
        tensors = {name: t for name, t in json.loads(blob).items() if name != "__metadata__"}
        whole = all(isinstance(n, int) for t in tensors.values() for n in (*t["shape"], t["data_offsets"][1]))
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        raise InputError(f"{path}: no safetensors file: its header describes no tensors") from error
    if not whole:
        raise InputError(f"{path}: no safetensors file: its header has sizes that are no whole numbers")
    return tensors, 8 + length


def _parameters(path: Path) -> int:
    header, _ = _header(path)
    return sum(math.prod(t["shape"]) for t in (header or {}).values())


def _unsettled(checkpoint: Path) -> str:
    newest = max(when for _, _, when in signature(checkpoint)) / 1e9
    return "still changing" if 0 <= time.time() - newest < SETTLED else ""
