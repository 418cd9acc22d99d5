"""Count leaks between splits and conflicting labels, and choose the pairs to show, the worst first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dataprep.duplicates.collection import Collection, Part
from dataprep.duplicates.find import Duplicates
from dataprep.duplicates.symmetries import SYMMETRIES, Symmetry


@dataclass(frozen=True, slots=True)
class Match:
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


@dataclass(frozen=True)
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
        matches: the first pairs: those with conflicting labels, then leaks, then the others, by
            distance.

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
    links = _join(_exact_links(images, found), _near_links(found))
    return Summary(
        images=len(images),
        hashed=int(images.has_hash.sum()),
        exact=len(images) - len(found.first_image),
        near=len(found.pairs.first),
        groups=int((np.bincount(found.group) > 1).sum()),
        conflicts=int(_conflicts(images, links).sum()),
        leaks={
            (images.parts[later], images.parts[earlier]): len(rows)
            for (earlier, later), rows in leaked_rows(images, found).items()
        },
        matches=_first_matches(images, links, limit),
    )


def near_matches(images: Collection, found: Duplicates, limit: int) -> tuple[Match, ...]:
    """Return the first near copies, in the order of `Summary.matches`."""
    return _first_matches(images, _near_links(found), limit)


def count_near_conflicts(images: Collection, found: Duplicates) -> int:
    """Return the number of pairs of near copies with different labels."""
    return int(_conflicts(images, _near_links(found)).sum())


@dataclass(frozen=True, slots=True)
class _Links:
    """Pairs of images. The distance of images with the same bytes is -1."""

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    distance: NDArray[np.int16]
    symmetry: NDArray[np.uint8]


def _exact_links(images: Collection, found: Duplicates) -> _Links:
    """Link each image to the first with the same bytes."""
    copies = np.setdiff1d(np.arange(len(images)), found.first_image, assume_unique=True)
    count = len(copies)
    originals = found.first_image[found.item[copies]]
    return _Links(originals, copies, np.full(count, -1, np.int16), np.zeros(count, np.uint8))


def _near_links(found: Duplicates) -> _Links:
    """Link the first images of near items."""
    first, second = found.first_image[found.pairs.first], found.first_image[found.pairs.second]
    return _Links(first, second, found.pairs.distance.astype(np.int16), found.symmetry)


def _join(a: _Links, b: _Links) -> _Links:
    return _Links(
        np.concatenate([a.first, b.first]),
        np.concatenate([a.second, b.second]),
        np.concatenate([a.distance, b.distance]),
        np.concatenate([a.symmetry, b.symmetry]),
    )


def _conflicts(images: Collection, links: _Links) -> NDArray[np.bool_]:
    """Return which pairs have different labels.

    Labels of two types, such as a class and none, do not conflict.
    """
    types = [images.sources[part.source].label_type for part in images.parts]
    kind = np.array([types.index(each) for each in types])[images.part]
    is_same_type = kind[links.first] == kind[links.second]
    different: NDArray[np.bool_] = is_same_type & (
        images.label[links.first] != images.label[links.second]
    )
    return different


def _first_matches(images: Collection, links: _Links, limit: int) -> tuple[Match, ...]:
    has_conflict = _conflicts(images, links)
    is_leak = images.part[links.first] != images.part[links.second]
    order = np.lexsort((links.second, links.first, links.distance, ~is_leak, ~has_conflict))[:limit]
    return tuple(
        Match(
            images=(int(links.first[at]), int(links.second[at])),
            distance=None if links.distance[at] < 0 else int(links.distance[at]),
            symmetry=SYMMETRIES[links.symmetry[at]],
            has_conflict=bool(has_conflict[at]),
            is_leak=bool(is_leak[at]),
        )
        for at in order.tolist()
    )


def leaked_rows(images: Collection, found: Duplicates) -> dict[tuple[int, int], NDArray[np.int64]]:
    """Return the images that have a copy in an earlier split, by the numbers of the earlier and the later split."""
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
