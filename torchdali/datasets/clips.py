"""A dataset of clips: frames of video files, by index."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..batch import Columns, take
from ..checks import flag, integer, nearest_path
from ..columns import as_column, same_shape
from ..fingerprint import digest, files_digest
from ..formats.clips import index_video, load_av, read_frames
from ..kinds import AnyKind, Number, Video, as_kind
from ..rand import Rand
from ..storage import THREADS, is_remote
from ..threads import map_in_threads
from .base import MapDataset


class VideoClips(MapDataset):
    """Clips of video files: a sample is `(video, label)`, or `(video,)` without labels.

    The video is uint8 [F, H, W, C], RGB, and leaves a loader as [N, F, C, H, W]; transforms move all frames of a clip
    alike.  Frames are exact, whatever the codec: they are numbered by their presentation times, and decoded from the
    key frame before them, by PyAV (the extra `video`).  A display rotation in a file's header is not applied.

    When it is made, it reads the packets of each file, without decoding them; that index is kept in a cache.

    Args:
        files: local video files.
        frames: the number of frames per clip.
        stride: from one frame of a clip to the next.
        step: from the beginning of one clip to that of the next; None: clips follow each other without overlap.
        labels: one for each file.
        fields: some of video, label, start (the number of the clip's first frame), index, path and valid.
        random_start: a clip begins anywhere before the next one's beginning, at another place in each epoch; the last
            one of a file anywhere up to the file's end.  With a `step` as long as the longest file, that is one clip
            of each file, from anywhere in it.
        index_dir: the cache's folder.
        kinds: the kinds of fields that differ from these.

    Attributes:
        counts: int64 [files], the number of clips of each; a file that is shorter than a clip has none.

    Raises:
        ImportError: no PyAV.
        FileNotFoundError: a file is missing.
        ValueError: an invalid argument, a file that is no video, or no file that is long enough.
    """

    blocking = True

    def __init__(
        self,
        files: Sequence[str | Path],
        frames: int,
        stride: int = 1,
        step: int | None = None,
        labels: Sequence[Any] | None = None,
        fields: Sequence[str] | None = None,
        *,
        random_start: bool = False,
        index_dir: str | Path | None = None,
        kinds: Mapping[str, AnyKind] | None = None,
    ) -> None:
        load_av()
        self.frames, self.stride = integer("frames", frames, 1), integer("stride", stride, 1)
        self._span = (self.frames - 1) * self.stride + 1
        self.step = self._span if step is None else integer("step", step, 1)
        self.random_start = flag("random_start", random_start)
        self.files = _files(files)
        if labels is not None and len(labels) != len(self.files):
            raise ValueError(f"labels must be one for each file, got {len(labels)} for {len(self.files)} files")
        self._indexes = map_in_threads(
            lambda path: index_video(path, index_dir), self.files, THREADS, "torchdali-index"
        )
        lengths = np.array([len(index.times) for index in self._indexes], np.int64)
        self.counts = np.where(lengths < self._span, 0, (lengths - self._span) // self.step + 1)
        if not self.counts.any():
            raise ValueError(
                f"a clip spans {self._span} frames, and the longest of {len(self.files)} files has {lengths.max()}: "
                "write fewer frames or a smaller stride"
            )
        self._ends = np.cumsum(self.counts)
        self._last = lengths - self._span  # the last place where a clip can begin
        places = np.repeat(np.arange(len(self.files)), self.counts)
        self.paths = [self.files[place] for place in places]
        known: dict[str, AnyKind] = {"video": Video(), "start": Number()}
        self._labels: Columns = {}
        if labels is not None:
            self._labels["label"], known["label"] = as_column("labels", labels)
        used = {index.size for index, count in zip(self._indexes, self.counts, strict=True) if count}
        self._uniform = {"video": len(used) == 1, "start": True}
        if labels is not None:
            self._uniform["label"] = same_shape(self._labels["label"], as_kind(known["label"]).held)
        self._set_fields(
            [name for name in ("video", "label") if name in known] if fields is None else fields, known, kinds
        )
        self._seed = 0
        told = [self.frames, self.stride, self.step, *([True] if self.random_start else [])]
        names = files_digest(self.files, self._labels.get("label"))
        self._fingerprint = f"{len(self)} clips {digest(names, *told, lengths)}"

    def __len__(self) -> int:
        return int(self._ends[-1])

    def set_epoch(self, epoch: int) -> None:
        """Draw the places of clips anew; loaders call it, after they have seeded torch's generator for their pass."""
        self._seed = int(torch.randint(2**62, ())) if self.random_start else 0

    def read_columns(self, indices: Sequence[int], names: Sequence[str]) -> Columns:
        rows = np.array(indices, np.int64)
        places = np.searchsorted(self._ends, rows, side="right")
        clips = rows - (self._ends - self.counts)[places]
        starts = clips * self.step
        if self.random_start:
            ends = np.where(clips == self.counts[places] - 1, self._last[places], starts + self.step - 1)
            starts = Rand(self._seed, 0, rows.astype(np.uint64)).integers(starts, ends + 1)
        columns: Columns = {}
        if "video" in names:
            numbers = np.arange(self.frames) * self.stride
            columns["video"] = [
                read_frames(self.files[place], self._indexes[place], start + numbers)
                for place, start in zip(places.tolist(), starts.tolist(), strict=True)
            ]
        if "start" in names:
            columns["start"] = starts
        if "label" in names:
            columns |= take(self._labels, places.tolist())
        return columns

    def uniform(self, name: str) -> bool | None:
        return self._uniform.get(name, True)

    def fingerprint(self) -> str:
        """Hash the files' names below their common folder, their lengths, the labels and the clips' places."""
        return self._fingerprint


def _files(files: Sequence[str | Path]) -> list[str]:
    """Give the paths of the files.

    Raises:
        ValueError: none, or one that is not local.
        TypeError: one path instead of a list.
        FileNotFoundError: one is missing.
    """
    if isinstance(files, (str, Path)):
        raise TypeError(f"files must be a list of video files, got {files!r}")
    paths = [os.fspath(path) for path in files]
    if not paths:
        raise ValueError("files must name at least one video file, got none")
    for path in paths:
        if is_remote(path):
            raise ValueError(f"files must be local video files, got {path!r}: copy them to a disk")
        if not os.path.exists(path):
            raise FileNotFoundError(f"no such video file: {path}{nearest_path(path)}")
    return paths
