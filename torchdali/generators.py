"""Random generators that user code holds, such as a dataset's `self.rng`: they are seeded as the global ones are.

Albumentations' and MONAI's transforms have generators of their own, and so have many datasets.  Left alone, they would
give each worker process other numbers, and others again after a resume.
"""

from __future__ import annotations

import functools
import random
import struct
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch

from .errors import let_through

_MOST = 2000  # values that are looked at
_FIRST = 64  # parts of a list or dict that are looked at
_CLOSED = (str, bytes, bytearray, int, float, complex, np.ndarray, np.generic, torch.Tensor, type, ModuleType)


@functools.cache
def _kinds() -> tuple[type, ...]:
    """Give the types of generators; numpy imports its own at their first use."""
    return random.Random, np.random.Generator, np.random.RandomState, torch.Generator


_PLAIN = (list.__getitem__, tuple.__getitem__, dict.__getitem__)


class Place(NamedTuple):
    """Where a generator is.

    Attributes:
        container, key: it is `container[key]`.
        way: the way to it from its owner, which is the same in every process.
    """

    container: Any
    key: Any
    way: str


class HeldGenerators:
    """The generators that an object holds, in its attributes or in those of the objects, lists and dicts in it.

    Functions are searched for what they know by name, and so are methods of classes that are no installed package's.
    The search is made for the first two uses, since some generators are made when they are first needed; one that takes
    another's place later is found.

    Args:
        owner: a dataset, or a function.

    Attributes:
        none: it is known that there are none.
    """

    none = False

    def __init__(self, owner: Any) -> None:
        self._owner = owner
        self._places: list[Place] = []
        self._searches = 0
        self._before: dict[int, tuple[Any, Any]] = {}  # generators, and where they stood

    def __reduce__(self) -> Any:
        return HeldGenerators, (self._owner,)  # the places are those of this process

    def now(self) -> dict[str, Any]:
        """The generators by the ways to them, each once; neither the global ones nor those without a state."""
        found: dict[int, tuple[str, Any]] = {}
        for container, key, way in self._places:
            with suppress(LookupError):  # it was removed
                value = container[key]
                if is_generator(value):
                    found.setdefault(id(value), (way, value))
        return dict(found.values())

    def seed(self, number: int) -> None:
        """Seed each of them by a number and the way to it."""
        if self._searches < 2:
            self.search()
        for way, generator in self.now().items():
            if id(generator) not in self._before:
                self._before[id(generator)] = generator, _get_state(generator)
            hashed = blake2b(struct.pack("<Q", number % 2**64) + way.encode(), digest_size=8).digest()
            _seed(generator, int.from_bytes(hashed, "little"))

    def appeared(self) -> bool:
        """Whether the first use has made some more: it was made without seeds for these."""
        if self._searches != 1:
            return False
        before = set(self.now())
        self.search()
        return not before >= set(self.now())

    def search(self) -> None:
        """Look for them."""
        self._places = list(_places(self._owner))
        self._searches += 1
        self.none = self._searches > 1 and not self._places

    def states(self) -> list[tuple[Any, Any]]:
        """Get where each of them stands, for `go_on`."""
        return [(generator, _get_state(generator)) for generator in self.now().values()]

    def go_on(self, states: list[tuple[Any, Any]]) -> None:
        """Put them to where they stood at `states`, inside `preserved`."""
        for generator, state in states:
            if id(generator) not in self._before:
                self._before[id(generator)] = generator, _get_state(generator)
            _set_state(generator, state)

    @contextmanager
    def preserved(self) -> Iterator[None]:
        """Seed them inside this block; they are put back after it."""
        self._before.clear()
        try:
            yield
        finally:
            for generator, state in self._before.values():
                _set_state(generator, state)
            self._before.clear()


def is_generator(value: Any) -> bool:
    """Whether a value is a generator of Python, numpy or torch that has a state, and is not a global one."""
    return _is_a(value, _kinds()) and not _is_global(value)


def known_values(function: Any) -> Iterator[tuple[str, Any]]:
    """The values that a function can reach by one name."""
    if isinstance(function, functools.partial):
        yield from zip(map("argument {}".format, range(len(function.args))), function.args, strict=True)
        yield from function.keywords.items()
        yield from known_values(function.func)
    elif isinstance(function, MethodType):
        yield from getattr(function.__self__, "__dict__", {}).items()
        yield from known_values(function.__func__)
    elif isinstance(function, FunctionType):
        for name in function.__code__.co_names:
            if name in function.__globals__:
                yield name, function.__globals__[name]
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            with suppress(ValueError):  # it is empty, as that of a name that is bound later
                yield name, cell.cell_contents
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        yield from zip(reversed(names), reversed(function.__defaults__ or ()), strict=False)
        yield from (function.__kwdefaults__ or {}).items()
    else:
        yield from getattr(function, "__dict__", {}).items()
        call = vars(type(function)).get("__call__")
        if isinstance(call, FunctionType):
            yield from known_values(call)


def _places(owner: Any) -> Iterator[Place]:
    """Find the places of generators, the nearest first, and those that only methods know last."""
    seen: set[int] = set()
    # Each with the globals of the function that knows it.
    waiting: deque[tuple[Place, Any]] = deque([(Place([owner], 0, ""), None)])
    methods: deque[tuple[Place, Any]] = deque()
    while (waiting or methods) and len(seen) < _MOST:
        place, names = (waiting or methods).popleft()
        value, way = place.container[place.key], place.way
        if _is_a(value, _kinds()):
            yield place
        if value is None or _is_a(value, (*_CLOSED, *_kinds())) or id(value) in seen:
            continue
        seen.add(id(value))
        if _is_a(value, (FunctionType, MethodType, functools.partial)):
            own = getattr(value, "__globals__", None)
            if names is None or own is names:  # else it is a function of a library, which the user's calls
                waiting.extend((Place([part], 0, f"{way}({name})"), own) for name, part in known_values(value))
            if _is_a(value, (MethodType,)):
                waiting.append((Place([value.__self__], 0, f"{way}(self)"), None))
            continue
        for inside in _parts(value):
            waiting.extend((Place(inside, key, f"{way}.{key!s:.99}"), None) for key in _keys(inside))
        for cls in type(value).__mro__:
            if id(cls) not in seen and not _installed(cls.__module__):
                seen.add(id(cls))
                own_methods = [(name, one) for name, one in vars(cls).items() if isinstance(one, FunctionType)]
                methods.extend((Place([one], 0, f"{way}:{name}"), None) for name, one in own_methods)


@functools.cache
def _installed(module: str) -> bool:
    """Whether a module is of an installed package: Hugging Face's names files by a generator that its methods know."""
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return module == "builtins" or bool({"site-packages", "dist-packages"} & set(Path(file).parts))


def _parts(value: Any) -> Iterator[Any]:
    """The containers of what a value holds: plain ones, since others may make their parts when they are asked."""
    if getattr(type(value), "__getitem__", None) in _PLAIN:
        yield value
    try:
        attributes = vars(value)
    except TypeError:  # it has none
        pass
    except Exception as error:  # it stands for another object, which is not there
        let_through(error)
    else:
        yield attributes
    for cls in type(value).__mro__:
        held = {name: one for name, one in vars(cls).items() if _is_a(one, _kinds())}
        if held:
            yield held


def _keys(inside: Any) -> list[Any]:
    keys = range(len(inside)) if _is_a(inside, (list, tuple)) else inside
    return list(islice(keys, _FIRST))


def _is_a(value: Any, types: tuple[type, ...]) -> bool:
    """As `isinstance`, which asks an object that stands for another one for its class."""
    return issubclass(type(value), types)


def _is_global(generator: Any) -> bool:
    known: Callable[..., Any] = random.random
    return (
        generator is known.__self__  # type: ignore[attr-defined]
        or generator is np.random.mtrand._rand
        or generator is torch.default_generator
        or isinstance(generator, random.SystemRandom)
        or (isinstance(generator, torch.Generator) and generator.device.type == "cuda" and _is_gpus(generator))
    )


def _is_gpus(generator: torch.Generator) -> bool:
    return any(generator is one for one in torch.cuda.default_generators)


def _seed(generator: Any, number: int) -> None:
    if isinstance(generator, random.Random):
        generator.seed(number)
    elif isinstance(generator, torch.Generator):
        generator.manual_seed(number % 2**63)
    elif isinstance(generator, np.random.RandomState) and isinstance(_bits(generator), np.random.MT19937):
        generator.seed(number % 2**32)  # far faster than a new state
    else:
        bits = _bits(generator)
        bits.state = type(bits)(number).state


def _get_state(generator: Any) -> Any:
    if isinstance(generator, random.Random):
        return generator.getstate()
    return generator.get_state() if isinstance(generator, torch.Generator) else _bits(generator).state


def _set_state(generator: Any, state: Any) -> None:
    if isinstance(generator, random.Random):
        generator.setstate(state)
    elif isinstance(generator, torch.Generator):
        generator.set_state(state)
    else:
        _bits(generator).state = state


def _bits(generator: Any) -> Any:
    return generator.bit_generator if isinstance(generator, np.random.Generator) else generator._bit_generator
