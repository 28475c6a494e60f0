"""DALI's readers of sequences of video frames."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from .. import _dali, kinds
from ..checks import integer, nearest_path
from ..errors import first_line
from ..fingerprint import files_digest
from ..formats.video import Entry, check_whole, read_list
from .base import Output
from .checks import check_files, check_labels, warn_dropped
from .known import KnownReader
from .on_gpu import OnGPU

FARTHEST = 2**30  # frames; DALI counts in 32 bits


class Sequences(KnownReader):
    """Base of video readers: `filenames` (and `labels`), `file_list` or `file_root`, and a `sequence_length`.

    Fields: video (uint8 [F, H, W, C], of the kind `Video`, so that transforms move it and batches are [N, F, C, H, W];
    F is `sequence_length`); label (int32) unless only `filenames` are given; frame
    with `enable_frame_num`: for "scalar", the number of the first frame (int32), for "sequence", of each (int32 [F]);
    timestamps with `enable_timestamps` (float64 [F], seconds).  A sequence begins every `step` frames (by default where
    the one before ends) and takes every `stride`-th frame; frames after the last whole sequence are left out.

    Checked when it is made: numbers are not so large that DALI counts for ever; files exist, are not empty, and are
    whole, as far as Matroska, WebM, AVI, MP4 and MOV show it; labels fit int32; lines of `file_list` are
    "path label [start [end]]".  Relative paths start at the working directory.  Files of `file_root` that don't lie
    directly in a class's folder are left out; a warning counts them.
    """

    def describe(self, fields: Sequence[str]) -> list[Output]:
        options = self.options
        outputs = [Output("video", kinds.Video(layout="FHWC"))]
        if options.get("file_root") or options.get("file_list") or "labels" in options:
            outputs.append(Output("label", "number", _number))
        frames = options.get("enable_frame_num", False)
        if frames not in (False, "none"):
            sequence = frames == "sequence"
            outputs.append(Output("frame", "array") if sequence else Output("frame", "number", _number))
        if options.get("enable_timestamps", False):
            outputs.append(Output("timestamps", "array"))
        return outputs

    def check(self) -> None:
        options = self.options
        if isinstance(options.get("filenames"), str):
            options["filenames"] = [options["filenames"]]
        if sum(bool(options.get(name)) for name in ("filenames", "file_list", "file_root")) != 1:
            raise ValueError(f"{self.name} needs one of filenames=, file_list= and file_root=")
        if "sequence_length" not in options:
            raise ValueError(f"{self.name} needs sequence_length=, the number of frames of a sample")
        length = integer("sequence_length", options["sequence_length"], 1, FARTHEST)
        stride = integer("stride", options.get("stride", 1), 1, FARTHEST)
        if length * stride > FARTHEST:
            raise ValueError(f"sequence_length * stride must be at most {FARTHEST}, got {length * stride}")
        if integer("step", options.get("step", -1), -1, FARTHEST) == 0:
            raise ValueError("step must be at least 1, or -1 for sequence_length, got 0")
        entries = list(self._entries())
        check_files(self.name, (entry.path for entry in entries))
        check_labels(self.name, (entry.label for entry in entries), "of video")
        if not options.get("filenames"):
            of_each = [(entry.label, entry.part) for entry in entries]
            files = files_digest([entry.path for entry in entries], of_each)
            self.contents = {"file_list" if options.get("file_list") else "file_root": files}
        for path in {entry.path: None for entry in entries}:
            with open(path, "rb", buffering=64) as file:
                check_whole(path, file, os.path.getsize(path))
        self.check_entries(entries)

    def check_entries(self, entries: Sequence[Entry]) -> None:
        """Warn of videos that DALI leaves out."""

    def _entries(self) -> Iterator[Entry]:
        options = self.options
        if options.get("filenames"):
            files, labels = options["filenames"], options.get("labels") or [0] * len(options["filenames"])
            if len(labels) != len(files):
                raise ValueError(
                    f"{self.name}: labels must be one for each file, got {len(labels)} for {len(files)} files"
                )
            yield from (Entry(path, path, label) for path, label in zip(files, labels, strict=True))
        elif options.get("file_list"):
            yield from read_list(options["file_list"])
        else:
            yield from self._in_folders(options["file_root"])

    def _in_folders(self, root: str) -> Iterator[Entry]:
        if not os.path.isdir(root):
            raise FileNotFoundError(
                f"{self.name}: file_root must be a folder that exists, got {root}{nearest_path(root)}"
            )
        left_out = [entry.path for entry in os.scandir(root) if not entry.is_dir()]
        for label, folder in enumerate(sorted(entry.path for entry in os.scandir(root) if entry.is_dir())):
            for path, _, names in os.walk(folder):
                if path != folder:
                    left_out += [os.path.join(path, name) for name in names]
                    continue
                yield from (Entry(file, file, label) for name in sorted(names) if (file := os.path.join(path, name)))
        if left_out:
            warn_dropped(
                self.name,
                f"{len(left_out)} files are left out, since they don't lie at root/class/file; "
                f"the first is {min(left_out)}",
            )


class ExperimentalVideo(Sequences):
    """DALI's experimental video reader, which decodes VP8, VP9 and MJPEG on the CPU, for loaders on a GPU too.

    Fields and options are those of `Sequences`.  `pad_mode` fills up a last sequence, or a short video ("constant",
    "edge", "reflect_1001", "reflect_101"; for "constant", added frames have the number and timestamp -1);
    `uniform_sample` takes one sequence of each video.  `file_list` has seconds, or frames with
    `file_list_format="frames"`.

    DALI leaves out videos that it can't read on the CPU (H.264, HEVC, MPEG-4, AV1), that are too short, or whose part
    is empty or lies after the end.  A warning names them; where no video is left, it is an error.
    """

    ndd_name = "experimental.Video"

    def check_entries(self, entries: Sequence[Entry]) -> None:
        if self.options.get("labels") == []:
            raise ValueError(f"{self.name}: labels must be one for each file, got none")
        accepted = self._count(entries)
        if accepted == len(entries):
            return
        # One reader per video costs a third of a millisecond, most of it for opening the file.
        dropped = [entry.where for entry in entries if not self._count([entry])]
        text = (
            f"{len(dropped)} of {len(entries)} videos are left out, since they are not VP8, VP9 or MJPEG, damaged, or "
            f"shorter than a sequence: {', '.join(dropped[:20])}{', ...' if len(dropped) > 20 else ''}"
        )
        if not accepted:
            raise ValueError(f"{self.name}: {text}")
        warn_dropped(self.name, text)

    def _count(self, entries: Sequence[Entry]) -> int:
        """Count the videos that DALI takes.

        Raises:
            ValueError: DALI refuses the options.
        """
        hidden = ("filenames", "file_list", "file_root", "labels")
        options = {name: value for name, value in self.options.items() if name not in hidden}
        options["step"] = FARTHEST  # one sequence each
        with tempfile.NamedTemporaryFile("w", errors="surrogateescape", suffix=".txt") as file:
            if entries[0].line:
                file.write("".join(f"{entry.line}\n" for entry in entries))
                file.flush()
                options["file_list"] = file.name
            else:
                options["filenames"] = [entry.path for entry in entries]
            try:
                with _dali.Session(1, torch.device("cpu")):
                    reader = self._class(max_batch_size=1, device="cpu", **options)
                    return int(reader.get_metadata()["epoch_size"])
            except RuntimeError as error:
                if any(text in str(error) for text in ("The number of input samples: 0", "No files were read")):
                    return 0
                raise ValueError(f"{self.name}: {first_line(error)}") from error


class Video(OnGPU, Sequences):
    """DALI's video reader, which decodes H.264, HEVC, VP8, VP9, AV1 and MJPEG on an NVIDIA GPU: write device="cuda".

    Fields and options are those of `Sequences`, but the fields are on the GPU.  `dtype=FLOAT`, `normalized` and
    `image_type` act on the frames; `pad_sequences` keeps the last, incomplete sequence of a video.  `labels=[]` numbers
    the files.
    """

    ndd_name = "Video"


class VideoResize(OnGPU, Sequences):
    """A `Video` that also resizes the frames, by the options of DALI's resize: `size`, `resize_shorter`, `mode`, ..."""

    ndd_name = "VideoResize"


def _number(value: Any) -> Any:
    """Take the number from an array of one."""
    return value.reshape(-1)[0]
