"""The walk over image files' headers: what DALI is given comes out as Pillow decodes it, whatever the header says.

The property, over 1,200 generated files (`image_variants`): loader row == `dataset[i]` to the bit, in both engines and
twice; what Pillow refuses is a bad sample; sizes from the headers are DALI's.
"""

from __future__ import annotations

import functools
import resource
import struct
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import torchdali as td
from torchdali import pillow
from torchdali.formats.headers import read_header, readable
from torchdali.formats.image import make_readable

from .image_variants import (
    chunk,
    exifs,
    frame_at,
    ifd,
    patched,
    png,
    riff,
    saved,
    segment,
    tiff_head,
    variants,
)
from .test_pillow import dali, dali_sizes

ODD = Path(__file__).parent / "data" / "odd-images"
PHOTOS = Path(__file__).parent / "data" / "photos"


def as_bytes(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


@functools.cache
def files() -> dict[str, bytes]:
    """The generated files, and the real ones."""
    real = {f"real {path.name}": path.read_bytes() for path in sorted([*ODD.iterdir(), *PHOTOS.glob("*.jpg")])}
    return {name: data for name, data in (variants() | real).items() if data}  # DALI takes no empty array


@functools.cache
def decoded() -> dict[str, np.ndarray | None]:
    """What `dataset[i]` gives, [H, W, 3]; None where it raises."""
    dataset = td.InMemoryDataset(image=list(files().values()))
    found: dict[str, np.ndarray | None] = {}
    for i, name in enumerate(files()):
        try:
            found[name] = dataset[i][0].permute(1, 2, 0).numpy()
        except Exception:
            found[name] = None
    return found


def rows(names: list[str], **options: object) -> Iterator[tuple[str, np.ndarray]]:
    """Each file's row of a loader, without its padding."""
    dataset = td.InMemoryDataset(image=[files()[name] for name in names])
    todo = iter(names)
    for (image,) in td.DataLoader(dataset, 64, device="cpu", **options):
        for data, (height, width) in zip(image.data, image.sizes.tolist(), strict=True):
            yield next(todo), data[:, :height, :width].permute(1, 2, 0).numpy()


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="PIL")  # of what it skips
        yield


@pytest.mark.parametrize("engine", ["eager", "pipeline"])
def test_a_row_is_what_the_dataset_gives(engine: str) -> None:
    """Equal to the bit: lossy formats too, whose decoders are the same libraries in DALI and in Pillow."""
    good = [name for name, pixels in decoded().items() if pixels is not None]
    assert len(good) > 900
    small = [name for name in good if decoded()[name].size < 1e6]
    wrong = []
    for name, pixels in [*rows(small, engine=engine), *rows([name for name in good if name not in set(small)])]:
        if not np.array_equal(pixels, decoded()[name]):
            wrong.append(name)
    assert not wrong


def test_decoding_twice_is_decoding_once() -> None:
    """Every file that DALI is given, among others: no memory that was never written comes out."""
    given = [name for name, data in files().items() if readable(as_bytes(data)) and decoded()[name] is not None]
    assert len(given) > 400
    for (name, one), (_, two) in zip(rows(given, engine="eager"), rows(given, engine="eager"), strict=True):
        assert np.array_equal(one, two), name


def test_what_pillow_refuses_is_a_bad_sample() -> None:
    bad = [name for name, pixels in decoded().items() if pixels is None]
    assert len(bad) > 200
    fine = saved(Image.new("RGB", (4, 4)), "PNG")
    dataset = td.InMemoryDataset(image=[*(files()[name] for name in bad), fine])
    loader = td.DataLoader(dataset, 64, device="cpu", on_bad_sample=lambda _: len(bad))
    for (_,) in loader:
        pass
    assert sorted({sample.index for sample in loader.bad_samples}) == list(range(len(bad)))
    assert {sample.stage for sample in loader.bad_samples} == {"decode"}


def test_sizes_are_those_that_dali_reads() -> None:
    headers = {name: read_header(as_bytes(data)) for name, data in files().items()}
    given = [name for name, header in headers.items() if header.exact and decoded()[name] is not None]
    found = dali_sizes([as_bytes(files()[name]) for name in given])
    for name, size in zip(given, found, strict=True):
        assert (headers[name].height, headers[name].width) == size == decoded()[name].shape[:2], name


# What is common stays with DALI, and what was wrong goes to Pillow


@pytest.mark.parametrize(
    "name",
    [
        *(f"jpeg {{'subsampling': {s}, 'quality': 90, 'progressive': {p}}}" for s in (0, 1, 2) for p in (False, True)),
        "jpeg grey (7, 5)", "jpeg restarts", "jpeg icc", "jpeg comment", "jpeg without jfif", "jpeg adobe 1",
        "jpeg exif orientation 6", "jpeg exif orientation 3, big-endian", "jpeg exif camera",
        "jpeg exif camera without orientation", "jpeg xmp True and exif", "jpeg xmp without",
        "png type 0, 8 bits", "png type 0, 16 bits", "png type 2, 8 bits", "png type 6, 8 bits", "png palette, 4 bits",
        "png palette, 8 bits, alpha", "png interlaced 2, 8 bits", "png icc", "png exif orientation 6", "png split 100",
        "webp (16, 16)", "webp lossless (16, 16)", "webp icc",
        "webp alpha {'lossless': True, 'quality': 90, 'method': 0}", "pnm p5", "pnm p6",
        "bmp of Pillow L", "bmp of Pillow P", "bmp of Pillow RGB", "bmp of Pillow RGBA", "bmp 24 bits, top down",
        "tiff of Pillow L, raw", "tiff of Pillow RGB, raw", "tiff of Pillow RGBA, raw", "tiff > orientation 6",
        "tiff of the earth",
    ],
)  # fmt: skip
def test_a_common_kind_stays_with_dali(name: str) -> None:
    assert readable(as_bytes(variants()[name]))


@pytest.mark.parametrize(
    "start",
    [
        "pnm p5 up to", "pnm p6 up to", "pnm 12 bits", "pnm p5 comment in", "apng", "jpeg cmyk", "jpeg four components",
        "jpeg mpo", "jpeg exif twice", "jpeg xmp False and blank", "jpeg frame", "webp animation", "webp VP8  exif",
        "webp VP8L xmp", "webp VP8  picture twice", "png profile exif", "png xmp text", "png type 2, 16 bits",
        "png exif twice", "png wrong check of a text", "other gif",
        "bmp 565", "bmp 555", "bmp 1555", "bmp abgr", "bmp rgbx", "bmp 24 bits, head 52",
        "bmp 8 bits, palette overlaps",
        "tiff < grey alpha", "tiff alpha of 1", "tiff alpha of 0", "tiff 16 bit", "tiff of Pillow LAB",
        "tiff of Pillow P", "tiff of Pillow RGB, tiff_lzw", "tiff of Pillow RGB, jpeg", "tiff group4", "tiff tiles",
        *(f"tiff < {way}, {bits} bits" for way in ("3 of 2, planar 2", "4 of 2, planar 2") for bits in (8, 16)),
        "tiff < 1 of 1, planar 1, 16 bits", "tiff < 3 of 2, planar 1, 16 bits",
        "tiff > orientation as LONG",
        *(f"{kind} exif orientation {value} as" for kind in ("jpeg", "png") for value in (3, 6)),
        *(f"{kind} exif maker outside" for kind in ("jpeg", "png")),
    ],
)  # fmt: skip
def test_what_dali_gets_wrong_goes_to_pillow(start: str) -> None:
    """Or ends the process with: EXIF whose values lie outside of it, and two EXIF blocks."""
    found = [name for name in variants() if name.startswith(start)]
    assert found
    assert not [name for name in found if readable(as_bytes(variants()[name]))]


def test_twelve_bits_in_a_pgm() -> None:
    """DALI 2.4.0 takes the high bytes: [0, 1, 7, 15]."""
    dataset = td.InMemoryDataset(image=[variants()["pnm 12 bits"]])
    ((image,),) = td.DataLoader(dataset, device="cpu")
    assert image.data[0, 0].tolist() == dataset[0][0][0].tolist() == [[0, 31, 125, 255]]


@pytest.mark.parametrize("value", range(1, 9))
@pytest.mark.parametrize("order", ["<", ">"])
def test_orientations_that_dali_does_not_see(value: int, order: str) -> None:
    picture = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
    block = tiff_head(order) + ifd([(0x112, 4, value)], order)
    plain = saved(Image.fromarray(picture), "WEBP", lossless=True)
    plain = plain[12 : 20 + int.from_bytes(plain[16:20], "little")]
    kept = {
        "webp": riff((b"VP8X", b"\x08\0\0\0\4\0\0\3\0\0"), (plain[:4], plain[8:]), (b"EXIF", b"Exif\0\0" + block)),
        "png": saved(Image.fromarray(picture), "PNG").replace(
            chunk(b"IEND", b""), chunk(b"eXIf", block) + chunk(b"IEND", b"")
        ),
    }
    turned = {
        1: picture, 2: picture[:, ::-1], 3: picture[::-1, ::-1], 4: picture[::-1], 5: picture.transpose(1, 0, 2),
        6: picture[::-1].transpose(1, 0, 2), 7: picture[::-1, ::-1].transpose(1, 0, 2),
        8: picture[:, ::-1].transpose(1, 0, 2),
    }[value]  # fmt: skip
    for kind, data in kept.items():
        dataset = td.InMemoryDataset(image=[data])
        ((image,),) = td.DataLoader(dataset, device="cpu")
        assert np.array_equal(image.data[0].permute(1, 2, 0), turned), kind


def test_windows() -> None:
    """A crop of each file that DALI is given, turned ones too: its place is drawn from the size in the header."""
    large = {name: pixels for name, pixels in decoded().items() if pixels is not None and min(pixels.shape[:2]) >= 11}
    given = [name for name in large if name in variants() and readable(as_bytes(files()[name]))]
    given += [name for name in large if "orientation" in name and name not in set(given)]
    dataset = td.InMemoryDataset(image=[files()[name] for name in given])
    transform = td.transforms.RandomCrop(11)
    got = [
        torch.cat([image for (image,) in td.DataLoader(dataset, 64, device="cpu", transform=transform, engine=engine)])
        for engine in ("eager", "pipeline")
    ]
    assert torch.equal(*got)
    for row, name in zip(got[0].permute(0, 2, 3, 1).numpy(), given, strict=True):
        windows = np.lib.stride_tricks.sliding_window_view(large[name], (11, 11), (0, 1)).transpose(0, 1, 3, 4, 2)
        candidates = windows[(windows[:, :, 5, 5] == row[5, 5]).all(-1)]
        assert (candidates == row).all((1, 2, 3)).any(), name


# Files that promise too much


def promise(kind: str, side: int) -> bytes:
    """A small file whose header says side x side."""
    image = Image.fromarray(np.zeros((16, 16, 3), np.uint8))
    if kind == "JPEG":
        data = saved(image, kind)
        return patched(data, frame_at(data) + 5, struct.pack(">HH", side, side))
    if kind == "PNG":
        return png(2, 8, height=side, width=side)
    if kind == "PPM":
        return b"P6\n%d %d\n255\n" % (side, side)
    if kind == "WEBP":
        return patched(saved(image, kind), 26, struct.pack("<HH", side, side))
    if kind == "GIF":
        return patched(saved(image, kind), 6, struct.pack("<HH", side, side))
    if kind == "BMP":
        return patched(saved(image, kind), 18, struct.pack("<ii", side, side))
    if kind == "JPEG2000":
        data = saved(image, kind)
        return patched(data, data.index(b"ihdr") + 4, struct.pack(">II", side, side))
    assert kind == "TIFF"
    strips = [(258, 3, [8] * 3), (259, 3, 1), (262, 3, 2), (273, 4, 8), (277, 3, 3), (279, 4, 100)]
    return tiff_head() + ifd([(256, 4, side), (257, 4, side), *strips]) + bytes(100)


KINDS = ["JPEG", "PNG", "PPM", "WEBP", "GIF", "BMP", "JPEG2000", "TIFF"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_promises_too_much_is_a_bad_sample(kind: str) -> None:
    side = 16_000 if kind == "WEBP" else 20_000
    data = promise(kind, side)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    said = f"got a header of width {side} and height {side}"
    with pytest.raises(ValueError, match="at most 89478485 pixels was expected") as error:
        make_readable(as_bytes(data))
    assert said in str(error.value)
    dataset = td.InMemoryDataset(image=[data, saved(Image.new("RGB", (4, 4)), "PNG")])
    with pytest.raises(ValueError, match=said):
        dataset[0]
    for transform in (None, td.transforms.CenterCrop(4)):
        loader = td.DataLoader(dataset, 2, device="cpu", transform=transform, on_bad_sample="substitute")
        for _ in loader:
            pass
        bad = loader.bad_samples[0]
        assert (bad.index, bad.stage) == (0, "decode") and said in bad.reason
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KiB; it is 1.2 GB as RGB


@pytest.mark.parametrize("kind", KINDS)
def test_max_pixels(kind: str) -> None:
    data = as_bytes(saved(Image.fromarray(np.zeros((16, 20, 3), np.uint8)), kind))
    for limit in (None, 320, 10**12):
        assert make_readable(data, limit).size == (16, 20)
    with pytest.raises(ValueError, match="at most 319 pixels was expected, got a header of width 20 and height 16"):
        make_readable(data, 319)


def test_max_pixels_of_a_loader() -> None:
    large, small = (saved(Image.new("RGB", (side, side)), "PNG") for side in (30, 10))
    dataset = td.InMemoryDataset(image=[large, small])
    loader = td.DataLoader(dataset, 2, device="cpu", max_pixels=899, on_bad_sample="substitute")
    ((image,),) = loader
    assert image.sizes.tolist() == [[10, 10], [10, 10]]
    assert loader.bad_samples[0].reason.startswith("an image of at most 899 pixels was expected, got a header of width")
    for limit in (None, 900):
        ((image,),) = td.DataLoader(dataset, 2, device="cpu", max_pixels=limit)
        assert image.sizes.tolist() == [[30, 30], [10, 10]]
    for wrong, error in ((0, ValueError), (-1, ValueError), (1.5, TypeError), ("all", TypeError), (True, TypeError)):
        with pytest.raises(error, match="max_pixels"):
            td.DataLoader(dataset, max_pixels=wrong)


def test_an_edge_that_dali_does_not_take_is_named() -> None:
    column = saved(Image.new("L", (1, 2**20 + 1)), "TIFF")
    said = r"at most 1,048,576 rows .* a header of width 1 and height 1048577"
    with pytest.raises(ValueError, match=said):
        td.InMemoryDataset(image=[column])[0]
    with pytest.raises(td.BadSampleError, match=said):
        list(td.DataLoader(td.InMemoryDataset(image=[column]), device="cpu", max_pixels=None))


def test_the_limit_is_pillows_own() -> None:
    assert pillow.MAX_PIXELS == Image.MAX_IMAGE_PIXELS


@pytest.mark.parametrize("kind", KINDS)
def test_pillows_limit_is_named_where_it_holds_too(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of its decoders look at it; `max_pixels` can't change that, since it is the process's."""
    data = saved(Image.new("RGB", (20, 20)), kind, **({"compression": "tiff_lzw"} if kind == "TIFF" else {}))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    with pytest.raises(ValueError, match="at most 10 pixels was expected, got a header of width 20 and height 20"):
        td.InMemoryDataset(image=[data])[0]
    if kind == "TIFF":
        with pytest.raises(
            ValueError, match=r"Pillow's own limit, PIL\.Image\.MAX_IMAGE_PIXELS, holds too: Image size"
        ):
            make_readable(as_bytes(data), None)
    else:
        assert make_readable(as_bytes(data), None).size == (20, 20)


# Values of more than 8 bits

DEEP = [
    "png type 0, 16 bits", "png type 2, 16 bits", "pnm p5 up to 1023", "pnm p6 up to 65535", "tiff of Pillow I;16, raw",
    "tiff < 3 of 2, planar 1, 16 bits", "tiff float",
]  # fmt: skip


@pytest.mark.parametrize("name", DEEP)
@pytest.mark.parametrize("way", ["loader", "dataset"])
def test_values_of_more_bits_warn_once(name: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pillow, "_warned_of_depth", False)
    dataset = td.InMemoryDataset(image=[variants()[name]] * 4)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(2):
            list(td.DataLoader(dataset, 2, device="cpu")) if way == "loader" else dataset[0]
    (warning,) = [w for w in seen if w.category is UserWarning]
    assert "becomes 8-bit RGB" in str(warning.message) and "as arrays" in str(warning.message)


def test_eight_bits_do_not_warn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pillow, "_warned_of_depth", False)
    plain = ["png type 2, 8 bits", "pnm p6", "tiff of Pillow RGB, raw", "tiff of Pillow 1, raw", "bmp 24 bits, head 40"]
    list(td.DataLoader(td.InMemoryDataset(image=[variants()[name] for name in plain]), 2, device="cpu"))
    assert not pillow._warned_of_depth


class Pictures:
    """A dataset that follows the warning's advice."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> np.ndarray:
        return np.array(Image.open(self.path))


def test_arrays_keep_sixteen_bits(tmp_path: Path) -> None:
    values = np.arange(0, 65536, 109, dtype=np.uint16)[:600].reshape(20, 30)
    Image.fromarray(values).save(tmp_path / "deep.png")
    (batch,) = td.DataLoader(Pictures(tmp_path / "deep.png"), 2, device="cpu")
    assert batch.dtype == torch.uint16 and np.array_equal(batch.numpy(), np.stack([values, values]))


# The walk itself


def test_any_cut_of_a_file_has_a_header() -> None:
    """No walk runs beyond the bytes that are there, and no cut before the data counts as whole."""
    for name in ("jpeg exif camera", "png exif camera", "webp lossless (16, 16)", "pnm p6", "other gif, animated"):
        data = as_bytes(variants()[name])
        for stop in range(min(len(data), 700)):
            read_header(data[:stop])
        if not name.startswith("other"):
            assert not readable(data[:40]) and readable(data)


def test_damaged_headers_are_read_to_an_end() -> None:
    rng = np.random.default_rng(0)
    for name in ("jpeg exif camera", "png exif camera", "webp lossless (16, 16)", "pnm p6", "jpeg icc"):
        for _ in range(300):
            data = as_bytes(variants()[name]).copy()
            for place in rng.integers(0, min(len(data), 400), 4):
                data[place] = rng.integers(256)
            read_header(data)


@pytest.mark.parametrize("kind", ["jpeg", "png", "webp", "pnm", "bmp", "tiff"])
def test_damaged_files_are_equal_or_refused(kind: str) -> None:
    """What the walk still lets through: where DALI decodes it, Pillow does, to the same pixels.

    But for JPEGs damaged in their compressed data, which the walk does not reach: DALI may decode what Pillow refuses.
    """
    rng = np.random.default_rng(len(kind))
    whole = [as_bytes(data) for name, data in variants().items() if name.startswith(kind) and readable(as_bytes(data))]
    compared = 0
    for _ in range(150):
        data = whole[rng.integers(len(whole))].copy()
        for place in rng.integers(0, len(data), 2):
            data[place] ^= 1 << rng.integers(8)
        data = data[: rng.integers(len(data) // 2, 2 * len(data))]
        header = read_header(data)
        if not header.exact or header.height * header.width > 10**6:
            continue
        try:
            pixels = dali(data)
        except RuntimeError:
            continue  # Pillow is asked
        try:
            expected = pillow.decode(data)
        except OSError:
            assert kind == "jpeg"
            continue
        assert np.array_equal(pixels, expected)
        compared += 1
    assert compared > (20 if kind != "png" else -1)  # whose checks find every damage


def test_exif_readers_that_differ() -> None:
    """An EXIF block is trusted only where every value lies within it: DALI 2.4.0 reads others' memory else."""
    base = saved(Image.new("RGB", (8, 8)), "JPEG")
    trusted = {
        name for name, block in exifs() if readable(as_bytes(base[:2] + segment(0xE1, b"Exif\0\0" + block) + base[2:]))
    }
    plain = {f"orientation {value}" for value in range(1, 9)}
    big = {"orientation 3, big-endian", "orientation 6, big-endian"}
    rest = {"camera", "camera, sorted", "camera without orientation", "no tags", "directory further back"}
    assert trusted - {"orientation in the second directory", "text that ends outside"} == plain | big | rest


def test_a_view_with_gaps_is_read() -> None:
    data = as_bytes(variants()["jpeg exif camera"])
    wide = np.zeros(2 * len(data), np.uint8)
    wide[::2] = data
    assert read_header(wide[::2]) == read_header(data)
