"""Transform names that convert between the types of torchvision: images, tensors and their dtypes."""

from __future__ import annotations

from typing import Any

from loaders.transforms.base import check_bool
from loaders.transforms.decode_normalize import Rescale, ToFloat
from loaders.transforms.parse.registry import NeedsBytes, Note, Parsed, register
from manifests.errors import CallError
from manifests.process.text import shown

_NOTHING = "Does nothing: images are already what it converts to."
_FLOATS = ("float32", "float16", "bfloat16", "float64", "float", "half", "double")


@register("ToImage", "torchvision", differs=_NOTHING)
def to_image() -> Parsed:
    """Convert an image or array to a tensor of bytes."""
    yield from ()


@register("PILToTensor", "torchvision", differs=_NOTHING)
def pil_to_tensor() -> Parsed:
    """Convert an image to a tensor of bytes."""
    yield from ()


@register("ToPureTensor", "torchvision", differs=_NOTHING)
def to_pure_tensor() -> Parsed:
    """Convert tensors of torchvision to plain ones."""
    yield from ()


@register("RGB", "torchvision", differs=_NOTHING)
def rgb() -> Parsed:
    """Convert to red, green, blue."""
    yield from ()


@register("Identity", "torchvision")
def identity() -> Parsed:
    """Change nothing."""
    yield from ()


@register("ConvertImageDtype", "torchvision", differs="build's dtype sets the type of a batch.")
def convert_image_dtype(dtype: Any = "float32") -> Parsed:
    """Convert to floating point and scale values from 0-255 to 0-1.

    With dtype uint8, keep bytes.
    """
    yield from _convert(dtype, scale=True)


@register("ToDtype", "torchvision", differs="build's dtype sets the type of a batch.")
def to_dtype(dtype: Any, scale: bool = False) -> Parsed:
    """Convert to floating point, and scale values from 0-255 to 0-1 if `scale` is set.

    With dtype uint8, keep bytes.
    """
    check_bool("scale", scale)
    yield from _convert(dtype, scale=scale)


def _convert(dtype: Any, *, scale: bool) -> Parsed:
    # torch's dtypes print as `torch.float32`.
    name = (
        dtype if isinstance(dtype, str) else str(dtype) if type(dtype).__module__ == "torch" else ""
    )
    name = name.removeprefix("torch.")
    if name in _FLOATS:
        yield Rescale() if scale else ToFloat()
        if name not in ("float32", "float"):
            yield Note(f"dtype {name} is ignored: build's dtype sets the type of a batch")
    elif name == "uint8":
        yield NeedsBytes()
    else:
        raise CallError(f"dtype must be one of uint8, {', '.join(_FLOATS)}, got {shown(dtype)}")
