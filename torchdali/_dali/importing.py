"""Imports DALI: its version, and what has to be refused of it."""

from __future__ import annotations

import functools
import gc
import importlib
import os
import re
import sys
from numbers import Integral
from types import ModuleType
from typing import Any

OLDEST = (2, 4)
_DYNAMIC = "nvidia.dali.experimental.dynamic"
_used_by: list[int] = []  # the process that imported DALI


@functools.cache
def check_dali() -> None:
    """Import DALI, after a check of its version.

    Raises:
        ImportError: no DALI, or one that is too old.
    """
    try:
        import nvidia.dali as dali
    except ImportError as error:
        raise ImportError(
            "torchdali needs NVIDIA DALI: pip install nvidia-dali-cuda120 (or nvidia-dali-cuda130)"
        ) from error
    found = tuple(int(part) for part in re.findall(r"\d+", dali.__version__)[:2])
    if found < OLDEST:
        raise ImportError(f"torchdali needs DALI {'.'.join(map(str, OLDEST))} or newer, found {dali.__version__}")
    _used_by.append(os.getpid())
    os.register_at_fork(after_in_child=_refuse_in_child)


@functools.cache
def dynamic() -> ModuleType:
    """DALI's dynamic mode, whose import takes a third of a second more: a pipeline does without it.

    Raises:
        ImportError: see `check_dali`.
    """
    check_dali()
    ndd = importlib.import_module(_DYNAMIC)
    _refuse_selections(ndd)
    return ndd


def _refuse_selections(ndd: ModuleType) -> None:
    """In DALI 2.4.0, `batch.select(list)` and what `tensors[list]` gives hold all samples: let them raise instead."""

    def guard(cls: Any, what: str) -> None:
        select = cls.select

        @functools.wraps(select)
        def guarded(self: Any, selection: Any) -> Any:
            every = selection is ... or (isinstance(selection, slice) and selection == slice(None))
            if every or isinstance(selection, Integral):
                return select(self, selection)
            raise TypeError(
                f"{what} gives all samples unchanged in DALI {'.'.join(map(str, OLDEST))}, whatever is selected: write "
                "ndd.as_batch([batch.tensors[i] for i in order]), with Python's integers in `order`"
            )

        cls.select = guarded

    guard(ndd.Batch, "batch.select")
    tensors = getattr(sys.modules[ndd.Batch.__module__], "_TensorList", None)
    if tensors is not None:
        guard(tensors, "batch.tensors[...]")


def _refuse_in_child() -> None:
    """In a forked process every operator would wait for threads that did not come along: let it raise instead."""

    def current() -> Any:
        check_process()

    ndd = sys.modules.get(_DYNAMIC)
    if ndd is not None:
        ndd.EvalContext.current = staticmethod(current)
    gc.freeze()  # DALI's objects abort the process if they are destroyed here
    pipelines = sys.modules.get("nvidia.dali.pipeline")
    if pipelines is not None:
        pipelines.Pipeline._pipes.clear()  # at the exit DALI would wait for their threads


def check_process() -> None:
    """Raise in a process that was forked after DALI was used: its threads did not come along, and it would hang.

    Raises:
        RuntimeError: it was.
    """
    if _used_by and _used_by[0] != os.getpid():
        raise RuntimeError(
            f"this process was forked from {_used_by[0]} after DALI was used there, and DALI's threads did not come "
            "along: start it with spawn or forkserver, or use the loader only after the fork"
        )
