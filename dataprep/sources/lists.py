"""List files, PaddleClas' among them: a line is ``path label``, split at its last blank."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataprep.sources.columns import Source, SourceOptions, Where, checked, concat, number_labels, sizes
from manifests.errors import SourceError
from manifests.schema import SPLIT_ALIASES


def read_lists(files: Sequence[str], root: str, options: SourceOptions) -> Source:
    """Read lists whose paths are relative to `root`; each is a split, named by the list's first word."""
    paths, labels, where = join_lists(files)
    path = concat(paths)
    label, classes = number_labels(labels, options.classes, where)
    return checked(
        Source(
            root=root,
            layout="PaddleClas lists" if len(files) > 1 else "list file",
            classes=classes,
            splits=tuple(_split_of_list(file) for file in files),
            path=path,
            label=label,
            split=np.repeat(np.arange(len(files), dtype=np.int8), [len(part) for part in paths]),
            size=sizes(root, path),
            extra=pa.table({}),
        ),
        where,
    )


def join_lists(files: Sequence[str]) -> tuple[list[pa.Array], pa.Array, Where]:
    """Read lists: the paths of each (large_string), the labels of all as text, and the line of every row."""
    columns = [_parse_list(file) for file in files]
    ends = np.cumsum([len(lines) for _, _, lines in columns])
    lines = np.concatenate([lines for _, _, lines in columns])

    def where(row: int) -> tuple[str, int]:
        return files[int(np.searchsorted(ends, row, side="right"))], int(lines[row])

    return [paths for paths, _, _ in columns], concat([labels for _, labels, _ in columns]), where


def _split_of_list(file: str) -> str:
    first = os.path.basename(file).split(".")[0].split("_")[0].lower()
    return SPLIT_ALIASES.get(first, "train")


def _parse_list(file: str) -> tuple[pa.Array, pa.Array, NDArray[np.int64]]:
    """Split lines ``path label`` at the last blank; give paths, labels as text, and line numbers."""
    paths: list[pa.Array] = []
    labels: list[pa.Array] = []
    numbers: list[NDArray[np.int64]] = []
    found = _list_lines(file)
    while chunk := list(islice(found, 1 << 16)):
        paths.append(pa.array([path for _, path, _ in chunk], pa.large_string()))
        labels.append(pa.array([label for _, _, label in chunk], pa.large_string()))
        numbers.append(np.array([number for number, _, _ in chunk], np.int64))
    return concat(paths), concat(labels), np.concatenate([*numbers, np.empty(0, np.int64)])


def _list_lines(file: str) -> Iterator[tuple[int, str, str]]:
    with open(file, "rb") as lines:
        for number, raw in enumerate(lines, 1):
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise SourceError(
                    f"is not valid UTF-8 ({error.reason} at byte {error.start} of the line)",
                    file=file, line=number, hint="save the list as UTF-8",
                ) from None  # fmt: skip
            parts = line.strip().rsplit(maxsplit=1)
            if len(parts) == 1 or "\0" in line:
                raise SourceError(
                    f"{line.strip()[:80]!r} is not `path label`", file=file, line=number, hint="add the label"
                )
            if parts:
                yield number, os.path.normpath(parts[0].rstrip()), parts[1]
