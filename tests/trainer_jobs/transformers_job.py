"""The Trainer of transformers: `transformers_job.py FOLDER OUT`, on any number of processes.

Each rank writes OUT/RANK.json.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import EvalPrediction, Trainer, TrainerCallback, TrainingArguments

import torchdali as td
from tests.trainer_jobs.common import (
    BATCH_SIZE,
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


class Classifier(nn.Module):
    """As the Trainer wants a model: it takes the batch's fields by name, and gives the loss and the logits."""

    def __init__(self) -> None:
        super().__init__()
        self.net = make_model()

    def forward(self, image: torch.Tensor, label: torch.Tensor, **_fields: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.net(image)
        return {"loss": nn.functional.cross_entropy(logits, label), "logits": logits}


class LoaderTrainer(Trainer):
    """The Trainer, with loaders that are made already."""

    def __init__(self, train: td.DataLoader, held_out: td.DataLoader, **arguments: Any) -> None:
        super().__init__(eval_dataset=held_out.dataset, **arguments)
        self.train_loader, self.held_out = train, held_out
        self.batches: list[Any] = []

    def get_train_dataloader(self) -> Any:
        return self.train_loader

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        return self.held_out

    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        self.batches.append([int(self.train_loader.epoch), digests(inputs)])
        return super().training_step(model, inputs, num_items_in_batch)


class StopAfter(TrainerCallback):
    """Save after an optimizer step, and end there."""

    def __init__(self, step: int | None) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        if state.global_step == self.step:
            control.should_save = control.should_training_stop = True
        return control


def accuracy(prediction: EvalPrediction) -> dict[str, float]:
    """Over the rows that are not repeated."""
    label, valid, index = prediction.label_ids
    hits = prediction.predictions.argmax(1) == label
    found = index[valid].tolist()
    return {"right": int(hits[valid].sum()), "once": sorted(found) == list(range(22)), "rows": len(valid)}


def make_trainer(
    folder: Path | str, out: Path, stop: int | None = None, compute_metrics: Any = accuracy, **changes: Any
) -> LoaderTrainer:
    settings: dict[str, Any] = {
        "output_dir": str(out),
        "per_device_train_batch_size": BATCH_SIZE,
        "num_train_epochs": EPOCHS,
        "learning_rate": 0.05,
        "use_cpu": True,
        "report_to": [],
        "disable_tqdm": True,
        "save_strategy": "no",
        "logging_strategy": "no",
        "label_names": ["label", "valid", "index"],
    }
    return LoaderTrainer(
        make_loader(folder),
        make_eval_loader(folder, 3, pad_last=True),
        model=Classifier(),
        args=TrainingArguments(**(settings | changes)),
        callbacks=[StopAfter(stop)],
        compute_metrics=compute_metrics,
    )


def run_cells(folder: Path | str, out: Path | str) -> dict[str, Any]:
    world_size = int(os.environ.get("WORLD_SIZE", 1))

    def train(name: str, stop: int | None, resume: str | None, done: int, **changes: Any) -> Record:
        trainer = make_trainer(folder, Path(out, name), stop, **changes)
        checkpoint = str(Path(out, resume, f"checkpoint-{done}")) if resume else None
        trainer.train(resume_from_checkpoint=checkpoint)
        trainer.train_loader.close()
        state = trainer.state
        return {
            "batches": trainer.batches,
            "weights": weights(trainer.accelerator.unwrap_model(trainer.model)),
            "optimizer steps": state.global_step,
            "epoch": state.epoch,
        }

    found: dict[str, Any] = run_matrix(world_size, train)
    windows = -(-steps(world_size) // ACCUMULATE)
    found["accumulated"] = train("accumulated", None, None, 0, gradient_accumulation_steps=ACCUMULATE)
    for stop in (1, windows, windows + 1):
        first = train(f"window {stop}", stop, None, 0, gradient_accumulation_steps=ACCUMULATE)
        rest = train("rest", None, f"window {stop}", stop, gradient_accumulation_steps=ACCUMULATE)
        found[f"accumulated, {stop}"] = {**rest, "batches": first["batches"] + rest["batches"]}
    # An evaluation within the epoch, every two steps, changes nothing of the training.
    found["evaluated"] = train("evaluated", None, None, 0, eval_strategy="steps", eval_steps=2)
    trainer = make_trainer(folder, Path(out, "evaluation"))
    found["evaluation"] = trainer.evaluate()
    found["evaluation, by batch"] = by_batch(folder, Path(out, "evaluation"))
    trainer.end()
    return found


def by_batch(folder: Path | str, out: Path) -> list[bool]:
    """Whether the Trainer says of each batch that it is the last one."""
    last: list[bool] = []

    def note(_prediction: EvalPrediction, compute_result: bool) -> dict[str, float]:
        last.append(compute_result)
        return {}

    make_trainer(folder, out, compute_metrics=note, batch_eval_metrics=True).evaluate()
    return last


def main(folder: str, out: str) -> None:
    torch.set_num_threads(1)
    write(out, int(os.environ.get("RANK", 0)), run_cells(folder, out))


if __name__ == "__main__":
    main(*sys.argv[1:])
