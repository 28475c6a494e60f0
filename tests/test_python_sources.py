"""Python code as a source, in the caller's process and in workers."""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import os
import pickle
import random

import numpy as np
import psutil
import pytest
import torch

import torchdali as td
from tests.kind_words import words
from torchdali import transforms as T
from torchdali.batch import Padded
from torchdali.errors import FieldTypeError, LoaderTimeoutError, StateMismatchError
from torchdali.testing import assert_resumes_exactly, assert_same_stream, read_stream, sample_digests
from torchdali.workers import WorkerDiedError

from . import source_datasets as S
from .patience import wait_until
from .source_datasets import N

METHODS = ("fork", "spawn", "forkserver")


def loader(dataset=None, num_workers=0, **options):
    options = dict(batch_size=4, shuffle=True, seed=3, device="cpu", transform=None) | options
    return td.DataLoader(S.Plain() if dataset is None else dataset, num_workers=num_workers, **options)


def workers() -> list[psutil.Process]:
    """The worker processes of loaders, and not the servers that they are forked from."""
    found, me = [], psutil.Process()
    for one in me.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            words = " ".join(one.cmdline())
            server = one.ppid() == me.pid and ("forkserver" in words or "tracker" in words)
            if not server and "tests.launcher" not in words and one.status() != psutil.STATUS_ZOMBIE:
                found.append(one)
    return found


# Samples and batches


def test_kinds_of_values():
    batch = next(iter(loader(shuffle=False, transform=T.Resize((8, 8)))))
    assert batch["image"].shape == (4, 3, 8, 8) and batch["image"].dtype == torch.uint8
    assert batch["index_"].tolist() == [0, 1, 2, 3] and batch["index_"].dtype == torch.int64
    assert batch["python"].dtype == torch.float64
    assert batch["torch"].shape == (4, 2)
    assert batch["text"] == [f"sample {i}" for i in range(4)]
    assert isinstance(batch["ragged"], Padded) and batch["ragged"].sizes.ravel().tolist() == [1, 2, 3, 4]
    assert batch["fixed"].shape == (4, 2, 3)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_forms_come_back(num_workers):
    def first(form, **options):
        with loader(S.Forms(form), num_workers, shuffle=False, **options) as one:
            return next(iter(one))

    image, label = first("tuple", transform=T.Resize((5, 6)))
    assert image.shape == (4, 3, 5, 6) and label.tolist() == [0, 1, 2, 3]
    named = first("named")
    assert type(named) is S.Pair and named.data.shape == (4, 2) and named.label.tolist() == [0, 1, 2, 3]
    record = first("dataclass")
    assert type(record) is S.Record and record.inner["label"].tolist() == [0, 1, 2, 3]
    assert record.inner["name"] == ["0", "1", "2", "3"]
    array, target = first("nested")
    assert array.shape == (4, 2) and target["boxes"].shape == (4, 2, 4) and target["id"].tolist() == [0, 1, 2, 3]
    assert first("value").tolist() == [0, 1, 2, 3]
    assert first("pil")[0].shape == (4, 3, 5, 6)
    assert first("tensor")[0][2].unique().tolist() == [2]
    images, numbers = first("array")
    assert images.shape == (4, 3, 5, 6) and numbers.dtype == torch.float32
    flat = first("nested", output="dict")
    assert set(flat) == {"field0", "1.boxes", "1.id"}


@pytest.mark.parametrize("num_workers", [0, 1])
def test_containers_of_any_type_keep_it_as_in_torch(num_workers):
    data = [S.containers(i) for i in range(4)]
    with loader(data, num_workers, batch_size=4, shuffle=False) as one:
        (batch,) = one
    expected = torch.utils.data.default_collate(data)
    assert set(batch) == set(expected)
    for name, mine in batch.items():
        other = expected[name]
        assert type(mine) is type(other), name
        pairs = zip(mine.values(), other.values()) if hasattr(mine, "values") else zip(mine, other)
        for part, wanted in pairs:
            assert torch.equal(part, wanted), name
    assert batch["own"].name == "0" and batch["default"].default_factory is list
    (lists,) = loader([sample["own"] for sample in data], batch_size=4, shuffle=False, output="list")
    assert type(lists) is S.Own and lists["x"] == [0, 1, 2, 3]


def test_containers_that_can_not_keep_their_type_are_dicts():
    (batch,) = loader([S.strict_containers(i) for i in range(4)], batch_size=4, shuffle=False)
    assert {name: type(value) for name, value in batch.items()} == {"strict": dict, "heavy": dict}
    assert batch["strict"]["x"].tolist() == batch["heavy"]["x"].tolist() == [0, 1, 2, 3]


@pytest.mark.processes
def test_decoding_is_dalis_and_equal():
    """Encoded bytes from workers give the same images as the same bytes in memory."""
    transform = T.Compose([T.RandomResizedCrop(12), T.RandomHorizontalFlip(), T.ColorJitter(0.3)])
    data = td.InMemoryDataset(image=[S.picture(i) for i in range(7)], label=list(range(7)))
    assert_same_stream(
        lambda: loader(data, transform=transform),
        lambda: loader(S.Forms("tuple"), transform=transform),
        lambda: loader(S.Forms("tuple"), 2, transform=transform),
        lambda: loader(S.Forms("tuple"), 2, transform=transform, engine="eager"),
        epochs=2,
    )


def test_fields_and_ragged():
    source = td.PythonDataset(S.Forms("tuple"), fields=["picture", "number", "index"])
    first = next(iter(loader(source, transform=T.Resize((4, 4)), output="dict")))
    assert set(first) == {"picture", "number", "index"} and torch.equal(first["number"], first["index"])
    ragged = td.PythonDataset(S.Forms("named"), ragged=["data"])
    assert isinstance(next(iter(loader(ragged))).data, Padded)
    with pytest.raises(
        ValueError, match="fields must be 2 different names, one for each of image, label in this order"
    ):
        next(iter(loader(td.PythonDataset(S.Forms("tuple"), fields=["one"]))))
    with pytest.raises(ValueError, match="ragged must name fields"):
        next(iter(loader(td.PythonDataset(S.Forms("named"), ragged=["nope"]))))


@pytest.mark.processes
def test_a_sample_unlike_the_first_is_named():
    with pytest.raises(
        FieldTypeError, match="must be a number, as in the first sample, got 'no number': give a number for every"
    ) as caught:
        list(loader(S.Faulty("type"), 1))
    assert "sample 9 in worker 0" in " ".join(caught.value.__notes__)


@pytest.mark.processes
@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_sample_unlike_the_first_is_a_bad_sample(num_workers):
    """It has the wrong type, and can be replaced as one that can't be made."""
    with loader(S.Faulty("type"), num_workers, on_bad_sample="substitute", shuffle=False) as one:
        assert sum(len(batch) for batch in one) == N
    assert [bad.index for bad in one.bad_samples] == [9] and "must be a number" in one.bad_samples[0].reason


@pytest.mark.processes
def test_fields_are_known_without_a_loader():
    """The first sample is read in the caller's thread, whose generators are put back; each loader reads for itself."""
    source = td.PythonDataset(S.Forms("tuple"))
    random.seed(1)
    expected = random.random()
    random.seed(1)
    assert source.fields == ("image", "label") and words(source.kinds) == {"image": "encoded", "label": "number"}
    assert source.uniform("label") and source.inline and random.random() == expected
    with loader(source, transform=T.Resize((4, 4))) as one:
        assert next(iter(one))[1].shape == (4,)
    assert td.SampleSource(S.UntilTheEnd()).fields == ("index", "epoch")
    for dataset in (S.Stream(), S.StatefulStream(), S.RestartingStream()):
        source = td.IterableSource(dataset)
        assert len(source.fields) == 2
        for num_workers in (0, 1):
            with loader(source, num_workers, shuffle=False) as one:  # nothing is missing
                assert [index for batch in one for index in batch[0].tolist()] == list(range(N))


def test_a_stream_that_can_be_read_once_loses_nothing_to_its_fields():
    rest = iter(range(N))

    class OneShot(torch.utils.data.IterableDataset):
        def __iter__(self):
            return rest

    source = td.IterableSource(OneShot())
    assert source.fields == ("label",)
    with loader(source, shuffle=False, seed=0) as one:
        assert [index for batch in one for index in batch.tolist()] == list(range(N))


@pytest.mark.processes
@pytest.mark.parametrize("name", ["fields", "kinds", "structure"])
@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_attribute_error_of_the_users_code_is_the_users(name, num_workers):
    class Wrong(S.Plain):
        def __getitem__(self, index):
            return self.missing

    source = td.PythonDataset(Wrong())
    with pytest.raises(AttributeError, match="'Wrong' object has no attribute 'missing'"):
        getattr(source, name)
    with (
        loader(source, num_workers) as one,
        pytest.raises(AttributeError, match="'Wrong' object has no attribute 'missing'"),
    ):
        getattr(one.source, name)
    with pytest.raises(AttributeError, match="'Plain' object has no attribute 'nothing'"):
        _ = td.PythonDataset(S.Plain()).nothing


def test_an_error_that_is_raised_again_and_again_is_noted_once_per_sample():
    error = ValueError("one object")

    class Same(S.Plain):
        def __getitem__(self, index):
            if index:
                raise error
            return index

    with loader(Same(), shuffle=False, batch_size=1) as one:
        for _ in range(2):
            with contextlib.suppress(StopIteration):
                batches = iter(one)
                for _ in range(4):
                    with contextlib.suppress(ValueError):
                        next(batches)
    notes = [note for note in error.__notes__ if "raised for sample" in note]
    assert len(notes) == len(set(notes)) >= 3 and "sample 1" in notes[0]


# One stream


@pytest.mark.processes
@pytest.mark.parametrize("method", METHODS)
def test_workers_and_start_methods_give_one_stream(method):
    numbers = (1, 2, 3) if method != "spawn" else (2,)  # each process takes seconds there
    assert_same_stream(
        lambda: loader(),
        *(
            lambda number=number: loader(
                num_workers=number,
                multiprocessing_context=method,
                persistent_workers=number == numbers[-1],
                prefetch_factor=number,
            )
            for number in numbers
        ),
        epochs=2,
    )


@pytest.mark.parametrize(("num_workers", "every"), [(0, 1), (1, 3), (2, 1), (3, 3)])
def test_resumes_at_every_step(num_workers, every):
    assert_resumes_exactly(lambda: loader(num_workers=num_workers, batch_size=6), every=every)


@pytest.mark.processes
@pytest.mark.parametrize(("before", "after"), [(0, 2), (2, 0), (1, 3), (3, 1)])
def test_resumes_under_another_number_of_workers(before, after):
    assert_resumes_exactly(lambda: loader(num_workers=before), lambda: loader(num_workers=after), steps=True, every=2)


@pytest.mark.processes
def test_ranks(num_workers=2):
    def ranks(world_size, **options):
        return [loader(rank=rank, world_size=world_size, **options) for rank in range(world_size)]

    assert_same_stream(lambda: loader(batch_size=8), lambda: ranks(2, num_workers=1), lambda: ranks(4, batch_size=2))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_the_callers_generators_are_untouched(num_workers):
    def drawn():
        return random.random(), float(np.random.rand()), float(torch.rand(1))

    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    expected = drawn()
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    for _ in loader(num_workers=num_workers):
        pass
    assert drawn() == expected


# What torch's words mean


@pytest.mark.processes
def test_worker_info_and_init():
    with loader(S.WhoAmI(), 2, worker_init_fn=S.init_worker) as one:
        rows = [row for index, worker, text in one for row in zip(worker.tolist(), text, strict=True)]
    assert {(0, "worker 0"), (1, "worker 1")} == set(rows)


@pytest.mark.processes
@pytest.mark.parametrize("method", METHODS)
def test_set_up_runs_once_in_each_worker(tmp_path, method):
    log = tmp_path / "log"
    with loader(S.SetUp(str(log)), 2, multiprocessing_context=method, persistent_workers=True) as one:
        list(one), list(one)
    pids = log.read_text().split()
    assert len(pids) == len(set(pids)) == 2 and str(os.getpid()) not in pids


@pytest.mark.processes
def test_workers_do_not_import_dali():
    with loader(S.Modules(), 2) as one:
        assert not any(seen.any() for _, seen in one)


@pytest.mark.processes
def test_closures_and_another_pickler():
    factor = 3

    class Local:
        def __len__(self):
            return 9

        def __getitem__(self, index):
            return index * factor

    with loader(Local(), 2, shuffle=False, worker_init_fn=lambda number: None) as one:
        assert [value for batch in one for value in batch.tolist()] == [3 * i for i in range(9)]
    with pytest.raises(TypeError, match=r"Local .*must be picklable"), loader(Local(), 1, pickler=pickle) as one:
        next(iter(one))
    with loader(num_workers=1, pickler=pickle) as one:
        next(iter(one))


@pytest.mark.processes
def test_a_datasets_code_that_names_modules_of_torchs_own_types():
    """cloudpickle takes torch.classes along with a function that says `torch` and `.classes`, and can't pickle it."""

    class Named:
        classes = ("a", "b")
        config = torch.backends.cudnn

        def __len__(self):
            return 4

        def __getitem__(self, index):
            assert self.config is torch.backends.cudnn and torch.ops.aten
            return torch.tensor(len(self.classes) * index)

    with loader(Named(), 1, batch_size=4, shuffle=False, worker_init_fn=None) as one:
        assert next(iter(one)).tolist() == [0, 2, 4, 6]


@pytest.mark.processes
def test_persistent_and_early_workers():
    one = loader(num_workers=2, persistent_workers=True)
    one.start_workers()
    early = {process.pid for process in workers()}
    list(one)
    list(one)
    assert {process.pid for process in workers()} == early
    one.close()
    with loader(num_workers=2) as other:
        list(other)
    assert wait_until(lambda: not workers())


@pytest.mark.processes
def test_two_iterators():
    with loader(num_workers=2) as one:
        first, second = iter(one), iter(one)
        a, b = next(first), next(second)
        assert sample_digests(list(a.values())) != sample_digests(list(b.values()))  # another epoch
        assert len(list(first)) == len(list(second)) == len(one) - 1


# Faults


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_exception_comes_as_it_is(num_workers):
    with loader(S.Faulty("raise"), num_workers, shuffle=False) as one:
        iterator = iter(one)
        got = [next(iterator), next(iterator)]
        with pytest.raises(KeyError, match="no such key") as caught:
            next(iterator)
        text = " ".join(caught.value.__notes__)
        assert "sample 9" in text and (not num_workers or ("worker" in text and "__getitem__" in text))
        assert next(iterator).tolist() == [12, 13, 14, 15]  # the pass goes on
    assert [batch.tolist() for batch in got] == [[0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_stop_iteration_is_an_error(num_workers):
    with (
        loader(S.Faulty("stop"), num_workers) as one,
        pytest.raises(RuntimeError, match="must not raise StopIteration"),
    ):
        list(one)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_failing_sample_can_be_replaced(num_workers):
    with loader(S.Faulty("raise"), num_workers, on_bad_sample="substitute") as one:
        assert sum(len(batch) for batch in one) == N
        (bad,) = one.bad_samples
    assert bad.index == 9 and bad.stage == "read" and bad.substitute is not None


@pytest.mark.processes
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("fault", ["kill", "exit"])
def test_a_worker_that_dies_is_named_at_once(method, fault):
    number = 2 if method != "spawn" else 1  # each process takes seconds there
    one = loader(S.Faulty(fault), number, shuffle=False, multiprocessing_context=method)
    with pytest.raises(WorkerDiedError, match="sample 9"):
        list(one)  # the death is told at once, on a busy machine before the first batch is taken
    one.close()
    assert wait_until(lambda: not workers())


@pytest.mark.processes
def test_a_sample_past_its_time_is_named():
    one = loader(S.Faulty("hang"), 1, shuffle=False, timeout=2)
    with pytest.raises(LoaderTimeoutError, match="sample 9"):
        list(one)
    one.close()


@pytest.mark.processes
def test_an_early_break_does_not_wait():
    one = loader(S.Faulty("hang"), 2, batch_size=4, shuffle=False)
    next(iter(one))
    one.close()  # the third batch was begun, and never ends
    assert wait_until(lambda: not workers())


@pytest.mark.processes
def test_a_forgotten_loader_leaves_no_worker():
    one = loader(num_workers=2, persistent_workers=True)
    iterator = iter(one)
    next(iterator)
    del iterator, one
    gc.collect()
    assert wait_until(lambda: not workers())


@pytest.mark.processes
def test_loaders_pickle():
    one = loader(num_workers=2, persistent_workers=True)
    next(iter(one))
    other = pickle.loads(pickle.dumps(one))
    one.close()
    assert read_stream(other)[0].samples
    other.close()


# Callbacks


@pytest.fixture
def files(tmp_path):
    paths = []
    for i in range(22):
        paths.append(str(tmp_path / f"{i:03d}.jpg"))
        with open(paths[-1], "wb") as file:
            file.write(S.picture(i))
    return paths


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")  # DALI's pool
@pytest.mark.parametrize("num_shards", [1, 2])
def test_dalis_callback_unchanged(files, num_shards):
    """The same callback gives the same stream in DALI's own parallel external source."""
    from nvidia.dali import Pipeline, fn

    for shard in range(num_shards):
        callback = S.Callback(files, 4, shard, num_shards)
        pipe = Pipeline(4, 1, None, py_num_workers=1, py_start_method="fork", exec_dynamic=True)
        with pipe:
            encoded, label = fn.external_source(source=callback, num_outputs=2, batch=False, parallel=True)
            pipe.set_outputs(fn.decoders.image(encoded), label)
        pipe.start_py_workers()
        pipe.build()
        with td.DataLoader(td.SampleSource(callback), batch_size=4, num_workers=2, device="cpu") as one:
            for _ in range(2):
                for images, labels in one:
                    expected, numbers = pipe.run()
                    assert labels.tolist() == [np.asarray(numbers[i]).tolist() for i in range(4)]
                    for i in range(4):
                        height, width = images.sizes[i].tolist()
                        ours = images.data[i, :, :height, :width].permute(1, 2, 0).numpy()
                        assert np.array_equal(ours, np.asarray(expected[i]))
                with pytest.raises(StopIteration):
                    pipe.run()
                pipe.reset()
        del pipe


@pytest.mark.parametrize("num_workers", [0, 1, 3])
def test_callback_epochs(num_workers):
    with td.DataLoader(td.SampleSource(S.UntilTheEnd()), batch_size=4, num_workers=num_workers, device="cpu") as one:
        for epoch in range(2):
            got = list(one)
            assert [len(batch["epoch"]) for batch in got] == [4, 4, 4, 4, 4, 3]
            assert {int(number) for batch in got for number in batch["epoch"]} == {epoch}
            assert [info[0] for batch in got for info in batch["index"]] == list(range(N))
            assert [info[1:] for info in got[-1]["index"]] == [[0, 5], [1, 5], [2, 5]]
        with pytest.raises(TypeError, match="no known length"):
            len(one)


@pytest.mark.processes
@pytest.mark.parametrize(("before", "after"), [(0, 2), (2, 0), (3, 1)])
def test_callback_resumes(before, after):
    def make(num_workers):
        return td.DataLoader(td.SampleSource(S.UntilTheEnd()), batch_size=4, num_workers=num_workers, device="cpu")

    assert_resumes_exactly(lambda: make(before), lambda: make(after), steps=True)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_callback_of_batches(num_workers):
    def make():
        source = td.SampleSource(S.batches, batch=True)
        return td.DataLoader(source, batch_size=4, num_workers=num_workers, device="cpu")

    got = [(numbers.tolist(), texts) for numbers, texts in make()]
    assert [len(numbers) for numbers, _ in got] == [3, 4, 5, 6] and got[3][0][:2] == [300, 301]
    assert got[0][1] == ["epoch 0"] * 3
    assert_resumes_exactly(make, every=1 + num_workers)


def test_callback_with_a_length():
    source = td.SampleSource(S.UntilTheEnd(), num_samples=10)
    with td.DataLoader(source, batch_size=4, device="cpu") as one:
        assert len(one) == 3 and [len(batch["epoch"]) for batch in one] == [4, 4, 2]
    with pytest.raises(TypeError, match="IterableSource"):
        td.SampleSource([1, 2, 3])
    with pytest.raises(ValueError, match="leave shuffle and sampler out"):
        td.DataLoader(source, shuffle=True)


# Iterables


@pytest.mark.parametrize("num_workers", [0, 1, 2, 3])
@pytest.mark.parametrize("cls", [S.Stream, S.SharedStream, S.StatefulStream])
def test_iterables_give_each_sample_once(cls, num_workers):
    with loader(cls(), num_workers, shuffle=False, persistent_workers=num_workers == 2) as one:
        epochs = [[index for indices, _ in one for index in indices.tolist()] for _ in range(2)]
    assert epochs[0] == epochs[1] and sorted(epochs[0]) == list(range(N))


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.filterwarnings("ignore:.*samples are iterated again:RuntimeWarning")
def test_iterables_resume_by_a_replay(num_workers):
    assert_resumes_exactly(lambda: loader(S.Stream(), num_workers, shuffle=False), every=2)


@pytest.mark.processes
def test_a_replay_warns():
    with loader(S.Stream(), 2, shuffle=False) as one:
        next(iter(one))
        state = one.state_dict()
    with loader(S.Stream(), 2, shuffle=False) as other:
        other.load_state_dict(state)
        with pytest.warns(RuntimeWarning, match="Stream has no state_dict: 8 samples are iterated again"):
            next(iter(other))
    with loader(S.Stream(), 2, shuffle=False, seed=4) as wrong:
        with pytest.raises(StateMismatchError, match="seed: expected 4, got 3"):
            wrong.load_state_dict(state)


@pytest.mark.processes
def test_iterables_over_ranks():
    got = []
    for rank in range(2):
        with loader(S.Stream(), 2, shuffle=False, rank=rank, world_size=2) as one:
            got += [index for indices, _ in one for index in indices.tolist()]
    assert sorted(got) == list(range(N))
    with loader(S.SharedStream(), 2, shuffle=False, rank=0, world_size=2) as one:
        with pytest.warns(RuntimeWarning, match="write shard='none'"):
            list(one)


@pytest.mark.processes
def test_an_endless_iterable_and_a_break():
    with loader(S.Forever(), 2, shuffle=False) as one:
        got = [batch.tolist() for batch in itertools.islice(one, 3)]
        assert got == [[0, 2, 4, 6], [1, 3, 5, 7], [8, 10, 12, 14]]
        assert next(iter(one)).tolist() == [0, 2, 4, 6]  # the next epoch


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_error_of_an_iterable(num_workers):
    with loader(S.Stream(fail_at=6), num_workers, shuffle=False) as one:
        iterator = iter(one)
        next(iterator)
        with pytest.raises(OSError, match="the stream broke"):
            next(iterator)


def test_iterable_sources():
    with loader(td.IterableSource([1, 2, 3]), shuffle=False) as one:
        assert [batch.tolist() for batch in one] == [[1, 2, 3]] and [batch.tolist() for batch in one] == [[1, 2, 3]]
    with pytest.raises(TypeError, match="can be iterated only once"):
        td.IterableSource(iter([1]))
    with loader(S.Stream(0), shuffle=False) as one:
        assert list(one) == []


# Ends, and what a source without an end can't do


@pytest.mark.parametrize("num_workers", [0, 2])
def test_drop_last_of_sources_that_end_by_themselves(num_workers):
    """As in torch: of an iterable, each worker drops its own last part."""
    with td.DataLoader(
        td.SampleSource(S.UntilTheEnd()), batch_size=4, num_workers=num_workers, device="cpu", drop_last=True
    ) as one:
        assert [len(batch["epoch"]) for batch in one] == [4] * 5
    with td.DataLoader(
        td.SampleSource(S.UntilTheEnd(), num_samples=10), batch_size=4, num_workers=num_workers, drop_last=True
    ) as one:
        assert len(one) == 2 and [len(batch["epoch"]) for batch in one] == [4, 4]
    with loader(S.Stream(), num_workers, shuffle=False, drop_last=True) as one:
        theirs = torch.utils.data.DataLoader(S.Stream(), 4, num_workers=0, drop_last=True)
        lengths = [len(index) for index, _ in one]
        assert lengths == [4] * 5  # of two workers, 3 and 2
        if not num_workers:
            assert lengths == [len(index) for index, _ in theirs]


@pytest.mark.parametrize("source", [S.Stream(), td.SampleSource(S.UntilTheEnd())], ids=["iterable", "callback"])
def test_what_a_source_without_an_end_can_not_do(source):
    with pytest.raises(ValueError, match="last batch is not filled: leave pad_last out"):
        td.DataLoader(source, pad_last=True)
    with pytest.raises(ValueError, match="has no other sample to take by its index: write on_bad_sample='skip'"):
        td.DataLoader(source, on_bad_sample="substitute")
    with pytest.raises(ValueError, match="batch=True makes batches of any size"):
        td.SampleSource(S.batches, batch=True, num_samples=3)


def test_an_iterable_is_not_sought():
    """It can only go on where a state says."""
    with loader(S.Stream(), shuffle=False) as one:
        with pytest.raises(ValueError, match=r"can't be sought.*load a state"):
            one.seek(0, 2)
        one.seek(3, 0)
        assert one.epoch == 3


def test_whole_batches_go_on_with_another_batch_size():
    """Their position counts batches, so what the loader is told of sizes does not matter."""

    def make(batch_size):
        return td.DataLoader(td.SampleSource(S.batches, batch=True), batch_size=batch_size, device="cpu")

    assert_resumes_exactly(lambda: make(4), lambda: make(1), steps=True)
    keys = []

    def note(sample, rand):
        keys.append(np.asarray(rand.host.words()).tolist())
        return sample

    source = td.SampleSource(lambda info: (S.batches(info)[0][:, None],), batch=True, fields=["x"])
    list(td.DataLoader(source, transform=note, device="cpu", engine="eager", prefetch_factor=0))
    drawn = [key for batch in keys for key in batch]
    assert len(drawn) >= 18 and len(set(drawn)) == len(drawn)


@pytest.mark.processes
def test_loaders_may_share_a_source():
    """Each has workers of its own."""
    source = td.PythonDataset(S.Plain())
    with loader(source, 2, persistent_workers=True) as one, loader(source) as other:
        assert_same_stream(lambda: one, lambda: other, epochs=1)
        assert one.source.pools is not other.source.pools


def test_a_loader_pickles_after_a_pass_over_an_iterable():
    one = loader(S.Stream(), shuffle=False)
    next(iter(one))
    other = pickle.loads(pickle.dumps(one))
    assert len(list(other)) == 6


def test_a_field_may_be_a_path():
    source = td.PythonDataset(S.Forms("tuple"), fields=["picture", "path"])
    assert next(iter(loader(source, transform=T.Resize((4, 4)), output="dict")))["path"].dtype == torch.int64


@pytest.mark.processes
def test_the_worker_that_reads_out_of_turn_ends_with_the_pass():
    """It takes the place of a bad sample in the last batch, when the others have ended."""
    with loader(S.Faulty("raise"), 1, shuffle=False, batch_size=N, on_bad_sample="substitute") as one:
        assert len(next(iter(one))) == N and one.bad_samples
        list(one)
        assert wait_until(lambda: not workers())


def test_nested_batches_have_digests():
    one, other = (next(iter(loader(S.Forms("nested"), shuffle=False))) for _ in range(2))
    digests = sample_digests(one)
    assert digests == sample_digests(other) and len(set(digests)) == 4
    assert_resumes_exactly(lambda: loader(S.Forms("dataclass")))


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"multiprocessing_context": "thread"}, ValueError, "multiprocessing_context must be one of"),
        ({"worker_init_fn": 3}, TypeError, "worker_init_fn must be callable"),
        ({"pickler": 3}, TypeError, "pickler must be a module with dumps and loads"),
    ],
)
def test_wrong_options_of_workers_are_said_at_construction(options, error, match):
    with pytest.raises(error, match=match):
        loader(num_workers=1, **options)
    with pytest.raises(TypeError, match="ragged must be a list of names"):
        td.PythonDataset(S.Plain(), ragged="ragged")


@pytest.mark.parametrize("num_workers", [0, 1])
def test_generator_functions(num_workers):
    """What DALI takes as a source too; each pass calls it anew."""
    with loader(td.IterableSource(S.generate), num_workers, shuffle=False) as one:
        epochs = [[index for indices, _ in one for index in indices.tolist()] for _ in range(2)]
    assert epochs == [list(range(N))] * 2
    with pytest.raises(TypeError, match="a generator can be iterated only once: write the function that makes it"):
        td.IterableSource(S.generate())


# The structure


class LateFiles(S.Plain):
    """The first half of the files is gone."""

    def __init__(self, first: int, n: int = 40) -> None:
        super().__init__(n)
        self.first = first

    def __getitem__(self, index):
        if index < self.first:
            raise FileNotFoundError(f"{index}.jpg")
        return index, np.full(2, index, np.float32)


class Unasked(S.Plain):
    """Only samples that a sampler names exist."""

    def __init__(self, only) -> None:
        super().__init__(100)
        self.only = set(only)

    def __getitem__(self, index):
        assert index in self.only, index
        return index


@pytest.mark.parametrize("num_workers", [0, 1])
def test_the_structure_comes_from_the_passs_own_samples(num_workers):
    with loader(Unasked(range(50, 60)), num_workers, shuffle=False, sampler=list(range(50, 60))) as one:
        assert [n for batch in one for n in batch.tolist()] == list(range(50, 60))
    with loader(Unasked(range(90, 100)), num_workers, shuffle=False) as one:
        one.seek(0, 23)
        assert [n for batch in one for n in batch.tolist()] == list(range(92, 100))


@pytest.mark.parametrize("num_workers", [0, 1])
def test_the_first_files_are_gone(num_workers):
    """They are bad samples like any others: the loader moves on, or takes others in their place."""
    with loader(LateFiles(20), num_workers, shuffle=False) as one:
        batches = iter(one)
        for number in range(5):
            with pytest.raises(FileNotFoundError, match=f"{4 * number}.jpg"):
                next(batches)
        assert [n for batch in batches for n in batch[0].tolist()] == list(range(20, 40))
    with loader(LateFiles(20), num_workers, shuffle=False, on_bad_sample="substitute") as one:
        assert sum(len(batch[0]) for batch in one) == 40
        assert sorted({bad.index for bad in one.bad_samples}) == list(range(20))
    with loader(LateFiles(40), num_workers) as one, pytest.raises(FileNotFoundError, match=r"\d+.jpg"):
        next(iter(one))


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_failing_first_answer_of_a_callback(num_workers):
    def answer(info):
        if info.epoch_idx == 0 and info.idx_in_epoch == 0:
            raise LookupError("no answer")
        if info.idx_in_epoch >= 8:
            raise StopIteration
        return list(info)

    with td.DataLoader(td.SampleSource(answer), batch_size=4, num_workers=num_workers, device="cpu") as one:
        batches = iter(one)
        with pytest.raises(LookupError, match="no answer"):
            next(batches)
        assert len(list(batches)) == 1


class AsText(S.Plain):
    """Values that may be taken for others: bytes of no image, a mask like an image, a number."""

    def __getitem__(self, index):
        return {"data": picture_or_none(index), "mask": np.zeros((4, 5, 3), np.uint8), "id": index}


def picture_or_none(index):
    return b"x" * (index + 1) if index < 12 else S.picture(index)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_kinds_overrule_the_guess(num_workers):
    kinds = {"mask": "array", "id": "object", "data": "object"}
    with loader(td.PythonDataset(AsText(), kinds=kinds), num_workers, shuffle=False) as one:
        assert words(one.source.kinds) == {"data": "object", "mask": "array", "id": "object"}
        batch = next(iter(one))
        assert batch["id"] == [0, 1, 2, 3] and batch["mask"].shape == (4, 4, 5, 3)
        assert batch["data"] == [b"x", b"xx", b"xxx", b"xxxx"]
    for source in (
        td.IterableSource([AsText()[i] for i in range(4)], kinds=kinds),
        td.SampleSource(lambda info: AsText()[info.idx_in_epoch], kinds=kinds, num_samples=4),
    ):
        with loader(source, num_workers, shuffle=False) as one:
            assert next(iter(one))["mask"].shape == (4, 4, 5, 3)


def test_wrong_kinds():
    def first(**kinds):
        next(iter(loader(td.PythonDataset(AsText(), kinds=kinds))))

    with pytest.raises(ValueError, match="kinds must hold kinds"):
        first(mask="picture")
    with pytest.raises(ValueError, match=r"kinds must name fields among data, mask, id, got 'masks'.*mask"):
        first(masks="array")
    with pytest.raises(FieldTypeError, match="'id' must be an image"):
        first(id="image")
    with pytest.raises(FieldTypeError, match="'mask' must be a number"):
        first(mask="number")


def test_a_callback_without_shards_is_warned_about_once():
    def answer(info):
        if info.idx_in_epoch >= 4:
            raise StopIteration
        return info.idx_in_epoch

    class Sharded:
        def __init__(self, shard_id):
            self.shard_id = shard_id

        def __call__(self, info):
            return answer(info)

    def make(callback):
        return td.DataLoader(td.SampleSource(callback), batch_size=4, device="cpu", rank=1, world_size=2)

    with make(answer) as one:
        with pytest.warns(RuntimeWarning, match="2 ranks asks its own callback, and nothing .* has shard_id"):
            list(one)
        list(one)
    for callback in (Sharded(1), Sharded(1).__call__, functools.partial(lambda info, rank: rank, rank=3)):
        with make(callback) as one:
            next(iter(one))
