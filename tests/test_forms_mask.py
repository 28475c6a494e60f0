"""The form of masks against torchvision's v2 functions: the same bits, for all moves."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torchvision import tv_tensors
from torchvision.transforms.v2 import functional as F

from torchdali.forms.mask import move_mask
from torchdali.moves import Affine, Crop, Flip, Resize, Warp

from .random_moves import (
    affine_of,
    by_torchvision,
    one_thread,  # noqa: F401
    random_field,
    random_linear,
    random_moves,
    random_perspective,
)

DTYPES = ["uint8", "int32", "int64", "bool", "float32"]


def random_mask(rng, size, dtype, instances=None):
    shape = (*(() if instances is None else (instances,)), *size)
    return rng.integers(0, 2 if dtype == "bool" else 255, shape).astype(dtype)


def check(rng, dtype, rounds):
    for _ in range(rounds):
        sizes = rng.integers(8, 120, (8, 2))
        moves, after = random_moves(rng, sizes)
        for i, size in enumerate(sizes):
            mask = random_mask(rng, size, dtype, None if i % 2 else int(rng.integers(0, 4)))
            before = mask.copy()
            ours = move_mask(mask, moves, i)
            assert ours.dtype == dtype
            assert ours.shape == (*mask.shape[:-2], *after[i])
            if mask.size:
                theirs = by_torchvision(tv_tensors.Mask(torch.from_numpy(mask)), moves, i).numpy()
                np.testing.assert_array_equal(ours, theirs, err_msg=f"sample {i} of {moves}")
            np.testing.assert_array_equal(mask, before)


@pytest.mark.parametrize("dtype", DTYPES)
def test_moves_are_torchvisions(dtype):
    check(np.random.default_rng([1, DTYPES.index(dtype)]), dtype, rounds=8)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_thousands_of_moves_are_torchvisions(dtype):
    check(np.random.default_rng([2, DTYPES.index(dtype)]), dtype, rounds=40)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fill", [0, 1])
def test_affine_moves_perspectives_and_warps_are_torchvisions(dtype, fill):
    rng = np.random.default_rng(3)
    for size in rng.integers(8, 120, (12, 2)).tolist():
        mask = random_mask(rng, size, dtype, 2)
        theirs = tv_tensors.Mask(torch.from_numpy(mask))
        arguments, matrix = random_linear(rng, size)
        ours = move_mask(mask, [affine_of([matrix], [size])], 0, fill)
        np.testing.assert_array_equal(ours, F.affine(theirs, **arguments, fill=fill).numpy())
        points, matrix = random_perspective(rng, size)
        ours = move_mask(mask, [affine_of([matrix], [size])], 0, fill)
        np.testing.assert_array_equal(ours, F.perspective(theirs, *points, fill=fill).numpy())
        warp = Warp([random_field(rng, size)], fill={"mask": fill})
        ours = move_mask(mask, [warp], 0)
        field = torch.from_numpy(warp.displacement[0])[None]
        np.testing.assert_array_equal(ours, F.elastic(theirs, field, fill=fill).numpy())


def test_chains_with_affine_moves_are_torchvisions():
    rng = np.random.default_rng(4)
    for _ in range(40):
        sizes = rng.integers(8, 90, (1, 2))
        mask = random_mask(rng, sizes[0], "uint8")
        theirs = tv_tensors.Mask(torch.from_numpy(mask))
        moves = []
        for _ in range(2):
            some, sizes = random_moves(rng, sizes, most=2)
            theirs = by_torchvision(theirs, some, 0)
            arguments, matrix = random_linear(rng, sizes[0])
            theirs = F.affine(theirs, **arguments, fill=0)
            moves += [*some, affine_of([matrix], sizes)]
        some, sizes = random_moves(rng, sizes, most=2)
        ours = move_mask(mask, [*moves, *some], 0)
        np.testing.assert_array_equal(ours, by_torchvision(theirs, some, 0).numpy())


def test_each_move_fills_with_its_own_value():
    rng = np.random.default_rng(5)
    mask = random_mask(rng, (6, 7), "int64")
    moves = [
        Crop([[-2, -1]], [[10, 9]], fill={"mask": 255}),
        Affine(random_linear(rng, (10, 9))[1][None], [[10, 9]], fill={"image": 9, "mask": 77}),
        Crop([[-1, 3]], [[9, 9]], fill={"image": 1}),
    ]
    value = F.pad(tv_tensors.Mask(torch.from_numpy(mask)), [1, 2, 1, 2], fill=255)
    rng = np.random.default_rng(5)
    random_mask(rng, (6, 7), "int64")
    value = F.affine(value, **random_linear(rng, (10, 9))[0], fill=77)
    value = F.pad(value, [0, 1, 3, 0], fill=5)[..., :9, 3:12]
    ours = move_mask(mask, moves, 0, fill=5)
    np.testing.assert_array_equal(ours, value.numpy())
    assert {255, 77, 5} <= set(np.unique(ours).tolist())
    corners = [Crop([[-1, 0]], [[7, 7]], fill={"mask": 254}), Crop([[0, -1]], [[7, 8]], fill={"mask": 253})]
    assert move_mask(mask, corners, 0)[0, 0] == 253  # the later one
    mirror = affine_of([np.array([[-1.0, 0, 8], [0, 1, 0]])], [[7, 8]])
    np.testing.assert_array_equal(move_mask(mask, [*corners, mirror], 0), move_mask(mask, corners, 0)[:, ::-1])
    corners = [mirror, *corners[::-1], mirror]
    assert move_mask(mask, corners, 0)[0, -1] == 254


@pytest.mark.parametrize("mode", ["edge", "reflect", "symmetric"])
def test_borders_are_torchvisions(mode):
    rng = np.random.default_rng(6)
    for dtype in ("uint8", "int64", "bool"):
        mask = random_mask(rng, (9, 12), dtype)
        left, top, right, bottom = 5, 3, 7, 8
        theirs = F.pad(tv_tensors.Mask(torch.from_numpy(mask)), [left, top, right, bottom], padding_mode=mode)
        window = Crop([[-top, -left]], [[9 + top + bottom, 12 + left + right]], padding_mode=mode)
        np.testing.assert_array_equal(move_mask(mask, [window], 0, fill=9), theirs.numpy())


def test_nearest_exact_is_torchs():
    rng = np.random.default_rng(7)
    for size, after in zip(rng.integers(3, 90, (40, 2)).tolist(), rng.integers(3, 90, (40, 2)).tolist()):
        mask = random_mask(rng, size, "uint8")
        ours = move_mask(mask, [Resize([after], "nearest-exact")], 0)
        theirs = torch.nn.functional.interpolate(torch.from_numpy(mask)[None, None], after, mode="nearest-exact")
        np.testing.assert_array_equal(ours, theirs[0, 0].numpy())


def test_large_ids_stay_exact():
    """torchvision's go through float32, which holds 2**24: panoptic ids are larger."""
    mask = np.full((5, 5), 2**40 + 1)
    size = np.array([[9, 9]])
    moves = [Resize(size), affine_of([np.array([[0.0, -1, 9], [1, 0, 0]])], size), Flip(1, np.array([True]))]
    assert (move_mask(mask, moves, 0) == 2**40 + 1).all()


def test_masks_with_more_pixels_than_float32_counts(monkeypatch):
    rng = np.random.default_rng(9)
    mask = random_mask(rng, (30, 40), "uint8")
    moves = [affine_of([random_linear(rng, (30, 40))[1]], [[30, 40]])]
    ours = move_mask(mask, moves, 0, fill=9)
    monkeypatch.setattr("torchdali.native.sample.COUNTABLE", 9)  # the kernel in C counts further than torch's
    np.testing.assert_array_equal(move_mask(mask, moves, 0, fill=9), ours)
    monkeypatch.setattr("torchdali.forms.grid.COUNTABLE", 9)
    np.testing.assert_array_equal(move_mask(mask, moves, 0, fill=9), ours)


def test_samples_without_objects():
    size = [[9, 12]]
    mask = np.zeros((0, 9, 12), np.uint8)
    turn = affine_of([np.array([[0.0, -1, 9], [1, 0, 0]])], size)
    for moves in ([turn], [Crop([[-1, -1]], [[20, 20]])], [turn, Resize([[20, 20]])]):
        assert move_mask(mask, moves, 0).shape == (0, *moves[-1].sizes(np.array(size))[0])


def test_samples_with_the_identity_are_left_alone():
    rng = np.random.default_rng(8)
    mask = random_mask(rng, (9, 12), "uint8")
    moves = [affine_of([np.eye(3)], [[9, 12]]), affine_of([np.eye(3)[:2]], [[9, 12]]), Warp([None])]
    assert np.shares_memory(move_mask(mask, moves, 0), mask)  # not even copied
