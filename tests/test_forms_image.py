"""The forms of images: on the host against torchvision's v2 functions, and DALI's against those on the host."""

from __future__ import annotations

import hashlib
import itertools
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as F

from torchdali import _dali
from torchdali.forms.image import has_dali_form, move_on_dali, move_on_host
from torchdali.moves import Affine, Crop, Flip, Resize, Warp

from .random_moves import (
    affine_of,
    by_torchvision,
    linear,
    one_sample,
    one_thread,  # noqa: F401
    random_field,
    random_linear,
    random_moves,
    random_perspective,
)

FILLS = [None, 0, 7, (1, 2, 3)]


def random_image(rng, size, dtype="uint8", channels=3):
    """[H, W, C]."""
    values = rng.integers(0, 256, (*size, channels))
    return (values if dtype == "uint8" else values / 255).astype(dtype)


def as_chw(image):
    return torch.from_numpy(image).permute(2, 0, 1)  # channels last in memory, as the engine has it


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_moves_are_torchvisions(dtype):
    rng = np.random.default_rng(0)
    for _ in range(40):
        sizes = rng.integers(8, 90, (2, 2))
        moves, _ = random_moves(rng, sizes)
        image = as_chw(random_image(rng, sizes[1], dtype, int(rng.choice([1, 3]))))
        ours = image
        for move in moves:
            ours = move_on_host(ours, one_sample(move, 1))
        np.testing.assert_array_equal(ours.numpy(), by_torchvision(tv_tensors.Image(image), moves, 1).numpy())


LAYOUTS = {
    "channels last": lambda x: x,
    "planar": lambda x: x.contiguous(),
    "window": lambda x: torch.cat([x, x], -1).movedim(-3, -1).contiguous().movedim(-1, -3)[..., : x.shape[-1]],
}


def resized_digest():
    """Of images and videos of uint8 after a resize, of all layouts and numbers of channels."""
    digest = hashlib.sha256()
    sizes = [(1, 7), (9, 1), (13, 40), (64, 33), (50, 50)]
    for before, after, channels in itertools.product(sizes, sizes, (1, 2, 3, 4, 5)):
        number = np.arange(2 * before[0] * before[1] * channels, dtype=np.uint64) * np.uint64(2654435761)
        clip = torch.from_numpy((number >> np.uint64(13)).astype(np.uint8).reshape(2, *before, channels))
        for mode, antialias, layout in itertools.product(("bilinear", "bicubic"), (True, False), LAYOUTS.values()):
            move = Resize(after, mode, antialias)
            for image in (layout(clip.movedim(-1, -3)), layout(clip[0].movedim(-1, -3))):
                digest.update(move_on_host(image, move).contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


RESIZED = "e23fef86dfb270a7"


def test_resized_uint8_is_the_same_on_every_cpu():
    assert resized_digest() == RESIZED


@pytest.mark.slow
@pytest.mark.processes
def test_resized_uint8_is_the_same_by_torchs_plain_kernels():
    """Those of a CPU without AVX2, and of ARM."""
    script = "from tests.test_forms_image import resized_digest; print(resized_digest())"
    settings = {**os.environ, "ATEN_CPU_CAPABILITY": "default"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=200, env=settings)
    assert done.stdout.strip() == RESIZED, done.stderr


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("channels", [1, 3])
def test_an_image_that_becomes_one_column(layout, channels):
    """torch's own kernels mix the pixels of planar and of grey images up there."""
    image = random_image(np.random.default_rng(2), (30, 20), channels=channels)
    theirs = [Image.fromarray(image[..., c]).resize((1, 11), Image.Resampling.BILINEAR) for c in range(channels)]
    ours = move_on_host(LAYOUTS[layout](as_chw(image)), Resize([11, 1]))
    np.testing.assert_allclose(ours.numpy().astype(int), np.stack(theirs).astype(int), atol=1)
    ours = move_on_host(LAYOUTS[layout](as_chw(image).float()), Resize([11, 1]))
    np.testing.assert_allclose(ours.numpy(), np.stack(theirs), atol=1.5)


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
def test_affine_moves_perspectives_and_warps_are_torchvisions(dtype, mode, fill):
    """Those of float64 but for rounding: a matrix and its inverse differ in the last bits."""
    rng = np.random.default_rng(1)
    check = partial(np.testing.assert_allclose, rtol=0, atol=1e-9 if dtype == "float64" else 0)
    for size in rng.integers(8, 120, (6, 2)).tolist():
        image = as_chw(random_image(rng, size, dtype))
        options = {"interpolation": InterpolationMode(mode), "fill": fill}
        own = {"interpolation": mode, "fill": fill}
        arguments, matrix = random_linear(rng, size)
        ours = move_on_host(image, Affine(matrix.tolist(), size, **own))
        check(ours.numpy(), F.affine(image, **arguments, **options).numpy())
        angle = float(rng.uniform(-180, 180))
        ours = move_on_host(image, Affine(linear(-angle, size=size).tolist(), size, **own))
        check(ours.numpy(), F.rotate(image, angle, **options).numpy())
        points, matrix = random_perspective(rng, size)
        ours = move_on_host(image, Affine(matrix.tolist(), size, **own))
        check(ours.numpy(), F.perspective(image, *points, **options).numpy())
        field = random_field(rng, size)
        ours = move_on_host(image, Warp(field, **own))
        check(ours.numpy(), F.elastic(image, torch.from_numpy(field)[None], **options).numpy())


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_an_expanded_rotation_is_torchvisions(mode):
    """The result's size is another, and its middle is the image's."""
    rng = np.random.default_rng(2)
    for size in rng.integers(8, 120, (10, 2)):
        image, angle = as_chw(random_image(rng, size)), float(rng.uniform(-180, 180))
        theirs = F.rotate(image, angle, interpolation=InterpolationMode(mode), expand=True, fill=9)
        matrix = linear(-angle, size=size)
        matrix[:, 2] += (np.array(theirs.shape[-2:]) - size)[::-1] / 2
        ours = move_on_host(image, Affine(matrix.tolist(), list(theirs.shape[-2:]), mode, 9))
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def test_samples_with_the_identity_are_left_alone():
    image = as_chw(random_image(np.random.default_rng(3), (9, 12)))
    for matrix in (np.eye(3), np.eye(3)[:2]):
        assert move_on_host(image, Affine(matrix.tolist(), [9, 12])) is image
        assert move_on_host(image, Affine(matrix.tolist(), [9, 13])).shape == (3, 9, 13)
    assert move_on_host(image, Warp(None)) is image


def test_a_field_of_another_size_is_refused():
    image = as_chw(random_image(np.random.default_rng(4), (9, 12)))
    with pytest.raises(ValueError, match=r"displacement must be \[9, 12, 2\], got \[12, 9, 2\]"):
        move_on_host(image, Warp(np.zeros((12, 9, 2), np.float32)))


def test_a_bicubic_move_stays_in_its_range():
    rng = np.random.default_rng(5)
    image = as_chw((random_image(rng, (40, 50)) > 127).astype(np.uint8) * 255)
    turned = move_on_host(image, Affine(linear(20, scale=2.5, size=(40, 50)).tolist(), [40, 50], "bicubic"))
    smooth = move_on_host(image.float(), Affine(linear(20, scale=2.5, size=(40, 50)).tolist(), [40, 50], "bicubic"))
    assert smooth.min() < -5  # it overshoots, and would wrap around
    np.testing.assert_array_equal(turned.numpy(), smooth.clamp(0, 255).round().to(torch.uint8).numpy())


def test_which_moves_dali_has():
    window, linear_map = Crop(None, None), np.eye(3)[:2]
    assert all(map(has_dali_form, [window, Resize(None), Flip(1, None), Affine(linear_map, None, "bilinear", 7)]))
    assert not has_dali_form(Crop(None, None, padding_mode="reflect"))
    assert not has_dali_form(Affine(np.eye(3), None))
    assert not has_dali_form(Affine(linear_map, None, "bicubic"))
    assert not has_dali_form(Affine(linear_map, None, fill={"image": (1, 2, 3)}))
    assert not has_dali_form(Warp(None))


def on_dali(images, move, layout="HWC"):
    """Results of one eager move of a batch."""
    session = _dali.Session(1, torch.device("cpu"))
    with session:
        fed = {
            name: _dali.as_batch(value.astype(np.float32 if name in ("matrix", "size") else np.int32))
            for name, value in vars(move).items()
            if isinstance(value, np.ndarray)
        }
        ops = _dali.DynamicOps("cpu")
        ops.frames = layout == "FHWC"
        batch = move_on_dali(ops, _dali.as_batch(images, layout=layout), replace(move, **fed))
        return [np.array(array) for array in _dali.Output(batch).arrays()]


def test_crops_and_flips_of_dali_are_the_hosts():
    rng = np.random.default_rng(6)
    sizes = rng.integers(20, 60, (8, 2))
    images = [random_image(rng, size) for size in sizes]
    for move in (
        Crop(rng.integers(-5, 15, (8, 2)), rng.integers(10, 50, (8, 2)), fill=(1, 2, 3)),
        Crop(rng.integers(-5, 15, (8, 2)), rng.integers(10, 50, (8, 2)), fill={"image": 9, "mask": 3}),
        Flip(0, rng.integers(0, 2, 8)),
        Flip(1, rng.integers(0, 2, 8)),
    ):
        for i, ours in enumerate(on_dali(images, move)):
            host = move_on_host(as_chw(images[i]), one_sample(move, i)).permute(1, 2, 0)
            np.testing.assert_array_equal(ours, host.numpy())


@pytest.mark.parametrize("mode, fill", [("nearest", 0), ("nearest", 127), ("bilinear", 0), ("bilinear", 127)])
def test_affine_moves_of_dali_are_near_the_hosts(mode, fill):
    """Bilinear by a level at most; by nearest one pixel in a thousand may be its neighbour.

    Edges are left out: there torchvision blends with the fill twice.
    """
    rng = np.random.default_rng(7)
    sizes = rng.integers(40, 160, (8, 2))
    images = [random_image(rng, size) for size in sizes]
    matrices = [random_linear(rng, size)[1] for size in sizes]
    move = affine_of(matrices, sizes, interpolation=mode, fill=fill)
    differ = total = 0
    for i, ours in enumerate(on_dali(images, move)):
        host = move_on_host(as_chw(images[i]), one_sample(move, i)).permute(1, 2, 0).numpy()
        difference = np.abs(ours.astype(int) - host)
        inside, outside = places(matrices[i], sizes[i])
        assert inside.any()
        assert (ours[outside] == fill).all()
        assert (host[outside] == fill).all()
        differ += (difference[inside] > 0).sum()
        total += difference[inside].size
        if mode == "bilinear":
            assert difference[inside].max() <= 1
    assert differ / total < (1e-3 if mode == "nearest" else 0.03)


def places(matrix, size):
    """Masks of the pixels that come from well inside of an image, and from well outside."""
    height, width = size
    y, x = np.mgrid[:height, :width] + 0.5
    inverse = np.linalg.inv(np.vstack([matrix, [0, 0, 1]]))
    from_x, from_y, _ = np.einsum("ij,jhw->ihw", inverse, np.stack([x, y, np.ones_like(x)]))
    inside = (from_x > 1.5) & (from_x < width - 1.5) & (from_y > 1.5) & (from_y < height - 1.5)
    outside = (from_x < -1) | (from_x > width + 1) | (from_y < -1) | (from_y > height + 1)
    return inside, outside


def random_video(rng, size, dtype="uint8"):
    """[F, H, W, C]."""
    return np.stack([random_image(rng, size, dtype) for _ in range(3)])


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_videos_move_by_torchvisions_kernels(dtype):
    rng = np.random.default_rng(8)
    for _ in range(15):
        sizes = rng.integers(8, 70, (2, 2))
        moves, after = random_moves(rng, sizes)
        clip = torch.from_numpy(random_video(rng, sizes[1], dtype)).permute(0, 3, 1, 2)
        ours = clip
        for move in moves:
            ours = move_on_host(ours, one_sample(move, 1))
        theirs = by_torchvision(tv_tensors.Video(clip), moves, 1)
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
        arguments, matrix = random_linear(rng, after[1])
        turned = move_on_host(ours, Affine(matrix.tolist(), after[1].tolist(), "bilinear", {"video": 7}))
        theirs = F.affine(theirs, **arguments, interpolation=InterpolationMode.BILINEAR, fill=7)
        np.testing.assert_array_equal(turned.numpy(), theirs.numpy())
        field = random_field(rng, after[1])
        turned = move_on_host(ours, Warp(field, "nearest", fill={"image": 7}))
        theirs = F.elastic(ours, torch.from_numpy(field)[None], interpolation=InterpolationMode.NEAREST, fill=7)
        np.testing.assert_array_equal(turned.numpy(), theirs.numpy())


def test_videos_of_dali_move_as_their_frames():
    """All moves, frame by frame as the image forms of DALI."""
    rng = np.random.default_rng(9)
    sizes = rng.integers(20, 60, (4, 2))
    clips = [random_video(rng, size) for size in sizes]
    for move in (
        Crop(rng.integers(-5, 15, (4, 2)), rng.integers(10, 50, (4, 2)), fill=(1, 2, 3)),
        Resize(rng.integers(10, 50, (4, 2))),
        Flip(0, rng.integers(0, 2, 4)),
        Flip(1, rng.integers(0, 2, 4)),
        affine_of([random_linear(rng, size)[1] for size in sizes], sizes, interpolation="bilinear", fill=9),
    ):
        whole = on_dali(clips, move, "FHWC")
        for frame in range(3):
            for ours, one in zip(whole, on_dali([clip[frame] for clip in clips], move)):
                np.testing.assert_array_equal(ours[frame], one)
