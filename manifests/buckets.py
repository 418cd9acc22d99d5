"""Aspect buckets: the few sizes that lose the fewest pixels of images of many shapes. Pure.

An image is resized until it covers its bucket, and what stands out is cropped. So of an image with
the ratio r = width / height, a bucket with the ratio b keeps ``min(r / b, b / r)`` of the pixels.
On the axis log r, that depends on the distance alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints: TypeAlias = NDArray[np.integer[Any]]
    Floats: TypeAlias = NDArray[np.float64]

#: Height and width.
Size = tuple[int, int]

#: Largest side of a bucket in pixels.
MAX_SIDE = 2**15


def candidates(pixels: int, multiple_of: int) -> list[Size]:
    """Return the largest sizes of at most `pixels`, for every ratio, by ascending width / height.

    Both sides are multiples of `multiple_of`, and at most `MAX_SIDE`.
    """
    found = set()
    for short in range(multiple_of, int(pixels**0.5) + 1, multiple_of):
        long = pixels // short // multiple_of * multiple_of
        if short <= long <= MAX_SIDE:
            found |= {(short, long), (long, short)}
    return sorted(found, key=lambda size: size[1] / size[0])


def find_buckets(
    heights: Ints, widths: Ints, sizes: Sequence[Size], count: int, images: Ints | None = None
) -> list[Size]:
    """Return at most `count` of the sizes with which the images lose the fewest pixels.

    Exact: dynamic programming over the sizes in the order of their ratios, where the images between
    two chosen neighbors belong to the nearer one.

    Args:
        heights: of the images in pixels, [images].
        widths: of the images in pixels, [images].
        sizes: sizes to choose from, by ascending width / height, at least one.
        count: number of sizes to choose.
        images: how often each size occurs, [images]; `None` means once.

    """
    import numpy as np  # the modules of manifests load no array library by themselves

    ratios = np.log(widths / heights)
    if images is None:
        images = np.ones(len(ratios), np.int64)
    order = np.argsort(ratios)
    places, weights = ratios[order], images[order]
    centers = np.log([width / height for height, width in sizes])
    between, below, above = _losses(places, weights, centers)
    # best[j]: the least loss of all images up to size j, if it is the last that was chosen.
    best, chosen = below, [[each] for each in range(len(sizes))]
    least, result = float("inf"), [0]
    for _ in range(min(count, len(sizes))):
        last = int(np.argmin(best + above))
        # Rounding must not prefer more buckets that lose as much.
        if best[last] + above[last] < least - 1e-9 * weights.sum():
            least, result = float(best[last] + above[last]), chosen[last]
        totals = best[:, None] + between
        previous = np.argmin(totals, axis=0)
        best = totals[previous, np.arange(len(sizes))]
        chosen = [[*chosen[first], each] for each, first in enumerate(previous.tolist())]
    return [sizes[each] for each in result]


def _losses(places: Floats, weights: Ints, centers: Floats) -> tuple[Floats, Floats, Floats]:
    """Return what images lose between two neighbors, below the first one and above the last one.

    The loss of an image at x is 1 - exp(-|x - center|), so sums over a range are differences of
    three cumulative sums.

    Args:
        places: log ratios, ascending.
        weights: images at each.
        centers: log ratios of the sizes, ascending.

    Returns:
        [sizes, sizes], infinite where the first one does not come before the second one, then
        [sizes] and [sizes].

    """
    import numpy as np

    sums = np.zeros((3, len(places) + 1))
    sums[:, 1:] = np.cumsum([weights, weights * np.exp(-places), weights * np.exp(places)], axis=1)

    def right(center: Floats, first: Ints, end: Ints) -> Floats:
        """Return the loss of images at and above a center."""
        kept: Floats = np.exp(center) * (sums[1, end] - sums[1, first])
        lost: Floats = sums[0, end] - sums[0, first] - kept
        return lost

    def left(center: Floats, first: Ints, end: Ints) -> Floats:
        kept: Floats = np.exp(-center) * (sums[2, end] - sums[2, first])
        lost: Floats = sums[0, end] - sums[0, first] - kept
        return lost

    at = np.searchsorted(places, centers)
    start, stop = np.zeros_like(at), np.full_like(at, len(places))
    low, high = centers[:, None], centers[None, :]
    middle = np.searchsorted(places, (low + high) / 2)
    between = right(low, at[:, None], middle) + left(high, middle, at[None, :])
    between[np.tril_indices(len(centers))] = np.inf
    return between, left(centers, start, at), right(centers, at, stop)


def nearest_buckets(heights: Ints, widths: Ints, sizes: Sequence[Size]) -> tuple[Ints, Floats]:
    """Return the bucket that loses the fewest pixels of each image, and the share that it keeps.

    Of buckets with the same ratio, an image gets the largest one that does not enlarge it, or else
    the smallest one.

    Returns:
        Numbers into `sizes`, int64 [images], and shares from 0 to 1, float64 [images].

    """
    import numpy as np

    pixels = heights.astype(np.int64) * widths
    chosen = np.zeros(len(heights), np.int64)
    kept = np.zeros(len(heights))
    # By ascending area: a larger one replaces a smaller one of the same ratio only if it fits.
    for number in sorted(range(len(sizes)), key=lambda each: sizes[each][0] * sizes[each][1]):
        height, width = sizes[number]
        ratio = (widths / heights) / (width / height)
        own = np.minimum(ratio, 1 / ratio)
        fits = (own > kept - 1e-9) & (pixels >= height * width)
        better = (own > kept + 1e-9) | fits
        chosen[better], kept[better] = number, own[better]
    return chosen, kept
