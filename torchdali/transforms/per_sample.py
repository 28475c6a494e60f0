"""A function of single samples as a transform: torchvision's v2, Albumentations, or code of your own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from ..elsewhere import Uncalled
from ..generators import HeldGenerators, known_values
from ..kinds import AnyKind
from ..rand import Key, derive, name_key
from .foreign import foreign
from .function import Function, check_adds


class PerSample(Function):
    """A function of one sample, as torchvision's transforms v2 are: `T.PerSample(v2.RandomPerspective())`.

    It gets the sample in the dataset's own form, such as `(image, target)`, on the CPU, and returns it in that form:
    images are `tv_tensors.Image` [C, H, W], and videos, masks, boxes and points tv_tensors too, so that v2's transforms
    move all of them; arrays are tensors, numbers are Python's, outlines come as masks [K, H, W], and objects as they
    are.  A part that it adds to a dict becomes a field, and one that it leaves out is dropped.  With `form="numpy"`
    arrays come instead, images as [H, W, C].  Where a function before it has added or dropped fields, the sample is a
    dict of the fields by name.

    Samples are worked on in the loader's threads, several at a time.  What it draws from torch's global generator, by
    `torch.rand` and its like, comes from a generator of the sample's own in that thread: torch's belongs to the whole
    process, and seeding it would disturb the draws of the training loop.  So a sample is the same in any batch, on any
    number of ranks and threads, after any resume, and equal to a call after `torch.manual_seed(rand.seed)`.  Python's
    and numpy's global generators can't be parted by threads: draw from `rand.numpy` instead; a function that draws from
    them is warned about.  Albumentations' `Compose`, MONAI's transforms and many others have generators of their own:
    where such an object is the function, or the function knows it by name, these are seeded for each sample, by its
    `set_random_seed` where it has that, and it works on one at a time.

    Args:
        function: called as f(sample), or f(sample, rand) with a `SampleRand`.
        form: "torch" or "numpy".
        adds, keeps_size: as those of `T.function`; new pictures, masks and boxes need their kinds here.

    Raises:
        TypeError: it can't be called in one of these ways.
        ValueError: another form.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        form: str = "torch",
        adds: Mapping[str, AnyKind] | None = None,
        keeps_size: bool = False,
    ) -> None:
        if not callable(function) or isinstance(function, (type, Uncalled)):
            hint = f": write PerSample({function.__name__}(...))" if isinstance(function, type) else ""
            raise TypeError(f"PerSample takes a function of a sample, got {function!r:.80}{hint}")
        if type(function).__module__.startswith("albumentations."):
            raise TypeError(
                f"PerSample takes a function of a sample, got {type(function).__name__}: {foreign(function)}"
            )
        if form not in ("torch", "numpy"):
            raise ValueError(f'form must be "torch" or "numpy", got {form!r}')
        self.function, self.form, self.traceable = function, form, False
        self.adds = check_adds(adds)
        self.keeps_size = keeps_size
        self.takes_rand = _takes_rand(function)

    def __repr__(self) -> str:
        inner = self.name if inspect.isroutine(self.function) else repr(self.function)
        return f"PerSample({inner})"

    @functools.cached_property
    def seeded(self) -> list[Any]:
        """The function, or objects that it knows, that have a generator of their own, and a method to seed it."""
        known = [self.function, *(value for _, value in known_values(self.function))]
        return [value for value in known if callable(getattr(value, "set_random_seed", None)) and not _is_class(value)]

    @functools.cached_property
    def held(self) -> HeldGenerators:
        """The generators that the function holds, in whatever it knows."""
        held = HeldGenerators(self.function)
        held.search()
        return held

    @functools.cached_property
    def alone(self) -> bool:
        """Whether it works on one sample at a time."""
        return bool(self.seeded or self.held.now())

    def call(self, sample: Any, rand: SampleRand) -> Any:
        """Call the function for one sample, with torch's draws from the sample's own generator."""
        for owner in self.seeded:
            owner.set_random_seed(rand.seed % 2**32)
        if self.alone and not self.seeded:
            self.held.seed(rand.seed)
        with _Draws(rand.global_torch):
            return self.function(sample, rand) if self.takes_rand else self.function(sample)


class SampleRand:
    """Random numbers for one sample, keyed by (seed, epoch, sample index) and the function's name.

    Args:
        seed: see below.
        root: a seed of the sample, whichever function asks.
        epoch, step: see below.

    Attributes:
        seed: 63 bits; `torch.rand` and its like draw as after `torch.manual_seed(seed)`.
        epoch: the epoch, as `set_epoch` counts it.
        step: the number of the batch in it.
    """

    def __init__(self, seed: int, root: int, epoch: int, step: int) -> None:
        self.seed, self._root, self.epoch, self.step = seed, root, epoch, step

    @functools.cached_property
    def global_torch(self) -> torch.Generator:
        """The generator that takes the place of torch's global one."""
        return torch.Generator().manual_seed(self.seed)

    @functools.cached_property
    def torch(self) -> torch.Generator:
        """A generator of torch on the CPU, for `generator=`."""
        return torch.Generator().manual_seed(derive(self.seed, Key.TORCH) % 2**63)

    @functools.cached_property
    def numpy(self) -> np.random.Generator:
        """A generator of numpy."""
        return np.random.Generator(np.random.PCG64(derive(self.seed, Key.NUMPY)))

    def stream(self, name: str) -> SampleRand:
        """Give numbers by a name, which whoever asks for it shares: not keyed by the function."""
        seed = derive(self._root, Key.STREAM, name_key(name)) % 2**63
        return SampleRand(seed, self._root, self.epoch, self.step)


_NAMES = (
    "rand randn randint randperm normal bernoulli multinomial poisson binomial rand_like randn_like randint_like "
    "uniform_ normal_ random_ bernoulli_ exponential_ cauchy_ log_normal_ geometric_"
).split()


def _accepts(draw: Callable[..., Any]) -> bool:
    """Whether a function named `*_like` takes a generator; older torch's do not."""
    if not draw.__name__.endswith("_like"):
        return True
    arguments = (9,) if draw.__name__ == "randint_like" else ()
    try:
        draw(torch.zeros(1), *arguments, generator=torch.Generator())
    except TypeError:
        return False
    return True


@functools.cache
def _draws() -> frozenset[Any]:
    """The functions of torch that draw, and take a generator."""
    found = {getattr(place, name, None) for place in (torch, torch.Tensor) for name in _NAMES}
    return frozenset(draw for draw in found if draw is not None and _accepts(draw))


class _Draws(TorchFunctionMode):
    """Lets torch's draws in this thread come from a generator."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self._generator, self._known = generator, _draws()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in self._known and kwargs.get("generator") is None:
            kwargs = {**kwargs, "generator": self._generator}
        return func(*args, **kwargs)


def _is_class(value: Any) -> bool:
    return isinstance(value, type)


def _takes_rand(function: Callable[..., Any]) -> bool:
    """Whether a function is to be called with (sample, rand).

    Raises:
        TypeError: it can be called neither so nor with (sample).
    """
    called: Any = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):  # some of those that are written in C have none
        return False
    if "rand" in signature.parameters:
        return True
    try:
        signature.bind("sample")
    except TypeError as error:
        try:
            signature.bind("sample", "rand")
        except TypeError:
            name = getattr(function, "__name__", type(function).__name__)
            raise TypeError(
                f"a function for PerSample must take (sample) or (sample, rand), {name} takes {signature}: write "
                f"PerSample(lambda sample: {name}(...)); Albumentations, which wants names, as "
                'PerSample(lambda sample: {**sample, **transform(image=sample["image"])}, form="numpy")'
            ) from error
        return True
    return False


def flatten_like(name: str, template: Any, value: Any) -> dict[str, Any]:
    """Take a sample apart into fields: `template` has the same form, with the fields' names where values are.

    Args:
        name: of the function, for messages.
        template: names in tuples, lists, dicts and dataclasses.
        value: the sample.

    Raises:
        TypeError: the sample has another form.
    """
    found: dict[str, Any] = {}
    _walk(name, template, value, "", found)
    return found


def _walk(name: str, template: Any, value: Any, path: str, found: dict[str, Any]) -> None:
    if isinstance(template, str):
        found[template] = value
    elif isinstance(template, Mapping):
        if not isinstance(value, Mapping):
            raise TypeError(f"{name} must return {_form(template)}{_at(path)}, got {type(value).__name__}")
        for key, part in value.items():
            inner = f"{path}.{key}" if path else str(key)
            _walk(name, template.get(key, inner), part, inner, found)
    elif isinstance(template, (tuple, list)):
        if not isinstance(value, (tuple, list)) or len(value) != len(template):
            got = f"{len(value)} parts" if isinstance(value, (tuple, list)) else type(value).__name__
            raise TypeError(f"{name} must return {_form(template)}{_at(path)}, got {got}")
        for number, (inner_template, part) in enumerate(zip(template, value, strict=True)):
            _walk(name, inner_template, part, f"{path}.{number}" if path else str(number), found)
    else:
        for key, inner_template in vars(template).items():
            _walk(name, inner_template, getattr(value, key), f"{path}.{key}" if path else key, found)


def _form(template: Any) -> str:
    if isinstance(template, Mapping):
        return f"a dict of {', '.join(map(str, template))}"
    return f"{len(template)} parts, as the sample has them,"


def _at(path: str) -> str:
    return f" in {path}" if path else ""
