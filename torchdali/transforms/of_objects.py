"""The bases of the transforms of objects, which look at boxes or points, and leave pixels as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from ..moves import Sizes
from ..ragged import Ragged
from .base import Transform

if TYPE_CHECKING:
    from .._dali import Ops


class _OfObjects(Transform):
    """Base of the transforms of objects: they draw nothing, and leave all pixels as they are."""

    draws = False

    acts_on: ClassVar[Literal["boxes", "points"]] = "boxes"
    """The word of the kind whose rows it looks at."""

    def transform(self, ops: Ops, image: Any) -> Any:
        return image

    def transform_host(self, image: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        return image


class Filter(_OfObjects):
    """Base of the transforms that drop objects: the fields of a group lose the same rows."""

    def keep(self, rows: Ragged, format: str, sizes: Sizes) -> NDArray[np.bool_]:
        """Say which objects stay, bool [T].

        Args:
            rows: boxes [T, 4] in pixels, or points [T, 2], [T, k, 2], [T, k, 3].
            format: of the boxes, "xyxy", "xywh" or "cxcywh"; "" for points.
            sizes: [N, 2] of the images.
        """
        raise NotImplementedError


class Convert(_OfObjects):
    """Base of the transforms that write boxes or points in another way."""

    def convert(self, rows: Ragged, format: str, sizes: Sizes) -> tuple[Ragged, str]:
        """Give the converted rows, and their format.

        Args:
            rows: boxes [T, 4] in pixels, or points [T, 2], [T, k, 2], [T, k, 3].
            format: of the boxes, "xyxy", "xywh" or "cxcywh"; "" for points.
            sizes: [N, 2] of the images.
        """
        raise NotImplementedError
