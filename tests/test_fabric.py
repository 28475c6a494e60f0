"""Lightning Fabric, which takes the loader by setup_dataloaders: on one process, and on two."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data

import torchdali as td

from .launcher import finish, start

pytestmark = [pytest.mark.processes]
PACKAGES = ["lightning_fabric", "lightning.fabric"]
N = 23


def make(**options: Any) -> td.DataLoader:
    data = td.InMemoryDataset(x=np.arange(N), fields=("x",))
    return td.DataLoader(data, **({"batch_size": 4, "shuffle": True, "seed": 3, "device": "cpu"} | options))


def numbers(loader: Any) -> list[list[int]]:
    return [batch[0].tolist() for batch in loader]


def fabric(package: str, **options: Any) -> Any:
    module = __import__(package, fromlist=["Fabric"])
    return module.Fabric(**({"accelerator": "cpu", "devices": 1} | options))


@pytest.mark.parametrize("package", PACKAGES)
def test_one_process(package: str, tmp_path: Path) -> None:
    one = fabric(package)
    plain, torchs = make(), torch.utils.data.DataLoader(range(3))  # type: ignore[arg-type]
    wrapped, other = one.setup_dataloaders(make(), torchs)
    assert len(wrapped) == len(plain) and len(other) == 3
    assert len(wrapped.dataset) == len(plain.dataset) and wrapped.batch_size == plain.batch_size
    epochs = [numbers(wrapped) for _ in range(2)]
    assert epochs == [numbers(plain) for _ in range(2)] and epochs[0] != epochs[1]
    # In the middle of the third epoch, and on from there in another process: Fabric counts passes from 0 again.
    iterator = iter(wrapped)
    begun = [next(iterator)[0].tolist() for _ in range(2)]
    one.save(tmp_path / "state", {"loader": wrapped})
    fresh = one.setup_dataloaders(make())
    one.load(tmp_path / "state", {"loader": fresh})
    assert begun + numbers(fresh) == numbers(plain) and numbers(fresh) == numbers(plain)


def test_a_loader_is_no_other_class() -> None:
    loader = make()
    assert type(loader) is loader.__class__ is td.DataLoader
    assert not isinstance(loader, torch.utils.data.DataLoader) and isinstance(loader, td.DataLoader)
    for other in (copy.copy(loader), pickle.loads(pickle.dumps(loader))):
        assert type(other) is td.DataLoader and numbers(other) == numbers(make())
    with pytest.raises(TypeError, match="a loader stays one"):
        loader.__class__ = dict


SCRIPT = """
import json, sys
from pathlib import Path
import numpy as np, torch, torchdali as td
from lightning.fabric import Fabric

fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
fabric.launch()
data = td.InMemoryDataset(x=np.arange(23), fields=("x",))
loader = fabric.setup_dataloaders(td.DataLoader(data, 4, shuffle=True, seed=3, device="cpu"))
model = fabric.setup(torch.nn.Linear(1, 1))
epochs = []
for _ in range(2):
    epochs.append([])
    for (x,) in loader:
        fabric.backward(model(x[:, None].float()).mean())
        epochs[-1].append(x.tolist())
Path(sys.argv[1], str(fabric.global_rank)).write_text(json.dumps(epochs))
"""


@pytest.mark.slow
def test_two_processes(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    finish(start(script, tmp_path, processes=2, preload=["lightning.fabric"]))
    ranks = [json.loads((tmp_path / f"{rank}").read_text()) for rank in range(2)]
    whole = make(batch_size=8)
    for epoch in range(2):
        steps = [sum(step, []) for step in zip(ranks[0][epoch], ranks[1][epoch], strict=True)]  # noqa: RUF017
        assert steps == numbers(whole) and sorted(sum(steps, [])) == list(range(N))  # noqa: RUF017
