"""Masks, depth maps and boxes, which stay where the geometric transforms put what they label.

The operations of the recipe are added to the graph once more, with a second `RandomStreams` of the
same seed, so they draw the same values as for the image.

`GraphContext.mask_fill` makes the operations take the nearest pixel of a mask or depth map. All of
this runs on the CPU, also if images are on the GPU: PNGs are decoded there anyway, and the kernels
of the GPU take other pixels as the nearest ones, so that a mask would depend on the device.

The graph knows no boxes. It computes for each image how coordinates change, a frame, and NumPy
applies that to the boxes of a batch (`loaders.dataset.labels`). A frame is float32 [5, 2] on the
CPU, height before width:

- row 0: the sides of the image.
- row 1: the scale. A coordinate of the stored image times the scale plus the offset is the one in
  the result. It is negative after a flip.
- row 2: the offset.
- rows 3 and 4: two opposite corners of the rectangle of the result that shows pixels of the stored
  image. What a crop cuts off stays outside of it, even if a later operation pads the image again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from loaders.dali.crop_resize import find_region, jittered_sides, resized_sides
from loaders.dali.geometry import flip_coin, padded_region
from loaders.dali.graph import (
    GraphContext,
    Node,
    apply,
    apply_all,
    constant,
    fn,
    math,
    move_frame,
    types,
)
from loaders.transforms.base import BUCKET, ImageSpec, Operation
from loaders.transforms.combinators import Combinator
from loaders.transforms.crop_resize import (
    Crop,
    CropAtRatio,
    KeepSize,
    RandomResizedCrop,
    Resize,
    ScaleJitter,
)
from loaders.transforms.geometry import Flip, Pad, PadTo
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
    if is_signed:
        pixels = fn.reinterpret(pixels, dtype=types.INT16)
    as_masks = replace(
        context, gpu=False, random=context.random.again(seed), mask_fill=LABELS[kind].fill
    )
    pixels, spec = apply_all(operations, pixels, ImageSpec(), as_masks)
    found = []
    for view in views:
        label_image, _ = apply_all(view, pixels, spec, as_masks)
        if is_signed:
            label_image = fn.reinterpret(label_image, dtype=types.UINT16)
        label_image = fn.squeeze(label_image, axes=[2])
        found.append(label_image.gpu() if context.gpu else label_image)
    return found


def decode_label_image(encoded: Node, kind: LabelType) -> Node:
    """Decode masks, uint8 [H, W, 1], or depth maps, uint16 [H, W, 1], on the CPU."""
    dtype = types.UINT16 if LABELS[kind].pixels == "uint16" else types.UINT8
    return fn.decoders.image(encoded, device="cpu", output_type=types.GRAY, dtype=dtype)


def frames(
    encoded: Node,
    operations: Sequence[Operation],
    context: GraphContext,
    seed: int,
    *,
    views: Sequence[Sequence[Operation]] = ((),),
) -> list[Node]:
    """Return how the operations of a recipe change the coordinates of each image, for each view: float32 [5, 2], CPU.

    Args:
        encoded: the images, uint8 [bytes] per sample, on the CPU. Only their headers are read.
        operations: the operations on the image, in order, not fused.
        context: where the graph runs.
        seed: seed of the context's random values.
        views: the operations of each view, which follow; also not fused.

    """
    size = operations[0].output(ImageSpec()).size
    sides = fn.peek_image_shape(encoded, dtype=types.FLOAT)[:2] if size is None else constant(size)
    start = constant([[0, 0], [1, 1], [0, 0], [0, 0], [0, 0]])
    # The constants describe an image without an area; its sides are also its second corner.
    frame = start + fn.stack(sides, sides * 0.0, sides * 0.0, sides * 0.0, sides)
    as_frames = replace(context, random=context.random.again(seed), frames=True)
    frame, spec = apply_all(operations, frame, ImageSpec(), as_frames)
    return [apply_all(view, frame, spec, as_frames)[0] for view in views]


def _rows(*parts: Node) -> Node:
    return fn.cat(*(fn.reshape(part, shape=[-1, 2]) for part in parts), axis=0)


def _cut(frame: Node, start: Node, shape: Node) -> Node:
    """Return the frames of the regions that start at `start`, which may be negative, and have the sides `shape`."""
    corners = math.min(math.max(frame[3:5] - start, 0.0), shape)
    return _rows(shape, frame[1], frame[2] - start, corners)


def _scale(frame: Node, sides: Node) -> Node:
    return _rows(sides, frame[1:5] * (sides / frame[0]))


@move_frame.register
def _(operation: Flip, frame: Node, spec: ImageSpec, context: GraphContext) -> Node:
    axes = {"vertical": (1, 0), "horizontal": (0, 1), "both": (1, 1)}[operation.axis]
    flipped = fn.cast(flip_coin(operation, context), dtype=types.FLOAT) * constant(axes)
    moved = frame[1:5] * (1.0 - 2.0 * flipped) + constant([[0], [1], [1], [1]]) * (
        flipped * frame[0]
    )
    return _rows(frame[0], moved)


@move_frame.register
def _(
    operation: Crop | RandomResizedCrop | CropAtRatio,
    frame: Node,
    spec: ImageSpec,
    context: GraphContext,
) -> Node:
    sides = frame[0]
    shape = fn.cat(sides, constant([3]))
    region = find_region(operation, lambda dtype: fn.cast(shape, dtype=dtype), context)
    if region.normalized:
        # DALI rounds both ends of the region to pixels.
        start = math.floor(region.start * sides + 0.5)
        end = math.floor((region.start + region.shape) * sides + 0.5)
        frame = _cut(frame, start, end - start)
    else:
        frame = _cut(
            frame, *(fn.cast(each, dtype=types.FLOAT) for each in (region.start, region.shape))
        )
    # A crop at its own scale is scaled by 1.
    output = operation.output(ImageSpec())
    return _scale(frame, context.sides(BUCKET if output.of_bucket else output.size))


@move_frame.register
def _(operation: KeepSize, frame: Node, spec: ImageSpec, context: GraphContext) -> Node:
    return frame


@move_frame.register
def _(operation: Resize, frame: Node, spec: ImageSpec, context: GraphContext) -> Node:
    return _scale(frame, resized_sides(operation, frame[0], context))


@move_frame.register
def _(operation: ScaleJitter, frame: Node, spec: ImageSpec, context: GraphContext) -> Node:
    return _scale(frame, jittered_sides(operation, frame[0], context))


@move_frame.register
def _(operation: Pad, frame: Node, spec: ImageSpec, context: GraphContext) -> Node:
    added = constant((operation.top + operation.bottom, operation.left + operation.right))
    return _cut(frame, constant((-operation.top, -operation.left)), frame[0] + added)


@move_frame.register
def _(operation: PadTo, frame: Node, spec: ImageSpec, context: GraphContext) -> Node:
    return _cut(frame, *padded_region(operation, frame[0]))


@move_frame.register
def _(operation: Combinator, frame: Node, spec: ImageSpec, context: GraphContext) -> Node:
    return apply(operation, frame, spec, context)
