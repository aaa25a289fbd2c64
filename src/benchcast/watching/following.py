"""Follow a training run until it is stopped: check its folders at intervals and forecast each new checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchcast.collection import Report
from benchcast.store import Study, StudyLike
from benchcast.watching import Event, Watch, WatchedRun
from benchcast.watching.checkpoints import SETTLED


def watch(
    study: StudyLike,
    run: WatchedRun | str | Path,
    *,
    interval: float = 30.0,
    once: bool = False,
    on_model: Callable[[str], Report | None] = lambda model: None,
    on_wait: Callable[[], None] = lambda: None,
) -> Iterator[Event]:
    """Score each new checkpoint of a training run, add its losses to the study and forecast its scores.

    Parameters
    ----------
    study : an opened study or its folder; it has fits
    run : the run to follow, or its folder of checkpoints
    interval : seconds between two checks of the folders
    once : end after the checkpoints that are there now; otherwise the iterator does not end
    on_model : called with a model's name before it is scored; may return a progress callback
    on_wait : called before each pause

    Returns
    -------
    an iterator over events: the forecasts of a checkpoint, or the reason why it has none yet. A checkpoint that is
    still being written is waited for; all results are in the study, so that a new call continues
    """
    asked = (run if isinstance(run, WatchedRun) else WatchedRun(Path(run))).named()
    opened = Study.of(study)
    if asked.checkpoints is not None:
        opened.texts.require_texts("watch --checkpoints")
    watched = Watch(opened, asked, on_model)
    _ = watched.fits  # raises for a study without fits before the first checkpoint
    return _follow(watched, interval, on_wait, once=once)


def _follow(watched: Watch, interval: float, on_wait: Callable[[], None], *, once: bool) -> Iterator[Event]:
    looked_again = False
    while True:
        changing = False
        for event in watched.look():
            changing = changing or event.why == "still changing"
            yield event
        if not once:
            on_wait()
            time.sleep(interval)
        elif looked_again or not changing:
            return
        else:  # written a moment ago: check once more
            looked_again = True
            time.sleep(SETTLED + 0.1)
