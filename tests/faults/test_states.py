"""Damaged states are refused by name, and the loader is as it was."""

from __future__ import annotations

import copy
import itertools
import json
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import torchdali as td
from torchdali.errors import StateMismatchError

from .. import source_datasets as S
from .trial import Trial


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


class Unequal(dict[str, Any]):
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no answer")

    __hash__ = None  # type: ignore[assignment]


def nested(depth: int, make: Callable[[Any], Any] = lambda inner: [inner]) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = make(value)
    return value


HUGE = int("9" * 4000) ** 2  # repr raises
JUNK: tuple[Callable[[], Any], ...] = (
    lambda: nested(100_000),
    lambda: nested(5000, lambda inner: {"a": inner}),
    lambda: "[" * 100_000 + "]" * 100_000,
    lambda: '{"workers": ' * 5000 + "1" + "}" * 5000,
    lambda: '{"turn": ' + "9" * 5000 + ', "workers": [], "rank": null}',
    lambda: HUGE,
    lambda: -HUGE,
    lambda: 2**63,
    lambda: 10**12,
    Unprintable,
    Unequal,
    lambda: object,
    lambda: None,
    lambda: "",
    lambda: b"\xff\x00",
    lambda: "\ud800\n\x00" * 50,
    lambda: float("nan"),
    lambda: -1,
    lambda: True,
    lambda: 0,
    lambda: 3,
    lambda: 1.0,
    lambda: np.int64(3),
    lambda: np.zeros((3, 3)),
    lambda: torch.zeros(2),
    dict,
    list,
    lambda: {"state": Unprintable()},
    lambda: [0, 2],
    lambda: [1, 1],
    lambda: ["0", 2],
)


def map_loader() -> td.DataLoader:
    return td.DataLoader(td.InMemoryDataset(x=list(range(30))), 4, shuffle=True, seed=3, device="cpu")


def stream_loader() -> td.DataLoader:
    return td.DataLoader(S.Stream(), 4, seed=3, device="cpu")


class Careful(S.StatefulStream):
    def load_state_dict(self, state: dict[str, Any]) -> None:
        if type(state["at"]) is not int or not 0 <= state["at"] <= self.n:
            raise ValueError("at is no place")
        super().load_state_dict(state)


def stateful_loader() -> td.DataLoader:
    loader = td.DataLoader(Careful(), 4, seed=3, device="cpu")
    loader.register("torch", torch.Generator())
    return loader


def damaged(state: dict[str, Any], rng: random.Random) -> dict[Any, Any]:
    """Damage a state in one to three places: its entries, or what its iterable's entry holds."""
    found: dict[Any, Any] = copy.deepcopy(state)
    junk = rng.choice(JUNK)
    for _ in range(rng.randint(1, 3)):
        where = rng.randrange(8)
        key = rng.choice(list(found) or ["epoch"])
        if where == 0:
            found.pop(key, None)
        elif where == 1:
            found[rng.choice(["more", "registered.b", 7, (1, 2), "\x00" * 1000])] = junk()
        elif where == 2 and isinstance(found.get("iterable"), str) and found["iterable"][:1] == "{":
            text = bytearray(found["iterable"].encode())
            text[rng.randrange(len(text))] = rng.randrange(32, 127)
            found["iterable"] = text.decode()
        elif where <= 5 and isinstance(found.get("iterable"), str) and found["iterable"][:1] == "{":
            try:
                whole = json.loads(found["iterable"])
                place = rng.choice([whole, whole["workers"][0]])
                name = rng.choice([*place, "done", "asked", "counts", "digest", "iterator", "other"])
                place[name] = junk()
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                continue
            found["iterable"] = whole
        else:
            found[key] = junk()
    return found


@pytest.mark.parametrize("make", [map_loader, stream_loader, stateful_loader])
@pytest.mark.filterwarnings("ignore:.*samples are iterated again:RuntimeWarning")
def test_damaged_states(make: Callable[[], td.DataLoader], trial: Trial) -> None:
    """Each is refused, and the loader goes on as if nothing had come; or it is one that can be gone on from."""
    rng = random.Random(make.__name__)
    loader = make()
    states = [loader.state_dict()]
    for _ in itertools.islice(loader, 3):
        states.append(loader.state_dict())
    many, crashes, refused, details = trial.times(600, 20_000), 0, 0, []
    for number in range(many):
        garbage = damaged(rng.choice(states), rng)
        before = loader.state_dict()
        try:
            loader.load_state_dict(garbage, strict=rng.random() < 0.7)
        except StateMismatchError as error:
            refused += 1
            words = str(error)
            if len(words) > 5000 or not equal(loader.state_dict(), before):
                crashes, details = crashes + 1, [*details, words[:500]]
            continue
        except Exception as error:
            crashes, details = crashes + 1, [*details, f"{number}: {error!r:.500}"]
            continue
        try:  # it was accepted: it can be gone on from, or its data say no
            for _ in itertools.islice(loader, 1):
                pass
        except StateMismatchError:
            pass
        except Exception as error:
            crashes, details = crashes + 1, [*details, f"{number}, after it was loaded: {error!r:.500}"]
        loader.load_state_dict(rng.choice(states))
    assert refused > many // 2
    trial.note(f"damaged states, {make.__name__.replace('_', ' ')}", many, {"crashes": crashes}, details[:3])


def equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(value, other[name]) if isinstance(value, torch.Tensor) else value == other[name]
        for name, value in one.items()
    )


def taken(count: int) -> tuple[td.DataLoader, dict[str, Any]]:
    loader = td.DataLoader(S.StatefulStream(), 4, seed=3, device="cpu")
    for _ in itertools.islice(loader, count):
        state = loader.state_dict()
    return loader, state


def refuse(loader: td.DataLoader, state: Any, words: str) -> None:
    before = loader.state_dict()
    with pytest.raises(StateMismatchError, match=words):
        loader.load_state_dict(state)
    assert loader.state_dict() == before


def test_values_that_can_not_be_shown() -> None:
    loader = map_loader()
    for junk in (nested(100_000), HUGE, Unprintable()):
        for key in ("epoch", "samples_seen", "dataset"):
            words = f"{key}: expected .*, got a value of type {type(junk).__name__} that can't be shown"
            refuse(loader, {**loader.state_dict(), key: junk}, words)


def test_a_deep_text_for_an_iterable() -> None:
    loader, state = taken(1)
    for junk in ("[" * 100_000, "[" * 100_000 + "]" * 100_000, nested(100_000), Unprintable(), "9" * 5000):
        refuse(loader, {**state, "iterable": junk}, "iterable: expected where its workers stand")


@pytest.mark.parametrize("rank", [3, [0], [2, 2], [-1, 2], ["0", 2], {"rank": 0}, [0, 2, 1], "0 of 2"])
def test_a_rank_that_is_none(rank: Any) -> None:
    loader, state = taken(1)
    refuse(loader, {**state, "iterable": {**json.loads(state["iterable"]), "rank": rank}}, "expected the rank, or None")


def test_a_state_of_another_rank_is_refused_when_it_is_loaded() -> None:
    def own(rank: int) -> td.DataLoader:
        source = td.IterableSource(S.StatefulStream(), shard="none")
        return td.DataLoader(source, 4, seed=3, device="cpu", rank=rank, world_size=2)

    loader = own(1)
    next(iter(loader))
    refuse(own(0), loader.state_dict(), "rank: expected 0 of 2, got 1 of 2")
    refuse(taken(1)[0], loader.state_dict(), "rank: expected one of all ranks, got 1 of 2")


def test_numbers_of_two_states() -> None:
    loader, state = taken(1)
    _, later = taken(3)
    words = "iterable: its numbers do not belong to samples_seen=12, or were changed"
    refuse(loader, {**later, "iterable": state["iterable"]}, words)
    whole = json.loads(state["iterable"])
    refuse(loader, {**state, "iterable": {**whole, "workers": [{**whole["workers"][0], "taken": 10**15}]}}, "changed")
    # A state of an older version has no digest.
    del whole["check"]
    refuse(loader, {**state, "iterable": whole, "samples_seen": 0}, "expected workers that took 0 samples, got 4 taken")
    loader.load_state_dict({**state, "iterable": whole})
    assert next(iter(loader))[0].tolist() == [4, 5, 6, 7]


def test_a_dataset_that_lost_its_state() -> None:
    class Forgetful(S.Stream):
        pass

    Forgetful.__name__ = S.StatefulStream.__name__
    _, state = taken(2)
    loader = td.DataLoader(Forgetful(), 4, seed=3, device="cpu")
    refuse(loader, state, r"StatefulStream has no state_dict and load_state_dict here.*strict=False")
    loader.load_state_dict(state, strict=False)
    with pytest.warns(RuntimeWarning, match="8 samples are iterated again"):
        assert next(iter(loader))[0].tolist() == [8, 9, 10, 11]


def test_objects_that_were_registered_are_put_back() -> None:
    class Fussy:
        def __init__(self) -> None:
            self.number = 0

        def state_dict(self) -> dict[str, int]:
            return {"number": self.number}

        def load_state_dict(self, state: dict[str, int]) -> None:
            self.number = state["number"]
            if self.number < 0:
                raise ValueError("too small")

    loader = map_loader()
    first, second = Fussy(), Fussy()
    loader.register("first", first)
    loader.register("second", second)
    state = {**loader.state_dict(), "registered.first": {"number": 5}, "registered.second": {"number": -5}}
    refuse(loader, state, "registered.second: the object refuses it: ValueError: too small")
    assert (first.number, second.number) == (0, 0)
