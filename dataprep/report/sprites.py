"""Join thumbnails into one JPEG for each group, from which the page shows each picture."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import simplejpeg

from dataprep.report.thumbnails import SIDE, decode_thumbnail

_PER_ROW = 16

#: JPEG qualities of sprites: if pictures do not fit at the first one, they get the second.
QUALITIES = (76, 60)


class Tile(NamedTuple):
    """Where a picture is in its sprite, in pixels."""

    x: int
    y: int
    width: int
    height: int


class Sprite(NamedTuple):
    """One JPEG with several pictures.

    Attributes:
        uri: the JPEG as a data URI.
        width: pixels.
        height: pixels.
        tiles: place of each picture, by its name.

    """

    uri: str
    width: int
    height: int
    tiles: Mapping[int, Tile]


def make_sprite(
    thumbnails: Mapping[int, bytes], names: Sequence[int], quality: int = QUALITIES[0]
) -> Sprite | None:
    """Make a sprite of the named thumbnails; `None` if there are none of them."""
    shown = [name for name in dict.fromkeys(names) if name in thumbnails]
    if not shown:
        return None
    columns, rows = min(len(shown), _PER_ROW), -(-len(shown) // _PER_ROW)
    canvas = np.zeros((rows * SIDE, columns * SIDE, 3), np.uint8)
    tiles = {}
    for number, name in enumerate(shown):
        pixels = decode_thumbnail(thumbnails[name])
        height, width = pixels.shape[:2]
        y, x = (place * SIDE for place in divmod(number, _PER_ROW))
        # The rest of the cell repeats the edge, so that it costs few bytes and no other color
        # bleeds into the picture.
        filled = np.pad(pixels, ((0, SIDE - height), (0, SIDE - width), (0, 0)), mode="edge")
        canvas[y : y + SIDE, x : x + SIDE] = filled
        tiles[name] = Tile(x, y, width, height)
    jpeg = simplejpeg.encode_jpeg(canvas, quality, "RGB", "420")
    uri = "data:image/jpeg;base64," + base64.b64encode(jpeg).decode()
    return Sprite(uri, columns * SIDE, rows * SIDE, tiles)
