"""Compare torchdali with its peers on the same input, on the CPU, in interleaved rounds.

Works: ImageNet's training input (`train`), its evaluation input (`evaluate`), small images in memory (`small`), and a
small CNN that trains on the CPU beside its loader (`training`); see ``_work.WORKS``. Each measurement is a process of
its own; a round measures every peer once, and each round starts with another peer, so that drift of the machine hits
all of them alike. Ratios are taken within a round: compare them before the rates.

    python benchmarks/compare.py --rounds 3 --seconds 3        # everything, under 20 minutes
    python benchmarks/compare.py --rounds 1 --seconds 1        # a smoke test
    python benchmarks/compare.py --works train --peers torchdali,dali-pipeline --json out.json --svg out.svg

The peers' packages are the extra `bench`; one that is missing is named in the table.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from subprocess import PIPE

from _chart import Panel, draw
from _peers import BASELINE, CORES, PEERS, PEERS_OF, make_containers
from _work import BATCH_SIZE, TRAIN, WORKS, Measurement, ensure_photos, machine, measure

LIMIT = "limit"  # the name of `limit.c` among the peers
TITLES = {
    "train": "ImageNet training input: images per second",
    "evaluate": "ImageNet evaluation input: images per second",
    "small": "32 x 32 images in memory: images per second",
    "training": "a small CNN trains on the CPU: images per second",
}
Rounds = dict[str, list[Measurement | None]]


def measure_in_process(peer: str, work: str, args: argparse.Namespace) -> Measurement | str:
    """Measure one peer in a new process; the reason, if it failed or did not end in time."""
    command = [sys.executable, __file__, "--one", peer, "--works", work, "--data", str(args.data)]
    command += ["--seconds", str(args.seconds)]
    with subprocess.Popen(command, stdout=PIPE, stderr=PIPE, text=True, start_new_session=True) as child:
        try:
            out, err = child.communicate(timeout=args.timeout)
        except subprocess.TimeoutExpired:
            return f"did not end within {args.timeout:g} s"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)  # also worker processes that outlived it
    found = [line for line in out.splitlines() if line.startswith('{"images"')]
    if not found:
        lines = [line for line in err.splitlines() if line.strip()]
        return lines[-1] if lines else f"exit code {child.returncode}"
    return Measurement(**json.loads(found[-1]))  # whatever happened at its exit


class Limit:
    """The program of ``limit.c``, built for this machine."""

    def __init__(self, folder: Path, data: Path) -> None:
        self.program, self.files = folder / "limit", folder / "files"
        compiler = next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), "cc")
        source = str(Path(__file__).with_name("limit.c"))
        flags = ["-O3", "-march=native", "-ffp-contract=off", "-o", str(self.program), source]
        subprocess.run([compiler, *flags, "-ljpeg", "-lm", "-lpthread"], check=True, capture_output=True, text=True)
        paths = sorted(str(path) for path in (data / "train").rglob("*.jpg"))
        self.files.write_text("\n".join(paths) + "\n")

    def __call__(self, work: str, seconds: float) -> Measurement:
        command = [str(self.program), work, str(CORES), str(seconds), str(BATCH_SIZE), str(self.files)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60 + seconds)
        images, elapsed, cpu = (float(word) for word in done.stdout.split())
        return Measurement(int(images), elapsed, images / elapsed, 1000 * cpu / images, 0.0)


def run_rounds(work: str, peers: list[str], limit: Limit | None, args: argparse.Namespace) -> tuple[Rounds, Rounds]:
    """Measure every peer once per round; round r starts with peer r.  Give the peers' rounds, and those of the limit.

    A peer that failed is not tried again.
    """
    results: Rounds = {peer: [] for peer in peers}
    limits: Rounds = {LIMIT: []}
    for index in range(args.rounds):
        start = index % len(peers)
        for peer in peers[start:] + peers[:start]:
            if None in results[peer]:
                continue
            result = measure_in_process(peer, work, args)
            if isinstance(result, str):
                print(f"{work}, round {index + 1}: {peer}: {result}", flush=True)
                args.failed[f"{work}: {peer}"] = result
                results[peer].append(None)
                continue
            results[peer].append(result)
            text = f"{result.images_per_second:.0f} img/s, other cores {result.other_cores:.2f}"
            print(f"{work}, round {index + 1}: {peer}: {text}", flush=True)
        if limit is not None and work in ("train", "evaluate"):
            limits[LIMIT].append(limit(work, args.seconds))
    return results, limits


def table(results: Rounds, limits: Rounds, trains: bool) -> str:
    """Make a Markdown row for each peer, over its successful rounds, the fastest first."""
    share = " loader's share of the CPU time |" if trains else ""
    lines = [
        f"| peer | img/s, median (range) | ratio to DALI's pipeline: min, median, max | CPU ms/img |{share} others |"
    ]
    lines.append("|---|---|---|---|---|" + ("---|" if trains else ""))
    baseline = results.get(BASELINE, [])
    rows: list[tuple[float, str]] = []
    for peer, rounds in {**results, **{name: found for name, found in limits.items() if found}}.items():
        good = [each for each in rounds if each is not None]
        if not good:
            rows.append((0.0, f"| {peer} | failed, see below | | |{' |' if trains else ''} |"))
            continue
        pairs = zip(rounds, baseline, strict=False)
        ratios = [mine.images_per_second / base.images_per_second for mine, base in pairs if mine and base]
        rates = [each.images_per_second for each in good]
        cells = [
            "the work in C alone" if peer == LIMIT else peer,
            f"{median(rates):.0f} ({min(rates):.0f}-{max(rates):.0f})",
            f"{min(ratios):.2f}, {median(ratios):.2f}, {max(ratios):.2f}" if ratios else "",
            f"{median(each.cpu_ms_per_image for each in good):.3f}",
            *([f"{median(each.loader_share for each in good):.0%}"] if trains else []),
            f"{max(each.other_cores for each in good):.2f}",
        ]
        rows.append((median(rates), f"| {' | '.join(cells)} |"))
    return "\n".join([*lines, *(row for _, row in sorted(rows, key=lambda row: -row[0]))])


def panel(work: str, results: Rounds, limits: Rounds) -> Panel:
    rates = {peer: [each.images_per_second for each in rounds if each] for peer, rounds in results.items()}
    limit = [each.images_per_second for each in limits[LIMIT] if each]
    return Panel(TITLES[work], {peer: own for peer, own in rates.items() if own}, median(limit) if limit else 0.0)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    data = Path.home() / ".cache/torchdali/bench-jpegs"
    parser.add_argument("--data", type=Path, default=data, help="the folder of images; made if it is missing")
    parser.add_argument("--works", default=",".join(WORKS), help=f"comma-separated, of: {', '.join(WORKS)}")
    parser.add_argument("--peers", help=f"comma-separated, of: {', '.join(PEERS)} (default: those of each work)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="time each peer at least this long per round")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds after which a peer's process is killed")
    parser.add_argument("--json", type=Path, help="write the settings and every round to this file")
    parser.add_argument("--svg", type=Path, help="draw the picture to this file")
    parser.add_argument("--one", choices=PEERS, help="measure this peer in this process and print one line of JSON")
    args = parser.parse_args()
    for name, known in (("works", WORKS), ("peers", PEERS)):
        if unknown := set((getattr(args, name) or "").split(",")) - set(known) - {""}:
            parser.error(f"--{name} must be of {', '.join(known)}, got {', '.join(sorted(unknown))}")
    for name in ("rounds", "seconds", "timeout"):
        if getattr(args, name) <= 0:
            parser.error(f"--{name} must be positive, got {getattr(args, name)}")
    args.failed = {}
    return args


def main() -> int:
    args = parse_arguments()
    if args.one:
        work = WORKS[args.works]
        batches = PEERS[args.one](args.data / "train", TRAIN if work.trains else work)
        print(json.dumps(asdict(measure(batches, args.seconds, work))), flush=True)
        os._exit(0)  # some peers' threads and workers do not end by themselves
    settings = {
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "rounds": args.rounds,
        "seconds": args.seconds,
        "batch_size": BATCH_SIZE,
        "threads": CORES,
        **machine(),
    }
    files = args.works != "small"
    if files:
        settings |= asdict(ensure_photos(args.data))
    print("\n".join(f"{key}: {value}" for key, value in settings.items()), flush=True)
    if files:
        args.failed |= {f"data of {line.partition(':')[0]}": line for line in make_containers(args.data / "train")}
    panels, texts, rounds = [], [], {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            limit = Limit(Path(folder), args.data) if files else None
        except (OSError, subprocess.CalledProcessError) as error:
            args.failed["limit.c"] = str(getattr(error, "stderr", "") or error).strip().splitlines()[-1]
            limit = None
        for work in args.works.split(","):
            peers = args.peers.split(",") if args.peers else PEERS_OF[work]
            results, limits = run_rounds(work, peers, limit, args)
            texts.append(f"\n{TITLES[work]}\n\n{table(results, limits, WORKS[work].trains)}")
            if any(each for measured in results.values() for each in measured):
                panels.append(panel(work, results, limits))
            both = {**results, **limits}
            rounds[work] = {peer: [each and asdict(each) for each in measured] for peer, measured in both.items()}
    print("\n".join(texts))
    if args.failed:
        print("\nfailed:\n" + "\n".join(f"- {name}: {reason}" for name, reason in args.failed.items()))
    if args.json:
        found = {"settings": settings, "failed": args.failed, "works": rounds}
        args.json.write_text(json.dumps(found, indent=2) + "\n")
    if args.svg:
        words = f"{settings['cpu']}, {CORES} cores; medians of {args.rounds} rounds of {args.seconds:g} s, and range"
        args.svg.write_text(draw(panels, f"{words}; {settings['date'][:10]}"))
    return 1 if args.failed else 0


if __name__ == "__main__":
    sys.exit(main())
