"""List files, as PaddleClas uses them: each line is ``path label``, split at the last space or tab."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataprep.labels.columns import Locate, read_labels
from dataprep.sources.base import Source, SourceOptions
from dataprep.sources.columns import check_paths, concat, file_stats, normal_source_path
from dataprep.sources.label_columns import with_labels
from manifests.errors import SourceError
from manifests.files import SOURCE_LIST, read_lines
from manifests.schema import SPLIT_ALIASES


def read_lists(files: Sequence[str], root: str, options: SourceOptions) -> Source:
    """Read list files. Each is a split, named by the first word of its file name.

    Args:
        files: the list files.
        root: the folder that paths are relative to.
        options: `classes` and the label type apply.

    Raises:
        SourceError: a line or a label is not valid, or an image is missing or listed twice.

    """
    paths, labels, locate = parse_lists(files, has_labels=options.label_type != "none")
    path = concat(paths)
    read = read_labels(labels, "label", options, locate)
    stats = file_stats(root, path)
    source = Source(
        root=root,
        layout="PaddleClas lists" if len(files) > 1 else "list file",
        classes=(),
        splits=tuple(_split_of_list(file) for file in files),
        path=path,
        label=np.zeros(len(path), np.int32),
        split=np.repeat(np.arange(len(files), dtype=np.int8), [len(part) for part in paths]),
        size=stats[:, 0],
        stamp=stats[:, 1:],
        extra=pa.table({}),
    )
    check_paths(source, locate)
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
