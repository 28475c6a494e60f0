"""A user's function of whole batches, and the way in which it is called."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch

from .elsewhere import Uncalled
from .errors import let_through
from .generators import HeldGenerators
from .rand import BatchRand
from .state import Position


class BatchFunction:
    """Calls a function with a batch.

    It is called as f(batch); a parameter `rand` gets the random numbers of the batch's samples; and one that needs
    several arguments beside it gets the parts of a tuple instead: f(*batch), as timm's `Mixup` has it.

    Args:
        word: the argument by which the user gave it, for messages.
        function: the function; of a torch module its `forward` counts.
        alone: it is called as f(batch) whatever it takes, and may return nothing, as a `collate_fn` of torch may.

    Raises:
        TypeError: it can't be called in any of these ways.
    """

    def __init__(self, word: str, function: Callable[..., Any], alone: bool = False) -> None:
        if isinstance(function, type) and any("__call__" in vars(cls) for cls in function.__mro__):
            raise TypeError(f"{word} must be an object, got the class: write {word}={function.__name__}(...)")
        if not callable(function) or isinstance(function, Uncalled):
            raise TypeError(f"{word} must be a function of a batch, got {function!r:.80}")
        self.word, self.function, self._alone = word, function, alone
        self.held = HeldGenerators(function)
        self.takes_rand, self.parts = False, 0
        if alone:
            return
        try:
            signature = inspect.signature(function.forward if isinstance(function, torch.nn.Module) else function)
        except (TypeError, ValueError):  # some of those that are written in C have none
            return
        parameters = [parameter for name, parameter in signature.parameters.items() if name != "rand"]
        self.takes_rand = len(parameters) < len(signature.parameters)
        by_place = [parameter for parameter in parameters if parameter.kind in _BY_PLACE]
        needed = [parameter for parameter in by_place if parameter.default is parameter.empty]
        self.parts = len(needed) if len(needed) > 1 else 0
        anything = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters)
        named = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
        if not (by_place or anything) or named:
            raise TypeError(
                f"{word}={self.name} must take (batch), (batch, rand), or the parts of a batch, its arguments are "
                f"{signature}"
            )

    @property
    def name(self) -> str:
        """The function's name; that of a callable object's class."""
        function = self.function
        while isinstance(function, functools.partial):
            function = function.func
        return getattr(function, "__name__", type(function).__name__)

    def __call__(self, batch: Any, make_rand: Callable[[str], BatchRand], at: Position, step: int) -> Any:
        """Call it.

        Args:
            batch: the batch.
            make_rand: makes its random numbers, from the function's name.
            at, step: where the batch begins in the stream, and its number in the epoch, for messages.

        Raises:
            TypeError: the batch has other parts than the function needs, or it returned nothing.
            RuntimeError: it raised StopIteration, which would look like the end of the epoch.
            Exception: its own, with a note.
        """
        if self.parts and not (isinstance(batch, (tuple, list)) and len(batch) == self.parts):
            has = f"{len(batch)} parts" if isinstance(batch, (tuple, list)) else f"the type {type(batch).__name__}"
            raise TypeError(
                f"{self.word}={self.name} needs {self.parts} arguments, and the batch has {has}: write a function of "
                "one argument, the batch"
            )
        rand = {"rand": make_rand(self.name)} if self.takes_rand else {}
        try:
            try:
                result = self.function(*batch, **rand) if self.parts else self.function(batch, **rand)
            except StopIteration as error:
                raise RuntimeError(f"{self.name} must not raise StopIteration, and this one did") from error
            if result is None and not self._alone:
                raise TypeError(f"{self.word}={self.name} must return a batch, got nothing (is a return missing?)")
        except Exception as error:
            let_through(error)
            error.add_note(
                f"torchdali: {self.word}={self.name} raised this for the batch at epoch {at.epoch}, sample "
                f"{at.samples_seen} (step {step})"
            )
            raise
        return result


_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
