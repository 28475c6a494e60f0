"""Map-style datasets of torch, or anything with `__getitem__` and `__len__`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch.utils.data import ConcatDataset, Subset

from ..checks import has_length
from ..distributed import Shard
from ..fingerprint import digest
from ..ids import Taken
from ..kinds import AnyKind
from ..listeners import Listeners
from ..order import Epoch, Order, Rows
from ..source import Pass, Reading
from ..state import Position
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

    The dataset is asked for whatever a torch sampler yields: indices, or ids such as strings or tuples (see `ids`).
    Fields, errors and bad samples then have a number for each id, beside the id itself.

    Args:
        dataset: has `__getitem__`, and `__len__` unless a sampler gives the order.  For what a sample may be, see
            `python.sample`.
        fields: names for a sample's values, in their order, and index or valid among them.  None: a dict's keys and
            attributes' names; of a tuple "image", "label", or "field1" by its number.
        ragged: fields that always leave as `Padded`, by their names or the last parts of them.  Others do where some
            samples that are spread over the dataset have other shapes; samples that differ later are an error.
        kinds: kinds of fields by their names ("encoded", "image", "array", "number", "object"); others have those that
            the first sample of a pass shows.

    Raises:
        TypeError: it has no `__getitem__`.
    """

    def __init__(
        self,
        dataset: Any,
        fields: Sequence[str] | None = None,
        *,
        ragged: Sequence[str] = (),
        kinds: Mapping[str, AnyKind] | None = None,
    ) -> None:
        if not hasattr(dataset, "__getitem__"):
            raise TypeError(f"a map-style dataset has __getitem__ and __len__, got {type(dataset).__name__}")
        super().__init__(fields, ragged, kinds)
        self.dataset = dataset
        self._digest: str | None = None
        self._order: Order | None = None  # of a torch sampler, which may yield ids
        self._ids: Mapping[int, Any] = {}  # of the epoch that comes

    @property
    def where(self) -> str:
        return type(self.dataset).__name__

    def __len__(self) -> int:
        if hasattr(self.dataset, "__len__"):
            return len(self.dataset)
        name = type(self.dataset).__name__
        raise TypeError(f"{name} has no length: give it a __len__, or write sampler= or batch_sampler=")

    @property
    def _sized(self) -> bool:
        return has_length(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]

    def fingerprint(self) -> str:
        """Tell the dataset from others by its type, its length, and its own `fingerprint` or `_fingerprint`.

        For torch's Subset and ConcatDataset, the indices and the parts count too.
        """
        if self._digest is None:
            self._digest = digest(_own_fingerprint(self.dataset))
        many = f"{len(self)} of " if self._sized else ""
        return f"{many}{type(self.dataset).__name__[:40]} {self._digest}"

    def path(self, index: int) -> str | None:
        """Give the id of a sample that has one, for messages."""
        return f"{self._ids[index]!r:.200}" if index in self._ids else None

    def order(self, shuffle: bool, sampler: Any) -> Order:
        order = super().order(shuffle, sampler)
        self._order = None if sampler is None else order
        return order

    @property
    def taken(self) -> Taken:
        """What it takes from a torch sampler: indices, or whatever the dataset does."""
        single = self.collating is not None and self.collating.single
        return Taken(len(self) if self._sized and not isinstance(self.dataset, Mapping) else None, True, single)

    def others(self) -> Sequence[int]:
        """Give the samples of which one may take a bad one's place: of an order by ids, those of the epoch."""
        if not self._ids and self._sized:
            return range(len(self))
        return [] if self._order is None or self._order.ahead else sorted(self._ids)

    def prepare(self, seed: int, start: Position, shard: Shard, epoch: Epoch) -> None:
        super().prepare(seed, start, shard, epoch)
        self._ids = epoch.ids

    @property
    def without_samples(self) -> bool:
        return self._sized and not len(self)

    def job(self) -> MapJob:
        return MapJob(self.dataset)

    def _describe(self) -> Description | None:
        return Description(WHOLE) if self.collated else super()._describe()

    def describe_request(self, worker: int) -> MapDescribe:
        if not self._first and self._order is not None:
            seed, start = self.pools.options.seed, Position()
            self.prepare(seed, start, Shard(0, 1), self._order.epoch(seed, start))
        others = self.others()
        first = self._first or list(others[:TRIES])
        looked = [others[place] for place in spread(len(others))] if self._looks else []
        ids = {index: self._ids[index] for index in (*first, *looked) if index in self._ids}
        return MapDescribe(first, self._names, self._kinds, looked, self._told, ids)

    def open(self, pass_: Pass) -> Reading:
        structure, ids = self.structure, self._ids
        if self.inline:
            Listeners(self.dataset).tell(pass_.seed, pass_.key, again=True)

        def request(rows: Rows) -> MapRead:
            indices = rows.indices.tolist()
            named = [ids.get(index, index) for index in indices] if ids else None
            return MapRead(pass_.seed, pass_.key, indices, rows.keys.tolist(), structure, named)

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
        inner = _own_fingerprint(dataset.dataset)
        try:
            return np.asarray([int(index) for index in dataset.indices], np.int64), inner
        except (TypeError, ValueError):  # ids
            return [repr(index) for index in dataset.indices], inner
    if type(dataset) is ConcatDataset:
        return dataset.cumulative_sizes, [_own_fingerprint(part) for part in dataset.datasets]
    own = getattr(dataset, "fingerprint", None) or getattr(dataset, "_fingerprint", None)
    own = own() if callable(own) else own
    return own if isinstance(own, str) else None
