"""What follows from copies: what a conversion drops, leaks between splits, and conflicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise, permutations
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dataprep.arrays import BoolArray, Int16Array, Int64Array, UInt8Array
from dataprep.duplicates.collection import Collection, Part, collect
from dataprep.duplicates.find import Duplicates, connected, find_duplicates
from dataprep.duplicates.pixels import SYMMETRIES, Symmetry
from dataprep.duplicates.search import Pairs, join_pairs, make_pairs, order_pairs, starts_run
from dataprep.images.base import DUPLICATE
from dataprep.options import BY_DUPLICATES, Options
from dataprep.progress import Progress
from dataprep.sources import Source
from dataprep.sources.base import CLIP, FRAME, take_rows
from manifests.errors import CallError
from manifests.process.text import agree, plural
from manifests.records import record
from manifests.store import read_manifest, read_some_rows


class Place(NamedTuple):
    """Where an image is.

    Attributes:
        dataset: as the command line names it.
        split: name of the split.
        path: where the image came from; in a source, its path.
        key: key of the sample; `None` in a source that is not a prepared dataset.
        label: the label as text, usually the name of the class.

    """

    dataset: str
    split: str
    path: str
    key: str | None
    label: str


def find_places(images: Collection, datasets: Sequence[str], numbers: set[int]) -> dict[int, Place]:
    """Describe some images, by their numbers in the collection."""
    places = {}
    starts = images.starts.tolist()
    for name, source, (start, stop) in zip(datasets, images.sources, pairwise(starts), strict=True):
        rows = [number - start for number in sorted(numbers) if start <= number < stop]
        keys: list[str | None] = [None] * len(rows)
        if source.prepared and rows:
            # The keys, counted over all shards. Only the tables that contain them are read again.
            shards = chain(*(split.shards for split in read_manifest(name).splits))
            keys = read_some_rows(name, [*shards], ["key"], np.array(rows))["key"].to_pylist()
        for row, key in zip(rows, keys, strict=True):
            places[start + row] = Place(
                dataset=name,
                split=source.splits[source.split[row]],
                path=source.path[row].as_py(),
                key=key,
                label=images.labels[images.label[start + row]],
            )
    return places


# --- what a conversion does -----------------------------------------------------------------------


def resolve_duplicates(
    source: Source,
    options: Options,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
    search_progress: Progress | None = None,
) -> Source:
    """Apply `Options.duplicates` to a source, and number the groups of copies if options need them.

    ``"drop"`` keeps one image of each group of copies: the image in the split that is not train,
    else the first. ``"same-split"`` moves groups of copies that are in several splits to
    train, or else to the first of these splits. A clip stays whole.

    Args:
        source: the samples.
        options: options of the conversion.
        workers: number of processes that read images; `None` means one per CPU.
        progress: receives the images that are read.
        search_progress: receives the progress of the search, in images.

    Raises:
        SourceVanishedError: an image is gone, or its size changed after the scan.
        CallError: there are too many pairs, or frames of a clip could be dropped.

    """
    if not options.finds_duplicates:
        return source
    clips = source.clips()
    if options.duplicates == "drop" and clips is not None:
        raise CallError(
            f"--duplicates drop would leave gaps in clips: {CLIP!r} and {FRAME!r} name frames of"
            " clips, which are often near copies of each other",
            hint="leave it out, or set --duplicates same-split, which keeps clips whole",
        )
    images = collect([source], max_pixels=options.max_pixels, workers=workers, progress=progress)
    found = find_duplicates(images, options.distance, workers=workers, progress=search_progress)
    source = replace(
        source, notices=(*source.notices, *(f"duplicates: {note}" for note in found.notes))
    )
    if options.duplicates == "drop":
        return _drop(source, images, found, is_split=options.split_by == BY_DUPLICATES)
    group, rows = found.group, np.arange(len(source))
    if clips is not None:
        group = connected(len(source), np.append(rows, rows), np.append(group, clips))
    resolved = source.with_columns(copies=group)
    return _join(resolved) if options.duplicates == "same-split" else resolved


# --- drop -----------------------------------------------------------------------------------------


def _drop(source: Source, images: Collection, found: Duplicates, *, is_split: bool) -> Source:
    """Leave out copies.

    If groups of copies are split, their remaining images stay together: others may link them.
    """
    is_train = np.array([split == "train" for split in source.splits])[source.split]
    rank = np.argsort(np.lexsort((source.split, is_train)))
    original, distance, symmetry = choose_originals(found, rank)
    dropped, kept = np.flatnonzero(original >= 0), np.flatnonzero(original < 0)
    copies = None
    if is_split:
        _, first, group = np.unique(found.group[kept], return_index=True, return_inverse=True)
        copies = first[group]
    if not len(dropped):
        return source.with_columns(copies=copies)
    originals = original[dropped]
    rejected = []
    for path, kept_path, bits, turned in zip(
        source.path.take(pa.array(dropped)).to_pylist(),
        source.path.take(pa.array(originals)).to_pylist(),
        distance[dropped].tolist(),
        symmetry[dropped].tolist(),
        strict=True,
    ):
        rejected.append(
            {"source": path, "reason": DUPLICATE, "detail": _detail(kept_path, bits, turned)}
        )
    notices = [f"--duplicates drop: {plural(len(dropped), 'copy')} left out"]
    conflicts = int(np.count_nonzero(images.label[dropped] != images.label[originals]))
    if conflicts:
        has = agree(conflicts, "has", "have")
        notices.append(
            f"--duplicates drop: {conflicts:,} of them {has} another label than the image that is"
            " kept"
        )
    return replace(
        take_rows(source, kept).with_columns(copies=copies),
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
    found: Duplicates, rank: Int64Array
) -> tuple[Int64Array, Int16Array, UInt8Array]:
    """Decide which images to leave out, so that no two of the kept images are copies of each other.

    Args:
        found: the copies.
        rank: images with a lower rank are kept rather than others, int64 [images].

    Returns:
        For each image, the image that is kept instead of it, -1 if it is kept itself; the distance
        of their hashes, -1 for the same bytes; and the symmetry.

    """
    # The image of each item with the lowest rank.
    order = np.argsort(-rank)
    best = np.empty(len(found.first_image), np.int64)
    best[found.item[order]] = order
    item_rank = rank[best]
    # Each item is kept for itself, until a near copy with a lower rank is.
    kept_for = np.arange(len(best))
    distance, symmetry = np.full(len(best), -1, np.int16), np.zeros(len(best), np.uint8)
    pairs = found.pairs
    pairs = order_pairs(pairs, item_rank[pairs.first], item_rank[pairs.second])
    pairs = pairs.take(np.argsort(item_rank[pairs.first]))
    starts = np.flatnonzero(starts_run(pairs.first)).tolist()
    for start, end in pairwise([*starts, len(pairs.first)]):
        item = pairs.first[start]
        if kept_for[item] == item:
            near = pairs.take(slice(start, end))
            near = near.take(kept_for[near.second] == near.second)
            kept_for[near.second] = item
            distance[near.second] = near.distance
            symmetry[near.second] = near.symmetry
    original = best[kept_for][found.item]
    original[original == np.arange(len(rank))] = -1
    return original, distance[found.item], symmetry[found.item]


# --- same split -----------------------------------------------------------------------------------


def _join(source: Source) -> Source:
    """Move each group of copies into one of its splits: train, or else the first."""
    if source.copies is None:
        return source
    order = sorted(range(len(source.splits)), key=lambda number: source.splits[number] != "train")
    rank = np.argsort(order)
    best = np.full(len(source), len(order) - 1)
    np.minimum.at(best, source.copies, rank[source.split])
    split = np.array(order, np.int8)[best[source.copies]]
    notices = [*source.notices]
    for old, new in permutations(range(len(order)), 2):
        count = int(np.count_nonzero((source.split == old) & (split == new)))
        if count:
            names = f"from {source.splits[old]} to {source.splits[new]}"
            notices.append(
                f"--duplicates same-split: {plural(count, 'image')} moved {names}, where copies of"
                " them are"
            )
    return replace(source.with_columns(split=split), notices=tuple(notices))


# --- leaks and conflicting labels -----------------------------------------------------------------


class Match(NamedTuple):
    """Two images of which one is a copy of the other.

    Attributes:
        images: their numbers in the collection.
        distance: different bits of their hashes; `None` if they have the same bytes.
        symmetry: the transform from the second image to the first.
        has_conflict: whether their labels differ.
        is_leak: whether they are in different splits.

    """

    images: tuple[int, int]
    distance: int | None
    symmetry: Symmetry
    has_conflict: bool
    is_leak: bool


@record
class Summary:
    """Totals of duplicates, and the first pairs.

    Attributes:
        images: number of images.
        hashed: number of images with a perceptual hash.
        exact: images that have the same bytes as an earlier one.
        near: pairs of different images that are near copies.
        groups: groups of copies, linked directly or through others.
        conflicts: pairs with different labels, among `exact` and `near` pairs.
        leaks: for each two splits, the images of the later one that have a copy in the earlier one.
        matches: the first pairs: conflicting labels, then leaks, then the others, by distance.

    """

    images: int
    hashed: int
    exact: int
    near: int
    groups: int
    conflicts: int
    leaks: Mapping[tuple[Part, Part], int]
    matches: tuple[Match, ...]

    @property
    def pairs(self) -> int:
        """Number of all pairs that could be shown."""
        return self.exact + self.near


def summarize(images: Collection, found: Duplicates, limit: int) -> Summary:
    """Count leaks and label conflicts, and choose pairs.

    Args:
        images: the collection.
        found: its duplicates.
        limit: number of `Summary.matches`, at most.

    """
    links = join_pairs([_exact_links(images, found), found.pairs.among(found.first_image)])
    return Summary(
        images=len(images),
        hashed=int(images.has_hash.sum()),
        exact=len(images) - len(found.first_image),
        near=len(found.pairs.first),
        groups=int((np.bincount(found.group) > 1).sum()),
        conflicts=int(conflicts(images, links).sum()),
        leaks={
            (images.parts[later], images.parts[earlier]): len(rows)
            for (earlier, later), rows in leaked_rows(images, found).items()
        },
        matches=first_matches(images, links, limit),
    )


def _exact_links(images: Collection, found: Duplicates) -> Pairs:
    """Link each image to the first one with the same bytes; the distance is -1."""
    copies = np.setdiff1d(np.arange(len(images)), found.first_image, assume_unique=True)
    originals = found.first_image[found.item[copies]]
    return make_pairs(originals, copies, np.full(len(copies), -1, np.int16))


def conflicts(images: Collection, links: Pairs) -> BoolArray:
    """Return which pairs have different labels.

    Labels of two types, such as a class and none, do not conflict.
    """
    types = [images.sources[part.source].label_type for part in images.parts]
    kind = np.unique(types, return_inverse=True)[1][images.part]
    differs: BoolArray = images.label[links.first] != images.label[links.second]
    differs &= kind[links.first] == kind[links.second]
    return differs


def first_matches(images: Collection, links: Pairs, limit: int) -> tuple[Match, ...]:
    """Return the first pairs, in the order of `Summary.matches`."""
    has_conflict = conflicts(images, links)
    is_leak = images.part[links.first] != images.part[links.second]
    order = np.lexsort((links.second, links.first, links.distance, ~is_leak, ~has_conflict))[:limit]
    shown = *links.take(order), has_conflict[order], is_leak[order]
    matches = []
    for first, second, distance, symmetry, *flags in zip(
        *(column.tolist() for column in shown), strict=True
    ):
        bits = distance if distance >= 0 else None
        matches.append(Match((first, second), bits, SYMMETRIES[symmetry], *flags))
    return tuple(matches)


def leaked_rows(images: Collection, found: Duplicates) -> dict[tuple[int, int], Int64Array]:
    """Return the images that have a copy in an earlier split, by the numbers of both splits."""
    parts = len(images.parts)
    is_in = np.zeros((parts, len(found.first_image)), np.bool_)
    is_in[images.part, found.item] = True
    first, second = found.pairs.first, found.pairs.second
    leaked = {}
    for later in range(parts):
        for earlier in range(later):
            touched = is_in[earlier] & is_in[later]
            touched[first[is_in[later, first] & is_in[earlier, second]]] = True
            touched[second[is_in[later, second] & is_in[earlier, first]]] = True
            rows = np.flatnonzero((images.part == later) & touched[found.item])
            if len(rows):
                leaked[earlier, later] = rows
    return leaked
