"""Share work among the ranks of a distributed run and raise a failure of one rank on all of them.

Every rank makes the same collective calls even if it fails, so that no rank waits forever.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from benchcast.errors import InputError, one_line

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ranks:
    """The rank of this process and the number of processes that share the work."""

    rank: int = 0
    count: int = 1

    @classmethod
    def here(cls, *, spread: bool) -> Ranks:
        """All ranks of the run, or this process alone if not `spread` or not distributed."""
        from torch import distributed

        if not spread or not distributed.is_available() or not distributed.is_initialized():
            return cls()
        return cls(distributed.get_rank(), distributed.get_world_size())

    def assigned(self, jobs: Sequence[T]) -> list[T]:
        """This rank's jobs; every rank gets equally many, because a sharded model runs on all ranks at once.

        If the jobs do not divide evenly, some ranks repeat the last one, which does not change the result.
        """
        most = -(-len(jobs) // self.count)
        return [jobs[min(self.rank + turn * self.count, len(jobs) - 1)] for turn in range(most)]

    def together(self, work: Callable[[], T]) -> T:
        """The result of `work` on this rank; if it fails on any rank, all ranks raise an error."""
        if self.count == 1:
            return work()
        from torch import distributed

        failure: Exception | None = None
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - the other ranks wait for the message; raised below
            failure = error
        reasons: list[Any] = [None] * self.count
        reason = "" if failure is None else f"{type(failure).__name__}: {one_line(failure)}"
        distributed.all_gather_object(reasons, reason)
        if failure is not None:
            raise failure
        for rank, reason in enumerate(reasons):
            if reason:
                raise InputError(f"rank {rank}: {reason}")
        return result

    def merged(self, values: npt.NDArray[np.float32], device: Any) -> npt.NDArray[np.float32]:
        """Combine the arrays of all ranks; each rank has NaN at the positions it did not score."""
        if self.count == 1:
            return values
        import torch
        from torch import distributed

        filled = torch.from_numpy(np.where(np.isnan(values), np.float32(-np.inf), values)).to(device)
        distributed.all_reduce(filled, op=distributed.ReduceOp.MAX)
        merged = filled.cpu().numpy()
        return np.where(np.isneginf(merged), np.float32(np.nan), merged)
