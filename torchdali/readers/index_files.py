"""Indexes in the forms that DALI reads, kept in the folder of our own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import Any

from ..datasets.base import digest
from ..datasets.index import cache_folder
from ..storage import open_storage


def index_file(path: str, kind: str, make: Callable[[], str], *more: Any) -> str:
    """The path of a file's index in a form of DALI's; written where it is not there yet.

    Args:
        path: the file that is indexed.
        kind: the form.
        make: makes the text.
        more: what it depends on beside the file.
    """
    name = digest(os.path.abspath(path), open_storage(path).version, *more)
    file = cache_folder() / f"{kind}-{name}.idx"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        # Written aside and renamed, so that other processes see a whole file or none.
        with tempfile.NamedTemporaryFile("w", dir=file.parent, suffix=".part", delete=False) as output:
            output.write(make())
        os.replace(output.name, file)
    return os.fspath(file)
