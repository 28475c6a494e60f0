"""The base of readers that need a GPU."""

from __future__ import annotations

import torch

from .known import KnownReader


class OnGPU(KnownReader):
    """Base of readers that need a GPU: `device="cuda"` at the loader."""

    def place(self, device: torch.device) -> torch.device:
        return device
