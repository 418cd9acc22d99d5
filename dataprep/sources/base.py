"""The records of this package, `Source` and `SourceOptions`, and the selection of samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataprep.labels.columns import LabelOptions
from manifests.labels import LabelType
from manifests.schema import TABLE_COLUMNS

#: Default names of the label column. A column with one of these names is not also kept as an extra
#: column.
LABEL_COLUMN_NAMES = ("label", "class", "target")

#: Names that sample tables and records already use, so extra columns cannot have them.
RESERVED_COLUMNS = (*TABLE_COLUMNS, "class")

#: Longest name of an extra column, in bytes: `dataprep index` reads TFRecord features with names of
#: up to 127 bytes.
MAX_COLUMN_NAME = 100


@dataclass(frozen=True)
class SourceOptions(LabelOptions):
    """How to read a source that does not follow the defaults, and its labels: `LabelOptions`.

    Attributes:
        image_root: folder that the paths of a list or table are relative to; `None` is the folder
            of the list.
        path_column: column of a table with the path of each image; `None` tries common names.
        label_column: column of a table, or part of `pattern`, with the label; `None` tries common
            names.
        split_column: column of a table with the split; `None` is ``split`` if there is such a
            column.
        pattern: pattern of the file names, as in `dataprep.sources.patterns.parse_pattern`.

    """

    image_root: str | None = None
    path_column: str | None = None
    label_column: str | None = None
    split_column: str | None = None
    pattern: str | None = None


@dataclass(frozen=True)
class Source:
    """Samples to convert, as columns of n rows: sorted by path within a class or split, or in the order of a list.

    Attributes:
        root: folder that paths are relative to.
        layout: name of the recognized layout, to show to the user.
        classes: class names in label order.
        splits: split names; `split` contains indices into them.
        path: Arrow large_string [n], relative to `root` unless absolute.
        label: int32 [n], 0 to ``len(classes) - 1``; zeros if `label_type` is not ``"class"``.
        split: int8 [n], 0 to ``len(splits) - 1``.
        size: int64 [n], file size in bytes; `UNREADABLE` if it is not known.
        extra: Arrow table of n rows with the extra columns of the source, and with the labels if
            they are not classes, in the columns of `manifests.labels.LABEL_COLUMNS`. Of masks and
            depths, it has the column ``mask_source``.
        notices: messages for the user, one line each.
        rejected: rows for ``rejected.jsonl``: files that the scan itself rejected.
        scanned: whether the images were found by scanning `root`; if so, the output must not be
            inside `root`.
        stamp: int64 [n, 2], modification time in ns and inode of each file, -1 if not known; with
            masks or depth maps, numbers that change with those of either file. Two runs compare
            them to find files that were replaced by others of the same size. `None` if the source
            cannot tell.
        folders: device and inode of each folder that was scanned.
        location: where the images are inside containers: an Arrow table of n rows with the columns
            of `dataprep.containers.base.location_schema`. `path` then names the container and the
            image in it, for messages and the ``source`` column. `None` if every image is a file of
            its own.
        group: int64 [n]: images with the same number are fast to read one after the other, such as
            those in a row group of a Parquet file. `None` if the order does not matter.
        prepared: whether the source is a dataset of this project. Then columns that a conversion
            adds are replaced.
        measured: width and height of each image in pixels, if they are known: an Arrow table of n
            rows. `None` if they are not.
        copies: int64 [n]: the smallest row of the images that are copies of each other. `None` if
            the images were not compared.
        label_type: what the labels are.
        label_origin: where the labels come from, to show to the user: ``"column 'tags', separated
            by '|'"``.
        pixels: height, width and channels if the images are pixels that are not encoded. `None` if
            they are encoded.

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
    rejected: tuple[dict[str, str], ...] = ()
    scanned: bool = False
    stamp: NDArray[np.int64] | None = None
    folders: frozenset[tuple[int, int]] = frozenset()
    location: pa.Table | None = None
    group: NDArray[np.int64] | None = None
    prepared: bool = False
    pixels: tuple[int, int, int] | None = None
    measured: pa.Table | None = None
    copies: NDArray[np.int64] | None = None
    label_type: LabelType = "class"
    label_origin: str = ""

    def __len__(self) -> int:
        return len(self.label)

    @property
    def bytes(self) -> int:
        """Total size in bytes of all images whose size is known."""
        return int(self.size.clip(min=0).sum())


class NamedSource(NamedTuple):
    """A source, and what the user gave as ``--src``.

    Attributes:
        src: the path or URL.
        source: the samples.

    """

    src: str
    source: Source


# --- select samples of a source -------------------------------------------------------------------


def take_rows(source: Source, rows: NDArray[np.int64]) -> Source:
    """Return a source with some samples, in this order.

    Splits without samples are removed, classes are not.

    Args:
        source: the samples.
        rows: rows to keep, int64 [N].

    """
    split = source.split[rows]
    kept = np.unique(split)
    return replace(
        source,
        splits=tuple(source.splits[number] for number in kept.tolist()),
        path=source.path.take(rows),
        label=source.label[rows],
        split=np.searchsorted(kept, split).astype(np.int8),
        size=source.size[rows],
        extra=source.extra.take(rows) if source.extra.num_columns else source.extra,
        stamp=None if source.stamp is None else source.stamp[rows],
        location=None if source.location is None else source.location.take(rows),
        group=None if source.group is None else source.group[rows],
        measured=None if source.measured is None else source.measured.take(rows),
        copies=None if source.copies is None else source.copies[rows],
    )


def concat(arrays: Sequence[pa.Array]) -> pa.Array:
    """Concatenate columns of text. The result is empty if there are no columns."""
    return pa.concat_arrays(arrays) if arrays else pa.array([], pa.large_string())


# --- join sources of one dataset, such as archives of train and val -------------------------------


def join_sources(parts: Sequence[Source]) -> Source:
    """Return one source with the samples of all parts, in order.

    The parts have the same root, the same classes and no extra columns, and all of them or none
    have locations.
    """
    if len(parts) == 1:
        return parts[0]
    splits = tuple(dict.fromkeys(split for part in parts for split in part.splits))
    numbers = [
        np.array([splits.index(name) for name in part.splits], np.int8)[part.split]
        for part in parts
    ]
    locations = [part.location for part in parts if part.location is not None]
    stamps = [part.stamp for part in parts if part.stamp is not None]
    return replace(
        parts[0],
        splits=splits,
        path=concat([part.path for part in parts]),
        label=np.concatenate([part.label for part in parts]),
        split=np.concatenate(numbers),
        size=np.concatenate([part.size for part in parts]),
        stamp=np.concatenate(stamps) if len(stamps) == len(parts) else None,
        notices=tuple(notice for part in parts for notice in part.notices),
        rejected=tuple(row for part in parts for row in part.rejected),
        location=(
            pa.concat_tables(locations).unify_dictionaries().combine_chunks() if locations else None
        ),
    )
