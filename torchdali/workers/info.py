"""The answer of `torch.utils.data.get_worker_info` in our workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data._utils import worker as torch_worker


class WatchedInfo(torch_worker.WorkerInfo):
    """torch's WorkerInfo, which also notes whether its `id` was read.

    Attributes:
        seed: `torch.initial_seed()`, as in torch; here it is another one for each sample.
        asked: whether `id` was read; it may be set.
        told: called when `id` is read; None: nothing is.  It may be set.
        starting: `worker_init_fn` runs, which has the id as its argument: to read `num_workers` is to ask, too.
    """

    asked: bool
    starting: bool
    told: Callable[[], None] | None

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.__dict__.update(asked=False, told=None, starting=False)

    def __getattribute__(self, name: str) -> Any:
        known = object.__getattribute__(self, "__dict__")
        if name == "id" or (name == "num_workers" and known["starting"]):
            known["asked"] = True
            if known["told"] is not None:
                known["told"]()
        if name == "seed":
            return torch.initial_seed()
        return object.__getattribute__(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("asked", "told", "starting"):
            self.__dict__[name] = value
        else:
            super().__setattr__(name, value)


def worker_info() -> WatchedInfo | None:
    """Get the info of this process; None where it is no worker of ours."""
    info = torch_worker._worker_info
    return info if isinstance(info, WatchedInfo) else None
