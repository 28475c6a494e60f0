"""Errors that name the way, for those who write what they know from elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torchvision.transforms import v2

import torchdali as td
from torchdali import readers
from torchdali import transforms as T


def test_dynamic_modes_next_epoch(folder: Path) -> None:
    reader = readers.File(file_root=folder)
    with pytest.raises(TypeError, match=r"File has no next_epoch: write DataLoader\(reader, batch_size=...\)"):
        reader.next_epoch(batch_size=4)
    with pytest.raises(TypeError, match=r"iter\(loader\) starts the next epoch, and set_epoch\(n\) names one"):
        td.DataLoader(reader, device="cpu").next_epoch()


def test_a_list_of_files_with_a_byte_order_mark(folder: Path, tmp_path: Path) -> None:
    lines = "".join(f"{path.relative_to(folder)} 0\n" for path in sorted(folder.rglob("*.jpg")))
    listed = tmp_path / "list.txt"
    listed.write_text(lines, "utf-8-sig")
    with pytest.raises(ValueError, match=r"list\.txt begins with a byte order mark: save it as UTF-8 without one"):
        readers.File(file_list=str(listed), file_root=str(folder))
    listed.write_text(lines, "utf-8")
    assert len(readers.File(file_list=str(listed), file_root=str(folder))) == 22


@pytest.mark.parametrize("root", ["s3://bucket/train", "https://example.org/train"])
def test_a_remote_folder_of_images(root: str) -> None:
    with pytest.raises(
        ValueError, match=f"root must be a local folder, got {root}: for remote files, write TarDataset"
    ):
        td.ImageFolder(root)


def test_several_files_per_sample(tmp_path: Path) -> None:
    path = tmp_path / "a.seg"
    path.touch()
    with pytest.raises(ValueError, match=r"ending 'seg' does not say .* write kinds={'mask': ...} with .encoded. for"):
        td.FileDataset({"image": [__file__], "mask": [path]}, kinds={"image": "encoded"})
    with pytest.raises(TypeError, match=r"got list for 'mask': for lists of files write FileDataset\({\.\.\.}\)"):
        td.NumpyDataset({"mask": ["a.npy"]})


class Preset:
    """As in torchvision's references."""

    def __init__(self) -> None:
        self.transforms = v2.Compose([v2.RandomHorizontalFlip(1.0), v2.PILToTensor()])

    def __call__(self, image: Any) -> Any:
        return self.transforms(image)


class More(Preset):
    def __call__(self, image: Any) -> Any:
        return self.transforms(image) * 2


class MaybeToTensor:
    """As in timm, which leaves tensors as they are."""

    def __call__(self, image: Any) -> Any:
        return image if isinstance(image, torch.Tensor) else v2.functional.to_dtype(v2.functional.pil_to_tensor(image))


class Pictures:
    """A folder with a transform, as torchvision has it."""

    def __new__(cls, root: Path, transform: Any) -> Any:
        from torchvision.datasets import ImageFolder

        return ImageFolder(root, transform=transform)


def test_presets_are_unwrapped(folder: Path) -> None:
    found = td.from_torchvision(Pictures(folder, Preset()))
    assert list(found.transform.transforms) == [T.RandomHorizontalFlip(1.0)]
    with pytest.raises(ValueError, match="More"):
        td.from_torchvision(Pictures(folder, More()))


def test_timms_conversions_have_rules(folder: Path) -> None:
    found = td.from_torchvision(Pictures(folder, v2.Compose([v2.CenterCrop(20), MaybeToTensor(), MaybeToTensor()])))
    assert list(found.transform.transforms) == [T.CenterCrop((20, 20)), T.ToDtype(torch.float32, scale=True)]
