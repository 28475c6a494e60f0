"""The files that the samples of a dataset lie in, for commands that look at files and are given a recipe's config."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..datasets import (
    CocoDataset,
    ConcatDataset,
    FileDataset,
    MapDataset,
    RecordIODataset,
    Subset,
    TarDataset,
    TFRecordDataset,
    VideoClips,
    Zip,
)
from ..datasets.records import RecordDataset
from ..formats.report import absolute
from ..kinds import Image, Mask
from .collection import Sample, collect, sample_of_image
from .command import UsageError

_KINDS: dict[type, str] = {TarDataset: "tar", TFRecordDataset: "tfrecord", RecordIODataset: "recordio"}


def samples_of(dataset: Any, index_dir: str | None = None) -> list[Sample]:
    """Find the samples of a dataset that have images, each once, and no others of the same files.

    Raises:
        UsageError: they are not in files of images, tars or records.
    """
    images: dict[str, None] = {}
    inside: dict[str, None] = {}  # samples of tars and records
    shards: dict[str, None] = {}
    for own, indices in _leaves(dataset):
        if isinstance(own, FileDataset):
            kinds = {name: kind for name, kind in own.kinds.items() if name in own.files}
            for name in [name for name, kind in kinds.items() if isinstance(kind, (Image, Mask)) and kind.encoded]:
                images |= dict.fromkeys(own.files[name][index] for index in indices)
        elif isinstance(own, CocoDataset):
            images |= dict.fromkeys(own.paths[index] for index in indices)
        elif isinstance(own, (TarDataset, RecordDataset)):
            shards |= dict.fromkeys(own.shards)
            inside |= dict.fromkeys(own.path(int(index)) for index in indices)
    if not images and not inside:
        raise UsageError(
            f"a dataset of image files, tars or records was expected, got {type(dataset).__name__}: check its files"
        )
    found = [sample_of_image(path) for path in images]
    if shards:
        wanted = {absolute(path) for path in inside}
        found += [sample for sample in collect([*shards], index_dir) if sample.fault or sample.path in wanted]
    return found


def files_of(dataset: Any) -> dict[str, tuple[str, int]]:
    """Give the tars, files of records and videos of a dataset: the kind of each, and how many samples it holds.

    Raises:
        UsageError: it has none.
    """
    found: dict[str, tuple[str, int]] = {}
    for own, indices in _leaves(dataset):
        if isinstance(own, (TarDataset, RecordDataset)):
            kind = next(word for type_, word in _KINDS.items() if isinstance(own, type_))
            names = [own.path(int(index)).rpartition("#")[0] for index in indices]
            counts = dict.fromkeys(own.shards, 0) | dict(zip(*np.unique(names, return_counts=True), strict=True))
            found |= {path: (kind, int(count)) for path, count in counts.items()}
        elif isinstance(own, VideoClips):
            found |= {path: ("video", int(count)) for path, count in zip(own.files, own.counts, strict=True)}
    if not found:
        raise UsageError(
            f"a dataset of tars, records or videos was expected, got {type(dataset).__name__}: it has no indexes"
        )
    return found


def _leaves(dataset: Any, indices: NDArray[np.int64] | None = None) -> Iterator[tuple[MapDataset, NDArray[np.int64]]]:
    """Give the datasets that a dataset is put together of, each with the indices of its samples that are used."""
    if not isinstance(dataset, MapDataset):
        return
    indices = np.arange(len(dataset)) if indices is None else indices
    if isinstance(dataset, Subset):
        yield from _leaves(dataset.dataset, dataset.indices[indices])
    elif isinstance(dataset, ConcatDataset):
        numbers, own = dataset.locate(indices)
        for number, one in enumerate(dataset.datasets):
            yield from _leaves(one, own[numbers == number])
    elif isinstance(dataset, Zip):
        for one in dataset.datasets.values():
            yield from _leaves(one, indices)
    else:
        yield dataset, indices
