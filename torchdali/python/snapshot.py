"""The snapshot of an iterable: where its workers stand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple, Self

from ..errors import StateMismatchError
from ..state import Position

_ALL = 2**62  # more samples than any iterable gives


class Carried(NamedTuple):
    """Describe what the next epoch takes over from this one.

    Attributes:
        state: the dataset's state; None: that of the start, or it has none.
        counts: the integers that a dataset without a state counts by itself, by their attributes.
    """

    state: Any = None
    counts: dict[str, int] | None = None


class Standing(NamedTuple):
    """Where one worker stands in its iterable.

    Attributes:
        taken: the number of samples taken.
        state: the dataset's state, where it has one.
        ended: there are no more.
        asked: the dataset asked which worker this is, and shares itself among workers; None: it is not known yet.
        iterator: the state of its iterator, where that has one of its own.
        digest: of the samples taken last, with their number before it; "": a replay is not verified.
        counts: see `Carried`; they are those of the pass's start, and where it has ended those of its end.
        done: for samples that other workers have taken: by the sample's number modulo the number of those workers, how
            many of the epoch's samples each has passed.
        carried: for the next epoch; it is not packed.
        loaded: it comes from a state, and not from the pass before; it is not packed.
    """

    taken: int = 0
    state: Any = None
    ended: bool = False
    asked: bool | None = None
    iterator: Any = None
    digest: str = ""
    counts: dict[str, int] | None = None
    done: tuple[int, ...] = ()
    carried: Carried | None = None
    loaded: bool = False

    @property
    def at_start(self) -> bool:
        """Whether nothing was taken yet."""
        return not self.taken and not self.ended

    def next_epoch(self) -> Standing:
        """The start of the next epoch after it."""
        if self.at_start:
            return self
        state, counts = self.carried or Carried(self.state if self.ended else None, self.counts)
        return Standing(state=state, counts=counts, loaded=self.loaded)

    def passed(self, number: int) -> bool:
        """Whether other workers have taken a sample of this number, counted from 0."""
        return bool(self.done) and number < self.done[number % len(self.done)]

    def pack(self) -> dict[str, Any]:
        """Pack it as plain values, without those that say nothing."""
        packed = {name: value for name, value in self._asdict().items() if name not in ("carried", "loaded")}
        always = ("taken", "state", "ended")
        return {
            name: list(value) if name == "done" else value
            for name, value in packed.items()
            if name in always or not (value is None or (isinstance(value, str | tuple) and not value))
        }

    @classmethod
    def unpack(cls, packed: Any) -> Self | None:
        """Unpack the value of `pack`; None where it is none."""
        if not isinstance(packed, Mapping) or not {"taken", "state", "ended"} <= set(packed):
            return None
        if type(packed["taken"]) is not int or packed["taken"] < 0 or type(packed["ended"]) is not bool:
            return None
        known = {name: packed[name] for name in cls._fields if name in packed}
        return cls(**{**known, "done": tuple(known.get("done", ())), "loaded": True})


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

    @property
    def at_start(self) -> bool:
        """Whether it is the start of an epoch."""
        return all(worker.at_start for worker in self.workers)

    def next_epoch(self) -> Snapshot | None:
        """The start of the next epoch; None where it takes nothing over."""
        workers = tuple(worker.next_epoch() for worker in self.workers)
        taken_over = any(worker.state is not None or worker.counts or worker.loaded for worker in workers)
        return Snapshot(0, workers, self.rank) if taken_over else None

    def pack(self) -> Any:
        """Pack it as one value of a state: as JSON where it can be, since DCP takes dicts apart."""
        if self.at_start and not any(worker.state is not None or worker.counts for worker in self.workers):
            return ""
        whole = {"turn": self.turn, "workers": [worker.pack() for worker in self.workers], "rank": self.rank}
        with suppress(TypeError, ValueError):
            text = json.dumps(whole)
            if json.loads(text) == whole:  # a dataset's state may hold tuples, and keys that are no strings
                return text
        return whole

    @classmethod
    def unpack(cls, packed: Any, position: Position, num_workers: int) -> Snapshot:
        """Unpack the value of `pack`; "" is the start of an epoch.

        Args:
            packed: the value.
            position: the state's position.
            num_workers: the number of workers here, at least 1.

        Raises:
            StateMismatchError: it is none, it does not fit the position, or another number of workers can't go on.
        """
        whole = packed
        with suppress(ValueError):
            whole = (json.loads(packed) if packed else None) if isinstance(packed, str) else packed
        if whole is None and (position.finished or not position.samples_seen):
            # At the start of an epoch all workers stand at the start, whatever became of the pass before.
            return cls(0, (Standing(loaded=True),) * num_workers, None)
        packed_workers = whole.get("workers") if isinstance(whole, Mapping) else None
        workers = [Standing.unpack(worker) for worker in packed_workers] if isinstance(packed_workers, list) else []
        standings = tuple(worker for worker in workers if worker is not None)
        if not standings or len(standings) != len(workers):
            raise StateMismatchError(f"iterable: expected where its workers stand, got {whole!r:.100}")
        turn = whole.get("turn")
        if type(turn) is not int or not 0 <= turn < len(workers):
            raise StateMismatchError(f"iterable: expected a turn in [0, {len(workers)}), got {turn!r:.100}")
        if "rank" not in whole:
            raise StateMismatchError(f"iterable: expected the rank, or None, got {whole!r:.100}")
        found = cls(turn, standings, whole["rank"])
        return found if len(workers) == num_workers else found.resized(num_workers)

    def unverified(self) -> Snapshot:
        """Go on without making sure that a replay gives the same samples."""
        return self._replace(workers=tuple(worker._replace(digest="") for worker in self.workers))

    def resized(self, num_workers: int) -> Snapshot:
        """Go on with another number of workers.

        Where workers share the iterable sample by sample, the new ones begin at the first sample that is missing, and
        pass over those that the old ones took after it.

        Raises:
            StateMismatchError: the workers' states can't be shared out anew.
        """
        workers = self.workers
        if self.at_start:
            # The same for all, or else the dataset's own start.
            same = all(_same(worker, workers[0]) for worker in workers)
            return Snapshot(0, (workers[0] if same else Standing(loaded=True),) * num_workers, self.rank)
        own = self.rank is not None or any(worker.asked for worker in workers)
        unknown = any(not worker.at_start and worker.asked is None for worker in workers)
        if own or unknown or any(worker.done for worker in workers):
            why = (
                "its workers took over from another number of workers" if any(worker.done for worker in workers)
                else "the dataset shares itself among workers"
            )  # fmt: skip
            raise StateMismatchError(
                f"num_workers: expected {num_workers}, got {len(workers)}: {why}, so in the middle of an epoch the "
                f"state needs as many workers as it has: write num_workers={len(workers)} for the rest of this epoch"
            )
        running = [worker for worker in workers if not worker.ended]
        if not running:
            return Snapshot(0, (workers[0],) * num_workers, None)
        first = min(running, key=lambda worker: worker.taken)
        done = tuple(_ALL if worker.ended else worker.taken for worker in workers)
        standing = first._replace(done=() if len(set(done)) == 1 else done)
        return Snapshot(0, (standing,) * num_workers, None)


def _same(one: Standing, other: Standing) -> bool:
    try:
        return bool(one == other)
    except (ValueError, RuntimeError):  # arrays in the states
        return False
