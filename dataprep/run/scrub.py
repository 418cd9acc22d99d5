"""Write shards again without removed samples, so that no byte of these samples stays in a dataset."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

import numpy as np
from awscrt.checksums import crc32c

from dataprep import storage
from dataprep.arrays import Int64Array
from dataprep.formats import FORMATS, ByteView, Record, ScanOptions, read_bytes
from dataprep.ledger.state import Folder, is_own_name, names_of_dataset
from dataprep.options import HASHES_NAME
from dataprep.plan.files import remove_empty_plan_folder, remove_plan
from dataprep.sources.base import first_names
from manifests.errors import ShardError
from manifests.process.text import plural, printable
from manifests.remote.store import delete_versions
from manifests.remote.url import is_url, parse_url
from manifests.schema import File, Manifest, Shard
from manifests.serialization import checksum_text, of_revision
from manifests.store import MANIFEST_NAME, read_as_written

#: Bytes that are copied in one step.
_STEP = 4 << 20

#: How much of a shard is read at once.
_SPAN = 1 << 20


class ScrubbedShard(NamedTuple):
    """A shard that was written again.

    Attributes:
        file: the new shard.
        lines: the line of each sample in the new index.
        moved: by how many bytes each sample moved, int64 [samples].

    """

    file: File
    lines: list[str]
    moved: Int64Array


def shards_with_removed(base: Folder) -> set[str]:
    """Return the names of the shards that still contain samples which older revisions removed."""
    written = {}
    for shard in read_as_written(base.out, base.manifest).shards:
        written[shard.name] = shard.index
    names = set()
    for shard in base.manifest.shards:
        if shard.index != written[shard.name]:
            names.add(shard.name)
    return names


def write_scrubbed(
    out: str, manifest: Manifest, shard: Shard, offsets: Int64Array, revision: int
) -> ScrubbedShard:
    """Write a shard with only some of its records, byte for byte.

    Args:
        out: folder or URL of the dataset.
        manifest: its manifest.
        shard: the shard.
        offsets: first bytes of the images that stay, ascending.
        revision: the number of the new revision.

    Raises:
        ShardError: the shard is damaged.

    """
    path = os.path.join(out, of_revision(shard.name, revision))
    try:
        kept, length = _copy(out, manifest, shard, {*offsets.tolist()}, path)
        partial = storage.partial_path(path)
        # What was written tells the new index, and that the records are whole.
        with storage.open_view(partial, span=_SPAN) as (view, size):
            checksum = checksum_text(view.checksum(size))
            made = [*_scan(manifest, view, size, path)] if kept else []
        _check_counts(out, shard, len(offsets), len(kept), len(made))
        storage.publish_all([(partial, path)])
    except BaseException:
        storage.discard([path])
        raise
    moved, lines = [], []
    for old, new in zip(kept, made, strict=True):
        moved.append(new.start - old.start)
        lines.append(new.index_line)
    file = File(os.path.basename(path), length, checksum)
    return ScrubbedShard(file, lines, np.array(moved, np.int64))


def _scan(manifest: Manifest, view: ByteView, size: int, path: str) -> Iterator[Record]:
    options = ScanOptions(manifest.components, texts=False)
    return FORMATS[manifest.format].scan(view, size, path, options)


def _check_counts(out: str, shard: Shard, *counts: int) -> None:
    """Check that as many records were found and written as the table lists."""
    if len({*counts}) > 1:
        raise _damaged(out, shard, "does not contain the images that its table lists")


def _damaged(out: str, shard: Shard, what: str) -> ShardError:
    hint = "run `dataprep repair` on the dataset first"
    return ShardError(f"the shard {what}", file=os.path.join(out, shard.name), hint=hint)


def _copy(
    out: str, manifest: Manifest, shard: Shard, wanted: set[int], path: str
) -> tuple[list[Record], int]:
    """Write the temporary file of a shard from records of another one; return them, and its length."""
    partial, source, at = storage.partial_path(path), os.path.join(out, shard.name), 0
    kept: list[Record] = []
    storage.write_partial(path, b"")
    try:
        with storage.open_view(source, span=_SPAN) as (view, size):
            # A damaged shard must not get a checksum that calls it intact.
            if checksum_text(view.checksum(size)) != shard.file.checksum:
                raise _damaged(out, shard, "does not have the checksum in the manifest")
            for record in _scan(manifest, view, size, source):
                if record.offset in wanted:
                    kept.append(record)
            for data in chain(_parts(view, kept), (FORMATS[manifest.format].END,)):
                crc = crc32c(data)
                storage.write_to(path, partial, [data], at, length=len(data), crc=crc)
                at += len(data)
    finally:
        storage.close_file(partial)
    return kept, at


def _parts(view: ByteView, records: list[Record]) -> Iterator[bytes]:
    """Yield the bytes of records, at most `_STEP` at a time."""
    for record in records:
        for start in range(record.start, record.end, _STEP):
            yield read_bytes(view, start, min(_STEP, record.end - start))


# --- what else contains removed samples -----------------------------------------------------------


def remove_caches(out: str) -> None:
    """Remove what `dataprep` can make again: perceptual hashes, and the plan of a conversion."""
    storage.remove(os.path.join(out, HASHES_NAME))
    remove_plan(out)
    remove_empty_plan_folder(out)


def notes_about(out: str, manifest: Manifest) -> tuple[str, ...]:
    """Return what is not cleaned, for the user; in a bucket, delete old versions of objects first."""
    notes = []
    known = {MANIFEST_NAME, storage.BOOKKEEPING, *names_of_dataset(manifest)}
    others = sorted(storage.names_in(out).difference(known))
    if others:
        count = plural(len(others), "other file")
        notes.append(
            f"not searched for removed samples: {count}, {first_names([*map(printable, others)])}"
        )
    reason = delete_versions(parse_url(out), _may_contain_samples) if is_url(out) else ""
    if reason:
        notes.append(
            "old versions of deleted objects, and unfinished uploads, were not looked for:"
            f" {reason}; if the bucket keeps versions, delete them"
        )
    notes.append("caches of loaders on other machines, and copies of the dataset, are not cleaned")
    return tuple(notes)


def _may_contain_samples(name: str) -> bool:
    in_bookkeeping = name.startswith(f"{storage.BOOKKEEPING}/")
    return in_bookkeeping or name == HASHES_NAME or is_own_name(name)
