"""Threads, ends and leftovers.  The fixture in conftest.py checks after every test that no thread is left."""

from __future__ import annotations

import contextlib
import gc
import pickle
import re
import signal
import subprocess
import sys
import textwrap
import threading
import weakref

import numpy as np
import psutil
import pytest
import torch

import torchdali as td
import torchdali.iterator
import torchdali.passes
from torchdali import transforms as T
from torchdali.engine.fetch import Fetcher
from torchdali.engine.threads import SampleThreads
from torchdali.prefetch import Prefetcher
from torchdali.testing import garble_file, make_image_folder, sample_digests
from torchdali.threads import DaemonThreads

from .conftest import our_threads
from .launcher import finish, start_code
from .patience import PATIENCE, wait_until

TRANSFORM = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip()])


@pytest.fixture
def make(folder):
    def make(**changes):
        arguments = dict(batch_size=4, shuffle=True, seed=5, device="cpu", transform=TRANSFORM) | changes
        return td.DataLoader(td.ImageFolder(folder, fields=("image", "index")), **arguments)

    return make


def all_threads_end() -> bool:
    return wait_until(lambda: not our_threads())


@pytest.mark.parametrize("engine", ["eager", "pipeline"])
def test_a_dropped_iterator_ends_its_threads(make, engine):
    loader = make(engine=engine)
    iterator = iter(loader)
    next(iterator)
    assert our_threads()
    del iterator
    assert all_threads_end()


def test_a_break_ends_the_threads_and_the_loader_can_be_collected(make):
    loader = make()
    for _ in loader:
        break
    assert all_threads_end()
    gone = weakref.ref(loader)
    del loader
    gc.collect()
    assert gone() is None


def test_iter_alone_does_nothing(make):
    loader = make()
    before = loader.state_dict()
    iterators = [iter(loader) for _ in range(3)]
    assert not our_threads() and loader.state_dict() == before
    del iterators


def test_close_in_mid_epoch(make):
    loader = make()
    iterator = iter(loader)
    next(iterator)
    loader.close()
    assert not our_threads()
    loader.close()
    with pytest.raises(RuntimeError, match="ended by close"):
        next(iterator)
    assert loader.state_dict()["samples_seen"] == 4 and not loader.state_dict()["finished"]
    assert len(list(loader)) == 6 and loader.state_dict()["epoch"] == 1


def test_context_manager(make):
    with make() as loader:
        next(iterator := iter(loader))
        assert our_threads()
    assert not our_threads()
    del iterator


def test_nested_iteration(make):
    """As with torch: the passes are independent; the state follows the one begun last."""
    loader = make()
    pairs = [(a[1].tolist(), b[1].tolist()) for a in loader for b in loader]
    assert len(pairs) == 36
    # The outer pass was epoch 0, and the inner ones are epochs 1 to 6.
    outer = [index.tolist() for _, index in make()]
    assert [a for a, _ in pairs[::6]] == outer
    assert loader.state_dict()["epoch"] == 6


def test_two_loaders_at_once_in_one_thread(make):
    one, other = make(), make(engine="pipeline", seed=6)
    alone = [sample_digests(batch) for batch in make()], [sample_digests(batch) for batch in make(seed=6)]
    both = [(sample_digests(a), sample_digests(b)) for a, b in zip(one, other, strict=True)]
    assert ([a for a, _ in both], [b for _, b in both]) == alone


def test_two_loaders_in_two_threads(make):
    results = {}

    def read(name, **changes):
        results[name] = [sample_digests(batch) for _ in range(3) for batch in make(**changes)]

    threads = [
        threading.Thread(target=read, args=(name,), kwargs=changes)
        for name, changes in {
            "a": {}, "b": {"engine": "pipeline"}, "c": {"prefetch_factor": 0}, "d": {"engine": "debug"}
        }.items()
    ]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results["a"] == results["b"] == results["c"] == results["d"]


def test_an_iterator_may_move_to_another_thread_and_die_there(make):
    iterator = iter(make(engine="pipeline"))
    next(iterator)
    box = [iterator]
    del iterator
    thread = threading.Thread(target=lambda: (next(box[0]), box.clear()))
    thread.start()
    thread.join(30)
    assert not box and all_threads_end()


def test_an_exception_in_the_training_loop_that_is_kept(make):
    def train():
        for _ in make():
            raise RuntimeError("loss is NaN")

    with pytest.raises(RuntimeError) as kept:
        train()
    assert all_threads_end()
    assert kept.value


def test_a_loader_error_that_is_kept_keeps_no_threads(own_folder):
    garble_file(next(own_folder.rglob("*.jpg")))
    loader = td.DataLoader(td.ImageFolder(own_folder), 4, device="cpu", transform=TRANSFORM)
    kept = []
    try:
        for _ in loader:
            pass
    except td.BadSampleError as error:
        kept.append(error)
    assert kept[0].__cause__ is not None and all_threads_end()


@pytest.mark.parametrize("prefetch", [0, 2])
def test_an_iterables_error_keeps_no_threads_in_dalis_pipeline(folder, prefetch):
    """The pipeline's callback still knows the work; no garbage collection could see through it."""
    files = [np.fromfile(path, np.uint8) for path in sorted(folder.rglob("*.jpg"))[:4]]

    class Failing(torch.utils.data.IterableDataset):
        def __iter__(self):
            for data in files:
                yield {"image": data}
            raise OSError("the stream is gone")

    def train():
        source = td.IterableSource(Failing(), kinds={"image": "encoded"})
        batches = iter(td.DataLoader(source, 2, device="cpu", transform=T.RandomCrop(8), prefetch_factor=prefetch))
        while True:  # the traceback's frame has the iterator
            next(batches)

    with pytest.raises(OSError, match="the stream is gone"):
        train()
    assert not our_threads()


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_batch_outlives_everything(make, prefetch):
    """Its memory is its own until the last view is gone."""
    loader = make(prefetch_factor=prefetch)
    held = [(batch[0][:, :, 3:7], sample_digests(batch), batch) for _ in range(3) for batch in loader]
    views = [view for view, _, _ in held]
    copies = [view.clone() for view in views]
    digests = [digest for _, digest, _ in held]
    assert [sample_digests(batch) for _, _, batch in held] == digests
    del held, loader
    gc.collect()
    list(make())
    assert all(torch.equal(view, copy) for view, copy in zip(views, copies, strict=True))


def test_memory_is_reused_when_the_last_view_is_gone(make):
    loader = make(batch_size=2)
    for _ in range(3):
        addresses = [image.data_ptr() for image, _ in loader]
        assert len(addresses) == 11 > len(set(addresses))  # few are made ahead, so that some come again in a pass
    loader = make(batch_size=11)
    for _ in range(10):
        hold = [image[0, 0, 0, :1] for image, _ in loader]  # a view of one number holds its batch
        assert len({view.untyped_storage().data_ptr() for view in hold}) == 2


def test_the_timeout_names_the_stage(folder, capsys):
    entered, gate = threading.Event(), threading.Event()

    def stuck(sample, rand):
        entered.set()
        gate.wait(PATIENCE)
        return sample

    loader = td.DataLoader(
        td.ImageFolder(folder), 4, device="cpu", transform=T.Compose([T.Decode(), T.Resize((8, 8)), stuck]), timeout=0.1
    )
    iterator = iter(loader)
    while not entered.is_set():  # on a busy machine it may be slow before
        with pytest.raises(td.LoaderTimeoutError, match=r"no batch within 0\.1 s"):
            next(iterator)
    words = r"no batch within 0\.1 s.*decode at epoch 0, sample 0, for \d+ s.*The last batch ended at epoch 0, sample 0"
    with pytest.raises(td.LoaderTimeoutError, match=words):
        next(iterator)
    shown = capsys.readouterr().err  # where the threads stand
    assert "torchdali: no batch within 0.1 s" in shown
    assert re.search(r"thread torchdali-decode:\n(.*\n)+.*, in stuck\n *gate\.wait", shown), shown
    gate.set()
    for _ in range(1000):
        with contextlib.suppress(td.LoaderTimeoutError):
            assert len(next(iterator)[0]) == 4  # it was only slow
            break
    else:
        raise AssertionError


def test_a_stage_that_stands_still_is_no_workers_fault(folder, capsys):
    """Workers watch each sample, and the loader the stages after them."""
    gate = threading.Event()
    files = [np.fromfile(path, np.uint8) for path in sorted(folder.rglob("*.jpg"))[:4]]

    def stuck(sample, rand):
        gate.wait(PATIENCE)
        return sample

    dataset = td.PythonDataset([{"image": data} for data in files], kinds={"image": "encoded"})
    transform = T.Compose([T.Decode(), T.Resize((8, 8)), stuck])
    with td.DataLoader(dataset, 2, device="cpu", transform=transform, timeout=2, num_workers=1) as loader:
        iterator = iter(loader)
        with pytest.raises(td.LoaderTimeoutError, match=r"no batch within 2 s.*decode at epoch 0, sample 0, for"):
            next(iterator)
        gate.set()
        assert len(list(iterator)) == 2
    assert "in stuck" in capsys.readouterr().err


def test_a_thread_that_does_not_end_is_named(folder, monkeypatch, capsys):
    entered, gate = threading.Event(), threading.Event()

    def stuck(sample, rand):
        entered.set()
        gate.wait(PATIENCE)
        return sample

    monkeypatch.setattr("torchdali.engine.run.JOIN_TIMEOUT", 0.1)
    transform = T.Compose([T.Decode(), T.Resize((8, 8)), stuck])
    loader = td.DataLoader(td.ImageFolder(folder), 4, device="cpu", transform=transform, timeout=0.1)
    iterator = iter(loader)
    while not entered.is_set():
        with pytest.raises(td.LoaderTimeoutError):
            next(iterator)
    with pytest.warns(RuntimeWarning, match=r"torchdali-decode.* did not end within 0\.1 s, and .*decode at epoch 0"):
        loader.close()
    gate.set()
    assert "in stuck" in capsys.readouterr().err


def test_pickles_before_and_in_an_epoch(make):
    loader = make()
    again = pickle.loads(pickle.dumps(loader))
    iterator = iter(loader)
    first = sample_digests(next(iterator))
    assert sample_digests(next(iter(again))) == first
    middle = pickle.loads(pickle.dumps(loader))
    assert middle.state_dict() == loader.state_dict()


FORKED = """
    import os, sys, warnings, torchdali as td
    warnings.simplefilter("ignore")  # Python 3.12 warns of a fork beside threads: that is what is tried here
    loader = td.DataLoader(td.ImageFolder(sys.argv[1]), 4, device="cpu", uniform=["image"],
                           transform=td.transforms.Resize((24, 24)), prefetch_factor=PREFETCH)
    iterator = iter(loader)
    next(iterator)
    if os.fork() == 0:
        for attempt in (iterator, iter(loader)):
            try:
                next(attempt)
            except RuntimeError as error:
                print(error, flush=True)
        os._exit(0)
    os.wait()
    loader.close()
"""


@pytest.mark.processes
@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_forked_child_is_told(folder, tmp_path, prefetch):
    """DALI's threads did not come along: the open iterator, and a new one, would hang.

    It forks from a process of its own: what other libraries leave in the tests' process may not survive a fork.
    """
    text = textwrap.dedent(FORKED).replace("PREFETCH", str(prefetch))
    told, _ = finish(start_code(text, tmp_path, folder))
    assert "made in another process" in told and "forked from" in told


BUSY = """
    import sys, warnings, torchdali as td
    warnings.simplefilter("error")
    from torchdali import transforms as T
    def make(engine):
        files = [path for path, _ in td.ImageFolder(sys.argv[1]).samples] * 99  # busy to the end
        return td.DataLoader(td.FileDataset(files), 16, shuffle=True, device="cpu", engine=engine,
                             transform=T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip()]))
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    "end",
    [
        "it = iter(loader); next(it)",
        "it = iter(loader); next(it); sys.exit(3)",
        "it = iter(loader); next(it); raise KeyError('oops')",
        "keep = []\nfor batch in loader: keep.append((batch, loader)); break",
        "cycle = [loader, iter(loader)]; next(cycle[1]); cycle.append(cycle)",
    ],
)
def test_the_interpreter_exits_with_a_busy_loader(folder, tmp_path, end):
    engine = "pipeline" if "exit" in end or "cycle" in end else "eager"
    text = textwrap.dedent(BUSY) + f"loader = make({engine!r})\n{end}\n"
    expected = 3 if "exit(3)" in end else 1 if "raise" in end else 0
    _, errors = finish(start_code(text, tmp_path, folder), expected)
    assert errors == "" or "oops" in errors


@pytest.mark.processes
@pytest.mark.parametrize("engine", ["eager", "pipeline"])
def test_ctrl_c(folder, tmp_path, engine):
    text = textwrap.dedent(BUSY) + textwrap.dedent(
        f"""
        loader = make({engine!r})
        try:
            while True:
                for batch in loader:
                    print("batch", flush=True)
        except KeyboardInterrupt:
            loader.close()
            import threading
            print(sorted(t.name for t in threading.enumerate() if t.name.startswith("torchdali")), flush=True)
            raise
        """
    )
    command = [sys.executable, "-W", "error", "-c", text, str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for _ in range(3):
        assert process.stdout.readline() == "batch\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGINT and out.endswith("[]\n"), (out[-200:], err)
    assert err.strip().endswith("KeyboardInterrupt") and "Exception ignored" not in err


def test_an_interrupt_in_the_callers_thread_is_not_the_end_of_the_epoch(folder):
    def interrupted(sample, rand):
        raise KeyboardInterrupt

    loader = td.DataLoader(td.ImageFolder(folder), 4, device="cpu", transform=interrupted, prefetch_factor=0)
    iterator = iter(loader)
    with pytest.raises(KeyboardInterrupt):
        next(iterator)
    with pytest.raises(RuntimeError, match="ended by close"):
        next(iterator)
    assert not loader.state_dict()["finished"]


@pytest.mark.parametrize("where", ["get", "_hand_over"])
def test_an_interrupt_after_a_batch_has_left_its_queue_loses_nothing(make, where, monkeypatch):
    """It may come between any two instructions; the batch is made again."""
    expected = [sample_digests(batch) for batch in make()]
    loader, calls = make(), []
    owner = Prefetcher if where == "get" else torchdali.iterator
    original = getattr(owner, where)

    def interrupted(*arguments):
        got = original(*arguments)
        if threading.current_thread() is threading.main_thread():
            calls.append(where)
            if len(calls) in (1, 3, 4):
                raise KeyboardInterrupt
        return got

    monkeypatch.setattr(owner, where, interrupted)
    found, iterator = [], iter(loader)
    while True:
        try:
            found.append(sample_digests(next(iterator)))
        except StopIteration:
            break
        except KeyboardInterrupt:
            continue
    assert found == expected and len(calls) >= len(expected) + 3


def test_an_interrupt_while_a_pass_begins_skips_no_epoch(make, monkeypatch):
    loader, original = make(), torchdali.passes.OpenPass

    def interrupted(**arguments):
        monkeypatch.setattr(torchdali.passes, "OpenPass", original)
        raise KeyboardInterrupt

    before, iterator = loader.state_dict(), iter(loader)
    monkeypatch.setattr(torchdali.passes, "OpenPass", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(iterator)
    assert loader.state_dict() == before and loader.epoch == 0
    assert [sample_digests(batch) for batch in iterator] == [sample_digests(batch) for batch in make()]


@pytest.mark.processes
def test_what_importing_torchdali_imports(folder):
    """Neither DALI, which takes seconds, nor a package that not everyone has; folders need no torchvision."""
    text = f"import sys, torchdali, torchdali.testing; torchdali.ImageFolder({str(folder)!r}); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", text], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0 and not done.stderr, done.stderr
    imported = {*done.stdout.split()}
    assert "torchdali.testing" in imported
    assert not imported & {"nvidia.dali", "lightning", "pytorch_lightning", "torchvision"}


@pytest.mark.slow
def test_threads_memory_and_files_are_flat_over_breaks_seeks_and_bad_samples(tmp_path):
    """A short form of benchmarks/soak.py."""
    root = make_image_folder(tmp_path, classes=2, per_class=8)
    garble_file(next(root.rglob("*.jpg")))
    loader = td.DataLoader(
        td.ImageFolder(root), 4, shuffle=True, device="cpu", transform=TRANSFORM, on_bad_sample="substitute"
    )
    me = psutil.Process()
    first = None
    for number in range(60):
        loader.seek(number, number % 3)
        for _ in loader:
            if number % 2:
                break
        if number == 20:
            gc.collect()
            first = me.num_threads(), me.num_fds(), me.memory_info().rss
    gc.collect()
    last = me.num_threads(), me.num_fds(), me.memory_info().rss
    assert last[0] <= first[0] + 1 and last[1] <= first[1] + 1
    assert last[2] - first[2] < 30 * 2**20


@pytest.mark.processes
def test_dali_in_a_forked_process_is_an_error_and_no_hang(folder, tmp_path):
    """Somebody's own operators too, not only the loader's."""
    script = f"""
        import os, sys, torch, torchdali as td
        from torchdali import transforms as T
        import nvidia.dali.experimental.dynamic as ndd
        next(iter(td.DataLoader(td.ImageFolder({str(folder)!r}), transform=T.Resize((8, 8)), device="cpu")))
        child = os.fork()
        if not child:
            try:
                ndd.flip(ndd.as_tensor(torch.zeros(4, 4, 3, dtype=torch.uint8), layout="HWC"), horizontal=1).evaluate()
            except RuntimeError as error:
                os._exit(7 if "forked" in str(error) else 8)
            os._exit(9)
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """
    finish(start_code(script, tmp_path), 7)


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_ctrl_c_while_threads_start(make, monkeypatch, stage):
    """A thread that has started when it comes ends, though no one has heard of it."""
    starts, begin = [], Prefetcher.start

    def interrupted(self):
        begin(self)
        starts.append(self)
        if len(starts) == stage + 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(Prefetcher, "start", interrupted)
    loader = make()
    iterator = iter(loader)
    with pytest.raises(KeyboardInterrupt):
        next(iterator)
    assert all_threads_end()
    monkeypatch.undo()
    assert len(list(loader)) == len(loader)


def test_ctrl_c_before_the_run_is_known(make, monkeypatch):
    loader = make()
    iterator = iter(loader)

    def interrupted(self, *_):
        raise KeyboardInterrupt

    monkeypatch.setattr(torchdali.passes.Passes, "_open", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(iterator)
    assert all_threads_end()
    monkeypatch.undo()
    assert len(list(loader)) == len(loader)


def test_ctrl_c_while_host_threads_start(monkeypatch):
    """They end at once, and torch has its number of threads again."""
    before, start, calls = torch.get_num_threads(), threading.Thread.start, []

    def interrupted(self):
        calls.append(self)
        start(self)
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        SampleThreads(3).each(lambda part: None, 3)
    monkeypatch.undo()
    assert wait_until(lambda: not our_threads(), 5) and torch.get_num_threads() == before


def test_host_threads_that_no_one_closes_end():
    """As where Ctrl-C comes before they are known to their owner, or while it closes them."""
    threads = DaemonThreads(2, "torchdali-host")
    assert threads.map(lambda value: value + 1, range(9)) == list(range(1, 10)) and our_threads()
    del threads
    assert wait_until(lambda: not our_threads(), 5)


def test_a_timeout_of_the_source_is_not_that_of_a_batch(monkeypatch):
    """A socket's, say: it ends the pass as what it is, without a limit of the loader's too."""

    def late(*_):
        raise TimeoutError("the disk's server does not answer")

    for timeout in (0, 60):
        loader = td.DataLoader(td.InMemoryDataset(x=np.arange(8)), 2, device="cpu", timeout=timeout)
        with monkeypatch.context() as patch, pytest.raises(TimeoutError, match=r"^the disk's server") as raised:
            patch.setattr(Fetcher, "works", late)
            next(iter(loader))
        assert not isinstance(raised.value, td.LoaderTimeoutError)
        loader.close()
