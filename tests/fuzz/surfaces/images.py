"""Encoded images: mutated headers and pixels, and files of a few KB that expand to a lot."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from random import Random

from PIL import Image, PngImagePlugin, UnidentifiedImageError

from fuzz import encoded, mutate
from fuzz.checks import Case, require
from fuzz.sources import Made, Source

#: Images in one case.
_COUNT = 12

_OPTIONS = (
    ("--validate", "decode"),
    ("--validate", "decode"),
    ("--validate", "decode", "--fmt", "webdataset"),
    ("--validate", "header"),
    ("--validate", "decode", "--resize-shorter", "8"),
    ("--validate", "decode", "--store", "raw", "--raw-size", "8"),
)

#: For formats that DALI does not decode.
_TRANSCODE = (
    ("--transcode", "png"),
    ("--transcode", "webp", "--fmt", "webdataset"),
    ("--transcode", "jpeg", "--resize-shorter", "8"),
)

#: For TIFFs that are rewritten.
_PAGES = (("--transcode", "tiff"), ("--transcode", "png", "--page", "1"))

_WINDOW = tuple((*options, "--window", "90,180") for options in _TRANSCODE)

#: Others are rejected then. Otherwise, a source of mixed kinds is refused as a whole.
_ONE_KIND = ("--max-rejected", "1", "--channels", "3", "--dtype", "uint8")


def _source(
    suffix: str,
    special: Callable[[Random, bytes], bytes],
    options: Sequence[tuple[str, ...]] = _OPTIONS,
) -> Source:
    def make(rng: Random) -> Case:
        case = {}
        for number in range(_COUNT):
            data, choice = rng.choice(encoded.seeds(suffix)), rng.random()
            if choice < 0.4:
                data = special(rng, data)
            else:
                data = mutate.mutate_bytes(rng, data, 100 if choice < 0.7 else None)
            case[f"class/{number:02d}.{suffix}"] = data
        return case

    return Source(make, _check, [(*_ONE_KIND, *each) for each in options])


def _check(case: Case, made: Made) -> None:
    """Compare with Pillow. The loader decodes the images with DALI."""
    require(made.is_complete, "images that are rejected end the conversion")
    stored = sorted(row["source"] for row in made.rows)
    kept = case.keys() - {"options"} - {row["source"] for row in made.rejected}
    require(stored == sorted(kept), f"kept {sorted(kept)}, but stored {stored}")
    if "header" in made.options or "raw" in made.options:
        return
    # Text is no reason to refuse an image.
    PngImagePlugin.MAX_TEXT_CHUNK = PngImagePlugin.MAX_TEXT_MEMORY = 1 << 30
    for row in made.rows:
        is_changed = {"--resize-shorter", "--transcode"} & {*made.options}
        require(is_changed or row["data"] == case[row["source"]], "other bytes")
        try:
            with Image.open(io.BytesIO(row["data"])) as image:
                size = sorted(image.size)
        except UnidentifiedImageError:
            continue  # a TIFF of three channels of gray
        stated = sorted((row["width"], row["height"]))
        require(size == stated, f"verify says sound, but Pillow reads {size}, not {stated}")


SURFACES = {
    "jpeg": _source("jpg", encoded.odd_jpeg),
    "png": _source("png", encoded.odd_png),
    "webp": _source("webp", encoded.odd_webp),
    "bmp": _source("bmp", encoded.odd_bmp),
    "tiff": _source("tif", encoded.odd_tiff, (*_OPTIONS, *_PAGES)),
    "ppm": _source("ppm", encoded.odd_ppm),
    "jp2": _source("jp2", encoded.odd_jp2),
    "avif": _source("avif", encoded.odd_avif, _TRANSCODE),
    "dicom": _source("dcm", encoded.odd_dicom, _WINDOW),
}
