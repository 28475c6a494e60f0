"""`torchdali.show`: what is drawn is what the loader gives, and the loader does not move."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset

import torchdali as td
from torchdali import transforms as T
from torchdali.samples import samples_of
from torchdali.showing.look import Look, look_at_batch, look_at_loader
from torchdali.showing.panels import Cell, Panels
from torchdali.testing import truncate_file

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
AUGMENT = T.Compose([T.RandomResizedCrop(16), T.RandomHorizontalFlip(), T.Normalize(MEAN, STD)])


def load(dataset: Any, batch_size: int = 4, **options: Any) -> td.DataLoader:
    return td.DataLoader(dataset, batch_size, device="cpu", seed=5, **options)


def cells_of(look: Look, classes: Any = None, **options: Any) -> tuple[list[list[Cell]], list[str]]:
    panels = Panels(look, classes or {}, options.pop("frames", 6), **options)
    return panels.cells(), panels.notes


def only(data: Any, **options: Any) -> Cell:
    """The cell of the first sample."""
    loader = data if isinstance(data, td.DataLoader) else load(data)
    return cells_of(look_at_loader(loader, 1, 1), **options)[0][0][0]


# The samples


@pytest.mark.parametrize("options", [{}, {"rank": 1, "world_size": 2}, {"output": "list"}, {"collate_fn": list}])
def test_it_shows_what_comes_next_and_moves_nothing(folder: Path, options: dict[str, Any]) -> None:
    def loader(**more: Any) -> td.DataLoader:
        return load(td.ImageFolder(folder), shuffle=True, transform=AUGMENT, **more)

    loaders = loader(**options), loader(**{**options, "collate_fn": None, "output": dict})
    passes = [iter(one) for one in loaders]
    next(passes[0]), next(passes[1])
    before = loaders[0].state_dict()
    look = look_at_loader(loaders[0], 6, 1)
    assert loaders[0].state_dict() == before
    plain = [sample for _ in range(2) for sample in samples_of(next(passes[1]), dict)][:6]
    for sample, expected in zip(look.draws[0], plain, strict=True):
        assert torch.equal(sample["image"], expected["image"]) and sample["label"] == expected["label"]
    assert "from sample" in look.words
    rest, whole = list(passes[0]), list(iter(loader(**options)))
    assert len(rest) == len(whole) - 1  # the pass goes on where it was
    assert not loaders[0].bad_samples


def test_whole_batches_are_mixed_as_they_will_be(folder: Path) -> None:
    loader = load(td.ImageFolder(folder), transform=AUGMENT, batch_transform=T.MixUp(num_classes=2), shuffle=True)
    look = look_at_loader(loader, 6, 1)
    images, labels = (torch.cat(parts) for parts in zip(*[batch for batch, _ in zip(loader, range(2))], strict=True))
    for number, sample in enumerate(look.draws[0]):
        assert torch.equal(sample["image"], images[number]) and torch.equal(sample["label"], labels[number])
    heaviest = labels[0].argmax().item()
    assert cells_of(look, {heaviest: "dog"})[0][0][0].caption.startswith(f"dog {labels[0].max():.2f}")


def test_draws_are_those_of_the_epochs_that_follow(folder: Path) -> None:
    loader = load(td.ImageFolder(folder, fields=("image", "index")), transform=AUGMENT, shuffle=True)
    look = look_at_loader(loader, 3, 3)
    assert len({tuple(sample["index"] for sample in draw) for draw in look.draws}) == 1
    for draw in look.draws:
        found = {index: image for images, indices in loader for index, image in zip(indices.tolist(), images)}
        for sample in draw:
            assert torch.equal(sample["image"], found[sample["index"]])


def test_samples_that_come_in_their_own_order_are_drawn_again_too(folder: Path) -> None:
    crop = T.Compose([T.RandomCrop(4), T.Normalize((0.5,), (0.25,))])
    for data, label in ((Counting(), "label"), (td.readers.File(file_root=folder), "label")):
        look = look_at_loader(load(data, transform=crop), 3, 3)
        labels = [[sample[label] for sample in draw] for draw in look.draws]
        assert labels[0] == labels[1] == labels[2] and len(labels[0]) == 3
        cells, notes = cells_of(look)
        assert notes == ["Normalize undone"] and {cell.panels[0].values.shape for cell in cells[2]} == {(4, 4, 3)}
    crops = [torch.stack([sample["image"] for sample in draw]) for draw in look.draws]
    assert not torch.equal(crops[0], crops[1]) and not torch.equal(crops[1], crops[2])


class Counting(IterableDataset[Any]):
    """Counts what was taken from it."""

    taken = 0

    def __iter__(self) -> Iterator[Any]:
        while self.taken < 12:
            self.taken += 1
            yield np.full((8, 8, 3), self.taken, np.uint8), self.taken - 1
        self.taken = 0

    def state_dict(self) -> dict[str, int]:
        return {"taken": self.taken}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.taken = state["taken"]


def test_an_iterable_is_not_moved() -> None:
    dataset = Counting()
    loader = load(dataset)
    passing = iter(loader)
    next(passing)
    taken, state = dataset.taken, loader.state_dict()
    look = look_at_loader(loader, 3, 1)
    assert [sample["label"] for sample in look.draws[0]] == [4, 5, 6]
    assert dataset.taken == taken and loader.state_dict() == state
    assert next(passing)[1].tolist() == [4, 5, 6, 7]
    dataset.handle = (n for n in ())  # type: ignore[attr-defined]  # can't be copied
    with pytest.raises(TypeError, match="Counting can't be copied"):
        look_at_loader(loader, 3, 1)


def test_bad_samples_of_a_dataset_are_left_out(own_folder: Path) -> None:
    dataset = td.ImageFolder(own_folder, fields=("image", "index"))
    truncate_file(Path(dataset.paths[1]))
    figure = td.show(dataset, samples=4)
    assert "1 bad sample" in figure.get_suptitle() and dataset.paths[1] in figure.get_suptitle()
    with pytest.raises(td.BadSampleError, match=dataset.paths[1]):
        td.show(load(dataset), samples=4)


# The panels


def scene(**more: Any) -> td.InMemoryDataset:
    """Images with a white field, and its box, mask, outline and corners."""
    image = np.zeros((2, 20, 30, 3), np.uint8)
    image[:, 4:10, 6:18] = 255
    ids = (image[..., 0] > 0).astype(np.uint8) * 3
    fields = {"image": image, "mask": ids, "boxes": np.array([[[6, 4, 12, 6]]] * 2, np.float32)}
    fields |= {"labels": np.array([[1], [1]]), "points": np.array([[[6, 4], [18, 10]]] * 2, np.float32)}
    kinds: dict[str, Any] = {"mask": "mask", "boxes": td.kinds.Boxes("xywh", group="objects"), "points": "points"}
    kinds["labels"] = td.kinds.Array(group="objects")
    return td.InMemoryDataset(**fields, **more, kinds=kinds)


@pytest.mark.parametrize("flip", [0.0, 1.0])
def test_what_lies_in_a_picture_is_drawn_in_it(flip: float) -> None:
    """After a flip, a change of the boxes' format and a normalisation, which is undone."""
    steps = [T.RandomHorizontalFlip(flip), T.ConvertBoundingBoxFormat("cxcywh"), T.Normalize(MEAN, STD)]
    look = look_at_loader(load(scene(), transform=T.Compose(steps)), 1, 1)
    cells, notes = cells_of(look, {1: "field", 3: "white"})
    (panel,) = cells[0][0].panels
    assert notes == ["Normalize undone"] and panel.form == "picture"
    bright = panel.values.min(-1) > 0.99
    columns = slice(12, 24) if flip else slice(6, 18)
    expected = np.zeros((20, 30), bool)
    expected[4:10, columns] = True
    np.testing.assert_array_equal(bright, expected)
    np.testing.assert_allclose(panel.values[~expected], 0, atol=1e-6)
    ((edges, name, number),) = panel.boxes
    assert (name, number) == ("field", 1)
    np.testing.assert_allclose(edges, (columns.start, 4, columns.stop, 10), atol=1e-4)
    np.testing.assert_array_equal(panel.ids[0], expected * 3)
    np.testing.assert_allclose(sorted(panel.points[0][:, 0].tolist()), (11, 23) if flip else (6, 18), atol=1e-4)
    assert cells[0][0].caption == "white"  # the class that the mask has


def test_objects_have_the_colours_of_their_classes() -> None:
    boxes = np.array([[[0.1, 0.1, 0.5, 0.5], [0.2, 0.2, 0.9, 0.9]]], np.float32)
    masks = np.zeros((1, 2, 10, 20), np.uint8)
    masks[0, 0, 1:5, 2:10] = masks[0, 1, 2:9, 4:18] = 1
    dataset = td.InMemoryDataset(
        image=np.zeros((1, 10, 20, 3), np.uint8), boxes=boxes, masks=masks, labels=np.array([[4, 2]]),
        kinds={"boxes": td.kinds.Boxes(normalized=True), "masks": td.kinds.Mask(group="objects")},
    )  # fmt: skip
    (panel,) = only(dataset).panels
    np.testing.assert_allclose(panel.boxes[1].edges, (4, 2, 18, 9), atol=1e-5)
    assert [box.number for box in panel.boxes] == [4, 2]
    assert [int(ids.max()) % 10 for ids in panel.ids] == [4, 2] and all(ids.any() for ids in panel.ids)


def test_views_frames_slices_sounds_and_numbers() -> None:
    video = np.arange(2 * 10 * 4 * 4 * 3, dtype=np.uint8).reshape(2, 10, 4, 4, 3)
    sound = np.zeros((2, 1, 800), np.float32)
    dataset = td.InMemoryDataset(
        video=video, volume=np.zeros((2, 5, 4, 4), np.float32), sound=sound, ids=np.arange(160).reshape(2, 80),
        weight=np.array([0.25, 0.5]), text=["a red bus", "b"],
        kinds={"video": "video", "volume": td.kinds.Volume(scene="scan"), "sound": td.kinds.Audio(rate=400)},
    )  # fmt: skip
    cell = only(dataset, frames=3)
    titles = [(panel.form, panel.title) for panel in cell.panels]
    pictures = [("picture", f"frame {n}") for n in (0, 4, 9)] + [("picture", f"slice {n}") for n in (0, 2, 4)]
    assert titles == [*pictures, ("curve", ""), ("text", "ids")]
    assert cell.caption == "weight 0.25  a red bus"
    np.testing.assert_array_equal(np.rint(cell.panels[1].values * 255), video[0, 4])
    curve, text = cell.panels[-2:]
    assert (curve.unit, curve.step, curve.values.shape) == ("s", 1 / 400, (1, 800))
    assert text.text.startswith("0 1 2") and "80 in all" in text.text.replace("\n", " ")
    decoded = only(dataset, frames=3, decode=lambda ids: f"{len(ids)} words").panels[-1]
    assert decoded.text == "80 words"
    heat = only(load(dataset, transform=T.Spectrogram(n_fft=64))).panels
    assert [panel.values.shape for panel in heat if panel.form == "heat"] == [(33, 26)]

    images = td.InMemoryDataset(image=np.zeros((2, 9, 9, 3), np.uint8))
    views = T.Views({"whole": T.Resize((9, 9)), "part": T.CenterCrop(4)})
    cell = only(load(images, transform=views))
    assert [(panel.title, panel.values.shape[0]) for panel in cell.panels] == [("view whole", 9), ("view part", 4)]


def test_values_without_a_range_say_theirs() -> None:
    deep = td.InMemoryDataset(image=np.linspace(-3, 5, 2 * 8 * 8 * 3, dtype=np.float32).reshape(2, 8, 8, 3))
    cells, notes = cells_of(look_at_loader(load(deep), 2, 1))
    assert notes == ["image from -3 (black) to 5 (white)"]
    values = [panel.values for cell in cells[0] for panel in cell.panels]
    assert values[0].min() == 0 and values[1].max() == 1
    pixels = np.random.default_rng(0).integers(0, 256, (2, 8, 8, 3), dtype=np.uint8)
    scaled = T.Compose([T.ToDtype(torch.float32, scale=True), T.PerSample(_torchvision_normalize())])
    look = look_at_loader(load(td.InMemoryDataset(image=pixels), transform=scaled), 2, 1)
    cells, notes = cells_of(look)
    assert notes == ["Normalize undone"]
    np.testing.assert_allclose([cell.panels[0].values for cell in cells[0]], pixels / 255, atol=1e-5)


def _torchvision_normalize() -> Any:
    from torchvision.transforms import v2

    return v2.Compose([v2.Normalize(MEAN, STD)])


@pytest.mark.parametrize("output", ["tuple", "dict", "list"])
def test_batches_of_every_form_at_their_true_sizes(folder: Path, output: Any) -> None:
    dataset = td.ImageFolder(folder)
    loader = load(dataset, output=output)
    look = look_at_batch(next(iter(loader)), 3)
    cells, _ = cells_of(look, {0: "cat"})
    for number, cell in enumerate(cells[0]):
        image, label = dataset[number]
        np.testing.assert_array_equal(np.rint(cell.panels[0].values * 255), image.permute(1, 2, 0).numpy())
        assert cell.caption == ("cat" if label == 0 else str(label))


def test_targets_of_detection_in_a_batch() -> None:
    image, box = torch.zeros(3, 8, 8), torch.tensor([[1.0, 2.0, 5.0, 6.0]])
    targets = [{"boxes": box, "labels": torch.tensor([7]), "area": torch.tensor([16.0]), "image_id": 3}] * 2
    cells, _ = cells_of(look_at_batch(([image, image], targets), 5), {7: "bus"})
    assert len(cells[0]) == 2
    (panel,) = cells[0][1].panels
    assert panel.boxes[0].edges == (1, 2, 5, 6) and panel.boxes[0].name == "bus" and cells[0][1].caption == "image_id 3"
    views = look_at_batch(([torch.zeros(5, 3, 8, 8)] * 2, torch.arange(5)), 5)
    assert [len(cell.panels) for cell in cells_of(views)[0][0]] == [2] * 5
    (grey,) = cells_of(look_at_batch(torch.zeros(2, 1, 8, 8), 1))[0][0][0].panels
    assert grey.values.shape == (8, 8, 3)


# The figure


class Forever:
    """A sampler without an end."""

    def __iter__(self) -> Iterator[int]:
        while True:
            yield 1


def test_orders_and_lists_of_samples(folder: Path) -> None:
    pixels = [np.full((6, 6, 3), value, np.uint8) for value in range(5)]
    dataset = td.InMemoryDataset(image=np.stack(pixels), label=np.arange(5))
    orders: list[tuple[dict[str, Any], list[int]]] = [
        ({"batch_sampler": [[3, 1], [2]]}, [3, 1, 2]),
        ({"sampler": [4, 2, 0]}, [4, 2, 0]),
        ({"sampler": Forever()}, [1, 1, 1]),
    ]
    for options, expected in orders:
        look = look_at_loader(td.DataLoader(dataset, device="cpu", **options), 3, 1)
        assert [sample["label"] for sample in look.draws[0]] == expected
    samples = [(image, label) for label, image in enumerate(pixels)]
    for data in (samples, [{"image": image, "label": label} for image, label in samples]):
        figure = td.show(data, samples=3, classes={2: "a$cat$"})
        assert [axes.get_title() for axes in figure.axes] == ["0", "1", "a$cat$"]


def test_a_figure_of_every_kind_of_source(folder: Path, tmp_path: Path) -> None:
    class Own:
        classes = ("cat", "dog")

        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> tuple[Any, int]:
            return np.full((6, 6, 3), index, np.uint8), index % 2

    for data in (Own(), Counting(), td.readers.File(file_root=folder), td.pack(Own(), tmp_path / "pack"), scene()):
        figure = td.show(data, samples=2)
        assert ", epoch 0" in figure.get_suptitle()
        assert sum(axes.get_visible() and bool(axes.images) for axes in figure.axes) == 2
    figure = td.show(Own(), samples=3, draws=2, columns=1)
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == [f"{name} draw {n}" for name in ("cat", "dog", "cat") for n in (1, 2)]
    assert figure._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]  # what a notebook shows
    assert td.show(torch.zeros(1, 3, 4, 4), figure=figure.__class__()) is not figure
    assert not td.show(load(Own(), drop_last=True), samples=2).get_suptitle().startswith("Own")
    assert "nothing" in td.show(load(Own(), drop_last=True)).get_suptitle()


def test_wrong_calls_say_what_to_write(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="samples must be at least 1, got 0"):
        td.show(td.ImageFolder(folder), samples=0)
    with pytest.raises(ValueError, match="draws=2 needs samples that can be drawn again, and here whole batches"):
        td.show(
            load(td.readers.File(file_root=folder), transform=AUGMENT, batch_transform=T.MixUp(num_classes=2)), draws=2
        )
    with pytest.raises(ValueError, match="transform= and draws= need a loader or a dataset"):
        td.show(torch.zeros(2, 3, 4, 4), T.Resize(3))
    with pytest.raises(ValueError, match="a batch with samples was expected"):
        td.show({"a": torch.zeros(())})
    with pytest.raises(TypeError, match="dataset must have samples by index"):
        td.show(3)
    monkeypatch.delitem(sys.modules, "torchdali.showing.drawing", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'torchdali\[show\]'"):
        td.show(td.ImageFolder(folder))
