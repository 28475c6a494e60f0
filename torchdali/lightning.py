"""A LightningDataModule of datasets and transforms, which resumes exactly; for `lightning` and `pytorch_lightning`.

    from torchdali.lightning import DataModule

    data = DataModule(train=td.ImageFolder("train"), val=td.ImageFolder("val"), batch_size=64, transform=[...])
    trainer.fit(model, data, ckpt_path="last.ckpt")

A Trainer takes a plain `torchdali.DataLoader` too, and keeps its state.  The module does three things more: it takes
device and ranks from the trainer, it ends the loaders' threads with the trainer's work, and it carries the position by
itself, since a Trainer forgets that of loaders which exist before it restores a checkpoint: Lightning#20550, which
`trainer.estimated_stepping_batches` in `configure_optimizers` is enough for.

Import this module by name: `import torchdali` does not, so that Lightning stays optional.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple, TypeAlias

import torch
from torch.utils.data import Dataset, IterableDataset

from .checks import nearest
from .errors import StateMismatchError
from .loader import DataLoader
from .options import Options
from .readers import Reader
from .transforms import Compose, Transform

# Not `Dataset[Any]`: LightningCLI finds no arguments of a subclass of that.
Datasets: TypeAlias = Dataset | list[Dataset] | dict[str, Dataset] | None  # type: ignore[type-arg]

NAMES = ("lightning.pytorch", "pytorch_lightning")
"""Two packages of the same code, whose classes do not know each other."""

SPLITS = {"fit": ("train", "val"), "validate": ("val",), "test": ("test",), "predict": ("predict",)}
"""The splits that each of the trainer's stages reads."""


def _find_base() -> type:
    """Lightning's class, or where both packages are installed a child of both, which either Trainer takes.

    Raises:
        ImportError: neither is there.
    """
    found = [name for name in NAMES if find_spec(name.partition(".")[0])]
    if not found:
        raise ImportError("torchdali.lightning needs Lightning: pip install lightning (or pytorch-lightning)")
    bases = tuple(importlib.import_module(name).LightningDataModule for name in found)
    return bases[0] if len(bases) == 1 else type("LightningDataModule", bases, {})


_Base: Any = _find_base()
_OWN = {
    "batch_size",
    "transform",
    "batch_transform",
    "shuffle",
    "sampler",
    "drop_last",
}  # of training; other datasets have their own
_OPTIONS = {*Options.names()} - _OWN


class _Made(NamedTuple):
    """The loaders of a split, in the shape of its datasets.

    Attributes:
        settings: what they were made of; others need other loaders.
        tree: a loader, or a list or dict of them.
        flat: each by its name in the state.
    """

    settings: dict[str, Any]
    tree: Any
    flat: dict[str, DataLoader]


class _Hook:
    """One of Lightning's `*_dataloader` hooks, which counts as overridden only where there is something to load.

    So Lightning itself says what is missing, and leaves out a validation without data.
    """

    def __init__(self, split: str) -> None:
        self.split = split

    def __get__(self, module: Any, owner: type | None = None) -> Any:
        if module is None:
            return self
        if getattr(module, self.split, None) is None:
            return getattr(_parent(module.trainer), f"{self.split}_dataloader").__get__(module)
        return partial(module._loaders, self.split)


def _parent(trainer: Any) -> Any:
    """Lightning's class in the trainer's own package: only there its methods count as not overridden."""
    packages = {cls.__module__.partition(".")[0] for cls in type(trainer).__mro__}
    return next((cls for cls in _Base.__mro__[:-1] if cls.__module__.partition(".")[0] in packages), _Base)


class DataModule(_Base):  # type: ignore[misc]
    """Datasets for training, validation, test and prediction, as `torchdali.DataLoader`s on the trainer's device.

    Its arguments are its attributes.  They may be set later, such as in `setup` of a subclass; the loaders follow when
    the trainer asks for them next.

    Args:
        train: the dataset, or a list or dict of datasets, which a Trainer reads together (Lightning's CombinedLoader).
        val, test, predict: the same; a Trainer reads several one after the other.
        batch_size: samples per batch on each rank, in training.
        val_batch_size: that of the other datasets; None: `batch_size`.
        transform: for training: a transform, a list of them, or a function `f(sample, rand)`.
        val_transform: for the other datasets.
        batch_transform: for batches of training, such as MixUp.
        shuffle: shuffle the training data, anew for each epoch; None: all but those with an order of their own.  Not
            where the Trainer has `overfit_batches`.
        sampler: the order of the training data instead.
        drop_last: in training, leave out what does not fill a global batch.  The other datasets are read whole.
        options: those of `torchdali.DataLoader`, such as seed, num_workers or output; for all datasets.

    Raises:
        TypeError: an option that `DataLoader` doesn't have.
        ValueError, TypeError: an invalid value, when the loaders are made.
    """

    train_dataloader = _Hook("train")
    val_dataloader = _Hook("val")
    test_dataloader = _Hook("test")
    predict_dataloader = _Hook("predict")

    def __init__(
        self,
        train: Datasets = None,
        val: Datasets = None,
        test: Datasets = None,
        predict: Datasets = None,
        *,
        batch_size: int = 1,
        val_batch_size: int | None = None,
        transform: Transform | Compose | list[Transform | Compose] | Callable[..., Any] | None = None,
        val_transform: Transform | Compose | list[Transform | Compose] | Callable[..., Any] | None = None,
        batch_transform: Callable[..., Any] | None = None,
        shuffle: bool | None = None,
        sampler: Iterable[int] | None = None,
        drop_last: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        for name in options:
            if name not in Options.names():
                raise TypeError(f"DataModule has no option {name!r}{nearest(name, Options.names())}")
        self.options = options  # jsonargparse finds their types where a loader is made of them
        self.train, self.val, self.test, self.predict = train, val, test, predict
        self.batch_size, self.val_batch_size = batch_size, val_batch_size
        self.transform, self.val_transform, self.batch_transform = transform, val_transform, batch_transform
        self.shuffle, self.sampler, self.drop_last = shuffle, sampler, drop_last
        self._made: dict[str, _Made] = {}
        self._restored: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name in Options.names():
            return self.options.get(name, Options.default(name))
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OPTIONS:
            self.options[name] = value
        else:
            super().__setattr__(name, value)

    @classmethod
    def from_datasets(
        cls,
        train_dataset: Any = None,
        val_dataset: Any = None,
        test_dataset: Any = None,
        predict_dataset: Any = None,
        batch_size: int = 1,
        num_workers: int = 0,
        **options: Any,
    ) -> DataModule:
        """Lightning's constructor, with its names."""
        datasets = {"train": train_dataset, "val": val_dataset, "test": test_dataset, "predict": predict_dataset}
        return cls(**datasets, batch_size=batch_size, num_workers=num_workers, **options)

    # Loaders

    def _loaders(self, split: str) -> Any:
        """The loaders of a split, in the shape of its datasets: the same ones as long as nothing is changed."""
        settings = {"data": getattr(self, split), **self._options(split), **self._placement()}
        made = self._made.get(split)
        if made is None or made.settings != settings:
            new = _make(split, settings, self._loader)
            if split == "train":
                self._restore(new, made)
            self._made[split] = made = new
        return made.tree

    def _options(self, split: str) -> dict[str, Any]:
        """The loader's options for a split."""
        training = split == "train"
        batch_size = self.batch_size if training or self.val_batch_size is None else self.val_batch_size
        # Lightning takes the same batches in each epoch then, and can't turn the shuffling off in a loader of ours.
        own_order = training and not (self.trainer is not None and self.trainer.overfit_batches)
        return {
            **self.options,
            "batch_size": batch_size,
            "transform": self.transform if training else self.val_transform,
            "batch_transform": self.batch_transform if training else None,
            "shuffle": self.shuffle if own_order else False,
            "sampler": self.sampler if own_order else None,
            "drop_last": self.drop_last and training,
        }

    def _loader(self, dataset: Any, **changed: Any) -> DataLoader:
        """Make a loader with this module's options, some of them changed."""
        if not changed:
            return DataLoader(dataset, **self.options)  # in this form, jsonargparse finds the options' types
        return DataLoader(dataset, **{**self.options, **changed})

    def _placement(self) -> dict[str, Any]:
        """Device and ranks as the trainer has them; without a trainer, the loader finds out by itself."""
        if self.trainer is None:
            return {}
        strategy = self.trainer.strategy
        device = strategy.root_device
        placement: dict[str, Any] = {"device": device if device.type == "cuda" else "cpu"}
        ranks = self.trainer.distributed_sampler_kwargs  # None: one device
        shard = (0, 1) if ranks is None else (ranks["rank"], ranks["num_replicas"])
        dist = torch.distributed
        if dist.is_available() and dist.is_initialized() and shard == (dist.get_rank(), dist.get_world_size()):
            return placement  # the loader asks for them at each use
        if ranks is not None and getattr(strategy, "device_mesh", None) is not None:
            return {**placement, "mesh": strategy.device_mesh["data_parallel"]}
        return {**placement, "rank": shard[0], "world_size": shard[1]}

    def _close(self, splits: Iterable[str]) -> None:
        for made in [self._made[split] for split in splits if split in self._made]:
            for loader in made.flat.values():
                loader.close()

    def teardown(self, stage: str) -> None:
        """End the threads of what the stage has read."""
        self._close(SPLITS.get(str(getattr(stage, "value", stage)), ()))

    def on_exception(self, exception: BaseException) -> None:
        """End all threads."""
        self._close(self._made)

    # State

    def state_dict(self) -> dict[str, Any]:
        """Get where the training data stand after the last batch handed over: each loader's state by its name."""
        if "train" not in self._made:
            return dict(self._restored)
        return {name: loader.state_dict() for name, loader in self._made["train"].flat.items()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on there with the next training; where a checkpoint is only evaluated, nothing happens.

        Raises:
            StateMismatchError: the state does not fit; where there are no loaders yet, the trainer gets it later.
        """
        if self.trainer is not None and self.trainer.state.fn not in (None, "fit"):
            return
        self._restored = dict(state_dict)
        if "train" in self._made:
            _load(self._made["train"], self._restored)

    def _restore(self, new: _Made, old: _Made | None) -> None:
        """A state that was loaded and not yet used goes to the loaders that take the place of others."""
        if old is not None and self._restored != {name: loader.state_dict() for name, loader in old.flat.items()}:
            self._restored = {}
        if self._restored:
            _load(new, self._restored)


def _make(split: str, settings: dict[str, Any], make_loader: Callable[..., DataLoader]) -> _Made:
    """Loaders for a dataset, or a list or dict of them."""
    options = {name: value for name, value in settings.items() if name != "data"}
    if isinstance(options["transform"], (list, tuple)):
        options["transform"] = Compose(options["transform"])
    flat: dict[str, DataLoader] = {}

    def make(name: str, dataset: Any) -> Any:
        if isinstance(dataset, Mapping):
            return {key: make(f"{name}.{key}", value) for key, value in dataset.items()}
        if isinstance(dataset, (list, tuple)):
            return [make(f"{name}.{number}", value) for number, value in enumerate(dataset)]
        shuffle = options["shuffle"]
        if shuffle is None:
            own = isinstance(dataset, (Reader, IterableDataset)) or getattr(dataset, "endless", False)
            ordered = own or not hasattr(dataset, "__getitem__")
            shuffle = not ordered and options["sampler"] is None
        flat[name] = make_loader(dataset, **{**options, "shuffle": shuffle})
        return flat[name]

    return _Made(settings, make(split, settings["data"]), flat)


def _load(made: _Made, states: Mapping[str, Any]) -> None:
    if states.keys() != made.flat.keys():
        raise StateMismatchError(
            f"the checkpoint has the states of {_listed(states)}, and this DataModule reads {_listed(made.flat)}"
        )
    for name, loader in made.flat.items():
        loader.load_state_dict(states[name])


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(map(str, names)))
