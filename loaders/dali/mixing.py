"""Operations on a batch -> DALI graph. It must never know labels, which are mixed after the graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.dali.base import Node, Run, fn
from loaders.transforms.base import BatchOperation, ImageSpec
from loaders.transforms.blend import draw_blend
from loaders.transforms.mixing import single_mixing


def mix(
    operations: Sequence[BatchOperation], images: Node, form: ImageSpec, run: Run, *, wanted: bool = True
) -> tuple[Node, Node, Node]:
    """Mix the images of a batch.

    What a batch has in common is drawn by NumPy, once a batch, from the seed and the batch's number: a source
    without a state of its own, which DALI saves and restores with the graph.

    Args:
        operations: exactly one.
        images: HWC, of `form`, whose size is set.
        form: of the images.
        run: where and how the graph runs; all its samples are mixed, also those that fill up a last batch.
        wanted: whether to mix the images; else only labels are to be mixed, by the same draws.

    Returns:
        Images, float32. The partner of each: its number in the batch, int32. What stays of its own label:
        float32. The last two are on the processor.

    Raises:
        CallError: there is more than one operation.

    """
    mixing = single_mixing(operations)
    if mixing is None or form.size is None:
        raise TypeError("mixing takes an operation, and images of one size")
    size = form.size

    def draw(rng: np.random.Generator, batch_size: int) -> tuple[NDArray[Any], ...]:
        blend = draw_blend(mixing, size, batch_size, rng)
        return blend.partner, blend.share, *(blend.factors if wanted else ())

    ranks = (0, 0, 3, 3) if wanted else (0, 0)
    partner, share, *factors = run.draws.in_numpy(mixing, "blend", run.batch_size, draw, ranks)
    if not factors:
        return images, partner, share
    # Rows and columns are little to bring to the GPU; their product is made there.
    rows, columns = map(run.place, factors)
    weight = rows * columns
    mixed = images * (1.0 - weight) + fn.permute_batch(images, indices=partner) * weight
    return mixed, partner, share
