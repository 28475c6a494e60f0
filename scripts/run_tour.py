"""Run recipes/tour.ipynb, and store its outputs in it, with pictures that are small enough for a repository.

    python scripts/run_tour.py

It needs matplotlib, ipykernel and nbclient, which are among the extras `dev`.
"""

import base64
import io
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from PIL import Image

NOTEBOOK = Path(__file__).parent.parent / "recipes" / "tour.ipynb"
WIDTH, QUALITY = 720, 75  # of a stored picture


def shrink(png: str) -> str:
    """Make a JPEG of a PNG, both in base64."""
    with Image.open(io.BytesIO(base64.b64decode(png))) as image:
        small = image.convert("RGB")
        small.thumbnail((WIDTH, 10 * WIDTH))
    file = io.BytesIO()
    small.save(file, "JPEG", quality=QUALITY)
    return base64.b64encode(file.getvalue()).decode()


def main() -> None:
    notebook: Any = nbformat.read(NOTEBOOK, as_version=4)
    place = {"metadata": {"path": str(NOTEBOOK.parent)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=place).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # the times of day
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/png" in data:
                data["image/jpeg"] = shrink(data.pop("image/png"))
    nbformat.write(notebook, NOTEBOOK)
    print(f"{NOTEBOOK}: {NOTEBOOK.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
