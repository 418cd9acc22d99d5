"""ICC color profiles: sRGB with exchanged colors, and processing elements, which may share their data."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from PIL import ImageCms

SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
_HEADER = 128


def exchanged(one: bytes, other: bytes) -> bytes:
    """Return sRGB with two of its colors exchanged, such as b"r" and b"g", which changes all colors visibly."""
    one, other = one + b"XYZ", other + b"XYZ"
    return SRGB.replace(one, b"tmp!").replace(other, one).replace(b"tmp!", other)


def multi_stage_profile(count: int, elements: Sequence[bytes]) -> bytes:
    """Make a profile of `count` stages, which repeat `elements`."""
    at, positions = 16 + 8 * count, []
    for element in elements:
        positions.append(struct.pack(">II", at, len(element)))
        at += len(element)
    table = b"".join(positions[number % len(elements)] for number in range(count))
    stages = b"mpet" + struct.pack(">IHHI", 0, 3, 3, count) + table + b"".join(elements)
    header = bytearray(SRGB[:_HEADER])
    struct.pack_into(">I", header, 0, _HEADER + 16 + len(stages))
    # The first version with processing elements.
    struct.pack_into(">I4s", header, 8, 0x04300000, b"mntr")
    return bytes(header) + struct.pack(">I4sII", 1, b"D2B0", _HEADER + 16, len(stages)) + stages


def matrix() -> bytes:
    """A stage that mixes the channels."""
    rows = (0.9, 0.05, 0.05, 0.05, 0.9, 0.05, 0.05, 0.05, 0.9, 0.01, 0.01, 0.01)
    return b"matf" + struct.pack(">IHH12f", 0, 3, 3, *rows)


def curves(segments: int) -> bytes:
    """A stage of three curves, which share their data: straight lines of this many segments."""
    breaks = struct.pack(f">{segments - 1}f", *(number / segments for number in range(1, segments)))
    line = b"parf" + struct.pack(">IHH4f", 0, 0, 0, 1, 1, 0, 0)
    curve = b"curf" + struct.pack(">IHH", 0, segments, 0) + breaks + line * segments
    return b"cvst" + struct.pack(">IHH6I", 0, 3, 3, *(36, len(curve)) * 3) + curve
