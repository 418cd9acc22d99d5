"""Recognize images that DALI does not decode, but `dataprep convert --transcode` does.

Every worker process imports this file, so it imports neither NumPy nor Pillow.
"""

from __future__ import annotations

from dataprep.images.base import Rejected
from dataprep.images.tiff import STARTS, needs_rewriting
from manifests.records import record


@record
class Foreign:
    """A format that DALI does not decode.

    Attributes:
        kind: its name in the column ``original_format``.
        name: its name for users.
        module: the module that decodes it.
        extra: the extra that installs the module; empty if this project depends on it.

    """

    kind: str
    name: str
    module: str
    extra: str = ""


_AVIF = Foreign("avif", "AVIF", "PIL._avif")
_HEIF = Foreign("heif", "HEIC", "pillow_heif", "heic")
_JXL = Foreign("jxl", "JPEG XL", "pillow_jxl", "jxl")
_GIF = Foreign("gif", "GIF", "PIL")
_DICOM = Foreign("dicom", "DICOM", "pydicom", "dicom")
_NPY = Foreign("npy", "NumPy array", "numpy")
#: A TIFF, or a page of one, that DALI does not return exactly; `tifffile` needs `imagecodecs`.
_TIFF = Foreign("tiff-page", "TIFF", "imagecodecs", "tiff")

#: Ends of the names of images that take several times as many bytes in a format that DALI decodes.
COMPACT_SUFFIXES = (".avif", ".heic", ".heif", ".jxl")

_STARTS = {
    b"GIF8": _GIF,
    b"\xff\x0a": _JXL,
    b"\0\0\0\x0cJXL ": _JXL,
    b"\x93NUMPY": _NPY,
}

#: Brands in the first box of a file of ISO/IEC 14496-12. A file has several of them.
_AVIF_BRANDS = {b"avif", b"avis"}
_HEIF_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"}
_MAX_BRANDS = 256


def is_dicom(data: bytes) -> bool:
    """Return whether a file is a DICOM. What comes before its mark may be the header of a TIFF."""
    return data[128:132] == b"DICM" and not data.startswith((b"\xff\xd8\xff", b"\x89PNG", b"RIFF"))


def identify(data: bytes, page: int | None = None) -> Foreign | None:
    """Return the format of an image if it is one of these; `page` is `Options.page`."""
    if is_dicom(data):
        return _DICOM
    if data.startswith(STARTS):
        return _TIFF if needs_rewriting(data, page) else None
    if data[4:8] == b"ftyp":
        end = min(int.from_bytes(data[:4], "big"), _MAX_BRANDS)
        brands = {data[8:12]}
        for at in range(16, end, 4):
            brands.add(data[at : at + 4])
        if brands & _AVIF_BRANDS:
            return _AVIF
        return _HEIF if brands & _HEIF_BRANDS else None
    for start, found in _STARTS.items():
        if data.startswith(start):
            return found
    return None


def unsupported(found: Foreign) -> Rejected:
    """Return the rejection of an image that is not transcoded."""
    return Rejected(
        "unsupported",
        f"{found.name}, which DALI does not decode; dataprep convert --transcode jpeg, png, webp or"
        " tiff reads the original file, not a shard of it",
    )
