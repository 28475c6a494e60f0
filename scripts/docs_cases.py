"""The gallery's transforms of images, each with what makes torchvision's result of the same random numbers."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_sample_image
from torchvision import tv_tensors
from torchvision.transforms import v2

from torchdali import transforms as T

F = v2.functional
SIZE, SEED = 200, 3

Params = dict[str, Any]
Reference = Callable[[torch.Tensor, Params], torch.Tensor]


class Case(NamedTuple):
    """A transform and its peer.

    Attributes:
        ours: the transform.
        theirs: makes torchvision's result of the image and our params; None: torchvision has no such transform.
        note: what the reader should know.
        seed: of the loader, where another draw shows more.
    """

    ours: Any
    theirs: Reference | None = None
    note: str = ""
    seed: int = SEED


@functools.cache
def photograph(width: int = SIZE, height: int = 150) -> np.ndarray:
    """The photograph, uint8 [H, W, C]."""
    image = Image.fromarray(load_sample_image("flower.jpg")).crop((60, 0, 600, 405))
    return np.asarray(image.resize((width, height), Image.Resampling.LANCZOS)).copy()


def other_photograph() -> np.ndarray:
    """The same, turned upside down: a partner to mix with."""
    return photograph()[::-1, ::-1].copy()


# Torchvision's results, of the params that we drew


def plain(kernel: Callable[[torch.Tensor], torch.Tensor]) -> Reference:
    return lambda image, _: kernel(image)


def if_on(kernel: Callable[[torch.Tensor], torch.Tensor]) -> Reference:
    return lambda image, own: kernel(image) if own["on"] else image


def window(then: Callable[[torch.Tensor, Params], torch.Tensor] = lambda image, _: image) -> Reference:
    """A crop by `start` and `shape`, and what comes after it."""
    return lambda image, own: then(F.crop(image, *own["start"], *own["shape"]), own)


def resized(image: torch.Tensor, own: Params) -> torch.Tensor:
    return F.resize(image, [int(edge) for edge in own["size"]], antialias=True)


def jitter(image: torch.Tensor, own: Params) -> torch.Tensor:
    names = ("brightness", "contrast", "saturation", "hue")
    given = {f"{name}_factor": own.get(name) for name in names} | {"fn_idx": own["order"]}
    return v2.ColorJitter().transform(image, given)


def distort(image: torch.Tensor, own: Params) -> torch.Tensor:
    names = ("brightness", "contrast", "saturation", "hue")
    given = {f"{name}_factor": own[name] if own[f"{name}_on"] else None for name in names}
    given |= {"contrast_before": bool(own["before"]), "channel_permutation": own["permutation"]}
    return v2.RandomPhotometricDistort().transform(image, given)


def zoomed_out(image: torch.Tensor, own: Params) -> torch.Tensor:
    (top, left), (height, width) = own["start"], own["shape"]
    _, h, w = image.shape
    edges = [-left, -top, width - w + left, height - h + top]
    return F.pad(image, edges, fill=[123, 117, 104])


def rotated(image: torch.Tensor, own: Params) -> torch.Tensor:
    angle = float(own["rand"].uniform(-30, 30)[0])
    return F.rotate(image, angle, v2.InterpolationMode.BILINEAR, fill=[0.0])


AFFINE = dict(degrees=20, translate=(0.1, 0.1), scale=(0.7, 1.1), shear=(-15, 15), interpolation="bilinear")


def affine(image: torch.Tensor, own: Params) -> torch.Tensor:
    rand, size = own["rand"], np.array([image.shape[1:]])
    angle = rand.uniform(-20, 20)
    most = size[:, ::-1] * (0.1, 0.1)
    translate = np.rint(rand.uniform(-most, most, shape=2)).astype(int)
    scale = rand.uniform(0.7, 1.1)
    shear = rand.uniform(np.array([[-15, 0]]), np.array([[15, 0]]), shape=2)
    drawn = dict(angle=float(angle[0]), translate=translate[0].tolist(), scale=float(scale[0]), shear=shear[0].tolist())
    return v2.RandomAffine(**AFFINE).transform(tv_tensors.Image(image), drawn)


def perspective(image: torch.Tensor, own: Params) -> torch.Tensor:
    rand, (height, width) = own["rand"], image.shape[1:]
    rand.bernoulli(1.0)
    y, x = (int(0.5 * (edge // 2)) + 1 for edge in (height, width))
    low = np.array([[0, 0, width - x, 0, width - x, height - y, 0, height - y]])
    high = np.array([[x, y, width, y, width, height, x, height]])
    corners = rand.integers(low, high, shape=8)[0].tolist()
    end = [[corners[2 * k], corners[2 * k + 1]] for k in range(4)]
    start = [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]
    return F.perspective(image, start, end, v2.InterpolationMode.BILINEAR, fill=[0.0])


def elastic(image: torch.Tensor, own: Params) -> torch.Tensor:
    transform = v2.ElasticTransform(alpha=80.0, sigma=5.0)
    with torch.random.fork_rng():
        torch.manual_seed(int(own["seed"]))
        drawn = transform.make_params([tv_tensors.Image(image)])
    return transform.transform(tv_tensors.Image(image), drawn)


def noisy(image: torch.Tensor, own: Params) -> torch.Tensor:
    with torch.random.fork_rng():
        torch.manual_seed(int(own["seed"]))
        # torchvision draws for its own layout of memory, row by row.
        return v2.GaussianNoise(0.0, 0.15).transform(image.contiguous(), {})


def operations(transform: Any) -> Reference:
    """Those of the AutoAugment family, one after the other."""

    def theirs(image: torch.Tensor, own: Params) -> torch.Tensor:
        peer = v2.RandAugment()
        for turn in range(transform.rounds):
            if k := own[f"{turn}"]:
                head = f"{turn}/{k - 1}/"
                part = {key.removeprefix(head): value for key, value in own.items() if key.startswith(head)}
                name = transform.branches[k - 1].names[part["operation"]]
                nearest = v2.InterpolationMode.NEAREST
                image = peer._apply_image_or_video_transform(image, name, part["strength"], nearest, {})
        return image

    return theirs


def erased(image: torch.Tensor, own: Params) -> torch.Tensor:
    return F.erase_image(image, *own["start"], *own["shape"], torch.tensor([124.0, 116.0, 104.0])[:, None, None])


def flipped(image: torch.Tensor, own: Params) -> torch.Tensor:
    return F.horizontal_flip(image) if own["flip"] else image


def in_order(image: torch.Tensor, own: Params) -> torch.Tensor:
    for turn in range(2):
        image = F.invert(image) if own[f"{turn}"] == 1 else F.solarize(image, 128)
    return image


MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def normal(image: torch.Tensor, _: Params) -> torch.Tensor:
    return F.normalize(F.to_dtype(image, torch.float32, True), MEAN, STD)


def image_cases() -> dict[str, Case]:
    """By name, in the order of the pages."""
    family = {
        "AutoAugment": T.AutoAugment(),
        "RandAugment": T.RandAugment(),
        "TrivialAugmentWide": T.TrivialAugmentWide(),
    }
    sharper = plain(lambda image: F.adjust_sharpness_image(image, 4))
    none = "torchvision has none."
    timms = "timm's."
    combined = "Draws for each sample; what is inside draws by itself."
    flower = T.Grayscale(3)
    cases = {
        "CenterCrop": Case(T.CenterCrop(120), plain(lambda image: F.center_crop(image, [120, 120]))),
        "RandomCrop": Case(T.RandomCrop(110), window()),
        "RandomSizeCrop": Case(
            T.RandomSizeCrop(60, 140), window(), "DETR's; beside it torchvision's `crop`, with the same window."
        ),
        "TrimBorder": Case(T.TrimBorder(25), window(), timms),
        "CenterCropOrPad": Case(T.CenterCropOrPad((120, 230), (123, 117, 104)), None, timms),
        "RandomCropOrPad": Case(T.RandomCropOrPad((180, 120), (123, 117, 104)), None, timms),
        "RandomResizedCrop": Case(T.RandomResizedCrop(150), window(resized)),
        "Resize": Case(T.Resize(90), plain(lambda image: F.resize(image, [90], antialias=True))),
        "RandomResize": Case(T.RandomResize(60, 150), resized),
        "RandomShortestSize": Case(T.RandomShortestSize([60, 90, 120]), resized),
        "ResizeKeepRatio": Case(
            T.ResizeKeepRatio(90, random_aspect_prob=1.0, random_aspect_range=(0.5, 2.0)), resized, timms,
        ),
        "ScaleJitter": Case(T.ScaleJitter((150, 200), (0.4, 1.0)), resized),
        "Pad": Case(T.Pad(20, fill=(123, 117, 104)), plain(lambda image: F.pad(image, [20] * 4, fill=[123, 117, 104]))),
        "RandomZoomOut": Case(T.RandomZoomOut((123, 117, 104), (1.2, 2.0), p=1.0), zoomed_out),
        "RandomIoUCrop": Case(
            T.RandomIoUCrop(), window(), "The window has to overlap with a box, here around the flower.", 8
        ),
        "RandomHorizontalFlip": Case(T.RandomHorizontalFlip(1.0), plain(F.horizontal_flip)),
        "RandomVerticalFlip": Case(T.RandomVerticalFlip(1.0), plain(F.vertical_flip)),
        "RandomRotation": Case(T.RandomRotation(30, "bilinear"), rotated),
        "RandomAffine": Case(T.RandomAffine(**AFFINE), affine),
        "RandomPerspective": Case(T.RandomPerspective(0.5, p=1.0), perspective),
        "ElasticTransform": Case(T.ElasticTransform(alpha=80.0, sigma=5.0), elastic),
        "ColorJitter": Case(T.ColorJitter(0.5, 0.5, 0.5, 0.2), jitter),
        "RandomPhotometricDistort": Case(T.RandomPhotometricDistort(p=0.8), distort),
        "Grayscale": Case(T.Grayscale(3), plain(lambda image: F.rgb_to_grayscale(image, 3))),
        "RandomGrayscale": Case(T.RandomGrayscale(1.0), if_on(lambda image: F.rgb_to_grayscale(image, 3))),
        "RGB": Case(T.RGB(), plain(lambda image: image), "Grey images become three channels; others stay."),
        "RandomChannelPermutation": Case(
            T.RandomChannelPermutation(), lambda image, own: image[own["permutation"]], seed=1
        ),
        "RandomInvert": Case(T.RandomInvert(1.0), if_on(F.invert)),
        "RandomPosterize": Case(T.RandomPosterize(2, 1.0), if_on(lambda image: F.posterize(image, 2))),
        "RandomSolarize": Case(T.RandomSolarize(128, 1.0), if_on(lambda image: F.solarize(image, 128))),
        "RandomAutocontrast": Case(T.RandomAutocontrast(1.0), if_on(F.autocontrast)),
        "RandomEqualize": Case(T.RandomEqualize(1.0), if_on(F.equalize)),
        "GaussianBlur": Case(
            T.GaussianBlur(9, (2, 2)), lambda image, own: F.gaussian_blur(image, [9, 9], [own["sigma"]] * 2)
        ),
        "RandomAdjustSharpness": Case(T.RandomAdjustSharpness(4, 1.0), sharper),
        "GaussianNoise": Case(T.GaussianNoise(sigma=0.15), noisy),
        "JPEG": Case(T.JPEG((5, 15)), lambda image, own: F.jpeg(image, own["quality"])),
        "RandomErasing": Case(T.RandomErasing(1.0, value=(124, 116, 104)), erased),
        "GridMask": Case(T.GridMask(tile=(30, 50), p=1.0), None, none),
        "Normalize": Case(T.Normalize(MEAN, STD), normal, "Shown from -2.5 (black) to 2.5 (white)."),
        "ToDtype": Case(
            T.ToDtype(torch.float32, True), plain(lambda image: F.to_dtype(image, torch.float32, True)),
            "Numbers from 0 to 1.",
        ),
        "RandomApply": Case(T.RandomApply([flower], 1.0), plain(lambda image: F.rgb_to_grayscale(image, 3)), combined),
        "RandomChoice": Case(
            T.RandomChoice([T.RandomInvert(1.0), T.RandomVerticalFlip(1.0)]),
            lambda image, own: (F.invert, F.vertical_flip)[own["0"] - 1](image), combined,
        ),
        "RandomOrder": Case(
            T.RandomOrder([T.RandomInvert(1.0), T.RandomSolarize(128, 1.0)]),
            in_order, combined,
        ),
        "Identity": Case(T.Identity(), plain(lambda image: image), "For lists of choices."),
        **{
            name: Case(transform, operations(transform), seed=seed)
            for seed, (name, transform) in zip((7, 8, 9), family.items(), strict=True)
        },
        "AugMix": Case(T.AugMix(), None, "torchvision's draws differ, so there is no picture to compare."),
        "TimmRandAugment": Case(
            T.rand_augment_transform("rand-m9-mstd0.5-inc1"), None,
            "What timm's notation `rand-m9-mstd0.5-inc1` makes, by `rand_augment_transform`.", 5,
        ),
        "TimmAutoAugment": Case(
            T.auto_augment_transform("original-mstd0.5"), None,
            "What timm's notation `original-mstd0.5` makes, by `auto_augment_transform`.", 5,
        ),
        "TimmAugMix": Case(
            T.augment_and_mix_transform("augmix-m5-w4-d2"), None,
            "What timm's notation `augmix-m5-w4-d2` makes, by `augment_and_mix_transform`.",
        ),
        "TimmRandomErasing": Case(T.TimmRandomErasing(1.0, mode="rand", min_count=3), None, timms),
        "PerSample": Case(
            T.PerSample(v2.RandomSolarize(128, 1.0)), plain(lambda image: F.solarize(image, 128)),
            "torchvision's own transform, in the loader's threads.",
        ),
        "Decode": Case(T.Decode(), plain(lambda image: image), "The place of a function after the decoded image."),
    }  # fmt: skip
    return cases


NO_PICTURE = {
    "Compose": "a list of transforms",
    "Transform": "a base class",
    "Mover": "a base class",
    "SoundStep": "a base class",
    "Lambda": "a function as a transform",
    "function": "marks a function as a transform that adds fields",
    "traceable": "marks a function that runs in a pipeline",
    "rand_augment_transform": "makes a TimmRandAugment, which is here",
    "auto_augment_transform": "makes a TimmAutoAugment, which is here",
    "augment_and_mix_transform": "makes a TimmAugMix, which is here",
    "Views": "several transforms of one image; FiveCrop and TenCrop are such",
}
