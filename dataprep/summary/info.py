"""Summarize a prepared dataset from its manifest and sample tables. Only `formats` opens shards."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import count
from operator import attrgetter
from typing import Any

import numpy as np

from dataprep.arrays import AnyArray
from dataprep.labels.kinds import KINDS
from dataprep.options import GEO_COLUMNS
from dataprep.summary.bands import BandFacts, normalize_line, read_bands
from dataprep.summary.formats import count_formats
from manifests.arrays import ArrayKind
from manifests.errors import DamagedError
from manifests.files import REJECTED, read_lines
from manifests.labels import LabelType
from manifests.pixels import RGB8, PixelKind
from manifests.remote.url import absolute
from manifests.schema import Format, Manifest, Pixels, Revision, Split, Store
from manifests.store import read_dataset, read_revision

_QUANTILES = {"min": 0.0, "5%": 0.05, "median": 0.5, "95%": 0.95, "max": 1.0}

#: Quantiles of a column by name: ``min``, ``5%``, ``median``, ``95%``, ``max``. All are 0 for a
#: column without rows.
Quantiles = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class SplitSummary:
    """What one split contains.

    Attributes:
        samples: number of samples.
        shards: number of shards.
        bytes: total size of the shards.
        width: quantiles of the image width in pixels.
        height: quantiles of the image height in pixels.
        size: quantiles of the stored image size in bytes.
        labels: number of samples of each class, by class name in label order. Empty if the labels
            are not classes.
        values: quantiles of each number of a regression.
        without_class: number of samples without a class, of labels that can have several.

    """

    samples: int
    shards: int
    bytes: int
    width: Quantiles
    height: Quantiles
    size: Quantiles
    labels: Mapping[str, int]
    values: Sequence[Mapping[str, float]] = ()
    without_class: int = 0


@dataclass(frozen=True, slots=True)
class RevisionSummary:
    """What an append or a join added, or a removal took out.

    Attributes:
        revision: its number, from 1.
        source: name of the source.
        samples: number of samples that each split gained, by name.
        shards: number of shards.
        classes: number of classes of the dataset since then.
        joined: names of the columns that were joined. Empty for others.
        removed: number of samples that a removal took out of each split. Empty for others.
        scrubbed: whether shards were written again without removed samples.

    """

    revision: int
    source: str
    samples: Mapping[str, int]
    shards: int
    classes: int
    joined: tuple[str, ...] = ()
    removed: Mapping[str, int] = field(default_factory=dict)
    scrubbed: bool = False


@dataclass(frozen=True, slots=True)
class DatasetSummary:
    """What a dataset contains.

    Attributes:
        folder: absolute path of the dataset.
        format: record format of the shards.
        store: ``"encoded"`` or ``"raw"``.
        pixels: height, width and channels of every image if `store` is ``"raw"``, else `None`.
        samples: number of samples in all splits.
        bytes: total size of all shards.
        classes: number of classes.
        rejected: number of source images that are listed in `rejected_file`.
        rejected_file: name of that file. Empty if there is none.
        options: the options that the dataset was made with.
        revisions: what each append added: the source, and the number of samples of each split.
            Empty without any.
        splits: one summary per split, by name, in the order of the manifest.
        label_type: what the labels are.
        images: names of the images of each sample. Empty if there is one.
        kind: what a pixel of every image is.
        bands: the statistics of each band. Empty without `convert --statistics`.
        georeference: number of images by EPSG code, ``"none"`` for those without one. Empty without
            `convert --georeference`.
        normalize: the transform of these statistics. Empty likewise.
        arrays: the array columns by name. Empty without any.
        formats: number of images of each format in a sample of the dataset. Empty if it was not
            asked for, and for raw pixels.

    """

    folder: str
    format: Format
    store: Store
    pixels: Pixels | None
    samples: int
    bytes: int
    classes: int
    rejected: int
    rejected_file: str
    options: Mapping[str, Any]
    revisions: Sequence[RevisionSummary]
    splits: Mapping[str, SplitSummary]
    label_type: LabelType = "class"
    images: Sequence[str] = ()
    kind: PixelKind = RGB8
    bands: Sequence[BandFacts] = ()
    georeference: Mapping[str, int] = field(default_factory=dict)
    normalize: str = ""
    arrays: Mapping[str, ArrayKind] = field(default_factory=dict)
    formats: Mapping[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the summary as plain data for JSON, without the members that most datasets do not need."""
        data, labels = asdict(self), KINDS[self.label_type]
        del data["kind"]
        if self.kind != RGB8:
            data["pixels"] = self.kind._asdict()
        elif self.pixels is None:
            del data["pixels"]
        if not self.bands:
            del data["bands"], data["normalize"]
        if not self.revisions:
            del data["revisions"], data["rejected_file"]
        members = {"images": self.images, "georeference": self.georeference, "arrays": self.arrays}
        members["formats"] = self.formats
        for name, shown in {**members, "label_type": not labels.is_class}.items():
            if not shown:
                del data[name]
        _leave_out_empty(data.get("revisions", ()))
        for split in data["splits"].values():
            if labels.number_column is None:
                del split["values"]
            if labels.class_lists is None:
                del split["without_class"]
        return data


def summarize(folder: str, revision: int | None = None, *, formats: bool = False) -> DatasetSummary:
    """Summarize a revision of a dataset; `None` means the newest one.

    With `formats`, images are read from the shards.

    Raises:
        CallError: the folder or the revision does not exist.
        ManifestError: the manifest is missing or damaged.
        TableError: a sample table is damaged.

    """
    manifest = read_revision(folder, revision)
    bands = read_bands(folder, manifest)
    splits = {each.name: _summarize_split(folder, manifest, each) for each in manifest.splits}
    return DatasetSummary(
        folder=absolute(folder),
        format=manifest.format,
        store=manifest.store,
        pixels=manifest.pixels,
        samples=sum(map(attrgetter("samples"), manifest.splits)),
        bytes=sum(map(attrgetter("bytes"), manifest.splits)),
        classes=len(manifest.classes),
        rejected=_count_rejected(folder, manifest),
        rejected_file=manifest.rejected.name if manifest.rejected else "",
        options=dict(manifest.options),
        revisions=list(map(_summarize_revision, manifest.revisions, count(1))),
        splits=splits,
        label_type=manifest.label_type,
        images=manifest.images,
        kind=manifest.kind,
        bands=bands,
        georeference=_count_codes(folder, manifest),
        normalize=normalize_line(bands, manifest),
        arrays=manifest.arrays,
        formats=count_formats(folder, manifest) if formats and not manifest.pixels else {},
    )


def _count_codes(folder: str, manifest: Manifest) -> dict[str, int]:
    """Return how many images have which EPSG code; empty without `convert --georeference`."""
    counts: Counter[str] = Counter()
    for batch in read_dataset(folder, ["width"], optional=GEO_COLUMNS[:1], manifest=manifest):
        if GEO_COLUMNS[0] in batch.table.column_names:
            codes = batch.table[GEO_COLUMNS[0]].to_pylist()
            counts.update("none" if code is None else str(code) for code in codes)
    return dict(counts.most_common())


def _leave_out_empty(revisions: Iterable[dict[str, Any]]) -> None:
    """Remove the members of joins and removals from the members of other revisions."""
    for revision in revisions:
        for name in ("joined", "removed", "scrubbed"):
            if not revision[name]:
                del revision[name]


def _summarize_revision(revision: Revision, number: int) -> RevisionSummary:
    samples, shards = {}, 0
    for name, added in revision.splits.items():
        samples[name] = added.samples
        shards += added.shards
    return RevisionSummary(
        revision=number,
        source=revision.source,
        samples=samples,
        shards=shards,
        classes=revision.classes,
        joined=revision.joined,
        removed=revision.removed,
        scrubbed=revision.is_scrubbed,
    )


def _count_rejected(folder: str, manifest: Manifest) -> int:
    if manifest.rejected is None:
        return 0
    try:
        return sum(1 for _ in read_lines(os.path.join(folder, manifest.rejected.name), REJECTED))
    except (OSError, DamagedError):
        return 0


def _summarize_split(folder: str, manifest: Manifest, split: Split) -> SplitSummary:
    kind, classes = KINDS[manifest.label_type], len(manifest.classes)
    column = kind.group_column
    sizes: dict[str, list[AnyArray]] = {"width": [], "height": [], "size": []}
    # Row group by row group: only sizes and numbers are kept.
    counts = np.zeros(classes, np.int64)
    values = []
    without_class = 0
    names = [*sizes, column] if column else [*sizes]
    for rows in read_dataset(folder, names, split.name, manifest=manifest):
        for name, parts in sizes.items():
            parts.append(np.asarray(rows.table[name]))
        if column and column == kind.number_column:
            values += rows.table[column].to_pylist()
        elif column:
            of_row, labels = kind.pairs(rows.table[column])
            if kind.class_lists:  # each class once per sample
                of_row, labels = np.unique(np.stack([of_row, labels]), axis=1)
                without_class += len(rows.table) - len(np.unique(of_row))
            counts += np.bincount(labels[labels < classes], minlength=classes)
    # A split without shards has no part.
    found = {}
    for name, parts in sizes.items():
        found[name] = quantiles(np.concatenate([_NOTHING, *parts]))
    return SplitSummary(
        samples=split.samples,
        shards=len(split.shards),
        bytes=split.bytes,
        **found,
        labels=dict(zip(manifest.classes, counts.tolist(), strict=True)) if column else {},
        values=list(map(partial(quantiles, number=_rounded), np.array(values).T)),
        without_class=without_class,
    )


_NOTHING = np.empty(0, np.int64)


def quantiles(values: AnyArray, number: Callable[[float], Any] = int) -> dict[str, Any]:
    """Return quantiles of a column by name, each the nearest value that occurs; all are 0 without rows."""
    if not len(values):
        return dict.fromkeys(_QUANTILES, 0)
    found = np.quantile(values, [*_QUANTILES.values()], method="nearest")
    return dict(zip(_QUANTILES, map(number, found.tolist()), strict=True))


def _rounded(value: float) -> float:
    return float(f"{value:.7g}")
