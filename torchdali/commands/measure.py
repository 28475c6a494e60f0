"""The measurements of `bench`: of a loader with some options changed, and of a loader and a peer in turns."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from ..clock import ORDER, REPAIR, STAGES
from ..loader import DataLoader
from ..options import Options
from ..stats import Stats
from .peers import PEERS

ROUNDS = 3  # of each side of a comparison, in turns
WARM, LEAST = 3, 8  # batches before the clock starts, and at least while it runs


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


def like(loader: DataLoader, **changes: Any) -> DataLoader:
    """Make a loader with some options changed."""
    options = {name: getattr(loader.options, name) for name in Options.names()}
    return DataLoader(loader.dataset, **{**options, "transform": loader.transform, **changes})


def measure(loader: DataLoader, threads: int, batch_size: int, seconds: float) -> Run:
    """Measure a loader with so many threads for some seconds."""
    rate = rate_of(_batches(loader), seconds)
    stats = loader.stats()
    work = {name: one.share for name, one in stats.stages.items() if name in STAGES[ORDER : REPAIR + 1]}
    most = max(work, key=lambda name: work[name], default="")
    return Run(threads, batch_size, rate, f"{most} ({work[most]:.0%})" if most else "", stats)


def _batches(loader: DataLoader) -> Iterator[int]:
    """Give the numbers of samples of the batches of pass after pass; one without any ends it."""
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


def compare_with_peer(
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
                with closing(like(loader, **{word: best.threads, "batch_size": best.batch_size})) as one:
                    rates[side].append(rate_of(_batches(one), seconds))
            done()
    ratios = [ours / theirs for ours, theirs in zip(rates["torchdali"], rates["peer"], strict=True)]
    return {"name": PEERS[peer.__name__], "rates": rates, "ratios": ratios}


def in_words(compared: dict[str, Any]) -> str:
    """Say what a comparison found, in a sentence."""
    rates, ratios = compared["rates"], compared["ratios"]
    return (
        f"{ROUNDS} rounds in turns: torchdali {statistics.median(rates['torchdali']):,.0f} samples/s, "
        f"{compared['name']} {statistics.median(rates['peer']):,.0f}; the ratio is {statistics.median(ratios):.2f} "
        f"({min(ratios):.2f} to {max(ratios):.2f})"
    )
