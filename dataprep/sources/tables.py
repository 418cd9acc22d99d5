"""Tables (CSV, TSV, JSON Lines, Parquet) and list files: a path and a label for each image.

Columns other than path, label and split are kept as extra columns. A line of a list file, as
PaddleClas uses them, is ``path label``, split at the last space or tab.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dataprep.labels.columns import (
    LabelColumn,
    Labels,
    Lists,
    Locate,
    is_text,
    origin_of,
)
from dataprep.labels.kinds import (
    CAPTION,
    KINDS,
    MULTI_LABEL,
    OTHER_LABEL_COLUMNS,
    REGRESSION,
    kind_of,
)
from dataprep.options import SourceOptions
from dataprep.sources.base import (
    LABEL_COLUMN_NAMES,
    MAX_COLUMN_NAME,
    RESERVED_COLUMNS,
    Source,
    concat,
    one_array,
)
from dataprep.sources.scan import (
    listed_table,
    normal_source_path,
    normalize_paths,
)
from dataprep.sources.text_tables import load_csv, load_jsonl
from manifests.errors import CallError, SourceError
from manifests.files import SOURCE_LIST, SOURCE_TABLE, open_file, read_lines
from manifests.json_members import shorten
from manifests.labels import arrow_type
from manifests.parquet import BoundedParquet, ParquetError, is_list, shorten_type
from manifests.process.text import printable, suggest
from manifests.remote.url import parent_folder
from manifests.schema import COLUMN_PREFIX, MAX_SPLIT_NAME, SPLIT_ALIASES, split_order

#: A table may have this many rows for each of its bytes, and some more. Generated paths, compressed
#: by Zstandard, need about half a byte each.
ROWS_PER_BYTE = 2.0

#: Suffixes of JSON Lines, and of all tables.
JSON_SUFFIXES = (".jsonl", ".ndjson")
TABLE_SUFFIXES = (".csv", ".tsv", ".parquet", *JSON_SUFFIXES)

PATH_COLUMNS = ("path", "image", "file", "filename", "filepath", "image_path", "file_name")


def read_table(file: str, _: Any, options: SourceOptions) -> Source:
    """Read a table with a column of paths, a column of labels and, optionally, a column of splits.

    Raises:
        CallError: a column does not exist.
        SourceError: the table is damaged, a value or a column is not valid, or an image is missing
            or listed twice.

    """
    table, lines = _load(file)
    path_name = _find_column(table, options.path_column, PATH_COLUMNS, "--path-column", file)
    label_names = label_columns(table, options, file)
    split_name = options.split_column or ("split" if "split" in table.column_names else None)
    if split_name is not None:
        _find_column(table, split_name, (), "--split-column", file)

    def locate(row: int) -> tuple[str, int]:
        return file, int(lines[row])

    for name in {path_name, *([split_name] if split_name else [])}:
        check_filled(table[name], name, locate)
        _check_one_line(table[name], name, locate)
    root = options.image_root or parent_folder(file) or "."
    path = normalize_paths(_text_column(table, path_name, file), locate)
    labels = labels_of(table, label_names, options, locate)
    if KINDS[labels.label_type].is_class:
        for name in label_names:
            _check_one_line(table[name], name, locate)
    splits, split = _number_splits(table, split_name, file)
    used = {path_name, split_name, *not_kept(table, label_names, labels)}
    extra = extra_columns(table, used, file, labels)
    samples = listed_table(root, path, locate, split=split, extra=extra)
    return with_labels(Source(root=root, layout="table", table=samples, splits=splits), labels)


# --- reading --------------------------------------------------------------------------------------


def _load(file: str) -> tuple[pa.Table, NDArray[np.int64]]:
    suffix = os.path.splitext(file)[1].lower()
    if suffix == ".parquet":
        return _load_parquet(file)
    return load_jsonl(file) if suffix in JSON_SUFFIXES else load_csv(file)


def _load_parquet(file: str) -> tuple[pa.Table, NDArray[np.int64]]:
    """Read all columns with their types; return them with the row numbers, from 1."""
    try:
        with open_file(file, SOURCE_TABLE) as opened:
            parquet = BoundedParquet(opened, rows_per_byte=ROWS_PER_BYTE, threads=True)
            for name in parquet.names:
                _check_type(parquet.schema.field(name).type, name, file)
            table = parquet.read(parquet.names)
    except ParquetError as error:
        raise SourceError(
            f"the file is not a valid Parquet table ({error})",
            file=file,
            hint="write the file again",
        ) from None
    return table, np.arange(1, len(table) + 1)


def _check_type(column_type: pa.DataType, name: str, file: str) -> None:
    if not (is_readable_type(column_type) or is_list(column_type)):
        raise _wrong_type(
            name,
            column_type.value_type if pa.types.is_dictionary(column_type) else column_type,
            file,
        )


def _wrong_type(name: str, column_type: pa.DataType, file: str) -> SourceError:
    return SourceError(
        f"column {shorten(name)} has the type {shorten_type(column_type)}, which is not text, a"
        " number or a boolean",
        file=file,
        hint="convert it, remove it, or set --label-column if it has the labels",
    )


def is_readable_type(column_type: pa.DataType) -> bool:
    """Return whether a column contains text, numbers, booleans or times.

    Besides labels, only these are read.
    """
    types = pa.types
    if types.is_dictionary(column_type):
        column_type = column_type.value_type
    return bool(
        is_text(column_type)
        or types.is_integer(column_type)
        or types.is_floating(column_type)
        or types.is_boolean(column_type)
        or types.is_null(column_type)
        or types.is_temporal(column_type)
    )


def _check_one_line(column: pa.ChunkedArray, name: str, locate: Locate) -> None:
    if not is_text(column.type):
        return
    row = pc.index(pc.match_substring_regex(column, r"[\r\n]"), True).as_py()
    if row >= 0:
        file, line = locate(row)
        message = f"column {name!r} contains a line break"
        raise SourceError(
            message, file=file, line=line, hint="check the quotation marks above this line"
        )


# --- columns --------------------------------------------------------------------------------------


def _find_column(
    table: pa.Table, given: str | None, known: Sequence[str], option: str, file: str
) -> str:
    """Return the name of a column: `given`, or the first of `known` that the table has."""
    names: list[str] = table.column_names
    if given and given not in names:
        raise CallError(f"{option} {given}: {file} has no such column", hint=suggest(given, names))
    column_name = given or next((name for name in known if name in names), None)
    if column_name is None:
        raise CallError(
            f"{file} has none of the columns {', '.join(known)}",
            hint=f"set {option}; its columns are {', '.join(names)}",
        )
    return column_name


def _text_column(table: pa.Table, name: str, file: str) -> pa.Array:
    if not is_text(table[name].type):
        raise SourceError(
            f"column {name!r} has the type {shorten_type(table[name].type)}, not text",
            file=file,
            hint="convert it to text",
        )
    return table[name].combine_chunks().cast(pa.large_string())


def _number_splits(
    table: pa.Table, name: str | None, file: str
) -> tuple[tuple[str, ...], NDArray[np.int8]]:
    """Return the split names, and the split of each row as an index into them, int8 [n]."""
    if name is None:
        return ("train",), np.zeros(len(table), np.int8)
    given = _text_column(table, name, file).to_pylist()
    split_of = {text: SPLIT_ALIASES.get(text.lower(), text) for text in set(given)}
    check_split_names(split_of, file)
    splits = split_order(set(split_of.values()))
    if len(splits) > 127:
        raise SourceError(
            f"column {name!r} has {len(splits)} splits, but the limit is 127",
            file=file,
            hint="check --split-column",
        )
    number = {text: splits.index(split) for text, split in split_of.items()}
    return splits, np.array([number[text] for text in given], np.int8)


def check_split_names(names: Iterable[str], file: str) -> None:
    """Check that the names of splits can be parts of file names.

    Raises:
        SourceError: one cannot.

    """
    for text in sorted(names):
        if (
            not text.replace("_", "").replace("-", "").isalnum()
            or not text.isascii()
            or len(text) > MAX_SPLIT_NAME
        ):
            raise SourceError(
                f"split {shorten(text)} cannot be part of a file name",
                file=file,
                hint=f"use at most {MAX_SPLIT_NAME} letters, digits, - and _",
            )


def extra_columns(table: pa.Table, used: set[str | None], file: str, labels: Labels) -> pa.Table:
    """Return all columns that are not in `used`, as text, numbers or booleans.

    A column whose name the sample tables or records of this label type already use is called
    ``column:NAME``.
    """
    taken = (
        *RESERVED_COLUMNS,
        *labels.columns,
        KINDS[labels.label_type].class_member or "class",
    )
    columns: dict[str, pa.Array] = {}
    for name in (name for name in table.column_names if name not in used):
        own = free_name(name, taken) if not name.startswith("image/") else f"{COLUMN_PREFIX}{name}"
        if not name or len(own.encode()) > MAX_COLUMN_NAME:
            raise SourceError(
                f"column {name[:40]!r} has a name of {len(name.encode())} bytes, not 1 to"
                f" {MAX_COLUMN_NAME}",
                file=file,
                hint="rename it",
            )
        if own in columns or (own != name and own in table.column_names):
            raise SourceError(
                f"columns {name!r} and {own!r} would have the same name",
                file=file,
                hint="rename one",
            )
        columns[own] = _extra_column(one_array(table[name]), name, file)
    return pa.table(columns)


def _extra_column(column: pa.Array, name: str, file: str) -> pa.Array:
    types, column_type = pa.types, column.type
    if is_list(column_type):
        raise _wrong_type(name, column_type, file)
    if types.is_dictionary(column_type) or types.is_temporal(column_type):
        return _as_text(column, name, file)
    if is_text(column_type):
        return _infer_type(column) if file.lower().endswith((".csv", ".tsv")) else column
    return column


def _as_text(column: pa.Array | pa.ChunkedArray, name: str, file: str) -> pa.Array:
    try:
        return one_array(column.cast(pa.large_string()))
    except pa.ArrowInvalid as error:  # for example, an unknown time zone
        reason = printable(str(error).splitlines()[0][:200])
        message = f"column {shorten(name)} cannot be converted to text ({reason})"
        raise SourceError(message, file=file, hint="convert it, or remove it") from None


#: Numbers without leading zeros: 007 stays text.
_INTEGER = r"^-?(0|[1-9][0-9]{0,17})$"
_BOOLEAN = r"^(true|false|True|False)$"
_FLOAT = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$"


def _infer_type(column: pa.Array) -> pa.Array:
    """Convert a column of a CSV file to numbers or booleans if all of its values are.

    Empty cells become null.
    """
    filled = pc.if_else(pc.equal(column, ""), pa.scalar(None, column.type), column)
    for pattern, column_type in (
        (_INTEGER, pa.int64()),
        (_FLOAT, pa.float64()),
        (_BOOLEAN, pa.bool_()),
    ):
        if (
            filled.null_count < len(filled)
            and pc.all(pc.match_substring_regex(filled, pattern)).as_py()
        ):
            number = filled.cast(column_type)
            # Different texts must not become the same number: 1.10 and 1.1, or more digits than a
            # float keeps.
            same = pc.count_distinct(number).as_py() == pc.count_distinct(filled).as_py()
            # A number like 1e999 would become infinite.
            finite = column_type != pa.float64() or pc.all(pc.is_finite(number)).as_py()
            return number if same and finite else column
    return column


# --- labels ---------------------------------------------------------------------------------------


def label_columns(table: pa.Table, options: SourceOptions, file: str) -> tuple[str, ...]:
    """Return the columns of labels: several if the option names several.

    None if the images have no labels.
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
    given, columns = options.label_column, table.column_names
    if given is not None:
        names = (given,) if given in columns else tuple(name.strip() for name in given.split(","))
        for name in names:
            if name not in columns:
                raise CallError(
                    f"--label-column {given}: {file} has no such column",
                    hint=suggest(name, columns),
                )
        return names
    if kind is None:
        searched: tuple[str, ...] = (*LABEL_COLUMN_NAMES, *OTHER_LABEL_COLUMNS)
    else:
        searched = (*kind.column_names, *LABEL_COLUMN_NAMES)
    found = next((name for name in searched if name in columns), None)
    if found is None:
        raise CallError(
            f"{file} has none of the columns {', '.join(searched)}",
            hint=f"set --label-column or --label-type none; its columns are {', '.join(columns)}",
        )
    return (found,)


def labels_of(
    table: pa.Table,
    names: Sequence[str],
    options: SourceOptions,
    locate: Locate,
    classes: tuple[str, ...] | None = None,
) -> Labels:
    """Return the labels in columns of a table.

    Args:
        table: the table.
        names: its columns of labels: one; several with a number each; or none.
        options: the label type and the classes apply.
        locate: returns the file and line of a row, for errors.
        classes: class names that the source states.

    Raises:
        SourceError: a value is missing, or cannot be a label.

    """
    if not names:
        return Labels("none", np.zeros(len(table), np.int32))
    columns = [one_array(table[name]) for name in names]
    if len(names) > 1:
        return _labels_of_columns(columns, names, options, locate)
    (column,), (name,) = columns, names
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    labels = LabelColumn(column, name, options, locate, classes)
    kind = kind_of(labels)
    if kind.class_lists is None:
        check_filled(column, name, locate)
    return kind.read(labels)


def _labels_of_columns(
    columns: Sequence[pa.Array], names: Sequence[str], options: SourceOptions, locate: Locate
) -> Labels:
    """Return the labels in several columns of numbers: 0 or 1 for each class, or else the values of a regression."""
    for column, name in zip(columns, names, strict=True):
        check_filled(column, name, locate)
    numbers = []
    for column, name in zip(columns, names, strict=True):
        one_each = Lists(column, np.ones(len(column), np.int64))
        numbers.append(LabelColumn(column, name, options, locate).numbers(one_each).values)
    values = np.stack([np.asarray(each) for each in numbers], axis=1)
    shown = f"{names[0]} to {names[-1]}"
    is_hot = bool(np.isin(values, (-1, 0, 1)).all())
    if options.label_type == MULTI_LABEL.name or (options.label_type is None and is_hot):
        if not is_hot:
            row = int(np.flatnonzero(~np.isin(values, (-1, 0, 1)).all(1))[0])
            file, line = locate(row)
            message = f"one of the columns {shown} is neither 0 nor 1, but each column is a class"
            raise SourceError(
                message, file=file, line=line, hint="set --label-type regression for numbers"
            )
        hot = values == 1
        lists = Lists(pa.array(np.nonzero(hot)[1], pa.int64()), hot.sum(1).astype(np.int64))
        column = lists.as_array(arrow_type("integers"))
        named = replace(options, classes=options.classes or tuple(names))
        labels = MULTI_LABEL.read(LabelColumn(column, shown, named, locate))
        return replace(labels, origin=f"columns {shown}, 0 or 1 each")
    flat = Lists(pa.array(values.reshape(-1)), np.full(len(values), len(names), np.int64))
    column = flat.as_array(pa.list_(pa.float64()))
    labels = REGRESSION.of_lists(LabelColumn(column, shown, options, locate), flat)
    return replace(labels, origin=f"columns {shown}")


def not_kept(table: pa.Table, names: Sequence[str], labels: Labels) -> set[str]:
    """Return the columns of labels that are not also kept as extra columns.

    Lists and captions are not, and neither is a column with a general name. A specific one, such as
    `identity`, is.
    """
    general: tuple[str, ...] = LABEL_COLUMN_NAMES
    if not KINDS[labels.label_type].is_class:
        general = (*general, *OTHER_LABEL_COLUMNS, *CAPTION.column_names)
    return {name for name in names if name in general or is_list(table.schema.field(name).type)}


def check_filled(column: pa.ChunkedArray, name: str, locate: Locate) -> None:
    """Check that a column has a value in every row.

    Raises:
        SourceError: it is null, empty or blank in a row.

    """
    empty = pc.is_null(column)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        empty = pc.or_kleene(empty, pc.equal(pc.utf8_trim_whitespace(column), ""))
    row = pc.index(empty, True).as_py()
    if row >= 0:
        file, line = locate(row)
        raise SourceError(
            f"column {name!r} is empty",
            file=file,
            line=line,
            hint="fill in a value, or remove the row",
        )


# --- replace the labels of a source ---------------------------------------------------------------


def without_labels(source: Source) -> Source:
    """Return a source without its labels."""
    used = [name for name in source.labels.columns if name in source.extra.column_names]
    unlabelled = source.with_columns(
        label=np.zeros(len(source), np.int32), extra=source.extra.drop_columns(used)
    )
    return replace(unlabelled, classes=(), label_type="none", label_origin="")


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
    text = pa.array(source.classes, pa.large_string()).take(pa.array(source.label))
    column = LabelColumn(
        text, "label", options, lambda row: (f"{source.root}/{source.path[row]}", None)
    )
    labels = kind_of(column).read(column)
    return with_labels(
        source, replace(labels, origin=labels.origin.replace(origin_of("label"), "the class names"))
    )


def with_labels(source: Source, labels: Labels) -> Source:
    """Return a source with other labels."""
    columns = dict(zip(source.extra.column_names, source.extra.columns, strict=True))
    extra = pa.table({**columns, **labels.columns})
    return replace(
        source.with_columns(label=labels.label, extra=extra),
        classes=labels.classes,
        label_type=labels.label_type,
        label_origin=labels.origin,
        notices=(*source.notices, *labels.notices),
    )


def free_name(name: str, taken: Sequence[str]) -> str:
    """Return the name under which sample tables keep a column of the source: ``column:NAME`` if they use its name."""
    return f"{COLUMN_PREFIX}{name}" if name in taken else name


# --- list files -----------------------------------------------------------------------------------


def read_lists(files: Sequence[str], root: str, options: SourceOptions) -> Source:
    """Read list files. Each is a split, named by the first word of its file name.

    Args:
        files: the list files.
        root: the folder that paths are relative to.
        options: `classes` and the label type apply.

    Raises:
        SourceError: a line or a label is not valid, or an image is missing or listed twice.

    """
    paths, labels, locate = parse_lists(files, has_labels=not options.unlabelled)
    path = concat(paths)
    column = LabelColumn(labels, "label", options, locate)
    read = kind_of(column).read(column)
    split = np.repeat(np.arange(len(files), dtype=np.int8), [len(part) for part in paths])
    source = Source(
        root=root,
        layout="PaddleClas lists" if len(files) > 1 else "list file",
        table=listed_table(root, path, locate, split=split),
        splits=tuple(_split_of_list(file) for file in files),
    )
    return with_labels(
        source, replace(read, origin=read.origin.replace("column label", "the end of each line"))
    )


def parse_lists(
    files: Sequence[str], *, has_labels: bool = True
) -> tuple[list[pa.Array], pa.Array, Locate]:
    """Read list files. Without labels, a line is a path.

    Returns:
        The paths of each list (large_string), the labels of all lists as text, and a function that
        locates a row.

    Raises:
        SourceError: a line is not valid.

    """
    columns = [_parse_list(file, has_labels=has_labels) for file in files]
    ends = np.cumsum([len(lines) for _, _, lines in columns])
    lines = np.concatenate([lines for _, _, lines in columns])

    def locate(row: int) -> tuple[str, int]:
        return files[int(np.searchsorted(ends, row, side="right"))], int(lines[row])

    return [paths for paths, _, _ in columns], concat([labels for _, labels, _ in columns]), locate


def _split_of_list(file: str) -> str:
    first = os.path.basename(file).split(".")[0].split("_")[0].lower()
    return SPLIT_ALIASES.get(first, "train")


def _parse_list(file: str, *, has_labels: bool) -> tuple[pa.Array, pa.Array, NDArray[np.int64]]:
    """Return the paths, the labels as text, and the line numbers of a list file."""
    paths: list[pa.Array] = []
    labels: list[pa.Array] = []
    numbers: list[NDArray[np.int64]] = []
    lines = _list_lines(file, has_labels=has_labels)
    while batch := list(islice(lines, 1 << 16)):
        paths.append(pa.array([path for _, path, _ in batch], pa.large_string()))
        labels.append(pa.array([label for _, _, label in batch], pa.large_string()))
        numbers.append(np.array([number for number, _, _ in batch], np.int64))
    return concat(paths), concat(labels), np.concatenate([*numbers, np.empty(0, np.int64)])


def _list_lines(file: str, *, has_labels: bool) -> Iterator[tuple[int, str, str]]:
    def locate(number: int) -> tuple[str, int | None]:
        return file, number

    for number, raw in enumerate(read_lines(file, SOURCE_LIST), 1):
        try:
            line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise SourceError(
                f"the line is not valid UTF-8 ({error.reason} at byte {error.start} of the line)",
                file=file,
                line=number,
                hint="save the list as UTF-8",
            ) from None
        parts = (
            line.strip().rsplit(maxsplit=1)
            if has_labels
            else [line.strip(), ""] * bool(line.strip())
        )
        if len(parts) == 1 or "\0" in line:
            raise SourceError(
                f"the line {line.strip()[:80]!r} does not have the form `path label`",
                file=file,
                line=number,
                hint="write a path, a space and a label",
            )
        if parts:
            yield number, normal_source_path(parts[0].rstrip(), locate, number), parts[1]
