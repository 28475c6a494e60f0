"""A step on its way through the engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _dali
from ..batch import BadSample, Columns
from ..forms.image import Images
from ..order import Rows, Step
from ..source import Failed
from .hostpass import Drawn


@dataclass
class Work:
    """A step and what the stages have made of it so far; each stage fills in its part.

    Attributes:
        samples: the rows of the batch: the step's, except for substitutes.
        valid: [N] False for repeated and substituted rows.
        read: the samples as they were read; empty where that failed.
        columns: the same, image files made readable for DALI.
        drawn: the parameters of the plan's first run, and where the samples stand after it.
        views: the same for each view, where no function comes before.
        outputs: the device part's, by field; those of views by `Plan.leaves_as`.
        lists: the same of fields that travel beside DALI, where functions saw them: one value per sample.
        shared: images after the torch part of the steps that all views share.
        batch: the finished fields.
        error: the first error; later stages pass it on.
        failed: the same, where the user's code that makes samples raised it.
        bad: the bad samples that were met.
        alone: it is no batch of the stream, but one sample that is tried.
        warnings: texts for the caller, in whose thread they are given.
        release: gives back the memory of what was read.
        snapshot: where the source stands after this step, if the step's end does not say so.
    """

    step: Step
    samples: Rows
    valid: NDArray[np.bool_]
    read: Columns = field(default_factory=dict)
    columns: Columns = field(default_factory=dict)
    drawn: Drawn = field(default_factory=Drawn)
    views: list[Drawn] = field(default_factory=list)
    outputs: dict[str, _dali.Output] = field(default_factory=dict)
    lists: dict[str, list[Any]] = field(default_factory=dict)
    shared: dict[str, Images] = field(default_factory=dict)
    batch: dict[str, Any] = field(default_factory=dict)
    error: BaseException | None = None
    failed: Failed | None = None
    bad: list[BadSample] = field(default_factory=list)
    alone: bool = False
    warnings: list[str] = field(default_factory=list)
    release: Callable[[], None] | None = None
    snapshot: Any = None

    @classmethod
    def of(cls, step: Step) -> Work:
        return cls(step, step.rows, step.valid)

    def __len__(self) -> int:
        return len(self.samples.indices)
