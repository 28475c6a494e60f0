"""The job of a callback, and the two questions that DALI's callbacks answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..errors import leave_frame, let_through
from ..generators import HeldGenerators
from ..kinds import Kind
from ..seeding import seed_sample
from ..workers import Answer, EpochEnd
from .sample import Description, Structure
from .whole_batches import rows_of


class SampleInfo(NamedTuple):
    """The sample that is asked for; the names are DALI's.

    Attributes:
        idx_in_epoch: its index within the epoch, on this rank.
        idx_in_batch: its index within the batch.
        iteration: the number of the batch within the epoch.
        epoch_idx: the number of the epoch.
    """

    idx_in_epoch: int
    idx_in_batch: int
    iteration: int
    epoch_idx: int


class BatchInfo(NamedTuple):
    """The batch that is asked for; the names are DALI's.

    Attributes:
        iteration: the number of the batch within the epoch.
        epoch_idx: the number of the epoch.
    """

    iteration: int
    epoch_idx: int


class CallbackDescribe(NamedTuple):
    """The request to describe the first sample.

    Attributes:
        asked: the questions to try.
        fields: as the user named them; None: names that the sample suggests.
        kinds: kinds of fields, as the user named them.
    """

    asked: list[SampleInfo | BatchInfo]
    fields: tuple[str, ...] | None
    kinds: Mapping[str, Kind]


class CallbackRead(NamedTuple):
    """The request to read samples, or a batch.

    Attributes:
        seed: the loader's.
        key: the pass, `state.Position.key`.
        epoch: the number of the epoch.
        iteration: the number of the batch within the epoch.
        indices: the samples' indices within the epoch, on this rank.
        structure: the structure that they must have.
    """

    seed: int
    key: int
    epoch: int
    iteration: int
    indices: list[int]
    structure: Structure


class CallbackJob:
    """Asks a callback for samples; its StopIteration ends the epoch.

    Args:
        callback: the callback, called with a `SampleInfo`.
        batch: it makes whole batches, and is called with a `BatchInfo`.
    """

    transformed = True  # samples go through transforms
    whole = False  # see `Structure.of`

    def __init__(self, callback: Callable[[Any], Any], batch: bool) -> None:
        self.dataset = callback
        self._batch = batch
        self._held = HeldGenerators(callback)

    def describe(self, request: CallbackDescribe, progress: Callable[[int], None]) -> Description | None:
        """Describe the first sample that can be made: one that can't is an error where it is read.

        None where the epoch has no sample.
        """
        failed: Exception | None = None
        for info in request.asked:
            progress(info[0])
            self._held.seed(seed_sample(0, 0, 0))
            try:
                sample = self.dataset(info)
                sample = rows_of(sample)[0] if self._batch else sample
                return Description(
                    Structure.of(sample, request.fields, request.kinds, transformed=self.transformed, whole=self.whole)
                )
            except StopIteration:
                if info[0] == 0 and failed is None:
                    return None
            except Exception as error:
                let_through(error)
                failed = failed or leave_frame(error)
        assert failed is not None  # the last question is the epoch's first
        raise failed

    def read(self, request: CallbackRead, progress: Callable[[int], None]) -> Answer:
        """Read the samples up to the end of the epoch."""
        with self._held.preserved():
            return self._read(request, progress)

    def _read(self, request: CallbackRead, progress: Callable[[int], None]) -> Answer:
        seed, key, epoch, iteration, indices, structure = request
        rows: list[list[Any]] = []
        end: EpochEnd | None = None
        try:
            if self._batch:
                progress(indices[0])
                self._held.seed(seed_sample(seed, key, indices[0]))
                rows = [structure.values(sample) for sample in rows_of(self.dataset(BatchInfo(iteration, epoch)))]
            else:
                for number, index in enumerate(indices):
                    progress(index)
                    self._held.seed(seed_sample(seed, key, index))
                    rows.append(structure.values(self.dataset(SampleInfo(index, number, iteration, epoch))))
        except StopIteration:
            end = EpochEnd()
        return Answer(structure.columns(rows), end)
