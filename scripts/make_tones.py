"""Write short sounds of four "words", tones that rise, fall, stay, or come twice, amid noise.

    python scripts/make_tones.py --out data/tones

makes DIR/train and DIR/val, each with WORD/NNNN.wav: 16 bits, one channel, 8000 samples per second, 0.4 to 0.8 s. The
same command writes the same files.
"""

import argparse
import wave
from pathlib import Path

import numpy as np

RATE = 8000
WORDS = ("fall", "rise", "stay", "twice")


def tone(word: str, rng: np.random.Generator) -> np.ndarray:
    """Make one sound: int16 [samples]."""
    length = int(rng.uniform(0.25, 0.45) * RATE)
    low = rng.uniform(300, 900)
    high = low * rng.uniform(1.8, 2.5)
    ends = {"rise": (low, high), "fall": (high, low)}.get(word, (low, low))
    sound = np.sin(2 * np.pi * np.cumsum(np.linspace(*ends, length)) / RATE) * np.hanning(length) ** 0.3
    if word == "twice":
        sound[length // 3 : 2 * length // 3] = 0
    before, after = (int(rng.uniform(0.05, 0.15) * RATE) for _ in range(2))
    whole = np.pad(sound, (before, after)) * rng.uniform(0.2, 0.8)
    return ((whole + rng.normal(0, 0.02, len(whole))).clip(-1, 1) * 32767).astype("<i2")


def make_tones(out: Path, train: int = 800, val: int = 200) -> None:
    """Write both splits, unless they are there."""
    for seed, (split, count) in enumerate({"train": train, "val": val}.items()):
        if (out / split).exists():
            continue
        unfinished = out / f"{split}.tmp"  # renamed when complete
        rng = np.random.default_rng(seed)
        for number in range(count):
            word = WORDS[number % len(WORDS)]
            (unfinished / word).mkdir(parents=True, exist_ok=True)
            with wave.open(str(unfinished / word / f"{number:04d}.wav"), "wb") as file:
                file.setparams((1, 2, RATE, 0, "NONE", ""))
                file.writeframes(tone(word, rng).tobytes())
        unfinished.rename(out / split)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--train", type=int, default=800, metavar="N", help="sounds to train on")
    parser.add_argument("--val", type=int, default=200, metavar="N", help="sounds that are held out")
    options = parser.parse_args()
    make_tones(options.out, options.train, options.val)
    print(f"{options.out} is complete")
