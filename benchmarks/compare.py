"""Compare torchdali with its peers on the same training input, on the CPU, in interleaved rounds.

Work per image: read a JPEG -> decode -> RandomResizedCrop 224 (area 0.08-1, bilinear, antialiased) -> horizontal flip
(p = 0.5) -> normalise -> float32 batch of 64 with labels, shuffled. Each measurement is a process of its own; a round
measures every peer once, and each round starts with another peer, so that drift of the machine hits all of them alike.
Ratios are taken within a round: compare them before the rates.

    python benchmarks/compare.py                               # five rounds, a few minutes
    python benchmarks/compare.py --rounds 1 --seconds 1        # a smoke test
    python benchmarks/compare.py --peers torchdali,dali-pipeline --json out.json
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from subprocess import PIPE

import torch
from _work import AREA, ASPECT, BATCH_SIZE, CROP, MEAN, SEED, STD, Batch, Measurement, ensure_photos, machine, measure

BASELINE = "dali-pipeline"
NUM_THREADS = len(os.sched_getaffinity(0))


def torchdali(root: Path, engine: str) -> Iterator[Batch]:
    """Run torchdali with its defaults, and take a checkpoint after every batch."""
    import torchdali as td
    from torchdali import transforms as T

    loader = td.DataLoader(
        td.ImageFolder(root),
        batch_size=BATCH_SIZE,
        shuffle=True,
        seed=SEED,
        device="cpu",
        drop_last=True,
        engine=engine,
        transform=T.Compose([T.RandomResizedCrop(CROP), T.RandomHorizontalFlip(), T.Normalize(mean=MEAN, std=STD)]),
    )
    while True:
        for images, labels in loader:
            loader.state_dict()
            yield images, labels


def read_and_decode(path: str) -> torch.Tensor:
    """Read the file at ``path`` as uint8 RGB ``[3, H, W]``, by libjpeg-turbo without PIL."""
    from torchvision.io import ImageReadMode, decode_jpeg, read_file

    return decode_jpeg(read_file(path), mode=ImageReadMode.RGB)


def torchvision_loader(root: Path, pil: bool, workers: int) -> Iterator[Batch]:
    """Run torch's DataLoader over torchvision's ImageFolder with transforms v2, on PIL images or on tensors."""
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import v2

    steps = [
        v2.RandomResizedCrop(CROP, scale=AREA, ratio=ASPECT, antialias=True),
        v2.RandomHorizontalFlip(),
        *([v2.ToImage()] if pil else []),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(MEAN, STD),
    ]
    source = ImageFolder(str(root), v2.Compose(steps), **({} if pil else {"loader": read_and_decode}))
    torch.manual_seed(SEED)
    loader = torch.utils.data.DataLoader(
        source, batch_size=BATCH_SIZE, shuffle=True, drop_last=True, num_workers=workers, persistent_workers=True
    )
    while True:
        yield from loader


def dali_pipeline(root: Path) -> Iterator[Batch]:
    """Run DALI's pipeline mode with the dynamic executor; a batch that crosses an epoch's end is kept."""
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.plugin.pytorch import DALIClassificationIterator

    @pipeline_def(batch_size=BATCH_SIZE, num_threads=NUM_THREADS, seed=SEED, exec_dynamic=True, prefetch_queue_depth=2)
    def training():  # type: ignore[no-untyped-def]  # DALI's DataNode type is not annotated
        encoded, labels = fn.readers.file(file_root=str(root), random_shuffle=True, name="reader")
        images = fn.decoders.image_random_crop(encoded, random_area=AREA, random_aspect_ratio=ASPECT, num_attempts=10)
        images = fn.resize(images, size=[CROP, CROP], interp_type=types.INTERP_LINEAR, antialias=True)
        images = fn.crop_mirror_normalize(
            images,
            dtype=types.FLOAT,
            output_layout="CHW",
            mean=[255 * value for value in MEAN],
            std=[255 * value for value in STD],
            mirror=fn.random.coin_flip(),
        )
        return images, labels

    loader = DALIClassificationIterator(training(device_id=None), reader_name="reader")
    while True:
        for (batch,) in loader:
            yield batch["data"], batch["label"]


def ndd_eager(root: Path) -> Iterator[Batch]:
    """Run DALI's dynamic mode, the same operators one after the other."""
    import nvidia.dali.experimental.dynamic as ndd
    from nvidia.dali import types

    ndd.random.set_seed(SEED)
    reader = ndd.readers.File(file_root=str(root), random_shuffle=True)
    while True:
        for encoded, labels in reader.next_epoch(batch_size=BATCH_SIZE):
            images = ndd.decoders.image_random_crop(
                encoded, random_area=AREA, random_aspect_ratio=ASPECT, num_attempts=10
            )
            images = ndd.resize(images, size=[CROP, CROP], interp_type=types.INTERP_LINEAR, antialias=True)
            images = ndd.crop_mirror_normalize(
                images,
                dtype=ndd.float32,
                output_layout="CHW",
                mean=[255 * value for value in MEAN],
                std=[255 * value for value in STD],
                mirror=ndd.random.coin_flip(batch_size=len(encoded.shape)),
            )
            yield images.torch(), labels.torch()


PEERS: dict[str, Callable[[Path], Iterator[Batch]]] = {
    "torchdali": partial(torchdali, engine="auto"),
    "torchdali-eager": partial(torchdali, engine="eager"),
    "torchdali-pipeline": partial(torchdali, engine="pipeline"),
    "torchvision-pil-1": partial(torchvision_loader, pil=True, workers=1),
    "torchvision-pil-2": partial(torchvision_loader, pil=True, workers=2),
    "torchvision-decode_jpeg-1": partial(torchvision_loader, pil=False, workers=1),
    "torchvision-decode_jpeg-2": partial(torchvision_loader, pil=False, workers=2),
    BASELINE: dali_pipeline,
    "ndd-eager": ndd_eager,
}
"""Endless streams of batches from the folder of images; the number at a name's end is its number of workers."""

DEFAULT_PEERS = [name for name in PEERS if name not in {"torchdali-eager", "torchdali-pipeline"}]


def measure_in_process(peer: str, args: argparse.Namespace) -> Measurement | None:
    """Measure one peer in a new process; None, with the reason on stderr, if it failed or did not end in time."""
    command = [sys.executable, __file__, "--one", peer, "--data", str(args.data), "--seconds", str(args.seconds)]
    with subprocess.Popen(command, stdout=PIPE, stderr=PIPE, text=True, start_new_session=True) as child:
        try:
            out, err = child.communicate(timeout=args.timeout)
        except subprocess.TimeoutExpired:
            print(f"{peer}: did not end within {args.timeout:g} s", file=sys.stderr)
            return None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)  # also worker processes that outlived it
    if child.returncode != 0:
        print(f"{peer}: exit code {child.returncode}\n{err}", file=sys.stderr)
        return None
    return Measurement(**json.loads(out.splitlines()[-1]))


def run_rounds(peers: list[str], args: argparse.Namespace) -> dict[str, list[Measurement | None]]:
    """Measure every peer once per round; round r starts with peer r."""
    results: dict[str, list[Measurement | None]] = {peer: [] for peer in peers}
    for index in range(args.rounds):
        start = index % len(peers)
        for peer in peers[start:] + peers[:start]:
            result = measure_in_process(peer, args)
            results[peer].append(result)
            text = f"{result.images_per_second:.0f} img/s, other cores {result.other_cores:.2f}" if result else "failed"
            print(f"round {index + 1}: {peer}: {text}", flush=True)
    return results


def table(results: dict[str, list[Measurement | None]]) -> str:
    """Make a Markdown row for each peer, over its successful rounds."""
    lines = ["| peer | img/s, median | ratio to DALI pipeline: min, median, max | CPU ms/img | other cores, max |"]
    lines.append("|---|---|---|---|---|")
    baseline = results.get(BASELINE, [])
    for peer, rounds in results.items():
        good = [each for each in rounds if each is not None]
        if not good:
            lines.append(f"| {peer} | failed | | | |")
            continue
        pairs = zip(rounds, baseline, strict=False)
        ratios = [mine.images_per_second / base.images_per_second for mine, base in pairs if mine and base]
        cells = [
            peer,
            f"{median(each.images_per_second for each in good):.0f}",
            f"{min(ratios):.2f}, {median(ratios):.2f}, {max(ratios):.2f}" if ratios else "",
            f"{median(each.cpu_ms_per_image for each in good):.2f}",
            f"{max(each.other_cores for each in good):.2f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    data = Path.home() / ".cache/torchdali/bench-jpegs"
    parser.add_argument("--data", type=Path, default=data, help="the folder of images; made if it is missing")
    parser.add_argument("--peers", default=",".join(DEFAULT_PEERS), help=f"comma-separated, of: {', '.join(PEERS)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6.0, help="time each peer at least this long per round")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds after which a peer's process is killed")
    parser.add_argument("--json", type=Path, help="write the settings and every round to this file")
    parser.add_argument("--one", choices=PEERS, help="measure this peer in this process and print one line of JSON")
    args = parser.parse_args()
    if unknown := set(args.peers.split(",")) - set(PEERS):
        parser.error(f"--peers must be of {', '.join(PEERS)}, got {', '.join(sorted(unknown))}")
    for name in ("rounds", "seconds", "timeout"):
        if getattr(args, name) <= 0:
            parser.error(f"--{name} must be positive, got {getattr(args, name)}")
    return args


def main() -> int:
    args = parse_arguments()
    if args.one:
        print(json.dumps(asdict(measure(PEERS[args.one](args.data / "train"), args.seconds))))
        return 0
    settings = {
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "rounds": args.rounds,
        "seconds": args.seconds,
        "batch_size": BATCH_SIZE,
        "dali_threads": NUM_THREADS,
        **machine(),
        **asdict(ensure_photos(args.data)),
    }
    print("\n".join(f"{key}: {value}" for key, value in settings.items()), flush=True)
    results = run_rounds(args.peers.split(","), args)
    print(table(results))
    if args.json:
        rounds = {peer: [each and asdict(each) for each in measured] for peer, measured in results.items()}
        args.json.write_text(json.dumps({"settings": settings, "rounds": rounds}, indent=2) + "\n")
    return 1 if any(None in measured for measured in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
