"""Seeded mutations of a JSON reply: of its structure, or of its bytes."""

from __future__ import annotations

import json
import random
from typing import Any

# no log-probability, length or version among them
ODD: list[Any] = [
    "x", "", "-1.5", "\ud800", "\x1b[31m", "٣", "9" * 50, True, False, [], {}, [[]], {"a": {}}, [None],
    float("nan"), float("inf"), float("-inf"), -9999.0, 1e308, -1e308, 10**400, -(10**400), 5.5, None,
]  # fmt: skip
DEPTH = 100_000


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every node."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, child in children for place in places(child, (*at, key)))]


def change_value(reply: dict[str, Any], rng: random.Random) -> bytes:
    """A reply with one node replaced, removed, doubled or wrapped, or with a part nested beyond measure."""
    value = json.loads(json.dumps(reply))
    *path, last = rng.choice([place for place in places(value) if place])
    parent = value
    for key in path:
        parent = parent[key]
    kind = rng.choice(["replace", "replace", "replace", "remove", "double", "wrap", "shorten", "deep"])
    if kind == "replace":
        parent[last] = rng.choice(ODD)
    elif kind == "remove":
        del parent[last]
    elif kind == "double" and isinstance(parent, list):
        parent.insert(last, parent[last])
    elif kind == "shorten" and isinstance(parent[last], list):
        del parent[last][rng.randrange(len(parent[last]) + 1) :]
    elif kind == "deep":
        parent[last] = "DEEP"
    else:
        parent[last] = [parent[last]]
    text = json.dumps(value)
    return text.replace('"DEEP"', "[" * DEPTH + "]" * DEPTH).encode()


def damage(reply: dict[str, Any], rng: random.Random) -> bytes:
    """A reply with bytes changed, cut off, or put in front."""
    data = bytearray(json.dumps(reply).encode())
    kind = rng.choice(["change", "change", "cut", "insert", "replace"])
    if kind == "cut":
        return bytes(data[: rng.randrange(len(data))])
    if kind == "replace":
        return rng.choice([b"", b"null", b"[]", b"5", b'"x"', b"\xff\xfe", b"{}", b"<html>", b"9" * 5000, b"{}{}"])
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data))
        if kind == "change":
            data[at] = rng.randrange(256)
        else:
            data[at:at] = bytes([rng.randrange(256)])
    return bytes(data)
