"""The base of map-style datasets, which read columns of many samples at once."""

from __future__ import annotations

import copy
import operator
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from ..batch import Columns
from ..errors import let_through
from ..fields import BESIDE, Fields, check_kinds, nest
from ..formats.decode import decode_value, on_host
from ..formats.image import look
from ..formats.whole import first_whole
from ..kinds import WORDS, AnyKind, Boxes, Doubt, Image, Kind, Mask, as_kind, tell
from ..listeners import Listeners
from ..options import Options
from ..pillow import MAX_PIXELS
from ..schema import Seen, find_kinds
from ..source import DirectReading, Pass, Reading, Source
from ..watchdog import watch_making
from .convert import Conversion, Convert


class MapDataset(Source, Dataset[tuple[Any, ...]]):
    """Base of datasets whose samples are read by index, as columns.

    A subclass calls `_set_fields` in its `__init__`, and defines `__len__`, `read_columns` and `fingerprint`.  One with
    a method `set_epoch` is told the epoch by the loader, before samples of it are read.

    Attributes:
        paths: the samples' files, where there are files.
        transform: the transform that a loader uses unless it is given another one.
        blocking: reading waits for disks, so several threads read.
        nested: a dot in a field's name makes a dict: "target.boxes" is in the sample's part "target".
    """

    blocking = nested = False
    paths: list[str] | None = None
    _chosen: Fields | None = None
    _conversions: Mapping[str, Conversion] = {}
    _told: frozenset[str] = frozenset()  # fields whose kinds the user, or the source, has told
    _doubts: Mapping[str, Doubt] = {}
    _seen: dict[str, Kind] | None = None  # the kinds with their groups, once a loader has looked at a sample

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.blocking:
            watch_making(cls)

    def _set_fields(
        self, fields: Sequence[str], kinds: Mapping[str, AnyKind], told: Mapping[str, AnyKind] | None = None
    ) -> None:
        """Choose the fields of a sample.

        Args:
            fields: their names, as the user writes them.
            kinds: the kinds of all columns that `read_columns` can give.
            told: the kinds that the user wrote, which say more of the same columns, such as "boxes" of an array.

        Raises:
            ValueError: an unknown or repeated field, or a column with the name index, path or valid.
        """
        known = {name: as_kind(kind) for name, kind in kinds.items()}
        check_kinds(told or {}, known)
        known |= {name: tell(kind, known[name].held) for name, kind in (told or {}).items()}
        self._chosen = Fields.choose(fields, known)
        self._told = frozenset(told or ())

    def _set_convert(self, convert: Convert, told: Mapping[str, AnyKind]) -> None:
        """Take the user's functions of fields; their results for the first sample show the fields' kinds.

        A subclass calls it when it can read, and gives its columns through `_converted`.

        Args:
            convert: the functions.
            told: the kinds that the user wrote, of their results too.

        Raises:
            ValueError: a function of an unknown field, or of images.
        """
        for name in convert:
            if name not in self.kinds or name in BESIDE:
                raise ValueError(f"convert must be of the fields {', '.join(self.fields)}, got {name!r}")
            if isinstance(self.kinds[name], (Image, Mask)) and self.kinds[name].held != "array":
                raise ValueError(f"convert is for fields without images, got {name!r}: write transform= for its images")
        self._conversions = {name: self._conversion(name, function) for name, function in convert.items()}
        held = {name: conversion.form.kind for name, conversion in self._conversions.items()}
        kinds = {name: tell(told.get(name, one), one) for name, one in held.items()}
        self._told |= set(kinds) & set(told)
        self._chosen = Fields(self.fields, {**self.kinds, **kinds})

    def _conversion(self, name: str, function: Callable[[Any], Any]) -> Conversion:
        return first_whole(
            len(self), lambda index: Conversion.of(name, function, self.read_columns([index], [name])[name][0])
        )

    def _converted(self, columns: Columns) -> Columns:
        """Apply the user's functions."""
        for name, conversion in self._conversions.items():
            if name in columns:
                columns[name] = conversion(columns[name])
        return columns

    def _fields(self) -> Fields:
        if self._chosen is None:
            raise TypeError(
                f"{type(self).__name__} has no fields yet: call _set_fields(fields, kinds) in its __init__, such as "
                "self._set_fields(('image', 'label'), {'image': 'encoded', 'label': 'number'})"
            )
        return self._chosen

    @property
    def fields(self) -> tuple[str, ...]:  # type: ignore[override]  # read-only: `_set_fields` checks them
        """The names of a sample's parts, in the order in which a batch has them."""
        return self._fields().names

    @property
    def kinds(self) -> dict[str, Kind]:  # type: ignore[override]
        """The kind of each field."""
        return self._fields().kinds if self._seen is None else self._seen

    def with_kinds(self, kinds: Mapping[str, AnyKind]) -> MapDataset:
        bound = copy.copy(self)
        bound._chosen = self._fields()._replace(kinds={**self.kinds, **(told := self._as_told(kinds))})
        bound._told, bound._seen = self._told | set(told), None
        return bound

    @property
    def doubts(self) -> Mapping[str, Doubt]:
        """The fields whose kinds are guesses that may be wrong, once a loader has looked at the first sample."""
        return self._doubts

    def bind(self, options: Options) -> Source:
        bound = super().bind(options)
        assert isinstance(bound, MapDataset)
        bound._look_for_doubts()
        return bound

    def _look_for_doubts(self) -> None:
        """Look at the first sample for kinds that are guesses, and for fields that belong to the boxes beside them."""
        self._doubts = {}
        own = {name: kind for name, kind in self.kinds.items() if name not in BESIDE}
        told = {name: kind for name, kind in own.items() if name in self._told or kind != WORDS[kind.held]}
        pictures = [name for name, kind in own.items() if isinstance(kind, (Image, Boxes))]
        asked = {name for name, kind in own.items() if kind.held not in ("number", "object")} - set(told)
        if not pictures or not asked - set(pictures[:1]):
            return
        try:
            columns = self.read_columns([0], list(own))
        except Exception as error:  # a damaged sample fails when it is read
            let_through(error)
            return
        seen = []
        for name, kind in own.items():
            place, _, key = name.rpartition(".") if self.nested else ("", "", name)
            seen.append(Seen(name, (place,) if place else (), key, columns[name][0], kind.held))
        kinds, self._doubts = find_kinds(seen, told)
        self._seen = {**self.kinds, **kinds}

    @property
    def named(self) -> tuple[str, ...] | None:
        return None if self.nested else self.fields

    @property
    def where(self) -> str:
        root = getattr(self, "root", None)
        if root is None and self.paths:
            root = os.path.dirname(self.paths[0])
        return "" if root is None else str(root)

    def __len__(self) -> int:
        raise NotImplementedError

    def read_columns(self, indices: Sequence[int], names: Sequence[str]) -> Columns:
        """Read the named columns of some samples, without index, path and valid; any error may be raised."""
        raise NotImplementedError

    def fingerprint(self) -> str:
        """Give a string of at most 100 characters: equal for the same samples in the same order, another for others."""
        raise NotImplementedError

    def uniform(self, name: str) -> bool | None:
        """Tell whether all samples of a field are known to have one shape; of image files: once they are decoded.

        None: each batch shows it.
        """
        return self.kinds[name].held == "number"

    def path(self, index: int) -> str | None:
        """Give the file of a sample, for messages and for the field `path`."""
        return None if self.paths is None else self.paths[index]

    def read(self, indices: NDArray[np.int64]) -> Columns:
        """Read all columns of some samples, in the order of `fields`; image files stay encoded."""
        return self._fields().fill(self._read_own(indices), indices, self.path)

    def _read_own(self, indices: NDArray[np.int64]) -> Columns:
        return self.read_columns([int(i) for i in indices], [name for name in self.fields if name not in BESIDE])

    def open(self, pass_: Pass) -> Reading:
        listeners = Listeners(self)
        if not listeners:
            return DirectReading(self._read_own, self.blocking)
        listeners.tell(pass_.seed, pass_.key, again=True)

        def read(indices: NDArray[np.int64]) -> Columns:
            listeners.tell(pass_.seed, pass_.key)  # another pass may have told its own
            return self._read_own(indices)

        return DirectReading(read, self.blocking)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        """Read one sample, in the order of `fields`: images decoded as uint8 [C, H, W], numbers as torch scalars.

        Raises:
            IndexError: the index is outside the dataset.
        """
        index = operator.index(index)
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is outside a dataset of {len(self)} samples")
        columns = self.read(np.array([index % len(self)]))
        sample: tuple[Any, ...] = self.rebuild({name: _look(self.kinds[name], columns[name][0]) for name in columns})
        return sample

    def rebuild(self, batch: dict[str, Any]) -> Any:
        """Put a batch's fields into the form of the samples: a tuple, with dicts in it if they are nested."""
        return nest(batch) if self.nested else tuple(batch.values())


def _look(kind: Kind, value: Any) -> Any:
    held = kind.held
    if on_host(kind):
        value = decode_value(kind, value, MAX_PIXELS)
        held = "image" if isinstance(kind, Image) else "array"
    elif held == "encoded":
        value = look(value)
    if held in ("encoded", "image"):
        return torch.from_numpy(np.array(value)).permute(2, 0, 1)
    return torch.as_tensor(np.array(value)) if held in ("array", "number") else value
