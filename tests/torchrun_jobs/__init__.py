"""Programs that run on several processes, and torchrun itself, which starts those that are about restarts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ..launcher import ONE_THREAD, ROOT, SET_BY_TORCHRUN, Program, start

FOLDER = Path(__file__).parent
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
# Else a restarted job may connect to the addresses of the processes before it: pytorch/pytorch#135712.
OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


def torchrun(program: str, processes: int, *arguments: object, restarts: int) -> Program:
    """A job of torchrun, whose processes are forks of its launcher."""
    options = [*TORCHRUN[3:], f"--nproc-per-node={processes}", f"--max-restarts={restarts}"]
    return start(
        FOLDER / "torchrun.py", *options, FOLDER / f"{program}.py", *arguments,
        preload=["torch.distributed.run", "torch.nn.parallel"], environment=OWN_STORE,
    )  # fmt: skip


def torchrun_machine(program: str, *arguments: object, number: int, port: int, restarts: int) -> subprocess.Popen[str]:
    """One of two machines of a job, with one process each, which goes on when the second is lost; stderr is piped.

    The launchers meet at a port of the first.  They wait a second for machines that may come, and miss one after five.
    """
    meeting = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=5"
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--nnodes=1:2", "--nproc-per-node=1"),
        *("--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=tests", "--local-addr=127.0.0.1"),
        *(f"--rdzv-conf=is_host={number == 0},{meeting}", f"--max-restarts={restarts}"),
        *map(str, (FOLDER / f"{program}.py", *arguments)),
    ]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {name: value for name, value in os.environ.items() if name not in SET_BY_TORCHRUN}
    return subprocess.Popen(
        command, env={**environment, **ONE_THREAD, **OWN_STORE, "PYTHONPATH": path}, stderr=subprocess.PIPE, text=True
    )
