"""What to tell a user about the classes of a source: empty ones, and those that only some splits have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from dataprep.sources.base import Source
from manifests.text import agree, plural, printable

#: A source of so many images, each with a class of its own, most likely has no classes.
_MANY_CLASSES = 10


def class_notices(source: Source) -> Iterator[str]:
    """Report classes without samples, and classes that are only in some splits."""
    if source.label_type != "class":
        return
    used = len(np.unique(source.label))
    if used == len(source) >= _MANY_CLASSES:
        yield (
            f"each of the {plural(used, 'image')} has a class of its own; if the labels are not"
            " classes, set --label-type regression or caption, or --unlabelled"
        )
    counts = np.zeros((len(source.splits), len(source.classes)), np.int64)
    np.add.at(counts, (source.split, source.label), 1)
    empty = np.flatnonzero(counts.sum(0) == 0)
    if len(empty):
        have = agree(len(empty), "has", "have")
        of = f"{len(empty):,} of {plural(len(source.classes), 'class')}"
        yield f"{of} {have} no images: {_first_names(source, empty)}"
    if {"query", "gallery"} & {*source.splits}:
        yield _identity_notice(source, counts > 0)
        return
    for number, split in enumerate(source.splits):
        if len(source.splits) > 1:
            only = np.flatnonzero((counts[number] > 0) & (counts.sum(0) == counts[number]))
            if len(only):
                yield f"{plural(len(only), 'class')} only in {split}: {_first_names(source, only)}"


def _identity_notice(source: Source, has_class: NDArray[np.bool_]) -> str:
    """Report the number of classes in each split.

    For re-identification, train shares no class with the other splits.

    Args:
        source: the samples.
        has_class: bool [splits, classes], whether the split has samples of the class.

    """
    per_split = ", ".join(
        f"{split} {count:,}"
        for split, count in zip(source.splits, has_class.sum(1).tolist(), strict=True)
    )
    if "train" not in source.splits:
        return f"classes: {per_split}"
    others = [split for split in ("query", "gallery") if split in source.splits]
    in_others = has_class[[source.splits.index(split) for split in others]].any(0)
    shared = np.flatnonzero(has_class[source.splits.index("train")] & in_others)
    number = plural(len(shared), "class") if len(shared) else "no classes"
    names = f": {_first_names(source, shared)}" if len(shared) else ""
    return f"classes: {per_split}; train shares {number} with {' and '.join(others)}{names}"


def _first_names(source: Source, labels: Iterable[int]) -> str:
    shown = [printable(source.classes[label]) for label in list(labels)[:5]]
    return ", ".join(shown) + (", ..." if len(list(labels)) > 5 else "")
