"""The answer of `torch.utils.data.get_worker_info` in our workers."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data._utils import worker as torch_worker


class WatchedInfo(torch_worker.WorkerInfo):
    """torch's WorkerInfo, which also notes whether its `id` was read.

    Attributes:
        seed: `torch.initial_seed()`, as in torch; here it is another one for each sample.
        asked: whether `id` was read; it may be set.
    """

    asked: bool

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.__dict__["asked"] = False

    def __getattribute__(self, name: str) -> Any:
        if name == "id":
            object.__getattribute__(self, "__dict__")["asked"] = True
        if name == "seed":
            return torch.initial_seed()
        return object.__getattribute__(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "asked":
            self.__dict__["asked"] = value
        else:
            super().__setattr__(name, value)


def worker_info() -> WatchedInfo | None:
    """Get the info of this process; None where it is no worker of ours."""
    info = torch_worker._worker_info
    return info if isinstance(info, WatchedInfo) else None
