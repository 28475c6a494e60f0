"""One damaged file never takes its batch along."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import torchdali as td
from torchdali import transforms as T
from torchdali.testing import (
    assert_resumes_exactly,
    assert_same_stream,
    garble_file,
    read_stream,
    sample_digests,
    truncate_file,
)

ODD = Path(__file__).parent / "data" / "odd-images"
TRANSFORM = T.Compose([T.RandomResizedCrop(16), T.RandomHorizontalFlip()])
FIELDS = ("image", "label", "index", "path", "valid")
ENGINES = [("eager", 2), ("pipeline", 2), ("eager", 0), ("debug", 2)]


@pytest.fixture
def files(own_folder):
    return [Path(path) for path, _ in td.ImageFolder(own_folder).samples]


@pytest.fixture
def damaged(own_folder, files):
    """Samples 2 (truncated), 9 (garbage), 10 (missing) and 15 (empty) of 22 are bad."""

    def make(**changes):
        dataset = td.ImageFolder(own_folder, fields=FIELDS)
        truncate_file(files[2])
        garble_file(files[9])
        files[10].unlink()
        files[15].write_bytes(b"")
        make.dataset = dataset
        return remake(**changes)

    def remake(**changes):
        arguments = dict(batch_size=4, shuffle=True, seed=5, device="cpu", transform=TRANSFORM) | changes
        return td.DataLoader(make.dataset, **arguments)

    make.again = remake
    return make


STAGES = {2: "decode", 9: "decode", 10: "read", 15: "read"}


@pytest.mark.parametrize("engine, prefetch", ENGINES)
def test_raise_names_the_sample_and_the_run_goes_on_behind_it(damaged, files, engine, prefetch):
    loader = damaged(shuffle=False, engine=engine, prefetch_factor=prefetch)
    iterator = iter(loader)
    seen, errors = [], []
    while True:
        before = loader.state_dict()
        try:
            seen += next(iterator)[2].tolist()
        except StopIteration:
            break
        except td.BadSampleError as error:
            errors.append(error)
            assert loader.state_dict() == before  # the batch was not handed over
    assert seen == [4, 5, 6, 7, 16, 17, 18, 19, 20, 21]
    assert [error.index for error in errors] == [2, 9, 15]  # 10 is behind 9 in the same batch
    for error in errors:
        assert error.stage == STAGES[error.index] and error.path == str(files[error.index])
        assert str(files[error.index]) in str(error) and error.__cause__ is not None
    assert [(bad.index, bad.stage) for bad in loader.bad_samples] == [(2, "decode"), (9, "decode"), (15, "read")]


@pytest.mark.parametrize("engine, prefetch", ENGINES)
def test_substitute_keeps_sizes_and_marks_rows(damaged, engine, prefetch):
    loader = damaged(on_bad_sample="substitute", engine=engine, prefetch_factor=prefetch)
    batches = list(loader)
    assert [len(batch[0]) for batch in batches] == [4, 4, 4, 4, 4, 2] and len(loader) == 6
    index = torch.cat([batch[2] for batch in batches])
    valid = torch.cat([batch[4] for batch in batches])
    assert sorted(index[valid].tolist()) == [i for i in range(22) if i not in STAGES]
    assert (~valid).sum() == 4
    # A substitute's fields are all its own.
    paths = [path for batch in batches for path in batch[3]]
    labels = torch.cat([batch[1] for batch in batches])
    for i, path, label in zip(index.tolist(), paths, labels.tolist(), strict=True):
        assert loader.source.samples[i] == (path, label)
    met = {bad.index: bad for bad in loader.bad_samples}
    assert set(STAGES) <= set(met) and all(bad.substitute is not None for bad in met.values())


@pytest.mark.slow
def test_substitutes_are_one_stream_and_resume(damaged):
    damaged()
    makers = [
        (lambda e=engine, p=prefetch: damaged.again(on_bad_sample="substitute", engine=e, prefetch_factor=p))
        for engine, prefetch in ENGINES
    ]
    stream = assert_same_stream(*makers, epochs=2)
    # The other samples are those of a run in which nothing was damaged before or behind them.
    assert len(stream) == 12
    assert_resumes_exactly(makers[0], every=3)
    assert_same_stream(
        makers[0],
        lambda: [damaged.again(on_bad_sample="substitute", batch_size=2, rank=r, world_size=2) for r in range(2)],
    )


def test_the_good_samples_are_as_if_nothing_had_happened(own_folder, damaged):
    dataset = td.ImageFolder(own_folder, fields=("image", "index"))
    clean = {}
    for batch in td.DataLoader(dataset, 4, shuffle=True, seed=5, device="cpu", transform=TRANSFORM):
        clean |= dict(zip(batch[1].tolist(), sample_digests(batch), strict=True))
    damaged()
    loader = td.DataLoader(
        dataset, 4, shuffle=True, seed=5, device="cpu", transform=TRANSFORM, on_bad_sample="substitute"
    )
    met = 0
    for batch in loader:
        for i, digest in zip(batch[1].tolist(), sample_digests(batch), strict=True):
            met += i not in STAGES
            assert digest == clean[i]
    assert met == 22  # substitutes too: their numbers are keyed by their own index


def test_a_callable_decides(damaged):
    asked = []

    def decide(bad):
        asked.append(bad)
        return {2: 3, 9: "substitute", 10: "substitute", 15: 0}[bad.index]

    loader = damaged(shuffle=False, on_bad_sample=decide)
    index = torch.cat([batch[2] for batch in loader]).tolist()
    assert index[2] == 3 and index[15] == 0 and [bad.index for bad in asked][:1] == [2]
    with pytest.raises(td.BadSampleError):
        list(damaged.again(on_bad_sample=lambda bad: "raise"))
    for answer in (1.5, None, True):
        with pytest.raises(TypeError, match="on_bad_sample must return"):
            list(damaged.again(on_bad_sample=lambda bad, answer=answer: answer))
    with pytest.raises(IndexError, match="returned 22 for a dataset of 22"):
        list(damaged.again(on_bad_sample=lambda bad: 22))


def test_nothing_good_left(own_folder, files):
    dataset = td.ImageFolder(own_folder)
    for path in files:
        garble_file(path)
    loader = td.DataLoader(dataset, 4, device="cpu", on_bad_sample="substitute", transform=TRANSFORM)
    with pytest.raises(td.BadSampleError):
        next(iter(loader))


@pytest.mark.parametrize("engine", ["eager", "pipeline", "debug"])
def test_files_that_only_pillow_opens(tmp_path, engine):
    """GIF, odd TIFF and BMP, JPEGs with junk: decoded on the host, in batches with files that DALI decodes."""
    names = [
        "hopper.gif", "hopper.jpg", "hopper_gray_4bpp.tif", "rgb16.bmp", "junk_jpeg_header.jpg", "hopper.png",
        "jpeg_ff00_header.jpg", "photoshop-200dpi-broken.jpg", "truncated_app14.jpg", "hopper_orientation_6.jpg",
    ]  # fmt: skip
    dataset = td.FileDataset([ODD / name for name in names], fields=("image", "path"))
    loader = td.DataLoader(dataset, 5, device="cpu", engine=engine)
    for images, paths in loader:
        for image, size, path in zip(images.data, images.sizes.tolist(), paths, strict=True):
            expected = td.datasets.base._look(td.kinds.ENCODED, np.fromfile(path, np.uint8))
            got = image[:, : size[0], : size[1]]
            assert got.shape == expected.shape
            # libjpeg-turbo here and there; DALI's and Pillow's may differ in chroma upsampling by a level.
            assert (got.int() - expected.int()).abs().max() <= (1 if path.endswith("jpg") else 0), path
    assert loader.bad_samples == []


def test_jpeg2000_never_reaches_dali(tmp_path):
    """This file kills the process where DALI decodes it; Pillow refuses it with a sentence."""
    names = ["hopper.jpg", "balloon_eciRGBv2_aware.jp2", "hopper.png"]
    dataset = td.FileDataset([ODD / name for name in names], fields=("image", "index", "valid"))
    with pytest.raises(td.BadSampleError, match=r"sample 1 .*jp2"):
        list(td.DataLoader(dataset, 3, device="cpu"))
    ((_, index, valid),) = td.DataLoader(dataset, 3, device="cpu", on_bad_sample="substitute")
    assert index[1] != 1 and valid.tolist() == [True, False, True]


def test_an_error_of_the_transform_is_not_blamed_on_the_samples(folder):
    def broken(sample, rand):
        return {"image": undefined_name}  # noqa: F821

    for engine, prefetch in (("auto", 2), ("auto", 0), ("debug", 2)):
        loader = td.DataLoader(
            td.ImageFolder(folder), 4, device="cpu", transform=broken, engine=engine, prefetch_factor=prefetch,
            on_bad_sample="substitute",
        )  # fmt: skip
        with pytest.raises(NameError, match="undefined_name") as caught:
            next(iter(loader))
        assert any(entry.name == "broken" for entry in caught.traceback)
        assert loader.bad_samples == []


def test_one_sample_that_a_transform_refuses(folder, tmp_path):
    """A crop larger than one of the images: that sample is bad, in the stage "transform"."""
    shutil.copytree(folder, tmp_path / "own")
    from PIL import Image

    path = next((tmp_path / "own").rglob("*.jpg"))
    Image.new("RGB", (20, 20)).save(path)
    dataset = td.ImageFolder(tmp_path / "own", fields=("image", "index"))
    for engine in ("eager", "pipeline", "debug"):
        loader = td.DataLoader(dataset, 4, device="cpu", transform=T.RandomCrop(32), engine=engine)
        error = ValueError if engine == "debug" else td.BadSampleError
        with pytest.raises(error, match="needs an image of at least"):
            list(loader)
        assert loader.bad_samples[0].stage == "transform" and loader.bad_samples[0].path == str(path)
        loader = td.DataLoader(
            dataset, 4, device="cpu", transform=T.RandomCrop(32), engine=engine, on_bad_sample="substitute"
        )
        assert len(list(loader)) == 6


def test_bad_samples_are_counted_when_they_are_handed_over(damaged):
    loader = damaged(shuffle=False, on_bad_sample="substitute", prefetch_factor=4)
    iterator = iter(loader)
    next(iterator)
    assert [bad.index for bad in loader.bad_samples if bad.index in STAGES] == [2]
    assert read_stream(loader, 0) == []


def test_errors_pickle(damaged):
    import pickle

    with pytest.raises(td.BadSampleError) as caught:
        list(damaged())
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value) and again.index == caught.value.index


class AllBad:
    def __init__(self, good: int = 1000) -> None:
        self.good = good

    def __len__(self) -> int:
        return 210

    def __getitem__(self, index: int) -> int:
        if index < self.good:
            raise OSError(f"no file {index}")
        return index


@pytest.mark.parametrize("num_workers", [0, pytest.param(2, marks=pytest.mark.processes)])
def test_a_pass_in_which_nothing_can_be_made_ends(num_workers):
    """One error per batch, as in torch; a loop that catches them comes to the epoch's end."""
    with td.DataLoader(AllBad(), 70, device="cpu", num_workers=num_workers) as loader:
        for epoch in range(2):
            iterator, errors = iter(loader), []
            for _ in range(3):
                with pytest.raises(OSError, match="no file") as caught:
                    next(iterator)
                errors.append(str(caught.value))
            with pytest.raises(StopIteration):
                next(iterator)
            assert errors == ["no file 0", "no file 70", "no file 140"] and loader.epoch == epoch + 1


def test_a_pass_goes_on_where_samples_can_be_made_again():
    data = AllBad()
    loader = td.DataLoader(data, 70, device="cpu")
    iterator = iter(loader)
    with pytest.raises(OSError, match="no file 0"):
        next(iterator)
    assert loader.state_dict()["samples_seen"] == 0
    data.good = 0
    assert [batch[0].item() for batch in iterator] == [70, 140] and loader.state_dict()["finished"]


@pytest.mark.parametrize("engine", ["eager", "pipeline"])
@pytest.mark.parametrize("chain", [None, T.Normalize((0.5,) * 3, (0.5,) * 3)])
def test_a_row_and_a_column_in_one_batch(engine, chain, tmp_path):
    """Small files, and all of the memory once they are padded to one size."""
    for number, size in enumerate([(60_000, 1), (1, 60_000), (4, 5), (5, 4)]):
        Image.new("RGB", size).save(tmp_path / f"{number}.png")
    data = td.FileDataset(sorted(tmp_path.iterdir()))
    loader = td.DataLoader(data, 2, device="cpu", engine=engine, transform=chain)
    batches = iter(loader)
    with pytest.raises(td.EngineError, match=r"padded to height 60000 and width 60000, and at most 89478485 pixels"):
        next(batches)
    ((images,),) = batches  # it goes on after it
    assert images.data.shape == (2, 3, 5, 5)
