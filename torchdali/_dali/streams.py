"""CUDA streams that are leased, and the GPU that is a thread's current one."""

from __future__ import annotations

import weakref
from contextlib import nullcontext
from typing import Any

import torch

_free_streams: dict[torch.device, list[torch.cuda.Stream]] = {}


def lease_stream(owner: object, device: torch.device) -> torch.cuda.Stream | None:
    """Lease a CUDA stream for as long as `owner` lives; None on the CPU.

    Leased again and again, and not made for each pass: PyTorch has 32 streams and then hands out the same ones, also to
    the training, and its allocator keeps memory for each.
    """
    if device.type == "cpu":
        return None
    free = _free_streams.setdefault(device, [])
    try:
        stream = free.pop()  # atomic: passes may begin in several threads
    except IndexError:
        stream = _new_stream(device)
    weakref.finalize(owner, free.append, stream).atexit = False
    return stream


def _new_stream(device: torch.device) -> torch.cuda.Stream:
    stream: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    return stream


def on_device(device: torch.device) -> Any:
    """Make a GPU the thread's current one in a block; nothing for the CPU."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def stay_on_device(device: torch.device) -> None:
    """Make a GPU this thread's current one for good.

    A new thread stands at GPU 0, and DALI goes back to where it found the thread, which makes a CUDA context there.
    """
    if device.type == "cuda":
        torch.cuda.set_device(device)
