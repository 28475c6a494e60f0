"""Draw the pictures of the pages, docs/assets/*.svg: the stream, its random numbers, what is made ahead, the speed.

    python scripts/docs_pictures.py

The order in them is the real one, and the rates are those of benchmarks/README.md: run it again when they change. The
pictures follow the reader's light or dark scheme, and their letters are large enough for a telephone.
"""

import re
from pathlib import Path
from xml.sax.saxutils import escape

import numpy as np

import torchdali as td
from torchdali.rand import Key, Rand

ROOT = Path(__file__).parent.parent
OUT = ROOT / "docs" / "assets"
HUES = ("#3b82f6", "#f59e0b", "#10b981", "#ec4899")  # of ranks 0 to 3
STYLE = """
text { font: 15px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: #1f2328; }
.small { font-size: 13px; } .bold { font-weight: 600; }
.line { stroke: #6e7781; fill: none; stroke-width: 1.5; } .dashed { stroke-dasharray: 5 4; }
.box { fill: #8c959f; fill-opacity: .15; stroke: #8c959f; stroke-width: 1.5; }
.stop { stroke: #d1242f; stroke-width: 2.5; } .stopped { fill: #d1242f; font-weight: 600; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .line { stroke: #9198a1; } .stop { stroke: #ff7b72; } .stopped { fill: #ff7b72; }
}
""".strip()


class Picture:
    """An SVG of a given size, in pixels."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self.parts: list[str] = []

    def text(self, x: float, y: float, words: str, anchor: str = "start", kind: str = "") -> None:
        self.parts.append(f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" class="{kind}">{escape(words)}</text>')

    def box(self, x: float, y: float, width: float, height: float, hue: str = "", dashed: bool = False) -> None:
        look = f'fill="{hue}" fill-opacity=".28" stroke="{hue}" stroke-width="1.5"' if hue else 'class="box"'
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="3" {look}{dash}/>')

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str = "line") -> None:
        self.parts.append(f'<path d="M{x1:g} {y1:g}L{x2:g} {y2:g}" class="{kind}"/>')

    def arrow(self, x1: float, y1: float, x2: float, y2: float) -> None:
        self.line(x1, y1, x2, y2)
        back = 7 if x2 > x1 else -7
        if x1 == x2:
            self.parts.append(f'<path d="M{x2 - 5:g} {y2 - 7:g}L{x2:g} {y2:g}L{x2 + 5:g} {y2 - 7:g}" class="line"/>')
        else:
            path = f"M{x2 - back:g} {y2 - 5:g}L{x2:g} {y2:g}L{x2 - back:g} {y2 + 5:g}"
            self.parts.append(f'<path d="{path}" class="line"/>')

    def save(self, name: str) -> None:
        OUT.mkdir(exist_ok=True)
        size = f'viewBox="0 0 {self.width} {self.height}" width="{self.width}" height="{self.height}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">\n<title>{escape(self.title)}</title>\n'
        body = "\n".join(self.parts)
        (OUT / f"{name}.svg").write_text(f"{head}<style>\n{STYLE}\n</style>\n{body}\n</svg>\n")


def stream() -> None:
    """One epoch of 16 samples: a step on four ranks, a stop, two steps on two ranks."""
    picture = Picture(510, 262, "One stream: four ranks, a stop, two ranks")
    left, cell, top = 78, 26, 48
    dataset = td.InMemoryDataset(number=np.arange(16))
    order = list(td.DataLoader(dataset, batch_size=8, shuffle=True, seed=42, device="cpu").sampler)
    picture.text(0, top + 16, "epoch 0", kind="bold")
    for place, sample in enumerate(order):
        step, ranks = (0, 4) if place < 8 else (place // 4 - 1, 2)
        rank = place % (2 * ranks) // 2
        x = left + place * cell + (10 if place >= 8 else 0)
        down = top + 44 + rank * 38
        for y in (top, down):
            picture.box(x, y, cell - 2, 24, HUES[rank])
            picture.text(x + cell / 2 - 1, y + 17, str(sample), "middle", "small")
        if place % (2 * ranks) == 0:
            wide = 2 * ranks * cell - 2
            picture.text(x + wide / 2, top - 16, f"step {step}", "middle", "small")
            picture.line(x, top - 8, x + wide, top - 8)
    for rank in range(4):
        picture.text(0, top + 61 + rank * 38, f"rank {rank}")
    stop = left + 8 * cell + 4
    picture.line(stop, 14, stop, top + 44 + 3 * 38 + 24, "stop")
    picture.text(stop, top + 44 + 3 * 38 + 46, "stopped after 8 samples; two ranks go on", "middle", "stopped")
    picture.save("stream")


def numbers() -> None:
    """A draw as a hash of five numbers."""
    picture = Picture(510, 214, "A draw is a hash of seed, epoch, sample, transform and number")
    names = [("seed", "42"), ("epoch", "3"), ("sample", "12"), ("transform", "RandomResizedCrop"), ("draw", "0")]
    x = 4.0
    for name, value in names:
        width = 186 if name == "transform" else 66
        picture.text(x + width / 2, 18, name, "middle", "small")
        picture.box(x, 28, width, 34)
        picture.text(x + width / 2, 50, value, "middle", "bold")
        picture.line(x + width / 2, 62, 255, 96)
        x += width + 13
    picture.box(195, 96, 120, 36, HUES[0])
    picture.text(255, 119, "hash", "middle", "bold")
    picture.arrow(255, 132, 255, 160)
    area = Rand(42, 3, [12]).named(Key.STEP, "RandomResizedCrop").uniform(0.08, 1.0, shape=10)[0, 0]
    picture.text(255, 178, f"the crop's area: {area:.4f} of the picture", "middle", "bold")
    picture.text(255, 204, "in any batch, on any rank, in any thread, after any restart", "middle", "small")
    picture.save("numbers")


def ahead() -> None:
    """Batches that were made ahead when a process died are made again."""
    picture = Picture(510, 214, "What is made ahead does not count")
    left, cell = 112, 44
    for row, (name, first) in enumerate((("first process", 0), ("second process", 4))):
        y = 36 + row * 92
        picture.text(0, y + 24, name)
        for batch in range(first, 9):
            made = row == 0 and batch >= 4
            if made and batch > 6:
                continue
            picture.box(left + batch * cell, y, cell - 6, 38, HUES[1] if made else HUES[0], dashed=made)
            picture.text(left + batch * cell + (cell - 6) / 2, y + 25, str(batch), "middle")
    x = left + 4 * cell - 3
    picture.line(x, 20, x, 90, "stop")
    picture.text(left, 18, "batches that you got", kind="small")
    picture.text(x + 8, 18, "made ahead, and lost", kind="small")
    picture.arrow(x, 96, x, 124)
    picture.text(x, 194, "the same batches, bit for bit", kind="small")
    picture.text(x - 8, 106, "state: 4 batches", "end", "stopped")
    picture.save("ahead")


PEERS = {
    "torchdali": "torchdali",
    "dali-pipeline": "DALI, pipeline mode",
    "ndd-eager": "DALI, dynamic mode",
    "ndd-captured": "DALI, captured",
    "torch": "torch, decode_jpeg",
    "torch-pil": "torch, Pillow",
    "torchdata": "torchdata",
    "spdl": "SPDL",
    "grain": "Grain",
    "webdataset": "webdataset",
    "litdata": "LitData",
    "streaming": "MosaicML Streaming",
}
"""The names of the bars, by the names in the table; those that it lacks have no bar."""


def ratios() -> dict[str, list[float]]:
    """The rates of benchmarks/README.md as multiples of the pipeline's in the same round: lowest, median, highest.

    Those of the work in C alone stand under "limit".
    """
    text = (ROOT / "benchmarks" / "README.md").read_text()
    part = text[text.index("## Results of `compare.py`") :].partition("\n\n|")[2]
    rows = re.findall(r"^\| ([\w-]+)(?: \(.*?\))? \| \d+ \| ([\d., ]+) \|", part.partition("\n\n")[0], re.MULTILINE)
    limit = re.search(r"The work in C alone, without any loader, reaches \d+ \(([\d., ]+);", part)
    assert limit is not None
    rows = [*((name, found) for name, found in rows if name in PEERS), ("limit", limit[1])]
    return {name: [float(number) for number in found.split(", ")] for name, found in rows}


def speed() -> None:
    """Bars of rates, with the lowest and the highest round, and the limit that the work in C sets."""
    found = ratios()
    limit = found.pop("limit")
    picture = Picture(510, 104 + 38 * len(found), "Speed on two CPU cores, as a multiple of DALI's pipeline mode")
    picture.text(0, 18, "speed on two CPU cores; DALI's pipeline mode is 1", kind="bold")
    picture.text(0, 38, "decode, crop, resize, flip, normalise; lines: lowest and highest round", kind="small")
    left, scale = 166, 310 / limit[1]
    rows = sorted(found.items(), key=lambda item: -item[1][len(item[1]) // 2])
    for row, (name, numbers) in enumerate(rows):
        y, middle, ours = 56 + 38 * row, numbers[len(numbers) // 2], name == "torchdali"
        picture.text(0, y + 20, PEERS[name], kind="bold" if ours else "")
        picture.box(left, y, middle * scale, 28, HUES[0] if ours else "")
        low, high = left + numbers[0] * scale, left + numbers[-1] * scale
        if high > low:
            picture.line(low, y + 14, high, y + 14)
            for end in (low, high):
                picture.line(end, y + 9, end, y + 19)
        picture.text(max(high, left + middle * scale) + 8, y + 20, f"{middle:.2f}" if high > low else "1")
    bottom = 56 + 38 * len(rows)
    x = left + limit[1] * scale
    picture.line(x, 50, x, bottom + 8, "line dashed")
    picture.text(x + 4, bottom + 28, f"the work in C alone, without a loader: {limit[1]:.2f}", "end", "small")
    picture.save("speed")


def main() -> None:
    for draw in (stream, numbers, ahead, speed):
        draw()


if __name__ == "__main__":
    main()
