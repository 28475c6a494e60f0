"""The CPU forms are torchvision's: the same pixels for the same parameters, and parameters of the same distribution."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torchvision import io
from torchvision.transforms import InterpolationMode, v2

import torchdali as td
from torchdali import transforms as T
from torchdali.rand import Key, Rand
from torchdali.state import Position

DATA = Path(__file__).parent / "data"
PHOTOS = sorted((DATA / "photos").glob("*.jpg"))
ODD = [DATA / "odd-images" / name for name in ("hopper.png", "hopper_gray.jpg")]
ROTATED = [DATA / "odd-images" / f"hopper_orientation_{n}.jpg" for n in (2, 5, 6, 8)]
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SEED = 11

F = v2.functional
# torchvision announces that its decoders will move to TorchCodec.
pytestmark = pytest.mark.filterwarnings("ignore:The image decoding and encoding:DeprecationWarning")
quick = settings(max_examples=100, deadline=None)
slow = settings(max_examples=25, deadline=None)


def loader_of(paths, *steps, batch_size=2, **arguments):
    return td.DataLoader(
        td.FileDataset(paths, fields=("image", "index")),
        batch_size,
        transform=T.Compose(list(steps)),
        seed=SEED,
        device="cpu",
        **arguments,
    )


def images_of(loader):
    """Every image of an epoch, by index, without padding."""
    found = {}
    for images, indices in loader:
        data, sizes = images if isinstance(images, td.Padded) else (images, [images.shape[2:]] * len(images))
        for image, size, index in zip(data, sizes, indices.tolist()):
            height, width = (int(v) for v in size)
            found[index] = image[:, :height, :width].clone()
    return [found[index] for index in sorted(found)]


def decode(path):
    """By torchvision, not by DALI."""
    return io.decode_image(str(path), mode=io.ImageReadMode.RGB, apply_exif_orientation=True)


def rand_of(index, step, epoch=0):
    """The random numbers that a step of this name draws for an unshuffled sample."""
    return Rand(SEED, Position(epoch).key, np.array([index], np.uint64)).named(Key.STEP, step)


def size_of(image):
    return np.array([image.shape[-2:]], np.int64)


def row(params):
    return {name: values[0] for name, values in params.items()}


def draw(height, width, channels=3, seed=0):
    """A random image as the engine has it: [C, H, W], channels last in memory."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)
    return torch.from_numpy(pixels).permute(2, 0, 1)


def host(transform, image, seed=0):
    """(result of the CPU form, its parameters)."""
    params, sizes = transform.make_params(Rand(seed, 0, np.zeros(1, np.uint64)), size_of(image))
    before = image.clone()
    result = transform.transform_host(image, **row(params))
    assert torch.equal(image, before), "the input was changed"
    if sizes is not None:
        assert tuple(sizes[0]) == tuple(result.shape[1:])
    assert result.dtype == transform.out_dtype(image.dtype)
    return result, row(params)


def assert_equal(ours, theirs):
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    assert torch.equal(ours, theirs)


# The standard transforms, through the loader


@pytest.mark.parametrize("epoch", [0, 3])
def test_imagenet_training(epoch):
    """RandomResizedCrop and flip: bit for bit; normalised: to 1e-6."""
    steps = [T.RandomResizedCrop(224), T.RandomHorizontalFlip()]
    plain, normalised = loader_of(PHOTOS, *steps), loader_of(PHOTOS, *steps, T.Normalize(MEAN, STD))
    plain.set_epoch(epoch)
    normalised.set_epoch(epoch)
    pairs = zip(PHOTOS, images_of(plain), images_of(normalised), strict=True)
    for index, (path, image, floats) in enumerate(pairs):
        whole = decode(path)
        start, shape = steps[0].windows(rand_of(index, "RandomResizedCrop", epoch), size_of(whole))
        theirs = F.resized_crop(whole, *start[0].tolist(), *shape[0].tolist(), [224, 224], antialias=True)
        if steps[1].make_params(rand_of(index, "RandomHorizontalFlip", epoch), None)[0]["flip"][0]:
            theirs = F.horizontal_flip(theirs)
        assert_equal(image, theirs)
        theirs = F.normalize(F.to_dtype(theirs, torch.float32, scale=True), MEAN, STD)
        torch.testing.assert_close(floats, theirs, rtol=0, atol=1e-6)


def test_imagenet_evaluation():
    """Resize(256) and CenterCrop(224): bit for bit; normalised: to 1e-6."""
    steps = [T.Resize(256), T.CenterCrop(224)]
    theirs_of = v2.Compose([v2.Resize(256), v2.CenterCrop(224)])
    plain, normalised = loader_of(PHOTOS, *steps), loader_of(PHOTOS, *steps, T.Normalize(MEAN, STD))
    for path, image, floats in zip(PHOTOS, images_of(plain), images_of(normalised), strict=True):
        theirs = theirs_of(decode(path))
        assert_equal(image, theirs)
        theirs = F.normalize(F.to_dtype(theirs, torch.float32, scale=True), MEAN, STD)
        torch.testing.assert_close(floats, theirs, rtol=0, atol=1e-6)


def test_the_training_windows_differ_by_sample_and_epoch():
    """What the comparison above would not see: windows that are always the same."""
    windows = {
        tuple(
            np.concatenate(
                T.RandomResizedCrop(224).windows(rand_of(index, "RandomResizedCrop", epoch), np.array([[360, 480]])), 1
            )[0]
        )
        for index in range(20)
        for epoch in range(3)
    }
    assert len(windows) == 60


@pytest.mark.parametrize("path", [*PHOTOS, *ODD, *ROTATED], ids=lambda path: path.name)
def test_decoding(path):
    """DALI's decoder gives torchvision's pixels, upright and in RGB."""
    image = images_of(loader_of([path]))[0]
    assert_equal(image, decode(path))


@pytest.mark.parametrize(
    "crop",
    [
        T.CenterCrop((90, 70)),
        T.CenterCrop((150, 600)),
        T.RandomCrop(64, padding=(40, 10, 0, 90)),
        T.RandomCrop(8, padding=40, fill=(9, 8, 7)),  # windows with no pixel of the image
        T.RandomCrop((200, 90), pad_if_needed=True, fill=200),
        T.RandomResizedCrop(50),
        T.RandomResizedCrop((20, 30), ratio=(0.1, 12)),
    ],
    ids=str,
)
def test_decoding_a_window_is_cropping_the_whole(crop):
    paths = [*PHOTOS, *ODD, *ROTATED]
    fused, whole = loader_of(paths, crop, batch_size=4), loader_of(paths, batch_size=4)
    assert fused._passes.plan().fused and not whole._passes.plan().fused
    for epoch in range(3):
        fused.set_epoch(epoch)
        for index, (image, pixels) in enumerate(zip(images_of(fused), images_of(whole), strict=True)):
            params, _ = crop.make_params(rand_of(index, type(crop).__name__, epoch), size_of(pixels))
            assert_equal(image, crop.transform_host(pixels, **row(params)))


# Each CPU form against torchvision's function

edges = st.integers(1, 40)
channels = st.sampled_from([1, 3])
interpolations = st.sampled_from(list(InterpolationMode)[:4])


def test_the_modes_are_four():
    names = {mode.value for mode in list(InterpolationMode)[:4]}
    assert names == {"nearest", "nearest-exact", "bilinear", "bicubic"}


@quick
@given(edges, edges, channels, edges, edges, interpolations, st.sampled_from([True, False, None]))
def test_resize_to_a_pair(height, width, channels, new_height, new_width, mode, antialias):
    image = draw(height, width, channels)
    size = [new_height, new_width]
    ours, _ = host(T.Resize(size, mode, antialias=antialias), image)
    assert_equal(ours, F.resize(image, size, mode, antialias=antialias))


@quick
@given(edges, edges, st.integers(1, 50), st.none() | st.integers(1, 60), interpolations)
@example(32, 30, 45, None, InterpolationMode.BILINEAR)
@example(30, 32, 45, None, InterpolationMode.BILINEAR)
def test_resize_of_an_edge(height, width, edge, more, mode):
    """Upright, landscape and square; with `max_size`."""
    image = draw(height, width)
    max_size = None if more is None else edge + more
    ours, params = host(T.Resize(edge, mode, max_size), image)
    short, long = sorted((height, width))
    if max_size and edge * long // short > max_size and max_size * edge // (edge * long // short) == 0:
        # torchvision refuses; the edge stays.
        assert sorted(params["size"]) == [1, max_size]
    else:
        assert_equal(ours, F.resize(image, [edge], mode, max_size))


@quick
@given(edges, edges, st.integers(40, 90))
def test_resize_of_the_longer_edge(height, width, max_size):
    ours, _ = host(T.Resize(None, max_size=max_size), draw(height, width))
    assert_equal(ours, F.resize(draw(height, width), None, max_size=max_size))


def test_resize_of_other_types_and_layouts():
    for image in (
        draw(30, 40).float() / 255,
        draw(30, 40).double() / 255,
        draw(30, 40).contiguous(),
        draw(60, 80)[:, 10:40, 5:45],  # a window of rows
        draw(60, 80)[:, ::2, ::2],
    ):
        for size in ((17, 23), (70, 50), (30, 40)):
            resized, _ = host(T.Resize(size), image)
            assert_equal(resized, F.resize(image, size))
            # What normalises it next is ten times as slow in another layout.
            assert (resized.stride(0) == 1) == (image.stride(0) == 1)


@quick
@given(edges, edges, channels, edges, edges)
def test_center_crop(height, width, channels, crop_height, crop_width):
    """Also where one edge is smaller and the other larger than the image."""
    image = draw(height, width, channels)
    size = [crop_height, crop_width]
    assert_equal(host(T.CenterCrop(size), image)[0], F.center_crop(image, size))


@st.composite
def random_crops(draw_):
    """A RandomCrop's arguments and an image size that torchvision accepts."""
    mode = draw_(st.sampled_from(["constant", "edge", "reflect", "symmetric"]))
    number = st.floats(0, 255)
    fill = draw_(st.none() | number | st.tuples(number, number, number)) if mode == "constant" else 0
    needed = draw_(st.booleans())
    padding = draw_(st.none() | st.integers(0, 9) | st.lists(st.integers(0, 9), min_size=1, max_size=4))
    if isinstance(padding, list) and len(padding) == 3:
        padding = padding[:2]
    # Reflections are of less than the image.
    height, width = draw_(st.integers(20, 40)), draw_(st.integers(20, 40))
    smallest = 1 if mode == "constant" else 10
    largest = 60 if needed and mode == "constant" else 30 if needed else 20
    size = [draw_(st.integers(smallest, largest)), draw_(st.integers(smallest, largest))]
    return dict(size=size, padding=padding, pad_if_needed=needed, fill=fill, padding_mode=mode), height, width


@quick
@given(random_crops(), st.integers(0, 99))
def test_random_crop(drawn, seed):
    """torchvision pads the whole image, then cuts; we cut first."""
    arguments, height, width = drawn
    image = draw(height, width)
    theirs = v2.RandomCrop(**arguments)
    padding = theirs.make_params([image])["padding"]
    if arguments["padding_mode"] == "reflect" and max(padding) >= min(height, width):
        return
    ours, params = host(T.RandomCrop(**arguments), image, seed)
    fill, mode = arguments["fill"], arguments["padding_mode"]
    padded = F.pad(image, padding, fill=list(fill) if isinstance(fill, tuple) else fill, padding_mode=mode)
    top, left = params["start"][0] + padding[1], params["start"][1] + padding[0]
    assert_equal(ours, F.crop(padded, top, left, *arguments["size"]))


@quick
@given(edges, edges, channels, st.booleans())
def test_flips(height, width, channels, flipped):
    image = draw(height, width, channels)
    p = float(flipped)
    assert_equal(host(T.RandomHorizontalFlip(p), image)[0], F.horizontal_flip(image) if flipped else image)
    assert_equal(host(T.RandomVerticalFlip(p), image)[0], F.vertical_flip(image) if flipped else image)


@slow
@given(edges, edges, channels, st.booleans(), st.integers(0, 99))
def test_color_jitter(height, width, channels, floating, seed):
    """torchvision's own `transform` with our parameters, in their order."""
    image = draw(height, width, channels)
    image = image.float() / 255 if floating else image
    arguments = dict(brightness=0.4, contrast=(0.3, 2), saturation=0.9, hue=0.3)
    ours, params = host(T.ColorJitter(**arguments), image, seed)
    theirs = {f"{name}_factor": float(params[name]) for name in arguments} | {"fn_idx": params["order"].tolist()}
    assert_equal(ours, v2.ColorJitter(**arguments).transform(image, theirs))


@pytest.mark.parametrize("arguments", [{}, dict(brightness=0, hue=0.0), dict(contrast=(1, 1)), dict(saturation=0)])
def test_color_jitter_of_nothing_changes_nothing(arguments):
    image = draw(20, 30)
    assert host(T.ColorJitter(**arguments), image)[0] is image


@slow
@given(st.integers(5, 40), st.integers(5, 40), channels, st.sampled_from([3, (9, 3), [5, 7]]), st.booleans())
def test_gaussian_blur(height, width, channels, kernel, floating):
    image = draw(height, width, channels)
    image = image.float() / 255 if floating else image
    ours, params = host(T.GaussianBlur(kernel), image)
    pair = list(kernel) if isinstance(kernel, (tuple, list)) else [kernel] * 2
    assert_equal(ours, F.gaussian_blur(image, pair, [float(params["sigma"])] * 2))


@slow
@given(st.integers(1, 6), st.integers(1, 6))
def test_gaussian_blur_of_images_smaller_than_the_kernel(height, width):
    """torchvision refuses them; reflection goes on, as numpy's does."""
    image = draw(height, width)
    ours, params = host(T.GaussianBlur((9, 13), 2.0), image)
    pixels = image.permute(1, 2, 0).numpy()
    for axis, border in ((0, 6), (1, 4)):
        pad = [(0, 0)] * 3
        pad[axis] = (border, border)
        pixels = np.pad(pixels, pad, mode="reflect" if pixels.shape[axis] > 1 else "edge")
    blurred = F.gaussian_blur(torch.from_numpy(pixels).permute(2, 0, 1), [9, 13], [float(params["sigma"])] * 2)
    assert_equal(ours, blurred[:, 6:-6, 4:-4])


def test_normalize_of_every_value():
    """All uint8 values in all channels, and floats; written in place, into a padded row, and where it must copy."""
    image = torch.arange(256, dtype=torch.uint8).view(16, 16, 1).repeat(1, 1, 3).permute(2, 0, 1)
    ours, _ = host(T.Normalize(MEAN, STD), image)
    theirs = F.normalize(image.float() / 255, MEAN, STD)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)

    place = torch.full((20, 21, 3), 7.0)
    out = place[:16, :16].permute(2, 0, 1)
    assert T.Normalize(MEAN, STD).transform_host(image, out=out) is out
    assert torch.equal(out, ours)
    assert (place[16:] == 7).all() and (place[:, 16:] == 7).all()
    first = torch.empty(3, 16, 16)
    assert torch.equal(T.Normalize(MEAN, STD).transform_host(image.contiguous(), out=first), ours)

    ours, _ = host(T.Normalize((0.4,), (0.3,)), image)  # one for all
    torch.testing.assert_close(ours, F.normalize(image.float() / 255, (0.4,), (0.3,)), rtol=0, atol=1e-6)

    for dtype in (torch.float32, torch.float64):
        floats = draw(9, 7).to(dtype) / 255
        ours, _ = host(T.Normalize(MEAN, STD), floats)
        torch.testing.assert_close(ours, F.normalize(floats, MEAN, STD).float(), rtol=0, atol=1e-6)


def test_normalize_of_images_of_many_widths():
    """A row's factors are remembered by width and type: not mixed up, and not without end."""
    normalize = T.Normalize((0.5,), (0.25,))
    for width in [*range(1, 150), 3, 149]:
        for image in (draw(2, width, 1), draw(2, width, 1).float() / 255):
            ours, _ = host(normalize, image)
            unit = image.float() / 255 if image.dtype == torch.uint8 else image
            torch.testing.assert_close(ours, (unit - 0.5) / 0.25, rtol=0, atol=1e-6)
    assert len(normalize._rows) <= 100


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("target", [torch.uint8, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("source", [torch.uint8, torch.float16, torch.float32, torch.float64])
def test_to_dtype(source, target, scale):
    image = draw(16, 16)
    image = image if source == torch.uint8 else (image / 255 if scale else image).to(source)
    ours, _ = host(T.ToDtype(target, scale), image)
    assert_equal(ours, F.to_dtype(image, target, scale))


# The random parameters have torchvision's distribution


def assert_same_distribution(ours, theirs):
    """Kolmogorov and Smirnov's two-sample test at a level of 0.1 %; conservative for values that repeat."""
    ours, theirs = np.sort(ours), np.sort(theirs)
    values = np.concatenate([ours, theirs])
    distance = np.abs(
        np.searchsorted(ours, values, "right") / len(ours) - np.searchsorted(theirs, values, "right") / len(theirs)
    ).max()
    assert distance < 1.95 * math.sqrt(1 / len(ours) + 1 / len(theirs))


def theirs_of(transform, image, n, *names):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        drawn = [transform.make_params([image]) for _ in range(n)]
    return [np.array([params[name] for params in drawn]) for name in names]


N = 3000


@pytest.mark.parametrize(
    ("shape", "arguments"),
    [
        ((375, 500), {}),
        ((500, 375), {}),
        ((31, 33), {}),
        ((20, 400), {}),  # mostly the central crop
        ((400, 20), {}),
        ((3, 1), {}),
        ((1, 1), {}),
        ((200, 300), dict(scale=(0.1, 0.6), ratio=(0.2, 2))),
        ((200, 300), dict(scale=(1.0, 1.0), ratio=(1, 1))),  # always the central crop
    ],
    ids=str,
)
def test_windows_of_random_resized_crop(shape, arguments):
    image = torch.empty(3, *shape, dtype=torch.uint8)
    theirs = theirs_of(v2.RandomResizedCrop(8, **arguments), image, N, "top", "left", "height", "width")
    sizes = np.tile([shape], (N, 1))
    start, window = T.RandomResizedCrop(8, **arguments).windows(Rand(0, 0, np.arange(N)), sizes)
    assert (start >= 0).all() and (window >= 1).all() and (start + window <= sizes).all()
    ours = np.concatenate([start, window], 1).T

    def seen(top, left, height, width):
        yield height * width
        yield width / height
        yield top / np.maximum(shape[0] - height, 1)
        yield left / np.maximum(shape[1] - width, 1)
        yield from (top, left, height, width)

    for a, b in zip(seen(*ours), seen(*theirs), strict=True):
        assert_same_distribution(a, b)


def test_the_central_crop_never_vanishes():
    """torchvision's would have no pixel, and fail."""
    _, window = T.RandomResizedCrop(8, ratio=(3, 4)).windows(Rand(0, 0, np.arange(50)), np.tile([[1, 1]], (50, 1)))
    assert (window == 1).all()


@pytest.mark.parametrize("arguments", [dict(padding=3), dict(padding=(0, 5)), dict(padding=2, pad_if_needed=True)])
def test_windows_of_random_crop(arguments):
    size = 33 if "pad_if_needed" in arguments else 25  # 33: higher than the padded image
    image = torch.empty(3, 24, 40, dtype=torch.uint8)
    transform = v2.RandomCrop(size, **arguments)
    top, left = theirs_of(transform, image, N, "top", "left")
    padding = transform.make_params([image])["padding"]
    params, _ = T.RandomCrop(size, **arguments).make_params(Rand(0, 0, np.arange(N)), np.tile([[24, 40]], (N, 1)))
    assert_same_distribution(params["start"][:, 0], top - padding[1])
    assert_same_distribution(params["start"][:, 1], left - padding[0])
    # The corners are reached, both independently.
    assert set(params["start"][:, 0].tolist()) == set(range(-padding[1], int(top.max()) - padding[1] + 1))


def test_colours_and_blurs():
    image = torch.empty(3, 4, 4, dtype=torch.uint8)
    arguments = dict(brightness=1.5, contrast=0.3, saturation=(0.2, 0.9), hue=0.1)
    names = list(arguments)
    theirs = theirs_of(v2.ColorJitter(**arguments), image, N, *(f"{name}_factor" for name in names))
    params, _ = T.ColorJitter(**arguments).make_params(Rand(0, 0, np.arange(N)), None)
    for name, column in zip(names, theirs, strict=True):
        assert_same_distribution(params[name], column)
    orders, counts = np.unique(params["order"], axis=0, return_counts=True)
    assert len(orders) == 24
    assert (np.abs(counts - N / 24) < 5 * math.sqrt(N / 24)).all()

    sigma = theirs_of(v2.GaussianBlur(3), image, N, "sigma")[0][:, 0]
    params, _ = T.GaussianBlur(3).make_params(Rand(0, 0, np.arange(N)), None)
    assert_same_distribution(params["sigma"], sigma)


@pytest.mark.parametrize("p", [0, 0.1, 0.5, 1])
@pytest.mark.parametrize("flip", [T.RandomHorizontalFlip, T.RandomVerticalFlip])
def test_flips_come_with_their_probability(flip, p):
    drawn = flip(p).make_params(Rand(0, 0, np.arange(N)), None)[0]["flip"]
    assert abs(drawn.mean() - p) <= 4 * math.sqrt(p * (1 - p) / N)
