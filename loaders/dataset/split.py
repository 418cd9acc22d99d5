"""One split of a dataset, opened: its files found and measured. It must never know torch or DALI."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass

from manifests.errors import CallError, DamagedError, IndexFileError, ShardError
from manifests.schema import File, Manifest, Shard
from manifests.store import read_manifest

#: What mends a file that is not what it should be.
ANEW = "run `dataprep verify` to see what else is wrong, then make the dataset anew or restore a copy"


@dataclass(frozen=True, slots=True)
class OpenSplit:
    """Where a reader finds the samples of a split.

    Attributes:
        folder: the dataset's folder, as the caller named it.
        manifest: what the dataset says of itself.
        shards: those of the split that hold samples, in reading order.

    """

    folder: str
    manifest: Manifest
    shards: tuple[Shard, ...]

    @property
    def samples(self) -> int:
        """How many samples the split holds."""
        return sum(shard.samples for shard in self.shards)

    @property
    def fingerprint(self) -> str:
        """A short text that another split, or another making of this one, does not share."""
        stated = repr([(shard.file, shard.index) for shard in self.shards])
        return hashlib.sha256(stated.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def path(self, file: File) -> str:
        """Return where a file of the dataset lies."""
        return os.path.join(self.folder, file.name)


def open_split(dataset: str | os.PathLike[str], split: str) -> OpenSplit:
    """Read the manifest and see that each shard and each index is there, and as long as it states.

    Raises:
        CallError: the split is unknown or empty, or the dataset cannot be read here.
        DamagedError: the manifest, a shard or an index is missing or not what it should be.

    """
    manifest = read_manifest(dataset)
    found = manifest.split(split)
    if found is None:
        known = ", ".join(repr(each.name) for each in manifest.splits)
        raise CallError(f"split={split!r} is not in {os.fspath(dataset)}", hint=f"it has {known}")
    if found.samples == 0:
        raise CallError(f"split {split!r} of {os.fspath(dataset)} holds no sample", hint="name another split")
    # DALI refuses an empty index, so shards without samples stay out.
    opened = OpenSplit(os.fspath(dataset), manifest, tuple(shard for shard in found.shards if shard.samples))
    for shard in opened.shards:
        _measure(opened, shard.file, ShardError)
        _measure(opened, shard.index, IndexFileError)
    return opened


def _measure(opened: OpenSplit, file: File, kind: type[DamagedError]) -> None:
    path = opened.path(file)
    try:
        length = os.stat(path).st_size
    except OSError as error:
        raise kind(f"cannot be read ({error.strerror})", file=path, hint=ANEW) from None
    if length != file.bytes:
        raise kind(f"is {length} bytes long, and the manifest states {file.bytes}", file=path, hint=ANEW)
