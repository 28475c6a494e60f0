"""Finds the value that can't be pickled inside what workers are set up with, and says what to write instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import torch

from ..errors import let_through
from ..generators import known_values
from . import sharing
from .job import Job, dataset_of
from .protocol import Codec

_MOST = 300  # values that are tried: pickling takes time
_DEEPEST = 8
_WHOLE = (str, bytes, int, float, type(None), np.ndarray, torch.Tensor, type)  # nothing is looked for in them
_FUNCTIONS = (FunctionType, MethodType)


def refusal(job: Job, init: Callable[[int], object] | None, codec: Codec | None, error: Exception) -> str:
    """Say what of a pool's job can't be pickled, and what to write instead.

    Args:
        job, init: what workers are set up with.
        codec: the user's pickler; None: ours.
        error: of the pickler.
    """
    kind = type(dataset_of(job)).__name__
    others = {f"{type(job).__name__}.{name}": part for name, part in vars(job).items() if name != "dataset"}
    roots = {kind: dataset_of(job), "worker_init_fn": init, **others}
    found = find_refused(roots, lambda value: sharing.refuses(value, codec))
    if found is None:
        return f"{kind} and worker_init_fn must be picklable to reach worker processes, and are not: {error}"
    way, value = found
    advice = advice_for(value, codec is not None)
    if "SemLock created in a fork context" in str(error):
        advice = "make it by torch.multiprocessing.get_context('forkserver'), or write multiprocessing_context='fork'"
    owner = next(root for root in roots if way.startswith(root))
    inside = (
        f", and {way}, of the type {type(value).__module__}.{type(value).__qualname__}, is not"
        if way != owner
        else ", and is not"
    )
    return f"{owner} must be picklable to reach worker processes{inside}: {error}: {advice}"


def find_refused(roots: Mapping[str, Any], refuses: Callable[[Any], bool]) -> tuple[str, Any] | None:
    """Find the innermost value that a pickler refuses.

    Args:
        roots: where to look, by the words that a user has for them.
        refuses: whether the pickler refuses a value.

    Returns:
        The way to it, such as `Pairs.dataset.file`, and the value; None: each root alone is picklable.
    """
    tried: dict[int, Any] = {}

    def refused(value: Any) -> bool:
        if isinstance(value, _WHOLE) or id(value) in tried or len(tried) >= _MOST:
            return False
        tried[id(value)] = value  # held, so that its number stays its own
        return refuses(value)

    found = next(((way, value) for way, value in roots.items() if refused(value)), None)
    for _ in range(_DEEPEST):
        if found is None:
            return None
        way, value = found
        inner = next(((f"{way}{end}", part) for end, part in _parts(value) if refused(part)), None)
        if inner is None:
            break
        found = inner
    return found


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """The values that are pickled with a value, and how each is reached from it."""
    if isinstance(value, dict):  # other mappings may make their values, as those of files do
        yield from ((f"[{key!r:.50}]", part) for key, part in value.items())
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from ((f"[{number}]", part) for number, part in enumerate(value))
    elif isinstance(value, _FUNCTIONS):
        yield from ((f"'s {name}", part) for name, part in known_values(value))
    elif isinstance(value, partial):
        yield from ((f".{name}", getattr(value, name)) for name in ("func", "args", "keywords"))
    own: Any = type(value).__getstate__
    try:
        state = vars(value) if own is object.__getstate__ else value.__getstate__()
    except Exception as error:  # it has no attributes, or refuses by this very method
        let_through(error)
        return
    if isinstance(state, Mapping):
        yield from ((f".{name}", part) for name, part in state.items())


def advice_for(value: Any, plain: bool) -> str:
    """Say what to write instead of a value that can't be pickled.

    Args:
        value: the value.
        plain: the pickler is the user's, and may refuse functions and classes.
    """
    if plain and (isinstance(value, _FUNCTIONS) or "<locals>" in type(value).__qualname__):
        return "leave pickler= out, since cloudpickle takes functions and classes that are not at the top of a module"
    return (
        "open or make it in the worker, when the first sample is asked for, and keep None in its place until then; "
        "or write multiprocessing_context='fork', and workers inherit it"
    )
