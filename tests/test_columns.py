"""Columns are writable: DALI copies read-only arrays one by one, and slowly."""

from __future__ import annotations

from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch

import torchdali as td
from torchdali import _dali, kinds
from torchdali import transforms as T
from torchdali.columns import writable
from torchdali.formats.files import read_file
from torchdali.transforms import traceable


def test_a_file_is_read_into_memory_that_can_be_written(tmp_path):
    content = np.random.default_rng(0).bytes(3_000_000)
    (tmp_path / "a").write_bytes(content)
    (tmp_path / "empty").write_bytes(b"")
    data = read_file(str(tmp_path / "a"))
    assert data.dtype == np.uint8 and data.flags.writeable and data.tobytes() == content
    with pytest.raises(ValueError, match="the file is empty"):
        read_file(str(tmp_path / "empty"))
    with pytest.raises(FileNotFoundError, match="missing"):
        read_file(str(tmp_path / "missing"))
    with pytest.raises(IsADirectoryError):
        read_file(str(tmp_path))


def test_only_what_is_read_only_is_copied():
    fixed = np.frombuffer(b"abc", np.uint8)
    own = np.zeros(3, np.uint8)
    tensor = torch.zeros(3)
    got = writable([fixed, own, tensor])
    assert got[0].flags.writeable and got[0].tolist() == fixed.tolist()
    assert got[1] is own and got[2] is tensor
    whole = np.zeros((2, 3))
    assert writable(whole) is whole
    whole.flags.writeable = False
    assert writable(whole).flags.writeable and not whole.flags.writeable


def read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def in_memory(folder):
    files = [path.read_bytes() for path in sorted(folder.rglob("*.jpg"))]
    boxes = [read_only(np.ones((1 + i % 3, 4), np.float32)) for i in range(len(files))]
    return td.InMemoryDataset(image=files, boxes=boxes, kinds={"boxes": "array"})


def decoded(folder):
    return td.InMemoryDataset(image=read_only(np.zeros((22, 30, 30, 3), np.uint8)), boxes=read_only(np.ones((22, 4))))


def python(folder):
    return [
        {"image": path.read_bytes(), "boxes": read_only(np.ones(4, np.float32))}
        for path in sorted(folder.rglob("*.jpg"))
    ]


SOURCES = [lambda folder: td.ImageFolder(folder), in_memory, decoded, python]


@traceable
def all_fields(sample, rand, ops):
    return {**sample, "image": ops.resize(sample["image"], size=[8, 8])}


@pytest.mark.parametrize("engine", ["eager", "pipeline"])
@pytest.mark.parametrize("source", SOURCES, ids=["files", "in memory", "decoded", "python"])
def test_whatever_goes_into_dali_is_writable(folder, monkeypatch, engine, source):
    seen: list[bool] = []

    def note(values) -> None:
        # Parameters, [N] or [N, d], are small, and copied at once.
        rows = values if isinstance(values, list) else [values] * (np.ndim(values) > 2)
        seen.extend(row.flags.writeable for row in rows if isinstance(row, np.ndarray))

    batch, external = _dali.as_batch, _dali.external_source

    def feed(source, *rest):
        def noted():
            values = source()
            for each in values:
                note(each)
            return values

        return external(noted, *rest)

    monkeypatch.setattr(_dali, "as_batch", lambda values, *rest: note(values) or batch(values, *rest))
    monkeypatch.setattr(_dali, "external_source", feed)
    transform = T.Compose([T.Decode(), T.RandomResizedCrop(16), all_fields])
    loader = td.DataLoader(source(folder), 4, device="cpu", transform=transform, engine=engine)
    assert len(list(loader)) == 6
    assert len(seen) >= 6 and all(seen)


class Values(torch.utils.data.Dataset[Any]):
    def __init__(self, values: Any) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> Any:
        return {"x": self.values[index], "y": index}


PIXELS = np.random.default_rng(0).integers(0, 256, (4, 8, 10, 3), np.uint8)
FIRST = np.ascontiguousarray(PIXELS.transpose(0, 3, 1, 2))
CHW = kinds.Image(layout="CHW")


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (PIXELS, "image", FIRST),
        (FIRST, CHW, FIRST),
        (torch.tensor(FIRST), "image", FIRST),
        (PIXELS[..., 0], "image", FIRST[:, :1]),  # as MNIST's `data`
        (torch.tensor(FIRST[:, 0]), "image", FIRST[:, :1]),
        (torch.tensor(FIRST).float() / 255, "image", FIRST / np.float32(255)),
        (PIXELS.astype(np.float32), "image", FIRST.astype(np.float32)),
        (FIRST.astype(np.float32), CHW, FIRST.astype(np.float32)),
        (FIRST[:, 0].astype(np.float32), "image", FIRST[:, :1].astype(np.float32)),
    ],
)
def test_arrays_and_tensors_that_are_told_to_be_images(values: Any, kind: Any, expected: Any) -> None:
    """Tensors are [C, H, W], arrays [H, W, C] or what the kind says, and those of two dimensions grey."""
    told = {"x": kind}
    sources = [(td.InMemoryDataset(x=values, kinds=told), None), (td.InMemoryDataset(x=list(values), kinds=told), None)]
    sources += [(Values(values), told)]  # type: ignore[list-item]
    if isinstance(values, np.ndarray):
        sources.append((td.NumpyDataset({"x": values}, kinds=told), None))
    for source, at_loader in sources:
        loader = td.DataLoader(source, 4, transform=T.CenterCrop((6, 4)), kinds=at_loader, output="dict", device="cpu")
        found = next(iter(loader))["x"]
        assert torch.equal(found, torch.tensor(expected[:, :, 1:7, 3:7])), source


def test_arrays_with_channels_first_are_told_so() -> None:
    message = r"an array of an image is \[H, W, C\], got \[3, 8, 10\]: write kinds.Image\(layout='CHW'\)"
    for values in (FIRST, FIRST.astype(np.float32)):
        with pytest.raises(ValueError, match=message):
            td.InMemoryDataset(x=values, kinds={"x": "image"})
        for source in (td.NumpyDataset({"x": values}, kinds={"x": "image"}), Values(values)):
            told = {"x": "image"} if isinstance(source, Values) else None
            with pytest.raises(Exception, match=message):
                next(iter(td.DataLoader(source, 4, transform=T.CenterCrop(4), kinds=told, device="cpu")))


def test_pillows_images_of_several_modes() -> None:
    """The first sample's is grey, as in ImageNet's folders."""
    modes = ("L", "RGB", "CMYK", "P", "RGBA")
    values = Values([PIL.Image.new("L", (10, 8), 9), *(PIL.Image.new("RGB", (10, 8), 9).convert(m) for m in modes)])
    for mode, channels in (("RGB", 3), ("L", 1)):
        told = {"x": kinds.Image(mode=mode)}  # type: ignore[arg-type]
        loader = td.DataLoader(values, 6, transform=T.CenterCrop(4), kinds=told, output="dict", device="cpu")
        found = next(iter(loader))["x"]
        assert tuple(found.shape) == (6, channels, 4, 4)
        assert found.flatten(1).float().mean(1).sub(9).abs().max() < 12  # Pillow's palette and inks are not exact
    several: Any = ({}, {"x": kinds.Image()}, {"x": "image"})
    for kind in several:
        with pytest.raises(td.FieldTypeError, match=r"or write kinds.Image\(mode='RGB'\) for Pillow's"):
            next(iter(td.DataLoader(values, 6, transform=T.CenterCrop(4), kinds=kind, device="cpu")))
    grey = td.DataLoader(Values(values.values[:2]), 2, transform=T.CenterCrop(4), output="dict", device="cpu")
    assert next(iter(grey))["x"].shape[1] == 1
