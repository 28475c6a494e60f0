"""Programs that run on several processes, and torchrun itself, which starts those that are about restarts."""

from __future__ import annotations

import sys
from pathlib import Path

from ..launcher import Program, start

FOLDER = Path(__file__).parent
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]


def torchrun(program: str, processes: int, *arguments: object, out: Path, restarts: int) -> Program:
    """A job of torchrun on this machine; its pid is written to OUT/torchrun.pid."""
    options = [*TORCHRUN[3:], f"--nproc-per-node={processes}", f"--max-restarts={restarts}"]
    return _start(out / "torchrun.pid", options, program, arguments)


def torchrun_machine(program: str, *arguments: object, out: Path, number: int, port: int, restarts: int) -> Program:
    """One of two machines of a job, with one process each, which goes on when the second is lost.

    The launchers meet at a port of the first.  They wait a second for machines that may come, and miss one after five.
    The pid of each is written to OUT/torchrun.NUMBER.pid.
    """
    meeting = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=5"
    options = [
        *("--nnodes=1:2", "--nproc-per-node=1", f"--max-restarts={restarts}", "--local-addr=127.0.0.1"),
        *("--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=tests"),
        f"--rdzv-conf=is_host={number == 0},{meeting}",
    ]
    return _start(out / f"torchrun.{number}.pid", options, program, arguments)


def _start(pid: Path, options: list[str], program: str, arguments: tuple[object, ...]) -> Program:
    return start(
        FOLDER / "torchrun.py", pid, *options, FOLDER / f"{program}.py", *arguments,
        preload=["torch.distributed.run", "torch.nn.parallel"],
        # Else a restarted job may connect to the addresses of the processes before it: pytorch/pytorch#135712.
        environment={"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
    )  # fmt: skip
