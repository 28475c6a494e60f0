"""Single samples in torch, between the steps of DALI: a batch is taken apart, and put together again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from ..errors import TransformError
from ..forms.polygons import draw_polygons
from ..forms.units import to_fractions, to_pixels
from ..kinds import Boxes, Image, Kind, Mask, Points, Polygons, Video
from ..moves import Sizes
from ..ragged import Ragged
from ..rand import Rand
from ..transforms.per_sample import PerSample, SampleRand, flatten_like
from .images import Each
from .plan import Plan


class SampleCalls:
    """Calls functions of single samples, several at a time.

    Args:
        plan: knows the fields' kinds.
        rebuild: puts the values of one sample into the form of the dataset's samples.
        each: runs a function for all samples, several at a time.
    """

    def __init__(self, plan: Plan, rebuild: Callable[[dict[str, Any]], Any], each: Each) -> None:
        self._plan, self._rebuild, self._each = plan, rebuild, each
        self._lock = threading.Lock()

    def __call__(
        self, function: PerSample, columns: Mapping[str, list[Any]], rands: list[SampleRand], formats: Mapping[str, str]
    ) -> dict[str, list[Any]]:
        """Call a function for all samples of a batch.

        Args:
            function: the function.
            columns: the fields, one value per sample: images [H, W, C].
            rands: the samples' random numbers.
            formats: of boxes that have another one than their kind says.

        Returns:
            the fields of the results, in the same way.

        Raises:
            TransformError: samples have different fields, or a field has another form than its kind says.
        """
        made: list[dict[str, Any]] = [{}] * len(rands)
        own = set(columns) == set(self._plan.read)
        template = self._rebuild({name: name for name in self._plan.read}) if own else {name: name for name in columns}

        def run(i: int) -> None:
            sample = {name: column[i] for name, column in columns.items()}
            size = self._size(sample)
            values = {name: self._show(function, name, value, size, formats) for name, value in sample.items()}
            given = self._rebuild(values) if own else values
            if function.alone:
                with self._lock:
                    result = function.call(given, rands[i])
            else:
                result = function.call(given, rands[i])
            if result is None:
                raise TransformError(f"the transform {function.name} must return the sample (is a return missing?)")
            fields = flatten_like(f"the transform {function.name}", template, result)
            size = self._size({name: _array(self._kind(name), value) for name, value in fields.items()})
            made[i] = {name: self._take(name, value, size, formats) for name, value in fields.items()}

        def part(rows: range) -> None:
            for i in rows:
                run(i)

        self._each(part, len(rands))
        names = made[0]
        for fields in made:
            if set(fields) != set(names):
                odd = sorted(set(fields) ^ set(names))[0]
                raise TransformError(
                    f"the transform {function.name} must return the same fields for each sample, and {odd!r} is in "
                    "some only"
                )
        return {name: [fields[name] for fields in made] for name in names}

    def _kind(self, name: str) -> Kind | None:
        return self._plan.kinds.get(name)

    def _size(self, sample: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
        """Give height and width of each scene, by its first picture."""
        sizes = {}
        for scene in self._plan.host.scenes.values():
            for name in (*scene.pixels, *scene.masks):
                if name in sample and isinstance(sample[name], np.ndarray):
                    shape = sample[name].shape
                    sizes[scene.name] = shape[-3:-1] if name in scene.pixels else shape[-2:]
                    break
        return sizes

    def _show(
        self, function: PerSample, name: str, value: Any, sizes: Mapping[str, Any], formats: Mapping[str, str]
    ) -> Any:
        """Make one value as the function gets it."""
        from torchvision import tv_tensors

        kind = self._kind(name)
        if isinstance(kind, Polygons) and not isinstance(value, np.ndarray):
            value = draw_polygons(value, sizes[kind.scene], [], 0)
        if not isinstance(value, np.ndarray):
            return value
        if value.ndim == 0 and (kind is None or kind.held == "number"):
            return value.item()
        size = sizes.get(kind.scene) if kind else None
        if isinstance(kind, (Boxes, Points)) and kind.normalized and size is not None:
            value = to_pixels(Ragged.of([value]), np.array([size], np.int64)).split()[0]
        if function.form == "numpy":
            return value
        made = torch.from_numpy(value if value.flags.c_contiguous else value.copy())
        if isinstance(kind, Image):
            return tv_tensors.Image(made.permute(2, 0, 1).contiguous())
        if isinstance(kind, Video):
            return tv_tensors.Video(made.permute(0, 3, 1, 2).contiguous())
        if isinstance(kind, (Mask, Polygons)):
            return tv_tensors.Mask(made)
        if isinstance(kind, Boxes) and size is not None:
            format = formats.get(name, kind.format).upper()
            return tv_tensors.BoundingBoxes(made.reshape(-1, 4), format=format, canvas_size=size)
        if isinstance(kind, Points) and size is not None:
            if made.shape[-1] != 2:
                raise TransformError(
                    f"the points of {name!r} have a visibility, which torchvision's KeyPoints can't hold: write "
                    'PerSample(..., form="numpy"), or a function over batches'
                )
            return tv_tensors.KeyPoints(made, canvas_size=size)
        return made

    def _take(self, name: str, value: Any, sizes: Mapping[str, Any], formats: Mapping[str, str]) -> Any:
        """Make a value of a result as columns hold it."""
        from torchvision import tv_tensors
        from torchvision.transforms.v2 import functional

        kind = self._kind(name)
        if isinstance(value, tv_tensors.BoundingBoxes) and isinstance(kind, Boxes):
            told = formats.get(name, kind.format).upper()
            if value.format.value != told:
                value = functional.convert_bounding_box_format(value, new_format=told)
        array = _array(kind, value)
        size = sizes.get(kind.scene) if kind else None
        if isinstance(kind, (Boxes, Points)) and kind.normalized and size is not None:
            whole: Sizes = np.array([size], np.int64)
            array = to_fractions(Ragged.of([array]), whole).split()[0]
        return array


def _array(kind: Kind | None, value: Any) -> Any:
    """Make an array of a tensor, with the channels last where it is a picture; anything else stays."""
    from torchvision import tv_tensors

    if not isinstance(value, torch.Tensor):
        return value
    plain = value.as_subclass(torch.Tensor).detach().cpu()
    if isinstance(kind, Image) or (kind is None and isinstance(value, tv_tensors.Image)):
        plain = plain.permute(1, 2, 0)
    elif isinstance(kind, Video):
        plain = plain.permute(0, 2, 3, 1)
    return np.ascontiguousarray(plain.numpy()) if plain.ndim else plain.item()


def sample_rands(step: Rand, root: Rand, epoch: int, number: int) -> list[SampleRand]:
    """Give the random numbers of each sample.

    Args:
        step: the samples' numbers in this step.
        root: the samples' numbers.
        epoch, number: where the batch stands.
    """
    seeds, roots = step.words() >> np.uint64(1), root.stream("").words()
    return [SampleRand(int(a), int(b), epoch, number) for a, b in zip(seeds, roots, strict=True)]
