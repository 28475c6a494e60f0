"""A plan: a transform, compiled for one dataset and one kind of device.

The steps are cut in two.  The device part runs in DALI; the host part, on the CPU only, runs in torch, sample by
sample, and is everything after the last step that has no torch form.  Parameters are drawn for runs of steps between
functions: the first run from the headers of the files, the others from the shapes that a function gave.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ..batch import PIXELS, Held
from ..collate import Padding
from ..moves import Sizes
from ..rand import Key, Rand, derive, name_key
from ..transforms.base import Compose, Params, Transform, check_transform
from ..transforms.function import Function
from ..transforms.geometry import Decode
from .uniformity import Uniformity

Draws = dict[int, dict[str, Params]]
"""Parameters by step and field."""
FieldSizes = dict[str, "Sizes | None"]


class Plan:
    """A compiled transform.

    Args:
        transform: a transform, a function, a Compose, or None.
        kinds: the dataset's fields.
        device: "cpu" or "cuda".
        uniform: says whether a field's samples all have one shape.
        always_ragged, always_uniform: fields that leave padded, or as one tensor, whatever else is known of them.

    Attributes:
        steps: the transforms and functions.
        names: each step's name and its occurrence: what its random numbers are keyed by, wherever it stands.
        split: steps[:split] run in DALI, the rest in torch.
        fused: the decoder decodes only the window of the step after it.
        pixels: the image fields.
        inputs: the fields that go into DALI.
        uniform: whether the images or arrays of a field leave with one shape.
        tried: the functions that were called once already.
        held: the functions that were not looked through yet for generators that they hold.
    """

    def __init__(
        self,
        transform: Any,
        kinds: Mapping[str, Held],
        device: str,
        uniform: Callable[[str], bool | None],
        always_ragged: Sequence[str] = (),
        always_uniform: Sequence[str] = (),
    ) -> None:
        self.kinds = dict(kinds)
        self.pixels = [name for name, kind in kinds.items() if kind in PIXELS]
        self.encoded = [name for name in self.pixels if kinds[name] == "encoded"]
        self.steps = _flatten(transform)
        for k, step in enumerate(self.steps):
            if isinstance(step, Decode) and k:
                raise ValueError("Decode must be the first transform")
            if isinstance(step, Transform) and not self.pixels:
                raise ValueError(f"{type(step).__name__} acts on images, and the dataset has none: {', '.join(kinds)}")
        self.functions = [k for k, step in enumerate(self.steps) if isinstance(step, Function)]
        if self.encoded and not (self.steps and isinstance(self.steps[0], (Decode, Function))):
            self.steps.insert(0, Decode())
            self.functions = [k + 1 for k in self.functions]
        self.decodes = bool(self.encoded) and isinstance(self.steps[0], Decode)

        if not self.encoded and self.steps and isinstance(self.steps[0], Decode):
            del self.steps[0]  # they are decoded already
            self.functions = [k - 1 for k in self.functions]
        self.names = _names(self.steps)
        self.tried: set[int] = set()
        self.held = [step for step in self.steps if isinstance(step, Function)]
        self.split = len(self.steps)
        if device == "cpu":
            while self.split and isinstance(step := self.steps[self.split - 1], Transform) and step.on_host:
                self.split -= 1
        for step in self.steps[: self.split]:
            if isinstance(step, Transform) and not step.on_dali:
                where = "on a GPU" if device != "cpu" else "before a function"
                raise ValueError(f"{step!r} has only a CPU form and can't run {where}")
        self.fused = self.decodes and device == "cpu" and len(self.steps) > 1 and self.transform(1).windowed
        first = self.functions[0] if self.functions else len(self.steps)
        self.first_run = (0, first)
        self.peeks = bool(self.encoded) and any(self.transform(k).needs_sizes for k in range(first))
        # A function sees everything that DALI can hold.
        others = [name for name, kind in kinds.items() if kind in ("array", "number")] if self.functions else []
        self.inputs = (self.pixels if self.split else []) + others
        sources = {name: uniform(name) for name, kind in kinds.items() if kind == "array" or kind in PIXELS}
        self.uniform = Uniformity(
            {name: self._uniform(name, known, self.steps) for name, known in sources.items()},
            [name for name, known in sources.items() if self._uniform(name, known, self.steps[:first]) is False],
            bool(self.functions),
            always_ragged,
            always_uniform,
        )

    def transform(self, k: int) -> Transform:
        """Step k; a function counts as one without parameters."""
        step = self.steps[k]
        return step if isinstance(step, Transform) else _NOTHING

    def rand(self, k: int, rand: Rand) -> Rand:
        """The random numbers of step k, from those of a batch's samples."""
        return rand.named(Key.STEP, *self.names[k])

    def seed(self, k: int, seed: int) -> int:
        """A seed for step k, from one for a batch."""
        name, occurrence = self.names[k]
        return derive(seed, name_key(name), occurrence)

    def _uniform(self, name: str, uniform: bool | None, steps: Sequence[Transform | Function]) -> bool | None:
        for step in steps:
            if isinstance(step, Function):
                # A function often makes images of one size out of any, and seldom arrays.
                uniform = None if name in self.pixels or uniform is not False else False
            elif step.fixes_size and name in self.pixels:
                uniform = True
        return uniform

    def check_padding(self, padding: Padding, dtype_of: Callable[[str], Any]) -> None:
        """Raise where the pad value does not fit a field, as far as that is known before the first batch.

        Args:
            padding: for ragged fields.
            dtype_of: gives the dtype of a field of arrays, or None where it is not known.

        Raises:
            PadValueError: it does not fit, or names an unknown field.
        """
        if not self.functions:  # they may add fields
            padding.check_fields(self.kinds)
        for name, kind in self.kinds.items():
            if kind != "array" and name not in self.pixels:
                continue
            dtype = self._image_dtype() if name in self.pixels else dtype_of(name)
            if not self.uniform[name] and dtype is not None and not self.functions:
                padding.value_for(name, dtype)

    def _image_dtype(self) -> torch.dtype:
        dtype = torch.uint8
        for k in range(len(self.steps)):
            dtype = self.transform(k).out_dtype(dtype)
        return dtype

    @property
    def why_not_traced(self) -> str | None:
        """The reason why this plan can't run in a pipeline; None where it can."""
        if not self.split:
            return "there is nothing for DALI to do"
        for k in self.functions:
            function = self.steps[k]
            assert isinstance(function, Function)
            if not function.traceable:
                return f"the function {function.name} is not marked with transforms.traceable"
            for later in range(k + 1, self.split):
                if self.transform(later).needs_sizes:
                    return (
                        f"{type(self.steps[later]).__name__} needs the sizes of the images that {function.name} makes"
                    )
        return None

    def choose(self, engine: str, any_size: bool) -> tuple[str, str]:
        """Choose the execution, and say why.

        Args:
            engine: "eager", "pipeline", "debug" or "auto".
            any_size: the source or the order decides how many samples a batch has.
        """
        why_not = self.why_not_traced
        if any_size:
            why_not = (
                "a pipeline has a largest batch size, and the source or a batch sampler decides how large they are"
            )
        if engine == "pipeline" and why_not:
            return "eager", why_not
        if engine != "auto":
            return engine, f"engine={engine!r} was asked for"
        return ("eager", why_not) if why_not else ("pipeline", "a traced pipeline is DALI's fastest execution")

    def draw(self, run: tuple[int, int], rand: Rand, sizes: FieldSizes) -> tuple[Draws, FieldSizes]:
        """Draw the parameters of a run of steps, and give the images' sizes after it."""
        draws: Draws = {}
        sizes = dict(sizes)
        before = dict(sizes)
        for k in range(*run):
            draws[k] = {}
            for name in sizes:
                # The same numbers for each field of a sample: an image and its mask are flipped together.
                draws[k][name], sizes[name] = self.transform(k).make_params(self.rand(k, rand), sizes[name])
        if self.fused and run[0] == 0:
            for name in self.encoded:
                whole = before[name]
                assert whole is not None
                window = draws[1][name]
                low = np.clip(window["start"], 0, whole - 1)
                high = np.maximum(np.minimum(window["start"] + window["shape"], whole), low + 1)
                draws[0][name] = {"start": low.astype(np.int32), "shape": (high - low).astype(np.int32)}
                draws[1][name] = {**window, "start": (window["start"] - low).astype(np.int32)}
        return draws, sizes

    def runs(self) -> list[tuple[int, int]]:
        """The device part as runs of transforms, (first, end); a function follows each, except perhaps the last."""
        ends = [k for k in self.functions if k < self.split]
        return list(zip([0, *(k + 1 for k in ends)], [*ends, self.split], strict=True))


class _Nothing(Transform):
    """A function, as a step that has no parameters."""

    def transform(self, ops: Any, image: Any) -> Any:
        return image


_NOTHING = _Nothing()


def _names(steps: Sequence[Transform | Function]) -> list[tuple[str, int]]:
    """Name each step, and count the steps of one name; those that draw nothing do not count."""
    counts: Counter[str] = Counter()
    names = []
    for step in steps:
        name = step.name if isinstance(step, Function) else type(step).__name__
        names.append((name, counts[name]))
        counts[name] += isinstance(step, Function) or step.draws
    return names


def _flatten(transform: Any) -> list[Transform | Function]:
    if transform is None:
        return []
    if isinstance(transform, Compose):
        return [step for inner in transform.transforms for step in _flatten(inner)]
    if isinstance(transform, Transform):
        return [transform]
    check_transform(transform)
    return [Function(transform)]
