"""Limits of this process's control groups, set by containers and schedulers: CPUs and memory, in versions 1 and 2."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress


def cpu_limit(root: str = "/") -> float | None:
    """Give the CPUs that the process may use at a time, such as 2.5; None where nothing limits them.

    Args:
        root: the folder below which /proc and /sys are.
    """
    limits = []
    for folder in _folders(root, ""):
        with suppress(OSError, ValueError, ZeroDivisionError):  # there is no limit, or "max" is it
            quota, period = map(int, _text(folder, "cpu.max").split())
            limits.append(quota / period)
    for folder in _folders(root, "cpu"):
        with suppress(OSError, ValueError, ZeroDivisionError):
            quota, period = int(_text(folder, "cpu.cfs_quota_us")), int(_text(folder, "cpu.cfs_period_us"))
            limits.append(quota / period)
    return min((limit for limit in limits if limit > 0), default=None)  # version 1 says -1


def memory_left(root: str = "/") -> int | None:
    """Count the bytes of memory that the process may still take; None where nothing limits them.

    Files' cached pages count as free: the kernel takes them back.
    """
    left = []
    for folder in _folders(root, ""):
        with suppress(OSError, ValueError, KeyError):
            cached = _numbers(folder, "memory.stat")
            free = int(_text(folder, "memory.max")) - int(_text(folder, "memory.current"))
            left.append(free + cached["inactive_file"] + cached["active_file"])
    for folder in _folders(root, "memory"):
        with suppress(OSError, ValueError, KeyError):
            cached = _numbers(folder, "memory.stat")
            free = int(_text(folder, "memory.limit_in_bytes")) - int(_text(folder, "memory.usage_in_bytes"))
            left.append(free + cached["total_inactive_file"] + cached["total_active_file"])
    return min(left, default=None)


def _folders(root: str, controller: str) -> Iterator[str]:
    """Give the folders of the process's group and of those that it is in; "": those of version 2.

    A container may show its own group as the topmost one, whatever its name is outside.
    """
    base = os.path.join(root, "sys/fs/cgroup")
    with suppress(OSError):
        with open(os.path.join(root, "proc/self/cgroup")) as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
        for number, controllers, path in lines:
            names = controllers.split(",")
            if controller not in names or (number == "0") != (controller == ""):
                continue
            mounts = [controllers, controller] if controller else ["", "unified"]
            for mount in dict.fromkeys(mounts):
                group = path.strip("/")
                while group:
                    yield os.path.join(base, mount, group)
                    group = os.path.dirname(group)
                yield os.path.join(base, mount)


def _text(folder: str, name: str) -> str:
    with open(os.path.join(folder, name)) as file:
        return file.read().strip()


def _numbers(folder: str, name: str) -> dict[str, int]:
    return {key: int(value) for key, value in (line.split() for line in _text(folder, name).splitlines())}
