"""Reads torchvision's datasets of image files, with their transforms, through DALI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import torch

from ..datasets import FileDataset, MapDataset
from ..transforms import Compose
from ..transforms.base import Transform
from ..transforms.foreign import foreign
from .rules import name_of
from .samples import samples_of
from .translation import Translation, preset


class TorchvisionDataset(FileDataset):
    """Image files and labels of a torchvision dataset; made by `from_torchvision`.

    Attributes:
        transform: its transform, translated to torchdali's, or None; a loader uses it unless it is given another one.
        targets: the labels, one per file, after the dataset's target_transform.
        classes, class_to_idx: the dataset's own, or None.
    """

    def __init__(
        self,
        paths: Sequence[str],
        labels: Sequence[Any] | None,
        fields: Sequence[str] | None = None,
        *,
        transform: Compose | None = None,
        classes: list[str] | None = None,
        class_to_idx: dict[str, int] | None = None,
    ) -> None:
        super().__init__(paths, labels, fields)
        self.transform = transform
        self.targets = labels
        self.classes, self.class_to_idx = classes, class_to_idx


@overload
def from_torchvision(dataset: torch.nn.Module) -> Compose: ...


@overload
def from_torchvision(dataset: Any, fields: Sequence[str] | None = None) -> TorchvisionDataset: ...


def from_torchvision(dataset: Any, fields: Sequence[str] | None = None) -> TorchvisionDataset | Compose:
    """Translate a torchvision dataset and its transform for torchdali's loader: the same training input through DALI.

        loader = torchdali.DataLoader(torchdali.from_torchvision(dataset), batch_size=256, shuffle=True)

    Or a transform alone, such as `weights.transforms()` or timm's `create_transform(...)`, to a `Compose` for samples
    of any kinds: what acts on masks, boxes and clips is translated too.

    Args:
        dataset: a dataset of torchvision whose samples are image files with one label each (ImageFolder,
            DatasetFolder, ImageNet, Places365, Flowers102, Food101 and the others), or any dataset with `samples` of
            (path, label); or a Subset or ConcatDataset of such datasets.
        fields: some of image, label, index, path, valid; by default image, and label where there are labels.

    The transform may be of v1 or v2, nested, an `nn.Sequential`, or a model's `weights.transforms()`.  The
    target_transform is called here, once for each different label, and must give equal results for equal labels.

    Batches have torchvision's values, but for these differences between the libraries:

        resizing      of PIL images is Pillow's: uint8 values differ by 2 at most, in under 1 % of them.  After a
                      v2.ToImage they are equal.  Nearest-neighbour resizing takes another pixel here and there
        colours       of PIL images are Pillow's: contrast, saturation and grey differ by 1 at most, hue by about 10
        orientation   EXIF orientation is applied; torchvision does not
        channels      images are RGB, also where a dataset (Caltech101, Caltech256) opens grey files as they are
        random        parameters have the same distributions, and follow from (seed, epoch, sample) instead of the
                      global generators

    Raises:
        TypeError: the samples are not (image file, label).
        ValueError: something has no counterpart; the message has a line for each transform and argument, with what to
            write instead.
    """
    if instead := foreign(dataset):
        raise TypeError(f"from_torchvision takes torchvision's transforms, got {type(dataset).__name__}: {instead}")
    if isinstance(dataset, MapDataset):
        raise TypeError(f"from_torchvision takes a dataset of torchvision, and {type(dataset).__name__} is one already")
    if is_transform(dataset):
        if fields is not None:
            raise TypeError(f"fields are a dataset's, and {type(dataset).__name__} is a transform: leave fields= out")
        translation = Translation(alone=True)
        translation.add(dataset, "transform")
        problems = [line for missing in translation.missing for line in missing.lines()]
        if problems:
            raise ValueError(_explanation(dataset, problems, translation.steps))
        return Compose(translation.transforms())
    if isinstance(dataset, (list, tuple)) and dataset and all(map(is_transform, dataset)):
        hint = (
            ".  Of timm's separate=True, for first, second, last = map(from_torchvision, parts), write "
            "T.Compose([first, T.Views([last, T.Compose([second, last])])])"
        )
        raise TypeError(
            f"from_torchvision takes one transform, got a {type(dataset).__name__} of {len(dataset)} transforms: write "
            f"torchvision.transforms.Compose(...) around them{hint if len(dataset) == 3 else ''}"
        )
    if isinstance(dataset, type):
        raise TypeError(f"dataset must be an object, got the class: write {dataset.__name__}(...)")
    samples = samples_of(dataset)
    if samples.problems:
        raise ValueError(_explanation(dataset, samples.problems, samples.steps))
    steps = [step for step in samples.steps if isinstance(step, Transform)]
    return TorchvisionDataset(
        samples.paths,
        None if all(label is None for label in samples.labels) else samples.labels,
        fields,
        transform=Compose(steps) if steps else None,
        classes=samples.classes,
        class_to_idx=samples.class_to_idx,
    )


def is_transform(thing: Any) -> bool:
    """Whether something is a transform of torchvision or timm, or a container of them."""
    return name_of(thing) is not None or isinstance(thing, torch.nn.Sequential) or preset(thing) is not None


def _explanation(dataset: Any, problems: list[str], steps: Sequence[Any]) -> str:
    many = "a part" if len(problems) == 1 else f"{len(problems)} parts"
    lines = "\n".join(f"  {line}" for line in problems)
    return (
        f"from_torchvision cannot translate {many} of {type(dataset).__name__}:\n{lines}\n"
        "Change these; or leave them out of the dataset's transform, and give the loader the whole transform, with "
        "functions f(sample, rand) after Decode() in their places:\n"
        f"  transform=Compose({list(steps)})"
    )
