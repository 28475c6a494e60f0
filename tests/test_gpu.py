"""The GPU path: the one stream, whose memory a batch is, and streams that run late.  `scripts/gpu_check` runs this.

Never yet run on a GPU.  With TORCHDALI_REHEARSAL=1 the tests that need no stream run on the CPU, to try the tests.

The reasons are in torchdali/engine/eager.py and benchmarks/gpu.md.  `report` states facts about a card and DALI's
libraries on which decisions rest; nothing fails by them.
"""

from __future__ import annotations

import gc
import io
import os
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import torchdali as td
import torchdali.iterator
from torchdali import transforms as T
from torchdali.engine.repair import Repair
from torchdali.testing import (
    assert_resumes_exactly,
    assert_same_stream,
    garble_file,
    make_image_folder,
    read_stream,
    sample_digests,
    truncate_file,
)

REHEARSAL = os.environ.get("TORCHDALI_REHEARSAL") == "1"
DEVICE = torch.device("cpu") if REHEARSAL else torch.device("cuda", 0)
DATA = Path(__file__).parent / "data"

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not (REHEARSAL or torch.cuda.is_available()), reason="needs an NVIDIA GPU"),
]
streams = pytest.mark.skipif(REHEARSAL, reason="the CPU has no streams")

FIELDS = ("image", "label", "index")
AUGMENT = T.Compose(
    [
        T.RandomResizedCrop(24),
        T.RandomHorizontalFlip(),
        T.ColorJitter(0.4, 0.4),
        T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ]
)
EXECUTIONS = [("eager", 2), ("eager", 0), ("pipeline", 2), ("pipeline", 0), ("debug", 2)]


@pytest.fixture
def report(capsys):
    """Says something in the test's output, whether it passes or not."""

    def report(*lines: str) -> None:
        with capsys.disabled():
            sys.stdout.write("".join(f"\n  [gpu] {line}" for line in lines) + "\n")

    return report


@pytest.fixture(autouse=True)
def repairs(monkeypatch, request):
    """Errors of whole batches.  Only where samples are bad may there be any: a batch is made again eagerly, and an
    engine that always fails would be slow and look well."""
    errors: list[str] = []
    original = Repair.__call__

    def counted(self, work):
        errors.append(f"{type(work.error).__name__}: {str(work.error).strip()[:300]}")
        original(self, work)

    monkeypatch.setattr(Repair, "__call__", counted)
    yield
    assert not errors or {"damaged", "bad_samples"} & set(request.fixturenames), errors[:3]


@pytest.fixture
def bad_samples():
    """Asked for by tests of samples that are bad, or that only Pillow opens."""


@pytest.fixture(scope="session")
def pictures(tmp_path_factory) -> Path:
    """21 JPEGs in three classes: small smooth ones, and photographs; do not change it."""
    root = make_image_folder(tmp_path_factory.mktemp("pictures"), classes=2, per_class=8)
    (root / "photos").mkdir()
    for path in sorted((DATA / "photos").glob("*.jpg")):
        (root / "photos" / path.name).write_bytes(path.read_bytes())
    return root


@pytest.fixture
def make(pictures):
    """Makes a loader with some arguments changed."""

    def make(**changes):
        arguments = dict(batch_size=4, shuffle=True, seed=5, device=DEVICE, transform=AUGMENT, timeout=60)
        return td.DataLoader(td.ImageFolder(pictures, fields=FIELDS), **(arguments | changes))

    return make


def jpeg(value: int, size: int = 256) -> bytes:
    """An image file of one grey."""
    file = io.BytesIO()
    Image.new("RGB", (size, size), (value,) * 3).save(file, "JPEG", quality=95)
    return file.getvalue()


GREYS = [int(value) for value in np.linspace(20, 235, 48)]


@pytest.fixture(scope="session")
def greys():
    """Makes endless-looking loaders of images of one grey each, with the grey beside it: a pixel that differs from its
    label was overwritten, or read too early."""
    dataset = td.InMemoryDataset(image=[jpeg(grey) for grey in GREYS], grey=np.array(GREYS, np.float32))

    def make(**changes):
        arguments = dict(batch_size=16, device=DEVICE, transform=T.RandomResizedCrop(96), timeout=60)
        return td.DataLoader(dataset, sampler=list(range(48)) * 40, **(arguments | changes))

    return make


def deviation(images: torch.Tensor, greys: torch.Tensor) -> torch.Tensor:
    """The farthest that a pixel is from its grey; computed on the current stream."""
    return (images.float() - greys.view(-1, 1, 1, 1)).abs().amax()


LEVELS = 4.0  # a JPEG of one grey is right to a level or two


def nap(milliseconds: float) -> None:
    """Keep the current stream busy; it costs the host nothing."""
    if not REHEARSAL:
        torch.cuda._sleep(int(milliseconds * 1.8e6))


def synchronize() -> None:
    if not REHEARSAL:
        torch.cuda.synchronize()


def new_streams(n: int) -> list:
    return [None if REHEARSAL else torch.cuda.Stream() for _ in range(n)]


def consume(loader, on: list, steps: int, milliseconds: float = 5.0, work=None) -> list[float]:
    """Deviations of some batches, each read late on one of the streams `on`, when the host has dropped it already."""
    found = []
    iterator = iter(loader)
    for step in range(steps):
        with torch.cuda.stream(on[step % len(on)]):
            images, values = next(iterator)
            if work is not None:
                work()
            nap(milliseconds * (step % 3))
            found.append(deviation(images, values))
            del images, values
    synchronize()
    return [float(one) for one in found]


def run_script(text: str, *arguments, timeout: float = 90) -> subprocess.CompletedProcess:
    """In a process of its own: what may crash, hang, fork or be hard on the GPU's context."""
    # -P: the script's own folder is not on the path; the package may be there by PYTHONPATH alone.
    root = str(Path(td.__file__).parent.parent)
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text), *map(str, arguments)],
        capture_output=True, text=True, timeout=timeout, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip


def last_line(done: subprocess.CompletedProcess) -> str:
    """Why it failed, briefly."""
    lines = (done.stderr or done.stdout).strip().splitlines() or [""]
    return f"exit code {done.returncode}: {lines[-1][:200]}"


# One stream


def test_engines_and_prefetch_give_one_stream(make):
    grid = [("eager", 0), ("eager", 1), ("eager", 4), ("pipeline", 0), ("pipeline", 1), ("pipeline", 4), ("debug", 2)]
    stream = assert_same_stream(
        *(lambda e=engine, p=prefetch: make(engine=e, prefetch_factor=p) for engine, prefetch in grid), epochs=2
    )
    samples = [sample for step in stream for sample in step.samples]
    assert len(samples) == len(set(samples)) == 42


def test_the_number_of_threads_changes_nothing(make):
    assert_same_stream(*(lambda e=e, n=n: make(engine=e, num_threads=n) for e in ("eager", "pipeline") for n in (1, 4)))


@pytest.mark.parametrize("engine", ["eager", "pipeline"])
def test_a_sample_does_not_depend_on_its_batch(make, engine):
    """Where this fails, look at `hw_decoder_load`: a share of each batch is decoded by other hardware."""
    assert_same_stream(
        lambda: make(batch_size=8, engine=engine),
        lambda: make(batch_size=3, engine=engine),
        lambda: make(batch_size=21, engine=engine),
        lambda: [make(batch_size=4, engine=engine, rank=rank, world_size=2) for rank in range(2)],
        steps=False,
    )


@pytest.mark.parametrize("engine, prefetch", [("eager", 2), ("pipeline", 2)])
def test_resumes(make, engine, prefetch):
    assert_resumes_exactly(lambda: make(engine=engine, prefetch_factor=prefetch), every=5)


def test_resumes_in_the_other_engine_and_on_other_ranks(make):
    assert_resumes_exactly(
        lambda: make(batch_size=6, engine="eager"),
        lambda: [make(batch_size=3, rank=rank, world_size=2, engine="pipeline") for rank in range(2)],
        epochs=1,
        every=2,
    )


def test_breaks_change_nothing(make):
    whole = read_stream(make(), epochs=4)
    for engine in ("eager", "pipeline"):
        loader = make(engine=engine)
        for epoch, taken in enumerate((1, 3, 2, 6)):
            got = []
            for batch in loader:
                got.append(sample_digests(batch))
                if len(got) == taken:
                    break
            assert got == [step.samples for step in whole if step.epoch == epoch][:taken]


TRANSFORMS = [
    T.Resize((20, 28)),
    T.Resize(32),
    T.Compose([T.Resize(40), T.CenterCrop(32)]),
    T.Compose([T.RandomCrop(48, pad_if_needed=True), T.RandomVerticalFlip()]),
    T.Compose([T.RandomResizedCrop(24, interpolation="bicubic"), T.GaussianBlur(5)]),
    T.Compose([T.Resize((20, 20)), T.ColorJitter(0.3, 0.3, 0.3, 0.1), T.ToDtype(torch.float16, scale=True)]),
    T.Compose([T.CenterCrop(30), T.ToDtype(torch.float32, scale=True), T.ToDtype(torch.uint8, scale=True)]),
    T.Compose([T.RandomZoomOut((9, 8, 7)), T.RandomShortestSize([30, 40], 50)]),
    T.Compose([T.Pad(3), T.RandomResize(20, 40), T.RandomRotation(30, "bilinear", expand=True)]),
    T.Compose([T.ScaleJitter((40, 40)), T.RandomAffine(30, (0.1, 0.2), (0.5, 2), 10, fill=7)]),
]


@pytest.mark.parametrize("transform", TRANSFORMS, ids=str)
def test_each_transform_is_the_same_in_both_engines(make, transform):
    assert_same_stream(*(lambda e=e: make(engine=e, batch_size=8, transform=transform) for e in ("eager", "pipeline")))


# What a batch is


def is_torchs(tensor: torch.Tensor) -> bool:
    """Whether the memory belongs to PyTorch's allocator: only then `record_stream` has an effect."""
    at = tensor.untyped_storage().data_ptr()
    return any(each["address"] <= at < each["address"] + each["total_size"] for each in torch.cuda.memory_snapshot())


@streams
@pytest.mark.parametrize("engine, prefetch", EXECUTIONS)
@pytest.mark.parametrize("ragged", [False, True])
def test_memory_is_torchs_own(make, monkeypatch, engine, prefetch, ragged):
    def never(*args, **kwargs):
        raise AssertionError("DALI's deleter of DLPack tensors synchronises the device")

    monkeypatch.setattr(torch, "from_dlpack", never)
    monkeypatch.setattr(torch.utils.dlpack, "from_dlpack", never)
    transform = T.RandomHorizontalFlip() if ragged else T.Compose([T.RandomResizedCrop(224), AUGMENT.transforms[-1]])
    loader = make(engine=engine, prefetch_factor=prefetch, transform=transform)
    images, labels, index = next(iter(loader))
    tensors = [*(images if ragged else (images,)), labels, index]
    for tensor in tensors:
        assert tensor.device == DEVICE and is_torchs(tensor)
        tensor.record_stream(torch.cuda.Stream())


@streams
@pytest.mark.parametrize("engine", ["eager", "pipeline", "debug"])
def test_torch_counts_batches_and_gets_them_back(make, engine):
    loader = make(engine=engine, prefetch_factor=0, transform=T.RandomResizedCrop(224))
    for _ in loader:
        pass
    del _
    gc.collect()
    torch.cuda.synchronize()
    empty = torch.cuda.memory_allocated(DEVICE)
    iterator = iter(loader)
    held = [next(iterator)]
    before = torch.cuda.memory_allocated(DEVICE)
    held += [next(iterator), next(iterator)]
    assert torch.cuda.memory_allocated(DEVICE) - before >= sum(images.nbytes for images, *_ in held[1:])
    del held, iterator
    gc.collect()
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated(DEVICE) <= empty


@pytest.mark.parametrize("engine, prefetch", EXECUTIONS)
def test_images_are_channels_last_and_labels_are_there(make, pictures, engine, prefetch):
    loader = make(engine=engine, prefetch_factor=prefetch)
    seen = []
    for images, labels, index in loader:
        assert images.shape == (len(index), 3, 24, 24) and images.dtype == torch.float32
        assert images.is_contiguous(memory_format=torch.channels_last)
        assert {images.device, labels.device, index.device} == {DEVICE}
        assert labels.dtype == index.dtype == torch.int64
        assert labels.tolist() == [loader.source.targets[i] for i in index.tolist()]
        seen += index.tolist()
    assert sorted(seen) == list(range(21))


@pytest.mark.parametrize("engine, prefetch", EXECUTIONS)
def test_ragged_images_are_padded(make, engine, prefetch):
    loader = make(
        engine=engine, prefetch_factor=prefetch, transform=T.RandomHorizontalFlip(), pad_value=7, pad_multiple=32
    )
    count = 0
    for images, _, index in loader:
        assert isinstance(images, td.Padded)
        assert images.data.device == images.sizes.device == images.mask.device == DEVICE
        for i, size, data, mask in zip(index.tolist(), images.sizes.tolist(), images.data, images.mask, strict=True):
            with Image.open(loader.source.paths[i]) as image:
                assert size == [image.height, image.width]
            assert (data[:, ~mask] == 7).all() and mask.sum() == size[0] * size[1]
            count += 1
        assert images.data.shape[1] == 3 and all(extent % 32 == 0 for extent in images.data.shape[2:])
        assert images.data.is_contiguous(memory_format=torch.channels_last)
    assert count == 21


@pytest.mark.parametrize("engine", ["eager", "pipeline"])
def test_images_that_are_of_one_size_by_chance_are_padded_in_both_engines_alike(engine):
    """Whether a field is uniform is seen from shapes, not from how DALI laid its memory out."""
    dataset = td.InMemoryDataset(image=[jpeg(value, 64) for value in (10, 90, 170, 250)])
    kinds = [type(images) for (images,) in td.DataLoader(dataset, 2, device=DEVICE, engine=engine)]
    dataset = td.InMemoryDataset(image=[jpeg(9, 64), jpeg(9, 32), jpeg(9, 64), jpeg(9, 64)])
    kinds += [type(images) for (images,) in td.DataLoader(dataset, 2, device=DEVICE, engine=engine)]
    cpu = [type(images) for (images,) in td.DataLoader(dataset, 2, device="cpu")]
    assert kinds[2:] == cpu


@pytest.mark.parametrize("engine", ["eager", "pipeline", "debug"])
def test_dicts_hold_plain_tensors(make, engine):
    batch = next(iter(make(engine=engine, output="dict", transform=T.RandomHorizontalFlip())))
    assert list(batch) == ["image", "image_sizes", "label", "index"]
    assert all(type(value) is torch.Tensor and value.device == DEVICE for value in batch.values())


def test_the_device_is_found(make, monkeypatch):
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    written = ["cpu"] if REHEARSAL else [None, "cuda", "cuda:0", torch.device("cuda"), 0]
    for device in written:
        loader = make(device=device)
        assert loader.device == DEVICE and next(iter(loader))[0].device == DEVICE


@streams
def test_auto_is_the_pipeline_where_it_can_be(make):
    loader = make()
    assert loader.engine == "pipeline" and "fastest" in loader.engine_reason
    loader = make(transform=rotate)
    assert loader.engine == "eager" and "rotate" in loader.engine_reason


# How close to the CPU


def differences(make, **changes) -> tuple[float, float]:
    """(mean, largest) difference of the levels from those of the CPU, over all images."""
    both = zip(make(**changes), make(**(changes | {"device": "cpu"})), strict=True)
    found = []
    for (images, labels, *_), (expected, expected_labels, *_) in both:
        assert labels.tolist() == expected_labels.tolist() and type(images) is type(expected)
        if isinstance(images, td.Padded):
            assert images.sizes.tolist() == expected.sizes.tolist()
            images, expected = images.data, expected.data
        assert images.shape == expected.shape and images.dtype == expected.dtype
        found.append((images.cpu().float() - expected.float()).abs().flatten())
    joined = torch.cat(found)
    return joined.mean().item(), joined.max().item()


# Estimated, not measured yet.  On a GPU colour is repeated where libjpeg-turbo interpolates: that alone is 4 to 6.5
# levels in the mean of these small pictures, and 1 to 2 in a photograph's.
TOLERANCES = {"RandomHorizontalFlip": (8.0, 120.0), "Resize": (8.0, 90.0), "RandomResizedCrop": (8.0, 90.0)}


@pytest.mark.parametrize(
    "transform", [T.RandomHorizontalFlip(), T.Resize((32, 32)), T.RandomResizedCrop(24)], ids=lambda t: type(t).__name__
)
def test_jpegs_are_close_to_the_cpu(make, report, transform):
    name = type(transform).__name__
    mean, largest = differences(make, transform=transform, batch_size=7)
    report(f"JPEG + {name}: levels from the CPU's: mean {mean:.2f}, largest {largest:.0f}")
    assert mean <= TOLERANCES[name][0] and largest <= TOLERANCES[name][1]


@pytest.fixture(scope="session")
def lossless(pictures, tmp_path_factory):
    """The pictures as PNG files, which decode to the same everywhere."""
    root = tmp_path_factory.mktemp("lossless")
    for path in pictures.rglob("*.jpg"):
        (root / path.parent.name).mkdir(exist_ok=True)
        with Image.open(path) as image:
            image.convert("RGB").save(root / path.parent.name / f"{path.stem}.png")
    return root


@pytest.mark.parametrize("engine", ["eager", "pipeline"])
@pytest.mark.parametrize(
    "transform, mean, largest",
    [
        (T.RandomHorizontalFlip(), 0, 0),
        (T.Compose([T.RandomCrop(48, pad_if_needed=True), T.RandomVerticalFlip()]), 0, 0),
        (T.Resize((32, 32)), 0.6, 16),
        (T.RandomResizedCrop(24), 0.6, 16),
        (T.Compose([T.Pad(3, fill=7), T.RandomZoomOut((9, 8, 7), (1, 2))]), 0, 0),
        (T.RandomShortestSize([30, 40], 50), 0.6, 16),
        # Estimated: a few pixels whose places fall between two others by rounding, and edges.
        (T.RandomRotation(40), 0.2, 255),
        (T.RandomAffine(30, (0.1, 0.2), (0.5, 2), 10, "bilinear", fill=7), 0.5, 128),
        (T.Compose([T.CenterCrop(32), T.ToDtype(torch.float32, scale=True)]), 1e-7, 1e-6),
    ],
    ids=str,
)
def test_without_loss_only_the_resize_rounds_otherwise(lossless, report, engine, transform, mean, largest):
    def make(**changes):
        arguments = dict(batch_size=7, shuffle=True, seed=5, device=DEVICE, transform=transform, engine=engine)
        return td.DataLoader(td.ImageFolder(lossless), **(arguments | changes))

    got = differences(make)
    name = str(transform).replace("interpolation='bilinear', ", "")[:40]
    report(f"PNG + {name}, {engine}: from the CPU's: mean {got[0]:.3f}, largest {got[1]:.3g}")
    assert got[0] <= mean and got[1] <= largest


ODD = [
    "hopper.gif", "hopper.jpg", "hopper_gray_4bpp.tif", "rgb16.bmp", "junk_jpeg_header.jpg", "hopper.png", "hopper.bmp",
    "hopper.tif", "hopper.webp", "jpeg_ff00_header.jpg", "photoshop-200dpi-broken.jpg", "truncated_app14.jpg",
    "hopper_orientation_2.jpg", "hopper_orientation_5.jpg", "hopper_orientation_6.jpg", "hopper_orientation_8.jpg",
    "hopper_gray.jpg", "pil_sample_cmyk.jpg", "bw_gradient.png", "16bit.cropped.tif", "hopper_16bit_qtables.jpg",
]  # fmt: skip


@pytest.mark.parametrize("engine", ["eager", "pipeline"])
def test_odd_files_come_out_as_on_the_cpu(bad_samples, report, engine):
    """Orientation, grey, CMYK, 16 bit, palettes, and what only Pillow opens: one rule on both devices."""
    paths = [DATA / "odd-images" / name for name in ODD]
    dataset = td.FileDataset(paths, fields=("image", "path"))
    both = [td.DataLoader(dataset, 5, device=device, engine=engine) for device in (DEVICE, "cpu")]
    wrong, far = [], []
    for (images, names), (expected, _) in zip(*both, strict=True):
        for i, name in enumerate(names):
            sizes = images.sizes[i].tolist(), expected.sizes[i].tolist()
            if sizes[0] != sizes[1]:
                wrong.append(f"{Path(name).name}: {sizes[0]} instead of {sizes[1]}")
                continue
            height, width = sizes[0]
            levels = (images.data[i].cpu().float() - expected.data[i].float())[:, :height, :width].abs().mean().item()
            far.append(f"{Path(name).name} {levels:.2f}")
            if levels > (8.0 if name.endswith("jpg") else 0.5):
                wrong.append(f"{Path(name).name}: {levels:.2f} levels in the mean")
    report(f"odd files, {engine}, mean difference: {', '.join(far)}")
    assert not wrong and all(not loader.bad_samples for loader in both)


# Bad samples


BAD_FIELDS = ("image", "label", "index", "path", "valid")
SMALL = {"sizes": T.RandomResizedCrop(16), "no sizes": T.Resize((16, 16))}


@pytest.fixture
def damaged(tmp_path):
    """Of 22 samples: 2 is headless, 9 is garbage, 10 missing, 15 empty."""
    root = make_image_folder(tmp_path / "damaged", classes=2, per_class=11)
    dataset = td.ImageFolder(root, fields=BAD_FIELDS)
    paths = [Path(path) for path in dataset.paths]
    noise = np.random.default_rng(0).integers(0, 256, 900, dtype=np.uint8).tobytes()
    paths[2].write_bytes(b"\xff\xd8\xff\xe0" + noise)  # begins like a JPEG
    garble_file(paths[9])
    paths[10].unlink()
    paths[15].write_bytes(b"")

    def make(**changes):
        arguments = dict(batch_size=4, device=DEVICE, transform=SMALL["sizes"], timeout=60)
        return td.DataLoader(dataset, **(arguments | changes))

    return make


BAD = {2: "decode", 9: "decode", 10: "read", 15: "read"}


@pytest.mark.parametrize("transform", SMALL)
@pytest.mark.parametrize("engine, prefetch", EXECUTIONS)
def test_a_bad_sample_is_named_and_the_run_goes_on(damaged, engine, prefetch, transform):
    loader = damaged(engine=engine, prefetch_factor=prefetch, transform=SMALL[transform])
    iterator = iter(loader)
    seen, errors = [], []
    while True:
        try:
            seen += next(iterator)[2].tolist()
        except StopIteration:
            break
        except td.BadSampleError as error:
            errors.append(error)
    assert seen == [4, 5, 6, 7, 16, 17, 18, 19, 20, 21]
    assert [(error.index, error.stage) for error in errors] == [(2, "decode"), (9, "decode"), (15, "read")]
    assert all(error.path == loader.source.paths[error.index] and error.__cause__ for error in errors)


@pytest.mark.parametrize("transform", SMALL)
def test_substitutes_are_one_stream(damaged, transform):
    def make(engine, prefetch, **changes):
        changes = {"on_bad_sample": "substitute", "shuffle": True, "seed": 5, "transform": SMALL[transform]} | changes
        return damaged(engine=engine, prefetch_factor=prefetch, **changes)

    assert_same_stream(*(lambda e=e, p=p: make(e, p) for e, p in EXECUTIONS))
    if transform == "sizes":
        assert_resumes_exactly(lambda: make("pipeline", 2), epochs=1, every=4)
    loader = make("eager", 2)
    valid = {int(i): bool(v) for _, _, index, _, valid in loader for i, v in zip(index, valid, strict=True) if v}
    assert sorted(valid) == [i for i in range(22) if i not in BAD]
    assert set(BAD) <= {bad.index for bad in loader.bad_samples}


def cut_scan(path: Path) -> None:
    """Random bytes instead of a JPEG's compressed data; its header stays."""
    data = path.read_bytes()
    start = data.rindex(b"\xff\xda") + 14
    noise = np.random.default_rng(0).integers(0, 255, len(data) - start, dtype=np.uint8).tobytes()
    path.write_bytes(data[:start] + noise)


@pytest.mark.parametrize("damage", [truncate_file, cut_scan], ids=["truncated", "scan of noise"])
@pytest.mark.parametrize("engine", ["eager", "pipeline"])
def test_a_damaged_scan_harms_no_other_sample(bad_samples, tmp_path, report, damage, engine):
    """A GPU may decode such a file without a word; what counts is that its neighbours are whole, and that it is named
    where it is refused."""
    root = make_image_folder(tmp_path / "own", classes=2, per_class=11)
    dataset = td.ImageFolder(root, fields=("image", "index", "valid"))

    def digests(**changes):
        loader = td.DataLoader(dataset, 4, device=DEVICE, engine=engine, transform=T.Resize((16, 16)), **changes)
        found = {}
        for images, index, valid in loader:
            columns = zip(index.tolist(), sample_digests((images,)), valid.tolist(), strict=True)
            found |= {i: digest for i, digest, good in columns if good}
        return found, loader.bad_samples

    whole, _ = digests()
    damage(Path(dataset.paths[6]))
    got, bad = digests(on_bad_sample="substitute")
    assert {i: digest for i, digest in got.items() if i != 6} == {i: whole[i] for i in whole if i != 6}
    assert (6 in got) == (6 not in [each.index for each in bad])
    report(f"{engine}: a JPEG with a damaged scan: {'decoded all the same' if 6 in got else bad[0].reason[:90]}")


@pytest.mark.parametrize("engine", ["eager", "pipeline"])
def test_jpeg2000_never_reaches_dali(bad_samples, engine):
    names = ["hopper.jpg", "balloon_eciRGBv2_aware.jp2", "hopper.png"]
    dataset = td.FileDataset([DATA / "odd-images" / name for name in names], fields=("image", "index", "valid"))
    loader = td.DataLoader(dataset, 3, device=DEVICE, engine=engine, on_bad_sample="substitute")
    ((_, index, valid),) = loader
    assert index[1] != 1 and valid.tolist() == [True, False, True]


# Functions, and images that are in memory


def rotate(sample, rand):
    import nvidia.dali.experimental.dynamic as ndd

    image = ndd.decoders.image(sample["image"], device=rand.device)
    image = ndd.rotate(image, angle=rand.uniform(-10, 10), fill_value=0)
    return {**sample, "image": ndd.resize(image, size=[24, 24])}


def grain(sample, rand):
    import nvidia.dali.experimental.dynamic as ndd

    image = ndd.resize(ndd.decoders.image(sample["image"], device=rand.device), size=[24, 24])
    return {**sample, "image": ndd.noise.gaussian(image, stddev=20.0, rng=rand.ndd)}


@T.traceable
def rotate_traced(sample, rand, ops):
    image = ops.decoders.image(sample["image"], device=ops.decoder_device)
    image = ops.rotate(image, angle=rand.uniform(-10, 10), fill_value=0)
    return {**sample, "image": ops.resize(image, size=[24, 24])}


@pytest.mark.parametrize("function", [rotate, grain])
def test_functions_run_on_the_device(make, function):
    makers = [
        lambda e=engine, p=prefetch: make(engine=e, prefetch_factor=p, transform=function)
        for engine, prefetch in [("eager", 2), ("eager", 0), ("debug", 2), ("auto", 2)]
    ]
    assert_same_stream(*makers)
    assert_resumes_exactly(makers[0], epochs=1, every=5)
    (images, *_), *_ = makers[0]()
    assert images.device == DEVICE and images.shape == (4, 3, 24, 24)


def test_functions_in_the_middle_and_traced(make):
    transform = T.Compose([rotate_traced, T.RandomHorizontalFlip(), T.Normalize((0.5,) * 3, (0.2,) * 3)])
    makers = [lambda e=engine: make(engine=e, transform=transform) for engine in ("eager", "pipeline", "debug")]
    assert_same_stream(*makers, lambda: make(transform=T.Compose([rotate, *transform.transforms[1:]])))


def test_a_function_may_add_a_field_of_the_host(make):
    """What stays on the CPU in DALI arrives on the device."""

    def measured(sample, rand):
        import nvidia.dali.experimental.dynamic as ndd

        image = ndd.resize(ndd.decoders.image(sample["image"], device=rand.device), size=[8, 8])
        return {"image": image, "angle": rand.uniform(5, 6)}

    assert_same_stream(*(lambda e=e, p=p: make(engine=e, prefetch_factor=p, transform=measured) for e, p in EXECUTIONS
                         if e != "pipeline"))  # fmt: skip
    batch = next(iter(make(transform=measured, output="dict")))
    assert batch["angle"].device == DEVICE and ((batch["angle"] >= 5) & (batch["angle"] < 6)).all()


@pytest.fixture(scope="session")
def decoded():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (12, 40, 30, 3), dtype=np.uint8)
    boxes = [rng.random((n, 4)).astype(np.float32) for n in (3, 0, 2, 5, 1, 1, 0, 4, 2, 2, 1, 3)]
    return images, boxes


@pytest.mark.parametrize("engine, prefetch", EXECUTIONS)
def test_decoded_images_without_a_transform_arrive_as_they_are(decoded, engine, prefetch):
    images, boxes = decoded
    dataset = td.InMemoryDataset(image=images, boxes=boxes, name=[f"n{i}" for i in range(12)])
    loader = td.DataLoader(dataset, 5, device=DEVICE, engine=engine, prefetch_factor=prefetch)
    at = 0
    for got, padded, names in loader:
        n = len(names)
        assert isinstance(got, torch.Tensor) and got.device == DEVICE
        assert torch.equal(got.cpu().permute(0, 2, 3, 1), torch.from_numpy(images[at : at + n]))
        assert padded.data.device == padded.sizes.device == DEVICE
        for row, size, box in zip(padded.data.cpu(), padded.sizes.tolist(), boxes[at : at + n], strict=True):
            assert size == list(box.shape) and torch.equal(row[: size[0], : size[1]], torch.from_numpy(box))
        assert names == [f"n{i}" for i in range(at, at + n)]
        at += n
    assert at == 12


def test_functions_of_whole_batches_draw_from_this_gpus_generator(greys):
    """It is seeded for each batch, and put back."""
    generator = torch.default_generator if REHEARSAL else torch.cuda.default_generators[DEVICE.index]

    def draw(batch):
        return *batch, torch.rand(2, generator=generator, device=generator.device)

    def drawn(step):
        loader = greys(batch_transform=draw)
        loader.seek(0, step)
        iterator = iter(loader)
        found = [next(iterator) for _ in range(2)]
        loader.close()
        assert all(images.device == DEVICE for images, _, _ in found)
        return [numbers.tolist() for _, _, numbers in found]

    before = generator.get_state()
    whole, rest = drawn(0), drawn(1)
    assert whole[1] == rest[0] and whole[0] != whole[1]
    assert torch.equal(generator.get_state(), before)


def test_collate_and_lists_get_samples_on_the_gpu(greys):
    images, numbers = next(iter(greys(output="list")))
    samples = next(iter(greys(collate_fn=list)))
    batch, labels = next(iter(greys()))
    assert numbers == labels.tolist() == [grey for _, grey in samples]
    for image, (sample, _), expected in zip(images, samples, batch, strict=True):
        assert image.device == sample.device == DEVICE
        assert torch.equal(image, expected) and torch.equal(sample, expected)


@pytest.mark.parametrize(
    "transform, levels",
    [
        (T.RandomHorizontalFlip(), 0),
        (T.Decode(), 0),
        (T.Compose([T.Decode(), T.RandomCrop(20)]), 0),
        (T.RandomResizedCrop(16), 24),
        (T.Compose([T.RandomHorizontalFlip(), T.Normalize((0.5,) * 3, (0.2,) * 3)]), 1e-4),
    ],
    ids=str,
)
@pytest.mark.parametrize("ragged", [False, True])
def test_decoded_images_are_transformed_on_the_device(decoded, transform, levels, ragged):
    images = list(decoded[0])
    if ragged:
        images[3], images[7] = images[3][:32], images[7][:, :25]
    dataset = td.InMemoryDataset(image=images if ragged else decoded[0], label=list(range(12)))

    def make(**changes):
        return td.DataLoader(
            dataset, **(dict(batch_size=5, shuffle=True, device=DEVICE, transform=transform) | changes)
        )

    assert_same_stream(*(lambda e=e, p=p: make(engine=e, prefetch_factor=p) for e, p in EXECUTIONS))
    assert differences(make)[1] <= levels


# Streams


@pytest.mark.parametrize("engine, prefetch", EXECUTIONS)
def test_torch_takes_over_where_dali_has_no_form(decoded, engine, prefetch):
    """Its batches are near the CPU's: the same kernels, in other orders of sums; noise has the same distribution."""
    dataset = td.InMemoryDataset(image=decoded[0])
    perspective = T.RandomPerspective(0.3, 0.7)
    for steps, levels in (
        ([perspective, T.RandomHorizontalFlip()], 1),
        ([T.ElasticTransform(20.0, 2.0, fill=3)], 2),
        ([T.RandomEqualize(), T.RandomCrop(20)], 0),
        ([T.RandAugment(3, 12), T.AutoAugment("cifar10")], 1),
        ([T.Views([[perspective], [T.RandomAutocontrast(), perspective]])], 1),
    ):
        made = []
        for device in (DEVICE, "cpu"):
            loader = td.DataLoader(dataset, 4, seed=3, device=device, engine=engine,
                                   prefetch_factor=prefetch, transform=T.Compose(steps))  # fmt: skip
            made.append([one.cpu().int() for batch in loader for value in batch for one in _listed(value)])
        for one, other in zip(*made, strict=True):
            gap = (one - other).abs()
            assert (gap > levels).float().mean() < 1e-3
    noisy = td.DataLoader(dataset, 4, device=DEVICE, transform=T.GaussianNoise(0.0, 0.1, False))
    plain = td.DataLoader(dataset, 4, device=DEVICE)
    wrapped = torch.cat(
        [(a.int() - b.int() + 128) % 256 - 128 for (a,), (b,) in zip(noisy, plain, strict=True)]
    ).float()
    assert abs(wrapped.mean()) < 1 and abs(wrapped.std() - 25.5) < 0.5


def _listed(value) -> list:
    return [one.data if isinstance(one, td.Padded) else one for one in (value if isinstance(value, list) else [value])]


@contextmanager
def current_streams_stay():
    """PyTorch's and DALI's current stream and device of this thread are afterwards what they were."""
    import nvidia.dali.experimental.dynamic as ndd

    def look():
        return (
            torch.cuda.current_stream(),
            torch.cuda.current_device(),
            ndd.get_current_stream(),
            ndd.EvalContext.current(),
        )

    before = look()
    yield look
    assert look() == before


@streams
@pytest.mark.parametrize("engine, prefetch", EXECUTIONS)
@pytest.mark.parametrize("own", [False, True])
def test_the_callers_streams_are_left_alone(make, damaged, engine, prefetch, own):
    with torch.cuda.stream(torch.cuda.Stream() if own else None), current_streams_stay() as look:
        before = look()
        for loader in (make(engine=engine, prefetch_factor=prefetch), damaged(engine=engine, prefetch_factor=prefetch)):
            iterator = iter(loader)
            while True:
                try:
                    next(iterator)
                except StopIteration:
                    break
                except td.BadSampleError:
                    pass
                assert look() == before
            del iterator
        for _ in make(engine=engine, prefetch_factor=prefetch):
            break


@streams
def test_a_default_stream_that_is_set_later_still_counts(make):
    """The loader puts DALI's current stream back to "none chosen", not to the one that stood in for it."""
    import nvidia.dali.experimental.dynamic as ndd

    found = {}

    def run():
        for engine in ("eager", "debug", "pipeline"):
            next(iter(make(engine=engine, prefetch_factor=0)))
        chosen = torch.cuda.Stream()
        ndd.set_default_stream(chosen)
        found["same"] = ndd.get_current_stream() == chosen

    try:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join(60)
    finally:
        ndd.set_default_stream(None, device_id=DEVICE.index)
    assert found == {"same": True}


@pytest.mark.parametrize("engine, prefetch", EXECUTIONS)
@pytest.mark.parametrize("consumers", [1, 3])
def test_late_consumers_read_the_right_values(greys, engine, prefetch, consumers):
    """On streams of the user's own, which run behind, with batches that the host has dropped long ago."""
    found = consume(greys(engine=engine, prefetch_factor=prefetch), new_streams(consumers), steps=60)
    assert max(found) < LEVELS, f"{sum(one >= LEVELS for one in found)} of {len(found)} batches are wrong"


@streams
@pytest.mark.parametrize("engine", ["eager", "pipeline"])
def test_a_late_default_stream_reads_the_right_values(greys, engine):
    found = consume(greys(engine=engine), [torch.cuda.default_stream()], steps=60)
    assert max(found) < LEVELS


@streams
@pytest.mark.parametrize("engine", ["eager", "pipeline"])
def test_control_without_record_stream(greys, monkeypatch, report, engine):
    """The tests above have teeth only if this goes wrong."""
    monkeypatch.setattr(torchdali.iterator, "_hand_over", lambda *args: None)
    found = consume(greys(engine=engine), new_streams(1), steps=60)
    wrong = sum(not one < LEVELS for one in found)
    report(f"{engine}: batches that are wrong without record_stream: {wrong} of 60 (none: the tests have no teeth)")


@streams
def test_control_with_torch_alone():
    """Memory of one stream, read late on another: `record_stream` is needed, and enough."""

    def run(record: bool) -> int:
        bad = 0
        for _ in range(5):
            side, consumer = torch.cuda.Stream(), torch.cuda.Stream()
            with torch.cuda.stream(side):
                x = torch.ones(1 << 22, device=DEVICE)
            consumer.wait_stream(side)
            with torch.cuda.stream(consumer):
                nap(40)
                total = x.sum()
            if record:
                x.record_stream(consumer)
            del x
            with torch.cuda.stream(side):
                torch.empty(1 << 22, device=DEVICE).fill_(7)
            torch.cuda.synchronize()
            bad += total.item() != 1 << 22
        return bad

    assert run(record=True) == 0
    assert run(record=False) > 0


@pytest.mark.parametrize("engine", ["eager", "pipeline"])
def test_a_gpu_that_is_busy_with_training(greys, engine):
    """Large products on the consumer's stream slow the loader's kernels down, so that its host side could run ahead."""
    n = 64 if REHEARSAL else 4096
    matrix = torch.randn(n, n, device=DEVICE, dtype=torch.bfloat16)

    def train():
        for _ in range(4):
            torch.mm(matrix, matrix)

    found = consume(greys(engine=engine, batch_size=48), new_streams(1), steps=30, milliseconds=0, work=train)
    assert max(found) < LEVELS


@pytest.mark.parametrize("prefetch", [0, 2])
def test_decoding_waits_for_late_operators_of_the_batch_before(greys, prefetch):
    """The loader's stream itself runs behind: GPU decoders write at once, whatever is queued on the stream they are
    given, so memory that is still in use must not be free yet."""

    def late(sample, rand):
        import nvidia.dali.experimental.dynamic as ndd

        image = ndd.decoders.image(sample["image"], device=rand.device)
        nap(10)  # on PyTorch's current stream, which is the loader's here
        return {**sample, "image": ndd.resize(image, size=[64, 64])}

    found = consume(greys(engine="eager", prefetch_factor=prefetch, transform=late), new_streams(1), 40, 0)
    assert max(found) < LEVELS


@pytest.mark.parametrize("prefetch", [0, 2])
def test_an_error_leaves_nothing_running_into_the_next_batch(bad_samples, prefetch):
    """A function that queues work and then fails, at some samples: the good ones beside and behind are whole."""

    def fails_late(sample, rand):
        import nvidia.dali.experimental.dynamic as ndd

        image = ndd.decoders.image(sample["image"], device=rand.device)
        nap(5)
        image = ndd.resize(image, size=[64, 64])
        image.evaluate()
        if any(np.asarray(flag).item() for flag in sample["flag"].tensors):
            raise ValueError("this one")
        return {"image": image}

    flags = [np.array([number % 8 == 3], np.float32) for number in range(48)]
    dataset = td.InMemoryDataset(image=[jpeg(grey) for grey in GREYS], flag=flags, grey=np.array(GREYS, np.float32))
    loader = td.DataLoader(
        dataset, 8, device=DEVICE, transform=fails_late, on_bad_sample="substitute", engine="eager",
        prefetch_factor=prefetch, timeout=60, sampler=list(range(48)) * 2,
    )  # fmt: skip
    found = consume(loader, new_streams(1), 12, 1)
    assert max(found) < LEVELS and len(loader.bad_samples) >= 12


@streams
@pytest.mark.parametrize("engine", ["eager", "pipeline"])
@pytest.mark.parametrize("busy", [False, True])
def test_graphs_are_captured_while_batches_are_dropped(greys, engine, busy):
    """In the user's thread, with capture_error_mode="thread_local", as torch.compile does it.

    busy: the loader works in its threads meanwhile.
    """
    iterator = iter(greys(engine=engine))
    x = torch.zeros(8, device=DEVICE).add_(1)  # kernels are loaded at their first use, and not in a capture
    for _ in range(5):
        held = [next(iterator) for _ in range(3)]
        if not busy:
            time.sleep(0.3)  # its queues are full, and it rests
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            x.add_(1)
            held.clear()
            time.sleep(0.02)
            x.add_(1)
        before = x[0].item()
        graph.replay()
        assert x[0].item() == before + 2
    static = next(iterator)[0].clone()
    static.float().mean(dim=(1, 2, 3))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        total = static.float().mean(dim=(1, 2, 3))
    for _ in range(10):
        images, values = next(iterator)
        static.copy_(images)
        graph.replay()
        assert (total - values).abs().max() < LEVELS


# Ends


@pytest.mark.parametrize("engine, prefetch", EXECUTIONS)
def test_breaks_closes_and_errors_with_a_late_consumer(greys, engine, prefetch):
    loader = greys(engine=engine, prefetch_factor=prefetch)
    found, (stream,) = [], new_streams(1)
    for number in range(6):
        with torch.cuda.stream(stream):
            try:
                for step, (images, values) in enumerate(loader):
                    nap(10)
                    found.append(deviation(images, values))
                    del images, values
                    if step == 2 and number % 3 == 0:
                        break
                    if step == 2 and number % 3 == 1:
                        loader.close()
                        break
                    if step == 2:
                        raise KeyError("loss is NaN")
            except KeyError:
                pass
    synchronize()
    assert len(found) == 18 and max(map(float, found)) < LEVELS


def test_close_in_mid_epoch(make):
    loader = make()
    iterator = iter(loader)
    next(iterator)
    loader.close()
    with pytest.raises(RuntimeError, match="ended by close"):
        next(iterator)
    assert len(list(loader)) == 6


@streams
@pytest.mark.parametrize("engine", ["eager", "pipeline"])
def test_memory_is_flat_over_passes(greys, report, engine):
    """PyTorch keeps free memory by stream: a pass on a new stream could use nothing of the pass before."""
    loader = greys(
        engine=engine, batch_size=16, transform=T.Compose([T.RandomResizedCrop(224), AUGMENT.transforms[-1]])
    )
    reserved, free = [], []
    for _ in range(12):
        for step, _ in enumerate(loader):
            if step == 4:
                break
        del _
        gc.collect()
        torch.cuda.synchronize()
        reserved.append(torch.cuda.memory_reserved(DEVICE) / 2**20)
        free.append(torch.cuda.mem_get_info(DEVICE)[0] / 2**20)
    report(
        f"{engine}: over passes 3 to 12, MiB more that PyTorch reserved: {reserved[-1] - reserved[2]:.0f}, "
        f"MiB less that the card has free: {free[2] - free[-1]:.0f}"
    )
    assert reserved[-1] - reserved[2] < 40  # two batches
    assert free[2] - free[-1] < 300


BUSY = """
    import sys, torchdali as td
    from torchdali import transforms as T
    root, device, engine, prefetch = sys.argv[1:]
    loader = td.DataLoader(td.ImageFolder(root), 4, shuffle=True, device=device, engine=engine,
                           prefetch_factor=int(prefetch),
                           transform=T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip()]))
    iterator = iter(loader)
    images, labels = next(iterator)
"""


ENDS = [
    ("eager", 2, "", 0),
    ("pipeline", 2, "", 0),
    ("pipeline", 0, "", 0),
    ("debug", 2, "", 0),
    ("pipeline", 2, "sys.exit(3)", 3),
    ("eager", 2, "raise KeyError('oops')", 1),
    ("eager", 2, "cycle = [loader, iterator]; cycle.append(cycle)", 0),
]


def test_the_interpreter_exits_with_a_busy_loader(pictures):
    def end(engine, prefetch, last, code):
        return run_script(textwrap.dedent(BUSY) + last, pictures, DEVICE, engine, prefetch)

    with ThreadPoolExecutor(max(1, min(len(ENDS), len(os.sched_getaffinity(0)) // 2))) as pool:
        done = list(pool.map(lambda args: end(*args), ENDS))
    for (engine, prefetch, last, code), one in zip(ENDS, done, strict=True):
        assert one.returncode == code, f"{engine}, prefetch {prefetch}, {last!r}: {last_line(one)}"
        assert "oops" in one.stderr or one.stderr == ""


def test_two_loaders_at_once(make):
    makers = [lambda: make(), lambda: make(seed=6), lambda: make(engine="eager"), lambda: make(prefetch_factor=0)]
    alone = [[sample_digests(batch) for batch in each()] for each in makers]
    together = [[] for _ in makers]
    for batches in zip(*(each() for each in makers), strict=True):
        for digests, batch in zip(together, batches, strict=True):
            digests.append(sample_digests(batch))
    assert together == alone
    results = {}

    def read(number):
        results[number] = [sample_digests(batch) for batch in makers[number]()]

    threads = [threading.Thread(target=read, args=(number,)) for number in range(len(makers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert [results.get(number) for number in range(len(makers))] == alone


FORK = """
    import os, signal, sys, warnings
    warnings.simplefilter("ignore")
    import torchdali as td
    from torchdali import transforms as T
    root, device, engine = sys.argv[1:]
    def make():
        return td.DataLoader(td.ImageFolder(root), 4, device=device, engine=engine, transform=T.RandomResizedCrop(24),
                             timeout=8)
    loader = make()
    kept = iter(loader)
    next(kept)
    for what in ("open", "same", "new"):
        pid = os.fork()
        if pid == 0:
            signal.alarm(12)
            try:
                next(kept if what == "open" else iter(loader) if what == "same" else iter(make()))
                print(what, "gave a batch", flush=True)
            except BaseException as error:
                print(what, type(error).__name__, str(error).replace("\\n", " ")[:300], flush=True)
            os._exit(0)
        print(what, "status", os.waitpid(pid, 0)[1], flush=True)
    loader.close()
"""


@pytest.mark.parametrize("engine", ["eager", "pipeline"])
def test_a_fork_after_use_is_refused_clearly(pictures, report, engine):
    """Neither CUDA nor DALI's threads survive it: at once, with a sentence, whatever the child asks for."""
    done = run_script(FORK, pictures, DEVICE, engine, timeout=120)
    lines = done.stdout.splitlines()
    report(f"{engine}: after a fork: {' | '.join(lines)}"[:600])
    assert done.returncode == 0, last_line(done)
    for what in ("open", "same", "new"):
        said = [line for line in lines if line.startswith(f"{what} RuntimeError")]
        assert said and ("process" in said[0] or "fork" in said[0]), f"{what}: {lines}"
        assert f"{what} status 0" in lines


# Several GPUs


@streams
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("engine, prefetch", EXECUTIONS)
def test_another_gpu_than_the_current_one(make, greys, engine, prefetch):
    other = torch.device("cuda", 1)
    for images, labels, index in make(device=other, engine=engine, prefetch_factor=prefetch):
        assert {images.device, labels.device, index.device} == {other}
    assert torch.cuda.current_device() == 0
    with torch.cuda.device(other):
        found = consume(greys(device=other, engine=engine, prefetch_factor=prefetch), new_streams(1), 20)
    assert max(found) < LEVELS


@streams
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_nothing_is_made_on_a_gpu_that_is_not_ours(pictures):
    text = """
        import sys, torch, torchdali as td
        from torchdali import transforms as T
        torch.cuda.set_device(1)
        for engine in ("eager", "pipeline"):
            list(td.DataLoader(td.ImageFolder(sys.argv[1]), 4, transform=T.RandomResizedCrop(24), engine=engine))
        import ctypes
        active, flags = ctypes.c_int(), ctypes.c_uint()
        driver = ctypes.CDLL("libcuda.so.1")
        driver.cuDevicePrimaryCtxGetState(0, ctypes.byref(flags), ctypes.byref(active))
        print("context on GPU 0:", active.value)
    """
    done = run_script(text, pictures)
    assert done.stdout.strip() == "context on GPU 0: 0", last_line(done)


# Facts that decisions rest on: reported


PREAMBLE = """
    import os, sys, time
    import numpy as np, torch
    import nvidia.dali.experimental.dynamic as ndd
    from tests.test_gpu import jpeg, nap, DATA, REHEARSAL, synchronize
    DEV = "cpu" if REHEARSAL else "gpu"
    S = None if REHEARSAL else torch.cuda.Stream()
    ctx = ndd.EvalContext(num_threads=4) if REHEARSAL else ndd.EvalContext(device_id=0, cuda_stream=S, num_threads=8)
    photos = [np.fromfile(path, np.uint8) for path in sorted((DATA / "photos").glob("*.jpg"))]
    LOADS = [{}] if REHEARSAL else [{"hw_decoder_load": load} for load in (1.0, 0.65, 0.0)]
    def drain():
        if S is not None: S.synchronize()
    def off(t, v): return bool((t.float() - v).abs().max() > 6)
    def decode(files, **options): return ndd.decoders.image(ndd.as_batch(files), device=DEV, **options)
"""

EARLY_WRITES = """
    # c1: a decode writes into memory that is still in use on its own stream, unless that stream was drained.
    A, B = [[np.frombuffer(jpeg(value, 512), np.uint8)] * 32 for value in (40, 200)]
    def count(drained, **options):
        bad = 0
        for turn in range(12):
            nap(0 if turn < 2 else 60)
            a = ndd.resize(decode(A, **options), size=(64, 64)); ta = a.torch(); del a
            if drained: drain()
            b = ndd.resize(decode(B, **options), size=(64, 64)); tb = b.torch(); del b
            drain()
            if turn >= 2: bad += off(ta, 40) + off(tb, 200)
        return bad
    with ctx, torch.cuda.stream(S):
        for options in LOADS:
            found = count(False, **options), count(True, **options)
            print(f"c1 {options}: early writes without a drain {found[0]} of 20, with {found[1]}", flush=True)
"""

TWO_DECODES = """
    # Two decodes inside one step of a user's function, which the loader cannot drain.
    A, B = [[np.frombuffer(jpeg(value, 512), np.uint8)] * 32 for value in (40, 200)]
    bad = 0
    with ctx, torch.cuda.stream(S), ndd.EvalMode.sync_cpu:
        for _ in range(12):
            nap(40)
            a = ndd.resize(decode(A), size=(64, 64)).evaluate()
            b = ndd.resize(decode(B), size=(64, 64)).evaluate()
            views = [torch.as_tensor(x._storage.as_tensor(), device="cpu" if REHEARSAL else "cuda") for x in (a, b)]
            ta, tb = (view.clone() for view in views)
            drain()
            bad += off(ta, 40) + off(tb, 200)
    print(f"two decodes in one step: wrong {bad} of 24")
"""

REGIONS = """
    # c2: nvImageCodec#55, decoding a region crashes.
    with ctx, torch.cuda.stream(S):
        whole = ndd.decoders.image(ndd.as_batch(photos), device=DEV)
        region = ndd.decoders.image_slice(ndd.as_batch(photos), start=[16, 24], shape=[60, 50], axes=[0, 1], device=DEV)
        cut = ndd.slice(whole, start=[16, 24], shape=[60, 50], axes=[0, 1])
        far = (cut.torch().cpu().float() - region.torch().cpu().float()).abs()
        print(f"c2: a region against the crop of the whole: mean {far.mean():.2f}, largest {far.max():.0f}", flush=True)
        for turn in range(40):
            r = ndd.decoders.image_random_crop(ndd.as_batch(photos * 8), device=DEV)
            ndd.resize(r, size=(64, 64)).torch()
        synchronize()
    print("c2: 40 batches of image_random_crop did not crash")
"""

DECODERS = """
    # Whether a sample's pixels depend on which decoder gets it, and so on its batch.
    def pixels(files, **options):
        with ctx, torch.cuda.stream(S):
            out = decode(files, **options).cpu().evaluate()
            return [np.array(out._storage[i]).astype(int) for i in range(len(files))]
    reference = pixels(photos, **LOADS[-1])
    for options in LOADS:
        far = [np.abs(a - b) for a, b in zip(pixels(photos, **options), reference)]
        print(f"decoders: {options} against {LOADS[-1]}: mean {[round(float(f.mean()), 3) for f in far]}, "
              f"largest {max(int(f.max()) for f in far)}")
    alone = [pixels([file])[0] for file in photos]
    far = [np.abs(a - b).max() for a, b in zip(pixels(photos), alone)]
    print(f"decoders: in a batch against alone, default load: largest {max(map(int, far))}")
    full = pixels(photos, **({} if REHEARSAL else {"jpeg_fancy_upsampling": True}))
    from torchdali.pillow import decode as pillow
    for name, got in (("default", alone), ("jpeg_fancy_upsampling", full)):
        far = [np.abs(a - pillow(file)) for a, file in zip(got, photos)]
        print(f"decoders: {name} against libjpeg-turbo: mean {[round(float(f.mean()), 2) for f in far]}")
"""

RAW_FORK = """
    # c12: DALI itself after a fork.
    import signal, warnings
    warnings.simplefilter("ignore")
    with ctx, torch.cuda.stream(S): decode(photos).evaluate(); drain()
    pid = os.fork()
    if pid == 0:
        signal.alarm(8)
        try:
            ndd.resize(decode(photos), size=(8, 8)).cpu().evaluate(); os._exit(0)
        except BaseException as error:
            print("c12:", type(error).__name__, str(error).splitlines()[0][:80], flush=True); os._exit(3)
    status = os.waitpid(pid, 0)[1]
    print("c12: the child", f"ends by signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else
          f"exits with {os.WEXITSTATUS(status)}", flush=True)
    os._exit(0)
"""


@pytest.mark.parametrize(
    "script", [DECODERS + TWO_DECODES + EARLY_WRITES, REGIONS, RAW_FORK], ids=["decoders", "c2", "c12"]
)
def test_facts(report, script):
    try:
        done = run_script(textwrap.dedent(PREAMBLE) + textwrap.dedent(script), timeout=60)
    except subprocess.TimeoutExpired:
        report(f"{script.strip().splitlines()[0]} -> did not end within 60 s")
        return
    lines = done.stdout.splitlines()
    report(*lines, *([] if done.returncode == 0 else [f"{script.strip().splitlines()[0]} -> {last_line(done)}"]))
    drained = [line for line in lines if line.startswith("c1")]
    assert all(line.endswith("with 0") for line in drained), "draining does not cure early writes: see DESIGN.md"


@pytest.mark.parametrize("engine, prefetch", [("eager", 2), ("pipeline", 2), ("pipeline", 0)])
def test_what_a_pass_costs_to_begin(greys, report, engine, prefetch):
    loader = greys(engine=engine, prefetch_factor=prefetch)
    seconds = []
    for _ in range(3):
        begin, first = time.perf_counter(), None
        for _ in loader:
            synchronize()
            first = first or time.perf_counter() - begin
        seconds.append(first)
    report(f"{engine}, prefetch {prefetch}: seconds to a pass's first batch: {', '.join(f'{s:.3f}' for s in seconds)}")
