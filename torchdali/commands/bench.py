"""Measure how fast this machine loads this data, and say where the time goes.

PATH is a recipe's config (configs/NAME/some.yaml), whose loader is measured;
options of the recipe may follow, such as --data.root=photos.  Or it is data,
as for `preview`, of which --transform says what becomes.

Several numbers of threads are tried (of workers, where a config has some),
then larger and smaller batches with the best of them.  The table names what
took most time in each, and the last lines say what to change.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import torch

from ..clock import ORDER, REPAIR, STAGES
from ..errors import TorchDaliError, first_line
from ..loader import DataLoader
from ..options import Options
from ..progress import progress_bar
from ..stats import Stats
from ..transforms import Compose, presets
from .command import UsageError, add_index_dir, wrong_input
from .data import dataset_of
from .peers import PEERS, make_peer
from .recipe import add_recipe, check_arguments, is_config, loader_of_arguments
from .terminal import note, say, say_json, table

SUMMARY = "measure this data, this transform, this machine"
ROUNDS = 3  # of each side of a comparison, in turns
WARM, LEAST = 3, 8  # batches before the clock starts, and at least while it runs
TRANSFORMS: dict[str, Callable[[int], Any]] = {
    "train": presets.imagenet_train,
    "eval": lambda size: presets.imagenet_eval(size, resize=round(size / 0.875)),
    "none": lambda _: None,
}


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
    parser.add_argument("--peer", choices=sorted(PEERS), help="compare with torch's DataLoader or DALI's pipeline mode")
    parser.add_argument("--transform", choices=sorted(TRANSFORMS), help="of data: ImageNet's, or none (default: train)")
    parser.add_argument("--size", type=_size, metavar="N", help="of data: of the transform's images (default: 224)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="of the batches (default: cpu)")
    add_recipe(parser)
    add_index_dir(parser)


def passes_on(arguments: argparse.Namespace) -> bool:
    """Whether options that are not the command's own belong to a recipe."""
    return is_config(arguments.path)


@dataclass(frozen=True)
class Run:
    """One measurement.

    Attributes:
        threads, batch_size: of the loader; `threads` is its number of workers, where it has some.
        samples_per_second: without the first batches.
        limit: the stage that took most of its thread's time, and how much of it.
        stats: the loader's.
    """

    threads: int
    batch_size: int
    samples_per_second: float
    limit: str
    stats: Stats


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
    options = loader.options
    if arguments.device == "cuda" and not torch.cuda.is_available():
        raise UsageError("--device cuda was written, and torch sees no GPU here")
    if arguments.device == "cuda" and arguments.peer:
        raise UsageError("--peer compares on the CPU: leave --device cuda out")
    if options.batch_size is None or loader.batch_size is None:
        raise UsageError("a loader with a batch size was expected, and this one's batches come from elsewhere")
    word = "num_workers" if options.num_workers else "num_threads"
    cores = len(os.sched_getaffinity(0))
    threads = arguments.threads or _doubled(cores)
    first, *sizes = arguments.batch_size or _around(loader.batch_size, loader.num_samples)
    rounds = 2 * ROUNDS if arguments.peer else 0
    peer = make_peer(arguments.peer, loader) if arguments.peer else None  # wrong input shows before the work
    runs: list[Run] = []
    with progress_bar("bench", len(threads) + len(sizes) + rounds, "runs") as bar:

        def measured(number: int, size: int) -> None:
            changes = {word: number, "batch_size": size, "device": arguments.device}
            with closing(_like(loader, **changes)) as one:
                runs.append(_measured(one, number, size, arguments.seconds))
            bar.update(1)

        for number in threads:
            measured(number, first)
        most = max(runs, key=lambda one: one.samples_per_second).threads
        for size in sizes:
            measured(most, size)
        best = max(runs, key=lambda one: one.samples_per_second)
        compared = None
        if peer is not None:
            compared = _compared(loader, peer, best, word, arguments.seconds, lambda: bar.update(1))
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
        say(f"\n{_in_words(compared)}")
    return 0


def read(arguments: argparse.Namespace) -> DataLoader:
    """Make the loader of a config, or of data.

    Raises:
        UsageError: it can't be made.
    """
    check_arguments(arguments, [arguments.path], ["transform", "size", "index_dir"])
    if is_config(arguments.path):
        return loader_of_arguments(arguments, arguments.path)
    dataset = dataset_of(arguments.path, arguments.index_dir)
    steps = TRANSFORMS[arguments.transform or "train"](arguments.size or 224)
    with wrong_input(arguments.path):
        try:
            return DataLoader(
                dataset, 64, shuffle=True, transform=steps and Compose(steps), device="cpu", on_bad_sample="skip"
            )
        except TorchDaliError as error:
            raise UsageError(f"{arguments.path}: {first_line(error)}") from error


def _like(loader: DataLoader, **changes: Any) -> DataLoader:
    """Make a loader with some options changed."""
    options = {name: getattr(loader.options, name) for name in Options.names()}
    return DataLoader(loader.dataset, **{**options, "transform": loader.transform, **changes})


def _measured(loader: DataLoader, threads: int, batch_size: int, seconds: float) -> Run:
    rate = rate_of(_batches(loader), seconds)
    stats = loader.stats()
    work = {name: one.share for name, one in stats.stages.items() if name in STAGES[ORDER : REPAIR + 1]}
    most = max(work, key=lambda name: work[name], default="")
    return Run(threads, batch_size, rate, f"{most} ({work[most]:.0%})" if most else "", stats)


def _batches(loader: DataLoader) -> Iterator[int]:
    """The numbers of samples of the batches of pass after pass; one without any ends it."""
    before = -1
    while before != loader._passes.recorder.counts["samples"]:
        before = loader._passes.recorder.counts["samples"]
        for _ in loader:
            yield loader._passes.recorder.counts["samples"]


def rate_of(counts: Iterator[int], seconds: float) -> float:
    """Give the samples per second, without the first batches, while which others are made ahead.

    Args:
        counts: the samples so far, after each batch; pass after pass.
        seconds: it is measured so long, and for some batches; at most ten times as long.

    Raises:
        ValueError: there is no batch.
    """
    with closing(counts):  # type: ignore[type-var]
        warm = list(itertools.islice(counts, WARM))
        if not warm:
            raise ValueError("there is no batch to measure")
        first = last = warm[-1]
        begin, spent = time.perf_counter(), 0.0
        for number, count in enumerate(counts, 1):
            last, spent = count, time.perf_counter() - begin
            if (spent > seconds and number >= LEAST) or spent > 10 * seconds:
                break
    return (last - first) / spent


def _compared(
    loader: DataLoader,
    peer: Callable[[int, int], Iterator[int]],
    best: Run,
    word: str,
    seconds: float,
    done: Callable[[], None],
) -> dict[str, Any]:
    """Measure both sides in turns, each round both."""
    rates: dict[str, list[float]] = {"torchdali": [], "peer": []}
    for number in range(ROUNDS):
        for side in ("torchdali", "peer") if number % 2 == 0 else ("peer", "torchdali"):
            if side == "peer":
                rates[side].append(rate_of(peer(best.threads, best.batch_size), seconds))
            else:
                with closing(_like(loader, **{word: best.threads, "batch_size": best.batch_size})) as one:
                    rates[side].append(rate_of(_batches(one), seconds))
            done()
    ratios = [ours / theirs for ours, theirs in zip(rates["torchdali"], rates["peer"], strict=True)]
    return {"name": PEERS[peer.__name__], "rates": rates, "ratios": ratios}


def _in_words(compared: dict[str, Any]) -> str:
    rates, ratios = compared["rates"], compared["ratios"]
    return (
        f"{ROUNDS} rounds in turns: torchdali {statistics.median(rates['torchdali']):,.0f} samples/s, "
        f"{compared['name']} {statistics.median(rates['peer']):,.0f}; the ratio is {statistics.median(ratios):.2f} "
        f"({min(ratios):.2f} to {max(ratios):.2f})"
    )


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
