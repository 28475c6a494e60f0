"""Sound files: WAV is read here, other formats by the package soundfile."""

from __future__ import annotations

import functools
import io
import math
import struct

import numpy as np
import torch
from numpy.typing import NDArray

from ..storage import Bytes

LARGEST_FILTER = 1 << 24  # values, about
ZEROS, ROLLOFF = 6, 0.99  # zero crossings of the filter on each side, and its edge in Nyquist frequencies


def decode_audio(data: Bytes, rate: int | None = None, channels: int | None = None) -> NDArray[np.float32]:
    """Decode a sound file: float32 [channels, samples], from -1 to 1.

    Args:
        data: the file, uint8 [n].
        rate: samples per second; a file of another rate is resampled.  None: the file's.
        channels: 1 mixes channels down; None: the file's.

    Raises:
        ValueError: a file that is damaged or no sound, one with another number of channels, or with a rate that can't
            be changed.
        ImportError: no soundfile, for anything but WAV of PCM or floats.
    """
    if data[:4].tobytes() == b"RIFF":
        try:
            values, own = read_wav(data)
        except OtherWavError:
            values, own = _by_soundfile(data)
    else:
        values, own = _by_soundfile(data)
    if channels == 1:
        values = values.mean(0, keepdims=True, dtype=np.float32)
    elif channels is not None and len(values) != channels:
        raise ValueError(f"{channels} channels were expected, got {len(values)}: write channels=1 to mix them, or None")
    return values if rate in (None, own) else resample(values, own, rate)


class OtherWavError(ValueError):
    """A WAV file of something else than PCM or floats: A-law, ADPCM, ..."""


def read_wav(data: Bytes) -> tuple[NDArray[np.float32], int]:
    """Read a WAV file: float32 [channels, samples], and its samples per second.

    Raises:
        OtherWavError: it holds anything but PCM or floats.
        ValueError: it is cut off, or is no sound.
    """
    view = data.data
    at, form = 12, None
    while at + 8 <= len(view):
        name, size = struct.unpack_from("<4sI", view, at)
        if name == b"fmt " and at + 24 <= len(view):
            code, channels, rate, _, frame, bits = struct.unpack_from("<HHIIHH", view, at + 8)
            if code == 0xFFFE and at + 34 <= len(view):  # extensible: the code comes later
                (code,) = struct.unpack_from("<H", view, at + 32)
            form = code, channels, rate, frame, bits
        elif name == b"data":
            break
        at += 8 + size + size % 2
    else:
        raise ValueError("a WAV file with a chunk of data was expected, got none")
    if form is None:
        raise ValueError("a WAV file with a format before its data was expected, got none")
    code, channels, rate, frame, bits = form
    if not rate or not channels:
        raise ValueError(f"a WAV file of sound was expected, got {channels} channels and {rate} samples per second")
    # A pipe's writer could not know the size.  An empty chunk in a file of known size is empty.
    (whole,) = struct.unpack_from("<I", view, 4)
    unknown = size in _UNKNOWN or (size == 0 and (whole <= at or whole in _UNKNOWN))
    if len(view) - at - 8 < size and not unknown:
        raise ValueError(f"the WAV file is cut off: {size} bytes of data expected, got {len(view) - at - 8}")
    if (code, bits) not in _WAV:
        raise OtherWavError(f"a WAV file of PCM or floats was expected, got the code {code} with {bits} bits")
    if frame != channels * bits // 8:
        raise ValueError(f"{channels} values of {bits} bits were expected in {channels * bits // 8} bytes, got {frame}")
    raw = data[at + 8 :] if unknown else data[at + 8 : at + 8 + size]
    raw = raw[: len(raw) // frame * frame]
    if bits == 24:  # into the high bytes of 32 bits
        wide = np.zeros((len(raw) // 3, 4), np.uint8)
        wide[:, 1:] = raw.reshape(-1, 3)
        raw = wide.ravel()
    dtype, zero, scale = _WAV[code, bits]
    values: NDArray[np.float64] = np.frombuffer(raw, dtype).astype(np.float64)
    values = (values - zero) / scale
    return np.ascontiguousarray(values.astype(np.float32).reshape(-1, channels).T), rate


_UNKNOWN = (0xFFFFFFFF, 0x7FFFF000)  # ffmpeg's size, and SoX's

# By code and bits: the dtype, and the value that is zero, and the largest.
_WAV = {
    (1, 8): ("u1", 128, 128.0), (1, 16): ("<i2", 0, 32768.0), (1, 24): ("<i4", 0, 2147483648.0),
    (1, 32): ("<i4", 0, 2147483648.0), (3, 32): ("<f4", 0, 1.0), (3, 64): ("<f8", 0, 1.0),
}  # fmt: skip


def _by_soundfile(data: Bytes) -> tuple[NDArray[np.float32], int]:
    try:
        import soundfile
    except ImportError as error:
        raise ImportError("sound files other than WAV are read by soundfile: pip install torchdali[audio]") from error
    check_whole(data)
    try:
        values, rate = soundfile.read(io.BytesIO(data.data), dtype="float32", always_2d=True)
    except soundfile.LibsndfileError as error:  # its text has the address of an object
        raise ValueError(f"a sound file that libsndfile can read was expected: {error.error_string}") from error
    return np.ascontiguousarray(values.T), int(rate)


def check_whole(data: Bytes) -> None:
    """Check that an AIFF, AU, CAF, RF64 or W64 file is as long as it says: libsndfile would read what is left of it.

    Raises:
        ValueError: it is cut off.
    """
    start = data[:48].tobytes().ljust(48, b"\0")
    said = {
        b"FORM": 8 + int.from_bytes(start[4:8], "big"),
        b".snd": int.from_bytes(start[4:8], "big") + int.from_bytes(start[8:12], "big"),
        b"RF64": 8 + int.from_bytes(start[20:28], "little"),
        b"riff": int.from_bytes(start[16:24], "little"),
        b"caff": _end_of_caf(data),
    }.get(start[:4], 0)
    # Beyond 2 GiB a writer to a pipe has said that it does not know.
    if len(data) < said < 1 << 31:
        raise ValueError(f"the sound file is cut off: {said} bytes expected, got {len(data)}")


def _end_of_caf(data: Bytes) -> int:
    """Find where the last chunk of a CAF file ends; 0 for other files, and where a chunk goes on to the end."""
    at = 8
    while data[:4].tobytes() == b"caff" and at + 12 <= len(data):
        size = int.from_bytes(data[at + 4 : at + 12].tobytes(), "big", signed=True)
        if size < 0:
            return 0
        at += 12 + size
    return at


def resample(values: NDArray[np.float32], before: int, after: int) -> NDArray[np.float32]:
    """Change the samples per second of sound [channels, samples], by a windowed sinc.

    It is `torchaudio.functional.resample` with its defaults (Hann's window).

    Raises:
        ValueError: the rates have so small a common divisor that the filter would take much memory.
    """
    step = math.gcd(before, after)
    if before * after // step**2 > LARGEST_FILTER:
        raise ValueError(
            f"sound of {before} samples per second can't be resampled to {after}, since the two have the small common "
            f"divisor {step}: is the file's header damaged?"
        )
    before, after = before // step, after // step
    kernel, width = _kernel(before, after)
    padded = torch.nn.functional.pad(torch.from_numpy(values)[:, None], (width, width + before))
    rows = torch.nn.functional.conv1d(padded, kernel, stride=before)
    out = rows.transpose(1, 2).reshape(len(values), -1)[:, : -(-after * values.shape[1] // before)]
    return np.ascontiguousarray(out.numpy())


@functools.lru_cache(16)
def _kernel(before: int, after: int) -> tuple[torch.Tensor, int]:
    """Make the filter of each phase, float32 [after, 1, taps], and the taps before a sample."""
    edge = min(before, after) * ROLLOFF
    width = math.ceil(ZEROS * before / edge)
    places = np.arange(-width, width + before) / before - np.arange(after)[:, None] / after
    places = np.clip(places * edge, -ZEROS, ZEROS)
    window = np.cos(places * np.pi / ZEROS / 2) ** 2
    return torch.from_numpy((np.sinc(places) * window * edge / before).astype(np.float32)[:, None]), width
