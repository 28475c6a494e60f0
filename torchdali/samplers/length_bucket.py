"""An order of batches whose samples have similar lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batches import BatchEpoch
from ..checks import integer
from ..distributed import Shard
from ..fingerprint import digest
from ..order import Batching, Indices, Order, Rows, own_rows
from ..permutation import Permutation, permute_each
from ..rand import Key, derive, fold
from ..state import Position
from .numbers import as_numbers


class LengthBucketSampler(Order):
    """Puts samples of similar lengths into one batch, so that there is little padding.

    Samples are put into buckets of lengths that differ by at most `max_padding`.  In each epoch, a bucket's samples are
    shuffled and cut into batches of equal size (or one less), and the batches of all buckets come in random order.  A
    batch holds at most `batch_size` samples, and with padding at most `tokens_per_batch`.  Where too few samples have
    such lengths to fill a batch, it stays small, and is the same in each epoch: a larger `max_padding` helps.

    The batches of an epoch follow from (seed, epoch) alone.  Ranks take whole batches in turn, one per step each.  So a
    position is a number of samples at the end of a batch, and any other number of ranks continues there.  Every rank
    has the same number of steps, and every sample comes once: the batches left for the last step are split until each
    rank has a part.  (Where too few single samples are left for that, some ranks get a repeated row, which the field
    `valid` marks False.)

    Leave out the loader's own `batch_size` and `pad_last`; `drop_last` drops the batches of an incomplete step.

    Args:
        lengths: [N] positive numbers: tokens, frames or seconds.
        tokens_per_batch: the limit for one batch on one rank, in the lengths' unit: the batch's largest length times
            its number of samples.
        batch_size: the largest number of samples per batch on one rank.
        max_padding: how much shorter than the longest sample of its batch a sample may be, as a share of that length.
        shuffle: False: the same batches in each epoch, from the longest to the shortest.

    Attributes:
        num_batches: batches per epoch, over all ranks.

    Raises:
        TypeError: the lengths are not numbers.
        ValueError: neither `tokens_per_batch` nor `batch_size` is given; a length is not positive, or above
            `tokens_per_batch`; `max_padding` is outside [0, 1).
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
        self._batches = -(-self._counts // largest)  # per bucket
        self._first_batch = np.cumsum(self._batches) - self._batches
        self.num_batches = int(self._batches.sum())
        self.batch_size = int((-(-self._counts // self._batches)).max())  # the largest that occurs
        self._fingerprint: str | None = None

    def epoch(self, seed: int, at: Position) -> BucketEpoch:
        return BucketEpoch(self, seed, at.key)

    def batching(self, batch_size: int, shard: Shard, drop_last: bool, pad_last: bool) -> Batching:
        if batch_size != 1 or pad_last:
            raise ValueError("the sampler gives the batches: leave batch_size and pad_last out")
        return Batching(self.batch_size, shard, drop_last)

    def num_steps(self, batching: Batching) -> int:
        ranks, batches = batching.shard.world_size, self.num_batches
        return batches // ranks if batching.drop_last else -(-batches // ranks)

    def fingerprint(self, seed: int = 0, world_size: int = 1) -> str:
        if self._fingerprint is None:
            how = "shuffled" if self.shuffle else "in order"
            buckets = digest(self._members, self._starts, self._batches)
            self._fingerprint = f"{self.num_batches} batches by length {how} {buckets}"
        return self._fingerprint

    # Lookups by the number of a batch, counted through all buckets

    def sizes(self, batches: Indices) -> Indices:
        """Count the samples of each of some batches."""
        bucket, number = self._find(batches)
        return self._edge(bucket, number + 1) - self._edge(bucket, number)

    def samples(self, batches: Indices, offsets: Indices, key: int) -> Indices:
        """Find the sample at an offset in each of some batches."""
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


class BucketEpoch(BatchEpoch):
    """The batches of one epoch in their order, in a table of O(batches)."""

    def __init__(self, sampler: LengthBucketSampler, seed: int, key: int) -> None:
        batches = np.arange(sampler.num_batches)
        if sampler.shuffle:
            batches = Permutation(sampler.num_batches, derive(seed, Key.BATCHES, key))(batches)
        sizes = sampler.sizes(batches)
        ends, within = np.cumsum(sizes), derive(seed, Key.WITHIN_BUCKET, key)

        def rows(positions: Indices) -> Rows:
            at = np.searchsorted(ends, positions, side="right")
            return own_rows(sampler.samples(batches[at], positions - (ends[at] - sizes[at]), within))

        super().__init__(ends, rows)


def _bucket_starts(longest_first: NDArray[Any], max_padding: float) -> Indices:
    """Find where buckets start in lengths that are sorted from long to short."""
    starts, shortest_first, n = [0], longest_first[::-1], len(longest_first)
    while True:
        least = longest_first[starts[-1]] * (1 - max_padding)
        # A bucket holds at least all lengths equal to its first one, however numbers are rounded.
        least = min(least, longest_first[starts[-1]])
        end = n - int(np.searchsorted(shortest_first, least, side="left"))
        if end >= n:
            return np.array(starts)
        starts.append(end)
