"""Generators that user code holds: they are seeded as the global ones are, and put back."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, Sampler

import torchdali as td
from torchdali import transforms as T
from torchdali.generators import HeldGenerators
from torchdali.testing import assert_resumes_exactly

N = 12


class Noise:
    """A transform with a generator of its own, like Albumentations' and MONAI's."""

    shared = np.random.RandomState()

    def __init__(self) -> None:
        self.rng = np.random.default_rng()

    def __call__(self, x: float) -> float:
        return x + self.rng.random() + self.shared.rand()


augment = Noise()


class Noisy(Dataset[Any]):
    def __init__(self) -> None:
        self.transforms: list[Callable[[float], float]] = [Noise(), lambda x: noise(x)]
        self.python, self.torch = random.Random(), torch.Generator()
        self.late: random.Random | None = None
        noise = Noise()

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> dict[str, Any]:
        if self.late is None:
            self.late = random.Random(torch.initial_seed())  # as some do, for each worker
        x = float(self.torch.initial_seed() % 7)
        for transform in self.transforms:
            x = transform(x)
        drawn = torch.rand((), generator=self.torch).item()
        return {"index_": index, "x": self._draw(x), "y": self.python.random(), "z": drawn, "late": self.late.random()}

    def _draw(self, x: float) -> float:
        return augment(x)


def make(dataset: Any = None, **options: Any) -> td.DataLoader:
    return td.DataLoader(Noisy() if dataset is None else dataset, 4, shuffle=True, device="cpu", **options)


def read(loader: td.DataLoader) -> list[Any]:
    with loader:
        return [{name: value.tolist() for name, value in batch.items()} for batch in loader]


def test_a_datasets_own_generators_give_one_stream() -> None:
    first = read(make())
    assert read(make()) == first and read(make(seed=1)) != first
    assert len({value for batch in first for name in ("x", "y", "z", "late") for value in batch[name]}) == 4 * N
    whole = {i: x for batch in first for i, x in zip(batch["index_"], batch["x"], strict=True)}
    part = read(td.DataLoader(Noisy(), 3, device="cpu"))
    alone = {i: x for batch in part for i, x in zip(batch["index_"], batch["x"], strict=True)}
    assert alone == whole  # a sample's numbers do not depend on what was drawn before it
    assert_resumes_exactly(make, epochs=1)


@pytest.mark.processes
def test_workers_draw_the_same() -> None:
    assert read(make(num_workers=2)) == read(make())


def test_the_owners_generators_stay_where_they_were() -> None:
    dataset = Noisy()
    read(make(dataset))  # makes the late one
    held = [dataset.python, dataset.late, dataset.transforms[0].rng, augment.rng, augment.shared]
    before = copy.deepcopy(held), dataset.torch.get_state(), random.getstate()
    read(make(dataset))
    for now, then in zip(held, before[0], strict=True):
        assert now.random() == then.random()
    assert torch.equal(dataset.torch.get_state(), before[1]) and random.getstate() == before[2]


def test_functions_of_single_samples_may_have_their_own() -> None:
    """In the loader's threads, several of which work on a batch."""

    def values(num_threads: int) -> list[Any]:
        one = td.InMemoryDataset(x=np.zeros((N, 2), np.float32))
        transform = T.PerSample(lambda sample: (sample[0] + noise(0.0),))
        return [
            x.tolist() for (x,) in td.DataLoader(one, 4, transform=transform, num_threads=num_threads, device="cpu")
        ]

    noise = Noise()
    first = values(1)
    assert values(3) == first and len({x for batch in first for x, _ in batch}) == N


def test_functions_of_batches_in_dali_are_warned_about() -> None:
    """They run ahead, in a thread."""
    one = td.InMemoryDataset(x=np.zeros((N, 2), np.float32))
    for rng, sentence in [
        (np.random.default_rng(), "holds the generator rng, .*: draw from rand.numpy or rand.torch$"),
        (torch.Generator(), "rand.torch, or write prefetch_factor=0 and loader.register"),
    ]:

        def transform(sample: Any, rand: Any, rng: Any = rng) -> Any:
            return sample

        with pytest.warns(RuntimeWarning, match=sentence):
            next(iter(td.DataLoader(one, 4, transform=transform, device="cpu")))


class Own(Sampler[int]):
    """Has generators of its own, none of which is named as torch's samplers name theirs."""

    def __init__(self) -> None:
        self.rng, self.other = np.random.default_rng(), random.Random()

    def __len__(self) -> int:
        return N

    def __iter__(self) -> Iterator[int]:
        order = self.rng.permutation(N).tolist()
        self.other.shuffle(order)
        return iter(order)


def test_samplers_may_have_their_own() -> None:
    def epochs() -> list[Any]:
        loader = td.DataLoader(range(N), N, sampler=Own(), device="cpu")
        return [batch.tolist() for _ in range(2) for batch in loader]

    assert epochs() == epochs() and epochs()[0] != epochs()[1]


class Mixes:
    """A collate_fn or batch_transform that draws weights from its own generator."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng()

    def __call__(self, batch: Any) -> Any:
        return {"index_": torch.tensor([0]), "x": torch.tensor([self.rng.random()])}


@pytest.mark.parametrize("where", ["collate_fn", "batch_transform"])
def test_functions_of_batches_have_theirs(where: str) -> None:
    def mixed() -> td.DataLoader:
        return make(range(N), **{where: Mixes()})

    assert read(mixed()) == read(mixed()) and len({batch["x"][0] for batch in read(mixed())}) == 3
    one, other = mixed(), mixed()
    next(iter(one))
    other.load_state_dict(one.state_dict())
    assert read(other) == read(mixed())[1:]


def test_a_callback_has_its_own() -> None:
    class Callback:
        def __init__(self) -> None:
            self.rng = random.Random()

        def __call__(self, info: td.SampleInfo) -> float:
            if info.idx_in_epoch == 5:
                raise StopIteration
            return self.rng.random()

    def values() -> list[Any]:
        return [batch.tolist() for batch in td.DataLoader(td.SampleSource(Callback()), 2, device="cpu")]

    assert values() == values() and len(values()) == 3


def test_an_epochs_draw_in_set_epoch_is_the_epochs() -> None:
    class Resampled(Dataset[Any]):
        def __init__(self) -> None:
            self.rng = np.random.default_rng()

        def set_epoch(self, epoch: int) -> None:
            self.picked = self.rng.permutation(100)[:N].tolist()

        def __len__(self) -> int:
            return N

        def __getitem__(self, index: int) -> int:
            return int(self.picked[index])

    def second() -> Any:
        loader = td.DataLoader(Resampled(), N, device="cpu")
        first = [batch.tolist() for batch in loader]
        return first, [batch.tolist() for batch in loader]

    one, other = second(), second()
    assert one == other and one[0] != one[1]


class Absent:
    """Stands for an object that is not there, as those of frameworks do outside a request."""

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("outside of a context")


def test_what_is_searched() -> None:
    """Generators that are global are left alone, odd objects do no harm, and places stay in their process."""

    def draw(x: int, rng: random.Random = random.Random(0)) -> int:  # noqa: B008
        return x

    system = random.SystemRandom()
    owner = [{"a": (draw, Absent(), random, torch.default_generator, system, random.random.__self__)}]  # type: ignore[attr-defined]
    held = HeldGenerators(owner)
    held.seed(1)
    (found,) = held.now().values()
    assert found is draw.__defaults__[0]  # type: ignore[index]
    assert pickle.loads(pickle.dumps(HeldGenerators([random.Random(0)]))).now() == {}
