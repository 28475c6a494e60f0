"""The images of gpu_bench.py: windows of photographs, with grain, made once."""

from __future__ import annotations

import io
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

PHOTOS = Path(__file__).parent.parent / "tests/data/photos"
WIDTH, HEIGHT, QUALITY, GRAIN = 500, 375, 90, 7.0
SEED = 0


def ensure_images(root: Path, number: int) -> dict[str, float]:
    """Write the images at `root` unless they are there, read them once into the page cache, and describe them."""
    root = root / f"{number}-q{QUALITY}-g{GRAIN:g}"
    if not root.exists():
        root.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=root.parent))
        with ThreadPoolExecutor() as pool:
            list(pool.map(partial(_write_image, scratch, _sources()), range(number)))
        try:
            scratch.replace(root)
        except OSError:  # another process was faster
            shutil.rmtree(scratch)
    sizes = [len(path.read_bytes()) for path in root.rglob("*.jpg")]
    return {"images": len(sizes), "mean_bytes": round(sum(sizes) / len(sizes)), "root": str(root)}  # type: ignore[dict-item]


def _sources() -> list[Any]:
    from PIL import Image

    names = ("flower.jpg", "flower2.jpg", "app13-multiple.jpg")
    return [Image.open(PHOTOS / name).convert("RGB") for name in names]


def _write_image(root: Path, sources: list[Any], index: int) -> None:
    """Write a window of a photograph, with grain, so that it has as many bytes as a photograph of its size."""
    from PIL import Image

    rng = np.random.default_rng([SEED, index])
    source = sources[index % len(sources)]
    scale = min(source.width / WIDTH, source.height / HEIGHT) * rng.uniform(0.6, 1.0)
    left, top = rng.uniform(0, source.width - WIDTH * scale), rng.uniform(0, source.height - HEIGHT * scale)
    window = (left, top, left + WIDTH * scale, top + HEIGHT * scale)
    image = np.asarray(source.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC, box=window), np.float32)
    image = image + rng.normal(0, GRAIN, (HEIGHT, WIDTH, 1)).astype(np.float32)
    folder = root / f"class_{index % 10}"
    folder.mkdir(exist_ok=True)
    file = io.BytesIO()
    Image.fromarray(np.clip(image, 0, 255).astype(np.uint8)).save(file, "JPEG", quality=QUALITY)
    (folder / f"{index:05d}.jpg").write_bytes(file.getvalue())
