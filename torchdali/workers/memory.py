"""Reserve memory that processes share: anonymous files."""

from __future__ import annotations

import errno
import os
import resource

from ..cgroup import memory_left
from ..errors import SharedMemoryError


def available() -> int:
    """Count the bytes of memory that are left to this process, on the machine and in its control groups."""
    with open("/proc/meminfo") as file:
        lines = dict(line.split(":") for line in file)
    machine = sum(int(lines[key].split()[0]) for key in ("MemAvailable", "SwapFree")) * 1024
    group = memory_left()
    return max(0, machine if group is None else min(machine, group))


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
