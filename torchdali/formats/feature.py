"""Features of tf.train.Examples as a user writes them: a type, a shape and a default."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..batch import Held
from ..checks import integer
from ..fields import check_kind
from ..kinds import AnyKind
from .example import type_of, values_of
from .parts import kind_of_bytes
from .protobuf import Message

BYTES_KINDS: tuple[Held, ...] = ("encoded", "array", "object", "number")
"""The kinds that a feature of bytes may have."""


class FeatureError(ValueError):
    """An example lacks a feature that it should have."""


@dataclass(frozen=True)
class Feature:
    """Says how a feature of each example is read.

    Attributes:
        name: the feature.
        type: "bytes", "int" or "float".
        shape: its shape; None as the first dimension: any number.
        default: the value for examples without the feature, of this type and shape; None: such an example is an error.
    """

    name: str
    type: str
    shape: tuple[int | None, ...]
    default: Any = None

    @classmethod
    def of(cls, name: str, what: Any) -> Feature:
        """Make a feature from a type, or (type, shape), or (type, shape, default), or TensorFlow's own.

        Raises:
            TypeError, ValueError: something else.
        """
        shape: Any = ()
        default = None
        if hasattr(what, "dtype") and not isinstance(what, type):  # TensorFlow's
            shape, default = getattr(what, "shape", None), getattr(what, "default_value", None)
            if hasattr(what, "allow_missing"):
                shape, default = (None, *shape), () if what.allow_missing else None
            elif not hasattr(what, "shape"):
                default = ()  # what TensorFlow gives
            what = what.dtype
        elif isinstance(what, (tuple, list)) and 1 <= len(what) <= 3:
            what, shape, default = itertools.islice(itertools.chain(what, [(), None][len(what) - 1 :]), 3)
        word = what if isinstance(what, str) else getattr(what, "name", None) or getattr(what, "__name__", None)
        if word not in _TYPES:
            raise TypeError(
                f"the feature {name!r} must be a type such as 'int', or (type, shape, default), got {what!r}; DALI's "
                "FixedLenFeature((), int64, 0) and VarLenFeature(float32, 0.0) can't be looked into: write "
                "('int', (), 0) and ('float', None)"
            )
        kind = _TYPES[word]
        feature = cls(name, kind, _shape(name, shape, kind))
        return feature if default is None else replace(feature, default=feature._flat(default))

    def _flat(self, default: Any) -> Any:
        """Give a default as a flat list of values; raise TypeError or ValueError for another type or length."""
        if self.type == "bytes":
            texts = list(default) if isinstance(default, (list, tuple)) else [default]
            if not all(isinstance(text, (str, bytes)) for text in texts):
                raise TypeError(f"the default of {self.name!r} must be bytes, got {default!r}")
            raw = [text.encode() if isinstance(text, str) else text for text in texts]
            values: Any = [np.frombuffer(bytearray(text), np.uint8) for text in raw]
        else:
            values = np.asarray(default)
            if values.size and values.dtype.kind not in ("iu" if self.type == "int" else "iuf"):
                raise TypeError(f"the default of {self.name!r} must be of type {self.type}, got {default!r}")
            count = 1 if None in self.shape else math.prod(size or 0 for size in self.shape)
            values = values.astype(_DTYPES[self.type])
            values = values.ravel() if values.ndim else np.full(count, values)
        self._fit(len(values))
        return values

    def _fit(self, count: int) -> tuple[int, ...]:
        """Give the shape of `count` values; raise FeatureError if there should be another number of them."""
        rest = [size for size in self.shape if size is not None]
        if len(rest) < len(self.shape) and count % math.prod(rest) == 0:
            return count // math.prod(rest), *rest
        if len(rest) == len(self.shape) and count == math.prod(rest):
            return tuple(rest)
        raise FeatureError(
            f"the feature {self.name!r} has {count} values, and the shape {self.shape} was expected: write "
            f"({self.type!r}, ({count},)), or ({self.type!r}, None) for any number"
        )

    def kind(self, field: str, given: AnyKind | None) -> Held:
        """Give the kind of a field of this feature; raise ValueError if it can't have the given kind."""
        if self.type == "bytes" and not self.shape:
            kind, possible = kind_of_bytes(field), BYTES_KINDS
        else:
            kind = "object" if self.type == "bytes" else "array" if self.shape else "number"
            possible = (kind,)
        return check_kind(field, given, kind, possible)

    def read(self, found: Mapping[str, Message]) -> Any:
        """Read the value from an example's features: uint8 [n], a number, an array, or a list of uint8 arrays.

        Raises:
            FeatureError: the feature is missing, or has another type or length.
        """
        feature = found.get(self.name)
        if feature is None and self.default is None:
            raise FeatureError(
                f"there is no feature {self.name!r}: for examples without it, write (type, shape, default)"
            )
        values = self.default
        if feature is not None:
            got = type_of(feature)
            if got not in (None, self.type):
                raise FeatureError(f"the feature {self.name!r} was expected to be of type {self.type}, got {got}")
            values = values_of(feature)
            if not len(values) and self.default is not None and None not in self.shape:
                values = self.default
        shape = self._fit(len(values))
        if not shape:
            return values[0]
        return list(values) if self.type == "bytes" else np.array(values, _DTYPES[self.type]).reshape(shape)


_TYPES = {
    **dict.fromkeys(["bytes", "byte", "string"], "bytes"),
    **dict.fromkeys(["int", "int64"], "int"),
    **dict.fromkeys(["float", "float32"], "float"),
}
_DTYPES = {"int": np.int64, "float": np.float32}


def _shape(name: str, shape: Any, kind: str) -> tuple[int | None, ...]:
    """Give a shape, with None for a first dimension of any size; raise TypeError or ValueError if it isn't a shape."""
    if shape is None:
        return (None,)
    if isinstance(shape, (str, bytes)) or not isinstance(shape, Iterable):
        raise TypeError(f"the shape of {name!r} must be a tuple such as () or (4,), or None, got {shape!r}")
    sizes = tuple(None if size in (None, -1) and not i else size for i, size in enumerate(shape))
    for size in sizes[sizes[:1] == (None,) :]:
        integer(f"a size in the shape of {name!r}", size, 1)
    if kind == "bytes" and len(sizes) > 1:
        raise ValueError(f"the shape of {name!r}, which is bytes, must be (), (n,) or None, got {shape!r}")
    return () if kind == "bytes" and sizes == (1,) else sizes
