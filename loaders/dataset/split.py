"""Open a split of a dataset: read its manifest and check that its files exist.

Imports neither torch nor DALI.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from manifests.errors import CallError, DamagedError
from manifests.files import INDEX, SHARD, FileKind, file_length, reading
from manifests.process.text import suggest
from manifests.schema import File, Manifest, Shard
from manifests.store import read_revision

if TYPE_CHECKING:
    from loaders.cache.shards import CachedSplit

#: Hint for a file that differs from what the manifest states.
RESTORE = "run `dataprep verify` to find other damage, then `dataprep repair`, or restore a copy"


@dataclass(frozen=True, slots=True)
class OpenSplit:
    """A split of a dataset on disk.

    Attributes:
        folder: folder of the dataset, as the caller wrote it.
        root: its absolute path. DALI keeps files mapped by path, and training scripts change their
            directory.
        name: name of the split.
        manifest: manifest of the dataset.
        shards: shards of the split that contain samples, in reading order.
        cached: where the shards come from, if they are in an object store. `None` if they are on
            disk.

    """

    folder: str
    root: str
    name: str
    manifest: Manifest
    shards: tuple[Shard, ...]
    cached: CachedSplit | None = None
    _computed: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def samples(self) -> int:
        """Number of samples."""
        return sum(shard.samples for shard in self.shards)

    @property
    def is_cached(self) -> bool:
        """Whether the split, or a part of it, is in an object store."""
        return self.cached is not None

    @property
    def folders(self) -> tuple[str, ...]:
        """Folder of each dataset that the split is from."""
        return (self.folder,)

    @property
    def revisions(self) -> tuple[int, ...]:
        """Revision of each dataset that the split is from."""
        return (self.manifest.revision,)

    @property
    def fingerprint(self) -> str:
        """16 hex digits that identify the content: equal for copies, different for other or rebuilt splits."""
        # Every checkpoint contains it, and a hundred thousand shards take seconds.
        if "fingerprint" not in self._computed:
            self._computed["fingerprint"] = self._compute_fingerprint()
        return self._computed["fingerprint"]

    def _compute_fingerprint(self) -> str:
        # The text of the list of all files, part by part.
        digest = hashlib.sha256(b"[")
        for number, shard in enumerate(self.shards):
            text = f"{', ' if number else ''}{(shard.file, shard.index)!r}"
            digest.update(text.encode("utf-8", "surrogatepass"))
        digest.update(b"]")
        return digest.hexdigest()[:16]

    @property
    def first_shards(self) -> tuple[int, ...]:
        """Number of the first shard of each dataset among `shards`."""
        return (0,)

    def class_count(self, shard: int) -> int:
        """Return the number of classes of the dataset that a shard is from."""
        del shard
        return len(self.manifest.classes)

    def joined_labels(self, shard: int, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the labels of a shard, which several datasets may number differently."""
        del shard
        return labels

    def path(self, file: File) -> str:
        """Return the path of a file of the dataset."""
        return os.path.join(self.root, file.name)


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
    return _splits_of(read_revision(dataset, revision), split, folder, os.path.abspath(folder))


def select_split(manifest: Manifest, split: str, folder: str, root: str) -> OpenSplit:
    """Return a split of a manifest that was read already. Checks no file.

    Args:
        manifest: the manifest.
        split: name of the split.
        folder: the dataset, as the caller wrote it.
        root: folder of its files.

    Raises:
        CallError: the split does not exist, or is empty.

    """
    (opened,) = _splits_of(manifest, split, folder, root)
    _require_samples(opened)
    return opened


def _splits_of(manifest: Manifest, split: str | None, folder: str, root: str) -> list[OpenSplit]:
    selected = [each for each in manifest.splits if split in (None, each.name)]
    if split is not None and not selected:
        raise CallError(
            f"{folder} has no split {split!r}",
            hint=suggest(split, [each.name for each in manifest.splits]),
        )
    # DALI rejects an empty index file, so shards without samples are skipped.
    return [
        OpenSplit(
            folder,
            root,
            each.name,
            manifest,
            tuple(shard for shard in each.shards if shard.samples),
        )
        for each in selected
    ]


def _require_samples(opened: OpenSplit) -> None:
    if opened.samples == 0:
        raise CallError(
            f"split {opened.name!r} of {opened.folder} contains no samples",
            hint="choose another split",
        )


def open_split(
    dataset: str | os.PathLike[str], split: str, revision: int | None = None
) -> OpenSplit:
    """Read the manifest, and check that every shard and index exists and has the length that the manifest states.

    Args:
        dataset: folder of the dataset.
        split: name of the split.
        revision: an older revision of the dataset. `None` means the newest one.

    Raises:
        CallError: the folder, the split or the revision does not exist, or the split is empty.
        DamagedError: the manifest, a shard or an index is missing or differs from what the manifest
            states.

    """
    (opened,) = open_splits(dataset, split, revision)
    _require_samples(opened)
    for shard in opened.shards:
        _check_length(opened, shard.file, SHARD)
        _check_length(opened, shard.index, INDEX)
    return opened


class ShardCheck:
    """Checks the lengths of the shards of a split, a few at each call, while DALI has them mapped into memory.

    Reading beyond the end of a mapped file that was shortened ends the process.
    """

    #: Shards that one call checks: approximately 30 us.
    PER_CALL = 16

    def __init__(self, split: OpenSplit) -> None:
        self._split = split
        self._shards = itertools.cycle(split.shards)
        self._count = min(self.PER_CALL, len(split.shards))

    def __call__(self) -> None:
        """Check the next shards.

        Raises:
            ShardError: a shard has another length than the manifest states.

        """
        for shard in itertools.islice(self._shards, self._count):
            _check_length(self._split, shard.file, SHARD)


def find_shard_error(split: OpenSplit) -> DamagedError | None:
    """Return an error for the first shard that is missing or has another length.

    `None` if there is none.
    """
    try:
        for shard in split.shards:
            _check_length(split, shard.file, SHARD)
    except DamagedError as error:
        return error
    return None


def _check_length(opened: OpenSplit, file: File, kind: FileKind) -> None:
    path = opened.path(file)
    with reading("the file", path, kind.error, RESTORE):
        length = file_length(path, kind)
    if length != file.bytes:
        raise kind.error(
            f"the file is {length} bytes long, but the manifest states {file.bytes}",
            file=path,
            hint=RESTORE,
        )
