"""Images of at most 1 MiB that cost a decoder much more than their size."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from PIL import Image

from helpers.bad_images import KEPT, Case, case, png_of
from helpers.color_profiles import exchanged
from helpers.mutated_images import body_offset, png_chunk, rle_bmp, tiff_of
from helpers.pictures import encode

Tag = tuple[int, int, int, int]

#: Below the limit of `PIXELS_PER_BYTE` for a WebP, and for the other formats.
WEBP_SIDE, SIDE = 4095, 5016


def bombs() -> Iterator[Case]:
    for bomb in (*_tiffs(), *_pngs(), *_jpegs(), *_others(), *_jpegs_2000()):
        assert len(bomb.data) <= 1 << 20, bomb.name
        yield bomb


def gray_tiff(extra: list[Tag], body: bytes = b"", side: int = 16) -> bytes:
    """Make an uncompressed gray TIFF; the pixels follow the directory."""
    tags = [*_tags(side), (278, 4, 1, side), (279, 4, 1, side * side)]
    tags.append((273, 4, 1, body_offset(len(tags) + 1 + len(extra))))
    return tiff_of([*tags, *extra], bytes(side * side) + body)


def _tags(side: int, compression: int = 1, color: int = 1, samples: int = 1) -> list[Tag]:
    """Return the tags that every TIFF has here: 8 bits a sample."""
    tags = [(256, 4, 1, side), (257, 4, 1, side), (258, 3, 1, 8), (259, 3, 1, compression)]
    return [*tags, (262, 3, 1, color), (277, 3, 1, samples)]


def _tiffs() -> Iterator[Case]:
    for tags in (900, 2000):
        start = body_offset(9 + tags)
        length = (1 << 20) - start - 256
        shared = [(40_000 + number, 3, length // 2, start + 256) for number in range(tags)]
        yield case(f"{tags} tags share an array.tif", gray_tiff(shared, bytes(length)), "too-large")
    many = gray_tiff([(5000 + number, 3, 1, 1) for number in range(60_000)])
    yield case("60,000 tags.tif", many, "too-large")
    yield case("large tile.tif", tiled(32_768), "too-large")
    yield case("twice the tile width.tif", tiled(32_768, extra=[(322, 4, 1, 16)]), "corrupt")
    sides = (struct.pack("<I", side) for side in (64, 13_000))
    yield case("flat.tif", gray_tiff([], side=64).replace(*sides), "too-large")
    start = body_offset(10) + 256
    exif = gray_tiff([(34665, 4, 1, start)], _directories(start, 50_000))
    yield case("50,000 directories.tif", exif)
    pages = exif[: body_offset(10) - 4] + struct.pack("<I", start) + exif[body_offset(10) :]
    yield case("50,000 pages.tif", pages, "unsupported")
    yield case("below the limit.tif", _flat_cmyk_tiff(SIDE))


def _directories(start: int, count: int) -> bytes:
    """Make TIFF directories with one tag each, which lead from one to the next, and at last to the first."""
    nexts = [start + 18 * (number % count) for number in range(1, count + 1)]
    return b"".join(struct.pack("<HHHIII", 1, 254, 4, 1, 0, at) for at in nexts)


def tiled(tile: int, extra: list[Tag] | None = None) -> bytes:
    """Make a TIFF of 16x16 pixels in one tile."""
    pixels = zlib.compress(bytes(1 << 16))
    tags = _tags(16, compression=8)
    tags += [(322, 4, 1, tile), (323, 4, 1, tile), (325, 4, 1, len(pixels)), *(extra or [])]
    return tiff_of([*tags, (324, 4, 1, body_offset(len(tags) + 1))], pixels)


def _flat_cmyk_tiff(side: int) -> bytes:
    pixels, start = _deflate(side * 4, side), body_offset(10)
    tags = _tags(side, compression=8, color=5, samples=4)
    tags[2] = (258, 3, 4, start)
    tags += [(273, 4, 1, start + 8), (278, 4, 1, side), (279, 4, 1, len(pixels)), (284, 3, 1, 1)]
    return tiff_of(tags, struct.pack("<4H", 8, 8, 8, 8) + pixels)


def _deflate(row: int, rows: int) -> bytes:
    """Compress rows of zeros: once, and the compressed bytes are repeated."""
    stream, length = zlib.compressobj(1, wbits=-15), row * rows
    head = stream.compress(bytes(1 << 16)) + stream.flush(zlib.Z_FULL_FLUSH)
    tail = stream.compress(bytes(length % (1 << 16))) + stream.flush()
    checksum = struct.pack(">HH", length % 65521, 1)
    return b"\x78\x01" + head * (length >> 16) + tail + checksum


def flat_png(side: int, color_type: int, *, chunks: bytes = b"", after: bytes = b"") -> bytes:
    """Make a black PNG; `chunks` lie before its pixels and `after` behind them."""
    header = struct.pack(">IIBBBBB", side, side, 8, color_type, 0, 0, 0)
    pixels = png_chunk(b"IDAT", _deflate(1 + side * {0: 1, 2: 3, 6: 4}[color_type], side))
    start = b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", header)
    return start + chunks + pixels + after + png_chunk(b"IEND", b"")


def _pngs() -> Iterator[Case]:
    yield case("flat.png", png_of(13_000, 13_000), "too-large")
    yield case("below the limit.png", flat_png(SIDE, 6))
    text = zlib.compress(bytes(20 << 20), 9)
    yield case("texts.png", flat_png(64, 2, chunks=png_chunk(b"zTXt", b"a\0\0" + text) * 40))
    behind = png_chunk(b"iTXt", b"a\0\1\0\0\0" + text)
    yield case("text after the pixels.png", flat_png(64, 2, after=behind))
    yield case("profile.png", flat_png(64, 2, chunks=png_chunk(b"iCCP", b"a\0\0" + text)))
    below = zlib.compress(bytes(1000 << 10), 9)
    many = b"".join(png_chunk(b"zTXt", b"%d\0\0" % number + below) for number in range(900))
    yield case("900 texts.png", flat_png(64, 2, chunks=many))
    yield case("chunks.png", flat_png(64, 2, chunks=png_chunk(b"tEXt", b"") * 20_000))
    yield case("tags.png", flat_png(64, 2, chunks=png_chunk(b"eXIf", shared_exif(5000))))
    frame = png_chunk(b"fcTL", struct.pack(">IIIIIHHBB", 0, 64, 64, 0, 0, 1, 1, 0, 0))
    animation = png_chunk(b"acTL", struct.pack(">II", 20_000, 0)) + frame * 20_000
    yield case("frames.png", flat_png(64, 2, chunks=animation))


def shared_exif(tags: int) -> bytes:
    """Make an EXIF block of 900 KB whose tags share one value."""
    tag_of = struct.Struct("<HHII").pack
    entries = b"".join(tag_of(1000 + number, 7, 800_000, 100) for number in range(tags))
    return (b"II*\0\x08\0\0\0" + struct.pack("<H", tags) + entries + bytes(4)).ljust(900_000, b"\0")


def _jpegs() -> Iterator[Case]:
    small = encode(Image.new("RGB", (64, 64)), quality=50)
    large = encode(Image.new("CMYK", (SIDE, SIDE)), quality=50, progressive=True)
    last = large[large.rindex(b"\xff\xda") : -2]
    yield case("scans.jpg", _padded(large[:-2] + last * 200 + b"\xff\xd9"), KEPT, "too-large")
    size = small.index(b"\xff\xc0") + 5
    flat = small[:size] + struct.pack(">HH", 13_000, 13_000) + small[size + 4 :]
    yield case("flat.jpg", flat, "too-large")
    yield case("below the limit.jpg", _padded(large))
    block = shared_exif(5000)
    parts = [b"Exif\0\0" + block[at : at + 65_000] for at in range(0, len(block), 65_000)]
    tags = b"".join(b"\xff\xe1" + struct.pack(">H", 2 + len(part)) + part for part in parts)
    yield case("tags.jpg", small[:2] + tags + small[2:])
    yield case("blocks.jpg", small[:2] + b"\xff\xe1\0\x0cExif\0\0abcd" * 70_000 + small[2:])
    yield case("comments.jpg", small[:2] + b"\xff\xfe\0\2" * 240_000 + small[2:])


def _jpegs_2000() -> Iterator[Case]:
    flat = encode(Image.new("RGB", (3500, 3500)), "JPEG2000", no_jp2=True)
    coding, part = flat.index(b"\xff\x52"), flat.index(b"\xff\x90")
    yield case("below the limit.j2k", flat)
    yield case("comments.j2k", flat[:coding] + b"\xff\x64\0\4\0\1" * 150_000 + flat[coding:])
    layers = flat[: coding + 6] + b"\xff\xff" + flat[coding + 8 :]
    yield case("layers.j2k", layers)
    blocks = flat[: coding + 10] + b"\0\0" + flat[coding + 12 :]
    yield case("blocks.j2k", blocks, "too-large")
    own = flat[coding : coding + 2] + b"\0\x12\1" + flat[coding + 5 : coding + 14] + bytes(6)
    yield case("precincts.j2k", flat[:coding] + own + flat[coding + 14 :], "too-large")
    in_tile = flat[: part + 12] + own + flat[part + 12 :]
    yield case("precincts of a tile.j2k", in_tile, "too-large")
    empty = struct.pack(">HHHIBBH", 0xFF90, 10, 0, 14, 0, 0, 0xFF93)
    yield case("parts.j2k", flat[:part] + empty * 70_000 + b"\xff\xd9", KEPT, "corrupt")


def _padded(data: bytes) -> bytes:
    """Append zeros: a larger file may have more pixels."""
    return data.ljust(1 << 20, b"\0")


def _webp(side: int, mode: str = "RGBA", **options: object) -> bytes:
    image = Image.new("RGBA", (side, side), (1, 2, 3, 4)).convert(mode)
    return encode(image, "WEBP", quality=0, method=0, **options)


def _others() -> Iterator[Case]:
    small = _webp(64, lossless=True)
    header = struct.unpack_from("<I", small, 21)[0] & ~0xFFFFFFF
    size = struct.pack("<I", header | 7999 | 7999 << 14)
    yield case("flat.webp", small[:21] + size + small[25:], "too-large")
    yield case(
        "below the limit.webp", _webp(WEBP_SIDE, lossless=True, icc_profile=exchanged(b"r", b"g"))
    )
    yield case("tags.webp", _webp(64, "RGB", exif=b"Exif\0\0" + shared_exif(5000)))
    yield case("skipped rows.bmp", rle_bmp(1 << 25, 1, b"\0\2\xff\xff" * 1000), "too-large")
    rows = rle_bmp(2896, 2896, b"\1\5" * 40 + b"\0\0" * 2896 + b"\0\1")
    yield case("rows.bmp", rows, KEPT, "corrupt")
    yield case("runs.bmp", rle_bmp(2896, 362, (b"\1\5" * 288 + b"\0\0") * 362 + b"\0\1"))
