"""Repair of a step that failed: its samples are tried one by one, and the batch is made again without the bad ones.

A bad sample is left out, or another one takes its place; the batch keeps its place in the stream, and has one at least.

It can be made again because it is a pure function of its position in the stream.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..batch import BadSample, Columns, join, take
from ..clock import count
from ..errors import (
    BadSampleError,
    EngineError,
    FieldTypeError,
    OutOfMemoryError,
    TorchDaliError,
    TransformError,
    first_line,
    let_through,
    of_memory,
)
from ..formats.headers import readable
from ..options import OnBadSample
from ..order import Rows
from ..rand import Rand
from ..storage import OUT_OF_FILES, too_many_files
from .eager import Eager
from .fetch import Fetcher
from .host import HostStage
from .substitutes import Substitutes
from .work import Work

ATTEMPTS = 10  # samples that a function may name for one bad sample, and that are bad themselves
_OF_DECODERS = ("decode", "nvimagecodec", "nvjpeg")  # in the errors of DALI's decoders


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
        self._substitutes: Substitutes | None = None  # none for a source without a length
        if not fetcher.source.endless:
            self._substitutes = Substitutes(fetcher.source.others())

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
            if isinstance(final, BadSampleError):
                _add_once(final, self._way_on(work))
            work.error = final

    def _way_on(self, work: Work) -> str:
        """Say how to go on after an error that keeps a batch back."""
        policies = "'skip'" if self._substitutes is None else "'skip' or 'substitute'"
        rest = work.step.rows.indices.tolist()
        shown = f"{rest[:8]}"[:-1] + (", ...]" if len(rest) > 8 else "]")
        return (
            f"torchdali: the batch of the samples {shown} was not handed over.  next() goes on after it; "
            f"on_bad_sample={policies} gives its other samples, also in a new loader that loads this one's state, "
            "which still stands before the batch"
        )

    def _mend(self, work: Work, error: BaseException) -> None:
        # The samples of an iterable can't be made again; those that came may still be decoded.
        made = work.failed is not None and (self._policy == "raise" or self._substitutes is None)
        if _final(error, read=bool(work.read)) or made:
            raise error
        samples = work.samples
        short = error if of_memory(error) else None
        found = {
            (index, key): self._diagnose(work, index, key)
            for index, key in {(int(i), int(k)) for i, k in zip(samples.indices, samples.keys, strict=True)}
        }
        faults = [diagnosis.error for diagnosis in found.values() if diagnosis.error is not None]
        short = short or next(filter(of_memory, faults), None)
        if short is not None and faults:
            raise _out_of_memory(short) from short
        if len(found) > 1 and all(diagnosis.stage == "transform" for diagnosis in found.values()):
            error.add_note(
                f"torchdali: every sample of the batch fails in the transform ({samples.indices.tolist()[:8]}...)"
            )
            raise error
        if self._substitutes is not None:
            for (index, _), diagnosis in found.items():
                if diagnosis.stage in ("read", "decode"):  # whatever its random numbers are
                    self._substitutes.note(index)
        rows: list[tuple[int, int, bool, Columns]] = []  # index, key, valid, columns
        values = (samples.indices.tolist(), samples.keys.tolist(), work.valid.tolist())
        for index, key, valid in zip(*values, strict=True):
            diagnosis = found[index, key]
            if diagnosis.error is None:
                rows.append((index, key, valid, diagnosis.columns))
            elif (other := self._replace(work, index, key, diagnosis)) is not None:
                rows.append((other[0], other[0], False, other[1].columns))
        if not rows:  # never empty: the first sample's place is taken
            index, key = int(samples.indices[0]), int(samples.keys[0])
            work.bad = [bad for bad in work.bad if bad.index != index]
            other = self._replace(work, index, key, found[index, key], "substitute")
            assert other is not None
            rows.append((other[0], other[0], False, other[1].columns))
        if not any(diagnosis.error or diagnosis.repaired for diagnosis in found.values()):
            warnings.warn(
                f"a batch failed, though each of its samples passes alone, and is made again: {first_line(error)}",
                RuntimeWarning,
                stacklevel=2,
            )
        indices, keys, valids, parts = zip(*rows, strict=True)
        work.samples, work.valid = Rows(np.array(indices), np.array(keys, np.uint64)), np.array(valids)
        try:
            # A batch that collate_fn makes can't be joined from parts: it is made of the samples that are left.
            fetcher = self._fetcher
            self._complete(work, fetcher.reading.read(work.samples) if fetcher.source.collated else join(parts))
        except TorchDaliError:
            raise
        except Exception as again:
            let_through(again)
            if of_memory(again):
                raise _out_of_memory(again) from again
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
        try:
            for name in encoded:
                for data in columns[name]:
                    self._fetcher.check_file(name, data)
        except ValueError as error:
            return Diagnosis(error, "decode")
        try:
            self._complete(alone, columns)
            return Diagnosis(columns=columns)
        except TransformError:
            raise
        except Exception as error:
            let_through(error)
            if not encoded:
                return Diagnosis(error, "transform")
            cause = error
        # DALI may decode the whole picture, and fail for the window of it that a transform takes.
        decodes = all(self._decodes(columns[name]) for name in encoded)
        try:
            repaired = columns | {
                name: [self._fetcher.transcode(name, data) for data in columns[name]] for name in encoded
            }
        except Exception as pillow:
            let_through(pillow)
            if of_memory(pillow):
                return Diagnosis(pillow, "decode")
            if decodes and not any(word in str(cause).lower() for word in _OF_DECODERS):
                return Diagnosis(cause, "transform")
            cause.add_note(f"torchdali: Pillow cannot decode it either: {first_line(pillow)}")
            return Diagnosis(cause, "decode")
        try:
            self._complete(alone, repaired)
        except TransformError:
            raise
        except Exception as error:
            let_through(error)
            return Diagnosis(cause if decodes else error, "transform")
        count("pillow")
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

    def _replace(
        self, work: Work, index: int, key: int, diagnosis: Diagnosis, forced: str = ""
    ) -> tuple[int, Diagnosis] | None:
        """Find another sample for a bad one; None: it is left out.

        Args:
            work: takes a note of each bad sample.
            index, key, diagnosis: the bad sample.
            forced: the answer that is asked for; "": the policy's.

        Raises:
            BadSampleError: the policy says so, or there is no good sample.
        """
        rand = Rand(self._fetcher.pass_.seed, work.step.start.key, np.array([key], np.uint64))
        substitutes = self._substitutes
        others = iter(()) if substitutes is None else substitutes.of(rand)
        met: list[BadSample] = []
        named = 0  # by the policy
        while diagnosis.error is not None:
            if of_memory(diagnosis.error):  # of a sample that was to take the bad one's place
                raise _out_of_memory(diagnosis.error) from diagnosis.error
            bad = self._describe(index, diagnosis)
            met.append(bad)
            answer = forced or (self._policy(bad) if callable(self._policy) else self._policy)
            if answer == "skip":
                work.bad += met
                return None
            other: int | None = None
            if answer == "substitute":
                other = next(others, None)
            elif isinstance(answer, (int, np.integer)) and not isinstance(answer, bool):
                other = self._checked(int(answer)) if named < ATTEMPTS else None
                named += 1
            elif answer != "raise":
                raise TypeError(f'on_bad_sample must return "raise", "skip", "substitute" or an index, got {answer!r}')
            if other is None:
                work.bad += met
                if self._debug and diagnosis.stage == "transform":
                    raise diagnosis.error
                first = met[0] if answer == "substitute" else bad
                error = BadSampleError(*first[:4])
                if answer == "substitute":
                    error.add_note(f"torchdali: {_no_other(substitutes is None)}")
                raise error from diagnosis.error
            index, diagnosis = other, self._diagnose(work, other, other)
            if diagnosis.error is not None and substitutes is not None:
                substitutes.note(index)
        work.bad += [bad._replace(substitute=index) for bad in met]
        return index, diagnosis

    def _checked(self, index: int) -> int:
        """Give the index that a function named, if there is such a sample."""
        if self._substitutes is None:
            raise ValueError(
                f"on_bad_sample returned {index}, and the samples of {type(self._fetcher.source).__name__} can't be "
                'taken by their index: return "skip" or "raise"'
            )
        samples = self._fetcher.source.others()
        if index not in samples:
            raise IndexError(f"on_bad_sample returned {index} for a dataset of {len(samples)} samples")
        return index

    def _describe(self, index: int, diagnosis: Diagnosis) -> BadSample:
        assert diagnosis.error is not None
        return BadSample(index, self._fetcher.source.path(index), diagnosis.stage, first_line(diagnosis.error), None)


def _out_of_memory(error: BaseException) -> OutOfMemoryError:
    return OutOfMemoryError(
        f"memory ran out while a batch was made, and again while it was tried sample by sample: {first_line(error)}. "
        "No sample is blamed; next() goes on after the batch, and the loader's state stands before it: use a smaller "
        "batch_size, prefetch_factor or num_threads, fewer workers, or smaller images"
    )


def _no_other(endless: bool) -> str:
    if endless:
        return "no sample of its batch is good, and another one can't be taken by its index"
    return "no sample of the dataset that was tried in its place is good"


def _add_once(error: BaseException, note: str) -> None:
    """Add a note, unless the error has it: some code raises one error again and again."""
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)
