"""Read and write ``manifest.json`` of all revisions and ``rejected.jsonl``, and read the rows of a dataset.

`read_dataset` is how programs read samples: it opens each table once, reads the columns that are
asked for, by row group, and raises the same errors for every caller.

Reading is strict.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from manifests.errors import CallError, ManifestError, TableError
from manifests.files import (
    IMAGE_SUFFIXES,
    MANIFEST,
    SHARD_LIST,
    StrPath,
    map_files,
    open_file,
    read_file,
    reading,
    some_files,
)
from manifests.json_members import Member, MemberError
from manifests.labels import LABELS, LabelType
from manifests.process.text import plural
from manifests.records import keyword_record
from manifests.schema import SCHEMA_VERSION, SHARD_LIST_VERSION, Manifest, RejectedRow, Shard, Split
from manifests.serialization import (
    file_from_json,
    file_of,
    manifest_digest,
    manifest_from_json,
    manifest_to_json,
    matches_seal,
    numbered,
    old_manifest_name,
    parse_sealed,
    seal,
)
from manifests.tables import (
    DAMAGED_HINT,
    MAX_SHARDS_IN_JSON,
    SHARD_LIST_NAME,
    SampleTable,
    parse_shard_list,
    shard_list_bytes,
)

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

_log = logging.getLogger(__name__)

MANIFEST_NAME = "manifest.json"
REJECTED_NAME = "rejected.jsonl"
REMOVED_NAME = "removed.parquet"

#: A longer manifest is refused.
MAX_MANIFEST_BYTES = MANIFEST.max_bytes

#: `dataprep verify` cannot check a dataset without its manifest, so this does not recommend it.
_MANIFEST_HINT = "restore the manifest from a copy, or make the dataset again"

#: The first member.
_VERSION = re.compile(rb'\{\n "schema_version": (-?[0-9]{1,9})(?=[,\n])')

#: The beginning of a file, in which a manifest of this project has `schema_version`.
_HEAD_BYTES = 4096

#: A manifest has three objects for each shard, in about 300 bytes.
_BYTES_PER_BRACKET = 16
_FREE_BRACKETS = 4096
_TEXT_OR_BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*"|[{\[]')


# --- manifest.json ------------------------------------------------------------------------------


def manifest_bytes(manifest: Manifest) -> bytes:
    """Serialize a manifest as UTF-8 JSON; see `manifest_files`."""
    return manifest_files(manifest)[MANIFEST_NAME]


def manifest_files(manifest: Manifest) -> dict[str, bytes]:
    """Serialize a manifest: the content of each of its files by name, in the order in which to write them.

    ``manifest.json`` is the last one: UTF-8 JSON, whose last member is a CRC-32C of everything
    before it. With more than `MAX_SHARDS_IN_JSON` shards, `SHARD_LIST_NAME` lists them, with the
    number of the revision in its name.

    Raises:
        CallError: ``manifest.json`` is longer than `MAX_MANIFEST_BYTES`, so nothing could read it.

    """
    files, listed = {}, None
    if has_shard_list(manifest):
        name = numbered(SHARD_LIST_NAME, manifest.revision)
        data = files[name] = shard_list_bytes(manifest.splits)
        listed = file_of(name, data)
    data = seal(manifest_to_json(manifest, listed))
    check_manifest_size(len(data))
    return {**files, MANIFEST_NAME: data}


def has_shard_list(manifest: Manifest) -> bool:
    """Return whether `SHARD_LIST_NAME` lists the shards of a dataset, instead of ``manifest.json``."""
    return len(manifest.shards) > MAX_SHARDS_IN_JSON


def check_manifest_size(size: int) -> None:
    """Refuse a manifest of this many bytes if nothing could read it.

    Raises:
        CallError: it is longer than `MAX_MANIFEST_BYTES`.

    """
    if size > MAX_MANIFEST_BYTES:
        raise CallError(
            f"the class names and the list of shards take about {size:,} bytes, but {MANIFEST_NAME}"
            f" is limited to {MAX_MANIFEST_BYTES:,}",
            hint="use fewer or shorter class names, or larger shards",
        )


def parse_manifest(data: bytes, file: StrPath = MANIFEST_NAME) -> Manifest:
    """Parse a manifest strictly: every byte must be as `manifest_bytes` writes it.

    Args:
        data: content of ``manifest.json``.
        file: its path, to name in errors. The list of shards, if there is one, is in the same
            folder.

    Raises:
        ManifestError: the manifest or the list of shards is damaged, or its schema version is
            unknown.

    """
    version, number = _VERSION.match(data), 0
    if version:
        number = int(version[1])
    if version and number not in (SCHEMA_VERSION, SHARD_LIST_VERSION):
        raise ManifestError(
            f"the manifest has schema_version {number}, but this release reads"
            f" {SCHEMA_VERSION} and {SHARD_LIST_VERSION}",
            file=file,
            hint="read it with the release that wrote it",
        )
    is_intact = matches_seal(data)  # before it is parsed, which takes memory
    if not version or is_intact is None:
        missing = "schema_version or the checksum is missing"
        problem = f"the manifest is truncated or was written by another tool: {missing}"
    elif not is_intact:
        problem = "the manifest does not match its own checksum"
    else:
        try:
            _check_density(data)
            body = parse_sealed(data)
            if number == SCHEMA_VERSION:
                return manifest_from_json(body)
            return manifest_from_json(body, _read_shard_list(os.path.dirname(file), body))
        except ValueError as error:
            problem = f"a member of the manifest is missing or wrong ({error})"
    raise ManifestError(problem, file=file, hint=_MANIFEST_HINT)


def _read_shard_list(folder: str, body: Member) -> tuple[Split, ...]:
    file = file_from_json(body["shard_list"])
    counts = {name: each["shards"].integer() for name, each in body["splits"].members().items()}
    path = os.path.join(folder, file.name)
    with reading("the list of shards", path, ManifestError, _MANIFEST_HINT):
        data = read_file(path, SHARD_LIST)
    problem = (
        "the list of shards is not the one that the manifest describes: its length or checksum"
        " differs"
    )
    if file_of(file.name, data) == file:
        try:
            return parse_shard_list(data, counts)
        except ValueError as error:
            problem = f"the list of shards is damaged: {error}"
    raise ManifestError(problem, file=path, hint=_MANIFEST_HINT)


def _check_density(data: bytes) -> None:
    """Refuse JSON that consists of small objects and arrays, which take 30 times the memory of their text."""
    limit = len(data) // _BYTES_PER_BRACKET + _FREE_BRACKETS
    if data.count(b"{") + data.count(b"[") <= limit:
        return
    # Class names may contain brackets, so only those outside of text count.
    outside = (match for match in _TEXT_OR_BRACKET.finditer(data) if match[0] in b"{[")
    if next(islice(outside, limit, None), None):
        raise MemberError("it contains too many objects and arrays")


def read_manifest(folder: StrPath) -> Manifest:
    """Read ``folder/manifest.json``.

    Raises:
        CallError: the folder does not exist.
        ManifestError: the manifest is missing (the dataset is incomplete) or damaged.

    """
    file = os.path.join(folder, MANIFEST_NAME)
    manifest = parse_manifest(read_manifest_bytes(folder), file)
    splits, shards = len(manifest.splits), len(manifest.shards)
    _log.info("%s: read; %d splits, %d shards, %s", file, splits, shards, manifest.format)
    return manifest


def read_manifest_bytes(folder: StrPath) -> bytes:
    """Read ``folder/manifest.json`` without parsing it.

    Raises:
        CallError: the folder does not exist.
        ManifestError: the manifest is missing (the dataset is incomplete), or cannot be read.

    """
    folder = os.fspath(folder)
    path = os.path.join(folder, MANIFEST_NAME)
    dataset_hint = "give the folder of a prepared dataset"
    try:
        with reading("the manifest", path, ManifestError, "check its permissions"):
            try:
                return read_file(path, MANIFEST)
            except (FileNotFoundError, NotADirectoryError):
                names = some_files(folder)
    except CallError:
        raise
    except ValueError:
        raise CallError(f"{folder!r} cannot be the name of a folder", hint=dataset_hint) from None
    if names is None:
        raise CallError(f"the folder {folder} does not exist", hint=dataset_hint)
    if any(os.path.splitext(name.lower())[1] in IMAGE_SUFFIXES for name in names):
        raise CallError(
            "this is a folder of images",
            file=folder,
            hint=f"run `dataprep convert --src {folder}` first, and give the folder that it writes",
        )
    raise ManifestError(
        "the manifest is missing, so the dataset is incomplete",
        file=path,
        hint="run the same `dataprep convert` again to finish it, or `dataprep index` for shards made by"
        " another tool",
    )


def may_replace_manifest(folder: StrPath) -> bool:
    """Return whether ``folder/manifest.json`` may be replaced: it is missing, empty, or written by this project.

    A damaged manifest of this project counts, a file of another tool does not.

    Raises:
        CallError: the file cannot be read.

    """
    path = os.path.join(folder, MANIFEST_NAME)
    try:
        with open_file(path, MANIFEST) as file:
            head = file.read(_HEAD_BYTES)
    except FileNotFoundError:
        return True
    except ManifestError as error:
        raise CallError(error.message, file=path, hint="move it away") from None
    except OSError as error:
        raise CallError(
            f"{path} cannot be read ({error.strerror})", hint="move the file away"
        ) from None
    return not head or b'"schema_version"' in head


def rejected_bytes(rows: Sequence[RejectedRow]) -> bytes:
    """Serialize ``rejected.jsonl``: one line per source image that was not written."""
    lines = []
    for row in rows:
        # A fixed order: the same rows give the same bytes.
        ordered = {name: row[name] for name in ("source", "reason", "detail")}
        lines.append(json.dumps(ordered, ensure_ascii=False) + "\n")
    return "".join(lines).encode()


# --- older revisions, which ``dataprep convert --append`` keeps -----------------------------------


def read_revision(folder: StrPath, revision: int | None) -> Manifest:
    """Read the manifest of a revision; `None` means the newest one.

    Raises:
        CallError: the folder does not exist, or the dataset has no such revision.
        ManifestError: the manifest is missing or damaged.

    """
    newest = read_manifest(folder)
    if revision is None or revision == newest.revision:
        return newest
    return read_older(folder, newest, revision)[0]


def read_older(folder: StrPath, newest: Manifest, revision: int) -> tuple[Manifest, bytes]:
    """Read the manifest of a revision that is not the newest one, parsed and as it is stored.

    Raises:
        CallError: the dataset has no such revision.
        ManifestError: the manifest is missing or damaged.

    """
    if not newest.oldest <= revision < newest.revision:
        hint = "leave out revision"
        if newest.revision > newest.oldest:
            hint = f"choose a revision from {newest.oldest} to {newest.revision}"
        if 0 <= revision < newest.oldest:
            raise CallError(
                f"{os.fspath(folder)} has revision {revision} no longer: revision {newest.oldest}"
                " scrubbed removed samples",
                hint=f"name a copy of the dataset from before, or {hint}",
            )
        raise CallError(f"{os.fspath(folder)} has no revision {revision}", hint=hint)
    data = read_old_manifest(folder, newest, revision)
    return parse_manifest(data, os.path.join(folder, old_manifest_name(revision))), data


def read_old_manifest(folder: StrPath, newest: Manifest, revision: int) -> bytes:
    """Read the manifest of an older revision without parsing it, and compare it with its digest in the newest one.

    Raises:
        ManifestError: it is missing, or has another digest.

    """
    path = os.path.join(folder, old_manifest_name(revision))
    hint = "restore it from a copy; the newest revision does not need it"
    with reading(f"the manifest of revision {revision}", path, ManifestError, hint):
        data = read_file(path, MANIFEST)
    if manifest_digest(data) != newest.revisions[revision].parent:
        raise ManifestError(
            f"this is not the manifest of revision {revision}: revision {revision + 1} states"
            " another digest",
            file=path,
            hint=hint,
        )
    return data


def read_as_written(folder: StrPath, manifest: Manifest) -> Manifest:
    """Return a manifest whose shards have the files and labels that they were written with, before any join or removal.

    Raises:
        ManifestError: the manifest of an older revision is missing or damaged.

    """
    if not (manifest.joins or manifest.removals):
        return manifest
    written: dict[str, Shard] = {}
    first = manifest
    # A shard is in the manifests from the revision that added it; the oldest one counts.
    for revision in range(manifest.revision, manifest.oldest - 1, -1):
        first = manifest
        if revision < manifest.revision:
            first = read_older(folder, manifest, revision)[0]
        written.update((shard.name, shard) for shard in first.shards)
    splits = []
    for split in manifest.splits:
        splits.append(Split(split.name, tuple(written[each.name] for each in split.shards)))
    label, offset = first.components.label, first.components.label_offset
    components = replace(manifest.components, label=label, label_offset=offset)
    return replace(manifest, splits=tuple(splits), components=components)


# --- the rows of a dataset ------------------------------------------------------------------------


@keyword_record
class RowBatch:
    """Rows of one shard, in stored order.

    Attributes:
        split: name of the split.
        shard: the shard.
        number: number of the shard among all shards that are read.
        first: number of the first of these rows in the shard.
        table: the columns.

    """

    split: str
    shard: Shard
    number: int
    first: int
    table: pa.Table


def read_dataset(
    folder: StrPath,
    columns: Sequence[str] | None = None,
    split: str | None = None,
    revision: int | None = None,
    *,
    optional: Sequence[str] = (),
    checksums: bool = False,
    manifest: Manifest | None = None,
    on_error: Callable[[Shard, TableError], None] | None = None,
) -> Iterator[RowBatch]:
    """Read the samples of a dataset in stored order, one row group after the other.

    Nothing is read before the first batch is asked for. In an object store, several tables are read
    at a time.

    Args:
        folder: folder or URL of the dataset.
        columns: names of the columns. `None` reads all columns of each table.
        split: name of the split. `None` reads all of them.
        revision: an older revision of the dataset. `None` means the newest one.
        optional: names of columns to read where a table has them.
        checksums: compare the checksums of the tables with the manifest.
        manifest: the manifest, if it was read already; `revision` is ignored.
        on_error: receives the error of each damaged table, whose other rows are left out. `None`
            raises it.

    Raises:
        CallError: the folder or the revision does not exist.
        DamagedError: the manifest or a sample table is missing or damaged, or a value is out of its
            range.

    """
    folder = os.fspath(folder)
    if manifest is None:
        manifest = read_revision(folder, revision)
    chosen = [each for each in manifest.splits if split in (None, each.name)]
    shards = [(each.name, shard) for each in chosen for shard in each.shards]
    label_type, classes = manifest.label_type, len(manifest.classes)

    def open_table(listed: tuple[str, Shard]) -> SampleTable | TableError:
        shard = listed[1]
        path = os.path.join(folder, shard.table.name)
        try:
            return SampleTable(
                path,
                shard,
                label_type=label_type,
                images=manifest.images,
                classes=classes,
                checksum=checksums,
            )
        except TableError as error:
            return error

    # Several tables are opened at a time in an object store.
    tables = map_files(folder, open_table, shards)
    lengths: dict[str, tuple[int, str]] = {}
    for number, ((name, shard), opened) in enumerate(zip(shards, tables, strict=True)):
        try:
            if isinstance(opened, TableError):
                raise opened
            for first, table in opened.batches(columns, optional):
                _check_lengths(table, label_type, os.fspath(opened.path), lengths)
                yield RowBatch(split=name, shard=shard, number=number, first=first, table=table)
        except TableError as error:
            if on_error is None:
                raise
            on_error(shard, error)


def read_some_rows(
    folder: str, shards: Sequence[Shard], columns: Sequence[str], rows: NDArray[np.int64]
) -> pa.Table:
    """Read columns of some rows. Only the tables that contain them are read.

    Args:
        folder: folder or URL of the dataset.
        shards: shards of the dataset.
        columns: names of the columns.
        rows: numbers of the rows, counted over these shards, ascending.

    Raises:
        TableError: a sample table is missing or damaged.

    """
    import numpy as np
    import pyarrow as pa

    ends = np.cumsum([shard.samples for shard in shards])
    numbers = np.searchsorted(ends, rows, side="right")
    parts = []
    for number in np.unique(numbers).tolist():
        shard = shards[number]
        table = SampleTable(os.path.join(folder, shard.table.name), shard).read(columns)
        first = int(ends[number]) - shard.samples
        parts.append(table.take(pa.array(rows[numbers == number] - first)))
    return pa.concat_tables(parts)


def _check_lengths(
    table: pa.Table, label_type: LabelType, path: str, lengths: dict[str, tuple[int, str]]
) -> None:
    """Check that lists of numbers have as many numbers in all tables; `lengths` keeps the first ones."""
    name = LABELS[label_type].number_column
    if name is None or name not in table.column_names or not len(table):
        return
    length = len(table[name][0])
    expected, other = lengths.setdefault(name, (length, path))
    if length != expected:
        raise TableError(
            f"column {name!r} has {plural(length, 'number')} for each sample, but {expected} in"
            f" {other}",
            file=path,
            hint=DAMAGED_HINT,
        )
