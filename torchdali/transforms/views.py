"""Several views of one sample: one decode, and draws for each view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Never

from .compose import AnyTransform, Compose, Holder, check_list, check_transform


class Views(Holder):
    """Several views of each sample, as in SimCLR, MoCo, BYOL and DINO: the last step of a transform.

    The image is decoded once; the steps before it are shared by all views, and drawn once.  Each view draws numbers of
    its own, keyed by its name or place: a view keeps its values when others are added after it.  Images, masks, boxes
    and all fields that belong to objects become a list (or a dict) of batches, one for each view; labels and the like
    stay as they are.

    Args:
        views: a list, or a dict by name, of transforms, or of lists of transforms.

    Raises:
        ValueError: no view, or views in a view.
        TypeError: something else is among them.
    """

    def __init__(
        self,
        views: Sequence[AnyTransform | Sequence[Any]] | Mapping[str, AnyTransform | Sequence[Any]],
        *more: Never,
    ) -> None:
        check_list("Views", views, more, dicts=True)
        if not views:
            raise ValueError("Views needs at least one view, got none")
        named = isinstance(views, Mapping)
        given = dict(views) if isinstance(views, Mapping) else {str(i): view for i, view in enumerate(views)}
        self.named = named
        self.transforms: dict[str, Any] = {}
        for key, view in given.items():
            if not isinstance(key, str) or not key:
                raise TypeError(f"the names of views must be strings, got {key!r}")
            chain = Compose(list(view)) if isinstance(view, (list, tuple)) else view
            if isinstance(chain, Views) or any(isinstance(step, Views) for step in getattr(chain, "transforms", ())):
                raise ValueError("a view can't hold Views")
            check_transform(chain)
            self.transforms[key] = chain

    def form(self, values: Mapping[str, Any]) -> list[Any] | dict[str, Any]:
        """Put the values of the views into a list, or a dict by name."""
        return dict(values) if self.named else list(values.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Views) and (self.named, self.transforms) == (other.named, other.transforms)

    def __hash__(self) -> int:
        return hash(tuple(self.transforms))

    def __repr__(self) -> str:
        return f"Views({self.form(self.transforms)})"
