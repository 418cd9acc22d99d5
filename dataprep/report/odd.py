"""Find the images that stand out: by their brightness, contrast, size and aspect ratio."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from dataprep.report.columns import Columns
from dataprep.report.facts import Looks, OddImage
from dataprep.report.pictures import EXTREMES, UNREADABLE, Pictures
from dataprep.report.statistics import aspects

#: Mean luma below which an image is almost black, above which it is almost white, and standard
#: deviation below which it shows almost one color; all of 255.
DARK, BRIGHT, FLAT = 16, 239, 4


def odd_sizes(columns: Columns) -> dict[str, tuple[OddImage, ...]]:
    """Find the images of extreme size and aspect ratio among all samples."""
    pixels = columns.width.astype(np.int64) * columns.height
    ratio = aspects(columns)
    oddness = np.maximum(ratio, 1 / ratio)

    def most(values: NDArray[np.number], least: float = -np.inf) -> Iterator[tuple[int, float]]:
        order = np.argsort(-values, kind="stable")[:EXTREMES]
        return ((int(row), float(ratio[row])) for row in order if values[row] > least)

    found = {
        "Largest": tuple(
            OddImage(row, _size(columns, row))
            for row, _ in most(pixels, float(pixels.min(initial=0)))
        ),
        "Smallest": tuple(
            OddImage(row, _size(columns, row))
            for row, _ in most(-pixels, -float(pixels.max(initial=0)))
        ),
        "Oddest aspect ratio": tuple(
            OddImage(row, f"{_size(columns, row)}, {_ratio(value)}")
            for row, value in most(oddness, 2.0)
        ),
    }
    return {kind: images for kind, images in found.items() if images}


def odd_rows(odd: Mapping[str, tuple[OddImage, ...]]) -> frozenset[int]:
    """Return the rows of all images that stand out."""
    return frozenset(image.row for images in odd.values() for image in images)


def describe_looks(
    pictures: Pictures, sampled: NDArray[np.int64], sizes: Mapping[str, tuple[OddImage, ...]]
) -> Looks:
    """Describe what the decoded pixels say.

    Args:
        pictures: the decoded images.
        sampled: rows of the random sample; other images were decoded only to be shown.
        sizes: images of extreme size, which are listed too.

    """
    decodes = readable(pictures)
    counted = decodes & np.isin(pictures.rows, sampled)
    formats: dict[str, int] = {}
    for name, is_counted in zip(pictures.formats, counted, strict=True):
        if is_counted:
            formats[name] = formats.get(name, 0) + 1
    return Looks(
        decoded=len(pictures.rows),
        sampled=len(sampled),
        failed=dict(sorted(pictures.failed.items())),
        formats=dict(sorted(formats.items(), key=lambda item: (-item[1], item[0]))),
        dark=int((pictures.brightness[counted] < DARK).sum()),
        bright=int((pictures.brightness[counted] > BRIGHT).sum()),
        flat=int((pictures.contrast[counted] < FLAT).sum()),
        odd={
            "Darkest": _extreme(pictures, decodes, pictures.brightness, "brightness {:.0f} of 255"),
            "Brightest": _extreme(
                pictures, decodes, -pictures.brightness, "brightness {:.0f} of 255"
            ),
            "Flattest": _extreme(pictures, decodes, pictures.contrast, "contrast {:.1f}"),
            **sizes,
        },
    )


def flat_rows(pictures: Pictures) -> NDArray[np.int64]:
    """Return the rows of decoded images that show almost one color."""
    return pictures.rows[readable(pictures) & (pictures.contrast < FLAT)]


def readable(pictures: Pictures) -> NDArray[np.bool_]:
    """Return which of the decoded images can be decoded."""
    return np.array([name != UNREADABLE for name in pictures.formats], np.bool_)


def _extreme(
    pictures: Pictures, decodes: NDArray[np.bool_], values: NDArray[np.float32], text: str
) -> tuple[OddImage, ...]:
    order = np.flatnonzero(decodes)[np.argsort(values[decodes], kind="stable")][:EXTREMES]
    return tuple(
        OddImage(int(pictures.rows[place]), text.format(abs(float(values[place]))))
        for place in order
    )


def _size(columns: Columns, row: int) -> str:
    return f"{columns.width[row]:,} \N{MULTIPLICATION SIGN} {columns.height[row]:,}"


def _ratio(value: float) -> str:
    return f"{value:.1f}:1" if value >= 1 else f"1:{1 / value:.1f}"
