"""The notebook recipes/tour.ipynb runs from end to end, with a cell that is interrupted and run again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

ROOT = Path(__file__).parent.parent
TOUR = ROOT / "recipes" / "tour.ipynb"
pytestmark = [pytest.mark.processes, pytest.mark.slow]

INTERRUPT = """
    if len(losses) == 21:
        import os, signal
        os.kill(os.getpid(), signal.SIGINT)
"""
"""In the loop of the training: what the square button does, in the middle of the second epoch."""


def read() -> Any:
    return nbformat.read(TOUR, as_version=4)


def text_of(cell: Any) -> str:
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


# The kernel's messages go over sockets of this machine, of which Jupyter warns.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_the_tour_runs_and_a_cell_that_was_interrupted_runs_again() -> None:
    notebook = read()
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(TOUR.parent)}})
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    (training,) = (k for k, cell in enumerate(notebook.cells) if "loss.backward()" in cell.source)
    with client.setup_kernel(env=environment):
        for number, cell in enumerate(notebook.cells):
            if number == training:
                source = cell.source
                at = source.index("print(")
                cell.source = source[:at].rstrip() + "\n        " + INTERRUPT.strip().replace("\n", "\n    ") + "\n"
                with pytest.raises(CellExecutionError, match="KeyboardInterrupt"):
                    client.execute_cell(cell, number)
                cell.source = source
            client.execute_cell(cell, number)
        check = nbformat.v4.new_code_cell("print(loader.num_samples, len(losses), list(loader.bad_samples))")
        notebook.cells.append(check)
        client.execute_cell(check, len(notebook.cells) - 1)
    # No batch came twice, and none was left out: two epochs of sixteen batches.
    assert text_of(check) == "64 32 []\n" and "32 steps" in text_of(notebook.cells[training])
    said = "".join(text_of(cell) for cell in notebook.cells if cell.cell_type == "code")
    assert "the same pixels: True and the same masks: True" in said and "training step" in said
    pictures = [output.data["image/png"] for cell in notebook.cells for output in cell.get("outputs", ())
                if "image/png" in output.get("data", {})]  # fmt: skip
    assert len(pictures) == 5


def test_its_outputs_are_stored_and_small() -> None:
    """`scripts/run_tour.py` stores them."""
    assert TOUR.stat().st_size < 300_000
    cells = [cell for cell in read().cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    assert sum("image/jpeg" in output.get("data", {}) for output in outputs) == 5
    assert sum("text/html" in output.get("data", {}) for output in outputs) == 2
