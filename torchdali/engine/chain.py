"""A chain: the steps of a transform in a row, and where they run.

The steps are cut in two.  The first part runs in DALI, the second in torch.  On the CPU that is everything after the
last step that has no torch form, sample by sample; on a GPU it begins at the first step that DALI has not, or has by
another rule, and makes whole batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from ..rand import Key, Rand, derive, name_key
from ..transforms.base import Transform
from ..transforms.compose import Compose, check_transform
from ..transforms.function import Function
from ..transforms.sound import is_sound
from ..transforms.views import Views


class Chain:
    """Steps in a row.

    Args:
        steps: transforms and functions.
        device: "cpu" or "cuda".
        whole: all steps run in DALI, since steps that run there follow.
        late: on a GPU, as much as can runs in torch, since a step before it does.
        key: the name of the view that the chain makes; "" for the steps that all views share.

    Attributes:
        names: each step's name and its occurrence: what its random numbers are keyed by, wherever it stands.
        functions: the numbers of the steps that are functions.
        sounds: the steps that act on sound, with their numbers.
        split: steps[:split] run in DALI, the rest in torch.
        moves: among the steps are movers.

    Raises:
        ValueError: a step has only a form in torch, and must run in DALI.
    """

    def __init__(
        self, steps: Sequence[Transform | Function], device: str, whole: bool = False, late: bool = False, key: str = ""
    ) -> None:
        self.steps, self.key = list(steps), key
        self.names = _names(self.steps)
        self.functions = [k for k, step in enumerate(self.steps) if isinstance(step, Function)]
        self.moves = any(isinstance(step, Transform) and step.moving for step in self.steps)
        self.split = len(self.steps)
        self.sounds: list[tuple[int, Any]] = [(k, step) for k, step in enumerate(self.steps) if is_sound(step)]
        if not whole:
            while self.split and _in_torch(self.steps[self.split - 1]):
                self.split -= 1
            if device != "cpu" and not late:
                self.split += _first_for_torch(self.steps[self.split :])
        for k, step in enumerate(self.steps[: self.split]):
            if isinstance(step, Transform) and not step.on_dali:
                after = next((one for one in self.steps[k + 1 :] if not _in_torch(one)), None)
                if after is None or isinstance(after, Function):
                    raise ValueError(f"{step!r} has only a CPU form and can't run before a function")
                raise ValueError(f"{step!r} has only a form in torch, and can't run before {after!r}, which has none")

    def __len__(self) -> int:
        return len(self.steps)

    def transform(self, k: int) -> Transform:
        """Step k; a function counts as one without parameters."""
        step = self.steps[k]
        return step if isinstance(step, Transform) else _NOTHING

    def rand(self, k: int, rand: Rand) -> Rand:
        """The random numbers of step k, from those of a batch's samples in this chain."""
        return rand.named(Key.STEP, *self.names[k])

    def of_view(self, rand: Rand) -> Rand:
        """The random numbers of this chain, from those of a batch's samples."""
        return rand.branch(Key.VIEW, self.key) if self.key else rand

    def seed(self, k: int, seed: int) -> int:
        """A seed for step k, from one for a batch."""
        name, occurrence = self.names[k]
        if self.key:
            seed = derive(seed, Key.VIEW, name_key(self.key))
        return derive(seed, name_key(name), occurrence)

    @property
    def unchanging(self) -> bool:
        """Whether the device part does the same in every pass; a function, say, may look at something that changes."""
        return all(_frozen(step) for step in self.steps[: self.split])

    def runs(self) -> list[tuple[int, int]]:
        """The device part as runs of transforms, (first, end); a function follows each, except perhaps the last."""
        ends = [k for k in self.functions if k < self.split]
        return list(zip([0, *(k + 1 for k in ends)], [*ends, self.split], strict=True))


def _in_torch(step: Transform | Function) -> bool:
    """Whether a step can run in torch, after everything that runs in DALI."""
    return isinstance(step, Transform) and step.on_host


def needs_torch(step: Transform | Function) -> bool:
    """Whether a step runs in torch on a GPU too, if it can."""
    return isinstance(step, Transform) and (not step.on_dali or step.truer_in_torch)


def _first_for_torch(steps: Sequence[Transform | Function]) -> int:
    """The number of steps, which could all run in torch, that run in DALI on a GPU; sound leaves pictures alone."""
    count = len(steps)
    while count and is_sound(steps[count - 1]):
        count -= 1
    return next((k for k, step in enumerate(steps[:count]) if needs_torch(step)), count)


def _frozen(value: Any) -> bool:
    """Whether a step is a frozen dataclass, with the steps that it holds."""
    if isinstance(value, (list, tuple)):
        return all(map(_frozen, value))
    if isinstance(value, Transform):
        own = vars(type(value)).get("__dataclass_params__")  # a subclass may hold more
        return own is not None and own.frozen and all(_frozen(getattr(value, field.name)) for field in fields(value))  # type: ignore[arg-type]
    return not callable(value)


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


def flatten(transform: Any) -> tuple[list[Transform | Function], Views | None]:
    """Give the steps of a transform, and the views that follow them.

    Raises:
        ValueError: something follows the views.
    """
    steps = _steps(transform)
    for step in steps[:-1]:
        if isinstance(step, Views):
            raise ValueError(f"Views must be the last transform, and {steps[-1]!r} follows: write it inside each view")
    if steps and isinstance(steps[-1], Views):
        return steps[:-1], steps[-1]
    return steps, None


def _steps(transform: Any) -> list[Any]:
    if transform is None:
        return []
    if isinstance(transform, Compose):
        return [step for inner in transform.transforms for step in _steps(inner)]
    if isinstance(transform, (Transform, Views, Function)):
        return [transform]
    check_transform(transform)
    return [Function(transform)]
