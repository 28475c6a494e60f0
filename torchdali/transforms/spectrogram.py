"""Transforms that make spectrograms of sound, and those that change them, with torchaudio's names and definitions."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch

from ..moves import Sizes
from ..rand import Rand
from .arguments import is_integer, is_number
from .base import Params
from .sound import SoundStep

Scale = Literal["htk", "slaney"]


@dataclass(frozen=True)
class _OfFrames(SoundStep):
    """Base of what begins with a Fourier transform of frames; no numbers are drawn."""

    gives = "spectrogram"

    @property
    def draws(self) -> bool:
        return False


@dataclass(frozen=True)
class Spectrogram(_OfFrames):
    """Make spectrograms of sound: float [C, n_fft // 2 + 1, frames], as `torchaudio.transforms.Spectrogram` does.

    Args:
        n_fft: samples per Fourier transform.
        win_length: samples of Hann's window; None: `n_fft`.
        hop_length: samples from one frame to the next; None: half a window.
        power: 2 for power, 1 for magnitude.
        normalized: divide by the window's root mean square energy.
        center: frames lie around their places, and the sound is extended at both ends.
        pad_mode: how it is extended: "reflect", "constant", "replicate" or "circular".

    Raises:
        ValueError: an invalid argument; and for a sound that is too short to be reflected, which is a bad sample.
    """

    n_fft: int = 400
    win_length: int | None = None
    hop_length: int | None = None
    power: float = 2.0
    normalized: bool = False
    center: bool = True
    pad_mode: str = "reflect"

    def __post_init__(self) -> None:
        for name in ("n_fft", "win_length", "hop_length"):
            value = getattr(self, name)
            if not (value is None and name != "n_fft") and not is_integer(value, 1):
                raise ValueError(f"{name} must be a positive number of samples, got {value!r}")
        if (self.win_length or 0) > self.n_fft:
            raise ValueError(f"win_length must be at most n_fft={self.n_fft}, got {self.win_length}")
        if not is_number(self.power) or not self.power > 0:
            raise ValueError(f"power must be positive, such as 2 for power or 1 for magnitude, got {self.power!r}")
        if self.pad_mode not in ("reflect", "constant", "replicate", "circular"):
            raise ValueError(f"pad_mode must be reflect, constant, replicate or circular, got {self.pad_mode!r}")

    def transform_sound(self, sound: torch.Tensor, **params: Any) -> torch.Tensor:
        needed = self.n_fft if not self.center else self.n_fft // 2 + 1 if self.pad_mode == "reflect" else 1
        if sound.shape[-1] < needed:
            raise ValueError(
                f"a sound of {sound.shape[-1]} samples is too short for a spectrogram with n_fft={self.n_fft}, which "
                f"needs {needed}: write RandomTimeCrop or CenterTimeCrop before it, which fill up"
            )
        length = self.win_length or self.n_fft
        window = torch.hann_window(length, dtype=sound.dtype)
        hop = self.hop_length or max(length // 2, 1)
        frames = torch.stft(
            sound, self.n_fft, hop, length, window, self.center, self.pad_mode, onesided=True, return_complex=True
        )
        if self.normalized:
            frames = frames / window.square().sum().sqrt()
        return frames.abs() if self.power == 1 else frames.abs().pow(self.power)


@dataclass(frozen=True)
class MelSpectrogram(_OfFrames):
    """Make spectrograms in mels: float [C, n_mels, frames], as `torchaudio.transforms.MelSpectrogram` does.

    With `norm="slaney"`, `mel_scale="slaney"`, `pad_mode="constant"` and `hop_length=n_fft // 4` it is
    `librosa.feature.melspectrogram`.  A filter that is narrower than the distance of two frequencies may be zero.

    Args:
        sample_rate: samples per second of the sound.
        n_fft, win_length, hop_length, power, normalized, center, pad_mode: those of `Spectrogram`.
        f_min, f_max: the lowest and the highest frequency, in Hz; None: half the sample rate.
        n_mels: the number of filters.
        norm: "slaney" divides each filter by its width; None: each has the height 1.
        mel_scale: the formula, "htk" or "slaney".

    Raises:
        ValueError: an invalid argument.
    """

    sample_rate: int = 16000
    n_fft: int = 400
    win_length: int | None = None
    hop_length: int | None = None
    f_min: float = 0.0
    f_max: float | None = None
    n_mels: int = 128
    power: float = 2.0
    normalized: bool = False
    center: bool = True
    pad_mode: str = "reflect"
    norm: Literal["slaney"] | None = None
    mel_scale: Scale = "htk"

    def __post_init__(self) -> None:
        self.spectrogram.__post_init__()
        if not is_integer(self.sample_rate, 1):
            raise ValueError(f"sample_rate must be a positive number of samples per second, got {self.sample_rate!r}")
        if not is_integer(self.n_mels, 1):
            raise ValueError(f"n_mels must be a positive number of filters, got {self.n_mels!r}")
        top = self.sample_rate / 2 if self.f_max is None else self.f_max
        if not (is_number(self.f_min) and is_number(top) and 0 <= self.f_min < top):
            raise ValueError(f"f_min and f_max must be rising frequencies from 0, got {self.f_min!r} and {top!r}")
        if self.norm not in (None, "slaney"):
            raise ValueError(f'norm must be "slaney" or None, got {self.norm!r}')
        if self.mel_scale not in ("htk", "slaney"):
            raise ValueError(f'mel_scale must be "htk" or "slaney", got {self.mel_scale!r}')

    @property
    def spectrogram(self) -> Spectrogram:
        """The spectrogram before the filters."""
        return Spectrogram(
            self.n_fft, self.win_length, self.hop_length, self.power, self.normalized, self.center, self.pad_mode
        )

    def transform_sound(self, sound: torch.Tensor, **params: Any) -> torch.Tensor:
        frames = self.spectrogram.transform_sound(sound)
        top = float(self.sample_rate // 2 if self.f_max is None else self.f_max)
        filters = mel_filters(
            self.n_fft // 2 + 1, self.sample_rate, float(self.f_min), top, self.n_mels, self.norm, self.mel_scale
        )
        return torch.matmul(filters.to(frames.dtype), frames)


@functools.lru_cache(16)
def mel_filters(
    frequencies: int, rate: int, f_min: float, f_max: float, n_mels: int, norm: str | None, scale: str
) -> torch.Tensor:
    """Make triangular filters, float32 [n_mels, frequencies]; those of `torchaudio.functional.melscale_fbanks`."""
    ends = _to_mel(np.array([f_min, f_max]), scale)
    corners = _to_hertz(np.linspace(ends[0], ends[1], n_mels + 2), scale)
    widths = np.diff(corners)[:, None]
    slopes = corners[:, None] - np.linspace(0, rate // 2, frequencies)
    filters = np.maximum(0, np.minimum(-slopes[:-2] / widths[:-1], slopes[2:] / widths[1:]))
    if norm == "slaney":
        filters *= 2 / (corners[2:] - corners[:-2])[:, None]
    return torch.from_numpy(filters.astype(np.float32))


_KNEE, _STEP, _LOG = 1000.0, 200 / 3, np.log(6.4) / 27  # of Slaney's scale: linear below 1 kHz, logarithmic above


def _to_mel(hertz: np.ndarray[Any, Any], scale: str) -> np.ndarray[Any, Any]:
    if scale == "htk":
        return 2595 * np.log10(1 + hertz / 700)
    return np.where(hertz < _KNEE, hertz / _STEP, _KNEE / _STEP + np.log(np.maximum(hertz, _KNEE) / _KNEE) / _LOG)


def _to_hertz(mels: np.ndarray[Any, Any], scale: str) -> np.ndarray[Any, Any]:
    if scale == "htk":
        return 700 * (10 ** (mels / 2595) - 1)
    knee = _KNEE / _STEP
    return np.where(mels < knee, mels * _STEP, _KNEE * np.exp(_LOG * (np.maximum(mels, knee) - knee)))


@dataclass(frozen=True)
class ToDecibels(SoundStep):
    """Make decibels of power or of magnitudes, as `torchaudio.transforms.AmplitudeToDB` does.

    Args:
        stype: "power" or "magnitude".
        top_db: values are raised to at most this much below the sample's largest; None: they stay.

    Raises:
        ValueError: an invalid argument.
    """

    stype: Literal["power", "magnitude"] = "power"
    top_db: float | None = None

    takes = None

    @property
    def draws(self) -> bool:
        return False

    def __post_init__(self) -> None:
        if self.stype not in ("power", "magnitude"):
            raise ValueError(f'stype must be "power" or "magnitude", got {self.stype!r}')
        if self.top_db is not None and not (is_number(self.top_db) and self.top_db >= 0):
            raise ValueError(f"top_db must not be negative, got {self.top_db!r}")

    def transform_sound(self, sound: torch.Tensor, **params: Any) -> torch.Tensor:
        decibels = (10.0 if self.stype == "power" else 20.0) * torch.log10(sound.clamp(min=1e-10))
        return decibels if self.top_db is None else decibels.clamp(min=float(decibels.amax()) - self.top_db)


@dataclass(frozen=True)
class MFCC(_OfFrames):
    """Make mel-frequency cepstral coefficients: float [C, n_mfcc, frames], as `torchaudio.transforms.MFCC` does.

    Args:
        sample_rate: samples per second of the sound.
        n_mfcc: the number of coefficients.
        norm: of the cosine transform, "ortho" or None.
        log_mels: take the natural logarithm of the mels; False: decibels, at most 80 below the largest.
        melkwargs: arguments of `MelSpectrogram`.

    Raises:
        ValueError: an invalid argument.
    """

    sample_rate: int = 16000
    n_mfcc: int = 40
    norm: Literal["ortho"] | None = "ortho"
    log_mels: bool = False
    melkwargs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        mels = self.mels
        if not is_integer(self.n_mfcc, 1) or self.n_mfcc > mels.n_mels:
            raise ValueError(f"n_mfcc must be between 1 and n_mels={mels.n_mels}, got {self.n_mfcc!r}")
        if self.norm not in (None, "ortho"):
            raise ValueError(f'norm must be "ortho" or None, got {self.norm!r}')

    @property
    def mels(self) -> MelSpectrogram:
        """The spectrogram before the logarithm."""
        return MelSpectrogram(self.sample_rate, **self.melkwargs)

    def transform_sound(self, sound: torch.Tensor, **params: Any) -> torch.Tensor:
        mels = self.mels.transform_sound(sound)
        mels = torch.log(mels + 1e-6) if self.log_mels else ToDecibels(top_db=80.0).transform_sound(mels)
        return torch.matmul(_cosines(self.n_mfcc, mels.shape[-2], self.norm).to(mels.dtype), mels)


@functools.lru_cache(16)
def _cosines(rows: int, columns: int, norm: str | None) -> torch.Tensor:
    """Make the cosine transform (DCT-II), float32 [rows, columns]."""
    numbers = np.arange(rows)[:, None]
    cosines = 2 * np.cos(np.pi / columns * (np.arange(columns) + 0.5) * numbers)
    if norm == "ortho":
        cosines *= np.where(numbers == 0, np.sqrt(0.5), 1) * np.sqrt(1 / (2 * columns))
    return torch.from_numpy(cosines.astype(np.float32))


@dataclass(frozen=True)
class _Masking(SoundStep):
    """Base of what erases a stretch of a spectrogram, in all channels."""

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        return {"share": rand.uniform(), "place": rand.uniform()}, sizes


def _mask(sound: torch.Tensor, dim: int, largest: float, share: float, place: float) -> torch.Tensor:
    """Erase along a dimension, as `torchaudio.functional.mask_along_axis` does with these two draws."""
    length = share * largest
    start = int(place * (sound.shape[dim] - length))
    masked = sound.clone()
    masked.narrow(dim, max(start, 0), min(int(length), sound.shape[dim] - max(start, 0))).zero_()
    return masked


@dataclass(frozen=True)
class TimeMasking(_Masking):
    """Set a stretch of time to zero in each spectrogram or sound (SpecAugment, 2019), as torchaudio's does.

    Args:
        time_mask_param: the stretch is shorter than this number of frames.
        p: it is at most this share of all frames.

    Raises:
        ValueError: an invalid argument.
    """

    time_mask_param: int
    p: float = 1.0

    takes = None

    def __post_init__(self) -> None:
        if not is_integer(self.time_mask_param, 0):
            raise ValueError(f"time_mask_param must be a number of frames, got {self.time_mask_param!r}")
        if not is_number(self.p) or not 0 <= self.p <= 1:
            raise ValueError(f"p must be a share between 0 and 1, got {self.p!r}")

    def transform_sound(
        self, sound: torch.Tensor, *, share: float = 0.0, place: float = 0.0, **params: Any
    ) -> torch.Tensor:
        largest = min(self.time_mask_param, int(sound.shape[-1] * self.p))
        return _mask(sound, -1, largest, share, place)


@dataclass(frozen=True)
class FrequencyMasking(_Masking):
    """Set a stretch of frequencies to zero in each spectrogram (SpecAugment, 2019), as torchaudio's does.

    Args:
        freq_mask_param: the stretch is shorter than this number of frequencies.

    Raises:
        ValueError: an invalid argument.
    """

    freq_mask_param: int

    takes = "spectrogram"

    def __post_init__(self) -> None:
        if not is_integer(self.freq_mask_param, 0):
            raise ValueError(f"freq_mask_param must be a number of frequencies, got {self.freq_mask_param!r}")

    def transform_sound(
        self, sound: torch.Tensor, *, share: float = 0.0, place: float = 0.0, **params: Any
    ) -> torch.Tensor:
        return _mask(sound, -2, min(self.freq_mask_param, sound.shape[-2]), share, place)
