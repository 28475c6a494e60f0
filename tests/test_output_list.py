"""Batches taken apart: output="list", Padded.unbind, and collate_fn on decoded and transformed samples."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader as TorchLoader
from torchvision.transforms import v2

import torchdali as td
from torchdali import transforms as T
from torchdali.samples import as_lists, samples_of
from torchdali.testing import assert_resumes_exactly, make_image_folder

N = 10
BOXES = {"boxes": "boxes"}
SCALE = T.ToDtype(torch.float32, scale=True)


def detection(samples: list[Any]) -> Any:
    """The collate function of torchvision's references/detection."""
    return tuple(zip(*samples, strict=True))


class Detection:
    """Images of several sizes, with as many boxes as there happen to be."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> tuple[torch.Tensor, dict[str, Any]]:
        rng = np.random.default_rng(index)
        image = torch.from_numpy(rng.integers(0, 256, (3, 32 + index, 40 - 2 * index), np.uint8))
        boxes = torch.from_numpy(np.sort(rng.uniform(0, 20, (index % 3, 2, 2)).astype(np.float32), axis=1)).view(-1, 4)
        boxes[:, 2:] += 4
        labels = torch.from_numpy(rng.integers(1, 4, index % 3))
        target = {"boxes": boxes, "labels": labels, "image_id": index, "file": f"{index}.jpg"}
        return image, target


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal, their types included."""
    if isinstance(other, torch.Tensor):
        return isinstance(one, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(other, dict):
        return type(one) is dict and list(one) == list(other) and all(same(one[key], other[key]) for key in other)
    if isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and bool(one == other)


def make(dataset: Any, batch_size: int = 4, **options: Any) -> td.DataLoader:
    if isinstance(dataset, Detection):
        dataset = td.PythonDataset(dataset, kinds={"boxes": "boxes"})
    return td.DataLoader(dataset, batch_size, device="cpu", **options)


# output="list"


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.processes)])
def test_lists_are_what_torchs_zip_of_samples_gives(workers: int) -> None:
    with make(Detection(), output="list", num_workers=workers) as loader:
        ours = list(loader)
    theirs = list(TorchLoader(Detection(), 4, collate_fn=detection))  # type: ignore[arg-type, var-annotated]
    assert len(ours) == 3
    for one, other in zip(ours, theirs, strict=True):
        assert type(one) is tuple and all(type(part) is list for part in one)
        assert same(one, other)


def test_lists_of_transformed_images_resume_exactly() -> None:
    transform = T.Compose([T.RandomHorizontalFlip(), SCALE])

    def loader(**options: Any) -> td.DataLoader:
        return make(Detection(), shuffle=True, seed=2, output="list", transform=transform, kinds=BOXES, **options)

    assert_resumes_exactly(loader)
    images, targets = next(iter(loader()))
    padded, target = next(iter(make(Detection(), shuffle=True, seed=2, transform=transform, kinds=BOXES)))
    assert all(map(torch.equal, images, padded.unbind())) and images[0].dtype == torch.float32
    assert [t["image_id"] for t in targets] == target["image_id"].tolist()
    storage = images[0].untyped_storage().data_ptr()
    assert all(image.untyped_storage().data_ptr() == storage for image in images)  # views of one batch


class Pair(NamedTuple):
    x: Any
    name: Any


@dataclass
class Record:
    x: Any
    extra: dict[str, Any]


FORMS: dict[str, Any] = {
    "a dict": ({"x": torch.ones(2), "deep": {"n": 3, "s": "a"}}, {"x": list, "deep": list}),
    "a NamedTuple": (Pair(torch.ones(2), "a"), None),
    "one value": (torch.ones(2), None),
    "a number": (1.5, None),
}


@pytest.mark.parametrize("sample", [sample for sample, _ in FORMS.values()], ids=FORMS)
def test_parts_of_any_form(sample: Any) -> None:
    (batch,) = make([sample] * 3, 3, output="list")
    if isinstance(sample, dict):
        assert same(batch, {key: [value] * 3 for key, value in sample.items()})
    elif isinstance(sample, Pair):
        assert type(batch) is Pair and same(batch.x, [sample.x] * 3) and batch.name == ["a"] * 3
    else:
        assert type(batch) is list and same(batch, [sample] * 3)


def test_parts_of_a_dataclass_and_fields_beside() -> None:
    (batch,) = make([Record(torch.ones(2), {"a": 1})] * 2, 2, output="list")
    assert type(batch) is Record and same(batch.x, [torch.ones(2)] * 2) and batch.extra == [{"a": 1}] * 2
    data = td.InMemoryDataset(x=[[1.0, 2.0]] * 3, fields=("x", "index", "valid"))
    (batch,) = make(data, 4, output="list", pad_last=True)
    assert batch == ([[1.0, 2.0]] * 4, [0, 1, 2, 0], [True, True, True, False])


def test_views_and_objects_are_told_apart() -> None:
    x, y = torch.arange(6).view(3, 2), torch.arange(3)
    views = {"a": [x, x + 1], "b": {"q": x, "k": x + 2}, "y": y, "o": [x[0], x[1], x[2]]}
    samples = samples_of(views, dict, objects=["o"])
    assert same(samples[2], {"a": [x[2], x[2] + 1], "b": {"q": x[2], "k": x[2] + 2}, "y": 2, "o": x[2]})
    assert as_lists(samples)["y"] == [0, 1, 2]


def test_an_unknown_form_is_answered_with_the_words() -> None:
    with pytest.raises(ValueError, match="output must be one of tuple, dict, list, got 'lists'"):
        make([1], output="lists")


@pytest.mark.slow
def test_a_detector_of_torchvision_trains_on_lists() -> None:
    from torchvision.models.detection import fcos_resnet50_fpn

    torch.manual_seed(0)
    model = fcos_resnet50_fpn(weights=None, weights_backbone=None, num_classes=5, min_size=32, max_size=64).train()
    images, targets = next(iter(make(Detection(), 3, output="list", transform=SCALE)))
    losses = model(images, targets)
    assert set(losses) == {"classification", "bbox_regression", "bbox_ctrness"}
    assert all(bool(torch.isfinite(loss)) for loss in losses.values())
    sum(losses.values()).backward()


# Padded


def test_unbind_gives_views_of_the_true_sizes() -> None:
    rows = [torch.rand(2, h, w) for h, w in [(3, 5), (1, 1), (4, 2), (0, 3)]]
    (padded,) = make([row.numpy() for row in rows], 4, ragged=["value"])
    assert all(map(torch.equal, padded.unbind(), rows))
    (images, _) = next(iter(make(Detection())))
    assert all(torch.equal(image, Detection()[i][0]) for i, image in enumerate(images.unbind()))
    images.unbind()[0].zero_()
    assert not images.data[0].any()
    data, sizes = images  # it stays a pair
    assert (data.shape, sizes.shape) == ((4, 3, 35, 40), (4, 2))


def test_its_text_is_short() -> None:
    images, _ = next(iter(make(Detection())))
    assert repr(images) == "Padded([4, 3, 35, 40] uint8 on cpu, sizes [32, 34] to [35, 40])"
    assert str(td.Padded(torch.zeros(2, 3), torch.tensor([[3], [3]]))) == "Padded([2, 3] float32 on cpu, sizes all [3])"


# collate_fn on decoded samples


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_image_folder(tmp_path_factory.mktemp("images"), classes=3, per_class=3)


def test_it_gets_the_samples_of_a_folder(root: Path) -> None:
    transform = T.Compose([T.RandomResizedCrop(8), T.RandomHorizontalFlip(), SCALE])
    plain = make(td.ImageFolder(root), shuffle=True, transform=transform)
    loader = make(td.ImageFolder(root), shuffle=True, transform=transform, collate_fn=detection)
    assert len(loader) == len(plain) == 3
    for (images, labels), (expected, numbers) in zip(loader, plain, strict=True):
        assert type(images) is tuple and all(map(torch.equal, images, expected))
        assert labels == tuple(numbers.tolist()) and type(labels[0]) is int


def test_torchvisions_detection_habit_works_on_image_files(root: Path) -> None:
    """Its datasets give (image, target), and `collate_fn=lambda batch: tuple(zip(*batch))` keeps the images' sizes."""

    class Files:
        files = sorted(root.rglob("*.jpg"))

        def __len__(self) -> int:
            return len(self.files)

        def __getitem__(self, index: int) -> Any:
            boxes = torch.tensor([[0.0, 0.0, 4.0, 5.0]] * (index % 3)).view(-1, 4)
            target = {"boxes": boxes, "labels": torch.ones(index % 3, dtype=torch.int64), "image_id": index}
            return Image.open(self.files[index]), target

    data = td.PythonDataset(Files(), kinds={"boxes": "boxes"})
    ours = make(data, transform=SCALE, collate_fn=lambda batch: tuple(zip(*batch)))
    seen = 0
    for images, targets in ours:
        for image, target in zip(images, targets, strict=True):
            expected, truth = Files()[seen]
            pixels = torch.from_numpy(np.array(expected.convert("RGB"))).permute(2, 0, 1)
            assert (
                image.shape == pixels.shape
                and torch.equal(image, v2.functional.to_dtype(pixels, torch.float32, scale=True))
                and same(target, truth)
            )
            seen += 1
    assert seen == len(Files())


def noisy(samples: list[Any]) -> dict[str, Any]:
    images, labels = zip(*samples, strict=True)
    return {
        "x": torch.stack(images),
        "y": labels,
        "u": (random.random(), float(np.random.rand()), float(torch.rand(()))),
    }


@pytest.mark.processes
def test_random_code_in_it_is_seeded_by_the_batch(root: Path) -> None:
    from torchvision.datasets import ImageFolder

    def stream(at: int, workers: int = 0) -> list[str]:
        options: dict[str, Any] = {"transform": T.Resize((6, 6)), "collate_fn": noisy, "shuffle": True, "seed": 3}
        with make(td.PythonDataset(ImageFolder(str(root))), num_workers=workers, **options) as loader:
            loader.seek(0, at)
            return [repr(batch) for batch in loader]

    whole = stream(0)
    torch.manual_seed(5)
    assert whole[1:] == stream(1) == stream(1, workers=1) and len(set(whole)) == 3
    drawn = torch.rand(())
    torch.manual_seed(5)
    assert drawn == torch.rand(())  # the caller's generators are left alone


def test_without_a_transform_samples_of_python_code_stay_as_they_are() -> None:
    """They are put together in the workers; with one, by the caller, as tensors."""
    data = [(Image.new("RGB", (4, 4), (i, 0, 0)), i) for i in range(3)]
    ((pictures, _),) = make(data, 3, collate_fn=detection)
    assert all(isinstance(picture, Image.Image) for picture in pictures)
    ((tensors, labels),) = make(data, 3, collate_fn=detection, transform=T.Resize((2, 2)))
    assert [tuple(x.shape) for x in tensors] == [(3, 2, 2)] * 3 and labels == (0, 1, 2)


@pytest.mark.parametrize(
    "dataset",
    [
        td.SampleSource(lambda info: (np.full(3, info.idx_in_epoch), info.idx_in_epoch), num_samples=6),
        td.InMemoryDataset(x=np.arange(18).reshape(6, 3), y=np.arange(6)),
        td.PythonDataset([(np.full(3, i), i) for i in range(6)], ["x", "y", "index"]),
    ],
    ids=lambda dataset: type(dataset).__name__,
)
def test_any_source_takes_it(dataset: Any) -> None:
    options: dict[str, Any] = {}
    if isinstance(dataset, td.PythonDataset):
        options["transform"] = lambda sample, rand: dict(sample)
    batches = list(make(dataset, 4, collate_fn=list, **options))
    assert [[sample[1] for sample in batch] for batch in batches] == [[0, 1, 2, 3], [4, 5]]


def test_an_error_in_it_is_noted_and_loses_no_place() -> None:
    def collate(samples: list[Any]) -> Any:
        if samples[0] == (4,):
            raise KeyError("no such word")
        return samples

    loader = make(td.InMemoryDataset(x=range(8)), collate_fn=collate)
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(KeyError) as caught:
        next(iterator)
    assert any(
        "collate_fn=collate raised this for the batch at epoch 0, sample 4" in note for note in caught.value.__notes__
    )
    assert loader.state_dict()["samples_seen"] == 4


def test_as_in_torch_a_batch_may_be_nothing() -> None:
    assert list(make(td.InMemoryDataset(x=range(8)), collate_fn=lambda samples: None)) == [None, None]


def test_default_collate_means_ours(root: Path) -> None:
    from torch.utils.data import default_collate

    images, labels = next(iter(make(td.ImageFolder(root), collate_fn=default_collate, transform=T.Resize((4, 4)))))
    assert images.shape == (4, 3, 4, 4) and labels.shape == (4,)


# Pad values of nested fields


def test_pad_values_by_the_last_part_of_a_name() -> None:
    data = [{"target": {"boxes": torch.ones(n, 4), "ids": torch.ones(n, dtype=torch.int64)}, "x": n} for n in (2, 1)]
    for boxes in ("target.boxes", "boxes"):
        (batch,) = make(data, 2, ragged=["target.boxes", "target.ids"], pad_value={boxes: -1, "ids": -100})
        assert batch["target"]["boxes"].data[1].tolist() == [[1] * 4, [-1] * 4]
        assert batch["target"]["ids"].data.tolist() == [[1, 1], [1, -100]]
    with pytest.raises(ValueError, match=r"pad_value must name fields among .*, got 'box'"):
        next(iter(make(data, 2, pad_value={"box": 1})))
    both = [{"a": {"x": torch.ones(n)}, "b": {"x": torch.ones(n)}} for n in (1, 2)]
    with pytest.raises(ValueError, match=r"pad_value must name one field, and 'x' may be a\.x or b\.x"):
        next(iter(make(both, 2, pad_value={"x": 1})))
    (batch,) = make(both, 2, ragged=["a.x", "b.x"], pad_value={"a.x": 1, "b.x": 2})
    assert (batch["a"]["x"].data[0, 1], batch["b"]["x"].data[0, 1]) == (1, 2)
