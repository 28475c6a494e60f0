"""Seeds for the global random generators, which user code draws from.

Before each sample, the generators of Python, numpy and torch are seeded by (seed, epoch, sample), so that a sample is
the same in any worker process, and in none.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any

import numpy as np
import torch

_SAMPLE, _SEEDS = struct.Struct("<QQQ"), struct.Struct("<QIQ")


def seed_all(*numbers: int, more: Sequence[torch.Generator] = ()) -> int:
    """Seed the global generators of Python, numpy (the legacy one) and torch (CPU) by some numbers, in microseconds.

    Args:
        numbers: any integers.
        more: generators of torch that get the same seed as its own.

    Returns:
        The 64-bit seed that the numbers give.
    """
    hashed = blake2b(struct.pack(f"<{len(numbers)}Q", *[n % 2**64 for n in numbers]), digest_size=20).digest()
    seed, legacy, own = _SEEDS.unpack(hashed)
    set_seeds(seed, legacy, own, more)
    return int(seed)


def set_seeds(python: int, legacy: int, own: int, more: Sequence[torch.Generator] = ()) -> None:
    """Seed the global generators of Python, numpy and torch (CPU), and some more of torch's, with these numbers."""
    random.seed(python)
    np.random.seed(legacy)
    for generator in (torch.default_generator, *more):
        generator.manual_seed(own)


def seed_sample(seed: int, epoch: int, index: int) -> int:
    """Seed the global generators for one sample.

    Args:
        seed: the loader's.
        epoch: the epoch (with its cycle, see `state.Position.key`).
        index: what the sample's random numbers are keyed by.

    Returns:
        The 64-bit seed of the sample.
    """
    # As `seed_all`, and quicker: this is called for each sample.
    numbers = _SAMPLE.pack(seed % 2**64, epoch % 2**64, index % 2**64)
    python, legacy, own = _SEEDS.unpack(blake2b(numbers, digest_size=20).digest())
    random.seed(python)
    np.random.seed(legacy)
    torch.default_generator.manual_seed(own)
    return int(python)


def global_states() -> tuple[bytes, ...]:
    """Tell where the global generators of Python, numpy and torch (CPU) stand."""
    legacy: Any = np.random.get_state()
    parts = repr(random.getstate()).encode(), legacy[1].tobytes() + repr(legacy[2:]).encode()
    return (*parts, torch.default_generator.get_state().numpy().tobytes())


GLOBAL = ("random", "np.random", "torch")
"""The names of the global generators, in the order of `global_states`."""


def get_states(more: Sequence[torch.Generator] = ()) -> Any:
    """Get the states of the global generators, and of some more of torch's, for `restore_states`."""
    return (
        random.getstate(),
        np.random.get_state(),
        [generator.get_state() for generator in (torch.default_generator, *more)],
    )


def restore_states(states: Any, more: Sequence[torch.Generator] = ()) -> None:
    """Put the generators back to where they stood."""
    python, legacy, own = states
    random.setstate(python)
    np.random.set_state(legacy)
    for generator, state in zip((torch.default_generator, *more), own, strict=True):
        generator.set_state(state)


def gpu_generator(device: torch.device) -> tuple[torch.Generator, ...]:
    """Give the global generator of a GPU that is in use; nothing for the CPU, whose generator is torch's own."""
    return (torch.cuda.default_generators[device.index],) if device.type == "cuda" else ()


@contextmanager
def preserved(*more: torch.Generator) -> Iterator[None]:
    """Seed the global generators, and some of torch's, inside this block; they are put back after it."""
    states = get_states(more)
    try:
        yield
    finally:
        restore_states(states, more)
