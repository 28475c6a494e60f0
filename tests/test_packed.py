"""Packed samples: the stream of the files, bit for bit; and packs that were killed, are damaged, or hold other data."""

from __future__ import annotations

import fcntl
import os
import pickle
import signal
import sys
import wave
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, IterableDataset, Subset

import torchdali as td
from torchdali import packing
from torchdali import transforms as T
from torchdali.testing import assert_resumes_exactly, assert_same_stream, make_image_folder, truncate_file

from . import source_datasets as S
from .launcher import finish, start_code

FIELDS = ["image", "label", "index", "path"]
SMALL = 100_000  # bytes: each batch that is packed becomes a shard


@pytest.fixture(scope="module")
def files(folder: Path) -> td.ImageFolder:
    return td.ImageFolder(folder, fields=FIELDS)


@pytest.fixture(scope="module")
def packed(files: td.ImageFolder, tmp_path_factory: pytest.TempPathFactory) -> td.Packed:
    return td.pack(files, tmp_path_factory.mktemp("packed"), shard_bytes=SMALL)


def loader(dataset: Any, transform: Any = None, **options: Any) -> td.DataLoader:
    return td.DataLoader(
        dataset, **dict(batch_size=5, shuffle=True, seed=3, transform=transform, device="cpu", num_threads=2) | options
    )


# One stream


def rotated(sample: dict[str, Any], rand: Any) -> dict[str, Any]:
    import nvidia.dali.experimental.dynamic as ndd

    return {**sample, "image": ndd.rotate(sample["image"], angle=rand.uniform(-20, 20))}


AUGMENTATIONS: dict[str, Any] = {
    "none": None,
    "usual": T.Compose([T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.Normalize([0.5] * 3, [0.2] * 3)]),
    "colours": T.Compose([T.ColorJitter(0.4, 0.4, 0.4, 0.1), T.RandomCrop(40, pad_if_needed=True)]),
    "decode first": T.Compose([T.Decode(), T.RandomVerticalFlip(), T.Resize((20, 30))]),
    "a function": T.Compose([T.RandomHorizontalFlip(), rotated, T.RandomCrop(24, pad_if_needed=True)]),
    "decode and a function": T.Compose([T.Decode(), rotated, T.Resize((20, 30))]),
}


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_its_pixels_are_those_of_the_files(files, packed, name):
    """Over engines and ranks; the random numbers of augmentations too."""
    transform = AUGMENTATIONS[name]
    assert len(packed._index.shards) > 1
    assert_same_stream(
        lambda: loader(files, transform),
        lambda: loader(packed, transform),
        lambda: loader(packed, transform, engine="eager"),
        epochs=2,
    )
    two = [loader(packed, transform, rank=rank, world_size=2) for rank in range(2)]
    assert_same_stream(lambda: loader(files, transform), lambda: two, steps=False)


@pytest.mark.slow
def test_a_checkpoint_of_the_files_goes_on_with_the_pack(files, packed):
    assert packed.fingerprint() == files.fingerprint()
    transform = AUGMENTATIONS["usual"]
    assert_resumes_exactly(lambda: loader(packed, transform))
    assert_resumes_exactly(lambda: loader(files, transform), lambda: loader(packed, transform), every=2, steps=True)
    assert_resumes_exactly(lambda: loader(packed, transform), lambda: loader(files, transform), every=2, steps=True)


def test_a_sample_is_the_files(files, packed):
    assert len(packed) == len(files) and packed.fields == files.fields
    for i in (0, 15, 16, -1):
        (image, label, *beside), (image_, label_, *beside_) = files[i], packed[i]
        assert torch.equal(image, image_) and torch.equal(label, label_) and beside == beside_
    assert packed.path(7) == files.path(7)
    assert [name for name, _ in zip(td.Packed(packed.folder, ["label", "valid"]).fields, range(9))] == [
        "label",
        "valid",
    ]


def test_parts_of_a_pack_are_parts_of_the_files(files, packed):
    whole = td.ImageFolder(files.root, fields=["image", "label"])
    small = td.Packed(packed.folder, fields=["image", "label"])

    def subset(one: Any) -> td.DataLoader:
        return loader(Subset(one, [5, 20, 3, 3, 16]), AUGMENTATIONS["usual"])

    def concatenated(one: Any) -> td.DataLoader:
        return loader(ConcatDataset([one, Subset(one, [1, 2])]), AUGMENTATIONS["usual"])

    assert_same_stream(lambda: subset(whole), lambda: subset(small))
    assert_same_stream(lambda: concatenated(whole), lambda: concatenated(small))


def test_a_resized_pack(files, tmp_path):
    """Its epochs are those of files that are resized first; its fingerprint names the transform."""
    packed = td.pack(files, tmp_path / "pack", T.Resize(36))
    crop = T.CenterCrop(30)
    assert_same_stream(lambda: loader(files, T.Compose([T.Resize(36), crop])), lambda: loader(packed, crop), epochs=2)
    assert_resumes_exactly(lambda: loader(packed, AUGMENTATIONS["usual"]), every=3)
    assert packed.packed_transform == repr(T.Resize(36))
    assert packed.fingerprint().startswith("22 packed Resize(size=36,") and len(packed.fingerprint()) <= 100
    with pytest.raises(td.StateMismatchError, match="dataset"):
        loader(packed).load_state_dict(loader(files).state_dict())
    square = td.pack(files, tmp_path / "square", T.Compose([T.Resize(36), T.CenterCrop(30)]))
    assert next(iter(loader(square)))[0].shape == (5, 3, 30, 30)
    assert len({one.fingerprint() for one in (files, packed, square)}) == 3


def test_every_kind_of_value_comes_back(tmp_path):
    """Of a dataset of Python code, as epoch 0 of seed 0 makes it; its own images are files, and are decoded."""
    packed = td.pack(S.Plain(), tmp_path / "pack", shard_bytes=1)
    kinds = {"image": "image", "index_": "number", "text": "object", "ragged": "array", "fixed": "array"}
    assert kinds.items() <= {name: str(kind) for name, kind in packed.kinds.items()}.items()
    options: dict[str, Any] = dict(seed=0, shuffle=False, output="dict")
    first = assert_same_stream(lambda: loader(S.Plain(), **options), lambda: loader(packed, **options))
    assert [len(step.samples) for step in first] == [5, 5, 5, 5, 3]


def test_decoded_images_and_objects_stay_as_they_are(tmp_path):
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (30 + i, 40, 1), dtype=np.uint8) for i in range(7)]
    nested = [{"box": [i, 0.5], "name": f"é{i}", "none": None} for i in range(7)]
    dataset = td.InMemoryDataset(image=images, nested=nested, flag=np.arange(7) > 3, matrix=np.zeros((7, 2, 0)))
    packed = td.pack(dataset, tmp_path)
    assert packed.fingerprint() == dataset.fingerprint()
    assert_same_stream(lambda: loader(dataset, T.RandomCrop(20)), lambda: loader(packed, T.RandomCrop(20)), epochs=2)


# What can't be packed


class Objects:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        return {"x": index, "thing": self.value}


@pytest.mark.parametrize("value", [["a", b"b"], {1: "a"}, {"a": ("b",)}, S.Pair], ids=repr)
def test_objects_that_json_would_change(tmp_path, value):
    dataset = td.InMemoryDataset(x=[0, 1, 2], thing=["fine", "fine", value])
    with pytest.raises(TypeError, match=r"'thing' of sample 2 can't be packed: strings, .*leave the field out"):
        td.pack(dataset, tmp_path / "pack")
    assert not list((tmp_path / "pack").iterdir())


@pytest.mark.parametrize(
    ("transform", "words"),
    [
        (T.RandomHorizontalFlip(), "draw no random numbers, got RandomHorizontalFlip"),
        (T.Compose([T.Resize(9), T.RandomResizedCrop(8)]), "draw no random numbers, got RandomResizedCrop"),
        (T.ColorJitter(0.1), "draw no random numbers, got ColorJitter"),
        (rotated, "the function rotated may"),
        (T.Normalize([0.5] * 3, [0.2] * 3), "keep uint8 pixels, got Normalize"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_transforms_that_belong_to_each_epoch(files, tmp_path, transform, words):
    with pytest.raises((ValueError, TypeError), match=words) as error:
        td.pack(files, tmp_path / "pack", transform)
    assert "write it in the transform= of the loader that reads the pack" in str(error.value)


class Endless(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(3))


def test_sources_that_are_not_read_by_index(folder, tmp_path):
    for dataset in (Endless(), td.readers.File(file_root=folder)):
        with pytest.raises(ValueError, match="samples are read by index"):
            td.pack(dataset, tmp_path / "pack")
    with pytest.raises(ValueError, match="there is nothing to pack in the fields index, valid"):
        td.pack(td.InMemoryDataset(x=[1, 2], fields=["index", "valid"]), tmp_path / "pack")


def test_a_value_of_another_dtype(tmp_path):
    arrays = [np.zeros(3, np.float32)] * 16 + [np.zeros(3, np.float64)]
    with pytest.raises(td.FieldTypeError, match=r"'field1' must be float32 .*, got float64"):
        td.pack([(i, array) for i, array in enumerate(arrays)], tmp_path / "pack")


# Bad samples


def test_bad_samples_are_named_or_left_out(own_folder, tmp_path):
    files = td.ImageFolder(own_folder)
    bad = [2, 15, 16, 21]
    for i in bad:
        truncate_file(Path(files.paths[i]))
    with pytest.raises(td.BadSampleError, match=r"sample 2 .*0002.jpg"):
        td.pack(files, tmp_path / "pack")
    packed = td.pack(files, tmp_path / "pack", on_bad_sample="skip", shard_bytes=1)
    assert [(one.index, one.path, one.stage) for one in packed.left_out] == [(i, files.path(i), "decode") for i in bad]
    assert packed.fingerprint() != files.fingerprint() and packed.fingerprint().startswith("18 packed files")
    good = [i for i in range(22) if i not in bad]
    assert [packed.path(i) for i in range(18)] == [files.path(i) for i in good]
    assert_same_stream(lambda: loader(files, sampler=good, shuffle=False), lambda: loader(packed, shuffle=False))
    assert td.pack(td.ImageFolder(own_folder), tmp_path / "pack", on_bad_sample="skip").left_out == packed.left_out
    with pytest.raises(td.BadSampleError, match=r"sample 2 .*0002.jpg"):  # it must not be left out silently
        td.pack(files, tmp_path / "pack")


def test_what_was_packed_before_a_bad_sample_stays(own_folder, tmp_path):
    """The next call reads only what is missing, whether the file was mended or is to be left out."""
    files = Noting(*noted(own_folder))
    whole = Path(files.paths[20]).read_bytes()
    truncate_file(Path(files.paths[20]))
    for _ in range(2):
        with pytest.raises(td.BadSampleError, match="sample 20 "):
            td.pack(files, tmp_path / "skipped", shard_bytes=1)
    files.read_indices.clear()
    assert len(td.pack(files, tmp_path / "skipped", shard_bytes=1, on_bad_sample="skip")) == 21
    assert set(range(16, 22)) <= set(files.read_indices) and len(set(files.read_indices)) <= 7  # and one substitute

    with pytest.raises(td.BadSampleError, match="sample 20 "):
        td.pack(files, tmp_path / "mended", shard_bytes=1)
    Path(files.paths[20]).write_bytes(whole)
    assert td.pack(files, tmp_path / "mended", shard_bytes=1).fingerprint() == files.fingerprint()


def test_only_the_index_was_missing(own_folder, tmp_path, monkeypatch):
    files = Noting(*noted(own_folder))

    def full(*_: Any) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(packing, "write_index", full)
        with pytest.raises(OSError, match="no space left"):
            td.pack(files, tmp_path / "pack")
    files.read_indices.clear()
    td.pack(files, tmp_path / "pack").verify()
    assert not files.read_indices and not list((tmp_path / "pack").glob("shard-*.json"))


class Failing:
    """A dataset of Python code of which some samples fail."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> tuple[int, str]:
        if index % 7 == 3:
            raise KeyError("no such key")
        return index, f"text {index}"


@pytest.mark.parametrize("num_workers", [0, 1])
def test_bad_samples_of_python_code(tmp_path, num_workers):
    with pytest.raises(KeyError) as error:
        td.pack(Failing(), tmp_path / "pack", num_workers=num_workers)
    assert any("sample 3" in note for note in error.value.__notes__)
    packed = td.pack(Failing(), tmp_path / "pack", on_bad_sample="skip", num_workers=num_workers)
    good = [i for i in range(40) if i % 7 != 3]
    assert [packed[i] for i in range(len(packed))] == [(i, f"text {i}") for i in good]
    assert [(one.index, one.reason) for one in packed.left_out] == [(i, "'no such key'") for i in range(3, 40, 7)]


# Files


def test_memory_is_shared_with_the_files(packed):
    """A batch copies its numbers; its images are views that can be written, and what is written stays here."""
    columns = packed.read_columns([0, 21], ["image", "label"])
    assert all(image.flags.writeable and image.base is not None for image in columns["image"])
    assert columns["label"].base is None
    before = columns["image"][0].copy()
    columns["image"][0][...] = 0
    packed.verify()
    again = pickle.loads(pickle.dumps(packed))
    assert np.array_equal(again.read_columns([0], ["image"])["image"][0], before)
    columns["image"][0][...] = before


def copy_of(packed: td.Packed, tmp_path: Path) -> Path:
    folder = tmp_path / "copy"
    folder.mkdir()
    for file in packed.folder.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


@pytest.mark.parametrize("name", ["shard-00001.0-image.npy", "shard-00000.1-label.npy"])
def test_a_damaged_shard_is_named(packed, tmp_path, name):
    folder = copy_of(packed, tmp_path)
    data = bytearray((folder / name).read_bytes())
    data[-1] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(ValueError, match=rf"{name} is damaged: the CRC-32 .*pack the dataset again"):
        td.Packed(folder).verify()
    (folder / name).write_bytes(data[:-1])
    with pytest.raises(ValueError, match=rf"{name} is damaged: {len(data)} bytes were expected, got {len(data) - 1}"):
        td.Packed(folder)
    (folder / name).unlink()
    with pytest.raises(ValueError, match=rf"{name} is damaged: {len(data)} bytes were expected, got no such file"):
        td.Packed(folder)


def test_a_damaged_index(packed, tmp_path):
    folder = copy_of(packed, tmp_path)
    index = folder / "pack.json"
    text = index.read_text()
    for broken in (text[:100], text.replace('"kind": "number"', '"kind": "array"'), "[]", ""):
        index.write_text(broken)
        with pytest.raises(ValueError, match=r"pack.json is damaged: delete the folder, and pack the dataset again"):
            td.Packed(folder)
    index.unlink()
    with pytest.raises(FileNotFoundError, match="is not finished: call pack again with the same arguments"):
        td.Packed(folder)
    with pytest.raises(FileNotFoundError, match=r"no pack at .*copi \(did you mean '.*copy'\?\)"):
        td.Packed(tmp_path / "copi")
    with pytest.raises(FileNotFoundError, match=r"got .*, which has no pack.json: td.pack makes one"):
        td.Packed(tmp_path)


def test_a_folder_that_holds_something_else(files, packed, tmp_path):
    assert td.pack(files, packed.folder).fingerprint() == packed.fingerprint()  # only opened
    with pytest.raises(FileExistsError, match=r"holds a pack of .* and one of .*Resize"):
        td.pack(files, packed.folder, T.Resize(9))
    with pytest.raises(FileExistsError, match=r"path must be a new folder, got .* with class_"):
        td.pack(files, files.root)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(BlockingIOError, match="another process is packing into"):
        td.pack(files, tmp_path)
    os.close(descriptor)
    for wrong in ({"shard_bytes": 0}, {"on_bad_sample": "substitute"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            td.pack(files, tmp_path, **wrong)


def noted(folder: Path) -> tuple[list[str], list[int]]:
    """The files of a folder, and their labels."""
    files = td.ImageFolder(folder)
    return files.paths, files.targets


class Noting(td.FileDataset):
    """Tells which samples are read."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.read_indices: list[int] = []

    def read_columns(self, indices: Any, names: Any) -> Any:
        self.read_indices += indices
        return super().read_columns(indices, names)


@pytest.mark.processes
def test_a_killed_process_goes_on(tmp_path):
    folder = make_image_folder(tmp_path / "files", classes=2, per_class=20)
    code = """
        import os, signal, sys
        import torchdali as td
        from torchdali.formats.shards import ShardWriter

        finish = ShardWriter.finish

        def finish_or_die(self, *args):
            if self._number == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return finish(self, *args)

        ShardWriter.finish = finish_or_die
        td.pack(td.ImageFolder(sys.argv[1]), sys.argv[2], shard_bytes=1)
    """
    finish(start_code(code, tmp_path, folder, tmp_path / "pack"), -signal.SIGKILL)
    first = tmp_path / "pack" / "shard-00000.0-image.npy"
    written = first.stat()
    files = td.ImageFolder(folder)
    with pytest.raises(FileNotFoundError, match="is not finished"):
        td.Packed(tmp_path / "pack")
    with pytest.raises(FileExistsError, match="holds a part of another pack"):
        td.pack(files, tmp_path / "pack", T.Resize(9), shard_bytes=1)

    again = Noting(files.paths, files.targets)
    again.fingerprint = files.fingerprint  # type: ignore[method-assign]
    packed = td.pack(again, tmp_path / "pack", shard_bytes=1)
    assert min(again.read_indices) == 16 and max(again.read_indices) == 39
    assert (first.stat().st_ino, first.stat().st_mtime_ns) == (written.st_ino, written.st_mtime_ns)
    whole = td.pack(files, tmp_path / "whole", shard_bytes=1)
    names = {path.name for path in whole.folder.iterdir()}
    assert names == {path.name for path in packed.folder.iterdir()} and len(names) == 3 * 5 + 1
    for name in names:
        assert (whole.folder / name).read_bytes() == (packed.folder / name).read_bytes(), name
    packed.verify()


def test_a_pack_keeps_kinds(tmp_path):
    """Pictures, and what lies in them, move as in the dataset that was packed."""
    rng = np.random.default_rng(0)
    sizes = [(20 + i % 3, 30) for i in range(20)]
    counts = [i % 4 for i in range(20)]
    columns = {
        "image": [rng.integers(0, 256, (*size, 3), dtype=np.uint8) for size in sizes],
        "mask": [rng.integers(0, 9, size, dtype=np.uint8) for size in sizes],
        "boxes": [rng.uniform(2, 9, (count, 4)).astype(np.float32) for count in counts],
        "labels": [np.arange(count) for count in counts],
        "masks": [rng.integers(0, 2, (n, *size), dtype=np.uint8) for n, size in zip(counts, sizes)],
        "spots": [rng.uniform(0, 20, (count, 2, 3)).astype(np.float32) for count in counts],
        "clip": rng.integers(0, 256, (20, 2, 8, 9, 3), dtype=np.uint8),
        "scan": rng.uniform(size=(20, 3, 4, 5)).astype(np.float32),
        "sound": [rng.uniform(-1, 1, (2, 10 + i)).astype(np.float32) for i in range(20)],
    }
    told = {
        "mask": td.kinds.Mask(fill=255), "boxes": td.kinds.Boxes("xywh"), "masks": "mask",
        "spots": td.kinds.Points(swap=((0, 1),)), "clip": td.kinds.Video(scene="b"), "scan": "array",
        "sound": td.kinds.Audio(rate=8000),
    }  # fmt: skip
    source = td.InMemoryDataset(columns, kinds=told, fingerprint="typed")
    packed = td.pack(source, tmp_path / "typed")
    bound = [td.DataLoader(one, 4, device="cpu").source.kinds for one in (source, packed)]
    assert bound[0] == bound[1] and packed.kinds["labels"].group == "objects"
    for transform in (None, T.Compose([T.RandomRotation(20), T.RandomHorizontalFlip(), T.SanitizeBoundingBoxes()])):
        both = [partial(td.DataLoader, one, 4, True, transform=transform, device="cpu") for one in (source, packed)]
        assert_same_stream(*both)
    turned = td.pack(source, tmp_path / "turned", T.Compose([T.Resize((10, 15)), T.ConvertBoundingBoxFormat("cxcywh")]))
    assert turned.kinds["boxes"] == td.kinds.Boxes("cxcywh", group="objects")
    batch, expected = (
        next(iter(td.DataLoader(one, 20, device="cpu", output="dict", transform=T.Resize((10, 15)))))
        for one in (turned, source)
    )
    assert batch["mask"].shape == (20, 10, 15) and torch.equal(batch["mask"], expected["mask"])
    assert torch.equal(batch["boxes"].data[..., 2:], expected["boxes"].data[..., 2:])
    assert torch.equal(batch["spots"].data, expected["spots"].data)


def test_a_pack_keeps_deep_and_grey_images_sound_files_and_nested_fields(files, tmp_path):
    deep = tmp_path / "deep.png"
    values = np.random.default_rng(0).integers(0, 2**16, (9, 8)).astype(np.uint16)
    Image.fromarray(values).save(deep)
    with wave.open(str(tmp_path / "a.wav"), "wb") as sound:
        sound.setparams((1, 2, 8000, 0, "NONE", ""))
        sound.writeframes(np.arange(100, dtype="<i2").tobytes())
    whole = td.FileDataset(
        {"deep": [deep], "grey": files.paths[:1], "sound": [tmp_path / "a.wav"]},
        kinds={"deep": td.kinds.Image(mode="unchanged"), "grey": td.kinds.Image(mode="L", scene="b")},
    )
    packed = td.pack(whole, tmp_path / "files")
    ours, theirs = (next(iter(td.DataLoader(one, 1, device="cpu"))) for one in (packed, whole))
    for one, other in zip(ours, theirs, strict=True):
        data = [value.data if isinstance(value, td.Padded) else value for value in (one, other)]
        assert data[0].dtype == data[1].dtype and torch.equal(data[0][0], data[1][0])
    assert packed.kinds["sound"] == td.kinds.Audio()

    class Nested(td.InMemoryDataset):
        nested = True

    nested = Nested({"image": np.zeros((3, 4, 4, 3), np.uint8), "target.label": [1, 2, 3]}, fingerprint="nested")
    (batch,) = td.DataLoader(td.pack(nested, tmp_path / "nested"), 3, device="cpu")
    assert batch[1]["label"].tolist() == [1, 2, 3]


def test_polygons_are_not_packed(files, tmp_path):
    outlines = td.InMemoryDataset(x=[[[0, 0, 5, 0, 5, 5]]] * len(files), kinds={"x": "polygons"})
    with pytest.raises(ValueError, match=r"a pack keeps no polygons, and 'x' holds some: leave the field out"):
        td.pack(td.Zip(files, outlines), tmp_path / "polygons")


def test_progress_is_shown(files, tmp_path, capsys, monkeypatch):
    td.pack(files, tmp_path / "one", progress=True).verify(progress=True)
    shown = capsys.readouterr().err
    assert "22/22" in shown and "B/s" in shown
    monkeypatch.setitem(sys.modules, "tqdm", None)
    td.pack(files, tmp_path / "two", progress=True).verify(progress=True)
    shown = capsys.readouterr().err
    assert "pack: 22 of 22 (100 %)" in shown and "verify: " in shown
    td.pack(files, tmp_path / "three").verify()
    assert not capsys.readouterr().err
