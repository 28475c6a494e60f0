"""Checks DALI's options of a reader, and refuses those that torchdali sets itself."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..checks import integer

SET_HERE = {
    "shard_id": "each rank reads its own shard: write rank= and world_size= at the DataLoader",
    "num_shards": "each rank reads its own shard: write virtual_shards= for more of them",
    "random_shuffle": 'write shuffle="window"',
    "shuffle_after_epoch": 'write shuffle="full"',
    "shuffle_after_epoch_seed": "write seed=",
    "stick_to_shard": 'with shuffle="window", a rank reads other shards in each epoch; otherwise it keeps its own',
    "pad_last_batch": "the last batch is a true one: write pad_last=True at the DataLoader for full ones",
    "enable_checkpointing": "the state is the loader's, and always there",
    "checkpointing": "the state is the loader's, and always there",
    "batch_size": "write batch_size= at the DataLoader",
    "max_batch_size": "write batch_size= at the DataLoader",
    "skip_cached_images": "it would leave out samples",
    "lazy_init": "a reader is opened when it is first needed",
    "preserve": "leave it out",
    "name": "leave it out",
    "device": "write device= at the DataLoader",
}
"""DALI's options that torchdali sets itself, and what to write instead."""


def check_options(reader: str, options: Mapping[str, Any], known: set[str]) -> dict[str, Any]:
    """Check options, and give them in DALI's types, without those that are None.

    Raises:
        ValueError: an option that torchdali sets itself, or a number that would end DALI's process.
        TypeError: an option that the reader doesn't have.
    """
    for name in options:
        if name in SET_HERE:
            raise ValueError(f"{reader} takes no {name}: {SET_HERE[name]}")
        if name not in known:
            raise TypeError(f"{reader} has no option {name!r}: {', '.join(sorted(known - {*SET_HERE}))}")
    for name in ("initial_fill", "prefetch_queue_depth"):
        if name in options:
            integer(name, options[name], 1, 2**31 - 1)
    return {name: _plain(value) for name, value in options.items() if value is not None}


def _plain(value: Any) -> Any:
    """Turn paths, tuples and arrays into strings and lists, since DALI does not take them everywhere."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else copy.copy(value)
