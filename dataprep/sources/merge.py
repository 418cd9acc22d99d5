"""Merge several sources into one: classes by name, splits by name, columns by name."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dataprep.containers import location_table
from dataprep.containers.base import location_schema
from dataprep.labels.columns import count_numbers
from dataprep.options import CHANGE_COLUMNS, HASH_COLUMN
from dataprep.sources.base import NamedSource, Source
from dataprep.sources.class_names import extended_classes, relabel, used_classes
from dataprep.sources.columns import concat
from manifests.errors import CallError, SourceError
from manifests.labels import MASK_SOURCE
from manifests.process.text import plural, printable
from manifests.remote import absolute, is_url
from manifests.schema import split_order


def merge_sources(parts: Sequence[NamedSource]) -> Source:
    """Return one source with the samples of all parts, in order.

    Classes of the same name become one class; they are numbered in the order in which they first
    appear. Paths of local files are relative to the folder that contains all sources, so the column
    ``source`` tells where a sample came from; those of object stores are URLs. A column that some
    parts do not have is null there.

    Raises:
        CallError: a source is given twice, or contains another one.
        SourceError: the sources have other kinds of labels or images, or classes or columns that do
            not fit.

    """
    if len(parts) == 1:
        return parts[0].source
    _check(parts)
    classes = parts[0].source.classes
    for src, source in parts[1:]:
        classes = extended_classes(classes, replace(source, root=src), parts[0].src)
    sources = [relabel(part.source, classes) for part in parts]
    splits = split_order({split for source in sources for split in source.splits})
    local = [os.path.abspath(source.root) for source in sources if not is_url(source.root)]
    root = os.path.commonpath(local) if local else sources[0].root
    prefixes = [_prefix(source.root, root) for source in sources]
    stamps = [source.stamp for source in sources if source.stamp is not None]
    measured = [source.measured for source in sources if source.measured is not None]
    merged = Source(
        root=root,
        layout=f"{len(parts)} sources",
        classes=classes,
        splits=splits,
        path=concat(
            [
                _prefixed(source.path, prefix)
                for source, prefix in zip(sources, prefixes, strict=True)
            ]
        ),
        label=np.concatenate([source.label for source in sources]),
        split=np.concatenate(
            [
                np.array([splits.index(name) for name in source.splits], np.int8)[source.split]
                for source in sources
            ]
        ),
        size=np.concatenate([source.size for source in sources]),
        extra=_merge_columns(
            parts, [_masks(each, prefix) for each, prefix in zip(sources, prefixes, strict=True)]
        ),
        notices=tuple(f"{part.src}: {notice}" for part in parts for notice in part.source.notices),
        rejected=tuple(
            {
                **row,
                "source": (
                    _prefixed(pa.array([row["source"]], pa.large_string()), prefix)[0].as_py()
                ),
            }
            for source, prefix in zip(sources, prefixes, strict=True)
            for row in source.rejected
        ),
        scanned=any(source.scanned for source in sources if not is_url(source.root)),
        stamp=np.concatenate(stamps) if len(stamps) == len(sources) else None,
        folders=frozenset().union(*(source.folders for source in sources)),
        location=_merge_locations(sources, prefixes),
        group=_merge_groups(sources),
        prepared=any(source.prepared for source in sources),
        pixels=sources[0].pixels,
        measured=(
            pa.concat_tables(measured).combine_chunks() if len(measured) == len(sources) else None
        ),
        label_type=sources[0].label_type,
        label_origin=sources[0].label_origin,
    )
    return replace(merged, notices=(*merged.notices, *_notices(parts, merged)))


# --- checks ---------------------------------------------------------------------------------------


def _check(parts: Sequence[NamedSource]) -> None:
    first = parts[0]
    for number, part in enumerate(parts):
        for other in parts[:number]:
            if absolute(part.src) == absolute(other.src):
                raise CallError(
                    f"--src {printable(part.src)} is given twice", hint="give each source once"
                )
            if part.source.folders & other.source.folders:
                raise CallError(
                    f"--src {printable(part.src)} and --src {printable(other.src)} contain the same"
                    " folder",
                    hint="give only the one that contains the other",
                )
        if part.source.pixels != first.source.pixels:
            raise SourceError(
                f"it stores {_stored(part.source)}, but {printable(first.src)}"
                f" {_stored(first.source)}",
                file=part.src,
                hint="convert them from the original images, with the same --store and --raw-size",
            )
        if part.source.label_type != first.source.label_type:
            raise SourceError(
                f"it has the label type {part.source.label_type}, but {printable(first.src)}"
                f" {first.source.label_type}",
                file=part.src,
                hint=(
                    "set --label-type, if both can have the same, or convert them into two datasets"
                ),
            )
        if first.source.label_type == "regression":
            own, others = (count_numbers(each.source.extra["values"]) for each in (part, first))
            if own != others:
                raise SourceError(
                    f"it has {plural(own, 'number')} for each image, but {printable(first.src)} has"
                    f" {others}",
                    file=part.src,
                    hint="convert them into two datasets, or set --label-column",
                )
        if (
            first.source.label_type in ("mask", "depth")
            and part.source.prepared != first.source.prepared
        ):
            message = (
                f"it is a prepared dataset with masks, and {printable(first.src)} is not, or the"
                " other way around"
            )
            raise SourceError(
                message, file=part.src, hint="convert both first, then merge the two datasets"
            )


def _stored(source: Source) -> str:
    return (
        "encoded images"
        if source.pixels is None
        else f"raw pixels of {source.pixels[1]}x{source.pixels[0]}"
    )


def _notices(parts: Sequence[NamedSource], merged: Source) -> Iterator[str]:
    """Report which classes the sources share, and images that more than one of them lists."""
    names = [
        {part.source.classes[label] for label in used_classes(part.source).tolist()}
        for part in parts
    ]
    counts = [len(each) for each in names]
    if any(counts):
        shared = len(set.intersection(*names))
        each = ", ".join(f"{part.src} {count:,}" for part, count in zip(parts, counts, strict=True))
        yield f"{plural(len(merged.classes), 'class')}: {each}; {shared:,} in all sources"
    if twice := len(merged) - pc.count_distinct(merged.path).as_py():
        yield (
            f"{plural(twice, 'image')} of the sources {'is' if twice == 1 else 'are'} listed more"
            " than once"
        )


# --- paths ----------------------------------------------------------------------------------------


def _prefix(root: str, common: str) -> str:
    """Return what to put before a path that is relative to `root`."""
    if is_url(root):
        return f"{root}/"
    relative = os.path.relpath(os.path.abspath(root), common)
    return "" if relative == "." else f"{relative}/"


def _prefixed(paths: pa.Array, prefix: str) -> pa.Array:
    """Return paths with a prefix, except those that are absolute."""
    if not prefix:
        return paths
    text = pa.scalar(prefix, pa.large_string())
    joined = pc.binary_join_element_wise(text, paths, pa.scalar("", pa.large_string()))
    chosen = pc.if_else(pc.match_substring_regex(paths, "^(/|[a-z0-9]+://)"), paths, joined)
    return chosen if isinstance(chosen, pa.Array) else concat(chosen.chunks)


def _masks(source: Source, prefix: str) -> pa.Table:
    """Return the extra columns, with the new paths of masks."""
    if MASK_SOURCE not in source.extra.column_names:
        return source.extra
    place = source.extra.column_names.index(MASK_SOURCE)
    column = source.extra[MASK_SOURCE]
    paths = _prefixed(column.combine_chunks().cast(pa.large_string()), prefix).cast(column.type)
    return source.extra.set_column(place, MASK_SOURCE, paths)


def _merge_locations(sources: Sequence[Source], prefixes: Sequence[str]) -> pa.Table | None:
    if all(source.location is None for source in sources):
        return None
    tables = []
    for source, prefix in zip(sources, prefixes, strict=True):
        table = source.location
        if table is None:
            none = pa.nulls(len(source), pa.large_string())
            tables.append(location_table(none, pa.nulls(len(source), pa.large_string())))
            continue
        container = table["container"].combine_chunks()
        names = _prefixed(container.dictionary.cast(pa.large_string()), prefix)
        field = location_schema().field("container")
        tables.append(
            table.set_column(0, field, pa.DictionaryArray.from_arrays(container.indices, names))
        )
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def _merge_groups(sources: Sequence[Source]) -> NDArray[np.int64] | None:
    """Return groups with different numbers in each source.

    Each image of a source without groups is one.
    """
    if all(source.group is None for source in sources):
        return None
    merged, first = [], 0
    for source in sources:
        group = (
            np.arange(len(source), dtype=np.int64)
            if source.group is None
            else source.group - source.group.min()
        )
        merged.append(group + first)
        first += int(group.max()) + 1
    return np.concatenate(merged)


# --- columns --------------------------------------------------------------------------------------


def _merge_columns(parts: Sequence[NamedSource], tables: Sequence[pa.Table]) -> pa.Table:
    """Return the extra columns of all sources. A source without a column has nulls in it."""
    types: dict[str, tuple[pa.DataType, str]] = {}
    for (src, source), table in zip(parts, tables, strict=True):
        for field in table.schema:
            known, first = types.setdefault(field.name, (field.type, src))
            if known != field.type and not _is_promoted(known, field.type):
                raise SourceError(
                    f"column {printable(field.name)} has the type {field.type}, but {known} in"
                    f" {printable(first)}",
                    file=src,
                    hint="write the column with one type, or rename it in one of the sources",
                )
            if (
                field.name in (*CHANGE_COLUMNS, HASH_COLUMN)
                and not source.prepared
                and any(part.source.prepared for part in parts)
            ):
                message = (
                    f"it has a column {field.name!r}, which prepared datasets use for another"
                    " purpose"
                )
                raise SourceError(message, file=src, hint="rename the column of the source")
    if not types:
        return pa.table({})
    filled = []
    for (_, source), table in zip(parts, tables, strict=True):
        # A table without columns has no rows.
        filled.append(
            table if table.num_columns else pa.table({next(iter(types)): pa.nulls(len(source))})
        )
    return pa.concat_tables(filled, promote_options="permissive").combine_chunks()


def _is_promoted(first: pa.DataType, second: pa.DataType) -> bool:
    """Return whether Arrow has one type for the values of both."""
    types = pa.types
    numbers = [types.is_integer(each) or types.is_floating(each) for each in (first, second)]
    texts = [types.is_string(each) or types.is_large_string(each) for each in (first, second)]
    return all(numbers) or all(texts)
