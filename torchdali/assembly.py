"""What a loader is made of: the source for a dataset, and its order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torch.utils.data import IterableDataset

from .checks import integer
from .datasets import MapDataset, as_columns
from .distributed import Shard
from .engine.work import Step, iter_endless_steps, iter_steps
from .order import Drawn, Endless, Order, Sequential, Shuffled, num_steps, step_start
from .python import IterableSource, PythonDataset
from .python.pools import WorkerOptions
from .python.source import PythonSource
from .readers import Reader
from .readers.base import ReaderOrder
from .samplers import BatchedOrder, Mix, OrderSampler
from .source import Source
from .state import Position


def as_source(dataset: Any, workers: WorkerOptions) -> Source:
    """The source that reads a dataset.

    Raises:
        TypeError: nothing can be read from it.
        ValueError: it has no use for workers, or it is empty.
    """
    dataset = as_columns(dataset)
    if isinstance(dataset, (MapDataset, Reader)):
        if workers.num_workers:
            raise ValueError(
                f"{type(dataset).__name__} needs no worker processes, since DALI reads and decodes in threads: leave "
                f"num_workers out, or write num_threads={workers.num_workers}"
            )
        if isinstance(dataset, MapDataset) and not len(dataset):
            raise ValueError("the dataset is empty")
        return dataset
    source: PythonSource
    if isinstance(dataset, PythonSource):
        source = dataset
    elif isinstance(dataset, IterableDataset):
        source = IterableSource(dataset)
    elif hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__") and not isinstance(dataset, (str, bytes)):
        source = PythonDataset(dataset)
    else:
        raise TypeError(
            f"dataset must have samples by index, or be an IterableDataset, got {type(dataset).__name__}: write "
            "ImageFolder(root), FileDataset(paths, labels), a dataset of torch, or one of torchdali.readers"
        )
    if isinstance(source, PythonDataset) and not len(source):
        raise ValueError("the dataset is empty")
    return source.bind(workers)


def check_endless(source: Source, pad_last: bool, policy: Any) -> None:
    """Refuse what a source that ends by itself can't do.

    Raises:
        ValueError: `pad_last`, or another sample in place of a bad one.
    """
    if source.endless and pad_last:
        raise ValueError(
            f"{type(source).__name__} ends where it ends, and its last batch is not filled: leave pad_last out"
        )
    if source.endless and policy != "raise":
        raise ValueError(
            f"{type(source).__name__} has no other sample to take by its index: leave on_bad_sample out, "
            "and let the code that makes the samples choose"
        )


def batch_size_of(order: Order, batch_size: int, pad_last: bool) -> int:
    """The batch size, which some orders bring along.

    Raises:
        ValueError: two of them, or `pad_last` where batches differ in size.
    """
    if not isinstance(order, BatchedOrder):
        return batch_size
    if batch_size != 1 or pad_last:
        raise ValueError("the sampler gives the batches: leave batch_size and pad_last out")
    return order.batch_size


def is_sequential(order: Order) -> bool:
    """Whether trainers shall take it for an unshuffled one."""
    return isinstance(order, (Sequential, ReaderOrder, Endless))


def steps_of(order: Order, batch_size: int, shard: Shard, drop_last: bool, pad_last: bool) -> int:
    """How many steps an epoch has; errors as `sampler.num_steps`."""
    if isinstance(order, BatchedOrder):
        return order.num_steps(shard, drop_last, pad_last)
    if isinstance(order, Endless):
        whole, rest = divmod(len(order), batch_size)
        return whole + (rest > 0 and not drop_last)
    return num_steps(len(order), batch_size, shard, drop_last, pad_last)


def start_of(
    order: Order, at: Position, step: int, batch_size: int, shard: Shard, drop_last: bool, pad_last: bool
) -> int:
    """The position at which a step of the epoch `at` begins."""
    if isinstance(order, BatchedOrder):
        return order.epoch(at.epoch, at.key).step_start(step, shard, drop_last)
    if isinstance(order, Endless):
        return integer("step", step, 0) * (1 if order.whole_batches else batch_size)
    return step_start(len(order), step, batch_size, shard, drop_last, pad_last)


def iter_steps_of(
    order: Order, start: Position, batch_size: int, shard: Shard, drop_last: bool, pad_last: bool
) -> Iterator[Step]:
    """A rank's steps from a position to the end of the epoch.  The order of the epoch is drawn here and now."""
    epoch = order.epoch(start.epoch, start.key)
    if isinstance(order, Endless):
        return iter_endless_steps(epoch, order.n, start, 1 if order.whole_batches else batch_size)
    return iter_steps(epoch, len(order), start, batch_size, shard, drop_last, pad_last, order.strided)


def as_order(source: Source, shuffle: bool, sampler: Iterable[int] | OrderSampler | None, seed: int) -> Order:
    """The order in which a source is read.

    Raises:
        ValueError: the source has an order of its own, or two orders are given.
    """
    if shuffle and sampler is not None:
        raise ValueError("sampler gives the order, so shuffle must be False")
    if isinstance(source, Mix) and sampler is None:
        if shuffle:
            raise ValueError("Mix gives the order, which is shuffled: leave shuffle out")
        sampler = source.sampler
    if isinstance(source, Reader):
        if shuffle or sampler is not None:
            raise ValueError(
                f'{source.name} reads in an order of its own: write shuffle="full" or shuffle="window" there'
            )
        return source.order()
    if source.endless:
        if shuffle or sampler is not None:
            raise ValueError(f"{type(source).__name__} gives samples in its own order: leave shuffle and sampler out")
        return Endless(getattr(source, "num_samples", None), source.whole_batches)
    if isinstance(sampler, OrderSampler):
        return sampler.order(len(source), seed)
    if sampler is not None:
        return Drawn(sampler, len(source), seed)
    return Shuffled(len(source), seed) if shuffle else Sequential(len(source))
