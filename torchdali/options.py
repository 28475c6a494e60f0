"""A loader's options, which check themselves."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch.utils.data import BatchSampler, default_collate, default_convert

from .batch import BadSample
from .batch_function import BatchFunction
from .checks import flag, integer, names, number, one_of
from .collate import Padding
from .distributed import Shard, check_device, check_shard
from .drawn import Batches
from .kinds import AnyKind, as_kinds
from .pillow import MAX_PIXELS

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh

Engine = Literal["auto", "eager", "pipeline", "debug"]
Output = Literal["tuple", "dict", "list"] | Callable[[dict[str, Any]], Any]
Stream = Literal["private", "current"] | torch.cuda.Stream
OnBadSample = Literal["raise", "skip", "substitute"] | Callable[[BadSample], "str | int"]

ELSEWHERE = {
    "pin_memory_device": "batches arrive on the loader's device: write device=",
}
"""Arguments of torch's loader that have another word here."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The arguments of a `DataLoader` after its dataset; `DataLoader` says what each means.

    Raises:
        ValueError, TypeError: an invalid value, two that exclude each other, or one of torch's arguments that has
            another word here.
    """

    batch_size: int | None = 1
    shuffle: bool = False
    sampler: Any = None
    transform: Any = None
    batch_transform: Any = None
    seed: int = 0
    drop_last: bool = False
    pad_last: bool = False
    device: str | int | torch.device | None = None
    prefetch_factor: int | None = 2
    num_threads: int | None = None
    rank: int | None = None
    world_size: int | None = None
    mesh: DeviceMesh | None = None
    process_group: ProcessGroup | None = None
    engine: Engine = "auto"
    output: Output = "tuple"
    on_bad_sample: OnBadSample = "raise"
    max_bad_samples: int | float | None = None
    max_pixels: int | None = MAX_PIXELS
    timeout: float = 120.0
    pad_value: float | Mapping[str, float] = 0
    pad_multiple: int = 1
    ragged: Sequence[str] = ()
    uniform: Sequence[str] = ()
    kinds: Mapping[str, AnyKind] | None = None
    with_state: bool = False
    memory_format: torch.memory_format | None = None
    stream: Stream = "private"
    num_workers: int = 0
    collate_fn: Any = None
    batch_sampler: Any = None
    generator: Any = None
    pin_memory: bool = False
    pin_memory_device: str = ""
    worker_init_fn: Callable[[int], object] | None = None
    multiprocessing_context: Any = None
    persistent_workers: bool = False
    in_order: bool = True
    snapshot_every_n_steps: int | None = 1
    pickler: Any = None

    def __post_init__(self) -> None:
        self._refuse_torch_arguments()
        self._unfold_batch_sampler()
        if self.kinds is not None:
            self._set("kinds", as_kinds(self.kinds))
        if self.generator is not None:
            if not isinstance(self.generator, torch.Generator):
                raise TypeError(f"generator must be a torch.Generator, got {self.generator!r:.80}")
            self._set("seed", self.seed or self.generator.initial_seed() % 2**63)
        for name, smallest in (("batch_size", 1), ("pad_multiple", 1), ("num_workers", 0)):
            if name != "batch_size" or self.batch_size is not None:
                self._set(name, integer(name, getattr(self, name), smallest))
        self._set("seed", integer("seed", self.seed, 0, 2**63 - 1))
        self._set("prefetch_factor", 2 if self.prefetch_factor is None else self.prefetch_factor)
        self._set("prefetch_factor", integer("prefetch_factor", self.prefetch_factor, 0))
        if self.snapshot_every_n_steps is not None:
            self._set("snapshot_every_n_steps", integer("snapshot_every_n_steps", self.snapshot_every_n_steps, 1))
        if self.num_threads is not None:
            self._set("num_threads", integer("num_threads", self.num_threads, 1))
        if self.max_pixels is not None:
            self._set("max_pixels", integer("max_pixels", self.max_pixels, 1))
        for name in ("shuffle", "drop_last", "pad_last", "pin_memory", "persistent_workers", "with_state"):
            self._set(name, flag(name, getattr(self, name)))
        one_of("engine", self.engine, ("auto", "eager", "pipeline", "debug"))
        for name in ("ragged", "uniform"):
            self._set(name, names(name, getattr(self, name)))
        if not callable(self.output):
            one_of("output", self.output, ("tuple", "dict", "list"))
        if not callable(self.on_bad_sample):
            one_of("on_bad_sample", self.on_bad_sample, ("raise", "skip", "substitute"))
        self._check_most_bad()
        self._set("timeout", float(number("timeout", self.timeout, "of seconds, at least 0", smallest=0)))
        self._set("memory_format", self.memory_format or torch.channels_last)
        if self.memory_format not in (torch.channels_last, torch.contiguous_format):
            raise ValueError(
                f"memory_format must be torch.channels_last or torch.contiguous_format, got {self.memory_format!r:.80}"
            )
        self._check_stream()
        _ = self.padding
        check_shard(self.rank, self.world_size)
        if self.device is not None:
            self._set("device", check_device(self.device))
        self._check_ranks()
        self._check_pairs()
        self._check_collating()
        self.check_batch_transform(self.batch_transform)

    def __getstate__(self) -> dict[str, Any]:
        # torch's word for a format is picklable by the newer protocols only, and torch.save takes an older one.
        return {**self.__dict__, "memory_format": str(self.memory_format).removeprefix("torch.")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, memory_format=getattr(torch, state["memory_format"]))

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)  # frozen, but for the normal form of what was given

    def _refuse_torch_arguments(self) -> None:
        for name, instead in ELSEWHERE.items():
            if value := getattr(self, name):
                raise ValueError(f"torchdali.DataLoader has no {name}={value!r:.80}: {instead}")
        if not self.in_order:
            raise ValueError("torchdali.DataLoader has no in_order=False: a stream has one order, so leave it out")

    def _unfold_batch_sampler(self) -> None:
        """Put a batch sampler where `sampler` is; torch's own is a sampler, a batch size and drop_last."""
        given = self.batch_sampler
        if given is None:
            return
        written = {
            "batch_size": self.batch_size != 1,
            "shuffle": self.shuffle,
            "sampler": self.sampler is not None,
            "drop_last": self.drop_last,
            "pad_last": self.pad_last,
        }
        if any(written.values()):
            wrong = ", ".join(name for name, is_written in written.items() if is_written)
            raise ValueError(f"batch_sampler gives the batches: leave {wrong} out")
        if type(given) is BatchSampler:
            self._set("sampler", given.sampler)
            self._set("batch_size", given.batch_size)
            self._set("drop_last", given.drop_last)
        else:
            self._set("sampler", Batches(given))
            self._set("batch_size", 1)
        self._set("batch_sampler", None)

    def _check_most_bad(self) -> None:
        most = self.max_bad_samples
        if most is None:
            return
        share = isinstance(most, float) and 0 < most <= 1
        if not share and (isinstance(most, (bool, float)) or not isinstance(most, numbers.Integral) or most < 0):
            raise ValueError(
                "max_bad_samples must be a number of samples, at least 0, or a share of the epoch in (0, 1], got "
                f"{most!r:.80}"
            )

    def _check_stream(self) -> None:
        if self.stream not in ("private", "current") and not isinstance(self.stream, torch.cuda.Stream):
            kind = ValueError if isinstance(self.stream, str) else TypeError
            raise kind(f"stream must be 'private', 'current' or a torch.cuda.Stream, got {self.stream!r:.80}")

    def _check_ranks(self) -> None:
        if self.mesh is not None and not hasattr(self.mesh, "get_local_rank"):
            raise TypeError(f"mesh must be a torch DeviceMesh, got {self.mesh!r:.80}")
        if self.process_group is not None and not hasattr(self.process_group, "rank"):
            raise TypeError(
                f"process_group must be a torch ProcessGroup that this process is in, got {self.process_group!r:.80}"
            )
        if self.mesh is not None and self.process_group is not None:
            raise ValueError("mesh and process_group exclude each other")

    def _check_pairs(self) -> None:
        if self.shuffle and self.sampler is not None:
            raise ValueError("sampler gives the order, so shuffle must be False")
        if self.drop_last and self.pad_last:
            raise ValueError("drop_last and pad_last exclude each other")
        if self.pad_last and self.on_bad_sample == "skip":
            raise ValueError(
                "pad_last=True fills batches up, and on_bad_sample='skip' makes them smaller: write "
                "on_bad_sample='substitute', whose rows valid marks"
            )
        if self.with_state and self.output != "dict" and self.collate_fn is None and self.batch_transform is None:
            raise ValueError(f"with_state=True needs output='dict', got output={self.output!r:.80}")
        if self.persistent_workers and not self.num_workers:
            raise ValueError("persistent_workers needs num_workers > 0")
        if self.multiprocessing_context is not None and not self.num_workers:
            raise ValueError(f"multiprocessing_context={self.multiprocessing_context!r} needs num_workers > 0")

    def _check_collating(self) -> None:
        if self.batch_size is None and (self.drop_last or self.pad_last):
            raise ValueError("batch_size=None takes batches as they are: leave drop_last and pad_last out")
        own = getattr(self.collate_fn, "loaders_own", False)  # another loader's, which does the same
        if own or self.collate_fn in (
            default_collate,
            default_convert if self.batch_size is None else default_collate,
        ):
            self._set("collate_fn", None)  # the loader's own way
        if self.collate_fn is not None and not callable(self.collate_fn):
            raise TypeError(f"collate_fn must be a function of a list of samples, got {self.collate_fn!r:.80}")
        if self.collated and self.output != "tuple":
            raise ValueError(
                f"output={self.output!r:.80} names fields, and {self.collated} makes batches without: leave output out"
            )

    def check_batch_transform(self, function: Any) -> BatchFunction | None:
        """Make the loader's function of batches; None where there is none.

        Raises:
            TypeError: it is no function of a batch.
            ValueError: it mixes groups of samples, and batches don't hold whole ones.
        """
        if function is None:
            return None
        group = getattr(function, "group", None)
        if isinstance(group, int) and self.samples % group:
            raise ValueError(
                f"batch_size must be a multiple of the group of {type(function).__name__}(group={group}), got "
                f"{self.batch_size}"
            )
        return BatchFunction("batch_transform", function)

    @property
    def collated(self) -> str:
        """The argument by which batches are not put together by the loader, as it was written; "" where they are."""
        if self.batch_size is None:
            return "batch_size=None"
        return (
            ""
            if self.collate_fn is None
            else f"collate_fn={getattr(self.collate_fn, '__name__', self.collate_fn)!s:.60}"
        )

    @property
    def samples(self) -> int:
        """Samples per batch on one rank; an item that is a batch counts as one."""
        return 1 if self.batch_size is None else self.batch_size

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The names of all options."""
        return tuple(field.name for field in fields(cls))

    @classmethod
    def default(cls, name: str) -> Any:
        """The default of an option."""
        return getattr(cls, name)

    @property
    def shard(self) -> Shard | None:
        """The rank that was given, or None."""
        return check_shard(self.rank, self.world_size)

    def most_bad(self, samples: int | None) -> int | None:
        """Give the number of bad samples that a pass may have on one rank; None: any number.

        Args:
            samples: of an epoch on this rank; None: it is not known.

        Raises:
            ValueError: a share is asked for of a number that is not known.
        """
        most = self.max_bad_samples
        if not isinstance(most, float):
            return most
        if samples is None:
            raise ValueError(
                f"max_bad_samples={most} is a share of the epoch, whose length is not known here: write a number of "
                "samples"
            )
        return int(most * samples)

    @property
    def padding(self) -> Padding:
        """The way in which ragged fields become tensors."""
        return Padding(self.pad_value, self.pad_multiple)

    @property
    def prefetch(self) -> int:
        """Batches made ahead."""
        assert self.prefetch_factor is not None  # it is in its normal form
        return self.prefetch_factor
