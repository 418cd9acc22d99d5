"""Several rows of a table about one image: rows with one label each become one row with all of them."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataprep.arrays import Int64Array
from dataprep.labels.columns import Locate, blank_rows, row_error
from dataprep.labels.kinds import CAPTION
from manifests.errors import SourceError
from manifests.json_members import shorten
from manifests.parquet import is_list
from manifests.process.text import cut_middle, plural

#: Label types of which an image can have several in rows of its own, without an option for captions.
_JOINED = ("multi-label", "caption", "none")


@dataclass(frozen=True)
class _Images:
    """The rows of a table by the images that they are about.

    Attributes:
        path: the path in each row, large_string [n].
        first: the first row about the image of each row, int64 [n].
        order: the rows about one image after the other, int64 [n].
        counts: number of rows about each image, int64 [images].
        locate: returns the file and line of a row, for errors.

    """

    path: pa.Array
    first: Int64Array
    order: Int64Array
    counts: Int64Array
    locate: Locate

    def varying(self, column: pa.ChunkedArray) -> Int64Array:
        """Return the rows with another value than the first row about their image."""
        values = column.combine_chunks()
        if is_list(values.type):
            values = pa.array(map(str, values.to_pylist()), pa.string())
        if not pa.types.is_dictionary(values.type):
            values = values.dictionary_encode()
        codes = np.asarray(pc.fill_null(values.indices, -1))
        return np.flatnonzero(codes != codes[self.first])


def _by_image(path: pa.Array, locate: Locate) -> _Images:
    group = np.asarray(path.dictionary_encode().indices)
    order, counts = np.argsort(group, kind="stable"), np.bincount(group)
    firsts = order[np.cumsum(counts) - counts]
    return _Images(path, firsts[group], order, counts, locate)


def joined_rows(
    table: pa.Table,
    path: pa.Array,
    labels: Sequence[str],
    label_type: str | None,
    locate: Locate,
    *,
    one: Collection[str],
    places: Collection[str],
) -> tuple[pa.Table, Int64Array, tuple[str, ...]]:
    """Return a table with one row for each path, the first row of each path, and notices.

    The labels of an image become a list, and its captions the lines of a text. Other columns stay if
    they have one value for each image.

    Args:
        table: the table.
        path: its paths, large_string [n].
        labels: the columns of labels.
        label_type: the label type that an option names.
        locate: returns the file and line of a row, for errors.
        one: columns that must have one value for each image, such as its split.
        places: columns that say where a row comes from; the first row counts.

    Raises:
        SourceError: an image has rows with different labels, and no option says that it has several;
            or it is in two splits.

    """
    images = _by_image(path, locate)
    every = np.arange(len(path))
    if len(images.counts) == len(path):
        return table, every, ()
    firsts = images.order[np.cumsum(images.counts) - images.counts]
    others = [name for name in table.column_names if name not in places]
    if label_type is None and {name.lower() for name in labels} & {*CAPTION.column_names}:
        label_type = "caption"
    if label_type not in _JOINED or len(labels) > 1:
        _refuse_several(images, table, labels, {*others} - {*one})
        return table, every, ()
    columns, dropped = {}, []
    for name in table.column_names:
        rows = every[:0]
        if name in others:
            rows = images.varying(table[name])
        if name in labels:
            columns[name] = _joined(table[name].combine_chunks(), images, label_type)
        elif not len(rows):
            columns[name] = table[name].take(pa.array(firsts))
        elif name in one:
            raise _two_values(images, int(rows[0]), table[name], name)
        else:
            dropped.append(name)
    notices = [f"{plural(len(path), 'row')} are about {plural(len(firsts), 'image')}"]
    if dropped:
        shown = ", ".join(dropped[:5])
        notices.append(f"left out columns with several values for an image: {shown}")
    return pa.table(columns), firsts, tuple(notices)


def _joined(column: pa.Array, images: _Images, label_type: str) -> pa.Array:
    """Return the labels of each image, without rows that have none."""
    filled = ~blank_rows(column)[images.order]
    # The number of labels before each image.
    before = np.concatenate([[0], np.cumsum(filled)])
    offsets = pa.array(before[np.concatenate([[0], np.cumsum(images.counts)])], pa.int32())
    values = column.take(pa.array(images.order[filled]))
    if label_type != "caption":
        return pa.ListArray.from_arrays(offsets, values)
    lines = pc.replace_substring_regex(values.cast(pa.string()), r"\s*[\r\n]+\s*", " ")
    return pc.binary_join(pa.ListArray.from_arrays(offsets, lines), "\n")


def _two_values(images: _Images, row: int, column: pa.ChunkedArray, name: str) -> SourceError:
    """Return the error about an image with two values in a column that has one for each image."""
    here, before = (shorten(str(column[at].as_py())) for at in (row, int(images.first[row])))
    return row_error(
        images.locate,
        row,
        f"image {shorten(images.path[row].as_py(), 300)} has {name} {here} here, but"
        f" {before} in an earlier row",
        "write the same value in all rows of an image",
    )


def _refuse_several(
    images: _Images, table: pa.Table, labels: Sequence[str], others: Collection[str]
) -> None:
    """Refuse several rows about an image that differ; equal rows are a mistake, which is found later."""
    rows = [images.varying(table[name]) for name in (*labels, *others)]
    varying = np.concatenate([*rows, np.zeros(0, np.int64)])
    if not len(varying):
        return
    row = int(varying[0])
    shown = f"image {shorten(images.path[row].as_py(), 300)} is listed twice"
    hint = "write one row for each image"
    if len(labels) == 1:
        both = [str(table[labels[0]][at].as_py()) for at in (int(images.first[row]), row)]
        shown += f", with the labels {' and '.join(cut_middle(each, 80) for each in both)}"
        hint = (
            "set --label-type multi-label (or caption) if an image has several labels (or"
            " captions), in a row each; or write one row for each image"
        )
    file, line = images.locate(int(images.first[row]))
    total = (
        f"{plural(int((images.counts > 1).sum()), 'such image')}, first in {os.path.basename(file)}"
    )
    if line is not None:
        total += f", line {line}"
    raise row_error(images.locate, row, f"{shown} ({total})", hint)
