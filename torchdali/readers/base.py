"""The contract of native readers: DALI's own readers as stateful iterable datasets, whose state is derived."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import IterableDataset, get_worker_info

from .. import _dali, distributed
from ..batch import Column, Columns, Kind
from ..checks import integer
from ..datasets.base import BESIDE, digest
from ..errors import ReaderError, StateMismatchError
from ..formats.parts import kind_of_bytes
from ..order import Epoch, Indices, Order, own_rows
from ..readers import native
from ..source import Pass, Source
from ..state import Position, Progress, pack, unpack
from .options import check_options, portable
from .reading import ShardedReading

FEWEST_ROWS = 256  # a call of dynamic mode costs as much as copying so many small records
SMALL_BYTES = 4 << 20  # of rows that are read at once beyond those that a batch needs

Shuffle = Literal["full", "window"] | bool


class Output(NamedTuple):
    """One output of a native reader.

    Attributes:
        name: the field's default name.
        kind: what it holds.
        convert: makes a value of a sample's array; None: as it is, and numbers from arrays of one element.
        uniform: all samples are known to have one shape.
    """

    name: str
    kind: Kind
    convert: Callable[[NDArray[Any]], Any] | None = None
    uniform: bool = False


class Reader(Source, IterableDataset[tuple[Any, ...]]):
    """Any reader of DALI's dynamic mode as a stateful `IterableDataset`.

    A loader takes it like a map-style dataset: `DataLoader(Reader(...), batch_size=...)`.  Iterated by itself it gives
    the samples of this rank, one by one, as tuples of torch tensors (files still encoded, uint8 [n]).  In both cases
    the order, and so the state, is a function of (seed, epoch, position).

    Args:
        reader: a class such as `ndd.readers.File`.
        fields: names for its outputs, in their order; index (the position in the epoch) and valid may be among them.
        kinds: what a field holds where that is not seen from its name, such as `{"photo": "encoded"}`.
        shuffle: False; "full": a fresh permutation of all samples for each epoch, where the reader has one; "window":
            DALI's buffer of `initial_fill` samples (1024), from which one is drawn at a time.
        seed: of the order; None: the loader's.
        virtual_shards: read so many shards, divided among the ranks.  A multiple of every world size with which the
            job shall go on in mid-epoch; each costs a thread and the reader's memory for paths.  None: one a rank.
        options: DALI's, under DALI's names.

    Raises:
        ValueError: an option that is set here, or that can't be.
        TypeError: an option that the reader doesn't have.
    """

    total_bytes = 0  # of all samples on disk, if that is known
    full_shuffle: ClassVar[bool] = False  # DALI's shuffle_after_epoch works; many readers take it and do nothing
    twin: ClassVar[str] = ""  # the dataset that reads the same files by index
    uses_dali = True

    def __init__(
        self,
        reader: Any,
        fields: Sequence[str] | None,
        *,
        kinds: Mapping[str, Kind] | None = None,
        shuffle: Shuffle = False,
        seed: int | None = None,
        virtual_shards: int | None = None,
        **options: Any,
    ) -> None:
        self._class = reader
        self.options = check_options(self.name, options, native.reader_arguments(reader))
        if shuffle not in (False, "full", "window"):
            raise ValueError(f'shuffle must be "full", "window" or False, got {shuffle!r}')
        if shuffle == "full" and not self.full_shuffle:
            raise ValueError(
                f'{self.name} has no full shuffle, only shuffle="window": a buffer of initial_fill samples'
            )
        self.shuffle = shuffle
        self.seed = None if seed is None else integer("seed", seed, 0, 2**63 - 1)
        self.virtual_shards = None if virtual_shards is None else integer("virtual_shards", virtual_shards, 1)
        self.outputs = self.describe(fields or ())
        fields = [output.name for output in self.outputs] if fields is None else fields
        self._set_fields(fields, kinds or {})
        self._length: int | None = None
        self._fingerprint: str | None = None
        self._progress = Progress()
        self.check()

    # What subclasses say

    def describe(self, fields: Sequence[str]) -> list[Output]:
        """The outputs for these options."""
        return [Output(name, kind_of_bytes(name)) for name in fields if name not in BESIDE]

    def check(self) -> None:
        """Refuse what DALI would let through, or die of, as far as a look at the files shows it."""

    def check_columns(self, columns: Columns, positions: Indices) -> None:
        """Refuse samples that DALI should not have let through."""

    @property
    def name(self) -> str:
        """The reader's name, for messages."""
        return str(self._class.__name__)

    # Fields

    def _set_fields(self, fields: Sequence[str], kinds: Mapping[str, Kind]) -> None:
        names = [name for name in fields if name not in BESIDE]
        if isinstance(fields, str) or len(set(fields)) < len(fields) or len(names) != len(self.outputs):
            raise ValueError(
                f"fields must name the outputs of {self.name} in their order "
                f"({', '.join(output.name for output in self.outputs)}), got {fields!r}"
            )
        if "path" in fields:
            raise ValueError(f"a native reader does not tell its files' paths, got fields={fields!r}")
        unknown = set(kinds) - set(names)
        if unknown:
            raise ValueError(f"kinds must name fields among {', '.join(names)}, got {', '.join(sorted(unknown))}")
        self.outputs = [
            # Another kind than the natural one is of what DALI gives.
            Output(name, kinds[name]) if kinds.get(name, output.kind) != output.kind else output._replace(name=name)
            for name, output in zip(names, self.outputs, strict=True)
        ]
        self.fields = tuple(fields)
        given = {output.name: output.kind for output in self.outputs}
        self.kinds = {name: given[name] if name in given else BESIDE[name] for name in fields}

    def columns(self, outputs: Sequence[Column], positions: Indices) -> Columns:
        """The fields of some rows from DALI's outputs.

        Raises:
            ValueError: another number of outputs than fields, or values that can't be what the field holds.
        """
        if len(outputs) != len(self.outputs):
            raise ValueError(f"{self.name} has {len(outputs)} outputs here, and fields names {len(self.outputs)}")
        columns: Columns = {"index": positions, "valid": np.ones(len(positions), np.bool_)}
        for output, values in zip(self.outputs, outputs, strict=True):
            columns[output.name] = _column(output, values)
        self.check_columns(columns, positions)
        return {name: columns[name] for name in self.fields}

    def uniform(self, name: str) -> bool:
        """Whether all samples of a field are known to have one shape."""
        known = any(output.uniform for output in self.outputs if output.name == name)
        return known or self.kinds[name] == "number"

    # Size and order

    def __len__(self) -> int:
        """Samples of an epoch, over all ranks."""
        if self._length is None:
            with _dali.context(1, torch.device("cpu")):
                self._length = int(self.make(0, 1, 1, 0, 1, torch.device("cpu")).get_metadata()["epoch_size"])
            if not self._length:
                raise ValueError(f"{self.name} finds no samples in {self._where()}")
        return self._length

    def rows_at_once(self, rows: int) -> int:
        """How many rows to ask DALI for where a batch takes `rows`: several batches' where samples are small."""
        if not self.total_bytes:
            return rows
        return max(rows, min(FEWEST_ROWS, SMALL_BYTES * len(self) // self.total_bytes))

    def num_shards(self, world_size: int) -> int:
        """Shards that the epoch is made of.

        Raises:
            ValueError: `virtual_shards` is no multiple of the number of ranks, or there are more than samples.
        """
        shards = world_size if self.virtual_shards is None else self.virtual_shards
        if shards % world_size:
            raise ValueError(
                f"virtual_shards must be a multiple of the number of ranks, got {shards} for {world_size} ranks"
            )
        if shards > len(self):
            raise ValueError(f"{len(self)} samples cannot give each of {shards} shards one")
        return shards

    def order(self, shuffle: bool = False, sampler: Any = None) -> ReaderOrder:
        if shuffle or sampler is not None:
            raise ValueError(
                f'{self.name} reads in an order of its own: write shuffle="full" or shuffle="window" there'
            )
        return ReaderOrder(self)

    def fingerprint(self) -> str:
        """Of the reader and its options; files count by their names below their common folder."""
        if self._fingerprint is None:
            self._fingerprint = f"{self.name} {digest(portable(self.options), self.seed)}"
        return self._fingerprint

    def open(self, pass_: Pass) -> ShardedReading:
        return ShardedReading(self, pass_)

    def make(self, shard: int, shards: int, generator: int, age: int, rows: int, device: torch.device) -> Any:
        """DALI's reader for one shard, with `age` rows of its epoch behind it.

        Raises:
            ValueError: the reader needs a GPU.
        """
        devices = native.reader_devices(self._class)
        if "cpu" not in devices and device.type == "cpu":
            raise ValueError(f"DALI's {self.name} reads on a GPU only: write device='cuda' at the DataLoader")
        shuffled: dict[str, Any] = {"seed": 1}  # of the order in which a window is first filled
        if self.shuffle == "full":
            shuffled |= {"shuffle_after_epoch": True, "shuffle_after_epoch_seed": generator}
        else:
            shuffled |= {"random_shuffle": self.shuffle == "window", "stick_to_shard": True}
        reader = self._class(
            max_batch_size=rows,
            device="cpu" if "cpu" in devices else "gpu",
            shard_id=shard,
            num_shards=shards,
            pad_last_batch=True,
            enable_checkpointing=True,
            **shuffled,
            **self.native_options(),
        )
        reader.set_state(native.reader_state(generator, 0, age))
        return reader

    def native_options(self) -> dict[str, Any]:
        """The options as DALI takes them."""
        return self.options

    def _where(self) -> str:
        return ", ".join(f"{name}={value!r:.200}" for name, value in self.options.items())

    # By itself

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """The samples of this rank, from where the state stands; then the next epoch.

        Raises:
            RuntimeError: in a worker process.
        """
        if get_worker_info() is not None:
            raise RuntimeError(
                f"{self.name} cannot be read in worker processes, since DALI reads and decodes in threads of its own: "
                "write num_workers=0"
            )
        return self._samples()

    def _samples(self) -> Iterator[tuple[Any, ...]]:
        _dali.check_process()
        shard = distributed.resolve_shard(None, None)
        number, start = self._progress.begin()
        pass_ = Pass(0, start, shard, batch_size=64, num_threads=1, device=torch.device("cpu"))
        n, at = len(self), start
        first = start.samples_seen + (shard.rank - start.samples_seen) % shard.world_size
        own = np.arange(first, n, shard.world_size)
        parts = (own[i : i + pass_.batch_size] for i in range(0, len(own), pass_.batch_size))
        for columns in self.open(pass_).stream(own_rows(part) for part in parts):
            if isinstance(columns, Exception):
                raise columns
            values = [_tensors(self.kinds[name], columns[name]) for name in self.fields]
            for sample in zip(*values, strict=True):
                at = at._replace(samples_seen=min(at.samples_seen + shard.world_size, n))
                self._progress.move(number, at)
                yield sample
        self._progress.move(number, at._replace(finished=True))

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is this epoch; without it, every one is the next epoch."""
        self._progress.set_epoch(epoch)

    @property
    def epoch(self) -> int:
        """The epoch in progress; between two, the one that comes."""
        return self._progress.epoch

    def state_dict(self) -> dict[str, Any]:
        """Where iterating it by itself stands: flat, plain values, equal on all ranks.  A loader has its own state."""
        return pack(self._progress.position, self._state_fingerprint())

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> None:
        """Go on there with the next iteration.

        Raises:
            StateMismatchError: the state of other data, another order, or another number of shards.
        """
        try:
            position = unpack(state_dict, self._state_fingerprint(), strict)
        except StateMismatchError as error:
            raise self.explain(error) from None
        self._progress.load(position)

    def explain(self, error: StateMismatchError) -> StateMismatchError:
        """The error of a state, with what to do about another number of ranks."""
        if "shard" not in str(error):
            return error
        other = f", or use {self.twin}" if self.twin else ""
        return StateMismatchError(
            f"{error}\n{self.name} reads shards, and other shards are another order.  To go on with another number of "
            f"ranks, write virtual_shards= (a multiple of both numbers) from the start{other}"
        )

    def _state_fingerprint(self) -> dict[str, int | str]:
        world_size = distributed.resolve_shard(None, None).world_size
        return {
            "seed": self.seed or 0,
            "order": self.order().fingerprint(world_size=world_size),
            "num_samples": len(self),
            "dataset": self.fingerprint(),
        }

    def __getitem__(self, index: int) -> Any:
        raise TypeError(f"{self.name} reads in its own order and has no sample by index: iterate it")

    def __repr__(self) -> str:
        return f"{self.name}({self._where()}, fields={self.fields}, shuffle={self.shuffle!r})"


class ReaderOrder(Order):
    """The order of a native reader: positions of its epoch, which the reader alone can turn into samples."""

    strided = in_order = True

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def __len__(self) -> int:
        return len(self._reader)

    def epoch(self, seed: int, at: Position) -> Epoch:
        return Epoch(len(self), own_rows, self.strided)

    def fingerprint(self, seed: int = 0, world_size: int = 1) -> str:
        reader = self._reader
        window = f" of {reader.options.get('initial_fill', 1024)}" if reader.shuffle == "window" else ""
        shards = reader.num_shards(world_size)
        return f"{reader.shuffle or 'file order'}{window}, {shards} shard{'s' if shards > 1 else ''}"


def _column(output: Output, values: Column) -> Column:
    if output.convert is not None:
        return _converted([output.convert(value) for value in values], output.kind)
    if output.kind == "number":
        array = np.asarray(values)
        if array.size != len(array):
            raise ValueError(f"{output.name!r} must be one number a sample, got arrays of shape {array.shape[1:]}")
        return array.reshape(len(array))
    if isinstance(values, np.ndarray) and output.kind in ("encoded", "image"):
        return list(values)
    if isinstance(values, list) and len(seen := {(value.dtype, value.ndim) for value in values}) > 1:
        found = sorted((str(dtype), ndim) for dtype, ndim in seen)
        raise ReaderError(f"{output.name!r} must have one dtype and number of dimensions, got {found}")
    return values


def _converted(values: list[Any], kind: Kind) -> Column:
    return np.array(values) if kind == "number" else values


def _tensors(kind: Kind, column: Column) -> Column:
    if kind == "object":
        return column
    if kind == "number":
        return list(torch.from_numpy(np.array(column)))
    return [value if isinstance(value, torch.Tensor) else torch.from_numpy(np.array(value)) for value in column]
