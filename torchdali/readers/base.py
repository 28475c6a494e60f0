"""The base of native readers: DALI's own readers as iterable datasets, whose state follows from the position."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from .. import _dali, distributed
from ..batch import Column, Columns, Held
from ..checks import integer
from ..errors import StateMismatchError
from ..fields import ALWAYS, BESIDE, check_kinds, name_parts
from ..fingerprint import digest, portable
from ..formats.parts import kind_of_bytes
from ..kinds import AnyKind, Kind, as_kind, as_kinds, tell
from ..options import Options
from ..readers import native
from ..source import Pass, Source
from ..summary import never_raises
from ..watchdog import watch_making
from .options import check_options
from .shards import ReaderOrder, ShardedReading
from .standalone import Standalone

FEWEST_ROWS = 256  # a call of dynamic mode costs as much as copying this many small records
SMALL_BYTES = 4 << 20  # the limit, in bytes, of rows that are read at once beyond a batch's own

Shuffle = Literal["full", "window"] | bool


class Output(NamedTuple):
    """One output of a native reader.

    Attributes:
        name: the field's default name.
        kind: what it holds.
        convert: makes a value from a sample's array; None: the array itself, or its one element for a number.
        uniform: all samples are known to have one shape.
    """

    name: str
    kind: AnyKind
    convert: Callable[[NDArray[Any]], Any] | None = None
    uniform: bool = False

    @property
    def held(self) -> Held:
        """How a column holds its values."""
        return as_kind(self.kind).held


class Reader(Standalone):
    """Any reader of DALI's dynamic mode as a stateful `IterableDataset`.

    A loader takes it like a map-style dataset: `DataLoader(Reader(...), batch_size=...)`.  Iterated without a loader,
    it gives the samples of this rank, one by one, as tuples of torch tensors (files still encoded, uint8 [n]).  In both
    cases the order, and so the state, is a function of (seed, epoch, position).

    Args:
        reader: a class such as `ndd.readers.File`.
        fields: names for its outputs, in their order; index (the position in the epoch) and valid may be among them.
        kinds: the kinds of fields whose names do not tell them, such as `{"photo": "encoded"}`.
        shuffle: False; "full": a fresh permutation of all samples for each epoch, where the reader has one; "window":
            DALI's buffer of `initial_fill` samples (1024), from which one is drawn at a time; in each epoch, a rank
            reads other shards, as (seed, epoch) says.
        seed: the order's seed; None: the loader's.
        virtual_shards: the number of shards, which are divided among the ranks: a multiple of every world size with
            which the job may go on in mid-epoch.  Each costs a thread and the reader's memory for paths.  None: one
            per rank.
        options: DALI's options, under DALI's names.

    A subclass may define `describe`, `check` and `native_options`.

    Attributes:
        contents: digests of the data that options name (a folder, a list, a file), by option: the fingerprint takes
            them instead of the option's text.

    Raises:
        ValueError: an option that torchdali sets itself, or an invalid value.
        TypeError: an option that the reader doesn't have.
    """

    total_bytes = 0  # the size of all samples on disk, if it is known
    full_shuffle: ClassVar[bool] = False  # DALI's shuffle_after_epoch works; many readers accept and ignore it
    twin: ClassVar[str] = ""  # the dataset that reads the same files by index
    uses_dali = True

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        watch_making(cls)

    def __init__(
        self,
        reader: Any,
        fields: Sequence[str] | None,
        *,
        kinds: Mapping[str, AnyKind] | None = None,
        shuffle: Shuffle = False,
        seed: int | None = None,
        virtual_shards: int | None = None,
        **options: Any,
    ) -> None:
        self._class = reader
        self.options = check_options(self.name, options, native.reader_arguments(reader))
        self.contents: dict[str, Any] = {}
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
        self._set_fields(fields, as_kinds(kinds))
        self._length: int | None = None
        self._fingerprint: str | None = None
        super().__init__()
        self.check()

    # What a subclass defines; `__init__` calls `describe` and then `check`

    def describe(self, fields: Sequence[str]) -> list[Output]:
        """Describe the outputs for `options`; the first of the two hooks.

        `options`, `shuffle`, `seed` and `virtual_shards` are set.  `fields` and `kinds` are not: they follow from the
        outputs.

        Args:
            fields: names as the user wrote them; empty where the user wrote none.
        """
        return [Output(name, kind_of_bytes(name)) for name in fields if name not in BESIDE]

    def check(self) -> None:
        """Refuse faults that DALI would let through or die of, as far as a look at the files shows them.

        The second hook: everything is set.  A reader that finds its files by an option sets `contents`; a reader that
        knows their size sets `total_bytes`.
        """

    @property
    def name(self) -> str:
        """The reader's name, for messages."""
        return str(self._class.__name__)

    def native_options(self) -> dict[str, Any]:
        """Give the options as DALI takes them; called each time DALI opens the files."""
        return self.options

    # Fields

    def _set_fields(self, fields: Sequence[str], kinds: Mapping[str, AnyKind]) -> None:
        if not isinstance(fields, str) and "path" in fields:
            raise ValueError(f"a native reader does not tell its files' paths, got fields={fields!r}")
        names = name_parts(fields, [output.name for output in self.outputs], ALWAYS)
        check_kinds(kinds, names)
        told = {
            name: tell(kinds[name], output.held)
            for name, output in zip(names, self.outputs, strict=True)
            if name in kinds
        }
        self.outputs = [
            output._replace(name=name) if _fits(output, told.get(name)) else Output(name, told[name])
            for name, output in zip(names, self.outputs, strict=True)
        ]
        known = {**ALWAYS, **{output.name: told.get(output.name, as_kind(output.kind)) for output in self.outputs}}
        self.fields, self.kinds = tuple(fields), {name: known[name] for name in fields}

    def columns(self, outputs: Sequence[Column]) -> Columns:
        """Make the columns of some rows from DALI's outputs.

        Raises:
            ValueError: there are more or fewer outputs than fields, or values of another kind than the field's.
        """
        if len(outputs) != len(self.outputs):
            raise ValueError(f"{self.name} has {len(outputs)} outputs here, and fields names {len(self.outputs)}")
        return {output.name: _column(output, values) for output, values in zip(self.outputs, outputs, strict=True)}

    def uniform(self, name: str) -> bool:
        """Tell whether all samples of a field are known to have one shape."""
        known = any(output.uniform for output in self.outputs if output.name == name)
        return known or self.kinds[name].held == "number"

    @property
    def on_gpu(self) -> bool:  # type: ignore[override]
        """It gives tensors on the loader's GPU: DALI has it for GPUs only."""
        return "cpu" not in native.reader_devices(self._class)

    # Size and order

    def __len__(self) -> int:
        """Count the samples of an epoch, over all ranks."""
        if self._length is None:
            self._length = self._count_samples(None)
        return self._length

    @property
    def known_size(self) -> int | None:
        return self._length

    @property
    def where(self) -> str:
        return self._where()

    def _count_samples(self, device: str | int | torch.device | None) -> int:
        """Let DALI count, on a loader's device where the reader needs a GPU."""
        place = torch.device("cpu")
        if self.place(torch.device("cuda")).type == "cuda":
            place = distributed.resolve_device(device)
        with _dali.Session(1, place):
            count = int(self.make(0, 1, 1, 0, 1, place).get_metadata()["epoch_size"])
        if not count:
            raise ValueError(f"{self.name} finds no samples in {self._where()}")
        return count

    def bind(self, options: Options) -> Source:
        if self._length is None:
            self._length = self._count_samples(options.device)
        return super().bind(options)

    # Place

    def place(self, device: torch.device) -> torch.device:
        """Give where DALI reads for a loader on a device: on the CPU, where it can."""
        return torch.device("cpu") if "cpu" in native.reader_devices(self._class) else device

    def numbers(self) -> frozenset[int]:
        """Give the outputs, by their place, that hold one number per sample."""
        return frozenset(i for i, output in enumerate(self.outputs) if output.held == "number")

    def rows_at_once(self, rows: int) -> int:
        """Give the number of rows to ask DALI for, where a batch takes `rows`: more than that for small samples."""
        if not self.total_bytes:
            return rows
        return max(rows, min(FEWEST_ROWS, SMALL_BYTES * len(self) // self.total_bytes))

    def num_shards(self, world_size: int) -> int:
        """Give the number of shards that the epoch is made of.

        Raises:
            ValueError: `virtual_shards` is not a multiple of the number of ranks, or some shards would be empty.
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
                f'{self.name} reads in an order of its own: write shuffle="full" or shuffle="window" at the reader'
            )
        return ReaderOrder(len(self), self._order_name)

    def _order_name(self, world_size: int) -> str:
        window = f" of {self.options.get('initial_fill', 1024)}" if self.shuffle == "window" else ""
        shards = self.num_shards(world_size)
        return f"{self.shuffle or 'file order'}{window}, {shards} shard{'s' if shards > 1 else ''}"

    def fingerprint(self) -> str:
        """Hash the reader and its options.

        Files count by their names below their common folder, which may move, and lists of files by their contents.
        """
        if self._fingerprint is None:
            options = dict(sorted({**portable(self.options), **self.contents}.items()))
            self._fingerprint = f"{self.name} {digest(options, self.seed)}"
        return self._fingerprint

    def open(self, pass_: Pass) -> ShardedReading:
        return ShardedReading(self, pass_)

    def make(self, shard: int, shards: int, generator: int, age: int, rows: int, device: torch.device) -> Any:
        """Make DALI's reader for one shard, after `age` rows of its epoch.

        Raises:
            ValueError: the reader needs a GPU.
        """
        devices = native.reader_devices(self._class)
        if "cpu" not in devices and device.type == "cpu":
            raise ValueError(f"DALI's {self.name} reads on a GPU only: write device='cuda' at the DataLoader")
        shuffled: dict[str, Any] = {"seed": 1}  # the seed of the order in which a window is first filled
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

    def _where(self) -> str:
        return ", ".join(f"{name}={value!r:.200}" for name, value in self.options.items())

    def explain(self, error: StateMismatchError) -> StateMismatchError:
        """Add advice to the error of a state of other data, or of another number of ranks."""
        text = str(error)
        if "dataset:" in text and self.contents:
            text += (
                f"\n{self.name} reads other files than the state's.  A state of an older version does not say which "
                "files it belongs to: to go on from it with the same files, write load_state_dict(state, strict=False)"
            )
        if "shard" in str(error):
            other = f", or use {self.twin}" if self.twin else ""
            text += (
                f"\n{self.name} reads shards, and another number of shards is another order.  To go on with another "
                f"number of ranks, write virtual_shards= (a multiple of both numbers) from the start{other}"
            )
        return error if text == str(error) else StateMismatchError(text)

    def __getitem__(self, index: int) -> Any:
        raise TypeError(f"{self.name} reads in its own order and has no sample by index: iterate it")

    def next_epoch(self, *_: Any, **__: Any) -> Any:
        """Say what to write instead of dynamic mode's way to iterate.

        Raises:
            TypeError: always.
        """
        raise TypeError(
            f"torchdali's {self.name} has no next_epoch: write DataLoader(reader, batch_size=...) and iterate that, "
            "once for each epoch, or iterate the reader itself, sample by sample"
        )

    @never_raises
    def __repr__(self) -> str:
        order = f", shuffle={self.shuffle!r}" if self.shuffle else ""
        return f"{self.name}({self._where()}, fields={self.fields}{order})"


def _fits(output: Output, told: Kind | None) -> bool:
    """Whether an output's values can be of the kind that the user tells; for any other they are DALI's, unchanged."""
    plain = told is not None and told.word == "array" and as_kind(output.kind).word != "array"
    return told is None or (told.held == output.held and not plain)


def _column(output: Output, values: Column) -> Column:
    if output.convert is not None:
        return _converted([output.convert(value) for value in values], output.held)
    if output.held == "number":
        array = np.asarray(values)
        if array.size != len(array):
            raise ValueError(f"{output.name!r} must be one number per sample, got arrays of shape {array.shape[1:]}")
        return array.reshape(len(array))
    if isinstance(values, np.ndarray) and output.held in ("encoded", "image"):
        return list(values)
    return values


def _converted(values: list[Any], kind: Held) -> Column:
    return np.array(values) if kind == "number" else values
