"""JSON documents with a hash of their content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

HASH = "sha256"


def content_digest(document: Mapping[str, Any]) -> str:
    """SHA-256 of a document without its hash field: JSON with sorted keys, no white space, UTF-8."""
    rest = {k: v for k, v in document.items() if k != HASH}
    plain = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(plain.encode()).hexdigest()


def hashed(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with its hash added."""
    return {**document, HASH: content_digest(document)}


def hash_holds(document: Mapping[str, Any]) -> bool:
    """Whether the content matches its hash; true without one, as in documents of older versions."""
    return bool(document.get(HASH, "") in ("", content_digest(document)))
