"""NeMo's manifests of speech, which have a line of JSON per recording; and the sizes of WAV files."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from .strict_json import strict_json


class Entry(NamedTuple):
    """A line of a manifest.

    Attributes:
        where: its place, for messages.
        audio: the file.
        duration, offset: in seconds, 0 where the line has none.
        text: the transcript, "" where the line has none.
    """

    where: str
    audio: str
    duration: float
    offset: float
    text: str


def read_manifest(path: str, needed: Sequence[str]) -> Iterator[Entry]:
    """Read the lines of a manifest.

    Args:
        path: the file, with an object of JSON per line.
        needed: keys that each line must have, besides audio_filepath.

    Raises:
        ValueError: a line that DALI would misread.
    """
    start = 0
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            where = f"{path}, line {number} (byte {start})"
            start += len(line)
            if not line.strip():
                continue
            try:
                entry = strict_json(line.decode())
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{where}: not JSON: {error}") from None
            if not isinstance(entry, dict):
                raise ValueError(f"{where}: an object was expected, got {entry!r:.100}")
            _check_entry(where, entry, needed)
            audio, duration, offset = entry["audio_filepath"], entry.get("duration", 0), entry.get("offset", 0)
            yield Entry(where, audio, duration, offset, entry.get("text", ""))


def _check_entry(where: str, entry: dict[str, Any], needed: Sequence[str]) -> None:
    for name in ("audio_filepath", *needed):
        if name not in entry:
            raise ValueError(f"{where}: {name} is missing")
    for name in ("audio_filepath", "text"):
        if name in entry and (not isinstance(entry[name], str) or "\0" in entry[name]):
            raise ValueError(f"{where}: {name} must be a string, got {entry[name]!r:.100}")
    if not entry["audio_filepath"]:
        raise ValueError(f"{where}: audio_filepath must be a path, got an empty one")
    for name in ("duration", "offset"):
        value = entry.get(name, 1)
        if type(value) not in (int, float) or not 0 <= value < 1e9 or (name == "duration" and not value):
            raise ValueError(f"{where}: {name} must be a number of seconds, got {value!r:.100}")


STREAMED = (0, 0xFFFFFFFF)  # sizes in the header of a WAV file that was written into a pipe


def check_wav(entry: Entry) -> None:
    """Check that a WAV file is as long as its header says; DALI would read what is left of a shorter one.

    Raises:
        ValueError: it is shorter, or ends before the offset.
    """
    with open(entry.audio, "rb", buffering=512) as file:
        head = file.read(12)
        if head[:4] != b"RIFF" or head[8:] != b"WAVE":
            return
        size, byte_rate = os.fstat(file.fileno()).st_size, 0
        while True:
            start = file.tell()
            chunk = file.read(8)
            if len(chunk) < 8:
                raise ValueError(f"{entry.audio}, byte {start}: a WAV file without samples ({entry.where})")
            name, length = struct.unpack("<4sI", chunk)
            if name == b"data":
                break
            if name == b"fmt ":
                byte_rate = int.from_bytes(file.read(16)[8:12], "little")
            file.seek(start + 8 + length + length % 2)
        if length not in STREAMED and size < start + 8 + length:
            raise ValueError(
                f"{entry.audio}, byte {start}: {length} bytes of samples were expected, "
                f"got {size - start - 8} ({entry.where})"
            )
        if byte_rate and entry.offset >= (size - start - 8) / byte_rate:
            raise ValueError(
                f"{entry.where}: the offset {entry.offset} is after the end of {entry.audio}, "
                f"which lasts {(size - start - 8) / byte_rate:.3f} seconds"
            )
