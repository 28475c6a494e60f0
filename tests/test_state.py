"""The state in a checkpoint, what it refuses, and which pass comes next."""

from __future__ import annotations

import io
import json
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torchdali.errors import StateMismatchError, TorchDaliError
from torchdali.state import VERSION, Position, Progress, pack, unpack

FINGERPRINT: dict[str, int | str] = {
    "seed": 42,
    "order": "shuffle",
    "num_samples": 1000,
    "dataset": "1000 files 0123456789abcdef",
}
LARGEST = 2**31 - 1

positions = st.builds(
    Position, st.integers(0, LARGEST), st.integers(0, LARGEST), st.integers(0, 1000), st.booleans(), st.none()
)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
KEYS = list(pack(Position(), FINGERPRINT))


def state(**changes: Any) -> dict[str, Any]:
    return {**pack(Position(3, 0, 256, False), FINGERPRINT), **changes}


def lines(error: pytest.ExceptionInfo[StateMismatchError]) -> list[str]:
    first, *others = str(error.value).split("\n")
    assert first == "this state does not belong to this loader:"
    return [line.strip() for line in others]


# Round trips


@given(positions)
def test_round_trips(position: Position) -> None:
    packed = pack(position, FINGERPRINT)
    file = io.BytesIO()
    torch.save({"loader": packed}, file)
    file.seek(0)
    for again in (packed, json.loads(json.dumps(packed)), torch.load(file, weights_only=True)["loader"]):
        found = unpack(again, FINGERPRINT)
        assert found == position and list(map(type, found[:4])) == [int, int, int, bool]


def test_it_is_small_flat_and_plain() -> None:
    longest = {"seed": 2**63 - 1, "order": "x" * 100, "num_samples": 2**62, "dataset": "y" * 100}
    packed = pack(Position(LARGEST, LARGEST, 2**62, False), longest)
    assert len(json.dumps(packed)) < 1024
    assert {type(key) for key in packed} == {str} and {type(value) for value in packed.values()} <= {int, str, bool}
    # Every state has the same keys: torch.distributed.checkpoint takes those of the state at loading.
    assert list(packed) == KEYS == ["version", "epoch", "cycle", "samples_seen", "finished", *FINGERPRINT]


def test_a_state_is_a_fresh_dict() -> None:
    one = pack(Position(), FINGERPRINT)
    one["epoch"] = 7
    assert pack(Position(), FINGERPRINT)["epoch"] == 0


@given(positions, positions)
def test_each_pass_has_its_key(one: Position, two: Position) -> None:
    assert (one.key == two.key) == (one[:2] == two[:2])
    assert 0 <= one.key < 2**63


# Refusals


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"seed": 43}, "seed: expected 42, got 43"),
        ({"order": "sequential"}, "order: expected 'shuffle', got 'sequential'"),
        ({"num_samples": 999}, "num_samples: expected 1000, got 999"),
        ({"dataset": "other"}, "dataset: expected '1000 files 0123456789abcdef', got 'other'"),
        ({"version": 4}, f"version: expected {VERSION}, got 4"),
        ({"seed": 42.0}, "seed: expected 42, got 42.0"),
        ({"version": True}, f"version: expected {VERSION}, got True"),
        ({"epoch": -1}, f"epoch: expected an integer in [0, {LARGEST}], got -1"),
        ({"epoch": 2**31}, f"epoch: expected an integer in [0, {LARGEST}], got {2**31}"),
        ({"epoch": 1.0}, f"epoch: expected an integer in [0, {LARGEST}], got 1.0"),
        ({"epoch": True}, f"epoch: expected an integer in [0, {LARGEST}], got True"),
        ({"cycle": 10**30}, f"cycle: expected an integer in [0, {LARGEST}], got {10**30}"),
        ({"samples_seen": 1001}, "samples_seen: expected an integer in [0, 1000], got 1001"),
        ({"samples_seen": math.nan}, "samples_seen: expected an integer in [0, 1000], got nan"),
        ({"samples_seen": torch.tensor(3)}, "samples_seen: expected an integer in [0, 1000], got tensor(3)"),
        ({"finished": 1}, "finished: expected True or False, got 1"),
        ({"finished": None}, "finished: expected True or False, got None"),
        ({"more": 1}, f"'more': not a key of version {VERSION}"),
        ({"order": "a\nb"}, r"order: expected 'shuffle', got 'a\nb'"),
        ({"order": torch.zeros(2, 2)}, "order: expected 'shuffle', got tensor([[0., 0.], [0., 0.]])"),
    ],
)
def test_one_line_for_one_difference(changes: dict[str, Any], line: str) -> None:
    with pytest.raises(StateMismatchError) as error:
        unpack(state(**changes), FINGERPRINT)
    assert lines(error) == [line]


@pytest.mark.parametrize("key", KEYS)
def test_a_missing_key(key: str) -> None:
    broken = state()
    del broken[key]
    for strict in (True, False):
        with pytest.raises(StateMismatchError) as error:
            unpack(broken, FINGERPRINT, strict)
        assert lines(error) == [f"{key}: missing"]


def test_all_differences_are_named() -> None:
    broken = state(version=7, seed=1, dataset="other", samples_seen=-5, shuffle=True)
    del broken["cycle"]
    with pytest.raises(StateMismatchError) as error:
        unpack(broken, FINGERPRINT)
    assert [line.split(":")[0] for line in lines(error)] == [
        "version", "cycle", "samples_seen", "seed", "dataset", "'shuffle'",
    ]  # fmt: skip


def test_a_whole_checkpoint_instead_of_the_loaders_part() -> None:
    model = {f"layers.{i}.weight": torch.zeros(100, 100) for i in range(300)}
    with pytest.raises(StateMismatchError) as error:
        unpack({"model": model, **model}, FINGERPRINT)
    assert len(str(error.value)) < 2000 and lines(error)[-1] == "and 291 more such keys"


@pytest.mark.parametrize("garbage", [None, 3, "state", [("epoch", 1)], b"x", torch.zeros(3)])
def test_no_mapping(garbage: Any) -> None:
    with pytest.raises(TypeError, match=f"a loader's state is a dict, got {type(garbage).__name__}"):
        unpack(garbage, FINGERPRINT)


def test_not_strict_takes_another_stream_but_no_impossible_position() -> None:
    other = state(seed=1, order="sequential", num_samples=5000, dataset="another")
    assert unpack(other, FINGERPRINT, strict=False) == Position(3, 0, 256, False)
    for changes in ({"samples_seen": 1001}, {"epoch": "3"}, {"version": 0}, {"finished": "no"}, {"extra": 0}):
        with pytest.raises(StateMismatchError) as error:
            unpack({**other, **changes}, FINGERPRINT, strict=False)
        assert len(lines(error)) == 1


@settings(max_examples=300)
@given(st.dictionaries(st.sampled_from(KEYS), plain, max_size=4), st.sets(st.sampled_from(KEYS), max_size=2),
       st.dictionaries(st.text(max_size=8) | st.integers(), plain, max_size=2), st.booleans())  # fmt: skip
def test_garbage_is_refused_or_is_a_position(
    changes: dict[str, Any], missing: set[str], extra: dict[Any, Any], strict: bool
) -> None:
    garbage = {key: value for key, value in {**state(), **extra, **changes}.items() if key not in missing}
    try:
        found = unpack(garbage, FINGERPRINT, strict)
    except StateMismatchError as error:
        assert isinstance(error, TorchDaliError) and isinstance(error, ValueError)
        assert str(error).count("\n") == len(str(error).splitlines()) - 1 > 0
    else:
        expected = {**state(), **changes}
        assert not missing and set(garbage) == set(KEYS)
        assert found[:4] == tuple(expected[name] for name in Position._fields[:4])
        assert 0 <= found.epoch <= LARGEST and 0 <= found.cycle <= LARGEST and 0 <= found.samples_seen <= 1000
        if strict:
            assert all(expected[key] == value for key, value in FINGERPRINT.items())


@given(plain)
def test_any_json_value_for_a_state(garbage: Any) -> None:
    with pytest.raises((StateMismatchError, TypeError)):
        unpack(garbage, FINGERPRINT)


# Which pass comes next


def run(progress: Progress, *, seen: int = 0, finish: bool = True, total: int = 100) -> Position:
    """A pass as the loader's iterator makes it; gives where it began."""
    number, start = progress.begin()
    at = start
    if seen:
        at = at._replace(samples_seen=at.samples_seen + seen)
        progress.move(number, at)
    if finish:
        at = at._replace(samples_seen=total)
        progress.move(number, at)
        progress.move(number, at._replace(finished=True))
    return start


def restored(progress: Progress) -> Progress:
    """A new process that loads the state."""
    other = Progress()
    other.load(unpack(json.loads(json.dumps(pack(progress.position, FINGERPRINT))), FINGERPRINT))
    return other


def test_fresh() -> None:
    progress = Progress()
    assert progress.position == Position() and progress.epoch == 0
    assert progress.begin()[1] == Position()


def test_each_pass_is_the_next_epoch() -> None:
    progress = Progress()
    assert [run(progress) for _ in range(3)] == [Position(0), Position(1), Position(2)]
    assert progress.position == Position(2, 0, 100, True)
    assert progress.epoch == 3  # between two passes: the one that comes


def test_a_pass_counts_from_its_first_batch_on() -> None:
    progress = Progress()
    run(progress)
    number, start = progress.begin()
    assert start == Position(1) and progress.position == Position(1) and progress.epoch == 1
    progress.move(number, Position(1, 0, 30))
    assert progress.position == Position(1, 0, 30) and progress.epoch == 1


def test_a_break_ends_the_epoch() -> None:
    progress = Progress()
    run(progress, seen=30, finish=False)
    assert progress.position == Position(0, 0, 30)
    assert run(progress) == Position(1)
    # Even one that was broken before its first batch.
    run(progress, finish=False)
    assert run(progress) == Position(3)


def test_a_resume_in_mid_epoch_continues_there() -> None:
    progress = Progress()
    run(progress)
    run(progress, seen=30, finish=False)
    again = restored(progress)
    assert again.position == Position(1, 0, 30) and again.epoch == 1
    assert [run(again), run(again)] == [Position(1, 0, 30), Position(2)]


def test_a_resume_after_the_last_batch_has_an_empty_pass_and_after_the_end_the_next_epoch() -> None:
    progress = Progress()
    number, _ = progress.begin()
    progress.move(number, Position(0, 0, 100))
    again = restored(progress)
    assert [run(again), run(again)] == [Position(0, 0, 100), Position(1)]
    progress.move(number, Position(0, 0, 100, True))
    again = restored(progress)
    assert again.epoch == 1 and run(again) == Position(1)


def test_a_state_taken_before_the_resumed_pass_is_the_loaded_one() -> None:
    progress = Progress()
    run(progress, seen=30, finish=False)
    assert restored(restored(progress)).position == progress.position


def test_loading_twice_takes_the_last() -> None:
    progress = Progress()
    progress.load(Position(4, 0, 10))
    progress.load(Position(2, 0, 20))
    assert run(progress) == Position(2, 0, 20)
    progress.load(Position(2, 0, 20))
    assert run(progress) == Position(2, 0, 20)  # the same once more


def test_loading_while_a_pass_is_open() -> None:
    """The pass that was begun last is told where it goes on, until a pass begins there."""
    progress = Progress()
    other, _ = progress.begin()
    number, _ = progress.begin()
    assert progress.loaded(number) is None
    progress.load(Position(5, 0, 40))
    assert progress.loaded(number) == Position(5, 0, 40) and progress.loaded(other) is None
    progress.move(other, Position(0, 0, 10))
    assert progress.position == Position(5, 0, 40) and progress.epoch == 5
    assert run(progress) == Position(5, 0, 40) and progress.loaded(number) is None


def test_of_several_open_passes_the_one_begun_last_counts() -> None:
    progress = Progress()
    first, start = progress.begin()
    second, other = progress.begin()
    assert (start, other) == (Position(0), Position(1))
    progress.move(first, Position(0, 0, 10))
    assert progress.position == Position(1)
    progress.move(second, Position(1, 0, 20))
    progress.move(first, Position(0, 0, 100, True))
    assert progress.position == Position(1, 0, 20)


def test_set_epoch() -> None:
    progress = Progress()
    progress.set_epoch(7)
    assert progress.epoch == 7 and progress.position == Position(7)
    assert run(progress) == Position(7)
    progress.set_epoch(2)
    assert run(progress, seen=10, finish=False) == Position(2)
    progress.set_epoch(2)
    assert run(progress) == Position(2)  # from its start


def test_set_epoch_while_a_pass_is_open() -> None:
    """The state never stands still while batches go out, and the next pass is the epoch that was named."""
    progress = Progress()
    number, _ = progress.begin()
    progress.set_epoch(3)
    assert progress.position == Position(3)
    progress.move(number, Position(0, 0, 50))
    assert progress.position == Position(0, 0, 50) and progress.epoch == 0 and progress.upcoming == Position(3)
    progress.move(number, Position(0, 0, 100, True))
    assert progress.epoch == 3 and run(progress) == Position(3) and run(progress) == Position(3, 1)


def test_set_epoch_takes_back_the_place_that_an_open_pass_would_go_to() -> None:
    progress = Progress()
    number, _ = progress.begin()
    progress.load(Position(2, 0, 40))
    progress.set_epoch(3)
    assert progress.loaded(number) is None
    progress.move(number, Position(0, 0, 50))
    assert progress.position == Position(0, 0, 50) and run(progress) == Position(3)


def test_cycles_where_the_caller_counts_the_epochs() -> None:
    """Two passes without set_epoch between them: the same epoch for the caller, another order for the samples."""
    progress = Progress()
    progress.set_epoch(4)
    starts = [run(progress), run(progress, seen=10, finish=False), run(progress)]
    assert starts == [Position(4), Position(4, 1), Position(4, 2)]
    assert len({start.key for start in starts}) == 3 and progress.epoch == 4
    progress.set_epoch(5)
    assert run(progress) == Position(5)


def test_set_epoch_of_the_running_epoch() -> None:
    """A trainer that has fetched a batch says it late: the pass still counts, and a break begins the epoch anew."""
    progress = Progress()
    number, start = progress.begin()
    progress.move(number, start._replace(samples_seen=4))
    progress.set_epoch(0)
    progress.move(number, start._replace(samples_seen=8))
    assert progress.position == Position(0, samples_seen=8)
    assert progress.upcoming == Position(0)
    progress.move(number, start._replace(samples_seen=22, finished=True))
    assert progress.upcoming == Position(0, 1)
    progress.set_epoch(1)
    assert progress.begin()[1] == Position(1)


def test_set_epoch_of_the_loaded_epoch_keeps_the_position() -> None:
    for position in (Position(3, 0, 40), Position(3, 2, 40)):
        progress = Progress()
        progress.load(position)
        progress.set_epoch(3)
        assert progress.position == position and run(progress) == position
        progress.set_epoch(4)
        assert run(progress) == Position(4)


def test_set_epoch_of_a_loaded_finished_epoch_is_an_empty_rest() -> None:
    progress = Progress()
    progress.load(Position(3, 0, 100, True))
    progress.set_epoch(3)
    assert run(progress) == Position(3, 0, 100)


def test_set_epoch_of_another_epoch_drops_the_loaded_position() -> None:
    progress = Progress()
    progress.load(Position(3, 0, 40))
    progress.set_epoch(4)
    assert progress.position == Position(4) and run(progress) == Position(4)


def test_trainers_order_of_calls() -> None:
    """Lightning: iter, load, iter, set_epoch, first next."""
    progress = Progress()
    progress.load(Position(2, 0, 60))
    progress.set_epoch(2)
    assert run(progress) == Position(2, 0, 60)
    for epoch in (3, 4):
        progress.set_epoch(epoch)
        assert run(progress, seen=100, finish=False) == Position(epoch)


@pytest.mark.parametrize("epoch", [-1, 2**31, 1.0, True, "3", None])
def test_impossible_epochs(epoch: Any) -> None:
    progress = Progress()
    progress.load(Position(1, 0, 5))
    with pytest.raises(ValueError, match=r"epoch must be an integer in \[0, 2147483648\), got"):
        progress.set_epoch(epoch)
    assert run(progress) == Position(1, 0, 5) and run(progress) == Position(2)


@given(st.lists(st.booleans(), max_size=10))
def test_a_restart_between_two_passes_is_not_noticed(restarts: list[bool]) -> None:
    straight, restarted = Progress(), Progress()
    for restart in restarts:
        assert run(straight) == run(restarted)
        if restart:
            restarted = restored(restarted)
        assert straight.position == restarted.position and straight.epoch == restarted.epoch
