"""Transforms of pixels: the CPU forms are torchvision's, bit for bit, and draws have its distributions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy import stats
from torchvision.transforms import v2

import torchdali as td
from torchdali import transforms as T
from torchdali.rand import Rand

F = v2.functional
PHOTOS = sorted((Path(__file__).parent / "data" / "photos").glob("*.jpg"))
# torchvision announces that its encoders will move to TorchCodec.
pytestmark = pytest.mark.filterwarnings("ignore:The image decoding and encoding:DeprecationWarning")
quick = settings(max_examples=25, deadline=None)
TYPES = (torch.uint8, torch.float32, torch.float64)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Small images: threads of torch's own only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@st.composite
def images(draw, types=TYPES, channels=(1, 3)):
    """[C, H, W], channels last in memory: of one pixel, of few values, noise, or a piece of a photograph."""
    height, width = draw(st.integers(1, 24)), draw(st.integers(1, 24))
    count, seed = draw(st.sampled_from(channels)), draw(st.integers(0, 999))
    rng = np.random.default_rng(seed)
    kind = draw(st.sampled_from(["noise", "few", "flat", "photo"]))
    if kind == "photo":
        with Image.open(PHOTOS[seed % len(PHOTOS)]) as photo:
            pixels = np.array(photo.convert("RGB"))[seed % 60 :, seed % 70 :][:height, :width, :count]
    else:
        largest = {"noise": 256, "few": 3, "flat": 1}[kind]
        pixels = rng.integers(0, largest, (height, width, count), dtype=np.uint8)
    image = torch.from_numpy(np.ascontiguousarray(pixels)).permute(2, 0, 1)
    dtype = draw(st.sampled_from(types))
    return image if dtype == torch.uint8 else image.to(dtype) / 255


def host(transform, image, seed=0):
    """The CPU form's result, and the params as plain numbers and lists."""
    params, _ = transform.make_params(Rand(seed, 0, np.zeros(1, np.uint64)), np.array([image.shape[1:]]))
    before, own = image.clone(), {key: values.tolist()[0] for key, values in params.items()}
    result = transform.transform_host(image, **own)
    assert torch.equal(image, before), "the input was changed"
    assert result.dtype == transform.out_dtype(image.dtype)
    assert result.shape == (transform.out_channels(len(image)), *image.shape[1:])
    return result, own


def assert_equal(ours, theirs):
    assert ours.dtype == theirs.dtype
    assert torch.equal(ours, theirs)


# torchvision's kernels

LEVELS = {
    "RandomInvert": (lambda p: T.RandomInvert(p), F.invert_image),
    "RandomPosterize": (lambda p: T.RandomPosterize(3, p), lambda image: F.posterize_image(image, 3)),
    "RandomPosterize to nothing": (lambda p: T.RandomPosterize(0, p), lambda image: F.posterize_image(image, 0)),
    "RandomSolarize": (lambda p: T.RandomSolarize(0.4, p), lambda image: F.solarize_image(image, 0.4)),
    "RandomAutocontrast": (lambda p: T.RandomAutocontrast(p), F.autocontrast_image),
    "RandomEqualize": (lambda p: T.RandomEqualize(p), F.equalize_image),
    "RandomAdjustSharpness": (
        lambda p: T.RandomAdjustSharpness(3, p),
        lambda image: F.adjust_sharpness_image(image, 3),
    ),
    "RandomGrayscale": (lambda p: T.RandomGrayscale(p), lambda image: F.rgb_to_grayscale_image(image, len(image))),
}


@pytest.mark.parametrize("name", LEVELS)
@quick
@given(images())
def test_kernels_are_torchvisions(name, image):
    make, kernel = LEVELS[name]
    assert_equal(host(make(1.0), image)[0], kernel(image))
    assert host(make(0.0), image)[0] is image


@quick
@given(images(), st.integers(0, 99))
def test_photometric_distort(image, seed):
    """torchvision's own `transform` with our parameters."""
    transform = T.RandomPhotometricDistort(p=0.6)
    ours, own = host(transform, image, seed)
    theirs = {
        f"{name}_factor": own[name] if own[f"{name}_on"] else None
        for name in ("brightness", "contrast", "saturation", "hue")
    }
    permutation = own["permutation"] if len(image) == 3 else None
    theirs |= {"contrast_before": bool(own["before"]), "channel_permutation": permutation}
    assert_equal(ours, v2.RandomPhotometricDistort().transform(image, theirs))


@quick
@given(images(), st.integers(0, 99))
def test_channels(image, seed):
    ours, own = host(T.RandomChannelPermutation(), image, seed)
    assert_equal(ours, F.permute_channels_image(image, own["permutation"]) if len(image) == 3 else image)
    assert_equal(host(T.Grayscale(), image)[0], F.rgb_to_grayscale_image(image, 1))
    assert_equal(host(T.Grayscale(3), image)[0], F.rgb_to_grayscale_image(image, 3))
    assert_equal(host(T.RGB(), image)[0], F.grayscale_to_rgb_image(image))


@quick
@given(images(), st.integers(0, 99), st.booleans())
def test_gaussian_noise(image, seed, clip):
    """torchvision's kernel after `torch.manual_seed`, for an image that lies channels first."""
    ours, own = host(T.GaussianNoise(0.1, 0.3, clip), image, seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(own["seed"])
        assert_equal(ours, F.gaussian_noise_image(image.contiguous(), 0.1, 0.3, clip))


@quick
@given(images(), st.integers(0, 99), st.sampled_from([0.0, 7, "random", "each"]))
def test_erasing(image, seed, value):
    value = tuple(range(len(image))) if value == "each" else value
    transform = T.RandomErasing(0.9, (0.1, 0.9), value=value)
    ours, own = host(transform, image, seed)
    (top, left), (height, width) = own["start"], own["shape"]
    assert 0 <= top <= image.shape[1] - height and 0 <= left <= image.shape[2] - width
    if not height:
        assert ours is image
        return
    if value == "random":
        fill = torch.randn(len(image), height, width, generator=torch.Generator().manual_seed(own["seed"]))
    else:
        fill = torch.tensor([float(v) for v in (value if isinstance(value, tuple) else [value])])[:, None, None]
    assert_equal(ours, F.erase_image(image, top, left, height, width, fill))


@quick
@given(images(types=(torch.uint8,)), st.integers(0, 99))
def test_jpeg(image, seed):
    ours, own = host(T.JPEG((1, 100)), image, seed)
    assert_equal(ours, F.jpeg_image(image, own["quality"]))


@quick
@given(images(), st.integers(0, 99))
def test_grid_mask(image, seed):
    """Only whole pixels vanish; without a grid nothing does."""
    ours, _ = host(T.GridMask((2, 9), (0.3, 0.8), 90, 1.0), image, seed)
    assert torch.equal(ours, torch.where(ours == 0, ours, image))
    gone = (ours != image).any(0)
    assert torch.equal(ours[:, gone], torch.zeros_like(ours[:, gone]))
    assert host(T.GridMask(p=0.0), image)[0] is image


def test_a_grid_masks_its_part():
    image = torch.ones(3, 400, 400)
    for ratio in (0.25, 0.5, 0.8):
        for degrees in ((0, 0), (30, 30)):
            masked = 1 - host(T.GridMask(20, ratio, degrees, 1.0), image)[0].mean()
            assert abs(masked - ratio**2) < 0.02
    assert host(T.GridMask(20, 1.0, p=1.0), image)[0].sum() == 0


# Distributions

N = 8000


def params_of(transform, size=(40, 60)):
    return transform.make_params(Rand(0, 0, np.arange(N)), np.tile([size], (N, 1)))[0]


def theirs_of(transform, size=(40, 60), channels=3):
    """torchvision's params, N times."""
    image = torch.empty(channels, *size)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return [transform.make_params([image]) for _ in range(2500)]


def assert_same_distribution(a, b):
    assert stats.ks_2samp(np.asarray(a, float), np.asarray(b, float)).pvalue > 1e-5


def assert_frequency(on, p):
    assert abs(np.mean(on) - p) <= 5 * (p * (1 - p) / len(on)) ** 0.5


@pytest.mark.parametrize("p", [0.0, 0.2, 1.0])
@pytest.mark.parametrize(
    "kind", [T.RandomInvert, T.RandomAutocontrast, T.RandomEqualize, T.RandomGrayscale, T.GridMask], ids=str
)
def test_coins(kind, p):
    params = params_of(kind(p=p))
    assert_frequency(params["on"] if "on" in params else params["ratio"] > 0, p)


@pytest.mark.parametrize("size", [(40, 60), (5, 90), (3, 3)])
def test_erased_rectangles(size):
    arguments = dict(scale=(0.05, 0.6), ratio=(0.2, 4.0))
    ours, theirs = (
        params_of(T.RandomErasing(1.0, **arguments), size),
        theirs_of(v2.RandomErasing(1.0, **arguments), size),
    )
    found = [own for own in theirs if own["v"] is not None and own["h"] * own["w"]]
    none = (ours["shape"] == 0).any(1)
    assert abs(none.mean() - (1 - len(found) / len(theirs))) < 0.04
    columns = {"i": ours["start"][:, 0], "j": ours["start"][:, 1], "h": ours["shape"][:, 0], "w": ours["shape"][:, 1]}
    for name, column in columns.items():
        assert_same_distribution(column[~none], [own[name] for own in found])
    assert_frequency((params_of(T.RandomErasing(0.3), (64, 64))["shape"] > 0).all(1), 0.3)


def test_distortions():
    ours, theirs = params_of(T.RandomPhotometricDistort(p=0.3)), theirs_of(v2.RandomPhotometricDistort(p=0.3))
    for name in ("brightness", "contrast", "saturation", "hue"):
        on = ours[f"{name}_on"] == 1
        assert_frequency(on, 0.3)
        assert_same_distribution(
            ours[name][on], [own[f"{name}_factor"] for own in theirs if own[f"{name}_factor"] is not None]
        )
    assert_frequency(ours["before"], 0.5)
    # All six orders alike; the first also where the coin says no.
    orders = np.bincount(ours["permutation"] @ [9, 3, 1])
    names = [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
    counts = np.array([orders[np.dot(name, [9, 3, 1])] for name in names])
    assert counts.sum() == N and stats.chisquare(counts, N * np.array([0.75, *[0.05] * 5])).pvalue > 1e-6


def test_numbers():
    quality = np.bincount(params_of(T.JPEG((20, 29)))["quality"])
    assert quality[:20].sum() == 0 and stats.chisquare(quality[20:]).pvalue > 1e-6 and len(quality) == 30
    order = np.bincount(params_of(T.RandomChannelPermutation())["permutation"] @ [9, 3, 1])
    assert stats.chisquare(order[order > 0]).pvalue > 1e-6 and (order > 0).sum() == 6
    grid = params_of(T.GridMask((10, 12), (0.2, 0.6), 45, 1.0))
    assert stats.chisquare(np.bincount(grid["tile"])[10:]).pvalue > 1e-6
    for name, low, high in (("ratio", 0.2, 0.6), ("angle", -np.pi / 4, np.pi / 4)):
        assert stats.kstest(grid[name], stats.uniform(low, high - low).cdf).pvalue > 1e-5
    for name in ("x", "y"):
        assert stats.kstest(grid[name] / grid["tile"], "uniform").pvalue > 1e-5
    assert len(set(params_of(T.GaussianNoise())["seed"].tolist())) == N
    noisy = host(T.GaussianNoise(0.2, 0.1), torch.full((3, 90, 90), 0.3))[0]
    assert stats.kstest(noisy.flatten().numpy(), stats.norm(0.5, 0.1).cdf).pvalue > 1e-5


# Clips

CLIPS = [
    T.ColorJitter(0.4, 0.4, 0.4, 0.3),
    T.RandomPhotometricDistort(),
    T.Grayscale(3),
    T.RandomGrayscale(1.0),
    T.RandomChannelPermutation(),
    T.RandomInvert(1.0),
    T.RandomAutocontrast(1.0),
    T.RandomAdjustSharpness(2, 1.0),
    T.RandomErasing(1.0),
    T.JPEG(50),
    T.RandAugment(2, 12),
    T.RandomApply([T.RandomSolarize(99, 1.0), T.GaussianBlur(3)], 1.0),
]


@pytest.mark.parametrize("transform", CLIPS, ids=lambda transform: type(transform).__name__)
def test_frames_of_a_clip_are_images(transform):
    """DALI's form of [F, H, W, C] gives each frame what it gives an image with the same params."""
    from torchdali import _dali

    rng = np.random.default_rng(0)
    clips = [rng.integers(0, 200, (3, 20 + i, 24, 3), dtype=np.uint8) for i in range(4)]
    sizes = np.array([clip.shape[1:3] for clip in clips])
    params, _ = transform.make_params(Rand(3, 0, np.arange(4)), sizes)

    def run(arrays, layout, rows):
        with _dali.Session(1, torch.device("cpu")):
            ops = _dali.DynamicOps("cpu")
            ops.frames = layout == "FHWC"
            given = {name: _dali.as_batch(values[rows]) for name, values in transform.dali_params(params).items()}
            out = transform.transform(ops, _dali.as_batch(arrays, layout), **given)
            return [array.copy() for array in _dali.Output(out).arrays()]

    whole = run(clips, "FHWC", np.arange(4))
    for number, clip in enumerate(clips):
        frames = run([frame.copy() for frame in clip], "HWC", np.full(len(clip), number))
        assert np.array_equal(whole[number], np.stack(frames))


# Through the loader


def test_grey_images_leave_with_one_channel():
    """torchvision's default; and Normalize with one number follows."""
    arrays = [np.random.default_rng(i).integers(0, 256, (9, 8, 3), dtype=np.uint8) for i in range(4)]

    @T.traceable
    def through(sample, rand, ops):
        return dict(sample)

    for last in ([], [through]):
        transform = T.Compose([T.Grayscale(), T.Normalize([0.5], [0.25]), *last])
        for engine in ("eager", "pipeline", "debug"):
            loader = td.DataLoader(
                td.InMemoryDataset(image=arrays), 4, transform=transform, device="cpu", engine=engine, num_threads=1
            )
            ((batch,),) = list(loader)
            assert batch.shape == (4, 1, 9, 8)
            for image, array in zip(batch, arrays, strict=True):
                grey = F.rgb_to_grayscale_image(torch.from_numpy(array).permute(2, 0, 1), 1)
                torch.testing.assert_close(image, (grey / 255 - 0.5) / 0.25, rtol=0, atol=1e-5 if not last else 0.02)


@pytest.mark.parametrize("first", [[T.ToDtype(torch.float32, scale=True)], [T.Normalize([0.5], [0.5])]])
def test_what_needs_bytes(first):
    arrays = [np.zeros((8, 8, 3), np.uint8)] * 2
    loader = td.DataLoader(td.InMemoryDataset(image=arrays), 2, transform=T.Compose([*first, T.JPEG(50)]), device="cpu")
    with pytest.raises(Exception, match=r"JPEG compresses uint8 images, got torch.float32: put it before ToDtype"):
        list(loader)
    loader.transform = T.Compose([*first, T.RandomSolarize(100)])
    with pytest.raises(Exception, match=r"threshold must be at most 1 for torch.float32 images, got 100"):
        list(loader)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: T.RandomInvert(2), "p must be in [0, 1], got 2"),
        (lambda: T.RandomPosterize(9), "bits must be an integer from 0 to 8, got 9"),
        (lambda: T.RandomSolarize(256), "threshold must be a number of at most 255, got 256"),
        (lambda: T.RandomAdjustSharpness(-1), "sharpness_factor must not be negative, got -1"),
        (lambda: T.Grayscale(2), "num_output_channels must be 1 or 3, got 2"),
        (lambda: T.JPEG(0), "quality must be an integer from 1 to 100, or (lowest, highest), got 0"),
        (lambda: T.JPEG((30, 20)), "quality must be an integer from 1 to 100, or (lowest, highest), got (30, 20)"),
        (lambda: T.GaussianNoise(sigma=-1), "sigma must not be negative, got -1"),
        (lambda: T.GaussianNoise("0"), "mean must be a number, got '0'"),
        (lambda: T.RandomErasing(scale=(0, 2)), "scale must have 0 <= low <= high <= 1, got (0, 2)"),
        (lambda: T.RandomErasing(ratio=(0, 2)), "ratio must be positive, got (0, 2)"),
        (lambda: T.RandomErasing(value="noise"), 'value must be a number, one for each channel, or "random", got'),
        (lambda: T.RandomPhotometricDistort(hue=(-1, 0)), "hue must have -0.5 <= low <= high <= 0.5, got (-1, 0)"),
        (lambda: T.GridMask(0), "tile must be a positive integer or (lowest, highest), got 0"),
        (lambda: T.GridMask(ratio=2), "ratio must have 0 <= low <= high <= 1, got (2.0, 2.0)"),
    ],
)
def test_wrong_arguments(make, message):
    with pytest.raises((TypeError, ValueError)) as caught:
        make()
    assert message in str(caught.value) and "\n" not in str(caught.value)
