"""Run Python code and write how often it read each file: python count_opens.py REPORT CODE

Python announces each file that it opens (`sys.addaudithook`). Arrow opens files by itself; its functions are watched by
the path that they are given: such a reading is counted as `footer of PATH`.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

read: Counter[str] = Counter()


def on_event(event: str, arguments: tuple[Any, ...]) -> None:
    """Count each `open` for reading; `os.open`, which has no mode, opens folders and locks."""
    if event == "open" and isinstance(arguments[0], str) and arguments[1] in ("r", "rb"):
        read[arguments[0]] += 1


def watched(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(where: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(where, str | os.PathLike):
            read[f"footer of {os.fspath(where)}"] += 1
        return function(where, *arguments, **options)

    return call


def main(report: str, code: str) -> None:
    for name in ("read_schema", "read_metadata", "read_table", "ParquetFile"):
        setattr(pq, name, watched(getattr(pq, name)))
    sys.addaudithook(on_event)
    try:
        exec(code, {"__name__": "__main__"})
    finally:
        Path(report).write_text(json.dumps(read))


if __name__ == "__main__":
    main(*sys.argv[1:])
