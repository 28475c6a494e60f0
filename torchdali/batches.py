"""The cut of an epoch that comes in batches of its own: ranks take whole batches in turn."""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np

from .order import Batching, Cut, Epoch, Indices, Rows


class BatchEpoch(Epoch):
    """An epoch of batches of any sizes, in their order: each step takes one batch for each rank.

    Where fewer batches than ranks are left for the last step, some are split, so that each rank has a part of one.

    Args:
        ends: [B] int64, the position after each batch.
        at: gives the rows at some positions.
    """

    def __init__(self, ends: Indices, at: Callable[[Indices], Rows]) -> None:
        super().__init__(int(ends[-1]) if len(ends) else 0, at)
        self.ends = ends

    def cut(self, position: int, batching: Batching) -> Cut | None:
        """Take a rank's next batch.

        This depends on what remains only.  A position within a batch, where no step ends, continues with its rest.
        """
        rank, ranks = batching.shard
        first = int(np.searchsorted(self.ends, position, side="right"))
        left = len(self.ends) - first
        if not left or (batching.drop_last and left < ranks):
            return None
        taken = self._taken(position, first, min(left, ranks), left, ranks, batching.drop_last)
        ends = self.ends[first : first + taken]
        starts = np.append(position, ends[:-1])
        parts = _parts(ends - starts, ranks)
        batch = int(np.searchsorted(np.cumsum(parts), rank, side="right"))
        if batch == taken:  # fewer samples than ranks
            filling = position + rank % int(ends[-1] - position)
            return Cut(np.array([filling]), np.zeros(1, np.bool_), int(ends[-1]))
        part = rank - int(parts[:batch].sum())
        size, pieces = int(ends[batch] - starts[batch]), int(parts[batch])
        rows = np.arange(size * part // pieces, size * (part + 1) // pieces) + starts[batch]
        return Cut(rows, np.ones(len(rows), np.bool_), int(ends[-1]))

    def whole_steps(self, batching: Batching) -> int:
        return len(self.ends) // batching.shard.world_size - 1

    def whole_end(self, steps: int, batching: Batching) -> int:
        return int(self.ends[steps * batching.shard.world_size - 1]) if steps else 0

    def _taken(self, position: int, first: int, most: int, left: int, ranks: int, drop_last: bool) -> int:
        """Count the batches of a step: one for each rank, or less so that the last step has enough for each."""
        n = int(self.ends[-1])
        if drop_last or not ranks < left < 2 * ranks or n - self.ends[first + ranks - 1] >= ranks:
            return most
        counts = np.arange(ranks - 1, left - ranks - 1, -1)
        ends = self.ends[first + counts - 1]
        fitting = counts[(n - ends >= ranks) & (ends - position >= ranks)]
        return int(fitting[0]) if len(fitting) else most


def _parts(sizes: Indices, ranks: int) -> Indices:
    """Count the parts of each batch so that there is one for each rank, as far as there are samples."""
    parts = np.ones_like(sizes)
    largest = [(-float(size), i) for i, size in enumerate(sizes.tolist()) if size > 1]
    heapq.heapify(largest)
    for _ in range(min(ranks, int(sizes.sum())) - len(sizes)):
        _, i = heapq.heappop(largest)
        parts[i] += 1
        if parts[i] < sizes[i]:
            heapq.heappush(largest, (-float(sizes[i] / parts[i]), i))
    return parts
