"""torchrun, whose processes are forks of it: `torchrun.py PIDFILE ARGUMENTS`.  It writes its pid first."""

import os
import sys
from pathlib import Path

from torch.distributed.run import main

if __name__ == "__main__":
    Path(sys.argv[1]).write_text(str(os.getpid()))
    main(["--run-path", "--start-method=fork", *sys.argv[2:]])
