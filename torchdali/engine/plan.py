"""A plan: a transform, compiled for one dataset and one kind of device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ..batch import Column
from ..collate import Padding
from ..formats.decode import on_host
from ..kinds import AnyKind, Audio, Boxes, Doubt, Kind, Mask, Polygons, as_kind
from ..ragged import Ragged
from ..rand import Rand
from ..transforms.base import Transform
from ..transforms.decode import Decode
from ..transforms.frames import UniformTemporalSubsample
from ..transforms.function import Function
from ..transforms.of_objects import Convert, Filter
from ..transforms.per_sample import PerSample
from ..transforms.values import ToDtype
from .chain import Chain, flatten, needs_torch
from .fit import check_fit
from .hostpass import Drawn, HostPass
from .sounds import leaves_uniform
from .uniformity import Uniformity


class Plan(Chain):
    """A compiled transform: the chain of the steps that all views share, and a chain for each view.

    Parameters are drawn for runs of steps between functions: the first run from the headers of the files, the others
    from the shapes that a function gave.

    Args:
        transform: a transform, a function, a Compose, or None.
        kinds: the dataset's fields.
        device: "cpu" or "cuda".
        uniform: says whether a field's samples all have one shape.
        always_ragged, always_uniform: fields that leave padded, or as one tensor, whatever else is known of them.
        doubts: fields whose kinds are guesses that may be wrong.

    Attributes:
        fused: the decoder decodes only the window of the step after it; with views, what all their windows need.
        pixels: the fields that transforms of values change.
        encoded: those of them whose files DALI decodes.
        decoded: the fields whose files are decoded on the host, before the transform.
        inputs: the fields that go into DALI.
        beside: the fields that functions see as lists.
        read: the dataset's fields.
        added: the fields to which functions gave kinds; `in_views` those of functions in views.
        host: draws, and moves what lies in the pictures.
        subsamples: the steps that choose the frames of clips, before all others.
        views: the chains of the views; without views there are none.
        uniform: whether the images or arrays of a field leave with one shape.
        tried: the functions that were called once already.
        held: the functions that were not looked through yet for generators that they hold.
    """

    def __init__(
        self,
        transform: Any,
        kinds: Mapping[str, AnyKind],
        device: str,
        uniform: Callable[[str], bool | None],
        always_ragged: Sequence[str] = (),
        always_uniform: Sequence[str] = (),
        doubts: Mapping[str, Doubt] | None = None,
    ) -> None:
        steps, views = flatten(transform)
        chains = {} if views is None else {key: flatten(one)[0] for key, one in views.transforms.items()}
        self.read = list(kinds)
        self.added = _added(steps, list(chains.values()), self.read)
        self.in_views = [name for name in self.added if name not in _added(steps, [], self.read)]
        self.kinds: dict[str, Kind] = {name: as_kind(kind) for name, kind in kinds.items()} | self.added
        self.pixels = [name for name, kind in self.kinds.items() if kind.pixels]
        self.decoded = [name for name, kind in self.kinds.items() if on_host(kind)]
        self.encoded = [name for name in self.pixels if self.kinds[name].encoded and name not in self.decoded]
        for k, step in enumerate(steps):
            if isinstance(step, Decode) and k:
                raise ValueError("Decode must be the first transform")
        sees_files = steps and isinstance(steps[0], (Decode, Function)) and not isinstance(steps[0], PerSample)
        if self.encoded and not sees_files:
            steps.insert(0, Decode())
        if not self.encoded and steps and isinstance(steps[0], Decode):
            del steps[0]  # they are decoded already
        every = [step for chain in chains.values() for step in chain]
        late = any(needs_torch(step) for step in steps) and all(isinstance(s, Transform) and s.on_host for s in every)
        self.views = [Chain(chain, device, late=late, key=key) for key, chain in chains.items()]
        self.named_views = views is not None and views.named
        super().__init__(steps, device, whole=any(view.split for view in self.views))
        self.decodes = bool(self.encoded) and isinstance(self.steps[0], Decode)
        self.host = HostPass(self.kinds)
        check_fit(self.chains, self.kinds, self.host.scenes.values(), doubts or {})
        self.tried: set[tuple[str, int]] = set()
        self.held = [step for chain in self.chains for step in chain.steps if isinstance(step, Function)]
        first = self.functions[0] if self.functions else len(self.steps)
        self.first_run = (0, first)
        self.subsamples = [step for step in self.steps if isinstance(step, UniformTemporalSubsample)]
        self.fused = self.decodes and device == "cpu" and first > 0 and self._windowed(first)
        self.peeks = bool(self.encoded) and self._needs_sizes(first)
        self.any_functions = any(chain.functions for chain in self.chains)
        # A function sees everything: what DALI can hold as batches, the rest as lists.
        read = {name: self.kinds[name] for name in self.read}
        pixels = [name for name in self.pixels if name in read]
        others = [
            name
            for name, kind in read.items()
            if (kind.held in ("array", "number") or name in self.decoded) and name not in pixels
        ]
        others += [name for name, kind in read.items() if isinstance(kind, Mask) and kind.encoded]
        self.inputs = (pixels if self.on_dali else []) + (others if self.any_functions else [])
        objects = [name for name, kind in read.items() if kind.held == "object" and name not in self.inputs]
        self.beside = objects if self.any_functions else []
        self.uniform = self._uniformity(uniform, always_ragged, always_uniform)

    @property
    def chains(self) -> list[Chain]:
        """The chain of the shared steps, and those of the views."""
        return [self, *self.views]

    @property
    def on_dali(self) -> bool:
        """DALI has something to do."""
        return any(chain.split for chain in self.chains)

    @property
    def unchanging(self) -> bool:
        """Whether the device part of every chain does the same in every pass."""
        return super().unchanging and all(view.unchanging for view in self.views)

    @property
    def empty(self) -> bool:
        """There is nothing to do but reading."""
        return not self.steps and not self.views

    @property
    def host_steps(self) -> bool:
        """Steps run in torch, in the last stage."""
        return any(chain.split < len(chain) for chain in self.chains)

    def frames(self, clips: Column) -> Column:
        """Choose the frames of clips [F, H, W, C], arrays or tensors."""
        for step in self.subsamples:
            clips = [clip[step.chosen(len(clip))] for clip in clips]
        return clips

    def leaves_as(self, name: str) -> list[str]:
        """The names under which a field is settled: its own, or one for each view."""
        return [f"{name}.{view.key}" for view in self.views] if self.views and self.viewed(name) else [name]

    def form_views(self, values: dict[str, Any]) -> list[Any] | dict[str, Any]:
        """Put the values of the views into a list, or a dict by name."""
        return values if self.named_views else list(values.values())

    def viewed(self, name: str) -> bool:
        """Whether each view has a field of its own: pictures, what lies in them, and what belongs to objects.

        Sound has one where the views transform it.
        """
        kind = self.kinds.get(name)
        if isinstance(kind, Audio) and any(view.sounds for view in self.views):
            return True
        return kind is not None and (kind.spatial or kind.group is not None or name in self.in_views)

    def formats(self, chain: Chain, end: int) -> dict[str, str]:
        """Give the formats of boxes before a step of a chain, where a step before it has changed them."""
        none = Ragged(np.zeros((0, 4), np.float32), np.zeros(0, np.int64))
        steps = chain.steps[:end] if chain is self else [*self.steps, *chain.steps[:end]]
        formats: dict[str, str] = {name: kind.format for name, kind in self.kinds.items() if isinstance(kind, Boxes)}
        for step in steps:
            if isinstance(step, Convert) and step.acts_on == "boxes":
                formats = {
                    n: step.convert(none, format, np.zeros((0, 2), np.int64))[1] for n, format in formats.items()
                }
        return formats

    def mask_dtype(self, chain: Chain) -> np.dtype[Any] | None:
        """Give the dtype in which masks leave a chain; None: their own."""
        steps = chain.steps if chain is self else [*self.steps, *chain.steps]
        told = [step.masks for step in steps if isinstance(step, ToDtype) and step.masks is not None]
        return torch.empty(0, dtype=told[-1]).numpy().dtype if told else None

    def _windowed(self, first: int) -> bool:
        """Whether only a window of the files is needed: the first step's, or those of all views' first steps."""
        if len(self.steps) > 1:
            return first > 1 and self.transform(1).windowed
        return bool(self.views) and all(len(view) and view.transform(0).windowed for view in self.views)

    def _needs_sizes(self, first: int) -> bool:
        lost = [k for k in self.functions if not self.steps[k].keeps_size]  # type: ignore[union-attr]
        needs = any(self.transform(k).needs_sizes for k in range(lost[0] if lost else len(self.steps)))
        if not self.functions:
            needs = needs or any(step.needs_sizes for view in self.views for step in _before_function(view))
        acts = any(_acts(step) for chain in self.chains for step in chain.steps)
        drawn = any(isinstance(kind, Polygons) for kind in self.kinds.values())  # into masks of the image's size
        return needs or drawn or (self.host.annotated and acts)

    def _uniformity(
        self, uniform: Callable[[str], bool | None], ragged: Sequence[str], one: Sequence[str]
    ) -> Uniformity:
        sources = {
            name: kind.ragged is False if kind.ragged is not None else None if name in self.added else uniform(name)
            for name, kind in self.kinds.items()
            if kind.held == "array" or kind.spatial or name in self.decoded
        }
        known: dict[str, bool | None] = {}
        for name, of_source in sources.items():
            shared = self._leaves(name, of_source, self)
            known |= {name: shared}
            for view, key in zip(self.views, self.leaves_as(name), strict=False):
                known[key] = self._leaves(name, shared, view)
        stays = [
            name
            for name, of_source in sources.items()
            if self._leaves(name, of_source, self, self.first_run[1]) is False
        ]
        every = {name: [name, *self.leaves_as(name)] for name in {*ragged, *one}}
        return Uniformity(
            known,
            stays,
            self.any_functions,
            [key for name in ragged for key in every[name]],
            [key for name in one for key in every[name]],
        )

    def _leaves(self, name: str, uniform: bool | None, chain: Chain, end: int | None = None) -> bool | None:
        """Whether a field leaves steps of a chain with one shape."""
        kind = self.kinds[name]
        if isinstance(kind, Audio):
            return leaves_uniform(chain.steps[:end], uniform)
        moved = kind.spatial and kind.word not in ("boxes", "points") and not (kind.group and isinstance(kind, Mask))
        for step in chain.steps[:end]:
            if isinstance(step, Function):
                # A function often makes images of one size out of any, and seldom arrays.
                uniform = None if name in self.pixels or uniform is not False else False
            elif step.fixes_size and moved and (kind.word != "volume" or getattr(step, "dims", 2) == 3):
                uniform = True
            elif step.varies_size and moved:
                uniform = False
        return uniform

    def padding(self, padding: Padding) -> Padding:
        """Give a loader's padding with the numbers that the fields' kinds say."""
        said = {name: kind.pad_value for name, kind in self.kinds.items() if kind.pad_value is not None}
        return replace(padding, of_kinds=said)

    def check_padding(self, padding: Padding, dtype_of: Callable[[str], Any]) -> None:
        """Raise where the pad value does not fit a field, as far as that is known before the first batch.

        Args:
            padding: for ragged fields, with the numbers of the kinds.
            dtype_of: gives the dtype of a field of arrays, or None where it is not known.

        Raises:
            PadValueError: it does not fit, or names an unknown field.
        """
        if self.any_functions:  # they may add fields
            return
        padding.check_fields(self.kinds)
        for name, kind in self.kinds.items():
            if kind.held != "array" and name not in self.pixels:
                continue
            dtype = self._image_dtype() if name in self.pixels else dtype_of(name)
            if isinstance(kind, (Mask, Polygons)):
                dtype = self.mask_dtype(next(iter(self.views), self)) or dtype
            if dtype is not None and not all(self.uniform[key] for key in self.leaves_as(name)):
                padding.value_for(name, dtype)

    def _image_dtype(self) -> torch.dtype:
        dtype = torch.uint8
        for chain in [self, *self.views[:1]]:
            for k in range(len(chain)):
                dtype = chain.transform(k).out_dtype(dtype)
        return dtype

    @property
    def why_not_traced(self) -> str | None:
        """The reason why this plan can't run in a pipeline; None where it can."""
        if not self.on_dali:
            return "there is nothing for DALI to do"
        for chain in self.chains:
            for k in chain.functions:
                function = chain.steps[k]
                assert isinstance(function, Function)
                if not function.traceable:
                    return f"the function {function.name} is not marked with transforms.traceable"
                later = [chain.transform(n) for n in range(k + 1, chain.split)]
                if chain is self:
                    later += [step for view in self.views for step in _before_function(view)]
                kept = all(step.keeps_size for step in chain.steps[: k + 1] if isinstance(step, Function))
                for step in later:
                    if (step.needs_sizes and not (kept and step in chain.steps)) or (
                        self.host.annotated and _acts(step)
                    ):
                        return f"{type(step).__name__} needs the sizes of the images that {function.name} makes"
        return None

    def choose(self, engine: str, any_size: bool, on_gpu: bool = False) -> tuple[str, str]:
        """Choose the execution, and say why.

        Args:
            engine: "eager", "pipeline", "debug" or "auto".
            any_size: the source or the order decides how many samples a batch has.
            on_gpu: the source gives tensors on the GPU.
        """
        why_not = self.why_not_traced
        if any_size:
            why_not = (
                "a pipeline has a largest batch size, and the source or a batch sampler decides how large they are"
            )
        if on_gpu:
            why_not = "the reader gives tensors on the GPU, and a pipeline is fed from the host"
        if engine == "pipeline" and why_not:
            return "eager", why_not
        if engine != "auto":
            return engine, f"engine={engine!r} was asked for"
        return ("eager", why_not) if why_not else ("pipeline", "a traced pipeline is DALI's fastest execution")

    def draw_first(self, rand: Rand, begin: Drawn) -> tuple[Drawn, list[Drawn]]:
        """Draw the first run of steps; and of the views, where no function comes before them.

        Args:
            rand: the random numbers of the samples.
            begin: the samples as they were read.
        """
        drawn = self.host.draw(self, self.first_run, rand, begin)
        views = [] if self.functions else self.draw_views(rand, self.host.shown(drawn) if self.any_functions else drawn)
        if self.fused:
            self._fuse(begin, drawn, views)
        return drawn, views

    def draw_views(self, rand: Rand, shared: Drawn) -> list[Drawn]:
        """Draw the first run of each view, after the shared steps."""
        return [
            self.host.draw(view, (0, len(_before_function(view))), view.of_view(rand), shared) for view in self.views
        ]

    def _fuse(self, begin: Drawn, drawn: Drawn, views: list[Drawn]) -> None:
        """Let the decoder decode only what the windows of the first steps need."""
        for name in self.encoded:
            whole = begin.sizes[name]
            assert whole is not None
            draws = [drawn.draws[1]] if len(self.steps) > 1 else [view.draws[0] for view in views]
            windows = [fields[name] for fields in draws]
            low, ends = whole - 1, np.zeros_like(whole)
            for window in windows:
                low = np.minimum(low, np.maximum(window["start"], 0))
                ends = np.maximum(ends, np.minimum(window["start"] + window["shape"], whole))
            high = np.maximum(ends, low + 1)
            drawn.draws[0][name] = {"start": low.astype(np.int32), "shape": (high - low).astype(np.int32)}
            for fields, window in zip(draws, windows, strict=True):
                fields[name] = {**window, "start": (window["start"] - low).astype(np.int32)}


def _acts(step: Transform | Function) -> bool:
    """Whether a step does something to what lies in pictures."""
    return isinstance(step, Transform) and (step.moving or isinstance(step, (Filter, Convert)))


def _added(steps: Sequence[Any], views: Sequence[Sequence[Any]], read: Sequence[str]) -> dict[str, Kind]:
    """Collect the kinds of the fields that functions add.

    Raises:
        ValueError: two functions give a field two kinds, one is the dataset's, or views differ.
    """
    found: dict[str, Kind] = {}
    per_view: list[dict[str, Kind]] = []
    for chain in (steps, *views):
        own: dict[str, Kind] = {}
        for step in chain:
            for name, kind in step.adds.items() if isinstance(step, Function) else ():
                if name in read:
                    raise ValueError(
                        f"{step.name} adds {name!r}, which the dataset has: give it another name, or say its kind by "
                        f"kinds={{{name!r}: ...}} at the dataset"
                    )
                if found.setdefault(name, kind) != kind:
                    raise ValueError(f"functions add {name!r} as {found[name]!r} and as {kind!r}: write one kind")
                own[name] = kind
        per_view += [] if chain is steps else [own]
    if any(own != per_view[0] for own in per_view):
        odd = next(name for own in per_view for name in own if not all(name in other for other in per_view))
        raise ValueError(f"functions of all views must add the same fields, and {odd!r} is not in each")
    return found


def _before_function(chain: Chain) -> list[Any]:
    """The steps of a chain before its first function."""
    return chain.steps[: chain.functions[0]] if chain.functions else chain.steps
