"""Compares the state of a loader with data, or with the loader of a recipe's config."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..datasets import FileDataset, ImageFolder, MapDataset, RecordIODataset, TarDataset
from ..datasets.records import RecordDataset
from ..errors import StateMismatchError
from ..formats.parts import IMAGES, ending
from ..formats.records import RecordFiles
from ..formats.texts import Texts
from ..formats.tfrecord import TFRECORD
from ..formats.webdataset import tar_index
from ..loader import DataLoader
from ..storage import open_storage
from .collection import kind_of, named, read_list
from .command import UsageError, wrong_input
from .recipe import is_config, loader_of_arguments


def compare(state: Mapping[str, Any], candidates: list[tuple[str, MapDataset]]) -> dict[str, Any]:
    """Compare a state with datasets that the same data may be: which one fits, else the differences to the first."""
    expected, total = state.get("dataset"), state.get("num_samples")
    of_all = state.get("order") in ("shuffle", "sequential")  # other orders choose how many samples they draw
    for name, dataset in candidates:
        if dataset.fingerprint() == expected and (not of_all or len(dataset) == total):
            return {"fits": True, "as": name, "differences": []}
    name, dataset = candidates[0]
    same_number = [one for one in candidates if len(one[1]) == total]
    if same_number:
        name, dataset = same_number[0]
    differences = []
    if of_all and len(dataset) != total:
        differences.append(f"num_samples: the state has {total}, the data {len(dataset)}")
    differences.append(f"dataset: the state has {expected!r}, the data {dataset.fingerprint()!r} as {name}")
    if len(dataset) == total:
        differences.append(
            "as many samples, but with other names, labels or parts, in another order or another dataset"
        )
    return {"fits": False, "as": name, "differences": differences}


def make_compare(arguments: argparse.Namespace) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Make the function that compares a state with the data of the command line."""
    if not any(map(is_config, arguments.data)):
        candidates = list(_candidates(arguments))
        return lambda state: compare(state, candidates)
    if len(arguments.data) > 1:
        raise UsageError(f"--data must be one config, or data, got {', '.join(arguments.data)}")
    (config,) = arguments.data
    loader = loader_of_arguments(arguments, config)
    return lambda state: _loaded(loader, state)


def _loaded(loader: DataLoader, state: Mapping[str, Any]) -> dict[str, Any]:
    """Ask a loader whether it goes on with a state."""
    differences = []
    try:
        loader.load_state_dict(dict(state))
    except (StateMismatchError, ValueError, TypeError) as error:
        differences = [line.strip() for line in str(error).splitlines() if line.strip()]
        differences = differences[1:] or differences  # the first line is a title
    return {"fits": not differences, "as": type(loader.source).__name__, "differences": differences}


def _candidates(arguments: argparse.Namespace) -> Iterator[tuple[str, MapDataset]]:
    """Make the datasets that a training may have made of the data, each with its name."""
    found = named(arguments.data)
    kinds = {kind for _, kind in found}
    paths = [path for path, _ in found]
    if kinds == {"folder"} and len(found) == 1:
        root = paths[0]
        names = [os.path.join(root, name) for name in sorted(os.listdir(root))]
        tars = [name for name in names if kind_of(name) in ("tar", "tfrecord", "recordio")]
        if tars and len({kind_of(name) for name in tars}) == 1:
            paths, kinds = tars, {kind_of(tars[0])}
    exclude = arguments.exclude
    if exclude is not None:
        exclude = os.path.expanduser(exclude)
        if kinds & {"tfrecord", "recordio"}:
            raise UsageError("--exclude is for image files and tars, got records")
    with wrong_input("--data"):
        if kinds == {"folder"} and len(paths) == 1:
            images = [name for name in names if os.path.isfile(name) and ending(name) in IMAGES]
            if images:
                yield "FileDataset", FileDataset(images, exclude=exclude)
            if not images or any(os.path.isdir(name) for name in names):
                yield "ImageFolder", ImageFolder(paths[0], exclude=exclude)
        elif kinds == {"list"} and len(paths) == 1:
            files, labels = read_list(paths[0])
            if labels is not None:
                yield "FileDataset with labels", FileDataset(files, labels, exclude=exclude)
            yield "FileDataset", FileDataset(files, exclude=exclude)
        elif kinds == {"image"}:
            yield "FileDataset", FileDataset(paths, exclude=exclude)
        elif kinds == {"tar"}:
            yield from _of_tars(paths, arguments, exclude)
        elif kinds == {"recordio"}:
            yield "RecordIODataset", RecordIODataset(paths, index_dir=arguments.index_dir)
        elif kinds == {"tfrecord"}:
            records = RecordDataset()  # its fingerprint does not depend on its features
            records.records = RecordFiles(TFRECORD, paths, index_dir=arguments.index_dir)
            yield "TFRecordDataset", records
        else:
            raise UsageError(f"--data must be one folder or list, or files of one kind, got {', '.join(paths)}")


def _of_tars(paths: list[str], arguments: argparse.Namespace, exclude: str | None) -> Iterator[tuple[str, MapDataset]]:
    """Make the datasets of tars with the parts that are likely: images, and one of the others, or all."""
    if arguments.ext is not None:
        choices = [arguments.ext.split(",")]
    else:
        index = tar_index(open_storage(paths[0]), arguments.index_dir)
        texts = Texts(index["endings"], index["ending_ends"])
        endings = sorted(texts[number] for number in range(len(texts)))
        images = [one for one in endings if ending(one) in IMAGES]
        others = [one for one in endings if one not in images]
        firsts = list(dict.fromkeys(one for one in (";".join(images), *images) if one))
        choices = [[first, *more] for first in firsts for more in ([], *([other] for other in others), others)]
        choices = choices or [others]
    tried = set()
    for ext in choices:
        if tuple(ext) not in tried:
            tried.add(tuple(ext))
            dataset = TarDataset(paths, ext, missing="skip", index_dir=arguments.index_dir, exclude=exclude)
            yield f"TarDataset with ext={ext}", dataset
