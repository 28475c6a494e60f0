"""Programs that torchrun starts on several processes, and how the tests start them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
SET_BY_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "DALI_NUM_THREADS")


def start(program: str, processes: int, *arguments: object, restarts: int = 0) -> subprocess.Popen[str]:
    """A job of torchrun, by its launcher; stderr is piped."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {name: value for name, value in os.environ.items() if name not in SET_BY_TORCHRUN}
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"),
            *(f"--nproc-per-node={processes}", f"--max-restarts={restarts}"),
            *map(str, (Path(__file__).parent / f"{program}.py", *arguments)),
        ],
        env={
            **environment,
            "PYTHONPATH": path,
            "OMP_NUM_THREADS": "1",
            # No look-up of the host's name: it can take a minute where there is no network.
            "GLOO_SOCKET_IFNAME": "lo",
            # Else a restarted job may connect to the addresses of the processes before it: pytorch/pytorch#135712.
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        },
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(job: subprocess.Popen[str], timeout: float = 120) -> None:
    """Wait for a job, which must succeed."""
    try:
        _, errors = job.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        job.terminate()  # torchrun ends its processes
        _, errors = job.communicate(timeout=60)
        errors += f"\nno end within {timeout} s"
    assert job.returncode == 0, errors[-6000:]
