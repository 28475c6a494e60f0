"""The pretended hardware: streams, memory, and what was launched on them."""

from __future__ import annotations

import os
import threading
import weakref
from collections import Counter


class Queue:
    """A CUDA stream: what was launched on it, and what of others it has waited for."""

    def __init__(self, name: str, device: int) -> None:
        self.name, self.device, self.seq = name, device, 0
        self.knows: dict[Queue, int] = {}

    def __repr__(self) -> str:
        return f"{self.name}@{self.device}"


class Buffer:
    """Some memory of a GPU.  `use` outlives it, to say what was still going on when it was freed."""

    def __init__(self, owner: str, stream: Queue, size: int, what: str) -> None:
        self.use = Use(owner, stream, size, what)
        weakref.finalize(self, MACHINE.free, self.use).atexit = False


class Use:
    def __init__(self, owner: str, stream: Queue, size: int, what: str) -> None:
        self.owner, self.stream, self.size, self.what = owner, stream, size, what
        self.write: tuple[Queue, int] | None = None
        self.reads: dict[Queue, int] = {}
        self.recorded: set[Queue] = set()

    def __repr__(self) -> str:
        return f"{self.owner}'s {self.what} of {self.stream}"


class Machine:
    """The pretended hardware, and what was seen on it."""

    def __init__(self, gpus: int) -> None:
        self.gpus = gpus
        self.lock = threading.RLock()
        self.here = threading.local()
        self.allowed = set(range(gpus))
        self.contexts: dict[int, str] = {}
        self.reset()
        self.default = [Queue("default", i) for i in range(gpus)]
        self.pools: list[list[Queue]] = [[] for _ in range(gpus)]
        self.made = [0] * gpus
        self.handles: dict[int, Queue] = {}
        self.live: dict[int, int] = dict.fromkeys(range(gpus), 0)
        self.made_objects: Counter[str] = Counter()  # over all tests: what costs time to make on a real GPU

    def reset(self) -> None:
        self.hazards: list[str] = []
        self.counts: Counter[tuple[str, str]] = Counter()
        self.done: dict[Queue, int] = {}
        self.freed: dict[Queue, list[Use]] = {}
        self.log: list[str] = []

    # devices

    @property
    def device(self) -> int:
        return getattr(self.here, "device", 0)

    def set_device(self, index: int, why: str, eager: bool) -> None:
        """eager: a context is made at once, as cudaSetDevice does since CUDA 12."""
        self.here.device = index
        if eager:
            self.touch(index, why)

    def touch(self, index: int, why: str) -> None:
        where = f"{why} in {threading.current_thread().name}"
        self.contexts.setdefault(index, where)
        if index not in self.allowed:
            self.hazard("foreign-device", f"GPU {index}: {where}")

    # streams

    def new_stream(self, device: int) -> Queue:
        """torch has 32 and then hands out the same ones."""
        self.touch(device, "torch.cuda.Stream")
        pool = self.pools[device]
        if len(pool) < 32:
            pool.append(self.own_stream(f"torch{len(pool)}", device))
        self.made[device] += 1
        return pool[(self.made[device] - 1) % 32]

    def own_stream(self, name: str, device: int) -> Queue:
        queue = Queue(name, device)
        self.handles[0x1000 + len(self.handles)] = queue
        return queue

    def handle(self, queue: Queue) -> int:
        return next((h for h, q in self.handles.items() if q is queue), 0)

    def current(self, device: int | None = None) -> Queue:
        device = self.device if device is None else device
        return getattr(self.here, "streams", {}).get(device, self.default[device])

    # what happens

    def hazard(self, kind: str, text: str) -> None:
        line = f"{kind}: {text}"
        if line not in self.hazards:
            self.hazards.append(line)

    def count(self, what: str, n: int = 1) -> None:
        with self.lock:
            self.counts[threading.current_thread().name, what] += n

    def launch(self, stream: Queue, reads: list[Buffer], writes: list[Buffer], what: str) -> None:
        with self.lock:
            stream.seq += 1
            clock = {**self.done}
            for queue, seq in stream.knows.items():
                clock[queue] = max(clock.get(queue, 0), seq)
            name = threading.current_thread().name

            def seen(at: tuple[Queue, int]) -> bool:
                return at[0] is stream or clock.get(at[0], 0) >= at[1]

            for buffer in reads:
                use = buffer.use
                if use.write is not None and not seen(use.write):
                    self.hazard("read-early", f"{what} on {stream} ({name}) reads {use}, written on {use.write[0]}")
                use.reads[stream] = stream.seq
            for buffer in writes:
                use = buffer.use
                before = [*use.reads.items(), *([use.write] if use.write else [])]
                if buffer not in reads and not all(map(seen, before)):
                    text = f"{what} on {stream} ({name}) writes {use}, in use on {before[0][0]}"
                    self.hazard("overwrite-early", text)
                use.write, use.reads = (stream, stream.seq), {}
            if what.startswith("decoders"):
                late = [u for u in self.freed.get(stream, []) if self._pending(u, {stream})]
                if late:
                    self.hazard("decode-early", f"{what} on {stream} ({name}): freed, and in use: {late[0]}")
                self.freed[stream] = late
            if what != "consumer":
                self.counts[name, "kernel"] += 1
            self.log.append(f"{name}: {what} on {stream}")

    def _pending(self, use: Use, streams: set[Queue] | None = None) -> list[Queue]:
        """Streams that may not be done with it, as far as the host knows."""
        at = [*use.reads.items(), *([use.write] if use.write else [])]
        return [q for q, seq in at if self.done.get(q, 0) < seq and (streams is None or q in streams)]

    def free(self, use: Use) -> None:
        with self.lock:
            if use.owner == "torch":
                self.live[use.stream.device] -= use.size
            for queue in self._pending(use):
                seq = use.reads.get(queue, use.write[1] if use.write and use.write[0] is queue else 0)
                known = use.stream.knows.get(queue, 0) >= seq
                if queue is not use.stream and not known and queue not in use.recorded:
                    name = threading.current_thread().name
                    self.hazard("freed-early", f"{use} is freed ({name}) while {queue} may use it")
            if use.owner == "DALI" and self._pending(use):
                self.freed.setdefault(use.stream, []).append(use)

    def wait(self, stream: Queue, at: dict[Queue, int]) -> None:
        """A stream waits for a point of others."""
        with self.lock:
            for queue, seq in at.items():
                stream.knows[queue] = max(stream.knows.get(queue, 0), seq)

    def mark(self, stream: Queue) -> dict[Queue, int]:
        with self.lock:
            return {**stream.knows, stream: stream.seq}

    def synchronize(self, stream: Queue, why: str) -> None:
        """The host waits for a stream."""
        with self.lock:
            for queue, seq in self.mark(stream).items():
                self.done[queue] = max(self.done.get(queue, 0), seq)
            self.count(why)
            if stream.name == "default":
                self.count("default stream waited for")
            self.log.append(f"{threading.current_thread().name}: {why} {stream}")


MACHINE = Machine(int(os.environ.get("PRETENDED_GPUS", "2")))
