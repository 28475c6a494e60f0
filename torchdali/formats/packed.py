"""Packed samples: columns in shards of .npy files that numpy alone reads, and an index that is written last.

    pack.json                      the index: fields, columns, shards with the sizes and CRC-32 of their files
    shard-00000.0-image.npy        the values of a column, one after the other from multiples of 64 on: uint8 [bytes]
    shard-00000.0-image.at.npy     where each one begins in it, and its shape: int64 [samples, 1 + dimensions]
    shard-00000.1-label.npy        the values of a column of numbers, or of arrays of one shape: [samples, ...]
    shard-00000.json               while the pack is made: this shard is whole

Strings and other objects are JSON in UTF-8.  Each file is written under another name, synced and then renamed, so that
a reader sees a whole one or none, and a process that is killed loses one shard.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import kinds
from ..batch import Held
from ..checks import nearest_path
from ..errors import first_line
from ..fingerprint import digest
from ..kinds import WORDS, Image, Kind, Video, as_kind

VERSION = 1
INDEX = "pack.json"
ALIGNMENT = 64  # bytes; the header of a .npy file is a multiple of it too
PIECE = 8 << 20  # bytes that are read at once for a checksum


@dataclass(frozen=True)
class PackedColumn:
    """One column of a pack.

    Attributes:
        name, kind: the field.
        dtype: of its values, as numpy writes it; objects are stored as uint8.
        ndim: dimensions of a value.
        shape: the shape of all values; None: each has its own.
        uniform: what the source says about their shapes, see `source.Source.uniform`.
        told: the kind, where `kind` does not say it: its class, and what differs from the class's defaults.
    """

    name: str
    kind: Held
    dtype: str
    ndim: int
    shape: list[int] | None
    uniform: bool | None
    told: dict[str, Any] | None = None

    @property
    def of_field(self) -> Kind:
        """The kind of the field."""
        if self.told is None:
            return as_kind(self.kind)
        name, *given = self.told.items()
        values = {key: as_tuples(value) for key, value in given}
        made: Kind = getattr(kinds, name[1])(**values)
        return made

    def files(self, shard: int, number: int) -> list[str]:
        """Name the files of this column, which has this number among the columns, in a shard."""
        name = f"shard-{shard:05d}.{number}-{re.sub(r'[^A-Za-z0-9_]', '_', self.name)[:40]}"
        return [f"{name}.npy"] if self.shape is not None else [f"{name}.npy", f"{name}.at.npy"]


def told_of(kind: Kind) -> dict[str, Any] | None:
    """Write down the kind of decoded values; None: how a column holds them says it."""
    kind = replace(kind, encoded=False)
    if isinstance(kind, Image):
        kind = replace(kind, mode=None, exif=None, layout=None)  # of files, and of what is HWC now
    elif isinstance(kind, Video):
        kind = replace(kind, frames=None, stride=1, layout=None)
    if kind == WORDS[kind.held]:
        return None
    default = type(kind)()
    changed = {name: value for name, value in asdict(kind).items() if value != getattr(default, name)}
    return {"kind": type(kind).__name__, **changed}


def as_tuples(value: Any) -> Any:
    """Make JSON's lists tuples again."""
    return tuple(as_tuples(one) for one in value) if isinstance(value, list) else value


class PackedShard(NamedTuple):
    """One shard of a pack.

    Attributes:
        samples: the number of its samples.
        end: the index in the packed dataset after its last sample.
        files: size and CRC-32 of each file by name.
        left_out: the bad samples among it, each as [index, path, stage, reason].
    """

    samples: int
    end: int
    files: dict[str, list[int]]
    left_out: list[list[Any]]


@dataclass(frozen=True)
class PackedIndex:
    """The index of a pack.

    Attributes:
        source: the fingerprint of the packed dataset.
        transform: the transform that was applied, in words; None: there was none.
        fields: the packed dataset's fields, in its order.
        columns: the columns.
        shards: the shards.
        written_with: versions of libraries.
        nested: dots in fields' names make dicts, see `datasets.MapDataset`.
    """

    source: str
    transform: str | None
    fields: list[str]
    columns: list[PackedColumn]
    shards: list[PackedShard]
    written_with: dict[str, str]
    nested: bool = False

    @property
    def fingerprint(self) -> str:
        """The source's where the pack holds all of its samples as they are, else another one that names the transform.

        A checkpoint goes on with the pack where, and only where, the fingerprint is the source's.
        """
        out = [bad[0] for shard in self.shards for bad in shard.left_out]
        if self.transform is None and not out:
            return self.source
        samples = sum(shard.samples for shard in self.shards)
        return f"{samples} packed {self.transform or 'files'!s:.55} {digest(self.source, self.transform, out)}"


def write_index(folder: Path, index: PackedIndex) -> None:
    """Write the index, which makes the pack whole."""
    write_json(folder / INDEX, {"version": VERSION, **asdict(index), "shards": [s._asdict() for s in index.shards]})


def read_index(folder: Path) -> PackedIndex:
    """Read the index, and check the sizes of all files.

    Raises:
        FileNotFoundError: there is no pack, or it is not finished.
        ValueError: the index is damaged or of another version, or a file is missing or has another size.
    """
    if not (folder / INDEX).exists():
        if folder.is_dir() and any(folder.glob("shard-*")):
            raise FileNotFoundError(f"the pack in {folder} is not finished: call pack again with the same arguments")
        if folder.is_dir():
            raise FileNotFoundError(f"a pack was expected, got {folder}, which has no {INDEX}: td.pack makes one")
        raise FileNotFoundError(f"there is no pack at {folder}{nearest_path(folder)}")
    found = read_json(folder / INDEX)
    if found is None:
        raise ValueError(f"the index {folder / INDEX} is damaged: delete the folder, and pack the dataset again")
    if found.pop("version") != VERSION:
        raise ValueError(f"{folder / INDEX} is of another version of the format: pack the dataset again")
    found["columns"] = [PackedColumn(**column) for column in found["columns"]]
    found["shards"] = [PackedShard(**shard) for shard in found["shards"]]
    index = PackedIndex(**found)
    for shard in index.shards:
        check_sizes(folder, shard)
    return index


def check_sizes(folder: Path, shard: PackedShard) -> None:
    """Check that all files of a shard have their sizes: to read a memory map beyond a file's end kills the process.

    Raises:
        ValueError: one is missing, or has another size.
    """
    for name, (size, _) in shard.files.items():
        try:
            got = os.path.getsize(folder / name)
        except FileNotFoundError:
            got = -1
        if got != size:
            what = "no such file" if got < 0 else f"{got}"
            raise ValueError(f"{folder / name} is damaged: {size} bytes were expected, got {what}: {_REMEDY}")


_REMEDY = "copy it again, or delete the folder and pack the dataset again"


def verify_shard(folder: Path, shard: PackedShard, done: Callable[[int], object]) -> None:
    """Compare the checksums of all files of a shard, a piece at a time; `done` is told the bytes of each file.

    Raises:
        ValueError: a file is damaged.
    """
    check_sizes(folder, shard)
    for name, (size, expected) in shard.files.items():
        got = checksum(folder / name)
        if got != expected:
            raise _other_checksum(folder / name, expected, got)
        done(size)


def checksum(path: Path) -> int:
    """Compute the CRC-32 of a file, a piece at a time."""
    value = 0
    with open(path, "rb") as file:
        while piece := file.read(PIECE):
            value = zlib.crc32(piece, value)
    return value


def map_array(path: Path, checked: int | None = None) -> NDArray[Any]:
    """Map a .npy file into memory, as an array that can be written: what is written stays in this process.

    Processes that map the same file share its pages, until one of them writes.

    Args:
        path: the file.
        checked: its CRC-32, which is compared first; None: it is not.

    Raises:
        ValueError: its header or its checksum is damaged.
        FileNotFoundError: there is no file.
    """
    try:
        array = np.load(path, mmap_mode="c", allow_pickle=False)
        whole = array.offset + array.nbytes
        if whole != os.path.getsize(path):
            raise ValueError(f"{whole} bytes were expected")
    except OSError:
        raise
    except Exception as error:  # numpy parses the header as Python code: any of its parser's errors may be raised
        raise ValueError(f"{path} is damaged: {first_line(error)}: {_REMEDY}") from error
    if checked is not None and (got := checksum(path)) != checked:
        raise _other_checksum(path, checked, got)
    out: NDArray[Any] = array.view(np.ndarray)  # slices of it are made twice as fast
    return out


def _other_checksum(path: Path, expected: int, got: int) -> ValueError:
    return ValueError(f"{path} is damaged: the CRC-32 {expected:08x} was expected, got {got:08x}: {_REMEDY}")


def to_json(name: str, sample: int, value: Any) -> NDArray[np.uint8]:
    """Encode an object, so that it comes back as it is.

    Raises:
        TypeError: it would not.
    """
    if (other := _not_json(value)) is not None:
        raise TypeError(
            f"{name!r} of sample {sample} can't be packed: strings, numbers, bools, None, lists and dicts of them were "
            f"expected, got {type(other).__name__}: give one of these or an array, or leave the field out"
        )
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


def from_json(data: NDArray[np.uint8]) -> Any:
    """Decode an object."""
    return json.loads(data.tobytes())


def _not_json(value: Any) -> Any:
    """Find a part of a value that JSON would change; None: there is none."""
    if value is None or type(value) in (str, bool, int, float):
        return None
    if type(value) is list:
        return next((found for part in value if (found := _not_json(part)) is not None), None)
    if type(value) is dict and all(type(key) is str for key in value):
        return _not_json(list(value.values()))
    return value


# Files


def sync(file: IO[bytes]) -> None:
    """Write a file to the disk, and close it."""
    file.flush()
    os.fsync(file.fileno())
    file.close()


def write_json(path: Path, values: dict[str, Any]) -> None:
    """Write a JSON file with a digest of its values, whole or not at all; files that were renamed before last too."""
    text = json.dumps({"digest": digest(json.dumps(values)), **values}, indent=1)
    partial = path.with_name(path.name + ".part")
    with open(partial, "wb") as file:
        file.write(text.encode())
        sync(file)
    os.replace(partial, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_json(path: Path) -> dict[str, Any] | None:
    """Read such a file; None: there is none, or it is damaged."""
    try:
        values = json.loads(path.read_bytes())
        expected = values.pop("digest")
    except (FileNotFoundError, ValueError, KeyError, AttributeError, TypeError):
        return None
    return values if isinstance(values, dict) and expected == digest(json.dumps(values)) else None
