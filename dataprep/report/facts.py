"""Frozen records of what a report states. `dataprep.report.record` joins them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Severity = Literal["problem", "check"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to look at.

    Attributes:
        severity: ``"problem"`` makes training or evaluation wrong; ``"check"`` may be intended.
        title: what it is, in one sentence.
        detail: the consequence, and how to fix it.
        section: anchor of the part of the page that shows it.

    """

    severity: Severity
    title: str
    detail: str
    section: str


@dataclass(frozen=True, slots=True)
class SplitFacts:
    """One split.

    Attributes:
        name: its name.
        samples: number of samples.
        shards: number of shards.
        bytes: total size of the shards.
        image_bytes: total size of the stored images.
        pixels: total number of pixels.
        classes: number of classes with at least one sample.
        width, height: quantiles in pixels; see `QUANTILES` in `statistics`.
        size: quantiles of the bytes per image.

    """

    name: str
    samples: int
    shards: int
    bytes: int
    image_bytes: int
    pixels: int
    classes: int
    width: Mapping[str, int]
    height: Mapping[str, int]
    size: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ClassFacts:
    """One class.

    Attributes:
        label: its number.
        name: its name; ``"label 7"`` if the dataset has no class names.
        samples: number of samples in each split, in the order of the splits.
        image_bytes: total size of its stored images.
        flagged: number of its images that the report names as a problem, by what is wrong with
            them.

    """

    label: int
    name: str
    samples: tuple[int, ...]
    image_bytes: int
    flagged: Mapping[str, int]

    @property
    def total(self) -> int:
        """Number of samples in all splits."""
        return sum(self.samples)


@dataclass(frozen=True, slots=True)
class Balance:
    """How evenly the samples of a split are divided over the classes.

    Attributes:
        split: the split.
        smallest: samples of the smallest class with samples.
        largest: samples of the largest class.
        median: samples of the middle class.
        evenness: entropy of the class sizes divided by its maximum: 1 if all classes have the same
            size.
        empty: classes without a sample in this split, of all that have a name or a sample.

    """

    split: str
    smallest: int
    largest: int
    median: float
    evenness: float
    empty: int


@dataclass(frozen=True, slots=True)
class Histogram:
    """Numbers of images in bins.

    Attributes:
        name: what is counted.
        unit: of the edges.
        edges: bounds of the bins, ascending; bin i is [edges[i], edges[i + 1]).
        counts: numbers of images in each bin, by split.

    """

    name: str
    unit: str
    edges: tuple[float, ...]
    counts: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class SizeGrid:
    """Numbers of images by width and height.

    Attributes:
        widths: bounds of the columns in pixels, ascending.
        heights: bounds of the rows.
        counts: numbers of images, one tuple per row of heights.

    """

    widths: tuple[float, ...]
    heights: tuple[float, ...]
    counts: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class RejectedFacts:
    """Source images that were not written.

    Attributes:
        total: their number.
        reasons: their number by reason, the most frequent first.
        folders: their number by the folder of the source that they are in, the most frequent first.

    """

    total: int
    reasons: Mapping[str, int]
    folders: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class SizeClass:
    """Images of similar size, and what decoding them takes.

    Attributes:
        name: their shorter sides, for example ``"257 to 512"``.
        images: their number.
        pixel_share: their share of all pixels that an epoch decodes.
        mean_pixels: mean number of pixels of an image.
        images_per_second: predicted decoding speed of a GPU if all images were like these.

    """

    name: str
    images: int
    pixel_share: float
    mean_pixels: float
    images_per_second: float


@dataclass(frozen=True, slots=True)
class EpochCost:
    """What one epoch over a split takes.

    Attributes:
        split: the split.
        images: number of images.
        bytes: bytes of the stored images, all of which an epoch reads.
        images_per_second: predicted speed of loading, on the GPU that was measured.
        seconds: predicted duration of loading alone.

    """

    split: str
    images: int
    bytes: int
    images_per_second: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Cost:
    """What training with the dataset costs.

    Attributes:
        batch_size: images per batch of the estimate of GPU memory.
        gpu_memory: estimated bytes by split, preset, and shorter side; `None` if there is no
            estimate.
        memory_note: why there is no estimate; else empty.
        sizes: groups of images by size.
        epochs: one for each split.

    """

    batch_size: int
    gpu_memory: Mapping[str, Mapping[str, Mapping[str, int]] | None] | None
    memory_note: str
    sizes: tuple[SizeClass, ...]
    epochs: tuple[EpochCost, ...]


@dataclass(frozen=True, slots=True)
class OddImage:
    """An image that stands out.

    Attributes:
        row: its row in `Columns`.
        value: how much, for people.

    """

    row: int
    value: str


@dataclass(frozen=True, slots=True)
class Looks:
    """What the pixels of the decoded images say.

    Attributes:
        decoded: number of images that were decoded.
        sampled: number of images that the statistics are computed from: all, or a random sample.
        failed: decoded images that cannot be decoded, by row, with the reason.
        formats: number of images by format, of those in the sample.
        dark: images in the sample whose mean brightness is below 16 of 255.
        bright: above 239.
        flat: images whose brightness hardly changes: a standard deviation below 4.
        odd: the images that stand out most, by what stands out.

    """

    decoded: int
    sampled: int
    failed: Mapping[int, str]
    formats: Mapping[str, int]
    dark: int
    bright: int
    flat: int
    odd: Mapping[str, tuple[OddImage, ...]]
