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

from helpers.mutated_images import png_chunk
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


def case(name: str, data: bytes, header: str = KEPT, decode: str | None = None) -> Case:
    """Make a case that both levels treat alike, unless the reason at ``"decode"`` is given."""
    return Case(name, data, header, header if decode is None else decode)


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
    stream = bytearray(zlib.compress(pixels))
    if flip is not None:
        stream[flip] ^= 0x10
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, interlaced)
    data = bytes(stream[: len(stream) - cut])
    chunks = {b"IHDR": header, b"IDAT": data, b"IEND": b""}
    return b"\x89PNG\r\n\x1a\n" + b"".join(map(png_chunk, chunks, chunks.values()))


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
    yield case("empty.jpg", b"", "empty")
    yield case("zeros.jpg", bytes(5000), "not-an-image")
    yield case("page.jpg", b"\n<!DOCTYPE html><html><body>404</body></html>", "not-an-image")
    yield case("pointer.jpg", b"version https://git-lfs.github.com/spec/v1\n", "not-an-image")
    yield case("text.png", b"sorry, this photo is no longer available", "not-an-image")
    yield case("one byte.jpg", b"\xff", "not-an-image")
    yield case("soi only.jpg", b"\xff\xd8\xff", "truncated")
    yield case(
        "drawing.jpg",
        b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"/>',
        "not-an-image",
    )
    yield case("bm.bmp", b"BMW for sale, only 20,000 km, one owner", "not-an-image")
    yield case("riff.webp", b"RIFF\x24\0\0\0WAVEfmt " + bytes(40), "not-an-image")


def _jpegs() -> Iterator[Case]:
    whole = jpeg()
    scan = marker(whole, 0xDA)
    yield case("intact.jpg", whole)
    yield case("cut in the header.jpg", whole[:20], "truncated")
    yield case("cut before the frame.jpg", whole[: marker(whole, 0xC0) + 6], "truncated")
    yield case("cut right after the scan header.jpg", whole[: scan + 14], "truncated")
    yield case("cut in mid-stream.jpg", whole[: (scan + len(whole)) // 2], "truncated")
    yield case("last byte missing.jpg", whole[:-1], "truncated")
    yield case("end marker missing.jpg", whole[:-2], "truncated")
    yield case("cut and filled with zeros.jpg", whole[: len(whole) // 2] + bytes(900), "truncated")
    # Only decoding finds these: the frame is complete, but its data is not.
    yield case(
        "cut, with an end marker.jpg", whole[: len(whole) - 300] + b"\xff\xd9", KEPT, "corrupt"
    )
    yield case(
        "damaged in mid-stream.jpg",
        whole[: scan + 60] + bytes(200) + whole[scan + 260 :],
        KEPT,
        "corrupt",
    )
    yield case("fill bytes.jpg", whole[:2] + b"\xff" * 3 + whole[2:])
    yield case("marker without a length.jpg", whole[:2] + b"\xff\x01" + whole[2:], "corrupt")
    tables = whole[:scan] + b"\xff\xd0" + whole[scan:]
    yield case("marker without a length after the frame.jpg", tables, KEPT, "corrupt")
    yield case("no scan.jpg", whole[:scan] + b"\xff\xd9", KEPT, "corrupt")
    yield case("trailing garbage.jpg", whole + b"garbage" * 30)
    yield case("trailing zeros.jpg", whole + bytes(900))
    yield case("two images.jpg", whole + jpeg(2))
    yield case("progressive.jpg", jpeg(progressive=True))
    yield case("gray.jpg", encoded_photo("JPEG", "L"))
    yield case("cmyk.jpg", encoded_photo("JPEG", "CMYK"))
    yield case("restart markers.jpg", jpeg(restart_marker_blocks=2))
    yield case("4-4-4.jpg", jpeg(subsampling=0))
    end = (
        scan + 2 + int.from_bytes(whole[scan + 2 : scan + 4], "big")
    )  # some cameras write no range of coefficients
    yield case("unusual scan header.jpg", whole[: end - 2] + b"\0" + whole[end - 1 :])
    yield case("one pixel.jpg", encode(photo(1, 1, 1), "JPEG"))
    for orientation in (3, 6, 8):
        yield case(f"orientation {orientation}.jpg", jpeg(exif=exif(orientation)))
    yield case("thumbnail.jpg", jpeg(exif=exif(6, encode(photo(2, 16, 12), "JPEG"))))
    thumbnail = jpeg(exif=exif(1, encode(photo(2, 16, 12), "JPEG")))
    yield case("thumbnail, cut.jpg", thumbnail[:-200], "truncated")
    yield case(
        "thumbnail, cut early.jpg", thumbnail[: thumbnail.index(b"\xff\xd9") + 2], "truncated"
    )
    yield case("lossless.jpg", with_frame(0xC3), "unsupported")
    yield case("arithmetic.jpg", with_frame(0xC9), "unsupported")
    yield case("hierarchical.jpg", with_frame(0xC5), "unsupported")
    yield case("12 bits.jpg", with_frame(0xC1, precision=12), "unsupported")
    yield case("height of zero.jpg", with_frame(0xC0, height=0), "unsupported")
    yield case("bomb.jpg", with_frame(0xC0, height=65000), KEPT, "corrupt")


def _pngs() -> Iterator[Case]:
    whole = encoded_photo("PNG")
    pixels = whole.index(b"IDAT") + 4
    yield case("a png.JPEG", whole)
    yield case("gray.png", encoded_photo("PNG", "L"))
    yield case("palette.png", encoded_photo("PNG", "P"))
    yield case("one bit.png", encoded_photo("PNG", "1"))
    yield case("rgba.png", encoded_photo("PNG", "RGBA"))
    indexed = encoded_photo("PNG", "P")
    no_palette = indexed[:33] + indexed[indexed.index(b"IDAT") - 4 :]
    yield case("no palette.png", no_palette, "corrupt")
    yield case("16 bits.png", png16(), "unsupported")
    yield case("bomb.png", png_of(60000, 60000), "too-large")
    yield case("no pixels.png", png_of(64, 48), KEPT, "corrupt")
    yield case("last row missing.png", png_of(64, 48, ROWS[:-193]), KEPT, "corrupt")
    yield case("last byte of the pixels missing.png", png_of(64, 48, ROWS[:-1]), KEPT, "corrupt")
    yield case("more than all rows.png", png_of(64, 48, ROWS + b"more"))
    yield case("no checksum after the pixels.png", png_of(64, 48, ROWS, cut=4), KEPT, "corrupt")
    yield case(
        "a wrong checksum after the pixels.png", png_of(64, 48, ROWS, flip=-1), KEPT, "corrupt"
    )
    yield case("damaged within the stream.png", png_of(64, 48, ROWS, flip=2000), KEPT, "corrupt")
    yield case("interlaced.png", png_of(64, 48, interlaced_rows(), interlaced=True))
    last = png_of(64, 48, interlaced_rows()[:-193], interlaced=True)
    yield case("interlaced, last row missing.png", last, KEPT, "corrupt")
    yield case("zero wide.png", png_of(0, 48), "corrupt")
    yield case("cut.png", whole[: len(whole) // 2], "truncated")
    yield case("cut in the header.png", whole[:18], "truncated")
    yield case("last byte missing.png", whole[:-1], "truncated")
    yield case("trailing garbage.png", whole + b"garbage")
    # Only the checksum of a chunk shows these. DALI checks it.
    yield case("a pixel flipped.png", flipped(whole, pixels + 900), "corrupt")
    yield case("a checksum flipped.png", flipped(whole, len(whole) - 14), "corrupt")
    yield case("animated.png", animated("PNG"))


def _others() -> Iterator[Case]:
    webp = encoded_photo("WEBP")
    yield case("lossy.webp", webp)
    yield case("lossless.webp", encoded_photo("WEBP", lossless=True))
    yield case("rgba.webp", encoded_photo("WEBP", "RGBA"))
    yield case("cut.webp", webp[:-20], "truncated")
    yield case("cut in the header.webp", webp[:24], "truncated")
    yield case("zero wide.webp", webp[:26] + struct.pack("<HH", 0, 100) + webp[30:], "corrupt")
    yield case("damaged.webp", webp[:40] + bytes(60) + webp[100:])  # lossy WebP has no checksum
    yield case("animated.webp", animated("WEBP"), "unsupported")
    yield case("trailing garbage.webp", webp + b"garbage!")
    bmp = encoded_photo("BMP")
    yield case("plain.bmp", bmp)
    yield case("gray.bmp", encoded_photo("BMP", "L"))
    yield case("palette.bmp", encoded_photo("BMP", "P"))
    yield case("16 bits.bmp", bmp_of_16_bits(), "unsupported")
    yield case("cut.bmp", bmp[:-50], "truncated")
    ppm = encoded_photo("PPM")
    yield case("plain.ppm", ppm)
    yield case("gray.pgm", encoded_photo("PPM", "L"))
    yield case("16 bits.pgm", encode(photo_of_16_bits(), "PPM"), "unsupported")
    yield case("bitmap.pbm", encoded_photo("PPM", "1"))
    yield case("comment.pnm", ppm.replace(b"P6\n", b"P6\n# a camera\n\n", 1))
    yield case("small values.ppm", ppm.replace(b"255", b"100", 1), "unsupported")
    yield case("text.ppm", b"P3\n1 1\n255\n1 2 3\n", "unsupported")
    yield case("map.pnm", b"P7\nWIDTH 1\n", "unsupported")
    yield case("cut.ppm", ppm[:-1], "truncated")
    yield case("cut in the header.ppm", b"P6\n24 ", "truncated")
    yield case("no width.ppm", b"P6\n0 4\n255\n", "corrupt")
    yield case("no header.ppm", b"P6 is a text", "not-an-image")
    tiff = encoded_photo("TIFF")
    yield case("plain.tif", tiff)
    yield case("deflated.tif", encoded_photo("TIFF", compression="tiff_adobe_deflate"))
    yield case("lzw.tif", encoded_photo("TIFF", compression="tiff_lzw"))
    yield case("gray.tif", encoded_photo("TIFF", "L"))
    yield case("palette.tif", encoded_photo("TIFF", "P"))
    yield case("cmyk.tif", encoded_photo("TIFF", "CMYK"))
    yield case("16 bits.tif", encode(photo_of_16_bits(), "TIFF"), "unsupported")
    yield case("infrared.tif", encoded_photo("TIFF", "RGBX"), "unsupported")
    yield case("gray and alpha.tif", encoded_photo("TIFF", "LA"), "unsupported")
    yield case("lzma.tif", encoded_photo("TIFF", compression="lzma"), "unsupported")
    yield case("one bit.tif", encoded_photo("TIFF", "1"), "unsupported")
    yield case("32 bits.tif", encoded_photo("TIFF", "I"), "unsupported")
    yield case(
        "pages.tif", encoded_photo("TIFF", save_all=True, append_images=[photo(8)]), "unsupported"
    )
    yield case("cut.tif", tiff[: len(tiff) // 2], "truncated")
    yield case("picture.gif", encoded_photo("GIF"), "unsupported")
    yield case("a gif.jpg", animated("GIF"), "unsupported")
    if (data := optional(lambda: encoded_photo("AVIF"))) is not None:
        yield case("picture.avif", data, "unsupported")
    jp2 = encoded_photo("JPEG2000")
    yield case("picture.jp2", jp2)
    yield case("transparent.jp2", encoded_photo("JPEG2000", "RGBA"))
    yield case("picture.j2k", jp2[jp2.index(b"jp2c") + 4 :])
    yield case("gray.jp2", encoded_photo("JPEG2000", "L"), "unsupported")
    yield case("gray and alpha.jp2", encoded_photo("JPEG2000", "LA"), "unsupported")
    yield case("12 bits.jp2", jp2.replace(b"\0\x03\x07", b"\0\x03\x0b"), "unsupported")
    yield case("tiles.jp2", jp2.replace(jp2[-2:], b""), "truncated")
    yield case("cut.jp2", jp2[: len(jp2) // 2], "truncated")
    yield case("cut in the header.jp2", jp2[:40], "truncated")
    yield case("picture.heic", b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "unsupported")


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
        ("JPEG", "RGB", {}), ("JPEG", "RGB", {"progressive": True}), ("JPEG", "CMYK", {}),
        ("JPEG", "L", {"exif": exif(6)}), ("PNG", "RGB", {}), ("PNG", "P", {}), ("WEBP", "RGB", {}),
        ("WEBP", "RGBA", {"lossless": True}), ("BMP", "RGB", {}), ("PPM", "RGB", {}),
        ("TIFF", "RGB", {}), ("TIFF", "RGB", {"compression": "tiff_lzw"}),
    )
)  # fmt: skip
