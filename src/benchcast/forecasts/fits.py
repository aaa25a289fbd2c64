"""The fits of several tasks, by position and by task, with what was left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, SupportsIndex, overload

from benchcast.display import html_table
from benchcast.errors import InputError
from benchcast.forecasts.stored_fit import Fit
from benchcast.messages import did_you_mean


class Fits(list[Fit]):
    """A list of fits, also indexed by task; it shows the tasks that were left out, and why.

    `fit_tasks` returns it.

    >>> import benchcast as bc
    >>> fits = bc.fit_tasks("study", method="label-token")
    >>> fits["code"]
    <Fit of 'code' by label-token on 16 models>
    >>> fits.tasks, dict(fits.left_out)
    (['facts', 'code'], {})
    """

    left_out: Mapping[str, str]  # reason by task

    def __init__(self, fits: Iterable[Fit] = (), *, left_out: Mapping[str, str] | None = None) -> None:
        super().__init__(fits)
        self.left_out = MappingProxyType(dict(left_out or {}))

    @property
    def tasks(self) -> list[str]:
        """Names of the fitted tasks, in the order of the fits."""
        return [fit.task for fit in self]

    @overload
    def __getitem__(self, key: SupportsIndex | str) -> Fit: ...

    @overload
    def __getitem__(self, key: slice) -> list[Fit]: ...

    def __getitem__(self, key: SupportsIndex | slice | str) -> Fit | list[Fit]:
        """The fit at a position or of a task; a task without one is an error that says why."""
        return self._of_task(key) if isinstance(key, str) else super().__getitem__(key)

    def _of_task(self, task: str) -> Fit:
        for fit in self:
            if fit.task == task:
                return fit
        if task in self.left_out:
            raise InputError(f"no fit of task {task!r}: {self.left_out[task]}")
        raise InputError(f"no fit of task {task!r}; there are {', '.join(self.tasks)}{did_you_mean(task, self.tasks)}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (list(self), dict(self.left_out))

    def __repr__(self) -> str:
        return super().__repr__() + "".join(f"\nleft out: {line}" for line in self._lines())

    def _repr_html_(self) -> str:
        rows = [[fit.task, fit.task_fit.method, fit.about.get("n_train", {}).get(fit.task, "")] for fit in self]
        notes = [f"left out: {line}" for line in self._lines()]
        return html_table("Fits", ["task", "method", "training models"], rows, notes=notes)

    def _lines(self) -> list[str]:
        return [f"{task}: {why}" for task, why in self.left_out.items()]


def _restored(fits: list[Fit], left_out: dict[str, str]) -> Fits:
    return Fits(fits, left_out=left_out)
