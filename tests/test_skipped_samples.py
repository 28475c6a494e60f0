"""on_bad_sample="skip", the limit of bad samples, and how an error says to go on."""

from __future__ import annotations

import io
import itertools
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import IterableDataset

import torchdali as td
from torchdali import transforms as T
from torchdali.engine.eager import Eager
from torchdali.testing import assert_resumes_exactly, assert_same_stream, garble_file, sample_digests, truncate_file

TRANSFORM = T.Compose([T.RandomResizedCrop(16), T.RandomHorizontalFlip()])
FIELDS = ("image", "label", "index", "path", "valid")
ENGINES = [("eager", 2), ("pipeline", 2), ("eager", 0), ("debug", 2)]
BAD = (2, 8, 9, 10, 11, 15)  # 8 to 11 are a whole batch in the files' order


@pytest.fixture
def make(own_folder: Path) -> Callable[..., td.DataLoader]:
    """Loaders of 22 files, six of them bad."""
    dataset = td.ImageFolder(own_folder, fields=FIELDS)
    for index in BAD:
        path = Path(dataset.samples[index][0])
        (truncate_file if index % 2 else garble_file)(path)
    Path(dataset.samples[10][0]).unlink()

    def make(**changes: Any) -> td.DataLoader:
        arguments = dict(batch_size=4, device="cpu", seed=5, transform=TRANSFORM, on_bad_sample="skip") | changes
        return td.DataLoader(dataset, **arguments)

    return make


def indices(batches: Any) -> list[list[int]]:
    return [batch[2].tolist() for batch in batches]


@pytest.mark.parametrize("engine, prefetch", ENGINES)
def test_batches_are_smaller_and_never_empty(make: Callable[..., td.DataLoader], engine: str, prefetch: int) -> None:
    loader = make(engine=engine, prefetch_factor=prefetch)
    found, states = [], []
    for number, batch in enumerate(loader):
        assert loader.step == (number + 1) % len(loader) or number + 1 == len(loader)
        found.append(batch)
        states.append(loader.state_dict()["samples_seen"])
    assert states == [4, 8, 12, 16, 20, 22] and len(found) == len(loader)  # those that were left out count as seen
    assert [len(batch[0]) for batch in found] == [3, 4, 1, 3, 4, 2]
    order = indices(found)
    assert order[:2] == [[0, 1, 3], [4, 5, 6, 7]] and order[3:] == [[12, 13, 14], [16, 17, 18, 19], [20, 21]]
    # A batch all of whose samples are bad takes another one in the first one's place.
    ((other,),) = order[2:3]
    assert other not in BAD
    assert [batch[4].tolist() for batch in found] == [
        [True] * 3,
        [True] * 4,
        [False],
        [True] * 3,
        [True] * 4,
        [True] * 2,
    ]
    met = {bad.index: bad.substitute for bad in loader.bad_samples}
    assert dict.fromkeys(BAD) | {8: other} == met


@pytest.mark.slow
def test_they_are_one_stream_and_resume(make: Callable[..., td.DataLoader]) -> None:
    makers = [
        (lambda e=engine, p=prefetch: make(engine=e, prefetch_factor=p, shuffle=True)) for engine, prefetch in ENGINES
    ]
    assert_same_stream(*makers, epochs=2)
    assert_resumes_exactly(makers[0], every=2)


def test_steps_are_equal_on_all_ranks(make: Callable[..., td.DataLoader]) -> None:
    ranks = [make(rank=rank, world_size=2, batch_size=2) for rank in range(2)]
    found = [indices(rank) for rank in ranks]
    assert [len(steps) for steps in found] == [len(rank) for rank in ranks] == [6, 6]
    seen = sorted(itertools.chain(*itertools.chain(*found)))
    good = [i for i in range(22) if i not in BAD]
    assert set(seen) == set(good) and all(map(all, found))
    assert len(seen) - len(good) == 2  # step 2 has only bad samples on both ranks
    assert all(rank.state_dict() == ranks[0].state_dict() for rank in ranks)


def test_the_good_samples_are_as_with_substitutes(make: Callable[..., td.DataLoader]) -> None:
    rows = []
    for policy in ("skip", "substitute"):
        row: dict[int, str] = {}
        for batch in make(on_bad_sample=policy, shuffle=True):
            digests = sample_digests(batch)
            row |= {i: digest for i, ok, digest in zip(batch[2].tolist(), batch[4].tolist(), digests) if ok}
        rows.append(row)
    assert rows[0] == rows[1] and len(rows[0]) == 22 - len(BAD)


def test_a_function_may_skip_some(make: Callable[..., td.DataLoader]) -> None:
    loader = make(on_bad_sample=lambda bad: "skip" if bad.stage == "read" else "substitute")
    assert [len(batch[0]) for batch in loader] == [4, 4, 3, 4, 4, 2]


def test_a_collate_function_gets_the_rest() -> None:
    class Faulty(torch.utils.data.Dataset[int]):
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> int:
            if index in (1, 4, 5, 6, 7):
                raise ValueError("no such page")
            return index

    loader = td.DataLoader(Faulty(), 4, device="cpu", collate_fn=list, on_bad_sample="skip")
    batches = list(loader)
    assert batches[0] == [0, 2, 3] and len(batches) == 2 and len(batches[1]) == 1 and batches[1][0] in (0, 2, 3)


def test_what_excludes_it(make: Callable[..., td.DataLoader]) -> None:
    with pytest.raises(
        ValueError, match=r"pad_last=True fills batches up, and on_bad_sample='skip' makes them smaller"
    ):
        make(pad_last=True)


# Substitutes


def test_ten_unlucky_draws_are_no_error(own_folder: Path) -> None:
    """One good file of 22 is found for each of the others, and bad ones are looked at once."""
    dataset = td.ImageFolder(own_folder, fields=("image", "index", "valid"))
    for index, (path, _) in enumerate(dataset.samples):
        if index != 13:
            garble_file(path)
    loader = td.DataLoader(dataset, 4, device="cpu", transform=TRANSFORM, on_bad_sample="substitute")
    batches = list(loader)
    assert [batch[1].tolist() for batch in batches] == [[13] * 4] * 5 + [[13] * 2]
    assert sum(int(batch[2].sum()) for batch in batches) == 1
    assert {bad.substitute for bad in loader.bad_samples} == {13}  # none that is bad itself
    assert_same_stream(
        lambda: td.DataLoader(dataset, 4, device="cpu", transform=TRANSFORM, on_bad_sample="substitute"),
        lambda: td.DataLoader(dataset, 3, device="cpu", transform=TRANSFORM, on_bad_sample="substitute"),
        steps=False,
    )


def test_where_nothing_is_good_the_error_says_so(own_folder: Path) -> None:
    dataset = td.ImageFolder(own_folder)
    for path, _ in dataset.samples:
        garble_file(path)
    for policy in ("substitute", "skip"):
        loader = td.DataLoader(dataset, 4, device="cpu", transform=TRANSFORM, on_bad_sample=policy)
        with pytest.raises(td.BadSampleError, match="sample 0") as caught:
            next(iter(loader))
        assert any("no sample of the dataset that was tried" in note for note in caught.value.__notes__)


def test_a_function_that_names_a_bad_sample_again_and_again(make: Callable[..., td.DataLoader]) -> None:
    asked: list[int] = []
    loader = make(on_bad_sample=lambda bad: asked.append(bad.index) or 9)
    with pytest.raises(td.BadSampleError, match="sample 9"):
        list(loader)
    assert asked == [2, *[9] * 10]


# The limit


def test_too_many_are_an_error_with_the_last_reasons(make: Callable[..., td.DataLoader]) -> None:
    loader = make(max_bad_samples=4)
    found, iterator = [], iter(loader)
    with pytest.raises(
        td.TooManyBadSamplesError, match="has met 5 bad samples, and max_bad_samples allows 4"
    ) as caught:
        for batch in iterator:
            found.append(batch)
            state = loader.state_dict()
    assert len(found) == 2 and loader.state_dict() == state
    words = str(caught.value)
    assert all(f"sample {index} (" in words for index in BAD[:5]) and "read failed for sample 10" in words
    assert "torchdali check" in words and "exclude=" in words
    with pytest.raises(RuntimeError, match="this pass was ended"):
        next(iterator)
    # The way on that it names.
    again = make(max_bad_samples=None)
    again.load_state_dict(loader.state_dict())
    assert indices(again)[1:] == [[12, 13, 14], [16, 17, 18, 19], [20, 21]]


def test_each_pass_counts_its_own_and_each_sample_once(make: Callable[..., td.DataLoader]) -> None:
    for most in (6, 0.28, np.int64(6), 1.0):
        loader = make(max_bad_samples=most)
        assert sum(1 for _ in range(3) for _ in loader) == 18
    with pytest.raises(td.TooManyBadSamplesError, match="allows 5"):
        list(make(max_bad_samples=0.27))  # of 22
    with pytest.raises(td.TooManyBadSamplesError, match="allows 0"):
        list(make(max_bad_samples=0))
    # Half of them are this rank's.
    with pytest.raises(td.TooManyBadSamplesError, match="allows 2"):
        list(make(max_bad_samples=0.27, rank=1, world_size=2, batch_size=2))


@pytest.mark.parametrize("wrong", [-1, 1.5, 0.0, True, "3", float("nan")])
def test_wrong_limits(make: Callable[..., td.DataLoader], wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"max_bad_samples must be a number of samples.* or a share of the epoch in"):
        make(max_bad_samples=wrong)


def test_it_counts_under_raise_too(make: Callable[..., td.DataLoader]) -> None:
    iterator = iter(make(on_bad_sample="raise", max_bad_samples=1))
    with pytest.raises(td.BadSampleError):
        next(iterator)
    next(iterator)
    with pytest.raises(td.TooManyBadSamplesError):
        next(iterator)


# The error


def test_an_error_says_how_to_go_on_and_nothing_is_lost_without_a_word(make: Callable[..., td.DataLoader]) -> None:
    loader = make(on_bad_sample="raise")
    iterator = iter(loader)
    with pytest.raises(td.BadSampleError) as caught:
        next(iterator)
    (note,) = caught.value.__notes__
    assert "the batch of the samples [0, 1, 2, 3] was not handed over.  next() goes on after it" in note
    assert "on_bad_sample='skip' or 'substitute' gives its other samples" in note
    again = make(on_bad_sample="skip")  # as the note says
    again.load_state_dict(loader.state_dict())
    assert indices(again)[0] == [0, 1, 3]
    assert indices(iterator.__next__() for _ in range(1)) == [[4, 5, 6, 7]]


# Iterables


def photo(index: int) -> np.ndarray[Any, Any]:
    out = io.BytesIO()
    Image.new("RGB", (40, 40), (index, 2 * index, 255 - index)).save(out, "PNG")
    data = np.frombuffer(bytearray(out.getvalue()), np.uint8)
    if index in BAD:
        data = data[: len(data) // 2] if index % 2 else np.zeros(100, np.uint8)
    return data


class Photos(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        for index in range(22):
            yield {"image": photo(index), "number": index}


def stream(**options: Any) -> td.DataLoader:
    source = td.IterableSource(Photos(), kinds={"image": "encoded"})
    options = dict(batch_size=4, device="cpu", transform=T.RandomCrop(8), on_bad_sample="skip") | options
    return td.DataLoader(source, **options)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_iterable_skips_what_can_not_be_decoded(num_workers: int) -> None:
    loader = stream(num_workers=num_workers)
    found: list[list[int]] = []
    iterator = iter(loader)
    errors = []
    while True:
        try:
            found.append(next(iterator)["number"].tolist())
        except StopIteration:
            break
        except td.BadSampleError as error:  # none of the batch is good, and there is no other one to take
            errors.append(error)
    assert found == [[0, 1, 3], [4, 5, 6, 7], [12, 13, 14], [16, 17, 18, 19], [20, 21]]
    assert [error.index for error in errors] == [8]
    assert any("another one can't be taken by its index" in note for note in errors[0].__notes__)
    assert {bad.index for bad in loader.bad_samples} == set(BAD) and loader.state_dict()["samples_seen"] == 22
    loader.close()


def test_an_iterables_errors_of_its_own_reach_the_caller() -> None:
    class Failing(Photos):
        def __iter__(self) -> Iterator[Any]:
            yield from itertools.islice(super().__iter__(), 2)
            raise OSError("the stream is gone")

    source = td.IterableSource(Failing(), kinds={"image": "encoded"})
    iterator = iter(td.DataLoader(source, 2, device="cpu", transform=T.RandomCrop(8), on_bad_sample="skip"))
    assert len(next(iterator)["number"]) == 2
    with pytest.raises(OSError, match="the stream is gone") as caught:
        next(iterator)
    assert "a generator ends with its first error" in caught.value.__notes__[0]


class Lines:
    """Numbers from a reader that goes on after an error: items 3, 4 and 9 of fourteen can't be read."""

    def __init__(self) -> None:
        self.item = -1

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        self.item += 1
        if self.item in (3, 4, 9):
            raise ValueError(f"line {self.item} is broken")
        if self.item == 14:
            raise StopIteration
        return self.item


class Readers(IterableDataset):
    def __iter__(self) -> Iterator[int]:
        return Lines()


class StatefulLines(Lines):
    def state_dict(self) -> dict[str, int]:
        return {"item": self.item}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.item = state["item"]


class StatefulReaders(IterableDataset):
    def __iter__(self) -> Iterator[int]:
        return StatefulLines()


def collected(iterator: Iterator[Any]) -> list[Any]:
    """The batches, and the errors in their places."""
    found: list[Any] = []
    while True:
        try:
            found.append(next(iterator).tolist())
        except StopIteration:
            return found
        except ValueError as error:
            found.append(str(error))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_iterable_skips_items_that_can_not_be_read(num_workers: int) -> None:
    found = {0: [[0, 1, 2, 5], [6, 7, 8, 10], [11, 12, 13]], 2: [[0, 2, 6, 8], [1, 5, 7, 10], [11, 13], [12]]}
    options = dict(device="cpu", num_workers=num_workers, on_bad_sample="skip")
    with td.DataLoader(Readers(), 4, **options) as loader:
        assert collected(iter(loader)) == found[num_workers]
        # Each is one worker's, the one that would have had it.
        assert sorted(bad[:4] for bad in loader.bad_samples) == [
            (item, None, "read", f"line {item} is broken") for item in (3, 4, 9)
        ]
    with td.DataLoader(Readers(), 4, max_bad_samples=2, **options) as loader:
        with pytest.raises(td.TooManyBadSamplesError, match=r"has met 3 bad samples.*\n.*line 3 is broken"):
            list(loader)
    dataset = StatefulReaders() if num_workers else Readers()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*samples are iterated again", RuntimeWarning)
        assert_resumes_exactly(
            lambda: td.DataLoader(dataset, 4, **options, multiprocessing_context="fork" if num_workers else None),
            every=1 + num_workers,
        )


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_iterables_error_loses_no_sample(num_workers: int) -> None:
    """It comes once, in its worker's turn; the samples that were read before it are in the next batch."""
    with td.DataLoader(Readers(), 4, device="cpu", num_workers=num_workers) as loader:
        found = collected(iter(loader))
    broken = [f"line {item} is broken" for item in (3, 4, 9)]
    if not num_workers:
        assert found == [broken[0], broken[1], [0, 1, 2, 5], broken[2], [6, 7, 8, 10], [11, 12, 13]]
    assert sorted(one for one in found if isinstance(one, str)) == broken
    assert sorted(itertools.chain(*(one for one in found if isinstance(one, list)))) == [
        item for item in range(14) if item not in (3, 4, 9)
    ]


def test_an_iterable_that_fails_for_ever_is_an_error() -> None:
    class Broken:
        def __iter__(self) -> Iterator[int]:
            return self

        def __next__(self) -> int:
            raise ValueError("no line can be read")

    with pytest.raises(ValueError, match="no line can be read"):
        next(iter(td.DataLoader(td.IterableSource(Broken()), 4, device="cpu", on_bad_sample="skip")))


def test_what_iterables_can_not_do() -> None:
    with pytest.raises(ValueError, match="has no other sample to take by its index: write on_bad_sample='skip'"):
        stream(on_bad_sample="substitute")
    with pytest.raises(ValueError, match="on_bad_sample returned 3, and the samples of IterableSource can't be taken"):
        list(stream(on_bad_sample=lambda bad: 3))
    with pytest.raises(ValueError, match="is a share of the epoch, whose length is not known here: write a number"):
        stream(max_bad_samples=0.5)
    with pytest.raises(td.TooManyBadSamplesError, match="allows 0"):
        list(stream(max_bad_samples=0))


# Windows


def test_a_window_that_fails_in_dali_is_tried_by_pillow(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DALI decodes the whole file, and not the window: Pillow's pixels take their place, and no sample is bad."""
    dataset = td.ImageFolder(folder, fields=("image", "index"))
    expected = [batch[0] for batch in td.DataLoader(dataset, 4, device="cpu", transform=TRANSFORM)]
    call = Eager.__call__

    def fail(self: Eager, work: Any) -> None:
        rows = np.flatnonzero(work.samples.indices == 5)
        if any(work.columns["image"][row].tobytes()[:2] == b"\xff\xd8" for row in rows):
            raise RuntimeError("Failed to decode sample #0: the window is too wide")
        call(self, work)

    monkeypatch.setattr(Eager, "__call__", fail)
    loader = td.DataLoader(dataset, 4, device="cpu", transform=TRANSFORM, engine="eager")
    found = [batch[0] for batch in loader]
    assert loader.bad_samples == []
    for one, other in zip(expected, found, strict=True):
        assert (one.int() - other.int()).abs().max() <= 2  # chroma upsampling
    monkeypatch.setattr("torchdali.engine.fetch.Fetcher.transcode", refuse)
    with pytest.raises(td.BadSampleError, match="decode failed for sample 5"):
        list(td.DataLoader(dataset, 4, device="cpu", transform=TRANSFORM, engine="eager"))


def refuse(*_: Any) -> Any:
    raise ValueError("no picture")
