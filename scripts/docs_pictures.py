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
    "torchvision-decode_jpeg-2": "torch, decode_jpeg",
    "torchvision-pil-2": "torch, Pillow",
    "torch": "torch, decode_jpeg",
    "torch-pil": "torch, Pillow",
    "torchdata": "torchdata",
    "spdl": "SPDL",
    "grain": "Grain",
    "webdataset": "webdataset",
    "litdata": "LitData",
    "streaming": "MosaicML Streaming",
}
"""What the bars are called, by the names in the table; those that it lacks have no bar."""


def rates() -> dict[str, float]:
    """The medians of benchmarks/README.md, images per second, by peer."""
    text = (ROOT / "benchmarks" / "README.md").read_text()
    table = text[text.index("## Results of `compare.py`") :].partition("\n\n|")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| ([\w-]+)(?: \(.*?\))? \| (\d+) \|", table, re.MULTILINE)
    return {name: float(rate) for name, rate in rows if name in PEERS}


def speed() -> None:
    """Bars of images per second."""
    found = rates()
    picture = Picture(510, 76 + 38 * len(found), "Images per second on two CPU cores")
    picture.text(0, 18, "images per second on two CPU cores", kind="bold")
    picture.text(0, 38, "decode, crop, resize, flip, normalise", kind="small")
    left, wide = 166, 282
    for row, (name, rate) in enumerate(sorted(found.items(), key=lambda item: -item[1])):
        y, length = 56 + 38 * row, wide * rate / max(found.values())
        picture.text(0, y + 20, PEERS[name], kind="bold" if name == "torchdali" else "")
        picture.box(left, y, length, 28, HUES[0] if name == "torchdali" else "")
        picture.text(left + length + 8, y + 20, f"{rate:,.0f}")
    picture.save("speed")


def main() -> None:
    for draw in (stream, numbers, ahead, speed):
        draw()


if __name__ == "__main__":
    main()
