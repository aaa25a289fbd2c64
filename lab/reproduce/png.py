"""Small PNG files: figures have few colours, so a palette says all that true colour does in a fraction of the bytes."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

SIGNATURE = b"\x89PNG\r\n\x1a\n"
PALETTE = 256
TRUE_COLOUR_WITH_ALPHA = b"\x08\x06\x00\x00\x00"
SUB = 1  # the filter that stores each byte as the difference to the pixel on its left


def shrink(png: bytes) -> bytes:
    """The same picture with a palette of 256 colours; a PNG of another kind than expected comes back as it is."""
    parts = list(_chunks(png))
    head = parts[0][1]
    width, height = struct.unpack(">II", head[:8])
    raw = np.frombuffer(zlib.decompress(b"".join(d for kind, d in parts if kind == b"IDAT")), np.uint8)
    if head[8:] != TRUE_COLOUR_WITH_ALPHA or len(raw) != height * (4 * width + 1):
        return png
    lines = raw.reshape(height, 4 * width + 1)
    if (lines[:, 0] != SUB).any():
        return png
    pixels = np.cumsum(lines[:, 1:].reshape(height, width, 4), axis=1, dtype=np.uint8)
    if (pixels[..., 3] != 255).any():
        return png
    palette, index = _quantise(pixels[..., :3])
    rows = np.hstack([np.zeros((height, 1), np.uint8), index])  # filter 0: palette numbers have no gradients
    out = [
        (b"IHDR", struct.pack(">II", width, height) + b"\x08\x03\x00\x00\x00"),
        *((kind, data) for kind, data in parts if kind == b"pHYs"),
        (b"PLTE", palette.tobytes()),
        (b"IDAT", zlib.compress(rows.tobytes(), 9)),
        (b"IEND", b""),
    ]
    return SIGNATURE + b"".join(_chunk(kind, data) for kind, data in out)


def _quantise(pixels: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """The most frequent colours, and for each pixel the number of the nearest of them."""
    height, width, _ = pixels.shape
    packed = pixels.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32)
    colours, inverse, counts = np.unique(packed, return_inverse=True, return_counts=True)
    rgb = np.stack([colours >> 16, (colours >> 8) & 255, colours & 255], axis=1).astype(np.float64)
    kept = rgb[np.argsort(-counts, kind="stable")[:PALETTE]]
    distance = (kept**2).sum(axis=1) - 2 * rgb @ kept.T
    nearest = np.argmin(distance, axis=1).astype(np.uint8)
    return kept.astype(np.uint8), nearest[inverse].reshape(height, width)


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(SIGNATURE)
    while at < len(png):
        (size,) = struct.unpack(">I", png[at : at + 4])
        yield png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        at += 12 + size


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
