"""Join columns of a table to a dataset as its next revision: tables are new, shards keep their bytes.

Rows find their partners by a hash of each key, sorted, and keys with equal hashes are compared. So
the keys of both sides are in memory, and one sample table at a time.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataprep import storage
from dataprep.arrays import Int64Array, UInt64Array
from dataprep.labels.columns import (
    Labels,
    Locate,
    are_indices,
    blank_rows,
    is_text,
    row_error,
    whole_numbers,
)
from dataprep.labels.tables import labels_of
from dataprep.ledger.fence import owned
from dataprep.ledger.state import Folder, Journal, State, remove_journal
from dataprep.options import (
    CHANGE_COLUMNS,
    GEO_COLUMNS,
    HASH_COLUMN,
    RESCALE_COLUMNS,
    STATISTICS_COLUMNS,
    JoinOptions,
    SourceOptions,
)
from dataprep.run.commit import (
    begin_in_place,
    end_committed,
    end_conversion,
    publish_revision,
)
from dataprep.run.inputs import read_base
from dataprep.sources.arrays import array_column
from dataprep.sources.base import RESERVED_COLUMNS, one_array
from dataprep.sources.columns import extra_columns, without_index
from dataprep.sources.tables import load_table, rows_of
from dataprep.spool import is_numeric_list, parts_of
from dataprep.summary.diff import hash_texts
from manifests.arrays import ArrayKind, array_file_name, arrays_of
from manifests.errors import CallError, SourceError
from manifests.files import SOURCE_TABLE, open_file
from manifests.json_members import shorten
from manifests.parquet import is_list, parquet_bytes, shorten_type
from manifests.process.text import agree, plural, printable, suggest
from manifests.records import record
from manifests.remote.url import is_url
from manifests.schema import TABLE_COLUMNS, Manifest, Revision, Shard, Split
from manifests.serialization import (
    file_of,
    joined_table,
    numbered,
    of_revision,
    old_manifest_name,
    parts,
)
from manifests.store import read_dataset
from manifests.tables import SHARD_LIST_NAME, SampleTable

#: Columns that say what the stored images are, and are true of no other values.
_MEASURED = (
    *CHANGE_COLUMNS,
    *RESCALE_COLUMNS,
    HASH_COLUMN,
    *STATISTICS_COLUMNS,
    *GEO_COLUMNS,
)

#: Keys that are hashed in one step.
_STEP = 1 << 16

#: Columns of labels that can be corrected: the others are in the pixels, or belong together.
_LABELS = ("label", "labels", "values", "caption", "captions")


@record
class JoinTable:
    """What a table joins.

    Attributes:
        file: the table.
        locate: returns the file and line of a row, for errors.
        keys: the key of each row: text, or CRC-32C.
        hashes: the hash of each key, ascending; see `_hashes`.
        order: the row of each of these hashes.
        columns: the columns by the names that the sample tables give them.
        arrays: the array columns: lists of a fixed length, in all rows.
        classes: the classes of the dataset, and new ones at the end.
        notices: messages for the user.

    """

    file: str
    locate: Locate
    keys: pa.ChunkedArray
    hashes: UInt64Array
    order: Int64Array
    columns: Mapping[str, pa.Array]
    arrays: Mapping[str, pa.Array]
    classes: tuple[str, ...]
    notices: tuple[str, ...] = ()


@record
class JoinResult:
    """What a join did.

    Attributes:
        manifest: manifest of the newest revision; with ``dry_run``, of the revision before.
        columns: names of the joined columns, in the sample tables.
        samples: number of samples of the dataset.
        without_row: number of samples that have no row in the table.
        rows: number of rows of the table.
        without_sample: number of rows that belong to no sample.
        is_new: whether there is a new revision; `False` if the newest one has joined this table.
        notices: messages for the user, one line each.

    """

    manifest: Manifest
    columns: tuple[str, ...]
    samples: int
    without_row: int
    rows: int
    without_sample: int
    is_new: bool
    notices: tuple[str, ...] = ()


def join_dataset(out: str, file: str, options: JoinOptions) -> JoinResult:
    """Add columns of a table to a dataset, as its next revision.

    After an interruption, the same call continues.

    Args:
        out: folder or URL of a dataset that ``dataprep convert`` made.
        file: the table: CSV, TSV, JSON Lines or Parquet.
        options: which columns, and by which key.

    Raises:
        CallError: `out` is not a complete dataset, the table does not exist, or the options do not
            fit it.
        SourceError: a key occurs twice, a value does not fit, or a sample has no row.
        StoppedError: a disk or a server fails, or another run is working in the folder.

    """
    read_base(out, option="")  # there may be no folder to lock
    if not (is_url(file) or os.path.exists(file)):
        raise CallError(f"the table {printable(file)} does not exist", hint="check the path")
    with storage.locked(out) as is_locked:
        base = read_base(out, option="")
        if not options.dry_run:
            base = end_conversion(base)
        table = _read_table(file, options, base.manifest)
        rows = _find_rows(base, table, options.on)
        result = _describe(base, table, rows)
        digest = _digest_of(file, options)
        newest = base.manifest.revisions[-1:]
        if newest and newest[0].joined and newest[0].source_digest == digest:
            if base.state is State.COMPLETE and not options.dry_run:
                with storage.partials(out, is_alone=is_locked):
                    end_committed(base)
            return replace(result, is_new=False)
        _check_missing(table, result, options)
        _check_arrays(base, table)
        table = _with_stored_types(base, table)
        if options.dry_run:
            return result
        with storage.partials(out, is_alone=is_locked):
            manifest = _write(base, table, rows, options, digest)
    return replace(result, manifest=manifest)


# --- the table ------------------------------------------------------------------------------------


def _read_table(file: str, options: JoinOptions, manifest: Manifest) -> JoinTable:
    """Read the key and the columns to join."""
    table, lines = load_table(file, spools=True)
    table, _ = without_index(table)
    locate = rows_of(file, lines)
    names = _column_names(table.column_names, file, options)
    keys = _keys(table[options.on], file, options.on, locate)
    hashes, order = _sorted_hashes(keys, options.on, locate)
    notices: list[str] = []
    columns: dict[str, pa.Array] = {}
    classes = manifest.classes
    labels = manifest.labels.columns
    arrays = _arrays(table, {*names}.difference(labels), file, locate)
    plain = []
    for name in sorted({*names}.difference(arrays), key=names.index):
        if name in labels and name not in _LABELS:
            raise CallError(
                f"column {name!r} is a part of the labels of type {manifest.label_type}, which a join"
                " does not change",
                hint="convert the source again, or choose other columns with --columns",
            )
        if name in labels:
            own, classes = _label_columns(table, name, manifest, locate)
            columns |= own
        elif is_list(table[name].type):
            columns[name] = _list_column(table[name], name, file)
        else:
            plain.append(name)
    if len(classes) > len(manifest.classes):
        added = classes[len(manifest.classes) :]
        shown = ", ".join(map(printable, added[:10])) + ", ..." * (len(added) > 10)
        notices.append(f"{plural(len(added), 'new class')}: {shown}")
    unused = {*table.column_names}.difference(plain)
    kinds = Labels(manifest.label_type, np.zeros(0, np.int32))
    extra = extra_columns(table, unused, file, kinds, locate)
    for name, column in zip(extra.column_names, extra.columns, strict=True):
        columns[name] = one_array(column)
        if is_text(column.type):
            columns[name] = columns[name].cast(pa.string())
    fixed = {*RESERVED_COLUMNS, *_MEASURED, *manifest.labels.image_columns}
    for name in (*columns, *arrays):
        if name in fixed.difference(labels):
            raise CallError(
                f"column {name!r} of a dataset has a fixed meaning, so it cannot be joined",
                hint="rename it, or choose other columns with --columns",
            )
    return JoinTable(file, locate, keys, hashes, order, columns, arrays, classes, tuple(notices))


def _column_names(given: Sequence[str], file: str, options: JoinOptions) -> list[str]:
    """Return the names of the columns to join: by default, all but the key and what every table has."""
    if options.on not in given:
        raise CallError(
            f"--on {options.on}: {file} has no such column", hint=suggest(options.on, given)
        )
    if options.columns is None:
        own = [name for name in TABLE_COLUMNS if name != "label"]
        names = [name for name in given if name not in own]
    else:
        names = [*dict.fromkeys(map(str.strip, options.columns.split(",")))]
    for name in names:
        if name not in given or name == options.on:
            raise CallError(
                f"--columns: {file} has no column {name!r} beside the key",
                hint=suggest(name, given),
            )
    if not names:
        raise CallError(
            f"{file} has no column to join beside {options.on!r}",
            hint="name columns of it with --columns",
        )
    return names


def _keys(column: pa.ChunkedArray, file: str, on: str, locate: Locate) -> pa.ChunkedArray:
    """Return the keys of the table: text, or uint32 for CRC-32C."""
    blank = np.flatnonzero(blank_rows(column))
    if len(blank):
        raise row_error(
            locate, int(blank[0]), f"column {on!r} has no key", "fill it in, or remove the row"
        )
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    needed: pa.DataType = pa.uint32() if on == "crc32c" else pa.large_string()
    if on != "crc32c" and not is_text(column.type):
        raise SourceError(
            f"column {on!r} has the type {shorten_type(column.type)}, but keys are text",
            file=file,
            hint="write it as text, with the zeros in front",
        )
    try:
        return column.cast(needed)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SourceError(
            f"column {on!r} is not a CRC-32C ({str(error).splitlines()[0][:200]})",
            file=file,
            hint="write it as the sample tables have it: a number from 0 to 4294967295",
        ) from None


def _label_columns(
    table: pa.Table, name: str, manifest: Manifest, locate: Locate
) -> tuple[dict[str, pa.Array], tuple[str, ...]]:
    """Return corrected labels as the sample tables have them, and the classes: new names come at the end."""
    classes, values = manifest.classes, one_array(table[name])
    has_lists = is_list(values.type)
    if has_lists:
        values = pc.list_flatten(values)
    # Text of several names needs the separator that the conversion had.
    if manifest.labels.names_classes and (manifest.labels.is_class or has_lists):
        text = whole_numbers(values.cast(pa.large_string()).drop_null(), classes)
        if not are_indices(text, classes):
            classes = (*classes, *sorted({*pc.unique(text).to_pylist()}.difference(classes)))
    options = SourceOptions(label_type=manifest.label_type, classes=classes or None)
    try:
        labels = labels_of(table, [name], options, locate)
    except SourceError as error:
        # The hints are for a conversion, whose options a join does not have.
        if "--" in error.hint:
            error.hint = f"write labels of the type {manifest.label_type}, as the dataset has them"
            if classes:
                error.hint += f": names of classes, or numbers from 0 to {len(classes) - 1:,}"
        raise
    columns = dict(labels.columns)
    if manifest.labels.is_class:
        columns["label"] = pa.array(labels.label, pa.int64())
    return columns, classes


def _is_array(column: pa.ChunkedArray) -> bool:
    """Return whether a column is an array: lists of a fixed length, or of fractions of one length."""
    if not is_numeric_list(column.type, fixed=False):
        return False
    if pa.types.is_fixed_size_list(column.type):
        return True
    lengths = pc.count_distinct(pc.list_value_length(column)).as_py()
    return bool(lengths == 1 and pa.types.is_floating(column.type.value_type))


def _arrays(table: pa.Table, names: set[str], file: str, locate: Locate) -> dict[str, pa.Array]:
    """Return the columns that are arrays, by name."""
    arrays = {}
    rounds = not file.lower().endswith(".parquet")  # other files state no type of fractions
    for name in sorted(names):
        if _is_array(table[name]):
            arrays[name] = array_column(one_array(table[name]), name, locate, rounds=rounds)
    return arrays


def _list_column(column: pa.ChunkedArray, name: str, file: str) -> pa.Array:
    """Return a column of lists with the type that Parquet gives it."""
    item = column.type.value_type
    if pa.types.is_nested(item):
        raise SourceError(
            f"column {shorten(name)} has lists of lists, such as boxes, which a join does not add",
            file=file,
            hint="boxes are labels: convert the images again with them, or choose other columns with"
            " --columns",
        )
    if is_text(item):
        item = pa.string()
    return one_array(column).cast(pa.list_(pa.field("element", item)))


# --- partners -------------------------------------------------------------------------------------


def _hashes(keys: pa.ChunkedArray) -> UInt64Array:
    """Return a number for each key that is equal for equal keys, and almost always differs for others."""
    if not is_text(keys.type):
        return np.asarray(keys.fill_null(0)).astype(np.uint64)
    parts = [np.zeros(0, np.uint64)]
    for chunk in keys.cast(pa.large_string()).chunks:
        for start in range(0, len(chunk), _STEP):
            parts.append(hash_texts(pa.chunked_array([chunk.slice(start, _STEP)])))
    return np.concatenate(parts)


def _sorted_hashes(
    keys: pa.ChunkedArray, on: str, locate: Locate
) -> tuple[UInt64Array, Int64Array]:
    """Return the hashes of all keys, ascending, and their rows.

    Raises:
        SourceError: a key is in two rows.

    """
    hashes = _hashes(keys)
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    same = np.flatnonzero(ordered[1:] == ordered[:-1])
    if not len(same):
        return ordered, order
    first, second = order[same], order[same + 1]
    at = int(np.lexsort((first, second))[0])
    row, before = int(second[at]), int(first[at])
    key, file_line = keys[row].as_py(), locate(before)
    if key != keys[before].as_py():
        raise row_error(
            locate,
            row,
            f"the key {shorten(str(key))} cannot be told apart from {shorten(str(keys[before]))}",
            "join these rows with a table of their own",
        )
    raise row_error(
        locate,
        row,
        f"the key {shorten(str(key))} of column {on!r} is also in line {file_line[1]}"
        f" ({plural(len(same), 'row')} {agree(len(same), 'repeats', 'repeat')} a key)",
        "leave one row for each key",
    )


def _find_rows(base: Folder, table: JoinTable, on: str) -> Int64Array:
    """Return the row of the table for each sample of the dataset, or -1, int64 [samples]."""
    ordered, order = table.hashes, table.order
    # To take rows of several chunks copies all of them, for each shard.
    given = one_array(table.keys)
    found = [np.zeros(0, np.int64)]
    for batch in read_dataset(base.out, [on], manifest=base.manifest, checksums=True):
        keys = batch.table[on]
        if is_text(keys.type):
            keys = keys.cast(pa.large_string())
        if not len(ordered):
            found.append(np.full(len(keys), -1))
            continue
        wanted = _hashes(keys)
        places = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
        rows = np.where(ordered[places] == wanted, order[places], -1)
        # Equal hashes are candidates only.
        own = given.take(pa.array(np.maximum(rows, 0)))
        equal = pc.fill_null(pc.equal(own, one_array(keys)), False)
        found.append(np.where(np.asarray(equal), rows, -1))
    return np.concatenate(found)


def _describe(base: Folder, table: JoinTable, rows: Int64Array) -> JoinResult:
    used = np.zeros(len(table.keys) + 1, np.bool_)
    used[rows] = True  # -1 is the last one
    notices = table.notices
    if "split" in table.columns:
        notices += (
            "a join moves no sample to another split: split is a column like others; to change the"
            " splits, convert the source again",
        )
    return JoinResult(
        manifest=base.manifest,
        columns=(*table.columns, *table.arrays),
        samples=len(rows),
        without_row=int((rows < 0).sum()),
        rows=len(table.keys),
        without_sample=int((~used[:-1]).sum()),
        is_new=True,
        notices=notices,
    )


def _check_missing(table: JoinTable, result: JoinResult, options: JoinOptions) -> None:
    """Check that each sample has a row, or that the options say what it gets."""
    if not result.without_row:
        return
    if table.arrays:
        name = next(iter(table.arrays))
        raise SourceError(
            f"{result.without_row:,} of {plural(result.samples, 'sample')} have no row, but every"
            f" sample needs a value of the array {shorten(name)}",
            file=table.file,
            hint="write a row for each sample, or choose other columns with --columns",
        )
    have = agree(result.without_row, "has", "have")
    what = f"{result.without_row:,} of {plural(result.samples, 'sample')} {have} no row"
    if options.missing is None or result.without_row == result.samples:
        hint = (
            "set --missing null for null in their new columns, or --missing keep if they keep the"
            " values that they have"
        )
        if result.without_row == result.samples:
            hint = "compare the keys with a sample table of the dataset, or choose another --on"
        raise SourceError(what, file=table.file, hint=hint)
    labels = [name for name in table.columns if name in result.manifest.labels.columns]
    if options.missing == "null" and labels:
        raise SourceError(
            f"{what}, and column {labels[0]!r} has the labels, which cannot be null",
            file=table.file,
            hint="set --missing keep, so that these samples keep their labels",
        )


def _check_arrays(base: Folder, table: JoinTable) -> None:
    """Check that no array has the name of another one, or of a column of the sample tables."""
    manifest, taken = base.manifest, {*base.manifest.arrays}
    for shard in manifest.shards[:1]:
        path = os.path.join(base.out, shard.table.name)
        stored = SampleTable(path, label_type=manifest.label_type, images=manifest.images)
        if table.arrays:
            taken.update(stored.column_names)
    for name in (*table.arrays, *table.columns):
        if name in taken and (name in table.arrays or name in manifest.arrays):
            raise CallError(
                f"the dataset has a column or an array {name!r}, which a join of arrays does not"
                " replace",
                hint="rename the column, or `dataprep revert` the join that added it",
            )


def _with_stored_types(base: Folder, table: JoinTable) -> JoinTable:
    """Return a table whose columns have the types that the dataset has, where it has them."""
    columns, manifest = dict(table.columns), base.manifest
    # The tables of one revision have the same types.
    for part in parts(manifest):
        if not part.shards:
            continue
        path = os.path.join(base.out, part.shards[0].table.name)
        stored = SampleTable(path, label_type=manifest.label_type, images=manifest.images)
        known = stored.read([name for name in columns if name in stored.column_names])
        for name, own in zip(known.column_names, known.columns, strict=True):
            if pa.types.is_null(own.type):
                continue
            try:
                columns[name] = columns[name].cast(own.type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                raise SourceError(
                    f"column {shorten(name)} has the type {shorten_type(columns[name].type)}, but"
                    f" {shorten_type(own.type)} in {path}",
                    file=table.file,
                    hint="write it with this type, or rename it",
                ) from None
            if name == manifest.labels.number_column and len(columns[name]):
                given, expected = len(columns[name][0]), len(own[0])
                if given != expected:
                    raise SourceError(
                        f"column {name!r} has {plural(given, 'number')} for each sample, but"
                        f" {expected} in {path}",
                        file=table.file,
                        hint="write as many numbers",
                    )
    return replace(table, columns=columns)


# --- the revision ---------------------------------------------------------------------------------


def _digest_of(file: str, options: JoinOptions) -> str:
    """Return a digest of the table and of how it is joined."""
    digest = hashlib.blake2b(digest_size=16)
    chosen = {"on": options.on, "columns": options.columns, "missing": options.missing}
    digest.update(json.dumps(chosen).encode())
    with open_file(file, SOURCE_TABLE) as opened:
        while data := opened.read(1 << 22):
            digest.update(data)
    return digest.hexdigest()


def _write(
    base: Folder, table: JoinTable, rows: Int64Array, options: JoinOptions, digest: str
) -> Manifest:
    """Write the tables of the next revision, and its manifest; see `_begin` for what a kill leaves."""
    out, manifest = base.out, base.manifest
    plan = hashlib.sha256(f"{digest} {base.digest}".encode()).hexdigest()[:32]
    _begin(base, plan, table)
    with owned(out, plan):
        shards = _write_tables(base, table, rows, keeps=options.missing == "keep")
        names = [*table.columns, *table.arrays]
        members = {"on": options.on, "columns": names, "missing": options.missing}
        revision = Revision(
            parent=base.digest,
            source=os.path.basename(table.file),
            source_digest=digest,
            splits={},
            classes=len(table.classes),
            options={"join": members, "plan": plan},
        )
        splits = []
        for split in manifest.splits:
            splits.append(Split(split.name, tuple(shards[each.name] for each in split.shards)))
        components = manifest.components
        if "label" in table.columns and manifest.labels.is_class:
            # Records have the labels from before: only the tables have the new ones.
            components = replace(components, label=None, label_offset=0)
        joined = replace(
            manifest,
            components=components,
            arrays=_all_arrays(manifest, table),
            classes=table.classes,
            splits=tuple(splits),
            revisions=(*manifest.revisions, revision),
        )
        publish_revision(base, joined, joined.shards)
        remove_journal(out, plan)
    return joined


def _all_arrays(manifest: Manifest, table: JoinTable) -> dict[str, ArrayKind]:
    """Return the array columns of the dataset and of the table, sorted by name."""
    return dict(sorted({**manifest.arrays, **arrays_of(pa.table({**table.arrays}))}.items()))


def _array_file(shard: Shard, name: str, number: int) -> str:
    """Return the name of the file of an array column that a revision adds to a shard."""
    return of_revision(array_file_name(os.path.splitext(shard.name)[0], name), number)


def _begin(base: Folder, plan: str, table: JoinTable) -> None:
    """Write the journal of a join, or continue the same one.

    After a kill, the next run writes every table again, with the same bytes.

    Raises:
        CallError: another command is changing the dataset, or a file has one of the names.

    """
    number = base.manifest.revision + 1
    files = [joined_table(shard.name, number) for shard in base.manifest.shards]
    for name in table.arrays:
        files += [_array_file(shard, name, number) for shard in base.manifest.shards]
    files += [numbered(SHARD_LIST_NAME, number), old_manifest_name(number - 1)]
    begin_in_place(base, Journal(action="join", plan=plan, files=tuple(files)))


def _write_tables(
    base: Folder, table: JoinTable, rows: Int64Array, *, keeps: bool
) -> dict[str, Shard]:
    """Write a new table and array files for each shard; return the shards with them, by name."""
    manifest, number = base.manifest, base.manifest.revision + 1
    kinds = _all_arrays(manifest, table)

    def write(task: tuple[Shard, Int64Array]) -> Shard:
        shard, own = task
        stored = SampleTable(
            os.path.join(base.out, shard.table.name),
            shard,
            label_type=manifest.label_type,
            images=manifest.images,
            classes=len(manifest.classes),
            checksum=True,
        )
        before = stored.read(stored.column_names)
        data = parquet_bytes(_joined(before, table, own, keeps=keeps))
        name = joined_table(shard.name, number)
        storage.replace_file(os.path.join(base.out, name), data)
        arrays = dict(zip(manifest.arrays, shard.arrays, strict=True))
        for array, column in table.arrays.items():
            content = kinds[array].header(len(own)) + b"".join(map(bytes, parts_of(column, own)))
            path = _array_file(shard, array, number)
            storage.replace_file(os.path.join(base.out, path), content)
            arrays[array] = file_of(path, content)
        files = tuple(map(arrays.__getitem__, kinds))
        return replace(shard, table=file_of(name, data), arrays=files)

    ends = np.cumsum([shard.samples for shard in manifest.shards])
    tasks = zip(manifest.shards, np.split(rows, ends[:-1]), strict=True)
    return {shard.name: shard for shard in storage.map_files(base.out, write, tasks)}


def _joined(before: pa.Table, table: JoinTable, rows: Int64Array, *, keeps: bool) -> pa.Table:
    """Return a sample table with the joined columns: in their places if it has them, else at the end."""
    missing = rows < 0
    places = pa.array(rows, mask=missing)
    joined = before
    for name, column in table.columns.items():
        values = column.take(places)
        at = before.schema.get_field_index(name)
        if at < 0:
            joined = joined.append_column(pa.field(name, values.type), values)
            continue
        if keeps and missing.any() and before.schema.field(name).type == values.type:
            old = before[name].combine_chunks()
            values = pc.if_else(pa.array(missing), old, values)
        joined = joined.set_column(at, pa.field(name, values.type), values)
    return joined
