"""Draw the gallery: every transform on one photograph, beside torchvision's result with the same random numbers.

    python scripts/docs_gallery.py --out DIR

Pictures come out of a loader, on the CPU.  The params that it drew are drawn again by their key, and given to
torchvision's own transform or kernel, as `docs_cases.py` says.  The pages' hooks call `make_gallery`.
"""

import argparse
import dataclasses
import io
from pathlib import Path
from typing import Any

import numpy as np
import torch
from docs_cases import NO_PICTURE, SEED, SIZE, Case, Params, image_cases, other_photograph, photograph
from PIL import Image, ImageDraw
from torchvision.transforms.v2 import functional

import torchdali as td
from torchdali import kinds
from torchdali import transforms as T
from torchdali.rand import Key, Rand

LARGEST = 240  # the width that fills a column
RATE = 8000
STRONGER = 10
"""How many times a difference is shown."""


# Our results, through a loader


def through_loader(columns: dict[str, Any], seed: int, told: dict[str, Any] | None = None, **options: Any) -> Any:
    dataset = td.InMemoryDataset(**columns, kinds=told or {})
    options = {"output": "list", **options}
    with td.DataLoader(dataset, 1, seed=seed, device="cpu", num_threads=1, **options) as loader:
        return next(iter(loader))


def drawn(transform: Any, seed: int) -> Params:
    """The params of the loader's first sample, by their key."""
    key = Rand(seed, 0, np.zeros(1, np.uint64)).named(Key.STEP, type(transform).__name__, 0)
    own: Params = {"rand": Rand(seed, 0, np.zeros(1, np.uint64)).named(Key.STEP, type(transform).__name__, 0)}
    if isinstance(transform, T.Transform) and not getattr(transform, "needs_boxes", False):
        params, _ = transform.make_params(key, np.array([photograph().shape[:2]]))
        own |= {name: values[0].tolist() for name, values in params.items()}
    return own


BOXES = np.array([[62, 30, 150, 118]], np.float32)  # the flower's middle, xyxy


def ours_of(case: Case) -> torch.Tensor:
    if isinstance(case.ours, T.RandomIoUCrop):
        images, *_ = through_loader(
            {"image": [photograph()], "boxes": [BOXES]}, case.seed, {"boxes": "boxes"}, transform=case.ours
        )
    else:
        images, *_ = through_loader({"image": [photograph()]}, case.seed, transform=case.ours)
    return images[0]


def theirs_of(case: Case) -> torch.Tensor | None:
    if case.theirs is None:
        return None
    image = torch.from_numpy(photograph()).permute(2, 0, 1)
    own = drawn(case.ours, case.seed)
    if isinstance(case.ours, T.RandomIoUCrop):
        from torchdali.ragged import Ragged

        key = own["rand"]
        sizes = np.array([photograph().shape[:2]])
        params, _ = case.ours.make_params(key, sizes, Ragged(BOXES, np.array([1])))  # type: ignore[call-arg]
        own |= {name: values[0].tolist() for name, values in params.items()}
    return torch.as_tensor(case.theirs(image, own))


# Pictures


def shown(image: torch.Tensor) -> Image.Image:
    """An image of any dtype as a picture."""
    if image.is_floating_point():
        low, high = (0.0, 1.0) if image.min() >= 0 and image.max() <= 1 else (-2.5, 2.5)
        image = ((image - low) / (high - low) * 255).round().clamp(0, 255).to(torch.uint8)
    array = image.permute(1, 2, 0).numpy()
    return Image.fromarray(array[..., 0] if array.shape[2] == 1 else array)


def encoded(picture: Image.Image) -> bytes:
    file = io.BytesIO()
    picture.save(file, "webp", quality=85)
    return file.getvalue()


def distance(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """The largest difference of a value, in levels of 255."""
    unit = 255.0 if ours.is_floating_point() else 1.0
    return float((ours.double() - theirs.double()).abs().max()) * unit


def difference(ours: torch.Tensor, theirs: torch.Tensor) -> Image.Image:
    unit = 255.0 if ours.is_floating_point() else 1.0
    gap = (ours.double() - theirs.double()).abs() * unit * STRONGER
    return shown(gap.clamp(0, 255).to(torch.uint8))


def brief(transform: Any) -> str:
    """A transform as one writes it, without the arguments that are the defaults, and a link to its reference."""
    name = type(transform).__name__
    written = repr(transform)
    if dataclasses.is_dataclass(transform):
        given = [
            f"{field.name}={getattr(transform, field.name)!r}"
            for field in dataclasses.fields(transform)
            if getattr(transform, field.name) != field.default
        ]
        written = f"{name}({', '.join(given)})"
    return f"[`{written}`](reference/transforms.md#torchdali.transforms.{name})"


def figure(name: str, words: str, share: float = 1.0) -> str:
    """A picture with words below it, `share` of its column wide."""
    image = f'<img src="gallery/{name}.webp" alt="{words}" style="width:{share:.0%}" loading="lazy">'
    return f"<figure>{image}<figcaption>{words}</figcaption></figure>"


def section(name: str, figures: list[str], words: str) -> str:
    return f'### {name}\n\n{words}\n\n<div class="gallery">\n{"".join(figures)}\n</div>\n'


def image_section(name: str, case: Case, pictures: dict[str, bytes]) -> str:
    ours = ours_of(case)
    theirs = theirs_of(case)
    pictures[f"{name}.webp"] = encoded(shown(ours))
    share = min(1.0, ours.shape[2] / LARGEST)  # so that a smaller image looks smaller
    figures = [figure(name, "torchdali", share)]
    words = f"{brief(case.ours)} {case.note}".strip()
    if theirs is not None:
        pictures[f"{name}-theirs.webp"] = encoded(shown(theirs))
        pictures[f"{name}-gap.webp"] = encoded(difference(ours, theirs))
        gap = distance(ours, theirs)
        figures += [
            figure(f"{name}-theirs", "torchvision", share),
            figure(f"{name}-gap", f"difference: {gap:.2g}", share),
        ]
    return section(name, figures, words)


# Objects, views, volumes, batches, sound


def with_boxes(image: torch.Tensor, boxes: torch.Tensor, points: torch.Tensor | None = None) -> Image.Image:
    """A picture with a margin, so that what lies outside can be seen."""
    picture = Image.new("RGB", (image.shape[2] + 40, image.shape[1] + 40), (128, 128, 128))
    picture.paste(shown(image), (20, 20))
    draw = ImageDraw.Draw(picture)
    for box in (boxes + 20).tolist():
        draw.rectangle(box, outline=(255, 220, 0), width=3)
    for x, y in [] if points is None else (points.reshape(-1, 2) + 20).tolist():
        draw.ellipse([x - 6, y - 6, x + 6, y + 6], fill=(255, 255, 255), outline=(200, 0, 0), width=3)
    return picture


def object_sections(pictures: dict[str, bytes]) -> list[str]:
    boxes = np.array([[62, 30, 150, 118], [150, 90, 230, 170], [10, 12, 10.5, 12.5]], np.float32)
    points = np.array([[[100.0, 70]], [[215.0, 120]], [[30.0, -15]]], np.float32)
    before = torch.from_numpy(photograph()).permute(2, 0, 1)
    made = []
    cases = {
        "ClampBoundingBoxes": (T.ClampBoundingBoxes(), boxes, "Boxes are cut off at the edges."),
        "SanitizeBoundingBoxes": (
            T.SanitizeBoundingBoxes(), boxes, "Boxes that reach outside, and those of no size, are dropped.",
        ),
        "ConvertBoundingBoxFormat": (
            T.ConvertBoundingBoxFormat("xywh"), boxes[:1], "The same box as left, top, width and height.",
        ),
        "ClampKeyPoints": (T.ClampKeyPoints(), points, "Points outside are moved to the edges."),
        "SanitizeKeyPoints": (T.SanitizeKeyPoints(), points, "Objects with a point outside are dropped."),
    }  # fmt: skip
    for name, (transform, values, words) in cases.items():
        kind = "points" if values.ndim == 3 else "boxes"
        _, after = through_loader({"image": [photograph()], kind: [values]}, SEED, {kind: kind}, transform=transform)
        told = torch.from_numpy(values)
        for title, rows in (("before", told), ("after", after[0])):
            if name == "ConvertBoundingBoxFormat" and title == "after":
                words += f" {tuple(map(int, told[0]))} becomes {tuple(map(int, rows[0]))}."
                rows = torch.cat([rows[:, :2], rows[:, :2] + rows[:, 2:]], 1)
            nothing = torch.zeros(0, 4)
            drawn_on = with_boxes(before, *((nothing, rows) if kind == "points" else (rows, None)))
            pictures[f"{name}-{title}.webp"] = encoded(drawn_on)
        made.append(
            section(
                name, [figure(f"{name}-{title}", title) for title in ("before", "after")], f"{brief(transform)} {words}"
            )
        )
    return made


def grid(images: list[torch.Tensor], columns: int, gap: int = 4) -> Image.Image:
    height, width = images[0].shape[-2:]
    rows = -(-len(images) // columns)
    picture = Image.new("RGB", (columns * (width + gap) - gap, rows * (height + gap) - gap), (128, 128, 128))
    for number, image in enumerate(images):
        picture.paste(shown(image), (number % columns * (width + gap), number // columns * (height + gap)))
    return picture


def view_sections(pictures: dict[str, bytes]) -> list[str]:
    image = torch.from_numpy(photograph()).permute(2, 0, 1)
    made = []
    for name, ours, theirs in (
        ("FiveCrop", T.FiveCrop(60), functional.five_crop(image, [60, 60])),
        ("TenCrop", T.TenCrop(60), functional.ten_crop(image, [60, 60])),
    ):
        (views,) = through_loader({"image": [photograph()]}, SEED, transform=ours, output="tuple")
        mine = [one[0] for one in views]
        gap = max(distance(one, other) for one, other in zip(mine, theirs, strict=True))
        pictures[f"{name}.webp"] = encoded(grid(mine, 5))
        pictures[f"{name}-theirs.webp"] = encoded(grid(list(theirs), 5))
        pictures[f"{name}-gap.webp"] = encoded(
            grid(
                [torch.from_numpy(np.asarray(difference(*pair)).copy()).permute(2, 0, 1) for pair in zip(mine, theirs)],
                5,
            )
        )
        figures = [figure(name, "torchdali"), figure(f"{name}-theirs", "torchvision")]
        figures.append(figure(f"{name}-gap", f"difference: {gap:.2g}"))
        made.append(section(name, figures, f"{brief(ours)} Views of one decode."))
    return made


def clip_sections(pictures: dict[str, bytes]) -> list[str]:
    """A window that moves over the photograph in twelve frames."""
    clip = np.stack([photograph()[2 * k : 2 * k + 100, 6 * k : 6 * k + 120] for k in range(12)])
    ours = T.UniformTemporalSubsample(4)
    (after,) = through_loader({"video": [clip]}, SEED, {"video": "video"}, transform=ours)
    theirs = functional.uniform_temporal_subsample(torch.from_numpy(clip).permute(0, 3, 1, 2), 4)
    gap = distance(after[0], theirs)
    figures = []
    for title, frames in (("before", torch.from_numpy(clip).permute(0, 3, 1, 2)), ("after", after[0])):
        pictures[f"frames-{title}.webp"] = encoded(grid(list(frames), 4))
        figures.append(figure(f"frames-{title}", title if title == "before" else f"after; difference: {gap:.2g}"))
    return [section("UniformTemporalSubsample", figures, f"{brief(ours)} Twelve frames, and four of them.")]


def volume_sections(pictures: dict[str, bytes]) -> list[str]:
    """The photograph as twelve slices: its grey values above rising levels."""
    grey = photograph(120, 90).mean(2)
    volume = np.stack([np.clip(grey - 15 * k, 0, None) for k in range(12)]).astype(np.float32)
    made = []
    for ours in (T.CenterCrop3d((6, 60, 60)), T.RandomCrop3d((6, 60, 60)), T.RandomDepthFlip(1.0)):
        name = type(ours).__name__
        (after,) = through_loader({"volume": [volume]}, SEED, {"volume": "volume"}, transform=ours)
        for title, values in (("before", torch.from_numpy(volume)), ("after", after[0])):
            slices = [(one / 255).clamp(0, 1)[None].expand(3, -1, -1) for one in values[::2]]
            pictures[f"{name}-{title}.webp"] = encoded(grid(slices, 3))
        words = f"{brief(ours)} Every second slice is shown. torchvision has none."
        made.append(section(name, [figure(f"{name}-{title}", title) for title in ("before", "after")], words))
    return made


def batch_sections(pictures: dict[str, bytes]) -> list[str]:
    made = []
    columns = {"image": [photograph(), other_photograph()], "label": [0, 1]}
    for ours, seed in ((T.MixUp(num_classes=2), SEED), (T.CutMix(num_classes=2), 5)):
        name = type(ours).__name__
        dataset = td.InMemoryDataset(image=np.stack(columns["image"]), label=np.array(columns["label"]))
        options = dict(seed=seed, device="cpu", num_threads=1, transform=T.ToDtype(torch.float32, True))
        with td.DataLoader(dataset, 2, batch_transform=ours, **options) as loader:
            images, labels = next(iter(loader))
        for number in range(2):
            pictures[f"{name}-{number}.webp"] = encoded(shown(images[number]))
        weights = [", ".join(f"{part:.2f}" for part in row) for row in labels.tolist()]
        words = f"{brief(ours)} A function of the whole batch, by torchvision's formula, with a weight for each sample."
        figures = [figure(f"{name}-{number}", f"labels: {weights[number]}") for number in range(2)]
        made.append(section(name, figures, words))
    return made


def sound() -> np.ndarray:
    """One second: silence, a tone that rises, silence; float32 [1, samples]."""
    time = np.arange(RATE) / RATE
    tone = np.sin(2 * np.pi * (300 * time + 900 * time**2)) * np.hanning(RATE) ** 2
    return np.where((time > 0.2) & (time < 0.8), tone, 0).astype(np.float32)[None]


def wave(values: torch.Tensor, length: int = RATE) -> Image.Image:
    """A wave as a picture, at the scale of one second."""
    picture = Image.new("RGB", (SIZE, 110), (24, 26, 32))
    draw = ImageDraw.Draw(picture)
    line = values.reshape(-1).numpy()
    for x in range(min(SIZE, int(len(line) * SIZE / length))):
        part = line[int(x * length / SIZE) : int((x + 1) * length / SIZE) + 1]
        draw.line([(x, 55 - 45 * float(part.max())), (x, 55 - 45 * float(part.min()))], fill=(120, 200, 255))
    return picture


def heat(values: torch.Tensor) -> Image.Image:
    """A spectrogram as a picture, low tones at the bottom."""
    values = values.reshape(values.shape[-2:]).flip(0)
    values = (values - values.min()) / (values.max() - values.min() + 1e-9)
    stops = torch.tensor([[24, 26, 32], [60, 60, 150], [200, 70, 120], [255, 200, 80]], dtype=torch.float32)
    place = values * 3
    low = place.floor().clamp(0, 2).long()
    colours = stops[low] + (stops[low + 1] - stops[low]) * (place - low)[..., None]
    picture = Image.fromarray(colours.to(torch.uint8).numpy())
    return picture.resize((SIZE, 110), Image.Resampling.NEAREST)


def sound_sections(pictures: dict[str, bytes]) -> list[str]:
    mel = [T.MelSpectrogram(RATE, n_fft=256, n_mels=40), T.ToDecibels(top_db=60)]
    cases: dict[str, list[Any]] = {
        "RandomTimeCrop": [T.RandomTimeCrop(RATE // 2)],
        "CenterTimeCrop": [T.CenterTimeCrop(RATE // 2)],
        "TimeShift": [T.TimeShift(0.3)],
        "AddNoise": [T.AddNoise(10)],
        "TrimSilence": [T.TrimSilence(30, 256, 64)],
        "Spectrogram": [T.Spectrogram(256)],
        "MelSpectrogram": [T.MelSpectrogram(RATE, n_fft=256, n_mels=40)],
        "MFCC": [T.MFCC(RATE, n_mfcc=20, melkwargs={"n_fft": 256, "n_mels": 40})],
        "ToDecibels": mel,
        "TimeMasking": [*mel, T.TimeMasking(12)],
        "FrequencyMasking": [*mel, T.FrequencyMasking(12)],
    }
    made = []
    for name, steps in cases.items():
        (after,) = through_loader({"audio": [sound()]}, SEED, {"audio": kinds.Audio()}, transform=T.Compose(steps))
        before: Any = sound()
        if len(steps) > 1:
            (rows,) = through_loader(
                {"audio": [sound()]}, SEED, {"audio": kinds.Audio()}, transform=T.Compose(steps[:-1])
            )
            before = rows[0]
        for title, values in (("before", torch.as_tensor(before)), ("after", after[0])):
            picture = wave(values) if values.shape[-2] == 1 else heat(values)
            pictures[f"{name}-{title}.webp"] = encoded(picture)
        made.append(
            section(name, [figure(f"{name}-{title}", title) for title in ("before", "after")], brief(steps[-1]))
        )
    return made


def make_gallery() -> tuple[str, dict[str, bytes]]:
    """Make the Markdown of all sections, and the pictures by their files' names."""
    pictures: dict[str, bytes] = {}
    pictures["photograph.webp"] = encoded(Image.fromarray(photograph()))
    parts = ["## Images\n", f'<div class="gallery">{figure("photograph", "the photograph")}</div>\n']
    parts += [image_section(name, case, pictures) for name, case in image_cases().items()]
    parts += ["## Boxes and points\n", *object_sections(pictures)]
    parts += ["## Views\n", *view_sections(pictures)]
    parts += ["## Clips\n", *clip_sections(pictures)]
    parts += ["## Volumes\n", *volume_sections(pictures)]
    parts += ["## Whole batches\n", *batch_sections(pictures)]
    sounds = (
        "One second: silence, a rising tone, silence. The definitions are torchaudio's, and librosa's for silence:\n"
    )
    sounds += "`tests/test_sounds.py` compares them.\n"
    parts += ["## Sound\n", sounds, *sound_sections(pictures)]
    parts.append("## Without a picture\n")
    parts += [f"- `{name}`: {why}." for name, why in NO_PICTURE.items()]
    return "\n".join(parts), pictures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    text, pictures = make_gallery()
    for name, data in pictures.items():
        (out / name).write_bytes(data)
    (out / "gallery.md").write_text(text)
    print(f"{len(pictures)} pictures in {out}, {sum(map(len, pictures.values())) / 1000:.0f} kB")
