"""Transform names that resize, crop, flip, rotate or pad."""

from __future__ import annotations

from typing import Any, Literal

from loaders.transforms.base import check_bool, check_choice, check_int, check_number
from loaders.transforms.geometry import (
    Crop,
    CropAtRatio,
    Flip,
    Pad,
    PadTo,
    RandomDownscale,
    RandomResizedCrop,
    RandomRightAngle,
    Resize,
    Rotate,
)
from loaders.transforms.parse.interpolation import (
    parse_backend,
    parse_paddleclas_interpolation,
    parse_torchvision_interpolation,
)
from loaders.transforms.parse.registry import Note, Parsed, register
from loaders.transforms.parse.values import (
    parse_channels,
    parse_height_width,
    parse_number,
    parse_numbers,
    parse_pair,
    parse_width_height,
)
from manifests.errors import CallError

_CV2_FILTERS = "With backend cv2, bilinear is exact; the other filters follow Pillow."


# Resize and crop, PaddleClas -----------------------------------------------------------------------------------------


@register("ResizeImage", "PaddleClas", differs=_CV2_FILTERS)
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
        yield Resize(shorter=resize_short, filter=filters.filter, antialias=filters.antialias, rounding="nearest")
    elif size is not None:
        yield Resize(parse_width_height(size), filter=filters.filter, antialias=filters.antialias)
    else:
        raise CallError("size or resize_short is required", hint="write {'ResizeImage': {'size': ...}}")
    yield from filters.notes


@register("CropImage", "PaddleClas", differs="Images smaller than the crop are padded with zeros.")
def crop_image(size: Any) -> Parsed:
    """Crop the center, (width, height)."""
    yield Crop(parse_width_height(size), rounding="down")


@register("RandomCropImage", "PaddleClas", differs="Images smaller than the crop are padded with zeros.")
def random_crop_image(size: Any) -> Parsed:
    """Crop (width, height) at a random position."""
    yield Crop(parse_width_height(size), at="random")


@register(
    "RandCropImageV2",
    "PaddleClas",
    differs="In PaddleClas the crop can lie one pixel outside the image, which makes it smaller; here it never does.",
)
def rand_crop_image_v2(size: Any) -> Parsed:
    """Crop (width, height) at a random position."""
    yield Crop(parse_width_height(size), at="random")
    yield Note("PaddleClas can place the crop one pixel outside the image, which makes it smaller; here it never does")


@register("RandCropImage", "PaddleClas", differs=f"{_CV2_FILTERS} progress_size is ignored.")
def rand_crop_image(
    size: Any,
    progress_size: Any = None,
    scale: Any = None,
    ratio: Any = None,
    interpolation: str | None = None,
    use_log_aspect: bool = False,
    backend: str = "cv2",
) -> Parsed:
    """Crop a random region and resize it to (width, height)."""
    filters = parse_paddleclas_interpolation(interpolation, backend)
    check_bool("use_log_aspect", use_log_aspect)
    yield RandomResizedCrop(
        parse_width_height(size),
        area=(0.08, 1.0) if scale is None else parse_pair(scale, "scale"),
        ratio=(3 / 4, 4 / 3) if ratio is None else parse_pair(ratio, "ratio"),
        sampling="bounded",
        log_ratio=use_log_aspect,
        filter=filters.filter,
        antialias=filters.antialias,
    )
    yield from filters.notes
    if progress_size is not None:
        yield Note("progress_size is ignored: build one loader per size")


@register("CropImageAtRatio", "PaddleClas", differs="Bilinear is exact; the other filters follow Pillow.")
def crop_image_at_ratio(size: int, pad: int, interpolation: str = "bilinear") -> Parsed:
    """Crop a centered square of size / (size + pad) of the shorter side, and resize it to `size`."""
    filters = parse_paddleclas_interpolation(interpolation, "cv2")
    check_int("size", size, 1)
    check_number("pad", pad, 0)
    yield CropAtRatio(size, size / (size + pad), filters.filter)
    yield from filters.notes


@register("RandomInterpolationAugment", "PaddleClas", differs="The area filter is never drawn.")
def random_interpolation_augment(prob: float) -> Parsed:
    """Downscale an image and upscale it again, with random filters."""
    yield RandomDownscale(prob)
    yield Note("PaddleClas also draws the area filter; here it is never drawn")


# Resize and crop, torchvision ----------------------------------------------------------------------------------------


@register("Resize", "torchvision", "PaddleClas", differs="The box filter is an antialiased triangle filter.")
def resize(size: Any, interpolation: Any = "bilinear", antialias: bool = True) -> Parsed:
    """Resize the shorter side to an integer, or resize to (height, width)."""
    filter_ = parse_torchvision_interpolation(interpolation)
    if isinstance(size, int):
        yield Resize(shorter=size, filter=filter_, antialias=antialias)
    else:
        yield Resize(parse_height_width(size), filter=filter_, antialias=antialias)


@register("CenterCrop", "torchvision", "PaddleClas")
def center_crop(size: Any) -> Parsed:
    """Crop the center, (height, width)."""
    yield Crop(parse_height_width(size))


@register("RandomCrop", "torchvision", differs="pad_if_needed pads with zeros, whatever fill and padding_mode are.")
def random_crop(
    size: Any, padding: Any = None, pad_if_needed: bool = False, fill: Any = 0, padding_mode: str = "constant"
) -> Parsed:
    """Crop (height, width) at a random position, after optional padding."""
    check_bool("pad_if_needed", pad_if_needed)
    pad = _pad(0 if padding is None else padding, fill, padding_mode)
    if padding is not None:
        yield pad
    yield Crop(parse_height_width(size), at="random")
    if pad_if_needed and (fill != 0 or padding_mode != "constant"):
        yield Note("pad_if_needed pads with zeros and ignores fill and padding_mode")


@register(
    "RandomResizedCrop",
    "torchvision",
    "PaddleClas",
    differs="If ten draws give no crop that fits, the largest one that fits is at a random position, not centered.",
)
def random_resized_crop(
    size: Any,
    scale: Any = (0.08, 1.0),
    ratio: Any = (3 / 4, 4 / 3),
    interpolation: Any = "bilinear",
    antialias: bool = True,
) -> Parsed:
    """Crop a random region and resize it to (height, width)."""
    yield RandomResizedCrop(
        parse_height_width(size),
        area=parse_pair(scale, "scale"),
        ratio=parse_pair(ratio, "ratio"),
        filter=parse_torchvision_interpolation(interpolation),
        antialias=antialias,
    )


# Flip and rotate -----------------------------------------------------------------------------------------------------


@register("RandFlipImage", "PaddleClas")
def rand_flip_image(flip_code: int = 1) -> Parsed:
    """Flip with a probability of 0.5: 1 swaps left and right, 0 top and bottom, -1 both."""
    if flip_code not in (-1, 0, 1):
        raise CallError(f"flip_code must be 1, 0 or -1, got {flip_code!r}")
    yield Flip(0.5, {1: "horizontal", 0: "vertical", -1: "both"}[flip_code])  # type: ignore[arg-type]


@register("RandomHorizontalFlip", "torchvision", "PaddleClas")
def random_horizontal_flip(prob: float = 0.5, p: float | None = None) -> Parsed:
    """Swap left and right with a probability: `p` (torchvision) or `prob` (PaddleClas)."""
    yield Flip(prob if p is None else p, "horizontal")


@register("RandomVerticalFlip", "torchvision", "PaddleClas")
def random_vertical_flip(prob: float = 0.5, p: float | None = None) -> Parsed:
    """Swap top and bottom with a probability: `p` (torchvision) or `prob` (PaddleClas)."""
    yield Flip(prob if p is None else p, "vertical")


@register(
    "RandomRotation",
    "PaddleClas",
    "torchvision",
    differs="prob is 0.5 by default as in PaddleClas; torchvision rotates every image. The bicubic filter is bilinear. "
    "expand and center are errors.",
)
def random_rotation(
    degrees: Any,
    prob: float | None = None,
    interpolation: str = "nearest",
    expand: bool = False,
    center: Any = None,
    fill: float = 0,
) -> Parsed:
    """Rotate by an angle between -degrees and degrees, or between two angles."""
    check_bool("expand", expand)
    if expand or center is not None:
        raise CallError(
            "expand and center are not supported",
            hint="leave them out: images rotate around their center and keep their size",
        )
    check_choice("interpolation", interpolation, ("nearest", "bilinear", "bicubic"))
    if isinstance(degrees, (list, tuple)):
        bounds = parse_pair(degrees, "degrees")
    else:
        limit = parse_number(degrees, "degrees")
        bounds = (-limit, limit)
    filter_: Literal["nearest", "linear"] = "nearest" if interpolation == "nearest" else "linear"
    yield Rotate(bounds, 0.5 if prob is None else prob, filter_, fill)
    if prob is None:
        yield Note("prob is 0.5 as in PaddleClas; torchvision rotates every image, which is prob=1")
    if interpolation == "bicubic":
        yield Note("the bicubic filter is replaced by a bilinear one")


@register("RandomRot90", "PaddleClas", differs="Returns only the image, not random_rot90_orientation.")
def random_rot90() -> Parsed:
    """Rotate by a random multiple of 90 degrees."""
    yield RandomRightAngle()
    yield Note("PaddleClas also returns the rotation as random_rot90_orientation; here only the image is returned")


# Pad -----------------------------------------------------------------------------------------------------------------


def _pad(padding: Any, fill: Any, mode: str) -> Pad:
    sides = tuple(padding) if isinstance(padding, (list, tuple)) else (padding,)
    if len(sides) not in (1, 2, 4) or not all(isinstance(each, int) for each in sides):
        raise CallError(f"padding must be one, two or four integers, got {padding!r}")
    left, top, right, bottom = sides * (4 // len(sides))
    values = parse_numbers(fill, "fill") if isinstance(fill, (list, tuple)) else (parse_number(fill, "fill"),) * 3
    return Pad(left, top, right, bottom, values, mode)  # type: ignore[arg-type]


@register(
    "Pad",
    "PaddleClas",
    "torchvision",
    differs="padding_mode is followed, as in torchvision; PaddleClas always pads with a constant.",
)
def pad_image(padding: Any, fill: Any = 0, padding_mode: str = "constant", backend: str = "pil") -> Parsed:
    """Pad: one number for all sides, (left and right, top and bottom), or (left, top, right, bottom)."""
    parse_backend(backend)
    yield _pad(padding, fill, padding_mode)
    if padding_mode != "constant":
        yield Note("padding_mode is followed, as in torchvision; PaddleClas always pads with a constant")


@register("Pad_paddle_vision", "PaddleClas")
def pad_paddle_vision(padding: Any, fill: Any = 0, padding_mode: str = "constant") -> Parsed:
    """Pad as paddle.vision's Pad: one number, (left and right, top and bottom), or (left, top, right, bottom)."""
    yield _pad(padding, fill, padding_mode)


@register("Padv2", "PaddleClas")
def pad_v2(
    size: Any = None,
    size_divisor: int = 32,
    pad_mode: int = 0,
    offsets: Any = None,
    fill_value: Any = (127.5, 127.5, 127.5),
) -> Parsed:
    """Pad to (width, height); `pad_mode` 0 pads right and bottom, 1 all sides, 2 left and top, -1 uses `offsets`."""
    if pad_mode not in (-1, 0, 1, 2):
        raise CallError(f"pad_mode must be one of -1, 0, 1, 2, got {pad_mode!r}")
    if pad_mode == -1 and offsets is None:
        raise CallError("pad_mode=-1 needs offsets", hint="set offsets to [left, top], or use another pad_mode")
    offset = None if offsets is None else parse_width_height(offsets, "offsets")
    at: Any = {-1: offset, 0: "start", 1: "center", 2: "end"}[pad_mode]
    target = None if size is None else parse_width_height(size)
    yield PadTo(target, size_divisor, at, parse_channels(fill_value, "fill_value"))
