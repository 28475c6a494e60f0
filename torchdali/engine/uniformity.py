"""Which fields leave as one tensor, and which as `Padded`: the same in every batch of a loader."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..errors import TransformError


class Uniformity:
    """Says of each field whether its samples have one shape.

    The options, the source and the transforms say it first.  It is not known before a function has made a field: the
    first batch that comes decides, and a later one that does not fit is an error.

    Args:
        known: by field, whether its samples have one shape; None: it is not known.
        sources: fields that the source gives with any shapes; until a function replaces one, it stays ragged.
        functions: the transform holds functions.
        ragged, uniform: the loader's options: fields that are always `Padded`, and those that are always one tensor.

    Raises:
        ValueError: a field is named in both options, or one that can't be there.
    """

    def __init__(
        self,
        known: Mapping[str, bool | None],
        sources: Collection[str],
        functions: bool,
        ragged: Sequence[str] = (),
        uniform: Sequence[str] = (),
    ) -> None:
        for option, names in {"ragged": ragged, "uniform": uniform}.items():
            unknown = [] if functions else [name for name in names if name not in known]
            if unknown:
                have = ", ".join(known) or "there are none"
                raise ValueError(f"{option} must name fields of images or arrays ({have}), got {unknown[0]!r}")
        if both := sorted(set(ragged) & set(uniform)):
            raise ValueError(f"ragged and uniform exclude each other, and both name {both[0]!r}")
        self._asked = {**dict.fromkeys(ragged, False), **dict.fromkeys(uniform, True)}
        self._known = {**known, **self._asked}
        self._sources, self._functions = set(sources), functions
        self._settled: dict[str, bool] = {}  # by the first batch

    def __getitem__(self, name: str) -> bool | None:
        """Whether a field's samples have one shape, as far as it is known; None: the batches show it."""
        known = self._known.get(name)
        return False if known is None and name in self._sources else self._settled.get(name, known)

    def replaced(self, names: Collection[str]) -> None:
        """Note fields that a function gave new values."""
        self._sources.difference_update(names)

    def settle(
        self, name: str, shapes: Sequence[Any], decides: bool = True, samples: Sequence[int] | None = None
    ) -> bool:
        """Say whether a batch of a field leaves as one tensor.

        Args:
            name: the field.
            shapes: its samples' shapes.
            decides: it is a whole batch of the stream, and not a sample tried alone.
            samples: the samples' indices, for messages.

        Raises:
            TransformError: the field's samples must have one shape, and these differ.
        """
        known, same = self[name], len(set(shapes)) == 1
        if known is None:
            if self._functions and decides:
                self._settled[name] = same
            return same
        if known and not same and len({len(shape) for shape in shapes}) == 1:
            other = next(i for i, shape in enumerate(shapes) if shape != shapes[0])
            places = [f"{list(shapes[i])}{'' if samples is None else f' in sample {samples[i]}'}" for i in (0, other)]
            why = "of the first batch had one" if name in self._settled else "that were looked at first had one"
            why = "uniform= names it" if name in self._asked else f"those {why}"
            raise TransformError(
                f"the samples of the field {name!r} must have one shape, since {why}, and a later batch has "
                f"{' and '.join(places)}: write ragged=[{name!r}] at the DataLoader, which gives Padded in every "
                "batch, or make them of one shape in the transform"
            )
        return known
