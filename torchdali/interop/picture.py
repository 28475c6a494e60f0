"""The image between two transforms of torchvision: a PIL image, which Pillow resizes, or a tensor."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from ..transforms.arguments import mode_name

Form = Literal["pil", "image", "tensor", "unknown"]
"""PIL image, tv_tensors.Image or plain tensor; unknown after a transform that can't be translated."""


@dataclass
class Picture:
    """An image on its way through torchvision's transforms.

    Attributes:
        form: the type that torchvision has here.
        dtype: the element type; None: unknown.
        channels: the number of channels.
        alone: the transform is translated without a dataset, so masks, boxes and the like may lie beside the image.
    """

    form: Form = "pil"
    dtype: torch.dtype | None = torch.uint8
    channels: int = 3
    alone: bool = False

    def is_tensor(self) -> None:
        """Check that torchvision has a tensor here.

        Raises:
            ValueError: it has a PIL image.
        """
        if self.form == "pil":
            raise ValueError(
                "it changes tensors, and the image is a PIL image here: put ToTensor() or v2.ToImage() before it"
            )

    def mode(self, interpolation: Any) -> str:
        """Name the interpolation; Pillow's nearest pixel is nearest-exact."""
        name = mode_name(interpolation)
        return "nearest-exact" if self.form == "pil" and name == "nearest" else name

    def antialias(self, antialias: bool | None) -> bool:
        """Tell whether resizing antialiases; Pillow always does, whatever the argument says."""
        return True if self.form == "pil" else bool(antialias)

    def fill(self, fill: Any) -> Any:
        """Give the fill value; from a dict of v2, the value for images of this form."""
        if isinstance(fill, defaultdict) and fill.default_factory:
            fill = {"others": fill.default_factory(), **fill}  # as torchvision's references have it for SSD
        if isinstance(fill, dict) and not self.alone:
            fill = fill.get(self._type(), fill.get("others"))
        return tuple(fill) if isinstance(fill, Sequence) and not isinstance(fill, str) else fill

    def target(self, dtype: Any) -> torch.dtype | None:
        """Give the dtype to convert to; from a dict of v2, the one for images of this form.  None: unchanged."""
        if isinstance(dtype, dict):
            if self._type() not in dtype and "others" not in dtype:
                raise ValueError(f"it has no dtype for {self._type().__name__}: add 'others': None")
            dtype = dtype.get(self._type(), dtype.get("others"))
        return dtype  # type: ignore[no-any-return]

    def _type(self) -> type:
        from PIL import Image
        from torchvision import tv_tensors

        types: dict[str, type] = {"pil": Image.Image, "image": tv_tensors.Image}
        return types.get(self.form, torch.Tensor)
