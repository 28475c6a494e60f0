"""COCO: real images with boxes, polygons and run lengths, and what DALI would misread in the JSON file."""

from __future__ import annotations

import copy
import io
import itertools
import json
import os

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

import torchdali as td
from torchdali import transforms as T
from torchdali.formats.coco import run_lengths
from torchdali.readers.coco import COCO
from torchdali.testing import assert_resumes_exactly, assert_same_stream, sample_digests

from .launcher import start_code

N = 13
CATEGORIES = [90, 5, 17]  # numbered 1, 2, 3


def image(i: int) -> Image.Image:
    rng = np.random.default_rng(i)
    small = Image.fromarray(rng.integers(0, 256, (4, 4, 3), dtype=np.uint8))
    return small.resize((30 + i, 44 - i), Image.Resampling.BICUBIC)


def boxes_of(i: int) -> list[list[float]]:
    """None for every third image."""
    return [[1.0 + k, 2.0 + i / 2, 8.25, 5.0 + k] for k in range(i % 3)]


def polygon_of(box: list[float]) -> list[float]:
    x, y, width, height = box
    return [x, y, x + width, y, x + width, y + height, x, y + height]


def document() -> dict:
    """Images by descending id, so that DALI has something to sort."""
    images, annotations = [], []
    for i in reversed(range(N)):
        width, height = image(i).size
        images.append({"id": 100 + i, "file_name": f"{i:02d}.jpg", "width": width, "height": height, "license": 3})
        for k, box in enumerate(boxes_of(i)):
            annotations.append(
                {
                    "id": len(annotations),
                    "image_id": 100 + i,
                    "category_id": CATEGORIES[(i + k) % 3],
                    "bbox": box,
                    "iscrowd": 0,
                    "area": box[2] * box[3],
                    "segmentation": [polygon_of(box), [0, 0, 3, 0, 3.5, 4]],
                }
            )
    categories = [{"id": number, "name": f"category {number}"} for number in CATEGORIES]
    return {"info": {"ä": [None]}, "images": images, "categories": categories, "annotations": annotations}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    root = tmp_path_factory.mktemp("coco")
    for i in range(N):
        image(i).save(root / f"{i:02d}.jpg")
    (root / "all.json").write_text(json.dumps(document()))
    return root


@pytest.fixture
def make(pictures, tmp_path):
    """Makes a reader, of the JSON file as it is or of a document."""
    numbers = itertools.count()

    def make(changed=None, **options):
        path = pictures / "all.json"
        if changed is not None:
            path = tmp_path / f"{next(numbers)}.json"
            path.write_text(changed if isinstance(changed, str) else json.dumps(changed))
        return COCO(**{"file_root": pictures, "annotations_file": path, **options})

    return make


@pytest.fixture
def changed():
    """A document with one of its annotations, or images, changed: of image 2, which has two."""

    def changed(key="annotations", **values):
        changed = copy.deepcopy(document())
        (entry,) = [
            entry for entry in changed[key] if entry["id"] in (102, target(changed)["id"]) and key != "categories"
        ]
        for name, value in values.items():
            entry.pop(name, None)
            if value is not ...:
                entry[name] = value
        return changed

    return changed


def target(doc: dict) -> dict:
    """The first annotation of image 2."""
    return next(entry for entry in doc["annotations"] if entry["image_id"] == 102)


def where(doc: dict, number: int = 0) -> int:
    return [k for k, entry in enumerate(document()["annotations"]) if entry["image_id"] == 102][number]


def read(reader, **options) -> list[tuple]:
    """Its samples by a loader, without padding; images as their bytes."""
    reader.kinds["image"] = td.kinds.ARRAY
    loader = td.DataLoader(reader, batch_size=4, device="cpu", **options)
    return [sample for batch in loader for sample in rows(batch)]


def rows(batch) -> list[tuple]:
    columns = []
    for value in batch:
        if isinstance(value, td.Padded):
            columns.append(
                [
                    row[tuple(slice(0, n) for n in size)].numpy()
                    for row, size in zip(value.data, value.sizes.tolist(), strict=True)
                ]
            )
        else:
            columns.append([row.numpy() for row in value])
    return list(zip(*columns, strict=True))


def test_boxes_and_labels(pictures, make):
    samples = read(make(image_ids=True))
    assert len(samples) == N
    for i, (data, boxes, labels, number) in enumerate(samples):
        assert data.tobytes() == (pictures / f"{i:02d}.jpg").read_bytes()
        assert boxes.dtype == np.float32 and boxes.shape == (i % 3, 4)
        assert boxes.tolist() == boxes_of(i)
        assert labels.dtype == np.int32 and labels.tolist() == [(i + k) % 3 + 1 for k in range(i % 3)]
        assert number == 100 + i


def test_it_alone(make):
    samples = list(make(fields=("image", "boxes", "labels", "index")))
    assert [len(boxes) for _, boxes, _, _ in samples] == [i % 3 for i in range(N)]
    assert [int(index) for *_, index in samples] == list(range(N))
    data, boxes, _, _ = samples[0]
    assert Image.open(io.BytesIO(data.numpy().tobytes())).size == image(0).size
    assert boxes.shape == (0, 4)


@pytest.mark.parametrize("ratio", [False, True])
@pytest.mark.parametrize("ltrb", [False, True])
def test_ratio_and_ltrb(make, ratio, ltrb):
    for i, (_, boxes, _) in enumerate(read(make(ratio=ratio, ltrb=ltrb))):
        expected = np.array(boxes_of(i)).reshape(-1, 4)
        if ltrb:
            expected[:, 2:] += expected[:, :2]
        if ratio:
            expected /= [*image(i).size, *image(i).size]
        np.testing.assert_allclose(boxes, expected, rtol=1e-6)


def test_options_of_what_is_read(make):
    assert read(make(avoid_class_remapping=True))[2][2].tolist() == [17, 90]
    ids = [int(number) for *_, number in read(make(skip_empty=True, image_ids=True))]
    assert ids == [100 + i for i in range(N) if i % 3]
    chosen = make(images=["04.jpg", "02.jpg", "04.jpg"], image_ids=True)
    assert [int(number) for *_, number in read(chosen)] == [104, 102, 104]
    crowd = document()
    target(crowd)["iscrowd"] = 1
    assert [len(sample[1]) for sample in read(make(crowd))][2] == 2
    assert [len(sample[1]) for sample in read(make(crowd, include_iscrowd=False))][2] == 1


def test_polygons(make):
    for i, (_, boxes, _, polygons, vertices) in enumerate(read(make(polygon_masks=True))):
        expected = [part for box in boxes_of(i) for part in (polygon_of(box), [0, 0, 3, 0, 3.5, 4])]
        assert polygons.dtype == np.int32 and polygons.shape == (len(expected), 3)
        assert vertices.dtype == np.float32 and vertices.shape[1:] == (2,)
        assert [vertices[start:end].ravel().tolist() for _, start, end in polygons] == expected
        assert [box for box, _, _ in polygons.tolist()] == [k for k in range(len(boxes)) for _ in range(2)]


def encoded(runs: list[int]) -> str:
    """Run lengths as COCO's text: 5 bits a character, differences from the fourth on."""
    text = ""
    for i, run in enumerate(runs):
        value = run - runs[i - 2] if i > 2 else run
        while True:
            bits, value = value & 31, value >> 5
            more = value != (-1 if bits & 16 else 0)
            text += chr(48 + bits + 32 * more)
            if not more:
                break
    return text


def runs_of(mask: np.ndarray) -> list[int]:
    """Of a mask [H, W], column by column, zeros first."""
    flat = mask.T.ravel()
    ends = [0, *(np.flatnonzero(np.diff(flat)) + 1).tolist(), len(flat)]
    return [0] * int(flat[0]) + np.diff(ends).tolist()


@pytest.mark.parametrize("as_text", [False, True])
def test_masks(make, as_text):
    """Polygons within half a pixel of Pillow's; run lengths exactly."""
    doc = document()
    width, height = image(4).size
    drawn = np.random.default_rng(0).random((height, width)) < 0.3
    drawn[3:20, 5:9] = True
    (entry,) = [entry for entry in doc["annotations"] if entry["image_id"] == 104]
    runs = runs_of(drawn)
    entry["segmentation"] = {"size": [height, width], "counts": encoded(runs) if as_text else runs}
    samples = read(make(doc, pixelwise_masks=True))
    label = samples[4][2].item()
    for i, (_, _, labels, masks) in enumerate(samples):
        assert masks.dtype == np.int32 and masks.shape == (*image(i).size[::-1], 1)
        assert set(np.unique(masks)) == {0, *labels.tolist()}
    assert np.array_equal(samples[4][3][..., 0], drawn * label)
    canvas = Image.new("L", image(1).size)
    x, y, width, height = boxes_of(1)[0]
    ImageDraw.Draw(canvas).rectangle((x + 1, y + 1, x + width - 1, y + height - 1), fill=1)
    assert (samples[1][3][..., 0][np.asarray(canvas) > 0] > 0).all()


def test_run_lengths():
    rng = np.random.default_rng(0)
    for n in (1, 2, 3, 4, 50):
        runs = rng.integers(0, 100_000, n).tolist()
        assert run_lengths(encoded(runs)).tolist() == runs == run_lengths(runs).tolist()
    for bad in ("", "\x01", "~", "P", "o" * 9 + "0", "1" + "O" * 3, [-1], [1.0], [True], None, "ä", 5):
        assert run_lengths(bad) is None, bad


# In a loader


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("shuffle", [False, "window", "full"])
def test_two_epochs_on_every_rank(make, world_size, shuffle):
    loaders = [
        td.DataLoader(
            make(shuffle=shuffle, image_ids=True, fields=("image", "boxes", "labels", "id"), kinds={"image": "array"}),
            batch_size=3, device="cpu", seed=7, rank=rank, world_size=world_size,
        )
        for rank in range(world_size)
    ]  # fmt: skip
    orders = []
    for _ in range(2):
        per_rank = [[rows(batch) for batch in loader] for loader in loaders]
        assert len({len(batches) for batches in per_rank}) == 1
        samples = [sample for batches in per_rank for batch in batches for sample in batch]
        orders.append([int(number) for *_, number in samples])
        assert sorted(orders[-1]) == list(range(100, 100 + N))
        assert all(sample[1].tolist() == boxes_of(int(sample[3]) - 100) for sample in samples)
    assert (orders[0] == orders[1]) is (shuffle is False)


@pytest.fixture
def loader(make):
    def loader(world_size=1, shuffle="full", virtual_shards=None, **options):
        arguments = dict(batch_size=3, device="cpu", seed=7, transform=T.Resize((8, 8)), world_size=world_size)
        loaders = [
            td.DataLoader(
                make(shuffle=shuffle, virtual_shards=virtual_shards, polygon_masks=True, image_ids=True),
                **(arguments | options | {"rank": rank}),
            )
            for rank in range(world_size)
        ]
        return loaders if world_size > 1 else loaders[0]

    return loader


@pytest.mark.parametrize("engine", ["eager", "pipeline"])
@pytest.mark.slow
def test_resumes_exactly(loader, engine):
    assert_resumes_exactly(lambda: loader(engine=engine))


@pytest.mark.slow
def test_resumes_with_another_batch_size_and_world_size(loader):
    assert_resumes_exactly(lambda: loader(2), lambda: loader(2, batch_size=2), every=2)
    assert_resumes_exactly(lambda: loader(2, virtual_shards=6), lambda: loader(3, virtual_shards=6), every=2)


def test_engines_and_prefetch_give_one_stream(loader):
    assert_same_stream(
        *(
            lambda e=engine, p=prefetch: loader(shuffle="window", engine=e, prefetch_factor=p)
            for engine, prefetch in itertools.product(("eager", "pipeline"), (0, 2))
        ),
        epochs=2,
    )


def test_preprocessed_annotations(make, tmp_path):
    """What DALI saves gives the same samples; incomplete or foreign files are refused, of which DALI dies."""
    saved = tmp_path / "saved"
    saved.mkdir()
    options = dict(pixelwise_masks=True, image_ids=True)
    saving = make(**options, save_preprocessed_annotations=True, save_preprocessed_annotations_dir=saved)
    expected = [sample_digests(batch) for batch in td.DataLoader(saving, batch_size=1, device="cpu")]

    def from_saved(**options):
        return COCO(file_root=saving.options["file_root"], preprocessed_annotations=saved, **options)

    got = [sample_digests(batch) for batch in td.DataLoader(from_saved(**options), batch_size=1, device="cpu")]
    assert got == expected
    with pytest.raises(ValueError, match="takes no ltrb with preprocessed_annotations"):
        from_saved(ltrb=True)
    with pytest.raises(ValueError, match="takes no include_iscrowd"):
        from_saved(include_iscrowd=False)
    td.testing.truncate_file(saved / "boxes.dat")
    with pytest.raises(ValueError, match=r"boxes.dat must have \d+ bytes"):
        from_saved()
    (saved / "boxes.dat").unlink()
    with pytest.raises(FileNotFoundError, match=r"boxes.dat is missing"):
        from_saved()


# What DALI would misread


@pytest.mark.parametrize(
    "values, expected",
    [
        (dict(category_id=6), "no category has the id 6"),
        (dict(category_id=5.0), "category_id must be an integer of 32 bits, got 5.0"),
        (dict(category_id=...), "category_id must be an integer of 32 bits, got None"),
        (dict(image_id=2**40), "image_id must be an integer of 32 bits"),
        (dict(iscrowd=True), "iscrowd must be an integer of 32 bits, got True"),
        (dict(bbox=...), "bbox must be four numbers, got None"),
        (dict(bbox=[1, 2, 3]), r"bbox must be four numbers, got \[1, 2, 3\]"),
        (dict(bbox=[1, 2, 3, 4, 5]), "bbox must be four numbers"),
        (dict(bbox=[1, 2, "3", 4]), "bbox must be four numbers"),
    ],
)
def test_annotations_that_would_be_wrong(make, changed, values, expected):
    doc = changed(**values)
    with pytest.raises(ValueError, match=rf"\.json, annotations\[{where(doc)}\]: {expected}"):
        make(doc)


SIZE = list(image(2).size[::-1])
PIXELS = SIZE[0] * SIZE[1]


@pytest.mark.parametrize(
    "mask, expected",
    [
        ({"size": SIZE, "counts": [100, 50, PIXELS]}, f"a sum of {PIXELS} pixels were expected, got a sum of"),
        ({"size": SIZE, "counts": [100, 50]}, "got a sum of 150"),
        ({"size": SIZE, "counts": encoded([100, 50, PIXELS])}, "got a sum of"),
        ({"size": SIZE, "counts": [100, -50, PIXELS - 50]}, r"pixels were expected, got \[100, -50"),
        ({"size": SIZE, "counts": "\x01\x02"}, "run lengths with a sum of"),
        ({"size": SIZE}, "run lengths with a sum of .* got None"),
        ({"counts": [PIXELS]}, r"size of a mask must be \[height, width\], got None"),
        (
            {"size": SIZE[::-1], "counts": [PIXELS]},
            r"a mask of \[height, width\] \[42, 32\] was expected, got \[32, 42",
        ),
        ([[1, 2, 3]], "a polygon must be three points or more"),
        ([[1, 2, 3, 4]], "a polygon must be three points or more"),
        ([[1, 2, 3, 4, 5, 6, 7]], "a polygon must be three points or more"),
        ([[]], "a polygon must be three points or more"),
        ([[1, 2, 3, 4, 5, 1e9]], "numbers up to 1000000"),
        ([[1, 2, 3, 4, 5, None]], "numbers up to 1000000"),
        ([[1, 2, 3, 4, 5, 6], 7], "a polygon must be three points or more, got 7"),
        (None, "segmentation must be polygons or run lengths, got None"),
    ],
)
@pytest.mark.parametrize("kind", ["polygon_masks", "pixelwise_masks"])
def test_masks_of_which_dali_dies(make, changed, mask, expected, kind):
    doc = changed(segmentation=mask)
    with pytest.raises(ValueError, match=rf"annotations\[{where(doc)}\]: .*{expected}"):
        make(doc, **{kind: True})
    assert len(read(make(doc))) == N  # nobody looks at masks that are not asked for


@pytest.mark.processes
def test_dali_dies_of_run_lengths(pictures, tmp_path):
    """Why they are checked."""
    doc = document()
    (entry,) = [entry for entry in doc["annotations"] if entry["image_id"] == 101]
    width, height = image(1).size
    entry["segmentation"] = {"size": [height, width], "counts": [0, 10**9]}
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(doc))
    code = (
        "import numpy, nvidia.dali.experimental.dynamic as ndd\n"
        f"reader = ndd.readers.COCO(file_root={os.fspath(pictures)!r}, annotations_file={os.fspath(path)!r},"
        " pixelwise_masks=True, max_batch_size=13)\n"
        "for output in reader(batch_size=13):\n"
        "    [numpy.asarray(value) for value in output.tensors]"
    )
    program = start_code(code, tmp_path)
    program.communicate()
    assert program.returncode is not None and program.returncode < 0


@pytest.mark.parametrize(
    "values, expected",
    [
        (dict(id=102.0), "id must be an integer of 32 bits, got 102.0"),
        (dict(id=101), "the id 101 is taken"),
        (dict(file_name=...), "file_name must be a path, got None"),
        (dict(width=32.0), "width must be an integer of 32 bits, got 32.0"),
    ],
)
def test_images_that_would_be_wrong(make, values, expected):
    doc = document()
    entry = next(entry for entry in doc["images"] if entry["id"] == 102)
    entry.update(values)
    entry.pop(*[name for name, value in values.items() if value is ...] or ["license"])
    with pytest.raises(ValueError, match=rf"images\[\d+\]: {expected}"):
        make(doc)


def test_sizes_are_needed_for_ratios(make):
    doc = document()
    del doc["images"][3]["width"]
    assert len(make(doc)) == N
    for option in ("ratio", "pixelwise_masks"):
        with pytest.raises(ValueError, match=r"images\[3\]: width must be an integer"):
            make(doc, **{option: True})
    doc["images"][3]["width"] = 0
    with pytest.raises(ValueError, match=r"images\[3\]: width and height must be positive"):
        make(doc, ratio=True)


def test_json_that_is_not_whole(make):
    text = json.dumps(document(), ensure_ascii=False)
    for cut in (text[: len(text) // 2], text[:-1]):
        with pytest.raises(ValueError, match=r"json, byte \d+: not JSON"):
            make(cut)
    with pytest.raises(ValueError, match=rf"json, byte {len(text.encode())}: not JSON: Extra data"):
        make(text + "and more")
    with pytest.raises(ValueError, match="not JSON: NaN is not a number"):
        make(text.replace("8.25", "NaN"))
    for value, expected in [
        ("1e400", "Out of range"),
        ("9" * 400, "too many digits"),
        ('"\\ud83d"', "surrogates not allowed"),
    ]:
        with pytest.raises(ValueError, match=f"not JSON: .*{expected}"):
            make(text.replace('"license": 3', f'"license": {value}', 1))
    fine = text.replace('"license": 3', '"license": [1e-300, 1e300, "\\ud83d\\ude00 7e400"]', 1)
    assert [len(boxes) for _, boxes, _ in read(make(fine))] == [i % 3 for i in range(N)]
    with pytest.raises(ValueError, match="an object with images"):
        make([1])
    for change, expected in [
        (lambda doc: doc.pop("annotations"), "a list of annotations is missing"),
        (lambda doc: doc.pop("categories"), "a list of categories is missing"),
        (lambda doc: doc.update(images={}), "images must be a list, got dict"),
        (lambda doc: doc["annotations"].insert(1, None), r"annotations\[1\]: an object was expected, got None"),
        (lambda doc: doc["categories"].append({"id": 5}), r"categories\[3\]: the id 5 is taken"),
        (lambda doc: doc["categories"].append({}), r"categories\[3\]: id must be an integer"),
    ]:
        doc = document()
        change(doc)
        with pytest.raises(ValueError, match=expected):
            make(doc)


def test_what_is_dropped_is_counted(make):
    doc = document()
    numbers = [k for k, entry in enumerate(doc["annotations"]) if entry["image_id"] in (102, 105)]
    for number, values in zip(
        numbers,
        ({"bbox": [1, 2, 0, 5]}, {"bbox": [1, 2, -3, 5]}, {"image_id": 7}, {"bbox": [90, 2, 3, 5]}),
        strict=True,
    ):
        doc["annotations"][number].update(values)
    with pytest.warns(RuntimeWarning) as caught:
        reader = make(doc)
    (warning,) = [str(entry.message) for entry in caught]
    assert f"2 annotations have a box with a side below size_threshold=0.1, the first is annotations[{numbers[0]}]" in (
        warning
    )
    assert f"1 annotations have an image_id that no image has, the first is annotations[{numbers[2]}]" in warning
    assert f"1 annotations have a box outside of the image (which stays), the first is annotations[{numbers[3]}]" in (
        warning
    )
    lengths = [len(sample[1]) for sample in read(reader)]
    assert lengths == [{102: 1, 105: 0}.get(100 + i, i % 3) for i in range(N)]


def test_instances_without_a_polygon_are_counted(make, changed):
    for mask in ({"size": SIZE, "counts": [PIXELS]}, [], ...):
        doc = changed(segmentation=mask)
        with pytest.warns(RuntimeWarning, match=rf"1 annotations have no mask for polygon_masks.*\[{where(doc)}\]"):
            reader = make(doc, polygon_masks=True)
        assert {int(box) for box, _, _ in read(reader)[2][3]} == {1}


def test_images_that_are_not_there(make, pictures):
    doc = document()
    doc["images"][2]["file_name"] = "nowhere.jpg"
    with pytest.raises(FileNotFoundError, match=r"1 of 13 files are missing, the first is .*nowhere.jpg"):
        make(doc)
    (pictures / "empty.jpg").touch()
    doc["images"][2]["file_name"] = "empty.jpg"
    with pytest.raises(ValueError, match=r"1 of 13 files are empty, the first is .*empty.jpg"):
        make(doc)
    with pytest.raises(ValueError, match=r"no image '12.jpg', which images= names \(2 in all\)"):
        make({**doc, "images": doc["images"][1:]}, images=["04.jpg", "12.jpg", "x"])


def test_arguments(make, pictures):
    with pytest.raises(ValueError, match="either polygon_masks or pixelwise_masks"):
        make(polygon_masks=True, pixelwise_masks=True)
    with pytest.raises(ValueError, match="COCO needs file_root="):
        COCO(annotations_file=pictures / "all.json")
    with pytest.raises(ValueError, match="COCO needs annotations_file="):
        COCO(file_root=pictures)
    with pytest.raises(TypeError, match="annotations_file must be one path"):
        COCO(file_root=pictures, annotations_file=[pictures / "all.json"])
    with pytest.raises(ValueError, match="COCO takes no masks: write polygon_masks="):
        make(masks=True)
    assert torch.is_tensor(next(iter(make()))[0])
