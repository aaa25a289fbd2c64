"""Small studies that a cluster works on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benchcast.datasets import load_zoo
from benchcast.records import Text, TextSet
from benchcast.study.study import Study

ZOO = Path(__file__).parents[1] / "zoo" / "shipped"
MODELS = ("ash-0.5M", "cedar-0.5M")
Tree = Callable[[Path], dict[str, str]]


def until(ready: Callable[[], bool]) -> None:
    end = time.monotonic() + 200  # many times what an idle machine needs
    while not ready():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.02)


def make(root: Path, texts: int) -> Study:
    """A study of the first embedded texts, of which some have options: 60 are one portion of work, all 650 are two."""
    chosen = load_zoo().texts.texts[:texts]
    return Study.create(root, TextSet.of(with_options(t) if i % 3 == 0 else t for i, t in enumerate(chosen)))


def with_options(text: Text) -> Text:
    """The text with its answer backwards and twice as options; unchanged without an answer."""
    options = {text.answer[::-1], 2 * text.answer} - {text.answer}
    return replace(text, options=tuple(sorted(options))) if text.answer.strip() else text


def collect(root: Path, *models: str) -> list[object]:
    listed = root.parent / f"{root.name}.toml"
    row = '[[models]]\nmodel = "hf"\nfamily = "small"\nmodel_args = "pretrained={}"\n'
    listed.write_text("".join(row.format(ZOO / name) for name in models))
    return ["collect", root, "--models", listed]
