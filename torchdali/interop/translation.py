"""Translates torchvision's transforms to torchdali's, with all parameters, and names those that have no counterpart.

What a transform of torchvision does depends on its input: a PIL image, which Pillow resizes, or a tensor of uint8 or of
floats.  So the translation follows a picture from the file through the transforms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from .. import transforms as T
from ..transforms.base import Transform
from ..transforms.foreign import foreign
from .advice import advice
from .picture import Picture
from .rules import RULES, name_of, numbers, padded_crop
from .targets import TARGETS


@dataclass(frozen=True)
class Missing:
    """A transform that can't be translated."""

    place: str
    transform: Any
    reason: str
    inner: tuple[Missing, ...] = ()

    def __repr__(self) -> str:
        return f"<{_title(self.transform)}>"

    def lines(self) -> Iterator[str]:
        """Yield one line for this transform, and one for each inside it."""
        yield f"{self.place} {_short(self.transform)}: {self.reason}"
        for missing in self.inner:
            yield from missing.lines()


Step = Transform | Missing


class Translation:
    """Follows a picture through transforms.

    Args:
        alone: there is no dataset: what acts on masks, boxes and clips is translated too.

    Attributes:
        steps: torchdali's transforms, with `Missing` where there is none.
        at: the picture that torchvision has after them.
    """

    def __init__(self, alone: bool = False) -> None:
        self.steps: list[Step] = []
        self.at = Picture(alone=alone)

    @property
    def missing(self) -> list[Missing]:
        return [step for step in self.steps if isinstance(step, Missing)]

    def transforms(self) -> list[Transform]:
        """Give the translated steps, without a conversion that only prepares a Normalize.

        torchdali's Normalize takes uint8 and scales it to [0, 1] itself, in one pass.
        """
        found: list[Transform] = []
        dtype = before = torch.uint8
        for step in self.steps:
            assert not isinstance(step, Missing)
            if isinstance(step, T.Normalize) and found and before == torch.uint8:
                if found[-1] == T.ToDtype(torch.float32, scale=True):
                    found.pop()
            found.append(step)
            if isinstance(step, Transform):
                dtype, before = step.out_dtype(dtype), dtype
        return found

    def add(self, transform: Any, place: str) -> None:
        """Translate a transform of torchvision, or a container of them.

        Args:
            transform: a transform, which may be nested; None does nothing.
            place: its place, for messages.
        """
        if transform is None or (_does_nothing(transform) and not self._acts_alone(transform)):
            return
        if (inner := preset(transform)) is not None:
            self.add(inner, f"{place}.transforms")
            return
        name = name_of(transform)
        if foreign(transform):
            self._miss(Missing(place, transform, advice(transform)))
        elif name == "Compose" or _is_sequential(transform):
            inner = transform.transforms if name == "Compose" else transform
            for i, each in enumerate(inner):
                self.add(each, f"{place}[{i}]")
        elif name in _CONTAINERS:
            _CONTAINERS[name](self, transform, place)
        elif name in RULES or self._acts_alone(transform):
            if self.at.alone and not self.steps and name in ("ConvertImageDtype", "ToDtype") and self.at.form == "pil":
                self.at.form = "tensor"  # it takes no other
            try:
                found = {**TARGETS, **RULES}[name](transform, self.at)
            except (TypeError, ValueError) as error:
                self._miss(Missing(place, transform, str(error)))
            else:
                if name == "RandomCrop":
                    found = self._with_pad_in_front(found)
                self.steps += found
        elif self.at.form == "pil" and _makes_rgb(transform, name):
            self.steps += [T.RGB()] if self.at.channels == 1 else []
            self.at.channels = 3
        elif name is None or name == "Lambda":
            self._miss(Missing(place, transform, advice(transform)))
        else:
            self.steps.append(Missing(place, transform, advice(transform)))

    def _acts_alone(self, transform: Any) -> bool:
        """Whether a transform acts on more than images with labels, and may here."""
        return self.at.alone and name_of(transform) in TARGETS

    def part(self, transforms: Iterable[Any], place: str) -> tuple[list[Step], bool]:
        """Translate some transforms on their own, and tell whether the picture after them is of another kind."""
        outer, self.steps, before = self.steps, [], replace(self.at)
        for i, each in enumerate(transforms):
            self.add(each, f"{place}[{i}]")
        inner, self.steps = self.steps, outer
        return inner, self.at != before

    def _miss(self, missing: Missing) -> None:
        """Add a transform that can't be translated; the picture after it is unknown, so later checks pass."""
        self.steps.append(missing)
        self.at = Picture("unknown", None, alone=self.at.alone)

    def _with_pad_in_front(self, crop: list[Transform]) -> list[Transform]:
        """Join a Pad into the RandomCrop after it, whose window alone is decoded."""
        pad = self.steps[-1] if self.steps else None
        if isinstance(pad, T.Pad) and isinstance(crop[0], T.RandomCrop):
            if (joined := padded_crop(pad, crop[0])) is not None:
                self.steps.pop()
                return [joined]
        return crop


def preset(transform: Any) -> Any:
    """Get the transforms that an object only wraps, as the presets of torchvision's references do; else None.

    It does nothing else if its `__call__` compiles to the same code as one of `_ONLY_CALLS`.
    """
    code = getattr(vars(type(transform)).get("__call__"), "__code__", None)
    if code is None or len(code.co_names) != 1 or code.co_code not in {f.__code__.co_code for f in _ONLY_CALLS}:
        return None
    inner = getattr(transform, code.co_names[0], None)
    return inner if name_of(transform) is None and name_of(inner) == "Compose" else None


def _only_calls(self: Any, image: Any) -> Any:
    return self.transforms(image)


def _only_calls_with_target(self: Any, image: Any, target: Any) -> Any:
    return self.transforms(image, target)


_ONLY_CALLS = (_only_calls, _only_calls_with_target)


def _makes_rgb(transform: Any, name: str | None) -> bool:
    """Whether a function, or a Lambda of one, only makes an RGB image of a PIL image, as CLIP's transforms do."""
    function = transform.lambd if name == "Lambda" and hasattr(transform, "lambd") else transform
    code = getattr(function, "__code__", None)
    if code is None or code.co_freevars or getattr(function, "__closure__", None):
        return False
    words = {word for word in code.co_consts if word is not None and word != function.__doc__}
    if not {"convert"} <= {*code.co_names} <= {"convert", "mode"} or words != {"RGB"}:
        return False
    from PIL import Image

    picture = Image.new("RGB", (3, 2), (1, 2, 3))
    try:
        made = function(picture)
    except Exception:
        return False
    return isinstance(made, Image.Image) and made.mode == "RGB" and made.tobytes() == picture.tobytes()


def _is_sequential(transform: Any) -> bool:
    return isinstance(transform, torch.nn.Sequential) and type(transform).forward is torch.nn.Sequential.forward


def _title(transform: Any) -> str:
    return str(getattr(transform, "__name__", type(transform).__name__))  # of a function, else of the class


def _short(transform: Any) -> str:
    if name_of(transform) in _CONTAINERS:  # the transforms inside have lines of their own
        return f"{_title(transform)}({f'p={transform.p}' if hasattr(transform, 'p') else ''})"
    if hasattr(transform, "__name__"):
        return _title(transform)
    text = " ".join(repr(transform).split())
    return text if len(text) <= 80 else text[:77] + "..."


_CHANCES = (
    "RandomApply RandomAdjustSharpness RandomAutocontrast RandomEqualize RandomErasing RandomGrayscale "
    "RandomHorizontalFlip RandomInvert RandomPerspective RandomPhotometricDistort RandomPosterize RandomSolarize "
    "RandomVerticalFlip RandomZoomOut"
).split()
# These only tell v2 how an image is stored, or act on boxes and key points, which these samples do not have.
_NO_PIXELS = "Identity ClampBoundingBoxes ClampKeyPoints ConvertBoundingBoxFormat SetClampingMode".split()


def _does_nothing(transform: Any) -> bool:
    name = name_of(transform)
    if name == "Pad":
        return not any(numbers(transform.padding))
    if name == "RandomRotation":
        return tuple(transform.degrees) == (0, 0)
    if name == "ColorJitter":
        return all(getattr(transform, part) is None for part in ("brightness", "contrast", "saturation", "hue"))
    return type(transform) is torch.nn.Identity or name in _NO_PIXELS or (name in _CHANCES and transform.p == 0)


def _random_apply(to: Translation, t: Any, place: str) -> None:
    inner, converted = to.part(t.transforms, place)
    if t.p == 1 or (not inner and not converted):
        to.steps += inner
    elif len(inner) == 1 and isinstance(inner[0], T.RandomHorizontalFlip | T.RandomVerticalFlip):
        to.steps.append(replace(inner[0], p=inner[0].p * t.p))
    else:
        _combine(to, t, place, [inner], converted, lambda parts: T.RandomApply(list(parts[0].transforms), t.p))


def _random_choice(to: Translation, t: Any, place: str) -> None:
    weights = [1] * len(t.transforms) if t.p is None else t.p
    possible = [(i, each) for i, (each, weight) in enumerate(zip(t.transforms, weights)) if weight]
    if len(possible) == 1:
        i, each = possible[0]
        to.add(each, f"{place}[{i}]")
        return
    parts, converted = _parts(to, t, place)
    p = None if t.p is None else tuple(t.p)
    _combine(to, t, place, parts, converted, lambda found: T.RandomChoice([_one(part) for part in found], p))


def _random_order(to: Translation, t: Any, place: str) -> None:
    before = replace(to.at)
    inner, converted = to.part(t.transforms, place)
    if len(t.transforms) == 1 or (len(inner) <= 1 and not converted):
        to.steps += inner
        return
    to.at = before
    parts, converted = _parts(to, t, place)
    _combine(to, t, place, parts, converted, lambda found: T.RandomOrder([_one(part) for part in found]))


def _parts(to: Translation, t: Any, place: str) -> tuple[list[list[Step]], bool]:
    """Translate each transform on its own, and tell whether the picture after one of them is of another kind."""
    before, parts, converted = replace(to.at), [], False
    for i, each in enumerate(t.transforms):
        to.at = replace(before)
        outer, to.steps = to.steps, []
        to.add(each, f"{place}[{i}]")
        parts.append(to.steps)
        to.steps = outer
        converted = converted or to.at != before
    to.at = before
    return parts, converted


def _one(part: T.Compose) -> Transform | T.Compose:
    """The only transform of a Compose, or the Compose; of an empty one, a transform that does nothing."""
    return part if len(part.transforms) > 1 else next(iter(part.transforms), T.Identity())


def _combine(
    to: Translation,
    t: Any,
    place: str,
    parts: list[list[Step]],
    converted: bool,
    make: Callable[[list[T.Compose]], Transform],
) -> None:
    """Add a transform of transforms, if all of these are translated, and leave the picture's kind as it is."""
    steps = [step for part in parts for step in part]
    missing = tuple(step for step in steps if isinstance(step, Missing))
    if missing or converted:
        reason = "what it holds can't be translated" if missing else _CONVERTS
        to.steps.append(Missing(place, t, reason, missing))
        return
    try:
        to.steps.append(make([T.Compose([step for step in part if isinstance(step, Transform)]) for part in parts]))
    except (TypeError, ValueError) as error:
        to.steps.append(Missing(place, t, str(error)))


_CONVERTS = "it converts some images to another type: convert all of them, before it or after it"


_CONTAINERS: dict[str | None, Callable[[Translation, Any, str], None]] = {
    "RandomApply": _random_apply,
    "RandomChoice": _random_choice,
    "RandomOrder": _random_order,
}
