"""The command line of the recipes: jsonargparse's parsers, whose errors suggest the nearest name.

    jsonargparse.auto_cli(main, parser_class=torchdali.configs.ArgumentParser)

A config is code: what it names by a class path is called with the arguments that it gives.  `allow_only` narrows what
may be named; that keeps mistakes out, and is no reason to run a stranger's config.

This module needs `jsonargparse[signatures]`; torchdali itself does not.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from typing import Any, NoReturn

import jsonargparse

import torchdali

from .checks import nearest, nearest_path


class ArgumentParser(jsonargparse.ArgumentParser):
    """jsonargparse's parser, with the nearest name in its errors about keys, files, classes and their options.

    Names may not be shortened.  For `LightningCLI`, write `class Parser(ArgumentParser, LightningArgumentParser)`.
    """

    def __init__(self, *args: Any, allow_abbrev: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, allow_abbrev=allow_abbrev, **kwargs)

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Print the error and exit with 2."""
        super().error(_with_nearest(message, [action.dest for action in self._actions]), ex)


def allow_only(*paths: str) -> None:
    """Let configs name nothing but these: packages, modules, classes or functions, by their import paths.

    It holds for all parsers of the process.  A path that leads to something elsewhere, such as a module that one of
    these imports, is refused too.

    Args:
        paths: such as "torchdali.transforms", or "my_package.data.Photos".
    """
    jsonargparse.set_parsing_settings(import_path_denylist=["*"], import_path_allowlist=list(paths))


DATA = (
    *("torchdali.datasets", "torchdali.readers", "torchdali.samplers", "torchdali.transforms"),
    *("torchdali.python.mapped.PythonDataset", "torchdali.python.iterable.IterableSource"),
    *(f"torchdali.{name}" for name in torchdali.__all__ if isinstance(getattr(torchdali, name), type)),
)
"""The paths of torchdali's datasets, readers, samplers and transforms, for `allow_only`."""


def _with_nearest(message: str, keys: list[str]) -> str:
    """Add a suggestion to jsonargparse's message after each name that it doesn't know."""

    def of_group(found: re.Match[str]) -> str:
        return found[0] + nearest(f"{found[1]}.{found[2]}", [key for key in keys if key.startswith(f"{found[1]}.")])

    def of_options(found: re.Match[str]) -> str:
        return re.sub(r"--([\w.-]+)(=\S*)?", lambda option: option[0] + nearest(option[1], keys), found[0])

    def of_class(found: re.Match[str]) -> str:
        module, _, name = found[1].rpartition(".")
        return found[0] + nearest(found[2], inspect.signature(getattr(import_module(module), name)).parameters)

    said: list[tuple[str, Any]] = [
        (r"File does not exist: '(.+?)'", lambda found: found[0] + nearest_path(found[1])),
        (r"module '([\w.]+)' has no attribute '(\w+)'", lambda f: f[0] + nearest(f[2], dir(import_module(f[1])))),
        (r"class_path '([\w.]+)':\s+Option '(\w+)' is not accepted", of_class),
        (r"(?<=^unrecognized arguments: ).*", of_options),
        (r"^Option '([\w.]+)' is not accepted", lambda found: found[0] + nearest(found[1], keys)),
        (r"^Group '([\w.]+)' does not accept option '([\w.]+)'", of_group),
    ]
    if "did you mean" in message:  # from a parser inside this one
        return message
    for pattern, answer in said:
        message = re.sub(pattern, answer, message)
    return message
