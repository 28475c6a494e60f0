"""A Lightning Trainer that trains on the same few batches in each epoch (`overfit_batches`)."""

from __future__ import annotations

import sys
import weakref
from typing import Any

from .asking import named_frame


class Overfitting:
    """Tells whether a Trainer that was given `overfit_batches` is training.

    Args:
        trainer: the Trainer.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = weakref.ref(trainer)

    def of(self, trainer: Any) -> bool:
        """Whether it is this Trainer."""
        return self._trainer() is trainer

    @property
    def running(self) -> bool:
        """Whether it trains now; its loaders are shuffled again after that, as with torch's, which it replaces."""
        state = getattr(self._trainer(), "state", None)
        return state is not None and state.status == "running" and state.fn == "fit"  # enumerations of strings


def overfitting_trainer() -> Any:
    """The Trainer that looks for shuffled loaders at this moment; None where none does."""
    frame = named_frame(sys._getframe(2), "_resolve_overfit_batches")
    caller = None if frame is None else frame.f_back
    return None if caller is None else caller.f_locals.get("trainer")
