"""The transforms of sound: they run in torch on the CPU, sample by sample, when a batch is put together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import TransformError
from ..kinds import Audio, Kind
from ..rand import Rand
from ..transforms.base import Params
from ..transforms.function import Function
from ..transforms.sound import Form, is_sound
from .chain import Chain
from .images import Each

Drawn = list[tuple[Any, Params]]


def draw_sounds(shared: Chain, chain: Chain, rand: Rand) -> Drawn:
    """Draw the transforms of sound of a chain, and those of the chain that all views share.

    Args:
        shared: the plan.
        chain: one of its views' chains, or the plan again.
        rand: the random numbers of the samples.
    """
    drawn: Drawn = []
    for one in [shared] if chain is shared else [shared, chain]:
        own = one.of_view(rand)
        for k, step in one.sounds:
            drawn.append((step, step.make_params(one.rand(k, own), None)[0]))
    return drawn


def make_sounds(name: str, sounds: Sequence[Any], drawn: Drawn, each: Each) -> list[NDArray[Any]]:
    """Transform the sounds of a batch.

    Args:
        name: the field, for messages.
        sounds: arrays of floats [C, samples].
        drawn: the transforms and their params.
        each: runs a function for all samples, several at a time.

    Raises:
        TransformError: a field is no such array.
    """
    steps = [(step, {key: values.tolist() for key, values in params.items()}) for step, params in drawn]
    made: list[Any] = [None] * len(sounds)

    def run(part: range) -> None:
        for i in part:
            sound = torch.from_numpy(np.ascontiguousarray(sounds[i]))
            if sound.ndim != 2 or not sound.is_floating_point():
                raise TransformError(
                    f"sound must be floats [channels, samples] before {steps[0][0]!r}, got {sound.dtype} of the shape "
                    f"{list(sound.shape)} in {name!r}: write sound[None] for one channel, and sound / 32768 for int16"
                )
            for step, params in steps:
                sound = step.transform_sound(sound, **{key: values[i] for key, values in params.items()})
            made[i] = sound.numpy()

    each(run, len(sounds))
    return made


def check_sounds(chains: Sequence[Chain], kinds: Mapping[str, Kind]) -> None:
    """Raise where transforms of sound stand in an order that makes no sense, or the sound has another rate.

    Args:
        chains: the chain that all views share, and those of the views.
        kinds: the fields.

    Raises:
        ValueError: it says what to write instead.
    """
    shared, *views = chains
    form = _check_order(shared, "sound", any(view.functions for view in views))
    for view in views:
        _check_order(view, form, False)
    rates = {kind.rate: name for name, kind in kinds.items() if isinstance(kind, Audio) and kind.rate is not None}
    for chain in chains:
        for _, step in chain.sounds:
            told = getattr(step, "sample_rate", None)
            for rate, name in rates.items():
                if told not in (None, rate):
                    raise ValueError(
                        f"{type(step).__name__}(sample_rate={told}) is for sound of another rate than {name!r}, which "
                        f"has {rate}: write sample_rate={rate}"
                    )


def _check_order(chain: Chain, form: Form, functions_follow: bool) -> Form:
    for k, step in chain.sounds:
        if functions_follow or any(k < place for place in chain.functions):
            raise ValueError(f"{type(step).__name__} acts on sound, and can't come before a function: write it after")
        if step.takes not in (None, form):
            why = "write it before" if step.takes == "sound" else "write Spectrogram or MelSpectrogram before it"
            raise ValueError(f"{type(step).__name__} takes a {step.takes}, and gets a {form}: {why}")
        form = step.gives or form
    return form


def leaves_uniform(steps: Iterable[Any], uniform: bool | None) -> bool | None:
    """Whether a field of sound leaves steps with one shape."""
    for step in steps:
        if is_sound(step):
            uniform = True if step.fixes_length else False if step.varies_length else uniform
        elif isinstance(step, Function):
            uniform = None if uniform is not False else False
    return uniform
