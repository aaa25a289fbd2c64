"""Find the checkpoints of a training run on disk and check whether they are complete.

A checkpoint is complete if every file that a forecast needs is: tensor files are as long as their headers state, all
shards of the index exist, and JSON files can be parsed.
"""

from __future__ import annotations

import json
import math
import re
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchcast.errors import InputError
from benchcast.records import ModelInfo

STEP = re.compile(r"(?:^|[-_=@.])(\d+)$")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "spiece.model", "tokenizer_config.json")
INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
SINGLE = ("model.safetensors", "pytorch_model.bin")
LONGEST_HEADER = 100 << 20
SETTLED = 1.0  # seconds without a change after which a checkpoint counts as written


def step_of(name: str) -> int | None:
    """The number at the end of a name: `checkpoint-500`, `step_500`, `run@500`; None if there is none."""
    match = STEP.search(name)
    return int(match[1]) if match else None


def find_checkpoints(folder: Path) -> list[Path]:
    """Folders whose names end in a step, sorted by step."""
    named = [(step_of(p.name), p) for p in folder.iterdir() if p.is_dir() and not p.name.startswith((".", "tmp"))]
    return [p for _, p in sorted((step, p) for step, p in named if step is not None)]


def signature(checkpoint: Path) -> tuple[tuple[str, int, int], ...]:
    """Names, sizes and modification times of all files; it changes when the checkpoint is written to."""
    stats = [(p.name, p.stat()) for p in sorted(checkpoint.iterdir()) if p.is_file()]
    return tuple((name, s.st_size, s.st_mtime_ns) for name, s in stats)


def lacking(checkpoint: Path, *, own_tokenizer: bool = True) -> str:
    """The missing part of a checkpoint as a message; empty if it is complete."""
    missing = _json_lacking(checkpoint / "config.json") or _weights_lacking(checkpoint)
    if missing:
        return missing
    if own_tokenizer and not has_tokenizer(checkpoint):
        return "no tokenizer yet; give --tokenizer PATH if it is elsewhere"
    if (checkpoint / "training_args.bin").exists():  # the Trainer writes its state last
        missing = _json_lacking(checkpoint / "trainer_state.json")
    if missing:
        return missing
    newest = max(when for _, _, when in signature(checkpoint)) / 1e9
    return "still changing" if 0 <= time.time() - newest < SETTLED else ""


def has_tokenizer(folder: Path) -> bool:
    """Whether a folder holds a tokenizer."""
    return any((folder / name).is_file() for name in TOKENIZER_FILES)


def progress_of(checkpoint: Path) -> ModelInfo:
    """Parameters from the tensors' shapes; tokens and FLOPs from the Trainer's state if it counts them, else NaN."""
    headers = [_header(path)[0] or {} for path in checkpoint.glob("*.safetensors")]
    params = sum(math.prod(tensor["shape"]) for header in headers for tensor in header.values())
    state: dict[str, Any] = {}
    path = checkpoint / "trainer_state.json"
    if path.is_file() and not _json_lacking(path):
        state = json.loads(path.read_text(encoding="utf-8"))

    def counted(key: str) -> float:
        value = state.get(key) if isinstance(state, dict) else None
        return float(value) if isinstance(value, (int, float)) and value > 0 else math.nan

    tokens, flops = counted("num_input_tokens_seen"), counted("total_flos")
    return ModelInfo("", params=float(params) or math.nan, tokens=tokens, flops=flops)


def _json_lacking(path: Path) -> str:
    if not path.is_file():
        return f"no {path.name} yet"
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        return f"{path.name} is incomplete"
    return ""


def _weights_lacking(checkpoint: Path) -> str:
    files: Sequence[Path] = [checkpoint / name for name in SINGLE if (checkpoint / name).is_file()][:1]
    for index in (checkpoint / name for name in INDEXES):
        if not files and index.is_file():
            if _json_lacking(index):
                return f"{index.name} is incomplete"
            files = [checkpoint / name for name in _shards(index)]
    if not files:
        return "no weights yet"
    return next((missing for missing in map(_file_lacking, files) if missing), "")


def _shards(index: Path) -> list[str]:
    """The files that an index of weights names; InputError if one is outside its folder."""
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        beside = all(Path(name).name == name for name in names)
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{index}: not an index of weights: it has no weight_map with file names") from error
    if not beside:
        raise InputError(f"{index}: names files outside its folder")
    return names


def _file_lacking(path: Path) -> str:
    if not path.is_file():
        return f"no {path.name} yet"
    if path.suffix != ".safetensors":
        return "" if zipfile.is_zipfile(path) else f"{path.name} is incomplete"
    header, start = _header(path)
    if header is None:
        return f"{path.name} is incomplete"
    ends = [t["data_offsets"][1] for t in header.values()]
    size, needed = path.stat().st_size, start + max(ends, default=0)
    return "" if size >= needed else f"{path.name} has {size:,} of {needed:,} bytes"


def _header(path: Path) -> tuple[dict[str, Any] | None, int]:
    """The tensors of a file by name and the offset of its data; None while the header is incomplete."""
    with path.open("rb") as file:
        first = file.read(8)
        length = int.from_bytes(first, "little")
        if len(first) == 8 and length > LONGEST_HEADER:
            raise InputError(f"{path}: not a safetensors file: its header would be {length:,} bytes long")
        blob = file.read(length)
    if len(first) < 8 or len(blob) < length:
        return None, 0
    try:
        tensors = {name: t for name, t in json.loads(blob).items() if name != "__metadata__"}
        valid = all(isinstance(n, int) for t in tensors.values() for n in (*t["shape"], t["data_offsets"][1]))
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        raise InputError(f"{path}: not a safetensors file: its header describes no tensors") from error
    if not valid:
        raise InputError(f"{path}: not a safetensors file: its header has sizes that are not integers")
    return tensors, 8 + length
