"""Reserve memory that processes share: anonymous files."""

from __future__ import annotations

import errno
import os
import resource
from contextlib import suppress

from ..errors import SharedMemoryError


def available() -> int:
    """Count the bytes of memory that are left to this process, on the machine and in its control group (v2)."""
    with open("/proc/meminfo") as file:
        lines = dict(line.split(":") for line in file)
    sizes = [sum(int(lines[key].split()[0]) for key in ("MemAvailable", "SwapFree")) * 1024]
    with suppress(OSError, ValueError, KeyError):  # no control group, or one without a limit
        with open("/proc/self/cgroup") as file:
            path = next(line[3:].strip() for line in [*file, "0::/"] if line.startswith("0::"))
        folder = f"/sys/fs/cgroup{path}/memory."
        with open(folder + "max") as limit, open(folder + "current") as current, open(folder + "stat") as stat:
            cached = {key: int(value) for key, value in (line.split() for line in stat)}
            free = int(limit.read()) - int(current.read())
        sizes.append(free + cached["inactive_file"] + cached["active_file"])
    return max(0, min(sizes))


def allocate(name: str, size: int) -> int:
    """Reserve memory that other processes can map, as a file descriptor.

    Raises:
        SharedMemoryError: there is too little.
    """
    free = available()
    if size > free:
        raise SharedMemoryError(size, free)
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    try:
        # Without it, too little memory would be a SIGBUS at a later write.
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        os.close(fd)
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0] if error.errno == errno.EFBIG else available()
        raise SharedMemoryError(size, limit) from error
    return fd
