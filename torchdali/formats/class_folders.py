"""Lists folders of classes as torchvision does (`torchvision/datasets/folder.py`), whose import takes two seconds."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from .files import walk

IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""The endings of image files, torchvision's `IMG_EXTENSIONS`."""


def find_classes(root: str) -> tuple[list[str], dict[str, int]]:
    """List the folders in a folder by name, and number them.

    Raises:
        FileNotFoundError: there is none.
    """
    with os.scandir(root) as entries:
        classes = sorted(entry.name for entry in entries if entry.is_dir())
    if not classes:
        raise FileNotFoundError(f"Couldn't find any class folder in {root}.")
    return classes, {name: number for number, name in enumerate(classes)}


def list_files(
    root: str,
    classes: Mapping[str, int],
    endings: Sequence[str] | None,
    is_valid: Callable[[str], bool] | None,
    allow_empty: bool = False,
) -> list[tuple[str, int]]:
    """List the files below the folders of classes, each with its class: by class, folder and name.

    Args:
        root: holds the folders.
        classes: their names, and their numbers.
        endings: those of the files to take, in lower case; None: `is_valid` says which.
        is_valid: tells of a path whether to take it.
        allow_empty: a class may have no file.

    Raises:
        FileNotFoundError: a class has no file.
    """
    found: list[tuple[str, int]] = []
    empty = []
    wanted = None if endings is None else tuple(endings)
    for name in sorted(classes):
        before = len(found)
        for folder, _, files in sorted(walk(os.path.join(root, name))):
            begin = os.path.join(folder, "")
            paths = [begin + file for file in sorted(files)]
            if wanted is not None:
                paths = [path for path in paths if path.lower().endswith(wanted)]
            elif is_valid is not None:
                paths = [path for path in paths if is_valid(path)]
            found += [(path, classes[name]) for path in paths]
        if len(found) == before:
            empty.append(name)
    if empty and not allow_empty:
        supported = "" if wanted is None else f" Supported extensions are: {', '.join(wanted)}"
        raise FileNotFoundError(f"Found no valid file for the classes {', '.join(empty)}.{supported}")
    return found
