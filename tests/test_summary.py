"""What objects say of themselves: short, and without reading, starting or raising anything."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

import torchdali as td
from torchdali import transforms as T
from torchdali.datasets import MapDataset
from torchdali.storage import LocalStorage


def load(dataset: Any, **options: Any) -> td.DataLoader:
    return td.DataLoader(dataset, 4, device="cpu", **options)


class Forbidden(Dataset[Any]):
    """May not be read."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("it was read")


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("it was read")


class Raising:
    def __repr__(self) -> str:
        raise RuntimeError("no")

    def __call__(self, batch: Any) -> Any:
        return batch


class Text(HTMLParser):
    """Collects the words of well-formed HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_a_loader_and_its_dataset(folder: Path) -> None:
    dataset = td.ImageFolder(folder)
    assert repr(dataset) == f"ImageFolder(22 samples from {folder}; image: encoded, label: number)"
    loader = load(dataset, shuffle=True, seed=3, transform=T.Resize((8, 8)), pad_value={"label": -1}, drop_last=True)
    text = repr(loader)
    assert text.startswith(f"DataLoader({dataset!r}, batch_size=4, order='shuffle', seed=3, transform=Resize(")
    assert "drop_last=True" in text and "pad_value={'label': -1}" in text and "device='cpu'" in text
    assert "prefetch" not in text and "\n" not in text  # only what was told
    for _ in zip(range(2), loader):
        pass
    words = Text(loader._repr_html_()).words
    assert words[0] == "DataLoader" and "epoch 0, after 8 samples" in words
    rows = ["image", "Image(encoded=True)", "[N, C, H, W]", "label", "Number()", "[N]"]
    assert words[-6:] == rows
    words = Text(dataset._repr_html_()).words
    assert (
        "22" in words
        and "2: class_0, class_1" in words
        and words[-6:-3] == ["image", "Image(encoded=True)", "[C, H, W]"]
    )
    weighted = load(dataset, sampler=td.WeightedSampler(np.ones(22)))
    assert "order=WeightedSampler(22 samples per epoch)" in repr(weighted)
    passing = iter(loader)
    assert repr(passing) == "<a pass that has not begun>"
    next(passing)
    assert repr(passing) == "<a pass over epoch 1, after 4 samples>"


@pytest.mark.parametrize("make", [Forbidden, Stream])
def test_python_code_is_not_run(make: Any) -> None:
    loader = load(make(), num_workers=1)
    assert make.__name__ in repr(loader) and make.__name__ in loader._repr_html_()
    assert "known when a sample has been read" in Text(loader.source._repr_html_()).words
    assert loader.source._pools is None or not loader.source._pools._idle  # no process was started


def test_files_are_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources: list[Any] = [td.readers.File(file_root=folder), td.ImageFolder(folder)]

    def fail(*_: Any, **__: Any) -> Any:
        raise AssertionError("it was read")

    monkeypatch.setattr(LocalStorage, "read", fail)
    monkeypatch.setattr(td.readers.File, "_count_samples", fail)
    monkeypatch.setattr(MapDataset, "read", fail)
    for source in sources:
        assert "can't be shown" not in repr(source) + source._repr_html_()
    assert "unknown" in Text(sources[0]._repr_html_()).words


def test_text_is_escaped_and_nothing_raises(tmp_path: Path) -> None:
    own = tmp_path / "<b>&"
    own.mkdir()
    (own / "a.jpg").touch()
    loader = load(td.FileDataset([own / "a.jpg"], fields=("image", "path")), batch_transform=Raising())
    for html in (loader._repr_html_(), loader.source._repr_html_()):
        assert "<b>" not in html and "&lt;b&gt;&amp;" in html
        Text(html)
    assert "a value of type Raising that can't be shown" in repr(loader)
    half = td.DataLoader.__new__(td.DataLoader)
    assert repr(half) == "<DataLoader, which can't be shown: AttributeError>"
    assert half._repr_html_() == "&lt;DataLoader, which can&#x27;t be shown: AttributeError&gt;"


def test_padded_batches() -> None:
    batch = td.Padded(torch.zeros(2, 3, 4, 5), torch.tensor([[4, 5], [3, 2]]))
    assert repr(batch) == "Padded([2, 3, 4, 5] float32 on cpu, sizes [3, 2] to [4, 5])"
    assert Text(batch._repr_html_()).words[-2:] == ["sizes", "[3, 2] to [4, 5]"]
    specs: Any = td.Padded("P('x')", None)  # type: ignore[arg-type]  # as a tree of specs has them
    assert repr(specs) == "Padded(data=\"P('x')\", sizes=None)"
    assert repr(td.Padded(torch.zeros(0, 3), torch.zeros(0, 1, dtype=torch.int64))).endswith("sizes all [])")
