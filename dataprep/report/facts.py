"""Frozen records of what a report states. `Report.as_json` is the text of ``report.json``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import field, fields
from itertools import chain
from operator import attrgetter
from typing import Any, Literal, NamedTuple, TypeAlias

from dataprep.arrays import Int64Array
from dataprep.summary.bands import BandFacts
from dataprep.summary.provenance import ProvenanceFacts
from manifests.arrays import ArrayKind
from manifests.records import record
from manifests.schema import Pixels

#: Rows of a dataset: int64 [n].
Rows: TypeAlias = Int64Array


class SampleName(NamedTuple):
    """Texts of one sample: its key, and the path of its image in the source."""

    key: str
    source: str


@record
class CopyGroup:
    """Images with the same bytes, or two that look alike.

    Attributes:
        rows: their rows in `Columns`.
        splits: names of the splits that they are in.
        labels: their different labels.
        note: how they differ; empty if they have the same bytes.

    """

    rows: tuple[int, ...]
    splits: tuple[str, ...]
    labels: tuple[int, ...]
    note: str = ""


@record
class NearCopies:
    """Images that look alike, but have other bytes: their perceptual hashes differ in few bits.

    Attributes:
        hashed: images with a hash.
        distance: bits in which the hashes differ at most.
        pairs: number of pairs.
        leaked: images of each split that look like one of an earlier split, by pair ``"val in
            train"``. Those with the same bytes as an image of that split are not counted again.
        conflicting: pairs with different labels.
        shown: the first pairs: with different labels, then in different splits, then the others, by
            distance.
        note: what was not compared, and why; empty if everything was.

    """

    hashed: int = 0
    distance: int = 0
    pairs: int = 0
    leaked: Mapping[str, int] = field(default_factory=dict)
    conflicting: int = 0
    shown: tuple[CopyGroup, ...] = ()
    note: str = ""


@record
class Copies:
    """Images with the same bytes in a dataset: equal checksum and equal size.

    Attributes:
        compared: images with a checksum.
        groups: number of groups of equal images.
        surplus: images that repeat an earlier one.
        leaked: images of each split that also occur in an earlier split, by pair ``"val in
            train"``.
        conflicting: groups whose images have different labels.
        leaks: the first groups that are in several splits.
        conflicts: the first groups that have several labels.
        repeats: the largest groups within one split.
        near: images that look alike.

    """

    compared: int
    groups: int
    surplus: int
    leaked: Mapping[str, int]
    conflicting: int
    leaks: tuple[CopyGroup, ...]
    conflicts: tuple[CopyGroup, ...]
    repeats: tuple[CopyGroup, ...]
    near: NearCopies = NearCopies()

    @property
    def shown(self) -> tuple[CopyGroup, ...]:
        """The groups that are listed."""
        return (*self.leaks, *self.conflicts, *self.repeats, *self.near.shown)


def ranked(counts: Mapping[str, int]) -> dict[str, int]:
    """Return numbers by name, the largest first."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


# --- samples, labels and images -------------------------------------------------------------------


Severity = Literal["problem", "check"]


@record
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


@record
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


@record
class ShapeFacts:
    """What training at several shapes keeps of the images of a split, as shares from 0 to 1.

    Attributes:
        split: the split.
        images: images with a known size.
        square_crop: pixels of an image, on average, that the largest centered square leaves out.
        buckets: the same for the nearest of a number of aspect buckets of 224 x 224 pixels, by that
            number.
        naflex: patches of a budget, on average, that are padding if images keep their shapes (timm's
            NaFlex rule, 256 patches of 16 pixels). No pixel is left out.

    """

    split: str
    images: int
    square_crop: float
    buckets: Mapping[int, float]
    naflex: float


@record
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


@record
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


@record
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


@record
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


@record
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


@record
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


@record
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


@record
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
    gpu_memory: Mapping[str, Any] | None
    memory_note: str
    sizes: tuple[SizeClass, ...]
    epochs: tuple[EpochCost, ...]


@record
class ShownImage:
    """An image that the page names.

    Attributes:
        row: its row in `Columns`.

    """

    row: int


@record
class OddImage(ShownImage):
    """An image that stands out.

    Attributes:
        value: how much, for people.

    """

    value: str


@record
class FailedImage(ShownImage):
    """An image that cannot be decoded.

    Attributes:
        reason: why.

    """

    reason: str


@record
class Looks:
    """What the pixels of the decoded images say.

    Attributes:
        decoded: number of images that were decoded.
        sampled: number of images that the statistics are computed from: all, or a random sample.
        failed: images that cannot be decoded, in stored order.
        formats: number of images in the sample by format.
        dark: images in the sample whose mean brightness is below 16 of 255.
        bright: above 239.
        flat: images whose brightness hardly changes: a standard deviation below 4.
        odd: the images that stand out most, by what stands out.

    """

    decoded: int
    sampled: int
    failed: tuple[FailedImage, ...]
    formats: Mapping[str, int]
    dark: int
    bright: int
    flat: int
    odd: Mapping[str, tuple[OddImage, ...]]


# --- the whole report -----------------------------------------------------------------------------


#: The value of ``made_by`` in ``report.json``, by which the command recognizes a file that it may
#: replace.
MADE_BY = "dataprep report"
SCHEMA_VERSION = 1


@record
class Report:
    """Everything that a report states.

    Attributes:
        dataset: name of the dataset folder.
        format: record format.
        store: ``"encoded"`` or ``"raw"``.
        pixels: height, width and channels of raw images, else `None`.
        samples: number of samples whose tables could be read.
        bytes: total size of the shards.
        seed: seed of the sample of images.
        problems: damaged and missing files, one line each.
        findings: what to look at, the most important first.
        splits: one for each split.
        classes: one for each class, in label order. Of more than 100,000 named classes, only
            classes with samples.
        unused: number of named classes without a sample in any split.
        balance: one for each split.
        histograms: by name.
        size_grid: images by width and height.
        shapes: one for each split with images of known size.
        changes: number of images by what `dataprep convert` changed, of which an image may have
            several; empty if the bytes of the source are stored.
        source_pixels: number of pixels of all source images. `None` if the bytes of the source are
            stored.
        original_formats: number of images by the format of the source image.
        rejected: images that were not written.
        copies: images with the same bytes, and images that look alike.
        looks: what the pixels say.
        cost: what training costs.
        bands: the statistics of each band; empty without `convert --statistics`.
        normalize: the transform of these statistics; empty likewise.
        provenance: what the columns of licenses, origins and consents say, if there are any.
        shown_bands: the bands that pictures show as red, green and blue; empty if they are RGB.
        arrays: the array columns by name.

    """

    dataset: str
    format: str
    store: str
    pixels: Pixels | None
    samples: int
    bytes: int
    seed: int
    problems: tuple[str, ...]
    findings: tuple[Finding, ...]
    splits: tuple[SplitFacts, ...]
    classes: tuple[ClassFacts, ...]
    unused: int
    balance: tuple[Balance, ...]
    histograms: Mapping[str, Histogram]
    size_grid: SizeGrid
    shapes: tuple[ShapeFacts, ...]
    changes: Mapping[str, int]
    source_pixels: int | None
    original_formats: Mapping[str, int]
    rejected: RejectedFacts
    copies: Copies
    looks: Looks
    cost: Cost
    bands: tuple[BandFacts, ...] = ()
    normalize: str = ""
    provenance: Mapping[str, ProvenanceFacts] = field(default_factory=dict)
    shown_bands: tuple[int, ...] = ()
    arrays: Mapping[str, ArrayKind] = field(default_factory=dict)

    def as_json(self, names: Mapping[int, SampleName]) -> str:
        """Return the report as JSON.

        Args:
            names: the names of each of `named_rows`.

        """
        members = {"made_by": MADE_BY, "schema_version": SCHEMA_VERSION, **_members(self)}
        text = json.dumps(
            members,
            default=lambda record: _named(record, names),
            indent=1,
            ensure_ascii=False,
            allow_nan=False,
        )
        return f"{text}\n"

    def named_rows(self) -> set[int]:
        """Return the rows whose key and source `as_json` needs."""
        images: Iterable[ShownImage] = chain(self.looks.failed, *self.looks.odd.values())
        rows = {image.row for image in images}
        return rows.union(chain(*map(attrgetter("rows"), self.copies.shown)))


def _members(record: Any) -> dict[str, Any]:
    return {each.name: getattr(record, each.name) for each in fields(record)}


def _named(record: Any, names: Mapping[int, SampleName]) -> dict[str, Any]:
    """Return a record for JSON: names instead of rows, which mean nothing outside of this program."""
    members = _members(record)
    if isinstance(record, ShownImage):
        return {**names[members.pop("row")]._asdict(), **members}
    if isinstance(record, CopyGroup):
        members["images"] = [names[row]._asdict() for row in members.pop("rows")]
        if not record.note:
            del members["note"]
    return members
