"""Measure how fast this machine loads this data, and say where the time goes.

PATH is a recipe's config (configs/NAME/some.yaml), whose loader is measured;
options of the recipe may follow, such as --data.root=photos.  Or it is data,
as for `preview`, and --transform says what is done to it.

Several numbers of threads are tried (of workers, where a config has some),
then larger and smaller batches with the best of them.  The table names what
took most time in each, and the last lines say what to change.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from contextlib import closing
from typing import TYPE_CHECKING, Any

from ..errors import TorchDaliError, first_line
from ..progress import progress_bar
from .command import UsageError, add_index_dir, wrong_input
from .recipe import add_recipe, check_arguments, is_config, loader_of_arguments
from .terminal import note, say, say_json, table

if TYPE_CHECKING:
    from ..loader import DataLoader
    from .measure import Run

SUMMARY = "measure this data, this transform, this machine"
PEERS = ("dali", "torch")
TRANSFORMS = ("eval", "none", "train")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("path", metavar="PATH", help="a config, or data")
    parser.add_argument(
        "--threads", type=_numbers, metavar="N,..", help="threads to try (default: 1, 2, 4 to all cores)"
    )
    parser.add_argument(
        "--batch-size", type=_numbers, metavar="N,..", help="batch sizes to try, the first with threads"
    )
    parser.add_argument("--seconds", type=_seconds, default=2.0, metavar="S", help="for each of them (default: 2)")
    parser.add_argument("--peer", choices=PEERS, help="compare with torch's DataLoader or DALI's pipeline mode")
    parser.add_argument("--transform", choices=TRANSFORMS, help="of data: ImageNet's, or none (default: train)")
    parser.add_argument("--size", type=_size, metavar="N", help="of data: of the transform's images (default: 224)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="of the batches (default: cpu)")
    add_recipe(parser)
    add_index_dir(parser)


def passes_on(arguments: argparse.Namespace) -> bool:
    """Whether options that are not the command's own belong to a recipe."""
    return is_config(arguments.path)


def run(arguments: argparse.Namespace) -> int:
    """Measure; 1: a sample is bad."""
    loader = read(arguments)
    try:
        with closing(loader), wrong_input(arguments.path):
            return _run(loader, arguments)
    except TorchDaliError as error:
        note(f"torchdali: {arguments.path}: {first_line(error)}")
        return 1


def _run(loader: DataLoader, arguments: argparse.Namespace) -> int:
    from .measure import in_words

    _check(loader, arguments)
    word = "num_workers" if loader.options.num_workers else "num_threads"
    cores = len(os.sched_getaffinity(0))
    runs, best, compared = _measure(loader, arguments, word, arguments.threads or _doubled(cores))
    advice = f"{word}={best.threads} and batch_size={best.batch_size} are the fastest of these"
    if arguments.json:
        say_json(
            {
                "command": "bench",
                "path": arguments.path,
                "transform": repr(loader.transform),
                "cores": cores,
                "varied": word,
                "runs": [dataclasses.asdict(one) for one in runs],
                "best": {word: best.threads, "batch_size": best.batch_size, "advice": best.stats.advice},
                "peer": compared,
            }
        )
        return 0
    rows = [(word, "batch_size", "samples/s", "ms per batch", "took most time")]
    rows += [
        (one.threads, one.batch_size, f"{one.samples_per_second:,.0f}",  # type: ignore[misc]
         f"{1000 * one.batch_size / one.samples_per_second:.2f}", one.limit)
        for one in runs
    ]  # fmt: skip
    say(f"{arguments.path}: {len(loader.source):,} samples, transform {loader.transform!r}, {cores} cores\n")
    say(table(rows))
    say(f"\n{advice}:\n\n{best.stats}")
    if compared is not None:
        say(f"\n{in_words(compared)}")
    return 0


def _check(loader: DataLoader, arguments: argparse.Namespace) -> None:
    import torch

    if arguments.device == "cuda" and not torch.cuda.is_available():
        raise UsageError("--device cuda was written, and torch sees no GPU here")
    if arguments.device == "cuda" and arguments.peer:
        raise UsageError("--peer compares on the CPU: leave --device cuda out")
    if loader.options.batch_size is None or loader.batch_size is None:
        raise UsageError("a loader with a batch size was expected, and this one's batches come from elsewhere")


def _measure(
    loader: DataLoader, arguments: argparse.Namespace, word: str, threads: list[int]
) -> tuple[list[Run], Run, dict[str, Any] | None]:
    """Measure with each number of threads, then with other batch sizes, then beside the peer.

    Returns:
        The runs, the fastest of them, and the comparison with the peer where one was asked for.
    """
    from .measure import ROUNDS, compare_with_peer, like, measure
    from .peers import make_peer

    first, *sizes = arguments.batch_size or _around(loader.batch_size or 1, loader.num_samples)
    rounds = 2 * ROUNDS if arguments.peer else 0
    peer = make_peer(arguments.peer, loader) if arguments.peer else None  # wrong input shows before the work
    runs: list[Run] = []
    with progress_bar("bench", len(threads) + len(sizes) + rounds, "runs") as bar:

        def add_run(number: int, size: int) -> None:
            changes = {word: number, "batch_size": size, "device": arguments.device}
            with closing(like(loader, **changes)) as one:
                runs.append(measure(one, number, size, arguments.seconds))
            bar.update(1)

        for number in threads:
            add_run(number, first)
        most = max(runs, key=lambda one: one.samples_per_second).threads
        for size in sizes:
            add_run(most, size)
        best = max(runs, key=lambda one: one.samples_per_second)
        compared = None
        if peer is not None:
            compared = compare_with_peer(loader, peer, best, word, arguments.seconds, lambda: bar.update(1))
    return runs, best, compared


def read(arguments: argparse.Namespace) -> DataLoader:
    """Make the loader of a config, or of data.

    Raises:
        UsageError: it can't be made.
    """
    check_arguments(arguments, [arguments.path], ["transform", "size", "index_dir"])
    if is_config(arguments.path):
        return loader_of_arguments(arguments, arguments.path)
    from ..loader import DataLoader
    from ..transforms import Compose
    from .data import dataset_of

    dataset = dataset_of(arguments.path, arguments.index_dir)
    steps = _steps(arguments.transform or "train", arguments.size or 224)
    with wrong_input(arguments.path):
        try:
            return DataLoader(
                dataset, 64, shuffle=True, transform=steps and Compose(steps), device="cpu", on_bad_sample="skip"
            )
        except TorchDaliError as error:
            raise UsageError(f"{arguments.path}: {first_line(error)}") from error


def _steps(name: str, size: int) -> Any:
    """Give the steps of one of `TRANSFORMS`; None: none."""
    from ..transforms import presets

    if name == "train":
        return presets.imagenet_train(size)
    return presets.imagenet_eval(size, resize=round(size / 0.875)) if name == "eval" else None


def _doubled(most: int) -> list[int]:
    """Give 1, 2, 4, ... and the most."""
    return [*(1 << k for k in range(most.bit_length()) if 1 << k < most), most]


def _around(size: int, samples: int) -> list[int]:
    """Give a batch size, a fourth of it and four times it, as far as there are samples."""
    return list(dict.fromkeys(max(min(one, samples), 1) for one in (size, size // 4, 4 * size)))


def _numbers(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise argparse.ArgumentTypeError(f"integers of at least 1, such as 1,2,4, were expected, got {text!r}")
    return list(dict.fromkeys(int(part) for part in parts))


def _size(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1 << 14:
        raise argparse.ArgumentTypeError(f"a number of pixels from 1 to {1 << 14} was expected, got {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 86400:
        raise argparse.ArgumentTypeError(f"a number of seconds above 0 was expected, got {text!r}")
    return number
