"""Ints and table columns of a batch, from what DALI's reader returns.

NumPy only: imports neither torch nor DALI.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loaders.arrays import Array, Bools, Float32s, Ints
from loaders.dataset.arrays import ArrayColumn, array_name
from loaders.dataset.captions import CaptionChoice, Captions, read_captions, with_weights
from loaders.dataset.labels import PLACED, READERS
from loaders.dataset.split import OpenSplit
from loaders.dataset.tables import TABLE_DTYPES, ListColumn, SampleTables
from manifests.errors import CallError, DamagedError
from manifests.labels import CAPTION_FIELD, CAPTIONS, LABEL_IMAGE, MAX_LABEL, place_columns
from manifests.process.text import suggest
from manifests.schema import COLUMN_PREFIX

#: Values of a field for a batch: numbers as an array [B], anything else as a list.
Values: TypeAlias = "Array | list[Any]"

#: Fields that the loader itself defines. Any other field is a column of the sample tables.
BUILT_IN_FIELDS = ("image", "label", "index", "valid")

#: DALI's ``source_info`` without the folder: for a file in a WebDataset shard, and for a record in
#: a TFRecord shard.
_MEMBER = re.compile(r"(.+?):(\d+):", re.DOTALL)
_RECORD = re.compile(r"(.+) at index (\d+)$", re.DOTALL)

_VERIFY = "run `dataprep verify` to find the damage"

#: Any number with this many decimal digits fits into int64.
_MAX_DIGITS = 18


class Fields:
    """The fields of a batch, except the images.

    Attributes:
        stored_label: whether DALI's reader must return the label that the shards store.
        source: whether DALI's reader must return the origin of each record (``source_info``).
        images: the fields that are images, in the order of the batch, with the name of each image
            of `manifests.labels.LabelSchema.others`, which is empty for the first one.
        label_image: what the label images are, if they are one of the fields. `None` if it is not.
        others: names of the images beside the first one that fields need.
        present: for other images that not all samples have, what returns for rows whether a sample
            has the image.
        has_boxes: whether the boxes, their labels or their number are among the fields.
        captions: the texts of the field ``"caption"`` of samples with several. `None` if it is not
            one of the fields.

    """

    def __init__(
        self,
        split: OpenSplit,
        tables: SampleTables,
        names: Sequence[str],
        *,
        planned: bool = False,
        mmap: bool = True,
        captions: tuple[CaptionChoice, str] = ("first", ""),
    ) -> None:
        """Find where each field comes from, and read the table columns that are needed.

        Args:
            split: the split.
            tables: the sample tables of the split.
            names: names of the fields.
            planned: whether a sampler gives the rows of each batch. Ints then come from the
                tables, not the records.
            mmap: whether to map files of arrays.
            captions: which of the texts of a sample the field ``"caption"`` has, and the column
                with their weights, which is empty without one.

        Raises:
            CallError: a field is not a column of the sample tables, or the weights do not fit.
            DamagedError: a sample table that is needed is missing or damaged.

        """
        self._split = split
        manifest = split.manifest
        labels = manifest.labels
        # Fields that follow the pixels of the image.
        placed = set(names).intersection(labels.fields) if labels.is_placed else set()
        self.has_boxes = bool(placed) and labels.name in PLACED
        self.label_image = labels.name if placed and labels.has_image else None
        self.images = image_fields(split, names)
        other_images = dict.fromkeys(filter(None, self.images.values()))
        self.others = (*((LABEL_IMAGE,) if self.label_image else ()), *other_images)
        valid = image_fields(split, names, "valid")
        self._boxes: dict[str, ListColumn] = {}
        if self.has_boxes:
            self._boxes = tables.list_columns(list(labels.columns))
        in_records = labels.is_class and manifest.components.label is not None
        self.stored_label = "label" in names and in_records and not planned
        used = {*placed, *BUILT_IN_FIELDS, *self.images, *valid}
        columns = [name for name in names if name not in used]
        if "label" in names and not self.stored_label:
            columns.append("label")
        # DALI's pipeline must have an output, so it returns the origin if nothing else is read.
        has_output = self.stored_label or bool(self.images) or self.label_image is not None
        has_rows = bool(columns) or "index" in names or self.has_boxes or bool(valid)
        self.source = not planned and (has_rows or not has_output)
        #: How each field comes from the rows of a batch.
        self._readers: dict[str, Callable[[Ints], Values]] = {}
        if "index" in names:
            self._readers["index"] = lambda rows: rows
        places: list[str] = []
        if planned and not split.is_remote:
            for image in set(self.images.values()):
                places += place_columns(image)
        self.captions = self._find_captions(columns, tables, *captions)
        self._find_columns(tables, self._without_arrays(columns, mmap=mmap), places)
        for field, name in valid.items():
            self._readers[field] = partial(_take, sizes_of(tables, name) > 0)
        self.present: dict[str, Callable[[Ints], Bools]] = {}
        for name in other_images:
            has_image = sizes_of(tables, name) > 0
            if not has_image.all():
                self.present[name] = has_image.__getitem__
        self._row_finder = None
        if self.source:
            offsets = tables.columns(["offset"], requested_by="fields")["offset"]
            self._row_finder = RowFinder(split, offsets)

    def _find_captions(
        self, columns: list[str], tables: SampleTables, choice: CaptionChoice, weights: str
    ) -> Captions | None:
        """Return the captions if a field is one of several texts, and remove it from `columns`."""
        if CAPTION_FIELD not in columns:
            return None
        named = tables.column_names
        # A column with the name of the field is no list of texts.
        is_joined = CAPTIONS in named and CAPTION_FIELD not in named
        if not is_joined and CAPTIONS not in self._split.manifest.labels.columns:
            return None
        columns.remove(CAPTION_FIELD)
        array = array_name(self._split, weights)
        captions = read_captions(tables, choice, "" if array else weights)
        if array:
            numbers = ArrayColumn(self._split, array, mmap=False)
            values = numbers.take(np.arange(self._split.samples))
            lengths = np.full(len(values), values.shape[1])
            captions = with_weights(captions, weights, values.reshape(-1), lengths)
        return captions

    def _without_arrays(self, names: Sequence[str], *, mmap: bool) -> list[str]:
        """Set how arrays come from their files; return the names of the other columns."""
        others = []
        for name in names:
            array = array_name(self._split, name)
            if array is None:
                others.append(name)
            else:
                self._readers[name] = ArrayColumn(self._split, array, mmap=mmap).take
        return others

    def _find_columns(
        self, tables: SampleTables, names: Sequence[str], places: Sequence[str]
    ) -> None:
        """Read columns, and set how fields come from them.

        The columns `places` are read with those that the format defines: each table is read once.
        """
        labels = self._split.manifest.labels
        classes = len(self._split.manifest.classes)
        known = [*BUILT_IN_FIELDS, *self._split.manifest.arrays]
        if not labels.is_class:
            known.remove("label")
        lists = []
        defined = []
        others = []
        for name in names:
            if not labels.is_placed and labels.columns.get(name) in READERS:
                lists.append(name)
            elif tables.stored_name(name, "fields", known) in TABLE_DTYPES:
                defined.append(name)  # not a column of the source that is called `label`
            else:
                others.append(name)
        for name, column in tables.list_columns(lists).items():
            self._readers[name] = partial(READERS[labels.columns[name]], column, classes=classes)
        for name, array in tables.columns(others, requested_by="fields").items():
            self._readers[name] = partial(_take, array)
        self._lazy, arrays = tables.lazy_columns([*defined, *(places if defined else ())])
        for name in defined:
            self._readers[name] = partial(_take, arrays[name], dtype=TABLE_DTYPES[name])

    def rows(self, source: Array) -> Ints:
        """Return the rows of records by their origin.

        Args:
            source: DALI's ``source_info``, uint8 [B, W], padded with zeros.

        Raises:
            DamagedError: a record is in no sample table.

        """
        if self._row_finder is None:
            raise TypeError("no field needs the rows")
        return self._row_finder.find(source)

    def boxes(self, rows: Ints | None, frames: Float32s) -> dict[str, Array]:
        """Return the boxes of a batch in its images.

        Args:
            rows: rows of the samples in the split, int64 [B].
            frames: how the transforms change coordinates, float32 [B, 5, 2]; see
                `loaders.dali.targets`.

        Returns:
            ``boxes``, float32 [B, n, 4], ``box_labels``, int64 [B, n], and ``box_counts``, int64
            [B], where n is the largest number of boxes of an image of the batch.

        """
        if rows is None:
            raise TypeError("boxes need the rows of the samples")
        return PLACED[self._split.manifest.label_type](self._boxes, rows, frames)

    def values(self, stored: Array | None, rows: Ints | None) -> dict[str, Values]:
        """Return the fields of a batch by name.

        All but ``"image"``, ``"valid"`` and the fields that follow the pixels of the image.

        Args:
            stored: labels as the reader returned them: int64 [B, 1], or text as uint8 [B, W].
                `None` if `stored_label` is false.
            rows: rows of the samples in the split, int64 [B]. `None` if no field needs them.

        Raises:
            DamagedError: a label is missing, not a number, or not a class of the dataset; or a
                table that was not read before is missing or damaged.

        """
        values: dict[str, Values] = {}
        if rows is not None:
            self._lazy.load_rows(rows)
            for name, read in self._readers.items():
                values[name] = read(rows)
        manifest = self._split.manifest
        if stored is not None:
            parse = parse_int_labels if manifest.format == "tfrecord" else parse_text_labels
            values["label"] = parse(stored) + manifest.components.label_offset
        if "label" in values and manifest.labels.is_class:
            values["label"] = self._checked(np.asarray(values["label"]))
        return values

    def _checked(self, labels: Ints) -> Ints:
        end = len(self._split.manifest.classes) or MAX_LABEL + 1
        # As unsigned numbers, negative labels are the largest.
        if labels.size and labels.astype(np.uint64).max() >= end:
            wrong = labels[(labels < 0) | (labels >= end)]
            raise DamagedError(
                f"a record of {self._split.folder} has the label {wrong[0]}, but labels go from 0"
                f" to {end - 1}",
                hint=_VERIFY,
            )
        return labels


def image_fields(split: OpenSplit, names: Sequence[str], kind: str = "image") -> dict[str, str]:
    """Return the fields ``image`` and ``image:NAME`` with the names of the images, empty for the first.

    The kind ``valid`` is about the fields ``valid:NAME``, which say which samples have an image.

    Raises:
        CallError: samples have no image of a name.

    """
    images = split.manifest.images
    found = {}
    for field in names:
        of, colon, name = field.partition(":")
        if of != kind or not (colon or kind == "image"):
            continue
        if colon and name not in images:
            has = f"the images {', '.join(images)}"
            hint = suggest(name, images)
            if not images:
                has = "one image"
                hint = 'use the field "image"'
            raise CallError(
                f'fields has "{field}", but each sample of {split.folder} has {has}', hint=hint
            )
        found[field] = "" if name in ("", *images[:1]) else name
    return found


def sizes_of(tables: SampleTables, name: str) -> Ints:
    """Return the length of an image of each sample in bytes, 0 without it. Reads all tables."""
    column = place_columns(name)[1]
    return tables.columns([column], requested_by="fields")[column]


def _take(array: Array, rows: Ints, *, dtype: str | None = None) -> Values:
    """Return the values of rows: numbers as an array, of a type if it is given, others as a list."""
    values = array[rows]
    if dtype is not None:
        values = values.astype(dtype, copy=False)
    if values.dtype == object:
        return list(values)
    return values


def shadowed_columns(
    tables: SampleTables,
    names: Sequence[str],
    of_patches: Sequence[str] = (),
    arrays: Collection[str] = (),
) -> list[str]:
    """Return a warning for each field that hides a column of the same name.

    Args:
        tables: the sample tables.
        names: names of the fields.
        of_patches: names of fields that say where the patches of images are.
        arrays: names of the array columns.

    """
    meanings = {
        "index": "the row of the sample in the split",
        "valid": "false for samples that fill up a batch",
        **dict.fromkeys(of_patches, "of the patches of the images"),
    }
    warnings = []
    for name, meaning in meanings.items():
        if name in names and (name in arrays or name in tables.column_names):
            warnings.append(
                f'the field "{name}" is {meaning}, not the column "{name}" of the sample tables;'
                f' that column is the field "{COLUMN_PREFIX}{name}"'
            )
    return warnings


def parse_int_labels(stored: Array) -> Ints:
    """Parse labels that are stored as int64 features of shape [B, 1].

    Raises:
        DamagedError: a record has no label.

    """
    # For records without the feature, DALI returns samples without a dimension.
    if stored.ndim != 2 or stored.shape[1] != 1:
        raise DamagedError(
            "records do not have the label feature that the manifest names", hint=_VERIFY
        )
    return stored[:, 0].astype(np.int64)


def parse_text_labels(stored: Array) -> Ints:
    """Parse labels that are stored as decimal ASCII: uint8 [B, W], padded with zeros.

    Raises:
        DamagedError: a label is not a decimal number.

    """
    texts = np.char.rstrip(_as_bytes(stored), b"\n")
    # NumPy's own parser also accepts spaces, signs and underscores.
    wrong = texts[~np.char.isdigit(texts) | (np.char.str_len(texts) > _MAX_DIGITS)]
    if wrong.size:
        raise DamagedError(
            f"the label of a record is not a decimal number ({bytes(wrong[0])!r})", hint=_VERIFY
        )
    return texts.astype(np.int64)


class RowFinder:
    """Finds the rows of records by DALI's ``source_info``: the shard, and an offset in it.

    Positions count the bytes of all shards as if they were one file, so one binary search finds all
    rows of a batch.
    """

    def __init__(self, split: OpenSplit, offsets: Ints) -> None:
        """Sort the images of the split by their position.

        Args:
            split: the split.
            offsets: offsets of the encoded images in their shards: the column ``offset`` of the
                sample tables.

        """
        # In a WebDataset shard, DALI gives the offset of the image itself. In a TFRecord shard, it
        # gives the offset of the record, and the first image after that offset belongs to the
        # record.
        self._exact = split.manifest.format == "webdataset"
        self._prefix = len(split.path(split.shards[0].file)) - len(split.shards[0].name)
        # Position of the first byte of each shard.
        starts = np.cumsum([0, *split.lengths[:-1]])
        self._starts = dict(
            zip((shard.name for shard in split.shards), starts.tolist(), strict=True)
        )
        positions = offsets + np.repeat(starts, split.counts)
        self._rows = np.argsort(positions)
        self._positions = positions[self._rows]

    def find(self, source: Array) -> Ints:
        """Return the rows of records.

        Args:
            source: DALI's ``source_info``, uint8 [B, W], padded with zeros.

        Raises:
            DamagedError: a record is in no sample table.

        """
        positions = np.array(list(map(self._position, _as_bytes(source).tolist())))
        nearest = np.minimum(np.searchsorted(self._positions, positions), len(self._positions) - 1)
        if self._exact and not np.array_equal(self._positions[nearest], positions):
            raise DamagedError(
                "a record is in an index file but not in the sample table of its shard",
                hint=_VERIFY,
            )
        return self._rows[nearest].astype(np.int64)

    def _position(self, source: bytes) -> int:
        text = source.decode("utf-8", "surrogateescape")[self._prefix :]
        match = (_MEMBER if self._exact else _RECORD).match(text)
        if match is None or match[1] not in self._starts:
            raise DamagedError(
                f"a record came from {text!r}, which is not a shard of the split", hint=_VERIFY
            )
        start: int = self._starts[match[1]]
        return start + int(match[2])


def _as_bytes(padded: Array) -> NDArray[np.bytes_]:
    # NumPy has no byte string of width 0.
    width = max(1, padded.shape[1])
    texts = np.zeros((len(padded), width), np.uint8)
    texts[:, : padded.shape[1]] = padded
    return texts.view(f"S{width}")[:, 0]
