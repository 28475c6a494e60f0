"""The migration guide, docs/coming-from.md: each row of its tables is a test here, and each test a row."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import runpy
import shutil
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import nvidia.dali.experimental.dynamic as ndd
import pytest
import torch
from nvidia.dali import fn, pipeline_def
from nvidia.dali.plugin.pytorch import DALIGenericIterator, LastBatchPolicy
from PIL import Image
from torch.utils.data import (
    ConcatDataset,
    Dataset,
    DistributedSampler,
    IterableDataset,
    Subset,
    WeightedRandomSampler,
    get_worker_info,
    random_split,
)
from torchdata.stateful_dataloader import StatefulDataLoader
from torchvision import tv_tensors
from torchvision.datasets import CocoDetection, ImageFolder, VOCSegmentation, wrap_dataset_for_transforms_v2
from torchvision.ops import masks_to_boxes
from torchvision.transforms import v2

import torchdali as td
from torchdali import transforms as T

from . import test_gpu
from .guide import Rows
from .launcher import ROOT
from .patience import wait_until

RECIPES = (ROOT / "recipes" / "README.md").read_text()
row = Rows(
    "torch.utils.data",
    "scripts for detection, segmentation and self-supervised training",
    "DALI's pipeline mode",
    "dynamic mode itself",
)


def test_each_row_has_a_test_and_each_test_a_row() -> None:
    row.check()


def test_each_recipe_is_in_the_guide() -> None:
    listed = re.findall(r"^\| \[`(\w+\.py)`\]\(\1\) \|", RECIPES, re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in (ROOT / "recipes").glob("*.py"))


# What the rows share

SIZE = [24, 24]


def make(dataset: Any, batch_size: int | None = 4, **options: Any) -> td.DataLoader:
    return td.DataLoader(dataset, batch_size, **({"device": "cpu", "output": "dict"} | options))


def files(root: Path, **options: Any) -> td.ImageFolder:
    return td.ImageFolder(root, fields=("image", "label", "index"), **options)


def read(dataset: Any, **options: Any) -> list[dict[str, Any]]:
    with make(dataset, **options) as loader:
        return list(loader)


def values(batches: list[dict[str, Any]], name: str) -> list[Any]:
    return [value for batch in batches for value in (batch[name].tolist() if name != "text" else batch[name])]


def resized(sample: dict[str, Any], rand: Any) -> dict[str, Any]:
    """The body of `images_and_labels`, in dynamic mode."""
    images = ndd.decoders.image(sample["image"], device=rand.device)
    return {**sample, "image": ndd.resize(images, size=SIZE)}


@pipeline_def(num_threads=2, device_id=None, seed=0)
def images_and_labels(root: Path) -> Any:
    encoded, labels = fn.readers.file(name="reader", file_root=str(root))
    return fn.resize(fn.decoders.image(encoded, device="cpu"), size=SIZE), labels


def run(pipe: Any, count: int = 1) -> list[tuple[torch.Tensor, ...]]:
    """Some batches of a pipeline as tensors, images as [N, C, H, W]."""
    pipe.build()
    outputs = [tuple(torch.from_numpy(np.array(part.as_tensor())) for part in pipe.run()) for _ in range(count)]
    return [tuple(part.permute(0, 3, 1, 2) if part.ndim == 4 else part for part in batch) for batch in outputs]


# From torch.utils.data


class Encoded(Dataset[Any]):
    """A dataset as people write them, without the decoding."""

    def __init__(self, root: Path) -> None:
        self.samples = ImageFolder(str(root)).samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> dict[str, Any]:
        path, label = self.samples[index]
        return {"image": Path(path).read_bytes(), "label": label, "text": Path(path).stem}


class Count(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(10))


@row("`DataLoader(ImageFolder(root, transform), 256, shuffle=True)`")
def test_an_image_folder(folder: Path) -> None:
    steps = [v2.Resize(SIZE), v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.2] * 3)]
    theirs = ImageFolder(str(folder), v2.Compose(steps))
    expected = list(torch.utils.data.DataLoader(theirs, 4))
    written = T.Compose([T.Resize(SIZE), T.Normalize(mean=[0.5] * 3, std=[0.2] * 3)])
    for batches in (read(td.ImageFolder(folder), transform=written), read(td.from_torchvision(theirs))):
        for (images, labels), batch in zip(expected, batches, strict=True):
            assert (images - batch["image"]).abs().max() < 0.2 and torch.equal(labels, batch["label"])  # other decoders
    shuffled = values(read(files(folder), transform=T.Resize(SIZE), shuffle=True), "index")
    assert sorted(shuffled) == list(range(22)) != shuffled


@pytest.mark.processes
@row("a map-style `Dataset`")
def test_a_map_style_dataset(folder: Path) -> None:
    expected = read(td.ImageFolder(folder), transform=T.Resize(SIZE))
    batches = read(Encoded(folder), transform=T.Resize(SIZE), num_workers=2)
    for one, other in zip(expected, batches, strict=True):
        assert torch.equal(one["image"], other["image"]) and torch.equal(one["label"], other["label"])
    assert values(batches, "text")[0] == Path(td.ImageFolder(folder).paths[0]).stem


@pytest.mark.processes
@row("an `IterableDataset`")
def test_an_iterable_dataset() -> None:
    theirs = torch.utils.data.DataLoader(Count(), 4)
    assert [b.tolist() for b in theirs] == [b.tolist() for b in make(Count(), output="tuple")]
    with make(Count(), num_workers=2, output="tuple") as loader:
        assert sorted(number for batch in loader for number in batch.tolist()) == list(range(10))
    ranks = [make(Count(), output="tuple", rank=rank, world_size=2) for rank in range(2)]
    assert [[number for batch in one for number in batch.tolist()] for one in ranks] == [
        [0, 2, 4, 6, 8],
        [1, 3, 5, 7, 9],
    ]
    with make(Count(), output="tuple") as loader:
        next(iter(loader))
        state = loader.state_dict()
    with make(Count(), output="tuple") as loader, pytest.warns(RuntimeWarning, match="4 samples are iterated again"):
        loader.load_state_dict(state)
        assert [batch.tolist() for batch in loader] == [[4, 5, 6, 7], [8, 9]]


@row("`random_split`, `Subset`, `ConcatDataset`")
def test_compositions(folder: Path) -> None:
    whole = files(folder)
    first, second = random_split(whole, [15, 7], generator=torch.Generator().manual_seed(0))
    expected = values(read(whole, transform=T.Resize(SIZE)), "label")
    for dataset, indices in (
        (first, first.indices),
        (Subset(whole, [3, 1]), [3, 1]),
        (ConcatDataset([first, second]), [*first.indices, *second.indices]),
    ):
        assert values(read(dataset, transform=T.Resize(SIZE)), "label") == [expected[i] for i in indices]
    mix = td.Mix({first: 0.7, second: 0.3}, num_samples=20)
    found = np.array(values(read(mix, transform=T.Resize(SIZE)), "index"))
    assert np.count_nonzero(found < 15) == 14 and len(found) == 20


@pytest.mark.processes
@row("`num_workers=8`")
def test_workers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchdali.source._warned", set())
    assert values(read(Encoded(folder), transform=T.Resize(SIZE), num_workers=3), "label") == [0] * 11 + [1] * 11
    with pytest.warns(UserWarning, match="num_workers=3 changes nothing; write num_threads=3"):
        make(td.ImageFolder(folder), num_workers=3)
    read(td.ImageFolder(folder), transform=T.Resize(SIZE), num_threads=3)


def remember(worker: int) -> None:
    get_worker_info().dataset.worker = worker  # type: ignore[union-attr]


class Worker(Dataset[int]):
    worker = -1

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> dict[str, int]:
        info = get_worker_info()
        assert info is not None
        return {"told": self.worker, "id": info.id, "num_workers": info.num_workers, "pid": os.getpid()}


class Slow(Worker):
    def __getitem__(self, index: int) -> dict[str, int]:
        time.sleep(900)
        return super().__getitem__(index)


@pytest.mark.processes
@row("`worker_init_fn`, `persistent_workers`, `multiprocessing_context`, `prefetch_factor`, `timeout`")
def test_options_of_workers() -> None:
    names = {"worker_init_fn": remember, "persistent_workers": True, "prefetch_factor": 3, "timeout": 30}
    for context in (None, "fork"):
        with make(Worker(), 2, num_workers=2, multiprocessing_context=context, **names) as loader:
            before = None
            for _ in range(2):
                batches = list(loader)
                told = values(batches, "told")
                assert set(told) == {0, 1} and len(told) == 6
                before = before or {*values(batches, "pid")}
                assert {*values(batches, "pid")} == before  # they persist
    with make(Slow(), 1, num_workers=1, timeout=0.3) as loader, pytest.raises(td.LoaderTimeoutError):
        list(loader)


@pytest.mark.processes
@row("`get_worker_info()`")
def test_worker_info() -> None:
    batches = read(Worker(), num_workers=2, batch_size=2)
    assert set(values(batches, "id")) == {0, 1} and set(values(batches, "num_workers")) == {2}


@dataclass
class Boxes:
    name: str
    boxes: np.ndarray[Any, Any]


class Detections(Dataset[Boxes]):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Boxes:
        return Boxes(f"image {index}", np.full((index + 1, 4), index, np.float32))


@row("`collate_fn=`")
def test_collating() -> None:
    with make(Detections(), 3, output="tuple") as loader:
        (batch,) = loader
    assert isinstance(batch, Boxes) and batch.name == ["image 0", "image 1", "image 2"]  # type: ignore[comparison-overlap]
    assert batch.boxes.data.shape == (3, 3, 4) and batch.boxes.sizes[:, 0].tolist() == [1, 2, 3]
    assert batch.boxes.mask.any(-1).sum(1).tolist() == [1, 2, 3]  # type: ignore[attr-defined]
    with make(Detections(), 3, collate_fn=list, output="tuple") as loader:
        (samples,) = loader
    assert [sample.name for sample in samples] == ["image 0", "image 1", "image 2"]
    with make(td.InMemoryDataset(x=[1, 2, 3]), 3, collate_fn=list, output="tuple") as loader:
        assert list(loader) == [[(1,), (2,), (3,)]]


@row("MixUp, CutMix or timm's `Mixup` in the training loop or in `collate_fn=`")
def test_mixing() -> None:
    data = td.InMemoryDataset(image=np.random.default_rng(0).integers(0, 256, (8, 4, 4, 3), np.uint8), label=range(8))

    def stream(state: Any = None) -> list[Any]:
        mix = v2.RandomChoice([v2.MixUp(num_classes=8), v2.CutMix(num_classes=8)])
        loader = make(data, 2, transform=T.ToDtype(torch.float32, scale=True), batch_transform=mix, output="tuple")
        if state is not None:
            loader.seek(*state)
        return list(loader)

    whole, rest = stream(), stream((0, 2))
    assert all(map(torch.equal, whole[2] + whole[3], rest[0] + rest[1])) and whole[0][1].shape == (2, 8)


@row("`batch_size=None`")
def test_items_that_are_batches() -> None:
    batches = list(make([np.full((n, 2), n) for n in (3, 1, 2)], None, output="tuple"))
    assert [tuple(batch.shape) for batch in batches] == [(3, 2), (1, 2), (2, 2)]


@row("`batch_sampler=`")
def test_batches_of_a_sampler(folder: Path) -> None:
    batches = read(files(folder), batch_size=1, batch_sampler=[[0, 7], [3]], transform=T.Resize(SIZE))
    assert [batch["index"].tolist() for batch in batches] == [[0, 7], [3]]
    assert values(read(files(folder), sampler=[5, 3, 1], transform=T.Resize(SIZE)), "index") == [5, 3, 1]
    lengths = [1 + i % 5 for i in range(22)]
    sampler = td.LengthBucketSampler(lengths, tokens_per_batch=10)
    batches = read(files(folder), batch_size=1, sampler=sampler, transform=T.Resize(SIZE))
    assert all(max(lengths[i] for i in batch["index"].tolist()) * len(batch["index"]) <= 10 for batch in batches)


@pytest.mark.processes
@row("an `InfiniteDataLoader` or `MultiEpochsDataLoader` that keeps its workers (YOLO, timm)")
def test_workers_are_kept() -> None:
    class Pids(torch.utils.data.Dataset[int]):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> int:
            return os.getpid()

    with make(Pids(), 4, num_workers=1, persistent_workers=True, output="tuple") as loader:
        (first,), (second,) = list(loader), list(loader)
    assert first.unique().tolist() == second.unique().tolist() != [os.getpid()]


@row("an `InfiniteSampler` (mmengine, YOLOX)")
def test_samplers_without_an_end() -> None:
    class InfiniteSampler(torch.utils.data.Sampler[int]):
        def __len__(self) -> int:
            return 4

        def __iter__(self) -> Any:
            while True:
                yield from torch.randperm(4).tolist()

    with pytest.raises(ValueError, match="without an end: leave it out and write shuffle=True"):
        list(make([0, 1, 2, 3], 2, sampler=InfiniteSampler()))
    loader = make([0, 1, 2, 3], 4, shuffle=True, output="tuple")
    assert [sorted(batch.tolist()) for _ in range(2) for batch in loader] == [[0, 1, 2, 3]] * 2


@row("`loader.collate_fn([dataset[0], dataset[1]])`")
def test_collate_fn_of_a_loader() -> None:
    dataset = [(torch.tensor([1.0, 2.0]), 3), (torch.tensor([4.0, 5.0]), 6)]
    (batch,) = loader = make(dataset, 2, output="tuple")
    for ours, theirs in zip(batch, loader.collate_fn([dataset[0], dataset[1]]), strict=True):
        assert torch.equal(ours, theirs)


@row("`isinstance(loader, DataLoader)`")
def test_a_loader_of_both_classes() -> None:
    class Loader(td.DataLoader, torch.utils.data.DataLoader):
        pass

    loader = Loader([0, 1, 2, 3], 2, device="cpu", output="tuple")
    assert isinstance(loader, torch.utils.data.DataLoader) and not isinstance(make([0]), torch.utils.data.DataLoader)
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3]]


@row("`DistributedSampler(dataset)`, `sampler.set_epoch(epoch)`")
def test_ranks(folder: Path) -> None:
    with pytest.raises(TypeError, match="leave it out and write shuffle=True or False"):
        make(files(folder), sampler=DistributedSampler(files(folder), 2, 0))
    loaders = [make(files(folder), rank=r, world_size=2, shuffle=True, transform=T.Resize(SIZE)) for r in range(2)]
    epochs = [[values(list(loader), "index") for loader in loaders] for _ in range(2)]
    assert all(sorted(one + other) == list(range(22)) for one, other in epochs) and epochs[0] != epochs[1]
    for loader in loaders:
        loader.set_epoch(0)
    assert [values(list(loader), "index") for loader in loaders] == epochs[0]


@row("`WeightedRandomSampler(weights, n)`")
def test_weights(folder: Path) -> None:
    weights = [0.0] * 11 + [1.0] * 11
    for sampler in (WeightedRandomSampler(weights, 30), td.WeightedSampler(weights, 30)):
        found = values(read(files(folder), sampler=sampler, transform=T.Resize(SIZE)), "label")
        assert found == [1] * 30


@row("`generator=`, `torch.manual_seed(seed)`")
def test_seeds(folder: Path) -> None:
    def stream(seed: int) -> list[Any]:
        return values(read(files(folder), shuffle=True, seed=seed, transform=T.RandomCrop(8)), "index")

    torch.manual_seed(1)
    before = torch.get_rng_state()
    one = stream(1)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert stream(1) == one != stream(2)
    with make(
        files(folder), shuffle=True, transform=T.RandomCrop(8), generator=torch.Generator().manual_seed(1)
    ) as same:
        assert values(list(same), "index") == one


@row("`drop_last=True`")
def test_the_last_batch(folder: Path) -> None:
    def sizes(**options: Any) -> list[list[int]]:
        ranks = [make(files(folder), 4, rank=r, world_size=2, transform=T.Resize(SIZE), **options) for r in range(2)]
        return [[len(batch["index"]) for batch in loader] for loader in ranks]

    assert sizes(drop_last=True) == [[4, 4]] * 2
    assert sizes() == [[4, 4, 3]] * 2  # of the 22nd samples none twice
    assert sizes(pad_last=True) == [[4, 4, 4]] * 2
    padded = td.ImageFolder(folder, fields=("image", "index", "valid"))
    batches = [b for r in range(2) for b in read(padded, rank=r, world_size=2, pad_last=True, transform=T.Resize(SIZE))]
    kept = [i for i, valid in zip(values(batches, "index"), values(batches, "valid"), strict=True) if valid]
    assert sorted(kept) == list(range(22))


@row("`pin_memory=True`, `batch.to(device, non_blocking=True)`")
def test_the_device(folder: Path) -> None:
    """On a GPU: tests/test_gpu.py."""
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    with td.DataLoader(td.ImageFolder(folder), 4, transform=T.Resize(SIZE), pin_memory=True) as loader:
        assert loader.device.type == expected and next(iter(loader))[0].device.type == expected


@row("`StatefulDataLoader`")
def test_states(folder: Path) -> None:
    def consumed(loader: Any, count: int) -> Any:
        for _ in zip(range(count), loader):
            pass
        return loader.state_dict()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torchdata calls torch by a deprecated name
        theirs = StatefulDataLoader(range(22), 4)
        state = consumed(theirs, 2)
        theirs = StatefulDataLoader(range(22), 4)
        theirs.load_state_dict(state)
        expected = [batch.tolist() for batch in theirs]
    states = [consumed(make(files(folder), 4, rank=r, world_size=2, transform=T.Resize(SIZE)), 1) for r in range(2)]
    assert states[0] == states[1]
    ours = make(files(folder), 4, transform=T.Resize(SIZE))
    ours.load_state_dict(states[0])
    assert [batch["index"].tolist() for batch in ours] == expected


@row("`islice(loader, n, None)` to skip what was seen")
def test_skipping(folder: Path) -> None:
    def loader() -> td.DataLoader:
        return make(files(folder), shuffle=True, transform=T.RandomCrop(8))

    skipped = [batch["image"] for batch in islice(loader(), 3, None)]
    sought = loader()
    sought.seek(0, 3)
    assert all(torch.equal(one, batch["image"]) for one, batch in zip(skipped, sought, strict=True))


# From scripts for detection, segmentation and self-supervised training


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight images with COCO annotations and masks of ids in palettes, as scripts/make_shapes.py writes them."""
    out = tmp_path_factory.mktemp("shapes")
    runpy.run_path(str(ROOT / "scripts" / "make_shapes.py"))["make_shapes"](out, 8, 0)
    return out / "train"


def coco_detection(shapes: Path) -> Any:
    with contextlib.redirect_stdout(None):
        return CocoDetection(str(shapes / "images"), str(shapes / "instances.json"))


def voc(shapes: Path, root: Path) -> VOCSegmentation:
    """The same images and masks in the folders of VOC."""
    folder = root / "VOCdevkit" / "VOC2012"
    shutil.copytree(shapes / "images", folder / "JPEGImages")
    shutil.copytree(shapes / "masks", folder / "SegmentationClass")
    (folder / "ImageSets" / "Segmentation").mkdir(parents=True)
    names = sorted(path.stem for path in (shapes / "masks").iterdir())
    (folder / "ImageSets" / "Segmentation" / "train.txt").write_text("\n".join(names))
    return VOCSegmentation(str(root), "2012", "train")


class Pedestrians(Dataset[Any]):
    """The dataset of the tutorial: masks of objects, and their boxes."""

    def __init__(self, shapes: Path, typed: bool = True) -> None:
        self.masks, self.typed = sorted((shapes / "masks").iterdir()), typed

    def __len__(self) -> int:
        return len(self.masks)

    def __getitem__(self, index: int) -> tuple[Any, dict[str, Any]]:
        path = self.masks[index]
        image = v2.functional.to_image(Image.open(path.parents[1] / "images" / f"{path.stem}.jpg"))
        ids = torch.from_numpy(np.array(Image.open(path)))
        labels = ids.unique()[1:].long()
        masks = (ids == labels[:, None, None]).to(torch.uint8)
        boxes = masks_to_boxes(masks)
        if not self.typed:
            boxes[:, 2:] -= boxes[:, :2]
            return torch.Tensor(image).to(torch.uint8), {"boxes": boxes, "masks": masks, "labels": labels}
        typed_boxes = tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=v2.functional.get_size(image))  # type: ignore[call-overload]
        return image, {"boxes": typed_boxes, "masks": tv_tensors.Mask(masks), "labels": labels, "image_id": index}


def flipped(dataset: Any, **options: Any) -> list[tuple[torch.Tensor, dict[str, Any]]]:
    """All samples of a dataset for detection, mirrored by the loader."""
    transform = T.RandomHorizontalFlip(1.0)
    with make(dataset, transform=transform, output="list", **options) as loader:
        return [sample for images, targets in loader for sample in zip(images, targets, strict=True)]


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # pycocotools
@row("`wrap_dataset_for_transforms_v2(CocoDetection(root, annotations))`")
def test_wrapped_coco(shapes: Path) -> None:
    wrapped = wrap_dataset_for_transforms_v2(coco_detection(shapes), {"boxes", "labels", "masks", "image_id"})
    theirs = [v2.RandomHorizontalFlip(1.0)(v2.functional.to_image(image), target) for image, target in wrapped]
    same = flipped(wrapped)
    ours = flipped(td.CocoDataset(shapes / "images", shapes / "instances.json", box_format="xyxy", masks=True))
    assert len(theirs) == len(same) == len(ours) == 8
    for samples in (same, ours):
        for (image, target), (their_image, their_target) in zip(samples, theirs, strict=True):
            assert torch.equal(image, their_image) and target["image_id"] == their_target["image_id"]
            assert len(target["boxes"]) == len(their_target.get("boxes", ()))  # torchvision leaves out what is empty
            for name in {"boxes", "labels"} & set(their_target):
                assert torch.equal(target[name], their_target[name].to(target[name].dtype))
    for (image, target), (_, their_target) in zip(same, theirs, strict=True):
        assert torch.equal(target["masks"], their_target.get("masks", target["masks"]))
        assert target["masks"].shape[1:] == image.shape[1:]
    for (_, target), (_, others) in zip(ours, same, strict=True):  # polygons are mirrored before they are drawn
        assert target["masks"].shape == others["masks"].shape
        assert not len(others["masks"]) or (target["masks"] != others["masks"]).float().mean() < 0.02


@row("a `Dataset` of tv_tensors, as in the tutorial of Mask R-CNN")
def test_tv_tensors(shapes: Path) -> None:
    for (image, target), (before, its) in zip(flipped(Pedestrians(shapes)), Pedestrians(shapes), strict=True):
        expected = v2.RandomHorizontalFlip(1.0)(before, its)
        assert torch.equal(image, expected[0]) and target["image_id"] == its["image_id"]
        assert all(torch.equal(target[name], expected[1][name]) for name in ("boxes", "masks", "labels"))


@row("a `Dataset` of plain tensors of boxes and masks")
def test_plain_tensors(shapes: Path) -> None:
    plain = Pedestrians(shapes, typed=False)
    with pytest.raises(td.TorchDaliError, match="kinds="):  # which of the formats it is can't be seen
        flipped(plain)
    found = flipped(plain, kinds={"boxes": td.kinds.Boxes("xywh"), "masks": "mask"})
    for (image, target), (expected, its) in zip(found, flipped(Pedestrians(shapes)), strict=True):
        assert torch.equal(image, expected) and torch.equal(target["masks"], its["masks"])
        target["boxes"][:, 2:] += target["boxes"][:, :2]
        assert torch.equal(target["boxes"], its["boxes"])


@row("`collate_fn=lambda batch: tuple(zip(*batch))`")
def test_lists(shapes: Path) -> None:
    data = Pedestrians(shapes)
    theirs = torch.utils.data.DataLoader(data, 3, collate_fn=lambda batch: tuple(zip(*batch, strict=True)))
    with make(data, 3, output="list") as loader:
        for (images, targets), (their_images, their_targets) in zip(loader, theirs, strict=True):
            assert all(map(torch.equal, images, their_images)) and len(targets) == len(their_targets)
            for target, its in zip(targets, their_targets, strict=True):
                assert target.keys() == its.keys() and torch.equal(target["boxes"], its["boxes"])


@row("v2's `RandomPhotometricDistort`, `RandomZoomOut`, `RandomIoUCrop`, `RandomShortestSize`, `SanitizeBoundingBoxes`")
def test_ssds_augmentation(shapes: Path) -> None:
    names = "RandomPhotometricDistort RandomZoomOut RandomIoUCrop RandomShortestSize SanitizeBoundingBoxes"
    steps = [getattr(T, name)(*([[48, 64], 96] if "Shortest" in name else [])) for name in names.split()]
    assert all(hasattr(v2, name) for name in names.split())
    transform = T.Compose([*steps, T.ToDtype(torch.float32, scale=True)])
    objects = 0
    with make(Pedestrians(shapes), transform=transform, output="list", shuffle=True) as loader:
        for images, targets in [*loader, *loader]:
            for image, target in zip(images, targets, strict=True):
                boxes, size = target["boxes"], image.shape[1:]
                assert len(boxes) == len(target["labels"]) == len(target["masks"]) and min(size) <= 64
                for box, mask in zip(boxes, target["masks"], strict=True):
                    objects += 1
                    found = masks_to_boxes(mask[None])[0] if mask.any() else box
                    assert mask.shape == size and (found[:2] > box[:2] - 2).all() and (found[2:] < box[2:] + 2).all()
    assert objects > 8


@row("`VOCSegmentation(root)`")
def test_voc(shapes: Path, tmp_path: Path) -> None:
    data = voc(shapes, tmp_path)
    files = td.FileDataset({"image": data.images, "mask": data.masks}, kinds={"mask": td.kinds.Mask(fill=255)})
    transform = T.Compose([T.RandomHorizontalFlip(1.0), T.CenterCrop(160)])  # larger than all images
    (batch,) = make(data, 8, kinds={"field1": td.kinds.Mask(fill=255)}, transform=transform, output="tuple")
    (other,) = make(files, 8, transform=transform, output="tuple")
    for images, masks in (batch, other):
        assert images.shape == (8, 3, 160, 160)
        for mask, (_, ids) in zip(masks, data, strict=True):
            one_more = tv_tensors.Mask(np.array(ids)[:, ::-1] + 1)  # torchvision fills with 0
            assert torch.equal(mask, v2.functional.center_crop(one_more, [160, 160]) - 1)
    assert torch.equal(batch[1], other[1])


@row("v2's `RandomResize`, `RandomCrop`, `RandomHorizontalFlip`, `ColorJitter`, `Normalize` of an image and its mask")
def test_the_reference_of_segmentation(shapes: Path, tmp_path: Path) -> None:
    masks = sorted((shapes / "masks").iterdir())
    images = [tmp_path / path.name for path in masks]
    for path, image in zip(masks, images, strict=True):  # images that show their masks
        Image.fromarray(np.array(Image.open(path)) * 60).convert("RGB").save(image)
    data = td.FileDataset({"image": images, "mask": masks}, kinds={"mask": td.kinds.Mask(fill=4)})
    moves = [T.RandomCrop(64, padding=40, fill={"image": 240}), T.RandomHorizontalFlip()]
    for batch in [*make(data, transform=T.Compose(moves), shuffle=True)]:
        assert torch.equal(batch["image"], batch["mask"][:, None].expand(-1, 3, -1, -1) * 60)
    steps = [T.RandomResize(40, 120), *moves, T.ColorJitter(0.4, 0.4), T.Normalize([0.5] * 3, [0.2] * 3)]
    for batch in make(data, transform=T.Compose(steps), shuffle=True):
        assert batch["image"].shape == (4, 3, 64, 64) and batch["image"].dtype == torch.float32
        assert batch["mask"].dtype == torch.uint8 and set(batch["mask"].unique().tolist()) <= {0, 1, 2, 3, 4}


@row("a transform that calls another one twice (SimCLR, MoCo)")
def test_two_views(folder: Path) -> None:
    one = [T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.ColorJitter(0.8, 0.8, 0.8, 0.2)]
    for views, labels in make(td.ImageFolder(folder), transform=T.Views([one, one]), output="tuple"):
        assert [view.shape for view in views] == [(len(labels), 3, 24, 24)] * 2
        assert (views[0] != views[1]).flatten(1).any(1).all()


@row("DINO's and SwAV's multi-crop")
def test_multi_crop(folder: Path) -> None:
    globally, locally = [T.RandomResizedCrop(32, scale=(0.4, 1.0))], [T.RandomResizedCrop(16, scale=(0.05, 0.4))]
    eight = T.Views([globally] * 2 + [locally] * 6)
    pairs = make(td.ImageFolder(folder), transform=T.Views([globally] * 2), output="tuple")
    for (views, labels), (pair, _) in zip(
        make(td.ImageFolder(folder), transform=eight, output="tuple"), pairs, strict=True
    ):
        assert [view.shape[0] for view in views] == [len(labels)] * 8
        assert [view.shape[-1] for view in views] == [32] * 2 + [16] * 6
        assert all(map(torch.equal, views, pair))  # the first two are the same as without the others


@row("windows of a `np.memmap`, as nanoGPT's `get_batch`")
def test_token_windows(tmp_path: Path) -> None:
    path = tmp_path / "train.bin"
    np.arange(1000, dtype=np.uint16).tofile(path)
    memory = np.memmap(path, np.uint16, "r")
    seen = []
    for tokens in make(td.TokenWindows(path, 64), shuffle=True, output="tuple"):
        for inputs, targets in zip(tokens[:, :-1], tokens[:, 1:], strict=True):
            start = int(inputs[0])
            assert inputs.tolist() == memory[start : start + 64].tolist()
            assert targets.tolist() == memory[start + 1 : start + 65].tolist()
            seen.append(start)
    assert sorted(seen) == list(range(0, 935, 64)) != seen


# From DALI's pipeline mode


@row("`@pipeline_def`, `pipe.build()`, `pipe.run()`")
def test_the_body_of_a_pipeline(folder: Path) -> None:
    ((images, labels),) = run(images_and_labels(folder, batch_size=22))
    (batch,) = read(td.ImageFolder(folder), batch_size=22, transform=resized)
    assert torch.equal(batch["image"], images) and torch.equal(batch["label"], labels.squeeze(1).long())


@row("`fn.readers.file(...)`")
def test_the_file_reader(folder: Path) -> None:
    ((images, labels),) = run(images_and_labels(folder, batch_size=22))
    for dataset in (td.readers.File(file_root=str(folder)), td.ImageFolder(folder)):
        (batch,) = read(dataset, batch_size=22, transform=resized)
        assert torch.equal(batch["image"], images) and batch["label"].tolist() == labels.squeeze(1).tolist()
    # Another number of ranks in the middle of an epoch.
    two = make(files(folder), 4, rank=0, world_size=2, transform=resized)
    next(iter(two))
    one = make(files(folder), 4, transform=resized)
    one.load_state_dict(two.state_dict())
    assert values(list(one), "index") == list(range(8, 22))


@row('`fn.decoders.image(encoded, device="mixed")`')
def test_decoding(folder: Path) -> None:
    """On a GPU, where "mixed" is: tests/test_gpu.py."""

    def decoded(sample: dict[str, Any], rand: Any) -> dict[str, Any]:
        assert rand.device == "cpu"
        return {**sample, "image": ndd.decoders.image(sample["image"], device=rand.device)}

    for transform in (decoded, T.Decode(), None):
        (batch,) = read(td.ImageFolder(folder), batch_size=22, transform=transform)
        for k, encoded in enumerate(td.ImageFolder(folder).paths):
            expected = torch.from_numpy(np.array(ndd.decoders.image(np.fromfile(encoded, np.uint8))))
            height, width = batch["image_sizes"][k].tolist()
            assert torch.equal(batch["image"][k, :, :height, :width], expected.permute(2, 0, 1))


@row("`fn.op_name(...)`")
def test_operators(folder: Path) -> None:
    options = {"angle": 30.0, "fill_value": 0, "keep_size": True}

    @pipeline_def(num_threads=2, device_id=None, batch_size=22)
    def rotated() -> Any:
        encoded, _ = fn.readers.file(file_root=str(folder))
        return fn.hsv(fn.rotate(fn.resize(fn.decoders.image(encoded), size=SIZE), **options), hue=20.0)

    def body(sample: dict[str, Any], rand: Any) -> dict[str, Any]:
        images = ndd.resize(ndd.decoders.image(sample["image"], device=rand.device), size=SIZE)
        return {**sample, "image": ndd.hsv(ndd.rotate(images, **options), hue=20.0)}

    (batch,) = read(td.ImageFolder(folder), batch_size=22, transform=body)
    assert torch.equal(batch["image"], run(rotated())[0][0])


@row("`fn.random.uniform(range=(a, b))`, `fn.random.coin_flip(probability=p)`")
def test_random_numbers(folder: Path) -> None:
    @pipeline_def(num_threads=1, device_id=None, batch_size=22, seed=1)
    def numbers() -> Any:
        return fn.random.uniform(range=(-10.0, 10.0)), fn.random.coin_flip(probability=0.25)

    def body(sample: dict[str, Any], rand: Any) -> dict[str, Any]:
        return {**resized(sample, rand), "angle": rand.uniform(-10.0, 10.0), "flip": rand.bernoulli(0.25)}

    ((theirs, flips),) = run(numbers())
    by_batch = [read(files(folder), batch_size=n, transform=body) for n in (22, 5)]
    angles, flipped = ([values(batches, name) for batches in by_batch] for name in ("angle", "flip"))
    assert angles[0] == angles[1] and flipped[0] == flipped[1]  # by sample, and not by batch
    assert torch.tensor(angles[0]).dtype == theirs.dtype and set(flipped[0]) == set(flips.tolist()) == {0, 1}
    drawn = values(read(files(folder), sampler=[*range(22)] * 40, transform=body), "flip")
    assert 0.15 < np.mean(drawn) < 0.35  # the probability of a 1
    assert all(-10 <= angle < 10 for angle in angles[0] + theirs.tolist()) and len(set(angles[0])) == 22


@row("`batch_size=64` of the pipeline")
def test_the_batch_size(folder: Path) -> None:
    def body(sample: dict[str, Any], rand: Any) -> dict[str, Any]:
        return {**resized(sample, rand), "x": rand.uniform()}

    assert [len(batch["x"]) for batch in read(files(folder), batch_size=8, transform=body)] == [8, 8, 6]


@row("`seed=42` of the pipeline")
def test_the_seed(folder: Path) -> None:
    def indices(seed: int, rank: int, world_size: int) -> list[Any]:
        options = {"rank": rank, "world_size": world_size, "shuffle": True, "transform": T.Resize(SIZE)}
        return values(read(files(folder), batch_size=2, seed=seed, **options), "index")

    whole = indices(42, 0, 1)
    assert sorted(indices(42, 0, 2) + indices(42, 1, 2)) == sorted(whole) and indices(42, 0, 1) == whole
    assert indices(43, 0, 1) != whole


@row("`num_threads=4`, `device_id=0` of the pipeline")
def test_threads_and_device(folder: Path) -> None:
    """`device="cuda:0"`: tests/test_gpu.py."""
    seen = []

    def body(sample: dict[str, Any], rand: Any) -> dict[str, Any]:
        seen.append(ndd.EvalContext.current().num_threads)
        return resized(sample, rand)

    read(files(folder), num_threads=3, transform=body)
    assert set(seen) == {3}
    assert read(files(folder), device="cpu", transform=body)[0]["image"].device.type == "cpu"


@row("`prefetch_queue_depth=2`")
def test_prefetching(folder: Path) -> None:
    made = []

    def body(sample: dict[str, Any], rand: Any) -> dict[str, Any]:
        made.append(None)
        return resized(sample, rand)

    loader = make(files(folder), 1, prefetch_factor=0, transform=body)
    iterator = iter(loader)
    for n in range(1, 4):
        next(iterator)
        assert len(made) == n
    loader.close()
    for depth in (1, 4):
        made.clear()
        with make(files(folder), 1, prefetch_factor=depth, transform=body) as loader:
            next(iterator := iter(loader))
            assert wait_until(lambda: len(made) >= 1 + depth)  # noqa: B023
            time.sleep(0.1)  # more are not made
            assert 1 + depth <= len(made) <= 2 + depth
            del iterator


@row("`shard_id=rank, num_shards=world_size`")
def test_shards(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")

    def indices(**options: int) -> list[Any]:
        return values(read(files(folder), transform=T.Resize(SIZE), **options), "index")

    assert len(indices()) == 11 and indices() == indices(rank=1, world_size=2)
    assert len(indices(rank=0, world_size=1)) == 22
    with pytest.raises(ValueError, match="write rank= and world_size= at the DataLoader"):
        td.readers.File(file_root=str(folder), shard_id=1, num_shards=2)


@row("`random_shuffle=True, initial_fill=1024`")
def test_windows(folder: Path) -> None:
    numbered = {"files": td.ImageFolder(folder).paths, "labels": list(range(22))}
    found = [
        values(read(td.readers.File(**numbered, shuffle="window", initial_fill=fill), transform=resized), "label")
        for fill in (4, 8)
    ]
    assert all(sorted(labels) == list(range(22)) != labels for labels in found) and found[0] != found[1]
    whole = values(read(files(folder), shuffle=True, transform=resized), "index")
    assert sorted(whole) == list(range(22)) != whole
    with pytest.raises(ValueError, match='write shuffle="window"'):
        td.readers.File(file_root=str(folder), random_shuffle=True)


@row("`shuffle_after_epoch=True`")
def test_full_shuffles(folder: Path) -> None:
    paths = td.ImageFolder(folder).paths
    reader = td.readers.File(files=paths, labels=list(range(22)), shuffle="full")
    with make(reader, transform=resized) as loader:
        epochs = [values(list(loader), "label") for _ in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(22)) and epochs[0] != epochs[1]
    with pytest.raises(ValueError, match='write shuffle="full"'):
        td.readers.File(file_root=str(folder), shuffle_after_epoch=True)


class Callback:
    """As DALI's page on the parallel external source has it: a new permutation for each epoch, and shards."""

    def __init__(self, n: int) -> None:
        self.n, self.epoch, self.order = n, -1, np.arange(n)

    def __call__(self, info: Any) -> Any:
        if info.idx_in_epoch >= self.n:
            raise StopIteration
        if self.epoch != info.epoch_idx:
            self.epoch = info.epoch_idx
            self.order = np.random.default_rng(42 + info.epoch_idx).permutation(self.n)
        return np.array([self.order[info.idx_in_epoch]], np.int64)


@pytest.mark.processes
@row("`fn.external_source(source=callback, batch=False, parallel=True)`, `py_num_workers=4`")
def test_callbacks() -> None:
    @pipeline_def(batch_size=5, num_threads=1, device_id=None, py_num_workers=2, py_start_method="fork")
    def pipeline() -> Any:
        return fn.external_source(source=Callback(10), batch=False, parallel=True)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # DALI's workers leave a socket open
        expected = [batch.flatten().tolist() for (batch,) in run(pipeline(), 2)]
        gc.collect()
    with make(td.SampleSource(Callback(10)), 5, num_workers=2, output="tuple") as loader:
        assert [batch.flatten().tolist() for batch in loader] == expected
        assert [batch.flatten().tolist() for batch in loader] != expected  # the next epoch

    def whole(info: Any) -> Any:
        if info.iteration == 2:
            raise StopIteration
        return np.full((3, 2), info.iteration)

    with make(td.SampleSource(whole, batch=True), output="tuple") as loader:
        assert [batch.tolist() for batch in loader] == [[[i, i]] * 3 for i in range(2)]


@row("`fn.external_source(source=iterable)`")
def test_iterables() -> None:
    def samples() -> Any:
        for number in range(6):
            yield np.full(2, number)

    @pipeline_def(batch_size=3, num_threads=1, device_id=None)
    def pipeline() -> Any:
        return fn.external_source(source=[[*samples()][:3], [*samples()][3:]])

    expected = [batch for (batch,) in run(pipeline(), 2)]
    for iterable in (list(samples()), samples):
        with make(td.IterableSource(iterable), 3, output="tuple") as loader:
            assert all(torch.equal(one, other) for one, other in zip(loader, expected, strict=True))


@row("`pipe.feed_input(name, data)`")
def test_data_at_hand() -> None:
    images = np.random.default_rng(0).integers(0, 256, (4, 20, 30, 3), np.uint8)

    @pipeline_def(batch_size=4, num_threads=1, device_id=None)
    def pipeline() -> Any:
        return fn.resize(fn.external_source(name="images"), size=SIZE)

    pipe = pipeline()
    pipe.build()
    pipe.feed_input("images", images, layout="HWC")
    expected = torch.from_numpy(np.array(pipe.run()[0].as_tensor())).permute(0, 3, 1, 2)

    def body(sample: dict[str, Any], rand: Any) -> dict[str, Any]:
        return {**sample, "image": ndd.resize(sample["image"], size=SIZE)}

    (batch,) = read(td.InMemoryDataset(image=images, label=[0, 1, 2, 3]), transform=body)
    assert torch.equal(batch["image"], expected) and batch["label"].tolist() == [0, 1, 2, 3]


@row('`DALIGenericIterator(pipe, ["image", "label"])`')
def test_the_iterator(folder: Path) -> None:
    iterator = DALIGenericIterator(
        images_and_labels(folder, batch_size=8),
        ["image", "label"],
        reader_name="reader",
        last_batch_policy=LastBatchPolicy.PARTIAL,
    )
    for (theirs,), ours in zip(iterator, read(td.ImageFolder(folder), batch_size=8, transform=resized), strict=True):
        assert theirs.keys() == ours.keys()
        assert torch.equal(theirs["image"].permute(0, 3, 1, 2), ours["image"])
        assert theirs["label"].shape == (len(ours["label"]), 1) and torch.equal(theirs["label"][:, 0], ours["label"])


@row("`LastBatchPolicy.PARTIAL`, `DROP`, `FILL`")
def test_policies(folder: Path) -> None:
    for policy, options in [
        (LastBatchPolicy.PARTIAL, {}),
        (LastBatchPolicy.DROP, {"drop_last": True}),
        (LastBatchPolicy.FILL, {"pad_last": True}),
    ]:
        pipe = images_and_labels(folder, batch_size=8)
        iterator = DALIGenericIterator(pipe, ["image", "label"], reader_name="reader", last_batch_policy=policy)
        sizes = [len(batch["label"]) for (batch,) in iterator]
        batches = read(files(folder), batch_size=8, transform=resized, **options)
        assert [len(batch["label"]) for batch in batches] == sizes


@row("`auto_reset=True`, `iterator.reset()`")
def test_the_next_epoch(folder: Path) -> None:
    options = {"shuffle": True, "transform": resized}
    with make(files(folder), 8, **options) as loader:
        whole = [values(list(loader), "index") for _ in range(3)]
    with make(files(folder), 8, **options) as loader:
        assert values(list(loader), "index") == whole[0]
        for batch in loader:
            assert batch["index"].tolist() == whole[1][:8]
            break
        assert values(list(loader), "index") == whole[2]


@row('`reader_name="reader"`, `size=n`, `pipe.epoch_size()`')
def test_lengths(folder: Path) -> None:
    pipe = images_and_labels(folder, batch_size=8)
    pipe.build()
    for dataset in (files(folder), td.readers.File(file_root=str(folder))):
        loader = make(dataset, 8)
        assert len(loader.dataset) == pipe.epoch_size("reader") == 22 and len(loader) == 3


@row("`dynamic_shape=True`, `fn.pad(images)`")
def test_padding(folder: Path) -> None:
    @pipeline_def(batch_size=4, num_threads=2, device_id=None)
    def padded() -> Any:
        encoded, _ = fn.readers.file(file_root=str(folder))
        return fn.pad(fn.decoders.image(encoded), fill_value=7, axes=(0, 1))

    ((expected,),) = run(padded())
    with make(td.ImageFolder(folder, fields=("image",)), pad_value=7, output="tuple") as loader:
        (images,) = next(iter(loader))
    assert isinstance(images, td.Padded) and torch.equal(images.data, expected)
    assert images.mask.flatten(1).sum(1).tolist() == images.sizes.prod(1).tolist()
    (first, *_) = read(td.ImageFolder(folder), pad_multiple=32)
    assert all(size % 32 == 0 for size in first["image"].shape[2:])


@row("`output.at(i)`, `output.as_cpu()`, `output.as_array()`")
def test_outputs(folder: Path) -> None:
    pipe = images_and_labels(folder, batch_size=4)
    pipe.build()
    images, _ = pipe.run()
    (batch, *_) = read(td.ImageFolder(folder), transform=resized)
    assert np.array_equal(images.at(1), batch["image"][1].permute(1, 2, 0))
    assert np.array_equal(images.as_cpu().as_array(), batch["image"].cpu().permute(0, 2, 3, 1).numpy())


@row("`enable_checkpointing=True`, `pipe.checkpoint()`, `pipeline(checkpoint=...)`")
def test_checkpoints(folder: Path) -> None:
    options = {"batch_size": 4, "enable_checkpointing": True}
    pipe = images_and_labels(folder, **options)
    run(pipe, 2)
    expected = run(images_and_labels(folder, checkpoint=pipe.checkpoint(), **options), 3)
    with make(td.ImageFolder(folder), transform=resized) as loader:
        for _ in zip(range(2), loader):
            pass
        state = loader.state_dict()
    assert all(isinstance(value, (int, str)) for value in state.values())
    with make(td.ImageFolder(folder), transform=resized) as loader:
        loader.load_state_dict(state)
        for (images, labels), batch in zip(expected, islice(loader, 3), strict=True):
            assert torch.equal(images, batch["image"]) and torch.equal(labels.squeeze(1).long(), batch["label"])


# From dynamic mode itself


@row("`for batch in reader.next_epoch(batch_size=64)`")
def test_reader_loops(folder: Path) -> None:
    theirs = ndd.readers.File(file_root=str(folder))
    expected = [labels.torch().flatten().tolist() for _, labels in theirs.next_epoch(batch_size=8)]
    with make(td.readers.File(file_root=str(folder)), 8, transform=resized) as loader:
        for _ in loader:
            break
        assert [batch["label"].tolist() for batch in loader] == [expected[0], expected[1], expected[2][:6]]


def seen_by(folder: Path, look: Callable[[Any], Any], **options: Any) -> list[Any]:
    """What a function in a loader sees, batch by batch."""
    seen = []

    def body(sample: dict[str, Any], rand: Any) -> dict[str, Any]:
        seen.append(look(rand))
        return resized(sample, rand)

    read(td.ImageFolder(folder), transform=body, **options)
    return seen


@row("`ndd.EvalContext(num_threads=4, device_id=0)`")
def test_contexts(folder: Path) -> None:
    def look(rand: Any) -> Any:
        return ndd.EvalContext.current()

    contexts = [seen_by(folder, look, num_threads=threads) for threads in (2, 3)]
    assert [{context.num_threads for context in seen} for seen in contexts] == [{2}, {3}]
    assert len({id(context) for seen in contexts for context in seen}) == 2
    assert ndd.EvalContext.current() not in contexts[0] + contexts[1]


@row("`ndd.set_num_threads(4)`")
def test_the_number_of_threads(folder: Path) -> None:
    before = ndd.get_num_threads()
    ndd.set_num_threads(5)
    try:
        seen = seen_by(folder, lambda rand: ndd.EvalContext.current().num_threads, num_threads=2)
        assert set(seen) == {2} and ndd.get_num_threads() == 5
    finally:
        ndd.set_num_threads(before)


@row("`ndd.EvalMode.sync_full`")
def test_modes(folder: Path) -> None:
    def look(rand: Any) -> Any:
        return ndd.EvalMode.current(), threading.current_thread() is threading.main_thread()

    assert set(seen_by(folder, look, engine="debug")) == {(ndd.EvalMode.sync_full, True)}
    assert set(seen_by(folder, look, engine="eager")) == {(ndd.EvalMode.sync_cpu, False)}


@row("`ndd.random.set_seed(42)`")
def test_default_seeds(folder: Path) -> None:
    def look(rand: Any) -> Any:
        return ndd.random.uniform(range=(0.0, 1.0), batch_size=2).torch().tolist()

    ndd.random.set_seed(1)
    before = str(ndd.random.get_default_rng().get_state())
    options = {"engine": "debug", "seed": 42}  # in this thread, whose generator is the one to be left alone
    one, other = seen_by(folder, look, **options), seen_by(folder, look, **options)
    assert str(ndd.random.get_default_rng().get_state()) == before
    assert one == other and len({str(numbers) for numbers in one}) == len(one)
    assert seen_by(folder, look, **options | {"seed": 43}) != one


@row("`ndd.random.RNG(seed=42)`, `rng=rng`")
def test_generators(folder: Path) -> None:
    def body(sample: dict[str, Any], rand: Any) -> dict[str, Any]:
        drawn = ndd.random.uniform(range=(0.0, 1.0), batch_size=rand.num_samples, rng=rand.ndd)
        return {**resized(sample, rand), "theirs": drawn, "ours": rand.uniform()}

    def stream(**options: Any) -> dict[str, list[Any]]:
        batches = read(files(folder), transform=body, **options)
        return {name: values(batches, name) for name in ("theirs", "ours")}

    one = stream(seed=42)
    assert stream(seed=42) == one and len(set(one["theirs"])) == 22
    loader = make(files(folder), transform=body, seed=42)
    loader.seek(0, 3)
    assert values(list(loader), "theirs") == one["theirs"][12:]  # by position
    assert stream(seed=42, batch_size=5)["ours"] == one["ours"]  # by sample


@row("`ndd.checkpoint.Checkpoint` with readers and RNGs")
def test_their_checkpoints(folder: Path) -> None:
    def body(sample: dict[str, Any], rand: Any) -> dict[str, Any]:
        return {**resized(sample, rand), "x": ndd.random.uniform(batch_size=rand.num_samples, rng=rand.ndd)}

    def loader() -> td.DataLoader:
        paths = td.ImageFolder(folder).paths
        reader = td.readers.File(files=paths, labels=list(range(22)), shuffle="window", initial_fill=4)
        return make(reader, transform=body, seed=7)

    whole = list(loader())
    first = loader()
    for _ in zip(range(2), first):
        pass
    state = first.state_dict()
    assert all(isinstance(value, (int, str)) and len(str(value)) <= 100 for value in state.values())
    second = loader()
    second.load_state_dict(state)
    rest = list(second)
    for name in ("label", "x"):
        assert values(rest, name) == values(whole[2:], name)


# They need a GPU, and are run there.
row("`ndd.set_current_stream(torch.cuda.current_stream())`")(test_gpu.test_late_consumers_read_the_right_values)


@row("`batch.torch(pad=True)`")
def test_padded_tensors(folder: Path) -> None:
    encoded = [np.fromfile(path, np.uint8) for path in td.ImageFolder(folder).paths[:4]]
    theirs = ndd.decoders.image(ndd.as_batch(encoded)).torch(pad=True).permute(0, 3, 1, 2)
    with make(td.ImageFolder(folder), output="tuple") as loader:
        images, _ = next(iter(loader))
    assert torch.equal(images.data, theirs)
    assert images.sizes.tolist() == [list(td.ImageFolder(folder)[k][0].shape[1:]) for k in range(4)]


@row("`reader.next_epoch(batch_size=64, capture=True)`")
def test_capturing(folder: Path) -> None:
    reader = ndd.readers.File(file_root=str(folder), enable_checkpointing=True)
    with pytest.raises(NotImplementedError):  # with a state it can't
        list(reader.next_epoch(batch_size=4, capture=True))

    @T.traceable
    def body(sample: dict[str, Any], rand: Any, ops: Any) -> dict[str, Any]:
        return {**sample, "image": ops.resize(ops.decoders.image(sample["image"], device=rand.device), size=SIZE)}

    expected = read(td.ImageFolder(folder), transform=resized)
    loader = make(td.ImageFolder(folder), transform=body, engine="pipeline")
    assert loader.engine == "pipeline"
    next(iter(loader))
    again = make(td.ImageFolder(folder), transform=body, engine="pipeline")
    again.load_state_dict(loader.state_dict())
    loader.close()
    assert all(torch.equal(one["image"], two["image"]) for one, two in zip(again, expected[1:], strict=True))
    with pytest.raises(ValueError, match=r"not marked with transforms\.traceable"):
        read(td.ImageFolder(folder), transform=resized, engine="pipeline")


@row("`batch.tensors[i]`, `batch.slice[...]`")
def test_parts_of_batches(folder: Path) -> None:
    def body(sample: dict[str, Any], rand: Any) -> dict[str, Any]:
        images = ndd.resize(ndd.decoders.image(sample["image"], device=rand.device), size=SIZE)
        first = ndd.as_batch([images.tensors[0]] * rand.num_samples)
        return {**sample, "image": images, "first": first, "part": images.slice[:4, 2:5]}

    (batch,) = read(td.ImageFolder(folder), batch_size=22, transform=body)
    pixels = batch["image"].permute(0, 2, 3, 1)
    assert torch.equal(batch["part"], pixels[:, :4, 2:5])
    assert torch.equal(batch["first"], pixels[:1].expand(22, -1, -1, -1))
