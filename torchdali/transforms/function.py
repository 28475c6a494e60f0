"""A user's own function as a transform."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Generator

from ..errors import TransformError
from ..kinds import AnyKind, Kind, as_kind
from ..rand import Key, Rand, derive, name_key

if TYPE_CHECKING:
    from .._dali import Ops

F = TypeVar("F", bound=Callable[..., Any])

Sample = dict[str, Any]


def check_adds(adds: Mapping[str, AnyKind] | None) -> dict[str, Kind]:
    """Make the kinds of the fields that a function adds.

    Raises:
        ValueError: a kind that is none, or files.
    """
    kinds = {name: as_kind(kind, "adds") for name, kind in (adds or {}).items()}
    if encoded := [name for name, kind in kinds.items() if kind.encoded]:
        raise ValueError(f"adds must hold kinds of decoded values, got files for {encoded[0]!r}: decode them in it")
    if first := [name for name, kind in kinds.items() if str(getattr(kind, "layout", None)) in ("CHW", "FCHW")]:
        raise ValueError(
            f"functions return pictures as [H, W, C], got the layout {kinds[first[0]].layout} for {first[0]!r}: "  # type: ignore[attr-defined]
            "leave the layout out"
        )
    return kinds


def function(
    *, adds: Mapping[str, AnyKind] | None = None, keeps_size: bool = False, traceable: bool = False
) -> Callable[[F], F]:
    """Say what a function over batches does, as a decorator: `@T.function(adds={"depth": kinds.Image()})`.

    Args:
        adds: the kinds of fields that it adds to every batch: the transforms after it move them, and they leave as
            their kinds do.  A field that is not named is an array, or a list of objects.
        keeps_size: images leave it with the sizes that they had: transforms after it that need sizes can be traced.
        traceable: as `traceable` says.

    Raises:
        ValueError: a kind that is none, or files, which must be decoded before.
    """
    kinds = check_adds(adds)

    def mark(function: F) -> F:
        function.__torchdali_adds__ = kinds  # type: ignore[attr-defined]
        function.__torchdali_keeps_size__ = keeps_size  # type: ignore[attr-defined]
        if traceable:
            function.__torchdali_traceable__ = True  # type: ignore[attr-defined]
        return function

    return mark


def traceable(function: F) -> F:
    """Mark `f(sample, rand, ops)` as one that may be traced into a pipeline.

    It is called once, with DALI's pipeline functions as `ops`, and the operators of that call run for every batch: it
    must do the same for each batch, by `ops` and `rand` alone.  A function that is not marked is never traced.
    """
    function.__torchdali_traceable__ = True  # type: ignore[attr-defined]
    return function


def as_argument(values: NDArray[Any]) -> NDArray[Any]:
    """Convert numbers to the dtypes of DALI's arguments, float32 and int32: a pipeline does not.

    Raises:
        ValueError: an integer needs more than 32 bits.
    """
    if values.dtype == np.float64:
        return values.astype(np.float32)
    if values.dtype == np.int64:
        if values.size and not -(2**31) <= values.min() <= values.max() < 2**31:
            raise ValueError(f"rand gives DALI 32-bit integers, got {values.min()}..{values.max()}")
        return values.astype(np.int32)
    return values


class Call(NamedTuple):
    """A function's draw: a method of `Rand`, its arguments, and the name of the stream, see `Rand.stream`."""

    method: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    stream: str | None = None


class Moment(NamedTuple):
    """The call of a function for one batch.

    Attributes:
        batch: a seed for the batch, by (seed, rank, epoch, position).
        seed: the same for this function.
        epoch: the epoch.
        step: the number of the batch in it.
        make_rng: makes an `ndd.random.RNG` from a seed.
    """

    batch: int
    seed: int
    epoch: int
    step: int
    make_rng: Callable[[int], Any]


class FunctionRand:
    """Gives a function its random numbers, one for each sample, as batches of DALI: the argument `rand`.

    `uniform`, `normal`, `integers`, `bernoulli`, `choice` are those of `torchdali.rand.Rand`, keyed by (seed, epoch,
    sample index), by the function's name (and how many of this name stand before it), and by the order of the calls:
    make the same calls for every batch.

    Random numbers of torch, numpy and DALI come from `torch`, `numpy` and `ndd`, generators for the batch by (seed,
    rank, epoch, position): the same after a resume, and others with another batch size or number of ranks.

    Args:
        host: the generator for these samples and this function.
        device: "cpu" or "gpu", for DALI's `device=` arguments.
        feed: draws the numbers of a call from a generator, and makes a batch of them.
        moment: the batch; None in a traceable function, for which all batches are one.
        name: of the stream, see `stream`.
    """

    def __init__(
        self,
        host: Rand,
        device: str,
        feed: Callable[[Call, Rand], Any],
        moment: Moment | None,
        name: str | None = None,
    ) -> None:
        self._host, self.device = host, device
        self._feed, self._moment, self._name = feed, moment, name
        self._streams: dict[str, FunctionRand] = {}

    @property
    def num_samples(self) -> int:
        return len(self._host)

    @property
    def host(self) -> Rand:
        """The same generator for numpy arrays, one row per sample; its draws count as calls.

        Raises:
            TransformError: in a traceable function, where they would freeze.
        """
        self._now("host")
        return self._host

    @functools.cached_property
    def ndd(self) -> Any:
        """A `ndd.random.RNG` for this batch, for `rng=`.

        Raises:
            TransformError: in a traceable function, which must not have a state.
        """
        moment = self._now("ndd")
        return moment.make_rng(moment.seed)

    @functools.cached_property
    def torch(self) -> Generator:
        """A generator of torch for this batch, on the CPU, for `generator=`.

        Raises:
            TransformError: in a traceable function, where its numbers would freeze.
        """
        return Generator().manual_seed(derive(self._now("torch").seed, Key.TORCH) % 2**63)

    @functools.cached_property
    def numpy(self) -> np.random.Generator:
        """A generator of numpy for this batch.

        Raises:
            TransformError: in a traceable function, where its numbers would freeze.
        """
        return np.random.Generator(np.random.PCG64(derive(self._now("numpy").seed, Key.NUMPY)))

    @property
    def epoch(self) -> int:
        """The epoch, as `set_epoch` counts it.

        Raises:
            TransformError: in a traceable function, where it would freeze.
        """
        return self._now("epoch").epoch

    @property
    def step(self) -> int:
        """The number of this batch in its epoch, from 0: the whole steps of the epoch before its position.

        It follows from the position, so it goes on after a resume, and counts in the batches of this loader: another
        batch size or number of ranks counts in others.

        Raises:
            TransformError: in a traceable function, where it would freeze.
        """
        return self._now("step").step

    def stream(self, name: str) -> FunctionRand:
        """Give draws by a name, such as `rand.stream("geometry").uniform(-10, 10)`.

        They are keyed by (seed, epoch, sample index), the name, and the order of the calls under it: not by the
        function, so they keep their values when steps are reordered or renamed, and two functions that ask for the
        same name draw the same.
        """
        if name not in self._streams:
            moment = self._moment
            if moment is not None:
                moment = moment._replace(seed=derive(moment.batch, Key.STREAM, name_key(name)) % 2**63)
            self._streams[name] = FunctionRand(self._host.stream(name), self.device, self._feed, moment, name)
        return self._streams[name]

    def _now(self, word: str) -> Moment:
        if self._moment is None:
            raise TransformError(f"rand.{word} has no place in a traceable function: use rand.uniform and the like")
        return self._moment

    def _draw(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._feed(Call(method, args, kwargs, self._name), self._host)

    def uniform(self, low: Any = 0.0, high: Any = 1.0, shape: Any = ()) -> Any:
        """float32 in [low, high)."""
        return self._draw("uniform", low, high, shape)

    def normal(self, mean: Any = 0.0, std: Any = 1.0, shape: Any = ()) -> Any:
        """float32, normally distributed."""
        return self._draw("normal", mean, std, shape)

    def integers(self, low: Any, high: Any = None, shape: Any = ()) -> Any:
        """int32 in [low, high), or [0, low)."""
        return self._draw("integers", low, high, shape)

    def bernoulli(self, p: Any = 0.5, shape: Any = ()) -> Any:
        """int32, 1 with probability p."""
        return self._draw("bernoulli", p, shape)

    def choice(self, values: Any, p: Any = None, shape: Any = ()) -> Any:
        """One of `values`."""
        return self._draw("choice", values, p, shape)


class Function:
    """A function as a step of a transform: it sees whole samples, as a dict of all fields by their names.

    Images, masks, boxes, arrays and numbers are batches of DALI; objects, such as strings, and polygons are lists of
    one value per sample.  It returns such a dict: batches of DALI, or lists and numpy arrays of one value per sample.
    Numbers and objects that it leaves out stay as they were; other fields are dropped.

    Raises:
        TypeError: it can't be called with (sample, rand), or (sample, rand, ops) where it is traceable.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.traceable: bool = getattr(function, "__torchdali_traceable__", False)
        self.adds: dict[str, Kind] = getattr(function, "__torchdali_adds__", {})
        self.keeps_size: bool = getattr(function, "__torchdali_keeps_size__", False)
        arguments = ("sample", "rand", "ops") if self.traceable else ("sample", "rand")
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):  # some of those that are written in C have none
            return
        try:
            signature.bind(*arguments)
        except TypeError as error:
            views = "and Views([transform, transform]) for several views of an image"
            hint = f": write PerSample({self.name}) for a function of one sample, {views}"
            hint = "" if self.traceable or not _takes_one(signature) else hint
            raise TypeError(
                f"the transform {self.name} must take ({', '.join(arguments)}), its arguments are {signature}{hint}"
            ) from error

    @property
    def name(self) -> str:
        """The function's name; that of a callable object's class."""
        function = self.function
        while isinstance(function, functools.partial):
            function = function.func
        return getattr(function, "__name__", type(function).__name__)

    def __repr__(self) -> str:
        return self.name

    def __call__(self, ops: Ops, sample: Sample, rand: FunctionRand) -> Sample:
        """Call the function, and check its result.

        Raises:
            TransformError: it did not return a dict of batches, or of lists, of as many samples.
        """
        given = _Fields(sample)
        given.traced = self.traceable
        result = self.function(given, rand, ops) if self.traceable else self.function(given, rand)
        if not isinstance(result, dict) or not result:
            got = (
                "nothing (is a return missing?)"
                if result is None
                else "an empty one"
                if isinstance(result, dict)
                else type(result).__name__
            )
            raise TransformError(
                f"the transform {self.name} must return a dict of fields, such as {{**sample, ...}}, got {got}"
            )
        if missing := [name for name in self.adds if name not in result]:
            raise TransformError(f"the transform {self.name} must return {missing[0]!r}, which its adds= names")
        for field, value in result.items():
            host = not self.traceable and (
                isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim > 0)
            )
            samples = len(value) if host else getattr(value, "batch_size", None)
            if not isinstance(field, str) or (samples is None and type(value).__name__ != "DataNode"):
                raise TransformError(
                    f"the transform {self.name} must return DALI batches, got {type(value).__name__} for {field!r}: "
                    "wrap host data in ndd.as_batch, or give a list of one value per sample; leave torch tensors to "
                    "the loader"
                )
            if samples not in (None, rand.num_samples):
                raise TransformError(
                    f"the transform {self.name} must return {rand.num_samples} samples, got {samples} for {field!r}"
                )
        return dict(result)


def _takes_one(signature: inspect.Signature) -> bool:
    try:
        signature.bind("sample")
    except TypeError:
        return False
    return True


class _Fields(dict[str, Any]):
    """A sample, which explains why a field is missing."""

    traced = False

    def __missing__(self, name: str) -> Any:
        why = ": a traceable one does not see objects, such as strings, which no pipeline can hold" * self.traced
        raise MissingField(f"{name!r} is not among the fields that a transform sees ({', '.join(self)}){why}")


class MissingField(TransformError, KeyError):
    """A transform asked for a field that it does not get."""

    __str__ = Exception.__str__  # KeyError's would quote the sentence
