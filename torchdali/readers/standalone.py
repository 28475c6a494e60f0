"""Native readers that can be iterated without a loader."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from .. import _dali, distributed
from ..batch import Column, Held
from ..errors import StateMismatchError
from ..fields import Fields
from ..order import Indices, Rows, own_rows
from ..source import Failed, Pass, Source
from ..state import Progress, pack, unpack


class Standalone(Source, IterableDataset[tuple[Any, ...]]):
    """A source that gives the samples of this rank, one by one, and has a state of its own.

    A subclass has `name` and `seed`, and defines what `Source` asks for; its `order` needs no arguments.
    """

    seed: int | None

    def __init__(self) -> None:
        self._progress = Progress()

    @property
    def name(self) -> str:
        """The source's name, for messages."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Give the samples of this rank, from where the state stands; then those of the next epoch.

        Raises:
            RuntimeError: in a worker process.
        """
        if get_worker_info() is not None:
            raise RuntimeError(
                f"{self.name} can't be read in worker processes, since DALI reads and decodes in threads of its own: "
                "write num_workers=0"
            )
        return self._samples()

    def _samples(self) -> Iterator[tuple[Any, ...]]:
        while (yield from self._pass()):
            pass

    def _pass(self) -> Generator[tuple[Any, ...], None, bool]:
        """Give the samples of one pass.

        Returns:
            Whether a state was loaded meanwhile, and the iteration goes on there with another pass.
        """
        _dali.check_process()
        shard = distributed.resolve_shard(None, None)
        number, start = self._progress.begin()
        pass_ = Pass(0, start, shard, batch_size=64, num_threads=1, device=torch.device("cpu"))
        n, at = len(self), start
        first = start.samples_seen + (shard.rank - start.samples_seen) % shard.world_size
        own = np.arange(first, n, shard.world_size)
        parts = (own[i : i + pass_.batch_size] for i in range(0, len(own), pass_.batch_size))
        asked: list[Indices] = []

        def rows() -> Iterator[Rows]:
            for part in parts:
                asked.append(part)
                yield own_rows(part)

        fields = Fields(self.fields, self.kinds)
        for columns in self.open(pass_).stream(rows()):
            if isinstance(columns, Failed):
                raise columns.error
            if isinstance(columns, Exception):
                raise columns
            columns = fields.fill(columns, asked.pop(0), self.path)
            values = [_tensors(self.kinds[name].held, columns[name]) for name in self.fields]
            for sample in zip(*values, strict=True):
                at = at._replace(samples_seen=min(at.samples_seen + shard.world_size, n))
                self._progress.move(number, at)
                yield sample
                loaded = self._progress.loaded(number)
                if loaded is not None:
                    return not loaded.finished
        self._progress.move(number, at._replace(finished=True))
        return False

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration this epoch; without it, each one is the next epoch."""
        self._progress.set_epoch(epoch)

    @property
    def epoch(self) -> int:
        """The epoch in progress; between two, the next one."""
        return self._progress.epoch

    def state_dict(self) -> dict[str, Any]:
        """Give where the iteration stands: flat, plain values, equal on all ranks.  A loader has its own state."""
        return pack(self._progress.position, self._state_fingerprint())

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> None:
        """Go on from a state, with the next iteration or the next sample of the one that is open.

        Raises:
            StateMismatchError: the state of other data, another order, or another number of shards.
        """
        try:
            position = unpack(state_dict, self._state_fingerprint(), strict)
        except StateMismatchError as error:
            raise self.explain(error) from None
        self._progress.load(position)

    def _state_fingerprint(self) -> dict[str, int | str]:
        world_size = distributed.resolve_shard(None, None).world_size
        return {
            "seed": self.seed or 0,
            "order": self.order(False, None).fingerprint(world_size=world_size),
            "num_samples": len(self),
            "dataset": self.fingerprint(),
        }


def _tensors(kind: Held, column: Column) -> Column:
    if kind == "object":
        return column
    if kind == "number":
        return list(torch.from_numpy(np.array(column)))
    return [value if isinstance(value, torch.Tensor) else torch.from_numpy(np.array(value)) for value in column]
