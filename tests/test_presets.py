"""The recipes: lists that run, in all engines, and that can be changed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torchvision.transforms.v2 import functional as F

import torchdali as td
from torchdali import kinds
from torchdali import transforms as T
from torchdali.engine.chain import Chain
from torchdali.rand import Rand
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


CLIPS = np.random.default_rng(0).integers(0, 256, (6, 3, 30, 40, 3), dtype=np.uint8)


def clips_of(transform, **options):
    dataset = td.InMemoryDataset(video=CLIPS, kinds={"video": kinds.Video("FHWC")})
    options = {"batch_size": 6, "device": "cpu", "seed": 4} | options
    ((clips,),) = td.DataLoader(dataset, transform=T.Compose(transform), **options)
    return clips


def test_video_train_is_torchvisions():
    """Its own functions in the order of the references, given the same draws."""
    steps = presets.video_train(16, (20, 27))
    made, chain, rand = clips_of(steps), Chain(steps, "cpu"), Rand(4, 0, np.arange(6, dtype=np.uint64))
    flips = steps[2].make_params(chain.rand(2, rand), None)[0]["flip"]
    starts = steps[3].make_params(chain.rand(3, rand), np.tile([[20, 27]], (6, 1)))[0]["start"].tolist()
    assert 0 < flips.sum() < 6 and len({tuple(start) for start in starts}) > 2
    for i, clip in enumerate(CLIPS):
        theirs = F.to_dtype(torch.from_numpy(clip).permute(0, 3, 1, 2), torch.float32, scale=True)
        theirs = F.resize(theirs, [20, 27], antialias=False)
        theirs = F.crop(F.horizontal_flip(theirs) if flips[i] else theirs, *starts[i], 16, 16)
        expected = F.normalize(theirs, presets.VIDEO_MEAN, presets.VIDEO_STD)
        torch.testing.assert_close(made[i], expected, rtol=0, atol=1e-6)
    alike = [clips_of(steps, engine=engine) for engine in ("eager", "debug")]
    assert torch.equal(made, alike[0]) and torch.equal(made, alike[1])


class Boxed:
    """Images with boxes in parts of them, as DETR takes them."""

    def __len__(self):
        return 8

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        boxes = rng.uniform(0.2, 0.4, (3, 4)).astype(np.float32)
        return IMAGES[i % 6], {"boxes": boxes, "labels": np.arange(3), "area": np.ones(3)}


def test_detr_runs():
    """Boxes leave as they were, in parts of the image; half of the samples are cropped."""
    steps = presets.detr_train((30, 34), 60, (24, 28), (10, 20))
    told = {"boxes": kinds.Boxes("cxcywh", normalized=True)}
    loaders = [
        td.DataLoader(Boxed(), 4, transform=T.Compose(steps), kinds=told, device="cpu", output="list", engine=engine)
        for engine in ("eager", "debug")
    ]
    seen = 0
    for (images, targets), (others, _) in zip(*loaders, strict=True):
        for image, target, other in zip(images, targets, others, strict=True):
            assert torch.equal(image, other) and image.dtype == torch.float32
            assert min(image.shape[1:]) in (30, 34) or max(image.shape[1:]) <= 60
            assert len(target["boxes"]) == len(target["labels"]) == len(target["area"])
            assert ((target["boxes"] >= 0) & (target["boxes"] <= 1)).all()
            seen += len(target["boxes"])
    assert seen > 8
    ((images, _),) = td.DataLoader(Boxed(), 8, transform=T.Compose(presets.detr_eval(30, 60)), kinds=told, device="cpu")
    assert images.sizes.min() == 30 or images.sizes.max() == 60


def test_detection_and_segmentation_for_evaluation():
    images, (first, *_) = next(iter(loader_of(T.Compose(presets.detection_eval()), "auto")))
    expected = F.to_dtype(torch.from_numpy(IMAGES[int(first)]).permute(2, 0, 1), torch.float32, scale=True)
    torch.testing.assert_close(images.unbind()[0], expected)
    images, _ = next(iter(loader_of(T.Compose(presets.segmentation_eval(20)), "auto")))
    assert images.sizes.min(dim=1).values.tolist() == [20] * 4


@pytest.mark.parametrize("name", ["keyword_spotting_train", "keyword_spotting_eval", "speech_train", "speech_eval"])
def test_recipes_of_sound(name):
    sounds = [np.random.default_rng(i).normal(size=(1, 3000 + 400 * i)).astype(np.float32) for i in range(6)]
    dataset = td.InMemoryDataset(audio=sounds, kinds={"audio": kinds.Audio(rate=8000)})
    transform = T.Compose(getattr(presets, name)(8000, n_mels=20))
    made = [td.DataLoader(dataset, 3, transform=transform, device="cpu", engine=engine) for engine in ("auto", "debug")]
    for (one,), (other,) in zip(*made, strict=True):
        first, second = (value.data if isinstance(value, td.Padded) else value for value in (one, other))
        assert torch.equal(first, second) and first.shape[1:3] == (1, 20)
        assert name.startswith("speech") == isinstance(one, td.Padded)
        assert isinstance(one, td.Padded) or first.shape[3] == 101


def test_a_recipe_is_a_new_list():
    steps = presets.imagenet_train(24, mean=(0.5,) * 3)
    steps[1] = T.RandomVerticalFlip()
    assert presets.imagenet_train(24)[1] == T.RandomHorizontalFlip()
    assert steps[-1].mean == (0.5,) * 3


def test_wrong_words():
    with pytest.raises(ValueError, match=r'auto_augment must be "ra", "ta_wide", .* got \'rotate\''):
        presets.imagenet_train(auto_augment="rotate")
    with pytest.raises(ValueError, match='re_mode must be "const", "rand" or "pixel"'):
        presets.timm_train(re_mode="noise")
    with pytest.raises(ValueError, match=r"augmentation must be one of 'hflip', .* got 'flip'"):
        presets.detection_train("flip")
