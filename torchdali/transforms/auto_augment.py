"""AutoAugment and its kin: operations drawn for each sample, in rounds."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ..forms.image import Images
from ..moves import Sizes
from ..rand import Rand
from .arguments import is_integer, mode_name
from .base import Params, Transform
from .operations import AutoContrast, Bits, Equalize, Geometric, Operation, Sharpness, Tone
from .policies import POLICIES
from .rounds import Rounds

SIGNED = frozenset({*Geometric.names, *Tone.names, *Sharpness.names})
"""Operations that go either way."""
NAMES = (
    "Identity",
    *Geometric.names,
    "Brightness",
    "Color",
    "Contrast",
    "Sharpness",
    "Posterize",
    "Solarize",
    "AutoContrast",
    "Equalize",
)


class Chosen(NamedTuple):
    """The operations of a batch.

    Attributes:
        names: [N, rounds].
        strengths: [N, rounds] float64.
        modes: [N, rounds], of timm's, their interpolations.
    """

    names: NDArray[Any]
    strengths: NDArray[np.float64]
    modes: NDArray[np.int32] | None = None


class Operations(Rounds):
    """Base: subclasses say by `operations` which are done to each sample, and how strongly."""

    interpolation: Any
    fill: Any

    needs_sizes = True
    modes: ClassVar[Sequence[str]] = ("nearest", "bilinear")

    def mode(self) -> str:
        """The name of the interpolation."""
        return mode_name(self.interpolation)

    def __post_init__(self) -> None:
        if self.mode() not in self.modes:
            allowed = " or ".join(f'"{mode}"' for mode in self.modes)
            raise ValueError(f"interpolation must be {allowed}, got {self.interpolation!r}")
        warp = self.branches[0]
        assert isinstance(warp, Geometric)
        try:
            warp.fill_values()
        except (TypeError, ValueError) as error:
            raise ValueError(f"fill must be a number or one for each channel, got {self.fill!r}") from error

    @cached_property
    def branches(self) -> Sequence[Transform]:
        return self.families()

    def families(self) -> list[Operation]:
        """The operations, by family."""
        warp = Geometric(self.mode(), self.fill)
        return [warp, Tone(), Sharpness(), Bits(), AutoContrast(), Equalize()]

    @cached_property
    def _places(self) -> dict[str, tuple[int, int]]:
        """By name: the branch, counted from 1, and the operation's number in it."""
        places = {"Identity": (0, 0)}
        for k, family in enumerate(self.families(), start=1):
            places |= {name: (k, number) for number, name in enumerate(family.names)}
        return places

    def operations(self, rand: Rand, sizes: Sizes) -> Chosen:
        """Draw the operations, "Identity" for none."""
        raise NotImplementedError

    def choose(self, rand: Rand, sizes: Sizes | None) -> tuple[NDArray[Any], Any]:
        assert sizes is not None
        chosen = self.operations(rand, sizes)
        names, places = np.unique(chosen.names, return_inverse=True)
        which = np.array([self._places[name][0] for name in names.tolist()], np.int64)
        return which[places.reshape(chosen.names.shape)], chosen

    def draw(
        self, k: int, turn: int, rand: Rand, sizes: Sizes | None, rows: NDArray[np.int64], chosen: Any
    ) -> tuple[Params, Sizes | None]:
        assert sizes is not None
        family = self.branches[k]
        assert isinstance(family, Operation)
        numbers = [family.names.index(name) if name in family.names else 0 for name in chosen.names[rows, turn]]
        return family.params(np.array(numbers, np.int32), chosen.strengths[rows, turn], sizes), sizes

    def check_bytes(self, dtype: torch.dtype) -> None:
        """Raise unless images are uint8.

        Raises:
            ValueError: they are something else.
        """
        if dtype != torch.uint8:
            name = type(self).__name__
            raise ValueError(f"{name} changes uint8 images, got {dtype}: put it before ToDtype and Normalize")

    def transform_host(self, image: torch.Tensor, out: torch.Tensor | None = None, **params: Any) -> torch.Tensor:
        self.check_bytes(image.dtype)
        return super().transform_host(image, **params)

    def transform_batch(self, images: torch.Tensor, params: Params) -> Images:
        self.check_bytes(images.dtype)
        return super().transform_batch(images, params)

    def transform(self, ops: Any, image: Any, **params: Any) -> Any:
        self.check_bytes(ops.dtype_of(image))
        return super().transform(ops, image, **params)


@functools.cache
def _line(low: float, high: float, bins: int) -> tuple[float, ...]:
    """torch's own: a translation's pixels show the last bit."""
    return tuple(torch.linspace(low, high, bins, dtype=torch.float32).tolist())


def space(bins: int, level: NDArray[np.int64], ends: dict[str, Any]) -> dict[str, NDArray[np.float64]]:
    """Strengths by name of operation.

    Args:
        bins: the number of levels.
        level: [N, rounds], from 0.
        ends: by name: (first, last) strength, or the last one of each sample, [N]; for Posterize the fewest bits and
            the most.
    """
    found = {}
    for name, end in ends.items():
        if name == "Posterize":
            fewest, most = end
            steps = (most - torch.arange(bins, dtype=torch.float32) / ((bins - 1) / (most - fewest))).round()
            found[name] = steps.numpy().astype(np.float64)[level]
        elif isinstance(end, tuple):
            found[name] = np.array(_line(*end, bins))[level]
        else:
            unique, places = np.unique(end, return_inverse=True)
            tables = np.array([_line(0.0, float(last), bins) for last in unique.tolist()])
            found[name] = tables[places[:, None], level]
    return found


def strengths(names: NDArray[Any], sign: NDArray[Any], of: dict[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    """The strengths of the operations in `names`, with a sign where they go either way; 0 where they have none."""
    found = np.zeros(names.shape)
    for name, values in of.items():
        found = np.where(names == name, values * (sign if name in SIGNED else 1), found)
    return found


def _signs(rand: Rand, shape: int) -> NDArray[np.int64]:
    return 1 - 2 * rand.bernoulli(0.5, shape).astype(np.int64)


def narrow(sizes: Sizes) -> dict[str, Any]:
    """The ends of AutoAugment's and RandAugment's strengths."""
    return {
        "ShearX": (0.0, 0.3),
        "ShearY": (0.0, 0.3),
        "TranslateX": 150.0 / 331.0 * sizes[:, 1],
        "TranslateY": 150.0 / 331.0 * sizes[:, 0],
        "Rotate": (0.0, 30.0),
        **dict.fromkeys(("Brightness", "Color", "Contrast", "Sharpness"), (0.0, 0.9)),
        "Posterize": (4, 8),
        "Solarize": (1.0, 0.0),
    }


WIDE: dict[str, Any] = {
    **dict.fromkeys(("ShearX", "ShearY", "Brightness", "Color", "Contrast", "Sharpness"), (0.0, 0.99)),
    **dict.fromkeys(("TranslateX", "TranslateY"), (0.0, 32.0)),
    "Rotate": (0.0, 135.0),
    "Posterize": (2, 8),
    "Solarize": (1.0, 0.0),
}
"""The ends of TrivialAugmentWide's."""


@dataclass(frozen=True)
class AutoAugment(Operations):
    """Two operations of a learned policy.

    Cubuk et al., "AutoAugment: Learning Augmentation Strategies from Data", 2019, as torchvision has it.

    Args:
        policy: "imagenet", "cifar10" or "svhn", or torchvision's AutoAugmentPolicy.
        interpolation: of shears, translations and rotations, "nearest" or "bilinear".
        fill: of what they move in: a number, one for each channel, or None for zeros.

    Images are uint8, of 1 or 3 channels.  The CPU form is torchvision's.  The DALI form equalises by OpenCV's rule, and
    differs else by 1 at most, but for single pixels of nearest neighbours that lie between two.

    Raises:
        ValueError: an invalid argument.
    """

    policy: Any = "imagenet"
    interpolation: Any = "nearest"
    fill: Any = None

    rounds = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self._policy not in POLICIES:
            raise ValueError(f"policy must be one of {', '.join(POLICIES)}, got {self.policy!r}")

    @property
    def _policy(self) -> Any:
        return getattr(self.policy, "value", self.policy)

    def operations(self, rand: Rand, sizes: Sizes) -> Chosen:
        rows = POLICIES[self._policy]
        taken = rand.integers(len(rows))
        names = np.array([[rule.name for rule in row] for row in rows])[taken]
        p = np.array([[rule.p for rule in row] for row in rows])[taken]
        level = np.array([[rule.level for rule in row] for row in rows])[taken]
        names = np.where(rand.bernoulli(p, 2) == 1, names, "Identity")
        return Chosen(names, strengths(names, _signs(rand, 2), space(10, level, narrow(sizes))))


@dataclass(frozen=True)
class RandAugment(Operations):
    """Some operations of one strength.

    Cubuk et al., "RandAugment: Practical automated data augmentation with a reduced search space", 2020, as torchvision
    has it.

    Args:
        num_ops: operations done to each sample.
        magnitude: their strength, below `num_magnitude_bins`.
        num_magnitude_bins: the number of strengths.
        interpolation, fill: as in AutoAugment.

    Images and forms are as in AutoAugment.

    Raises:
        ValueError: an invalid argument.
    """

    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31
    interpolation: Any = "nearest"
    fill: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_integer(self.num_ops, 0):
            raise ValueError(f"num_ops must be an integer, not negative, got {self.num_ops!r}")
        _check_bins(self.num_magnitude_bins)
        if not is_integer(self.magnitude, 0) or self.magnitude >= self.num_magnitude_bins:
            raise ValueError(
                f"magnitude must be an integer from 0 to {self.num_magnitude_bins - 1}, got {self.magnitude!r}"
            )

    @property
    def rounds(self) -> int:
        return int(self.num_ops)

    def operations(self, rand: Rand, sizes: Sizes) -> Chosen:
        names = rand.choice(NAMES, shape=self.rounds)
        level = np.full(names.shape, self.magnitude)
        found = space(self.num_magnitude_bins, level, narrow(sizes))
        return Chosen(names, strengths(names, _signs(rand, self.rounds), found))


@dataclass(frozen=True)
class TrivialAugmentWide(Operations):
    """One operation of a random strength.

    Müller and Hutter, "TrivialAugment: Tuning-free Yet State-of-the-Art Data Augmentation", 2021, as torchvision has
    it.

    Args:
        num_magnitude_bins: the number of strengths.
        interpolation, fill: as in AutoAugment.

    Images and forms are as in AutoAugment.

    Raises:
        ValueError: an invalid argument.
    """

    num_magnitude_bins: int = 31
    interpolation: Any = "nearest"
    fill: Any = None

    rounds = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_bins(self.num_magnitude_bins)

    def operations(self, rand: Rand, sizes: Sizes) -> Chosen:
        names = rand.choice(NAMES, shape=1)
        level = rand.integers(self.num_magnitude_bins, shape=1)
        return Chosen(names, strengths(names, _signs(rand, 1), space(self.num_magnitude_bins, level, WIDE)))


def _check_bins(bins: Any) -> None:
    if not is_integer(bins, 2):
        raise ValueError(f"num_magnitude_bins must be an integer of at least 2, got {bins!r}")
