"""A dataset of WebDataset's tars, read by index."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch import Columns
from ..checks import one_of
from ..fields import BESIDE, check_kinds, name_parts
from ..fingerprint import below_common_folder, digest
from ..formats.cache import Index
from ..formats.npy import as_npy
from ..formats.parts import Component, component, component_as, default_field
from ..formats.tar import BLOCK, check_header
from ..formats.texts import Texts
from ..formats.webdataset import alternatives, lacks, select, tar_index, wds_index
from ..kinds import AnyKind, as_kinds
from ..paths import expand
from ..signature import Form
from ..storage import THREADS, Storage, is_remote, open_storage, read_many
from ..threads import map_in_threads
from .base import MapDataset
from .convert import Convert
from .exclude import Exclude, kept


class TarDataset(MapDataset):
    """Samples in tars, as WebDataset writes them: files whose names are equal up to the first dot are one sample.

    A tar's headers are read once, and the offsets of its files are kept in a cache; then samples are read by offset, in
    any order.  Directories and "__metadata__" are left out, as in WebDataset, and so are hidden files and files without
    an ending.

    Args:
        paths: the tars: paths, URLs, and patterns such as "train-{0000..0146}.tar"; not compressed.
        ext: the endings of a sample's parts, such as ["jpg;jpeg;png", "cls"]; the first alternative that exists is
            read.  The ending decides a part's kind, see `formats.parts.component`.
        fields: names for the parts, in their order; among them may be any of index, path, valid and key, which is the
            sample's name in its tar.  By default "image" for images, "label" for cls, and other endings' own names.
        missing: "error", or "skip" to leave out samples that lack a part.
        kinds: the kinds of fields that differ from those of their endings: a word, or an object of `torchdali.kinds`,
            such as {"wav": kinds.Audio(rate=16000)}, {"mp4": kinds.Video(frames=16)}, or "array" for bytes.
        convert: functions by field, such as {"txt": tokenize}, as in `FileDataset`.
        index_paths: indexes made by DALI's `wds2idx`, one per tar, instead of our own; checked as samples are read.
        index_dir: a folder for our own indexes, instead of `~/.cache/torchdali/index`.
        storage_options: fsspec's, for remote tars.
        exclude: samples to leave out: the file of a report by `torchdali check`, or a list of indices and of paths, as
            `path` gives them.

    Attributes:
        shards: the tars.
        skipped: the number of samples that lack a part and were left out.

    Raises:
        ValueError: invalid arguments; a tar that is damaged, cut off, compressed or without samples; a sample that
            lacks a part, or whose parts do not lie together, with path and offset.
        FileNotFoundError: a tar is missing.
    """

    blocking = True

    def __init__(
        self,
        paths: str | Path | Sequence[str | Path],
        ext: Sequence[str],
        fields: Sequence[str] | None = None,
        *,
        missing: str = "error",
        kinds: Mapping[str, AnyKind] | None = None,
        convert: Convert | None = None,
        index_paths: str | Path | Sequence[str | Path] | None = None,
        index_dir: str | Path | None = None,
        storage_options: Mapping[str, Any] | None = None,
        exclude: Exclude | None = None,
    ) -> None:
        one_of("missing", missing, ("error", "skip"))
        options = dict(storage_options or {})
        wanted = alternatives(ext)
        self._endings = wanted
        told = as_kinds(kinds)
        self._components = self._name_components(wanted, fields, told, convert or {})
        self.shards = expand(paths, **options)
        self._storages = [open_storage(path, **options) for path in self.shards]
        self._indexed = index_paths is not None
        if index_paths is not None:
            files = expand(index_paths, **options)
            if len(files) != len(self.shards):
                raise ValueError(f"index_paths must be one for each tar, got {len(files)} for {len(self.shards)} tars")
            indexes = [wds_index(open_storage(f, **options), tar) for f, tar in zip(files, self._storages, strict=True)]
        else:
            indexes = _map_remote(lambda tar: tar_index(tar, index_dir), self._storages)
        self._join(indexes, wanted, missing)
        if exclude is not None:
            self._keep(kept([self.path(index) for index in range(len(self))], exclude))
        self._forms: dict[str, Form] = {}
        self._forms = {
            name: Form.of("array", self.read_columns([0], [name])[name][0])
            for name, part in self._components.items()
            if part.convert is as_npy
        }
        self._set_convert(convert or {}, told)
        self._fingerprint: str | None = None

    def _name_components(
        self, wanted: list[list[str]], fields: Sequence[str] | None, told: dict[str, AnyKind], convert: Convert
    ) -> dict[str, Component]:
        natural = [default_field(endings[0]) for endings in wanted]
        fields = natural if fields is None else fields
        names = name_parts(fields, natural, (*BESIDE, "key"))
        check_kinds(told, names)
        kinds = {name: kind for name, kind in told.items() if name not in convert}  # those are of the results
        parts = {}
        for name, endings in zip(names, wanted, strict=True):
            several = {component_as(one, kinds[name]) if name in kinds else component(one) for one in endings}
            if len(several) > 1:
                raise ValueError(f"alternatives must be of one kind, got {';'.join(endings)}: write kinds=")
            parts[name] = several.pop()
        self._set_fields(fields, {"key": "object", **{name: part.of_field for name, part in parts.items()}}, kinds)
        return parts

    def _join(self, indexes: Sequence[Index], wanted: list[list[str]], missing: str) -> None:
        """Set the offsets, sizes and keys of all samples."""
        self.skipped = 0
        offsets, sizes, keys, empty = [], [], [], []
        for tar, index in zip(self._storages, indexes, strict=True):
            rows = select(index, wanted)
            names = Texts(index["keys"], index["key_ends"])
            lacking = (rows < 0).any(axis=0)
            if not rows.size:
                empty.append(tar.path)
            elif lacking.any() and missing == "error":
                raise lacks(tar, index, rows, wanted, "missing='skip'")
            elif lacking.any():
                self.skipped += int(lacking.sum())
                (kept,) = np.nonzero(~lacking)
                rows, names = rows[:, kept], names.take(kept.tolist())
            offsets.append(index["offset"][rows])
            sizes.append(index["size"][rows])
            keys.append(names)
        self._offsets: NDArray[np.int64] = np.concatenate(offsets, axis=1)
        self._ends = np.cumsum([part.shape[1] for part in offsets])
        if not self._ends[-1]:
            what = f"each of {self.skipped} samples lacks a part" if self.skipped else "there are no samples"
            where = f"in {self.shards[0]} and {len(self.shards) - 1} other tars"
            raise ValueError(f"{what} with ext={[';'.join(some) for some in wanted]} {where}")
        if empty:
            warnings.warn(f"{len(empty)} tars hold no samples: {', '.join(empty[:5])}", UserWarning, stacklevel=3)
        joined = np.concatenate(sizes, axis=1)
        self._sizes: NDArray[Any] = joined.astype(np.uint32) if joined.max() < 1 << 32 else joined
        self._keys = Texts.joined(keys)

    def _keep(self, rows: list[int]) -> None:
        """Leave out all samples but these."""
        self._ends = np.searchsorted(rows, self._ends)
        self._offsets, self._sizes = self._offsets[:, rows], self._sizes[:, rows]
        self._keys = self._keys.take(rows)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def read_columns(self, indices: Sequence[int], names: Sequence[str]) -> Columns:
        parts = [(name, list(self._components).index(name)) for name in names if name in self._components]
        shards = np.searchsorted(self._ends, indices, side="right").tolist()
        header = BLOCK if self._indexed else 0  # an index that the user gave is checked
        places = [
            (self._storages[shard], int(self._offsets[row, i]) - header, int(self._sizes[row, i]) + header)
            for i, shard in zip(indices, shards, strict=True)
            for _, row in parts
        ]
        columns: dict[str, list[Any]] = {name: [] for name, _ in parts}
        for n, (data, (storage, offset, _)) in enumerate(zip(read_many(places), places, strict=True)):
            i, (name, _) = indices[n // len(parts)], parts[n % len(parts)]
            try:
                if header:
                    expected = self._keys[i], self._endings[parts[n % len(parts)][1]], len(data) - BLOCK
                    check_header(storage, offset, data[:BLOCK].tobytes(), *expected)
                value = self._components[name].convert(data[header:])
            except ValueError as error:
                raise ValueError(f"{name!r} at offset {offset + header} of {storage.path}: {error}") from error
            if name in self._forms:
                self._forms[name].check(name, value, self.path(0), self.path(i))
            columns[name].append(value)
        result: Columns = {
            name: np.array(values, np.int64) if self._components[name].kind == "number" else values
            for name, values in columns.items()
        }
        if "key" in names:
            result["key"] = [self._keys[i] for i in indices]
        return self._converted(result)

    def path(self, index: int) -> str:
        """Give the tar and the sample's key in it: "shard.tar#key"."""
        return f"{self.shards[int(np.searchsorted(self._ends, index, side='right'))]}#{self._keys[index]}"

    def fingerprint(self) -> str:
        """Hash the tars' names below their common folder, and where the samples' parts are in them."""
        if self._fingerprint is None:
            names = below_common_folder(self.shards)
            parts = digest(names, self._ends, self._offsets, self._sizes, self._keys.blob, self._keys.ends)
            self._fingerprint = f"{len(self)} in {len(self.shards)} tars {parts}"
        return self._fingerprint


def _map_remote(function: Callable[[Storage], Index], storages: Sequence[Storage]) -> list[Index]:
    """Call a function for each tar, in threads where the calls wait for a network."""
    if not any(is_remote(storage.path) for storage in storages):
        return [function(storage) for storage in storages]
    return map_in_threads(function, storages, THREADS, "torchdali-index")
