"""The frame of the command line: it finds the command, and turns wrong input into one sentence and exit code 2.

What a command needs to work, such as torch, it imports when it runs: a help text waits for none of it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from ..checks import nearest
from . import bench, check, index, inspect, pack, preview
from .command import Command, UsageError
from .terminal import note

COMMANDS: tuple[Command, ...] = (preview, bench, check, index, inspect, pack)


def run(argv: Sequence[str]) -> int:
    """Run the command that `argv` names, and give the exit code."""
    try:
        return _run(argv)
    except UsageError as error:
        note(f"torchdali: {error}")
        return 2


def _run(argv: Sequence[str]) -> int:
    parser, commands = _parsers()
    if argv[:1] == ["help"]:
        argv = [*argv[1:], "--help"]
    first = next((one for one in argv if not one.startswith("-")), None)
    if first is not None and first not in commands:
        raise UsageError(f"one of {', '.join(commands)} was expected, got {first!r}{nearest(first, commands)}")
    try:
        arguments, unknown = parser.parse_known_args(argv)
    except SystemExit as end:  # --help and --version
        return int(end.code or 0)
    if arguments.command is None:
        if unknown:
            raise UsageError(
                f"a command was expected, got {unknown[0]!r}{nearest(unknown[0], ('--help', '--version'))}"
            )
        parser.print_help(sys.stderr)
        return 2
    command = next(command for command in COMMANDS if _name(command) == arguments.command)
    passes_on = getattr(command, "passes_on", None)
    if hasattr(arguments, "paths"):  # argparse ends them at the first option
        more, unknown = _paths_among(unknown)
        arguments.paths += more
    arguments.more = unknown
    if unknown and passes_on is not None and passes_on(arguments):  # a recipe's option has a dot, and a value after it
        unknown = [one for one in unknown if one.startswith("-") and "." not in one.partition("=")[0]]
    if unknown:
        chosen = commands[arguments.command]
        options = [option for action in chosen._actions for option in action.option_strings]
        name = unknown[0].partition("=")[0]
        raise UsageError(f"{arguments.command} knows no argument {name!r}{nearest(name, options)}")
    code = command.run(arguments)
    sys.stdout.flush()
    return code


def _paths_among(unknown: list[str]) -> tuple[list[str], list[str]]:
    """Tell paths from options with a dot, which a value follows where they have no "="."""
    paths: list[str] = []
    options: list[str] = []
    takes_value = False
    for one in unknown:
        (options if one.startswith("-") or takes_value else paths).append(one)
        takes_value = one.startswith("--") and "." in one and "=" not in one
    return paths, options


class _Parser(argparse.ArgumentParser):
    """argparse's parser, whose errors are one sentence."""

    def error(self, message: str) -> NoReturn:
        command = self.prog.partition(" ")[2]
        raise UsageError(f"{command}: {message}" if command else message)


def _name(command: Command) -> str:
    return command.__name__.rpartition(".")[2]


def _parsers() -> tuple[_Parser, dict[str, _Parser]]:
    """Make the parser of the command line, and those of the commands by name."""
    version = import_module("torchdali").__version__  # the package is above its own modules
    parser = _Parser(
        prog="torchdali",
        description="Tools for data that torchdali loads.",
        epilog="`torchdali COMMAND --help` says more. Exit codes: 0 fine, 1 faults found, 2 wrong input.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"torchdali {version}")
    group = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    made = {}
    for command in COMMANDS:
        made[_name(command)] = own = group.add_parser(
            _name(command),
            help=command.SUMMARY,
            description=command.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.add_arguments(own)
        own.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser, made
