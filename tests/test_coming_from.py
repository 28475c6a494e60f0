"""The migration guide, docs/coming-from.md: its rows about torchdata, webdataset, timm and Lightning."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset

import torchdali as td
from torchdali import transforms as T
from torchdali.transforms import presets

from .docs_data import make_shards
from .guide import SECTIONS, Rows

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import webdataset as wds
    from torchdata import nodes
    from torchdata.stateful_dataloader import StatefulDataLoader

row = Rows("torchdata", "webdataset", "timm", "Lightning")
pytestmark = pytest.mark.filterwarnings(  # torchdata's and webdataset's own: the latter leaves tars open
    "ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


def test_each_row_has_a_test_and_each_test_a_row() -> None:
    row.check()
    from .test_migration import row as others

    assert {*row.sections, *others.sections} == set(SECTIONS)


def load(dataset: Any, batch_size: int = 4, **options: Any) -> td.DataLoader:
    return td.DataLoader(dataset, batch_size, **{"device": "cpu", **options})


class Squares(torch.utils.data.Dataset[int]):
    def __len__(self) -> int:
        return 22

    def __getitem__(self, i: int) -> int:
        return i * i


def numbers(loader: Any) -> list[int]:
    return [int(one) for batch in loader for one in batch]


# torchdata


@pytest.mark.processes
@row("`StatefulDataLoader(dataset, 64, num_workers=4)`, `state_dict()`")
def test_a_state_with_workers() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = numbers(StatefulDataLoader(Squares(), 4, num_workers=2))
    with load(Squares(), num_workers=2) as loader:
        got = next(iter(loader)).tolist()
        state = loader.state_dict()
    assert state["samples_seen"] == 4  # and not what the workers have made ahead
    with load(Squares(), num_workers=1) as loader:
        loader.load_state_dict(state)
        assert got + numbers(loader) == expected


@row("`nodes.Loader(nodes.Batcher(nodes.ParallelMapper(nodes.SamplerWrapper(sampler), dataset.__getitem__, 4), 64))`")
def test_nodes() -> None:
    order = [3, 1, 4, 1, 5, 9, 2, 6]
    mapped = nodes.ParallelMapper(nodes.SamplerWrapper(order), Squares().__getitem__, 2, method="thread")
    theirs = list(nodes.Loader(nodes.Batcher(mapped, 4)))
    assert [batch.tolist() for batch in load(Squares(), sampler=order)] == theirs


@row("`nodes.IterableWrapper(iterable)`")
def test_iterables() -> None:
    theirs = list(nodes.Loader(nodes.IterableWrapper(range(10))))
    assert numbers(load(td.IterableSource(range(10)))) == theirs


@row('`nodes.MultiNodeWeightedSampler({"a": one, "b": other}, {"a": 0.7, "b": 0.3})`')
def test_weighted_nodes() -> None:
    one, other = (td.InMemoryDataset(x=np.full(100, value)) for value in (0, 1))
    drawn = [int(x) for (batch,) in load(td.Mix({one: 0.7, other: 0.3})) for x in batch]
    assert abs(drawn.count(1) / len(drawn) - 0.3) < 0.02


# webdataset


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Path:
    """Two tars of the folder's images, classes and captions."""
    out = tmp_path_factory.mktemp("shards") / "tars"
    make_shards(out, folder)
    return out


def urls(shards: Path) -> list[str]:
    return [str(path) for path in sorted(shards.glob("*.tar"))]


def theirs(shards: Path) -> Any:
    return wds.WebDataset(urls(shards), shardshuffle=False)


@row('`WebDataset(urls).decode("pil").to_tuple("jpg", "cls")`')
def test_tars(shards: Path) -> None:
    expected = list(theirs(shards).decode("pil").to_tuple("jpg", "cls"))
    got = list(load(td.TarDataset(urls(shards), ["jpg", "cls"]), 1))
    for (image, label), (ours, our_label) in zip(expected, got, strict=True):
        pixels = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1)
        assert our_label.item() == label and torch.equal(ours.unbind()[0], pixels)


def keys(dataset: td.TarDataset, **options: Any) -> list[str]:
    return [key for batch in load(dataset, **options) for key in batch[-1]]


def keyed(shards: Path) -> td.TarDataset:
    return td.TarDataset(urls(shards), ["cls"], ["label", "key"])


@row("`.shuffle(1000)`, `shardshuffle=100`")
def test_shuffled_tars(shards: Path) -> None:
    one, other = keys(keyed(shards), shuffle=True, seed=1), keys(keyed(shards), shuffle=True, seed=2)
    assert one != other and sorted(one) == sorted(other) == [sample["__key__"] for sample in theirs(shards)]
    reader = td.readers.Webdataset(paths=urls(shards), ext=["cls"], fields=["label"], shuffle="window", initial_fill=8)
    assert sum(len(batch[0]) for batch in load(reader)) == 22


@row("`nodesplitter=split_by_node`, `workersplitter=split_by_worker`, `.with_epoch(n)`")
def test_tars_on_ranks(shards: Path) -> None:
    ranks = [keys(keyed(shards), rank=rank, world_size=2) for rank in range(2)]
    assert len(ranks[0]) == len(ranks[1]) == 11 and not {*ranks[0]} & {*ranks[1]}


@row("`.map_dict(txt=tokenize)`")
def test_converted_parts(shards: Path) -> None:
    expected = [sample["txt"] for sample in theirs(shards).decode().map_dict(txt=len)]
    (batch,) = load(td.TarDataset(urls(shards), ["txt"], convert={"txt": len}), 22)
    assert batch[0].tolist() == expected


@row('`.rename(image="jpg;png")`')
def test_alternatives(shards: Path) -> None:
    dataset = td.TarDataset(urls(shards), ["jpg;png", "cls"], fields=["image", "label"])
    assert list(dataset.fields) == ["image", "label"] and len(dataset) == 22
    assert all(set(sample) >= {"image"} for sample in theirs(shards).rename(image="jpg;png"))


@row("`.batched(64)`, `WebLoader(dataset, batch_size=None)`")
def test_batches_of_tars(shards: Path) -> None:
    expected = [len(batch[0]) for batch in theirs(shards).to_tuple("cls").batched(4)]
    assert [len(batch[0]) for batch in load(td.TarDataset(urls(shards), ["cls"]))] == expected


@row("a `WebDataset` pipeline that you want to keep")
@pytest.mark.filterwarnings("ignore:WebDataset has no state_dict:RuntimeWarning")
def test_a_pipeline_as_it_is(shards: Path) -> None:
    def pipeline() -> Any:
        return theirs(shards).to_tuple("jpg", "cls").map_tuple(bytes, int)

    assert isinstance(pipeline(), IterableDataset)
    whole = list(load(pipeline(), transform=T.Resize((8, 8))))
    loader = load(pipeline(), transform=T.Resize((8, 8)))
    next(iter(loader))
    again = load(pipeline(), transform=T.Resize((8, 8)))
    again.load_state_dict(loader.state_dict())
    loader.close()
    for expected, got in zip(whole[1:], again, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(expected, got, strict=True))


# timm, which is no dependency: the rows' right sides are compared with what its code says


@row('`create_transform(224, is_training=True, auto_augment="rand-m9-mstd0.5-inc1", re_prob=0.25)`')
def test_training_transforms() -> None:
    steps = presets.timm_train(224, auto_augment="rand-m9-mstd0.5-inc1", re_prob=0.25)
    names = ["RandomResizedCrop", "RandomHorizontalFlip", "TimmRandAugment", "Normalize", "RandomErasing"]
    assert [type(step).__name__ for step in steps] == names  # as transforms_imagenet_train puts them
    assert steps[0] == T.RandomResizedCrop(224, (0.08, 1.0), (3 / 4, 4 / 3), "bicubic")


@row("`create_transform(224, crop_pct=0.875)` of evaluation")
def test_evaluation_transforms() -> None:
    resize, crop, _ = presets.imagenet_eval(224, resize=256, interpolation="bicubic")
    assert resize == T.Resize(int(224 / 0.875), "bicubic") and crop == T.CenterCrop(224)


@row("`rand_augment_transform(config, hparams)`")
def test_notation() -> None:
    made = T.rand_augment_transform("rand-m9-mstd0.5-inc1", {"img_mean": (124, 116, 104), "translate_pct": 0.45})
    assert (made.magnitude, made.magnitude_std, made.increasing, made.fill) == (9, 0.5, True, (124, 116, 104))


@row("`RepeatAugSampler(dataset, num_repeats=3)`")
def test_repeats(folder: Path) -> None:
    dataset = td.ImageFolder(folder, fields=("index",))
    drawn = [
        int(i) for (batch,) in load(dataset, sampler=td.RepeatedAugmentationSampler(dataset, repeats=3)) for i in batch
    ]
    assert len(drawn) == 22 and drawn[:3] == [drawn[0]] * 3  # an epoch has as many samples as the dataset


@row("`Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, num_classes=1000)`")
def test_mixup(folder: Path) -> None:
    class Mixup:
        """Called as timm's: with the batch's parts, and drawing from numpy's global generator."""

        def __call__(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            weight = np.random.beta(0.8, 0.8)
            return images * weight + images.flip(0) * (1 - weight), labels * weight

    def stream() -> Iterator[Any]:
        steps = T.Compose([T.Resize((8, 8)), T.ToDtype(torch.float32, True)])
        return iter(load(td.ImageFolder(folder), transform=steps, batch_transform=Mixup()))

    for one, other in zip(stream(), stream(), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@row("`create_loader(dataset, ..., use_prefetcher=True)`")
def test_batches_are_normalised(folder: Path) -> None:
    loader = load(td.ImageFolder(folder), transform=T.Compose(presets.imagenet_eval(16, 20)))
    images, _ = next(iter(loader))
    assert images.dtype == torch.float32 and images.device == loader.device and images.min() < 0
    loader.close()


# Lightning


def fit(**data: Any) -> tuple[Any, list[list[int]]]:
    """Train for two epochs; the trainer, and the indices of each epoch."""
    import lightning

    seen: list[list[int]] = []

    class Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def on_train_epoch_start(self) -> None:
            seen.append([])

        def training_step(self, batch: Any) -> torch.Tensor:
            index = batch["a"][0] if isinstance(batch, dict) else batch[0]
            seen[-1] += index.tolist()
            return self.layer(index[:, None].float()).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.01)

    quiet = dict(logger=False, enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False)
    trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", **quiet)
    trainer.fit(Model(), **data)
    return trainer, seen


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@row("a `LightningDataModule` whose `train_dataloader` makes a torch `DataLoader`")
def test_data_modules(folder: Path) -> None:
    import lightning

    from torchdali.lightning import DataModule

    class Own(lightning.LightningDataModule):
        def train_dataloader(self) -> td.DataLoader:
            return load(td.ImageFolder(folder, fields=("index",)), shuffle=True)

    _, own = fit(datamodule=Own())
    ready = DataModule(train=td.ImageFolder(folder, fields=("index",)), batch_size=4)
    _, made = fit(datamodule=ready)
    assert own == made and own[0] != own[1] and sorted(own[0]) == list(range(22))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@row("`Trainer(use_distributed_sampler=True)`")
def test_samplers_are_left_alone(folder: Path) -> None:
    loader = load(td.ImageFolder(folder, fields=("index",)), shuffle=True)
    trainer, _ = fit(train_dataloaders=loader)
    assert trainer.train_dataloader is loader and type(loader.sampler).__module__.startswith("torchdali.")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@row('`CombinedLoader({"a": one, "b": other})`')
def test_combined_loaders(folder: Path) -> None:
    from lightning.pytorch.utilities import CombinedLoader

    one, other = (td.ImageFolder(folder, fields=("index",)) for _ in range(2))
    _, seen = fit(train_dataloaders=CombinedLoader({"a": load(one), "b": load(other, shuffle=True)}))
    assert seen == [list(range(22))] * 2
    columns = [td.InMemoryDataset(x=np.arange(8) * factor) for factor in (1, 10)]
    batch = next(iter(load(td.Zip(a=columns[0], b=columns[1]), output="dict")))
    assert (batch["a_x"].tolist(), batch["b_x"].tolist()) == ([0, 1, 2, 3], [0, 10, 20, 30])
