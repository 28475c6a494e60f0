"""Compare torchdali with DALI's own modes on one GPU: images per second, and a training loop's waits.  See gpu.md.

Never yet run on a GPU.  Work per image: read a JPEG of 500 x 375 -> decode -> RandomResizedCrop 224 (antialiased) ->
horizontal flip -> normalise -> float32 batch of 256 with labels, channels last, on the GPU.

Each contender is a process of its own, so that a crash harms no other.  All start at once and warm up; then they are
timed one at a time, while the others rest, in rounds that each start with another contender.  The output is one line of
JSON per measurement, and tables at the end.

    python benchmarks/gpu_bench.py                                    # about 90 seconds
    python benchmarks/gpu_bench.py --hw-loads 0,0.5,0.65,0.8,0.9,1    # DALI's pipeline with other shares of the decoder
    python benchmarks/gpu_bench.py --device cpu --batch-size 32 --images 96 --rounds 1 --seconds 0.5    # a rehearsal
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).parent.parent
WIDTH, HEIGHT, QUALITY, GRAIN = 500, 375, 90, 7.0
CROP = 224
AREA, ASPECT = (0.08, 1.0), (3 / 4, 4 / 3)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SEED = 0
NUM_THREADS = len(os.sched_getaffinity(0))
SKIP = 8  # batches before a window's clock starts: they were made ahead while the contender rested
BASELINE = "dali-pipeline"
OPTIONAL = {"dali-pipeline-roi"}  # its decoder may crash: nvImageCodec#55
Batches = Iterator[tuple[torch.Tensor, torch.Tensor]]


# Data


def ensure_images(root: Path, number: int) -> dict[str, float]:
    """Write the images at `root` unless they are there, read them once into the page cache, and describe them."""
    root = root / f"{number}-q{QUALITY}-g{GRAIN:g}"
    if not root.exists():
        root.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=root.parent))
        with ThreadPoolExecutor(NUM_THREADS) as pool:
            list(pool.map(partial(_write_image, scratch, _sources()), range(number)))
        try:
            scratch.replace(root)
        except OSError:  # another process was faster
            shutil.rmtree(scratch)
    sizes = [len(path.read_bytes()) for path in root.rglob("*.jpg")]
    return {"images": len(sizes), "mean_bytes": round(sum(sizes) / len(sizes)), "root": str(root)}  # type: ignore[dict-item]


def _sources() -> list[Any]:
    from PIL import Image

    names = ("flower.jpg", "flower2.jpg", "app13-multiple.jpg")
    return [Image.open(ROOT / "tests" / "data" / "photos" / name).convert("RGB") for name in names]


def _write_image(root: Path, sources: list[Any], index: int) -> None:
    """Write a window of a photograph, with grain, so that it has as many bytes as a photograph of its size."""
    from PIL import Image

    rng = np.random.default_rng([SEED, index])
    source = sources[index % len(sources)]
    scale = min(source.width / WIDTH, source.height / HEIGHT) * rng.uniform(0.6, 1.0)
    left, top = rng.uniform(0, source.width - WIDTH * scale), rng.uniform(0, source.height - HEIGHT * scale)
    window = (left, top, left + WIDTH * scale, top + HEIGHT * scale)
    image = np.asarray(source.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC, box=window), np.float32)
    image = image + rng.normal(0, GRAIN, (HEIGHT, WIDTH, 1)).astype(np.float32)
    folder = root / f"class_{index % 10}"
    folder.mkdir(exist_ok=True)
    file = io.BytesIO()
    Image.fromarray(np.clip(image, 0, 255).astype(np.uint8)).save(file, "JPEG", quality=QUALITY)
    (folder / f"{index:05d}.jpg").write_bytes(file.getvalue())


# Contenders: each gives batches for ever


def torchdali(
    args: argparse.Namespace, notes: dict[str, float], engine: str, prefetch: int, stream: Any = "private"
) -> Batches:
    """Run torchdali; a pass is so long that its beginning does not count, and `notes` holds the beginning's time."""
    import torchdali as td
    from torchdali import transforms as T

    folder = td.ImageFolder(args.root)
    times = -(-(1 << 20) // len(folder))
    loader = td.DataLoader(
        td.FileDataset(folder.paths * times, folder.targets * times),
        batch_size=args.batch_size,
        shuffle=True,
        seed=SEED,
        device=args.device,
        drop_last=True,
        engine=engine,
        prefetch_factor=prefetch,
        stream=stream,
        transform=T.Compose([T.RandomResizedCrop(CROP), T.RandomHorizontalFlip(), T.Normalize(mean=MEAN, std=STD)]),
    )
    for _ in loader:  # the first pass fills the caches that the second one uses
        break
    begin = time.perf_counter()
    while True:
        for images, labels in loader:
            if "new_pass_s" not in notes:
                synchronize(args.device)
                notes["new_pass_s"] = time.perf_counter() - begin
            yield images, labels


def dali_pipeline(
    args: argparse.Namespace, _: dict[str, float], region: bool, load: float | None, affine: bool = True
) -> Batches:
    """Run DALI's pipeline mode with the dynamic executor: decode whole images and crop, or decode the crop only."""
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    gpu = args.device == "cuda"
    options: dict[str, Any] = {"device": "mixed", "affine": affine} if gpu else {"device": "cpu"}
    if load is not None and gpu:
        options["hw_decoder_load"] = load

    @pipeline_def(
        batch_size=args.batch_size, num_threads=NUM_THREADS, seed=SEED, exec_dynamic=True, prefetch_queue_depth=2
    )
    def training() -> Any:
        encoded, labels = fn.readers.file(file_root=args.root, random_shuffle=True, name="reader")
        how = {"random_area": AREA, "random_aspect_ratio": ASPECT, "num_attempts": 10}
        size = {"size": [CROP, CROP], "interp_type": types.INTERP_LINEAR, "antialias": True}
        if region:
            images = fn.resize(fn.decoders.image_random_crop(encoded, **how, **options), **size)
        else:
            images = fn.random_resized_crop(fn.decoders.image(encoded, **options), **how, **size)
        images = fn.crop_mirror_normalize(
            images,
            dtype=types.FLOAT,
            output_layout="HWC",
            mean=[255 * value for value in MEAN],
            std=[255 * value for value in STD],
            mirror=fn.random.coin_flip(),
        )
        return images, labels.gpu() if gpu else labels

    loader = DALIGenericIterator(training(device_id=0 if gpu else None), ["images", "labels"], size=-1)
    for (batch,) in loader:
        yield batch["images"].permute(0, 3, 1, 2), batch["labels"]


def ndd_eager(args: argparse.Namespace, _: dict[str, float]) -> Batches:
    """Run DALI's dynamic mode, the operators one after the other, as in its guide."""
    import nvidia.dali.experimental.dynamic as ndd
    from nvidia.dali import types

    device = "gpu" if args.device == "cuda" else "cpu"
    ndd.random.set_seed(SEED)
    reader = ndd.readers.File(file_root=args.root, random_shuffle=True)
    with ndd.EvalContext(num_threads=NUM_THREADS):
        while True:
            for encoded, labels in reader.next_epoch(batch_size=args.batch_size):
                images = ndd.decoders.image(encoded, device=device)
                images = ndd.random_resized_crop(
                    images,
                    size=[CROP, CROP],
                    random_area=AREA,
                    random_aspect_ratio=ASPECT,
                    num_attempts=10,
                    interp_type=types.INTERP_LINEAR,
                    antialias=True,
                )
                images = ndd.crop_mirror_normalize(
                    images,
                    dtype=ndd.float32,
                    output_layout="HWC",
                    mean=[255 * value for value in MEAN],
                    std=[255 * value for value in STD],
                    mirror=ndd.random.coin_flip(batch_size=len(encoded.shape)),
                )
                labels = labels.gpu() if device == "gpu" else labels
                yield images.torch().permute(0, 3, 1, 2), labels.torch()


CONTENDERS: dict[str, Callable[..., Batches]] = {
    "torchdali-auto": partial(torchdali, engine="auto", prefetch=2),
    "torchdali-pipeline": partial(torchdali, engine="pipeline", prefetch=2),
    "torchdali-pipeline-p0": partial(torchdali, engine="pipeline", prefetch=0),
    "torchdali-eager": partial(torchdali, engine="eager", prefetch=2),
    "torchdali-eager-p0": partial(torchdali, engine="eager", prefetch=0),
    BASELINE: partial(dali_pipeline, region=False, load=None),
    "dali-pipeline-roi": partial(dali_pipeline, region=True, load=None),
    "ndd-eager": ndd_eager,
}
SWEPT: dict[str, Callable[..., Batches]] = {
    "torchdali-pipeline-p4": partial(torchdali, engine="pipeline", prefetch=4),
    "torchdali-current": partial(torchdali, engine="pipeline", prefetch=2, stream="current"),
    "dali-pipeline-free": partial(dali_pipeline, region=False, load=None, affine=False),
}
"""Those that run only where they are named."""
STEPPING = ("torchdali-auto", "torchdali-eager", BASELINE)  # these are also measured beside a training step


def contender(name: str) -> Callable[..., Batches]:
    """Find a contender by its name; `dali-pipeline@0.5` is DALI's pipeline with that `hw_decoder_load`."""
    base, _, load = name.partition("@")
    return partial(dali_pipeline, region=base.endswith("roi"), load=float(load)) if load else (CONTENDERS | SWEPT)[base]


# A contender's process


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def check(images: torch.Tensor, labels: torch.Tensor, device: str) -> None:
    """Raise unless the batch is what was asked for."""
    if tuple(images.shape) != (len(labels), 3, CROP, CROP) or images.dtype != torch.float32:
        raise ValueError(f"images must be float32 [N, 3, {CROP}, {CROP}], got {images.dtype} {tuple(images.shape)}")
    if images.device.type != device or labels.device.type != device:
        raise ValueError(f"a batch must be on {device}, got {images.device} and {labels.device}")
    low, high, spread = images.min().item(), images.max().item(), images.std().item()
    if not (-2.2 < low < -0.5 and 0.5 < high < 2.7 and 0.3 < spread < 2):
        raise ValueError(f"images must be normalised, got {low:.2f} to {high:.2f}, deviation {spread:.2f}")


def measure_rate(batches: Batches, device: str, seconds: float) -> dict[str, float]:
    """Pull batches as fast as they come."""
    for _ in range(SKIP):
        next(batches)
    synchronize(device)
    images, cpu, begin = 0, time.process_time(), time.perf_counter()
    while time.perf_counter() - begin < seconds:
        images += len(next(batches)[1])
    synchronize(device)
    elapsed = time.perf_counter() - begin
    cpu_ms = 1000 * (time.process_time() - cpu) / images
    return {"images": images, "seconds": elapsed, "images_per_second": images / elapsed, "cpu_ms_per_image": cpu_ms}


def make_step(device: str, milliseconds: float) -> Callable[[], None]:
    """Make a fake training step: large products that keep the whole GPU busy for the given time."""
    if device != "cuda":
        return lambda: time.sleep(milliseconds / 1000)
    matrix = torch.randn(4096, 4096, device=device, dtype=torch.bfloat16)

    def run(n: int) -> None:
        for _ in range(n):
            torch.mm(matrix, matrix)

    run(50)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    run(200)
    torch.cuda.synchronize()
    one = (time.perf_counter() - begin) / 200
    return partial(run, max(1, round(milliseconds / 1000 / one)))


def measure_wait(batches: Batches, device: str, seconds: float, step_ms: float) -> dict[str, float]:
    """Measure how long `next` takes in a training loop whose host is at most one step ahead of the GPU."""
    step = make_step(device, step_ms)
    for _ in range(SKIP):
        next(batches)
    synchronize(device)
    waits: list[float] = []
    running: deque[Any] = deque()
    begin = time.perf_counter()
    while (at := time.perf_counter()) - begin < seconds:
        images, _ = next(batches)
        waits.append(time.perf_counter() - at)
        images.mean()
        step()
        if device == "cuda":
            event = torch.cuda.Event()
            event.record()
            running.append(event)
            if len(running) > 1:
                running.popleft().synchronize()
    synchronize(device)
    elapsed = time.perf_counter() - begin
    return {
        "step_ms": step_ms,
        "steps": len(waits),
        "wait_ms": 1000 * sum(waits) / len(waits),
        "wait_ms_max": 1000 * max(waits),
        "whole_step_ms": 1000 * elapsed / len(waits),
    }


def serve(name: str, args: argparse.Namespace) -> None:
    """Answer the parent's commands, each with a line of JSON."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # so that nothing that libraries print is taken for an answer
    notes: dict[str, float] = {}
    begin = time.perf_counter()
    batches = contender(name)(args, notes)
    first = next(batches)
    synchronize(args.device)
    notes["first_batch_s"] = time.perf_counter() - begin
    check(*first, args.device)
    for _ in range(SKIP):
        first = next(batches)
    check(*first, args.device)
    del first
    notes.setdefault("new_pass_s", float("nan"))
    answers.write(json.dumps(notes) + "\n")
    for line in sys.stdin:
        command = json.loads(line)
        measure = measure_wait if "step_ms" in command else measure_rate
        answers.write(json.dumps(measure(batches, args.device, **command)) + "\n")
    os._exit(0)  # some contenders crash at their end, which does not matter here


class Child:
    """A contender's process, from the parent's side."""

    def __init__(self, name: str, args: argparse.Namespace) -> None:
        self.name, self.failure = name, ""
        command = [sys.executable, __file__, "--serve", name, "--root", args.root, "--device", args.device]
        command += ["--batch-size", str(args.batch_size)]
        self._errors = tempfile.TemporaryFile("w+")
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
            env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def ask(self, command: dict[str, float] | None, timeout: float) -> dict[str, float] | None:
        """Wait for the answer to a command, or to the start; None if none comes, and `failure` says why."""
        if self.failure:
            return None
        try:
            if command is not None:
                assert self._process.stdin is not None
                self._process.stdin.write(json.dumps(command) + "\n")
                self._process.stdin.flush()
            line = self._lines.get(timeout=timeout)
        except queue.Empty:
            self.failure = f"no answer within {timeout:g} s"
        except OSError:
            line = ""
        if not self.failure and line:
            answer: dict[str, float] = json.loads(line)
            return answer
        self.failure = self.failure or self._why()
        self.end()
        return None

    def _why(self) -> str:
        code = self._process.wait(10)
        self._errors.seek(0)
        lines = [text.strip() for text in self._errors.read().splitlines() if text.strip()]
        return f"exit code {code}: {lines[-1][:90] if lines else 'no message'}"

    def end(self) -> None:
        self._process.kill()
        self._process.wait(20)


# The parent


def environment(args: argparse.Namespace) -> dict[str, Any]:
    """Describe hardware and versions, without which a result is worth nothing."""
    found: dict[str, Any] = {"date": time.strftime("%Y-%m-%d %H:%M"), "cores": NUM_THREADS}
    if args.device == "cuda":
        found["card"] = torch.cuda.get_device_name(0)
        try:
            query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
            found["driver"] = subprocess.run(query, capture_output=True, text=True, timeout=20).stdout.split()[0]
        except (OSError, subprocess.SubprocessError, IndexError):
            found["driver"] = "unknown"
    found |= {"python": platform.python_version(), "torch": torch.__version__}
    for each in metadata.distributions():
        if (
            (name := each.metadata["Name"] or "")
            .lower()
            .startswith(("nvidia-dali", "nvidia-nvimgcodec", "nvidia-nvjpeg"))
        ):
            found[name] = each.version
    return found


def spread(values: list[float], form: str) -> str:
    return f"{median(values):{form}} ({min(values):{form}}-{max(values):{form}})" if values else "-"


def print_tables(
    children: list[Child],
    starts: dict[str, dict[str, float]],
    rates: dict[str, list[dict[str, float] | None]],
    waits: dict[str, list[dict[str, float]]],
) -> None:
    print(
        "\n| contender | img/s: median (min-max) | ratio to dali-pipeline | CPU ms/img | first batch s | new pass s |"
    )
    print("|---|---|---|---|---|---|")
    for child in children:
        name, rounds = child.name, rates[child.name]
        good = [each for each in rounds if each]
        if not good:
            print(f"| {name} | failed: {child.failure} | | | | |")
            continue
        pairs = zip(rounds, rates.get(BASELINE, []), strict=False)
        ratios = [mine["images_per_second"] / base["images_per_second"] for mine, base in pairs if mine and base]
        cells = [
            name,
            spread([each["images_per_second"] for each in good], ".0f"),
            spread(ratios, ".2f"),
            f"{median(each['cpu_ms_per_image'] for each in good):.3f}",
            f"{starts[name]['first_batch_s']:.2f}",
            f"{starts[name]['new_pass_s']:.3f}".replace("nan", "-"),
        ]
        print(f"| {' | '.join(cells)} |")
    if any(waits.values()):
        print("\n| contender | training step ms | waits for a batch, ms: mean (max) | whole step ms |")
        print("|---|---|---|---|")
        for name, found in waits.items():
            for each in found:
                wait = f"{each['wait_ms']:.2f} ({each['wait_ms_max']:.1f})"
                print(f"| {name} | {each['step_ms']:g} | {wait} | {each['whole_step_ms']:.1f} |")


def run(args: argparse.Namespace) -> int:
    data = ensure_images(args.data, args.images)
    args.root = data["root"]
    print(json.dumps({**environment(args), **data, "batch_size": args.batch_size}), flush=True)
    names = args.contenders.split(",") + [f"{BASELINE}@{load}" for load in args.hw_loads.split(",") if load]
    children = [Child(name, args) for name in names]
    starts: dict[str, dict[str, float]] = {}
    rates: dict[str, list[dict[str, float] | None]] = {name: [] for name in names}
    waits: dict[str, list[dict[str, float]]] = {name: [] for name in names if name in STEPPING}
    try:
        deadline = time.monotonic() + args.timeout
        for child in children:
            started = child.ask(None, max(1.0, deadline - time.monotonic()))
            if started:
                starts[child.name] = started
        for number in range(args.rounds):
            at = number % len(children)
            for child in children[at:] + children[:at]:
                answer = child.ask({"seconds": args.seconds}, args.timeout)
                rates[child.name].append(answer)
                result = answer or {"failed": child.failure}
                print(json.dumps({"round": number, "contender": child.name, **result}), flush=True)
        for step in [float(text) for text in args.steps.split(",") if text]:
            for child in children:
                if child.name not in waits:
                    continue
                answer = child.ask({"seconds": args.seconds, "step_ms": step}, args.timeout)
                if answer:
                    waits[child.name].append(answer)
                    print(json.dumps({"contender": child.name, **answer}), flush=True)
    finally:
        for child in children:
            child.end()
    print_tables(children, starts, rates, waits)
    return 1 if any(child.failure for child in children if child.name not in OPTIONAL) else 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    data = Path(tempfile.gettempdir()) / "torchdali-gpu-bench"
    parser.add_argument("--data", type=Path, default=data, help="the folder of images; made if it is missing")
    parser.add_argument("--images", type=int, default=2048)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--contenders", default=",".join(CONTENDERS), help=f"of: {', '.join((*CONTENDERS, *SWEPT))}")
    parser.add_argument("--hw-loads", default="", help="also DALI's pipeline with these values of hw_decoder_load")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5, help="the least duration of each measurement")
    parser.add_argument("--steps", default="30,90", help="milliseconds of the fake training steps; empty: none")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds in which a contender must answer")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--root", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if unknown := set(args.contenders.split(",")) - {*CONTENDERS, *SWEPT}:
        parser.error(f"--contenders must be of {', '.join((*CONTENDERS, *SWEPT))}, got {', '.join(sorted(unknown))}")
    return args


def main() -> int:
    args = parse_arguments()
    if args.device == "cuda" and not torch.cuda.is_available():
        print("gpu_bench: torch sees no NVIDIA GPU here", file=sys.stderr)
        return 1
    if args.serve:
        serve(args.serve, args)
    return run(args)


if __name__ == "__main__":
    sys.exit(main())
