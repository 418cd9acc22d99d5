"""Decode encoded images to uint8 HWC pixels, on the GPU or on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loaders.dali.crop import attempt_kwargs, describe_pixels, drawn_by_dali, find_region
from loaders.dali.graph import GraphContext, Node, fn, types
from loaders.transforms.decode_normalize import Decode, Unpack
from loaders.transforms.fuse import DecodeCrop


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
