"""Names and arguments that torch and torchvision have, and torchdali has not: what to write for them."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

_OUT = "leave it out: images are tensors already"
_UNITS = (
    "leave it out, or write torchdali.transforms.ToDtype(torch.float32, scale=True) for numbers in [0, 1], which "
    "Normalize does not need"
)
_HERE = "its names are those of torchdali.transforms itself"

TRANSFORMS = {
    "AutoAugmentPolicy": 'write AutoAugment("imagenet"), or torchvision.transforms.AutoAugmentPolicy',
    "ConvertImageDtype": _UNITS,
    "InterpolationMode": 'write interpolation="bicubic", or torchvision.transforms.InterpolationMode',
    "LinearTransformation": "leave it out, and multiply the loader's batches by the matrix",
    "PILToTensor": _UNITS,
    "RandomSelect": "write RandomChoice([one, other], p=[p, 1 - p])",
    "RandomSizedCrop": "write RandomResizedCrop(size)",
    "Scale": "write Resize(size)",
    "ToImage": _UNITS,
    "ToPILImage": _OUT,
    "ToPureTensor": _OUT,
    "ToTensor": _UNITS,
    "autoaugment": _HERE,
    "functional": (
        "its functions take single images: write PerSample(f) with a function f(sample) that calls "
        "torchvision.transforms.v2.functional"
    ),
    "transforms": _HERE,
    "v2": _HERE,
}

_OTHERS = {
    "DistributedSampler": "leave it out, and write shuffle=True or False at the loader: every rank takes its share",
    "utils": "write torchdali.DataLoader, and torch.utils.data for what else is in it",
}

_AT_LOADER = "write DataLoader(dataset, ..., transform=...), since transforms act on whole batches"
_ARGUMENTS = {
    "annFile": "write annotations=...",
    "annotation_file": "write annotations=...",
    "loader": "leave it out: the loader decodes files",
    "target_transform": "write DataLoader(..., batch_transform=f), of whole batches, or FileDataset(paths, labels=...)",
    "transform": _AT_LOADER,
    "transforms": _AT_LOADER,
}
"""Of torchvision's datasets."""


def transform_instead(name: str) -> str:
    """Say what to write for a name that is looked for among the transforms, as the end of a sentence; "": not known."""
    if name in TRANSFORMS:
        return TRANSFORMS[name]
    if name in _names("torchvision.transforms.v2"):
        return f"write PerSample(torchvision.transforms.v2.{name}(...)), which calls it for each sample"
    return ""


def instead(name: str) -> str:
    """Say what to write for a name that is looked for in torchdali or its datasets, as the end of a sentence."""
    if name in _OTHERS:
        return _OTHERS[name]
    for module in ("torch.utils.data", "torchvision.datasets"):
        if name in _names(module):
            return f"write {module}.{name}, which goes with torchdali's DataLoader"
    return f"write torchdali.transforms.{name}" if name in _names("torchdali.transforms") else transform_instead(name)


def no_attribute(module: str, name: str, hint: str) -> AttributeError:
    """Make the error of a module that does not have a name."""
    return AttributeError(f"module {module!r} has no attribute {name!r}{f': {hint}' if hint else ''}")


def _names(module: str) -> list[str]:
    """Give the public names of a module; none where it can't be imported, such as a broken torchvision."""
    try:
        found = importlib.import_module(module)
    except Exception:
        return []
    return getattr(found, "__all__", None) or [name for name in dir(found) if name[:1].isupper()]


def check_dataset_arguments(kind: type, values: Sequence[Any], named: Mapping[str, Any]) -> None:
    """Raise where a dataset is given what torchvision's datasets take, and torchdali's do not.

    Args:
        kind: the dataset's class.
        values, named: the arguments.

    Raises:
        TypeError: it says what to write instead.
    """
    init = kind.__init__  # type: ignore[misc]
    if not init.__module__.startswith("torchdali."):
        return  # of the user's subclass
    name = next((name for name in _ARGUMENTS if name in named), None)
    if name is None and any(map(_transforms, values[1:])):
        name = "transform"
    if name is None:
        return
    known = inspect.signature(init).parameters
    columns = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())  # which may have any name
    if name not in known and not (columns and name in named and not _transforms(named[name])):
        raise TypeError(f"{kind.__name__} takes no {name}: {_ARGUMENTS[name]}")


def _transforms(value: Any) -> bool:
    """Whether a value is a transform of torchvision or torchdali."""
    return type(value).__module__.startswith(("torchvision.transforms.", "torchdali.transforms."))


class Uncalled:
    """Base of transforms, which a loader runs on whole batches: called with one image, they say what to write."""

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise TypeError(
            f"{type(self).__name__} acts on whole batches and can't be called: leave images as they are in the "
            "dataset, and write DataLoader(dataset, ..., transform=...) with it; for one image, take "
            "torchvision.transforms.v2's"
        )
