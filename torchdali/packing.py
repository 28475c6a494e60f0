"""Packs a dataset: its samples are decoded once, and written where every epoch reads them."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.metadata
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from .batch import BadSample, Held, Padded
from .checks import integer, one_of
from .datasets.packed import Packed
from .errors import BadSampleError
from .fields import BESIDE
from .fingerprint import digest
from .formats.packed import (
    INDEX,
    VERSION,
    PackedColumn,
    PackedIndex,
    PackedShard,
    read_index,
    to_json,
    told_of,
    write_index,
)
from .formats.shards import ShardWriter, read_unfinished, remove_notes
from .kinds import Boxes, Kind, Mask, Points, Polygons
from .loader import DataLoader
from .pillow import MAX_PIXELS
from .progress import progress_bar
from .python import as_source
from .rand import Rand, Shape, Words
from .signature import Form
from .source import Source
from .transforms.base import Transform
from .transforms.compose import Compose, check_transform

BATCH = 16  # samples: the memory that packing takes is that of a few such batches

Row = dict[str, NDArray[Any]]


def pack(
    dataset: Any,
    path: str | Path,
    transform: Any = None,
    *,
    progress: bool = False,
    shard_bytes: int = 512 << 20,
    on_bad_sample: Literal["raise", "skip"] = "raise",
    num_threads: int | None = None,
    num_workers: int = 0,
    max_pixels: int | None = MAX_PIXELS,
) -> Packed:
    """Decode all samples of a dataset once, and write them to a folder, which `Packed(path)` reads.

    The loader itself decodes, so the pixels are those of training on the CPU.  Fields of all kinds can be packed, with
    their kinds, but for polygons; objects are strings, and what JSON holds.  Samples of Python code are packed as epoch
    0 of seed 0 makes them: leave random augmentations to the loader that reads the pack.

    A call that was interrupted or killed, or that met a bad sample, is called again, and goes on after its last whole
    shard; a call for a pack that is finished only opens it.

    Args:
        dataset: a dataset of torchdali or torch whose samples are read by index.
        path: a new folder on a local disk, or the one of an interrupted call.
        transform: transforms that draw nothing and keep uint8, such as Resize(256); None: pixels as they are decoded,
            also where the dataset has a transform of its own.
        progress: show a progress bar (tqdm's, where it is installed).
        shard_bytes: a shard ends after the batch that reaches this size.
        on_bad_sample: "raise" names a bad sample; "skip" leaves it out, and lists it in `Packed.left_out`.
        num_threads, num_workers, max_pixels: as of `DataLoader`.

    Returns:
        The dataset of the packed samples.

    Raises:
        ValueError: a transform that draws random numbers or gives other pixels than uint8; a dataset that is not read
            by index; an invalid argument.
        TypeError: values that can't be packed, or a function as transform.
        FieldTypeError: values of one field that differ in dtype or number of dimensions.
        FileExistsError: the folder holds something else.
        BlockingIOError: another process is packing into it.
        BadSampleError: a sample is bad, or with "skip" nearly all are.  An error of a Python dataset is raised as it
            is, with a note that names the sample.
    """
    one_of("on_bad_sample", on_bad_sample, ("raise", "skip"))
    integer("shard_bytes", shard_bytes, 1)
    steps = _deterministic(transform)
    source = as_source(dataset)
    if source.endless or source.whole_batches or source.uses_dali or not source.seekable:
        raise ValueError(
            f"pack needs a dataset whose samples are read by index, got {type(source).__name__}: write ImageFolder, "
            "TarDataset or another dataset, or one of torch with __getitem__ and __len__"
        )
    folder = Path(path).expanduser()
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"path must be a folder, got the file {folder}")
    substitutes = _Substitutes()
    with DataLoader(
        source,
        BATCH,
        transform=Compose(steps),
        device="cpu",
        num_threads=num_threads,
        num_workers=num_workers,
        max_pixels=max_pixels,
        rank=0,
        world_size=1,
        output=dict,
        on_bad_sample="raise" if on_bad_sample == "raise" else substitutes,
    ) as loader:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder):
            words = ", ".join(map(repr, steps)) or None
            packing = _Packing(loader, folder, steps, words, shard_bytes, substitutes)
            if (folder / INDEX).exists():
                packing.check_finished()
            else:
                packing.run(progress)
            remove_notes(folder)
    return Packed(folder)


class _Packing:
    """One call of `pack`: reads a loader to its end, and writes shards."""

    def __init__(
        self,
        loader: DataLoader,
        folder: Path,
        steps: list[Transform],
        words: str | None,
        shard_bytes: int,
        substitutes: _Substitutes,
    ) -> None:
        self._loader, self._folder, self._steps = loader, folder, steps
        self._source: Source = loader.source
        self._words, self._shard_bytes, self._substitutes = words, shard_bytes, substitutes
        self._kinds = {name: kind for name, kind in self._source.kinds.items() if name not in BESIDE}
        if not self._kinds:
            raise ValueError(f"there is nothing to pack in the fields {', '.join(self._source.fields)}")
        for name, kind in self._kinds.items():
            if isinstance(kind, Polygons):
                raise ValueError(
                    f"a pack keeps no polygons, and {name!r} holds some: leave the field out, or put it beside the "
                    "pack by Zip(Packed(path), ...)"
                )
        self._formats: dict[str, Any] = loader.box_formats
        self._has_paths = self._source.path(0) is not None

    def check_finished(self) -> None:
        """Raise unless the finished pack is the one that was asked for."""
        index = read_index(self._folder)
        wanted = _words(self._source.fingerprint(), self._words, self._source.fields)
        got = _words(index.source, index.transform, index.fields)
        if got != wanted:
            raise FileExistsError(
                f"{self._folder} holds a pack of {got}, and one of {wanted} was asked for: write another path, or "
                "delete the folder"
            )
        self._check_left_out(index.shards)

    def _check_left_out(self, shards: list[PackedShard]) -> None:
        """Raise the error of a sample that an earlier call has left out, and this one must not."""
        bad = next((bad for shard in shards for bad in shard.left_out), None)
        if bad is not None and self._loader.options.on_bad_sample == "raise":
            raise BadSampleError(*bad)

    def run(self, progress: bool) -> None:
        """Write all shards that are missing, and the index."""
        fields = list(self._source.fields)
        identity = digest(VERSION, self._source.fingerprint(), self._words, fields, self._shard_bytes, BATCH)
        columns, shards = read_unfinished(self._folder, identity)
        self._check_left_out(shards)
        if not shards and (
            others := [p.name for p in self._folder.iterdir() if not p.name.startswith(("shard-", INDEX))]
        ):
            raise FileExistsError(f"path must be a new folder, got {self._folder} with {others[0]} in it")
        done = shards[-1].end if shards else 0
        writer: ShardWriter | None = None
        left_out: list[list[Any]] = []

        def finish() -> None:
            nonlocal writer, left_out
            assert writer is not None
            shards.append(writer.finish(identity, done, left_out))
            writer, left_out = None, []

        try:
            with progress_bar("pack", len(self._source), "samples", progress, done) as bar:
                for good, rows, bad in self._batches(done):
                    left_out += [list(one[:4]) for one in bad]
                    for number, row in zip(good, rows, strict=True):
                        columns = columns or self._describe(row)
                        writer = writer or ShardWriter(self._folder, len(shards), columns)
                        writer.add(_checked(row, columns, number))
                    done += len(rows) + len(bad)
                    bar.update(len(rows) + len(bad))
                    if writer is not None and writer.size >= self._shard_bytes:
                        finish()
            assert columns is not None  # there is a good sample, or the loader would have raised
            if writer is not None or left_out:
                writer = writer or ShardWriter(self._folder, len(shards), columns)
                finish()
        finally:
            if writer is not None:
                writer.abandon()
        self._write_index(columns, shards)

    def _batches(self, start: int) -> Iterator[tuple[list[int], list[Row], list[BadSample]]]:
        """Read the batches from a sample on: the numbers and the values of the good samples, and the bad ones."""
        if start == len(self._source):
            return
        self._loader.seek(0, start // BATCH)
        for batch in self._loader:
            size = min(BATCH, len(self._source) - start)
            # Those of the batch, and substitutes that were bad as well.
            inside = {bad.index: bad for bad in self._loader.bad_samples if start <= bad.index < start + size}
            self._loader.bad_samples.clear()
            good = [number for number in range(start, start + size) if number not in inside]
            if good:
                self._substitutes.good = good[0]
            values = {name: _values(kind, batch[name]) for name, kind in self._kinds.items()}
            rows: list[Row] = []
            for number in good:
                row = {name: column[number - start] for name, column in values.items()}
                row |= {"path": self._source.path(number)} if self._has_paths else {}
                objects = [name for name in row if self._held(name) == "object"]
                rows.append(row | {name: to_json(name, number, row[name]) for name in objects})
            yield good, rows, [inside[number] for number in sorted(inside)]
            start += size

    def _held(self, name: str) -> Held:
        """How the pack holds the decoded values of a field."""
        return replace(self._kinds[name], encoded=False).held if name in self._kinds else "object"

    def _told(self, name: str) -> dict[str, Any] | None:
        """The kind of a field, boxes in the format that they were written in."""
        kind = self._kinds.get(name)
        if isinstance(kind, Boxes):
            kind = replace(kind, format=self._formats[name])
        return None if kind is None else told_of(kind)

    def _uniform(self, name: str) -> bool | None:
        """Tell whether all packed values of a field have one shape; None: each batch shows it."""
        kind = self._kinds.get(name)
        if kind is None:
            return False
        if self._steps and (kind.group is not None or isinstance(kind, (Boxes, Points))):
            return False  # objects may be dropped
        resized = kind.pixels or (isinstance(kind, Mask) and kind.group is None)
        return (resized and any(step.fixes_size for step in self._steps)) or self._source.uniform(name)

    def _describe(self, row: Row) -> list[PackedColumn]:
        """Describe the columns by the first sample."""
        columns = []
        for name, value in row.items():
            held, uniform = self._held(name), self._uniform(name)
            fixed = held == "number" or (held == "array" and uniform)
            shape = list(value.shape) if fixed else None
            columns.append(PackedColumn(name, held, value.dtype.str, value.ndim, shape, uniform, self._told(name)))
        return columns

    def _write_index(self, columns: list[PackedColumn], shards: list[PackedShard]) -> None:
        versions = {name: importlib.metadata.version(name) for name in ("numpy", "torch")}
        index = PackedIndex(
            source=self._source.fingerprint(),
            transform=self._words,
            fields=list(self._source.fields),
            columns=columns,
            shards=shards,
            written_with=versions,
            nested=getattr(self._source, "nested", False),
        )
        write_index(self._folder, index)


def _words(source: str, transform: str | None, fields: Sequence[str]) -> str:
    return f"{source!r} with {transform or 'no transform'} and the fields {', '.join(fields)}"


class _Substitutes:
    """Gives the loader a good sample in the place of a bad one, which is then left out.

    Attributes:
        good: a sample that is good, as far as one is known.
    """

    good: int | None = None

    def __call__(self, bad: BadSample) -> str | int:
        return "substitute" if self.good is None else self.good


class _Drew(Exception):
    """A transform has drawn a random number."""


class _Undrawn(Rand):
    """Random numbers that can't be drawn."""

    def words(self, shape: Shape = ()) -> Words:
        raise _Drew


def _deterministic(transform: Any) -> list[Transform]:
    """Give the steps of a transform.

    Raises:
        ValueError: one draws random numbers, or gives other pixels than uint8.
        TypeError: one is a function, which might.
    """
    if transform is None:
        return []
    if isinstance(transform, Compose):
        return [step for inner in transform.transforms for step in _deterministic(inner)]
    check_transform(transform)
    rest = "write it in the transform= of the loader that reads the pack"
    if not isinstance(transform, Transform):
        name = getattr(transform, "__name__", type(transform).__name__)
        raise TypeError(f"pack needs transforms that draw no random numbers, and the function {name} may: {rest}")
    try:
        transform.make_params(_Undrawn(0, 0, [0]), np.full((1, 2), 1 << 20, np.int64))
    except _Drew:
        raise ValueError(f"pack needs transforms that draw no random numbers, got {transform!r}: {rest}") from None
    if transform.out_dtype(torch.uint8) != torch.uint8:
        raise ValueError(f"pack needs transforms that keep uint8 pixels, got {transform!r}: {rest}")
    return [transform]


def _values(kind: Kind, column: Any) -> list[Any]:
    """Take the samples' values out of a batch's field: arrays, [..., H, W, C] of pictures; objects as they are."""
    if kind.held == "object":
        return list(column)
    data, sizes = column if isinstance(column, Padded) else (column, None)
    values: list[NDArray[Any]] = []
    for number, value in enumerate(data.numpy()):
        whole = np.asarray(value)
        if sizes is not None:
            inside: Any = tuple(slice(size) for size in sizes[number].tolist())
            whole = whole[(..., *inside) if kind.pixels else inside]
        values.append(np.moveaxis(whole, -3, -1) if kind.pixels else whole)
    return values


def _checked(row: Row, columns: list[PackedColumn], number: int) -> list[NDArray[Any]]:
    """Give a sample's values in the order of the columns.

    Raises:
        FieldTypeError: one has another dtype, shape or number of dimensions than the first sample's.
    """
    for column in columns:
        shape = None if column.shape is None else tuple(column.shape)
        form = Form("array", np.dtype(column.dtype), column.ndim, shape)
        form.check(column.name, row[column.name], sample=f"sample {number}")
    return [row[column.name] for column in columns]


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other processes from packing into a folder; the lock ends with this process.

    Raises:
        BlockingIOError: another one is packing.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlockingIOError(
                f"another process is packing into {folder}: pack in one process, and let the others wait for it"
            ) from None
        yield
    finally:
        os.close(descriptor)
