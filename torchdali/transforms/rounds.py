"""Rounds of a switch per sample: what RandomApply, RandomChoice, RandomOrder and the AutoAugment family are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..forms.image import Images, together
from ..moves import Move, Sizes, spread
from ..rand import Key, Rand
from .base import Params, Transform, in_batches
from .steps import Several, names_of, part_of
from .switch import Branch, switch

if TYPE_CHECKING:
    from .._dali import Ops

_LARGE = 1 << 14  # the edge of a picture in which everything fits


class Rounds(Several):
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
        """Whether every sample takes one branch, and the branches give images of one size, all the same."""
        if self.rounds != 1 or not self._all_take_one or not all(branch.fixes_size for branch in self.branches):
            return False
        rand, size = Rand(0, 0, np.zeros(1, np.uint64)), np.full((1, 2), _LARGE)
        ends = [branch.make_params(rand, size)[1] for branch in self.branches]
        return len({tuple(np.asarray(end)[0].tolist()) for end in ends}) == 1

    @property
    def varies_size(self) -> bool:
        return not self.fixes_size and self.changes_size

    @property
    def changes_size(self) -> bool:
        return any(branch.changes_size for branch in self.branches)

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

    def dali_params(self, params: Params) -> Params:
        found: Params = {}
        for turn in range(self.rounds):
            found[f"{turn}"] = params[f"{turn}"]
            for k, branch in enumerate(self.branches):
                head = f"{turn}/{k}/"
                found |= {head + key: values for key, values in branch.dali_params(part_of(params, head)).items()}
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
