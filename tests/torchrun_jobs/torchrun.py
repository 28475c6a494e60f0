"""torchrun, whose processes are forks of it: `torchrun.py ARGUMENTS`, those of its command line."""

import sys

from torch.distributed.run import main

if __name__ == "__main__":
    main(["--run-path", "--start-method=fork", *sys.argv[1:]])
