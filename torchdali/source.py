"""The interface between a loader and what it reads.

A `Source` says which fields its samples have and in which order they come; `bind` gives the source that serves a
loader's options.  For each pass it opens a `Reading`, which turns rows (the samples' indices and the keys of their
random numbers) into columns.
"""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import torch

from .batch import BadSample, Columns, join
from .checks import resolve
from .distributed import Shard
from .drawn import drawn_order
from .elsewhere import check_dataset_arguments
from .errors import StateMismatchError, leave_frame, let_through
from .ids import Taken
from .kinds import AnyKind, Doubt, Kind, tell
from .options import Options
from .order import Epoch, Indices, Order, Rows, Sequential, Shuffled
from .state import Position
from .storage import THREADS
from .summary import Summary, brief, how_many, never_raises, shown
from .threads import DaemonThreads

_warned: set[str] = set()  # classes whose loaders were given workers
SLOW = 500e-6  # seconds per sample; a file in the page cache takes 25e-6


class Lasting(Protocol):
    """A thing that may serve several passes, one after the other."""

    def rest(self) -> bool:
        """Get ready for another pass, and let go of this one; False: it can't serve again."""


L = TypeVar("L", bound=Lasting)


class Lender(Protocol):
    """Lends what is dear to make to a pass, and keeps it for the next one."""

    def lend(self, name: str, make: Callable[[], L]) -> AbstractContextManager[L]:
        """Lend a thing for a block, made where there is none."""
        ...


@dataclass(frozen=True)
class Pass:
    """Everything that reading may depend on in one pass.

    Attributes:
        seed: the loader's.
        start: where the pass begins; `start.snapshot` is where the source goes on, if positions can't say it.
        shard: this process among the data-parallel ones.
        batch_size: samples per batch on this rank.
        num_threads: threads that decode.
        device: where batches will arrive.
        drop_last: leave out batches that are smaller because an endless source ends.
        stream: the CUDA stream to work on; None: a private one.
        alone: no other rank is on this machine.
        shelf: keeps what is dear to make for the next pass; None: nothing does.
    """

    seed: int
    start: Position
    shard: Shard
    batch_size: int
    num_threads: int
    device: torch.device
    drop_last: bool = False
    stream: torch.cuda.Stream | None = None
    alone: bool = False
    shelf: Lender | None = None

    @property
    def epoch(self) -> int:
        """The epoch, without its cycle."""
        return self.start.epoch

    @property
    def key(self) -> int:
        """The number that tells this pass over the epoch from all others, see `state.Position.key`."""
        return self.start.key


class Lent(dict[str, Any]):
    """Columns whose memory is only lent, or that say where their source stands.

    Attributes:
        release: gives back the memory of their arrays.
        snapshot: where their source stands after them, if a position can't say it.
        bad: samples that the source left out.
    """

    def __init__(
        self,
        columns: Columns,
        release: Callable[[], None] | None = None,
        snapshot: Any = None,
        bad: Sequence[BadSample] = (),
    ) -> None:
        super().__init__(columns)
        self.release, self.snapshot, self.bad = release, snapshot, bad


class Failed(NamedTuple):
    """A failure of the user's code that makes samples: its error reaches the caller unchanged, with a note.

    Attributes:
        error: the error.
        sample: the index of the sample that the code was making, or None.
        worker: the number of the worker that it ran in, or None.
    """

    error: Exception
    sample: int | None
    worker: int | None = None


class Reading:
    """Reads a source for one pass; a subclass defines `stream` and `read`.

    Attributes:
        end: where the source stands after the end of its epoch, if the next one does not simply begin at the start; it
            is known when the stream has ended.
    """

    end: Any = None

    def stream(self, rows: Iterable[Rows]) -> Iterator[Columns | Failed | Exception]:
        """Yield the columns of consecutive rows, in order; for a failure, yield its error and go on.

        A failure of user code is yielded as `Failed`, any other failure as the exception itself.  The stream runs in
        one thread, may take rows ahead, and gives back what it holds when it is closed.
        """
        raise NotImplementedError

    def read(self, rows: Rows) -> Columns:
        """Read any rows, in any thread, during the stream and after it; any error may be raised."""
        raise NotImplementedError

    def cancel(self) -> None:
        """End the stream without waiting for it; any thread may call this."""

    def close(self) -> None:
        """Give back everything; called when the pass is over and reading has ended."""


class Source:
    """Base of everything that a loader reads.

    A subclass has `fields` and `kinds`, defines `open` and `fingerprint`, and `__len__` unless it is endless.

    Attributes:
        fields: names of a sample's parts, in the order in which a batch has them.
        kinds: what each field holds.
        transform: the transform that a loader uses unless it is given another one.
        uses_dali: reading itself uses DALI.
        on_gpu: it gives tensors on the loader's GPU.
        endless: an epoch ends where reading does, and its length is not known before.
        whole_batches: reading decides how many samples a batch has.
        inline: reading happens in the caller's thread, and so does everything else.
        watched: reading itself limits the time that a sample may take.
        ready: reading waits for no disk: samples are in memory, or worker processes make them ahead.
        described: its fields are known before a sample is read.
        seekable: any position of an epoch can be reached without reading the samples before it.
        collated: reading gives whole batches, as the user's `collate_fn` makes them in the workers.
        pids: the worker processes.
        state_keys: the entries of a loader's state that belong to the source.
    """

    fields: tuple[str, ...]
    kinds: dict[str, Kind]
    transform: Any = None
    uses_dali = on_gpu = endless = whole_batches = inline = watched = ready = collated = False
    described = seekable = True
    pids: Sequence[int] = ()
    state_keys: tuple[str, ...] = ()

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        if args or kwargs:
            check_dataset_arguments(cls, args, kwargs)
        return super().__new__(cls)

    def __len__(self) -> int:
        raise TypeError(f"{type(self).__name__} has no length")

    def __getitem__(self, index: int) -> Any:
        raise TypeError(f"{type(self).__name__} has no sample by index: iterate its loader")

    def fingerprint(self) -> str:
        """Give a string of at most 100 characters: equal for the same samples, and another one for others."""
        raise NotImplementedError

    def uniform(self, name: str) -> bool | None:
        """Tell whether all samples of a field are known to have one shape; None: each batch shows it."""
        return self.kinds[name].held == "number"

    def settled(self, name: str) -> bool | None:
        """Tell whether a field leaves as one tensor in every batch; None: the first batch decides."""
        return self.uniform(name)

    def dtype(self, name: str) -> np.dtype[Any] | None:
        """Give the dtype of a field of arrays; None: each batch shows it."""
        return None

    def path(self, index: int) -> str | None:
        """Give the file of a sample, for messages; None where samples have no files."""
        return None

    @property
    def doubts(self) -> Mapping[str, Doubt]:
        """The fields whose kinds are guesses that may be wrong."""
        return {}

    @property
    def empty(self) -> bool:
        """Whether it is known, before a pass is opened, that there is no sample."""
        return False

    # For people

    @property
    def known_size(self) -> int | None:
        """The number of samples, where it is known without reading."""
        return None if self.endless else len(self)

    @property
    def known_kinds(self) -> dict[str, Kind] | None:
        """The kinds of the fields, where they are known without reading."""
        return self.kinds if self.described else None

    @property
    def named(self) -> tuple[str, ...] | None:
        """The names of a sample's parts, where they are known without reading and a sample does not show them."""
        return self.fields if self.described else None

    @property
    def where(self) -> str:
        """Where the samples come from, in a few words; "": that is not known."""
        return ""

    def summary(self) -> Summary:
        """Say what is known of it without reading."""
        facts = {"samples": "unknown" if self.known_size is None else f"{self.known_size:,}"}
        if self.where:
            facts["from"] = self.where
        classes = getattr(self, "classes", None)
        if isinstance(classes, (list, tuple)) and classes:
            names = ", ".join(map(str, classes[:10]))
            facts["classes"] = f"{len(classes):,}: {names}{', ...' if len(classes) > 10 else ''}"
        if self.transform is not None:
            facts["transform"] = shown(self.transform)
        kinds = self.known_kinds
        if kinds is None:
            facts["fields"] = "known when a sample has been read"
        rows = [(name, brief(kind), f"[{kind.shape}]") for name, kind in (kinds or {}).items()]
        return Summary(type(self).__name__, facts, ("field", "kind", "a sample"), rows)

    @never_raises
    def __repr__(self) -> str:
        what = how_many(self.known_size, "sample") + (f" from {self.where}" if self.where else "")
        kinds = self.known_kinds
        fields = "" if kinds is None else "; " + ", ".join(f"{name}: {kind}" for name, kind in kinds.items())
        return f"{type(self).__name__}({what}{fields})"

    @never_raises
    def _repr_html_(self) -> str:
        return self.summary().html()

    # For a loader

    def bind(self, options: Options) -> Source:
        """Give the source that serves one loader: itself, or a copy that holds what belongs to that loader.

        Raises:
            ValueError, TypeError: the source can't do what the options ask for.
        """
        if options.batch_size is None:
            raise ValueError(
                f"batch_size=None means that each item of the dataset is a batch, and {type(self).__name__} gives "
                "samples: write batch_size=1, or how many make a batch"
            )
        name = type(self).__name__
        if options.num_workers and name not in _warned:
            _warned.add(name)
            warnings.warn(
                f"{name} needs no worker processes, since DALI reads and decodes in threads: num_workers="
                f"{options.num_workers} changes nothing; write num_threads={options.num_workers}",
                UserWarning,
                stacklevel=3 + (type(self).bind is not Source.bind),
            )
        return self if options.kinds is None else self.with_kinds(options.kinds)

    def with_kinds(self, kinds: Mapping[str, AnyKind]) -> Source:
        """Give the same source with other kinds of fields, which its columns hold in the same way.

        Raises:
            ValueError: an unknown field, or a kind whose values are held in another way.
        """
        bound = copy.copy(self)
        bound.kinds = {**self.kinds, **self._as_told(kinds)}
        return bound

    def _as_told(self, kinds: Mapping[str, AnyKind]) -> dict[str, Kind]:
        found = {}
        for name, told in resolve(kinds, list(self.kinds), "kinds").items():
            natural = self.kinds[name].held
            kind = found[name] = tell(told, natural)
            if kind.held != natural:
                raise ValueError(
                    f"kinds can't make {told!r} of {name!r} here, which {type(self).__name__} reads as "
                    f"{self.kinds[name]}: write kinds= at the dataset"
                )
        return found

    def order(self, shuffle: bool, sampler: Any) -> Order:
        """Make the order from a loader's `shuffle` and `sampler`.

        Raises:
            ValueError: the source has an order of its own, or the sampler fits another dataset.
            TypeError: `sampler` is not a sampler.
        """
        if sampler is None:
            return Shuffled(len(self)) if shuffle else Sequential(len(self))
        if not isinstance(sampler, Order):
            return drawn_order(sampler, self.taken)
        sampler.check_dataset(len(self))
        return sampler

    @property
    def taken(self) -> Taken:
        """What it takes from a torch sampler: indices."""
        return Taken(len(self))

    def others(self) -> Sequence[int]:
        """Give the samples of which one may take a bad one's place."""
        return range(len(self))

    def open(self, pass_: Pass) -> Reading:
        """Open the source for one pass."""
        raise NotImplementedError

    def prepare(self, seed: int, start: Position, shard: Shard, epoch: Epoch) -> None:
        """Get ready for a pass from `start`, in an order: its fields may be asked for before the pass is opened."""

    def rebuild(self, batch: dict[str, Any]) -> Any:
        """Put a batch's fields into the form of the source's samples: here, a tuple."""
        return tuple(batch.values())

    def pack(self, position: Position) -> dict[str, Any]:
        """Make the entries `state_keys` of a loader's state from a position, which has a snapshot."""
        return {}

    def unpack(self, state: Mapping[str, Any], position: Position, shard: Shard, strict: bool = True) -> Any:
        """Read a position's snapshot from the entries `state_keys` of a loader's state.

        Args:
            state: the entries.
            position: the state's position.
            shard: this process among the data-parallel ones.
            strict: False: what was read up to there is not verified.

        Raises:
            StateMismatchError: they do not fit this source, or the position.
        """
        return None

    def steps_before(self, position: Position) -> int | None:
        """Count the steps of the epoch before a position; None: the number of samples tells it."""
        return None

    def explain(self, error: StateMismatchError) -> StateMismatchError:
        """Add advice to the error of a state that does not fit."""
        return error

    def start(self) -> None:
        """Start what reading needs, such as worker processes, ahead of the first pass."""

    def close(self) -> None:
        """End everything that this source has started."""


class DirectReading(Reading):
    """Reads a source whose samples can be read by their index at any time.

    Args:
        read: gives the columns of some indices.
        blocking: reading waits for disks, so several threads read where it is slow.
    """

    def __init__(self, read: Callable[[Indices], Columns], blocking: bool) -> None:
        self._read, self._blocking = read, blocking

    def read(self, rows: Rows) -> Columns:
        return self._read(rows.indices)

    def stream(self, rows: Iterable[Rows]) -> Iterator[Columns | Exception]:
        threads = DaemonThreads(THREADS, "torchdali-read") if self._blocking else None
        wait = 0.0  # seconds that one thread needed for a sample of the last batch
        try:
            for indices, _ in rows:
                # In this thread while reading is fast, as from the page cache; in several where each read waits long.
                parts = min(THREADS, len(indices)) if threads is not None and wait > SLOW else 1
                begin = time.perf_counter()
                try:
                    if threads is None or parts == 1:
                        columns = self._read(indices)
                    else:
                        columns = join(threads.map(self._read, np.array_split(indices, parts)))
                except Exception as error:
                    let_through(error)
                    yield leave_frame(error)
                    continue
                wait = (time.perf_counter() - begin) * parts / len(indices)
                yield columns
        finally:
            if threads is not None:
                threads.close()
