"""What goes into a loader's state beside its position: objects of the user, and the state beside each batch."""

from __future__ import annotations

import io
import json
import random

import numpy as np
import nvidia.dali.experimental.dynamic as ndd
import pytest
import torch

import torchdali as td
from torchdali.state import VERSION


class Counter:
    """Has `state_dict`, as PyTorch's own things have."""

    def __init__(self, number=0):
        self.number = number

    def state_dict(self):
        return {"number": self.number}

    def load_state_dict(self, state):
        self.number = state["number"]


def load(**options):
    dataset = td.InMemoryDataset(label=np.arange(20))
    options = dict(batch_size=4, shuffle=True, seed=3, device="cpu", output="dict") | options
    return td.DataLoader(dataset, **options)


def labels(loader):
    return [batch["label"].tolist() for batch in loader]


# Registered objects


@pytest.mark.parametrize(
    ("make", "draw"),
    [
        (lambda: torch.Generator().manual_seed(4), lambda rng: torch.rand(3, generator=rng).tolist()),
        (lambda: np.random.RandomState(4), lambda rng: rng.rand(3).tolist()),
        (
            lambda: ndd.random.RNG(seed=4),
            lambda rng: np.array(ndd.random.uniform(range=[0, 1], shape=[3], rng=rng)).tolist(),
        ),
        (Counter, lambda counter: setattr(counter, "number", counter.number + 1) or counter.number),
    ],
    ids=["torch", "numpy", "DALI", "state_dict"],
)
def test_registered_objects_go_with_the_state(make, draw):
    loader, mine = load(), make()
    loader.register("mine", mine)
    iterator = iter(loader)
    next(iterator)
    draw(mine)
    file = io.BytesIO()
    torch.save(loader.state_dict(), file)
    rest, numbers = labels(iterator), draw(mine)
    file.seek(0)
    state = torch.load(file, weights_only=not isinstance(mine, np.random.RandomState))
    assert set(state) == {*load().state_dict(), "registered.mine"} and state["version"] == VERSION
    resumed, other = load(), make()
    resumed.register("mine", other)
    resumed.load_state_dict(state)
    assert labels(resumed) == rest and draw(other) == numbers
    if isinstance(mine, (ndd.random.RNG, Counter)):
        resumed.load_state_dict(json.loads(json.dumps(state)))
        assert draw(other) == numbers


def test_what_register_takes():
    loader = load()
    loader.register("counter", Counter())
    with pytest.raises(ValueError, match=r"register needs another name: 'counter' is taken by <.*Counter"):
        loader.register("counter", Counter())
    for name in ("", 3):
        with pytest.raises(ValueError, match=f"register takes a name and an object, got {name!r}"):
            loader.register(name, Counter())
    for wrong in (np.random.default_rng(0), random.Random(3).random, None):
        with pytest.raises(TypeError, match="register takes an object with get_state and set_state, or state_dict and"):
            loader.register("x", wrong)
    assert set(loader.state_dict()) == {*load().state_dict(), "registered.counter"}


def test_states_of_other_objects():
    """Refused in one sentence each; the loader and its objects are as they were."""
    one, other = load(), load()
    one.register("a", Counter(5))
    with pytest.raises(td.StateMismatchError, match=r"registered.a: not registered here: write loader.register\('a', "):
        other.load_state_dict(one.state_dict())
    counter = Counter(7)
    other.register("b", counter)
    before = other.state_dict()
    with pytest.raises(td.StateMismatchError) as error:
        other.load_state_dict(one.state_dict())
    assert [line.strip().split(",")[0] for line in str(error.value).split("\n")[1:]] == [
        "registered.b: missing",
        "registered.a: not registered here: write loader.register('a'",
    ]
    assert other.state_dict() == before
    next(iter(one))
    other.load_state_dict(one.state_dict(), strict=False)
    assert counter.number == 7 and other.state_dict()["samples_seen"] == 4
    with pytest.raises(td.StateMismatchError, match=r"registered.b: the object refuses it: KeyError"):
        other.load_state_dict({**before, "registered.b": {}})
    with pytest.raises(td.StateMismatchError, match="seed"):
        other.load_state_dict({**before, "seed": 9, "registered.b": {"number": 1}})
    assert counter.number == 7


# The state beside a batch


class TwoAhead:
    """A wrapper that takes batches ahead of the loop, as those that copy to a GPU do."""

    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        ahead = []
        for batch in self.loader:
            ahead.append(batch)
            if len(ahead) > 2:
                yield ahead.pop(0)
        yield from ahead


@pytest.mark.parametrize("options", [dict(), dict(prefetch_factor=0), dict(drop_last=True)], ids=str)
def test_the_state_beside_a_batch(options):
    """It is that after the batch, whatever was taken ahead meanwhile."""
    plain = load(**options)
    expected = []
    for _ in range(2):
        for batch in plain:
            expected.append((batch["label"].tolist(), plain.state_dict()))
    loader = load(with_state=True, **options)
    batches = [batch for epoch in range(2) for batch in TwoAhead(loader)]
    assert [(batch["label"].tolist(), batch["loader_state"]) for batch in batches] == expected
    for number in (0, 4, 6):
        resumed = load(**options)
        resumed.load_state_dict(batches[number]["loader_state"])
        rest = labels(resumed)
        rest = rest or labels(resumed)  # after the last batch, the rest of its epoch is empty
        assert rest[0] == expected[number + 1][0]


def test_the_state_beside_a_batch_of_an_iterable():
    class Stream(torch.utils.data.IterableDataset):
        def __init__(self):
            self.at = 0

        def __iter__(self):
            while self.at < 20:
                self.at += 1
                yield self.at
            self.at = 0

        def state_dict(self):
            return {"at": self.at}

        def load_state_dict(self, state):
            self.at = state["at"]

    def make(**options):
        source = td.IterableSource(Stream(), fields=["x"])
        return td.DataLoader(source, 4, device="cpu", output="dict", **options)

    with make(with_state=True) as loader:
        batches = list(TwoAhead(loader))
    with make(with_state=True) as resumed:
        resumed.load_state_dict(batches[1]["loader_state"])
        rest = list(resumed)
    assert [batch["x"].tolist() for batch in rest] == [batch["x"].tolist() for batch in batches[2:]]
    assert rest[0]["loader_state"] == batches[2]["loader_state"]


def test_registered_objects_are_in_the_state_beside_a_batch():
    loader, counter = load(with_state=True), Counter(1)
    loader.register("counter", counter)
    assert next(iter(loader))["loader_state"]["registered.counter"] == {"number": 1}


def test_what_with_state_needs():
    for output in ("tuple", lambda batch: batch):
        with pytest.raises(ValueError, match="with_state=True needs output='dict', got output="):
            load(with_state=True, output=output)
    with pytest.raises(TypeError, match="with_state must be True or False, got 'yes'"):
        load(with_state="yes")
    dataset = td.InMemoryDataset(loader_state=np.arange(4))
    loader = td.DataLoader(dataset, 2, device="cpu", output="dict", with_state=True)
    with pytest.raises(ValueError, match="with_state=True needs the key 'loader_state' for the state: give the field"):
        next(iter(loader))
