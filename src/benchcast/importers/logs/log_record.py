"""logs.json of a study from evaluation logs: which results files it was made from, and what was chosen."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchcast.errors import StudyError
from benchcast.messages import nan_to_none
from benchcast.study.atomic import write_text
from benchcast.study.reading import parse_json, read_utf8

NAME = "logs.json"


@dataclass(frozen=True, slots=True)
class LogRecord:
    """The results files of a study, and what was chosen when it was made."""

    files: Mapping[str, str]  # path of a results file below its folder → model as the harness names it
    names: Mapping[str, str]  # model as the harness names it → in the study
    metrics: Mapping[str, str]  # task → metric that is its score
    tokens_per_step: float = math.nan

    @classmethod
    def read(cls, root: Path) -> LogRecord:
        """The record of a study; an error if it was not made from logs, or by an older version."""
        path = root / NAME
        if not path.is_file():
            raise StudyError(
                f"{root}: exists and has no {NAME}, so it was not made from these logs by this version; "
                "`benchcast import losses` and `import scores` add logs, or take another folder for a new study"
            )
        content: Any = parse_json(read_utf8(path), str(path))
        parts = [content.get(key) if isinstance(content, dict) else None for key in ("files", "names", "metrics")]
        step = content.get("tokens_per_step") if isinstance(content, dict) else None
        maps = [p for p in parts if isinstance(p, dict) and all(isinstance(v, str) for v in p.values())]
        if len(maps) < len(parts) or not isinstance(step, int | float | None):
            raise StudyError(f"{path}: damaged; `benchcast import losses` and `import scores` add logs without it")
        return cls(files=maps[0], names=maps[1], metrics=maps[2], tokens_per_step=math.nan if step is None else step)

    def with_step(self, tokens_per_step: float) -> LogRecord:
        """The record with other training tokens per step, where they are known."""
        return self if math.isnan(tokens_per_step) else replace(self, tokens_per_step=tokens_per_step)

    def with_files(self, files: Mapping[str, str], names: Mapping[str, str]) -> LogRecord:
        """The record with further files and models."""
        return replace(self, files={**self.files, **files}, names={**self.names, **names})

    def write(self, root: Path) -> None:
        """Write logs.json into a study."""
        content = {
            "files": dict(self.files),
            "names": dict(self.names),
            "metrics": dict(self.metrics),
            "tokens_per_step": nan_to_none(self.tokens_per_step),
        }
        write_text(root / NAME, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
