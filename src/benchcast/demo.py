"""The embedded study: 225 small language models, trained from scratch for the package.

Nine families, each with its own tokenizer and training mixture, five sizes, five checkpoints each; token losses on
650 generated texts and scores on six skills. lab/zoo creates it.
"""

from __future__ import annotations

import shutil
from importlib.resources import as_file, files
from pathlib import Path

from benchcast.storage.files import READ_ONLY
from benchcast.store import Study

MARK = ".benchcast-demo"  # name of a file that marks a folder written by the demo


def copy_embedded(root: Path) -> Study:
    """Make a writable copy of the embedded study in the folder `root`."""
    with as_file(files("benchcast") / "embedded") as source:
        shutil.copytree(source, root, ignore=shutil.ignore_patterns(".lock", READ_ONLY))
    return Study.open(root)


def open_embedded() -> Study:
    """Open the embedded study in the package; it is read-only."""
    return Study.open(Path(str(files("benchcast") / "embedded")))
