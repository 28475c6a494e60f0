"""Rounds of a switch per sample: what RandomApply, RandomChoice, RandomOrder and the AutoAugment family are made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..forms.image import Images, together
from ..moves import Crop, Move, Resize, Sizes, spread
from ..rand import Key, Rand
from .base import ANY, Compose, Convert, Filter, Mover, Params, Transform, check_transform, in_batches
from .frames import UniformTemporalSubsample
from .sound import Form, is_sound
from .switch import Branch, inside, switch

if TYPE_CHECKING:
    from .._dali import Ops

_LARGE = 1 << 14  # the edge of a picture in which everything fits


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
        raise TypeError(f"{whose} takes a list of transforms, got {type(transforms).__name__}")
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


class _Several(Mover):
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


class Steps(_Several):
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
        last = [step for step in self.steps if step.fixes_size or changes_size(step)][-1:]
        return any(step.fixes_size for step in last)

    @property
    def varies_size(self) -> bool:
        return not self.fixes_size and any(step.varies_size for step in self.steps)

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

    def dali_params(self, params: Params) -> list[str]:
        return [f"{k}:{key}" for k, step in enumerate(self.steps) for key in step.dali_params(part_of(params, f"{k}:"))]

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


def changes_size(step: Transform) -> bool:
    """Whether images may come out of a step with another size."""
    if isinstance(step, Steps):
        return any(changes_size(inner) for inner in step.steps)
    if isinstance(step, Rounds):
        return any(changes_size(branch) for branch in step.branches)
    if not isinstance(step, Mover):
        return step.fixes_size or step.varies_size
    return step.varies_size or any(isinstance(move, (Crop, Resize)) for move in step.moves(ANY))


class Rounds(_Several):
    """In each round, a sample goes through one of some branches, or through none.

    Numbers are drawn for just the samples that take a branch, keyed by the branch's name and the round: a crop that
    fits nowhere is no error of samples that do not take it, and a sample's numbers do not depend on the others'.

    Images go through the switch.  What lies in them makes the moves of all branches, and stays where it is in those
    that its sample does not take.

    A subclass is a frozen dataclass that gives `branches`, `rounds` and `choose`.
    """

    @property
    def branches(self) -> Sequence[Transform]:
        """The transforms to choose from."""
        raise NotImplementedError

    @property
    def held(self) -> Sequence[Transform]:
        return self.branches

    @property
    def rounds(self) -> int:
        """The number of choices."""
        raise NotImplementedError

    def transform_sound(self, sound: torch.Tensor, **params: Any) -> torch.Tensor:
        """Transform one sound, as `SoundStep.transform_sound`."""
        for turn in range(self.rounds):
            if k := int(params[f"{turn}"]):
                part = part_of(params, f"{turn}/{k - 1}/")
                sound = self.branches[k - 1].transform_sound(sound, **part)  # type: ignore[attr-defined]
        return sound

    def choose(self, rand: Rand, sizes: Sizes | None) -> tuple[NDArray[Any], Any]:
        """Choose the branches.

        Returns:
            [N, rounds] 0 for none, k for branches[k - 1]; and whatever `draw` wants to know.
        """
        raise NotImplementedError

    def draw(
        self, k: int, turn: int, rand: Rand, sizes: Sizes | None, rows: NDArray[np.int64], chosen: Any
    ) -> tuple[Params, Sizes | None]:
        """Draw the params of branches[k] for some rows, whose random numbers and sizes are given."""
        return self.branches[k].make_params(rand, sizes)

    def check_branches(self) -> None:
        """Raise unless all branches give images of one type, whichever a sample takes.

        Raises:
            ValueError: they don't.
        """
        name = type(self).__name__
        self.check_sound(name)
        for branch in self.branches:
            for dtype in (torch.uint8, torch.float32):
                if branch.out_dtype(dtype) != dtype:
                    raise ValueError(f"{name} can't change the element type of some samples: put {branch!r} after it")
            if branch.out_channels(3) != 3:
                raise ValueError(f"{name} can't change the channels of some samples: put {branch!r} after it")

    @property
    def on_host(self) -> bool:
        return all(branch.on_host for branch in self.branches)

    @property
    def on_dali(self) -> bool:
        return all(branch.on_dali for branch in self.branches)

    @property
    def truer_in_torch(self) -> bool:
        return any(branch.truer_in_torch for branch in self.branches)

    @property
    def needs_sizes(self) -> bool:
        return any(branch.needs_sizes for branch in self.branches)

    @property
    def fixes_size(self) -> bool:
        """Of branches of which every sample takes one: they give images of one size, all the same."""
        if self.rounds != 1 or not self._all_take_one or not all(branch.fixes_size for branch in self.branches):
            return False
        rand, size = Rand(0, 0, np.zeros(1, np.uint64)), np.full((1, 2), _LARGE)
        ends = [branch.make_params(rand, size)[1] for branch in self.branches]
        return len({tuple(np.asarray(end)[0].tolist()) for end in ends}) == 1

    @property
    def varies_size(self) -> bool:
        return not self.fixes_size and any(changes_size(branch) for branch in self.branches)

    @property
    def _all_take_one(self) -> bool:
        """Each sample takes a branch in each round."""
        return False

    @property
    def moving(self) -> bool:
        return any(branch.moving for branch in self.branches)

    def drawn_moves(self, params: Params, sizes: Sizes) -> list[Move]:
        moves: list[Move] = []
        for turn in range(self.rounds):
            for k, branch in enumerate(self.branches):
                rows = np.flatnonzero(params[f"{turn}"] == k + 1)
                if not branch.moving or not len(rows):
                    continue
                own = {key: values[rows] for key, values in part_of(params, f"{turn}/{k}/").items()}
                for move in branch.drawn_moves(own, sizes[rows]):
                    moves.append(spread(move, rows, sizes))
                    sizes = moves[-1].sizes(sizes)
        return moves

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        which, chosen = self.choose(rand, sizes)
        n, names = len(rand), names_of(self.branches)
        params: Params = {} if sizes is None else {"size": sizes}
        for turn in range(self.rounds):
            # Copies: DALI takes no strided arrays.
            params[f"{turn}"] = which[:, turn].astype(np.int32)
            after = None if sizes is None else sizes.copy()
            for k, (name, occurrence) in enumerate(names):
                rows = np.flatnonzero(which[:, turn] == k + 1)
                own = rand.within().named(Key.STEP, name, occurrence).child(turn)
                # Where no sample takes the branch, one row still says what the params look like.
                some = rows if len(rows) else np.zeros(1, np.int64)
                at = None if sizes is None else sizes[some] if len(rows) else np.full((1, 2), _LARGE)
                drawn, ends = self.draw(k, turn, own.take(some), at, some, chosen)
                for key, values in drawn.items():
                    full = np.zeros((n, *np.shape(values)[1:]), np.asarray(values).dtype)
                    full[rows] = values if len(rows) else 0
                    params[f"{turn}/{k}/{key}"] = full
                if len(rows) and after is not None and ends is not None:
                    after[rows] = ends
                elif len(rows) and ends is None:
                    after = None
            sizes = after
        return params, sizes

    def dali_params(self, params: Params) -> list[str]:
        found = []
        for turn in range(self.rounds):
            found.append(f"{turn}")
            for k, branch in enumerate(self.branches):
                head = f"{turn}/{k}/"
                found += [head + key for key in branch.dali_params(part_of(params, head))]
        return found

    def transform(self, ops: Ops, image: Any, **params: Any) -> Any:
        return self.turns(ops, image, params, range(self.rounds))

    def turns(self, ops: Ops, image: Any, params: dict[str, Any], turns: range) -> Any:
        """Some rounds, in DALI's operators."""
        branches = [_form(branch) for branch in self.branches]
        for turn in turns:
            of = [part_of(params, f"{turn}/{k}/") for k in range(len(branches))]
            image = switch(ops, params[f"{turn}"], branches, image, of)
        return image

    def transform_host(self, image: torch.Tensor, out: torch.Tensor | None = None, **params: Any) -> torch.Tensor:
        return self.turns_host(image, params, range(self.rounds))

    def transform_batch(self, images: torch.Tensor, params: Params) -> Images:
        return self.turns_batch(images, params, range(self.rounds))

    def turns_batch(self, images: torch.Tensor, params: Params, turns: range) -> Images:
        """Some rounds of a batch, in torch: each branch makes a batch of the samples that take it."""
        made: list[torch.Tensor] = list(images)
        for turn in turns:
            for k, branch in enumerate(self.branches):
                rows = np.flatnonzero(params[f"{turn}"] == k + 1).tolist()
                if rows:
                    own = {key: values[rows] for key, values in part_of(params, f"{turn}/{k}/").items()}
                    some = in_batches(branch, together([made[row] for row in rows]), own)
                    for row, image in zip(rows, some, strict=True):
                        made[row] = image
        return together(made)

    def turns_host(self, image: torch.Tensor, params: dict[str, Any], turns: range) -> torch.Tensor:
        """Some rounds, in torch."""
        for turn in turns:
            if k := int(params[f"{turn}"]):
                image = self.branches[k - 1].transform_host(image, **part_of(params, f"{turn}/{k - 1}/"))
        return image


def _form(branch: Transform) -> Branch:
    def form(ops: Ops, image: Any, **params: Any) -> Any:
        return branch.transform(ops, image, **params)

    return form
