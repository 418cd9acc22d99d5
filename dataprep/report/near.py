"""Find images that look alike, if a dataset has perceptual hashes: in its tables, or from `dataprep duplicates`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from dataprep import storage
from dataprep.duplicates.collection import Collection, collect, has_all_hashes
from dataprep.duplicates.find import Duplicates, find_duplicates
from dataprep.duplicates.search import Pairs
from dataprep.duplicates.summary import Match, count_near_conflicts, leaked_rows, near_matches
from dataprep.options import DEFAULT_DISTANCE, HASH_COLUMN, HASH_RECIPE, HASHES_NAME
from dataprep.report.columns import Columns
from dataprep.report.copy_facts import CopyGroup, NearCopies
from dataprep.sources.base import SourceOptions
from dataprep.sources.prepared import read_prepared
from manifests.errors import DatasetError
from manifests.process.text import plural
from manifests.schema import Manifest

#: Pairs that are listed.
_MAX_PAIRS = 12

#: Comparisons of hashes that a report makes: all images of 300,000; or 50,000 of one split with 1.3
#: million of another.
_MAX_COMPARISONS = 1e11

#: Splits that are compared with each other.
_MAX_SPLITS = 16


def find_near(
    folder: str, manifest: Manifest, columns: Columns, workers: int | None = None
) -> NearCopies:
    """Find the pairs of images that look alike.

    Args:
        folder: the dataset.
        manifest: its manifest.
        columns: all of its samples.
        workers: number of processes; `None` means one per CPU.

    """
    in_tables = manifest.options.get("hash") == HASH_RECIPE
    if not in_tables and not storage.is_file(os.path.join(folder, HASHES_NAME)):
        return NearCopies(
            note=(
                "Images that only look alike are not found without perceptual hashes: convert with"
                " --hash, or run dataprep duplicates, which stores them, and then make the report"
                " again."
            )
        )
    sizes = np.bincount(columns.split, minlength=len(columns.splits)).astype(np.float64)
    across = len(columns) ** 2 > _MAX_COMPARISONS
    if len(sizes) > _MAX_SPLITS or (
        across and (len(columns) ** 2 - (sizes**2).sum()) / 2 > _MAX_COMPARISONS
    ):
        return NearCopies(
            note=(
                "There are too many images to compare all that look alike here: run dataprep"
                " duplicates."
            )
        )
    try:
        source = read_prepared(folder, SourceOptions())
        usable = HASH_COLUMN in source.extra.column_names if in_tables else has_all_hashes(source)
        if not usable or len(source) != len(columns):
            return NearCopies(
                note="Perceptual hashes of some images are missing: run dataprep duplicates."
            )
        images = collect([source], workers=workers)
        found = find_duplicates(images, DEFAULT_DISTANCE, across=across, workers=workers)
    except DatasetError as error:
        return NearCopies(note=f"Images that look alike were not looked for: {error.message}.")
    notes = ["Of so many images, only those of different splits were compared."] * across
    notes += [f"{note[0].upper()}{note[1:]}." for note in found.notes]
    return _describe(columns, images, found, " ".join(notes))


def _describe(columns: Columns, images: Collection, found: Duplicates, note: str) -> NearCopies:
    return NearCopies(
        hashed=int(images.has_hash.sum()),
        distance=found.distance,
        pairs=len(found.pairs.first),
        leaked=dict(_leaked(images, found)),
        conflicting=count_near_conflicts(images, found),
        shown=tuple(
            _group(columns, images, match) for match in near_matches(images, found, _MAX_PAIRS)
        ),
        note=note,
    )


def _leaked(images: Collection, found: Duplicates) -> Iterator[tuple[str, int]]:
    none = found.pairs.first[:0]
    same_bytes = leaked_rows(
        images, replace(found, pairs=Pairs(none, none, found.pairs.distance[:0]))
    )
    for (earlier, later), rows in leaked_rows(images, found).items():
        count = len(np.setdiff1d(rows, same_bytes.get((earlier, later), rows[:0])))
        if count:
            yield f"{images.parts[later].split} in {images.parts[earlier].split}", count


def _group(columns: Columns, images: Collection, match: Match) -> CopyGroup:
    """Describe two images. The collection and the columns have the same rows."""
    rows = np.array(match.images)
    turned = f", {match.symmetry}" if match.symmetry != "identical" else ""
    return CopyGroup(
        rows=match.images,
        splits=tuple(images.parts[part].split for part in np.unique(images.part[rows])),
        labels=tuple(np.unique(columns.label[rows]).tolist()),
        note=f"{plural(match.distance or 0, 'bit')} differ{turned}",
    )
