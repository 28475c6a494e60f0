"""AutoAugment and its kin, and transforms of transforms: torchvision's pixels, and draws of the right distribution."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats
from torchvision.transforms import AutoAugmentPolicy, InterpolationMode, v2

import torchdali as td
from torchdali import transforms as T
from torchdali.rand import Key, Rand
from torchdali.testing import assert_same_stream
from torchdali.transforms.policies import POLICIES
from torchdali.transforms.steps import part_of

PHOTOS = sorted((Path(__file__).parent / "data" / "photos").glob("*.jpg"))
SIZES = np.array([[40, 64], [37, 21], [90, 331], [3, 3], [64, 40]])


@pytest.fixture(autouse=True)
def one_thread():
    """Small images: threads of torch's own only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def photos():
    """Small photographs, a grey one, and one of few pixels: [C, H, W], channels last in memory."""
    images = []
    for k, path in enumerate(PHOTOS):
        with Image.open(path) as image:
            small = np.array(image.convert("RGB").resize((40 + 7 * k, 60 - 7 * k)))
        images.append(torch.from_numpy(small).permute(2, 0, 1))
    grey = images[0][:1].permute(1, 2, 0).contiguous().permute(2, 0, 1)
    return [*images, grey, images[1][:, :2, :5], images[1][:, :1, :1]]


def rows(params):
    """The params of each sample, as plain numbers and lists."""
    lists = {key: values.tolist() for key, values in params.items()}
    return [{key: values[i] for key, values in lists.items()} for i in range(len(next(iter(lists.values()))))]


def operations(transform, params):
    """The names and strengths that a sample's params stand for."""
    for turn in range(transform.rounds):
        if k := params[f"{turn}"]:
            own = part_of(params, f"{turn}/{k - 1}/")
            yield transform.branches[k - 1].names[own["operation"]], own["strength"]
        else:
            yield "Identity", 0.0


def theirs(image, operation, interpolation, fill):
    """One operation by torchvision's own code."""
    tv = v2.RandAugment(fill=fill)
    return tv._apply_image_or_video_transform(image, *operation, InterpolationMode(interpolation), tv._fill)


FAMILY = [
    T.RandAugment(3),
    T.RandAugment(2, 25, interpolation="bilinear"),
    T.RandAugment(2, 17, fill=[9.0, 100.0, 200.0]),
    T.TrivialAugmentWide(),
    T.TrivialAugmentWide(fill=77, interpolation="bilinear"),
    *(T.AutoAugment(policy) for policy in POLICIES),
]


@pytest.mark.parametrize("transform", FAMILY, ids=repr)
def test_pixels_are_torchvisions(photos, transform):
    """Bit for bit, each operation by torchvision's own code."""
    seen = Counter()
    for image in photos:
        if len(image) == 1 and isinstance(transform.fill, list):
            continue
        sizes = np.tile([image.shape[1:]], (8, 1))
        params, after = transform.make_params(Rand(len(image.ravel()), 0, np.arange(8)), sizes)
        assert np.array_equal(after, sizes)
        for own in rows(params):
            before, expected = image.clone(), image
            for operation in operations(transform, own):
                seen[operation[0]] += 1
                expected = theirs(expected, operation, transform.interpolation, transform.fill)
            assert torch.equal(transform.transform_host(image, **own), expected)
            assert torch.equal(image, before)
    assert len(seen) >= 8


@pytest.mark.parametrize("transform", [T.AugMix(), T.AugMix(10, 2, 2, 0.3, False, "nearest", 50)], ids=repr)
def test_aug_mix_is_torchvisions(photos, transform, monkeypatch):
    """torchvision's own forward, which is told what it draws."""
    width, depth = transform.mixture_width, transform._depth
    tv = v2.AugMix(*(getattr(transform, name) for name in transform.__dataclass_fields__))
    for image in photos[:3]:
        params, _ = transform.make_params(Rand(5, 0, np.arange(6)), np.tile([image.shape[1:]], (6, 1)))
        for own in rows(params):
            chosen = list(operations(transform, own))
            chains = [chosen[i * depth : (i + 1) * depth] for i in range(width)]
            chains = [[one for one in chain if one[0] != "Identity"] for chain in chains]
            queue = iter([one for chain in chains for one in chain])
            depths = iter([torch.tensor([len(chain)]) for chain in chains])
            weights = torch.tensor([[own[f"weight{i}"] for i in range(width)]])
            draws = iter([torch.tensor([[own["own"], 1.0]]), weights])  # the second is multiplied by 1
            monkeypatch.setattr(tv, "_sample_dirichlet", lambda _, draws=draws: next(draws))

            def apply(image, name, strength, interpolation, fill, queue=queue):
                return v2.RandAugment._apply_image_or_video_transform(tv, image, *next(queue), interpolation, fill)

            monkeypatch.setattr(tv, "_apply_image_or_video_transform", apply)
            with monkeypatch.context() as patch:

                def randint(*arguments, of=depths, whole=torch.randint, **options):
                    return next(of) if "low" in options else whole(*arguments, **options)

                patch.setattr(torch, "randint", randint)
                expected = tv(image)
            assert torch.equal(transform.transform_host(image, **own), expected)
            assert next(queue, None) is None


def test_policies_are_torchvisions():
    for name, policy in POLICIES.items():
        for row, expected in zip(policy, v2.AutoAugment(AutoAugmentPolicy(name))._policies, strict=True):
            assert [tuple(rule) for rule in row] == [(op, p, level or 0) for op, p, level in expected]
    assert T.AutoAugment(AutoAugmentPolicy.SVHN)._policy == "svhn"


@pytest.mark.parametrize(
    ("transform", "tv"),
    [
        (T.RandAugment(1, 12, 20), v2.RandAugment(1, 12, 20)),
        (T.TrivialAugmentWide(9), v2.TrivialAugmentWide(9)),
        (T.AugMix(4, 1, 1), v2.AugMix(4, 1, 1)),
        (T.AugMix(4, 1, 1, all_ops=False), v2.AugMix(4, 1, 1, all_ops=False)),
    ],
    ids=repr,
)
def test_strengths_are_torchvisions(transform, tv):
    """Every operation comes with each strength of torchvision's space for the image's size, and with no other."""
    for height, width in ((40, 331), (97, 64)):
        params, _ = transform.make_params(Rand(1, 2, np.arange(4000)), np.tile([[height, width]], (4000, 1)))
        found = {}
        for own in rows(params):
            ((name, strength),) = operations(transform, own)
            found.setdefault(name, set()).add(strength)
        whole = tv._AUGMENTATION_SPACE if getattr(tv, "all_ops", True) else tv._PARTIAL_AUGMENTATION_SPACE
        assert set(found) == set(whole)
        for name, (magnitudes, signed) in whole.items():
            bins = getattr(tv, "num_magnitude_bins", 10)
            values = magnitudes(bins, height, width)
            values = [0.0] if values is None else values.tolist()
            if len(values) > 1:
                values = [values[tv.magnitude]] if hasattr(tv, "magnitude") else values[: getattr(tv, "severity", None)]
            expected = {float(sign * value) for value in values for sign in ((1, -1) if signed else (1,))}
            assert found[name] == expected, name


def assert_frequencies(counts, expected):
    """By a chi-square test that fails once in a million times, if the numbers were not always the same."""
    counts, expected = np.asarray(counts, float), np.asarray(expected, float)
    assert stats.chisquare(counts, expected / expected.sum() * counts.sum()).pvalue > 1e-6


N = 6000


def drawn(transform, sizes=(64, 64), seed=0):
    return transform.make_params(Rand(seed, 0, np.arange(N)), np.tile([sizes], (N, 1)))[0]


def test_draws_have_torchvisions_distribution():
    # RandAugment: each operation in each round alike; rounds are independent; either sign.
    params = drawn(T.RandAugment(2))
    pairs = Counter(tuple(name for name, _ in operations(T.RandAugment(2), own)) for own in rows(params))
    assert_frequencies([pairs[a, b] for a in v2_names() for b in v2_names()], np.ones(14 * 14))
    signs = [np.sign(s) for own in rows(params) for name, s in operations(T.RandAugment(2), own) if name == "Rotate"]
    assert_frequencies([signs.count(-1), signs.count(1)], [1, 1])
    # TrivialAugmentWide: operation and strength are independent.
    wide = T.TrivialAugmentWide(5)
    table = Counter(
        one for own in rows(drawn(wide)) for one in operations(wide, own) if one[0] in ("Rotate", "Solarize")
    )
    rotate = [
        sum(n for (name, s), n in table.items() if name == "Rotate" and abs(s) == v) for v in np.linspace(0, 135, 5)
    ]
    assert_frequencies(rotate, np.ones(5))
    assert_frequencies([table["Solarize", v] for v in np.linspace(1, 0, 5)], np.ones(5))
    # AutoAugment: the rows alike, and each operation with its probability.
    auto = T.AutoAugment("cifar10")
    done = Counter(name for own in rows(drawn(auto)) for name, _ in operations(auto, own))
    wanted = Counter()
    for row in POLICIES["cifar10"]:
        for rule in row:
            wanted[rule.name] += rule.p
            wanted["Identity"] += 1 - rule.p
    assert_frequencies([done[name] for name in wanted], list(wanted.values()))
    # AugMix: 1 to 3 operations in a chain; the weights' means and their distribution.
    mix = T.AugMix(alpha=2.0)
    params = drawn(mix)
    depths = [sum(params[f"{turn}"] > 0) for turn in range(9)]
    for first in range(3):
        assert_frequencies(depths[3 * first + 1 : 3 * first + 3], [2, 1])
        assert depths[3 * first] == N
    assert stats.kstest(params["own"], stats.beta(2, 2).cdf).pvalue > 1e-6
    rest = params["weight1"] / np.maximum(1 - params["own"], 1e-30)
    assert stats.kstest(rest, stats.beta(2, 4).cdf).pvalue > 1e-6


def v2_names():
    return list(v2.RandAugment._AUGMENTATION_SPACE)


def test_draws_of_combinations():
    assert_frequencies(np.bincount(drawn(T.RandomApply([T.GaussianBlur(3)], 0.3))["0"]), [0.7, 0.3])
    choice = T.RandomChoice([T.GaussianBlur(3), T.RandomInvert(), T.Identity()], [1, 0, 3])
    counts = np.bincount(drawn(choice)["0"], minlength=4)
    assert counts[0] == counts[2] == 0
    assert_frequencies(counts[[1, 3]], [1, 3])
    order = drawn(T.RandomOrder([T.GaussianBlur(3), T.RandomInvert(), T.Identity()]))
    orders = Counter(zip(*(order[f"{turn}"].tolist() for turn in range(3)), strict=True))
    assert len(orders) == 6
    assert_frequencies(list(orders.values()), np.ones(6))
    # The coins of two, one inside the other and beside each other, are independent.
    inner = T.RandomApply([T.RandomApply([T.RandomInvert(0.5)], 0.5)], 0.5)
    params = drawn(inner)
    outer = params["0"] == 1
    middle = outer & (params["0/0/0:0"] == 1)
    on = middle & (params["0/0/0:0/0/0:on"] == 1)
    assert_frequencies([(~outer).sum(), (outer & ~middle).sum(), (middle & ~on).sum(), on.sum()], [4, 2, 1, 1])


def test_only_those_that_take_a_branch_draw_for_it():
    """A crop that fits nowhere is no error of the others, and sizes follow each sample."""
    sizes = np.array([[20, 20], [8, 8], [20, 30], [8, 9]] * 20)
    rand = Rand(3, 0, np.arange(80))
    choice = T.RandomChoice([T.RandomCrop(16), T.Resize(4)])
    with pytest.raises(ValueError, match="RandomCrop needs an image"):
        choice.make_params(rand, sizes)
    large = np.where(choice.choose(rand.take(np.arange(80)), None)[0] == 1, [[16, 17]], sizes)
    params, after = choice.make_params(Rand(3, 0, np.arange(80)), large)
    assert {tuple(size) for size in after[params["0"] == 1].tolist()} == {(16, 16)}
    assert set(after[params["0"] == 2].min(1).tolist()) == {4}


def test_inner_names_are_their_own():
    """A step inside another draws other numbers than one beside it, and the same wherever it stands among others."""
    rand = Rand(3, 0, np.arange(50))
    blur = T.GaussianBlur(3)
    alone = blur.make_params(rand.named(Key.STEP, "GaussianBlur"), None)[0]["sigma"]
    some = T.RandomApply([blur], 1.0).make_params(rand.named(Key.STEP, "RandomApply"), None)[0]["0/0/0:sigma"]
    more = T.RandomApply([T.RandomInvert(), blur], 1.0).make_params(rand.named(Key.STEP, "RandomApply"), None)[0]
    other = T.RandomApply([blur], 1.0).make_params(rand.named(Key.STEP, "RandomApply", 1), None)[0]["0/0/0:sigma"]
    assert np.array_equal(some, more["0/0/1:sigma"])
    assert len({tuple(values.tolist()) for values in (alone, some, other)}) == 3
    twice = T.RandomOrder([blur, T.GaussianBlur(3)]).make_params(rand, None)[0]
    sigma = np.stack([twice[f"{turn}/{k}/sigma"] for turn in range(2) for k in range(2)])
    assert len(np.unique(sigma)) >= 100


def test_a_sample_in_any_company():
    sizes = np.tile(SIZES, (8, 1))
    for transform in [*FAMILY, T.AugMix(), T.RandomApply([T.RandomErasing(), T.GaussianBlur(3)])]:
        everyone, _ = transform.make_params(Rand(1, 2, np.arange(40)), sizes)
        some, _ = transform.make_params(Rand(1, 2, np.array([7, 31])), sizes[[7, 31]])
        for one, other in zip([rows(everyone)[7], rows(everyone)[31]], rows(some), strict=True):
            image = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (30, 20, 3), dtype=np.uint8)).permute(
                2, 0, 1
            )
            assert torch.equal(transform.transform_host(image, **one), transform.transform_host(image, **other))


# timm's notation


def test_timms_notation():
    made = T.rand_augment_transform
    assert made("rand-m9-mstd0.5-inc1") == T.TimmRandAugment(9, magnitude_std=0.5, increasing=True)
    assert made("rand") == T.TimmRandAugment()
    assert made("rand-n3-p0.7-m7-mmax20-inc0") == T.TimmRandAugment(7, 3, 0.7, magnitude_max=20)
    assert made("rand-m9-mstd101").magnitude_std == float("inf")
    hparams = {"img_mean": (124, 116, 104), "translate_const": 100, "interpolation": "nearest", "magnitude_std": 1.0}
    expected = T.TimmRandAugment(
        9, magnitude_std=1.0, interpolation="nearest", fill=(124, 116, 104), translate_const=100
    )
    assert made("rand-m9", hparams) == expected
    for wrong, message in (
        ("augmix-m3", 'config_str must begin with "rand"'),
        ("rand-m9-w0", "'w0' of 'rand-m9-w0' is none of m9, n2"),
        ("rand-mm", "'mm' of 'rand-mm' is none of m9"),
        ("rand-p2", r"p must be in \[0, 1\], got 2.0"),
    ):
        with pytest.raises(ValueError, match=message):
            made(wrong)


def strengths_of(transform):
    params = drawn(transform, (100, 200))
    found = {}
    for own in rows(params):
        for name, strength in operations(transform, own):
            found.setdefault(name, []).append(strength)
    return {name: np.array(values) for name, values in found.items()}


def test_timms_strengths():
    """Those of timm's level functions, at strength 9 of 10."""
    found = strengths_of(T.rand_augment_transform("rand-m9-inc1"))
    assert_frequencies(
        [len(found[name]) for name in sorted(found)], [14 + 1 if name == "Identity" else 1 for name in sorted(found)]
    )
    exact = {
        "Rotate": 27, "ShearX": 0.27, "ShearY": 0.27, "TranslateX": 0.9 * 0.45 * 200, "TranslateY": 0.9 * 0.45 * 100,
        "Color": 0.81, "Contrast": 0.81, "Brightness": 0.81, "Sharpness": 0.81,
    }  # fmt: skip
    for name, value in exact.items():
        assert np.allclose(np.abs(found[name]), value) and {-1, 1} == set(np.sign(found[name])), name
    for name, value in {"Posterize": 1, "Solarize": (256 - 230 - 0.5) / 255, "SolarizeAdd": 99}.items():
        assert np.allclose(found[name], value), name
    plain = strengths_of(T.rand_augment_transform("rand-m5-p1"))
    assert "Identity" not in plain
    for name, value in {"Color": 0.0, "Posterize": 2, "Solarize": (128 - 0.5) / 255, "SolarizeAdd": 55}.items():
        assert np.allclose(plain[name], value), name
    spread = np.abs(strengths_of(T.rand_augment_transform("rand-m9-mstd2-p1"))["Rotate"]) / 30 * 10
    assert spread.max() == 10 and 0.2 < (spread == 10).mean() < 0.42
    assert 1.2 < spread[spread < 10].std() < 1.7  # of two thirds of a normal distribution
    even = np.abs(strengths_of(T.rand_augment_transform("rand-m8-mstd101-p1"))["Rotate"]) / 30 * 10
    assert stats.kstest(even, stats.uniform(0, 8).cdf).pvalue > 1e-6


# In DALI: equal in all engines, and near to torchvision


@T.traceable
def through(sample, rand, ops):
    return dict(sample)


def images_of(transform, arrays, **arguments):
    loader = td.DataLoader(
        td.InMemoryDataset(image=arrays), 7, transform=transform, device="cpu", num_threads=1, **arguments
    )
    found = []
    for (images,) in loader:
        data, sizes = images if isinstance(images, td.Padded) else (images, [images.shape[2:]] * len(images))
        found += [image[:, : int(h), : int(w)].clone() for image, (h, w) in zip(data, sizes, strict=True)]
    return found


@pytest.mark.parametrize(
    ("transform", "differing"),
    [
        (T.RandAugment(2, 12), 0.12),  # of those, most by Equalize
        (T.RandAugment(2, 12, fill=[9.0, 100.0, 200.0]), 0.12),
        (T.TrivialAugmentWide(interpolation="bilinear", fill=77), 0.12),
        (T.AutoAugment(), 0.5),
        (T.AugMix(interpolation="nearest"), 0.4),
    ],
    ids=repr,
)
def test_forms_and_engines_agree(photos, transform, differing):
    arrays = [image.permute(1, 2, 0).contiguous().numpy() for image in photos[:5] * 8]
    host = images_of(transform, arrays)
    dali = T.Compose([transform, through])
    loaders = [
        td.DataLoader(td.InMemoryDataset(image=arrays), 7, transform=dali, device="cpu", num_threads=1, engine=engine)
        for engine in ("eager", "pipeline", "debug")
    ]
    assert_same_stream(*(lambda loader=loader: loader for loader in loaders))
    beyond = [(a.int() - b.int()).abs() > 1 for a, b in zip(host, images_of(dali, arrays), strict=True)]
    assert np.mean([one.float().mean() for one in beyond]) <= differing


OF_EACH = {  # the share of values that differ by more than 1, in the mean over photographs
    **dict.fromkeys(("TranslateX", "TranslateY", "Brightness", "Color", "Contrast", "Posterize", "Solarize"), 0),
    **dict.fromkeys(("AutoContrast", "Sharpness", "Invert", "SolarizeAdd"), 0),
    **dict.fromkeys(("ShearX", "ShearY", "Rotate"), 0.002),  # nearest neighbours of places between two pixels
    "Equalize": 1,
}


@pytest.mark.parametrize("grey", [False, True])
def test_each_operation_in_dali(photos, grey):
    """Against torchvision's kernel, over all families."""
    from torchdali.transforms.operations import SolarizeAdd

    arrays = [image.permute(1, 2, 0).contiguous().numpy() for image in photos[:5]]
    arrays = [array[..., :1].copy() for array in arrays] if grey else arrays
    sizes = np.array([array.shape[:2] for array in arrays])
    covered = set()
    for family in [*T.RandAugment().families(), SolarizeAdd()]:
        for k, name in enumerate(family.names):
            strength = {"Rotate": -25.0, "TranslateX": 9.0, "TranslateY": -7.0, "Posterize": 3.0, "SolarizeAdd": 70.0}
            value = np.full(5, strength.get(name, 0.37))
            params = family.params(np.full(5, k, np.int32), value, sizes)
            found = in_dali(family, arrays, family.dali_params(params))
            expected = [family.transform_host(torch.from_numpy(a).permute(2, 0, 1), **own)
                        for a, own in zip(arrays, rows(params), strict=True)]  # fmt: skip
            beyond = [
                (np.abs(a.astype(int) - b.permute(1, 2, 0).numpy()) > 1).mean()
                for a, b in zip(found, expected, strict=True)
            ]
            assert np.mean(beyond) <= OF_EACH[name], name
            covered.add(name)
    assert covered == set(OF_EACH)


def in_dali(transform, arrays, params):
    """A transform's DALI form with given params, eagerly."""
    from torchdali import _dali

    with _dali.Session(1, torch.device("cpu")):
        ops = _dali.DynamicOps("cpu")
        out = transform.transform(
            ops, _dali.as_batch(arrays, "HWC"), **{key: _dali.as_batch(value) for key, value in params.items()}
        )
        return [array.copy() for array in _dali.Output(out).arrays()]


# Arguments


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: T.RandomApply([]), "RandomApply needs at least one transform, got none"),
        (lambda: T.RandomApply(T.GaussianBlur(3)), "RandomApply takes a list of transforms, got GaussianBlur"),
        (lambda: T.RandomApply([lambda s, r: s]), "a function sees the whole batch"),
        (lambda: T.RandomApply([v2.GaussianBlur(3)]), "write torchdali.transforms.GaussianBlur"),
        (lambda: T.RandomApply([T.ToDtype(torch.float32)]), "RandomApply can't change the element type of some"),
        (lambda: T.RandomChoice([T.Grayscale()]), "RandomChoice can't change the channels of some samples"),
        (lambda: T.RandomApply([T.Identity()], 2), "p must be in [0, 1], got 2"),
        (lambda: T.RandomChoice([T.Identity()], [1, 2]), "p must hold 1 weights, one for each transform, got [1, 2]"),
        (lambda: T.RandomChoice([T.Identity()], [-1]), "p must hold weights, none negative and not all zero"),
        (lambda: T.AutoAugment("cats"), "policy must be one of imagenet, cifar10, svhn, got 'cats'"),
        (lambda: T.RandAugment(-1), "num_ops must be an integer, not negative, got -1"),
        (lambda: T.RandAugment(magnitude=31), "magnitude must be an integer from 0 to 30, got 31"),
        (lambda: T.RandAugment(interpolation="bicubic"), 'interpolation must be "nearest" or "bilinear"'),
        (lambda: T.RandAugment(fill="red"), "fill must be a number or one for each channel, got 'red'"),
        (lambda: T.TrivialAugmentWide(1), "num_magnitude_bins must be an integer of at least 2, got 1"),
        (lambda: T.Lambda(lambda image: image), "Lambda takes a function f(sample, rand) of a batch"),
        (lambda: T.Lambda(lambda s, r: s, torch.Tensor), "Lambda takes no types, since a function here gets all"),
        (lambda: T.Lambda(7), "Lambda takes a function f(sample, rand), got 7"),
        (lambda: T.AugMix(11), "severity must be an integer from 1 to 10, got 11"),
        (lambda: T.AugMix(mixture_width=0), "mixture_width must be a positive integer, got 0"),
        (lambda: T.AugMix(alpha=0), "alpha must be positive, got 0"),
    ],
)
def test_wrong_arguments(make, message):
    with pytest.raises((TypeError, ValueError)) as caught:
        make()
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_floats_are_refused():
    arrays = [np.zeros((8, 8, 3), np.uint8)] * 2
    for last in ([], [through]):
        with pytest.raises(Exception, match=r"RandAugment changes uint8 images, got torch.float32: put it before"):
            images_of(T.Compose([T.ToDtype(torch.float32), T.RandAugment(), *last]), arrays)


# What lies in the pictures


class Moving(T.TrivialAugmentWide):
    """Without the operations that change values."""

    def operations(self, rand, sizes):
        found = super().operations(rand, sizes)
        kept = [name if name in ("Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY") else "Identity"
                for name in found.names[:, 0]]  # fmt: skip
        return found._replace(names=np.array(kept)[:, None])


COMBINED = [
    T.RandomApply([T.RandomHorizontalFlip(1.0), T.CenterCrop((20, 30))], 0.5),
    T.RandomChoice([T.RandomVerticalFlip(1.0), T.RandomCrop(24), T.Compose([T.RandomCrop(30), T.CenterCrop(15)])]),
    T.RandomOrder([T.RandomCrop(26), T.RandomHorizontalFlip(), T.CenterCrop((30, 31))]),
    T.RandomApply([T.RandomChoice([T.RandomVerticalFlip(1.0), T.RandomApply([T.RandomCrop(20)], 0.5)])], 0.8),
    Moving(),
]


@pytest.mark.parametrize("transform", COMBINED, ids=repr)
@pytest.mark.parametrize("last", [[], [through]], ids=["host", "dali"])
def test_masks_and_boxes_move_along(transform, last):
    """A mask that is the image's first channel stays it; and boxes around marked pixels stay around them."""
    rng = np.random.default_rng(0)
    images = [rng.integers(1, 256, (34 + i % 3, 41, 3), dtype=np.uint8) for i in range(24)]
    boxes = [np.array([[10, 12, 20, 24]], np.float32)] * 24
    dataset = td.InMemoryDataset(image=images, mask=[image[..., 0].copy() for image in images], boxes=boxes)
    found = []
    for engine in ("eager", "debug"):
        loader = td.DataLoader(
            dataset, 6, transform=T.Compose([transform, *last]), device="cpu", num_threads=1, engine=engine, seed=2,
            kinds={"mask": "mask", "boxes": "boxes"},
        )  # fmt: skip
        found.append([])
        for images_, masks, boxes_ in loader:
            assert isinstance(images_, td.Padded) == isinstance(masks, td.Padded)
            data, mask = (value.data if isinstance(value, td.Padded) else value for value in (images_, masks))
            differing = (data[:, 0] != mask).float().mean((1, 2))
            # DALI's nearest neighbour may be the other one of two.
            assert differing.max() <= (0.01 if isinstance(transform, Moving) and last else 0)
            found[-1] += [data, mask, boxes_.data]
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)
    assert len({tuple(box.ravel().tolist()) for box in found[0][2::3]}) > 1


def test_aug_mix_has_no_place_for_masks():
    dataset = td.InMemoryDataset(image=np.zeros((2, 8, 8, 3), np.uint8), mask=np.zeros((2, 8, 8), np.uint8))
    kinds = {"mask": "mask"}
    with pytest.raises(Exception, match="AugMix mixes an image with moved ones"):
        list(td.DataLoader(dataset, 2, transform=T.AugMix(), device="cpu", prefetch_factor=0, kinds=kinds))


def test_sizes_after_combinations():
    same = T.RandomChoice([T.RandomCrop(8), T.Compose([T.Resize(20), T.CenterCrop(8)])])
    assert same.fixes_size and not same.varies_size
    for varied in (T.RandomChoice([T.RandomCrop(8), T.CenterCrop(9)]), T.RandomApply([T.RandomCrop(8)], 0.5)):
        assert varied.varies_size and not varied.fixes_size
    for neither in (T.RandomApply([T.RandomHorizontalFlip(), T.RandomInvert()]), T.RandAugment()):
        assert not neither.varies_size and not neither.fixes_size
    assert T.RandomApply([T.RandomCrop(8)], 1.0).fixes_size


def test_a_lambda_is_its_function():
    def function(sample, rand):
        return sample

    assert T.Lambda(function) is function and T.Lambda(through) is through
