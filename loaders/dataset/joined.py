"""Join the splits of several datasets into one, with one numbering of their classes."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from loaders.dataset.split import OpenSplit
from manifests.errors import CallError
from manifests.process.text import printable
from manifests.schema import File, Shard


@dataclass(frozen=True, slots=True)
class JoinedSplit(OpenSplit):
    """The same split of several datasets, one after the other.

    Its files have absolute paths as names.

    `manifest` is that of the first dataset, except for the classes, which are those of all
    datasets.

    Attributes:
        parts: the splits.
        labels: for each part, the label of each of its classes in the numbering of all datasets.

    """

    parts: tuple[OpenSplit, ...] = ()
    labels: tuple[NDArray[np.int64], ...] = field(default=(), compare=False)

    @property
    def is_cached(self) -> bool:
        """Whether a part is in an object store."""
        return any(part.is_cached for part in self.parts)

    @property
    def folders(self) -> tuple[str, ...]:
        """Folder of each dataset."""
        return tuple(part.folder for part in self.parts)

    @property
    def revisions(self) -> tuple[int, ...]:
        """Revision of each dataset."""
        return tuple(part.manifest.revision for part in self.parts)

    def _compute_fingerprint(self) -> str:
        # Identifies the content and the order of the parts, wherever they are stored.
        content = " ".join(part.fingerprint for part in self.parts) + repr(self.manifest.classes)
        return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    @property
    def first_shards(self) -> tuple[int, ...]:
        """Number of the first shard of each dataset among `shards`."""
        return tuple(accumulate((len(part.shards) for part in self.parts[:-1]), initial=0))

    def class_count(self, shard: int) -> int:
        """Return the number of classes of the dataset that a shard is from."""
        return len(self._labels_of(shard))

    def joined_labels(self, shard: int, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the labels of a shard, each a class of its dataset, in the numbering of all datasets."""
        joined = self._labels_of(shard)
        return joined[labels] if len(joined) else labels

    def _labels_of(self, shard: int) -> NDArray[np.int64]:
        return self.labels[bisect_right(self.first_shards, shard) - 1]


def join_splits(parts: Sequence[OpenSplit]) -> JoinedSplit:
    """Join splits of several datasets. Classes of the same name become one class.

    Args:
        parts: at least one.

    Raises:
        CallError: two are the same split, some datasets name their classes and others do not, they
            store pixels differently, or their masks number a class differently.

    """
    first = parts[0]
    for number, part in enumerate(parts[1:], 1):
        if any(part.root == other.root for other in parts[:number]):
            raise CallError(
                f"dataset contains {part.folder} twice",
                hint="list each dataset once; mix sets its share",
            )
        if part.manifest.label_type != first.manifest.label_type:
            raise CallError(
                f"{first.folder} has the label type {first.manifest.label_type}, but {part.folder}"
                f" has {part.manifest.label_type}",
                hint="convert both with the same --label-type",
            )
        if (part.manifest.store, part.manifest.pixels) != (
            first.manifest.store,
            first.manifest.pixels,
        ):
            raise CallError(
                f"{first.folder} stores {_stored(first)}, but {part.folder} stores {_stored(part)}",
                hint="convert both with the same --store and --resize options",
            )
    # Labels of other types do not name classes, so there is nothing to match.
    unnamed = [part.folder for part in parts if not part.manifest.classes]
    if first.manifest.labels.names_classes and unnamed and len(unnamed) < len(parts):
        raise CallError(
            f"{unnamed[0]} does not name its classes, so they cannot be matched with those of the"
            " other datasets",
            hint="convert it with --classes",
        )
    if first.manifest.labels.names_classes:
        _check_numbers(parts)
    classes = tuple(dict.fromkeys(name for part in parts for name in part.manifest.classes))
    if first.manifest.labels.has_image and first.manifest.labels.names_classes:
        _check_mask_classes(parts, classes)
    shards = tuple(_with_paths(part, shard) for part in parts for shard in part.shards)
    folder = " + ".join(part.folder for part in parts)
    numbers = {name: number for number, name in enumerate(classes)}
    labels = tuple(
        np.array([numbers[name] for name in part.manifest.classes], np.int64) for part in parts
    )
    manifest = replace(first.manifest, classes=classes)
    return JoinedSplit(folder, "/", first.name, manifest, shards, parts=tuple(parts), labels=labels)


def _check_numbers(parts: Sequence[OpenSplit]) -> None:
    """Check that not only some datasets have numbers as names of their classes, which would match no other class."""
    numbered = {}
    for part in parts:
        if part.manifest.classes:
            numbered[part.folder] = all(name.isdecimal() for name in part.manifest.classes)
    if len({*numbered.values()}) == 2:
        numbers, named = (
            next(part for part in parts if numbered.get(part.folder) is wanted)
            for wanted in (True, False)
        )
        raise CallError(
            f"the classes of {numbers.folder} are numbers, such as {numbers.manifest.classes[0]},"
            f" but the classes of {named.folder} have names, such as"
            f" {printable(named.manifest.classes[0])}",
            hint="convert the first one with --classes FILE, one name per line in label order",
        )


def _check_mask_classes(parts: Sequence[OpenSplit], classes: tuple[str, ...]) -> None:
    """Check that the masks of all parts number `classes` alike, because the values of pixels are not changed."""
    for part in parts:
        own = part.manifest.classes
        wrong = next((number for number, name in enumerate(own) if classes[number] != name), None)
        if wrong is not None:
            raise CallError(
                f"the value {wrong} in the masks of {part.folder} is the class"
                f" {printable(own[wrong])}, but in those of {parts[0].folder} it is"
                f" {printable(classes[wrong])}",
                hint="join datasets whose masks number the classes alike",
            )


def mix_weights(parts: Sequence[OpenSplit], mix: Sequence[float]) -> NDArray[np.float64]:
    """Return the weight of each row of joined splits, float64 [samples]: each part gets its share of an epoch.

    Args:
        parts: the splits.
        mix: the share of each part; they need not add up to 1.

    """
    samples = np.array([part.samples for part in parts])
    return np.repeat(np.asarray(mix, np.float64) / samples, samples)


def _stored(split: OpenSplit) -> str:
    pixels = split.manifest.pixels
    return "encoded images" if pixels is None else f"raw pixels of {pixels[1]} x {pixels[0]}"


def _with_paths(part: OpenSplit, shard: Shard) -> Shard:
    def absolute(file: File) -> File:
        return replace(file, name=part.path(file))

    return replace(
        shard, file=absolute(shard.file), index=absolute(shard.index), table=absolute(shard.table)
    )
