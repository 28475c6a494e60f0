"""Functions on typed samples: what they see and return, the kinds of new fields, and single samples in torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torchvision import tv_tensors

import torchdali as td
from torchdali import kinds
from torchdali import transforms as T
from torchdali.testing import assert_same_stream

SEED, N = 3, 12

KINDS = {"target.masks": kinds.Mask(group="target"), "target.outlines": kinds.Polygons(group="target")}


class Scenes:
    """Images with a map of ids, and boxes, labels, points, masks and outlines of objects; a third has none."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> Any:
        rng = np.random.default_rng(index)
        height, width = rng.integers(30, 60, 2).tolist()
        m, size = int(rng.integers(1, 4)) if index % 3 else 0, (height, width)
        corners = np.sort(rng.uniform(0, 1, (m, 2, 2)), 1) * [width, height]
        boxes = torch.from_numpy(corners.reshape(m, 4).astype(np.float32))
        points = torch.from_numpy((rng.uniform(0, 1, (m, 2, 2)) * [width, height]).astype(np.float32))
        runs = {"size": list(size), "counts": [7, 30, height * width - 37]}
        outlines = [[rng.uniform(0, 30, 8).tolist()] if k else runs for k in range(m)]
        return {
            "image": tv_tensors.Image(torch.from_numpy(rng.integers(0, 256, (3, *size)).astype(np.uint8))),
            "ids": tv_tensors.Mask(torch.from_numpy(rng.integers(0, 21, size).astype(np.uint8))),
            "target": {
                "boxes": tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=size),
                "labels": torch.from_numpy(rng.integers(0, 80, m)),
                "keypoints": tv_tensors.KeyPoints(points, canvas_size=size),
                "masks": torch.from_numpy(rng.integers(0, 2, (m, *size)).astype(np.uint8)),
                "outlines": outlines,
            },
            "caption": f"picture {index}",
            "number": index,
        }


def make(transform: Any, dataset: Any = None, **arguments: Any) -> td.DataLoader:
    arguments = dict(batch_size=4, shuffle=True, seed=SEED, device="cpu", num_threads=1, output="dict") | arguments
    return td.DataLoader(
        dataset or td.PythonDataset(Scenes(), kinds=KINDS),
        transform=transform if transform is None else T.Compose(transform),
        **arguments,
    )


def same(sample, rand):
    return sample


def as_lists(sample, rand):
    """All fields through the host."""
    made = {
        name: value if isinstance(value, list) else [np.asarray(one.cpu()) for one in value.tensors]
        for name, value in sample.items()
    }
    return made


# All kinds in and out

BEFORE = [T.RandomCrop(28, pad_if_needed=True), T.RandomHorizontalFlip(), T.SanitizeBoundingBoxes()]
AFTER = [T.RandomVerticalFlip(), T.Resize((20, 24)), T.SanitizeBoundingBoxes(min_size=2)]


def test_all_fields_are_seen_by_their_names():
    seen: list[dict[str, Any]] = []

    def look(sample, rand):
        seen.append(
            {
                name: value if isinstance(value, list) else np.asarray(value)
                for name, value in sample.items()
                if name in ("caption", "number", "target.outlines")
            }
        )
        assert list(sample) and set(sample) == {
            "image",
            "ids",
            "target.boxes",
            "target.labels",
            "target.keypoints",
            "target.masks",
            "target.outlines",
            "caption",
            "number",
        }
        return sample

    batch = next(iter(make([look], shuffle=False)))
    assert batch["caption"] == seen[0]["caption"] == [f"picture {i}" for i in range(4)]
    assert seen[0]["number"].tolist() == [0, 1, 2, 3]
    assert seen[0]["target.outlines"] == [Scenes()[i]["target"]["outlines"] for i in range(4)]


@pytest.mark.parametrize("engine", ["eager", "debug"])
@pytest.mark.parametrize("function", [same, as_lists])
@pytest.mark.parametrize(
    ("before", "after"), [([], []), (BEFORE, []), ([], AFTER), (BEFORE, AFTER)], ids=["", "before", "after", "both"]
)
def test_a_function_that_changes_nothing_changes_nothing(before, after, function, engine):
    assert_same_stream(
        lambda: make([*before, *after]), lambda: make([*before, function, *after], engine=engine), epochs=1
    )


def test_two_functions_and_steps_between():
    assert_same_stream(
        lambda: make([*BEFORE, *AFTER]),
        lambda: make([same, *BEFORE, as_lists, AFTER[0], same, *AFTER[1:]], prefetch_factor=0),
    )


@pytest.mark.parametrize("function", [same, as_lists])
def test_views_with_functions(function):
    views = [[T.RandomVerticalFlip(), T.Resize((20, 24))], [T.RandomCrop(16)]]
    with_functions = [[views[0][0], function, views[0][1]], [*views[1], function]]
    for before in ([], BEFORE):
        assert_same_stream(
            lambda: make([*before, T.Views(views)], output="list"),
            lambda: make([*before, function, T.Views(views)], output="list"),
            lambda: make([*before, T.Views(with_functions)], output="list"),
        )
