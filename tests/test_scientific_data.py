"""Datasets over files and tables of scientific libraries: their byte orders, handles, and types of their own."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping, MutableMapping, MutableSequence
from functools import partial
from typing import Any, NamedTuple

import cloudpickle
import datasets
import numpy as np
import pytest
import torch
from astropy.io import fits
from astropy.table import Table
from torch.utils.data import Dataset, StackDataset, Subset
from torch.utils.data._utils.collate import default_collate_fn_map

import torchdali as td
from torchdali.errors import FieldTypeError, WorkerTimeoutError

N = 6
datasets.disable_progress_bars()


def loader(dataset: Any, batch_size: int | None = 2, **options: Any) -> td.DataLoader:
    return td.DataLoader(dataset, batch_size, **(dict(seed=3, device="cpu") | options))


# Byte orders

BIG = np.arange(N * 3, dtype=">f4").reshape(N, 3)
KEYS = np.arange(N, dtype=">i8")
CELLS = np.arange(N * 2 * 2, dtype=">u2").reshape(N, 2, 2, 1)


def rows_of(way: str, folder: Any) -> Any:
    """The same arrays, as each source takes them."""
    columns = {"values": BIG, "key": KEYS}
    if way == "samples":
        return [{"values": BIG[i], "key": KEYS[i]} for i in range(N)]
    if way == "no dimensions":
        return [{"values": BIG[i], "key": KEYS[i : i + 1].reshape(())} for i in range(N)]
    if way == "callback":
        return td.SampleSource(lambda info: {"values": BIG[info.idx_in_epoch], "key": KEYS[info.idx_in_epoch]})
    if way == "memory":
        return td.InMemoryDataset(columns)
    if way == "arrays":
        return td.InMemoryDataset({"values": list(BIG), "key": list(KEYS)})
    if way == "npz":
        np.savez(folder / "rows.npz", **columns)
        return td.NumpyDataset(folder / "rows.npz")
    stored = np.memmap(folder / "values", ">f4", "w+", shape=BIG.shape)
    stored[:] = BIG
    return td.NumpyDataset({"values": stored, "key": KEYS})


@pytest.mark.parametrize("batch_size", [1, 2])
@pytest.mark.parametrize("way", ["samples", "no dimensions", "callback", "memory", "arrays", "npz", "mapped"])
def test_the_other_byte_order_is_read_as_this_machines(tmp_path: Any, way: str, batch_size: int) -> None:
    """One sample alone failed before, and two together did not: numpy keeps the order of a single array."""
    batch = next(iter(loader(rows_of(way, tmp_path), batch_size, output="dict")))
    assert batch["values"].dtype == torch.float32 and batch["values"].shape == (batch_size, 3)
    assert batch["values"].tolist() == BIG[:batch_size].tolist()
    assert batch["key"].dtype == torch.int64 and batch["key"].tolist() == list(range(batch_size))


def test_pixels_in_the_other_byte_order() -> None:
    samples = [{"image": CELLS[i]} for i in range(N)]
    batch = next(iter(loader(samples, kinds={"image": "image"})))
    assert batch["image"].dtype == torch.uint16 and batch["image"][1].flatten().tolist() == [4, 5, 6, 7]


@pytest.mark.parametrize(
    "make", [lambda x: [x, x], lambda x: td.InMemoryDataset(x=x), lambda x: td.NumpyDataset({"x": x})]
)
def test_long_doubles_are_an_error_that_says_what_to_write(make: Any) -> None:
    with pytest.raises(TypeError, match=r"a dtype that torch has, got .* write \.astype\('float64'\)"):
        next(iter(loader(make(np.zeros(3, np.longdouble)))))


def test_files_of_astronomy(tmp_path: Any) -> None:
    """FITS has the other byte order, in images and in tables."""
    fits.writeto(tmp_path / "cube.fits", np.arange(N * 4, dtype="f4").reshape(N, 2, 2))
    with fits.open(tmp_path / "cube.fits") as file:
        samples = [(file[0].data[i], i) for i in range(N)]
        assert not samples[0][0].dtype.isnative
        for batch_size in (1, 2):
            images, _ = list(loader(samples, batch_size))[1]
            assert images[0].tolist() == [
                [4.0 * batch_size, 4.0 * batch_size + 1],
                [4.0 * batch_size + 2, 4.0 * batch_size + 3],
            ]
    Table({"flux": np.arange(N, dtype=">f8"), "star": [f"s{i}" for i in range(N)]}).write(tmp_path / "table.fits")
    batch = next(iter(loader(td.InMemoryDataset(fits.getdata(tmp_path / "table.fits")), output="dict")))
    assert batch["flux"].tolist() == [0.0, 1.0] and list(batch["star"]) == ["s0", "s1"]


# Handles


class Handle:
    """Can't be pickled, as files of h5py, connections of sqlite3 and environments of LMDB can't."""

    def __reduce__(self) -> Any:
        raise TypeError("handles cannot be pickled")


class Group(Mapping[str, Handle]):
    """As h5py's files: a mapping that makes its values."""

    def __getitem__(self, key: str) -> Handle:
        return Handle()

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Any:
        return iter(["x"])

    __reduce__ = Handle.__reduce__


class Opened(Dataset[int]):
    def __init__(self, handle: Any) -> None:
        self.numbers, self.file = list(range(N)), handle

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> int:
        return self.numbers[index]


class Collator:
    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __call__(self, batch: list[Any]) -> Any:
        return batch


def plain() -> Any:
    return list(range(N))


@pytest.mark.parametrize(
    ("make", "options", "way"),
    [
        (lambda: Opened(Handle()), {}, r"Opened\.file, of the type .*Handle,"),
        (lambda: Opened(Group()), {}, r"Opened\.file, of the type .*Group,"),
        (lambda: Subset(Opened(Handle()), [1]), {}, r"Subset\.dataset\.file,"),
        (lambda: StackDataset(a=plain(), b=Opened(Handle())), {}, r"StackDataset\.datasets\['b'\]\.file,"),
        (lambda: Opened({"a": [3, Handle()]}), {}, r"Opened\.file\['a'\]\[1\],"),
        (plain, {"collate_fn": Collator()}, r"MapJob\.collating\.collate_fn\.lock,"),
        (plain, {"worker_init_fn": partial(print, Handle())}, r"worker_init_fn\.args\[0\],"),
    ],
)
def test_what_cannot_reach_a_worker_is_named_and_what_to_write(make: Any, options: Any, way: str) -> None:
    """torch's workers are forked by default, so such datasets are about; here they must be told where it lies."""
    advice = "when the first sample is asked for, .*multiprocessing_context='fork'"
    made = loader(make(), num_workers=1, **options)
    with pytest.raises(TypeError, match=rf"must be picklable to reach worker processes, and {way}.*is not.*{advice}"):
        next(iter(made))


@pytest.mark.processes
def test_a_forked_worker_inherits_a_handle() -> None:
    made = loader(Opened(Handle()), num_workers=1, multiprocessing_context="fork")
    assert [batch.tolist() for batch in made] == [[0, 1], [2, 3], [4, 5]]
    made.close()


class Mapped(Dataset[Any]):
    """Rows of a file of numbers, which torch maps into memory."""

    def __init__(self, path: Any, shared: bool) -> None:
        self.rows = torch.from_file(str(path), shared=shared, size=1 << 19).reshape(-1, 4)  # large enough to be shared

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.rows[index * 1000]


@pytest.mark.processes
@pytest.mark.parametrize("shared", [True, False])
def test_a_tensor_over_a_file_reaches_workers(tmp_path: Any, shared: bool) -> None:
    """torch says that it is shared, and has no descriptor of it."""
    np.arange(1 << 19, dtype=np.float32).tofile(tmp_path / "rows")
    made = loader(Mapped(tmp_path / "rows", shared), num_workers=1)
    assert next(iter(made))[1].tolist() == [4000.0, 4001.0, 4002.0, 4003.0]
    made.close()


class Threaded(Dataset[Any]):
    """Needs what a thread of this process holds, which a fork does not take along: as polars' pool of threads."""

    lock = threading.Lock()

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> int:
        with self.lock:
            return index


@pytest.mark.processes
def test_a_wait_after_a_fork_says_what_to_write() -> None:
    with Threaded.lock:
        made = loader(Threaded(), num_workers=1, multiprocessing_context="fork", timeout=0.5)
        with pytest.raises(WorkerTimeoutError) as caught:
            next(iter(made))
    assert "leave multiprocessing_context out" in "".join(caught.value.__notes__)


# Types of a script


class Pair(NamedTuple):
    value: Any
    key: Any


class Row(dict[str, Any]):
    pass


class Pairs(Dataset[Any]):
    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> Any:
        return Row(pair=Pair(float(index), index))


@pytest.mark.processes
@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_a_batch_has_the_types_of_the_script(method: str) -> None:
    """cloudpickle carries the classes of a script by value: what came from a forked worker was of another class."""
    here = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(here)
    try:
        made = loader(Pairs(), num_workers=1, multiprocessing_context=method)
        batch = next(iter(made))
        made.close()
    finally:
        cloudpickle.unregister_pickle_by_value(here)
    assert type(batch) is Row and type(batch["pair"]) is Pair and batch["pair"].key.tolist() == [0, 1]


class Around(MutableMapping[str, Any]):
    """Holds a dict, which a shallow copy of it shares, as pydicom's and other libraries' containers do."""

    def __init__(self, **values: Any) -> None:
        self.held, self.unit = values, "mm"

    def __getitem__(self, key: str) -> Any:
        return self.held[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.held[key] = value

    def __delitem__(self, key: str) -> None:
        del self.held[key]

    def __len__(self) -> int:
        return len(self.held)

    def __iter__(self) -> Iterator[str]:
        return iter(self.held)


class Floats(MutableSequence[Any]):
    """Takes floats alone, as pydicom's values of many numbers."""

    def __init__(self, *values: float) -> None:
        self.held = list(values)

    def __getitem__(self, place: Any) -> Any:
        return self.held[place]

    def __setitem__(self, place: Any, value: Any) -> None:
        self.held[place] = None if value is None else float(value)

    def __delitem__(self, place: Any) -> None:
        del self.held[place]

    def __len__(self) -> int:
        return len(self.held)

    def insert(self, place: int, value: Any) -> None:
        self.held.insert(place, value)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_containers_that_share_what_they_hold_with_their_copies_stay_as_they_are(num_workers: int) -> None:
    """torch writes the batch into the first sample, and then into the next batch; so did torchdali."""
    samples = [Around(x=float(i), name=f"n{i}", spacing=Floats(i, 2.0)) for i in range(N)]
    made = loader(samples, num_workers=num_workers)
    for _ in range(2):
        batches = list(made)
        assert [batch["x"].tolist() for batch in batches] == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
        assert [[part.tolist() for part in batch["spacing"]] for batch in batches][1] == [[2.0, 3.0], [2.0, 2.0]]
        assert all(type(batch) is Around and batch.unit == "mm" for batch in batches)
    made.close()
    assert [dict(sample) for sample in samples][3] == {"x": 3.0, "name": "n3", "spacing": samples[3]["spacing"]}
    assert [(sample["x"], sample["name"], list(sample["spacing"])) for sample in samples] == [
        (float(i), f"n{i}", [i, 2.0]) for i in range(N)
    ]


# Tables


def table(form: str) -> Any:
    rows = datasets.Dataset.from_dict({"x": [float(i) for i in range(N)], "name": [f"n{i}" for i in range(N)]})
    if form == "structured":
        return np.array([(float(i), f"n{i}") for i in range(N)], [("x", "f8"), ("name", "U4")])
    return rows if form == "hugging face" else rows.with_format(form)[:]


@pytest.mark.parametrize("form", ["pandas", "arrow", "hugging face", "structured"])
def test_a_table_is_a_dict_of_columns(form: str) -> None:
    batch = next(iter(loader(td.InMemoryDataset(table(form), key=range(N)), output="dict", shuffle=True)))
    keys = batch["key"].tolist()
    assert batch["x"].dtype == torch.float64 and batch["x"].tolist() == keys
    assert [str(name) for name in batch["name"]] == [f"n{key}" for key in keys]


@pytest.mark.parametrize("form", ["pandas", "arrow"])
def test_a_table_has_no_samples_by_index(form: str) -> None:
    """torch asks it for the column 0, and where there is one, takes columns for samples."""
    with pytest.raises(
        TypeError, match=r"by index, and \w+ gives its columns: write torchdali\.InMemoryDataset\(table"
    ):
        loader(table(form))


def test_an_archive_of_arrays_has_no_samples_by_index(tmp_path: Any) -> None:
    np.savez(tmp_path / "rows.npz", x=np.arange(N))
    with np.load(tmp_path / "rows.npz") as archive:
        with pytest.raises(TypeError, match=r"write torchdali\.NumpyDataset\(dict\(data\)\)"):
            loader(archive)
        assert next(iter(loader(td.NumpyDataset(dict(archive)))))[0].tolist() == [0, 1]


class Lazy:
    """An array in a file, as h5py's and zarr's: read at once, or by one access for each row."""

    def __init__(self) -> None:
        self.read = 0

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        self.read += 1
        return BIG

    def __getitem__(self, row: Any) -> Any:
        raise AssertionError("it is read row by row")

    def __len__(self) -> int:
        return N


def test_an_array_in_a_file_is_read_at_once() -> None:
    lazy = Lazy()
    (batch,) = next(iter(loader(td.InMemoryDataset(x=lazy))))
    assert batch.tolist() == BIG[:2].tolist() and lazy.read == 1


def test_bytes_that_are_no_image_files_say_what_to_write() -> None:
    """HDF5 gives its strings as bytes."""
    names = [f"name{i}".encode() for i in range(N)]
    with pytest.raises(ValueError, match=r"image files, got b'name0' for 's'.*kinds=\{'s': 'object'\}"):
        td.InMemoryDataset(s=names)
    assert next(iter(loader(td.InMemoryDataset({"s": names}, kinds={"s": "object"}))))[0] == names[:2]


# Values that are missing


def test_a_missing_number_says_what_to_write() -> None:
    samples = [{"x": i, "score": None if i % 2 else 0.5} for i in range(N)]
    with pytest.raises(FieldTypeError, match=r"float\('nan'\) for none, or write kinds=\{'score': 'object'\}"):
        next(iter(loader(samples)))
    assert next(iter(loader(samples, kinds={"score": "object"})))["score"] == [0.5, None]


def test_a_missing_key_says_what_to_write() -> None:
    with pytest.raises(TypeError, match=r"has no score, as the first one has: .*: give it in every sample"):
        next(iter(loader([{"x": 1, "score": 2}, {"x": 1}])))


class Measured(torch.Tensor):
    """A tensor of a library, such as MONAI's."""


def test_tensors_of_a_library_of_several_shapes_say_what_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """MONAI registers a function that stacks them, and whose error says no more than the shapes."""

    def stack(batch: Any, *, collate_fn_map: Any = None) -> Any:
        return torch.stack(batch)

    samples = [{"image": torch.ones(1, 2 + i % 2).as_subclass(Measured)} for i in range(N)]
    monkeypatch.setitem(default_collate_fn_map, Measured, stack)
    with pytest.raises(FieldTypeError, match=r"Measured must have one shape.*kinds=\{'image': 'array'\}"):
        next(iter(loader(samples)))
    assert next(iter(loader(samples, kinds={"image": "array"})))["image"].sizes.tolist() == [[1, 2], [1, 3]]
