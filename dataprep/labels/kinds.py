"""The label types: `KINDS` has one record for each. Boxes and label images have files of their own.

A caption, for example, is the class `Caption`: how it is read from a table, which TFRecord feature
and which file of a WebDataset sample it becomes, and how it is shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from dataprep.labels.base import Feature, LabelKind, PendingSample
from dataprep.labels.boxes import Boxes
from dataprep.labels.images import Depth, Mask
from manifests.labels import LabelType, arrow_type, find_wrong_value
from manifests.process.text import agree, cut_middle, plural

if TYPE_CHECKING:
    import pyarrow as pa

    from dataprep.labels.columns import LabelColumn, Labels, Lists

_quoted = json.encoder.encode_basestring


class NoLabel(LabelKind):
    """Images without labels."""

    stratification = "random: images without labels cannot be stratified"

    def read(self, column: LabelColumn) -> Labels:
        """Return no labels, whatever the column has."""
        return column.labels(self.name, {}, origin="")

    def describe(self, classes: int) -> str:
        """Return that there are no labels."""
        return ", unlabelled"


class SingleClass(LabelKind):
    """One class for each image, in the column ``label``."""

    copies_agree = True
    extension = "cls"

    def read(self, column: LabelColumn) -> Labels:
        """Read class names or numbers, and note what looks like labels of another type."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        from dataprep.labels.columns import (
            FLOAT,
            are_indices,
            is_text,
            number_labels,
            row_error,
            whole_numbers,
        )
        from manifests.parquet import is_list

        if is_list(column.values.type):
            column = replace(column, values=_single_items(column))
        values, name, options = column.values, column.name, column.options
        if pa.types.is_floating(values.type):
            with suppress(pa.ArrowInvalid):  # fractions are refused below
                values = values.cast(pa.int64())
        is_integer, is_coded = pa.types.is_integer(values.type), pa.types.is_dictionary(values.type)
        is_name = is_text(values.type) or (pa.types.is_boolean(values.type) and not column.names)
        if not (is_integer or is_coded or is_name):
            raise column.error(
                f"has the type {column.shown_type}, but labels are integers or names",
                hint="convert it, or set --label-column or --label-type",
            )
        # Class names and numbers are both read as text.
        text = whole_numbers(values.cast(pa.large_string()), column.classes)
        notices = []
        if options.label_type is None and column.classes is None:
            notices += refuse_separated(column)
        label, classes = number_labels(
            text, column.classes, column.locate, max_classes=options.max_classes
        )
        are_integers = are_indices(text, column.classes)
        origin = ""
        if are_integers and column.classes is None:
            origin = f"the numbers in {column.origin}"
            if 10 <= len(np.unique(label)) < len(classes):
                notices.append(
                    f"the integers in column {name} are taken as classes; if they are numbers such"
                    " as ages, set --label-type regression; if they are names, list them with"
                    " --classes"
                )
        notices += _blank_notices(column)
        # Mostly numbers with a few words are more likely a mistake than names.
        is_number = np.asarray(pc.match_substring_regex(text, FLOAT))
        numbers = int(is_number.sum())
        if not are_integers and len(text) > numbers >= max(1, len(text) / 2):
            row = int(np.argmin(is_number))
            mixed = (
                f"column {name}: {numbers:,} of {plural(len(text), 'label')} are numbers, but"
                f" {cut_middle(text[row].as_py(), 80)} is not"
            )
            if options.label_type is None and column.classes is None:
                raise row_error(
                    column.locate,
                    row,
                    mixed,
                    "correct it, or set --label-type class to take all labels as names of classes",
                )
            notices.append(f"{mixed}, so all are taken as names of classes")
        return column.labels(self.name, {}, notices, label=label, classes=classes, origin=origin)

    @property
    def source_columns(self) -> Mapping[str, str]:
        """Return none: a source has its classes beside its extra columns."""
        return {}

    def features(self, sample: PendingSample) -> Iterable[Feature]:
        """Return the name and the number of the class."""
        return (
            (b"image/class/text", "value", sample.class_name),
            (b"image/class/label", "value", sample.label),
        )

    def content(self, sample: PendingSample) -> bytes:
        """Return the number of the class in decimal ASCII."""
        return str(sample.label).encode()

    def members(self, sample: PendingSample) -> str:
        """Return the number and the name of the class."""
        return f'"label":{sample.label},"class":{_quoted(sample.class_name)},'

    def describe(self, classes: int) -> str:
        """Return the number of classes."""
        return f" in {plural(classes, 'class')}"

    def texts(self, table: pa.Table, classes: Sequence[str]) -> pa.Array:
        """Return the names of the classes."""
        import pyarrow as pa

        return pa.array(classes, pa.large_string()).take(table["label"].combine_chunks())


def _blank_notices(column: LabelColumn) -> Iterator[str]:
    """Report labels that programs write for a cell without a value."""
    import pyarrow.compute as pc

    from dataprep.labels.columns import BLANK, is_text

    if column.classes is None and is_text(column.values.type):
        found = column.values.filter(pc.match_substring_regex(column.values, BLANK))
        if len(found):
            are = agree(len(found), "is", "are")
            yield (
                f"{plural(len(found), 'label')} {are} {found[0].as_py()}, which is taken"
                " as the name of a class; if it means that there is no label, leave the cell empty,"
                " and set --blank-labels drop"
            )


def refuse_separated(column: LabelColumn) -> list[str]:
    """Refuse cells of text that have several labels or no label, by `dataprep.labels.cells`.

    Return a message if some may have several, but the cells are too few or too different to tell.

    Raises:
        SourceError: the cells have several labels, or are not names of classes.

    """
    import pyarrow.compute as pc

    from dataprep.labels.cells import find_other_text, find_separator, find_unclear
    from dataprep.labels.columns import is_text

    if not is_text(column.values.type):
        return []
    for what, hint, row in find_other_text(column.values):
        example = cut_middle(column.values[row].as_py(), 80)
        also = "or set --label-type class if each text is the name of one class"
        raise column.error(f"has {what}: {example}", row, f"{hint}; {also}")
    separator = find_separator(column.values)
    unclear = separator or find_unclear(column.values)
    if unclear is None:
        return []
    row = pc.index(pc.match_substring(column.values, unclear), True).as_py()
    example = cut_middle(column.values[row].as_py(), 80)
    if separator is None:
        return [
            f"each cell of {column.origin} is taken as the name of one class, such as {example}; if"
            f" cells have several labels, set --label-separator {unclear!r}"
        ]
    raise column.error(
        f"has several labels in a cell, separated by {separator!r}: {example}",
        row,
        f"set --label-separator {separator!r}, or --label-type class if each cell is the name of one"
        " class",
    )


def _single_items(column: LabelColumn) -> pa.Array:
    """Return the class in each list, of a column of lists with one class each."""
    import numpy as np

    lists = column.lists(None)
    classes = None if column.classes is None else len(column.classes)
    lists = (None if column.names else lists.multi_hot(classes)) or lists
    wrong = np.flatnonzero(lists.counts != 1)
    if len(wrong):
        raise column.error(
            f"has {plural(int(lists.counts[wrong[0]]), 'class')} for an image, not one",
            int(wrong[0]),
            "set --label-type multi-label",
        )
    return lists.values


class MultiLabel(LabelKind):
    """Any number of classes for each image, sorted, and each once."""

    column_names = ("labels", "tags")
    copies_agree = True
    stratification = "stratified by the rarest class of each image"
    class_member = "classes"

    def read(self, column: LabelColumn) -> Labels:
        """Read lists of classes, or lists with 0 or 1 for each class."""
        import pyarrow as pa

        from dataprep.labels.columns import HOT, SEPARATOR, are_indices, is_text, number_labels

        separator, notices = column.options.label_separator or SEPARATOR, []
        if column.options.label_separator is None and not _has_separator(column.values):
            notices += refuse_separated(column)
        lists, classes, origin = column.lists(separator), column.classes, column.origin
        if is_text(column.values.type):
            origin += f", separated by {separator!r}"
        # Numbers with names that the source states are indices.
        known = None if classes is None else len(classes)
        hot = None if column.names is not None else lists.multi_hot(known)
        if hot is not None:
            origin += f", {HOT}"
            length = int(lists.counts[0])
            if known not in (None, length):
                raise column.error(
                    f"has {length} numbers for each image, but there are"
                    f" {plural(len(classes or ()), 'class')}",
                    0,
                    hint="check --classes",
                )
            if known is None and length == 2 and (hot.counts == 1).all():
                notices.append(
                    f"the lists in {column.origin} are taken as 0 or 1 for each of two classes; if"
                    " they are numbers of classes, name all classes with --classes"
                )
            classes = classes or tuple(map(str, range(length)))
            lists = hot
        if pa.types.is_floating(lists.values.type):
            raise column.error(
                "has numbers with fractions, not classes", hint="set --label-type regression"
            )
        # The row of each item, for errors.
        rows = lists.rows()
        _refuse_scores(column, lists)
        label, found = number_labels(
            lists.values.cast(pa.large_string()),
            classes,
            lambda item: column.locate(int(rows[item])),
            max_classes=column.options.max_classes,
        )
        repeated = lists.repeated(label)
        if len(repeated):
            item = str(lists.values[repeated[0]].as_py())
            if column.names is None and are_indices(lists.values.cast(pa.large_string()), classes):
                raise column.error(
                    f"has {item} twice in a list, so the numbers are not numbers of classes",
                    int(rows[repeated[0]]),
                    "set --label-type regression if each image has as many numbers, or remove the"
                    " second one",
                )
            notices.append(
                f"{plural(len(repeated), 'label')} that an image has twice, such as {item},"
                f" {agree(len(repeated), 'counts', 'count')} once"
            )
        labels = lists.sorted_unique(label)
        empty = int((labels.counts == 0).sum())
        if empty:
            notices.append(f"{plural(empty, 'image')} without a class")
        stored = {"labels": labels.as_array(arrow_type("integers"))}
        return column.labels(self.name, stored, notices, classes=found, origin=origin)

    def features(self, sample: PendingSample) -> Iterable[Feature]:
        """Return the names and the numbers of the classes."""
        names = [name.encode() for name in sample.class_names]
        return (
            (b"image/class/text", "bytes", names),
            (b"image/class/label", "integers", sample.extra["labels"]),
        )

    def text(self, row: Mapping[str, Any], classes: Sequence[str]) -> str:
        """Return the names of the classes."""
        return ", ".join(sorted(classes[label] for label in row["labels"]))


def _refuse_scores(column: LabelColumn, lists: Lists) -> None:
    """Refuse labels with a score each in lists, unless an option names the classes."""
    import numpy as np
    import pyarrow.compute as pc

    from dataprep.labels.cells import SCORED
    from dataprep.labels.columns import first_true, is_text

    text, rows = lists.values, lists.rows()
    if is_text(column.values.type):
        text, rows = column.values, np.arange(len(column))
    if is_text(text.type) and column.classes is None:
        item = first_true(pc.match_substring_regex(text, SCORED))
        if item >= 0:
            hint = "write each label without its score, or name all classes with --classes"
            raise column.error(
                f"has labels with scores: {text[item].as_py()}", int(rows[item]), hint
            )


class Regression(LabelKind):
    """The same number of numbers for each image."""

    column_names: ClassVar[tuple[str, ...]] = ("values", "value", "age", "score", "rating", "price")
    copies_agree = True
    stratification = "stratified by the tenths of the first number"

    def read(self, column: LabelColumn) -> Labels:
        """Read numbers, or lists of numbers."""
        import pyarrow.compute as pc

        labels = self.of_lists(column, column.lists(column.options.label_separator))
        (stored,) = labels.columns.values()
        values = pc.list_flatten(stored)
        is_doubtful = column.options.label_type is None and (
            column.name.lower() not in self.column_names
            and pc.all(pc.equal(values, pc.round(values))).as_py()
        )
        if not is_doubtful:
            return labels
        notice = (
            f"the numbers in column {column.name} are integers; if they are classes, set"
            " --label-type class"
        )
        return replace(labels, notices=(*labels.notices, notice))

    def of_lists(self, column: LabelColumn, lists: Lists) -> Labels:
        """Return lists of text or numbers as labels.

        Raises:
            SourceError: a value is not a finite number, or a row has another number of them.

        """
        import pyarrow as pa
        import pyarrow.compute as pc

        from dataprep.labels.columns import Lists, every

        # float32 is what is stored; the exact numbers tell what is lost.
        exact = column.numbers(lists)
        values = exact.values.cast(pa.float32(), safe=False)
        stored = Lists(values, exact.counts).as_array(arrow_type("floats"))
        if wrong := find_wrong_value(stored, "floats"):
            raise column.error(
                wrong.message, wrong.row, "give every image the same number of finite numbers"
            )
        notices = []
        is_exact = every(pc.equal(values.cast(pa.float64()), exact.values))
        if pa.types.is_integer(lists.values.type) and not is_exact:
            notices.append(
                f"column {column.name}: numbers of more than 7 digits are rounded to float32"
            )
        # All rows have as many numbers as the first one.
        count = int(exact.counts[0]) if len(exact.counts) else 0
        origin = f"{column.origin}, {count} numbers each"
        if count == 1:
            low, high = pc.min_max(values).as_py().values()
            origin = f"{column.origin}, {low:g} to {high:g}"
        return column.labels(self.name, {"values": stored}, notices, origin=origin)

    def features(self, sample: PendingSample) -> Iterable[Feature]:
        """Return the numbers."""
        return ((b"image/values", "floats", sample.extra["values"]),)

    def text(self, row: Mapping[str, Any], classes: Sequence[str]) -> str:
        """Return the numbers, with the digits that tell float32 values apart."""
        return ", ".join(f"{value:.9g}" for value in row["values"])


class Caption(LabelKind):
    """A text for each image."""

    column_names = ("caption", "captions", "text", "sentence", "description", "prompt", "comment")
    foreign: ClassVar = {
        "tfrecord": ("image/caption", "caption", "text"),
        "webdataset": ("txt",),
    }
    stratification = "random: captions cannot be stratified"
    extension = "txt"

    def read(self, column: LabelColumn) -> Labels:
        """Read texts."""
        import pyarrow as pa

        from dataprep.labels.columns import is_text

        values = column.values
        if not is_text(values.type):
            raise column.error(
                f"has the type {column.shown_type}, but captions are text",
                hint="write one caption for each image, choose another --label-column, or set"
                " --label-type captions for lists of text",
            )
        return column.labels(self.name, {"caption": values.cast(pa.string())})

    def features(self, sample: PendingSample) -> Iterable[Feature]:
        """Return the caption."""
        return ((b"image/caption", "bytes", [sample.extra["caption"].encode()]),)

    def content(self, sample: PendingSample) -> bytes:
        """Return the caption."""
        return str(sample.extra["caption"]).encode()

    def texts(self, table: pa.Table, classes: Sequence[str]) -> pa.Array:
        """Return the captions."""
        import pyarrow as pa

        return table["caption"].combine_chunks().cast(pa.large_string())


class Captions(LabelKind):
    """Several texts for each image, in the order of the source."""

    column_names = Caption.column_names
    stratification = Caption.stratification

    def read(self, column: LabelColumn) -> Labels:
        """Read lists of texts, or one text in each row."""
        import pyarrow as pa

        from dataprep.labels.columns import Lists, is_text

        lists = column.lists(None)
        item = lists.values.type
        if not (is_text(item) or pa.types.is_null(item)):
            raise column.error(
                f"has the type {column.shown_type}, but captions are lists of text",
                hint="write a list of text for each image, or choose another --label-column",
            )
        stored = Lists(lists.values.cast(pa.string()), lists.counts).as_array(arrow_type("texts"))
        if wrong := find_wrong_value(stored, "texts"):
            hint = (
                "write at least one caption, and none that is empty; or set --blank-labels drop to"
                " leave out images without one"
            )
            raise column.error(wrong.message, wrong.row, hint)
        origin = f"{column.origin}, {plural(len(lists.values), 'text')}"
        return column.labels(self.name, {"captions": stored}, origin=origin)

    def features(self, sample: PendingSample) -> Iterable[Feature]:
        """Return the captions."""
        texts = [text.encode() for text in sample.extra["captions"]]
        return ((b"image/caption", "bytes", texts),)

    def text(self, row: Mapping[str, Any], classes: Sequence[str]) -> str:
        """Return the captions, each in quotes."""
        return ", ".join(map(_quoted, row["captions"]))


MULTI_LABEL, REGRESSION = MultiLabel.of("multi-label"), Regression.of("regression")
SINGLE_CLASS, CAPTION = SingleClass.of("class"), Caption.of("caption")
CAPTIONS = Captions.of("captions")

_ALL: tuple[LabelKind, ...] = (
    SINGLE_CLASS,
    NoLabel.of("none"),
    MULTI_LABEL,
    REGRESSION,
    CAPTION,
    CAPTIONS,
    Boxes.of("boxes"),
    Mask.of("mask"),
    Depth.of("depth"),
)

#: What the stages ask about the labels of each type.
KINDS: Mapping[LabelType, LabelKind] = {kind.name: kind for kind in _ALL}


@lru_cache
def kind_with(label_type: LabelType, images: tuple[str, ...]) -> LabelKind:
    """Return the record of samples with these images; see `manifests.labels.schema_of`."""
    return replace(KINDS[label_type], images=images)


# --- detect the type of a column ------------------------------------------------------------------

#: The columns that are searched for labels if there is none called ``label``, ``class`` or
#: ``target``.
OTHER_LABEL_COLUMNS = (
    *MULTI_LABEL.column_names,
    *("values", "caption", "captions", "age", "score", "rating"),
)


def read_labels(column: LabelColumn) -> Labels:
    """Read the labels in a column: of the type that an option names, or that its values have.

    Raises:
        CallError: the column cannot contain labels of the type.
        SourceError: a value is missing, or cannot be a label.

    """
    from dataprep.labels.cells import lists_in_text
    from dataprep.labels.columns import check_filled, is_text

    # Text of lists is read as the lists, unless it is text whatever it contains.
    label_type = column.options.label_type
    stays = label_type in ("class", "caption", "none")
    if label_type is None:
        stays = column.name.lower() in CAPTION.column_names
    if is_text(column.values.type) and not stays:
        lists = lists_in_text(column.values)
        if lists is not None:
            column = replace(column, values=lists)
    kind = kind_of(column)
    if kind.class_lists is None and kind.name != "none":
        check_filled(column.values, column.name, column.locate)
    return kind.read(column)


def kind_of(column: LabelColumn) -> LabelKind:
    """Return the record of the type that an option names, or that fits the values and the name."""
    from manifests.parquet import is_list

    if column.options.label_type is not None:
        return KINDS[column.options.label_type]
    detected = _detect(column)
    # What has names of classes is neither a number nor a caption.
    has_names = column.classes is not None and not is_list(column.values.type)
    return SINGLE_CLASS if has_names and detected in (REGRESSION, CAPTION) else detected


def _detect(column: LabelColumn) -> LabelKind:
    import pyarrow as pa

    from dataprep.labels.columns import is_text
    from manifests.parquet import is_list

    # The type of the values decides, as far as it can.
    value_type, name = column.values.type, column.name.lower()
    if is_list(value_type):
        if name in CAPTIONS.column_names and is_text(value_type.value_type):
            return CAPTIONS
        is_fraction = pa.types.is_floating(value_type.value_type)
        return REGRESSION if is_fraction and not _is_hot(column) else MULTI_LABEL
    if column.options.label_separator is not None:
        return MULTI_LABEL
    if is_text(value_type):
        return _detect_in_text(column.values, name)
    # The names of columns decide only where the values leave a choice.
    is_number = pa.types.is_integer(value_type) and name in REGRESSION.column_names
    return REGRESSION if is_number or pa.types.is_floating(value_type) else SINGLE_CLASS


def _detect_in_text(values: pa.Array, name: str) -> LabelKind:
    import pyarrow.compute as pc

    from dataprep.labels.columns import FLOAT

    if name in CAPTION.column_names:
        return CAPTION
    if _has_separator(values):
        return MULTI_LABEL
    if not pc.all(pc.match_substring_regex(values, FLOAT)).as_py():
        return SINGLE_CLASS
    has_point = pc.any(pc.match_substring_regex(values, r"[.eE]")).as_py()
    return REGRESSION if has_point or name in REGRESSION.column_names else SINGLE_CLASS


def _is_hot(column: LabelColumn) -> bool:
    """Return whether lists of fractions are 0 or 1 for each class."""
    from dataprep.labels.columns import lists_of_column

    lists = lists_of_column(column.values)
    return not lists.values.null_count and lists.multi_hot(None) is not None


def _has_separator(values: pa.Array) -> bool:
    """Return whether text contains the separator that is used unless an option sets another."""
    import pyarrow.compute as pc

    from dataprep.labels.columns import SEPARATOR, is_text

    return is_text(values.type) and bool(pc.any(pc.match_substring(values, SEPARATOR)).as_py())
