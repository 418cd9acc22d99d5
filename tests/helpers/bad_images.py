"""Damaged and unusual images: each with a file name, its bytes, and the reason why it is rejected."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from helpers.pictures import encode, photo

KEPT = ""


class Case(NamedTuple):
    """An image file, and the reason why it is rejected at each level of validation.

    Attributes:
        name: file name.
        data: the encoded image.
        header: reason at ``validation="header"``, or `KEPT`.
        decode: reason at ``validation="decode"``, or `KEPT`.

    """

    name: str
    data: bytes
    header: str
    decode: str


def jpeg(seed: int = 1, **options: object) -> bytes:
    return encode(photo(seed), "JPEG", **options)


def marker(data: bytes, code: int) -> int:
    """Return the offset of a JPEG's marker."""
    return data.index(bytes((0xFF, code)))


def with_frame(code: int, precision: int = 8, height: int = 48) -> bytes:
    """Make a JPEG with a changed frame header."""
    data = bytearray(jpeg())
    at = marker(data, 0xC0)
    data[at + 1], data[at + 4] = code, precision
    data[at + 5 : at + 7] = struct.pack(">H", height)
    return bytes(data)


def exif(orientation: int = 1, thumbnail: bytes = b"") -> bytes:
    tags = Image.Exif()
    tags[0x0112] = orientation
    block = tags.tobytes()
    return block + thumbnail


#: Rows of an RGB PNG of 64x48 pixels, each after its filter byte.
ROWS = b"".join(b"\0" + row.tobytes() for row in np.asarray(photo(4)))


def interlaced_rows() -> bytes:
    """Return the same pixels in the seven passes of Adam7: every eighth pixel of every eighth row, and so on."""
    pixels = np.asarray(photo(4))
    parts = [pixels[::8, ::8], pixels[::8, 4::8], pixels[4::8, ::4], pixels[::4, 2::4]]
    parts += [pixels[2::4, ::2], pixels[::2, 1::2], pixels[1::2]]
    return b"".join(b"\0" + row.tobytes() for part in parts for row in part)


def png_of(
    width: int,
    height: int,
    pixels: bytes = b"",
    *,
    cut: int = 0,
    flip: int | None = None,
    interlaced: bool = False,
) -> bytes:
    """Make an RGB PNG with correct chunks.

    Args:
        width: as written in the header.
        height: as written in the header.
        pixels: the rows.
        cut: bytes to remove from the end of the compressed stream.
        flip: offset of a byte in the compressed stream to change.
        interlaced: as written in the header.

    """

    def chunk(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    stream = bytearray(zlib.compress(pixels))
    if flip is not None:
        stream[flip] ^= 0x10
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, interlaced)
    data = bytes(stream[: len(stream) - cut])
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    )


def png16() -> bytes:
    pixels = np.linspace(0, 65535, 48 * 64).astype(np.uint16).reshape(48, 64)
    return encode(Image.fromarray(pixels), "PNG")


def bmp_of_16_bits() -> bytes:
    pixels = np.random.default_rng(0).integers(0, 1 << 15, 64, np.uint16).astype("<u2").tobytes()
    header = struct.pack("<IiiHHIIiiII", 40, 8, 8, 1, 16, 0, len(pixels), 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54 + len(pixels), 0, 0, 54) + header + pixels


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes((data[at] ^ 0x10,)) + data[at + 1 :]


def encoded_photo(kind: str, mode: str = "RGB", **options: object) -> bytes:
    return encode(photo(7).convert(mode), kind, **options)


def photo_of_16_bits() -> Image.Image:
    return Image.fromarray(np.asarray(photo(7).convert("L")).astype(np.uint16) * 257)


def animated(kind: str) -> bytes:
    out = io.BytesIO()
    photo(1).save(out, kind, save_all=True, append_images=[photo(2), photo(3)], duration=40)
    return out.getvalue()


def optional(make: Callable[[], bytes]) -> bytes | None:
    """Make an image in a format that some builds of Pillow cannot write.

    `None` if this build cannot.
    """
    try:
        return make()
    except (KeyError, OSError, ValueError):
        return None


def cases() -> Iterator[Case]:
    yield from _not_images()
    yield from _jpegs()
    yield from _pngs()
    yield from _others()


def write_cases(folder: Path) -> Path:
    """Write an ImageFolder with all cases in one class."""
    (folder / "class").mkdir(parents=True)
    for case in cases():
        (folder / "class" / case.name).write_bytes(case.data)
    return folder


def _not_images() -> Iterator[Case]:
    yield Case("empty.jpg", b"", "empty", "empty")
    yield Case("zeros.jpg", bytes(5000), "not-an-image", "not-an-image")
    yield Case(
        "page.jpg",
        b"\n<!DOCTYPE html><html><body>404</body></html>",
        "not-an-image",
        "not-an-image",
    )
    yield Case(
        "text.png", b"sorry, this photo is no longer available", "not-an-image", "not-an-image"
    )
    yield Case("one byte.jpg", b"\xff", "not-an-image", "not-an-image")
    yield Case("soi only.jpg", b"\xff\xd8\xff", "truncated", "truncated")
    yield Case(
        "drawing.jpg",
        b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"/>',
        *["not-an-image"] * 2,
    )
    yield Case("bm.bmp", b"BMW for sale, only 20,000 km, one owner", "not-an-image", "not-an-image")
    yield Case("riff.webp", b"RIFF\x24\0\0\0WAVEfmt " + bytes(40), "not-an-image", "not-an-image")


def _jpegs() -> Iterator[Case]:
    whole = jpeg()
    scan = marker(whole, 0xDA)
    yield Case("intact.jpg", whole, KEPT, KEPT)
    yield Case("cut in the header.jpg", whole[:20], "truncated", "truncated")
    yield Case(
        "cut before the frame.jpg", whole[: marker(whole, 0xC0) + 6], "truncated", "truncated"
    )
    yield Case("cut right after the scan header.jpg", whole[: scan + 14], "truncated", "truncated")
    yield Case("cut in mid-stream.jpg", whole[: (scan + len(whole)) // 2], "truncated", "truncated")
    yield Case("last byte missing.jpg", whole[:-1], "truncated", "truncated")
    yield Case("end marker missing.jpg", whole[:-2], "truncated", "truncated")
    yield Case(
        "cut and filled with zeros.jpg",
        whole[: len(whole) // 2] + bytes(900),
        "truncated",
        "truncated",
    )
    # Only decoding finds these: the frame is complete, but its data is not.
    yield Case(
        "cut, with an end marker.jpg", whole[: len(whole) - 300] + b"\xff\xd9", KEPT, "corrupt"
    )
    yield Case(
        "damaged in mid-stream.jpg",
        whole[: scan + 60] + bytes(200) + whole[scan + 260 :],
        KEPT,
        "corrupt",
    )
    yield Case("no scan.jpg", whole[:scan] + b"\xff\xd9", KEPT, "corrupt")
    yield Case("trailing garbage.jpg", whole + b"garbage" * 30, KEPT, KEPT)
    yield Case("trailing zeros.jpg", whole + bytes(900), KEPT, KEPT)
    yield Case("two images.jpg", whole + jpeg(2), KEPT, KEPT)
    yield Case("progressive.jpg", jpeg(progressive=True), KEPT, KEPT)
    yield Case("gray.jpg", encoded_photo("JPEG", "L"), KEPT, KEPT)
    yield Case("cmyk.jpg", encoded_photo("JPEG", "CMYK"), KEPT, KEPT)
    yield Case("restart markers.jpg", jpeg(restart_marker_blocks=2), KEPT, KEPT)
    yield Case("4-4-4.jpg", jpeg(subsampling=0), KEPT, KEPT)
    end = (
        scan + 2 + int.from_bytes(whole[scan + 2 : scan + 4], "big")
    )  # some cameras write no range of coefficients
    yield Case("unusual scan header.jpg", whole[: end - 2] + b"\0" + whole[end - 1 :], KEPT, KEPT)
    yield Case("one pixel.jpg", encode(photo(1, 1, 1), "JPEG"), KEPT, KEPT)
    for orientation in (3, 6, 8):
        yield Case(f"orientation {orientation}.jpg", jpeg(exif=exif(orientation)), KEPT, KEPT)
    yield Case("thumbnail.jpg", jpeg(exif=exif(6, encode(photo(2, 16, 12), "JPEG"))), KEPT, KEPT)
    thumbnail = jpeg(exif=exif(1, encode(photo(2, 16, 12), "JPEG")))
    yield Case("thumbnail, cut.jpg", thumbnail[:-200], "truncated", "truncated")
    yield Case(
        "thumbnail, cut early.jpg",
        thumbnail[: thumbnail.index(b"\xff\xd9") + 2],
        "truncated",
        "truncated",
    )
    yield Case("lossless.jpg", with_frame(0xC3), "unsupported", "unsupported")
    yield Case("arithmetic.jpg", with_frame(0xC9), "unsupported", "unsupported")
    yield Case("hierarchical.jpg", with_frame(0xC5), "unsupported", "unsupported")
    yield Case("12 bits.jpg", with_frame(0xC1, precision=12), "unsupported", "unsupported")
    yield Case("height of zero.jpg", with_frame(0xC0, height=0), "unsupported", "unsupported")
    yield Case("bomb.jpg", with_frame(0xC0, height=65000), KEPT, "corrupt")


def _pngs() -> Iterator[Case]:
    whole = encoded_photo("PNG")
    pixels = whole.index(b"IDAT") + 4
    yield Case("a png.JPEG", whole, KEPT, KEPT)
    yield Case("gray.png", encoded_photo("PNG", "L"), KEPT, KEPT)
    yield Case("palette.png", encoded_photo("PNG", "P"), KEPT, KEPT)
    yield Case("one bit.png", encoded_photo("PNG", "1"), KEPT, KEPT)
    yield Case("rgba.png", encoded_photo("PNG", "RGBA"), KEPT, KEPT)
    yield Case("16 bits.png", png16(), KEPT, KEPT)
    yield Case("bomb.png", png_of(60000, 60000), "too-large", "too-large")
    yield Case("no pixels.png", png_of(64, 48), KEPT, "corrupt")
    yield Case("last row missing.png", png_of(64, 48, ROWS[:-193]), KEPT, "corrupt")
    yield Case("last byte of the pixels missing.png", png_of(64, 48, ROWS[:-1]), KEPT, "corrupt")
    yield Case("more than all rows.png", png_of(64, 48, ROWS + b"more"), KEPT, KEPT)
    yield Case("no checksum after the pixels.png", png_of(64, 48, ROWS, cut=4), KEPT, "corrupt")
    yield Case(
        "a wrong checksum after the pixels.png", png_of(64, 48, ROWS, flip=-1), KEPT, "corrupt"
    )
    yield Case("damaged within the stream.png", png_of(64, 48, ROWS, flip=2000), KEPT, "corrupt")
    yield Case("interlaced.png", png_of(64, 48, interlaced_rows(), interlaced=True), KEPT, KEPT)
    last = png_of(64, 48, interlaced_rows()[:-193], interlaced=True)
    yield Case("interlaced, last row missing.png", last, KEPT, "corrupt")
    yield Case("zero wide.png", png_of(0, 48), "corrupt", "corrupt")
    yield Case("cut.png", whole[: len(whole) // 2], "truncated", "truncated")
    yield Case("cut in the header.png", whole[:18], "truncated", "truncated")
    yield Case("last byte missing.png", whole[:-1], "truncated", "truncated")
    yield Case("trailing garbage.png", whole + b"garbage", KEPT, KEPT)
    # Only the checksum of a chunk shows these. DALI checks it.
    yield Case("a pixel flipped.png", flipped(whole, pixels + 900), "corrupt", "corrupt")
    yield Case("a checksum flipped.png", flipped(whole, len(whole) - 14), "corrupt", "corrupt")
    yield Case("animated.png", animated("PNG"), KEPT, KEPT)


def _others() -> Iterator[Case]:
    webp = encoded_photo("WEBP")
    yield Case("lossy.webp", webp, KEPT, KEPT)
    yield Case("lossless.webp", encoded_photo("WEBP", lossless=True), KEPT, KEPT)
    yield Case("rgba.webp", encoded_photo("WEBP", "RGBA"), KEPT, KEPT)
    yield Case("cut.webp", webp[:-20], "truncated", "truncated")
    yield Case("cut in the header.webp", webp[:24], "truncated", "truncated")
    yield Case(
        "damaged.webp", webp[:40] + bytes(60) + webp[100:], KEPT, KEPT
    )  # lossy WebP has no checksum
    yield Case("animated.webp", animated("WEBP"), "unsupported", "unsupported")
    yield Case("trailing garbage.webp", webp + b"garbage!", KEPT, KEPT)
    bmp = encoded_photo("BMP")
    yield Case("plain.bmp", bmp, KEPT, KEPT)
    yield Case("gray.bmp", encoded_photo("BMP", "L"), KEPT, KEPT)
    yield Case("palette.bmp", encoded_photo("BMP", "P"), KEPT, KEPT)
    yield Case("16 bits.bmp", bmp_of_16_bits(), "unsupported", "unsupported")
    yield Case("cut.bmp", bmp[:-50], "truncated", "truncated")
    ppm = encoded_photo("PPM")
    yield Case("plain.ppm", ppm, KEPT, KEPT)
    yield Case("gray.pgm", encoded_photo("PPM", "L"), KEPT, KEPT)
    yield Case("16 bits.pgm", encode(photo_of_16_bits(), "PPM"), KEPT, KEPT)
    yield Case("bitmap.pbm", encoded_photo("PPM", "1"), KEPT, KEPT)
    yield Case("comment.pnm", ppm.replace(b"P6\n", b"P6\n# a camera\n\n", 1), KEPT, KEPT)
    yield Case("small values.ppm", ppm.replace(b"255", b"100", 1), "unsupported", "unsupported")
    yield Case("text.ppm", b"P3\n1 1\n255\n1 2 3\n", "unsupported", "unsupported")
    yield Case("map.pnm", b"P7\nWIDTH 1\n", "unsupported", "unsupported")
    yield Case("cut.ppm", ppm[:-1], "truncated", "truncated")
    yield Case("cut in the header.ppm", b"P6\n24 ", "truncated", "truncated")
    yield Case("no width.ppm", b"P6\n0 4\n255\n", "corrupt", "corrupt")
    yield Case("no header.ppm", b"P6 is a text", "not-an-image", "not-an-image")
    tiff = encoded_photo("TIFF")
    yield Case("plain.tif", tiff, KEPT, KEPT)
    yield Case("deflated.tif", encoded_photo("TIFF", compression="tiff_adobe_deflate"), KEPT, KEPT)
    yield Case("lzw.tif", encoded_photo("TIFF", compression="tiff_lzw"), KEPT, KEPT)
    yield Case("gray.tif", encoded_photo("TIFF", "L"), KEPT, KEPT)
    yield Case("palette.tif", encoded_photo("TIFF", "P"), KEPT, KEPT)
    yield Case("cmyk.tif", encoded_photo("TIFF", "CMYK"), KEPT, KEPT)
    yield Case("one bit.tif", encoded_photo("TIFF", "1"), "unsupported", "unsupported")
    yield Case("32 bits.tif", encoded_photo("TIFF", "I"), "unsupported", "unsupported")
    yield Case(
        "pages.tif",
        encoded_photo("TIFF", save_all=True, append_images=[photo(8)]),
        "unsupported",
        "unsupported",
    )
    yield Case("cut.tif", tiff[: len(tiff) // 2], "truncated", "truncated")
    yield Case("picture.gif", encoded_photo("GIF"), "unsupported", "unsupported")
    yield Case("a gif.jpg", animated("GIF"), "unsupported", "unsupported")
    for name, kind in (("picture.avif", "AVIF"), ("picture.jp2", "JPEG2000")):
        if (data := optional(lambda kind=kind: encoded_photo(kind))) is not None:
            yield Case(name, data, "unsupported", "unsupported")
    yield Case("picture.heic", b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "unsupported", "unsupported")


#: Unusual file names for intact images.
UNUSUAL_NAMES = (
    " leading blank.jpg",
    "two  blanks .jpg",
    "-rf.jpg",
    "--out.jpg",
    "line\nfeed.jpg",
    "tab\there.jpg",
    "carriage\rreturn.jpg",
    "bell\x07.jpg",
    'double".jpg',
    "single'.jpg",
    "comma,semicolon;.jpg",
    "back\\slash.jpg",
    "dollar$(id)`id`.jpg",
    "per%20cent%s{}.jpg",
    "many.dots.in.it.jpg",
    "caf\u00e9.jpg",  # NFC
    "cafe\u0301.jpg",  # NFD
    "\u5199\u771f \U0001f4f7.jpg",
    "\u202eright-to-left.jpg",
    "upper.JPG",
    "x" * 200 + ".jpg",
)

#: Intact images of every kind that is kept, for a fuzzer to start from.
IMAGES_TO_MUTATE = tuple(
    encode(photo(5, 24, 16).convert(mode), kind, **options)
    for kind, mode, options in (
        ("JPEG", "RGB", {}),
        ("JPEG", "RGB", {"progressive": True}),
        ("JPEG", "CMYK", {}),
        ("JPEG", "L", {"exif": exif(6)}),
        ("PNG", "RGB", {}),
        ("PNG", "P", {}),
        ("WEBP", "RGB", {}),
        ("WEBP", "RGBA", {"lossless": True}),
        ("BMP", "RGB", {}),
        ("PPM", "RGB", {}),
        ("TIFF", "RGB", {}),
        ("TIFF", "RGB", {"compression": "tiff_lzw"}),
    )
)
