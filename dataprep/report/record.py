"""The record of a whole report. `Report.as_json` is the content of ``report.json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dataprep.report.copy_facts import Copies, CopyGroup
from dataprep.report.facts import (
    Balance,
    ClassFacts,
    Cost,
    Finding,
    Histogram,
    Looks,
    RejectedFacts,
    SizeGrid,
    SplitFacts,
)

#: The value of ``made_by`` in ``report.json``, by which the command recognizes a file that it may
#: replace.
MADE_BY = "dataprep report"
SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
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
        classes: one for each class, in label order. Of more than 100,000 named classes, those with
            samples.
        unused: number of named classes without a sample in any split.
        balance: one for each split.
        histograms: by name.
        size_grid: images by width and height.
        changes: number of images by what `dataprep convert` changed, of which an image may have
            several; empty if the bytes of the source are stored.
        source_pixels: number of pixels of all source images. `None` if the bytes of the source are
            stored.
        original_formats: number of images by the format of the source image.
        rejected: images that were not written.
        copies: images with the same bytes, and images that look alike.
        looks: what the pixels say.
        cost: what training costs.

    """

    dataset: str
    format: str
    store: str
    pixels: tuple[int, int, int] | None
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
    changes: Mapping[str, int]
    source_pixels: int | None
    original_formats: Mapping[str, int]
    rejected: RejectedFacts
    copies: Copies
    looks: Looks
    cost: Cost

    def as_json(self, names: Mapping[int, tuple[str, str]]) -> dict[str, Any]:
        """Return the report as plain data for JSON.

        Args:
            names: key and source of each of `named_rows`.

        """
        data = {"made_by": MADE_BY, "schema_version": SCHEMA_VERSION, **asdict(self)}
        groups = {kind: getattr(self.copies, kind) for kind in ("leaks", "conflicts", "repeats")}
        data["copies"] |= {
            kind: [_group_json(group, names) for group in found] for kind, found in groups.items()
        }
        data["copies"]["near"]["shown"] = [
            _group_json(group, names) for group in self.copies.near.shown
        ]
        data["looks"]["failed"] = [
            {**_image_json(row, names), "reason": why} for row, why in self.looks.failed.items()
        ]
        data["looks"]["odd"] = {
            kind: [{**_image_json(image.row, names), "value": image.value} for image in images]
            for kind, images in self.looks.odd.items()
        }
        return data

    def named_rows(self) -> set[int]:
        """Return the rows whose key and source `as_json` needs."""
        odd = {image.row for images in self.looks.odd.values() for image in images}
        return (
            odd
            | set(self.looks.failed)
            | {row for group in self.copies.shown for row in group.rows}
        )


def _group_json(group: CopyGroup, names: Mapping[int, tuple[str, str]]) -> dict[str, Any]:
    return {
        "splits": group.splits,
        "labels": group.labels,
        **({"note": group.note} if group.note else {}),
        "images": [_image_json(row, names) for row in group.rows],
    }


def _image_json(row: int, names: Mapping[int, tuple[str, str]]) -> dict[str, Any]:
    # Row numbers mean nothing outside of this program.
    return dict(zip(("key", "source"), names[row], strict=True))
