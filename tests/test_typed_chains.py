"""Whole recipes through the loader, against torchvision's own transforms that are given the same draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode, v2
from torchvision.transforms.v2 import functional as F

import torchdali as td
from torchdali import transforms as T
from torchdali.engine.chain import Chain
from torchdali.kinds import Boxes, Points
from torchdali.ragged import Ragged
from torchdali.rand import Rand
from torchdali.transforms import presets

from .random_moves import one_thread  # noqa: F401

SEED, EPOCH, N = 5, 0, 24


class Scenes:
    """Images with boxes, labels, masks, areas, points, and a map of ids; a third has no objects."""

    def __init__(self, format: str = "xyxy", **parts: bool) -> None:
        self.format, self.parts = format, {"masks": False, "points": False} | parts

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> Any:
        rng = np.random.default_rng(index)
        height, width = rng.integers(60, 200, 2).tolist()
        m = int(rng.integers(1, 6)) if index % 3 else 0
        corners = np.sort(rng.uniform(-0.05, 1.05, (m, 2, 2)), 1) * [width, height]
        boxes = torch.from_numpy(corners.reshape(m, 4).astype(np.float32))
        size = (height, width)
        target: dict[str, Any] = {
            "boxes": F.convert_bounding_box_format(
                tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=size), new_format=self.format.upper()
            ),
            "labels": torch.from_numpy(rng.integers(0, 80, m)),
            "area": torch.from_numpy(rng.uniform(0, 9, m)),
            "image_id": index,
        }
        if self.parts["masks"]:
            target["masks"] = tv_tensors.Mask(torch.from_numpy(rng.integers(0, 2, (m, *size)).astype(np.uint8)))
        if self.parts["points"]:
            points = torch.from_numpy((rng.uniform(0, 1, (m, 5, 2)) * [width, height]).astype(np.float32))
            target["keypoints"] = tv_tensors.KeyPoints(points, canvas_size=size)
        return tv_tensors.Image(torch.from_numpy(rng.integers(0, 256, (3, *size)).astype(np.uint8))), target


class Segments:
    """Images and their ids, a few pixels per square."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> Any:
        rng = np.random.default_rng(index)
        height, width = rng.integers(40, 120, 2).tolist()
        ids = np.kron(rng.integers(0, 21, (height // 8 + 1, width // 8 + 1)), np.ones((8, 8)))[:height, :width]
        image = rng.integers(0, 256, (3, height, width)).astype(np.uint8)
        return tv_tensors.Image(torch.from_numpy(image)), tv_tensors.Mask(torch.from_numpy(ids.astype(np.uint8)))


class ByTorchvision:
    """torchvision's transforms, one sample at a time, with the draws of ours.

    Each transform of ours draws for this sample alone, and torchvision's `transform(value, params)` is called with what
    it drew, in torchvision's words.
    """

    def __init__(self, steps: list[Any], index: int) -> None:
        self.chain = Chain(steps, "cpu")
        self.rand = Rand(SEED, EPOCH, np.array([index], np.uint64))

    def __call__(self, sample: Any) -> Any:
        for k, step in enumerate(self.chain.steps):
            sample = self.step(step, k, sample)
        return sample

    def step(self, step: Any, k: int, sample: Any) -> Any:
        if isinstance(step, T.SanitizeBoundingBoxes):
            # torchvision knows no group: the areas are dropped by hand.
            valid = F.sanitize_bounding_boxes(sample[1]["boxes"])[1]
            image, target = v2.SanitizeBoundingBoxes()(*sample)
            kept = {key: sample[1][key][valid] for key in ("area", "keypoints") if key in sample[1]}
            return image, {**target, **kept}
        if isinstance(step, (T.ToDtype, T.Normalize)):
            scaled = isinstance(step, T.ToDtype)
            theirs = v2.ToDtype(torch.float32, scale=True) if scaled else v2.Normalize(step.mean, step.std)
            return theirs(sample[0]), sample[1]
        sizes = np.array([sample[0].shape[-2:]], np.int64)
        extra = {"boxes": boxes_of(sample)} if isinstance(step, T.RandomIoUCrop) else {}
        params, _ = step.make_params(self.chain.rand(k, self.rand), sizes, **extra)
        drawn = {name: values[0] for name, values in params.items()}
        moved = in_their_words(step, drawn, self.chain.rand(k, self.rand), sample)
        if moved is None:
            return sample
        theirs, words = moved

        def move(value: Any) -> Any:
            if isinstance(value, (tuple, list)):
                return tuple(map(move, value))
            if isinstance(value, dict):
                return {key: move(entry) for key, entry in value.items()}
            return theirs.transform(value, words) if isinstance(value, tv_tensors.TVTensor) else value

        return move(sample)


def boxes_of(sample: Any) -> Ragged:
    boxes = F.convert_bounding_box_format(sample[1]["boxes"], new_format="XYXY")
    return Ragged.of([boxes.numpy()])


def in_their_words(step: Any, drawn: Any, rand: Rand, sample: Any) -> tuple[Any, dict[str, Any]] | None:
    """torchvision's transform and its params; None: it is not applied to this sample."""
    height, width = sample[0].shape[-2:]
    fill = {tv_tensors.Image: 0, tv_tensors.Mask: 0}
    if isinstance(getattr(step, "fill", None), dict):
        fill = {tv_tensors.Image: step.fill.get("image", 0), tv_tensors.Mask: step.fill.get("mask", 0)}
    if isinstance(step, (T.RandomZoomOut, T.RandomIoUCrop, T.RandomCrop)):
        (top, left), (rows, columns) = drawn["start"].astype(int).tolist(), drawn["shape"].astype(int).tolist()
        if (top, left, rows, columns) == (0, 0, height, width):
            return None
    if isinstance(step, T.RandomZoomOut):
        return v2.RandomZoomOut(fill), {"padding": [-left, -top, columns - width + left, rows - height + top]}
    if isinstance(step, T.RandomIoUCrop):
        window = {"top": top, "left": left, "height": rows, "width": columns}
        emptied = step.emptied({name: value[None] for name, value in drawn.items()}, boxes_of(sample))
        return v2.RandomIoUCrop(), {**window, "is_within_crop_area": torch.from_numpy(~emptied)}
    if isinstance(step, T.RandomCrop):
        before = [max(-left, 0), max(-top, 0)]
        padding = [*before, max(left + columns - width, 0), max(top + rows - height, 0)]
        window = {"top": max(top, 0), "left": max(left, 0), "height": rows, "width": columns}
        words = {"needs_crop": True, "needs_pad": any(padding), "padding": padding, **window}
        return v2.RandomCrop((rows, columns), fill=fill), words
    if isinstance(step, (T.RandomHorizontalFlip, T.RandomVerticalFlip)):
        (on,) = drawn.values()
        return (getattr(v2, type(step).__name__)(), {}) if on else None
    if isinstance(step, (T.RandomShortestSize, T.ScaleJitter, T.RandomResize)):
        size = drawn["size"].astype(int).tolist()
        return (v2.ScaleJitter((1, 1)) if isinstance(step, T.ScaleJitter) else v2.RandomShortestSize(1)), {"size": size}
    if isinstance(step, T.RandomRotation):
        angle = float(rand.uniform(-step.degrees, step.degrees).astype(np.float64)[0] % 360)
        return v2.RandomRotation(step.degrees, InterpolationMode(step.interpolation), fill=fill), {"angle": angle}
    if isinstance(step, T.RandomPhotometricDistort):
        names = ("brightness", "contrast", "saturation", "hue")
        words = {f"{name}_factor": drawn[name] if drawn[f"{name}_on"] else None for name in names}
        order = drawn["permutation"].tolist()
        words |= {"contrast_before": bool(drawn["before"])}
        words |= {"channel_permutation": None if order == [0, 1, 2] else torch.tensor(order)}
        return v2.RandomPhotometricDistort(), words
    raise AssertionError(step)


PRESET_SSD = presets.detection_train("ssd")
SSD = [
    T.RandomZoomOut({"image": (123, 117, 104)}, (1.0, 2.0)),
    T.RandomIoUCrop(),
    T.RandomHorizontalFlip(),
    T.RandomShortestSize([64, 80, 96], 140),
    T.SanitizeBoundingBoxes(),
    T.ToDtype(torch.float32, scale=True),
]
MASK_RCNN = presets.detection_train("multiscale", sizes=[60, 70, 80, 90], max_size=130)
LARGE_SCALE_JITTER = presets.detection_train("lsj", size=128)
TURNED = [
    T.RandomRotation(30, "bilinear", fill={"image": 9}),
    T.RandomVerticalFlip(),
    T.RandomShortestSize([64], 140),
]


def loader(dataset: Any, steps: list[Any], **options: Any) -> td.DataLoader:
    options = {"batch_size": 5, "seed": SEED, "shuffle": True, "device": "cpu", "output": "list"} | options
    return td.DataLoader(dataset, transform=T.Compose(steps), **options)


def samples_of(made: td.DataLoader) -> dict[int, Any]:
    """All samples of an epoch by their image's number."""
    return {
        int(target["image_id"]): (image, target) for images, targets in made for image, target in zip(images, targets)
    }


RECIPES = {
    "ssd": (SSD, {}),
    "ssd's preset": (PRESET_SSD, {}),
    "ssdlite's preset": (presets.detection_train("ssdlite"), {"masks": True}),
    "hflip's preset": (presets.detection_train(), {"points": True}),
    "mask r-cnn": (MASK_RCNN, {"masks": True}),
    "keypoint r-cnn": (MASK_RCNN, {"points": True}),
    "large-scale jitter": (LARGE_SCALE_JITTER, {"masks": True}),
    "turned": (TURNED, {"masks": True}),
}


@pytest.mark.parametrize(
    "recipe, format",
    [
        *(("ssd", format) for format in ("xyxy", "xywh", "cxcywh")),
        *((f"{name}'s preset", "xyxy") for name in ("ssd", "ssdlite", "hflip")),
        ("mask r-cnn", "xywh"),
        ("keypoint r-cnn", "xyxy"),
        *(("large-scale jitter", format) for format in ("xyxy", "cxcywh")),
        ("turned", "xyxy"),
    ],
)
def test_detection_is_torchvisions(recipe: str, format: str) -> None:
    """Images, masks, labels, points and boxes are the same bits.

    Rounding apart: of boxes that were turned, and of those in other formats that torchvision first pads and then crops,
    which is one move of ours.  (A box at the very edge may then be dropped by one and kept by the other, so the boxes
    that were turned are all kept here.)
    """
    most = {"turned": 2e-4, "large-scale jitter": 0 if format == "xyxy" else 2e-5}.get(recipe, 0)
    steps, parts = RECIPES[recipe]
    dataset = Scenes(format, **parts)
    found = samples_of(loader(dataset, steps))
    assert sorted(found) == list(range(N))
    objects = 0
    for index, (image, target) in found.items():
        wanted_image, wanted = ByTorchvision(steps, index)(dataset[index])
        np.testing.assert_array_equal(image.numpy(), wanted_image.numpy(), err_msg=f"image {index}")
        assert set(target) == set(wanted)
        for name, value in wanted.items():
            ours, theirs = np.asarray(target[name]), np.asarray(value)
            assert ours.dtype == theirs.dtype or name == "image_id"
            np.testing.assert_allclose(
                ours, theirs, rtol=0, atol=most * (name == "boxes"), err_msg=f"{name} of {index}"
            )
        objects += len(target["labels"])
    assert objects > 20


class Outlined(Scenes):
    """The same with each box as a polygon, or as run lengths."""

    def __getitem__(self, index: int) -> Any:
        image, target = super().__getitem__(index)
        height, width = image.shape[-2:]
        boxes = target["boxes"].clamp(min=0).round().int()
        boxes[:, 2::4].clamp_(max=width)
        boxes[:, 3::4].clamp_(max=height)
        target["boxes"] = tv_tensors.wrap(boxes.float(), like=target["boxes"])
        outlines: list[Any] = []
        for number, (left, top, right, bottom) in enumerate(boxes.tolist()):
            if number % 2:
                outlines.append([[left, top, right, top, right, bottom, left, bottom]])
            else:
                rows, rest = bottom - top, height - (bottom - top)
                counts = [left * height + top, *([rows, rest] * (right - left))]
                counts[-1] += (width - right) * height - top
                outlines.append({"size": [height, width], "counts": counts})
        return image, {**target, "segmentation": outlines}


def test_outlines_are_drawn_where_their_boxes_are() -> None:
    """They are dropped with their boxes, and fill them up to their edges."""
    made = loader(Outlined(), [*SSD[:3], T.RandomShortestSize([128], 300), SSD[4]], kinds={"segmentation": "polygons"})
    seen = 0
    for index, (image, target) in samples_of(made).items():
        masks, boxes = target["segmentation"].numpy(), target["boxes"].numpy()
        assert len(masks) == len(boxes)
        assert masks.shape[1:] == image.shape[1:]
        for mask, (left, top, right, bottom) in zip(masks, boxes):
            inside = mask[round(top + 2.4) : int(bottom - 2.4), round(left + 2.4) : int(right - 2.4)]
            around = mask.copy()
            around[max(int(top - 2), 0) : int(bottom + 3), max(int(left - 2), 0) : int(right + 3)] = 0
            assert inside.all() and not around.any(), index
            seen += inside.size > 0
    assert seen > 20


class Fractions(Scenes):
    """Boxes and points in widths and heights of the image, as plain tensors."""

    def __getitem__(self, index: int) -> Any:
        image, target = super().__getitem__(index)
        height, width = image.shape[-2:]
        boxes = target["boxes"].as_subclass(torch.Tensor) / torch.tensor([width, height] * 2)
        points = target["keypoints"].as_subclass(torch.Tensor) / torch.tensor([width, height])
        return image, {**target, "boxes": boxes, "keypoints": points}


def test_normalized_boxes_and_points_leave_normalized() -> None:
    """They are those in pixels, over the size of the image that leaves."""
    steps = [
        T.RandomIoUCrop(),
        T.RandomHorizontalFlip(),
        T.RandomShortestSize([64, 96], 140),
        T.SanitizeBoundingBoxes(),
    ]
    told = {"boxes": Boxes("cxcywh", normalized=True), "keypoints": Points(normalized=True)}
    pixels = samples_of(loader(Scenes("cxcywh", points=True), steps))
    seen = 0
    for index, (image, target) in samples_of(loader(Fractions("cxcywh", points=True), steps, kinds=told)).items():
        height, width = image.shape[-2:]
        unit = torch.tensor([width, height], dtype=torch.float32)
        np.testing.assert_allclose(target["boxes"] * unit.repeat(2), pixels[index][1]["boxes"], atol=1e-3)
        np.testing.assert_allclose(target["keypoints"] * unit, pixels[index][1]["keypoints"], atol=1e-3)
        seen += len(target["boxes"])
    assert seen > 20


def test_a_flip_exchanges_left_and_right_points() -> None:
    steps = [T.RandomHorizontalFlip(0.5)]
    dataset = Scenes(points=True)
    plain = samples_of(loader(dataset, steps))
    swapped = samples_of(loader(dataset, steps, kinds={"keypoints": Points(swap=((0, 1), (2, 4)))}))
    flipped = 0
    for index, (image, target) in swapped.items():
        points, moved = target["keypoints"], not torch.equal(image, dataset[index][0].as_subclass(torch.Tensor))
        order = [1, 0, 4, 3, 2] if moved else [0, 1, 2, 3, 4]
        assert torch.equal(points, plain[index][1]["keypoints"][:, order])
        flipped += moved and len(points) > 0
    assert 0 < flipped < N


def test_segmentation_is_torchvisions() -> None:
    """By the preset, but that its Normalize scales as well."""
    steps = presets.segmentation_train(80, 64)
    assert steps[0] == T.RandomResize(40, 160)
    steps[0] = T.RandomResize(40, 120)
    dataset = Segments()
    made = loader(dataset, steps, shuffle=False, output="tuple")
    steps.insert(-1, T.ToDtype(torch.float32, scale=True))
    images, masks = (torch.cat(parts) for parts in zip(*made))
    assert images.shape == (N, 3, 64, 64)
    assert masks.shape == (N, 64, 64) and masks.dtype == torch.uint8
    assert 255 in masks
    for index in range(N):
        image, mask = ByTorchvision(steps, index)(dataset[index])
        np.testing.assert_allclose(images[index].numpy(), image.numpy(), rtol=0, atol=1e-6)  # scaled in one step
        np.testing.assert_array_equal(masks[index].numpy(), mask.numpy())


@pytest.mark.parametrize("recipe", ["ssd", pytest.param("large-scale jitter", marks=pytest.mark.slow)])
def test_a_sample_is_the_same_in_any_batch_and_engine(recipe: str) -> None:
    steps, parts = RECIPES[recipe]
    dataset = Scenes(**parts)
    first = samples_of(loader(dataset, steps))
    for options in ({"batch_size": 3, "shuffle": False}, {"engine": "debug"}, {"engine": "pipeline"}):
        for index, (image, target) in samples_of(loader(dataset, steps, **options)).items():
            assert torch.equal(image, first[index][0]), options
            for name, value in target.items():
                np.testing.assert_array_equal(np.asarray(value), np.asarray(first[index][1][name]), err_msg=name)


class Clips:
    """Three frames each."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        rng = np.random.default_rng(index)
        height, width = rng.integers(40, 60, 2).tolist()
        return {"clip": rng.integers(0, 256, (3, height, width, 3)).astype(np.uint8), "label": index}


def test_clips_are_cropped_and_flipped_alike_in_dali_and_on_the_host() -> None:
    """A function after the steps makes DALI run them; engines on the host take torchvision's kernels."""
    steps = [T.RandomCrop(32, padding=6, fill={"video": 9}), T.RandomHorizontalFlip(), T.RandomVerticalFlip()]

    made = [
        loader(Clips(), steps, kinds={"clip": "video"}, output="dict"),
        loader(Clips(), [*steps, lambda sample, rand: sample], kinds={"clip": "video"}, output="dict"),
        loader(
            Clips(),
            [*steps, T.traceable(lambda sample, rand, ops: sample)],
            kinds={"clip": "video"},
            output="dict",
            engine="pipeline",
        ),
    ]
    for one, *others in zip(*made):
        assert one["clip"].shape[1:] == (3, 3, 32, 32)
        assert 9 in one["clip"]
        for other in others:
            np.testing.assert_array_equal(one["clip"].numpy(), other["clip"].numpy())
