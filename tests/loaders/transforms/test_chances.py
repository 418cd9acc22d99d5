"""Random operations: how often each outcome occurs in images, where crops are, and what a seed repeats.

Each ``check_*`` function takes `gpu`, so that tests/gpu can run it on a GPU. `test_distributions`
and others check the parameters that are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import permutations, product
from typing import Any

import cv2
import numpy as np
import pytest
import test_erasing
import test_policies
from helpers.chance import (
    MIN_PVALUE,
    assert_equal_counts,
    assert_equally_likely,
    assert_probability,
    assert_shares,
)
from helpers.draws import draws_of
from helpers.graphs import run_each, run_operation, run_stacked
from helpers.parsing import parse_operation
from helpers.pixels import normalized, photographs
from scipy import stats
from test_pixels import enhanced, grayed, hue_shifted, resized

from loaders.dali.color import motion_kernels
from loaders.transforms.base import ImageSpec, Operation, Size
from loaders.transforms.color import (
    ColorJitter,
    GaussianBlur,
    PCALighting,
    RandomBlur,
    RandomGrayscale,
)
from loaders.transforms.combinators import RandomApply, RandomChoice, RandomOrder
from loaders.transforms.crop_resize import Crop, RandomDownscale, RandomResizedCrop, Resize
from loaders.transforms.erasing import GridMask, KeepPart, RandomErasing
from loaders.transforms.geometry import Flip, Pad, RandomRightAngle, Rotate
from loaders.transforms.policies import Amount, MixedChains, RandomSteps, Step

SMALL = np.arange(27, dtype=np.uint8).reshape(3, 3, 3) * 9
PHOTO = np.ascontiguousarray(photographs()[0][60:97, 100:153])

#: Images that an operation may give, each with its probability.
Outcomes = list[tuple[np.ndarray, float]]


def step(name: str, argument: float = 0) -> RandomSteps:
    return RandomSteps((Step(name, Amount(argument)),), 1)


FLIP, INVERT = Flip(1.0), step("invert")


def in_any_order(image: np.ndarray, steps: Sequence[Callable[[Any], Any]]) -> Outcomes:
    """Return the results of functions in each order."""
    results: Outcomes = []
    orders = [*permutations(steps)]
    for order in orders:
        made = image
        for function in order:
            made = np.rint(function(made)).astype(np.uint8)
        results.append((made, 1 / len(orders)))
    return results


def chances(gpu: bool) -> Iterator[tuple[Operation, np.ndarray, Outcomes, float]]:
    """Yield an operation, an image, the outcomes, and how far an image may be from its outcome."""
    mirrored = SMALL[:, ::-1]
    for axis, flipped in (("vertical", SMALL[::-1]), ("both", SMALL[::-1, ::-1])):
        yield Flip(0.3, axis), SMALL, [(flipped, 0.3), (SMALL, 0.7)], 0
    both = RandomApply((FLIP, INVERT), 0.3)
    yield both, SMALL, [(255 - mirrored, 0.3), (SMALL, 0.7)], 0
    # What is contained draws for each image.
    yield RandomApply((Flip(0.5),), 0.5), SMALL, [(mirrored, 0.25), (SMALL, 0.75)], 0
    chains = ((FLIP,), (INVERT,), ())
    for weights, shares in ((None, [1 / 3] * 3), ((1.0, 3.0, 0.0), [0.25, 0.75, 0])):
        images = (mirrored, 255 - SMALL, SMALL)
        yield RandomChoice(chains, weights), SMALL, [*zip(images, shares, strict=True)], 0
    functions = (
        lambda x: np.where(x >= 100, 255 - x, x),
        lambda x: x & 0b11000000,
        lambda x: 255 - x,
    )
    steps = ((step("solarize", 100),), (step("posterize", 2),), (INVERT,))
    yield RandomOrder(steps), SMALL, in_any_order(SMALL, functions), 0
    turns: Outcomes = [(np.rot90(SMALL, number), 0.25) for number in range(4)]
    yield RandomRightAngle(), SMALL, turns, 0
    for image in (PHOTO, normalized(PHOTO)):
        # Of each size, with each filter.
        filters = ("nearest", "linear", "cubic", "lanczos")
        resizes = [Resize((50, 60), filter=name) for name in filters[1:3]]
        outcomes = [(each, 0.5) for (each,) in run_each(resizes, [image], gpu=gpu)]
        yield Resize((50, 60), filter="random"), image, outcomes, 0
        pairs = []
        for small, large in product(filters, filters):
            first = Resize((16, 16), filter=small, antialias=False)
            pairs.append((first, Resize((37, 53), filter=large, antialias=False)))
        outcomes = [(each, 1 / 16) for (each,) in run_each(pairs, [image], gpu=gpu)]
        yield RandomDownscale(1.0, (0.45, 0.45)), image, outcomes, 0
    # Changes so strong that each order gives other colors.
    jitter = ColorJitter((1.7, 1.7), (1.6, 1.6), (1.8, 1.8), hue=(0.3, 0.3))
    changes = (
        lambda image: enhanced(image, "brightness", 1.7),
        lambda image: enhanced(image, "contrast", 1.6),
        lambda image: enhanced(image, "saturation", 1.8),
        lambda image: hue_shifted(image, 0.3),
    )
    image = photographs()[0][::10, ::10]
    yield jitter, image, in_any_order(image, changes), 1
    yield RandomGrayscale(0.3), PHOTO, [(grayed(PHOTO), 0.3), (PHOTO, 0.7)], 1


def check_chances(gpu: bool = False) -> None:
    count = 2000
    for operation, image, outcomes, most in chances(gpu):
        # Two orders may give the same image.
        shares: dict[bytes, float] = {}
        for each, share in outcomes:
            shares[each.tobytes()] = shares.get(each.tobytes(), 0) + share
        assert len(shares) >= max(2, len(outcomes) - 2), operation
        found = run_stacked(operation, image, count, gpu=gpu)
        candidates = [np.frombuffer(each, found.dtype).reshape(found[0].shape) for each in shares]
        distances = []
        for each in candidates:
            distances.append(np.abs(found.astype(np.float32) - each).mean((1, 2, 3)))
        assert np.min(distances, axis=0).max() <= most, operation
        if len(candidates) > 2 and most:  # no image could be of another outcome
            assert np.sort(distances, axis=0)[1].min() > 1.5 * np.min(distances, axis=0).max()
        counts = np.bincount(np.argmin(distances, axis=0), minlength=len(shares))
        assert_shares(counts, [*shares.values()])


def check_probabilities(gpu: bool = False) -> None:
    """How often an image changes, whatever it becomes."""
    operations = [
        Rotate((-30, 45), 0.3),
        RandomDownscale(0.3, (0.2, 0.9)),
        ColorJitter((0.5, 0.5), (0.5, 0.5), (0.5, 0.5), (0.2, 0.2), 0.3),
        *(RandomErasing(0.3, (0.1, 0.2), mode=mode) for mode in ("constant", "color", "pixels")),
        *(GridMask((8, 9), hide=hide, probability=0.3) for hide in ("lines", "squares")),
        KeepPart((0.1, 0.5), probability=0.3),
    ]
    for operation, found in zip(
        operations, run_each(operations, [PHOTO] * 100, runs=10, gpu=gpu), strict=True
    ):
        assert_probability([not np.array_equal(each, PHOTO) for each in found], 0.3), operation
    often = parse_operation("AugMix", prob=0.3, aug_severity=5, aug_prob_coeff=1.0)
    found = run_operation(often, photographs()[:1] * 100, runs=4, gpu=gpu)
    assert 0.55 < np.mean([np.array_equal(each, photographs()[0]) for each in found]) < 0.82


def check_blurs(gpu: bool = False) -> None:
    """Blurs with windows of four lengths, or along lines of four lengths and 90 angles, as OpenCV does."""
    image = np.random.default_rng(1).integers(0, 256, (14, 14, 3), np.uint8)
    sides = (5, 7, 9, 11)
    gaussians = [cv2.GaussianBlur(image, (width, height), 0) for height in sides for width in sides]
    motions = []
    for kernel in motion_kernels(12, 45):
        moved = cv2.filter2D(image, -1, kernel)
        motions.append(cv2.normalize(moved, None, 0, 255, cv2.NORM_MINMAX))
    candidates = np.stack([image, *gaussians, *motions]).astype(np.float32).reshape(377, -1)
    found = run_stacked(RandomBlur(0.75), image, 3000, gpu=gpu).astype(np.float32).reshape(3000, -1)
    difference = np.stack([np.abs(candidates - each).mean(-1) for each in found])
    assert difference.min(-1).max() <= 1.5
    nearest = difference.argmin(-1)
    assert (found[nearest == 0] == candidates[0]).all()
    kinds = np.searchsorted([1, 17], nearest, side="right")
    assert_shares(np.bincount(kinds), [0.25, 0.375, 0.375])
    assert_equal_counts(np.bincount(nearest[kinds == 1] - 1, minlength=16))
    motion = nearest[kinds == 2] - 17
    assert_equal_counts(np.bincount(motion // 90, minlength=4))
    # Neighboring angles of the shortest line are hard to distinguish, so ten are counted together.
    assert_equal_counts(np.bincount(motion % 90 // 10, minlength=9))


def check_lighting(gpu: bool = False) -> None:
    """All pixels of an image are shifted by the draw, which bytes multiply by 255."""
    for image, unit in ((np.full((4, 5, 3), 0.25, np.float32), 1), (PHOTO[:4, :5], 255)):
        spec = ImageSpec((4, 5), is_uint8=unit == 255)
        found = run_stacked(PCALighting(), image, 100, spec=spec, gpu=gpu)
        (shift,) = draws_of(PCALighting(), "shift", 100, spec=spec)
        expected = image + shift[:, None, None]
        if unit == 255:
            expected = np.clip(np.rint(expected), 0, 255)
        assert np.abs(found - expected).max() <= (1 if unit == 255 else 1e-6)
        assert np.abs(shift).max() > 0.02 * unit


# Crops
# --------------------------------------------------------------------------------------------------


def coordinates(height: int, width: int) -> np.ndarray:
    """Return an image whose channels are the row, the column, and 1, which pixels from outside do not have."""
    rows, columns = np.mgrid[:height, :width]
    return np.stack([rows, columns, np.ones_like(rows)], axis=-1).astype(np.float32)


def check_places_of_crops(gpu: bool = False) -> None:
    """Any place inside the image, and for a smaller image any place inside the crop."""
    for kind, size in product((np.uint8, np.float32), ((9, 11), (15, 11))):
        image, starts = coordinates(12, 15).astype(kind), []
        wide = np.pad(image, ((50, 50), (50, 50), (0, 0)))
        for found in run_stacked(Crop(size, at="random"), image, 1000, gpu=gpu):
            row = int(found[..., 2].any(1).argmax())
            top, left = int(found[row, 0, 0]) - row + 50, int(found[row, 0, 1]) + 50
            starts.append((top, left))
            assert (found == wide[top : top + size[0], left : left + size[1]]).all()
        assert_equally_likely(starts, 4 * 5)


def crop_regions(operation: RandomResizedCrop, size: Size, count: int, gpu: bool) -> np.ndarray:
    """Return top, left, height and width of the crops of `count` images: [count, 4]."""
    found = run_stacked(operation, coordinates(*size), count, gpu=gpu).astype(float)
    starts, lengths = [], []
    for axis, side in enumerate(found.shape[1:3]):
        # Away from the border, pixel j has the coordinate start + (j + 1/2) length / side - 1/2.
        first, last = side // 4, side - 1 - side // 4
        middle = np.moveaxis(found[..., axis], 1 + axis, 1)[:, :, found.shape[2 - axis] // 2]
        length = (middle[:, last] - middle[:, first]) / (last - first) * side
        starts.append(middle[:, first] - (first + 0.5) * length / side + 0.5)
        lengths.append(length)
    exact = np.column_stack([*starts, *lengths])
    # DALI tabulates its filters, so antialiased ones are not exact.
    assert np.abs(exact - exact.round()).max() < 0.3
    return exact.round().astype(int)


def check_resized_crops(gpu: bool = False) -> None:
    """What is in crops; and if no attempt fits, the largest crop that fits is taken, at a random position."""
    photos = [photographs()[1], PHOTO]
    for image, how, name in product(photos, ("attempts", "bounded"), ("linear", "triangular")):
        crop = RandomResizedCrop((19, 23), sampling=how, filter=name)
        places = crop_regions(crop, image.shape[:2], 12, gpu)
        for place, found in zip(places, run_stacked(crop, image, 12, gpu=gpu), strict=True):
            top, left, tall, wide = place
            inner = image[top : top + tall, left : left + wide]
            assert np.abs(found - resized(inner, (19, 23), name)).max() < 0.56
    crop, longer = RandomResizedCrop((4, 4), (0.5, 1.0), antialias=False), round(40 * 4 / 3)
    for height, width in ((40, 301), (301, 40)):
        regions = crop_regions(crop, (height, width), 300, gpu)
        assert (regions[:, 2:] == ((40, longer) if height < width else (longer, 40))).all()
        along = regions[:, 1] if height < width else regions[:, 0]
        assert stats.kstest(along / (301 - longer), "uniform").pvalue > MIN_PVALUE


def check_smallest_images(gpu: bool = False) -> None:
    images = [np.full((*shape, 3), 7, np.uint8) for shape in ((1, 1), (1, 9), (9, 1), (2, 3))]
    for how in ("attempts", "bounded"):
        crop = RandomResizedCrop((5, 4), (0.01, 0.02), sampling=how)
        for found in run_operation(crop, images, runs=100, gpu=gpu):
            assert found.shape == (5, 4, 3)
            assert (found == 7).all()


def check_sizes_in_containers(gpu: bool = False) -> None:
    image = np.full((20, 30, 3), 100, np.uint8)
    center, anywhere = Crop((8, 8)), Crop((8, 8), at="random")
    chains = [
        (RandomApply((Pad(1, 1, 1, 1),), 0.5), Crop((18, 28))),
        (RandomChoice(((center,), (anywhere,))),),
    ]
    padded, cropped = run_each(chains, [image] * 8, gpu=gpu)
    assert all((each == 100).all() for each in padded)
    assert {each.shape for each in cropped} == {(8, 8, 3)}


# Seeds
# --------------------------------------------------------------------------------------------------

JITTER = ((0.6, 1.4), (0.6, 1.4), (0.6, 1.4), (-0.1, 0.1))

RANDOM: tuple[Operation, ...] = (
    Resize((50, 60), filter="random"), Crop((30, 31), at="random"), RandomResizedCrop((30, 31)),
    RandomResizedCrop((30, 31), sampling="bounded"), RandomResizedCrop((30, 31), filter="random"),
    Flip(), Rotate((-90, 90), 0.5), RandomRightAngle(), RandomDownscale(0.5),
    ColorJitter(*JITTER, 0.8), ColorJitter((0.6, 1.4)), RandomGrayscale(0.5), PCALighting(0.3),
    GaussianBlur((5, 5)), RandomBlur(0.9), KeepPart(probability=0.9), *test_erasing.DRAWN,
    MixedChains((Step("invert"),), 3, 1), *test_policies.policies(),
)  # fmt: skip


def check_seeds(gpu: bool = False) -> None:
    """Batches differ, a seed repeats them, and another seed gives others."""
    images = [PHOTO[:, :37]] * 30
    first, again, other = (
        run_each(RANDOM, images, runs=2, seed=seed, gpu=gpu) for seed in (1, 1, 2)
    )
    for operation, *results in zip(RANDOM, first, again, other, strict=True):
        one, same, different = map(np.stack, results)
        assert np.array_equal(one, same), operation
        assert not np.array_equal(one, different), operation
        assert not np.array_equal(one[:30], one[30:]), operation


CHECKS = [each for name, each in list(globals().items()) if name.startswith("check_")]


@pytest.mark.parametrize("check", CHECKS)
def test_on_cpu(check):
    check()
