"""The place of a loader in its stream: the order, a rank's share of it, the position, and the state made of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from . import distributed
from .agreement import check_agreement
from .checks import integer
from .distributed import Shard
from .errors import StateMismatchError
from .options import Options
from .order import Batching, Epoch, Order, Rows, Step
from .ordering import Ordering
from .registered import Registered
from .source import Source
from .state import MAX_EPOCH, Position, Progress, pack, unpack


class Place:
    """Knows where a loader stands; the passes move it, and so do `set_epoch`, `seek` and a loaded state.

    Args:
        source: the loader's.
        options: the loader's.

    Attributes:
        progress: which epoch the next pass is, and where it starts.
        ordering: the order that counts now.
        registered: the user's objects whose state goes with the loader's.
        batch_size: samples per batch on this rank; some orders bring their own.
    """

    def __init__(self, source: Source, options: Options) -> None:
        self._source, self._options = source, options
        self.progress = Progress()
        self.ordering = Ordering(source, source.order(options.shuffle, options.sampler))
        self.registered = Registered()
        self.batch_size = self.batching(Shard(0, 1)).batch_size

    # What there is

    @property
    def order(self) -> Order:
        """The order that counts now."""
        return self.ordering.now(between=not self.progress.current.samples_seen)

    @property
    def sized(self) -> bool:
        """Whether every epoch has the same number of samples, and it is known."""
        return self.order.sized and not self._source.endless

    @property
    def num_samples(self) -> int:
        """Samples of an epoch, over all ranks."""
        return len(self.order)

    def shard(self) -> Shard:
        """Give this process's place among the data-parallel ones."""
        options = self._options
        return distributed.resolve_shard(options.shard, options.mesh, options.process_group)

    def batching(self, shard: Shard) -> Batching:
        """Give the rule by which the order is cut into this rank's batches."""
        options = self._options
        return self.order.batching(options.samples, shard, options.drop_last, options.pad_last)

    def samples_of(self, shard: Shard) -> int | None:
        """A rank's samples of an epoch, rounded up; None where that is not known."""
        return -(-self.num_samples // shard.world_size) if self.sized else None

    # Where it stands

    def epoch(self, later: int = 0) -> Epoch:
        """Give the order of the epoch in progress, or of one that comes some epochs later."""
        return self.order.epoch(self._options.seed, self._later(later))

    def steps(self, later: int = 0) -> Iterator[Step]:
        """Give the steps of this rank in the epoch in progress, or in one some epochs later, from its start."""
        if self.sized and not self.num_samples:
            return iter(())
        start = self._later(later)._replace(samples_seen=0, snapshot=None)
        return self.order.epoch(self._options.seed, start).steps(start, self.batching(self.shard()))

    def _later(self, epochs: int) -> Position:
        now = self.progress.current
        return Position(now.epoch + epochs) if epochs else now

    @property
    def step(self) -> int:
        """This rank's number of the next batch in the epoch."""
        now = self.progress.current
        if not now.samples_seen:
            return 0
        known = self._source.steps_before(now)
        return self.epoch().step_at(now.samples_seen, self.batching(self.shard())) if known is None else known

    def rows_ahead(self, count: int) -> Rows:
        """Give this rank's next samples, at most `count` of them, and fewer where the epoch ends."""
        now, batching = self.progress.current, self.batching(self.shard())
        found = [Rows(np.zeros(0, np.int64), np.zeros(0, np.uint64))]
        for step in self.epoch().steps(now, batching) if len(self.order) else ():
            found.append(step.rows)
            if sum(len(rows.indices) for rows in found) >= count:
                break
        return Rows(*(np.concatenate(parts)[:count] for parts in zip(*found, strict=True)))

    def seek(self, epoch: int | None, step: int) -> None:
        """Go to a step (of this rank's batches) of an epoch; None: the one in progress.

        Raises:
            ValueError: there is no such place, or the source can't be sought.
        """
        if epoch is not None:
            integer("epoch", epoch, 0, MAX_EPOCH)
        integer("step", step, 0)
        if step and not self._source.seekable:
            raise ValueError("an iterable can't be sought, but for the start of an epoch: load a state")
        now = self.progress.current
        cycle = now.cycle if epoch in (None, now.epoch) else 0
        to = Position(now.epoch if epoch is None else epoch, cycle)
        at = self.order.epoch(self._options.seed, to).start_of(step, self.batching(self.shard()))
        self.progress.load(to._replace(samples_seen=at))

    # State

    def fingerprint(self) -> dict[str, int | str]:
        """Give the facts that tell this stream from others."""
        seed = self._options.seed
        world_size = self.shard().world_size if self.order.strided else 1
        return {
            "seed": seed,
            "order": self.order.fingerprint(seed, world_size),
            "num_samples": self.num_samples if self.sized else -1,
            "dataset": self._source.fingerprint(),
        }

    def pack(self, position: Position) -> dict[str, Any]:
        """Give the state of the loader at a position."""
        state = pack(position, self.fingerprint()) | self._source.pack(position)
        return state | self.registered.pack()

    def load(self, state: Mapping[str, Any], strict: bool) -> None:
        """Go where a state says.

        Raises:
            StateMismatchError: it does not fit; nothing has changed.
        """
        own: dict[str, Any] = {}
        registered: dict[str, Any] = {}
        if isinstance(state, Mapping):
            own = {name: state[name] for name in self._source.state_keys if name in state}
            registered = self.registered.entries(state)
            state = {name: value for name, value in state.items() if name not in {**own, **registered}}
        try:
            position = unpack(state, self.fingerprint(), strict)
            snapshot = self._source.unpack(own, position, self.shard(), strict)
            self.registered.load(registered, strict)
        except StateMismatchError as error:
            raise self._source.explain(error) from None
        self.progress.load(position._replace(snapshot=snapshot))

    def agree(self, start: Position, device: torch.device) -> None:
        """Make sure that all ranks stand at the same place of the same stream; all come.

        Raises:
            RankMismatchError: one stands elsewhere.
        """
        options = self._options
        group = distributed.resolve_group(options.shard, options.mesh, options.process_group)
        if group is not None:
            facts = {**pack(start, self.fingerprint()), "batch_size": self.batch_size}
            facts |= {"drop_last": options.drop_last, "pad_last": options.pad_last}
            if self._source.endless:
                del facts["samples_seen"]  # each rank counts its own
            check_agreement(facts, group, gpu=distributed.own_gpu(device))
