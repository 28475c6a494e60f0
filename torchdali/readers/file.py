"""DALI's reader of files, by folder or list."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Sequence

from ..checks import nearest_path
from ..fingerprint import files_digest
from ..formats.files import check_no_mark
from ..readers import native
from .base import Output
from .checks import check_files, check_labels, warn_dropped
from .known import KnownReader


class File(KnownReader):
    """DALI's file reader: `file_root` with a folder for each class, or `files` and `labels`, or `file_list`.

    Fields: image (a file as it is; `kinds={"image": "array"}` for files that are not images) and label (int32).

    Checked when it is made: every file exists and is not empty; labels fit int32; lines of `file_list` are
    "path label".  A warning counts the files that are left out, by the filters or because they do not lie directly in a
    class's folder; and the folders without a file, which still use up a label.
    """

    ndd_name = "File"
    full_shuffle = True
    twin = "torchdali.FileDataset or torchdali.ImageFolder"

    def describe(self, fields: Sequence[str]) -> list[Output]:
        return [Output("image", "encoded"), Output("label", "number")]

    def check(self) -> None:
        options = self.options
        root = options.get("file_root", "")
        if "files" in options:
            files, labels = options["files"], options.get("labels")
            if labels is not None and len(labels) != len(files):
                raise ValueError(f"File: labels must be one for each file, got {len(labels)} for {len(files)} files")
            check_labels(self.name, labels or (), "of file")
            self.total_bytes = check_files(self.name, (os.path.join(root, path) for path in files))
        elif "file_list" in options:
            self._check_list(options["file_list"], root)
        elif root:
            self._check_root(root)
        else:
            raise ValueError("File needs file_root=, files= or file_list=")

    def _check_list(self, path: str, root: str) -> None:
        files, labels = [], []
        check_no_mark(path)
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                name, _, label = line.strip().rpartition(" ")
                try:
                    labels.append(int(label))
                except ValueError:
                    raise ValueError(
                        f'{path}, line {number}: expected "path label" with an integer, got {line.strip()!r:.200}'
                    ) from None
                if not name.strip():
                    raise ValueError(f'{path}, line {number}: expected "path label", got {line.strip()!r:.200}')
                files.append(os.path.join(root or os.path.dirname(path), name.strip()))
        check_labels(self.name, labels, f"of {path}, sample")
        self.total_bytes = check_files(self.name, files)
        self.contents = {"file_list": files_digest(files, labels), "file_root": None}

    def _check_root(self, root: str) -> None:
        if not os.path.isdir(root):
            raise FileNotFoundError(f"File: file_root must be a folder that exists, got {root}{nearest_path(root)}")
        filters = self.options.get("file_filters") or native.reader_default(self._class, "file_filters")
        exact = self.options.get("case_sensitive_filter", False)
        folders = self.options.get("dir_filters") or ["*"]
        taken, labels, left_out, without = [], [], [], []
        names = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
        for label, name in enumerate(name for name in names if _matches(name, folders, exact)):
            folder, found = os.path.join(root, name), 0
            for path, _, files in os.walk(folder):
                for file in sorted(files):
                    if path == folder and _matches(file, filters, exact):
                        taken.append(os.path.join(path, file))
                        labels.append(label)
                        found += 1
                    else:
                        left_out.append(os.path.join(path, file))
            if not found:
                without.append(name)
        if not taken:
            raise ValueError(f"File: no file in the folders of {root} matches {', '.join(filters)}")
        self.total_bytes = check_files(self.name, taken)
        self.contents = {"file_root": files_digest(taken, labels)}
        if left_out:
            warn_dropped(
                self.name,
                f"{len(left_out)} files are left out, since they lie deeper than root/class or match none of "
                f"{', '.join(filters)}; the first is {left_out[0]}",
            )
        if without:
            warn_dropped(self.name, f"{len(without)} folders have no file to read, the first is {without[0]!r}")


def _matches(name: str, patterns: Sequence[str], exact: bool) -> bool:
    if exact:
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    return any(fnmatch.fnmatchcase(name.lower(), pattern.lower()) for pattern in patterns)
