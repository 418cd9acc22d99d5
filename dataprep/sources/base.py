"""The samples to convert as columns, `Source`, and the selection of samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dataprep import spool
from dataprep.containers import (
    Location,
    ReaderName,
    SourceImages,
    location_table,
    locations_of,
)
from dataprep.labels.base import LabelKind
from dataprep.labels.columns import number_labels
from dataprep.labels.kinds import kind_with
from dataprep.options import SourceOptions
from manifests.errors import SourceError
from manifests.labels import LabelType
from manifests.pixels import RGB8, PixelKind
from manifests.process.text import plural
from manifests.records import record
from manifests.schema import TABLE_COLUMNS, split_order

#: Names of folders, files, classes or splits.
Names = Sequence[str]

#: Names of classes in label order, of splits or of columns, or messages.
Texts = tuple[str, ...]

#: A row of ``rejected.jsonl``: ``source``, ``reason`` and ``detail``.
RejectedRow = dict[str, str]

#: A column of integers.
Integers = NDArray[np.int64]

#: Default names of the label column. A column with one of these names is not also kept as an extra
#: column.
LABEL_COLUMN_NAMES = ("label", "class", "target")

#: Names that sample tables and records already use, so extra columns cannot have them.
RESERVED_COLUMNS = (*TABLE_COLUMNS, "class")

#: Column whose equal values are the frames of one clip, and column of their numbers.
CLIP, FRAME = "clip", "frame"

#: Longest name of an extra column, in bytes: `dataprep index` reads TFRecord features with names of
#: up to 127 bytes.
MAX_COLUMN_NAME = 100


@record
class Source:
    """Samples to convert: a table of n rows, sorted by path within a class or split, or in the order of a list.

    Attributes:
        root: folder that paths are relative to.
        layout: name of the recognized layout, to show to the user.
        table: the samples, as `sample_table` makes it. The properties `path` to `extra` are its
            columns.
        classes: class names in label order.
        splits: split names; `split` contains indices into them.
        notices: messages for the user, one line each.
        rejected: rows for ``rejected.jsonl``: files that the scan itself rejected.
        folders: device and inode of each folder that was scanned; the output must not be inside
            one. Empty if the images were not found by a scan.
        label_type: what the labels are.
        label_origin: where the labels come from, to show to the user: ``"column 'tags', separated
            by '|'"``.
        kind: what a pixel is, if the images are pixels that are not encoded.
        pixels: height, width and channels if the images are pixels that are not encoded. `None` if
            they are encoded.
        image_names: names of the images of each sample, if there are several. `path` and the other
            columns are about the first one; an extra column of `LabelKind.other_sources` has the
            paths of each other one, null for a sample without it.
        prepared: whether the source is a dataset of this project. Then columns that a conversion
            adds are replaced.

    """

    root: str
    layout: str
    table: pa.Table
    classes: Texts = ()
    splits: Texts = ("train",)
    notices: tuple[str, ...] = ()
    rejected: tuple[RejectedRow, ...] = ()
    folders: frozenset[tuple[int, int]] = frozenset()
    label_type: LabelType = "class"
    label_origin: str = ""
    pixels: tuple[int, int, int] | None = None
    kind: PixelKind = RGB8
    image_names: Texts = ()
    prepared: bool = False

    def __len__(self) -> int:
        return len(self.table)

    @property
    def path(self) -> pa.Array:
        """Paths, large_string [n], relative to `root` unless absolute."""
        return one_array(self.table["path"])

    @property
    def label(self) -> NDArray[np.int32]:
        """Labels, int32 [n], 0 to ``len(classes) - 1``; zeros if `label_type` is not ``"class"``."""
        return np.asarray(one_array(self.table["label"]))

    @property
    def split(self) -> NDArray[np.int8]:
        """Splits, int8 [n], 0 to ``len(splits) - 1``."""
        return np.asarray(one_array(self.table["split"]))

    @property
    def size(self) -> Integers:
        """File sizes in bytes, int64 [n]; `UNREADABLE` if a size is not known."""
        return np.asarray(one_array(self.table["size"]))

    @property
    def bytes(self) -> int:
        """Total size in bytes of all images whose size is known."""
        return int(self.size.clip(min=0).sum())

    @property
    def stamp(self) -> Integers | None:
        """Modification time in ns and inode of each file, int64 [n, 2], -1 if not known.

        With masks or depth maps, numbers that change with the times and inodes of either file. Two
        runs compare them to find files that were replaced by others of the same size. `None` if the
        source cannot tell.
        """
        if "stamp" not in self.table.column_names:
            return None
        return np.asarray(one_array(self.table["stamp"]).flatten()).reshape(-1, 2)

    @property
    def group(self) -> Integers | None:
        """Numbers, int64 [n]: images with equal numbers are fast to read one after the other.

        They are in one row group of a Parquet file, for example. `None` if the order does not matter.
        """
        return self._numbers("group")

    @property
    def copies(self) -> Integers | None:
        """The smallest row of the images that are copies of each other, int64 [n].

        `None` if the images were not compared.
        """
        return self._numbers("copies")

    @property
    def location(self) -> pa.Table | None:
        """Where the images are inside containers: the columns of `location_schema`.

        `path` then names the container and the image in it, for messages and the ``source`` column.
        `None` if every image is a file of its own.
        """
        return self._part("location")

    @property
    def measured(self) -> pa.Table | None:
        """Columns ``width`` and ``height`` of the images in pixels; `None` if they are not known."""
        return self._part("measured")

    @property
    def extra(self) -> pa.Table:
        """The extra columns of the source, and the labels if they are not classes.

        The labels are in the columns of `manifests.labels.LabelSchema`; with masks and depth maps,
        there is the column ``mask_source``.
        """
        extra = self._part("extra")
        return pa.table({}) if extra is None else extra

    @property
    def has_videos(self) -> bool:
        """Whether samples are frames of videos. Then `group` is the number of the video."""
        reader = None if self.location is None else self.location["reader"]
        return reader is not None and "video" in pc.unique(reader).to_pylist()

    def clips(self) -> Integers | None:
        """Return the first row of the clip of each sample, int64 [n]; `None` if no clip has two frames.

        A clip is in one split. A sample without a clip is one of its own.
        """
        extra = self.extra
        if not {CLIP, FRAME} <= {*extra.column_names}:
            return None
        codes = one_array(extra[CLIP]).dictionary_encode().indices.fill_null(-1)
        code = np.asarray(codes).astype(np.int64)
        alone = np.flatnonzero(code < 0)
        code[alone] = len(code) + alone
        _, first, of = np.unique(
            code * len(self.splits) + self.split, return_index=True, return_inverse=True
        )
        return None if len(first) == len(code) else first[of]

    def images(self, rows: Integers) -> SourceImages:
        """Return the images in some rows, int64 [N]."""
        locations: list[Location | None] = [None] * len(rows)
        if self.location is not None:
            locations = locations_of(self.location, rows)
        return SourceImages(
            root=self.root,
            paths=self.path.take(pa.array(rows)).to_pylist(),
            sizes=self.size[rows].tolist(),
            locations=locations,
        )

    def _numbers(self, name: str) -> Integers | None:
        if name not in self.table.column_names:
            return None
        return np.asarray(one_array(self.table[name]))

    def _part(self, prefix: str) -> pa.Table | None:
        """Return the columns ``prefix:NAME`` under their own names; `None` if there are none."""
        columns = {}
        for name in self.table.column_names:
            of, _, own = name.partition(":")
            if own and of == prefix:
                columns[own] = self.table[name]
        return pa.table(columns) if columns else None

    @property
    def labels(self) -> LabelKind:
        """What the stages ask about the labels."""
        return kind_with(self.label_type, self.image_names)

    def class_pairs(self) -> tuple[Integers, Integers]:
        """Return the row and the class of each label; both empty if samples have no classes."""
        column = self.labels.class_column
        if column is None:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        return self.labels.pairs(self.label if self.labels.is_class else self.extra[column])

    def locate(self, row: int) -> tuple[str, int | None]:
        """Return the path of a row, to name it in errors; see `dataprep.labels.columns.Locate`."""
        return f"{self.root}/{self.path[row]}", None

    def with_notices(self, *notices: str) -> Source:
        """Return the source with more messages for the user."""
        return replace(self, notices=(*self.notices, *notices))

    def with_columns(self, **columns: Any) -> Source:
        """Return the source with other columns, named like the properties. `None` removes a column.

        ``extra:NAME`` is one extra column, which stays where it is.
        """
        kept = dict(zip(self.table.column_names, self.table.columns, strict=True))
        for name, value in columns.items():
            for own in self.table.column_names:
                if own.startswith(f"{name}:") or (own == name and value is None):
                    kept.pop(own, None)
            kept |= _arrays(name, value)
        return replace(self, table=pa.table(kept))


def sample_table(path: pa.Array, **columns: Any) -> pa.Table:
    """Return the table of a source of n samples.

    Args:
        path: paths, large_string [n].
        columns: other columns, named like the properties of `Source`: arrays of n values, or a
            table for several columns. By default, labels and splits are zeros; others are left out.

    """
    label, split = np.zeros(len(path), np.int32), np.zeros(len(path), np.int8)
    table = {"path": path}
    for name, value in {"label": label, "split": split, **columns}.items():
        table |= _arrays(name, value)
    return pa.table(table)


def _arrays(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the columns of a table of samples, by their names, that contain a value of a property."""
    if isinstance(value, pa.Table):
        for own in value.column_names:
            yield f"{name}:{own}", one_array(value[own])
    elif isinstance(value, np.ndarray) and value.ndim == 2:  # stamps
        flat = pa.array(np.ascontiguousarray(value).reshape(-1))
        yield name, pa.FixedSizeListArray.from_arrays(flat, value.shape[1])
    elif value is not None:
        yield name, pa.array(value) if isinstance(value, np.ndarray) else value


class NamedSource(NamedTuple):
    """A source, and what the user gave as ``--src``.

    Attributes:
        src: the path or URL.
        source: the samples.

    """

    src: str
    source: Source


# --- kinds of sources -----------------------------------------------------------------------------


class Kind(NamedTuple):
    """A kind of source.

    Attributes:
        name: what such a source is: ``"a folder of LMDB databases"``.
        detect: returns what `read` needs, by a path, the names of the folders in it and the
            options; false if the source is of another kind. It may refuse what is known not to be
            a source.
        read: lists the samples of a path, with what `detect` returned.
        takes: the options that it takes, of the options that only some kinds take.
        example: files of such a source, for the docs, one path a line.
        in_archives: whether such a source may be in a tar or zip archive.

    """

    name: str
    detect: Callable[[str, Names, SourceOptions], Any]
    read: Callable[[str, Any, SourceOptions], Source]
    takes: Names = ()
    example: str = ""
    in_archives: bool = True


def no_images(src: str, rejected: Sequence[RejectedRow] = ()) -> SourceError:
    """Return the error for a source without images that can be used."""
    message = "the source contains no images"
    hint = (
        "check --src, or --image-root for a list; files without .jpg, .png or another suffix of"
        " images in their names are not read as images"
    )
    for row in rejected[:1]:
        message = f"all images are rejected: {row['source']}: {row['detail']}"
        hint = "correct what is said about the images"
    return SourceError(message, file=src, hint=hint)


# --- arrays and rows ------------------------------------------------------------------------------


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column of a table as one array, without a copy if it is one."""
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def text_array(texts: Iterable[str | None]) -> pa.Array:
    """Return a column of text, large_string [n]."""
    return pa.array(texts, pa.large_string())


def concat(arrays: Sequence[pa.Array]) -> pa.Array:
    """Concatenate columns of text. The result is empty if there are no columns."""
    return pa.concat_arrays(arrays) if arrays else pa.array([], pa.large_string())


_Name = TypeVar("_Name", str, int)


def positions(names: Iterable[_Name]) -> dict[_Name, int]:
    """Return the number of each name or id, from 0."""
    return {name: number for number, name in enumerate(names)}


def numbered(counts: Sequence[int]) -> NDArray[np.int8]:
    """Return 0 as often as the first count says, then 1, and so on: the splits of a source, int8 [n]."""
    return np.repeat(np.arange(len(counts), dtype=np.int8), counts)


def first_names(names: Names, most: int = 5) -> str:
    """Return the first names to show, and dots if there are more."""
    return ", ".join(names[:most]) + ", ..." * (len(names) > most)


def take_rows(source: Source, rows: Integers) -> Source:
    """Return a source with some samples, in this order.

    Splits without samples are removed, classes are not.

    Args:
        source: the samples.
        rows: rows to keep, int64 [N].

    """
    taken = replace(source, table=spool.take(source.table, rows))
    # Splits are counted anew, without the empty ones.
    kept, number = np.unique(taken.split, return_inverse=True)
    splits = tuple(map(source.splits.__getitem__, kept.tolist()))
    return replace(taken.with_columns(split=number.astype(np.int8)), splits=splits)


def reject_labels(source: Source, reasons: Mapping[int, str]) -> Source:
    """Return a source without some images; `reasons` says what is wrong with the label of each, by its row."""
    if not reasons:
        return source
    rejected = []
    for row, detail in sorted(reasons.items()):
        path = source.path[row].as_py()
        rejected.append({"source": path, "reason": "bad-label", "detail": detail})
    kept = np.delete(np.arange(len(source)), [*reasons])
    source = replace(take_rows(source, kept), rejected=(*source.rejected, *rejected))
    first = rejected[0]
    return source.with_notices(
        f"{plural(len(rejected), 'image')} rejected: {first['source']}: {first['detail']}"
    )


# --- images in containers -------------------------------------------------------------------------


@record
class Container:
    """A file with images, in stored order.

    Attributes:
        name: its path, relative to the root of the source.
        split: name of the split.
        stamp: modification time in ns and inode of the file.
        images: what `image_table` makes.

    """

    name: str
    split: str
    stamp: tuple[int, ...]
    images: pa.Table


def image_table(names: Iterable[str], places: Any, **columns: Any) -> pa.Table:
    """Return the images of a container.

    Args:
        names: the name of each image in the container.
        places: position and length as in `Location`, and size of each image; one after the other.
        columns: other columns.

    """
    position, length, size = np.array(places, np.int64).reshape(-1, 3).T
    images = {"name": text_array(names), "position": position, "length": length, "size": size}
    return pa.table({**images, **columns})


_Container = TypeVar("_Container", bound=Container)


def in_split_order(files: Sequence[_Container]) -> list[_Container]:
    """Return containers by their splits, and in the same order within a split."""
    order = split_order({file.split for file in files})
    return sorted(files, key=lambda file: order.index(file.split))


def stored_source(
    root: str,
    layout: str,
    reader: ReaderName,
    files: Sequence[Container],
    *,
    key: bytes = b"",
    **columns: Any,
) -> Source:
    """Return the images in containers.

    Args:
        root: as in `Source`.
        layout: as in `Source`.
        reader: how the containers are read.
        files: the containers, by split.
        key: as in `Location`, if the images have none.
        columns: other columns, as in `sample_table`.

    """
    names, splits, stamps, tables = [], [], [], []
    for file in files:
        names.append(file.name)
        splits.append(file.split)
        stamps.append(file.stamp)
        tables.append(file.images)
    order = tuple(dict.fromkeys(splits))
    # The number of the container of each image.
    number = np.repeat(np.arange(len(files), dtype=np.int32), [*map(len, tables)])
    images = pa.concat_tables(tables).combine_chunks()
    container = pa.DictionaryArray.from_arrays(number, text_array(names))
    places: dict[str, Any] = {"key": key}
    for name in ("position", "length", "key"):
        if name in images.column_names:
            places[name] = images[name]
    given = {
        "split": np.array([*map(order.index, splits)], np.int8)[number],
        "size": images["size"],
        "stamp": np.array(stamps, np.int64)[number],
        "location": location_table(container, reader, **places),
        **columns,
    }
    table = sample_table(joined_paths(container, images["name"]), **given)
    return Source(root=root, layout=layout, table=table, splits=order)


def joined_paths(folder: pa.Array, name: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return ``FOLDER/NAME`` of each row, large_string [n]."""
    text = pa.large_string()
    slash = pa.scalar("/", text)
    return pc.binary_join_element_wise(folder.cast(text), one_array(name).cast(text), slash)


def with_classes(source: Source, text: pa.Array, options: SourceOptions) -> Source:
    """Return a source whose classes are text, large_string [n]; see `number_labels`."""
    label, classes = number_labels(
        text, options.classes, source.locate, max_classes=options.max_classes
    )
    return replace(source.with_columns(label=label), classes=classes)


# --- several sources ------------------------------------------------------------------------------


def join_sources(parts: Sequence[Source]) -> Source:
    """Return one source with the samples of all parts, in order, and the header of the first part.

    A column that a part does not have is null there.
    """
    if len(parts) == 1:
        return parts[0]
    splits = split_order({*chain.from_iterable(part.splits for part in parts)})
    tables = []
    notices, rejected, folders = parts[0].notices, parts[0].rejected, parts[0].folders
    for part in parts:
        number = np.array([*map(splits.index, part.splits)], np.int8)
        tables.append(part.with_columns(split=number[part.split]).table)
    for part in parts[1:]:
        notices += part.notices
        rejected += part.rejected
        folders |= part.folders
    # The dictionaries of columns of text become one.
    joined = pa.concat_tables(tables, promote_options="permissive")
    return replace(
        parts[0],
        splits=splits,
        table=spool.combine(joined.unify_dictionaries()),
        notices=notices,
        rejected=rejected,
        folders=folders,
    )
