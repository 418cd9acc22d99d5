"""Samples to prepare, as columns, and the checks that lists and tables share. No image is opened here."""

from __future__ import annotations

import os
import stat
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from manifests.errors import SourceError
from manifests.schema import TABLE_COLUMNS, UNREADABLE

#: A larger label is taken for a mistake: the manifest names every class up to it.
MAX_LABEL = 10_000_000

#: Columns that are taken for labels, and not carried along besides.
LABEL_COLUMNS = ("label", "class", "target")

#: Names that no further column may have: sample tables use them themselves.
RESERVED = (*TABLE_COLUMNS, "class")

#: A longer name of a column, in bytes, has no room in a TFRecord's header as it is read.
MAX_NAME = 100


@dataclass(frozen=True)
class SourceOptions:
    """How to read a source where it does not say so itself; names of columns, and paths."""

    image_root: str | None = None
    path_column: str | None = None
    label_column: str | None = None
    split_column: str | None = None
    classes: tuple[str, ...] | None = None
    pattern: str | None = None


@dataclass(frozen=True)
class Source:
    """Samples to prepare, as columns of one length n, in the order of their names (or of the list's lines).

    Attributes:
        root: folder that paths are relative to.
        layout: in words, how the source was understood.
        classes: names in label order.
        splits: names, in the order that `split` counts them.
        path: Arrow large_string [n], as the source names the image.
        label: int32 [n], 0 to len(classes) - 1.
        split: int8 [n].
        size: int64 [n], bytes of the file, `UNREADABLE` where it cannot be looked at.
        extra: Arrow table of n rows with whatever further columns the source carried.
        notices: what a user should be told, a sentence each.
        rejected: rows for ``rejected.jsonl`` known at the scan.
        scanned: whether it is what lies in `root` now, so that nothing may be written there.

    """

    root: str
    layout: str
    classes: tuple[str, ...]
    splits: tuple[str, ...]
    path: pa.Array
    label: NDArray[np.int32]
    split: NDArray[np.int8]
    size: NDArray[np.int64]
    extra: pa.Table
    notices: tuple[str, ...] = ()
    rejected: tuple[dict[str, str], ...] = field(default=())
    scanned: bool = False

    def __len__(self) -> int:
        return len(self.label)

    @property
    def bytes(self) -> int:
        """Total length of all images that could be looked at."""
        return int(self.size.clip(min=0).sum())


#: The file, and the line where it has lines, that names the sample in a row.
Where = Callable[[int], tuple[str, int | None]]


def number_labels(
    text: pa.Array, classes: tuple[str, ...] | None, where: Where
) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """Turn labels as text into numbers: all integers stand for themselves, names are numbered in sorted order."""
    integers = bool(pc.all(pc.match_substring_regex(text, r"^[+-]?[0-9]+$"), min_count=0).as_py())
    names_given = classes is not None and bool(pc.all(pc.is_in(text, pa.array(classes, text.type))).as_py())
    if integers and not names_given:
        return _integer_labels(text, classes, where)
    names = classes or tuple(sorted(pc.unique(text).to_pylist()))
    label = pc.index_in(text, pa.array(names, pa.large_string()))
    if label.null_count:
        row = pc.index(pc.is_null(label), True).as_py()
        file, line = where(row)
        raise SourceError(f"label {text[row].as_py()!r} is not in --classes", file=file, line=line, hint="add it there")
    return np.asarray(label).astype(np.int32), names


def _integer_labels(
    text: pa.Array, classes: tuple[str, ...] | None, where: Where
) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    limit = len(classes) if classes is not None else MAX_LABEL + 1
    digits = pc.replace_substring_regex(text, r"^\+?0*([0-9]+)$", r"\1")
    short = pc.less_equal(pc.utf8_length(digits), 9)
    value = np.asarray(pc.if_else(short, digits, "-1").cast(pa.int64()))
    wrong = np.flatnonzero((value < 0) | (value >= limit))
    if len(wrong):
        file, line = where(int(wrong[0]))
        bound = f"0 to {limit - 1}" + (", as --classes has it" if classes is not None else "")
        raise SourceError(
            f"label {text[int(wrong[0])].as_py()} is out of the range {bound} ({len(wrong):,} such)",
            file=file,
            line=line,
        )
    names = classes or tuple(str(number) for number in range(int(value.max(initial=-1)) + 1))
    return value.astype(np.int32), names


def sizes(root: str, path: pa.Array) -> NDArray[np.int64]:
    """Look at every path of a list; give lengths in bytes, int64, `UNREADABLE` where there is no regular file."""
    found = np.full(len(path), UNREADABLE, np.int64)
    for row, name in enumerate(_strings(path)):
        try:
            status = os.stat(os.path.join(root, name))
        except (OSError, ValueError):
            continue
        if stat.S_ISREG(status.st_mode):
            found[row] = status.st_size
    return found


def _strings(column: pa.Array) -> Iterator[str]:
    for at in range(0, len(column), 1 << 16):
        yield from column.slice(at, 1 << 16).to_pylist()


def checked(source: Source, where: Where) -> Source:
    """Find a missing image or one path twice, before anything is written."""
    missing = np.flatnonzero(source.size == UNREADABLE)
    if len(missing):
        row = int(missing[0])
        file, line = where(row)
        name = source.path[row].as_py()
        raise SourceError(
            f"there is no image {name!r} in {source.root} ({len(missing):,} such)",
            file=file,
            line=line,
            hint=_missing_hint(source.root, name),
        )
    counts = pc.value_counts(source.path)
    if len(counts) < len(source.path):
        twice = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
        rows = np.flatnonzero(np.asarray(pc.equal(source.path, twice[0])))
        (file, line), (first, first_line) = where(int(rows[1])), where(int(rows[0]))
        raise SourceError(
            f"names {twice[0].as_py()!r} a second time ({len(twice):,} such)",
            file=file,
            line=line,
            hint=f"it stands in {os.path.basename(first)}, line {first_line}, already: remove one",
        )
    return source


def _missing_hint(root: str, name: str) -> str:
    forms: tuple[Literal["NFC", "NFD"], ...] = ("NFC", "NFD")
    for form in forms:
        if unicodedata.normalize(form, name) != name and os.path.exists(
            os.path.join(root, unicodedata.normalize(form, name))
        ):
            return f"a file of that name in the Unicode form {form} is there: write the list in that form"
    return "name the folder that paths are relative to with --image-root, or remove the line"


def concat(arrays: Sequence[pa.Array]) -> pa.Array:
    """Join columns of text, none included."""
    return pa.concat_arrays(arrays) if arrays else pa.array([], pa.large_string())
