"""Speech with transcripts, by NeMo's manifests."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..formats.parts import as_text
from .base import Output
from .checks import check_files
from .coco import strict_json
from .known import KnownReader


class NemoAsr(KnownReader):
    """DALI's reader of NeMo's manifests: `manifest_filepaths`, files with an object of JSON a line.

    Fields: audio (float32 [n], or another `dtype`; [n, channels] with `downmix=False`; from `offset` on, for `duration`
    seconds where the line has them, so that one that is rounded down costs a sample); sample_rate (float32, in Hz, of
    the file, even if `sample_rate` resamples it) unless `read_sample_rate=False`; text (str) unless `read_text=False`;
    with `read_idxs`, idx (int64, the number in its manifest among the lines that `min_duration` and `max_duration`
    leave).  WAV, FLAC and Ogg are read.  Relative paths go by the working directory, not by the manifest's folder.

    Checked when it is made, each line: that it is JSON with an audio_filepath, and a text and a duration where they
    are needed (DALI drops a line without a path, crashes at null, and gives silence or no text elsewhere); that the
    file is there and not empty; and of a WAV file, that it has as many bytes as its header says, and begins before
    `offset`.
    """

    ndd_name = "NemoAsr"
    full_shuffle = True

    def describe(self, fields: Sequence[str]) -> list[Output]:
        outputs = [Output("audio", "array")]
        if self.options.get("read_sample_rate", True):
            outputs.append(Output("sample_rate", "number"))
        if self.options.get("read_text", True):
            outputs.append(Output("text", "object", as_text))
        if self.options.get("read_idxs", False):
            outputs.append(Output("idx", "number"))
        return outputs

    def check(self) -> None:
        manifests = self.options.get("manifest_filepaths")
        if not manifests:
            raise ValueError("NemoAsr needs manifest_filepaths=, a list of files")
        manifests = self.options["manifest_filepaths"] = [manifests] if isinstance(manifests, str) else manifests
        # As DALI does: bounds of 32 bits, durations of 64.
        shortest, longest = (float(np.float32(self.options.get(f"{end}_duration", 0))) for end in ("min", "max"))
        needed = ["text"] if self.options.get("read_text", True) else []
        needed += ["duration"] if shortest > 0 or longest > 0 else []
        entries = [entry for path in manifests for entry in _entries(path, needed)]
        if not entries:
            raise ValueError(f"NemoAsr: there are no samples in {', '.join(manifests)}")
        kept = [
            entry
            for entry in entries
            if not (shortest > 0 and entry.duration < shortest) and not (longest > 0 and entry.duration > longest)
        ]
        if not kept:
            raise ValueError(
                f"NemoAsr: none of {len(entries)} samples lasts from min_duration={shortest:g} to "
                f"max_duration={longest:g}"
            )
        try:
            check_files(self.name, (entry.audio for entry in kept))
        except FileNotFoundError as error:
            if all(os.path.isabs(entry.audio) for entry in kept):
                raise
            where = f"relative paths go by the working directory {os.getcwd()}"
            raise FileNotFoundError(f"{error}; {where}, so write absolute ones") from None
        for entry in kept:
            _check_wav(entry)


class _Entry(NamedTuple):
    """A line of a manifest; durations are in seconds, 0 where there is none."""

    where: str
    audio: str
    duration: float
    offset: float


def _entries(path: str, needed: Sequence[str]) -> Iterator[_Entry]:
    """The lines of a manifest.

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
            except ValueError as error:
                raise ValueError(f"{where}: no JSON: {error}") from None
            if not isinstance(entry, dict):
                raise ValueError(f"{where}: an object was expected, got {entry!r:.100}")
            _check_entry(where, entry, needed)
            audio, duration, offset = entry["audio_filepath"], entry.get("duration", 0), entry.get("offset", 0)
            yield _Entry(where, audio, duration, offset)


def _check_entry(where: str, entry: dict[str, Any], needed: Sequence[str]) -> None:
    for name in ("audio_filepath", *needed):
        if name not in entry:
            raise ValueError(f"{where}: {name} is missing")
    for name in ("audio_filepath", "text"):
        if name in entry and (not isinstance(entry[name], str) or "\0" in entry[name]):
            raise ValueError(f"{where}: {name} must be a text, got {entry[name]!r:.100}")
    if not entry["audio_filepath"]:
        raise ValueError(f"{where}: audio_filepath must be a path, got an empty one")
    for name in ("duration", "offset"):
        value = entry.get(name, 1)
        if type(value) not in (int, float) or not 0 <= value < 1e9 or (name == "duration" and not value):
            raise ValueError(f"{where}: {name} must be a number of seconds, got {value!r:.100}")


STREAMED = (0, 0xFFFFFFFF)  # sizes in the header of a WAV file that was written into a pipe


def _check_wav(entry: _Entry) -> None:
    """Raise where a WAV file is shorter than its header says; DALI would give what is there.

    Raises:
        ValueError: it is, or it ends before the offset.
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
                f"{entry.where}: the offset {entry.offset} is behind the end of {entry.audio}, "
                f"which lasts {(size - start - 8) / byte_rate:.3f} seconds"
            )
