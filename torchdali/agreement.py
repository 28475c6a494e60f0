"""Do the ranks of a job read one stream?  One small exchange before the first batch of a pass."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from .errors import RankMismatchError

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

MAX_VALUES = 4  # of one fact in a message


def check_agreement(
    facts: Mapping[str, int | str], group: ProcessGroup, *, gpu: str = "", device: torch.device | None = None
) -> None:
    """Raise on every rank alike, unless all ranks of a group come with the same facts.

    A collective of the group: all its ranks call it, in the same order among the group's other collectives, and from
    one thread.  It gathers 24 bytes a rank; only where something differs, the facts themselves.  Where a rank never
    comes it waits for as long as any collective of the group does (`timeout` of `init_process_group`), and then fails
    with the backend's error.

    Args:
        facts: what has to be equal on all ranks, by name.
        group: the ranks that share one stream; not their tensor- or pipeline-parallel peers.
        gpu: a name of this rank's GPU, unlike that of any other GPU in the job, if the rank should have it alone; ""
            if it may share it.
        device: where the tensors go if the group's backend takes none on the CPU; None: the current GPU.

    Raises:
        RankMismatchError: which facts differ, or which ranks share a GPU.  Ranks are counted in the whole job.
    """
    size = dist.get_world_size(group)
    if size == 1:
        return
    text = json.dumps([dict(sorted(facts.items())), gpu]).encode()
    known = [_hash(dict(sorted(facts.items()))), _hash(gpu) if gpu else 0, len(text)]
    place = _place(group, device)
    try:
        rows = [row.tolist() for row in _gather(torch.tensor(known, dtype=torch.int64, device=place), group)]
    except RuntimeError as error:
        error.add_note(
            "this was the comparison before the first batch of a pass, which all ranks of the loader's group make: "
            "is there one that does not iterate, or does so while it is in another collective?"
        )
        raise
    gpus = [row[1] for row in rows if row[1]]
    if len({row[0] for row in rows}) == 1 and len(set(gpus)) == len(gpus):
        return
    padded = text.ljust(max(row[2] for row in rows))
    texts = _gather(torch.frombuffer(bytearray(padded), dtype=torch.uint8).to(place), group)
    found = [json.loads(bytes(text.cpu().numpy())) for text in texts]
    ranks = dist.get_process_group_ranks(group)
    differences = _differences([facts for facts, _ in found], ranks)
    if differences:
        raise RankMismatchError(
            "the ranks of this job do not read one stream:\n  " + "\n  ".join(differences) + "\n"
            "every rank must have the same; samples differ over ranks by themselves. "
            "Ranks that are no data-parallel peers are told apart by mesh= or process_group="
        )
    raise RankMismatchError("\n".join(_crowds([gpu for _, gpu in found], ranks)))


def _hash(value: Any) -> int:
    """63 bits, never 0."""
    return int.from_bytes(hashlib.blake2b(json.dumps(value).encode(), digest_size=8).digest(), "big") >> 1 or 1


def _place(group: ProcessGroup, device: torch.device | None) -> torch.device:
    """A device of which the group takes tensors; the CPU where it can be, since a GPU's queue is full of training."""
    kinds = [pair.partition(":")[0] for pair in dist.get_backend_config(group).split(",")]
    if "cpu" in kinds:
        return torch.device("cpu")
    return device if device is not None and device.type in kinds else torch.device(kinds[0])


def _gather(tensor: torch.Tensor, group: ProcessGroup) -> list[torch.Tensor]:
    out = [torch.empty_like(tensor) for _ in range(dist.get_world_size(group))]
    dist.all_gather(out, tensor, group=group)
    return out


def _differences(found: Sequence[Mapping[str, int | str]], ranks: Sequence[int]) -> list[str]:
    """A line for each fact that is not the same everywhere; what most ranks have comes first."""
    lines = []
    for name in dict.fromkeys(name for facts in found for name in facts):
        owners: dict[str, list[int]] = {}
        for rank, facts in zip(ranks, found, strict=True):
            owners.setdefault(repr(facts[name]) if name in facts else "missing", []).append(rank)
        if len(owners) == 1:
            continue
        most_first = sorted(owners.items(), key=lambda item: -len(item[1]))
        parts = [f"{_short(value)} on {_named(at)}" for value, at in most_first]
        more = [f"and {len(parts) - MAX_VALUES} other values"] if len(parts) > MAX_VALUES else []
        lines.append(f"{name}: " + "; ".join(parts[:MAX_VALUES] + more))
    return lines


def _crowds(gpus: Sequence[str], ranks: Sequence[int]) -> list[str]:
    """A sentence for each GPU with more than one rank."""
    owners: dict[str, list[int]] = {}
    for rank, gpu in zip(ranks, gpus, strict=True):
        owners.setdefault(gpu, []).append(rank)
    return [
        f"{_named(at)} share one GPU, {gpu}, though there is one for each: leave device= out where the launcher "
        "sets LOCAL_RANK, or give each rank its own by device= or torch.cuda.set_device"
        for gpu, at in owners.items()
        if gpu and len(at) > 1
    ]


def _short(value: str) -> str:
    """At most 230 characters, and other ones for another value."""
    return value if len(value) <= 200 else f"{value[:200]}... (hash {_hash(value):x})"


def _named(ranks: Iterable[int]) -> str:
    """Such as "rank 3", or "ranks 0-2, 5"."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    text = ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
    return f"rank{'s' if len(runs) > 1 or len(runs[0]) > 1 else ''} {text}"
