"""VideoClips: exact frames of any codec, their places, and clips through the loader."""

from __future__ import annotations

import os
import sys
import tarfile
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch
from scipy import stats
from torchvision.transforms import v2

import torchdali as td
from torchdali import kinds
from torchdali import transforms as T
from torchdali.formats import clips
from torchdali.formats.clips import decode_clip, index_video, read_frames
from torchdali.testing import assert_resumes_exactly, assert_same_stream, truncate_file

LENGTHS = [25, 9, 40, 3]
CODECS = {
    "h264, B frames": ("libx264", "mp4", {"g": "12", "bf": "3"}),
    "h264, open groups": ("libx264", "mp4", {"g": "10", "bf": "3", "x264-params": "open-gop=1"}),
    "h264, one group": ("libx264", "mkv", {"g": "250"}),
    "mpeg4": ("mpeg4", "mp4", {"g": "8"}),
    "mjpeg": ("mjpeg", "avi", {}),
    "vp9": ("libvpx-vp9", "webm", {"g": "15"}),
    "h264, no index": ("libx264", "ts", {"g": "12", "bf": "2"}),
}


def write(path: Path, frames: int, codec: str = "mpeg4", size: tuple[int, int] = (64, 48), **options: str) -> Path:
    """A video whose frames are noise of their own."""
    width, height = size
    rng = np.random.default_rng(frames)
    with av.open(os.fspath(path), "w") as container:
        stream = container.add_stream(codec, rate=25, options={"g": "6", **options})
        stream.width, stream.height = size
        stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        for _ in range(frames):
            pixels = rng.integers(0, 256, (height // 8, width // 8, 3), np.uint8).repeat(8, 0).repeat(8, 1)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())
    return path


def decoded(path: Path) -> np.ndarray:
    with av.open(os.fspath(path)) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("clips")
    return [write(root / f"{k}.mp4", frames) for k, frames in enumerate(LENGTHS)]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", os.fspath(tmp_path / "cache"))


def make_loader(files: list[Path], transform: Any = None, frames: int = 4, **changes: Any) -> td.DataLoader:
    ours = {"stride": 2, "fields": ["video", "label", "start", "path"], "labels": range(len(files))}
    ours |= {key: changes.pop(key) for key in ("stride", "step", "random_start", "labels") if key in changes}
    options = {"batch_size": 3, "shuffle": True, "seed": 5, "device": "cpu", **changes}
    return td.DataLoader(td.VideoClips(files, frames, **ours), transform=transform, **options)


# Frames


@pytest.mark.parametrize("name", CODECS)
def test_frames_are_those_of_the_whole_file(tmp_path, name):
    codec, container, options = CODECS[name]
    path = write(tmp_path / f"video.{container}", 45, codec, **options)
    whole, index = decoded(path), index_video(os.fspath(path))
    assert len(index.times) == len(whole) == 45 and index.size == (48, 64)
    rng = np.random.default_rng(0)
    for _ in range(25):
        stride, count = int(rng.integers(1, 9)), int(rng.integers(1, 6))
        numbers = rng.integers(0, 45 - (count - 1) * stride) + np.arange(count) * stride
        np.testing.assert_array_equal(read_frames(os.fspath(path), index, numbers), whole[numbers])


def test_the_index_is_kept(files, monkeypatch):
    first = td.VideoClips(files, 2)
    monkeypatch.setattr(clips, "_read_packets", None)
    second = td.VideoClips(files, 2)
    assert second.fingerprint() == first.fingerprint() and torch.equal(first[3][0], second[3][0])


# Clips


def test_clips_lie_where_they_should(files):
    data = td.VideoClips(files, 4, stride=2, fields=["video", "start", "path"])
    assert data.counts.tolist() == [3, 1, 5, 0] and len(data) == 9
    starts = [0, 7, 14, 0, 0, 7, 14, 21, 28]
    for i, first in enumerate(starts):
        video, start, path = data[i]
        file = files[0 if i < 3 else 1 if i < 4 else 2]
        assert int(start) == first and path == os.fspath(file) and video.dtype == torch.uint8
        np.testing.assert_array_equal(video, decoded(file)[first : first + 7 : 2])
    assert td.VideoClips(files, 4, step=1).counts.tolist() == [22, 6, 37, 0]
    assert td.VideoClips(files, 1, fields=["label", "video"], labels=list("abcd"))[76][0] == "d"


def test_clips_arrive(files):
    for video, labels, starts, paths in make_loader(files):
        assert video.shape == (len(labels), 4, 3, 48, 64) and video.dtype == torch.uint8
        for clip, label, start, path in zip(video, labels.tolist(), starts.tolist(), paths, strict=True):
            assert path == os.fspath(files[label])
            expected = decoded(files[label])[start : start + 7 : 2]
            np.testing.assert_array_equal(clip.permute(0, 2, 3, 1), expected)


def test_random_starts_differ_in_each_epoch_and_cover_the_file(files):
    loader = make_loader(files[2:3], step=100, random_start=True, labels=[0])
    seen = []
    for epoch in (0, 1, 2, 0, 1, 2):
        loader.set_epoch(epoch)
        seen += [int(starts[0]) for _, _, starts, _ in loader]
    assert seen[:3] == seen[3:] and len(set(seen)) == 3
    data = td.VideoClips(files, 4, stride=2, random_start=True, fields=["start"])
    found = []
    for seed in range(1000):
        torch.manual_seed(seed)
        data.set_epoch(seed)
        found.append(data.read_columns(range(9), ["start"])["start"])
    for column, low, high in zip(
        np.stack(found, 1), [0, 7, 14, 0, 0, 7, 14, 21, 28], [6, 13, 18, 2, 6, 13, 20, 27, 33]
    ):
        assert (column.min(), column.max()) == (low, high)
        assert stats.chisquare(np.bincount(column - low)).pvalue > 0.001


def test_transforms_move_all_frames_alike(files):
    """Frames that are equal before stay equal."""
    steps = [T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.ColorJitter(0.4, 0.4), T.RandomErasing(0.9)]
    still = np.random.default_rng(0).integers(0, 256, (48, 64, 3), np.uint8)[None].repeat(4, 0)
    data = td.InMemoryDataset(video=[still] * 6, kinds={"video": "video"})
    video, *_ = next(iter(td.DataLoader(data, 6, transform=T.Compose(steps), device="cpu", seed=1)))
    assert torch.equal(video, video[:, :1].expand_as(video)) and len({clip.numpy().tobytes() for clip in video}) == 6
    for video, *_ in make_loader(files, T.Compose(steps)):
        assert video.shape[1:] == (4, 3, 24, 24)


@pytest.mark.parametrize("random_start", [False, True])
def test_resumes_exactly_on_any_ranks(files, random_start):
    def make(**changes: Any) -> td.DataLoader:
        return make_loader(files, T.RandomCrop(32), random_start=random_start, **changes)

    assert_resumes_exactly(make)
    assert_same_stream(
        lambda: make(batch_size=4),
        lambda: [make(batch_size=2, rank=rank, world_size=2) for rank in range(2)],
        steps=False,
    )


def test_files_of_several_sizes_leave_padded(files, tmp_path):
    wide = write(tmp_path / "wide.mp4", 8, size=(96, 32))
    (video, *_), *_ = make_loader([files[1], wide], stride=1, step=9, shuffle=False)
    assert video.sizes.tolist() == [[48, 64], [32, 96]] and video.data.shape == (2, 4, 3, 48, 96)


def test_damaged_files(files, tmp_path):
    damaged = write(tmp_path / "damaged.mkv", 30, "mjpeg")
    data = td.VideoClips([damaged], 3)
    truncate_file(damaged)
    with pytest.raises(td.BadSampleError, match=r"damaged\.mkv\).*(damaged|not found)"):
        list(td.DataLoader(data, device="cpu"))
    with td.DataLoader(data, device="cpu", on_bad_sample="substitute") as loader:
        assert sum(len(batch[0]) for batch in loader) == len(data) and loader.bad_samples
    text = tmp_path / "text.mp4"
    text.write_text("no video")
    with pytest.raises(ValueError, match=r"text\.mp4: a video file was expected"):
        td.VideoClips([files[0], text], 3)


@pytest.mark.parametrize("ending", ["mp4", "mkv", "avi"])
def test_files_that_are_cut_off_are_no_shorter_ones(ending, tmp_path):
    path = write(tmp_path / f"a.{ending}", 20)
    whole = path.read_bytes()
    for share in (0.02, 0.3, 0.5, 0.9, 0.98):
        path.write_bytes(whole[: int(len(whole) * share)])
        with pytest.raises(ValueError, match=rf"a\.{ending}.*(cut off|a video file was expected)"):
            td.VideoClips([path], 1)
        with pytest.raises(ValueError, match=r"the file.*(cut off|a video file was expected)"):
            decode_clip(np.fromfile(path, np.uint8), None, 1, None)


def test_what_can_not_be_read(files, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"no such video file: .*5\.mp4"):
        td.VideoClips([files[0].with_name("5.mp4")], 2)
    with pytest.raises(ValueError, match="a clip spans 100 frames, and the longest of 4 files has 40"):
        td.VideoClips(files, 100)
    with pytest.raises(ValueError, match="labels must be one for each file, got 2 for 4 files"):
        td.VideoClips(files, 2, labels=[1, 2])
    with pytest.raises(TypeError, match=r"files must be a list of video files, got 'a\.mp4'"):
        td.VideoClips("a.mp4", 2)
    with pytest.raises(ValueError, match=r"files must be local video files, got 's3://b/a\.mp4'"):
        td.VideoClips(["s3://b/a.mp4"], 2)
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(ImportError, match=r"video files are read by PyAV: pip install torchdali\[video\]"):
        td.VideoClips(files, 2)


# Files of videos, whole or from their beginning


def test_video_files_through_other_datasets(files, tmp_path):
    """FileDataset and TarDataset decode them with the code of VideoClips; transforms move clips."""
    paths = [files[0], files[2], files[1]]
    told = {"video": kinds.Video(frames=4, stride=2)}
    of_files = td.FileDataset({"video": paths}, labels=range(3), kinds=told)
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for i, path in enumerate(paths):
            tar.add(path, f"{i}.mp4")
    of_tar = td.TarDataset(tmp_path / "a.tar", ["mp4"], ["video"], kinds=told)
    whole = [decoded(path)[:7:2] for path in paths]
    for dataset in (of_files, of_tar):
        np.testing.assert_array_equal(dataset[1][0], whole[1])
        (batch,) = td.DataLoader(dataset, 3, device="cpu", uniform=["video"])
        assert batch[0].shape == (3, 4, 3, 48, 64) and batch[0].dtype == torch.uint8
        np.testing.assert_array_equal(batch[0].permute(0, 1, 3, 4, 2), np.stack(whole))
    assert td.TarDataset(tmp_path / "a.tar", ["mp4"]).kinds == {"mp4": kinds.Video(encoded=True)}

    def make(**changes: Any) -> td.DataLoader:
        transform = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip()])
        return td.DataLoader(of_files, **{"batch_size": 2, "shuffle": True, "transform": transform, **changes})

    assert_resumes_exactly(lambda **changes: make(device="cpu", **changes))
    alike = [lambda engine=engine: make(device="cpu", engine=engine) for engine in ("eager", "pipeline", "debug")]
    assert_same_stream(*alike)


def test_what_is_wrong_with_video_files(files, tmp_path):
    short = td.FileDataset({"video": files}, kinds={"video": kinds.Video(frames=5)})
    with pytest.raises(td.BadSampleError, match=r"3\.mp4\): a clip of 5 frames with stride=1 .* the file has 3 frames"):
        list(td.DataLoader(short, 4, device="cpu"))
    with pytest.raises(ValueError, match="its frames are 48 x 64, and max_pixels=1000"):
        list(td.DataLoader(short, 4, device="cpu", max_pixels=1000))
    text = tmp_path / "text.mp4"
    text.write_text("no video")
    with pytest.raises(td.BadSampleError, match="a video file was expected"):
        list(td.DataLoader(td.FileDataset({"video": [files[0], text]}), 1, device="cpu"))
    several = td.FileDataset({"video": files})
    with pytest.raises(td.FieldTypeError, match=r"must be 25 frames, as in sample 0, got 9 in sample 1: write Uniform"):
        list(td.DataLoader(several, 4, device="cpu"))
    for wrong in ({"frames": 0}, {"stride": 0}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be at least 1, got 0"):
            kinds.Video(**wrong)


def look(sample, rand):
    return sample


@pytest.mark.parametrize("engine", ["eager", "pipeline", "debug"])
def test_frames_are_chosen_as_by_torchvision(files, engine):
    """Of whole files that differ in length, beside other transforms, and before functions."""
    dataset = td.FileDataset({"video": files}, labels=range(4))
    flip = T.RandomHorizontalFlip(1.0)
    six = T.UniformTemporalSubsample(6)
    for steps in ([six], [six, flip], [flip, six, look]):
        ((videos, _),) = td.DataLoader(
            dataset, 4, device="cpu", engine=engine if look not in steps else "auto", transform=T.Compose(steps)
        )
        assert (videos.data if isinstance(videos, td.Padded) else videos).shape == (4, 6, 3, 48, 64)
        for clip, path in zip(videos.data, files, strict=True):
            whole = torch.from_numpy(decoded(path)).permute(0, 3, 1, 2)
            expected = v2.functional.uniform_temporal_subsample(whole, 6)
            assert torch.equal(clip, expected if flip not in steps else expected.flip(-1))
    for numbers in ((1, 1), (5, 2), (16, 300), (7, 30), (64, 63)):
        expected = v2.functional.uniform_temporal_subsample(torch.arange(numbers[1])[:, None, None, None], numbers[0])
        np.testing.assert_array_equal(T.UniformTemporalSubsample(numbers[0]).chosen(numbers[1]), expected.flatten())


def test_where_frames_can_not_be_chosen(files):
    step = T.UniformTemporalSubsample(2)
    dataset = td.FileDataset({"video": files})
    for transform in (T.Compose([look, step]), T.Views([[step], [step]])):
        with pytest.raises(ValueError, match=r"UniformTemporalSubsample\(num_samples=2\) must come before functions"):
            td.DataLoader(dataset, 4, device="cpu", transform=transform)
    with pytest.raises(ValueError, match="UniformTemporalSubsample acts on video, and the dataset has none"):
        td.DataLoader(td.InMemoryDataset(image=np.zeros((4, 8, 8, 3), np.uint8)), 4, transform=step, device="cpu")
    with pytest.raises(TypeError, match="acts on more: put it outside"):
        T.RandomApply([step])
    with pytest.raises(ValueError, match="num_samples must be a positive integer, got 0"):
        T.UniformTemporalSubsample(0)
