"""Objects of the user whose state goes with a loader's."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from .errors import StateMismatchError

PREFIX = "registered."

_PAIRS = (("state_dict", "load_state_dict"), ("get_state", "set_state"))


class Registered:
    """Objects by name; each one's state is an entry `registered.<name>` of a loader's state."""

    def __init__(self) -> None:
        self._objects: dict[str, Any] = {}

    def __contains__(self, obj: object) -> bool:
        return any(one is obj for one in self._objects.values())

    def add(self, name: str, obj: Any) -> None:
        """Take an object in.

        Raises:
            TypeError: it has no state.
            ValueError: the name is taken, or is not a string.
        """
        if not isinstance(name, str) or not name:
            raise ValueError(f"register takes a name and an object, got {name!r}")
        if name in self._objects:
            raise ValueError(f"register needs another name: {name!r} is taken by {self._objects[name]!r:.80}")
        _methods(obj)
        self._objects[name] = obj

    def pack(self) -> dict[str, Any]:
        """Give the entries of a state."""
        return {PREFIX + name: _state_of(obj) for name, obj in self._objects.items()}

    def entries(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Give those entries of a state that `pack` made."""
        return {key: value for key, value in state.items() if isinstance(key, str) and key.startswith(PREFIX)}

    def load(self, entries: Mapping[str, Any], strict: bool) -> None:
        """Restore the objects.

        Args:
            entries: of a state.
            strict: False leaves objects as they are that the state does not know, and ignores what only it knows.

        Raises:
            StateMismatchError: other names, or a state that an object refuses; all objects are as they were.
        """
        here = {PREFIX + name for name in self._objects}
        lines = [f"{key}: missing, and the loader has registered such an object" for key in sorted(here - set(entries))]
        for key in sorted(set(entries) - here):
            name = key.removeprefix(PREFIX)
            lines.append(f"{key}: not registered here: write loader.register({name!r}, ...) before load_state_dict")
        if strict and lines:
            raise StateMismatchError("this state does not belong to this loader:\n  " + "\n  ".join(lines))
        before: dict[str, Any] = {}
        for name, obj in self._objects.items():
            if PREFIX + name in entries:
                before[name] = copy.deepcopy(_state_of(obj))
                try:
                    getattr(obj, _methods(obj)[1])(entries[PREFIX + name])
                except BaseException as error:
                    for changed, state in before.items():  # this one may be half loaded
                        one = self._objects[changed]
                        with suppress(Exception):
                            getattr(one, _methods(one)[1])(state)
                    if not isinstance(error, Exception):
                        raise
                    raise StateMismatchError(
                        f"{PREFIX}{name}: the object refuses it: {type(error).__name__}: {error}"
                    ) from error


def _state_of(obj: Any) -> Any:
    return _plain(getattr(obj, _methods(obj)[0])())


def _methods(obj: Any) -> tuple[str, str]:
    for pair in _PAIRS:
        if all(callable(getattr(obj, method, None)) for method in pair):
            return pair
    raise TypeError(
        "register takes an object with get_state and set_state, or state_dict and load_state_dict, got "
        f"{type(obj).__name__}"
    )


def _plain(state: Any) -> Any:
    """A state that checkpoints can hold: DALI's generators give an object, and take its text too."""
    return str(state) if type(state).__module__.startswith("nvidia.dali") else state
