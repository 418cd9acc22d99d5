"""Augmentation policies: each step compared with Pillow, and the distributions of random draws.

Each ``check_*`` function takes `gpu`, so that tests/gpu can run it on a GPU.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from helpers.chance import MIN_PVALUE
from helpers.graphs import run_operation
from helpers.parsing import parse_operation
from helpers.photographs import photograph
from helpers.pictures import photo
from PIL import Image, ImageEnhance, ImageOps
from PIL.Image import Resampling
from scipy import stats

from loaders.dali.graph import RandomStreams
from loaders.dali.policies import StepTable, draw_chains, draw_shares, draw_steps, make_step_table
from loaders.dali.policy_steps import family, settings
from loaders.transforms.base import ImageSpec
from loaders.transforms.policies import (
    Amount,
    Level,
    MixedChains,
    RandomSteps,
    Step,
    SubPolicies,
    weighted_orders,
)
from manifests.errors import CallError

FILL = (124, 116, 104)
SIDES = (60, 40)


def photographs() -> list[np.ndarray]:
    """Return photographs of three sizes, the last one with low contrast."""
    return [*_photographs()]


@cache
def _photographs() -> list[np.ndarray]:
    sizes = ((151, 112), (128, 128), (97, 140))
    pictures = (photograph("astronaut"), photograph("coffee"), photograph("chelsea"))
    images = []
    for picture, size in zip(pictures, sizes, strict=True):
        images.append(np.asarray(Image.fromarray(picture).resize(size)))
    images[2] = (images[2] * 0.6 + 20).astype(np.uint8)
    return images


# Steps compared with Pillow
# ------------------------------------------------------------------------------------------


def pillow(
    image: np.ndarray, name: str, argument: float, resample: int = 0, fill: Any = FILL
) -> np.ndarray:
    """Run a step as the original code of the policies does."""
    picture = Image.fromarray(image)
    matrices = {
        "shear_x": (1, argument, 0, 0, 1, 0),
        "shear_y": (1, 0, 0, argument, 1, 0),
        "translate_x": (1, 0, argument, 0, 1, 0),
        "translate_y": (1, 0, 0, 0, 1, argument),
    }
    enhancers: dict[str, Any] = {
        "color": ImageEnhance.Color,
        "contrast": ImageEnhance.Contrast,
        "brightness": ImageEnhance.Brightness,
        "sharpness": ImageEnhance.Sharpness,
    }
    tables: dict[str, Callable[[int], int]] = {
        # Pillow no longer accepts 0 bits; it used to return black.
        "posterize": lambda value: value & (256 - 2 ** (8 - int(argument))),
        "solarize_add": lambda value: min(255, value + int(argument)) if value < 128 else value,
    }
    if name in matrices:
        how = Image.Transform.AFFINE, matrices[name], resample
        result = picture.transform(picture.size, *how, fillcolor=fill)
    elif name == "rotate":
        result = picture.rotate(argument, resample, fillcolor=fill)
    elif name in enhancers:
        result = enhancers[name](picture).enhance(argument)
    elif name in tables:
        result = picture.point([tables[name](value) for value in range(256)] * 3)
    elif name == "solarize":
        result = ImageOps.solarize(picture, argument)
    else:
        result = picture if name == "identity" else getattr(ImageOps, name)(picture)
    return np.asarray(result)


MOVES = [
    ("shear_x", 0.3), ("shear_x", -0.13), ("shear_y", 0.3), ("shear_y", -0.13), ("translate_x", 40),
    ("translate_x", -13.3), ("translate_y", 40), ("translate_y", -13.3), ("rotate", 30), ("rotate", -17.2),
    ("rotate", 0), ("rotate", 135),
]  # fmt: skip


def compared_steps() -> list[tuple[Step, float, int, dict[str, float]]]:
    """Return steps, their arguments, filters of Pillow, and how far they may be from Pillow.

    The limits are the mean difference, the maximum, and the shares of pixels that may exceed the
    maximum on the CPU and on a GPU: where two pixels are equally near, either may be taken.
    """
    found = []
    for name, amount in MOVES:
        shares = {"share": 0.002, "gpu_share": 0.006} if name == "rotate" else {"gpu_share": 0.002}
        step = Step(name, Amount(amount), fill=FILL)
        found.append((step, amount, Resampling.NEAREST, {"mean": 0.05, "most": 0, **shares}))
        # Pillow truncates fractions.
        limits = {"mean": 0.5, "most": 1, "share": 0.0005, "gpu_share": 0.0005}
        found.append((replace(step, filter="linear"), amount, Resampling.BILINEAR, limits))
    for name in ("color", "contrast", "brightness", "sharpness"):
        mean = 0.4 if name in ("color", "sharpness") else 0.03
        for factor in (-0.35, 0.1, 0.55, 1, 1.3, 1.9):
            limits = {"mean": mean if factor != 1 else 0, "gpu_mean": 0.4, "most": 1}
            found.append((Step(name, Amount(factor)), factor, 0, limits))
    for name, amount in (
        *(("posterize", bits) for bits in (0, 1, 4, 7, 8)),
        *(("solarize", least) for least in (0, 100, 128, 170.66, 255, 256, 384)),
        *(("solarize_add", more) for more in (0, 33, 110, 165)),
        ("invert", 0),
        ("identity", 0),
    ):
        found.append((Step(name, Amount(amount)), amount, 0, {"mean": 0, "most": 0}))
    limits = {"mean": 0.01, "gpu_mean": 0.05, "most": 1}
    found.append((Step("autocontrast"), 0, 0, limits))
    found.append((Step("equalize"), 0, 0, {"mean": 0.5, "most": 1}))
    return found


def check_steps_match_pillow(gpu: bool = False) -> None:
    images = photographs()
    device = "gpu_" if gpu else ""
    for step, argument, resample, limits in compared_steps():
        found = run_operation(SubPolicies(((step,),)), images, gpu=gpu)
        for image, result in zip(images, found, strict=True):
            expected = pillow(image, step.name, argument, resample, tuple(map(int, step.fill)))
            difference = np.abs(result.astype(int) - expected)
            assert result.dtype == np.uint8
            mean = limits.get(f"{device}mean", limits["mean"])
            assert difference.mean() <= mean, (step, difference.mean())
            share = limits.get(f"{device}share", 0)
            assert (difference > limits["most"]).mean() <= share, step


@pytest.mark.parametrize("name", ["autocontrast", "equalize"])
@pytest.mark.parametrize("side", [1, 2, 15, 16, 20, 64])
def test_steps_of_small_images(side: int, name: str) -> None:
    """Pillow rounds the pixels of a value to an integer, which changes small images by up to 92 levels."""
    images = [np.asarray(photo(number, side, side + number)) for number in range(8)]
    noise = np.random.default_rng(side)
    images += [noise.integers(0, most, (side, side, 3), np.uint8) for most in (1, 2, 30, 256)]
    images += [np.full((20, 30, 3), value, np.uint8) for value in (77, 255)]
    found = run_operation(SubPolicies(((Step(name),),)), images)
    for image, result in zip(images, found, strict=True):
        assert np.abs(result.astype(int) - pillow(image, name, 0)).max() <= 1


def check_cutout(gpu: bool = False) -> None:
    """Squares inside the image are complete, the border clips the others, and centers are uniform."""
    white = np.full((40, 60, 3), 255, np.uint8)
    step = Step("cutout", Amount(8), fill=(9, 9, 9))
    found = np.stack(run_operation(SubPolicies(((step,),)), [white] * 64, runs=32, gpu=gpu))
    cut = (found == 9).all(-1)
    assert ((found == 255) | (found == 9)).all()
    rows, columns = cut.any(2), cut.any(1)
    assert (cut == rows[:, :, None] & columns[:, None, :]).all()
    assert rows.sum(1).max() == columns.sum(1).max() == 16
    inside = rows.sum(1) == 16
    tops = rows.argmax(1)[inside]
    # Centers are 0 to 40; those from 8 to 32 give a complete square.
    assert abs(inside.mean() - 25 / 41) < 0.06
    assert stats.chisquare(np.bincount(tops, minlength=25)).pvalue > MIN_PVALUE


# Draws
# --------------------------------------------------------------------------------------------------


def drawn_steps(
    operation: Any, count: int, *, seed: Any = 0
) -> tuple[StepTable, list[tuple[np.ndarray, np.ndarray]]]:
    """Return the branches and settings of each step, in order, for images of `SIDES`."""
    steps, size, rng = make_step_table(operation), (SIDES[1], SIDES[0]), np.random.default_rng(seed)
    if isinstance(operation, MixedChains):
        found = draw_chains(operation, steps, size, rng, np.ones(count, bool))
    else:
        found = draw_steps(operation, steps, size, rng, count)
    return steps, list(zip(found.branch, found.settings.astype(np.float32), strict=True))


def side(step: Step) -> float:
    return SIDES[step.name.endswith("_y")] if step.amount.of_side else 1


def argument(step: Step, level: float, sign: int = 1) -> float:
    """Return the argument of a step at a level."""
    amount = step.amount
    change = amount.slope * level * side(step)
    if amount.rounding == "down":
        change = float(int(change + (1e-9 if change > 0 else -1e-9)))
    elif amount.rounding == "nearest":
        change = float(round(change))
    return amount.offset + sign * change


def key(name: tuple[Any, ...], values: np.ndarray) -> tuple[Any, ...]:
    """Return a hashable outcome. The settings of an unchanged image do not matter."""
    return name if name[0] == "identity" else (name, *(np.round(values, 3) + 0.0).tolist())


def outcomes(step: Step, probability: float = 1) -> Counter[Any]:
    """Return every outcome of a step with fixed or binned levels, and its probability."""
    level = step.level
    assert not level.std
    levels = np.linspace(level.low, level.high, level.bins) if level.bins else [level.low]
    signs = (-1, 1) if step.amount.signed else (1,)
    found: Counter[Any] = Counter()
    probability *= step.probability
    found["identity",] += 1 - probability  # type: ignore[assignment]
    for each, sign in itertools.product(levels, signs):
        base, change = settings(step)
        values = (base + change * argument(step, float(each), sign)).astype(np.float32)
        found[key(family(step), values)] += probability / len(levels) / len(signs)  # type: ignore[assignment]
    return found


def average(parts: Iterable[Counter[Any]]) -> dict[Any, float]:
    parts = list(parts)
    total: Counter[Any] = Counter()
    for part in parts:
        for outcome, probability in part.items():
            total[outcome] += probability / len(parts)
    return {outcome: probability for outcome, probability in total.items() if probability > 0}


def check_probabilities(observed: Iterable[Any], expected: dict[Any, float]) -> None:
    """Check that only possible outcomes occur, and their frequencies with a chi-square test.

    Rare ones are pooled.
    """
    counts = Counter(observed)
    assert set(counts) <= set(expected)
    total = counts.total()
    common = [outcome for outcome, probability in expected.items() if probability * total >= 8]
    sums = [counts[outcome] for outcome in common]
    probabilities = [expected[outcome] for outcome in common]
    if len(common) < len(expected):
        sums.append(total - sum(sums))
        probabilities.append(max(1 - sum(probabilities), 1e-12))
    assert sum(expected.values()) == pytest.approx(1)
    expected_sums = np.array(probabilities) / sum(probabilities) * total
    assert stats.chisquare(sums, expected_sums).pvalue > MIN_PVALUE


def check_pool(operation: RandomSteps) -> None:
    """Check the probability of each step and strength, and that draws are independent of each other."""
    steps, sequence = drawn_steps(operation, 6000)
    expected = average(outcomes(step, operation.probability) for step in operation.pool)
    for branches, values in sequence:
        pairs = zip(branches, values, strict=True)
        check_probabilities((key(steps.families[b], v) for b, v in pairs), expected)
    if len(sequence) > 1 and operation.probability == 1:
        table = np.zeros((len(steps.families),) * 2)
        np.add.at(table, (sequence[0][0], sequence[1][0]), 1)
        assert stats.chi2_contingency(table).pvalue > MIN_PVALUE / 100


POOLS = [
    ("RandAugment", {}), ("RandAugment", {"num_layers": 1, "magnitude": 10, "fillcolor": [1, 2, 3]}),
    ("RandAugmentV2", {"magnitude": 7.5}), ("RandAugmentV3", {}), ("RandAugmentV4", {}), ("TrivialAugmentWide", {}),
    ("TimmAutoAugment", {"config_str": "rand-m5-n3"}), ("TimmAutoAugment", {"prob": 0.4, "config_str": "rand-m9-inc1"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments"), POOLS)
def test_steps_of_a_pool_are_equally_likely(name: str, arguments: dict[str, Any]) -> None:
    check_pool(parse_operation(name, **arguments))


def check_sequences(operation: SubPolicies) -> None:
    """Check that both steps of a sequence occur together, each with its probability."""
    steps, ((first, first_values), (second, second_values)) = drawn_steps(operation, 12000)
    expected = []
    for one, two in operation.sequences:
        pairs: Counter[Any] = Counter()
        both = itertools.product(outcomes(one).items(), outcomes(two).items())
        for (left, probability), (right, other) in both:
            pairs[left, right] += probability * other
        expected.append(pairs)
    names = steps.families
    observed = zip(
        (key(names[b], v) for b, v in zip(first, first_values, strict=True)),
        (key(names[b], v) for b, v in zip(second, second_values, strict=True)),
        strict=True,
    )
    check_probabilities(observed, average(expected))


@pytest.mark.parametrize("policy", ["AutoAugment", "v0", "v0r", "original", "auto-originalr"])
def test_sub_policies_are_equally_likely(policy: str) -> None:
    named = (
        ("AutoAugment", {})
        if policy == "AutoAugment"
        else ("TimmAutoAugment", {"config_str": policy})
    )
    check_sequences(parse_operation(named[0], **named[1]))


def test_weighted_steps_are_drawn_without_replacement() -> None:
    operation = parse_operation("TimmAutoAugment", config_str="rand-m9-w0")
    assert operation.weights is not None
    weights = np.array(operation.weights) / sum(operation.weights)
    orders, probabilities = weighted_orders(operation.weights, 2)
    assert sum(probabilities) == pytest.approx(1)
    assert len(orders) == 13 * 12
    assert all(one != two for one, two in orders)
    for order, probability in zip(orders, probabilities, strict=True):
        first, second = weights[[*order]]
        assert probability == pytest.approx(first * second / (1 - first))

    pool = tuple(Step("posterize", Amount(bits)) for bits in range(5))
    certain = RandomSteps(pool, 3, (0.5, 0.3, 0.0, 0.15, 0.05))
    _, sequence = drawn_steps(certain, 20000)
    observed = zip(*(values[:, 1].astype(int).tolist() for _, values in sequence), strict=True)
    check_probabilities(observed, dict(zip(*weighted_orders(certain.weights, 3), strict=True)))  # type: ignore[arg-type]


def test_levels_with_noise() -> None:
    """Noisy levels are normal and clipped to 0-10.

    Arguments are truncated to integers after that.
    """
    operation = parse_operation("TimmAutoAugment", config_str="rand-m9-mstd0.5-inc1")
    drawn = {(step.level, step.probability) for step in operation.pool}
    assert drawn == {(Level(9, 9, std=0.5), 0.5)}
    pool = (Step("shear_x", Amount(0, 0.03, signed=True), Level(9, 9, std=0.5)),)
    _, ((_, values),) = drawn_steps(RandomSteps(pool, 1), 10000)
    levels = np.abs(values[:, 0]) / 0.03
    assert 0.45 < (values[:, 0] < 0).mean() < 0.55
    assert levels.max() == pytest.approx(10, abs=1e-4)
    full = levels > 9.9999
    assert abs(full.mean() - stats.norm.sf(2)) < 0.01
    cut = stats.truncnorm(-np.inf, 2, 9, 0.5)
    assert stats.kstest(levels[~full], cut.cdf).pvalue > MIN_PVALUE

    bits = (Step("posterize", Amount(4, -0.4, "down"), Level(5, 5, std=2)),)
    _, ((_, values),) = drawn_steps(RandomSteps(bits, 1), 10000)
    edges = np.array([-np.inf, 2.5, 5, 7.5, 10, np.inf])
    expected = np.diff(stats.norm.cdf(edges, 5, 2))
    shares = dict(zip([4.0, 3.0, 2.0, 1.0, 0.0], expected, strict=True))
    check_probabilities(values[:, 1].tolist(), shares)


def check_steps_follow_the_draws(gpu: bool = False) -> None:
    """The images of a pool are those of the two steps that were drawn for each of them."""
    pool = tuple(
        Step(name, Amount(amount), fill=FILL)
        for name, amount in (
            ("shear_x", 0.2), ("translate_y", 11), ("rotate", 20), ("color", 1.6), ("contrast", 0.4),
            ("sharpness", 0.2), ("posterize", 3), ("solarize", 100), ("invert", 0), ("equalize", 0),
        )
    )  # fmt: skip
    steps = {}
    for step in pool:
        base, change = settings(step)
        values = (base + change * step.amount.offset).astype(np.float32)
        steps[key(family(step), values)] = step
    operation, image = RandomSteps(pool, 2), np.ascontiguousarray(photographs()[0][30:100, 20:110])
    seed = [RandomStreams(0).seed(operation, "steps"), 0, 0]
    table, drawn = drawn_steps(operation, 40, seed=seed)
    first, second = (
        [steps[key(table.families[a], x)] for a, x in zip(*each, strict=True)] for each in drawn
    )
    pairs = [*zip(first, second, strict=True)]
    assert len(set(pairs)) > 20
    expected = {}
    for pair in set(pairs):
        (expected[pair],) = run_operation(SubPolicies((pair,)), [image], gpu=gpu)
    for spec in (ImageSpec((70, 90)), ImageSpec()):
        found = run_operation(operation, [image] * 40, spec=spec, gpu=gpu)
        for each, pair in zip(found, pairs, strict=True):
            assert np.abs(each.astype(int) - expected[pair]).max() <= 1, pair


def check_known_sizes(gpu: bool = False) -> None:
    """NumPy computes size-dependent values if the size is known, otherwise the graph does.

    Results are the same.
    """
    images = [np.ascontiguousarray(photographs()[0][30:100, 20:110])] * 8
    spec = ImageSpec(size=(images[0].shape[0], images[0].shape[1]))
    for name, arguments in NAMES:
        operation = parse_operation(name, **arguments)
        known = run_operation(operation, images, spec=spec, gpu=gpu)
        unknown = run_operation(operation, images, gpu=gpu)
        differing = np.mean([(one != two).mean() for one, two in zip(known, unknown, strict=True)])
        assert differing < 0.002


# Mixing
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "alpha"), [(3, 1.0), (4, 0.5), (3, 0.1), (1, 1.0)])
def test_shares_of_chains_are_dirichlet_distributed(width: int, alpha: float) -> None:
    operation = MixedChains((Step("invert"),), width=width, alpha=alpha)
    image, *chains = draw_shares(operation, np.random.default_rng(0), 10000)
    assert len(chains) == width
    assert np.allclose(image + sum(chains), 1, atol=1e-5)
    mixture = 1 - image
    assert mixture.mean() == pytest.approx(0.5, abs=0.02)
    assert mixture.var() == pytest.approx(0.25 / (2 * alpha + 1), rel=0.05)
    # The share of the mixture is independent of the chains' weights, so moments of products are
    # products of moments.
    for one, two in itertools.combinations_with_replacement(range(width), 2):
        pairs = alpha * (alpha + 1 if one == two else alpha) / (width * alpha * (width * alpha + 1))
        squares = alpha * (alpha + 1) / (2 * alpha * (2 * alpha + 1))
        assert (chains[one] * chains[two]).mean() == pytest.approx(pairs * squares, abs=0.01)
    if alpha == 1:
        weights = chains[0][mixture > 0.01] / mixture[mixture > 0.01]
        assert width == 1 or stats.kstest(weights, stats.beta(1, width - 1).cdf).pvalue > MIN_PVALUE


def check_mixing(gpu: bool = False) -> None:
    """A mixture lies between the image and its augmented copies, at a distance given by its share."""
    images = photographs()
    same = run_operation(MixedChains((Step("identity"),), 3, 2), images, runs=4, gpu=gpu)
    assert all(map(np.array_equal, same, itertools.cycle(images)))
    gray = np.full((8, 8, 3), 200, np.uint8)
    found = run_operation(MixedChains((Step("invert"),), 3, 1), [gray] * 100, runs=20, gpu=gpu)
    values = np.array([result[0, 0, 0] for result in found])
    assert all((result == result[0, 0, 0]).all() for result in found)
    assert values.min() >= 55
    assert values.max() <= 200
    assert stats.kstest(values + 0.5, stats.uniform(55, 145).cdf).statistic < 0.05


# Names
# --------------------------------------------------------------------------------------------------

NAMES = [
    ("AutoAugment", {}), ("RandAugment", {}), ("RandAugmentV2", {}), ("RandAugmentV3", {}), ("RandAugmentV4", {}),
    ("AugMix", {}), ("AugMix", {"mixture_depth": -1, "prob": 1}), ("TrivialAugmentWide", {}),
    ("TimmAutoAugment", {}), ("TimmAutoAugment", {"config_str": "v0-mstd0.5", "interpolation": "random"}),
    ("TimmAutoAugment", {"config_str": "rand-m7-n1-w0", "prob": 0.5, "img_size": [256, 192]}),
    ("TimmAutoAugment", {"config_str": "augmix-m5-w2-d1-a0.5", "interpolation": "bilinear"}),
]  # fmt: skip


def check_names(gpu: bool = False) -> None:
    """A policy runs on images of different sizes, keeps their sizes, and draws anew for each batch."""
    sizes = ((70, 90), (64, 100), (80, 77))
    pairs = zip(photographs(), sizes, strict=True)
    images = [each[:height, :width] for each, (height, width) in pairs] * 4
    for name, arguments in NAMES:
        operation = parse_operation(name, **arguments)
        assert operation.output(ImageSpec()) == ImageSpec()
        assert not operation.pointwise
        with pytest.raises(CallError, match="normalized"):
            operation.output(ImageSpec(is_uint8=False))
        found = run_operation(operation, images, runs=2, gpu=gpu)
        for result, image in zip(found, images * 2, strict=True):
            assert (result.shape, result.dtype) == (image.shape, np.uint8)
        assert not all(map(np.array_equal, found[:12], found[12:]))
    often = parse_operation("AugMix", prob=0.3, aug_severity=5, aug_prob_coeff=1.0)
    found = run_operation(often, photographs()[:1] * 100, runs=4, gpu=gpu)
    assert 0.55 < np.mean([np.array_equal(each, photographs()[0]) for each in found]) < 0.82


CHECKS = [
    check_steps_match_pillow, check_cutout, check_steps_follow_the_draws, check_known_sizes,
    check_mixing, check_names,
]  # fmt: skip


@pytest.mark.parametrize("check", CHECKS)
def test_on_cpu(check: Callable[[], None]) -> None:
    check()
