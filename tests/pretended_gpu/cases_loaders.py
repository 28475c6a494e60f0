"""Loaders on a pretended GPU: every engine, transform, form of batch and end of a pass, without a hazard."""

from __future__ import annotations

import gc
import os
import threading
import warnings

import numpy as np
import pytest
import torch

import torchdali as td
from torchdali import transforms as T
from torchdali.testing import assert_same_stream, make_image_folder, sample_digests

from . import MACHINE, watched
from .as_torch import FakeStream

GPU_1 = torch.device("cuda", 1)
EXECUTIONS = [("eager", 2), ("eager", 0), ("pipeline", 2), ("pipeline", 0), ("debug", 2)]
NORMALIZE = T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CROP = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip(), NORMALIZE])
AUGMENT = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.ColorJitter(0.4, 0.4, 0.2, 0.1), NORMALIZE])
TRANSFORMS = [
    T.Resize(32),
    T.Compose([T.Resize(40), T.CenterCrop(32)]),
    T.Compose([T.RandomCrop(48, pad_if_needed=True), T.RandomVerticalFlip()]),
    T.Compose([T.RandomResizedCrop(24, interpolation="bicubic"), T.GaussianBlur(5)]),
    T.Compose([T.Resize((20, 20)), T.ColorJitter(0.3, 0.3, 0.3, 0.1), T.ToDtype(torch.float16, scale=True)]),
    T.RandomHorizontalFlip(),
    T.Compose([T.RandomZoomOut((9, 8, 7)), T.RandomShortestSize([20, 30], 40), T.RandomRotation(30, expand=True)]),
    T.Compose([T.Resize((20, 20)), T.RandAugment(fill=(1, 2, 3), interpolation="bilinear"), NORMALIZE]),
    T.Compose([T.Resize((20, 20)), T.AugMix(), T.RandomErasing(value=(1, 2, 3))]),
    T.Compose([T.Resize((20, 20)), T.AutoAugment(), T.RandomPhotometricDistort(), T.JPEG((20, 60))]),
    T.Compose([T.RandomAdjustSharpness(2), T.RandomAutocontrast(), T.RandomEqualize(), T.RandomChannelPermutation()]),
    T.Compose([T.RandomInvert(), T.RandomPosterize(3), T.RandomSolarize(99), T.GridMask(9, degrees=20), T.Grayscale()]),
    T.Compose([T.RandomApply([T.RandomGrayscale(0.5), T.Resize(30)]), T.RandomOrder([T.GaussianBlur(3), T.RGB()])]),
    T.Compose([T.RandomResizedCrop(24), T.RandomPerspective(), T.ElasticTransform(sigma=1.0), NORMALIZE]),
    T.Compose([T.Resize((20, 20)), T.GaussianNoise(), T.RandomErasing(value="random"), T.RandomHorizontalFlip()]),
    T.Compose([T.RandomCrop(30, pad_if_needed=True, padding_mode="reflect"), T.RandomShortestSize([20, 30], 40)]),
    T.Compose([T.RandomPerspective(p=0.0), T.Resize(20), T.RandomEqualize()]),
    T.Compose(
        [T.Resize((20, 20)), T.TimmAutoAugment(), NORMALIZE, T.TimmRandomErasing(0.9, mode="pixel", max_count=2)]
    ),
    T.Compose([T.ResizeKeepRatio(30, random_scale_prob=0.5), T.RandomCropOrPad(32), T.TimmAugMix()]),
    T.Compose([T.RandomChoice([T.RandomCrop(20), T.TrivialAugmentWide()]), T.ToDtype(torch.float32, scale=True)]),
    None,
]


def rotate(sample, rand):
    import nvidia.dali.experimental.dynamic as ndd

    image = ndd.decoders.image(sample["image"], device=rand.device)
    image = ndd.rotate(image, angle=rand.uniform(-10, 10), fill_value=0)
    return {**sample, "image": ndd.resize(image, size=[24, 24])}


@pytest.fixture
def make(ten):
    """Makes a loader with some arguments changed."""

    def make(**changes):
        arguments = dict(batch_size=4, shuffle=True, seed=5, device="cuda", transform=CROP, timeout=60, num_threads=1)
        return td.DataLoader(td.ImageFolder(ten), **(arguments | changes))

    return make


def use(batch) -> None:
    """Read a batch as a training step does: late, on the current stream."""
    for value in batch.values() if isinstance(batch, dict) else batch:
        for tensor in value if isinstance(value, td.Padded) else (value,):
            if isinstance(tensor, torch.Tensor):
                tensor.float().mean()


WAITS = {"wait: stream.synchronize", "wait: pipeline.run", "wait: DALI's copy to the CPU"}
"""Those of the loader's streams: at a batch's end, and for a pipeline and for functions on the host."""


def train(loader) -> int:
    """Use each batch on a stream of the consumer's own and drop it at once; nothing else is waited for."""
    count = 0
    MACHINE.counts.clear()
    with torch.cuda.stream(torch.cuda.Stream(loader.device)):
        for batch in loader:
            use(batch)
            del batch
            count += 1
    assert {what for _, what in MACHINE.counts if "wait" in what} <= WAITS
    return count


@pytest.mark.parametrize("engine, prefetch", EXECUTIONS)
def test_batches_are_torchs_and_on_the_device(make, engine, prefetch):
    for images, labels in make(engine=engine, prefetch_factor=prefetch):
        assert images.device == labels.device == torch.device("cuda", 0)
        assert all(buffer.use.owner == "torch" for buffer in images.buffers + labels.buffers)
        use((images, labels))


def test_engines_and_prefetch_give_one_stream(make):
    stream = assert_same_stream(
        *(lambda e=e, p=p: make(engine=e, prefetch_factor=p, transform=AUGMENT) for e, p in EXECUTIONS)
    )
    assert len(stream) == 3


@pytest.mark.parametrize("engine", ["eager", "pipeline"])
@pytest.mark.parametrize("transform", TRANSFORMS, ids=str)
def test_each_transform_and_ragged_batches(make, engine, transform):
    output = "dict" if TRANSFORMS.index(transform) % 2 else "tuple"
    assert train(make(engine=engine, transform=transform, output=output)) == 3


@pytest.mark.parametrize("engine, prefetch", EXECUTIONS)
def test_torch_takes_over(engine, prefetch):
    """With masks, views, clips and channels last; the pixels are the CPU's, where both run torchvision's kernels."""
    images = np.random.default_rng(0).integers(0, 256, (10, 30, 40, 3), dtype=np.uint8)
    masks = (images[..., 0] > 99).astype(np.uint8)
    clips = np.stack([images, images[:, ::-1]], 1)
    of_images = td.InMemoryDataset(image=images, mask=masks, kinds={"mask": "mask"})
    of_clips = td.InMemoryDataset(video=clips, kinds={"video": td.kinds.Video("FHWC")})
    moved = [T.RandomPerspective(0.3, 0.7), T.RandomHorizontalFlip(), T.RandomEqualize(), T.RandomCrop(20)]
    for dataset, transform in (
        (of_images, T.Compose([*moved, NORMALIZE])),
        (of_images, T.Compose([moved[0], T.Views([[moved[1]], moved[2:]])])),
        (of_images, T.Compose([T.ElasticTransform(20.0, 1.0, fill=3)])),
        (of_images, T.Compose([T.RandAugment(3, 14, fill=(1, 2, 3)), T.RandomAdjustSharpness(2.0, 1.0)])),
        (of_images, T.Compose([T.RandomCrop(24), T.RandAugment(3, 12), T.TrivialAugmentWide(fill=(1, 2, 3))])),
        (of_clips, T.Compose([T.RandomVerticalFlip(), T.AutoAugment("cifar10"), T.AugMix()])),
        (of_clips, T.Compose([T.UniformTemporalSubsample(3), *moved])),
    ):
        options = dict(batch_size=4, seed=2, transform=transform, memory_format=torch.channels_last, num_threads=1)
        ours = dict(engine=engine, prefetch_factor=prefetch, timeout=60)
        gpu = td.DataLoader(dataset, device="cuda", **options, **ours)
        for got, expected in zip(gpu, td.DataLoader(dataset, device="cpu", **options), strict=True):
            for one, other in zip(flat(got), flat(expected), strict=True):
                assert one.is_cuda and one.shape == other.shape and one.stride() == other.stride()
                assert (one.cpu().double() - other.double()).abs().max() <= 1e-5


def flat(batch) -> list:
    return [tensor for value in batch for tensor in (value if isinstance(value, list) else [value])]


@pytest.mark.parametrize("prefetch", [0, 2])
def test_functions(make, prefetch):
    traced = T.traceable(lambda sample, rand, ops: {**sample, "image": ops.resize(sample["image"], size=[8, 8])})
    for transform in (rotate, T.Compose([rotate, *AUGMENT.transforms]), T.Compose([T.Decode(), traced])):
        assert train(make(transform=transform, prefetch_factor=prefetch)) == 3


@pytest.mark.parametrize("engine, prefetch", EXECUTIONS)
def test_arrays_numbers_and_objects(engine, prefetch):
    images = list(np.random.default_rng(0).integers(0, 256, (12, 40, 30, 3), dtype=np.uint8))
    images[3] = images[3][:32]
    boxes = [np.ones((n, 4), np.float32) for n in (3, 0, 2, 5, 1, 1, 0, 4, 2, 2, 1, 3)]
    fields = {"image": images, "boxes": boxes, "name": [f"n{i}" for i in range(12)], "label": list(range(12))}
    dataset = td.InMemoryDataset(**fields, kinds={"boxes": "array"})
    for transform in (None, T.RandomResizedCrop(16)):
        assert train(td.DataLoader(dataset, 5, device="cuda", engine=engine, prefetch_factor=prefetch,
                                   transform=transform)) == 3  # fmt: skip


@pytest.mark.parametrize(("engine", "prefetch"), EXECUTIONS)
def test_single_samples_and_host_values(ten, engine, prefetch):
    """They leave the GPU and come back to it, between steps that run there."""

    def halve(sample):
        image, label = sample
        assert image.device.type == "cpu"
        return image // 2, label

    @T.function(adds={"copy": "image"})
    def copy(sample, rand):
        return {**sample, "copy": [np.asarray(image.cpu()) for image in sample["image"].tensors]}

    steps = [T.Resize((20, 24)), T.PerSample(halve), T.RandomHorizontalFlip(), copy, T.CenterCrop(16)]
    loader = td.DataLoader(
        td.ImageFolder(ten), 4, transform=T.Compose(steps), device="cuda", engine="auto" if engine == "pipeline"
        else engine, prefetch_factor=prefetch, timeout=60,
    )  # fmt: skip
    for image, _, other in loader:
        assert image.is_cuda and image.shape[1:] == (3, 16, 16) and image.max() < 128
        assert torch.equal(image, other)


def test_several_image_fields(ten):
    data = [path.read_bytes() for path in sorted(ten.rglob("*.jpg"))]
    dataset = td.InMemoryDataset(image=data, other=data[::-1])
    for engine in ("eager", "pipeline"):
        assert train(td.DataLoader(dataset, 4, device="cuda", transform=T.RandomResizedCrop(16), engine=engine)) == 3


@pytest.mark.parametrize("engine, prefetch", EXECUTIONS)
def test_repairs(tmp_path, engine, prefetch):
    root = make_image_folder(tmp_path / "damaged", classes=2, per_class=8)
    paths = sorted(root.rglob("*.jpg"))
    paths[3].write_bytes(b"\xff\xd8\xff\xe0" + os.urandom(300))
    paths[9].write_bytes(b"")
    loader = td.DataLoader(
        td.ImageFolder(root), 4, device="cuda", transform=CROP, engine=engine, prefetch_factor=prefetch,
        on_bad_sample="substitute",
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        assert train(loader) == 4
    assert len(loader.bad_samples) >= 2


@pytest.mark.parametrize("engine, prefetch", EXECUTIONS)
def test_breaks_closes_and_errors(make, engine, prefetch):
    loader = make(engine=engine, prefetch_factor=prefetch)
    with torch.cuda.stream(torch.cuda.Stream()):
        for number in range(3):
            try:
                for step, batch in enumerate(loader):
                    use(batch)
                    del batch
                    if step == 1 and number == 0:
                        break
                    if step == 1 and number == 1:
                        loader.close()
                        break
                    if step == 1:
                        raise KeyError("loss is NaN")
            except KeyError:
                pass
    gc.collect()


def test_two_loaders_at_once(make):
    makers = [make, lambda: make(engine="eager"), lambda: make(prefetch_factor=0)]
    alone = [[sample_digests(batch) for batch in each()] for each in makers]
    together = [[sample_digests(batch) for batch in batches] for batches in zip(*(each() for each in makers))]
    assert [list(each) for each in zip(*together)] == alone


@pytest.mark.processes
def test_python_datasets(ten):
    data = [(path.read_bytes(), i, np.ones(3, np.float32)) for i, path in enumerate(sorted(ten.rglob("*.jpg")))]
    for workers in (0, 2):
        assert train(td.DataLoader(data, 4, device="cuda", transform=CROP, num_workers=workers)) == 3


# Forms of batches, and kinds of fields


def test_batches_that_are_taken_apart_wait_for_no_training_and_make_no_streams(make):
    own = FakeStream(queue=MACHINE.own_stream("training", 0))  # none of the 32 that PyTorch gives again and again
    for options in (
        dict(output="list", transform=T.RandomHorizontalFlip()),
        dict(collate_fn=lambda samples: (torch.stack([image for image, _ in samples]), samples[0][1])),
    ):
        loader = make(**options)
        list(loader)
        made = list(MACHINE.made)
        with torch.cuda.stream(own):
            for batch in loader:
                torch.cuda._sleep(1)
                assert isinstance(batch[1][0] if isinstance(batch[1], list) else batch[1], int)
        assert own.queue not in MACHINE.done and MACHINE.made == made


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("mix", [T.MixUp, T.CutMix])
def test_functions_of_whole_batches_wait_for_no_training(make, mix, prefetch):
    transform = T.Compose([T.RandomResizedCrop(24), T.ToDtype(torch.float32, scale=True)])
    options = dict(transform=transform, batch_transform=mix(num_classes=2), prefetch_factor=prefetch)
    assert train(make(**options)) == 3
    for got, expected in zip(make(**options), make(**options, device="cpu"), strict=True):
        assert (got[1].cpu() - expected[1]).abs().max() < 1e-6


IMAGES = [np.random.default_rng(i).integers(0, 256, (40, 30 + i, 3), dtype=np.uint8) for i in range(10)]
SCENES = td.InMemoryDataset(
    image=IMAGES,
    mask=[(image[..., 0] > 99).astype(np.uint8) for image in IMAGES],
    boxes=[np.array([[2, 3, 20, 25], [5, 5, 10, 30]], np.float32)[: 1 + i % 2] for i in range(10)],
    points=[np.array([[4, 5], [20, 22]], np.float32)] * 10,
    kinds={"mask": "mask", "boxes": "boxes", "points": "points"},
)
MOVES = {
    "one size": T.Compose([T.RandomResizedCrop(16), T.RandomHorizontalFlip(), T.ColorJitter(0.4)]),
    "boxes first": T.Compose([T.RandomZoomOut(), T.RandomIoUCrop(), T.Resize((20, 20))]),
    "in torch": T.Compose([T.Resize((20, 20)), T.ElasticTransform(sigma=1.0), T.RandomAffine(20)]),
    "ragged": T.Compose([T.RandomShortestSize([20, 30], 40), T.RandomHorizontalFlip()]),
    "views": T.Views({"a": [T.RandomResizedCrop(16)], "b": [T.RandomResizedCrop(12), T.RandomEqualize()]}),
}


@pytest.mark.parametrize("engine, prefetch", [EXECUTIONS[0], EXECUTIONS[3]])
@pytest.mark.parametrize("moves", MOVES)
def test_masks_boxes_and_points(engine, prefetch, moves):
    """They are moved on the host, by the same numbers as on the CPU."""
    options = dict(batch_size=4, seed=3, transform=MOVES[moves], output="dict", num_threads=1)
    assert train(td.DataLoader(SCENES, device="cuda", engine=engine, prefetch_factor=prefetch, **options)) == 3
    gpu = td.DataLoader(SCENES, device="cuda", engine=engine, prefetch_factor=prefetch, **options)
    for got, expected in zip(gpu, td.DataLoader(SCENES, device="cpu", **options), strict=True):
        for name in ("boxes", "points"):
            one, other = (flat([batch[name][key] for key in batch[name]] if isinstance(batch[name], dict) else
                               [batch[name]]) for batch in (got, expected))  # fmt: skip
            for a, b in zip(one, other, strict=True):
                a, b = (value.data if isinstance(value, td.Padded) else value for value in (a, b))
                assert a.is_cuda and torch.equal(a.cpu(), b)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_sounds_and_clips(prefetch):
    rng = np.random.default_rng(0)
    sounds = [rng.standard_normal((1, 800 + 40 * i)).astype(np.float32) for i in range(10)]
    clips = [rng.integers(0, 256, (4, 20, 24, 3), dtype=np.uint8) for _ in range(10)]
    jittered = T.Compose([T.UniformTemporalSubsample(2), T.RandomResizedCrop(16), T.ColorJitter(0.4, 0.4, 0.4, 0.1)])
    for fields, kinds, transform in (
        ({"audio": sounds}, {"audio": td.kinds.Audio(1000)}, None),
        ({"audio": sounds}, {"audio": td.kinds.Audio(1000)}, T.MelSpectrogram(1000, n_fft=64, n_mels=8)),
        ({"video": clips}, {"video": td.kinds.Video("FHWC")}, jittered),
    ):
        dataset = td.InMemoryDataset(**fields, kinds=kinds)
        assert train(td.DataLoader(dataset, 4, device="cuda", prefetch_factor=prefetch, transform=transform)) == 3


def test_a_batch_on_a_gpu_is_shown():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    td.show(next(iter(td.DataLoader(SCENES, 4, device="cuda", transform=MOVES["one size"], output="dict"))))


# Devices


def in_a_new_thread(run) -> None:
    """Run a function where no GPU was made current yet; its error rises here."""
    errors = []

    def body() -> None:
        try:
            run()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join(120)
    if errors:
        raise errors[0]


@pytest.mark.parametrize(
    "engine, prefetch, chosen",
    [
        *((*execution, "LOCAL_RANK") for execution in EXECUTIONS),
        *((*execution, chosen) for execution in (EXECUTIONS[0], EXECUTIONS[3]) for chosen in ("set_device", "device=")),
    ],
)
def test_only_this_ranks_gpu_is_touched(make, monkeypatch, engine, prefetch, chosen):
    """A CUDA context costs half a gigabyte on the card of rank 0, for each rank that makes one there."""
    if chosen == "LOCAL_RANK":
        monkeypatch.setenv("LOCAL_RANK", "1")

    def run():
        with watched(1) as machine:
            if chosen == "set_device":
                torch.cuda.set_device(1)
            device = GPU_1 if chosen == "device=" else "cuda"
            for transform in (CROP, None):
                loader = make(device=device, engine=engine, prefetch_factor=prefetch, rank=0, world_size=1,
                              transform=transform)  # fmt: skip
                assert loader.device == GPU_1 and train(loader) == 3
        assert not machine.hazards, machine.hazards

    in_a_new_thread(run)


@pytest.mark.parametrize("engine, prefetch", EXECUTIONS)
def test_a_loader_on_the_cpu_touches_no_gpu(make, engine, prefetch):
    def run():
        with watched() as machine:
            for transform in (CROP, T.RandomResizedCrop(16), rotate, None):
                chosen = "auto" if transform is rotate and engine == "pipeline" else engine
                for images, *_ in make(device="cpu", engine=chosen, prefetch_factor=prefetch, transform=transform):
                    assert (images[0] if isinstance(images, td.Padded) else images).device.type == "cpu"
        assert not machine.hazards, machine.hazards
        assert not machine.counts, machine.counts

    in_a_new_thread(run)


def test_streams_are_leased_from_many_threads_at_once():
    from torchdali import _dali

    class Owner:
        pass

    device, failed = torch.device("cuda", 0), []

    def lease():
        try:
            for _ in range(300):
                owners = [Owner(), Owner()]
                streams = [_dali.lease_stream(owner, device) for owner in owners]
                assert streams[0] != streams[1]
                del owners
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=lease) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed
