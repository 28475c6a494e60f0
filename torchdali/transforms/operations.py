"""The operations of AutoAugment and its kin, in families: one operator of DALI with numbers of each sample's own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from ..forms.grid import check_channels, sample_affine
from ..forms.image import Images, fill_values, functional, move_batch
from ..moves import Affine, Move, Sizes
from . import adjust
from .base import ANY, Mover, Params, Transform
from .levels import equalized, solarized, solarized_host, stretched
from .recolor import recolored
from .sharpness import kernels, sharpened, sharpened_host

if TYPE_CHECKING:
    from .._dali import Ops

Strengths = NDArray[np.float64]
"""[N], what the operation takes: pixels, degrees, factors minus one, bits, a threshold in [0, 1]."""


class Operation(Transform):
    """A family of operations, as a branch of a switch.

    The params hold `operation`, the number of its name in `names`, and `strength`; torchvision's kernels take these,
    and DALI's operators what `numbers` makes of them.
    """

    names: ClassVar[tuple[str, ...]]

    truer_in_torch = True  # DALI equalizes by another rule, and looks up other neighbours

    def numbers(self, operation: NDArray[np.int32], strength: Strengths, sizes: Sizes) -> Params:
        """The params of DALI's form."""
        return {}

    def params(self, operation: NDArray[np.int32], strength: Strengths, sizes: Sizes) -> Params:
        """All params."""
        return {"operation": operation, "strength": strength, **self.numbers(operation, strength, sizes)}

    def dali_params(self, params: Params) -> Params:
        return {name: values for name, values in params.items() if name not in ("operation", "strength")}

    def transform_host(self, image: torch.Tensor, out: torch.Tensor | None = None, **params: Any) -> torch.Tensor:
        return self.apply(image, self.names[int(params["operation"])], float(params["strength"]))

    def transform_batch(self, images: torch.Tensor, params: Params) -> Images:
        """Samples with the same operation and strength, which are many, go through one kernel together."""
        made = torch.empty_like(images)
        pairs, of = np.unique(np.stack([params["operation"], params["strength"]], 1), axis=0, return_inverse=True)
        for k, (operation, strength) in enumerate(pairs.tolist()):
            rows = torch.from_numpy(np.flatnonzero(of.reshape(-1) == k)).to(images.device, non_blocking=True)
            made.index_copy_(0, rows, self.apply(images[rows], self.names[int(operation)], strength))
        return made

    def apply(self, image: torch.Tensor, name: str, strength: float) -> torch.Tensor:
        """One operation, by torchvision's kernel.

        Args:
            image: [C, H, W], or several, [N, C, H, W].
            name: of the operation.
            strength: of it.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Geometric(Operation, Mover):
    """Shears, translations and rotations.

    Args:
        interpolation: "nearest" or "bilinear".
        fill: of what lies outside: a number, one for each channel, or None for zeros.
        whole: translations are cut off to whole pixels.
    """

    interpolation: str = "nearest"
    fill: Any = None
    whole: bool = True

    on_dali = True  # by a form of its own, whose matrix goes from the result to the image

    names = ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate")

    def numbers(self, operation: NDArray[np.int32], strength: Strengths, sizes: Sizes) -> Params:
        rows = zip(operation.tolist(), strength.tolist(), sizes.tolist(), strict=True)
        matrices = [inverse(self.names[k], self._cut(k, value), *size) for k, value, size in rows]
        return {"matrix": np.array(matrices, np.float32), "size": sizes}

    def _cut(self, operation: int, strength: float) -> float:
        return int(strength) if self.whole and self.names[operation].startswith("Translate") else strength

    def dali_params(self, params: Params) -> Params:
        return {"matrix": params["matrix"]}

    def moves(self, params: dict[str, Any]) -> list[Move]:
        if params is ANY:
            return [Affine(None, None, self.interpolation, self.fill)]
        back = np.zeros((len(params["size"]), 3, 3))
        back[:, :2], back[:, 2, 2] = params["matrix"], 1
        back[np.linalg.det(back) == 0] = np.eye(3)  # of samples that are not warped
        return [Affine(np.linalg.inv(back)[:, :2], params["size"], self.interpolation, self.fill)]

    def transform(self, ops: Ops, image: Any, **params: Any) -> Any:
        fill, matrix = self.fill_values(), params["matrix"]
        mode = ops.interpolation(self.interpolation)
        if len(fill) == 1 and (self.interpolation == "nearest" or fill == [0.0]):
            return ops.warp_affine(image, matrix, fill_value=fill[0], interp_type=mode, inverse_map=True)
        f32, dtype = ops.as_dtype(torch.float32), ops.dtype_of(image)
        # As torchvision: a mask is warped along, and says how much of each pixel lies inside.
        image = ops.cast(image, dtype=f32)
        inside = ops.warp_affine(image * 0 + 1.0, matrix, fill_value=0, interp_type=mode, inverse_map=True)
        warped = ops.warp_affine(image, matrix, fill_value=0, interp_type=mode, inverse_map=True)
        if self.interpolation == "nearest":
            inside = ops.cast(inside > 0.5, dtype=f32)
        channels = ops.channels_of(image)
        values = fill * channels if len(fill) == 1 else fill
        check_channels(values, channels)
        diagonal = [[value * (row == column) for column in range(channels)] for row, value in enumerate(values)]
        outside = ops.coord_transform(1.0 - inside, M=ops.matrix(diagonal), dtype=f32)
        return ops.cast(warped * inside + outside, dtype=ops.as_dtype(dtype))

    def fill_values(self) -> list[float]:
        fill = self.fill.get("image") if isinstance(self.fill, Mapping) else self.fill
        return [float(value) for value in (fill if isinstance(fill, (list, tuple)) else [0 if fill is None else fill])]

    def transform_batch(self, images: torch.Tensor, params: Params) -> Images:
        if not images.is_cuda:
            return super().transform_batch(images, params)
        made: Images = images  # all at once: torchvision's kernels wait for each matrix that they copy
        for move in self.moves(params):
            made = move_batch(made, move)
        return made

    def apply(self, image: torch.Tensor, name: str, strength: float) -> torch.Tensor:
        from torchvision.transforms import InterpolationMode

        kernels, mode = functional(), InterpolationMode(self.interpolation)
        fill = None if self.fill is None else fill_values(self.fill, image.dtype)
        strength = self._cut(self.names.index(name), strength)
        if name != "Rotate" or strength % 90:  # torchvision turns by quarters without looking up
            back = from_middle(name, strength, *image.shape[-2:])
            sampled = sample_affine(image, back, self.interpolation, fill)
            if sampled is not None:
                return sampled
        warped: torch.Tensor
        if name == "Rotate":
            warped = kernels.rotate_image(image, strength, interpolation=mode, fill=fill)
            return warped
        shift: list[float] = [0, 0]
        shear, center = [0.0, 0.0], None
        if name.startswith("Shear"):
            shear[name == "ShearY"], center = math.degrees(math.atan(strength)), [0, 0]
        else:
            shift[name == "TranslateY"] = strength
        warped = kernels.affine_image(image, 0.0, shift, 1.0, shear, interpolation=mode, fill=fill, center=center)
        return warped


def inverse(name: str, strength: float, height: int, width: int) -> NDArray[np.float64]:
    """[2, 3], from an output pixel to an input pixel, whose centres lie at halves, as DALI counts."""
    matrix = from_middle(name, strength, height, width)
    middle = np.array([width / 2, height / 2])
    # torchvision's counts from the image's middle.
    return np.concatenate([matrix[:, :2], (middle + matrix[:, 2] - matrix[:, :2] @ middle)[:, None]], axis=1)


def from_middle(name: str, strength: float, height: int, width: int) -> NDArray[np.float64]:
    """[2, 3], from an output pixel to an input pixel, counted from the image's middle, as torchvision's kernels do."""
    from torchvision.transforms.functional import _get_inverse_affine_matrix as inverse_matrix

    shift: list[float] = [0, 0]
    angle, shear, center = 0.0, [0.0, 0.0], [0.0, 0.0]
    if name.startswith("Shear"):
        shear[name == "ShearY"] = math.degrees(math.atan(strength))
        center = [-width * 0.5, -height * 0.5]
    elif name == "Rotate":
        angle = -(strength % 360)
    else:
        shift[name == "TranslateY"] = strength
    return np.array(inverse_matrix(center, angle, shift, 1.0, shear)).reshape(2, 3)


@dataclass(frozen=True)
class Tone(Operation):
    """Brightness, saturation and contrast: the image mixed with black, its grey image, or the mean of that."""

    names = ("Brightness", "Color", "Contrast")

    def numbers(self, operation: NDArray[np.int32], strength: Strengths, sizes: Sizes) -> Params:
        own, rest = (1 + strength).astype(np.float32), (-strength).astype(np.float32)
        return {"own": own, "grey": rest * (operation == 1), "mean": rest * (operation == 2)}

    def transform(self, ops: Ops, image: Any, own: Any, grey: Any, mean: Any) -> Any:
        return adjust.toned(ops, image, own, grey, mean, ops.dtype_of(image), ops.channels_of(image))

    def apply(self, image: torch.Tensor, name: str, strength: float) -> torch.Tensor:
        return recolored(image, "saturation" if name == "Color" else name.lower(), 1.0 + strength)


@dataclass(frozen=True)
class Sharpness(Operation):
    """Sharper or softer."""

    names = ("Sharpness",)

    def numbers(self, operation: NDArray[np.int32], strength: Strengths, sizes: Sizes) -> Params:
        return {"factor": (1 + strength).astype(np.float32), "kernel": kernels(len(strength))}

    def transform(self, ops: Ops, image: Any, factor: Any, kernel: Any) -> Any:
        return sharpened(ops, image, factor, kernel, ops.dtype_of(image))

    def apply(self, image: torch.Tensor, name: str, strength: float) -> torch.Tensor:
        return sharpened_host(image, 1.0 + strength)


@dataclass(frozen=True)
class Bits(Operation):
    """Values inverted, all of them or the bright ones; only the highest bits kept."""

    names = ("Posterize", "Solarize", "Invert")

    def numbers(self, operation: NDArray[np.int32], strength: Strengths, sizes: Sizes) -> Params:
        kept = np.where(operation == 0, np.clip(strength, 0, 8), 8).astype(np.int64)
        threshold = np.where(operation == 0, 256, np.where(operation == 1, 255 * strength, 0)).astype(np.float32)
        return {"threshold": threshold, "mask": (256 - 2 ** (8 - kept)).astype(np.uint8)}

    def transform(self, ops: Ops, image: Any, threshold: Any, mask: Any) -> Any:
        return solarized(ops, image, threshold, ops.dtype_of(image)) & ops.beside(mask)

    def apply(self, image: torch.Tensor, name: str, strength: float) -> torch.Tensor:
        kernels = functional()
        changed: torch.Tensor
        if name == "Posterize":
            changed = kernels.posterize_image(image, int(strength))
        elif name == "Solarize":
            changed = solarized_host(image, 255.0 * strength) if strength <= 1 else image
        else:
            changed = kernels.invert_image(image)
        return changed


@dataclass(frozen=True)
class SolarizeAdd(Operation):
    """A number added to all values below 128."""

    names = ("SolarizeAdd",)

    def numbers(self, operation: NDArray[np.int32], strength: Strengths, sizes: Sizes) -> Params:
        return {"add": strength.astype(np.float32)}

    def transform(self, ops: Ops, image: Any, add: Any) -> Any:
        return adjust.settled(ops, image + (image < 128) * ops.beside(add), ops.dtype_of(image))

    def apply(self, image: torch.Tensor, name: str, strength: float) -> torch.Tensor:
        return torch.where(image < 128, (image.to(torch.int16) + int(strength)).clamp_(0, 255).to(torch.uint8), image)


@dataclass(frozen=True)
class AutoContrast(Operation):
    """Each channel stretched between its smallest and its largest value."""

    names = ("AutoContrast",)

    def transform(self, ops: Ops, image: Any) -> Any:
        return stretched(ops, image, ops.dtype_of(image))

    def apply(self, image: torch.Tensor, name: str, strength: float) -> torch.Tensor:
        return recolored(image, "autocontrast")


@dataclass(frozen=True)
class Equalize(Operation):
    """The histogram of each channel made flat; in DALI by OpenCV's rule, else by Pillow's."""

    names = ("Equalize",)

    def transform(self, ops: Ops, image: Any) -> Any:
        return equalized(ops, image, ops.dtype_of(image))

    def apply(self, image: torch.Tensor, name: str, strength: float) -> torch.Tensor:
        return recolored(image, "equalize")
