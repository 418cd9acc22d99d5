"""Small images of every kind that is kept, and mutations of what is special to their formats."""

from __future__ import annotations

import struct
import zlib
from random import Random
from typing import Any

from helpers.bad_images import exif, interlaced_rows, png_of
from helpers.mutated_images import png_chunk, rle_bmp, tiled_tiff
from helpers.pictures import encode, photo

from fuzz import mutate

# --- JPEG ---------------------------------------------------------------------------------------


def jpegs() -> list[bytes]:
    small = photo(5, 24, 16)
    kinds: tuple[tuple[str, dict[str, Any]], ...] = (
        ("RGB", {}),
        ("RGB", {"progressive": True}),
        ("RGB", {"subsampling": 0, "restart_marker_blocks": 1}),
        ("L", {"exif": exif(6)}),
        ("CMYK", {}),
        ("RGB", {"icc_profile": bytes(300), "comment": b"x"}),
    )
    return [encode(small.convert(mode), "JPEG", **options) for mode, options in kinds]


def _segments(data: bytes) -> list[tuple[int, int]]:
    """Return the first byte and the end of each marker segment before the first scan's pixels."""
    at, found = 2, []
    while at + 4 <= len(data) and data[at] == 0xFF:
        end = at + 2 + struct.unpack_from(">H", data, at + 2)[0]
        found.append((at, end))
        if data[at + 1] == 0xDA:
            break
        at = end
    return found


def odd_jpeg(rng: Random, data: bytes) -> bytes:
    segments = _segments(data)
    start, end = rng.choice(segments)
    kind = rng.randrange(8)
    if kind == 0:
        return data[:start] + data[end:]
    if kind == 1:
        return data[:start] + data[start:end] * rng.choice((2, 50)) + data[end:]
    if kind == 2:
        return (
            data[:start]
            + struct.pack(">HHB", 0xFFFE, rng.choice((0, 2, 3, 65535)), 0)
            + data[start:]
        )
    if kind == 3:  # scans again
        scan = segments[-1][0]
        return data[:-2] + data[scan:-2] * rng.choice((1, 20, 400)) + data[-2:]
    frame = next((at for at, _ in segments if data[at + 1] in (0xC0, 0xC1, 0xC2)), segments[0][0])
    if kind == 4:
        size = struct.pack(">HH", *(rng.choice((0, 1, 16, 24, 5000, 65500)) for _ in range(2)))
        return data[: frame + 5] + size + data[frame + 9 :]
    if kind == 5:
        at = frame + 9 + rng.randrange(10)
        return data[:at] + bytes([rng.choice((0, 1, 2, 3, 4, 17, 34, 65, 255))]) + data[at + 1 :]
    if kind == 6:
        return data[: frame + 1] + bytes([rng.randrange(0xC0, 0xD0)]) + data[frame + 2 :]
    return data[:-2] + rng.choice((b"", b"\0" * 50, b"\xff\xd9" + data, b"\xff\xd8\xff\xd9"))


# --- PNG ----------------------------------------------------------------------------------------


def pngs() -> list[bytes]:
    small = photo(5, 24, 16)
    kinds: tuple[tuple[str, dict[str, Any]], ...] = (
        ("RGB", {}), ("RGBA", {}), ("P", {}), ("P", {"transparency": 3}), ("L", {}), ("LA", {}),
        ("1", {}), ("I;16", {}),
    )  # fmt: skip
    return [
        encode(
            small.convert("L").convert(mode) if mode == "I;16" else small.convert(mode),
            "PNG",
            **options,
        )
        for mode, options in kinds
    ] + [png_of(64, 48, interlaced_rows(), interlaced=True)]


def _mutate_chunks(rng: Random, data: bytes) -> bytes:
    at, chunks = 8, []
    while at < len(data):
        length = struct.unpack_from(">I", data, at)[0]
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    place = rng.randrange(len(chunks))
    name, content = chunks[place]
    kind = rng.choice(("content", "content", "pixels", "name", "swap", "repeat", "split"))
    if kind == "content":
        chunks[place] = (name, mutate.mutate_bytes(rng, content))
    elif kind == "pixels":
        place = [name for name, _ in chunks].index(b"IDAT")
        rows = mutate.mutate_bytes(rng, zlib.decompress(chunks[place][1]))
        chunks[place] = (b"IDAT", zlib.compress(rows))
    elif kind == "name":
        names = (b"tEXt", b"tRNS", b"ABCD", b"gAMA", b"sBIT", b"iCCP", b"eXIf", b"bKGD")
        chunks[place] = (rng.choice(names), content)
    elif kind == "swap":
        other = rng.randrange(len(chunks))
        chunks[place], chunks[other] = chunks[other], chunks[place]
    elif kind == "repeat":
        chunks[place : place + 1] = [(name, content)] * rng.choice((0, 2))
    else:
        chunks[place : place + 1] = [(name, content[:7]), (name, content[7:])]
    return data[:8] + b"".join(png_chunk(*chunk) for chunk in chunks)


def odd_png(rng: Random, data: bytes) -> bytes:
    """Change chunks, with correct checksums."""
    if rng.random() < 0.03:
        return png_of(24, 16, bytes(rng.choice((10**6, 10**8))))
    kind = rng.random()
    if kind < 0.6:
        return _mutate_chunks(rng, data)
    if kind < 0.8:
        return data[:33] + png_chunk(*_ancillary(rng)) + data[33:]
    header = bytearray(data[16:29])
    header[rng.randrange(13)] = rng.choice((0, 1, 2, 3, 4, 6, 8, 16, 24, 255))
    return data[:8] + png_chunk(b"IHDR", bytes(header)) + data[33:]


def _ancillary(rng: Random) -> tuple[bytes, bytes]:
    bomb = zlib.compress(bytes(rng.choice((10, 10**5, 10**7, 10**8))))
    return rng.choice(
        (
            (b"zTXt", b"Comment\0\0" + bomb),
            (b"iCCP", b"icc\0\0" + bomb),
            (b"iTXt", b"Comment\0\1\0\0\0" + bomb),
            (b"tEXt", b"x" * rng.choice((3, 10**5))),
            (b"tRNS", bytes(rng.choice((0, 1, 2, 6, 300)))),
            (b"PLTE", bytes(rng.choice((0, 1, 3, 768, 771)))),
            (b"gAMA", bytes(rng.choice((0, 4)))),
            (b"eXIf", exif(6)[6:]),
            (b"acTL", struct.pack(">II", 2, 0)),
        )
    )


# --- WebP and BMP -------------------------------------------------------------------------------


def webps() -> list[bytes]:
    small = photo(5, 24, 16)
    return [
        encode(small, "WEBP"),
        encode(small.convert("RGBA"), "WEBP", lossless=True),
        encode(small.convert("RGBA"), "WEBP"),
        encode(small, "WEBP", exif=exif(6), icc_profile=bytes(100)),
    ]


def odd_webp(rng: Random, data: bytes) -> bytes:
    """Change, remove, repeat or shuffle RIFF chunks; correct the length most of the time."""
    at, chunks = 12, []
    while at + 8 <= len(data):
        name, length = struct.unpack_from("<4sI", data, at)
        chunks.append((name, data[at + 8 : at + 8 + length]))
        at += 8 + length + length % 2
    place = rng.randrange(len(chunks))
    name, content = chunks[place]
    kind = rng.randrange(5)
    if kind == 0:
        chunks[place] = (name, mutate.mutate_bytes(rng, content, 12))
    elif kind == 1:
        chunks.insert(place, chunks[place])
    elif kind == 2:
        chunks[place] = (
            rng.choice((b"VP8 ", b"VP8L", b"VP8X", b"ANIM", b"ANMF", b"ALPH", b"abcd")),
            content,
        )
    elif kind == 3:
        rng.shuffle(chunks)
    else:
        size = struct.pack("<I", rng.choice((0, 15, 4999, 0xFFFFFF)))[:3]
        chunks.insert(0, (b"VP8X", bytes([rng.randrange(64), 0, 0, 0]) + size + size))
    body = b"".join(
        name + struct.pack("<I", len(part)) + part + bytes(len(part) % 2) for name, part in chunks
    )
    length = (
        len(body) + 4 if rng.random() < 0.8 else rng.choice((0, 4, len(body), 2**31, 2**32 - 1))
    )
    return b"RIFF" + struct.pack("<I", length) + b"WEBP" + body


def bmps() -> list[bytes]:
    small = photo(5, 24, 16)
    runs = b"".join(bytes((12, 50 + row, 12, 90, 0, 0)) for row in range(16)) + b"\0\1"
    return [
        *(encode(small.convert(mode), "BMP") for mode in ("RGB", "L", "P", "1", "RGBA")),
        rle_bmp(24, 16, runs),
    ]


def odd_bmp(rng: Random, data: bytes) -> bytes:
    at = rng.choice((2, 10, 14, 18, 22, 26, 28, 30, 34, 46, 50))
    value = rng.choice(
        (0, 1, 2, 3, 4, 8, 12, 16, 24, 32, 40, 108, 124, -16, 2**31 - 1, -(2**31), 5000)
    )
    return data[:at] + struct.pack("<i", value) + data[at + 4 :]


# --- PPM ---------------------------------------------------------------------------------------


def ppms() -> list[bytes]:
    small = photo(5, 24, 16)
    return [encode(small.convert(mode), "PPM") for mode in ("RGB", "L", "1", "I;16")]


def odd_ppm(rng: Random, data: bytes) -> bytes:
    """Change, remove or repeat a token of the header, or put a comment into it."""
    tokens = data.split(None, 3)
    place = rng.randrange(len(tokens))
    tokens[place] = rng.choice(
        (b"P%d" % rng.randrange(1, 8), b"0", b"255", b"65535", b"99999", b"-1", b"#\n", b"")
    )
    return rng.choice((b"\n", b" ", b"\r\n", b"\n# x\n")).join(tokens)


# --- TIFF ---------------------------------------------------------------------------------------


def tiffs() -> list[bytes]:
    small = photo(5, 24, 16)
    kinds: tuple[tuple[str, dict[str, Any]], ...] = (
        ("RGB", {}),
        ("RGB", {"compression": "tiff_lzw"}),
        ("RGB", {"compression": "tiff_adobe_deflate"}),
        ("RGB", {"compression": "jpeg"}),
        ("RGB", {"compression": "packbits"}),
        ("L", {}),
        ("P", {}),
        ("1", {"compression": "group4"}),
        ("CMYK", {}),
        ("RGBA", {}),
        ("RGB", {"compression": "tiff_lzw", "tiffinfo": {317: 2}}),
        ("RGB", {"tiffinfo": {278: 4}}),
    )
    tiled = [tiled_tiff(deflated=False), tiled_tiff(deflated=True)]
    return [encode(small.convert(mode), "TIFF", **options) for mode, options in kinds] + tiled


def odd_tiff(rng: Random, data: bytes) -> bytes:
    """Change, add or repeat tags of the first directory."""
    order = "<" if data[:2] == b"II" else ">"
    directory = struct.unpack_from(f"{order}I", data, 4)[0]
    count = struct.unpack_from(f"{order}H", data, directory)[0]
    tags = [
        list(struct.unpack_from(f"{order}HHII", data, directory + 2 + 12 * n)) for n in range(count)
    ]
    for _ in range(rng.choice((1, 1, 2))):
        tag = rng.choice(tags)
        kind = rng.randrange(6)
        if kind == 0:
            tag[3] = rng.choice(
                (0, 1, 2, 3, 5, 7, 8, 16, 32768, 65535, 2**31, 2**32 - 1, len(data))
            )
        elif kind == 1:
            tag[2] = rng.choice((0, 1, 2, 1000, 10**5, 2**31, 2**32 - 1))
        elif kind == 2:
            tag[1] = rng.choice((0, 1, 2, 3, 4, 5, 7, 12, 13, 16, 99))
        elif kind == 3:
            tags.append(
                [
                    rng.choice(
                        (254, 322, 323, 324, 325, 320, 338, 339, 347, 530, 700, 34675, 33723)
                    ),
                    4,
                    1,
                    16,
                ]
            )
        elif kind == 4:
            tags += [list(tag) for _ in range(rng.choice((1, 2000)))]
        else:
            tags.remove(tag)
        tags = tags or [tag]
    body = b"".join(struct.pack(f"{order}HHII", *tag) for tag in tags)
    head = data[:4] + struct.pack(f"{order}I", len(data))
    return head + data[8:] + struct.pack(f"{order}H", len(tags)) + body + bytes(4)


# --- JPEG 2000 ----------------------------------------------------------------------------------


def jp2s() -> list[bytes]:
    small = photo(5, 24, 16)
    tiles = {"tile_size": (16, 16), "no_jp2": True}
    return [
        encode(small.convert(mode), "JPEG2000", **o)
        for mode, o in (("RGB", {}), ("RGBA", {}), ("RGB", tiles))
    ]


def odd_jp2(rng: Random, data: bytes) -> bytes:
    """Change a field of the boxes, of the size, or of the head of a tile."""
    start = data.index(b"\xff\x4f\xff\x51")
    at = rng.choice(
        (
            rng.randrange(12, max(start, 13)),
            start + rng.randrange(48),
            data.index(b"\xff\x90") + rng.randrange(12),
        )
    )
    return data[:at] + bytes([rng.choice((0, 1, 2, 7, 8, 15, 16, 127, 255))]) + data[at + 1 :]


# --- AVIF ---------------------------------------------------------------------------------------


def avifs() -> list[bytes]:
    small = photo(5, 24, 16)
    kinds: tuple[tuple[str, dict[str, Any]], ...] = (
        ("RGB", {}),
        ("RGBA", {"exif": exif(6)}),
        ("L", {"icc_profile": bytes(300)}),
        ("RGB", {"save_all": True, "append_images": [photo(6, 24, 16)]}),
    )
    return [encode(small.convert(mode), "AVIF", speed=10, **options) for mode, options in kinds]


#: Boxes that say how large an image is, how it is turned, how its colors and its bytes are stored.
_BOXES = (b"ispe", b"irot", b"imir", b"colr", b"pixi", b"av1C", b"iloc", b"ipma", b"iinf", b"pitm")


def odd_avif(rng: Random, data: bytes) -> bytes:
    """Change the content or the length of a box, or the coded pixels."""
    at = data.find(rng.choice(_BOXES))
    if at < 0 or rng.random() < 0.3:
        start = data.index(b"mdat") + 4
        return data[:start] + mutate.mutate_bytes(rng, data[start:], 20)
    if rng.random() < 0.2:
        at -= 8  # the length is before the name
    start = at + 4 + rng.randrange(16)
    value = struct.pack(">I", rng.choice((0, 1, 7, 24, 4000, 30_000, 1 << 16, 0xFFFFFFFF)))
    return data[:start] + value + data[start + 4 :]


# --- DICOM (PS3.5 and PS3.10) -------------------------------------------------------------------


def _element(tag: int, kind: bytes, value: bytes) -> bytes:
    head = struct.pack("<HH2s", tag >> 16, tag & 0xFFFF, kind)
    if kind in (b"OB", b"OW"):
        return head + struct.pack("<HI", 0, len(value)) + value
    return head + struct.pack("<H", len(value)) + value


def _dicom(colors: bytes, samples: int, bits: int) -> bytes:
    """Make a DICOM of 24x16 pixels: a preamble, the mark, the transfer syntax, and tags in order."""
    numbers = ((0x280010, 16), (0x280011, 24), (0x280100, bits), (0x280101, bits))
    tags = {0x280002: (b"US", struct.pack("<H", samples)), 0x280004: (b"CS", colors)}
    tags |= {tag: (b"US", struct.pack("<H", number)) for tag, number in numbers}
    tags |= {0x280102: (b"US", struct.pack("<H", bits - 1)), 0x280103: (b"US", b"\0\0")}
    tags |= {0x280006: (b"US", b"\0\0"), 0x281052: (b"DS", b"-5"), 0x281053: (b"DS", b"1 ")}
    tags[0x100010] = (b"PN", b"NAME^OF^PATIENT ")
    pixels = photo(5, 24, 16).convert("RGB" if samples > 1 else "L").tobytes()
    tags[0x7FE00010] = (b"OW", pixels * (bits // 8))
    body = b"".join(_element(tag, *value) for tag, value in sorted(tags.items()))
    meta = _element(0x20010, b"UI", b"1.2.840.10008.1.2.1\0")
    return (
        bytes(128) + b"DICM" + _element(0x20000, b"UL", struct.pack("<I", len(meta))) + meta + body
    )


def dicoms() -> list[bytes]:
    kinds = ((b"MONOCHROME2 ", 1, 16), (b"MONOCHROME1 ", 1, 8), (b"RGB ", 3, 8))
    return [_dicom(*kind) for kind in kinds]


def odd_dicom(rng: Random, data: bytes) -> bytes:
    """Change a byte of the tags, or a length or a value after a tag's name."""
    at = data.index(b"\x28\0") + rng.randrange(160)
    if rng.random() < 0.5:
        return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
    value = struct.pack("<H", rng.choice((0, 1, 3, 8, 16, 24, 32, 5000, 0xFFFF)))
    return data[:at] + value + data[at + 2 :]
