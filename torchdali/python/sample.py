"""The structure of the samples of Python code, and samples as columns.

A sample may be a tuple, a list, a dict, a NamedTuple or a dataclass, with further ones inside, or a single value.  Its
values become fields, and a batch comes out in the same form:

    bytes, and 1-d uint8 arrays of an image file's bytes    encoded
    PIL images; uint8 arrays [H, W, C]; uint8 tensors [C, H, W] (C: 1 or 3)    image
    torchvision's tv_tensors                                image, mask, boxes, points, video
    PIL images of the modes 1, P, I and F, [H, W] as they are; other arrays and tensors    array
    numbers, bool, tensors and arrays without dimensions    number
    tensors of a type of the user's, such as MONAI's        object, which torch stacks
    strings, None and anything else                         object

A list inside a sample is such a container if it holds tensors, arrays or numbers only, and as many in each sample (of
the first ten; of the first batch, where samples are not there by index); other lists are objects.  Mappings and
sequences of other types are dicts and lists in this, and keep their types.

Kinds may be told by the fields' names; `schema` says what is guessed, and what is a doubt.
"""

from __future__ import annotations

import dataclasses
import os
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

from ..batch import Columns, Held
from ..collate import own_collate
from ..containers import frame_of, is_list, remade
from ..errors import let_through
from ..fields import ALWAYS, name_parts
from ..kinds import WORDS, AnyKind, Boxes, Doubt, Kind, as_kind
from ..schema import GROUPED, Seen, find_kinds
from ..signature import Form
from .quick import UnlikeError, quick_way
from .values import column_of, convert, converter, form_as, form_of, natural_kind

Path = tuple[Any, ...]  # keys, indices and attribute names from the sample to a value


class Leaf(NamedTuple):
    """One value of a sample.

    Attributes:
        name: the field.
        path: the way from the sample to the value.
        form: the form of the value.
        kind: the kind of the field.
        empty: stands for the value in a sample that has no objects; None: every sample must have the value.
    """

    name: str
    path: Path
    form: Form
    kind: Kind
    empty: Any = None


class Structure:
    """The values of a sample and the containers around them; it goes to the workers and back.

    Args:
        leaves: the values.
        frame: the sample with the leaves' names in place of the values.
        doubts: fields whose kinds are guesses that may be wrong.
    """

    def __init__(self, leaves: Sequence[Leaf], frame: Any, doubts: Mapping[str, Doubt] | None = None) -> None:
        self.leaves, self.frame, self.doubts = list(leaves), frame, dict(doubts or {})
        self._take = quick_way(frame, {leaf.name: converter(leaf.name, leaf.form, leaf.kind) for leaf in leaves})

    @cached_property
    def _pickled(self) -> tuple[bytes, bytes | None]:
        """By value, as cloudpickle does it for classes of the script, and by reference, where that can be."""
        import cloudpickle

        parts = self.leaves, self.frame, self.doubts
        try:
            named: bytes | None = pickle.dumps(parts)
        except Exception as error:
            let_through(error)
            named = None
        return cloudpickle.dumps(parts), named

    def __reduce__(self) -> Any:
        return _structure_of, (*self._pickled, _LINE)  # each task has one: made and taken apart once for all of them

    @classmethod
    def of(
        cls,
        sample: Any,
        fields: Sequence[str] | None = None,
        kinds: Mapping[str, AnyKind] | None = None,
        lists: Iterable[Path] = (),
        transformed: bool = True,
        whole: bool = False,
    ) -> Structure:
        """Take the structure of a sample.

        Args:
            sample: the first one; all others must be like it.
            lists: the paths of the lists that are containers, see `lists_in`.
            transformed: samples go through transforms.
            whole: containers that torch was told how to collate are values, unless fields or kinds are named in them.
            fields: names for its values in their order, and any of `fields.ALWAYS`; None: names from keys and the like.
            kinds: kinds of fields by their names, in place of those that the values show.

        Raises:
            ValueError: another number of fields than values, names that are not different, or unknown ones in `kinds`.
            FieldTypeError: a value can't have the kind that `kinds` names.
            TypeError: a value that has no column.
        """
        paths: list[Path] = []
        told = set(kinds or {})
        objects = GROUPED if any(isinstance(as_kind(kind), Boxes) for kind in (kinds or {}).values()) else frozenset()
        opened = frozenset(
            path for path in lists if not {_spell(path), str(path[-1])} & told and str(path[-1]) not in objects
        )
        whole = whole and fields is None and not kinds
        _walk(sample, (), paths.append, opened=opened, whole=whole)
        values = [_at(sample, path) for path in paths]
        if not paths:
            raise TypeError(f"a sample must hold at least one value, got {sample!r:.100}")
        forms = [form_of(value, transformed) for value in values]
        names = _names(paths, [natural_kind(value) for value in values])
        if fields is not None:
            names = name_parts(fields, names, ALWAYS)
        seen = [
            Seen(name, path[:-1], path[-1] if path else "", value, form.kind)
            for name, path, value, form in zip(names, paths, values, forms, strict=True)
        ]
        found, doubts = find_kinds(seen, kinds or {})
        leaves = []
        for name, path, value, form in zip(names, paths, values, forms, strict=True):
            if found[name] != WORDS[form.kind]:
                form = form_as(name, found[name], value)
            empty = _no_objects(form, value, found[name]) if found[name].group else None
            leaves.append(Leaf(name, path, form, found[name], empty))
        by_path = dict(zip(paths, names, strict=True))
        return cls(leaves, _walk(sample, (), by_path.__getitem__, opened=opened, whole=whole), doubts)

    @property
    def kinds(self) -> dict[str, Kind]:
        """The kind of each field."""
        return {leaf.name: leaf.kind for leaf in self.leaves}

    def values(self, sample: Any) -> list[Any]:
        """Convert the values of a sample for their columns, in the order of the leaves.

        Raises:
            TypeError: the sample is not like the first one; the message says where.
        """
        if self._take is not None:
            row: list[Any] = []
            try:
                self._take(sample, row)
                return row
            except UnlikeError:
                pass
        _check_parts(self.frame, sample)
        return [self._value(sample, leaf) for leaf in self.leaves]

    def _value(self, sample: Any, leaf: Leaf) -> Any:
        value = _find(sample, leaf)
        return (
            value if value is leaf.empty and leaf.empty is not None else convert(leaf.name, leaf.form, value, leaf.kind)
        )

    def columns(self, rows: Sequence[list[Any]]) -> Columns:
        """Put the results of `values` for some samples into columns."""
        return {
            leaf.name: column_of(leaf.form.kind, [row[number] for row in rows])
            for number, leaf in enumerate(self.leaves)
        }

    def rebuild(self, fields: Mapping[str, Any]) -> Any:
        """Put a batch into the samples' form; a tuple where a transform has changed the fields."""
        if set(fields) != {leaf.name for leaf in self.leaves}:
            return tuple(fields.values())
        return _walk(self.frame, (), None, fields)


class Description(NamedTuple):
    """The description of a source's samples, taken from the first one.

    Attributes:
        structure: the structure of a sample.
        uniform: of the fields whose samples were looked at for it, whether they have one shape.
    """

    structure: Structure
    uniform: Mapping[str, bool] = {}  # never changed


_LINE = os.urandom(16)
"""One for this process and those that are forked from it: they have the same classes by the same names."""


@lru_cache(8)
def _structure_of(pickled: bytes, named: bytes | None = None, line: bytes = b"") -> Structure:
    # By value, a forked worker's class would be another one here, and a batch none of the class that the script names.
    return Structure(*pickle.loads(pickled if named is None or line != _LINE else named))


NO_SAMPLE = Structure([], ())
"""The structure of the samples of a dataset that has none."""


class _Built(NamedTuple):
    """A dataclass in a frame: it may check its values, and names would not pass."""

    cls: type
    parts: dict[str, Any]


def lists_in(sample: Any, path: Path = ()) -> dict[Path, int]:
    """Find the lists inside a sample that may be containers: the path and the length of each."""
    found: dict[Path, int] = {}
    if is_list(sample) and path:
        if not sample or not all(is_list(value) or _is_data(value) for value in sample):
            return {}
        found[path] = len(sample)
    children = _children(sample, path, frozenset(found))
    for key, child in (children or {}).items():
        inner = lists_in(child, (*path, key))
        if is_list(sample) and path and is_list(child) and not inner:
            return {}  # a list of lists is one only if each of those is
        found |= inner
    return found


def common_lists(sample: Any, others: Iterable[Any]) -> dict[Path, int]:
    """Find the lists inside a sample that may be containers, and have the same lengths in others.

    Args:
        sample: the sample.
        others: no more are taken than are needed.
    """
    lists = lists_in(sample)
    rest = iter(others)
    while lists and (other := next(rest, None)) is not None:
        found = lists_in(other)
        lists = {path: length for path, length in lists.items() if found.get(path) == length}
    return lists


def count_values(sample: Any) -> int:
    """Count the values in a sample, lists as one."""
    paths: list[Path] = []
    _walk(sample, (), paths.append)
    return len(paths)


def holds_dicts(sample: Any) -> bool:
    """Whether dicts lie inside a sample: their keys may differ from sample to sample, as those of objects do."""
    children = _children(sample, ())
    return any(isinstance(child, Mapping) or holds_dicts_in(child) for child in (children or {}).values())


def holds_dicts_in(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and any(isinstance(part, Mapping) for part in value)


def _is_data(value: Any) -> bool:
    return isinstance(value, (torch.Tensor, np.ndarray)) or isinstance(value, (bool, int, float, complex, np.generic))


def _check_parts(frame: Any, sample: Any, path: Path = ()) -> None:
    """Raise where a tuple or list has other parts than the first sample's: a key that is missing is found later."""
    if isinstance(frame, _Built):
        return
    if isinstance(frame, tuple) or is_list(frame):
        if not (isinstance(sample, tuple) or is_list(sample)) or len(sample) != len(frame):
            where = f"{_spell(path)} of the sample" if path else "the sample"
            field = str(path[-1]) if path else ""
            remedy = f": give lists of one length, an array, or write kinds={{{field!r}: 'object'}} or collate_fn="
            remedy = remedy if path else ""
            raise TypeError(f"{where} must have {len(frame)} parts, as the first one has: got {sample!r:.200}{remedy}")
        for key, (part, value) in enumerate(zip(frame, sample, strict=True)):
            if not isinstance(part, str):
                _check_parts(part, value, (*path, key))
    elif isinstance(frame, Mapping) and isinstance(sample, Mapping):
        for key, part in frame.items():
            if not isinstance(part, str) and key in sample:
                _check_parts(part, sample[key], (*path, key))


def _children(value: Any, path: Path = ("",), opened: frozenset[Path] = frozenset()) -> dict[Any, Any] | None:
    """List the parts of a container by key; None for a value.  A list is one if it is the whole sample, or opened."""
    if is_list(value):
        return dict(enumerate(value)) if not path or path in opened else None
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple):
        return dict(zip(value._fields, value, strict=True)) if hasattr(value, "_fields") else dict(enumerate(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


def _walk(
    value: Any,
    path: Path,
    leaf: Callable[[Path], Any] | None,
    fields: Mapping[str, Any] | None = None,
    opened: frozenset[Path] = frozenset(),
    whole: bool = False,
) -> Any:
    """Rebuild the containers around the results of `leaf` for each path, or around the fields that the leaves name."""
    if isinstance(value, _Built):
        return _make(value.cls, {key: _walk(child, (), leaf, fields) for key, child in value.parts.items()})
    # In a frame every list is a container.
    known = whole and own_collate(value) is not None
    children = None if known else _children(value, () if fields is not None else path, opened)
    if children is None:
        return fields[value] if fields is not None else leaf(path) if leaf is not None else None
    parts = {key: _walk(child, (*path, key), leaf, fields, opened, whole) for key, child in children.items()}
    if isinstance(value, (tuple, Mapping)) or is_list(value):
        return (remade if fields is not None else frame_of)(value, parts)
    return _Built(type(value), parts)


def _make(cls: type, parts: dict[str, Any]) -> Any:
    made: Any = object.__new__(cls)
    for name, part in parts.items():
        object.__setattr__(made, name, part)
    return made


def _at(sample: Any, path: Path) -> Any:
    for key in path:
        if isinstance(sample, Mapping) or (isinstance(sample, Sequence) and isinstance(key, int)):
            sample = sample[key]
        else:
            sample = getattr(sample, key)
    return sample


def _find(sample: Any, leaf: Leaf) -> Any:
    try:
        return _at(sample, leaf.path)
    except (KeyError, IndexError, AttributeError, TypeError):
        if leaf.empty is not None:
            return leaf.empty  # a sample without objects may lack the fields of its objects
        raise TypeError(
            f"the sample has no {_spell(leaf.path)}, as the first one has: got {sample!r:.200}: give it in every "
            "sample, or write collate_fn="
        ) from None


def _no_objects(form: Form, value: Any, kind: Kind) -> Any:
    """The value of a field with a row per object in a sample that has no object."""
    return convert("", form, value, kind)[:0] if form.kind == "array" else []


def _spell(path: Path) -> str:
    return ".".join(str(key) for key in path) or "value"


_GUESSES: dict[Held, str] = {"encoded": "image", "image": "image", "number": "label"}


def _names(paths: Sequence[Path], kinds: Sequence[Held]) -> list[str]:
    """Name values by their keys and attributes; in a tuple, by their kinds or numbers."""
    names: list[str] = []
    for path, kind in zip(paths, kinds, strict=True):
        name = _spell(path)
        if (path and isinstance(path[-1], int)) or not path:
            guess = _GUESSES.get(kind, "")
            head = ".".join(str(key) for key in path[:-1])
            better = f"{head}.{guess}" if head else guess
            name = better if guess and better not in names else f"field{name}" if path else "value"
        if name == "valid":  # the loader's own word for rows that only fill up
            name = "valid_"
        while name in names:  # a key may have a dot in it
            name += "_"
        names.append(name)
    return names
