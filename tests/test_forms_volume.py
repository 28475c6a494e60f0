"""The form of volumes: windows and flips, against numpy's pad and slices."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from torchdali.forms import image
from torchdali.forms.boxes import move_boxes
from torchdali.forms.mask import move_mask
from torchdali.forms.points import move_points
from torchdali.forms.volume import move_volume
from torchdali.moves import Crop, Crop3d, Flip, Resize
from torchdali.ragged import Ragged


def by_numpy(volume, start, shape, fill):
    """A window of the last three dimensions."""
    room = 40
    padded = np.pad(volume, [(0, 0)] * (volume.ndim - 3) + [(room, room)] * 3, constant_values=fill)
    return padded[(..., *(slice(room + s, room + s + n) for s, n in zip(start, shape)))]


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32"])
def test_windows_and_flips(dtype):
    rng = np.random.default_rng(0)
    for channels in ((), (2,)):
        for _ in range(30):
            size = rng.integers(3, 20, 3)
            volume = rng.integers(0, 100, (*channels, *size)).astype(dtype)
            start, shape = rng.integers(-8, 10, (2, 3)), rng.integers(1, 25, (2, 3))
            flat = rng.integers(-8, 10, (2, 2)), rng.integers(1, 25, (2, 2))
            on = [rng.integers(0, 2, 2).astype(bool) for _ in range(3)]
            flips = [Flip(axis, values) for axis, values in zip((-1, 0, 1), on)]
            moves = [Crop3d(start, shape), flips[0], Crop(*flat, fill={"volume": 7}), *flips[1:]]
            before = volume.copy()
            ours = move_volume(volume, moves, 1, fill=3)
            theirs = by_numpy(volume, start[1], shape[1], 3)
            theirs = np.flip(theirs, -3) if on[0][1] else theirs
            theirs = by_numpy(theirs, [0, *flat[0][1]], [shape[1, 0], *flat[1][1]], 7)
            theirs = np.flip(theirs, [axis for axis, values in ((-2, on[1]), (-1, on[2])) if values[1]])
            assert ours.dtype == dtype
            np.testing.assert_array_equal(ours, theirs)
            np.testing.assert_array_equal(volume, before)


def test_a_window_inside_is_a_view():
    volume = np.zeros((6, 7, 8), np.float32)
    moves = [Crop3d(np.array([[1, 2, 3]]), np.array([[4, 4, 4]])), Flip(-1, np.array([True]))]
    assert np.shares_memory(move_volume(volume, moves, 0), volume)
    assert moves[0].sizes(np.array([[7, 8]])).tolist() == [[4, 4]]
    assert moves[0].sizes(np.array([[6, 7, 8]])).tolist() == [[4, 4, 4]]


def test_other_moves_are_refused():
    with pytest.raises(ValueError, match="cropped and flipped, but not moved by Resize"):
        move_volume(np.zeros((6, 7, 8)), [Resize(np.array([[4, 4]]))], 0)


def test_nothing_else_has_depths():
    sizes = np.array([[4, 4]])
    for move in (Crop3d(np.zeros((1, 3), int), np.ones((1, 3), int)), Flip(-1, np.array([True]))):
        for word, form in {
            "mask": lambda move: move_mask(np.zeros((6, 7, 8)), [move], 0),
            "box": lambda move: move_boxes(Ragged.of([np.zeros((1, 4))]), "xyxy", sizes, [move]),
            "point": lambda move: move_points(Ragged.of([np.zeros((1, 2))]), sizes, [move]),
            "image": lambda move: image.move_on_host(torch.zeros(3, 4, 4), move),
            "video": lambda move: image.move_on_host(torch.zeros(2, 3, 4, 4), move),
        }.items():
            with pytest.raises(ValueError, match=rf"a {word} has no depth, and {type(move).__name__} moves it"):
                form(move)
        assert not image.has_dali_form(move)
