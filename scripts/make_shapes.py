"""Write images of coloured discs, squares and triangles, with what detection and segmentation need beside them.

    python scripts/make_shapes.py --out data/shapes

makes DIR/train and DIR/val, each with images/NNNN.jpg, masks/NNNN.png (a class per pixel, 0 is the background) and
instances.json (boxes and polygons in COCO's format). Images differ in size, and some have no object. The same command
writes the same files.
"""

import argparse
import json
import math
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

CLASSES = {"disc": 24, "square": 4, "triangle": 3}  # the corners of each
PALETTE = [0, 0, 0, 200, 40, 40, 40, 160, 40, 40, 40, 200]


def outline(corners: int, size: tuple[int, int], rng: random.Random) -> list[tuple[int, int]]:
    """Draw the corners of a regular polygon that lies inside the picture."""
    radius = rng.uniform(0.12, 0.24) * min(size)
    x, y = (rng.uniform(radius, length - 1 - radius) for length in size)
    turn = rng.uniform(0, 2 * math.pi)
    angles = [turn + 2 * math.pi * k / corners for k in range(corners)]
    return [(round(x + radius * math.cos(angle)), round(y + radius * math.sin(angle))) for angle in angles]


def make_split(folder: Path, count: int, rng: random.Random) -> None:
    for name in ("images", "masks"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    document: dict[str, list[Any]] = {"images": [], "annotations": []}
    document["categories"] = [{"id": label, "name": name} for label, name in enumerate(CLASSES, 1)]
    for number in range(count):
        width, height = rng.randint(80, 128), rng.randint(80, 128)
        noise = np.random.default_rng(rng.getrandbits(32)).normal(0, 12, (height, width, 3))
        image = Image.fromarray((rng.randint(60, 180) + noise).clip(0, 255).astype(np.uint8))
        mask = Image.new("P", image.size)
        mask.putpalette(PALETTE)
        for _ in range(rng.randint(0, 3)):
            label = rng.randint(1, len(CLASSES))
            corners = outline(list(CLASSES.values())[label - 1], image.size, rng)
            ImageDraw.Draw(image).polygon(corners, fill=tuple(rng.randint(0, 255) for _ in range(3)))
            ImageDraw.Draw(mask).polygon(corners, fill=label)
            (left, right), (top, bottom) = ((min(values), max(values)) for values in zip(*corners, strict=True))
            box = [left, top, right - left + 1, bottom - top + 1]
            document["annotations"].append(
                dict(
                    id=len(document["annotations"]) + 1, image_id=number, category_id=label, bbox=box, iscrowd=0,
                    area=box[2] * box[3], segmentation=[[value for corner in corners for value in corner]],
                )
            )  # fmt: skip
        image.save(folder / "images" / f"{number:04d}.jpg", quality=92)
        mask.save(folder / "masks" / f"{number:04d}.png")
        document["images"].append(dict(id=number, file_name=f"{number:04d}.jpg", width=width, height=height))
    unfinished = folder / "instances.tmp"  # renamed when complete: this file says that the split is
    unfinished.write_text(json.dumps(document))
    os.replace(unfinished, folder / "instances.json")


def make_shapes(out: Path, train: int = 800, val: int = 200) -> None:
    """Write both splits, unless they are there."""
    for seed, (split, count) in enumerate({"train": train, "val": val}.items()):
        if not (out / split / "instances.json").exists():
            make_split(out / split, count, random.Random(seed))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--train", type=int, default=800, metavar="N", help="images to train on")
    parser.add_argument("--val", type=int, default=200, metavar="N", help="images that are held out")
    options = parser.parse_args()
    make_shapes(options.out, options.train, options.val)
    print(f"{options.out} is complete")
