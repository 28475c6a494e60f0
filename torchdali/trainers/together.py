"""Puts samples of a loader's dataset together, for code that makes batches of them by itself.

Opacus, a notebook and many a training script take `dataset`, `sampler` and `collate_fn` of a loader, and call the last
one, or build a torch loader of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from ..fields import BESIDE
from ..options import Options
from ..python import PythonDataset
from ..python.source import PythonSource
from ..source import Source

_CARRIED = ("output", "pad_value", "pad_multiple", "ragged", "uniform", "memory_format", "max_pixels")
"""Options that say which form a batch has."""

_STANDARD = {name: Options.default(name) for name in _CARRIED} | {"memory_format": torch.channels_last}


class Together:
    """Makes a batch of samples, as the loader does: the `collate_fn` that a loader shows.

    Args:
        make: the class of loaders.
        options: the loader's own which say which form a batch has.
        fields: names of the samples' parts; None: the samples show them.
        ragged: the dataset's own fields that always leave as `Padded`.
        refusal: what it says instead, where a batch made here would not be the loader's; "": it is.
        loaders_own: a loader of the same dataset makes the same batches without it, so `Options` leave it out.
    """

    def __init__(
        self,
        make: Callable[..., Any],
        options: Mapping[str, Any],
        fields: Sequence[str] | None = None,
        ragged: Sequence[str] = (),
        refusal: str = "",
        loaders_own: bool = False,
    ) -> None:
        self._make, self._options, self._fields, self._ragged = make, dict(options), fields, ragged
        self.refusal, self.loaders_own = refusal, loaders_own

    @classmethod
    def of(
        cls, make: Callable[..., Any], options: Options, source: Source, transform: Any, batch_transform: Any
    ) -> Together:
        """Take it from a loader."""
        told = {name: getattr(options, name) for name in _CARRIED}
        told = {name: value for name, value in told.items() if value != _STANDARD[name]}
        if options.kinds is not None and isinstance(source, PythonSource):
            told["kinds"] = options.kinds
        fields = source.named
        refused = [
            name
            for name, value in {"transform": transform, "batch_transform": batch_transform}.items()
            if value is not None
        ]
        beside = set(BESIDE) & set(fields or ())
        refusal = ""
        if refused:
            refusal = (
                f"samples of the loader's dataset lack what its {refused[0]}= makes of them, so its collate_fn makes "
                "no batch of them: iterate the loader, or write the transform in the dataset and leave "
                f"{refused[0]} out"
            )
        elif beside:
            refusal = (
                f"samples of the loader's dataset do not hold {', '.join(sorted(beside))}, which the loader adds, so "
                "its collate_fn makes no batch of them: iterate the loader, or leave it out of fields="
            )
        ragged = () if {"ragged", "uniform"} & set(told) else _ragged(source)
        return cls(make, told, fields, ragged, refusal, loaders_own=not told and not refused)

    def __call__(self, samples: Any) -> Any:
        """Make a batch of a list of samples, on the CPU.

        Raises:
            TypeError: the loader does more to its samples than put them together, or there are none.
        """
        if self.refusal:
            raise TypeError(self.refusal)
        if not isinstance(samples, Iterable) or not (samples := list(samples)):
            raise TypeError(f"collate_fn makes a batch of a list of samples, got {samples!r:.80}")
        dataset = PythonDataset(samples, self._fields, ragged=self._ragged)
        one = {"rank": 0, "world_size": 1, "device": "cpu", "prefetch_factor": 0}
        with self._make(dataset, len(samples), **one, **self._options) as loader:
            return next(iter(loader))


def _ragged(source: Source) -> tuple[str, ...]:
    """Name the fields that always leave as `Padded`, as far as that is known without reading."""
    python = isinstance(source, PythonSource)
    kinds = source.known_kinds
    if kinds is not None and (python or source.named is not None):
        shaped = [name for name, kind in kinds.items() if kind.held in ("array", "image", "encoded")]
        return tuple(name for name in shaped if source.settled(name) is False)
    return source.ragged if isinstance(source, PythonSource) else ()
