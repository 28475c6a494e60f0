"""Transforms of sound: crops, shifts, noise and silence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..moves import Sizes
from ..rand import Rand
from .arguments import is_integer, is_number, probability
from .base import Params
from .noise import normal, seeds
from .sound import SoundStep, fill_up


@dataclass(frozen=True)
class CenterTimeCrop(SoundStep):
    """Cut the middle out of each sound, and fill up shorter ones with silence at their end: all leave with one length.

    Args:
        size: samples.
        pad: False makes a sound that is shorter than `size` a bad sample.

    Raises:
        ValueError: an invalid argument.
    """

    size: int
    pad: bool = True

    fixes_length = True

    @property
    def draws(self) -> bool:
        return False

    def __post_init__(self) -> None:
        if not is_integer(self.size, 1):
            raise ValueError(f"size must be a positive number of samples, got {self.size!r}")

    def transform_sound(self, sound: torch.Tensor, **params: Any) -> torch.Tensor:
        return self._crop(sound, 0.5)

    def _crop(self, sound: torch.Tensor, place: float) -> torch.Tensor:
        spare = sound.shape[-1] - self.size
        if spare < 0 and not self.pad:
            raise ValueError(
                f"a sound of {sound.shape[-1]} samples is shorter than size={self.size}: write pad=True to fill it up"
            )
        start = min(int(place * (spare + 1)), spare) if spare > 0 else 0
        return fill_up(sound[..., start : start + self.size], self.size)


@dataclass(frozen=True)
class RandomTimeCrop(CenterTimeCrop):
    """Cut a part out of each sound, and fill up shorter ones with silence at their end: all leave with one length.

    Args:
        size: samples.
        pad: False makes a sound that is shorter than `size` a bad sample.

    Raises:
        ValueError: an invalid argument.
    """

    @property
    def draws(self) -> bool:
        return True

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        return {"place": rand.uniform()}, sizes

    def transform_sound(self, sound: torch.Tensor, *, place: float = 0.0, **params: Any) -> torch.Tensor:
        return self._crop(sound, place)


@dataclass(frozen=True)
class TimeShift(SoundStep):
    """Move each sound later or earlier; silence comes in, or what went out at the other end.

    Args:
        max_shift: the largest shift to either side, as a share of the sound's length.
        roll: what goes out at one end comes in at the other.
        p: the probability.

    Raises:
        ValueError: an invalid argument.
    """

    max_shift: float = 0.1
    roll: bool = False
    p: float = 1.0

    def __post_init__(self) -> None:
        if not is_number(self.max_shift) or not 0 <= self.max_shift <= 1:
            raise ValueError(f"max_shift must be a share of the length between 0 and 1, got {self.max_shift!r}")
        probability(self.p)

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        shift = rand.uniform(-self.max_shift, self.max_shift)
        return {"shift": shift * (rand.uniform() < self.p)}, sizes

    def transform_sound(self, sound: torch.Tensor, *, shift: float = 0.0, **params: Any) -> torch.Tensor:
        by = round(shift * sound.shape[-1])
        if not by:
            return sound
        moved = torch.roll(sound, by, -1)
        if not self.roll:
            (moved[..., :by] if by > 0 else moved[..., by:]).zero_()
        return moved


@dataclass(frozen=True)
class AddNoise(SoundStep):
    """Add white noise, at a signal-to-noise ratio drawn for each sound.

    The ratio is that of `torchaudio.functional.add_noise`: of the energies of each channel.  Silence stays silent.

    Args:
        snr: decibels, or a range of them.
        p: the probability.

    Raises:
        ValueError: an invalid argument.
    """

    snr: float | Sequence[float] = (10.0, 40.0)
    p: float = 1.0

    def __post_init__(self) -> None:
        ends = tuple(self.snr) if isinstance(self.snr, Sequence) else (self.snr, self.snr)
        if len(ends) != 2 or not all(is_number(end) for end in ends) or not ends[0] <= ends[1]:
            raise ValueError(f"snr must be decibels, or (lowest, highest), got {self.snr!r}")
        object.__setattr__(self, "snr", (float(ends[0]), float(ends[1])))
        probability(self.p)

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        assert isinstance(self.snr, tuple)
        return {"snr": rand.uniform(*self.snr), "seed": seeds(rand), "applies": rand.uniform() < self.p}, sizes

    def transform_sound(
        self, sound: torch.Tensor, *, snr: float = 0.0, seed: int = 0, applies: bool = True, **params: Any
    ) -> torch.Tensor:
        if not applies:
            return sound
        noise = normal(sound.shape, seed, sound.dtype)
        energy, own = (x.square().sum(-1, keepdim=True) for x in (sound, noise))
        return sound + noise * (energy / own.clamp(min=torch.finfo(own.dtype).tiny)).sqrt() * 10 ** (-snr / 20)


@dataclass(frozen=True)
class TrimSilence(SoundStep):
    """Cut off silence at both ends, as `librosa.effects.trim` does.

    Frames count as silent if their power in every channel is more than `top_db` below the loudest frame's.

    Args:
        top_db: decibels.
        frame_length: samples per frame.
        hop_length: samples from one frame to the next.

    Raises:
        ValueError: an invalid argument.
    """

    top_db: float = 60
    frame_length: int = 2048
    hop_length: int = 512

    varies_length = True

    @property
    def draws(self) -> bool:
        return False

    def __post_init__(self) -> None:
        if not is_number(self.top_db) or not self.top_db > 0:
            raise ValueError(f"top_db must be positive, got {self.top_db!r}")
        if not is_integer(self.frame_length, 1) or not is_integer(self.hop_length, 1):
            raise ValueError(
                f"frame_length and hop_length must be positive, got {self.frame_length!r} and {self.hop_length!r}"
            )

    def transform_sound(self, sound: torch.Tensor, **params: Any) -> torch.Tensor:
        samples = sound.shape[-1]
        if not samples:
            return sound
        side = self.frame_length // 2
        padded = torch.nn.functional.pad(sound, (side, side))
        power = padded.unfold(-1, self.frame_length, self.hop_length).square().mean(-1)  # [C, frames]
        floor = power.amax().clamp(min=1e-10) * 10 ** (-self.top_db / 10)
        loud = torch.nonzero((power.clamp(min=1e-10) > floor).any(0))
        if not len(loud):
            return sound[..., :0]
        first, last = int(loud[0]), int(loud[-1])
        return sound[..., first * self.hop_length : min(samples, (last + 1) * self.hop_length)]
