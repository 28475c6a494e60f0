"""The base of readers that give DALI an index, which torchdali makes and keeps in the cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..formats.cache import index_file
from ..kinds import AnyKind
from .base import Shuffle
from .known import KnownReader


class IndexedReader(KnownReader):
    """Base of readers of large files that have an index of their parts.

    Args:
        index_dir: a folder for the indexes, instead of `~/.cache/torchdali/index`.  Where it can't be written, they go
            to a temporary folder, with a warning.
        fields, kinds, shuffle, seed, virtual_shards, options: as for `KnownReader`.
    """

    def __init__(
        self,
        *,
        index_dir: str | Path | None = None,
        fields: Sequence[str] | None = None,
        kinds: Mapping[str, AnyKind] | None = None,
        shuffle: Shuffle = False,
        seed: int | None = None,
        virtual_shards: int | None = None,
        **options: Any,
    ) -> None:
        self.index_dir = index_dir
        super().__init__(
            fields=fields, kinds=kinds, shuffle=shuffle, seed=seed, virtual_shards=virtual_shards, **options
        )

    def index_file(self, path: str, kind: str, make: Callable[[], str], *more: Any) -> str:
        """Give the path of a file's index for DALI, see `formats.cache.index_file`."""
        return index_file(path, kind, make, *more, index_dir=self.index_dir)
