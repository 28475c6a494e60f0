"""The samples that may take a bad one's place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from ..rand import Key, Rand

DRAWS = 10  # then one sample after the other


class Substitutes:
    """Gives, for a bad sample, the samples that may take its place, and remembers which are bad themselves.

    They are chosen by (seed, epoch, sample).  A sample that is known to be bad is passed over, as it would be if it was
    tried, so what was met before changes nothing.

    Args:
        samples: those of the dataset.
    """

    def __init__(self, samples: Sequence[int]) -> None:
        self._samples, self._size = samples, len(samples)
        self._bad: set[int] = set()

    def note(self, index: int) -> None:
        """Note that a sample is bad, with its own random numbers."""
        self._bad.add(index)

    def of(self, rand: Rand) -> Iterator[int]:
        """Yield samples that are not known to be bad: some that are drawn, then all others.

        Args:
            rand: the random numbers of the bad sample.
        """
        numbers = rand.child(Key.SUBSTITUTE)
        last = 0

        def drawn() -> Iterator[int]:
            nonlocal last
            for _ in range(DRAWS):
                last = int(numbers.integers(self._size)[0])
                yield last

        def others() -> Iterator[int]:
            yield from ((last + step) % self._size for step in range(1, self._size + 1))

        for place in chain(drawn(), others()) if self._size else ():
            index = self._samples[place]
            if index not in self._bad:
                yield index
