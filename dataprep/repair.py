"""Repair a dataset: find damaged and missing files, rebuild them from the shards, or make them again from the source.

A file is replaced only by one with the length and the checksum in the manifest, so a repair can be
killed at any moment and run again. Intact files and the manifest are never changed.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from awscrt.checksums import crc32c

from dataprep import engines, storage
from dataprep.engines import LocalEngine
from dataprep.engines.local import InlinePool
from dataprep.formats import FORMATS, ByteView, Record, ScanOptions, image_header, read_bytes
from dataprep.formats.example_proto import locate_features, read_lists
from dataprep.images.base import ImageInfo, Rejected
from dataprep.images.geotiff import georeference_of
from dataprep.images.validate import turns_on_side
from dataprep.indexing.shard import FoundShards, IndexTask, read_records
from dataprep.labels.base import OtherImage
from dataprep.labels.kinds import KINDS
from dataprep.ledger.fence import check_manifest, replace_files
from dataprep.ledger.finished import read_conversion
from dataprep.ledger.removed import restore_hint
from dataprep.ledger.state import Folder, State
from dataprep.options import IndexOptions
from dataprep.plan.assign import ShardPlan, key_of, make_plan
from dataprep.plan.files import Job, job_of
from dataprep.plan.splits import ORDER_STREAM, permutation
from dataprep.progress import Progress
from dataprep.run.convert import AppendPlan, plan_append
from dataprep.run.inputs import options_of, select_samples
from dataprep.run.remove import restrict_again
from dataprep.run.work import planned_task
from dataprep.shards.source_image import computed_columns
from dataprep.shards.write import ShardTask, computed_types, write_files
from dataprep.sources import Source
from dataprep.verification.shard import differences, manifest_of
from manifests.dali_index import format_index
from manifests.errors import (
    CallError,
    DamagedError,
    DatasetError,
    SourceError,
    SourceVanishedError,
    StoppedError,
    StorageError,
)
from manifests.json_members import MemberError, parse_json
from manifests.labels import LABEL_IMAGE, arrow_type
from manifests.parquet import parquet_bytes
from manifests.process.text import printable
from manifests.records import record
from manifests.schema import TABLE_COLUMNS, Conversion, File, Manifest, RejectedRow, Shard
from manifests.serialization import (
    file_of,
    has_joined_table,
    manifest_digest,
    of_revision,
    old_manifest_name,
    parts,
    revisions_of_shards,
)
from manifests.store import (
    read_as_written,
    read_dataset,
    read_manifest,
    read_manifest_bytes,
    read_older,
    rejected_bytes,
)
from manifests.tables import build_table

_SAME_SOURCE = (
    "set --src, and the options that say how to read it, as for the `dataprep convert` that made{}"
    " the dataset, or restore the file from a copy"
)


_JOINED = "columns of another table were joined to its shard"


class RemakeTask(NamedTuple):
    """A shard to make again from the source.

    Attributes:
        task: the shard as ``dataprep convert`` writes it.
        shard: the shard in the manifest.
        names: the files to replace.

    """

    task: ShardTask
    shard: Shard
    names: set[str]


def remake_all(
    folder: str,
    manifest: Manifest,
    source: Source,
    found: dict[str, DamagedFile],
    check: storage.Check | None,
    *,
    workers: int,
) -> None:
    """Make the files that could not be rebuilt, and record in `found` what became of them.

    Args:
        folder: the dataset.
        manifest: its manifest.
        source: the source that it was made from.
        found: the damaged files, by name.
        check: see `dataprep.storage.guarded`; `None` to change nothing.
        workers: number of processes.

    """
    tasks = []
    suffix = FORMATS[manifest.format].SUFFIX
    # Each revision was planned on its own, with its own options.
    for number, part in enumerate(parts(manifest)):
        damaged = _damaged_shards(part, found)
        if not damaged:
            continue
        planned = _plan(folder, manifest, part, source, number, workers=workers)
        for shard, left in damaged:
            if isinstance(planned, str):
                which = f" revision {number} of" if manifest.revisions else ""
                _fail(found, left, planned, _SAME_SOURCE.format(which))
            elif check is None:
                _repair(found, left)
            else:
                samples, job, plans = planned
                own = plans[shard.name.removesuffix(suffix)]
                task = planned_task(replace(job, check=check), samples, own)
                tasks.append(RemakeTask(task, shard, left))
    if not tasks:
        return
    # Workers compare what they make with the checksums in the manifest.
    with closing(engines.run(remake, tasks, min(workers, len(tasks)))) as results:
        for shard, made, reason in results:
            _repair(found, made)
            _fail(found, _unrepaired(shard, found), reason, _SAME_SOURCE.format(""))


def _damaged_shards(
    manifest: Manifest, found: dict[str, DamagedFile]
) -> list[tuple[Shard, set[str]]]:
    """Return the shards that the source may make again, with their damaged files."""
    damaged = []
    for shard in manifest.shards:
        left = _unrepaired(shard, found)
        if left and of_revision(shard.name, 0) != shard.name:
            reason = "the shard was written again without removed samples"
            _fail(found, left, reason, "restore the file from a copy")
            continue
        # Files of a join, which a scrub has left alone with the shard.
        joined = {name for name in left if of_revision(name, 0) != name}
        _fail(found, joined, _JOINED, "restore the file from a copy")
        if left - joined:
            damaged.append((shard, left - joined))
    return damaged


def _unrepaired(shard: Shard, found: Mapping[str, DamagedFile]) -> set[str]:
    """Return the damaged files of a shard that were not repaired."""
    return {file.name for file in shard.files if file.name in found and not found[file.name].repair}


def _repair(found: dict[str, DamagedFile], names: Iterable[str]) -> None:
    for name in names:
        found[name] = DamagedFile(name, found[name].damage, repair="made again from the source")


def _fail(found: dict[str, DamagedFile], names: Iterable[str], reason: str, hint: str) -> None:
    for name in names:
        found[name] = found[name]._replace(reason=reason, hint=hint)


def _plan(
    folder: str, manifest: Manifest, part: Manifest, source: Source, revision: int, *, workers: int
) -> tuple[Source, Job, dict[str, ShardPlan]] | str:
    """Return what a conversion or an append read, its job and its shards by name, or why they are not known."""
    planned = None
    try:
        # The same choice of samples as in the run that wrote the revision.
        options = options_of(part.options)
        source = select_samples(source, options, workers=workers)
        if revision:
            before, data = read_older(folder, manifest, revision - 1)
            base = Folder(out=folder, state=State.COMPLETE, data=data, newest=before)
            # An append planned only what the revision before did not have.
            with closing(LocalEngine(workers)) as engine:
                append = plan_append(source, base, options, name="", reader=engine, edits="ignore")
            if isinstance(append, AppendPlan):
                planned = append.source, append.job
        else:
            planned = source, job_of(source, make_plan(source, options), folder, options)
    except MemberError as error:
        return f"the options in the manifest are not options of this release ({error})"
    except (CallError, SourceError, SourceVanishedError) as error:
        return f"the source does not fit the options in the manifest ({error.message})"
    except DamagedError as error:
        return (
            "a file of an earlier revision, which has to be repaired first, is damaged"
            f" ({error.message})"
        )
    # The fingerprint of the plan tells whether the source is still the same.
    if planned is None or planned[1].fingerprint != part.plans[0]:
        versions = ", or other library versions made it" if options.changes_images else ""
        what = "the dataset" if not manifest.revisions else f"revision {revision}"
        return (
            f"{what} was not made from {printable(source.root)} ({source.layout}) as it is"
            f" now{versions}"
        )
    return *planned, {each.name: each for each in planned[1].shards}


def remake(task: RemakeTask) -> tuple[Shard, set[str], str]:
    """Make the files of a shard again, and replace damaged files whose new content has the right checksum.

    Returns:
        The shard, the files that were replaced, and why the others were not.

    """
    shard, folder = task.shard, task.task.out
    paths = [os.path.join(folder, file.name) for file in shard.files]
    try:
        # All files are made: the table depends on the shard.
        conversion, table = write_files(task.task, InlinePool(), *paths)
        # Files that are intact are not replaced, not even by equal ones.
        names, pairs = set(), []
        made = (*conversion.files, table)
        for file, path in zip(shard.files, paths, strict=True):
            if file.name in task.names and file in made:
                names.add(file.name)
                pairs.append((storage.partial_path(path), path))
        with storage.guarded(folder, task.task.check):
            storage.publish_all(pairs)
    except SourceVanishedError as error:
        return shard, set(), error.message
    finally:
        storage.discard(paths)
    return shard, names, "images of the source were replaced since"


# --- all files of the dataset -----------------------------------------------------------------------


@record
class RepairResult:
    """What `repair_dataset` found.

    Attributes:
        files: the damaged files, in the order of the manifest.
        shards: number of shards of the dataset.

    """

    files: tuple[DamagedFile, ...]
    shards: int


def repair_dataset(
    folder: str,
    source: Source | None = None,
    *,
    dry_run: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
) -> RepairResult:
    """Find damaged files by their checksums, and replace them.

    Args:
        folder: the dataset.
        source: the source that the dataset was made from; needed for shards, and for tables that a
            shard does not determine.
        dry_run: change nothing. Files that would be made from the source are not made.
        workers: number of processes. Default: the number of CPUs.
        progress: receives the checked shards.

    Raises:
        CallError: the folder does not exist.
        ManifestError: the manifest is missing or damaged.
        StoppedError: a file cannot be read or written, or another run is working in the folder.

    """
    # Before the manifest is parsed: one that replaces it meanwhile is noticed.
    check = partial(check_manifest, folder, [manifest_digest(read_manifest_bytes(folder))])
    newest = read_manifest(folder)
    # The tables of a join are made by nothing but the table that was joined.
    manifest = read_as_written(folder, newest)
    manifest_of.cache_clear()
    shards = manifest.shards
    workers = min(workers or engines.default_workers(), max(1, len(shards)))
    with ExitStack() as stack:
        if not dry_run:
            is_locked = stack.enter_context(storage.locked(folder))
            stack.enter_context(storage.partials(folder, is_alone=is_locked, keeps_proofs=True))
            stack.enter_context(storage.guarded(folder, check))
        if progress:
            progress.start(sum(shard.samples for shard in shards), len(shards))
        found = {}
        # First what the shards themselves determine, then what needs the source.
        revisions = revisions_of_shards(manifest)
        tasks = []
        for shard in shards:
            tasks.append(CheckTask(folder, shard, dry_run, check, revisions[shard.name]))
        with closing(engines.run(check_shard, tasks, workers)) as results:
            for shard, files in results:
                for file in files:
                    found[file.file] = file
                if progress:
                    progress.advance(shard.name, shard.samples)
        if source is not None and manifest.creator == "convert":
            fence = None if dry_run else check
            remake_all(folder, manifest, source, found, fence, workers=workers)
        # In the order of the manifest, not in which workers ended.
        damaged = [found[each.name] for each in manifest.shard_files if each.name in found]
        damaged += _repair_removals(folder, newest, dry_run=dry_run)
        damaged += _damaged_joins(folder, newest)
        damaged += _repair_lists(folder, manifest, source, workers=workers, dry_run=dry_run)
    return RepairResult(tuple(damaged), len(shards))


def _repair_removals(folder: str, newest: Manifest, *, dry_run: bool) -> list[DamagedFile]:
    """Repair the files that removals wrote, from the files of the revision before each."""
    damaged: list[DamagedFile] = []
    lists = []
    for number, before, after in _removals(folder, newest):
        lists.append(after.removed)
        old = {shard.name: shard for shard in before.shards}
        for shard in after.shards:
            if shard.index != old[shard.name].index:
                damaged += _repair_removal(
                    folder, before, (old[shard.name], shard), number, dry_run=dry_run
                )
    # A removal that only scrubs keeps the list of the one before.
    for file in dict.fromkeys((*lists, newest.removed)):
        damage = damage_of(folder, file) if file else ""
        if file and damage:
            reason, hint = "nothing else lists the removed samples", restore_hint(newest, file)
            damaged.append(DamagedFile(file.name, damage, reason=reason, hint=hint))
    return damaged


_REMOVE_AGAIN = (
    "run `dataprep revert` and the same `dataprep remove` again, or restore it from a copy"
)


def _removals(folder: str, newest: Manifest) -> Iterator[tuple[int, Manifest, Manifest]]:
    """Yield the number of each removal, and the manifests of the revision before and of its own."""
    for number in newest.removals:
        if number <= newest.oldest:
            continue
        # `_repair_lists` names a manifest that is damaged.
        with suppress(DamagedError):
            before, after = read_older(folder, newest, number - 1)[0], newest
            if number < newest.revision:
                after = read_older(folder, newest, number)[0]
            yield number, before, after


def _repair_removal(
    folder: str, before: Manifest, shards: tuple[Shard, Shard], number: int, *, dry_run: bool
) -> Iterator[DamagedFile]:
    """Repair what a removal wrote for a shard; yield what was damaged."""
    left = {}
    for file in shards[1].files[1:]:
        if damage := damage_of(folder, file):
            left[file.name] = damage
    rebuilt: dict[str, bytes] = {}
    if left:
        rebuilt = restrict_again(folder, before, *shards, number)
    for name, damage in left.items():
        if name not in rebuilt:
            reason = "the revision before and what is left of this one do not determine it"
            yield DamagedFile(name, damage, reason=reason, hint=_REMOVE_AGAIN)
            continue
        if not dry_run:
            replace_files(folder, [(name, rebuilt[name])])
        yield DamagedFile(name, damage, repair="rebuilt from the revision before")


def _damaged_joins(folder: str, newest: Manifest) -> list[DamagedFile]:
    """Return the damaged tables of the joins of all revisions, which cannot be repaired."""
    damaged = []
    for number in newest.joins:
        # What a scrub left is checked with its shard.
        if number < newest.oldest:
            continue
        manifest = newest
        # `_repair_lists` names a manifest that is damaged.
        with suppress(DamagedError):
            if newest.oldest < number < newest.revision:
                manifest = read_older(folder, newest, number)[0]
        for shard in manifest.shards:
            for file in (shard.table, *shard.arrays):
                if file.name != of_revision(file.name, number):
                    continue
                if damage := damage_of(folder, file):
                    reason = "columns of another table were joined to it"
                    hint = "run `dataprep revert` and the same `dataprep join` again, or restore it from a copy"
                    damaged.append(DamagedFile(file.name, damage, reason=reason, hint=hint))
    return damaged


def _repair_lists(
    folder: str, manifest: Manifest, source: Source | None, *, workers: int, dry_run: bool
) -> list[DamagedFile]:
    """Repair the lists of rejected images of all revisions; return the damaged lists and old manifests."""
    damaged = []
    # A revision may keep the list of the one before.
    lists = {}
    for revision in range(manifest.oldest, manifest.revision):
        try:
            old = read_older(folder, manifest, revision)[0]
            lists[old.rejected] = old
        except DamagedError as error:
            name, hint = old_manifest_name(revision), error.hint
            reason = "the newest manifest does not determine it"
            damaged.append(DamagedFile(name, error.message, reason=reason, hint=hint))
    lists[manifest.rejected] = manifest
    for rejected, each in lists.items():
        if rejected and (damage := damage_of(folder, rejected)):
            damaged.append(
                _repair_rejected(
                    folder, each, rejected, damage, source, workers=workers, dry_run=dry_run
                )
            )
    return damaged


def _repair_rejected(
    folder: str,
    manifest: Manifest,
    file: File,
    damage: str,
    source: Source | None,
    *,
    workers: int,
    dry_run: bool,
) -> DamagedFile:
    """Repair the list of rejected images from the source, and from the sample tables, which list the images of their shards."""
    rows: list[RejectedRow] = []
    for part in parts(manifest):
        if source and manifest.creator == "convert":
            # What the revision left out before any shard was written, if it was made from this source.
            with suppress(MemberError, CallError, SourceError, SourceVanishedError):
                rows += select_samples(source, options_of(part.options), workers=workers).rejected
        for shard in part.shards:
            table = os.path.join(folder, shard.table.name)
            conversion = read_conversion(part.plans[0], table)
            if conversion:
                rows += conversion.rejected
    # An image that several tables or the scan list is in the list once.
    unique = {tuple(sorted(row.items())): row for row in rows}
    data = rejected_bytes(sorted(unique.values(), key=lambda row: row["source"]))
    if file_of(file.name, data) == file:
        if not dry_run:
            replace_files(folder, [(file.name, data)])
        repair = "rebuilt from the sample tables" + " and the source" * bool(source)
        return DamagedFile(file.name, damage, repair)
    # What is left to do depends on how the dataset was made.
    hint = "restore the file from a copy"
    if not manifest.revision:
        hint = f"run the same `dataprep {manifest.creator}` again, or {hint}"
    if not source and manifest.creator != "index":
        hint = f"set --src to the source of the dataset, {hint}"
    return DamagedFile(
        file.name, damage, reason="the sample tables do not list all rejected images", hint=hint
    )


# --- one shard: its damaged files, and its index and table as the shard determines them -----------


#: Bytes of a TFRecord record before and after its payload.
_PREFIX, _SUFFIX = 12, 4

#: Raised for a record that is not as the manifest says.
_NOT_AS_WRITTEN = (
    Rejected,
    ValueError,
    TypeError,
    LookupError,
    OverflowError,
    struct.error,
    pa.ArrowException,
)


def rebuild(folder: str, manifest: Manifest, shard: Shard, revision: int) -> dict[str, bytes]:
    """Return the content of the index and of the table of an intact shard, by file name, as far as it is exact.

    A file is returned only if its content has the length and the checksum in the manifest.

    Args:
        folder: the dataset.
        manifest: its manifest, only with what one revision added; see
            `manifests.serialization.parts`.
        shard: the shard.
        revision: the number of this revision.

    Raises:
        DatasetError: the shard cannot be read, or its records are not what the manifest says.

    """
    rebuilt = {}
    # Both yield the index, then the table, so that an index is kept if the table is not exact.
    if manifest.creator == "index":
        contents = _indexed(folder, manifest, shard)
    else:
        contents = _converted(folder, manifest, shard, revision)
    with suppress(*_NOT_AS_WRITTEN):
        for file, content in zip((shard.index, shard.table), contents, strict=True):
            if file_of(file.name, content) == file:
                rebuilt[file.name] = content
    return rebuilt


def _indexed(folder: str, manifest: Manifest, shard: Shard) -> Iterator[bytes]:
    """Do what ``dataprep index`` does, with the options in the manifest."""
    stored = manifest.options
    options = IndexOptions(
        label_key=stored.get("label_key"),
        label_offset=manifest.components.label_offset,
        classes=manifest.classes,
        validate=stored.get("validate", "none"),
        label_type=manifest.label_type,
    )
    scan = ScanOptions(manifest.components, options.label_key, caption=stored.get("caption"))
    shards = FoundShards(folder, (shard.name,), manifest.format, manifest.kind)
    reader = read_records(IndexTask(shards, scan, options), shard.name)
    yield format_index(manifest.format, reader.index_lines)
    yield parquet_bytes(reader.table())


def _converted(folder: str, manifest: Manifest, shard: Shard, revision: int) -> Iterator[bytes]:
    """Read what ``dataprep convert`` wrote into the records.

    The table also says how many images were rejected and how large the source images were. This is
    not in the shard, so the table is right only if no image was rejected or changed.
    """
    path = os.path.join(folder, shard.name)
    # The first sample table that can be read has the names and types of the columns.
    batch = next(read_dataset(folder, manifest=manifest, on_error=lambda *_: None), None)
    schema = batch and batch.table.schema
    rows, extra, computed, lines, formats, turned = [], [], [], [], set(), []
    options = options_of(manifest.options)
    types = computed_types(options)
    with storage.open_view(path, span=1 << 20) as (view, size):
        records = FORMATS[manifest.format].scan(view, size, path, ScanOptions(manifest.components))
        for record in records:
            image = read_bytes(view, record.offset, record.size)
            info = _info(manifest, view, record)
            # The columns of `TABLE_COLUMNS` in their order.
            place = (record.key, record.label, record.offset, record.size, info.width, info.height)
            rows.append((*place, record.source, crc32c(image)))
            extra.append(_members_of(manifest, view, record, schema))
            lines.append(record.index_line)
            formats.add(info.format)
            if turns_on_side(image, info):
                turned.append(len(rows) - 1)
            computed.append(computed_columns(image, info, options))
            if options.georeference and not manifest.pixels:
                computed[-1] |= georeference_of(image)
    yield format_index(manifest.format, lines)
    columns: dict[str, Any] = dict(zip(TABLE_COLUMNS, zip(*rows, strict=True), strict=True))
    kinds = manifest.labels.stored_columns
    if "label" not in kinds:
        del columns["label"]
    # WebDataset samples are named by their key; TFRecord has none.
    if manifest.format == "tfrecord":
        columns["key"] = _keys(manifest, shard, revision)
    written = (*TABLE_COLUMNS, "class", KINDS[manifest.label_type].class_member, *types)
    for name, column_type in _types(schema, extra, kinds):
        if name not in written:
            columns[name] = pa.array([row.get(name) for row in extra], column_type)
    # Records in TFRecord do not have these.
    for name, kind in types.items():
        columns[name] = pa.array([found.get(name) for found in computed], kind)
    # As a conversion that rejected and changed no image.
    conversion = Conversion(
        plan=manifest.plans[0],
        samples=shard.samples,
        images=shard.samples,
        bytes=sum(columns["size"]),
        formats=tuple(sorted(formats)),
        shard=shard.file,
        index=shard.index,
        rejected=(),
        turned=tuple(turned) or None,
        arrays=shard.arrays or None,
    )
    yield parquet_bytes(build_table(columns, conversion))


def _types(
    schema: pa.Schema | None, rows: Iterable[Mapping[str, Any]], kinds: Mapping[str, Any]
) -> Iterator[tuple[str, pa.DataType | None]]:
    """Yield the name and the type of each column; `None` for the type that its values have."""
    if schema:
        yield from zip(schema.names, schema.types, strict=True)
        return
    for name in dict.fromkeys(chain.from_iterable(rows)):
        if name not in kinds:
            yield name, None
    # The labels come after the columns of the source.
    for name, kind in kinds.items():
        yield name, arrow_type(kind)


def _info(manifest: Manifest, view: ByteView, record: Record) -> ImageInfo:
    if manifest.pixels:
        height, width, _ = manifest.pixels
        return ImageInfo("raw", width, height, manifest.kind)
    return image_header(view, record.offset, record.size, manifest.kind)


def _members_of(
    manifest: Manifest, view: ByteView, record: Record, schema: pa.Schema | None
) -> dict[str, Any]:
    """Return the columns of the source and of the label of a sample."""
    others = manifest.labels.others
    components = {each: name for name in others for each in manifest.components_of(name)}
    places = {}
    if manifest.format == "webdataset":
        members = dict(parse_json(read_bytes(view, *_file_in(record, "json"))).mapping())
        for extension, name in components.items():
            if f" {extension} " in f" {record.index_line} ":
                places[name] = _file_in(record, extension)
    else:
        payload = (record.start + _PREFIX, record.end - _SUFFIX)
        members = _features_of(view, payload, schema, KINDS[manifest.label_type].columns)
        wanted = {component.encode() for component in components}
        for feature, (_, start, end) in locate_features(view, *payload, wanted).items():
            places[components[feature.decode()]] = (start, end - start)
    members |= dict.fromkeys(manifest.labels.image_columns, 0)
    for name, place in places.items():
        data = read_bytes(view, *place)
        info = ImageInfo("png", 0, 0)
        if name != LABEL_IMAGE:
            info = _info(manifest, view, record._replace(offset=place[0], size=place[1]))
        columns = OtherImage(name, data, info).columns
        members |= {f"{name}_offset": place[0], **columns}
    return members


def _file_in(record: Record, extension: str) -> tuple[int, int]:
    """Return the first byte and the size of a file of a WebDataset sample, as the line of the index says."""
    words = record.index_line.split(" ")
    at = words.index(extension)
    return int(words[at + 1]), int(words[at + 2])


#: TFRecord features of columns that have another name in the table.
_FEATURES = {
    "labels": "image/class/label",
    "values": "image/values",
    "caption": "image/caption",
    "captions": "image/caption",
}


def _features_of(
    view: ByteView, payload: tuple[int, int], schema: pa.Schema | None, labels: Iterable[str]
) -> dict[str, Any]:
    """Return the columns of a TFRecord sample by the names in the schema, or else only its labels."""
    columns = {}
    for name in schema.names if schema else labels:
        if name not in TABLE_COLUMNS:
            columns[_FEATURES.get(name, name).encode()] = name
    members: dict[str, Any] = {}
    for feature, values in read_lists(view, *payload, columns).items():
        # Features are lists; columns of one value are not.
        name = columns[feature]
        members[name] = [value.decode() if isinstance(value, bytes) else value for value in values]
        is_list = schema is not None and pa.types.is_list(schema.field(name).type)
        if not is_list and name not in ("labels", "values", "captions"):
            members[name] = members[name][0]
    return members


def _keys(manifest: Manifest, shard: Shard, revision: int) -> Sequence[str]:
    """Return the keys of a shard's samples, which TFRecord does not store: rows of the source in the planned order.

    They are right if the source has the splits one after the other, no image was rejected, and the
    order was not made from the groups of a container.
    """
    # Splits of a source follow each other, so rows count over all of them.
    base = 0
    for number, split in enumerate(manifest.splits):
        first = 0
        for other in split.shards:
            if other.name != shard.name:
                first += other.samples
                continue
            rows = np.arange(split.samples)
            if manifest.options.get("shuffle"):
                rows = permutation(
                    split.samples, int(manifest.options.get("seed", 0)), ORDER_STREAM, number
                )
            return [
                key_of(base + row, revision) for row in rows[first : first + shard.samples].tolist()
            ]
        base += split.samples
    return []


# --- damaged files, and what the shard determines ---------------------------------------------------


_SET_SRC = (
    "set --src to the source of the dataset to make the file again, or restore it from a copy"
)


class DamagedFile(NamedTuple):
    """A damaged or missing file, and what `repair_dataset` did about it.

    Attributes:
        file: path relative to the dataset folder.
        damage: what is wrong with it.
        repair: how it was repaired, or will be without `dry_run`; empty if it cannot be.
        reason: why it cannot be repaired.
        hint: what to do instead.

    """

    file: str
    damage: str
    repair: str = ""
    reason: str = ""
    hint: str = ""


class CheckTask(NamedTuple):
    """A shard to repair from its own bytes.

    Attributes:
        folder: the dataset folder.
        shard: the shard with its index and table, from the manifest.
        dry_run: change nothing.
        check: looks whether the dataset is still the same; see `dataprep.storage.guarded`.
        revision: the revision that added the shard.

    """

    folder: str
    shard: Shard
    dry_run: bool
    check: storage.Check
    revision: int = 0


def check_shard(task: CheckTask) -> tuple[Shard, list[DamagedFile]]:
    """Check the files of one shard, and rebuild index and table if the shard is intact.

    Return what was found.
    """
    manifest, shard, folder = manifest_of(task.folder), task.shard, task.folder
    damages = {file.name: damage_of(folder, file) for file in shard.files}
    rebuilt = {}
    reason = "what the shard contains does not determine its content"
    if damages[shard.name]:
        reason = "the shard itself is damaged"
    # Only an intact shard can tell what its index and table were.
    elif any(damages.values()):
        try:
            rebuilt = rebuild(folder, parts(manifest)[task.revision], shard, task.revision)
        except StoppedError:
            raise
        except DatasetError as error:
            reason = f"the shard cannot be read ({error.message})"
    reasons = {shard.name: "a shard can only be made from its source"}
    if has_joined_table(manifest, shard):
        reasons[shard.table.name] = _JOINED
    # What was rebuilt has the checksum in the manifest.
    files, remade = [], []
    for name, damage in damages.items():
        if damage and name in rebuilt:
            remade.append((name, rebuilt[name]))
            files.append(DamagedFile(name, damage, repair=f"rebuilt from {shard.name}"))
        elif damage:
            hint = _hint_for(manifest, shard)
            files.append(DamagedFile(name, damage, reason=reasons.get(name, reason), hint=hint))
    if not task.dry_run:
        with storage.guarded(folder, task.check):
            replace_files(folder, remade)
    return shard, files


def _hint_for(manifest: Manifest, shard: Shard) -> str:
    if has_joined_table(manifest, shard):
        return "restore the file from a copy"
    if manifest.creator == "convert":
        return _SET_SRC
    return "restore the file from a copy, or run `dataprep index` again"


def damage_of(folder: str, file: File) -> str:
    """Return what is wrong with a file; empty if it is as the manifest says.

    Raises:
        StorageError: it exists, but cannot be read.

    """
    path = os.path.join(folder, file.name)
    try:
        actual = storage.describe(folder, file.name)
    # A file that is there and cannot be read is no damage that a repair may hide.
    except StorageError:
        if storage.file_length(path) >= 0:
            raise
        return "the file is missing"
    except DamagedError as error:
        return error.message
    return differences(actual, file)
