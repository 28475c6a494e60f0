"""Functions of whole batches: torchvision's, timm's and ours, exact after a resume, and out of the caller's way."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torchvision.transforms import v2

import torchdali as td
from torchdali import transforms as T
from torchdali.rand import BatchRand
from torchdali.testing import assert_resumes_exactly, read_stream
from torchdali.transforms.mix import partners_of

N, CLASSES = 22, 5
Batch = tuple[torch.Tensor, torch.Tensor]


def images(size: int = 6) -> td.InMemoryDataset:
    rng = np.random.default_rng(0)
    return td.InMemoryDataset(
        image=rng.integers(0, 256, (N, size, size, 3), np.uint8),
        label=rng.integers(0, CLASSES, N),
    )


def make(batch_transform: Any = None, batch_size: int = 4, dataset: Any = None, **options: Any) -> td.DataLoader:
    options = {"shuffle": True, "seed": 7, "transform": T.Normalize((0.5,) * 3, (0.5,) * 3)} | options
    dataset = images() if dataset is None else dataset
    return td.DataLoader(dataset, batch_size, device="cpu", batch_transform=batch_transform, **options)


class Mixup:
    """As timm's: of two arguments, by numpy's generator, in place."""

    def __call__(self, x: torch.Tensor, target: torch.Tensor) -> Batch:
        lam = float(np.random.beta(1.0, 1.0)) if np.random.rand() < 0.8 else 1.0
        x.mul_(lam).add_(x.flip(0).mul(1.0 - lam))
        soft = torch.nn.functional.one_hot(target, CLASSES).float()
        return x, soft * lam + soft.flip(0) * (1.0 - lam)


def by_keys(batch: Any, rand: BatchRand) -> Any:
    return batch, torch.from_numpy(rand.uniform()), rand.positions.tolist(), rand.step, rand.epoch


def everything(batch: Any) -> Any:
    return batch, torch.rand(2), torch.tensor(np.random.rand(2)), torch.tensor([random.random(), random.random()])


MIX = {
    "MixUp": v2.MixUp(num_classes=CLASSES),
    "CutMix": v2.CutMix(num_classes=CLASSES),
    "RandomChoice": v2.RandomChoice([v2.MixUp(num_classes=CLASSES), v2.CutMix(num_classes=CLASSES)]),
    "ours": T.MixUp(0.4, CLASSES),
    "our CutMix": T.CutMix(1.0, CLASSES, group=2),
}


@pytest.mark.parametrize("output", ["tuple", "dict"])
@pytest.mark.parametrize("mix", MIX.values(), ids=MIX)
def test_mixing_resumes_exactly(mix: Any, output: str) -> None:
    assert_resumes_exactly(lambda: make(mix, output=output))
    batch = next(iter(make(mix, output=output)))
    x, y = batch if output == "tuple" else batch.values()
    assert x.shape == (4, 3, 6, 6) and y.shape == (4, CLASSES) and torch.allclose(y.sum(1), torch.ones(4))
    assert not torch.equal(x, next(iter(make()))[0])


def test_functions_of_parts_and_of_all_generators_resume_exactly() -> None:
    assert_resumes_exactly(lambda: make(Mixup()))
    x, y = next(iter(make(Mixup())))
    assert y.shape == (4, CLASSES) and not torch.equal(x, next(iter(make()))[0])

    def stream(at: int) -> list[str]:
        loader = make(everything)
        loader.seek(0, at)
        return list(map(repr, loader))

    assert stream(0)[2:] == stream(2) and len(set(stream(0))) == 6


def test_torchvision_gets_what_the_loader_gives() -> None:
    """Its result for the same batch and the same draws."""
    found = list(make(v2.MixUp(num_classes=CLASSES)))
    drawn: list[float] = []

    class Told(v2.MixUp):
        def make_params(self, flat_inputs: list[Any]) -> dict[str, Any]:
            params = super().make_params(flat_inputs)
            drawn.append(params["lam"])
            return params

    list(make(Told(num_classes=CLASSES)))
    assert len(set(drawn)) == len(found) == 6
    for (x, y), lam, (mixed, soft) in zip(make(), drawn, found, strict=True):
        assert torch.equal(mixed, x.roll(1, 0) * (1 - lam) + x * lam)
        one_hot = torch.nn.functional.one_hot(y, CLASSES).float()
        assert torch.equal(soft, one_hot.roll(1, 0) * (1 - lam) + one_hot * lam)


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.processes)])
@pytest.mark.parametrize("prefetch", [0, 3])
def test_the_callers_generators_are_left_alone(workers: int, prefetch: int) -> None:
    def run(batch_transform: Any) -> list[Any]:
        random.seed(1), np.random.seed(1), torch.manual_seed(1)
        drawn = []
        data = [torch.full((3, 4), float(i)) for i in range(8)]
        loader = make(batch_transform, dataset=data, transform=None, num_workers=workers, prefetch_factor=prefetch)
        with loader:
            for _ in loader:
                drawn += [random.random(), float(np.random.rand()), float(torch.rand(()))]
        return drawn

    assert run(everything) == run(None)


def test_ranks_draw_their_own_numbers() -> None:
    ranks = [make(everything, rank=rank, world_size=2, batch_size=3) for rank in range(2)]
    numbers = [tuple(batch[1].tolist()) for loader in ranks for batch in loader]
    assert len(set(numbers)) == len(numbers) == 8
    assert numbers == [tuple(b[1].tolist()) for r in range(2) for b in make(everything, 3, rank=r, world_size=2)]
    assert [b[1].tolist() for b in make(everything, seed=8)] != [b[1].tolist() for b in make(everything, seed=9)]


def test_rand_is_keyed_by_the_samples() -> None:
    """Whatever batch they are in; positions and steps are those of the epoch."""

    def drawn(**options: Any) -> dict[int, float]:
        dataset = td.InMemoryDataset(x=np.arange(N), fields=("index",))
        batches = list(make(by_keys, dataset=dataset, transform=None, **options))
        for number, (_, _, _, step, epoch) in enumerate(batches):
            assert (step, epoch) == (number, 0)
        return {int(i): float(u) for ((index,), us, *_) in batches for i, u in zip(index, us, strict=True)}

    whole = drawn()
    assert len(set(whole.values())) == N == len(whole)
    assert whole == drawn(batch_size=7)
    assert whole == drawn(rank=0, world_size=2) | drawn(rank=1, world_size=2)
    order = [p for r in range(2) for b in make(by_keys, rank=r, world_size=2, shuffle=False) for p in b[2]]
    assert order == [0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 4, 5, 6, 7, 12, 13, 14, 15, 19, 20, 21]
    loader = make(by_keys)
    loader.seek(3, 2)
    assert next(iter(loader))[2:] == ([8, 9, 10, 11], 2, 3)


# Our own MixUp and CutMix


def rand_of(positions: Any) -> BatchRand:
    positions = np.asarray(positions)
    return BatchRand(3, 0, positions, positions, 0, 0)


@pytest.mark.parametrize("name", ["MixUp", "CutMix"])
def test_ours_have_torchvisions_formulas(name: str) -> None:
    """Row by row torchvision's result, given the weight or the rectangle that was drawn for this row."""
    rng = torch.Generator().manual_seed(0)
    x, y = torch.rand(8, 3, 7, 9, generator=rng).to(memory_format=torch.channels_last), torch.arange(8)
    ours: Any = getattr(T, name)(0.7, 8)
    theirs: Any = getattr(v2, name)(alpha=0.7, num_classes=8)
    mixed, soft = ours((x, y), rand_of(range(8)))
    assert mixed.is_contiguous(memory_format=torch.channels_last) and mixed.dtype == x.dtype
    assert len({float(soft[i, i]) for i in range(8)}) > 4
    for i in range(8):
        kept = float(soft[i, i])
        params: dict[str, Any] = {"lam": kept}
        if name == "CutMix":
            other = (mixed[i] != x[i]).all(0)
            rows, columns = (other.any(dim).nonzero()[:, 0].tolist() or [0, -1] for dim in (1, 0))
            params = {"box": (columns[0], rows[0], columns[-1] + 1, rows[-1] + 1), "lam_adjusted": kept}
            assert kept == pytest.approx(1 - int(other.sum()) / 63, abs=1e-6)
        theirs.make_params = lambda _, params=params: params
        expected, expected_soft = theirs(x, y)
        assert torch.allclose(expected[i], mixed[i], atol=1e-6) and torch.allclose(expected_soft[i], soft[i], atol=1e-6)


@pytest.mark.parametrize("mix", [T.MixUp(0.4, CLASSES, group=2), T.CutMix(1.0, CLASSES, group=2)], ids=repr)
def test_groups_make_one_stream_of_all_world_sizes(mix: Any) -> None:
    dataset = td.InMemoryDataset(
        image=np.random.default_rng(1).integers(0, 256, (32, 5, 5, 3), np.uint8),
        label=np.arange(32) % CLASSES,
    )  # fmt: skip

    def stream(function: Any, batch_size: int, ranks: int) -> list[str]:
        options = {"drop_last": True, "world_size": ranks}
        loaders = [make(function, batch_size, dataset, rank=rank, **options) for rank in range(ranks)]
        return [sample for step in read_stream(loaders) for sample in step.samples]

    whole = stream(mix, 8, 1)
    assert len(set(whole)) == 32
    for batch_size, ranks in [(4, 2), (2, 4), (2, 2), (16, 1)]:
        assert stream(mix, batch_size, ranks) == whole
    plain = T.MixUp(0.4, CLASSES)
    assert stream(plain, 4, 2) != stream(plain, 8, 1)


def test_partners() -> None:
    assert partners_of(np.arange(5)).tolist() == [4, 0, 1, 2, 3]
    assert partners_of(np.arange(8, 16), 4).tolist() == [3, 0, 1, 2, 7, 4, 5, 6]
    # An epoch's end on one of several ranks: what is there of a group; and rows that only fill the batch.
    assert partners_of(np.array([6, 7, 8]), 4).tolist() == [1, 0, 2]
    assert partners_of(np.array([8, 9, 10, 8, 9]), 4).tolist() == [2, 0, 1, 2, 0]


def test_what_is_mixed_and_what_stays() -> None:
    rand = rand_of(range(4))
    x, y = torch.rand(4, 2, 3, 3), torch.arange(4)
    batch = {
        "view": [x, x.half()],
        "sound": torch.rand(4, 9),
        "Labels": y,
        "index": y.clone(),
        "path": list("abcd"),
        "age": x[:, 0, 0, 0],
    }
    out = T.MixUp(1.0, 4)(batch, rand)
    assert out["path"] == list("abcd") and out["index"] is batch["index"] and out["age"] is batch["age"]
    assert out["Labels"].shape == (4, 4) and out["view"][1].dtype == torch.float16
    assert torch.allclose(out["view"][0], out["view"][1].float(), atol=1e-3)
    assert not torch.equal(out["view"][0], x) and not torch.equal(out["sound"], batch["sound"])
    cut = T.CutMix(1.0, 4)((x.mul(255).byte(), y), rand_of(range(4)))
    assert cut[0].dtype == torch.uint8 and cut[1].sum(1).tolist() == pytest.approx([1.0] * 4)
    # Numbers and soft labels need no classes; a batch may have no labels.
    again = T.MixUp()((x, out["Labels"]), rand_of(range(4)))
    assert torch.allclose(again[1].sum(1), torch.ones(4))
    assert T.MixUp(label=False)((x,), rand_of(range(4)))[0].shape == x.shape
    value = T.MixUp(label="y")({"x": x, "y": y.float()}, rand_of(range(4)))["y"]
    assert value.shape == (4,) and not torch.equal(value, y.float())


@pytest.mark.parametrize(
    ("mix", "batch", "sentence"),
    [
        (T.MixUp(1.0, 4), (torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.arange(2)), "MixUp needs floating images"),
        (T.MixUp(), (torch.zeros(2, 3, 4, 4), torch.arange(2)), r"write MixUp\(num_classes=...\)"),
        (T.MixUp(), {"x": torch.zeros(2, 3), "y": torch.arange(2)}, "a dict of x, y: write label="),
        (T.MixUp(), torch.zeros(2, 3, 4, 4)[:1], "finds no tensor of labels in the batch, a Tensor"),
        (T.MixUp(1.0, 4), (torch.arange(2), torch.arange(2)), "MixUp mixes floating tensors .*, one row for each of 2"),
        (T.CutMix(1.0, 4), ([torch.zeros(3, 4, 4)] * 2, torch.arange(2)), r"CutMix mixes images \[N, C, H, W\]"),
        (
            T.CutMix(1.0, 4),
            (td.Padded(torch.zeros(2, 3, 4, 4), torch.tensor([[2, 2], [4, 4]])), torch.arange(2)),
            r"CutMix needs tensors of one shape, got Padded\(.*: put a transform of one size first",
        ),
    ],
)  # fmt: skip
def test_what_can_not_be_mixed(mix: Any, batch: Any, sentence: str) -> None:
    with pytest.raises((TypeError, ValueError), match=sentence):
        mix(batch, rand_of(range(2)))


def test_as_a_transform_it_says_where_it_belongs() -> None:
    loader = make(transform=T.Compose([T.Normalize((0.5,) * 3, (0.5,) * 3), T.MixUp(1.0, CLASSES)]))
    with pytest.raises(TypeError, match=r"MixUp acts on whole batches: write batch_transform=MixUp\("):
        next(iter(loader))


# Errors, and what is told when


class Failing:
    def __init__(self, error: Exception, at: int) -> None:
        self.error, self.left = error, at

    def __call__(self, batch: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            raise self.error
        return batch


@pytest.mark.parametrize("error", [KeyError("no such word"), StopIteration()], ids=repr)
def test_an_error_names_itself_and_its_batch_and_loses_no_place(error: Exception) -> None:
    plain = [y.tolist() for _, y in make()]
    loader = make(Failing(error, 3))
    iterator = iter(loader)
    got = [next(iterator)[1].tolist() for _ in range(2)]
    before = loader.state_dict()
    with pytest.raises((KeyError, RuntimeError)) as caught:
        next(iterator)
    note = "torchdali: batch_transform=Failing raised this for the batch at epoch 0, sample 8 (step 2)"
    assert note in caught.value.__notes__
    assert loader.state_dict() == before and before["samples_seen"] == 8
    other = make()
    other.load_state_dict(loader.state_dict())
    assert got + [y.tolist() for _, y in other] == plain
    # As after a bad sample, an iterator that is asked again goes on after it.
    assert [y.tolist() for _, y in iterator] == plain[3:]


def nothing(batch: Any) -> None:
    batch[0].mul_(2)


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (3, "batch_transform must be a function of a batch, got 3"),
        (lambda: 1, r"must take \(batch\), \(batch, rand\), or the parts of a batch, its arguments are \(\)"),
        (lambda batch, *, more: 1, r"its arguments are \(batch, \*, more\)"),
        (nothing, r"batch_transform=nothing must return a batch, got nothing \(is a return missing\?\)"),
        (lambda x, y, z: 1, "needs 3 arguments, and the batch has 2 parts: write a function of one argument"),
    ],
)
def test_functions_that_do_not_fit(function: Any, sentence: str) -> None:
    with pytest.raises(TypeError, match=sentence):
        next(iter(make(function)))
    if callable(function) and "dict" in sentence:
        return
    with pytest.raises(TypeError, match="needs 2 arguments, and the batch has the type dict"):
        next(iter(make(Mixup(), output="dict")))


def test_groups_need_batches_of_whole_ones() -> None:
    with pytest.raises(ValueError, match=r"batch_size must be a multiple of the group of MixUp\(group=3\), got 4"):
        make(T.MixUp(1.0, CLASSES, group=3))
    with pytest.raises(ValueError, match="with this sampler they go to the ranks in turn: leave group out"):
        sampler = td.RepeatedAugmentationSampler(N)
        make(T.MixUp(1.0, CLASSES, group=2), shuffle=False, sampler=sampler)


class Module(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor, rand: BatchRand) -> Any:
        return x * torch.from_numpy(rand.uniform()).view(-1, 1, 1, 1), y


def test_a_modules_forward_says_how_it_is_called() -> None:
    assert_resumes_exactly(lambda: make(Module()))
    assert not torch.equal(next(iter(make(Module())))[0], next(iter(make()))[0])


def test_it_may_be_set_between_passes_and_is_no_part_of_the_state() -> None:
    loader = make(T.MixUp(1.0, CLASSES))
    assert isinstance(loader.batch_transform, T.MixUp) and loader.options.batch_transform is loader.batch_transform
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    loader.batch_transform = None
    assert next(iterator)[1].ndim == 2  # the open pass keeps its own
    assert next(iter(loader))[1].ndim == 1 and loader.batch_transform is None
    plain = make()
    next(iter(plain))
    assert state == plain.state_dict()
    with pytest.raises(TypeError, match="must be a function of a batch"):
        loader.batch_transform = "mixup"  # type: ignore[assignment]
    assert loader.batch_transform is None


# Together with other options


def collate(samples: list[Any]) -> dict[str, Any]:
    return {
        "x": torch.stack([x for x, _ in samples]),
        "label": torch.tensor([y for _, y in samples]),
        "u": torch.rand(1),
    }


def test_it_comes_after_collate_fn_and_before_the_state() -> None:
    def stream(loader: td.DataLoader) -> list[str]:
        return [repr(batch) for batch in loader]

    loader = make(v2.MixUp(num_classes=CLASSES), collate_fn=collate, with_state=True)
    batches = list(loader)
    assert [sorted(batch) for batch in batches] == [["label", "loader_state", "u", "x"]] * 6
    assert batches[0]["label"].shape == (4, CLASSES)
    other = make(v2.MixUp(num_classes=CLASSES), collate_fn=collate, with_state=True)
    other.load_state_dict(batches[2]["loader_state"])
    assert stream(other) == list(map(repr, batches[3:]))
    with pytest.raises(TypeError, match="with_state=True needs a batch that is a dict, got tuple"):
        next(iter(make(v2.MixUp(num_classes=CLASSES), with_state=True)))


def test_output_functions_padded_fields_and_pinning_come_first() -> None:
    loader = make(lambda batch: (batch, type(batch)), output=lambda fields: [*fields.values()], pin_memory=True)
    (x, y), kind = next(iter(loader))
    assert kind is list and x.shape == (4, 3, 6, 6) and y.shape == (4,)
    ragged = [np.ones((i % 3 + 1, 2), np.float32) for i in range(6)]
    loader = make(lambda b: b.unbind(), dataset=td.PythonDataset(ragged, ragged=["value"]), transform=None)
    assert sorted(len(rows) for batch in loader for rows in batch) == [1, 1, 2, 2, 3, 3]


def test_soft_labels_are_mixed_and_resumed() -> None:
    rng = np.random.default_rng(2)
    image = rng.integers(0, 256, (N, 4, 4, 3), np.uint8)
    data = td.InMemoryDataset(image=image, label=rng.dirichlet(np.ones(CLASSES), N).astype(np.float32))
    for mix in (v2.RandomChoice([v2.MixUp(), v2.CutMix()]), T.MixUp(), T.CutMix()):
        assert_resumes_exactly(lambda mix=mix: make(mix, dataset=data, output="dict"))
        _, soft = next(iter(make(mix, dataset=data)))
        assert soft.shape == (4, CLASSES) and torch.allclose(soft.sum(1), torch.ones(4))


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.processes)])
def test_batches_of_the_workers_collate_fn_are_transformed_too(workers: int) -> None:
    data = [(torch.full((2,), float(i)), i) for i in range(8)]
    options: dict[str, Any] = {"dataset": data, "transform": None, "collate_fn": collate, "num_workers": workers}

    def stream(at: int) -> list[str]:
        with make(everything, **options) as loader:
            loader.seek(0, at)
            return list(map(repr, loader))

    assert stream(0)[1:] == stream(1) and "label" in stream(0)[0]


def test_positions_of_batches_that_a_source_makes_are_rows() -> None:
    sizes = [1, 3, 2]
    source = td.SampleSource(lambda info: _rows(sizes, info.iteration), batch=True)
    found = list(make(by_keys, dataset=source, shuffle=False, transform=None))
    assert [batch[2] for batch in found] == [[0], [0, 1, 2], [0, 1]]
    assert len({float(u) for batch in found for u in batch[1]}) == 6


def _rows(sizes: list[int], step: int) -> Any:
    if step >= len(sizes):
        raise StopIteration
    return np.zeros((sizes[step], 2))


@pytest.mark.processes
def test_accelerate_gets_mixed_batches() -> None:
    from accelerate import Accelerator, skip_first_batches

    expected = [x.sum().item() for x, _ in make(v2.CutMix(num_classes=CLASSES))]
    loader = Accelerator(cpu=True).prepare_data_loader(make(v2.CutMix(num_classes=CLASSES)))
    assert [x.sum().item() for x, _ in loader] == expected
    skipped = skip_first_batches(make(v2.CutMix(num_classes=CLASSES)), 2)
    assert [x.sum().item() for x, _ in skipped] == expected[2:]


def test_iterables_are_mixed_exactly_too() -> None:
    class Stream(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Any:
            return (((torch.full((3, 4, 4), float(i))), i % CLASSES) for i in range(11))

    def loader() -> td.DataLoader:
        return make(T.MixUp(1.0, CLASSES), dataset=Stream(), shuffle=False, transform=None)

    whole = list(loader())
    resumed = loader()
    iterator = iter(resumed)
    next(iterator)
    other = loader()
    other.load_state_dict(resumed.state_dict())
    with pytest.warns(RuntimeWarning):
        rest = list(other)
    assert [len(x) for x, _ in whole] == [4, 4, 3]
    for one, two in zip(whole[1:], rest, strict=True):
        assert torch.equal(one[0], two[0]) and torch.equal(one[1], two[1])
