"""timm's transforms: `from_torchvision` takes them; equal given the same draws, and draws of the same distribution."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import sys
import types
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats
from torchvision.transforms import transforms as v1
from torchvision.transforms import v2

import torchdali as td
from torchdali import transforms as T
from torchdali.interop import from_torchvision
from torchdali.rand import Rand
from torchdali.transforms import presets
from torchdali.transforms.steps import part_of
from torchdali.transforms.timm_operations import LEVELS, Levels, families, strengths_of
from torchdali.transforms.timm_policies import RAND_SETS, TIMM_POLICIES

from .test_parity import PHOTOS, assert_same_distribution

pytestmark = pytest.mark.slow

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIZES = np.array([[30, 40], [40, 30], [32, 32]])


@pytest.fixture(scope="module")
def timm():
    """timm's own modules of transforms, without its models, whose import takes seconds."""
    spec = importlib.util.find_spec("timm")
    assert spec is not None, "timm is a dev dependency: pip install -e '.[dev]'"
    before = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "timm"}
    for name in before:
        del sys.modules[name]
    for name in ("timm", "timm.data"):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [path + name.removeprefix("timm").replace(".", "/")
                                      for path in spec.submodule_search_locations]  # fmt: skip
    names = ("auto_augment", "transforms", "transforms_factory", "random_erasing")
    yield types.SimpleNamespace(**{name: importlib.import_module(f"timm.data.{name}") for name in names})
    for name in [name for name in sys.modules if name.split(".")[0] == "timm"]:
        del sys.modules[name]
    sys.modules.update(before)


@pytest.fixture(scope="module")
def pictures() -> list[Image.Image]:
    found = []
    for path in PHOTOS[:4]:
        with Image.open(path) as photo:
            found.append(photo.convert("RGB").resize((97, 80)))
    return [*found, found[0].convert("L")]


def tensor(picture: Image.Image) -> torch.Tensor:
    array = np.array(picture)
    return torch.from_numpy(array.reshape(*array.shape[:2], -1)).permute(2, 0, 1)


def rows(params: dict[str, Any]) -> list[dict[str, Any]]:
    lists = {key: np.asarray(values).tolist() for key, values in params.items()}
    return [{key: values[i] for key, values in lists.items()} for i in range(len(next(iter(lists.values()))))]


def drawn(transform: Any, n: int = 3000, size: tuple[int, int] = (100, 200), epoch: int = 0) -> dict[str, Any]:
    return transform.make_params(Rand(3, epoch, np.arange(n)), np.tile([size], (n, 1)))[0]


# Operations


@pytest.mark.parametrize("name", LEVELS)
def test_each_operation(timm, pictures, name, monkeypatch):
    """timm's own function of a picture, with its own level, beside ours with the same coins: bit for bit."""
    module = timm.auto_augment
    hparams = {"translate_pct": 0.45, "translate_const": 30, "img_mean": (9, 100, 200)}
    for level, sign, picture, mode in itertools.product((0.0, 3.0, 9.5), (1, -1), pictures, (2, 3, 0)):
        monkeypatch.setattr(module.random, "random", lambda sign=sign: 0.9 if sign < 0 else 0.1)
        monkeypatch.setattr(module.random, "uniform", lambda low, high: low + (high - low) * 0.3)
        given = {**hparams, "interpolation": mode, "img_mean": hparams["img_mean"] if picture.mode == "RGB" else 9}
        # Its translations move to the other side.
        turned = -sign if name.startswith("Translate") else sign
        at = Levels(*(np.array([[value]], float) for value in (level / 10, turned, 0.3)),
                    np.array([picture.size[::-1]]), 0.45, 30)  # fmt: skip
        operations, strength = strengths_of(np.array([[name]]), at)
        (family,) = [f for f in families("random", given["img_mean"]) if operations[0, 0] in f.names]
        own = rows(family.params(np.array([family.names.index(operations[0, 0])], np.int32), strength[0], at.sizes))[0]
        if "mode" in own:
            own["mode"] = {2: 0, 3: 1, 0: 2}[mode]
        if operations[0, 0] == "Posterize" and own["strength"] < 1:  # black; newer versions of Pillow refuse
            assert not family.transform_host(tensor(picture), **own).any()
            continue
        theirs = module.AugmentOp(name, 1.0, level, given)(picture)
        assert torch.equal(family.transform_host(tensor(picture), **own), tensor(theirs)), (level, sign, mode)


def test_the_lists_are_timms(timm):
    module = timm.auto_augment
    assert set(module.LEVEL_TO_ARG) == set(LEVELS)
    assert {*TIMM_POLICIES} == {"original", "originalr", "v0", "v0r", "3a"}
    for name, policy in TIMM_POLICIES.items():
        theirs = module.auto_augment_policy(name)
        assert [[(op.name, op.prob, op.magnitude) for op in row] for row in theirs] == [list(row) for row in policy]
    assert RAND_SETS["plain"] == tuple(module._RAND_TRANSFORMS)
    assert RAND_SETS["increasing"] == tuple(module._RAND_INCREASING_TRANSFORMS)
    assert RAND_SETS["3a"] == tuple(module._RAND_3A)
    assert RAND_SETS["3aw"] == module._RAND_WEIGHTED_3A and RAND_SETS["weights"] == module._RAND_WEIGHTED_0
    assert T.timm.AUG_MIX_NAMES == tuple(module._AUGMIX_TRANSFORMS)


# The notation, as timm reads it

RAND = (
    *("rand", "rand-m9-mstd0.5-inc1", "rand-m7-n3-p0.7", "rand-m9-mstd101", "rand-m15-mmax20-mstd1-inc1"),
    *("rand-m9-tweights", "rand-m6-n1-inc1-t3a", "rand-m9-n2-p1-t3aw"),
)
AUTO = ("original", "originalr-mstd0.5", "v0", "v0r-mstd0.5", "3a")
MIX = ("augmix", "augmix-m5-w4-d2", "augmix-m9-mstd0.5-a0.5", "augmix-m5-b1")
HPARAMS = ({}, {"img_mean": (124, 116, 104), "translate_const": 100, "interpolation": 3})


@pytest.mark.parametrize("hparams", HPARAMS, ids=["none", "some"])
@pytest.mark.parametrize("text", [*RAND, *AUTO, *MIX])
def test_the_notation_and_the_object_are_the_same(timm, text, hparams):
    kind = "rand_augment" if text in RAND else "auto_augment" if text in AUTO else "augment_and_mix"
    theirs = getattr(timm.auto_augment, f"{kind}_transform")(text, dict(hparams))
    ours = getattr(T, f"{kind}_transform")(text, dict(hparams))
    (made,) = from_torchvision(v1.Compose([theirs])).transforms
    given = dict(vars(made)), dict(vars(ours))
    if text.startswith("rand") and given[0]["transforms"] in ("3a", "3aw", "weights"):
        for one in given:
            one.pop("increasing")  # without a meaning there
    assert given[0] == given[1]
    assert type(made) is type(ours)


def through(pictures, transform, n):
    """Mean values of many samples' pictures, by ours."""
    params = drawn(transform, n, (80, 97))
    return [transform.transform_host(tensor(pictures[0]), **own) for own in rows(params)]


@pytest.mark.parametrize(
    "text", ["rand-m7-mstd0.5-inc1", "rand-m9-n3-tweights", "rand-m8-t3a", "original", "3a", MIX[1]]
)
def test_what_comes_out_has_timms_distribution(timm, pictures, text):
    """Means and edges of pictures, of 400 samples each."""
    kind = "rand_augment" if "rand" in text else "augment_and_mix" if "mix" in text else "auto_augment"
    theirs_ = getattr(timm.auto_augment, f"{kind}_transform")(text, {"img_mean": (124, 116, 104)})
    ours = from_torchvision(theirs_).transforms[0]
    with torch.random.fork_rng(devices=[]):
        timm.auto_augment.random.seed(5)
        np.random.seed(5)
        theirs = [tensor(theirs_(pictures[0])) for _ in range(400)]
    mine = through(pictures, ours, 400)
    for read in (lambda image: float(image.float().mean()), lambda image: int(image[0, 0, 0]),
                 lambda image: int(image[2, -1, 40]), lambda image: float(image[0].float().std())):  # fmt: skip
        assert stats.ks_2samp([read(image) for image in mine], [read(image) for image in theirs]).pvalue > 1e-4


def test_weights_draw_no_operation_twice(timm):
    """How often each operation is drawn, and in which place, as numpy's choice without replacement."""
    transform = T.rand_augment_transform("rand-m9-n2-p1-tweights")
    params = drawn(transform, 4000)
    branches = transform.families()
    names = [
        [
            branches[int(params[f"{turn}"][i]) - 1].names[
                int(part_of(params, f"{turn}/{int(params[f'{turn}'][i]) - 1}/")["operation"][i])
            ]
            for turn in range(2)
        ]
        for i in range(4000)
    ]
    assert all(one != other for one, other in names)
    weights = RAND_SETS["weights"]
    p = np.array(list(weights.values())) / sum(weights.values())
    generator = np.random.default_rng(0)
    picked = [generator.choice(list(weights), 2, replace=False, p=p) for _ in range(4000)]
    found = [[LEVELS[name][0] for name in row] for row in picked]
    for turn in range(2):
        options = sorted({row[turn] for row in found} | {row[turn] for row in names})
        counts = [[sum(row[turn] == name for row in some) for name in options] for some in (names, found)]
        common = np.sum(counts, axis=0) >= 20
        assert stats.chi2_contingency(np.array(counts)[:, common]).pvalue > 1e-5


@pytest.mark.parametrize("blended", [False, True])
def test_aug_mix_given_its_draws(timm, pictures, blended, monkeypatch):
    """timm's own mixing of operations that are all Invert and AutoContrast."""
    transform = T.TimmAugMix(transforms=["Invert", "AutoContrast"], blended=blended)
    module = timm.auto_augment
    for i, own in enumerate(rows(drawn(transform, 6, (80, 97)))):
        chains = []
        for chain in range(3):
            turns = (int(own[f"{turn}"]) for turn in range(3 * chain, 3 * chain + 3))
            chains.append([transform.branches[k - 1] for k in turns if k])
        operations = [[module.AugmentOp(type(b).__name__.removeprefix("Pillow").replace("Bits", "Invert"), 1.0, 3, {})
                       for b in chain] for chain in chains]  # fmt: skip
        theirs = module.AugMixAugment([None], width=3, depth=-1, blended=blended)
        weights = np.array([own[f"weight{k}"] for k in range(3)], np.float32)
        queue = iter(operations)
        numpy = types.SimpleNamespace(**{name: getattr(np, name) for name in ("float32", "zeros_like", "asarray",
                                                                              "clip", "uint8", "array")})  # fmt: skip
        numpy.random = types.SimpleNamespace(
            dirichlet=lambda _, weights=weights: weights,
            beta=lambda *_, own=own: own["mixed"],
            randint=lambda *_: 3,
            choice=lambda *_, queue=queue, **__: next(queue),
        )
        monkeypatch.setattr(module, "np", numpy)
        if blended:  # ours are blends one after the other already
            monkeypatch.setattr(theirs, "_calc_blended_weights", lambda weights, _: weights)
        expected = tensor(theirs(pictures[i % 4]))
        assert torch.equal(transform.transform_host(tensor(pictures[i % 4]), **own), expected)


def test_the_weights_of_blends(timm):
    weights, part = np.array([[0.2, 0.5, 0.3]], np.float32), 0.7
    expected = timm.auto_augment.AugMixAugment([])._calc_blended_weights(weights[0], part)
    np.testing.assert_allclose(T.timm._one_by_one(weights * part)[0], expected, rtol=1e-6)


# Windows and sizes


@pytest.mark.parametrize("shape", [(40, 60), (20, 60), (25, 26), (33, 34)])
def test_crops_and_pads(timm, shape):
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8))
    sizes = np.array([shape])

    def made(transform):
        params = transform.make_params(Rand(0, 0, np.arange(1)), sizes)[0]
        return transform.transform_host(tensor(picture), **rows(params)[0]), params

    for size, fill, mode in (((32, 33), 0, "constant"), ((32, 33), (9, 8, 7), "constant"), ((30, 50), 0, "reflect")):
        theirs = timm.transforms.CenterCropOrPad(size, fill, mode)
        (ours,) = from_torchvision(v1.Compose([theirs])).transforms
        assert torch.equal(made(ours)[0], tensor(theirs(picture)))
        theirs = timm.transforms.RandomCropOrPad(size, fill, mode)
        (ours,) = from_torchvision(v1.Compose([theirs])).transforms
        image, params = made(ours)
        top, left = params["start"][0].tolist()
        expected = timm.transforms.crop_or_pad(picture, top, left, *size, fill=fill, padding_mode=mode)
        assert torch.equal(image, tensor(expected))
    (ours,) = from_torchvision(v1.Compose([timm.transforms.TrimBorder(5)])).transforms
    assert torch.equal(made(ours)[0], tensor(timm.transforms.TrimBorder(5)(picture)))
    with pytest.raises(ValueError, match=r"TrimBorder\(10\) leaves nothing of an image of \(20, 60\)"):
        T.TrimBorder(10).make_params(Rand(0, 0, np.arange(1)), np.array([[20, 60]]))


def test_places_and_sizes_have_timms_distribution(timm):
    picture = Image.new("RGB", (60, 30))
    n = 2000
    sizes = np.tile([[30, 60]], (n, 1))
    crop = timm.transforms.RandomCropOrPad((40, 40))
    (ours,) = from_torchvision(v1.Compose([crop])).transforms
    timm.transforms.random.seed(1)
    theirs = np.array([crop.get_params(picture, crop.size) for _ in range(n)])
    start = ours.make_params(Rand(0, 0, np.arange(n)), sizes)[0]["start"]
    for axis in range(2):
        assert_same_distribution(start[:, axis], theirs[:, axis])
    for arguments in (
        {"size": (24, 24), "random_scale_prob": 0.5, "random_scale_area": True, "random_aspect_prob": 0.5},
        {"size": (24, 30), "longest": 0.3, "random_scale_prob": 1.0, "random_scale_range": (0.5, 2.0)},
        {"size": 20, "random_aspect_prob": 0.9, "random_aspect_range": (0.5, 1.5), "longest": 1.0},
    ):
        resize = timm.transforms.ResizeKeepRatio(**arguments)
        (ours,) = from_torchvision(v1.Compose([resize])).transforms
        told = [value for name, value in vars(resize).items() if name not in ("interpolation", "size")]
        theirs = np.array([resize.get_params(picture, resize.size, *told) for _ in range(n)])
        found = ours.make_params(Rand(0, 0, np.arange(n)), sizes)[1]
        for axis in range(2):
            assert_same_distribution(found[:, axis], theirs[:, axis])
    for size in SIZES:
        for longest in (0.0, 1.0, 0.4):
            resize = timm.transforms.ResizeKeepRatio((17, 23), longest)
            (ours,) = from_torchvision(v1.Compose([resize])).transforms
            assert not ours.varies_size
            expected = resize(Image.new("RGB", (int(size[1]), int(size[0])))).size[::-1]
            assert tuple(ours.make_params(Rand(0, 0, np.arange(1)), size[None])[1][0]) == expected


# Erasing


@pytest.mark.parametrize("mode", ["const", "rand", "pixel"])
def test_erasing(timm, mode):
    theirs = timm.random_erasing.RandomErasing(0.8, 0.05, 0.4, mode=mode, min_count=2, max_count=3, device="cpu")
    (_, ours) = from_torchvision(v1.Compose([v1.ToTensor(), theirs])).transforms
    assert isinstance(ours, T.TimmRandomErasing)
    n = 600
    image = torch.full((3, 30, 40), 7.0)
    params = drawn(ours, n, (30, 40))
    mine = [ours.transform_host(image, **own) for own in rows(params)]
    timm.random_erasing.random.seed(2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        others = [theirs(image.clone()) for _ in range(n)]
    for read in (lambda x: float((x != 7).float().mean()), lambda x: float(x[0, 10, 10]), lambda x: float(x[2].std())):
        assert stats.ks_2samp([read(x) for x in mine], [read(x) for x in others]).pvalue > 1e-4
    batch = ours.transform_batch(image.expand(n, -1, -1, -1), params)  # as on a GPU
    for one, other in zip(batch, mine, strict=True):
        assert torch.equal(one != 7, other != 7)
        assert mode == "pixel" or torch.equal(one, other)
    if mode == "rand":
        inside = [x[:, x[0] != 7].unique(dim=1).shape[1] for x in mine]
        assert max(inside) == 3


def test_erasing_in_dali():
    images = np.random.default_rng(0).integers(0, 256, (6, 30, 40, 3), dtype=np.uint8)

    @T.traceable
    def through(sample, rand, ops):
        return dict(sample)

    for mode in ("const", "rand"):
        steps = [T.Normalize(MEAN, STD), T.TimmRandomErasing(0.9, 0.1, 0.5, mode=mode, max_count=3)]
        found = []
        for last, engine in (([], "eager"), ([through], "eager"), ([through], "pipeline")):
            loader = td.DataLoader(
                td.InMemoryDataset(image=images), 6, transform=T.Compose([*steps, *last]), device="cpu", engine=engine
            )
            found.append(next(iter(loader))[0].clone())
        torch.testing.assert_close(found[1], found[0], rtol=0, atol=1e-5)
        assert torch.equal(found[1], found[2])


# All of create_transform

TRAINING = {
    "train_crop_mode": [None, "rkrc", "rkrr"],
    "interpolation": ["bilinear", "bicubic", "random", "nearest"],
    "vflip": [0.0, 0.2],
    "auto_augment": [None, "rand-m9-mstd0.5-inc1", "original-mstd0.5", "v0r", "augmix-m5-w4-d2", "3a", "rand-m9-t3aw"],
    "color_jitter": [None, 0.4, (0.1, 0.2, 0.3, 0.1)],
    "color_jitter_prob": [None, 0.3],
    "grayscale_prob": [0.0, 0.2],
    "gaussian_blur_prob": [0.0, 0.5],
    "re_prob": [0.0, 0.3],
    "re_mode": ["const", "rand", "pixel"],
    "re_count": [1, 3],
    "re_num_splits": [0, 2],
    "use_prefetcher": [False, True],
    "normalize": [True, False],
    "scale": [None, (0.5, 1.0)],
    "mean": [MEAN, (0.5, 0.5, 0.5)],
}
EVALUATION = {
    "crop_mode": [None, "squash", "border"],
    "input_size": [24, (3, 24, 24), (24, 30)],
    "crop_pct": [None, 1.0, 0.9],
    "crop_border_pixels": [None, 4],
    "interpolation": ["bilinear", "bicubic", "nearest"],
    "use_prefetcher": [False, True],
    "normalize": [True, False],
}


def combinations(options: dict[str, list[Any]], n: int, seed: int) -> list[dict[str, Any]]:
    """Each value of each option, and random combinations."""
    generator = np.random.default_rng(seed)
    pick = lambda values: values[int(generator.integers(len(values)))]  # noqa: E731
    single = [{name: value} for name, values in options.items() for value in values]
    return [*single, *({name: pick(values) for name, values in options.items()} for _ in range(n))]


def samples(arrays, transform):
    loader = td.DataLoader(td.InMemoryDataset(image=arrays), len(arrays), transform=transform, device="cpu", seed=1)
    (images,) = next(iter(loader))
    return images


def test_every_training_transform(timm, pictures):
    """It is translated, and runs: images of timm's dtype and shape, whose values lie where timm's do."""
    create = timm.transforms_factory.create_transform
    arrays = np.stack([np.array(picture) for picture in pictures[:4]])
    for k, given in enumerate(combinations(TRAINING, 40, 1)):
        theirs = create(24, is_training=True, **given)
        ours = from_torchvision(theirs)
        expected = theirs(pictures[0])
        if k % 3:
            continue
        images = samples(arrays, ours)
        assert (images.shape, images.dtype) == ((4, *expected.shape), expected.dtype), given


def test_every_evaluation_transform(timm, pictures):
    """Equal to timm's but for Pillow's resizing, by two levels."""
    create = timm.transforms_factory.create_transform
    arrays = np.stack([np.array(picture) for picture in pictures[:4]])
    for given in combinations(EVALUATION, 40, 2):
        theirs = create(**{"input_size": 24, **given})
        images = samples(arrays, from_torchvision(theirs))
        for image, picture in zip(images, pictures, strict=False):
            expected = theirs(picture)
            assert (image.shape, image.dtype) == (expected.shape, expected.dtype), given
            gap = (image.float() - expected.float()).abs()
            if given.get("interpolation") == "nearest":  # which takes another neighbour here and there
                assert float((gap > 1e-5).float().mean()) < 0.25, given
            else:
                unit = 1 if expected.dtype == torch.uint8 else 255 * min(STD)
                assert float(gap.mean()) * unit < 0.5, given
    assert from_torchvision(create(24, is_training=True, no_aug=True)).transforms[:2] == [
        T.Resize(24), T.CenterCrop((24, 24)),
    ]  # fmt: skip


def test_what_is_refused_says_what_to_write(timm):
    create = timm.transforms_factory.create_transform
    for given in ({"patchify": True}, {"naflex": True}, {"naflex": True, "is_training": True}):
        with pytest.raises(
            ValueError, match=r"cannot translate a part of Compose:[\s\S]*leave naflex and patchify out"
        ):
            from_torchvision(create(24, **given))
    for mode in ("lanczos", "box", "hamming"):
        with pytest.raises(ValueError, match="interpolation must be one of bilinear, bicubic, nearest"):
            from_torchvision(create(24, interpolation=mode))
    with pytest.raises(ValueError, match=r"write RandomCropOrPad\(size\), which also cuts larger images"):
        from_torchvision(v1.Compose([timm.transforms.RandomPad((8, 8))]))


def test_separate_parts(timm, pictures):
    """timm's AugMixDataset: clean, and augmented views of one picture; the message's own words."""
    parts = timm.transforms_factory.create_transform(
        24, is_training=True, separate=True, auto_augment="rand-m9-inc1", re_prob=0.2
    )
    with pytest.raises(
        TypeError, match=r"a tuple of 3 transforms.*T\.Views\(\[last, T\.Compose\(\[second, last\]\)\]\)"
    ):
        from_torchvision(parts)
    first, second, last = map(from_torchvision, parts)
    arrays = np.stack([np.array(picture) for picture in pictures[:4]])
    views = samples(arrays, T.Compose([first, T.Views([last, T.Compose([second, last])])]))
    assert len(views) == 2 and all(view.shape == (4, 3, 24, 24) for view in views)


def test_other_forms_of_pictures(timm):
    whole = v1.Compose([timm.transforms.ToTensor(torch.float32)])
    assert from_torchvision(whole).transforms == [T.ToDtype(torch.float32)]
    assert from_torchvision(v1.Compose([timm.transforms.ToNumpy()])).transforms == []
    assert from_torchvision(v1.Compose([timm.transforms.MaybePILToTensor()])).transforms == []
    with pytest.raises(ValueError, match="timm's ToTensor refuses a tensor"):
        from_torchvision(v1.Compose([v2.PILToTensor(), timm.transforms.ToTensor()]))


def test_the_preset_is_the_translation(timm, pictures):
    """`presets.timm_train` and `timm_eval` take create_transform's words, and give what its translation is."""
    create = timm.transforms_factory.create_transform
    arrays = np.stack([np.array(picture) for picture in pictures[:2]])
    chosen = [given for given in combinations(TRAINING, 0, 3) if not {"use_prefetcher", "normalize"} & set(given)]
    for given in [*chosen, *combinations({k: v for k, v in TRAINING.items() if k not in (
        "use_prefetcher", "normalize", "re_num_splits")}, 30, 4)]:  # fmt: skip
        given = {name: value for name, value in given.items() if name != "re_num_splits"}
        ours = presets.timm_train(24, **{"interpolation": "bilinear", **given})
        assert_same_images(arrays, ours, from_torchvision(create(24, is_training=True, **given)).transforms)
    for given in combinations({k: EVALUATION[k] for k in ("crop_mode", "crop_pct", "crop_border_pixels",
                                                          "interpolation", "input_size")}, 20, 5):  # fmt: skip
        size = given.pop("input_size", 24)
        if isinstance(size, tuple) and len(size) == 3:
            size = size[1:]
        ours = presets.timm_eval(size, **{"interpolation": "bilinear", **given})
        assert_same_images(arrays, ours, from_torchvision(create(size, **given)).transforms)


def assert_same_images(arrays: Any, ours: list[Any], theirs: list[Any]) -> None:
    assert [type(step) for step in ours] == [type(step) for step in theirs]
    one, other = samples(arrays, T.Compose(ours)), samples(arrays, T.Compose(theirs))
    torch.testing.assert_close(one, other, rtol=0, atol=1e-5)
