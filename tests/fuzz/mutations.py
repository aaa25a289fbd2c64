"""Ways to spoil a file, each drawn with a seeded generator: bytes that change, and wrong content in good form."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from benchcast.study.atomic import hashed

Rng = np.random.Generator
Mutation = Callable[[bytes, Rng], bytes]
HOSTILE: list[Any] = [
    *(None, True, "", " ", "x", -1, 0, 7, -0.5, 1e308, 10**400, float("inf"), float("nan"), [], {}, [[]], {"a": 1}),
    *("\ud800", "a\0b", "x" * 2000, "../../x", "=1+1", "\x1b[31mred", "中文", [None], [1, "a"], 2**63, "1e999", "-3"),
]


def _span(blob: bytes, rng: Rng) -> tuple[int, int]:
    """A stretch of the file, short more often than long."""
    at = int(rng.integers(len(blob) + 1))
    return at, min(len(blob), at + int(2 ** rng.uniform(0, np.log2(len(blob) + 2))))


def flip_bit(blob: bytes, rng: Rng) -> bytes:
    if not blob:
        return b"\x01"
    at = int(rng.integers(len(blob)))
    return blob[:at] + bytes([blob[at] ^ (1 << int(rng.integers(8)))]) + blob[at + 1 :]


def change_byte(blob: bytes, rng: Rng) -> bytes:
    at = int(rng.integers(max(1, len(blob))))
    return blob[:at] + bytes([int(rng.integers(256))]) + blob[at + 1 :]


def delete(blob: bytes, rng: Rng) -> bytes:
    start, stop = _span(blob, rng)
    return blob[:start] + blob[stop:]


def insert(blob: bytes, rng: Rng) -> bytes:
    at = int(rng.integers(len(blob) + 1))
    return blob[:at] + rng.bytes(int(2 ** rng.uniform(0, 8))) + blob[at:]


def repeat(blob: bytes, rng: Rng) -> bytes:
    start, stop = _span(blob, rng)
    return blob[:stop] + blob[start:stop] + blob[stop:]


def zero(blob: bytes, rng: Rng) -> bytes:
    start, stop = _span(blob, rng)
    return blob[:start] + bytes(stop - start) + blob[stop:]


def truncate(blob: bytes, rng: Rng) -> bytes:
    return blob[: int(rng.integers(len(blob) + 1))]


def append(blob: bytes, rng: Rng) -> bytes:
    return blob + rng.bytes(int(rng.integers(1, 50)))


def replace_all(blob: bytes, rng: Rng) -> bytes:
    return rng.bytes(int(rng.integers(0, 200)))


BYTES: list[Mutation] = [
    *(flip_bit, flip_bit, flip_bit, change_byte, change_byte, delete, insert, repeat, zero, truncate, append),
    replace_all,
]


def hostile(rng: Rng) -> Any:
    """A value that a careless reader would trip over."""
    return HOSTILE[int(rng.integers(len(HOSTILE)))]


def change_value(document: Any, rng: Rng) -> Any:
    """The same document with one part replaced, removed or doubled."""
    places = list(_places(document))
    if not places:
        return hostile(rng)
    holder, key = places[int(rng.integers(len(places)))]
    what = rng.random()
    if what < 0.15:
        del holder[key]
    elif what < 0.3 and isinstance(holder, list):
        holder.insert(key, holder[key])
    elif what < 0.35 and isinstance(holder, dict):
        holder[f"{key}x"] = holder.pop(key)
    else:
        holder[key] = hostile(rng)
    return document


def _places(document: Any) -> Any:
    keys = document.keys() if isinstance(document, dict) else range(len(document)) if isinstance(document, list) else ()
    for key in list(keys):
        yield document, key
        yield from _places(document[key])


def json_value(blob: bytes, rng: Rng) -> bytes:
    return json.dumps(change_value(json.loads(blob), rng)).encode()


def jsonl_value(blob: bytes, rng: Rng) -> bytes:
    lines = blob.decode().splitlines()
    at = int(rng.integers(len(lines)))
    lines[at] = json.dumps(change_value(json.loads(lines[at]), rng))
    return ("\n".join(lines) + "\n").encode()


def csv_cell(blob: bytes, rng: Rng) -> bytes:
    rows = list(csv.reader(io.StringIO(blob.decode())))
    row = rows[int(rng.integers(len(rows)))]
    row[int(rng.integers(len(row)))] = str(hostile(rng)).replace("\ud800", "")
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    return out.getvalue().encode()


def toml_value(blob: bytes, rng: Rng) -> bytes:
    lines = blob.decode().splitlines()
    at = int(rng.choice([i for i, line in enumerate(lines) if "=" in line]))
    key = lines[at].partition("=")[0]
    value = json.dumps(hostile(rng)) if rng.random() < 0.9 else "[" * 50_000
    lines[at] = f"{key}= {value}"
    return "\n".join(lines).encode()


def npz_array(blob: bytes, rng: Rng) -> bytes:
    with np.load(io.BytesIO(blob)) as arrays:
        content = dict(arrays)
    name = list(content)[int(rng.integers(len(content)))]
    content[name] = change_array(content[name], rng)
    if rng.random() < 0.1:
        del content[name]
    out = io.BytesIO()
    (np.savez if rng.random() < 0.7 else np.savez_compressed)(out, **content)
    return out.getvalue()


def change_array(values: np.ndarray, rng: Rng) -> np.ndarray:
    """An array of another shape, type or content."""
    ways: list[Callable[[], Any]] = [
        lambda: values[:-1] if values.ndim else values,
        lambda: values[..., None],
        lambda: np.concatenate([values, values]) if values.ndim else np.stack([values, values]),
        lambda: values.astype(str),
        lambda: np.zeros_like(values),
        lambda: values.ravel()[:0],
        lambda: np.array(5),
        lambda: values[::-1] if values.ndim else values,
    ]
    if values.dtype.kind in "fiu":
        ways += [
            lambda: np.negative(values),
            lambda: values * 1e300,
            lambda: values + np.nan,
            lambda: values.astype(np.int8),
        ]
    with np.errstate(all="ignore"):
        return np.asarray(ways[int(rng.integers(len(ways)))]())


def craft_text(blob: bytes, rng: Rng) -> bytes:
    changed = change_value(json.loads(blob), rng)
    try:
        return json.dumps(hashed(changed) if isinstance(changed, dict) else changed).encode()
    except ValueError:  # what no hash can be made of
        return json.dumps(changed).encode()


def craft_arrays(blob: bytes, rng: Rng) -> bytes:
    arrays = load_arrays(blob)
    name = list(arrays)[int(rng.integers(len(arrays)))]
    changed = change_array(arrays[name], rng)
    if changed.dtype.kind in "fiu":
        arrays[name] = changed
    else:
        del arrays[name]
    return save_arrays({k: np.ascontiguousarray(v) for k, v in arrays.items()})
