"""DALI's reader of WebDataset's tars."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ..checks import one_of
from ..fingerprint import files_digest
from ..formats.files import read_file
from ..formats.parts import component, default_field
from ..formats.webdataset import alternatives, lacks, select, tar_index, wds_index
from ..paths import expand
from ..storage import Storage, is_remote, open_storage
from .base import Output
from .checks import check_files
from .indexed import IndexedReader


class Webdataset(IndexedReader):
    """DALI's reader of tars as WebDataset writes them: `paths` and `ext`, such as ["jpg;jpeg;png", "cls"].

    There is one field for each ending, which decides its kind, see `formats.parts.component`: images, sound and video
    stay encoded until the loader decodes them, cls is a number, txt a string, json an object, npy an array, and all
    others are bytes.

    torchdali reads the tars' headers once, and gives DALI an index made from them: so names of any length and form are
    right, and parts that are missing (`missing_component_behavior`: "error", "skip" or "empty"), that don't lie
    together or that are cut off are errors with path and offset.  `index_paths` from `wds2idx` are compared with the
    headers.
    """

    ndd_name = "Webdataset"
    twin = "torchdali.TarDataset"

    def describe(self, fields: Sequence[str]) -> list[Output]:
        if "paths" not in self.options or "ext" not in self.options:
            raise ValueError('Webdataset needs paths= and ext=, such as ext=["jpg", "cls"]')
        wanted = alternatives(self.options["ext"])
        if "dtypes" in self.options:
            return [Output(default_field(some[0]), "array") for some in wanted]
        parts = [component(some[0]) for some in wanted]
        return [
            Output(default_field(some[0]), part.of_field, None if part.kind == "encoded" else part.convert)
            for some, part in zip(wanted, parts, strict=True)
        ]

    def check(self) -> None:
        behavior = self.options.setdefault("missing_component_behavior", "error")
        one_of("missing_component_behavior", behavior, ("error", "skip", "empty"))
        self.shards = expand(self.options["paths"])
        if remote := [path for path in self.shards if is_remote(path)]:
            raise ValueError(f"DALI reads local tars only, got {remote[0]}: write {self.twin}")
        self.total_bytes = check_files(self.name, self.shards)
        given = self.options.get("index_paths")
        self._given = [] if given is None else expand(given)
        if given is not None and len(self._given) != len(self.shards):
            raise ValueError(
                f"index_paths must be one for each tar, got {len(self._given)} for {len(self.shards)} tars"
            )
        for number in range(len(self._given)):
            self._check_index(number)
        indexes = [read_file(path) for path in self._index_files()]
        self.contents = {"paths": files_digest(self.shards, indexes), "index_paths": None}

    def native_options(self) -> dict[str, Any]:
        parts = [f"part{number}" for number in range(len(self.options["ext"]))]
        ours = {"paths": self.shards, "index_paths": self._index_files(), "ext": parts}
        return self.options | ours | {"missing_component_behavior": "empty"}

    def _index_files(self) -> list[str]:
        behavior = self.options["missing_component_behavior"]
        return [
            self.index_file(path, "wds", partial(self._index_text, number), self.options["ext"], behavior)
            for number, path in enumerate(self.shards)
        ]

    def _index_text(self, number: int) -> str:
        lines = self._lines(open_storage(self.shards[number]))
        return f"v1.2 {len(lines)}\n" + "".join(lines)

    def _check_index(self, number: int) -> None:
        """Compare an index that the user gave with our own."""
        tar, given = open_storage(self.shards[number]), open_storage(self._given[number])
        index, other = tar_index(tar, self.index_dir), wds_index(given, tar)
        if not all(np.array_equal(index[key], other[key]) for key in ("offset", "size")):
            raise ValueError(f"the index {given.path} does not belong to {tar.path}: run wds2idx again")

    def _lines(self, tar: Storage) -> list[str]:
        """Give the lines of an index for DALI: for each part of a sample, "ending offset size name"."""
        wanted = alternatives(self.options["ext"])
        index = tar_index(tar, self.index_dir)
        rows = select(index, wanted)
        if not rows.size:
            raise ValueError(f"there are no samples in {tar.path}, and DALI would make one up")
        lacking: Any = (rows < 0).any(axis=0)
        if lacking.any() and self.options["missing_component_behavior"] == "error":
            raise lacks(tar, index, rows, wanted, 'missing_component_behavior="skip"')
        lines = []
        for sample in range(rows.shape[1]):
            if lacking[sample] and self.options["missing_component_behavior"] == "skip":
                continue
            parts = [
                f"part{part} {index['offset'][row]} {index['size'][row]} {sample}"
                for part, row in enumerate(rows[:, sample])
                if row >= 0
            ]
            lines.append(" ".join(parts) + "\n")
        return lines
