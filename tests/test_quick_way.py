"""The quick way from a sample to its columns gives what the long way gives, and its errors."""

from __future__ import annotations

import collections
import pickle

import numpy as np
import PIL.Image
import pytest
import torch
from torchvision import tv_tensors

from torchdali.python.sample import Structure

Pair = collections.namedtuple("Pair", "left right")
PIXELS = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3)
READ_ONLY = PIXELS.copy()
READ_ONLY.flags.writeable = False

# By case: the first sample, and others; those that are unlike it are errors of both ways, or the same values.
SAMPLES = {
    "one value": (3, [4, 2.5, True, np.int64(3), torch.tensor(3), torch.tensor([3]), None, "x", np.zeros(2)]),
    "pair": ((PIXELS, 3), [(PIXELS[::2], 4), [PIXELS, 3], (PIXELS,), (PIXELS, 3, 4), (PIXELS, "x"), PIXELS]),
    "image": (PIXELS, [READ_ONLY, PIXELS[:, ::-1], PIXELS[..., :1], PIXELS.astype(np.float32), torch.zeros(3, 4, 5)]),
    "picture": (PIL.Image.fromarray(PIXELS), [PIL.Image.new("L", (3, 3)), PIL.Image.new("I", (3, 3)), PIXELS]),
    "array": (np.zeros(3), [torch.zeros(3, dtype=torch.float64), np.zeros((3, 1)), torch.zeros(3), [0.0, 1.0, 2.0]]),
    "tensor": (
        torch.zeros(3, 2),
        [
            torch.ones(3, 2, requires_grad=True),
            torch.ones(2, 3).T,
            torch.nn.Parameter(torch.ones(3, 2)),
            tv_tensors.Image(torch.ones(3, 2, 2))[0],
            torch.ones(3, 2, dtype=torch.bfloat16),
            torch.ones(3, 2, dtype=torch.complex64).imag,
            torch._neg_view(torch.ones(3, 2)),
        ],
    ),
    "tv_tensor": (
        tv_tensors.Image(torch.zeros(3, 2, 2)),
        [torch.ones(3, 2, 2), tv_tensors.Video(torch.ones(1, 3, 2, 2))],
    ),
    "tv pixels": (tv_tensors.Image(torch.zeros(3, 2, 2, dtype=torch.uint8)), [torch.ones(3, 2, 2, dtype=torch.uint8)]),
    "half": (torch.zeros(2, dtype=torch.bfloat16), [torch.ones(2, dtype=torch.bfloat16), torch.ones(2)]),
    "bytes": (b"no image", [b"", bytearray(b"x"), np.zeros(3, np.uint8), torch.zeros(3, dtype=torch.uint8), "x"]),
    "dict": ({"x": 1, "y": "a"}, [{"y": 2, "x": 3, "z": 4}, {"x": 1}, collections.OrderedDict(x=1, y=2), [1, 2]]),
    "nested": ((PIXELS, {"a": 1, "b": (2, "c")}), [(PIXELS, {"a": 1, "b": (2,)}), (PIXELS, 3), (PIXELS, {"a": 1})]),
    "named": (Pair(1, "a"), [Pair(2, "b"), (2, "b"), [2, "b"]]),
}


def outcome(structure: Structure, sample: object) -> object:
    try:
        return structure.values(sample)
    except Exception as error:
        return type(error), str(error)


def same(one: object, other: object) -> bool:
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, torch.Tensor):
        return type(other) is type(one) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, np.ndarray):
        facts = [(value.dtype, value.shape, value.flags.c_contiguous, value.flags.writeable) for value in (one, other)]
        return type(one) is type(other) and facts[0] == facts[1] and np.array_equal(one, other)
    return type(one) is type(other) and one == other


@pytest.mark.parametrize("case", SAMPLES)
def test_both_ways_agree(case: str) -> None:
    first, others = SAMPLES[case]
    quick, long = Structure.of(first), Structure.of(first)
    assert quick._take is not None
    long._take = None
    for sample in (first, *others):
        assert same(outcome(quick, sample), outcome(long, sample)), sample


def test_a_structure_is_taken_apart_once_in_a_process() -> None:
    structure = Structure.of((PIXELS, {"a": 1}))
    one, other = (pickle.loads(pickle.dumps(structure)) for _ in range(2))
    assert one is other and same(one.values((PIXELS, {"a": 2})), [PIXELS, 2])
