"""Where a loader stands: positions, the state that goes into a checkpoint, and which epoch comes next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .errors import StateMismatchError
from .summary import shown

VERSION = 3
OLDER = (1, 2)  # versions whose positions mean the same
MAX_EPOCH = 2**31 - 1  # and of cycles: both fit one 64-bit key

MAX_SAMPLES = 2**62  # of an epoch of unknown length


class Position(NamedTuple):
    """A place in the stream.

    Attributes:
        epoch: the epoch.
        cycle: how often this epoch was begun before.  It counts only where the caller sets the epochs by `set_epoch`
            and iterates twice without it; each cycle is another order.
        samples_seen: samples of the epoch handed over so far, over all ranks.
        finished: the pass over the epoch was completed, so that the next one begins the next epoch.
        snapshot: where the source stands here, if `samples_seen` does not say it (see `source.Source.pack`).  Its
            `next_epoch()` is what the start of the next epoch takes over from it.
    """

    epoch: int = 0
    cycle: int = 0
    samples_seen: int = 0
    finished: bool = False
    snapshot: Any = None

    @property
    def key(self) -> int:
        """The key of this pass: its order and random numbers are derived from it."""
        return self.cycle * 2**32 + self.epoch


def pack(position: Position, fingerprint: Mapping[str, int | str]) -> dict[str, Any]:
    """The state: flat, plain values, always the same keys, nothing of the rank in it."""
    return {"version": VERSION, **{name: getattr(position, name) for name in _PLAIN}, **fingerprint}


_PLAIN = ("epoch", "cycle", "samples_seen", "finished")  # what a state holds of every position


def unpack(state: Any, fingerprint: Mapping[str, int | str], strict: bool = True) -> Position:
    """The position in a state that belongs to this stream.

    Args:
        state: what `pack` gave, perhaps by way of JSON or `torch.load`.
        fingerprint: this loader's, compared with the state's.
        strict: False accepts another fingerprint, and a state of version 1, whose order goes on with other
            augmentations; the numbers must still be possible here.

    Raises:
        StateMismatchError: one line for each difference.
        TypeError: not a mapping.
    """
    if not isinstance(state, Mapping):
        raise TypeError(f"a loader's state is a dict, got {type(state).__name__}")
    n = int(fingerprint["num_samples"])
    limits = {"epoch": MAX_EPOCH, "cycle": MAX_EPOCH, "samples_seen": n if n >= 0 else MAX_SAMPLES}
    lines = []
    for name, expected in pack(Position(), fingerprint).items():
        value = state.get(name)
        if name not in state:
            lines.append(f"{name}: missing")
        elif name in limits:
            if type(value) is not int or not 0 <= value <= limits[name]:
                lines.append(f"{name}: expected an integer in [0, {limits[name]}], got {shown(value)}")
        elif name == "finished":
            if type(value) is not bool:
                lines.append(f"{name}: expected True or False, got {shown(value)}")
        elif name == "version" and type(value) is int and value in OLDER:
            if strict:
                lines.append(_changed(value))
        elif (strict or name == "version") and (type(value) is not type(expected) or value != expected):
            lines.append(f"{name}: expected {expected!r}, got {shown(value)}")
    known = {*_PLAIN, "version", *fingerprint}
    unknown = [name for name in state if not isinstance(name, str) or name not in known]
    lines += [f"{shown(name)}: not a key of version {VERSION}" for name in unknown[:10]]
    if len(unknown) > 10:
        lines.append(f"and {len(unknown) - 10} more such keys")
    if lines:
        raise StateMismatchError("this state does not belong to this loader:\n  " + "\n  ".join(lines))
    return Position(*(state[name] for name in _PLAIN))


_CHANGED = {
    1: "whose transforms drew other random numbers, and whose native readers with window shuffling had another order",
    2: "in which other samples took the place of bad ones, and iterables kept no digest of their state",
}
"""What changed after each version."""


def _changed(version: int) -> str:
    return (
        f"version: expected {VERSION}, got {version}, {_CHANGED[version]}: finish the run with the release that it was "
        "begun with, or write load_state_dict(state, strict=False) to go on from its position with other augmentations"
    )


class Progress:
    """Which epoch the next pass is, and where it starts.

    `set_epoch`, a loaded state, an early break and a finished pass all end in `begin`, which is called when an iterator
    is asked for its first batch: until then nothing is decided, so trainers may call `iter`, `set_epoch` and
    `load_state_dict` in any order.
    """

    def __init__(self) -> None:
        self._next = Position()  # where the next pass starts, as far as it is decided
        self._live: Position | None = None  # after the last batch of the last pass
        self._loaded: Position | None = None  # by load_state_dict, not begun yet
        self._explicit = False  # the caller counts the epochs
        self._set = False  # `_next` is an epoch that set_epoch named, not begun yet
        self._again = (
            False  # set_epoch named the running epoch: if that is broken off, the next pass is a new one of it
        )
        self._pass = 0  # the pass that may still move the position

    @property
    def position(self) -> Position:
        """The position that a state taken now describes."""
        return self._loaded or self._live or self._next

    @property
    def current(self) -> Position:
        """The same, but where a pass is finished, the start of the next one."""
        return self.upcoming if self.position.finished else self.position

    @property
    def epoch(self) -> int:
        """The epoch of the pass in progress; between passes, the next one's."""
        return self.current.epoch

    def set_epoch(self, epoch: int) -> None:
        """Start the next pass at the start of this epoch; a loaded state of the same epoch is continued instead.

        The state follows a pass that is still open, if it hands over more batches.
        """
        if isinstance(epoch, bool) or not isinstance(epoch, int) or not 0 <= epoch <= MAX_EPOCH:
            raise ValueError(f"epoch must be an integer in [0, {MAX_EPOCH + 1}), got {epoch!r}")
        self._explicit = True
        if self._loaded is not None and self._loaded.epoch == epoch:
            # A trainer that counts its epochs asks for the rest of this one, be it nothing.
            self._loaded = self._loaded._replace(finished=False)
            return
        if self._loaded is None and self._live is not None and self._live.epoch == epoch and not self._live.finished:
            # A trainer that has fetched a batch already says so afterwards: the pass that runs still counts.
            self._again, self._set = True, False
            return
        self._next, self._set = _start(self._loaded or self._live or self._next, epoch), True
        self._loaded = self._live = None

    def load(self, position: Position) -> None:
        """Start the next pass here; the pass that was begun last goes on here too, if it is still open."""
        self._loaded, self._set = position, False

    def loaded(self, number: int) -> Position | None:
        """The position at which an open pass has to go on, since it was loaded after the pass began; else None."""
        return self._loaded if number == self._pass else None

    def stands(self, number: int) -> Position | None:
        """The position to which a pass has moved; None where another one, or what was loaded or set, counts."""
        return self._live if number == self._pass and self._loaded is None else None

    @property
    def upcoming(self) -> Position:
        """The position where `begin` would start."""
        if self._loaded is not None:
            return self._after(self._loaded) if self._loaded.finished else self._loaded
        if self._live is not None and not self._set:
            begins_again = self._again and not self._live.finished
            return _start(self._live, self._live.epoch) if begins_again else self._after(self._live)
        return self._next

    def begin(self, at: Position | None = None) -> tuple[int, Position]:
        """Start a pass: a loaded position, an epoch that was set, or what follows the last pass.

        Args:
            at: start it here instead.

        Returns:
            The pass's number, for `move` and `loaded`, and where it starts.
        """
        start = self.upcoming if at is None else at
        self._loaded, self._live, self._again, self._set = None, start, False, False
        self._pass += 1
        return self._pass, start

    def move(self, number: int, position: Position) -> None:
        """Follow a pass that handed over a batch, or ended.  Of several open passes, the one begun last counts."""
        if number == self._pass:
            self._live = position

    def _after(self, position: Position) -> Position:
        if self._explicit:
            return _start(position, position.epoch, position.cycle + 1)
        return _start(position, position.epoch + 1)


def _start(after: Position, epoch: int, cycle: int = 0) -> Position:
    """The start of an epoch, after a position of another one."""
    return Position(epoch, cycle, snapshot=after.snapshot and after.snapshot.next_epoch())
