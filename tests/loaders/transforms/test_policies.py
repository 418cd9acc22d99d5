"""Augmentation policies: the distributions of what is drawn, and images that follow the draws.

`test_pixels` compares each step with Pillow. Each ``check_*`` function takes `gpu`, so that
tests/gpu can run it on a GPU.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from helpers.chance import MIN_PVALUE, assert_equal_counts, assert_shares
from helpers.graphs import run_each, run_operation
from helpers.parsing import parse_operation
from helpers.pixels import photographs
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

SIDES = (60, 40)

NAMES = (
    "RandAugment", "RandAugmentV2", "RandAugmentV3", "RandAugmentV4", "TrivialAugmentWide", "AutoAugment",
)  # fmt: skip

#: Names and arguments of policies whose levels are fixed or binned.
DRAWN: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in NAMES), ("RandAugmentV2", {"magnitude": 7.5}),
    ("RandAugment", {"num_layers": 1, "magnitude": 10, "fillcolor": [1, 2, 3]}),
    ("TimmAutoAugment", {"config_str": "rand-m5-n3"}), ("TimmAutoAugment", {"prob": 0.4, "config_str": "rand-m9-inc1"}),
    ("TimmAutoAugment", {"config_str": "v0"}), ("TimmAutoAugment", {"config_str": "v0r"}),
    ("TimmAutoAugment", {"config_str": "original"}), ("TimmAutoAugment", {"config_str": "auto-originalr"}),
]  # fmt: skip

OTHERS: list[tuple[str, dict[str, Any]]] = [
    ("TimmAutoAugment", {}), ("AugMix", {}), ("AugMix", {"mixture_depth": -1, "prob": 1}),
    ("TimmAutoAugment", {"config_str": "v0-mstd0.5", "interpolation": "random"}),
    ("TimmAutoAugment", {"config_str": "rand-m7-n1-w0", "prob": 0.5, "img_size": [256, 192]}),
    ("TimmAutoAugment", {"config_str": "augmix-m5-w2-d1-a0.5", "interpolation": "bilinear"}),
]  # fmt: skip


def policies() -> list[Any]:
    named = (*DRAWN[: len(NAMES)], *OTHERS)
    return [parse_operation(name, **arguments) for name, arguments in named]


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


def argument(step: Step, level: float, sign: int = 1) -> float:
    """Return the argument of a step at a level."""
    amount = step.amount
    side = SIDES[step.name.endswith("_y")] if amount.of_side else 1
    change = amount.slope * level * side
    if amount.rounding == "down":
        change = float(int(change + (1e-9 if change > 0 else -1e-9)))
    elif amount.rounding == "nearest":
        change = float(round(change))
    return amount.offset + sign * change


def key(name: tuple[Any, ...], values: np.ndarray) -> tuple[Any, ...]:
    """Return a hashable outcome. The settings of an unchanged image do not matter."""
    return name if name[0] == "identity" else (name, *(np.round(values, 3) + 0.0).tolist())


def key_at(step: Step, value: float) -> tuple[Any, ...]:
    base, change = settings(step)
    return key(family(step), (base + change * value).astype(np.float32))


def outcomes(step: Step, probability: float = 1) -> dict[Any, float]:
    """Return every outcome of a step with fixed or binned levels, and its probability."""
    level = step.level
    assert not level.std
    levels = np.linspace(level.low, level.high, level.bins) if level.bins else [level.low]
    signs = (-1, 1) if step.amount.signed else (1,)
    probability *= step.probability
    found: dict[Any, float] = {("identity",): 1 - probability}
    for each, sign in itertools.product(levels, signs):
        outcome = key_at(step, argument(step, float(each), sign))
        found[outcome] = found.get(outcome, 0) + probability / len(levels) / len(signs)
    return found


def average(parts: Iterable[dict[Any, float]]) -> dict[Any, float]:
    parts = list(parts)
    total: dict[Any, float] = {}
    for part in parts:
        for outcome, probability in part.items():
            total[outcome] = total.get(outcome, 0) + probability / len(parts)
    return total


def pairs_of(steps: tuple[Step, ...]) -> dict[Any, float]:
    """Return the outcomes of two steps that run together."""
    found: dict[Any, float] = {}
    for (one, first), (two, second) in itertools.product(*(outcomes(s).items() for s in steps)):
        found[one, two] = found.get((one, two), 0) + first * second
    return found


def assert_outcomes(observed: Iterable[Any], expected: dict[Any, float]) -> None:
    """Check that only possible outcomes occur, and their frequencies; rare ones are pooled."""
    counts = Counter(observed)
    assert set(counts) <= {outcome for outcome, probability in expected.items() if probability > 0}
    assert sum(expected.values()) == pytest.approx(1)
    total = counts.total()
    common = [outcome for outcome, probability in expected.items() if probability * total >= 8]
    found = [counts[outcome] for outcome in common]
    shares = [expected[outcome] for outcome in common]
    found.append(total - sum(found))
    shares.append(max(1 - sum(shares), 0))
    if shares[-1] < 1e-9:
        assert not found[-1]
        shares[-1] = 0
    assert_shares(np.array(found), np.array(shares) / sum(shares))


@pytest.mark.parametrize(("name", "arguments"), DRAWN)
def test_steps_have_their_probabilities(name: str, arguments: dict[str, Any]) -> None:
    """Each step and strength of a pool, independent of the others; both steps of a sequence together."""
    operation = parse_operation(name, **arguments)
    steps, sequence = drawn_steps(operation, 12_000)
    seen = []
    for branches, values in sequence:
        pairs = zip(branches, values, strict=True)
        seen.append([key(steps.families[branch], value) for branch, value in pairs])
    if isinstance(operation, SubPolicies):
        assert_outcomes(zip(*seen, strict=True), average(map(pairs_of, operation.sequences)))
        return
    expected = average(outcomes(step, operation.probability) for step in operation.pool)
    for each in seen:
        assert_outcomes(each, expected)
    if len(sequence) > 1 and operation.probability == 1:
        table = np.zeros((len(steps.families),) * 2)
        np.add.at(table, (sequence[0][0], sequence[1][0]), 1)
        assert stats.chi2_contingency(table).pvalue > MIN_PVALUE / 100


def test_weighted_steps_are_drawn_without_replacement() -> None:
    operation = parse_operation("TimmAutoAugment", config_str="rand-m9-w0")
    weights = np.array(operation.weights) / sum(operation.weights)
    orders, probabilities = weighted_orders(operation.weights, 2)
    assert len(orders) == 13 * 12
    assert sum(probabilities) == pytest.approx(1)
    for (one, two), probability in zip(orders, probabilities, strict=True):
        assert one != two
        assert probability == pytest.approx(weights[one] * weights[two] / (1 - weights[one]))

    pool = tuple(Step("posterize", Amount(bits)) for bits in range(5))
    certain = RandomSteps(pool, 3, (0.5, 0.3, 0.0, 0.15, 0.05))
    _, sequence = drawn_steps(certain, 20000)
    observed = zip(*(values[:, 1].astype(int).tolist() for _, values in sequence), strict=True)
    orders, probabilities = weighted_orders((0.5, 0.3, 0.0, 0.15, 0.05), 3)
    assert_outcomes(observed, dict(zip(orders, probabilities, strict=True)))


def test_levels_with_noise() -> None:
    """Noisy levels are normal and clipped to 0-10; arguments are truncated to integers after that."""
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
    shares = np.diff(stats.norm.cdf([-np.inf, 2.5, 5, 7.5, 10, np.inf], 5, 2))
    assert_outcomes(
        values[:, 1].tolist(), dict(zip([4.0, 3.0, 2.0, 1.0, 0.0], shares, strict=True))
    )


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


# Images
# --------------------------------------------------------------------------------------------------


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
    # Centers are 0 to 40; those from 8 to 32 give a complete square.
    assert abs(inside.mean() - 25 / 41) < 0.06
    assert_equal_counts(np.bincount(rows.argmax(1)[inside], minlength=25))


def check_steps_follow_the_draws(gpu: bool = False) -> None:
    """The images of a pool are those of the two steps that were drawn for each of them."""
    pool = tuple(
        Step(name, Amount(amount), fill=(124, 116, 104))
        for name, amount in (
            ("shear_x", 0.2), ("translate_y", 11), ("rotate", 20), ("color", 1.6), ("contrast", 0.4),
            ("sharpness", 0.2), ("posterize", 3), ("solarize", 100), ("invert", 0), ("equalize", 0),
            ("autocontrast", 0),
        )
    )  # fmt: skip
    steps = {key_at(step, step.amount.offset): step for step in pool}
    operation, image = RandomSteps(pool, 2), photographs()[0][30:100, 20:110]
    seed = [RandomStreams(0).seed(operation, "steps"), 0, 0]
    table, drawn = drawn_steps(operation, 40, seed=seed)
    chosen = []
    for branches, values in drawn:
        found = zip(branches, values, strict=True)
        chosen.append([steps[key(table.families[branch], value)] for branch, value in found])
    pairs = [*zip(*chosen, strict=True)]
    assert len(set(pairs)) > 20
    alone = [SubPolicies((pair,)) for pair in pairs]
    expected = [each for (each,) in run_each(alone, [image], gpu=gpu)]
    for spec in (ImageSpec((70, 90)), ImageSpec()):
        results = run_operation(operation, [image] * 40, spec=spec, gpu=gpu)
        for each, wanted, pair in zip(results, expected, pairs, strict=True):
            assert np.abs(each.astype(int) - wanted).max() <= 1, pair


def check_sizes(gpu: bool = False) -> None:
    """A policy keeps sizes, and NumPy computes what depends on them as the graph does that does not know them."""
    images = [photographs()[0][30:100, 20:110]] * 8
    operations = policies()
    for operation in operations:
        assert operation.output(ImageSpec()) == ImageSpec()
        assert not operation.pointwise
        with pytest.raises(CallError, match="normalized"):
            operation.output(ImageSpec(is_uint8=False))
    known = run_each(operations, images, spec=ImageSpec(size=(70, 90)), gpu=gpu)
    unknown = run_each(operations, images, gpu=gpu)
    # Of several sizes.
    mixed = run_each(operations, photographs(), gpu=gpu)
    for operation, one, two, others in zip(operations, known, unknown, mixed, strict=True):
        assert (np.array(one) != np.array(two)).mean() < 0.002, operation
        for each, image in zip(others, photographs(), strict=True):
            assert (each.shape, each.dtype) == (image.shape, np.uint8)


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


CHECKS: list[Callable[..., None]] = [
    check_cutout, check_steps_follow_the_draws, check_sizes, check_mixing
]  # fmt: skip


@pytest.mark.parametrize("check", CHECKS)
def test_on_cpu(check: Callable[[], None]) -> None:
    check()
