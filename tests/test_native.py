"""The kernels in C: the bits of torch's, when they act, and what happens without them."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

import torchdali as td
from torchdali import transforms as T
from torchdali.buffers import Pool
from torchdali.engine import images, pictures
from torchdali.moves import Crop, Flip, Resize
from torchdali.native import build, library
from torchdali.native import images as native
from torchdali.transforms.base import Mover

NORMALIZE = T.Normalize((0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.261))
TO_FLOAT = T.ToDtype(torch.float32, scale=True)

needs_kernel = pytest.mark.skipif(
    build.compiler() is None
    or not (platform.machine() == "aarch64" or torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")),
    reason="needs a C compiler, and a CPU whose vectors the kernels know",
)


class Moved(Mover):
    """A mover of given moves."""

    def __init__(self, *moves):
        self.given = list(moves)

    def moves(self, params):
        return self.given


def make(arrays, steps, sizes, kernel=True):
    """A batch of images after steps, [N, H, W, C], and whether the kernel made it."""
    drawn = [(step, {}) for step in steps]
    extent = tuple(int(v) for v in sizes.max(axis=0))
    with pytest.MonkeyPatch.context() as patch:
        if not kernel:
            patch.setattr(pictures, "kernel", lambda: None)
        used = pictures.make_pictures(arrays, drawn) is not None
        target = images.Target(drawn, sizes, extent, 7.0)
        return images.make_images(arrays, target, Pool(), lambda run, n: [run(range(k, n, 2)) for k in (0, 1)]), used


def assert_same_bits(arrays, steps, sizes):
    ours, used = make(arrays, steps, sizes)
    theirs, other = make(arrays, steps, sizes, kernel=False)
    assert used and not other
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
    assert ours.numpy().tobytes() == theirs.numpy().tobytes()


def draw_sizes(rng, n, low, high):
    """Sizes [n, 2], small ones as often as large ones."""
    return np.exp(rng.uniform(np.log(low), np.log(high + 1), (n, 2))).astype(np.int64).clip(low, high)


def draw_images(rng, sizes, channels=3):
    """Images of noise, of one number, of black and white, and windows of larger ones."""
    made = []
    for k, (height, width) in enumerate(sizes.tolist()):
        whole = rng.integers(0, 256, (height + 3, width + 5, channels), dtype=np.uint8)
        whole = whole if k % 3 == 0 else np.full_like(whole, 255) if k % 3 == 1 else (whole // 128) * np.uint8(255)
        made.append(whole[1:-2, 2:-3] if k % 2 else np.ascontiguousarray(whole[:height, :width]))
    return made


VALUES = [[], [NORMALIZE], [TO_FLOAT], [TO_FLOAT, NORMALIZE], [T.Normalize([0.5], [0.3])], [T.ToDtype(torch.float32)]]
GREY_VALUES = [[], [TO_FLOAT], [T.Normalize([0.5], [0.3])], [TO_FLOAT, T.Normalize([0.1307], [0.3081])]]


@needs_kernel
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("channels", [3, 1])
@pytest.mark.parametrize("seed", [0, 1, pytest.param(2, marks=pytest.mark.slow)])
def test_windows_are_resized_to_torchs_bits(mode, channels, seed):
    """Windows of any images to any size, a window of that, flips, values: 960 cases, and 12,000 in the long form."""
    rng = np.random.default_rng(seed)
    values = VALUES if channels == 3 else GREY_VALUES
    for batch in range(300 if seed == 2 else 12):
        n = 10
        sizes = draw_sizes(rng, n, 1, 300)
        arrays = draw_images(rng, sizes, channels)
        start = rng.integers(0, sizes)
        shape = rng.integers(1, sizes - start + 1)
        full = draw_sizes(rng, n, 1, 200)
        if batch % 3 == 0:
            full[:3] = shape[:3]  # not resized
            full[3:6, 0] = shape[3:6, 0]
        moves = [Crop(start, shape), Resize(full.astype(np.float32), mode)]
        out = full
        if batch % 2:
            corner = rng.integers(0, full)
            out = rng.integers(1, full - corner + 1)
            moves.append(Crop(corner, out))
        moves += [Flip(axis, rng.integers(0, 2, n)) for axis in (1, 0, 1)[: batch % 4]]
        assert_same_bits(arrays, [Moved(*moves), *values[batch % len(values)]], out)


@needs_kernel
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_windows_of_any_place_are_torchs_bits(channels):
    """Partly or wholly outside, with one fill or one for each channel; and without a window."""
    rng = np.random.default_rng(channels)
    values = [[], [TO_FLOAT], [T.Normalize([0.5] * channels, [0.2] * channels)]]
    for batch in range(40):
        n = 12
        sizes = draw_sizes(rng, n, 1, 40)
        start, out = rng.integers(-45, 45, (n, 2)), draw_sizes(rng, n, 1, 50)
        fill = [0, 200, list(range(10, 10 + channels))][batch % 3]
        moves = [Crop(start, out, fill)] if batch % 5 else []
        moves += [Flip(axis, rng.integers(0, 2, n)) for axis in (1, 0)[: batch % 3]]
        steps = [Moved(*moves), *values[batch % 4 % 3]] if moves else values[1 + batch % 2]
        assert_same_bits(draw_images(rng, sizes, channels), steps, out if batch % 5 else sizes)


@needs_kernel
@pytest.mark.parametrize("channels", [3, 1])
def test_large_images(channels):
    rng = np.random.default_rng(7)
    sizes = np.array([[1500, 40], [30, 1400], [600, 900]])
    arrays = draw_images(rng, sizes, channels)
    for full in ([3, 400], [256, 256], [700, 5]):
        out = np.array([full] * 3)
        for mode in ("bilinear", "bicubic"):
            assert_same_bits(arrays, [Moved(Resize(out.astype(np.float32), mode), Flip(1, np.array([0, 1, 1])))], out)


@needs_kernel
@pytest.mark.processes
def test_an_image_is_not_read_past_its_end():
    """Pages after and before the images can't be read: what reads there ends the process."""
    script = """
        import ctypes, mmap, sys
        import numpy as np
        sys.path.insert(0, "tests")
        from test_native import Crop, Flip, Moved, Resize, T, make

        libc, page = ctypes.CDLL(None), mmap.PAGESIZE
        rng = np.random.default_rng(0)
        for k in range(120):
            height, width = rng.integers(1, 60, 2)
            channels = 3 if k % 4 < 2 else 1
            size = height * width * channels
            memory = np.frombuffer(mmap.mmap(-1, 5 * page), np.uint8)
            assert libc.mprotect(ctypes.c_void_p(memory.ctypes.data + 4 * page), page, 0) == 0
            assert libc.mprotect(ctypes.c_void_p(memory.ctypes.data), page, 0) == 0
            at = 4 * page - size if k % 2 or size > 3 * page else page
            image = memory[at : at + size].reshape(height, width, channels)
            out, values = rng.integers(1, 60, (1, 2)), T.Normalize([0.5], [0.3])
            for move in (Resize(out.astype(np.float32)), Crop(rng.integers(-20, 20, (1, 2)), out)):
                _, used = make([image], [Moved(move, Flip(1, np.array([k % 3]))), values], out)
                assert used
        print("read within")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=200)
    assert done.stdout.strip() == "read within", (done.returncode, done.stderr[-500:])


class Corner(Mover):
    """A mover whose window starts at one place for all."""

    def make_params(self, rand, sizes):
        return {"shape": np.full((len(sizes), 2), 4)}, np.full((len(sizes), 2), 4)

    def moves(self, params):
        return [Crop((1, 2), params["shape"]), Flip(1, True)]


def test_values_that_all_samples_share():
    arrays = draw_images(np.random.default_rng(0), np.array([[9, 9], [8, 12]]))
    params, sizes = Corner().make_params(None, np.zeros((2, 2)))
    batch = images.make_images(
        arrays, images.Target([(Corner(), params)], sizes, (4, 4), 0), Pool(), lambda run, n: run(range(n))
    )
    for row, image in zip(batch.numpy(), arrays, strict=True):
        assert np.array_equal(row, image[1:5, 2:6][:, ::-1])


def other_cases():
    rng = np.random.default_rng(0)
    sizes, start = np.array([[20, 30]] * 2), np.array([[0, 0]] * 2)
    plain, half = draw_images(rng, sizes), np.array([[10.0, 15.0]] * 2, np.float32)
    resize, flip = Resize(half), Flip(1, np.array([1, 0]))
    yield "float images", [image.astype(np.float32) for image in plain], [Moved(flip)]
    yield "four channels resized", [image[..., [0, 1, 2, 0]] for image in plain], [Moved(resize)]
    yield "every other pixel", [image[:, ::2] for image in plain], [Moved(flip)]
    yield "no antialias", plain, [Moved(Resize(half, antialias=None))]
    yield "nearest", plain, [Moved(Resize(half, "nearest"))]
    yield "resized twice", plain, [Moved(resize, Resize(half + 3))]
    yield "a window after a flip", plain, [Moved(flip, Crop(start, sizes // 2))]
    yield "a window that is filled, resized", plain, [Moved(Crop(start - 2, sizes), resize)]
    yield "a window of a window, resized", plain, [Moved(Crop(start, sizes // 2), Crop(start, sizes // 4), resize)]
    yield "padded by its edge", plain, [Moved(Crop(start - 2, sizes, 0, "edge"))]
    yield "a window of a filled one", plain, [Moved(Crop(start - 2, sizes + 4), Crop(start, sizes))]
    yield "normalised twice", plain, [NORMALIZE, NORMALIZE]
    yield "float16", plain, [T.ToDtype(torch.float16)]
    yield "moved after values", plain, [TO_FLOAT, Moved(flip)]


@needs_kernel
@pytest.mark.parametrize(("arrays", "steps"), [pytest.param(*case[1:], id=case[0]) for case in other_cases()])
def test_what_the_kernel_can_not_do_is_left_to_torch(arrays, steps):
    assert pictures.make_pictures(arrays, [(step, {}) for step in steps]) is None


def loader(**options):
    rng = np.random.default_rng(0)
    data = td.InMemoryDataset(image=rng.integers(0, 256, (40, 16, 16, 3), dtype=np.uint8), label=np.arange(40))
    chain = T.Compose([T.RandomCrop(16, padding=4), T.RandomHorizontalFlip(), TO_FLOAT, NORMALIZE])
    return td.DataLoader(data, batch_size=8, shuffle=True, transform=chain, **options)


@needs_kernel
@pytest.mark.parametrize("threads", [0, 1, 3])
def test_a_loader_makes_the_same_batches_without_it(monkeypatch, threads):
    calls = Counter()
    write = native.Kernel.write

    def counted(self, pictures, part, *rest):
        calls["write"] += 1
        write(self, pictures, part, *rest)

    monkeypatch.setattr(native.Kernel, "write", counted)
    options = {"num_threads": threads} if threads else {"prefetch_factor": 0}
    with_it = list(loader(**options))
    assert 5 <= calls["write"] <= 5 * max(threads, os.cpu_count() or 1)  # one for each thread and batch
    calls.clear()
    monkeypatch.setattr(pictures, "kernel", lambda: None)
    for (image, label), (image_2, label_2) in zip(with_it, loader(**options), strict=True):
        assert torch.equal(image, image_2) and torch.equal(label, label_2)
    assert not calls


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """A cache folder of one's own, and nothing loaded yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("TORCHDALI_NATIVE", raising=False)
    native.kernel.cache_clear()
    library.library.cache_clear()
    yield tmp_path / "torchdali"
    native.kernel.cache_clear()
    library.library.cache_clear()


def test_it_is_switched_off(fresh, monkeypatch):
    monkeypatch.setenv("TORCHDALI_NATIVE", "0")
    assert native.kernel() is None and not fresh.exists()


@needs_kernel
def test_it_is_compiled_once(fresh, monkeypatch):
    if (library.FOLDER / library.BUILT).exists():
        pytest.skip("this package was built with it")
    assert native.kernel() is not None
    (compiled,) = fresh.iterdir()
    native.kernel.cache_clear()
    library.library.cache_clear()
    monkeypatch.setattr(library, "compile_library", lambda path: pytest.fail("compiled again"))
    assert native.kernel() is not None and list(fresh.iterdir()) == [compiled]


def test_another_source_is_compiled_anew(fresh, monkeypatch, tmp_path):
    paths = {library._cached()}
    for k, source in enumerate(library.SOURCES):
        changed = tmp_path / source.name
        changed.write_text(source.read_text() + "// changed\n")
        monkeypatch.setattr(library, "SOURCES", (*build.SOURCES[:k], changed, *build.SOURCES[k + 1 :]))
        paths.add(library._cached())
    assert len(paths) == 1 + len(build.SOURCES) == 8


def test_without_a_compiler_there_is_none(fresh, monkeypatch):
    monkeypatch.setattr(build, "compiler", lambda: None)
    monkeypatch.setattr(library, "BUILT", "not there")
    assert native.kernel() is None
    assert next(iter(loader()))[0].shape == (8, 3, 16, 16)


@needs_kernel
def test_a_folder_that_can_not_be_written_is_no_error(fresh, monkeypatch):
    fresh.parent.joinpath("torchdali").write_text("a file")
    monkeypatch.setattr(library, "BUILT", "not there")
    assert native.kernel() is None


@needs_kernel
def test_a_library_that_can_not_be_loaded_is_no_error(fresh, monkeypatch):
    fresh.mkdir()
    monkeypatch.setattr(library, "BUILT", "not there")
    library._cached().write_bytes(b"no library")
    assert native.kernel() is None


CHECKSUMS = {
    "native_cases.c": "dcbb60f70ba4e19c",
    "native_color_cases.c": "1e834a0a7b2c64b6",
    "native_sample_cases.c": "d1541b9636dca73d",
    "native_blur_cases.c": "57083de3408077ae",
}
"""Of what each makes of thousands of random images, on every CPU whose vectors the kernels know."""

CROSS_COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")

needs_emulator = pytest.mark.skipif(
    EMULATOR is None or shutil.which(CROSS_COMPILER) is None,
    reason="needs ARM's compiler and emulator: apt-get install gcc-aarch64-linux-gnu qemu-user-static",
)
CPUS = [pytest.param("this", marks=needs_kernel), pytest.param("aarch64", marks=needs_emulator)]


def run_cases(cases, cpu, folder, *flags):
    """Compile `native_cases.c` or another with flags and run it, on this CPU or an emulated one; gives its output."""
    source, program = Path(__file__).with_name(cases), folder / "cases"
    compiler = build.compiler() if cpu == "this" else CROSS_COMPILER
    common = [flag for flag in build.FLAGS if flag not in ("-shared", "-O3")]
    line = [compiler, *common, *flags, "-o", program, source, "-lm"]
    compiled = subprocess.run(line, capture_output=True, text=True, timeout=200)
    if "cannot find" in compiled.stderr:
        pytest.skip("this compiler comes without sanitizers")
    assert not compiled.returncode and not compiled.stderr, compiled.stderr
    emulator = [] if cpu == "this" else [EMULATOR, "-L", "/usr/aarch64-linux-gnu"]
    # Leaks are looked for by a debugger's means, which an emulator does not have.
    options = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"} if emulator else None
    done = subprocess.run([*emulator, program], capture_output=True, text=True, timeout=200, env=options)
    assert not done.returncode and not done.stderr, done.stderr
    return done.stdout.strip()


@pytest.mark.processes
@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("cases", CHECKSUMS)
def test_the_bits_are_the_same_on_every_cpu(cases, cpu, tmp_path):
    assert run_cases(cases, cpu, tmp_path, "-O3") == CHECKSUMS[cases]


@pytest.mark.slow
@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("cases", CHECKSUMS)
def test_sanitizers_find_nothing(cases, cpu, tmp_path):
    """AddressSanitizer and UndefinedBehaviorSanitizer, over thousands of random images."""
    sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    assert run_cases(cases, cpu, tmp_path, "-O1", "-g", *sanitizers) == CHECKSUMS[cases]
