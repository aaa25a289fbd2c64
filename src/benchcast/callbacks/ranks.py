"""The processes of a distributed run: who does what, and one word for all when somebody fails.

Every rank takes its turn in the same collective calls whatever happens to it, so that a failure is told to
all of them and nobody waits for ever.
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
    """This process among those that share the work."""

    rank: int = 0
    count: int = 1

    @classmethod
    def here(cls, *, spread: bool) -> Ranks:
        """All ranks of the run, or this process alone."""
        from torch import distributed

        if not spread or not distributed.is_available() or not distributed.is_initialized():
            return cls()
        return cls(distributed.get_rank(), distributed.get_world_size())

    def own(self, jobs: Sequence[T]) -> list[T]:
        """This rank's part: every rank gets as many, because a sharded model runs on all of them or on none.

        Where jobs run out, the last one is done again; doing one twice changes nothing.
        """
        most = -(-len(jobs) // self.count)
        return [jobs[min(self.rank + turn * self.count, len(jobs) - 1)] for turn in range(most)]

    def together(self, work: Callable[[], T]) -> T:
        """What `work` gives here, once it is known that no rank failed; else an error on all of them."""
        if self.count == 1:
            return work()
        failure: Exception | None = None
        try:
            made = work()
        except Exception as error:  # noqa: BLE001 - the others wait for this rank's word; raised below
            failure = error
        reasons = self._gather("" if failure is None else f"{type(failure).__name__}: {one_line(failure)}")
        if failure is not None:
            raise failure
        for rank, reason in enumerate(reasons):
            if reason:
                raise InputError(f"rank {rank}: {reason}")
        return made

    def _gather(self, word: str) -> list[str]:
        from torch import distributed

        words: list[Any] = [None] * self.count
        distributed.all_gather_object(words, word)
        return [str(w) for w in words]

    def merged(self, values: npt.NDArray[np.float32], device: Any) -> npt.NDArray[np.float32]:
        """One array of what every rank filled in; NaN where this rank has nothing."""
        if self.count == 1:
            return values
        import torch
        from torch import distributed

        filled = torch.from_numpy(np.where(np.isnan(values), np.float32(-np.inf), values)).to(device)
        distributed.all_reduce(filled, op=distributed.ReduceOp.MAX)
        found = filled.cpu().numpy()
        return np.where(np.isneginf(found), np.float32(np.nan), found)
