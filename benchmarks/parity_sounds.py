"""The rows of `parity.py` for transforms of sound, against torchaudio's and librosa's."""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from torchdali import transforms as T
from torchdali.formats.audio import resample
from torchdali.rand import Rand

RATE, N, SECONDS = 16000, 16, 1.0
MELS: dict[str, Any] = {"n_fft": 400, "hop_length": 160, "n_mels": 64}
Compute = Callable[[torch.Tensor], Any]


def sounds() -> list[torch.Tensor]:
    """Chirps with noise, float32 [1, 16000]."""
    made = []
    for i in range(N):
        time = np.arange(int(RATE * SECONDS)) / RATE
        tone = 0.5 * np.sin(2 * np.pi * (200 + 300 * i * time) * time)
        made.append(torch.from_numpy((tone + np.random.default_rng(i).normal(0, 0.05, len(time)))[None].astype("f4")))
    return made


def torchaudio() -> Any:
    """torchaudio's transforms; like librosa, it is only needed to make the table."""
    return importlib.import_module("torchaudio.transforms")


def cases() -> list[tuple[str, str, Compute, Callable[[], Compute]]]:
    """Name, whose definition, ours, and what makes theirs."""
    mels = T.MelSpectrogram(RATE, **MELS)
    coefficients = {"melkwargs": MELS}

    def ours(step: Any) -> Compute:
        return lambda sound: step.transform_sound(sound)

    def by_librosa(function: Callable[[Any, torch.Tensor], Any]) -> Callable[[], Compute]:
        return lambda: functools.partial(function, importlib.import_module("librosa"))

    quiet = torch.zeros(1, 3000)
    return [
        (
            "Spectrogram(400)", "torchaudio", ours(T.Spectrogram(400, hop_length=160)),
            lambda: torchaudio().Spectrogram(400, hop_length=160),
        ),
        ("MelSpectrogram, htk", "torchaudio", ours(mels), lambda: torchaudio().MelSpectrogram(RATE, **MELS)),
        (
            "MelSpectrogram, slaney", "librosa",
            ours(T.MelSpectrogram(RATE, norm="slaney", mel_scale="slaney", **MELS)),
            by_librosa(
                lambda librosa, sound: librosa.feature.melspectrogram(
                    y=sound.numpy(), sr=RATE, power=2.0, pad_mode="reflect", **MELS
                )
            ),
        ),
        (
            "ToDecibels", "torchaudio", lambda sound: T.ToDecibels().transform_sound(mels.transform_sound(sound)),
            lambda: lambda sound: torchaudio().AmplitudeToDB("power")(mels.transform_sound(sound)),
        ),
        (
            "ToDecibels(top_db=80)", "librosa",
            lambda sound: T.ToDecibels(top_db=80).transform_sound(mels.transform_sound(sound)),
            by_librosa(
                lambda librosa, sound: librosa.power_to_db(mels.transform_sound(sound).numpy(), ref=1.0, top_db=80)
            ),
        ),
        ("MFCC(13)", "torchaudio", ours(T.MFCC(RATE, 13, **coefficients)),
         lambda: torchaudio().MFCC(RATE, 13, **coefficients)),
        (
            "TrimSilence(40)", "librosa", lambda sound: T.TrimSilence(40).transform_sound(torch.cat([quiet, sound], 1)),
            by_librosa(
                lambda librosa, sound: librosa.effects.trim(torch.cat([quiet, sound], 1).numpy(), top_db=40)[0]
            ),
        ),
        (
            "resampling, 16 to 8 kHz", "torchaudio", lambda sound: resample(sound.numpy(), RATE, 8000),
            lambda: torchaudio().Resample(RATE, 8000),
        ),
    ]  # fmt: skip


def drawn() -> list[tuple[str, Any]]:
    """Transforms that draw, which have no counterpart given the same params, but a cost."""
    return [
        ("RandomTimeCrop(12000)", T.RandomTimeCrop(12000)),
        ("CenterTimeCrop(12000)", T.CenterTimeCrop(12000)),
        ("TimeShift", T.TimeShift(0.1)),
        ("AddNoise", T.AddNoise()),
        ("TimeMasking(25)", T.TimeMasking(25)),
        ("FrequencyMasking(7)", T.FrequencyMasking(7)),
    ]


def print_table(milliseconds: Callable[..., float]) -> None:
    """Print the table, in Markdown."""
    warnings.simplefilter("ignore")
    given = sounds()
    print("\n## Sound\n")
    print(f"{N} sounds of {SECONDS:g} s at {RATE} Hz.  The difference is relative to the largest value of the other's.")
    print("Transforms that draw are defined by `tests/test_sounds.py`: only their cost is here.\n")
    print("| transform | as | mean | max | its ms | our ms |")
    print("|---|---|---|---|---|---|")
    for name, whose, ours, make_theirs in cases():
        theirs, gaps = make_theirs(), []
        for sound in given:
            one, other = (np.asarray(made, np.float64) for made in (ours(sound), theirs(sound)))
            gaps.append(np.abs(one - other).ravel() / np.abs(other).max())
        gap = np.concatenate(gaps)
        costs = [milliseconds(lambda f=f: [f(sound) for sound in given], N) for f in (theirs, ours)]
        print(f"| {name} | {whose} | {gap.mean():.1g} | {gap.max():.1g} | {costs[0]:.2f} | {costs[1]:.2f} |")
    for name, step in drawn():
        inputs = given if step.takes != "spectrogram" else [T.Spectrogram().transform_sound(sound) for sound in given]
        params = step.make_params(Rand(1, 0, np.arange(N)), None)[0]
        rows = [{key: values[i].item() for key, values in params.items()} for i in range(N)]
        pairs = list(zip(inputs, rows, strict=True))
        cost = milliseconds(lambda step=step, pairs=pairs: [step.transform_sound(s, **own) for s, own in pairs], N)
        print(f"| {name} | | | | | {cost:.2f} |")
