"""Transforms of a clip's frames as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from .arguments import is_integer
from .base import Transform


@dataclass(frozen=True)
class UniformTemporalSubsample(Transform):
    """Some frames of each clip, evenly spaced from the first to the last; a shorter clip repeats frames.

    As torchvision's `uniform_temporal_subsample`.  The frames are chosen before anything else is done with the clip, so
    it comes before functions and `Views`.

    Args:
        num_samples: the number of frames.

    Raises:
        ValueError: an invalid argument.
    """

    num_samples: int

    draws = False

    acts_on: ClassVar[Literal["video"]] = "video"

    def __post_init__(self) -> None:
        if not is_integer(self.num_samples, 1):
            raise ValueError(f"num_samples must be a positive integer, got {self.num_samples!r}")

    def chosen(self, frames: int) -> NDArray[np.int64]:
        """Give the numbers of the frames, int64 [num_samples], of a clip that has some."""
        numbers: NDArray[np.int64] = torch.linspace(0, frames - 1, self.num_samples, dtype=torch.float32).long().numpy()
        return numbers

    def transform(self, ops: Any, image: Any) -> Any:
        return image

    def transform_host(self, image: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        return image
