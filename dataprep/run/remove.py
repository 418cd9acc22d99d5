"""Remove samples of a dataset as its next revision: indexes and tables are new, shards keep their bytes.

DALI reads only the samples that an index lists, so a sample that has no line in the new index is
never read.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataprep import storage
from dataprep.arrays import BoolArray
from dataprep.ledger.fence import owned, replace_files
from dataprep.ledger.removed import DIGEST_COLUMNS, read_removed, removed_bytes
from dataprep.ledger.state import Folder, Journal, State, names_of_dataset, remove_journal
from dataprep.options import RemoveOptions, SourceOptions
from dataprep.run.commit import (
    begin_in_place,
    end_committed,
    end_conversion,
    publish_revision,
    remove_unlisted,
)
from dataprep.run.inputs import read_base
from dataprep.run.scrub import (
    ScrubbedShard,
    notes_about,
    remove_caches,
    shards_with_removed,
    write_scrubbed,
)
from manifests.arrays import array_in
from manifests.dali_index import format_index
from manifests.errors import CallError, DamagedError, SourceError
from manifests.files import SOURCE_LIST, kind_of, read_file, read_lines, reading
from manifests.json_members import shorten
from manifests.labels import place_columns
from manifests.parquet import parquet_bytes
from manifests.process.text import plural, printable
from manifests.records import keyword_record
from manifests.schema import Conversion, File, Manifest, Revision, Shard, Split
from manifests.serialization import (
    file_of,
    metadata_to_json,
    numbered,
    of_revision,
    old_manifest_name,
)
from manifests.store import REMOVED_NAME, read_dataset
from manifests.tables import METADATA_KEY, SHARD_LIST_NAME, SampleTable

#: A damaged file of a shard that a new one would be made from.
_REPAIR = "run `dataprep repair` on the dataset first"


@keyword_record
class Choice:
    """Which samples to remove, and what the dataset keeps about it.

    Attributes:
        rows: whether each sample is removed, bool [samples].
        source: what chose them: the name of a file, or a filter.
        digest: identifies the choice.
        reason: why they are removed.
        keeps_out: whether the list of removed samples gets them, so that an append does not add
            them again.
        scrub: write the shards again without these and all samples that were removed before, and
            forget the older revisions.

    """

    rows: BoolArray
    source: str
    digest: str
    reason: str | None = None
    keeps_out: bool = True
    scrub: bool = False


@keyword_record
class RemoveResult:
    """What a removal did.

    Attributes:
        manifest: manifest of the newest revision; with ``dry_run``, of the revision before.
        removed: number of samples that were removed, by split.
        samples: number of samples before.
        examples: keys of the first of them.
        is_new: whether there is a new revision; `False` if the newest one has removed these samples.
        notices: messages for the user, one line each.

    """

    manifest: Manifest
    removed: dict[str, int]
    samples: int
    examples: tuple[str, ...] = ()
    is_new: bool = True
    notices: tuple[str, ...] = ()


def remove_samples(out: str, options: RemoveOptions) -> RemoveResult:
    """Remove samples of a dataset, as its next revision.

    After an interruption, the same call continues.

    Args:
        out: folder or URL of a dataset that ``dataprep convert`` made.
        options: which samples.

    Raises:
        CallError: `out` is not a complete dataset, or the options choose no sample or all of them.
        SourceError: a key or a path is of no sample.
        StoppedError: a disk or a server fails, or another run is working in the folder.

    """
    read_base(out, option="")  # there may be no folder to lock
    with storage.locked(out) as is_locked:
        base = read_base(out, option="")
        if not options.dry_run:
            base = end_conversion(base)
        digest = _digest_of(options)
        newest = base.manifest.revisions[-1:]
        if newest and newest[0].is_removal and newest[0].source_digest == digest:
            if base.state is State.COMPLETE and not options.dry_run:
                with storage.partials(out, is_alone=is_locked):
                    end_committed(base)
            samples = sum(split.samples for split in base.manifest.splits)
            notices: tuple[str, ...] = ()
            if options.scrub and not options.dry_run:
                notices = notes_about(out, base.manifest)
            return RemoveResult(
                manifest=base.manifest,
                removed=dict(newest[0].removed),
                samples=samples,
                is_new=False,
                notices=notices,
            )
        choice = _choose(base, options, digest)
        result = describe_removal(base.manifest, choice)
        result = replace(result, examples=_examples(base, choice.rows))
        if options.dry_run:
            return result
        with storage.partials(out, is_alone=is_locked):
            manifest = write_removal(base, choice)
        notices = result.notices
        if options.scrub:
            notices = (*notices, *notes_about(out, manifest))
    return replace(result, manifest=manifest, notices=notices)


# --- which samples --------------------------------------------------------------------------------


def _digest_of(options: RemoveOptions) -> str:
    """Return a digest of the options and of the file that one of them names."""
    given = []
    for name in ("keys", "sources", "where"):
        if getattr(options, name) is not None:
            given.append(name)
    if len(given) > 1 or not (given or options.scrub):
        raise CallError(
            "which samples to remove is not clear",
            hint="give one of --keys, --sources and --where",
        )
    digest = hashlib.blake2b(digest_size=16)
    digest.update(json.dumps([given, options.where, options.reason, options.scrub]).encode())
    for path in (options.keys, options.sources):
        if path is not None and not os.path.exists(path):
            raise CallError(f"the list {printable(path)} does not exist", hint="check the path")
        if path is not None:
            for line in read_lines(path, SOURCE_LIST):
                digest.update(line)
    return digest.hexdigest()


def _choose(base: Folder, options: RemoveOptions, digest: str) -> Choice:
    made = partial(Choice, digest=digest, reason=options.reason, scrub=options.scrub)
    if options.where is not None:
        from dataprep.plan.splits import matching_samples
        from dataprep.sources.prepared import read_prepared

        where = options.where.casefold()
        # Most filters name no array, whose files can be larger than the images.
        arrays = any(name.casefold() in where for name in base.manifest.arrays)
        source = read_prepared(base.out, None, SourceOptions(), arrays=arrays)
        rows = matching_samples(source, options.where)
        # A filter can name what is scrubbed.
        return made(rows=rows, source="--where" if options.scrub else options.where)
    for path, column in ((options.keys, "key"), (options.sources, "source")):
        if path is not None:
            rows = _listed_rows(base, path, column)
            return made(rows=rows, source=os.path.basename(path))
    if not shards_with_removed(base):
        raise CallError(
            f"there is nothing to scrub: the shards of {printable(base.out)} have no removed samples",
            hint="add --keys, --sources or --where to remove samples",
        )
    nothing = np.zeros(sum(shard.samples for shard in base.manifest.shards), np.bool_)
    return made(rows=nothing, source="--scrub", keeps_out=False)


def _listed_rows(base: Folder, path: str, column: str) -> BoolArray:
    """Return which samples have a key or a path of a list, bool [samples].

    Raises:
        SourceError: a line is of no sample.

    """
    names = []
    for line in read_lines(path, SOURCE_LIST):
        names.append(line.rstrip(b"\r\n").decode("utf-8-sig", "replace"))
    wanted = pa.array(filter(None, names), pa.large_string())
    if not len(wanted):
        raise SourceError("the list is empty", file=path, hint=f"write a {column} in each line")
    found, chosen = [], [np.zeros(0, np.bool_)]
    for batch in read_dataset(base.out, [column], manifest=base.manifest, checksums=True):
        values = batch.table[column].combine_chunks().cast(pa.large_string())
        is_wanted = pc.is_in(values, wanted)
        chosen.append(np.asarray(is_wanted))
        found.append(values.filter(is_wanted))
    known = pa.chunked_array(found, pa.large_string())
    unknown = wanted.filter(pc.invert(pc.is_in(wanted, known)))
    if not len(unknown):
        return np.concatenate(chosen)
    first = unknown[0].as_py()
    hint = f"compare it with the column {column} of the sample tables, or leave it out"
    if column == "key":
        removed = read_removed(base.out, base.manifest)
        at = pc.index(removed["key"], first).as_py()
        if at >= 0:
            hint = f"revision {removed['revision'][at]} has removed it; leave it out"
            hint += ", and set only --scrub to scrub what was removed before"
    message = f"no sample of {printable(base.out)} has the {column} {shorten(first)}"
    if len(unknown) > 1:
        message += f", nor {plural(len(unknown) - 1, f'other {column}')} of the list"
    raise SourceError(message, file=path, line=names.index(first) + 1, hint=hint)


def describe_removal(manifest: Manifest, choice: Choice) -> RemoveResult:
    """Return how many samples of each split a removal takes out.

    Raises:
        CallError: it takes out none, or all of them.

    """
    total, count = len(choice.rows), int(choice.rows.sum())
    if count == total or not (count or choice.scrub):
        what = "none" if not count else "all"
        raise CallError(
            f"{what} of {plural(total, 'sample')} would be removed",
            hint="check the list or the filter; to remove all, delete the folder",
        )
    removed, notices, first = {}, [], 0
    for split in manifest.splits:
        own = int(choice.rows[first : first + split.samples].sum())
        first += split.samples
        if own:
            removed[split.name] = own
        if own and own == split.samples:
            notices.append(f"split {printable(split.name)} has no sample left")
    return RemoveResult(manifest=manifest, removed=removed, samples=total, notices=tuple(notices))


def _examples(base: Folder, rows: BoolArray) -> tuple[str, ...]:
    """Return the keys of the first samples that are removed."""
    examples: list[str] = []
    first = 0
    for batch in read_dataset(base.out, ["key"], manifest=base.manifest):
        own = rows[first : first + len(batch.table)]
        first += len(batch.table)
        examples += batch.table["key"].filter(pa.array(own)).slice(0, 3).to_pylist()
        if len(examples) >= 3:
            break
    return tuple(examples[:3])


# --- the files of a shard without some samples ----------------------------------------------------


def read_intact(out: str, file: File) -> bytes:
    """Read a file of the dataset.

    Raises:
        DamagedError: it does not have the checksum in the manifest.

    """
    path, kind = os.path.join(out, file.name), kind_of(file.name)
    with reading(f"the {kind.name}", path, kind.error, _REPAIR):
        data = read_file(path, kind)
    if file_of(file.name, data) != file:
        raise kind.error(
            f"the {kind.name} does not have the checksum in the manifest", file=path, hint=_REPAIR
        )
    return data


def restricted_files(
    out: str,
    manifest: Manifest,
    shard: Shard,
    keep: BoolArray,
    revision: int,
    *,
    scrubbed: ScrubbedShard | None = None,
) -> tuple[Shard, dict[str, bytes]]:
    """Return a shard with only some samples, and the content of its new index, arrays and table.

    Args:
        out: folder or URL of the dataset.
        manifest: the manifest of the revision before.
        shard: the shard in it.
        keep: which samples stay, bool [samples].
        revision: the number of the new revision.
        scrubbed: the shard that contains only these samples; `None` if it keeps its bytes.

    Raises:
        DamagedError: the index, an array file or the table is damaged.

    """
    rows, kept = np.flatnonzero(keep), int(keep.sum())
    files, file = {}, shard.file
    # The index: a line for each sample that stays.
    lines = _index_lines(out, manifest, shard)
    if len(lines) != shard.samples:
        raise DamagedError(
            f"the index has {plural(len(lines), 'sample')}, but its shard has {shard.samples}",
            file=os.path.join(out, shard.index.name),
            hint=_REPAIR,
        )
    name = of_revision(shard.index.name, revision)
    lines = [lines[row] for row in rows.tolist()]
    if scrubbed is not None:
        file, lines = scrubbed.file, scrubbed.lines
    files[name] = format_index(manifest.format, lines)
    index = file_of(name, files[name])
    # The values of the array columns.
    arrays = []
    for array, kind in zip(shard.arrays, manifest.arrays.values(), strict=True):
        name = of_revision(array.name, revision)
        values = array_in(read_intact(out, array), kind, shard.samples, array.name)
        files[name] = kind.header(kept) + values[rows].tobytes()
        arrays.append(file_of(name, files[name]))
    table = _table_of(out, manifest, shard)
    content = table.read(table.column_names).filter(pa.array(keep))
    # Combined, so that the bytes do not depend on the row groups before.
    content = content.combine_chunks()
    if scrubbed is not None:
        for image in ("", *manifest.labels.others):
            content = _moved(content, place_columns(image), scrubbed)
    metadata = table.metadata
    if isinstance(metadata, Conversion):
        turned = metadata.turned
        if turned is not None:
            turned = tuple(np.flatnonzero(np.isin(rows, turned)).tolist()) or None
        metadata = replace(
            metadata,
            samples=kept,
            shard=file,
            index=index,
            turned=turned,
            arrays=tuple(arrays) or None,
        )
        text = json.dumps(metadata_to_json(metadata), sort_keys=True)
        content = content.replace_schema_metadata({METADATA_KEY: text})
    name = of_revision(shard.table.name, revision)
    files[name] = parquet_bytes(content)
    restricted = Shard(file, kept, index, file_of(name, files[name]), tuple(arrays))
    return restricted, files


def _moved(table: pa.Table, columns: Sequence[str], scrubbed: ScrubbedShard) -> pa.Table:
    """Return a sample table with the places of an image in the new shard."""
    at, size = (table.schema.get_field_index(name) for name in columns[:2])
    places = np.asarray(table.column(at))
    # A sample without this image has no place for it.
    there = np.asarray(table.column(size)) > 0
    moved = pa.array(np.where(there, places + scrubbed.moved, places), pa.int64())
    return table.set_column(at, table.schema.field(at), moved)


def restrict_again(
    out: str, before: Manifest, old: Shard, new: Shard, revision: int
) -> dict[str, bytes]:
    """Return what a removal wrote for a shard, by name, if its index or its table is intact; else nothing.

    Args:
        out: folder or URL of the dataset.
        before: the manifest of the revision before.
        old: the shard in it.
        new: the shard in the manifest of the removal.
        revision: the number of the removal.

    """
    # A row stays if its line, or the place of its image, is in the new file.
    for places_in in (_index_lines, _offsets):
        with suppress(DamagedError):
            places = np.asarray(places_in(out, before, old))
            keep = np.isin(places, np.asarray(places_in(out, before, new)))
            shard, files = restricted_files(out, before, old, keep, revision)
            if shard == new:
                return files
    return {}


def _index_lines(out: str, manifest: Manifest, shard: Shard) -> list[str]:
    """Return the line of each sample in the index of a shard."""
    lines = read_intact(out, shard.index).decode("utf-8", "surrogateescape").split("\n")[:-1]
    if manifest.format == "webdataset":
        del lines[:1]
    return lines


def _offsets(out: str, manifest: Manifest, shard: Shard) -> pa.ChunkedArray:
    return _table_of(out, manifest, shard).read(["offset"])["offset"]


def _table_of(out: str, manifest: Manifest, shard: Shard) -> SampleTable:
    return SampleTable(
        os.path.join(out, shard.table.name),
        shard,
        label_type=manifest.label_type,
        images=manifest.images,
        classes=len(manifest.classes),
        checksum=True,
    )


# --- the revision ---------------------------------------------------------------------------------


def write_removal(base: Folder, choice: Choice) -> Manifest:
    """Write the files of the next revision, and its manifest; see `_begin` for what a kill leaves."""
    out, manifest = base.out, base.manifest
    number = manifest.revision + 1
    ends = np.cumsum([shard.samples for shard in manifest.shards])
    parts = np.split(choice.rows, ends[:-1])
    touched = []
    scrubbed = shards_with_removed(base) if choice.scrub else set()
    for shard, own in zip(manifest.shards, parts, strict=True):
        if own.any() or shard.name in scrubbed:
            touched.append((shard, ~own))
    plan = hashlib.sha256(f"{choice.digest} {base.digest}".encode()).hexdigest()[:32]
    journal = _begin(base, plan, [shard for shard, _ in touched], scrub=choice.scrub)
    with owned(out, plan):

        def write(task: tuple[Shard, BoolArray]) -> Shard:
            made = None
            if choice.scrub:
                offsets = np.asarray(_offsets(out, manifest, task[0]))[task[1]]
                made = write_scrubbed(out, manifest, task[0], offsets, number)
            shard, files = restricted_files(out, manifest, *task, number, scrubbed=made)
            replace_files(out, files.items())
            return shard

        shards = {}
        for (old, _), new in zip(touched, storage.map_files(out, write, touched), strict=True):
            shards[old.name] = new
        removed = manifest.removed
        if choice.keeps_out:
            removed = _write_list(base, choice, number)
        members: dict[str, Any] = {"samples": describe_removal(manifest, choice).removed}
        members |= {"reason": choice.reason, "scrubbed": choice.scrub}
        revision = Revision(
            parent=base.digest,
            source=choice.source,
            source_digest=choice.digest,
            splits={},
            classes=len(manifest.classes),
            options={"remove": members, "plan": plan},
        )
        splits = []
        for split in manifest.splits:
            listed = []
            for each in split.shards:
                listed.append(shards.get(each.name, each))
            splits.append(Split(split.name, tuple(listed)))
        after = replace(
            manifest,
            splits=tuple(splits),
            revisions=(*manifest.revisions, revision),
            removed=removed,
        )
        if choice.scrub:
            remove_caches(out)
        publish_revision(base, after, [*shards.values()])
        remove_unlisted(out, journal, after)
        remove_journal(out, plan)
    return after


def _write_list(base: Folder, choice: Choice, revision: int) -> File:
    """Write the list of removed samples of all revisions up to the new one."""
    chosen, first = [], 0
    columns = ["key", *DIGEST_COLUMNS]
    for batch in read_dataset(base.out, columns, manifest=base.manifest):
        own = choice.rows[first : first + len(batch.table)]
        first += len(batch.table)
        chosen.append(batch.table.filter(pa.array(own)).replace_schema_metadata(None))
    before = read_removed(base.out, base.manifest)
    name = numbered(REMOVED_NAME, revision)
    data = removed_bytes(before, pa.concat_tables(chosen), revision, choice.reason)
    storage.replace_file(os.path.join(base.out, name), data)
    return file_of(name, data)


def _begin(base: Folder, plan: str, touched: Iterable[Shard], *, scrub: bool) -> Journal:
    """Write the journal of a removal, or continue the same one.

    After a kill, the next run writes every file again, with the same bytes.

    Raises:
        CallError: another command is changing the dataset, or a file has one of the names.

    """
    number = base.manifest.revision + 1
    files = [numbered(SHARD_LIST_NAME, number), numbered(REMOVED_NAME, number)]
    files.append(old_manifest_name(number - 1))
    for shard in touched:
        for file in shard.files:
            files.append(of_revision(file.name, number))
    forgotten: tuple[str, ...] = ()
    if scrub:
        # All files of older revisions; the next manifest lists what stays.
        forgotten = tuple(names_of_dataset(base.manifest))
    journal = Journal(action="remove", plan=plan, files=(*files, *forgotten))
    begin_in_place(base, journal, old=forgotten)
    return journal
