"""Native readers whose outputs are on a pretended GPU, beside a default stream that is busy with the training."""

from __future__ import annotations

from collections import Counter

import numpy as np
import nvidia.dali.experimental.dynamic as ndd
import pytest
import torch

import torchdali as td
from torchdali import transforms as T
from torchdali.readers import base, numpy, on_gpu

from . import MACHINE, gpu_only, watched
from .cases_loaders import GPU_1, in_a_new_thread, train

PREFETCH = pytest.mark.parametrize("prefetch", [0, 2])


class OnlyGPU(on_gpu.OnGPU, numpy.Numpy):
    """A reader that needs a GPU, as Video does."""


class Labels(OnlyGPU):
    """The same for labels, which Video gives as arrays of one on the GPU."""

    def describe(self, fields):
        return [base.Output("label", "number", lambda value: value.reshape(-1)[0])]


@pytest.fixture
def reader_on_gpu():
    with gpu_only(ndd.readers.Numpy):
        yield


@pytest.fixture
def arrays(tmp_path):
    for i in range(12):
        np.save(tmp_path / f"{i:02}.npy", np.full((4, 5), i, np.float32))
    return str(tmp_path)


@pytest.fixture
def ragged(tmp_path):
    for i in range(12):
        np.save(tmp_path / f"{i:02}.npy", np.full((4 + i % 3, 5), i, np.float32))
    return str(tmp_path)


@pytest.fixture
def labels(tmp_path):
    for i in range(32):
        np.save(tmp_path / f"{i:02}.npy", np.array([i], np.int32))
    return str(tmp_path)


def busy(loader):
    """Give the loader's batches, while the default stream is never at rest."""
    for batch in loader:
        torch.cuda._sleep(1)
        yield batch


@PREFETCH
def test_frames_are_right(reader_on_gpu, arrays, prefetch):
    loader = td.DataLoader(OnlyGPU(file_root=arrays), batch_size=4, device="cuda", prefetch_factor=prefetch)
    got = [value for (x,) in busy(loader) for value in x[:, 0, 0].tolist()]
    assert got == list(range(12))


@PREFETCH
def test_ragged_frames_are_padded(reader_on_gpu, ragged, prefetch):
    loader = td.DataLoader(OnlyGPU(file_root=ragged), batch_size=4, device="cuda", prefetch_factor=prefetch)
    got = [value for (x,) in busy(loader) for value in x.data[:, 0, 0].tolist()]
    assert got == list(range(12))


@PREFETCH
def test_rows_that_wait_for_the_next_batch(reader_on_gpu, arrays, prefetch):
    """DALI gives batches of one size, and the loader asks for 5, and for 2 at the end."""
    loader = td.DataLoader(OnlyGPU(file_root=arrays), batch_size=5, device="cuda", prefetch_factor=prefetch)
    assert [len(x) for (x,) in busy(loader)] == [5, 5, 2]


@PREFETCH
@pytest.mark.parametrize("place", ["cpu", "gpu"])
def test_contexts_live_over_passes(arrays, prefetch, place):
    with gpu_only(*[ndd.readers.Numpy] * (place == "gpu")):
        reader = (OnlyGPU if place == "gpu" else td.readers.Numpy)(file_root=arrays)
        loader = td.DataLoader(reader, 4, device="cuda", prefetch_factor=prefetch)
        assert len(list(loader)) == 3
        made, streams = Counter(MACHINE.made_objects), len(MACHINE.handles)
        for _ in loader:
            break
        assert [len(list(loader)) for _ in range(2)] == [3, 3]
        assert MACHINE.made_objects == made and len(MACHINE.handles) == streams


@PREFETCH
def test_a_function_gets_the_frames(reader_on_gpu, arrays, prefetch):
    def twice(sample, rand):
        return {"array": sample["array"] * 2.0}

    loader = td.DataLoader(
        OnlyGPU(file_root=arrays), batch_size=4, device="cuda", transform=twice, prefetch_factor=prefetch
    )
    # What a function makes may be ragged, and is padded.
    assert [v for (x,) in busy(loader) for v in x.data[:, 0, 0].tolist()] == [2 * i for i in range(12)]


@PREFETCH
def test_labels_come_to_the_host_without_a_wait_of_their_own(reader_on_gpu, labels, prefetch):
    loader = td.DataLoader(Labels(file_root=labels), batch_size=8, device="cuda", prefetch_factor=prefetch)
    MACHINE.counts.clear()
    got = [x for (x,) in loader]
    waits = {what: n for (_, what), n in MACHINE.counts.items() if "wait" in what}
    assert set(waits) == {"wait: stream.synchronize"} and waits["wait: stream.synchronize"] <= 2 * len(got)
    assert torch.cat([x.cpu() for x in got]).tolist() == list(range(32))


def test_a_class_that_needs_a_gpu_is_read_by_its_name_alone(reader_on_gpu, arrays):
    loader = td.DataLoader(td.readers.Reader(ndd.readers.Numpy, ["x"], kinds={"x": "array"}, file_root=arrays), 4,
                           device="cuda")  # fmt: skip
    assert len(loader.source) == 12 and [v for (x,) in loader for v in x[:, 0, 0].tolist()] == list(range(12))


def test_such_a_class_on_the_cpu_is_refused(reader_on_gpu, arrays):
    for make in (
        lambda: OnlyGPU(file_root=arrays),
        lambda: td.readers.Reader(ndd.readers.Numpy, ["x"], kinds={"x": "array"}, file_root=arrays),
    ):
        with pytest.raises(ValueError, match="reads on a GPU only: write device='cuda'"):
            td.DataLoader(make(), 4, device="cpu")


@PREFETCH
def test_readers_on_the_cpu_for_a_loader_on_a_gpu(arrays, ten, prefetch):
    for reader in (td.readers.Numpy(file_root=arrays), td.readers.File(file_root=str(ten))):
        assert train(td.DataLoader(reader, 4, device="cuda", transform=None, prefetch_factor=prefetch)) >= 3
    transform = T.RandomResizedCrop(16)
    for engine in ("eager", "pipeline"):
        assert train(td.DataLoader(td.readers.File(file_root=str(ten)), 4, device="cuda", transform=transform,
                                   engine=engine, prefetch_factor=prefetch)) == 3  # fmt: skip


@pytest.mark.parametrize("needs_gpu", [False, True])
@PREFETCH
def test_only_this_ranks_gpu_is_touched(arrays, monkeypatch, needs_gpu, prefetch):
    monkeypatch.setenv("LOCAL_RANK", "1")

    def run():
        with gpu_only(*[ndd.readers.Numpy] * needs_gpu), watched(1) as machine:
            reader = (OnlyGPU if needs_gpu else td.readers.Numpy)(file_root=arrays)
            assert len(reader) == 12
            loader = td.DataLoader(reader, 4, device="cuda", rank=0, world_size=1, prefetch_factor=prefetch)
            assert len(loader) == 3 and loader.device == GPU_1 and train(loader) == 3
        assert not machine.hazards, machine.hazards

    in_a_new_thread(run)


def test_a_reader_on_the_cpu_touches_no_gpu(arrays, ten):
    def run():
        with watched() as machine:
            assert len(td.readers.Numpy(file_root=arrays)) == 12
            for reader in (td.readers.Numpy(file_root=arrays), td.readers.File(file_root=str(ten))):
                assert len(list(td.DataLoader(reader, 4, device="cpu"))) >= 3
                assert len(list(reader)) >= 10
        assert not machine.hazards, machine.hazards

    in_a_new_thread(run)


class Clips(OnlyGPU):
    """The same for clips, as Video gives them."""

    def describe(self, fields):
        return [base.Output("video", td.kinds.Video("FHWC"))]


@PREFETCH
@pytest.mark.parametrize("engine", ["auto", "debug"])
def test_clips_are_moved_on_the_gpu(reader_on_gpu, tmp_path, prefetch, engine):
    """By DALI, by torch, or not at all; a pipeline is not chosen, since it is fed from the host."""
    clips = np.random.default_rng(0).integers(0, 256, (8, 3, 12, 16, 3), dtype=np.uint8)
    for i, clip in enumerate(clips):
        np.save(tmp_path / f"{i}.npy", clip)
    for steps, move in (
        ([], lambda clip: clip),
        ([T.RandomHorizontalFlip(1.0)], lambda clip: clip[:, :, ::-1]),
        ([T.UniformTemporalSubsample(2), T.RandomEqualize(0.0)], lambda clip: clip[[0, 2]]),
    ):
        loader = td.DataLoader(Clips(file_root=str(tmp_path)), 4, device="cuda", prefetch_factor=prefetch,
                               engine=engine, transform=T.Compose(steps), uniform=["video"])  # fmt: skip
        assert loader.engine != "pipeline"
        got = np.concatenate([video.cpu().numpy() for (video,) in busy(loader)])
        expected = np.stack([move(clip) for clip in clips]).transpose(0, 1, 4, 2, 3)
        np.testing.assert_array_equal(got, expected)
