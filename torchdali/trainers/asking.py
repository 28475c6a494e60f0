"""Whether a trainer's own code is asking.

Trainers take loaders apart: accelerate's `skip_first_batches` builds a torch DataLoader from a loader's attributes, and
would start torch's workers around ours.  They see the views of `trainers.views` and a loader without workers; everyone
else sees the options and the dataset as they are.
"""

from __future__ import annotations

import sys

TRAINERS = ("accelerate", "lightning", "lightning_fabric", "pytorch_lightning", "transformers")


def overfitting_asks() -> bool:
    """Whether Lightning looks for shuffled loaders, to train on the same batches in each epoch (`overfit_batches`)."""
    frame = sys._getframe(2)
    for _ in range(2):  # in a generator, or not
        if frame is not None and frame.f_code.co_name == "_resolve_overfit_batches":
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def trainer_asks() -> bool:
    """Whether the code that looks an attribute up, two frames above this call, belongs to a trainer."""
    module: str = sys._getframe(2).f_globals.get("__name__", "")
    return module.partition(".")[0] in TRAINERS
