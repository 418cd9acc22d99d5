"""Prepared datasets as sources: to change shards, format, splits or sizes.

Images and checksums are carried over. Datasets of ``dataprep convert`` and of ``dataprep index``
have the same manifest and tables, so both are read here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataprep import storage
from dataprep.containers import location_table
from dataprep.labels.columns import number_labels
from dataprep.labels.kinds import KINDS as LABEL_KINDS
from dataprep.options import (
    HASH_COLUMN,
    HASH_RECIPE,
    STATISTICS_COLUMNS,
    Options,
    SourceOptions,
)
from dataprep.sources.base import Kind, Source, joined_paths, one_array, sample_table, text_array
from dataprep.sources.columns import joined_columns
from dataprep.sources.merge import relabel
from dataprep.sources.scan import stats_of
from dataprep.spool import spooled
from dataprep.storage.temporary import JOURNAL_NAME
from manifests.arrays import ArrayKind, array_in
from manifests.errors import DamagedError, SourceError
from manifests.files import ARRAY, MANIFEST, open_file, read_file
from manifests.schema import TABLE_COLUMNS, Manifest, Shard
from manifests.serialization import file_of
from manifests.store import MANIFEST_NAME, RowBatch, read_dataset, read_manifest

_VERIFY = "run `dataprep verify` on it, then `dataprep repair`, or restore a copy"


def is_prepared(src: str, *_: Any) -> bool:
    """Return whether a folder contains a dataset of this project, complete or not."""
    if storage.is_file(os.path.join(src, JOURNAL_NAME)):
        return True
    path = os.path.join(src, MANIFEST_NAME)
    if not storage.is_file(path):
        return False
    with open_file(path, MANIFEST) as file:
        return b'"schema_version"' in file.read(4096)


def read_prepared(src: str, _: Any, options: SourceOptions, *, arrays: bool = True) -> Source:
    """Read the sample tables of a dataset. No image is read.

    Args:
        src: folder of the dataset.
        options: `classes` applies; by default, the classes stay as they are.
        arrays: whether to read the array columns.

    Raises:
        SourceError: the dataset is incomplete or damaged, or a class is not in `options.classes`.

    """
    if not storage.is_file(os.path.join(src, MANIFEST_NAME)):
        raise SourceError(
            "the dataset is incomplete: its conversion was interrupted",
            file=src,
            hint="run the command that made it again to finish it",
        )
    try:
        manifest = read_manifest(src)
        batches = list(read_dataset(src, manifest=manifest, checksums=True))
    except DamagedError as error:
        raise SourceError(
            error.message, file=error.file, record=error.record, hint=error.hint
        ) from None
    table = _concat(src, batches)
    kind = LABEL_KINDS[manifest.label_type]
    label = np.zeros(len(table), np.int32)
    if kind.is_class:
        label = np.asarray(table[str(kind.class_column)], np.int32)
    split = np.repeat(
        np.arange(len(manifest.splits)), [len(each.shards) for each in manifest.splits]
    )
    # Each row of the tables is in the shard that its table belongs to.
    stamps, samples, names = [], [], []
    for shard in manifest.shards:
        stamps.append(_stamp_of(src, shard))
        samples.append(shard.samples)
        names.append(shard.name)
    number = np.repeat(np.arange(len(samples), dtype=np.int32), samples)
    container = pa.DictionaryArray.from_arrays(number, text_array(names))
    location = location_table(
        container,
        "pixels" if manifest.store == "raw" else "range",
        position=table["offset"],
        length=table["size"],
        crc32c=table["crc32c"],
    )
    # The columns that every sample table has are not extra columns.
    own = [name for name in TABLE_COLUMNS if name in table.column_names]
    extra = without_foreign_hashes(table.drop_columns(own), manifest)
    if arrays:
        extra = _with_arrays(extra, src, manifest)
    rows = sample_table(
        _paths(table, container),
        label=label,
        split=split.astype(np.int8)[number],
        size=table["size"].cast(pa.int64()),
        stamp=np.array(stamps, np.int64).reshape(-1, 2)[number],
        location=location,
        measured=table.select(["width", "height"]),
        extra=extra,
    )
    made = "dataset" if manifest.creator == "convert" else "indexed dataset"
    source = Source(
        root=src,
        layout=f"prepared {made} ({manifest.format}, {manifest.store})",
        table=rows,
        classes=manifest.classes,
        splits=tuple(each.name for each in manifest.splits),
        folders=frozenset({storage.identify(src)}),
        label_type=manifest.label_type,
        pixels=manifest.pixels,
        kind=manifest.kind,
        image_names=manifest.images,
        prepared=True,
    )
    return _with_classes(source, options)


def _stamp_of(src: str, shard: Shard) -> list[int]:
    """Return modification time and inode of a shard of the right length."""
    path = os.path.join(src, shard.name)
    try:
        size, *stamp = stats_of(storage.stat(path))
    except FileNotFoundError:
        raise SourceError("the shard is missing", file=path, hint=_VERIFY) from None
    if size != shard.file.bytes:
        raise SourceError(
            f"the shard has {size:,} bytes, but the manifest says {shard.file.bytes:,}",
            file=path,
            hint=_VERIFY,
        )
    return stamp


def _concat(src: str, batches: Sequence[RowBatch]) -> pa.Table:
    """Return all rows. A column that some tables do not have is null there."""
    tables = {}
    for batch in batches:
        file = os.path.join(src, batch.shard.table.name)
        tables[file] = batch.table.replace_schema_metadata(None)
    hint = "make the dataset again from a source whose column has one type"
    joined = joined_columns(tables, hint)
    return pa.concat_tables(joined, promote_options="default").combine_chunks()


def _with_arrays(extra: pa.Table, src: str, manifest: Manifest) -> pa.Table:
    """Return the extra columns with the array columns, whose files must have their checksums."""
    for at, (name, kind) in enumerate(manifest.arrays.items()):
        parts = _array_files(src, manifest, at, kind)
        extra = extra.append_column(name, spooled(parts, kind.length))
    return extra


def _array_files(src: str, manifest: Manifest, at: int, kind: ArrayKind) -> Iterator[Any]:
    """Yield the content of the files of an array column, the column with the number `at`."""
    for shard in manifest.shards:
        file = shard.arrays[at]
        path = os.path.join(src, file.name)
        content = read_file(path, ARRAY)
        if file_of(file.name, content) != file:
            message = "the array file does not have the checksum in the manifest"
            raise SourceError(message, file=path, hint=_VERIFY)
        yield array_in(content, kind, shard.samples, path)


def _with_classes(source: Source, options: SourceOptions) -> Source:
    """Return a source whose labels number the classes that an option names, if it does.

    Raises:
        SourceError: a label has no class, or a class that samples have is not named.

    """
    _, labels = source.class_pairs()
    used = np.unique(labels)
    if len(used) and used[-1] >= len(source.classes):
        raise SourceError(
            f"a sample has the label {used[-1]}, but the manifest names"
            f" {len(source.classes):,} classes",
            file=source.root,
            hint=_VERIFY,
        )
    if options.classes in (None, source.classes) or not source.labels.names_classes:
        return source
    if source.labels.class_column is None:
        # The option may name values of masks that have no name yet.
        return relabel(source, options.classes)
    # A class that no sample has need not be in the names. If all are numbers, they may be named.
    names = np.array(source.classes, object)
    label, classes = number_labels(
        text_array(names[used]), options.classes, lambda _: (source.root, None)
    )
    names[used] = np.array(classes, object)[label]
    return relabel(replace(source, classes=tuple(names)), classes)


def _paths(table: pa.Table, container: pa.Array) -> pa.Array:
    """Return where the images came from: their sources, if each has one of its own, else ``SHARD/KEY``."""
    source = one_array(table["source"]).cast(pa.large_string())
    if pc.index(source, "").as_py() < 0 and pc.count_distinct(source).as_py() == len(source):
        return source
    return joined_paths(container, table["key"])


# --- perceptual hashes ----------------------------------------------------------------------------


#: What a hash looks like.
_HASH = "^[0-9a-f]{64}$"


def without_foreign_hashes(extra: pa.Table, manifest: Manifest) -> pa.Table:
    """Return the extra columns of a dataset without a column of hashes that this release cannot use.

    Args:
        extra: the extra columns.
        manifest: the manifest, which states the recipe of the hashes.

    """
    if HASH_COLUMN not in extra.column_names:
        return extra
    text = extra[HASH_COLUMN]
    if (
        manifest.options.get("hash") == HASH_RECIPE
        and pa.types.is_string(text.type)
        and pc.all(pc.match_substring_regex(text, _HASH)).as_py() is not False
    ):
        return extra
    return extra.drop_columns([HASH_COLUMN])


def without_added(source: Source, options: Options) -> Source:
    """Return a source without the columns of a prepared dataset that would not be true of its copy.

    A conversion without `Options.hash` does not record the recipe of the hashes. Statistics are of
    images that stay as they are.
    """
    columns: list[str] = []
    if source.prepared and not options.hash:
        columns.append(HASH_COLUMN)
    if source.prepared and (options.changes_images or options.statistics):
        columns += STATISTICS_COLUMNS
    unused = [name for name in source.extra.column_names if name in columns]
    if unused:
        source = source.with_columns(extra=source.extra.drop_columns(unused))
    return source


KINDS = (
    Kind(
        "a prepared dataset",
        is_prepared,
        read_prepared,
        in_archives=False,
        example="ILSVRC2012-tfrecord/manifest.json",
    ),
)
