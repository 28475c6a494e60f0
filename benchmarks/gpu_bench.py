"""Compare torchdali with DALI's own modes on one GPU: images per second, and a training loop's waits.  See gpu.md.

Never yet run on a GPU.  Work per image: read a JPEG of 500 x 375 -> decode -> RandomResizedCrop 224 (antialiased) ->
horizontal flip -> normalise -> float32 batch of 256 with labels, channels last, on the GPU.

Each contender is a process of its own, so that a crash harms no other.  All start at once and warm up; then they are
timed one at a time, while the others rest, in rounds that each start with another contender.  The output is one line of
JSON per measurement, and tables at the end.

    python benchmarks/gpu_bench.py                                    # about 90 seconds
    python benchmarks/gpu_bench.py --hw-loads 0,0.5,0.65,0.8,0.9,1    # DALI's pipeline with other shares of the decoder
    python benchmarks/gpu_bench.py --device cpu --batch-size 8 --images 96 --rounds 1 --seconds 0.5 --model ""
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

import torch
from _gpu_contenders import (
    BASELINE,
    CONTENDERS,
    CROP,
    DECODER,
    NUM_THREADS,
    OPTIONAL,
    SWEPT,
    Batches,
    contender,
    synchronize,
)  # fmt: skip
from _gpu_images import ensure_images

ROOT = Path(__file__).parent.parent
SKIP = 8  # batches before a window's clock starts: they were made ahead while the contender rested
STEPPING = ("torchdali-auto", "torchdali-eager", BASELINE)  # these are also measured beside a training


# A contender's process


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


def make_training(
    device: str, model: str, batch_size: int
) -> tuple[Callable[[torch.Tensor, torch.Tensor], None], float]:
    """Make the training step of one of torchvision's models, in bfloat16 and channels last, and time it alone.

    Returns:
        the step of a batch, and the milliseconds that it takes with a batch that is there.
    """
    from torchvision.models import get_model

    network = get_model(model, num_classes=10).to(device, memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)

    def step(images: torch.Tensor, labels: torch.Tensor) -> None:
        with torch.autocast(device, torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(network(images), labels.long().flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    images = torch.randn(batch_size, 3, CROP, CROP, device=device).contiguous(memory_format=torch.channels_last)
    labels = torch.zeros(batch_size, dtype=torch.int64, device=device)
    count = 10 if device == "cuda" else 1
    for _ in range(count):  # chooses kernels
        step(images, labels)
    synchronize(device)
    begin = time.perf_counter()
    for _ in range(count):
        step(images, labels)
    synchronize(device)
    return step, 1000 * (time.perf_counter() - begin) / count


def measure_wait(
    batches: Batches, device: str, seconds: float, step_ms: float = 0.0, model: str = ""
) -> dict[str, Any]:
    """Measure how long `next` takes in a training loop whose host is at most one step ahead of the GPU.

    Args:
        batches: of the contender.
        device: "cuda" or "cpu".
        seconds: the least duration.
        step_ms: of a fake training step; not for a `model`.
        model: one of torchvision's, which is trained.
    """
    step: Callable[..., None]
    if model:
        step, step_ms = make_training(device, model, len(next(batches)[0]))
    else:
        busy = make_step(device, step_ms)

        def step(images: torch.Tensor, _: torch.Tensor) -> None:
            images.mean()
            busy()

    for _ in range(SKIP):
        next(batches)
    synchronize(device)
    waits: list[float] = []
    running: deque[Any] = deque()
    begin = time.perf_counter()
    while (at := time.perf_counter()) - begin < seconds:
        images, labels = next(batches)
        waits.append(time.perf_counter() - at)
        step(images, labels)
        if device == "cuda":
            event = torch.cuda.Event()
            event.record()
            running.append(event)
            if len(running) > 1:
                running.popleft().synchronize()
    synchronize(device)
    elapsed = time.perf_counter() - begin
    if device == "cuda":
        del step
        torch.cuda.empty_cache()  # the card is shared with the other contenders
    return {
        "training": model or "products",
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
    if name != DECODER:
        check(*first, args.device)
    for _ in range(SKIP):
        first = next(batches)
    if name != DECODER:
        check(*first, args.device)
    del first
    notes.setdefault("new_pass_s", float("nan"))
    answers.write(json.dumps(notes) + "\n")
    for line in sys.stdin:
        command = json.loads(line)
        measure = measure_wait if "step_ms" in command or "model" in command else measure_rate
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

    def ask(self, command: dict[str, Any] | None, timeout: float) -> dict[str, Any] | None:
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
            answer: dict[str, Any] = json.loads(line)
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
    waits: dict[str, list[dict[str, Any]]],
) -> None:
    print(
        "\n| contender | img/s: median (min-max) | ratio to dali-pipeline | CPU ms/img | first batch s | new pass s |"
    )
    print("|---|---|---|---|---|---|")
    for child in children:
        name, rounds = child.name, rates[child.name]
        good = [each for each in rounds if each]
        if not good:
            print(f"| {name} | {f'failed: {child.failure}' if child.failure else 'not measured'} | | | | |")
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
        print("\n| contender | training | its step alone, ms | waits for a batch, ms: mean (max) | whole step ms |")
        print("|---|---|---|---|---|")
        for name, found in waits.items():
            for each in found:
                wait = f"{each['wait_ms']:.2f} ({each['wait_ms_max']:.1f})"
                step = f"{each['training']} | {each['step_ms']:.1f}"
                print(f"| {name} | {step} | {wait} | {each['whole_step_ms']:.1f} |")


def run(args: argparse.Namespace) -> int:
    data = ensure_images(args.data, args.images)
    args.root = data["root"]
    print(json.dumps({**environment(args), **data, "batch_size": args.batch_size}), flush=True)
    names = args.contenders.split(",") + [f"{BASELINE}@{load}" for load in args.hw_loads.split(",") if load]
    children = [Child(name, args) for name in names]
    starts: dict[str, dict[str, float]] = {}
    rates: dict[str, list[dict[str, float] | None]] = {name: [] for name in names}
    waits: dict[str, list[dict[str, Any]]] = {name: [] for name in names if name in STEPPING}
    interrupted = False
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
        beside: list[dict[str, Any]] = [{"step_ms": float(text)} for text in args.steps.split(",") if text]
        beside += [{"model": args.model}] if args.model else []
        for command in beside:
            for child in children:
                if child.name not in waits:
                    continue
                answer = child.ask({"seconds": args.seconds, **command}, args.timeout)
                if answer:
                    waits[child.name].append(answer)
                    print(json.dumps({"contender": child.name, **answer}), flush=True)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        for child in children:
            child.end()
    print_tables(children, starts, rates, waits)
    return 1 if interrupted or any(child.failure for child in children if child.name not in OPTIONAL) else 0


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
    parser.add_argument("--model", default="resnet50", help="torchvision's model that is trained beside; empty: none")
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
