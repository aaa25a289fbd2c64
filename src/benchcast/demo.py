"""The study that ships inside the package: 225 small language models, trained from scratch for it.

Nine families with tokenizers and training mixtures of their own, five sizes, five checkpoints each; real
token losses on 650 generated texts and real scores on six skills. lab/zoo made it.
"""

from __future__ import annotations

import shutil
from importlib.resources import as_file, files
from pathlib import Path

from benchcast.storage.files import READ_ONLY
from benchcast.store import Study

MARK = ".benchcast-demo"


def copy_embedded(root: Path) -> Study:
    """A copy of the embedded study that may be written to."""
    with as_file(files("benchcast") / "embedded") as source:
        shutil.copytree(source, root, ignore=shutil.ignore_patterns(".lock", READ_ONLY))
    return Study.open(root)


def open_embedded() -> Study:
    """The embedded study where it lies; for reading only."""
    return Study.open(Path(str(files("benchcast") / "embedded")))
