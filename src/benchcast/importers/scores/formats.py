"""Formats of score files: each is recognised by its content, and read by a function of its own file.

A new format is one file beside this one, and one row in `FORMATS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchcast.errors import InputError
from benchcast.importers.scores.entries import ReaderOptions, ScoreEntry, ScoreFile
from benchcast.importers.scores.leaderboards import is_v1, is_v1_results, is_v2, read_v1, read_v1_results, read_v2
from benchcast.importers.scores.lm_eval import is_lighteval, read_lighteval, read_lm_eval
from benchcast.importers.scores.opencompass import is_summary, read_summary
from benchcast.importers.scores.tables import is_listed, is_long, read_listed, read_long, read_wide
from benchcast.importers.scores.trackers import is_export, read_export

PATTERNS = ("results_*.json", "summary_*.csv")
EARLY_RESULTS = "results.json"  # of lm-eval before 0.4.3
TABLE = (".csv", ".parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreFormat:
    """One format of score files."""

    name: str  # as `import scores` prints it
    endings: tuple[str, ...]  # of file names, in lower case
    matches: Callable[[Any], bool]  # of the header of a table, or of the document of a JSON file
    read: Callable[[ScoreFile, ReaderOptions], list[ScoreEntry]]


def remaining(head: object) -> bool:
    """Matches anything: the last format of an ending says what a file lacks that no format matches."""
    return True


# In the order in which they are tried; a format with a stricter test stands above those that would match as well.
FORMATS = (
    ScoreFormat(name="lighteval results", endings=(".json",), matches=is_lighteval, read=read_lighteval),
    ScoreFormat(
        name="Open LLM Leaderboard v1 results", endings=(".json",), matches=is_v1_results, read=read_v1_results
    ),
    ScoreFormat(name="lm-evaluation-harness results", endings=(".json",), matches=remaining, read=read_lm_eval),
    ScoreFormat(name="OpenCompass summary", endings=(".csv",), matches=is_summary, read=read_summary),
    ScoreFormat(name="long CSV", endings=(".csv",), matches=is_long, read=read_long),
    ScoreFormat(name="Open LLM Leaderboard v2 table", endings=TABLE, matches=is_v2, read=read_v2),
    ScoreFormat(name="Open LLM Leaderboard v1 table", endings=TABLE, matches=is_v1, read=read_v1),
    ScoreFormat(name="export of W&B, MLflow or TensorBoard", endings=(".csv",), matches=is_export, read=read_export),
    ScoreFormat(name="list of scores", endings=TABLE, matches=is_listed, read=read_listed),
    ScoreFormat(name="wide table", endings=TABLE, matches=remaining, read=read_wide),
)


def expand(sources: Sequence[Path | ScoreFile]) -> list[Path | ScoreFile]:
    """Replace each folder by the result and summary files in it."""
    files: list[Path | ScoreFile] = []
    for source in sources:
        if isinstance(source, ScoreFile) or not source.is_dir():
            files.append(source)
            continue
        inside = sorted(p for pattern in (*PATTERNS, EARLY_RESULTS) for p in source.rglob(pattern))
        if not inside:
            raise InputError(f"{source}: no {' or '.join(PATTERNS)} below this folder")
        files += inside
    return files


def read_score_file(source: Path | ScoreFile, options: ReaderOptions) -> tuple[str, list[ScoreEntry]]:
    """Read the scores of a file.

    Returns
    -------
    The name of its format, and its scores with the names used in the file.
    """
    file = source if isinstance(source, ScoreFile) else ScoreFile.read(source)
    ending = file.path.suffix.lower()
    form = next(f for f in FORMATS if ending in f.endings and f.matches(file.head))
    return form.name, form.read(file, options)
