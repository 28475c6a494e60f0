"""Windows of token files: what a slice of the file gives, at any index; files that don't fit are named."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

import torchdali as td
from torchdali import TokenWindows
from torchdali.testing import assert_resumes_exactly, assert_same_stream

from .test_storage import place, s3, web  # noqa: F401  # fixtures

TOKENS = np.random.default_rng(0).integers(0, 50257, 1000).astype(np.uint16)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    TOKENS.tofile(tmp_path / "train.bin")
    return tmp_path / "train.bin"


@pytest.mark.parametrize(("length", "stride", "count"), [(64, None, 15), (64, 7, 134), (999, None, 1), (1, 1, 999)])
def test_windows_are_slices_of_the_file(file, length, stride, count):
    dataset = TokenWindows(file, length, stride)
    assert len(dataset) == count and dataset.uniform("tokens") and dataset.dtype("tokens") == np.int64
    order = np.random.default_rng(1).permutation(count)
    rows = dataset.read(order)["tokens"]
    assert rows.shape == (count, length + 1) and rows.dtype == np.int64
    for i, row in zip(order.tolist(), rows, strict=True):
        start = i * (stride or length)
        np.testing.assert_array_equal(row, TOKENS[start : start + length + 1])
    assert torch.equal(dataset[-1], torch.from_numpy(rows[order.argmax()]))


def test_each_token_is_a_target_once(file):
    targets = TokenWindows(file, 64).read(np.arange(15))["tokens"][:, 1:].ravel()
    np.testing.assert_array_equal(targets, TOKENS[1:961])


@pytest.mark.parametrize("dtype", ["uint8", "int32", ">u4", np.int64, "uint16"])
def test_dtypes_and_npy_files(tmp_path, dtype):
    tokens = (TOKENS % 200).astype(dtype)
    tokens.tofile(tmp_path / "a.bin")
    np.save(tmp_path / "a.npy", tokens)
    raw, npy = TokenWindows(tmp_path / "a.bin", 10, dtype=dtype), TokenWindows(tmp_path / "a.npy", 10)
    for dataset in (raw, npy):
        np.testing.assert_array_equal(dataset.read(np.array([3]))["tokens"][0], TOKENS[30:41] % 200)


def test_no_window_lies_in_two_files(tmp_path):
    for name, part in {"a-0.bin": TOKENS[:205], "a-1.bin": TOKENS[205:250], "a-2.bin": TOKENS[250:]}.items():
        part.tofile(tmp_path / name)
    dataset = TokenWindows(f"{tmp_path}/a-*.bin", 20, fields=("tokens", "path", "index", "valid"))
    assert len(dataset) == 10 + 2 + 37
    columns = dataset.read(np.array([9, 10, 11, 12, 48]))
    starts = [180, 205, 225, 250, 970]
    np.testing.assert_array_equal(columns["tokens"], [TOKENS[start : start + 21] for start in starts])
    assert [Path(path).name for path in columns["path"]] == ["a-0.bin", "a-1.bin", "a-1.bin", "a-2.bin", "a-2.bin"]


def test_wrong_files_and_arguments(file, tmp_path):
    (tmp_path / "odd.bin").write_bytes(bytes(201))
    np.save(tmp_path / "flat.npy", np.zeros((10, 20), np.uint16))
    np.save(tmp_path / "float.npy", np.zeros(200))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "float.npy").read_bytes()[:-8])
    (tmp_path / "empty.bin").touch()
    for error, message, arguments in [
        (ValueError, r"odd\.bin: 201 bytes are no multiple of the 2 bytes of uint16", (tmp_path / "odd.bin", 4)),
        (ValueError, r"at least 1001 tokens were expected, .* length 1000 .* got 1000 of uint16", (file, 1000)),
        (ValueError, r"at least 9 tokens were expected, .* got 0 of uint16", (tmp_path / "empty.bin", 8)),
        (ValueError, r"flat\.npy: an array of one dimension, .* got uint16 \[10, 20\]",
         (tmp_path / "flat.npy", 4)),
        (ValueError, r"float\.npy: tokens must be integers, got float64", (tmp_path / "float.npy", 4)),
        (ValueError, r"cut\.npy: an array of one dimension, in 1728 bytes, was expected, .* in 1720 bytes",
         (tmp_path / "cut.npy", 4)),
        (ValueError, "tokens must be integers, got float32", (file, 4, None, "float32")),
        (ValueError, "length must be at least 1, got 0", (file, 0)),
        (ValueError, "stride must be at least 1, got 0", (file, 4, 0)),
        (FileNotFoundError, "none", (tmp_path / "none.bin", 4)),
    ]:  # fmt: skip
        with pytest.raises(error, match=message):
            TokenWindows(*arguments)


def test_fingerprint(file, tmp_path):
    prints = {
        TokenWindows(file, *arguments).fingerprint() for arguments in ((10,), (11,), (10, 5), (10, None, "int16"))
    }
    (tmp_path / "moved").mkdir()
    TOKENS.tofile(tmp_path / "moved" / "train.bin")
    assert len(prints) == 4 and max(map(len, prints)) <= 100
    moved = TokenWindows(tmp_path / "moved" / "train.bin", 10)
    assert moved.fingerprint() == pickle.loads(pickle.dumps(TokenWindows(file, 10))).fingerprint()


def test_remote_files(place):  # noqa: F811
    address, options, write = place
    write("train.bin", TOKENS.tobytes())
    dataset = TokenWindows(f"{address}/train.bin", 64, storage_options=options)
    np.testing.assert_array_equal(dataset.read(np.array([2, 9]))["tokens"], [TOKENS[128:193], TOKENS[576:641]])


# Through the loader


def make_loader(file, **changes):
    dataset = TokenWindows(file, 16, fields=("tokens", "index"))
    return td.DataLoader(dataset, **{"batch_size": 8, "shuffle": True, "seed": 5, "device": "cpu", **changes})


def test_loader_gives_dense_batches(file):
    with make_loader(file) as loader:
        for tokens, indices in loader:
            assert tokens.shape == (len(indices), 17) and tokens.dtype == torch.int64
            for row, index in zip(tokens, indices.tolist(), strict=True):
                np.testing.assert_array_equal(row, TOKENS[16 * index : 16 * index + 17])


def test_resumes_exactly_on_any_ranks(file):
    assert_resumes_exactly(lambda: make_loader(file), epochs=2)
    assert_same_stream(
        lambda: make_loader(file),
        lambda: [make_loader(file, batch_size=4, rank=rank, world_size=2) for rank in range(2)],
        steps=False,
    )


def test_a_file_that_is_cut_off_later_is_an_error(file):
    with make_loader(file, shuffle=False) as loader:
        with open(file, "r+b") as opened:
            opened.truncate(1500)
        with pytest.raises(td.BadSampleError, match=r"train\.bin is cut off: 34 bytes expected at offset 1472"):
            list(loader)


def test_tokens_alone_come_without_a_tuple(file):
    with td.DataLoader(TokenWindows(file, 16), batch_size=8) as loader:
        assert next(iter(loader)).shape == (8, 17)
