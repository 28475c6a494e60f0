"""The forms of videos [F, H, W, C]: those of images, the same for all frames of a sample."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..moves import Move
from . import image

if TYPE_CHECKING:
    from .._dali import Ops

has_dali_form = image.has_dali_form


def move_on_dali(ops: Ops, video: Any, move: Move) -> Any:
    """Move a batch (or a pipeline's node) of videos [F, H, W, C], whose layout must say so."""
    return image.move_on_dali(ops, video, move, "video")


def move_on_host(video: torch.Tensor, move: Move) -> torch.Tensor:
    """Move one video [F, C, H, W], by torchvision's kernels; the result may be a view of it."""
    return image.move_on_host(video, move, "video")
