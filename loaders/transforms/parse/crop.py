"""Transform names that crop, or crop and resize."""

from __future__ import annotations

from typing import Any

from loaders.transforms.base import check_bool, check_int, check_number, check_range
from loaders.transforms.crop_resize import Crop, CropAtRatio, MultiCrop, RandomResizedCrop
from loaders.transforms.parse.geometry import parse_padding
from loaders.transforms.parse.interpolation import (
    CV2_DIFFERS,
    TORCHVISION_DIFFERS,
    parse_paddleclas_interpolation,
    parse_torchvision_interpolation,
)
from loaders.transforms.parse.registry import Note, Parsed, register
from loaders.transforms.parse.values import (
    parse_height_width,
    parse_pair,
    parse_width_height,
)


@register("CropImage", "PaddleClas", differs="Images smaller than the crop are padded with zeros.")
def crop_image(size: Any) -> Parsed:
    """Crop the center, (width, height)."""
    yield Crop(parse_width_height(size), rounding="down")


@register(
    "RandomCropImage", "PaddleClas", differs="Images smaller than the crop are padded with zeros."
)
def random_crop_image(size: Any) -> Parsed:
    """Crop (width, height) at a random position."""
    yield Crop(parse_width_height(size), at="random")


@register(
    "RandCropImageV2",
    "PaddleClas",
    differs=(
        "In PaddleClas the crop can lie one pixel outside the image, which makes it smaller; here"
        " it never does."
    ),
)
def rand_crop_image_v2(size: Any) -> Parsed:
    """Crop (width, height) at a random position."""
    yield Crop(parse_width_height(size), at="random")
    yield Note(
        "PaddleClas can place the crop one pixel outside the image, which makes it smaller; here it"
        " never does"
    )


@register(
    "CropImageAtRatio", "PaddleClas", differs="Bilinear is exact; the other filters follow Pillow."
)
def crop_image_at_ratio(size: int, pad: int, interpolation: str = "bilinear") -> Parsed:
    """Crop a centered square of size / (size + pad) of the shorter side, and resize it to `size`."""
    filters = parse_paddleclas_interpolation(interpolation, "cv2")
    check_int("size", size, 1)
    check_number("pad", pad, 0)
    yield CropAtRatio(size, size / (size + pad), filters.filter)
    yield from filters.notes


@register("CenterCrop", "torchvision", "PaddleClas")
def center_crop(size: Any) -> Parsed:
    """Crop the center, (height, width)."""
    yield Crop(parse_height_width(size))


_CROPS_DIFFER = (
    "A batch is [B, crops, C, H, W]. Only ToTensor, Normalize and functions of the batch may"
    " follow."
)


@register("FiveCrop", "torchvision", differs=_CROPS_DIFFER)
def five_crop(size: Any) -> Parsed:
    """Crop the four corners and the center, (height, width)."""
    yield MultiCrop(parse_height_width(size))


@register("TenCrop", "torchvision", differs=_CROPS_DIFFER)
def ten_crop(size: Any, vertical_flip: bool = False) -> Parsed:
    """Crop the four corners and the center, (height, width), of the image and of the flipped image."""
    check_bool("vertical_flip", vertical_flip)
    yield MultiCrop(parse_height_width(size), "vertical" if vertical_flip else "horizontal")


@register(
    "RandomCrop",
    "torchvision",
    differs="pad_if_needed always pads with zeros; it ignores fill and padding_mode.",
)
def random_crop(
    size: Any,
    padding: Any = None,
    pad_if_needed: bool = False,
    fill: Any = 0,
    padding_mode: str = "constant",
) -> Parsed:
    """Crop (height, width) at a random position, after optional padding."""
    check_bool("pad_if_needed", pad_if_needed)
    pad = parse_padding(0 if padding is None else padding, fill, padding_mode)
    if padding is not None:
        yield pad
    yield Crop(parse_height_width(size), at="random", fits=not pad_if_needed)
    if pad_if_needed and (fill != 0 or padding_mode != "constant"):
        yield Note("pad_if_needed pads with zeros and ignores fill and padding_mode")


@register("RandCropImage", "PaddleClas", differs=f"{CV2_DIFFERS} progress_size is ignored.")
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
    area = (0.08, 1.0) if scale is None else parse_pair(scale, "scale")
    check_range("scale", area, 0, 1)
    yield RandomResizedCrop(
        parse_width_height(size),
        area=area,
        ratio=(3 / 4, 4 / 3) if ratio is None else parse_pair(ratio, "ratio"),
        sampling="bounded",
        log_ratio=use_log_aspect,
        filter=filters.filter,
        antialias=filters.antialias,
    )
    yield from filters.notes
    if progress_size is not None:
        yield Note("progress_size is ignored: build one loader per size")


@register(
    "RandomResizedCrop",
    "torchvision",
    "PaddleClas",
    differs=(
        "If ten draws give no crop that fits, the largest one that fits is at a random position,"
        f" not centered. {TORCHVISION_DIFFERS}"
    ),
)
def random_resized_crop(
    size: Any,
    scale: Any = (0.08, 1.0),
    ratio: Any = (3 / 4, 4 / 3),
    interpolation: Any = "bilinear",
    antialias: bool = True,
) -> Parsed:
    """Crop a random region and resize it to (height, width)."""
    area = parse_pair(scale, "scale")
    check_range("scale", area, 0, 1)
    filters = parse_torchvision_interpolation(interpolation, antialias)
    yield RandomResizedCrop(
        parse_height_width(size),
        area=area,
        ratio=parse_pair(ratio, "ratio"),
        filter=filters.filter,
        antialias=antialias,
    )
    yield from filters.notes
