"""Statistics over the columns of a dataset: pure functions of NumPy arrays."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise, repeat
from typing import Any

import numpy as np

from dataprep.arrays import AnyArray, Float64Array, Int16Array, IntegerArray
from dataprep.options import NORMALIZATIONS
from dataprep.report.columns import Columns
from dataprep.report.facts import (
    Balance,
    ClassFacts,
    Cost,
    EpochCost,
    Histogram,
    Looks,
    OddImage,
    Rows,
    ShapeFacts,
    SizeClass,
    SizeGrid,
    SplitFacts,
    ranked,
)
from dataprep.report.pictures import EXTREMES, Pictures
from dataprep.summary.info import quantiles
from manifests.buckets import candidates, find_buckets, nearest_buckets
from manifests.naflex import token_grids
from manifests.schema import Manifest

#: Preferred numbers (ISO 3, R10) of one decade: bins of equal ratio whose bounds are round.
_STEPS = np.array([1.0, 1.25, 1.6, 2.0, 2.5, 3.2, 4.0, 5.0, 6.4, 8.0])

#: A bound that no value reaches: a bin that ends there has no upper bound. JSON has no infinity.
OPEN_END = 1e9

#: Bounds of the aspect ratios, width / height, in bins around 1:1, 4:3, 3:2 and 16:9 and the same
#: upright.
_ASPECTS = "0 0.25 0.4 0.52 0.62 0.71 0.8 0.95 1.05 1.25 1.4 1.6 1.9 2.5 4"
ASPECT_EDGES = (*map(float, _ASPECTS.split()), OPEN_END)

#: Bounds of the brightness histogram, of 0 to 255.
LEVEL_EDGES = tuple(map(float, range(0, 257, 16)))

#: Named classes, above which classes without samples are left out.
_MAX_NAMED = 100_000

#: Texts of a column of an untrusted table that are counted separately; all others count as one.
_MAX_TEXTS, _OTHER = 1000, "(others)"


def split_facts(columns: Columns, manifest: Manifest) -> tuple[SplitFacts, ...]:
    """Describe each split."""
    facts = []
    for number, split in enumerate(manifest.splits):
        rows = columns.split == number
        width, height, size = columns.width[rows], columns.height[rows], columns.size[rows]
        facts.append(
            SplitFacts(
                name=split.name,
                samples=len(size),
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


def class_facts(columns: Columns, flagged: Mapping[str, Rows]) -> tuple[ClassFacts, ...]:
    """Describe the classes with a name and the classes with samples. Of very many, only the latter.

    Args:
        columns: the samples. Labels above the named classes are named by their number.
        flagged: labels of images with a problem, by what is wrong with them.

    """
    names, labels = columns.classes, np.unique(columns.label)
    if len(names) <= _MAX_NAMED:
        labels = np.union1d(np.arange(len(names)), labels)
    # From here on, a class is its place among these labels.
    place = np.searchsorted(labels, columns.label)
    count, splits = len(labels), len(columns.splits)
    in_splits = np.bincount(place * splits + columns.split, minlength=count * splits)
    sizes = np.bincount(place, columns.size, count)
    flags = {}
    for what, found in flagged.items():
        known = found[np.isin(found, labels)]
        flags[what] = np.bincount(np.searchsorted(labels, known), minlength=count).tolist()
    facts = []
    for number, samples in enumerate(in_splits.reshape(count, splits).tolist()):
        label = int(labels[number])
        facts.append(
            ClassFacts(
                label=label,
                name=names[label] if label < len(names) else f"label {label}",
                samples=tuple(samples),
                image_bytes=int(sizes[number]),
                flagged={what: found[number] for what, found in flags.items() if found[number]},
            )
        )
    return tuple(facts)


def balances(columns: Columns, classes: Sequence[ClassFacts]) -> tuple[Balance, ...]:
    """Describe how evenly the samples of each split are divided over the classes."""
    counts = np.array([each.samples for each in classes]).reshape(len(classes), len(columns.splits))
    named = len(columns.classes)
    return tuple(map(balance, columns.splits, counts.T, repeat(named)))


def balance(split: str, counts: Rows, names: int = 0) -> Balance:
    """Describe how evenly the samples of a split are divided over its classes.

    Args:
        split: its name.
        counts: samples of each class, int64 [classes].
        names: number of named classes, some of which may not be in `counts`.

    """
    # Empty classes have no share in the evenness.
    present = counts[counts > 0]
    sizes = present if len(present) else np.zeros(1)
    evenness = 1.0
    if len(present) > 1:
        shares = present / present.sum()
        evenness = float(-(shares * np.log(shares)).sum() / np.log(len(present)))
    return Balance(
        split=split,
        smallest=int(sizes.min()),
        largest=int(sizes.max()),
        median=float(np.median(sizes)),
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
    first, last = np.floor(np.log10([low, high])).astype(int)
    # One decade more, because the last bound is above the highest value.
    decades = 10.0 ** np.arange(first, last + 2)
    for every in (1, 2, 5, 10):
        edges = np.outer(decades, _STEPS[::every]).ravel()
        begin, end = np.searchsorted(edges, [low, high], "right")
        if end - begin < most:
            break
    return tuple(edges[begin - 1 : end + 1].round(6).tolist())


def _edges(values: IntegerArray, most: int = 24) -> tuple[float, ...]:
    return round_edges(values.min(), values.max(), most)


def histogram(
    name: str,
    unit: str,
    edges: Sequence[float],
    values: AnyArray,
    *,
    split: Int16Array,
    splits: Sequence[str],
) -> Histogram:
    """Count values in bins, for each split."""
    counts = {}
    for number, each in enumerate(splits):
        counts[each] = tuple(np.histogram(values[split == number], edges)[0].tolist())
    return Histogram(name, unit, tuple(edges), counts)


def histograms(columns: Columns) -> dict[str, Histogram]:
    """Count the images by shorter side, aspect ratio and bytes."""
    if not len(columns):
        return {}
    shorter = np.maximum(np.minimum(columns.width, columns.height), 1)
    size = np.maximum(columns.size, 1)
    count = partial(histogram, split=columns.split, splits=columns.splits)
    return {
        "shorter": count("Shorter side", "px", _edges(shorter), shorter),
        "aspect": count("Aspect ratio", "", ASPECT_EDGES, aspects(columns)),
        "bytes": count("Bytes per image", "bytes", _edges(size), size),
    }


def aspects(columns: Columns) -> Float64Array:
    """Return width / height of each image; 1 for an image without a size."""
    return np.maximum(columns.width, 1) / np.maximum(columns.height, 1)


def size_grid(columns: Columns) -> SizeGrid:
    """Count the images by width and height, on the same scale for both."""
    if not len(columns):
        return SizeGrid((), (), ())
    sides = np.maximum([columns.height, columns.width], 1)
    heights, widths = map(partial(_edges, most=20), sides)
    counts = np.histogramdd(tuple(sides), [heights, widths])[0].astype(int)
    return SizeGrid(widths, heights, tuple(map(tuple, counts.tolist())))


#: Patches of an image and side of a patch for the comparison of shapes, the defaults of NaFlex.
TOKENS, PATCH = 256, 16
#: Numbers of aspect buckets, and the most pixels of a bucket, the defaults of `BucketSampler`.
BUCKETS, BUCKET_PIXELS = (3, 5, 9), 224 * 224


def shape_facts(columns: Columns) -> tuple[ShapeFacts, ...]:
    """Describe for each split what a square crop loses, and what images of their own shapes do."""
    facts = []
    # Only the buckets depend on EXIF orientation, and hardly: the columns do not have it.
    known = np.minimum(columns.height, columns.width) > 0
    for number, split in enumerate(columns.splits):
        rows = (columns.split == number) & known
        # Many images have one size: both sides as one number.
        sides = columns.height[rows].astype(np.int64) << 32 | columns.width[rows]
        distinct, counts = np.unique(sides, return_counts=True)
        if not len(distinct):
            continue
        found = np.stack([distinct >> 32, distinct & 0xFFFFFFFF], axis=1)
        heights, widths = found.T
        lost = 1 - found.min(axis=1) / found.max(axis=1)
        tokens = token_grids(found, PATCH, TOKENS).prod(axis=1)
        buckets = {}
        for count in BUCKETS:
            sizes = candidates(BUCKET_PIXELS, PATCH)
            own = find_buckets(heights, widths, sizes, count, counts)
            kept = nearest_buckets(heights, widths, own)[1]
            buckets[count] = round(1 - float(np.average(kept, weights=counts)), 6)
        facts.append(
            ShapeFacts(
                split=split,
                images=len(sides),
                square_crop=round(float(np.average(lost, weights=counts)), 6),
                buckets=buckets,
                naflex=round(1 - float(np.average(tokens, weights=counts)) / TOKENS, 6),
            )
        )
    return tuple(facts)


def count_texts(columns: Columns, name: str) -> Counter[str]:
    """Count the samples by the text in a column of `Columns.changes`."""
    counts: Counter[str] = Counter()
    if columns.changes is not None:
        for row in columns.changes.to_pylist():
            if row[name] is not None:
                counts[row[name]] += row["count_all"]
    # A table of another program can have any number of texts.
    for text in sorted(counts)[_MAX_TEXTS:]:
        counts[_OTHER] += counts.pop(text)
    return counts


def source_pixels(columns: Columns) -> int | None:
    """Return the number of pixels of all source images; `None` if it is not known."""
    if columns.changes is None:
        return None
    return int(np.nansum(np.asarray(columns.changes["pixels_sum"])))


def count_changes(columns: Columns) -> Counter[str]:
    """Count what was done to the images. An image can have several changes."""
    counts: Counter[str] = Counter()
    for text, count in count_texts(columns, "change").items():
        for name in text.split() or ["unchanged"]:
            counts[NORMALIZATIONS.get(name, name)] += count
    return counts


# --- the cost of training with the dataset --------------------------------------------------------


#: Mean pixels of an image, and images per second that `loaders` delivered on one H200 with 16 CPU
#: cores with the preset imagenet-train, all data in memory: docs/measurements.md and docs/memory.md.
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
    # Beyond the largest measured image, the time is in proportion to the pixels.
    largest, slowest = MEASURED[-1]
    if mean_pixels > largest:
        return slowest * largest / mean_pixels
    pixels, speed = np.log(MEASURED).T
    return float(np.exp(np.interp(np.log(max(mean_pixels, 1.0)), pixels, speed)))


def size_classes(columns: Columns, *, encoded: bool) -> tuple[SizeClass, ...]:
    """Group the images by their shorter side."""
    group = np.searchsorted(_BOUNDS, np.minimum(columns.width, columns.height))
    counts, sums = np.bincount(group), np.bincount(group, columns.pixels)
    names = [f"{low + 1:,} to {high:,}" for low, high in pairwise((0, *_BOUNDS))]
    names.append(f"over {_BOUNDS[-1]:,}")
    # Groups without images are left out.
    found = []
    for number in np.flatnonzero(counts).tolist():
        images, pixels = int(counts[number]), float(sums[number])
        mean = pixels / images
        share = round(pixels / max(1.0, sums.sum()), 6)
        speed = _rounded(decoding_speed(mean, encoded=encoded))
        found.append(SizeClass(names[number], images, share, round(mean), speed))
    return tuple(found)


def epoch_costs(splits: Sequence[SplitFacts], *, encoded: bool) -> tuple[EpochCost, ...]:
    """Predict what an epoch over each split takes."""
    costs = []
    for split in splits:
        images, speed, seconds = split.samples, 0.0, 0.0
        if images:
            speed = _rounded(decoding_speed(split.pixels / images, encoded=encoded))
            seconds = round(images / speed, 1)
        costs.append(EpochCost(split.name, images, split.image_bytes, speed, seconds))
    return tuple(costs)


def make_cost(
    columns: Columns,
    splits: Sequence[SplitFacts],
    memory: Mapping[str, Any] | str,
    *,
    batch_size: int,
    encoded: bool,
) -> Cost:
    """Join the parts; `memory` is the result of `MemoryEstimate.result`."""
    note, gpu_memory = "", None
    if isinstance(memory, str):
        note = memory
    else:
        gpu_memory = {split: each["gpu_memory"] for split, each in memory["splits"].items()}
    return Cost(
        batch_size=batch_size,
        gpu_memory=gpu_memory,
        memory_note=note,
        sizes=size_classes(columns, encoded=encoded),
        epochs=epoch_costs(splits, encoded=encoded),
    )


class MemoryEstimate:
    """The estimate of GPU memory that ``loaders memory`` prints, computed while this process does other work.

    `dataprep` never imports `loaders`, which knows how much memory decoding takes, so this runs its
    program.
    """

    def __init__(self, folder: str, batch_size: int) -> None:
        options = f"-P -m loaders memory --batch-size {batch_size} --json --"
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, *options.split(), folder],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def result(self) -> Mapping[str, Any] | str:
        """Wait for the estimate; return it, or why there is none."""
        output, errors = self._process.communicate()
        if self._process.returncode:
            lines = errors.decode("utf-8", "replace").strip().split("\n")
            return lines[-1] or "`loaders memory` failed"
        found: Mapping[str, Any] = json.loads(output)
        return found

    def close(self) -> None:
        """Stop the program, if it still runs."""
        self._process.kill()
        self._process.communicate()


def _rounded(speed: float) -> float:
    """Round a prediction to two digits: it is no more precise."""
    return float(f"{speed:.2g}")


# --- images that stand out ------------------------------------------------------------------------


#: Mean luma below which an image is almost black, above which it is almost white, and standard
#: deviation below which it shows almost one color; all of 255.
DARK, BRIGHT, FLAT = 16, 239, 4


def odd_sizes(columns: Columns) -> dict[str, tuple[OddImage, ...]]:
    """Find the images of extreme size and aspect ratio among all samples."""
    pixels, ratio = columns.pixels, aspects(columns)
    oddness = np.maximum(ratio, 1 / ratio)
    found = {}
    for kind, values, least in (
        ("Largest", pixels, 0),
        ("Smallest", -pixels, -pixels.max(initial=0)),
        ("Oddest aspect ratio", oddness, 2),
    ):
        images = []
        order = np.argsort(-values, kind="stable")[:EXTREMES]
        for row in order[values[order] > least].tolist():
            text = f"{columns.width[row]:,} \N{MULTIPLICATION SIGN} {columns.height[row]:,}"
            if values is oddness:
                odd = f"{oddness[row]:.1f}"
                text += f", {odd}:1" if ratio[row] >= 1 else f", 1:{odd}"
            images.append(OddImage(row, text))
        if images:
            found[kind] = tuple(images)
    return found


def describe_looks(
    pictures: Pictures, sampled: Rows, sizes: Mapping[str, tuple[OddImage, ...]]
) -> Looks:
    """Describe what the decoded pixels say.

    Args:
        pictures: the decoded images.
        sampled: rows of the random sample; other images were decoded only to be shown.
        sizes: images of extreme size, which are listed too.

    """
    counted = pictures.readable & np.isin(pictures.rows, sampled)
    brightness, contrast = pictures.luma[:, counted]
    return Looks(
        decoded=len(pictures.rows),
        sampled=len(sampled),
        failed=pictures.failed,
        formats=ranked(Counter(pictures.formats[counted].tolist())),
        dark=int((brightness < DARK).sum()),
        bright=int((brightness > BRIGHT).sum()),
        flat=int((contrast < FLAT).sum()),
        odd={**pictures.extremes(), **sizes},
    )


def brightness_histogram(
    columns: Columns, pictures: Pictures, sampled: Rows
) -> dict[str, Histogram]:
    """Count the images of the random sample by their mean brightness; nothing if none can be decoded."""
    counted = pictures.readable & np.isin(pictures.rows, sampled)
    if not counted.any():
        return {}
    split = columns.split[pictures.rows[counted]]
    values = pictures.luma[0, counted]
    found = partial(histogram, split=split, splits=columns.splits)
    return {"brightness": found("Mean brightness", "of 255", LEVEL_EDGES, values)}
