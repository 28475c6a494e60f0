"""Whether a trainer's own code is asking.

Trainers take loaders apart: accelerate's `skip_first_batches` builds a torch DataLoader from a loader's attributes, and
would start torch's workers around ours.  They see the views of `trainers.views` and a loader without workers; everyone
else sees the options and the dataset as they are.
"""

from __future__ import annotations

import sys
from types import FrameType

TRAINERS = ("accelerate", "lightning", "lightning_fabric", "pytorch_lightning", "transformers")


def named_frame(frame: FrameType | None, name: str) -> FrameType | None:
    """Find a function among the nearest three frames: it may look an attribute up in a generator, or by a helper.

    Args:
        frame: the nearest one.
        name: the function's qualified name, or the end of it.
    """
    for _ in range(3):
        if frame is not None and f".{frame.f_code.co_qualname}".endswith(f".{name}"):
            return frame
        frame = frame and frame.f_back
    return None


def trainer_asks() -> bool:
    """Whether the code that looks an attribute up, two frames above this call, belongs to a trainer."""
    module: str = sys._getframe(2).f_globals.get("__name__", "")
    return module.partition(".")[0] in TRAINERS
