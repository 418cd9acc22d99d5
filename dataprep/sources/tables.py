"""Tables (CSV, TSV, JSON Lines, Parquet) and list files: a path and a label for each image.

Columns other than path, label and split are kept as extra columns. A line of a list file, as
PaddleClas uses them, is ``path label``, split at the last space or tab.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dataprep import spool
from dataprep.containers.parquet import ROWS_PER_BYTE
from dataprep.labels.columns import (
    LabelColumn,
    Labels,
    Locate,
    blank_rows,
    check_filled,
    is_text,
    origin_of,
    row_error,
)
from dataprep.labels.kinds import (
    CAPTION,
    KINDS,
    MULTI_LABEL,
    OTHER_LABEL_COLUMNS,
    read_labels,
)
from dataprep.labels.tables import joined_rows, labels_of
from dataprep.options import SourceOptions
from dataprep.sources.base import (
    LABEL_COLUMN_NAMES,
    Integers,
    Names,
    Source,
    Texts,
    one_array,
    take_rows,
    text_array,
)
from dataprep.sources.columns import (
    extra_columns,
    find_columns,
    is_readable_type,
    without_index,
    without_negatives,
    wrong_type,
)
from dataprep.sources.listed import listed_files, listed_source, normalize_paths
from dataprep.sources.scan import suffix_of
from dataprep.sources.several import MISSING_HINT, image_names, with_images
from dataprep.sources.text_tables import load_csv, load_json, load_jsonl, table_of, text_lines
from manifests.errors import CallError, SourceError
from manifests.files import IMAGE_SUFFIXES, SOURCE_LIST, SOURCE_TABLE, ParquetError, open_file
from manifests.json_members import shorten
from manifests.parquet import BoundedParquet, is_list, shorten_type
from manifests.process.text import plural
from manifests.remote.url import parent_folder
from manifests.schema import MAX_SPLIT_NAME, SPLIT_WORDS, read_splits, split_order

#: Names of splits that can be parts of file names: not only - and _.
_SPLIT_NAME = re.compile(r"(?=.*[A-Za-z0-9])[A-Za-z0-9_-]+")

#: Suffixes of JSON Lines, and of all tables.
JSON_SUFFIXES = (".jsonl", ".ndjson")
TABLE_SUFFIXES = (".csv", ".tsv", ".parquet", *JSON_SUFFIXES)

PATH_COLUMNS = ("path", "image", "file", "filename", "filepath", "image_path", "file_name")

#: Columns with the names of images, often without extension, which also occur beside others.
_NAME_COLUMNS = ("image_name", "image_id", "ImageID")


def is_table(src: str, *_: Any) -> bool:
    """Return whether a file is a table: by its suffix, or a text file whose first line names columns, as of Flickr8k."""
    if src.lower().endswith(TABLE_SUFFIXES):
        return True
    names = columns_of(src) if src.lower().endswith(".txt") else []
    has_blanks = any(" " in name for name in names)
    return len(names) > 1 and not has_blanks and not {*PATH_COLUMNS}.isdisjoint(names)


def columns_of(file: str) -> list[str]:
    """Return the names of the columns of a table: in its header, its first line, or its first items."""
    if suffix_of(file) == ".parquet":
        with opened_parquet(file, "write the file again") as parquet:
            return [*parquet.names]
    with open_file(file, SOURCE_TABLE) as opened:
        head = opened.read(1 << 16).decode("utf-8-sig", "replace")
    line = head.partition("\n")[0]
    if suffix_of(file) in (*JSON_SUFFIXES, ".json"):
        return re.findall(r'"(\w+)"\s*:', head if suffix_of(file) == ".json" else line)
    return [name.strip(' "\r\ufeff') for name in re.split(r"[,;|\t]", line)]


def is_json_table(src: str, *_: Any) -> bool:
    """Return whether a JSON file is a list of objects with paths, or an object with images as members."""
    if not src.lower().endswith(".json"):
        return False
    with open_file(src, SOURCE_TABLE) as file:
        head = file.read(1 << 16).decode("utf-8-sig", "replace").lstrip()
    name = re.match(r'\{\s*"([^"]+)"\s*:', head)
    if name:
        return name[1].lower().endswith((*IMAGE_SUFFIXES,))
    columns = re.findall(r'"(\w+)"\s*:', head)
    return head.startswith("[") and not {*PATH_COLUMNS, *_NAME_COLUMNS}.isdisjoint(columns)


def read_table(file: str, _: Any, options: SourceOptions) -> Source:
    """Read a table with a column of paths, a column of labels and, optionally, a column of splits.

    Raises:
        CallError: a column does not exist.
        SourceError: the table is damaged, a value or a column is not valid, or an image is missing
            or listed twice.

    """
    table, lines, notices = without_negatives(*load_table(file, spools=True))
    root = options.image_root or parent_folder(file) or "."
    source = table_source(table, root, options, file, rows_of(file, lines))
    return source.with_notices(*notices)


def table_source(
    table: pa.Table,
    root: str,
    options: SourceOptions,
    file: str,
    locate: Locate,
    *,
    label_names: Names | None = None,
) -> Source:
    """Return the samples of the rows of a table.

    Args:
        table: the rows.
        root: the folder that paths are relative to.
        options: how to read it.
        file: the table, or the first of several files that the table was read from.
        locate: returns the file and line of a row, for errors.
        label_names: the columns of labels, if they are known.

    Raises:
        CallError, SourceError: as `read_table`.

    """
    return images_of(table, root, options, file, locate, label_names=label_names)[0]


def images_of(
    table: pa.Table,
    root: str,
    options: SourceOptions,
    file: str,
    locate: Locate,
    *,
    label_names: Names | None = None,
) -> tuple[Source, Integers]:
    """Return the samples of the rows of a table, and the sample of each row; see `table_source`."""
    table, index = without_index(table)
    columns = table.column_names
    images = image_names(options)
    path_names = _path_names(images, columns, options, file)
    if label_names is None:
        label_names = label_columns(columns, options, file)
        others = [
            name for name in LABEL_COLUMN_NAMES if name in columns and name not in label_names
        ]
        if label_names and others and options.label_column is None:
            index = (
                *index,
                f"the labels are column {label_names[0]}; there is also {', '.join(others)}: choose"
                " with --label-column",
            )
    split_names = find_columns("--split-column", options.split_column, ["split"], columns, file)
    # Paths and splits are text of one line in each row.
    for name in {*path_names, *split_names}:
        check_filled(table[name], name, locate)
        _check_one_line(table[name], name, locate)
    path = normalize_paths(_text_column(table, path_names[0], file), locate)
    table, first, notices = joined_rows(
        table,
        path,
        label_names,
        options.label_type,
        locate,
        one=split_names,
        places=path_names,
        more=images[1:],
    )
    image = np.asarray(path.dictionary_encode().indices).astype(np.int64)
    path = path.take(pa.array(first))

    def locate_first(row: int) -> tuple[str, int | None]:
        return locate(int(first[row]))

    labels = labels_of(table, label_names, options, locate_first)
    if KINDS[labels.label_type].is_class:
        for name in label_names:
            _check_one_line(table[name], name, locate_first)
    splits: Texts = ("train",)
    split = np.zeros(len(table), np.int8)
    for name in split_names:
        splits, split, read = number_splits(_text_column(table, name, file), name, file)
        notices = (*notices, *read)
    if not split_names:
        others = table.drop_columns([*path_names, *label_names])
        notices = (*notices, *_split_notices(others))
    used = {*path_names, *split_names, *images, *not_kept(table, label_names, labels)}
    extra = extra_columns(table, used, file, labels, locate_first)
    source = listed_source(root, "table", path, locate_first, splits, split=split, extra=extra)
    if images:
        source = _with_columns(source, table, images, options, locate_first)
    return with_labels(source.with_notices(*index, *notices), labels), image


def _with_columns(
    source: Source, table: pa.Table, images: Texts, options: SourceOptions, locate: Locate
) -> Source:
    """Return a source whose samples also have the images in other columns of the table."""
    paths, stats = {}, {}
    for name in images[1:]:
        _check_one_line(table[name], name, locate)
        path = table[name].combine_chunks()
        if not pa.types.is_null(path.type):
            path = _text_column(table, name, source.root)
        blank = blank_rows(table[name])
        if blank.any() and options.missing_images is None:
            raise row_error(
                locate,
                int(blank.argmax()),
                f"the sample has no image {name} ({plural(int(blank.sum()), 'sample')} in total)",
                MISSING_HINT,
            )
        path = pc.if_else(pa.array(blank), pa.scalar(None, pa.large_string()), path)
        path = normalize_paths(path.cast(pa.large_string()), locate)
        paths[name], stats[name], notices = listed_files(source.root, path, locate)
        source = source.with_notices(*notices)
    return with_images(source, images, paths, stats)


# --- reading --------------------------------------------------------------------------------------


def load_table(
    file: str, aside: Mapping[str, list[Any]] | None = None, *, spools: bool = False
) -> tuple[pa.Table, Integers]:
    """Read all columns; return them with the number of the line, row or item of each row.

    Args:
        file: the table.
        aside: as in `load_jsonl`.
        spools: whether large columns of arrays are on disk, as lists of a fixed length.

    """
    suffix = os.path.splitext(file)[1].lower()
    if suffix == ".json":
        return load_json(file)
    if suffix != ".parquet":
        return load_jsonl(file, aside) if suffix in JSON_SUFFIXES else load_csv(file)
    with opened_parquet(file, "write the file again", threads=True) as parquet:
        for field in parquet.schema:
            if not (is_readable_type(field.type) or is_list(field.type)):
                raise wrong_type(field.name, field.type, file)
        table = spool.read_columns(parquet, parquet.names, varying=True, spools=spools)
    return table, np.arange(1, len(table) + 1)


def rows_of(file: str, numbers: NDArray[np.int64]) -> Locate:
    """Return what tells the place of a row, by the numbers of `load_table`: file and line, or file and item."""
    if file.lower().endswith(".json"):
        return lambda row: (f"{file}, item {numbers[row]}", None)
    return lambda row: (file, int(numbers[row]))


@contextmanager
def opened_parquet(file: str, hint: str, *, threads: bool = False) -> Iterator[BoundedParquet]:
    """Open a Parquet file, and raise what is wrong with it as a `SourceError`."""
    with open_file(file, SOURCE_TABLE) as opened:
        try:
            yield BoundedParquet(opened, rows_per_byte=ROWS_PER_BYTE, threads=threads)
        except ParquetError as error:
            raise SourceError(
                f"the file is not a valid Parquet table ({error})", file=file, hint=hint
            ) from None


def _check_one_line(column: pa.ChunkedArray, name: str, locate: Locate) -> None:
    if not is_text(column.type):
        return
    row = pc.index(pc.match_substring_regex(column, r"[\r\n]"), True).as_py()
    if row >= 0:
        raise row_error(
            locate,
            row,
            f"column {name!r} contains a line break",
            "check the quotation marks above this line",
        )


# --- columns --------------------------------------------------------------------------------------


def _path_names(images: Texts, columns: Names, options: SourceOptions, file: str) -> Texts:
    """Return the column with the paths, of the first image if there are several."""
    for name in images:
        find_columns("--image-columns", name, (), columns, file)
    searched = (*PATH_COLUMNS, *_NAME_COLUMNS)
    names = images[:1] or find_columns(
        "--path-column", options.path_column, searched, columns, file
    )
    if not names:
        raise _no_column(file, searched, "--path-column", columns)
    return names


def _no_column(file: str, searched: Names, option: str, columns: Names) -> CallError:
    return CallError(
        f"{file} has none of the columns {', '.join(dict.fromkeys(searched))}",
        hint=f"set {option}; its columns are {', '.join(columns) or 'only the images'}",
    )


def _text_column(table: pa.Table, name: str, file: str) -> pa.Array:
    # Paths may be numbers of images, and names of splits numbers of folds.
    if not (is_text(table[name].type) or pa.types.is_integer(table[name].type)):
        raise SourceError(
            f"column {name!r} has the type {shorten_type(table[name].type)}, not text",
            file=file,
            hint="convert it to text",
        )
    return table[name].combine_chunks().cast(pa.large_string())


def number_splits(
    text: pa.Array, name: str, file: str
) -> tuple[Texts, NDArray[np.int8], list[str]]:
    """Return the split names, the split of each row as an index into them, int8 [n], and notices."""
    # A table has few splits, so their names are looked up once each.
    coded = text.dictionary_encode()
    given = coded.dictionary.to_pylist()
    check_split_names(given, file)
    split_of, read = read_splits(given)
    splits = split_order({*split_of.values()})
    if len(splits) > 127:
        raise SourceError(
            f"column {name!r} has {len(splits)} splits, but the limit is 127",
            file=file,
            hint="check --split-column",
        )
    notices = [f"column {name}: read {' and '.join(read)}"] if read else []
    numbers = [splits.index(split_of[each]) for each in given]
    return splits, np.array(numbers, np.int8)[coded.indices], notices


#: Names of splits in columns of tables.
_SPLIT_VALUES = {*SPLIT_WORDS, "query", "gallery", "publictest", "privatetest"}

#: Columns that may say for each image whether it is in a split: ``is_valid``, ``is_training_img``.
_SPLIT_FLAG = re.compile(
    r"(?i)(is[_ ]?)?(train|training|valid|validation|val|test|testing)([_ ]?(image|img|set))?"
)


def _split_notices(table: pa.Table) -> Iterator[str]:
    """Report columns that state the split of each image but are not called so: all images are in train."""
    for name in table.column_names:
        column = table[name].drop_null()
        if _SPLIT_FLAG.fullmatch(name) and pc.count_distinct(column).as_py() <= 2:
            yield (
                f"all images are in train: if column {name!r} states the splits, write their names"
                " into a column called split"
            )
        elif is_text(column.type):
            # A cell without a split may be anything, as of an image that is not assigned yet.
            values = [value for value in column.unique().to_pylist() if value.strip()]
            if len(values) > 1 and all(value.lower() in _SPLIT_VALUES for value in values):
                yield (
                    f"all images are in train: column {name!r} has the names of splits"
                    f" ({', '.join(values)}); to use them, set --split-column {name!r}"
                )


def check_split_names(names: Iterable[str], file: str) -> None:
    """Check that the names of splits can be parts of file names.

    Raises:
        SourceError: one cannot.

    """
    for text in sorted(names):
        if not _SPLIT_NAME.fullmatch(text) or len(text) > MAX_SPLIT_NAME:
            raise SourceError(
                f"split {shorten(text)} cannot be part of a file name",
                file=file,
                hint=f"use at most {MAX_SPLIT_NAME} letters, digits, - and _",
            )


# --- labels ---------------------------------------------------------------------------------------


def label_columns(columns: Names, options: SourceOptions, file: str, also: Names = ()) -> Texts:
    """Return the columns of labels: several if the option names several.

    None if the images have no labels. `also` are names to search for after the usual ones.
    """
    if options.unlabelled:
        return ()
    kind = KINDS[options.label_type] if options.label_type else None
    if kind is not None and kind.is_placed:
        raise CallError(
            f"--label-type {options.label_type} needs a source with such labels, but {file} is a"
            " table",
            hint=(
                "leave out --label-type, or give COCO or Pascal VOC, or a folder of masks or depth"
                " maps"
            ),
        )
    searched: Texts = (*LABEL_COLUMN_NAMES, *also, *OTHER_LABEL_COLUMNS)
    if kind is not None:
        searched = (*kind.column_names, *LABEL_COLUMN_NAMES, *also, *MULTI_LABEL.column_names)
    names = find_columns("--label-column", options.label_column, searched, columns, file)
    if not names:
        has_captions = not {*CAPTION.column_names}.isdisjoint(columns)
        give = "--label-type caption" if has_captions else "--label-column or --label-type none"
        raise _no_column(file, searched, give, columns)
    return names


def not_kept(table: pa.Table, names: Names, labels: Labels) -> set[str]:
    """Return the columns of labels that are not also kept as extra columns.

    Lists and captions are not, and neither is a column with a general name. A specific one, such as
    `identity`, is.
    """
    general: Texts = LABEL_COLUMN_NAMES
    if not KINDS[labels.label_type].is_class:
        general = (*general, *OTHER_LABEL_COLUMNS, *CAPTION.column_names)
    return {name for name in names if name in general or is_list(table.schema.field(name).type)}


# --- replace the labels of a source ---------------------------------------------------------------


def without_labels(source: Source) -> Source:
    """Return a source without its labels."""
    used = [name for name in source.labels.columns if name in source.extra.column_names]
    bare = source.with_columns(extra=source.extra.drop_columns(used))
    return with_labels(bare, Labels("none", np.zeros(len(source), np.int32)))


def with_label_type(source: Source, options: SourceOptions) -> Source:
    """Return a source with the label type that the options name: the names of its classes are the values.

    Raises:
        CallError: the source has labels of another type.
        SourceError: the name of a class is not such a value.

    """
    if options.unlabelled:
        return without_labels(source)
    if options.label_type is None or options.label_type == source.label_type:
        return source
    if not source.labels.is_class or source.prepared:
        raise CallError(
            f"--label-type {options.label_type}: the labels of the source are of the type"
            f" {source.label_type}",
            hint="leave out --label-type",
        )
    text = text_array(source.classes).take(pa.array(source.label))
    column = LabelColumn(text, "label", options, source.locate)
    labels = read_labels(column)
    origin = labels.origin.replace(column.origin, "the class names")
    return with_labels(source, replace(labels, origin=origin))


def with_labels(source: Source, labels: Labels) -> Source:
    """Return a source with other labels, and without the samples that have none."""
    columns = dict(zip(source.extra.column_names, source.extra.columns, strict=True))
    extra = pa.table({**columns, **labels.columns})
    source = replace(
        source.with_columns(label=labels.label, extra=extra),
        classes=labels.classes,
        label_type=labels.label_type,
        label_origin=labels.origin,
        notices=(*source.notices, *labels.notices),
    )
    return source if labels.kept is None else take_rows(source, np.flatnonzero(labels.kept))


# --- list files -----------------------------------------------------------------------------------


def read_lists(files: Names, root: str, options: SourceOptions) -> Source:
    """Read list files. Each is a split, named by the first word of its file name.

    Args:
        files: the list files.
        root: the folder that paths are relative to.
        options: `classes` and the label type apply.

    Raises:
        SourceError: a line or a label is not valid, or an image is missing or listed twice.

    """
    lines, locate = parse_lists(files, has_labels=not options.unlabelled)
    splits = text_array(map(_split_of_list, files)).take(one_array(lines["split"]))
    names = () if options.unlabelled else ("label",)
    table = lines.select(["path", *names]).append_column("split", splits)
    source = table_source(table, root, options, files[0], locate, label_names=names)
    return replace(
        source,
        layout="PaddleClas lists" if len(files) > 1 else "list file",
        label_origin=source.label_origin.replace(origin_of("label"), "the end of each line"),
    )


def parse_lists(files: Names, *, has_labels: bool = True) -> tuple[pa.Table, Locate]:
    """Read list files. Without labels, a line is a path.

    Returns:
        The columns ``path`` and ``label``, large_string, and ``split``, the number of the list,
        int8; and a function that locates a row.

    Raises:
        SourceError: a line is not valid.

    """
    lines = chain.from_iterable(
        _list_lines(number, file, has_labels=has_labels) for number, file in enumerate(files)
    )
    text = pa.large_string()
    table = table_of(lines, ["split", "line", "path", "label"], [pa.int8(), pa.int64(), text, text])

    def locate(row: int) -> tuple[str, int]:
        return files[table["split"][row].as_py()], table["line"][row].as_py()

    return table, locate


def _split_of_list(file: str) -> str:
    first = os.path.basename(file).split(".")[0].split("_")[0].lower()
    return SPLIT_WORDS.get(first, "train")


def _list_lines(split: int, file: str, *, has_labels: bool) -> Iterator[tuple[int, int, str, str]]:
    """Yield the number of the list and of the line, the path and the label of each line."""
    for number, line in enumerate(text_lines(file, SOURCE_LIST), 1):
        path, label = line.strip(), ""
        if not path:
            continue
        if has_labels:
            # A label behind a tab can have blanks.
            *before, label = path.rsplit("\t" if "\t" in path else None, maxsplit=1)
            path, label = "".join(before).rstrip(), label.strip()
        if not path or "\0" in line:
            raise SourceError(
                f"the line {line.strip()[:80]!r} does not have the form `path label`",
                file=file,
                line=number,
                hint="write a path, a space and a label; or set --label-type none if there are no labels",
            )
        yield split, number, path, label
