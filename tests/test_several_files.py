"""Several files per sample, of any kinds: what each list holds, what is told, and what is refused."""

from __future__ import annotations

import io
import json
import pickle
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import torchdali as td
from torchdali import FileDataset, kinds
from torchdali import transforms as T
from torchdali.testing import assert_resumes_exactly, assert_same_stream, truncate_file

N = 11


def pixels_of(i: int, height: int = 20, width: int = 30) -> np.ndarray:
    return np.random.default_rng(i).integers(0, 256, (height, width, 3)).astype(np.uint8)


def ids_of(i: int) -> np.ndarray:
    """The image's grey levels in four steps: it moves as the image does."""
    return (pixels_of(i)[..., 0] // 64).astype(np.uint8)


class Lists:
    """Lists of files below a folder, one of each kind for a sample."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.images = [self._write(i, "image", "png", self._png(Image.fromarray(pixels_of(i)))) for i in range(N)]
        self.masks = [self._write(i, "mask", "png", self._png(self._palette(ids_of(i)))) for i in range(N)]
        self.arrays = [self._write(i, "array", "npy", self._npy(np.full((i + 1, 2), i, np.float32))) for i in range(N)]
        self.texts = [self._write(i, "text", "txt", f"number {i}".encode()) for i in range(N)]
        self.objects = [self._write(i, "object", "json", json.dumps({"i": i}).encode()) for i in range(N)]
        self.sounds = [self._write(i, "sound", "wav", self._wav(i)) for i in range(N)]

    def _write(self, i: int, name: str, ending: str, data: bytes) -> Path:
        path = self.root / name / f"{i:02d}.{ending}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        return path

    def _png(self, image: Image.Image) -> bytes:
        file = io.BytesIO()
        image.save(file, "PNG")
        return file.getvalue()

    def _palette(self, ids: np.ndarray) -> Image.Image:
        image = Image.fromarray(ids)
        image.putpalette([200, 0, 0, 0, 200, 0, 0, 0, 200, 9, 9, 9])
        return image

    def _npy(self, array: np.ndarray) -> bytes:
        file = io.BytesIO()
        np.save(file, array)
        return file.getvalue()

    def _wav(self, i: int) -> bytes:
        file = io.BytesIO()
        with wave.open(file, "wb") as out:
            out.setnchannels(1)
            out.setsampwidth(2)
            out.setframerate(8000)
            out.writeframes(np.full(100 + i, i, "<i2").tobytes())
        return file.getvalue()


@pytest.fixture
def lists(tmp_path: Path) -> Lists:
    return Lists(tmp_path)


def read(dataset: FileDataset, *indices: int) -> dict[str, Any]:
    return dataset.read(np.array(indices))


# Kinds


def test_kinds_follow_from_the_endings(lists: Lists) -> None:
    dataset = FileDataset(
        {"image": lists.images, "a": lists.arrays, "t": lists.texts, "o": lists.objects, "s": lists.sounds},
        labels=range(N),
    )
    assert dataset.kinds == {
        "image": kinds.ENCODED, "a": kinds.ARRAY, "t": kinds.OBJECT, "o": kinds.OBJECT,
        "s": kinds.Audio(encoded=True), "label": kinds.NUMBER,
    }  # fmt: skip
    columns = read(dataset, 3, 0)
    np.testing.assert_array_equal(columns["a"][0], np.full((4, 2), 3, np.float32))
    assert columns["t"] == ["number 3", "number 0"] and columns["o"] == [{"i": 3}, {"i": 0}]
    assert columns["s"][0].tobytes() == lists.sounds[3].read_bytes() and columns["label"].tolist() == [3, 0]
    assert columns["image"][1].tobytes() == lists.images[0].read_bytes()
    assert dataset.paths == [str(path) for path in lists.images] and dataset.path(2) == str(lists.images[2])
    again = pickle.loads(pickle.dumps(dataset))
    assert read(again, 3)["t"] == ["number 3"] and again.fingerprint() == dataset.fingerprint()


@pytest.mark.parametrize("told", ["mask", kinds.Mask, kinds.Mask(fill=255), kinds.Mask(fill=255, encoded=True)])
def test_masks_are_told(lists: Lists, told: Any) -> None:
    dataset = FileDataset({"image": lists.images, "mask": lists.masks}, kinds={"mask": told})
    fill = 255 if isinstance(told, kinds.Mask) else 0
    assert dataset.kinds["mask"] == kinds.Mask(encoded=True, fill=fill)
    assert dataset.kinds["image"] == kinds.ENCODED
    of_arrays = FileDataset({"image": lists.images, "mask": lists.arrays}, kinds={"mask": told})
    assert isinstance(of_arrays.kinds["mask"], kinds.Mask)
    np.testing.assert_array_equal(read(of_arrays, 1)["mask"][0], np.full((2, 2), 1, np.float32))


def test_other_kinds_are_told(lists: Lists, tmp_path: Path) -> None:
    odd = [tmp_path / f"{i}.xyz" for i in range(N)]
    for i, path in enumerate(odd):
        path.write_bytes(bytes([i] * 3))
    for told, kind in {"array": kinds.ARRAY, "encoded": kinds.ENCODED, "audio": kinds.Audio(encoded=True)}.items():
        dataset = FileDataset({"x": odd}, kinds={"x": told})
        assert dataset.kinds == {"x": kind} and read(dataset, 4)["x"][0].tolist() == [4, 4, 4]
    assert FileDataset({"x": odd}, kinds={"x": "object"}).kinds == {"x": kinds.OBJECT}
    np.save(tmp_path / "pixels.npy", pixels_of(0))
    picture = FileDataset({"x": [tmp_path / "pixels.npy"]}, kinds={"x": "image"})
    assert picture.kinds == {"x": kinds.IMAGE}
    assert torch.equal(picture[0][0], torch.from_numpy(pixels_of(0)).permute(2, 0, 1))
    for labels in ([[[1, 2, 3, 4]], []] * 5 + [[]], [np.ones((i % 3, 4), np.float32) for i in range(N)]):
        boxes = FileDataset(lists.images, labels, kinds={"label": kinds.Boxes("xywh")})
        assert boxes.kinds["label"] == kinds.Boxes("xywh") and read(boxes, 1)["label"][0].shape[1:] == (4,)
    assert FileDataset({"label": lists.texts}).kinds == {"label": kinds.OBJECT}
    assert FileDataset(lists.images, kinds={"image": kinds.Image(exif=True)}).kinds["image"].exif is True
    with pytest.raises(ValueError, match=r"ending 'xyz' does not say .* \('x': .*0\.xyz\): write kinds={'x': \.\.\.}"):
        FileDataset({"x": odd})


def test_several_endings_of_one_kind(lists: Lists, tmp_path: Path) -> None:
    Image.fromarray(pixels_of(0)).save(tmp_path / "a.jpg")
    assert FileDataset({"x": [lists.images[0], tmp_path / "a.jpg"]}).kinds == {"x": kinds.ENCODED}
    with pytest.raises(ValueError, match="the files of 'x' must be of one kind, got the endings npy, png"):
        FileDataset({"x": [lists.images[0], lists.arrays[0]]})


def test_arrays_of_no_dimension_are_numbers(tmp_path: Path) -> None:
    for i in range(3):
        np.save(tmp_path / f"{i}.npy", np.int16(i))
    dataset = FileDataset({"x": sorted(tmp_path.glob("*.npy"))})
    assert dataset.kinds == {"x": kinds.NUMBER}
    (batch,) = next(iter(td.DataLoader(dataset, batch_size=3, device="cpu")))
    assert batch.dtype == torch.int16 and batch.tolist() == [0, 1, 2]


# Refusals


def test_wrong_arguments(lists: Lists) -> None:
    short = lists.masks[:3]
    for error, message, paths, options in [
        (ValueError, "paths must be lists of one length, got {'image': 11, 'mask': 3}",
         {"image": lists.images, "mask": short}, {}),
        (ValueError, "paths must name at least one file", {"image": [], "mask": []}, {}),
        (ValueError, "paths must name at least one file", {}, {}),
        (TypeError, "the paths of 'mask' must be a list of files, got", {"image": short, "mask": "a.png"}, {}),
        (ValueError, "labels must be one for each file, got 2 for 11 files", {"x": lists.images}, {"labels": [1, 2]}),
        (ValueError, "the field 'label' is that of labels=", {"label": lists.images}, {"labels": range(N)}),
        (ValueError, "kinds must be of the fields image, got 'mask'", {"image": lists.images},
         {"kinds": {"mask": "mask"}}),
        (ValueError, "kinds must hold kinds .* got 'masks' .did you mean 'mask'", {"m": lists.masks},
         {"kinds": {"m": "masks"}}),
        (FileNotFoundError, r"the first of 1 files does not exist: .*mask/none\.png",
         {"image": lists.images[:1], "mask": [lists.root / "mask" / "none.png"]}, {"kinds": {"mask": "mask"}}),
        (ValueError, "the names index, path, valid have a meaning of their own", {"index": lists.images}, {}),
        (ValueError, "fields must be different ones of image, index", {"image": lists.images}, {"fields": ["mask"]}),
        (ValueError, "convert must be of the fields image, got 'text'", {"image": lists.images},
         {"convert": {"text": str}}),
        (ValueError, "convert is for fields without images, got 'image': write transform=", {"image": lists.images},
         {"convert": {"image": str}}),
    ]:  # fmt: skip
        with pytest.raises(error, match=message):
            FileDataset(paths, **options)


def test_a_missing_file_of_any_field_is_a_bad_sample(lists: Lists) -> None:
    lists.arrays[4].unlink()
    truncate_file(lists.arrays[7])
    lists.arrays[9].write_bytes(lists._npy(np.zeros(3)))
    dataset = FileDataset({"text": lists.texts, "a": lists.arrays}, fields=["text", "a", "index"])
    for i, message in {
        4: r"sample 4 \(.*text/04\.txt\): .*No such file or directory: .*array/04\.npy",
        7: r"sample 7 \(.*text/07\.txt\): .*array/07\.npy: a .npy header of 128 bytes",
        9: r"sample 9 \(.*text/09\.txt\): .*'a' must be float32 with 2 dimensions, as in .*00\.npy, got float64",
    }.items():
        with pytest.raises(td.BadSampleError, match=message):
            list(td.DataLoader(dataset, batch_size=1, sampler=[i], device="cpu"))
    loader = td.DataLoader(dataset, batch_size=4, device="cpu", on_bad_sample="substitute")
    assert sum(len(batch[0]) for batch in loader) == N and {bad.index for bad in loader.bad_samples} == {4, 7, 9}


# Functions of values


def lengths(text: str) -> list[int]:
    """Something like a tokenizer: a list of numbers, empty for one sample."""
    number = int(text.split()[1])
    return [number] * (number % 4)


def loudness(data: np.ndarray) -> float:
    with wave.open(io.BytesIO(data)) as sound:
        return float(np.frombuffer(sound.readframes(sound.getnframes()), "<i2").mean())


def test_functions_of_values(lists: Lists) -> None:
    dataset = FileDataset(
        {"text": lists.texts, "sound": lists.sounds, "o": lists.objects},
        convert={"text": lengths, "sound": loudness, "o": lambda value: torch.full((2, 2), value["i"])},
    )
    assert dataset.kinds == {"text": kinds.ARRAY, "sound": kinds.NUMBER, "o": kinds.ARRAY}
    columns = read(dataset, 3, 4, 5)
    assert [value.tolist() for value in columns["text"]] == [[3, 3, 3], [], [5]]
    assert {value.dtype for value in columns["text"]} == {np.dtype(np.int64)} and columns["sound"].tolist() == [3, 4, 5]
    text, sound, o = next(iter(td.DataLoader(dataset, batch_size=4, device="cpu", uniform=["o"])))
    assert text.data.tolist() == [[0, 0, 0], [1, 0, 0], [2, 2, 0], [3, 3, 3]] and text.sizes.tolist() == [
        [0],
        [1],
        [2],
        [3],
    ]
    assert sound.dtype == torch.float64 and o.shape == (4, 2, 2)
    fields = FileDataset({"text": lists.texts}, labels=list("abcdefghijk"), convert={"label": ord, "text": len})
    assert fields.kinds == {"text": kinds.NUMBER, "label": kinds.NUMBER} and read(fields, 1)["label"].tolist() == [98]


def test_kinds_tell_of_a_functions_results(lists: Lists) -> None:
    def boxes(value: dict[str, int]) -> np.ndarray:
        return np.full((value["i"], 4), 1.0, np.float32)

    dataset = FileDataset({"boxes": lists.objects}, convert={"boxes": boxes}, kinds={"boxes": kinds.Boxes("xywh")})
    assert dataset.kinds == {"boxes": kinds.Boxes("xywh")} and read(dataset, 2)["boxes"][0].shape == (2, 4)


def test_failures_of_a_function_are_named(lists: Lists) -> None:
    def function(text: str) -> Any:
        if text == "number 6":
            raise KeyError("six")
        return np.zeros(2 if text == "number 8" else (1, 2))

    dataset = FileDataset({"text": lists.texts}, convert={"text": function})
    with pytest.raises(td.BadSampleError, match=r"06\.txt\): function of convert={'text': \.\.\.}: KeyError: 'six'"):
        list(td.DataLoader(dataset, batch_size=1, sampler=[6], device="cpu"))
    with pytest.raises(
        td.BadSampleError, match=r"'text' must be float64 with 2 dimensions, .* got float64 with 1 dimension"
    ):
        list(td.DataLoader(dataset, batch_size=1, sampler=[8], device="cpu"))


# Identity


def test_fingerprint(lists: Lists, tmp_path: Path) -> None:
    def print_of(paths: Any, **options: Any) -> str:
        return FileDataset(paths, **options).fingerprint()

    one = print_of({"image": lists.images})
    assert one == print_of(lists.images)  # the special case
    two = {"image": lists.images, "text": lists.texts}
    prints = [
        one, print_of(two), print_of({"image": lists.images, "other": lists.texts}), print_of(two, labels=range(N)),
        print_of({"text": lists.texts, "image": lists.images}), print_of({**two, "text": lists.texts[::-1]}),
    ]  # fmt: skip
    assert len(set(prints)) == len(prints) and max(map(len, prints)) <= 100
    moved = tmp_path / "moved"
    moved.mkdir()
    (other := Lists(moved)).images.reverse()
    assert print_of({"text": other.texts, "image": other.images[::-1]}) == prints[4]


def test_exclude_goes_by_the_first_files(lists: Lists) -> None:
    dataset = FileDataset(
        {"image": lists.images, "text": lists.texts},
        labels=range(N),
        exclude=[0, lists.images[2]],
        convert={"text": len},
    )
    assert len(dataset) == N - 2 and dataset.paths[1] == str(lists.images[3])
    assert read(dataset, 0, 1)["label"].tolist() == [1, 3] and dataset.files["text"][1] == str(lists.texts[3])


# Through the loader


def make_loader(lists: Lists, **changes: Any) -> td.DataLoader:
    dataset = FileDataset(
        {"image": lists.images, "mask": lists.masks, "text": lists.texts},
        fields=["image", "mask", "text", "index"], kinds={"mask": "mask"}, convert={"text": lengths},
    )  # fmt: skip
    transform = T.Compose([T.RandomCrop(16), T.RandomHorizontalFlip()])
    options = {"batch_size": 4, "shuffle": True, "seed": 3, "device": "cpu", "transform": transform}
    return td.DataLoader(dataset, **{**options, **changes})


def test_masks_are_ids_and_move_with_their_images(lists: Lists) -> None:
    for image, mask, _, index in make_loader(lists):
        assert (
            image.shape == (len(index), 3, 16, 16) and mask.shape == (len(index), 16, 16) and mask.dtype == torch.uint8
        )
        assert torch.equal(image[:, 0] // 64, mask)


def test_resumes_exactly_on_any_ranks(lists: Lists) -> None:
    assert_resumes_exactly(lambda: make_loader(lists), epochs=2)
    assert_same_stream(
        lambda: make_loader(lists),
        lambda: [make_loader(lists, batch_size=2, rank=rank, world_size=2) for rank in range(2)],
        steps=False,
    )


def test_a_damaged_mask_is_a_bad_sample(lists: Lists) -> None:
    truncate_file(lists.masks[5], 0.7)
    with pytest.raises(td.BadSampleError, match=r"sample 5 \(.*image/05\.png\): the file of 'mask' can't be decoded"):
        list(make_loader(lists, shuffle=False))


# Kinds in doubt


def test_a_second_picture_asks_whether_it_is_a_mask(lists: Lists) -> None:
    """As soon as a transform would act on it."""
    undeclared = FileDataset({"image": lists.images, "mask": lists.masks})
    next(iter(td.DataLoader(undeclared, batch_size=4, device="cpu")))
    with pytest.raises(td.KindError, match="'mask': a PNG file beside an image: a mask, or an image"):
        td.DataLoader(undeclared, batch_size=4, device="cpu", transform=T.RandomHorizontalFlip())
    for told in ("mask", "encoded"):
        td.DataLoader(
            FileDataset({"image": lists.images, "mask": lists.masks}, kinds={"mask": told}),
            batch_size=4, device="cpu", transform=T.RandomHorizontalFlip(),
        )  # fmt: skip
        td.DataLoader(undeclared, batch_size=4, device="cpu", transform=T.RandomHorizontalFlip(), kinds={"mask": told})
    side_by_side = td.Zip(FileDataset(lists.images), FileDataset({"mask": lists.masks}))
    with pytest.raises(td.KindError, match="'mask': a PNG file beside an image"):
        td.DataLoader(side_by_side, batch_size=4, device="cpu", transform=T.RandomHorizontalFlip())
    told = td.Zip(FileDataset(lists.images), FileDataset({"mask": lists.masks}, kinds={"mask": "mask"}))
    ((image, mask),) = list(td.DataLoader(told, batch_size=N, device="cpu", transform=T.RandomHorizontalFlip()))
    assert torch.equal(image.data[:, 0] // 64, mask.data)


def test_arrays_beside_an_image_ask_too(tmp_path: Path) -> None:
    Image.fromarray(pixels_of(0)).save(tmp_path / "a.png")
    mask, boxes = np.zeros((20, 30), np.uint8), np.zeros((2, 4), np.float32)
    for array, question in [(mask, "are those of the image: a mask"), (boxes, "beside an image: boxes")]:
        np.save(tmp_path / "a.npy", array)
        paths = {"image": [tmp_path / "a.png"], "x": [tmp_path / "a.npy"]}
        in_memory = td.InMemoryDataset(image=pixels_of(0)[None], x=array[None])
        for dataset in (FileDataset(paths), in_memory):
            with pytest.raises(td.KindError, match=f"'x': .*{question}"):
                td.DataLoader(dataset, device="cpu", transform=T.RandomHorizontalFlip())
        td.DataLoader(FileDataset(paths, kinds={"x": "array"}), device="cpu", transform=T.RandomHorizontalFlip())


def test_what_belongs_to_boxes_is_filtered_with_them() -> None:
    boxes = [np.array([[1, 1, 9, 9], [5, 5, 5, 9]], np.float32), np.array([[2, 2, 4, 4]], np.float32)]
    dataset = td.InMemoryDataset(
        image=np.stack([pixels_of(0), pixels_of(1)]), boxes=boxes, labels=[np.array([7, 8]), np.array([9])],
        kinds={"boxes": "boxes"},
    )  # fmt: skip
    loader = td.DataLoader(dataset, batch_size=2, device="cpu", transform=T.SanitizeBoundingBoxes())
    _, left, labels = next(iter(loader))
    assert left.sizes.tolist() == [[1], [1]] and labels.data.tolist() == [[7], [9]]
    pair = torch.utils.data.ConcatDataset([dataset, td.InMemoryDataset(dataset.columns, kinds={"boxes": "boxes"})])
    joined = list(td.DataLoader(pair, batch_size=4, device="cpu", transform=T.SanitizeBoundingBoxes()))
    assert joined[0][2].data.tolist() == [[7], [9], [7], [9]]


def test_what_endings_say_is_not_asked(lists: Lists) -> None:
    dataset = FileDataset({"image": lists.images, "sound": lists.sounds, "a": lists.arrays})
    image, sound, _ = next(iter(td.DataLoader(dataset, batch_size=4, device="cpu", transform=T.RandomHorizontalFlip())))
    assert image.data.shape == (4, 3, 20, 30) and sound.data.dtype == torch.float32
    assert dataset.kinds["sound"] == kinds.Audio(encoded=True)
