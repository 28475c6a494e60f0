"""Decoding.

It stands alone: before DALI's dynamic mode runs an operator, it analyses the whole file that calls it, and this one is
short, so that the first batch comes half a second earlier.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .base import Transform

if TYPE_CHECKING:
    from .._dali import Ops


@dataclass(frozen=True)
class Decode(Transform):
    """Image files to uint8 RGB [H, W, 3], upright by their EXIF orientation; grey is repeated, alpha dropped.

    The loader adds it where it is missing.  On the CPU a crop that follows is fused with it: only the crop's window is
    decoded, with the same pixels as from the whole image.  On a GPU whole images are decoded.
    """

    def transform(self, ops: Ops, image: Any, start: Any = None, shape: Any = None) -> Any:
        if start is None:
            return ops.decoders.image(image, **ops.decoding)
        return ops.decoders.image_slice(image, start, shape, axes=[0, 1], **ops.decoding)
