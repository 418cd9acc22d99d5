"""Transform names that resize."""

from __future__ import annotations

from typing import Any

from loaders.transforms.base import check_bool, check_number
from loaders.transforms.crop_resize import RandomDownscale, Resize, ResizeWithin
from loaders.transforms.parse.interpolation import (
    CV2_DIFFERS,
    TORCHVISION_DIFFERS,
    parse_paddleclas_interpolation,
    parse_torchvision_interpolation,
)
from loaders.transforms.parse.registry import Note, Parsed, register
from loaders.transforms.parse.values import (
    parse_height_width,
    parse_width_height,
)
from manifests.errors import CallError


@register("ResizeImage", "PaddleClas", differs=CV2_DIFFERS)
def resize_image(
    size: Any = None,
    resize_short: int | None = None,
    interpolation: str | None = None,
    backend: str = "cv2",
    return_numpy: bool = True,
) -> Parsed:
    """Resize to (width, height), or resize the shorter side to `resize_short`."""
    check_bool("return_numpy", return_numpy)
    filters = parse_paddleclas_interpolation(interpolation, backend)
    if resize_short is not None:
        check_number("resize_short", resize_short)
    if resize_short is not None and resize_short > 0:
        yield Resize(
            shorter=resize_short,
            filter=filters.filter,
            antialias=filters.antialias,
            rounding="nearest",
        )
    elif size is not None:
        yield Resize(parse_width_height(size), filter=filters.filter, antialias=filters.antialias)
    else:
        raise CallError(
            "size or resize_short is required", hint="write {'ResizeImage': {'size': ...}}"
        )
    yield from filters.notes


@register(
    "Resize",
    "torchvision",
    "PaddleClas",
    differs=TORCHVISION_DIFFERS,
)
def resize(
    size: Any = None, interpolation: Any = "bilinear", antialias: bool = True, max_size: Any = None
) -> Parsed:
    """Resize the shorter side to an integer, the longer to at most `max_size`.

    Or resize the longer side to `max_size`, or to (height, width).
    """
    filters = parse_torchvision_interpolation(interpolation, antialias)
    filter_ = filters.filter
    if max_size is not None:
        if size is not None and not isinstance(size, int):
            raise CallError(
                "max_size needs a size of one number",
                hint="remove max_size, or write size as one number",
            )
        yield ResizeWithin(shorter=size, filter=filter_, antialias=antialias, longest=max_size)
    elif size is None:
        raise CallError("size or max_size is required", hint="write {'Resize': {'size': ...}}")
    elif isinstance(size, int):
        yield Resize(shorter=size, filter=filter_, antialias=antialias)
    else:
        yield Resize(parse_height_width(size), filter=filter_, antialias=antialias)
    yield from filters.notes


@register("RandomInterpolationAugment", "PaddleClas", differs="The area filter is never drawn.")
def random_interpolation_augment(prob: float) -> Parsed:
    """Downscale an image and upscale it again, with random filters."""
    yield RandomDownscale(prob)
    yield Note("PaddleClas also draws the area filter; here it is never drawn")
