"""Sound files: the samples that soundfile reads, in any form of WAV; resampling; and sound through the loader."""

from __future__ import annotations

import io
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import torchdali as td
from torchdali import kinds
from torchdali.formats.audio import decode_audio, read_wav, resample
from torchdali.testing import assert_resumes_exactly, assert_same_stream, truncate_file

SOUND = (np.random.default_rng(0).uniform(-1, 1, (1000, 2)) * np.linspace(0, 1, 1000)[:, None]).astype(np.float32)


def encoded(values: np.ndarray, rate: int = 16000, kind: str = "WAV", subtype: str | None = None) -> np.ndarray:
    file = io.BytesIO()
    soundfile.write(file, values, rate, subtype, format=kind)
    return np.frombuffer(bytearray(file.getvalue()), np.uint8)


@pytest.mark.parametrize("kind", ["WAV", "WAVEX"])
@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"])
@pytest.mark.parametrize("channels", [1, 2])
def test_wav_files_are_read_as_soundfile_does(channels: int, subtype: str, kind: str) -> None:
    data = encoded(SOUND[:, :channels], 8000, kind, subtype)
    expected, rate = soundfile.read(io.BytesIO(data.tobytes()), dtype="float32", always_2d=True)
    values, own = read_wav(data)
    assert own == rate == 8000 and values.dtype == np.float32 and values.flags.c_contiguous
    np.testing.assert_array_equal(values, expected.T)


@pytest.mark.parametrize(("kind", "subtype"), [("FLAC", "PCM_16"), ("OGG", "VORBIS"), ("MP3", None)])
def test_other_files(kind: str, subtype: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    data = encoded(SOUND, 16000, kind, subtype)
    expected, _ = soundfile.read(io.BytesIO(data.tobytes()), dtype="float32", always_2d=True)
    np.testing.assert_array_equal(decode_audio(data), expected.T)
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(ImportError, match=r"read by soundfile: pip install torchdali\[audio\]"):
        decode_audio(data)


def test_channels() -> None:
    data = encoded(SOUND, subtype="FLOAT")
    np.testing.assert_allclose(decode_audio(data, channels=1)[0], SOUND.mean(1), atol=1e-7)
    assert decode_audio(data, channels=2).shape == (2, 1000)
    with pytest.raises(ValueError, match="3 channels were expected, got 2: write channels=1"):
        decode_audio(data, channels=3)


@pytest.mark.parametrize(("before", "after"), [(44100, 16000), (8000, 16000), (16000, 8000), (22050, 44100), (3, 7)])
def test_resampling_keeps_a_tone(before: int, after: int) -> None:
    def tone(rate: int) -> np.ndarray:
        return np.sin(2 * np.pi * 0.1 * min(before, after) * np.arange(rate // 10 or 200) / rate).astype(np.float32)

    got = resample(tone(before)[None], before, after)[0]
    assert len(got) == -(-len(tone(before)) * after // before) and got.dtype == np.float32
    inside = slice(len(got) // 10, -len(got) // 10)
    expected = np.sin(2 * np.pi * 0.1 * min(before, after) * np.arange(len(got)) / after)
    np.testing.assert_allclose(got[inside], expected[inside], atol=6e-3)


def test_damaged_wav_files() -> None:
    data = encoded(SOUND)
    with pytest.raises(ValueError, match=r"the WAV file is cut off: 4000 bytes of data expected, got 3990"):
        read_wav(data[:-10])
    with pytest.raises(ValueError, match="a WAV file with a chunk of data was expected"):
        read_wav(data[:30])
    other = data.copy()
    other[20] = 6  # A-law
    with pytest.raises(ValueError, match="a WAV file of PCM or floats was expected, got the code 6 with 16 bits"):
        read_wav(other)
    piped = data.copy()
    piped[40:44] = 255
    np.testing.assert_array_equal(read_wav(piped)[0], read_wav(data)[0])


@pytest.mark.parametrize("subtype", ["ULAW", "ALAW", "IMA_ADPCM", "MS_ADPCM"])
def test_other_wav_files_are_soundfiles(subtype: str) -> None:
    data = encoded(SOUND, 8000, "WAV", subtype)
    expected, _ = soundfile.read(io.BytesIO(data.tobytes()), dtype="float32", always_2d=True)
    np.testing.assert_array_equal(decode_audio(data), expected.T)
    with pytest.raises(ValueError, match="the WAV file is cut off"):
        decode_audio(data[:-10])


@pytest.mark.parametrize("kind", ["AIFF", "AU", "RF64", "W64", "FLAC", "OGG", "CAF"])
def test_sound_files_that_are_cut_off(kind: str) -> None:
    """libsndfile gives the samples that are left of some."""
    data = encoded(SOUND, 8000, kind, None)
    assert decode_audio(data).shape == (2, 1000)
    with pytest.raises(ValueError, match=r"cut off|that libsndfile can read was expected: [A-Z]"):
        decode_audio(data[: len(data) * 2 // 3])


def test_sound_of_no_samples() -> None:
    empty = encoded(SOUND[:0]).tobytes()
    for data in (empty, empty + b"LIST\4\0\0\0abcd"):
        whole = np.frombuffer(data[:4] + (len(data) - 8).to_bytes(4, "little") + data[8:], np.uint8)
        assert decode_audio(whole).shape == decode_audio(whole, 16000).shape == (2, 0)
    piped = np.frombuffer(empty[:4] + bytes(4) + empty[8:] + bytes(8), np.uint8)  # of no known sizes
    assert decode_audio(piped).shape == (2, 2)


def test_impossible_rates_are_refused_before_a_filter_is_made() -> None:
    data = encoded(SOUND)
    for rate, words in ((0, "and 0 samples per second"), (2**32 - 3, "can't be resampled to 16000")):
        data[24:28] = np.frombuffer(rate.to_bytes(4, "little"), np.uint8)
        with pytest.raises(ValueError, match=words):
            decode_audio(data, 16000)
    with pytest.raises(ValueError, match="small common divisor 1: is the file's header damaged"):
        resample(np.zeros((1, 10), np.float32), 44101, 16000)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_garbled_files_are_an_error_or_sound(data: st.DataObject) -> None:
    raw = encoded(SOUND[:20])
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(4, 60))] = data.draw(st.integers(0, 255))
    try:
        values, _ = read_wav(raw[: data.draw(st.integers(12, len(raw)))])
    except (ValueError, struct.error) as error:
        assert isinstance(error, ValueError)
    else:
        assert values.ndim == 2 and values.size <= len(raw)


# Through the loader


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"{i:02d}.{'wav' if i % 2 else 'flac'}" for i in range(11)]
    for i, path in enumerate(paths):
        path.write_bytes(encoded(SOUND[: 400 + 10 * i], 8000, "WAV" if i % 2 else "FLAC").tobytes())
    return paths


def make_loader(files: list[Path], **changes: object) -> td.DataLoader:
    dataset = td.FileDataset({"audio": files}, labels=range(11), kinds={"audio": kinds.Audio(rate=4000, channels=1)})
    return td.DataLoader(dataset, **{"batch_size": 4, "shuffle": True, "seed": 3, "device": "cpu", **changes})


def test_sound_arrives(files: list[Path]) -> None:
    for audio, labels in make_loader(files):
        assert audio.data.dtype == torch.float32 and audio.data.shape[1] == 1
        for row, (_, length), i in zip(audio.data, audio.sizes.tolist(), labels.tolist(), strict=True):
            data = np.fromfile(files[i], np.uint8)
            np.testing.assert_array_equal(row[:, :length], decode_audio(data, 4000, 1))
            assert length == 200 + 5 * i and not row[:, length:].any()


def test_resumes_exactly_on_any_ranks(files: list[Path]) -> None:
    assert_resumes_exactly(lambda: make_loader(files))
    assert_same_stream(
        lambda: make_loader(files),
        lambda: [make_loader(files, batch_size=2, rank=rank, world_size=2) for rank in range(2)],
        steps=False,
    )


def test_a_damaged_file_is_a_bad_sample(files: list[Path]) -> None:
    truncate_file(files[3])
    with pytest.raises(td.BadSampleError, match=r"sample 3 \(.*03\.wav\): the WAV file is cut off"):
        list(make_loader(files, shuffle=False))
    with make_loader(files, on_bad_sample="substitute") as loader:
        assert sum(len(labels) for _, labels in loader) == 11 and [bad.index for bad in loader.bad_samples] == [3]
