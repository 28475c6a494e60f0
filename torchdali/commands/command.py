"""The form of a command, and the error for wrong input."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from ..errors import let_through


class UsageError(Exception):
    """Wrong input, said in one sentence; the command ends with exit code 2."""


class Command(Protocol):
    """A module of this package that is a command: its name is the module's, and its description the module's docstring.

    Attributes:
        SUMMARY: what it does, in a few words, for the list of commands.
    """

    SUMMARY: str
    __name__: str
    __doc__: str | None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's own arguments; `--json` is there already."""

    # A command that takes a recipe's config has a function `passes_on(arguments)` too: whether options that are not
    # its own belong to the recipe.  They are in `arguments.more`.

    def run(self, arguments: argparse.Namespace) -> int:
        """Run the command and give its exit code: 0, or 1 where it found faults.

        Raises:
            UsageError: wrong input.
        """


@contextmanager
def wrong_input(what: str = "") -> Iterator[None]:
    """Turn errors about the user's files in a block into a `UsageError`, which begins with `what`."""
    try:
        yield
    except (OSError, ValueError, TypeError, ImportError, RecursionError, IndexError) as error:
        let_through(error)
        text = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(f"{what}{': ' if what else ''}{' '.join(text.split())}") from error


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """Add `--jobs`, the number of processes; see `jobs_of`."""
    parser.add_argument("--jobs", type=positive, metavar="N", help="processes (default: one per core)")


def jobs_of(arguments: argparse.Namespace) -> int:
    """Give the number of processes: by default one per core that this process may use, also in a container.

    Raises:
        UsageError: a variable of the environment that sets the cores is no number.
    """
    if arguments.jobs is not None:
        return int(arguments.jobs)
    from ..distributed import default_num_threads

    with wrong_input():
        return default_num_threads()


def add_index_dir(parser: argparse.ArgumentParser) -> None:
    """Add `--index-dir`, the folder of cached indexes."""
    where = "folder of indexes (default: ~/.cache/torchdali/index)"
    parser.add_argument("--index-dir", metavar="DIR", help=where)


def positive(text: str) -> int:
    """Parse an integer of at least 1, for argparse."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"an integer of at least 1 was expected, got {text!r}")
    return number
