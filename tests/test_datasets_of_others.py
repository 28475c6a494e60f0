"""Datasets of Hugging Face and torchvision, made by their own writers and read as they are."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import datasets
import numpy as np
import pytest
import soundfile
import torch
from PIL import Image
from torchvision.datasets import CocoDetection, VOCDetection, wrap_dataset_for_transforms_v2

import torchdali as td
from tests.kind_words import words
from torchdali import transforms as T
from torchdali.batch import Padded
from torchdali.errors import StateMismatchError
from torchdali.testing import assert_resumes_exactly, assert_same_stream

from .source_datasets import picture

N = 23
datasets.disable_progress_bars()


def loader(dataset: Any, num_workers: int = 0, **options: Any) -> td.DataLoader:
    # Most by fork: under the others each worker imports these libraries, which takes seconds.
    options = dict(multiprocessing_context="fork" if num_workers else None) | options
    options = dict(batch_size=4, seed=3, device="cpu", transform=T.Resize((8, 8))) | options
    return td.DataLoader(dataset, num_workers=num_workers, **options)


def decoded(data: bytes) -> torch.Tensor:
    """uint8 [C, H, W], by Pillow."""
    return torch.from_numpy(np.array(Image.open(io.BytesIO(data)).convert("RGB"))).permute(2, 0, 1)


# Hugging Face


def sound(index: int) -> bytes:
    out = io.BytesIO()
    soundfile.write(out, np.sin(np.arange(100 + 10 * index) / 7), 8000, format="WAV")
    return out.getvalue()


@pytest.fixture(scope="module")
def images() -> datasets.Dataset:
    features = datasets.Features(
        {
            "image": datasets.Image(decode=False),
            "label": datasets.ClassLabel(names=["even", "odd"]),
            "text": datasets.Value("string"),
            "scores": datasets.Sequence(datasets.Value("float32")),
        }
    )
    rows = {
        "image": [{"bytes": picture(i, "PNG"), "path": None} for i in range(N)],
        "label": [i % 2 for i in range(N)],
        "text": [f"sample {i}" for i in range(N)],
        "scores": [[float(i)] * (i % 3) for i in range(N)],
    }
    return datasets.Dataset.from_dict(rows, features=features)


@pytest.fixture(scope="module", params=["memory", "arrow", "parquet"])
def stored(request, images, tmp_path_factory) -> datasets.Dataset:
    """The same on its ways through files."""
    folder = tmp_path_factory.mktemp("hf")
    if request.param == "arrow":
        images.save_to_disk(str(folder / "arrow"))
        return datasets.load_from_disk(str(folder / "arrow"))
    if request.param == "parquet":
        images.to_parquet(str(folder / "images.parquet"))
        return datasets.Dataset.from_parquet(str(folder / "images.parquet"), cache_dir=str(folder / "cache"))
    return images


@pytest.mark.parametrize("num_workers", [0, 2])
def test_hugging_face_images(stored, num_workers):
    with loader(stored, num_workers, transform=None) as one:
        batches = list(one)
    assert [len(batch["text"]) for batch in batches] == [4, 4, 4, 4, 4, 3]
    assert [text for batch in batches for text in batch["text"]] == [f"sample {i}" for i in range(N)]
    first = batches[0]
    assert first["label"].tolist() == [0, 1, 0, 1]
    assert first["scores"] == [[], [1.0], [2.0, 2.0], []]
    pictures = first["image"]["bytes"]
    assert isinstance(pictures, Padded) and pictures.sizes.tolist() == [[24, 20], [24, 21], [24, 22], [24, 20]]
    for i in range(4):
        assert torch.equal(pictures.data[i, :, :, : 20 + i % 3], decoded(picture(i, "PNG")))
    assert first["image"]["path"] == [None] * 4


@pytest.mark.processes
def test_hugging_face_streams_and_resumes(stored):
    def make(num_workers: int, **options: Any) -> td.DataLoader:
        return loader(stored, num_workers, shuffle=True, batch_size=6, output="dict", **options)

    assert_same_stream(
        lambda: make(0), lambda: make(2), lambda: make(1, multiprocessing_context="forkserver"), epochs=2
    )
    assert_resumes_exactly(lambda: make(0), lambda: make(2), epochs=1, every=3)


def test_another_dataset_is_no_place_for_a_state(images):
    state = loader(images).state_dict()
    changed = images.map(lambda row: {"text": "another"})
    with pytest.raises(StateMismatchError, match="dataset: expected"):
        loader(changed).load_state_dict(state)
    loader(images).load_state_dict(state)


@pytest.mark.processes
def test_hugging_face_names_rows_and_formats(images):
    source = td.PythonDataset(
        images.select_columns(["image", "label"]), fields=["image", "file", "label"], ragged=["image"]
    )
    with loader(source, 1, output="dict") as one:
        batch = next(iter(one))
    assert list(batch) == ["image", "file", "label"] and batch["image"].shape == (4, 3, 8, 8)
    numbers = images.select_columns(["label", "scores"]).filter(lambda row: len(row["scores"]) == 2)
    with loader(numbers.with_format("torch"), transform=None) as one:
        batch = next(iter(one))
    assert batch["scores"].tolist() == [[2, 2], [5, 5], [8, 8], [11, 11]] and batch["label"].tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_hugging_face_sounds(tmp_path, num_workers):
    """A sound file leaves as its bytes, padded, with their number."""
    # Made as a plain column: to write it as Audio, the library wants a codec, though there is nothing to encode.
    rows = {"audio": [{"bytes": sound(i), "path": f"{i}.wav"} for i in range(N)], "speaker": list(range(N))}
    datasets.Dataset.from_dict(rows).to_parquet(str(tmp_path / "sounds.parquet"))
    stored = datasets.Dataset.from_parquet(str(tmp_path / "sounds.parquet"), cache_dir=str(tmp_path / "cache"))
    stored = stored.cast_column("audio", datasets.Audio(decode=False))
    with loader(stored, num_workers, transform=None, shuffle=True) as one:
        batches = list(one)
    seen = []
    for batch in batches:
        files = batch["audio"]["bytes"]
        assert isinstance(files, Padded) and files.data.dtype == torch.uint8
        for row, (speaker, path) in enumerate(zip(batch["speaker"].tolist(), batch["audio"]["path"], strict=True)):
            data = bytes(files.data[row, : int(files.sizes[row])].numpy())
            assert data == sound(speaker) and path == f"{speaker}.wav"
            samples, rate = soundfile.read(io.BytesIO(data))
            assert rate == 8000 and len(samples) == 100 + 10 * speaker
            seen.append(speaker)
    assert sorted(seen) == list(range(N)) and seen != sorted(seen)


@pytest.mark.parametrize("num_workers", [0, 1, 2, 3, 4])
def test_hugging_face_iterables_give_each_sample_once(images, num_workers):
    """They share themselves among workers by their three shards."""
    stream = images.to_iterable_dataset(num_shards=3)
    next(iter(stream))  # as one looks at a dataset before it is used
    with loader(stream, num_workers, persistent_workers=num_workers == 2) as one:
        for _ in range(2):
            texts = [text for batch in one for text in batch["text"]]
            assert sorted(texts) == sorted(f"sample {i}" for i in range(N))
    if not num_workers:
        with loader(stream) as again:  # what was read to its end before
            assert sum(len(batch["text"]) for batch in again) == N


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.slow
def test_hugging_face_iterables_resume_by_their_state(images, num_workers):
    stream = images.to_iterable_dataset(num_shards=3)
    assert_resumes_exactly(
        lambda: loader(stream, num_workers, batch_size=5, persistent_workers=bool(num_workers), output="dict"),
        every=1 + num_workers,
    )


@pytest.mark.parametrize("num_workers", [0, 2])
def test_hugging_face_iterables_resume_with_what_was_in_a_buffer(images, num_workers):
    """Their state leaves the buffer of a shuffle out: samples were lost, and with workers loading it failed."""

    def make(seed: int | None = 1) -> td.DataLoader:
        stream = images.remove_columns(["image", "scores"]).to_iterable_dataset(num_shards=4)
        stream = stream.shuffle(seed=seed, buffer_size=5)
        return loader(stream.filter(lambda row: row["text"] != "sample 3"), num_workers, transform=None)

    with make() as one:
        batches = iter(one)
        seen = next(batches)["text"]
        state = one.state_dict()
        rest = [batch["text"] for batch in batches]
    assert sorted([*seen, *(text for batch in rest for text in batch)]) == sorted(
        f"sample {i}" for i in range(N) if i != 3
    )
    with (
        make() as again,
        pytest.warns(RuntimeWarning, match="leaves out the buffer of shuffle.*4 samples are iterated"),
    ):
        again.load_state_dict(state)
        assert [batch["text"] for batch in again] == rest
    with make(None) as other:
        other.load_state_dict(state)
        with pytest.raises(StateMismatchError, match=r"write shuffle\(seed=...\)"):
            next(iter(other))


@pytest.mark.processes
def test_hugging_face_iterables_are_shuffled_anew_in_each_epoch(images):
    def texts(one: td.DataLoader) -> list[str]:
        return [text for batch in one for text in batch["text"]]

    def make() -> td.DataLoader:
        return loader(images.to_iterable_dataset(num_shards=6).shuffle(seed=1, buffer_size=1), 1)

    with make() as one:
        epochs = [texts(one) for _ in range(3)]
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert {tuple(sorted(epoch)) for epoch in epochs} == {tuple(sorted(epochs[0]))}
    with make() as one:
        one.set_epoch(2)
        assert texts(one) == epochs[2]


# torchvision's detection datasets


def boxes_of(index: int) -> list[list[float]]:
    """Boxes (x, y, width, height) in the image."""
    return [[float(i), float(index % 5), 4.0 + i, 6.0] for i in range(index % 3 + 1)]


@pytest.fixture(scope="module")
def coco(tmp_path_factory) -> Path:
    """Images and annotations as COCO has them; the last image has none."""
    root = tmp_path_factory.mktemp("coco")
    pictures, annotations = [], []
    for i in range(10):
        name, size = f"{i:012d}.png", (24, 20 + i % 3)
        (root / name).write_bytes(picture(i, "PNG"))
        pictures.append({"id": 100 + i, "file_name": name, "height": size[0], "width": size[1]})
        for box in boxes_of(i) if i < 9 else []:
            annotations.append(
                {
                    "id": len(annotations),
                    "image_id": 100 + i,
                    "category_id": 1 + i % 2,
                    "bbox": box,
                    "area": box[2] * box[3],
                    "iscrowd": 0,
                    "segmentation": [],
                }
            )
    categories = [{"id": 1, "name": "one"}, {"id": 2, "name": "two"}]
    (root / "instances.json").write_text(
        json.dumps({"images": pictures, "annotations": annotations, "categories": categories})
    )
    return root


class EncodedCoco(CocoDetection):
    """torchvision's with its images as files, which DALI decodes, and an image without boxes is as good as others."""

    def _load_image(self, id: int) -> Any:
        return (Path(self.root) / self.coco.loadImgs(id)[0]["file_name"]).read_bytes()

    def __getitem__(self, index: int) -> Any:
        image, target = super().__getitem__(index)
        boxes = torch.tensor([part["bbox"] for part in target]).reshape(-1, 4)
        return image, {
            "boxes": boxes,
            "labels": torch.tensor([part["category_id"] for part in target], dtype=torch.int64),
        }


@pytest.mark.parametrize("num_workers", [0, 2])
def test_coco_as_it_is(coco, num_workers):
    """Lists of annotations stay lists."""
    data = CocoDetection(coco, coco / "instances.json")
    with loader(data, num_workers) as one, pytest.raises(td.KindError, match="wrap_dataset_for_transforms_v2"):
        next(iter(one))
    with loader(data, num_workers, kinds={"field1": "object"}) as one:
        images, targets = next(iter(one))
    assert images.shape == (4, 3, 8, 8)
    assert [[part["bbox"] for part in target] for target in targets] == [boxes_of(i) for i in range(4)]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_coco_as_tensors(coco, num_workers):
    """Boxes of different numbers leave padded; images that torchvision has opened leave as they are."""
    data = wrap_dataset_for_transforms_v2(CocoDetection(coco, coco / "instances.json"), ["image_id", "boxes", "labels"])
    with loader(torch.utils.data.Subset(data, range(9)), num_workers, transform=None, batch_size=3) as one:
        batches = list(one)
    assert [i for _, target in batches for i in target["image_id"].tolist()] == list(range(100, 109))
    for number, (images, target) in enumerate(batches):
        assert isinstance(images, Padded) and isinstance(target["boxes"], Padded)
        for row in range(3):
            i = 3 * number + row
            count = i % 3 + 1
            assert target["boxes"].sizes[row].tolist() == [count]
            expected = torch.tensor(boxes_of(i))
            expected[:, 2:] += expected[:, :2]
            assert torch.equal(target["boxes"].data[row, :count], expected)
            assert target["labels"].data[row, :count].tolist() == [1 + i % 2] * count
            assert not target["labels"].data[row, count:].any()
            assert torch.equal(images.data[row, :, :, : 20 + i % 3], decoded(picture(i, "PNG")))


@pytest.mark.processes
def test_an_image_without_boxes(coco):
    """torchvision leaves its keys out: it has no objects."""
    data = wrap_dataset_for_transforms_v2(CocoDetection(coco, coco / "instances.json"), ["image_id", "boxes", "labels"])
    with loader(data, 1) as one:
        targets = [target for _, target in one]
    counts = [count for target in targets for count in target["boxes"].sizes[:, 0].tolist()]
    assert counts[9] == 0 and min(counts[:9]) == 1


@pytest.mark.processes
def test_coco_decoded_by_dali(coco):
    """The images of a file are the same, whoever opened it, and so are the boxes."""

    def make(num_workers: int) -> td.DataLoader:
        data = td.PythonDataset(EncodedCoco(coco, coco / "instances.json"), ragged=["1.boxes"])
        return loader(data, num_workers, batch_size=5, transform=None, output="dict")

    assert_same_stream(lambda: make(0), lambda: make(2))
    assert words(make(0).source.kinds) == {"image": "encoded", "1.boxes": "array", "1.labels": "array"}
    with make(2) as one:
        batches = list(one)
    images = [image for batch in batches for image in batch["image"]]
    for i, image in enumerate(images):
        assert torch.equal(image[:, :24, : 20 + i % 3], decoded(picture(i, "PNG")))
    assert batches[0]["1.boxes_sizes"].tolist() == [[1, 4], [2, 4], [3, 4], [1, 4], [2, 4]]
    assert batches[1]["1.boxes_sizes"].tolist()[-1] == [0, 4]


@pytest.fixture(scope="module")
def voc(tmp_path_factory) -> Path:
    """Six images and annotations as PASCAL VOC has them."""
    root = tmp_path_factory.mktemp("voc")
    base = root / "VOCdevkit" / "VOC2012"
    for folder in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (base / folder).mkdir(parents=True)
    for i in range(6):
        (base / "JPEGImages" / f"{i:06d}.jpg").write_bytes(picture(i))
        tree = ElementTree.Element("annotation")
        ElementTree.SubElement(tree, "filename").text = f"{i:06d}.jpg"
        for x, y, width, height in boxes_of(i):
            part = ElementTree.SubElement(tree, "object")
            ElementTree.SubElement(part, "name").text = "cat" if i % 2 else "dog"
            box = ElementTree.SubElement(part, "bndbox")
            for name, value in {"xmin": x, "ymin": y, "xmax": x + width, "ymax": y + height}.items():
                ElementTree.SubElement(box, name).text = str(int(value))
        ElementTree.ElementTree(tree).write(base / "Annotations" / f"{i:06d}.xml")
    (base / "ImageSets" / "Main" / "train.txt").write_text("\n".join(f"{i:06d}" for i in range(6)))
    return root


class EncodedVoc(VOCDetection):
    """torchvision's with its images as files."""

    def __getitem__(self, index: int) -> Any:
        tree = ElementTree.parse(self.annotations[index]).getroot()
        return Path(self.images[index]).read_bytes(), self.parse_voc_xml(tree)["annotation"]["filename"]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_voc(voc, num_workers):
    with loader(VOCDetection(voc, "2012", "train"), num_workers, kinds={"object": "object"}) as one:
        images, target = next(iter(one))
    annotation = target["annotation"]
    assert images.shape == (4, 3, 8, 8) and annotation["filename"] == [f"{i:06d}.jpg" for i in range(4)]
    assert [len(parts) for parts in annotation["object"]] == [1, 2, 3, 1]
    data = wrap_dataset_for_transforms_v2(VOCDetection(voc, "2012", "train"))
    with loader(data, num_workers, transform=None) as one:
        images, target = next(iter(one))
    assert isinstance(target["boxes"], Padded) and target["boxes"].sizes.tolist() == [[1], [2], [3], [1]]
    assert target["boxes"].data[1, 1].tolist() == [1, 1, 6, 7]
    assert [row[0].item() for row in target["labels"].data] == [12, 8, 12, 8]  # dogs and cats
    assert images.sizes.tolist() == [[24, 20], [24, 21], [24, 22], [24, 20]]


@pytest.mark.processes
def test_voc_decoded_by_dali(voc):
    """As torchdali's own dataset decodes the files."""
    transform = T.Compose([T.RandomResizedCrop(12), T.RandomHorizontalFlip()])
    paths = sorted(str(path) for path in voc.rglob("*.jpg"))
    data = EncodedVoc(voc, "2012", "train")
    with loader(data, 2, transform=transform, shuffle=True) as one:
        ours = list(one)
    with loader(td.FileDataset(paths, list(range(6))), transform=transform, shuffle=True) as one:
        expected = list(one)
    for (images, names), (same, numbers) in zip(ours, expected, strict=True):
        assert torch.equal(images, same) and names == [f"{i:06d}.jpg" for i in numbers.tolist()]


@pytest.mark.processes
def test_datasets_of_torch_around_them_resume(voc):
    def make(num_workers: int) -> td.DataLoader:
        data = torch.utils.data.ConcatDataset([EncodedVoc(voc, "2012", "train")] * 2)
        return loader(data, num_workers, shuffle=True)

    assert_resumes_exactly(lambda: make(2), lambda: make(1), epochs=1, every=2)
