"""Executors: run jobs in this process, in forks of it, or on a Ray cluster."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from benchcast.choices import EXECUTORS, ExecutorName, check_choice
from benchcast.errors import InputError
from benchcast.executors.local import Executor, Job, Local, Note, Processes, on_this_machine

__all__ = ["Executor", "Job", "Local", "Processes", "on_this_machine", "open_executor"]


def open_executor(
    kind: ExecutorName, *, address: str = "", note: Note | None = None
) -> AbstractContextManager[Executor]:
    """Open an executor, to be used in a `with` block.

    Parameters
    ----------
    kind : "local" or "ray"
    address : HOST:PORT of a Ray cluster, or "auto"; empty: RAY_ADDRESS, else a new cluster on this machine
    note : called with one line for each event of the cluster, such as a lost worker

    Returns
    -------
    a context manager that gives the executor

    >>> import benchcast as bc
    >>> with bc.open_executor("local") as executor:
    ...     bc.compare("study", ["code"], methods=["label-token"], device=bc.Execution(executor=executor))
    <Comparison of 1 method on 1 task, 4 models held out by size>
    """
    check_choice("executor", kind, EXECUTORS)
    if kind == "local":
        if address:
            raise InputError(f"--address {address} is of a Ray cluster; add --executor ray")
        return nullcontext(Local())
    from benchcast.executors.ray import connected

    return connected(address, note or (lambda line: None))
