"""The snapshot of an iterable: where its workers stand."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple, Self

from ..errors import StateMismatchError
from ..state import Position
from ..summary import shown

_ALL = 2**62  # more samples than any iterable gives
_DIGEST = re.compile(r"\d{1,2} \w+")


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

    @property
    def numbers(self) -> list[Any]:
        """All but the dataset's own state."""
        counts = {name: f"{count:x}" for name, count in (self.counts or {}).items()}  # of any length
        return [self.taken, self.ended, self.asked, self.digest, counts, list(self.done)]

    @classmethod
    def unpack(cls, packed: Any) -> Self | None:
        """Unpack the value of `pack`; None where it is none."""
        if not isinstance(packed, Mapping) or not {"taken", "state", "ended"} <= set(packed) <= set(cls._fields[:-2]):
            return None
        done = packed.get("done", [])
        if not isinstance(done, (list, tuple)):
            return None
        standing = cls(**{**packed, "done": tuple(done), "loaded": True})
        return standing if standing._sound else None

    @property
    def _sound(self) -> bool:
        """Whether all but the dataset's own can be true."""
        return (
            all(type(number) is int and 0 <= number <= _ALL for number in (self.taken, *self.done))
            and type(self.ended) is bool
            and (self.asked is None or type(self.asked) is bool)
            and isinstance(self.digest, str)
            and (not self.digest or _DIGEST.fullmatch(self.digest) is not None)
            and (self.counts is None or _are_counts(self.counts))
        )


class Snapshot(NamedTuple):
    """Where all workers stand after a batch.

    Attributes:
        turn: the worker that makes the next batch.
        workers: where each of them stands.
        rank: [rank, world size] where only this rank can go on with it; None: any rank can.
        steps: the batches of the epoch before it on each rank; None: the number of samples tells it.
    """

    turn: int
    workers: tuple[Standing, ...]
    rank: list[int] | None
    steps: int | None = None

    @property
    def at_start(self) -> bool:
        """Whether it is the start of an epoch."""
        return all(worker.at_start for worker in self.workers)

    def next_epoch(self) -> Snapshot | None:
        """The start of the next epoch; None where it takes nothing over."""
        workers = tuple(worker.next_epoch() for worker in self.workers)
        taken_over = any(worker.state is not None or worker.counts or worker.loaded for worker in workers)
        return Snapshot(0, workers, self.rank) if taken_over else None

    def pack(self, samples_seen: int) -> Any:
        """Pack it as one value of a state: as JSON where it can be, since DCP takes dicts apart.

        Args:
            samples_seen: of the same state.
        """
        if self.at_start and not any(worker.state is not None or worker.counts for worker in self.workers):
            return ""
        whole = {
            "turn": self.turn,
            "workers": [worker.pack() for worker in self.workers],
            "rank": self.rank,
            "check": self._check(samples_seen),
        } | ({} if self.steps is None else {"steps": self.steps})
        with suppress(TypeError, ValueError, RecursionError):
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
        with suppress(ValueError, RecursionError):
            whole = (json.loads(packed) if packed else None) if isinstance(packed, str) else packed
        if whole is None and (position.finished or not position.samples_seen):
            # At the start of an epoch all workers stand at the start, whatever became of the pass before.
            return cls(0, (Standing(loaded=True),) * num_workers, None)
        packed_workers = whole.get("workers") if isinstance(whole, Mapping) else None
        workers = [Standing.unpack(worker) for worker in packed_workers] if isinstance(packed_workers, list) else []
        standings = tuple(worker for worker in workers if worker is not None)
        if not standings or len(standings) != len(workers):
            raise StateMismatchError(f"iterable: expected where its workers stand, got {shown(whole, 100)}")
        turn = whole.get("turn")
        if type(turn) is not int or not 0 <= turn < len(workers):
            raise StateMismatchError(f"iterable: expected a turn in [0, {len(workers)}), got {shown(turn, 100)}")
        if "rank" not in whole or not _is_rank(whole["rank"]):
            got = shown(whole.get("rank", whole), 100)
            raise StateMismatchError(f"iterable: expected the rank, or None, got {got}")
        steps = whole.get("steps")
        if steps is not None and (type(steps) is not int or not 0 <= steps <= _ALL):
            raise StateMismatchError(f"iterable: expected a number of steps, got {shown(steps, 100)}")
        found = cls(turn, standings, None if whole["rank"] is None else list(whole["rank"]), steps)
        found._check_position(position, whole.get("check"))
        return found if len(workers) == num_workers else found.resized(num_workers)

    def _check(self, samples_seen: int) -> str:
        """A digest of the numbers, by which a damaged state is seen: some of them can't be told from true ones."""
        numbers = [samples_seen, self.turn, self.rank, [worker.numbers for worker in self.workers]]
        numbers += [] if self.steps is None else [self.steps]
        return hashlib.blake2b(json.dumps(numbers, sort_keys=True).encode(), digest_size=8).hexdigest()

    def _check_position(self, position: Position, check: Any) -> None:
        """Compare with the rest of the state; one of an older version has no digest.

        Raises:
            StateMismatchError: they do not fit.
        """
        seen = position.samples_seen
        if check is not None and not (isinstance(check, str) and check == self._check(seen)):
            raise StateMismatchError(
                f"iterable: its numbers do not belong to samples_seen={seen}, or were changed: the state is damaged, "
                "or was put together from two"
            )
        if not position.finished and self.at_start == bool(seen):
            taken = sum(worker.taken for worker in self.workers)
            raise StateMismatchError(f"iterable: expected workers that took {seen} samples, got {taken} taken")

    def check_rank(self, rank: list[int] | None) -> None:
        """Make sure that this rank may go on with it.

        Args:
            rank: [rank, world size] where only this rank can go on with its state; else None.

        Raises:
            StateMismatchError: it is another rank's.
        """
        if self.rank != rank and not self.at_start:
            raise StateMismatchError(
                f"rank: expected {_as_words(rank)}, got {_as_words(self.rank)}: with shard='none' each rank has a "
                "state of its own"
            )

    def unverified(self) -> Snapshot:
        """Go on without making sure that a replay gives the same samples."""
        return self._replace(workers=tuple(worker._replace(digest="") for worker in self.workers))

    def without_states(self) -> Snapshot:
        """Go on by the numbers of samples alone."""
        return self._replace(workers=tuple(worker._replace(state=None, iterator=None) for worker in self.workers))

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
            return Snapshot(0, (workers[0],) * num_workers, None, self.steps)
        first = min(running, key=lambda worker: worker.taken)
        done = tuple(_ALL if worker.ended else worker.taken for worker in workers)
        standing = first._replace(done=() if len(set(done)) == 1 else done)
        return Snapshot(0, (standing,) * num_workers, None, self.steps)


def _are_counts(counts: Any) -> bool:
    return isinstance(counts, Mapping) and all(
        isinstance(name, str) and type(count) is int for name, count in counts.items()
    )


def _is_rank(rank: Any) -> bool:
    """Whether it is None, or [rank, world size]."""
    if rank is None:
        return True
    numbers = isinstance(rank, (list, tuple)) and len(rank) == 2 and all(type(number) is int for number in rank)
    return numbers and 0 <= rank[0] < rank[1]


def _as_words(rank: list[int] | None) -> str:
    return "one of all ranks" if rank is None else f"{rank[0]} of {rank[1]}"


def _same(one: Standing, other: Standing) -> bool:
    try:
        return bool(one == other)
    except (ValueError, RuntimeError):  # arrays in the states
        return False
