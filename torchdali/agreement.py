"""Do the ranks of a job read one stream?  They compare where they stand before the first batch of a pass.

They meet at their group's store and not in a collective: a rank that comes alone, to evaluate while the others train,
would wait in one collective and the others in another.
"""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from .errors import LoaderTimeoutError, RankMismatchError
from .waits import LONGEST, Waited

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store
    from torch.distributed import ProcessGroup

MAX_VALUES = 4  # of one fact in a message
PATIENCE = 10.0  # seconds that a rank waits for the others before it says so
_LONGEST_SLEEP = 0.05  # seconds between two looks, times the number of hundreds of ranks


def check_agreement(facts: Mapping[str, int | str], group: ProcessGroup, *, gpu: str = "") -> None:
    """Raise on every rank alike, unless all ranks of a group come with the same facts.

    All ranks of the group call it equally often.  It waits for them at the group's store: no collective is disturbed,
    and no GPU.  The last rank to come compares, and the others read what it found.  A group without a store (MPI) is
    not compared.

    Args:
        facts: what has to be equal on all ranks, by name.
        group: the ranks that share one stream; not their tensor- or pipeline-parallel peers.
        gpu: a name of this rank's GPU, unlike that of any other GPU in the job, if the rank should have it alone; ""
            if it may share it.

    Raises:
        RankMismatchError: which facts differ, or which ranks share a GPU.  Ranks are counted in the whole job.
        LoaderTimeoutError: some ranks have not come within the group's timeout (`timeout` of `init_process_group`).

    Warns:
        RuntimeWarning: some ranks have not come within 10 seconds.
    """
    store = _store_of(group)
    if store is None:
        return
    meeting = _Meeting(group, store)
    try:
        text = meeting.verdict([dict(sorted(facts.items())), gpu])
    except BaseException:
        meeting.leave()
        raise
    if text:
        raise RankMismatchError(text)


class _Meeting:
    """One comparison: a key in the store for each rank, and one for what the last rank found.

    The store itself counts the meetings of each rank, so that a group that is made anew on an old store goes on with
    the right number.
    """

    def __init__(self, group: ProcessGroup, store: Store) -> None:
        self.store, self.ranks = store, dist.get_process_group_ranks(group)
        self.seconds = _timeout_of(group)
        self.rank = dist.get_rank(group)
        self.number = store.add(f"torchdali/meetings of {self.rank}", 1)
        self.came = False

    def _key(self, what: object, number: int | None = None) -> str:
        return f"torchdali/{self.number if number is None else number}/{what}"

    def verdict(self, own: Any) -> str:
        """Meet the others; the fault that was found, "" where there is none."""
        self._forget(self.number - 2)  # who comes to a meeting has left the one before the last
        self.store.set(self._key(self.rank), json.dumps(own))
        self.came = True
        if self.store.add(self._key("came"), 1) == len(self.ranks):
            found = [json.loads(text) for text in self.store.multi_get([self._key(i) for i in range(len(self.ranks))])]
            text = _fault([facts for facts, _ in found], [gpu for _, gpu in found], self.ranks)
            self.store.set(self._key("verdict"), text or " ")  # some stores take no empty values
        else:
            self._wait()
        return self.store.get(self._key("verdict")).decode().strip()

    def _wait(self) -> None:
        """Wait for the verdict: by looks, since a wait inside the store would keep other threads from it."""
        waited, said, sleep = Waited(), False, 0.001
        while not self.store.check([self._key("verdict")]):
            if waited.seconds > self.seconds:
                raise LoaderTimeoutError(self._absence(f"{self.seconds:g} s, the timeout of their process group"))
            if waited.seconds > PATIENCE and not said:
                said = True
                warnings.warn(
                    f"{self._absence(f'{waited.seconds:.0f} s')}; rank {self.ranks[self.rank]} waits on, for at most "
                    f"{self.seconds:g} s, the timeout of their process group",
                    RuntimeWarning,
                    stacklevel=2,
                )
            with waited.part(sleep + LONGEST):
                time.sleep(sleep)
            sleep = min(2 * sleep, _LONGEST_SLEEP * max(1.0, len(self.ranks) / 100))

    def _absence(self, time_text: str) -> str:
        missing = [rank for i, rank in enumerate(self.ranks) if not self.store.check([self._key(i)])]
        others = sorted(set(self.ranks) - set(missing))
        return (
            f"{_named(missing) if missing else 'a rank'} did not come to this pass of the loader within {time_text}, "
            f"and {_named(others)} did: all ranks of a loader's group begin each pass together, to compare where they "
            "stand.  For a loader that one rank reads alone, to evaluate, say, write rank=0, world_size=1"
        )

    def leave(self) -> None:
        """Take back that this rank came, so that its next meeting is that of the others."""
        with suppress(RuntimeError):  # the store's host may be gone
            if self.came:
                # Its facts stay, for those that wait on and name who has not come; its next ones replace them.
                self.store.add(self._key("came"), -1)
            self.store.add(f"torchdali/meetings of {self.rank}", -1)

    def _forget(self, number: int) -> None:
        own = [self.rank, *(("came", "verdict") if self.rank == 0 else ())]
        with suppress(RuntimeError):  # a store that can't delete
            for what in own if number > 0 else ():
                self.store.delete_key(self._key(what, number))


def _store_of(group: ProcessGroup) -> Store | None:
    """The store at which the ranks of a group meet; None where there is none, or no one to meet."""
    if dist.get_world_size(group) == 1 or dist.get_backend(group) == "fake":
        return None
    store: Store | None = dist.distributed_c10d._world.pg_map[group][1]
    return store


def _timeout_of(group: ProcessGroup) -> float:
    """The group's timeout in seconds."""
    kind = dist.get_backend_config(group).partition(":")[0]
    with suppress(AttributeError, RuntimeError):  # a backend that keeps none
        timeout: float = group._get_backend(torch.device(kind)).options._timeout.total_seconds()
        return timeout
    return dist.distributed_c10d.default_pg_timeout.total_seconds()


def _fault(facts: Sequence[Mapping[str, int | str]], gpus: Sequence[str], ranks: Sequence[int]) -> str:
    """Describe what differs between all ranks' facts and GPUs; "" where nothing does."""
    differences = _differences(facts, ranks)
    if differences:
        return (
            "the ranks of this job do not read one stream:\n  " + "\n  ".join(differences) + "\n"
            "every rank must have the same; samples differ over ranks by themselves. "
            "Ranks that are no data-parallel peers are told apart by mesh= or process_group="
        )
    return "\n".join(_crowds(gpus, ranks))


def _hash(value: Any) -> int:
    """63 bits, never 0."""
    return int.from_bytes(hashlib.blake2b(json.dumps(value).encode(), digest_size=8).digest(), "big") >> 1 or 1


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
