"""`stream=`: the loader on PyTorch's current stream, or on one of the user's, beside a training that is at work."""

from __future__ import annotations

import numpy as np
import nvidia.dali.experimental.dynamic as ndd
import pytest
import torch

import torchdali as td
from torchdali import _dali
from torchdali import transforms as T
from torchdali.testing import sample_digests

from . import MACHINE, gpu_only
from .cases_loaders import EXECUTIONS, GPU_1, make, rotate, train, use  # noqa: F401
from .cases_readers import OnlyGPU

CROP = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip()])
CHOICES = pytest.mark.parametrize("choice", ["current", "default", "own"])


def busy(loader):
    """Give the batches of a training whose stream is never at rest, and which uses them late."""
    for batch in loader:
        torch.cuda._sleep(1)
        use(batch)
        yield batch
        use(batch)


def chosen(choice, device="cuda:0"):
    """The stream that the training works on, and the option of the loader."""
    if choice == "default":
        return torch.cuda.default_stream(torch.device(device)), "current"
    own = torch.cuda.Stream(torch.device(device))
    return own, own if choice == "own" else "current"


def passes_on(stream, loader) -> None:
    """Two passes beside a busy training on a stream, which also makes all batches."""
    with torch.cuda.stream(stream):
        for _ in range(2):
            for batch in busy(loader):
                for value in batch:
                    for tensor in value if isinstance(value, td.Padded) else (value,):
                        assert {buffer.use.stream for buffer in tensor.buffers} == {stream.queue}


@pytest.mark.parametrize(
    "engine, prefetch, choice",
    [
        *((*execution, "current") for execution in EXECUTIONS),
        *((*execution, choice) for execution in (EXECUTIONS[0], EXECUTIONS[3]) for choice in ("default", "own")),
    ],
)
def test_batches_are_made_on_that_stream(make, engine, prefetch, choice):  # noqa: F811
    stream, option = chosen(choice)
    passes_on(stream, make(engine=engine, prefetch_factor=prefetch, transform=CROP, stream=option))


@pytest.mark.parametrize("engine, prefetch", EXECUTIONS[:4])
def test_functions_and_ragged_batches_are_made_there_too(make, engine, prefetch):  # noqa: F811
    for transform in (T.RandomHorizontalFlip(), None, rotate):
        engine = "auto" if transform is rotate else engine
        stream = torch.cuda.Stream()
        passes_on(stream, make(engine=engine, prefetch_factor=prefetch, transform=transform, stream="current"))


@CHOICES
def test_it_is_the_same_stream_of_batches(make, choice):  # noqa: F811
    expected = [sample_digests(batch) for batch in make(transform=CROP)]
    stream, option = chosen(choice)
    with torch.cuda.stream(stream):
        assert [sample_digests(batch) for batch in make(stream=option, transform=CROP)] == expected


def test_the_current_stream_is_that_of_each_pass(make):  # noqa: F811
    loader = make(stream="current", transform=CROP)
    for _ in range(2):
        own = torch.cuda.Stream()
        with torch.cuda.stream(own):
            for images, _ in busy(loader):
                assert {buffer.use.stream for buffer in images.buffers} == {own.queue}


def test_batches_may_be_used_on_another_stream(make):  # noqa: F811
    for prefetch in (0, 2):
        assert train(make(stream=torch.cuda.Stream(), prefetch_factor=prefetch, transform=CROP)) == 3


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.hazards_expected
def test_the_users_operators_on_that_stream(make, monkeypatch, waits):  # noqa: F811
    """They leave memory that the stream still uses, and a decoder may get it: without a wait it would be too early."""
    own = torch.cuda.Stream()
    image = np.zeros((40, 30, 3), np.uint8)
    begin = _dali.Session.__init__

    def unshared(self, *arguments):
        begin(self, *arguments)
        self._shared = waits

    monkeypatch.setattr(_dali.Session, "__init__", unshared)
    with torch.cuda.stream(own):
        for images, _ in make(stream="current", prefetch_factor=0, engine="eager", transform=CROP):
            with ndd.EvalContext(num_threads=1, device_id=0, cuda_stream=own):
                ndd.resize(ndd.as_tensor(image, layout="HWC").gpu(), size=[8, 8]).evaluate()
            use((images,))
    assert {hazard.split(":")[0] for hazard in MACHINE.hazards} == (set() if waits else {"decode-early"})


@pytest.mark.parametrize("prefetch", [0, 2])
def test_readers(tmp_path, prefetch):
    for i in range(12):
        np.save(tmp_path / f"{i:02}.npy", np.full((4, 5), i, np.float32))
    own = torch.cuda.Stream()
    with gpu_only(ndd.readers.Numpy), torch.cuda.stream(own):
        loader = td.DataLoader(
            OnlyGPU(file_root=str(tmp_path)), batch_size=4, device="cuda", stream="current", prefetch_factor=prefetch
        )
        assert [value for (x,) in busy(loader) for value in x[:, 0, 0].tolist()] == list(range(12))


def test_counts(make):  # noqa: F811
    """Two waits per batch, for the training and for the batch, and none for another stream."""
    own = torch.cuda.Stream()
    loader = make(stream=own, engine="eager", transform=T.RandomResizedCrop(24))
    list(loader)
    MACHINE.reset()
    assert len(list(loader)) == 3
    waits = {what: n for (_, what), n in MACHINE.counts.items() if what.startswith("wait")}
    assert waits == {"wait: stream.synchronize": 6} and "default stream waited for" not in waits


def test_a_stream_of_another_gpu(make):  # noqa: F811
    with pytest.raises(ValueError, match=r"stream must be one of the loader's device, cuda:0, got .* of cuda:1"):
        next(iter(make(device="cuda:0", stream=torch.cuda.Stream(GPU_1))))
    with pytest.raises(ValueError, match=r"stream must be one of the loader's device, cpu, got"):
        next(iter(make(device="cpu", stream=torch.cuda.Stream(GPU_1))))
    assert len(list(make(device="cpu", stream="current"))) == 3


def test_decoder_threads_are_tied_to_cores_where_one_rank_is_alone(make, monkeypatch):  # noqa: F811
    given = []
    image = ndd.decoders.image

    def noted(*arguments, **keywords):
        given.append(keywords.get("affine"))
        return image(*arguments, **keywords)

    monkeypatch.setattr(ndd.decoders, "image", noted)
    for ranks, tied in ((None, False), ("2", False), ("1", True)):
        if ranks:
            monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
        for device, affine in (("cuda", tied), ("cpu", None)):
            given.clear()
            list(make(engine="eager", transform=T.Resize((8, 8)), device=device, rank=0, world_size=1))
            assert set(given) == {affine}
