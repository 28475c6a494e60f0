"""A loader's attributes tell the truth, and say so where they can't be set."""

from __future__ import annotations

import gc
import io
import weakref
from collections.abc import Iterator
from functools import partial
from typing import Any

import psutil
import pytest
import torch
from torch.utils.data import BatchSampler, SequentialSampler, WeightedRandomSampler

import torchdali as td
from torchdali import transforms as T


class Numbers(torch.utils.data.Dataset[int]):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> int:
        return index


def set_up(worker: int) -> None:
    pass


def test_every_option_is_an_attribute() -> None:
    given: dict[str, Any] = dict(
        batch_size=3, seed=5, drop_last=True, num_workers=2, prefetch_factor=4, timeout=9, pin_memory=True,
        persistent_workers=True, worker_init_fn=set_up, multiprocessing_context="spawn", output="dict", shuffle=True,
    )  # fmt: skip
    loader = td.DataLoader(Numbers(), device="cpu", **given)
    assert {name: getattr(loader, name) for name in given} == given
    assert {name: getattr(loader.options, name) for name in given} == given
    assert (loader.pad_last, loader.generator, loader.in_order) == (False, None, True)


@pytest.mark.processes
def test_trainers_see_a_loader_without_workers() -> None:
    """They build torch's own loader of what they see, and its workers would run around ours."""
    from accelerate import skip_first_batches

    loader = td.DataLoader(Numbers(), 4, num_workers=1, prefetch_factor=4, timeout=60, pin_memory=True, device="cpu")
    with loader:
        skipped = skip_first_batches(loader, 8)
        assert skipped.num_workers == 0
        assert [batch.tolist() for batch in skipped] == [[32, 33, 34, 35], [36, 37, 38, 39]]


@pytest.mark.parametrize(
    "name", ["dataset", "sampler", "batch_sampler", "batch_size", "seed", "drop_last", "num_workers", "collate_fn"]
)
def test_what_cannot_be_set_says_so(name: str) -> None:
    loader = td.DataLoader(Numbers(), 4, device="cpu")
    before = getattr(loader, name)
    with pytest.raises(ValueError, match=f"{name} can't be changed after the loader is made: .*make another loader"):
        setattr(loader, name, before)
    assert next(iter(loader)).tolist() == [0, 1, 2, 3]


def test_attributes_of_the_loaders_own() -> None:
    """open_clip sets num_samples and num_batches on its loader."""
    loader = td.DataLoader(Numbers(), 4, device="cpu")
    for name, hint in {
        "epoch": r"write loader.set_epoch\(epoch\)",
        "step": r"write loader.seek\(epoch, step\)",
        "bad_samples": "give your own attribute another name",
        "device": "make another loader",
    }.items():
        with pytest.raises(ValueError, match=hint):
            setattr(loader, name, 3)
    assert loader.num_samples == len(loader.sampler) == 40
    loader.num_samples, loader.num_batches = 80, 20  # type: ignore[attr-defined]
    assert (loader.num_samples, loader.num_batches) == (80, 20)  # type: ignore[attr-defined]
    assert (len(loader.sampler), len(loader), loader.state_dict()["num_samples"]) == (40, 10, 40)


def test_loaders_that_repeat_their_batch_sampler_hear_of_persistent_workers() -> None:
    class InfiniteDataLoader(td.DataLoader):
        """YOLO's; timm's sets it in the same way."""

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            object.__setattr__(self, "batch_sampler", self.batch_sampler)

    with pytest.raises(ValueError, match="to keep the workers, write persistent_workers=True"):
        InfiniteDataLoader(Numbers(), 4, device="cpu")


@pytest.mark.slow
def test_the_function_that_lightning_sets_changes_nothing() -> None:
    """By seed_everything(workers=True)."""
    from lightning.fabric.utilities.seed import pl_worker_init_function

    loader = td.DataLoader(Numbers(), 4, device="cpu")
    loader.worker_init_fn = partial(pl_worker_init_function, rank=0)
    assert loader.worker_init_fn is None
    with pytest.raises(ValueError, match="worker_init_fn can't be changed"):
        loader.worker_init_fn = set_up


def test_a_transform_that_is_set_holds_from_the_next_pass_on(folder) -> None:
    with td.DataLoader(td.ImageFolder(folder), 6, device="cpu", transform=T.CenterCrop(20)) as loader:
        opened = iter(loader)
        shapes = [tuple(next(opened)[0].shape[2:])]
        loader.transform = T.CenterCrop(30)
        shapes += [tuple(images.shape[2:]) for images, _ in opened]
        assert shapes == [(20, 20)] * 4
        assert {tuple(images.shape[2:]) for images, _ in loader} == {(30, 30)}
        with pytest.raises(TypeError):
            loader.transform = 5
        assert {tuple(images.shape[2:]) for images, _ in loader} == {(30, 30)}


def children() -> int:
    return len(psutil.Process().children(recursive=True))


@pytest.mark.processes
@pytest.mark.parametrize("touch", [False, True])
def test_a_loader_that_is_dropped_is_freed_by_reference_counting(touch: bool) -> None:
    gc.collect()
    gc.disable()
    try:
        before, descriptors = children(), 0
        for turn in range(3):
            loader = td.DataLoader(Numbers(), 4, num_workers=1, persistent_workers=True, device="cpu")
            if touch:
                assert len(loader.sampler) == 40 and loader.batch_sampler.sampler and loader.dataset
            assert sum(len(batch) for batch in loader) == 40
            dropped = weakref.ref(loader)
            del loader
            assert dropped() is None
            if not turn:
                before, descriptors = children(), psutil.Process().num_fds()  # the fork server stays
        assert children() <= before and psutil.Process().num_fds() <= descriptors
    finally:
        gc.enable()


def test_an_output_form_of_ones_own() -> None:
    with td.DataLoader(Numbers(), 4, device="cpu", output=lambda fields: list(fields)) as loader:
        assert next(iter(loader)) == ["label"]


def test_a_whole_loader_goes_through_torch_save() -> None:
    """torch.save pickles by an older protocol."""
    file = io.BytesIO()
    torch.save(td.DataLoader(list(range(5)), 2, device="cpu", memory_format=torch.contiguous_format), file)
    file.seek(0)
    loader = torch.load(file, weights_only=False)
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4]]
    assert loader.options.memory_format is torch.contiguous_format


def test_the_given_samplers_attributes_are_reached_through_the_loader() -> None:
    """As `train_loader.sampler.weights = weights` between epochs, which torch's loader takes."""
    dataset = list(range(8))
    loader = td.DataLoader(dataset, 4, sampler=WeightedRandomSampler([1.0] * 4 + [0.0] * 4, 8))
    assert loader.sampler.num_samples == 8 and loader.sampler.replacement is True
    assert {int(i) for batch in loader for i in batch} <= {0, 1, 2, 3}
    loader.sampler.weights = torch.tensor([0.0] * 4 + [1.0] * 4)
    assert {int(i) for batch in loader for i in batch} <= {4, 5, 6, 7}

    class Grouped(BatchSampler):
        group = 2

        def __iter__(self) -> Iterator[list[int]]:
            return iter([list(range(i, i + self.group)) for i in range(0, 8, self.group)])

    loader = td.DataLoader(dataset, batch_sampler=Grouped(SequentialSampler(dataset), 2, False))
    loader.batch_sampler.group = 4
    assert loader.batch_sampler.group == 4
    with pytest.raises(AttributeError, match="has no attribute 'weights'"):
        _ = loader.sampler.weights
    for one in (loader, td.DataLoader(dataset, 4), td.DataLoader(dataset, 4, sampler=td.WeightedSampler([1.0] * 8, 8))):
        with pytest.raises(AttributeError, match="weights of a loader's sampler can be set only where you gave"):
            one.sampler.weights = torch.ones(8)
