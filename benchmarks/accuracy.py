"""Trains the same small networks through torchvision's loader and through torchdali's, over several seeds.

    python scripts/make_digits.py --out data/digits
    python scripts/make_shapes.py --out data/shapes --train 320 --val 80
    OMP_NUM_THREADS=1 python benchmarks/accuracy.py classification segmentation detection

The networks, the recipes and the numbers are those of `recipes/`; the seed gives first weights and the loader's draws.
torchvision's loader is torch's DataLoader over its dataset with v2's transforms, torchdali's is the recipe's; both are
evaluated by the same code on the same held-out images.  Two loaders that train alike give means whose difference is
within two standard errors.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import nn
from torchvision import datasets, tv_tensors
from torchvision.transforms import v2

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "recipes"))

import detection  # noqa: E402
import image_classification as classification  # noqa: E402
import segmentation  # noqa: E402

import torchdali as td  # noqa: E402

CPU = torch.device("cpu")
Batches = Iterable[tuple[Any, ...]]


def torchs(dataset: Any, batch_size: int, seed: int, collate: Any = None) -> Batches:
    """Make torch's loader, which draws from the global generator as it is used."""
    return torch.utils.data.DataLoader(
        dataset, batch_size, shuffle=True, drop_last=True, collate_fn=collate,
        generator=torch.Generator().manual_seed(seed),
    )  # fmt: skip


def train(
    net: nn.Module, batches: Batches, epochs: int, lr: float, loss_of: Callable[..., torch.Tensor], warm: bool = False
) -> None:
    """Train by AdamW with a cosine schedule, perhaps with a tenth of the steps to warm up."""
    optimizer = torch.optim.AdamW(net.parameters(), lr, weight_decay=1e-4)
    steps = epochs * len(batches)  # type: ignore[arg-type]
    schedule: Any = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    if warm:
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, steps, pct_start=0.1)
    for _ in range(epochs):
        net.train()
        for batch in batches:
            optimizer.zero_grad()
            loss_of(*batch).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 10.0)
            optimizer.step()
            schedule.step()


def of_classification(root: Path, ours: bool, seed: int) -> float:
    """The share of digits that are right, in percent."""
    config = classification.DataConfig(
        str(root / "digits"), 32, 8, 8, (0.6, 1.0), 0.0, mean=(0.3,) * 3, std=(0.38,) * 3
    )
    batches, val = (classification.make_loader(split, config, seed, 1, CPU) for split in ("train", "val"))
    if not ours:
        steps = [v2.ToImage(), v2.RandomResizedCrop(8, (0.6, 1.0)), v2.ToDtype(torch.float32, scale=True)]
        transform = v2.Compose([*steps, v2.Normalize(config.mean, config.std)])
        batches = torchs(datasets.ImageFolder(root / "digits" / "train", transform), 32, seed)
    net = classification.make_model("small_cnn", 10)
    train(net, batches, 3, 0.003, lambda x, y, *_: nn.functional.cross_entropy(net(x), y))
    return 100 * classification.evaluate(net, val, lambda: torch.autocast("cpu", enabled=False))


class Segments:
    """The shapes' images and masks as torchvision's types."""

    def __init__(self, folder: Path, transform: Any) -> None:
        self.images, self.transform = sorted((folder / "images").glob("*.jpg")), transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> Any:
        path = self.images[i]
        mask = tv_tensors.Mask(
            v2.functional.pil_to_tensor(Image.open(path.parents[1] / "masks" / f"{path.stem}.png"))[0]
        )
        return self.transform(v2.functional.to_image(Image.open(path).convert("RGB")), mask)


def of_segmentation(root: Path, ours: bool, seed: int) -> float:
    """The mean intersection over union, in percent."""
    config = segmentation.DataConfig(str(root / "shapes"), 4, 8, 64, 160, 96)
    batches, val = (segmentation.make_loader(split, config, seed, 1, CPU) for split in ("train", "val"))
    if not ours:
        fill = {tv_tensors.Image: 0, tv_tensors.Mask: segmentation.OUTSIDE}
        crop = v2.RandomCrop(96, pad_if_needed=True, fill=fill)
        steps = [v2.RandomResize(64, 160, antialias=True), crop, v2.RandomHorizontalFlip(), v2.ColorJitter(0.3, 0.3)]
        values = [v2.ToDtype({tv_tensors.Image: torch.float32, "others": None}, scale=True)]
        transform = v2.Compose([*steps, *values, v2.Normalize(config.mean, config.std)])
        batches = torchs(Segments(root / "shapes" / "train", transform), 8, seed)
    net = segmentation.make_model("small_cnn", 4)

    def loss_of(images: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
        scores = segmentation.forward(net, images, masks.shape[1:])
        return nn.functional.cross_entropy(scores, masks.long(), ignore_index=segmentation.OUTSIDE)

    train(net, batches, 4, 0.005, loss_of)
    return 100 * segmentation.evaluate(net, val, 4)


def of_detection(root: Path, ours: bool, seed: int) -> float:
    """COCO's average precision, in percent."""
    folder = root / "shapes" / "train"
    config = detection.DataConfig(str(root / "shapes"), 8, sizes=(56, 64, 72), max_size=100)
    recipe, val = (detection.make_loader(split, config, seed, 1, CPU) for split in ("train", "val"))
    steps = [
        v2.ToImage(), v2.RandomPhotometricDistort(),
        v2.RandomZoomOut(fill={tv_tensors.Image: (123, 117, 104), "others": 0}), v2.RandomIoUCrop(),
        v2.RandomHorizontalFlip(), v2.RandomShortestSize([56, 64, 72], max_size=100),
        v2.SanitizeBoundingBoxes(), v2.ToDtype(torch.float32, scale=True),
    ]  # fmt: skip
    plain = datasets.CocoDetection(folder / "images", folder / "instances.json", transforms=v2.Compose(steps))
    wrapped = datasets.wrap_dataset_for_transforms_v2(plain, target_keys=("boxes", "labels", "image_id"))
    # torchvision's samples without objects have no boxes at all, which v2's transforms refuse: neither loader has them.
    filled = [i for i, image in enumerate(plain.ids) if plain.coco.getAnnIds(image)]
    if ours:
        batches: Batches = td.DataLoader(
            torch.utils.data.Subset(recipe.dataset, filled), 8, shuffle=True, drop_last=True, seed=seed,
            transform=recipe.transform, output="list", device=CPU,
        )  # fmt: skip
    else:
        subset = torch.utils.data.Subset(wrapped, filled)
        batches = torchs(subset, 8, seed, lambda samples: tuple(zip(*samples, strict=True)))
    model = detection.ModelConfig("small_fcos", 64, 100)
    net = detection.make_model(model, 4)
    train(net, batches, 16, 0.002, lambda x, y: sum(net(list(x), list(y)).values()), warm=True)
    return 100 * detection.evaluate(net, val, str(root / "shapes" / "val" / "instances.json"))


TASKS = {"classification": of_classification, "segmentation": of_segmentation, "detection": of_detection}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="+", choices=list(TASKS))
    parser.add_argument("--data", type=Path, default=ROOT / "data", help="the folder of digits/ and shapes/")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    print("| task | torchvision's loader | torchdali's | difference | standard error | seconds |")
    print("|---|---|---|---|---|---|")
    for task in options.tasks:
        begin = time.monotonic()
        found: dict[bool, list[float]] = {False: [], True: []}
        for seed in range(options.seeds):
            for ours, scores in found.items():
                torch.manual_seed(seed)
                scores.append(TASKS[task](options.data, ours, seed))
                print(
                    f"{task}, seed {seed}, {'torchdali' if ours else 'torchvision'}: {scores[-1]:.2f}", file=sys.stderr
                )
        means = {ours: statistics.mean(scores) for ours, scores in found.items()}
        spread = {ours: statistics.stdev(scores) for ours, scores in found.items()}
        error = math.sqrt(sum(value**2 / options.seeds for value in spread.values()))
        cells = [f"{means[ours]:.2f} ± {spread[ours]:.2f}" for ours in (False, True)]
        gap = means[True] - means[False]
        print(
            f"| {task} | {' | '.join(cells)} | {gap:+.2f} | {error:.2f} | {time.monotonic() - begin:.0f} |", flush=True
        )


if __name__ == "__main__":
    main()
