"""The form of points against torchvision's v2 functions, and what torchvision doesn't know: visibility and swaps."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torchvision import tv_tensors
from torchvision.transforms.v2 import functional as F

from torchdali.forms.points import clamp_points, keep_points, move_points
from torchdali.moves import Crop, Flip, Resize, Warp
from torchdali.ragged import Ragged

from .random_moves import (
    affine_of,
    by_torchvision,
    linear,
    one_thread,  # noqa: F401
    random_field,
    random_linear,
    random_moves,
    random_perspective,
)

DTYPES = ["float32", "float64", "int64"]
SHAPES = [(2,), (5, 2)]


def random_points(rng, sizes, shape, dtype):
    points = [rng.uniform(-0.1, 1.1, (int(rng.integers(0, 5)), *shape)) * [w, h] for h, w in sizes]
    return Ragged.of([part.astype(dtype) for part in points])


def as_tv(points, size):
    return tv_tensors.KeyPoints(torch.from_numpy(points), canvas_size=tuple(map(int, size)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_moves_are_torchvisions(shape, dtype):
    check(np.random.default_rng([1, len(shape), DTYPES.index(dtype)]), shape, dtype, rounds=3)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_thousands_of_moves_are_torchvisions(shape, dtype):
    check(np.random.default_rng([2, len(shape), DTYPES.index(dtype)]), shape, dtype, rounds=25)


def check(rng, shape, dtype, rounds):
    for _ in range(rounds):
        sizes = rng.integers(8, 120, (24, 2))
        points = random_points(rng, sizes, shape, dtype)
        moves, after = random_moves(rng, sizes)
        moved = move_points(points, sizes, moves)
        assert moved.data.dtype == dtype
        kept = np.split(keep_points(moved, after), np.cumsum(moved.counts)[:-1])
        clamped = clamp_points(moved, after).split()
        for i, (before, ours) in enumerate(zip(points.split(), moved.split())):
            theirs = by_torchvision(as_tv(before, sizes[i]), moves, i)
            np.testing.assert_array_equal(ours, theirs.numpy(), err_msg=f"sample {i} of {moves}")
            np.testing.assert_array_equal(clamped[i], F.clamp_keypoints(theirs).numpy())
            np.testing.assert_array_equal(kept[i], F.sanitize_keypoints(theirs)[1].numpy())


@pytest.mark.parametrize("dtype", DTYPES)
def test_warps_are_torchvisions(dtype):
    rng = np.random.default_rng(3)
    sizes = rng.integers(8, 60, (20, 2))
    points = random_points(rng, sizes, (5, 2), dtype)
    moves = [Warp([random_field(rng, size) for size in sizes])]
    for i, (before, ours) in enumerate(zip(points.split(), move_points(points, sizes, moves).split())):
        np.testing.assert_array_equal(ours, by_torchvision(as_tv(before, sizes[i]), moves, i).numpy())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_linear_maps_are_torchvisions_but_for_rounding(dtype):
    """By two roundings of float32 at most, of points up to 2048 pixels: nothing clamps them."""
    rng = np.random.default_rng(4)
    sizes = rng.integers(20, 800, (60, 2))
    points = random_points(rng, sizes, (5, 2), dtype)
    most = 2.0**-12 if dtype == "float32" else 1e-9
    drawn = [random_linear(rng, size) for size in sizes]
    ours = move_points(points, sizes, [affine_of([matrix for _, matrix in drawn], sizes)]).split()
    for before, after, size, (arguments, _) in zip(points.split(), ours, sizes, drawn):
        np.testing.assert_allclose(after, F.affine(as_tv(before, size), **arguments).numpy(), rtol=0, atol=most)
    drawn = [random_perspective(rng, size) for size in sizes]
    ours = move_points(points, sizes, [affine_of([matrix for _, matrix in drawn], sizes)]).split()
    for before, after, size, (corners, _) in zip(points.split(), ours, sizes, drawn):
        np.testing.assert_allclose(after, F.perspective(as_tv(before, size), *corners).numpy(), rtol=0, atol=most)


def test_visibility_stays_and_unmarked_points_stay_where_they_are():
    person = np.array([[[3, 4, 2], [0, 0, 0], [7, 8, 1]]], np.int64)  # COCO's: x, y, visibility
    points, sizes = Ragged.of([person, person]), np.array([[10, 20], [10, 20]])
    moves = [
        Crop(np.array([[1, 2]] * 2), np.array([[8, 12]] * 2)),
        Resize(np.array([[16, 24]] * 2)),
        Flip(0, np.array([False, True])),
    ]
    first, second = move_points(points, sizes, moves).split()
    assert first.tolist() == [[[2, 6, 2], [0, 0, 0], [10, 14, 1]]]
    assert second.tolist() == [[[2, 9, 2], [0, 0, 0], [10, 1, 1]]]
    assert keep_points(Ragged.of([first, second]), np.array([[16, 24], [16, 10]])).tolist() == [True, False]
    assert clamp_points(Ragged.of([second]), np.array([[9, 9]])).data.tolist() == [[[2, 8, 2], [0, 0, 0], [8, 1, 1]]]


def test_a_horizontal_flip_swaps_left_and_right():
    eyes = np.array([[[2, 5, 2], [6, 5, 1], [4, 7, 2]]], np.float32)
    points, sizes = Ragged.of([eyes, eyes, eyes[:0]]), np.array([[10, 10]] * 3)
    flip = Flip(1, np.array([True, False, True]))
    moved = move_points(points, sizes, [flip], swap=[(0, 1)]).split()
    assert moved[0].tolist() == [[[3, 5, 1], [7, 5, 2], [5, 7, 2]]]
    assert moved[1].tolist() == eyes.tolist()
    assert move_points(points, sizes, [Flip(0, flip.on)], swap=[(0, 1)]).data[0, :, 2].tolist() == [2, 1, 2]
    assert move_points(points, sizes, [flip, flip], swap=[(0, 1)]).data.tolist() == points.data.tolist()
    with pytest.raises(ValueError, match=r"pairs of the 3 points of each row, from 0 to 2, got \(0, 3\)"):
        move_points(points, sizes, [flip], swap=[(0, 3)])


def test_samples_with_the_identity_are_left_alone():
    rng = np.random.default_rng(5)
    sizes = np.array([[40, 60], [50, 30]])
    points = random_points(rng, [(40, 60), (50, 30)], (2,), "int64")
    points = Ragged(points.data + 2**30 + 1, points.counts)  # more than float32 holds
    moved = move_points(points, sizes, [affine_of([np.eye(3)[:2], linear(30, size=(50, 30))], sizes)])
    same = (moved.data == points.data).all(1)
    assert same.tolist() == (points.owner == 0).tolist()
    assert 0 < same.sum() < len(same)


def test_no_points_at_all():
    sizes = np.array([[5, 6], [7, 8]])
    for shape in ((0, 2), (0, 3), (0, 4, 2), (0, 4, 3)):
        none = Ragged(np.zeros(shape, np.float32), np.array([0, 0]))
        moves = [Flip(1, np.array([True, False])), Resize(sizes * 2), Warp([np.zeros((10, 12, 2)), None])]
        moves.append(affine_of([np.eye(3)] * 2, sizes))
        swap = [(1, 2)] if len(shape) == 3 else []
        assert move_points(none, sizes, moves, swap).data.shape == shape
        assert keep_points(none, sizes).shape == (0,)
        assert clamp_points(none, sizes).data.shape == shape


def test_other_shapes_are_refused():
    for data in (np.zeros((3, 4)), np.zeros(3)):
        with pytest.raises(ValueError, match=r"points must be \[m, 2\], \[m, k, 2\] or \[m, k, 3\], got \[3"):
            move_points(Ragged(data, np.array([3])), np.array([[4, 4]]), [])
