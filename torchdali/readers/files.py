"""Files by folder or list."""

from __future__ import annotations

from collections.abc import Sequence

from .base import Output
from .known import KnownReader


class File(KnownReader):
    ndd_name = "File"
    full_shuffle = True
    twin = "torchdali.FileDataset or torchdali.ImageFolder"

    def describe(self, fields: Sequence[str]) -> list[Output]:
        return [Output("image", "encoded"), Output("label", "number")]
