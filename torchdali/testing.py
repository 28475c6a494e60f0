"""Helpers for your own tests: compare streams, check that a loader resumes exactly, and make files to try it on.

    from torchdali.testing import assert_resumes_exactly, assert_same_stream

    assert_resumes_exactly(lambda: make_loader())
    assert_same_stream(lambda: make_loader(engine="eager"), lambda: make_loader(engine="pipeline"))
    assert_same_stream(lambda: make_loader(), lambda: [make_loader(rank=r, world_size=2) for r in range(2)])

A stream is compared sample by sample and bit by bit, in its global order: each row of each field of each batch, without
padding.  A list of loaders stands for the ranks of one job; they are read in step.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .batch import Padded, padded_dims

Loaders = Any
"""A loader, or a list of the loaders of all ranks in their order."""


@dataclass(frozen=True)
class StreamStep:
    """One global step.

    Attributes:
        epoch: its epoch.
        samples: a digest of each sample in the global order.
        state: the state after it, which is the same on all ranks; empty where the loaders have none.
    """

    epoch: int
    samples: list[str]
    state: dict[str, Any] = field(default_factory=dict)


def sample_digests(batch: Any) -> list[str]:
    """Compute one digest per row of a batch: tensors, `Padded` and lists, in tuples, dicts and dataclasses."""
    # torch's own loader gives lists for tuples.
    items = _apart(dict(_named(tuple(batch) if isinstance(batch, list) else batch)))
    columns: list[tuple[str, Any, Any]] = []
    for name, value in items.items():
        if isinstance(value, Padded):
            columns.append((str(name), value.data, value.sizes))
        elif not str(name).endswith("_sizes"):
            columns.append((str(name), value, items.get(f"{name}_sizes")))
    rows = (b"".join(_row(*column, i) for column in columns) for i in range(len(columns[0][1])))
    return [hashlib.blake2b(row, digest_size=8).hexdigest() for row in rows]


def _apart(items: dict[str, Any]) -> dict[str, Any]:
    """Give each view of a field a name of its own: a list of tensors is one of views unless it has a tensor per row."""
    rows = next(
        (len(value[0] if isinstance(value, Padded) else value) for value in items.values() if _is_batch(value)), 0
    )
    apart: dict[str, Any] = {}
    for name, value in items.items():
        views = isinstance(value, list) and rows not in (0, len(value)) and all(map(_is_batch, value))
        apart |= {f"{name}.{i}": view for i, view in enumerate(value)} if views else {name: value}
    return apart


def _is_batch(value: Any) -> bool:
    return isinstance(value, (torch.Tensor, Padded))


def _named(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the fields of a batch with their places in it as names."""
    if isinstance(value, Mapping):
        parts = dict(value)
    elif isinstance(value, tuple) and not isinstance(value, Padded):
        parts = dict(enumerate(value))
    elif is_dataclass(value):
        parts = vars(value)
    else:
        yield name, value
        return
    for key, part in parts.items():
        yield from _named(part, f"{name}.{key}" if name else str(key))


def _row(name: str, column: Any, sizes: Any, i: Any) -> bytes:
    value = column[i]
    if isinstance(value, (Mapping, list, tuple)):  # of output="list"
        keys = list(value) if isinstance(value, Mapping) else range(len(value))
        return b"".join(_row(f"{name}.{key}", value, None, key) for key in keys) + f"{name}:{len(value)};".encode()
    if not isinstance(value, torch.Tensor):
        return f"{name}={value!r};".encode()
    if sizes is not None:
        extent = sizes[i].tolist()
        for dim, size in zip(padded_dims(value.ndim + 1, len(extent)), extent, strict=True):
            value = value.narrow(dim - 1, 0, size)
    value = value.detach().cpu().contiguous()
    data = bytes(value.flatten().view(torch.uint8).numpy()) if value.numel() else b""
    return f"{name}:{value.dtype}:{tuple(value.shape)}=".encode() + data


def read_stream(loaders: Loaders, epochs: int = 1, limit: int | None = None) -> list[StreamStep]:
    """Read the steps from where the loaders stand to the end of an epoch.

    Args:
        loaders: a loader, or the loaders of all ranks.
        epochs: stop before this epoch; counted in passes for loaders without `epoch`.
        limit: stop after this number of steps.

    Raises:
        AssertionError: the ranks have different numbers of steps, or different states.
    """
    ranks = list(loaders) if isinstance(loaders, (list, tuple)) else [loaders]
    steps: list[StreamStep] = []
    passes = 0
    while _epoch(ranks[0], passes) < epochs:
        epoch = _epoch(ranks[0], passes)
        seen = _seen(ranks[0])
        for batches in _in_step(ranks):
            states = [rank.state_dict() if hasattr(rank, "state_dict") else {} for rank in ranks]
            assert all(state == states[0] for state in states), f"the ranks' states differ: {states}"
            digests = [sample_digests(batch) for batch in batches]
            if getattr(ranks[0], "strided", False):
                # The step's first sample in the global order is on the rank whose turn it is.
                turn = seen % len(ranks)
                rounds = zip_longest(*digests[turn:], *digests[:turn])
                samples = [digest for row in rounds for digest in row if digest is not None]
            else:
                samples = list(chain(*digests))
            seen = states[0].get("samples_seen", 0)
            steps.append(StreamStep(epoch, samples, states[0]))
            if len(steps) == limit:
                return steps
        passes += 1
        if _epoch(ranks[0], passes) == epoch:
            break  # after `set_epoch` a loader stays in that epoch
    return steps


def _epoch(loader: Any, passes: int) -> int:
    return int(getattr(loader, "epoch", passes))


def _seen(loader: Any) -> int:
    state = loader.state_dict() if hasattr(loader, "state_dict") else {}
    return 0 if state.get("finished") else int(state.get("samples_seen", 0))


def _in_step(ranks: Sequence[Any]) -> Iterator[list[Any]]:
    iterators = [iter(rank) for rank in ranks]
    while True:
        batches = [next(iterator, None) for iterator in iterators]
        ended = [rank for rank, batch in enumerate(batches) if batch is None]
        if len(ended) == len(ranks):
            return
        assert not ended, f"ranks {ended} end before the others"
        yield batches


def assert_same_stream(*makers: Callable[[], Loaders], epochs: int = 1, steps: bool = True) -> list[StreamStep]:
    """Assert that all loaders give the same samples in the same global order.

    Args:
        makers: each makes a loader, or a list of all ranks' loaders.
        epochs: the number of epochs to compare.
        steps: also assert that the global steps are the same; False for different global batch sizes.

    Returns:
        The stream.

    Raises:
        AssertionError: the streams differ; it names the first difference.
    """
    first, *others = [_read_and_close(make, epochs) for make in makers]
    for number, other in enumerate(others, 1):
        _compare(first, other, f"stream {number} differs from stream 0", steps)
    return first


def _read_and_close(make: Callable[[], Loaders], epochs: int) -> list[StreamStep]:
    loaders = make()
    try:
        return read_stream(loaders, epochs)
    finally:
        _close(loaders)


def _close(loaders: Loaders) -> None:
    for loader in loaders if isinstance(loaders, (list, tuple)) else [loaders]:
        if hasattr(loader, "close"):
            loader.close()


def _compare(expected: Sequence[StreamStep], got: Sequence[StreamStep], what: str, steps: bool) -> None:
    for epoch in sorted({step.epoch for step in [*expected, *got]}):
        wanted = [step.samples for step in expected if step.epoch == epoch]
        found = [step.samples for step in got if step.epoch == epoch]
        if not steps:
            wanted, found = [list(chain(*wanted))], [list(chain(*found))]
        sizes = [len(samples) for samples in wanted], [len(samples) for samples in found]
        assert sizes[0] == sizes[1], f"{what}: epoch {epoch} has steps of {sizes[0]} samples, and {sizes[1]}"
        for number, (one, other) in enumerate(zip(wanted, found, strict=True)):
            rows = [row for row, (a, b) in enumerate(zip(one, other, strict=True)) if a != b]
            assert not rows, f"{what}: epoch {epoch}, step {number}, rows {rows[:10]}"


def assert_resumes_exactly(
    make: Callable[[], Loaders],
    make_resumed: Callable[[], Loaders] | None = None,
    *,
    epochs: int = 2,
    every: int = 1,
    steps: bool | None = None,
) -> None:
    """Assert that a loader that loads a state continues with the very next sample, at the start and after each step.

    The states go through JSON.  After each step the loader is also resumed twice in a row, and after an early break
    with batches still in flight.

    Args:
        make: makes the loader (or all ranks' loaders) that is stopped.
        make_resumed: makes the one that continues, such as with another world size; by default `make`.
        epochs: the number of epochs to try.
        every: resume after every `every`-th step.
        steps: compare the global steps, not only the order of samples; by default where `make_resumed` is not given.

    Raises:
        AssertionError: a resumed stream differs; it names the first difference.
    """
    resume = make_resumed or make
    whole_steps = make_resumed is None if steps is None else steps
    loaders = make()
    start = (loaders[0] if isinstance(loaders, (list, tuple)) else loaders).state_dict()
    reference = read_stream(loaders, epochs)
    _close(loaders)
    assert reference, "there is nothing to compare: the loader gives no batch"
    for done in range(0, len(reference) + 1, every):
        state = json.loads(json.dumps(reference[done - 1].state if done else start))
        what = f"resumed after {done} of {len(reference)} steps"
        rest = reference[done:]
        _compare(rest, _resumed(resume, state, epochs), what, whole_steps)
        # Twice: stop the resumed run after its first step, with batches in flight, and resume again.
        again = resume()
        _load(again, state)
        first = read_stream(again, epochs, limit=1)
        _close(again)
        if first:
            second = _resumed(resume, json.loads(json.dumps(first[0].state)), epochs)
            _compare(rest, first + second, f"{what}, and again after one more", whole_steps and make_resumed is None)


def _load(loaders: Loaders, state: dict[str, Any]) -> None:
    for loader in loaders if isinstance(loaders, (list, tuple)) else [loaders]:
        loader.load_state_dict(state)
        assert loader.state_dict() == state, "state_dict right after load_state_dict differs from the state"


def _resumed(make: Callable[[], Loaders], state: dict[str, Any], epochs: int) -> list[StreamStep]:
    loaders = make()
    try:
        _load(loaders, state)
        return read_stream(loaders, epochs)
    finally:
        _close(loaders)


def make_image_folder(root: str | Path, classes: int = 3, per_class: int = 7, seed: int = 0) -> Path:
    """Write an image folder of smooth random JPEGs of different sizes, 40 to 120 pixels, and return its path."""
    from PIL import Image

    rng = np.random.default_rng(seed)
    for label in range(classes):
        folder = Path(root) / f"class_{label}"
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(per_class):
            height, width = (int(v) for v in rng.integers(40, 120, 2))
            small = Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8))
            small.resize((width, height), Image.Resampling.BICUBIC).save(folder / f"{number:04d}.jpg", quality=90)
    return Path(root)


def truncate_file(path: str | Path, keep: float = 0.5) -> None:
    """Cut a file off after the share `keep` of its bytes."""
    data = Path(path).read_bytes()
    Path(path).write_bytes(data[: int(len(data) * keep)])


def garble_file(path: str | Path, seed: int = 0) -> None:
    """Overwrite a file with the same number of random bytes."""
    size = Path(path).stat().st_size
    Path(path).write_bytes(np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8).tobytes())
