"""Images of a report that occur more than once: with the same bytes, or alike by their perceptual hashes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dataprep import storage
from dataprep.duplicates.collection import Collection, collect, has_all_hashes
from dataprep.duplicates.find import Duplicates, find_duplicates, number_rows
from dataprep.duplicates.results import Match, count_near_conflicts, leaked_rows, near_matches
from dataprep.duplicates.search import join_pairs
from dataprep.options import DEFAULT_DISTANCE, HASH_COLUMN, HASH_RECIPE, HASHES_NAME, SourceOptions
from dataprep.report.columns import Columns
from dataprep.report.facts import Copies, CopyGroup, NearCopies
from dataprep.sources.prepared import read_prepared
from manifests.errors import DatasetError
from manifests.process.text import plural
from manifests.schema import Manifest

#: Groups of each kind that are listed, and images of one group.
MAX_GROUPS, MAX_IMAGES = 12, 6


def find_copies(columns: Columns) -> tuple[Copies, dict[str, NDArray[np.int64]]]:
    """Find images whose bytes have the same checksum and the same length.

    Returns:
        What the report states, and the rows of images by kind: ``"leak"`` are those that an earlier
        split has, so of a leak the images of the later split; ``"copy"`` those that are not the
        first of their group; and ``"label conflict"`` all images of a group with several labels, of
        which any may be wrong.

    """
    known = np.flatnonzero(columns.has_crc)
    group_of, firsts = number_rows(columns.crc32c[known], columns.size[known])
    sizes = np.bincount(group_of, minlength=len(firsts))
    repeated = np.flatnonzero(sizes > 1)
    several_splits = _distinct(columns.split[known], group_of, len(sizes)) > 1
    several_labels = _distinct(columns.label[known], group_of, len(sizes)) > 1
    starts = np.concatenate([[0], np.cumsum(sizes)])
    by_group = known[np.argsort(group_of, kind="stable")]

    def listed(groups: NDArray[np.int64]) -> tuple[CopyGroup, ...]:
        return tuple(
            _group(columns, by_group[starts[group] : starts[group + 1]])
            for group in groups[:MAX_GROUPS]
        )

    largest_first = repeated[np.argsort(-sizes[repeated], kind="stable")]
    within = largest_first[~several_splits[largest_first] & ~several_labels[largest_first]]
    copies = Copies(
        compared=len(known),
        groups=len(repeated),
        surplus=int((sizes[repeated] - 1).sum()),
        leaked=_leaked(columns, known, group_of, len(sizes)),
        conflicting=int(several_labels.sum()),
        leaks=listed(np.flatnonzero(several_splits)),
        conflicts=listed(np.flatnonzero(several_labels)),
        repeats=listed(within),
    )
    first_split = np.full(len(sizes), np.iinfo(np.int16).max, np.int16)
    np.minimum.at(first_split, group_of, columns.split[known])
    is_first = np.zeros(len(known), np.bool_)
    is_first[firsts] = True
    flags = {
        "leak": columns.split[known] > first_split[group_of],
        "label conflict": several_labels[group_of],
        "copy": ~is_first,
    }
    return copies, {what: known[marked] for what, marked in flags.items()}


def _distinct(
    values: NDArray[np.integer], group_of: NDArray[np.int64], groups: int
) -> NDArray[np.int64]:
    """Count the different values in each group."""
    count = int(values.max(initial=0)) + 1
    pairs = np.unique(group_of * count + values)
    return np.bincount(pairs // count, minlength=groups)


def _leaked(
    columns: Columns, known: NDArray[np.int64], group_of: NDArray[np.int64], groups: int
) -> dict[str, int]:
    """Count the images of each split whose bytes also occur in an earlier split."""
    leaked = {}
    split = columns.split[known]
    for earlier, later in combinations(range(len(columns.splits)), 2):
        occurs = np.zeros(groups, np.bool_)
        occurs[group_of[split == earlier]] = True
        if count := int(occurs[group_of[split == later]].sum()):
            leaked[f"{columns.splits[later]} in {columns.splits[earlier]}"] = count
    return leaked


def _group(columns: Columns, rows: NDArray[np.int64]) -> CopyGroup:
    """Describe a group by one image of each split and label, then others in stored order."""
    pairs = np.stack([columns.split[rows].astype(np.int64), columns.label[rows]], axis=1)
    first = np.unique(pairs, axis=0, return_index=True)[1]
    shown = np.concatenate([rows[np.sort(first)], np.delete(rows, first)])[:MAX_IMAGES]
    return CopyGroup(
        rows=tuple(shown.tolist()),
        splits=tuple(columns.splits[number] for number in np.unique(columns.split[rows])),
        labels=tuple(np.unique(columns.label[rows]).tolist()),
    )


# --- images that look alike -------------------------------------------------------------------------


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
        leaked=dict(_near_leaks(images, found)),
        conflicting=count_near_conflicts(images, found),
        shown=tuple(
            _near_group(columns, images, match) for match in near_matches(images, found, _MAX_PAIRS)
        ),
        note=note,
    )


def _near_leaks(images: Collection, found: Duplicates) -> Iterator[tuple[str, int]]:
    same_bytes = leaked_rows(images, replace(found, pairs=join_pairs([])))
    for (earlier, later), rows in leaked_rows(images, found).items():
        count = len(np.setdiff1d(rows, same_bytes.get((earlier, later), rows[:0])))
        if count:
            yield f"{images.parts[later].split} in {images.parts[earlier].split}", count


def _near_group(columns: Columns, images: Collection, match: Match) -> CopyGroup:
    """Describe two images. The collection and the columns have the same rows."""
    rows = np.array(match.images)
    turned = f", {match.symmetry}" if match.symmetry != "identical" else ""
    return CopyGroup(
        rows=match.images,
        splits=tuple(images.parts[part].split for part in np.unique(images.part[rows])),
        labels=tuple(np.unique(columns.label[rows]).tolist()),
        note=f"{plural(match.distance or 0, 'bit')} differ{turned}",
    )
