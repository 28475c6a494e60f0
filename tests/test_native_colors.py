"""The kernels of colours in C: the bits of torchvision's, and what is left to these."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torchvision import tv_tensors

from torchdali import transforms as T
from torchdali.native import colors
from torchdali.transforms.recolor import permuted_host, recolored

from .test_native import needs_kernel

VALUES = {"hue": (-0.5, 0.5), **dict.fromkeys(("brightness", "contrast", "saturation", "sharpness"), (0.0, 3.0))}
SPECIAL = {"hue": [0.0, 0.5, -0.5, 1 / 6, -1 / 3]}


@pytest.fixture
def theirs(monkeypatch):
    """Changes colours by torchvision's kernels alone."""

    def change(image, name, value):
        with monkeypatch.context() as patch:
            patch.setattr(colors, "colors", lambda: None)
            return recolored(image, name, value)

    return change


def draw_image(rng, kind, height, width):
    """[H, W, 3]: noise, few levels, one colour, low contrast, grey in part, or a row of a larger image."""
    image = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    if kind == 1:
        image = image // 64 * np.uint8(85)
    elif kind == 2:
        image[...] = image[0, 0]
    elif kind == 3:
        image = image // np.uint8(8) + np.uint8(100)
    elif kind == 4:
        image[: height // 2] = image[: height // 2, :, :1]
    return image


def values_for(name, rng, case):
    if name not in VALUES:
        return None
    special = SPECIAL.get(name, [0.0, 1.0, 2.0])
    return special[case % len(special)] if case % 4 == 0 else float(rng.uniform(*VALUES[name]))


@needs_kernel
@pytest.mark.parametrize("name", colors.NAMES)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_colours_have_torchvisions_bits(name, seed, theirs):
    """120 images of any sizes and layouts, and 2,000 in the long form."""
    rng = np.random.default_rng(seed)
    for case in range(2000 if seed else 120):
        height, width = rng.integers(1, 120 if case % 3 else 6, 2)
        array = draw_image(rng, case % 5, height, width)
        image = torch.from_numpy(array).permute(2, 0, 1)
        if case % 7 == 1:
            image = image.contiguous()
        elif case % 7 == 2:
            image = image[:, : max(1, height // 2), width // 3 :]
        value, before = values_for(name, rng, case), image.clone()
        ours = colors.changed(image, name, value or 0.0)
        assert ours is not None and ours.dtype == torch.uint8
        assert torch.equal(ours, theirs(image, name, value)), (case, value)
        assert torch.equal(image, before)


@needs_kernel
@pytest.mark.parametrize("name", ["saturation", "hue", "grayscale"])
def test_all_colours(name, theirs):
    """Each of the 2**24."""
    levels, rng = np.arange(256, dtype=np.uint8), np.random.default_rng(0)
    for red in range(0, 256, 64):
        array = np.stack(np.meshgrid(levels[red : red + 64], levels, levels, indexing="ij"), -1).reshape(4096, -1, 3)
        image, value = torch.from_numpy(array).permute(2, 0, 1), values_for(name, rng, 1)
        assert torch.equal(recolored(image, name, value), theirs(image, name, value))


@needs_kernel
def test_a_large_image_whose_mean_is_rounded(theirs):
    """The sum of its grey levels has more digits than float32 holds."""
    image = torch.from_numpy(draw_image(np.random.default_rng(0), 0, 700, 900) // np.uint8(2) + np.uint8(128))
    for layout in (image.permute(2, 0, 1), image.permute(2, 0, 1).contiguous()):
        assert torch.equal(recolored(layout, "contrast", 1.7), theirs(layout, "contrast", 1.7))


@needs_kernel
@pytest.mark.parametrize("name", colors.NAMES)
def test_several_images_at_once(name, theirs):
    images = torch.randint(0, 256, (2, 3, 3, 20, 30), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    value = values_for(name, np.random.default_rng(0), 1)
    ours = colors.changed(images, name, value or 0.0)
    assert ours is not None and torch.equal(ours, theirs(images, name, value))


@needs_kernel
def test_channels_in_another_order():
    image = torch.from_numpy(draw_image(np.random.default_rng(0), 0, 9, 13)).permute(2, 0, 1)
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
        assert colors.permuted(image, order) is not None
        assert torch.equal(permuted_host(image, order), image[order])


@pytest.mark.parametrize(
    "image",
    [
        pytest.param(torch.rand(3, 5, 6), id="floats"),
        pytest.param(torch.ones(1, 5, 6, dtype=torch.uint8), id="grey"),
        pytest.param(torch.ones(3, 0, 6, dtype=torch.uint8), id="empty"),
        pytest.param(tv_tensors.Image(torch.ones(3, 5, 6, dtype=torch.uint8)), id="a tensor of a class of its own"),
        pytest.param(torch.ones(3, 5, 6, dtype=torch.uint8, device="meta"), id="elsewhere"),
    ],
)
def test_what_the_kernels_can_not_do_is_left_to_torchvision(image):
    assert colors.changed(image, "brightness", 1.5) is None and colors.permuted(image, [0, 1, 2]) is None


TRANSFORMS = {
    "ColorJitter": T.ColorJitter(0.4, 0.4, 0.4, 0.1),
    "RandomPhotometricDistort": T.RandomPhotometricDistort(),
    "RandomGrayscale": T.RandomGrayscale(0.5),
    "Grayscale(3)": T.Grayscale(3),
    "RandomAdjustSharpness": T.RandomAdjustSharpness(2),
    "RandomAutocontrast": T.RandomAutocontrast(),
    "RandomEqualize": T.RandomEqualize(),
    "RandomChannelPermutation": T.RandomChannelPermutation(),
    "AutoAugment": T.AutoAugment(),
    "RandAugment": T.RandAugment(),
}


@needs_kernel
@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_loader_makes_the_same_batches_without_them(name, monkeypatch):
    import torchdali as td

    data = td.InMemoryDataset(image=np.random.default_rng(0).integers(0, 256, (24, 20, 24, 3), dtype=np.uint8))
    calls = []
    for method in ("change", "permute"):
        own = getattr(colors.Colors, method)
        monkeypatch.setattr(colors.Colors, method, lambda *given, own=own: calls.append(1) or own(*given))

    def batches():
        return [images.clone() for (images,) in td.DataLoader(data, 8, shuffle=True, transform=TRANSFORMS[name])]

    with_them = batches()
    assert calls
    calls.clear()
    monkeypatch.setattr(colors, "colors", lambda: None)
    for ours, other in zip(with_them, batches(), strict=True):
        assert torch.equal(ours, other)
    assert not calls
