"""Hours and cost of the paper's 59 models on clusters of several sizes, by going through the executor's own schedule.

A job is one model × one portion of the texts; a worker takes as many 80 GB GPUs of one node as its weights need,
starts, reads the weights once, and works off portions. Assumptions are those of `plan`, stated in the output.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from benchcast.collection.windows import PORTION_BYTES
from benchcast.errors import InputError
from benchcast.executors.local import Job
from benchcast.executors.ray import Schedule
from benchcast.importers.mixture import PAPER_MIX
from benchcast.records import ModelInfo
from lab.paper import plan

NODE_GPUS = 8


@dataclass(frozen=True, slots=True)
class Pace:
    """What a cluster is assumed to do."""

    read: float = plan.READ_BYTES_PER_SECOND  # of weights, for each worker
    start: float = plan.START_SECONDS  # of a worker, before it reads
    flops: float = plan.FLOPS_PER_SECOND  # of each GPU


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one cluster takes."""

    gpus: int
    hours: float
    workers: int  # started in all; beyond one for each model, texts were shared
    busy: float  # share of the GPU hours that workers had their GPUs
    loading: float  # share of the workers' GPU hours before their first text


@dataclass(slots=True)
class _Worker:
    group: str
    gpus: int
    node: int
    began: float
    ready: bool = False


def simulate(models: Sequence[ModelInfo], text_bytes: float, gpus: int, pace: Pace | None = None) -> Outcome:
    """Simulate the schedule of a cluster of `gpus` GPUs, eight per node."""
    speed, needed = pace or Pace(), max(map(plan.gpus_for, models))
    if gpus < needed or needed > NODE_GPUS:
        raise InputError(f"{gpus} GPUs; the largest model needs {needed} of one node, which has at most {NODE_GPUS}")
    run = _Simulation([min(NODE_GPUS, gpus - at) for at in range(0, gpus, NODE_GPUS)], models, text_bytes, speed)
    return run.outcome(gpus)


class _Simulation:
    """Events in order of time."""

    def __init__(self, nodes: list[int], models: Sequence[ModelInfo], text_bytes: float, pace: Pace) -> None:
        self.free, self.pace = nodes, pace
        self.models = {m.model: m for m in models}
        portions = max(1, math.ceil(text_bytes / PORTION_BYTES))
        tokens = text_bytes / plan.BYTES_PER_TOKEN / portions
        jobs = []
        for m in models:
            wanted = plan.gpus_for(m)
            seconds = 2 * m.params * tokens / pace.flops / wanted
            jobs += [Job(m.model, seconds, group=m.model, cost=seconds * wanted, gpus=wanted)] * portions
        self.schedule = Schedule.of(jobs)
        self.workers: list[_Worker] = []
        self.events: list[tuple[float, int, _Worker]] = []
        self.started, self.held_out, self.loaded = 0, 0.0, 0.0
        self.number = count()  # events at the same time keep their order

    def outcome(self, gpus: int) -> Outcome:
        """Until the last portion is done."""
        now = 0.0
        self._hire(now)
        while self.events:
            now, _, worker = heapq.heappop(self.events)
            worker.ready = True
            number = self.schedule.take(worker.group, now)
            if number is None:
                self.workers.remove(worker)
                self.free[worker.node] += worker.gpus
                self.held_out += worker.gpus * (now - worker.began)
            else:
                self._later(now + self.schedule.jobs[number].arguments, worker)
            self._hire(now)
        return Outcome(gpus, now / 3600, self.started, self.held_out / (gpus * now), self.loaded / self.held_out)

    def _hire(self, now: float) -> None:
        while True:
            group = self.schedule.next_group(
                [w.group for w in self.workers if w.ready], [w.group for w in self.workers if not w.ready]
            )
            wanted = int(self.schedule.gpus[group]) if group else 0
            room = [node for node, free in enumerate(self.free) if free >= wanted]
            if not group or not room:
                return
            node = min(room, key=lambda n: self.free[n])  # leave whole nodes for those who need them
            self.free[node] -= wanted
            load = self.pace.start + self.models[group].params * plan.BYTES_PER_PARAM / self.pace.read
            worker = _Worker(group, wanted, node, now)
            self.workers.append(worker)
            self.started += 1
            self.loaded += wanted * load
            self._later(now + load, worker)

    def _later(self, when: float, worker: _Worker) -> None:
        heapq.heappush(self.events, (when, next(self.number), worker))


def mixture_bytes() -> float:
    """Of the paper's validation texts, about."""
    return float(sum(PAPER_MIX.values()) * plan.MEAN_TEXT_BYTES)
