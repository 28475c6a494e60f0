"""Lightning Fabric, whose `setup_dataloaders` takes instances of torch's loader only, and gives each rank its share.

A torchdali loader passes for one there, and for one that is shared out already.  The loader moves its batches and
shares its samples by itself, so Fabric's wrapper only iterates it.  It passes for one in a few libraries too that
refuse all others and only iterate it; everywhere else it is what it is.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from torch.utils.data import DataLoader, DistributedSampler

from .asking import named_frame
from .views import EpochSampler

_MODULES = ("lightning_fabric.", "lightning.fabric.")
_TAKERS = ("torch_lr_finder.", "monai.optimizers.", "speechbrain.")


class TakenByFabric:
    """Base of a loader that Fabric and others take."""

    @property  # isinstance asks for it where the type is another one
    def __class__(self) -> type:
        frame = sys._getframe(1)
        taken = f"{frame.f_globals.get('__name__', '')}.".startswith(_TAKERS)
        return DataLoader if taken or _asked_by(frame, "_validate_setup_dataloaders") else type(self)

    @__class__.setter
    def __class__(self, cls: type) -> None:
        raise TypeError("a loader stays one")

    def for_fabric(self, **attributes: Any) -> None:
        """Hold attributes for Fabric's wrapper, which copies `vars(loader)`; the loader's own are properties."""
        self.__dict__.update(attributes)


class SharedEpochSampler(EpochSampler, DistributedSampler[int]):
    """The order of the epoch in progress, for Fabric: the loader gives each rank its share, and counts the epochs.

    Fabric would tell it the number of passes in this process, which a resume would begin anew.
    """

    def set_epoch(self, epoch: int) -> None:
        """Leave the epoch to the loader."""


def fabric_asks() -> bool:
    """Whether Fabric asks for the sampler, to give it the epoch or to share the samples out."""
    return _asked_by(sys._getframe(2), "_requires_distributed_sampler", "_FabricDataLoader.__iter__")


def _asked_by(frame: FrameType, *names: str) -> bool:
    found = (named_frame(frame, name) for name in names)
    return any(one is not None and one.f_globals.get("__name__", "").startswith(_MODULES) for one in found)
