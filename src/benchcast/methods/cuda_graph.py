"""Repeat a step many times: a plain loop, and on CUDA a recorded graph that is replayed.

A step of the descent has a few hundred small kernels. Launching them one by one from Python takes longer than running
them. A recorded step is launched as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from benchcast.devices import Array

State = dict[str, dict[str, Array]]  # everything that changes from step to step
Shot = dict[str, Array]  # values to keep of a step
Step = Callable[[State], tuple[State, Shot]]


def repeat(step: Step, state: State, times: int, *, record: bool = False) -> Iterator[tuple[State, Shot]]:
    """The state after each step, and the values to keep.

    With `record` (CUDA only) the step must not read values back to Python, and its shapes and kernels must not
    change. A state is valid until the next one is requested.
    """
    if record and times > 1:
        yield from _replayed(step, state, times)
        return
    for _ in range(times):
        state, shot = step(state)
        yield state, shot


def _replayed(step: Step, start: State, times: int) -> Iterator[tuple[State, Shot]]:
    import torch

    state = {group: {name: x.clone() for name, x in arrays.items()} for group, arrays in start.items()}
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        step(state)  # once outside the recording, in which libraries cannot allocate workspaces
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        after, shot = step(state)
        for group, arrays in after.items():
            for name, x in arrays.items():
                state[group][name].copy_(x)
    for _ in range(times):
        graph.replay()
        yield state, {name: x.clone() for name, x in shot.items()}
