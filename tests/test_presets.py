"""The recipes: lists that run, in all engines, and that can be changed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import torchdali as td
from torchdali import transforms as T
from torchdali.testing import assert_same_stream
from torchdali.transforms import presets

IMAGES = [np.random.default_rng(i).integers(0, 256, (40 + 5 * i, 60, 3), dtype=np.uint8) for i in range(6)]

SINGLE = {
    "train": presets.imagenet_train(24),
    "ra": presets.imagenet_train(24, "ra", 0.5),
    "ta_wide": presets.imagenet_train(24, "ta_wide"),
    "augmix": presets.imagenet_train(24, "augmix"),
    "policy": presets.imagenet_train(24, "imagenet"),
    "timm": presets.imagenet_train(24, "rand-m9-mstd0.5-inc1", 0.25, "bicubic"),
    "eval": presets.imagenet_eval(24, 28),
    "create_transform": presets.timm_train(24, auto_augment="rand-m7-mstd0.5", re_prob=0.9, re_mode="pixel"),
    "create_transform jitter": presets.timm_train(24, color_jitter=(0.3, 0.3, 0.3, 0.1)),
    "simclr": presets.simclr(24),
}


def loader_of(transform, engine):
    dataset = td.InMemoryDataset(image=IMAGES, fields=("image", "index"))
    return td.DataLoader(dataset, 4, transform=transform, engine=engine, device="cpu", num_threads=1, shuffle=True)


@pytest.mark.parametrize("name", SINGLE)
def test_recipes_run(name):
    transform = T.Compose(SINGLE[name])
    for images, _ in loader_of(transform, "auto"):
        assert images.shape[1:] == (3, 24, 24) and images.dtype == torch.float32
    assert_same_stream(*(lambda engine=engine: loader_of(transform, engine) for engine in ("eager", "debug")))


@pytest.mark.parametrize("views", [[presets.simclr(24)] * 2, presets.mocov3(24), presets.dino(24, 12, 3)])
def test_views_run(views):
    sizes = [12 if len(views) == 5 and i > 1 else 24 for i in range(len(views))]
    for images, _ in loader_of(T.Views(views), "auto"):
        assert [tuple(view.shape[1:]) for view in images] == [(3, size, size) for size in sizes]
        assert all(not torch.equal(images[0], other) for other in images[1:2])


def test_a_recipe_is_a_new_list():
    steps = presets.imagenet_train(24, mean=(0.5,) * 3)
    steps[1] = T.RandomVerticalFlip()
    assert presets.imagenet_train(24)[1] == T.RandomHorizontalFlip()
    assert steps[-1].mean == (0.5,) * 3


def test_wrong_words():
    with pytest.raises(ValueError, match=r'auto_augment must be "ra", "ta_wide", .* got \'rotate\''):
        presets.imagenet_train(auto_augment="rotate")
    with pytest.raises(ValueError, match='re_mode must be "const" or "pixel"'):
        presets.timm_train(re_mode="rand")
