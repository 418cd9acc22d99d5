"""Statistics over the columns of a dataset: pure functions of NumPy arrays."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataprep.options import NORMALIZATIONS
from dataprep.report.columns import Categories, Columns
from dataprep.report.facts import (
    Balance,
    ClassFacts,
    Cost,
    EpochCost,
    Histogram,
    Looks,
    OddImage,
    SizeClass,
    SizeGrid,
    SplitFacts,
)
from dataprep.report.pictures import EXTREMES, UNREADABLE, Pictures
from manifests.schema import Manifest

#: Quantiles of a column, each the nearest value that occurs.
QUANTILES = {"min": 0.0, "5%": 0.05, "median": 0.5, "95%": 0.95, "max": 1.0}

#: Preferred numbers (ISO 3, R10) of one decade: bins of equal ratio whose bounds are round.
_STEPS = (1.0, 1.25, 1.6, 2.0, 2.5, 3.2, 4.0, 5.0, 6.4, 8.0)

#: A bound that no value reaches: a bin that ends there has no upper bound. JSON has no infinity.
OPEN_END = 1e9

#: Bounds of the aspect ratios, width / height, in bins around 1:1, 4:3, 3:2 and 16:9 and the same
#: upright.
ASPECT_EDGES = (
    0.0,
    0.25,
    0.4,
    0.52,
    0.62,
    0.71,
    0.8,
    0.95,
    1.05,
    1.25,
    1.4,
    1.6,
    1.9,
    2.5,
    4.0,
    OPEN_END,
)

#: Bounds of the brightness histogram, of 0 to 255.
LEVEL_EDGES = tuple(float(edge) for edge in range(0, 257, 16))


def split_facts(columns: Columns, manifest: Manifest) -> tuple[SplitFacts, ...]:
    """Describe each split."""
    facts = []
    for number, split in enumerate(manifest.splits):
        rows = columns.split == number
        width, height, size = columns.width[rows], columns.height[rows], columns.size[rows]
        facts.append(
            SplitFacts(
                name=split.name,
                samples=int(rows.sum()),
                shards=len(split.shards),
                bytes=split.bytes,
                image_bytes=int(size.sum()),
                pixels=int((width.astype(np.float64) * height).sum()),
                classes=len(np.unique(columns.label[rows])),
                width=quantiles(width),
                height=quantiles(height),
                size=quantiles(size),
            )
        )
    return tuple(facts)


def quantiles(values: NDArray[np.integer]) -> dict[str, int]:
    """Return the `QUANTILES` of a column; all are 0 for a column without rows."""
    if not len(values):
        return dict.fromkeys(QUANTILES, 0)
    found = np.quantile(values, list(QUANTILES.values()), method="nearest")
    return {name: int(value) for name, value in zip(QUANTILES, found, strict=True)}


def class_labels(columns: Columns, names: Sequence[str]) -> NDArray[np.int64]:
    """Return the labels of the classes that a report describes, ascending: int64 [classes].

    They are those with a name and those with samples. Of very many names, those without samples are
    left out.
    """
    present = np.unique(columns.label).astype(np.int64)
    return np.union1d(np.arange(len(names)), present) if len(names) <= _MAX_NAMED else present


#: Named classes, above which those without samples are left out.
_MAX_NAMED = 100_000


def class_counts(columns: Columns, labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count the samples of each class in each split: int64 [classes, splits]."""
    splits = len(columns.splits)
    pairs = np.searchsorted(labels, columns.label) * splits + columns.split
    return np.bincount(pairs, minlength=len(labels) * splits).reshape(len(labels), splits)


def class_facts(
    columns: Columns, names: Sequence[str], flagged: Mapping[str, NDArray[np.int64]]
) -> tuple[ClassFacts, ...]:
    """Describe each class.

    Args:
        columns: the samples.
        names: class names in label order. Labels above them are named by their number.
        flagged: labels of images with a problem, by what is wrong with them.

    """
    labels = class_labels(columns, names)
    count = len(labels)

    def per_class(
        found: NDArray[np.integer], weights: NDArray[np.int64] | None = None
    ) -> list[int]:
        places = np.searchsorted(labels, found)
        return [int(number) for number in np.bincount(places, weights=weights, minlength=count)]

    counts = class_counts(columns, labels).tolist()
    sizes = per_class(columns.label, columns.size)
    flags = {what: per_class(found[np.isin(found, labels)]) for what, found in flagged.items()}
    return tuple(
        ClassFacts(
            label=label,
            name=names[label] if label < len(names) else f"label {label}",
            samples=tuple(counts[place]),
            image_bytes=sizes[place],
            flagged={what: found[place] for what, found in flags.items() if found[place]},
        )
        for place, label in enumerate(labels.tolist())
    )


def balance(split: str, counts: NDArray[np.int64], names: int = 0) -> Balance:
    """Describe how evenly the samples of a split are divided over its classes.

    Args:
        split: its name.
        counts: samples of each class, int64 [classes].
        names: number of named classes, some of which may not be in `counts`.

    """
    present = counts[counts > 0]
    shares = present / max(1, present.sum())
    evenness = (
        float(-(shares * np.log(shares)).sum() / np.log(len(present))) if len(present) > 1 else 1.0
    )
    return Balance(
        split=split,
        smallest=int(present.min()) if len(present) else 0,
        largest=int(present.max()) if len(present) else 0,
        median=float(np.median(present)) if len(present) else 0.0,
        evenness=round(evenness, 6),
        empty=max(names, len(counts)) - len(present),
    )


def round_edges(low: float, high: float, most: int = 24) -> tuple[float, ...]:
    """Return round bin bounds of about equal ratio that enclose the values from `low` to `high`.

    Args:
        low: the smallest value, above 0.
        high: the largest value.
        most: number of bins. Wider bins are used for a large range.

    """
    decades = range(int(np.floor(np.log10(low))), int(np.floor(np.log10(high))) + 2)
    for every in (1, 2, 5, 10):
        edges = [step * 10.0**decade for decade in decades for step in _STEPS[::every]]
        first = max(0, int(np.searchsorted(edges, low, "right")) - 1)
        last = int(np.searchsorted(edges, high, "right"))
        if last - first <= most:
            break
    return tuple(round(edge, 6) for edge in edges[first : last + 1])


def histogram(
    name: str,
    unit: str,
    edges: Sequence[float],
    values: NDArray[np.number],
    *,
    split: NDArray[np.int16],
    splits: Sequence[str],
) -> Histogram:
    """Count values in bins, for each split."""
    bins = np.searchsorted(edges, values, "right") - 1
    return Histogram(
        name=name,
        unit=unit,
        edges=tuple(edges),
        counts={
            each: tuple(np.bincount(bins[split == number], minlength=len(edges) - 1).tolist())
            for number, each in enumerate(splits)
        },
    )


def histograms(columns: Columns) -> dict[str, Histogram]:
    """Count the images by shorter side, aspect ratio and bytes."""
    if not len(columns):
        return {}
    shorter = np.minimum(columns.width, columns.height)

    def count(
        name: str, unit: str, values: NDArray[np.number], edges: Sequence[float]
    ) -> Histogram:
        return histogram(name, unit, edges, values, split=columns.split, splits=columns.splits)

    def rounded(values: NDArray[np.number]) -> tuple[float, ...]:
        return round_edges(max(1, int(values.min())), max(1, int(values.max())))

    return {
        "shorter": count("Shorter side", "px", np.maximum(shorter, 1), rounded(shorter)),
        "aspect": count("Aspect ratio", "", aspects(columns), ASPECT_EDGES),
        "bytes": count(
            "Bytes per image", "bytes", np.maximum(columns.size, 1), rounded(columns.size)
        ),
    }


def aspects(columns: Columns) -> NDArray[np.float64]:
    """Return width / height of each image; 1 for an image without a size."""
    return np.maximum(columns.width, 1) / np.maximum(columns.height, 1)


def size_grid(columns: Columns) -> SizeGrid:
    """Count the images by width and height, on the same scale for both."""
    if not len(columns):
        return SizeGrid((), (), ())
    sides = [np.maximum(side, 1) for side in (columns.width, columns.height)]
    edges = [round_edges(int(side.min()), int(side.max()), most=20) for side in sides]
    places = [
        np.searchsorted(each, side, "right") - 1 for each, side in zip(edges, sides, strict=True)
    ]
    columns_, rows_ = (len(each) - 1 for each in edges)
    counts = np.bincount(places[1] * columns_ + places[0], minlength=rows_ * columns_).reshape(
        rows_, columns_
    )
    return SizeGrid(edges[0], edges[1], tuple(map(tuple, counts.tolist())))


def count_names(
    categories: Categories | None, parts: Callable[[str], Sequence[str]] = lambda name: [name]
) -> dict[str, int]:
    """Count the values of a column, the most frequent first.

    Args:
        categories: the column.
        parts: what a value counts as.

    """
    if categories is None:
        return {}
    counts: Counter[str] = Counter()
    for name, count in enumerate_counts(categories):
        for part in parts(name):
            counts[part] += count
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def enumerate_counts(categories: Categories) -> Iterator[tuple[str, int]]:
    """Yield each text of a column that occurs, with the number of its rows."""
    counts = np.bincount(
        categories.codes[categories.codes >= 0], minlength=len(categories.names)
    ).tolist()
    return ((name, count) for name, count in zip(categories.names, counts, strict=True) if count)


def change_names(change: str) -> list[str]:
    """Return what was done to an image, from its value in the column ``change``."""
    return [NORMALIZATIONS.get(name, name) for name in change.split()] or ["unchanged"]


# --- the cost of training with the dataset ----------------------------------------------------------


#: Mean pixels of an image, and images per second that `loaders` delivered on one H200 with 16 CPU
#: cores with the preset imagenet-train, all data in memory: docs/speed.md and docs/memory.md.
MEASURED = ((341 * 256, 39_000.0), (500 * 375, 23_500.0), (3840 * 2160, 1_905.0))
#: Images per second for raw pixels of 256x256, on the same GPU.
MEASURED_RAW, RAW_PIXELS = 87_700.0, 256 * 256
#: GPU and CPU of these measurements.
MACHINE = "one H200 with 16 CPU cores, preset imagenet-train, images in memory"

#: Upper bounds of the shorter sides of the groups of images, in pixels.
_BOUNDS = (128, 256, 384, 512, 768, 1080, 2160)


def decoding_speed(mean_pixels: float, *, encoded: bool = True) -> float:
    """Predict the images per second of loading, by interpolation between measurements.

    Time per image grows in proportion to a power of its pixels between two measurements. Smaller
    images count as the smallest measured ones, because other work than decoding limits their speed.
    """
    if not encoded:
        return MEASURED_RAW * min(1.0, RAW_PIXELS / max(mean_pixels, 1.0))
    pixels, speed = (np.log(column) for column in zip(*MEASURED, strict=True))
    if mean_pixels > MEASURED[-1][0]:
        return MEASURED[-1][1] * MEASURED[-1][0] / mean_pixels
    return float(np.exp(np.interp(np.log(max(mean_pixels, 1.0)), pixels, speed)))


def size_classes(columns: Columns, *, encoded: bool) -> tuple[SizeClass, ...]:
    """Group the images by their shorter side."""
    pixels = columns.width.astype(np.int64) * columns.height
    group = np.searchsorted(_BOUNDS, np.minimum(columns.width, columns.height))
    total = max(1, int(pixels.sum()))
    lows = (1, *(bound + 1 for bound in _BOUNDS))
    names = [f"{low:,} to {high:,}" for low, high in zip(lows, _BOUNDS, strict=False)] + [
        f"over {_BOUNDS[-1]:,}"
    ]
    found = []
    for number in np.unique(group).tolist():
        inside: NDArray[np.int64] = pixels[group == number]
        mean = float(inside.mean())
        speed = decoding_speed(mean, encoded=encoded)
        share = round(int(inside.sum()) / total, 6)
        found.append(SizeClass(names[number], len(inside), share, round(mean), _rounded(speed)))
    return tuple(found)


def epoch_costs(columns: Columns, *, encoded: bool) -> tuple[EpochCost, ...]:
    """Predict what an epoch over each split takes."""
    pixels = columns.width.astype(np.int64) * columns.height
    costs = []
    for number, split in enumerate(columns.splits):
        rows = columns.split == number
        count = int(rows.sum())
        speed = (
            _rounded(decoding_speed(float(pixels[rows].mean()), encoded=encoded)) if count else 0.0
        )
        seconds = round(count / speed, 1) if speed else 0.0
        costs.append(EpochCost(split, count, int(columns.size[rows].sum()), speed, seconds))
    return tuple(costs)


def make_cost(
    columns: Columns, manifest: Manifest, batch_size: int, memory: Mapping[str, Any] | str
) -> Cost:
    """Join the parts; `memory` is the result of `MemoryEstimate.result`."""
    encoded = manifest.store == "encoded"
    note = memory if isinstance(memory, str) else ""
    known = None if isinstance(memory, str) else memory["splits"]
    return Cost(
        batch_size=batch_size,
        gpu_memory=(
            None if known is None else {split: each["gpu_memory"] for split, each in known.items()}
        ),
        memory_note=note,
        sizes=size_classes(columns, encoded=encoded),
        epochs=epoch_costs(columns, encoded=encoded),
    )


class MemoryEstimate:
    """The estimate of GPU memory that ``loaders memory`` prints, computed while this process does other work.

    `dataprep` never imports `loaders`, which knows how much memory decoding takes, so this runs its
    program.
    """

    def __init__(self, folder: str, batch_size: int) -> None:
        command = [
            sys.executable,
            "-P",
            "-m",
            "loaders",
            "memory",
            "--batch-size",
            str(batch_size),
            "--json",
            "--",
            folder,
        ]
        self._process = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def result(self) -> Mapping[str, Any] | str:
        """Wait for the estimate; return it, or why there is none."""
        output, errors = self._process.communicate()
        if self._process.returncode:
            return (
                errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
                or "`loaders memory` failed"
            )
        found: Mapping[str, Any] = json.loads(output)
        return found

    def close(self) -> None:
        """Stop the program, if it still runs."""
        self._process.kill()
        self._process.communicate()


def _rounded(speed: float) -> float:
    """Round a prediction to two digits: it is no more precise."""
    return float(f"{speed:.2g}")


# --- images that stand out --------------------------------------------------------------------------


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
