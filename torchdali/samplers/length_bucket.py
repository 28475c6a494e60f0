"""Batches of samples of like length."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import integer
from ..distributed import Shard
from ..fingerprint import digest
from ..order import Cut, Indices, Rows
from ..permutation import Permutation
from ..rand import derive, fold
from .base import OrderSampler, SampledOrder, as_numbers
from .permutations import permute_each


class LengthBucketSampler(OrderSampler):
    """Batches of samples of like length, with little padding.

    Samples are put into buckets of lengths that differ by at most `max_padding`.  Each epoch, a bucket's samples are
    shuffled and cut into batches of equal size (or one less), and all buckets' batches come in a random order.  A batch
    holds at most `batch_size` samples, and with padding at most `tokens_per_batch`.  Where lengths are so rare that a
    bucket does not fill a batch, the batch stays small, and the same in each epoch: a larger `max_padding` helps.

    The batches of an epoch follow from (seed, epoch) alone: ranks take whole batches in turn, one each at a step.  So a
    position is a number of samples, at the end of a batch, and any other number of ranks continues there.  Every rank
    has the same number of steps, and every sample comes once: what is left for the last step is split until each rank
    has a part of a batch.  (Where batches hold single samples and too few are left, some ranks get a repeated row
    there, which the field `valid` marks False.)

    The loader's own `batch_size` and `pad_last` are left out; `drop_last` drops the batches of an incomplete step.

    Args:
        lengths: [N] positive numbers: tokens, frames or seconds.
        tokens_per_batch: on one rank, in the lengths' unit: the batch's largest length times its number of samples.
        batch_size: the largest number of samples on one rank.
        max_padding: how much shorter than the longest of its batch a sample may be, as a share of it.
        shuffle: False: the same batches in each epoch, from the longest to the shortest.

    Attributes:
        num_batches: of an epoch, over all ranks.

    Raises:
        TypeError: no numbers.
        ValueError: neither `tokens_per_batch` nor `batch_size`; a length that is not positive, or above
            `tokens_per_batch`; max_padding outside [0, 1).
    """

    def __init__(
        self,
        lengths: Any,
        tokens_per_batch: float | None = None,
        batch_size: int | None = None,
        *,
        max_padding: float = 0.1,
        shuffle: bool = True,
    ) -> None:
        values = as_numbers("lengths", lengths)
        values = values.astype(np.float64 if values.dtype.kind == "f" else np.int64)
        if tokens_per_batch is None and batch_size is None:
            raise ValueError("LengthBucketSampler needs tokens_per_batch=, batch_size=, or both")
        if isinstance(max_padding, bool) or not isinstance(max_padding, (int, float)) or not 0 <= max_padding < 1:
            raise ValueError(f"max_padding must be a number in [0, 1), got {max_padding!r}")
        if not values.min() > 0:
            raise ValueError(f"lengths must be positive, got {values.min()} at {int(values.argmin())}")
        limit = None if batch_size is None else integer("batch_size", batch_size, 1)
        if tokens_per_batch is not None and not tokens_per_batch >= values.max():
            raise ValueError(
                f"tokens_per_batch must be at least the largest length, got {tokens_per_batch} for the length "
                f"{values.max()} at {int(values.argmax())}: leave out longer samples"
            )
        self.dataset_size, self.shuffle = len(values), bool(shuffle)
        self._members = np.argsort(-values.astype(np.float64), kind="stable")
        longest_first = values[self._members]
        self._starts = _bucket_starts(longest_first, float(max_padding))
        self._counts = np.diff(np.append(self._starts, len(values)))
        largest = np.full(len(self._starts), len(values) if limit is None else limit)
        if tokens_per_batch is not None:
            tops = longest_first[self._starts]
            fitting = np.minimum(np.floor(tokens_per_batch / tops), len(values)).astype(np.int64)
            fitting -= fitting * tops > tokens_per_batch  # the quotient of two floats may be rounded up
            largest = np.minimum(largest, fitting)
        self._batches = -(-self._counts // largest)  # of each bucket
        self._first_batch = np.cumsum(self._batches) - self._batches
        self.num_batches = int(self._batches.sum())
        self.batch_size = int((-(-self._counts // self._batches)).max())  # that occurs
        self._fingerprint: str | None = None

    def __len__(self) -> int:
        return self.dataset_size

    def order(self, dataset_size: int, seed: int) -> BatchedOrder:
        super().order(dataset_size, seed)
        return BatchedOrder(self, seed)

    def epoch(self, seed: int, epoch: int, key: int) -> BucketEpoch:
        return BucketEpoch(self, seed, key)

    def fingerprint(self) -> str:
        if self._fingerprint is None:
            how = "shuffled" if self.shuffle else "in order"
            buckets = digest(self._members, self._starts, self._batches)
            self._fingerprint = f"{self.num_batches} batches by length {how} {buckets}"
        return self._fingerprint

    # Of batches, counted through all buckets

    def sizes(self, batches: Indices) -> Indices:
        """How many samples each of some batches holds."""
        bucket, number = self._find(batches)
        return self._edge(bucket, number + 1) - self._edge(bucket, number)

    def samples(self, batches: Indices, offsets: Indices, key: int) -> Indices:
        """What stands at an offset in each of some batches."""
        bucket, number = self._find(batches)
        within = self._edge(bucket, number) + offsets
        if self.shuffle:
            within = permute_each(self._counts[bucket], fold(key, bucket), within)
        found: Indices = self._members[self._starts[bucket] + within]
        return found

    def _find(self, batches: Indices) -> tuple[Indices, Indices]:
        bucket = np.searchsorted(self._first_batch, batches, side="right") - 1
        return bucket, batches - self._first_batch[bucket]

    def _edge(self, bucket: Indices, number: Indices) -> Indices:
        edge: Indices = number * self._counts[bucket] // self._batches[bucket]
        return edge


class BatchedOrder(SampledOrder):
    """An order that brings its own batches; its epochs are `sampler.BatchedEpoch`.

    Attributes:
        batch_size: the largest number of samples in a batch.
    """

    sampler: LengthBucketSampler

    def epoch(self, epoch: int, key: int) -> BucketEpoch:
        return self.sampler.epoch(self.seed, epoch, key)

    @property
    def batch_size(self) -> int:
        return self.sampler.batch_size

    def num_steps(self, shard: Shard, drop_last: bool, pad_last: bool) -> int:
        """How many steps a whole epoch has, the same on every rank and in every epoch; as `sampler.num_steps`.

        Raises:
            ValueError: there would be none, a rank would get no sample, or pad_last.
        """
        ranks, batches = shard.world_size, self.sampler.num_batches
        if pad_last:
            raise ValueError("batches by length differ in size: leave pad_last out")
        if drop_last and batches < ranks:
            raise ValueError(f"drop_last=True leaves no step of the {batches} batches for {ranks} ranks")
        if len(self) < ranks:
            raise ValueError(f"{len(self)} samples cannot give each of {ranks} ranks one: use fewer ranks")
        return batches // ranks if drop_last else -(-batches // ranks)


class BucketEpoch:
    """The batches of one epoch, in their order: a table of O(batches)."""

    def __init__(self, sampler: LengthBucketSampler, seed: int, key: int) -> None:
        self._sampler, self._key = sampler, derive(seed, 0xB0C4, key)
        self._batches = np.arange(sampler.num_batches)
        if sampler.shuffle:
            self._batches = Permutation(sampler.num_batches, derive(seed, 0xB0C5, key))(self._batches)
        self._ends = np.cumsum(sampler.sizes(self._batches))

    def __call__(self, positions: Indices) -> Rows:
        at = np.searchsorted(self._ends, positions, side="right")
        batches = self._batches[at]
        offsets = positions - (self._ends[at] - self._sampler.sizes(batches))
        indices = self._sampler.samples(batches, offsets, self._key)
        return Rows(indices, indices.astype(np.uint64))

    def cut(self, position: int, shard: Shard, drop_last: bool) -> Cut | None:
        """The rows of a rank's next batch, or None at the epoch's end.

        It depends on what remains only.  A position within a batch, which no step ends at, continues with its rest.
        """
        ranks = shard.world_size
        first = int(np.searchsorted(self._ends, position, side="right"))
        left = len(self._ends) - first
        if not left or (drop_last and left < ranks):
            return None
        taken = self._taken(position, first, min(left, ranks), left, ranks, drop_last)
        ends = self._ends[first : first + taken]
        starts = np.append(position, ends[:-1])
        parts = _parts(ends - starts, ranks)
        batch = int(np.searchsorted(np.cumsum(parts), shard.rank, side="right"))
        if batch == taken:  # fewer samples than ranks
            filling = position + shard.rank % int(ends[-1] - position)
            return Cut(np.array([filling]), np.zeros(1, np.bool_), int(ends[-1]))
        part = shard.rank - int(parts[:batch].sum())
        size, pieces = int(ends[batch] - starts[batch]), int(parts[batch])
        rows = np.arange(size * part // pieces, size * (part + 1) // pieces) + starts[batch]
        return Cut(rows, np.ones(len(rows), np.bool_), int(ends[-1]))

    def step_start(self, k: int, shard: Shard, drop_last: bool) -> int:
        """The position at which step k begins; behind its last step, where the epoch ends.

        Raises:
            ValueError: a negative step.
        """
        if k < 0:
            raise ValueError(f"step must not be negative, got {k}")
        # All but the last two steps take one batch for each rank.
        whole = max(0, min(k, len(self._ends) // shard.world_size - 1))
        position = int(self._ends[whole * shard.world_size - 1]) if whole else 0
        for _ in range(k - whole):
            step = self.cut(position, shard, drop_last)
            if step is None:
                break
            position = step.end
        return position

    def _taken(self, position: int, first: int, most: int, left: int, ranks: int, drop_last: bool) -> int:
        """How many batches the step takes: one for each rank, or less so that the last step has enough for each."""
        n = int(self._ends[-1])
        if drop_last or not ranks < left < 2 * ranks or n - self._ends[first + ranks - 1] >= ranks:
            return most
        counts = np.arange(ranks - 1, left - ranks - 1, -1)
        ends = self._ends[first + counts - 1]
        fitting = counts[(n - ends >= ranks) & (ends - position >= ranks)]
        return int(fitting[0]) if len(fitting) else most


def _bucket_starts(longest_first: NDArray[Any], max_padding: float) -> Indices:
    """Where buckets start in lengths that are sorted from long to short."""
    starts, shortest_first, n = [0], longest_first[::-1], len(longest_first)
    while True:
        least = longest_first[starts[-1]] * (1 - max_padding)
        # At least those that are as long as the first one, however numbers are rounded.
        least = min(least, longest_first[starts[-1]])
        end = n - int(np.searchsorted(shortest_first, least, side="left"))
        if end >= n:
            return np.array(starts)
        starts.append(end)


def _parts(sizes: Indices, ranks: int) -> Indices:
    """Into how many parts batches are split so that there is one for each rank, as far as there are samples."""
    parts = np.ones_like(sizes)
    largest = [(-float(size), i) for i, size in enumerate(sizes.tolist()) if size > 1]
    heapq.heapify(largest)
    for _ in range(min(ranks, int(sizes.sum())) - len(sizes)):
        _, i = heapq.heappop(largest)
        parts[i] += 1
        if parts[i] < sizes[i]:
            heapq.heappush(largest, (-float(sizes[i] / parts[i]), i))
    return parts
