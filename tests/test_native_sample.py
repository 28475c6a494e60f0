"""The kernel in C that samples: the bits of torch's `grid_sample` and of torchvision around it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as F

import torchdali as td
from torchdali import transforms as T
from torchdali.forms import grid
from torchdali.forms.image import move_on_host
from torchdali.moves import Affine
from torchdali.native import sample as native
from torchdali.transforms.operations import Geometric

from .test_native import needs_kernel

MODES = ("nearest", "bilinear")


agrees = pytest.mark.skipif(
    native._kernel() is None or not native._multiplies_plainly(),
    reason="there is no kernel, or torch's rounds otherwise on this CPU",
)


@pytest.fixture
def theirs(monkeypatch):
    """Calls a function while there is no kernel."""

    def call(function, *args):
        with monkeypatch.context() as patch:
            patch.setattr(native, "_kernel", lambda: None)
            return function(*args)

    return call


def draw_image(rng, case):
    channels = 3 if case % 4 else int(rng.integers(1, 5))
    height, width = rng.integers(1, 90 if case % 3 else 6, 2)
    image = torch.from_numpy(rng.integers(0, 256, (height, width, channels), dtype=np.uint8)).permute(2, 0, 1)
    return image.contiguous() if case % 5 == 0 else image


def draw_fill(rng, image):
    values = rng.integers(0, 256, len(image)).tolist()
    return [None, 0, values[0], [float(value) for value in values], values[0] / 2][int(rng.integers(5))]


def draw_matrix(rng, case, size, result):
    """From image to result: turns by any angle or quarters, shears, scales, whole moves; or with a perspective."""
    angle = rng.uniform(-math.pi, math.pi) if case % 4 else math.pi / 2 * case
    scale, shear = math.exp(rng.uniform(-1, 1)) if case % 3 else 1.0, rng.uniform(-0.5, 0.5) if case % 5 == 1 else 0.0
    linear = scale * np.array([[math.cos(angle), -math.sin(angle) + shear], [math.sin(angle), math.cos(angle)]])
    shift = np.array(result[::-1]) / 2 - linear @ (np.array(size[::-1]) / 2)
    shift += rng.integers(-9, 9, 2) if case % 2 else rng.uniform(-9, 9, 2)
    matrix = np.concatenate([linear, shift[:, None]], 1)
    return matrix if case % 7 else np.concatenate([matrix, [[*rng.uniform(-0.004, 0.004, 2), 1.0]]])


@agrees
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_moves_have_torchs_bits(mode, seed, theirs):
    """300 matrices, also with a perspective, and 3,000 in the long form."""
    rng = np.random.default_rng(seed)
    for case in range(3000 if seed else 300):
        image = draw_image(rng, case)
        size = tuple(image.shape[1:])
        result = tuple(rng.integers(1, 90, 2).tolist()) if case % 2 else size
        move, fill = Affine(draw_matrix(rng, case, size, result), np.array(result), mode, 0), draw_fill(rng, image)
        ours = grid.move_sampled(image, move, fill)
        assert torch.equal(ours, theirs(grid.move_sampled, image, move, fill)), case


@agrees
@pytest.mark.parametrize("mode", MODES)
def test_grids_have_torchs_bits(mode, theirs):
    """Any places, also far outside and such that are no numbers."""
    rng = np.random.default_rng(0)
    for case in range(200):
        image, (height, width) = draw_image(rng, case), rng.integers(1, 300 if case % 9 == 0 else 60, 2)
        places = torch.from_numpy(rng.uniform(-1.4, 1.4, (1, height, width, 2)).astype(np.float32))
        if case % 3 == 0:
            places[torch.rand(places.shape, generator=torch.Generator().manual_seed(case)) < 0.02] = 1e30
        fill = draw_fill(rng, image)
        assert native.takes(image, mode)
        assert torch.equal(grid.sample(image, places, mode, fill), theirs(grid.sample, image, places, mode, fill)), case
    places[0, 0, 0], places[0, -1, -1] = math.nan, math.inf
    grid.sample(image, places, mode, 3)  # torch's own result depends on the CPU


@agrees
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", Geometric.names)
def test_operations_have_torchvisions_bits(name, mode):
    rng = np.random.default_rng(len(name))
    for case in range(60):
        image = torch.from_numpy(rng.integers(0, 256, (*rng.integers(1, 80, 2), 3), dtype=np.uint8)).permute(2, 0, 1)
        fill = draw_fill(rng, image)
        strength = {"S": 0.9, "T": 40.0, "R": 200.0}[name[0]] * float(rng.uniform(-1, 1))
        strength = 90.0 * (case % 5 - 2) if name == "Rotate" and case % 4 == 0 else strength
        step = Geometric(mode, fill, whole=case % 2 == 0)
        kind, given = InterpolationMode(mode), None if fill is None else step.fill_values()
        if name == "Rotate":
            expected = F.rotate_image(image, strength, kind, fill=given)
        else:
            shear, shift, center = [0.0, 0.0], [0.0, 0.0], None
            if name[0] == "S":
                shear[name == "ShearY"], center = math.degrees(math.atan(strength)), [0, 0]
            else:
                shift[name == "TranslateY"] = int(strength) if case % 2 == 0 else strength
            expected = F.affine_image(image, 0.0, shift, 1.0, shear, kind, given, center)
        assert torch.equal(step.apply(image, name, strength), expected), (case, strength)


@agrees
def test_nearest_pixels_are_those_of_torch(theirs):
    rng = np.random.default_rng(0)
    for case in range(200):
        size, result = rng.integers(1, 90 if case % 3 else 6, (2, 2)).tolist()
        matrix = draw_matrix(rng, case, size, result)
        move = Affine(matrix, np.array(result), "nearest", 0)
        ours, other = grid.nearest_pixels(move, tuple(size)), theirs(grid.nearest_pixels, move, tuple(size))
        assert ours.dtype == other.dtype and np.array_equal(ours, other)
    still = Affine(np.eye(3)[:2], np.array(size), "nearest", 0)
    assert grid.nearest_pixels(still, tuple(size)) is None


@agrees
@pytest.mark.parametrize("mode", MODES)
def test_a_large_image(mode, theirs):
    image = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (1201, 1500, 3), dtype=np.uint8))
    for case in (3, 7):
        matrix = draw_matrix(np.random.default_rng(case), case, (1201, 1500), (1333, 1402))
        given = (image.permute(2, 0, 1), Affine(matrix, np.array([1333, 1402]), mode, 0), [3.0])
        assert torch.equal(grid.move_sampled(*given), theirs(grid.move_sampled, *given))


@agrees
def test_videos(theirs):
    video = torch.randint(0, 256, (2, 4, 3, 20, 30), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    move = Affine(np.array([[0.8, 0.3, 2.0], [-0.3, 0.8, 5.0]]), np.array([25, 28]), "bilinear", 0)
    ours = grid.move_sampled(video, move, [9.0])
    assert ours.shape == (2, 4, 3, 25, 28) and torch.equal(ours, theirs(grid.move_sampled, video, move, [9.0]))


@pytest.mark.parametrize("kernels", ["1", "0"])
@pytest.mark.parametrize("interpolation", MODES)
@pytest.mark.parametrize(
    ("fill", "message"),
    [([1, 2], "fill has 2 values, and the image 3 channels"), (300, r"fill must be in \[0, 255\] for uint8 images")],
)
def test_a_wrong_fill(fill, message, interpolation, kernels, monkeypatch):
    if kernels == "0":
        monkeypatch.setattr(native, "_kernel", lambda: None)
    image, size = torch.zeros(3, 8, 9, dtype=torch.uint8), np.array([8, 9])
    move = Affine(np.array([[0.8, 0.3, 2.0], [-0.3, 0.8, 5.0]]), size, interpolation, fill)
    with pytest.raises(ValueError, match=message):
        move_on_host(image, move)
    with pytest.raises(ValueError, match=message):
        Geometric(interpolation, fill).apply(image, "ShearX", 0.2)


@needs_kernel
def test_what_every_torch_gives(monkeypatch):
    """Pixels that stay, move by whole pixels or lie outside: no rounding decides, so they hold where it is not used."""
    monkeypatch.setattr(native, "_agrees", lambda call: True)
    monkeypatch.setattr(native, "_multiplies_plainly", lambda: True)
    native._kernel.cache_clear()
    try:
        image = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (32, 64, 3), dtype=np.uint8)).permute(
            2, 0, 1
        )
        shift = Affine(np.array([[1.0, 0, 5], [0, 1, -3]]), np.array([32, 64]), "nearest", 0)
        moved = torch.full_like(image, 7)
        moved[:, :29, 5:] = image[:, 3:, :-5]
        for mode in MODES:
            still = torch.nn.functional.affine_grid(torch.eye(3)[None, :2], (1, 3, 32, 64), align_corners=False)
            assert native.takes(image, mode)
            assert torch.equal(native.sampled(image, still, (32, 64), mode, None), image)
        assert torch.equal(grid.move_sampled(image, shift, [7.0]), moved)
        numbers = np.arange(32 * 64).reshape(32, 64)
        pixels = grid.nearest_pixels(shift, (32, 64))
        assert (pixels[:29, 5:] == numbers[3:, :-5]).all() and (pixels[29:] == -1).all() and (pixels[:, :5] == -1).all()
    finally:
        native._kernel.cache_clear()


@needs_kernel
def test_it_is_compared_with_torchs_before_it_is_used(monkeypatch):
    """A torch whose numbers differ in the last bit would give other pixels without it: then it is not used."""
    real = torch.nn.functional.grid_sample
    monkeypatch.setattr(torch.nn.functional, "grid_sample", lambda *a, **k: real(*a, **k) * (1 + 2**-23))
    native._kernel.cache_clear()
    try:
        assert native._kernel() is None
        assert not native.takes(torch.zeros(3, 4, 5, dtype=torch.uint8), "nearest")
    finally:
        native._kernel.cache_clear()


def test_a_product_that_is_fused_is_left_to_torch(monkeypatch, theirs):
    image = torch.arange(60, dtype=torch.uint8).view(3, 4, 5)
    move = Affine(np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]), np.array([5, 4]), "nearest", 0)
    monkeypatch.setattr(native, "_multiplies_plainly", lambda: False)
    assert torch.equal(grid.move_sampled(image, move, None), theirs(grid.move_sampled, image, move, None))


@pytest.mark.parametrize(
    ("image", "mode"),
    [
        pytest.param(torch.rand(3, 5, 6), "nearest", id="floats"),
        pytest.param(torch.ones(5, 5, 6, dtype=torch.uint8), "nearest", id="five channels"),
        pytest.param(torch.ones(3, 0, 6, dtype=torch.uint8), "nearest", id="empty"),
        pytest.param(torch.ones(3, 5, 6, dtype=torch.uint8), "bicubic", id="bicubic"),
        pytest.param(torch.ones(3, 5, 6, dtype=torch.uint8, device="meta"), "nearest", id="elsewhere"),
    ],
)
def test_what_the_kernel_can_not_do_is_left_to_torch(image, mode):
    assert not native.takes(image, mode)


TRANSFORMS = {
    "RandomRotation": T.Compose([T.RandomRotation(40, expand=True), T.CenterCrop(30)]),
    "RandomAffine": T.RandomAffine(30, (0.2, 0.2), (0.5, 2), 20, "bilinear", 7),
    "RandomPerspective": T.RandomPerspective(p=0.8),
    "ElasticTransform": T.ElasticTransform(),
    "RandAugment": T.RandAugment(),
    "TrivialAugmentWide": T.TrivialAugmentWide(),
}


@needs_kernel
@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_loader_makes_the_same_batches_without_it(name, monkeypatch):
    data = td.InMemoryDataset(image=np.random.default_rng(0).integers(0, 256, (24, 40, 44, 3), dtype=np.uint8))

    def batches():
        return [images.clone() for (images,) in td.DataLoader(data, 8, shuffle=True, transform=TRANSFORMS[name])]

    with_it = batches()
    monkeypatch.setattr(native, "_kernel", lambda: None)
    for ours, other in zip(with_it, batches(), strict=True):
        assert torch.equal(ours, other)
