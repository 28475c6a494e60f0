"""Write lines such as "407+58=465" as files of token ids (a token a character), for a language model.

    python scripts/make_sums.py --out data/sums

makes DIR/train.bin and DIR/val.bin: ids as uint16, one after the other. They are places in VOCABULARY. The same command
writes the same files.
"""

import argparse
import os
import random
from pathlib import Path

import numpy as np

VOCABULARY = "0123456789+=\n"


def make_sums(out: Path, train: int = 50_000, val: int = 2_000) -> None:
    """Write both files, unless they are there."""
    out.mkdir(parents=True, exist_ok=True)
    for seed, (split, count) in enumerate({"train": train, "val": val}.items()):
        path, rng = out / f"{split}.bin", random.Random(seed)
        if path.exists():
            continue
        pairs = ((rng.randrange(1000), rng.randrange(1000)) for _ in range(count))
        text = "".join(f"{a}+{b}={a + b}\n" for a, b in pairs)
        unfinished = path.with_suffix(".tmp")  # renamed when complete
        np.array([VOCABULARY.index(letter) for letter in text], np.uint16).tofile(unfinished)
        os.replace(unfinished, path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--train", type=int, default=50_000, metavar="N", help="lines to train on")
    parser.add_argument("--val", type=int, default=2_000, metavar="N", help="lines that are held out")
    options = parser.parse_args()
    make_sums(options.out, options.train, options.val)
    print(f"{options.out} is complete")
