"""The kernel in C that blurs: the bits of torchvision's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torchvision.transforms.v2.functional import gaussian_blur_image

import torchdali as td
from torchdali import transforms as T
from torchdali.native import blur as native

from .test_native import needs_kernel

agrees = pytest.mark.skipif(
    native._kernels() is None, reason="there is no kernel, or torch adds up in another order on this CPU"
)


def assert_same_bits(image, size, sigma):
    ours = native.blurred(image, size, sigma)
    assert ours is not None
    assert torch.equal(ours, gaussian_blur_image(image, list(size), [sigma] * 2)), (image.shape, size, sigma)


@agrees
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_blurs_have_torchvisions_bits(seed):
    """100 images, sizes and layouts, and 1,000 in the long form."""
    rng = np.random.default_rng(seed)
    for case in range(1000 if seed else 100):
        height, width = rng.integers(1, 100, 2).tolist()
        size = tuple(1 + 2 * int(rng.integers(min(n, 14))) for n in (width, height))
        image = torch.from_numpy(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)).permute(2, 0, 1)
        assert_same_bits(image.contiguous() if case % 3 == 0 else image, size, float(rng.uniform(0.1, 4)))


@agrees
def test_planes_have_torchvisions_bits():
    generator = torch.Generator().manual_seed(0)
    for case, (height, width, size) in enumerate(((10, 70, 9), (40, 33, 17), (90, 64, 41), (300, 260, 33))):
        planes, sigma = torch.rand((1 + case % 2, 1, height, width), generator=generator) * 2 - 1, (1.3 + case, 4.0)
        ours = native.smoothed(planes, size, sigma)
        assert ours is not None and torch.equal(ours, gaussian_blur_image(planes, [size] * 2, list(sigma)))
    assert native.smoothed(planes, 7, sigma) is None and native.smoothed(planes.double(), 9, sigma) is None


@agrees
def test_a_large_image():
    image = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (901, 1100, 3), dtype=np.uint8))
    for size in ((3, 3), (23, 9)):
        assert_same_bits(image.permute(2, 0, 1), size, 1.9)


@needs_kernel
def test_what_every_torch_gives(monkeypatch):
    """Filters of one pixel, and images of one number: no rounding decides, so they hold where it is not used."""
    monkeypatch.setattr(native, "_agree", lambda images, planes: True)
    native._kernels.cache_clear()
    try:
        image = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (21, 40, 3), dtype=np.uint8)).permute(
            2, 0, 1
        )
        assert torch.equal(native.blurred(image, (1, 1), 2.0), image)
        even = torch.full((3, 21, 40), 201, dtype=torch.uint8)
        assert torch.equal(native.blurred(even, (9, 5), 1.3), even)
        plane = torch.full((2, 1, 30, 40), 0.25)
        torch.testing.assert_close(native.smoothed(plane, 9, (1.0, 2.0)), plane)
    finally:
        native._kernels.cache_clear()


@needs_kernel
def test_it_is_compared_with_torchvisions_before_it_is_used(monkeypatch):
    real = torch.nn.functional.conv2d
    import torchvision.transforms.v2.functional._misc as misc

    monkeypatch.setattr(misc, "conv2d", lambda *a, **k: real(*a, **k) * (1 - 2**-14))
    native._kernels.cache_clear()
    try:
        assert native._kernels() is None
        assert native.blurred(torch.zeros(3, 9, 9, dtype=torch.uint8), (3, 3), 1.0) is None
    finally:
        native._kernels.cache_clear()


@pytest.mark.parametrize(
    "image",
    [
        pytest.param(torch.rand(3, 9, 9), id="floats"),
        pytest.param(torch.ones(1, 9, 9, dtype=torch.uint8), id="grey"),
        pytest.param(torch.ones(2, 3, 9, 9, dtype=torch.uint8), id="a video"),
        pytest.param(torch.ones(3, 3, 9, dtype=torch.uint8), id="too small"),
        pytest.param(torch.ones(3, 0, 9, dtype=torch.uint8), id="empty"),
        pytest.param(torch.ones(3, 9, 9, dtype=torch.uint8, device="meta"), id="elsewhere"),
    ],
)
def test_what_the_kernel_can_not_do_is_left_to_torchvision(image):
    assert native.blurred(image, (7, 7), 1.0) is None


@agrees
@pytest.mark.parametrize("size", [5, 23, 101])
def test_a_loader_makes_the_same_batches_without_it(size, monkeypatch):
    data = td.InMemoryDataset(image=np.random.default_rng(0).integers(0, 256, (24, 40, 44, 3), dtype=np.uint8))

    def batches():
        return [images.clone() for (images,) in td.DataLoader(data, 8, shuffle=True, transform=T.GaussianBlur(size))]

    with_it = batches()
    monkeypatch.setattr(native, "_kernels", lambda: None)
    for ours, other in zip(with_it, batches(), strict=True):
        assert torch.equal(ours, other)
