"""Puts datasets side by side: a sample of each makes a sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..batch import Columns
from ..fields import BESIDE
from ..fingerprint import digest
from .base import MapDataset
from .concat import common_transform
from .of_torch import as_columns


class Zip(MapDataset):
    """Puts datasets of one length side by side: `Zip(images, masks)` or `Zip(left=one, right=other)`.

    A sample has the fields of all datasets, in their order; names that several datasets have become "left_image" and
    "right_image".  Fields of the same scene, such as an image and its mask, move together.

    Args:
        datasets: the datasets, where their fields have different names.
        named: the datasets by name.

    Attributes:
        datasets: the datasets by name; without names, by their numbers.

    Raises:
        ValueError: no datasets, both kinds of arguments, datasets of different lengths, or fields with the same name
            in datasets without names.
        TypeError: something else than a dataset of torchdali.
    """

    def __init__(self, *datasets: MapDataset, **named: MapDataset) -> None:
        if bool(datasets) == bool(named):
            raise ValueError(
                "Zip takes datasets, or datasets by name: write Zip(images, masks) or Zip(left=..., right=...)"
            )
        given = named or {str(number): one for number, one in enumerate(datasets)}
        self.datasets: dict[str, MapDataset] = {name: as_columns(one) for name, one in given.items()}
        for name, one in self.datasets.items():
            if not isinstance(one, MapDataset):
                raise TypeError(
                    f"Zip takes datasets of torchdali that are read by index, got {type(one).__name__} as {name!r}: "
                    "for others, write a Dataset that holds them and gives both samples in its __getitem__"
                )
        lengths = {name: len(one) for name, one in self.datasets.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"the datasets of Zip must be of one length, got {lengths}")
        parts = [(part, field) for part, one in self.datasets.items() for field in one.fields if field not in BESIDE]
        fields = [field for _, field in parts]
        several = {field for field in fields if fields.count(field) > 1}
        if several and not named:
            raise ValueError(
                f"several datasets of Zip have the field {min(several)!r}: write Zip(left=..., right=...) to get "
                f"'left_{min(several)}' and 'right_{min(several)}'"
            )
        self._parts = {f"{part}_{field}" if field in several else field: (part, field) for part, field in parts}
        if len(self._parts) < len(parts):
            raise ValueError(f"the fields of Zip must differ, got {[f'{part}: {field}' for part, field in parts]}")
        kinds = {name: self.datasets[part].kinds[field] for name, (part, field) in self._parts.items()}
        beside = [name for name in BESIDE if any(name in one.fields for one in self.datasets.values())]
        self._set_fields([*self._parts, *beside], kinds)
        self._told = frozenset(
            name for name, (part, field) in self._parts.items() if field in self.datasets[part]._told
        )
        for trait in ("blocking", "uses_dali", "inline", "nested"):
            setattr(self, trait, any(getattr(one, trait) for one in self.datasets.values()))
        self.ready = all(one.ready for one in self.datasets.values())

    def __len__(self) -> int:
        return len(next(iter(self.datasets.values())))

    @property
    def transform(self) -> Any:
        """The datasets' own transform, if all have the same one; otherwise a ValueError."""
        return common_transform(list(self.datasets.values()))

    def read_columns(self, indices: Sequence[int], names: Sequence[str]) -> Columns:
        columns: Columns = {}
        for part, dataset in self.datasets.items():
            wanted = {name: self._parts[name][1] for name in names if self._parts[name][0] == part}
            if wanted:
                read = dataset.read_columns(indices, list(wanted.values()))
                columns |= {name: read[field] for name, field in wanted.items()}
        return columns

    def path(self, index: int) -> str | None:
        """Give the sample's file in the first dataset that has files."""
        paths = (dataset.path(index) for dataset in self.datasets.values())
        return next((path for path in paths if path is not None), None)

    def uniform(self, name: str) -> bool | None:
        if name not in self._parts:
            return super().uniform(name)
        part, field = self._parts[name]
        return self.datasets[part].uniform(field)

    def dtype(self, name: str) -> np.dtype[Any] | None:
        part, field = self._parts[name]
        return self.datasets[part].dtype(field)

    def fingerprint(self) -> str:
        """Hash the datasets' fingerprints and their names."""
        prints = [(name, one.fingerprint()) for name, one in self.datasets.items()]
        return f"{len(self)} of {len(prints)} datasets side by side {digest(prints)}"
