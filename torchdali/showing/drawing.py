"""Draws panels with matplotlib; only this module imports it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from .panels import COLORS, Cell, Panel

SIDE, GAP, TITLE, HEAD = 1.9, 0.12, 0.32, 0.3  # inches: a panel, between two, for words above it, and above all
COLUMNS = 6  # panels in a row, where a sample has one
IGNORED = 255  # the id of pixels that no loss counts
PALETTE: list[Any] = [matplotlib.colormaps["tab10"](number)[:3] for number in range(COLORS)]


class Picture(Figure):
    """A figure that a notebook shows where it is a cell's value; it belongs to no window, and needs no closing."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        FigureCanvasAgg(self)
        self.savefig(file, format="png", dpi=100)
        return file.getvalue()


def draw(cells: Sequence[Sequence[Cell]], title: str, columns: int | None, figure: Figure | None = None) -> Figure:
    """Draw a grid of samples.

    Several draws, views or frames of a sample stand in one row; else a row has several samples.

    Args:
        cells: for each draw, the cells of its samples.
        title: stands above all.
        columns: samples in a row; None: as many as fit.
        figure: is drawn into, and gets the size that it needs; None: a new one.
    """
    draws, samples = len(cells), len(cells[0])
    widest = max((len(cell.panels) for draw in cells for cell in draw), default=0) or 1
    across = draws * widest
    per_row = columns or max(1, COLUMNS // across if across > 1 else COLUMNS)
    per_row = max(1, min(per_row, samples))
    rows = max(1, -(-samples // per_row))
    figure = Picture() if figure is None else figure
    width, height = max(SIDE * per_row * across, 4.0), (SIDE + TITLE) * rows + HEAD
    figure.set_size_inches(width, height)
    figure.suptitle(title, fontsize=9, wrap=True, parse_math=False, y=1 - 0.05 / height, va="top")
    if not samples:
        return figure
    grid = figure.subplots(rows, per_row * across, squeeze=False)
    edge = GAP / 2 / SIDE
    figure.subplots_adjust(edge / 2, edge / rows, 1 - edge / 2, 1 - (HEAD + TITLE) / height, GAP / SIDE, TITLE / SIDE)
    for axes in grid.flat:
        axes.set_axis_off()
    for number in range(samples):
        row, place = divmod(number, per_row)
        for at, draw_cells in enumerate(cells):
            cell = draw_cells[number] if number < len(draw_cells) else Cell([], "")
            panels = cell.panels or [Panel("text", text=cell.caption or "nothing to show")]
            for part, panel in enumerate(panels):
                axes = grid[row, place * across + at * widest + part]
                _panel(axes, panel)
                lines = [cell.caption if part == 0 and cell.panels else "", panel.title]
                if draws > 1 and part == 0:
                    lines[0] = f"{cell.caption} draw {at + 1}".strip()
                axes.set_title("\n".join(filter(None, lines)), fontsize=7, pad=3, parse_math=False)
    return figure


def _panel(axes: Any, panel: Panel) -> None:
    if panel.form == "picture":
        _picture(axes, panel)
    elif panel.form == "curve":
        along = np.arange(panel.values.shape[1]) * panel.step
        for channel, values in enumerate(panel.values):
            axes.plot(along, values, linewidth=0.5, color=PALETTE[channel % COLORS])
        axes.set_axis_on()
        axes.set_box_aspect(0.75)
        axes.tick_params(labelsize=5, length=2, pad=1)
        axes.tick_params("y", direction="in", pad=-14)  # else over the panel to the left
        axes.set_xlabel(panel.unit, fontsize=6, labelpad=1)
    elif panel.form == "heat":
        axes.imshow(panel.values, aspect="auto", origin="lower", interpolation="nearest")
    else:
        axes.text(
            0, 1, panel.text, fontsize=6, family="monospace", va="top", parse_math=False, transform=axes.transAxes
        )


def _picture(axes: Any, panel: Panel) -> None:
    height, width = panel.values.shape[:2]
    if not height or not width:
        axes.text(0.5, 0.5, f"{height} x {width} pixels", fontsize=6, ha="center", transform=axes.transAxes)
        return
    small = {"interpolation": "nearest"} if max(height, width) < 64 else {}
    axes.imshow(panel.values, vmin=0, vmax=1, **small)
    for ids in panel.ids:
        axes.imshow(_colored(ids), interpolation="nearest")
    for (left, top, right, bottom), name, number in panel.boxes:
        color = PALETTE[number % COLORS]
        # Pixels' centres are whole numbers here, and a box counts from their edges.
        place = (left - 0.5, top - 0.5)
        axes.add_patch(Rectangle(place, right - left, bottom - top, fill=False, edgecolor=color, linewidth=1.2))
        if name:
            box = {"facecolor": color, "edgecolor": "none", "pad": 0.8, "alpha": 0.8}
            axes.text(*place, name, fontsize=5, color="white", va="bottom", bbox=box, clip_on=True, parse_math=False)
    for number, points in enumerate(panel.points):
        axes.plot(points[:, 0], points[:, 1], ".", markersize=3, color=PALETTE[number % COLORS])
    axes.set_xlim(-0.5, width - 0.5)
    axes.set_ylim(height - 0.5, -0.5)


def _colored(ids: NDArray[np.int64]) -> NDArray[np.float32]:
    """Give a picture [H, W, 4] of ids: 0 is clear, ignored pixels are grey, and outlines are strong."""
    colors = np.asarray(PALETTE, np.float32)[ids % COLORS]
    colors[ids == IGNORED] = 0.5
    around = np.pad(ids, 1, mode="edge")
    sides = (around[:-2, 1:-1], around[2:, 1:-1], around[1:-1, :-2], around[1:-1, 2:])
    outline = np.logical_or.reduce([ids != side for side in sides])
    alpha = np.where(ids == 0, 0.0, np.where(outline, 1.0, 0.4)).astype(np.float32)
    return np.concatenate([colors, alpha[..., None]], -1)
