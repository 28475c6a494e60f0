"""CocoDataset: the samples of torchvision's CocoDetection; sizes and orientations that do not fit are named."""

from __future__ import annotations

import contextlib
import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from torchvision.datasets import CocoDetection, wrap_dataset_for_transforms_v2

import torchdali as td
from torchdali import CocoDataset, kinds
from torchdali import transforms as T
from torchdali.testing import assert_resumes_exactly, assert_same_stream, truncate_file

N = 10
EMPTY = (3, 7)


def write(root: Path, change: Callable[[dict[str, Any]], None] = lambda document: None) -> Path:
    """Ten images, whose ids do not come in order; two of them have no object."""
    rng = np.random.default_rng(0)
    images, annotations = [], []
    for i in range(N):
        height, width = map(int, rng.integers(60, 120, 2))
        Image.fromarray(rng.integers(0, 256, (height, width, 3)).astype(np.uint8)).save(root / f"{i}.png")
        images.append({"id": 1000 - i, "file_name": f"{i}.png", "height": height, "width": width})
        for _ in range(0 if i in EMPTY else int(rng.integers(1, 4))):
            x, y, w, h = rng.uniform(0, width / 2), rng.uniform(0, height / 2), *rng.uniform(5, 30, 2)
            annotations.append(
                {
                    "id": len(annotations) + 1, "image_id": 1000 - i, "category_id": int(rng.integers(1, 9)),
                    "bbox": [x, y, w, h], "area": w * h, "iscrowd": 0,
                    "segmentation": [[x, y, x + w, y, x + w, y + h, x, y + h]],
                }
            )  # fmt: skip
    document = {
        "images": images, "annotations": annotations, "categories": [{"id": k, "name": f"c{k}"} for k in range(1, 9)],
    }  # fmt: skip
    change(document)
    (root / "instances.json").write_text(json.dumps(document))
    return root / "instances.json"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path)
    return tmp_path


def coco(root: Path, fields: Any = None, **options: Any) -> CocoDataset:
    return CocoDataset(root, root / "instances.json", fields, **options)


def torchvisions(root: Path) -> Any:
    with contextlib.redirect_stdout(None):
        return CocoDetection(str(root), str(root / "instances.json"))


@pytest.mark.parametrize("box_format", ["xywh", "xyxy"])
def test_samples_are_torchvisions(root: Path, box_format: str) -> None:
    dataset, plain = coco(root, box_format=box_format), torchvisions(root)
    wrapped = wrap_dataset_for_transforms_v2(plain, target_keys={"boxes", "labels", "image_id"})
    assert len(dataset) == len(plain) == N
    for i in range(N):
        image, target = dataset[i]
        their_image, theirs = wrapped[i]
        assert torch.equal(image, torchvision.transforms.v2.functional.to_image(their_image))
        assert set(target) == {"boxes", "labels", "area", "iscrowd", "image_id"}
        assert target["image_id"] == theirs["image_id"]
        if "boxes" not in theirs:  # torchvision leaves the keys out
            assert target["boxes"].shape == (0, 4) and target["labels"].shape == (0,)
            continue
        expected = theirs["boxes"]
        if box_format == "xywh":
            expected = torch.tensor([one["bbox"] for one in plain[i][1]])
        assert (
            torch.equal(target["boxes"], expected.as_subclass(torch.Tensor)) and target["boxes"].dtype == torch.float32
        )
        assert torch.equal(target["labels"], theirs["labels"]) and target["labels"].dtype == torch.int64
        assert torch.equal(target["area"], torch.tensor([one["area"] for one in plain[i][1]]))
        assert target["iscrowd"].dtype == torch.int64 and not target["iscrowd"].any()


def test_what_is_known(root: Path) -> None:
    dataset = coco(root, masks=True, box_format="xyxy")
    assert dataset.kinds == {
        "image": kinds.Image(encoded=True), "target.boxes": kinds.Boxes("xyxy", group="target"),
        **{f"target.{name}": kinds.Array(group="target") for name in ("labels", "area", "iscrowd")},
        "target.image_id": kinds.NUMBER, "target.masks": kinds.Polygons(group="target"),
    }  # fmt: skip
    assert dataset.ids.tolist() == list(range(991, 1001)) and dataset.categories == {k: f"c{k}" for k in range(1, 9)}
    assert dataset.paths[0] == dataset.path(0) == str(root / "9.png")
    masks = dataset[0][1]["masks"]
    document = json.loads((root / "instances.json").read_text())
    assert [[part.tolist() for part in outline] for outline in masks] == [
        one["segmentation"] for one in document["annotations"] if one["image_id"] == 991
    ]
    again = pickle.loads(pickle.dumps(dataset))
    assert again.fingerprint() == dataset.fingerprint() and torch.equal(again[2][1]["boxes"], dataset[2][1]["boxes"])


def test_fields(root: Path) -> None:
    dataset = coco(root, ["target.labels", "image", "index", "target.image_id"])
    target, _, index = dataset[4]
    assert list(target) == ["labels", "image_id"] and target["image_id"] == 995 and index == 4
    assert coco(root, ["boxes", "image", "index"]).fields == ("target.boxes", "image", "index")
    with pytest.raises(ValueError, match=r"fields must be different ones of image, target\.boxes, .* got \['masks'\]"):
        coco(root, ["masks"])
    with pytest.raises(ValueError, match="box_format must be one of xywh, xyxy, got 'cxcywh'"):
        coco(root, box_format="cxcywh")
    told = coco(root, kinds={"target.area": "array", "iscrowd": "array"})
    assert told.kinds["target.area"] == told.kinds["target.iscrowd"] == kinds.ARRAY
    with pytest.raises(ValueError, match=r"kinds must name fields among image, .* got 'box'"):
        coco(root, kinds={"box": "boxes"})


def test_images_without_objects_may_be_left_out(root: Path) -> None:
    dataset = coco(root, skip_empty=True)
    assert len(dataset) == N - 2 and {1000 - i for i in EMPTY} & set(dataset.ids.tolist()) == set()
    assert all(len(dataset[i][1]["boxes"]) for i in range(N - 2))
    assert dataset.fingerprint() != coco(root).fingerprint()


def test_what_evaluations_and_groups_of_like_shapes_ask_for(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dataset, theirs = coco(root, crowds=False), torchvisions(root)
    assert dataset.coco.dataset == theirs.coco.dataset and dataset.coco is dataset.coco
    assert not capsys.readouterr().out
    assert [dataset.get_height_and_width(i) for i in range(N)] == [theirs[i][0].size[::-1] for i in range(N)]
    document = json.loads((root / "instances.json").read_text())
    del document["images"][0]["height"]
    (root / "instances.json").write_text(json.dumps(document))
    with pytest.raises(ValueError, match=r"do not say height and width of .*0\.png"):
        coco(root, exif=False).get_height_and_width(N - 1)


def test_crowds_may_be_left_out(root: Path) -> None:
    """As ConvertCocoPolysToMask of torchvision's references does; an image of crowds alone stays, as there."""

    def change(document: dict[str, Any]) -> None:
        of_first = document["annotations"][0]["image_id"]
        for k, entry in enumerate(document["annotations"]):
            entry["iscrowd"] = int(entry["image_id"] == of_first or k % 3 == 0)

    write(root, change)
    theirs, every, dataset = torchvisions(root), coco(root), coco(root, crowds=False, masks=True, skip_empty=True)
    assert len(dataset) == N - 2 and any(not len(dataset[i][1]["boxes"]) for i in range(N - 2))
    assert sum(int(every[i][1]["iscrowd"].sum()) for i in range(N))
    for i, number in enumerate(dataset.ids.tolist()):
        kept = [entry for entry in theirs._load_target(number) if not entry["iscrowd"]]
        target = dataset[i][1]
        assert target["labels"].tolist() == [entry["category_id"] for entry in kept]
        assert np.array_equal(target["boxes"], np.array([entry["bbox"] for entry in kept], np.float32).reshape(-1, 4))
        assert len(target["masks"]) == len(kept) and not target["iscrowd"].any()
    assert coco(root, crowds=False).fingerprint() != every.fingerprint()
    with pytest.raises(TypeError, match="crowds must be True or False, got 'no'"):
        coco(root, crowds="no")


def test_fingerprint_goes_by_the_annotations(root: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(root, moved, ignore=shutil.ignore_patterns("moved"))
    first = coco(root).fingerprint()
    assert coco(moved).fingerprint() == first == coco(root, box_format="xyxy").fingerprint() and len(first) <= 100
    write(moved, lambda document: document["annotations"][0].update(category_id=9))
    assert coco(moved).fingerprint() != first


def test_missing_entries(tmp_path: Path) -> None:
    def change(document: dict[str, Any]) -> None:
        del document["categories"]
        for entry in document["annotations"]:
            del entry["area"], entry["iscrowd"], entry["segmentation"]
        for entry in document["images"]:
            del entry["height"]
            entry["id"] += 1 << 40
        for entry in document["annotations"]:
            entry["image_id"] += 1 << 40

    write(tmp_path, change)
    dataset = coco(tmp_path)
    target = dataset[0][1]
    torch.testing.assert_close(target["area"], target["boxes"][:, 2] * target["boxes"][:, 3])
    assert target["image_id"] == 991 + (1 << 40) and dataset.categories == {}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("annotations"), "a list of annotations is missing"),
        (lambda d: d["images"].clear(), "names no image"),
        (lambda d: d["annotations"][2].update(bbox=[float("nan"), 1, 1, 1]), "NaN is not a number in JSON"),
        (
            lambda d: d["annotations"][2].update(bbox=[1, 2, 3]),
            r"annotations\[2\]: bbox must be four numbers, got \[1, 2",
        ),
        (
            lambda d: d["annotations"][1].update(category_id="cat"),
            r"annotations\[1\]: category_id must be an integer of 64",
        ),
        (lambda d: d["images"][1].update(id=1000), r"images\[1\]: the id 1000 is taken by another one"),
        (lambda d: d["annotations"][0].update(segmentation=[[1, 2, 3]]), r"annotations\[0\]: a polygon must be three"),
        (
            lambda d: d["annotations"][0].update(segmentation={"size": [1, 1], "counts": [1]}),
            "a mask of .height, width. ",
        ),
    ],
)
def test_wrong_annotations(tmp_path: Path, change: Any, message: str) -> None:
    write(tmp_path, change)
    with pytest.raises(ValueError, match=message):
        coco(tmp_path, masks=True)


def test_wrong_paths(root: Path) -> None:
    with pytest.raises(FileNotFoundError, match="root does not exist"):
        CocoDataset(root / "none", root / "instances.json")
    with pytest.raises(FileNotFoundError):
        CocoDataset(root, root / "none.json")
    (root / "9.png").unlink()
    with pytest.raises(FileNotFoundError, match=r"the first of 10 images does not exist: .*9\.png"):
        coco(root)


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    write(tmp_path, lambda document: document["annotations"][0].update(image_id=5))
    with pytest.warns(
        RuntimeWarning, match=r"1 annotations have an image_id that no image has, the first is annotations\[0"
    ):
        coco(tmp_path)


# Sizes and orientations


def turned(path: Path, orientation: int, width: int = 60, height: int = 40) -> None:
    exif = Image.Exif()
    exif[274] = orientation
    Image.fromarray(np.random.default_rng(1).integers(0, 256, (height, width, 3)).astype(np.uint8)).save(
        path, exif=exif
    )


@pytest.mark.parametrize("ending", ["jpg", "png", "webp"])
@pytest.mark.parametrize("orientation", [3, 6])
def test_an_orientation_beside_annotations(tmp_path: Path, ending: str, orientation: int) -> None:
    def change(document: dict[str, Any]) -> None:
        document["images"][9].update(file_name=f"turned.{ending}", height=40, width=60)
        document["annotations"].clear()

    write(tmp_path, change)
    turned(tmp_path / f"turned.{ending}", orientation)
    upright = [60, 40] if orientation == 6 else [40, 60]
    message = (
        rf"sample 0 \(.*turned.{ending}\): the file has the EXIF orientation {orientation}: its own height and width "
        rf"are \[40, 60\], those of the upright image \{str(upright)[:-1]}\], and the annotations are of \[40, 60\]\. "
        "Write exif=False if"
    )
    with pytest.raises(td.BadSampleError, match=message):
        next(iter(td.DataLoader(coco(tmp_path), batch_size=1, device="cpu")))
    own = coco(tmp_path, ["image"], exif=False)
    (images,) = next(iter(td.DataLoader(own, batch_size=1, device="cpu", transform=T.CenterCrop((40, 60)))))
    with Image.open(tmp_path / f"turned.{ending}") as opened:
        expected = torch.from_numpy(np.array(opened.convert("RGB"))).permute(2, 0, 1)
    assert torch.equal(images[0], expected)
    if orientation == 6:
        with pytest.raises(ValueError, match=r"of height and width \[40, 60\], and the file has \[60, 40\] upright"):
            coco(tmp_path, exif=True).read(np.array([0]))
    else:
        coco(tmp_path, exif=True).read(np.array([0]))


def test_a_size_that_does_not_fit_is_a_bad_sample(root: Path) -> None:
    with Image.open(root / "4.png") as image:
        width, height = image.size
        image.resize((50, 51)).save(root / "4.png")
    dataset = coco(root)
    message = (
        rf"sample 5 \(.*4\.png\): the annotations are of an image of height and width \[{height}, {width}\], and the "
        r"file has \[51, 50\]"
    )
    with pytest.raises(td.BadSampleError, match=message):
        list(td.DataLoader(dataset, batch_size=4, device="cpu"))
    with td.DataLoader(dataset, batch_size=4, device="cpu", on_bad_sample="substitute") as loader:
        assert sum(len(image.data) for image, _ in loader) == N and [bad.index for bad in loader.bad_samples] == [5]


# Through the loader


def make_loader(root: Path, masks: bool = False, **changes: Any) -> td.DataLoader:
    transform = T.Compose([T.RandomHorizontalFlip(), T.RandomCrop(56)])
    options = {"batch_size": 4, "shuffle": True, "seed": 3, "device": "cpu", "transform": transform}
    return td.DataLoader(coco(root, masks=masks), **{**options, **changes})


def test_batches_come_in_the_samples_form(root: Path) -> None:
    dataset = coco(root)
    for image, target in td.DataLoader(dataset, batch_size=4, device="cpu"):
        assert image.data.shape[0] == target["image_id"].shape[0] and target["boxes"].data.shape[2] == 4
        for row, number in enumerate(target["image_id"].tolist()):
            own = dataset[number - 991][1]
            count = int(target["boxes"].sizes[row, 0])
            assert torch.equal(target["boxes"].data[row, :count], own["boxes"])
            assert torch.equal(target["labels"].data[row, :count], own["labels"])


def test_boxes_move_with_their_images(root: Path) -> None:
    flip = td.DataLoader(coco(root), batch_size=N, device="cpu", transform=T.RandomHorizontalFlip(1.0))
    ((image, target),) = list(flip)
    dataset = coco(root)
    for row in range(N):
        width = int(image.sizes[row, 1])
        own = dataset[row][1]["boxes"]
        boxes = target["boxes"].data[row, : len(own)]
        torch.testing.assert_close(boxes[:, 0], (width - own[:, 0] - own[:, 2]).clamp(0), atol=1e-4, rtol=0)


def test_resumes_exactly_on_any_ranks(root: Path) -> None:
    assert_resumes_exactly(lambda: make_loader(root), epochs=2)
    assert_same_stream(
        lambda: make_loader(root),
        lambda: [make_loader(root, batch_size=2, rank=rank, world_size=2) for rank in range(2)],
        steps=False,
    )


def test_outlines_leave_as_masks(root: Path) -> None:
    pytest.importorskip("pycocotools")
    for _, target in make_loader(root, masks=True):
        masks, boxes = target["masks"], target["boxes"]
        assert masks.data.shape[2:] == (56, 56) and masks.data.shape[0] == boxes.data.shape[0]
        for row in range(len(masks.data)):
            for mask, (x, y, w, h) in zip(masks.data[row], boxes.data[row].tolist()):
                ys, xs = np.nonzero(mask.numpy())
                if len(ys):  # what the outline draws is what the box holds
                    extent = [xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]
                    np.testing.assert_allclose(extent, [x, y, x + w, y + h], atol=1.6)


def test_outlines_leave_as_masks_without_a_transform_too(root: Path) -> None:
    pytest.importorskip("pycocotools")
    loader = td.DataLoader(coco(root, masks=True), batch_size=1, device="cpu")
    for image, target in loader:
        height, width = image.sizes[0].tolist()
        masks = target["masks"]
        assert masks.data.shape[2:] == (height, width) and masks.data.shape[1] == target["boxes"].data.shape[1]


def test_a_damaged_image_is_a_bad_sample(root: Path) -> None:
    truncate_file(root / "5.png")
    with pytest.raises(td.BadSampleError, match=r"sample 4 \(.*5\.png\)"):
        list(make_loader(root, shuffle=False))
