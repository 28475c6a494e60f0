"""Samples as they leave a loader, and what is known of their fields: all that a picture of them is made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..kinds import Kind, Mask, Polygons
from ..loader import DataLoader
from ..order import Epoch, Order, Rows
from ..python import PythonDataset
from ..samples import samples_of
from ..state import Position
from ..summary import how_many
from ..transforms import Compose
from .batches import fields_of, split

Sample = dict[str, Any]
"""The fields of a sample: tensors of their true sizes, numbers, objects; a list or dict of them, for each view one."""


@dataclass(frozen=True)
class Look:
    """Some samples, each drawn once or several times.

    Attributes:
        draws: for each draw, the samples.
        kinds: of the fields that have one; others are guessed from their values.
        views: the names of the views; without views there is one without a name.
        viewed: the fields that each view has for itself.
        formats: for each view, the formats of the fields of boxes.
        steps: for each view, the steps of its transform.
        words: what is shown.
    """

    draws: Sequence[Sequence[Sample]]
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    views: Sequence[str] = ("",)
    viewed: frozenset[str] = frozenset()
    formats: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    steps: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    words: str = ""

    def of_view(self, sample: Sample, view: str) -> Sample:
        """Give the fields of a sample as one view has them."""
        place = list(self.views).index(view)
        return {
            name: (value[view] if isinstance(value, dict) else value[place]) if name in self.viewed else value
            for name, value in sample.items()
        }


class Chosen(Order):
    """Some samples, in the same order in each epoch.

    Args:
        rows: the samples, and the keys of their random numbers.
        dataset_size: the number of samples in the dataset.
    """

    def __init__(self, rows: Rows, dataset_size: int) -> None:
        self.rows, self.dataset_size = rows, dataset_size

    def __len__(self) -> int:
        return len(self.rows.indices)

    def epoch(self, seed: int, at: Position) -> Epoch:
        return Epoch(len(self), lambda places: Rows(self.rows.indices[places], self.rows.keys[places]))

    def fingerprint(self, seed: int = 0, world_size: int = 1) -> str:
        return "chosen samples"


def _as_is(fields: dict[str, Any]) -> dict[str, Any]:
    return fields


def look_at_loader(loader: DataLoader, samples: int, draws: int) -> Look:
    """Take the next samples that a loader would give; the loader does not move.

    Several draws are those of this epoch and of the ones after it.

    Raises:
        ValueError: several draws of whole batches that can't be read again, or a batch without samples.
    """
    source = loader.source
    ahead = loader._place.order.ahead
    by_index = not (source.endless or source.whole_batches or source.uses_dali or source.collated or ahead)
    alone: dict[str, Any] = {"prefetch_factor": 0, "with_state": False, "max_bad_samples": None}
    whole = loader.batch_transform is not None or source.collated
    if draws > 1 and not by_index and (whole or source.whole_batches):
        raise ValueError(
            f"draws={draws} needs samples that can be drawn again, and here whole batches come from "
            f"{type(source).__name__} or are mixed: write draws=1"
        )
    if not whole:
        alone |= {"output": _as_is, "collate_fn": None}
    if by_index and (draws > 1 or not whole):
        rows = loader.rows_ahead(samples)
        alone |= {"sampler": Chosen(rows, len(source)), "shuffle": False, "drop_last": False, "pad_last": False}
        alone |= {"rank": 0, "world_size": 1, "batch_size": min(len(rows.indices), loader.batch_size or samples)}
        if not len(rows.indices):
            return Look([[]], words="nothing: the epoch has no samples")
    epoch = loader.epoch
    taken = []
    with loader.beside(**alone) as other:
        for draw in range(draws if by_index else 1):
            if "sampler" in alone:
                other.seek(epoch + draw, 0)
            taken.append(_take(other, samples, whole))
        if by_index or draws == 1:
            again = []
        else:
            with loader.beside(**alone, transform=Compose([])) as plain:
                again = _draw_again(loader, _take(plain, samples, whole), plain._passes.plan().kinds, range(1, draws))
        left_out = other.bad_samples
        words = f"{type(source).__name__}, epoch {epoch}" + (f" to {epoch + draws - 1}" if draws > 1 else "")
        seen = loader._place.progress.current.samples_seen
        words += f", from sample {seen:,} on" if seen else ""
        if left_out:
            words += f"; {how_many(len({bad.index for bad in left_out}), 'bad sample')}, such as {left_out[0].path}"
        if source.collated:
            return Look(taken, words=words)
        taken += again
        plan = other._passes.plan()
        views = [chain.key for chain in plan.views]
        chains = dict(zip(views or [""], plan.views or [plan], strict=True))
        return Look(
            draws=taken,
            kinds=plan.kinds,
            views=views or [""],
            viewed=frozenset(name for name in taken[0][0] if views and plan.viewed(name)) if taken[0] else frozenset(),
            formats={view: plan.formats(chain, len(chain.steps)) for view, chain in chains.items()},
            steps={view: [*plan.steps, *(chain.steps if views else ())] for view, chain in chains.items()},
            words=words,
        )


def _draw_again(
    loader: DataLoader, samples: list[Sample], kinds: Mapping[str, Kind], draws: Iterable[int]
) -> list[list[Sample]]:
    """Draw samples again that came in an order of their own: they are kept as they are before the transform."""
    if not samples:
        return [[] for _ in draws]
    held = {name: Mask(group=kind.group) if isinstance(kind, Polygons) else kind for name, kind in kinds.items()}
    plain = {name: replace(kind, encoded=False) for name, kind in held.items() if name in samples[0]}
    with DataLoader(
        PythonDataset(samples, kinds=plain),
        len(samples),
        transform=loader.transform,
        seed=loader.seed,
        device=loader.options.device,
        output=_as_is,
        prefetch_factor=0,
        on_bad_sample="skip",
        rank=0,
        world_size=1,
    ) as again:
        drawn = []
        for draw in draws:
            again.seek(loader.epoch + draw, 0)
            drawn.append(_take(again, len(samples), whole=False))
        return drawn


def _take(loader: DataLoader, samples: int, whole: bool) -> list[Sample]:
    """Take the first samples of a pass."""
    found: list[Sample] = []
    for batch in loader:
        if whole:
            names = () if loader.source.collated else loader.source.fields
            found += split(fields_of(batch, names))
        else:
            found += samples_of(batch, dict, loader._passes.objects)
        if len(found) >= samples:
            break
    return found[:samples]


def look_at_batch(batch: Any, samples: int) -> Look:
    """Take the samples of a batch of any form.

    Raises:
        ValueError: no samples are found in it.
    """
    found = split(fields_of(batch))[:samples]
    views = max((len(v) for s in found[:1] for v in s.values() if isinstance(v, list) and _are_tensors(v)), default=1)
    if views == 1:
        return Look([found], words=f"a batch of {how_many(len(found), 'sample')}")
    viewed = frozenset(n for n, v in found[0].items() if isinstance(v, list) and _are_tensors(v) and len(v) == views)
    return Look([found], views=[str(n) for n in range(views)], viewed=viewed, words="a batch of views")


def _are_tensors(values: list[Any]) -> bool:
    return len(values) > 1 and all(hasattr(value, "shape") and np.ndim(value) >= 2 for value in values)
