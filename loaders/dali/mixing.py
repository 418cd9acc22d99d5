"""Mix the images of a batch: mixup, CutMix and similar operations.

Labels are mixed after the graph.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loaders.arrays import Array
from loaders.dali.graph import GraphContext, Node, fn
from loaders.transforms.base import ImageSpec
from loaders.transforms.mixing import Mixing, draw_blend, single_mixing


def mix(
    operations: Sequence[Mixing],
    images: Node,
    spec: ImageSpec,
    context: GraphContext,
    *,
    with_images: bool = True,
    layout: str = "NHWC",
) -> tuple[Node, Node, Node]:
    """Mix the images of a batch.

    NumPy draws the partners and weights once per batch, from the seed and the batch's number
    (`RandomStreams.from_numpy`), so a checkpoint of the pipeline restores them.

    Args:
        operations: the operation to run, as a sequence of length 1.
        images: images that match `spec`, HWC or CHW.
        spec: size, channels, dtype and color space of `images`; the size must be known.
        context: where the graph runs, and its random values. All samples of a batch are mixed,
            including the samples that pad the last batch.
        with_images: whether to mix the images. If `False`, the images are returned unchanged and
            only the partners and shares for the labels are drawn. Their values do not depend on
            `with_images`.
        layout: layout of the batch, `"NHWC"` or `"NCHW"`.

    Returns:
        A tuple: float32 images in that layout, or `images` if not `with_images`; the index of each sample's
        partner in the batch, an int32 scalar; and the share of the sample's own label, a float32
        scalar from 0 to 1. Partner and share are on the CPU.

    Raises:
        CallError: there is more than one operation.
        TypeError: there is no operation, or the size of the images is unknown.

    """
    mixing = single_mixing(operations)
    if mixing is None or spec.size is None:
        raise TypeError("mixing needs an operation and images of one known size")
    size = spec.size

    def draw(rng: np.random.Generator, batch_size: int) -> tuple[Array, ...]:
        blend = draw_blend(mixing, size, batch_size, rng)
        if not with_images:
            return blend.partner, blend.share
        factors = blend.factors
        if layout == "NCHW":
            factors = np.moveaxis(factors[0], -1, 1), np.moveaxis(factors[1], -1, 1)
        return blend.partner, blend.share, *factors

    ndims = (0, 0, 3, 3) if with_images else (0, 0)
    partner, share, *factors = context.random.from_numpy(
        mixing, "blend", context.batch_size, draw, ndims
    )
    context.random.show(
        lambda share: f"{share:.0%} of this image" if share < 1 else "", lambda: (share,)
    )
    if not factors:
        return images, partner, share
    # Only the row and column factors are copied to the GPU; it multiplies them to get the weight of
    # each pixel.
    rows, columns = map(context.to_device, factors)
    weight = rows * columns
    mixed = images * (1.0 - weight) + fn.permute_batch(images, indices=partner) * weight
    return mixed, partner, share
