"""Limits of containers, in trees as the kernel shows them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchdali import distributed
from torchdali.cgroup import cpu_limit, memory_left
from torchdali.workers import memory

V1 = "12:cpuset:/docker/a\n4:cpu,cpuacct:/docker/a\n9:memory:/docker/a\n1:name=systemd:/docker/a\n"
JOINT = "cpu,cpuacct/docker/a"
STAT = "inactive_file 10\nactive_file 20\nanon 500\n"


def tree(root: Path, groups: str, files: dict[str, str]) -> str:
    for name, text in {
        "proc/self/cgroup": groups,
        **{f"sys/fs/cgroup/{name}": text for name, text in files.items()},
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/\n", {"cpu.max": "250000 100000\n"}, 2.5),
        ("0::/\n", {"cpu.max": "max 100000\n"}, None),
        ("0::/\n", {}, None),
        ("", {"cpu.max": "250000 100000\n"}, None),
        # The nearest is not the tightest; and a container that sees its own group as the topmost one.
        ("0::/job/step\n", {"job/step/cpu.max": "max 100000\n", "job/cpu.max": "300000 100000\n"}, 3.0),
        ("0::/job/step\n", {"job/step/cpu.max": "100000 100000\n", "job/cpu.max": "300000 100000\n"}, 1.0),
        ("0::/docker/a\n", {"cpu.max": "50000 100000\n"}, 0.5),
        (V1, {f"{JOINT}/cpu.cfs_quota_us": "400000\n", f"{JOINT}/cpu.cfs_period_us": "100000"}, 4.0),
        (V1, {"cpu/cpu.cfs_quota_us": "150000\n", "cpu/cpu.cfs_period_us": "100000"}, 1.5),
        (V1, {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000"}, None),
        (V1 + "0::/\n", {"unified/cpu.max": "200000 100000"}, 2.0),
    ],
)  # fmt: skip
def test_cpus(tmp_path: Path, groups: str, files: dict[str, str], expected: float | None) -> None:
    assert cpu_limit(tree(tmp_path, groups, files)) == expected


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/\n", {"memory.max": "1000\n", "memory.current": "600\n", "memory.stat": STAT}, 430),
        ("0::/\n", {"memory.max": "max\n", "memory.current": "600\n", "memory.stat": STAT}, None),
        ("0::/a\n", {"a/memory.max": "max", "memory.max": "900", "memory.current": "900", "memory.stat": STAT}, 30),
        (
            V1,
            {
                "memory/docker/a/memory.limit_in_bytes": "1000\n",
                "memory/docker/a/memory.usage_in_bytes": "900\n",
                "memory/docker/a/memory.stat": "cache 5\ntotal_inactive_file 1\ntotal_active_file 2\n",
            },
            103,
        ),
        ("", {}, None),
    ],
)
def test_memory(tmp_path: Path, groups: str, files: dict[str, str], expected: int | None) -> None:
    assert memory_left(tree(tmp_path, groups, files)) == expected


def test_no_control_groups(tmp_path: Path) -> None:
    assert cpu_limit(str(tmp_path)) is None and memory_left(str(tmp_path)) is None


@pytest.mark.parametrize(("limit", "threads"), [(0.5, 1), (2.5, 3), (100.0, 8), (None, 8)])
def test_the_default_number_of_threads(monkeypatch: pytest.MonkeyPatch, limit: float | None, threads: int) -> None:
    for name in ("DALI_NUM_THREADS", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setattr(distributed, "cpu_limit", lambda: limit)
    assert distributed.default_num_threads() == threads
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert distributed.default_num_threads() == max(1, threads // 2)


def test_workers_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for left, expected in ((12345, 12345), (-5, 0)):
        monkeypatch.setattr(memory, "memory_left", lambda left=left: left)
        assert memory.available() == expected
    monkeypatch.setattr(memory, "memory_left", lambda: None)
    assert memory.available() > 1 << 20
