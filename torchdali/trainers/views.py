"""Views of a loader for trainers.

Lightning asks for a sampler with `set_epoch`; accelerate's `skip_first_batches` builds a torch DataLoader out of
`dataset`, `batch_sampler` and `collate_fn`.  The batch sampler yields the indices of a batch, with the step that it is;
the dataset turns that into the whole batch, which makes skipping an exact seek.

A loader makes its views when it is asked for them: they hold the loader, and it doesn't hold them, so that a loader
that is dropped is freed at once.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any, Protocol

from torch.utils.data import BatchSampler, Dataset, RandomSampler, Sampler, SequentialSampler

from ..order import Epoch, Order, Step
from ..source import Source
from .accelerate import tell_batch, tell_end, tell_pass

CHUNK = 4096  # indices that are looked up at a time


class Loader(Protocol):
    """The part of a loader that its views use."""

    source: Source

    @property
    def given_sampler(self) -> Any: ...
    @property
    def given_batch_sampler(self) -> Any: ...
    @property
    def batch_size(self) -> int | None: ...
    @property
    def drop_last(self) -> bool: ...
    @property
    def sampler(self) -> Sampler[int]: ...
    @property
    def order_length(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def dataset(self) -> Any: ...
    @property
    def generator(self) -> Any: ...
    def epoch_order(self, later: int = 0, /) -> Epoch: ...
    def steps(self, later: int = 0, /) -> Iterator[Step]: ...
    def set_epoch(self, epoch: int, /) -> None: ...
    def seek(self, epoch: int | None, step: int, /) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...


class Turns:
    """Counts how often a view was iterated while the loader itself stayed in one epoch.

    A torch loader that is built around the view iterates it for each of its epochs, and the loader does not move: each
    of them gets the order of another epoch, as from torch's samplers.

    Args:
        loader: the loader.
    """

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._epoch: int | None = None
        self._count = 0

    def next(self) -> int:
        """Give the number of epochs by which the view is ahead of the loader."""
        epoch = self._loader.epoch
        self._epoch, self._count = epoch, 0 if epoch != self._epoch else self._count + 1
        return self._count

    def restart(self) -> None:
        """Begin with the loader's epoch again: it was set."""
        self._epoch = None


class EpochSampler(Sampler[int]):
    """The order of the epoch in progress; takes the epoch, knows the length.

    The same object gives the order of the next epoch when it is iterated again, see `Turns`.  The attributes of the
    sampler that the user gave are read and set through it, as through torch's loader:
    `loader.sampler.weights = weights`.

    Raises:
        AttributeError: there is no such sampler, or it has no such attribute.
    """

    _loader: Loader
    _turns: Turns

    def __init__(self, loader: Loader) -> None:
        object.__setattr__(self, "_loader", loader)
        object.__setattr__(self, "_turns", Turns(loader))

    def __getattr__(self, name: str) -> Any:
        return _read(self, name, None if name.startswith("_") else self._loader.given_sampler)

    def __setattr__(self, name: str, value: Any) -> None:
        _set(self, name, value, self._loader.given_sampler)

    def set_epoch(self, epoch: int) -> None:
        self._loader.set_epoch(epoch)
        self._turns.restart()

    def __len__(self) -> int:
        return self._loader.order_length

    def __iter__(self) -> Iterator[int]:
        epoch = self._loader.epoch_order(self._turns.next())
        for start in range(0, len(self), CHUNK):
            for index in epoch.some(start, CHUNK).indices.tolist():
                yield epoch.ids.get(index, index)


def _read(view: Any, name: str, given: Any) -> Any:
    if given is not None and hasattr(given, name):
        return getattr(given, name)
    raise AttributeError(f"{type(view).__name__!r} object has no attribute {name!r}")


def _set(view: Any, name: str, value: Any, given: Any) -> None:
    if given is not None and not isinstance(given, Order) and hasattr(given, name):
        setattr(given, name, value)
    elif name.startswith("_"):
        object.__setattr__(view, name, value)
    else:
        raise AttributeError(
            f"{name} of a loader's sampler can be set only where you gave it a sampler of torch's that has it: make "
            "another loader, and load the state into it"
        )


class SequentialEpochSampler(EpochSampler, SequentialSampler):
    """The same for an unshuffled loader; Lightning's `overfit_batches` asks for this class."""


class ShuffledEpochSampler(EpochSampler, RandomSampler):
    """The same for a shuffled loader; code that asks whether one is shuffled asks for this class."""

    @property
    def data_source(self) -> Any:  # type: ignore[override]  # torch holds it in an attribute
        """The dataset."""
        return self._loader.dataset

    @property
    def replacement(self) -> bool:  # type: ignore[override]
        """Whether samples come several times in an epoch."""
        return bool(getattr(self._loader.given_sampler, "replacement", False))

    @property
    def num_samples(self) -> int:
        """The samples of an epoch."""
        return len(self)

    @property
    def generator(self) -> Any:
        """The generator that was given."""
        return getattr(self._loader.given_sampler, "generator", self._loader.generator)


class Token(list[int]):
    """The indices of one batch on this rank, and the step that it is.

    Attributes:
        epoch: the epoch; None: the one in progress.
        step: the number of the batch in it.
    """

    def __init__(self, indices: list[int], epoch: int | None, step: int) -> None:
        super().__init__(indices)
        self.epoch, self.step = epoch, step


class BatchTokens(BatchSampler):
    """The loader's steps as a batch sampler, which yields one token for each.

    Args:
        loader: the loader.
        moves: the loader moves with the tokens, since the dataset beside them is its `TokenDataset`.  Otherwise the
            same object gives the next epoch when it is iterated again, see `Turns`.

    Attributes:
        even_batches: accelerate's word for that every rank has as many batches, which is so whatever it is set to.
    """

    even_batches = True

    def __init__(self, loader: Loader, moves: bool = True) -> None:
        self._loader, self._turns = loader, None if moves else Turns(loader)
        self._epoch: int | None = None

    def __getattr__(self, name: str) -> Any:
        return _read(self, name, None if name.startswith("_") else self._loader.given_batch_sampler)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "even_batches":
            return
        _set(self, name, value, None if name.startswith("_") else self._loader.given_batch_sampler)

    @property
    def sampler(self) -> Sampler[int]:  # type: ignore[override]  # torch holds it in an attribute
        return self._loader.sampler

    @property
    def batch_size(self) -> int | None:  # type: ignore[override]
        return self._loader.batch_size

    @property
    def drop_last(self) -> bool:  # type: ignore[override]
        return self._loader.drop_last

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch
        self._loader.set_epoch(epoch)
        if self._turns is not None:
            self._turns.restart()

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Token]:
        if self._loader.source.endless:  # the dataset says when it ends
            yield from (Token([], self._epoch, k) for k in itertools.count())
        # The pass over the dataset ends with its last batch, while the caller still holds that one; this one goes on.
        told = tell_pass()
        for k, step in enumerate(self._loader.steps(0 if self._turns is None else self._turns.next())):
            tell_batch(told, step.last)
            yield Token(step.rows.indices.tolist(), self._epoch, k)
        tell_end(told)


class TokenDataset(Dataset[Any]):
    """The loader's dataset, which also gives whole batches for tokens."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._iterator: Iterator[Any] | None = None
        self._next: tuple[int | None, int] | None = None

    def __len__(self) -> int:
        return self._loader.order_length

    def __getitem__(self, index: int) -> Any:
        return self._loader.source[index]

    def __getitems__(self, token: Token) -> list[Any]:
        if self._iterator is None or (token.epoch, token.step) != self._next:
            self._begin(token.epoch, token.step)
            assert self._iterator is not None
        self._next = token.epoch, token.step + 1
        try:
            batch = next(self._iterator)
        except StopIteration:  # of a source that ends by itself; it ends torch's loader
            self._iterator = None
            raise
        if not self._loader.source.endless and token.step + 1 == len(self._loader):
            # No one asks for more than there are: end the pass, so that its threads end and the next epoch may follow.
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
        # `dataset.classes` and the like; not while unpickling, when there is no loader yet.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._loader.source, name)


def only(batches: list[Any]) -> Any:
    """Collate the batches of one token: there is one.

    Raises:
        TypeError: these are samples.
    """
    if len(batches) != 1:
        raise TypeError("a torchdali loader puts its batches together itself: iterate the loader")
    return batches[0]
