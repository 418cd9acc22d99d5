"""Decide what a conversion does with images that occur more than once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dataprep.duplicates.collection import Collection, collect
from dataprep.duplicates.find import Duplicates, find_duplicates
from dataprep.duplicates.symmetries import SYMMETRIES
from dataprep.images.base import DUPLICATE
from dataprep.options import BY_DUPLICATES, Options
from dataprep.progress import Progress
from dataprep.sources import Source
from dataprep.sources.base import take_rows
from manifests.process.text import agree, plural


def resolve_duplicates(
    source: Source,
    options: Options,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
    search_progress: Progress | None = None,
) -> Source:
    """Apply `Options.duplicates` to a source, and number the groups of copies if the options need them.

    ``"drop"`` keeps one image of those that are copies of each other: that in the split that is not
    train, else the first. ``"same-split"`` moves groups of copies that are in several splits to
    train, or else to the first of these splits.

    Args:
        source: the samples.
        options: options of the conversion.
        workers: number of processes that read images; `None` means one per CPU.
        progress: receives the images that are read.
        search_progress: receives the progress of the search, in images.

    Raises:
        SourceVanishedError: an image is gone, or its size changed after the scan.
        CallError: there are too many pairs.

    """
    has_column = options.duplicates == "keep" and BY_DUPLICATES in source.extra.column_names
    if not options.finds_duplicates or has_column:
        return source
    images = collect([source], workers=workers, progress=progress)
    found = find_duplicates(images, options.distance, workers=workers, progress=search_progress)
    source = replace(
        source, notices=(*source.notices, *(f"duplicates: {note}" for note in found.notes))
    )
    if options.duplicates == "drop":
        return _drop(source, images, found, is_split=options.split_by == BY_DUPLICATES)
    resolved = replace(source, copies=found.group)
    return _join(resolved) if options.duplicates == "same-split" else resolved


# --- drop -----------------------------------------------------------------------------------------


def _drop(source: Source, images: Collection, found: Duplicates, *, is_split: bool) -> Source:
    """Leave out copies.

    If groups of copies are split, those that are left stay together: others may link them.
    """
    is_train = np.array([split == "train" for split in source.splits])[source.split]
    order = np.lexsort((np.arange(len(source)), source.split, is_train))
    rank = np.empty(len(source), np.int64)
    rank[order] = np.arange(len(source))
    original, distance, symmetry = choose_originals(found, rank)
    dropped, kept = np.flatnonzero(original >= 0), np.flatnonzero(original < 0)
    copies = None
    if is_split:
        _, first, group = np.unique(found.group[kept], return_index=True, return_inverse=True)
        copies = first[group]
    if not len(dropped):
        return replace(source, copies=copies)
    rejected = [
        {
            "source": source.path[row].as_py(),
            "reason": DUPLICATE,
            "detail": _detail(
                source.path[int(original[row])].as_py(), int(distance[row]), int(symmetry[row])
            ),
        }
        for row in dropped.tolist()
    ]
    notices = [f"--duplicates drop: {plural(len(dropped), 'copy')} left out"]
    if conflicts := int((images.label[dropped] != images.label[original[dropped]]).sum()):
        has = agree(conflicts, "has", "have")
        notices.append(
            f"--duplicates drop: {conflicts:,} of them {has} another label than the image that is"
            " kept"
        )
    return replace(
        take_rows(source, kept),
        copies=copies,
        notices=(*source.notices, *notices),
        rejected=(*source.rejected, *rejected),
    )


def _detail(original: str, distance: int, symmetry: int) -> str:
    if distance < 0:
        return f"the same bytes as {original}"
    changed = f", {SYMMETRIES[symmetry]}" if symmetry else ""
    return (
        f"a copy of {original}: {plural(distance, 'bit')} of the hashes"
        f" {agree(distance, 'differs', 'differ')}{changed}"
    )


def choose_originals(
    found: Duplicates, rank: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int16], NDArray[np.uint8]]:
    """Decide which images to leave out, so that no two of those that are kept are copies of each other.

    Args:
        found: the copies.
        rank: images with a lower rank are kept rather than others, int64 [images].

    Returns:
        For each image, the image that is kept instead of it, -1 if it is kept itself; the distance
        of their hashes, -1 for the same bytes; and the symmetry.

    """
    items, images = len(found.first_image), len(rank)
    order = np.argsort(rank)
    best = np.empty(items, np.int64)  # the image of each item with the lowest rank
    best[found.item[order[::-1]]] = order[::-1]
    kept_for, distance, symmetry = _originals_of_items(found, rank[best])
    original = best[np.where(kept_for >= 0, kept_for, np.arange(items))][found.item]
    bits = np.where(kept_for >= 0, distance, -1)[found.item]
    original[original == np.arange(images)] = -1
    return original, bits.astype(np.int16), symmetry[found.item]


def _originals_of_items(
    found: Duplicates, rank: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int16], NDArray[np.uint8]]:
    """Visit the items by rank: each that is still there is kept, and its near copies are left out."""
    pairs = found.pairs
    one, other = (
        np.concatenate(sides)
        for sides in ((pairs.first, pairs.second), (pairs.second, pairs.first))
    )
    bits, turned = np.concatenate([pairs.distance] * 2), np.concatenate([found.symmetry] * 2)
    by_rank = np.lexsort((rank[other], rank[one]))
    one, other, bits, turned = one[by_rank], other[by_rank], bits[by_rank], turned[by_rank]
    kept_for = np.full(len(rank), -1, np.int64)
    distance, symmetry = np.zeros(len(rank), np.int16), np.zeros(len(rank), np.uint8)
    starts = (
        np.flatnonzero(np.append(True, one[1:] != one[:-1])) if len(one) else np.empty(0, np.int64)
    )
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(one)], strict=False):
        item = int(one[start])
        if kept_for[item] >= 0:
            continue
        near = other[start:end]
        fresh = kept_for[near] < 0
        fresh &= rank[near] > rank[item]
        kept_for[near[fresh]] = item
        distance[near[fresh]], symmetry[near[fresh]] = (
            bits[start:end][fresh],
            turned[start:end][fresh],
        )
    return kept_for, distance, symmetry


# --- same split -----------------------------------------------------------------------------------


def _join(source: Source) -> Source:
    """Move each group of copies into one of its splits."""
    if source.copies is None or len(source.splits) < 2:
        return source
    train = source.splits.index("train") if "train" in source.splits else 0
    preference = np.array(
        [0 if number == train else number + 1 for number in range(len(source.splits))], np.int8
    )
    best = np.full(len(source), len(source.splits) + 1, np.int8)
    np.minimum.at(best, source.copies, preference[source.split])
    number_of = np.zeros(len(source.splits) + 1, np.int8)
    number_of[preference] = np.arange(len(source.splits))
    split = number_of[best[source.copies]]
    moved = {
        (old, new): int(np.count_nonzero((source.split == old) & (split == new)))
        for old in range(len(source.splits))
        for new in range(len(source.splits))
        if old != new
    }
    notices = _moved(source, moved)
    return replace(source, split=split, notices=(*source.notices, *notices))


def _moved(source: Source, moved: dict[tuple[int, int], int]) -> Iterator[str]:
    for (old, new), count in moved.items():
        if count:
            names = f"from {source.splits[old]} to {source.splits[new]}"
            yield (
                f"--duplicates same-split: {plural(count, 'image')} moved {names}, where copies of"
                " them are"
            )
