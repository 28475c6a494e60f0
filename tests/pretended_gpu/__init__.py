"""A pretended NVIDIA GPU: runs the GPU control flow of torchdali on a machine without one, and looks for races.

    python -m pytest -p tests.pretended_gpu.plugin tests/pretended_gpu/cases_*.py
    PRETENDED_GPUS=1 python -m pytest -p tests.pretended_gpu.plugin ...     # how many GPUs there are (2)

Everything above CUDA is real: torchdali, DALI's dynamic mode in Python (contexts, devices, streams, placement rules),
DALI's pipelines and torch's dispatcher.  Only the bottom is replaced: DALI's operators run in their CPU form, and a
"CUDA tensor" is a tensor whose `device` is cuda and whose numbers lie on the CPU.  So kernels run at once; but each one
is written down with its stream, its inputs and its outputs, and checked as CUDA would allow it to run, late:

    read-early       a kernel reads what another stream (or DALI's) may not have written yet
    overwrite-early  a kernel writes what another stream may still read or write
    freed-early      memory is given back while a stream that its allocator does not know of may still use it
    decode-early     a JPEG decoder gets memory that its stream still uses (it writes at once, whatever the stream does)
    foreign-device   a thread makes a GPU current, and so a CUDA context on it, that is not in `Machine.allowed`

`Machine.hazards` lists them, and `Machine.counts` has the number of kernels, copies and host waits, by thread.

It can't show: pixels of nvJPEG, hardware decoders, NVDEC, speed, crashes inside CUDA, errors that a kernel reports
late, what operators demand only of GPU memory, a host that reads pinned memory before its copy is complete, and waits
that DALI makes inside (it is given the benefit of the doubt: a pipeline's outputs are complete when `run` returns, and
a copy to the CPU is waited for).  GPU-only operators (video, FITS) have no CPU form: give a reader that has one to
`gpu_only` to walk their path.

A process that has it can't be rid of it: `tests/test_pretended_gpu.py` runs the cases in a process of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .machine import MACHINE, Machine

__all__ = ["MACHINE", "gpu_only", "watched"]


@contextmanager
def gpu_only(*classes: Any) -> Iterator[None]:
    """Put the outputs of some native readers on the GPU, as those of Video are."""
    before = [(reader, reader._supported_backends) for reader in classes]
    for reader in classes:
        reader._supported_backends = frozenset({"gpu"})
    try:
        yield
    finally:
        for reader, backends in before:
            reader._supported_backends = backends


@contextmanager
def watched(*allowed: int) -> Iterator[Machine]:
    """Look at the hazards and counts of a block, in which no GPU may be touched but the allowed ones."""
    MACHINE.reset()
    before, MACHINE.allowed = MACHINE.allowed, set(allowed)
    try:
        yield MACHINE
    finally:
        MACHINE.allowed = before
