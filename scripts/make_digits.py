"""Write scikit-learn's digits (1,797 grey images of 8x8 pixels, 10 classes) as an image folder.

    python scripts/make_digits.py --out data/digits

makes DIR/train/<class>/NNNN.png and DIR/val/<class>/NNNN.png, where NNNN is the image's number in scikit-learn's data
set. A fifth of each class is held out; the split is always the same. Files that exist are not written again.
"""

import argparse
import os
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


def make_digits(out: Path) -> int:
    """Write the files that are missing under `out`, and return their number."""
    digits = load_digits()
    pixels = np.round(digits.images * (255 / 16)).astype(np.uint8)  # from 17 grey levels, 0 to 16
    numbers = range(len(pixels))
    _, held_out = train_test_split(numbers, test_size=0.2, stratify=digits.target, random_state=0)
    held_out = set(held_out)
    written = 0
    for number in numbers:
        split = "val" if number in held_out else "train"
        path = out / split / str(digits.target[number]) / f"{number:04d}.png"
        if path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".tmp")  # renamed when complete: an interrupted run leaves no half-written image
        Image.fromarray(pixels[number]).save(unfinished, format="png")
        os.replace(unfinished, path)
        written += 1
    return written


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    out = parser.parse_args().out
    written = make_digits(out)
    print(f"{written} images written to {out}" if written else f"{out} is complete")
