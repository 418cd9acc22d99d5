"""The first and the last operations: decode images, normalize them, and convert a batch to its dtype and layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loaders.dali.crop_resize import attempt_kwargs, describe_pixels, drawn_by_dali, find_region
from loaders.dali.geometry import flip_coin
from loaders.dali.graph import GraphContext, Node, apply, fn, types
from loaders.transforms.base import ImageSpec
from loaders.transforms.decode_normalize import Decode, Normalize, Rescale, ToFloat, Unpack
from loaders.transforms.fuse import DecodeCrop, FlipNormalize


def decode(
    encoded: Node,
    operation: Decode | DecodeCrop | Unpack,
    context: GraphContext,
    hw_decoder_load: float,
) -> Node:
    """Decode images, or only the part of each that a later crop keeps, or reshape raw pixels.

    Args:
        encoded: uint8 [bytes] per sample, on the CPU: a JPEG or another encoded image, or raw RGB
            pixels for `Unpack`.
        operation: what to decode. `DecodeCrop` decodes only the region that its crop needs.
        context: the device: with a GPU, DALI's mixed decoder takes bytes on the CPU and returns
            pixels on the GPU.
        hw_decoder_load: share of the images, 0 to 1, that the GPU's hardware JPEG decoder takes.
            Ignored on the CPU.

    Returns:
        uint8 HWC, with the channel order that `operation` sets.

    """
    if isinstance(operation, Unpack):
        pixels = context.to_device(fn.reshape(encoded, shape=[*operation.size, 3], layout="HWC"))
        if operation.space == "RGB":
            return pixels
        return fn.color_space_conversion(pixels, image_type=types.RGB, output_type=types.BGR)
    whole = operation.decode if isinstance(operation, DecodeCrop) else operation
    kwargs: dict[str, Any] = {
        "device": "mixed" if context.gpu else "cpu",
        "output_type": types.RGB if whole.space == "RGB" else types.BGR,
    }
    if context.gpu:
        kwargs["hw_decoder_load"] = hw_decoder_load
    if isinstance(operation, DecodeCrop) and drawn_by_dali(operation.crop):
        # Draws the same region as `fn.random_crop_generator` with the same seed, with 5% less CPU
        # time.
        attempts = attempt_kwargs(operation.crop, context)
        context.random.show(describe_pixels, lambda: _window(encoded, attempts))
        return fn.decoders.image_random_crop(encoded, **attempts, **kwargs)
    if isinstance(operation, DecodeCrop):
        region = find_region(
            operation.crop, lambda dtype: fn.peek_image_shape(encoded, dtype=dtype), context
        )
        return fn.decoders.image_slice(
            encoded, region.start, region.shape, **region.kwargs, **kwargs
        )
    if context.gpu:
        # Interpolates chroma as the CPU decoder does. Evaluation decodes whole images, and its
        # results should not depend on the device.
        kwargs["jpeg_fancy_upsampling"] = True
    return fn.decoders.image(encoded, **kwargs)


def _window(encoded: Node, attempts: dict[str, Any]) -> Sequence[Node]:
    """Return the start and the shape of the region that `fn.decoders.image_random_crop` draws."""
    window: Sequence[Node] = fn.random_crop_generator(
        fn.peek_image_shape(encoded, dtype=types.INT64), **attempts
    )
    return window


#: The dtype that DALI returns for each dtype of a batch. DALI has no bfloat16, so the framework
#: converts float32.
_DTYPES = {
    "float16": types.FLOAT16,
    "float32": types.FLOAT,
    "bfloat16": types.FLOAT,
    "uint8": types.UINT8,
}


def finish(
    image: Node,
    last: Normalize | FlipNormalize | None,
    spec: ImageSpec,
    context: GraphContext,
    *,
    dtype: str,
    layout: str,
) -> Node:
    """Convert images to the dtype and layout of the batch.

    Args:
        image: HWC images, or NHWC for images of several crops.
        last: the normalization if it is the last operation, else `None`. One DALI operator
            normalizes and converts.
        spec: size, channels and number of crops of `image`.
        context: where the graph runs, and its random values.
        dtype: `"float16"`, `"bfloat16"` (returned as float32), `"float32"` or `"uint8"`.
        layout: `"NCHW"` or `"NHWC"`.

    """
    dali_dtype = _DTYPES[dtype]
    if last is not None:
        return _normalize(image, last, spec, context, dtype=dali_dtype, layout=layout[1:])
    if layout == "NCHW":
        image = fn.transpose(image, perm=[0, 3, 1, 2] if spec.crops else [2, 0, 1])
    return fn.cast(image, dtype=dali_dtype)


@apply.register
def _(operation: Normalize, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    return _normalize(image, operation, spec, context, dtype=types.FLOAT, layout="HWC")


@apply.register
def _(operation: FlipNormalize, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    return _normalize(image, operation, spec, context, dtype=types.FLOAT, layout="HWC")


@apply.register
def _(operation: Rescale, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    return fn.cast(image, dtype=types.FLOAT) / 255.0


@apply.register
def _(operation: ToFloat, image: Node, spec: ImageSpec, context: GraphContext) -> Node:
    return fn.cast(image, dtype=types.FLOAT)


def _normalize(
    image: Node,
    operation: Normalize | FlipNormalize,
    spec: ImageSpec,
    context: GraphContext,
    *,
    dtype: Any,
    layout: str,
) -> Node:
    mirror: Node | int = 0
    if isinstance(operation, FlipNormalize):
        mirror, operation = flip_coin(operation.flip, context), operation.normalize
    return fn.crop_mirror_normalize(
        image,
        mirror=mirror,
        mean=[value / operation.scale for value in operation.mean],
        std=[value / operation.scale for value in operation.std],
        dtype=dtype,
        output_layout=f"F{layout}" if spec.crops else layout,
        pad_output=operation.channels == 4,
    )
