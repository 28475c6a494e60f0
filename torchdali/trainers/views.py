"""What trainers look for on a loader besides iterating it.

Lightning asks for a sampler with `set_epoch`; Accelerate's `skip_first_batches` builds a torch DataLoader out of
`dataset`, `batch_sampler` and `collate_fn`.  These are views: the batch sampler yields tokens (epoch, step), and the
dataset turns a token into that whole batch, which makes skipping an exact seek.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any, Protocol

from torch.utils.data import Dataset, Sampler, SequentialSampler

from ..source import Source
from .accelerate import tell_end, tell_pass


class Loader(Protocol):
    """What the views need of a loader."""

    source: Source
    batch_size: int
    drop_last: bool
    sampler: Any

    @property
    def num_samples(self) -> int: ...
    def set_epoch(self, epoch: int, /) -> None: ...
    def seek(self, epoch: int | None, step: int, /) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...


Token = tuple["int | None", int]


class EpochSampler(Sampler[int]):
    """The loader's order as a sampler: takes the epoch, knows the length."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def set_epoch(self, epoch: int) -> None:
        self._loader.set_epoch(epoch)

    def __len__(self) -> int:
        return self._loader.num_samples

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self)))


class SequentialEpochSampler(EpochSampler, SequentialSampler):
    """The same for an unshuffled loader; Lightning's `overfit_batches` asks for this class."""


class BatchTokens:
    """The loader's steps as a batch sampler that yields one token for each."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._epoch: int | None = None
        self.sampler = loader.sampler

    @property
    def batch_size(self) -> int:
        return self._loader.batch_size

    @property
    def drop_last(self) -> bool:
        return self._loader.drop_last

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch
        self._loader.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[list[Token]]:
        if self._loader.source.endless:  # the dataset says when it ends
            yield from ([(self._epoch, k)] for k in itertools.count())
        # The pass over the dataset ends with its last batch, while the caller still holds that one; this one goes on.
        told, steps = tell_pass(), len(self)
        for k in range(steps):
            if told is not None:
                told.end_of_dataloader = k == steps - 1
            yield [(self._epoch, k)]
        tell_end(told)


class DatasetView(Dataset[Any]):
    """The loader's dataset, which also gives whole batches for tokens."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._iterator: Iterator[Any] | None = None
        self._next: Token | None = None

    def __len__(self) -> int:
        return self._loader.num_samples

    def __getitem__(self, index: int) -> Any:
        return self._loader.source[index]

    def __getitems__(self, tokens: list[Token]) -> list[Any]:
        (token,) = tokens
        if self._iterator is None or token != self._next:
            self._begin(*token)
            assert self._iterator is not None
        self._next = (token[0], token[1] + 1)
        try:
            batch = next(self._iterator)
        except StopIteration:  # of a source that ends by itself; it ends torch's loader
            self._iterator = None
            raise
        if not self._loader.source.endless and self._next[1] == len(self._loader):
            # Nobody asks for more than there are: end the pass, so that its threads end and the next epoch may follow.
            next(self._iterator, None)
            self._iterator = None
        return [batch]

    def _begin(self, epoch: int | None, step: int) -> None:
        passed = 0 if self._loader.source.seekable else step
        self._loader.seek(epoch, step - passed)
        self._iterator = iter(self._loader)
        if passed:
            warnings.warn(
                f"an iterable can't be sought: {passed} batches are made again, up to where it goes on",
                RuntimeWarning,
                stacklevel=2,
            )
        for _ in range(passed):
            next(self._iterator)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_iterator": None}  # a pass does not travel

    def __getattr__(self, name: str) -> Any:
        # `loader.dataset.classes` and the like; not while unpickling, when there is no loader yet.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._loader.source, name)


def only(batches: list[Any]) -> Any:
    """The collate function of tokens: there is one batch."""
    return batches[0]
