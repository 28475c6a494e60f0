"""Write a smaller copy of an image folder: JPEGs whose shorter side is 256 pixels, for `ImageFolder`.

Training from it decodes fewer pixels, at a fraction of the size on disk; `torchdali.pack` saves more CPU time, and
takes more room.  Images are turned upright by EXIF, converted to RGB and resized with antialiasing; smaller ones keep
their size.  Names and folders stay, with the ending .jpg.

    python recipes/resize_images.py data/imagenet/train data/imagenet-256/train --size 256 --quality 90

A run that was interrupted goes on when it is started again.  Images that can't be read are listed at the end, and make
the exit status 1.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from PIL import Image, ImageOps
from tqdm import tqdm

ENDINGS = {".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp"}


def resize(source: Path, target: Path, size: int, quality: int) -> str | None:
    """Write one image, whole or not at all; return the reason why it can't be read, or None."""
    if target.exists():
        return None
    try:
        with Image.open(source) as file:
            image = ImageOps.exif_transpose(file).convert("RGB")
    except Exception as error:  # Pillow's decoders raise anything for a damaged file
        return f"{source}: {error}"
    scale = size / min(image.size)
    if scale < 1:
        width, height = (max(size, round(side * scale)) for side in image.size)
        image = image.resize((width, height), Image.Resampling.BICUBIC)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial_file = target.with_name(target.name + ".part")
    image.save(partial_file, "JPEG", quality=quality, subsampling=0)
    os.replace(partial_file, target)
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="the image folder")
    parser.add_argument("target", type=Path, help="the folder to write")
    parser.add_argument("--size", type=int, default=256, help="the shorter side, in pixels")
    parser.add_argument("--quality", type=int, default=90, help="JPEG quality, 1 to 95")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    sources = sorted(path for path in arguments.source.rglob("*") if path.suffix.lower() in ENDINGS)
    if not sources:
        parser.error(f"no images below {arguments.source}")
    targets = [arguments.target / path.relative_to(arguments.source).with_suffix(".jpg") for path in sources]
    if len(set(targets)) < len(targets):
        twice = next(path for path, count in Counter(targets).items() if count > 1)
        parser.error(f"two images would become {twice}: rename one of them")
    work = partial(resize, size=arguments.size, quality=arguments.quality)
    with ProcessPoolExecutor(arguments.processes) as pool:
        reasons = list(tqdm(pool.map(work, sources, targets, chunksize=16), total=len(sources), unit="image"))
    bad = [reason for reason in reasons if reason is not None]
    print(f"{len(sources) - len(bad)} images in {arguments.target}")
    for reason in bad:
        print(f"left out: {reason}", file=sys.stderr)
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
