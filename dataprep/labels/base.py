"""`LabelKind`: what the stages ask about the labels of a dataset, and what most types answer.

A new type of label is a `manifests.labels.LabelSchema` with its columns, and a subclass of
`LabelKind` in `dataprep.labels.kinds` with the answers that differ. Workers that write shards
import this module, so Arrow and NumPy are imported where they are used.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self, TypeAlias

from dataprep.options import GEO_COLUMNS, STATISTICS_COLUMNS
from manifests.errors import CallError
from manifests.labels import (
    IMAGE_SUFFIX,
    LABEL_IMAGE,
    LABELS,
    MASK_SOURCE,
    LabelSchema,
    LabelType,
    arrow_type,
    find_wrong_value,
    place_columns,
)
from manifests.process.text import plural
from manifests.records import record

#: Columns of sample tables that records do not have.
_TABLE_ONLY = frozenset({*STATISTICS_COLUMNS, *GEO_COLUMNS})

if TYPE_CHECKING:
    import pyarrow as pa

    from dataprep.arrays import Float64Array, Int32Array, Int64Array
    from dataprep.images.base import ImageInfo
    from dataprep.images.downscale import Placement
    from dataprep.labels.columns import LabelColumn, Labels

#: Groups of numbers of approximately equal size.
_TENTHS = 10


class OtherImage(NamedTuple):
    """An image of a sample beside the first one: the label image, or another one, as it is stored.

    Attributes:
        name: its name, of `LabelSchema.others`.
        data: its bytes.
        info: its format and size.

    """

    name: str
    data: bytes
    info: ImageInfo

    @property
    def columns(self) -> dict[str, Any]:
        """Its columns of the sample table, except the place."""
        from awscrt.checksums import crc32c  # commands show their help without it

        _, size, checksum = place_columns(self.name)
        values = {size: len(self.data), checksum: crc32c(self.data)}
        # A label image has the size of its image.
        if self.name != LABEL_IMAGE:
            values[f"{self.name}_width"] = self.info.width
            values[f"{self.name}_height"] = self.info.height
        return values


@dataclass(slots=True, eq=False, repr=False)
class PendingSample:
    """A sample that is about to be written: its row of the sample table, without the offset.

    There is one for each image, so it is neither compared nor printed, and not a named tuple: a
    slot is read in half the time.

    Attributes:
        key: name of the sample, unique in the dataset.
        label: class index, from 0. `None` if the label is not a class.
        class_name: name of the class. Empty if the label is not a class.
        info: format, width and height of the image as stored.
        size: length of the image as stored, in bytes.
        crc32c: CRC-32C of these bytes.
        source: path of the image in the source.
        extra: values of the extra columns of the source, and of the columns of
            `manifests.labels.LabelSchema`.
        labels: what the stages ask about the label.
        class_names: names of the classes of a multi-label or of boxes.
        others: the label image, a mask or a depth, and the other images that the sample has, in
            stored order.

    """

    key: str
    label: int | None
    class_name: str
    info: ImageInfo
    size: int
    crc32c: int
    source: str
    extra: Mapping[str, Any]
    labels: LabelKind
    class_names: tuple[str, ...] = ()
    others: Sequence[OtherImage] = ()


#: A feature of a ``tf.train.Example``: its name, how it is encoded, and its value. ``"value"`` is
#: one text or integer that recurs in other records; the others are lists.
Feature: TypeAlias = tuple[bytes, Literal["value", "bytes", "floats", "integers"], Any]


@record
class LabelKind(LabelSchema):
    """Labels of one type, from the column of a source to the report.

    Attributes:
        column_names: columns of a table that are searched for labels if this type is asked for.
        foreign: names of features (TFRecord) and extensions (WebDataset) with such labels in shards
            of other tools, the most specific first. Empty if they are not read.
        copies_agree: whether copies of an image must have equal labels.
        stratification: how new splits are made, to show to the user. Empty for classes.
        feature: TFRecord feature of the label image. `None` if there is none.
        extension: extension of the WebDataset file that contains the label. `None` if only the
            ``.json`` does.
        class_member: member of the ``.json`` with the names of several classes. `None` if there is
            none.

    """

    column_names: ClassVar[tuple[str, ...]] = ()
    foreign: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    copies_agree: ClassVar[bool] = False
    stratification: ClassVar[str] = ""
    feature: ClassVar[str | None] = None
    extension: ClassVar[str | None] = None
    class_member: ClassVar[str | None] = None

    @classmethod
    def of(cls, label_type: LabelType) -> Self:
        """Return the record of a label type."""
        return cls(**asdict(LABELS[label_type]))

    # --- from a source --------------------------------------------------------------------------

    def read(self, column: LabelColumn) -> Labels:
        """Read the labels of a source from one column.

        Raises:
            CallError: columns cannot contain such labels.
            SourceError: a value cannot be a label of this type.

        """
        raise CallError(
            f"--label-type {self.name} needs a source with such labels, but column {column.name!r}"
            " has others",
            hint="leave out --label-type, or give a folder of this layout",
        )

    @property
    def source_columns(self) -> Mapping[str, str]:
        """Extra columns of a source with the labels, with the kind of their values.

        The columns of a label image are known when it is stored.
        """
        return {} if self.has_image else self.columns

    @cached_property
    def other_sources(self) -> tuple[str, ...]:
        """Extra columns of a source with the path of each of `others`."""
        return tuple(f"{name}{IMAGE_SUFFIX}" for name in self.others)

    def find_wrong_column(self, extra: pa.Table, classes: int, place: str) -> str | None:
        """Return what is wrong with the labels of a planned source; `None` if nothing is.

        Args:
            extra: the extra columns of the source.
            classes: labels must be less than this.
            place: what the columns belong to, for the message.

        """
        for name, kind in self.source_columns.items():
            if name not in extra.column_names or extra.schema.field(name).type != arrow_type(kind):
                return f"column {name!r} is missing or has a wrong type"
            if wrong := find_wrong_value(extra[name], kind, classes=classes):
                return f"column {name!r} of {place} {wrong.message}"
        for name in self.other_sources:
            if name not in extra.column_names or not _are_paths(extra[name], name):
                return f"column {name!r} is missing or has a wrong value"
        return None

    def renumber(self, column: pa.ChunkedArray, mapping: Int32Array) -> pa.Array:
        """Return a column of lists of classes in another numbering.

        Args:
            column: the column `class_lists`, [n].
            mapping: the new label of each label, int32 [classes]. Several may become one.

        """
        import numpy as np
        import pyarrow as pa

        from dataprep.labels.columns import Lists, lists_of_column

        # Numbers of classes become other numbers; the lists stay as long as they are.
        lists = lists_of_column(column.combine_chunks())
        labels = mapping[np.asarray(lists.values)]
        # Boxes have a class each. Other classes are a set, and two of them may have become one.
        if not self.is_placed:
            lists = lists.sorted_unique(labels)
        else:
            lists = Lists(pa.array(labels, pa.int64()), lists.counts)
        return lists.as_array(arrow_type("integers"))

    # --- in a record ----------------------------------------------------------------------------

    def place(self, extra: Mapping[str, Any], placement: Placement) -> dict[str, Any]:
        """Return the columns of the labels that change with the place of the image.

        Args:
            extra: the columns of the sample, with the places in the source image.
            placement: where the stored image shows the source image.

        Raises:
            Rejected: the labels do not fit the image.

        """
        return {}

    @property
    def placed_columns(self) -> Mapping[str, str]:
        """Columns of sample tables that are known when an image is stored, with their kinds."""
        return self.stored_columns if self.is_placed else self.image_columns

    def store(self, data: bytes, info: ImageInfo, placement: Placement) -> bytes:
        """Return a label image as it is stored: a PNG of the size of the stored image.

        Raises:
            Rejected: it does not fit the image, or has other values.

        """
        raise TypeError(f"labels of the type {self.name} are no images")

    def other_columns(self, extra: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
        """Return the extra columns of a sample that its record has: not its label, nor statistics nor a georeference."""
        if self.is_class and not self.images and _TABLE_ONLY.isdisjoint(extra):
            return extra.items()
        left_out = _TABLE_ONLY.union(self.stored_columns)
        return [(name, value) for name, value in extra.items() if name not in left_out]

    def features(self, sample: PendingSample) -> Iterable[Feature]:
        """Return the TFRecord features with the label, except the label image."""
        return ()

    def content(self, sample: PendingSample) -> bytes:
        """Return the content of the WebDataset file with `extension`."""
        raise TypeError(f"labels of the type {self.name} have no file")

    def members(self, sample: PendingSample) -> str:
        """Return the members of a WebDataset ``.json`` with the label, each followed by a comma."""
        members = []
        # Numbers of label images say where they are in the shard, which a record does not know.
        for name, kind in self.columns.items():
            if kind in ("integers", "text", "texts"):
                members.append((name, sample.extra[name]))
            elif kind in ("floats", "boxes"):
                members.append((name, _shortest(sample.extra[name])))
        if self.class_member:
            members.append((self.class_member, sample.class_names))
        return "".join(f"{_json(name)}:{_json(value)}," for name, value in members)

    # --- shown and compared ---------------------------------------------------------------------

    @property
    def shown_others(self) -> str:
        """What the images beside the first one are called in messages."""
        return "masks" if self.has_image else "other images"

    def describe(self, classes: int) -> str:
        """Return what the labels of a dataset with this many classes are, to end a phrase."""
        return f", labels: {self.name}" + (
            f" of {plural(classes, 'class')}" if self.names_classes else ""
        )

    def texts(self, table: pa.Table, classes: Sequence[str]) -> pa.Array:
        """Return the labels of samples as text, large_string [n]: equal texts for equal labels.

        Args:
            table: a table with the columns of the labels.
            classes: class names in label order.

        """
        import pyarrow as pa

        rows = table.select([*self.columns]).to_pylist() if self.columns else [{}] * len(table)
        return pa.array([self.text(row, classes) for row in rows], pa.large_string())

    def text(self, row: Mapping[str, Any], classes: Sequence[str]) -> str:
        """Return the label of one sample as `texts` does."""
        return ""

    # --- classes and groups ---------------------------------------------------------------------

    def pairs(self, column: Any) -> tuple[Int64Array, Int64Array]:
        """Return the row and the class of each label in the column `class_column`."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.is_class:
            rows, labels = np.arange(len(column)), column
        else:
            lists = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
            rows, labels = pc.list_parent_indices(lists), pc.list_flatten(lists)
        return np.asarray(rows).astype(np.int64), np.asarray(labels).astype(np.int64)

    @property
    def group_column(self) -> str | None:
        """Column that decides on the group and the stratum of a sample; `None` for one group."""
        return self.class_column or self.number_column

    def group_values(self, table: pa.Table, classes: int) -> Float64Array:
        """Return a number for each sample: its class or first class, its first number, else 0.

        A sample that can have classes and has none gets the number after the last class.
        """
        import numpy as np

        column = self.group_column
        if column is None:
            return np.zeros(len(table))
        if column == self.number_column:
            return _first_numbers(table[column])
        rows, labels = self.pairs(table[column])
        # The first class of each sample; the number after the last one if it has none.
        values = np.full(len(table), classes, np.float64)
        rows, first = np.unique(rows, return_index=True)
        values[rows] = labels[first]
        return values

    def groups(
        self, values: Float64Array, classes: Sequence[str]
    ) -> tuple[Int32Array, Sequence[str]]:
        """Return the number of each sample's group, int32 [n], and the names of the groups.

        Args:
            values: what `group_values` returned.
            classes: class names in label order.

        """
        import numpy as np

        if self.group_column is None or not len(values):
            names = classes if self.class_column else ("all images",)
            return np.zeros(len(values), np.int32), names
        if self.group_column == self.number_column:
            # Equal numbers may fill several tenths, which are one group then.
            used, groups = np.unique(_tenths(values), return_inverse=True)
            parts = [values[groups == number] for number in range(len(used))]
            return groups.astype(np.int32), [f"{part.min():g} to {part.max():g}" for part in parts]
        has_none = self.class_lists and (values == len(classes)).any()
        return values.astype(np.int32), (*classes, *(("(no class)",) if has_none else ()))

    def strata(self, label: Int32Array, extra: pa.Table, classes: int) -> Int32Array:
        """Return a number for each sample: every split gets its share of the equal numbers.

        Args:
            label: the classes, int32 [n]; zeros if the labels are not classes.
            extra: the columns of other labels.
            classes: number of classes.

        """
        import numpy as np

        column = self.group_column
        if column is None or self.is_class:
            return label
        if column == self.number_column:
            return _tenths(_first_numbers(extra[column])).astype(np.int32)
        rows, labels = self.pairs(extra[column])
        sizes = np.bincount(labels, minlength=classes)
        # Of the classes of a sample, the rarest is written last. A sample without classes is in a
        # stratum of its own.
        order = np.lexsort((labels, -sizes[labels]))
        strata = np.full(len(label), classes, np.int32)
        strata[rows[order]] = labels[order]
        return strata


def _first_numbers(column: pa.ChunkedArray) -> Float64Array:
    import numpy as np
    import pyarrow.compute as pc

    return np.asarray(pc.list_element(column.combine_chunks(), 0)).astype(np.float64)


def _tenths(values: Float64Array) -> Int64Array:
    """Return the tenth that each number is in."""
    import numpy as np

    limits = np.quantile(values, np.linspace(0, 1, _TENTHS + 1)[1:-1], method="nearest")
    return np.searchsorted(limits, values, side="right")


_json: Callable[[Any], str] = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _shortest(values: Sequence[Any]) -> list[Any]:
    """Return float32 values with the fewest digits that stand for them: 0.1, not 0.10000000149."""
    return [
        _shortest(value) if isinstance(value, list) else _shortest_number(value) for value in values
    ]


def _shortest_number(value: float) -> float:
    exact = struct.pack("<f", value)
    candidates = (float(f"{value:.{digits}g}") for digits in range(6, 9))
    return next((number for number in candidates if _packed(number) == exact), value)


def _packed(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:  # rounded up, it no longer fits into a float32
        return b""


def _are_paths(column: pa.ChunkedArray, name: str) -> bool:
    """Return whether a column has the paths of other images. Only a label image must be there."""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_text = pa.types.is_large_string(column.type) or pa.types.is_string(column.type)
    if not is_text or (column.null_count and name == MASK_SOURCE):
        return False
    return not pc.any(pc.match_substring(column, "\0")).as_py()
