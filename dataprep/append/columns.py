"""The columns of a source must fit those of the dataset, so that the dataset can be read as one table."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa

from dataprep.append.base import Base
from dataprep.options import CHANGE_COLUMNS, HASH_COLUMN, Options
from dataprep.sources import Source
from manifests.errors import CallError, SourceError
from manifests.labels import LABEL_COLUMNS
from manifests.process.text import printable
from manifests.revisions import parts
from manifests.tables import read_table


def check_columns(base: Base, source: Source, options: Options) -> None:
    """Check the columns of the new sample tables against the first table of each revision.

    Args:
        base: the dataset.
        source: the samples to append.
        options: the options of the append.

    Raises:
        SourceError: a column has another type.
        CallError: the options add a column, and the dataset has one of this name with other
            content.

    """
    labels = LABEL_COLUMNS[source.label_type]  # the label type decides on their types
    own = [field for field in source.extra.schema if field.name not in labels]
    for name, schema, added in _schemas(base):
        for field in own:
            if field.name in schema.names and not _fit(schema.field(field.name), field):
                raise SourceError(
                    f"column {printable(field.name)} has the type {field.type}, but "
                    f"{schema.field(field.name).type} in {printable(base.out)} ({name})",
                    file=source.root,
                    hint=(
                        "write the column with the type that the dataset has, or rename it in the"
                        " source"
                    ),
                )
        for column in options.added_columns:
            if column in schema.names and column not in added:
                raise CallError(
                    f"--append: {printable(base.out)} has a column {column!r} that came with a"
                    " source, and the options add a column of this name",
                    hint=(
                        "leave out --hash or the options that resize, or make a new dataset without"
                        " this column"
                    ),
                )


def _schemas(base: Base) -> Iterator[tuple[str, pa.Schema, tuple[str, ...]]]:
    """Yield the name and the schema of the first table of each revision, and the columns that its options added."""
    for part in parts(base.manifest):
        shards = [shard for split in part.splits for shard in split.shards]
        if shards:
            name = shards[0].table.name
            table = read_table(os.path.join(base.out, name), label_type=base.manifest.label_type)
            changes = (
                CHANGE_COLUMNS if part.options.get("downscale") or part.options.get("raw") else ()
            )
            hashes = (HASH_COLUMN,) if part.options.get("hash") else ()
            yield name, table.schema, (*changes, *hashes)


def _fit(stored: pa.Field, new: pa.Field) -> bool:
    """Return whether Arrow has one type for the values of both columns."""
    schemas = [pa.schema([(stored.name, _decoded(field.type))]) for field in (stored, new)]
    try:
        pa.unify_schemas(schemas, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return False
    return True


def _decoded(column_type: pa.DataType) -> pa.DataType:
    return column_type.value_type if pa.types.is_dictionary(column_type) else column_type
