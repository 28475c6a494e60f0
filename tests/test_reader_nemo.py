"""NeMo's manifests: real audio files, and what DALI would misread in the manifest or in a file."""

from __future__ import annotations

import json
import os
import zlib

import numpy as np
import nvidia.dali.experimental.dynamic as ndd
import pytest
import soundfile
import torch

import torchdali as td
from torchdali import kinds
from torchdali import transforms as T
from torchdali.readers.nemo import NemoAsr
from torchdali.testing import assert_resumes_exactly, assert_same_stream, truncate_file

from .launcher import start_code

N = 11
RATES = [8000, 16000, 22050]


def audio(i: int) -> np.ndarray:
    """500 + 70 i samples between -0.9 and 0.9, of 16 bits."""
    noise = np.random.default_rng(i).integers(-29000, 29000, 500 + 70 * i)
    return (noise / 32768).astype(np.float32)


def text(i: int) -> str:
    return f'number {i}: ä "quoted" 語 \U0001f600'[: 10 + 2 * i]


def seconds(i: int) -> float:
    """Half a sample more, since DALI rounds down."""
    return (len(audio(i)) + 0.5) / RATES[i % 3]


def line(folder, i: int) -> dict:
    ending = ["wav", "flac"][i % 2]
    return {"audio_filepath": f"{folder}/{i:02d}.{ending}", "duration": seconds(i), "text": text(i), "other": [None]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("speech")
    for i in range(N):
        soundfile.write(line(folder, i)["audio_filepath"], audio(i), RATES[i % 3], subtype="PCM_16")
    return folder


@pytest.fixture
def lines(folder):
    return [line(folder, i) for i in range(N)]


@pytest.fixture
def make(lines, tmp_path):
    """Makes a reader of some lines, each as JSON or as it is."""

    def make(entries=lines, **options):
        text = "".join((entry if isinstance(entry, str) else json.dumps(entry)) + "\n" for entry in entries)
        path = tmp_path / f"{zlib.crc32(text.encode())}.json"
        path.write_text(text, encoding="utf-8")
        return NemoAsr(**{"manifest_filepaths": [path], **options})

    return make


def read(reader, **options) -> list[tuple]:
    """Its samples by a loader, without padding."""
    loader = td.DataLoader(reader, **(dict(batch_size=4, device="cpu") | options))
    return [sample for batch in loader for sample in rows(batch)]


def rows(batch) -> list[tuple]:
    columns = []
    for value in batch:
        if isinstance(value, td.Padded):
            columns.append(
                [
                    row[tuple(slice(0, n) for n in size)].numpy()
                    for row, size in zip(value.data, value.sizes.tolist(), strict=True)
                ]
            )
        else:
            columns.append([row.numpy() if isinstance(row, torch.Tensor) else row for row in value])
    for at, column in enumerate(columns):  # sounds [1, n]
        columns[at] = [row[0] if np.ndim(row) == 2 and len(row) == 1 else row for row in column]
    return list(zip(*columns, strict=True))


def test_audio_rate_and_text(make):
    for samples in (
        read(make()),
        [tuple(np.asarray(v).squeeze() if torch.is_tensor(v) else v for v in s) for s in make()],
    ):
        assert len(samples) == N
        for i, (sound, rate, words) in enumerate(samples):
            assert sound.dtype == np.float32 and sound.shape == (500 + 70 * i,)
            np.testing.assert_allclose(sound, audio(i), atol=1e-4)
            assert rate == RATES[i % 3] and rate.dtype == np.float32
            assert words == text(i) and isinstance(words, str)


def test_which_fields_there_are(make):
    assert make().fields == ("audio", "sample_rate", "text")
    assert make(read_text=False, read_sample_rate=False, read_idxs=True).fields == ("audio", "idx")
    everything = make(read_idxs=True, fields=("index", "sound", "rate", "words", "number", "valid"))
    samples = read(everything, batch_size=5)
    assert [int(sample[0]) for sample in samples] == [int(sample[4]) for sample in samples] == list(range(N))
    assert samples[3][3] == text(3)
    assert everything.kinds["words"].word == "object" and everything.kinds["number"].word == "number"


def test_offset_and_duration(make, folder):
    entry = line(folder, 9)
    (sample,) = read(make([{**entry, "offset": 0.025, "duration": 0.0125}]))
    rate = RATES[0]
    np.testing.assert_allclose(sample[0], audio(9)[int(0.025 * rate) : int(0.0375 * rate)], atol=1e-4)
    del entry["duration"]
    (sample,) = read(make([entry]))
    assert len(sample[0]) == len(audio(9))


def test_resampled_and_stereo(make, folder, tmp_path):
    samples = read(make(sample_rate=4000.0))
    for i, (sound, rate, _) in enumerate(samples):
        assert len(sound) == pytest.approx(seconds(i) * 4000, abs=1)
        assert rate == RATES[i % 3]  # of the file
    both = np.stack([audio(4), -0.5 * audio(4)], 1)
    soundfile.write(tmp_path / "stereo.wav", both, 8000)
    entry = {"audio_filepath": os.fspath(tmp_path / "stereo.wav"), "text": "two"}
    (mixed,), (apart,) = read(make([entry])), read(make([entry], downmix=False))
    np.testing.assert_allclose(mixed[0], both.mean(1), atol=1e-4)
    np.testing.assert_allclose(apart[0], both.T, atol=1e-4)


def test_transforms_of_sound_act_on_it(make, lines):
    """Its kind knows the rate that it was resampled to."""
    reader = make(sample_rate=8000.0, read_text=False, read_sample_rate=False)
    assert reader.kinds == {"audio": kinds.Audio(rate=8000)} and make().kinds["audio"] == kinds.Audio()
    steps = T.Compose([T.CenterTimeCrop(256), T.MelSpectrogram(8000, n_fft=64, n_mels=8)])
    cropped = [
        sound for (batch,) in td.DataLoader(reader, 4, device="cpu", transform=T.CenterTimeCrop(256)) for sound in batch
    ]
    assert all(sound.shape == (1, 256) for sound in cropped) and len(cropped) == N
    (first, *_) = read(make(lines[:1], sample_rate=8000.0))
    start = (len(first[0]) - 256 + 1) // 2
    np.testing.assert_array_equal(cropped[0][0], first[0][start : start + 256])
    for (batch,) in td.DataLoader(reader, 4, device="cpu", transform=steps):
        assert batch.shape[1:3] == (1, 8)
    with pytest.raises(ValueError, match="is for sound of another rate than 'audio', which has 8000"):
        td.DataLoader(reader, 4, device="cpu", transform=T.MelSpectrogram(16000))
    plain = make(kinds={"audio": "array"}, read_text=False, read_sample_rate=False)
    assert [len(sound.shape) for (sound,) in plain] == [1] * N
    assert make(downmix=True, dtype=ndd.int16).kinds["audio"] == kinds.Array()


def test_ogg(make, tmp_path):
    tone = np.sin(np.arange(4000) / 10).astype(np.float32) / 2
    soundfile.write(tmp_path / "tone.ogg", tone, 16000)
    (sample,) = read(make([{"audio_filepath": os.fspath(tmp_path / "tone.ogg"), "text": ""}]))
    decoded, _ = soundfile.read(tmp_path / "tone.ogg", dtype="float32")
    np.testing.assert_allclose(sample[0], decoded, atol=1e-4)
    assert sample[2] == ""


def test_several_manifests_are_one(make, lines, tmp_path):
    paths = []
    for part, entries in enumerate((lines[:4], lines[4:])):
        paths.append(tmp_path / f"part{part}")
        paths[-1].write_text("\n\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries) + "\r\n  ")
    samples = read(NemoAsr(manifest_filepaths=paths, read_idxs=True))
    assert [sample[2] for sample in samples] == [text(i) for i in range(N)]
    assert [int(sample[3]) for sample in samples] == [*range(4), *range(N - 4)]
    assert len(NemoAsr(manifest_filepaths=os.fspath(paths[0]))) == 4


@pytest.mark.parametrize("shortest, longest", [(0, 0.05), (0.05, 0), (0.04, 0.08), (seconds(4), seconds(9)), (-1, 0)])
def test_durations_select(make, shortest, longest):
    chosen = [
        i
        for i in range(N)
        if (shortest <= 0 or seconds(i) >= float(np.float32(shortest)))
        and (longest <= 0 or seconds(i) <= float(np.float32(longest)))
    ]
    reader = make(min_duration=shortest, max_duration=longest, read_idxs=True)
    assert len(reader) == len(chosen)
    samples = read(reader)
    assert [sample[2] for sample in samples] == [text(i) for i in chosen]
    assert [int(sample[3]) for sample in samples] == list(range(len(chosen)))


def test_files_that_durations_leave_out_may_be_missing(make, lines):
    lines[3] |= {"audio_filepath": "/nowhere.wav", "duration": 10.0}
    assert len(make(lines, max_duration=1)) == N - 1
    with pytest.raises(ValueError, match="none of 11 samples lasts from min_duration=20 to max_duration=0"):
        make(lines, min_duration=20)


# In a loader


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("shuffle", [False, "window", "full"])
def test_two_epochs_on_every_rank(make, world_size, shuffle):
    loaders = [
        td.DataLoader(make(shuffle=shuffle), batch_size=2, device="cpu", seed=7, rank=rank, world_size=world_size)
        for rank in range(world_size)
    ]
    orders = []
    for _ in range(2):
        per_rank = [[rows(batch) for batch in loader] for loader in loaders]
        assert len({len(batches) for batches in per_rank}) == 1
        samples = [sample for batches in per_rank for batch in batches for sample in batch]
        orders.append([(len(sample[0]) - 500) // 70 for sample in samples])
        assert sorted(orders[-1]) == list(range(N))
        assert all(sample[2] == text(i) for i, sample in zip(orders[-1], samples, strict=True))
    assert (orders[0] == orders[1]) is (shuffle is False)


@pytest.fixture
def loader(make):
    def loader(world_size=1, shuffle="full", virtual_shards=None, **options):
        loaders = [
            td.DataLoader(
                make(shuffle=shuffle, virtual_shards=virtual_shards),
                **(dict(batch_size=3, device="cpu", seed=7, world_size=world_size) | options | {"rank": rank}),
            )
            for rank in range(world_size)
        ]
        return loaders if world_size > 1 else loaders[0]

    return loader


@pytest.mark.parametrize("prefetch", [0, 2])
def test_resumes_exactly(loader, prefetch):
    assert_resumes_exactly(lambda: loader(prefetch_factor=prefetch))


@pytest.mark.slow
def test_resumes_with_another_batch_size_and_world_size(loader):
    assert_resumes_exactly(lambda: loader(2, shuffle="window"), lambda: loader(2, shuffle="window", batch_size=2))
    assert_resumes_exactly(lambda: loader(2, virtual_shards=6), lambda: loader(3, virtual_shards=6), every=2)


def test_prefetch_gives_one_stream(loader):
    assert_same_stream(lambda: loader(prefetch_factor=0), lambda: loader(prefetch_factor=2), epochs=2)


# What DALI would misread


@pytest.mark.parametrize(
    "values, expected",
    [
        (dict(audio_filepath=...), "audio_filepath is missing"),
        (dict(audio_filepath=None), "audio_filepath must be a string, got None"),
        (dict(audio_filepath=""), "audio_filepath must be a path"),
        (dict(text=...), "text is missing"),
        (dict(text=None), "text must be a string, got None"),
        (dict(text=3), "text must be a string, got 3"),
        (dict(text="\0"), "text must be a string"),
        (dict(text="\ud83d"), "not JSON: .* surrogates not allowed"),
        (dict(other=["\ud83d"]), "not JSON: .* surrogates not allowed"),
        (dict(duration=None), "duration must be a number of seconds, got None"),
        (dict(duration="3"), "duration must be a number of seconds, got '3'"),
        (dict(duration=0), "duration must be a number of seconds, got 0"),
        (dict(offset=-1), "offset must be a number of seconds, got -1"),
        (dict(offset=1e6), r"the offset 1000000.0 is after the end of .*02.wav, which lasts 0.029 seconds"),
    ],
)
def test_lines_that_would_be_wrong(make, lines, values, expected):
    for name, value in values.items():
        lines[2].pop(name, None)
        if value is not ...:
            lines[2][name] = value
    start = sum(len(json.dumps(entry)) + 1 for entry in lines[:2])
    with pytest.raises(ValueError, match=rf"\.json, line 3 \(byte {start}\): {expected}"):
        make(lines)


def test_lines_that_are_no_json(make, lines):
    whole = json.dumps(lines[1])
    for bad, expected in [
        (whole[:-5], "not JSON"),
        (whole + " {}", "not JSON: Extra data"),
        ("[1]", r"an object was expected, got \[1\]"),
        (whole.replace(str(lines[1]["duration"]), "NaN"), "not JSON: NaN is not a number in JSON"),
    ]:
        with pytest.raises(ValueError, match=rf"line 2 \(byte \d+\): {expected}"):
            make([lines[0], bad, lines[2]])
    with pytest.raises(ValueError, match="there are no samples in"):
        make([])


def test_what_nobody_asks_for_may_be_missing(make, lines):
    del lines[2]["text"], lines[3]["duration"]
    assert len(read(make(lines, read_text=False))) == N
    with pytest.raises(ValueError, match=r"line 4 \(byte \d+\): duration is missing"):
        make(lines, read_text=False, max_duration=5)


@pytest.mark.processes
def test_dali_dies_of_null(make, lines, tmp_path):
    """Why lines are checked."""
    path = tmp_path / "null.json"
    path.write_text(json.dumps({**lines[0], "text": None}))
    code = (
        "import nvidia.dali.experimental.dynamic as ndd\n"
        f"print(ndd.readers.NemoAsr(manifest_filepaths=[{os.fspath(path)!r}], max_batch_size=1).get_metadata())"
    )
    program = start_code(code, tmp_path)
    program.communicate()
    assert program.returncode is not None and program.returncode < 0


def test_files_that_are_missing_or_empty(make, lines, tmp_path, monkeypatch, folder):
    lines[2]["audio_filepath"] = "/nowhere.wav"
    with pytest.raises(FileNotFoundError, match=r"1 of 11 files are missing, the first is /nowhere.wav$"):
        make(lines)
    relative = [{**entry, "audio_filepath": os.path.basename(entry["audio_filepath"])} for entry in lines[3:]]
    with pytest.raises(FileNotFoundError, match=r"relative paths start at the working directory .*, so write absolute"):
        make(relative)
    monkeypatch.chdir(folder)
    assert len(read(make(relative))) == N - 3
    (tmp_path / "empty.wav").touch()
    lines[2]["audio_filepath"] = os.fspath(tmp_path / "empty.wav")
    with pytest.raises(ValueError, match=r"1 of 11 files are empty, the first is .*empty.wav"):
        make(lines)


def test_truncated_wav(make, tmp_path):
    path = tmp_path / "cut.wav"
    soundfile.write(path, audio(5), 16000, subtype="PCM_16")
    entry = {"audio_filepath": os.fspath(path), "text": ""}
    assert len(make([entry])) == 1
    data = path.read_bytes()
    truncate_file(path)
    expected = (
        rf"cut.wav, byte 36: {len(data) - 44} bytes of samples were expected, got {len(data) // 2 - 44} \(.*line 1"
    )
    with pytest.raises(ValueError, match=expected):
        make([entry])
    path.write_bytes(data[:30])
    with pytest.raises(ValueError, match=r"cut.wav, byte 12: .*|cut.wav, byte \d+: a WAV file without samples"):
        make([entry])
    # What was written into a pipe does not know its size.
    path.write_bytes(data[:40] + b"\xff" * 4 + data[44:])
    (sample,) = read(make([entry]))
    np.testing.assert_allclose(sample[0], audio(5), atol=1e-4)


def test_a_truncated_flac_fails_with_its_path(make, folder, tmp_path):
    path = tmp_path / "cut.flac"
    soundfile.write(path, audio(5), 16000)
    truncate_file(path)
    with pytest.raises(td.ReaderError, match=r"NemoAsr failed at epoch 0, .*cut.flac"):
        read(make([{"audio_filepath": os.fspath(path), "text": ""}]))


def test_arguments(make):
    with pytest.raises(ValueError, match="NemoAsr needs manifest_filepaths="):
        NemoAsr()
    with pytest.raises(ValueError, match="takes no shuffle_after_epoch: write shuffle="):
        make(shuffle_after_epoch=True)
