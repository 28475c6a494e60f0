"""Functions as transforms: the random numbers they get, what they may return, and what is said when it is wrong."""

from __future__ import annotations

import functools
import random

import numpy as np
import nvidia.dali.experimental.dynamic as ndd
import pytest
import torch

import torchdali as td
from torchdali import transforms as T
from torchdali.rand import Key, Rand
from torchdali.state import Position
from torchdali.testing import assert_resumes_exactly, assert_same_stream, read_stream

SEED = 7


@pytest.fixture
def make(folder):
    """Makes a loader of 22 files with this transform."""

    def make(transform, fields=("image", "label", "index"), **arguments):
        arguments = dict(batch_size=8, shuffle=True, seed=SEED, device="cpu", num_threads=1) | arguments
        return td.DataLoader(td.ImageFolder(folder, fields=fields), transform=transform, **arguments)

    return make


def of(rand, name, occurrence=0):
    """The numbers of a step of this name."""
    return rand.named(Key.STEP, name, occurrence)


def decoded(sample):
    return ndd.resize(ndd.decoders.image(sample["image"], device="cpu"), size=[16, 16])


# Used as DESIGN.md says


def augment(sample, rand):
    image = ndd.decoders.image(sample["image"], device=rand.device)
    image = ndd.rotate(image, angle=rand.uniform(-10, 10), fill_value=0)
    return {**sample, "image": ndd.resize(image, size=[224, 224])}


def test_the_example(make):
    seen = []
    for images, labels, indices in make(augment):
        assert images.shape == (len(labels), 3, 224, 224) and images.dtype == torch.uint8
        assert torch.equal(labels, indices // 11)
        seen += indices.tolist()
    assert sorted(seen) == list(range(22))
    assert_same_stream(
        lambda: make(augment), lambda: make(augment, engine="debug"), lambda: make(augment, prefetch_factor=0), epochs=2
    )


def test_the_example_turns_each_image_by_its_own_angle(make):
    loader = make(augment, shuffle=False, prefetch_factor=0)
    for images, _, indices in loader:
        rand = Rand(SEED, Position(0).key, indices.numpy().astype(np.uint64))
        angles = of(rand, "augment").uniform(-10, 10)
        assert len(set(angles.tolist())) == len(angles)
        for image, index, angle in zip(images, indices.tolist(), angles.tolist()):
            encoded = np.fromfile(loader.source.path(index), np.uint8)
            turned = ndd.rotate(ndd.decoders.image(encoded), angle=angle, fill_value=0)
            alone = torch.from_numpy(np.array(ndd.resize(turned, size=[224, 224])))
            assert torch.equal(image.permute(1, 2, 0), alone)


# Random numbers

DRAWS = {
    "uniform": (-2.0, 3.0),
    "normal": (1.0, 0.5),
    "integers": (3, 9),
    "bernoulli": (0.3,),
    "choice": ([0.5, 2.5, 7.0], [0.2, 0.3, 0.5]),
}


def numbers(sample, rand):
    """One draw of each kind, as fields."""
    drawn = {name: getattr(rand, name)(*arguments) for name, arguments in DRAWS.items()}
    drawn["pair"] = rand.uniform(shape=2)
    drawn["again"] = rand.uniform(*DRAWS["uniform"])
    return {**sample, "image": decoded(sample), **drawn}


def test_numbers_are_those_of_the_samples(make):
    """What torchdali.rand.Rand gives for each index, whatever batch it is in; the second draw is another."""
    loader = make(numbers, output="dict")
    for epoch in range(2):
        for batch in loader:
            rand = of(Rand(SEED, Position(epoch).key, batch["index"].numpy().astype(np.uint64)), "numbers")
            for name, arguments in DRAWS.items():
                assert torch.equal(batch[name], torch.from_numpy(getattr(rand, name)(*arguments)))
            assert torch.equal(batch["pair"], torch.from_numpy(rand.uniform(shape=2)))
            assert not torch.equal(batch["again"], batch["uniform"])
            for name in batch:
                if name not in ("image", "label", "bernoulli"):
                    assert len(batch[name].unique(dim=0)) > 1


def test_numbers_of_two_functions_are_independent(make):
    def draw(name):
        return lambda sample, rand: {**sample, name: rand.uniform()}

    def first(sample, rand):
        return {**sample, "image": decoded(sample), "a": rand.uniform()}

    (batch,) = make(T.Compose([first, draw("b"), draw("c")]), output="dict", batch_size=22)
    values = torch.stack([batch[name] for name in "abc"])
    assert len(values.unique()) == values.numel()
    assert torch.corrcoef(values).sub(torch.eye(3)).abs().max() < 0.6


def test_numbers_on_the_host(make):
    """`rand.host` draws from the same stream as `rand`, as arrays."""

    def mixed(sample, rand):
        first = rand.host.uniform(2, 3)
        assert isinstance(first, np.ndarray) and len(first) == len(rand.host) == sample["image"].batch_size
        return {**sample, "image": decoded(sample), "first": ndd.as_batch(first), "second": rand.uniform(2, 3)}

    for batch in make(mixed, output="dict"):
        rand = of(Rand(SEED, 0, batch["index"].numpy().astype(np.uint64)), "mixed")
        assert torch.equal(batch["first"], torch.from_numpy(rand.uniform(2, 3)))
        assert torch.equal(batch["second"], torch.from_numpy(rand.uniform(2, 3)))


def with_ndd_rng(sample, rand):
    """DALI's own random operators, by `rng=` and by the thread's default."""
    image = decoded(sample)
    own = ndd.random.uniform(range=[0.0, 1.0], batch_size=image.batch_size, rng=rand.ndd)
    assert rand.ndd is rand.ndd
    default = ndd.random.normal(batch_size=image.batch_size)
    noisy = ndd.noise.gaussian(image, stddev=20.0, rng=rand.ndd)
    return {**sample, "image": noisy, "own": own, "default": default}


def test_dalis_generators_follow_the_stream(make):
    """Equal on another run, after a break and after a resume; other numbers in each batch, epoch and rank."""

    def loader(**arguments):
        return make(with_ndd_rng, **arguments)

    steps = assert_same_stream(loader, lambda: loader(prefetch_factor=0), lambda: loader(engine="debug"), epochs=2)
    assert len({digest for step in steps for digest in step.samples}) == 44
    assert_resumes_exactly(loader, epochs=2)

    interrupted = loader()
    next(iter(interrupted))
    next(iter(interrupted))
    interrupted.load_state_dict(loader().state_dict())
    assert read_stream(interrupted, epochs=2) == steps

    batches = [batch for epoch in range(2) for batch in loader(output="dict")]
    fresh = [batch for rank in range(2) for batch in loader(output="dict", rank=rank, world_size=2, batch_size=4)]
    for name in ("own", "default"):
        values = torch.cat([batch[name] for batch in batches[:3]])
        assert len(values.unique()) == len(values)
        values = torch.cat([batch[name] for batch in fresh])
        assert len(values.unique()) == len(values)


def test_dalis_generators_of_two_functions_are_independent(make):
    def more(sample, rand):
        n = sample["image"].batch_size
        return {**sample, "more": ndd.random.uniform(range=[0.0, 1.0], batch_size=n, rng=rand.ndd)}

    for batch in make(T.Compose([with_ndd_rng, more]), output="dict"):
        assert not torch.equal(batch["own"], batch["more"])


def test_the_callers_generator_is_left_alone(make):
    """Also where the transform runs in the caller's thread."""
    ndd.random.set_seed(5)
    expected = [float(np.array(ndd.random.uniform(range=[0.0, 1.0]))) for _ in range(4)]
    ndd.random.set_seed(5)
    found = [float(np.array(ndd.random.uniform(range=[0.0, 1.0])))]
    for arguments in (dict(prefetch_factor=0), dict(engine="debug"), dict(prefetch_factor=2)):
        for _ in make(with_ndd_rng, **arguments):
            pass
        found.append(float(np.array(ndd.random.uniform(range=[0.0, 1.0]))))
    assert found == expected


def test_the_callers_generator_is_put_back_after_an_error(make):
    def fails(sample, rand):
        ndd.random.uniform(range=[0.0, 1.0])
        raise RuntimeError("no")

    ndd.random.set_seed(5)
    expected = float(np.array(ndd.random.uniform(range=[0.0, 1.0])))
    ndd.random.set_seed(5)
    with pytest.raises(RuntimeError):
        next(iter(make(fails, engine="debug")))
    assert float(np.array(ndd.random.uniform(range=[0.0, 1.0]))) == expected


def test_the_device_is_named(make):
    def look(sample, rand):
        assert rand.device == "cpu"
        return {**sample, "image": decoded(sample)}

    assert len(list(make(look))) == 3


# Places and fields


def test_in_front_in_the_middle_and_at_the_end(make):
    """Transforms stand around functions; parameters behind one follow the sizes that it gave."""
    shapes = []

    def front(sample, rand):
        assert sample["image"].ndim == 1  # encoded
        return {**sample, "image": ndd.decoders.image(sample["image"], device=rand.device)}

    def middle(sample, rand):
        shapes.append([tuple(shape) for shape in sample["image"].shape])
        return {**sample, "image": ndd.resize(sample["image"], size=[40, 30])}

    def end(sample, rand):
        return {**sample, "image": ndd.cast(sample["image"], dtype=ndd.float32) * 2.0}

    crop, flip = T.RandomCrop((38, 29)), T.RandomHorizontalFlip()
    transform = T.Compose([front, T.Resize((50, 60)), middle, crop, flip, end])
    (batch,) = make(transform, shuffle=False, batch_size=22)
    assert shapes == [[(50, 60, 3)] * 22]
    rand = Rand(SEED, 0, np.arange(22))
    window, _ = crop.make_params(of(rand, "RandomCrop"), np.tile([[40, 30]], (22, 1)))
    flips = flip.make_params(of(rand, "RandomHorizontalFlip"), None)[0]["flip"]
    for image, index in zip(batch[0], batch[2].tolist()):
        encoded = np.fromfile(make(None).source.path(index), np.uint8)
        pixels = np.array(ndd.resize(ndd.resize(ndd.decoders.image(encoded), size=[50, 60]), size=[40, 30]))
        top, left = window["start"][index]
        pixels = pixels[top : top + 38, left : left + 29][:, :: -1 if flips[index] else 1]
        assert torch.equal(image.permute(1, 2, 0), torch.from_numpy(pixels.copy()).float() * 2)


def test_decode_in_front_of_a_function(make):
    def look(sample, rand):
        assert sample["image"].ndim == 3
        return dict(sample)

    transform = T.Compose([T.Decode(), look])
    assert_same_stream(lambda: make(transform), lambda: make(None))


def test_a_host_part_behind_a_function(make):
    """torch's kernels with the sizes that the function gave, ragged ones included."""

    def grow(sample, rand):
        return {**sample, "image": ndd.decoders.image(sample["image"])}

    behind = T.Compose([grow, T.RandomResizedCrop(16), T.Normalize((0.5,) * 3, (0.5,) * 3)])
    without = T.Compose([T.Decode(), T.RandomResizedCrop(16), T.Normalize((0.5,) * 3, (0.5,) * 3)])
    assert_same_stream(lambda: make(behind), lambda: make(without))
    ragged = T.Compose([grow, T.RandomVerticalFlip()])
    assert_same_stream(lambda: make(ragged), lambda: make(T.Compose([T.Decode(), T.RandomVerticalFlip()])))


def test_fields_come_and_go(make):
    def change(sample, rand):
        image = decoded(sample)
        thumb = ndd.resize(image, size=[4, 4])
        ragged = ndd.as_batch([np.arange(1 + i, dtype=np.float32) for i in range(image.batch_size)])
        return {"thumb": thumb, "mean": ndd.reductions.mean(image), "ragged": ragged}

    for batch in make(change, output="dict"):
        n = len(batch["label"])
        assert list(batch) == ["label", "index", "thumb", "mean", "ragged", "ragged_sizes"]
        assert batch["thumb"].shape == (n, 4, 4, 3)  # only the dataset's own images become [C, H, W]
        assert batch["mean"].shape == (n,)
        assert batch["ragged"].shape == (n, n) and batch["ragged_sizes"].tolist() == [[i + 1] for i in range(n)]

    def added(sample, rand):
        return {"extra": rand.integers(9), **sample, "image": decoded(sample)}

    for image, label, index, extra in make(added):  # the dataset's fields first, in their order
        assert image.shape[1:] == (3, 16, 16) and len(label) == len(index) == len(extra)


def test_transforms_behind_a_function_that_drops_the_image(make):
    def drop(sample, rand):
        return {"noise": rand.uniform(shape=3)}

    for batch in make(T.Compose([drop, T.RandomHorizontalFlip()]), output="dict"):
        assert list(batch) == ["label", "index", "noise"]


def test_arrays_are_among_the_fields():
    """Arrays and numbers are batches, objects lists."""
    images = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)
    boxes = [np.full((1 + i % 2, 4), i, np.float32) for i in range(6)]
    dataset = td.InMemoryDataset(image=images, boxes=boxes, name=list("abcdef"), label=np.arange(6))
    seen = []

    def move(sample, rand):
        seen.append(sorted(sample))
        return {**sample, "boxes": sample["boxes"] + 1.0}

    loader = td.DataLoader(dataset, 3, transform=move, device="cpu", output="dict")
    for batch, first in zip(loader, (0, 3)):
        assert batch["name"] == list("abcdef")[first : first + 3]
        assert batch["boxes"][:, 0, 0].tolist() == [first + 1, first + 2, first + 3]
    assert seen[0] == ["boxes", "image", "label", "name"]


def test_a_sample_dict_is_the_functions_own(make):
    """What it does to it is not seen by anyone else."""

    def clears(sample, rand):
        image = decoded(sample)
        sample.clear()
        sample["image"] = image
        return sample

    assert_same_stream(lambda: make(clears), lambda: make(lambda sample, rand: {"image": decoded(sample)}))


def test_callable_objects_and_methods(make):
    class Augment:
        def __call__(self, sample, rand):
            return {**sample, "image": decoded(sample)}

        def method(self, sample, rand, strength=2):
            return self(sample, rand)

    expected = read_stream(make(lambda sample, rand: {**sample, "image": decoded(sample)}))
    for function in (Augment(), Augment().method):
        assert read_stream(make(function)) == expected
    loader = make(Augment(), engine="auto")
    assert loader.engine == "eager"
    with pytest.raises(ValueError, match=r"the function Augment is not marked with transforms.traceable"):
        make(Augment(), engine="pipeline")


# What is wrong


def fails_with(make, transform, error, message, **arguments):
    """In every engine that runs it, for batches of one too, and without trying sample by sample."""
    calls = []

    def counted(sample, rand):
        calls.append(1)
        return transform(sample, rand)

    counted.__name__ = transform.__name__
    for more in (dict(), dict(engine="debug"), dict(prefetch_factor=0), dict(batch_size=1)):
        calls.clear()
        with pytest.raises(error, match=message):
            for _ in make(counted, **arguments, **more):
                pass
        if more != {"batch_size": 1}:
            assert len(calls) <= 3  # what was prefetched


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda sample, image: None, r"must return a dict of fields, .* got nothing \(is a return missing\?\)"),
        (lambda sample, image: {}, "must return a dict of fields, .* got an empty one"),
        (lambda sample, image: image, "must return a dict of fields, .* got Batch"),
        (lambda sample, image: [image], "must return a dict of fields, .* got list"),
        (lambda sample, image: (image, 1), "must return a dict of fields, .* got tuple"),
        (lambda sample, image: torch.zeros(3), "must return a dict of fields, .* got Tensor"),
        (lambda sample, image: {**sample, "image": image.torch()}, "must return DALI batches, got Tensor for 'image'"),
        (lambda sample, image: {**sample, "image": [1, 2]}, r"must return \d samples, got 2 for 'image'"),
        (lambda sample, image: {"image": image, "x": np.zeros(3)}, r"must return \d samples, got 3 for 'x'"),
        (lambda sample, image: {"image": image, "x": 3.0}, "must return DALI batches, got float for 'x'"),
        (
            lambda sample, image: {"image": image, "x": ndd.as_tensor([1])},
            "must return DALI batches, got Tensor for 'x'",
        ),
        (lambda sample, image: {"image": image, 3: image}, "must return DALI batches, got Batch for 3"),
        (
            lambda sample, image: {"image": image, "x": ndd.as_batch([1.0] * 9)},
            r"the transform bad must return \d samples, got 9 for 'x'",
        ),
        (lambda sample, image: sample, "the field 'image' left the transform still encoded: decode it with ndd.decod"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_returns(make, wrong, message):
    def bad(sample, rand):
        return wrong(sample, decoded(sample))

    fails_with(make, bad, td.TransformError, message)


@pytest.mark.parametrize("behind", [T.CenterCrop(8), T.Resize((8, 8)), T.RandomHorizontalFlip(), T.Resize(8)], ids=repr)
@pytest.mark.parametrize("place", ["host", "dali"])
def test_an_image_left_encoded_in_front_of_a_transform(make, behind, place):
    def forgot(sample, rand):
        return dict(sample)

    def decodes(sample, rand):
        return {**sample, "image": decoded(sample)}

    steps = [forgot, behind] if place == "host" else [forgot, behind, decodes]
    with pytest.raises(td.TransformError, match="the field 'image' left the transform still encoded"):
        next(iter(make(T.Compose(steps))))


def test_a_field_that_is_not_there(make, name="boxes"):
    def asks(sample, rand):
        return {**sample, "image": decoded(sample), "double": sample[name] * 2}

    message = f"'{name}' is not among the fields that a transform sees .image, label, index, path.$"
    fields = ("image", "label", "index", "path")
    fails_with(make, asks, td.TransformError, message, fields=fields)
    fails_with(make, asks, KeyError, f"^{message}", fields=fields)  # KeyError's own text would be quoted

    def careful(sample, rand):
        assert name not in sample and sample.get(name) is None
        return {**sample, "image": decoded(sample)}

    assert len(list(make(careful, fields=fields))) == 3


def test_an_error_of_the_function_itself(make):
    def broken(sample, rand):
        raise ZeroDivisionError("division by the user")

    for engine in ("auto", "debug"):
        with pytest.raises(ZeroDivisionError, match="division by the user") as caught:
            next(iter(make(broken, engine=engine)))
        assert any("every sample of the batch fails in the transform" in note for note in caught.value.__notes__)


def one(sample):
    return sample


def three(sample, rand, ops):
    return sample


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (one, r"the transform one must take \(sample, rand\), its arguments are \(sample\)"),
        (three, r"the transform three must take \(sample, rand\), its arguments are \(sample, rand, ops\)"),
        (lambda *, sample, rand: sample, r"must take \(sample, rand\), its arguments are \(\*, sample, rand\)"),
        (
            T.traceable(lambda sample, rand: sample),
            r"must take \(sample, rand, ops\), its arguments are \(sample, rand",
        ),
        (7, r"transform must be a torchdali transform or a function f\(sample, rand\), got 7"),
        ([augment], r"transform must be one transform: write Compose\(\[...\]\) around the list"),
    ],
)
def test_functions_of_other_arguments(make, function, message):
    """Known at construction."""
    with pytest.raises(TypeError, match=message):
        make(function)


# Traceable functions


@T.traceable
def traced(sample, rand, ops):
    """Everything that a traceable function may do."""
    image = ops.decoders.image(sample["image"], device=ops.decoder_device)
    image = ops.rotate(image, angle=rand.uniform(-30, 30), fill_value=0)
    image = ops.resize(image, size=[24, 20], interp_type=ops.interpolation("bilinear"))
    image = ops.flip(image, horizontal=rand.bernoulli(0.5))
    image = ops.brightness_contrast(image, brightness=rand.choice([0.5, 1.5]), contrast=rand.normal(1, 0.1))
    pair = rand.uniform(shape=2)
    return {**sample, "image": image, "pair": pair, "number": rand.integers(2, 30)}


@T.traceable
def traced_behind(sample, rand, ops):
    image = ops.cast(sample["image"], dtype=ops.as_dtype(torch.float32))
    return {**sample, "image": image * rand.uniform(0.5, 2.0), "second": rand.uniform()}


@pytest.mark.parametrize(
    "transform",
    [
        traced,
        T.Compose([traced, traced_behind]),
        T.Compose([traced, T.RandomHorizontalFlip(), traced_behind, T.Normalize((0.5,) * 3, (0.5,) * 3)]),
        T.Compose([T.RandomResizedCrop(20), traced_behind]),
    ],
    ids=["alone", "two", "between", "behind"],
)
def test_traceable_functions_are_the_same_in_a_pipeline(make, transform):
    """Bit for bit, with all their random numbers, on three batches of 8, 8 and 6, and in a second epoch."""
    engines = ("eager", "pipeline", "debug")
    assert make(transform, engine="pipeline").engine == "pipeline"
    steps = assert_same_stream(*(lambda engine=engine: make(transform, engine=engine) for engine in engines), epochs=2)
    assert [len(step.samples) for step in steps] == [8, 8, 6] * 2
    assert len({digest for step in steps for digest in step.samples}) == 44
    assert_resumes_exactly(lambda: make(transform, engine="pipeline"), epochs=1)


def test_numbers_of_traceable_functions(make):
    for engine in ("eager", "pipeline"):
        for batch in make(T.Compose([traced, traced_behind]), engine=engine, output="dict"):
            rand = Rand(SEED, 0, batch["index"].numpy().astype(np.uint64))
            second = of(rand, "traced_behind")
            second.uniform(0.5, 2.0)
            assert torch.equal(batch["second"], torch.from_numpy(second.uniform()))
            child = of(rand, "traced")
            child.uniform(), child.bernoulli(), child.choice(2), child.normal()
            assert torch.equal(batch["pair"], torch.from_numpy(child.uniform(shape=2)))
            assert torch.equal(batch["number"], torch.from_numpy(child.integers(2, 30)).int())


@pytest.mark.parametrize("engine", ["eager", "pipeline", "debug"])
@pytest.mark.parametrize("name", ["ndd", "host"])
def test_what_a_traceable_function_must_not_use(make, engine, name):
    @T.traceable
    def stateful(sample, rand, ops):
        getattr(rand, name)
        return dict(sample)

    with pytest.raises(td.TransformError, match=f"rand.{name} has no place in a traceable function: use rand.uniform"):
        next(iter(make(T.Compose([T.Decode(), stateful]), engine=engine)))


@pytest.mark.parametrize("engine", ["eager", "pipeline"])
def test_wrong_returns_of_traceable_functions(make, engine):
    @T.traceable
    def nothing(sample, rand, ops):
        pass

    @T.traceable
    def encoded(sample, rand, ops):
        return dict(sample)

    with pytest.raises(td.TransformError, match="the transform nothing must return a dict of fields"):
        next(iter(make(nothing, engine=engine)))
    with pytest.raises(td.TransformError, match="the field 'image' left the transform still encoded"):
        next(iter(make(encoded, engine=engine)))


# Numbers by name


@pytest.mark.parametrize("device_part", [False, True], ids=["torch", "DALI"])
def test_a_step_that_draws_nothing_changes_nothing_after_it(make, device_part):
    """A flip of probability 0 moves none of the numbers of the steps after it."""

    def function(sample, rand):
        rand.uniform()
        return dict(sample)

    last = [function] if device_part else []
    steps = [T.RandomResizedCrop(16), T.RandomHorizontalFlip(), T.RandomVerticalFlip(), *last]
    for before in ([T.RandomHorizontalFlip(0)], [T.RandomVerticalFlip(0)]):
        assert_same_stream(lambda: make(T.Compose(steps)), functools.partial(make, T.Compose([*before, *steps])))


def test_two_steps_of_one_class_draw_their_own_numbers(make):
    loaders = [make(T.Compose([T.Resize((8, 8)), *[T.RandomHorizontalFlip()] * n])) for n in (1, 2)]
    one, two = (torch.cat([batch[0] for batch in loader]) for loader in loaders)
    again = (one == two).flatten(1).all(1)
    assert 0 < again.sum() < len(again)  # the second flip turns about half of them back


def draws_a(sample, rand):
    return {**sample, "a": rand.uniform(), "geometry": rand.stream("geometry").uniform(shape=2)}


def draws_b(sample, rand):
    geometry = rand.stream("geometry")
    first, second = geometry.uniform(shape=2), rand.stream("geometry").uniform()
    own = ndd.as_batch(rand.stream("other").host.integers(1000))
    return {**sample, "b": rand.uniform(), "first": first, "second": second, "other": own}


def test_functions_in_another_order_draw_the_same(make):
    """Each is keyed by its name."""
    start = T.Compose([T.Decode(), T.Resize((8, 8))])
    assert_same_stream(
        lambda: make(T.Compose([start, draws_a, draws_b]), output=sorted_fields),
        lambda: make(T.Compose([start, draws_b, draws_a]), output=sorted_fields),
    )


def sorted_fields(batch):
    return {name: batch[name] for name in sorted(batch)}


def test_streams_are_those_of_the_samples(make):
    """By (seed, epoch, sample) and the name; the second call under a name is another draw."""
    loader = make(T.Compose([T.Decode(), T.Resize((8, 8)), draws_a, draws_b]), output="dict")
    for epoch in range(2):
        for batch in loader:
            rand = Rand(SEED, epoch, batch["index"].numpy().astype(np.uint64))
            geometry = rand.stream("geometry")
            pair = torch.from_numpy(geometry.uniform(shape=2))
            assert torch.equal(batch["geometry"], pair) and torch.equal(batch["first"], pair)
            assert torch.equal(batch["second"], torch.from_numpy(geometry.uniform()))
            assert torch.equal(batch["other"], torch.from_numpy(rand.stream("other").integers(1000)).int().long())
            assert not torch.equal(batch["second"], batch["b"])


@pytest.mark.parametrize("engine", ["eager", "pipeline"])
def test_streams_of_traceable_functions(make, engine):
    @T.traceable
    def draw(sample, rand, ops):
        first = rand.stream("geometry").uniform()
        return {**sample, "own": rand.uniform(), "first": first, "second": rand.stream("geometry").uniform()}

    for batch in make(T.Compose([T.Decode(), T.Resize((8, 8)), draw]), engine=engine, output="dict"):
        rand = Rand(SEED, 0, batch["index"].numpy().astype(np.uint64))
        geometry = rand.stream("geometry")
        assert torch.equal(batch["first"], torch.from_numpy(geometry.uniform()))
        assert torch.equal(batch["second"], torch.from_numpy(geometry.uniform()))
        assert torch.equal(batch["own"], torch.from_numpy(of(rand, "draw").uniform()))


# Generators of torch and numpy


def with_generators(sample, rand):
    n = rand.num_samples
    drawn = torch.rand(n, generator=rand.torch)
    assert rand.torch is rand.torch and rand.numpy is rand.numpy
    return {
        **sample,
        "image": decoded(sample),
        "torch": ndd.as_batch(drawn.numpy()),
        "numpy": ndd.as_batch(rand.numpy.random(n)),
        "named": ndd.as_batch(rand.stream("noise").numpy.random(n)),
    }


def test_generators_of_torch_and_numpy_follow_the_stream(make):
    """Equal in every engine and after a resume; other numbers in each batch, epoch and rank."""

    def loader(**arguments):
        return make(with_generators, **arguments)

    assert_same_stream(loader, lambda: loader(prefetch_factor=0), lambda: loader(engine="debug"), epochs=2)
    assert_resumes_exactly(loader, epochs=2)
    whole = loader(output="dict")
    batches = [*whole, *whole, *loader(output="dict", rank=1, world_size=2)]
    for name in ("torch", "numpy", "named"):
        values = torch.cat([batch[name] for batch in batches])
        assert len(values.unique()) == len(values)
    assert not set(batches[0]["numpy"].tolist()) & set(batches[0]["named"].tolist())


@pytest.mark.parametrize("name", ["torch", "numpy", "epoch", "step"])
def test_what_would_freeze_in_a_traceable_function(make, name):
    @T.traceable
    def stateful(sample, rand, ops):
        getattr(rand, name)
        return dict(sample)

    with pytest.raises(td.TransformError, match=f"rand.{name} has no place in a traceable function"):
        next(iter(make(T.Compose([T.Decode(), stateful]))))


# Global generators


def moves_torch(sample, rand):
    return {**sample, "image": decoded(sample), "x": ndd.as_batch(torch.rand(rand.num_samples).numpy())}


def moves_numpy(sample, rand):
    return {**sample, "image": decoded(sample), "x": ndd.as_batch(np.random.rand(rand.num_samples))}


def moves_python(sample, rand):
    values = [random.random() for _ in range(rand.num_samples)]
    return {**sample, "image": decoded(sample), "x": ndd.as_batch(values)}


@pytest.mark.parametrize(
    ("function", "which"), [(moves_torch, "torch"), (moves_numpy, "np.random"), (moves_python, "random")]
)
def test_a_function_that_moves_a_global_generator(make, function, which):
    """It is warned about with its first batch, once; in the caller's thread the generators are seeded for it."""
    loader = make(function)
    message = f"the transform {function.__name__} draws from the global generator of {which}, which gives other .* rand"
    with pytest.warns(RuntimeWarning, match=message) as caught:
        next(iter(loader))
    assert len(caught) == 1
    assert len(list(loader)) == len(list(loader)) == 3  # warnings are errors here

    def inline(**arguments):
        return make(function, **({"prefetch_factor": 0} | arguments))

    assert_same_stream(inline, lambda: inline(prefetch_factor=2, engine="debug"), epochs=2)
    assert_resumes_exactly(inline, epochs=2)
    whole = inline(output="dict")
    values = torch.cat([batch["x"] for batch in [*whole, *whole]])
    assert len(values.unique()) == len(values)


@pytest.mark.parametrize("arguments", [dict(), dict(prefetch_factor=0), dict(engine="debug")], ids=str)
def test_the_callers_global_generators_are_left_alone(make, arguments):
    random.seed(3), np.random.seed(3), torch.manual_seed(3)
    expected = random.random(), np.random.rand(), torch.rand(1).item()
    random.seed(3), np.random.seed(3), torch.manual_seed(3)
    for _ in make(with_ndd_rng, **arguments):
        pass
    assert (random.random(), np.random.rand(), torch.rand(1).item()) == expected
    if arguments:
        random.seed(3), np.random.seed(3), torch.manual_seed(3)
        for function in (moves_torch, moves_numpy, moves_python):
            assert len(list(make(function, **arguments))) == 3
        assert (random.random(), np.random.rand(), torch.rand(1).item()) == expected


def test_a_traceable_function_that_moves_a_global_generator(make):
    @T.traceable
    def frozen(sample, rand, ops):
        return {**sample, "image": ops.rotate(sample["image"], angle=float(torch.rand(())))}

    for engine in ("eager", "pipeline"):
        with pytest.warns(RuntimeWarning, match="the transform frozen draws from the global generator of torch"):
            next(iter(make(T.Compose([T.Decode(), T.Resize((8, 8)), frozen]), engine=engine)))


OWN = ndd.random.RNG(seed=5)


def uses_its_own(sample, rand):
    return {**sample, "image": ndd.noise.gaussian(decoded(sample), stddev=20.0, rng=OWN)}


class Noise:
    def __init__(self):
        self.rng = ndd.random.RNG(seed=5)

    def __call__(self, sample, rand):
        return {**sample, "image": ndd.noise.gaussian(decoded(sample), stddev=20.0, rng=self.rng)}

    def method(self, sample, rand):
        return self(sample, rand)


def closure():
    def inside(sample, rand):
        return {**sample, "image": ndd.noise.gaussian(decoded(sample), stddev=20.0, rng=rng)}

    rng = ndd.random.RNG(seed=5)
    return inside


def by_default(sample, rand, rng=OWN):
    return {**sample, "image": ndd.noise.gaussian(decoded(sample), stddev=20.0, rng=rng)}


def test_a_function_that_holds_a_generator_of_dali(make):
    functions = [
        (uses_its_own, "OWN"),
        (Noise(), "rng"),
        (Noise().method, "rng"),
        (closure(), "rng"),
        (by_default, "rng"),
        (functools.partial(by_default, rng=ndd.random.RNG(seed=1)), "rng"),
    ]
    for function, name in functions:
        loader = make(function)
        with pytest.warns(
            RuntimeWarning, match=f"holds the generator {name}, which gives .* draw from rand.ndd"
        ) as all:
            next(iter(loader))
        assert len(all) == 1
        assert len(list(loader)) == 3


def test_a_registered_generator_goes_on_with_the_state(make):
    """In the caller's thread a function may keep a generator of its own, if the state holds it."""

    def loader():
        noise = Noise()
        loader = make(noise, prefetch_factor=0)
        loader.register("noise", noise.rng)
        return loader

    assert_resumes_exactly(loader, epochs=2)


# The epoch and the step


def tells(sample, rand):
    n = rand.num_samples
    return {
        **sample,
        "image": decoded(sample),
        "epoch": ndd.as_batch([rand.epoch] * n),
        "step": ndd.as_batch([rand.step] * n),
    }


def test_functions_know_the_epoch_and_the_step(make):
    def seen(loader):
        return [(batch["epoch"].unique().item(), batch["step"].unique().item()) for batch in loader]

    loader = make(tells, output="dict")
    assert [seen(loader) for _ in range(2)] == [[(0, 0), (0, 1), (0, 2)], [(1, 0), (1, 1), (1, 2)]]
    loader.set_epoch(7)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    resumed = make(tells, output="dict", prefetch_factor=0)
    resumed.load_state_dict(state)
    assert seen(resumed) == [(7, 1), (7, 2)]
    ranks = make(tells, output="dict", rank=1, world_size=2, batch_size=4)
    ranks.load_state_dict(state)
    assert seen(ranks) == [(7, 1), (7, 2)]
    images = make(None).dataset
    sampler = td.samplers.LengthBucketSampler([1] * 22, batch_size=4)
    batches = td.DataLoader(images, sampler=sampler, transform=tells, output="dict", device="cpu")
    assert seen(batches) == [(0, number) for number in range(6)]


# Types of fields


def ragged_boxes(n=24, fields=None):
    """Every third batch of four has boxes of one number; the images are of one size."""
    boxes = [np.full((1 + i % (1 + 2 * (i // 4 % 3 != 1)), 4), i, np.float32) for i in range(n)]
    images = np.zeros((n, 4, 4, 3), np.uint8)
    return td.InMemoryDataset(image=images, boxes=boxes, label=np.arange(n))


def load_boxes(transform, **options):
    return td.DataLoader(ragged_boxes(), 4, transform=transform, device="cpu", output="dict", **options)


def moves(sample, rand):
    return {**sample, "boxes": sample["boxes"] + 1.0}


@pytest.mark.parametrize("engine", ["eager", "debug"])
def test_a_ragged_field_of_the_dataset_stays_padded(engine):
    """Whether a batch's samples happen to be alike or not, and whatever a function does."""
    for transform in (moves, lambda sample, rand: dict(sample), None):
        for batch in load_boxes(transform, engine=engine):
            assert "boxes_sizes" in batch and "image_sizes" not in batch


def adds(first_ragged):
    def adds(sample, rand):
        n = rand.num_samples
        alike = (rand.step == 0) != first_ragged
        return {**sample, "more": ndd.as_batch([np.zeros(2 if alike else 1 + i, np.float32) for i in range(n)])}

    return adds


def test_the_first_batch_settles_the_type_of_an_added_field():
    for batch in load_boxes(adds(first_ragged=True)):
        assert "more_sizes" in batch
    loader = load_boxes(adds(first_ragged=False))
    iterator = iter(loader)
    assert "more_sizes" not in next(iterator)
    with pytest.raises(td.TransformError) as error:
        next(iterator)
    assert str(error.value) == (
        "the samples of the field 'more' must have one shape, since those of the first batch had one, and a "
        "later batch has [1] and [2]: write ragged=['more'] at the DataLoader, which gives Padded in every batch, or "
        "make them of one shape in the transform"
    )
    for batch in load_boxes(adds(first_ragged=False), ragged=["more"]):
        assert "more_sizes" in batch


def test_options_settle_a_fields_type():
    for batch in load_boxes(moves, ragged=["image"]):
        assert batch["image_sizes"].tolist() == [[4, 4]] * 4
    for batch in load_boxes(None, ragged=["image"]):
        assert batch["image_sizes"].tolist() == [[4, 4]] * 4
    same = td.InMemoryDataset(boxes=[np.zeros((2, 4), np.float32)] * 4, label=np.arange(4))
    for transform in (moves, None):
        (batch,) = td.DataLoader(same, 4, transform=transform, device="cpu", output="dict", uniform=["boxes"])
        assert batch["boxes"].shape == (4, 2, 4) and "boxes_sizes" not in batch
    for transform in (moves, None):
        with pytest.raises(
            td.TransformError, match=r"'boxes' must have one shape, since uniform= names it, .* ragged="
        ):
            list(load_boxes(transform, uniform=["boxes"]))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (dict(ragged=["nothing"]), ValueError, "ragged must name fields of images or arrays .image, boxes., got 'noth"),
        (
            dict(uniform=["label"]),
            ValueError,
            "uniform must name fields of images or arrays .image, boxes., got 'label'",
        ),
        (dict(ragged="boxes"), TypeError, r"ragged must be a list of names, got 'boxes': write \['boxes'\]"),
        (dict(uniform=[3]), TypeError, r"uniform must be a list of names, got \[3\]"),
        (dict(uniform=["boxes"], ragged=["boxes"]), ValueError, "ragged and uniform exclude each other, .* 'boxes'"),
    ],
    ids=str,
)
def test_wrong_names_of_ragged_fields(options, error, message):
    with pytest.raises(error, match=message):
        load_boxes(None, **options)


# Labels, and other samples of the batch


@T.traceable
def doubles(sample, rand, ops):
    return {**sample, "label": sample["label"] * 2, "more": sample["index"] + 1}


@pytest.mark.parametrize("engine", ["eager", "pipeline", "debug"])
def test_numbers_are_batches(make, engine):
    """Labels and indexes go through functions, with their dtypes; those that a function leaves out stay."""
    transform = T.Compose([T.Decode(), T.Resize((8, 8)), doubles])
    fields = ("image", "label", "index", "valid")
    for batch in make(transform, fields, engine=engine, output="dict", pad_value=-1, pad_last=True):
        index = batch["index"]
        assert torch.equal(batch["label"], index // 11 * 2) and torch.equal(batch["more"], index + 1)
        assert batch["index"].dtype == batch["label"].dtype == torch.int64 and batch["valid"].dtype == torch.bool

    def hot(sample, rand):
        return {"image": decoded(sample), "label": ndd.one_hot(sample["label"], num_classes=2)}

    for _, label, index in make(hot):
        assert torch.equal(label, torch.nn.functional.one_hot(index // 11, 2).float())


def test_mixup(make):
    """Images and labels of other samples of the batch, in the form that works in DALI 2.4."""

    def mixup(sample, rand):
        order = rand.numpy.permutation(rand.num_samples)
        image, label = decoded(sample), ndd.one_hot(sample["label"], num_classes=22)
        others = ndd.as_batch([image.tensors[int(i)] for i in order])
        labels = ndd.as_batch([label.tensors[int(i)] for i in order])
        mixed = ndd.cast(ndd.cast(image, dtype=ndd.float32) * 0.75 + others * 0.25, dtype=ndd.float32)
        return {**sample, "image": mixed, "label": label * 0.75 + labels * 0.25, "order": ndd.as_batch(order)}

    for batch in make(mixup, output="dict"):
        plain = make(lambda sample, rand: {**sample, "image": decoded(sample)}, output="dict")
        images = {int(i): image for other in plain for i, image in zip(other["index"], other["image"])}
        mine = torch.stack([images[int(i)] for i in batch["index"]]).float()
        assert torch.allclose(batch["image"], 0.75 * mine + 0.25 * mine[batch["order"]], atol=1e-3)
        hot = torch.nn.functional.one_hot(batch["index"] // 11, 22).float()
        assert torch.allclose(batch["label"], 0.75 * hot + 0.25 * hot[batch["order"]])


@pytest.mark.parametrize(
    "selection",
    [
        lambda batch: batch.select([1, 0]),
        lambda batch: batch.select(slice(1, 2)),
        lambda batch: batch.tensors[[1, 0]],
        lambda batch: batch.tensors[1:2],
    ],
    ids=["select list", "select slice", "tensors list", "tensors slice"],
)
def test_selections_that_dali_gets_wrong(make, selection):
    """They give all samples unchanged, and raise here instead, with what to write."""

    def mixes(sample, rand):
        return {**sample, "image": decoded(sample), "other": selection(sample["label"])}

    with pytest.raises(
        TypeError, match=r"gives all samples unchanged in DALI 2.4, .* write ndd.as_batch\(\[batch.tens"
    ):
        next(iter(make(mixes)))
    batch = ndd.as_batch(np.arange(3))
    assert [int(np.asarray(tensor)) for tensor in batch.tensors] == [0, 1, 2]
    assert int(np.asarray(batch.select(1))) == 1 and batch.select(...) is batch and len(batch.tensors[:]) == 3


def test_dali_still_gets_selections_wrong():
    """Where this fails, the guard in `_dali` can go."""
    batch = ndd.as_batch(np.arange(3))
    chosen = type(batch.tensors)(batch, [2, 0])
    assert ndd.as_batch(chosen).batch_size == 3
