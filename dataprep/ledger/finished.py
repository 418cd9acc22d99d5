"""Which shards of a plan are finished, whose files are in the output folder, and whether it can be used.

A file name proves nothing, because other tools also call their shards ``train-00000.tar``. A file
belongs to the plan of a run only if the manifest or an intact sample table of the plan lists its
name and length. A run that is killed between the renames of a shard's files leaves the table among
its temporary files, and that table counts too.

A plan's fingerprint contains the sizes of the source images but no times, so a copy of the source
gives the same dataset. Times and inodes are recorded apart, in `STAMPS_NAME`: one digest for each
shard. Where a digest differs, the checksums in the sample table tell whether the images differ.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

import numpy as np

from dataprep import storage
from dataprep.images.base import FAILED
from dataprep.ledger.fence import has_displaced
from dataprep.ledger.state import ENDS_OF_FILES, INCOMPLETE, Files, Folder, State, names_of_dataset
from dataprep.plan.assign import ConversionPlan
from dataprep.plan.files import Job
from dataprep.shards.write import ShardResult, names_of_shard
from dataprep.sources import Source
from manifests.errors import CallError, DamagedError, TableError
from manifests.files import MANIFEST, REJECTED, read_file, read_lines
from manifests.process.text import printable
from manifests.remote.url import is_url, parse_url
from manifests.schema import SPLIT_NAMES, Conversion, File, RejectedRow
from manifests.serialization import REVISION_FILE
from manifests.store import (
    MANIFEST_NAME,
    REJECTED_NAME,
    may_replace_manifest,
)
from manifests.tables import has_canonical_bytes, read_table_metadata


def shard_of_file(name: str) -> str:
    """Return the name of the shard that a file belongs to, without extension."""
    stem, suffix = os.path.splitext(name)
    return stem.rpartition(".")[0] if suffix == ".npy" else stem


def read_finished(fingerprint: str, out: str, name: str, in_manifest: Files) -> ShardResult | None:
    """Read the sample table of a shard; `None` if it is missing, damaged or of another plan."""
    path = os.path.join(out, f"{name}.parquet")
    if not storage.is_file(path):
        return None
    table = storage.describe(out, f"{name}.parquet")
    if table.name in in_manifest:
        is_whole = table == in_manifest[table.name]
    else:
        is_whole = has_canonical_bytes(path)
    conversion = read_conversion(fingerprint, path)
    if is_whole and conversion:
        return ShardResult(name, conversion, table, resumed=True)
    return None


def find_shard(fingerprint: str, out: str, name: str, in_manifest: Files) -> ShardResult | None:
    """Find a finished shard; `None` if its table, its index or the shard is missing or damaged."""
    result = read_finished(fingerprint, out, name, in_manifest)
    if result and is_intact(out, result):
        return result
    return None


def read_conversion(fingerprint: str, path: str) -> Conversion | None:
    """Read the metadata of a sample table; `None` if it is damaged or of another plan."""
    try:
        metadata = read_table_metadata(path)
    except TableError:
        return None
    if isinstance(metadata, Conversion) and metadata.plan == fingerprint:
        return metadata
    return None


def unpublished_tables(folder: Folder, name: str) -> list[Conversion]:
    """Read the tables that killed runs left under temporary names.

    They are complete before a shard gets its name.
    """
    found = []
    for path in storage.partials_named(folder.out, name):
        if os.path.isfile(path) and has_canonical_bytes(path):
            conversion = read_conversion(folder.plan, path)
            if conversion:
                found.append(conversion)
    return found


#: Images that were rejected for these reasons may be readable now, or this release may be able to
#: handle them.
_TRIED_AGAIN = ("unreadable", FAILED)


def is_final(result: ShardResult) -> bool:
    """Return whether a new try gives the same: no image was rejected for what may have passed."""
    return all(map(_is_final_row, result.conversion.rejected))


def _is_final_row(row: RejectedRow) -> bool:
    return row["reason"] not in _TRIED_AGAIN


def find_final(job: Job, names: Iterable[str], in_manifest: Files) -> dict[str, ShardResult]:
    """Find the shards of these names that are finished and final, by name."""
    find = partial(find_shard, job.fingerprint, job.out, in_manifest=in_manifest)
    found = {}
    for result in storage.map_files(job.out, find, names):
        if result and is_final(result):
            found[result.name] = result
    return found


def is_intact(out: str, result: ShardResult) -> bool:
    """Return whether the shard and its array files have their lengths, and the index its checksum."""
    if result.shard is None:
        return True
    for file in result.conversion.files:
        if storage.file_length(os.path.join(out, file.name)) != file.bytes:
            return False
    return has_checksum(out, result.shard.index)


def has_checksum(out: str, file: File) -> bool:
    """Return whether a file exists and is as the record says."""
    path = os.path.join(out, file.name)
    return (
        storage.file_length(path) == file.bytes
        and storage.is_file(path)
        and storage.describe(out, file.name) == file
    )


def lists_everything(out: str, in_manifest: Files) -> bool:
    """Return whether planned shards that the manifest does not list have rejected images only.

    The tables of such shards are removed when the manifest is written.
    """
    if not has_all_of(out, in_manifest):
        return False
    return REJECTED_NAME not in in_manifest or all(map(_is_final_row, read_rejected(out)))


def read_rejected(out: str, name: str = REJECTED_NAME) -> Iterator[dict[str, str]]:
    """Read the rows of ``rejected.jsonl``, which has the checksum in the manifest."""
    return map(json.loads, read_lines(os.path.join(out, name), REJECTED))


def has_all_of(out: str, in_manifest: Files) -> bool:
    """Return whether there is a manifest, and the list of rejected images is as it says."""
    rejected = in_manifest.get(REJECTED_NAME)
    is_listed = rejected is not None or not storage.is_file(os.path.join(out, REJECTED_NAME))
    return bool(in_manifest) and is_listed and (rejected is None or has_checksum(out, rejected))


# --- whose files are in the folder ----------------------------------------------------------------


#: Its content depends on the machine. Without it, a rerun compares checksums.
STAMPS_NAME = f"{storage.BOOKKEEPING}/stamps.json"

_OTHER_FILES = f"{re.escape(REJECTED_NAME)}|{REVISION_FILE.pattern}"


def listed_files(
    folder: Folder, shards: Iterable[str], tables: Iterable[ShardResult | None]
) -> Files:
    """Return the files of the plan, by name: as a manifest or the tables of these shards say.

    Of a shard without a table, the tables that killed runs left count.
    """
    listed = {**folder.pending_files, **folder.files}
    for name, result in zip(shards, tables, strict=True):
        if result is None:
            conversions = unpublished_tables(folder, f"{name}.parquet")
        else:
            listed[result.table.name] = result.table
            conversions = [result.conversion]
        for conversion in conversions:
            listed |= {file.name: file for file in conversion.files}
    return listed


def is_listed(out: str, name: str, listed: Files) -> bool:
    """Return whether a file belongs to the plan; see `listed_files`."""
    return name in listed and listed[name].bytes == storage.file_length(os.path.join(out, name))


def foreign_files(job: Job, folder: Folder, listed: Files) -> Iterator[str]:
    """Yield the files of other datasets and tools that this run would remove or replace."""
    out = folder.out
    if folder.state in (*INCOMPLETE, State.FOREIGN) and not may_replace_manifest(out):
        yield MANIFEST_NAME
    planned = {REJECTED_NAME}
    for shard in job.shards:
        planned.update(names_of_shard(job.options.fmt, shard.name, job.arrays))
    # Only names of datasets matter; a planned name must be known to be of this plan.
    stale = stale_files(folder)
    for name in dataset_files(job.splits, out):
        if name in stale or (folder.owns_names and name in planned):
            continue
        is_own = is_listed(out, name, listed) or (
            name == REJECTED_NAME and _is_rejected_list(os.path.join(out, name))
        )
        if name not in planned or not is_own:
            yield name


def stale_files(folder: Folder) -> list[str]:
    """Return the files that a run wrote after it had lost the folder in an object store.

    The run that took the folder over left no file that its manifest does not list.
    """
    if folder.state is not State.COMPLETE or storage.has_locks(folder.out):
        return []
    manifest = folder.manifest
    names = dataset_files([split.name for split in manifest.splits], folder.out)
    unlisted = sorted({*names}.difference(names_of_dataset(manifest)))
    if unlisted and not has_displaced(folder.out):
        return []
    return unlisted


def _is_rejected_list(path: str) -> bool:
    """Return whether the first line of a file looks like one of ``rejected.jsonl``."""
    try:
        return set(json.loads(next(read_lines(path, REJECTED), b""))) == {
            "source",
            "reason",
            "detail",
        }
    except (OSError, ValueError, TypeError, RecursionError, DamagedError):
        return False


def dataset_files(splits: Iterable[str], out: str) -> list[str]:
    """List the files in the folder whose names could belong to a dataset with these splits.

    All other files are never changed.
    """
    names = "|".join(map(re.escape, {*SPLIT_NAMES, *splits}))
    pattern = re.compile(rf"({names})-\d{{5,}}{ENDS_OF_FILES}|{_OTHER_FILES}")
    return sorted(filter(pattern.fullmatch, storage.names_in(out)))


# --- the source images ----------------------------------------------------------------------------


def stamps_of(source: Source, plan: ConversionPlan) -> dict[str, str]:
    """Return a digest for each shard: of size, modification time and inode of its images.

    Empty if not known.
    """
    if source.stamp is None:
        return {}
    stats = np.column_stack([source.size, source.stamp]).astype("<i8")
    stamps = {}
    for shard in plan.shards:
        stamps[shard.name] = hashlib.blake2b(
            stats[shard.rows].tobytes(), digest_size=16
        ).hexdigest()
    return stamps


def read_stamps(job: Job) -> dict[str, str]:
    """Return the digests that an earlier run of this plan recorded; empty if there are none."""
    try:
        members = json.loads(read_file(os.path.join(job.out, STAMPS_NAME), MANIFEST))
        return dict(members["shards"]) if members["plan"] == job.fingerprint else {}
    except (OSError, ValueError, TypeError, KeyError, RecursionError, DamagedError):
        return {}


def write_stamps(job: Job, stamps: Mapping[str, str]) -> None:
    """Record the digests of all shards, to write and to keep."""
    note = (
        "Digests of the sizes, times and inodes of the source images. dataprep convert compares"
        " them when it resumes."
    )
    members = {"note": note, "plan": job.fingerprint, "shards": dict(stamps)}
    data = (json.dumps(members, indent=1) + "\n").encode()
    storage.replace_file(os.path.join(job.out, STAMPS_NAME), data)


# --- whether the folder can be used ----------------------------------------------------------------


#: Longest path of an output folder, in bytes: Linux allows 4,096 for the path of a file in it.
MAX_PATH = 3800


def check_output(source: Source, out: str) -> None:
    """Check that `out` can be an output folder.

    Raises:
        CallError: `out` is a file, is inside a file or a folder that the scan of the source reads,
            or is too long.

    """
    existing, length = _nearest_existing(os.path.realpath(out)), len(os.fsencode(out))
    if is_url(out):
        if parse_url(out).is_read_only:
            raise CallError(
                f"--out {out} can only be read",
                hint="use the s3://, gs:// or az:// URL of a bucket",
            )
        is_inside = f"{out}/".startswith(f"{source.root}/")
    elif length > MAX_PATH:
        raise CallError(
            f"--out {printable(out[:80])}... is {length:,} bytes long, but the limit is {MAX_PATH:,}",
            hint="choose a folder with a shorter path",
        )
    else:
        is_inside = _is_scanned(existing, source)
    if source.folders and is_inside:
        raise CallError(
            f"--out {printable(out)} is inside the source {printable(source.root)}, so the next run"
            " would read it as images",
            hint="choose a folder outside the source",
        )
    if os.path.islink(out.rstrip("/")) and not os.path.exists(out):
        target = printable(os.path.realpath(out))
        raise CallError(
            f"--out {printable(out)} is a link to {target}, which does not exist",
            hint="make that folder, or remove the link",
        )
    if not os.path.isdir(existing):
        raise CallError(
            f"--out {printable(out)}: {printable(existing)} is a file, not a folder",
            hint="choose another folder with --out",
        )


def _is_scanned(path: str, source: Source) -> bool:
    """Return whether a path without links, or a folder above it, is one that the scan read, by whatever path."""
    while True:
        status = os.stat(path)
        if (status.st_dev, status.st_ino) in source.folders:
            return True
        path, below = os.path.dirname(path), path
        if path == below:
            return False


def check_writable(out: str) -> str:
    """Return the nearest existing folder, `out` or one of its parents, after checking that it can be written.

    Raises:
        CallError: this user has no permission to write.
        StorageError: another run is writing to `out`.

    """
    if not storage.has_locks(out):  # only a write would tell
        return out
    existing = _nearest_existing(os.path.abspath(out))
    if not os.access(existing, os.W_OK | os.X_OK):
        raise CallError(
            f"--out {printable(out)}: this user cannot write to {printable(existing)}",
            hint="give this user permission to write there, or choose another folder with --out",
        )
    if os.path.isdir(out):
        with storage.locked(out):
            pass
    return existing


def refuse_folders(out: str, names: Iterable[str]) -> None:
    """Check that no folder has the name of a file that the run writes or replaces.

    Raises:
        CallError: there is one. Running the same command again would not help, and folders are
            never removed.

    """
    # In an object store, no path is a folder: it can have a file and a folder of the same name.
    for name in names:
        path = os.path.join(out, name)
        if os.path.isdir(path) and not os.path.islink(path):
            raise CallError(
                f"--out {printable(out)} contains a folder {name!r}, but a file of this name is"
                " needed",
                hint="move it away, or choose another folder",
            )


def _nearest_existing(path: str) -> str:
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return path
