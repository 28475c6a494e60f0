"""Movers draw as torchvision does: the same numbers give the same windows, sizes and matrices."""

from __future__ import annotations

import functools
import inspect
import io
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats
from torchvision import tv_tensors
from torchvision.transforms import v2

import torchdali as td
from torchdali import transforms as T
from torchdali.forms.image import move_on_host
from torchdali.forms.volume import move_volume
from torchdali.moves import Crop, fill_of
from torchdali.ragged import Ragged
from torchdali.rand import Rand
from torchdali.testing import assert_resumes_exactly, assert_same_stream
from torchdali.transforms.base import Mover

BATCH = 16
ENGINES = ("eager", "pipeline", "debug")
IN_NO_OTHER_TEST = [
    "ClampBoundingBoxes",
    "ClampKeyPoints",
    "ConvertBoundingBoxFormat",
    "ElasticTransform",
    "FiveCrop",
    "RandomIoUCrop",
    "RandomPerspective",
    "SanitizeBoundingBoxes",
    "SanitizeKeyPoints",
    "TenCrop",
]
GEOMETRY = "torchvision.transforms.v2._geometry.torch"


class Fed:
    """torch.rand and torch.randint, with numbers that we drew."""

    def __init__(self, numbers: Any) -> None:
        self.numbers = list(numbers)

    def rand(self, *size: int) -> torch.Tensor:
        return torch.tensor([self.numbers.pop(0) for _ in range(size[0])], dtype=torch.float32)

    def randint(self, *_: Any, **__: Any) -> torch.Tensor:
        return torch.tensor(int(self.numbers.pop(0)))


class FedRounds:
    """The same for RandomIoUCrop, which draws in rounds of 40 trials.

    Each trial takes two numbers for the size, and two for the place where the window's ratio will do: the line that
    asks says which.
    """

    def __init__(self, drawn: Callable[[int], tuple[int, Any]]) -> None:
        self.drawn = drawn
        self.round, self.trial, self.line = -1, 0, 0

    def randint(self, **_: Any) -> torch.Tensor:
        self.round, self.trial, self.line = self.round + 1, -1, 0
        return torch.tensor([self.drawn(self.round)[0]])

    def rand(self, _: int) -> torch.Tensor:
        frame = inspect.currentframe()
        assert frame and frame.f_back
        line = frame.f_back.f_lineno
        self.line = self.line or line
        self.trial += line == self.line
        place = 0 if line == self.line else 2
        return torch.from_numpy(self.drawn(self.round)[1][self.trial, place : place + 2].copy())


def theirs(transform: Any, fed: Any, size: Any, boxes: Any = None) -> dict[str, Any]:
    """torchvision's params for an image of this size."""
    height, width = map(int, size)
    image = tv_tensors.Image(torch.empty(1, 1, 1).expand(1, height, width))
    inputs = [image] if boxes is None else [image, boxes]
    with mock.patch(f"{GEOMETRY}.rand", fed.rand), mock.patch(f"{GEOMETRY}.randint", fed.randint):
        params: dict[str, Any] = transform.make_params(inputs)
    return params


def batches(n: int) -> Iterator[tuple[np.random.Generator, Any, Callable[[], Rand]]]:
    """n batches: a generator, sizes, and what makes their random numbers anew."""
    rng = np.random.default_rng(0)
    for batch in range(n):
        keys = np.arange(BATCH, dtype=np.uint64) + np.uint64(batch * BATCH)
        yield rng, rng.integers(20, 900, (BATCH, 2)), lambda keys=keys: Rand(7, 0, keys)


def test_random_zoom_out() -> None:
    seen = 0
    for _, sizes, rand in batches(20):
        numbers = rand()
        zoomed, ratio, place = numbers.bernoulli(0.5), numbers.uniform(shape=1), numbers.uniform(shape=2)
        params, after = T.RandomZoomOut().make_params(rand(), sizes)
        assert after is not None and np.array_equal(after, params["shape"])
        for i in range(BATCH):
            start, shape = params["start"][i].tolist(), params["shape"][i].tolist()
            if not zoomed[i]:
                assert start == [0, 0] and shape == sizes[i].tolist()
                continue
            left, top, right, bottom = theirs(v2.RandomZoomOut(), Fed([*ratio[i], *place[i]]), sizes[i])["padding"]
            height, width = sizes[i]
            assert start == [-top, -left] and shape == [height + top + bottom, width + left + right]
            seen += 1
    assert seen > 100


def test_scale_jitter() -> None:
    for _, sizes, rand in batches(20):
        scale = rand().uniform()
        _, after = T.ScaleJitter((300, 200)).make_params(rand(), sizes)
        assert after is not None
        for i in range(BATCH):
            size = theirs(v2.ScaleJitter((300, 200)), Fed([scale[i]]), sizes[i])["size"]
            assert [max(edge, 1) for edge in size] == after[i].tolist()  # an edge never vanishes


@pytest.mark.parametrize("max_size", [None, 800])
def test_random_shortest_size(max_size: int | None) -> None:
    edges = [480, 512, 544]
    for _, sizes, rand in batches(20):
        which = rand().integers(3)
        _, after = T.RandomShortestSize(edges, max_size).make_params(rand(), sizes)
        assert after is not None
        for i in range(BATCH):
            size = theirs(v2.RandomShortestSize(edges, max_size), Fed([which[i]]), sizes[i])["size"]
            assert list(size) == after[i].tolist()


def test_random_resize() -> None:
    for _, sizes, rand in batches(20):
        edge = rand().integers(30, 700)
        _, after = T.RandomResize(30, 700).make_params(rand(), sizes)
        assert after is not None
        for i in range(BATCH):
            (size,) = theirs(v2.RandomResize(30, 700), Fed([edge[i]]), sizes[i])["size"]
            image = torch.empty(1, 1, 1).expand(1, *sizes[i].tolist())
            resized = v2.functional._geometry._compute_resized_output_size(image.shape[1:], [size])
            assert resized == after[i].tolist()


def boxes_in(rng: np.random.Generator, sizes: Any) -> list[Any]:
    """One to eight boxes, float32 [m, 4], in each image."""
    corners = [np.sort(rng.uniform(0, 1, (int(rng.integers(1, 9)), 2, 2)), 1) for _ in sizes]
    return [
        (c * [width, height]).reshape(-1, 4).astype(np.float32)
        for c, (height, width) in zip(corners, sizes, strict=True)
    ]


@pytest.mark.parametrize("n", [6, pytest.param(60, marks=pytest.mark.slow)])
def test_random_iou_crop(n: int) -> None:
    """Up to 960 samples: the same windows, and the same boxes are emptied."""
    kinds = [0, 0]
    for rng, sizes, rand in batches(n):
        column = boxes_in(rng, sizes)
        ragged = Ragged.of(column)
        ours = T.RandomIoUCrop()
        params, after = ours.make_params(rand(), sizes, ragged)
        assert after is not None and np.array_equal(after, params["shape"])
        emptied = Ragged(ours.emptied(params, ragged), ragged.counts).split()

        @functools.cache
        def drawn(number: int, rand: Any = rand) -> tuple[Any, Any]:
            numbers = rand().child(number)
            return numbers.integers(7), numbers.uniform(shape=(40, 4))

        for i in range(BATCH):
            size = tuple(sizes[i].tolist())
            box = tv_tensors.BoundingBoxes(torch.from_numpy(column[i]), format="XYXY", canvas_size=size)
            fed = FedRounds(lambda number, i=i, drawn=drawn: tuple(values[i] for values in drawn(number)))
            found = theirs(v2.RandomIoUCrop(), fed, sizes[i], box)
            start, shape = params["start"][i].tolist(), params["shape"][i].tolist()
            kinds[bool(found)] += 1
            if found:
                assert start == [found["top"], found["left"]] and shape == [found["height"], found["width"]]
                assert np.array_equal(emptied[i], ~found["is_within_crop_area"].numpy())
            else:
                assert start == [0, 0] and tuple(shape) == size and not emptied[i].any()
    assert min(kinds) > n


def test_random_iou_crop_without_a_window() -> None:
    """A sample without boxes, and one whose boxes no window can hold, stay as they are: torchvision looks for ever."""
    sizes = np.array([[50, 60], [50, 60], [50, 60]])
    outside = np.array([[-9, -9, -2, -2]], np.float32)
    inside = np.array([[5, 5, 50, 45]], np.float32)
    boxes = Ragged.of([np.zeros((0, 4), np.float32), outside, inside])
    ours = T.RandomIoUCrop(sampler_options=[0.5])
    params, _ = ours.make_params(Rand(7, 0, [1, 2, 3]), sizes, boxes)
    assert params["start"][:2].tolist() == [[0, 0]] * 2 and params["shape"][:2].tolist() == [[50, 60]] * 2
    assert params["cropped"].tolist() == [False, False, True]
    assert ours.emptied(params, boxes).tolist() == [False, False]
    with pytest.raises(ValueError, match="RandomIoUCrop needs boxes: declare them"):
        ours.make_params(Rand(7, 0, [1]), sizes[:1])


# What a matrix does, by pixels


def picture(rng: np.random.Generator, size: Any) -> torch.Tensor:
    """uint8 [3, H, W], channels last in memory, as the engine has it."""
    image = rng.integers(0, 256, (int(size[0]), int(size[1]), 3), dtype=np.uint8)
    return torch.from_numpy(image).permute(2, 0, 1)


def rows(params: dict[str, Any], i: int) -> dict[str, Any]:
    """One sample's params, as the engine gives them."""
    return {name: values[i].tolist() for name, values in params.items()}


def moved(ours: Mover, params: dict[str, Any], i: int, image: torch.Tensor) -> torch.Tensor:
    for move in ours.moves(rows(params, i)):
        image = move_on_host(image, move)
    return image


SMALL = np.array([[20, 31], [48, 20], [33, 33], [17, 64]])


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
@pytest.mark.parametrize("expand", [False, True])
@pytest.mark.parametrize("center", [None, (7.0, 3.0)])
def test_random_rotation(interpolation: str, expand: bool, center: Any) -> None:
    rng = np.random.default_rng(1)
    ours = T.RandomRotation((-400, 400), interpolation, expand, center, fill=(1, 20, 255))
    for seed in range(10):
        params, after = ours.make_params(Rand(seed, 0, range(4)), SMALL)
        angles = Rand(seed, 0, range(4)).uniform(-400, 400).tolist()
        assert after is not None
        for i, size in enumerate(SMALL):
            image = picture(rng, size)
            mode = v2.InterpolationMode(interpolation)
            wanted = v2.functional.rotate(image, angles[i], mode, expand, center, fill=[1.0, 20.0, 255.0])
            assert after[i].tolist() == list(wanted.shape[1:])
            assert torch.equal(moved(ours, params, i, image), wanted)


@pytest.mark.parametrize("turns", range(-4, 5))
@pytest.mark.parametrize("expand", [False, True])
def test_quarter_turns(turns: int, expand: bool) -> None:
    """torchvision turns them without looking up, and so exactly; our nearest pixels are the same."""
    rng = np.random.default_rng(2)
    ours = T.RandomRotation((90 * turns, 90 * turns), expand=expand)
    params, after = ours.make_params(Rand(0, 0, range(4)), SMALL)
    assert after is not None
    for i, size in enumerate(SMALL):
        image = picture(rng, size)
        wanted = v2.functional.rotate(image, 90.0 * turns, v2.InterpolationMode.NEAREST, expand, fill=[0.0])
        assert after[i].tolist() == list(wanted.shape[1:])
        assert torch.equal(moved(ours, params, i, image), wanted)


AFFINES: dict[str, dict[str, Any]] = {
    "turn": {"degrees": 30},
    "all": {"degrees": (-90, 20), "translate": (0.2, 0.4), "scale": (0.3, 1.7), "shear": (-20, 30)},
    "both shears": {"degrees": 0, "shear": (-10, 10, 0, 25), "center": (3, 9.5), "fill": 7},
    "one scale": {"degrees": 0, "scale": (0.5, 0.5), "translate": (0.5, 0.0)},
}


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
@pytest.mark.parametrize("arguments", AFFINES.values(), ids=AFFINES)
def test_random_affine(arguments: dict[str, Any], interpolation: str) -> None:
    rng = np.random.default_rng(3)
    ours = T.RandomAffine(**arguments, interpolation=interpolation)
    wanted_of = v2.RandomAffine(**arguments, interpolation=interpolation)
    low, high = wanted_of.degrees
    shears = ([0, 0, 0, 0] if wanted_of.shear is None else [*wanted_of.shear, 0, 0])[:4]
    for seed in range(10):
        params, _ = ours.make_params(Rand(seed, 0, range(4)), SMALL)
        rand = Rand(seed, 0, range(4))
        angle = rand.uniform(low, high)
        most = SMALL[:, ::-1] * (wanted_of.translate or (0, 0))
        translate = np.rint(rand.uniform(-most, most, shape=2)).astype(int)
        scale = rand.uniform(*(wanted_of.scale or (1, 1)))
        shear = rand.uniform(np.array([shears[::2]]), np.array([shears[1::2]]), shape=2)
        for i, size in enumerate(SMALL):
            image = picture(rng, size)
            drawn = {
                "angle": float(angle[i]),
                "translate": translate[i].tolist(),
                "scale": float(scale[i]),
                "shear": shear[i].tolist(),
            }
            wanted = wanted_of.transform(tv_tensors.Image(image), drawn)
            assert torch.equal(moved(ours, params, i, image), wanted.as_subclass(torch.Tensor))


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
def test_random_perspective(interpolation: str) -> None:
    rng = np.random.default_rng(4)
    ours = T.RandomPerspective(0.6, 0.7, interpolation, fill=9)
    wanted_of = v2.RandomPerspective(0.6, 1.0, interpolation, fill=9)
    kinds = [0, 0]
    for seed in range(20):
        params, _ = ours.make_params(Rand(seed, 0, range(4)), SMALL)
        rand = Rand(seed, 0, range(4))
        on = rand.bernoulli(0.7)
        height, width = SMALL[:, 0], SMALL[:, 1]
        y, x = ((0.6 * (edge // 2)).astype(int) + 1 for edge in (height, width))
        nothing = 0 * x
        low = np.stack([nothing, nothing, width - x, nothing, width - x, height - y, nothing, height - y], 1)
        high = np.stack([x, y, width, y, width, height, x, height], 1)
        corners = rand.integers(low, high, shape=8)
        for i, size in enumerate(SMALL):
            image = picture(rng, size)
            kinds[on[i]] += 1
            if not on[i]:
                assert moved(ours, params, i, image) is image
                continue
            drawn = theirs(wanted_of, Fed(corners[i]), size)
            wanted = wanted_of.transform(tv_tensors.Image(image), drawn)
            assert torch.equal(moved(ours, params, i, image), wanted.as_subclass(torch.Tensor))
    assert min(kinds) > 10


@pytest.mark.parametrize("arguments", [{}, {"alpha": (20.0, 90.0), "sigma": (2.0, 3.0)}, {"sigma": 0}], ids=repr)
def test_elastic_transform(arguments: dict[str, Any]) -> None:
    """After torch.manual_seed(our number), torchvision's displacements and pixels."""
    rng = np.random.default_rng(5)
    ours, wanted_of = T.ElasticTransform(**arguments, fill=3), v2.ElasticTransform(**arguments, fill=3)
    sizes = SMALL + 5
    params, _ = ours.make_params(Rand(6, 0, range(4)), sizes)
    (batch,) = ours.moves(params)
    for i, size in enumerate(sizes):
        image = tv_tensors.Image(picture(rng, size))
        with torch.random.fork_rng():
            torch.manual_seed(int(params["seed"][i]))
            drawn = wanted_of.make_params([image])
        assert np.array_equal(batch.displacement[i], drawn["displacement"][0].numpy())
        wanted = wanted_of.transform(image, drawn).as_subclass(torch.Tensor)
        assert torch.equal(moved(ours, params, i, image.as_subclass(torch.Tensor)), wanted)


# Objects


FORMATS = ("xyxy", "xywh", "cxcywh")


def objects_in(rng: np.random.Generator, format: str, dtype: Any) -> tuple[Ragged, Any]:
    """Boxes of 40 images, many of them small, at an edge, or outside."""
    sizes = rng.integers(5, 40, (40, 2))
    column = [rng.uniform(-3, 30, (int(rng.integers(0, 9)), 4)).round(1).astype(dtype) for _ in sizes]
    for boxes in column:
        if format == "xyxy":
            boxes[:, 2:] = boxes[:, :2] + np.abs(boxes[:, 2:]) // 4
    return Ragged.of(column), sizes


def each(rows: Ragged, format: str, sizes: Any) -> Iterator[Any]:
    """torchvision's boxes of each sample."""
    for part, size in zip(rows.split(), sizes.tolist(), strict=True):
        yield tv_tensors.BoundingBoxes(torch.from_numpy(part), format=format.upper(), canvas_size=tuple(size))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("format", FORMATS)
def test_sanitize_bounding_boxes(format: str, dtype: Any) -> None:
    rng = np.random.default_rng(6)
    kept = 0
    for min_size, min_area in ((1, 1), (2.5, 1), (1, 9)):
        rows, sizes = objects_in(rng, format, dtype)
        keep = Ragged(T.SanitizeBoundingBoxes(min_size, min_area).keep(rows, format, sizes), rows.counts).split()
        sanitize = v2.SanitizeBoundingBoxes(min_size, min_area, labels_getter=None)
        for ours, boxes in zip(keep, each(rows, format, sizes), strict=True):
            assert torch.equal(sanitize(boxes), boxes[torch.from_numpy(ours)])
            kept += int(ours.sum())
    assert kept > 10


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("format", FORMATS)
def test_conversions_of_boxes(format: str, dtype: Any) -> None:
    rng = np.random.default_rng(7)
    rows, sizes = objects_in(rng, format, dtype)
    pairs: list[tuple[Any, Any]] = [
        (T.ClampBoundingBoxes(), v2.ClampBoundingBoxes()),
        (T.ClampBoundingBoxes(None), v2.ClampBoundingBoxes(None)),
        *((T.ConvertBoundingBoxFormat(to), v2.ConvertBoundingBoxFormat(to.upper())) for to in FORMATS),
    ]
    for ours, wanted_of in pairs:
        converted, after = ours.convert(rows, format, sizes)
        assert after == getattr(ours, "format", format)
        for part, boxes in zip(converted.split(), each(rows, format, sizes), strict=True):
            wanted = wanted_of(boxes)
            assert wanted.format.value.lower() == after and np.array_equal(part, wanted.numpy())


@pytest.mark.parametrize("shape", [(2,), (5, 2)], ids=str)
def test_points(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(8)
    sizes = rng.integers(5, 40, (40, 2))
    column = [rng.uniform(-1, 30, (int(rng.integers(0, 9)), *shape)).astype(np.float32) for _ in sizes]
    rows = Ragged.of(column)
    clamped, _ = T.ClampKeyPoints().convert(rows, "", sizes)
    keep = Ragged(T.SanitizeKeyPoints().keep(rows, "", sizes), rows.counts).split()
    for part, ours, moved_part, size in zip(column, keep, clamped.split(), sizes.tolist(), strict=True):
        points = tv_tensors.KeyPoints(torch.from_numpy(part), canvas_size=tuple(size))
        assert np.array_equal(moved_part, v2.ClampKeyPoints()(points).numpy())
        assert torch.equal(v2.SanitizeKeyPoints()(points), points[torch.from_numpy(ours)])


def test_fills_by_kind() -> None:
    """By words, or by torchvision's types; masks have their own fill unless it is named."""
    fills: list[tuple[Any, Any, Any]] = [
        (7, 7, 5),
        (None, 0, 5),
        ({"image": 7}, 7, 5),
        ({"mask": 7}, 0, 7),
        ({tv_tensors.Image: 7, tv_tensors.Mask: 8}, 7, 8),
        ({tv_tensors.Image: 7, "others": 8}, 7, 8),
        ({tv_tensors.Image: (1, 2, 3), "others": None}, (1, 2, 3), 5),
    ]
    for fill, image, mask in fills:
        (move,) = T.Pad(1, fill).moves({"start": None, "shape": None})
        assert isinstance(move, Crop)
        assert fill_of(move.fill, "image") == image and fill_of(move.fill, "mask", 5) == mask


# Volumes

CUBES = np.array([[5, 8, 12], [9, 7, 6], [4, 10, 10]])  # depth, height, width


def volumes() -> list[Any]:
    rng = np.random.default_rng(11)
    return [rng.integers(1, 100, size, dtype=np.int16) for size in CUBES]


@pytest.mark.parametrize("size", [(3, 4, 5), (4, 7, 6), 4])
def test_random_crop_3d(size: Any) -> None:
    """Windows are parts of the volumes, at every place."""
    crop = np.broadcast_to(size, 3)
    ours, starts = T.RandomCrop3d(size), set()
    for seed in range(30):
        params, after = ours.make_params(Rand(seed, 0, range(3)), CUBES)
        assert after is not None and after.tolist() == [crop.tolist()] * 3
        for i, volume in enumerate(volumes()):
            z, y, x = params["start"][i].tolist()
            starts.add((i, z, y, x))
            part = volume[z : z + crop[0], y : y + crop[1], x : x + crop[2]]
            assert part.shape == tuple(crop)
            assert np.array_equal(move_volume(volume, ours.moves(params), i), part)
            with_channels = move_volume(np.stack([volume, -volume]), ours.moves(params), i)
            assert np.array_equal(with_channels, np.stack([part, -part]))
    assert len(starts) > 20


def test_crops_3d_of_small_volumes() -> None:
    with pytest.raises(
        ValueError, match=r"needs a volume of at least \(6, 6, 6\), got \(5, 8, 12\): write pad_if_needed"
    ):
        T.RandomCrop3d(6).make_params(Rand(0, 0, range(3)), CUBES)
    ours = T.RandomCrop3d(6, pad_if_needed=True)
    for seed in range(10):
        params, _ = ours.make_params(Rand(seed, 0, range(3)), CUBES)
        for i, volume in enumerate(volumes()):
            padded = np.pad(volume, 6, constant_values=-7)
            z, y, x = (params["start"][i] + 6).tolist()
            moved = move_volume(volume, ours.moves(params), i, fill=-7)
            assert np.array_equal(moved, padded[z : z + 6, y : y + 6, x : x + 6])
            assert (moved == -7).sum() == 0 or (CUBES[i] < 6).any()


def test_center_crop_3d() -> None:
    """Each dimension as CenterCrop has it."""
    ours = T.CenterCrop3d((6, 3, 8))
    params, _ = ours.make_params(Rand(0, 0, range(3)), CUBES)
    flat, _ = T.CenterCrop((3, 8)).make_params(Rand(0, 0, range(3)), CUBES[:, 1:])
    deep, _ = T.CenterCrop((6, 3)).make_params(Rand(0, 0, range(3)), CUBES[:, :2])
    assert np.array_equal(params["start"][:, 1:], flat["start"]) and np.array_equal(
        params["start"][:, :2], deep["start"]
    )


def test_flips_of_volumes() -> None:
    flips = [T.RandomDepthFlip(), T.RandomVerticalFlip(), T.RandomHorizontalFlip()]
    for axis, ours in enumerate(flips):
        params, _ = ours.make_params(Rand(3, 0, range(3)), CUBES)
        assert sorted(set(params["flip"].tolist())) == [0, 1]
        for i, volume in enumerate(volumes()):
            wanted = np.flip(volume, axis) if params["flip"][i] else volume
            assert np.array_equal(move_volume(volume, ours.moves(params), i), wanted)
    with pytest.raises(TypeError, match="RandomDepthFlip moves volumes only, and the field is an image or a video"):
        T.RandomDepthFlip().transform_host(torch.zeros(3, 4, 5), flip=1)


# What all of them keep

EXAMPLES: list[Mover] = [
    T.Pad((3, 1)),
    T.RandomZoomOut(),
    T.RandomIoUCrop(),
    T.ScaleJitter((300, 200)),
    T.RandomShortestSize([100, 130]),
    T.RandomResize(20, 90),
    T.RandomRotation(30, expand=True),
    T.RandomAffine(30, (0.1, 0.2), (0.5, 2), (-10, 10, -5, 5)),
    T.RandomPerspective(),
    T.ElasticTransform(),
]


@pytest.mark.parametrize("ours", EXAMPLES, ids=lambda ours: type(ours).__name__)
def test_draws_belong_to_samples(ours: Mover) -> None:
    """The same row for the same key, in any batch; sizes are those that the moves give."""
    for rng, sizes, rand in batches(4):
        sizes = sizes + 20
        column = boxes_in(rng, sizes)
        params, after = ours.make_params(rand(), sizes, **_boxes(ours, column))
        for part in (np.arange(5), np.arange(5, BATCH), np.array([7])):
            some = Rand(7, 0, 0)
            some._root = some._keys = rand()._keys[part]
            parts, ends = ours.make_params(some, sizes[part], **_boxes(ours, [column[i] for i in part]))
            assert all(np.array_equal(values[part], parts[name]) for name, values in params.items())
            assert after is not None and ends is not None and np.array_equal(after[part], ends)
        if not isinstance(ours, T.ElasticTransform):
            found = sizes
            for move in ours.moves(params):
                found = move.sizes(found)
            assert after is not None and np.array_equal(found, after)


def _boxes(ours: Mover, column: list[Any]) -> dict[str, Any]:
    return {"boxes": Ragged.of(column)} if ours.needs_boxes else {}


def test_distributions() -> None:
    """Of windows, sizes, angles and corners, against torchvision's own numbers: Kolmogorov and Smirnov's distance."""
    n, size = 1500, (200, 300)
    sizes = np.tile(size, (n, 1))
    image = tv_tensors.Image(torch.empty(1, 1, 1).expand(1, *size))
    box = np.array([[60, 40, 160, 130], [10, 10, 40, 60]], np.float32)
    boxes = tv_tensors.BoundingBoxes(torch.from_numpy(box), format="XYXY", canvas_size=size)
    rand = Rand(5, 0, range(n))

    def window(params: dict[str, Any]) -> list[float]:
        keys = ("top", "left", "height", "width")
        return [params[key] for key in keys] if params else [0, 0, *size]

    def zoomed(params: dict[str, Any]) -> list[float]:
        left, top, right, bottom = params["padding"]
        return [-top, -left, top + size[0] + bottom, left + size[1] + right]

    def matrix(params: dict[str, Any]) -> list[float]:
        params = {"translate": [0, 0], "scale": 1.0, "shear": [0, 0]} | params
        middle = [size[1] / 2, size[0] / 2]
        found: list[float] = v2.functional._geometry._get_inverse_affine_matrix(middle, **params, inverted=False)
        return found

    def rotation(params: dict[str, Any]) -> list[float]:
        return matrix({"angle": -params["angle"]})

    def corners(params: dict[str, Any]) -> list[float]:
        coefficients: list[float] = params["coefficients"]
        return coefficients

    affine = dict(degrees=(-40, 70), translate=(0.1, 0.3), scale=(0.5, 2), shear=(-10, 20, 5, 9))
    zoom, jitter = dict(side_range=(1.0, 3.0)), dict(target_size=(100, 150))
    cases: list[tuple[Mover, Any, Callable[[Any], list[float]]]] = [
        (T.RandomIoUCrop(), v2.RandomIoUCrop(), window),
        (T.RandomZoomOut(**zoom, p=1.0), v2.RandomZoomOut(**zoom, p=1.0), zoomed),
        (T.ScaleJitter(**jitter), v2.ScaleJitter(**jitter), lambda params: list(params["size"])),
        (T.RandomRotation(35), v2.RandomRotation(35), rotation),
        (T.RandomAffine(**affine), v2.RandomAffine(**affine), matrix),
        (T.RandomPerspective(0.4, p=1.0), v2.RandomPerspective(0.4, p=1.0), corners),
    ]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for ours, wanted_of, numbers in cases:
            params, _ = ours.make_params(rand, sizes, **_boxes(ours, [box] * n))
            if "matrix" not in params:
                found = np.concatenate([params[key] for key in ("start", "shape", "size") if key in params], 1)
            else:
                found = np.linalg.inv(params["matrix"]) if params["matrix"].shape[1] == 3 else params["matrix"]
                found = (found / found[:, -1:, -1:] if found.shape[1] == 3 else found).reshape(n, -1)
            given = [image, boxes] if ours.needs_boxes else [image]
            wanted = np.array([numbers(wanted_of.make_params(given)) for _ in range(n // 3)])
            for column in range(wanted.shape[1]):
                assert distance(found[:, column], wanted[:, column]) < 0.1, (ours, column)


def distance(a: Any, b: Any) -> float:
    """The largest difference of the shares of values below any number; it exceeds 0.1 once in 1500 pairs like these."""
    values = np.sort(np.concatenate([a, b]))
    shares = [np.searchsorted(np.sort(each), values, side="right") / len(each) for each in (a, b)]
    return float(np.abs(shares[0] - shares[1]).max())


WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: T.Pad(None), "padding must be 1, 2 or 4 integers, none negative, got None"),
    (lambda: T.Pad(-1), "padding must be 1, 2 or 4 integers, none negative, got -1"),
    (lambda: T.Pad(1, padding_mode="wrap"), "padding_mode must be constant, edge, reflect or symmetric, got 'wrap'"),
    (lambda: T.Pad(1, fill="red"), "fill must be a number"),
    (lambda: T.Pad(1, fill={"picture": 3}), "fill must name kinds, which are image, video, mask, volume, others, got"),
    (lambda: T.RandomZoomOut(side_range=(0.5, 2)), "side_range must have 1 <= low <= high <= inf, got (0.5, 2)"),
    (lambda: T.RandomZoomOut(p=2), "p must be in [0, 1], got 2"),
    (lambda: T.RandomIoUCrop(0.5, 0.3), "min_scale and max_scale must have 0 <= low <= high <= 1, got (0.5, 0.3)"),
    (lambda: T.RandomIoUCrop(min_aspect_ratio=3), "min_aspect_ratio and max_aspect_ratio must have 0 <= low"),
    (lambda: T.RandomIoUCrop(sampler_options=[]), "sampler_options must be None or a list of numbers, got []"),
    (lambda: T.RandomIoUCrop(trials=0), "trials must be a positive int, got 0"),
    (lambda: T.ScaleJitter(300), "target_size must be two positive ints, got 300"),
    (lambda: T.ScaleJitter((3, 3), (2, 1)), "scale_range must have 0 <= low <= high <= inf, got (2, 1)"),
    (lambda: T.RandomShortestSize([]), "min_size must be a positive int, or a list of such, got []"),
    (lambda: T.RandomShortestSize("7"), "min_size must be a positive int, or a list of such, got '7'"),
    (lambda: T.RandomShortestSize(7, 0), "max_size must be a positive int or None, got 0"),
    (lambda: T.RandomResize(7, 7), "min_size and max_size must be ints with 0 < min_size < max_size, got 7 and 7"),
    (lambda: T.RandomResize(7, 9, "linear"), "interpolation must be one of bilinear, bicubic, nearest, nearest-exact"),
    (lambda: T.RandomRotation(-3), "degrees must be in [0, inf], got -3"),
    (lambda: T.RandomRotation((3, 1)), "degrees must have -inf <= low <= high <= inf, got (3, 1)"),
    (lambda: T.RandomRotation(3, "bicubic"), "interpolation must be nearest or bilinear, got 'bicubic'"),
    (lambda: T.RandomRotation(3, expand=1), "expand must be True or False, got 1"),
    (lambda: T.RandomRotation(3, center=4), "center must be (x, y) in pixels or None, got 4"),
    (lambda: T.RandomAffine(3, (0.1, 2)), "translate must be two numbers in [0, 1] or None, got (0.1, 2)"),
    (lambda: T.RandomAffine(3, scale=(0, 2)), "scale must be positive, got (0, 2)"),
    (lambda: T.RandomAffine(3, shear=(1, 2, 3)), "shear must be a number or (low, high), got (1, 2, 3)"),
    (lambda: T.RandomPerspective(1.5), "distortion_scale must be in [0, 1], got 1.5"),
    (lambda: T.ElasticTransform("much"), "alpha must be a number, or one for x and one for y, got 'much'"),
    (lambda: T.ElasticTransform(sigma=(0, 3)), "sigma must be positive, or 0 for no smoothing, got (0, 3)"),
    (lambda: T.SanitizeBoundingBoxes(0), "min_size must be a number of at least 1, got 0"),
    (lambda: T.SanitizeBoundingBoxes(1, None), "min_area must be a number of at least 1, got None"),
    (lambda: T.SanitizeBoundingBoxes(labels_getter=lambda sample: sample), "the fields of one group lose the same"),
    (lambda: T.SanitizeKeyPoints("labels"), "labels_getter must be 'default' or None, got 'labels'"),
    (lambda: T.ConvertBoundingBoxFormat("xxyy"), "format must be one of 'xyxy', 'xywh', 'cxcywh', got 'xxyy'"),
    (lambda: T.ClampBoundingBoxes("some"), "clamping_mode must be auto, soft, hard or None, got 'some'"),
    (lambda: T.RandomCrop3d((3, 4)), "size must be a positive int or (depth, height, width), got (3, 4)"),
    (lambda: T.CenterCrop3d(0), "size must be a positive int or (depth, height, width), got 0"),
    (lambda: T.RandomDepthFlip(-1), "p must be in [0, 1], got -1"),
    (lambda: T.FiveCrop(0), "size must be a positive int or (height, width), got 0"),
    (lambda: T.TenCrop(3, 1), "vertical_flip must be True or False, got 1"),
]


def test_wrong_arguments() -> None:
    """One sentence, at construction."""
    for wrong, message in WRONG:
        with pytest.raises((ValueError, TypeError)) as raised:
            pytest.fail(f"{wrong()!r} was accepted: {message}")
        assert message in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize("name", IN_NO_OTHER_TEST)
def test_arguments_are_torchvisions(name: str) -> None:
    """Names, order and defaults; test_transforms.py has the others."""

    def arguments(cls: type) -> list[tuple[str, Any]]:
        return [(one.name, one.default) for one in inspect.signature(cls).parameters.values()]

    assert arguments(getattr(T, name)) == arguments(getattr(v2, name))


# In the loader


def arrays(n: int = 5) -> list[Any]:
    """Images [H, W, C] of several sizes."""
    rng = np.random.default_rng(9)
    return [rng.integers(0, 256, (50 + 3 * i, 60 - 2 * i, 3), dtype=np.uint8) for i in range(n)]


def loader(transform: Any, columns: dict[str, Any], **arguments: Any) -> td.DataLoader:
    arguments = {"batch_size": 2, "seed": 3, "device": "cpu", "num_threads": 1, "output": "dict"} | arguments
    return td.DataLoader(td.InMemoryDataset(**columns), transform=transform, **arguments)


@pytest.mark.parametrize("transform", [T.RandomPerspective(), T.ElasticTransform()], ids=repr)
def test_transforms_without_a_form_in_dali(transform: Any) -> None:
    """In all engines, alone and after something that runs in DALI."""
    for steps in ([transform], [T.Resize((30, 40)), transform, T.RandomHorizontalFlip()]):
        made = [loader(T.Compose(steps), {"image": arrays()}, engine=engine) for engine in ENGINES]
        assert_same_stream(*(lambda one=one: one for one in made), epochs=2)
    with pytest.raises(ValueError, match="has only a CPU form and can't run before a function"):
        loader(T.Compose([transform, lambda sample, rand: sample]), {"image": arrays()})


@pytest.mark.parametrize("flip", [None, False, True])
def test_five_and_ten_crops(flip: bool | None) -> None:
    """The views are torchvision's crops, in its order."""
    size = (31, 20)
    ours: Any = T.FiveCrop(size) if flip is None else T.TenCrop(size, flip)
    wanted_of: Any = v2.FiveCrop(size) if flip is None else v2.TenCrop(size, flip)
    images = arrays()
    made = [loader(ours, {"image": images}, engine=engine) for engine in ENGINES]
    assert_same_stream(*(lambda one=one: one for one in made))
    found = [torch.stack(batch["image"], 1) for batch in made[0]]
    for views, image in zip(torch.cat(found), images, strict=True):
        wanted = wanted_of(torch.from_numpy(image).permute(2, 0, 1))
        assert torch.equal(views, torch.stack(list(wanted)))
    with pytest.raises(ValueError, match=r"a crop of \(31, 200\) needs an image of at least that size, got \(50, 60\)"):
        next(iter(loader(T.FiveCrop((31, 200)), {"image": images})))


@pytest.mark.parametrize("transform", [T.RandomIoUCrop(), T.SanitizeBoundingBoxes()], ids=repr)
def test_what_needs_boxes_says_so(transform: Any) -> None:
    name = type(transform).__name__
    with pytest.raises(
        ValueError, match=f"{name} acts on boxes, and the dataset has none: image; where they are plain"
    ):
        loader(transform, {"image": arrays()})


def png(image: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "PNG")
    return file.getvalue()


class Scenes(torch.utils.data.Dataset[dict[str, Any]]):
    """Images with boxes, a mask for each, and labels.

    Args:
        encoded: images are PNG files.
    """

    def __init__(self, encoded: bool = False) -> None:
        self.encoded = encoded
        rng = np.random.default_rng(10)
        self.images = arrays()
        self.boxes = boxes_in(rng, np.array([image.shape[:2] for image in self.images]))

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> dict[str, Any]:
        image, boxes = torch.from_numpy(self.images[i]).permute(2, 0, 1), torch.from_numpy(self.boxes[i])
        size = (image.shape[1], image.shape[2])
        masks = torch.zeros(len(boxes), *size, dtype=torch.uint8)
        for mask, (left, top, right, bottom) in zip(masks, boxes.round().int().tolist(), strict=True):
            mask[top:bottom, left:right] = 1
        return {
            "image": png(self.images[i]) if self.encoded else tv_tensors.Image(image),
            "boxes": tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=size),
            "labels": torch.arange(len(boxes)),
            "masks": tv_tensors.Mask(masks),
        }


def test_only_the_window_is_decoded_of_files() -> None:
    """RandomIoUCrop first: the pixels are those of decoded images."""
    transform = T.Compose([T.RandomIoUCrop(), T.RandomHorizontalFlip()])
    made = [
        td.DataLoader(Scenes(encoded), batch_size=2, seed=3, device="cpu", num_threads=1, transform=transform)
        for encoded in (True, False)
    ]
    assert made[0]._passes.plan().fused and not made[1]._passes.plan().fused
    for one, other in zip(*made, strict=True):
        for name in ("image", "boxes", "masks"):
            assert torch.equal(one[name].data, other[name].data) and torch.equal(one[name].sizes, other[name].sizes)


def test_volumes_in_the_loader() -> None:
    """A scan and its labels move alike, the same in all engines; two flips, a crop of images and one of volumes."""
    rng = np.random.default_rng(12)
    scans = [rng.integers(1, 100, (8 + i, 9, 10 - i), dtype=np.int16) for i in range(5)]
    columns = {"scan": scans, "labels": [scan.astype(np.uint8) for scan in scans]}
    kinds = {"scan": td.kinds.Volume(fill=-9), "labels": "volume"}
    steps = [T.RandomDepthFlip(), T.RandomHorizontalFlip(), T.CenterCrop((9, 7)), T.RandomCrop3d(8, pad_if_needed=True)]

    def make(**arguments: Any) -> td.DataLoader:
        return loader(T.Compose(steps), columns, kinds=kinds, output="tuple", **arguments)

    assert_same_stream(*(lambda engine=engine: make(engine=engine) for engine in ENGINES), epochs=2)
    moved = []
    for scan, labels in make():
        assert scan.shape == labels.shape == (len(scan), 8, 8, 8) and scan.dtype == torch.int16
        assert torch.equal(torch.where(scan == -9, 0, scan), labels.to(torch.int16)) and (scan == -9).any()
        moved += list(scan)
    one_by_one = [scan[0] for scan, _ in make(batch_size=1)]
    assert all(torch.equal(one, other) for one, other in zip(moved, one_by_one, strict=True))
    ragged = loader(T.CenterCrop(5), columns, kinds=kinds, output="tuple")
    for scan, _ in ragged:
        assert isinstance(scan, td.Padded) and scan.data.shape[2:] == (5, 5)
    for views in loader(T.Views([[T.RandomCrop3d(4)], [T.CenterCrop3d(4)]]), columns, kinds=kinds, output="tuple"):
        assert [tuple(view.shape[1:]) for view in views[0]] == [(4, 4, 4)] * 2


NEAR = {"interpolation": "nearest"}
COMBINED = {
    "apply": T.RandomApply([T.RandomRotation(40, expand=True), T.RandomResize(20, 30, **NEAR)], 0.5),
    "nested": T.RandomApply([T.RandomChoice([T.RandomCrop(9), T.RandomHorizontalFlip(1.0)]), T.Pad(3)], 0.7),
    "choice": T.RandomChoice([T.RandomCrop(20), T.ElasticTransform(10.0, 3.0, **NEAR), T.RandomVerticalFlip(1.0)]),
    "order": T.RandomOrder([T.RandomHorizontalFlip(), T.RandomAffine(30, scale=(0.5, 2)), T.RandomCrop(15)]),
}


@pytest.mark.parametrize("transform", COMBINED.values(), ids=COMBINED)
def test_combined_movers(transform: Any) -> None:
    """What lies in the picture moves as the picture does: a mask stays its first channel; a box, its corner."""
    images = arrays(6)
    for image in images:
        image[:20, :30, 1] = 255  # boxed
        image[20:, :, 1] = image[:, 30:, 1] = 0
    columns = {"image": images, "mask": [image[..., 0] for image in images], "boxes": [[[0, 0, 30, 20]]] * 6}
    columns["boxes"] = [np.array(box, np.float32) for box in columns["boxes"]]
    steps = T.Compose([transform, T.RandomVerticalFlip()])

    def make(**arguments: Any) -> td.DataLoader:
        return loader(steps, columns, kinds={"mask": "mask", "boxes": "boxes"}, output="list", **arguments)

    assert_same_stream(*(lambda engine=engine: make(engine=engine) for engine in ENGINES), epochs=2)
    found, alone = ([sample for batch in make(batch_size=n) for sample in zip(*batch, strict=True)] for n in (4, 1))
    for (image, mask, ((left, top, right, bottom),)), other in zip(found, alone, strict=True):
        assert torch.equal(image[0], mask) and torch.equal(image, other[0]) and torch.equal(mask, other[1])
        shown = torch.nonzero(image[1] == 255)
        if len(shown):
            low, high = shown.min(0).values, shown.max(0).values + 1
            assert top - 2 <= low[0] and left - 2 <= low[1] and high[0] <= bottom + 2 and high[1] <= right + 2


def test_what_combinations_refuse() -> None:
    for inner in (T.RandomIoUCrop(), T.SanitizeBoundingBoxes(), T.RandomCrop3d(3)):
        with pytest.raises(TypeError, match=f"RandomApply takes transforms of images, and {type(inner).__name__}"):
            T.RandomApply([inner])


WRONG_VOLUMES: list[tuple[Any, dict[str, Any], str]] = [
    (
        T.Resize(4),
        {"scan": "volume"},
        "Resize has no form for volumes, which 'scan' is: they can be cropped and flipped",
    ),
    (T.RandomRotation(4), {"scan": "volume"}, "RandomRotation has no form for volumes, which 'scan' is"),
    (T.RandomDepthFlip(), {}, "RandomDepthFlip acts on images, and the dataset has none: scan"),
    (T.Compose([lambda sample, rand: sample, T.RandomCrop3d(4)]), {"scan": "volume"}, "and can't follow a function"),
]


@pytest.mark.parametrize(("transform", "kinds", "message"), WRONG_VOLUMES, ids=lambda value: str(value)[:30])
def test_volumes_where_they_have_no_form(transform: Any, kinds: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        loader(transform, {"scan": volumes()}, kinds=kinds)


def test_volumes_beside_images() -> None:
    columns = {"image": arrays(3), "scan": volumes()}
    with pytest.raises(
        ValueError, match=r"'scan' is a volume, and lies in one scene with 'image': write kinds={'scan'"
    ):
        loader(T.RandomHorizontalFlip(), columns, kinds={"scan": "volume"})
    with pytest.raises(ValueError, match="RandomDepthFlip moves volumes, and 'image' is none"):
        loader(T.RandomDepthFlip(), columns, kinds={"scan": td.kinds.Volume(scene="b")})
    for batch in loader(T.RandomHorizontalFlip(1.0), columns, kinds={"scan": td.kinds.Volume(scene="b")}, batch_size=1):
        assert any(np.array_equal(batch["scan"][0].numpy(), np.flip(volume, 2)) for volume in volumes())


def test_sizes_that_vary_leave_padded() -> None:
    """In every batch, those of one sample too: no batch decides about a type."""
    several = [
        T.RandomZoomOut(),
        T.RandomResize(20, 40),
        T.RandomShortestSize([20, 30]),
        T.ScaleJitter((30, 30)),
        T.RandomRotation(30, expand=True),
    ]
    same = [np.zeros((30, 40, 3), np.uint8)] * 3
    for transform in several:
        for (images,) in loader(transform, {"image": same}, output="tuple"):
            assert isinstance(images, td.Padded)
        for (images,) in loader(T.Compose([transform, T.CenterCrop(20)]), {"image": same}, output="tuple"):
            assert isinstance(images, torch.Tensor)
    for transform in (T.Pad(3), T.RandomShortestSize(20), T.RandomRotation(30), T.RandomAffine(20)):
        for (images,) in loader(transform, {"image": same}, output="tuple"):
            assert isinstance(images, torch.Tensor)


def test_detections_chain() -> None:
    """Zoom, crop, scale, drop: images, masks, boxes and labels leave as one, the same in all engines and batches."""
    transform = T.Compose(
        [
            T.RandomZoomOut({"image": (123, 117, 104)}, (1.0, 1.5)),
            T.RandomIoUCrop(),
            T.RandomHorizontalFlip(),
            T.RandomShortestSize([40, 48], 80),
            T.SanitizeBoundingBoxes(),
            T.ConvertBoundingBoxFormat("cxcywh"),
        ]
    )

    def make(**arguments: Any) -> td.DataLoader:
        arguments = {"batch_size": 2, "seed": 3, "device": "cpu", "num_threads": 1} | arguments
        return td.DataLoader(Scenes(), transform=transform, **arguments)

    assert_same_stream(make, lambda: make(engine="pipeline"), lambda: make(engine="debug"), epochs=2)
    assert_same_stream(
        make,
        lambda: make(batch_size=5),
        lambda: [make(batch_size=1, rank=rank, world_size=2) for rank in range(2)],
        steps=False,
    )
    assert_resumes_exactly(make, epochs=1)
    total = 0
    for batch in make():
        for image, boxes, labels, masks in zip(
            *(batch[name].unbind() for name in ("image", "boxes", "labels", "masks")), strict=True
        ):
            assert len(boxes) == len(labels) == len(masks) and masks.shape[1:] == image.shape[1:]
            total += len(boxes)
            for (x, y, width, height), mask in zip(boxes.tolist(), masks, strict=True):
                across, down = (torch.nonzero(mask.any(axis)).flatten() for axis in (0, 1))
                edges = [across[0], down[0], across[-1] + 1, down[-1] + 1]
                assert np.allclose(edges, [x - width / 2, y - height / 2, x + width / 2, y + height / 2], atol=2.5)
    assert total > 5


def test_views_crop_around_their_own_objects() -> None:
    """Each view draws its window, and keeps the objects in it."""
    views = T.Views([[T.RandomIoUCrop(), T.SanitizeBoundingBoxes()]] * 2)
    differ = 0
    for batch in td.DataLoader(Scenes(), batch_size=1, seed=3, device="cpu", num_threads=1, transform=views):
        for image, boxes, labels, masks in zip(
            *(batch[key] for key in ("image", "boxes", "labels", "masks")), strict=True
        ):
            assert len(boxes.unbind()[0]) == len(labels.unbind()[0]) == len(masks.unbind()[0])
            size = image.unbind()[0].shape[1:]
            assert masks.unbind()[0].shape[1:] == size
            assert (boxes.unbind()[0][:, 2:] <= torch.tensor([size[1], size[0]])).all()
        differ += batch["image"][0].data.shape != batch["image"][1].data.shape
    assert differ


def test_crops_of_random_sizes() -> None:
    """As DETR draws them: both edges uniform within their range and the image, at a uniform place."""
    step, n = T.RandomSizeCrop(10, 25), 4000
    sizes = np.tile([[20, 60]], (n, 1))
    params, ends = step.make_params(Rand(0, 0, np.arange(n)), sizes)
    start, shape = params["start"], params["shape"]
    assert ends is not None and (ends == shape).all() and (start >= 0).all() and (start + shape <= sizes).all()
    for axis, most in enumerate((20, 25)):
        counts = np.bincount(shape[:, axis], minlength=most + 1)[10:]
        assert len(counts) == most - 9 and stats.chisquare(counts).pvalue > 1e-3
        places = start[:, axis] + np.random.default_rng(0).uniform(size=n)
        assert stats.kstest(places / (sizes[:, axis] - shape[:, axis] + 1), "uniform").pvalue > 1e-3
    (_, small) = step.make_params(Rand(0, 0, np.arange(3)), np.tile([[6, 12]], (3, 1)))
    assert small is not None and (small[:, 0] == 6).all() and (small[:, 1] >= 10).all()
    made = [loader(step, {"image": arrays()}, engine=engine) for engine in ENGINES]
    assert_same_stream(*(lambda one=one: one for one in made))
    with pytest.raises(ValueError, match="must be ints with 0 < min_size <= max_size, got 9 and 8"):
        T.RandomSizeCrop(9, 8)
