"""Outlines of objects: run lengths against pycocotools, and polygons against moved masks."""

from __future__ import annotations

import sys
import warnings

import numpy as np
import pytest
from pycocotools import mask as coco

from torchdali.forms.mask import move_mask
from torchdali.forms.polygons import decode_runs, draw_polygons
from torchdali.moves import Crop, Flip, Resize, Warp

from .random_moves import affine_of, linear, random_field


def random_polygon(rng, size, vertices=12):
    height, width = size
    angle, radius = np.sort(rng.uniform(0, 2 * np.pi, vertices)), rng.uniform(0.3, 0.9, vertices)
    points = np.stack([width / 2 * (1 + radius * np.cos(angle)), height / 2 * (1 + radius * np.sin(angle))], 1)
    return points.ravel().tolist()


def by_coco(polygons, size):
    height, width = map(int, size)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # pycocotools' own, of numpy 2
        return coco.decode(coco.merge(coco.frPyObjects(polygons, height, width)))


def random_blobs(rng, size):
    """A mask of squares."""
    small = rng.random((size[0] // 6 + 1, size[1] // 6 + 1)) < rng.uniform(0.05, 0.9)
    return np.kron(small, np.ones((6, 6)))[: size[0], : size[1]].astype(np.uint8)


def test_run_lengths_are_pycocotools():
    rng = np.random.default_rng(0)
    for size in rng.integers(1, 300, (60, 2)).tolist():
        mask = random_blobs(rng, size)
        runs = coco.encode(np.asfortranarray(mask))
        np.testing.assert_array_equal(decode_runs(runs, size), mask)
        np.testing.assert_array_equal(decode_runs({**runs, "counts": runs["counts"].decode()}, size), mask)
        flat = mask.T.ravel()
        ends = np.flatnonzero(np.diff(flat, prepend=0, append=1 - flat[-1]))
        plain = {"size": size, "counts": np.diff(ends, prepend=0).tolist()}
        np.testing.assert_array_equal(decode_runs(plain, size), mask)


@pytest.mark.parametrize(
    "runs, words",
    [
        ({"size": [4, 5]}, r"a dict of 'size' and 'counts', got the keys \['size'\]"),
        ({"size": [5, 4], "counts": [20]}, r"of an image of \[5, 4\], but this one is \[4, 5\]"),
        ({"size": [4, 5], "counts": [19]}, "must add up to 20, got 19"),
        ({"size": [4, 5], "counts": [30, -10]}, "must add up to 20"),
        ({"size": [4, 5], "counts": b"P"}, "end in the middle of a number"),
        ({"size": [4, 5], "counts": b""}, "end in the middle of a number"),
    ],
)
def test_damaged_run_lengths_are_refused(runs, words):
    with pytest.raises(ValueError, match=words):
        decode_runs(runs, [4, 5])


def test_polygons_that_stay_are_pycocotools():
    rng = np.random.default_rng(1)
    size = (60, 80)
    one, two, three = (random_polygon(rng, size) for _ in range(3))
    drawn = draw_polygons([[one], [two, three], [np.reshape(three, (-1, 2))], []], size, [], 0)
    assert drawn.dtype == np.uint8
    np.testing.assert_array_equal(
        drawn[:3], [by_coco([one], size), by_coco([two, three], size), by_coco([three], size)]
    )
    assert not drawn[3].any()
    assert draw_polygons([], size, [], 0).shape == (0, 60, 80)


def test_moved_polygons_are_moved_masks_but_for_their_edges():
    """A flip is W - x: the mask of a flipped polygon is the flipped mask."""
    rng = np.random.default_rng(2)
    size = np.array([[120, 160]])
    polygons = [[random_polygon(rng, size[0])] for _ in range(5)]
    whole = np.stack([by_coco(polygon, size[0]) for polygon in polygons])
    for axis in (0, 1):
        flip = [Flip(axis, np.array([True]))]
        assert iou(draw_polygons(polygons, size[0], flip, 0), move_mask(whole, flip, 0)) > 0.995
    overlaps = []
    for _ in range(20):
        window = Crop(rng.integers(-20, 40, (1, 2)), rng.integers(60, 140, (1, 2)))
        after = rng.integers(80, 200, (1, 2))
        turn = affine_of([linear(30, scale=1.2, size=after[0])], after)
        moves = [window, Resize(after), Flip(1, np.array([True])), *([turn] if len(overlaps) % 2 else [])]
        drawn = draw_polygons(polygons, size[0], moves, 0)
        assert drawn.shape == (5, *after[0])
        overlaps.append(iou(drawn, move_mask(whole, moves, 0)))
    assert min(overlaps) > 0.93  # a mask that is moved keeps the stairs of its old pixels


def iou(a, b):
    return (a & b).sum() / max((a | b).sum(), 1)


def test_a_square_by_hand():
    square = [[2, 1, 6, 1, 6, 4, 2, 4]]  # columns 2 to 5, rows 1 to 3
    (drawn,) = draw_polygons([square], (5, 8), [], 0)
    assert drawn.sum(0).tolist() == [0, 0, 3, 3, 3, 3, 0, 0]
    (flipped,) = draw_polygons([square], (5, 8), [Flip(1, [True])], 0)
    np.testing.assert_array_equal(flipped, drawn[:, ::-1])
    window = [Crop([[0, 3]], [[3, 7]]), Resize([[6, 14]])]
    (moved,) = draw_polygons([square], (5, 8), window, 0)
    assert moved.sum(0).tolist() == [4] * 6 + [0] * 8


def test_run_lengths_and_what_is_no_polygon_move_as_masks():
    rng = np.random.default_rng(3)
    size = (40, 50)
    mask = random_blobs(rng, size)
    runs = coco.encode(np.asfortranarray(mask))
    polygon = random_polygon(rng, size)
    moves = [Crop([[-3, 5]], [[50, 40]]), Resize([[33, 44]]), Flip(1, [True])]
    drawn = draw_polygons([runs, [polygon]], size, moves, 0)
    np.testing.assert_array_equal(drawn[0], move_mask(mask, moves, 0))
    assert drawn[1].any()
    for move in (Warp([random_field(rng, size, 0.05)]), Crop([[-5, -5]], [[50, 60]], padding_mode="reflect")):
        drawn = draw_polygons([runs, [polygon]], size, [move], 0)
        whole = np.stack([mask, by_coco([polygon], size)])
        np.testing.assert_array_equal(drawn, move_mask(whole, [move], 0))


def test_polygons_without_an_inside_are_left_out():
    drawn = draw_polygons([[[1, 1, 5, 5]], [[1, 1], [1, 1, 5, 1, 5, 5]]], (8, 8), [], 0)
    assert not drawn[0].any()  # pycocotools would take four numbers for a box
    assert drawn[1].any()


@pytest.mark.parametrize("outline", [[[1, 2, 3]], [[[1, 2, 3]]], 7, ["a"], [None]])
def test_what_is_no_outline_is_refused(outline):
    with pytest.raises(ValueError, match="outline must be a list of polygons"):
        draw_polygons([outline], (8, 8), [], 0)


def test_a_batchs_row_is_chosen():
    polygon = [[0, 0, 4, 0, 4, 4, 0, 4]]
    moves = [Resize(np.array([[4, 4], [8, 8]])), Crop(np.array([[0, 0], [2, 2]]), np.array([[4, 4], [6, 5]]))]
    assert draw_polygons([polygon], (4, 4), moves, 0).tolist() == np.ones((1, 4, 4)).tolist()
    assert draw_polygons([polygon], (4, 4), moves, 1).shape == (1, 6, 5)


def test_without_pycocotools_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pycocotools", None)
    with pytest.raises(ImportError, match=r"pip install 'torchdali\[coco\]'"):
        draw_polygons([[[0, 0, 4, 0, 4, 4]]], (4, 4), [], 0)
    runs = {"size": [4, 4], "counts": [3, 13]}
    assert draw_polygons([runs], (4, 4), [], 0).sum() == 13  # run lengths need no package
