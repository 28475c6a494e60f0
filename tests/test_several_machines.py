"""A job on two machines, which are two launchers of torchrun here; one of the machines is lost."""

from __future__ import annotations

import os
import signal
import socket
from itertools import chain
from pathlib import Path

import pytest

from torchdali.testing import make_image_folder, read_stream

from .patience import PATIENCE, wait_until
from .test_torchrun import lines_of, merged
from .torchrun_jobs import torchrun_machine
from .torchrun_jobs.stream import make_loader

pytestmark = [pytest.mark.processes, pytest.mark.slow]


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_the_stream_goes_on_when_a_machine_is_lost(tmp_path: Path) -> None:
    images, out = make_image_folder(tmp_path / "images", classes=3, per_class=35), tmp_path / "out"
    out.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    machines = [torchrun_machine("train", images, out, number=number, port=port, restarts=2) for number in range(2)]
    try:
        logs = [out / f"0.{rank}.jsonl" for rank in range(2)]
        assert wait_until(
            lambda: (
                any(machine.poll() is not None for machine in machines)
                or all(log.exists() and log.read_bytes().count(b"\n") >= 10 for log in logs)
            )
        )
        assert all(machine.poll() is None for machine in machines)
        # The second machine's launcher stops first, so that it can't report the death of its process.
        machines[1].send_signal(signal.SIGSTOP)
        for child in children(machines[1].pid):
            os.kill(child, signal.SIGKILL)
        machines[1].kill()
        _, errors = machines[0].communicate(timeout=PATIENCE)
    finally:
        for machine in machines:
            machine.kill()
            machine.communicate(timeout=60)
    assert machines[0].returncode == 0, errors[-6000:]

    with make_loader(images, 8) as loader:
        whole = list(chain(*(step.samples for step in read_stream(loader, epochs=5))))
    assert not (out / "1.1.jsonl").exists()  # the second attempt is one process
    rest = lines_of(out / "1.0.jsonl")
    done = rest[0]["step"] - 1
    ranks = [[line["samples"] for line in lines_of(log)[:done]] for log in logs]
    assert done >= 8 and merged(ranks) + list(chain(*(line["samples"] for line in rest))) == whole
