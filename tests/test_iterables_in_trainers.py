"""Sources that end where they end, in trainers that would like to know: Accelerate, DCP, Lightning."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch as L
import pytest
import torch
import torch.distributed.checkpoint as dcp
from accelerate import Accelerator, skip_first_batches
from lightning.pytorch.callbacks import ModelCheckpoint

import torchdali as td
from torchdali.lightning import DataModule

from .source_datasets import Numbers, StatefulNumbers

pytestmark = pytest.mark.slow


def loader(dataset: Any, **options: Any) -> td.DataLoader:
    return td.DataLoader(dataset, 4, device="cpu", **options)


def firsts(batches: Any) -> list[int]:
    return [int(batch["x"][0, 0]) for batch in batches]


@pytest.fixture
def accelerator() -> Iterator[Any]:
    """Makes an Accelerator on the CPU."""
    yield lambda **options: Accelerator(cpu=True, **options)


@pytest.mark.parametrize(("n", "synced"), [(22, [3, 5, 9, 11]), (20, [3, 4, 8, 9]), (4, [0, 1])])
@pytest.mark.parametrize("options", [{}, {"num_workers": 1}, {"prefetch_factor": 0}], ids=str)
def test_the_last_batch_of_an_epoch_is_a_step(accelerator: Any, n: int, synced: list[int], options: Any) -> None:
    one = accelerator(gradient_accumulation_steps=4)
    model = one.prepare(torch.nn.Linear(1, 1))
    found = []
    with one.prepare(loader(Numbers(n), **options)) as batches:
        for step, batch in enumerate(batch for _ in range(2) for batch in batches):
            with one.accumulate(model):
                found += [step] if one.sync_gradients else []
                assert batch["x"].shape[1] == 1
    assert found == synced


def test_an_error_ahead_costs_no_batch(accelerator: Any) -> None:
    class Fails(Numbers):
        def __iter__(self) -> Iterator[Any]:
            yield from super().__iter__()
            raise LookupError("after the batch")

    accelerator()
    batches = iter(loader(Fails(4)))
    assert firsts([next(batches)]) == [0]
    with pytest.raises(LookupError, match="after the batch"):
        next(batches)


@pytest.mark.parametrize("cls", [Numbers, StatefulNumbers])
def test_skipping_makes_the_batches_again(accelerator: Any, cls: Any) -> None:
    accelerator()
    one = loader(cls(22))
    with pytest.warns(RuntimeWarning, match="3 batches are made again"):
        assert firsts(skip_first_batches(one, 3)) == [12, 16, 20]
    assert firsts(one) == [0, 4, 8, 12, 16, 20]


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.filterwarnings("ignore:.*samples are iterated again:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")  # that is meant
@pytest.mark.parametrize("cls", [Numbers, StatefulNumbers])
def test_distributed_checkpoints(tmp_path: Path, cls: Any, num_workers: int) -> None:
    with loader(cls(40), num_workers=num_workers) as one:
        batches = iter(one)
        next(batches), next(batches)
        dcp.save({"loader": one}, checkpoint_id=tmp_path, no_dist=True)
        rest = firsts(batches)
    with loader(cls(40), num_workers=num_workers) as other:
        dcp.load({"loader": other}, checkpoint_id=tmp_path, no_dist=True)
        assert firsts(other) == rest


class Model(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen: list[int] = []

    def training_step(self, batch: dict[str, torch.Tensor], batch_idx: int) -> torch.Tensor:
        self.seen.append(int(batch["x"][0, 0]))
        return self.layer(batch["x"]).sum()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.1)


def fit(folder: Path, data: Any, resume: str | None = None, **options: Any) -> list[int]:
    model = Model()
    save = ModelCheckpoint(folder, "{step}", every_n_train_steps=1, save_top_k=-1)
    trainer = L.Trainer(
        max_epochs=2, accelerator="cpu", callbacks=[save], logger=False, enable_progress_bar=False,
        enable_model_summary=False, **options,
    )  # fmt: skip
    trainer.fit(model, data, ckpt_path=None if resume is None else folder / resume)
    return model.seen


@pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec", "ignore:Checkpoint directory .* exists")
@pytest.mark.parametrize("module", [False, True])
def test_lightning_resumes_where_it_knows_the_steps(tmp_path: Path, module: bool) -> None:
    """Without `limit_train_batches` it fetches a batch ahead, and saves where that one is."""

    def data() -> Any:
        return DataModule(StatefulNumbers(22), batch_size=4) if module else loader(StatefulNumbers(22))

    whole = fit(tmp_path, data(), limit_train_batches=6)
    assert whole == [0, 4, 8, 12, 16, 20] * 2
    for step in (2, 5, 8):
        assert fit(tmp_path, data(), f"step={step}.ckpt", limit_train_batches=6) == whole[step:]


@pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec", "ignore:Checkpoint directory .* exists")
def test_lightning_without_a_length_is_one_batch_ahead_in_each_epoch(tmp_path: Path) -> None:
    assert fit(tmp_path, loader(StatefulNumbers(22))) == [0, 4, 8, 12, 16, 20] * 2
    for step in (2, 8):
        path = tmp_path / f"step={step}.ckpt"
        (state,) = torch.load(path, weights_only=False)["loops"]["fit_loop"]["state_dict"]["combined_loader"]
        assert (state["epoch"], state["samples_seen"]) == (step // 6, 4 * (step % 6 + 1))
