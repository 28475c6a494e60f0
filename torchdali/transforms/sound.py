"""The base of the transforms of sound."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch

from .base import Transform

Form = Literal["sound", "spectrogram"]


class SoundStep(Transform):
    """Base of the transforms of sound: they act on all fields of the kind `Audio`, and leave pictures as they are.

    A subclass defines `transform_sound`, and `make_params` where it draws: it is called without sizes, so its numbers
    are fractions of a sound's length.  Sound stays on the CPU until its batch is made, whatever the loader's device.
    """

    acts_on: ClassVar[Literal["audio"]] = "audio"

    takes: ClassVar[Form | None] = "sound"
    """It is for sound [C, samples], or for spectrograms [C, frequencies, frames]; None: for both."""
    gives: ClassVar[Form | None] = None
    """What it makes of them; None: what it takes."""
    fixes_length: ClassVar[bool] = False
    """Sounds of any lengths come out with one length."""
    varies_length: ClassVar[bool] = False
    """Sounds of one length come out with different ones."""

    def transform_sound(self, sound: torch.Tensor, **params: Any) -> torch.Tensor:
        """Transform one sound, in torch on the CPU.

        Args:
            sound: float [C, samples], or a spectrogram [C, frequencies, frames]; it is not changed.
            **params: the sample's rows of the params, as plain numbers.
        """
        raise NotImplementedError

    def transform(self, ops: Any, image: Any) -> Any:
        return image

    def transform_host(self, image: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        return image


def is_sound(step: Any) -> bool:
    """Whether a step is a transform of sound, or chooses among such."""
    return isinstance(step, SoundStep) or bool(getattr(step, "of_sound", False))


def fill_up(sound: torch.Tensor, size: int) -> torch.Tensor:
    """Add silence at the end of a sound that is shorter than `size` samples."""
    return torch.nn.functional.pad(sound, (0, max(size - sound.shape[-1], 0)))
