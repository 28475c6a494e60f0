"""Shows samples as they leave a loader: augmented, with labels, and with all that lies in them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..batch import Padded
from ..checks import integer
from ..loader import DataLoader

if TYPE_CHECKING:
    import torch
    from matplotlib.figure import Figure

    from .look import Look


def show(
    data: Any,
    transform: Any = None,
    *,
    samples: int = 12,
    draws: int = 1,
    frames: int = 6,
    columns: int | None = None,
    classes: Sequence[str] | Mapping[int, str] | None = None,
    decode: Callable[[list[int]], str] | None = None,
    shuffle: bool = False,
    seed: int = 0,
    device: str | torch.device = "cpu",
    figure: Figure | None = None,
) -> Figure:
    """Show samples as a network will see them, as a matplotlib figure.

    Images are shown as they leave the transform, and brought back to the screen's range: `Normalize` is undone, and
    other values are shown from the smallest to the largest, which the title says.  Masks are laid over their images,
    boxes and points are drawn in them, with the names of classes where they are known; padding is cut off.  The views
    of `T.Views`, the frames of a clip and the slices of a volume stand beside each other.  Sound is drawn as a curve,
    or as its spectrogram; rows of ids as text.

    A notebook shows the figure where it is the value of a cell; `figure.savefig("grid.png")` writes it.

    Args:
        data: a `DataLoader`, whose next samples are shown; it does not move.  Or a dataset, of torchdali or torch, or a
            native reader.  Or a batch: a tensor, or a tuple, list or dict of them, whose
            kinds are guessed from names and shapes.
        transform: the transform of the samples instead of the loader's or the dataset's own.
        samples: how many are shown, at most.
        draws: how often each sample is drawn, in a row: as in this epoch and those after it.
        frames: frames of a clip, or slices of a volume, that are shown.
        columns: samples in a row; None: as many as fit.
        classes: names of classes; None: the dataset's `classes` or `categories`, if it has them.
        decode: makes a text of a list of ids, such as a tokenizer's `decode`.
        shuffle, seed, device: of the loader of a dataset; a loader has its own.
        figure: a figure of matplotlib's to draw into, such as `pyplot.figure()`; None: a new one.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: no samples are found in the batch; `transform` or `draws` with a batch; `draws` with whole
            batches that can't be read again; an invalid argument.
        TypeError: nothing can be read from `data`, or it is an iterable that can't be copied.
        BadSampleError: a sample of a loader is bad and `on_bad_sample="raise"`; those of a dataset are left out.
    """
    from .look import look_at_batch  # here, so that `import torchdali` stays light
    from .panels import Panels

    for name, value in {"samples": samples, "draws": draws, "frames": frames, "columns": columns}.items():
        if value is not None:
            integer(name, value, 1)
    try:
        drawing = importlib.import_module("torchdali.showing.drawing")
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise ImportError("torchdali.show needs matplotlib: pip install 'torchdali[show]'") from error
    if _is_batch(data):
        if transform is not None or draws != 1:
            raise ValueError("transform= and draws= need a loader or a dataset, and this is a batch, made already")
        look = look_at_batch(data, samples)
    else:
        look = _look(data, transform, samples, draws, {"shuffle": shuffle, "seed": seed, "device": device})
    panels = Panels(look, _names(data if classes is None else classes), frames, decode)
    title = "; ".join([look.words, *panels.notes])
    drawn: Figure = drawing.draw(panels.cells(), title, columns, figure)
    return drawn


def _look(data: Any, transform: Any, samples: int, draws: int, options: dict[str, Any]) -> Look:
    from .look import look_at_loader

    if isinstance(data, DataLoader):
        if transform is None:
            return look_at_loader(data, samples, draws)
        with data.beside(transform=transform) as loader:
            return look_at_loader(loader, samples, draws)
    native = getattr(data, "uses_dali", False) or not options["shuffle"]
    with DataLoader(
        data,
        samples,
        transform=transform,
        on_bad_sample="skip",
        rank=0,
        world_size=1,
        **{name: value for name, value in options.items() if name != "shuffle" or not native},
    ) as loader:
        return look_at_loader(loader, samples, draws)


def _is_batch(data: Any) -> bool:
    """Whether it is a batch, and no loader or dataset: a tensor, or a container of tensors."""
    if isinstance(data, DataLoader):
        return False
    if isinstance(data, (Mapping, Padded)) or hasattr(data, "ndim"):
        return True
    samples = isinstance(data, list) and all(isinstance(one, (Mapping, tuple)) for one in data)
    if samples and not any(isinstance(one, Padded) for one in data):
        return False  # a list of samples, which is a dataset
    if isinstance(data, (list, tuple)):
        return any(hasattr(part, "ndim") or isinstance(part, (Mapping, Padded)) or _is_batch(part) for part in data)
    return False


def _names(data: Any) -> dict[int, str]:
    """Find the names of classes: those that are given, or those of a dataset, be it inside of another one."""
    if isinstance(data, (Mapping, list, tuple)):
        pairs: Iterable[Any] = data.items() if isinstance(data, Mapping) else enumerate(data)
        return {number: str(name) for number, name in pairs if isinstance(number, int) and not hasattr(name, "ndim")}
    for _ in range(5):  # a loader's dataset, a subset's dataset, ...
        for attribute in ("classes", "categories"):
            found = getattr(data, attribute, None)
            if isinstance(found, (Mapping, list, tuple)) and found:
                return _names(found)
        data = getattr(data, "dataset", None)
        if data is None:
            break
    return {}
