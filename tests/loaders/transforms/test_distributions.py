"""Parameters that random transforms draw, 100,000 times, have the distribution of torchvision's.

Draws run on the CPU in every graph, so this holds for both devices. Other tests check what the parameters do to images.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import nvidia.dali as dali
import pytest
import torch
from helpers.chance import MIN_PVALUE, assert_probability
from helpers.parsing import parse_operation
from helpers.torchvision_oracle import import_torchvision
from nvidia.dali import fn, types
from scipy import stats
from test_policies import SIDES, drawn_steps, family, key, outcomes, settings

from loaders.dali import apply
from loaders.dali.color import jitter_plans
from loaders.dali.crop import find_region
from loaders.dali.geometry import flip_coin
from loaders.dali.graph import GraphContext, RandomStreams
from loaders.dali.warps import inverse_affine
from loaders.transforms.base import ImageSpec
from loaders.transforms.color import ColorJitter
from loaders.transforms.crop import Crop, RandomResizedCrop
from loaders.transforms.geometry import Flip
from loaders.transforms.masks import RandomErasing

torchvision, _ = import_torchvision()

COUNT, BATCH = 100_000, 5000

#: Draws of torchvision, which takes up to 65 microseconds for one.
REFERENCE = 20_000

HEIGHT, WIDTH = 375, 500


class Recorder(RandomStreams):
    """Keeps what draws: NumPy functions, and nodes of the graph."""

    def __init__(self) -> None:
        super().__init__(11)
        self.functions: dict[str, Callable[..., Any]] = {}
        self.nodes: dict[str, Any] = {}

    def from_numpy(self, owner, name, batch_size, draw, ndims):
        self.functions[name] = draw
        return super().from_numpy(owner, name, batch_size, draw, ndims)

    def uniform(self, owner, name, low, high):
        self.nodes[name] = super().uniform(owner, name, low, high)
        return self.nodes[name]


def graph(make: Callable[[GraphContext], Sequence[Any]]) -> list[np.ndarray]:
    """Return `COUNT` values of each of several nodes."""
    pipeline = dali.Pipeline(batch_size=BATCH, num_threads=2, device_id=None, seed=5, exec_dynamic=True)
    with pipeline:
        pipeline.set_outputs(*make(GraphContext(False, BATCH, Recorder())))
    runs = [[np.array(each.as_tensor()) for each in pipeline.run()] for _ in range(COUNT // BATCH)]
    return [np.concatenate(values) for values in zip(*runs, strict=True)]


def record(operation: Any) -> Recorder:
    """Build the graph of an operation, and return what draws in it."""
    recorder = Recorder()
    with dali.Pipeline(batch_size=1, num_threads=1, device_id=None):
        image = fn.external_source(dtype=types.UINT8, ndim=3, layout="HWC")
        apply(operation, image, ImageSpec(size=(HEIGHT, WIDTH)), GraphContext(False, 1, recorder))
    return recorder


def drawn(operation: Any, name: str) -> list[np.ndarray]:
    """Draw with a NumPy function of an operation."""
    return record(operation).functions[name](np.random.default_rng(3), COUNT)


def reference(draw: Callable[[], Any], count: int = REFERENCE) -> np.ndarray:
    torch.manual_seed(7)
    return np.array([draw() for _ in range(count)], np.float64)


def assert_same(ours: np.ndarray, theirs: np.ndarray) -> None:
    """Check each column with a Kolmogorov-Smirnov test, and their rank correlations."""
    assert len(ours) == COUNT
    for number, (one, two) in enumerate(zip(ours.T, theirs.T, strict=True)):
        assert stats.ks_2samp(one, two).pvalue > MIN_PVALUE, number
    if ours.shape[1] > 2:
        difference = stats.spearmanr(ours[:REFERENCE])[0] - stats.spearmanr(theirs)[0]
        # Five times the standard deviation of the difference of two such correlations.
        assert np.abs(difference).max() < 5 * np.sqrt(2 / REFERENCE)


def regions(crop: Any) -> np.ndarray:
    def make(context: GraphContext) -> Sequence[Any]:
        shape = [HEIGHT, WIDTH, 3]
        region = find_region(crop, lambda dtype: fn.cast(fn.constant(idata=shape, shape=[3]), dtype=dtype), context)
        assert not region.normalized
        return [region.start, region.shape]

    return np.concatenate(graph(make), axis=1)


@pytest.mark.parametrize(("area", "ratio"), [((0.08, 1.0), (3 / 4, 4 / 3)), ((0.5, 0.6), (0.5, 3.0))])
def test_random_resized_crop(area, ratio):
    image = torch.empty(3, HEIGHT, WIDTH)
    theirs = reference(lambda: torchvision.RandomResizedCrop.get_params(image, area, ratio))
    ours = regions(RandomResizedCrop((224, 224), area, ratio))

    def with_shares(found: np.ndarray) -> np.ndarray:
        tall, wide = found[:, 2], found[:, 3]
        return np.column_stack([found, tall * wide, wide / tall])

    assert_same(with_shares(ours), with_shares(theirs))


def test_random_crop():
    image = torch.empty(3, HEIGHT, WIDTH)
    theirs = reference(lambda: torchvision.RandomCrop.get_params(image, (224, 300)))
    ours = regions(Crop((224, 300), "random"))
    assert (ours[:, 2:] == (224, 300)).all()
    assert_same(ours[:, :2], theirs[:, :2])


def test_random_erasing():
    image = torch.empty(3, HEIGHT, WIDTH)
    scale, ratio = (0.02, 0.33), (0.3, 3.3)
    theirs = reference(lambda: torchvision.RandomErasing.get_params(image, scale, ratio, [0.0])[:4])
    operation = RandomErasing(probability=1.0, area=scale, ratio=ratio, log_ratio=True, attempts=10)
    assert_same(np.concatenate(drawn(operation, "part"), axis=1), theirs)


def test_random_affine():
    operation = parse_operation(
        "RandomAffine", degrees=[-20, 30], translate=[0.1, 0.2], scale=[0.8, 1.3], shear=[-5, 5, -7, 10]
    )
    linear, shift = drawn(operation, "map")
    ours = np.column_stack([linear.reshape(-1, 4), np.round(shift * (WIDTH, HEIGHT))])

    def draw() -> list[float]:
        angle, (x, y), scale, shear = torchvision.RandomAffine.get_params(
            [-20, 30], [0.1, 0.2], [0.8, 1.3], [-5, 5, -7, 10], [WIDTH, HEIGHT]
        )
        return [angle, scale, *shear, x, y]

    theirs = reference(draw)
    map_of = inverse_affine(theirs[:, 0], theirs[:, 1], theirs[:, 2:4]).reshape(-1, 4)
    assert_same(ours, np.column_stack([map_of, theirs[:, 4:]]))


def test_color_jitter():
    arguments = {"brightness": 0.4, "contrast": 0.3, "saturation": 0.5, "hue": 0.1}
    ranges = [[0.6, 1.4], [0.7, 1.3], [0.5, 1.5], [-0.1, 0.1]]
    theirs = reference(lambda: torchvision.ColorJitter.get_params(*ranges)[1:])
    ours = []
    for name, value in arguments.items():
        first = drawn(parse_operation("ColorJitter", **{name: value}), "changes")[0]
        if name == "contrast":
            ours.append(first)
        elif name == "hue":
            ours.append((first[:, 0] - first.mean(axis=0)[0]) / (2 * np.pi))
        else:
            # factor * identity + (1 - factor) * other, whose rows are equal
            ours.append(first[:, 0, 0] - first[:, 1, 0])
    for one, two in zip(ours, theirs.T, strict=True):
        assert stats.ks_2samp(one, two).pvalue > MIN_PVALUE


def test_orders_of_color_jitter():
    """Each adjustment is as often before another one as after it."""
    arguments = {"contrast": (0.7, 1.3), "hue": (-0.1, 0.1)}
    slots, _ = jitter_plans(list(arguments))
    assert slots == ["contrast", "hue", "contrast"]
    outputs = drawn(ColorJitter(**arguments), "changes")
    before, after = (outputs[number] != 1 for number in (0, -2))
    assert (before ^ after).all()
    assert_probability(before, 0.5)


@pytest.mark.parametrize(
    ("name", "arguments", "node", "draw"),
    [
        ("RandomRotation", {"degrees": [-30, 45]}, "angle", lambda: torchvision.RandomRotation.get_params([-30, 45])),
        (
            "GaussianBlur", {"kernel_size": 5, "sigma": [0.1, 2.0]}, "sigma",
            lambda: torchvision.GaussianBlur.get_params(0.1, 2.0),
        ),
    ],
)  # fmt: skip
def test_angles_and_widths(name, arguments, node, draw):
    def make(context: GraphContext) -> Sequence[Any]:
        image = types.Constant(np.zeros((8, 8, 3), np.uint8))
        apply(parse_operation(name, **arguments), image, ImageSpec(), context)
        return [context.random.nodes[node]]  # type: ignore[attr-defined]

    (ours,) = graph(make)
    assert stats.ks_2samp(ours.ravel(), reference(draw)).pvalue > MIN_PVALUE


@pytest.mark.parametrize("probability", [0.02, 0.5, 0.9])
def test_flips(probability):
    (ours,) = graph(lambda context: [flip_coin(Flip(probability), context)])
    assert_probability(ours, probability)


# --- policies -------------------------------------------------------------------------------------


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
                moved = float(int(magnitude + 1e-5)) if name.startswith("Translate") else float(magnitude)
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
    rows, counts = np.unique(np.column_stack([branches, np.round(values, 3) + 0.0]), axis=0, return_counts=True)
    found: Counter[Any] = Counter()
    for row, count in zip(rows, counts.tolist(), strict=True):
        found[key(families[int(row[0])], row[1:].astype(np.float32))] += count
    return found


def rand_augment_space() -> dict[str, tuple[torch.Tensor, bool]]:
    space = torchvision.RandAugment(2, 9)._augmentation_space(31, (SIDES[1], SIDES[0]))
    return {name: (values[9] if values.ndim else values, signed) for name, (values, signed) in space.items()}


@pytest.mark.parametrize(
    ("name", "arguments", "space"),
    [
        ("TrivialAugmentWide", {}, lambda: torchvision.TrivialAugmentWide()._augmentation_space(31)),
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
    written = [tuple((name.lower(), probability) for name, probability, _ in policy) for policy in policies]
    ours = [tuple((step.name.replace("_", ""), step.probability) for step in each) for each in operation.sequences]
    assert ours == written
    table, steps = drawn_steps(operation, COUNT, seed=4)
    for place, (branches, values) in enumerate(steps):
        expected: Counter[Any] = Counter()
        for sequence in operation.sequences:
            for outcome, probability in outcomes(sequence[place]).items():
                expected[outcome] += probability / len(written)  # type: ignore[assignment]
        possible = {outcome: probability for outcome, probability in expected.items() if probability}
        check_frequencies(counted(table.families, branches, values), possible)
