"""Label images, masks and depth maps, which get the geometric transforms of their images.

The operations of the recipe are added to the graph once more, with a second `RandomStreams` of the
same seed, so they draw the same values as for the image. `GraphContext.mask_fill` makes them take
the nearest pixel.

All of this runs on the CPU, also if images are on the GPU: PNGs are decoded there anyway, and the
kernels of the GPU take other pixels as the nearest ones, so that a mask would depend on the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from loaders.dali.graph import GraphContext, Node, RandomStreams, apply_all, fn, types
from loaders.transforms.base import ImageSpec, Operation
from manifests.labels import LABELS, LabelType


def label_images(
    encoded: Node,
    kind: LabelType,
    operations: Sequence[Operation],
    context: GraphContext,
    seed: int,
    *,
    views: Sequence[Sequence[Operation]] = ((),),
) -> list[Node]:
    """Decode and transform the masks or depth maps of a batch.

    Args:
        encoded: uint8 [bytes] per sample, on the CPU: PNGs with one channel, of the size of the
            upright image.
        kind: masks have 8 bits per pixel, depth maps 16.
        operations: the operations on the image, in order, not fused: a fused operation may read
            pixels in between.
        context: where the graph runs.
        seed: seed of the context's random values.
        views: the operations of each view, which follow; also not fused.

    Returns:
        For each view uint8 [H, W] masks, or uint16 [H, W] depth maps, on the device of the images.

    """
    is_signed = LABELS[kind].pixels == "uint16"
    pixels = decode_label_image(encoded, kind)
    # DALI rotates int16 but not uint16. No operation computes with the values.
    pixels = fn.reinterpret(pixels, dtype=types.INT16) if is_signed else pixels
    as_masks = replace(context, gpu=False, random=RandomStreams(seed), mask_fill=LABELS[kind].fill)
    pixels, spec = apply_all(operations, pixels, ImageSpec(), as_masks)
    found = []
    for view in views:
        label_image, _ = apply_all(view, pixels, spec, as_masks)
        label_image = fn.reinterpret(label_image, dtype=types.UINT16) if is_signed else label_image
        label_image = fn.squeeze(label_image, axes=[2])
        found.append(label_image.gpu() if context.gpu else label_image)
    return found


def decode_label_image(encoded: Node, kind: LabelType) -> Node:
    """Decode masks, uint8 [H, W, 1], or depth maps, uint16 [H, W, 1], on the CPU."""
    dtype = types.UINT16 if LABELS[kind].pixels == "uint16" else types.UINT8
    return fn.decoders.image(encoded, device="cpu", output_type=types.GRAY, dtype=dtype)
