"""Tells accelerate about a pass while it runs.

Accelerate asks the active loader whether the batch that the user holds is the epoch's last: `accumulate` then takes the
optimizer step of a window that is not full, and `gather_for_metrics` looks for rows to leave out.  Loaders that
accelerate wrapped tell it by themselves; ours stays as it is, so each pass is told to accelerate's `GradientState`.
Where several passes are open, the one that handed a batch over last is the active one.
"""

from __future__ import annotations

import sys
import warnings
import weakref
from typing import Any


class ToldPass:
    """A pass as accelerate's `GradientState` sees it.  It is forgotten with the object, so keep it while the pass runs.

    Attributes:
        end_of_dataloader: the batch that was handed over last is the last of the epoch.
        unmarked: that batch has rows of `pad_last`, and no field `valid` that marks them.
    """

    def __init__(self) -> None:
        self.end_of_dataloader = self.unmarked = False

    @property
    def remainder(self) -> int:
        """0: `gather_for_metrics` leaves nothing out, but those rows that `valid` marks, where the user does it.

        Only `gather_for_metrics` asks, and only after the last batch.
        """
        if self.unmarked:
            _warn_once(
                "the last batch was filled by repeated rows (pad_last), and they are counted in what is gathered, "
                "since the batch has no field `valid`: name it in the dataset's fields, gather it too, and leave out "
                "the rows where it is False"
            )
        return 0


def tell_pass() -> ToldPass | None:
    """Begin to tell of a pass; None where accelerate is not in use in this process."""
    state = _gradient_state()
    if state is None:
        return None
    told = ToldPass()
    state._add_dataloader(told)
    weakref.finalize(told, _forget_dropped).atexit = False
    return told


def tell_batch(told: ToldPass | None, last: bool, unmarked: bool = False, rows: int = 0, ranks: int = 1) -> None:
    """A batch is handed over: the pass becomes the active one, since the user holds its batch.

    Args:
        told: the pass; None: accelerate is not in use.
        last: the batch is the epoch's last.
        unmarked: it has rows that only fill it, and no field `valid`.
        rows: its rows over all ranks.
        ranks: the number of ranks.
    """
    state = _gradient_state()
    if told is None or state is None:
        return
    told.end_of_dataloader, told.unmarked = last, unmarked
    if rows % ranks:
        _warn_once(
            f"a batch of {rows} rows is shared by {ranks} ranks, which do not all have the same number of rows: "
            "gather_for_metrics and other collectives fail on it.  Write drop_last=True, or pad_last=True and leave "
            "out the rows where the field `valid` is False, or gather with use_gather_object=True"
        )
    references = state.dataloader_references
    if references[-1] is not told:
        state.dataloader_references = [*(other for other in references if other is not told), told]


_said: set[str] = set()


def _warn_once(text: str) -> None:
    kind = text[:30]
    if kind not in _said:
        _said.add(kind)
        warnings.warn(text, RuntimeWarning, stacklevel=3)


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
