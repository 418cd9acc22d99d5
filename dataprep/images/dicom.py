"""DICOM images by pydicom. Only `dataprep.images.decoders` calls this.

Only the tags of `_TAGS` are read: no name, date or number of a patient leaves the file. Messages
have no text of the file either, so an error of pydicom is named by its type only.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from dataprep.arrays import AnyArray, UInt8Array
from dataprep.images.base import Rejected
from dataprep.options import RESCALE_COLUMNS
from manifests.pixels import RGB8, PixelKind

Result = TypeVar("Result")

_TAGS = (
    *("Rows", "Columns", "NumberOfFrames", "SamplesPerPixel", "PlanarConfiguration"),
    *("PhotometricInterpretation", "BitsAllocated", "BitsStored", "HighBit"),
    *("PixelRepresentation", "RescaleSlope", "RescaleIntercept", "ModalityLUTSequence"),
    *("SharedFunctionalGroupsSequence", "DoseGridScaling", "ICCProfile", "PixelData"),
)
#: Tags that change the values in ways that are not followed here.
_REFUSED = {
    "SharedFunctionalGroupsSequence": "functional groups (enhanced DICOM)",
    "ModalityLUTSequence": "a modality lookup table",
    "DoseGridScaling": "the scale of a dose",
}
_GRAY = ("MONOCHROME1", "MONOCHROME2")
_COLORS = ("RGB", "YBR_FULL", "YBR_FULL_422", "YBR_ICT", "YBR_RCT")


def measure(data: bytes, *, windowed: bool) -> tuple[int, int, PixelKind]:
    """Return width, height and kind of pixels of a DICOM of one frame whose pixels can be stored.

    Gray of 16 bits stays so, unless a window is applied.

    Raises:
        Rejected: it has no pixels, several frames, or values of a kind that is not read.

    """
    dataset = _checked(lambda: _read(data, stop_before_pixels=True))
    kind = RGB8
    if dataset.BitsAllocated == _DEEP and not windowed:
        kind = PixelKind(1, "uint16")
    return int(dataset.Columns), int(dataset.Rows), kind


#: Bits of a value that does not fit into a byte.
_DEEP = 16


def decode(data: bytes, window: tuple[float, float] | None) -> _Decoded:
    """Return pixels, uint8 or uint16 [H, W] of gray or uint8 [H, W, 3] of RGB.

    Args:
        data: the file.
        window: center and width, in units of the rescaled values; `None` to keep the values.

    Returns:
        The pixels; the ICC profile of the colors; and for uint16, slope and intercept by name:
        stored values become rescaled ones with them.

    Raises:
        Rejected: the pixels do not decode, or need a window.

    """
    return _checked(lambda: _decode(data, window))


def _checked(function: Callable[[], Result]) -> Result:
    try:
        return function()
    except (Rejected, MemoryError):
        raise
    except Exception as error:
        raise Rejected(
            "corrupt", f"DICOM that pydicom does not read ({type(error).__name__})"
        ) from None


def _read(data: bytes, *, stop_before_pixels: bool = False) -> Any:
    """Read the tags of `_TAGS`, and refuse what is not read by name."""
    import pydicom

    file = io.BytesIO(data)
    tags: list[Any] = [*_TAGS]
    dataset = pydicom.dcmread(file, specific_tags=tags, stop_before_pixels=stop_before_pixels)
    if "Rows" not in dataset or "BitsAllocated" not in dataset:
        raise Rejected("unsupported", "DICOM without an image, such as a report")
    frames = int(dataset.get("NumberOfFrames") or 1)
    if frames > 1:
        raise Rejected(
            "unsupported", f"DICOM of {frames} frames; write each frame into a file of its own"
        )
    for tag, what in _REFUSED.items():
        if tag in dataset:
            raise Rejected("unsupported", f"DICOM whose values depend on {what}")
    colors = dataset.PhotometricInterpretation
    if colors not in (*_GRAY, *_COLORS):
        raise Rejected("unsupported", "DICOM whose colors are neither gray nor RGB nor YBR")
    if colors in _COLORS and dataset.BitsAllocated != 8:  # bits
        raise Rejected("unsupported", f"DICOM of colors with {dataset.BitsAllocated} bits")
    return dataset


_Decoded = tuple[AnyArray, bytes | None, dict[str, float] | None]


def _decode(data: bytes, window: tuple[float, float] | None) -> _Decoded:
    dataset = _read(data)
    if "PixelData" not in dataset:
        raise Rejected("unsupported", "DICOM without pixels, or with pixels of floats")
    _check_syntax(dataset.file_meta.TransferSyntaxUID)
    pixels: AnyArray = dataset.pixel_array
    if dataset.PhotometricInterpretation in _COLORS:
        return np.ascontiguousarray(pixels), dataset.get("ICCProfile"), None
    slope, intercept = _rescale(dataset)
    if window is not None:
        gray = apply_window(pixels * slope + intercept, *window)
    elif dataset.BitsAllocated == _DEEP:
        return _as_uint16(dataset, pixels, slope, intercept)
    elif pixels.dtype != np.uint8 or (dataset.BitsStored, slope, intercept) != (8, 1, 0):
        raise Rejected(
            "unsupported",
            f"DICOM with values of {dataset.BitsStored} bits; --window CENTER,WIDTH makes 8 bits of"
            " them",
        )
    else:
        gray = pixels
    return 255 - gray if dataset.PhotometricInterpretation == "MONOCHROME1" else gray, None, None


def _as_uint16(dataset: Any, pixels: AnyArray, slope: float, intercept: float) -> _Decoded:
    """Move signed values to 0 and above, and invert MONOCHROME1; slope and intercept follow."""
    top = (1 << dataset.BitsStored) - 1
    values = pixels.astype(np.int64)
    if dataset.PixelRepresentation:
        half = (top + 1) // 2
        values, intercept = values + half, intercept - slope * half
    if values.min() < 0 or values.max() > top:
        raise Rejected("corrupt", f"DICOM with values of more than {dataset.BitsStored} bits")
    if dataset.PhotometricInterpretation == "MONOCHROME1":
        values, slope, intercept = top - values, -slope, intercept + slope * top
    columns = dict(zip(RESCALE_COLUMNS, (slope, intercept), strict=True))
    return values.astype(np.uint16), None, columns


def _rescale(dataset: Any) -> tuple[float, float]:
    """Return slope and intercept. Scanners write empty tags, too, which state nothing."""
    slope, intercept = dataset.get("RescaleSlope"), dataset.get("RescaleIntercept")
    return float(1 if slope is None else slope), float(intercept or 0)


def _check_syntax(syntax: Any) -> None:
    """Check that the pixels can be decompressed."""
    from pydicom.pixels.decoders.base import get_decoder

    try:
        is_available = not syntax.is_compressed or get_decoder(syntax).is_available
    except (NotImplementedError, ValueError):
        raise Rejected("unsupported", "DICOM with pixels of an unknown compression") from None
    if not is_available:
        raise Rejected(
            "unsupported",
            f"DICOM with pixels compressed as {syntax.name}; install a decoder: pip install"
            " 'dataprep-loaders[dicom]'",
        )


def apply_window(values: AnyArray, center: float, width: float) -> UInt8Array:
    """Map a window of values to 0 to 255: the function LINEAR of DICOM (PS3.3, C.11.2.1.2.1).

    Args:
        values: rescaled values [H, W], float64, which are overwritten.
        center: the value that becomes 127.5, plus a half.
        width: the values between black and white, more than 1.

    Returns:
        Gray, rounded to integers, uint8 [H, W].

    """
    values -= center - 0.5
    values *= 255 / (width - 1)
    values += 127.5
    np.clip(values, 0, 255, out=values)
    return np.rint(values).astype(np.uint8)
