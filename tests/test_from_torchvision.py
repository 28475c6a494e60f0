"""from_torchvision: a dataset and its transform give the same samples through DALI, or a list of reasons why not."""

from __future__ import annotations

import math
import pickle
import re
import shutil
import types as python_types
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from torch import nn
from torch.utils.data import ConcatDataset, Dataset, Subset, random_split
from torchvision import datasets, tv_tensors
from torchvision.transforms import InterpolationMode, autoaugment, v2
from torchvision.transforms import _presets as presets_of
from torchvision.transforms import transforms as v1

import torchdali as td
from torchdali import transforms as T
from torchdali.interop import from_torchvision
from torchdali.rand import Rand

from .test_parity import assert_same_distribution
from .torchvision_folders import DATASETS, PHOTOS

# Of torchvision's own: CelebA and others leave their files to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:The image decoding and encoding:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
ODD = Path(__file__).parent / "data" / "odd-images"


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    """Photos, a PNG and a grey JPEG in two classes; without EXIF orientation, which torchvision does not apply."""
    root = tmp_path_factory.mktemp("pictures")
    for i, path in enumerate([*PHOTOS, ODD / "hopper.png", ODD / "hopper_gray.jpg"]):
        (root / f"class{i % 2}").mkdir(exist_ok=True)
        shutil.copy(path, root / f"class{i % 2}")
    return root


def loader_of(dataset, batch_size=2, **arguments):
    """Make a loader of a translated dataset."""
    return td.DataLoader(dataset, batch_size, transform=dataset.transform, seed=5, device="cpu", **arguments)


def images_of(loader):
    """Every image of an epoch, without padding."""
    found = []
    for batch in loader:
        images = batch[0]
        data, sizes = images if isinstance(images, td.Padded) else (images, [images.shape[2:]] * len(images))
        found += [image[:, : int(h), : int(w)].clone() for image, (h, w) in zip(data, sizes)]
    return found


def as_tensor(image):
    return v2.functional.pil_to_tensor(image) if isinstance(image, Image.Image) else image


def largest(ours, theirs):
    """The largest and the mean difference; of one type and size."""
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    difference = (ours.double() - theirs.double()).abs()
    return float(difference.max()), float(difference.mean())


def steps_of(transform, root=None, **arguments):
    """Translate a transform, on a dataset of one file."""
    root = root or PHOTOS[0].parent
    dataset = datasets.DatasetFolder.__new__(datasets.ImageFolder)
    datasets.VisionDataset.__init__(dataset, str(root), transform=transform)
    dataset.samples, dataset.loader = [(str(PHOTOS[0]), 0)], datasets.folder.default_loader
    translated = from_torchvision(dataset, **arguments).transform
    return [] if translated is None else translated.transforms


def to_image():
    return [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]


# Pixels

EXACT = {
    "nothing": None,
    "identity": nn.Identity(),
    "v1 ToTensor": v1.ToTensor(),
    "v1 PILToTensor": v1.PILToTensor(),
    "v1 evaluation without resize": v1.Compose([v1.CenterCrop(90), v1.ToTensor(), v1.Normalize(MEAN, STD)]),
    "v1 uint8 crop": v1.Compose([v1.CenterCrop((70, 500)), v1.PILToTensor()]),
    "v1 flips": v1.Compose([v1.RandomHorizontalFlip(1.0), v1.RandomVerticalFlip(1.0), v1.ToTensor()]),
    "v1 no flips": v1.Compose([v1.RandomHorizontalFlip(0.0), v1.RandomVerticalFlip(0), v1.ToTensor()]),
    "v1 tensors": v1.Compose([v1.ToTensor(), v1.Resize((50, 70)), v1.CenterCrop(40), v1.Normalize(MEAN, STD)]),
    "v1 one mean": v1.Compose([v1.ToTensor(), v1.Normalize(0.5, 0.25)]),
    "v1 ConvertImageDtype": v1.Compose([v1.PILToTensor(), v1.ConvertImageDtype(torch.float64)]),
    "v1 there and back": v1.Compose([v1.PILToTensor(), v1.ToPILImage(), v1.CenterCrop(60), v1.ToTensor()]),
    "v2 evaluation": v2.Compose([v2.ToImage(), v2.Resize(64), v2.CenterCrop(56), *to_image(), v2.Normalize(MEAN, STD)]),
    "v2 window": v2.Compose([v2.ToImage(), v2.RandomResizedCrop(40, scale=(1, 1), ratio=(1, 1))]),  # the central one
    "v2 uint8": v2.Compose([v2.ToImage(), v2.Resize([64]), v2.RGB()]),
    "v2 edge": v2.Compose([v2.ToImage(), v2.Resize(size=None, max_size=70), v2.Identity()]),
    "v2 bicubic": v2.Compose([v2.ToImage(), v2.Resize(64, InterpolationMode.BICUBIC, max_size=80), v2.ToPureTensor()]),
    "v2 aliased": v2.Compose([v2.ToImage(), v2.Resize((64, 64), antialias=False)]),
    "v2 nearest": v2.Compose([v2.ToImage(), v2.Resize((64, 91), InterpolationMode.NEAREST)]),
    "v2 nearest-exact": v2.Compose([v2.PILToTensor(), v2.Resize((64, 91), "nearest-exact")]),
    "v2 dtypes": v2.Compose([v2.PILToTensor(), v2.ToDtype(torch.float32), v2.Normalize([100.0] * 3, [50.0] * 3)]),
    "v2 dtypes by kind": v2.Compose([v2.ToImage(), v2.ToDtype({tv_tensors.Image: torch.float16, "others": None})]),
    "v2 others": v2.Compose([v2.ToImage(), v2.ToDtype({torch.Tensor: torch.float16, "others": None})]),
    "v2 scaled": v2.Compose([v2.ToImage(), v2.ToDtype({torch.Tensor: None, "others": torch.float32}, scale=True)]),
    "v2 blur": v2.Compose([v2.GaussianBlur((5, 3), sigma=1.5), v2.ToImage()]),
    "v2 brightness": v2.Compose([v2.ColorJitter(brightness=(1.3, 1.3)), v2.ToImage()]),
    "v2 colours": v2.Compose([v2.ToImage(), v2.ColorJitter(saturation=(1.4, 1.4), hue=0)]),
    "v2 hue": v2.Compose([v2.ToImage(), v2.ColorJitter(hue=(0.1, 0.1))]),
    "v2 grey": v2.Compose([v2.ToImage(), v2.Grayscale(3)]),
    "v1 grey": v1.Compose([v1.PILToTensor(), v1.Grayscale()]),
    "v2 grey and back": v2.Compose([v2.ToImage(), v2.Grayscale(1), v2.RGB()]),
    "v2 levels": v2.Compose(
        [v2.ToImage(), v2.RandomInvert(1), v2.RandomPosterize(3, 1), v2.RandomSolarize(100, 1), v2.RandomEqualize(1)]
    ),
    "v2 sharp": v2.Compose([v2.ToImage(), v2.RandomAdjustSharpness(3, 1), v2.RandomAutocontrast(1), v2.JPEG(40)]),
    "v2 erased by nothing": v2.Compose([v2.ToImage(), v2.RandomErasing(1, ratio=(99, 100), value=[1, 2, 3])]),
    "v2 of v1": v2.Compose([v1.CenterCrop(64), v1.Compose([v1.PILToTensor()]), v2.RandomVerticalFlip(1)]),
    "sequential": nn.Sequential(nn.Sequential(v2.ToImage(), v2.Resize(64)), v2.CenterCrop(64)),
    "applied always": v2.Compose([v2.RandomApply([v2.ToImage(), v2.Resize(64)], p=1.0)]),
    "applied never": v2.Compose([v2.RandomApply([v2.AutoAugment()], p=0.0), v2.ToImage()]),
    "the only choice": v1.Compose([v1.RandomChoice([v1.CenterCrop(50), v1.CenterCrop(60)], p=[0, 1]), v1.ToTensor()]),
    "v1 padded": v1.Compose([v1.Pad((3, 7), (9, 8, 7)), v1.CenterCrop(60), v1.ToTensor()]),
    "v2 turned": v2.Compose([v2.ToImage(), v2.RandomRotation((33, 33), "bilinear", expand=True, fill=7)]),
    "v2 affine": v2.Compose([v2.ToImage(), v2.RandomAffine((33, 33), scale=(0.7, 0.7), shear=(5, 5))]),
    "v2 shortest": v2.Compose([v2.ToImage(), v2.RandomShortestSize(40, 50)]),
    "one order": v1.Compose([v1.RandomOrder([v1.CenterCrop(50)]), v1.ToTensor()]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXACT)
def test_equal_pixels(pictures, name):
    """uint8 images bit for bit, floats to 1e-6."""
    theirs = datasets.ImageFolder(pictures, transform=EXACT[name])
    ours = images_of(loader_of(from_torchvision(theirs)))
    assert len(ours) == len(theirs) == 7
    for image, (expected, _) in zip(ours, theirs, strict=True):
        expected = as_tensor(expected)
        top, _ = largest(image, expected)
        assert top <= (1e-6 * max(1, float(expected.abs().max())) if expected.is_floating_point() else 0)


# Pillow's kernels against torch's: the largest and the mean difference in levels of 255.
RESIZED = {
    "v1 evaluation": (v1.Compose([v1.Resize(64), v1.CenterCrop(56), v1.ToTensor()]), 1, 0.01),
    "v1 window": (v1.Compose([v1.RandomResizedCrop(40, scale=(1, 1), ratio=(1, 1)), v1.ToTensor()]), 1, 0.01),
    "v1 larger": (v1.Compose([v1.Resize((400, 500)), v1.ToTensor()]), 2, 0.02),
    "v1 bicubic": (v1.Compose([v1.Resize(64, InterpolationMode.BICUBIC), v1.ToTensor()]), 2, 0.02),
    "v2 longer edge": (v2.Compose([v2.Resize(None, max_size=90), *to_image()]), 1, 0.01),
    "v2 antialias is ignored": (v2.Compose([v2.Resize((32, 40), antialias=False), *to_image()]), 1, 0.01),
    "v1 nearest": (v1.Compose([v1.Resize((100, 100), InterpolationMode.NEAREST), v1.ToTensor()]), 255, 2),
    "v1 contrast": (v1.Compose([v1.ColorJitter(contrast=(1.3, 1.3)), v1.ToTensor()]), 1, 0.5),
    "v1 saturation": (v1.Compose([v1.ColorJitter(saturation=(0.3, 0.3)), v1.ToTensor()]), 1, 1),
    "v1 turned": (v1.Compose([v1.RandomRotation((33, 33), fill=9), v1.ToTensor()]), 255, 2),
    "v1 affine": (v1.Compose([v1.RandomAffine((33, 33), scale=(0.7, 0.7)), v1.ToTensor()]), 255, 2),
    "v1 grey": (v1.Compose([v1.Grayscale(3), v1.ToTensor()]), 1, 1),
    "v1 hue": (v1.Compose([v1.ColorJitter(hue=(0.1, 0.1)), v1.ToTensor()]), 20, 1),
}


@pytest.mark.parametrize("name", RESIZED)
def test_nearly_equal_pixels_of_pil_images(pictures, name):
    transform, top, mean = RESIZED[name]
    theirs = datasets.ImageFolder(pictures, transform=transform)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that antialias is ignored
        expected = [image for image, _ in theirs]
    for image, other in zip(images_of(loader_of(from_torchvision(theirs))), expected, strict=True):
        found_top, found_mean = largest(image, other)
        assert found_top <= top / 255 + 1e-6
        assert found_mean <= mean / 255


@pytest.mark.parametrize("name", ["ResNet50_Weights", "EfficientNet_B1_Weights", "ViT_B_16_Weights"])
def test_transforms_of_weights(pictures, name):
    """Their sizes and interpolations differ."""
    theirs = datasets.ImageFolder(pictures, transform=getattr(torchvision.models, name).DEFAULT.transforms())
    ours = images_of(loader_of(from_torchvision(theirs)))
    assert [type(step).__name__ for step in from_torchvision(theirs).transform.transforms] == [
        "Resize",
        "CenterCrop",
        "Normalize",
    ]
    for image, (expected, _) in zip(ours, theirs, strict=True):
        top, mean = largest(image, expected)
        assert top <= 2.5 / 255 / min(STD) and mean <= 0.02 / 255 / min(STD)


def test_each_parameter_arrives():
    """Compare the parameters of random transforms, where pixels show little."""
    crop = dict(scale=(0.1, 0.6), ratio=(0.5, 2.0), interpolation=InterpolationMode.BICUBIC)
    ours = [T.RandomResizedCrop((9, 8), (0.1, 0.6), (0.5, 2.0), "bicubic", True)]
    assert steps_of(v1.RandomResizedCrop((9, 8), **crop)) == ours
    assert steps_of(v2.RandomResizedCrop([9, 8], **crop, antialias=False)) == ours
    tensors = v2.Compose([v2.ToImage(), v2.RandomResizedCrop(9, antialias=False, interpolation="nearest")])
    assert steps_of(tensors) == [T.RandomResizedCrop((9, 9), interpolation="nearest", antialias=False)]

    for module in (v1, v2):
        jitter = module.ColorJitter(brightness=0.4, contrast=(0.3, 2), saturation=[0.9, 1.0], hue=0.3)
        assert steps_of(jitter) == [T.ColorJitter((0.6, 1.4), (0.3, 2.0), (0.9, 1.0), (-0.3, 0.3))]
        assert steps_of(module.GaussianBlur((5, 7), (0.2, 3.0))) == [T.GaussianBlur((5, 7), (0.2, 3.0))]
        assert steps_of(module.GaussianBlur(5, 0.7)) == [T.GaussianBlur((5, 5), (0.7, 0.7))]
        assert steps_of(module.RandomHorizontalFlip(0.3)) == [T.RandomHorizontalFlip(0.3)]
        assert steps_of(module.RandomVerticalFlip(0.2)) == [T.RandomVerticalFlip(0.2)]
        apply = module.RandomApply([module.RandomHorizontalFlip(0.5)], p=0.5)
        assert steps_of(apply) == [T.RandomHorizontalFlip(0.25)]
        assert steps_of(module.RandomCrop(32)) == [T.RandomCrop((32, 32))]
        padded = module.RandomCrop((32, 30), (1, 2, 3, 4), True, (9, 8, 7), "constant")
        (step,) = steps_of(padded)
        assert step.padding == (1, 2, 3, 4) and step.fill == (9, 8, 7) and step.pad_if_needed
        (step,) = steps_of(module.RandomCrop(32, 4, padding_mode="reflect"))
        assert step.padding in ((4,), (4, 4, 4, 4)) and step.padding_mode == "reflect"
        pad = module.Compose([module.Pad((2, 3), fill=7, padding_mode="edge"), module.RandomCrop(32)])
        assert steps_of(pad) == [T.RandomCrop((32, 32), (2, 3), False, 7, "edge")]
        pad = module.Compose([module.Pad((2, 3)), module.RandomCrop(32, pad_if_needed=True)])
        assert steps_of(pad) == [T.Pad((2, 3)), T.RandomCrop((32, 32), None, True)]
        rotation = module.RandomRotation(7, InterpolationMode.BILINEAR, True, (3, 4), (1, 2, 3))
        assert steps_of(rotation) == [T.RandomRotation((-7, 7), "bilinear", True, (3, 4), (1, 2, 3))]
        affine = module.RandomAffine(7, (0.1, 0.2), (1, 2), (3, 4, 5, 6), fill=8)
        assert steps_of(affine) == [T.RandomAffine((-7, 7), (0.1, 0.2), (1, 2), (3, 4, 5, 6), fill=8)]
        perspective = module.RandomPerspective(0.3, 0.4, fill=5)
        assert steps_of(perspective) == [T.RandomPerspective(0.3, 0.4, fill=5)]
        (step,) = steps_of(module.ElasticTransform([1.0, 2.0], 3.0))
        assert (step.alpha, step.sigma, step.interpolation) == ((1, 2), (3, 3), "bilinear")
    assert steps_of(v2.RandomZoomOut((1, 2, 3), (2, 3), 0.4)) == [T.RandomZoomOut((1, 2, 3), (2, 3), 0.4)]
    assert steps_of(v2.RandomResize(20, 30)) == [T.RandomResize(20, 30)]
    assert steps_of(v2.RandomShortestSize(20, 30)) == [T.RandomShortestSize((20,), 30)]
    assert steps_of(v2.ScaleJitter((20, 30), (1, 2))) == [T.ScaleJitter((20, 30), (1, 2))]
    (step,) = steps_of(v2.RandomCrop(32, (5, 6)))
    assert step.padding == (5, 6, 5, 6)
    by_kind = v2.RandomCrop(32, 4, fill={Image.Image: 5, tv_tensors.Image: 6, "others": 7})
    assert steps_of(by_kind)[0].fill == 5
    assert steps_of(v2.Compose([v2.ToImage(), by_kind]))[0].fill == 6
    assert steps_of(v2.Compose([v2.PILToTensor(), by_kind]))[0].fill == 7


def test_parameters_of_pixels_arrive():
    for module in (v1, v2):
        erasing = module.RandomErasing(0.3, (0.1, 0.2), (0.4, 2.0), (1, 2, 3))
        assert steps_of(module.Compose([module.PILToTensor(), erasing])) == [
            T.RandomErasing(0.3, (0.1, 0.2), (0.4, 2.0), (1, 2, 3))
        ]
        random = module.Compose([module.PILToTensor(), module.RandomErasing(value="random")])
        assert steps_of(random)[0].value == "random"
        assert steps_of(module.Compose([module.PILToTensor(), module.RandomErasing()]))[0].value == 0
        assert steps_of(module.RandomPosterize(3, p=0.2)) == [T.RandomPosterize(3, 0.2)]
        assert steps_of(module.RandomSolarize(99, p=0.2)) == [T.RandomSolarize(99, 0.2)]
        assert steps_of(module.RandomAdjustSharpness(2, p=0.2)) == [T.RandomAdjustSharpness(2, 0.2)]
        blur = module.GaussianBlur(3)
        apply = module.RandomApply([module.ColorJitter(0.5), blur], p=0.3)
        assert steps_of(apply) == [T.RandomApply([T.ColorJitter((0.5, 1.5)), T.GaussianBlur((3, 3), (0.1, 2.0))], 0.3)]
        choice = module.RandomChoice([module.Compose([blur, blur]), nn.Identity(), blur], p=[1, 2, 3])
        (found,) = steps_of(choice)
        ours = T.GaussianBlur((3, 3), (0.1, 2.0))
        assert found.transforms[0].transforms == [ours, ours] and found.transforms[1:] == [T.Identity(), ours]
        assert list(np.array(found.p) / sum(found.p)) == [1 / 6, 1 / 3, 1 / 2]
        order = module.RandomOrder([blur, module.RandomInvert()])
        assert steps_of(order) == [T.RandomOrder([ours, T.RandomInvert()])]
    for module in (autoaugment, v2):
        auto = module.AutoAugment(module.AutoAugmentPolicy.SVHN, InterpolationMode.BILINEAR, [1.0, 2.0, 3.0])
        assert steps_of(auto) == [T.AutoAugment("svhn", "bilinear", (1.0, 2.0, 3.0))]
        assert steps_of(module.RandAugment(3, 5, 11)) == [T.RandAugment(3, 5, 11)]
        assert steps_of(module.TrivialAugmentWide(7)) == [T.TrivialAugmentWide(7)]
        assert steps_of(module.AugMix(2, 4, 1, 0.5, False)) == [T.AugMix(2, 4, 1, 0.5, False)]
    assert steps_of(v2.Compose([v2.ToImage(), v2.GaussianNoise(0.1, 0.2, False)])) == [T.GaussianNoise(0.1, 0.2, False)]
    assert steps_of(v2.RandomPhotometricDistort(p=0.3)) == [T.RandomPhotometricDistort(p=0.3)]
    assert steps_of(v2.JPEG([20, 30])) == [T.JPEG((20, 30))]


def test_a_normalize_takes_its_ToTensor_along():
    normalize = T.Normalize(MEAN, STD)
    assert steps_of(v1.Compose([v1.ToTensor(), v1.Normalize(MEAN, STD)])) == [normalize]
    assert steps_of(v1.Compose([v1.ToTensor(), v1.Normalize(torch.tensor(MEAN), np.array(STD))]))[0].std == STD
    kept = T.ToDtype(torch.float32, scale=True)
    crop = v1.Compose([v1.ToTensor(), v1.CenterCrop(8), v1.Normalize(MEAN, STD)])
    assert steps_of(crop) == [kept, T.CenterCrop((8, 8)), normalize]
    unscaled = v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32), v2.Normalize(MEAN, STD)])
    assert steps_of(unscaled) == [T.ToDtype(torch.float32), normalize]
    halves = v2.Compose(
        [v2.ToImage(), v2.ToDtype(torch.float16), v2.ToDtype(torch.float32, True), v2.Normalize(MEAN, STD)]
    )
    assert steps_of(halves) == [T.ToDtype(torch.float16), kept, normalize]


def test_the_default_dtype(pictures):
    torch.set_default_dtype(torch.float64)
    try:
        theirs = datasets.ImageFolder(pictures, transform=v1.ToTensor())
        ours, expected = images_of(loader_of(from_torchvision(theirs)))[0], theirs[0][0]
    finally:
        torch.set_default_dtype(torch.float32)
    assert largest(ours, expected)[0] < 1e-12


# Randomness


@pytest.fixture(scope="module")
def ramp(tmp_path_factory) -> datasets.ImageFolder:
    """A file whose pixels say where they are, 400 times: red is the row, green the column."""
    rows, columns = np.mgrid[1:41, 1:61]
    path = tmp_path_factory.mktemp("ramp") / "a" / "ramp.png"
    path.parent.mkdir()
    Image.fromarray(np.stack([rows * 3, columns * 4, np.full_like(rows, 128)], 2).astype(np.uint8)).save(path)
    dataset = datasets.ImageFolder(path.parent.parent)
    dataset.samples = dataset.samples * 400
    return dataset


@pytest.mark.slow
@pytest.mark.parametrize("module", [v1, v2])
def test_distributions_through_the_loader(ramp, module):
    """Where crops lie, and what flips and colours do, read from pixels."""

    def seen(transform, read):
        ramp.transform = module.Compose([transform, module.PILToTensor()])
        ours = [read(image) for image in images_of(loader_of(from_torchvision(ramp), batch_size=100))]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            theirs = [read(image) for image, _ in ramp]
        assert len(set(ours)) > 1
        assert_same_distribution(ours, theirs)

    crop = module.RandomCrop(30, padding=(9, 2, 0, 7), fill=0)
    seen(crop, lambda image: int(image[0, 10].max()))
    seen(crop, lambda image: int(image[1, :, 15].max()))
    seen(module.RandomHorizontalFlip(0.2), lambda image: int(image[1, 0, 0]))
    seen(module.RandomApply([module.RandomVerticalFlip(0.6)], p=0.5), lambda image: int(image[0, 0, 0]))
    seen(module.ColorJitter(brightness=(0.2, 0.7)), lambda image: int(image[2, 0, 0]))
    window = module.RandomResizedCrop((20, 20), scale=(0.2, 0.9), ratio=(0.5, 1.5))
    seen(window, lambda image: int(image[0, -1, 0]) - int(image[0, 0, 0]))
    seen(window, lambda image: int(image[1, 0, -1]) - int(image[1, 0, 0]))
    seen(window, lambda image: int(image[1, 0, 0]))


def test_parameters_of_a_translated_crop():
    """Against v1's own draws."""
    theirs = v1.RandomResizedCrop(8, scale=(0.1, 0.6), ratio=(0.2, 2))
    (ours,) = steps_of(theirs)
    image = torch.empty(3, 200, 300)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        drawn = np.array([theirs.get_params(image, theirs.scale, theirs.ratio) for _ in range(2000)])
    start, shape = ours.windows(Rand(0, 0, np.arange(2000)), np.tile([[200, 300]], (2000, 1)))
    for column, expected in zip(np.concatenate([start, shape], 1).T, drawn.T, strict=True):
        assert_same_distribution(column, expected)


# Every class that torchvision exports

NOTHING = {
    "Compose": [[]],
    "Identity": [],
    "RGB": [],
    "ClampBoundingBoxes": [],
    "ClampKeyPoints": [],
    "ConvertBoundingBoxFormat": ["XYXY"],
    "SetClampingMode": [None],
    "PILToTensor": [],
    "ToImage": [],
    "ToPureTensor": [],
    "ToPILImage": [],
}
TRANSLATED = {
    "AugMix": [],
    "AutoAugment": [],
    "GaussianNoise": [],
    "JPEG": [(50, 90)],
    "RandAugment": [],
    "RandomAdjustSharpness": [2],
    "RandomApply": [[nn.Identity(), v1.CenterCrop(8)]],
    "RandomAutocontrast": [],
    "RandomChannelPermutation": [],
    "RandomChoice": [[v1.CenterCrop(8), v1.CenterCrop(9)]],
    "RandomEqualize": [],
    "RandomErasing": [],
    "RandomGrayscale": [],
    "RandomInvert": [],
    "RandomOrder": [[v1.CenterCrop(8), v1.RandomVerticalFlip()]],
    "RandomPhotometricDistort": [],
    "RandomPosterize": [3],
    "RandomSolarize": [100],
    "TrivialAugmentWide": [],
    "CenterCrop": [8],
    "ColorJitter": [0.5],
    "ConvertImageDtype": [torch.float32],
    "ElasticTransform": [],
    "GaussianBlur": [3],
    "Grayscale": [3],
    "Normalize": [MEAN, STD],
    "Pad": [4],
    "RandomAffine": [(-10, 20)],
    "RandomCrop": [8],
    "RandomHorizontalFlip": [],
    "RandomPerspective": [],
    "RandomResize": [20, 40],
    "RandomResizedCrop": [8],
    "RandomRotation": [(-10, 20)],
    "RandomShortestSize": [[20, 30]],
    "RandomVerticalFlip": [],
    "RandomZoomOut": [],
    "Resize": [8],
    "ScaleJitter": [(20, 30)],
    "ToDtype": [torch.float32],
    "ToTensor": [],
}
REFUSED = {
    "CutMix": [],
    "FiveCrop": [8],
    "Lambda": [lambda image: image],
    "LinearTransformation": [torch.eye(3), torch.zeros(3)],
    "MixUp": [],
    "RandomIoUCrop": [],
    "SanitizeBoundingBoxes": [],
    "SanitizeKeyPoints": [],
    "TenCrop": [8],
    "Transform": [],
    "UniformTemporalSubsample": [4],
}
NEEDS_TENSOR = ("ConvertImageDtype", "GaussianNoise", "Normalize", "RandomErasing", "ToDtype")


def exported():
    v2_kinds = [kind for kind in vars(v2).values() if isinstance(kind, type) and issubclass(kind, nn.Module)]
    v1_names = [(v1, name) for name in v1.__all__] + [(autoaugment, name) for name in autoaugment.__all__]
    v1_kinds = [getattr(module, name) for module, name in v1_names]
    return [kind for kind in v2_kinds + v1_kinds if kind not in (InterpolationMode, v2.AutoAugmentPolicy)]


def make(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # v2's ToTensor is deprecated
        arguments = {**NOTHING, **TRANSLATED, **REFUSED}[kind.__name__]
        return kind(*arguments) if kind is not v2.Compose else kind([nn.Identity()])


def test_the_lists_are_those_of_torchvision():
    assert {kind.__name__ for kind in exported()} == {*NOTHING, *TRANSLATED, *REFUSED}
    assert len(exported()) > 90


@pytest.mark.parametrize("kind", exported(), ids=lambda kind: f"{kind.__module__.split('.')[2]} {kind.__name__}")
def test_each_class_is_translated_or_named(kind):
    transform = make(kind)
    name = kind.__name__
    before = []
    if name in NEEDS_TENSOR:
        before = to_image() if name == "Normalize" else [v2.PILToTensor()]
    whole = v1.Compose([*before, transform])
    if name in REFUSED:
        with pytest.raises(ValueError, match=rf"transform\[0\] {name}\(.*: \S.*\n[\s\S]*Compose\(\[<{name}>\]\)"):
            steps_of(whole)
    elif name in NOTHING:
        assert steps_of(whole) == []
    else:
        assert len(steps_of(whole)) == 1


# What can't be translated


def problems_of(transform, **arguments):
    with pytest.raises(ValueError) as caught:
        steps_of(transform, **arguments)
    return re.findall(r"^  (\S+) (\w+).*?: (.*)$", str(caught.value), re.MULTILINE)


def test_all_problems_are_listed_at_once():
    def my_own(image):
        return image

    class Mine(v2.Resize):
        pass

    transform = v2.Compose(
        [
            v2.RandomResizedCrop(32),
            v2.RandomApply([v2.ColorJitter(0.4), v2.FiveCrop(8)], p=0.8),
            v2.Compose([v2.Resize(8, InterpolationMode.LANCZOS), Mine(8)]),
            my_own,
            v2.TenCrop(8),
            v2.ToDtype(torch.int32),
            v2.RandomGrayscale(p=0.0),
        ]
    )
    found = problems_of(transform)
    assert [(place, name) for place, name, _ in found] == [
        ("transform[1]", "RandomApply"),
        ("transform[1][1]", "FiveCrop"),
        ("transform[2][0]", "Resize"),
        ("transform[2][1]", "Mine"),
        ("transform[3]", "my_own"),
        ("transform[4]", "TenCrop"),
        ("transform[5]", "ToDtype"),
    ]
    with pytest.raises(ValueError, match="cannot translate 7 parts of ImageFolder") as caught:
        steps_of(transform)
    last = str(caught.value).splitlines()[-1]
    assert last.startswith("  transform=Compose([RandomResizedCrop(size=(32, 32)")
    assert last.endswith("<RandomApply>, <Resize>, <Mine>, <my_own>, <TenCrop>, <ToDtype>])")


@pytest.mark.parametrize(
    ("transform", "reason"),
    [
        (v1.Normalize(MEAN, STD), "PIL image here: put ToTensor"),
        (v2.Compose([v2.ToImage(), v2.Normalize(MEAN, STD)]), "torch.uint8 here"),
        (v2.Compose([*to_image(), v2.ToDtype(torch.float64), v2.Normalize(MEAN, STD)]), "torch.float64 here"),
        (v2.ToDtype(torch.float32, scale=True), "PIL image here"),
        (v1.ConvertImageDtype(torch.float32), "PIL image here"),
        (v1.Compose([v1.ToTensor(), v1.ToTensor()]), "refuses a tensor"),
        (v1.Compose([v1.ToTensor(), v1.PILToTensor()]), "refuses a tensor"),
        (v1.Compose([v1.ToTensor(), v1.ToPILImage()]), "put ToDtype"),
        (v1.ToPILImage("L"), "RGB"),
        (v2.Compose([v2.ToImage(), v2.ToDtype(torch.int64)]), "dtype must be torch.uint8"),
        (v2.Compose([v2.ToImage(), v2.ToDtype({tv_tensors.Mask: torch.int64})]), "no dtype for Image"),
        (v1.Resize(8, InterpolationMode.BOX), "interpolation must be one of"),
        (v2.RandomErasing(), "PIL image here"),
        (v2.GaussianNoise(), "PIL image here"),
        (v2.RandAugment(interpolation=InterpolationMode.BICUBIC), 'interpolation must be "nearest" or "bilinear"'),
        (v2.RandomOrder([v2.GaussianBlur(3), v2.ToImage()]), "converts some images"),
        (v2.RandomChoice([v2.Grayscale(1), v2.RandomInvert()]), "converts some images"),
        (v2.RandomApply([v2.ToImage()], p=0.5), "converts some images"),
        (v1.RandomRotation(9, InterpolationMode.BICUBIC), "interpolation must be nearest or bilinear"),
        (v1.RandomHorizontalFlip(p=2), "p must be in"),
        (torch.jit.ScriptModule(), "give the transforms as they were before torch.jit.script"),
    ],
)
def test_what_has_no_meaning_here(transform, reason):
    ((_, _, message),) = problems_of(transform)
    assert reason in message


def test_a_problem_does_not_make_others():
    """After a transform that can't be translated, nothing is known about the image."""
    lines = problems_of(v1.Compose([v1.Lambda(lambda image: image), v1.Normalize(MEAN, STD), v1.ToTensor()]))
    assert [name for _, name, _ in lines] == ["Lambda"]


def test_loaders_other_than_pillows(pictures):
    def grey(path):
        return Image.open(path).convert("L")

    dataset = datasets.DatasetFolder(pictures, grey, extensions=("jpg",), transform=v1.RandomErasing())
    with pytest.raises(ValueError, match=r"2 parts of DatasetFolder:\n  loader=<function .*grey") as caught:
        from_torchvision(dataset)
    assert "\n  transform RandomErasing" in str(caught.value)
    for loader in (datasets.folder.pil_loader, datasets.folder.default_loader):
        assert len(from_torchvision(datasets.DatasetFolder(pictures, loader, extensions=("jpg",)))) == 6


# Datasets


def labels_of(batches):
    return [label for batch in batches for label in (batch[1].tolist() if torch.is_tensor(batch[1]) else batch[1])]


@pytest.mark.parametrize("make_dataset", DATASETS, ids=lambda make: make.__name__)
def test_each_dataset(make_dataset, tmp_path, monkeypatch):
    """Images and labels are the dataset's own, in its order, after its transforms."""
    for module in ("celeba", "flowers102", "lfw", "places365", "sbu"):  # the checksums of the real files
        monkeypatch.setattr(f"torchvision.datasets.{module}.check_integrity", lambda *_, **__: True)
    # Some need scipy for their labels.
    theirs = make_dataset(tmp_path, transform=v1.PILToTensor(), target_transform=lambda label: label)
    ours = from_torchvision(theirs)
    assert ours.classes == getattr(theirs, "classes", None)
    assert ours.class_to_idx == getattr(theirs, "class_to_idx", None)
    batches = list(loader_of(ours, batch_size=1))
    assert len(ours) == len(theirs) == len(batches)
    for image, (expected, _) in zip(images_of(batches), theirs, strict=True):
        assert torch.equal(image, expected)
    expected = [label.tolist() if torch.is_tensor(label) else label for _, label in theirs]
    assert labels_of(batches) == expected


def test_target_types(tmp_path, monkeypatch):
    from .torchvision_folders import caltech101, celeba, clevr, inaturalist, oxford_iiit_pet

    monkeypatch.setattr("torchvision.datasets.celeba.check_integrity", lambda *_, **__: True)
    for kind in ("identity", "bbox", "landmarks"):
        theirs = celeba(tmp_path, target_type=kind)
        labels = labels_of(loader_of(from_torchvision(theirs), 1))
        assert labels == [label.tolist() for _, label in theirs]
    assert from_torchvision(celeba(tmp_path, target_type=[])).fields == ("image",)
    with pytest.raises(ValueError, match="several labels per sample: choose one"):
        from_torchvision(celeba(tmp_path, target_type=["attr", "identity"]))
    theirs = inaturalist(tmp_path / "i", target_type="order")
    assert labels_of(loader_of(from_torchvision(theirs))) == [label for _, label in theirs]
    theirs = oxford_iiit_pet(tmp_path / "o", target_types="binary-category")
    assert labels_of(loader_of(from_torchvision(theirs))) == [1, 0]
    with pytest.raises(TypeError, match="labels alone, got target_types"):
        from_torchvision(oxford_iiit_pet(tmp_path / "o", target_types="segmentation"))
    with pytest.raises(TypeError, match="target_type='category'"):
        from_torchvision(caltech101(tmp_path / "c", target_type="annotation"))
    assert from_torchvision(clevr(tmp_path / "v", "test")).fields == ("image",)


def test_joint_transforms(tmp_path):
    """`transforms=` of image and label, and v2's wrapper."""
    from .torchvision_folders import oxford_iiit_pet

    joint = v2.Compose([v2.ToImage(), v2.CenterCrop(40)])
    theirs = oxford_iiit_pet(tmp_path, transforms=joint)
    for dataset in (theirs, datasets.wrap_dataset_for_transforms_v2(oxford_iiit_pet(tmp_path, transforms=joint))):
        ours = from_torchvision(dataset)
        for image, (expected, _) in zip(images_of(loader_of(ours)), theirs, strict=True):
            assert torch.equal(image, expected)
    wrapped = datasets.wrap_dataset_for_transforms_v2(oxford_iiit_pet(tmp_path, transform=v1.CenterCrop(40)))
    assert from_torchvision(wrapped).transform.transforms == [T.CenterCrop((40, 40))]
    with pytest.raises(ValueError, match=r"\n  transforms FiveCrop"):
        from_torchvision(oxford_iiit_pet(tmp_path, transforms=v2.FiveCrop(8)))


def test_target_transforms(pictures):
    calls = []

    def one_hot(label):
        calls.append(label)
        return nn.functional.one_hot(torch.tensor(label), 3)

    theirs = datasets.ImageFolder(pictures, target_transform=one_hot)
    ours = from_torchvision(theirs)
    assert calls == [0, 1]  # once for each
    assert labels_of(loader_of(ours)) == [label.tolist() for _, label in theirs]
    theirs.target_transform = {0: "cat", 1: "dog"}.get
    assert labels_of(loader_of(from_torchvision(theirs))) == ["cat"] * 4 + ["dog"] * 3
    theirs.target_transform = {0: 5}.__getitem__
    with pytest.raises(KeyError) as caught:
        from_torchvision(theirs)
    assert "target_transform for the label 1" in caught.value.__notes__[0]


def test_what_an_image_folder_takes_is_kept(pictures):
    theirs = datasets.ImageFolder(pictures, is_valid_file=lambda path: "rgb" in path or path.endswith("png"))
    ours = from_torchvision(theirs, fields=("label", "path", "image"))
    assert ours.paths == [path for path, _ in theirs.samples] and ours.targets == theirs.targets
    assert ours.fields == ("label", "path", "image")
    assert ours.classes == ["class0", "class1"]
    theirs.samples = theirs.samples[1:]  # as torchvision reads them
    assert len(from_torchvision(theirs)) == len(theirs)


def test_the_state_is_that_of_an_ImageFolder(pictures):
    """A run may change from one to the other."""
    ours = from_torchvision(datasets.ImageFolder(pictures, transform=v1.CenterCrop(8)))
    assert ours.fingerprint() == td.ImageFolder(pictures).fingerprint()
    again = pickle.loads(pickle.dumps(ours))
    assert again.transform.transforms == ours.transform.transforms and again.fingerprint() == ours.fingerprint()


def test_subsets_and_concatenations(pictures):
    transform = v1.Compose([v1.CenterCrop(20), v1.PILToTensor()])
    whole = datasets.ImageFolder(pictures, transform=transform)
    same = datasets.ImageFolder(pictures, transform=v1.Compose([v1.CenterCrop((20, 20)), v1.PILToTensor()]))
    first, second = random_split(whole, [3, 4], generator=torch.Generator().manual_seed(1))
    for theirs in (first, Subset(second, torch.tensor([2, 0])), ConcatDataset([first, same, Subset(whole, [-1])])):
        ours = from_torchvision(theirs)
        assert ours.classes == whole.classes
        batches = list(loader_of(ours))
        for image, (expected, _) in zip(images_of(batches), theirs, strict=True):
            assert torch.equal(image, expected)
        assert labels_of(batches) == [label for _, label in theirs]
    other = datasets.ImageFolder(pictures, transform=v1.CenterCrop(21))
    with pytest.raises(ValueError, match="one loader has one transform"):
        from_torchvision(ConcatDataset([whole, other]))
    other.transform = v1.Compose([v1.FiveCrop(8), v1.TenCrop(8)])
    with pytest.raises(ValueError, match=r"2 parts of ConcatDataset") as caught:
        from_torchvision(ConcatDataset([whole, Subset(other, [1])]))
    assert "\n  datasets[1].dataset.transform[1] TenCrop" in str(caught.value)


class Files(Dataset):
    """As people write them."""

    def __init__(self, root, mode="RGB", transform=None):
        self.samples = datasets.ImageFolder(root).samples
        self.mode, self.transform = mode, transform

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, label = self.samples[index]
        return self.transform(Image.open(path).convert(self.mode)), label


class WithIndex(datasets.ImageFolder):
    def __getitem__(self, index):
        return (*super().__getitem__(index), index)


def test_datasets_of_ones_own(pictures):
    theirs = Files(pictures, transform=v2.Compose([v2.ToImage(), v2.Resize((40, 40))]))
    ours = from_torchvision(theirs)
    for image, (expected, _) in zip(images_of(loader_of(ours)), (theirs[i] for i in range(7)), strict=True):
        assert torch.equal(image, expected)
    for dataset in (Files(pictures, "L", v1.ToTensor()), WithIndex(pictures, transform=v1.ToTensor())):
        with pytest.raises(TypeError, match=r"a `__getitem__` of its own, and its first sample .* write FileDataset"):
            from_torchvision(dataset)

    class Unnamed(datasets.ImageFolder):
        """Nothing of its own that matters."""

        def find_classes(self, directory):
            return ["class1"], {"class1": 0}

    assert from_torchvision(Unnamed(pictures)).classes == ["class1"]


def test_other_things(pictures, tmp_path):
    memory = datasets.FakeData(4)
    with pytest.raises(TypeError, match="FakeData has others: write FileDataset"):
        from_torchvision(memory)
    digits = python_types.new_class("Digits", (datasets.MNIST,)).__new__(datasets.MNIST)
    digits.data, digits.targets = torch.zeros(2, 28, 28), torch.zeros(2)
    with pytest.raises(TypeError, match=r"MNIST has others: its images are in memory: write InMemoryDataset"):
        from_torchvision(digits)
    for kind, words in (
        (datasets.CocoDetection, r"write CocoDataset\(root, annotations\)"),
        (datasets.VOCSegmentation, r'write FileDataset\(\{"image": dataset.images, "mask": dataset.masks\}, kinds='),
    ):
        with pytest.raises(TypeError, match=f"{kind.__name__} has others: {words}"):
            from_torchvision(kind.__new__(kind))
    with pytest.raises(TypeError, match="ImageFolder is one already"):
        from_torchvision(td.ImageFolder(pictures))
    with pytest.raises(TypeError, match=r"write ImageFolder\(\.\.\.\)"):
        from_torchvision(datasets.ImageFolder)
    for thing in (None, [1, 2], "folder", torch.utils.data.TensorDataset(torch.zeros(3))):
        with pytest.raises(TypeError, match="from_torchvision takes torchvision's datasets"):
            from_torchvision(thing)
    with pytest.raises(ValueError, match="at least one file"):
        from_torchvision(Subset(datasets.ImageFolder(pictures), []))


# The loader


def test_two_epochs_of_training_input(folder):
    """Shuffled, augmented, normalised; the same again, and from the middle."""
    transform = v2.Compose([v2.RandomResizedCrop(32), v2.RandomHorizontalFlip(), *to_image(), v2.Normalize(MEAN, STD)])
    theirs = datasets.ImageFolder(folder, transform=transform)
    ours = from_torchvision(theirs, fields=("image", "label", "index"))

    def epochs(loader, n=2):
        return [[(x.clone(), y, i) for x, y, i in loader] for _ in range(n)]

    first = epochs(loader_of(ours, 4, shuffle=True))
    for epoch in first:
        assert sorted(i for _, _, indices in epoch for i in indices.tolist()) == list(range(22))
        for images, labels, indices in epoch:
            assert images.shape[1:] == (3, 32, 32) and images.dtype == torch.float32
            assert labels.tolist() == [theirs.targets[i] for i in indices]
    assert not torch.equal(first[0][0][2], first[1][0][2])

    again = loader_of(from_torchvision(theirs, fields=("image", "label", "index")), 4, shuffle=True)
    batches = iter(again)
    for _ in range(3):
        next(batches)
    state = again.state_dict()
    again.close()
    resumed = loader_of(ours, 4, shuffle=True)
    resumed.load_state_dict(state)
    rest = [*first[0][3:], *first[1]]
    for (a, _, i), (b, _, j) in zip([batch for epoch in epochs(resumed) for batch in epoch], rest, strict=True):
        assert torch.equal(a, b) and torch.equal(i, j)
    # The training input has torchvision's mean and spread.
    ours_all = torch.cat([x for epoch in first for x, _, _ in epoch])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        theirs_all = torch.stack([image for _ in range(2) for image, _ in theirs])
    assert abs(float(ours_all.mean() - theirs_all.mean())) < 4 * math.sqrt(2 / 44) * float(theirs_all.std())


def test_the_loader_takes_the_transform_of_the_dataset(pictures):
    ours = from_torchvision(datasets.ImageFolder(pictures, transform=v1.Compose([v1.CenterCrop(24), v1.ToTensor()])))
    images, labels = next(iter(td.DataLoader(ours, batch_size=4, device="cpu")))
    assert images.shape == (4, 3, 24, 24) and images.dtype == torch.float32
    assert labels.tolist() == [0, 0, 0, 0]
    images, _ = next(iter(td.DataLoader(ours, batch_size=4, device="cpu", transform=T.Resize((9, 9)))))
    assert images.shape == (4, 3, 9, 9)


# Transforms without a dataset


def test_the_transforms_of_all_weights():
    """Each model's: image classification, detection, segmentation, video, optical flow."""
    kinds_of = set()
    for name in torchvision.models.list_models():
        preset = torchvision.models.get_model_weights(name).DEFAULT.transforms()
        steps = from_torchvision(preset).transforms
        kinds_of.add(type(preset).__name__)
        for step in steps:
            if isinstance(step, T.Resize):
                assert step.interpolation == preset.interpolation.value
                assert step.antialias == (not isinstance(preset, presets_of.VideoClassification)), name
                assert list(step.size if isinstance(step.size, tuple) else [step.size]) == list(preset.resize_size)
            if isinstance(step, T.Normalize) and hasattr(preset, "mean"):
                assert (step.mean, step.std) == (tuple(preset.mean), tuple(preset.std))
    assert len(kinds_of) == 5


PRESETS = {
    "classification": presets_of.ImageClassification(crop_size=32, resize_size=40),
    "detection": presets_of.ObjectDetection(),
    "segmentation": presets_of.SemanticSegmentation(resize_size=36),
    "segmentation at its own size": presets_of.SemanticSegmentation(resize_size=None),
}


@pytest.mark.parametrize("name", PRESETS)
def test_presets_give_nearly_equal_pixels(pictures, name):
    """As of PIL images, which Pillow resizes."""
    theirs = datasets.ImageFolder(pictures, transform=PRESETS[name])
    ours = td.DataLoader(td.ImageFolder(pictures), 1, transform=from_torchvision(PRESETS[name]), device="cpu")
    for (images, _), (expected, _) in zip(ours, theirs, strict=True):
        (image,) = images.unbind() if isinstance(images, td.Padded) else images
        top, mean = largest(image, expected)
        assert top <= 2.5 / 255 / min(STD) and mean <= 0.02 / 255 / min(STD)


def test_the_presets_of_clips_and_of_flow():
    clips = np.random.default_rng(0).integers(0, 256, (3, 4, 30, 40, 3), dtype=np.uint8)
    preset = presets_of.VideoClassification(crop_size=(16, 16), resize_size=(20, 24))
    dataset = td.InMemoryDataset(video=clips, kinds={"video": td.kinds.Video("FHWC")})
    ((made,),) = td.DataLoader(dataset, 3, transform=from_torchvision(preset), device="cpu")
    for clip, one in zip(clips, made, strict=True):
        expected = preset(torch.from_numpy(clip).permute(0, 3, 1, 2))  # [C, F, H, W]
        gap = (one.movedim(1, 0) - expected).abs()
        # v1 resizes in floats, and v2, as we do, by the kernel of uint8: at most one level apart.
        assert gap.max() <= 1.01 / 255 / 0.216989 and gap.mean() < 0.2 / 255 / 0.216989
    pairs = td.InMemoryDataset({"first": clips[:, 0], "second": clips[:, 1]})
    ((first, second),) = td.DataLoader(pairs, 3, transform=from_torchvision(presets_of.OpticalFlow()), device="cpu")
    expected = presets_of.OpticalFlow()(*(torch.from_numpy(clips[:, i]).permute(0, 3, 1, 2) for i in (0, 1)))
    torch.testing.assert_close(torch.stack([first, second]), torch.stack(expected), rtol=0, atol=1e-6)


def test_transforms_of_typed_samples_are_translated():
    """What acts on boxes, masks, clips, or makes several images, which datasets of labels have no use for."""
    fill = {tv_tensors.Image: (1, 2, 3), tv_tensors.Mask: 9, "others": 0}
    theirs = v2.Compose(
        [
            v2.ToImage(), v2.RandomPhotometricDistort(), v2.RandomZoomOut(fill), v2.RandomIoUCrop(trials=5),
            v2.ClampBoundingBoxes(), v2.ConvertBoundingBoxFormat("CXCYWH"), v2.SanitizeBoundingBoxes(2.0),
            v2.SanitizeKeyPoints(), v2.ClampKeyPoints(), v2.SetClampingMode("hard"),
            v2.ToDtype(torch.float32, scale=True),
        ]
    )  # fmt: skip
    assert [type(step).__name__ for step in from_torchvision(theirs).transforms] == [
        *("RandomPhotometricDistort", "RandomZoomOut", "RandomIoUCrop", "ClampBoundingBoxes"),
        *("ConvertBoundingBoxFormat", "SanitizeBoundingBoxes", "SanitizeKeyPoints", "ClampKeyPoints", "ToDtype"),
    ]
    zoom, crop, _, convert, sanitize = from_torchvision(theirs).transforms[1:6]
    assert zoom == T.RandomZoomOut(fill) and crop.trials == 5 and convert == T.ConvertBoundingBoxFormat("cxcywh")
    assert sanitize == T.SanitizeBoundingBoxes(2.0)
    assert from_torchvision(v2.UniformTemporalSubsample(3)).transforms == [T.UniformTemporalSubsample(3)]
    (five,), (ten,) = (from_torchvision(one).transforms for one in (v2.FiveCrop(8), v2.TenCrop((8, 9), True)))
    assert repr(five) == "FiveCrop(size=(8, 8))" and repr(ten) == "TenCrop(size=(8, 9), vertical_flip=True)"
    assert from_torchvision(nn.Sequential(v2.RandomInvert(0.3))).transforms == [T.RandomInvert(0.3)]
    with pytest.raises(ValueError, match=r"cannot translate a part of Compose:\n  transform\[0\] MixUp.*batch_transf"):
        from_torchvision(v2.Compose([v2.MixUp(num_classes=3)]))
    with pytest.raises(TypeError, match="fields are a dataset's, and RandomInvert is a transform"):
        from_torchvision(v2.RandomInvert(), ["image"])


# timm's


def timms(name, module="transforms", /, **attributes):
    """An object like timm's: of a class of this name, with these attributes."""
    made = type(name, (), {"__module__": f"timm.data.{module}"})()
    vars(made).update(attributes)
    return made


def timms_operations(**changes):
    told = {"prob": 0.5, "magnitude": 9, "magnitude_std": 0.5, "magnitude_max": None, "hparams": {"translate_pct": 0.4}}
    told |= {"kwargs": {"fillcolor": (124, 116, 104), "resample": 3}} | changes
    names = "AutoContrast Equalize Invert Rotate PosterizeIncreasing SolarizeIncreasing SolarizeAdd ColorIncreasing"
    names += " ContrastIncreasing BrightnessIncreasing SharpnessIncreasing ShearX ShearY TranslateXRel TranslateYRel"
    return [timms("AugmentOp", "auto_augment", name=name, **told) for name in names.split()]


def timms_create_transform(**changes):
    """As timm 1.0 puts it together for training with "rand-m9-mstd0.5-inc1"."""
    erasing = {
        "probability": 0.25,
        "min_area": 0.02,
        "max_area": 1 / 3,
        "log_aspect_ratio": (-1.2, 1.2),
        "min_count": 1,
        "max_count": 1,
    }
    parts = {
        "crop": timms("RandomResizedCropAndInterpolation", size=(24, 24), scale=(0.08, 1.0), ratio=(0.75, 4 / 3),
                      interpolation=InterpolationMode.BICUBIC),
        "flip": v1.RandomHorizontalFlip(0.4),
        "augment": timms("RandAugment", "auto_augment", ops=timms_operations(), num_layers=2, choice_weights=None),
        "tensor": timms("MaybeToTensor"),
        "normalize": v1.Normalize(torch.tensor(MEAN), torch.tensor(STD)),
        "erase": timms("RandomErasing", "random_erasing", rand_color=False, per_pixel=True, num_splits=0, **erasing),
    }  # fmt: skip
    return v1.Compose(list((parts | changes).values()))


def test_timms_create_transform():
    crop, flip, augment, normalize, erase = from_torchvision(timms_create_transform()).transforms
    assert crop == T.RandomResizedCrop((24, 24), interpolation="bicubic") and flip == T.RandomHorizontalFlip(0.4)
    hparams = {"img_mean": (124, 116, 104), "translate_pct": 0.4, "interpolation": "bicubic"}
    assert augment == T.rand_augment_transform("rand-m9-mstd0.5-inc1", hparams)
    np.testing.assert_allclose(normalize.mean, MEAN, rtol=1e-6)
    assert erase.value == "random" and erase.p == 0.25 and erase.scale == (0.02, 1 / 3)
    np.testing.assert_allclose(np.log(erase.ratio), (-1.2, 1.2))
    modes = (InterpolationMode.BILINEAR, InterpolationMode.BICUBIC)
    changed = timms_create_transform(
        crop=timms("RandomResizedCropAndInterpolation", size=(9, 9), scale=(0.5, 1), ratio=(1, 1), interpolation=modes)
    )
    choice = from_torchvision(changed).transforms[0]
    assert [step.interpolation for step in choice.transforms] == ["bilinear", "bicubic"]
    middle = timms("CenterCropOrPad", size=(8, 8), fill=0, padding_mode="constant")
    assert from_torchvision(v1.Compose([middle, timms("ToNumpy")])).transforms == [T.CenterCrop((8, 8))]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"augment": timms("AutoAugment", "auto_augment", policy=[])}, "its policy holds no operations"),
        ({"augment": timms("AugMixAugment", "auto_augment", ops=timms_operations())}, "give them prob=1"),
        ({"augment": timms("RandAugment", "auto_augment", num_layers=2, choice_weights=None,
                           ops=[*timms_operations()[:3], *timms_operations(magnitude=5)[3:5]])},
         "its operations differ in magnitude: give all the same"),
        ({"augment": timms("RandAugment", "auto_augment", num_layers=2, choice_weights=None,
                           ops=[*timms_operations()[:3], *timms_operations(magnitude_std=5)[3:5]])},
         "its operations differ in magnitude_std"),
        ({"crop": timms("RandomPad", size=(8, 8))}, r"write RandomCropOrPad\(size\)"),
        ({"crop": timms("SomethingNew", size=(8, 8))}, r"write it as torchdali.transforms.PerSample"),
    ],
)  # fmt: skip
def test_what_of_timm_is_not_translated(changes, words):
    with pytest.raises(ValueError, match=words):
        from_torchvision(timms_create_transform(**changes))
