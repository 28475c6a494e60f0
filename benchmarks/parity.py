"""Compares the forms of transforms with torchvision's, given the same params, and what they cost.

    python benchmarks/parity.py > benchmarks/parity.md

For each transform: the mean and the largest difference from torchvision v2 in levels of 255, the share of values that
differ by more than one level, and the CPU time per image, all in one thread: torchvision's own transform, the CPU form
with the drawing of its params, and the DALI form, run eagerly.  `tests/test_transforms.py` holds the
bounds.
"""

from __future__ import annotations

import platform
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torchvision
from PIL import Image
from torchvision.transforms import v2

from torchdali import _dali
from torchdali import transforms as T
from torchdali.rand import Rand
from torchdali.transforms.rounds import part_of

F = v2.functional
PHOTOS = sorted((Path(__file__).parent.parent / "tests" / "data" / "photos").glob("*.jpg"))
N, EPOCHS = 24, 3
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
Own = dict[str, Any]
Case = tuple[Any, Callable[[torch.Tensor, Own], torch.Tensor], Any, str]


def jitter(image: torch.Tensor, own: Own) -> torch.Tensor:
    names = ("brightness", "contrast", "saturation", "hue")
    given = {f"{name}_factor": own.get(name) for name in names} | {"fn_idx": own["order"]}
    return v2.ColorJitter().transform(image, given)


def distort(image: torch.Tensor, own: Own) -> torch.Tensor:
    names = ("brightness", "contrast", "saturation", "hue")
    given = {f"{name}_factor": own[name] if own[f"{name}_on"] else None for name in names}
    given |= {"contrast_before": bool(own["before"]), "channel_permutation": own["permutation"]}
    return v2.RandomPhotometricDistort().transform(image, given)


def operations(transform: Any) -> Callable[[torch.Tensor, Own], torch.Tensor]:
    def reference(image: torch.Tensor, own: Own) -> torch.Tensor:
        tv = v2.RandAugment()
        for turn in range(transform.rounds):
            if k := own[f"{turn}"]:
                part = part_of(own, f"{turn}/{k - 1}/")
                name = transform.branches[k - 1].names[part["operation"]]
                image = tv._apply_image_or_video_transform(
                    image, name, part["strength"], v2.InterpolationMode.NEAREST, {}
                )
        return image

    return reference


def erased(image: torch.Tensor, own: Own) -> torch.Tensor:
    value = torch.tensor([124.0, 116.0, 104.0])[:, None, None]
    return F.erase_image(image, *own["start"], *own["shape"], value)


def on(kernel: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor, Own], torch.Tensor]:
    return lambda image, own: kernel(image) if own["on"] else image


def cases() -> dict[str, Case]:
    family = {
        "RandAugment": T.RandAugment(),
        "TrivialAugmentWide": T.TrivialAugmentWide(),
        "AutoAugment": T.AutoAugment(),
    }
    sharp = T.RandomAdjustSharpness(2, 1.0)
    rounding = "a value may fall to the other side of a whole number"
    found: dict[str, Case] = {
        "ColorJitter, brightness": (T.ColorJitter(0.4), jitter, v2.ColorJitter(0.4), ""),
        "ColorJitter, contrast": (T.ColorJitter(contrast=0.4), jitter, v2.ColorJitter(contrast=0.4), ""),
        "ColorJitter, saturation": (T.ColorJitter(saturation=0.4), jitter, v2.ColorJitter(saturation=0.4), rounding),
        "ColorJitter, hue": (T.ColorJitter(hue=0.5), jitter, v2.ColorJitter(hue=0.5), rounding),
        "ColorJitter, all four": (
            T.ColorJitter(0.4, 0.4, 0.4, 0.1), jitter, v2.ColorJitter(0.4, 0.4, 0.4, 0.1), rounding,
        ),
        "RandomPhotometricDistort": (T.RandomPhotometricDistort(), distort, v2.RandomPhotometricDistort(), rounding),
        "Grayscale(3)": (T.Grayscale(3), lambda image, _: F.rgb_to_grayscale_image(image, 3), v2.Grayscale(3), ""),
        "RandomGrayscale(1)": (
            T.RandomGrayscale(1.0), on(lambda x: F.rgb_to_grayscale_image(x, 3)), v2.RandomGrayscale(1.0), "",
        ),
        "RandomChannelPermutation": (
            T.RandomChannelPermutation(), lambda image, own: F.permute_channels_image(image, own["permutation"]),
            v2.RandomChannelPermutation(), "",
        ),
        "GaussianBlur(5)": (
            T.GaussianBlur(5), lambda image, own: F.gaussian_blur_image(image, [5, 5], [own["sigma"]] * 2),
            v2.GaussianBlur(5), "each pass of a separable filter rounds by itself",
        ),
        "RandomInvert(1)": (T.RandomInvert(1.0), on(F.invert_image), v2.RandomInvert(1.0), ""),
        "RandomPosterize(3, 1)": (
            T.RandomPosterize(3, 1.0), on(lambda x: F.posterize_image(x, 3)), v2.RandomPosterize(3, 1.0), "",
        ),
        "RandomSolarize(100, 1)": (
            T.RandomSolarize(100, 1.0), on(lambda x: F.solarize_image(x, 100)), v2.RandomSolarize(100, 1.0), "",
        ),
        "RandomAutocontrast(1)": (T.RandomAutocontrast(1.0), on(F.autocontrast_image), v2.RandomAutocontrast(1.0), ""),
        "RandomEqualize(1)": (
            T.RandomEqualize(1.0), on(F.equalize_image), v2.RandomEqualize(1.0), "OpenCV's rule, not Pillow's",
        ),
        "RandomAdjustSharpness(2, 1)": (
            sharp, on(lambda x: F.adjust_sharpness_image(x, 2)), v2.RandomAdjustSharpness(2, 1.0), rounding,
        ),
        "RandomErasing(1)": (
            T.RandomErasing(1.0, value=(124, 116, 104)), erased, v2.RandomErasing(1.0, value=(124, 116, 104)), "",
        ),
        "JPEG((20, 80))": (
            T.JPEG((20, 80)), lambda image, own: F.jpeg_image(image, own["quality"]), v2.JPEG((20, 80)), "",
        ),
        "Normalize": (
            T.Normalize(MEAN, STD), lambda image, _: F.normalize(F.to_dtype(image, torch.float32, True), MEAN, STD),
            v2.Compose([v2.ToDtype(torch.float32, True), v2.Normalize(MEAN, STD)]), "x * scale + bias in one step",
        ),
        "ToDtype(float32, scale)": (
            T.ToDtype(torch.float32, True), lambda image, _: F.to_dtype(image, torch.float32, True),
            v2.ToDtype(torch.float32, True), "",
        ),
    }  # fmt: skip
    for name, transform in family.items():
        reason = "Equalize by OpenCV's rule; nearest neighbours of places between two pixels"
        found[name] = (transform, operations(transform), getattr(v2, name)(), reason)
    return found


def photos() -> list[np.ndarray]:
    """Pieces of photographs, [224, 224, 3] uint8."""
    found = []
    for i in range(N):
        with Image.open(PHOTOS[i % len(PHOTOS)]) as photo:
            whole = photo.convert("RGB").resize((260 + 3 * i, 250 + 2 * i))
        found.append(np.array(whole)[i : i + 224, 2 * i : 2 * i + 224].copy())
    return found


def rows(params: dict[str, np.ndarray]) -> list[Own]:
    lists = {key: values.tolist() for key, values in params.items()}
    return [{key: values[i] for key, values in lists.items()} for i in range(N)]


def in_dali(transform: Any, batch: list[np.ndarray], params: dict[str, np.ndarray]) -> list[np.ndarray]:
    with SESSION[0]:
        given = {key: _dali.as_batch(params[key]) for key in transform.dali_params(params)}
        out = _dali.Output(transform.transform(_dali.DynamicOps("cpu"), _dali.as_batch(batch, "HWC"), **given))
        return [array.copy() for array in out.arrays()]


SESSION: list[Any] = []


def milliseconds(function: Callable[[], Any], repeat: int = 3) -> float:
    """CPU time per image, the best of some runs."""
    found = []
    for _ in range(repeat):
        start = time.process_time()
        function()
        found.append((time.process_time() - start) / N * 1e3)
    return min(found)


def difference(ours: list[Any], theirs: list[torch.Tensor], unit: float) -> str:
    gaps = np.concatenate([
        np.abs(np.asarray(a, np.float64) - b.permute(1, 2, 0).double().numpy()).ravel()
        for a, b in zip(ours, theirs, strict=True)
    ]) * unit  # fmt: skip
    if not gaps.any():
        return "0 | 0 | 0"
    return f"{gaps.mean():.2g} | {gaps.max():.2g} | {(gaps > 1.0001).mean() * 100:.2g} %"


def main() -> None:
    warnings.simplefilter("ignore", DeprecationWarning)
    torch.set_num_threads(1)
    SESSION.append(_dali.Session(1, torch.device("cpu")))
    arrays = photos()
    tensors = [torch.from_numpy(array).permute(2, 0, 1) for array in arrays]
    plain = [tensor.contiguous() for tensor in tensors]
    sizes = np.tile([[224, 224]], (N, 1))
    import nvidia.dali

    print("# Parity with torchvision\n")
    print(f"Written by `python benchmarks/parity.py`: {N} photographs of 224 x 224, {EPOCHS} draws each; torchvision")
    print(f"{torchvision.__version__}, torch {torch.__version__}, DALI {nvidia.dali.__version__},")
    print(f"{platform.machine()}, one thread.  Differences in levels of 255, given the same params: mean, largest, and")
    print("the share of values beyond one level.  CPU time in ms per image, the best of three runs.\n")
    print("| transform | CPU form: mean | max | > 1 | DALI form: mean | max | > 1 ", end="")
    print("| torchvision ms | CPU form ms | DALI form ms | why the DALI form differs |")
    print("|---|" + "---|" * 10)
    for name, (transform, reference, theirs, reason) in cases().items():
        host, dali, expected = [], [], []
        for epoch in range(EPOCHS):
            params, _ = transform.make_params(Rand(1, epoch, np.arange(N)), sizes)
            owns = rows(params)
            expected += [reference(image, own) for image, own in zip(tensors, owns, strict=True)]
            host += [
                transform.transform_host(image, **own).permute(1, 2, 0).numpy()
                for image, own in zip(tensors, owns, strict=True)
            ]
            dali += in_dali(transform, arrays, params)
        unit = 255.0 if expected[0].is_floating_point() else 1.0

        def ours(transform: Any = transform) -> None:
            params, _ = transform.make_params(Rand(1, 0, np.arange(N)), sizes)
            for image, own in zip(tensors, rows(params), strict=True):
                transform.transform_host(image, **own)

        def by_dali(transform: Any = transform) -> None:
            in_dali(transform, arrays, transform.make_params(Rand(1, 0, np.arange(N)), sizes)[0])

        costs = [
            milliseconds(lambda theirs=theirs: [theirs(image) for image in plain]),
            milliseconds(ours),
            milliseconds(by_dali),
        ]
        cells = [name, difference(host, expected, unit), difference(dali, expected, unit)]
        print("| " + " | ".join([*cells, *(f"{cost:.2f}" for cost in costs), reason]) + " |")


if __name__ == "__main__":
    main()
