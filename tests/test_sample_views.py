"""`T.Views`: several views of one decode, each with draws of its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import torchdali as td
from tests.test_typed import ENGINES, Objects
from torchdali import _dali
from torchdali import transforms as T
from torchdali.testing import assert_resumes_exactly, assert_same_stream, make_image_folder

SCALE = T.Normalize((0.5,) * 3, (0.2,) * 3)
GLOBAL = [T.RandomResizedCrop(32, scale=(0.4, 1)), T.RandomHorizontalFlip(), T.ColorJitter(0.4, 0.4), SCALE]
LOCAL = [T.RandomResizedCrop(16, scale=(0.05, 0.4)), T.RandomHorizontalFlip(), SCALE]
DINO = T.Views([GLOBAL] * 2 + [LOCAL] * 6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_image_folder(tmp_path_factory.mktemp("views"))


def make(folder: Any, transform: Any, **options: Any) -> td.DataLoader:
    return td.DataLoader(
        td.ImageFolder(folder),
        **{"batch_size": 6, "shuffle": True, "seed": 5, "transform": transform, "drop_last": True, **options},
    )


def test_simclr_moco_and_dino(folder):
    (one, two), labels = next(iter(make(folder, T.Views([GLOBAL, GLOBAL]))))
    assert one.shape == two.shape == (6, 3, 32, 32) and labels.shape == (6,) and not torch.equal(one, two)
    batch = next(iter(make(folder, T.Views({"q": GLOBAL, "k": GLOBAL}), output="dict")))
    assert set(batch) == {"image", "label"} and set(batch["image"]) == {"q", "k"}
    views, _ = next(iter(make(folder, DINO)))
    assert [view.shape[-1] for view in views] == [32] * 2 + [16] * 6
    # A view draws by its place: the first two of eight are SimCLR's two.
    assert torch.equal(views[0], one) and torch.equal(views[1], two)


def test_eight_views_are_one_decode(folder, monkeypatch):
    """One call of the decoder for a batch, on a window that all views lie in."""
    calls = []
    ops = _dali.DynamicOps("cpu").decoders
    for name in ("image", "image_slice"):
        whole = getattr(ops, name)

        def counted(*args: Any, name: str = name, whole: Any = whole, **kwargs: Any) -> Any:
            calls.append(name)
            return whole(*args, **kwargs)

        monkeypatch.setattr(ops, name, counted)
    loader = make(folder, DINO, engine="debug")
    next(iter(loader))
    assert calls == ["image_slice"]


def test_a_view_is_what_its_steps_make_alone(folder):
    """Steps before the views are shared, and drawn once."""
    crop = T.RandomCrop(24, pad_if_needed=True)
    views, _ = next(iter(make(folder, T.Compose([crop, T.Views([[], [T.Resize((8, 8))]])]))))
    alone, _ = next(iter(make(folder, crop)))
    small, _ = next(iter(make(folder, T.Compose([crop, T.Resize((8, 8))]))))
    assert torch.equal(views[0], alone) and torch.equal(views[1], small)


def halved(sample: Any, rand: Any) -> Any:
    import nvidia.dali.experimental.dynamic as ndd

    return {**sample, "image": ndd.cast(sample["image"] * 0.5, dtype=ndd.uint8)}


@T.traceable
def shifted(sample: Any, rand: Any, ops: Any) -> Any:
    return {**sample, "image": ops.cast(sample["image"] * rand.uniform(0.2, 0.8), dtype=ops.as_dtype(torch.uint8))}


TRANSFORMS = {
    "dino": DINO,
    "shared": T.Compose([T.RandomCrop(40, pad_if_needed=True), T.ColorJitter(0.2), T.Views([GLOBAL, LOCAL])]),
    "function_before": T.Compose([T.Decode(), halved, T.Views([GLOBAL, LOCAL])]),
    "function_inside": T.Views({"a": [T.RandomHorizontalFlip(), halved, T.RandomResizedCrop(16)], "b": GLOBAL}),
    "traced_inside": T.Views([[T.RandomResizedCrop(24), shifted], GLOBAL]),
    "ragged": T.Views([[T.RandomHorizontalFlip()], [T.Resize(20), shifted]]),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_views_are_one_stream(folder, name):
    transform = TRANSFORMS[name]
    engines = ENGINES if "function_" not in name else ("eager", "debug")
    assert_same_stream(*[lambda engine=engine: make(folder, transform, engine=engine) for engine in engines])
    assert_same_stream(
        lambda: make(folder, transform, batch_size=6),
        lambda: [make(folder, transform, batch_size=3, rank=rank, world_size=2) for rank in range(2)],
    )
    assert_resumes_exactly(lambda: make(folder, transform))


def test_objects_have_views_too():
    chain = [T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.SanitizeBoundingBoxes()]
    transform = T.Views([chain, chain])

    def loader(**options: Any) -> td.DataLoader:
        return td.DataLoader(Objects(), batch_size=4, shuffle=True, seed=3, transform=transform, **options)

    images, target = next(iter(loader()))
    assert len(images) == 2 and isinstance(target["image_id"], torch.Tensor)
    assert all(len(target[name]) == 2 for name in ("boxes", "labels", "masks"))
    first, alone = target["boxes"][0], next(iter(td.DataLoader(
        Objects(), batch_size=4, shuffle=True, seed=3, transform=T.Views([chain])
    )))[1]["boxes"][0]  # fmt: skip
    assert torch.equal(first.data, alone.data)
    assert_same_stream(*[lambda engine=engine: loader(engine=engine) for engine in ENGINES])


def test_wrong_views(folder):
    with pytest.raises(ValueError, match=r"Views must be the last transform, and Resize\(.*write it inside each view"):
        make(folder, T.Compose([DINO, T.Resize(8)]))
    with pytest.raises(ValueError, match="a view can't hold Views"):
        T.Views([DINO])
    with pytest.raises(ValueError, match="Views needs at least one view"):
        T.Views([])
    with pytest.raises(TypeError, match="Views takes a list or a dict of transforms, got RandomHorizontalFlip"):
        T.Views(T.RandomHorizontalFlip())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="the names of views must be strings, got 1"):
        T.Views({1: GLOBAL})  # type: ignore[dict-item]
