"""The check has teeth: hazards come back when a guard is taken out."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext

import numpy as np
import nvidia.dali.experimental.dynamic as ndd
import pytest

import torchdali as td
import torchdali.iterator
from torchdali import _dali
from torchdali import transforms as T
from torchdali.engine.program import Program

from . import MACHINE, gpu_only
from .cases_loaders import in_a_new_thread, make, train  # noqa: F401
from .cases_readers import OnlyGPU

ENGINES = pytest.mark.parametrize("engine", ["eager", "pipeline"])


def kinds_of_hazards() -> set[str]:
    return {hazard.split(":")[0] for hazard in MACHINE.hazards}


@pytest.fixture
def without_the_wait(monkeypatch):
    """Sessions don't wait for their stream at their end."""

    @contextmanager
    def not_waited_for(stream):
        _dali.session._open_session.stream = stream
        yield
        _dali.session._open_session.stream = None

    monkeypatch.setattr(_dali.session, "_waited_for", not_waited_for)


@pytest.mark.hazards_expected
@ENGINES
def test_without_record_stream_memory_is_freed_early(make, monkeypatch, engine):  # noqa: F811
    monkeypatch.setattr(torchdali.iterator, "_hand_over", lambda *_: None)
    assert train(make(engine=engine)) == 3
    assert kinds_of_hazards() == {"freed-early"}


@pytest.mark.hazards_expected
def test_without_the_wait_a_decoder_writes_early(make, without_the_wait, monkeypatch):  # noqa: F811
    assert train(make(engine="eager")) == 3
    assert {"decode-early", "read-early"} <= kinds_of_hazards()


@pytest.mark.hazards_expected
def test_without_the_wait_a_readers_rows_are_read_early(tmp_path, without_the_wait):
    for i in range(12):
        np.save(tmp_path / f"{i:02}.npy", np.full((4, 5), i, np.float32))
    with gpu_only(ndd.readers.Numpy):
        for _ in td.DataLoader(OnlyGPU(file_root=str(tmp_path)), batch_size=4, device="cuda"):
            pass
    assert "read-early" in kinds_of_hazards()


@pytest.mark.hazards_expected
def test_without_its_guard_a_session_on_the_cpu_touches_gpu_0(tmp_path, monkeypatch):
    np.save(tmp_path / "0.npy", np.zeros(3))
    monkeypatch.setattr(_dali.session, "_without_gpu", nullcontext)
    monkeypatch.setattr(MACHINE, "allowed", set())
    in_a_new_thread(lambda: list(td.DataLoader(td.readers.Numpy(file_root=str(tmp_path)), 1, device="cpu")))
    assert kinds_of_hazards() == {"foreign-device"}


@pytest.mark.parametrize("drained", [True, False])
@pytest.mark.hazards_expected
def test_without_the_drain_a_function_decodes_early(ten, monkeypatch, drained):
    """A function may decode, onto memory that operators before it still use."""
    if not drained:
        begin = Program.__init__
        monkeypatch.setattr(
            Program, "__init__", lambda self, fetcher, kind, _, *rest: begin(self, fetcher, kind, None, *rest)
        )

    def look(sample, rand):
        ndd.resize(ndd.decoders.image(sample["more"], device=rand.device), size=[8, 8])  # dropped at once
        return dict(sample)

    def decode_more(sample, rand):
        more = ndd.decoders.image(sample["more"], device=rand.device)
        return {"image": sample["image"], "more": ndd.resize(more, size=[8, 8])}

    data = [path.read_bytes() for path in sorted(ten.rglob("*.jpg"))]
    dataset = td.InMemoryDataset(image=data, more=[np.frombuffer(each, np.uint8) for each in data])
    transform = T.Compose([T.RandomResizedCrop(24), look, decode_more])
    assert train(td.DataLoader(dataset, 4, device="cuda", transform=transform, engine="eager")) == 3
    assert kinds_of_hazards() == (set() if drained else {"decode-early"})
