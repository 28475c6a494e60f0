"""Transforms of sound: their definitions, those of torchaudio and librosa, and in loaders."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from scipy import fft, stats

import torchdali as td
from torchdali import kinds
from torchdali import transforms as T
from torchdali.rand import Rand
from torchdali.testing import assert_resumes_exactly, assert_same_stream

RATE = 8000
SOUND = torch.from_numpy(np.random.default_rng(0).normal(0, 0.2, (2, 1500)).astype(np.float32))
MELS = dict(sample_rate=RATE, n_fft=256, n_mels=20)


def drawn(step: T.SoundStep, n: int = 4000) -> list[dict[str, Any]]:
    """What a step draws for samples."""
    params, _ = step.make_params(Rand(3, 0, np.arange(n, dtype=np.uint64)), None)
    return [{name: values[i].item() for name, values in params.items()} for i in range(n)]


# Definitions


def test_a_crop_takes_any_part_and_fills_up():
    crop, ramp = T.RandomTimeCrop(4), torch.arange(10.0)[None]
    starts = [int(crop.transform_sound(ramp, **own)[0, 0]) for own in drawn(crop)]
    assert stats.chisquare(np.bincount(starts, minlength=7)).pvalue > 0.01 and max(starts) == 6
    assert crop.transform_sound(ramp[:, :3], place=0.7).tolist() == [[0, 1, 2, 0]]
    assert T.CenterTimeCrop(4).transform_sound(ramp).tolist() == [[3, 4, 5, 6]]
    with pytest.raises(ValueError, match="a sound of 3 samples is shorter than size=4: write pad=True"):
        T.RandomTimeCrop(4, pad=False).transform_sound(ramp[:, :3], place=0.7)


def test_a_shift_brings_silence_or_the_other_end():
    ramp = torch.arange(1.0, 11)[None]
    for shift, roll, first in [(0.2, False, [0, 0, 1]), (0.2, True, [9, 10, 1]), (-0.2, True, [3, 4, 5])]:
        assert T.TimeShift(1, roll).transform_sound(ramp, shift=shift)[0, :3].tolist() == first
    assert T.TimeShift(1).transform_sound(ramp, shift=-0.2)[0, -3:].tolist() == [10, 0, 0]
    assert ramp[0, 0] == 1  # unchanged
    shifts = np.array([own["shift"] for own in drawn(T.TimeShift(0.3, p=0.5))])
    assert stats.kstest(shifts[shifts != 0], stats.uniform(-0.3, 0.6).cdf).pvalue > 0.01
    assert stats.binomtest(int((shifts != 0).sum()), len(shifts), 0.5).pvalue > 0.01


def test_noise_has_the_ratio_that_was_drawn():
    noise = T.AddNoise((5, 20), p=0.7)
    params = drawn(noise)
    assert stats.kstest([own["snr"] for own in params], stats.uniform(5, 15).cdf).pvalue > 0.01
    assert stats.binomtest(sum(own["applies"] for own in params), len(params), 0.7).pvalue > 0.01
    for own in [own for own in params[:20] if own["applies"]]:
        added = noise.transform_sound(SOUND, **own) - SOUND
        ratio = 10 * torch.log10(SOUND.square().sum(-1) / added.square().sum(-1))
        np.testing.assert_allclose(ratio, own["snr"], atol=1e-3)
        again = noise.transform_sound(SOUND, **own) - SOUND
        assert torch.equal(added, again) and abs(float(added.mean())) < 0.02
    assert not noise.transform_sound(torch.zeros(1, 50), snr=10, seed=1).any()


@pytest.mark.parametrize("center", [True, False])
def test_a_spectrogram_is_the_transform_of_windows(center):
    step = T.Spectrogram(64, win_length=48, hop_length=20, power=1, center=center)
    sound = np.pad(SOUND.numpy(), [(0, 0), (32, 32)], "reflect") if center else SOUND.numpy()
    window = np.pad(0.5 - 0.5 * np.cos(2 * np.pi * np.arange(48) / 48), 8)
    frames = np.stack([sound[:, k : k + 64] * window for k in range(0, sound.shape[1] - 63, 20)], 1)
    expected = np.abs(np.fft.rfft(frames)).transpose(0, 2, 1)
    np.testing.assert_allclose(step.transform_sound(SOUND), expected, atol=1e-5)


def test_coefficients_are_the_cosine_transform_of_decibels():
    mels = T.MelSpectrogram(**MELS).transform_sound(SOUND)
    plain = 10 * np.log10(mels.numpy())
    decibels = T.ToDecibels(top_db=80).transform_sound(mels)
    np.testing.assert_allclose(decibels, np.maximum(plain, plain.max() - 80), atol=1e-4)
    for norm in ("ortho", None):
        step = T.MFCC(RATE, 13, norm, melkwargs=dict(n_fft=256, n_mels=20))
        expected = fft.dct(decibels.numpy(), axis=1, norm=norm)[:, :13]
        np.testing.assert_allclose(step.transform_sound(SOUND), expected, rtol=1e-4, atol=1e-3)


def test_a_mask_is_shorter_than_its_param():
    ones = torch.ones(2, 30, 40)
    for step, size, largest in [(T.TimeMasking(50, p=0.3), 40, 12), (T.FrequencyMasking(10), 30, 10)]:
        lengths, ends = [], []
        for own in drawn(step):
            masked = step.transform_sound(ones, **own)
            line = masked[0, 0] if size == 40 else masked[0, :, 0]
            assert torch.equal(masked, line.expand(2, 30, 40) if size == 40 else line[:, None].expand(2, 30, 40))
            lengths.append(int((line == 0).sum()))
            ends += torch.nonzero(line == 0).ravel().tolist()
        assert stats.chisquare(np.bincount(lengths, minlength=largest)).pvalue > 0.01
        assert min(ends) == 0 and max(ends) >= size - 2  # as torchaudio rounds


def test_silence_is_cut_off_by_frames():
    quiet = torch.full((1, 1000), 0.0005)
    edges = torch.cat([quiet, torch.ones(1, 500), quiet], 1)
    # Frames of 200 around multiples of 100: those at 1000 to 1500 touch the loud part.
    assert T.TrimSilence(40, 200, 100).transform_sound(edges).shape == (1, 600)
    both = torch.cat([edges.flip(-1), torch.cat([quiet[:, :100], torch.ones(1, 2400)], 1)])
    assert T.TrimSilence(40, 200, 100).transform_sound(both).shape == (2, 2400)
    assert T.TrimSilence(80, 200, 100).transform_sound(edges).shape == (1, 2500)
    assert T.TrimSilence().transform_sound(torch.zeros(1, 700)).shape == (1, 700)


def test_torchaudio_defines_the_same():
    import torchaudio.transforms as A

    more = [dict(), dict(norm="slaney", mel_scale="slaney", f_min=60.0, f_max=3000.0, win_length=200, hop_length=80)]
    for own in more:
        expected = A.MelSpectrogram(**MELS, **own)(SOUND)
        np.testing.assert_allclose(
            T.MelSpectrogram(**MELS, **own).transform_sound(SOUND), expected, rtol=1e-4, atol=1e-6
        )
    for own in [dict(), dict(power=1, normalized=True, hop_length=70, pad_mode="constant"), dict(center=False)]:
        got = T.Spectrogram(256, **own).transform_sound(SOUND)
        np.testing.assert_allclose(got, A.Spectrogram(256, **own)(SOUND), rtol=1e-5, atol=1e-6)
    for log_mels in (True, False):
        mels = dict(n_fft=256, n_mels=20)
        expected = A.MFCC(RATE, 13, log_mels=log_mels, melkwargs=mels)(SOUND)
        got = T.MFCC(RATE, 13, log_mels=log_mels, melkwargs=mels).transform_sound(SOUND)
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-3)
    power = T.Spectrogram(256).transform_sound(SOUND)
    for stype, top in [("power", None), ("magnitude", 30.0)]:
        expected = A.AmplitudeToDB(stype, top)(power)
        np.testing.assert_allclose(T.ToDecibels(stype, top).transform_sound(power), expected, atol=1e-4)


LIBROSA = runpy.run_path(str(Path(__file__).parent.parent / "scripts" / "make_librosa_values.py"))


def test_librosa_defines_the_same():
    """By the values that `scripts/make_librosa_values.py` has written."""
    with np.load(Path(__file__).parent / "data" / "librosa.npz") as values:
        given = dict(values)
    assert np.array_equal(LIBROSA["sound"](), given["sound"])
    sound, edges = torch.from_numpy(given["sound"]), torch.from_numpy(LIBROSA["with_silence"](given["sound"]))
    for i, own in enumerate(LIBROSA["TRIMS"]):
        begin, end = given[f"trim{i}"]
        assert 0 < begin < 1500 < 3000 < end < 4600
        np.testing.assert_array_equal(T.TrimSilence(**own).transform_sound(edges), edges[:, begin:end])
    assert T.TrimSilence().transform_sound(torch.zeros(1, 700)).shape == (1, 700)
    step = T.MelSpectrogram(RATE, 256, hop_length=64, n_mels=20, norm="slaney", mel_scale="slaney", pad_mode="constant")
    mels = step.transform_sound(sound)
    np.testing.assert_allclose(mels, given["mels"], rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(T.ToDecibels("power", 30).transform_sound(mels), given["decibels"], atol=5e-3)


@pytest.mark.slow  # numba compiles
def test_librosas_values_are_its_own():
    pytest.importorskip("librosa", reason="no dev dependency: the values that it made are in tests/data")
    with np.load(Path(__file__).parent / "data" / "librosa.npz") as given:
        for name, value in LIBROSA["values"]().items():
            np.testing.assert_allclose(given[name], value, rtol=1e-5, atol=1e-7)


# In loaders


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("sounds")
    paths = [folder / f"{i:02d}.wav" for i in range(11)]
    for i, path in enumerate(paths):
        soundfile.write(path, SOUND[:, : 900 + 50 * i].T.numpy(), RATE, subtype="FLOAT")
    return paths


def make_loader(files: list[Path], *steps: Any, kind: Any = None, **changes: Any) -> td.DataLoader:
    kind = kind or kinds.Audio(rate=RATE, channels=1)
    dataset = td.FileDataset({"audio": files}, labels=range(11), kinds={"audio": kind})
    transform = T.Compose(list(steps)) if steps else None
    options = {"batch_size": 4, "shuffle": True, "seed": 3, "device": "cpu", "num_threads": 2, **changes}
    return td.DataLoader(dataset, transform=transform, **options)


WAVES = [T.TimeShift(0.2), T.AddNoise()]
SPEECH = [*WAVES, T.RandomTimeCrop(1000), T.MelSpectrogram(**MELS), T.ToDecibels(), T.TimeMasking(4)]


def test_a_crop_makes_one_tensor_of_each_batch(files):
    for audio, labels in make_loader(files, *SPEECH, T.FrequencyMasking(5)):
        assert audio.shape == (len(labels), 1, 20, 8) and audio.dtype == torch.float32


def test_lengths_leave_with_the_batch(files):
    for audio, labels in make_loader(files, *WAVES, T.Spectrogram(64), batch_size=1):
        assert audio.sizes.tolist() == [[1, 33, 1 + (900 + 50 * int(labels[0])) // 32]]


@pytest.mark.parametrize("steps", [WAVES, SPEECH], ids=["waves", "speech"])
def test_resumes_exactly_on_any_ranks_and_threads(files, steps):
    assert_resumes_exactly(lambda: make_loader(files, *steps))
    assert_same_stream(
        lambda: make_loader(files, *steps),
        lambda: [make_loader(files, *steps, batch_size=2, rank=rank, world_size=2) for rank in range(2)],
        steps=False,
    )
    threads = [dict(num_threads=1, prefetch_factor=0), dict(num_threads=3)]
    one, other = (list(make_loader(files, *steps, **options)) for options in threads)
    for (left, _), (right, _) in zip(one, other, strict=True):
        assert torch.equal(*(x.data if isinstance(x, td.Padded) else x for x in (left, right)))


def test_each_sample_and_epoch_draws_its_own(files):
    loader = make_loader(files, T.RandomTimeCrop(700), T.AddNoise(), shuffle=False, batch_size=11)
    (first, _), (second, _) = next(iter(loader)), (loader.set_epoch(1), next(iter(loader)))[1]
    rows = [tuple(row.ravel().tolist()) for row in (*first, *second)]
    assert len(set(rows)) == 22


def test_views_of_a_sound(files):
    crop = T.RandomTimeCrop(600)
    view = T.Compose([crop, T.MelSpectrogram(**MELS)])
    for (a, b), labels in make_loader(files, T.TimeShift(), T.Views([view, crop])):
        assert a.shape == (len(labels), 1, 20, 5) and b.shape == (len(labels), 1, 600)
    one, other = next(iter(make_loader(files, T.Views([crop, crop]))))[0]
    assert not torch.equal(one, other)


def test_functions_see_sound_before_its_transforms(files):
    def louder(sample, rand):
        return {**sample, "audio": sample["audio"] * 2.0}

    def plain(batch):
        return batch[0].data if isinstance(batch[0], td.Padded) else batch[0]

    loud = make_loader(files, louder, T.CenterTimeCrop(500), shuffle=False)
    for one, other in zip(loud, make_loader(files, T.CenterTimeCrop(500), shuffle=False), strict=True):
        np.testing.assert_array_equal(one[0], 2 * plain(other))
    with pytest.raises(ValueError, match=r"TimeShift acts on sound, and can't come before a function: write it after"):
        next(iter(make_loader(files, T.TimeShift(), louder)))


def test_sound_beside_images(files):
    """Both are transformed, and neither by the other's steps."""
    images = [np.random.default_rng(i).integers(0, 256, (20, 24, 3), np.uint8) for i in range(11)]
    sounds = [SOUND[:, : 900 + 50 * i].numpy() for i in range(11)]
    data = td.InMemoryDataset(image=images, sound=sounds, kinds={"sound": "audio"})
    steps = [T.RandomCrop(16), T.RandomTimeCrop(300), T.RandomHorizontalFlip(), T.AddNoise()]
    both = td.DataLoader(data, 4, transform=T.Compose(steps), seed=1, device="cpu")
    pictures = td.DataLoader(data, 4, transform=T.Compose(steps[::2]), seed=1, device="cpu")
    waves = td.DataLoader(data, 4, transform=T.Compose(steps[1::2]), seed=1, device="cpu")
    for (image, sound), (alone, _), (_, only) in zip(both, pictures, waves, strict=True):
        assert torch.equal(image, alone) and torch.equal(sound, only) and sound.shape == (len(image), 2, 300)


def test_a_sound_that_is_too_short_is_a_bad_sample(files):
    steps = [T.RandomTimeCrop(1000, pad=False)]
    with pytest.raises(td.BadSampleError, match=r"sample 0 \(.*00\.wav\).*a sound of 900 samples is shorter than"):
        list(make_loader(files, *steps, shuffle=False))
    with make_loader(files, *steps, on_bad_sample="substitute") as loader:
        assert sum(len(labels) for _, labels in loader) == 11 and {bad.index for bad in loader.bad_samples} == {0, 1}


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([T.FrequencyMasking(3)], "FrequencyMasking takes a spectrogram, and gets a sound: write Spectrogram or Mel"),
        ([T.Spectrogram(64), T.AddNoise()], "AddNoise takes a sound, and gets a spectrogram: write it before"),
        (
            [T.MelSpectrogram(16000)],
            "is for sound of another rate than 'audio', which has 8000: write sample_rate=8000",
        ),
        ([T.RandomCrop(8)], "RandomCrop acts on images, and the dataset has none"),
    ],
)
def test_orders_that_make_no_sense(files, steps, words):
    with pytest.raises(ValueError, match=words):
        make_loader(files, *steps)


def test_there_must_be_sound():
    data = td.InMemoryDataset(wave=[np.zeros((1, 9), np.int16)] * 3)
    with pytest.raises(ValueError, match=r'TimeShift acts on audio, and the dataset has none.*kinds=.*"audio"'):
        td.DataLoader(data, transform=T.TimeShift(), device="cpu")
    data = td.InMemoryDataset(wave=[np.zeros((1, 9), np.int16)] * 3, kinds={"wave": "audio"})
    with pytest.raises(td.TorchDaliError, match=r"must be floats \[channels, samples\].*and sound / 32768 for int16"):
        next(iter(td.DataLoader(data, transform=T.TimeShift(), device="cpu")))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: T.RandomTimeCrop(0), "size must be a positive number of samples"),
        (lambda: T.TimeShift(1.5), "max_shift must be a share"),
        (lambda: T.AddNoise((20, 10)), "snr must be decibels"),
        (lambda: T.TrimSilence(-1), "top_db must be positive"),
        (lambda: T.Spectrogram(64, win_length=65), "win_length must be at most n_fft=64"),
        (lambda: T.Spectrogram(power=None), "power must be positive"),
        (lambda: T.MelSpectrogram(f_min=9000), "f_min and f_max must be rising"),
        (lambda: T.MFCC(n_mfcc=200), "n_mfcc must be between 1 and n_mels=128"),
        (lambda: T.ToDecibels("energy"), 'stype must be "power"'),
        (lambda: T.TimeMasking(-1), "time_mask_param must be a number of frames"),
    ],
)
def test_invalid_arguments(make, words):
    with pytest.raises(ValueError, match=words):
        make()


# Chance and choice


def test_some_sounds_are_transformed():
    """RandomApply, RandomChoice and RandomOrder hold transforms of sound, with numbers drawn by name."""
    rng = np.random.default_rng(0)
    sounds = [rng.normal(size=(1, 300 + i)).astype(np.float32) for i in range(40)]
    dataset = td.InMemoryDataset(audio=sounds, kinds={"audio": kinds.Audio(rate=8000)})

    def made(*steps, **options):
        options = {"batch_size": 8, "device": "cpu", "seed": 2, "transform": T.Compose(steps)} | options
        return [sound for (batch,) in td.DataLoader(dataset, **options) for sound in batch.unbind()]

    plain = made(T.TimeShift(0.0))
    always, never, some = (made(T.RandomApply([T.TimeShift(0.3, roll=True)], p)) for p in (1.0, 0.0, 0.5))
    same = [torch.equal(one, before) for one, before in zip(some, plain, strict=True)]
    assert 8 < sum(same) < 32 and all(map(torch.equal, never, plain))
    for one, after, before, kept in zip(some, always, plain, same, strict=True):
        assert torch.equal(one, before if kept else after)
    choice = made(T.RandomChoice([T.TimeShift(0.3), T.AddNoise(0)], [0.25, 0.75]))
    noisy = [not (one == 0).any() for one in choice]
    assert 20 < sum(noisy) < 40
    order = T.RandomOrder([T.AddNoise(20), T.Compose([T.TimeShift(0.2), T.AddNoise(30)])])
    spectra = T.MelSpectrogram(8000, n_fft=32, n_mels=4), T.RandomApply([T.TimeMasking(5), T.FrequencyMasking(2)])
    steps = [T.RandomApply([order]), *spectra]
    for options in ({"engine": "debug"}, {"batch_size": 5}):
        for one, other in zip(made(*steps), made(*steps, **options), strict=True):
            assert torch.equal(one, other)


def test_sound_and_pictures_do_not_mix():
    with pytest.raises(ValueError, match=r"takes transforms of sound or of pictures: put RandomHorizontalFlip\("):
        T.RandomApply([T.AddNoise(), T.RandomHorizontalFlip()])
    with pytest.raises(ValueError, match=r"RandomChoice can't make a spectrogram of some samples: put Mel"):
        T.RandomChoice([T.MelSpectrogram(8000)])
    with pytest.raises(ValueError, match=r"takes transforms of one form, got FrequencyMasking\(.* for a spectrogram"):
        T.RandomOrder([T.AddNoise(), T.FrequencyMasking(3)])
    images = td.InMemoryDataset(image=np.zeros((2, 8, 8, 3), np.uint8))
    with pytest.raises(ValueError, match="RandomApply acts on audio, and the dataset has none"):
        td.DataLoader(images, 2, transform=T.RandomApply([T.AddNoise()]), device="cpu")
