"""The entry of the command line: Ctrl-C at any time is one line and exit code 130.

It imports the rest inside `main`, where a Ctrl-C is already caught.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` names (None: the process's arguments) and give the exit code.

    0: all is well; 1: the command found faults in the data; 2: wrong input; 130: Ctrl-C.
    """
    try:
        from .frame import run

        return run(sys.argv[1:] if argv is None else list(argv))
    except KeyboardInterrupt:
        if argv is None:
            _end_at_next_signal()
        sys.stderr.write("torchdali: interrupted\n")
        return 130
    except BrokenPipeError:  # the reader of our output has gone, such as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python writes what is left, and fails
        return 1
    finally:
        if argv is None:
            _end_at_next_signal()


def _end_at_next_signal() -> None:
    """Let a Ctrl-C while Python ends end the process at once, without the traceback of a thread or an exit handler."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
