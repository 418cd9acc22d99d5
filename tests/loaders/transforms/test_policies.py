"""Augmentation policies: each step compared with Pillow, and the distributions of random draws.

Each ``check_*`` function takes `gpu`, so that tests/gpu can run it on a GPU.
"""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from helpers.chance import MIN_PVALUE
from helpers.graphs import run_graph, run_operation
from helpers.parsing import parse_notes, parse_operation
from helpers.photographs import photograph
from helpers.pictures import photo
from PIL import Image, ImageEnhance, ImageOps
from scipy import stats

from loaders.dali import apply
from loaders.dali.graph import GraphContext, RandomStreams
from loaders.dali.policies import (
    StepTable,
    draw_chains,
    draw_shares,
    draw_steps,
    make_step_table,
)
from loaders.dali.policy_steps import family, settings
from loaders.transforms.base import ImageSpec
from loaders.transforms.parse import known_transforms
from loaders.transforms.parse.items import parse_transform
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
    images = [
        np.asarray(Image.fromarray(picture).resize(size))
        for picture, size in zip(pictures, sizes, strict=True)
    ]
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
        result = picture.transform(
            picture.size, Image.Transform.AFFINE, matrices[name], resample, fillcolor=fill
        )
    elif name == "rotate":
        result = picture.rotate(argument, resample, fillcolor=fill)
    elif name in enhancers:
        result = enhancers[name](picture).enhance(argument)
    elif name in tables:
        result = picture.point([tables[name](value) for value in range(256)] * 3)
    elif name == "solarize":
        result = ImageOps.solarize(picture, argument)
    else:
        plain = {
            "invert": ImageOps.invert,
            "autocontrast": ImageOps.autocontrast,
            "equalize": ImageOps.equalize,
        }
        result = plain[name](picture) if name in plain else picture
    return np.asarray(result)


def check_step(
    step: Step,
    argument: float,
    resample: int,
    *,
    mean: float,
    most: int,
    gpu: bool = False,
    slack: float = 0,
) -> None:
    """Compare a step with Pillow.

    Args:
        step: the step.
        argument: the step's argument.
        resample: Pillow's filter.
        mean: maximum mean difference.
        most: maximum difference of a pixel.
        gpu: run on the GPU.
        slack: fraction of pixels that may exceed `most`.

    """
    images = photographs()
    found = run_operation(SubPolicies(((step,),)), images, gpu=gpu)
    for image, result in zip(images, found, strict=True):
        expected = pillow(image, step.name, argument, resample, tuple(map(int, step.fill)))
        difference = np.abs(result.astype(int) - expected)
        assert result.dtype == np.uint8
        assert difference.mean() <= mean
        assert (difference > most).mean() <= slack


MOVES = [
    ("shear_x", 0.3), ("shear_x", -0.13), ("shear_y", 0.3), ("shear_y", -0.13), ("translate_x", 40),
    ("translate_x", -13.3), ("translate_y", 40), ("translate_y", -13.3), ("rotate", 30), ("rotate", -17.2),
    ("rotate", 0), ("rotate", 135),
]  # fmt: skip


@pytest.mark.parametrize(("name", "argument"), MOVES)
@pytest.mark.parametrize("fill", [FILL, (128, 128, 128)])
def test_nearest_moves_match_pillow(name: str, argument: float, fill: Any) -> None:
    # Ties in float32 resolve differently in about one of a thousand pixels of a rotated image.
    step = Step(name, Amount(argument), fill=fill)
    check_step(
        step,
        argument,
        Image.Resampling.NEAREST,
        mean=0.05,
        most=0,
        slack=0.002 if name == "rotate" else 0,
    )


@pytest.mark.parametrize(("name", "argument"), MOVES)
def test_bilinear_moves_match_pillow_which_truncates_fractions(name: str, argument: float) -> None:
    step = Step(name, Amount(argument), filter="linear", fill=FILL)
    check_step(step, argument, Image.Resampling.BILINEAR, mean=0.5, most=1, slack=0.0005)


@pytest.mark.parametrize(("name", "argument"), MOVES)
def test_bilinear_moves_are_close_to_pillow_bicubic(name: str, argument: float) -> None:
    step = Step(name, Amount(argument), filter="linear", fill=FILL)
    check_step(step, argument, Image.Resampling.BICUBIC, mean=3.5, most=100, slack=0.001)


@pytest.mark.parametrize("name", ["color", "contrast", "brightness", "sharpness"])
@pytest.mark.parametrize("factor", [-0.35, 0.1, 0.55, 1, 1.3, 1.9])
def test_enhancements_match_pillow_within_one(name: str, factor: float) -> None:
    mean = {"color": 0.4, "sharpness": 0.4}.get(name, 0.03)
    check_step(Step(name, Amount(factor)), factor, 0, mean=mean if factor != 1 else 0, most=1)


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        *(("posterize", bits) for bits in (0, 1, 4, 7, 8)),
        *(("solarize", least) for least in (0, 100, 128, 170.66, 255, 256, 384)),
        *(("solarize_add", more) for more in (0, 33, 110, 165)),
        ("invert", 0),
        ("identity", 0),
    ],
)
def test_pixel_steps_match_pillow(name: str, argument: float) -> None:
    check_step(Step(name, Amount(argument)), argument, 0, mean=0, most=0)


def test_autocontrast_matches_pillow() -> None:
    check_step(Step("autocontrast"), 0, 0, mean=0.01, most=1)


def test_equalize_matches_pillow() -> None:
    check_step(Step("equalize"), 0, 0, mean=0.5, most=1)


@pytest.mark.parametrize("side", [1, 2, 15, 16, 20, 32, 64, 96])
def test_equalize_of_small_images(side: int) -> None:
    """Pillow rounds the pixels of a value to an integer, which changes small images by up to 92 levels."""
    images = [np.asarray(photo(number, side, side + number)) for number in range(8)]
    noise = np.random.default_rng(side)
    images += [noise.integers(0, most, (side, side, 3), np.uint8) for most in (1, 2, 30, 256)]
    found = run_operation(SubPolicies(((Step("equalize"),),)), images)
    for image, result in zip(images, found, strict=True):
        assert np.abs(result.astype(int) - pillow(image, "equalize", 0)).max() <= 1


@pytest.mark.parametrize("name", ["autocontrast", "equalize"])
@pytest.mark.parametrize("value", [0, 77, 255])
def test_constant_images_stay_the_same(name: str, value: int) -> None:
    flat = np.full((20, 30, 3), value, np.uint8)
    (found,) = run_operation(SubPolicies(((Step(name),),)), [flat])
    assert (found == value).all()


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


def test_cutout() -> None:
    check_cutout()


# Draws
# --------------------------------------------------------------------------------------------------


def drawn_steps(
    operation: Any, count: int, *, seed: int = 0
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
    assert (
        stats.chisquare(sums, np.array(probabilities) / sum(probabilities) * total).pvalue
        > MIN_PVALUE
    )


def check_pool(operation: RandomSteps) -> None:
    """Check the probability of each step and strength, and that draws are independent of each other."""
    steps, sequence = drawn_steps(operation, 6000)
    expected = average(outcomes(step, operation.probability) for step in operation.pool)
    for branches, values in sequence:
        check_probabilities(
            (key(steps.families[b], v) for b, v in zip(branches, values, strict=True)), expected
        )
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
        for (left, probability), (right, other) in itertools.product(
            outcomes(one).items(), outcomes(two).items()
        ):
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
    check_sequences(
        parse_operation(policy)
        if policy == "AutoAugment"
        else parse_operation("TimmAutoAugment", config_str=policy)
    )


def test_sequences_of_different_lengths() -> None:
    short, long = (Step("invert"),), (Step("equalize"), Step("autocontrast"))
    steps, ((first, _), (second, _)) = drawn_steps(SubPolicies((short, long)), 1000)
    pairs = {
        (steps.families[one][0], steps.families[two][0])
        for one, two in zip(first, second, strict=True)
    }
    assert pairs == {("bytes", "identity"), ("equalize", "autocontrast")}


def test_weighted_steps_are_drawn_without_replacement() -> None:
    operation = parse_operation("TimmAutoAugment", config_str="rand-m9-w0")
    assert operation.weights is not None
    weights = np.array(operation.weights) / sum(operation.weights)
    orders, probabilities = weighted_orders(operation.weights, 2)
    assert sum(probabilities) == pytest.approx(1)
    assert len(orders) == 13 * 12
    assert all(one != two for one, two in orders)
    for order, probability in zip(orders, probabilities, strict=True):
        assert probability == pytest.approx(
            weights[order[0]] * weights[order[1]] / (1 - weights[order[0]])
        )

    certain = RandomSteps(
        tuple(Step("posterize", Amount(bits)) for bits in range(5)), 3, (0.5, 0.3, 0.0, 0.15, 0.05)
    )
    _, sequence = drawn_steps(certain, 20000)
    observed = zip(*(values[:, 1].astype(int).tolist() for _, values in sequence), strict=True)
    check_probabilities(observed, dict(zip(*weighted_orders(certain.weights, 3), strict=True)))  # type: ignore[arg-type]


def test_levels_with_noise() -> None:
    """Noisy levels are normal and clipped to 0-10.

    Arguments are truncated to integers after that.
    """
    operation = parse_operation("TimmAutoAugment", config_str="rand-m9-mstd0.5-inc1")
    assert all(
        step.level == Level(9, 9, std=0.5) and step.probability == 0.5 for step in operation.pool
    )
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
    check_probabilities(
        values[:, 1].tolist(), dict(zip([4.0, 3.0, 2.0, 1.0, 0.0], expected, strict=True))
    )


def test_levels_between_bounds() -> None:
    pool = (Step("rotate", Amount(0, 3, "down", signed=True), Level(0.1, 3)),)
    _, ((_, values),) = drawn_steps(RandomSteps(pool, 1), 10000)
    degrees = values[:, 4]
    expected = {
        0: 3 * (1 / 3 - 0.1) / 8.7,
        **{sign * n: 0.5 / 8.7 for n in range(1, 9) for sign in (-1, 1)},
    }
    check_probabilities(degrees.astype(int).tolist(), expected)
    assert (degrees == degrees.astype(int)).all()


def test_fractions_of_a_side_are_rounded_to_pixels() -> None:
    # A third of 60 and 40 pixels at level 10 is 2 and 1 pixels at level 1.
    pool = tuple(
        Step(name, Amount(0, 1 / 30, "down", of_side=True), Level(1, 1))
        for name in ("translate_x", "translate_y")
    )
    _, ((_, values),) = drawn_steps(RandomSteps(pool, 1), 1000)
    assert {tuple(row) for row in values[:, :5].tolist()} == {(0, 0, 2, 0, 0), (0, 0, 0, 1, 0)}


def check_known_sizes(gpu: bool = False) -> None:
    """NumPy computes size-dependent values if the size is known, otherwise the graph does.

    Results are the same.
    """
    images = [np.ascontiguousarray(photographs()[0][30:100, 20:110])] * 16
    spec = ImageSpec(size=(images[0].shape[0], images[0].shape[1]))
    for name, arguments in NAMES:
        operation = parse_operation(name, **arguments)
        known = run_operation(operation, images, spec=spec, gpu=gpu)
        unknown = run_operation(operation, images, gpu=gpu)
        differing = np.mean([(one != two).mean() for one, two in zip(known, unknown, strict=True)])
        assert differing < 0.002


def test_known_sizes() -> None:
    check_known_sizes()


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


def test_chains_with_random_depth_have_one_to_three_steps() -> None:
    operation = parse_operation("TimmAutoAugment", config_str="augmix-m3-w2")
    assert (operation.width, operation.depth, operation.alpha) == (2, 0, 1)
    steps, sequence = drawn_steps(operation, 6000)
    assert steps.families[0] == ("identity",)
    assert len(sequence) == 6
    for first in (0, 3):
        depths = sum((branches > 0).astype(int) for branches, _ in sequence[first : first + 3])
        assert (sequence[first][0] > 0).all()
        assert stats.chisquare(np.bincount(depths, minlength=4)[1:]).pvalue > MIN_PVALUE


def check_mixing(gpu: bool = False) -> None:
    """A mixture lies between the image and its augmented copies, at a distance given by its share."""
    images = photographs()
    same = run_operation(MixedChains((Step("identity"),), 3, 2), images, runs=4, gpu=gpu)
    assert all(
        (result == image).all()
        for result, image in zip(same, itertools.cycle(images), strict=False)
    )
    gray = np.full((8, 8, 3), 200, np.uint8)
    found = run_operation(MixedChains((Step("invert"),), 3, 1), [gray] * 100, runs=20, gpu=gpu)
    values = np.array([result[0, 0, 0] for result in found])
    assert all((result == result[0, 0, 0]).all() for result in found)
    assert values.min() >= 55
    assert values.max() <= 200
    assert stats.kstest(values + 0.5, stats.uniform(55, 145).cdf).statistic < 0.05


def test_mixing() -> None:
    check_mixing()


def test_aug_mix_changes_images_with_its_probability() -> None:
    image = photographs()[0]
    found = run_operation(
        parse_operation("AugMix", prob=0.3, aug_severity=5, aug_prob_coeff=1.0),
        [image] * 100,
        runs=4,
    )
    untouched = np.mean([(result == image).all() for result in found])
    assert 0.55 < untouched < 0.82


# Names
# --------------------------------------------------------------------------------------------------

NAMES = [
    ("AutoAugment", {}), ("RandAugment", {}), ("RandAugmentV2", {}), ("RandAugmentV3", {}), ("RandAugmentV4", {}),
    ("AugMix", {}), ("AugMix", {"mixture_depth": -1, "prob": 1}), ("TrivialAugmentWide", {}),
    ("TimmAutoAugment", {}), ("TimmAutoAugment", {"config_str": "v0-mstd0.5", "interpolation": "random"}),
    ("TimmAutoAugment", {"config_str": "rand-m7-n1-w0", "prob": 0.5, "img_size": [256, 192]}),
    ("TimmAutoAugment", {"config_str": "augmix-m5-w2-d1-a0.5", "interpolation": "bilinear"}),
]  # fmt: skip


def check_name(name: str, arguments: dict[str, Any], gpu: bool = False) -> None:
    """The policy runs on images of different sizes, keeps their sizes, and draws anew for each batch."""
    operation = parse_operation(name, **arguments)
    assert operation.output(ImageSpec()) == ImageSpec()
    assert not operation.pointwise
    sizes = ((70, 90), (64, 100), (80, 77))
    images = [
        each[:height, :width] for each, (height, width) in zip(photographs(), sizes, strict=True)
    ] * 4
    found = run_operation(operation, images, runs=2, gpu=gpu)
    assert all(
        result.shape == image.shape and result.dtype == np.uint8
        for result, image in zip(found, images * 2, strict=True)
    )
    assert any((one != two).any() for one, two in zip(found[:12], found[12:], strict=True))


@pytest.mark.parametrize(("name", "arguments"), NAMES)
def test_policies_run_on_images_of_different_sizes(name: str, arguments: dict[str, Any]) -> None:
    assert name in known_transforms()
    check_name(name, arguments)


class RecordingStreams(RandomStreams):
    """Records each batch's generator before it draws, so that a test can repeat the draws."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.generators: list[np.random.Generator] = []

    def from_numpy(self, owner: Any, name: str, batch_size: int, draw: Any, ranks: Any) -> Any:
        made = draw(np.random.default_rng(0), batch_size)

        def recorded(rng: np.random.Generator, count: int) -> Any:
            self.generators.append(copy.deepcopy(rng))
            return draw(rng, count)

        assert [array.ndim - 1 for array in made] == list(ranks)
        return super().from_numpy(owner, name, batch_size, recorded, ranks)


def check_matches_pillow(
    operation: RandomSteps | SubPolicies, size: Any = None, gpu: bool = False
) -> None:
    """Check that the images match Pillow's for the same draws."""
    images = photographs() * 16
    if size is not None:
        images = [np.asarray(Image.fromarray(image).resize(size[::-1])) for image in images]
    steps = (
        operation.pool
        if isinstance(operation, RandomSteps)
        else tuple(itertools.chain(*operation.sequences))
    )
    draws = RecordingStreams(3)

    def make(image: Any, context: GraphContext) -> Any:
        return apply(operation, image, ImageSpec(size=size), replace(context, random=draws))

    results = run_graph(make, images, gpu=gpu)
    table = make_step_table(operation)
    _, rng, *_ = draws.generators
    # Fractions of a side need a size: draw with the size of each image.
    found = {
        picture.shape: draw_steps(
            operation, table, picture.shape[:2], copy.deepcopy(rng), len(images)
        )
        for picture in images
    }
    seen = set()
    for number, (picture, result) in enumerate(zip(images, results, strict=True)):
        expected, drawn = picture, found[picture.shape]
        for branches, values, centers in zip(
            drawn.branch, drawn.settings, drawn.center, strict=True
        ):
            step, amount = matched(
                steps, table.families[branches[number]], values[number], picture.shape
            )
            seen.add(step.name)
            if step.name == "cutout":
                expected = cut_out(expected, int(amount), centers[number], int(step.fill[0]))
            else:
                resample = (
                    Image.Resampling.NEAREST
                    if step.filter == "nearest"
                    else Image.Resampling.BILINEAR
                )
                expected = pillow(expected, step.name, amount, resample, tuple(map(int, step.fill)))
        # Most pixels differ by at most one, on average by less than a half. A cutout is exact.
        limit = 0 if step.name == "cutout" else 0.5
        assert np.abs(result.astype(int) - expected).mean() <= limit
    assert len(seen) >= min(9, len(set(steps)))


def matched(
    steps: Sequence[Step], branch: Any, given: np.ndarray, shape: Sequence[int]
) -> tuple[Step, float]:
    """Return the step and the argument that have the given settings."""
    if branch[0] == "identity":
        return Step("identity"), 0
    for step in steps:
        base, change = settings(step)
        if family(step) == branch:
            at = np.abs(change).argmax()
            amount = (given[at] - base[at]) / change[at] if change.any() else 0.0
            near = np.abs(base + change * amount - given).max() < 1e-3
            if near and is_possible(step, amount, shape):
                return step, float(np.round(amount, 4))
    raise AssertionError(f"no step of {branch} has {given}")


def is_possible(step: Step, amount: float, shape: Sequence[int]) -> bool:
    length = (shape[0] if step.name.endswith("_y") else shape[1]) if step.amount.of_side else 1
    change = step.amount.slope * length * step.level.low
    if step.amount.rounding != "none":
        change = float(int(change + 1e-6)) if change > 0 else float(int(change - 1e-6))
    expected = {
        step.amount.offset + sign * change for sign in ((1, -1) if step.amount.signed else (1,))
    }
    return step.level.bins > 0 or min(abs(amount - each) for each in expected) < 0.02


def cut_out(image: np.ndarray, half: int, center: np.ndarray, value: int) -> np.ndarray:
    height, width = image.shape[:2]
    y, x = int(center[0] * (height + 1)), int(center[1] * (width + 1))
    image = image.copy()
    image[max(0, y - half) : y + half, max(0, x - half) : x + half] = value
    return image


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("RandAugment", {"num_layers": 1}),
        ("RandAugmentV2", {"num_layers": 1, "magnitude": 8}),
        ("RandAugmentV3", {"num_layers": 1, "magnitude": 9}),
        ("TimmAutoAugment", {"config_str": "rand-m6-n1-inc1"}),
        ("TimmAutoAugment", {"config_str": "rand-m9-n1"}),
    ],
)
@pytest.mark.parametrize("size", [None, (112, 151)])
def test_policies_match_pillow_for_the_same_draws(
    name: str, arguments: dict[str, Any], size: Any
) -> None:
    check_matches_pillow(parse_operation(name, **arguments), size)


def amounts(operation: RandomSteps) -> dict[str, float]:
    """Return the argument of each step with its change added.

    As a fraction if it is one of a side.
    """
    found = {}
    for step in operation.pool:
        amount, level = step.amount, step.level.low
        share = Step(step.name, Amount(amount.offset, amount.slope, amount.rounding), step.level)
        found[step.name] = round(argument(share, level), 6)
    return found


def test_arguments_of_rand_augment() -> None:
    shared = {
        "shear_x": 0.15, "shear_y": 0.15, "translate_x": 0.226586, "translate_y": 0.226586, "rotate": 15,
        "color": 1.45, "contrast": 1.45, "sharpness": 1.45, "brightness": 1.45,
        "autocontrast": 0, "equalize": 0, "invert": 0,
    }  # fmt: skip
    assert amounts(parse_operation("RandAugment")) == {**shared, "posterize": 2, "solarize": 128}
    assert amounts(parse_operation("RandAugmentV3", magnitude=5)) == {
        **shared,
        "posterize": 6,
        "solarize": 127.5,
    }
    assert amounts(parse_operation("RandAugmentV2", magnitude=7)) == {
        "shear_x": 0.21, "shear_y": 0.21, "translate_x": 70, "translate_y": 70, "rotate": 21,
        "color": 1.36, "contrast": 1.36, "sharpness": 1.36, "brightness": 1.36, "posterize": 2, "solarize": 179,
        "solarize_add": 77, "autocontrast": 0, "equalize": 0, "invert": 0, "cutout": 28,
    }  # fmt: skip
    signed = {name: step.amount.signed for name in ("RandAugment", "RandAugmentV2", "RandAugmentV3")
             for step in parse_operation(name).pool if step.name == "rotate"}  # fmt: skip
    assert signed == {"RandAugment": False, "RandAugmentV2": True, "RandAugmentV3": True}


def test_arguments_of_timm() -> None:
    plain = {"autocontrast": 0, "equalize": 0, "invert": 0, "shear_x": 0.27, "shear_y": 0.27, "rotate": 27,
             "translate_x": 0.405, "translate_y": 0.405, "solarize_add": 99}  # fmt: skip
    enhancing = ("color", "contrast", "brightness", "sharpness")
    increasing = {**plain, "posterize": 1, "solarize": 26, **dict.fromkeys(enhancing, 1.81)}
    other = {**plain, "posterize": 3, "solarize": 230, **dict.fromkeys(enhancing, 1.72)}
    assert amounts(parse_operation("TimmAutoAugment", config_str="rand-m9-inc1")) == increasing
    assert amounts(parse_operation("TimmAutoAugment", config_str="rand-m9")) == other
    assert {
        step.fill for step in parse_operation("TimmAutoAugment").pool if step.name == "rotate"
    } == {(124, 116, 104)}
    highest = parse_operation("TimmAutoAugment", config_str="rand-m15-inc1")
    assert {step.level for step in highest.pool} == {Level(10, 10)}
    noisy = parse_operation("TimmAutoAugment", config_str="rand-m15-mstd0.5-inc1")
    assert {step.level for step in noisy.pool} == {Level(15, 15, std=0.5)}


def test_arguments_of_auto_augment() -> None:
    posterize_bits = {"posterize": [8, 8, 7, 7, 6, 6, 5, 5, 4, 4]}
    for step in itertools.chain(*parse_operation("AutoAugment").sequences):
        level = step.level.low
        expected = {
            "shear_x": 0.3 * level / 9, "rotate": 30 * level / 9, "color": 1 + 0.1 * level, "contrast": 1 + 0.1 * level,
            "sharpness": 1 + 0.1 * level, "solarize": 256 - 256 * level / 9,
            "posterize": posterize_bits["posterize"][int(level)],
        }.get(step.name, 0)  # fmt: skip
        assert argument(step, level) == pytest.approx(expected)
    assert len(parse_operation("AutoAugment").sequences) == 25
    bits = {}
    for config in ("v0", "v0r", "original", "originalr"):
        steps = itertools.chain(*parse_operation("TimmAutoAugment", config_str=config).sequences)
        bits[config] = next(argument(step, 6) for step in steps if step.name == "posterize")
    assert bits == {"v0": 2, "v0r": 2, "original": 6, "originalr": 2}


def test_notes_state_what_is_ignored() -> None:
    assert "bilinear" in parse_notes("AutoAugment")
    assert "bilinear" in parse_notes("TimmAutoAugment", interpolation="random")
    assert parse_notes("TimmAutoAugment", interpolation="bilinear") == ""
    assert parse_notes("RandAugmentV2") == ""
    assert "progress_magnitude" in parse_notes("RandAugmentV2", progress_magnitude=[5, 10])
    assert "inc1" in parse_notes("TimmAutoAugment", config_str="rand-m9-inc0")
    assert "rounding" in parse_notes("TimmAutoAugment", config_str="augmix-b1")
    assert parse_transform("TimmAutoAugment", {"config_str": None})[1:] == ()
    assert "config_str=None" in parse_notes("TimmAutoAugment", config_str=None)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("RandAugment", {"magnitud": 3}, "magnitude"),
        ("RandAugment", {"num_layers": -1}, "num_layers"),
        ("RandAugment", {"magnitude": "high"}, "magnitude"),
        ("RandAugment", {"fillcolor": [1, 2]}, "fillcolor"),
        ("RandAugmentV3", {"interpolation": "lanczos"}, "interpolation"),
        ("AutoAugment", {"prob": 1}, "prob"),
        ("AugMix", {"mixture_width": 0}, "mixture_width"),
        ("AugMix", {"prob": 2}, "prob"),
        ("AugMix", {"mixture_depth": "deep"}, "mixture_depth"),
        ("TimmAutoAugment", {"config_str": "random-m9-k3"}, "start it with one of rand, augmix"),
        ("TimmAutoAugment", {"config_str": "random"}, "originalr"),
        ("TimmAutoAugment", {"config_str": "rand-m9-k3"},
         "section 'k3'. Hint: rand takes the sections m, n, p, w, mstd, inc"),
        ("TimmAutoAugment", {"config_str": "rand-m"}, "section 'm'"),
        ("TimmAutoAugment", {"config_str": "rand-m9.5"}, "m must be an integer"),
        ("TimmAutoAugment", {"config_str": "rand-w1"}, "w must be 0"),
        ("TimmAutoAugment", {"config_str": "rand-n6-w0"},
         "count=6 allows 1235520 orders of the weighted steps"),
        ("TimmAutoAugment", {"config_str": "rand-n14-w0"},
         "count must be at most 13, the number of steps with a weight"),
        ("TimmAutoAugment", {"config_str": "auto-v1"}, "does not start with a known policy"),
        ("TimmAutoAugment", {"config_str": "v0-m5"},
         "section 'm5'. Hint: auto takes the sections mstd"),
        ("TimmAutoAugment", {"config_str": "augmix-n3"},
         "section 'n3'. Hint: augmix takes the sections m, w, d, a, b, mstd"),
        ("TimmAutoAugment", {"config_str": 9}, "config_str"),
        ("TimmAutoAugment", {"interpolation": "cubic"}, "interpolation"),
        ("TimmAutoAugment", {"img_size": "big"}, "img_size"),
        ("TrivialAugmentWide", {"num_magnitude_bins": 1}, "num_magnitude_bins"),
    ],
)  # fmt: skip
def test_errors_name_the_argument(name: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(CallError) as caught:
        parse_transform(name, arguments)
    assert message in str(caught.value)
    assert name in str(caught.value)


@pytest.mark.parametrize("name", ["AutoAugment", "RandAugment", "AugMix"])
def test_policies_need_uint8_images(name: str) -> None:
    with pytest.raises(CallError, match="normalized"):
        parse_operation(name).output(ImageSpec(is_uint8=False))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Step("twirl"),
        lambda: Step("invert", probability=1.5),
        lambda: Step("rotate", fill=(0, 0, 300)),
        lambda: Level(5, 3),
        lambda: Level(0, 3, bins=1),
        lambda: Amount(rounding="up"),  # type: ignore[arg-type]
        lambda: RandomSteps(()),
        lambda: RandomSteps((Step("invert"),), weights=(0.0,)),
        lambda: SubPolicies(((),)),
        lambda: MixedChains((), 3),
    ],
)
def test_records_check_themselves(make: Callable[[], object]) -> None:
    with pytest.raises(CallError):
        make()


# On a GPU
# --------------------------------------------------------------------------------------------------


def moving(
    filter_: Any, resample: int, slack: float, rotated: float, **others: Any
) -> Iterable[Callable[[], None]]:
    for name, amount in MOVES:
        step = Step(name, Amount(amount), filter=filter_, fill=FILL)
        bounds = {**others, "slack": rotated if name == "rotate" else slack}
        yield lambda step=step, amount=amount, bounds=bounds: check_step(
            step, amount, resample, gpu=True, **bounds
        )  # type: ignore[misc]


def enhancing() -> Iterable[Callable[[], None]]:
    for name, factor in itertools.product(
        ("color", "contrast", "brightness", "sharpness"), (-0.35, 0.55, 1, 1.9)
    ):
        step = Step(name, Amount(factor))
        yield lambda step=step, factor=factor: check_step(
            step, factor, 0, mean=0.4, most=1, gpu=True
        )  # type: ignore[misc]


def others() -> Iterable[Callable[[], None]]:
    exact = (
        ("posterize", 3),
        ("solarize", 100),
        ("solarize_add", 110),
        ("solarize_add", 165),
        ("invert", 0),
    )
    for name, amount in exact:
        step = Step(name, Amount(amount))
        yield lambda step=step, amount=amount: check_step(step, amount, 0, mean=0, most=0, gpu=True)  # type: ignore[misc]
    yield lambda: check_step(Step("autocontrast"), 0, 0, mean=0.05, most=1, gpu=True)
    yield lambda: check_step(Step("equalize"), 0, 0, mean=0.5, most=1, gpu=True)


def gpu_checks() -> list[Callable[[], None]]:
    """Return the checks that tests/gpu runs."""
    return [
        # More ties of a rotated image resolve differently on a GPU.
        *moving("nearest", Image.Resampling.NEAREST, 0.002, rotated=0.006, mean=0.05, most=0),
        *moving("linear", Image.Resampling.BILINEAR, 0.0005, rotated=0.0005, mean=0.5, most=1),
        *enhancing(),
        *others(),
        lambda: check_cutout(gpu=True),
        lambda: check_known_sizes(gpu=True),
        lambda: check_mixing(gpu=True),
        lambda: check_matches_pillow(
            parse_operation("RandAugmentV2", num_layers=1, magnitude=8), gpu=True
        ),
        lambda: check_matches_pillow(
            parse_operation("RandAugmentV2", num_layers=1, magnitude=8), (112, 151), gpu=True
        ),
        lambda: check_matches_pillow(
            parse_operation("TimmAutoAugment", config_str="rand-m6-n1-inc1"), gpu=True
        ),
        *(lambda name=name: check_name(*name, gpu=True) for name in NAMES),  # type: ignore[misc]
    ]
