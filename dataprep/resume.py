"""What an earlier run left in the output folder: shards that are done, files to make anew, and what is not ours.

A name proves nothing: other tools call their shards train-00000.tar too. What is removed must have been written by a
run of this plan, as its content or a sound file beside it says, unless the user asked for a dataset to be replaced.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from dataprep import formats, storage
from dataprep.options import Options, library_versions
from dataprep.plan import Plan, ShardPlan
from dataprep.shards import ShardResult
from dataprep.sources import Source
from manifests.errors import CallError, DatasetError, ManifestError, TableError
from manifests.schema import SPLIT_NAMES, Conversion, File, Shard
from manifests.store import (
    MANIFEST_NAME,
    REJECTED_NAME,
    has_no_other_manifest,
    is_as_written,
    read_manifest,
    read_table_metadata,
)
from manifests.text import printable


class Resumable(NamedTuple):
    """What is in the folder: shards that are done by name, and files to be removed before others are written."""

    shards: dict[str, ShardResult]
    outdated: tuple[str, ...]


def check_output(source: Source, out: str) -> None:
    """Refuse a folder that cannot be written into, before anything is.

    Raises:
        CallError: it is a file, lies below one, or lies in the folder that is the source.

    """
    path = os.path.abspath(out)
    root = os.path.abspath(source.root)
    if source.scanned and os.path.commonpath([path, root]) == root:
        raise CallError(
            f"--out {printable(out)} lies in {printable(source.root)}, and would be taken for images by the next run",
            hint="name a folder outside",
        )
    there = _existing(path)
    if not os.path.isdir(there):
        raise CallError(
            f"--out {printable(out)}: {printable(there)} is a file", hint="choose another folder with --out"
        )


def check_writable(out: str) -> str:
    """Give the folder that is there already, `out` or one above it, if it may be written into now.

    Raises:
        CallError: it may not.
        StorageError: another run is at work in `out`.

    """
    there = _existing(os.path.abspath(out))
    if not os.access(there, os.W_OK | os.X_OK):
        hint = "make it writable for this user, or choose another folder with --out"
        raise CallError(f"--out {printable(out)}: {printable(there)} may not be written into", hint=hint)
    if os.path.isdir(out):
        with storage.locked(out):
            pass
    return there


def _existing(path: str) -> str:
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return path


def find_resumable(plan: Plan, source: Source, out: str, options: Options, *, overwrite: bool) -> Resumable:
    """Find the shards of this very plan that are done; change nothing.

    Raises:
        CallError: there is a file that would have to be replaced, and is not of this plan.

    """
    if not os.path.isdir(out):
        return Resumable({}, ())
    planned = {shard.name: shard for shard in plan.shards}
    stated = _stated_by_manifest(plan, out)
    found = ((stem, _committed(plan, out, stem, stated)) for stem in planned)
    done = {stem: shard for stem, shard in found if shard}
    files = _dataset_files(plan, out)
    foreign = next(_foreign(plan, source, out, options, (planned, stated, done)), None)
    if foreign and not overwrite:
        releases = _other_releases(out) if options.alters else ""
        made = f"of this source with these options{releases}"
        earlier = f"the earlier options{' and releases' if releases else ''}"
        raise CallError(
            f"--out {printable(out)} holds {foreign!r}, which is not {made}, or is damaged",
            hint=f"move it away, name another folder, repeat {earlier}, or replace it all with --overwrite",
        )
    if foreign:
        done = {}
    if len(done) == len(planned):
        return Resumable(done, ())
    # The manifest first, so that no half looks whole.
    outdated = (name for name in (MANIFEST_NAME, REJECTED_NAME, *files) if os.path.splitext(name)[0] not in done)
    return Resumable(done, tuple(name for name in outdated if os.path.lexists(os.path.join(out, name))))


def _other_releases(out: str) -> str:
    """Say of which releases the images are, if it may be that they are of others than those at hand."""
    try:
        made = read_manifest(out).options.get("made_by", library_versions())
    except ManifestError:
        return f" and {_named(library_versions())}"
    if made == library_versions():
        return ""
    return f" and {_named(library_versions())} (but with {_named(made)})"


def _named(releases: object) -> str:
    named = releases.items() if isinstance(releases, dict) else ()
    return " and ".join(printable(f"{name} {release}") for name, release in named) or "none that are named"


def _foreign(
    plan: Plan,
    source: Source,
    out: str,
    options: Options,
    known: tuple[Mapping[str, ShardPlan], Mapping[str, File], Mapping[str, ShardResult]],
) -> Iterator[str]:
    """Name the files that a dataset would have there, and that no run of this plan wrote."""
    planned, stated, done = known
    if not has_no_other_manifest(out):
        yield MANIFEST_NAME
    if not _is_rejected(os.path.join(out, REJECTED_NAME)):
        yield REJECTED_NAME
    endings = (formats.FORMATS[options.fmt].SUFFIX, ".idx", ".parquet")
    for name in _dataset_files(plan, out):
        stem, extension = os.path.splitext(name)
        if stem in done and extension in endings:
            continue
        shard = planned.get(stem)
        ours = (
            shard
            and extension in endings
            and (_is_stated(plan, out, name, stated) or _is_of(source, shard, os.path.join(out, name), plan, options))
        )
        if not ours:
            yield name


def _dataset_files(plan: Plan, out: str) -> list[str]:
    """List what a dataset of ours has in OUT by name; whatever else lies there is none of our business."""
    splits = "|".join(map(re.escape, {*SPLIT_NAMES, *plan.splits}))
    ours = re.compile(rf"({splits})-\d{{5,}}\.(tfrecord|tar|idx|parquet)")
    return sorted(name for name in os.listdir(out) if ours.fullmatch(name))


def _is_rejected(path: str) -> bool:
    """Tell whether a ``rejected.jsonl``, if it is there, is one of ours."""
    try:
        with open(path, "rb") as lines:
            first = lines.readline(1 << 20)
        return not first or set(json.loads(first)) == {"source", "reason", "detail"}
    except FileNotFoundError:
        return True
    except (OSError, ValueError, TypeError):
        return False


def _stated_by_manifest(plan: Plan, out: str) -> dict[str, File]:
    """Give what a manifest of this plan, if one is there, says of each file."""
    try:
        manifest = read_manifest(out)
    except ManifestError:
        return {}
    if manifest.options.get("plan") != plan.fingerprint:
        return {}
    shards = (shard for split in manifest.splits for shard in split.shards)
    return {file.name: file for shard in shards for file in (shard.file, shard.index, shard.table)}


def _is_stated(plan: Plan, out: str, name: str, stated: Mapping[str, File]) -> bool:
    """Tell whether the manifest or the file's own table says that there is such a file of that length."""
    length = _length(os.path.join(out, name))
    if name in stated and stated[name].bytes == length:
        return True
    metadata = _metadata(os.path.join(out, f"{os.path.splitext(name)[0]}.parquet"), plan)
    files = (metadata.shard, metadata.index) if metadata else ()
    return any((file.name, file.bytes) == (name, length) for file in files)


def _metadata(path: str, plan: Plan) -> Conversion | None:
    """Read what a table says of its shard; nothing where it is damaged or not of this plan."""
    try:
        metadata = read_table_metadata(path)
    except TableError:
        return None
    conversion = metadata.conversion if metadata else None
    return conversion if conversion and conversion.plan == plan.fingerprint else None


def _is_of(source: Source, shard: ShardPlan, path: str, plan: Plan, options: Options) -> bool:
    """Tell by its content whether a file is what a stopped run of this plan left."""
    stem, extension = os.path.splitext(path)
    if extension == ".parquet":
        return bool(_metadata(path, plan))
    record_format = formats.FORMATS[options.fmt]
    try:
        with storage.open_view(stem + record_format.SUFFIX) as (view, size):
            want = formats.ScanOptions(formats.components(options.fmt, options.store))
            record = next(record_format.scan(view, size, path, want))
        if extension == ".idx" and record.line.encode() not in _head(path):
            return False
    except (StopIteration, DatasetError):
        return False
    return record.source in source.path.take(shard.rows[:1000]).to_pylist()


def _head(path: str) -> bytes:
    with storage.translate_errors(path, "read"), open(path, "rb") as file:
        return file.read(1 << 14)


def _committed(plan: Plan, out: str, stem: str, stated: Mapping[str, File]) -> ShardResult | None:
    """Read what a table says of its shard; none unless all of it is as it was written."""
    path = os.path.join(out, f"{stem}.parquet")
    if not os.path.isfile(path):
        return None
    known = stated.get(f"{stem}.parquet")
    if storage.checksum(path) != (known and known.checksum) and not is_as_written(path):
        return None
    metadata = _metadata(path, plan)
    if metadata is None:
        return None
    if any(row["reason"] == "unreadable" for row in metadata.rejected):
        return None  # the file system may give them now
    shard = None
    if metadata.samples:
        table = storage.describe(out, f"{stem}.parquet")
        shard = Shard(metadata.shard, metadata.samples, metadata.index, table)
        for file in (shard.file, shard.index):
            if _length(os.path.join(out, file.name)) != file.bytes:
                return None
    return ShardResult(
        stem,
        shard,
        metadata.images,
        metadata.bytes,
        metadata.formats,
        [dict(row) for row in metadata.rejected],
        metadata.changes or {},
        resumed=True,
    )


def _length(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def remove_outdated(out: str, found: Resumable) -> None:
    """Remove what is to be made anew."""
    with storage.translate_errors(out, "clear"):
        for name in found.outdated:
            os.unlink(os.path.join(out, name))
