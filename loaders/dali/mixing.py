"""Mixup, cutmix and their kin: mix the images of a batch. Labels are mixed after the graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.dali.graph import GraphContext, Node, fn
from loaders.transforms.base import BatchOperation, ImageSpec
from loaders.transforms.blend import draw_blend
from loaders.transforms.mixing import single_mixing


def mix(
    operations: Sequence[BatchOperation], images: Node, spec: ImageSpec, context: GraphContext, *, wanted: bool = True
) -> tuple[Node, Node, Node]:
    """Mix the images of a batch.

    NumPy draws the partners and weights once per batch, from the seed and the batch's number
    (`RandomStreams.from_numpy`), so a checkpoint of the pipeline restores them.

    Args:
        operations: exactly one.
        images: HWC images that match `spec`.
        spec: size, channels, dtype and color space of `images`; the size must be known.
        context: where the graph runs, and its random values. All samples of a batch are mixed, including those that
            pad the last batch.
        wanted: whether to mix the images. If `False`, they stay as they are, and only the partners and shares for
            the labels are drawn; they have the same values either way.

    Returns:
        A tuple of float32 HWC images (`images` itself if not `wanted`); each sample's partner, its index in the
        batch, as an int32 scalar; and the share of the sample's own label, as a float32 scalar from 0 to 1. Partner
        and share are on the CPU.

    Raises:
        CallError: there is more than one operation.
        TypeError: there is no operation, or the size of the images is unknown.

    """
    mixing = single_mixing(operations)
    if mixing is None or spec.size is None:
        raise TypeError("mixing needs an operation, and images of one known size")
    size = spec.size

    def draw(rng: np.random.Generator, batch_size: int) -> tuple[NDArray[Any], ...]:
        blend = draw_blend(mixing, size, batch_size, rng)
        return blend.partner, blend.share, *(blend.factors if wanted else ())

    ndims = (0, 0, 3, 3) if wanted else (0, 0)
    partner, share, *factors = context.random.from_numpy(mixing, "blend", context.batch_size, draw, ndims)
    if not factors:
        return images, partner, share
    # Only the row and column factors are copied to the GPU; it multiplies them to get the weight of each pixel.
    rows, columns = map(context.to_device, factors)
    weight = rows * columns
    mixed = images * (1.0 - weight) + fn.permute_batch(images, indices=partner) * weight
    return mixed, partner, share
