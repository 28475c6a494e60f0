"""Every transform: one output in all engines, in both of its forms; odd images; wrong arguments."""

from __future__ import annotations

import inspect
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import InterpolationMode, v2

import torchdali as td
from torchdali import transforms as T
from torchdali.engine.plan import Plan
from torchdali.rand import Rand
from torchdali.testing import assert_same_stream, read_stream
from torchdali.transforms.levels import solarized_host

DATA = Path(__file__).parent / "data"
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

EXAMPLES = {
    "AugMix": [T.AugMix(), T.AugMix(8, 2, 1, 0.5, False, "nearest")],
    "AutoAugment": [T.AutoAugment(), T.AutoAugment("svhn", "bilinear", (10, 20, 30))],
    "Identity": [T.Identity()],
    "RandAugment": [T.RandAugment(), T.RandAugment(1, 20, interpolation="bilinear", fill=9)],
    "RandomApply": [
        T.RandomApply([T.ColorJitter(0.4), T.GaussianBlur(3)], 0.6),
        T.RandomApply([T.RandomApply([T.RandomChoice([T.GaussianBlur(3), T.RandomInvert(1.0)])], 0.5)], 0.9),
    ],
    "RandomChoice": [
        T.RandomChoice([T.Compose([T.Resize(30), T.RandomVerticalFlip()]), T.GaussianBlur(5), T.CenterCrop(40)]),
    ],
    "RandomOrder": [T.RandomOrder([T.RandomErasing(1.0), T.RandomSolarize(99), T.RandomHorizontalFlip()])],
    "TimmRandAugment": [
        T.rand_augment_transform("rand-m9-mstd0.5-inc1"),
        T.TimmRandAugment(6, 1, 0.9, interpolation=0),
    ],
    "TimmAutoAugment": [T.TimmAutoAugment(), T.TimmAutoAugment("3a", fill=9)],
    "TimmAugMix": [T.TimmAugMix(), T.TimmAugMix(9, width=2, depth=1, blended=True)],
    "TimmRandomErasing": [T.TimmRandomErasing(0.8, max_count=3), T.TimmRandomErasing(mode="rand")],
    "CenterCropOrPad": [T.CenterCropOrPad((60, 500), (9, 8, 7))],
    "RandomCropOrPad": [T.RandomCropOrPad((60, 500), 9)],
    "TrimBorder": [T.TrimBorder(7)],
    "ResizeKeepRatio": [
        T.ResizeKeepRatio((40, 50), 0.5),
        T.ResizeKeepRatio(40, 1.0, "bicubic", 0.5, (0.5, 1), True, 0.5),
    ],
    "TrivialAugmentWide": [T.TrivialAugmentWide(), T.TrivialAugmentWide(11, fill=(1, 200, 3))],
    "CenterCrop": [T.CenterCrop(64), T.CenterCrop((130, 500))],
    "ColorJitter": [T.ColorJitter(0.4, 0.4, 0.4, 0.1), T.ColorJitter(contrast=(0.2, 3)), T.ColorJitter()],
    "Compose": [
        T.Compose([T.RandomResizedCrop(48), T.RandomHorizontalFlip(), T.Normalize(MEAN, STD)]),
        T.Compose([T.Resize(64), T.Compose([T.CenterCrop(56), T.ToDtype(torch.float32, scale=True)])]),
        T.Compose([T.ToDtype(torch.float32, True), T.Resize((30, 40)), T.ColorJitter(0.5), T.Normalize(MEAN, STD)]),
    ],
    "Decode": [T.Decode()],
    "GaussianBlur": [T.GaussianBlur(5), T.GaussianBlur((3, 9), 1.5)],
    "GaussianNoise": [T.GaussianNoise(0.1, 0.3)],
    "Grayscale": [T.Grayscale(), T.Grayscale(3)],
    "GridMask": [T.GridMask((9, 40), (0.2, 0.7), 45, 0.8)],
    "JPEG": [T.JPEG((10, 60))],
    "Normalize": [T.Normalize(MEAN, STD)],
    "Pad": [T.Pad(3, fill=7), T.Pad((2, 0, 7, 1), (1, 20, 255))],
    "RandomAffine": [T.RandomAffine(30, (0.1, 0.2), (0.5, 2), (-10, 10, -5, 5), "bilinear", fill=9)],
    "RGB": [T.RGB()],
    "RandomAdjustSharpness": [T.RandomAdjustSharpness(2.5)],
    "RandomAutocontrast": [T.RandomAutocontrast()],
    "RandomChannelPermutation": [T.RandomChannelPermutation()],
    "RandomEqualize": [T.RandomEqualize()],
    "RandomErasing": [T.RandomErasing(0.8, value=(1, 2, 250)), T.RandomErasing(value="random")],
    "RandomGrayscale": [T.RandomGrayscale(0.5)],
    "RandomInvert": [T.RandomInvert()],
    "RandomPhotometricDistort": [T.RandomPhotometricDistort()],
    "RandomPosterize": [T.RandomPosterize(3)],
    "RandomSolarize": [T.RandomSolarize(100)],
    "RandomCrop": [T.RandomCrop(48, padding=(4, 9)), T.RandomCrop((300, 50), pad_if_needed=True, fill=(1, 20, 255))],
    "RandomHorizontalFlip": [T.RandomHorizontalFlip()],
    "RandomResize": [T.RandomResize(20, 90)],
    "RandomResizedCrop": [T.RandomResizedCrop(48), T.RandomResizedCrop((20, 60), (0.3, 0.5), (0.1, 1), "bicubic")],
    "RandomRotation": [T.RandomRotation(40), T.RandomRotation((0, 360), "bilinear", expand=True, fill={"image": 7})],
    "RandomShortestSize": [T.RandomShortestSize([30, 50, 64], 70)],
    "RandomVerticalFlip": [T.RandomVerticalFlip(0.4)],
    "RandomZoomOut": [T.RandomZoomOut((123, 117, 104), (1, 1.5))],
    "Resize": [
        T.Resize(48),
        T.Resize((96, 40), antialias=False),
        T.Resize(40, "bicubic", max_size=56),
        T.Resize(None, "nearest", max_size=80),
    ],
    "ScaleJitter": [T.ScaleJitter((60, 50))],
    "ToDtype": [T.ToDtype(torch.float32, scale=True), T.ToDtype(torch.float16, True), T.ToDtype(torch.float64)],
}
"""By exported name."""
TIMMS = {
    *("TimmRandAugment", "TimmAutoAugment", "TimmAugMix", "TimmRandomErasing"),
    *("CenterCropOrPad", "RandomCropOrPad", "TrimBorder", "ResizeKeepRatio"),
}
NO_TRANSFORMS = {
    *("CutMix", "Lambda", "MixUp", "Mover", "PerSample", "Transform", "Views"),
    *("function", "rand_augment_transform", "auto_augment_transform", "augment_and_mix_transform", "traceable"),
}
IN_TEST_MOVERS = {
    *("ElasticTransform", "RandomPerspective"),  # have no form in DALI
    *("ClampBoundingBoxes", "ClampKeyPoints", "ConvertBoundingBoxFormat", "RandomIoUCrop"),  # act on more than images
    *("SanitizeBoundingBoxes", "SanitizeKeyPoints"),
    *("FiveCrop", "TenCrop"),  # give several images
    "RandomSizeCrop",
    *("CenterCrop3d", "RandomCrop3d", "RandomDepthFlip"),  # move volumes
}
IN_TEST_VIDEO = {"UniformTemporalSubsample"}
IN_TEST_SOUNDS = {
    *("AddNoise", "CenterTimeCrop", "RandomTimeCrop", "SoundStep", "TimeShift", "TrimSilence"),
    *("FrequencyMasking", "MFCC", "MelSpectrogram", "Spectrogram", "TimeMasking", "ToDecibels"),
}

cases = pytest.mark.parametrize("transform", [case for several in EXAMPLES.values() for case in several], ids=repr)


@T.traceable
def through(sample, rand, ops):
    """Does nothing, in DALI: what stands in front of it runs there too."""
    return dict(sample)


def forms(transform):
    """The transform by torch's kernels where it has them, and by DALI's where it has those."""
    found = {"host": transform, "dali": T.Compose([transform, through])}
    return found if getattr(transform, "on_dali", True) else {"host": transform}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """10 photographs of different sizes in two classes: upright and landscape, one grey, one PNG, one by its EXIF."""
    root = tmp_path_factory.mktemp("photos")
    sources = sorted((DATA / "photos").glob("*.jpg"))
    assert len(sources) == 5
    for label in ("a", "b"):
        (root / label).mkdir()
    for number, source in enumerate(sources):
        (root / "a" / source.name).write_bytes(source.read_bytes())
        with Image.open(source) as image:
            window = image.convert("RGB").crop((5, 9, 70 + 9 * number, 90 - 3 * number))
        window.save(root / "b" / source.name, quality=92)
    with Image.open(root / "b" / "flower.jpg") as image:
        image.convert("L").save(root / "b" / "grey.jpg")
        image.save(root / "b" / "flower.png")
    (root / "b" / "flower.jpg").unlink()
    (root / "b" / "flower2.jpg").unlink()
    turned = DATA / "odd-images" / "hopper_orientation_6.jpg"
    (root / "b" / turned.name).write_bytes(turned.read_bytes())
    (root / "b" / "rgb.jpg").unlink()
    assert len(td.ImageFolder(root)) == 10
    return root


@pytest.fixture
def make(photos):
    """Makes a loader of these photographs."""

    def make(transform, batch_size=4, **arguments):
        arguments = dict(shuffle=True, seed=3, device="cpu", num_threads=1, prefetch_factor=1) | arguments
        dataset = td.ImageFolder(photos, fields=("image", "label", "index"))
        return td.DataLoader(dataset, batch_size, transform=transform, **arguments)

    return make


def rows(loader):
    """Each image [C, H, W] of an epoch, by index, without padding."""
    found = {}
    for images, *_, indices in loader:
        data, sizes = images if isinstance(images, td.Padded) else (images, [images.shape[2:]] * len(images))
        for image, size, index in zip(data, sizes, indices.tolist()):
            height, width = (int(v) for v in size)
            found[index] = image[:, :height, :width].clone()
    return [found[index] for index in sorted(found)]


def in_memory(images, transform, **arguments):
    """A loader of arrays [H, W, C]."""
    dataset = td.InMemoryDataset(image=images, fields=("image", "index"))
    arguments = dict(batch_size=2, device="cpu", num_threads=1, prefetch_factor=0) | arguments
    return td.DataLoader(dataset, transform=transform, **arguments)


def draw(height, width, channels=3, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


# One output


def test_every_export_has_its_examples():
    assert set(EXAMPLES) | NO_TRANSFORMS | IN_TEST_MOVERS | IN_TEST_SOUNDS | IN_TEST_VIDEO == set(T.__all__)
    for name, several in EXAMPLES.items():
        assert several and all(type(case) is getattr(T, name) for case in several)


@pytest.mark.parametrize(
    ("transform", "form"),
    [(case, form) for several in EXAMPLES.values() for case in several for form in forms(case)],
    ids=str,
)
def test_engines_agree(make, transform, form):
    """Bit for bit, over two epochs of two batches of four and one of two."""
    transform = forms(transform)[form]
    engines = {engine: make(transform, engine=engine) for engine in ("eager", "pipeline", "debug")}
    assert {engine: loader.engine for engine, loader in engines.items()} == {engine: engine for engine in engines}
    steps = assert_same_stream(*(lambda loader=loader: loader for loader in engines.values()), epochs=2)
    assert [len(step.samples) for step in steps] == [4, 4, 2] * 2
    assert (engines["eager"]._passes.plan().split == len(engines["eager"]._passes.plan().steps)) == (
        form == "dali" or transform == T.Decode()
    )


@cases
def test_a_sample_looks_the_same_in_any_batch(make, transform):
    for form in forms(transform).values():
        singly, together = make(form, batch_size=1, shuffle=False), make(form, batch_size=7)
        for one, other in zip(rows(singly), rows(together), strict=True):
            assert torch.equal(one, other)


# mean and max of the difference, in levels of uint8, over the photographs; measured, and a margin of a third
DIFFERENCES = [
    # DALI only moves pixels here, and computes one rounding as torch does.
    (T.Decode(), 0, 0),
    (T.CenterCrop((130, 500)), 0, 0),
    (T.RandomCrop((300, 50), padding=3, pad_if_needed=True, fill=(1, 20, 255)), 0, 0),
    (T.RandomHorizontalFlip(), 0, 0),
    (T.RandomVerticalFlip(), 0, 0),
    (T.ToDtype(torch.float32, scale=True), 0, 0),
    (T.ToDtype(torch.float16, scale=True), 0, 0),
    (T.ToDtype(torch.float64, scale=True), 255 * 3e-8, 255 * 1e-7),  # DALI multiplies in float32
    (T.Compose([T.ToDtype(torch.float32, True), T.ToDtype(torch.uint8, True)]), 0, 0),
    # 255.999 is 256 in torch's float16, and 0 in its uint8.
    (T.Compose([T.ToDtype(torch.float16, True), T.ToDtype(torch.uint8, True)]), 0.8, 255),
    (T.Compose([T.ToDtype(torch.float32), T.GaussianBlur(3), T.ToDtype(torch.uint8)]), 0.014, 1),
    # (x - mean) / std in another order.
    (T.Normalize(MEAN, STD), 255 * 1e-7, 255 * 5e-7),
    # Each pass of a separable filter is in float here, the whole in torch; both round in the end.
    (T.GaussianBlur(5), 0.001, 1),
    (T.GaussianBlur((3, 9), 1.5), 0.001, 1),
    # torch's filters are in fixed point, and round between the passes; without antialias only the end differs.
    (T.Resize((90, 80)), 0.17, 12),
    (T.Resize(48), 0.17, 16),
    (T.Resize((90, 80), "bicubic"), 0.18, 12),
    (T.RandomResizedCrop(48), 0.2, 16),
    (T.Resize((90, 80), antialias=False), 0.25, 1),
    (T.Resize((90, 80), "bicubic", antialias=False), 0.6, 24),  # DALI's cubic is Catmull-Rom, torch's a = -0.75
    # Where a place falls between two pixels, by rounding.
    (T.Resize((90, 80), "nearest-exact"), 0.4, 255),
    # DALI has no other nearest: half an output pixel apart.
    (T.Resize((90, 80), "nearest"), 10, 255),
    (T.Pad((2, 0, 7, 1), (1, 20, 255)), 0, 0),
    (T.RandomZoomOut((123, 117, 104), (1, 1.5)), 0, 0),
    (T.ScaleJitter((60, 50)), 0.15, 12),
    # Places between pixels again; at the edges torchvision weighs what lies outside twice, and DALI once.
    (T.RandomRotation(40), 0.0035, 75),
    (T.RandomAffine(30, (0.1, 0.2), (0.5, 2), (-10, 10, -5, 5)), 0.004, 80),
    (T.RandomRotation((0, 360), "bilinear", expand=True, fill=7), 0.21, 86),
    # torchvision's formulas, truncation included; a value may fall on the other side of a whole number.
    (T.ColorJitter(brightness=0.9), 0, 0),
    (T.ColorJitter(contrast=0.9), 0, 0),
    (T.ColorJitter(saturation=0.9), 0.0008, 1),
    (T.ColorJitter(hue=0.5), 0.0001, 1),
    (T.ColorJitter(0.4, 0.4, 0.4, 0.5), 0.0003, 2),
    (T.RandomPhotometricDistort(p=0.9), 0.0003, 2),
    (T.Grayscale(3), 0, 0),
    (T.RandomGrayscale(0.5), 0, 0),
    (T.RandomChannelPermutation(), 0, 0),
    (T.RandomInvert(), 0, 0),
    (T.RandomPosterize(3), 0, 0),
    (T.RandomSolarize(100), 0, 0),
    (T.RandomAutocontrast(1.0), 0, 0),
    (T.RandomAdjustSharpness(3, 1.0), 0, 0),
    (T.RandomErasing(1.0, value=(3, 200, 7)), 0, 0),
    (T.JPEG((10, 90)), 0, 0),
    (T.GridMask((9, 40), (0.2, 0.7), 45, 1.0), 0, 0),
    # OpenCV's rule against Pillow's; the largest where a picture has few levels.
    (T.RandomEqualize(1.0), 9, 240),
    # Floats stay in [0, 1].
    (T.Compose([T.ToDtype(torch.float32, True), T.ColorJitter(0.9, 0.9, 0.9, 0.5)]), 255 * 1e-7, 255 * 4e-6),
    (T.Compose([T.ToDtype(torch.float32, True), T.RandomAutocontrast(1.0)]), 255 * 1e-7, 255 * 1e-6),
    (T.Compose([T.ToDtype(torch.float32, True), T.RandomAdjustSharpness(3, 1.0)]), 255 * 1e-7, 255 * 2e-6),
    (T.Compose([T.ToDtype(torch.float32, True), T.RandomSolarize(0.4)]), 0, 0),
    (T.Compose([T.ToDtype(torch.float32, True), T.RandomPosterize(3)]), 0, 0),
    (T.Compose([T.ToDtype(torch.float32, True), T.RandomInvert()]), 0, 0),
]
"""Mean and largest difference of the forms in levels of uint8, over the photographs: measured, and a third more."""


@pytest.mark.parametrize(("transform", "mean", "largest"), DIFFERENCES, ids=lambda value: f"{value}")
def test_forms_agree(make, transform, mean, largest):
    host, dali = (rows(make(form)) for form in forms(transform).values())
    assert [(image.dtype, image.shape) for image in host] == [(image.dtype, image.shape) for image in dali]
    inner = transform.transforms[0] if isinstance(transform, T.Compose) else transform
    unit = 255 if host[0].is_floating_point() and (isinstance(inner, T.Normalize) or inner.scale) else 1
    difference = torch.cat([(a.double() - b.double()).abs().flatten() for a, b in zip(host, dali, strict=True)]) * unit
    assert difference.mean() <= mean
    assert difference.max() <= largest


# Transforms of one's own


class Invert(T.Transform):
    """Has DALI's form only, and sets no flag."""

    def transform(self, ops, image):
        return 255 - image


class InvertOnHost(T.Transform):
    """Has the host form only, and sets no flag."""

    def transform_host(self, image, out=None):
        return 255 - image


def test_the_forms_of_a_transform_are_seen_from_its_methods(make):
    plain = rows(make(None, shuffle=False))
    assert (Invert().on_dali, Invert().on_host) == (True, False)
    assert (InvertOnHost().on_dali, InvertOnHost().on_host) == (False, True)
    for transform in (
        Invert(),
        InvertOnHost(),
        T.Compose([Invert(), through]),
        T.Compose([T.Decode(), through, InvertOnHost()]),
    ):
        for image, inverted in zip(plain, rows(make(transform, shuffle=False)), strict=True):
            assert torch.equal(255 - image, inverted)
    with pytest.raises(ValueError, match=r"InvertOnHost.* has only a CPU form and can't run before a function"):
        make(T.Compose([InvertOnHost(), through]))
    assert pickle.loads(pickle.dumps(Invert())).on_dali


def test_a_transform_without_a_form_is_refused_when_it_is_made():
    class Neither(T.Transform):
        pass

    class Forgotten(Invert):
        on_host = True

    for cls in (T.Transform, Neither):
        with pytest.raises(
            TypeError, match=f"{cls.__name__} must define at least one form: transform .* or transform_h"
        ):
            cls()
    with pytest.raises(TypeError, match="Forgotten must define transform_host, since it says on_host = True"):
        Forgotten()


# What only one engine can run


def test_a_padding_of_the_host(make):
    """Only torch reflects."""
    transform = T.RandomCrop(60, padding=20, padding_mode="reflect")
    assert_same_stream(*(lambda engine=engine: make(transform, engine=engine) for engine in ("eager", "pipeline")))
    with pytest.raises(ValueError, match=r"RandomCrop\(.*'reflect'\) has only a CPU form and can't run before a fu"):
        make(T.Compose([transform, through]))
    plan = Plan(T.Compose([T.Resize(70), transform]), {"image": "encoded"}, "cuda", lambda name: False)
    assert plan.split == 2  # on a GPU too torch takes over
    with pytest.raises(
        ValueError, match=r"RandomCrop\(.*'reflect'\) has only a form in torch, and can't run before .*Invert"
    ):
        Plan(T.Compose([transform, Invert()]), {"image": "encoded"}, "cuda", lambda name: False)


def plain(sample, rand):
    return dict(sample)


@pytest.mark.parametrize(
    ("transform", "reason"),
    [
        (plain, "the function plain is not marked with transforms.traceable"),
        (T.Compose([T.Resize(20), through, plain]), "the function plain is not marked with transforms.traceable"),
        (
            T.Compose([T.Decode(), through, T.CenterCrop(20), through]),
            "CenterCrop needs the sizes of the images that through makes",
        ),
        (
            T.Compose([T.Decode(), through, T.Resize(20), through]),
            "Resize needs the sizes of the images that through makes",
        ),
    ],
    ids=["unmarked", "last", "crop", "resize"],
)
def test_what_cannot_be_traced(make, transform, reason):
    with pytest.raises(ValueError, match=f"engine='pipeline' cannot run this transform: {reason}; write engine='auto'"):
        make(transform, engine="pipeline")
    assert make(transform).engine == "eager"
    assert Plan(transform, {"image": "encoded"}, "cuda", lambda name: False).why_not_traced == reason


@pytest.mark.parametrize("crop", [T.CenterCrop(50), T.Resize(30), T.RandomResizedCrop(20), T.RandomCrop(60, 9)])
def test_sizes_behind_a_function(make, crop):
    """They are what the function gave; the result is that without the function."""
    behind = T.Compose([T.Decode(), through, crop, through])
    # The draws are keyed by the step's number, so another step stands in for the function.
    without = T.Compose([T.Decode(), T.RandomHorizontalFlip(0), crop, through])
    for one, other in zip(rows(make(behind)), rows(make(without)), strict=True):
        assert torch.equal(one, other)


def test_sizes_are_not_needed_for_a_fixed_size(make):
    """This may stand behind a function in a pipeline."""
    transform = T.Compose([T.Decode(), through, T.Resize((30, 40)), T.RandomHorizontalFlip(), through])
    assert_same_stream(*(lambda engine=engine: make(transform, engine=engine) for engine in ("eager", "pipeline")))


def test_nothing_for_dali_to_do():
    loader = in_memory(np.stack([draw(8, 8)] * 4), T.RandomHorizontalFlip(), engine="pipeline")
    assert (loader.engine, loader.engine_reason) == ("eager", "there is nothing for DALI to do")
    assert len(rows(loader)) == 4


# Images in memory


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("form", ["host", "dali"])
def test_images_in_memory(form, channels):
    """Grey ones stay grey; one pixel is enough; nothing writes into the user's arrays."""
    images = [draw(height, width, channels, seed) for seed, (height, width) in enumerate([(1, 1), (9, 4), (3, 30)])]
    before = [image.copy() for image in images]
    for transform in (
        T.Resize(5),
        T.Resize((4, 7), "bicubic"),
        T.CenterCrop(8),
        T.RandomCrop(5, padding=3, pad_if_needed=True, fill=7),
        T.RandomResizedCrop(6),
        T.RandomHorizontalFlip(1),
        T.RandomVerticalFlip(1),
        T.ColorJitter(0.4, 0.4),
        T.GaussianBlur(9),
        T.Normalize([0.5] * channels, [0.2] * channels),
        T.Normalize([0.5], [0.2]),
        T.ToDtype(torch.float32, scale=True),
    ):
        both = [
            rows(in_memory(images, forms(transform)[form], engine=engine, prefetch_factor=1))
            for engine in ("eager", "pipeline")
        ]
        for one, other in zip(*both, strict=True):
            assert torch.equal(one, other)
            assert one.shape[0] == channels
        assert all(np.array_equal(a, b) for a, b in zip(images, before, strict=True)), transform


@pytest.mark.parametrize("images", [[draw(3, 2)], [draw(1, 5)], [draw(1, 1)], [draw(7, 30)]])
def test_a_blur_larger_than_the_image(images):
    """Both forms reflect as often as is needed."""
    host, dali = (rows(in_memory(images, form)) for form in forms(T.GaussianBlur((15, 9), 2.0)).values())
    assert (host[0].int() - dali[0].int()).abs().max() <= 1


def test_colours_of_grey_images():
    """torchvision leaves their saturation and hue alone; DALI's operators would write outside their memory."""
    images = np.stack([draw(8, 8, 1, seed) for seed in range(4)])
    for form in forms(T.ColorJitter(saturation=0.5, hue=0.1)).values():
        for engine in ("eager", "pipeline", "debug"):
            for image, result in zip(images, rows(in_memory(images, form, engine=engine)), strict=True):
                assert np.array_equal(image, result.permute(1, 2, 0))


def test_fields_of_a_sample_change_together():
    """An image and its mask, each in its own array."""
    images = np.stack([draw(12, 12, 3, seed) for seed in range(5)])
    dataset = td.InMemoryDataset(image=images, mask=images[..., :1].copy(), kinds={"mask": "image"})
    transform = T.Compose([T.RandomCrop(6, padding=2), T.RandomHorizontalFlip(), T.RandomVerticalFlip()])
    for form in forms(transform).values():
        for cropped, masks in td.DataLoader(dataset, 5, transform=form, device="cpu"):
            assert torch.equal(cropped[:, :1], masks)


def test_float_arrays_are_no_images():
    with pytest.raises(ValueError, match="Resize acts on images, and the dataset has none: image, index"):
        in_memory(np.zeros((2, 8, 8, 3), np.float32), T.Resize(4))


def test_an_image_too_small_to_crop():
    """An error of its sample, which says what is needed."""
    images = [draw(20, 20), draw(20, 5), draw(20, 20), draw(20, 20)]
    for form in forms(T.RandomCrop(10)).values():
        with pytest.raises(
            td.BadSampleError, match=r"transform failed for sample 1: RandomCrop needs .* \(10, 10\), got \(20, 5\)"
        ):
            rows(in_memory(images, form))
        loader = in_memory(images, form, on_bad_sample="substitute")
        assert [len(images) for images, _ in loader] == [2, 2] and [bad.index for bad in loader.bad_samples] == [1]


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (T.Normalize((0.5, 0.5), (0.5, 1)), "Normalize has 2 channels, and the image 3"),
        (T.RandomCrop(30, pad_if_needed=True, fill=300), r"fill must be in \[0, 255\] for uint8 images, got 300"),
        (T.RandomCrop(30, pad_if_needed=True, fill=-1), r"fill must be in \[0, 255\] for uint8 images, got -1"),
    ],
    ids=["channels", "high", "low"],
)
def test_what_the_first_image_shows(transform, message):
    for form in forms(transform).values():
        with pytest.raises(Exception, match=message):
            rows(in_memory([draw(20, 20), draw(20, 20)], form))


# Arguments


OWN_ARGUMENTS = {"ToDtype": ["masks"]}
"""What transforms take beyond torchvision's arguments, after these."""


@pytest.mark.parametrize("name", sorted(set(EXAMPLES) - {"Decode", "Compose", "GridMask", *TIMMS}))
def test_arguments_are_torchvisions(name):
    """Names, order and defaults."""
    ours, theirs = (inspect.signature(getattr(module, name)).parameters for module in (T, v2))
    assert list(ours) == [*theirs, *OWN_ARGUMENTS.get(name, [])]
    for argument, parameter in theirs.items():
        default, expected = ours[argument].default, parameter.default
        assert getattr(default, "value", default) == getattr(expected, "value", expected), argument


@pytest.mark.parametrize("mode", [*list(InterpolationMode)[:4], *(Image.Resampling(value) for value in (0, 2, 3))])
def test_torchvisions_modes(mode):
    """Its enum and Pillow's constants."""
    name = mode.name.lower().replace("_", "-")
    for transform in (T.Resize((20, 30), mode), T.RandomResizedCrop(24, interpolation=mode)):
        for form, same in zip(forms(transform).values(), forms(replace(transform, interpolation=name)).values()):
            (one,), (other,) = rows(in_memory([draw(30, 50)], form)), rows(in_memory([draw(30, 50)], same))
            assert torch.equal(one, other)


@pytest.mark.parametrize("make_transform", [T.CenterCrop, T.RandomCrop, T.RandomResizedCrop, T.Resize, T.GaussianBlur])
def test_ways_to_write_a_size(make_transform):
    for size in (7, [7], (7,), (7, 7), np.int64(7), [np.int32(7), 7]):
        (image,) = rows(in_memory([draw(16, 16)], make_transform(size)))
        assert image.shape == ((3, 16, 16) if make_transform is T.GaussianBlur else (3, 7, 7))


def test_ways_to_write_numbers():
    mean, std = torch.tensor(MEAN, dtype=torch.float64), np.array(STD)
    assert T.Normalize(mean, std) == T.Normalize(MEAN, STD) == T.Normalize(list(MEAN), list(STD))
    assert T.GaussianBlur(3, 1)._sigma == T.GaussianBlur(3, [1.0])._sigma == T.GaussianBlur(3, (1, 1))._sigma == (1, 1)
    assert T.ColorJitter(hue=0.2)._ranges == T.ColorJitter(hue=(-0.2, 0.2))._ranges == {"hue": (-0.2, 0.2)}
    assert T.ColorJitter(brightness=2)._ranges == {"brightness": (0, 3)}
    assert T.ColorJitter(np.float32(0.5))._ranges == {"brightness": (0.5, 1.5)}


WRONG = [
    *(
        (lambda make=make, size=size: make(size), f"{name} must be a positive int or (height, width), got {size!r}")
        for make, name in (
            (T.CenterCrop, "size"),
            (T.RandomCrop, "size"),
            (T.Resize, "size"),
            (T.RandomResizedCrop, "size"),
            (T.GaussianBlur, "kernel_size"),
        )
        for size in (0, -3, 2.5, "7", (3,) * 3, (), (3, 0), True)
    ),
    (lambda: T.CenterCrop(None), "size must be a positive int or (height, width), got None"),
    (
        lambda: T.Resize(None),
        "max_size must be an int, with an int size below it or size=None, got size=None max_size=",
    ),
    (lambda: T.Resize((3, 4), max_size=9), "max_size must be an int, with an int size below it or size=None, got"),
    (lambda: T.Resize(5, max_size=5), "max_size must be an int, with an int size below it or size=None, got size=5"),
    (lambda: T.Resize(5, max_size=7.5), "max_size must be an int, with an int size below it or size=None, got size=5"),
    (lambda: T.Resize(5, "linear"), "interpolation must be one of bilinear, bicubic, nearest, nearest-exact, got 'lin"),
    (lambda: T.Resize(5, InterpolationMode.LANCZOS), "interpolation must be one of bilinear, bicubic, nearest, neare"),
    (lambda: T.Resize(5, antialias="yes"), "antialias must be True, False or None, got 'yes'"),
    (lambda: T.RandomResizedCrop(5, interpolation=7), "interpolation must be one of bilinear, bicubic, nearest, near"),
    (lambda: T.RandomResizedCrop(5, antialias=2), "antialias must be True, False or None, got 2"),
    (lambda: T.RandomResizedCrop(5, 0.5), "scale must be (low, high), got 0.5"),
    (lambda: T.RandomResizedCrop(5, (1, 0.5)), "scale must have 0 <= low <= high <= inf, got (1, 0.5)"),
    (lambda: T.RandomResizedCrop(5, ratio=(0, 1)), "ratio must be positive, got (0, 1)"),
    (lambda: T.RandomResizedCrop(5, ratio=(float("nan"), 1)), "ratio must have 0 <= low <= high <= inf, got (nan, 1)"),
    (lambda: T.RandomCrop(5, padding=-1), "padding must be 1, 2 or 4 integers, none negative, got -1"),
    (lambda: T.RandomCrop(5, padding=1.5), "padding must be 1, 2 or 4 integers, none negative, got 1.5"),
    (lambda: T.RandomCrop(5, padding=(1, 2, 3)), "padding must be 1, 2 or 4 integers, none negative, got (1, 2, 3)"),
    (lambda: T.RandomCrop(5, padding_mode="wrap"), "padding_mode must be constant, edge, reflect or symmetric, got 'w"),
    (lambda: T.RandomCrop(5, fill="red"), "of them by kind, such as {\"image\": 127}, got 'red'"),
    (lambda: T.RandomCrop(5, fill=()), "fill must be a number or one for each channel, or a dict of them by kind"),
    (lambda: T.RandomCrop(5, fill={}), 'or a dict of them by kind, such as {"image": 127}, got {}'),
    (lambda: T.RandomHorizontalFlip(1.5), "p must be in [0, 1], got 1.5"),
    (lambda: T.RandomVerticalFlip("half"), "p must be in [0, 1], got 'half'"),
    (lambda: T.ColorJitter(brightness=-1), "brightness must be in [0, inf], got -1"),
    (lambda: T.ColorJitter(contrast="much"), "contrast must be a number or (low, high), got 'much'"),
    (lambda: T.ColorJitter(saturation=(2, 1)), "saturation must have 0 <= low <= high <= inf, got (2, 1)"),
    (lambda: T.ColorJitter(hue=0.7), "hue must be in [0, 0.5], got 0.7"),
    (lambda: T.ColorJitter(hue=(-0.7, 0)), "hue must have -0.5 <= low <= high <= 0.5, got (-0.7, 0)"),
    (lambda: T.GaussianBlur(4), "kernel_size must be odd, got 4"),
    (lambda: T.GaussianBlur(3, 0), "sigma must be positive, got 0"),
    (lambda: T.GaussianBlur(3, (2, 1)), "sigma must have 0 <= low <= high <= inf, got (2, 1)"),
    (lambda: T.Normalize(0.5, 0.5), "mean must be one number for each channel, got 0.5"),
    (lambda: T.Normalize((), ()), "mean must be one number for each channel, got ()"),
    (lambda: T.Normalize((0.5, "x"), (1, 1)), "mean must be one number for each channel, got (0.5, 'x')"),
    (lambda: T.Normalize((0.5,), (float("nan"),)), "std must be one number for each channel, got (nan,)"),
    (lambda: T.Normalize((0.5, 0.5), (0.5,)), "mean and std must be of one length, got 2 and 1"),
    (lambda: T.Normalize((0.5,), (0.0,)), "std must not be zero, got (0.0,)"),
    (lambda: T.ToDtype(torch.int64), "dtype must be torch.uint8, float16, float32 or float64, got torch.int64"),
    (lambda: T.ToDtype("float32"), "dtype must be torch.uint8, float16, float32 or float64, got 'float32'"),
    (lambda: T.Compose(T.Resize(4)), "Compose takes a list of transforms, got Resize: write Compose([...])"),
    (lambda: T.Compose(T.Resize(4), T.Resize(5)), "Compose takes a list of transforms, got 2 of them: write Compose"),
    (lambda: T.Views(T.Resize(4), T.Resize(5)), "Views takes a list or a dict of transforms, got 2 of them: write Vie"),
    (
        lambda: T.Compose([T.Resize(4), 7]),
        "transform must be a torchdali transform or a function f(sample, rand), got 7",
    ),
    (lambda: T.Compose([T.Resize(4), [T.Resize(4)]]), "transform must be one transform: write Compose([...]) around"),
    (lambda: T.Compose([T.RandomHorizontalFlip]), "transform must be an object, got the class: write RandomHorizontal"),
    (lambda: T.Compose([v2.Resize(4)]), "works on single tensors; write torchdali.transforms.Resize with the same arg"),
    (lambda: T.Compose([v2.Compose([v2.Resize(4)])]), "write torchdali.transforms.Compose with the same arguments"),
    (lambda: T.Compose([v2.RandomHorizontalFlip]), "write torchdali.transforms.RandomHorizontalFlip with the same arg"),
    (lambda: T.Compose([v2.ToImage()]), "leave it out, or write torchdali.transforms.ToDtype(torch.float32, scale=Tr"),
    (
        lambda: T.Compose([v2.Lambda(repr)]),
        "torchdali has no such transform: write torchdali.transforms.PerSample(Lambda",
    ),
]


def test_wrong_arguments():
    """One sentence, at construction."""
    for wrong, message in WRONG:
        try:
            pytest.fail(f"{wrong()!r} was accepted: {message}")
        except (ValueError, TypeError) as error:
            assert message in str(error) and "\n" not in str(error), f"{error} instead of {message}"


def test_a_transform_of_the_wrong_place(make):
    with pytest.raises(ValueError, match="Decode must be the first transform"):
        make(T.Compose([T.Resize(4), T.Decode()]))
    with pytest.raises(TypeError, match=r"write torchdali.transforms.CenterCrop with the same arguments"):
        make(v2.CenterCrop(4))


@cases
def test_transforms_are_values(make, transform):
    """They pickle, as loaders must, also after use."""
    before = repr(transform)
    first = read_stream(make(transform), limit=2)
    again = pickle.loads(pickle.dumps(transform))
    assert repr(again) == repr(transform) == before
    assert read_stream(make(again), limit=2) == first


def test_parameters_belong_to_samples():
    """The same row for the same key, in any company."""
    sizes = np.tile([[30, 40]], (6, 1))
    for several in EXAMPLES.values():
        for transform in several:
            if isinstance(transform, T.Compose):
                continue
            everyone, _ = transform.make_params(Rand(1, 2, np.arange(6)), sizes)
            some, _ = transform.make_params(Rand(1, 2, np.array([4, 1])), sizes[:2])
            for name, values in everyone.items():
                assert np.array_equal(values[[4, 1]], some[name])


@pytest.mark.parametrize("threshold", [0.0, 0.1, 1.0, 99.5, 100.0, 127.00000001, 128.0, 254.9, 255.0])
def test_solarize_has_torchvisions_bits(threshold):
    levels = torch.arange(256, dtype=torch.uint8)
    for image in (
        levels.reshape(1, 16, 16),
        levels.repeat(3).reshape(16, 16, 3).permute(2, 0, 1),
        levels[:, None, None],
    ):
        ours, theirs = solarized_host(image, threshold), v2.functional.solarize_image(image, threshold)
        assert ours.dtype == torch.uint8 and torch.equal(ours, theirs) and ours.stride() == theirs.stride()
