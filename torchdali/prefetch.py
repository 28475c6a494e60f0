"""A bounded queue and the thread that fills it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from .clock import INPUT, ROOM, found, switch
from .waits import parts

T = TypeVar("T")


class LateError(TimeoutError):
    """No item came in time: other ones, such as a socket's, are errors of the source."""


class Prefetcher(Generic[T]):
    """Iterates over a source in a thread of its own, `depth` items ahead.

    The thread lives until the items end or the prefetcher is stopped.  It holds nothing but the source and the queue,
    so that the prefetcher's owner can be collected while the thread works.  The source is iterated and closed in that
    thread alone.

    Args:
        source: gives the iterator; called in the thread.
        depth: the largest number of finished items that wait.
        name: the thread's name.
        gently: begin the second item only when it is asked for: until then the first one's consumer has the cores.

    Attributes:
        thread: fills the queue.
    """

    def __init__(self, source: Callable[[], Iterator[T]], depth: int, name: str, gently: bool = False) -> None:
        self._items: deque[T] = deque()
        self._changed = threading.Condition()  # re-entrant: a garbage collection inside may close us
        self._depth, self._gently = depth, gently
        self._asked = 0  # times
        self._closed = self._ended = False
        self._failure: BaseException | None = None
        # A daemon: the interpreter would wait for others before it runs the finalizers that end them.
        self.thread = threading.Thread(target=self._produce, args=(source,), name=name, daemon=True)

    def start(self) -> None:
        """Start the thread; its owner knows it by now, and can stop it if Ctrl-C comes in here."""
        self.thread.start()

    def _produce(self, source: Callable[[], Iterator[T]]) -> None:
        failure: BaseException | None = None
        try:
            iterator = source()
            try:
                for item in iterator:
                    if not self._put(item):
                        break
                    del item  # not kept while the next one is made
            finally:
                close = getattr(iterator, "close", None)
                if close is not None:
                    close()
        except BaseException as error:
            failure = error
        with self._changed:
            self._failure, self._ended = failure, True
            self._changed.notify_all()

    def _put(self, item: T) -> bool:
        with self._changed:
            if len(self._items) >= self._depth:
                before = switch(ROOM)
                self._changed.wait_for(lambda: self._closed or len(self._items) < self._depth)
                switch(before)
            if not self._closed:
                self._items.append(item)
                self._changed.notify_all()
            if self._gently:
                before = switch(ROOM)
                self._changed.wait_for(lambda: self._closed or self._asked > 1)
                switch(before)
                self._gently = False
            return not self._closed

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        before = switch(INPUT)
        try:
            return self.get(None)
        finally:
            switch(before)

    def get(self, timeout: float | None) -> T:
        """Return the next item.

        Raises:
            StopIteration: there is none, or the prefetcher is closed.
            LateError: none came within `timeout` seconds.
        """
        with self._changed:
            self._asked += 1
            if self._gently:
                self._changed.notify_all()
            found(self.thread.name, len(self._items), self._depth)
            for part in [None] if timeout is None else parts(timeout):
                if self._changed.wait_for(lambda: self._items or self._ended or self._closed, part):
                    break
            else:
                raise LateError
            if self._items and not self._closed:
                item = self._items.popleft()
                self._changed.notify_all()
                return item
            failure, self._failure = self._failure, None
        if failure is not None and not self._closed:
            raise failure
        raise StopIteration

    def stop(self) -> None:
        """Tell the thread to end, without waiting for it."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()

    def join(self, timeout: float) -> bool:
        """Wait for the thread's end; False where it did not come within `timeout` seconds.  Any thread may call it."""
        if self.thread is not threading.current_thread() and self.thread.ident is not None:
            self.thread.join(timeout)
        return not self.thread.is_alive()
