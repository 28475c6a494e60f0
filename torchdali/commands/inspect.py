"""Say in words what a checkpoint's loader states mean.

STATE is a .json file, or one that torch.save wrote.  The state of a loader may
be at its top or anywhere inside: each one is found and its place is printed,
such as ["loader"].  With --data, each state's dataset is compared with a
folder of images, a list of files, tars or records; exit code 1: it is another
one, or this torchdali does not read the state.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from ..checks import nearest_path
from ..datasets import FileDataset, ImageFolder, MapDataset, RecordIODataset, TarDataset
from ..datasets.records import RecordDataset
from ..errors import StateMismatchError, first_line, let_through
from ..formats.parts import IMAGES, ending
from ..formats.records import RecordFiles
from ..formats.texts import Texts
from ..formats.tfrecord import TFRECORD
from ..formats.webdataset import tar_index
from ..python.iterable import IterableSource
from ..state import OLDER, VERSION, unpack
from ..storage import open_storage
from .collection import kind_of, named, read_list
from .command import UsageError, add_index_dir, wrong_input
from .terminal import say, say_json

SUMMARY = "say what a checkpoint's loader state means"
_FINGERPRINT = ("seed", "order", "num_samples", "dataset")
_MARKS = frozenset(["version", "epoch", "samples_seen"])  # the keys by which a state is found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("state", metavar="STATE", help="a checkpoint: .json, or of torch.save")
    parser.add_argument("--data", action="append", metavar="PATH", help="compare with this data (may be repeated)")
    parser.add_argument("--ext", metavar="EXT,...", help="with tars: TarDataset's ext, such as jpg,cls")
    parser.add_argument("--exclude", metavar="REPORT", help="with --data: the dataset's exclude=")
    add_index_dir(parser)
    parser.add_argument("--trust", action="store_true", help="load pickled objects, which can run any code")


def run(arguments: argparse.Namespace) -> int:
    """Describe all states in a file; 1: one does not fit the data, or is not read by this version."""
    content = load(arguments.state, arguments.trust)
    states = list(find_states(content))
    if not states:
        raise UsageError(
            f"{arguments.state} holds no state of a loader: a dict with {', '.join(sorted(_MARKS))} was expected in "
            "it, as DataLoader.state_dict() gives it"
        )
    candidates = [] if arguments.data is None else list(_candidates(arguments))
    results = []
    for place, state in states:
        result: dict[str, Any] = {"place": place, "state": _plain(state), "words": words(state)}
        result["problems"] = problems(state)
        if arguments.data is not None:
            result["data"] = compare(state, candidates)
        results.append(result)
    if arguments.json:
        say_json({"command": "inspect", "file": arguments.state, "states": results})
    else:
        say("\n\n".join(_in_words(arguments, result) for result in results))
    fine = all(not result["problems"] and result.get("data", {"fits": True})["fits"] for result in results)
    return 0 if fine else 1


# The file


def load(path: str, trust: bool = False) -> Any:
    """Load a checkpoint, JSON or torch.save's; tensors come without their values.

    Raises:
        UsageError: it is missing, is neither, or holds pickled objects and is not trusted.
    """
    path = os.path.expanduser(path)
    if not os.path.exists(path):
        raise UsageError(f"{path} does not exist{nearest_path(path)}")
    if os.path.isdir(path):
        inside = [name for name in sorted(os.listdir(path)) if name.endswith((".json", ".pt", ".pth", ".ckpt", ".bin"))]
        example = f": name a file in it, such as {os.path.join(path, inside[0])}" if inside else ""
        raise UsageError(f"a file was expected, got the folder {path}{example}")
    with wrong_input(), open(path, "rb") as file:
        start = file.read(64).lstrip()
    if start[:1] in (b"{", b"[") or path.endswith(".json"):
        with wrong_input(f"{path} is no checkpoint: a .json file, or one of torch.save was expected"):
            return json.loads(Path(path).read_text(encoding="utf-8"))
    try:
        return torch.load(path, map_location="meta", weights_only=not trust)
    except Exception as error:
        let_through(error)
        refused = re.search(r"GLOBAL ([\w.]+\w)", str(error))
        if not trust and refused:
            raise UsageError(
                f"{path} holds Python objects besides tensors and plain values, and loading them can run any code "
                f"({refused[1]}): if you know who wrote it, write --trust"
            ) from None
        raise UsageError(
            f"{path} is no checkpoint: a .json file, or one of torch.save was expected ({first_line(error)[:150]})"
        ) from None


def find_states(content: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Find the loader states in a checkpoint, each with its place in it, such as '["loader"]'; '' is the top."""
    stack: list[tuple[str, Any]] = [("", content)]
    seen: set[int] = set()
    while stack:
        place, value = stack.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Mapping):
            if value.keys() >= _MARKS:
                yield place, value
                continue
            inside: list[tuple[Any, Any]] = list(value.items())
        elif isinstance(value, (list, tuple)):
            inside = list(enumerate(value))
        else:
            continue
        stack += [
            (f"{place}[{json.dumps(key) if isinstance(key, str) else repr(key)}]", one)
            for key, one in reversed(inside)
            if isinstance(one, (Mapping, list, tuple))
        ]


def _plain(state: Mapping[str, Any]) -> dict[str, Any]:
    """Give a state for JSON: what is not plain comes as text."""
    plain: dict[str, Any] = json.loads(json.dumps({str(key): value for key, value in state.items()}, default=repr))
    return plain


# The state


def problems(state: Mapping[str, Any], strict: bool = True) -> list[str]:
    """Say why this torchdali would refuse a state from any loader; an empty list: it reads it.

    Args:
        state: the state.
        strict: as in `DataLoader.load_state_dict`.
    """
    version = state["version"]
    if type(version) is not int or version not in (VERSION, *OLDER):
        return [f"version: this torchdali reads {VERSION}, got {version!r:.40}"]
    own = {key: value for key, value in state.items() if key not in IterableSource.state_keys}
    types = {"seed": int, "order": str, "num_samples": int, "dataset": str}
    wrong = [
        f"{key}: {types[key].__name__} was expected, got {own.get(key, 'nothing')!r:.80}"
        for key in _FINGERPRINT
        if type(own.get(key)) is not types[key]
    ]
    if wrong:
        return wrong
    try:
        unpack(own, {key: own[key] for key in _FINGERPRINT}, strict)
    except StateMismatchError as error:
        return [line.strip() for line in str(error).splitlines()[1:]]
    return []


def words(state: Mapping[str, Any]) -> list[str]:
    """Say where a state stands, a sentence per line; nothing where its values are not a state's."""
    if problems(state, strict=False):
        return []
    epoch, cycle, seen, total = (state[key] for key in ("epoch", "cycle", "samples_seen", "num_samples"))
    again = f", its repetition {cycle}" if cycle else ""
    if total < 0:
        done = f"{seen:,} samples, of a number that is not known"
    else:
        done = f"{seen:,} of {total:,} samples" + (f" ({seen / total:.1%})" if total else "")
    lines = [f"epoch {epoch} (the first is 0){again}: {done} over all ranks"]
    if state["finished"]:
        lines.append(
            f"finished: the loader goes on with the start of epoch {epoch + 1}, or of the one set by set_epoch"
        )
    elif seen:
        lines.append(f"not finished: the loader goes on with sample {seen:,} of the epoch's order")
    else:
        lines.append("not begun: the loader goes on with the epoch's first sample")
    lines.append(f"order {state['order']!r}, seed {state['seed']}")
    lines.append(f"dataset {state['dataset']!r}")
    lines += [f"with the state of the {key} that the loader reads" for key in IterableSource.state_keys if key in state]
    return lines


def _in_words(arguments: argparse.Namespace, result: dict[str, Any]) -> str:
    lines = [f"{arguments.state}, {result['place'] or 'at the top'}:", *(f"  {line}" for line in result["words"])]
    if result["problems"]:
        lines += ["  this torchdali does NOT read it:", *(f"    {problem}" for problem in result["problems"])]
    else:
        lines.append(f"  version {VERSION}: this torchdali reads it")
    if (data := result.get("data")) is not None:
        where = " ".join(arguments.data)
        lines.append(f"  fits {where} as {data['as']}" if data["fits"] else f"  does NOT fit {where}:")
        lines += [f"    {difference}" for difference in data["differences"]]
    return "\n".join(lines)


# The data


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
