"""What is dear to make serves one pass after the other, and the stream is as if it had been made anew."""

from __future__ import annotations

import gc
import io
import random
import threading
import weakref
from dataclasses import dataclass

import numpy as np
import nvidia.dali.experimental.dynamic as ndd
import psutil
import pytest
import torch
from PIL import Image

import torchdali as td
from torchdali import _dali
from torchdali import transforms as T
from torchdali.engine.shelf import Shelf
from torchdali.engine.traced import Trace
from torchdali.testing import sample_digests

from .conftest import our_threads
from .launcher import finish, start_code

TRANSFORM = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip()])
ENGINES = pytest.mark.parametrize("engine", ["eager", "pipeline"])
EXECUTIONS = pytest.mark.parametrize(
    ("engine", "prefetch"), [("eager", 0), ("eager", 2), ("pipeline", 0), ("pipeline", 2), ("debug", 2)]
)


@pytest.fixture
def make(folder):
    def make(**changes):
        arguments = dict(batch_size=4, shuffle=True, seed=5, device="cpu", transform=TRANSFORM) | changes
        return td.DataLoader(td.ImageFolder(folder, fields=("image", "index")), **arguments)

    return make


@pytest.fixture
def made(monkeypatch):
    """Counts the pipelines and the contexts that are made, as weak references."""
    found = {"pipelines": [], "contexts": []}

    def noted(name, function):
        def noting(*arguments):
            result = function(*arguments)
            found[name].append(weakref.ref(result))
            return result

        return noting

    monkeypatch.setattr(_dali, "pipeline", noted("pipelines", _dali.pipeline))
    monkeypatch.setattr(_dali.session, "_context", noted("contexts", _dali.session._context))
    return found


def counts(made) -> tuple[int, int]:
    return len(made["pipelines"]), len(made["contexts"])


def needed(engine: str, times: int = 1) -> tuple[int, int]:
    """A pipeline needs no context, and dynamic mode no pipeline."""
    return (times, 0) if engine == "pipeline" else (0, times)


def epochs(loader, numbers) -> list[list[list[str]]]:
    """The batches of some epochs."""
    found = []
    for number in numbers:
        loader.set_epoch(number)
        found.append([sample_digests(batch) for batch in loader])
    return found


# What is made, and how often


@EXECUTIONS
def test_a_loader_makes_things_once(make, made, engine, prefetch):
    loader = make(engine=engine, prefetch_factor=prefetch)
    for _ in range(4):
        assert len(list(loader)) == 6 and not our_threads()
    assert counts(made) == needed(engine)
    kept = [one() for name in made for one in made[name]]
    assert all(kept)
    loader.close()
    del kept
    assert not any(one() for name in made for one in made[name])
    assert len(list(loader)) == 6  # and makes others
    assert counts(made) == needed(engine, 2)


def test_batches_use_the_memory_of_earlier_passes(make):
    loader = make(batch_size=11)
    addresses = [image.data_ptr() for _ in range(8) for image, _ in loader]
    assert len(addresses) == 16 and len(set(addresses)) <= 5  # two made ahead, and those that are on their way
    free = loader._passes._shelf._things["pool"]._free
    assert 1 <= len(free) <= 8 and sum(map(len, free)) <= 8 * 11 * 24 * 24 * 3


@ENGINES
def test_a_loader_that_is_gone_leaves_nothing(make, made, engine):
    before = psutil.Process().num_threads()
    loader = make(engine=engine, num_threads=6)
    list(loader)
    assert psutil.Process().num_threads() >= before + 6  # DALI's own, which wait
    del loader
    assert not any(one() for name in made for one in made[name])
    assert psutil.Process().num_threads() <= before + 1


@ENGINES
def test_nothing_of_a_pass_is_kept(engine):
    """Neither its reading, nor its files, nor its batches."""
    files = [np.array(data) for data in jpegs(12)]
    gone = []

    class Files(torch.utils.data.Dataset):
        def __len__(self):
            return 12

        def __getitem__(self, i):
            copy = files[i].copy()
            gone.append(weakref.ref(copy))
            return {"image": copy}

    dataset = td.PythonDataset(Files(), kinds={"image": "encoded"})
    loader = td.DataLoader(dataset, 4, device="cpu", transform=TRANSFORM, engine=engine)
    batches = [weakref.ref(batch["image"]) for batch in loader]
    assert len(batches) == 3 and len(gone) >= 12
    gc.collect()
    assert not any(one() is not None for one in gone + batches)


def jpegs(count: int) -> list[np.ndarray]:
    found = []
    for pixels in np.random.default_rng(0).integers(0, 256, (count, 40, 50, 3), dtype=np.uint8):
        Image.fromarray(pixels).save(file := io.BytesIO(), "JPEG")
        found.append(np.frombuffer(file.getvalue(), np.uint8))
    return found


# When it is not used again


@ENGINES
def test_another_transform_needs_others(make, made, engine):
    loader = make(engine=engine)
    expected = epochs(make(engine=engine, transform=T.RandomResizedCrop(16)), [1, 2])
    made["pipelines"].clear(), made["contexts"].clear()
    list(loader)
    loader.transform = T.RandomResizedCrop(16)
    assert not any(one() for name in made for one in made[name])  # at once
    assert epochs(loader, [1, 2]) == expected
    assert counts(made) == needed(engine, 2)
    with pytest.raises(ValueError):
        loader.transform = T.Compose([T.Resize(8), T.Decode()])
    list(loader)
    assert counts(made) == needed(engine, 2)


@EXECUTIONS
def test_a_broken_pass_keeps_what_is_idle(make, made, engine, prefetch):
    loader = make(engine=engine, prefetch_factor=prefetch)
    expected = epochs(make(engine="debug"), range(6))
    made["pipelines"].clear(), made["contexts"].clear()
    for number in range(6):
        for step, batch in enumerate(loader):
            assert sample_digests(batch) == expected[number][step]
            if step == number:
                break
        assert not our_threads()
    assert counts(made) == needed(engine)


def test_a_pipeline_that_does_not_come_to_its_end_is_thrown_away(make, made, monkeypatch):
    run = Trace.run

    def fails(self, ahead=True):
        if self._inlet.feed is None:
            raise RuntimeError("a bad sample was inside")
        return run(self, ahead)

    monkeypatch.setattr(Trace, "run", fails)
    loader = make(engine="pipeline")
    for number in range(2):
        for _ in loader:
            break
        assert not our_threads() and "trace" not in loader._passes._shelf._things
        assert counts(made) == (number + 1, 0)


def test_an_error_in_dali_throws_its_context_away(make, made):
    def fails(sample, rand):
        image = ndd.resize(ndd.decoders.image(sample["image"]), size=[8, 8])
        if wrong and 7 in sample["index"].torch():
            raise ValueError("bad luck")
        return {**sample, "image": image}

    loader = make(transform=fails, on_bad_sample="skip")
    for wrong in (False, True, True, False):  # noqa: B007
        assert len(list(loader)) == 6
    # Each pass with an error makes another one for its repair, and the next pass one for itself.
    assert counts(made) == (0, 1 + 1 + 2 + 1)


def test_an_error_throws_a_pipeline_away(make, made, monkeypatch):
    run, failed = Trace.run, []

    def fails_once(self, ahead=True):
        results = run(self, ahead)
        if not failed:
            failed.append(1)
            raise RuntimeError("bad luck")
        return results

    expected = epochs(make(engine="debug"), [1])
    loader = make(engine="pipeline")
    list(loader)
    monkeypatch.setattr(Trace, "run", fails_once)
    with pytest.warns(RuntimeWarning, match="is made again"):
        assert epochs(loader, [1]) == expected
    assert [one() is not None for one in made["pipelines"]] == [False, True]
    list(loader)
    assert len(made["pipelines"]) == 2


def test_an_error_in_the_callers_loop_is_a_break(make, made):
    loader = make(engine="pipeline", prefetch_factor=0)
    for _ in range(2):
        with pytest.raises(KeyError):
            for _ in loader:
                raise KeyError
    assert len(list(loader)) == 6 and counts(made) == (1, 0)


def test_a_function_that_looks_at_something_is_traced_in_each_pass(make, made):
    size = [8]

    @T.traceable
    def resize(sample, rand, ops):
        return {**sample, "image": ops.resize(sample["image"], size=[size[0], size[0]])}

    loader = make(transform=T.Compose([T.Decode(), resize]), engine="pipeline", uniform=["image"])
    for size[0] in (8, 12):
        assert {image.shape[-1] for image, _ in loader} == {size[0]}
    assert counts(made) == (2, 1)


def test_a_step_that_may_change_is_traced_in_each_pass(make, made):
    class Brighter(T.Transform):
        by = 10

        def transform(self, ops, image):
            return ops.brightness(image, brightness_shift=self.by / 255)

    step = Brighter()
    loaders = [
        make(transform=steps, engine="pipeline", shuffle=False)
        for steps in (T.Compose([step, T.Resize((8, 8))]), T.Compose([T.RandomApply([step], 1.0), T.Resize((8, 8))]))
    ]
    for loader in loaders:
        means = []
        for step.by in (10, 90):
            means.append(torch.cat([image for image, _ in loader]).float().mean())
        assert means[1] > means[0] + 20
    assert counts(made)[0] == 4


@dataclass(frozen=True)
class ByChannels(T.Transform):
    """Adds the number of channels to each pixel."""

    def transform(self, ops, image):
        return ops.brightness(image, brightness_shift=ops.channels_of(image) / 255)


def test_images_of_another_form_need_another_pipeline(made):
    """A trace follows the channels of its first samples."""
    dataset = td.InMemoryDataset(image=[np.zeros((9, 9, 3), np.uint8)] * 8)
    loader = td.DataLoader(dataset, 4, device="cpu", transform=ByChannels(), engine="pipeline")
    for channels, pipelines in ((3, 1), (1, 2), (1, 2), (3, 3)):
        dataset.columns["image"][:] = [np.zeros((9, 9, channels), np.uint8)] * 8
        values = torch.cat([image for (image,) in loader])
        assert values.shape[1] == channels and (values == channels).all()
        assert len(made["pipelines"]) == pipelines


def test_contexts_with_many_operators_are_thrown_away(make, made, monkeypatch):
    """DALI keeps an operator for each value of such an argument."""
    monkeypatch.setattr(_dali.Session, "MOST_OPERATORS", 12)
    fill = iter(range(256))

    def rotate(sample, rand):
        image = ndd.resize(ndd.decoders.image(sample["image"]), size=[8, 8])
        return {**sample, "image": ndd.rotate(image, angle=30, fill_value=float(next(fill)), keep_size=True)}

    loader = make(transform=rotate)
    for _ in range(4):
        list(loader)
    assert counts(made) == (0, 2)


# One stream


@EXECUTIONS
def test_breaks_seeks_and_resumes_are_as_with_a_new_loader(make, engine, prefetch):
    expected = epochs(make(engine="debug"), range(3))
    loader, draw = make(engine=engine, prefetch_factor=prefetch), random.Random(engine)
    for _ in range(12):
        epoch, step, count = draw.randrange(3), draw.randrange(6), draw.choice([1, 2, 9])
        loader.seek(epoch, step)
        if draw.random() < 0.3:
            loader.load_state_dict(loader.state_dict())
        got = []
        for batch in loader:
            got.append(sample_digests(batch))
            if len(got) == count:
                break
        assert got == expected[epoch][step : step + count]


@EXECUTIONS
def test_passes_that_are_open_at_a_time_share_nothing(make, made, engine, prefetch):
    expected = epochs(make(engine="debug"), range(3))
    made["pipelines"].clear(), made["contexts"].clear()
    loader = make(engine=engine, prefetch_factor=prefetch)
    list(loader)
    two = [(sample_digests(a), sample_digests(b)) for a, b in zip(iter(loader), iter(loader), strict=True)]
    assert [a for a, _ in two] == expected[1] and [b for _, b in two] == expected[2]
    assert counts(made) == needed(engine, 2)
    assert sum(one() is not None for found in made.values() for one in found) == 1


def test_an_iterator_in_another_thread_uses_what_this_one_has_made(make, made):
    expected = epochs(make(engine="debug"), range(4))
    made["pipelines"].clear(), made["contexts"].clear()
    loader, got = make(engine="pipeline", prefetch_factor=0), []
    for _ in range(4):
        thread = threading.Thread(target=lambda: got.append([sample_digests(batch) for batch in loader]))
        thread.start()
        thread.join(60)
    assert got == expected and counts(made) == (1, 0)


# The shelf


class Thing:
    def __init__(self, rests=True):
        self.rests = rests

    def rest(self):
        return self.rests


def test_a_shelf_has_one_thing_of_a_name():
    shelf, one = Shelf(None, torch.device("cpu")), Thing()
    assert shelf.take("a") is None
    shelf.put("a", one), shelf.put("a", Thing()), shelf.put("b", Thing(rests=False))
    assert shelf.take("a") is one and shelf.take("a") is None and shelf.take("b") is None
    with shelf.lend("a", lambda: one):
        assert shelf.take("a") is None
    with pytest.raises(KeyError), shelf.lend("a", Thing) as lent:
        assert lent is one
        raise KeyError
    assert shelf.take("a") is None
    shelf.close(), shelf.close(), shelf.put("a", one)
    assert shelf.take("a") is None


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_leaves_it_alone(folder, tmp_path):
    """DALI's objects end a process in which they are destroyed without their threads."""
    text = f"""
        import os, sys, warnings, torchdali as td
        from torchdali import transforms as T
        warnings.simplefilter("ignore", DeprecationWarning)
        loaders = [
            td.DataLoader(td.ImageFolder({str(folder)!r}), 4, device="cpu", engine=engine, transform=T.RandomCrop(8))
            for engine in ("eager", "pipeline")
        ]
        for loader in loaders:
            list(loader)
        child = os.fork()
        if not child:
            loaders.pop().close()
            del loader, loaders
            sys.exit(7)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert [len(list(loader)) for loader in loaders] == [6, 6]
        sys.exit(code)
        """
    finish(start_code(text, tmp_path), 7)
