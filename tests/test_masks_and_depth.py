"""Mask files become ids, and images that are to stay unchanged keep their bits: the values that were written."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import tv_tensors
from torchvision.transforms import v2

import torchdali as td
from torchdali import pillow
from torchdali import transforms as T
from torchdali.pillow import OversizedError, decode_mask, decode_unchanged, turn

RNG = np.random.default_rng(0)
IDS = np.kron(RNG.integers(0, 21, (4, 5)), np.ones((5, 7))).astype(np.uint8)  # [20, 35], flat areas
PIXELS = RNG.integers(0, 256, (12, 17, 4)).astype(np.uint8)
DEEP = RNG.integers(0, 65536, (12, 17, 4)).astype(np.uint16)


def as_file(image: Image.Image, kind: str = "PNG", **options: Any) -> np.ndarray:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return np.frombuffer(bytearray(file.getvalue()), np.uint8)


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png16(values: np.ndarray) -> np.ndarray:
    """A PNG file of 16 bits, [H, W, C]."""
    height, width, channels = values.shape
    head = struct.pack(">IIBBBBB", width, height, 16, {1: 0, 2: 4, 3: 2, 4: 6}[channels], 0, 0, 0)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    data = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return np.frombuffer(bytearray(b"\x89PNG\r\n\x1a\n" + data), np.uint8)


def tiff16(
    values: np.ndarray, order: str = "<", compression: int = 1, predictor: int = 1, turned: int = 1
) -> np.ndarray:
    """A TIFF file of 16-bit values [H, W, C], in two strips."""
    height, width, channels = values.shape
    rows = height // 2 + 1
    if predictor == 2:
        values = np.diff(values, axis=1, prepend=np.zeros((height, 1, channels), np.uint16))
    strips = [part.astype(f"{order}u2").tobytes() for part in (values[:rows], values[rows:])]
    if compression != 1:
        strips = [zlib.compress(strip) for strip in strips]
    tags = [
        (256, 3, [width]), (257, 3, [height]), (258, 3, [16] * channels), (259, 3, [compression]),
        (262, 3, [2 if channels > 2 else 1]), (273, 4, [0, 0]), (274, 3, [turned]), (277, 3, [channels]),
        (278, 3, [rows]), (279, 4, [len(strip) for strip in strips]), (284, 3, [1]), (317, 3, [predictor]),
    ]  # fmt: skip
    if channels in (2, 4):
        tags.append((338, 3, [2]))
    start = 8 + 2 + 12 * len(tags) + 4
    room = sum(size for _, kind, entries in tags if (size := len(entries) * (2 if kind == 3 else 4)) > 4)
    tags[5] = (273, 4, [start + room, start + room + len(strips[0])])
    entries, more = b"", b""
    for tag, kind, numbers in tags:
        packed = struct.pack(f"{order}{len(numbers)}{'H' if kind == 3 else 'I'}", *numbers)
        place = packed.ljust(4, b"\0") if len(packed) <= 4 else struct.pack(f"{order}I", start + len(more))
        more += packed if len(packed) > 4 else b""
        entries += struct.pack(f"{order}HHI", tag, kind, len(numbers)) + place
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", 8)
    data = head + struct.pack(f"{order}H", len(tags)) + entries + bytes(4) + more + b"".join(strips)
    return np.frombuffer(bytearray(data), np.uint8)


# Masks

grey = Image.fromarray(IDS)
palette = grey.copy()
palette.putpalette(RNG.integers(0, 256, 768).tolist())
alpha = Image.fromarray((IDS * 3).astype(np.uint8))


@pytest.mark.parametrize(
    ("encoded", "ids"),
    {
        "L": (as_file(grey), IDS),
        "P": (as_file(palette), IDS),
        "P of 4 bits": (as_file(Image.fromarray(IDS % 16).convert("P"), bits=4), IDS % 16),
        "P, transparent": (as_file(palette, transparency=3), IDS),
        "1": (as_file(Image.fromarray(IDS > 10)), IDS > 10),
        "I;16": (as_file(Image.fromarray(IDS.astype(np.uint16) * 1000)), IDS.astype(np.int32) * 1000),
        "I": (as_file(Image.fromarray(IDS.astype(np.int32) * -99999), "TIFF"), IDS.astype(np.int32) * -99999),
        "F": (as_file(Image.fromarray(IDS.astype(np.float32) / 3), "TIFF"), IDS.astype(np.float32) / 3),
        "LA": (as_file(Image.merge("LA", [grey, alpha])), IDS),
        "LA of TIFF": (as_file(Image.merge("LA", [grey, alpha]), "TIFF"), IDS),
        "LA of 16 bits": (
            png16(np.dstack([IDS.astype(np.uint16) * 999, IDS.astype(np.uint16)])), IDS.astype(np.int32) * 999
        ),
        "BMP": (as_file(grey, "BMP"), IDS),
        "GIF": (as_file(palette, "GIF", optimize=False), IDS),
    }.values(),
)  # fmt: skip
def test_a_mask_is_ids(encoded: np.ndarray, ids: np.ndarray) -> None:
    got = decode_mask(encoded)
    assert got.dtype == ids.dtype and got.flags.c_contiguous and got.flags.writeable
    np.testing.assert_array_equal(got, ids)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "CMYK"])
def test_colours_are_no_mask(mode: str) -> None:
    kind = "TIFF" if mode == "CMYK" else "PNG"
    with pytest.raises(ValueError, match=f"one id per pixel was expected, got an image of the mode {mode}: for a pict"):
        decode_mask(as_file(Image.fromarray(PIXELS[..., :3]).convert(mode), kind))
    with pytest.raises(ValueError, match="got an image of the mode RGB"):
        decode_mask(png16(DEEP[..., :3]))


def test_a_mask_keeps_the_files_rows() -> None:
    exif = Image.Exif()
    exif[274] = 6
    np.testing.assert_array_equal(decode_mask(as_file(grey, exif=exif)), IDS)


def test_damaged_and_oversized_masks() -> None:
    encoded = as_file(grey)
    with pytest.raises(OSError, match="image file is truncated"):
        decode_mask(encoded[: len(encoded) // 2])
    with pytest.raises(OSError, match="no image format"):
        decode_mask(np.frombuffer(b"no image at all", np.uint8))
    with pytest.raises(OversizedError, match="at most 699 pixels was expected, got a header of width 35 and height 20"):
        decode_mask(encoded, 699)
    assert decode_mask(encoded, 700).shape == (20, 35)


# Images that stay unchanged


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_png_of_16_bits(channels: int) -> None:
    values = DEEP[..., :channels]
    got = decode_unchanged(png16(values))
    assert got.dtype == np.uint16 and got.flags.c_contiguous
    np.testing.assert_array_equal(got, values)


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize(("compression", "predictor"), [(1, 1), (8, 1), (8, 2), (32946, 2)])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_tiff_of_16_bits(channels: int, compression: int, predictor: int, order: str) -> None:
    values = DEEP[..., :channels]
    got = decode_unchanged(tiff16(values, order, compression, predictor))
    assert got.dtype == np.uint16
    np.testing.assert_array_equal(got, values)


@pytest.mark.parametrize("turned", range(1, 9))
def test_tiff_of_16_bits_turned(turned: int) -> None:
    """As Pillow turns their high bytes."""
    for values in (DEEP[..., :3], DEEP[..., :1]):
        encoded = tiff16(values, turned=turned)
        expected = np.asarray(Image.open(io.BytesIO(encoded.tobytes()))).astype(np.uint16)
        got = decode_unchanged(encoded)
        np.testing.assert_array_equal(got if values.shape[2] == 1 else got >> 8, expected.reshape(got.shape))


@pytest.mark.parametrize(
    ("encoded", "values"),
    {
        "L": (as_file(Image.fromarray(PIXELS[..., 0])), PIXELS[..., :1]),
        "LA": (as_file(Image.merge("LA", [Image.fromarray(PIXELS[..., c]) for c in (0, 1)])), PIXELS[..., :2]),
        "RGB": (as_file(Image.fromarray(PIXELS[..., :3])), PIXELS[..., :3]),
        "RGBA": (as_file(Image.fromarray(PIXELS)), PIXELS),
        "I;16": (as_file(Image.fromarray(DEEP[..., 0]), "TIFF"), DEEP[..., :1]),
        "I;16, packed": (as_file(Image.fromarray(DEEP[..., 0]), "TIFF", compression="tiff_lzw"), DEEP[..., :1]),
        "F": (as_file(Image.fromarray(DEEP[..., 0] / np.float32(7)), "TIFF"), DEEP[..., :1] / np.float32(7)),
        "P": (as_file(palette), np.asarray(palette.convert("RGB"))),
        "1": (as_file(Image.fromarray(IDS > 10)), np.dstack([np.where(IDS > 10, 255, 0).astype(np.uint8)] * 3)),
    }.values(),
)  # fmt: skip
def test_other_files_keep_their_values(encoded: np.ndarray, values: np.ndarray) -> None:
    got = decode_unchanged(encoded)
    assert got.dtype == values.dtype
    np.testing.assert_array_equal(got, values)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_applied_where_it_is_asked_for(orientation: int) -> None:
    exif = Image.Exif()
    exif[274] = orientation
    encoded = as_file(Image.fromarray(PIXELS[..., :3]), exif=exif)
    np.testing.assert_array_equal(decode_unchanged(encoded), pillow.decode(encoded))
    np.testing.assert_array_equal(decode_unchanged(encoded, upright=False), PIXELS[..., :3])
    np.testing.assert_array_equal(turn(PIXELS[..., :3], orientation), pillow.decode(encoded))


def test_forms_that_would_lose_bits_are_refused() -> None:
    planes = tiff16(DEEP[..., :3])
    planes[planes.tobytes().index(struct.pack("<HHI", 284, 3, 1)) + 8] = 2
    with pytest.raises(ValueError, match=r"16 bits in this form can't be read \(TIFF, "):
        decode_unchanged(planes)
    ppm = b"P6\n17 12\n65535\n" + DEEP[..., :3].astype(">u2").tobytes()
    with pytest.raises(ValueError, match=r"16 bits in this form can't be read \(PPM"):
        decode_unchanged(np.frombuffer(ppm, np.uint8))


def test_damaged_files_of_16_bits() -> None:
    for encoded in (png16(DEEP), tiff16(DEEP[..., :3]), tiff16(DEEP[..., :3], compression=8)):
        with pytest.raises((OSError, ValueError)):
            decode_unchanged(encoded[: len(encoded) - 100])


# Through the loader


def test_16_bits_arrive(tmp_path: Path) -> None:
    files = [tmp_path / "a.png", tmp_path / "b.tif", tmp_path / "c.png"]
    for i, (path, write) in enumerate(zip(files, (png16, tiff16, png16), strict=True)):
        path.write_bytes(write(np.roll(DEEP[..., :3], i)).tobytes())
    dataset = td.FileDataset(files, kinds={"image": td.kinds.Image(mode="unchanged")})
    expected = np.stack([np.roll(DEEP[..., :3], i) for i in range(3)]).transpose(0, 3, 1, 2)
    for options in ({}, {"transform": T.RandomHorizontalFlip(1.0)}, {"transform": T.CenterCrop((12, 17))}):
        ((images,),) = list(td.DataLoader(dataset, batch_size=3, device="cpu", **options))
        got = images.data.numpy() if isinstance(images, td.Padded) else images.numpy()
        flipped = isinstance(options.get("transform"), T.RandomHorizontalFlip)
        assert got.dtype == np.uint16
        np.testing.assert_array_equal(got, expected[..., ::-1] if flipped else expected)
    files[1].write_bytes(files[1].read_bytes()[:-200])
    with pytest.raises(td.BadSampleError, match=r"sample 1 \(.*b\.tif\)"):
        list(td.DataLoader(dataset, batch_size=3, device="cpu"))


DTYPES = {tv_tensors.Image: torch.float32, tv_tensors.Mask: torch.int64, "others": None}


@pytest.mark.parametrize("engine", ["auto", "eager", "debug"])
def test_masks_take_the_dtype_of_torchvisions_dict(engine: Any) -> None:
    """As in torchvision's references for segmentation: the cross entropy takes int64, and no uint8."""
    images = RNG.integers(0, 256, (3, 20, 35, 3), np.uint8)
    masks = np.stack([IDS, IDS[::-1], IDS[:, ::-1]])
    values = v2.ToDtype(DTYPES, scale=True), v2.Normalize((0.5,) * 3, (0.25,) * 3)
    theirs = v2.Compose([v2.ToImage(), v2.Resize((12, 18)), *values])
    dataset = td.InMemoryDataset(image=images, mask=masks, kinds={"mask": "mask"})
    ours = T.Compose([T.Resize((12, 18)), T.ToDtype(DTYPES, scale=True), T.Normalize((0.5,) * 3, (0.25,) * 3)])
    for transform in (ours, td.from_torchvision(theirs)):
        pixels, ids = next(iter(td.DataLoader(dataset, 3, transform=transform, engine=engine, device="cpu")))
        assert (pixels.dtype, ids.dtype) == (torch.float32, torch.int64)
        for i in range(3):
            image, mask = theirs(
                tv_tensors.Image(torch.from_numpy(images[i]).permute(2, 0, 1)), tv_tensors.Mask(torch.tensor(masks[i]))
            )
            torch.testing.assert_close(pixels[i], torch.Tensor(image), rtol=0, atol=1e-6)
            assert torch.equal(ids[i], mask.as_subclass(torch.Tensor))


def test_the_dtype_of_masks_alone_and_in_views(tmp_path: Path) -> None:
    paths = [tmp_path / "a.png", tmp_path / "b.png"]
    for i, path in enumerate(paths):
        Image.fromarray(IDS[: 8 + i, :9]).save(path)
    kinds = {"image": td.kinds.Image(), "mask": td.kinds.Mask(pad_value=-100)}
    files = td.FileDataset({"image": paths, "mask": paths}, kinds=kinds)
    images, ids = next(iter(td.DataLoader(files, 2, transform=T.ToDtype(None, masks=torch.int64), device="cpu")))
    assert (images.data.dtype, ids.data.dtype) == (torch.uint8, torch.int64)
    assert ids.data[0, 8].tolist() == [-100] * 9 and ids.data[1].tolist() == IDS[:9, :9].tolist()
    views = T.Views([T.Compose([T.CenterCrop(4), T.ToDtype(torch.float16, masks=torch.bool)]), T.CenterCrop(4)])
    _, (one, other) = next(iter(td.DataLoader(files, 2, transform=views, device="cpu")))
    assert (one.dtype, other.dtype) == (torch.bool, torch.uint8) and torch.equal(one, other > 0)


def test_wrong_dtypes_of_masks() -> None:
    assert T.ToDtype({torch.Tensor: torch.float32, "others": None}, True) == T.ToDtype(torch.float32, True)
    with pytest.raises(ValueError, match="dtype has no entry for images: add 'others': None"):
        T.ToDtype({tv_tensors.Mask: torch.int64})
    with pytest.raises(ValueError, match=r"masks must be a dtype of numpy's integers or floats, got torch.complex64"):
        T.ToDtype(torch.float32, masks=torch.complex64)
    with pytest.raises(ValueError, match=r"dtype must be torch.uint8, float16, float32 or float64, got torch.int64"):
        T.ToDtype({tv_tensors.Image: torch.int64})
