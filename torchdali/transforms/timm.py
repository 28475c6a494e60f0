"""RandAugment, AutoAugment and AugMix as timm has them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from ..forms.image import Images
from ..moves import Sizes
from ..rand import Rand
from .arguments import is_integer, is_number, mode_name, probability
from .aug_mix import MOVES_ALONE
from .auto_augment import Chosen, Operations
from .base import Params
from .operations import Operation
from .timm_operations import LEVELS, RANDOM, Levels, PillowGeometric, families, strengths_of
from .timm_policies import AUG_MIX_NAMES, RAND_SETS, TIMM_POLICIES, Row

if TYPE_CHECKING:
    from .._dali import Ops


class TimmOperations(Operations):
    """Base: timm's operations, whose form on the CPU is Pillow's, bit for bit as timm's."""

    magnitude_std: float
    magnitude_max: float
    translate_pct: float
    translate_const: float

    modes: ClassVar[Sequence[str]] = ("nearest", *RANDOM, "random")

    def mode(self) -> str:
        return "random" if self.interpolation == "random" else mode_name(self.interpolation)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("magnitude_std", "magnitude_max", "translate_pct", "translate_const"):
            if not is_number(value := getattr(self, name)) or not value >= 0:
                raise ValueError(f"{name} must not be negative, got {value!r}")

    def families(self) -> list[Operation]:
        return families(self.mode(), self.fill)

    def chosen(self, names: NDArray[Any], magnitude: Any, rand: Rand, sizes: Sizes) -> Chosen:
        """Draw strengths of a magnitude, and the interpolations.

        Args:
            names: timm's, [N, rounds].
            magnitude: a number, or [N, rounds].
            rand: draws them.
            sizes: of the images.
        """
        shape = names.shape[1]
        if np.isinf(self.magnitude_std):
            level = rand.uniform(0, magnitude, shape).astype(np.float64)
        else:
            level = rand.normal(magnitude, self.magnitude_std, shape).astype(np.float64)
        part = np.clip(level, 0, self.magnitude_max) / 10
        sign = (1 - 2 * rand.bernoulli(0.5, shape)).astype(np.float64)
        mode, unit = self.mode(), rand.uniform(shape=shape).astype(np.float64)
        drawn = rand.integers(len(RANDOM), shape=shape)
        modes = drawn if mode == "random" else np.full(names.shape, (*RANDOM, "nearest").index(mode))
        at = Levels(part, sign, unit, sizes, float(self.translate_pct), float(self.translate_const))
        return Chosen(*strengths_of(names, at), modes.astype(np.int32))

    def draw(
        self, k: int, turn: int, rand: Rand, sizes: Sizes | None, rows: NDArray[np.int64], chosen: Any
    ) -> tuple[Params, Sizes | None]:
        params, sizes = super().draw(k, turn, rand, sizes, rows, chosen)
        if isinstance(self.branches[k], PillowGeometric):
            params["mode"] = chosen.modes[rows, turn]
        return params, sizes


def _check_names(names: Any, what: str) -> None:
    unknown = [name for name in names if name not in LEVELS]
    if unknown or not names:
        raise ValueError(f"{what} must hold timm's operations, which are {', '.join(LEVELS)}, got {unknown or names!r}")


def _magnitude(value: Any) -> None:
    if not is_number(value) or not value >= 0:
        raise ValueError(f"magnitude must not be negative, got {value!r}")


@dataclass(frozen=True)
class TimmRandAugment(TimmOperations):
    """Operations of a random strength, each done with a probability, as timm's `rand_augment_transform` makes them.

    Cubuk et al., "RandAugment", 2020, with the operations and strengths of timm's `auto_augment.py`.

    Args:
        magnitude: the strength, from 0 to 10.
        num_layers: operations drawn for each sample.
        prob: of each of them to be done.
        magnitude_std: the strength is drawn from a normal distribution of this deviation; infinity: uniformly from 0 to
            the strength.
        magnitude_max: the largest strength that is drawn.
        increasing: all operations grow stronger with the strength ("inc1").
        translate_pct: translations at strength 10, as a part of the image's size.
        interpolation: of shears, translations and rotations, "nearest", "bilinear", "bicubic", or timm's default
            "random", which draws bilinear or bicubic for each.
        fill: of what they move in: a number, one for each channel, or None for zeros.
        transforms: the operations to draw from, by timm's names: a list, a dict of weights (then no sample draws one
            twice), or timm's sets "3a", "3aw" and "weights"; None: all of them, as `increasing` says.
        translate_const: translations by "TranslateX" and "TranslateY" at strength 10, in pixels.

    Images are uint8, of 1 or 3 channels.  The form on the CPU is Pillow's, as timm's, bit for bit.  On a GPU it is
    torchvision's and in DALI DALI's, as in RandAugment, with bilinear instead of bicubic.

    Raises:
        ValueError: an invalid argument.
    """

    magnitude: float = 10
    num_layers: int = 2
    prob: float = 0.5
    magnitude_std: float = 0.0
    magnitude_max: float = 10
    increasing: bool = False
    translate_pct: float = 0.45
    interpolation: Any = "random"
    fill: Any = (128, 128, 128)
    transforms: str | Sequence[str] | Mapping[str, float] | None = None
    translate_const: float = 250

    def __post_init__(self) -> None:
        super().__post_init__()
        probability(self.prob)
        _magnitude(self.magnitude)
        if not is_integer(self.num_layers, 0):
            raise ValueError(f"num_layers must be an integer, not negative, got {self.num_layers!r}")
        if isinstance(self.transforms, str) and self.transforms not in RAND_SETS:
            raise ValueError(f'transforms must be "3a", "3aw", "weights" or operations, got {self.transforms!r}')
        _check_names(list(self._set), "transforms")
        if isinstance(self._set, Mapping):
            weights = list(self._set.values())
            if not all(is_number(weight) and weight >= 0 for weight in weights):
                raise ValueError(f"transforms must have weights that are not negative, got {self.transforms!r}")
            if sum(weight > 0 for weight in weights) < self.num_layers:
                raise ValueError(
                    f"transforms must have num_layers={self.num_layers} weights above 0, since none is drawn twice, "
                    f"got {self.transforms!r}"
                )

    @property
    def _set(self) -> Sequence[str] | Mapping[str, float]:
        if self.transforms is None:
            return RAND_SETS["increasing" if self.increasing else "plain"]
        return RAND_SETS[self.transforms] if isinstance(self.transforms, str) else self.transforms

    @property
    def rounds(self) -> int:
        return int(self.num_layers)

    def operations(self, rand: Rand, sizes: Sizes) -> Chosen:
        options, shape = list(self._set), self.rounds
        if isinstance(self._set, Mapping):
            names = np.array(options)[_unlike(rand, np.array(list(self._set.values())), shape)]
        else:
            names = rand.choice(options, shape=shape)
        names = np.where(rand.bernoulli(self.prob, shape) == 1, names, "Identity")
        return self.chosen(names, float(self.magnitude), rand, sizes)


def _unlike(rand: Rand, weights: NDArray[np.float64], n: int) -> NDArray[np.int64]:
    """[N, n] numbers by their weights, none twice: the largest of Gumbel's variates, as one after the other."""
    unit = rand.uniform(shape=len(weights)).astype(np.float64)
    with np.errstate(divide="ignore"):
        keys = np.log(weights) - np.log(-np.log(unit))
    order: NDArray[np.int64] = np.argsort(-keys, axis=1, kind="stable")[:, :n]
    return order


@dataclass(frozen=True)
class TimmAutoAugment(TimmOperations):
    """The operations of one row of a policy, as timm's `auto_augment_transform` makes them.

    Cubuk et al., "AutoAugment: Learning Augmentation Strategies from Data", 2019; "3a" is of Touvron et al., "DeiT III:
    Revenge of the ViT", 2022.

    Args:
        policy: "original", "originalr", "v0", "v0r" or "3a"; or rows of operations (timm's name, probability,
            magnitude); each sample takes all of one row.
        magnitude_std, magnitude_max, translate_pct, interpolation, fill, translate_const: as in TimmRandAugment.

    Images and forms are as in TimmRandAugment.

    Raises:
        ValueError: an invalid argument.
    """

    policy: str | Sequence[Row] = "original"
    magnitude_std: float = 0.0
    magnitude_max: float = 10
    translate_pct: float = 0.45
    interpolation: Any = "random"
    fill: Any = (128, 128, 128)
    translate_const: float = 250

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.policy, str) and self.policy not in TIMM_POLICIES:
            raise ValueError(f"policy must be one of {', '.join(TIMM_POLICIES)}, or rows, got {self.policy!r}")
        if not self._rows or not all(self._rows):
            raise ValueError(f"policy must hold rows of operations, got {self.policy!r}")
        for name, p, magnitude in (operation for row in self._rows for operation in row):
            _check_names([name], "policy")
            probability(p)
            _magnitude(magnitude)

    @property
    def _rows(self) -> Sequence[Row]:
        return TIMM_POLICIES[self.policy] if isinstance(self.policy, str) else self.policy

    @property
    def rounds(self) -> int:
        return max(map(len, self._rows))

    def operations(self, rand: Rand, sizes: Sizes) -> Chosen:
        nothing = ("Identity", 0.0, 0.0)
        rows = [[*row, *[nothing] * (self.rounds - len(row))] for row in self._rows]
        names, p, magnitude = (np.array([[operation[k] for operation in row] for row in rows]) for k in range(3))
        taken = rand.integers(len(rows))
        done = rand.bernoulli(p.astype(np.float64)[taken], self.rounds) == 1
        return self.chosen(np.where(done, names[taken], "Identity"), magnitude.astype(np.float64)[taken], rand, sizes)


@dataclass(frozen=True)
class TimmAugMix(TimmOperations):
    """Chains of operations, mixed with the image, as timm's `augment_and_mix_transform` makes them.

    Hendrycks et al., "AugMix: A Simple Data Processing Method to Improve Robustness and Uncertainty", 2020.

    Args:
        magnitude: the strength, from 0 to 10.
        alpha: of the Dirichlet distribution of the chains' weights, and of the Beta distribution of their sum.
        width: the number of chains.
        depth: operations in each; -1: 1 to 3, drawn for each chain.
        blended: timm's faster mixing, one chain after the other.
        magnitude_std: infinity, as in timm, draws the strength uniformly from 0 to `magnitude`.
        transforms: the operations, by timm's names; None: timm's.
        magnitude_max, translate_pct, interpolation, fill, translate_const: as in TimmRandAugment.

    Images and forms are as in TimmRandAugment.

    Raises:
        ValueError: an invalid argument.
    """

    magnitude: float = 3
    alpha: float = 1.0
    width: int = 3
    depth: int = -1
    blended: bool = False
    magnitude_std: float = math.inf
    magnitude_max: float = 10
    translate_pct: float = 0.45
    interpolation: Any = "random"
    fill: Any = (128, 128, 128)
    transforms: Sequence[str] | None = None
    translate_const: float = 250

    moves_alone = MOVES_ALONE

    def __post_init__(self) -> None:
        super().__post_init__()
        _magnitude(self.magnitude)
        if not is_number(self.alpha) or not self.alpha > 0:
            raise ValueError(f"alpha must be positive, got {self.alpha!r}")
        if not is_integer(self.width, 1):
            raise ValueError(f"width must be a positive integer, got {self.width!r}")
        if not is_integer(self.depth, -1):
            raise ValueError(f"depth must be a positive integer, or -1 for 1 to 3, got {self.depth!r}")
        if self.transforms is not None:
            _check_names(list(self.transforms), "transforms")

    @property
    def _depth(self) -> int:
        return int(self.depth) if self.depth > 0 else 3

    @property
    def rounds(self) -> int:
        return int(self.width) * self._depth

    def operations(self, rand: Rand, sizes: Sizes) -> Chosen:
        names = rand.choice(list(self.transforms or AUG_MIX_NAMES), shape=self.rounds)
        if self.depth <= 0:
            depth = rand.integers(1, 4, shape=int(self.width))
            turn = np.arange(self.rounds)
            names = np.where(turn % self._depth < depth[:, turn // self._depth], names, "Identity")
        return self.chosen(names, float(self.magnitude), rand, sizes)

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        params, sizes = super().make_params(rand, sizes)
        weights = rand.child(1)
        chains = weights.dirichlet(float(self.alpha), int(self.width))
        mixed = weights.beta(float(self.alpha), float(self.alpha))
        if self.blended:
            chains = _one_by_one(chains * mixed[:, None])
        return {**params, "mixed": mixed, **{f"weight{i}": chains[:, i].copy() for i in range(len(chains.T))}}, sizes

    def dali_params(self, params: Params) -> Params:
        weights = [*([] if self.blended else ["mixed"]), *(f"weight{i}" for i in range(int(self.width)))]
        return {**{name: params[name] for name in weights}, **super().dali_params(params)}

    def _turns(self, chain: int) -> range:
        return range(chain * self._depth, (chain + 1) * self._depth)

    def transform(self, ops: Ops, image: Any, **params: Any) -> Any:
        self.check_bytes(ops.dtype_of(image))
        chains = (self.turns(ops, image, params, self._turns(i)) for i in range(int(self.width)))
        weights = [ops.beside(params[f"weight{i}"]) for i in range(int(self.width))]
        if self.blended:
            made = image * 1.0
            for weight, chain in zip(weights, chains, strict=True):
                made = ops.math.floor(made + (chain - made) * weight)
        else:
            mixed = image * 0.0
            for weight, chain in zip(weights, chains, strict=True):
                mixed = mixed + chain * weight
            made = ops.math.floor(image + (ops.math.floor(mixed) - image) * ops.beside(params["mixed"]))
        return ops.cast(made, dtype=ops.as_dtype(torch.uint8))

    def transform_host(self, image: torch.Tensor, out: torch.Tensor | None = None, **params: Any) -> torch.Tensor:
        self.check_bytes(image.dtype)
        chains = [self.turns_host(image, params, self._turns(i)) for i in range(int(self.width))]
        return self._mixed(image, chains, [params[f"weight{i}"] for i in range(len(chains))], params["mixed"])

    def transform_batch(self, images: torch.Tensor, params: Params) -> Images:
        self.check_bytes(images.dtype)

        def rows(name: str) -> torch.Tensor:
            return torch.from_numpy(params[name]).to(images.device, non_blocking=True)[:, None, None, None]

        chains = [self.turns_batch(images, params, self._turns(i)) for i in range(int(self.width))]
        made = [torch.stack(chain) if isinstance(chain, list) else chain for chain in chains]
        return self._mixed(images, made, [rows(f"weight{i}") for i in range(len(chains))], rows("mixed"))

    def _mixed(self, image: torch.Tensor, chains: list[torch.Tensor], weights: list[Any], part: Any) -> torch.Tensor:
        """As timm: Pillow's blends cut off."""
        if self.blended:
            made = image
            for weight, chain in zip(weights, chains, strict=True):
                made = _blend(made, chain, weight)
            return made
        mixed = torch.zeros(image.shape, dtype=torch.float32, device=image.device)
        for weight, chain in zip(weights, chains, strict=True):
            mixed += weight * chain.to(torch.float32)
        return _blend(image, mixed.clamp_(0, 255).to(torch.uint8), part)


def _blend(one: torch.Tensor, other: torch.Tensor, part: Any) -> torch.Tensor:
    """Pillow's `Image.blend`, for parts from 0 to 1."""
    start = one.to(torch.float32)
    made: torch.Tensor = start + part * (other.to(torch.float32) - start)
    return made.to(torch.uint8)


def _one_by_one(weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """The weights [N, width] of blends one after the other, of those of a sum."""
    left, found = np.ones(len(weights)), np.empty(weights.shape)
    for i in reversed(range(weights.shape[1])):
        found[:, i] = weights[:, i] / left
        left *= 1 - found[:, i]
    return found.astype(np.float32)
