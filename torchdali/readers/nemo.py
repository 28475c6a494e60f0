"""DALI's reader of speech with transcripts, listed in NeMo's manifests."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .. import kinds
from ..fingerprint import files_digest
from ..formats.nemo import check_wav, read_manifest
from ..formats.parts import as_text
from .base import Output
from .checks import check_files
from .known import KnownReader


class NemoAsr(KnownReader):
    """DALI's reader of NeMo's manifests: `manifest_filepaths`, files with an object of JSON per line.

    Fields: audio (float32 [1, n], or [channels, n] with `downmix=False`, of the kind `Audio`, so that transforms of
    sound act on it; with another `dtype`, arrays [n] or [n, channels]; from `offset` on, for `duration` seconds where
    the line has them, so that a duration that is rounded down costs a sample of sound); sample_rate
    (float32, in Hz: the file's, even if `sample_rate` resamples it) unless `read_sample_rate=False`; text (str) unless
    `read_text=False`; with `read_idxs`, idx (int64, the number in its manifest among the lines that `min_duration` and
    `max_duration` leave).  WAV, FLAC and Ogg are read.  Relative paths start at the working directory, not at the
    manifest's folder.

    Checked when it is made: each line is JSON with an audio_filepath, and with a text and a duration where they are
    needed (DALI drops a line without a path, crashes at null, and gives silence or no text elsewhere); each file exists
    and is not empty; each WAV file has as many bytes as its header says, and does not end before `offset`.
    """

    ndd_name = "NemoAsr"
    full_shuffle = True

    def describe(self, fields: Sequence[str]) -> list[Output]:
        dtype = self.options.get("dtype")
        rate = self.options.get("sample_rate")
        sound = kinds.Audio(rate=int(rate) if rate and rate > 0 and float(rate).is_integer() else None)
        floats = dtype is None or getattr(dtype, "name", str(dtype)).lower().split(".")[-1] in ("float", "float32")
        outputs = [Output("audio", sound, _channels_first) if floats else Output("audio", "array")]
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
        entries = [entry for path in manifests for entry in read_manifest(path, needed)]
        if not entries:
            raise ValueError(f"NemoAsr: there are no samples in {', '.join(manifests)}")
        said = [(entry.duration, entry.offset, entry.text) for entry in entries]
        self.contents = {"manifest_filepaths": files_digest([entry.audio for entry in entries], said)}
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
            where = f"relative paths start at the working directory {os.getcwd()}"
            raise FileNotFoundError(f"{error}; {where}, so write absolute ones") from None
        for entry in kept:
            check_wav(entry)


def _channels_first(sound: NDArray[np.float32]) -> NDArray[np.float32]:
    """Make [channels, n] of [n], or of [n, channels]."""
    return sound[None] if sound.ndim == 1 else np.ascontiguousarray(sound.T)
