"""Clocks that say what a loader's threads do, and for how long.

Each thread of a loader, and the caller's while it is inside `next`, has a clock.  It stands on one stage at a time, and
`switch` moves it to another one: all the time of a thread is some stage's.  A switch costs less than a microsecond, and
a batch has about fifteen, so clocks always run.

Their ranges show in a user's `torch.profiler`, where it looks at all threads, and on a GPU in NVTX.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch.autograd import profiler

STAGES = (
    *("idle", "step", "start", "wait", "form"),
    *("order", "storage", "header", "parameters", "decode", "transform", "collate", "copy", "repair"),
    *("input", "room"),
)
"""The stages by their numbers:

    idle        no pass is open, or no one knows
    step        the caller's code between two batches: the training step
    start       a pass begins: DALI is imported, workers and pipelines start, the first batch is made
    wait        the caller waits for the loader
    form        the caller's thread makes the user's form of a batch, and calls collate_fn and batch_transform
    order       which samples come
    storage     samples are read, or Python code makes them
    header      the headers of image files are read; files that DALI can't read are decoded
    parameters  random numbers are drawn, boxes and points moved
    decode      DALI's operators
    transform   torch's and our own kernels
    collate     batches are put together
    copy        batches are copied to the GPU, or to pinned memory
    repair      a batch that failed is made again
    input       a thread waits for the one before it
    room        a thread waits for the consumer: its queue is full
"""
IDLE, STEP, START, WAIT, FORM = range(5)
ORDER, STORAGE, HEADER, PARAMETERS, DECODE, TRANSFORM, COLLATE, COPY, REPAIR = range(5, 14)
INPUT, ROOM = 14, 15

EVENTS = 4096  # that a clock remembers: those of about a thousand batches
SHORTEST = 2e-5  # seconds; what took less time is counted, and is no event
ENDED = 8  # clocks whose events are remembered after their end
_CALLERS = frozenset([IDLE, STEP])  # the caller's own code runs: it has ranges of its own

Event = tuple[int, float, float]
"""A stage, its begin by `time.perf_counter`, and its seconds."""


class Clock:
    """The clock of one thread.

    Attributes:
        name: the thread's name.
        stage: the number of the stage that it stands on.
        since: when it was moved there.
        seconds: the seconds of all stages, by their numbers.
        events: the last stages that it stood on.
        recorder: all of the loader.
        held: it does not move.
    """

    __slots__ = ("_nvtx", "_range", "events", "held", "name", "recorder", "seconds", "since", "stage")

    def __init__(self, name: str, recorder: Recorder) -> None:
        self.name, self.recorder = name, recorder
        self.stage, self.since = IDLE, perf_counter()
        self.seconds = [0.0] * len(STAGES)
        self.events: deque[Event] = deque(maxlen=EVENTS)
        self.held = False
        self._range: Any = None  # of torch's profiler
        self._nvtx = False

    def switch(self, stage: int) -> int:
        """Move to a stage; give the one before."""
        before = self.stage
        if stage == before or self.held:
            return before
        now = perf_counter()
        spent = now - self.since
        self.seconds[before] += spent
        if spent > SHORTEST and before:  # not idle
            self.events.append((before, self.since, spent))
        self.stage, self.since = stage, now
        if profiler._is_profiler_enabled or self._range is not None or self.recorder.nvtx:
            self._mark(stage)
        return before

    def _mark(self, stage: int) -> None:
        """End the range of the stage before, and begin this one's, for profilers."""
        before, self._range = self._range, None
        if before is not None:
            before.__exit__(None, None, None)
        if self._nvtx:
            torch.cuda.nvtx.range_pop()  # type: ignore[no-untyped-call]
        self._nvtx = False
        if stage in _CALLERS:
            return
        name = f"torchdali.{STAGES[stage]}"
        if profiler._is_profiler_enabled:
            self._range = profiler.record_function(name)
            self._range.__enter__()
        if self.recorder.nvtx:
            torch.cuda.nvtx.range_push(name)  # type: ignore[no-untyped-call]
            self._nvtx = True


class Worked(NamedTuple):
    """A task of a worker process: the worker's number, its begin by `time.perf_counter`, and its seconds."""

    worker: int
    begin: float
    seconds: float


class Queue:
    """The finished works that were found in a queue, each time that one was taken.

    Attributes:
        taken: the number of times.
        found: the sum of what was found.
        size: the most that it holds.
    """

    def __init__(self, size: int) -> None:
        self.taken, self.found, self.size = 0, 0, size


class Recorder:
    """All clocks of a loader, and what it counts.

    It has no lock, which a fork could copy while it is held: each step is atomic.

    Attributes:
        counts: by these names: "batches", "samples", "passes", "bytes", "pillow", "repairs", "substitutes", "skipped".
        queues: by the names of the threads that fill them.
        worked: the last tasks of worker processes.
        worker_seconds: of all tasks, by the workers' numbers.
        nvtx: NVIDIA's profilers are to see the stages.
    """

    def __init__(self) -> None:
        self._clocks: list[Clock] = []
        self.nvtx = False
        self.reset()

    def reset(self) -> None:
        """Begin anew; clocks that run go on from here."""
        self._ended: dict[str, list[float]] = {}
        self._last: deque[Clock] = deque(maxlen=ENDED)
        self.counts: defaultdict[str, int] = defaultdict(int)
        self.queues: dict[str, Queue] = {}
        self.worked: deque[Worked] = deque(maxlen=EVENTS)
        self.worker_seconds: dict[int, float] = {}
        for clock in self._clocks:
            clock.seconds = [0.0] * len(STAGES)
            clock.events.clear()
            clock.since = perf_counter()

    def begin(self, name: str) -> Clock:
        """Make a clock for a thread."""
        clock = Clock(name, self)
        self._clocks.append(clock)
        return clock

    def end(self, clock: Clock) -> None:
        """Take a clock back; what it has counted stays.  Any thread may call it, once or more."""
        try:
            self._clocks.remove(clock)
        except ValueError:
            return
        own = self._ended.setdefault(clock.name, [0.0] * len(STAGES))
        for stage, seconds in enumerate(_seconds(clock)):
            own[stage] += seconds
        self._last.append(clock)

    def seconds(self) -> dict[str, list[float]]:
        """Give the seconds of all stages up to now, by the names of the threads."""
        found = {name: list(seconds) for name, seconds in list(self._ended.items())}
        for clock in list(self._clocks):
            own = found.setdefault(clock.name, [0.0] * len(STAGES))
            for stage, seconds in enumerate(_seconds(clock)):
                own[stage] += seconds
        return found

    def events(self) -> list[tuple[str, Event]]:
        """Give the last events, each with the name of its thread."""
        clocks = (*list(self._last), *list(self._clocks))
        return [(clock.name, event) for clock in clocks for event in list(clock.events)]


def _seconds(clock: Clock) -> list[float]:
    """Give the seconds of a clock, with those of the stage that it stands on; the caller may never come back."""
    seconds, stage = list(clock.seconds), clock.stage
    if stage not in _CALLERS:
        seconds[stage] += max(perf_counter() - clock.since, 0.0)
    return seconds


class _Here(threading.local):
    """The clock of this thread; outside any loader, one that does not move."""

    def __init__(self) -> None:
        self.clock = Clock("", Recorder())
        self.clock.held = True


_here = _Here()


def switch(stage: int) -> int:
    """Move this thread's clock to a stage; give the one before."""
    return _here.clock.switch(stage)


def count(name: str, number: int = 1) -> None:
    """Count for the loader whose thread this is."""
    _here.clock.recorder.counts[name] += number


def found(queue: str, number: int, size: int) -> None:
    """Note how many finished works were in a queue when one was taken."""
    queues = _here.clock.recorder.queues
    noted = queues.get(queue) or queues.setdefault(queue, Queue(size))
    noted.taken += 1
    noted.found += number


def worked(worker: int, begin: float, seconds: float) -> None:
    """Note a task of a worker process: its number, when it began by `time.perf_counter`, and its seconds."""
    recorder = _here.clock.recorder
    recorder.worked.append(Worked(worker, begin, seconds))
    recorder.worker_seconds[worker] = recorder.worker_seconds.get(worker, 0.0) + seconds


def take_over(clock: Clock, stage: int, hold: bool = False) -> Clock:
    """Make a clock this thread's, and move it to a stage; give the thread's clock before, for `give_back`.

    Args:
        clock: the clock.
        stage: the stage.
        hold: it stays there until `give_back`, whatever is called.
    """
    before, _here.clock = _here.clock, clock
    clock.switch(stage)
    clock.held = hold
    return before


def give_back(before: Clock, stage: int) -> None:
    """Move this thread's clock to a stage, and put back the one before."""
    _here.clock.held = False
    _here.clock.switch(stage)
    _here.clock = before


@contextmanager
def staying(stage: int) -> Iterator[None]:
    """Count all of the block as one stage, whatever it calls."""
    clock = _here.clock
    held, before, clock.held = clock.held, clock.switch(stage), True
    try:
        yield
    finally:
        clock.held = held
        clock.switch(before)
