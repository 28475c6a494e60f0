"""A pipeline that fails: a batch that passes without it is not repaired for ever."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import pytest

import torchdali as td
from torchdali import _dali
from torchdali import transforms as T
from torchdali.engine.program import Program
from torchdali.engine.repair import Repair
from torchdali.testing import garble_file, sample_digests

AUGMENT = T.Compose([T.RandomResizedCrop(16), T.RandomHorizontalFlip()])


def digests(folder, **options):
    loader = td.DataLoader(td.ImageFolder(folder), 4, shuffle=True, device="cpu", transform=AUGMENT, **options)
    return [sample_digests(batch) for batch in loader]


@pytest.fixture
def repairs(monkeypatch):
    """Counts the batches that are repaired."""
    counted: list[str] = []
    original = Repair.__call__

    def noted(self, work):
        counted.append(str(work.error))
        original(self, work)

    monkeypatch.setattr(Repair, "__call__", noted)
    return counted


@pytest.fixture
def failing(monkeypatch):
    """Makes pipelines fail: as they are built, or at some runs, counted over all pipelines."""
    original, made = _dali.pipeline, []

    def fail(build: bool = False, runs=lambda n: False):
        count = [0]

        def pipeline(*arguments):
            made.append(arguments)
            if build:
                raise RuntimeError("out of memory, say")
            pipe = original(*arguments)
            run = pipe.run

            def sometimes():
                count[0] += 1
                results = run()
                if runs(count[0]):
                    raise RuntimeError("out of memory, say")
                return results

            pipe.run = sometimes
            return pipe

        monkeypatch.setattr(_dali, "pipeline", pipeline)
        return made

    return fail


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("how", ["build", "run"])
def test_a_pipeline_that_always_fails_is_given_up(folder, failing, repairs, how, prefetch):
    expected = digests(folder, engine="eager")
    made = failing(build=how == "build", runs=lambda n: True)
    with pytest.warns(RuntimeWarning) as warned:
        assert digests(folder, engine="pipeline", prefetch_factor=prefetch) == expected
    assert len(made) == 2 and len(repairs) == 1
    texts = sorted((str(each.message) for each in warned), reverse=True)  # of two threads
    assert len(texts) == 2 and "is made again" in texts[0]
    assert "failed twice in a row" in texts[1] and "out of memory, say" in texts[1]


def test_a_pipeline_that_fails_now_and_then_goes_on(folder, failing, repairs):
    expected = digests(folder, engine="eager")
    made = failing(runs=lambda n: n in (2, 4))
    with pytest.warns(RuntimeWarning, match="is made again"):
        assert digests(folder, engine="pipeline") == expected
    assert len(made) == 3 and len(repairs) == 2


def test_bad_samples_in_a_row_do_not_give_it_up(own_folder, repairs):
    for path in sorted(own_folder.rglob("*.jpg"))[2:10:4]:
        garble_file(path)
    loaders = [
        td.DataLoader(td.ImageFolder(own_folder), 4, device="cpu", transform=AUGMENT, engine=engine,
                      on_bad_sample="substitute")
        for engine in ("eager", "pipeline")
    ]  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        eager, pipeline = [[sample_digests(batch) for batch in loader] for loader in loaders]
    assert eager == pipeline and len(loaders[1].bad_samples) == 2 and len(repairs) == 4


@pytest.fixture
def traces(monkeypatch):
    """Notes the operators with which programs run: those of dynamic mode, or of a pipeline."""
    seen: list[str] = []
    original = Program.__call__

    def noted(self, ops, *rest):
        seen.append(type(ops).__name__)
        return original(self, ops, *rest)

    monkeypatch.setattr(Program, "__call__", noted)
    return seen


def test_transforms_are_traced_without_a_call_of_dynamic_mode(folder, traces):
    digests(folder, engine="pipeline")
    assert traces == ["TracedOps"]


@dataclass(frozen=True)
class Doubled(T.Transform):
    """Twice the values, in DALI alone, by the type of what it gets."""

    def transform(self, ops, image):
        assert ops.channels_of(image) == 3
        return ops.cast(image * 2.0, dtype=ops.as_dtype(ops.dtype_of(image)))


@T.function(keeps_size=True, traceable=True)
def plain(sample, rand, ops):
    return {**sample, "image": ops.decoders.image(sample["image"])}


@pytest.mark.parametrize("steps", [[Doubled()], [plain]], ids=["a step that asks for types", "a function"])
def test_one_sample_runs_first_where_a_trace_needs_to_know_more(folder, traces, steps):
    def made(engine):
        dataset = td.ImageFolder(folder)
        loader = td.DataLoader(dataset, 4, device="cpu", transform=T.Compose([*steps, AUGMENT]), engine=engine)
        return [sample_digests(batch) for batch in loader]

    expected = made("eager")
    traces.clear()
    assert made("pipeline") == expected
    assert traces[-2:] == ["DynamicOps", "TracedOps"] and len(traces) <= 3
