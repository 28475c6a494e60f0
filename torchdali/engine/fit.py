"""Raises where a transform does not fit the fields: what it acts on is missing, or in doubt, or has no form."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ..errors import KindError
from ..formats.decode import check_files
from ..kinds import Doubt, Kind
from ..moves import Crop, Crop3d, Flip
from ..transforms.base import ANY, Mover, Transform
from ..transforms.decode import Decode
from ..transforms.frames import UniformTemporalSubsample
from ..transforms.function import Function
from ..transforms.of_objects import Convert, Filter
from ..transforms.sound import is_sound
from ..transforms.values import ToDtype
from .chain import Chain
from .scenes import Scene
from .sounds import check_sounds


def check_fit(
    chains: Sequence[Chain], kinds: Mapping[str, Kind], scenes: Collection[Scene], doubts: Mapping[str, Doubt]
) -> None:
    """Raise where a step has nothing to act on or no form for it, or where the kind of a field is in doubt.

    Args:
        chains: the chain of the shared steps, and those of the views.
        kinds: the fields.
        scenes: the scenes in them.
        doubts: fields whose kinds are guesses that may be wrong.

    Raises:
        ValueError, KindError: it says what to write.
    """
    check_files(kinds)
    steps = [step for chain in chains for step in chain.steps]
    spatial = any(kind.spatial for kind in kinds.values())
    pixels = any(kind.pixels for kind in kinds.values())
    filters = any(isinstance(step, (Filter, Convert)) for step in steps)
    for step in steps:
        if isinstance(step, (Function, Decode)):
            continue
        name = type(step).__name__
        if step.moves_alone and any(scene.pixels and scene.annotations for scene in scenes):
            raise ValueError(step.moves_alone)
        needed = "boxes" if isinstance(step, Mover) and step.needs_boxes else getattr(step, "acts_on", "")
        if needed and needed not in {kind.word for kind in kinds.values()}:
            raise ValueError(
                f"{name} acts on {needed}, and the dataset has none: {', '.join(kinds)}; where they are plain arrays, "
                f'write kinds={{"{needed}": "{needed}"}}'
            )
        of_masks = isinstance(step, ToDtype) and step.masks is not None
        if not needed and not (spatial if step.moving or of_masks else pixels):
            arrays = [field for field, kind in kinds.items() if kind.word == "array"]
            hint = f"; where {arrays[0]!r} is one, write kinds={{{arrays[0]!r}: 'image'}}" if arrays else ""
            raise ValueError(f"{name} acts on images, and the dataset has none: {', '.join(kinds)}{hint}")
    _check_frames(chains)
    _check_volumes(chains, kinds, scenes)
    check_sounds(chains, kinds)
    acts = any(not isinstance(step, (Function, Decode)) and not is_sound(step) for step in steps)
    moves = any(chain.moves for chain in chains)
    _check_doubts(doubts, values=acts, moves=moves or filters, filters=filters)


def _check_frames(chains: Sequence[Chain]) -> None:
    """Raise where frames are chosen after a function, or in a view: they are, before anything else is done."""
    for chain in chains:
        for k, step in enumerate(chain.steps):
            if isinstance(step, UniformTemporalSubsample) and (
                chain is not chains[0] or min(chain.functions, default=k) < k
            ):
                raise ValueError(f"{step!r} must come before functions and Views: write it first")


def _check_volumes(chains: Sequence[Chain], kinds: Mapping[str, Kind], scenes: Collection[Scene]) -> None:
    """Raise where volumes lie beside something else, or a step has no form for them."""
    for scene in scenes:
        if scene.volumes and (others := [*scene.pixels, *(set(scene.annotations) - set(scene.volumes))]):
            raise ValueError(
                f"{scene.volumes[0]!r} is a volume, and lies in one scene with {others[0]!r}: write "
                f"kinds={{{scene.volumes[0]!r}: kinds.Volume(scene='volume')}}"
            )
    volumes = [name for scene in scenes for name in scene.volumes]
    others = [name for scene in scenes for name in (*scene.pixels, *scene.annotations) if name not in volumes]
    for chain in chains:
        for k, step in enumerate(chain.steps):
            if not isinstance(step, Transform) or not step.moving:
                continue
            name = type(step).__name__
            if getattr(step, "dims", 2) == 3 and (others or not volumes):
                raise ValueError(f"{name} moves volumes, and {others[0]!r} is none: {', '.join(kinds)}")
            if not volumes:
                continue
            moves = step.moves(ANY) if isinstance(step, Mover) else [None]
            if not all(isinstance(move, (Crop, Crop3d, Flip)) for move in moves):
                raise ValueError(
                    f"{name} has no form for volumes, which {volumes[0]!r} is: they can be cropped and flipped; "
                    f"write kinds={{{volumes[0]!r}: 'array'}} for a field that stays as it is"
                )
            if any(place < k for place in chain.functions) or (chain is not chains[0] and chains[0].functions):
                raise ValueError(f"{name} moves volumes, and can't follow a function: write it before")


def _check_doubts(doubts: Mapping[str, Doubt], values: bool, moves: bool, filters: bool) -> None:
    """Raise where a transform depends on a field whose kind is in doubt.

    Args:
        doubts: by field.
        values: transforms act on pictures.
        moves: transforms move pictures, and what lies in them.
        filters: transforms drop objects.

    Raises:
        KindError: it says what to write.
    """
    depends = {"values": values, "moves": moves, "filters": filters}
    for name, doubt in doubts.items():
        if not depends[doubt.matters]:
            continue
        if doubt.say:
            raise KindError(
                f"{name!r}: {doubt.why}  {doubt.say}, or kinds={{{name!r}: 'object'}} for what stays as it is"
            )
        if doubt.matters == "filters":
            raise KindError(
                f"{name!r}: {doubt.why}  Say it: kinds={{{name!r}: kinds.Array(group='...')}} with the group of the "
                f"boxes, or kinds={{{name!r}: 'array'}} for a field that stays whole"
            )
        raise KindError(
            f"{name!r}: {doubt.why}  Say it: kinds={{{name!r}: ...}} with 'mask', 'image', kinds.Boxes('xyxy') or "
            "another of torchdali.kinds, or with 'array' for what stays as it is"
        )
