"""Several transforms as one: what holds transforms, and steps one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..forms.image import Images
from ..moves import Move, Sizes
from ..rand import Key, Rand
from .base import ANY, Mover, Params, Transform, in_batches
from .compose import Compose, check_transform
from .frames import UniformTemporalSubsample
from .of_objects import Convert, Filter
from .sound import Form, is_sound
from .switch import inside

if TYPE_CHECKING:
    from .._dali import Ops


def part_of(params: dict[str, Any], head: str) -> dict[str, Any]:
    """The params whose names begin with `head`, without it."""
    if params is ANY:
        return params
    return {key.removeprefix(head): values for key, values in params.items() if key.startswith(head)}


def names_of(steps: Sequence[Transform]) -> list[tuple[str, int]]:
    """Name each step, and count the steps of one name; those that draw nothing do not count."""
    counts: Counter[str] = Counter()
    names = []
    for step in steps:
        name = "Compose" if isinstance(step, Steps) else type(step).__name__
        names.append((name, counts[name]))
        counts[name] += step.draws
    return names


def steps_of(transforms: Any, whose: str) -> list[Transform]:
    """Transforms as a flat list, Composes opened.

    Raises:
        TypeError: something else is among them.
    """
    if not isinstance(transforms, (list, tuple)):
        raise TypeError(f"{whose} takes a list of transforms, got {type(transforms).__name__}: write {whose}([...])")
    found: list[Transform] = []
    for transform in transforms:
        check_transform(transform)
        if isinstance(transform, Compose):
            found += steps_of(transform.transforms, whose)
        elif isinstance(transform, (Filter, Convert, UniformTemporalSubsample)) or (
            isinstance(transform, Mover) and (transform.needs_boxes or transform.dims == 3)
        ):
            raise TypeError(f"{whose} takes transforms of images, and {transform!r} acts on more: put it outside")
        elif isinstance(transform, Transform):
            found.append(transform)
        else:
            raise TypeError(
                f"{whose} takes transforms of torchdali, got the function {getattr(transform, '__name__', transform)}: "
                "a function sees the whole batch, so let it choose samples itself, by rand.bernoulli or rand.choice"
            )
    return found


class Several(Mover):
    """Base of what holds transforms, all of pictures or all of sound."""

    @property
    def held(self) -> Sequence[Transform]:
        """The transforms."""
        raise NotImplementedError

    @property
    def of_sound(self) -> bool:
        """They act on sound, and leave pictures as they are."""
        return bool(self.held) and all(is_sound(step) for step in self.held)

    @property
    def acts_on(self) -> str:
        """The word of the kind that they need; "": pictures."""
        return "audio" if self.of_sound else ""

    @property
    def takes(self) -> Form | None:
        """Sound or spectrograms; None: both."""
        found: list[Form] = [step.takes for step in self.held if step.takes is not None]  # type: ignore[attr-defined]
        return found[0] if found else None

    gives = None
    fixes_length = False

    @property
    def varies_length(self) -> bool:
        """Sounds of one length may come out with different ones."""
        return any(step.varies_length or step.fixes_length for step in self.held)  # type: ignore[attr-defined]

    def check_sound(self, name: str) -> None:
        """Raise where transforms of sound are mixed with others, or some samples would become something else.

        Raises:
            ValueError: it says what to write instead.
        """
        odd = next((step for step in self.held if not is_sound(step)), None)
        if odd is not None and any(is_sound(step) for step in self.held):
            raise ValueError(f"{name} takes transforms of sound or of pictures: put {odd!r} into one of its own")
        if odd is not None:
            return
        for step in self.held:
            takes, gives = step.takes, step.gives  # type: ignore[attr-defined]
            if gives is not None:
                raise ValueError(f"{name} can't make a {gives} of some samples: put {step!r} after it")
            if takes not in (None, self.takes):
                raise ValueError(f"{name} takes transforms of one form, got {step!r} for a {takes}: write two")


class Steps(Several):
    """Steps as one branch."""

    def __init__(self, steps: Sequence[Transform]) -> None:
        self.steps, self._names = list(steps), names_of(steps)
        self.check_sound("a Compose in it")

    @property
    def held(self) -> Sequence[Transform]:
        return self.steps

    def transform_sound(self, sound: torch.Tensor, **params: Any) -> torch.Tensor:
        """Transform one sound, as `SoundStep.transform_sound`."""
        for k, step in enumerate(self.steps):
            sound = step.transform_sound(sound, **part_of(params, f"{k}:"))  # type: ignore[attr-defined]
        return sound

    @property
    def on_host(self) -> bool:
        return all(step.on_host for step in self.steps)

    @property
    def on_dali(self) -> bool:
        return all(step.on_dali for step in self.steps)

    @property
    def truer_in_torch(self) -> bool:
        return any(step.truer_in_torch for step in self.steps)

    @property
    def needs_sizes(self) -> bool:
        return any(step.needs_sizes for step in self.steps)

    @property
    def draws(self) -> bool:
        return any(step.draws for step in self.steps)

    @property
    def fixes_size(self) -> bool:
        last = [step for step in self.steps if step.fixes_size or step.changes_size][-1:]
        return any(step.fixes_size for step in last)

    @property
    def varies_size(self) -> bool:
        return not self.fixes_size and any(step.varies_size for step in self.steps)

    @property
    def changes_size(self) -> bool:
        return any(step.changes_size for step in self.steps)

    def out_dtype(self, dtype: torch.dtype) -> torch.dtype:
        for step in self.steps:
            dtype = step.out_dtype(dtype)
        return dtype

    def out_channels(self, channels: int) -> int:
        for step in self.steps:
            channels = step.out_channels(channels)
        return channels

    @property
    def moving(self) -> bool:
        return any(step.moving for step in self.steps)

    def drawn_moves(self, params: Params, sizes: Sizes) -> list[Move]:
        moves: list[Move] = []
        for k, step in enumerate(self.steps):
            for move in step.drawn_moves(part_of(params, f"{k}:"), sizes):
                moves.append(move)
                sizes = move.sizes(sizes)
        return moves

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        params: Params = {}
        for k, (step, name) in enumerate(zip(self.steps, self._names, strict=True)):
            drawn, sizes = step.make_params(rand.within().named(Key.STEP, *name), sizes)
            params |= {f"{k}:{key}": values for key, values in drawn.items()}
        return params, sizes

    def dali_params(self, params: Params) -> Params:
        found: Params = {}
        for k, step in enumerate(self.steps):
            found |= {f"{k}:{key}": values for key, values in step.dali_params(part_of(params, f"{k}:")).items()}
        return found

    def transform(self, ops: Ops, image: Any, **params: Any) -> Any:
        dtype, channels = ops.dtype_of(image), ops.channels_of(image)
        for k, step in enumerate(self.steps):
            image = step.transform(inside(ops, dtype, channels), image, **part_of(params, f"{k}:"))
            dtype, channels = step.out_dtype(dtype), step.out_channels(channels)
        return image

    def transform_host(self, image: torch.Tensor, out: torch.Tensor | None = None, **params: Any) -> torch.Tensor:
        for k, step in enumerate(self.steps):
            image = step.transform_host(image, **part_of(params, f"{k}:"))
        return image

    def transform_batch(self, images: torch.Tensor, params: Params) -> Images:
        made: Images = images
        for k, step in enumerate(self.steps):
            made = in_batches(step, made, part_of(params, f"{k}:"))
        return made
