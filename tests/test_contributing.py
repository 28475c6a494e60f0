"""What CONTRIBUTING.md says can be added is added here, from outside the package: one of each kind."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import torchdali as td
from torchdali import transforms as T
from torchdali.batch import BadSample
from torchdali.commands import frame
from torchdali.commands.command import wrong_input
from torchdali.commands.main import main
from torchdali.commands.terminal import say, say_json
from torchdali.fingerprint import digest
from torchdali.moves import Crop
from torchdali.order import Epoch, Order, Rows
from torchdali.readers.base import Output
from torchdali.state import Position
from torchdali.testing import assert_resumes_exactly, assert_same_stream, truncate_file

ROOT = Path(__file__).parent.parent
N = 22


def load(dataset: Any, **options: Any) -> td.DataLoader:
    return td.DataLoader(dataset, **{"batch_size": 4, "device": "cpu", "seed": 3, **options})


# A transform


@dataclass(frozen=True)
class Brighten(T.Transform):
    """Add up to `most` levels to each image."""

    most: int = 40

    def make_params(self, rand: Any, sizes: Any) -> Any:
        return {"levels": rand.integers(0, self.most + 1).astype(np.int32)}, sizes

    def transform(self, ops: Any, image: Any, levels: Any) -> Any:
        return ops.cast_like(ops.math.clamp(image + levels, 0, 255), image)

    def transform_host(self, image: torch.Tensor, out: Any = None, levels: int = 0) -> torch.Tensor:
        return (image.to(torch.int32) + levels).clamp_(0, 255).to(torch.uint8)


@dataclass(frozen=True)
class BrightenInDali(Brighten):
    """The same with one form."""

    on_host = False


def test_a_transform(folder: Path) -> None:
    def loader(kind: type[Brighten], **options: Any) -> td.DataLoader:
        return load(td.ImageFolder(folder), transform=T.Compose([T.CenterCrop(24), kind()]), **options)

    plain = load(td.ImageFolder(folder), transform=T.CenterCrop(24))
    for (before, _), (images, _) in zip(plain, loader(Brighten), strict=True):
        added = (images.int() - before.int()).flatten(1)
        assert (added >= 0).all() and added.max() <= 40 and added.max() > 0
    assert_resumes_exactly(lambda: loader(Brighten))
    assert_same_stream(
        *(lambda engine=engine: loader(Brighten, engine=engine) for engine in ("eager", "pipeline", "debug"))
    )


# A mover


@dataclass(frozen=True)
class Shift(T.Mover):
    """Move images to the right by up to `most` pixels."""

    most: int = 8

    needs_sizes = True

    def make_params(self, rand: Any, sizes: Any) -> Any:
        right = rand.integers(1, self.most + 1)
        return {"start": np.stack([0 * right, -right], 1), "shape": sizes}, sizes

    def moves(self, params: Any) -> list[Any]:
        return [Crop(params["start"], params["shape"], fill=9)]


def test_a_mover() -> None:
    """It says what it drew, and images, masks and boxes move alike, in all engines."""
    column = np.random.default_rng(0).integers(10, 255, (N, 12, 20, 3), dtype=np.uint8)
    dataset = td.InMemoryDataset(image=column, mask=column[..., 0], boxes=np.full((N, 1, 4), 6.0, np.float32))
    kinds = {"mask": "mask", "boxes": "boxes"}

    def loader(**options: Any) -> td.DataLoader:
        return load(dataset, transform=Shift(), kinds=kinds, **options)

    for number, (images, masks, boxes) in enumerate(loader()):
        for i, (image, mask, (box,)) in enumerate(zip(images, masks, boxes.unbind(), strict=True)):
            right = int(box[0] - 6)
            assert 1 <= right <= 8 and box.tolist() == [6 + right, 6, 6 + right, 6]
            before = torch.from_numpy(column[4 * number + i]).permute(2, 0, 1)[..., : 20 - right]
            assert torch.equal(image[..., right:], before) and (image[..., :right] == 9).all()
            assert torch.equal(mask[:, right:], before[0]) and not mask[:, :right].any()
    assert_same_stream(*(lambda engine=engine: loader(engine=engine) for engine in ("eager", "pipeline", "debug")))


# A container format, and its dataset


def parse(path: Path) -> list[int]:
    """The format: one number per line."""
    return [int(line) for line in path.read_text().splitlines()]


class LineDataset(td.MapDataset):
    """The numbers in a text file."""

    def __init__(self, path: Path, fields: Sequence[str] = ("number",)) -> None:
        self.numbers = parse(path)
        self._set_fields(fields, {"number": "number"})

    def __len__(self) -> int:
        return len(self.numbers)

    def read_columns(self, indices: Sequence[int], names: Sequence[str]) -> dict[str, Any]:
        return {"number": np.array([self.numbers[i] for i in indices])}

    def fingerprint(self) -> str:
        return f"{len(self)} lines {digest(self.numbers)}"


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "numbers.txt"
    path.write_text("".join(f"{number * 10}\n" for number in range(N)))
    return path


def test_a_container_format(lines: Path) -> None:
    assert sorted(torch.cat([number for (number,) in load(LineDataset(lines), shuffle=True)]).tolist()) == [
        number * 10 for number in range(N)
    ]
    assert_resumes_exactly(lambda: load(LineDataset(lines), shuffle=True))
    assert LineDataset(lines, ("number", "index"))[-1] == (210, 21)


# A native reader


class Files(td.readers.Reader):
    """DALI's file reader, with the labels doubled."""

    full_shuffle = True

    def __init__(self, file_root: Path, **options: Any) -> None:
        import nvidia.dali.experimental.dynamic as ndd

        super().__init__(ndd.readers.File, None, file_root=file_root, **options)

    def describe(self, fields: Sequence[str]) -> list[Output]:
        return [Output("image", "encoded"), Output("twice", "number", lambda label: int(label[0]) * 2)]


def test_a_native_reader(folder: Path) -> None:
    def loader() -> td.DataLoader:
        return load(Files(folder, shuffle="full"), transform=T.Resize((8, 8)))

    assert sorted(torch.cat([twice for _, twice in loader()]).tolist()) == [0] * 11 + [2] * 11
    assert_resumes_exactly(loader)


# An order


class EvenFirst(Order):
    """The even samples, then the odd ones; both from the back in every second epoch."""

    def __init__(self, n: int) -> None:
        self.dataset_size = n

    def epoch(self, seed: int, at: Position) -> Epoch:
        n, evens = self.dataset_size, (self.dataset_size + 1) // 2

        def rows(positions: np.ndarray) -> Rows:
            places = n - 1 - positions if at.epoch % 2 else positions
            indices = np.where(places < evens, places * 2, (places - evens) * 2 + 1)
            return Rows(indices, indices.astype(np.uint64))

        return Epoch(n, rows)

    def fingerprint(self, seed: int = 0, world_size: int = 1) -> str:
        return "even first"


def test_an_order(lines: Path) -> None:
    def loader(**options: Any) -> td.DataLoader:
        return load(LineDataset(lines, ("index",)), sampler=EvenFirst(N), **options)

    expected = [*range(0, N, 2), *range(1, N, 2)]
    one = loader()
    assert [torch.cat([index for (index,) in one]).tolist() for _ in range(2)] == [expected, expected[::-1]]
    assert_resumes_exactly(loader)
    pair = [loader(rank=rank, world_size=2) for rank in range(2)]
    steps = [torch.cat([index for (index,) in step]).tolist() for step in zip(*pair, strict=True)]
    assert [index for step in steps for index in step] == expected
    with pytest.raises(ValueError, match="EvenFirst was made for 9 samples, and the dataset has 22"):
        load(LineDataset(lines), sampler=EvenFirst(9))


# A policy for bad samples


def the_one_before(bad: BadSample) -> int:
    """Take the sample before a bad one."""
    return bad.index - 1


def test_a_policy_for_bad_samples(own_folder: Path) -> None:
    dataset = td.ImageFolder(own_folder, fields=("image", "index", "valid"))
    truncate_file(Path(dataset.paths[5]))
    with load(dataset, transform=T.Resize((8, 8)), on_bad_sample=the_one_before) as loader:
        rows = [(index, valid) for _, *row in loader for index, valid in zip(*(part.tolist() for part in row))]
    assert rows[5] == (4, False) and [index for index, valid in rows if valid] == [i for i in range(N) if i != 5]
    assert [(bad.index, bad.substitute) for bad in loader.bad_samples] == [(5, 4)]


# A command


class Count:
    """Count the lines of a file."""

    __name__ = "commands.count"  # a module has it by itself
    SUMMARY = "count lines"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("file", metavar="FILE")

    def run(self, arguments: argparse.Namespace) -> int:
        with wrong_input():
            number = len(parse(Path(arguments.file)))
        say_json({"lines": number}) if arguments.json else say(f"{number} lines")
        return 0


def test_a_command(lines: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame, "COMMANDS", (*frame.COMMANDS, Count()))
    assert main(["count", str(lines)]) == 0 and capsys.readouterr().out == f"{N} lines\n"
    assert main(["count", str(lines), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"lines": N}
    assert main(["count", str(tmp_path / "none"), "--json"]) == 2
    assert capsys.readouterr().err == f"torchdali: No such file or directory: {tmp_path / 'none'}\n"


# An output form


def as_lists(fields: dict[str, Any]) -> dict[str, list[Any]]:
    return {name: list(values) for name, values in fields.items()}


def test_an_output_form(lines: Path) -> None:
    batch = next(iter(load(LineDataset(lines), output=as_lists)))
    assert batch == {"number": [0, 10, 20, 30]} and isinstance(batch["number"], list)


def test_each_row_of_the_table_has_its_test() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| (an? [\w ]+) \|", text, re.MULTILINE)
    assert {f"test_{row.replace(' ', '_')}" for row in rows} == {
        name for name in globals() if re.match(r"test_an?_", name)
    }
    for path in re.findall(r"`((?:transforms|readers|samplers|datasets|engine|torchdali)/[a-z_/]+\.py)`", text):
        assert any((base / path).exists() for base in (ROOT, ROOT / "torchdali")), path
