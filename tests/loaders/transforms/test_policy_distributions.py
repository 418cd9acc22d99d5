"""Policies draw each operation and its strength, 100,000 times, with the probabilities of torchvision's policies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from helpers.chance import MIN_PVALUE, assert_equal_counts, assert_probability
from helpers.draws import COUNT, REFERENCE, assert_column, drawn
from helpers.parsing import parse_operation
from helpers.torchvision_oracle import import_torchvision
from scipy import stats
from test_policies import SIDES, drawn_steps, family, key, outcomes, settings

from loaders.dali.policies import draw_shares
from loaders.transforms.base import ImageSpec

torchvision, _ = import_torchvision()


def of_torchvision(operation: Any, space: dict[str, tuple[torch.Tensor, bool]]) -> dict[Any, float]:
    """Return the outcomes of one step that torchvision's table of magnitudes gives, and their probabilities."""
    steps = {step.name.replace("_", ""): step for step in operation.pool}
    assert len(steps) == len(space)
    expected: Counter[Any] = Counter()
    for name, (magnitudes, signed) in space.items():
        step = steps[name.lower()]
        base, change = settings(step)
        for magnitude in np.atleast_1d(magnitudes.double().numpy()):
            for sign in (-1, 1) if signed else (1,):
                # In float32, one of torchvision's 31 magnitudes is 15.999999 instead of 16.
                moved = (
                    float(int(magnitude + 1e-5))
                    if name.startswith("Translate")
                    else float(magnitude)
                )
                factor = name in ("Brightness", "Color", "Contrast", "Sharpness")
                argument = (1 if factor else 0) + sign * moved
                values = (base + change * argument).astype(np.float32)
                share = 1 / len(space) / np.size(magnitudes.numpy()) / (2 if signed else 1)
                expected[key(family(step), values)] += share  # type: ignore[assignment]
    return dict(expected)


def check_frequencies(observed: Counter[Any], expected: dict[Any, float]) -> None:
    assert sum(expected.values()) == pytest.approx(1)
    names = list(expected)
    assert set(observed) <= set(names), set(observed) - set(names)
    total = observed.total()
    counts = [observed[name] for name in names]
    assert stats.chisquare(counts, [expected[name] * total for name in names]).pvalue > MIN_PVALUE


def counted(families: Sequence[Any], branches: np.ndarray, values: np.ndarray) -> Counter[Any]:
    """Count the outcomes of a step."""
    rows, counts = np.unique(
        np.column_stack([branches, np.round(values, 3) + 0.0]), axis=0, return_counts=True
    )
    found: Counter[Any] = Counter()
    for row, count in zip(rows, counts.tolist(), strict=True):
        found[key(families[int(row[0])], row[1:].astype(np.float32))] += count
    return found


def rand_augment_space() -> dict[str, tuple[torch.Tensor, bool]]:
    space = torchvision.RandAugment(2, 9)._augmentation_space(31, (SIDES[1], SIDES[0]))
    return {
        name: (values[9] if values.ndim else values, signed)
        for name, (values, signed) in space.items()
    }


@pytest.mark.parametrize(
    ("name", "arguments", "space"),
    [
        (
            "TrivialAugmentWide",
            {},
            lambda: torchvision.TrivialAugmentWide()._augmentation_space(31),
        ),
        ("RandAugment", {"num_ops": 2, "magnitude": 9}, rand_augment_space),
    ],
)
def test_steps_have_the_frequencies_of_torchvision(name, arguments, space):
    operation = parse_operation(name, **arguments)
    table, steps = drawn_steps(operation, COUNT, seed=2)
    expected = of_torchvision(operation, space())
    for branches, values in steps:
        check_frequencies(counted(table.families, branches, values), expected)


def test_sub_policies_have_the_probabilities_of_torchvision():
    operation = parse_operation("AutoAugment")
    policies = torchvision.AutoAugment()._get_policies(torchvision.AutoAugmentPolicy.IMAGENET)
    written = [
        tuple((name.lower(), probability) for name, probability, _ in policy) for policy in policies
    ]
    ours = [
        tuple((step.name.replace("_", ""), step.probability) for step in each)
        for each in operation.sequences
    ]
    assert ours == written
    table, steps = drawn_steps(operation, COUNT, seed=4)
    for place, (branches, values) in enumerate(steps):
        expected: Counter[Any] = Counter()
        for sequence in operation.sequences:
            for outcome, probability in outcomes(sequence[place]).items():
                expected[outcome] += probability / len(written)  # type: ignore[assignment]
        possible = {
            outcome: probability for outcome, probability in expected.items() if probability
        }
        check_frequencies(counted(table.families, branches, values), possible)


# AugMix
# --------------------------------------------------------------------------------------------------


def aug_mix_space(severity: int) -> dict[str, tuple[torch.Tensor, bool]]:
    """Return the magnitudes that torchvision's AugMix draws from: the lowest `severity` of ten."""
    space = torchvision.AugMix()._augmentation_space(10, (SIDES[1], SIDES[0]))
    return {
        name: (values[:severity] if values.ndim else values, signed)
        for name, (values, signed) in space.items()
    }


def test_steps_of_aug_mix():
    """Chains of one, two and three steps are equally likely, and each step is drawn from all."""
    operation = parse_operation("AugMix", severity=3)
    count = COUNT // 2
    table, steps = drawn_steps(operation, count, seed=6)
    assert len(steps) == 3 * operation.width
    skipped = table.families.index(("identity",)) if ("identity",) in table.families else None
    expected = of_torchvision(operation, aug_mix_space(3))
    lengths = np.zeros((operation.width, count), int)
    for place, (branches, values) in enumerate(steps):
        reached = branches != skipped
        lengths[place // 3] += reached
        assert_probability(reached, (3 - place % 3) / 3)
        if place < 3:
            check_frequencies(counted(table.families, branches[reached], values[reached]), expected)
    for chain in lengths:
        assert_equal_counts(np.bincount(chain, minlength=4)[1:])


@pytest.mark.parametrize("alpha", [1.0, 0.4])
def test_shares_of_aug_mix(alpha):
    """The shares of the image and of the chains have torchvision's distributions."""
    operation = parse_operation("AugMix", severity=3, alpha=alpha)
    ours = draw_shares(operation, np.random.default_rng(1), COUNT)
    transform = torchvision.AugMix(alpha=alpha)
    own = torch.tensor([alpha, alpha]).expand(REFERENCE, -1)
    torch.manual_seed(1)
    mixture = transform._sample_dirichlet(own)
    chains = (
        transform._sample_dirichlet(torch.tensor([alpha] * 3).expand(REFERENCE, -1))
        * mixture[:, 1:]
    )
    for one, two in zip(ours, torch.cat([mixture[:, :1], chains], dim=1).T.numpy(), strict=True):
        assert_column(one, two)


# On both devices
# --------------------------------------------------------------------------------------------------


def check_graph_draws(gpu: bool = False) -> None:
    """The graph draws with the functions that the other tests check: the same branches for the same generator."""
    for name, arguments in (
        ("TrivialAugmentWide", {}),
        ("RandAugment", {"num_ops": 2}),
        ("AutoAugment", {}),
    ):
        operation = parse_operation(name, **arguments)
        found = drawn(
            operation, "steps", gpu=gpu, count=5000, spec=ImageSpec(size=(SIDES[1], SIDES[0]))
        )
        _, steps = drawn_steps(operation, 5000, seed=3)
        for number, (branches, _) in enumerate(steps):
            assert (found[2 * number] == branches).all()


CHECKS = [check_graph_draws]


def test_on_cpu():
    check_graph_draws()
