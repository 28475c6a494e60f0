"""`torchdali preview` and `torchdali pack`, as a new user writes them."""

from __future__ import annotations

import io
import json
import shutil
import sys
import tarfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import torchdali as td
from torchdali import transforms as T
from torchdali.commands.data import dataset_of
from torchdali.commands.main import main
from torchdali.commands.recipe import loader_of
from torchdali.formats.shards import ShardWriter
from torchdali.testing import make_image_folder, truncate_file

from .reader_files import image_file, mxnet_case, tfrecord_case

ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def refused(capsys: pytest.CaptureFixture[str], *argv: Any, code: int = 2) -> str:
    """The one sentence that a wrong call prints."""
    assert main([str(one) for one in argv]) == code
    out, err = capsys.readouterr()
    assert not out and "Traceback" not in err
    (line,) = [line for line in err.splitlines() if line.startswith("torchdali: ")]  # beside the bar, and DALI's own
    return line


# Data


def test_a_picture_of_a_folder(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "grid.png"
    assert main(["preview", str(folder), "--out", str(out), "--samples", "4", "--draws", "2"]) == 0
    assert capsys.readouterr().out == f"{out}: ImageFolder, epoch 0 to 1\n"
    with Image.open(out) as image:
        small = image.size
    assert main(["preview", str(folder), "--out", str(out), "--samples", "2", "--shuffle", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said == {"command": "preview", "path": str(folder), "file": str(out), "title": "ImageFolder, epoch 0"}
    with Image.open(out) as image:
        assert image.size != small


def test_what_a_path_means(folder: Path, tmp_path: Path) -> None:
    def put(name: str, data: bytes = image_file(1)) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return str(path)

    put("flat/a.jpg"), put("flat/notes.txt", b"no image")
    put("pairs/images/a.jpg"), put("pairs/masks/a.png", image_file(1))
    put("splits/train/cat/a.jpg"), put("splits/val/cat/a.jpg")
    wav = io.BytesIO()
    wav.write(b"RIFF" + (36 + 16).to_bytes(4, "little") + b"WAVEfmt " + (16).to_bytes(4, "little"))
    wav.write(b"\1\0\1\0" + (8000).to_bytes(4, "little") + (16000).to_bytes(4, "little") + b"\2\0\x10\0")
    wav.write(b"data" + (16).to_bytes(4, "little") + bytes(16))
    put("words/yes/a.wav", wav.getvalue()), put("words/no/b.wav", wav.getvalue())
    np.save(tmp_path / "arrays.npy", np.zeros((3, 4, 4, 3), np.uint8))
    put("list.txt", f"{folder / 'class_0' / '0000.jpg'} 3\n".encode())
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for name, data in {"0.jpg": image_file(1), "0.cls": b"4"}.items():
            tar.addfile(_info(name, data), io.BytesIO(data))
    td.pack(td.ImageFolder(folder), tmp_path / "pack")
    mxnet_case(tmp_path / "rec"), tfrecord_case(tmp_path / "tfrecord")
    expected: list[tuple[Any, type, dict[str, str]]] = [
        (folder, td.ImageFolder, {"image": "encoded", "label": "number"}),
        (tmp_path / "flat", td.FileDataset, {"image": "encoded"}),
        (tmp_path / "flat" / "a.jpg", td.FileDataset, {"image": "encoded"}),
        (tmp_path / "pairs", td.FileDataset, {"image": "encoded", "mask": "mask"}),
        (tmp_path / "splits", td.ImageFolder, {"image": "encoded", "label": "number"}),
        (tmp_path / "words", td.FileDataset, {"audio": "audio", "label": "number"}),
        (tmp_path / "arrays.npy", td.NumpyDataset, {"array": "array"}),
        (tmp_path / "list.txt", td.FileDataset, {"image": "encoded", "label": "number"}),
        (tmp_path / "a.tar", td.TarDataset, {"image": "encoded", "label": "number"}),
        (tmp_path / "pack", td.Packed, {"image": "image", "label": "number"}),
        (tmp_path / "rec" / "data.rec", td.RecordIODataset, {"image": "encoded", "label": "number"}),
    ]
    for path, kind, kinds in expected:
        found = dataset_of(str(path))
        assert type(found) is kind and {name: str(kind) for name, kind in found.kinds.items()} == kinds, path
        assert len(found) and found.read(np.array([0]))
    assert dataset_of(str(tmp_path / "words")).classes == ["no", "yes"]  # type: ignore[attr-defined]
    records = dataset_of(str(tmp_path / "tfrecord"))
    assert type(records) is td.TFRecordDataset and str(records.kinds["image/encoded"]) == "encoded"


def _info(name: str, data: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    return info


def test_wrong_input_is_one_sentence(folder, own_folder, tmp_path, capsys, monkeypatch):
    out = tmp_path / "grid.png"
    assert "did you mean" in refused(capsys, "preview", f"{folder}_", "--out", out)
    assert "a folder of images, sounds" in refused(capsys, "preview", ROOT / "pyproject.toml", "--out", out)
    assert "(did you mean 'png'?)" in refused(capsys, "preview", folder, "--out", tmp_path / "a.pgn")
    assert "a folder that exists" in refused(capsys, "preview", folder, "--out", tmp_path / "none" / "a.png")
    assert "'--sampels' (did you mean '--samples'?)" in refused(capsys, "preview", folder, "--sampels", 3)
    assert "knows no argument '--data.root'" in refused(capsys, "preview", folder, "--data.root=x")
    assert "at least 1 was expected, got '0'" in refused(capsys, "preview", folder, "--draws", 0)
    config = ROOT / "configs" / "segmentation" / "tiny.yaml"
    assert "did you mean" in refused(capsys, "preview", config.with_name("tinny.yaml"), "--out", out)
    assert "did you mean 'data.root'?" in refused(capsys, "preview", config, "--data.rot=x", "--out", out)
    own = tmp_path / "configs" / "mine" / "a.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("data: {root: x}\n")
    assert "recipes/mine.py" in (line := refused(capsys, "preview", own)) and "--recipe SCRIPT" in line
    script = tmp_path / "mine.py"
    script.write_text("def main(data: dict): pass\n\ndef make_loader(split, data, scale): pass\n")
    assert "needs scale, which is no section" in refused(capsys, "preview", own, "--recipe", script)
    for path in own_folder.rglob("*.jpg"):
        truncate_file(path)
    assert refused(capsys, "preview", own_folder, "--out", out, code=1)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    assert "pip install 'torchdali[show]'" in refused(capsys, "preview", folder)
    assert not out.exists()


def test_a_window(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """By a backend of our own, since there is no screen: without one the command says to write a file."""
    import matplotlib
    from matplotlib.backend_bases import FigureCanvasBase, FigureManagerBase

    shown: list[Any] = []

    class Manager(FigureManagerBase):
        @classmethod
        def pyplot_show(cls, **_: Any) -> None:
            import matplotlib.pyplot as plt

            shown.extend(len(plt.figure(number).axes) for number in plt.get_fignums())

    class Canvas(FigureCanvasBase):
        required_interactive_framework = "headless"
        manager_class = Manager

    before = matplotlib.rcParams["backend"]
    import matplotlib.pyplot as plt

    plt.switch_backend("agg")
    assert "write the picture to a file by --out preview.png" in refused(capsys, "preview", folder)
    backend = ModuleType("backend_of_this_test")
    backend.FigureCanvas, backend.FigureManager = Canvas, Manager  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "backend_of_this_test", backend)
    try:
        plt.switch_backend("module://backend_of_this_test")
        assert main(["preview", str(folder), "--samples", "2"]) == 0
    finally:
        plt.close("all")
        plt.switch_backend("agg" if not isinstance(before, str) else before)
    assert shown == [2]


# Configs


@pytest.mark.slow
def test_a_recipe_s_config_has_its_loader(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The recipe's own transform, on the CPU; and nothing is written but the picture."""
    before, digits = set(ROOT.iterdir()), tmp_path / "data"
    for split in ("train", "val"):
        make_image_folder(digits / split, classes=2, per_class=8)
    for recipe in ("image_classification", "lightning_module", "migrate_from_pipeline", "simclr"):
        config = ROOT / "configs" / recipe / "tiny.yaml"
        root = "train.init_args.root" if recipe == "lightning_module" else "root"
        data = digits / "train" if recipe == "lightning_module" else digits
        with loader_of(str(config), [f"--data.{root}={data}"]) as loader:
            assert loader.num_samples and loader.transform is not None and str(loader.device) == "cpu"
    out = tmp_path / "grid.png"
    argv = ["preview", str(config), f"--data.root={digits}", "--out", str(out), "--split", "val"]
    assert main(argv) == 0 and out.exists()
    assert capsys.readouterr().out == f"{out}: ImageFolder, epoch 0; Normalize undone\n"
    assert set(ROOT.iterdir()) == before


# pack


def test_pack(folder, own_folder, tmp_path, capsys):
    target = tmp_path / "pack"
    argv = ["pack", str(folder), str(target), "--resize", "16x12", "--verify"]
    assert main(argv) == 0
    out, err = capsys.readouterr()
    assert "22 samples" in out and "verified" in out and f"torchdali.Packed({str(target)!r})" in out and "22/22" in err
    packed = td.Packed(target)
    again = td.DataLoader(td.ImageFolder(folder), 4, transform=T.Resize((16, 12)), device="cpu")
    for (one, labels), (other, others) in zip(td.DataLoader(packed, 4, device="cpu"), again, strict=True):
        assert torch.equal(one, other) and torch.equal(labels, others)
    assert main([*argv, "--json"]) == 0  # it is finished, and is only opened
    said = json.loads(capsys.readouterr().out)
    assert said["samples"] == 22 and said["verified"] and not said["left_out"] and not said["damage"]
    damaged = next(target.glob("*image*.npy"))
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    assert main(argv) == 1 and damaged.name in capsys.readouterr().err

    bad = td.ImageFolder(own_folder).paths[5]
    truncate_file(Path(bad))
    line = refused(capsys, "pack", own_folder, tmp_path / "other", code=1)
    assert bad in line and "--skip-bad" in line
    assert main(["pack", str(own_folder), str(tmp_path / "other"), "--skip-bad", "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["samples"] == 21 and [one["path"] for one in said["left_out"]] == [bad]

    assert "a pack of" in refused(capsys, "pack", folder, target)
    assert "pixels such as 256 or 256x320" in refused(capsys, "pack", folder, target, "--resize", "0x3")
    assert "DST" in refused(capsys, "pack", folder)
    shutil.rmtree(target)


def test_a_pack_that_was_interrupted_goes_on(folder, tmp_path, capsys, monkeypatch):
    """After its last whole shard."""
    target = tmp_path / "pack"
    argv = ["pack", str(folder), str(target), "--resize", "300x300", "--shard-mib", "1"]
    finish = ShardWriter.finish

    def interrupted(self: ShardWriter, *arguments: Any) -> Any:
        if self._number == 1:
            raise KeyboardInterrupt
        return finish(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(ShardWriter, "finish", interrupted)
        assert main(argv) == 130
    assert capsys.readouterr().err.endswith("torchdali: interrupted\n")
    first = target / "shard-00000.0-image.npy"
    written = first.stat().st_mtime_ns
    assert "is not finished" in refused(capsys, "preview", target, "--out", tmp_path / "a.png")
    assert main(argv) == 0
    out, err = capsys.readouterr()
    assert "22 samples" in out and "16/22" in err and first.stat().st_mtime_ns == written
    td.Packed(target).verify()
