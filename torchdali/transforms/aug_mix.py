"""AugMix: several chains of operations, mixed with the image itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..forms.image import Images
from ..moves import Sizes
from ..rand import Rand
from .arguments import is_integer, is_number
from .auto_augment import Chosen, Operations, narrow, space, strengths
from .base import Params
from .operations import Geometric

if TYPE_CHECKING:
    from .._dali import Ops

_PARTIAL = (*Geometric.names, "Posterize", "Solarize", "AutoContrast", "Equalize")
_MORE = ("Brightness", "Color", "Contrast", "Sharpness")
_BINS = 10
MOVES_ALONE = (
    "AugMix mixes an image with moved ones, so what lies in it has no one place: write RandAugment or "
    "TrivialAugmentWide for samples with masks, boxes or points"
)


@dataclass(frozen=True)
class AugMix(Operations):
    """Chains of operations, mixed with each other and with the image.

    Hendrycks et al., "AugMix: A Simple Data Processing Method to Improve Robustness and Uncertainty", 2020, as
    torchvision has it.

    Args:
        severity: strengths are drawn from the first `severity` of ten.
        mixture_width: the number of chains.
        chain_depth: operations in each; -1: 1 to 3, drawn for each chain.
        alpha: of the Dirichlet distribution of the chains' weights, and of the Beta distribution of the image's own.
        all_ops: brightness, contrast, color and sharpness as well.
        interpolation, fill: as in AutoAugment.

    Images and forms are as in AutoAugment.

    Raises:
        ValueError: an invalid argument.
    """

    severity: int = 3
    mixture_width: int = 3
    chain_depth: int = -1
    alpha: float = 1.0
    all_ops: bool = True
    interpolation: Any = "bilinear"
    fill: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_integer(self.severity, 1) or self.severity > _BINS:
            raise ValueError(f"severity must be an integer from 1 to {_BINS}, got {self.severity!r}")
        if not is_integer(self.mixture_width, 1):
            raise ValueError(f"mixture_width must be a positive integer, got {self.mixture_width!r}")
        if not is_integer(self.chain_depth, -1):
            raise ValueError(f"chain_depth must be a positive integer, or -1 for 1 to 3, got {self.chain_depth!r}")
        if not is_number(self.alpha) or not self.alpha > 0:
            raise ValueError(f"alpha must be positive, got {self.alpha!r}")

    @property
    def _depth(self) -> int:
        """The most operations in a chain."""
        return int(self.chain_depth) if self.chain_depth > 0 else 3

    @property
    def rounds(self) -> int:
        return int(self.mixture_width) * self._depth

    def operations(self, rand: Rand, sizes: Sizes) -> Chosen:
        names = rand.choice((*_PARTIAL, *_MORE) if self.all_ops else _PARTIAL, shape=self.rounds)
        level = rand.integers(self.severity, shape=self.rounds)
        sign = 1 - 2 * rand.bernoulli(0.5, self.rounds).astype(np.int64)
        if self.chain_depth <= 0:
            depth = rand.integers(1, 4, shape=int(self.mixture_width))
            turn = np.arange(self.rounds)
            names = np.where(turn % self._depth < depth[:, turn // self._depth], names, "Identity")
        ends = {**narrow(sizes), "Posterize": (0, 4)}
        ends |= {"TranslateX": sizes[:, 1] / 3.0, "TranslateY": sizes[:, 0] / 3.0}
        return Chosen(names, strengths(names, sign, space(_BINS, level, ends)))

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        params, sizes = super().make_params(rand, sizes)
        weights = rand.child(1)
        own = weights.dirichlet(float(self.alpha), 2)
        chains = weights.dirichlet(float(self.alpha), int(self.mixture_width)) * own[:, 1:]
        params["own"] = own[:, 0].copy()
        for i in range(int(self.mixture_width)):
            params[f"weight{i}"] = chains[:, i].copy()
        return params, sizes

    def dali_params(self, params: Params) -> Params:
        weights = ["own", *(f"weight{i}" for i in range(int(self.mixture_width)))]
        return {**{name: params[name] for name in weights}, **super().dali_params(params)}

    moves_alone = MOVES_ALONE

    def _turns(self, chain: int) -> range:
        return range(chain * self._depth, (chain + 1) * self._depth)

    def transform(self, ops: Ops, image: Any, **params: Any) -> Any:
        self.check_bytes(ops.dtype_of(image))
        mixed = image * ops.beside(params["own"])
        for i in range(int(self.mixture_width)):
            mixed = mixed + self.turns(ops, image, params, self._turns(i)) * ops.beside(params[f"weight{i}"])
        # It is cut off, as in torchvision, and never above 255 but by rounding.
        return ops.cast(ops.math.floor(mixed), dtype=ops.as_dtype(torch.uint8))

    def transform_host(self, image: torch.Tensor, out: torch.Tensor | None = None, **params: Any) -> torch.Tensor:
        self.check_bytes(image.dtype)
        mixed = torch.tensor(params["own"], dtype=torch.float32) * image
        for i in range(int(self.mixture_width)):
            weight = torch.tensor(params[f"weight{i}"], dtype=torch.float32)
            mixed.add_(weight * self.turns_host(image, params, self._turns(i)))
        return mixed.to(torch.uint8)

    def transform_batch(self, images: torch.Tensor, params: Params) -> Images:
        self.check_bytes(images.dtype)

        def rows(name: str) -> torch.Tensor:
            return torch.from_numpy(params[name]).to(images.device, non_blocking=True)[:, None, None, None]

        mixed = rows("own") * images
        for i in range(int(self.mixture_width)):
            chain = self.turns_batch(images, params, self._turns(i))
            mixed.add_(rows(f"weight{i}") * (torch.stack(chain) if isinstance(chain, list) else chain))
        return mixed.to(torch.uint8)
