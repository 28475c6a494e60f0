"""Say in words what a checkpoint's loader states mean.

STATE is a .json file, or one that torch.save wrote.  The state of a loader may
be at its top or anywhere inside: each one is found and its place is printed,
such as ["loader"].  With --data, each state's dataset is compared with a
folder of images, a list of files, tars or records; or a recipe's config
(configs/NAME/some.yaml) says whether its loader goes on with the state.  Exit
code 1: it is another one, or this torchdali does not read the state.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..checks import nearest_path
from ..errors import StateMismatchError, first_line, let_through
from ..state import OLDER, VERSION, unpack
from .command import UsageError, add_index_dir, wrong_input
from .recipe import add_recipe, check_arguments, is_config
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
    add_recipe(parser)
    add_index_dir(parser)
    parser.add_argument("--trust", action="store_true", help="load pickled objects, which can run any code")


def passes_on(arguments: argparse.Namespace) -> bool:
    """Whether options that are not the command's own belong to a recipe."""
    return any(map(is_config, arguments.data or ()))


def run(arguments: argparse.Namespace) -> int:
    """Describe all states in a file; 1: one does not fit the data, or is not read by this version."""
    content = load(arguments.state, arguments.trust)
    states = list(find_states(content))
    if not states:
        raise UsageError(
            f"{arguments.state} holds no state of a loader: a dict with {', '.join(sorted(_MARKS))} was expected in "
            "it, as DataLoader.state_dict() gives it"
        )
    check_arguments(arguments, arguments.data or ["no --data"], ["index_dir", "ext", "exclude"])
    compared = None
    if arguments.data is not None:
        from .compare import make_compare

        compared = make_compare(arguments)
    results = []
    for place, state in states:
        result: dict[str, Any] = {"place": place, "state": _plain(state), "words": words(state)}
        result["problems"] = problems(state)
        if compared is not None:
            result["data"] = compared(state)
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
    import torch

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
            f"{path} is no checkpoint: a .json file, or one of torch.save was expected "
            f"({re.split(r'(?<=[.:]) ', first_line(error))[0][:150]})"
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


def _source_keys() -> tuple[str, ...]:
    """Give the entries of a state that belong to the source."""
    from ..python.iterable import IterableSource

    return IterableSource.state_keys


def problems(state: Mapping[str, Any], strict: bool = True) -> list[str]:
    """Say why this torchdali would refuse a state from any loader; an empty list: it reads it.

    Args:
        state: the state.
        strict: as in `DataLoader.load_state_dict`.
    """
    version = state["version"]
    if type(version) is not int or version not in (VERSION, *OLDER):
        return [f"version: this torchdali reads {VERSION}, got {version!r:.40}"]
    own = {key: value for key, value in state.items() if key not in _source_keys()}
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
    lines += [f"with the state of the {key} that the loader reads" for key in _source_keys() if key in state]
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
