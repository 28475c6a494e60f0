"""Errors that name the way, for those who write what they know from elsewhere."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torchvision import tv_tensors
from torchvision.transforms import transforms as v1
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


class References:
    """As the presets of torchvision's references for detection and segmentation, called with a target."""

    def __init__(self, *transforms: Any) -> None:
        self.transforms = v2.Compose(list(transforms))

    def __call__(self, img: Any, target: Any) -> Any:
        return self.transforms(img, target)


class ConvertBCHWtoCBHW(torch.nn.Module):
    """Of the references for clips."""

    def forward(self, vid: torch.Tensor) -> torch.Tensor:
        return vid.permute(1, 0, 2, 3)


def test_presets_of_the_references() -> None:
    """With targets; SSD's fills, which name masks and mean images; and clips, which are tensors from the first."""
    mean = (123.0, 117.0, 104.0)
    fill = defaultdict(lambda: mean, {tv_tensors.Mask: 0})
    ssd = td.from_torchvision(References(v2.RandomZoomOut(fill=fill, side_range=(2, 2), p=1.0), v2.ToImage()))
    images = np.full((1, 10, 10, 3), 200, np.uint8)
    dataset = td.InMemoryDataset(image=images, mask=np.ones((1, 10, 10), np.uint8), kinds={"mask": "mask"})
    for transform in (ssd, T.RandomZoomOut(fill, (2, 2), 1.0)):
        image, mask = next(iter(td.DataLoader(dataset, 1, transform=transform, device="cpu")))
        assert set(map(tuple, image.data[0].flatten(1).T.tolist())) == {(200, 200, 200), (123, 117, 104)}
        assert mask.data.unique().tolist() == [0, 1]
    clips = [v1.ConvertImageDtype(torch.float32), v1.Resize((8, 9), antialias=False), v1.Normalize((0.5,), (0.5,))]
    video = td.from_torchvision(v1.Compose(clips))
    assert video.transforms[:2] == [T.ToDtype(torch.float32, True), T.Resize((8, 9), antialias=False)]
    with pytest.raises(ValueError, match=r"leave it out, and write clips.movedim\(1, 2\)"):
        td.from_torchvision(v1.Compose([*clips, ConvertBCHWtoCBHW()]))


def convert(image: Any) -> Any:
    return image.convert("RGB")


@pytest.mark.parametrize("function", [convert, lambda img: img.convert("RGB") if img.mode != "RGB" else img])
def test_what_makes_images_rgb_does_nothing(function: Any) -> None:
    """As CLIP's `_convert_image_to_rgb`: images of files are RGB, and others are not taken for it."""
    for one in (function, v1.Lambda(function)):
        assert td.from_torchvision(v1.Compose([v1.CenterCrop(8), one])).transforms == [T.CenterCrop((8, 8))]
        grey = td.from_torchvision(v1.Compose([v1.Grayscale(), one])).transforms
        assert grey == [T.Grayscale(1), T.RGB()]
    for other in (lambda img: img.convert("L"), lambda img: img.convert("RGB").mode, lambda img: img.mode):
        with pytest.raises(ValueError, match=r"PerSample\(f\), which calls f\(sample\) for each sample"):
            td.from_torchvision(v1.Compose([v1.CenterCrop(8), other]))


def of_library(name: str, module: str, base: type = object, **members: Any) -> Any:
    return type(name, (base,), {"__module__": module, **members})()


def test_transforms_of_other_libraries() -> None:
    """The words are given wherever one is tried, and work."""
    called = {"__call__": lambda self, *, image: {"image": image[::-1]}}
    named = of_library("Compose", "albumentations.core.composition", **called)
    batches = of_library("AugmentationSequential", "kornia.augmentation.container.augment", torch.nn.Sequential)
    dataset = td.InMemoryDataset(image=np.arange(48, dtype=np.uint8).reshape(1, 4, 4, 3), label=[1])
    with pytest.warns(FutureWarning, match="deprecated"):
        scripted = torch.jit.script(torch.nn.Sequential(v1.CenterCrop(3)))
    for thing, words in (
        (named, r'write torchdali.transforms.PerSample\(lambda sample: \(transform\(image=sample\[0\]\)\["image"\], '),
        (batches, r"write DataLoader\(..., batch_transform=lambda batch: \(augment\(batch\[0\]\), \*batch\[1:\]\)\)"),
        (scripted, "give the transforms as they were before torch.jit.script"),
    ):
        for attempt in (td.from_torchvision, lambda one: T.Compose([one]), lambda one: T.RandomApply([one]),
                        lambda one: td.DataLoader(dataset, 1, transform=one)):  # fmt: skip
            with pytest.raises(TypeError, match=words) as caught:
                attempt(thing)
            assert "\n" not in str(caught.value)
        with pytest.raises(ValueError, match=words):
            td.from_torchvision(v1.Compose([v1.CenterCrop(8), thing]))
    with pytest.raises(TypeError, match="takes its pictures by names"):
        T.PerSample(named)
    step = T.PerSample(lambda sample: (named(image=sample[0])["image"], *sample[1:]), form="numpy")
    image, label = next(iter(td.DataLoader(dataset, 1, transform=step, device="cpu")))
    assert torch.equal(image[0].permute(1, 2, 0), torch.arange(48, dtype=torch.uint8).view(4, 4, 3).flip(0))
    assert label.tolist() == [1]


def test_rotated_boxes_move_as_their_corners() -> None:
    image = tv_tensors.Image(torch.zeros(3, 40, 60, dtype=torch.uint8))
    boxes = tv_tensors.BoundingBoxes(torch.tensor([[20.0, 15, 10, 6, 30]]), format="CXCYWHR", canvas_size=(40, 60))
    with pytest.raises(ValueError, match=r"rotated boxes move as their corners, so write them as \[m, 4, 2\].*Points"):
        next(iter(td.DataLoader([(image, boxes)], 1, device="cpu")))
    corners = v2.functional.convert_bounding_box_format(boxes, new_format="XYXYXYXY")
    dataset = td.InMemoryDataset(image=[np.zeros((40, 60, 3), np.uint8)], corners=[corners.reshape(-1, 4, 2).numpy()])
    steps = [T.RandomHorizontalFlip(1.0), T.RandomCrop((30, 30))]
    loader = td.DataLoader(
        dataset, 1, transform=T.Compose(steps), device="cpu", seed=3, kinds={"corners": td.kinds.Points()}
    )
    _, moved = next(iter(loader))
    made = moved.data[0, 0] if isinstance(moved, td.Padded) else moved[0, 0]
    expected = v2.functional.horizontal_flip(corners).reshape(4, 2)
    expected = expected - (expected.mean(0) - made.mean(0))  # the crop's place
    # A flip begins at another corner.
    np.testing.assert_allclose(sorted(made.tolist()), sorted(expected.tolist()), atol=1e-3)


@pytest.mark.parametrize(
    ("module", "name", "hint"),
    [
        (T, "ToTensor", r"leave it out, or write torchdali.transforms.ToDtype\(torch.float32, scale=True\)"),
        (T, "Scale", r"write Resize\(size\)"),
        (T, "InterpolationMode", 'write interpolation="bicubic", or torchvision.transforms.InterpolationMode'),
        (T, "SetClampingMode", r"write PerSample\(torchvision.transforms.v2.SetClampingMode\(...\)\)"),
        (T, "Nothing", "^module 'torchdali.transforms' has no attribute 'Nothing'$"),
        (td, "random_split", "write torch.utils.data.random_split, which goes with torchdali's DataLoader"),
        (td, "CIFAR10", "write torchvision.datasets.CIFAR10, which goes with torchdali's DataLoader"),
        (td, "DistributedSampler", "write shuffle=True or False at the loader"),
        (td, "RandomCrop", "write torchdali.transforms.RandomCrop"),
        (td, "ToTensor", "which Normalize does not need"),
        (td.datasets, "CIFAR10", "write torchvision.datasets.CIFAR10"),
        (td.datasets, "Nothing", "^module 'torchdali.datasets' has no attribute 'Nothing'$"),
    ],
)
def test_names_of_torch_and_torchvision(module: Any, name: str, hint: str) -> None:
    """A script that has only its imports changed."""
    assert not hasattr(module, name)
    with pytest.raises(AttributeError, match=hint):
        getattr(module, name)


def test_presets_are_there_without_an_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(T, "presets", raising=False)
    assert T.presets.detection_train


def test_arguments_of_torchvisions_datasets(folder: Path) -> None:
    at_loader = r"takes no transforms?: write DataLoader\(dataset, ..., transform=...\)"
    for transform in (T.Resize(8), T.Compose([T.Resize(8)]), v1.Compose([v1.Resize(8)]), v2.ToImage()):
        with pytest.raises(TypeError, match="ImageFolder " + at_loader):
            td.ImageFolder(folder, transform)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="FileDataset " + at_loader):
            td.FileDataset([__file__], [1], transform=transform)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="InMemoryDataset " + at_loader):
            td.InMemoryDataset(label=[1], transform=transform)
    with pytest.raises(TypeError, match="CocoDataset " + at_loader):
        td.CocoDataset(folder, "a.json", transforms=None)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="File " + at_loader):
        readers.File(file_root=folder, transform=T.Resize(8))
    with pytest.raises(TypeError, match=r"CocoDataset takes no annFile: write annotations=..."):
        td.CocoDataset(root=folder, annFile="a.json")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"takes no target_transform: write DataLoader\(.*batch_transform=f"):
        td.ImageFolder(folder, target_transform=str)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="ImageFolder takes no loader: leave it out"):
        td.ImageFolder(folder, loader=open)  # type: ignore[call-arg]


def test_arguments_of_a_users_own_dataset(folder: Path) -> None:
    """It may take what it likes, and so may columns."""

    class Own(td.ImageFolder):
        def __init__(self, root: Path, transform: Any, loader: str = "") -> None:
            super().__init__(root)
            self.transform = transform

    step = T.Resize(8)
    assert Own(folder, step).transform is Own(folder, transform=step, loader="a").transform is step
    assert td.InMemoryDataset(transform=[1, 2], loader=[3, 4]).fields == ("transform", "loader")


def test_transforms_that_are_called() -> None:
    """As in a dataset of the user's, whose script has only its imports changed."""
    image = torch.zeros(3, 8, 8, dtype=torch.uint8)
    for step in (T.Resize(4), T.Compose([T.Resize(4)]), T.Views([T.Resize(4)]), T.MelSpectrogram(16000)):
        name = type(step).__name__
        with pytest.raises(
            TypeError, match=rf"{name} acts on whole batches .* write DataLoader\(dataset, ..., transform"
        ):
            step(image)
        with pytest.raises(TypeError, match="batch_transform must be a function of a batch, got"):
            td.DataLoader(td.InMemoryDataset(label=[1]), batch_transform=step, device="cpu")
        with pytest.raises(TypeError, match="PerSample takes a function of a sample, got"):
            T.PerSample(step)


def test_functions_of_one_image_as_transforms() -> None:
    """As MoCo's TwoCropsTransform."""

    class TwoCropsTransform:
        def __call__(self, x):  # type: ignore[no-untyped-def]
            return [x, x]

    dataset = td.InMemoryDataset(label=[1])
    with pytest.raises(TypeError, match=r"\(x\): write PerSample\(TwoCropsTransform\) .* and Views\(\[transform, "):
        td.DataLoader(dataset, transform=TwoCropsTransform(), device="cpu")
    with pytest.raises(TypeError, match=r"single tensors; write .*, or torchdali.from_torchvision\(...\)"):
        td.DataLoader(dataset, transform=v1.Compose([v1.Resize(8)]), device="cpu")


def test_set_epoch_of_an_order() -> None:
    """Scripts call it on DistributedSampler and its kin."""
    sampler = td.RepeatedAugmentationSampler(8)
    assert not hasattr(sampler, "set_epoch")
    with pytest.raises(AttributeError, match=r"a loader counts epochs, write loader.set_epoch\(epoch\)"):
        sampler.set_epoch(1)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("mean", "std"), [((123.7, 116.3, 103.5), (58.4, 57.1, 57.4)), ((0.0,) * 3, (255.0,) * 3)])
def test_normalize_in_units_of_255(mean: Any, std: Any) -> None:
    """As DALI's crop_mirror_normalize and OpenCV's users have it: images would come out all alike, in silence."""
    dataset = td.InMemoryDataset(image=np.full((2, 4, 4, 3), 200, np.uint8))
    engines: Any = ("eager", "auto")
    for steps in ([T.Normalize(mean, std)], [lambda sample, rand: sample, T.Normalize(mean, std)]):
        for engine in engines:
            loader = td.DataLoader(dataset, 2, transform=T.Compose(steps), engine=engine, device="cpu")
            with pytest.raises(Exception, match=r"units of .* divide them by 255, or write ToDtype\(torch.float32\)"):
                next(iter(loader))
    floats = T.Compose([T.ToDtype(torch.float32), T.Normalize(mean, std)])
    (images,) = next(iter(td.DataLoader(dataset, 2, transform=floats, device="cpu")))
    assert images[0, 0, 0, 0].item() == pytest.approx((200 - mean[0]) / std[0], abs=1e-5)
