"""Repeat a step many times: a plain loop, and on CUDA a recorded graph that is replayed.

A step of the descent has a few hundred small kernels. Launching them one by one from Python takes longer than running
them. A recorded step is launched as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from benchcast.devices import Array

# Arrays, in dicts and NamedTuples that may be nested.
State = TypeVar("State")  # everything that changes from step to step
Kept = TypeVar("Kept")  # values to keep of a step


def repeat(
    step: Callable[[State], tuple[State, Kept]], state: State, times: int, *, record: bool = False
) -> Iterator[tuple[State, Kept]]:
    """The state after each step, and the values to keep.

    With `record` (CUDA only) the step must not read values back to Python, and its shapes and kernels must not
    change. A state is valid until the next one is requested.
    """
    if record and times > 1:
        yield from _replayed(step, state, times)
        return
    for _ in range(times):
        state, kept = step(state)
        yield state, kept


def _replayed(step: Callable[[State], tuple[State, Kept]], start: State, times: int) -> Iterator[tuple[State, Kept]]:
    import torch

    state = _cloned(start)
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        step(state)  # once outside the recording, in which libraries cannot allocate workspaces
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        after, kept = step(state)
        for x, new in zip(_arrays(state), _arrays(after), strict=True):
            x.copy_(new)
    for _ in range(times):
        graph.replay()
        yield state, _cloned(kept)


def _arrays(record: Any) -> list[Array]:
    """The arrays of a record, in order."""
    if not isinstance(record, dict | tuple):
        return [record]
    parts = record.values() if isinstance(record, dict) else record
    return [x for part in parts for x in _arrays(part)]


def _cloned(record: Any) -> Any:
    """The same record with copies of its arrays."""
    if isinstance(record, dict):
        return {name: _cloned(part) for name, part in record.items()}
    return type(record)(*map(_cloned, record)) if isinstance(record, tuple) else record.clone()
