"""Models × texts on an executor: a job is one model and one portion of the texts.

The driver cuts, takes in and stores; it loads tokenizers and no model. A worker loads its model once, for all
the portions it is given.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from benchcast.backends import open_backend, open_scorer
from benchcast.backends.base import Settings
from benchcast.collect import NOTHING, Collected, Job, Report, begin, portions, store
from benchcast.collect.features import Away, Scorer, states
from benchcast.collect.portions import Made, Part, Portion, score
from benchcast.collect.shards import Ledger, alone
from benchcast.errors import BenchcastError, InputError
from benchcast.executor import Executor
from benchcast.executor import Job as Task
from benchcast.records import ModelInfo
from benchcast.store import Study

OnDone = Callable[[str, Collected | None], None]  # a model, and what was done; None: it was there already


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a worker opens a model: plain data."""

    backend: str  # empty: as a scorer
    settings: tuple[tuple[str, str], ...]
    device: str = ""
    batch_size: int = 0
    gpus: float = 0.0  # of a worker

    def open(self) -> Any:
        """The backend; nothing heavy is loaded before it is asked to score."""
        settings = Settings(dict(self.settings))
        if self.backend:
            return open_backend(self.backend, settings, device=self.device, batch_size=self.batch_size)
        source = dict(self.settings).get("pretrained", "")
        return open_scorer(source, settings, device=self.device, batch_size=self.batch_size)


_kept: dict[Recipe, Any] = {}  # of this process: the model in use, never two


def _opened(recipe: Recipe) -> Any:
    if recipe not in _kept:
        _kept.clear()
        _kept[recipe] = recipe.open()
    return _kept[recipe]


def score_portion(shared: None, given: tuple[Recipe, Portion]) -> tuple[str, list[Part]] | BenchcastError:
    """Work of one job of `collect`: who made the nats, and the nats; or what is wrong with this model."""
    recipe, portion = given
    try:
        backend = _opened(recipe)
        return Made.of(backend).line, list(score(backend, portion))
    except BenchcastError as error:
        return InputError(str(error))


def state_portion(dtype: str, given: tuple[Recipe, Portion]) -> tuple[str, list[Part]]:
    """Work of one job of `features`."""
    recipe, portion = given
    scorer: Scorer = _opened(recipe)
    return Made.of(scorer).line, list(states(scorer, portion, dtype))


def states_away(executor: Executor, recipe: Recipe) -> Away:
    """How `make_features` has its work done by an executor."""

    def away(work: Sequence[Portion], dtype: str) -> Iterator[tuple[str, Part]]:
        for _, (made, parts) in executor.run(state_portion, _tasks(recipe, work), dtype):
            for part in parts:
                yield made, part

    return away


def _tasks(recipe: Recipe, work: Sequence[Portion]) -> list[Task]:
    model = work[0].model if work else ""
    return [
        Task(
            f"{model}, {len(p.ids)} texts from {next(iter(p.names.values()))!r} on",
            (recipe, p),
            group=model,
            cost=p.left * max(1.0, recipe.gpus),
            gpus=recipe.gpus,
        )
        for p in work
    ]


@dataclass(frozen=True, slots=True)
class Order:
    """A model to collect."""

    recipe: Recipe
    name: str = ""
    metadata: ModelInfo = NOTHING  # for models.csv
    skip_refused: bool = False

    @property
    def title(self) -> str:
        """The model's name in the study."""
        return (self.name or self.recipe.open().model).strip()


@dataclass(slots=True)
class _Run:
    """A model that is being collected."""

    order: Order
    job: Job
    ledger: Ledger
    began: float
    maker: str = ""  # of this run's results
    failure: str = ""
    stored: bool = False

    @property
    def tasks(self) -> list[Task]:
        """What is left of it."""
        texts = self.job.study.texts
        return _tasks(self.order.recipe, portions(self.job.model, texts, self.job.encoded, self.ledger.done))

    def take(self, answer: tuple[str, list[Part]] | BenchcastError) -> Sequence[Part]:
        """Add a portion; workers that differ in what losses depend on must not be mixed."""
        if isinstance(answer, BenchcastError):
            self.failure = self.failure or str(answer)
            return ()
        made, parts = answer
        if self.maker and made != self.maker:
            self.failure = f"model {self.job.model!r}: workers differ, {self.maker} and {made}; give all nodes the same"
        self.maker = made
        for part in parts:
            self.ledger.take(made, part.rows)
        return parts

    def store_if_whole(self, *, force: bool) -> Collected | None:
        """Store the losses once all texts are done."""
        settled = len(self.ledger.done) + len(self.job.refused)
        if self.stored or self.failure or settled < len(self.job.study.texts):
            return None
        remarks = store(self.job, self.ledger, force=force)
        self.stored = True
        fresh = len(self.ledger.done) - self.ledger.resumed
        seconds = time.monotonic() - self.began
        done = (self.job.model, fresh, self.ledger.resumed, self.ledger.rows, seconds, self.job.refused)
        return Collected(*done, remarks=remarks)


def collect_on(
    executor: Executor,
    study: Study,
    orders: Sequence[Order],
    *,
    force: bool = False,
    report: Report,
    on_done: OnDone,
) -> dict[str, str]:
    """Collect several models side by side; returns those that could not be, and why. The others are stored."""
    with ExitStack() as stack:
        runs, failed = _begin_all(study, orders, stack, force=force, on_done=on_done)
        for run in runs:
            report(run.ledger.resumed + len(run.job.refused), 0)
        going = runs
        while going:
            for run in going:
                _finish(run, on_done, force=force)
            tasks = [(run, task) for run in going if not run.stored for task in run.tasks]
            for number, answer in executor.run(score_portion, [task for _, task in tasks]):
                run = tasks[number][0]
                for part in run.take(answer):
                    report(len(part.rows), part.tokens)
                _finish(run, on_done, force=force)
            going = [run for run in going if not run.stored and not run.failure]
    return failed | {run.job.model: run.failure for run in runs if run.failure}


def _begin_all(
    study: Study, orders: Sequence[Order], stack: ExitStack, *, force: bool, on_done: OnDone
) -> tuple[list[_Run], dict[str, str]]:
    """Runs of the models that have no losses yet, and those that cannot even begin, with the reason."""
    titles, runs, failed = [order.title for order in orders], [], {}
    for title, order in zip(titles, orders, strict=True):
        if titles.count(title) > 1:
            raise InputError(f"model {title!r} occurs twice in the list; give one of them another name")
        try:
            run = _begin(study, order, stack, force=force)
        except BenchcastError as error:
            failed[title] = str(error)
            continue
        if run is None:
            on_done(title, None)
        else:
            runs.append(run)
    if runs:
        study.add_models([ModelInfo(run.job.model) for run in runs])  # in the order of the list, whoever is first
    return runs, failed


def _begin(study: Study, order: Order, stack: ExitStack, *, force: bool) -> _Run | None:
    """A model with what is known of it; None where its losses are stored. It is held until all are through."""
    job = Job(study, order.recipe.open(), order.title, order.skip_refused, order.metadata)
    stack.enter_context(alone(job.folder, repr(job.model)))
    ledger = begin(job, force=force)
    if ledger is None:
        return None
    stack.callback(ledger.flush)
    return _Run(order, job, ledger, time.monotonic())


def _finish(run: _Run, on_done: OnDone, *, force: bool) -> None:
    done = run.store_if_whole(force=force)
    if done is not None:
        on_done(run.job.model, done)
