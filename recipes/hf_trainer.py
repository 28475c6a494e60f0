"""Train an image classifier of Hugging Face with its Trainer, on root/train/<class>/* and root/val/<class>/*.

    python recipes/hf_trainer.py --config configs/hf_trainer/digits.yaml --train.lr=0.002
    torchrun --nproc-per-node=8 recipes/hf_trainer.py --config configs/hf_trainer/imagenet.yaml

Stop it at any moment and start it again with the same command: it continues with the very next batch after its last
checkpoint, on the same or another number of GPUs. The Trainer saves no loader: it counts steps, each over all GPUs
together, and finds its place again by a seek.
"""

import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jsonargparse
import torch
from jsonargparse.typing import PositiveInt
from torch import nn
from transformers import (
    AutoModelForImageClassification,
    EvalPrediction,
    ResNetConfig,
    ResNetForImageClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
from transformers.trainer_utils import get_last_checkpoint

import torchdali as td
from torchdali import transforms as T
from torchdali.configs import ArgumentParser


@dataclass(frozen=True)
class DataConfig:
    root: str  # holds train/<class>/* and val/<class>/*
    batch_size: int = 256  # samples per forward pass, over all ranks together
    image_size: int = 224
    val_resize: int = 256  # the shorter side, before the centre crop of image_size
    crop_scale: tuple[float, float] = (0.08, 1.0)  # in training: the part of the area that a random crop keeps
    flip: float = 0.5  # in training: the probability of a mirrored image
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class TrainConfig:
    output: str  # the run folder: checkpoint-*, the model, result.json
    model: str = "small_resnet"  # or a pretrained image classifier: a folder, or a name on the Hub
    epochs: PositiveInt = 30
    lr: float = 0.001
    weight_decay: float = 0.01
    warmup_steps: int = 0
    accumulate: PositiveInt = 1  # batches per optimizer step; the last step of an epoch may have fewer
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    seed: int = 0
    device: Literal["auto", "cpu"] = "auto"
    checkpoint_every: PositiveInt = 1000  # optimizer steps
    kill_at_step: int | None = None  # die by SIGKILL after this optimizer step, to prove that resuming works


def make_loader(split: str, data: DataConfig, seed: int, world_size: int, device: torch.device) -> td.DataLoader:
    """Make the loader for "train" or "val". It finds out which part of each batch belongs to its rank."""
    augment = [T.RandomResizedCrop(data.image_size, scale=data.crop_scale), T.RandomHorizontalFlip(data.flip)]
    view = augment if split == "train" else [T.Resize(data.val_resize), T.CenterCrop(data.image_size)]
    return td.DataLoader(
        td.ImageFolder(f"{data.root}/{split}", fields=("image", "label", "valid")),
        batch_size=data.batch_size // world_size,
        shuffle=split == "train",
        # The Trainer gathers what it evaluates, in equal shapes; "valid" marks the rows that only fill up the batch.
        pad_last=split == "val",
        transform=T.Compose([*view, T.Normalize(mean=data.mean, std=data.std)]),
        seed=seed,
        device=device,
        output="dict",  # the Trainer needs names, and takes them only from a dict
    )


def make_model(name: str, classes: list[str]) -> nn.Module:
    labels = dict(enumerate(classes))
    if name != "small_resnet":
        return AutoModelForImageClassification.from_pretrained(
            name, id2label=labels, label2id={label: i for i, label in labels.items()}, ignore_mismatched_sizes=True
        )
    config = ResNetConfig(embedding_size=16, hidden_sizes=[32, 64], depths=[1, 1], layer_type="basic", id2label=labels)
    return ResNetForImageClassification(config)


class LoaderTrainer(Trainer):
    """A Trainer that takes finished loaders: nothing wraps them, and nothing shards them again."""

    def __init__(self, loader: td.DataLoader, val_loader: td.DataLoader, **arguments: Any) -> None:
        super().__init__(train_dataset=loader.dataset, eval_dataset=val_loader.dataset, **arguments)
        self.loader, self.val_loader = loader, val_loader

    def get_train_dataloader(self) -> Any:
        return self.loader

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        return self.val_loader

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        outputs = model(pixel_values=inputs["image"], labels=inputs["label"])
        return (outputs.loss, outputs) if return_outputs else outputs.loss


class KillAt(TrainerCallback):
    def __init__(self, step: int | None) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def accuracy(prediction: EvalPrediction) -> dict[str, float]:
    """Compute the accuracy over each image once, on any number of ranks."""
    labels, valid = prediction.label_ids
    return {"accuracy": float((prediction.predictions.argmax(1) == labels)[valid].mean())}


def main(data: DataConfig, train: TrainConfig) -> None:
    world_size = int(os.environ.get("WORLD_SIZE", 1))
    if data.batch_size % world_size:
        raise ValueError(f"data.batch_size must be a multiple of {world_size} (ranks), got {data.batch_size}")
    args = TrainingArguments(
        output_dir=train.output,
        per_device_train_batch_size=data.batch_size // world_size,
        per_device_eval_batch_size=data.batch_size // world_size,
        num_train_epochs=train.epochs,
        learning_rate=train.lr,
        weight_decay=train.weight_decay,
        warmup_steps=train.warmup_steps,
        lr_scheduler_type="cosine",
        gradient_accumulation_steps=train.accumulate,
        bf16=train.precision == "bf16",
        fp16=train.precision == "fp16",
        seed=train.seed,
        use_cpu=train.device == "cpu",
        save_steps=train.checkpoint_every,
        save_total_limit=2,
        eval_strategy="epoch",
        label_names=["label", "valid"],  # go to `accuracy` along with the predictions
        report_to="none",
    )
    place = world_size, args.device
    loader, val_loader = (make_loader(split, data, train.seed, *place) for split in ("train", "val"))
    torch.manual_seed(train.seed)  # the same first weights on every rank
    trainer = LoaderTrainer(
        loader,
        val_loader,
        model=make_model(train.model, loader.dataset.classes),
        args=args,
        compute_metrics=accuracy,
        callbacks=[KillAt(train.kill_at_step)],
    )
    last = get_last_checkpoint(train.output) if Path(train.output).is_dir() else None
    trainer.train(resume_from_checkpoint=last)
    metrics = trainer.evaluate()
    trainer.save_model()
    if trainer.is_world_process_zero():
        result = {"accuracy": metrics["eval_accuracy"], "steps": trainer.state.global_step}
        Path(train.output, "result.json").write_text(json.dumps(result) + "\n")
        print(f"held-out accuracy {result['accuracy']:.4f} after {result['steps']} steps")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    jsonargparse.auto_cli(main, parser_class=ArgumentParser)
