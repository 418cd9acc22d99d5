"""Open a split of a dataset, or of several: read its manifest and check that its files exist.

Imports neither torch nor DALI.
"""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from loaders.arrays import Floats, Ints
from manifests.errors import CallError
from manifests.files import INDEX, SHARD, FileKind, file_length, reading
from manifests.labels import LabelType
from manifests.pixels import RGB8
from manifests.process.text import printable, suggest
from manifests.schema import File, Manifest, Shard
from manifests.store import read_revision

#: Hint for a file that differs from what the manifest states.
RESTORE = "run `dataprep verify` to find other damage, then `dataprep repair`, or restore a copy"


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """The split that a loader reads.

    Its length is the number of samples, as for a dataset of torch.

    Attributes:
        folder: folder of the dataset, as the caller wrote it; several folders are joined by a plus
            sign.
        split: name of the split.
        samples: number of samples, over all ranks.
        classes: class names in label order. Empty if the dataset does not name them.
        label_type: what the labels are: ``"class"``, ``"none"``, ``"multi-label"``,
            ``"regression"``, ``"caption"``, ``"boxes"``, ``"mask"`` or ``"depth"``.

    """

    folder: str
    split: str
    samples: int
    classes: tuple[str, ...]
    label_type: LabelType = "class"

    @property
    def class_to_idx(self) -> dict[str, int]:
        """Labels by class name, as in torchvision's ImageFolder."""
        return {name: label for label, name in enumerate(self.classes)}

    def __len__(self) -> int:
        return self.samples


@dataclass(frozen=True)
class OpenSplit:
    """A split of a dataset on disk, or the same split of several datasets, one after the other.

    Attributes:
        folder: folder of the dataset, as the caller wrote it.
        root: its absolute path. DALI keeps files mapped by path, and training scripts change their
            directory.
        name: name of the split.
        manifest: manifest of the dataset. Of several datasets, the manifest of the first one with
            the classes of all.
        shards: shards of the split that contain samples, in reading order. Of several datasets,
            their files have absolute paths as names.
        joined: the splits of several datasets; empty for one dataset.
        labels: for each of these splits, the label of each of its classes in the numbering of all
            datasets.
        cache_folder: the cache folder, if the split, or a part of it, is in an object store; else
            empty.

    """

    folder: str
    root: str
    name: str
    manifest: Manifest
    shards: tuple[Shard, ...]
    joined: tuple[OpenSplit, ...] = ()
    labels: tuple[Ints, ...] = field(default=(), compare=False)
    cache_folder: str = ""

    @cached_property
    def counts(self) -> list[int]:
        """Number of samples of each shard."""
        return [shard.samples for shard in self.shards]

    @cached_property
    def ends(self) -> Ints:
        """Row after the last one of each shard, int64 [shards]."""
        return np.cumsum(self.counts, dtype=np.int64)

    @cached_property
    def lengths(self) -> list[int]:
        """Length of each shard in bytes."""
        return [shard.file.bytes for shard in self.shards]

    @cached_property
    def samples(self) -> int:
        """Number of samples."""
        return sum(self.counts)

    def shards_of(self, rows: Ints) -> NDArray[np.intp]:
        """Return the number of the shard of each row."""
        return np.searchsorted(self.ends, rows, side="right")

    @property
    def parts(self) -> tuple[OpenSplit, ...]:
        """The split of each dataset."""
        return self.joined or (self,)

    @property
    def is_remote(self) -> bool:
        """Whether the split, or a part of it, is in an object store."""
        return bool(self.cache_folder)

    @property
    def revisions(self) -> tuple[int, ...]:
        """Revision of each dataset."""
        return tuple(part.manifest.revision for part in self.parts)

    @property
    def title(self) -> str:
        """Last part of the path or URL of each dataset."""
        names = []
        for part in self.parts:
            path = part.folder if part.is_remote else part.root
            names.append(os.path.basename(path.rstrip("/")))
        return " + ".join(names)

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits that identify the content: equal for copies, different for other splits."""
        text = repr([(shard.file, shard.index) for shard in self.shards])
        # A join changes nothing but the tables, and so the order of samplers.
        if self.manifest.joins and not self.joined:
            text += repr([shard.table for shard in self.shards])
        if self.joined:
            # Identifies the content and the order of the parts, wherever they are stored.
            text = " ".join(part.fingerprint for part in self.joined) + repr(self.manifest.classes)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    @cached_property
    def first_shards(self) -> tuple[int, ...]:
        """Number of the first shard of each dataset among `shards`."""
        return tuple(accumulate((len(part.shards) for part in self.parts[:-1]), initial=0))

    def class_count(self, shard: int) -> int:
        """Return the number of classes of the dataset that a shard is from."""
        return len(self.parts[self._part_of(shard)].manifest.classes)

    def joined_labels(self, shard: int, labels: Ints) -> Ints:
        """Return the labels of a shard, classes of its dataset, in the numbering of all datasets."""
        if not self.joined or not self.class_count(shard):
            return labels
        return self.labels[self._part_of(shard)][labels]

    def _part_of(self, shard: int) -> int:
        return bisect_right(self.first_shards, shard) - 1

    def path(self, file: File) -> str:
        """Return the path of a file of the dataset."""
        return os.path.join(self.root, file.name)


# --- open -----------------------------------------------------------------------------------------


def open_splits(
    dataset: str | os.PathLike[str], split: str | None = None, revision: int | None = None
) -> list[OpenSplit]:
    """Read the manifest, and return one split, or all of them. Checks no other file.

    Args:
        dataset: folder of the dataset.
        split: name of a split. `None` means all splits.
        revision: an older revision of the dataset. `None` means the newest one.

    Raises:
        CallError: the folder, the split or the revision does not exist.
        DamagedError: the manifest is missing or damaged.

    """
    folder = os.fspath(dataset)
    manifest = read_revision(dataset, revision)
    root = os.path.abspath(folder)
    names = [each.name for each in manifest.splits] if split is None else [split]
    return [
        OpenSplit(folder, root, name, manifest, _shards(manifest, name, folder)) for name in names
    ]


def select_shards(manifest: Manifest, split: str, folder: str) -> tuple[Shard, ...]:
    """Return the shards of a split that contain samples.

    Args:
        manifest: the manifest.
        split: name of the split.
        folder: the dataset, as the caller wrote it.

    Raises:
        CallError: the split does not exist, or is empty.

    """
    shards = _shards(manifest, split, folder)
    if not shards:
        raise CallError(
            f"split {split!r} of {folder} contains no samples", hint="choose another split"
        )
    return shards


def _shards(manifest: Manifest, name: str, folder: str) -> tuple[Shard, ...]:
    for split in manifest.splits:
        if split.name == name:
            # DALI rejects an empty index file, so shards without samples are skipped.
            return tuple(shard for shard in split.shards if shard.samples)
    raise CallError(
        f"{folder} has no split {name!r}",
        hint=suggest(name, [each.name for each in manifest.splits]),
    )


def open_split(
    dataset: str | os.PathLike[str], split: str, revision: int | None = None
) -> OpenSplit:
    """Read the manifest, and check that every shard and index exists and has the stated length.

    Args:
        dataset: folder of the dataset.
        split: name of the split.
        revision: an older revision of the dataset. `None` means the newest one.

    Raises:
        CallError: the folder, the split or the revision does not exist, or the split is empty.
        DamagedError: the manifest, a shard or an index is missing or differs from what the manifest
            states.

    """
    folder = os.fspath(dataset)
    manifest = read_revision(dataset, revision)
    shards = select_shards(manifest, split, folder)
    opened = OpenSplit(folder, os.path.abspath(folder), split, manifest, shards)
    for shard in opened.shards:
        check_length(opened.path(shard.file), shard.file, SHARD)
        check_length(opened.path(shard.index), shard.index, INDEX)
    return opened


def check_length(path: str, file: File, kind: FileKind) -> None:
    """Check that a file has the length that the manifest states.

    Raises:
        DamagedError: it is missing, or has another length.

    """
    with reading("the file", path, kind.error, RESTORE):
        length = file_length(path, kind)
    if length != file.bytes:
        raise kind.error(
            f"the file is {length} bytes long, but the manifest states {file.bytes}",
            file=path,
            hint=RESTORE,
        )


# --- join -----------------------------------------------------------------------------------------


def join_splits(parts: Sequence[OpenSplit]) -> OpenSplit:
    """Join splits of several datasets. Classes of the same name become one class.

    Args:
        parts: at least one.

    Raises:
        CallError: two are the same split, some datasets name their classes and others do not, they
            store pixels differently, or their masks number a class differently.

    """
    first = parts[0]
    roots = {first.root}
    for part in parts[1:]:
        if part.root in roots:
            raise CallError(
                f"dataset contains {part.folder} twice",
                hint="list each dataset once; mix sets its share",
            )
        roots.add(part.root)
        _check_alike(first, part)
    # The label of each class in the numbering of all datasets.
    numbers: dict[str, int] = {}
    for part in parts:
        for name in part.manifest.classes:
            numbers.setdefault(name, len(numbers))
    # Labels of other types do not name classes, so there is nothing to match.
    if first.manifest.labels.names_classes:
        _check_named(parts)
        if first.manifest.labels.has_image:
            _check_mask_classes(parts, numbers)
    shards: list[Shard] = []
    labels = []
    for part in parts:
        for shard in part.shards:
            shards.append(_with_paths(part, shard))
        labels.append(np.array(list(map(numbers.__getitem__, part.manifest.classes)), np.int64))
    return OpenSplit(
        folder=" + ".join(part.folder for part in parts),
        root="/",
        name=first.name,
        manifest=replace(first.manifest, classes=tuple(numbers)),
        shards=tuple(shards),
        joined=tuple(parts),
        labels=tuple(labels),
        cache_folder=max(part.cache_folder for part in parts),
    )


def _check_alike(first: OpenSplit, part: OpenSplit) -> None:
    """Check that two datasets store the same kinds of labels and images."""
    one = first.manifest
    other = part.manifest
    if other.images != one.images:
        raise CallError(
            f"each sample of {first.folder} has the images {', '.join(one.images) or 'image'}, but"
            f" {part.folder} {', '.join(other.images) or 'image'}",
            hint="join datasets with the same images, named in the same order",
        )
    if other.label_type != one.label_type:
        raise CallError(
            f"{first.folder} has the label type {one.label_type}, but {part.folder}"
            f" has {other.label_type}",
            hint="convert both with the same --label-type",
        )
    if (other.store, other.pixels, other.kind) != (one.store, one.pixels, one.kind):
        raise CallError(
            f"{first.folder} stores {_stored(one)}, but {part.folder} stores {_stored(other)}",
            hint="convert both with the same --store and --resize options",
        )


def _stored(manifest: Manifest) -> str:
    if manifest.kind != RGB8:
        return f"images with {manifest.kind}"
    if manifest.pixels is None:
        return "encoded images"
    return f"raw pixels of {manifest.pixels[1]} x {manifest.pixels[0]}"


def _check_named(parts: Sequence[OpenSplit]) -> None:
    """Check that all datasets name their classes, or none; and that names are numbers in all or none.

    A number would match no class with a name.
    """
    unnamed = []
    numbered = []
    named = []
    for part in parts:
        classes = part.manifest.classes
        if not classes:
            unnamed.append(part)
        elif all(map(str.isdecimal, classes)):
            numbered.append(part)
        else:
            named.append(part)
    if unnamed and len(unnamed) < len(parts):
        raise CallError(
            f"{unnamed[0].folder} does not name its classes, so they cannot be matched with the"
            " classes of the other datasets",
            hint="convert it with --classes",
        )
    if numbered and named:
        number = numbered[0].manifest.classes[0]
        name = named[0].manifest.classes[0]
        raise CallError(
            f"the classes of {numbered[0].folder} are numbers, such as {number},"
            f" but the classes of {named[0].folder} have names, such as {printable(name)}",
            hint="convert the first one with --classes FILE, one name per line in label order",
        )


def _check_mask_classes(parts: Sequence[OpenSplit], numbers: dict[str, int]) -> None:
    """Check that all masks number the classes alike, because the values of pixels stay as they are."""
    names = list(numbers)
    for part in parts:
        for number, name in enumerate(part.manifest.classes):
            if names[number] != name:
                raise CallError(
                    f"the value {number} in the masks of {part.folder} is the class"
                    f" {printable(name)}, but in the masks of {parts[0].folder} it is"
                    f" {printable(names[number])}",
                    hint="join datasets whose masks number the classes alike",
                )


def mix_weights(parts: Sequence[OpenSplit], mix: Sequence[float]) -> Floats:
    """Return the weight of each row of joined splits, float64 [samples].

    Each part gets its share of an epoch.

    Args:
        parts: the splits.
        mix: the share of each part; they need not add up to 1.

    """
    weights = []
    for part, share in zip(parts, mix, strict=True):
        weights.append(np.full(part.samples, share / part.samples, np.float64))
    return np.concatenate(weights)


def _with_paths(part: OpenSplit, shard: Shard) -> Shard:
    file, index, table, *arrays = [replace(file, name=part.path(file)) for file in shard.files]
    return Shard(file, shard.samples, index, table, tuple(arrays))
