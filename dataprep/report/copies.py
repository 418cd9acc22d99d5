"""Images of a report that occur more than once: with the same bytes, or alike by their perceptual hashes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from dataprep import storage
from dataprep.arrays import Int16Array
from dataprep.duplicates.collection import collect, has_all_hashes
from dataprep.duplicates.find import find_duplicates, number_rows
from dataprep.duplicates.results import conflicts, first_matches, leaked_rows
from dataprep.duplicates.search import join_pairs
from dataprep.options import DEFAULT_DISTANCE, HASH_COLUMN, HASH_RECIPE, HASHES_NAME, SourceOptions
from dataprep.report.columns import Columns
from dataprep.report.facts import Copies, CopyGroup, NearCopies, Rows
from dataprep.sources.prepared import read_prepared
from manifests.errors import DatasetError
from manifests.process.text import plural
from manifests.schema import Manifest

#: Groups of each kind that are listed, and images of one group.
MAX_GROUPS, MAX_IMAGES = 12, 6


def find_copies(columns: Columns) -> tuple[Copies, dict[str, Rows]]:
    """Find images whose bytes have the same checksum and the same length.

    Returns:
        What the report states, and the rows of images by kind: ``"leak"`` for images that an
        earlier split has, so of a leak the images of the later split; ``"copy"`` for images that
        are not the first of their group; and ``"label conflict"`` all images of a group with several labels, of
        which any may be wrong.

    """
    known = np.flatnonzero(columns.has_crc)
    group_of, firsts = number_rows(columns.crc32c[known], columns.size[known])
    sizes = np.bincount(group_of)
    by_group = known[np.argsort(group_of, kind="stable")]
    # The rows of a group follow each other in `by_group`, in stored order.
    starts = np.cumsum(sizes) - sizes
    split, label = columns.split[by_group], columns.label[by_group]
    first_split = np.minimum.reduceat(split, starts)
    several_splits = first_split < np.maximum.reduceat(split, starts)
    several_labels = np.minimum.reduceat(label, starts) < np.maximum.reduceat(label, starts)
    repeated = np.flatnonzero(sizes > 1)

    def listed(groups: Rows) -> tuple[CopyGroup, ...]:
        chosen = groups[:MAX_GROUPS].tolist()
        return tuple(_group(columns, by_group[starts[each] :][: sizes[each]]) for each in chosen)

    largest_first = repeated[np.argsort(-sizes[repeated], kind="stable")]
    is_within = ~(several_splits | several_labels)[largest_first]
    copies = Copies(
        compared=len(known),
        groups=len(repeated),
        surplus=len(known) - len(sizes),
        leaked=_leaked(columns.splits, columns.split[known], group_of),
        conflicting=int(several_labels.sum()),
        leaks=listed(np.flatnonzero(several_splits)),
        conflicts=listed(np.flatnonzero(several_labels)),
        repeats=listed(largest_first[is_within]),
    )
    return copies, {
        "leak": known[columns.split[known] > first_split[group_of]],
        "label conflict": known[several_labels[group_of]],
        "copy": np.delete(known, firsts),
    }


def _leaked(splits: Sequence[str], split: Int16Array, group_of: Rows) -> dict[str, int]:
    """Count the images of each split whose group also has images in an earlier split."""
    groups = [group_of[split == number] for number in range(len(splits))]
    leaked = {}
    for earlier, later in combinations(range(len(splits)), 2):
        if count := int(np.isin(groups[later], groups[earlier]).sum()):
            leaked[f"{splits[later]} in {splits[earlier]}"] = count
    return leaked


def _group(columns: Columns, rows: Rows, note: str = "") -> CopyGroup:
    """Describe a group by one image of each split and label, then others in stored order."""
    split, label = columns.split[rows], columns.label[rows]
    first = np.unique(np.stack([split, label]), axis=1, return_index=True)[1]
    shown = np.concatenate([rows[np.sort(first)], np.delete(rows, first)])[:MAX_IMAGES]
    return CopyGroup(
        rows=tuple(shown.tolist()),
        splits=tuple(columns.splits[number] for number in np.unique(split)),
        labels=tuple(np.unique(label).tolist()),
        note=note,
    )


# --- images that look alike -----------------------------------------------------------------------


#: Pairs that are listed.
_MAX_PAIRS = 12

#: Comparisons of hashes that a report makes: all images of 300,000; or 50,000 of one split with 1.3
#: million of another.
_MAX_COMPARISONS = 1e11

#: Splits that are compared with each other.
_MAX_SPLITS = 16

_NO_HASHES = (
    "Images that only look alike are not found without perceptual hashes: convert with --hash, or"
    " run dataprep duplicates, which stores them, and then make the report again."
)
_TOO_MANY = (
    "There are too many images to compare all that look alike here: run dataprep duplicates."
)
_MISSING = "Perceptual hashes of some images are missing: run dataprep duplicates."
_ACROSS = "Of so many images, only images of different splits were compared."


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
        return NearCopies(note=_NO_HASHES)
    sizes = np.bincount(columns.split, minlength=len(columns.splits)).astype(np.float64)
    comparisons = sizes.sum() ** 2
    across = comparisons > _MAX_COMPARISONS
    if across:
        comparisons = (comparisons - (sizes**2).sum()) / 2
    if len(sizes) > _MAX_SPLITS or comparisons > _MAX_COMPARISONS:
        return NearCopies(note=_TOO_MANY)
    try:
        source = read_prepared(folder, None, SourceOptions(), arrays=False)
        usable = HASH_COLUMN in source.extra.column_names if in_tables else has_all_hashes(source)
        if not usable or len(source) != len(columns):
            return NearCopies(note=_MISSING)
        images = collect([source], workers=workers)
        found = find_duplicates(images, DEFAULT_DISTANCE, across=across, workers=workers)
    except DatasetError as error:
        return NearCopies(note=f"Images that look alike were not looked for: {error.message}.")
    notes = [_ACROSS] if across else []
    notes += [f"{note[0].upper()}{note[1:]}." for note in found.notes]
    # Images with the same bytes as an image of the earlier split were counted by their checksums.
    leaked = {}
    same_bytes = leaked_rows(images, replace(found, pairs=join_pairs([])))
    for (earlier, later), rows in leaked_rows(images, found).items():
        count = len(np.setdiff1d(rows, same_bytes.get((earlier, later), rows[:0])))
        if count:
            leaked[f"{images.parts[later].split} in {images.parts[earlier].split}"] = count
    shown, links = [], found.pairs.among(found.first_image)
    for match in first_matches(images, links, _MAX_PAIRS):
        note = f"{plural(match.distance or 0, 'bit')} differ"
        if match.symmetry != "identical":
            note += f", {match.symmetry}"
        # The collection and the columns have the same rows.
        shown.append(_group(columns, np.array(match.images), note))
    return NearCopies(
        hashed=int(images.has_hash.sum()),
        distance=found.distance,
        pairs=len(found.pairs.first),
        leaked=leaked,
        conflicting=int(conflicts(images, links).sum()),
        shown=tuple(shown),
        note=" ".join(notes),
    )
