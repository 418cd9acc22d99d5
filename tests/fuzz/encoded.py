"""Small images of every kind that is kept, and mutations of what is special to their formats."""

from __future__ import annotations

import struct
import zlib
from functools import cache
from random import Random
from typing import Any

from helpers.bad_images import exif, interlaced_rows, png_of
from helpers.mutated_images import png_chunk, rle_bmp, tiled_tiff
from helpers.pictures import encode, photo

from fuzz import mutate

_TILES = {"tile_size": (16, 16), "no_jp2": True}

#: By extension: the format in Pillow, and modes with options of `PIL.Image.Image.save`.
_SEEDS: dict[str, tuple[str, list[tuple[str, dict[str, Any]]]]] = {
    "jpg": ("JPEG", [
        ("RGB", {}), ("RGB", {"progressive": True}),
        ("RGB", {"subsampling": 0, "restart_marker_blocks": 1}), ("L", {"exif": exif(6)}),
        ("CMYK", {}), ("RGB", {"icc_profile": bytes(300), "comment": b"x"}),
    ]),
    "png": ("PNG", [
        *((mode, {}) for mode in ("RGB", "RGBA", "P", "L", "LA", "1", "I;16")),
        ("P", {"transparency": 3}),
    ]),
    "webp": ("WEBP", [
        ("RGB", {}), ("RGBA", {"lossless": True}), ("RGBA", {}),
        ("RGB", {"exif": exif(6), "icc_profile": bytes(100)}),
    ]),
    "bmp": ("BMP", [(mode, {}) for mode in ("RGB", "L", "P", "1", "RGBA")]),
    "ppm": ("PPM", [(mode, {}) for mode in ("RGB", "L", "1", "I;16")]),
    "tif": ("TIFF", [
        *(("RGB", {"compression": name}) for name in ("tiff_lzw", "tiff_adobe_deflate", "jpeg", "packbits")),
        *((mode, {}) for mode in ("RGB", "L", "P", "CMYK", "RGBA")), ("1", {"compression": "group4"}),
        ("RGB", {"compression": "tiff_lzw", "tiffinfo": {317: 2}}), ("RGB", {"tiffinfo": {278: 4}}),
    ]),
    "jp2": ("JPEG2000", [("RGB", {}), ("RGBA", {}), ("RGB", _TILES)]),
    "avif": ("AVIF", [
        ("RGB", {"speed": 10}), ("RGBA", {"speed": 10, "exif": exif(6)}),
        ("L", {"speed": 10, "icc_profile": bytes(300)}),
        ("RGB", {"speed": 10, "save_all": True, "append_images": [photo(6, 24, 16)]}),
    ]),
}  # fmt: skip

_RUNS = b"".join(bytes((12, 50 + row, 12, 90, 0, 0)) for row in range(16)) + b"\0\1"

#: Seeds that Pillow does not write.
_OTHERS = {
    "png": [png_of(64, 48, interlaced_rows(), interlaced=True)],
    "bmp": [rle_bmp(24, 16, _RUNS)],
    "tif": [tiled_tiff(deflated=False), tiled_tiff(deflated=True)],
}


@cache
def seeds(extension: str) -> list[bytes]:
    """Return intact images, most of them of 24x16 pixels."""
    if extension == "dcm":
        kinds = ((b"MONOCHROME2 ", 1, 16), (b"MONOCHROME1 ", 1, 8), (b"RGB ", 3, 8))
        return [_dicom(*kind) for kind in kinds]
    kind, modes = _SEEDS[extension]
    found = [*_OTHERS.get(extension, [])]
    for mode, options in modes:
        picture = photo(5, 24, 16)
        picture = picture.convert("L") if mode == "I;16" else picture
        found.append(encode(picture.convert(mode), kind, **options))
    return found


def _put(data: bytes, at: int, form: str, *values: int) -> bytes:
    """Write numbers at a place."""
    return data[:at] + struct.pack(form, *values) + data[at + struct.calcsize(form) :]


def _mutate_parts(rng: Random, parts: list[Any], odd: Any) -> None:
    """Remove, repeat or shuffle parts of a file, or insert an odd one."""
    at, kind = rng.randrange(len(parts)), rng.randrange(4)
    if kind == 0 and len(parts) > 1:
        del parts[at]
    elif kind == 1:
        parts[at:at] = [parts[at]] * rng.choice((1, 1, 50))
    elif kind == 2:
        rng.shuffle(parts)
    else:
        parts.insert(at, odd)


# --- JPEG, PNG and WebP: segments or chunks -----------------------------------------------------


def odd_jpeg(rng: Random, data: bytes) -> bytes:
    at, segments = 2, []
    while at + 4 <= len(data) and data[at : at + 2] != b"\xff\xda":
        end = at + 2 + struct.unpack_from(">H", data, at + 2)[0]
        segments.append(data[at:end])
        at = end
    scans = data[at:-2]
    frame = next(n for n, segment in enumerate(segments) if segment[1] in (0xC0, 0xC1, 0xC2))
    kind = rng.randrange(7)
    if kind == 0:  # another size
        sizes = [rng.choice((0, 1, 16, 24, 5000, 65500)) for _ in range(2)]
        segments[frame] = _put(segments[frame], 5, ">HH", *sizes)
    elif kind == 1:  # other components
        value = rng.choice((0, 1, 2, 3, 4, 17, 34, 65, 255))
        segments[frame] = _put(segments[frame], 9 + rng.randrange(10), "B", value)
    elif kind == 2:
        segments[frame] = _put(segments[frame], 1, "B", rng.randrange(0xC0, 0xD0))
    elif kind == 3:  # scans again
        scans *= rng.choice((2, 21, 401))
    elif kind == 4:
        scans += rng.choice((b"", bytes(50), b"\xff\xd9" + data, b"\xff\xd8\xff\xd9"))
    else:
        odd = struct.pack(">HHB", 0xFFFE, rng.choice((0, 2, 3, 65535)), 0)
        _mutate_parts(rng, segments, odd)
    return data[:2] + b"".join(segments) + scans + data[-2:] * (kind != 4)


def odd_png(rng: Random, data: bytes) -> bytes:
    """Change chunks, with correct checksums."""
    kind = rng.random()
    if kind < 0.03:
        return png_of(24, 16, bytes(rng.choice((10**6, 10**8))))
    if kind < 0.6:
        return _mutate_chunks(rng, data)
    if kind < 0.8:
        return data[:33] + png_chunk(*_ancillary(rng)) + data[33:]
    value = rng.choice((0, 1, 2, 3, 4, 6, 8, 16, 24, 255))
    header = _put(data[16:29], rng.randrange(13), "B", value)
    return data[:8] + png_chunk(b"IHDR", header) + data[33:]


def _mutate_chunks(rng: Random, data: bytes) -> bytes:
    at, chunks = 8, []
    while at < len(data):
        length = struct.unpack_from(">I", data, at)[0]
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    place, kind = rng.randrange(len(chunks)), rng.randrange(7)
    name, content = chunks[place]
    if kind <= 1:
        chunks[place] = (name, mutate.mutate_bytes(rng, content))
    elif kind == 2:
        place = [name for name, _ in chunks].index(b"IDAT")
        rows = mutate.mutate_bytes(rng, zlib.decompress(chunks[place][1]))
        chunks[place] = (b"IDAT", zlib.compress(rows))
    elif kind == 3:
        names = (b"tEXt", b"tRNS", b"ABCD", b"gAMA", b"sBIT", b"iCCP", b"eXIf", b"bKGD")
        chunks[place] = (rng.choice(names), content)
    elif kind == 4:
        chunks[place : place + 1] = [(name, content[:7]), (name, content[7:])]
    else:
        _mutate_parts(rng, chunks, (b"tEXt", b"x\0y"))
    return data[:8] + b"".join(png_chunk(*chunk) for chunk in chunks)


def _ancillary(rng: Random) -> tuple[bytes, bytes]:
    bomb = zlib.compress(bytes(rng.choice((10, 10**5, 10**7, 10**8))))
    chunks = {
        b"zTXt": b"Comment\0\0" + bomb, b"iCCP": b"icc\0\0" + bomb,
        b"iTXt": b"Comment\0\1\0\0\0" + bomb, b"tEXt": b"x" * rng.choice((3, 10**5)),
        b"tRNS": bytes(rng.choice((0, 1, 2, 6, 300))), b"PLTE": bytes(rng.choice((0, 1, 3, 768, 771))),
        b"gAMA": bytes(rng.choice((0, 4))), b"eXIf": exif(6)[6:], b"acTL": struct.pack(">II", 2, 0),
    }  # fmt: skip
    return rng.choice([*chunks.items()])


def odd_webp(rng: Random, data: bytes) -> bytes:
    """Change RIFF chunks; correct the length most of the time."""
    at, chunks = 12, []
    while at + 8 <= len(data):
        name, length = struct.unpack_from("<4sI", data, at)
        chunks.append((name, data[at + 8 : at + 8 + length]))
        at += 8 + length + length % 2
    place, kind = rng.randrange(len(chunks)), rng.randrange(4)
    name, content = chunks[place]
    if kind == 0:
        chunks[place] = (name, mutate.mutate_bytes(rng, content, 12))
    elif kind == 1:
        names = (b"VP8 ", b"VP8L", b"VP8X", b"ANIM", b"ANMF", b"ALPH", b"abcd")
        chunks[place] = (rng.choice(names), content)
    else:
        size = struct.pack("<I", rng.choice((0, 15, 4999, 0xFFFFFF)))[:3]
        odd = (b"VP8X", bytes([rng.randrange(64), 0, 0, 0]) + size + size)
        _mutate_parts(rng, chunks, odd)
    body = b"WEBP"
    for name, part in chunks:
        body += name + struct.pack("<I", len(part)) + part + bytes(len(part) % 2)
    wrong = rng.choice((0, 4, len(body) - 4, 2**31, 2**32 - 1))
    return b"RIFF" + struct.pack("<I", len(body) if rng.random() < 0.8 else wrong) + body


# --- BMP, PPM and TIFF ----------------------------------------------------------------------------


def odd_bmp(rng: Random, data: bytes) -> bytes:
    at = rng.choice((2, 10, 14, 18, 22, 26, 28, 30, 34, 46, 50))
    values = (0, 1, 2, 3, 4, 8, 12, 16, 24, 32, 40, 108, 124, -16, 2**31 - 1, -(2**31), 5000)
    return _put(data, at, "<i", rng.choice(values))


def odd_ppm(rng: Random, data: bytes) -> bytes:
    """Change, remove or repeat a token of the header, or put a comment into it."""
    tokens = data.split(None, 3)
    odd = (b"P%d" % rng.randrange(1, 8), b"0", b"255", b"65535", b"99999", b"-1", b"#\n", b"")
    tokens[rng.randrange(len(tokens))] = rng.choice(odd)
    return rng.choice((b"\n", b" ", b"\r\n", b"\n# x\n")).join(tokens)


#: Tags that matter, or that seldom occur.
_TAGS = (254, 320, 322, 323, 324, 325, 338, 339, 347, 530, 700, 33723, 34675)


def odd_tiff(rng: Random, data: bytes) -> bytes:
    """Change, add or repeat tags of the first directory."""
    order = "<" if data[:2] == b"II" else ">"
    directory = struct.unpack_from(f"{order}I", data, 4)[0]
    count = struct.unpack_from(f"{order}H", data, directory)[0]
    entries = data[directory + 2 :][: 12 * count]
    tags = [list(tag) for tag in struct.iter_unpack(f"{order}HHII", entries)]
    for _ in range(rng.choice((1, 1, 2))):
        tag, kind = rng.choice(tags), rng.randrange(5)
        if kind == 0:
            values = (0, 1, 2, 3, 5, 7, 8, 16, 32768, 65535, 2**31, 2**32 - 1, len(data))
            tag[3] = rng.choice(values)
        elif kind == 1:
            tag[2] = rng.choice((0, 1, 2, 1000, 10**5, 2**31, 2**32 - 1))
        elif kind == 2:
            tag[1] = rng.choice((0, 1, 2, 3, 4, 5, 7, 12, 13, 16, 99))
        elif kind == 3:
            tags += [tag] * rng.choice((1, 2000))
        else:
            _mutate_parts(rng, tags, [rng.choice(_TAGS), 4, 1, 16])
    body = b"".join(struct.pack(f"{order}HHII", *tag) for tag in tags)
    head = data[:4] + struct.pack(f"{order}I", len(data))
    return head + data[8:] + struct.pack(f"{order}H", len(tags)) + body + bytes(4)


# --- JPEG 2000 and AVIF ---------------------------------------------------------------------------


def odd_jp2(rng: Random, data: bytes) -> bytes:
    """Change a field of the boxes, of the size, or of the head of a tile."""
    start, tile = data.index(b"\xff\x4f\xff\x51"), data.index(b"\xff\x90")
    places = (
        rng.randrange(12, max(start, 13)),
        start + rng.randrange(48),
        tile + rng.randrange(12),
    )
    return _put(data, rng.choice(places), "B", rng.choice((0, 1, 2, 7, 8, 15, 16, 127, 255)))


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
    values = (0, 1, 7, 24, 4000, 30_000, 1 << 16, 0xFFFFFFFF)
    return _put(data, at + 4 + rng.randrange(16), ">I", rng.choice(values))


# --- DICOM (PS3.5 and PS3.10) -------------------------------------------------------------------


def _element(tag: int, kind: bytes, value: bytes) -> bytes:
    head = struct.pack("<HH2s", tag >> 16, tag & 0xFFFF, kind)
    form = "<HI" if kind == b"OW" else "<H"
    return head + struct.pack(form, *[0] * (kind == b"OW"), len(value)) + value


def _dicom(colors: bytes, samples: int, bits: int) -> bytes:
    """Make a DICOM: a preamble, the mark, the transfer syntax, and tags in order."""
    numbers = {0x280002: samples, 0x280006: 0, 0x280010: 16, 0x280011: 24, 0x280100: bits,
               0x280101: bits, 0x280102: bits - 1, 0x280103: 0}  # fmt: skip
    tags = {tag: (b"US", struct.pack("<H", number)) for tag, number in numbers.items()}
    tags |= {0x280004: (b"CS", colors), 0x281052: (b"DS", b"-5"), 0x281053: (b"DS", b"1 ")}
    tags[0x100010] = (b"PN", b"NAME^OF^PATIENT ")
    pixels = photo(5, 24, 16).convert("RGB" if samples > 1 else "L").tobytes()
    tags[0x7FE00010] = (b"OW", pixels * (bits // 8))
    body = b"".join(_element(tag, *value) for tag, value in sorted(tags.items()))
    meta = _element(0x20010, b"UI", b"1.2.840.10008.1.2.1\0")
    return (
        bytes(128) + b"DICM" + _element(0x20000, b"UL", struct.pack("<I", len(meta))) + meta + body
    )


def odd_dicom(rng: Random, data: bytes) -> bytes:
    """Change a byte of the tags, or a length or a value after a tag's name."""
    at = data.index(b"\x28\0") + rng.randrange(160)
    if rng.random() < 0.5:
        return _put(data, at, "B", rng.randrange(256))
    return _put(data, at, "<H", rng.choice((0, 1, 3, 8, 16, 24, 32, 5000, 0xFFFF)))
