"""What other libraries are told of a pass while it runs.

Accelerate asks the active loader whether the batch that the user holds is the epoch's last: `accumulate` then takes the
optimizer step of a window that is not full, and `gather_for_metrics` looks for rows to leave out.  Loaders that
accelerate wrapped tell it by themselves; ours stays as it is, so each pass is told to accelerate's `GradientState`.
"""

from __future__ import annotations

import sys
import weakref
from typing import Any


class ToldPass:
    """A pass as accelerate's `GradientState` sees it.  It is forgotten with the object, so keep it while the pass runs.

    Attributes:
        end_of_dataloader: the batch that was handed over last is the last of the epoch.
        remainder: 0: `gather_for_metrics` leaves nothing out.  There are no rows to leave out but those of `pad_last`,
            and these the field `valid` marks on each rank.
    """

    remainder = 0

    def __init__(self) -> None:
        self.end_of_dataloader = False


def tell_pass() -> ToldPass | None:
    """Begin to tell of a pass; None where accelerate is not in use in this process."""
    state = _gradient_state()
    if state is None:
        return None
    told = ToldPass()
    state._add_dataloader(told)
    weakref.finalize(told, _forget_dropped).atexit = False
    return told


def tell_end(told: ToldPass | None) -> None:
    """The pass is over, and its last batch too."""
    state = _gradient_state()
    if told is not None and state is not None:
        state._remove_dataloader(told)


def _gradient_state() -> Any:
    """Accelerate's state, if an `Accelerator` (or a `Trainer` of transformers) made it."""
    module = sys.modules.get("accelerate.state")
    state = getattr(module, "GradientState", None)
    return state() if state is not None and state._shared_state else None


def _forget_dropped() -> None:
    """Take passes that were broken off from the list: a dropped one at its end would hide those that run."""
    state = _gradient_state()
    if state is not None:
        state.dataloader_references = [None, *(told for told in state.dataloader_references if told is not None)]
