"""Random moves for batches, and torchvision's v2 functions that do the same to one sample."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as F

from torchdali.moves import Affine, Crop, Flip, Resize, Warp


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Small images: on a busy machine torch's threads take several times as long to meet as to compute."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def random_moves(rng, sizes, most=4):
    """One to `most` moves of crop, padding, resize and flip; moves and the sizes after them."""
    n, moves = len(sizes), []
    for _ in range(int(rng.integers(1, most + 1))):
        word = rng.choice(["crop", "pad", "resize", "left-right", "upside-down"])
        if word == "crop":
            shape = np.maximum((sizes * rng.uniform(0.3, 1.2, (n, 2))).astype(np.int64), 1)
            # Never wholly outside: torchvision gives images of another shape there.
            most_start = np.minimum(np.maximum(sizes - shape, 0) + 9, sizes)
            move = Crop(rng.integers(-np.minimum(9, shape - 1), most_start), shape)
        elif word == "pad":
            before, after = rng.integers(0, 20, (2, n, 2))
            move = Crop(-before, sizes + before + after)
        elif word == "resize":
            move = Resize(np.where(rng.random((n, 1)) < 0.1, sizes, rng.integers(5, 90, (n, 2))))
        else:
            move = Flip(int(word == "left-right"), rng.random(n) < 0.5)
        moves.append(move)
        sizes = move.sizes(sizes)
    return moves, sizes


def by_torchvision(value, moves, i):
    """Move sample i's tv_tensor."""
    for move in moves:
        if isinstance(move, Crop):
            (top, left), (height, width) = np.asarray(move.start)[i].tolist(), np.asarray(move.shape)[i].tolist()
            value = F.crop(value, top, left, height, width)
        elif isinstance(move, Resize):
            mode = InterpolationMode(move.interpolation)
            value = F.resize(value, move.size[i].tolist(), interpolation=mode, antialias=move.antialias)
        elif isinstance(move, Flip):
            if move.on[i]:
                value = (F.horizontal_flip if move.axis else F.vertical_flip)(value)
        elif isinstance(move, Warp):
            field = torch.from_numpy(move.displacement[i])[None]
            value = F.elastic(value, field, interpolation=InterpolationMode(move.interpolation), fill=move.fill)
        else:
            raise AssertionError(move)
    return value


def linear(angle=0.0, translate=(0, 0), scale=1.0, shear=(0.0, 0.0), *, size):
    """The matrix [2, 3] of torchvision's `affine` about the middle of an image (height, width)."""
    from torchvision.transforms.functional import _get_inverse_affine_matrix

    height, width = size
    numbers = _get_inverse_affine_matrix(
        [width * 0.5, height * 0.5], angle, list(translate), scale, list(shear), inverted=False
    )
    return np.array(numbers, np.float64).reshape(2, 3)


def random_linear(rng, size):
    """Arguments of torchvision's `affine`, and the matrix [2, 3] that they are."""
    height, width = size
    arguments = {
        "angle": float(rng.uniform(-180, 180)),
        "translate": [int(rng.integers(-width, width)) // 4, int(rng.integers(-height, height)) // 4],
        "scale": float(rng.uniform(0.5, 1.5)),
        "shear": rng.uniform(-30, 30, 2).tolist(),
    }
    return arguments, linear(**arguments, size=size)


def random_perspective(rng, size):
    """torchvision's start and end points, and the matrix [3, 3] from start to end."""
    from torchvision.transforms.functional import _get_perspective_coeffs

    height, width = size
    start = [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]
    shift = rng.integers(0, [max(width // 4, 1), max(height // 4, 1)], (4, 2))
    end = (np.array(start) + shift * [[1, 1], [-1, 1], [-1, -1], [1, -1]]).tolist()
    inverse = np.array([*_get_perspective_coeffs(start, end), 1.0]).reshape(3, 3)
    matrix = np.linalg.inv(inverse)
    return (start, end), matrix / matrix[2, 2]


def random_field(rng, size, most=0.2):
    """A displacement float32 [H, W, 2]."""
    return rng.uniform(-most, most, (*size, 2)).astype(np.float32)


def affine_of(matrices, sizes, **options):
    """One Affine of a batch."""
    return Affine(np.stack(matrices), np.asarray(sizes, np.int64), **options)


def one_sample(move, i):
    """The move of sample i, with the plain numbers and lists that host forms take."""
    rows = {name: value[i].tolist() for name, value in vars(move).items() if isinstance(value, np.ndarray)}
    return replace(move, **rows)
