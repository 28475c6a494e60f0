"""Map-style datasets of torch, or anything with `__getitem__` and `__len__`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch.utils.data import ConcatDataset, Subset

from ..fingerprint import digest
from ..kinds import AnyKind
from ..listeners import Listeners
from ..order import Rows
from ..source import Pass, Reading
from .collating import WHOLE
from .mapped_job import MapDescribe, MapJob, MapRead
from .reading import make_reading
from .sample import Description
from .shapes import spread
from .source import TRIES, PythonSource


class PythonDataset(PythonSource):
    """A map-style dataset whose samples are made by Python code.

    `DataLoader(dataset, num_workers=4)` wraps any such dataset in it; write it to name the fields.  Before each sample,
    the generators of Python, numpy and torch are seeded by (seed, epoch, sample): random code gives the same sample in
    any worker, or in none.  A dataset that has a method `set_epoch`, or holds one that has, is told the epoch before
    samples of it are read, in every worker.

    Args:
        dataset: has `__getitem__` and `__len__`.  For what a sample may be, see `python.sample`.
        fields: names for a sample's values, in their order, and index or valid among them.  None: a dict's keys and
            attributes' names; of a tuple "image", "label", or "field1" by its number.
        ragged: fields that always leave as `Padded`, by their names or the last parts of them.  Others do where some
            samples that are spread over the dataset have other shapes; samples that differ later are an error.
        kinds: kinds of fields by their names ("encoded", "image", "array", "number", "object"); others have those that
            the first sample of a pass shows.

    Raises:
        TypeError: it has no `__getitem__` or `__len__`.
    """

    def __init__(
        self,
        dataset: Any,
        fields: Sequence[str] | None = None,
        *,
        ragged: Sequence[str] = (),
        kinds: Mapping[str, AnyKind] | None = None,
    ) -> None:
        if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
            raise TypeError(f"a map-style dataset has __getitem__ and __len__, got {type(dataset).__name__}")
        super().__init__(fields, ragged, kinds)
        self.dataset = dataset
        self._digest: str | None = None

    @property
    def where(self) -> str:
        return type(self.dataset).__name__

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]

    def fingerprint(self) -> str:
        """Tell the dataset from others by its type, its length, and its own `fingerprint` or `_fingerprint`.

        For torch's Subset and ConcatDataset, the indices and the parts count too.
        """
        if self._digest is None:
            self._digest = digest(_own_fingerprint(self.dataset))
        return f"{len(self)} of {type(self.dataset).__name__[:40]} {self._digest}"

    def job(self) -> MapJob:
        return MapJob(self.dataset)

    def _describe(self) -> Description | None:
        return Description(WHOLE) if self.collated else super()._describe()

    def describe_request(self, worker: int) -> MapDescribe:
        first = self._first or list(range(min(len(self), TRIES)))
        looked = spread(len(self)) if self._looks else []
        return MapDescribe(first, self._names, self._kinds, looked, self._told)

    def open(self, pass_: Pass) -> Reading:
        structure = self.structure
        if self.inline:
            Listeners(self.dataset).tell(pass_.seed, pass_.key, again=True)

        def request(rows: Rows) -> MapRead:
            return MapRead(pass_.seed, pass_.key, rows.indices.tolist(), rows.keys.tolist(), structure)

        return make_reading(self, pass_, request)

    def __getattr__(self, name: str) -> Any:
        # `loader.dataset.classes` and the like; not while unpickling, when there is no dataset yet.
        if name.startswith("_") or name == "dataset":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if hasattr(type(self), name):
            # A property of ours raised AttributeError, such as `fields` by the user's code: the dataset has no answer.
            return object.__getattribute__(self, name)
        return getattr(self.dataset, name)


def _own_fingerprint(dataset: Any) -> Any:
    """The values that tell a dataset from another one of its type and length."""
    if type(dataset) is Subset:
        return np.asarray([int(index) for index in dataset.indices], np.int64), _own_fingerprint(dataset.dataset)
    if type(dataset) is ConcatDataset:
        return dataset.cumulative_sizes, [_own_fingerprint(part) for part in dataset.datasets]
    own = getattr(dataset, "fingerprint", None) or getattr(dataset, "_fingerprint", None)
    own = own() if callable(own) else own
    return own if isinstance(own, str) else None
