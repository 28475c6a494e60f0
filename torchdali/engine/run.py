"""One pass over (the rest of) an epoch: the stages, in threads or in the caller's."""

from __future__ import annotations

import atexit
import contextlib
import functools
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from .. import _dali
from ..buffers import Pool
from ..clock import COLLATE, DECODE, IDLE, INPUT, REPAIR, START, Recorder, count, give_back, staying, switch, take_over
from ..collate import Padding
from ..errors import LoaderTimeoutError, interruption, leave_frame, let_through, of_memory
from ..options import OnBadSample
from ..order import Step
from ..prefetch import LateError, Prefetcher
from ..source import Pass, Source
from ..watchdog import Busy, Watch, report
from .eager import Eager
from .fetch import Fetcher
from .host import HostStage
from .plan import Plan
from .repair import Repair
from .shelf import Shelf, close_all
from .traced import Traced
from .work import Work

JOIN_TIMEOUT = 30.0  # seconds; a stage ends with the batch that it is working on
LATE_TIMEOUT = 3.0  # of a pass for which the caller has waited too long already

_open: weakref.WeakSet[Run] = weakref.WeakSet()


@functools.cache
def _close_before_dali() -> None:
    """At the interpreter's exit, end all runs, and what lies on shelves, before DALI takes its pipelines down.

    Exit functions run in the reverse order of their registration: ours has to come after DALI's, which is registered
    when DALI is imported.
    """
    _dali.check_dali()
    atexit.register(_close_all)


def _close_all() -> None:
    for run in list(_open):
        run.close()
    close_all()


@dataclass(frozen=True)
class Settings:
    """Everything that a run needs to know; resolved by the loader, nothing is looked up below it."""

    source: Source
    pass_: Pass
    plan: Plan
    engine: str  # "eager", "pipeline" or "debug"
    prefetch: int
    padding: Padding
    memory_format: torch.memory_format | None
    policy: OnBadSample
    max_pixels: int | None
    recorder: Recorder  # of the loader's clocks
    shelf: Shelf


class Run:
    """The works of some steps, finished, in order.

    fetch -> device part -> host part, each in a thread of its own where batches are prefetched.  DALI's objects are
    made and used in the thread of their stage, and what is dear to make comes from the shelf and goes back to it.
    """

    def __init__(self, settings: Settings, steps: Iterable[Step]) -> None:
        s, pass_ = settings, settings.pass_
        inline = s.prefetch == 0 or s.engine == "debug" or s.source.inline
        self.closed, self._late = False, False
        self._device, self._recorder = pass_.device, s.recorder
        self._busy = Busy(pass_.start)
        self._watch: Watch | None = None
        self._watched = s.source.watched
        self._cancel: Callable[[], None] | None = None
        fetcher = Fetcher(s.source, pass_, s.plan, s.max_pixels)
        workers = 0 if s.engine == "debug" else pass_.num_threads
        self._cancel, self._reading = fetcher.reading.cancel, fetcher.reading
        pool: Pool = s.shelf.take("pool") or Pool()
        host = HostStage(fetcher, pass_.device, workers, s.padding, s.memory_format, pool)

        def make_session() -> _dali.Session:
            return _dali.Session(pass_.num_threads, pass_.device, s.engine == "debug", pass_.stream)

        def make_eager(session: _dali.Session | None = None) -> Eager:
            return Eager(session or make_session(), fetcher, host.finish, host.each, inline=inline)

        # The stages hold these parts, and not the run: it can be collected while they work.
        busy = self._busy
        repair = Repair(fetcher, host, make_eager, s.policy, s.engine == "debug")

        def fetch() -> Iterator[Work]:
            return fetcher.works(steps, busy)

        def decode(works: Iterator[Work]) -> Iterator[Work]:
            return on_dali(works) if s.plan.on_dali else works

        def on_dali(works: Iterator[Work]) -> Iterator[Work]:
            with s.shelf.lend("session", make_session) as session:
                eager = make_eager(session)
                if s.engine == "pipeline":
                    # One more than a batch: see `order.Epoch.cut` for batches of one.
                    largest = pass_.batch_size + (pass_.batch_size == 1)
                    yield from Traced(eager, largest, pass_.num_threads, s.shelf)(works)
                else:
                    yield from _each(works, eager, "decode", busy)

        def finish(works: Iterator[Work]) -> Iterator[Work]:
            try:
                for work in _each(works, host, "transform", busy):
                    if work.error is not None:
                        count("repairs")
                        with staying(REPAIR):
                            repair(work)
                    work.read = work.columns = {}
                    if work.release is not None:
                        work.release()
                    yield work
            finally:
                # The last stage to end, in its own thread.
                host.close()
                s.shelf.put("pool", pool)
                fetcher.reading.close()

        _open.add(self)
        if s.plan.on_dali or s.plan.peeks or s.source.uses_dali:
            _close_before_dali()
        self._stages: list[Prefetcher[Work]] = []
        # Where Ctrl-C comes before anyone knows this run, its threads end with it.
        weakref.finalize(self, _stop, self._stages)
        self._last: Iterator[Work] | Prefetcher[Work]
        if inline:
            self._last = finish(decode(fetch()))
            return
        try:
            if s.plan.empty or (s.source.ready and not s.plan.on_dali):
                # There is only reading to do, or hardly any: one thread needs the interpreter to itself, and two would
                # wait for each other.
                self._last = self._start(lambda: finish(fetch()), s.prefetch, "read")
                return
            first = self._start(fetch, 1, "read")
            # Without host part the last stage is only a hand-over, which the second thread can do.
            if not (s.plan.on_dali and s.plan.host_steps):
                self._last = self._start(lambda: finish(decode(first)), s.prefetch, "decode")
                return
            # The first batch comes sooner while the next ones are not decoded on the same cores.
            second = self._start(lambda: decode(first), 1, "decode", gently=True)
            self._last = self._start(lambda: finish(second), s.prefetch, "transform")
        except BaseException:  # the system gives no thread, or Ctrl-C
            _stop(self._stages)
            fetcher.reading.close()
            raise

    def _start(
        self, source: Callable[[], Iterator[Work]], depth: int, name: str, gently: bool = False
    ) -> Prefetcher[Work]:
        begin = functools.partial(_begin, self._device, self._recorder, name, source)
        stage = Prefetcher(begin, depth, f"torchdali-{name}", gently)
        self._stages.append(stage)
        stage.start()
        return stage

    @property
    def end(self) -> Any:
        """The snapshot of the epoch's end, see `source.Reading.end`."""
        return self._reading.end

    def next(self, timeout: float | None) -> Work:
        """The next work.

        Raises:
            StopIteration: there is none.
            RuntimeError: the run is closed.
            LoaderTimeoutError: none came within `timeout` seconds.
        """
        if self.closed:
            raise RuntimeError("this pass was ended by close() or by an error: call iter(loader) again")
        last = self._last
        try:
            work = self._get(last, timeout) if isinstance(last, Prefetcher) else self._make(last, timeout)
            self._late = False
            self._busy.good = work.step.end
            return work
        except StopIteration:
            raise
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) or interruption(error) is not None:
                self.closed = not isinstance(last, Prefetcher)  # it is for the caller; stages in threads go on
                raise
            if isinstance(error, LateError):
                assert timeout is not None
                reason = self._busy.late(timeout)
                report(reason)
                self._late = True
                raise LoaderTimeoutError(
                    f"{reason}.  Standard error shows where the loader's threads stand; next() waits on, and timeout= "
                    "(seconds; 0: any time) is the limit"
                ) from error
            # Errors of samples come inside works.  This one has ended a stage, and what is left of the epoch must not
            # look like its end.
            self.closed = True
            if of_memory(error):
                error.add_note("torchdali: the system has no more memory, or threads, for a stage of the loader")
            raise

    def _make(self, last: Iterator[Work], timeout: float | None) -> Work:
        """Make the next work in this thread, which can't be ended from outside: it is only said what takes so long."""
        if timeout is None:
            return next(last)
        if self._watch is None:
            self._watch = Watch(timeout, functools.partial(self._busy.late, timeout))
        with self._watch:
            return next(last)

    def _get(self, last: Prefetcher[Work], timeout: float | None) -> Work:
        while True:
            try:
                return last.get(timeout)
            except LateError:
                # A pool of workers watches each sample itself, and a batch may take many times as long.
                if not self._watched or timeout is None or self._busy.stuck(timeout):
                    raise

    def close(self) -> None:
        """End all threads and give back what they hold; may be called twice, and from any thread."""
        self.closed = True
        if self._watch is not None:
            self._watch.join()
        _stop(self._stages)
        if self._cancel is not None:
            self._cancel()
        if not self._stages and hasattr(self._last, "close"):
            with contextlib.suppress(ValueError):  # another thread is inside, and ends the pass at its next step
                self._last.close()
        if threading.current_thread().name.startswith("torchdali"):
            # A garbage collection in one of our threads: it may hold what the others wait for.  They end by themselves.
            return
        limit = min(JOIN_TIMEOUT, LATE_TIMEOUT) if self._late else JOIN_TIMEOUT
        deadline = time.monotonic() + limit
        left = [stage for stage in list(self._stages) if not stage.join(max(0.0, deadline - time.monotonic()))]
        self._stages.clear()  # what is left is not waited for again
        if left:
            names = ", ".join(stage.thread.name for stage in left)
            reason = f"{names} did not end within {limit:g} s, and {self._busy}: it is left to end by itself"
            report(reason, [stage.thread for stage in left])
            warnings.warn(reason, RuntimeWarning, stacklevel=2)


def _stop(stages: list[Prefetcher[Work]]) -> None:
    for stage in stages:
        stage.stop()


def _begin(device: torch.device, recorder: Recorder, name: str, source: Callable[[], Iterator[Work]]) -> Iterator[Work]:
    """Begin a stage in its thread."""
    clock = recorder.begin(name)
    before = take_over(clock, START)
    try:
        _dali.stay_on_device(device)
        works = source()
        with staying(START):
            first = next(works, None)
        switch(INPUT)
        if first is not None:
            yield first
            del first  # not kept while the next ones are made
            yield from works
    finally:
        give_back(before, IDLE)
        recorder.end(clock)


def _each(works: Iterator[Work], stage: Callable[[Work], None], name: str, busy: Busy) -> Iterator[Work]:
    """Apply a stage to works; one that fails carries its error on."""
    for work in works:
        if work.error is None:
            busy.begin(name, work.step.start)
            before = switch(DECODE if name == "decode" else COLLATE)
            try:
                stage(work)
            except Exception as error:
                let_through(error)
                work.error = leave_frame(error)
            switch(before)
            busy.done(name)
        yield work
