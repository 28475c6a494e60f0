"""The rows of `parity.py` for transforms that move: images, masks, boxes and points against torchvision's kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode, v2

import torchdali as td
from torchdali import transforms as T
from torchdali.engine.chain import Chain
from torchdali.ragged import Ragged
from torchdali.rand import Rand
from torchdali.transforms.elastic import displacement

F = v2.functional
SIZE, SEED, OBJECTS = 224, 7, 6
Own = dict[str, Any]
Move = Callable[[Any, Own, Rand], Any]
"""move(value, params of the sample, its random numbers) by torchvision."""

BILINEAR = InterpolationMode.BILINEAR
ROUNDING = "torchvision weighs zeros at the border twice; DALI looks up places with other roundings"
RESIZING = "DALI's filter has other weights than torch's kernel for uint8"


def crop(value: Any, own: Own, _: Rand) -> Any:
    (top, left), (height, width) = own["start"], own["shape"]
    before, after = [max(-left, 0), max(-top, 0)], [max(left + width - SIZE, 0), max(top + height - SIZE, 0)]
    if any(before + after):
        value = F.pad(value, [*before, *after], fill=0)
    return F.crop(value, max(top, 0), max(left, 0), height, width)


def resize(value: Any, own: Own, _: Rand) -> Any:
    return F.resize(value, [int(edge) for edge in own["size"]], antialias=True)


def resized_crop(value: Any, own: Own, _: Rand) -> Any:
    return F.resized_crop(value, *own["start"], *own["shape"], [160, 160], antialias=True)


def rotation(value: Any, _: Own, rand: Rand) -> Any:
    return F.rotate(value, float(np.float64(rand.uniform(-30, 30)[0]) % 360), BILINEAR, fill=0)


def affine(value: Any, _: Own, rand: Rand) -> Any:
    """By the draws of RandomAffine, in its order."""
    angle = float(rand.uniform(-10, 10)[0])
    translate = np.rint(rand.uniform(-np.full((1, 2), SIZE * 0.1), np.full((1, 2), SIZE * 0.1), shape=2))[0].tolist()
    scale = float(rand.uniform(0.8, 1.2)[0])
    shear = float(rand.uniform(np.array([[-5.0, 0]]), np.array([[5.0, 0]]), shape=2)[0, 0])
    return F.affine(value, angle, translate, scale, [shear, 0.0], BILINEAR, fill=0)


def perspective(value: Any, own: Own, _: Rand) -> Any:
    corners = [[0, 0], [SIZE - 1, 0], [SIZE - 1, SIZE - 1], [0, SIZE - 1]]
    there = np.array(own["matrix"]) @ np.column_stack([corners, np.ones(4)]).T
    ends = np.rint(there[:2] / there[2]).T.astype(int).tolist()
    return value if ends == corners else F.perspective(value, corners, ends, BILINEAR, fill=0)


def elastic(value: Any, own: Own, _: Rand) -> Any:
    field = torch.from_numpy(displacement(own["seed"], SIZE, SIZE, (50.0, 50.0), (5.0, 5.0)))[None]
    return F.elastic(value, field, BILINEAR, fill=0)


CASES: dict[str, tuple[Any, Move, Any, str]] = {
    "Resize((160, 200))": (
        T.Resize((160, 200)), lambda value, *_: F.resize(value, [160, 200], antialias=True), v2.Resize((160, 200)),
        RESIZING,
    ),
    "CenterCrop(160)": (
        T.CenterCrop(160), lambda value, *_: F.center_crop(value, [160]), v2.CenterCrop(160), "",
    ),
    "RandomCrop(160)": (T.RandomCrop(160), crop, v2.RandomCrop(160), ""),
    "RandomSizeCrop(100, 200)": (T.RandomSizeCrop(100, 200), crop, None, ""),
    "RandomResizedCrop(160)": (T.RandomResizedCrop(160), resized_crop, v2.RandomResizedCrop(160), RESIZING),
    "CenterCropOrPad(240)": (T.CenterCropOrPad(240), crop, None, "timm's"),
    "RandomCropOrPad(240)": (T.RandomCropOrPad(240), crop, None, "timm's"),
    "TrimBorder(20)": (T.TrimBorder(20), crop, None, "timm's"),
    "RandomHorizontalFlip(1)": (
        T.RandomHorizontalFlip(1.0), lambda value, *_: F.horizontal_flip(value), v2.RandomHorizontalFlip(1.0), "",
    ),
    "RandomVerticalFlip(1)": (
        T.RandomVerticalFlip(1.0), lambda value, *_: F.vertical_flip(value), v2.RandomVerticalFlip(1.0), "",
    ),
    "Pad(8)": (T.Pad(8), lambda value, *_: F.pad(value, [8] * 4, fill=0), v2.Pad(8), ""),
    "RandomZoomOut(p=1)": (T.RandomZoomOut(side_range=(1.1, 1.5), p=1.0), crop,
                           v2.RandomZoomOut(side_range=(1.1, 1.5), p=1.0), ""),
    "RandomIoUCrop": (T.RandomIoUCrop(), crop, v2.RandomIoUCrop(), "its boxes: those whose centres left become zeros"),
    "ScaleJitter((200, 200))": (
        T.ScaleJitter((200, 200), (0.5, 1.2)), resize, v2.ScaleJitter((200, 200), (0.5, 1.2)), RESIZING,
    ),
    "RandomShortestSize": (
        T.RandomShortestSize([180, 200, 256], 300), resize, v2.RandomShortestSize([180, 200, 256], 300), RESIZING,
    ),
    "ResizeKeepRatio(180)": (
        T.ResizeKeepRatio(180, random_scale_prob=0.5, random_aspect_prob=0.5), resize, None, RESIZING,
    ),
    "RandomResize(160, 256)": (T.RandomResize(160, 256), resize, v2.RandomResize(160, 256), RESIZING),
    "RandomRotation(30)": (T.RandomRotation(30, "bilinear"), rotation, v2.RandomRotation(30, BILINEAR), ROUNDING),
    "RandomAffine": (
        T.RandomAffine(10, (0.1, 0.1), (0.8, 1.2), 5, "bilinear"), affine,
        v2.RandomAffine(10, (0.1, 0.1), (0.8, 1.2), 5, BILINEAR), ROUNDING,
    ),
    "RandomPerspective(p=1)": (T.RandomPerspective(p=1.0), perspective, v2.RandomPerspective(p=1.0), "no form in DALI"),
    "ElasticTransform": (T.ElasticTransform(), elastic, v2.ElasticTransform(), "no form in DALI"),
}  # fmt: skip


def scenes(arrays: list[np.ndarray]) -> dict[str, Any]:
    """Columns: the pictures, ids per pixel, boxes and points, of six objects each."""
    rng = np.random.default_rng(0)
    n = len(arrays)
    corners = np.sort(rng.uniform(5, SIZE - 5, (n, OBJECTS, 2, 2)), 2).reshape(n, OBJECTS, 4)
    return {
        "image": arrays,
        "mask": rng.integers(0, 21, (n, SIZE // 8, SIZE // 8), dtype=np.uint8).repeat(8, 1).repeat(8, 2),
        "boxes": list(corners.astype(np.float32)),
        "points": list(rng.uniform(0, SIZE, (n, OBJECTS, 2)).astype(np.float32)),
    }


def by_torchvision(columns: dict[str, Any], i: int) -> dict[str, Any]:
    """The same as torchvision's types."""
    size = (SIZE, SIZE)
    return {
        "image": tv_tensors.Image(torch.from_numpy(columns["image"][i]).permute(2, 0, 1)),
        "mask": tv_tensors.Mask(torch.from_numpy(columns["mask"][i])),
        "boxes": tv_tensors.BoundingBoxes(torch.from_numpy(columns["boxes"][i]), format="XYXY", canvas_size=size),
        "points": tv_tensors.KeyPoints(torch.from_numpy(columns["points"][i]), canvas_size=size),
    }


def rand_of(step: Any, rows: np.ndarray) -> Rand:
    """The random numbers that a loader's only step draws from."""
    return Chain([step], "cpu").rand(0, Rand(SEED, 0, rows.astype(np.uint64)))


def params_of(step: Any, columns: dict[str, Any], rows: np.ndarray) -> dict[str, np.ndarray]:
    sizes = np.tile([[SIZE, SIZE]], (len(rows), 1))
    extra = {"boxes": Ragged.of([columns["boxes"][i] for i in rows])} if getattr(step, "needs_boxes", False) else {}
    made: dict[str, np.ndarray] = step.make_params(rand_of(step, rows), sizes, **extra)[0]
    return made


def gaps(step: Any, move: Move, columns: dict[str, Any]) -> dict[str, float]:
    """The largest difference from torchvision, by kind, through a loader on the CPU."""
    told: Any = {"mask": "mask", "boxes": "boxes", "points": "points"}
    dataset = td.InMemoryDataset(columns, kinds=told, fingerprint="parity")
    loader = td.DataLoader(dataset, len(dataset), seed=SEED, transform=step, device="cpu")
    (batch,) = loader
    made = {n: v.unbind() if isinstance(v, td.Padded) else list(v) for n, v in zip(columns, batch, strict=True)}
    found = dict.fromkeys(columns, 0.0)
    params = params_of(step, columns, np.arange(len(dataset)))
    for i in range(len(dataset)):
        own = {key: values[i].tolist() for key, values in params.items()}
        untouched = own.get("shape") == [SIZE, SIZE] and own.get("start") == [0, 0]
        for name, value in by_torchvision(columns, i).items():
            theirs = value if untouched else move(value, own, rand_of(step, np.array([i])))
            ours = made[name][i]
            if isinstance(step, T.RandomIoUCrop) and name == "boxes" and not untouched:
                one = {key: values[i : i + 1] for key, values in params.items()}
                theirs[step.emptied(one, Ragged.of([columns["boxes"][i]]))] = 0
            assert ours.shape == theirs.shape, (step, name, ours.shape, theirs.shape)
            found[name] = max(found[name], float((ours.double() - theirs.double()).abs().max()))
    return found


def images_by_torchvision(step: Any, move: Move, columns: dict[str, Any]) -> Iterator[torch.Tensor]:
    params = params_of(step, columns, np.arange(len(columns["image"])))
    for i in range(len(columns["image"])):
        own = {key: values[i].tolist() for key, values in params.items()}
        untouched = own.get("shape") == [SIZE, SIZE] and own.get("start") == [0, 0]
        value = by_torchvision(columns, i)["image"]
        yield value if untouched else move(value, own, rand_of(step, np.array([i])))
