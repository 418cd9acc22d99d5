"""Columns of a list or table: convert labels to numbers, look up file sizes, check paths."""

from __future__ import annotations

import os
import stat
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, count
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dataprep import storage
from dataprep.labels.columns import Locate
from dataprep.sources.base import Source
from manifests.errors import CallError, SourceError
from manifests.json_members import shorten
from manifests.remote import is_url, join_path, normal_path
from manifests.schema import UNREADABLE

#: Parts of a path that `os.path.normpath` removes.
_NOT_NORMAL = r"(^|/)\.{0,2}(/|$)"


def normalize_paths(path: pa.Array, locate: Locate) -> pa.Array:
    """Return paths as `os.path.normpath` does, large_string [n]."""
    if not pc.any(pc.match_substring_regex(path, _NOT_NORMAL)).as_py():
        return path
    rows = count()
    parts = [
        pa.array((normal_source_path(text, locate, next(rows)) for text in part), pa.large_string())
        for part in _slices(path)
    ]
    return concat(parts)


def normal_source_path(text: str, locate: Locate, row: int) -> str:
    """Return a path as `os.path.normpath` does, and a URL in its normal form.

    Raises:
        SourceError: the URL cannot be read, or may contain a credential.

    """
    if not is_url(text):
        return os.path.normpath(text)
    try:
        return normal_path(text)
    except CallError as error:
        file, line = locate(row)
        raise SourceError(error.message, file=file, line=line, hint=error.hint) from None


#: `file_stats` stops after this many files that cannot be read: most likely, --image-root is wrong.
MAX_MISSING = 100_000

#: `stats_of` a file that cannot be read.
NO_STATS = (UNREADABLE, -1, -1)


def stats_of(status: os.stat_result) -> tuple[int, int, int]:
    """Return size, modification time in ns, and inode.

    The inode without its highest bit, to fit into int64.
    """
    return status.st_size, status.st_mtime_ns, status.st_ino & 0x7FFFFFFFFFFFFFFF


def file_stats(root: str, path: pa.Array) -> NDArray[np.int64]:
    """Return size, modification time in ns, and inode of each file, int64 [n, 3].

    `UNREADABLE` and -1 if not a file.
    """
    stats = np.full((len(path), 3), NO_STATS, np.int64)
    rows: Iterable[tuple[int, str]] = enumerate(_iterate(path))
    if is_url(root) or pc.any(pc.match_substring(path, "://")).as_py():
        from dataprep.sources.remote_stats import find_objects, split_urls

        names = path.to_pylist()
        folders, local = split_urls(root, names)
        for row, status in find_objects(folders):
            stats[row] = stats_of(status)
        rows = ((row, names[row]) for row in local)
    missing = 0
    for row, name in rows:
        try:
            status = os.stat(os.path.join(root, name))
        except (OSError, ValueError):
            missing += 1
            if missing > MAX_MISSING:
                break
            continue
        if stat.S_ISREG(status.st_mode):
            stats[row] = stats_of(status)
    return stats


def _iterate(column: pa.Array) -> Iterator[str]:
    return chain.from_iterable(_slices(column))


def _slices(column: pa.Array) -> Iterator[list[str]]:
    return (column.slice(at, 1 << 16).to_pylist() for at in range(0, len(column), 1 << 16))


def check_paths(source: Source, locate: Locate) -> None:
    """Check that every image exists and that no path occurs twice.

    Raises:
        SourceError: an image is missing, or a path occurs twice.

    """
    missing = np.flatnonzero(source.size == UNREADABLE)
    if len(missing):
        row = int(missing[0])
        file, line = locate(row)
        name = source.path[row].as_py()
        total = f"{len(missing):,}" if len(missing) <= MAX_MISSING else f"more than {MAX_MISSING:,}"
        raise SourceError(
            f"image {shorten(name, 300)} does not exist in folder {shorten(source.root, 300)}"
            f" ({total} in total)",
            file=file,
            line=line,
            hint=_missing_hint(source.root, name),
        )
    path = _absolute_twins(source)
    counts = pc.value_counts(path)
    if len(counts) < len(path):
        repeated = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
        rows = np.flatnonzero(np.asarray(pc.equal(path, repeated[0])))
        (file, line), (first, first_line) = locate(int(rows[1])), locate(int(rows[0]))
        raise SourceError(
            f"image {shorten(repeated[0].as_py(), 300)} is listed twice ({len(repeated):,} in"
            " total)",
            file=file,
            line=line,
            hint=f"remove this one or {os.path.basename(first)}"
            + (f", line {first_line}" if first_line else ""),
        )


def _absolute_twins(source: Source) -> pa.Array:
    """Return the paths.

    If any is absolute, all as absolute paths in their real folders, so that twins are equal.
    """
    if not pc.any(pc.match_substring_regex(source.path, "^/|://")).as_py():
        return source.path
    real = lru_cache(1 << 16)(os.path.realpath)
    parts = []
    for at in range(0, len(source.path), 1 << 16):
        names = source.path.slice(at, 1 << 16).to_pylist()
        paths = (join_path(source.root, name) for name in names)
        full = [
            (
                path
                if is_url(path)
                else os.path.join(real(os.path.dirname(path)), os.path.basename(path))
            )
            for path in paths
        ]
        parts.append(pa.array(full, pa.large_string()))
    return concat(parts)


def _missing_hint(root: str, name: str) -> str:
    forms: tuple[Literal["NFC", "NFD"], ...] = ("NFC", "NFD")
    for form in forms:
        if unicodedata.normalize(form, name) != name and storage.is_file(
            join_path(root, unicodedata.normalize(form, name))
        ):
            return (
                f"a file of this name exists in the Unicode form {form}; write the list in that"
                " form"
            )
    return "set --image-root to the folder that paths are relative to, or remove the line"


def concat(arrays: Sequence[pa.Array]) -> pa.Array:
    """Concatenate columns of text. The result is empty if there are no columns."""
    return pa.concat_arrays(arrays) if arrays else pa.array([], pa.large_string())
