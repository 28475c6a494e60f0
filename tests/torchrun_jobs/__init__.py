"""Programs that run on several processes, and torchrun itself, which starts those that are about restarts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ..launcher import ONE_THREAD, ROOT, SET_BY_TORCHRUN

FOLDER = Path(__file__).parent
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]


def torchrun(program: str, processes: int, *arguments: object, restarts: int) -> subprocess.Popen[str]:
    """A job of torchrun, by its launcher; stderr is piped."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {name: value for name, value in os.environ.items() if name not in SET_BY_TORCHRUN}
    return subprocess.Popen(
        [
            *TORCHRUN,
            *(f"--nproc-per-node={processes}", f"--max-restarts={restarts}"),
            *map(str, (FOLDER / f"{program}.py", *arguments)),
        ],
        env={
            **environment,
            **ONE_THREAD,
            "PYTHONPATH": path,
            # Else a restarted job may connect to the addresses of the processes before it: pytorch/pytorch#135712.
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        },
        stderr=subprocess.PIPE,
        text=True,
    )
