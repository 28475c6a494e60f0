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

ZEROS, ROLLOFF = 6, 0.99  # zero crossings of the filter on each side, and its edge in Nyquist frequencies


def decode_audio(data: Bytes, rate: int | None = None, channels: int | None = None) -> NDArray[np.float32]:
    """Decode a sound file: float32 [channels, samples], from -1 to 1.

    Args:
        data: the file, uint8 [n].
        rate: samples per second; a file of another rate is resampled.  None: the file's.
        channels: 1 mixes channels down; None: the file's.

    Raises:
        ValueError: a damaged WAV file, or a file with another number of channels.
        ImportError: no soundfile, for anything but WAV.
        RuntimeError: soundfile's, for what it can't read.
    """
    values, own = read_wav(data) if data[:4].tobytes() == b"RIFF" else _by_soundfile(data)
    if channels == 1:
        values = values.mean(0, keepdims=True, dtype=np.float32)
    elif channels is not None and len(values) != channels:
        raise ValueError(f"{channels} channels were expected, got {len(values)}: write channels=1 to mix them, or None")
    return values if rate in (None, own) else resample(values, own, rate)


def read_wav(data: Bytes) -> tuple[NDArray[np.float32], int]:
    """Read a WAV file: float32 [channels, samples], and its samples per second.

    Raises:
        ValueError: it is cut off, or holds anything but PCM or floats.
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
    if (code, bits) not in _WAV or not channels or frame != channels * bits // 8:
        raise ValueError(f"a WAV file of PCM or floats was expected, got the code {code} with {bits} bits")
    if len(view) - at - 8 < size and size not in (0, 0xFFFFFFFF):  # what a pipe's writer could not know
        raise ValueError(f"the WAV file is cut off: {size} bytes of data expected, got {len(view) - at - 8}")
    raw = data[at + 8 : at + 8 + size] if size not in (0, 0xFFFFFFFF) else data[at + 8 :]
    raw = raw[: len(raw) // frame * frame]
    if bits == 24:  # into the high bytes of 32 bits
        wide = np.zeros((len(raw) // 3, 4), np.uint8)
        wide[:, 1:] = raw.reshape(-1, 3)
        raw = wide.ravel()
    dtype, zero, scale = _WAV[code, bits]
    values: NDArray[np.float64] = np.frombuffer(raw, dtype).astype(np.float64)
    values = (values - zero) / scale
    return np.ascontiguousarray(values.astype(np.float32).reshape(-1, channels).T), rate


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
    values, rate = soundfile.read(io.BytesIO(data.data), dtype="float32", always_2d=True)
    return np.ascontiguousarray(values.T), int(rate)


def resample(values: NDArray[np.float32], before: int, after: int) -> NDArray[np.float32]:
    """Change the samples per second of sound [channels, samples], by a windowed sinc.

    It is `torchaudio.functional.resample` with its defaults (Hann's window).
    """
    step = math.gcd(before, after)
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
