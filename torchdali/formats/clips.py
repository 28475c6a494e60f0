"""Frames of video files by their numbers: an index of packets, and exact frames, by PyAV."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..storage import Bytes, open_storage
from .cache import Index, cached_index
from .video import check_whole

VERSION = "clips2"


class VideoIndex(NamedTuple):
    """The frames of a video file.

    Attributes:
        times: int64 [F], their presentation times, rising: a frame's number is its place here.
        keys: int64 [k], the times of those at which decoding can begin, rising.
        size: height and width.
    """

    times: NDArray[np.int64]
    keys: NDArray[np.int64]
    size: tuple[int, int]


def load_av() -> Any:
    """Import PyAV.

    Raises:
        ImportError: it is not installed.
    """
    try:
        import av
    except ImportError as error:
        raise ImportError("video files are read by PyAV: pip install torchdali[video]") from error
    return av


def index_video(path: str, index_dir: str | Path | None = None) -> VideoIndex:
    """Give a video file's index, from the cache or by reading its packets; nothing is decoded.

    Raises:
        ImportError: no PyAV.
        ValueError: it is no video file, or is cut off.
    """
    return _of(cached_index(open_storage(path), VERSION, lambda: _read_packets(path), index_dir))


def _of(index: Index) -> VideoIndex:
    height, width = index["size"].tolist()
    return VideoIndex(index["times"], index["keys"], (height, width))


def _read_packets(path: str, file: io.BytesIO | None = None) -> Index:
    """Read the packets of a file.

    Args:
        path: the file's, for messages.
        file: its contents, where they were read already.
    """
    av = load_av()
    if file is None:
        with open(path, "rb", buffering=64) as opened:
            check_whole(path, opened, os.path.getsize(path))
    else:
        check_whole(path, file, file.getbuffer().nbytes)
        file.seek(0)
    try:
        with av.open(path if file is None else file) as container:
            if not container.streams.video:
                raise ValueError(f"{path}: a video file was expected, and it has no video in it")
            stream = container.streams.video[0]
            if not getattr(stream, "height", 0) or not stream.width:  # without a decoder it has neither
                raise ValueError(f"{path}: a video file was expected, and its video has no size")
            packets = [
                (packet.pts, packet.is_keyframe)
                for packet in container.demux(stream)
                if packet.size and not packet.is_discard  # a container's edit list leaves these out
            ]
            size = stream.height, stream.width
    except av.error.FFmpegError as error:
        if file is None and isinstance(error, OSError) and not os.path.exists(path):
            raise
        raise ValueError(f"{path}: a video file was expected: {error}") from error
    if any(time is None for time, _ in packets):
        raise ValueError(
            f"{path}: frames have no presentation times: write it anew, as by "
            "ffmpeg -fflags +genpts -i FILE -c copy OTHER.mp4"
        )
    if not packets:
        raise ValueError(f"{path}: a video file was expected, and it has no frames: is it cut off?")
    times = np.array([time for time, _ in packets], np.int64)
    keys = np.array([time for time, key in packets if key], np.int64)
    return {"times": np.sort(times), "keys": np.sort(keys), "size": np.array(size, np.int64)}


def decode_clip(data: Bytes, frames: int | None, stride: int, max_pixels: int | None) -> NDArray[np.uint8]:
    """Decode frames of a video file in memory, from the first one on: uint8 [F, H, W, 3], RGB, as `read_frames` does.

    Args:
        data: the file, uint8 [n].
        frames: how many; None: as many as there are.
        stride: every stride-th frame.
        max_pixels: the largest number of pixels of a frame that the file may promise; None: any number.

    Raises:
        ValueError: it is no video file, is damaged, promises too many pixels, or has fewer frames.
        ImportError: no PyAV.
    """
    file = io.BytesIO(data.tobytes())
    index = _of(_read_packets("the file", file))
    there = len(index.times)
    if max_pixels is not None and index.size[0] * index.size[1] > max_pixels:
        raise ValueError(f"its frames are {index.size[0]} x {index.size[1]}, and max_pixels={max_pixels}")
    numbers = np.arange(0, there, stride) if frames is None else np.arange(frames) * stride
    if not there or numbers[-1] >= there:
        raise ValueError(
            f"a clip of {frames or 1} frames with stride={stride} was expected, and the file has {there} frames: write "
            "fewer frames or a smaller stride"
        )
    file.seek(0)
    return read_frames(file, index, numbers)


def read_frames(path: str | io.BytesIO, index: VideoIndex, numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Decode frames: uint8 [F, H, W, 3], RGB.

    It seeks to the key frame before the first one, and again where a key frame lies between two of them.

    Args:
        path: the file, or its contents.
        index: the file's.
        numbers: rising, without repetitions.

    Raises:
        ValueError: the file is damaged, or another than was indexed.
        ImportError: no PyAV.
    """
    av = load_av()
    wanted = index.times[numbers].tolist()
    # Decoding begins before a frame's time: at the last key frame that comes no later, or at the beginning.
    places = np.searchsorted(index.keys, wanted, side="right") - 1
    begins = [int(index.keys[place]) if place >= 0 else int(index.times[0]) for place in places]
    frames: list[NDArray[np.uint8]] = []
    try:
        with av.open(path) as container:
            stream = container.streams.video[0]
            stream.thread_type = "NONE"  # several samples are read at a time
            while len(frames) < len(wanted):
                done = len(frames)
                container.seek(begins[done], stream=stream, backward=True)
                _take_frames(container, stream, wanted, frames, begins)
                if len(frames) == done:
                    break  # MPEG-TS, say, has no index of its key frames
        if len(frames) < len(wanted):
            if not isinstance(path, str):
                path.seek(0)
            with av.open(path) as container:
                stream = container.streams.video[0]
                stream.thread_type = "NONE"
                _take_frames(container, stream, wanted, frames)
    except av.error.FFmpegError as error:
        raise ValueError(f"the file is damaged: {error}") from error
    if len(frames) < len(wanted):
        number = int(numbers[len(frames)])
        raise ValueError(f"frame {number} was not found: the file is damaged, or another than was indexed")
    return np.stack(frames)


def _take_frames(
    container: Any, stream: Any, wanted: list[int], frames: list[NDArray[np.uint8]], begins: list[int] | None = None
) -> None:
    """Decode from where a container stands, and append the next frames that are wanted, in their order.

    Args:
        container, stream: the file, and its video.
        wanted: the frames' times.
        frames: those that were found so far.
        begins: where the decoding of each begins, which ends where the next one's begins later; None: it goes on.
    """
    for frame in container.decode(stream):
        k = len(frames)
        if frame.pts is None or frame.pts < wanted[k]:
            continue
        if frame.pts != wanted[k]:
            return
        frames.append(frame.to_ndarray(format="rgb24"))
        if len(frames) == len(wanted) or (begins is not None and begins[k + 1] > frame.pts):
            return
