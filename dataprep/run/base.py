"""The dataset that something is appended to: its options, labels and columns must fit the source."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from typing import Any

from dataprep.labels.columns import count_numbers, is_text
from dataprep.ledger.state import INCOMPLETE, Folder, inspect
from dataprep.options import CHANGE_COLUMNS, HASH_COLUMN, Options, options_from_json
from dataprep.sources import Source
from dataprep.sources.columns import column_error, joined_type, value_type
from manifests.errors import CallError
from manifests.json_members import MemberError, parse_json
from manifests.process.text import plural, printable
from manifests.serialization import parts
from manifests.tables import read_table


def read_base(out: str, option: str = "--append: ") -> Folder:
    """Read the dataset to append to.

    Args:
        out: its folder or URL.
        option: how messages begin.

    Raises:
        CallError: there is none, or ``dataprep convert`` did not make it.
        ManifestError: the manifest is damaged.

    """
    folder, name = inspect(out), f"{option}{printable(out)}"
    if folder.state in INCOMPLETE and folder.error is not None:
        hint = "finish it with the command that made it"
        if isinstance(folder.error, CallError):
            hint = "check the path"
        if option:
            hint += ", or leave out --append to make a new dataset"
        raise CallError(f"{name} is not a complete dataset ({folder.error.message})", hint=hint)
    if folder.manifest.creator != "convert":
        hint = "only a dataset of `dataprep convert` has revisions"
        if option:
            hint = "give it as one of several --src, with the new source, and choose another --out"
        raise CallError(
            f"{option}the shards of {printable(out)} were made by another tool", hint=hint
        )
    return folder


def options_of(members: Mapping[str, Any]) -> Options:
    """Return the options of a conversion or of a revision.

    Raises:
        MemberError: they are not options of this release.

    """
    return options_from_json(parse_json(json.dumps(options_members(members)).encode()))


def options_members(members: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a manifest without the fingerprint of the plan."""
    return {name: value for name, value in members.items() if name != "plan"}


def inherited_options(base: Folder, given: Options, names: Collection[str]) -> Options:
    """Return the options of an append: what the user gave, and for the others the options of the newest revision.

    Args:
        base: the dataset.
        given: the options, with defaults where the user gave nothing.
        names: names of the fields of `Options` that the user gave.

    Raises:
        CallError: an option contradicts the dataset.

    """
    try:
        options = options_of(parts(base.manifest)[-1].options)
    except MemberError as error:
        raise CallError(
            f"--append: the options of {printable(base.out)} are not options of this release"
            f" ({error})",
            hint="use the release that made it, or convert it into a new dataset first",
        ) from None
    return check_options(base, given.inherit(options, names))


def check_options(base: Folder, options: Options) -> Options:
    """Return the options, if shards that are written with them fit the shards of the dataset.

    Raises:
        CallError: they do not.

    """
    manifest, out = base.manifest, f"--append: {printable(base.out)}"
    if options.fmt != manifest.format:
        raise CallError(
            f"{out} has the format {manifest.format}, not {options.fmt}", hint="leave out --fmt"
        )
    stored = "encoded images"
    if manifest.pixels:
        stored = f"raw pixels of {manifest.pixels[1]}x{manifest.pixels[0]}"
    if (options.raw.pixels if options.raw else None) != manifest.pixels:
        raise CallError(f"{out} stores {stored}", hint="leave out --store and --raw-size")
    if options.raw and options.downscale:
        raise CallError(
            f"{out} stores {stored}, which are not resized",
            hint="leave out --resize-shorter, --max-side and the options that belong to them",
        )
    return options


def check_label_type(base: Folder, source: Source) -> None:
    """Check that the dataset has labels like a source: of one type, and with as many numbers.

    Raises:
        CallError: it has others.

    """
    label_type, out = base.manifest.label_type, f"--append: {printable(base.out)}"
    if source.label_type != label_type:
        raise CallError(
            f"{out} has the label type {label_type}, but the source has {source.label_type}",
            hint=f"set --label-type {label_type} if the source has such labels",
        )
    shard = next((shard for shard in base.manifest.shards if shard.samples), None)
    column = source.labels.number_column
    if column is None or shard is None:
        return
    path = os.path.join(base.out, shard.table.name)
    table = read_table(path, columns=[column], label_type=label_type)
    stored, own = count_numbers(table[column]), count_numbers(source.extra[column])
    if own != stored:
        raise CallError(
            f"{out} has {plural(stored, 'number')} for each image, but the source has {own}",
            hint="convert it into a dataset of its own, or set --label-column",
        )


# --- columns --------------------------------------------------------------------------------------


def check_columns(base: Folder, source: Source, options: Options) -> None:
    """Check the columns of the new sample tables against the tables of each revision.

    Args:
        base: the dataset.
        source: the samples to append.
        options: the options of the append.

    Raises:
        SourceError: no type has the values of a column in all tables.
        CallError: the options add a column, and the dataset has one of this name with other
            content.

    """
    _check_types(base, source)
    for part in parts(base.manifest):
        if not part.shards:
            continue
        path = os.path.join(base.out, part.shards[0].table.name)
        schema = read_table(path, label_type=base.manifest.label_type).schema
        added: set[str] = set()
        if part.options.get("downscale") or part.options.get("raw"):
            added.update(CHANGE_COLUMNS)
        if part.options.get("hash"):
            added.add(HASH_COLUMN)
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


def _check_types(base: Folder, source: Source) -> None:
    """Check that each column has a type with all values of the dataset and of the source."""
    label_type, labels = base.manifest.label_type, source.labels.columns
    # The columns of the dataset with another type than in the source, by the tables with them.
    others: dict[str, dict[str, Any]] = {}
    for part in parts(base.manifest):
        paths = [os.path.join(base.out, shard.table.name) for shard in part.shards]
        # The tables of one revision have the same types.
        schema = read_table(paths[0], label_type=label_type).schema if paths else ()
        names = []
        for stored in schema:
            # The label type decides on the types of its columns.
            if stored.name in source.extra.column_names and stored.name not in labels:
                own = value_type(source.extra.schema.field(stored.name).type)
                if own != stored.type and not (is_text(own) and is_text(stored.type)):
                    names.append(stored.name)
        for path in paths if names else ():
            table = read_table(path, names, label_type)
            for name in names:
                others.setdefault(name, {})[path] = table[name]
    for name, columns in others.items():
        columns[source.root] = source.extra[name]
        if joined_type([*columns.values()]) is None:
            hint = "write the column with the type that the dataset has, or rename it in the source"
            raise column_error(name, columns, hint)
