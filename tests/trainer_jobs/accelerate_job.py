"""Accelerate: `accelerate_job.py FOLDER OUT`, on any number of processes.  Each rank writes OUT/RANK.json."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, skip_first_batches
from torch import nn

import torchdali as td
from tests.trainer_jobs.common import (
    EPOCHS,
    Record,
    digests,
    make_eval_loader,
    make_loader,
    make_model,
    run_matrix,
    steps,
    weights,
    write,
)

ACCUMULATE = 4  # divides neither 11 nor 6
SIZES = [1, 3, 4, 7, 11, 30]  # of evaluation batches


class Training:
    """A model, an optimizer and a loader with accelerate, and what they did."""

    def __init__(self, folder: Path | str, accumulate: int = 1, register: bool = False) -> None:
        self.accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulate)
        model = make_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        loader = make_loader(folder)
        self.model, self.optimizer, self.loader = self.accelerator.prepare(model, optimizer, loader)
        assert self.loader is loader  # accelerate takes no second shard of it
        # `prepare` gives back what it does not know, and saves only what it knows.
        if register:
            self.accelerator.register_for_checkpointing(loader)
        else:
            assert self.accelerator.prepare_data_loader(loader) is loader
        self.batches: list[Any] = []
        self.synced: list[bool] = []

    def step(self, epoch: int, batch: dict[str, Any]) -> None:
        with self.accelerator.accumulate(self.model):
            loss = nn.functional.cross_entropy(self.model(batch["image"]), batch["label"])
            self.accelerator.backward(loss)
            self.optimizer.step()
            self.optimizer.zero_grad()
        self.batches.append([epoch, digests(batch)])
        self.synced.append(self.accelerator.sync_gradients)

    def run(self, stop: int | None = None) -> None:
        """Train to the end, or until so many batches were taken."""
        for epoch in range(self.loader.epoch, EPOCHS):
            for batch in self.loader:
                self.step(epoch, batch)
                if len(self.batches) == stop:
                    return

    def record(self) -> Record:
        model = self.accelerator.unwrap_model(self.model)
        return {"batches": self.batches, "weights": weights(model), "synced": self.synced}

    def close(self) -> None:
        self.loader.close()
        self.accelerator.free_memory()


def run_cells(folder: Path | str, out: Path | str) -> dict[str, Any]:
    """The matrix, and what else accelerate offers."""
    world_size = Accelerator(cpu=True).num_processes

    def train(name: str, stop: int | None, resume: str | None, done: int, **how: Any) -> Record:
        training = Training(folder, **how)
        if resume is not None:
            training.accelerator.load_state(str(Path(out, resume)))
        training.run(None if stop is None else stop - done)
        training.accelerator.save_state(str(Path(out, name)))
        training.close()
        return training.record()

    found: dict[str, Any] = run_matrix(world_size, train)
    registered = [train("registered", 3, None, 0, register=True), train("then", None, "registered", 3, register=True)]
    found["registered"] = {
        "batches": registered[0]["batches"] + registered[1]["batches"],
        "weights": registered[1]["weights"],
    }
    found["accumulated"] = train("accumulated", None, None, 0, accumulate=ACCUMULATE)
    first = train("window", ACCUMULATE, None, 0, accumulate=ACCUMULATE)
    rest = train("window's end", None, "window", ACCUMULATE, accumulate=ACCUMULATE)
    found["accumulated, resumed"] = {
        "batches": first["batches"] + rest["batches"],
        "synced": first["synced"] + rest["synced"],
        "weights": rest["weights"],
    }
    for skip in (ACCUMULATE, steps(world_size) - 1):
        found[f"skip {skip}"] = skipping(folder, out, skip)
    found["nested"] = nested(folder)
    found["open"] = open_validation(folder)
    found["side by side"] = side_by_side(folder)
    found["gathered"] = gathered(folder, SIZES)
    found["said"] = warned()
    return found


def skipping(folder: Path | str, out: Path | str, skip: int) -> dict[str, Any]:
    """Accelerate's own way into the middle of an epoch, without the loader's state."""
    training = Training(folder, ACCUMULATE)
    training.loader.set_epoch(0)
    for batch in skip_first_batches(training.loader, skip):
        training.step(0, batch)
    training.loader.set_epoch(1)
    for batch in training.loader:
        training.step(1, batch)
    training.close()
    return training.record()


def nested(folder: Path | str) -> dict[str, Any]:
    """Whose end is told while an evaluation runs in the middle of an epoch, is broken off, or comes to its end."""
    training, seen = Training(folder), []
    state = training.accelerator.gradient_state
    with make_eval_loader(folder, 8) as held_out:
        for number, _ in enumerate(training.loader):
            if number == 1:
                seen.append([state.end_of_dataloader for _ in held_out])
                for _ in held_out:
                    break
            if number == 2:
                open_pass = iter(held_out)
                while not state.end_of_dataloader:
                    next(open_pass)
                del open_pass
            seen.append(state.end_of_dataloader)
    seen.append(state.in_dataloader)
    training.close()
    return {"seen": seen}


def open_validation(folder: Path | str) -> list[bool]:
    """Where gradients are synchronized, with a validation that is opened in the middle and stays open."""
    training = Training(folder, ACCUMULATE)
    with make_eval_loader(folder, 4) as held_out:
        open_pass = None
        for number, batch in enumerate(training.loader):
            if number == 1:
                open_pass = iter(held_out)
                next(open_pass)
            training.step(0, batch)
        del open_pass
    training.close()
    return training.synced


def side_by_side(folder: Path | str) -> list[tuple[bool, bool]]:
    """Whose end is told, where two passes take turns and the second ends first."""
    training, seen = Training(folder), []
    state = training.accelerator.gradient_state
    with make_eval_loader(folder, 8) as other:
        second = iter(other)
        for _ in training.loader:
            first = state.end_of_dataloader
            next(second, None)
            seen.append((first, state.end_of_dataloader))
        del second
    training.close()
    return seen


def warned() -> dict[str, list[str]]:
    """What is said of a last batch that can't be gathered, and of one whose repeated rows are counted."""
    accelerator, said = Accelerator(cpu=True), {}
    numbers = td.InMemoryDataset(number=range(4 * accelerator.num_processes + 1))
    for name, options in {"uneven": {}, "unmarked": {"pad_last": True}, "even": {"drop_last": True}}.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                with td.DataLoader(numbers, 2, device="cpu", **options) as loader:
                    for (number,) in loader:
                        if name != "uneven":
                            accelerator.gather_for_metrics(number)
        said[name] = [str(warning.message) for warning in caught if warning.category is RuntimeWarning]
    return said


def gathered(folder: Path | str, sizes: list[int]) -> dict[str, Any]:
    """What `gather_for_metrics` gives of an evaluation, by batch size: the indices, and the accuracy."""
    accelerator, model, found = Accelerator(cpu=True), make_model(), {}
    for size in sizes:
        indices, right = [], 0
        with make_eval_loader(folder, size, pad_last=True) as loader:
            for batch in accelerator.prepare(loader):
                hits = model(batch["image"]).argmax(1) == batch["label"]
                # Rows of equal number on all ranks, and what they are repeated for is left out by `valid`.
                index, hits, valid = accelerator.gather_for_metrics((batch["index"], hits, batch["valid"]))
                indices += index[valid].tolist()
                right += int(hits[valid].sum())
        found[str(size)] = {"indices": indices, "right": right}
    return found


def main(folder: str, out: str) -> None:
    torch.set_num_threads(1)
    found = run_cells(folder, out)
    write(out, Accelerator(cpu=True).process_index, found)
    Accelerator(cpu=True).end_training()


if __name__ == "__main__":
    main(*sys.argv[1:])
