"""Operations that contain others: how often each runs, and in which order.

Each ``check_*`` function takes `gpu`, so that tests/gpu can run it on a GPU.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from helpers.chance import assert_probability
from helpers.graphs import run_operation, run_stacked
from helpers.parsing import recipe_error

from loaders.transforms.combinators import RandomApply, RandomChoice, RandomOrder
from loaders.transforms.crop_resize import Crop
from loaders.transforms.geometry import Flip, Pad
from loaders.transforms.policies import Amount, RandomSteps, Step
from manifests.errors import CallError

IMAGE = np.arange(27, dtype=np.uint8).reshape(3, 3, 3) * 9
FLIP = Flip(1.0)


def step(name: str, argument: float = 0) -> RandomSteps:
    return RandomSteps((Step(name, Amount(argument)),), 1)


INVERT = step("invert")


def check_apply(gpu: bool = False) -> None:
    found = run_stacked(RandomApply((FLIP, INVERT), 0.3), IMAGE, 2000, gpu=gpu)
    changed = (found == 255 - IMAGE[:, ::-1]).all((1, 2, 3))
    assert (changed | (found == IMAGE).all((1, 2, 3))).all()
    assert_probability(changed, 0.3)


def check_apply_draws_inside(gpu: bool = False) -> None:
    """What is contained draws for each image."""
    found = run_stacked(RandomApply((Flip(0.5),), 0.5), IMAGE, 2000, gpu=gpu)
    assert_probability((found == IMAGE[:, ::-1]).all((1, 2, 3)), 0.25)


def check_choice(gpu: bool = False) -> None:
    expected = [IMAGE[:, ::-1], 255 - IMAGE, IMAGE]
    for weights, shares in ((None, [1 / 3] * 3), ((1.0, 3.0, 0.0), [0.25, 0.75, 0])):
        found = run_stacked(RandomChoice(((FLIP,), (INVERT,), ()), weights), IMAGE, 2000, gpu=gpu)
        chosen = [(found == each).all((1, 2, 3)) for each in expected]
        assert np.sum(chosen) == 2000
        for each, share in zip(chosen, shares, strict=True):
            assert_probability(each, share)


def check_order(gpu: bool = False) -> None:
    # Solarize, posterize and invert give another result in each order.
    chains = ((step("solarize", 100),), (step("posterize", 2),), (INVERT,))
    found = run_stacked(RandomOrder(chains), IMAGE, 3000, gpu=gpu)
    functions = [
        lambda x: np.where(x >= 100, 255 - x, x),
        lambda x: x & 0b11000000,
        lambda x: 255 - x,
    ]
    orders = [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
    results = {}
    for order in orders:
        image = IMAGE
        for number in order:
            image = functions[number](image)
        results[order] = image.astype(np.uint8).tobytes()
    counts, expected = Counter(each.tobytes() for each in found), Counter(results.values())
    assert set(counts) == set(expected)
    assert len(expected) >= 4
    for result, times in expected.items():
        assert_probability(np.arange(3000) < counts[result], times / len(orders))


def check_sizes_that_vary(gpu: bool = False) -> None:
    image = np.full((20, 30, 3), 100, np.uint8)
    padded = run_operation(
        [RandomApply((Pad(1, 1, 1, 1),), 0.5), Crop((18, 28))], [image] * 8, gpu=gpu
    )
    assert all((each == 100).all() for each in padded)
    cropped = run_operation(
        RandomChoice(((Crop((8, 8)),), (Crop((8, 8), at="random"),))), [image] * 8, gpu=gpu
    )
    assert {each.shape for each in cropped} == {(8, 8, 3)}


@pytest.mark.parametrize(
    "check",
    [check_apply, check_apply_draws_inside, check_choice, check_order, check_sizes_that_vary],
)
def test_containers(check) -> None:
    check()


def test_work_is_limited() -> None:
    order = RandomOrder(((FLIP,),) * 6)
    assert order.work == 36
    with pytest.raises(
        CallError, match="RandomOrder would run 1296 operations per image, but at most 100"
    ):
        RandomOrder(((order,),) * 6)
    with pytest.raises(CallError, match="chains must contain at most 6 values, got 7"):
        RandomOrder(((FLIP,),) * 7)
    nested = "RandomInvert"
    for _ in range(9):
        nested = {"RandomApply": {"transforms": [nested]}}
    assert "transforms are nested more than 8 levels deep" in recipe_error([nested])
    for _ in range(5000):
        nested = {"RandomApply": {"transforms": [nested]}}
    assert "transforms are nested more than 8 levels deep" in recipe_error([nested])
