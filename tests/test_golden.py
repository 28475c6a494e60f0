"""The stream, frozen: orders, cuts, random numbers, parameters and states, held against values of an earlier day.

Other tests say what a stream has to be like; these say that it is still the same one.  `data/golden.json` holds digests
of what some set-ups give (never of pixels, which depend on the versions of libraries), and whole states, which must
stay loadable.  A new set-up is added by

    python -m tests.test_golden --write

which refuses to change what is there already, unless `state.VERSION` was raised.

Numbers are integers, or floats that plain arithmetic gives, the same on every machine.  Those that go through a
logarithm or a cosine (`normal`), or through DALI's generator, may differ in a last bit: they are kept as they are and
compared within 1e-5, since a rounded number flips where it lies on an edge.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import mmap
import os
import platform
import random
import sys
import tarfile
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import nvidia.dali
import nvidia.dali.experimental.dynamic as ndd
import pytest
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, RandomSampler, Sampler, Subset, SubsetRandomSampler

import torchdali as td

# The only looks inside the package: where these move, only the lines here follow.
from torchdali import permutation as permutation_module
from torchdali import rand as random_module
from torchdali import seeding as seeding_module
from torchdali import state as state_module
from torchdali import transforms as T

from . import source_datasets as S

FILE = Path(__file__).parent / "data" / "golden.json"
N = 23
SEED = 1234567890123456789

Rand, derive, shard_seed = random_module.Rand, random_module.derive, random_module.shard_seed
Permutation, permute_each = permutation_module.Permutation, permutation_module.permute_each
seed_all, seed_sample, preserved = seeding_module.seed_all, seeding_module.seed_sample, seeding_module.preserved
VERSION = state_module.VERSION


# Files, the same in every folder


class Files:
    """Small datasets below a folder, made when they are first asked for; the names in it are always the same."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @cached_property
    def numbers(self) -> td.InMemoryDataset:
        return td.InMemoryDataset(label=np.arange(N) * 7 % 10, fields=["index", "label", "valid"])

    def _photos(self, name: str) -> Path:
        for i in range(N):
            path = self.root / name / f"class_{i // 8}" / f"{i:03d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (30 + i * 5 % 17, 30 + i * 7 % 19), (9 * i, i, 100)).save(path)
        return self.root / name

    @cached_property
    def photos(self) -> td.ImageFolder:
        return td.ImageFolder(self._photos("photos"), fields=["image", "index", "label", "valid"])

    @cached_property
    def packed(self) -> td.Packed:
        return td.pack(self.photos, self.root / "packed", shard_bytes=1)

    @cached_property
    def packed_labels(self) -> td.Packed:
        return td.Packed(self.packed.folder, fields=["label", "index", "valid"])

    @cached_property
    def damaged(self) -> td.ImageFolder:
        """A third of the images are none."""
        dataset = td.ImageFolder(self._photos("damaged"), fields=["image", "index", "label", "valid"])
        for path in dataset.paths[1::3]:
            Path(path).write_bytes(b"no image at all")
        return dataset

    @cached_property
    def octets(self) -> Path:
        """Files of four bytes each in folders for classes, which DALI takes for images by their names."""
        for i in range(N):
            path = self.root / "octets" / f"class_{i // 8}" / f"{i:03d}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes([i] * 4))
        return self.root / "octets"

    @cached_property
    def files(self) -> td.FileDataset:
        return td.FileDataset(sorted(self.octets.glob("*/*")), list(range(N)), fields=["index", "label", "valid"])

    @cached_property
    def tar(self) -> td.TarDataset:
        for shard in range(2):
            (self.root / "tar").mkdir(exist_ok=True)
            with tarfile.open(self.root / "tar" / f"{shard}.tar", "w", format=tarfile.USTAR_FORMAT) as file:
                for i in range(shard * 11, (11, N)[shard]):
                    for ending, data in {"cls": b"%d" % (i * 3), "bin": bytes([i] * i)}.items():
                        header = tarfile.TarInfo(f"{i:03d}.{ending}")
                        header.size = len(data)
                        file.addfile(header, io.BytesIO(data))
        return td.TarDataset(self.root / "tar" / "*.tar", ["cls"], fields=["label", "index", "valid"])

    @cached_property
    def arrays(self) -> td.NumpyDataset:
        (self.root / "arrays").mkdir()
        for i in range(N):
            np.save(self.root / "arrays" / f"{i:03d}.npy", np.full(3, i, np.int32))
        return td.NumpyDataset(self.root / "arrays", fields=["array", "index", "valid"], ragged=False)

    @cached_property
    def tfrecord(self) -> td.TFRecordDataset:
        from tfrecord.writer import TFRecordWriter

        (self.root / "tfrecord").mkdir()
        for shard in range(2):
            writer = TFRecordWriter(str(self.root / "tfrecord" / f"{shard}.tfrecord"))
            for i in range(shard * 11, (11, N)[shard]):
                writer.write({"label": (i * 3, "int"), "data": (bytes(i), "byte")})
            writer.close()
        return td.TFRecordDataset(
            self.root / "tfrecord" / "*.tfrecord", {"label": "int"}, fields=["label", "index", "valid"]
        )

    @cached_property
    def recordio(self) -> td.RecordIODataset:
        (self.root / "recordio").mkdir()
        data, lines = b"", []
        for i in range(N):
            lines.append(f"{i}\t{len(data)}\n")
            content = np.array([0], "<u4").tobytes() + np.array([i * 3], "<f4").tobytes() + bytes(16) + bytes([i] * i)
            data += np.array([0xCED7230A, len(content)], "<u4").tobytes() + content + bytes(-len(content) % 4)
        (self.root / "recordio" / "data.rec").write_bytes(data)
        (self.root / "recordio" / "data.idx").write_text("".join(lines))
        return td.RecordIODataset(self.root / "recordio" / "data.rec", fields=["label", "index", "valid"])

    @cached_property
    def lmdb(self) -> td.LMDBDataset:
        import lmdb

        with lmdb.open(str(self.root / "lmdb"), map_size=1 << 20) as env, env.begin(write=True) as transaction:
            for i in range(N):
                transaction.put(b"%08d" % i, b"%d" % (i * 3))
        return td.LMDBDataset(
            self.root / "lmdb",
            "raw",
            fields=["label", "index", "valid"],
            decode=lambda value: {"label": int(bytes(value))},
        )

    @cached_property
    def several_files(self) -> td.FileDataset:
        (self.root / "texts").mkdir()
        for i in range(N):
            (self.root / "texts" / f"{i:03d}.txt").write_text("x" * (i * 3 + 1))
        return td.FileDataset(
            {"image": sorted(self.octets.glob("*/*")), "label": sorted((self.root / "texts").glob("*"))},
            fields=["label", "index", "valid"],
            convert={"label": len},
        )

    @cached_property
    def side_by_side(self) -> td.Zip:
        return td.Zip(self.numbers, td.InMemoryDataset(weight=np.arange(N) * 5))

    @cached_property
    def rows(self) -> td.NumpyDataset:
        np.savez(self.root / "rows.npz", x=np.arange(N * 2).reshape(N, 2), label=np.arange(N) * 3)
        return td.NumpyDataset(self.root / "rows.npz", fields=["x", "label", "index", "valid"])

    @cached_property
    def tokens(self) -> td.TokenWindows:
        (np.arange(N * 4 + 3) * 7 % 251).astype(np.uint16).tofile(self.root / "tokens.bin")
        return td.TokenWindows(self.root / "tokens.bin", 4, fields=["tokens", "index", "valid"])

    @cached_property
    def coco(self) -> td.CocoDataset:
        images = [{"id": 100 - i, "file_name": path.name} for i, path in enumerate(sorted(self.octets.glob("*/*")))]
        objects = [
            {"image_id": 100 - i, "category_id": k, "bbox": [k, i, 5, 6]} for i in range(N) for k in range(i % 3)
        ]
        (self.root / "coco.json").write_text(json.dumps({"images": images, "annotations": objects}))
        for image in images:
            (self.root / image["file_name"]).touch()
        fields = ["target.boxes", "target.labels", "target.image_id", "index", "valid"]
        return td.CocoDataset(self.root, self.root / "coco.json", fields)

    def native(self, **options: Any) -> td.readers.File:
        fields = options.pop("fields", ["image", "label", "index"])
        return td.readers.File(file_root=self.octets, fields=fields, kinds={"image": "array"}, **options)


DATASETS = [
    "numbers", "files", "tar", "arrays", "tfrecord", "recordio", "lmdb", "several_files", "side_by_side", "rows",
    "tokens", "coco",
]  # fmt: skip


@contextmanager
def made(root: Path) -> Iterator[Files]:
    """The files below a folder, indexes of them included."""
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(root / "cache")
    try:
        yield Files(root)
    finally:
        del os.environ["XDG_CACHE_HOME"]
        if before is not None:
            os.environ["XDG_CACHE_HOME"] = before


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    with made(tmp_path_factory.mktemp("golden")) as files:
        yield files


# Values and their digests


class Near(list):
    """Numbers that are compared within 1e-5."""


def text_of(value: Any) -> str:
    """A value as JSON, the same for arrays, tensors, tuples and lists."""
    return json.dumps(value, default=lambda array: array.tolist(), sort_keys=True)


def digest(value: Any) -> Any:
    if isinstance(value, Near):
        return [round(float(number), 7) for number in value]
    return hashlib.blake2b(text_of(value).encode(), digest_size=8).hexdigest()


def same(golden: Any, now: Any) -> bool:
    if isinstance(golden, list) and isinstance(now, list) and len(golden) == len(now):
        return bool(np.allclose(golden, now, rtol=0, atol=1e-5))
    return bool(golden == now)


def versions() -> dict[str, str]:
    """What may have a part in a difference."""
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__.split("+")[0],
        "dali": nvidia.dali.__version__,
    }


# Set-ups

STREAMS: dict[str, Callable[[Files], dict[str, Any]]] = {}
STATES: dict[str, Callable[[Files], Any]] = {}


def stream(function: Callable[[Files], dict[str, Any]]) -> Callable[[Files], dict[str, Any]]:
    """Register a set-up; it gives its values by name."""
    STREAMS[function.__name__] = function
    return function


def state(function: Callable[[Files], Any]) -> Callable[[Files], Any]:
    """Register a set-up whose state counts; it makes a loader."""
    STATES[function.__name__] = function
    return function


def drawn(sample, rand):
    """31 random bits for each sample: what its numbers are keyed by shows in them."""
    return {**sample, "draw": rand.integers(0, 2**31 - 1)}


def load(dataset: Any, **options: Any) -> td.DataLoader:
    if isinstance(dataset, td.readers.File):
        options = {"uniform": ["image"], **options}  # files of four bytes
    return td.DataLoader(
        dataset,
        **dict(
            batch_size=4, seed=SEED, device="cpu", output="dict", num_threads=1, prefetch_factor=0, transform=drawn,
            rank=0, world_size=1,
        )
        | options,
    )  # fmt: skip


def read(loader: td.DataLoader, epochs: int = 1, batches: int | None = None) -> list[Any]:
    """The batches of some epochs, or the first ones of one."""
    found: list[Any] = []
    for _ in range(epochs):
        found.append([])
        for batch in loader:
            found[-1].append({name: list(map(plain, column)) for name, column in batch.items()})
            if len(found[-1]) == batches:
                break
    return found


def plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, (torch.Tensor, np.ndarray)) else value


def epochs_of(dataset: Any, epochs: int = 1, **options: Any) -> list[Any]:
    with load(dataset, **options) as loader:
        return read(loader, epochs)


def ranks_of(dataset: Any, world_size: int, epochs: int = 1, **options: Any) -> list[Any]:
    return [epochs_of(dataset, epochs, rank=rank, world_size=world_size, **options) for rank in range(world_size)]


def cycles_of(dataset: Any, **options: Any) -> list[Any]:
    """Epoch 2 three times."""
    with load(dataset, **options) as loader:
        loader.set_epoch(2)
        return read(loader, 3)


def resumed(dataset: Any, before: int, after: int, **options: Any) -> list[Any]:
    """Two batches on so many ranks, and the rest on others."""
    with load(dataset, rank=before - 1, world_size=before, **options) as loader:
        first, saved = read(loader, batches=2), loader.state_dict()
    found = [first, saved]
    for rank in range(after):
        with load(dataset, rank=rank, world_size=after, **options) as loader:
            loader.load_state_dict(json.loads(json.dumps(saved)))
            found.append(read(loader))
    return found


# Random numbers


def rand(epoch: int = 3) -> Any:
    return Rand(SEED, epoch, np.array([0, 1, 5, 2**32, 2**63 + 9], np.uint64))


@stream
def random_words(files):
    one = rand()
    return {
        "words": one.words(),
        "second draw": one.words(),
        "shape": one.words((2, 3)),
        "fifth cycle": rand(3 + 4 * 2**32).words(),
        "negative seed": Rand(-1, 0, [0, 7]).words(2),
        "child": one.child(0).words(),
        "children": [one.child(number).words() for number in (1, 2, 255)],
        "child of a child": one.child(1).child(2).words(2),
        "and on": one.words(),
    }


@stream
def random_numbers(files):
    one = rand()
    rows = np.arange(5)
    return {
        "uniform": one.uniform(),
        "uniform between": one.uniform(-10, 10, 3),
        "uniform of rows": one.uniform(rows, rows + 1, (2,)),
        "uniform of nothing": one.uniform(2, 2),
        "normal": Near(one.normal().tolist()),
        "normal of a shape": Near(one.normal(rows, 0.5, (2, 2)).ravel().tolist()),
        "integers": one.integers(10),
        "integers between": one.integers(-5, 2**40, (4,)),
        "integers of rows": one.integers(rows, rows * 7 + 1),
        "bernoulli": one.bernoulli(shape=32),
        "bernoulli with p": one.bernoulli(0.1, shape=(4, 8)),
        "choice": one.choice(["a", "b", "c"], shape=5),
        "choice of a number": one.choice(1000),
        "choice with p": one.choice([1, 2, 3, 4], [0.1, 0.0, 0.5, 0.4], 8),
        "permutations": one.permutations(7),
        "permutations of 4": one.permutations(4),
    }


@stream
def derived_seeds(files):
    return {
        "derive": [derive(seed, *more) for seed in (0, 1, SEED, 2**63 - 1) for more in ((), (0,), (1, 2), (-1, 2**40))],
        "shard_seed": [shard_seed(seed, rank) for seed in (0, 1, SEED) for rank in range(8)],
    }


@stream
def seeded_generators(files):
    def of_sample(epoch, index):
        seed_sample(SEED, epoch, index)
        return None, S.bits()

    with preserved():
        return {
            "seeds": [(seed_all(*numbers), S.bits()) for numbers in ((0,), (1, 2, 3), (-1, 2**63), (SEED, 2**32))],
            "samples": [of_sample(epoch, i) for epoch in (0, 1, 2**32) for i in (0, 1, 1 << 40 | 1)],
        }


# Permutations


@stream
def permutations(files):
    found = {f"of {n}": Permutation(n, derive(SEED, n))(np.arange(n)) for n in (1, 2, 3, 7, 10, 23, 100, 1000)}
    for n in (2**20 + 7, 2**40, 2**62 - 1):
        found[f"some of {n}"] = Permutation(n, 5)(np.array([0, 1, 2, n // 2, n - 1]))
    return found


@stream
def many_permutations(files):
    sizes = np.array([1, 2, 3, 7, 10, 23, 100, 1000, 2**40])
    keys = np.array([derive(SEED, i) for i in range(len(sizes))], np.uint64)
    return {"first": permute_each(sizes, keys, sizes * 0), "last": permute_each(sizes, keys, sizes - 1)}


# Orders


@stream
def sequential(files):
    return {"epochs": epochs_of(files.numbers, 2)}


@stream
def shuffled(files):
    return {
        "epochs": epochs_of(files.numbers, 3, shuffle=True),
        "other seeds": [epochs_of(files.numbers, shuffle=True, seed=seed) for seed in (0, 1, 2**63 - 1)],
        "cycles": cycles_of(files.numbers, shuffle=True),
        "prefetched": epochs_of(files.numbers, 2, shuffle=True, prefetch_factor=2),
    }


class Legacy(Sampler):
    """It draws from Python's and numpy's generators."""

    def __len__(self):
        return N

    def __iter__(self):
        yield from np.random.permutation(11)
        yield from random.sample(range(11, N), N - 11)


class Told(Sampler):
    """It is told the epoch."""

    epoch = 0

    def __len__(self):
        return 9

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return iter([(self.epoch * 5 + 2 * i) % N for i in range(9)])


SAMPLERS: dict[str, Callable[[], Any]] = {
    "random": lambda: RandomSampler(range(N)),
    "replacement": lambda: RandomSampler(range(N), replacement=True, num_samples=40),
    "subset": lambda: SubsetRandomSampler([2, 3, 5, 7, 11, 13, 17, 19]),
    "generator": lambda: RandomSampler(range(N), generator=torch.Generator()),
    "legacy": Legacy,
    "told": Told,
    "list": lambda: [5, 5, 5, 1, 0, 1, 22],
}


@stream
def drawn_samplers(files):
    found = {name: epochs_of(files.numbers, 3, sampler=make()) for name, make in SAMPLERS.items()}
    return found | {
        f"cycles of {name}": cycles_of(files.numbers, sampler=SAMPLERS[name]()) for name in ("random", "told")
    }


WEIGHTS = [(i * 7 % 5) / 4 for i in range(N)]
LENGTHS = [1 + i * i % 17 for i in range(N)]
OWN: dict[str, Callable[[], Any]] = {
    "weighted": lambda: td.WeightedSampler(WEIGHTS, 40),
    "weighted_without_replacement": lambda: td.WeightedSampler(WEIGHTS, replacement=False),
    "class_balanced": lambda: td.ClassBalancedSampler(np.arange(N) ** 2 % 6),
    "repeated": lambda: td.RepeatedAugmentationSampler(N, 3, 31),
    "buckets": lambda: td.LengthBucketSampler(LENGTHS, batch_size=4, max_padding=0.3),
    "buckets_of_tokens": lambda: td.LengthBucketSampler(LENGTHS, 30, max_padding=0.2),
    "buckets_in_order": lambda: td.LengthBucketSampler(LENGTHS, batch_size=3, max_padding=0.5, shuffle=False),
    "mixed": lambda: td.MixSampler([5, 11, 7], [3, 1, 2], 17),
}


def size_for(name: str, size: int = 2) -> int:
    """A batch size; buckets have their own."""
    return 1 if name.startswith("buckets") else size


def _values_of(name: str) -> Callable[[Files], dict[str, Any]]:
    def values(files: Files) -> dict[str, Any]:
        options = dict(sampler=OWN[name](), batch_size=size_for(name))
        return {
            "epochs": epochs_of(files.numbers, 4, **options),
            "cycles": cycles_of(files.numbers, **options),
            "ranks": ranks_of(files.numbers, 3, 2, **options),
            "resumed": resumed(files.numbers, 2, 3, **options),
        }

    return values


for _name in OWN:
    STREAMS[f"sampler_{_name}"] = _values_of(_name)


@stream
def samplers_of_more(files):
    """Enough that a small change of a table shows."""
    n = 3000
    numbers = td.InMemoryDataset(label=np.arange(n), fields=["index"])
    samplers = {
        "weighted": td.WeightedSampler(1 + np.arange(n) % 97),
        "weighted without replacement": td.WeightedSampler(1 + np.arange(n) % 97, replacement=False),
        "class balanced": td.ClassBalancedSampler(np.sqrt(np.arange(n)).astype(int)),
        "repeated": td.RepeatedAugmentationSampler(n),
        "buckets": td.LengthBucketSampler(1 + np.arange(n) * 7 % 512, 4096),
        "mixed": td.MixSampler([10, 2000, 990], temperature=3),
    }
    return {
        name: epochs_of(numbers, 2, sampler=sampler, batch_size=size_for(name, 500))
        for name, sampler in samplers.items()
    }


@stream
def mix(files):
    parts = [td.InMemoryDataset(label=np.arange(n) + 100 * n, fields=["index", "label"]) for n in (5, 11, 7)]
    weighted = dict(zip(parts, [3, 1, 2]))
    return {
        "epochs": epochs_of(td.Mix(weighted), 5),
        "cycles": cycles_of(td.Mix(weighted)),
        "by size": epochs_of(td.Mix(parts, 17), 4),
        "even": epochs_of(td.Mix(parts, temperature=1e9), 2),
    }


# Cuts


@stream
def cuts(files):
    return {f"{size} ranks": ranks_of(files.numbers, size, shuffle=True) for size in (1, 2, 3, 5)}


@stream
def sought(files):
    found = {}
    for step in (0, 1, 3, 5, 6):
        with load(files.numbers, shuffle=True, rank=1, world_size=2, batch_size=2) as loader:
            loader.seek(4, step)
            found[f"step {step}"] = loader.state_dict(), read(loader)
    return found


@stream
def uneven_ends(files):
    """From whole batches to any remainder, where the last two are split together."""
    found = {}
    for n in range(12, 25):
        numbers = td.InMemoryDataset(label=np.arange(n), fields=["index", "valid"])
        found[f"{n} samples"] = ranks_of(numbers, 3, batch_size=4), len(load(numbers, world_size=3))
    return found


@stream
def ends_as_asked(files):
    found = {}
    for size in (1, 2, 3, 5):
        found[f"drop_last, {size} ranks"] = ranks_of(files.numbers, size, drop_last=True)
        found[f"pad_last, {size} ranks"] = ranks_of(files.numbers, size, pad_last=True)
        found[f"batches of one, {size} ranks"] = ranks_of(files.numbers, size, batch_size=1)
    few = td.InMemoryDataset(label=np.arange(3), fields=["index", "valid"])
    found["less than ranks"] = ranks_of(few, 5, pad_last=True)
    return found


@stream
def strided_ends(files):
    """Repeats land on different ranks."""
    return {
        f"{size} ranks, {options}": ranks_of(
            files.numbers, size, sampler=td.RepeatedAugmentationSampler(N, 2, 29), **options
        )
        for size in (2, 3, 5)
        for options in ({}, {"drop_last": True}, {"pad_last": True}, {"batch_size": 1})
    }


@stream
def other_numbers_of_ranks(files):
    pairs = [(1, 2), (2, 1), (2, 3), (3, 2), (1, 5), (2, 5)]
    return {f"{a} to {b}": resumed(files.numbers, a, b, shuffle=True, batch_size=2) for a, b in pairs}


# Sources


@stream
def datasets(files):
    return {name: ranks_of(getattr(files, name), 2, 2, shuffle=True, batch_size=5) for name in DATASETS}


@stream
def packed_draws(files):
    """The numbers that follow a transform of pixels which were files."""
    flipped = T.Compose([T.Resize((4, 4)), T.RandomHorizontalFlip(), drawn])
    found = {}
    for name, dataset in {"of files": files.photos, "of a pack": files.packed}.items():
        found[name] = epochs_of(dataset, 2, transform=flipped, shuffle=True)
        for batch in [batch for epoch in found[name] for batch in epoch]:
            del batch["image"]
    assert found["of files"] == found["of a pack"]
    return found


@stream
def packed_dataset(files):
    return {"ranks": ranks_of(files.packed_labels, 2, 2, shuffle=True, batch_size=5)}


@stream
def composed_datasets(files):
    parts = ConcatDataset([files.numbers, Subset(files.numbers, [3, 1, 4, 1, 5])])
    return {
        "of torchdali": epochs_of(parts, 2, shuffle=True),
        "of Python": epochs_of(ConcatDataset([S.Bits(7), Subset(S.Bits(), [9, 2])]), 2, shuffle=True),
    }


@stream
def python_dataset(files):
    source = td.PythonDataset(S.Bits(), fields=["label", "python", "numpy", "torch", "index"])
    found = {
        "epochs": epochs_of(source, 2, shuffle=True),
        "cycles": cycles_of(source, shuffle=True),
        "twice in an epoch": epochs_of(source, sampler=[3, 3, 3, 2]),
        "ranks": ranks_of(source, 2, shuffle=True),
    }
    return {**found, "workers": epochs_of(source, 2, shuffle=True, num_workers=2, persistent_workers=True)}


ITERABLES: dict[str, Callable[[], Any]] = {
    "plain": S.Stream,
    "stateful": S.StatefulStream,
    "told": S.EpochStream,
    "generator": lambda: td.IterableSource(S.generate),
    "shared by itself": lambda: td.IterableSource(S.Stream(), shard="none"),
}


@stream
def iterables(files):
    found = {name: ranks_of(make(), 2, 2) for name, make in ITERABLES.items()}
    found["cycles"] = cycles_of(S.EpochStream())
    found["batches dropped"] = ranks_of(S.Stream(), 2, drop_last=True)
    return found


@stream
def iterables_in_workers(files):
    workers = dict(num_workers=2, persistent_workers=True)
    return {
        "plain": epochs_of(S.Stream(), 2, **workers),
        "shared": epochs_of(S.SharedStream(), 2, **workers),
    }


@stream
def callbacks(files):
    return {
        "samples": epochs_of(td.SampleSource(S.AskedBits()), 2),
        "of known number": epochs_of(td.SampleSource(S.AskedBits(), num_samples=9)),
        "batches": epochs_of(td.SampleSource(S.batches_of_bits, batch=True), 2),
        "cycles": cycles_of(td.SampleSource(S.AskedBits())),
        "workers": epochs_of(td.SampleSource(S.AskedBits()), 2, num_workers=2, persistent_workers=True),
    }


@stream
def native_reader(files):
    """The orders are DALI's, from a generator that is derived here."""
    return {
        "file order": ranks_of(files.native(), 2, 2),
        "full": epochs_of(files.native(shuffle="full"), 3),
        "full, ranks": ranks_of(files.native(shuffle="full"), 3, 2),
        "full, own seed": epochs_of(files.native(shuffle="full", seed=9), 2),
        "full, cycles": cycles_of(files.native(shuffle="full")),
        "window": epochs_of(files.native(shuffle="window", initial_fill=5), 3),
        "window, ranks": ranks_of(files.native(shuffle="window", initial_fill=5), 2, 2),
    }


@stream
def virtual_shards(files):
    def native(**options: Any) -> Any:
        return files.native(virtual_shards=6, **options)

    return {
        "file order": ranks_of(native(), 2),
        "full": ranks_of(native(shuffle="full"), 3, 2),
        "window": ranks_of(native(shuffle="window", initial_fill=3), 2, 2),
        "resumed": resumed(native(shuffle="full"), 2, 3, batch_size=2),
    }


@stream
def native_reader_by_itself(files):
    reader = files.native(shuffle="window", initial_fill=5)
    return {"epochs": [[list(map(plain, sample)) for sample in reader] for _ in range(2)], "state": reader.state_dict()}


# Bad samples


@stream
def substitutes(files):
    options = dict(shuffle=True, transform=T.Compose([T.Resize((8, 8)), drawn]))
    found = {}
    policies = {
        "substitute": "substitute",
        "chosen": lambda bad: (bad.index + 2) % N if bad.index % 2 else "substitute",
    }
    for name, policy in policies.items():
        with load(files.damaged, on_bad_sample=policy, **options) as loader:
            batches = read(loader, 2)
            for batch in (batch for epoch in batches for batch in epoch):
                del batch["image"]
            found[name] = batches, [(bad.index, bad.stage, bad.substitute) for bad in loader.bad_samples]
    return found


# Transforms

SIZES = np.array([[40, 30], [30, 40], [33, 97], [200, 31], [32, 32]])
RANDOM: dict[str, Any] = {
    "RandomResizedCrop": T.RandomResizedCrop(24),
    "RandomResizedCrop, other": T.RandomResizedCrop((8, 16), scale=(0.5, 1.5), ratio=(0.2, 3.0)),
    "RandomCrop": T.RandomCrop(24),
    "RandomCrop, padded": T.RandomCrop((60, 20), padding=(1, 2, 3, 4), pad_if_needed=True),
    "RandomHorizontalFlip": T.RandomHorizontalFlip(),
    "RandomVerticalFlip": T.RandomVerticalFlip(0.3),
    "ColorJitter": T.ColorJitter(0.4, 0.3, 0.2, 0.1),
    "ColorJitter, some": T.ColorJitter(saturation=(0.5, 0.7)),
    "GaussianBlur": T.GaussianBlur(3, (0.1, 2.0)),
    "CenterCrop": T.CenterCrop(33),
    "Resize": T.Resize(20, max_size=50),
}


@stream
def parameters(files):
    found = {}
    for name, transform in RANDOM.items():
        one = Rand(SEED, 1, np.tile(np.arange(5), 8) + 10 * np.arange(40))
        found[name] = transform.make_params(one.child(1), np.tile(SIZES, (8, 1)))
    return found


MORE: dict[str, Any] = {
    "RandomZoomOut": T.RandomZoomOut(),
    "ScaleJitter": T.ScaleJitter((60, 50)),
    "RandomShortestSize": T.RandomShortestSize([20, 30, 40], max_size=60),
    "RandomResize": T.RandomResize(20, 50),
    "RandomRotation": T.RandomRotation(30),
    "RandomErasing": T.RandomErasing(),
    "GridMask": T.GridMask(9),
    "RandomPhotometricDistort": T.RandomPhotometricDistort(),
    "RandomChannelPermutation": T.RandomChannelPermutation(),
    "RandomInvert": T.RandomInvert(0.3),
    "JPEG": T.JPEG((20, 80)),
    "RandAugment": T.RandAugment(),
    "TrivialAugmentWide": T.TrivialAugmentWide(),
    "AutoAugment": T.AutoAugment(),
    "RandomApply": T.RandomApply([T.RandomHorizontalFlip(0.4), T.RandomVerticalFlip()], 0.6),
    "RandomChoice": T.RandomChoice([T.RandomHorizontalFlip(), T.RandomVerticalFlip(0.3)]),
    "RandomOrder": T.RandomOrder([T.RandomHorizontalFlip(), T.RandomInvert()]),
}


@stream
def parameters_of_more(files):
    found = {}
    for name, transform in MORE.items():
        one = Rand(SEED, 1, np.tile(np.arange(5), 8) + 10 * np.arange(40))
        found[name] = transform.make_params(one.child(1), np.tile(SIZES, (8, 1)))
    return found


def scene(index: int) -> dict[str, Any]:
    """A picture whose pixels say where they are, with two boxes and a mask: exact through crops and flips."""
    rows, columns = np.mgrid[: 16 + index % 3, : 20 - index % 4].astype(np.uint8)
    boxes = np.array([[1, 2, 9, 11], [5 + index % 5, 4, 15, 13]], np.float32)[: 1 + index % 2]
    return {"image": np.stack([rows, columns, rows * 8 + columns], 2), "boxes": boxes, "mask": rows // 3}


SCENES = [scene(index) for index in range(11)]


def scenes() -> Any:
    return td.InMemoryDataset(
        **{name: [one[name] for one in SCENES] for name in SCENES[0]}, label=np.arange(11),
        kinds={"boxes": "boxes", "mask": "mask"},
    )  # fmt: skip


@stream
def objects(files):
    chain = [T.RandomZoomOut(), T.RandomIoUCrop(), T.RandomHorizontalFlip(), T.SanitizeBoundingBoxes()]
    return {"ranks": ranks_of(scenes(), 2, 2, shuffle=True, transform=T.Compose([*chain, drawn]))}


@stream
def views(files):
    view = [T.RandomCrop(6), T.RandomHorizontalFlip()]
    found = {"list": T.Views([view] * 3), "dict": T.Views({"q": view, "k": [T.RandomVerticalFlip(), T.CenterCrop(5)]})}
    return {
        name: ranks_of(scenes(), 2, 2, shuffle=True, transform=T.Compose([T.RandomCrop(9), transform]), output=whole)
        for name, transform in found.items()
    }


def whole(fields: dict[str, Any]) -> dict[str, Any]:
    """The pictures of all views, and the labels, as lists."""
    pictures = fields["image"]
    named = pictures if isinstance(pictures, dict) else dict(enumerate(pictures))
    return {**{f"image {key}": list(view) for key, view in named.items()}, "label": fields["label"]}


@stream
def mixed_batches(files):
    """Weights of pairs, and where rectangles lie, with groups that go over no rank."""
    to_float = T.Compose([T.CenterCrop(12), T.ToDtype(torch.float32)])
    options = dict(shuffle=True, batch_size=4, drop_last=True, output="tuple", transform=to_float, world_size=2)
    found = {}
    for transform in (T.MixUp(alpha=1.0, num_classes=11, group=2), T.CutMix(alpha=1.0, num_classes=11, group=2)):
        pictures = td.InMemoryDataset(image=[one["image"] for one in SCENES], label=np.arange(11))
        numbers: list[Any] = []
        for rank in range(2):
            with load(pictures, batch_transform=transform, rank=rank, **options) as one:
                numbers += [plain(labels) for _, labels in one]
        found[type(transform).__name__] = numbers
    return found


def noted(transform: Any, notes: list[Any]) -> Any:
    """The same transform; its parameters are noted when a loader draws them."""
    kind = type(transform)

    class Noted(kind):
        def make_params(self, rand, sizes):
            params, after = kind.make_params(self, rand, sizes)
            notes.append((kind.__name__, text_of(params), text_of(after)))
            return params, after

    Noted.__name__ = kind.__name__  # its numbers are keyed by it
    made = copy.copy(transform)
    object.__setattr__(made, "__class__", Noted)
    return made


@stream
def parameters_in_a_loader(files):
    def turned(sample, rand):
        image = ndd.decoders.image(sample["image"], device=rand.device)
        return {**sample, "image": image, "draw": rand.integers(0, 2**31 - 1)}

    found = {}
    chains = {
        "behind the decoder": [RANDOM["RandomCrop"], *(RANDOM[name] for name in RANDOM if name != "RandomCrop")],
        "behind a function": [turned, T.RandomCrop(24), T.RandomHorizontalFlip(), drawn, T.ColorJitter(0.4)],
    }
    for name, steps in chains.items():
        for rank in range(2):
            notes: list[Any] = []
            chain = T.Compose([step if step in (turned, drawn) else noted(step, notes) for step in steps])
            epochs_of(files.photos, 2, shuffle=True, transform=chain, engine="debug", rank=rank, world_size=2)
            found[f"{name}, rank {rank}"] = notes
    return found


@stream
def function_numbers(files):
    def numbers(sample, rand):
        return {
            **sample,
            "uniform": rand.uniform(-1, 1, 2),
            "integers": rand.integers(3, 1000),
            "bernoulli": rand.bernoulli(0.3),
            "choice": rand.choice([0.5, 2.5, 7.0], [0.2, 0.3, 0.5]),
            "host": ndd.as_batch(rand.host.permutations(5)),
            "normal": rand.normal(1, 2),
        }

    epochs = epochs_of(files.numbers, 2, shuffle=True, transform=T.Compose([numbers, drawn]))
    normal = Near(number for epoch in epochs for batch in epoch for number in batch.pop("normal"))
    return {"numbers": epochs, "normal": normal}


@stream
def dalis_own_numbers(files):
    """`rand.ndd`, and what DALI's operators draw without it, by rank and position."""

    def numbers(sample, rand):
        n = rand.num_samples
        own = ndd.random.uniform(range=[0.0, 1.0], batch_size=n, rng=rand.ndd)
        return {**sample, "own": own, "default": ndd.random.uniform(range=[0.0, 1.0], batch_size=n)}

    found = {}
    for rank in range(2):
        chain = T.Compose([numbers, drawn])
        epochs = epochs_of(files.numbers, 2, shuffle=True, transform=chain, rank=rank, world_size=2)
        for name in ("own", "default"):
            numbers_of = Near(number for epoch in epochs for batch in epoch for number in batch[name])
            found[f"{name}, rank {rank}"] = numbers_of
    return found


# States


@stream
def states_of_two_epochs(files):
    with load(files.files, shuffle=True, batch_size=8) as loader:
        found = [loader.state_dict()]
        for _ in range(2):
            for _ in loader:
                found.append(loader.state_dict())
            found.append(loader.state_dict())
    return {"states": found}


@state
def photos(files):
    return load(files.photos, transform=T.Compose([T.Resize((4, 4)), drawn]))


@state
def second_cycle(files):
    loader = load(files.numbers, shuffle=True)
    loader.set_epoch(3)
    read(loader)
    return loader


@state
def third_epoch_of_two_ranks(files):
    loader = load(files.numbers, shuffle=True, rank=1, world_size=2)
    read(loader, 2)
    return loader


@state
def subset(files):
    return load(Subset(files.numbers, [3, 1, 4, 1, 5, 9]), batch_size=1)


@state
def concatenated(files):
    return load(ConcatDataset([files.numbers, files.numbers]), shuffle=True)


@state
def mixed_datasets(files):
    return load(td.Mix([files.numbers, td.InMemoryDataset(label=[1, 2, 3], fields=["index", "label", "valid"])], 11))


@state
def of_python(files):
    return load(S.Bits(), shuffle=True)


@state
def of_python_composed(files):
    return load(ConcatDataset([S.Bits(7), Subset(S.Bits(), [9, 2, 4])]))


class Fingerprinted(S.Bits):
    _fingerprint = "as Hugging Face has it"


@state
def of_python_with_a_fingerprint(files):
    return load(Fingerprinted(), shuffle=True)


@state
def iterable(files):
    return load(S.Stream())


@state
def iterable_with_a_state(files):
    return load(S.StatefulStream(), rank=1, world_size=2, batch_size=2)


@state
def iterable_in_two_workers(files):
    return load(S.SharedStream(), num_workers=2)


@state
def iterable_of_one_rank(files):
    return load(td.IterableSource(S.StatefulStream(), shard="none"), rank=1, world_size=2)


@state
def callback(files):
    return load(td.SampleSource(S.AskedBits(), num_samples=N))


@state
def callback_of_batches(files):
    return load(td.SampleSource(S.batches_of_bits, batch=True))


@state
def native_full(files):
    return load(files.native(shuffle="full", virtual_shards=6), rank=1, world_size=3, batch_size=2)


@state
def native_window(files):
    return load(files.native(shuffle="window", initial_fill=5, seed=9))


@state
def native_by_itself(files):
    return files.native()


@state
def packed(files):
    return load(files.packed_labels, shuffle=True)


for _name in DATASETS:
    STATES[f"dataset_{_name}"] = lambda files, name=_name: load(getattr(files, name), shuffle=True)
for _name in SAMPLERS:
    STATES[f"drawn_{_name}"] = lambda files, name=_name: load(files.numbers, sampler=SAMPLERS[name](), batch_size=2)
for _name in OWN:
    STATES[f"sampler_{_name}"] = lambda files, name=_name: load(
        files.numbers, sampler=OWN[name](), batch_size=size_for(name)
    )


def standing(loader: Any, state: dict[str, Any] | None = None) -> dict[str, Any]:
    """A loader's state behind two batches, or the one that is given, and what comes next."""
    try:
        if state is not None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # of an iterable that is iterated again
                loader.load_state_dict(state)
                assert loader.state_dict() == state
                following = next(iter(loader))
            return {"state": state, "next": digest(_values(following))}
        iterator = iter(loader)
        next(iterator), next(iterator)
        found = loader.state_dict()
        following = next(iterator)
        return {"state": json.loads(json.dumps(found)), "next": digest(_values(following))}
    finally:
        if isinstance(loader, td.DataLoader):
            loader.close()


def _values(batch: Any) -> Any:
    if isinstance(batch, dict):
        return {name: list(map(plain, column)) for name, column in batch.items() if name != "image" or column.ndim == 2}
    return list(map(plain, batch))


# The tests


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    return json.loads(FILE.read_text())


def advice(golden: dict[str, Any]) -> str:
    """What to do about a change."""
    here = versions()
    other = [f"{name} {was}, here is {here[name]}" for name, was in golden["written_with"].items() if was != here[name]]
    return (
        f"A change of the stream takes users' checkpoints apart.  If it isn't meant, undo it.  If it is: raise "
        f"state.VERSION (now {VERSION}), see that states of version {golden['version']} are refused with a sentence, "
        "or read rightly, say so in CHANGELOG.md, and write the values anew: python -m tests.test_golden --write"
        + "".join(f"\nThe values were written with {line}" for line in other)
    )


def differences(golden: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """The names whose values differ."""
    return [name for name in {**golden, **now} if not same(golden.get(name), now.get(name))]


def test_all_set_ups_are_in_the_file(golden):
    for kind, set_ups in {"streams": STREAMS, "states": STATES}.items():
        assert set(golden[kind]) == set(set_ups), "add new set-ups by: python -m tests.test_golden --write"


def test_the_version_is_that_of_the_file(golden):
    assert golden["version"] == VERSION, (
        f"state.VERSION is {VERSION}, and the golden values are of {golden['version']}: keep some of its states for a "
        "test that they are refused with a sentence, or read rightly, and write the values anew: "
        "python -m tests.test_golden --write"
    )


# The set-ups that start worker processes.
IN_WORKERS = {"python_dataset", "iterables_in_workers", "callbacks", "iterable_in_two_workers"}


def marked(names: Any) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.processes) if name in IN_WORKERS else name for name in names]


@pytest.mark.parametrize("name", marked(STREAMS))
def test_the_stream_is_the_same(name, files, golden):
    values = STREAMS[name](files)
    changed = differences(golden["streams"].get(name, {}), {part: digest(value) for part, value in values.items()})
    shown = "\n".join(f"  {part}: now {text_of(values.get(part)):.300}" for part in changed)
    assert not changed, f"the stream {name!r} changed in\n{shown}\n{advice(golden)}"


@pytest.mark.parametrize("name", marked(STATES))
def test_the_state_is_the_same_and_old_ones_go_on(name, files, golden):
    if name == "dataset_lmdb" and mmap.PAGESIZE != 4096:
        pytest.skip("the size of an LMDB file, which its fingerprint holds, depends on the machine's pages")
    old = golden["states"].get(name, {"state": {}, "next": ""})
    now = standing(STATES[name](files))
    changed = [
        f"{key}: {old['state'].get(key)!r} before, {now['state'].get(key)!r} now"
        for key in differences(old["state"], now["state"])
    ]
    assert not changed, "\n  ".join([f"the state of {name!r} changed in", *changed]) + "\n" + advice(golden)
    assert old["next"] == now["next"], f"the batch behind the state of {name!r} changed\n{advice(golden)}"
    again = standing(STATES[name](files), old["state"])
    assert old == again, f"the old state of {name!r} goes on with another batch\n{advice(golden)}"


OLD_STATES = {
    f"{version} {name}": state
    for version in state_module.OLDER
    for name, state in json.loads((FILE.parent / f"states_of_version_{version}.json").read_text()).items()
}


@pytest.mark.filterwarnings("ignore:.*samples are iterated again:RuntimeWarning")
@pytest.mark.parametrize("key", OLD_STATES)
def test_a_state_of_an_older_version(key, files):
    """It is refused with what to write; that goes on with the same samples, whose augmentations may be others."""
    old, name = OLD_STATES[key], key.partition(" ")[2]
    with STATES[name](files) as loader:
        with pytest.raises(td.StateMismatchError) as error:
            loader.load_state_dict(old)
        (line,) = str(error.value).split("\n")[1:]
        assert line.strip().startswith(f"version: expected {VERSION}, got {old['version']}, ")
        assert line.endswith(
            ": finish the run with the release that it was begun with, or write load_state_dict(state, strict=False) "
            "to go on from its position with other augmentations"
        )
        loader.load_state_dict(old, strict=False)
        now = loader.state_dict()
        assert {name: now[name] for name in old if name not in ("version", "iterable")} == {
            name: old[name] for name in old if name not in ("version", "iterable")
        }
        following = next(iter(loader))
        loader.load_state_dict({**now, "version": VERSION})
        assert _values(next(iter(loader))) == _values(following)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("version", [0, VERSION + 1])
def test_a_state_of_another_version_is_refused(files, version, strict):
    for loader in (load(files.numbers), load(S.Stream()), files.native()):
        before = loader.state_dict()
        with pytest.raises(td.StateMismatchError) as error:
            loader.load_state_dict({**before, "version": version}, strict)
        first, *others = str(error.value).split("\n")
        assert first == "this state does not belong to this loader:"
        assert [line.strip() for line in others] == [f"version: expected {VERSION}, got {version}"]
        assert loader.state_dict() == before


def write() -> None:
    """Add what is not in the file yet; where VERSION was raised, all is written anew.

    Raises:
        SystemExit: values that are there have changed without it.
    """
    before = json.loads(FILE.read_text()) if FILE.exists() else {}
    with tempfile.TemporaryDirectory() as root, made(Path(root)) as files:
        streams = {name: {part: digest(value) for part, value in make(files).items()} for name, make in STREAMS.items()}
        states = {name: standing(make(files)) for name, make in STATES.items()}
    now = {"version": VERSION, "written_with": versions(), "streams": streams, "states": states}
    if before.get("version") == VERSION:
        changed = []
        for name, parts in streams.items():
            for part in differences(before["streams"].get(name, {}), parts):
                if part in before["streams"].get(name, {}):
                    changed.append(f"{name}, {part}")
            streams[name] = parts | {k: v for k, v in before["streams"].get(name, {}).items() if k in parts}
        changed += [name for name, value in states.items() if before["states"].get(name, value) != value]
        if changed:
            raise SystemExit("changed: " + "; ".join(changed) + "\n" + advice(before))
    FILE.write_text(json.dumps(now, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        raise SystemExit("usage: python -m tests.test_golden --write")
    # By its name, so that classes in it are the ones that the tests have.
    from tests.test_golden import write as write_golden

    write_golden()
