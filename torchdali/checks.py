"""Checks of a loader's arguments, in one sentence each."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from numbers import Integral
from pathlib import Path
from typing import Any

# torch's arguments that have another word here.
ELSEWHERE = {
    "collate_fn": "batches are put together by the loader: write transform=, or output='dict'",
    "batch_sampler": "write sampler= and batch_size=",
    "generator": "the order and the augmentations follow from seed=",
    "pin_memory_device": "batches arrive on the loader's device: write device=",
}

INT32 = range(-(2**31), 2**31)  # the labels that DALI reads as they are
FLAGS = ("shuffle", "drop_last", "pad_last", "pin_memory", "persistent_workers")


def refuse_torch_arguments(given: Mapping[str, Any]) -> None:
    """Raise where one of torch's arguments is used that has another word here.

    Raises:
        ValueError: with what to write instead.
    """
    for name, instead in ELSEWHERE.items():
        if given[name]:
            raise ValueError(f"torchdali.DataLoader has no {name}={given[name]!r:.80}: {instead}")
    if not given["in_order"]:
        raise ValueError("torchdali.DataLoader has no in_order=False: a stream has one order")


def check_arguments(given: Mapping[str, Any]) -> None:
    """Check a loader's arguments that are neither integers nor somebody else's to check.

    Raises:
        ValueError, TypeError: one that can't be meant, or two that exclude each other.
    """
    one_of("engine", given["engine"], ("auto", "eager", "pipeline", "debug"))
    one_of("output", given["output"], ("tuple", "dict"))
    for name in FLAGS:
        if given[name] not in (True, False, None):  # numpy's too; a text would count as true
            raise TypeError(f"{name} must be True or False, got {given[name]!r:.80}")
    if not callable(given["on_bad_sample"]):
        one_of("on_bad_sample", given["on_bad_sample"], ("raise", "substitute"))
    timeout, pad_value, mesh = given["timeout"], given["pad_value"], given["mesh"]
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout >= 0:
        raise ValueError(f"timeout must be a number of seconds, at least 0, got {timeout!r}")
    if isinstance(pad_value, bool) or not isinstance(pad_value, (int, float)):
        raise TypeError(f"pad_value must be a number, got {pad_value!r}")
    if mesh is not None and not hasattr(mesh, "get_local_rank"):
        raise TypeError(f"mesh must be a torch DeviceMesh, got {mesh!r:.80}")
    group = given["process_group"]
    if group is not None and not hasattr(group, "rank"):
        raise TypeError(f"process_group must be a torch ProcessGroup that this process is in, got {group!r:.80}")
    if mesh is not None and group is not None:
        raise ValueError("mesh and process_group exclude each other")
    if given["drop_last"] and given["pad_last"]:
        raise ValueError("drop_last and pad_last exclude each other")
    if given["persistent_workers"] and not given["num_workers"]:
        raise ValueError("persistent_workers needs num_workers > 0")
    if given["multiprocessing_context"] is not None and not given["num_workers"]:
        raise ValueError(f"multiprocessing_context={given['multiprocessing_context']!r} needs num_workers > 0")


def integer(name: str, value: Any, smallest: int, largest: int | None = None) -> int:
    """The value, if it is an integer within the bounds.

    Raises:
        TypeError, ValueError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):  # numpy's too
        raise TypeError(f"{name} must be an integer, got {value!r}")
    number = int(value)
    if number < smallest or (largest is not None and number > largest):
        bound = f"at least {smallest}" if largest is None else f"in [{smallest}, {largest}]"
        raise ValueError(f"{name} must be {bound}, got {value}")
    return number


def one_of(name: str, value: Any, choices: Sequence[str]) -> None:
    """Raise unless the value is one of the choices.

    Raises:
        ValueError: it is not.
    """
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def nearest(name: str, names: Iterable[str]) -> str:
    """What may have been meant, as the end of an error: " (did you mean 'batch_size'?)"; "" where nothing is near."""
    found = get_close_matches(name, list(names), n=1)
    return f" (did you mean {found[0]!r}?)" if found else ""


def nearest_path(path: str | Path) -> str:
    """The same for a path that does not exist: what lies beside the first part of it that is missing."""
    missing = Path(path)
    while not missing.parent.is_dir():
        missing = missing.parent
    with suppress(OSError):  # a folder that may not be listed
        for name in get_close_matches(missing.name, sorted(os.listdir(missing.parent)), n=1):
            found = missing.with_name(name)
            whole = found / Path(path).relative_to(missing)
            return f" (did you mean {str(whole if whole.exists() else found)!r}?)"
    return ""
