"""Arguments, outputs, and the shape that trainers expect of a loader."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import skip_first_batches
from torch.utils.data import DistributedSampler

import torchdali as td
from torchdali import transforms as T
from torchdali.testing import read_stream


@pytest.fixture
def dataset(folder):
    return td.ImageFolder(folder)


@pytest.mark.parametrize(
    "changes, error, sentence",
    [
        ({"batch_size": -1}, ValueError, "batch_size must be at least 1, got -1"),
        ({"batch_size": 2.0}, TypeError, "batch_size must be an integer, got 2.0"),
        ({"batch_size": True}, TypeError, "batch_size must be an integer"),
        ({"batch_size": None}, ValueError, "ImageFolder gives samples: write batch_size=1, or how many"),
        ({"seed": -1}, ValueError, "seed must be in"),
        ({"engine": "fast"}, ValueError, "engine must be one of auto, eager, pipeline, debug, got 'fast'"),
        ({"shuffle": "no"}, TypeError, "shuffle must be True or False, got 'no'"),
        ({"drop_last": "False"}, TypeError, "drop_last must be True or False, got 'False'"),
        ({"pad_last": 2}, TypeError, "pad_last must be True or False, got 2"),
        ({"persistent_workers": "yes"}, TypeError, "persistent_workers must be True or False, got 'yes'"),
        ({"pin_memory": "cuda"}, TypeError, "pin_memory must be True or False, got 'cuda'"),
        ({"on_bad_sample": "drop"}, ValueError, "on_bad_sample must be one of raise, skip, substitute, got 'drop'"),
        ({"timeout": -1}, ValueError, "timeout must be a number of seconds, at least 0, got -1"),
        ({"prefetch_factor": -1}, ValueError, "prefetch_factor must be at least 0"),
        ({"num_threads": 0}, ValueError, "num_threads must be at least 1"),
        ({"pad_value": "x"}, TypeError, "pad_value must be a number, or a dict of numbers by field, got 'x'"),
        ({"pad_value": {"image": "x"}}, TypeError, "pad_value must be a number, .*, got 'x' in the dict"),
        ({"pad_value": {"images": 1}}, ValueError, "must name fields among image, label, got 'images' .did you mean"),
        ({"pad_value": -1}, ValueError, "must fit .*, got -1 for 'image', which is uint8: .*pad_value={'label': -1}"),
        ({"pad_value": -100}, ValueError, "must fit .*, got -100 for 'image', which is uint8"),
        ({"pad_value": {"image": 256}}, ValueError, "pad_value of 'image' must fit its dtype, uint8, got 256"),
        ({"mesh": 3}, TypeError, "mesh must be a torch DeviceMesh, got 3"),
        ({"pad_multiple": 0}, ValueError, "pad_multiple must be at least 1"),
        ({"rank": 2, "world_size": 2}, ValueError, r"rank must be in \[0, world_size\), got rank=2 world_size=2"),
        ({"rank": 0}, ValueError, "rank and world_size go together"),
        ({"device": "mps"}, ValueError, "device must be 'cpu', 'cuda' or 'cuda:INDEX', got 'mps'"),
        ({"shuffle": True, "sampler": range(3)}, ValueError, "shuffle must be False"),
        ({"drop_last": True, "pad_last": True}, ValueError, "exclude each other"),
        ({"sampler": iter([1, 2])}, TypeError, "sampler must be an iterable of indices that can be"),
        ({"sampler": DistributedSampler(range(9), 2, 0)}, TypeError, "shuffle=True or False"),
        ({"collate_fn": len, "output": "dict"}, ValueError, "collate_fn=len makes batches without: leave output out"),
        ({"output": "rows"}, ValueError, "output must be one of tuple, dict, list, got 'rows'"),
        ({"batch_sampler": [[1]], "batch_size": 2}, ValueError, "gives the batches: leave batch_size out"),
        ({"generator": 3}, TypeError, "generator must be a torch.Generator, got 3"),
        ({"persistent_workers": True}, ValueError, "persistent_workers needs num_workers > 0"),
        ({"multiprocessing_context": "spawn"}, ValueError, "multiprocessing_context='spawn' needs num_workers > 0"),
        ({"in_order": False}, ValueError, "a stream has one order"),
        ({"stream": "privat"}, ValueError, "stream must be 'private', 'current' or a torch.cuda.Stream, got 'privat'"),
        ({"stream": 3}, TypeError, "stream must be 'private', 'current' or a torch.cuda.Stream, got 3"),
        ({"transform": [T.Resize(3)]}, TypeError, r"write Compose\(\[...\]\)"),
        ({"transform": T.Resize}, TypeError, r"got the class: write Resize\(...\)"),
        ({"transform": 3}, TypeError, "transform must be a torchdali transform or a function"),
        ({"transform": T.Compose([T.Resize(9), T.Decode()])}, ValueError, "Decode must be the first transform"),
        ({"transform": lambda sample, rand: sample, "engine": "pipeline"}, ValueError, "write engine='auto'"),
    ],
)
def test_wrong_arguments_are_one_sentence_at_construction(dataset, changes, error, sentence):
    with pytest.raises(error, match=sentence) as caught:
        td.DataLoader(dataset, **({"device": "cpu"} | changes))
    assert "\n" not in str(caught.value)


def test_wrong_datasets(dataset):
    for wrong in (3, "folder"):
        with pytest.raises(TypeError, match=r"dataset must have samples by index.*ImageFolder\(root\)"):
            td.DataLoader(wrong)
    for once in (iter([1, 2]), (i for i in range(3)), lambda: range(3)):
        with pytest.raises(
            TypeError, match=r"dataset must have samples by index.* write torchdali.IterableSource\(f\)"
        ):
            td.DataLoader(once)
    with pytest.raises(TypeError, match=r"dataset must be an object, got the class: write InMemoryDataset\(...\)"):
        td.DataLoader(td.InMemoryDataset)
    labels = td.InMemoryDataset(label=[1, 2, 3])
    with pytest.raises(ValueError, match="Resize acts on images, and the dataset has none"):
        td.DataLoader(labels, transform=T.Resize(3))


def test_a_torchvision_transform_names_ours(dataset):
    from torchvision.transforms import v2

    with pytest.raises(TypeError, match=r"write torchdali.transforms.Resize with the same arguments"):
        td.DataLoader(dataset, transform=v2.Resize(3))


def test_an_epoch_without_a_batch(dataset):
    loader = td.DataLoader(dataset, batch_size=23, drop_last=True, device="cpu")
    assert len(loader) == 0 and list(loader) == [] and loader.epoch == 1


def test_no_gpu_is_one_sentence(dataset):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    loader = td.DataLoader(dataset, device="cuda")
    with pytest.raises(ValueError, match="torch sees no GPU here"):
        next(iter(loader))


def test_every_torch_argument_is_taken_or_refused(dataset):
    torchs = set(inspect.signature(torch.utils.data.DataLoader.__init__).parameters) - {"self"}
    ours = set(inspect.signature(td.DataLoader.__init__).parameters)
    assert torchs <= ours, torchs - ours
    # And torch's own defaults are fine.
    td.DataLoader(dataset, 1, None, None, num_workers=0, collate_fn=None, prefetch_factor=None, generator=None)


def test_tuples_follow_the_fields(folder):
    dataset = td.ImageFolder(folder, fields=("path", "label", "valid", "image", "index"))
    loader = td.DataLoader(dataset, 5, device="cpu", transform=T.Resize((9, 7)))
    for path, label, valid, image, index in loader:
        assert image.shape[1:] == (3, 9, 7) and image.dtype == torch.uint8
        assert image.is_contiguous(memory_format=torch.channels_last)
        assert label.dtype == index.dtype == torch.int64 and valid.dtype == torch.bool and valid.all()
        assert [dataset.samples[i] for i in index.tolist()] == list(zip(path, label.tolist(), strict=True))


def test_ragged_images_are_padded_with_their_sizes(folder):
    dataset = td.ImageFolder(folder, fields=("image", "index"))
    for images, index in td.DataLoader(dataset, 4, device="cpu", pad_value=7, pad_multiple=16):
        assert isinstance(images, td.Padded) and images.sizes.dtype == torch.int64
        data, sizes = images
        assert data.shape[2] % 16 == data.shape[3] % 16 == 0
        assert data.shape[2] - 16 < sizes[:, 0].max() <= data.shape[2]
        assert images.mask.shape == (len(index), *data.shape[2:])
        for i, one in enumerate(index.tolist()):
            alone = dataset[one][0]
            assert tuple(sizes[i]) == alone.shape[1:]
            assert torch.equal(data[i, :, : sizes[i, 0], : sizes[i, 1]], alone)
            assert (data[i][:, ~images.mask[i]] == 7).all() and images.mask[i].sum() == sizes[i].prod()


def test_a_ragged_field_is_padded_even_where_a_batch_is_uniform(folder):
    """The type of a field depends on the loader, not on the luck of a batch."""
    for (images,) in td.DataLoader(td.ImageFolder(folder, fields=("image",)), 1, device="cpu"):
        assert isinstance(images, td.Padded) and images.mask.all()
    with td.DataLoader(td.ImageFolder(folder), 4, device="cpu", transform=T.Resize(20)) as loader:
        assert all(isinstance(images, td.Padded) for images, _ in loader)


@pytest.mark.parametrize("engine", ["eager", "pipeline", "debug"])
def test_what_a_function_gives_is_padded_by_its_shapes(engine):
    """And not by how an engine happens to lay it out in memory."""

    @T.traceable
    def same(sample, rand, ops):
        return dict(sample)

    for sizes, kind in (((6, 6), torch.Tensor), ((6, 7), td.Padded)):
        dataset = td.InMemoryDataset(image=[np.full((size, 5, 3), size, np.uint8) for size in sizes])
        ((image,),) = td.DataLoader(dataset, 2, device="cpu", engine=engine, transform=same)
        assert type(image) is kind


def test_dicts_hold_plain_tensors(folder):
    dataset = td.ImageFolder(folder, fields=("image", "label", "path"))
    for batch in td.DataLoader(dataset, 4, device="cpu", output="dict"):
        assert list(batch) == ["image", "image_sizes", "label", "path"] and type(batch) is dict
        assert all(type(value) in (torch.Tensor, list) for value in batch.values())


def test_in_memory_images_arrays_numbers_and_objects(folder):
    files = [path for path, _ in td.ImageFolder(folder).samples[:4]]
    images = np.random.default_rng(0).integers(0, 256, (4, 10, 12, 3), dtype=np.uint8)
    boxes = [np.arange(n * 4, dtype=np.float32).reshape(n, 4) for n in (2, 0, 3, 1)]
    dataset = td.InMemoryDataset(
        image=images, file=[Path(path).read_bytes() for path in files], boxes=boxes, score=[0.5, 1, 2, 3],
        name=list("abcd"), vector=np.eye(4, dtype=np.float32), kinds={"boxes": "array"},
    )  # fmt: skip
    for engine in ("eager", "pipeline", "debug"):
        loader = td.DataLoader(dataset, 4, device="cpu", engine=engine, transform=T.CenterCrop(8))
        ((image, file, box, score, name, vector),) = loader
        assert np.array_equal(image.permute(0, 2, 3, 1), images[:, 1:9, 2:10])
        assert file.shape == (4, 3, 8, 8)
        assert box.data.shape == (4, 3, 4) and box.sizes.tolist() == [[2, 4], [0, 4], [3, 4], [1, 4]]
        assert box.mask.sum() == 24 and torch.equal(box.data[2], torch.from_numpy(boxes[2]))
        assert score.dtype == torch.float64 and name == list("abcd") and torch.equal(vector, torch.eye(4))


def test_nothing_for_dali_to_do():
    dataset = td.InMemoryDataset(image=np.zeros((5, 4, 4, 1), np.uint8), label=range(5))
    loader = td.DataLoader(dataset, 2, device="cpu", engine="pipeline", transform=T.RandomVerticalFlip())
    assert (loader.engine, loader.engine_reason) == ("eager", "there is nothing for DALI to do")
    assert [tuple(image.shape) for image, _ in loader] == [(2, 1, 4, 4), (2, 1, 4, 4), (1, 1, 4, 4)]


def test_engine_and_reason(dataset):
    def augment(sample, rand):
        return sample

    loader = td.DataLoader(dataset, device="cpu")
    assert loader.engine == "pipeline" and "fastest" in loader.engine_reason
    loader = td.DataLoader(dataset, device="cpu", engine="eager")
    assert loader.engine == "eager" and "asked for" in loader.engine_reason
    loader = td.DataLoader(dataset, device="cpu", transform=augment)
    assert loader.engine == "eager"
    assert loader.engine_reason == "the function augment is not marked with transforms.traceable"


def test_debug_runs_in_the_callers_thread(dataset):
    import threading

    seen = []

    def augment(sample, rand):
        import nvidia.dali.experimental.dynamic as ndd

        seen.append((threading.current_thread(), ndd.EvalMode.current()))
        return sample

    transform = T.Compose([T.Decode(), augment])
    list(td.DataLoader(dataset, 11, device="cpu", engine="debug", transform=transform))
    import nvidia.dali.experimental.dynamic as ndd

    assert seen == [(threading.main_thread(), ndd.EvalMode.sync_full)] * 2


def test_num_threads_defaults(dataset, monkeypatch):
    from torchdali.distributed import default_num_threads

    monkeypatch.setenv("DALI_NUM_THREADS", "3")
    assert default_num_threads() == 3
    monkeypatch.setenv("DALI_NUM_THREADS", "many")
    with pytest.raises(ValueError, match="DALI_NUM_THREADS must be an integer of at least 1, got 'many'"):
        next(iter(td.DataLoader(dataset, device="cpu")))


def test_what_trainers_read(dataset):
    """research: Lightning, Accelerate, Ignite and DCP read these, on a class that is not torch's."""
    loader = td.DataLoader(dataset, 4, shuffle=True, device="cpu", transform=T.Resize((8, 8)))
    assert not isinstance(loader, torch.utils.data.DataLoader)
    # Without workers a torch loader takes no other prefetch_factor and timeout; the options hold what counts.
    assert loader.num_workers == 0 and loader.prefetch_factor is None and loader.timeout == 0 and loader.in_order
    assert loader.options.prefetch_factor == 2 and loader.options.timeout == 120
    assert len(loader.dataset) == len(loader.sampler) == 22 and loader.dataset.classes == ["class_0", "class_1"]
    assert loader.dataset[3][1] == dataset[3][1]
    loader.sampler.set_epoch(3)
    assert loader.epoch == 3 and next(iter(loader)) and loader.state_dict()["epoch"] == 3
    assert isinstance(td.DataLoader(dataset).sampler, torch.utils.data.SequentialSampler)
    assert loader.batch_sampler.batch_size == 4 and not loader.batch_sampler.drop_last


def test_a_torch_loader_over_the_tokens_is_an_exact_skip(dataset):
    """How accelerate.skip_first_batches seeks."""

    def make():
        return td.DataLoader(dataset, 4, shuffle=True, device="cpu", transform=T.RandomResizedCrop(8))

    loader = make()
    loader.set_epoch(2)
    whole = [images.clone() for images, _ in loader]
    for skip in range(7):
        loader = make()
        loader.batch_sampler.set_epoch(2)
        rest = [images for images, _ in skip_first_batches(loader, skip)]
        assert len(rest) == 6 - skip and all(torch.equal(a, b) for a, b in zip(rest, whole[skip:], strict=True))


def test_set_epoch_and_cycles(dataset):
    loader = td.DataLoader(dataset, 4, shuffle=True, device="cpu", transform=T.Resize((4, 4)))
    with pytest.raises(ValueError, match="epoch must be an integer"):
        loader.set_epoch(-1)
    loader.set_epoch(1)
    one = read_stream(loader, 2, limit=6)
    # Without another set_epoch, the same epoch comes again in another order, and says so in its state.
    again = list(loader)
    assert loader.state_dict()["cycle"] == 1 and loader.state_dict()["epoch"] == 1
    assert len(again) == len(one)
    loader.set_epoch(1)
    list(loader), next(iter(loader))
    loader.seek(None, 3)
    assert loader.state_dict()["cycle"] == 1 and loader.state_dict()["samples_seen"] == 12


def test_seek_is_checked_and_numpy_integers_are_integers(dataset):
    loader = td.DataLoader(dataset, np.int64(4), device="cpu")
    assert type(loader.batch_size) is int
    before = loader.state_dict()
    for epoch, step in ((-1, 0), (2**31, 0), (0, -1)):
        with pytest.raises(ValueError):
            loader.seek(epoch, step)
        assert loader.state_dict() == before


def test_an_error_of_the_sampler_loses_no_position(dataset):
    class Sometimes(torch.utils.data.Sampler):
        fails = False

        def __len__(self):
            return 22

        def __iter__(self):
            if self.fails:
                raise OSError("no list today")
            return iter(range(22))

    sampler = Sometimes()
    loader = td.DataLoader(dataset, 4, sampler=sampler, device="cpu", transform=T.Resize((4, 4)))
    state = loader.state_dict() | {"epoch": 2, "samples_seen": 8}
    loader.load_state_dict(state)
    sampler.fails = True
    with pytest.raises(OSError, match="no list today"):
        next(iter(loader))
    assert loader.state_dict() == state
    sampler.fails = False
    assert len(list(loader)) == 4
