"""The job of a map-style dataset: samples by their indices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from operator import getitem
from typing import Any, NamedTuple

from torch.utils.data import Subset

from ..errors import leave_frame, let_through
from ..generators import HeldGenerators
from ..kinds import Kind
from ..listeners import Listeners
from ..seeding import seed_sample
from ..workers import Answer
from .collating import Collating
from .sample import Description, Path, Structure, count_values, holds_dicts, lists_in
from .shapes import uniform_fields
from .values import BYTES

_SURE = 9  # samples after the first one, until bytes are no image files


class MapDescribe(NamedTuple):
    """The request to describe a sample.

    Attributes:
        indices: the samples to try.
        fields: as the user named them; None: names that the sample suggests.
        kinds: kinds of fields, as the user named them.
        spread: the samples whose shapes are looked at.
        told: fields of which it is known whether their samples have one shape.
        ids: what the dataset is asked for instead of an index.
    """

    indices: list[int]
    fields: tuple[str, ...] | None
    kinds: Mapping[str, Kind]
    spread: list[int]
    told: frozenset[str]
    ids: Mapping[int, Any] = {}  # never changed


class MapRead(NamedTuple):
    """The request to read samples.

    Attributes:
        seed: the loader's.
        key: the pass, `state.Position.key`.
        indices: the samples.
        keys: the keys of the samples' random numbers.
        structure: the structure that they must have.
        ids: what the dataset is asked for instead of the indices.
    """

    seed: int
    key: int
    indices: list[int]
    keys: list[int]
    structure: Structure
    ids: list[Any] | None = None


class MapJob:
    """Reads samples of a map-style dataset, each from generators that are seeded for it, the dataset's own included.

    A dataset with `__getitems__` makes the samples of a batch together, from generators seeded for the first of them.

    Attributes:
        collating: puts a batch together, where the user's function does.
        transformed: samples go through transforms.
        whole: see `Structure.of`.
    """

    collating: Collating | None = None
    transformed, whole = True, False

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self._listeners: Listeners | None = None
        self._held = HeldGenerators(dataset)

    @property
    def listeners(self) -> Listeners:
        """Those that are told the epoch, in this process."""
        if self._listeners is None:
            self._listeners = Listeners(self.dataset)
        return self._listeners

    def read(self, request: MapRead, progress: Callable[[int], None]) -> Answer:
        """Read samples."""
        with self._held.preserved():
            return self._read(request, progress)

    def _read(self, request: MapRead, progress: Callable[[int], None]) -> Answer:
        self.listeners.tell(request.seed, request.key)
        fetch, single = _many(self.dataset), partial(getitem, self.dataset)
        convert = request.structure.values if self.collating is None else lambda sample: sample
        rows: list[Any] = []
        asked = request.indices if request.ids is None else request.ids
        if fetch is None:
            for index, one, key in zip(request.indices, asked, request.keys, strict=True):
                progress(index)
                try:
                    rows.append(convert(self._drawn(single, one, request.seed, request.key, key)))
                except Exception as error:
                    if request.ids is not None:
                        error.add_note(f"torchdali: it is the sample {one!r:.200}")
                    raise
        else:
            progress(request.indices[0])
            samples = self._drawn(fetch, asked, request.seed, request.key, request.keys[0])
            if len(samples) != len(request.indices):
                raise ValueError(
                    f"{type(self.dataset).__name__}.__getitems__ must give one sample for each of "
                    f"{len(request.indices)} indices, got {len(samples)}"
                )
            # A function of the user's gets what the dataset made, as in torch: tensordict's is a batch already.
            rows = samples if self.collating is not None else [convert(sample) for sample in samples]
        if self.collating is not None:
            return Answer(self.collating.columns(rows, request.seed, request.key, request.keys[0]))
        return Answer(request.structure.columns(rows))

    def _drawn(self, fetch: Callable[[Any], Any], asked: Any, *numbers: int) -> Any:
        """Ask the dataset, with all generators seeded."""
        number = seed_sample(*numbers)
        if self._held.none:
            return fetch(asked)
        self._held.seed(number)
        made = fetch(asked)
        if self._held.appeared():
            self._held.seed(seed_sample(*numbers))
            made = fetch(asked)
        return made

    def describe(self, request: MapDescribe, progress: Callable[[int], None]) -> Description:
        """Describe samples: their structure, and which fields have one shape in all of them, as far as some show it."""
        with self._held.preserved():
            structure = self._structure(request, progress)
            rows = self._rows(structure, request, progress)
            return Description(structure, uniform_fields(structure, rows, request.told))

    def _rows(self, structure: Structure, request: MapDescribe, progress: Callable[[int], None]) -> Iterator[list[Any]]:
        """The values of some samples; one that can't be made is an error where the order has it."""
        for index in request.spread:
            try:
                progress(index)
                self._held.seed(seed_sample(0, 0, index))
                row = structure.values(self._one(request.ids.get(index, index)))
            except Exception as error:
                let_through(error)
                continue
            yield row

    def _structure(self, request: MapDescribe, progress: Callable[[int], None]) -> Structure:
        """Take the structure of the first sample, or a later one whose bytes are an image file where its are none.

        Its lists are containers where the next samples have lists of the same lengths.  Where samples differ in what
        their dicts hold, as those with and without objects do, the one that holds most is described.

        A sample that can't be made, or has another structure, is an error where the order has it.
        """
        self.listeners.tell(0, 0)
        sample: Any = None
        first: Structure | None = None
        lists: dict[Path, int] = {}
        failed: Exception | None = None
        most, differ = 0, False
        for number, index in enumerate(request.indices):
            try:
                progress(index)
                self._held.seed(seed_sample(0, 0, index))
                other = self._one(request.ids.get(index, index))
                lengths = lists_in(other)
                held = count_values(other)
                differ = differ or (first is not None and held != most)
                if held > most:  # fields that the samples before it lack
                    first, most = None, held
                structure = self._structure_of(other, request, lengths if first is None else lists)
            except Exception as error:
                let_through(error)
                failed = failed or leave_frame(error)
                continue
            if first is None:
                sample, first, lists = other, structure, lengths
            lists = {path: length for path, length in lists.items() if lengths.get(path) == length}
            doubtful = [leaf.form == BYTES and leaf.name not in request.kinds for leaf in first.leaves]
            if first is not structure and len(structure.leaves) == len(first.leaves):
                found = zip(structure.leaves, doubtful, strict=True)
                if any(doubt and leaf.form.kind == "encoded" for leaf, doubt in found):
                    return structure
            grouped = any(leaf.kind.group for leaf in first.leaves)
            look_on = any(doubtful) or lists or (holds_dicts(sample) and not grouped)
            if number >= _SURE and not (differ and not grouped):
                break
            if not (look_on or differ):
                break
        if first is None:
            assert failed is not None
            progress(request.indices[0])
            raise failed
        return self._structure_of(sample, request, lists)

    def _structure_of(self, sample: Any, request: MapDescribe, lists: Iterable[Path]) -> Structure:
        return Structure.of(sample, request.fields, request.kinds, lists, self.transformed, self.whole)

    def _one(self, one: Any) -> Any:
        fetch = _many(self.dataset)
        return self.dataset[one] if fetch is None else fetch([one])[0]


def _many(dataset: Any) -> Callable[[list[Any]], Any] | None:
    """The dataset's own way to make many samples at once; torch's Subset has one only if what it is of has one."""
    inner = dataset
    while type(inner) is Subset:
        inner = inner.dataset
    own = callable(getattr(inner, "__getitems__", None))
    return dataset.__getitems__ if own else None
