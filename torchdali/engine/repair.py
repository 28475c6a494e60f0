"""Repair of a step that failed: its samples are tried one by one, and the batch is made again without the bad ones.

It can be made again because it is a pure function of its position in the stream.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..batch import BadSample, Columns, join, take
from ..errors import (
    BadSampleError,
    EngineError,
    FieldTypeError,
    TorchDaliError,
    TransformError,
    first_line,
    let_through,
)
from ..formats.image import check_header, readable
from ..options import OnBadSample
from ..order import Rows
from ..pillow import transcode
from ..rand import Key, Rand
from ..storage import OUT_OF_FILES, too_many_files
from .eager import Eager
from .fetch import Fetcher
from .host import HostStage
from .work import Work

ATTEMPTS = 10  # substitutes tried for one bad sample


class Diagnosis(NamedTuple):
    """The outcome of one sample tried alone: its columns, or its fault.

    Attributes:
        error, stage: the error, and the stage that it came from.
        columns: one row, with the image files that will decode.
        repaired: Pillow had to decode them.
    """

    error: Exception | None = None
    stage: str = ""
    columns: Columns = {}  # noqa: RUF012  # never changed
    repaired: bool = False


def _final(error: BaseException, read: bool) -> bool:
    """Whether an error is the batch's own, and no search for a bad sample can help.

    A value of another form is a bad sample's where the source refuses it, and the batch's where two samples of it that
    were read differ.
    """
    if isinstance(error, OSError) and error.errno in OUT_OF_FILES:
        return True
    return isinstance(error, TorchDaliError) and (read or not isinstance(error, FieldTypeError))


class Repair:
    """Makes a failed work whole, or gives it the error that the user will see.

    Args:
        fetcher, host: the stages around the device part.
        make_eager: makes the eager device part, at the first failure.
        policy: the loader's `on_bad_sample`.
        debug: an error of a transform rises as it is.
    """

    def __init__(
        self, fetcher: Fetcher, host: HostStage, make_eager: Callable[[], Eager], policy: OnBadSample, debug: bool
    ) -> None:
        self._fetcher, self._host, self._make_eager = fetcher, host, make_eager
        self._policy, self._debug = policy, debug
        self._eager: Eager | None = None

    def __call__(self, work: Work) -> None:
        """Clear `work.error` and fill in the batch, or replace the error."""
        error, work.error = work.error, None
        assert error is not None
        try:
            self._mend(work, error)
        except Exception as final:
            let_through(final)
            if isinstance(final, OSError) and final.errno in OUT_OF_FILES:
                final.add_note(f"torchdali: {too_many_files()}")
            work.error = final

    def _mend(self, work: Work, error: BaseException) -> None:
        if _final(error, read=bool(work.read)) or (work.failed is not None and self._policy == "raise"):
            raise error
        samples = work.samples
        found = {
            (index, key): self._diagnose(work, index, key)
            for index, key in {(int(i), int(k)) for i, k in zip(samples.indices, samples.keys, strict=True)}
        }
        if len(found) > 1 and all(diagnosis.stage == "transform" for diagnosis in found.values()):
            error.add_note(
                f"torchdali: every sample of the batch fails in the transform ({samples.indices.tolist()[:8]}...)"
            )
            raise error
        indices, keys, valid = samples.indices.copy(), samples.keys.copy(), work.valid.copy()
        parts: list[Columns] = []
        for i, sample in enumerate(zip(samples.indices.tolist(), samples.keys.tolist(), strict=True)):
            diagnosis = found[sample]
            if diagnosis.error is not None:
                indices[i], diagnosis = self._substitute(work, *sample, diagnosis)
                keys[i], valid[i] = indices[i], False
            parts.append(diagnosis.columns)
        if not any(diagnosis.error or diagnosis.repaired for diagnosis in found.values()):
            warnings.warn(
                f"a batch failed, though each of its samples passes alone, and is made again: {first_line(error)}",
                RuntimeWarning,
                stacklevel=2,
            )
        work.samples, work.valid = Rows(indices, keys), valid
        try:
            # A batch that collate_fn makes can't be joined from parts: it is made of the samples that are left.
            fetcher = self._fetcher
            self._complete(work, fetcher.reading.read(work.samples) if fetcher.source.collated else join(parts))
        except TorchDaliError:
            raise
        except Exception as again:
            let_through(again)
            raise EngineError(
                f"a batch failed, though each of its samples passes alone: {first_line(again)}"
            ) from again

    def _complete(self, work: Work, columns: Columns) -> None:
        self._fetcher.enter(work, columns)
        if self._fetcher.plan.on_dali:
            self._eager = self._eager or self._make_eager()
            self._eager(work)
        self._host(work)

    def _diagnose(self, work: Work, index: int, key: int) -> Diagnosis:
        rows = Rows(np.array([index]), np.array([key], np.uint64))
        alone = Work(work.step, rows, np.ones(1, np.bool_), alone=True, warnings=work.warnings)
        encoded = self._fetcher.plan.encoded
        try:
            columns = self._read(work, rows)
        except Exception as error:
            let_through(error)
            if _final(error, read=False):
                raise
            return Diagnosis(error, "read")
        max_pixels = self._fetcher.max_pixels
        try:
            for data in (data for name in encoded for data in columns[name]):
                check_header(data, max_pixels)
        except ValueError as error:
            return Diagnosis(error, "decode")
        try:
            self._complete(alone, columns)
            return Diagnosis(columns=columns)
        except TransformError:
            raise
        except Exception as error:
            let_through(error)
            if not encoded or all(self._decodes(columns[name]) for name in encoded):
                return Diagnosis(error, "transform")
            cause = error
        try:
            repaired = columns | {name: [transcode(data, max_pixels) for data in columns[name]] for name in encoded}
        except Exception as pillow:
            let_through(pillow)
            cause.add_note(f"torchdali: Pillow cannot decode it either: {first_line(pillow)}")
            return Diagnosis(cause, "decode")
        try:
            self._complete(alone, repaired)
        except TransformError:
            raise
        except Exception as error:
            let_through(error)
            return Diagnosis(error, "transform")
        return Diagnosis(columns=repaired, repaired=True)

    def _read(self, work: Work, rows: Rows) -> Columns:
        """Give one sample's columns: those of the work, or read again."""
        (there,) = np.nonzero((work.samples.indices == rows.indices) & (work.samples.keys == rows.keys))
        return take(work.read, there[:1]) if work.read and len(there) else self._fetcher.reading.read(rows)

    def _decodes(self, column: Any) -> bool:
        """Whether DALI decodes these files."""
        if not all(readable(data) for data in column):
            return False
        self._eager = self._eager or self._make_eager()
        return self._eager.decodes(column)

    def _substitute(self, work: Work, index: int, key: int, diagnosis: Diagnosis) -> tuple[int, Diagnosis]:
        """Find another sample for a bad one, chosen by (seed, epoch, sample), or raise the bad one's error."""
        rand = Rand(self._fetcher.pass_.seed, work.step.start.key, np.array([key], np.uint64)).child(Key.SUBSTITUTE)
        for _ in range(ATTEMPTS):
            bad = self._describe(index, diagnosis)
            answer = self._policy(bad) if callable(self._policy) else self._policy
            if answer == "raise":
                work.bad.append(bad)
                if self._debug and diagnosis.stage == "transform":
                    assert diagnosis.error is not None
                    raise diagnosis.error
                raise BadSampleError(*bad[:4]) from diagnosis.error
            drawn = int(rand.integers(len(self._fetcher.source))[0])
            if isinstance(answer, (int, np.integer)) and not isinstance(answer, bool):
                other = int(answer)
            elif answer == "substitute":
                other = drawn
            else:
                raise TypeError(f'on_bad_sample must return "raise", "substitute" or an index, got {answer!r}')
            if not 0 <= other < len(self._fetcher.source):
                raise IndexError(f"on_bad_sample returned {other} for a dataset of {len(self._fetcher.source)} samples")
            work.bad.append(bad._replace(substitute=other))
            index, diagnosis = other, self._diagnose(work, other, other)
            if diagnosis.error is None:
                return other, diagnosis
        raise BadSampleError(*self._describe(index, diagnosis)[:4]) from diagnosis.error

    def _describe(self, index: int, diagnosis: Diagnosis) -> BadSample:
        assert diagnosis.error is not None
        return BadSample(index, self._fetcher.source.path(index), diagnosis.stage, first_line(diagnosis.error), None)
