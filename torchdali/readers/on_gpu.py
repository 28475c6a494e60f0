"""The base of readers that need a GPU."""

from __future__ import annotations

import torch

from .. import _dali
from .known import KnownReader


class OnGPU(KnownReader):
    """Base of readers that need a GPU: `device="cuda"` at the loader."""

    def __len__(self) -> int:
        if self._length is None and torch.cuda.is_available():
            device = torch.device("cuda", torch.cuda.current_device())
            with _dali.context(1, device):
                self._length = int(self.make(0, 1, 1, 0, 1, device).get_metadata()["epoch_size"])
        return super().__len__()
