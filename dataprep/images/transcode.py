"""Decode images that DALI does not decode, and encode them in a format that it does.

The pixels are upright and sRGB, and everything else in the file is dropped: EXIF, XMP, color
profiles, thumbnails. PNG is lossless, JPEG has 4:4:4 chroma, and WebP is lossy.
"""

from __future__ import annotations

import io
import math
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import simplejpeg
from PIL import Image

from dataprep.images.base import ImageInfo, Rejected
from dataprep.images.foreign import Foreign
from dataprep.images.isolated import ISOLATED, Limits
from dataprep.images.tiff import parse_page, write_tiff
from dataprep.images.validate import check_size
from dataprep.options import Choice, Options, Transcode
from manifests.pixels import RGB8, PixelKind, PixelType

if TYPE_CHECKING:
    from dataprep.arrays import AnyArray

_GRAY8, _GRAY16 = PixelKind(1, "uint8"), PixelKind(1, "uint16")
#: Kinds of pixels that each encoder takes; the encoder of TIFF takes all.
_ENCODED: dict[str, tuple[PixelKind, ...]] = {
    "jpeg": (_GRAY8, RGB8),
    "png": (_GRAY8, RGB8, _GRAY16),
    "webp": (_GRAY8, RGB8),
}

#: Quality of a JPEG or a WebP, unless images are also resized with another one.
QUALITY = 90

#: Longest side, in pixels, that each encoder accepts.
_MAX_SIDES: dict[Transcode, int] = {
    "jpeg": 65_500,
    "png": 1_000_000,
    "webp": 16_383,
    "tiff": 1_000_000,
}


def measure(data: bytes, found: Foreign, options: Options) -> ImageInfo:
    """Read the size of an image, upright, and the kind of its pixels, and check them.

    Raises:
        Rejected: the image is too large or damaged, or the library that decodes it is missing.

    """
    if find_spec(found.module) is None:
        install = "install a Pillow that decodes it"
        if found.extra:
            install = f"install it: pip install 'dataprep-loaders[{found.extra}]'"
        raise Rejected("unsupported", f"{found.name} needs {found.module}; {install}")
    if found.kind == "tiff-page":
        info = parse_page(data, options.page)._replace(format=found.kind)
    else:
        settings: dict[str, Any] = {"kind": found.kind}
        if found.kind == "dicom":
            settings["windowed"] = options.window is not None
        values, _ = ISOLATED.call("measure", data, settings, _limits(data, 0))
        kind = PixelKind(*values["pixels"])
        info = ImageInfo(found.kind, values["width"], values["height"], kind)
    if not info.width or not info.height:
        raise Rejected("corrupt", f"{found.name} of {info.width}x{info.height} pixels")
    check_size(data, info, options.max_pixels)
    return info


def decode(
    data: bytes, info: ImageInfo, choice: Choice
) -> tuple[AnyArray, tuple[str, ...], dict[str, float]]:
    """Decode an image that was measured.

    Args:
        data: the encoded image.
        info: what `measure` returned.
        choice: `Options.choice`.

    Returns:
        The pixels, upright, uint8 [H, W] of gray or [H, W, 3] of sRGB, or the values of
        `info.pixels`; the changes that this needed, as in `dataprep.images.pixels.Decoded.repairs`;
        and values for `RESCALE_COLUMNS`, if there are any.

    Raises:
        Rejected: the image does not decode.

    """
    limits = _limits(data, info.width * info.height * -(-info.pixels.size // RGB8.size))
    settings: dict[str, Any] = {"kind": info.format}
    if info.format == "dicom":
        settings["window"] = choice.window
    elif info.format == "tiff-page":
        settings["page"] = choice.page
    values, content = ISOLATED.call("decode", data, settings, limits)
    pixels = np.frombuffer(content, values["dtype"]).reshape(values["shape"])
    kind = math.prod(pixels.shape[2:]), values["dtype"]
    is_same = kind == info.pixels or (kind == _GRAY8 and info.pixels == RGB8)
    if pixels.shape[:2] != (info.height, info.width) or not is_same:
        height, width = pixels.shape[:2]
        raise Rejected(
            "corrupt",
            f"the image states two sizes: {info.width}x{info.height} and {width}x{height} pixels"
            f" of {pixels.dtype}",
        )
    return pixels, tuple(values["changes"]), values.get("columns") or {}


def encode(pixels: AnyArray, options: Options) -> bytes:
    """Encode pixels in the format that the options name.

    Raises:
        Rejected: the format has no images of this size or kind.

    """
    target, quality = options.transcode, QUALITY
    if target is None:
        raise ValueError("the options do not transcode")
    if options.downscale:
        quality = options.downscale.quality
    height, width = pixels.shape[:2]
    if max(height, width) > _MAX_SIDES[target]:
        raise Rejected(
            "unsupported",
            f"{width}x{height} pixels, but {target} has at most {_MAX_SIDES[target]} per side; use"
            " --transcode png, or set --max-side",
        )
    if target == "tiff":
        return write_tiff(pixels)
    kind = PixelKind(math.prod(pixels.shape[2:]), cast("PixelType", pixels.dtype.name))
    if kind not in _ENCODED[target]:
        raise Rejected("unsupported", f"{kind}, which {target} does not have; use --transcode tiff")
    if target == "jpeg":
        if pixels.ndim == 2:
            return bytes(simplejpeg.encode_jpeg(pixels[..., None], quality, "GRAY", "Gray"))
        return bytes(simplejpeg.encode_jpeg(pixels, quality, "RGB", "444"))
    file = io.BytesIO()
    settings = {"quality": quality} if target == "webp" else {}
    Image.fromarray(pixels).save(file, target, **settings)
    return file.getvalue()


#: Address space that a decoder needs for itself, and for each pixel.
_BASE_MEMORY, _PIXEL_MEMORY = 128 << 20, 20

#: CPU time that every image may take, and pixels and bytes that take a second, at least.
_BASE_SECONDS, _PIXELS_PER_SECOND, _BYTES_PER_SECOND = 2, 8_000_000, 1 << 20


def _limits(data: bytes, pixels: int) -> Limits:
    """Return what decoding an image of this many pixels may use."""
    return Limits(
        memory=_BASE_MEMORY + 4 * len(data) + _PIXEL_MEMORY * pixels,
        seconds=_BASE_SECONDS + pixels // _PIXELS_PER_SECOND + len(data) // _BYTES_PER_SECOND,
    )
