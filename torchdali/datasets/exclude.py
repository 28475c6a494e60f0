"""Leaves samples out of a dataset: those that a report of `torchdali check` finds bad, or those that are named."""

from __future__ import annotations

import os
from collections.abc import Sequence
from numbers import Integral
from pathlib import Path

from ..checks import nearest
from ..formats.report import FAULTS, absolute, read_report

Exclude = str | Path | Sequence[str | Path | int]


def kept(paths: Sequence[str], exclude: Exclude) -> list[int]:
    """Give the indices of the samples that stay.

    Args:
        paths: the samples', as the dataset names them.
        exclude: the file of a report, or a list of paths and indices, which must be the dataset's.

    Raises:
        FileNotFoundError: there is no such report.
        IndexError: an index is outside the dataset.
        TypeError: anything but a path or a list of paths and indices.
        ValueError: a file that is no report, or whose samples are all in other datasets; a path that the dataset
            doesn't have; no sample stays.
    """
    if isinstance(exclude, (str, Path)):
        out = _of_report(paths, exclude)
    elif isinstance(exclude, Sequence) or hasattr(exclude, "tolist"):
        out = _of_list(paths, exclude)
    else:
        raise TypeError(f"exclude must be a report's file, or a list of paths and indices, got {exclude!r:.80}")
    rest = [index for index in range(len(paths)) if index not in out]
    if not rest:
        raise ValueError(f"exclude leaves none of {len(paths)} samples")
    return rest


def _of_report(paths: Sequence[str], file: str | Path) -> set[int]:
    entries = read_report(Path(file).expanduser())
    found = [entries.get(absolute(path)) for path in paths]
    if entries and not any(found):
        raise ValueError(
            f"exclude must be a report on this dataset, got {os.fspath(file)}, which has none of its files: it has "
            f"{next(iter(entries))!r}, and the dataset {absolute(paths[0])!r}. Make the report where the files are now"
        )
    return {index for index, entry in enumerate(found) if entry is not None and entry.status in FAULTS}


def _of_list(paths: Sequence[str], exclude: Sequence[str | Path | int]) -> set[int]:
    out: set[int] = set()
    numbers: dict[str, list[int]] = {}
    for one in exclude:
        if isinstance(one, Integral) and not isinstance(one, bool):
            if not -len(paths) <= one < len(paths):
                raise IndexError(f"index {one} in exclude is outside a dataset of {len(paths)} samples")
            out.add(int(one) % len(paths))
            continue
        if not isinstance(one, (str, Path)):
            raise TypeError(f"exclude must hold paths and indices, got {one!r:.80}")
        if not numbers:
            for index, path in enumerate(paths):
                numbers.setdefault(absolute(path), []).append(index)
        path = absolute(os.fspath(one))
        if path not in numbers:
            raise ValueError(f"exclude names {path}, which the dataset doesn't have{nearest(path, numbers)}")
        out.update(numbers[path])
    return out
