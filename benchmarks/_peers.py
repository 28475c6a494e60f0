"""Defines the peers of ``compare.py``: endless streams of batches, each in its fastest configuration.

All give the same antialiased result.  A peer's packages are imported when it runs; one that is missing is named in the
table.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _work import AREA, ASPECT, CROP, SEED, SHORTER, SMALL, Batch, Work, small_images

CORES = len(os.sched_getaffinity(0))
CONTAINED = 2000  # images in the containers of webdataset, LitData and Streaming
FIRST_LINKS = ("*_01.jpg", "*_02.jpg")


# What each sample goes through, by torchvision's kernels


def view_of(work: Work) -> Callable[[torch.Tensor], torch.Tensor]:
    """Give the transform of a decoded image, uint8 [3, H, W] -> float32."""
    from torchvision.transforms import v2

    steps: dict[str, list[Any]] = {
        "train": [
            v2.RandomResizedCrop(CROP, scale=AREA, ratio=ASPECT, antialias=True),
            v2.RandomHorizontalFlip(),
        ],
        "evaluate": [v2.Resize(SHORTER, antialias=True), v2.CenterCrop(CROP)],
        "small": [v2.RandomCrop(SMALL, padding=4), v2.RandomHorizontalFlip()],
    }
    return v2.Compose([*steps[work.name], v2.ToDtype(torch.float32, scale=True), v2.Normalize(work.mean, work.std)])


def decode(data: torch.Tensor) -> torch.Tensor:
    """Decode a JPEG by libjpeg-turbo, without PIL: uint8 [3, H, W]."""
    from torchvision.io import ImageReadMode, decode_jpeg

    return decode_jpeg(data, mode=ImageReadMode.RGB)


def as_bytes(data: bytes) -> torch.Tensor:
    return torch.from_numpy(np.frombuffer(data, np.uint8).copy())


def load(path: str) -> torch.Tensor:
    from torchvision.io import read_file

    return decode(read_file(path))


class Samples(torch.utils.data.Dataset[Any]):
    """The samples of a work as a dataset of torch, decoded by libjpeg-turbo."""

    def __init__(self, root: Path, work: Work) -> None:
        from torchvision.datasets import ImageFolder

        self.view = view_of(work)
        if work.name == "small":
            self.images, self.labels = small_images()
            self.files = None
        else:
            self.files = ImageFolder(str(root)).samples

    def __len__(self) -> int:
        return len(self.labels) if self.files is None else len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if self.files is None:
            return self.view(torch.from_numpy(self.images[index]).permute(2, 0, 1)), int(self.labels[index])
        path, label = self.files[index]
        return self.view(load(path)), label


class PilSamples(Samples):
    """The same, decoded by PIL and resized by PIL, as torchvision's ImageFolder does."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        from PIL import Image
        from torchvision.transforms import v2

        assert self.files is not None
        path, label = self.files[index]
        *moves, to_float, normalise = self.view.transforms  # type: ignore[attr-defined]
        image: Any = Image.open(path).convert("RGB")
        for move in moves:
            image = move(image)
        return normalise(to_float(v2.functional.to_image(image))), label


# Peers


def forever(batches: Any) -> Iterator[Batch]:
    while True:
        yield from batches


def torchdali(root: Path, work: Work, engine: str = "auto") -> Iterator[Batch]:
    """Run torchdali with its defaults, and take a checkpoint after every batch."""
    import torchdali as td
    from torchdali import transforms as T

    moves: dict[str, list[Any]] = {
        "train": [T.RandomResizedCrop(CROP), T.RandomHorizontalFlip()],
        "evaluate": [T.Resize(SHORTER), T.CenterCrop(CROP)],
        "small": [T.RandomCrop(SMALL, padding=4), T.RandomHorizontalFlip()],
    }
    if work.name == "small":
        images, labels = small_images()
        dataset: Any = td.InMemoryDataset(image=images, label=labels)
    else:
        dataset = td.ImageFolder(root)
    loader = td.DataLoader(
        dataset,
        batch_size=work.batch_size,
        shuffle=work.shuffled,
        seed=SEED,
        device="cpu",
        drop_last=True,
        engine=engine,  # type: ignore[arg-type]
        transform=T.Compose([*moves[work.name], T.Normalize(mean=work.mean, std=work.std)]),
    )
    while True:
        for batch in loader:
            loader.state_dict()
            yield batch


def torch_loader(root: Path, work: Work, workers: int, pil: bool = False, stateful: bool = False) -> Iterator[Batch]:
    """Run torch's DataLoader, or torchdata's with a checkpoint after every batch."""
    loader_type: Any = torch.utils.data.DataLoader
    if stateful:
        from torchdata.stateful_dataloader import StatefulDataLoader as loader_type
    torch.manual_seed(SEED)
    loader = loader_type(
        (PilSamples if pil else Samples)(root, work),
        batch_size=work.batch_size,
        shuffle=work.shuffled,
        drop_last=True,
        num_workers=workers,
        persistent_workers=workers > 0,
    )
    while True:
        for batch in loader:
            if stateful:
                loader.state_dict()
            yield batch


def spdl(root: Path, work: Work) -> Iterator[Batch]:
    """Run SPDL's pipeline of threads; torchvision decodes, since SPDL's decoders need FFmpeg's libraries."""
    from spdl.pipeline import PipelineBuilder

    torch.set_num_threads(1)
    samples = Samples(root, work)
    rng = np.random.default_rng(SEED)

    def batches() -> Iterator[list[int]]:
        while True:
            order = rng.permutation(len(samples)) if work.shuffled else np.arange(len(samples))
            for at in range(0, len(order) - work.batch_size + 1, work.batch_size):
                yield order[at : at + work.batch_size].tolist()

    def make(rows: list[int]) -> Batch:
        images, labels = zip(*(samples[row] for row in rows), strict=True)
        return torch.stack(images), torch.tensor(labels)

    # A thread makes a whole batch: handing over single samples costs more than making small ones.
    builder = PipelineBuilder().add_source(batches()).pipe(make, concurrency=CORES, output_order="input")
    pipeline = builder.add_sink(2).build(num_threads=CORES)
    with pipeline.auto_stop():
        yield from pipeline


def grain(root: Path, work: Work) -> Iterator[Batch]:
    """Run Grain's MapDataset with reading threads; a batch is put together by its own function."""
    import grain.python as pygrain

    torch.set_num_threads(1)
    samples = Samples(root, work)

    def collate(batch: Any) -> Batch:
        images, labels = zip(*batch, strict=True)
        return torch.stack(images), torch.tensor(labels)

    dataset = pygrain.MapDataset.range(len(samples))
    dataset = dataset.shuffle(seed=SEED) if work.shuffled else dataset
    dataset = dataset.repeat().map(samples.__getitem__).batch(work.batch_size, drop_remainder=True, batch_fn=collate)
    # An element is a batch here, so each thread makes one.
    yield from dataset.to_iter_dataset(pygrain.ReadOptions(num_threads=CORES, prefetch_buffer_size=2 * CORES))


def webdataset(root: Path, work: Work) -> Iterator[Batch]:
    """Run webdataset over tars, with a buffer of 1,000 samples to shuffle in, and workers."""
    import webdataset as wds

    view = view_of(work)

    def sample(parts: tuple[bytes, bytes]) -> tuple[torch.Tensor, int]:
        return view(decode(as_bytes(parts[0]))), int(parts[1])

    tars = sorted(str(path) for path in (root.parent / "tars").glob("*.tar"))
    dataset = wds.WebDataset(tars, resampled=True, shardshuffle=False, seed=SEED)
    dataset = dataset.shuffle(1000) if work.shuffled else dataset
    dataset = dataset.to_tuple("jpg", "cls").map(sample).batched(work.batch_size, partial=False)
    loader = wds.WebLoader(dataset, batch_size=None, num_workers=CORES, persistent_workers=True)
    for images, labels in forever(loader):
        yield images, torch.as_tensor(labels)


def litdata(root: Path, work: Work) -> Iterator[Batch]:
    """Run LitData over its chunks, with workers."""
    import litdata as lit

    view = view_of(work)

    class Photos(lit.StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, index: Any) -> tuple[torch.Tensor, int]:
            sample = super().__getitem__(index)
            return view(decode(as_bytes(sample["image"]))), sample["label"]

    dataset = Photos(str(root.parent / "litdata"), shuffle=work.shuffled, drop_last=True, seed=SEED)
    yield from forever(
        lit.StreamingDataLoader(dataset, batch_size=work.batch_size, num_workers=CORES, persistent_workers=True)
    )


def streaming(root: Path, work: Work) -> Iterator[Batch]:
    """Run MosaicML Streaming over local shards, with workers."""
    from streaming import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    clean_stale_shared_memory()
    view = view_of(work)

    class Photos(StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, index: Any) -> tuple[torch.Tensor, int]:
            sample = super().__getitem__(index)
            return view(decode(as_bytes(sample["image"]))), sample["label"]

    dataset = Photos(
        local=str(root.parent / "mds"), shuffle=work.shuffled, batch_size=work.batch_size, epoch_size=10 * CONTAINED
    )
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=work.batch_size, num_workers=CORES, drop_last=True, persistent_workers=True
    )
    yield from forever(loader)


def dali_pipeline(root: Path, work: Work) -> Iterator[Batch]:
    """Run DALI's pipeline mode with the dynamic executor; a batch that crosses an epoch's end is kept."""
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    def pictures() -> Iterator[Any]:
        images, labels = small_images()
        rng = np.random.default_rng(SEED)
        while True:
            order = rng.permutation(len(images))
            for at in range(0, len(order) - work.batch_size + 1, work.batch_size):
                rows = order[at : at + work.batch_size]
                yield list(images[rows]), labels[rows, None]

    @pipeline_def(batch_size=work.batch_size, num_threads=CORES, seed=SEED, exec_dynamic=True, prefetch_queue_depth=2)
    def pipe():  # type: ignore[no-untyped-def]  # DALI's DataNode type is not annotated
        if work.name == "small":
            images, labels = fn.external_source(pictures(), num_outputs=2, layout=["HWC", ""])
            start = fn.random.uniform(range=[-4, 5], shape=[2])
            start = fn.cast(start - 0.5, dtype=types.INT32)
            images = fn.slice(images, start=start, shape=[SMALL, SMALL], axes=[0, 1], out_of_bounds_policy="pad")
        else:
            encoded, labels = fn.readers.file(file_root=str(root), random_shuffle=work.shuffled, name="reader")
            if work.name == "train":
                images = fn.decoders.image_random_crop(
                    encoded, random_area=AREA, random_aspect_ratio=ASPECT, num_attempts=10
                )
                images = fn.resize(images, size=[CROP, CROP], interp_type=types.INTERP_LINEAR, antialias=True)
            else:
                images = fn.decoders.image(encoded)
                images = fn.resize(images, resize_shorter=SHORTER, interp_type=types.INTERP_LINEAR, antialias=True)
        images = fn.crop_mirror_normalize(
            images,
            dtype=types.FLOAT,
            output_layout="CHW",
            crop=None if work.name == "small" else (CROP, CROP),
            mean=[255 * value for value in work.mean],
            std=[255 * value for value in work.std],
            mirror=fn.random.coin_flip() if work.shuffled else 0,
        )
        return images, labels

    name = {} if work.name == "small" else {"reader_name": "reader"}
    loader = DALIGenericIterator(pipe(device_id=None), ["data", "label"], **name)
    for (batch,) in forever(loader):
        yield batch["data"], batch["label"]


def ndd(root: Path, work: Work, capture: bool) -> Iterator[Batch]:
    """Run DALI's dynamic mode, the same operators one after the other, or captured; both give the same batches."""
    import nvidia.dali.experimental.dynamic as dynamic
    from nvidia.dali import types

    dynamic.random.set_seed(SEED)
    reader = dynamic.readers.File(file_root=str(root), random_shuffle=work.shuffled)
    while True:
        # Captured pipelines have batches of one size: the last one of an epoch is left out.
        for encoded, labels in reader.next_epoch(batch_size=work.batch_size, **({"capture": True} if capture else {})):
            if work.name == "train":
                images = dynamic.decoders.image_random_crop(
                    encoded, random_area=AREA, random_aspect_ratio=ASPECT, num_attempts=10
                )
                images = dynamic.resize(images, size=[CROP, CROP], interp_type=types.INTERP_LINEAR, antialias=True)
            else:
                images = dynamic.decoders.image(encoded)
                images = dynamic.resize(images, resize_shorter=SHORTER, interp_type=types.INTERP_LINEAR, antialias=True)
            images = dynamic.crop_mirror_normalize(
                images,
                dtype=dynamic.float32,
                output_layout="CHW",
                crop=(CROP, CROP),
                mean=[255 * value for value in work.mean],
                std=[255 * value for value in work.std],
                mirror=dynamic.random.coin_flip(batch_size=work.batch_size) if work.shuffled else 0,
            )
            yield images.torch(), labels.torch()


Peer = Callable[[Path, Work], Iterator[Batch]]
BASELINE = "dali-pipeline"
PEERS: dict[str, Peer] = {
    "torchdali": torchdali,
    "torchdali-eager": partial(torchdali, engine="eager"),
    "torchdali-pipeline": partial(torchdali, engine="pipeline"),
    BASELINE: dali_pipeline,
    "ndd-eager": partial(ndd, capture=False),
    "ndd-captured": partial(ndd, capture=True),
    "torch-pil": partial(torch_loader, workers=CORES, pil=True),
    "torch": partial(torch_loader, workers=CORES),
    "torch-no-workers": partial(torch_loader, workers=0),
    "torchdata": partial(torch_loader, workers=CORES, stateful=True),
    "spdl": spdl,
    "grain": grain,
    "webdataset": webdataset,
    "litdata": litdata,
    "streaming": streaming,
}
"""Endless streams of batches of a work; where there are workers, one for each core."""

_FILES = ["torchdali", BASELINE, "ndd-eager", "ndd-captured", "torch-pil", "torch", "torchdata"]
_FILES += ["spdl", "grain", "webdataset", "litdata", "streaming"]
PEERS_OF = {
    "train": _FILES,
    "evaluate": _FILES,
    "small": ["torchdali", BASELINE, "torch-no-workers", "torch", "torchdata", "spdl", "grain"],
    "training": ["torchdali", BASELINE, "torch", "spdl"],
}
"""The peers of each work, without those that run only if they are named."""


def make_containers(root: Path) -> list[str]:
    """Put some of the images into the formats of webdataset, LitData and Streaming, where that isn't done.

    Returns:
        The reasons why some of them can't be made.
    """
    photos = sorted(path for pattern in FIRST_LINKS for path in root.rglob(pattern))[:CONTAINED]
    labels = [int(path.parent.name.rpartition("_")[2]) for path in photos]
    problems = []
    for name, make in {"tars": _tars, "litdata": _chunks, "mds": _shards}.items():
        target = root.parent / name
        if (target / "made").exists():
            continue
        try:
            make(target, photos, labels)
            (target / "made").touch()
        except Exception as error:
            problems.append(f"{name}: {type(error).__name__}: {error}")
    return problems


def _tars(target: Path, photos: list[Path], labels: list[int]) -> None:
    import webdataset as wds

    target.mkdir(exist_ok=True)
    with wds.ShardWriter(str(target / "%04d.tar"), maxcount=250, verbose=0) as writer:
        for number, (path, label) in enumerate(zip(photos, labels, strict=True)):
            writer.write({"__key__": f"{number:06d}", "jpg": path.read_bytes(), "cls": str(label)})


def lit_sample(sample: tuple[str, int]) -> dict[str, Any]:
    return {"image": Path(sample[0]).read_bytes(), "label": sample[1]}


def _chunks(target: Path, photos: list[Path], labels: list[int]) -> None:
    import litdata as lit

    inputs = list(zip(map(str, photos), labels, strict=True))
    lit.optimize(lit_sample, inputs, output_dir=str(target), chunk_bytes="32MB", num_workers=1, mode="overwrite")


def _shards(target: Path, photos: list[Path], labels: list[int]) -> None:
    from streaming import MDSWriter

    with MDSWriter(out=str(target), columns={"image": "bytes", "label": "int"}, size_limit="32mb") as writer:
        for path, label in zip(photos, labels, strict=True):
            writer.write({"image": path.read_bytes(), "label": label})
