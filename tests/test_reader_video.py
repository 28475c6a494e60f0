"""Video on the CPU, by files that PyAV writes and decodes; and the readers that need a GPU, video and FITS."""

from __future__ import annotations

import os
import shutil

import av
import numpy as np
import pytest
import torch
from astropy.io import fits

import torchdali as td
from torchdali import kinds
from torchdali import transforms as T
from torchdali.formats.fits import count_hdus
from torchdali.readers.fits import Fits
from torchdali.readers.video import ExperimentalVideo, Video, VideoResize
from torchdali.testing import assert_resumes_exactly, assert_same_stream, garble_file, truncate_file

RATE = 10  # frames a second
CODECS = {"webm": "libvpx-vp9", "mkv": "libvpx", "mp4": "libvpx-vp9", "avi": "mjpeg", "mov": "mjpeg"}
# Name, and frames.  DALI reads all of them on the CPU.
FILES = {"a.webm": 14, "b.mkv": 12, "c.avi": 9, "d.mp4": 13, "e.mov": 8}
LENGTH = 4
SEQUENCES = [(name, first) for name, n in FILES.items() for first in range(0, n - LENGTH + 1, LENGTH)]
N = len(SEQUENCES)  # 3 + 3 + 2 + 3 + 2

gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


def picture(i: int, width: int, height: int) -> np.ndarray:
    """A frame that says its number by its red."""
    frame = np.zeros((height, width, 3), np.uint8)
    frame[..., 0] = 40 + 12 * i % 200
    frame[..., 1] = np.linspace(0, 255, width)
    frame[..., 2] = np.linspace(200, 50, height)[:, None]
    return frame


def write(path, frames: int, codec: str | None = None, size=(64, 48), **options) -> None:
    codec = codec or CODECS[path.suffix[1:]]
    with av.open(os.fspath(path), "w") as container:
        stream = container.add_stream(codec, rate=RATE, options=options)
        stream.width, stream.height = size
        stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        stream.gop_size = 5
        for i in range(frames):
            for packet in stream.encode(av.VideoFrame.from_ndarray(picture(i, *size), format="rgb24")):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)


def decoded(path) -> np.ndarray:
    """All frames by PyAV, uint8 [n, H, W, C]."""
    with av.open(os.fspath(path)) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    root = tmp_path_factory.mktemp("videos")
    for name, frames in FILES.items():
        write(root / name, frames)
    return root


@pytest.fixture
def make(videos):
    def make(*names, **options):
        files = [videos / name for name in names or FILES]
        return ExperimentalVideo(**{"filenames": files, "sequence_length": LENGTH, **options})

    return make


LABELS = [3, -4, 2**31 - 1, 6, 7]
EVERYTHING = dict(labels=LABELS, enable_frame_num="sequence", enable_timestamps=True)


def read(reader, **options) -> list[tuple]:
    """Its samples by a loader, without padding."""
    loader = td.DataLoader(reader, **(dict(batch_size=4, device="cpu") | options))
    return [sample for batch in loader for sample in rows(batch)]


def rows(batch) -> list[tuple]:
    columns = []
    for value in batch:
        data = value.data if isinstance(value, td.Padded) else value
        sizes = value.sizes.tolist() if isinstance(value, td.Padded) else [()] * len(data)
        if data.ndim == 5:  # [N, F, C, H, W]
            data = data.movedim(2, -1)
            sizes = [(data.shape[1], *size) for size in sizes if size] or sizes
        columns.append([row[tuple(map(slice, size))].cpu().numpy() for row, size in zip(data, sizes, strict=True)])
    return list(zip(*columns, strict=True))


def near(got: np.ndarray, expected: np.ndarray) -> None:
    """Within what two conversions from YCbCr with different roundings give: 2 of 255 on average, 16 at an edge."""
    assert got.dtype == np.uint8 and got.shape == expected.shape
    difference = np.abs(got.astype(int) - expected)
    assert difference.mean() < 2 and difference.max() <= 16, (difference.mean(), difference.max())


def test_frames_labels_numbers_and_timestamps(make, videos):
    for samples in (read(make(**EVERYTHING)), list(make(**EVERYTHING))):
        assert len(samples) == N == len(make())
        for (name, first), (video, label, frames, times) in zip(SEQUENCES, samples, strict=True):
            near(np.asarray(video), decoded(videos / name)[first : first + LENGTH])
            assert label == LABELS[list(FILES).index(name)] and np.asarray(label).dtype == np.int32
            assert frames.tolist() == list(range(first, first + LENGTH)) and np.asarray(frames).dtype == np.int32
            np.testing.assert_allclose(times, np.arange(first, first + LENGTH) / RATE, atol=1e-3)
            assert np.asarray(times).dtype == np.float64


def test_which_fields_there_are(make):
    assert make().fields == ("video",)
    assert make(labels=LABELS, enable_frame_num=True).fields == ("video", "label", "frame")
    assert make(enable_frame_num="none", enable_timestamps=False).fields == ("video",)
    reader = make(labels=LABELS, enable_frame_num="scalar", fields=("clip", "class", "start", "index", "valid"))
    samples = read(reader)
    assert [int(sample[2]) for sample in samples] == [first for _, first in SEQUENCES]
    assert [int(sample[3]) for sample in samples] == list(range(N))


def test_steps_and_strides(make, videos):
    samples = read(make("a.webm", sequence_length=3, step=5, stride=2, enable_frame_num="sequence"))
    assert [frames.tolist() for _, frames in samples] == [[0, 2, 4], [5, 7, 9]]
    near(samples[1][0], decoded(videos / "a.webm")[[5, 7, 9]])
    samples = read(make("a.webm", "c.avi", uniform_sample=True, enable_frame_num="sequence"))
    assert [frames.tolist() for _, frames in samples] == [[0, 4, 9, 13], [0, 3, 5, 8]]


@pytest.mark.parametrize(
    "pad_mode, last",
    [
        ("constant", [12, 13, -1, -1]),
        ("edge", [12, 13, 13, 13]),
        ("reflect_101", [12, 13, 12, 11]),
        ("reflect_1001", [12, 13, 13, 12]),
    ],
)
def test_padding(make, videos, pad_mode, last):
    samples = read(make("a.webm", pad_mode=pad_mode, fill_value=[7], **EVERYTHING | {"labels": [0]}))
    video, _, frames, times = samples[-1]
    assert frames.tolist() == last
    for frame, number, time in zip(video, last, times, strict=True):
        if number < 0:
            assert (frame == 7).all() and time == -1
        else:
            near(frame, decoded(videos / "a.webm")[number])
            assert time == pytest.approx(number / RATE, abs=1e-3)


def test_sizes_that_differ_are_padded(make, tmp_path, videos):
    write(tmp_path / "wide.webm", 4, size=(80, 40))
    reader = make(filenames=[tmp_path / "wide.webm", videos / "b.mkv"])
    (batch,) = td.DataLoader(reader, batch_size=4, device="cpu")
    assert batch[0].data.shape == (4, 4, 3, 48, 80)
    assert batch[0].sizes.tolist() == [[40, 80]] + [[48, 64]] * 3
    plain = make(filenames=[tmp_path / "wide.webm", videos / "b.mkv"], kinds={"video": "array"})
    (batch,) = td.DataLoader(plain, batch_size=4, device="cpu")
    assert batch[0].data.shape == (4, 4, 48, 80, 3)
    assert batch[0].sizes.tolist() == [[4, 40, 80, 3]] + [[4, 48, 64, 3]] * 3


@pytest.mark.parametrize("engine", ["eager", "pipeline", "debug"])
def test_transforms_move_clips(make, engine):
    """All frames of a clip alike."""
    assert make(labels=LABELS).kinds["video"] == kinds.Video("FHWC")
    (whole,) = [batch[0].data for batch in td.DataLoader(make(), N, device="cpu")]
    transform = T.Compose([T.UniformTemporalSubsample(2), T.RandomHorizontalFlip(1.0), T.CenterCrop((20, 30))])
    ((moved,),) = td.DataLoader(make(), N, device="cpu", engine=engine, transform=transform)
    assert torch.equal(moved, whole[:, [0, 3], :, 14:34, 17:47].flip(-1))


def test_resumes_exactly_with_a_transform(make):
    transform = T.Compose([T.RandomResizedCrop(16), T.ColorJitter(0.3)])
    assert_resumes_exactly(
        lambda **changes: td.DataLoader(make(shuffle="window"), 4, transform=transform, device="cpu", **changes)
    )


def test_folders(videos, tmp_path):
    for number, (name, folder) in enumerate(zip(FILES, ["x", "x", "y", "a", "y"], strict=True)):
        (tmp_path / "root" / folder).mkdir(parents=True, exist_ok=True)
        shutil.copy(videos / name, tmp_path / "root" / folder / f"{9 - number}{name}")
    reader = ExperimentalVideo(file_root=tmp_path / "root", sequence_length=8)
    order = ["d.mp4", "b.mkv", "a.webm", "e.mov", "c.avi"]
    samples = read(reader)
    assert [int(label) for _, label in samples] == [0, 1, 1, 2, 2]
    for name, (video, _) in zip(order, samples, strict=True):
        near(video, decoded(videos / name)[:8])
    (tmp_path / "root" / "a" / "deep").mkdir()
    shutil.copy(videos / "a.webm", tmp_path / "root" / "a" / "deep" / "a.webm")
    shutil.copy(videos / "a.webm", tmp_path / "root")
    with pytest.warns(RuntimeWarning, match=r"2 files are left out, .* the first is .*root/a.*\.webm"):
        again = ExperimentalVideo(file_root=tmp_path / "root", sequence_length=8)
    assert len(again) == 5
    with pytest.raises(FileNotFoundError, match="file_root must be a folder that exists"):
        ExperimentalVideo(file_root=tmp_path / "nowhere", sequence_length=8)


@pytest.fixture
def listed(tmp_path, videos):
    def listed(*lines, **options):
        path = tmp_path / "list.txt"
        path.write_text("".join(line.replace("@", f"{videos}/") + "\n" for line in lines))
        return ExperimentalVideo(**{"file_list": path, "sequence_length": 3, "enable_frame_num": "sequence"} | options)

    return listed


def test_file_list(listed, videos):
    samples = read(listed("@a.webm 3 0.2 0.8", "", "@c.avi 4"))
    assert [(int(label), frames.tolist()) for _, label, frames in samples] == [
        (3, [2, 3, 4]), (3, [5, 6, 7]), (4, [0, 1, 2]), (4, [3, 4, 5]), (4, [6, 7, 8]),
    ]  # fmt: skip
    near(samples[1][0], decoded(videos / "a.webm")[5:8])
    samples = read(listed("@a.webm 3 2 8", "@c.avi 4 -4 -1", file_list_format="frames"))
    assert [(int(label), frames[0]) for _, label, frames in samples] == [(3, 2), (3, 5), (4, 5)]


# In a loader


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("shuffle", [False, "window"])
def test_two_epochs_on_every_rank(make, world_size, shuffle):
    options = {"initial_fill": 5} if shuffle else {}
    loaders = [
        td.DataLoader(
            make(shuffle=shuffle, labels=LABELS, enable_frame_num=True, **options),
            batch_size=2, device="cpu", seed=7, rank=rank, world_size=world_size,
        )
        for rank in range(world_size)
    ]  # fmt: skip
    orders = []
    for _ in range(2):
        per_rank = [list(loader) for loader in loaders]
        assert len({len(batches) for batches in per_rank}) == 1
        order = [
            (list(FILES)[LABELS.index(int(label))], int(frame))
            for batches in per_rank
            for _, labels, frames in batches
            for label, frame in zip(labels, frames, strict=True)
        ]
        assert sorted(order) == sorted(SEQUENCES)
        orders.append(order)
    assert (orders[0] == orders[1]) is (shuffle is False)
    with pytest.raises(ValueError, match="has no full shuffle"):
        make(shuffle="full")


@pytest.fixture
def loader(make):
    def loader(world_size=1, virtual_shards=None, **options):
        loaders = [
            td.DataLoader(
                make(shuffle="window", initial_fill=5, virtual_shards=virtual_shards, **EVERYTHING),
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
    assert_resumes_exactly(lambda: loader(2), lambda: loader(2, batch_size=2), every=2)
    assert_resumes_exactly(lambda: loader(2, virtual_shards=6), lambda: loader(3, virtual_shards=6), every=2)


def test_prefetch_gives_one_stream(loader):
    assert_same_stream(lambda: loader(prefetch_factor=0), lambda: loader(prefetch_factor=2), epochs=2)


# What DALI would leave out, or count for ever


@pytest.mark.parametrize("codec", ["libx264", "mpeg4", "libx265"])
def test_codecs_that_the_cpu_does_not_have(make, tmp_path, codec):
    options = {"x265-params": "log-level=none"} if codec == "libx265" else {}
    write(tmp_path / "other.mp4", 12, codec, **options)
    with pytest.raises(ValueError, match=r"1 of 1 videos are left out, .* VP8, VP9 or MJPEG.*: .*other.mp4$"):
        make(filenames=[tmp_path / "other.mp4"])
    files = [*make().options["filenames"], tmp_path / "other.mp4"]
    with pytest.warns(RuntimeWarning, match=r"experimental.Video: 1 of 6 videos are left out, .*: \S*other.mp4$"):
        reader = make(filenames=files)
    assert len(reader) == N == len(read(reader))


def test_short_and_damaged_videos(make, tmp_path, videos):
    write(tmp_path / "short.webm", 3)
    shutil.copy(videos / "a.webm", tmp_path / "bad.webm")
    garble_file(tmp_path / "bad.webm")
    files = [tmp_path / "short.webm", videos / "a.webm", tmp_path / "bad.webm"]
    with pytest.warns(RuntimeWarning, match=r"2 of 3 videos are left out, .*: \S*short.webm, \S*bad.webm$"):
        reader = make(filenames=files, labels=[1, 2, 3])
    assert [int(label) for _, label in read(reader)] == [2, 2, 2]
    with pytest.warns(RuntimeWarning, match=r"1 of 3 videos are left out, .*: \S*bad.webm$"):
        padded = make(filenames=files, labels=[1, 2, 3], pad_mode="edge")
    assert [int(label) for _, label in read(padded)] == [1, 2, 2, 2, 2]


def test_parts_that_are_empty(listed):
    lines = ["@a.webm 1 2 5", "@a.webm 2 9 5", "@a.webm 3 5 50", "@c.avi 4 7 8"]
    with pytest.warns(RuntimeWarning, match=r"2 of 4 videos .*: \S*a.webm \(line 2\), \S*c.avi \(line 4\)$"):
        reader = listed(*lines, file_list_format="frames")
    assert {int(label) for _, label, _ in read(reader)} == {1, 3}


@pytest.mark.parametrize("name", FILES)
def test_files_that_are_cut_off(make, tmp_path, videos, name):
    write(tmp_path / name, 60)
    assert len(make(filenames=[tmp_path / name])) == 15
    truncate_file(tmp_path / name)
    with pytest.raises(ValueError, match=rf"{name}, byte \d+: \d+ bytes were expected, got \d+: cut off"):
        make(filenames=[videos / "a.webm", tmp_path / name])


def test_files_of_unknown_size_are_not_cut_off(make, tmp_path):
    """Such as a live stream, or a file with something behind its end."""
    write(tmp_path / "live.webm", 12)
    data = bytearray((tmp_path / "live.webm").read_bytes())
    at = data.index(b"\x18\x53\x80\x67")  # Segment
    data[at + 4 : at + 12] = b"\x01" + b"\xff" * 7
    (tmp_path / "live.webm").write_bytes(data)
    write(tmp_path / "more.mp4", 12)
    (tmp_path / "more.mp4").write_bytes((tmp_path / "more.mp4").read_bytes() + bytes(range(100, 140)))
    assert len(make(filenames=[tmp_path / "live.webm", tmp_path / "more.mp4"])) == 6


def test_missing_and_empty_files(make, tmp_path, videos):
    with pytest.raises(FileNotFoundError, match=r"1 of 2 files are missing, the first is .*nope.webm"):
        make(filenames=[videos / "a.webm", tmp_path / "nope.webm"])
    (tmp_path / "empty.webm").touch()
    with pytest.raises(ValueError, match=r"1 of 1 files are empty"):
        make(filenames=tmp_path / "empty.webm")


@pytest.mark.parametrize(
    "options, error, expected",
    [
        (dict(sequence_length=0), ValueError, r"sequence_length must be in \[1, 1073741824\], got 0"),
        (dict(sequence_length=None), ValueError, "needs sequence_length="),
        (dict(sequence_length=2.0), TypeError, "sequence_length must be an integer"),
        (dict(stride=0), ValueError, r"stride must be in \[1, 1073741824\], got 0"),
        (dict(sequence_length=2**20, stride=2**20), ValueError, r"sequence_length \* stride must be at most"),
        (dict(step=0), ValueError, "step must be at least 1, or -1"),
        (dict(step=2**31 - 1), ValueError, "step must be in"),
        (dict(labels=[1, 2]), ValueError, "labels must be one for each file, got 2 for 5"),
        (dict(labels=[]), ValueError, "labels must be one for each file, got none"),
        (dict(labels=[2**40] * 5), ValueError, "label 1099511627776 .* does not fit int32"),
        (dict(file_root="."), ValueError, "experimental.Video needs one of filenames=, file_list= and file_root="),
        (dict(filenames=[]), ValueError, "experimental.Video needs one of"),
        (dict(pad_mode="bad"), ValueError, "Invalid pad_mode: bad"),
    ],
)
def test_arguments(make, options, error, expected):
    with pytest.raises(error, match=expected):
        make(**options)


@pytest.mark.parametrize(
    "line", ["@a.webm", "@a.webm one", "@a.webm -1", "@a.webm 1.5", "@a.webm 1 x", "@a.webm 1 0 nan", "a b c d e 1"]
)
def test_lines_that_dali_would_misread(listed, line):
    with pytest.raises(ValueError, match=r"list.txt, line 2: expected .path label \[start \[end\]\]"):
        listed("@a.webm 1", line)


# What needs a GPU


def gpu_readers(videos, tmp_path) -> dict[str, td.readers.Reader]:
    images(tmp_path)
    return {
        "Video": Video(filenames=[videos / "a.webm"], sequence_length=LENGTH),
        "VideoResize": VideoResize(filenames=[videos / "a.webm"], sequence_length=LENGTH, size=[24, 32]),
        "Fits": Fits(file_root=tmp_path),
    }


@pytest.mark.parametrize("name", ["Video", "VideoResize", "Fits"])
def test_readers_that_need_a_gpu_say_so(videos, tmp_path, name):
    reader = gpu_readers(videos, tmp_path)[name]
    with pytest.raises((ValueError, td.ReaderError), match=rf"DALI's {name} .*: write device='cuda' at the DataLoader"):
        next(iter(td.DataLoader(reader, batch_size=2, device="cpu")))
    with pytest.raises((ValueError, td.ReaderError), match="write device='cuda'"):
        next(iter(reader))


def test_gpu_readers_check_as_well(videos, tmp_path):
    for reader, options in ((Video, {}), (VideoResize, {"size": [24, 32]})):
        with pytest.raises(FileNotFoundError, match="are missing"):
            reader(filenames=[tmp_path / "nope.mp4"], sequence_length=LENGTH, **options)
        with pytest.raises(ValueError, match="stride must be in"):
            reader(filenames=[videos / "a.webm"], sequence_length=LENGTH, stride=0, **options)
        made = reader(
            filenames=[videos / "a.webm"], labels=[], sequence_length=LENGTH, enable_frame_num=True, **options
        )
        assert made.fields == ("video", "label", "frame")


def images(folder, n: int = 5) -> list[np.ndarray]:
    arrays = [np.random.default_rng(i).integers(0, 256, (6, 8 + i), np.uint8) for i in range(n)]
    for i, array in enumerate(arrays):
        table = fits.BinTableHDU.from_columns([fits.Column("a", "3J", array=np.arange(9).reshape(3, 3))])
        header = fits.Header([(f"KEY{k}", k) for k in range(60)])  # more than a block
        hdus = [fits.PrimaryHDU(header=header), fits.ImageHDU(array), table, fits.CompImageHDU(array.astype(np.int32))]
        fits.HDUList(hdus).writeto(folder / f"{i}.fits")
    return arrays


def test_fits_files_are_checked(tmp_path):
    images(tmp_path)
    files = sorted(tmp_path.glob("*.fits"))
    assert {count_hdus(path) for path in files} == {4}
    assert Fits(files=files, hdu_indices=[2, 4]).fields == ("hdu2", "hdu4")
    with pytest.raises(ValueError, match=r"0.fits has 4 HDUs, and hdu_indices asks for number 5"):
        Fits(file_root=tmp_path, hdu_indices=[5])
    with pytest.raises(ValueError, match="hdu_indices must be a list of integers from 1"):
        Fits(file_root=tmp_path, hdu_indices=[0])
    with pytest.raises(ValueError, match="dtypes must be one for each HDU, got 1 for 2"):
        Fits(file_root=tmp_path, hdu_indices=[2, 4], dtypes=[0])
    with pytest.raises(ValueError, match="Fits needs file_root=, files= or file_list="):
        Fits()
    (tmp_path / "list.txt").write_text("0.fits\nnope.fits\n")
    with pytest.raises(FileNotFoundError, match="1 of 2 files are missing"):
        Fits(file_root=tmp_path, file_list=tmp_path / "list.txt")
    whole = files[1].read_bytes()
    for keep, expected in [(2880 * 5, r"byte \d+: an HDU of \d+ bytes was expected"), (2000, "byte 0: an HDU of 2880")]:
        files[1].write_bytes(whole[:keep])
        with pytest.raises(ValueError, match=rf"1.fits, {expected}"):
            Fits(files=files)
    files[1].write_bytes(whole.replace(b"BITPIX  =", b"BITPIY  =", 1))
    with pytest.raises(ValueError, match=r"1.fits, byte 0: a FITS header with a size was expected"):
        Fits(files=files)
    files[1].write_bytes(bytes(2880))
    with pytest.raises(ValueError, match=r"1.fits, byte 0: a FITS header was expected"):
        Fits(files=files)


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    """H.264, which a GPU decodes."""
    folder = tmp_path_factory.mktemp("films")
    for i in range(3):
        write(folder / f"{i}.mp4", 12 + i, "libx264", size=(256, 192))
    return folder


@pytest.fixture
def on_gpu(films):
    def on_gpu(cls=Video, world_size=1, virtual_shards=None, **options):
        reader = dict(
            filenames=sorted(films.glob("*.mp4")), labels=[5, 6, 7], sequence_length=LENGTH, shuffle="window",
            initial_fill=4, virtual_shards=virtual_shards, enable_frame_num=True, enable_timestamps=True,
        )  # fmt: skip
        loader = dict(batch_size=2, device="cuda", seed=7, world_size=world_size)
        reader |= {name: options.pop(name) for name in list(options) if name in (*reader, "size")}
        loaders = [td.DataLoader(cls(**reader), **(loader | options | {"rank": rank})) for rank in range(world_size)]
        return loaders if world_size > 1 else loaders[0]

    return on_gpu


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("case", [pytest.param("gpu", marks=gpu)])
def test_video_on_a_gpu(on_gpu, films, case, world_size):
    found = []
    loaders = on_gpu(world_size=world_size)
    for loader in loaders if world_size > 1 else [loaders]:
        for batch in loader:
            assert batch[0].data.device.type == batch[1].device.type == "cuda"
            for clip, number, first, when in rows(batch):
                near(clip, decoded(films / f"{number - 5}.mp4")[first : first + LENGTH])
                np.testing.assert_allclose(when, np.arange(first, first + LENGTH) / RATE, atol=1e-3)
                found.append((int(number), int(first)))
    assert sorted(found) == [(number, first) for number in (5, 6, 7) for first in (0, 4, 8)]


@pytest.mark.parametrize("cls", [pytest.param(Video, marks=gpu), pytest.param(VideoResize, marks=gpu)])
def test_videos_on_a_gpu_resume(on_gpu, cls):
    options = {"size": [96, 128]} if cls is VideoResize else {}
    clip = next(iter(on_gpu(cls, **options)))[0]
    assert clip.data.shape == (2, LENGTH, *((96, 128) if options else (192, 256)), 3)
    assert_resumes_exactly(lambda: on_gpu(cls, **options))
    assert_resumes_exactly(
        lambda: on_gpu(cls, 2, virtual_shards=2, **options), lambda: on_gpu(cls, virtual_shards=2, **options)
    )


@pytest.mark.parametrize("case", [pytest.param("gpu", marks=gpu)])
def test_fits_on_a_gpu(tmp_path, case):
    expected = images(tmp_path)
    samples = [array for (array,) in read(Fits(file_root=tmp_path), device="cuda")]
    assert all(np.array_equal(one, other) for one, other in zip(samples, expected, strict=True))
    assert_resumes_exactly(lambda: td.DataLoader(Fits(file_root=tmp_path), batch_size=2, device="cuda"))


@pytest.mark.parametrize("case", [pytest.param("gpu", marks=gpu)])
def test_experimental_video_for_a_gpu(make, videos, case):
    for batch, (name, first) in zip(td.DataLoader(make(), batch_size=1, device="cuda"), SEQUENCES, strict=True):
        assert batch[0].data.device.type == "cuda"
        near(rows(batch)[0][0], decoded(videos / name)[first : first + LENGTH])
