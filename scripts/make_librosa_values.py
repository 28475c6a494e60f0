"""Write what librosa makes of a sound, for `tests/test_sounds.py`: librosa brings 200 MB of a compiler.

    pip install librosa && python scripts/make_librosa_values.py tests/data/librosa.npz

The file holds the sound, float32 [2, 1500]; the ends of what `librosa.effects.trim` keeps of it between quiet parts,
for each of `TRIMS`; and a mel spectrogram, and its decibels.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

RATE = 8000
TRIMS: list[dict[str, Any]] = [
    {},
    {"top_db": 20, "frame_length": 400, "hop_length": 100},
    {"frame_length": 301, "hop_length": 70},
]


def sound() -> np.ndarray:
    return np.random.default_rng(0).normal(0, 0.2, (2, 1500)).astype(np.float32)


def with_silence(one: np.ndarray) -> np.ndarray:
    """A sound between quiet parts, and silence."""
    return np.concatenate([np.float32(0.0001) * one, one, np.float32(0.0001) * one, np.zeros((2, 900), np.float32)], 1)


def values() -> dict[str, np.ndarray]:
    import librosa

    one = sound()
    made = {"sound": one}
    for i, own in enumerate(TRIMS):
        made[f"trim{i}"] = librosa.effects.trim(with_silence(one), **own)[1]
    made["mels"] = librosa.feature.melspectrogram(y=one, sr=RATE, n_fft=256, hop_length=64, n_mels=20)
    made["decibels"] = librosa.power_to_db(made["mels"], ref=1.0, top_db=30)
    return made


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    file = parser.parse_args().file
    np.savez_compressed(file, **values())
    print(f"{file}: {file.stat().st_size} bytes")
