"""The torch part on a GPU, as far as its arithmetic goes: whole batches are what the images are one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from torchdali import transforms as T
from torchdali.engine.batches import in_torch, on_device
from torchdali.engine.plan import Plan
from torchdali.kinds import Image, Video
from torchdali.rand import Rand
from torchdali.transforms.base import Transform
from torchdali.transforms.noise import hashed_normal

CPU = torch.device("cpu")
N, HEIGHT, WIDTH = 6, 40, 56
MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)


def pixels(n: int = N, height: int = HEIGHT, width: int = WIDTH) -> np.ndarray:
    return np.random.default_rng(n).integers(0, 256, (n, height, width, 3), dtype=np.uint8)


def drawn(steps: list[Transform], n: int = N) -> list[tuple[Transform, dict[str, Any]]]:
    sizes: Any = np.tile([[HEIGHT, WIDTH]], (n, 1))
    found = []
    for k, step in enumerate(steps):
        params, sizes = step.make_params(Rand(3, k, np.arange(n)), sizes)
        found.append((step, params))
    return found


def one_by_one(images: torch.Tensor, steps: list[tuple[Transform, dict[str, Any]]]) -> list[torch.Tensor]:
    made = list(images)
    for step, params in steps:
        form = step.bind(params)
        made = [form(image, None, i) for i, image in enumerate(made)]
    return made


STEPS: list[list[Transform]] = [
    [T.RandomPerspective(0.6)],
    [T.RandomPerspective(0.6, 1.0, interpolation="nearest", fill=(1, 2, 3))],
    [T.ElasticTransform(40.0, 2.0)],
    [T.ElasticTransform(40.0, 0.0, fill=9)],
    [T.RandomRotation(30, fill=7)],
    [T.RandomRotation(30, expand=True)],
    [T.RandomAffine(10, (0.1, 0.1), (0.8, 1.2), 5, interpolation="bilinear"), T.RandomHorizontalFlip()],
    [T.RandomEqualize(0.5)],
    [T.RandomCrop(48, pad_if_needed=True, padding_mode="reflect"), T.RandomVerticalFlip(), T.Resize(20)],
    [T.RandomResizedCrop(24), T.Normalize(MEAN, STD)],
    [T.RandomChoice([T.RandomPerspective(p=1.0), T.RandomEqualize(1.0), T.ColorJitter(0.4)])],
    [T.RandomApply([T.RandomRotation(20, expand=True)]), T.Resize((20, 30))],
    [T.RandomOrder([T.ElasticTransform(sigma=1.0), T.RandomInvert()]), T.ToDtype(torch.float32, scale=True)],
    [T.RandAugment(), T.AugMix(), T.TrivialAugmentWide(), T.AutoAugment()],
    [T.RandomPhotometricDistort(), T.GaussianBlur(3), T.JPEG((30, 60)), T.GridMask((8, 20)), T.Grayscale(3)],
    [T.RandomErasing(1.0, value=(1, 2, 3)), T.RandomChannelPermutation(), T.RandomAdjustSharpness(2)],
]


@pytest.mark.parametrize("steps", STEPS, ids=repr)
def test_a_batch_is_its_images(steps):
    """Bit for bit, whether they have one size at the end or not."""
    images = on_device(pixels(), CPU)
    assert isinstance(images, torch.Tensor) and images.is_contiguous()
    before, params = images.clone(), drawn(steps)
    made = in_torch(images, params)
    assert torch.equal(images, before), "the input was changed"
    for image, expected in zip(made, one_by_one(images, params), strict=True):
        assert image.shape == expected.shape and image.dtype == expected.dtype
        torch.testing.assert_close(image, expected, rtol=0, atol=1e-6 if image.is_floating_point() else 0)


@pytest.mark.parametrize(
    "step", [T.RandAugment(4, 12), T.TrivialAugmentWide(interpolation="bilinear", fill=(1, 2, 3)), T.AutoAugment(),
             T.AugMix(severity=8)], ids=repr,
)  # fmt: skip
def test_every_operation_in_batches(step):
    """Many samples, so that several share an operation and a strength, and each operation is drawn; with equalizing."""
    n = 150
    images = on_device(pixels(n, 12, 16), CPU)
    assert isinstance(images, torch.Tensor)
    params, _ = step.make_params(Rand(4, 0, np.arange(n)), np.tile([[12, 16]], (n, 1)))
    for turn in range(step.rounds):
        assert turn > 1 or set(params[f"{turn}"].tolist()) >= {1, 2, 4, 6}
    made = step.transform_batch(images, params)
    for image, expected in zip(made, one_by_one(images, [(step, params)]), strict=True):
        assert torch.equal(image, expected)


@pytest.mark.parametrize("step", [T.rand_augment_transform("rand-m9-n3-p1-inc1", {"interpolation": "bilinear"}),
                                  T.TimmAutoAugment("3a"), T.TimmAugMix(9, width=2, interpolation="bilinear"),
                                  T.TimmAugMix(5, blended=True, interpolation="nearest")], ids=repr)  # fmt: skip
def test_timms_operations_in_batches(step):
    """torchvision's kernels are near Pillow's, which timm's family has on the CPU."""
    smooth = torch.nn.functional.interpolate(on_device(pixels(60, 4, 6), CPU).float(), (24, 36), mode="bicubic")
    images = smooth.clamp(0, 255).to(torch.uint8)
    params, _ = step.make_params(Rand(4, 0, np.arange(60)), np.tile([[24, 36]], (60, 1)))
    made = step.transform_batch(images, params)
    expected = torch.stack(one_by_one(images, [(step, params)]))
    gap = (made.float() - expected.float()).abs().mean((1, 2, 3))
    assert gap.median() < 2.5 and gap.mean() < 4
    assert (expected.float() - images.float()).abs().mean() > 10


def test_images_of_several_sizes_and_clips():
    """Images go one by one, and all frames of a clip get the sample's params."""
    steps: list[Transform] = [T.RandomPerspective(p=1.0), T.RandomEqualize(0.5), T.Normalize(MEAN, STD)]
    several = [torch.from_numpy(array).permute(2, 0, 1) for array in pixels()]
    params = drawn(steps)
    some = [image[:, :30] if i % 2 else image for i, image in enumerate(several)]
    of_list = in_torch(on_device([image.permute(1, 2, 0).numpy() for image in some], CPU), params[1:])
    assert isinstance(of_list, list) and [len(image[0]) for image in of_list] == [HEIGHT, 30] * 3
    expected = one_by_one(torch.stack(several), params[1:])
    torch.testing.assert_close(of_list[::2], expected[::2], rtol=0, atol=1e-6)
    frames = 3
    clips = np.stack([pixels(N), pixels(N)[:, ::-1], pixels(N)[:, :, ::-1]], 1)
    made = in_torch(on_device(clips, CPU), params)
    assert isinstance(made, torch.Tensor) and made.shape == (N, frames, 3, HEIGHT, WIDTH)
    for f in range(frames):
        alone = in_torch(on_device(clips[:, f], CPU), params)
        torch.testing.assert_close(made[:, f], alone, rtol=0, atol=1e-6)
    noisy = in_torch(on_device(np.repeat(pixels()[:, None], 2, 1), CPU), drawn([T.GaussianNoise()]))
    assert torch.equal(noisy[0][0], noisy[0][1])


def test_noise_is_normal_and_follows_from_each_samples_seed():
    seeds = np.array([5, 2**62 + 7, 0, 11], np.int64)
    noise = hashed_normal((3, 50, 70), seeds, CPU)
    assert noise.shape == (4, 3, 50, 70) and noise.dtype == torch.float32
    for row in noise.double().flatten(1):
        assert stats.kstest(row[:4000].numpy(), "norm").pvalue > 1e-3
        assert abs(row.mean()) < 0.04 and abs(row.std() - 1) < 0.03
        assert abs(stats.pearsonr(row[:-1], row[1:]).statistic) < 0.04
    assert abs(stats.pearsonr(noise[0].flatten(), noise[2].flatten()).statistic) < 0.04
    assert torch.equal(hashed_normal((3, 50, 70), seeds[1:2], CPU)[0], noise[1])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_noise_and_erasing_in_batches(dtype):
    """As torchvision's in distribution: sigma, clipping; and the rectangles are those of the form on the CPU."""
    images = torch.full((N, 3, HEIGHT, WIDTH), 127, dtype=torch.uint8)
    images = images if dtype == torch.uint8 else images / 255
    unit = 255 if dtype == torch.uint8 else 1
    ((step, params),) = drawn([T.GaussianNoise(0.1, 0.1)])
    made = step.transform_batch(images, params)
    assert isinstance(made, torch.Tensor) and made.dtype == dtype
    gap = (made.double() - images.double()) / unit
    assert abs(gap.mean() - 0.1) < 5e-3 and abs(gap.std() - 0.1) < 5e-3
    erasing = T.RandomErasing(0.7, value="random")
    ((step, params),) = drawn([erasing])
    erased = step.transform_batch(images, params)
    host = torch.stack(one_by_one(images, [(step, params)]))
    assert isinstance(erased, torch.Tensor) and erased.dtype == dtype
    assert torch.equal((erased != images).any(1), (host != images).any(1))


def split(transform: Any, device: str = "cuda", kind: Any = None) -> int:
    return Plan(transform, {"image": kind or Image()}, device, lambda name: True).split


def test_where_torch_takes_over_on_a_gpu():
    first = T.RandomResizedCrop(20)
    flip, jitter = T.RandomHorizontalFlip(), T.ColorJitter(0.4)
    assert split(T.Compose([first, flip, T.Normalize(MEAN, STD)])) == 3
    for step in (T.RandomPerspective(), T.ElasticTransform(), T.GaussianNoise(), T.RandomErasing(value="random")):
        assert split(T.Compose([first, step, jitter])) == 1 and split(T.Compose([first, step, jitter]), "cpu") == 0
    assert split(T.Compose([first, T.RandomEqualize(), flip])) == 1
    for step in (T.RandAugment(), T.TrivialAugmentWide(), T.AutoAugment(), T.AugMix(), T.TimmRandAugment()):
        assert split(T.Compose([first, flip, step, T.Normalize(MEAN, STD)])) == 2
    assert split(T.Compose([first, T.RandomApply([T.RandomPerspective()]), flip])) == 1
    assert split(T.Compose([first, flip]), kind=Video()) == 2

    def look(sample, rand):
        return sample

    # Equalize has a form in DALI too, where a function follows it; perspective has none.
    assert split(T.Compose([T.RandomEqualize(), look, first])) == 3
    with pytest.raises(ValueError, match=r"RandomPerspective\(.* has only a CPU form and can't run before a function"):
        split(T.Compose([T.RandomPerspective(), look]))
    views = Plan(
        T.Compose([T.RandomPerspective(), T.Views([[first], [flip]])]), {"image": Image()}, "cuda", lambda name: True
    )
    assert views.split == 0 and [view.split for view in views.views] == [0, 0]
