"""An exception on its way from a worker to the pool."""

from __future__ import annotations

import builtins
import os
import pickle
import traceback
from dataclasses import dataclass

from .protocol import Codec, Foreign


@dataclass(frozen=True)
class Failure:
    """An exception in a form that always travels.

    Attributes:
        data: the pickled exception; None where it does not come back from its pickled form.
        stand_in: its nearest built-in class, which takes its place then.
        text: its type and message.
        trace: the worker's traceback, headed by the worker, its task and its sample.
        index: the sample that the worker was on, or None.
    """

    data: bytes | None
    stand_in: type[Exception]
    text: str
    trace: str
    index: int | None = None

    @classmethod
    def of(cls, error: Exception, codec: Codec, worker: int, task: int | None, index: int | None) -> Failure:
        """Make the form of an exception that the calling frame caught, in worker number `worker`."""
        own = error.__traceback__
        lines = traceback.format_exception(type(error), error, own and own.tb_next)
        where = f"worker {worker} (pid {os.getpid()})"
        where += "" if task is None else f", task {task}"
        where += "" if index is None else f", sample {index}"
        text = f"{type(error).__qualname__}: {error}"
        trace = f"In {where}:\n{''.join(lines)}".rstrip()
        return cls(_dumps(error, codec), _stand_in(error), text, trace, index)

    def short(self) -> Failure:
        """Cut it down to little memory."""
        return Failure(None, self.stand_in, self.text[:2000], self.trace[-4000:], self.index)

    def revive(self) -> Exception:
        """Make the exception again, with the worker's traceback as a note."""
        error: Exception | None = None
        if self.data is not None:
            try:
                error = pickle.loads(self.data)
            except Exception:
                error = None  # only the worker can import its class
        if error is None:
            error = self.stand_in(self.text)
        error.add_note(self.trace)
        return error


def _dumps(error: Exception, codec: Codec) -> bytes | None:
    # Plain pickle first: classes come back as themselves.  The codec is for classes of a script or a notebook.
    for wrap in (lambda: error, lambda: Foreign.of(error, codec)):
        try:
            data = pickle.dumps(wrap())
            if type(pickle.loads(data)) is type(error):
                return data
        except Exception:
            continue
    return None


def _stand_in(error: Exception) -> type[Exception]:
    for cls in type(error).__mro__[:-2]:  # below BaseException
        found: type[Exception] | None = getattr(builtins, cls.__name__, None)
        if found is cls and cls is not Exception:
            try:
                cls("")
            except TypeError:  # such as UnicodeDecodeError
                continue
            return found
    return RuntimeError
