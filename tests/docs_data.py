"""The data that the pages' code reads: what the pages tell their readers to make, in smaller numbers."""

from __future__ import annotations

import io
import runpy
import tarfile
from pathlib import Path
from typing import Any

from torchdali.testing import make_image_folder

from .launcher import ROOT


def script(name: str) -> dict[str, Any]:
    """The functions of a script."""
    return runpy.run_path(str(ROOT / "scripts" / f"{name}.py"))


def make_shards(folder: Path, images: Path) -> None:
    """Write tars as webdataset does: an image, its class and a caption per sample."""
    folder.mkdir()
    files = sorted(images.glob("*/*.jpg"))
    for shard in range(2):
        with tarfile.open(folder / f"train-{shard:04d}.tar", "w") as tar:
            for number, path in enumerate(files[shard::2]):
                label = path.parent.name[-1]
                parts = {"jpg": path.read_bytes(), "cls": label.encode(), "txt": f"a picture of class {label}".encode()}
                for ending, data in parts.items():
                    member = tarfile.TarInfo(f"{shard}{number:04d}.{ending}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))


def make_data(folder: Path) -> None:
    """Write all of it under `folder`."""
    make_image_folder(folder / "train", classes=2, per_class=11)
    make_image_folder(folder / "val", classes=2, per_class=5, seed=1)
    make_shards(folder / "shards", folder / "train")
    script("make_digits")["make_digits"](folder / "digits")
    script("make_shapes")["make_shapes"](folder / "shapes", 12, 4)
    script("make_tones")["make_tones"](folder / "tones", 16, 4)
    script("make_motions")["make_motions"](folder / "motions", 8, 4)
    script("make_sums")["make_sums"](folder / "sums", 200, 50)
