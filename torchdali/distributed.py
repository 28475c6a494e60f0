"""Where this process stands: its rank among the data-parallel ones, and its device.

The only module that reads the environment.  Nothing is remembered: launchers fork, spawn and set variables late, so
the loader asks at each use.
"""

from __future__ import annotations

import math
import os
import warnings
from typing import TYPE_CHECKING, NamedTuple

import torch

from .cgroup import cpu_limit

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh


class Shard(NamedTuple):
    """This process among the data-parallel ones."""

    rank: int
    world_size: int


def check_shard(rank: int | None, world_size: int | None) -> Shard | None:
    """An explicit rank and world size, or None where neither is given.

    Raises:
        ValueError: only one of them, or a rank outside [0, world_size).
        TypeError: no integers.
    """
    if rank is None and world_size is None:
        return None
    if rank is None or world_size is None:
        raise ValueError(f"rank and world_size go together, got rank={rank} world_size={world_size}")
    if any(isinstance(value, bool) or not isinstance(value, int) for value in (rank, world_size)):
        raise TypeError(f"rank and world_size must be integers, got rank={rank!r} world_size={world_size!r}")
    if world_size < 1 or not 0 <= rank < world_size:
        raise ValueError(f"rank must be in [0, world_size), got rank={rank} world_size={world_size}")
    return Shard(rank, world_size)


def resolve_shard(explicit: Shard | None, mesh: DeviceMesh | None, group: ProcessGroup | None = None) -> Shard:
    """Explicit > mesh or process group > torch.distributed > torchrun's environment > alone.

    Raises:
        RuntimeError: WORLD_SIZE without RANK and without a process group.
        ValueError: a mesh of several dimensions or without this process, or invalid variables.
    """
    if explicit is not None:
        return explicit
    if mesh is not None:
        if mesh.ndim != 1:
            raise ValueError(f'mesh must be the 1-d data-parallel mesh, such as mesh["dp"], got {mesh.ndim} dimensions')
        if mesh.get_coordinate() is None:
            raise ValueError(f"this process is not in the mesh it was given: {mesh}")
        return Shard(mesh.get_local_rank(), mesh.size())
    dist = torch.distributed
    if group is not None:
        return Shard(dist.get_rank(group), dist.get_world_size(group))
    if dist.is_available() and dist.is_initialized():
        return Shard(dist.get_rank(), dist.get_world_size())
    world_size = _env("WORLD_SIZE", 1)
    if world_size <= 1:
        return Shard(0, 1)
    if "RANK" not in os.environ:
        raise RuntimeError(
            f"WORLD_SIZE={world_size} but there is no RANK and no process group: "
            "pass rank= and world_size=, or call torch.distributed.init_process_group first"
        )
    rank = _env("RANK", 0)
    if rank >= world_size:
        raise ValueError(f"the environment variables RANK={rank} and WORLD_SIZE={world_size} do not fit together")
    return Shard(rank, world_size)


_TASKS = {
    "SLURM_NTASKS": ("srun", "SLURM_PROCID"),
    "OMPI_COMM_WORLD_SIZE": ("mpirun", "OMPI_COMM_WORLD_RANK"),
    "PMI_SIZE": ("mpirun", "PMI_RANK"),
}
_warned: set[str] = set()


def warn_of_tasks(explicit: Shard | None, mesh: DeviceMesh | None, group: ProcessGroup | None = None) -> None:
    """Warn once where srun or mpirun started several tasks, and nothing says whether they share the data.

    The variables that they set are no rank: independent tasks would lose data.
    """
    dist = torch.distributed
    known = explicit is not None or mesh is not None or group is not None or "WORLD_SIZE" in os.environ
    if known or (dist.is_available() and dist.is_initialized()):
        return
    for size, (launcher, rank) in _TASKS.items():
        tasks = os.environ.get(size, "")
        if (
            not tasks.isdecimal()
            or int(tasks) < 2
            or size in _warned
            or (size == "SLURM_NTASKS" and _in_batch_script())
        ):
            continue
        _warned.add(size)
        warnings.warn(
            f"{launcher} started {tasks} tasks ({size}), and each of them reads the whole dataset, since there is no "
            "process group.  If they train together, call torch.distributed.init_process_group before the first batch, "
            f'or write rank=int(os.environ["{rank}"]), world_size={tasks}; if each is on its own, write rank=0, '
            "world_size=1",
            RuntimeWarning,
            stacklevel=2,
        )
        return


def _in_batch_script() -> bool:
    """Whether this is the batch script of a Slurm job, or what it starts by itself: one process, however many tasks."""
    job, first = "SLURM_JOB_ID" in os.environ, os.environ.get("SLURM_PROCID", "0") == "0"
    return job and first and "SLURM_STEP_ID" not in os.environ


def resolve_group(explicit: Shard | None, mesh: DeviceMesh | None, group: ProcessGroup | None) -> ProcessGroup | None:
    """The process group of the ranks that share one stream, or None where there is none to ask."""
    if explicit is not None:
        return None  # the caller's own count, whose group is not known
    if mesh is not None:
        return mesh.get_group()
    dist = torch.distributed
    if group is None and dist.is_available() and dist.is_initialized():
        return dist.group.WORLD
    return group


def own_gpu(device: torch.device) -> str:
    """A name of a GPU that a rank should have alone; "" for the CPU, and where there are not enough GPUs for that.

    Without LOCAL_WORLD_SIZE, several visible GPUs are taken to be enough.
    """
    if device.type != "cuda" or torch.cuda.device_count() < max(2, _env("LOCAL_WORLD_SIZE", 1)):
        return ""
    return f"{torch.cuda.get_device_name(device)} {torch.cuda.get_device_properties(device).uuid}"


def resolve_device(device: str | int | torch.device | None) -> torch.device:
    """Explicit, else this process's GPU, else the CPU; a GPU always with its index.

    Without an index it is the current GPU if that was chosen by `torch.cuda.set_device`, else LOCAL_RANK's.

    Raises:
        ValueError: a device that is neither "cpu" nor "cuda", or a GPU that is not there.
    """
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    device = check_device(device)
    if device.type == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ValueError(f"device={str(device)!r}, but torch sees no GPU here")
    index = device.index
    if index is None:
        current = torch.cuda.current_device()
        # torch.cuda.set_device wins: someone chose.  Device 0 may just mean that no one did.
        index = current if current else _env("LOCAL_RANK", 0) % torch.cuda.device_count()
    if index >= torch.cuda.device_count():
        raise ValueError(f"device='cuda:{index}', but torch sees {torch.cuda.device_count()} GPUs here")
    return torch.device("cuda", index)


def resolve_stream(stream: str | torch.cuda.Stream, device: torch.device) -> torch.cuda.Stream | None:
    """The CUDA stream to work on; None: a private one, and on the CPU.

    Args:
        stream: "private", "current" (in the calling thread), or a stream.
        device: of the loader.

    Raises:
        ValueError: a stream of another device.
    """
    if isinstance(stream, str):
        return torch.cuda.current_stream(device) if stream == "current" and device.type == "cuda" else None
    if stream.device != device:
        raise ValueError(f"stream must be one of the loader's device, {device}, got {stream} of {stream.device}")
    return stream


def alone_on_machine() -> bool:
    """Whether the launcher says that no other rank is on this machine."""
    return os.environ.get("LOCAL_WORLD_SIZE") == "1"


def check_device(device: str | int | torch.device) -> torch.device:
    """A torch device of a kind that torchdali serves.

    Raises:
        ValueError: any other.
    """
    try:
        checked = torch.device(device)
    except (RuntimeError, TypeError):
        checked = None
    if checked is None or checked.type not in ("cpu", "cuda"):
        raise ValueError(f"device must be 'cpu', 'cuda' or 'cuda:INDEX', got {device!r}")
    return checked


def default_num_threads() -> int:
    """DALI_NUM_THREADS, else the CPUs of this process divided by the ranks on this machine; at least 1.

    A container's limit counts, rounded up: threads beyond it would take turns.

    Raises:
        ValueError: a variable that is no positive number.
    """
    if "DALI_NUM_THREADS" in os.environ:
        return _env("DALI_NUM_THREADS", 1)
    cpus, limit = len(os.sched_getaffinity(0)), cpu_limit()
    if limit is not None:
        cpus = min(cpus, math.ceil(limit))
    return max(1, cpus // _env("LOCAL_WORLD_SIZE", 1))


def _env(name: str, default: int) -> int:
    text = os.environ.get(name, str(default))
    smallest = 0 if name.endswith("RANK") else 1
    if not text.isdecimal() or int(text) < smallest:
        raise ValueError(f"the environment variable {name} must be an integer of at least {smallest}, got {text!r}")
    return int(text)
