"""The scenes of a sample: which fields lie in one picture, and so move together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..kinds import Boxes, Image, Kind, Mask, Points, Polygons, Video, Volume


@dataclass
class Scene:
    """Fields of one scene.

    Attributes:
        name: the scene's; "" is the one of all fields that name none.
        pixels: images and videos, by their fields' names.
        masks, boxes, points, polygons: what lies in them.
        volumes: a scene of volumes holds nothing else.
        groups: for each group of objects, the fields with one row per object.
    """

    name: str
    pixels: list[str] = field(default_factory=list)
    masks: list[str] = field(default_factory=list)
    boxes: list[str] = field(default_factory=list)
    points: list[str] = field(default_factory=list)
    polygons: list[str] = field(default_factory=list)
    volumes: list[str] = field(default_factory=list)
    groups: dict[str, list[str]] = field(default_factory=dict)

    @property
    def annotations(self) -> list[str]:
        """The fields beside the pixels, which move with them."""
        return [*self.masks, *self.boxes, *self.points, *self.polygons, *self.volumes]


def find_scenes(kinds: Mapping[str, Kind]) -> dict[str, Scene]:
    """Find the scenes among fields, by name."""
    scenes: dict[str, Scene] = {}
    for name, kind in kinds.items():
        if not kind.spatial:
            continue
        scene = scenes.setdefault(kind.scene, Scene(kind.scene))
        for cls, names in (
            ((Image, Video), scene.pixels),
            (Mask, scene.masks),
            (Boxes, scene.boxes),
            (Points, scene.points),
            (Polygons, scene.polygons),
            (Volume, scene.volumes),
        ):
            if isinstance(kind, cls):
                names.append(name)
    for scene in scenes.values():
        of_scene = {kinds[name].group for name in scene.annotations} - {None}
        for name, kind in kinds.items():
            if kind.group is not None and kind.group in of_scene:
                scene.groups.setdefault(kind.group, []).append(name)
    return scenes
