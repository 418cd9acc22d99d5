"""Array columns of a source: lists of numbers in tables, and `.npy` files beside the images."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataprep import storage
from dataprep.labels.columns import Locate, row_error
from dataprep.options import SourceOptions
from dataprep.sources.base import RESERVED_COLUMNS, Source
from dataprep.spool import STEP, TYPES, flat_values, release_pages, spooled
from manifests.arrays import ARRAY_NAME, MAX_ARRAY_LENGTH, arrays_of
from manifests.errors import CallError, SourceError
from manifests.files import FileKind, read_file
from manifests.json_members import shorten
from manifests.process.text import plural, suggest
from manifests.remote.url import join_path

#: An array of one image.
_ARRAY = FileKind("array", 1 << 26, SourceError, "give a file that `numpy.save` wrote")

_EQUAL = "give every image an array of the same length and type"


def array_column(
    column: pa.Array, name: str, locate: Locate, *, rounds: bool = False
) -> pa.FixedSizeListArray:
    """Return a column of lists of numbers as lists of a fixed length.

    Args:
        column: the lists, [n].
        name: name of the column.
        locate: returns the file and line of a row, for errors.
        rounds: whether fractions become float32, because the file states no type.

    Raises:
        SourceError: a row has no list, a number is missing or not finite, or the lists have not one
            length.

    """

    def fail(problem: str, row: int, hint: str = _EQUAL) -> SourceError:
        return row_error(locate, row, f"column {shorten(name)} {problem}", hint)

    if not ARRAY_NAME.fullmatch(name):
        what = "has arrays, and its name cannot be a part of the names of files"
        raise fail(what, 0, "rename it: up to 64 letters of ASCII, digits, - and _")
    if column.null_count:
        raise fail("has a row without an array", pc.index(pc.is_null(column), True).as_py())
    # Text files have no fixed length.
    values = flat_values(column)
    lengths = np.full(len(column), getattr(column.type, "list_size", 0))
    if not pa.types.is_fixed_size_list(column.type):
        lengths = np.asarray(pc.list_value_length(column))
    length = int(lengths[0]) if len(lengths) else 1
    wrong = np.flatnonzero(lengths != length)
    if len(wrong):
        row = int(wrong[0])
        raise fail(
            f"has an array of {plural(int(lengths[row]), 'value')}, but {length} before", row
        )
    if not 0 < length <= MAX_ARRAY_LENGTH:
        raise fail(f"has arrays of {length:,} values, not 1 to {MAX_ARRAY_LENGTH:,}", 0)
    if values.null_count:
        at = pc.index(pc.is_null(values), True).as_py()
        raise fail("has an array with an item without a value (null)", at // length)
    numbers = values.to_numpy()
    if rounds and numbers.dtype == np.float64:
        with np.errstate(over="ignore"):  # what is infinite then is refused
            numbers = numbers.astype(np.float32)
    at = first_not_finite(numbers)
    if at is not None:
        what = f"contains {numbers[at]}, which is not a finite number"
        raise fail(what, at // length, "correct the array, or leave the image out")
    return pa.FixedSizeListArray.from_arrays(pa.array(numbers), length)


def first_not_finite(values: Any) -> int | None:
    """Return the position of the first number of an array that is infinite or not a number."""
    flat = values.reshape(-1)
    for start in range(0, len(flat), STEP):
        finite = np.isfinite(flat[start : start + STEP])
        release_pages()
        if not finite.all():
            return start + int(finite.argmin())
    return None


# --- files beside the images ----------------------------------------------------------------------


def named_columns(options: SourceOptions) -> list[str]:
    """Return the columns of the source that ``--array`` names: without a pattern of files."""
    return [each for each in options.array if "=" not in each]


def with_arrays(source: Source, options: SourceOptions) -> Source:
    """Return a source with the arrays in files that ``--array`` names, and a message about each array.

    Raises:
        CallError: the option names no column, or its pattern is wrong.
        SourceError: a file is missing or damaged, or has another type or length than the first one.

    """
    columns: dict[str, Any] = {}
    for given in options.array:
        name, _, pattern = given.partition("=")
        if pattern:
            if source.location is not None:
                raise CallError(
                    f"--array {given}: the images of {source.root} are not files of their own",
                    hint="unpack them, or give the arrays as a column of the source",
                )
            _check_name(given, name, pattern, source)
            columns[name] = _read_files(source, name, pattern)
        elif name not in arrays_of(source.extra):
            known = arrays_of(source.extra)
            raise CallError(
                f"--array {given}: the source has no column of arrays of this name",
                hint=suggest(name, known) if known else "write --array NAME={stem}.npy for files",
            )
    if columns:
        own = dict(zip(source.extra.column_names, source.extra.columns, strict=True))
        source = source.with_columns(extra=pa.table({**own, **columns}))
    notices = []
    for name, kind in arrays_of(source.extra).items():
        notices.append(f"column {name}: an array of {kind} for each image")
    return source.with_notices(*notices)


def _check_name(given: str, name: str, pattern: str, source: Source) -> None:
    if not ARRAY_NAME.fullmatch(name) or name in (*RESERVED_COLUMNS, *source.extra.column_names):
        raise CallError(
            f"--array {given}: {name!r} cannot be the name of the array",
            hint="choose a name that no column has, of up to 64 letters, digits, - and _",
        )
    if "{stem}" not in pattern or not pattern.lower().endswith(".npy"):
        raise CallError(
            f"--array {given}: the pattern is not the name of an .npy file with {{stem}} in it",
            hint="{stem} is the path of the image without its suffix, for example"
            " --array embedding={stem}.npy",
        )


def _read_files(source: Source, name: str, pattern: str) -> pa.FixedSizeListArray:
    """Return the arrays in the files that a pattern names, [n] lists, each checked against the first one."""
    paths = []
    for image in source.path.to_pylist():
        stem = os.path.splitext(image)[0]
        paths.append(join_path(source.root, pattern.replace("{stem}", stem)))
    arrays = storage.map_files(source.root, partial(_read_file, name), paths)
    if not paths:
        return spooled((), 1)
    first = next(arrays)

    def checked() -> Iterator[Any]:
        yield first[None]
        for path, array in zip(paths[1:], arrays, strict=True):
            if (array.dtype, len(array)) != (first.dtype, len(first)):
                raise SourceError(
                    f"array {name} has {len(array)} {array.dtype}, but {len(first)} {first.dtype}"
                    f" in {paths[0]}",
                    file=path,
                    hint=_EQUAL,
                )
            yield array[None]

    return spooled(checked(), len(first))


def _read_file(name: str, path: str) -> Any:
    """Return the array in a file, which has one dimension or only one that is longer than 1."""
    problem = "the file is missing"
    try:
        # A pickle would run code of whoever wrote the file.
        array = np.lib.format.read_array(io.BytesIO(read_file(path, _ARRAY)), allow_pickle=False)
    except FileNotFoundError:
        pass
    except (ValueError, EOFError, OverflowError, MemoryError, SyntaxError, TypeError) as error:
        problem = f"it is not an array of numbers ({str(error).splitlines()[0]})"
    except OSError as error:
        problem = f"the file cannot be read ({error.strerror})"
    else:
        problem = _problem(array)
        if not problem:
            return array.reshape(-1).astype(array.dtype.newbyteorder("="))
    raise SourceError(
        f"array {name}: {problem}", file=path, hint="write it again, or leave the image out"
    )


def _problem(array: Any) -> str:
    if array.dtype.name not in TYPES:
        return f"its type is {array.dtype}, not one of {', '.join(TYPES)}"
    if not 0 < array.size <= MAX_ARRAY_LENGTH or max(array.shape, default=1) != array.size:
        return f"its shape is {array.shape}, not one row of up to {MAX_ARRAY_LENGTH:,} values"
    at = first_not_finite(array)
    return "" if at is None else f"its value {at} is not a finite number"
