"""Batches that the user's `collate_fn` makes, or that a dataset holds ready (`batch_size=None`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch.utils.data._utils.collate import default_convert

from ..batch import Collated, Columns, Objects
from ..generators import HeldGenerators
from ..kinds import OBJECT
from ..options import Options
from ..rand import Key
from ..seeding import seed_all
from ..signature import Form
from .sample import Leaf, Structure

BATCH = "batch"
WHOLE = Structure([Leaf(BATCH, (), Form("object"), OBJECT)], BATCH)
"""The structure of a batch that nothing is known of."""


class Collating:
    """Puts the samples of a batch together by the user's function; it travels with its job.

    Args:
        function: takes the list of a batch's samples; with `single`, the one item.
        single: an item of the dataset is a batch.
    """

    def __init__(self, function: Callable[[Any], Any], single: bool) -> None:
        self.collate_fn, self.single = function, single
        self._held = HeldGenerators(function)

    @classmethod
    def of(cls, options: Options, transformed: bool) -> Collating | None:
        """Take it from a loader's options; None where the loader puts batches together first.

        Args:
            options: the loader's.
            transformed: samples are decoded and transformed after reading.
        """
        if options.batch_size is None:
            return cls(options.collate_fn or default_convert, True)
        return None if options.collate_fn is None or transformed else cls(options.collate_fn, False)

    def columns(self, samples: Sequence[Any], *numbers: int) -> Columns:
        """Make the columns of a batch, see `collated`.

        Args:
            samples: the samples; none, where an iterable has ended.
            numbers: start the global generators for the function: the loader's seed, the pass, the batch's place.
        """
        if not len(samples):
            return {}
        try:
            with self._held.preserved():
                self._held.seed(seed_all(Key.COLLATE, *numbers))
                batch = self.collate_fn(samples[0] if self.single else samples)
        except Exception as error:
            error.add_note("torchdali: collate_fn raised this for the batch that ends with this sample")
            raise
        return {BATCH: Objects([batch]), "size": np.array([len(samples)])}


def collated(columns: Columns) -> Columns:
    """Make one column for the engine of what `Collating.columns` gave."""
    return {BATCH: Collated(columns[BATCH][0], int(columns["size"][0]))} if columns else {}
