"""What a loader's clocks say: the time of each stage per batch, and what to change."""

from __future__ import annotations

import dataclasses
import json
import os
import resource
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .clock import FORM, IDLE, ORDER, REPAIR, ROOM, STAGES, START, STEP, WAIT, Recorder

CALLER = "caller"
"""The name of the clocks of threads that iterate over a loader."""
THREADS = ("read", "decode", "transform")
"""The names of the clocks of a run's threads, in their order; some passes need fewer."""

_FINE = 0.1  # of the loop's time; a loop that waits less than this has no need of a faster loader
_WORDS = {
    "step": "training step",
    "wait": "wait for the loader",
    "form": "form, collate_fn, batch_transform",
    "room": "wait for the consumer",
    "workers": "worker processes",
}


@dataclass(frozen=True)
class Stage:
    """The time of one stage.

    Attributes:
        per_batch: seconds per batch, in all threads that have this stage.
        share: of its thread's time, without first batches; of worker processes, of the time of all of them.
    """

    per_batch: float
    share: float


@dataclass(frozen=True)
class Level:
    """How full a queue was when a batch was taken out of it.

    Attributes:
        mean: the batches that were ready, in the mean.
        size: the most that it holds.
    """

    mean: float
    size: int


@dataclass(frozen=True)
class Memory:
    """Resident memory in bytes.

    Attributes:
        process: of this process now, the training included.
        peak: the most that it ever was.
        workers: of all worker processes now, without what they share.
    """

    process: int
    peak: int
    workers: int


@dataclass(frozen=True)
class Stats:
    """Where a loader's time went, since it was made or `stats(reset=True)` was called.

    `str(stats)` is a table, `stats.as_dict()` plain values for JSON.  The first batch of each pass, for which threads,
    workers and DALI's pipeline start, is counted in `start` alone.

    Attributes:
        batches, samples: that were handed over; padding and substitutes are counted too.
        passes: the passes that were begun.
        seconds: that passes were open, the training steps in them included.
        start: the part of `seconds` in which first batches were waited for.
        samples_per_second: without the first batches.
        stages: the stages that took time, by the names in `torchdali.clock.STAGES`, and "workers".  They overlap where
            threads work at the same time.
        queues: by the thread that fills each: "read", "decode" and "transform"; the last of them holds finished
            batches.
        bytes: of the image files that were read.
        pillow: files that Pillow decoded, since DALI can't read them.
        repairs: batches that failed and were made again.
        substitutes, skipped: bad samples that another one took the place of, and those that were left out.
        memory: what the process and its workers hold.
        engine, device, num_threads, num_workers: as the loader has them.
        advice: one sentence that says what is the limit, and what to change.
    """

    batches: int
    samples: int
    passes: int
    seconds: float
    start: float
    samples_per_second: float
    stages: dict[str, Stage]
    queues: dict[str, Level]
    bytes: int
    pillow: int
    repairs: int
    substitutes: int
    skipped: int
    memory: Memory
    engine: str
    device: str
    num_threads: int
    num_workers: int
    advice: str

    def as_dict(self) -> dict[str, Any]:
        """Give plain values, which JSON can hold."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        if not self.batches:
            return f"DataLoader.stats: {self.advice}"
        lines = [
            f"DataLoader.stats: {self.batches:,} batches, {self.samples:,} samples, "
            f"{self.passes:,} pass{'es' if self.passes != 1 else ''} in "
            f"{self.seconds:.1f} s; {self.samples_per_second:,.0f} samples/s after first batches",
            f"{'':36}ms per batch   of the time",
        ]
        for name, stage in self.stages.items():
            lines.append(f"  {_WORDS.get(name, name):34}{1000 * stage.per_batch:12.3f}   {stage.share:11.1%}")
        first = f"  {'start, first batch':34}{1000 * self.start / self.passes:12.0f} ms per pass"
        queues = ", ".join(f"{name} {level.mean:.1f} of {level.size}" for name, level in self.queues.items())
        memory = f"  memory: {_mebi(self.memory.process)} now, {_mebi(self.memory.peak)} at most"
        if self.num_workers:
            memory += f", workers {_mebi(self.memory.workers)}"
        lines += [first, *([f"  ready in queues: {queues}"] if queues else []), memory]
        counted = {
            "by Pillow": self.pillow,
            "batches repaired": self.repairs,
            "substitutes": self.substitutes,
            "skipped": self.skipped,
        }
        if any(counted.values()):
            lines.append("  " + ", ".join(f"{name}: {number:,}" for name, number in counted.items() if number))
        return "\n".join([*lines, self.advice])

    __repr__ = __str__


def _mebi(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"


@dataclass(frozen=True)
class Setting:
    """What the clocks don't know of a loader.

    Attributes:
        engine, device, num_threads, num_workers: as in `Stats`.
        cores: that this process may use.
        inline: Python code makes the samples in the caller's thread.
        pids: of the worker processes.
    """

    engine: str
    device: str
    num_threads: int
    num_workers: int
    cores: int
    inline: bool
    pids: Sequence[int] = ()


def make_stats(recorder: Recorder, setting: Setting) -> Stats:
    """Make the stats of what a loader's clocks have counted so far."""
    counts, threads = recorder.counts, recorder.seconds()
    caller = threads.pop(CALLER, [0.0] * len(STAGES))
    batches, passes = counts["batches"], counts["passes"]
    seconds, start = sum(caller) - caller[IDLE], caller[START]
    later = max(batches - passes, 0)  # batches after the first ones
    running = later > 0 and seconds > start
    stages: dict[str, Stage] = {}
    for number in (*range(ORDER, REPAIR + 1), FORM, WAIT, STEP) if running else ():
        own = [(one[number], sum(one) - one[IDLE] - one[START]) for one in (caller, *threads.values())]
        share = max(part / whole for part, whole in own if whole) if any(part for part, _ in own) else 0.0
        if share:
            stages[STAGES[number]] = Stage(sum(part for part, _ in own) / later, share)
    worked = sum(recorder.worker_seconds.values())
    if worked and batches and seconds:
        stages["workers"] = Stage(worked / batches, min(worked / (seconds * max(setting.num_workers, 1)), 1.0))
    last = next((threads[name] for name in reversed(THREADS) if name in threads), None)
    if running and last is not None:  # it waits for the caller, and the threads before it for each other
        stages[STAGES[ROOM]] = Stage(last[ROOM] / later, last[ROOM] / (sum(last) - last[IDLE] - last[START] or 1.0))
    now = _resident(os.getpid())[0]
    stats = Stats(
        batches=batches,
        samples=counts["samples"],
        passes=passes,
        seconds=seconds,
        start=start,
        samples_per_second=counts["samples"] / batches * later / (seconds - start) if running else 0.0,
        stages=stages,
        queues={
            name.removeprefix("torchdali-"): Level(queue.found / queue.taken, queue.size)
            for name, queue in list(recorder.queues.items())
        },
        bytes=counts["bytes"],
        pillow=counts["pillow"],
        repairs=counts["repairs"],
        substitutes=counts["substitutes"],
        skipped=counts["skipped"],
        memory=Memory(
            process=now,
            peak=max(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10, now),  # the kernel counts both roughly
            workers=sum(resident - shared for resident, shared in map(_resident, setting.pids)),
        ),
        engine=setting.engine,
        device=setting.device,
        num_threads=setting.num_threads,
        num_workers=setting.num_workers,
        advice="",
    )
    return dataclasses.replace(stats, advice=advise(stats, setting, ahead=last is not None))


def _resident(pid: int) -> tuple[int, int]:
    """Give a process's resident memory and the part of it that is shared, in bytes; 0 of one that has ended."""
    try:
        _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0, 0
    page = os.sysconf("SC_PAGE_SIZE")
    return int(resident) * page, int(shared) * page


# Advice


def advise(stats: Stats, setting: Setting, ahead: bool) -> str:
    """Say in one sentence what is the limit, and what to change.

    Args:
        stats: all but the sentence.
        setting: the loader's.
        ahead: batches are made in other threads, ahead of the loop.
    """
    own = {name: stage.share for name, stage in stats.stages.items() if name != "workers"}
    if not stats.batches:
        return "no batch was made yet: iterate over the loader first"
    if not own:
        return "only first batches were made, for which threads and pipelines start: iterate further"
    if stats.passes > 2 and stats.start > stats.seconds / 2:
        return (
            f"beginning passes is the limit: {stats.start / stats.seconds:.0%} of the time went to first batches of "
            f"{stats.passes} passes; what helps: longer passes, or persistent_workers=True where there are workers"
        )
    work = {name: share for name, share in own.items() if name in STAGES[ORDER : REPAIR + 1]}
    waits = own.get("wait", 0.0) if ahead else sum(work.values())
    form = own.get("form", 0.0)
    if form > max(waits, _FINE, own.get("step", 0.0)):
        return (
            f"the caller's thread is the limit: {form:.0%} of its time in collate_fn, batch_transform or output=; what "
            "helps: doing the same in transform=, which runs in the loader's threads"
        )
    if waits < _FINE:
        idle = f"the loader waits {own.get('room', 0.0):.0%} of the time for it, and " if ahead else ""
        return f"the training step is the limit: {idle}the loop waits {waits:.0%} of the time for the loader"
    most = max(work, key=lambda name: work[name])
    limit, remedies = _limit(most, f"{work[most]:.0%} of the time", stats, setting, ahead)
    *others, last = remedies
    helps = f"{', '.join(others)}, or {last}" if others else last
    return f"{limit}, and the loop waits {waits:.0%} of the time for the loader; what helps: {helps}"


def _limit(stage: str, time: str, stats: Stats, setting: Setting, ahead: bool) -> tuple[str, list[str]]:
    """Say that a stage is the limit, and what helps."""
    cores = setting.cores
    threads = f"{setting.num_threads} thread" + ("s" if setting.num_threads != 1 else "")
    more = []
    if not ahead and not setting.inline:
        more = ["prefetch_factor=2 (batches are made in other threads)"]
    elif setting.num_threads < cores:
        more = [f"more threads (num_threads={cores})"]
    else:
        threads += f" for {cores} core" + ("s" if cores != 1 else "")
    if stage == "storage" and setting.inline:
        return f"Python code is the limit: {time} in the dataset, in the loop's own thread", [
            f"other processes (num_workers={max(cores, 2)})"
        ]
    if stage == "storage" and setting.num_workers:
        workers = [f"more of them (num_workers={cores})"] if setting.num_workers < cores else []
        return f"Python code in workers is the limit: {time} waiting for {setting.num_workers} of them", [
            *workers,
            "less work per sample, such as decoding and transforms left to the loader's threads",
        ]
    if stage == "storage":
        spent = stats.seconds - stats.start
        rate = f" at {stats.bytes / spent / 1e6:,.1f} MB/s" if stats.bytes and spent else ""
        return f"storage is the limit: {time} in reading{rate}", ["a faster disk", "fewer, larger files (td.pack)"]
    if stage == "header" and stats.pillow:
        return f"Pillow is the limit: {time} in decoding {stats.pillow:,} files that DALI can't read", [
            "writing them anew as JPEG or PNG (`torchdali check` names them)",
            "td.pack",
        ]
    if stage == "decode" and stats.bytes:
        packs = "td.pack (decodes once for many epochs)"
        return f"decoding is the limit: {time} in DALI on {threads}", [*more, "smaller images", packs]
    if stage == "decode":
        return f"DALI's operators are the limit: {time} in them on {threads}", [*more, "fewer steps", "smaller images"]
    if stage == "transform":
        return f"the transform is the limit: {time} in it on {threads}", [*more, "fewer steps", "a smaller output"]
    if stage == "copy":
        return f"copying to {setting.device} is the limit: {time}", ["uint8 images, a quarter of float32 ones"]
    if stage == "repair":
        return f"repairs are the limit: {time} on {stats.repairs:,} batches with samples that failed", [
            "exclude= for the bad files that `torchdali check` names"
        ]
    return f"the loader's own work is the limit: {time} in {stage}", ["a larger batch_size"]


# The trace


def write_trace(recorder: Recorder, path: str | Path) -> None:
    """Write the last events of all threads and workers as a Chrome trace, which opens in Perfetto.

    Args:
        recorder: the loader's.
        path: the file, which is overwritten; times in it are microseconds of `time.perf_counter`.
    """
    pid = os.getpid()
    found = [(name, STAGES[stage], begin, seconds) for name, (stage, begin, seconds) in recorder.events()]
    found += [(f"worker {one.worker}", "samples", one.begin, one.seconds) for one in list(recorder.worked)]
    names = list(dict.fromkeys(name for name, *_ in found))
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": "torchdali"}},
        *(
            {"ph": "M", "name": "thread_name", "pid": pid, "tid": number, "args": {"name": name}}
            for number, name in enumerate(names, 1)
        ),
    ]
    for name, stage, begin, seconds in sorted(found, key=lambda event: event[2]):
        place = {"pid": pid, "tid": names.index(name) + 1}
        events.append({"ph": "X", "name": stage, "cat": "torchdali", "ts": begin * 1e6, "dur": seconds * 1e6, **place})
    Path(path).write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}))
