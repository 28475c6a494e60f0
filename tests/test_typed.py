"""Typed samples in a loader: kinds that are told, shown or in doubt; annotations that move with their image."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import tv_tensors
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

import torchdali as td
from torchdali import kinds
from torchdali import transforms as T
from torchdali.testing import assert_resumes_exactly, assert_same_stream

FLIP = T.RandomHorizontalFlip(1.0)
ENGINES = ("eager", "pipeline", "debug")


class Objects(torch.utils.data.Dataset[Any]):
    """Images of different sizes, some without objects, whose targets then lack the objects' fields."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> Any:
        numbers = torch.Generator().manual_seed(index)
        height, width, count = (
            int(torch.randint(*span, (1,), generator=numbers)) for span in ((30, 60), (30, 60), (0, 4))
        )
        image = torch.randint(0, 256, (3, height, width), generator=numbers, dtype=torch.uint8)
        boxes = torch.rand(count, 4, generator=numbers) * 20
        boxes[:, 2:] += boxes[:, :2] + 1
        target: dict[str, Any] = {"image_id": index}
        if count:
            target["boxes"] = tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=(height, width))
            target["labels"] = torch.arange(count)
            masks = torch.randint(0, 2, (count, height, width), generator=numbers, dtype=torch.uint8)
            target["masks"] = tv_tensors.Mask(masks)
        return tv_tensors.Image(image), target


class Same(torch.utils.data.Dataset[Any]):
    """One sample again and again."""

    def __init__(self, sample: Any) -> None:
        self.sample = sample

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return self.sample


def batch_of(sample: Any, transform: Any, **options: Any) -> Any:
    with td.DataLoader(Same(sample), batch_size=2, transform=transform, **options) as loader:
        return next(iter(loader))


IMAGE = torch.arange(3 * 20 * 30, dtype=torch.uint8).reshape(3, 20, 30)
TARGET = {
    "boxes": torch.tensor([[1.0, 2, 5, 9], [0, 0, 30, 20]]),
    "labels": torch.tensor([4, 7]),
    "masks": torch.arange(2 * 20 * 30, dtype=torch.int32).reshape(2, 20, 30),
    "image_id": 7,
    "colour": torch.zeros(2, 3),
}


def picture(mode: str) -> Image.Image:
    return Image.new(mode, (30, 20))


def encoded(mode: str, format: str) -> bytes:
    file = io.BytesIO()
    picture(mode).save(file, format)
    return file.getvalue()


@pytest.mark.parametrize(
    ("sample", "transform", "kinds_", "message"),
    [
        (
            (picture("RGB"), picture("P")),
            FLIP,
            None,
            r"'field1': a picture of mode P beside an image: a mask, or an image\?",
        ),
        ((picture("RGB"), picture("L")), FLIP, None, "'field1': a picture of mode L beside an image"),
        ((picture("RGB"), picture("L")), T.Normalize((0.5,), (0.5,)), None, "'field1': a picture of mode L beside"),
        ((encoded("RGB", "JPEG"), encoded("L", "PNG")), FLIP, None, "'field1': a PNG file beside an image: a mask"),
        (
            (IMAGE, torch.zeros(20, 30)),
            FLIP,
            None,
            r"'field1': its last two dimensions \[20, 30\] are those of the image",
        ),
        ((IMAGE, IMAGE[:1]), T.Normalize((0.5,), (0.5,)), None, r"'field1': \[1, 20, 30\] beside an image: a mask"),
        ((IMAGE, torch.zeros(5, 4)), FLIP, None, r"'field1': \[5, 4\] beside an image: boxes, and of which format\?"),
        ({"image": IMAGE, "target": TARGET}, FLIP, None, r"'target\.boxes': .* kinds={'target\.boxes': \.\.\.}"),
        (
            {"image": IMAGE, "target": TARGET},
            T.SanitizeBoundingBoxes(),
            {"boxes": "boxes", "masks": "mask"},
            r"'target\.colour': it has as many rows as 'target\.boxes': .* kinds\.Array\(group='\.\.\.'\)",
        ),
    ],
    ids=["palette", "grey", "grey_values", "png", "depth", "label_map", "features", "boxes", "group"],
)
def test_a_guess_that_could_be_wrong_in_silence_is_an_error(sample, transform, kinds_, message):
    with pytest.raises(td.KindError, match=f"(?s){message}"):
        batch_of(sample, transform, kinds=kinds_)


@pytest.mark.parametrize(
    ("sample", "transform"),
    [
        ((picture("RGB"), 3), FLIP),
        ((picture("L"), 3), FLIP),
        ((picture("RGB"), picture("P")), T.ToDtype(torch.float32, scale=True)),
        ((IMAGE, torch.zeros(20, 30)), T.Normalize((0.5,) * 3, (0.5,) * 3)),
        ((IMAGE, torch.zeros(5, 4)), None),
        ((IMAGE, IMAGE), FLIP),
    ],
)
def test_what_is_sure_or_does_not_matter_asks_nothing(sample, transform):
    assert batch_of(sample, transform)[0].shape[0] == 2


def test_raw_annotations_beside_a_mover_are_an_error():
    sample = (IMAGE, [{"bbox": [1, 2, 3, 4], "category_id": 3}])
    with pytest.raises(td.KindError, match=r"'field1': objects with 'bbox' .*wrap_dataset_for_transforms_v2"):
        batch_of(sample, FLIP)
    assert batch_of(sample, T.ToDtype(torch.float32))[1] == [sample[1]] * 2
    assert batch_of(sample, FLIP, kinds={"field1": "object"})[1] == [sample[1]] * 2


def test_wrong_words():
    with pytest.raises(
        ValueError, match=r"kinds must hold kinds \(encoded, image, .* got 'maks' \(did you mean 'mask'\?\)"
    ):
        batch_of((IMAGE, IMAGE[0]), FLIP, kinds={"field1": "maks"})
    with pytest.raises(ValueError, match="kinds must name fields among image, label, got 'mask'"):
        batch_of((IMAGE, 1), FLIP, kinds={"mask": "mask"})
    with pytest.raises(ValueError, match=r"RandomHorizontalFlip acts on images, .* write kinds={'value': 'image'}"):
        batch_of(torch.zeros(3, 20, 30), FLIP)
    with pytest.raises(ValueError, match="SanitizeBoundingBoxes acts on boxes, and the dataset has none"):
        batch_of((IMAGE, 1), T.SanitizeBoundingBoxes())
    with pytest.raises(ValueError, match="format must be one of 'xyxy', 'xywh', 'cxcywh', got 'cxcywhr'"):
        kinds.Boxes("cxcywhr")  # type: ignore[arg-type]


def test_everything_that_is_told_moves():
    target = {**TARGET, "keypoints": torch.tensor([[[3.0, 4, 2]], [[0, 0, 1]]]), "unit": TARGET["boxes"] / 40}
    told = {
        "boxes": kinds.Boxes("xyxy"), "masks": "mask", "keypoints": "points", "colour": "array",
        "unit": kinds.Boxes("xyxy", normalized=True), "depth": "mask", "same": "array",
    }  # fmt: skip
    sample = {"image": IMAGE, "depth": torch.rand(20, 30), "same": IMAGE[0], "target": target}
    batch = batch_of(sample, FLIP, kinds=told)
    size = (20, 30)
    assert torch.equal(batch["image"][0], IMAGE.flip(-1)) and torch.equal(batch["depth"][0], sample["depth"].flip(-1))
    assert torch.equal(batch["same"][0], IMAGE[0])
    moved = batch["target"]
    flipped = F.horizontal_flip(tv_tensors.BoundingBoxes(TARGET["boxes"], format="XYXY", canvas_size=size))
    assert torch.equal(moved["boxes"].data[0], flipped) and moved["boxes"].sizes.tolist() == [[2], [2]]
    assert torch.equal(moved["masks"].unbind()[0], TARGET["masks"].flip(-1))
    points = F.horizontal_flip_keypoints(target["keypoints"][..., :2], canvas_size=size)
    assert torch.equal(moved["keypoints"].data[0, ..., :2], points)
    assert torch.equal(moved["keypoints"].data[0, ..., 2], target["keypoints"][..., 2])
    whole = target["unit"] * torch.tensor([30.0, 20, 30, 20])
    unit = F.horizontal_flip(tv_tensors.BoundingBoxes(whole, format="XYXY", canvas_size=size))
    assert torch.allclose(moved["unit"].data[0], unit / torch.tensor([30.0, 20, 30, 20]))
    assert torch.equal(moved["colour"][0], TARGET["colour"]) and moved["image_id"].tolist() == [7, 7]


def test_lists_become_boxes_and_labels_where_boxes_are_told():
    batch = batch_of({"image": IMAGE, "boxes": [[1.0, 2, 3, 4]], "labels": [1]}, FLIP, kinds={"boxes": "boxes"})
    assert batch["boxes"].data[0].tolist() == [[27, 2, 29, 4]] and batch["labels"].data.tolist() == [[1], [1]]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_chain_on_objects_is_torchvisions(engine):
    """Image, boxes, labels and masks after the same moves; samples without objects have none."""
    size = 24
    chain = T.Compose([T.CenterCrop((28, 28)), T.Resize((size, size)), FLIP, T.SanitizeBoundingBoxes()])
    theirs = v2.Compose(
        [
            v2.CenterCrop((28, 28)), v2.Resize((size, size)), v2.RandomHorizontalFlip(1.0),
            v2.SanitizeBoundingBoxes(labels_getter=lambda sample: (sample[1]["labels"], sample[1]["masks"])),
        ]
    )  # fmt: skip
    data = Objects()
    counts = []
    with td.DataLoader(data, batch_size=4, transform=chain, engine=engine, output="list") as loader:
        for images, targets in loader:
            for image, target in zip(images, targets, strict=True):
                sample = data[target["image_id"]]
                if "boxes" not in sample[1]:
                    assert target["boxes"].shape == (0, 4) and target["masks"].shape == (0, size, size)
                    assert target["labels"].shape == (0,)
                    continue
                expected, objects = theirs(sample)
                assert torch.equal(image, expected)
                for name in ("boxes", "labels", "masks"):
                    assert torch.equal(target[name], objects[name]), name
                counts.append(len(objects["labels"]))
    assert min(counts) < max(counts)


CHAINS = {
    "crop": T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.ColorJitter(0.4, 0.4)]),
    "objects": T.Compose([T.RandomZoomOut(), T.RandomIoUCrop(), T.RandomHorizontalFlip(), T.SanitizeBoundingBoxes()]),
    "affine": T.Compose([T.RandomAffine(20, (0.1, 0.1)), T.RandomVerticalFlip(), T.Resize((20, 20))]),
}


@pytest.mark.parametrize("name", CHAINS)
def test_objects_are_one_stream(name):
    def make(**options: Any) -> td.DataLoader:
        return td.DataLoader(Objects(), shuffle=True, seed=3, transform=CHAINS[name], **options)

    assert_same_stream(*[lambda engine=engine: make(batch_size=4, engine=engine) for engine in ENGINES])
    assert_same_stream(
        lambda: make(batch_size=8),
        lambda: [make(batch_size=2, rank=rank, world_size=4) for rank in range(4)],
    )
    assert_resumes_exactly(lambda: make(batch_size=4))


@pytest.mark.processes
def test_objects_of_workers_are_the_same():
    def make(num_workers: int) -> td.DataLoader:
        return td.DataLoader(
            Objects(), batch_size=4, shuffle=True, seed=3, transform=CHAINS["objects"], num_workers=num_workers
        )

    assert_same_stream(lambda: make(0), lambda: make(2))


def test_scenes_move_apart():
    transform = T.RandomCrop(8)
    sample = {"a": IMAGE, "b": IMAGE, "mask": IMAGE[0]}
    told = {"mask": kinds.Mask(scene="second"), "b": kinds.Image(scene="second")}
    with td.DataLoader(Same(sample), batch_size=4, transform=transform, kinds=told) as loader:
        (batch,) = loader
    assert not torch.equal(batch["a"], batch["b"])
    assert torch.equal(batch["b"][:, 0], batch["mask"])
    with td.DataLoader(Same({"a": IMAGE, "b": IMAGE}), batch_size=4, transform=transform) as loader:
        (batch,) = loader
    assert torch.equal(batch["a"], batch["b"])


def test_fields_of_a_scene_have_one_size():
    with pytest.raises(ValueError, match="the mask 'mask' must have its image's size, 20 x 30, got 20 x 29"):
        batch_of({"image": IMAGE, "mask": IMAGE[0, :, :29]}, FLIP, kinds={"mask": "mask"})
    sample = {"image": IMAGE, "other": IMAGE[:, :19], "mask": IMAGE[0]}
    with pytest.raises(ValueError, match=r"fields of one scene must have one size.*kinds\.Image\(scene='other'\)"):
        batch_of(sample, FLIP, kinds={"mask": "mask"})
    # Unrelated images don't have to.
    batch = batch_of({"image": IMAGE, "other": IMAGE[:, :19]}, T.Resize((8, 8)))
    assert batch["image"].shape == batch["other"].shape == (2, 3, 8, 8)


def test_groups_have_one_row_per_object():
    target = {**TARGET, "labels": torch.tensor([4, 7, 8])}
    told = {"boxes": "boxes", "masks": "mask", "colour": "array"}
    with pytest.raises(ValueError, match=r"one row per object, got 3 in 'target\.labels' and 2 in 'target\.boxes'"):
        batch_of({"image": IMAGE, "target": target}, FLIP, kinds=told)


def jpeg(orientation: int) -> bytes:
    image = Image.fromarray(np.arange(16 * 24 * 3, dtype=np.uint8).reshape(16, 24, 3))
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = io.BytesIO()
    image.save(file, "JPEG", exif=exif, quality=95)
    return file.getvalue()


def test_an_orientation_beside_annotations_has_to_be_told():
    sample = {"image": jpeg(6), "boxes": np.array([[1.0, 2, 3, 4]], np.float32)}
    with pytest.raises(
        td.BadSampleError, match=r"has an EXIF orientation, .* kinds={'image': kinds\.Image\(exif=False\)}"
    ):
        batch_of(sample, FLIP, kinds={"boxes": "boxes"})
    own = batch_of(sample, FLIP, kinds={"boxes": "boxes", "image": kinds.Image(exif=False)})
    upright = batch_of(sample, FLIP, kinds={"boxes": "boxes", "image": kinds.Image(exif=True)})
    assert own["image"].data.shape == (2, 3, 16, 24) and upright["image"].data.shape == (2, 3, 24, 16)
    assert torch.equal(own["image"].data[0].flip(-1).rot90(-1, (1, 2)), upright["image"].data[0].flip(-1))
    assert own["boxes"].data[0].tolist() == [[21, 2, 23, 4]] and upright["boxes"].data[0].tolist() == [[13, 2, 15, 4]]
    upright_files = batch_of({**sample, "image": jpeg(1)}, FLIP, kinds={"boxes": "boxes"})
    assert torch.equal(upright_files["image"].data, own["image"].data)


def test_images_of_other_dtypes_and_layouts_where_it_is_told():
    floats = torch.rand(3, 20, 30)
    assert torch.equal(batch_of((floats, 1), FLIP, kinds={"field0": "image"})[0][0], floats.flip(-1))
    deep = np.arange(20 * 30, dtype=np.uint16).reshape(20, 30, 1) * 100
    batch = batch_of((deep, 1), T.CenterCrop(4), kinds={"field0": "image"})[0]
    assert batch.dtype == torch.uint16 and batch.shape == (2, 1, 4, 4) and batch[0, 0, 0, 0] == deep[8, 13, 0]
    first = IMAGE.numpy()
    assert torch.equal(batch_of((first, 1), FLIP, kinds={"field0": kinds.Image("CHW")})[0][0], IMAGE.flip(-1))


def test_clips_move_as_one():
    clip = tv_tensors.Video(torch.randint(0, 256, (4, 3, 20, 30), dtype=torch.uint8))
    for engine in ENGINES:
        batch, _ = batch_of((clip, 1), T.Compose([FLIP, T.Resize((10, 10))]), engine=engine)
        assert batch.shape == (2, 4, 3, 10, 10)
        assert torch.equal(batch[0], F.resize(clip.flip(-1), [10, 10], antialias=True))


def test_polygons_leave_as_masks():
    pytest.importorskip("pycocotools")
    sample = {
        "image": IMAGE,
        "boxes": torch.tensor([[2.0, 4, 10, 16]]),
        "segmentation": [[[2, 4, 10, 4, 10, 16, 2, 16]]],
    }
    batch = batch_of(sample, FLIP, kinds={"boxes": "boxes", "segmentation": "polygons"})
    expected = torch.zeros(20, 30, dtype=torch.uint8)
    expected[4:16, 20:28] = 1
    assert torch.equal(batch["segmentation"].unbind()[0][0], expected)


def test_masks_in_files_are_ids():
    palette = Image.fromarray(np.arange(20 * 30, dtype=np.uint8).reshape(20, 30)).convert("P")
    palette.putpalette([255 - i // 3 for i in range(768)])
    palette.putdata(np.arange(20 * 30).astype(np.uint8).tolist())
    file = io.BytesIO()
    palette.save(file, "PNG")
    sample = {"image": IMAGE, "mask": file.getvalue()}
    batch = batch_of(sample, FLIP, kinds={"mask": "mask"})
    mask = batch["mask"].unbind()[0] if isinstance(batch["mask"], td.Padded) else batch["mask"][0]
    assert torch.equal(mask, torch.from_numpy(np.array(palette)).flip(-1))


@pytest.mark.parametrize("told", ["mask", ["image"], 3])
def test_kinds_are_a_dict(told):
    for give in (lambda: batch_of((IMAGE, 1), FLIP, kinds=told), lambda: td.PythonDataset(Same(1), kinds=told)):
        with pytest.raises(TypeError, match="kinds must be a dict of kinds by field"):
            give()
    with pytest.raises(ValueError, match="rate must be at least 1, got -1"):
        kinds.Audio(rate=-1)


def test_a_class_is_no_batch_transform():
    with pytest.raises(TypeError, match=r"batch_transform must be an object, got the class: write .*=MixUp\(\.\.\.\)"):
        batch_of((IMAGE, 1), None, batch_transform=T.MixUp)


def test_files_that_are_not_decoded_are_refused(tmp_path):
    path = tmp_path / "a.nii"
    path.write_bytes(b"a volume")
    dataset = td.FileDataset({"scan": [path]}, kinds={"scan": "volume"})
    with pytest.raises(ValueError, match=r"'scan' holds files of the kind volume, .* write \.npy files"):
        td.DataLoader(dataset, batch_size=1)
