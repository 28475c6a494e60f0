"""The snapshot of an iterable: where its workers stand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple, Self

from ..errors import StateMismatchError
from ..state import Position


class Standing(NamedTuple):
    """Where one worker stands in its iterable.

    Attributes:
        taken: the number of samples taken.
        state: the dataset's state, where it has one.
        ended: there are no more.
    """

    taken: int
    state: Any
    ended: bool


class Snapshot(NamedTuple):
    """Where all workers stand after a batch.

    Attributes:
        turn: the worker that makes the next batch.
        workers: where each of them stands.
        rank: [rank, world size] where only this rank can go on with it; None: any rank can.
    """

    turn: int
    workers: tuple[Standing, ...]
    rank: list[int] | None

    def pack(self) -> Any:
        """Pack it as one value of a state: as JSON where it can be, since DCP takes dicts apart."""
        whole = {"turn": self.turn, "workers": [worker._asdict() for worker in self.workers], "rank": self.rank}
        with suppress(TypeError, ValueError):
            text = json.dumps(whole)
            if json.loads(text) == whole:  # a dataset's state may hold tuples, and keys that are no strings
                return text
        return whole

    @classmethod
    def unpack(cls, packed: Any, position: Position, num_workers: int) -> Self | None:
        """Unpack the value of `pack`; "" is the start of an epoch.

        Args:
            packed: the value.
            position: the state's position.
            num_workers: the number of workers here, at least 1.

        Raises:
            StateMismatchError: it is none, it does not fit the position, or it has another number of workers.
        """
        whole = packed
        with suppress(ValueError):
            whole = (json.loads(packed) if packed else None) if isinstance(packed, str) else packed
        if whole is None and (position.finished or not position.samples_seen):
            return None  # at the start of an epoch all workers stand at the start
        workers = whole.get("workers") if isinstance(whole, Mapping) else None
        if not isinstance(workers, list) or not workers or not all(_stands(worker) for worker in workers):
            raise StateMismatchError(f"iterable: expected where its workers stand, got {whole!r:.100}")
        if len(workers) != num_workers:
            raise StateMismatchError(
                f"num_workers: expected {num_workers}, got {len(workers)}: the batches of an iterable depend on it"
            )
        turn = whole.get("turn")
        if type(turn) is not int or not 0 <= turn < num_workers:
            raise StateMismatchError(f"iterable: expected a turn in [0, {num_workers}), got {turn!r:.100}")
        if "rank" not in whole:
            raise StateMismatchError(f"iterable: expected the rank, or None, got {whole!r:.100}")
        standings = (Standing(worker["taken"], worker["state"], worker["ended"]) for worker in workers)
        return cls(turn, tuple(standings), whole["rank"])


def _stands(worker: Any) -> bool:
    """Whether a value says where a worker stands."""
    return (
        isinstance(worker, Mapping)
        and {"taken", "state", "ended"} <= set(worker)
        and type(worker["taken"]) is int
        and worker["taken"] >= 0
        and type(worker["ended"]) is bool
    )
