"""The requests to the job of an iterable, and the notes of its answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..kinds import Kind
from .sample import Description
from .snapshot import Standing

DESCRIBED = -1  # the number of a pass that is begun to describe it


class IterablePass(NamedTuple):
    """One worker's part of a pass.

    Attributes:
        seed: the loader's.
        key: the pass, `state.Position.key`.
        worker, num_workers: the worker's number, and the number of workers.
        rank, world_size: this process among the data-parallel ones.
        number: tells passes with the same key apart.
    """

    seed: int
    key: int
    worker: int
    num_workers: int
    rank: int
    world_size: int
    number: int


class IterableDescribe(NamedTuple):
    """The request to begin a pass, and to describe its first sample.

    Attributes:
        part: this worker's part of the pass; its `number` is not known yet.
        begin: where the part begins.
        fields: as the user named them; None: names that the sample suggests.
        kinds: kinds of fields, as the user named them.
        batch_size: the samples of the first batch, which show what lists are.
    """

    part: IterablePass
    begin: Standing
    fields: tuple[str, ...] | None
    kinds: Mapping[str, Kind]
    batch_size: int


class IterableRead(NamedTuple):
    """The request to read the next batch of a pass.

    Attributes:
        part: this worker's part of the pass.
        batch_size: the number of samples.
        begin: where the part begins, if it has not begun.
        description: the description that the samples must have.
        skip: items whose code raises are left out.
    """

    part: IterablePass
    batch_size: int
    begin: Standing
    description: Description
    skip: bool


class BadItem(NamedTuple):
    """An item of an iterable, whose code raised.

    Attributes:
        number: of the item in its worker's iteration, counted from 0, since the pass began or was resumed.
        reason: the error in one line.
    """

    number: int
    reason: str


class IterableNote(NamedTuple):
    """The note of an answer.

    Attributes:
        standing: where this worker stands after the batch.
        asked: the dataset asked which worker this is.
        uneven: it ended, and others who share it may have had fewer samples.
        bad: the items that were left out.
    """

    standing: Standing
    asked: bool
    uneven: bool
    bad: list[BadItem]
