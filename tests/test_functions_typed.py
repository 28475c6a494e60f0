"""Functions on typed samples: the fields that they see and return, kinds of new ones, and single samples in torch."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torchvision import tv_tensors
from torchvision.transforms import v2

import torchdali as td
from torchdali import kinds
from torchdali import transforms as T
from torchdali.rand import Key, Rand
from torchdali.seeding import preserved
from torchdali.state import Position
from torchdali.testing import assert_resumes_exactly, assert_same_stream

SEED, N = 3, 8

KINDS = {"target.masks": kinds.Mask(group="target"), "target.outlines": kinds.Polygons(group="target")}


class Scenes:
    """Images with a map of ids, and boxes, labels, points, masks and outlines of objects; a third has none."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> Any:
        rng = np.random.default_rng(index)
        height, width = rng.integers(30, 60, 2).tolist()
        m, size = int(rng.integers(1, 4)) if index % 3 else 0, (height, width)
        corners = np.sort(rng.uniform(0, 1, (m, 2, 2)), 1) * [width, height]
        boxes = torch.from_numpy(corners.reshape(m, 4).astype(np.float32))
        points = torch.from_numpy((rng.uniform(0, 1, (m, 2, 2)) * [width, height]).astype(np.float32))
        runs = {"size": list(size), "counts": [7, 30, height * width - 37]}
        outlines = [[rng.uniform(0, 30, 8).tolist()] if k else runs for k in range(m)]
        return {
            "image": tv_tensors.Image(torch.from_numpy(rng.integers(0, 256, (3, *size)).astype(np.uint8))),
            "ids": tv_tensors.Mask(torch.from_numpy(rng.integers(0, 21, size).astype(np.uint8))),
            "target": {
                "boxes": tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=size),
                "labels": torch.from_numpy(rng.integers(0, 80, m)),
                "keypoints": tv_tensors.KeyPoints(points, canvas_size=size),
                "masks": torch.from_numpy(rng.integers(0, 2, (m, *size)).astype(np.uint8)),
                "outlines": outlines,
            },
            "caption": f"picture {index}",
            "number": index,
        }


def make(transform: Any, dataset: Any = None, **arguments: Any) -> td.DataLoader:
    arguments = dict(batch_size=4, shuffle=True, seed=SEED, device="cpu", num_threads=1, output="dict") | arguments
    return td.DataLoader(
        dataset or td.PythonDataset(Scenes(), kinds=KINDS),
        transform=transform if transform is None else T.Compose(transform),
        **arguments,
    )


def same(sample, rand):
    return sample


def as_lists(sample, rand):
    """All fields through the host."""
    made = {
        name: value if isinstance(value, list) else [np.asarray(one.cpu()) for one in value.tensors]
        for name, value in sample.items()
    }
    return made


# All kinds in and out

BEFORE = [T.RandomCrop(28, pad_if_needed=True), T.RandomHorizontalFlip(), T.SanitizeBoundingBoxes()]
AFTER = [T.RandomVerticalFlip(), T.Resize((20, 24)), T.SanitizeBoundingBoxes(min_size=2)]


def test_all_fields_are_seen_by_their_names():
    seen: list[dict[str, Any]] = []

    def look(sample, rand):
        seen.append(
            {
                name: value if isinstance(value, list) else np.asarray(value)
                for name, value in sample.items()
                if name in ("caption", "number", "target.outlines")
            }
        )
        assert list(sample) and set(sample) == {
            "image",
            "ids",
            "target.boxes",
            "target.labels",
            "target.keypoints",
            "target.masks",
            "target.outlines",
            "caption",
            "number",
        }
        return sample

    batch = next(iter(make([look], shuffle=False)))
    assert batch["caption"] == seen[0]["caption"] == [f"picture {i}" for i in range(4)]
    assert seen[0]["number"].tolist() == [0, 1, 2, 3]
    assert seen[0]["target.outlines"] == [Scenes()[i]["target"]["outlines"] for i in range(4)]


@pytest.mark.parametrize("engine", ["eager", "debug"])
@pytest.mark.parametrize("function", [same, as_lists])
@pytest.mark.parametrize(
    ("before", "after"), [([], []), (BEFORE, []), ([], AFTER), (BEFORE, AFTER)], ids=["", "before", "after", "both"]
)
def test_a_function_that_changes_nothing_changes_nothing(before, after, function, engine):
    assert_same_stream(
        lambda: make([*before, *after]), lambda: make([*before, function, *after], engine=engine), epochs=1
    )


def test_two_functions_and_steps_between():
    assert_same_stream(
        lambda: make([*BEFORE, *AFTER]),
        lambda: make([same, *BEFORE, as_lists, AFTER[0], same, *AFTER[1:]], prefetch_factor=0),
    )


@pytest.mark.parametrize(("function", "before"), [(same, []), (as_lists, BEFORE)])
def test_views_with_functions(function, before):
    views = [[T.RandomVerticalFlip(), T.Resize((20, 24))], [T.RandomCrop(16)]]
    with_functions = [[views[0][0], function, views[0][1]], [*views[1], function]]
    assert_same_stream(
        lambda: make([*before, T.Views(views)], output="list"),
        lambda: make([*before, function, T.Views(views)], output="list"),
        lambda: make([*before, T.Views(with_functions)], output="list"),
    )


# Single samples in torch


def seeds_of(name, indices, epoch=0):
    """The seeds of samples in a step of this name."""
    rand = Rand(SEED, Position(epoch).key, np.asarray(indices, np.uint64))
    return (rand.named(Key.STEP, name).words() >> np.uint64(1)).tolist()


MOVES = v2.Compose(
    [v2.RandomPerspective(p=1.0), v2.RandomHorizontalFlip(), v2.ColorJitter(0.3, 0.3), v2.RandomResizedCrop(20)]
)


class Bare:
    """Samples that v2 takes."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> Any:
        sample = Scenes()[index]
        del sample["target"]["outlines"]
        sample["target"]["masks"] = tv_tensors.Mask(sample["target"]["masks"])
        return sample


def test_v2_as_by_hand():
    """With the seeds of the samples, in threads and in the caller's; the caller's generator stands where it stood."""
    before = torch.get_rng_state()
    loader = make([T.PerSample(MOVES)], td.PythonDataset(Bare()), num_threads=3, output="list")
    for batch in loader:
        seeds = seeds_of("Compose", batch["number"])
        for i, index in enumerate(batch["number"]):
            with preserved():
                torch.manual_seed(seeds[i])
                expected = MOVES(Bare()[index])
            assert torch.equal(batch["image"][i], expected["image"]) and torch.equal(batch["ids"][i], expected["ids"])
            for name, value in expected["target"].items():
                assert torch.equal(batch["target"][i][name], value), name
    assert torch.equal(before, torch.get_rng_state())


def both(sample, rand):
    """Draws from all generators of the sample."""
    noise = rand.numpy.normal() + torch.rand((), generator=rand.torch).item() + torch.rand(()).item()
    shared = torch.rand((), generator=rand.stream("mine").torch)
    return {**sample, "noise": noise, "shared": shared.item(), "epoch": rand.epoch, "text": f"{sample['caption']}!"}


STEPS = [T.RandomHorizontalFlip(), T.PerSample(MOVES), T.PerSample(both), T.RandomVerticalFlip()]


def scenes(steps=STEPS, **arguments):
    return make(steps, td.PythonDataset(Scenes(), kinds=KINDS), **arguments)


@pytest.mark.slow
def test_single_samples_are_the_same_everywhere():
    stream = assert_same_stream(
        lambda: scenes(num_threads=3),
        lambda: scenes(engine="debug"),
        lambda: scenes(prefetch_factor=0),
        lambda: [scenes(batch_size=2, rank=rank, world_size=2) for rank in range(2)],
    )
    assert len(stream) == 2
    assert_same_stream(lambda: scenes(), lambda: scenes(batch_size=3), epochs=1, steps=False)


@pytest.mark.slow
def test_single_samples_resume_exactly():
    assert_resumes_exactly(scenes, epochs=2)


@pytest.mark.slow
@pytest.mark.processes
def test_single_samples_with_workers():
    assert_same_stream(scenes, lambda: scenes(num_workers=2))


def test_outlines_come_as_masks_and_go_on():
    """The masks that they would leave as, through steps before and after."""
    seen = []

    def look(sample):
        seen.append(sample["target"]["outlines"])
        return sample

    assert_same_stream(lambda: make([]), lambda: make([T.PerSample(look)]))
    seen.clear()
    sizes = [batch["target.outlines_sizes"] for batch in make([*BEFORE, *AFTER])]
    through = [batch["target.outlines_sizes"] for batch in make([*BEFORE, T.PerSample(look), *AFTER])]
    assert len(seen) == N and all(type(value) is tv_tensors.Mask and value.shape[1:] == (28, 28) for value in seen)
    assert all(torch.equal(one, other) for one, other in zip(sizes, through, strict=True))


def test_an_identity_of_single_samples():
    keep = lambda sample: sample  # noqa: E731
    for form in ("torch", "numpy"):
        step = T.PerSample(keep, form=form)
        assert_same_stream(
            lambda: make([*BEFORE, *AFTER], td.PythonDataset(Bare())),
            lambda step=step: make([*BEFORE, step, *AFTER], td.PythonDataset(Bare())),
        )


class Pictures(Bare):
    """Without objects."""

    def __getitem__(self, index: int) -> Any:
        return {name: value for name, value in super().__getitem__(index).items() if name != "target"}


class LikeAlbumentations:
    """Takes names, gives a dict, and has a generator of its own, which is no one's but its seed's."""

    def set_random_seed(self, seed):
        self.rng = np.random.default_rng(seed)

    def __call__(self, image, mask):
        top = int(self.rng.integers(0, 10))
        return {"image": image[top : top + 16, :16], "mask": mask[top : top + 16, :16]}


class Compose(LikeAlbumentations):
    def __call__(self, sample):
        made = super().__call__(image=sample["image"], mask=sample["ids"])
        return {**sample, "image": made["image"], "ids": made["mask"]}


transform = LikeAlbumentations()


def by_name(sample):
    made = transform(image=sample["image"], mask=sample["ids"])
    return {**sample, "image": made["image"], "ids": made["mask"]}


@pytest.mark.parametrize(("function", "name"), [(Compose(), "Compose"), (by_name, "by_name")])
def test_an_object_with_a_seed_of_its_own(function, name):
    def loader(**arguments):
        return make([T.PerSample(function, form="numpy")], td.PythonDataset(Pictures()), **arguments)

    for batch in loader(output="list", num_threads=3):
        for index, image, ids, seed in zip(
            batch["number"], batch["image"], batch["ids"], seeds_of(name, batch["number"])
        ):
            top = int(np.random.default_rng(seed % 2**32).integers(0, 10))
            assert torch.equal(image, Bare()[index]["image"][:, top : top + 16, :16])
            assert torch.equal(ids, Bare()[index]["ids"][top : top + 16, :16])
    assert_resumes_exactly(loader, epochs=1)


def test_files_come_decoded_in_the_datasets_form(folder):
    """(image, label) of an image folder, on DALI's pixels."""

    @T.PerSample
    def crop(sample):
        image, label = sample
        assert type(image) is tv_tensors.Image and image.dtype == torch.uint8 and type(label) is int
        return v2.functional.center_crop(image, [16, 16]), label + 1

    made = td.DataLoader(td.ImageFolder(folder), 4, transform=T.Compose([crop, T.Resize(8)]), device="cpu")
    plain = td.DataLoader(td.ImageFolder(folder), 4, transform=T.Compose([T.CenterCrop(16), T.Resize(8)]), device="cpu")
    for (image, label), (expected, number) in zip(made, plain, strict=True):
        assert torch.equal(label, number + 1) and image.shape == expected.shape
        assert (image.float() - expected.float()).abs().max() <= 2  # the plain one decodes the window only


def global_python(sample):
    random.random()
    return sample


def takes_names(*, image):
    return image


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (lambda: T.PerSample(v2.RandomPerspective), TypeError, r"write PerSample\(RandomPerspective\(...\)\)"),
        (lambda: T.PerSample(3), TypeError, "PerSample takes a function of a sample, got 3"),
        (lambda: T.PerSample(same, form="pil"), ValueError, 'form must be "torch" or "numpy", got \'pil\''),
        (lambda: T.PerSample(takes_names), TypeError, r"must take \(sample\) or \(sample, rand\), takes_names takes"),
    ],
)
def test_wrong_functions_of_samples(wrong, error, message):
    with pytest.raises(error, match=message):
        wrong()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda sample: None, r"must return the sample \(is a return missing\?\)"),
        (lambda sample: 3, "must return a dict of image, ids, target, caption, number, got int"),
        (lambda sample: {**sample, "target": 3}, "must return a dict of boxes, .* in target, got int"),
        (lambda sample: {**sample, **({"odd": 1} if sample["number"] % 2 else {})}, "and 'odd' is in some only"),
    ],
)
def test_wrong_results_of_samples(wrong, message):
    with pytest.raises(Exception, match=message):
        next(iter(make([T.PerSample(wrong)], td.PythonDataset(Bare()), shuffle=False)))


def test_a_global_generator_that_threads_share():
    with pytest.warns(RuntimeWarning, match="global_python draws from the global generator of random"):
        next(iter(make([T.PerSample(global_python)], td.PythonDataset(Bare()))))


# The kinds of new fields


class Grey:
    """An image, nothing else that lies in it."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> Any:
        return {"image": Scenes()[index]["image"], "number": index}


@T.function(adds={"depth": kinds.Image(), "seen": kinds.Mask(), "boxes": "boxes", "words": "object", "rank": "number"})
def look_at(sample, rand):
    images = [np.asarray(image.cpu()) for image in sample["image"].tensors]
    return {
        **sample,
        "depth": [image[..., :1].astype(np.float32) for image in images],
        "seen": [image[..., 0] for image in images],
        "boxes": [np.array([[0, 0, 8, 9]] * (k % 3), np.float32).reshape(-1, 4) for k in range(len(images))],
        "words": [[1, 2]] * len(images),
        "rank": [7] * len(images),
    }


def grey(steps, **arguments):
    return make(steps, td.PythonDataset(Grey()), **arguments)


@pytest.mark.parametrize("before", [[], [T.RandomVerticalFlip()]], ids=["first", "later"])
def test_new_fields_move_with_the_others(before):
    """A picture, a mask and boxes that a function makes of an image, through what follows."""
    steps = [*before, look_at, T.RandomHorizontalFlip(), T.CenterCrop(24)]
    for batch in grey(steps, uniform=["image"]):
        assert batch["image"].shape[1:] == (3, 24, 24) and batch["depth"].dtype == torch.float32
        assert torch.equal(batch["depth"], batch["image"][:, :1].float())
        assert torch.equal(batch["seen"], batch["image"][:, 0])
        n = len(batch["number"])
        assert batch["boxes_sizes"].flatten().tolist() == [k % 3 for k in range(n)]
        assert batch["words"] == [[1, 2]] * n and batch["rank"].tolist() == [7] * n
    assert_same_stream(lambda: grey(steps), lambda: grey(steps, engine="debug"), lambda: grey(steps, prefetch_factor=0))


def test_new_boxes_stand_where_torchvision_has_them():
    steps = [look_at, T.RandomHorizontalFlip(p=1.0)]
    batch = next(iter(grey(steps, shuffle=False)))
    for index in range(4):
        width = Grey()[index]["image"].shape[-1]
        boxes = batch["boxes"][index, : index % 3]
        assert torch.equal(boxes, torch.tensor([[width - 8.0, 0, width, 9]] * (index % 3)).reshape(-1, 4))


def test_new_fields_in_views():
    views = T.Views([[look_at, T.RandomHorizontalFlip(), T.CenterCrop(24)], [look_at, T.CenterCrop(16)]])
    for batch in grey([views]):
        for image, depth, rank in zip(batch["image"], batch["depth"], batch["rank"], strict=True):
            assert torch.equal(depth, image[:, :1].float()) and rank.tolist() == [7] * len(image)


def test_new_fields_of_single_samples():
    def invert(sample):
        return {**sample, "inverse": tv_tensors.Image(255 - sample["image"]), "text": str(sample["number"])}

    step = T.PerSample(invert, adds={"inverse": "image"})
    for batch in grey([step, T.RandomHorizontalFlip(), T.Resize((20, 20))]):
        assert (batch["inverse"].int() + batch["image"].int() - 255).abs().max() <= 1
        assert batch["text"] == [str(number) for number in batch["number"].tolist()]


def test_a_field_that_nobody_declared_stays():
    def add(sample, rand):
        return {**sample, "copy": sample["image"], "name": ["x"] * rand.num_samples}

    for batch in grey([add, T.CenterCrop(16)]):
        sizes = [Grey()[index]["image"].shape[1:] for index in batch["number"].tolist()]
        assert batch["copy_sizes"][:, :2].tolist() == [list(size) for size in sizes]  # [H, W, C], as it was
        assert batch["name"] == ["x"] * len(sizes)


def test_new_objects_in_lists():
    def add(sample, rand):
        return {**sample, "name": ["x"] * rand.num_samples}

    words, number = next(iter(grey([look_at, add], output=lambda fields: (fields["words"], fields["number"]))))
    assert len(words) == len(number)
    _, _, *parts = next(iter(grey([look_at, add], output="list")))
    assert parts[3:] == [[[1, 2]] * 4, [7] * 4, ["x"] * 4]


class Doubled:
    """Keeps sizes, and draws."""

    @staticmethod
    @T.function(traceable=True, keeps_size=True)
    def doubled(sample, rand, ops):
        return {**sample, "image": ops.cast_like(sample["image"] * rand.uniform(0.5, 1.0), sample["image"])}


def test_what_keeps_sizes_is_traced_before_crops():
    steps = [T.RandomHorizontalFlip(), Doubled.doubled, T.RandomCrop(24), Doubled.doubled, T.CenterCrop(20)]
    assert_same_stream(
        lambda: grey(steps, engine="pipeline"), lambda: grey(steps, engine="eager"), lambda: grey(steps, engine="debug")
    )
    loader = grey(steps)
    next(iter(loader))
    assert loader.engine == "pipeline"

    loses = T.traceable(lambda sample, rand, ops: dict(sample))
    with pytest.raises(ValueError, match="RandomCrop needs the sizes of the images that <lambda> makes"):
        next(iter(grey([loses, T.RandomCrop(24), loses], engine="pipeline")))


def test_a_traceable_function_sees_what_a_pipeline_holds():
    @T.traceable
    def asks(sample, rand, ops):
        return {**sample, "x": sample["caption"]}

    @T.traceable
    def careful(sample, rand, ops):
        assert "caption" not in sample and "target.outlines" not in sample
        return sample

    with pytest.raises(td.TransformError, match=r"caption.*a traceable one does not see objects, such as strings"):
        next(iter(make([asks])))
    assert_same_stream(
        lambda: make([*BEFORE]), lambda: make([*BEFORE, careful]), lambda: make([*BEFORE, careful], engine="pipeline")
    )


@T.function(adds={"depth": "image"})
def forgets(sample, rand):
    return sample


@T.function(keeps_size=True)
def crops(sample, rand):
    return {**sample, "image": [np.zeros((5, 6, 3), np.uint8)] * rand.num_samples}


def giving(**fields):
    def gives(sample, rand):
        return {**sample, **{name: make(rand.num_samples) for name, make in fields.items()}}

    return gives


@pytest.mark.parametrize(
    ("steps", "error", "message"),
    [
        ([forgets], td.TransformError, "the transform forgets must return 'depth', which its adds= names"),
        ([crops, T.CenterCrop(4)], td.TransformError, r"crops must keep sizes.* made \[5, 6\] of"),
        ([T.function(adds={"image": "image"})(giving())], ValueError, "adds 'image', which the dataset has"),
        (
            [giving(x=lambda n: [1] * (n - 1) + ["a"])],
            td.TransformError,
            r"got numbers and str: write @T.function\(adds",
        ),
        (
            [giving(x=lambda n: [np.zeros(2)] * (n - 1) + [np.zeros(2, np.int64)])],
            td.TransformError,
            "must return arrays of one dtype and number of dimensions for 'x', got float64 with 1 and int64 with 1",
        ),
        ([giving(image=lambda n: ["a"] * n)], td.TransformError, "must return numbers or arrays for 'image'"),
        ([giving(x=lambda n: [1])], td.TransformError, r"must return \d samples, got 1 for 'x'"),
    ],
)
def test_wrong_fields(steps, error, message):
    with pytest.raises(error, match=message):
        next(iter(grey(steps)))


def test_wrong_kinds():
    with pytest.raises(ValueError, match=r"adds must hold kinds .* got 'picture'"):
        T.function(adds={"x": "picture"})
    with pytest.raises(ValueError, match="adds must hold kinds of decoded values, got files for 'x'"):
        T.function(adds={"x": "encoded"})
    with pytest.raises(ValueError, match=r"functions return pictures as .H, W, C., got the layout CHW for 'x'"):
        T.PerSample(same, adds={"x": kinds.Image("CHW")})
    one, other = T.function(adds={"x": "mask"})(lambda s, r: s), T.function(adds={"x": "image"})(lambda s, r: s)
    with pytest.raises(ValueError, match=r"functions add 'x' as Mask.* and as Image.*: write one kind"):
        next(iter(grey([one, other])))
    with pytest.raises(ValueError, match="functions of all views must add the same fields, and 'x' is not in each"):
        next(iter(grey([T.Views([[one], [T.CenterCrop(8)]])])))


@pytest.mark.parametrize("function", [same, T.PerSample(lambda sample: sample)], ids=["batch", "sample"])
def test_changed_formats_of_boxes_go_through_functions(function):
    first, second, third = T.ConvertBoundingBoxFormat("cxcywh"), T.RandomHorizontalFlip(), T.RandomVerticalFlip()
    data = td.PythonDataset(Bare())
    assert_same_stream(
        lambda: make([first, second, third], data), lambda: make([first, function, second, function, third], data)
    )
