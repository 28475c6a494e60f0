"""The base of transforms.

A transform is split as in torchvision v2: `make_params` draws what is random, on the host, for all samples of a batch
at once; the rest only computes.  It has one form or two, which follow the same parameters:

    transform       on batches, in DALI's operators; written once, runs eagerly and inside a pipeline, on CPU and GPU
    transform_host  on one sample, in torch, where that is faster or truer (torchvision's own kernels)

On the CPU, the engine runs the host forms of all steps after the last one that has none.  On a GPU, DALI's form runs up
to the first step that has none or is better in torch; from there on, torch makes whole batches on the GPU, by
`transform_batch`, which without a form of its own runs `transform_host` image by image.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from ..elsewhere import Uncalled
from ..forms.image import (
    Images,
    has_dali_form,
    has_rows,
    in_rows,
    move_batch,
    move_on_dali,
    move_on_host,
    move_row,
    together,
)
from ..moves import Crop, Move, Resize, Sizes
from ..ragged import Ragged
from ..rand import Rand

if TYPE_CHECKING:
    from .._dali import Ops

Params = dict[str, NDArray[Any]]
"""Arrays with one row per sample."""

HostForm = Callable[[torch.Tensor, "torch.Tensor | None", int], torch.Tensor]
"""`transform_host` of a batch, as a function of (image, out, i), the number of the sample in it."""


class Transform(Uncalled):
    """Base of torchdali's transforms.  Subclasses are frozen dataclasses and act on all image fields of a sample.

    A subclass defines one form at least, and names the params that it takes: `def transform(self, ops, image, start,
    shape)`.  The properties say what the engine may do with it; a subclass for which one always holds writes
    `windowed = True`.

    Raises:
        TypeError: the subclass defines no form, or not one that it says it has.
    """

    def __new__(cls, *_: Any, **__: Any) -> Self:
        forms = {"on_dali": cls._defines("transform"), "on_host": cls._defines("transform_host")}
        if not any(forms.values()):
            raise TypeError(
                f"{cls.__name__} must define at least one form: transform (in DALI's operators) or transform_host (in "
                "torch, on the CPU)"
            )
        for (flag, defined), method in zip(forms.items(), ("transform", "transform_host"), strict=True):
            if getattr(cls, flag) is True and not defined:
                raise TypeError(f"{cls.__name__} must define {method}, since it says {flag} = True")
        return super().__new__(cls)

    @classmethod
    def _defines(cls, form: str) -> bool:
        return getattr(cls, form) is not getattr(Transform, form)

    @property
    def on_dali(self) -> bool:
        """There is a `transform`; a subclass may say that its own does not serve all arguments."""
        return self._defines("transform")

    @property
    def on_host(self) -> bool:
        """There is a `transform_host`; a subclass may say that its own does not serve all arguments."""
        return self._defines("transform_host")

    @property
    def truer_in_torch(self) -> bool:
        """On a GPU too it runs in torch where it can, since DALI's form follows another rule."""
        return False

    @property
    def needs_sizes(self) -> bool:
        """`make_params` needs the images' sizes."""
        return False

    @property
    def windowed(self) -> bool:
        """The params hold `start` and `shape` (top and left, height and width, in pixels), and nothing outside that
        window is looked at, so that a decoder may leave it out."""
        return False

    @property
    def draws(self) -> bool:
        """Its numbers matter; a step that does the same to every sample doesn't count among those of its class, which
        are told apart by their order."""
        return True

    @property
    def fixes_size(self) -> bool:
        """Images of any sizes come out with one size."""
        return False

    @property
    def varies_size(self) -> bool:
        """Images of one size come out with different ones, drawn at random."""
        return False

    @property
    def changes_size(self) -> bool:
        """Images may come out with another size."""
        return self.fixes_size or self.varies_size

    @property
    def moving(self) -> bool:
        """It moves pixels, and `drawn_moves` says how: masks, boxes and the like beside images move too."""
        return False

    @property
    def moves_alone(self) -> str:
        """It moves pixels as nothing beside them can be moved: the sentence of the error; "": it does not."""
        return ""

    def drawn_moves(self, params: Params, sizes: Sizes) -> list[Move]:
        """Give the moves of a batch, for what lies in its pictures.

        Args:
            params: as `make_params` gives them.
            sizes: of the images before.
        """
        return []

    def dali_params(self, params: Params) -> Params:
        """Give the params that `transform` takes, which may follow from those that were drawn."""
        return params

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        """Draw the parameters of every sample, and give the images' sizes after the transform.

        Args:
            rand: random numbers, the same for each field of a sample.
            sizes: the images' sizes, or None where they can't be known.
        """
        return {}, sizes

    # `*args: Any, **params: Any` accepts subclasses that name their params (typing's rule for such a pair).

    def transform(self, ops: Ops, image: Any, *args: Any, **params: Any) -> Any:
        """Transform a batch, in DALI's operators.

        Args:
            ops: DALI's operators.
            image: a batch (or a pipeline's node) of images [H, W, C].
            **params: the params as batches (or nodes).
        """
        raise NotImplementedError

    def transform_host(
        self, image: torch.Tensor, out: torch.Tensor | None = None, *args: Any, **params: Any
    ) -> torch.Tensor:
        """Transform one image, in torch, on the image's own device: the CPU, or on a loader's GPU that.

        Args:
            image: [C, H, W], on the CPU channels last in memory; it is not changed.
            out: memory that the result may be written to, or None.
            **params: the sample's rows of the params, as plain numbers and lists of them.

        Returns:
            `out`, or another tensor, perhaps a view of `image`.
        """
        raise NotImplementedError

    def transform_batch(self, images: torch.Tensor, params: Params) -> Images:
        """Transform a batch of images, in torch on their own device; by default image by image.

        Args:
            images: [N, C, H, W]; they are not changed.
            params: the params of all samples.

        Returns:
            [N, C, H, W], or where they differ in size a list of [C, H, W]; perhaps views of `images`.
        """
        form = Transform.bind(self, params)
        return together([form(image, None, i) for i, image in enumerate(images)])

    def bind(self, params: Params) -> HostForm:
        """Make the host form of a batch: what the samples have in common is done once.

        Args:
            params: the params of all samples.
        """
        # As plain numbers and lists: an array's elements cost more one by one.
        rows = {key: values.tolist() for key, values in params.items()}
        if not rows:
            return lambda image, out, _i: self.transform_host(image, out=out)
        return lambda image, out, i: self.transform_host(image, out=out, **{key: row[i] for key, row in rows.items()})

    def out_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """The element type after this transform."""
        return dtype

    def out_channels(self, channels: int) -> int:
        """The number of channels after this transform."""
        return channels


def in_batches(step: Transform, images: Images, params: Params) -> Images:
    """Transform images in torch on their own device: as one batch where they have one size, else one by one.

    Args:
        step: it has a torch form.
        images: a batch, or a list of images.
        params: the params of all samples.
    """
    if isinstance(images, torch.Tensor):
        return step.transform_batch(images, params)
    rows = [{key: values[i : i + 1] for key, values in params.items()} for i in range(len(images))]
    return together([step.transform_batch(image[None], row)[0] for image, row in zip(images, rows, strict=True)])


class Mover(Transform):
    """Base of the transforms that move pixels, and with them masks, boxes, points and what else lies in the picture.

    A subclass draws params, and `moves` says what they mean; the forms of the moves belong to the kinds of fields.
    """

    dims = 2  # not annotated: configs would not find the types of the other arguments
    """How many dimensions the sizes have that `make_params` takes and gives: 3 for volumes, whose depth comes first."""

    @property
    def moving(self) -> bool:
        return True

    @property
    def changes_size(self) -> bool:
        return self.varies_size or any(isinstance(move, (Crop, Resize)) for move in self.moves(ANY))

    def drawn_moves(self, params: Params, sizes: Sizes) -> list[Move]:
        return self.moves(params)

    @property
    def needs_boxes(self) -> bool:
        """`make_params` needs the boxes: it is called with a third argument, `Ragged` float [T, 4], xyxy in pixels."""
        return False

    def moves(self, params: dict[str, Any]) -> list[Move]:
        """Say which moves the params are, the same number of moves for any params.

        Args:
            params: as `make_params` gives them; or as batches or nodes of DALI; or those of one sample.
        """
        raise NotImplementedError

    def emptied(self, params: Params, boxes: Ragged) -> NDArray[np.bool_] | None:
        """Say which boxes become zeros, bool [T], such as those whose centres a window has left; None: no box does.

        Args:
            params: as `make_params` gives them.
            boxes: as they were before, float [T, 4], xyxy in pixels.
        """
        return None

    @property
    def rowwise(self) -> bool:
        """Its moves are cheap to make for a whole batch: crops, resizes and flips."""
        return all(has_rows(move) for move in self.moves(ANY))

    @property
    def on_dali(self) -> bool:
        return all(has_dali_form(move) for move in self.moves(ANY))

    def transform(self, ops: Ops, image: Any, **params: Any) -> Any:
        for move in self.moves(params):
            image = move_on_dali(ops, image, move)
        return image

    def transform_host(self, image: torch.Tensor, out: torch.Tensor | None = None, **params: Any) -> torch.Tensor:
        for move in self.moves(params):
            image = move_on_host(image, move)
        return image

    def transform_batch(self, images: torch.Tensor, params: Params) -> Images:
        if type(self).transform_host is not Mover.transform_host:
            return super().transform_batch(images, params)
        made: Images = images
        for move in self.moves(params):
            made = move_batch(made, move)
        return made

    def bind(self, params: Params) -> HostForm:
        if type(self).transform_host is not Mover.transform_host or not self.rowwise:
            return super().bind(params)  # the moves may be large, such as a field of displacements
        moves = self.moves(params)
        if not all(in_rows(move) for move in moves):
            return super().bind(params)
        first, *others = [move_row(move) for move in moves]
        if not others:
            return lambda image, _out, i: first(image, i)

        def form(image: torch.Tensor, _out: torch.Tensor | None, i: int) -> torch.Tensor:
            image = first(image, i)
            for move in others:
                image = move(image, i)
            return image

        return form


class _Any(dict[str, Any]):
    """Params whose values do not matter."""

    def __missing__(self, name: str) -> None:
        return None


ANY = _Any()
"""Params for `moves`, where only the types of the moves matter."""
