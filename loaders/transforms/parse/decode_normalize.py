"""Transform names that decode or normalize."""

from __future__ import annotations

from typing import Any

from loaders.transforms.base import check_bool, check_choice
from loaders.transforms.decode_normalize import Decode, Normalize, Rescale
from loaders.transforms.parse.interpolation import parse_backend
from loaders.transforms.parse.registry import Note, Parsed, register
from loaders.transforms.parse.values import parse_channels, parse_number
from manifests.errors import CallError
from manifests.process.text import shown


@register(
    "DecodeImage",
    "PaddleClas",
    differs=(
        "Applies the EXIF orientation with either backend. channel_first=True is an error: build's"
        " layout sets it."
    ),
)
def decode_image(
    to_np: bool = True, to_rgb: bool = True, channel_first: bool = False, backend: str = "cv2"
) -> Parsed:
    """Decode an image; with ``to_rgb=False`` the channels stay blue, green, red."""
    for name, value in (("to_np", to_np), ("to_rgb", to_rgb), ("channel_first", channel_first)):
        check_bool(name, value)
    if channel_first:
        raise CallError(
            "channel_first=True is not supported",
            hint='remove it, and set layout="NCHW" or "NHWC" in loaders.build',
        )
    parse_backend(backend)
    yield Decode("RGB" if to_rgb or not to_np else "BGR")


@register(
    "ToTensor", "torchvision", "PaddleClas", differs="build's layout sets the layout of a batch."
)
def to_tensor() -> Parsed:
    """Scale values from 0-255 to 0-1."""
    yield Rescale()


@register(
    "Normalize",
    "torchvision",
    "PaddleClas",
    differs="The position of the channels is known, so data_format changes nothing.",
)
def normalize(mean: Any, std: Any, data_format: str = "CHW", to_rgb: bool = False) -> Parsed:
    """Subtract `mean` and divide by `std`; use it after ToTensor."""
    check_choice("data_format", data_format, ("CHW", "HWC"))
    check_bool("to_rgb", to_rgb)
    if to_rgb:
        raise CallError(
            "to_rgb=True is not supported", hint="remove it, and set to_rgb in DecodeImage"
        )
    yield Normalize(parse_channels(mean, "mean"), parse_channels(std, "std"), scale=1.0)


@register(
    "NormalizeImage",
    "PaddleClas",
    differs=(
        "The position of the channels is known, so order changes nothing. build's dtype replaces"
        " output_fp16."
    ),
)
def normalize_image(
    scale: Any = None,
    mean: Any = None,
    std: Any = None,
    order: str = "chw",
    output_fp16: bool = False,
    channel_num: int = 3,
) -> Parsed:
    """Multiply by `scale`, subtract `mean` and divide by `std`.

    PaddleClas needs `order` to find the channel axis of its array: ``"hwc"`` or ``""`` before
    ToCHWImage, ``"chw"`` after it. It fails if `order` is wrong.
    """
    check_choice("order", order, ("chw", "hwc", ""))
    check_bool("output_fp16", output_fp16)
    if channel_num not in (3, 4):
        raise CallError(f"channel_num must be 3 or 4, got {shown(channel_num)}")
    yield Normalize(
        (0.485, 0.456, 0.406) if mean is None else parse_channels(mean, "mean"),
        (0.229, 0.224, 0.225) if std is None else parse_channels(std, "std"),
        scale=1 / 255 if scale is None else parse_number(scale, "scale"),
        channels=channel_num,
    )
    if output_fp16:
        yield Note(
            "output_fp16 is ignored: build's dtype sets the type of a batch, float16 by default"
        )


@register(
    "ToCHWImage", "PaddleClas", differs="Does nothing: build's layout sets the layout of a batch."
)
def to_chw_image() -> Parsed:
    """Transpose HWC to CHW."""
    yield from ()
