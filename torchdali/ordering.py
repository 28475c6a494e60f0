"""The order of a loader: its own, but while it is overfitted."""

from __future__ import annotations

import warnings
from typing import Any

from .order import Order, Sequential, Shuffled
from .source import Source
from .trainers.overfitting import Overfitting


class Ordering:
    """Gives the order that counts now.

    Args:
        source: the loader's.
        order: the loader's own order.
    """

    def __init__(self, source: Source, order: Order) -> None:
        self._source, self._own = source, order
        self._overfitting: Overfitting | None = None

    def now(self, between: bool) -> Order:
        """Give the order.

        Args:
            between: no epoch has begun: a list that has grown has more samples then, as torch's samplers find it.
        """
        if self._overfitting is not None and self._overfitting.running:
            return Sequential(len(self._source))
        own = self._own
        if between and type(own) in (Sequential, Shuffled) and len(self._source) != own.dataset_size:
            self._own = own = (Shuffled if type(own) is Shuffled else Sequential)(len(self._source))
        return own

    def overfit(self, trainer: Any) -> None:
        """Give the dataset's own order while a Trainer of Lightning with `overfit_batches` trains.

        Raises:
            ValueError: the sampler makes the batches, and there are none without it.
        """
        if self._own.in_order or (self._overfitting is not None and self._overfitting.of(trainer)):
            return
        if self._own.any_size:
            raise ValueError(
                "overfit_batches takes the same batches in each epoch, and this loader's sampler makes others: give "
                "the Trainer a loader with batch_size="
            )
        self._overfitting = Overfitting(trainer)
        warnings.warn(
            "overfit_batches takes the same batches in each epoch: while this Trainer trains, a shuffled loader gives "
            "the dataset's own order",
            UserWarning,
            stacklevel=5,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_overfitting": None}  # a Trainer does not travel
