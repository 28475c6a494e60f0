"""The form of polygons and run lengths: outlines of objects, which leave as masks [K, H, W].

Polygons are moved as vertices and drawn once, at the size that leaves, as detectron2 does: a fifth of the time that it
takes to draw them whole and move the masks.  Run lengths (COCO's crowds) are decoded and moved as masks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..moves import Affine, Crop, Flip, Move, Resize, Warp
from .mask import move_mask
from .points import apply_matrix


def draw_polygons(objects: Sequence[Any], size: Sequence[int], moves: Sequence[Move], i: int) -> NDArray[np.uint8]:
    """Move one sample's objects and draw them: uint8 [K, H, W] of 0 and 1, of the size after the moves.

    Args:
        objects: for each a list of polygons (flat [2 v] or [v, 2], in pixels about the corner), which all belong to
            it, or COCO's run lengths {"size": [H, W], "counts": a list, a string or bytes}.
        size: height and width of the image before the moves.
        moves: of the batch, with one row per sample.
        i: the sample's row.

    Raises:
        ValueError: an object is neither, or its run lengths are of another size.
        ImportError: no pycocotools, which draws polygons.
    """
    sizes = np.array([size], np.int64)
    for move in moves:
        sizes = move.sizes(sizes) if isinstance(move, (Flip, Warp)) else np.asarray(move.sizes(sizes))[i : i + 1]
    height, width = (int(edge) for edge in sizes[0])
    late = _stay_outlines(moves)
    masks = np.zeros((len(objects), height, width), np.uint8)
    polygons: list[NDArray[np.float64]] = []
    owner: list[int] = []
    for k, outline in enumerate(objects):
        if isinstance(outline, dict):
            masks[k] = move_mask(decode_runs(outline, size), moves, i)
            continue
        parts = as_polygons(outline)
        if late:
            polygons += parts
            owner += [k] * len(parts)
        else:
            masks[k] = move_mask(_draw(parts, [0] * len(parts), 1, int(size[0]), int(size[1]))[0], moves, i)
    if polygons:
        drawn = _draw(_moved(polygons, size, moves, i), owner, len(objects), height, width)
        np.maximum(masks, drawn, out=masks)
    return masks


def move_polygons(objects: Sequence[Any], size: Sequence[int], moves: Sequence[Move], i: int) -> list[Any]:
    """Move one sample's objects, and keep them outlines: polygons [v, 2], or run lengths where they were such.

    Where a move has no form for outlines, all become run lengths.

    Args: as those of `draw_polygons`.
    """
    late = _stay_outlines(moves)
    moved: list[Any] = []
    for outline in objects:
        if late and not isinstance(outline, dict):
            parts = as_polygons(outline)
            moved.append(_moved(parts, size, moves, i) if parts else [])
        else:
            moved.append(encode_runs(draw_polygons([outline], size, moves, i)[0]))
    return moved


def encode_runs(mask: NDArray[np.uint8]) -> dict[str, Any]:
    """Make COCO's plain run lengths of a mask [H, W] of 0 and 1."""
    values = np.concatenate([[0], mask.T.ravel() != 0, [2]])
    edges = np.flatnonzero(np.diff(values))
    return {"size": list(mask.shape), "counts": np.diff(edges, prepend=0).tolist()}


def _stay_outlines(moves: Sequence[Move]) -> bool:
    """Whether outlines are outlines after these moves: neither a bent edge nor a mirrored border is a polygon."""
    return not any(isinstance(move, Warp) or getattr(move, "padding_mode", "constant") != "constant" for move in moves)


def as_polygons(outline: Any) -> list[NDArray[np.float64]]:
    """Give an object's polygons as float64 [v, 2]; those of fewer than three vertices have no inside, and are left out.

    Raises:
        ValueError: it is no list of polygons.
    """
    try:
        parts = [np.asarray(part, np.float64) for part in outline]
        if any(part.ndim not in (1, 2) or (part.ndim == 2 and part.shape[1] != 2) or part.size % 2 for part in parts):
            raise ValueError("of another shape")
    except (TypeError, ValueError) as error:
        raise ValueError(
            "an object's outline must be a list of polygons, flat [x, y, x, y, ...] or [v, 2], or run lengths "
            f'{{"size": [H, W], "counts": ...}}, got {type(outline).__name__}: {str(outline)[:80]}'
        ) from error
    return [part.reshape(-1, 2) for part in parts if part.size >= 6]


def decode_runs(runs: dict[str, Any], size: Sequence[int]) -> NDArray[np.uint8]:
    """Decode COCO's run lengths, plain or compressed: uint8 [H, W].

    Args:
        runs: {"size": [H, W], "counts": ...}; the runs go down the columns, and begin with zeros.
        size: what H and W must be.

    Raises:
        ValueError: they are no run lengths, or of another size.
    """
    if {"size", "counts"} - set(runs):
        raise ValueError(f"run lengths must be a dict of 'size' and 'counts', got the keys {sorted(map(str, runs))}")
    height, width = (int(edge) for edge in runs["size"])
    if (height, width) != (int(size[0]), int(size[1])):
        raise ValueError(f"run lengths are of an image of [{height}, {width}], but this one is {list(map(int, size))}")
    counts = runs["counts"]
    if isinstance(counts, (str, bytes)):
        counts = _decompress(counts.encode() if isinstance(counts, str) else counts)
    counts = np.asarray(counts, np.int64)
    if counts.ndim != 1 or (counts < 0).any() or counts.sum() != height * width:
        raise ValueError(f"run lengths of [{height}, {width}] must add up to {height * width}, got {counts.sum()}")
    values = (np.arange(len(counts)) & 1).astype(np.uint8)
    return np.repeat(values, counts).reshape(width, height).T


def _decompress(text: bytes) -> NDArray[np.int64]:
    """Undo pycocotools' compression (`rleFrString` of its maskApi.c): groups of five bits, and differences."""
    codes = np.frombuffer(text, np.uint8).astype(np.int64) - 48
    ends = np.flatnonzero((codes & 32) == 0)
    if not len(ends) or ends[-1] != len(codes) - 1:
        raise ValueError("compressed run lengths end in the middle of a number")
    starts = np.concatenate([[0], ends[:-1] + 1])
    digit = np.arange(len(codes)) - np.repeat(starts, ends - starts + 1)
    values = np.add.reduceat((codes & 31) << (5 * digit), starts)
    values -= np.where(codes[ends] & 16, 1 << (5 * (ends - starts + 1)), 0)
    # From the fourth on a number is stored as its difference from the one two before.
    counts = values.copy()
    counts[1::2] = np.cumsum(values[1::2])
    counts[2::2] = np.cumsum(values[2::2])
    return counts


def _moved(
    polygons: list[NDArray[np.float64]], size: Sequence[int], moves: Sequence[Move], i: int
) -> list[NDArray[np.float64]]:
    """Move all polygons of a sample; their coordinates count corners of pixels, as boxes' do, so a flip is W - x."""
    vertices = np.concatenate(polygons)
    here = np.array(size, np.float64)
    for move in moves:
        if isinstance(move, Crop):
            vertices = vertices - np.asarray(move.start[i])[::-1]
            here = np.asarray(move.shape[i], np.float64)
        elif isinstance(move, Resize):
            after = np.asarray(move.size[i], np.float64)
            vertices = vertices * (after / here)[::-1]
            here = after
        elif isinstance(move, Flip):
            if move.axis in (0, 1) and move.on[i]:
                vertices = vertices.copy()
                vertices[:, 1 - move.axis] = here[move.axis] - vertices[:, 1 - move.axis]
        elif isinstance(move, Affine):
            vertices = apply_matrix(vertices[None], np.asarray(move.matrix[i])[None])[0]
            here = np.asarray(move.size[i], np.float64)
    return np.split(vertices, np.cumsum([len(polygon) for polygon in polygons])[:-1])


def _draw(polygons: list[NDArray[np.float64]], owner: list[int], k: int, height: int, width: int) -> NDArray[np.uint8]:
    """Draw polygons [v, 2] as masks of their objects: uint8 [k, height, width]."""
    try:
        from pycocotools import mask as coco
    except ImportError as error:
        raise ImportError("polygons are drawn by pycocotools, as COCO's are: pip install 'torchdali[coco]'") from error
    masks = np.zeros((k, height, width), np.uint8)
    if polygons:
        runs = coco.frPyObjects([polygon.ravel() for polygon in polygons], height, width)
        per_object: dict[int, list[Any]] = {}
        for number, run in zip(owner, runs):
            per_object.setdefault(number, []).append(run)
        for number, parts in per_object.items():
            masks[number] = decode_runs(coco.merge(parts) if len(parts) > 1 else parts[0], (height, width))
    return masks
