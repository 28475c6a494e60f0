"""Compares the forms of transforms with torchvision's, given the same params, and what they cost.

    python benchmarks/parity.py > benchmarks/parity.md

For each transform: the mean and the largest difference from torchvision v2 in levels of 255, the share of values that
differ by more than one level, and the CPU time per image, all in one thread: torchvision's own transform, the CPU form
with the drawing of its params, and the DALI form, run eagerly.  For transforms that move, the largest difference of
masks, boxes and points too; for sound, the difference from torchaudio and librosa.  `tests/test_transforms.py`,
`tests/test_movers.py`, `tests/test_typed_chains.py`, `tests/test_sounds.py` and `tests/test_timm.py` hold the bounds.
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
from torchdali.transforms.steps import part_of

try:
    from . import parity_moves as moves
    from . import parity_sounds
except ImportError:  # run as a script
    import parity_moves as moves
    import parity_sounds

ELSEWHERE = {
    "they are held by other tests": (
        "Compose", "Decode", "Identity", "Lambda", "PerSample", "function", "traceable", "Mover", "SoundStep",
        "Transform", "Views", "FiveCrop", "TenCrop", "RandomApply", "RandomChoice", "RandomOrder", "RGB",
        "rand_augment_transform", "auto_augment_transform", "augment_and_mix_transform",
    ),
    "they are timm's, and equal to it": (
        "TimmAugMix", "TimmAutoAugment", "TimmRandAugment", "TimmRandomErasing",
    ),
    "they draw noise of their own": ("GaussianNoise",),
    "torchvision has none": (
        "GridMask", "CenterCrop3d", "RandomCrop3d", "RandomDepthFlip",
    ),
    "they mix whole batches": ("MixUp", "CutMix", "AugMix"),
    "they change no pixels, and are equal to torchvision's": (
        "ClampBoundingBoxes", "ClampKeyPoints", "ConvertBoundingBoxFormat", "SanitizeBoundingBoxes",
        "SanitizeKeyPoints", "UniformTemporalSubsample",
    ),
}  # fmt: skip
"""Exported names that have no row, by the reason."""

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


def milliseconds(function: Callable[[], Any], n: int = N, repeat: int = 3) -> float:
    """CPU time per image or sound, the best of some runs."""
    found = []
    for _ in range(repeat):
        start = time.process_time()
        function()
        found.append((time.process_time() - start) / n * 1e3)
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
    print(f"{platform.machine()}, one thread.  Differences given the same params; CPU time in ms, the best of three.")
    print("\nNot in a table: " + "; ".join(f"{', '.join(names)}: {why}" for why, names in ELSEWHERE.items()) + ".\n")
    print("## Values\n")
    print("In levels of 255: the mean, the largest, and the share of values beyond one level; ms per image.\n")
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
    print_moves(arrays)
    parity_sounds.print_table(milliseconds)


def print_moves(arrays: list[np.ndarray]) -> None:
    """Print the table of transforms that move."""
    columns = moves.scenes(arrays)
    print("\n## Moves\n")
    print(
        "The largest difference, in levels of 255 for images, in pixels for boxes and points; for DALI's form also the"
    )
    print(f"mean and the share beyond one level; {moves.OBJECTS} boxes and points per image; ms per image alone.\n")
    print("| transform | image | mask | boxes | points | DALI form: mean | max | > 1 ", end="")
    print("| torchvision ms | CPU form ms | DALI form ms | why the DALI form differs |")
    print("|---|" + "---|" * 11)
    sizes = np.tile([[moves.SIZE, moves.SIZE]], (N, 1))
    tensors = [torch.from_numpy(array).permute(2, 0, 1) for array in arrays]
    plain = [tensor.contiguous() for tensor in tensors]
    for name, (step, move, theirs, reason) in moves.CASES.items():
        gaps = moves.gaps(step, move, columns)
        params = moves.params_of(step, columns, np.arange(N))
        alone = params if getattr(step, "needs_boxes", False) else None
        cells = [name, *(f"{gap:.2g}" for gap in gaps.values())]

        def draw(step: Any = step, alone: Any = alone) -> Any:
            return alone if alone is not None else step.make_params(Rand(1, 0, np.arange(N)), sizes)[0]

        def ours(step: Any = step, draw: Any = draw) -> None:
            form = step.bind(draw())
            for i, image in enumerate(tensors):
                form(image, None, i)

        dali = "- | - | -"
        if step.on_dali:
            expected = list(moves.images_by_torchvision(step, move, columns))
            dali = difference(in_dali(step, arrays, params), expected, 1.0)
        costs = ["-" if theirs is None or alone is not None else milliseconds(lambda t=theirs: [t(x) for x in plain])]
        costs += [milliseconds(ours)]
        costs += [milliseconds(lambda s=step, d=draw: in_dali(s, arrays, d())) if step.on_dali else "-"]
        shown = [cost if isinstance(cost, str) else f"{cost:.2f}" for cost in costs]
        print("| " + " | ".join([*cells, dali, *shown, reason]) + " |")


if __name__ == "__main__":
    main()
