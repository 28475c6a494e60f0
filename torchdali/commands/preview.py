"""Show what a network will see: augmented samples, with all that lies in them.

PATH is a recipe's config (configs/NAME/some.yaml), whose loader is shown;
options of the recipe may follow, such as --data.root=photos.  Or it is data:
a folder of images, sounds or videos, perhaps one folder per class; images/
with masks/ or instances.json; a pack, a file, a list of files, a tar.
"""

from __future__ import annotations

import argparse
import importlib
import os
from typing import Any

from ..checks import nearest
from ..errors import TorchDaliError, first_line
from .command import UsageError, add_index_dir, positive, wrong_input
from .recipe import add_recipe, check_arguments, is_config, loader_of_arguments
from .terminal import note, say, say_json

SUMMARY = "show what a network will see, as a picture"
FORMATS = ("png", "jpg", "jpeg", "webp", "pdf", "svg")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("path", metavar="PATH", help="a config, or data")
    parser.add_argument("--out", metavar="FILE", help=f"write it ({', '.join(FORMATS)}), and open no window")
    parser.add_argument("--samples", type=positive, default=12, metavar="N", help="how many (default: 12)")
    parser.add_argument("--draws", type=positive, default=1, metavar="N", help="draws of each sample, in a row")
    parser.add_argument("--frames", type=positive, default=6, metavar="N", help="of a clip (default: 6)")
    parser.add_argument("--columns", type=positive, metavar="N", help="samples in a row")
    parser.add_argument("--shuffle", action="store_true", help="of data: in random order")
    parser.add_argument("--seed", type=int, metavar="N", help="of data: another random order (default: 0)")
    add_recipe(parser)
    add_index_dir(parser)


def passes_on(arguments: argparse.Namespace) -> bool:
    """Whether options that are not the command's own belong to a recipe."""
    return is_config(arguments.path)


def run(arguments: argparse.Namespace) -> int:
    """Draw the figure; 1: a sample is bad."""
    from ..loader import DataLoader
    from ..showing import show

    if arguments.out is not None:
        _check_out(arguments.out)
    check_arguments(arguments, [arguments.path], ["shuffle", "seed", "index_dir"])
    data = read(arguments)
    with wrong_input():
        figure = None if arguments.out is not None else _window()
    options: dict[str, Any] = {name: getattr(arguments, name) for name in ("samples", "draws", "frames", "columns")}
    try:
        with wrong_input(arguments.path):
            if not isinstance(data, DataLoader):
                options |= {"shuffle": arguments.shuffle, "seed": arguments.seed or 0}
            drawn = show(data, figure=figure, **options)
    except TorchDaliError as error:
        note(f"torchdali: {arguments.path}: {first_line(error)}")
        return 1
    title = drawn.get_suptitle()
    if arguments.out is None:
        importlib.import_module("matplotlib.pyplot").show()
    else:
        with wrong_input():
            drawn.savefig(arguments.out, dpi=150)
    if arguments.json:
        say_json({"command": "preview", "path": arguments.path, "file": arguments.out, "title": title})
    elif arguments.out is not None:
        say(f"{arguments.out}: {title}")
    return 0


def read(arguments: argparse.Namespace) -> Any:
    """Make the loader of a config, or the dataset of other data.

    Raises:
        UsageError: it can't be made.
    """
    if is_config(arguments.path):
        return loader_of_arguments(arguments, arguments.path)
    from .data import dataset_of

    return dataset_of(arguments.path, arguments.index_dir)


def _check_out(path: str) -> None:
    from ..formats.parts import ending

    if ending(path) not in FORMATS:
        hint = nearest(ending(path), FORMATS)
        raise UsageError(f"--out must end with one of {', '.join(FORMATS)}, got {path!r}{hint}")
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise UsageError(f"--out must be in a folder that exists, got {path!r}")


def _window() -> Any:
    """Open a window's figure.

    Raises:
        ImportError: matplotlib is missing.
        UsageError: there is no screen.
    """
    try:
        pyplot = importlib.import_module("matplotlib.pyplot")
    except ImportError as error:
        raise ImportError("preview needs matplotlib: pip install 'torchdali[show]'") from error
    figure = pyplot.figure()
    if type(figure.canvas).required_interactive_framework is None:
        pyplot.close(figure)
        raise UsageError("no window can be opened here: write the picture to a file by --out preview.png")
    return figure
