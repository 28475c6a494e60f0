"""Write short videos of a bright square that moves left, right, up or down over noise.

    python scripts/make_motions.py --out data/motions

makes DIR/train and DIR/val, each with MOTION/NNNN.mp4: 32 frames of 64 x 48 pixels. A single frame does not say the
motion. It needs PyAV (pip install av).
"""

import argparse
from pathlib import Path

import av
import numpy as np

MOTIONS = {"down": (1, 0), "left": (0, -1), "right": (0, 1), "up": (-1, 0)}
FRAMES, HEIGHT, WIDTH, SIDE = 32, 48, 64, 12


def frames(motion: str, rng: np.random.Generator) -> np.ndarray:
    """Make one video: uint8 [F, H, W, C]."""
    video = rng.integers(0, 120, (1, HEIGHT // 8, WIDTH // 8, 3), np.uint8).repeat(8, 1).repeat(8, 2)
    video = video.repeat(FRAMES, 0)
    colour = rng.integers(170, 256, 3)
    speed = rng.uniform(1, 2)
    start = rng.uniform(0, 1, 2) * (HEIGHT, WIDTH)
    for number in range(FRAMES):
        top, left = (start + np.array(MOTIONS[motion]) * speed * number).astype(int)
        rows, columns = (top + np.arange(SIDE)) % HEIGHT, (left + np.arange(SIDE)) % WIDTH
        video[number, rows[:, None], columns] = colour
    return video


def write(path: Path, video: np.ndarray) -> None:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=25, options={"g": "12"})
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for pixels in video:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())


def make_motions(out: Path, train: int = 400, val: int = 100) -> None:
    """Write both splits, unless they are there."""
    for seed, (split, count) in enumerate({"train": train, "val": val}.items()):
        if (out / split).exists():
            continue
        unfinished = out / f"{split}.tmp"  # renamed when complete
        rng = np.random.default_rng(seed)
        for number in range(count):
            motion = list(MOTIONS)[number % len(MOTIONS)]
            (unfinished / motion).mkdir(parents=True, exist_ok=True)
            write(unfinished / motion / f"{number:04d}.mp4", frames(motion, rng))
        unfinished.rename(out / split)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--train", type=int, default=400, metavar="N", help="videos to train on")
    parser.add_argument("--val", type=int, default=100, metavar="N", help="videos that are held out")
    options = parser.parse_args()
    make_motions(options.out, options.train, options.val)
    print(f"{options.out} is complete")
